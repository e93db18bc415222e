"""
Padded batches and flat tokens: results depend on neither.

A batch of two rows and four columns, of which some (`.`) are padding, is laid out in one of two ways. N tokens go
through the encoder; what a token needs to know of its sequence is in `sequence_index` and `position`.

    mask      a . b .        real tokens, right, left or between padding
              c d e .

    packed    a b c d e              N = 5      sequence_index  0 0 1 1 1
                                                position        0 1 0 1 2

    in rows   a b .  c d e           N = b m    the padding of a sequence follows its tokens, in a row as long as the
                                                longest sequence, or as all columns: no shape depends on a value

Packed is the usual layout, as padding costs nothing there and cannot reach a real token. In rows is that of a batch
without padding, whose rows are views of the flat tokens, of `torch.compile`, export and CUDA graphs, and of recorded
attentions. In both, the tokens of a sequence follow one another.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width
"""

import functools
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad


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
    checked, and padding is computed. A graph reads the shared `constants` for as long as it is used.
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
        lengths, starts (`Tensor` of shape `[b]`): real tokens of each sequence, and the flat index of its first one;
            when packed, that of an empty sequence is the next one's.
        sequence_index, position (`Tensor` of shape `[N]`): the sequence of each token, and its index among the
            real tokens of that sequence; of padding, its index in the row.
        max_length (`int`): m, tokens of the longest sequence (at least 1), or of a row.
        in_rows (`bool`): not packed.
        column_index (`Tensor` of shape `[N]`): index of each token among the b * n columns; `None` where they are the
            same.
        token_index (`Tensor` of shape `[b, n]`): in rows, the flat index of each real column; `None` likewise.
        memo (`Memo`): what is derived from the layout, for all layers of a forward pass.
    """

    mask: Tensor
    lengths: Tensor
    starts: Tensor
    sequence_index: Tensor
    position: Tensor
    max_length: int
    in_rows: bool
    column_index: Tensor | None = None
    token_index: Tensor | None = None
    memo: Memo = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def full(cls, b: int, n: int, device: torch.device) -> "TokenLayout":
        """
        The layout of a batch without padding. Those of small batches are kept, with all that is derived from them,
        since the time of a short text is that of starting operations.
        """
        is_kept = not is_traced() and b * n <= TOKENS_KEPT
        return (_kept_full_layout if is_kept else _full_layout)(b, n, device)

    @classmethod
    def from_mask(cls, mask: Tensor, keep_padding: bool) -> "TokenLayout":
        """Lay out the tokens of `mask` (`[b, n]`, bool), packed, or in rows with `keep_padding` and fixed shapes."""
        return _layout_in_rows(mask) if keep_padding or is_fixed() else _packed_layout(mask)

    @property
    def is_full(self) -> bool:
        """There is no padding: rows and columns are the flat tokens under another shape."""
        return self.column_index is None

    @property
    def is_ragged(self) -> bool:
        """Packed sequences of several lengths on a CPU, where torch has sums over parts of a tensor for them."""
        return not self.in_rows and self.mask.device.type == "cpu"

    @property
    def row_mask(self) -> Tensor:
        """Real tokens of `to_rows` (`[b, m]`, bool)."""
        return torch.arange(self.max_length, device=self.mask.device) < self.lengths[:, None]

    @property
    def row_extents(self) -> list[int]:
        """How much of each row of `to_rows` holds its real tokens: b numbers; m each in rows."""
        return [self.max_length] * len(self.mask) if self.in_rows else self.lengths.tolist()

    def pack(self, columns: Tensor) -> Tensor:
        """`[b, n, ...]` to flat tokens `[N, ...]`."""
        flat = columns.flatten(0, 1)
        return flat if self.column_index is None else flat[self.column_index]

    def unpack(self, tokens: Tensor) -> Tensor:
        """Flat tokens `[N, ...]` to `[b, n, ...]`, zeros at padding."""
        if self.column_index is None:
            return tokens.unflatten(0, self.mask.shape)
        if self.token_index is not None:
            padding = ~self.mask.reshape(*self.mask.shape, *(1 for _ in tokens.shape[1:]))
            return tokens[self.token_index].masked_fill(padding, 0)
        columns = tokens.new_zeros((self.mask.numel(), *tokens.shape[1:]))
        return columns.index_copy(0, self.column_index, tokens).unflatten(0, self.mask.shape)

    def to_rows(self, tokens: Tensor) -> Tensor:
        """
        Flat tokens `[N, ...]` to a row for each sequence `[b, m, ...]`: real where `row_mask` is true, anything else
        where it is not.
        """
        b, m = self.mask.shape[0], self.max_length  # len() would fix the exported size
        if self.in_rows:
            return tokens.unflatten(0, (b, m))
        rows = tokens.new_zeros((b * m, *tokens.shape[1:]))
        return rows.index_copy(0, self._row_index, tokens).unflatten(0, (b, m))

    def from_rows(self, rows: Tensor) -> Tensor:
        """Rows `[b, m, ...]` as `to_rows` makes them, back to flat tokens `[N, ...]`."""
        flat = rows.flatten(0, 1)
        if is_traced():
            # Exported, a view that is unflattened again fails the check of a bound of n (torch 2.13).
            return flat.clone(memory_format=torch.contiguous_format)
        return flat if self.in_rows else flat[self._row_index]

    def rows_to_columns(self, rows: Tensor) -> Tensor:
        """Rows `[b, m, ...]` to `[b, n, ...]`, zeros at padding."""
        return self.unpack(self.from_rows(rows))

    @property
    def _row_index(self) -> Tensor:
        """Index of each token among the b * m entries of right-padded rows (`[N]`)."""
        return self.sequence_index * self.max_length + self.position

    @property
    def offsets(self) -> Tensor:
        """Flat index of each sequence's first token, without padding between them, and N (`[b + 1]`)."""
        return get_or_compute(self.memo, "offsets", lambda: pad(self.lengths.cumsum(0), (1, 0)))

    @property
    def stops(self) -> Tensor:
        """Flat index after each sequence's last token (`[b]`)."""
        return get_or_compute(self.memo, "stops", lambda: self.starts + self.lengths)

    def first(self, tokens: Tensor) -> Tensor:
        """The first real token of each sequence (`[N, d]` to `[b, d]`); any finite state for an empty one."""
        if self.in_rows:
            return tokens[self.starts]
        if not len(tokens):
            return tokens.new_zeros(len(self.lengths), *tokens.shape[1:])
        return tokens[self.starts.clamp(max=len(tokens) - 1)]

    def replace_first(self, tokens: Tensor, first: Tensor) -> Tensor:
        """Other states `[b, d]` for the first token of each sequence, in place where no gradient is recorded."""
        index = self.starts
        if not self.in_rows:  # not of empty sequences
            index, first = index[self.lengths > 0], first[self.lengths > 0]
        copy = tokens.index_copy if torch.is_grad_enabled() else tokens.index_copy_
        return copy(0, index, first.to(tokens.dtype))

    def mean(self, tokens: Tensor) -> Tensor:
        """Mean over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        # In half precision the sum and the length of a long text overflow.
        wide = at_least_float32(tokens.dtype)
        if self.is_ragged:
            return self._bags(tokens.to(wide), "mean").to(tokens.dtype)
        rows = self.to_rows(tokens)
        if self.is_full:
            return rows.mean(1, dtype=wide).to(tokens.dtype)
        rows = rows.masked_fill(~self.row_mask[..., None], 0)
        return (rows.sum(1, dtype=wide) / self.lengths.clamp(min=1)[:, None]).to(tokens.dtype)

    def max(self, tokens: Tensor) -> Tensor:
        """Maximum over the real tokens of each sequence (`[N, d]` to `[b, d]`); zeros for an empty one."""
        if self.is_ragged:
            return self._segment_maxima(tokens)
        rows = self.to_rows(tokens)
        if self.is_full:
            return rows.amax(1)
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
        return embedding_bag(index, tokens, self.starts, mode=mode)

    def zero_empty(self, states: Tensor) -> Tensor:
        """Zeros in the rows of `states` (`[b, ...]`) whose sequence has no real token."""
        if self.is_full:
            return states
        empty = (self.lengths == 0).reshape(-1, *(1 for _ in states.shape[1:]))
        return states.masked_fill(empty, 0)


def _full_layout(b: int, n: int, device: torch.device) -> TokenLayout:
    token = torch.arange(b * n, device=device)
    lengths, starts = torch.full((b,), n, device=device), torch.arange(b, device=device) * n
    mask = torch.ones((b, n), dtype=torch.bool, device=device)
    return TokenLayout(mask, lengths, starts, token // n, token % n, n, in_rows=True)


_kept_full_layout = cached_unless_traced(_full_layout)


def _packed_layout(mask: Tensor) -> TokenLayout:
    lengths = mask.sum(1)
    column_index = mask.flatten().nonzero().squeeze(1)
    if len(column_index) == mask.numel():
        return TokenLayout.full(mask.shape[0], mask.shape[1], mask.device)
    sequence_index = column_index // mask.shape[1]
    offsets = pad(lengths.cumsum(0), (1, 0))
    position = torch.arange(len(column_index), device=mask.device) - offsets[sequence_index]
    # At least one column: an empty row is padding.
    max_length = max(int(lengths.max()), 1)
    memo: Memo = {"offsets": offsets}
    return TokenLayout(
        mask, lengths, offsets[:-1], sequence_index, position, max_length, False, column_index, memo=memo
    )


def _layout_in_rows(mask: Tensor) -> TokenLayout:
    b, n = mask.shape
    lengths, rank = mask.sum(1), mask.cumsum(1)  # real tokens up to each column
    m = n if is_fixed() else max(int(lengths.max()), 1)
    columns, row = torch.arange(n, device=mask.device), torch.arange(b, device=mask.device)
    # A real column goes to its rank, padding behind the real tokens: both in their order, a permutation of the row.
    place = torch.where(mask, rank - 1, lengths[:, None] + columns - rank)
    column_of_place = torch.zeros_like(place).scatter(1, place, columns.expand(b, n))  # the inverse permutation
    column_index = (row[:, None] * n + column_of_place[:, :m]).flatten()
    token_index = row[:, None] * m + (place if m == n else place.clamp(max=m - 1))
    # Expanded, not divided by m: ONNX has no such operation where m is no number (torch 2.13).
    sequence_index, position = row[:, None].expand(b, m).flatten(), columns[:m].expand(b, m).flatten()
    return TokenLayout(mask, lengths, row * m, sequence_index, position, m, True, column_index, token_index)


# ------ the tokens around a token: on the ring of its sequence, or before and after it up to the ends
#
# In a sequence a b c d, the token a has within a radius of 1 the neighbours d a b on the ring, which closes at the
# real ends, and otherwise a b, since nothing comes before it. Functions that read past an end return any token there;
# `has_shifted` says where that is.


def shifted(tokens: Tensor, offset: int) -> Tensor:
    """
    For each token the value of the one `offset` tokens later in its sequence, earlier if negative (`[N, ...]`).

    Where `has_shifted` is false, it is the value of any other token.
    """
    return tokens.roll(-offset, 0) if offset else tokens


def has_shifted(layout: TokenLayout, offset: int) -> Tensor:
    """Whether a token is real and its sequence has one `offset` tokens later (`[N]`, bool)."""
    first, last = layout.position + min(offset, 0), layout.position + max(offset, 0)
    return (first >= 0) & (last < layout.lengths[layout.sequence_index])


def windows(values: Tensor, first: int, last: int) -> Tensor:
    """
    The values of the tokens from `first` to `last` after each, `[N]` or `[N, k]` to `[N, (last - first + 1) k]`, as
    `shifted` gives them; any beyond the ends of the batch.
    """
    if is_traced() or not len(values):
        return torch.stack([shifted(values, offset) for offset in range(first, last + 1)], dim=1).flatten(1)
    k = prod(values.shape[1:])
    flat = pad(values.reshape(-1), (max(-first, 0) * k, max(last, 0) * k))
    return flat.unfold(0, (last - first + 1) * k, k)


def words_end_inside(layout: TokenLayout, longest: int) -> Tensor:
    """
    Whether words of 2 to `longest` tokens that start at each token end in its sequence (`[N, longest - 1]`, bool):
    `has_shifted` of 1 to `longest` - 1.
    """

    def make() -> Tensor:
        offsets = torch.arange(1, longest, device=layout.position.device)
        return layout.position[:, None] + offsets < layout.lengths[layout.sequence_index][:, None]

    return get_or_compute(layout.memo, ("words_end_inside", longest), make)


def is_continuation(layout: TokenLayout, continues: Tensor, alone: Tensor) -> Tensor:
    """
    Whether each token continues the word of the token before it (`[N]`, bool), by the tokens whose entry continues a
    word, and those that no word reaches across: special and added ones.
    """
    return continues & has_shifted(layout, -1) & ~shifted(alone, -1)


def neighbours(layout: TokenLayout, tokens: Tensor, radius: int, closed: bool) -> list[Tensor]:
    """
    For each offset from `-radius` to `radius` what the token there has, seen from each token, `[N, ...]` each.
    Sequences are rings if `closed`; otherwise it is any token of the sequence where `has_shifted` is false.
    """
    if not radius:
        return [tokens]
    make = functools.partial(neighbour_index, layout, radius, closed)
    index = get_or_compute(layout.memo, ("neighbours", radius, closed), make)
    return [tokens.index_select(0, each) if offset else tokens for offset, each in enumerate(index, start=-radius)]


def neighbour_index(layout: TokenLayout, radius: int, closed: bool) -> Tensor:
    """
    As `neighbours`: the flat indices `[2 radius + 1, N]`. Beyond an end it is the token there: what another sequence
    holds may be no number, and 0 times that is none either.
    """
    position = layout.position + torch.arange(-radius, radius + 1, device=layout.position.device)[:, None]
    length = layout.lengths[layout.sequence_index]
    length = length.clamp(min=1) if layout.in_rows else length  # the padding of an empty sequence
    position = position.remainder(length) if closed else position.clamp(min=0).minimum(length - 1)
    return layout.starts[layout.sequence_index] + position
