"""
Write files whole or not at all, and folders that are not left empty. The manifest of a folder says what was written
into it; after a change on purpose, `python -m modeling_star.files FOLDER` writes it again.
"""

import hashlib
import itertools
import json
import math
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import UserError


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file by `write(stream)`, whole or not at all: after an error the old content stays."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # in the same folder: a file can be replaced in one step only within one file system
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            write(stream)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is not None:  # a user knows no temporary file
            error.filename, error.filename2 = str(path), None
        raise
    return path


REPORT = "report"
"""The folder, in that of a run, with its scores, plots, predictions and mistakes. The model is in the folder above."""


def find_report(folder: Path, name: str) -> Path:
    """The path of a file of a run's report, there or not; that of a run of version 0.2 is beside the model."""
    inside, beside = folder / REPORT / name, folder / name
    return beside if beside.is_file() and not inside.is_file() else inside


ARGUMENTS = "arguments.json"
"""The file with the arguments that a run began with."""
MANIFEST = "manifest.json"
"""Written last into a checkpoint, and into the folder of a trained or exported model: size and hash of its files."""
MODEL_FILES = (
    *("*.safetensors", "*.safetensors.index.json", "*.onnx", "config.json", ARGUMENTS, "crf.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "web.json"),
)
"""What the manifest of a model protects: all that its predictions depend on."""
LOCK = "running.lock"


def is_finished(folder: Path) -> bool:
    """Whether the folder of a run has a trained model and its results."""
    return (folder / MANIFEST).is_file() and find_report(folder, "all_results.json").is_file()


def folder_contents(folder: Path) -> list[str]:
    """The names in the output folder of a run, which is created if absent, without empty folders."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # of a file too
        raise UserError(f"The folder {folder} cannot be created ({error.strerror}): name another folder.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"The folder {folder} cannot be written: name another folder, or change its permissions.")
    paths = (path for path in folder.iterdir() if not path.is_dir() or any(path.iterdir()))
    return sorted(path.name for path in paths if path.name != LOCK)


def check_empty(folder: Path, held: list[str], instead: str) -> None:
    """Raise a UserError where there is something in the folder."""
    if held:
        found = "a finished run" if is_finished(folder) else listed(held)
        raise UserError(f"The folder {folder} holds {found}, and nothing is overwritten: {instead}")


def check_new(folder: Path) -> None:
    """Raise a UserError where results may not be written to a folder, which is created if absent."""
    check_empty(folder, folder_contents(folder), "name a new folder")


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text with "\\n" line ends, atomically."""
    return write_atomically(path, lambda stream: stream.write(text.encode()))


def write_json(path: str | os.PathLike[str], data: Any) -> Path:
    """Write indented JSON, atomically. NumPy numbers and arrays become plain ones; NaN and infinities become null."""
    return write_text(path, json.dumps(_plain(data), indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_json_lines(path: str | os.PathLike[str], rows: Iterable[Any]) -> Path:
    """Write one JSON value per line, atomically."""
    return write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _plain(value: Any) -> Any:
    """`value` in the types of JSON."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its parents, and remove those that were made here and stay empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty, or removed
            for path in made:
                path.rmdir()


# ------ what a saved model says of itself


def read_fields(path: Path) -> dict[str, Any]:
    """
    The fields of a model's configuration, or of the arguments of its training; a UserError where the file cannot be
    read, or a field is of another kind than its readers expect.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read ({error}): copy it again, or export the model again.") from error
    if not isinstance(fields, dict):
        raise UserError(f"{path} has {str(fields)[:40]!r} and no fields: copy it again, or export the model again.")
    for name, kind in {"auto_map": dict, "id2label": dict, "label2id": dict, **dict.fromkeys(_LISTS, list)}.items():
        value = fields.get(name, kind())
        is_right = isinstance(value, kind) and (kind is dict or all(isinstance(each, str) for each in value))
        is_right &= name != "id2label" or all(map(str.isdigit, value or ()))
        if not is_right and (value is not None or name == "auto_map"):
            raise UserError(f"{path} has {name}: {str(value)[:40]!r}: delete this field, or copy the file again.")
    return fields


_LISTS = ("architectures", "text_columns")


def check_labels(name: str, config: Any) -> None:
    """Compare `id2label` with `label2id`, which is made where there is none; a UserError where they differ."""
    labels = {str(number): str(label) for number, label in config.id2label.items()}
    if labels.keys() != {str(number) for number in range(len(labels))}:
        raise UserError(
            f"id2label in the config.json of {name} has the numbers {listed(labels)}: write them from 0 to "
            f"{len(labels) - 1}."
        )
    names = {number: labels[str(number)] for number in range(len(labels))}
    twice = [label for label, count in Counter(names.values()).items() if count > 1]
    if twice:
        raise UserError(
            f"id2label in the config.json of {name} has the name {listed(twice)} more than once: give each label a "
            "name of its own, in label2id too."
        )
    numbers = {label: number for number, label in names.items()}
    given = config.label2id
    if given is not None and {str(x): str(y) for x, y in given.items()} != {x: str(y) for x, y in numbers.items()}:
        raise UserError(
            f"id2label and label2id in the config.json of {name} differ: write the same names and numbers in both, "
            f'"label2id": {json.dumps(numbers, ensure_ascii=False)}'
        )
    config.id2label, config.label2id = names, numbers


def listed(names: Collection[Any]) -> str:
    """The first three of some names."""
    first = ", ".join(str(name) for name in itertools.islice(names, 3))
    return first + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ------ the manifest


def check_files(name: str, patterns: Collection[str] = MODEL_FILES) -> None:
    """
    Compare the files in the folder of a model with its manifest, where there is one; a UserError where one is missing,
    or is not as it was written.
    """
    folder = Path(name)
    if (folder / MANIFEST).is_file() and (fault := find_change(folder, patterns)):
        raise UserError(
            f"{fault} in {name}: copy its files again. If you changed it on purpose, write python -m "
            f"modeling_star.files {shlex.quote(name)}"
        )


def find_change(folder: Path, patterns: Collection[str] = ("*",)) -> str | None:
    """The first file of a manifest that is not as it was written, in words, or `None`."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"].items()
        wanted = [(name, dict(as_written)) for name, as_written in files if any(map(Path(name).match, patterns))]
    except (ValueError, LookupError, AttributeError, TypeError) as error:
        raise UserError(
            f"{folder / MANIFEST} cannot be read ({error}): copy the folder again, or delete it."
        ) from error
    for name, as_written in wanted:
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        # Until version 0.2 hashes were of BLAKE2, which browsers do not have.
        if _describe(path, "blake2b" if "blake2b" in as_written else "sha256") != as_written:
            return f"{name} is not as it was written"
    return None


def _describe(path: Path, algorithm: str = "sha256") -> dict[str, Any]:
    """The size and the hash of a file."""
    with path.open("rb") as file:
        return {"size": path.stat().st_size, algorithm: hashlib.file_digest(file, algorithm).hexdigest()}


def write_manifest(folder: Path, patterns: Iterable[str] = ("**/*",)) -> None:
    """Write the sizes and hashes of the files of a folder: of a checkpoint all, of a model those of some patterns."""
    found = {path for pattern in patterns for path in folder.glob(pattern)}
    paths = sorted(path for path in found if path.is_file() and path.name != MANIFEST)
    files = {path.relative_to(folder).as_posix(): _describe(path) for path in paths}
    write_json(folder / MANIFEST, {"files": files})


if __name__ == "__main__":
    write_manifest(Path(sys.argv[1]), MODEL_FILES)
