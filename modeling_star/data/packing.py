"""Documents to blocks of a fixed number of tokens, for run_mlm.py.

A document becomes pieces of at most n tokens, and a block holds as many pieces as fit into n. A piece is a sequence of
its own wherever it lies: what a model makes of it, and what is masked in it, does not depend on its block.
"""

import itertools
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from pyarrow.compute import list_value_length
from torch import Tensor
from torch.utils.data import Dataset as TorchDataset
from torch.utils.data import IterableDataset as TorchIterableDataset
from torch.utils.data import get_worker_info
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .caching import source_version
from .text import at_most, documents


# Pieces that are packed with one another.
_WINDOW = 10_000
# Documents of a stream that are tokenized, and packed with one another: fewer where they have so many characters.
_STREAM_WINDOW, _WINDOW_CHARACTERS = 1_000, 4_000_000
# Characters that a tokenizer is given at a time, which makes some hundred bytes of each.
_TOKENIZED_CHARACTERS = 1_000_000
# First of the numbers that a piece's masks are drawn from: those of evaluation are the same whatever the run's seed.
_TRAINING, _EVALUATION, _STREAM = 1, 2, 3


class Chunk(NamedTuple):
    """
    A sequence of a block.

    Args:
        ids: its tokens `[l]`, special ones included.
        key: whole numbers that its masks are drawn from.
    """

    ids: np.ndarray
    key: tuple[int, ...]


@dataclass(frozen=True)
class PieceEncoder:
    """
    Documents to pieces. A class, so that worker processes can unpickle it.

    Args:
        tokenizer: a fast one; its special tokens stand in every piece.
        column: of the documents.
        size: n, most tokens of a piece.
        version: see `source_version`.
    """

    tokenizer: PreTrainedTokenizerBase
    column: str
    size: int
    version: str = source_version(__name__)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[np.ndarray]]:
        """Rows of documents to `input_ids`, one row a piece; a document that no token is made of has none."""
        special = self.tokenizer.num_special_tokens_to_add()
        pieces = []
        for texts in _parts(batch[self.column]):
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


def _parts(texts: list[str]) -> Iterator[list[str]]:
    """Texts that follow one another, _TOKENIZED_CHARACTERS at most; a longer one comes alone."""
    part: list[str] = []
    count = 0
    for text in texts:
        if part and count + len(text) > _TOKENIZED_CHARACTERS:
            yield part
            part, count = [], 0
        part.append(text)
        count += len(text)
    if part:
        yield part


