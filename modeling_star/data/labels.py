"""Labels: cells of a data set -> names -> numbers that are the same in all splits."""

from __future__ import annotations

import ast
import json
import logging
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..models.tag_schemes import ENTITY_PREFIXES, IGNORE_INDEX, entity_tag
from .columns import GOLD_LABEL


if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


logger = logging.getLogger(__name__)
Cells = Sequence[Any]
"""The labels of one split, row by row; `None` where a row has none."""
NO_LABEL = (IGNORE_INDEX, str(IGNORE_INDEX))  # cells of a csv are texts
_INFERENCE = {"entailment", "neutral", "contradiction"}
_PREFIXES = "".join(ENTITY_PREFIXES)
_OUTSIDE = {"o", "0", "-", "_", "other", "others", "out", "outside", "none", "null", "nil", "no", "na", "n/a"}
_PREFIXED = re.compile(rf"(?P<letter>[{_PREFIXES}])[-_:./|](?P<kind>.+)", re.IGNORECASE)  # "B_PER", "b-PER"
_SUFFIXED = re.compile(rf"(?P<kind>.+)[-_:./|](?P<letter>[{_PREFIXES}])")  # "PER-B"
WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_NUMPY_GAP = re.compile(r"""(['"])\s+\1""")


def row_ref(split: str, row: int) -> str:
    """A row in a message, counted from 1."""
    return f"{split} row {row + 1}"


def short_repr(value: Any) -> str:
    """The representation of a value in a message."""
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


# ------ Cells


def class_names(dataset: Dataset, column: str) -> list[str]:
    """The names of a `ClassLabel` column, or of a list of `ClassLabel`s; [] for other columns."""
    from datasets import ClassLabel

    feature = dataset.features.get(column)
    inner = getattr(feature, "feature", feature)
    return list(inner.names or []) if isinstance(inner, ClassLabel) else []


def declared_names(splits: DatasetDict, column: str) -> list[str]:
    """The names of the `ClassLabel`s of all splits."""
    return list(dict.fromkeys(name for dataset in splits.values() for name in class_names(dataset, column)))


def has_dashes(dataset: Dataset, column: str) -> bool:
    """Whether "-" marks rows without a label: in SNLI's column "gold_label", and beside its three labels (CLUE)."""
    if column == GOLD_LABEL or column not in dataset.column_names:
        return column == GOLD_LABEL
    names = {value.strip() for value in dataset[column][:] if isinstance(value, str)} - {""}
    return "-" in names and names > {"-"} and names <= {"-"} | _INFERENCE


def label_cells(dataset: Dataset, column: str) -> list[Any] | None:
    """The labels of a split, by name; `None` where a cell is blank, -1 of a `ClassLabel`, or "-" (`has_dashes`)."""
    if column not in dataset.column_names:
        return None
    names = class_names(dataset, column)
    dashes = has_dashes(dataset, column)

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(item) for item in value]
        if isinstance(value, str):
            return value.strip()
        if not names or value is None or value == IGNORE_INDEX:
            return value
        return names[value] if value >= 0 else None

    def cell(value: Any) -> Any:
        value = name(value)
        if value == "" or (isinstance(value, float) and math.isnan(value)) or (dashes and value == "-"):
            return None
        written = literal_list(value) if isinstance(value, str) and not names else None
        return value if written is None else name(written)

    return [cell(value) for value in dataset[column][:]]


