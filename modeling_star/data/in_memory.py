"""
Texts, sentences and labels that a program passes: lists, arrays, or columns of tables, checked row by row.

A message names a row as Python does, `texts[2]`, counted from 0. In each function, `name` is that of the argument and
`call` the line to write for a single text, `{}`. All raise a `UserError`. scikit-learn's own checks name no row, and
read [1, "a"] as two texts.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from typing import Any

import numpy as np

from ..errors import UserError
from .encodings import HALF_CHARACTER
from .labels import NO_LABEL, short_repr
from .text_types import QuestionContext, Text


# ------ Texts


def texts_of(given: Any, name: str, call: str) -> list[str]:
    """Texts of a list, an array `[n]` or `[n, 1]`, a column of a table, or a table of one column."""
    rows = _column(given, name, call)
    for row, text in enumerate(rows):
        if not _is_text(text):
            raise UserError(f"{name}[{row}] is {_shown(text)}, not a text: omit this row, or write a string.")
    return list(map(str, rows))  # also numpy's strings


def sentences_of(given: Any, name: str, call: str, takes_texts: bool = False) -> list[Any]:
    """Sentences as lists of words; with `takes_texts` a row may be a text, which is returned as it is."""
    sentences: list[Any] = []
    for row, given_row in enumerate(_column(given, name, call)):
        if takes_texts and _is_text(given_row):
            sentences.append(str(given_row))
            continue
        if isinstance(given_row, str):
            line = f"[text.split() for text in {name}]" if " " in given_row else f"[{name}], for one sentence"
            raise UserError(f"{name}[{row}] is the text {short_repr(given_row)}, not a list of words: write {line}.")
        words = _list(given_row, f"{name}[{row}]", call)
        for index, word in enumerate(words):
            if not _is_text(word):
                raise UserError(f"{name}[{row}][{index}] is {_shown(word)}, not a word: write a string.")
        sentences.append(list(map(str, words)))
    return sentences


def inputs_of(
    given: Any, task: str, pairs: bool, model: str, numbers: Sequence[int] | None = None, with_missing: bool = False
) -> list[Any]:
    """
    Texts as a saved model of a task reads them: strings and lists of words, pairs, or questions with their contexts;
    `with_missing`: `None` for one that is empty, None or NaN. A table is refused, as a `Predictor` reads its columns;
    messages name a text by its number, from 1 by default.
    """
    if isinstance(given, Mapping) or hasattr(given, "columns"):
        raise UserError(
            f'{_shown(given)} is not a list of texts: write predict(["A text."]), or call the predictor with '
            'columns, predictor({"text": ["A text."]})'
        )
    checked: list[Text | None] = []
    for number, text in zip(numbers or itertools.count(1), _list(given, "texts", "predict([{}])"), strict=False):
        sides = [text] if isinstance(text, str) else list(text) if isinstance(text, (list, tuple, np.ndarray)) else []
        if with_missing and any(_plain(cell) in (None, "") for cell in (pairs and sides) or [text]):
            checked.append(None)
            continue
        if not sides and not isinstance(text, (list, np.ndarray)):
            raise UserError(f"Text {number} is {_shown(text)}, and not a text: write a string or a list of words.")
        if wrong := [side for side in sides if not _is_text(side)]:
            raise UserError(f"Text {number} has {_shown(wrong[0])}, not a text: write a string or a list of words.")
        if any(len(side) > _MOST_MARKS and _MARKS.search(side) for side in sides):
            raise UserError(f"Text {number}, {_shown(text)}, has {_MOST_MARKS:,} marks in a row: omit some of them.")
        if pairs or (task == "question-answering" and isinstance(text, tuple)):
            if isinstance(text, str) or len(sides) != 2:
                raise UserError(f"Text {number} is {_shown(text)}, and {model} reads pairs: write (first, second).")
            checked.append((sides[0], sides[1]) if pairs else QuestionContext(*sides))
        elif isinstance(text, tuple):
            raise UserError(
                f"Text {number} is the pair {_shown(text)}, and {model} reads single texts: write a string."
            )
        else:
            checked.append(text if isinstance(text, str) else sides)
    return checked


def cells_of(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The cells of a batch of columns of one length, as lists; `None` for None, NaN, an empty list and the like."""
    lists: dict[str, list[Any]] = {}
    for name, cells in columns.items():
        if isinstance(cells, (str, bytes, Mapping, Set)) or not isinstance(cells, Iterable):
            line = _shown(cells) if isinstance(cells, str) else "'A text.'"
            raise UserError(f"Column {name!r} is {_shown(cells)}, and a list is needed: write {{{name!r}: [{line}]}}.")
        lists[name] = [_plain(cell) for cell in cells]
    lengths = {name: len(cells) for name, cells in lists.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"The columns have different lengths ({lengths}): give each row a cell in every column.")
    return lists


