"""
The tokens around a token: on the ring of its sequence, or before and after it up to the ends.

In a sequence a b c d, the token a has within a radius of 1 the neighbours d a b on the ring, which closes at the real
ends, and otherwise a b, since nothing comes before it. Functions that read past an end return anything finite there;
`has_shifted` says where that is.

Axes: b batch  N flat tokens  M tokens of a block  R rows of a block  d width
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .token_layout import Memo, TokenLayout, get_or_compute


# Tokens of a block, whose states stay in the processor's cache from one operation to the next.
TOKENS_AT_ONCE = 1024


def shifted(layout: TokenLayout, tokens: Tensor, offset: int) -> Tensor:
    """
    For each token the value of the one `offset` places later in its sequence, earlier if negative (`[N, ...]`).

    Where `has_shifted` is false, it is the value of any other token.
    """
    if layout.column_index is not None:
        # The tokens of a sequence follow one another.
        return tokens.roll(-offset, 0)
    if offset == 0:
        return tokens
    index = step = layout.right if offset > 0 else layout.left
    for _ in range(abs(offset) - 1):
        index = step[index]
    return tokens[index]


def has_shifted(layout: TokenLayout, offset: int) -> Tensor:
    """Whether a token is real and its sequence has one `offset` places later (`[N]`, bool)."""
    place = layout.position + offset
    inside = (place >= 0) & (place < layout.lengths[layout.sequence_index])
    return inside if layout.column_index is not None else inside & layout.mask.flatten()


def windows(layout: TokenLayout, values: Tensor, first: int, last: int) -> Tensor:
    """
    The values from `first` to `last` places after each token, `[N]` or `[N, k]` to `[N, (last - first + 1) k]`, as
    `shifted` gives them; 0 beyond the ends of a packed batch.
    """
    if layout.column_index is None or not len(values):
        places = [shifted(layout, values, offset) for offset in range(first, last + 1)]
        return torch.stack(places, dim=1).flatten(1)
    k = math.prod(values.shape[1:])
    flat = torch.nn.functional.pad(values.reshape(-1), (max(-first, 0) * k, max(last, 0) * k))
    return flat.unfold(0, (last - first + 1) * k, k)


def words_end_inside(layout: TokenLayout, longest: int) -> Tensor:
    """
    Whether words of 2 to `longest` tokens that start at each token end in its sequence (`[N, longest - 1]`, bool):
    `has_shifted` of 1 to `longest` - 1.
    """

    def make() -> Tensor:
        offsets = torch.arange(1, longest, device=layout.position.device)
        inside = layout.position[:, None] + offsets < layout.lengths[layout.sequence_index][:, None]
        return inside if layout.is_packed else inside & layout.mask.reshape(-1, 1)

    return get_or_compute(layout.memo, ("words_end_inside", longest), make)


def is_continuation(layout: TokenLayout, continues: Tensor, alone: Tensor) -> Tensor:
    """
    Whether each token continues the word of the token before it (`[N]`, bool).

    Args:
        continues: tokens whose entry continues a word (`[N]`, bool).
        alone: tokens that no word reaches across (`[N]`, bool): special and added ones.
    """
    return continues & has_shifted(layout, -1) & ~shifted(layout, alone, -1)


def ring_neighbours(layout: TokenLayout, radius: int) -> Tensor:
    """
    Flat indices of each token's ring neighbours, from `radius` places before it to as many after it.

    Returns:
        `[2 radius + 1, N]`, the token itself in the middle.
    """
    if layout.is_packed:
        place = layout.position + torch.arange(-radius, radius + 1, device=layout.position.device)[:, None]
        length = layout.lengths[layout.sequence_index]
        length = length.clamp(min=1) if layout.in_rows else length  # the padding of an empty sequence
        return layout.starts[layout.sequence_index] + place.remainder(length)
    itself = torch.arange(layout.left.shape[0], device=layout.left.device)  # len() would fix the exported size
    before, after = [itself], [itself]
    for step in range(radius):
        before.append(layout.left[before[-1]] if step else layout.left)
        after.append(layout.right[after[-1]] if step else layout.right)
    return torch.stack([*before[:0:-1], *after])


# ------ blocks of tokens on a CPU


@dataclass(frozen=True)
class CPUBlock:
    """
    Some consecutive flat tokens, and where their neighbours are.

    Args:
        tokens (`slice`): which tokens, M of the N.
        sequences (`slice`): the sequences that they belong to.
        radius (`int`): how many neighbours on either side a token attends to.
        closed (`bool`): these are neighbours on the ring.
        make_index (`Callable`, or `None`): returns the rows of `rows_around` that hold the ring neighbours
            (`[2 radius + 1, M]`), the token itself in the middle; `None` where they are the rows around it throughout.
        alone (`bool`): there is no other block, and all neighbours lie within it.
        memo (`Memo`): what is derived from the block, for all layers.
    """

    tokens: slice
    sequences: slice
    radius: int
    closed: bool
    make_index: Callable[[], Tensor] | None
    alone: bool
    memo: Memo = field(default_factory=dict, repr=False, compare=False)

    @property
    def index(self) -> Tensor | None:
        """What `make_index` returns; kernels need none."""
        return None if self.make_index is None else get_or_compute(self.memo, "index", self.make_index)

    @staticmethod
    def split(tokens: Tensor | None, blocks: "list[CPUBlock]") -> list[Any]:
        """Flat tokens `[N, ...]` as those of each block `[M, ...]`; `None` as one `None` for each."""
        if tokens is None or len(blocks) == 1:
            return [tokens] * len(blocks)
        return list(tokens.split([block.tokens.stop - block.tokens.start for block in blocks]))

    @staticmethod
    def join(
        made: Iterator[tuple[Tensor, Tensor | None]], blocks: "list[CPUBlock]", like: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """
        Flat tokens from the states of each block, which are made one block after another.

        Args:
            made: states `[M, d]` of each block, and attention weights `[b, h, n, r]` or `None`.
            blocks: the blocks, in this order.
            like: a tensor of the result's shape and type, `[N, d]`.

        Returns:
            `[N, d]`, and the weights where there is one block: what is recorded keeps the padding, in one block.
        """
        if len(blocks) == 1:
            return next(made)
        if torch.is_grad_enabled():
            return torch.cat([states for states, _ in made]), None
        # Without a graph that holds on to them, the states of a block go into their place at once.
        joined = torch.empty_like(like)
        for block, (states, _) in zip(blocks, made, strict=True):
            joined[block.tokens] = states
        return joined, None

    def own(self, rows: Tensor) -> Tensor:
        """The block's own of the rows of `rows_around`, `[R, ...]` to `[M, ...]`."""
        return rows if self.alone else rows[self.radius : self.radius + self.tokens.stop - self.tokens.start]

    def neighbours(self, rows: Tensor, layout: TokenLayout) -> list[Tensor]:
        """
        For each place from `-radius` to `radius` what the token there has, seen from each token of the block.

        Args:
            rows: what the rows of `rows_around` have, `[R, ...]`.
            layout: where all tokens lie.

        Returns:
            2 radius + 1 of `[M, ...]`. Off the ring, anything finite where `has_shifted` is false.
        """
        if self.index is not None:
            places = [rows.index_select(0, index) for index in self.index]
            places[self.radius] = self.own(rows)
            return places
        if not self.closed and not layout.is_packed:
            return [shifted(layout, rows, offset) for offset in range(-self.radius, self.radius + 1)]
        if not self.closed and self.alone:
            rows = torch.nn.functional.pad(rows, (0, 0) * (rows.dim() - 1) + (self.radius, self.radius))
        count = rows.shape[0] - (4 if self.closed else 2) * self.radius  # len() would fix it in a traced graph
        return [rows[place : place + count] for place in range(2 * self.radius + 1)]

    def neighbour_index(self, count: int) -> Tensor:
        """
        Which of the rows of `rows_around` hold each token's neighbours, itself in the middle.

        Args:
            count: M.

        Returns:
            `[2 radius + 1, M]`. Off the ring, any row where `has_shifted` is false.
        """
        if self.index is not None:
            return self.index
        index = torch.arange(2 * self.radius + 1)[:, None] + torch.arange(count)
        return (index - self.radius).clamp(0, count - 1) if self.alone else index

    def of_block(self, states: Tensor | None) -> Tensor | None:
        """The states of the block's `sequences` among those of all: `[b, ...]` to `[s, ...]`."""
        return states if states is None or self.alone else states[self.sequences]

    def of_sequences(self, states: Tensor, layout: TokenLayout) -> Tensor:
        """
        The state of each token's sequence, `[M, ...]`, or `[1, ...]` where all are of one sequence.

        Args:
            states: what the block's `sequences` have, `[s, ...]`.
            layout: where all tokens lie.
        """
        if not self.alone and len(states) == 1:
            return states
        return states.index_select(0, self.sequence_index(layout))

    def with_first(self, tokens: Tensor, first: Tensor, layout: TokenLayout) -> Tensor:
        """
        The block's tokens with other states of those that are the first of their sequence.

        Args:
            tokens: `[M, d]`; changed in place where no gradient is recorded.
            first: `[s, d]`, for the first token of each of the block's `sequences`.
            layout: where all tokens lie.
        """
        if not layout.is_packed:
            return torch.where((layout.position == 0)[:, None], first[layout.sequence_index], tokens)
        begin = 0 if self.alone else self.tokens.start
        index = layout.starts[self.sequences] - begin
        if not self.alone or not (layout.is_full or layout.in_rows):
            # Not those that begin before the block, nor empty sequences.
            inside = (index >= 0) & (layout.lengths[self.sequences] > 0)
            index, first = index[inside], first[inside]
        copy = tokens.index_copy if torch.is_grad_enabled() else tokens.index_copy_
        return copy(0, index, first.to(tokens.dtype))

    def sequence_index(self, layout: TokenLayout) -> Tensor:
        """Which of the block's `sequences` each token is of (`[M]`)."""
        return layout.sequence_index if self.alone else layout.sequence_index[self.tokens] - self.sequences.start


