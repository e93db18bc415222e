"""Read parquet files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
from datasets import Dataset
from pyarrow.parquet import ParquetFile

from ..encodings import warn_of_halves
from ..files import Options, load_file, open_bytes


_ROWS_AT_ONCE = 100


def read(path: Path, options: Options) -> Dataset:
    """All rows of a file."""
    rows = load_file("parquet", path, options)
    try:
        rows.data.validate(full=True)
    except pyarrow.ArrowInvalid:  # bytes that are no text
        return Dataset.from_list(list(stream(path, options)), features=rows.features)
    return rows


def stream(path: Path, options: Options) -> Iterator[dict[str, Any]]:
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
        for batch in table.iter_batches(_ROWS_AT_ONCE):
            rows = zip(*map(cells, batch.columns), strict=True)
            yield from (dict(zip(batch.schema.names, row, strict=True)) for row in rows)
            count += len(batch)
    warn_of_halves(path, broken)
