"""
An activation, a residual connection and a LayerNorm in one Triton kernel, forward only: `UpdateLayerNorm`.
triton_utils.py describes what all kernels have in common.

Axes: N rows  d width
"""

import torch
from torch import Tensor

from .triton_utils import TYPES, launch, load, store, sum_type


try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("The kernels need Triton: pip install triton.") from error


# Numbers in the tile [rows, d] of one program.
TILE = 2048


@triton.jit(do_not_specialize=["count"])
def _update_norm(
    update, state, weight, bias, out, count, eps,
    WIDTH: tl.constexpr, ROW: tl.constexpr, RECTIFIED: tl.constexpr, TYPE: tl.constexpr, ROW_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """The rows that `update_norm` returns."""
    rows = tl.program_id(0).to(tl.int64) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)
    real = rows < count
    columns = tl.arange(0, WIDTH_BLOCK)
    x = load(update, rows, real, ROW, 0, columns, WIDTH, TYPE)
    if RECTIFIED:
        x = tl.where(x < 0.0, 0.0, x)
    if state is not None:
        x += load(state, rows, real, ROW, 0, columns, WIDTH, TYPE)
    inside = columns < WIDTH
    x = tl.where(inside[None, :], x - (tl.sum(x, axis=1) / WIDTH)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / WIDTH + eps)
    factor = tl.load(weight + columns, mask=inside, other=0.0).to(TYPE)
    added = tl.load(bias + columns, mask=inside, other=0.0).to(TYPE)
    store(out, rows, real, ROW, 0, columns, ROW, x * scale[:, None] * factor[None, :] + added[None, :])


def update_norm(
    update: Tensor, state: Tensor | None, weight: Tensor, bias: Tensor, eps: float, rectified: bool
) -> Tensor:
    """
    LayerNorm of `state + update` or `state + ReLU(update)`, `[N, D]`, D >= d; without gradients. Columns from d on,
    the width of weight and bias, are not read, and become zeros.
    """
    update, state = update.contiguous(), None if state is None else state.contiguous()
    out = torch.empty_like(update)
    count, row = update.shape
    block = triton.next_power_of_2(row)
    rows = max(1, TILE // block)
    if count:
        launch(
            _update_norm, triton.cdiv(count, rows), update, state, weight, bias, out, count, eps,
            WIDTH=len(weight), ROW=row, RECTIFIED=rectified, TYPE=TYPES[sum_type(update)], ROW_BLOCK=rows,
            WIDTH_BLOCK=block,
        )  # fmt: skip
    return out