def _plain(cell: Any) -> Any:
    cell = cell.as_py() if hasattr(cell, "as_py") else cell  # of pyarrow
    if isinstance(cell, (np.ndarray, tuple, list)):
        return list(cell) or None
    return None if _is_missing(cell) else cell


# The tokenizers library tries a link again without each of the marks after it, and panics after 10 million of them.
_MOST_MARKS = 5_000_000
_MARKS = re.compile(rf"[!-.:-@[-`{{-~]{{{_MOST_MARKS}}}")


# ------ Labels


def labels_of(given: Any, name: str, call: str) -> np.ndarray:
    """Labels as an array `[n]` of strings, whole numbers or booleans; it has the type of a given array."""
    if len(getattr(given, "shape", ())) == 2 and given.shape[1] > 1:
        raise UserError(
            f"{name} has {given.shape[1]} columns, and one label for each text is needed. For a classifier per column "
            "write sklearn.multioutput.MultiOutputClassifier(StarClassifier()).fit(texts, labels)"
        )
    if hasattr(given, "__array__"):
        given = np.asarray(given)
    rows = _column(given, name, call)
    kind = _check_labels(rows, lambda row: f"{name}[{row}]")
    labels = given.reshape(-1) if isinstance(given, np.ndarray) else np.array(rows)
    is_typed = labels.dtype != object or kind is str
    return labels if is_typed else np.array([kind(label) for label in rows])


def tags_of(given: Any, name: str, call: str) -> list[list[Any]]:
    """The tags of each sentence, strings or whole numbers."""
    rows = [_list(row, f"{name}[{index}]", call) for index, row in enumerate(_column(given, name, call))]
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
        if _is_missing(label) or (isinstance(label, str) and not _is_text(label)):
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
    How often each of `size` rows is used `[n]`: the mean is 1, the expectation in proportion to its weight `[n]`; the
    seed chooses between the two whole numbers around a fraction.
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


# ------ Rows and cells


def _column(given: Any, name: str, call: str) -> list[Any]:
    """The rows of one column: a list, an array `[n]` or `[n, 1]`, or a table of one column."""
    shape: Sequence[int] = getattr(given, "shape", None) or ()
    columns = getattr(given, "column_names", getattr(given, "columns", None))
    if len(shape) == 2 and shape[1] == 1:
        given = given[:, 0] if columns is None else given[columns[0]]
    elif len(shape) > 1:
        has = f"the shape {list(shape)}" if columns is None else f"the columns {', '.join(map(str, columns))}"
        longest = columns is not None and max(
            columns, key=lambda column: sum(len(str(cell)) for cell in list(given[column])[:100])
        )
        line = f"{name}[:, 0]" if columns is None else f"{name}[{longest!r}]"
        raise UserError(f"{name} has {has}, and one column is needed: write {line}, say.")
    return _list(given, name, call)


def _list(given: Any, name: str, call: str) -> list[Any]:
    """The elements of any collection but a text, a dictionary or a set."""
    if isinstance(given, (str, bytes)):
        raise UserError(
            f"A list is expected for {name}, string object received: write {call.format(short_repr(given))}"
        )
    is_scalar = getattr(given, "shape", None) == ()
    if isinstance(given, (Mapping, set, frozenset)) or not isinstance(given, Iterable) or is_scalar:
        raise UserError(f"{name} is {short_repr(given)}, not a list: write {call.format('...')}")
    return [row.as_py() if hasattr(row, "as_py") else row for row in given]  # pyarrow's cells


def _is_text(value: Any) -> bool:
    """Whether a value is a string that has a form in UTF-8."""
    return isinstance(value, str) and (value.isascii() or HALF_CHARACTER.search(value) is None)


def _is_missing(value: Any) -> bool:
    """Whether a value is `None`, NaN, or one of pandas' marks, which are not imported for it."""
    return value is None or (not isinstance(value, str) and str(value) in ("nan", "NaT", "<NA>"))


def _shown(value: Any) -> str:
    if isinstance(value, str) and not _is_text(value):
        return f"{short_repr(value)} with half a surrogate pair"
    return "missing (None or NaN)" if _is_missing(value) else " ".join(short_repr(value).split())
