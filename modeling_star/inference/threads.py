"""
Worker threads whose operations use no further threads.

`torch.set_num_threads` in a worker also sets what every later thread of the process starts with. The functions of
OpenMP and MKL below it are of the calling thread alone.
"""

import ctypes
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch


Item = TypeVar("Item")
Result = TypeVar("Result")


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map`, in worker threads that compute with one thread each; in this thread where their number cannot be set."""
    if workers == 1 or not _can_compute_alone():
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers, initializer=_compute_alone) as pool:
        yield from pool.map(function, items)


def _compute_alone() -> None:
    torch.get_num_threads()  # the first call in a thread sets its number to that of the process
    for set_number in _setters():
        set_number(1)


@cache
def _can_compute_alone() -> bool:
    """Whether the number of threads can be set for one thread."""

    def number() -> int:
        _compute_alone()
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(number).result() == 1


@cache
def _setters() -> tuple[Callable[[int], Any], ...]:
    """`omp_set_num_threads`, and `mkl_set_num_threads_local` as C calls it, of the libraries inside torch."""
    folder = Path(torch.__file__).parent / "lib"
    paths = [path for path in (folder / "libtorch_cpu.so", folder / "libtorch_cpu.dylib") if path.is_file()]
    try:
        library = ctypes.CDLL(str(paths[0]))
        of_mkl = [library.MKL_Set_Num_Threads_Local] if torch.backends.mkl.is_available() else []
        return library.omp_set_num_threads, *of_mkl
    except (IndexError, OSError, AttributeError):  # other builds of torch do not export them
        return ()
