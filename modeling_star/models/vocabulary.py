"""
The entries of a tokenizer's vocabulary: their text, and which of them continue a word.

A model that needs them keeps buffers with a row for each entry (`VocabularyTables`), so that input_ids stay its only
input.

Axes: V vocabulary entries
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from .word_marks import MARKERS, word_marker


_WHITE_BYTES = {"<0x09>", "<0x0A>", "<0x0D>", "<0x20>"}


@dataclass(frozen=True, eq=False, repr=False)
class Vocabulary:
    """
    The V entries of a vocabulary by their id, as `read` finds them: `texts` without marks, empty for special tokens,
    the unknown token among them, and for ids without an entry; which entries continue a word, which no word reaches
    across (`alone`: special and added tokens, line breaks), and which are special, but for the unknown token.

    `marker` is "##" (WordPiece: continues a word), "Ġ" (byte-level BPE) or "▁" (SentencePiece: both start one);
    `None`: every entry is a word or a character.
    """

    marker: str | None
    texts: list[str]
    continues: Tensor
    alone: Tensor
    special: Tensor

    def __len__(self) -> int:
        """V, the largest id + 1."""
        return len(self.texts)

    @classmethod
    def read(cls, tokenizer: PreTrainedTokenizerBase) -> "Vocabulary":
        """The vocabulary of `tokenizer`, added tokens included."""
        entries = tokenizer.get_vocab()
        marker = word_marker(tokenizer)
        size = max(entries.values(), default=-1) + 1
        continues, alone, special = (torch.zeros(size, dtype=torch.bool) for _ in range(3))
        texts = [""] * size
        specials, added = set(tokenizer.all_special_ids), set(tokenizer.get_added_vocab().values())
        outside = specials | added
        for token, index in entries.items():
            special[index] = index in specials and index != tokenizer.unk_token_id
            alone[index] = index in outside or _is_white(token, marker)
            if marker is not None:
                continues[index] = not alone[index] and token.startswith(marker) == (marker == "##")
            if index not in specials:
                # Added tokens are matched in the text verbatim.
                texts[index] = token.strip() if index in added else _text_of(token, marker, tokenizer)
        return cls(marker, texts, continues, alone, special)


def _is_white(token: str, marker: str | None) -> bool:
    """Whether an entry is a line break or the like; the mark alone is a word that starts."""
    if marker is None or token in _WHITE_BYTES:
        return token in _WHITE_BYTES
    return not token.strip(MARKERS[marker] + marker) and bool(token.strip(marker))


def _text_of(token: str, marker: str | None, tokenizer: PreTrainedTokenizerBase) -> str:
    """An entry as written in a text, without white space around it."""
    if marker == "##":
        return token.removeprefix("##") or token
    if marker == "Ġ":
        # Bytes written as letters: only the tokenizer knows which.
        return tokenizer.convert_tokens_to_string([token]).strip()
    return (token.replace("▁", " ") if marker == "▁" else token).strip()


class VocabularyTables(nn.Module):
    """A module with buffers that have a row for each vocabulary entry; `model.set_vocabulary` fills them."""

    def load_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Fill the tables from `vocabulary`; ids beyond it stay unknown."""
        raise TypeError(f"{type(self).__name__} defines no load_vocabulary(vocabulary).")

    @property
    def has_vocabulary(self) -> bool:
        """Whether anything was ever loaded."""
        return any(bool(table.any()) for table in self._tables().values())

    def resize_vocabulary(self, size: int) -> None:
        """Resize the tables along with the embedding table; new entries are unknown."""
        for name, table in self._tables().items():
            resized = table.new_zeros(size, *table.shape[1:])
            common = min(size, len(table))
            resized[:common] = table[:common]
            setattr(self, name, resized)

    def _tables(self) -> dict[str, Tensor]:
        """The buffers by name."""
        return {name: getattr(self, name) for name in self.vocabulary_tables}

    vocabulary_tables: tuple[str, ...] = ()
