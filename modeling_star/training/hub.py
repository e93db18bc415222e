"""What of a run's folder goes to the Hub, at the end of training and by run_scripts/push_to_hub.py."""

import json
import re
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError

from ..errors import UserError
from .checkpoints import ARGUMENTS


NEEDED = {"config.json": "the configuration", "model.safetensors": "the weights", "README.md": "the model card"}
SHARED = (".json", ".jsonl", ".conll", ".md", ".png", ".py", ".safetensors", ".txt", ".csv", ".yaml")
"""Endings of what is uploaded. Pickles are not: code may hide in them, and training_args.bin holds --hub_token."""

# Of this machine: where the data and the best checkpoint lie, say.
_OWN = (ARGUMENTS, "trainer_state.json")
# They hold texts of validation and test; the second kind is run_qa.py's, spans of the contexts.
_PREDICTIONS = ("predictions_*", "answers_*.json")
_LEFT_OUT = ("checkpoint-", ".", "runs")


def files_to_share(folder: Path, predictions: bool = False) -> list[str]:
    """
    What is uploaded, as paths below the folder, predictions where they are asked for.

    Raises:
        UserError: the folder holds no complete model.
    """
    told = folder / ARGUMENTS
    if told.is_file() and json.loads(told.read_text(encoding="utf-8")).get("model_type") == "tfidf":
        raise UserError(f"{folder} is a TF-IDF model, which only this package reads: it is not published on the Hub.")
    for name, what in NEEDED.items():
        if name == "model.safetensors" and (folder / f"{name}.index.json").is_file():
            continue  # in parts
        if not (folder / name).is_file():
            seeds = sorted(path.name for path in folder.glob("seed-*"))
            advice = (
                f"name one seed's folder, {folder / seeds[0]}" if seeds else "name the output folder of a finished run"
            )
            raise UserError(f"{folder} has no {name}, {what}: {advice}.")
    inside = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in inside
        if path.suffix in SHARED
        and not any(part.startswith(_LEFT_OUT) for part in path.parts)
        and path.name not in _OWN
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
    Make the repository if it is not there, and upload files in one commit; the card then names the repository.

    Args:
        folder: an output folder.
        files: of `files_to_share`.
        repo: NAME/MODEL; MODEL alone is one of the token's owner.
        private: whether a new repository is private; `None`: as the Hub does for its owner.
        message: of the commit.
        token: the Hub's; `None`: that of `hf auth login`.
        revision: a branch that is there; `None`: main.

    Raises:
        UserError: the name is none, the Hub refuses the card or the upload, or it cannot be reached.
    """
    api = HfApi(token=token)
    try:
        whole = api.create_repo(repo, private=private, exist_ok=True).repo_id
        # The card shows how to load the model from where it is read.
        card = (folder / "README.md").read_text(encoding="utf-8")
        card = re.sub(r'(\bmodel=|from_pretrained\()"[^"]*"', rf'\1"{whole}"', card)
        contents = {name: folder / name for name in files} | {"README.md": card.encode()}
        return api.create_commit(
            whole,
            [CommitOperationAdd(name, content) for name, content in contents.items()],
            commit_message=message,
            revision=revision,
        )
    except HFValidationError as error:
        raise UserError(f"{repo} is no name of a repository ({error}): write yourname/star-wnut17") from error
    except HfHubHTTPError as error:  # some are ValueErrors too
        raise UserError(
            f"The Hub refused {repo} ({error}): log in with `hf auth login`, and name a repository of yours."
        ) from error
    except ValueError as error:  # of the card's metadata, which the Hub checks first
        raise UserError(f"The Hub refuses the metadata in README.md ({error}): mend it, and try again.") from error
    except unreachable_errors() as error:
        raise UserError(
            f"The Hub cannot be reached ({error}): nothing of {repo} was changed. Try again when it can."
        ) from error


def unreachable_errors() -> tuple[type[Exception], ...]:
    """
    What the Hub's client raises where it does not get through, HF_HUB_OFFLINE included. It exports no name for the
    errors of its HTTP library, which was httpx and is httpx2 (seen in huggingface_hub 2.4): its own has their base.
    """
    return ConnectionError, HfHubHTTPError.__mro__[1]


__all__ = ["SHARED", "files_to_share", "unreachable_errors", "upload"]
