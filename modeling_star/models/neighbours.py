"""
The tokens around a token: on the ring of its sequence, or before and after it up to the ends.

In a sequence a b c d, the token a has within a radius of 1 the neighbours d a b on the ring, which closes at the real
ends, and otherwise a b, since nothing comes before it. Functions that read past an end return any token there;
`has_shifted` says where that is.

Axes: N flat tokens
"""

import functools
import math

import torch
from torch import Tensor

from .token_layout import TokenLayout, get_or_compute


def shifted(layout: TokenLayout, tokens: Tensor, offset: int) -> Tensor:
    """
    For each token the value of the one `offset` tokens later in its sequence, earlier if negative (`[N, ...]`).

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
    """Whether a token is real and its sequence has one `offset` tokens later (`[N]`, bool)."""
    position = layout.position + offset
    inside = (position >= 0) & (position < layout.lengths[layout.sequence_index])
    return inside if layout.column_index is not None else inside & layout.mask.flatten()


def windows(layout: TokenLayout, values: Tensor, first: int, last: int) -> Tensor:
    """
    The values of the tokens from `first` to `last` after each, `[N]` or `[N, k]` to `[N, (last - first + 1) k]`, as
    `shifted` gives them; 0 beyond the ends of a packed batch.
    """
    if layout.column_index is None or not len(values):
        values_at = [shifted(layout, values, offset) for offset in range(first, last + 1)]
        return torch.stack(values_at, dim=1).flatten(1)
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
    Flat indices of each token's ring neighbours, from `radius` tokens before it to as many after it.

    Returns:
        `[2 radius + 1, N]`, the token itself in the middle.
    """
    if layout.is_packed:
        return neighbour_index(layout, radius, closed=True)
    itself = torch.arange(layout.left.shape[0], device=layout.left.device)  # len() would fix the exported size
    before, after = [itself], [itself]
    for step in range(radius):
        before.append(layout.left[before[-1]] if step else layout.left)
        after.append(layout.right[after[-1]] if step else layout.right)
    return torch.stack([*before[:0:-1], *after])


def neighbours(layout: TokenLayout, tokens: Tensor, radius: int, closed: bool) -> list[Tensor]:
    """
    For each offset from `-radius` to `radius` what the token there has, seen from each token.

    Args:
        layout: where the tokens lie.
        tokens: `[N, ...]`.
        radius: how many neighbours on either side.
        closed: these are neighbours on the ring; otherwise sequences have ends.

    Returns:
        2 radius + 1 of `[N, ...]`. Off the ring, any token of the sequence where `has_shifted` is false.
    """
    if not layout.is_packed and not closed:
        return [shifted(layout, tokens, offset) for offset in range(-radius, radius + 1)]
    if not radius:
        return [tokens]
    make = ring_neighbours if closed else functools.partial(neighbour_index, closed=False)
    index = get_or_compute(layout.memo, ("neighbours", radius, closed), lambda: make(layout, radius))
    return [tokens.index_select(0, each) if offset else tokens for offset, each in enumerate(index, start=-radius)]


def neighbour_index(layout: TokenLayout, radius: int, closed: bool) -> Tensor:
    """
    As `neighbours`, of packed tokens: the flat indices `[2 radius + 1, N]`. Beyond an end it is the token there: what
    another sequence holds may be no number, and 0 times that is none either.
    """
    position = layout.position + torch.arange(-radius, radius + 1, device=layout.position.device)[:, None]
    length = layout.lengths[layout.sequence_index]
    length = length.clamp(min=1) if layout.in_rows else length  # the padding of an empty sequence
    position = position.remainder(length) if closed else position.clamp(min=0).minimum(length - 1)
    return layout.starts[layout.sequence_index] + position
