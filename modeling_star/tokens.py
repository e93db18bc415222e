"""Padded batches and flat tokens: the only file that knows which of the two a forward pass works on.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width
"""

from dataclasses import dataclass

import torch
from torch import Tensor


def is_traced() -> bool:
    """Whether the forward pass is being compiled or exported, so that shapes must not depend on the data."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


@dataclass(frozen=True)
class TokenLayout:
    """
    Where the tokens of a batch lie, and how to move between `[b, n, ...]` and flat tokens `[N, ...]`.

    Packed, N counts the real tokens only: padding costs nothing and cannot reach them. Padded, N = b * n with every
    column kept, so that shapes do not depend on the data (`torch.compile`, export) and recorded states are
    `[b, n, d]`. Both hold any mask: right, left or scattered padding. The tokens of a sequence are those of its real
    columns in order, and the ring closes at its real ends.

    Args:
        mask (`Tensor` of shape `[b, n]`, bool): real columns.
        lengths (`Tensor` of shape `[b]`): real tokens of each sequence.
        sequence_index, position, left, right (`Tensor` of shape `[N]`): the sequence of each token, its place among
            the real tokens of that sequence, and the flat indices of its ring neighbours.
        column_index (`Tensor` of shape `[N]`, or `None` when padded): index of each token among the b * n columns.
        max_length (`int`): m, the longest sequence (at least 1) when packed, n when padded.
    """

    mask: Tensor
    lengths: Tensor
    sequence_index: Tensor
    position: Tensor
    left: Tensor
    right: Tensor
    column_index: Tensor | None
    max_length: int

    @classmethod
    def from_mask(cls, mask: Tensor, keep_padding: bool) -> "TokenLayout":
        """Lay out the tokens of `mask` (`[b, n]`, bool), packed unless `keep_padding`."""
        return _padded_layout(mask) if keep_padding else _packed_layout(mask)

    @property
    def is_packed(self) -> bool:
        return self.column_index is not None

    @property
    def row_mask(self) -> Tensor:
        """Real tokens of `to_rows` (`[b, m]`, bool)."""
        if not self.is_packed:
            return self.mask
        return torch.arange(self.max_length, device=self.mask.device) < self.lengths[:, None]

    @property
    def _row_index(self) -> Tensor:
        """Index of each token among the b * m places of right-padded rows (`[N]`)."""
        return self.sequence_index * self.max_length + self.position

    def pack(self, columns: Tensor) -> Tensor:
        """`[b, n, ...]` to flat tokens `[N, ...]`."""
        flat = columns.flatten(0, 1)
        return flat if self.column_index is None else flat[self.column_index]

    def unpack(self, tokens: Tensor) -> Tensor:
        """Flat tokens `[N, ...]` to `[b, n, ...]`, zeros at padding."""
        b, n = self.mask.shape
        if self.column_index is None:
            columns = tokens.unflatten(0, (b, n))
            mask = self.mask.reshape(b, n, *(1 for _ in tokens.shape[1:]))
            return columns.masked_fill(~mask, 0)
        columns = tokens.new_zeros((b * n, *tokens.shape[1:]))
        return columns.index_copy(0, self.column_index, tokens).unflatten(0, (b, n))

    def to_rows(self, tokens: Tensor) -> Tensor:
        """Flat tokens `[N, ...]` to one row a sequence `[b, m, ...]`; `row_mask` says which places are real."""
        b = self.mask.shape[0]
        if self.column_index is None:
            return tokens.unflatten(0, self.mask.shape)
        rows = tokens.new_zeros((b * self.max_length, *tokens.shape[1:]))
        return rows.index_copy(0, self._row_index, tokens).unflatten(0, (b, self.max_length))

    def from_rows(self, rows: Tensor) -> Tensor:
        """Rows `[b, m, ...]` as `to_rows` makes them, back to flat tokens `[N, ...]`."""
        flat = rows.flatten(0, 1)
        return flat if self.column_index is None else flat[self._row_index]

    def to_right_padded(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Flat tokens `[N, ...]` to right-padded rows `[b, m, ...]` and their mask `[b, m]`, holes closed up."""
        if self.column_index is not None:
            return self.to_rows(tokens), self.row_mask
        index = torch.where(self.mask.flatten(), self._row_index, self.mask.numel())
        rows = tokens.new_zeros((self.mask.numel() + 1, *tokens.shape[1:])).index_copy(0, index, tokens)
        longest = self.max_length if is_traced() else max(int(self.lengths.max()), 1)
        mask = torch.arange(longest, device=self.mask.device) < self.lengths[:, None]
        return rows[:-1].unflatten(0, self.mask.shape)[:, :longest], mask

    def from_right_padded(self, rows: Tensor) -> Tensor:
        """Right-padded rows `[b, m, ...]` to flat tokens `[N, ...]`; padding takes an arbitrary token's value."""
        return rows.flatten(0, 1)[self.sequence_index * rows.shape[1] + self.position]

    def mean(self, tokens: Tensor) -> Tensor:
        """Mean over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        rows = self.to_rows(tokens)
        if self.column_index is None:
            # Packed, they have zeros there.
            rows = rows.masked_fill(~self.row_mask[..., None], 0)
        return rows.sum(1) / self.lengths.clamp(min=1)[:, None].to(rows.dtype)

    def max(self, tokens: Tensor) -> Tensor:
        """Maximum over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        rows = self.to_rows(tokens).masked_fill(~self.row_mask[..., None], torch.finfo(tokens.dtype).min)
        return self.zero_empty(rows.amax(1))

    def shifted(self, tokens: Tensor, offset: int) -> Tensor:
        """
        For each token the value of the one `offset` places later in its sequence, earlier if negative (`[N, ...]`).

        Where there is none, which `has_shifted` tells, some other token's value stands.
        """
        if self.column_index is not None:
            # The tokens of a sequence follow one another.
            return tokens.roll(-offset, 0)
        if offset == 0:
            return tokens
        step = self.right if offset > 0 else self.left
        index = step
        for _ in range(abs(offset) - 1):
            index = step[index]
        return tokens[index]

    def has_shifted(self, offset: int) -> Tensor:
        """Whether a token is real and its sequence has one `offset` places later (`[N]`, bool)."""
        place = self.position + offset
        inside = (place >= 0) & (place < self.lengths[self.sequence_index])
        return inside if self.column_index is not None else inside & self.mask.flatten()

    def stretches(self, reach: int, size: int) -> "list[Stretch]":
        """
        All tokens in a few stretches, each with the `reach` tokens on either side that a band needs.

        On a CPU a stretch is `size` tokens for each thread: what is computed a stretch at a time stays in the cache.
        Elsewhere, and padded, there is one.
        """
        if self.column_index is None:
            return [Stretch(self, slice(None), slice(None), reach)]
        count = len(self.position)
        on_cpu = self.position.device.type == "cpu"
        size = size * torch.get_num_threads() if on_cpu else max(count, 1)
        return [
            Stretch(
                self, slice(i, min(i + size, count)), slice(max(i - reach, 0), min(i + size + reach, count)), reach
            )
            for i in range(0, max(count, 1), size)
        ]

    def zero_empty(self, states: Tensor) -> Tensor:
        """Zeros in the rows of `states` (`[b, ...]`) whose sequence has no real token."""
        empty = (self.lengths == 0).reshape(-1, *(1 for _ in states.shape[1:]))
        return states.masked_fill(empty, 0)


