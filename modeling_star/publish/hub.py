"""The files of a run's folder that are published on the Hub, and their upload."""

import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

from huggingface_hub import CommitInfo, CommitOperationAdd, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from transformers import TrainingArguments
from transformers.dynamic_module_utils import get_relative_import_files

from ..errors import UserError
from ..files import REPORT
from ..models.saving import CODE
from ..sources import unreachable_errors


NEEDED = {"config.json": "the configuration", "model.safetensors": "the weights", "README.md": "the model card"}
SHARED = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("manifest.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"),
    *("vocab.json", "vocab.txt", "merges.txt", "README.md"),
)
"""The files of a model that are uploaded, with the code that auto_map names: no pickles, which may hide code, and
nothing that was put beside them."""

# Those of a run of version 0.2 are beside the model.
_REPORTS = (
    *("all_results.json", "training_curves.png", "classes_*.md", "entities_*.md"),
    *("calibration_*.png", "calibration_*.md"),
)
# These hold texts of validation and test.
_PREDICTIONS = ("predictions_*.jsonl", "predictions_*.conll", "answers_*.json", "errors_*.html")


def files_to_share(folder: Path, predictions: bool = False, examples: bool = False) -> list[str]:
    """
    The paths in a folder of the files to upload: with `predictions` also those and mistakes, with `examples` also a
    card that shows texts of the data. Links to files elsewhere are not among them.
    """
    names = _files_in(folder)
    for name, what in NEEDED.items():
        is_sharded = name == "model.safetensors" and f"{name}.index.json" in names
        if not is_sharded and name not in names:
            seeds = sorted(folder.glob("seed-*"))
            advice = f"name the folder of one seed, {seeds[0]}" if seeds else "name the folder of a finished run"
            raise UserError(f"{folder} has no {name}, {what}: {advice}.")
    metadata = (folder / "README.md").read_text(encoding="utf-8").partition("\n---")[0]
    if not examples and "\nwidget:" in metadata:
        raise UserError(
            f"{folder / 'README.md'} has examples (`widget`), which may be texts of your data: delete them there and "
            "in its code, or add --examples."
        )
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    code: set[Path] = set()
    for value in (config.get("auto_map") or {}).values():
        module = folder / f"{value.rpartition('.')[0]}.py" if isinstance(value, str) and "--" not in value else None
        if module is None or module in code:
            continue
        if not module.resolve().is_relative_to(folder.resolve()) or not module.is_file():
            raise UserError(
                f"{folder} has no {module.relative_to(folder)}, which auto_map in its config.json names: copy {CODE}/ "
                "there from the training's output folder."
            )
        code |= {module, *map(Path, get_relative_import_files(str(module)))}
    reports = _REPORTS + (_PREDICTIONS if predictions else ())

    def chosen(patterns: tuple[str, ...], of: Path = folder) -> list[str]:
        return [name for name in _files_in(of) if any(fnmatchcase(name, pattern) for pattern in patterns)]

    files = chosen(SHARED + reports) + sorted(path.relative_to(folder).as_posix() for path in code)
    return files + [f"{REPORT}/{name}" for name in chosen(reports, folder / REPORT)]


def _files_in(folder: Path) -> list[str]:
    return [path.name for path in sorted(folder.glob("*")) if path.is_file() and not path.is_symlink()]


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
    Create the repository NAME/MODEL, or MODEL of the token's owner, if needed, and upload files in one commit to an
    existing branch (`revision`; `None`: main). The card then names the repository.
    """
    api = HfApi(token=token)
    try:
        repo_id = api.create_repo(repo, private=private, exist_ok=True).repo_id
        card = (folder / "README.md").read_text(encoding="utf-8")
        card = re.sub(r'(\bmodel=|from_pretrained\()"(?:[^"\\]|\\.)*"', rf'\1"{repo_id}"', card)
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


def upload_run(training: TrainingArguments) -> CommitInfo:
    """Upload the folder of a run that has ended, without predictions, as --push_to_hub requests."""
    folder = Path(training.output_dir)
    return upload(
        folder,
        files_to_share(folder, examples=True),  # only those of --card_examples
        training.hub_model_id or folder.resolve().name,
        private=training.hub_private_repo,
        message="End of training",
        token=training.hub_token,
        revision=training.hub_revision,
    )
