"""
The library of `cpu.cpp`, which computes the layers of Star-Transformer and BiG-Transformer for inference on a CPU.

The code is compiled once for a user, a version and a set of instructions, in the background: a process uses the
library that it finds when it first needs one, so that no prediction waits for a compiler and the results of a process
are those of one code. `python -m modeling_star.kernels.cpu` compiles it and waits.

| `MODELING_STAR_CPU_KERNELS` | the compiled code is used |
|:--|:--|
| `auto` (default) | on x86-64 with AVX2, once it is compiled; without a compiler or a folder to write to, it is not |
| `0` | never |
| `1` | on any processor; it is compiled now, and an error says why it cannot be |
"""

import ctypes
import functools
import os
import sys
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p
from pathlib import Path

import torch
from transformers.utils import logging

from .cpu_library import LEVELS, UnavailableError, build, build_in_background, find


logger = logging.get_logger(__name__)

VARIABLE = "MODELING_STAR_CPU_KERNELS"
# By their numbers in cpu.cpp.
KINDS = ("star", "big")
WITH_BFLOAT16 = ("amx", "avx512bf16")
ACTIVATIONS = ("none", "relu", "gelu")
POOLINGS = (None, "max", "mean", "first")
# How limits of oneDNN begin that allow the first of LEVELS, the second and the third.
_OF_ONEDNN = (("avx512_core_amx", "avx10"), ("avx512_core_bf16", "avx512_core_fp16"), ("avx512",))
_BELOW_AVX512 = len(_OF_ONEDNN)
# Parameters of a layer, in the order of `Slot`.
SLOTS = 21
# On either side in a ring: cpu.cpp holds the keys of at most 64 candidates of a token.
MOST_NEIGHBOURS = 30


class Shape(ctypes.Structure):
    """`Shape` of cpu.cpp."""

    _names = ("kind", "d", "h", "c", "layers", "radius", "inner", "activation", "residual", "radial", "start_norm")
    _fields_ = [*((name, c_int64) for name in (*_names, "pooling")), ("eps", c_double)]


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
    """The best of LEVELS that this processor has, and that ONEDNN_MAX_CPU_ISA and ATEN_CPU_CAPABILITY allow."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    best = 0 if capability.startswith("avx512") else _BELOW_AVX512
    if not capability.startswith("avx"):
        best = len(LEVELS) - 1
    if limit not in ("all", "default"):
        best = max(best, next((i for i, begins in enumerate(_OF_ONEDNN) if limit.startswith(begins)), _BELOW_AVX512))
    has = _processor_flags()
    # Intel's products of bfloat16 take 1.5 times as long as those of float32 without AMX (seen on an Emerald Rapids).
    slower = {"avx512bf16"} if "GenuineIntel" in has else set()
    return next(name for name in tuple(LEVELS)[best:] if LEVELS[name][1] <= has and name not in slower)


def _processor_flags() -> frozenset[str]:
    """Flags and maker of the processor, as Linux names them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return frozenset()
    lines = [line.partition(":") for line in text.splitlines()]
    return frozenset(
        word
        for wanted in ("flags", "vendor_id")
        for word in next((words.split() for name, _, words in lines if name.strip() == wanted), ())
    )


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
    pointers, shape = POINTER(c_void_p), POINTER(Shape)
    for function, result, arguments in (
        ("ready", c_int, ()),
        ("packed_size", c_int64, (shape, c_int)),
        ("pack", None, (shape, c_int, c_int, pointers, c_void_p)),
        ("encode", c_int, (shape, c_int, c_int, *(c_void_p,) * 3, c_int64, *(c_void_p,) * 3, c_int)),
    ):
        entry = getattr(library, f"modeling_star_{function}")
        entry.restype, entry.argtypes = result, arguments
    if not library.modeling_star_ready():
        raise UnavailableError(f"the system does not allow the instructions of {name}")
    return library


def level_in_use() -> str | None:
    """The instructions of `library()`; `None` where there is none."""
    try:
        return library()[1]
    except UnavailableError:
        return None


def library() -> tuple[ctypes.CDLL, str]:
    """The compiled code and its instructions, the same for all of a process, or an UnavailableError."""
    found = _library(setting(), os.environ.get("ONEDNN_MAX_CPU_ISA", "all").lower())
    if isinstance(found, str):
        raise UnavailableError(found)
    return found


@functools.cache
def _library(chosen: str, limit: str) -> tuple[ctypes.CDLL, str] | str:
    """The code with its instructions, or the reason why there is none."""
    if chosen == "0":
        return f"{VARIABLE}=0 is set"
    name = level(limit)
    if chosen == "1":
        try:
            return _load(name, build(name)), name
        except UnavailableError as error:
            raise RuntimeError(f"{VARIABLE}=1 is set, and {error}. To use PyTorch: export {VARIABLE}=0.") from error
    if name == "plain":  # nothing was measured
        return "this processor is no x86-64 with AVX2"
    path = find(name)
    if path is None:
        if not build_in_background(name):
            return "the code is not compiled; python -m modeling_star.kernels.cpu compiles it, or says why it cannot"
        logger.warning(
            "Code for this processor is compiled in the background, once: later processes predict faster. To wait for "
            f"it: {VARIABLE}=1. To never use it: {VARIABLE}=0."
        )
        return "the code is being compiled in the background, for later processes"
    try:
        return _load(name, path), name
    except UnavailableError as error:
        logger.warning(f"PyTorch's operations are used: {error}. To hide this: {VARIABLE}=0.")
        return str(error)


if __name__ == "__main__":
    try:
        print(build(level()))
    except UnavailableError as error:
        sys.exit(f"modeling_star.kernels.cpu: {error}")
