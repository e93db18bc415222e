"""
The names that the user gives to models and data: folders and files here, or repositories of the Hub.

Without a network the Hub's client repeats each of its requests for half a minute. A wrong name is refused before.
"""

import difflib
import itertools
import logging
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError
from huggingface_hub.file_download import repo_folder_name

from .data.detect import ENDINGS
from .errors import UserError


logger = logging.getLogger(__name__)

_SECONDS = 10  # for an answer of the Hub
_MOST_NAMES = 10_000
# Files that the commands read; the Hub has repositories with other full stops in their names, such as bert-v1.1.
_ENDINGS = (*ENDINGS, ".gz", ".yaml", ".yml", ".safetensors")


def check_exists(flag: str, name: str | None, kind: Literal["model", "dataset"] = "model") -> None:
    """Make sure that a name is a file or folder here, or a repository that the Hub has or that is in its cache."""
    if name is None or Path(name).exists():
        return
    hint = did_you_mean_source(name)
    if looks_like_path(name):
        raise UserError(f"{flag} {name} does not exist: there is no such folder or file in {Path.cwd()}.{hint}")
    cached = Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type=kind) / "snapshots"
    if cached.is_dir() or (constants.HF_HUB_OFFLINE and kind == "dataset"):  # which has a cache of its own too
        return
    absent = f"{flag} {name} is no folder in {Path.cwd()}"
    if constants.HF_HUB_OFFLINE:
        raise UserError(f"{absent}, and HF_HUB_OFFLINE forbids to ask the Hub: name a folder, or unset it.{hint}")
    logger.warning(f"{absent}: the Hub is asked for it.{hint}")  # which may take long
    try:
        HfApi().repo_info(name, repo_type=kind, timeout=_SECONDS)
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise UserError(f"{absent}, and the Hub has no such {kind}.{hint}") from error
    except HfHubHTTPError:
        return  # a server that does not answer this question may have the files
    except unreachable_errors() as error:
        raise UserError(f"{absent}, and the Hub cannot be reached ({error}).{hint}") from error


def check_folder(flag: str, name: str) -> None:
    """Raise a UserError where a folder has neither a model nor a tokenizer."""
    known = ("config.json", "arguments.json", "tokenizer_config.json")
    if Path(name).is_dir() and not any(Path(name, file).exists() for file in known):
        raise UserError(
            f"{flag} {name} has no config.json: name the output folder of a finished training, or a model of the Hub, "
            "bert-base-cased."
        )


def looks_like_path(name: str) -> bool:
    """Whether a name cannot be a repository of the Hub, which is NAME or OWNER/NAME."""
    starts = (".", "/", "~", "configuration/")
    return name.startswith(starts) or name.endswith(("/", *_ENDINGS)) or name.count("/") > 1 or "\\" in name


def did_you_mean_source(name: str) -> str:
    """A sentence that names the folder or file whose path is most like a missing one's; empty without any."""
    path = Path(name).expanduser()
    folder, pattern = (path.parent, "*") if path.parent.is_dir() else (path.parent.parent, "*/*")
    paths = itertools.islice(folder.glob(pattern), _MOST_NAMES)
    names = [str(each.relative_to(folder)) for each in paths if not each.name.startswith(".")]
    similar = difflib.get_close_matches(str(path.relative_to(folder)), names, n=1, cutoff=0.7)
    return f" Did you mean {folder / similar[0]}?" if similar else ""


def unreachable_errors() -> tuple[type[Exception], ...]:
    """
    The errors of the Hub's client if it has no connection, HF_HUB_OFFLINE included. The client exports no name for
    those of its HTTP library, httpx or httpx2 (seen in huggingface_hub 2.4): its own error has their base.
    """
    bases = [each for each in HfHubHTTPError.__mro__ if each.__module__.split(".")[0] in ("httpx", "httpx2")]
    return ConnectionError, *bases[:1]
