"""Several labels a text that stand in a column each, with 1 where a text has it, -> one column of lists of names."""

from collections.abc import Sequence
from typing import Any

from datasets import Dataset, DatasetDict, List, Value

from ..errors import UserError
from .columns import check_columns
from .labels import is_minus_one, row_ref, short_repr


_FLAG = "--label_column_name"
_MARKS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}


def join_label_columns(
    splits: DatasetDict, label_column_name: str | None, drop_empty: bool = False
) -> tuple[DatasetDict, tuple[str, ...] | None]:
    """
    One column of the name that was given, in the place of the columns that it joins by commas: `toxic,insult`.

    Args:
        splits: with 0 and 1, or true and false, in each of these columns. Rows where all of them are empty or -1 have
            no label, nor has a split without any of them.
        label_column_name: the names; `None`, or the name of one column, changes nothing.
        drop_empty: a row of which some of these columns are empty has no label, instead of being an error.

    Returns:
        The splits, and the names of the labels in their order, or `None` where nothing changed.

    Raises:
        UserError: a split has some of the columns only, or a cell holds something else; split and row are named.
    """
    names = [name.strip() for name in (label_column_name or "").split(",") if name.strip()]
    if len(names) < 2 or any(label_column_name in dataset.column_names for dataset in splits.values()):
        return splits, None
    if len(set(names)) != len(names):
        raise UserError(f"{_FLAG} {label_column_name} names a column twice.")
    joined = {}
    for split, dataset in splits.items():
        present = [name for name in names if name in dataset.column_names]
        if present or split == "train" or "train" not in splits:
            check_columns(DatasetDict({split: dataset}), names, _FLAG, everywhere=True)
            lists = _lists(split, dataset, names, drop_empty)
            dataset = dataset.remove_columns(names)
            dataset = dataset.add_column(label_column_name, lists, feature=List(Value("string")))
        joined[split] = dataset
    return DatasetDict(joined), tuple(names)


def _lists(split: str, dataset: Dataset, names: Sequence[str], drop_empty: bool) -> list[list[str] | None]:
    """The names that each row marks; `None` for a row without labels."""
    rows = zip(*(dataset[name][:] for name in names), strict=True)
    return [
        None if drop_empty and any(map(_is_empty, cells)) else _marked(split, row, cells, names)
        for row, cells in enumerate(rows)
    ]


def _is_empty(cell: Any) -> bool:
    return cell is None or not str(cell).strip() or str(cell) == "nan"


def _marked(split: str, row: int, cells: Sequence[Any], names: Sequence[str]) -> list[str] | None:
    if all(_is_empty(cell) or is_minus_one(cell) for cell in cells):
        return None
    marks = [_MARKS.get(str(cell).strip().lower()) for cell in cells]
    if None in marks:
        place = marks.index(None)
        if _is_empty(cells[place]):
            raise UserError(
                f"{row_ref(split, row)}: column {names[place]!r} is empty, and others of {_FLAG} are not: write 0 or 1 "
                "there, or --drop_empty to leave such rows out"
            )
        raise UserError(
            f"{row_ref(split, row)}: column {names[place]!r} holds {short_repr(cells[place])}, and each column of {_FLAG} "
            f"{','.join(names)} says by 0 or 1 whether a text has the label. Other labels stand in one column"
        )
    return [name for name, mark in zip(names, marks, strict=True) if mark]


__all__ = ["join_label_columns"]
