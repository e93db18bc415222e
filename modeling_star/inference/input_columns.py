"""Check the columns that programs give to a `Predictor`."""

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset

from ..errors import UserError
from .inputs import shown


def cells_of(batch: Mapping[str, Any]) -> dict[str, list[Any]]:
    """
    The cells of each column as lists, `None` for None, NaN, an empty list and the like.

    Raises:
        UserError: a column is a single text or number, or columns have different lengths.
    """
    columns: dict[str, list[Any]] = {}
    for name, cells in batch.items():
        if isinstance(cells, (str, bytes, Mapping, Set)) or not isinstance(cells, Iterable):
            line = shown(cells) if isinstance(cells, str) else "'A text.'"
            raise UserError(f"Column {name!r} is {shown(cells)}, and a list is needed: write {{{name!r}: [{line}]}}.")
        columns[name] = [_plain(cell) for cell in cells]
    lengths = {name: len(cells) for name, cells in columns.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"The columns have different lengths ({lengths}): give each row a cell in every column.")
    return columns


def _plain(cell: Any) -> Any:
    cell = cell.as_py() if hasattr(cell, "as_py") else cell  # of pyarrow
    if isinstance(cell, (np.ndarray, tuple, list)):
        return list(cell) or None
    return cell if isinstance(cell, str) or pd.isna(cell) is not True else None


def as_dataset(columns: Mapping[str, list[Any]]) -> Dataset:
    """The columns whose cells have one type, for the choice of those of the texts; one without a cell has texts."""
    typed = {}
    for name, cells in columns.items():
        # What a column of texts has beside texts is named by its row when it is read.
        if any(isinstance(cell, str) for cell in cells) or all(cell is None for cell in cells):
            typed[name] = pa.array([""] * len(cells))
            continue
        with suppress(pa.ArrowException, OverflowError):  # of several types without a text
            typed[name] = pa.array([*map(_encodable, cells)])
    return Dataset(pa.table(typed))


def _encodable(cell: Any) -> Any:
    if isinstance(cell, list):
        return [*map(_encodable, cell)]
    return cell.encode(errors="replace").decode() if isinstance(cell, str) else cell
