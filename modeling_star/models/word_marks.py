"""The marks by which a vocabulary tells the beginning of a word from its continuation."""

from collections import Counter
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# The marks of words in a vocabulary, and the other white space of that kind of vocabulary: byte-level BPE writes tab
# to carriage return as the letters U+0109 to U+010D.
MARKERS = {"##": " \t\n\r", "Ġ": "\u0109\u010a\u010b\u010c\u010d", "▁": " \t\n\r"}


def word_marker(tokenizer: "PreTrainedTokenizerBase") -> str | None:
    """
    The mark of words in a vocabulary: the commonest of `MARKERS` that this kind of tokenizer writes, or `None`. In a
    vocabulary of whole words "###" and the name "Ġorġ" are words.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    kind = type(backend.model).__name__ if backend is not None else ""
    markers = {"WordLevel": (), "WordPiece": ("##",)}.get(kind, tuple(MARKERS))
    added = tokenizer.get_added_vocab()
    counts = Counter(
        marker
        for token in tokenizer.get_vocab()
        for marker in markers
        if token not in added and token.startswith(marker) and token != marker
    )
    return max(counts, key=counts.__getitem__, default=None)
