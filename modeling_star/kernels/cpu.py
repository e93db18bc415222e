"""
The layers of Star-Transformer and BiG-Transformer by compiled code, for inference on a CPU: `cpu.cpp`.

The code is compiled once for a user, a version and a set of instructions, in the background: a process uses the
library that it finds when it first needs one, so that no prediction waits for a compiler and the results of a process
are those of one code. `python -m modeling_star.kernels.cpu` compiles it and waits.

| `MODELING_STAR_CPU_KERNELS` | the compiled code is used |
|:--|:--|
| `auto` (default) | on x86-64 with AVX2, once it is compiled; without a compiler or a folder to write to, it is not |
| `0` | never |
| `1` | on any processor; it is compiled now, and an error says why it cannot be |

Axes: b sequences  N flat tokens  d width
"""

import ctypes
import functools
import os
import sys
from ctypes import POINTER, byref, c_double, c_int, c_int64, c_uint64, c_void_p
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .cpu_library import LEVELS, UnavailableError, build, build_in_background, find


logger = logging.get_logger(__name__)

VARIABLE = "MODELING_STAR_CPU_KERNELS"
KINDS = ("star", "big")
ACTIVATIONS = ("none", "relu", "gelu")
POOLINGS = (None, "max", "mean", "first")


# Candidates of a token that cpu.cpp holds at once: neighbours on either side, itself, embedding and relay.
MOST_NEIGHBOURS = 30


class _Shape(ctypes.Structure):
    """`Shape` of cpu.cpp."""

    _fields_ = [
        *(
            (name, c_int64)
            for name in ("kind", "d", "h", "c", "layers", "radius", "inner", "activation", "residual", "radial")
        ),
        ("pooling", c_int64),
        ("eps", c_double),
    ]


@dataclass(frozen=True)
class Encoder:
    """
    What the compiled code has to know of an encoder.

    Args:
        kind: "star" or "big".
        heads, head_width: of the attentions.
        activation: "relu" or "gelu"; of the update in Star, of the feed-forward layer in BiG.
        eps: of the norms.
        inner: width of BiG's feed-forward layer.
        residual: Star adds the state before the update.
        radial: Star has a relay.
    """

    kind: str
    heads: int
    head_width: int
    activation: str
    eps: float
    inner: int = 0
    residual: bool = False
    radial: bool = False


# ------ the library


def setting() -> str:
    """
    Raises:
        ValueError: the variable has a value that is not allowed.
    """
    value = os.environ.get(VARIABLE, "auto")
    if value not in ("auto", "0", "1"):
        raise ValueError(f'{VARIABLE}={value} is set; "auto", "0" (never) and "1" (compile now) are allowed.')
    return value


def level(limit: str = "all") -> str:
    """
    The best of LEVELS that this processor has and that torch is allowed.

    Args:
        limit: ONEDNN_MAX_CPU_ISA; torch reads ATEN_CPU_CAPABILITY.
    """
    allowed = list(LEVELS)
    capability = torch.backends.cpu.get_cpu_capability().lower()
    if not capability.startswith("avx512"):
        allowed = allowed[2:] if capability.startswith("avx2") else ["plain"]
    if limit not in ("all", "default") and not limit.startswith(("avx512_core_amx", "avx10")):
        allowed = [name for name in allowed if name != "amx" and (name != "avx512" or limit.startswith("avx512"))]
    has = _processor_flags()
    return next((name for name in allowed if LEVELS[name][1] <= has), "plain")


def _processor_flags() -> frozenset[str]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = (line.partition(":") for line in text.splitlines())
    return frozenset(next((flags.split() for name, _, flags in lines if name.strip() == "flags"), ()))


