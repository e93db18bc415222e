#!/usr/bin/env python
"""
Upload a trained model with its tokenizer, card and reports to the Hub.

    hf auth login
    python run_scripts/push_to_hub.py outputs/wnut17 yourname/star-wnut17 --private
    python run_scripts/push_to_hub.py outputs/wnut17 yourname/star-wnut17 --dry_run    # only lists the files

Checkpoints, predictions (they hold the texts of validation and test: --predictions uploads them) and whatever is no
safetensors, text or picture stay here. The card's examples are texts of the test split. The model's code travels with
it, so that AutoModel.from_pretrained("yourname/star-wnut17", trust_remote_code=True) works where this package is not
installed.
"""

import argparse
import re
import sys
from pathlib import Path


NEEDED = {"config.json": "the configuration", "model.safetensors": "the weights", "README.md": "the model card"}
SHARED = (".json", ".jsonl", ".md", ".png", ".py", ".safetensors", ".txt", ".csv", ".yaml")


def main() -> None:
    """Read the arguments, check the folder, upload."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="output folder of run_ner.py, run_glue.py, ...")
    parser.add_argument("repo", metavar="NAME/MODEL", help="repository on the Hub; made if it does not exist")
    parser.add_argument("--private", action="store_true", help="make a new repository private")
    parser.add_argument("--message", default="Upload model", help='commit message (default: "Upload model")')
    parser.add_argument("--dry_run", action="store_true", help="list the files and upload nothing")
    parser.add_argument(
        "--predictions", action="store_true", help="upload predictions_*.jsonl, with the texts in them"
    )
    arguments = parser.parse_args()
    files = files_to_share(arguments.folder, arguments.predictions)
    for path in files:
        print(f"{(arguments.folder / path).stat().st_size:>12,}  {path}")
    if arguments.dry_run:
        return
    print(upload(arguments.folder, files, arguments.repo, arguments.private, arguments.message))


def files_to_share(folder: Path, predictions: bool = False) -> list[str]:
    """
    What is uploaded, as paths below the folder, predictions where they are asked for.

    Raises:
        SystemExit: the folder holds no complete model.
    """
    for name, what in NEEDED.items():
        if not (folder / name).is_file():
            sys.exit(f"{folder} has no {name}, {what}: name the output folder of a finished run.")
    inside = (path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file())
    return [
        path.as_posix()
        for path in inside
        if path.suffix in SHARED
        and not any(part.startswith(("checkpoint-", ".", "runs")) for part in path.parts)
        and (predictions or not path.match("predictions_*.jsonl"))
    ]


def upload(folder: Path, files: list[str], repo: str, private: bool, message: str) -> str:
    """Make the repository if it is not there, upload the files in one commit, and return the commit's address."""
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    # The card shows how to load the model from where it is read.
    card = (folder / "README.md").read_text(encoding="utf-8")
    card = re.sub(r'(\bmodel=|from_pretrained\()"[^"]*"', rf'\1"{repo}"', card)
    contents = {name: folder / name for name in files} | {"README.md": card.encode()}
    api = HfApi()
    try:
        api.create_repo(repo, private=private, exist_ok=True)
        commit = api.create_commit(
            repo,
            [CommitOperationAdd(name, content) for name, content in contents.items()],
            commit_message=message,
        )
    except HFValidationError as error:
        sys.exit(f"{repo} is no name of a repository ({error}): write yourname/star-wnut17")
    except ValueError as error:  # of the card's metadata, which the Hub checks first
        sys.exit(f"The Hub refuses the metadata in README.md ({error}): mend it, and try again.")
    except HfHubHTTPError as error:
        sys.exit(f"The Hub refused {repo} ({error}): log in with `hf auth login`, and name a repository of yours.")
    except unreachable_errors() as error:
        sys.exit(f"The Hub cannot be reached ({error}): nothing of {repo} was changed. Try again when it can.")
    return str(commit.commit_url)


def unreachable_errors() -> tuple[type[Exception], ...]:
    """
    What the Hub's client raises where it does not get through, HF_HUB_OFFLINE included. It exports no name for the
    errors of its HTTP library, which was httpx and is httpx2 (seen in huggingface_hub 2.4): its own has their base.
    """
    from huggingface_hub.errors import HfHubHTTPError

    return ConnectionError, HfHubHTTPError.__mro__[1]


if __name__ == "__main__":
    main()
