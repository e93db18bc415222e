"""Versions of code for the caches of `datasets`."""

import importlib
import inspect
from functools import cache
from hashlib import blake2b


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
