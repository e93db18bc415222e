"""Versions of code for the caches of `datasets`, and copies of files there."""

import importlib
import inspect
import os
import tempfile
from collections.abc import Callable
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import datasets


@cache
def source_version(*modules: str) -> str:
    """
    A hash of the source of modules, for a field of an object whose results `datasets` caches.

    `datasets` identifies a cache by an object's fields, not by the code that it imports: without this field, a newer
    version of this package would read the cache of an older one.
    """
    version = blake2b(digest_size=8)
    for name in modules:
        version.update(inspect.getsource(importlib.import_module(name)).encode())
    return version.hexdigest()


def cached_copy(path: Path, cache_dir: str | None, ending: str, write: Callable[[Path], None], *options: Any) -> Path:
    """
    A copy of a file in another format, in a cache folder.

    Args:
        cache_dir: the folder; `None`: that of `datasets`.
        ending: of the copy's name.
        write: writes the copy. It is called only if there is none of this file with these options by this code.
        options: what else the copy depends on.
    """
    state = path.stat()
    made_from = (str(path.resolve()), state.st_size, state.st_mtime_ns, source_version(write.__module__), options)
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "modeling_star"
    copy = folder / (blake2b(repr(made_from).encode(), digest_size=16).hexdigest() + ending)
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / copy.name
            write(new)
            # datasets hashes the time, which is then the same in each of several processes that write a copy.
            os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
            new.replace(copy)
    return copy
