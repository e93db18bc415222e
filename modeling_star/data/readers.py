"""Read data files as `datasets.Dataset`; `detect` finds their formats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .detect import detect
from .files import Options, SampleBy


if TYPE_CHECKING:
    from datasets import Dataset


def read_file(
    path: str | Path,
    cache_dir: str | None = None,
    sample_by: SampleBy | None = None,
    column_names: Sequence[str] | None = None,
    with_spans: bool = True,
) -> Dataset:
    """
    Read one data file.

    Args:
        path: a file with a known ending (`detect`), optionally followed by `.gz`, `.bz2` or `.zst`; or a folder of
            brat.
        cache_dir: the folder of the cache of `datasets`.
        sample_by: read `.txt` files as running text with one row per line, paragraph or file; `None`: as CoNLL.
        column_names: the columns of a csv, tsv or `.txt` table without a header line, or of a CoNLL file, where "_"
            skips a column. `None`: named by the first line, or by the number of CoNLL columns.
        with_spans: read files with labelled spans of characters as words and tags; see `formats.spans`.

    Returns:
        The rows in the order of the file. csv cells are texts; CoNLL has lists: `tokens` and one column per tag;
        running text has the column `text`.

    Raises:
        UserError: the file is absent or empty, has an unknown ending, or is not in its format.
    """
    return detect(path, Options(column_names, sample_by, with_spans, cache_dir=cache_dir)).read()


def read_splits(files: Mapping[str, str | Path], options: Options) -> dict[str, Dataset]:
    """The files of some splits; a CoNLL file without names of columns has those of train, where it has as many."""
    found = {split: detect(path, options) for split, path in files.items()}
    train = found.get("train")
    for split, file in found.items():
        if train is not None and file.format == train.format == "conll" and not options.column_names:
            names = file.module.columns_like(file, train) if file.path != train.path else None
            found[split] = file.with_columns(names) if names else file
    return {split: file.read() for split, file in found.items()}
