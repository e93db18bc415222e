"""A validation split out of train, where none is given."""

import random
from typing import Any

from datasets import Dataset, DatasetDict

from .data_files import DataError


def hold_out(
    splits: DatasetDict,
    fraction: float,
    seed: int = 42,
    together: str | None = None,
    classes: str | None = None,
) -> DatasetDict:
    """Move a random part of "train" to a new split "validation"; both keep the order of their rows.

    Best done after the rows were checked (`replace(data, splits=hold_out(data.splits, 0.1))`): moved rows have other
    numbers, and an error in one of them would name a line that is not the file's.

    Args:
        fraction: the part of the rows that is moved, below 1; at least one row goes and one stays.
        seed: what the choice depends on, beside the number of rows.
        together: column whose equal values stay in one split, such as a context with several questions. A value's rows
            go as one, so that a few more may be moved than the fraction says.
        classes: column of each row's class. The same part of every class is moved, and one row of each stays.

    Raises:
        DataError: there is a validation split already, no train split, too few rows or no proper fraction.
    """
    if "validation" in splits:
        raise DataError("There is a validation split already: leave --validation_fraction away.")
    if "train" not in splits or len(splits["train"]) < 2:
        raise DataError(
            "A validation split is held out of a train split of 2 rows or more, and there is none: add rows, "
            "--validation_file, or go without by --validation_fraction 0"
        )
    check_fraction(fraction)
    train = splits["train"]
    size = min(max(1, round(fraction * len(train))), len(train) - 1)
    chosen = _some_rows(train, size, seed, together) if classes is None else _some_of_each(train, size, seed, classes)
    parts = {
        "train": train.select([row for row in range(len(train)) if row not in chosen]),
        "validation": train.select(sorted(chosen)),
    }
    return DatasetDict({**splits, **parts})


def check_fraction(fraction: float) -> None:
    """
    Raises:
        DataError: it is no part of a whole, nor 0, which holds out nothing.
    """
    if not 0 <= fraction < 1:
        raise DataError(
            f"--validation_fraction {fraction:g} is given; write one between 0 and 1: --validation_fraction 0.1"
        )


def _some_rows(train: Dataset, size: int, seed: int, together: str | None) -> set[int]:
    """About `size` rows by chance, whole groups of equal values where `together` names a column."""
    draw = random.Random(seed)
    if together is None:
        return set(draw.sample(range(len(train)), size))
    groups: dict[Any, list[int]] = {}
    for row, value in enumerate(train[together][:]):
        groups.setdefault(value, []).append(row)
    if len(groups) < 2:
        raise DataError(
            f"All rows of the train split have one {together}: none can be held out for validation without showing "
            "it in training. Give a --validation_file, or write --validation_fraction 0"
        )
    chosen: set[int] = set()
    for value in draw.sample(list(groups), len(groups) - 1):
        if len(chosen) >= size:
            break
        chosen.update(groups[value])
    return chosen


def _some_of_each(train: Dataset, size: int, seed: int, column: str) -> set[int]:
    """`size` rows by chance, of each class its part, or fewer where one row of each class would not stay."""
    draw = random.Random(seed)
    groups: dict[Any, list[int]] = {}
    for row, value in enumerate(train[column][:]):
        groups.setdefault(value, []).append(row)
    room = len(train) - len(groups)
    if room == 0:
        raise DataError(
            f"Every row of the train split has another label in {column!r}: none can be held out for validation "
            "without taking its class from training. Give a --validation_file, or write --validation_fraction 0"
        )
    size = min(size, room)
    share = {value: size * len(rows) / len(train) for value, rows in groups.items()}
    taken = {value: min(int(share[value]), len(rows) - 1) for value, rows in groups.items()}
    while sum(taken.values()) < size:  # what was rounded off goes where the most is lacking
        open_ones = [value for value, rows in groups.items() if taken[value] < len(rows) - 1]
        taken[max(open_ones, key=lambda value: (share[value] - taken[value], len(groups[value])))] += 1
    return {row for value, rows in groups.items() for row in draw.sample(rows, taken[value])}


__all__ = ["check_fraction", "hold_out"]