@functools.cache
def _load(name: str, path: Path) -> ctypes.CDLL:
    """
    Raises:
        UnavailableError: the library cannot be loaded, or this system does not allow its instructions.
    """
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise UnavailableError(f"{path} cannot be loaded: {error}") from error
    pointers, shape = POINTER(c_void_p), POINTER(_Shape)
    for function, result, arguments in (
        ("ready", c_int, ()),
        ("packed_size", c_int64, (shape, c_int)),
        ("pack", None, (shape, c_int, c_int, pointers, c_void_p)),
        ("checksum", c_uint64, (pointers, POINTER(c_int64), c_int64, c_int64)),
        ("encode", c_int, (shape, c_int, c_int, *(c_void_p,) * 3, c_int64, *(c_void_p,) * 4, c_int)),
    ):
        entry = getattr(library, f"modeling_star_{function}")
        entry.restype, entry.argtypes = result, arguments
    if not library.modeling_star_ready():
        raise UnavailableError(f"the system does not allow the instructions of {name}")
    return library


@functools.cache
def _library_for_process(name: str) -> ctypes.CDLL | None:
    """The library where it is compiled already; it is compiled for later processes otherwise."""
    path = find(name)
    if path is None:
        if build_in_background(name):
            logger.warning(
                "Code for this processor is compiled in the background, once: later processes predict faster. To "
                f"wait for it: {VARIABLE}=1. To never use it: {VARIABLE}=0."
            )
        return None
    try:
        return _load(name, path)
    except UnavailableError as error:
        logger.warning(f"PyTorch's operations are used: {error}. To hide this: {VARIABLE}=0.")
        return None


def level_in_use() -> str | None:
    """The instructions of `library()`; `None` where PyTorch's operations are used."""
    return None if library() is None else level(_limit())


def library() -> ctypes.CDLL | None:
    """
    The compiled code, or `None` where PyTorch's operations are used.

    Raises:
        ValueError: the variable has a value that is not allowed.
        RuntimeError: it is "1", and there is no such code.
    """
    return _library(setting(), _limit())


def _limit() -> str:
    return os.environ.get("ONEDNN_MAX_CPU_ISA", "all").lower()


@functools.cache
def _library(chosen: str, limit: str) -> ctypes.CDLL | None:
    if chosen == "0":
        return None
    name = level(limit)
    if chosen == "auto":
        # Elsewhere nothing was measured.
        return None if name == "plain" else _library_for_process(name)
    try:
        return _load(name, build(name))
    except UnavailableError as error:
        raise RuntimeError(f"{VARIABLE}=1 is set, and {error}. To use PyTorch: export {VARIABLE}=0.") from error


# ------ a call


@dataclass(frozen=True)
class _Packed:
    """
    Weights as the library reads them, and what they were made of.

    Args:
        stamp: of the parameters and the form.
        addresses, sizes: of the parameters, sizes in bytes.
        step: bytes, of which the checksum reads a cache line.
        checksum: of some of their bits.
        weights: the packed ones.
        shapes: of calls, by their radius and pooling.
    """

    stamp: tuple[Any, ...]
    addresses: ctypes.Array
    sizes: ctypes.Array
    step: int
    checksum: int
    weights: Tensor
    shapes: dict[tuple[int, str | None], _Shape] = field(default_factory=dict)


_packed: WeakKeyDictionary[nn.Module, _Packed] = WeakKeyDictionary()