@dataclass(frozen=True)
class Stretch:
    """
    Some of the flat tokens, and where the tokens around them are.

    Args:
        layout (`TokenLayout`): of all tokens.
        tokens (`slice`): its own tokens, M of the N.
        wide (`slice`): these and as many as there are of the `reach` before and after them, M' in all.
        reach (`int`): how far the band reaches.
    """

    layout: TokenLayout
    tokens: slice
    wide: slice
    reach: int

    def band(self, wide: Tensor) -> list[Tensor]:
        """
        For each place from `-reach` to `reach` the token that stands there, seen from each token of the stretch.

        Args:
            wide: what the tokens of `self.wide` hold, `[M', ...]`.

        Returns:
            2 reach + 1 of `[M, ...]`; where `has_shifted` says that there is none, anything finite.
        """
        if not self.layout.is_packed:
            return [self.layout.shifted(wide, offset) for offset in range(-self.reach, self.reach + 1)]
        before = self.reach - (self.tokens.start - self.wide.start)
        after = self.reach - (self.wide.stop - self.tokens.stop)
        if before or after:
            wide = torch.nn.functional.pad(wide, (0, 0) * (wide.dim() - 1) + (before, after))
        count = self.tokens.stop - self.tokens.start
        return [wide[place : place + count] for place in range(2 * self.reach + 1)]


def _packed_layout(mask: Tensor) -> TokenLayout:
    lengths = mask.sum(1)
    column_index = mask.flatten().nonzero().squeeze(1)
    sequence_index = column_index // max(mask.shape[1], 1)
    token = torch.arange(len(column_index), device=mask.device)
    start = (lengths.cumsum(0) - lengths)[sequence_index]
    position = token - start
    end = start + lengths[sequence_index] - 1
    left = torch.where(token == start, end, token - 1)
    right = torch.where(token == end, start, token + 1)
    # At least one place a row: an empty row then is padding like any other.
    max_length = max(int(lengths.max()), 1)
    return TokenLayout(mask, lengths, sequence_index, position, left, right, column_index, max_length)


def _padded_layout(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths = mask.sum(1)
    rank = mask.cumsum(1) - 1
    columns = torch.arange(n, device=mask.device).expand(b, n)
    # column_of_rank[i, r] is the column of the r-th real token; padding writes into the surplus place n.
    place = torch.where(mask, rank, n)
    column_of_rank = torch.zeros((b, n + 1), dtype=torch.long, device=mask.device).scatter(1, place, columns)
    position = rank.clamp(min=0)
    length = lengths.clamp(min=1)[:, None]
    offset = torch.arange(b, device=mask.device)[:, None] * n
    left = column_of_rank.gather(1, (position - 1).remainder(length)) + offset
    right = column_of_rank.gather(1, (position + 1).remainder(length)) + offset
    sequence_index = torch.arange(b, device=mask.device)[:, None].expand(b, n)
    return TokenLayout(
        mask,
        lengths,
        sequence_index.reshape(-1),
        position.reshape(-1),
        left.reshape(-1),
        right.reshape(-1),
        column_index=None,
        max_length=n,
    )
