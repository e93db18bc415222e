"""Folders of outputs."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def no_empty_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its parents, and remove those that were made here and stay empty."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):  # not empty, or removed
            for path in made:
                path.rmdir()
