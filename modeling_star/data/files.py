"""Open data files of every format, with errors that name the file."""

import bz2
import difflib
import gzip
import io
import shlex
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pyarrow

from ..errors import UserError, is_bug
from .encodings import is_wide, not_utf8


FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "conll",
    ".conll": "conll",
    ".conllu": "conll",
    ".conllup": "conll",
    ".cupt": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bmes": "conll",
}
"""The format of a file by its ending (before `.gz`)."""

PACKED = (".gz", ".bz2", ".zst")
"""The endings of packed files."""

_UNPACK = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".zst": "zstd -dc"}


def ending_of(path: Path) -> str:
    """The ending of a file, before that of its packing."""
    name = path.name.lower()
    return Path(name.removesuffix(Path(name).suffix) if name.endswith(PACKED) else name).suffix


def is_data(path: Path) -> bool:
    """Whether a path is a file with one of the endings in `FORMATS`."""
    return path.is_file() and ending_of(path) in FORMATS


def is_table(path: str | Path) -> bool:
    """Whether the ending of a file implies columns; `.txt` and unknown ones do not."""
    ending = ending_of(Path(path))
    return ending in FORMATS and ending != ".txt"


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise any error in this context but those of this package's code as a `UserError` that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ or error  # datasets wraps the errors of its readers
        if isinstance(cause, UserError):
            raise cause from None
        if is_bug(cause):
            raise
        if "corresponds to no data" in str(cause):
            raise no_rows(path) from None
        if isinstance(cause, UnicodeError):
            raise _not_utf8(path) from error
        if isinstance(cause, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise UserError(f"{path} is a broken or incomplete gzip file ({cause}). Write it again.") from error
        raise UserError(f"{path} could not be read: {cause}") from error


def open_text(path: Path, newline: str | None = None, errors: str = "strict") -> IO[str]:
    """
    Open a UTF-8 text file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard.

    Args:
        newline, errors: as in `open`; newline="" keeps the line ends.

    Raises:
        UserError: the file is UTF-16 or UTF-32, which can be UTF-8 with zeros too.
    """
    with open_bytes(path) as content:
        if is_wide(content.read(1 << 10)):
            raise _not_utf8(path)
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline=newline, errors=errors)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if start.startswith(b"BZh"):
        return bz2.open(path)
    if start == b"\x28\xb5\x2f\xfd":
        return cast(IO[bytes], pyarrow.input_stream(str(path), compression="zstd"))
    return open(path, "rb")


def _not_utf8(path: Path) -> UserError:
    """The error of a file in another encoding, with the line that converts it."""
    unpack = _UNPACK.get(path.suffix)
    name, given = Path(path.stem) if unpack else path, shlex.quote(str(path))
    written = shlex.quote(f"{name.stem}_utf8{name.suffix}")

    def convert(iconv: str) -> str:
        return f"{unpack} {given} | {iconv} > {written}" if unpack else f"{iconv} {given} > {written}"

    with open_bytes(path) as lines:
        return not_utf8(str(path), lines, convert)


def no_rows(path: Path) -> UserError:
    """The error of a file without a row."""
    return UserError(f"{path} is empty. Write at least one row, or omit the file.")


def missing_file(path: Path) -> str:
    """Sentences that a file is not there, with the file of the folder that has the nearest name."""
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    close = difflib.get_close_matches(path.name, names, n=1)
    return f"There is no file {path}." + (f" Did you mean {folder / close[0]}?" if close else "")
