"""
Texts, sentences and labels that a program passes: lists, arrays, or columns of tables, checked row by row.

A message names a row as Python does, `texts[2]`, counted from 0. In each function, `name` is that of the argument and
`call` the line to write for a single text, `{}`. All raise a `UserError`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import pandas as pd

from ..errors import UserError
from .encodings import HALF_CHARACTER
from .labels import NO_LABEL, short_repr


def texts_of(given: Any, name: str, call: str) -> list[str]:
    """Texts of a list, an array `[n]` or `[n, 1]`, a column of a table, or a table of one column."""
    rows = _rows(given, name, call)
    for row, text in enumerate(rows):
        if not _is_text(text):
            raise UserError(f"{name}[{row}] is {_shown(text)}, not a text: omit this row, or write a string.")
    return list(map(str, rows))  # also numpy's strings


def sentences_of(given: Any, name: str, call: str, takes_texts: bool = False) -> list[Any]:
    """Sentences as lists of words; with `takes_texts` a row may be a text, which is returned as it is."""
    sentences: list[Any] = []
    for row, given_row in enumerate(_rows(given, name, call)):
        if takes_texts and _is_text(given_row):
            sentences.append(str(given_row))
            continue
        if isinstance(given_row, str):
            line = f"[text.split() for text in {name}]" if " " in given_row else f"[{name}], for one sentence"
            raise UserError(f"{name}[{row}] is the text {short_repr(given_row)}, not a list of words: write {line}.")
        words = _rows(given_row, f"{name}[{row}]", call)
        for index, word in enumerate(words):
            if not _is_text(word):
                raise UserError(f"{name}[{row}][{index}] is {_shown(word)}, not a word: write a string.")
        sentences.append(list(map(str, words)))
    return sentences


def labels_of(given: Any, name: str, call: str) -> np.ndarray:
    """Labels as an array `[n]` of strings, whole numbers or booleans; it has the type of a given array."""
    if len(getattr(given, "shape", ())) == 2 and given.shape[1] > 1:
        raise UserError(
            f"{name} has {given.shape[1]} columns, and one label for each text is needed. For a classifier per column "
            "write sklearn.multioutput.MultiOutputClassifier(StarClassifier()).fit(texts, labels)"
        )
    if hasattr(given, "__array__"):
        given = np.asarray(given)
    rows = _rows(given, name, call)
    kind = _check_labels(rows, lambda row: f"{name}[{row}]")
    labels = given.reshape(-1) if isinstance(given, np.ndarray) else np.array(rows)
    is_typed = labels.dtype != object or kind is str
    return labels if is_typed else np.array([kind(label) for label in rows])


def tags_of(given: Any, name: str, call: str) -> list[list[Any]]:
    """The tags of each sentence, strings or whole numbers."""
    rows = [_rows(row, f"{name}[{index}]", call) for index, row in enumerate(_rows(given, name, call))]
    indices = [(row, word) for row, tags in enumerate(rows) for word in range(len(tags))]
    _check_labels([rows[row][word] for row, word in indices], lambda tag: "{}[{}][{}]".format(name, *indices[tag]))
    return [[tag.item() if isinstance(tag, np.generic) else tag for tag in tags] for tags in rows]


def _check_labels(labels: Sequence[Any], name_of_row: Callable[[int], str]) -> type:
    """The type of single labels: str, bool, int or float."""
    firsts: dict[type, int] = {}
    for row, label in enumerate(labels):
        if isinstance(label, Iterable) and not isinstance(label, (str, bytes)):
            raise UserError(
                f"{name_of_row(row)} is {short_repr(label)}, and one label is needed. For several write "
                "MultiOutputClassifier(StarClassifier()).fit(texts, MultiLabelBinarizer().fit_transform(labels))"
            )
        if pd.isna(label) or (isinstance(label, str) and not _is_text(label)):
            raise UserError(f"{name_of_row(row)} is {_shown(label)}, not a label: omit this row.")
        value = label.item() if isinstance(label, np.generic) else label
        if type(value) not in (str, bool, int, float):
            raise UserError(f"{name_of_row(row)} is {short_repr(label)}: write strings, whole numbers or booleans.")
        if isinstance(value, float) and not value.is_integer():
            raise UserError(
                f"Unknown label type: {name_of_row(row)} is {value}, and a class is needed. Write strings, or predict "
                "numbers with: modeling-star classify --problem_type regression"
            )
        if value in ("", *NO_LABEL):
            raise UserError(f"{name_of_row(row)} is {value!r}, which means that there is no label: omit this row.")
        firsts.setdefault(type(value), row)
    if len(firsts) > 1 and set(firsts) != {int, float}:
        one, other = list(firsts.values())[:2]
        raise UserError(
            f"Labels have several types: {name_of_row(one)} is {labels[one]!r} and {name_of_row(other)} is "
            f"{labels[other]!r}. Write [str(label) for label in labels]."
        )
    return float if float in firsts else next(iter(firsts), str)


def check_lengths(name: str, rows: Sized, other_name: str, other: Sized) -> None:
    """Raise a UserError where two lists differ in length."""
    if len(rows) != len(other):
        raise UserError(
            f"{name} has {len(rows)} elements and {other_name} {len(other)}: each of {name} needs one of {other_name}."
        )


def repetitions(weights: Any, size: int, seed: int) -> np.ndarray:
    """
    How often each row is used, so that its mean is 1 and its expectation is in proportion to its weight.

    Args:
        weights: `[n]`, from 0 up.
        size: the number of rows, n.
        seed: of the random choice between the two whole numbers around a fraction.

    Returns:
        `[n]`, whole numbers.

    Raises:
        UserError: a weight is no number from 0 up, their number differs, or all are 0.
    """
    values = np.asarray(weights, dtype=np.float64)
    if values.shape != (size,):
        raise UserError(f"sample_weight has the shape {list(values.shape)}; [{size}] is needed, one for each text.")
    if not (np.isfinite(values).all() and (values >= 0).all() and values.any()):
        raise UserError(
            "sample_weight has a number below 0 or not finite, or is zero everywhere: write numbers from 0 up."
        )
    expected = (values * size / values.sum()).round(9)
    return np.floor(expected + np.random.default_rng(seed).random(size) * (expected % 1 > 0)).astype(np.int64)


def _rows(given: Any, name: str, call: str) -> list[Any]:
    if isinstance(given, (str, bytes)):
        raise UserError(
            f"A list is expected for {name}, string object received: write {call.format(short_repr(given))}"
        )
    shape = getattr(given, "shape", None)
    columns = getattr(given, "column_names", getattr(given, "columns", None))
    if shape is not None and len(shape) == 2 and shape[1] == 1:
        given = given[:, 0] if columns is None else given[columns[0]]
    elif shape and len(shape) != 1:
        has = f"the shape {list(shape)}" if columns is None else f"the columns {', '.join(map(str, columns))}"
        longest = columns is not None and max(
            columns, key=lambda column: sum(len(str(cell)) for cell in list(given[column])[:100])
        )
        line = f"{name}[:, 0]" if columns is None else f"{name}[{longest!r}]"
        raise UserError(f"{name} has {has}, and one column is needed: write {line}, say.")
    if isinstance(given, (Mapping, set, frozenset)) or not isinstance(given, Iterable) or shape == ():
        raise UserError(f"{name} is {short_repr(given)}, not a list: write {call.format('...')}")
    return [row.as_py() if hasattr(row, "as_py") else row for row in given]  # pyarrow's cells


def _is_text(value: Any) -> bool:
    """Whether a value is a string that has a form in UTF-8."""
    return isinstance(value, str) and (value.isascii() or HALF_CHARACTER.search(value) is None)


def _shown(value: Any) -> str:
    if isinstance(value, str) and not _is_text(value):
        return f"{short_repr(value)} with half a surrogate pair"
    return "missing (None or NaN)" if pd.api.types.is_scalar(value) and pd.isna(value) else short_repr(value)
