"""Read data files (csv, tsv, json, parquet, CoNLL, running text) as `datasets.Dataset`."""

import glob
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import pyarrow
from datasets import Dataset, IterableDataset, Value, load_dataset
from pyarrow.parquet import ParquetFile

from ..errors import UserError
from .conll import has_sentences, has_tags, read_conll, stream_conll
from .encodings import HALF_CHARACTER, warn_of_halves
from .files import FORMATS, ending_of, missing_file, no_rows, open_bytes, open_text, reading
from .json_rows import read_json, stream_json
from .span_formats import read_span_format
from .tables import read_table, stream_table


SampleBy = Literal["line", "paragraph", "file"]
"""One document of a `.txt` file with running text; an empty line ends a paragraph."""

_STREAMED = ("text", "json", "parquet")
_TEXT_BLOCK, _PARQUET_ROWS = 10 << 20, 100  # characters and rows that a stream holds at a time


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
        path: a file with one of the endings in `files.FORMATS`, optionally followed by `.gz`.
        cache_dir: the folder of the cache of `datasets`.
        sample_by: read `.txt` files as running text with one row per line, paragraph or file; `None`: as CoNLL.
        column_names: the columns of a csv, tsv or `.txt` table without a header line, or of a CoNLL file, where "_"
            skips a column. `None`: named by the first line, or by the number of CoNLL columns.
        with_spans: read files with labelled spans of characters as words and tags; see `span_formats`.

    Returns:
        The rows in the order of the file. csv cells are texts; CoNLL has lists: `tokens` and one column per tag;
        running text has the column `text`.

    Raises:
        UserError: the file is absent or empty, has an unknown ending, or is not in its format.
    """
    path = Path(path)
    if sample_by is None and not column_names and (found := read_span_format(path, cache_dir, with_spans)) is not None:
        return found
    kind = _format_of(path, sample_by, column_names)
    with reading(path):
        if kind == "json":
            dataset = read_json(path, cache_dir, _load)
        elif kind == "parquet":
            dataset = _read_parquet(path, cache_dir)
        elif kind == "text":
            open_text(path).close()  # which refuses UTF-16
            unit = "document" if sample_by == "file" else sample_by
            dataset = _load("text", path, cache_dir, sample_by=unit, encoding="utf-8-sig")
        elif kind == "conll":
            dataset = read_conll(path, cache_dir, column_names)
        else:
            dataset = read_table(path, cache_dir, kind, column_names)
    if dataset.num_rows == 0:
        raise no_rows(path)
    return dataset


def _load(builder: str, path: Path, cache_dir: str | None, **options: Any) -> Dataset:
    """One file with a builder of `datasets`."""
    files = {"train": glob.escape(str(path.resolve()))}
    return cast(Dataset, load_dataset(builder, data_files=files, split="train", cache_dir=cache_dir, **options))


def _format_of(path: Path, sample_by: SampleBy | None = None, column_names: Sequence[str] | None = None) -> str:
    """The format of an existing file; "text" for running text."""
    if not path.is_file():
        problem = f"{path} is a folder." if path.is_dir() else missing_file(path)
        raise UserError(f"{problem} Check --train_file, --validation_file and --test_file.")
    if path.stat().st_size == 0:
        raise no_rows(path)
    ending = ending_of(path)
    if ending not in FORMATS:
        raise UserError(f"{path} ends in {ending!r}. Data files end in {', '.join(FORMATS)}, optionally with .gz.")
    if ending == ".txt" and sample_by is not None:
        return "text"
    kind = FORMATS[ending]
    if not column_names:
        return "conll" if kind in ("csv", "tsv") and has_tags(path) else kind
    if kind not in ("csv", "tsv", "conll"):
        raise UserError(f"{path} has column names of its own format: omit --column_names.")
    if ending in (".csv", ".tsv", ".txt"):
        if has_sentences(path, column_names) or (ending != ".txt" and has_tags(path)):
            return "conll"
        return "csv" if ending == ".csv" else "tsv"
    return kind


# ------ Parquet


def _read_parquet(path: Path, cache_dir: str | None) -> Dataset:
    dataset = _load("parquet", path, cache_dir)
    try:
        dataset.data.validate(full=True)
    except pyarrow.ArrowInvalid:  # bytes that are no text
        return Dataset.from_list(list(_parquet_rows(path)), features=dataset.features)
    return dataset


def _parquet_rows(path: Path, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file; bytes that are not UTF-8 are read as U+FFFD, with a warning."""
    count = 0
    broken: list[int] = []

    def cells(column: pyarrow.Array) -> list[Any]:
        try:
            return column.to_pylist()
        except UnicodeDecodeError:
            content = column.cast(pyarrow.large_binary()).to_pylist()
            texts = [cell if cell is None else cell.decode(errors="replace") for cell in content]
            broken.extend(count + row for row, text in enumerate(texts, 1) if text and "\ufffd" in text)
            return texts

    with open_bytes(path) as file, ParquetFile(file) as table:
        for batch in table.iter_batches(_PARQUET_ROWS, columns=columns):
            rows = zip(*map(cells, batch.columns), strict=True)
            yield from (dict(zip(batch.schema.names, row, strict=True)) for row in rows)
            count += len(batch)
    warn_of_halves(path, broken)


