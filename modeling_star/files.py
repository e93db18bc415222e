"""Write files whole or not at all, and folders that are not left empty."""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from .errors import UserError


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file by `write(stream)`, whole or not at all: after an error the old content stays.

    Returns:
        The path written. Missing folders are created.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # in the same folder: a file can be replaced in one step only within one file system
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as stream:
            write(stream)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


REPORT = "report"
"""The folder, in that of a run, with its scores, plots, predictions and mistakes. The model is beside it."""


def find_report(folder: Path, name: str) -> Path:
    """The path of a file of a run's report, there or not; that of a run of version 0.2 is beside the model."""
    inside, beside = folder / REPORT / name, folder / name
    return beside if beside.is_file() and not inside.is_file() else inside


ARGUMENTS = "arguments.json"
"""The file with the arguments that a run began with."""
MANIFEST = "manifest.json"
"""Written last into a checkpoint, and into the folder of a trained model: the size and the hash of its files."""
LOCK = "running.lock"


def is_finished(folder: Path) -> bool:
    """Whether the folder of a run has a trained model and its results."""
    return (folder / MANIFEST).is_file() and find_report(folder, "all_results.json").is_file()


def folder_contents(folder: Path) -> list[str]:
    """
    The names in the output folder of a run, without empty folders; it is created if absent.

    Raises:
        UserError: it is a file, or cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:  # of a file too
        raise UserError(f"--output_dir {folder} cannot be created ({error.strerror}): name another folder.") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UserError(f"--output_dir {folder} cannot be written: name another folder, or change its permissions.")
    paths = (path for path in folder.iterdir() if not path.is_dir() or any(path.iterdir()))
    return sorted(path.name for path in paths if path.name != LOCK)


def check_empty(folder: Path, held: list[str], instead: str) -> None:
    """
    Raises:
        UserError: there is something in the folder.
    """
    if is_finished(folder):
        raise UserError(f"--output_dir {folder} holds a finished run, and nothing is overwritten: {instead}")
    if held:
        names = ", ".join(held[:4]) + (", ..." if len(held) > 4 else "")
        raise UserError(f"--output_dir {folder} holds {names}, and nothing is overwritten: {instead}")


def check_new(folder: Path) -> None:
    """
    Make sure that results may be written to a folder, which is created if absent.

    Raises:
        UserError: it cannot be written, or is not empty.
    """
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
