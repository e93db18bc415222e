"""Padded batches and flat tokens: results depend on neither.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width
"""

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor


# Tokens of a block, whose states stay in the processor's cache from one operation to the next.
TOKENS_AT_ONCE = 1024
# Tokens of the largest batch without padding whose layout is kept: some hundred kB each.
TOKENS_KEPT = 512
# Tokens that one program of a GPU kernel sums up: a long sequence is distributed over many.
TOKENS_OF_CHUNK = 128


def is_traced() -> bool:
    """Whether the forward pass is being compiled or exported, so that shapes must not depend on the data."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


# Constants of the forward passes within `fixed_shapes`.
_CONSTANTS: ContextVar[dict[Hashable, Any] | None] = ContextVar("constants", default=None)


@contextmanager
def fixed_shapes(constants: dict[Hashable, Any]) -> Iterator[None]:
    """
    Forward passes in which nothing that the CPU does depends on values, as a CUDA graph needs it: values are not
    checked, and padding is computed.

    Args:
        constants: takes the tensors that passes share. A graph reads them for as long as it is used.
    """
    token = _CONSTANTS.set(constants)
    try:
        yield
    finally:
        _CONSTANTS.reset(token)


def is_fixed() -> bool:
    """Whether shapes must not depend on values: within `fixed_shapes`, compiled or exported."""
    return is_traced() or _CONSTANTS.get() is not None


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float32 in place of a half precision."""
    return torch.float32 if dtype.itemsize < 4 else dtype


Constant = TypeVar("Constant")


def constant(function: Callable[..., Constant]) -> Callable[..., Constant]:
    """Decorate a function of sizes, types and devices alone: its tensors are made once and kept, unless traced."""

    def made(*arguments: Hashable) -> Constant:
        # Tensors made in inference mode could not be used in training later.
        with torch.inference_mode(False):
            return function(*arguments)

    kept = functools.lru_cache(maxsize=64)(made)

    @functools.wraps(function)
    def chosen(*arguments: Hashable) -> Constant:
        if is_traced():
            return function(*arguments)
        constants = _CONSTANTS.get()
        if constants is None:
            return kept(*arguments)
        if (function, arguments) not in constants:
            constants[function, arguments] = made(*arguments)
        return constants[function, arguments]

    return chosen


Memo = dict[Hashable, Any]


def remember(memo: Memo, name: Hashable, make: Callable[[], Constant]) -> Constant:
    """The value of that name; `make` is called where there is none, or where the model is traced."""
    if is_traced():
        return make()
    if name not in memo:
        with torch.inference_mode(False):
            memo[name] = make()
    return memo[name]


