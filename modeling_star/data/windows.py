"""
Texts that are longer than a model or a tokenizer takes.

Windows have the tokens that a model takes, and say whose predictions count. Long runs of letters and digits without a
blank, such as a gene or a text in Thai, are shortened for a tokenizer: the regular expression that splits texts in a
trained one gives up within a match of about ten million steps, and the library ends the process. A run that is longer
than any entry of the vocabulary is one unknown token, whatever is in its middle.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import regex

from ..errors import UserError
from .writing_systems import CHARACTER, RUN, SEPARATORS


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


NO_WORD = -1
"""Instead of a word's number, at a token whose prediction does not count."""


@dataclass(frozen=True)
class Window:
    """A part of a text: the indices `[m]` of its tokens in the text, and those of the m whose predictions count."""

    tokens: np.ndarray
    read: slice

    def words_read(self, words: np.ndarray) -> list[int]:
        """The word that is read at each of the m tokens, `NO_WORD` at others, by `first_pieces` `[n]`."""
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
    The word of each token `[n]`, from `words` with `None` at special tokens: its number at its first token, `NO_WORD`
    elsewhere. Where a text is truncated at its beginning, the first token left is that of its word.
    """
    shown = windows[0].tokens[windows[0].read]
    before = [None, *words[:-1]]
    if len(shown):
        before[shown[0]] = None
    pairs = zip(words, before, strict=True)
    return np.array([NO_WORD if word is None or word == previous else word for word, previous in pairs])


# ------ Long runs


LONGEST_RUN = 10_000
"""The most letters and digits in a row that a trained tokenizer is given; a word piece has at most 100."""

_RUN = regex.compile(re.sub(r"\\x\{(\w+)\}", lambda code: chr(int(code[1], 16)), RUN), regex.V1)
# A contraction has letters alone, a number digits alone, a name after @ is ASCII: a long run keeps one of each kind.
_KINDS = [
    regex.compile(kind) for kind in (r"[A-Za-z]", r"[0-9]", r"[^\P{L}A-Za-z]", r"[^\P{Nd}0-9]", r"[^\p{L}\p{Nd}]")
]


@dataclass(frozen=True)
class Shortened:
    """
    A text without the middle of its long runs: what is left, the offsets in it of the first character after each
    omitted part, and the number of characters omitted before each of them.
    """

    text: str
    firsts: list[int] = field(default_factory=list)
    omitted: list[int] = field(default_factory=list)

    def in_whole(self, offsets: np.ndarray) -> np.ndarray:
        """Offsets in the shortened text as those in the whole one."""
        return offsets + np.array([0, *self.omitted])[np.searchsorted(self.firsts, offsets, side="right")]


def longest_run(tokenizer: "PreTrainedTokenizerBase") -> int | None:
    """The most letters and digits in a row that a tokenizer may be given; `None` for one that was not trained here."""
    backend = tokenizer.backend_tokenizer
    split = json.loads(backend.pre_tokenizer.__getstate__()) if backend.pre_tokenizer is not None else {}
    patterns = [each.get("pattern", {}).get("Regex") for each in split.get("pretokenizers", [])]
    if patterns[:1] != [SEPARATORS] or patterns[1:] == [CHARACTER]:
        return None
    return max(LONGEST_RUN, *map(len, tokenizer.get_vocab()))


def shorten(text: str, longest: int | None) -> Shortened:
    """Omit the middle of the runs that are longer than `longest_run` says; `None`: omit nothing."""
    if longest is None or max(map(len, text.split()), default=0) <= longest:
        return Shortened(text)
    half = (longest - len(_KINDS) + 1) // 2
    parts, firsts, omitted = [], [], [0]
    end = length = 0
    for run in _RUN.finditer(text):
        if run.end() - run.start() <= longest:
            continue
        kinds = [kind.search(text, run.start(), run.end()) for kind in _KINDS]
        head = text[end : run.start() + half] + "".join(match.group() for match in kinds if match)
        parts.append(head)
        length += len(head)
        end = run.end() - half
        firsts.append(length)
        omitted.append(end - length)
    return Shortened("".join([*parts, text[end:]]), firsts, omitted[1:])


def shorten_all(texts: list[str], tokenizer: "PreTrainedTokenizerBase") -> list[str]:
    """Texts or words without the middle of their long runs, for a use that needs no offsets."""
    if max(map(len, texts), default=0) <= LONGEST_RUN:
        return texts
    longest = longest_run(tokenizer)
    return [shorten(text, longest).text for text in texts]


@contextmanager
def tokenizing(texts: Sequence[Any] = ()) -> Iterator[None]:
    """Name the text that a tokenizer cannot read, instead of a panic of the library, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error) is Exception:  # its vocabulary lacks [UNK], say
            raise UserError(f"The tokenizer cannot be used ({error}): copy tokenizer.json again.") from error
        if type(error).__name__ != "PanicException":
            raise
        text = max(map(str, texts), key=len, default="")
        which = f", probably that of {len(text):,} characters that begins with {text[:40]!r}" if text else ""
        raise UserError(
            f"The tokenizer cannot read a text{which}: put blanks between its words, or omit it."
        ) from error
