"""Documents for run_mlm.py, from files or data sets of the Hub."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from datasets import Dataset, DatasetDict, Value, concatenate_datasets

from ..errors import UserError
from .columns import find_text_column
from .files import SampleBy
from .readers import read_file
from .splits import check_source, load_named, take_first


SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class TextData:
    """Rows with documents in `text_column`, none of which is empty; there are no labels."""

    splits: DatasetDict
    text_column: str
    label_list: tuple[str, ...] = ()

    def training_texts(self, count: int | None) -> Iterator[str]:
        """The first `count` documents of train; all for `None`."""
        return itertools.islice(self.splits["train"][self.text_column], count)


def load_texts(
    files: Mapping[str, Sequence[str] | None],
    sample_by: SampleBy = "line",
    *,
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    revision: str | None = None,
    text_column_name: str | None = None,
    limits: Mapping[str, int | None] = MappingProxyType({}),
) -> TextData:
    """
    The documents of files, several per split, or of a data set as in `load_splits`; `sample_by`: the document of a
    `.txt` file; `limits`: the most documents of each split.
    """
    paths = {split: named for split, named in files.items() if named}
    check_source(dataset_name, itertools.chain(*paths.values()))
    tables: dict[str, list[Dataset]] = {
        split: [read_file(path, sample_by=sample_by) for path in named] for split, named in paths.items()
    }
    if dataset_name:
        loaded = load_named(dataset_name, dataset_config_name, revision=revision)
        tables = {split: [rows] for split, rows in loaded.items() if split in SPLITS}
    column = text_column_name
    splits = {}
    for split, several in tables.items():
        for table in several:  # one after the other: an error lists the columns of one file
            column = find_text_column(DatasetDict({split: table}), column)
        rows = concatenate_datasets([_plain_texts(table.select_columns([column])) for table in several])
        kept = [index for index, cell in enumerate(rows[column]) if _has_text(cell)]
        if not kept:
            raise UserError(f"The {split} split has no text in its column {column!r}.")
        rows = rows.select(kept) if len(kept) < len(rows) else rows
        splits[split] = take_first(rows, limits.get(split))
    return TextData(DatasetDict(splits), column)


def _has_text(cell: object) -> bool:
    if cell is not None and not isinstance(cell, str):
        raise UserError(f"A row has {str(cell)[:60]!r}, not a text. Name the column of texts: --text_column_name text")
    return bool(cell and cell.strip())


def _plain_texts(rows: Dataset) -> Dataset:
    """Cast the large strings of pandas' parquet files to the strings of other formats."""
    for name, feature in rows.features.items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows
