"""Columns in which annotation tools say that a row is no example."""

import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

from datasets import Dataset

from ..errors import UserError


logger = logging.getLogger(__name__)

# Names without case and marks: `was_cancelled` and "wasCancelled" are one.
_STATES = {
    *("answer", "status", "state", "decision", "verdict"),
    *(f"{part}status" for part in ("annotation", "label", "record", "response", "review")),
}
_REFUSED = {
    *("reject", "rejected", "ignore", "ignored", "discard", "discarded", "skip", "skipped"),
    *("cancelled", "canceled", "invalid"),
}
_REFUSALS = {prefix + word for prefix in ("", "is", "was") for word in _REFUSED - {"invalid"}}
_APPROVALS = {"accept", "accepted", "isaccepted", "wasaccepted"}
_YES, _NO = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}


def rejected_rows(split: str, dataset: Dataset, used: Iterable[str]) -> set[int]:
    """
    The rows that annotators rejected, cancelled or ignored, with a warning.

    Prodigy marks them in `answer`, Label Studio in `was_cancelled`, Argilla in `status`. Columns with more than one
    meaning, such as `is_valid` or `split`, are shown by `inspection`.

    Args:
        used: the columns of texts and labels.

    Raises:
        UserError: all rows were rejected.
    """
    rejected: set[int] = set()
    for column in dataset.column_names:
        name = re.sub(r"[\W_]", "", column).lower()
        if column in used or name not in _STATES | _REFUSALS | _APPROVALS:
            continue
        cells = [str(cell).strip().lower() for cell in dataset[column][:]]
        refused = _refusing(name)
        rows = {row for row, cell in enumerate(cells) if cell in refused}
        if rows:
            listed = ", ".join(sorted({cells[row] for row in rows}))
            logger.warning("%d rows of %s are omitted: column %r has %s.", len(rows), split, column, listed)
        rejected |= rows
    if rejected and len(rejected) == len(dataset):
        raise UserError(f"Annotators rejected every row of the {split} split. Remove the column that says so.")
    return rejected


def is_rejected(row: Mapping[str, Any]) -> bool:
    """Whether a row says that annotators rejected, cancelled or ignored it; see `rejected_rows`."""
    marks = {name: cell for name, cell in row.items() if isinstance(cell, str | int)}
    return any(
        str(cell).strip().lower() in _refusing(re.sub(r"[\W_]", "", name).lower()) for name, cell in marks.items()
    )


def _refusing(name: str) -> set[str]:
    """The values with which a column refuses a row."""
    if name in _STATES:
        return _REFUSED
    return _YES if name in _REFUSALS else _NO if name in _APPROVALS else set()