def cpu_blocks(layout: TokenLayout, radius: int, closed: bool) -> list[CPUBlock]:
    """
    All tokens in consecutive blocks. On a CPU a block has TOKENS_AT_ONCE tokens or some more for each thread;
    elsewhere, and padded, there is one.

    Args:
        radius: how many neighbours on either side a token attends to.
        closed: these are neighbours on the ring; otherwise sequences have ends.
    """
    single = not layout.is_packed or layout.position.device.type != "cpu"
    size = 0 if single else max(TOKENS_AT_ONCE, radius) * torch.get_num_threads()
    if single or len(layout.position) < 2 * size:  # len() would fix the size of what is exported
        return get_or_compute(layout.memo, ("block", radius, closed), lambda: _one_block(layout, radius, closed))
    count = len(layout.position)
    edges = [i * size for i in range(count // size)] + [count]
    ring, starts = ring_neighbours(layout, radius) if closed and radius else None, layout.starts
    return [_block(layout, start, stop, radius, closed, ring, starts) for start, stop in itertools.pairwise(edges)]


def _one_block(layout: TokenLayout, radius: int, closed: bool) -> list[CPUBlock]:
    make_index = functools.partial(ring_neighbours, layout, radius) if closed and radius else None
    return [CPUBlock(slice(None), slice(None), radius, closed, make_index, alone=True)]


def _block(
    layout: TokenLayout, start: int, stop: int, radius: int, closed: bool, ring: Tensor | None, starts: Tensor
) -> CPUBlock:
    first, last = int(layout.sequence_index[start]), int(layout.sequence_index[stop - 1])
    block = functools.partial(CPUBlock, slice(start, stop), slice(first, last + 1), radius, closed, alone=False)
    if ring is None:
        return block(make_index=None)
    ring = ring[:, start:stop]
    if first == last and int(ring[0, 0]) == start - radius and int(ring[-1, -1]) == stop - 1 + radius:
        return block(make_index=None)

    def make_index() -> Tensor:
        # Rows of `rows_around`: the tokens before, the block's own, the tokens after, and the two far ends, where the
        # ring of a sequence closes that begins before this block, or continues after it.
        index = ring - (start - radius)
        ends = stop - start + 2 * radius
        from_first = ends + ring - int(starts[first])
        from_last = ends + 2 * radius + ring - int(starts[last] + layout.lengths[last])
        return torch.where(index < 0, from_first, torch.where(index >= ends, from_last, index))

    return block(make_index=make_index)


def rows_around(layout: TokenLayout, tokens: Tensor, pieces: list[Tensor], blocks: list[CPUBlock]) -> Iterator[Tensor]:
    """
    For each block the rows that its tokens' neighbours are among, the block's own too.

    Args:
        tokens: `[N, d]`.
        pieces: the tokens of each block, `[M, d]`, `CPUBlock.split`.
        blocks: as `cpu_blocks` makes them.

    Yields:
        `[M + 2 radius, d]`, from `radius` tokens before the block to as many after it; on a ring
        `[M + 4 radius, d]`, with the first `radius` tokens of its first sequence and the last of its last.
        `[M, d]` where the block is alone.
    """
    radius, closed = blocks[0].radius, blocks[0].closed
    if radius == 0 or blocks[0].alone:
        for piece in pieces:  # noqa: UP028, torch 2.14 cannot compile `yield from`
            yield piece
        return
    if closed:
        first, last = _sequence_ends(layout, radius)
        heads, tails = tokens[first], tokens[last]
    for number, block in enumerate(blocks):
        rows = [pieces[number - 1][-radius:], pieces[number], pieces[(number + 1) % len(pieces)][:radius]]
        if closed:
            rows += [heads[block.sequences.start], tails[block.sequences.stop - 1]]
        yield torch.cat(rows)


def _sequence_ends(layout: TokenLayout, count: int) -> tuple[Tensor, Tensor]:
    """Flat indices of each sequence's first and last `count` tokens (`[b, count]` each); any if it has fewer."""
    limit = max(len(layout.position) - 1, 0)
    first = layout.starts[:, None] + torch.arange(count, device=layout.lengths.device)
    last = first + layout.lengths[:, None] - count
    return first.clamp(max=limit), last.clamp(0, limit)


__all__ = [
    "TOKENS_AT_ONCE",
    "CPUBlock",
    "cpu_blocks",
    "has_shifted",
    "is_continuation",
    "ring_neighbours",
    "rows_around",
    "shifted",
    "windows",
    "words_end_inside",
]
