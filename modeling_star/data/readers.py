"""
Read data files as `datasets.Dataset`, or row by row.

A format is a module of `formats`, imported when a file has it:

    read(path, options)     all rows, as a Dataset; `files.copied_rows` makes it of `stream`'s rows
    stream(path, options)   one row after the other, in little memory and without a cache
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .files import FORMATS, Options, SampleBy, ending_of, missing_file, no_rows, reading
from .first_rows import FirstRows


if TYPE_CHECKING:
    from datasets import Dataset


_ROWS_INSPECTED = 1000
_MODULES = {
    **{"csv": "tables", "tsv": "tables", "conll": "conll", "json": "json_rows"},
    **{"parquet": "parquet", "text": "running_text", "spans": "span_files"},
}


def module_of(kind: str) -> Any:
    """The module of a format."""
    return importlib.import_module(f"{__package__}.formats.{_MODULES[kind]}")


def read_file(
    path: str | Path,
    cache_dir: str | None = None,
    sample_by: SampleBy | None = None,
    column_names: Sequence[str] | None = None,
    with_spans: bool = True,
) -> Dataset:
    """
    Read one data file.

    Args:
        path: a file with one of the endings in `files.FORMATS`, optionally followed by `.gz`, `.bz2` or `.zst`.
        cache_dir: the folder of the cache of `datasets`.
        sample_by: read `.txt` files as running text with one row per line, paragraph or file; `None`: as CoNLL.
        column_names: the columns of a csv, tsv or `.txt` table without a header line, or of a CoNLL file, where "_"
            skips a column. `None`: named by the first line, or by the number of CoNLL columns.
        with_spans: read files with labelled spans of characters as words and tags; see `formats.span_files`.

    Returns:
        The rows in the order of the file. csv cells are texts; CoNLL has lists: `tokens` and one column per tag;
        running text has the column `text`.

    Raises:
        UserError: the file is absent or empty, has an unknown ending, or is not in its format.
    """
    path, options = Path(path), Options(column_names, sample_by, cache_dir=cache_dir)
    if sample_by is None and not column_names:
        spans = module_of("spans").read(path, options, with_spans)
        if spans is not None:
            return spans
    module = module_of(kind_of(path, options))
    with reading(path):
        rows: Dataset = module.read(path, options)
    if rows.num_rows == 0:
        raise no_rows(path)
    return rows


def stream_rows(path: Path, column_names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """
    Stream the rows of a table or of CoNLL as `read_file` reads them, in little memory and without a cache.

    Raises:
        UserError: see `read_file`.
    """
    options = Options(column_names)
    module = module_of(kind_of(path, options))
    with reading(path):
        rows = module.stream(path, options)
        first = next(rows, None)
        if first is None:
            raise no_rows(path)
        yield first
        yield from rows


def first_rows(path: Path, column_names: Sequence[str] | None = None) -> FirstRows:
    """The columns of the first thousand rows, as `stream_rows` reads them."""
    rows = list(itertools.islice(stream_rows(path, column_names), _ROWS_INSPECTED))
    names = dict.fromkeys(name for row in rows for name in row)
    return FirstRows({name: [row.get(name) for row in rows] for name in names})


def kind_of(path: Path, options: Options) -> str:
    """The format of an existing file; "text" for running text."""
    if not path.is_file():
        problem = f"{path} is a folder." if path.is_dir() else missing_file(path)
        raise UserError(f"{problem} Check --train_file, --validation_file and --test_file.")
    if path.stat().st_size == 0:
        raise no_rows(path)
    ending = ending_of(path)
    if ending not in FORMATS:
        raise UserError(f"{path} ends in {ending!r}. Data files end in {', '.join(FORMATS)}, optionally with .gz.")
    if ending == ".txt" and options.sample_by is not None:
        return "text"
    kind = FORMATS[ending]
    if kind in ("json", "parquet"):
        if options.column_names:
            raise UserError(f"{path} has column names of its own format: omit --column_names.")
        return kind
    if ending not in (".csv", ".tsv", ".txt") or module_of("conll").is_conll(path, options.column_names):
        return "conll"
    return kind if kind != "conll" or not options.column_names else "tsv"


def has_columns(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a file without a header line has as many columns as there are names."""
    kind = FORMATS.get(ending_of(path), "conll")
    return kind not in ("json", "parquet") and module_of(kind).has_columns(path, column_names)


def columns_like(path: str | Path, other: str | Path | None) -> list[str] | None:
    """The columns of another CoNLL file, for a file that has as many and does not name them; else `None`."""
    both = [Path(path), Path(other or path)]
    if both[0] == both[1] or not all(each.is_file() and FORMATS.get(ending_of(each)) == "conll" for each in both):
        return None
    return module_of("conll").columns_like(*both)


def has_blocks(path: Path) -> bool:
    """Whether a row of a file takes several lines: CoNLL, or a json list."""
    kind, ending = FORMATS.get(ending_of(path)), ending_of(path)
    return ending == ".json" or (kind == "conll" and (ending != ".txt" or is_tagged(path)))


def is_tagged(path: Path) -> bool:
    """Whether a file of any ending is CoNLL with well-known tags."""
    return module_of("conll").has_tags(path)


def read_span_texts(path: Path, column: str | None = None) -> Iterator[str] | None:
    """
    The texts of a file with spans of characters or of fastText, in its order; `None` for other files.

    Args:
        column: of the texts of the training: a file with such a column is read as a table.
    """
    return module_of("spans").read_texts(path, column)


def is_span_folder(path: Path) -> bool:
    """Whether a path is a folder of brat."""
    return path.is_dir() and module_of("spans").reader_of(path) is not None
