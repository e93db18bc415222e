"""
Products of hashes, such that every runtime of an exported graph computes the same.

Some compute integers in 32 bits, and remainders, quotients and comparisons of them in float32 (OpenVINO 2026.4), which
is exact below 2^24. So the numbers of a hash are below 2^16, and in a graph their products are made of smaller ones.
"""

import torch
from torch import Tensor

from .token_layout import is_traced


DIGIT = 2**12
"""Two digits of this base are a number below 2^24."""


def product(x: Tensor, y: Tensor, prime: Tensor | int, plus: Tensor | None = None) -> Tensor:
    """
    `(x * y + plus) % prime`.

    Args:
        x, y: of shapes that can be multiplied, from 0 to prime - 1.
        prime: below 2^16; in runtimes with 64 bits below 2^31.
        plus: from 0 to 2^23.
    """
    if not is_traced():
        return (x * y if plus is None else torch.addcmul(plus, x, y)) % prime
    high, low = y // 256, y % 256
    sums = x * high % prime * 256 % prime + x * low % prime
    return (sums if plus is None else sums + plus) % prime


def number(high: Tensor, low: Tensor) -> Tensor:
    """The number below 2^24 that has the remainders of two hashes as digits."""
    return torch.add(low % DIGIT, high % DIGIT, alpha=DIGIT)