def literal_list(text: str) -> list[Any] | None:
    """A list in a csv cell, as Python or json write it ("['It', 'rains']"); `None` for other texts."""
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        value = json.loads(text)
    except ValueError:
        try:
            value = ast.literal_eval(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
        if _NUMPY_GAP.search(text):
            raise UserError(
                f"A cell has an array without commas, {short_repr(text)}. Write lists: df[name].map(list)"
            ) from None
    return value if isinstance(value, list) else None


# ------ Names


def ordered(names: set[str]) -> list[str]:
    """Numbers by size; tags with "O" first, then by type and B before I; others by alphabet."""
    if all(map(WHOLE.fullmatch, names)):
        return sorted(names, key=int)

    def key(name: str) -> tuple[bool, str, int, str]:
        tag = entity_tag(name)
        if name == "O" or tag is None:
            return name != "O", name, -1, name
        return True, tag[1], _PREFIXES.index(name[0]), name

    return sorted(names, key=key)


def entity_names(names: Iterable[str]) -> dict[str, str] | None:
    """
    Tags of entities in their usual spelling ("B_PER" and "PER-B" -> "B-PER", "0" -> "O"), or `None` where some are
    others. Another spelling of O needs tags that are those of entities; another one of these needs an O.
    """
    names = set(names)
    outside = names & {"O", "o", "0"} if "O" in names else {name for name in names if name.casefold() in _OUTSIDE}
    tags = names - outside
    if len(outside) > 1 and "O" not in outside:
        return None
    spelled = dict.fromkeys(outside, "O")
    if all(map(entity_tag, tags)):
        return spelled | {name: name for name in tags} if tags or names == {"O"} else None
    for pattern in (_PREFIXED, _SUFFIXED) if outside else ():
        found = {name: match for name in tags if (match := pattern.fullmatch(name))}
        begins, inside = ({m["kind"] for m in found.values() if m["letter"].upper() == letter} for letter in "BI")
        if found.keys() == tags and (begins | inside if pattern is _PREFIXED else begins & inside):
            return spelled | {name: f"{match['letter'].upper()}-{match['kind']}" for name, match in found.items()}
    return None


def name_of(value: Any) -> str:
    """The name of a label: 3 and 3.0 are "3"."""
    return str(int(value)) if type(value) is float and value.is_integer() else str(value)


def has_names(labels: Sequence[str]) -> bool:
    """Whether labels have names other than LABEL_0, LABEL_1, ..., the defaults of transformers."""
    return any(name != f"LABEL_{index}" for index, name in enumerate(labels))


def _warn_about_alike(names: Iterable[str]) -> None:
    """Warn about labels that differ only in capitals, blanks or the width of their letters."""
    alike: dict[str, list[str]] = {}
    for name in sorted(names):
        alike.setdefault("".join(unicodedata.normalize("NFKC", name).casefold().split()), []).append(name)
    pairs = [" and ".join(map(repr, same)) for same in alike.values() if len(same) > 1]
    if pairs:
        logger.warning(
            "Labels that differ only in capitals or blanks are different classes: %s. Write them alike in the data if "
            "they are one.",
            "; ".join(pairs[:10]),
        )


def label_ids(
    names: Mapping[str, set[str]], declared: Sequence[str], label_list: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """
    The label list, and the id of every name, by the names in each split, those of a `ClassLabel` in their order, and a
    saved model's, whose default names (`has_names`) mean whole numbers, or are replaced by as many in the data.
    """
    present = {name for split in names.values() for name in split}
    for split, here in names.items():
        unseen = sorted(here - names.get("train", here))
        if len(here) > 1 and len(unseen) == len(here):
            raise UserError(
                f"The labels of the {split} split are {', '.join(unseen[:20])}, and none of them is in train, whose "
                f"labels are {short_repr(ordered(names['train']))}. Write the same names in both files."
            )
        if unseen:
            logger.warning("Labels of the %s split that never occur in train: %s", split, ", ".join(unseen[:20]))
    _warn_about_alike(present)
    labels = (*declared, *ordered(present - set(declared)))
    nameless = label_list is not None and not has_names(label_list) and len(labels) == len(label_list)
    if label_list is None or (nameless and present - set(label_list)):
        return labels, {name: index for index, name in enumerate(labels)}
    ids = {name: index for index, name in enumerate(label_list)}
    strange = sorted(present - set(ids))
    or_new = ", or train a new head: --ignore_mismatched_sizes" if "train" in names else ""
    numbers = {str(index): index for index in range(len(label_list))}
    if strange and len(strange) == len(present) and present <= numbers.keys():
        if not has_names(label_list):
            return tuple(label_list), ids | numbers
        raise UserError(
            f"The labels are the numbers {', '.join(strange)}, and the model's labels are "
            f"{short_repr(list(label_list))}: which is which is unknown. Write the names in the data, such as "
            f"{label_list[0]!r} for 0{or_new}"
        )
    if strange:
        raise UserError(
            f"The label {strange[0]!r} is not one of the model's {len(label_list)} labels, "
            f"{short_repr(list(label_list))}. Use these labels{or_new}"
        )
    return tuple(label_list), ids


# ------ Numbers


def labels_of(cells: Mapping[str, Cells]) -> Iterator[tuple[str, int, Any]]:
    """Every label with its split and row."""
    for split, values in cells.items():
        for row, value in enumerate(values):
            if value is not None:
                yield split, row, value


def check_types(labels: Iterable[tuple[str, int, Any]], column: str, allowed: Sequence[type]) -> set[type]:
    """The type of labels, one of those that are allowed; whole numbers and fractions can be mixed."""
    seen: dict[type, str] = {}
    for split, row, value in labels:
        if type(value) in seen:
            continue
        found = f"{row_ref(split, row)} has {short_repr(value)}"
        if type(value) not in allowed:
            names = ", ".join(kind.__name__ for kind in allowed)
            if isinstance(value, list) and [type(part) for part in value] == [int, int, str]:
                raise UserError(
                    f"Column {column!r}: {found}, a span of characters. A tagger learns from it: `modeling-star tag`."
                )
            raise UserError(f"Column {column!r}: {found}. Labels can be {names}; choose another --label_column_name")
        seen[type(value)] = found
        if len(seen) > 1 and seen.keys() != {int, float}:
            raise UserError(f"Column {column!r} has labels of mixed types: {', '.join(seen.values())}. Use one type.")
    return set(seen)
