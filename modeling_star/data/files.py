"""Open data files of every format, with errors that name the file."""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import pyarrow

from ..errors import UserError, is_bug


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
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bmes": "conll",
}
"""The format of a file by its ending (before `.gz`)."""

PACKED = (".gz", ".bz2", ".zst")
"""The endings of packed files."""


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
            unpack, name = ("gzip -dc", Path(path.stem)) if path.suffix == ".gz" else ("cat", path)
            advice = f"`{unpack} {path} | iconv -f GB18030 -t UTF-8 > {name.stem}_utf8{name.suffix}`"
            raise UserError(f"{path}{_undecodable_line(path)} is not UTF-8 text ({cause}). Write {advice}") from error
        if isinstance(cause, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise UserError(f"{path} is a broken or incomplete gzip file ({cause}). Write it again.") from error
        raise UserError(f"{path} could not be read: {cause}") from error


def open_text(path: Path) -> IO[str]:
    """Open a UTF-8 text file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline=None)


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


def _undecodable_line(path: Path) -> str:
    """The first line that is not UTF-8, as part of a message."""
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def no_rows(path: Path) -> UserError:
    """The error of a file without a row."""
    return UserError(f"{path} is empty. Write at least one row, or omit the file.")
