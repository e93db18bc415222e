"""
Helpers of the Triton kernels in triton_ring_attention.py and triton_relay_attention.py, which only
`models/ops.py` chooses.

All kernels have in common:

- Neighbours, relays and nodes are read through indices: the copies `[N, d]` that PyTorch's operations would gather
  never exist.
- Inputs are float16, bfloat16 or float32, sums float32. float64 works in Triton's interpreter, for the tests.
- Nothing is added atomically, so that the same input gives the same bits. Sums over a sequence have two stages: over
  chunks of TOKENS_OF_CHUNK of its tokens, one program each however long the sequence is, then over the chunks. Every
  sequence has as many as the longest one, the last of them empty: so nothing is counted before a kernel starts.
  Gradients from neighbours are gathered: a ring and a band are symmetric.
- Backward computes weights again from queries and keys: reading them costs as much as reading stored weights.
- Dropout draws from a counter (Philox), by token, head and role: backward draws the same again.

Axes: N flat tokens  b sequences  p chunks of tokens  h heads
"""

from typing import Any

import torch
from torch import Tensor

from ..models.token_layout import TokenLayout


try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("The kernels need Triton: pip install triton.") from error


@triton.jit
def load(pointer, rows, there, ROW: tl.constexpr, start, columns, WIDTH: tl.constexpr, TYPE: tl.constexpr):
    """WIDTH numbers of each row, from `start`, in memory of rows of ROW numbers; zeros where there is no row."""
    at = pointer + rows[:, None] * ROW + start + columns[None, :]
    return tl.load(at, mask=there[:, None] & (columns < WIDTH)[None, :], other=0.0).to(TYPE)


@triton.jit
def store(pointer, rows, there, ROW: tl.constexpr, start, columns, WIDTH: tl.constexpr, tile):
    """Counterpart of `load`."""
    at = pointer + rows[:, None] * ROW + start + columns[None, :]
    tl.store(at, tile.to(pointer.dtype.element_ty), mask=there[:, None] & (columns < WIDTH)[None, :])


@triton.jit
def dropout_factor(seed, offsets, dropout_p):
    """1 / (1 - p) where a weight is kept and 0 where it is dropped, always the same for the same offset."""
    return tl.where(tl.rand(seed, offsets) < dropout_p, 0.0, 1.0 / (1.0 - dropout_p))


@triton.jit
def chunk_at(starts, stops, number, per_sequence, CHUNK: tl.constexpr):
    """The first token of a chunk, the one after its last, and its sequence."""
    sequence = (number // per_sequence).to(tl.int64)
    start = tl.load(starts + sequence) + (number % per_sequence) * CHUNK
    return start, tl.minimum(start + CHUNK, tl.load(stops + sequence)), sequence


@triton.jit(do_not_specialize=["per_sequence"])
def sum_chunks(
    partial, weights, states, starts, stops, out, per_sequence,
    ROW: tl.constexpr, WIDTH: tl.constexpr, STATE: tl.constexpr, TYPE: tl.constexpr, CHUNK: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """
    Per sequence the sum over its chunks of the first WIDTH of ROW numbers; where they are given, and of its state
    [b, STATE] by its weights [b, WIDTH / STATE].
    """
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    sequence = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    length = tl.load(stops + sequence) - tl.load(starts + sequence)
    start = sequence * per_sequence
    stop = start + tl.cdiv(length, CHUNK)
    total = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    if weights is not None:
        inside = columns < WIDTH
        weight = tl.load(weights + sequence * (WIDTH // STATE) + columns // STATE, mask=inside, other=0.0)
        total += weight * tl.load(states + sequence * STATE + columns % STATE, mask=inside, other=0.0).to(TYPE)
    for first in range(start, stop, CHUNK_BLOCK):
        chunks = first + tl.arange(0, CHUNK_BLOCK).to(tl.int64)
        total += tl.sum(load(partial, chunks, chunks < stop, ROW, 0, columns, WIDTH, TYPE), axis=0)
    tl.store(out + sequence * WIDTH + columns, total.to(out.dtype.element_ty), mask=columns < WIDTH)


# Under TRITON_INTERPRET=1 the kernels run in Python, on a CPU too.
INTERPRETED = not isinstance(sum_chunks, triton.JITFunction)
# Tokens that one program sums up: a long sequence is distributed over many.
TOKENS_OF_CHUNK = 128
CHUNKS_AT_ONCE = 32
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64}


def sum_type(x: Tensor) -> torch.dtype:
    """Data type of sums over numbers like these."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def new_seed(dropout_p: float) -> int:
    """
    The seed of dropout, from the CPU's generator: nothing waits for the GPU, and torch.manual_seed and gradient
    checkpointing apply to it.
    """
    return int(torch.randint(2**31 - 1, (), device="cpu")) if dropout_p > 0 else 0


def launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Run a kernel on the GPU of its first argument, which may not be the current one."""
    with torch.cuda.device_of(arguments[0]):
        kernel[(programs,)](*arguments, **constants)


def chunks_of(layout: TokenLayout) -> tuple[int, dict[str, Any]]:
    """Number of chunks p, and the arguments of `chunk_at` by which a kernel finds its tokens."""
    size, per_sequence = TOKENS_OF_CHUNK, -(-layout.max_length // TOKENS_OF_CHUNK)
    bounds = {"starts": layout.starts, "stops": layout.stops, "per_sequence": per_sequence, "CHUNK": size}
    return len(layout.lengths) * per_sequence, bounds


def summed_over_chunks(
    partial: Tensor, layout: TokenLayout, out: Tensor, weights: Tensor | None = None, states: Tensor | None = None
) -> Tensor:
    """
    `out` `[b, ...]`: of each sequence the sum of its chunks' first numbers in `partial` `[p, ...]`, to which `weights`
    `[b, h]` times `states` `[b, d]` are added where they are given.
    """
    width = out[0].numel()
    block = min(128, triton.next_power_of_2(width))
    launch(
        sum_chunks, len(out) * triton.cdiv(width, block), partial, weights, states, out=out, **chunks_of(layout)[1],
        ROW=partial[0].numel(), WIDTH=width, STATE=1 if states is None else states.shape[1],
        TYPE=TYPES[partial.dtype], CHUNK_BLOCK=CHUNKS_AT_ONCE, WIDTH_BLOCK=block,
    )  # fmt: skip
    return out


def failure_on(device: torch.device) -> Exception | None:
    """Run the smallest of the kernels on a device; its error, or `None`."""
    if device.type == "cuda" and torch.version.cuda and torch.cuda.get_device_capability(device) < (8, 0):
        return RuntimeError("Triton compiles for compute capability 8.0 and higher")
    try:
        partial = torch.tensor([[1.0], [2.0]], device=device)
        (starts, stops), out = torch.tensor([[0], [2]], device=device), partial.new_empty(1, 1)
        constants = {"ROW": 1, "WIDTH": 1, "STATE": 1, "TYPE": tl.float32, "CHUNK": 1, "WIDTH_BLOCK": 1}
        launch(sum_chunks, 1, partial, None, None, starts, stops, out, 2, **constants, CHUNK_BLOCK=CHUNKS_AT_ONCE)
        if float(out) != 3:
            return ValueError(f"1 + 2 is {float(out)} there")
    except Exception as error:  # Triton has many where a compiler, a driver or a known GPU is missing
        return error
    return None
