"""Read parquet files."""

from collections.abc import Iterator
from typing import Any

import pyarrow
from datasets import Dataset
from pyarrow.parquet import ParquetFile

from ...errors import UserError
from ..detect import DataFile, Head
from ..encodings import warn_of_halves
from ..files import Options, load_file, open_bytes


_ROWS_AT_ONCE = 100


def recognise(head: Head, options: Options) -> bool | None:
    """Every file with this ending."""
    if options.column_names:
        raise UserError(f"{head.path} has column names of its own format: omit --column_names.")
    return head.path.stat().st_size > 0 or None


def read(file: DataFile) -> Dataset:
    """All rows of a file."""
    rows = load_file("parquet", file.path)
    try:
        rows.data.validate(full=True)
    except pyarrow.ArrowInvalid:  # bytes that are no text
        return Dataset.from_list(list(stream(file)), features=rows.features)
    return rows


def stream(file: DataFile) -> Iterator[dict[str, Any]]:
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

    with open_bytes(file.path) as content, ParquetFile(content) as table:
        for batch in table.iter_batches(_ROWS_AT_ONCE):
            rows = zip(*map(cells, batch.columns), strict=True)
            yield from (dict(zip(batch.schema.names, row, strict=True)) for row in rows)
            count += len(batch)
    warn_of_halves(file.path, broken)