# ------ Streams


def stream_files(paths: Sequence[str | Path], sample_by: SampleBy, column: str) -> IterableDataset:
    """
    Stream the texts of files, one file after the other.

    Args:
        paths: running text (`.txt`), json lines or parquet, also with `.gz`; formats can be mixed.
        sample_by: one row of running text.
        column: the column of the texts. Other columns can differ between files and rows.

    Raises:
        UserError: a file is absent, empty or in another format.
    """
    for path in paths:
        _streamed_format(Path(path), sample_by)
    # The list of files is what datasets shuffles and shards.
    options = {"paths": [str(path) for path in paths], "sample_by": sample_by, "column": column}
    return IterableDataset.from_generator(_stream, gen_kwargs=options)


def streamed_columns(path: str | Path, sample_by: SampleBy, column: str | None) -> Dataset:
    """The first row of a file for `stream_files` with `column`, as a table of the columns."""
    rows = _rows(Path(path), sample_by)
    first = next(rows, None)
    if first is None:
        raise no_rows(Path(path))
    if column is not None:
        first = next((row for row in itertools.chain([first], rows) if column in row), first)
    return Dataset.from_list([{name: cell if isinstance(cell, str) else None for name, cell in first.items()}])


def stream_rows(path: Path, column_names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """
    Stream the rows of a table or of CoNLL as `read_file` reads them, in little memory and without a cache.

    Raises:
        UserError: see `read_file`.
    """
    kind = _format_of(path, None, column_names)
    with reading(path):
        count = 0
        for row in _table_rows(path, kind, column_names):
            count += 1
            yield row
        if not count:
            raise no_rows(path)


def _table_rows(path: Path, kind: str, column_names: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    if kind == "conll":
        yield from stream_conll(path, column_names)
    elif kind in ("csv", "tsv"):
        yield from stream_table(path, kind, column_names)
    else:
        yield from _rows(path, "line")


def has_blocks(path: Path) -> bool:
    """Whether a row of a file takes several lines: CoNLL, or a json list."""
    return ending_of(path) == ".json" or (
        FORMATS.get(ending_of(path)) == "conll" and (ending_of(path) != ".txt" or has_tags(path))
    )


def _streamed_format(path: Path, sample_by: SampleBy) -> str:
    kind = _format_of(path, sample_by)
    if kind not in _STREAMED:
        raise UserError(f"{path} is {kind}, which cannot be streamed. Write .txt, .jsonl or .parquet files.")
    return kind


def _stream(paths: list[str], sample_by: SampleBy, column: str) -> Iterator[dict[str, str | None]]:
    """The texts of files; `None` for rows without one."""
    for path in paths:
        for number, row in enumerate(_rows(Path(path), sample_by, [column]), 1):
            cell = row.get(column)
            if cell is not None and not isinstance(cell, str):
                raise UserError(f"{path}, row {number} has {str(cell)[:60]!r} in column {column!r}, not a text.")
            if cell is not None and HALF_CHARACTER.search(cell):
                warn_of_halves(Path(path), [number])
                cell = HALF_CHARACTER.sub("\ufffd", cell)
            yield {column: cell}


def _rows(path: Path, sample_by: SampleBy, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, one after the other."""
    kind = _streamed_format(path, sample_by)
    with reading(path):
        if kind == "text":
            yield from ({"text": text} for text in _texts(path, sample_by))
        elif kind == "parquet":
            yield from _parquet_rows(path, columns)
        else:
            yield from stream_json(path)


def _texts(path: Path, sample_by: SampleBy) -> Iterator[str]:
    """The rows of running text, as `datasets` splits it."""
    with open_text(path) as file:
        if sample_by == "line":
            for line in file:
                yield line.rstrip("\n")
        elif sample_by == "file":
            yield file.read()
        else:
            # The parts of a long paragraph are joined once, at its end. The newline at the end of a block is kept for
            # the next one: together they can be an empty line.
            parts: list[str] = []
            line_end = ""
            while block := file.read(_TEXT_BLOCK):
                first, *others = (line_end + block).split("\n\n")
                parts.append(first)
                if others:
                    yield "".join(parts)
                    yield from others[:-1]
                    parts = [others[-1]]
                line_end = "\n" if parts[-1].endswith("\n") else ""
                parts[-1] = parts[-1].removesuffix("\n")
            yield "".join([*parts, line_end])


def plain_texts(rows: Dataset) -> Dataset:
    """Cast the large strings of pandas' parquet files to the strings of other formats."""
    for name, feature in rows.features.items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows
