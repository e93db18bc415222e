"""Check the columns and texts that programs give to a `Predictor`."""

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from datasets import Dataset

from ..data.text_types import QuestionContext, Text
from ..errors import UserError


def cells_of(batch: Mapping[str, Any]) -> dict[str, list[Any]]:
    """
    The cells of each column as lists, `None` for None, NaN, an empty list and the like.

    Args:
        batch: the columns: lists, arrays, or a DataFrame.

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


def texts_of(
    texts: Iterable[Any], task: str, pairs: bool, name: str, numbers: Sequence[int] | None = None
) -> list[Text]:
    """
    Texts as the task reads them: strings and lists of words, pairs, or questions with their contexts.

    Args:
        texts: a list, an array or another collection.
        task: of the model.
        pairs: whether a classifier reads pairs.
        name: of the model, for messages.
        numbers: of the texts, for messages; from 1 by default.

    Raises:
        UserError: they are a single text or a table, or one of them is not what the model reads.
    """
    if isinstance(texts, (str, bytes, Mapping)) or hasattr(texts, "columns") or not isinstance(texts, Iterable):
        raise UserError(
            f'{shown(texts)} is not a list of texts: write predict(["A text."]), or call the predictor with columns, '
            'predictor({"text": ["A text."]})'
        )
    checked: list[Text] = []
    for number, text in zip(numbers or itertools.count(1), texts, strict=False):
        sides = [text] if isinstance(text, str) else list(text) if isinstance(text, (list, tuple, np.ndarray)) else []
        is_text = bool(sides) or isinstance(text, (list, np.ndarray))
        if not is_text or not all(isinstance(side, str) for side in sides):
            raise UserError(f"Text {number} is {shown(text)}, and not a text: write a string or a list of words.")
        if any(not side.isascii() and side != side.encode(errors="ignore").decode() for side in sides):
            raise UserError(f"Text {number}, {shown(text)}, has half a surrogate pair: read its file as UTF-8.")
        if pairs or (task == "question-answering" and isinstance(text, tuple)):
            if isinstance(text, str) or len(sides) != 2:
                raise UserError(f"Text {number} is {shown(text)}, and {name} reads pairs: write (first, second).")
            checked.append((sides[0], sides[1]) if pairs else QuestionContext(*sides))
        elif isinstance(text, tuple):
            raise UserError(f"Text {number} is the pair {shown(text)}, and {name} reads single texts: write a string.")
        else:
            checked.append(text if isinstance(text, str) else sides)
    return checked


def shown(value: Any) -> str:
    """The beginning of a value, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
