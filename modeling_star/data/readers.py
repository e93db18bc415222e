"""Read data files as `datasets.Dataset`; `detect` finds their formats."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .detect import detect
from .files import Options


if TYPE_CHECKING:
    from datasets import Dataset


def read_file(path: str | Path, **options: Any) -> Dataset:
    """All rows of a file, with the fields of `Options`; csv cells are texts, the words and tags of CoNLL lists."""
    return detect(path, Options(**options)).read()


def read_splits(files: Mapping[str, str | Path], options: Options) -> dict[str, Dataset]:
    """The files of some splits; a CoNLL file without names of columns has those of train, where it has as many."""
    found = {split: detect(path, options) for split, path in files.items()}
    train = found.get("train")
    for split, file in found.items():
        if train is not None and file.format == train.format == "conll" and not options.column_names:
            names = file.module.columns_like(file, train) if file.path != train.path else None
            found[split] = file.with_columns(names) if names else file
    return {split: file.read() for split, file in found.items()}
