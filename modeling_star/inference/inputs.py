"""Check the texts that programs give to a `Predictor`."""

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ..data.text_types import QuestionContext, Text
from ..errors import UserError


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
        text = text.as_py() if hasattr(text, "as_py") else text  # a cell of pyarrow
        sides = [text] if isinstance(text, str) else list(text) if isinstance(text, (list, tuple, np.ndarray)) else []
        is_text = bool(sides) or isinstance(text, (list, np.ndarray))
        if not is_text or not all(isinstance(side, str) for side in sides):
            raise UserError(f"Text {number} is {shown(text)}, and not a text: write a string or a list of words.")
        if any(not side.isascii() and side != side.encode(errors="ignore").decode() for side in sides):
            raise UserError(f"Text {number}, {shown(text)}, has half a surrogate pair: read its file as UTF-8.")
        if any(len(side) > _MOST_MARKS and _MARKS.search(side) for side in sides):
            raise UserError(f"Text {number}, {shown(text)}, has {_MOST_MARKS:,} marks in a row: omit some of them.")
        if pairs or (task == "question-answering" and isinstance(text, tuple)):
            if isinstance(text, str) or len(sides) != 2:
                raise UserError(f"Text {number} is {shown(text)}, and {name} reads pairs: write (first, second).")
            checked.append((sides[0], sides[1]) if pairs else QuestionContext(*sides))
        elif isinstance(text, tuple):
            raise UserError(f"Text {number} is the pair {shown(text)}, and {name} reads single texts: write a string.")
        else:
            checked.append(text if isinstance(text, str) else sides)
    return checked


# The tokenizers library tries a link again without each of the marks after it, and panics after 10 million of them.
_MOST_MARKS = 5_000_000
_MARKS = re.compile(rf"[!-.:-@[-`{{-~]{{{_MOST_MARKS}}}")


def shown(value: Any) -> str:
    """The beginning of a value, on one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else f"{text[:57]}..."
