"""The kinds of texts that are predicted."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from .writing_systems import between_words


class QuestionContext(NamedTuple):
    """A question and the text with its answer."""

    question: str
    context: str


Text = str | tuple[str, str] | list[str] | QuestionContext
"""A text, a pair of texts, the words of a text, or a question with its context."""


def joined(texts: Sequence[Any], between: str | None = None) -> list[Any]:
    """Texts, some of which can be lists of words, as texts; `between`: the separator of words, found by default."""
    if between is None:
        between = between_words(text for text in texts if isinstance(text, list))
    return [between.join(text) if isinstance(text, list) else text for text in texts]
