"""
Look-ups in a sorted list of keys, each of two numbers.

In a graph the two numbers are compared one after the other, so that every runtime of an exported graph finds the same:
some compute integers in 32 bits, and compare them in float32 (OpenVINO 2026.4), which is exact below 2^24.

Axes: P keys
"""

import torch
from torch import Tensor, nn

from .token_layout import is_traced


def find_key(
    keys: Tensor, base: int, first: Tensor, second: Tensor, pairs: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """
    The index of the last of the ascending keys `[P]`, `high * base + low` each, that is not larger than
    `first * base + second`, or 0, and whether it is equal. `base` is at most 2^24; `pairs` `[P, 2]`, the two numbers
    of each key, are needed where keys are above 2^31.
    """
    if is_traced():  # torch.searchsorted has no form in ONNX (torch 2.13)
        table = torch.stack([keys // base, keys % base], 1) if pairs is None else pairs
        index = binary_search(table, first, second)
        high, low = nn.functional.embedding(index, table).unbind(-1)
        return index, (high == first) & (low == second)
    wanted = (first * base + second).to(keys.dtype)
    index = (torch.searchsorted(keys, wanted, right=True) - 1).clamp(min=0)
    return index, keys[index] == wanted


def binary_search(table: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """
    The index of the last entry that is not larger than a pair, or 0: torch.searchsorted, written out. The `table` `[P,
    2]` is ascending by its first column, then by its second.
    """
    index, step = torch.zeros_like(first), 2 ** (len(table).bit_length() - 1)
    while step:
        probe = index + step
        high, low = nn.functional.embedding(probe.clamp(max=len(table) - 1), table).unbind(-1)
        is_before = (high < first) | ((high == first) & (low <= second))
        index = torch.where((probe < len(table)) & is_before, probe, index)
        step //= 2
    return index