@dataclass(frozen=True)
class TokenLayout:
    """
    The positions of a batch's tokens, and conversion between `[b, n, ...]` and flat tokens `[N, ...]`.

    Packed, N counts the real tokens only: padding costs nothing and cannot reach them. Packed in rows, the padding of
    a sequence follows its tokens, N = b * n: shapes do not depend on values, and kernels read what they read of packed
    tokens (`fixed_shapes`). Padded, N = b * n with every column in its place, for `torch.compile`, export and recorded
    states `[b, n, d]`. All hold any mask: right, left or scattered padding. The tokens of a sequence are those of its
    real columns in order, and the ring closes at its real ends.

    Args:
        mask (`Tensor` of shape `[b, n]`, bool): real columns.
        lengths (`Tensor` of shape `[b]`): real tokens of each sequence.
        sequence_index, position (`Tensor` of shape `[N]`): the sequence of each token, and its place among the real
            tokens of that sequence.
        left, right (`Tensor` of shape `[N]`, or `None` when packed): flat indices of each token's ring neighbours.
        column_index (`Tensor` of shape `[N]`, or `None` when padded): index of each token among the b * n columns.
        max_length (`int`): m, the longest sequence (at least 1) when packed, n when padded or in rows.
        in_rows (`bool`): packed in rows. The position of padding is its place in the row.
        memo (`Memo`): what is derived from the layout, for all layers of a forward pass.
    """

    mask: Tensor
    lengths: Tensor
    sequence_index: Tensor
    position: Tensor
    left: Tensor | None
    right: Tensor | None
    column_index: Tensor | None
    max_length: int
    in_rows: bool = False
    memo: Memo = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def full(cls, b: int, n: int, device: torch.device) -> "TokenLayout":
        """
        A packed layout without padding. Those of small batches are kept, with all that is derived from them, since the
        time of a short text is that of starting operations.
        """
        return (_kept_full_layout if b * n <= TOKENS_KEPT else _full_layout)(b, n, device)

    @classmethod
    def from_mask(cls, mask: Tensor, keep_padding: bool) -> "TokenLayout":
        """Lay out the tokens of `mask` (`[b, n]`, bool), packed unless `keep_padding`, in rows in `fixed_shapes`."""
        if keep_padding:
            return _padded_layout(mask)
        return _layout_in_rows(mask) if is_fixed() else _packed_layout(mask)

    @property
    def is_packed(self) -> bool:
        return self.column_index is not None

    @property
    def is_full(self) -> bool:
        """Packed, without any padding to drop: rows are the flat tokens under another shape."""
        return self.is_packed and not self.in_rows and len(self.position) == self.mask.numel()

    @property
    def row_mask(self) -> Tensor:
        """Real tokens of `to_rows` (`[b, m]`, bool)."""
        if not self.is_packed:
            return self.mask
        return torch.arange(self.max_length, device=self.mask.device) < self.lengths[:, None]

    @property
    def row_extents(self) -> list[int]:
        """Places of each row of `to_rows` that hold all its real tokens: b numbers; m each when padded or in rows."""
        if self.is_packed and not self.in_rows:
            return self.lengths.tolist()
        return [self.max_length] * len(self.mask)

    @property
    def _row_index(self) -> Tensor:
        """Index of each token among the b * m places of right-padded rows (`[N]`)."""
        return self.sequence_index * self.max_length + self.position

    def pack(self, columns: Tensor) -> Tensor:
        """`[b, n, ...]` to flat tokens `[N, ...]`."""
        flat = columns.flatten(0, 1)
        return flat if self.column_index is None or self.is_full else flat[self.column_index]

    def unpack(self, tokens: Tensor) -> Tensor:
        """Flat tokens `[N, ...]` to `[b, n, ...]`, zeros at padding."""
        b, n = self.mask.shape
        if self.column_index is None:
            columns = tokens.unflatten(0, (b, n))
            mask = self.mask.reshape(b, n, *(1 for _ in tokens.shape[1:]))
            return columns.masked_fill(~mask, 0)
        if self.is_full:
            return tokens.unflatten(0, (b, n))
        if self.in_rows:
            padding = ~self.mask.reshape(b, n, *(1 for _ in tokens.shape[1:]))
            return tokens[self.memo["place"]].unflatten(0, (b, n)).masked_fill(padding, 0)
        columns = tokens.new_zeros((b * n, *tokens.shape[1:]))
        return columns.index_copy(0, self.column_index, tokens).unflatten(0, (b, n))

    def to_rows(self, tokens: Tensor) -> Tensor:
        """
        Flat tokens `[N, ...]` to one row a sequence `[b, m, ...]`; `row_mask` says which places are real, others hold
        anything.
        """
        b = self.mask.shape[0]
        if self.column_index is None or self.is_full or self.in_rows:
            return tokens.unflatten(0, self.mask.shape)
        rows = tokens.new_zeros((b * self.max_length, *tokens.shape[1:]))
        return rows.index_copy(0, self._row_index, tokens).unflatten(0, (b, self.max_length))

    def to_rows_after(self, nodes: Tensor, tokens: Tensor) -> Tensor:
        """As `to_rows` without padding, each row after its node: `[b, d]` and `[N, d]` to `[b, 1 + n, d]`."""
        if len(nodes) == 1:
            return torch.cat([nodes, tokens])[None]
        return torch.cat([nodes[:, None], self.to_rows(tokens)], dim=1)

    def from_rows(self, rows: Tensor) -> Tensor:
        """Rows `[b, m, ...]` as `to_rows` makes them, back to flat tokens `[N, ...]`."""
        flat = rows.flatten(0, 1)
        if is_traced():
            # Exported, a view that is unflattened again fails the check of a bound of n (torch 2.13).
            return flat.clone(memory_format=torch.contiguous_format)
        return flat if self.column_index is None or self.is_full or self.in_rows else flat[self._row_index]

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

    @property
    def is_ragged(self) -> bool:
        """Packed, sequences of several lengths on a CPU, where torch has sums over parts of a tensor for them."""
        return self.is_packed and not self.is_full and not self.in_rows and self.mask.device.type == "cpu"

    @property
    def offsets(self) -> Tensor:
        """Flat index of each packed sequence's first token, for an empty one the next one's; and N (`[b + 1]`)."""
        return remember(self.memo, "offsets", lambda: torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)))

    @property
    def starts(self) -> Tensor:
        """Flat index of each packed sequence's first token (`[b]`)."""
        return self.memo["starts"] if self.in_rows else self.offsets[:-1]

    @property
    def stops(self) -> Tensor:
        """Flat index after each packed sequence's last token (`[b]`)."""
        return remember(self.memo, "stops", lambda: self.starts + self.lengths) if self.in_rows else self.offsets[1:]

    def first(self, tokens: Tensor) -> Tensor:
        """The first real token of each sequence (`[N, d]` to `[b, d]`); any finite state for an empty one."""
        if not self.is_packed:
            b, n = self.mask.shape
            return tokens[self.mask.int().argmax(1) + torch.arange(b, device=tokens.device) * n]
        if not len(tokens):
            return tokens.new_zeros(len(self.lengths), *tokens.shape[1:])
        return tokens[self.starts.clamp(max=len(tokens) - 1)]

    def mean(self, tokens: Tensor) -> Tensor:
        """Mean over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        # In half precision the sum and the length of a long text overflow.
        wide = at_least_float32(tokens.dtype)
        if self.is_ragged:
            return self._bags(tokens.to(wide), "mean").to(tokens.dtype)
        if self.is_full:
            mean = self._over_full_rows(torch.mean, tokens, dtype=wide)
            return mean if wide == tokens.dtype else mean.to(tokens.dtype)
        rows = self.to_rows(tokens)
        if self.column_index is None or self.in_rows:
            # Packed, they have zeros there.
            rows = rows.masked_fill(~self.row_mask[..., None], 0)
        return (rows.sum(1, dtype=wide) / self.lengths.clamp(min=1)[:, None]).to(tokens.dtype)

    def max(self, tokens: Tensor) -> Tensor:
        """Maximum over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        if self.is_ragged:
            return self._bags(tokens, "max")
        if self.is_full:
            return self._over_full_rows(torch.amax, tokens)
        rows = self.to_rows(tokens)
        rows = rows.masked_fill(~self.row_mask[..., None], torch.finfo(tokens.dtype).min)
        return self.zero_empty(rows.amax(1))

    def _over_full_rows(self, reduce: Callable[..., Tensor], tokens: Tensor, **options: Any) -> Tensor:
        """One vector for each row of a batch without padding (`[N, d]` to `[b, d]`)."""
        if len(self.mask) == 1:
            return reduce(tokens, dim=0, keepdim=True, **options)
        return reduce(self.to_rows(tokens), dim=1, **options)

    def _bags(self, tokens: Tensor, mode: str) -> Tensor:
        """Each sequence as a bag of embeddings (`[N, d]` to `[b, d]`), without a copy."""
        index = remember(self.memo, "tokens", lambda: torch.arange(len(tokens), device=tokens.device))
        return torch.nn.functional.embedding_bag(index, tokens, self.starts, mode=mode)

    def shifted(self, tokens: Tensor, offset: int) -> Tensor:
        """
        For each token the value of the one `offset` places later in its sequence, earlier if negative (`[N, ...]`).

        Where `has_shifted` is false, it is the value of any other token.
        """
        if self.column_index is not None:
            # The tokens of a sequence follow one another.
            return tokens.roll(-offset, 0)
        if offset == 0:
            return tokens
        index = step = self.right if offset > 0 else self.left
        for _ in range(abs(offset) - 1):
            index = step[index]
        return tokens[index]

    def windows(self, values: Tensor, first: int, last: int) -> Tensor:
        """
        The values from `first` to `last` places after each token, `[N]` or `[N, k]` to `[N, (last - first + 1) k]`, as
        `shifted` gives them; 0 beyond the ends of a packed batch.
        """
        if self.column_index is None or not len(values):
            places = [self.shifted(values, offset) for offset in range(first, last + 1)]
            return torch.stack(places, dim=1).flatten(1)
        k = math.prod(values.shape[1:])
        flat = torch.nn.functional.pad(values.reshape(-1), (max(-first, 0) * k, max(last, 0) * k))
        return flat.unfold(0, (last - first + 1) * k, k)

    def fits(self, longest: int) -> Tensor:
        """`has_shifted` of 1 to `longest` - 1 (`[N, longest - 1]`)."""

        def make() -> Tensor:
            offsets = torch.arange(1, longest, device=self.position.device)
            inside = self.position[:, None] + offsets < self.lengths[self.sequence_index][:, None]
            return inside if self.is_packed else inside & self.mask.reshape(-1, 1)

        return remember(self.memo, ("fits", longest), make)

    def has_shifted(self, offset: int) -> Tensor:
        """Whether a token is real and its sequence has one `offset` places later (`[N]`, bool)."""
        place = self.position + offset
        inside = (place >= 0) & (place < self.lengths[self.sequence_index])
        return inside if self.column_index is not None else inside & self.mask.flatten()

    def is_continuation(self, continues: Tensor, alone: Tensor) -> Tensor:
        """
        Whether each token continues the word of the token before it (`[N]`, bool).

        Args:
            continues: tokens whose entry continues a word (`[N]`, bool).
            alone: tokens that no word reaches across (`[N]`, bool): special and added ones.
        """
        return continues & self.has_shifted(-1) & ~self.shifted(alone, -1)

    def ring(self, radius: int) -> Tensor:
        """
        Flat indices of each token's ring neighbours, from `radius` places before it to as many after it.

        Returns:
            `[2 radius + 1, N]`, the token itself in the middle.
        """
        if self.is_packed:
            place = self.position + torch.arange(-radius, radius + 1, device=self.position.device)[:, None]
            length = self.lengths[self.sequence_index]
            length = length.clamp(min=1) if self.in_rows else length  # the padding of an empty sequence
            return self.starts[self.sequence_index] + place.remainder(length)
        itself = torch.arange(self.left.shape[0], device=self.left.device)  # len() would fix the exported size
        before, after = [itself], [itself]
        for step in range(radius):
            before.append(self.left[before[-1]] if step else self.left)
            after.append(self.right[after[-1]] if step else self.right)
        return torch.stack([*before[:0:-1], *after])

    def blocks(self, radius: int, closed: bool) -> "list[CPUBlock]":
        """
        All tokens in consecutive blocks. On a CPU a block has TOKENS_AT_ONCE tokens or some more for each thread;
        elsewhere, and padded, there is one.

        Args:
            radius: how many neighbours on either side a token attends to.
            closed: these are neighbours on the ring; otherwise sequences have ends.
        """
        single = not self.is_packed or self.position.device.type != "cpu"
        size = 0 if single else max(TOKENS_AT_ONCE, radius) * torch.get_num_threads()
        if single or len(self.position) < 2 * size:  # len() would fix the size of what is exported
            return remember(self.memo, ("block", radius, closed), lambda: self._one_block(radius, closed))
        count = len(self.position)
        edges = [i * size for i in range(count // size)] + [count]
        ring, starts = self.ring(radius) if closed and radius else None, self.starts
        return [self._block(start, stop, radius, closed, ring, starts) for start, stop in itertools.pairwise(edges)]

    def _one_block(self, radius: int, closed: bool) -> "list[CPUBlock]":
        make_index = functools.partial(self.ring, radius) if closed and radius else None
        return [CPUBlock(slice(None), slice(None), radius, closed, make_index, alone=True)]

    def _block(
        self, start: int, stop: int, radius: int, closed: bool, ring: Tensor | None, starts: Tensor
    ) -> "CPUBlock":
        first, last = int(self.sequence_index[start]), int(self.sequence_index[stop - 1])
        block = functools.partial(CPUBlock, slice(start, stop), slice(first, last + 1), radius, closed, alone=False)
        if ring is None:
            return block(make_index=None)
        ring = ring[:, start:stop]
        if first == last and int(ring[0, 0]) == start - radius and int(ring[-1, -1]) == stop - 1 + radius:
            return block(make_index=None)

        def make_index() -> Tensor:
            # Rows of `around`: the tokens before, the block's own, the tokens after, and the two far ends, where the
            # ring of a sequence closes that begins before this block, or continues after it.
            index = ring - (start - radius)
            ends = stop - start + 2 * radius
            from_first = ends + ring - int(starts[first])
            from_last = ends + 2 * radius + ring - int(starts[last] + self.lengths[last])
            return torch.where(index < 0, from_first, torch.where(index >= ends, from_last, index))

        return block(make_index=make_index)

    def around(self, tokens: Tensor, pieces: list[Tensor], blocks: "list[CPUBlock]") -> Iterator[Tensor]:
        """
        For each block the rows that its tokens' neighbours are among, the block's own too.

        Args:
            tokens: `[N, d]`.
            pieces: the tokens of each block, `[M, d]`, `CPUBlock.split`.
            blocks: as `blocks` makes them.

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
            first, last = self.ends(radius)
            heads, tails = tokens[first], tokens[last]
        for number, block in enumerate(blocks):
            rows = [pieces[number - 1][-radius:], pieces[number], pieces[(number + 1) % len(pieces)][:radius]]
            if closed:
                rows += [heads[block.sequences.start], tails[block.sequences.stop - 1]]
            yield torch.cat(rows)

    @property
    def chunks(self) -> tuple[int, int]:
        """Tokens of a chunk, and the chunks that the longest packed sequence has."""
        return TOKENS_OF_CHUNK, -(-self.max_length // TOKENS_OF_CHUNK)

    def ends(self, count: int) -> tuple[Tensor, Tensor]:
        """Flat indices of each sequence's first and last `count` tokens (`[b, count]` each); any if it has fewer."""
        limit = max(len(self.position) - 1, 0)
        first = self.starts[:, None] + torch.arange(count, device=self.lengths.device)
        last = first + self.lengths[:, None] - count
        return first.clamp(max=limit), last.clamp(0, limit)

    def zero_empty(self, states: Tensor) -> Tensor:
        """Zeros in the rows of `states` (`[b, ...]`) whose sequence has no real token."""
        if self.is_full:
            return states
        empty = (self.lengths == 0).reshape(-1, *(1 for _ in states.shape[1:]))
        return states.masked_fill(empty, 0)


@dataclass(frozen=True)
class CPUBlock:
    """
    Some consecutive flat tokens, and where their neighbours are.

    Args:
        tokens (`slice`): which tokens, M of the N.
        sequences (`slice`): the sequences that they belong to.
        radius (`int`): how many neighbours on either side a token attends to.
        closed (`bool`): these are neighbours on the ring.
        make_index (`Callable`, or `None`): returns the rows of `TokenLayout.around` that hold the ring neighbours
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
        return None if self.make_index is None else remember(self.memo, "index", self.make_index)

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
        """The block's own of the rows of `TokenLayout.around`, `[R, ...]` to `[M, ...]`."""
        return rows if self.alone else rows[self.radius : self.radius + self.tokens.stop - self.tokens.start]

    def neighbours(self, rows: Tensor, layout: TokenLayout) -> list[Tensor]:
        """
        For each place from `-radius` to `radius` what the token there has, seen from each token of the block.

        Args:
            rows: what the rows of `TokenLayout.around` have, `[R, ...]`.
            layout: where all tokens lie.

        Returns:
            2 radius + 1 of `[M, ...]`. Off the ring, anything finite where `has_shifted` is false.
        """
        if self.index is not None:
            places = [rows.index_select(0, index) for index in self.index]
            places[self.radius] = self.own(rows)
            return places
        if not self.closed and not layout.is_packed:
            return [layout.shifted(rows, offset) for offset in range(-self.radius, self.radius + 1)]
        if not self.closed and self.alone:
            rows = torch.nn.functional.pad(rows, (0, 0) * (rows.dim() - 1) + (self.radius, self.radius))
        count = rows.shape[0] - (4 if self.closed else 2) * self.radius  # len() would fix it in a traced graph
        return [rows[place : place + count] for place in range(2 * self.radius + 1)]

    def neighbour_index(self, count: int) -> Tensor:
        """
        Which of the rows of `TokenLayout.around` hold each token's neighbours, itself in the middle.

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


def _full_layout(b: int, n: int, device: torch.device) -> TokenLayout:
    token = torch.arange(b * n, device=device)
    position, sequence_index = token % n, token // n
    lengths = torch.full((b,), n, device=device)
    mask = torch.ones((b, n), dtype=torch.bool, device=device)
    return TokenLayout(mask, lengths, sequence_index, position, None, None, token, n)


_kept_full_layout = constant(_full_layout)


def _packed_layout(mask: Tensor) -> TokenLayout:
    lengths = mask.sum(1)
    column_index = mask.flatten().nonzero().squeeze(1)
    sequence_index = column_index // max(mask.shape[1], 1)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    position = torch.arange(len(column_index), device=mask.device) - offsets[sequence_index]
    # At least one place per row: an empty row is padding.
    max_length = max(int(lengths.max()), 1)
    memo: Memo = {"offsets": offsets}
    return TokenLayout(mask, lengths, sequence_index, position, None, None, column_index, max_length, False, memo)


def _layout_in_rows(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths, rank = mask.sum(1), mask.cumsum(1)  # real tokens up to each column
    columns, starts = torch.arange(n, device=mask.device), torch.arange(b, device=mask.device) * n
    place = torch.where(mask, rank - 1, lengths[:, None] + columns - rank)
    place = (starts[:, None] + place).flatten()
    flat = torch.arange(b * n, device=mask.device)
    column_index = torch.empty_like(flat).index_copy(0, place, flat)
    memo: Memo = {"starts": starts, "place": place}
    return TokenLayout(mask, lengths, flat // n, flat % n, None, None, column_index, n, True, memo)


def _padded_layout(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths = mask.sum(1)
    rank = mask.cumsum(1) - 1
    columns = torch.arange(n, device=mask.device).expand(b, n)
    # column_of_rank[i, r] is the column of the r-th real token; padding writes into the additional place n.
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