def encode(
    owner: nn.Module,
    form: dict[str, Any],
    layers: list[list[Tensor | None]],
    stamp: tuple[int, ...],
    radius: int,
    embedded: Tensor,
    offsets: Tensor,
    in_bfloat16: bool,
    pooling: str | None,
    with_states: bool,
    start_relay: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None:
    """
    All layers of an encoder.

    Args:
        owner: whose parameters they are; the packed ones are kept for as long as it lives.
        form: the fields of its `Encoder`.
        layers: the parameters of each layer in the order of `Slot` in cpu.cpp, `None` where there is none.
        stamp: changes with the address of a parameter, and where one is changed in place.
        radius: neighbours on either side.
        embedded: `[N, d]`, float32 or bfloat16 as the parameters, contiguous, N > 0.
        offsets: `[b + 1]`, where the tokens of each sequence begin, and N.
        in_bfloat16: compute in bfloat16 where the processor has AMX, and in float32 otherwise.
        pooling: the vector of a sequence: the "max" or the "mean" of its states or the "first" of them, plus its relay
            where it has one; `None`: there is none.
        with_states: return the states too; without them "first" computes no other token in the last layer.
        start_relay: `[b, d]`, contiguous, the relays before the first layer; the means of the embeddings where it is
            `None`.

    Returns:
        States `[N, d]`, `None` without `with_states`; vectors `[b, d]`, `None` without `pooling`; beside these, relays
        `[b, d]` where there are any. Vectors and relays of empty sequences are zeros. `None` where there is no
        compiled code for this.
    """
    code = library()
    if code is None or radius > MOST_NEIGHBOURS:
        return None
    b, d = offsets.shape[0] - 1, embedded.shape[1]
    half = embedded.dtype == torch.bfloat16
    packed = _pack(code, owner, form, radius, d, in_bfloat16, half, layers, stamp)
    if packed is None:
        return None
    shape = packed.shapes.get((radius, pooling))
    if shape is None:
        shape = packed.shapes[radius, pooling] = _shape(form, d, len(layers), radius, pooling)
    states = torch.empty_like(embedded) if with_states else None
    pooled = embedded.new_empty((b, d)) if pooling else None
    relay = embedded.new_empty((b, d)) if pooling and shape.radial else None
    failed = code.modeling_star_encode(
        byref(shape),
        in_bfloat16,
        half,
        packed.weights.data_ptr(),
        embedded.data_ptr(),
        offsets.data_ptr(),
        b,
        None if start_relay is None else start_relay.data_ptr(),
        None if states is None else states.data_ptr(),
        None if relay is None else relay.data_ptr(),
        None if pooled is None else pooled.data_ptr(),
        torch.get_num_threads(),
    )
    if failed:
        raise MemoryError(f"No memory for the states of {len(embedded)} tokens: use smaller batches.")
    return states, pooled, relay


def _shape(form: dict[str, Any], d: int, layers: int, radius: int, pooling: str | None) -> _Shape:
    encoder = Encoder(**form)
    return _Shape(
        KINDS.index(encoder.kind),
        d,
        encoder.heads,
        encoder.head_width,
        layers,
        radius,
        encoder.inner,
        ACTIVATIONS.index(encoder.activation),
        encoder.residual,
        encoder.radial,
        POOLINGS.index(pooling),
        encoder.eps,
    )


def _pack(
    code: ctypes.CDLL,
    owner: nn.Module,
    form: dict[str, Any],
    radius: int,
    d: int,
    in_bfloat16: bool,
    half: bool,
    layers: list[list[Tensor | None]],
    stamp: tuple[int, ...],
) -> _Packed | None:
    """
    Packed weights, made again where the parameters have changed: by their stamp, or, as changes through `.data` have
    none, by a checksum that reads a cache line of each row at least. `None` where heads are too wide.
    """
    packed = _packed.get(owner)
    if packed is not None and packed.stamp == (in_bfloat16, stamp):
        arrays = packed.addresses, packed.sizes, len(packed.sizes), packed.step
        if packed.checksum == code.modeling_star_checksum(*arrays):
            return packed
    if form["head_width"] > 16 * code.modeling_star_lanes():
        return None
    tensors = [tensor for layer in layers for tensor in layer]
    addresses = (c_void_p * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))
    sizes = (c_int64 * len(tensors))(*(0 if x is None else x.numel() * x.element_size() for x in tensors))
    step = max(64, 1 << ((2 if half else 4) * d).bit_length() - 1)  # at most a row of d numbers
    checksum = code.modeling_star_checksum(addresses, sizes, len(tensors), step)
    shape = _shape(form, d, len(layers), radius, None)
    weights = torch.empty(code.modeling_star_packed_size(byref(shape), in_bfloat16), dtype=torch.uint8)
    code.modeling_star_pack(byref(shape), in_bfloat16, half, addresses, weights.data_ptr())
    packed = _packed[owner] = _Packed((in_bfloat16, stamp), addresses, sizes, step, checksum, weights)
    return packed


if __name__ == "__main__":
    try:
        print(build(level()))
    except UnavailableError as error:
        sys.exit(f"modeling_star.kernels.cpu: {error}")
