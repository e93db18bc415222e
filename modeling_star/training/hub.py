"""The files of a run's folder that are published on the Hub, and their upload."""

import json
import re
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from ..errors import UserError
from .checkpoints import ARGUMENTS


NEEDED = {"config.json": "the configuration", "model.safetensors": "the weights", "README.md": "the model card"}
SHARED = (".json", ".jsonl", ".conll", ".md", ".png", ".py", ".safetensors", ".txt", ".csv", ".yaml")
"""Suffixes of uploaded files, without pickles: they may hide code, and training_args.bin holds --hub_token."""

# These hold paths of this machine.
_LOCAL = (ARGUMENTS, "trainer_state.json")
# These hold texts of validation and test.
_PREDICTIONS = ("predictions_*", "answers_*.json")
_LEFT_OUT = ("checkpoint-", ".", "runs")


def files_to_share(folder: Path, predictions: bool = False) -> list[str]:
    """
    The files to upload, as paths relative to the folder, with predictions on request.

    Raises:
        UserError: the folder holds no complete model.
    """
    arguments = folder / ARGUMENTS
    if arguments.is_file() and json.loads(arguments.read_text(encoding="utf-8")).get("model_type") == "tfidf":
        raise UserError(f"{folder} is a TF-IDF model, which transformers cannot load: it is not published on the Hub.")
    for name, what in NEEDED.items():
        is_sharded = name == "model.safetensors" and (folder / f"{name}.index.json").is_file()
        if not is_sharded and not (folder / name).is_file():
            seeds = sorted(folder.glob("seed-*"))
            advice = f"name the folder of one seed, {seeds[0]}" if seeds else "name the folder of a finished run"
            raise UserError(f"{folder} has no {name}, {what}: {advice}.")
    paths = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in paths
        if path.suffix in SHARED
        and not any(part.startswith(_LEFT_OUT) for part in path.parts)
        and path.name not in _LOCAL
        and (predictions or not any(path.match(pattern) for pattern in _PREDICTIONS))
    ]


def upload(
    folder: Path,
    files: list[str],
    repo: str,
    *,
    private: bool | None = None,
    message: str = "Upload model",
    token: str | None = None,
    revision: str | None = None,
) -> CommitInfo:
    """
    Create the repository if needed, and upload files in one commit; the card then names the repository.

    Args:
        folder: an output folder.
        files: of `files_to_share`.
        repo: NAME/MODEL, or MODEL for a repository of the token's owner.
        private: whether a new repository is private; `None` for the owner's default.
        message: of the commit.
        token: for the Hub; `None` for that of `hf auth login`.
        revision: an existing branch; `None` for main.

    Raises:
        UserError: the name is invalid, the Hub refuses the card or the upload, or it cannot be reached.
    """
    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repo, private=private, exist_ok=True).repo_id
        card = (folder / "README.md").read_text(encoding="utf-8")
        card = re.sub(r'(\bmodel=|from_pretrained\()"[^"]*"', rf'\1"{repo_id}"', card)
        contents = {name: folder / name for name in files} | {"README.md": card.encode()}
        operations = [CommitOperationAdd(name, content) for name, content in contents.items()]
        return api.create_commit(repo_id, operations, commit_message=message, revision=revision)
    except HFValidationError as error:
        raise UserError(f"{repo} is no name of a repository ({error}): write yourname/star-wnut17") from error
    except HfHubHTTPError as error:  # some are ValueErrors too
        raise UserError(f"The Hub refused {repo} ({error}): log in with `hf auth login`, or name another.") from error
    except ValueError as error:  # about the card's metadata, which the Hub checks first
        raise UserError(f"The Hub refuses the metadata in README.md ({error}): edit it, and try again.") from error
    except unreachable_errors() as error:
        raise UserError(f"The Hub cannot be reached ({error}), and {repo} is unchanged: try again later.") from error


def unreachable_errors() -> tuple[type[Exception], ...]:
    """
    The errors of the Hub's client if it has no connection, HF_HUB_OFFLINE included. It exports no name for those of
    its HTTP library, httpx or httpx2 (seen in huggingface_hub 2.4): its own error has their base.
    """
    return ConnectionError, HfHubHTTPError.__mro__[1]
