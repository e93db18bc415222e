"""
Documents packed into blocks of a fixed number of tokens, for masked language modeling.

A document is cut into pieces of at most n tokens, and a block holds as many pieces as fit into n. Each piece is a
separate sequence: the model's output for it and its masks do not depend on the block.
"""

from array import array
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from pyarrow.compute import list_value_length
from torch.utils.data import Dataset as TorchDataset
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .files import source_version


# Pieces that are packed together.
_WINDOW = 10_000
# Documents that are held together: fewer where they have so many characters.
_DOCUMENTS, _CHARACTERS = 1_000, 4_000_000
# Characters in one call of a tokenizer, which needs some hundred bytes for each.
_TOKENIZED_CHARACTERS = 1_000_000
# The first number of a piece's key. Masks of an evaluation do not depend on the run's seed.
_TRAINING, _EVALUATION = 1, 2


class Chunk(NamedTuple):
    """
    A piece of a document: its tokens `[l]`, special ones included, and some whole numbers, the seed of its masks.
    """

    ids: np.ndarray
    key: tuple[int, ...]


@dataclass(frozen=True)
class PieceEncoder:
    """Cuts documents into pieces of at most `size` tokens. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    column: str
    size: int
    version: str = source_version(__name__)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[np.ndarray]]:
        """`input_ids` of the pieces of some documents, a row for each piece; a document without tokens has none."""
        special = self.tokenizer.num_special_tokens_to_add()
        pieces = []
        documents = iter(batch[self.column])
        while texts := _take(documents, _TOKENIZED_CHARACTERS):
            encoded = self.tokenizer(
                texts,
                truncation=True,
                max_length=self.size,
                return_overflowing_tokens=True,
                return_attention_mask=False,
                return_token_type_ids=False,
            )
            pieces += [np.array(ids, dtype=np.int32) for ids in encoded["input_ids"] if len(ids) > special]
        return {"input_ids": pieces}


def _take(texts: Iterator[str], characters: int) -> list[str]:
    """The next texts, until they have this many characters together."""
    taken: list[str] = []
    for text in texts:
        taken.append(text)
        characters -= len(text)
        if characters <= 0:
            break
    return taken


def to_pieces(texts: Dataset, encode: PieceEncoder, split: str) -> Dataset:
    """The pieces of all documents in their order, one row of `input_ids` each."""
    mean = texts.data.nbytes // texts.data.num_rows + 1
    pieces = texts.map(
        encode,
        batched=True,
        batch_size=min(_DOCUMENTS, _CHARACTERS // mean + 1),
        remove_columns=texts.column_names,
        desc=f"Tokenizing {split}",
    )
    if not len(pieces):
        raise UserError(f"The {split} split has no text that gives tokens.")
    return pieces.with_format("numpy")


def pack(lengths: Sequence[int], size: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Assign pieces of some lengths to blocks of `size` tokens: best fit, the longest first, among every _WINDOW pieces.
    Returns the numbers of all pieces, block after block, and the start of each block, with the end of the last.
    """
    order, starts = array("q"), array("q", [0])
    for first in range(0, len(lengths), _WINDOW):
        window = range(first, min(first + _WINDOW, len(lengths)))
        blocks: list[list[int]] = []
        rooms: list[tuple[int, int]] = []  # free tokens of a block, and its number; the smallest first
        for piece in sorted(window, key=lambda piece: -lengths[piece]):
            index = bisect_left(rooms, (lengths[piece], 0))
            if index < len(rooms):
                room, block = rooms.pop(index)
            else:
                room, block = size, len(blocks)
                blocks.append([])
            blocks[block].append(piece)
            if room > lengths[piece]:
                insort(rooms, (room - lengths[piece], block))
        for members in blocks:
            order.extend(sorted(members))
            starts.append(len(order))
    return np.array(order), np.array(starts)


class Blocks(TorchDataset):
    """
    Pieces (rows of `input_ids`, in numpy format) in blocks of `size` tokens, or one each; an item is a list of
    `Chunk`. Masks follow from `seed`, epoch and number; without a seed, for evaluation, they never change.
    """

    def __init__(self, pieces: Dataset, size: int | None, seed: int | None):
        self.pieces = pieces
        self.seed = seed
        tables = pieces.with_format("arrow").iter(_WINDOW)
        self.lengths = np.concatenate([list_value_length(table["input_ids"]).to_numpy() for table in tables])
        if size is None:
            self.order, self.starts = np.arange(len(pieces)), np.arange(len(pieces) + 1)
        else:
            self.order, self.starts = pack(self.lengths.tolist(), size)
        # Shared with worker processes that live through several epochs.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def begin_epoch(self, epoch: int) -> None:
        """Use the masks of that epoch from now on."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> list[Chunk]:
        numbers = self.order[self.starts[index] : self.starts[index + 1]].tolist()
        source = (_EVALUATION,) if self.seed is None else (_TRAINING, self.seed, int(self._epoch))
        ids = self.pieces[numbers]["input_ids"]
        return [Chunk(np.asarray(piece), (*source, number)) for piece, number in zip(ids, numbers, strict=True)]


def packing_efficiency(blocks: Blocks, size: int) -> float:
    """The share of the blocks' tokens that are no padding."""
    return float(blocks.lengths.sum()) / (len(blocks) * size)
