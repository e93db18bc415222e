"""
Padded batches and flat tokens: results depend on neither.

A batch of two rows and four columns, of which some (`.`) are padding, is laid out in one of four ways. N tokens go
through the encoder; what a token needs to know of its sequence is in `sequence_index` and `position`.

    mask      a . b .        real tokens, right, left or between padding
              c d e .

    packed    a b c d e              N = 5      sequence_index  0 0 1 1 1
                                                position        0 1 0 1 2

    in rows   a b . .  c d e .       N = b n    the padding of a sequence follows its tokens: shapes do not depend on
                                                values, and kernels read the tokens as if packed (`fixed_shapes`)

    padded    a . b .  c d e .       N = b n    every column stays where it is; `left` and `right` lead from each token
                                                to its neighbours on the ring, past padding

    full      a b c d  e f g h       N = b n    packed, of a mask without padding: rows are views of the flat tokens

Packed is the usual layout, as padding costs nothing there and cannot reach a real token. In rows is that of CUDA
graphs. Padded is that of `torch.compile`, of export, and of recorded states `[b, n, d]`.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width
"""

import functools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor


# Tokens of the largest batch without padding whose layout is kept: some hundred kB each.
TOKENS_KEPT = 512


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


def cached_unless_traced(function: Callable[..., Constant]) -> Callable[..., Constant]:
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


def get_or_compute(memo: Memo, name: Hashable, make: Callable[[], Constant]) -> Constant:
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

    The tokens of a sequence are those of its real columns in order, and its ring closes at its real ends, in every
    layout and for any mask.

    Args:
        mask (`Tensor` of shape `[b, n]`, bool): real columns.
        lengths (`Tensor` of shape `[b]`): real tokens of each sequence.
        sequence_index, position (`Tensor` of shape `[N]`): the sequence of each token, and its index among the
            real tokens of that sequence.
        left, right (`Tensor` of shape `[N]`, or `None` when packed): flat indices of each token's ring neighbours.
        column_index (`Tensor` of shape `[N]`, or `None` when padded): index of each token among the b * n columns.
        max_length (`int`): m, the longest sequence (at least 1) when packed, n when padded or in rows.
        in_rows (`bool`): packed in rows. The position of padding is its index in the row.
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
        """How much of each row of `to_rows` holds its real tokens: b numbers; m each when padded or in rows."""
        if self.is_packed and not self.in_rows:
            return self.lengths.tolist()
        return [self.max_length] * len(self.mask)

    @property
    def _row_index(self) -> Tensor:
        """Index of each token among the b * m entries of right-padded rows (`[N]`)."""
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
            return tokens[self.memo["index_of_column"]].unflatten(0, (b, n)).masked_fill(padding, 0)
        columns = tokens.new_zeros((b * n, *tokens.shape[1:]))
        return columns.index_copy(0, self.column_index, tokens).unflatten(0, (b, n))

    def to_rows(self, tokens: Tensor) -> Tensor:
        """
        Flat tokens `[N, ...]` to a row for each sequence `[b, m, ...]`: real where `row_mask` is true, anything else
        where it is not.
        """
        b = self.mask.shape[0]
        if self.column_index is None or self.is_full or self.in_rows:
            return tokens.unflatten(0, self.mask.shape)
        rows = tokens.new_zeros((b * self.max_length, *tokens.shape[1:]))
        return rows.index_copy(0, self._row_index, tokens).unflatten(0, (b, self.max_length))

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
        return get_or_compute(self.memo, "offsets", lambda: torch.nn.functional.pad(self.lengths.cumsum(0), (1, 0)))

    @property
    def starts(self) -> Tensor:
        """Flat index of each packed sequence's first token (`[b]`)."""
        return self.memo["starts"] if self.in_rows else self.offsets[:-1]

    @property
    def stops(self) -> Tensor:
        """Flat index after each packed sequence's last token (`[b]`)."""
        return (
            get_or_compute(self.memo, "stops", lambda: self.starts + self.lengths)
            if self.in_rows
            else self.offsets[1:]
        )

    def first(self, tokens: Tensor) -> Tensor:
        """The first real token of each sequence (`[N, d]` to `[b, d]`); any finite state for an empty one."""
        if not self.is_packed:
            b, n = self.mask.shape
            return tokens[self.mask.int().argmax(1) + torch.arange(b, device=tokens.device) * n]
        if not len(tokens):
            return tokens.new_zeros(len(self.lengths), *tokens.shape[1:])
        return tokens[self.starts.clamp(max=len(tokens) - 1)]

    def replace_first(self, tokens: Tensor, first: Tensor) -> Tensor:
        """
        Other states for the tokens that are the first of their sequence.

        Args:
            tokens: `[N, d]`; changed in place where no gradient is recorded.
            first: `[b, d]`.
        """
        if not self.is_packed:
            return torch.where((self.position == 0)[:, None], first[self.sequence_index], tokens)
        index = self.starts
        if not (self.is_full or self.in_rows):  # not of empty sequences
            index, first = index[self.lengths > 0], first[self.lengths > 0]
        copy = tokens.index_copy if torch.is_grad_enabled() else tokens.index_copy_
        return copy(0, index, first.to(tokens.dtype))

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
            return self._segment_maxima(tokens)
        if self.is_full:
            return self._over_full_rows(torch.amax, tokens)
        rows = self.to_rows(tokens)
        return self.zero_empty(rows.masked_fill(~self.row_mask[..., None], -torch.inf).amax(1))

    def _segment_maxima(self, tokens: Tensor) -> Tensor:
        """
        `max` of each sequence without a copy in rows; the largest of equal tokens share its gradient.

        A bag of embeddings hides a NaN after a number, and the backward of segment_reduce multiplies negative
        gradients by how many tokens are equal (torch 2.13).
        """
        values = tokens.detach()
        largest = self.zero_empty(torch.segment_reduce(values, "max", offsets=self.offsets, unsafe=True))
        if not (torch.is_grad_enabled() and tokens.requires_grad):
            return largest
        wide = at_least_float32(tokens.dtype)
        is_largest = (values == largest[self.sequence_index]).to(wide)
        share = is_largest / self._bags(is_largest, "sum").clamp(min=1)[self.sequence_index]
        sums = self._bags(tokens.to(wide) * share, "sum").to(tokens.dtype)
        return largest + (sums - sums.detach())

    def _bags(self, tokens: Tensor, mode: str) -> Tensor:
        """Each sequence as a bag of embeddings (`[N, d]` to `[b, d]`), without a copy."""
        index = get_or_compute(self.memo, "tokens", lambda: torch.arange(len(tokens), device=tokens.device))
        return torch.nn.functional.embedding_bag(index, tokens, self.starts, mode=mode)

    def _over_full_rows(self, reduce: Callable[..., Tensor], tokens: Tensor, **options: Any) -> Tensor:
        """One vector for each row of a batch without padding (`[N, d]` to `[b, d]`)."""
        if len(self.mask) == 1:
            return reduce(tokens, dim=0, keepdim=True, **options)
        return reduce(self.to_rows(tokens), dim=1, **options)

    def zero_empty(self, states: Tensor) -> Tensor:
        """Zeros in the rows of `states` (`[b, ...]`) whose sequence has no real token."""
        if self.is_full:
            return states
        empty = (self.lengths == 0).reshape(-1, *(1 for _ in states.shape[1:]))
        return states.masked_fill(empty, 0)


