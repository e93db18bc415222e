"""Windows of texts that are longer than a model takes: the tokens of each, and those whose predictions count."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np


NO_WORD = -1
"""Instead of a word's number, at a token whose prediction does not count."""


@dataclass(frozen=True)
class Window:
    """
    A part of a text.

    Args:
        tokens: `[m]`, the indices of its tokens in the text, from left to right.
        read: those of its m tokens whose predictions count.
    """

    tokens: np.ndarray
    read: slice

    def words_read(self, words: np.ndarray) -> list[int]:
        """
        The word whose prediction is at each of the m tokens, `NO_WORD` at the others.

        Args:
            words: `[n]`, the same for the tokens of the text, from `first_pieces`.
        """
        row = np.full(len(self.tokens), NO_WORD)
        row[self.read] = words[self.tokens[self.read]]
        return row.tolist()


def max_length_or_none(model_max_length: int | None) -> int | None:
    """The most tokens that a tokenizer's model takes; `None` for transformers' int(1e30), which means no limit."""
    return model_max_length if model_max_length is not None and model_max_length < 1e6 else None


def cut_windows(
    is_content: Sequence[bool] | np.ndarray, limit: int | None, stride: int | None, *, from_end: bool = False
) -> list[Window]:
    """
    The windows of a text, from left to right. Each begins and ends with all tokens around the content, such as special
    tokens, or a question before its context. A token counts in the window with most context around it, and in the
    first of those that have as much.

    Args:
        is_content: `[n]`, which of the text's tokens are divided among the windows; they are neighbours.
        limit: the most tokens of a window; `None`: all are in one.
        stride: tokens of the content that neighbouring windows share, lowered where a window has no more; `None`: the
            text is truncated, to one window.
        from_end: the last window is full rather than the first, and a text is truncated at its beginning.
    """
    content = np.flatnonzero(is_content)
    n, count = len(is_content), len(content)
    size = count if limit is None else limit - (n - count)
    spans = [(0, min(size, count))]
    if stride is not None and count > size:
        shared = min(stride, size - 1)
        starts = range(0, count - shared, size - shared)
        spans = [(start, min(start + size, count)) for start in starts]
    if from_end:
        spans = [(count - last, count - first) for first, last in reversed(spans)]
    # The middle of what two windows share: before it, the first one shows more on the right than the second on the
    # left.
    middles = [(last + first + 1) // 2 for (_, last), (first, _) in pairwise(spans)]
    read = pairwise([spans[0][0], *middles, spans[-1][1]])
    head = int(content[0]) if count else n
    before, after = np.arange(head), np.arange(head + count, n)
    return [
        Window(np.concatenate([before, content[first:last], after]), slice(head + begin - first, head + end - first))
        for (first, last), (begin, end) in zip(spans, read, strict=True)
    ]


def first_pieces(words: Sequence[int | None], windows: Sequence[Window]) -> np.ndarray:
    """
    The word of each token `[n]`: its number at its first token, `NO_WORD` at its others and at special tokens.

    Args:
        words: `[n]`, the word of each token; `None` for special tokens.
        windows: of the text. Where it is truncated at its beginning, perhaps within a word, the first token that is
            left replaces this word.
    """
    shown = windows[0].tokens[windows[0].read]
    before = [None, *words[:-1]]
    if len(shown):
        before[shown[0]] = None
    pairs = zip(words, before, strict=True)
    return np.array([NO_WORD if word is None or word == previous else word for word, previous in pairs])