def to_pieces(
    texts: Dataset, encode: PieceEncoder, split: str, num_proc: int | None, load_from_cache_file: bool | None
) -> Dataset:
    """The pieces of all documents in their order, one row of `input_ids` each; arguments as in `Dataset.map`.

    Raises:
        UserError: there is none.
    """
    mean = texts.data.nbytes // texts.data.num_rows + 1
    pieces = texts.map(
        encode,
        batched=True,
        batch_size=min(_STREAM_WINDOW, _WINDOW_CHARACTERS // mean + 1),
        remove_columns=texts.column_names,
        num_proc=num_proc,
        load_from_cache_file=load_from_cache_file,
        desc=f"Tokenizing {split}",
    )
    if not len(pieces):
        raise UserError(f"The {split} split has no text that the tokenizer makes a token of.")
    return pieces.with_format("numpy")


def pack(lengths: Sequence[int], size: int) -> tuple[np.ndarray, np.ndarray]:
    """
    Which pieces share a block: best fit, the longest first, among each _WINDOW pieces that follow one another.

    Args:
        lengths: tokens of each piece, no more than `size`.
        size: tokens of a block.

    Returns:
        The numbers of all pieces, block after block, and where each block begins, with the end of the last.
    """
    order, starts = array("q"), array("q", [0])
    for first in range(0, len(lengths), _WINDOW):
        window = range(first, min(first + _WINDOW, len(lengths)))
        blocks: list[list[int]] = []
        rooms: list[tuple[int, int]] = []  # tokens that a block has room for, and its number; the smallest first
        for piece in sorted(window, key=lambda piece: -lengths[piece]):
            place = bisect_left(rooms, (lengths[piece], 0))
            if place < len(rooms):
                room, block = rooms.pop(place)
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
    Pieces in blocks, by number; an item is a list of `Chunk`.

    Args:
        pieces: rows of `input_ids`, in numpy format.
        size: tokens of a block; `None`: a block for each piece.
        seed: of the masks, which change with the epoch too; `None`, for evaluation: they are always the same.
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
        # Worker processes that live through several epochs see the change.
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()

    def begin_epoch(self, epoch: int) -> None:
        """The masks of that epoch from now on."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, index: int) -> list[Chunk]:
        numbers = self.order[self.starts[index] : self.starts[index + 1]].tolist()
        source = (_EVALUATION,) if self.seed is None else (_TRAINING, self.seed, int(self._epoch))
        ids = self.pieces[numbers]["input_ids"]
        return [Chunk(np.asarray(own), (*source, number)) for own, number in zip(ids, numbers, strict=True)]


class StreamedBlocks(TorchIterableDataset):
    """
    Blocks of a stream that never ends: after its last document comes the first, in another order.

    One pass for Trainer, whatever the number of times that the documents are read: what it skips when it resumes is
    then what it had seen. Each of several worker processes reads all documents and tokenizes every k-th: with a part
    of the files for each, one would begin again while others have documents that nobody has seen.

    Args:
        stream: the documents.
        encode: documents to pieces.
        packed: put several pieces into a block.
        seed: of the order and of the masks.
        buffer: documents that a random one is taken from; 0: they come in their order.
        held_out: `fingerprint`s of documents to pass over.
    """

    def __init__(
        self,
        stream: IterableDataset,
        encode: PieceEncoder,
        *,
        packed: bool,
        seed: int,
        buffer: int,
        held_out: frozenset[bytes] = frozenset(),
    ):
        self.stream = stream.shuffle(seed=seed, buffer_size=buffer) if buffer else stream
        self.encode = encode
        self.packed = packed
        self.seed = seed
        self.held_out = held_out

    def __iter__(self) -> Iterator[list[Chunk]]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for epoch in itertools.count():
            self.stream.set_epoch(epoch)
            source = (_STREAM, self.seed, number, epoch)
            blocks = self._pass(source, number, workers)
            first = next(blocks, None)
            if first is None:  # a worker that the documents do not suffice for
                return
            yield first
            yield from blocks

    def _pass(self, source: tuple[int, ...], number: int, workers: int) -> Iterator[list[Chunk]]:
        """The blocks of a worker's documents, read once."""
        column = self.encode.column
        # In a worker process the stream itself would give the documents of some of the files.
        rows = ({column: text} for batch in self.stream.iter(1) for text in batch[column])
        texts = itertools.islice(documents(rows, column, self.held_out), number, None, workers)
        count = 0
        for window in itertools.count():
            batch = list(at_most(texts, _STREAM_WINDOW, _WINDOW_CHARACTERS))
            if not batch:
                return
            ids = self.encode({column: batch})["input_ids"]
            pieces = [Chunk(own, (*source, count + place)) for place, own in enumerate(ids)]
            count += len(pieces)
            blocks = [[piece] for piece in pieces]
            if self.packed:
                order, starts = pack([len(own) for own in ids], self.encode.size)
                blocks = [
                    [pieces[place] for place in order[start:stop]]
                    for start, stop in itertools.pairwise(starts.tolist())
                ]
            # Packing puts the longest first.
            shuffled = np.random.default_rng((*source, window)).permutation(len(blocks)) if self.packed else None
            yield from blocks if shuffled is None else (blocks[place] for place in shuffled)


def packing_efficiency(blocks: Blocks, size: int) -> float:
    """The part of the blocks that holds tokens."""
    return float(blocks.lengths.sum()) / (len(blocks) * size)


def unpack_documents(sequence_ids: Tensor, *columns: tuple[Tensor, int]) -> tuple[Tensor, ...]:
    """
    One row for each document of some blocks.

    Axes: B blocks  n their tokens  S documents  m longest document

    Args:
        sequence_ids: `[B, n]`, the number of the document that each token is of, from 1 on; 0 at padding.
        columns: `[B, n]` with what stands for it at padding.

    Returns:
        The mask of the rows `[S, m]`, 1 at tokens; the block of each row `[S]`; and each column as `[S, m]`.
    """
    real = sequence_ids > 0
    count, n = sequence_ids.shape
    # A number of its own for each document of the batch.
    numbers = torch.arange(count, device=real.device)[:, None] * (n + 1) + sequence_ids
    found, lengths = torch.unique_consecutive(numbers[real], return_counts=True)
    longest = int(lengths.max()) if len(lengths) else 0
    mask = torch.arange(longest, device=real.device) < lengths[:, None]
    rows = []
    for column, padding in columns:
        row = column.new_full(mask.shape, padding)
        row[mask] = column[real]
        rows.append(row)
    return mask.long(), found // (n + 1), *rows


def block_rows(blocks: Iterable[list[Chunk]], columns: int | None) -> tuple[np.ndarray, np.ndarray]:
    """
    Blocks of pieces as rows.

    Args:
        blocks: B of them.
        columns: n; `None`: as many as the fullest block has tokens.

    Returns:
        For each place of the rows `[B, n]` its token's number among all tokens of the blocks, -1 at padding; and the
        number of the document that it is of, from 1 on, 0 at padding.
    """
    lengths = [[len(piece.ids) for piece in block] for block in blocks]
    width = max(map(sum, lengths)) if columns is None else columns
    tokens = np.full((len(lengths), width), -1)
    sequences = np.zeros((len(lengths), width), dtype=np.int64)
    count = 0
    for row, own in enumerate(lengths):
        total = sum(own)
        tokens[row, :total] = np.arange(count, count + total)
        sequences[row, :total] = np.repeat(np.arange(1, len(own) + 1), own)
        count += total
    return tokens, sequences


__all__ = [
    "Blocks",
    "Chunk",
    "PieceEncoder",
    "StreamedBlocks",
    "block_rows",
    "pack",
    "packing_efficiency",
    "to_pieces",
    "unpack_documents",
]