def _full_layout(b: int, n: int, device: torch.device) -> TokenLayout:
    token = torch.arange(b * n, device=device)
    position, sequence_index = token % n, token // n
    lengths = torch.full((b,), n, device=device)
    mask = torch.ones((b, n), dtype=torch.bool, device=device)
    return TokenLayout(mask, lengths, sequence_index, position, None, None, token, n)


_kept_full_layout = cached_unless_traced(_full_layout)


def _packed_layout(mask: Tensor) -> TokenLayout:
    lengths = mask.sum(1)
    column_index = mask.flatten().nonzero().squeeze(1)
    sequence_index = column_index // max(mask.shape[1], 1)
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0))
    position = torch.arange(len(column_index), device=mask.device) - offsets[sequence_index]
    # At least one column: an empty row is padding.
    max_length = max(int(lengths.max()), 1)
    memo: Memo = {"offsets": offsets}
    return TokenLayout(mask, lengths, sequence_index, position, None, None, column_index, max_length, False, memo)


def _layout_in_rows(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths, rank = mask.sum(1), mask.cumsum(1)  # real tokens up to each column
    columns, starts = torch.arange(n, device=mask.device), torch.arange(b, device=mask.device) * n
    # A real column goes to its rank, padding behind the real tokens: both in their order, a permutation of the row.
    index = torch.where(mask, rank - 1, lengths[:, None] + columns - rank)
    index = (starts[:, None] + index).flatten()
    flat = torch.arange(b * n, device=mask.device)
    column_index = torch.empty_like(flat).index_copy(0, index, flat)  # the inverse permutation
    memo: Memo = {"starts": starts, "index_of_column": index}
    return TokenLayout(mask, lengths, flat // n, flat % n, None, None, column_index, n, True, memo)


def _padded_layout(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths = mask.sum(1)
    rank = mask.cumsum(1) - 1
    columns = torch.arange(n, device=mask.device).expand(b, n)
    # column_of_rank[i, r] is the column of the r-th real token; padding writes into the additional
    # entry n, which nothing reads.
    rank_or_end = torch.where(mask, rank, n)
    column_of_rank = torch.zeros((b, n + 1), dtype=torch.long, device=mask.device).scatter(1, rank_or_end, columns)
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
