"""
Which format a file has, and how it is written: the only place that guesses, by one read of the first 64 kB.

A format is a module of `formats/`, imported when the ending of a file allows it:

    recognise(head, options)    how the file is written, for the other functions; `None`: it has another format
    read(file)                  all rows, as a Dataset; `files.copied_rows` makes it of `stream`'s rows
    stream(file)                one row after the other, in little memory and without a cache

A format without columns, of an annotation tool, has `texts(file)` instead of `stream`.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ..errors import UserError
from .encodings import is_wide
from .files import Options, ending_of, missing_file, no_rows, open_bytes, open_text, reading, wrong_encoding


if TYPE_CHECKING:
    from datasets import Dataset


_HEAD = 1 << 16  # bytes
_TOOLS = ("fasttext", "brat", "span_json", "others")  # of annotation, and formats that are refused
CONLL = (".conll", ".conllu", ".conllup", ".cupt", ".bio", ".iob", ".iob2", ".bmes")
_FORMATS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), ("span_json", "others", "json_rows")),
    ".parquet": ("parquet",),
    ".csv": ("conll", "tables"),
    ".tsv": ("others", "conll", "tables"),
    ".txt": ("fasttext", "brat", "others", "conll", "tables", "running_text"),
    **dict.fromkeys(CONLL, ("fasttext", "others", "conll")),
}
"""The formats that a file may have by its ending (before `.gz`), in the order in which they are asked."""
ENDINGS = (*_FORMATS,)
_OTHER_ENDINGS = ("fasttext", "brat", "others")


class Head:
    """The beginning of a file, unpacked, which is read once; it ends at a line end."""

    def __init__(self, path: Path) -> None:
        self.path, self.ending = path, ending_of(path)

    @cached_property
    def _read(self) -> tuple[bytes, bool]:
        with open_bytes(self.path) as file:
            content = file.read(_HEAD) + file.readline()
            return content, not file.read(1)

    @property
    def content(self) -> bytes:
        """The first 64 kB, and the rest of their last line."""
        return self._read[0]

    @property
    def is_whole(self) -> bool:
        """Whether this is all of the file."""
        return self._read[1]

    @cached_property
    def text(self) -> str:
        """The content as text; an error where it is not UTF-8."""
        if is_wide(self.content[: 1 << 10]):
            raise wrong_encoding(self.path)
        return self.content.decode("utf-8-sig")

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the beginning, without their ends."""
        return [line.strip("\r\n") for line in io.StringIO(self.text, newline=None)]

    def open(self, newline: str | None = None) -> IO[str]:
        """The text of the whole file, from memory if it is short; `newline` as in `open`."""
        return io.StringIO(self.text, newline=newline) if self.is_whole else open_text(self.path, newline)

    def open_bytes(self) -> IO[bytes]:
        """The content of the whole file, unpacked."""
        return io.BytesIO(self.content) if self.is_whole else open_bytes(self.path)


class DataFile(NamedTuple):
    """
    A file whose format is known.

    Attributes:
        format: the module in `formats/`.
        head: the beginning.
        options: what the user says about the file.
        found: how it is written, from the module's `recognise`.
    """

    format: str
    head: Head
    options: Options
    found: Any

    @property
    def path(self) -> Path:
        return self.head.path

    @property
    def module(self) -> Any:
        return _module(self.format)

    def read(self) -> Dataset:
        """All rows, in the order of the file."""
        with reading(self.path):
            rows: Dataset = self.module.read(self)
        if rows.num_rows == 0:
            raise no_rows(self.path)
        return rows

    def stream(self) -> Iterator[dict[str, Any]]:
        """One row after the other, as `read` reads them."""
        with reading(self.path):
            rows = self.module.stream(self)
            first = next(rows, None)
            if first is None:
                raise no_rows(self.path)
            yield first
            yield from rows

    @property
    def has_texts(self) -> bool:
        """Whether it has texts and no columns."""
        return hasattr(self.module, "texts")

    def texts(self) -> Iterator[str]:
        """The texts of a file without columns."""
        with reading(self.path):
            yield from self.module.texts(self)

    def has_columns(self, column_names: Sequence[str]) -> bool:
        """Whether a file without a header line has as many columns as there are names."""
        module = self.module
        with reading(self.path):
            return hasattr(module, "has_columns") and module.has_columns(self, column_names)

    @property
    def only_column(self) -> str | None:
        """The name of the only column of a table with a header line; `None` for other files."""
        return self.module.only_column(self) if hasattr(self.module, "only_column") else None

    def with_columns(self, column_names: Sequence[str]) -> DataFile:
        """The same file, read with these names."""
        return _detect(self.head, self.options._replace(column_names=column_names))


def detect(path: str | Path, options: Options | None = None) -> DataFile:
    """The format of a file by its ending and its beginning; a UserError where it is absent, empty or not read."""
    return _detect(Head(Path(path)), options or Options())


def is_data(path: Path) -> bool:
    """Whether a path is a file with a known ending."""
    return path.is_file() and ending_of(path) in _FORMATS


def is_span_folder(path: Path) -> bool:
    """Whether a path is a folder of brat."""
    return path.is_dir() and _module("brat").recognise(Head(path), Options()) is not None


def _module(format: str) -> Any:
    return importlib.import_module(f"{__package__}.formats.{format}")


def _detect(head: Head, options: Options) -> DataFile:
    path = head.path
    formats = _FORMATS.get(head.ending) or (*_OTHER_ENDINGS, *(("conll", "running_text") if options.as_texts else ()))
    if path.is_dir():
        formats = ("brat",)
    elif not path.is_file():
        raise UserError(f"{missing_file(path)} Check --train_file, --validation_file and --test_file.")
    if options.column_names or options.sample_by or options.as_rows:
        formats = tuple(format for format in formats if format not in _TOOLS)
    for format in formats:
        with reading(path):
            found = _module(format).recognise(head, options)
        if found is not None:
            return DataFile(format, head, options, found)
    if path.is_dir():
        raise UserError(f"{path} is a folder. Check --train_file, --validation_file and --test_file.")
    if not head.content:
        raise no_rows(path)
    raise UserError(f"{path} ends in {head.ending!r}. Data files end in {', '.join(_FORMATS)}, optionally with .gz.")
