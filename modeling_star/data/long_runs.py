"""
Long runs of letters and digits without a blank, such as a gene or a text in Thai, shortened for a tokenizer.

The regular expression that splits texts in a trained tokenizer gives up within a match of about ten million steps, and
the library ends the process. A run that is longer than any entry of the vocabulary is one unknown token, whatever is
in its middle.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import regex

from ..errors import UserError
from .writing_systems import CHARACTER, RUN, SEPARATORS


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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
    A text without the middle of its long runs.

    Args:
        text: what is left.
        firsts: the places in it that are the first ones after an omitted part, in their order.
        omitted: the number of characters omitted before each of them.
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
    """
    Omit the middle of long runs.

    Args:
        text: of any length.
        longest: from `longest_run`; `None`: omit nothing.
    """
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
    """
    Name the text that a tokenizer cannot read.

    Raises:
        UserError: instead of a panic of the library, which is no Exception.
    """
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        text = max(map(str, texts), key=len, default="")
        which = f", probably that of {len(text):,} characters that begins with {text[:40]!r}" if text else ""
        raise UserError(
            f"The tokenizer cannot read a text{which}: put blanks between its words, or omit it."
        ) from error
