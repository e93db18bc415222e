"""Labels: cells of a data set -> names -> numbers that are the same in all splits."""

import ast
import json
import logging
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from datasets import ClassLabel, Dataset, DatasetDict, List, Value

from ..errors import UserError
from ..models.tag_schemes import ENTITY_PREFIXES, IGNORE_INDEX, entity_tag
from .columns import GOLD_LABEL, check_columns


logger = logging.getLogger(__name__)

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]

Cells = Sequence[Any]
"""The labels of one split, row by row; `None` where a row has none."""

Encoded = tuple[tuple[str, ...], dict[str, list[Any]], Any]
"""The label list, split -> numbers row by row, and their feature."""

NO_LABEL = (IGNORE_INDEX, str(IGNORE_INDEX))  # cells of a csv are texts

_INFERENCE = {"entailment", "neutral", "contradiction"}
_MARKS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_PREFIXES = "".join(ENTITY_PREFIXES)
_SEPARATORS = "|；;，、,"
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?")
_NUMBERS = re.compile(r"\d+( \d+)+")
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
    """
    The labels of a split, by name if the column is a `ClassLabel`; `None` without the column.

    A cell is `None` if it is blank, -1 in a `ClassLabel` column, or "-" without a label (`has_dashes`).
    """
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
    """
    A list in a csv cell, as Python or json write it ("['It', 'rains']"); `None` for other texts.

    Raises:
        UserError: the list is an array that numpy wrote without commas, ['It' 'rains'].
    """
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


def is_minus_one(value: Any) -> bool:
    """Whether a label is GLUE's mark of an unlabelled row."""
    return value in (-1, "-1")


def is_unlabelled(cells: Cells | None, minus_one_is_a_class: bool = False) -> bool:
    """Whether no row of a split has a label, or every label is GLUE's -1."""
    if cells is None or all(value is None for value in cells):
        return True
    return not minus_one_is_a_class and all(map(is_minus_one, cells))


def texts_as_numbers(
    cells: Mapping[str, Cells | None], fractions: bool, label_list: Sequence[str] | None = None, commas: bool = False
) -> dict[str, Cells | None]:
    """
    Labels as numbers if all are texts of numbers, as in csv files; the "nan" of pandas among them is no label.

    Args:
        fractions: whether "3.5" is a number, or only "3" and "3.0".
        label_list: a saved model's labels: texts that are among them remain.
        commas: whether "3,5" is a number, with a warning.
    """
    texts = {value for values in cells.values() for value in values or () if isinstance(value, str)}
    written = {text: text.replace(",", ".") if commas else text for text in texts if text.lower() != "nan"}
    if not written or not all(map(_NUMBER.fullmatch, written.values())) or written.keys() <= {*(label_list or ())}:
        return dict(cells)
    numbers: dict[str, int | float | None] = {
        text: int(digits) if _WHOLE.fullmatch(digits) else float(digits) for text, digits in written.items()
    }
    if changed := sorted(text for text, digits in written.items() if text != digits):
        logger.warning("Labels have decimal commas: %s is read as %s", changed[0], written[changed[0]])
    if not fractions and any(is_fraction(number) for number in numbers.values()):
        return dict(cells)
    numbers |= dict.fromkeys(texts - written.keys())
    return {
        split: values and [numbers[value] if isinstance(value, str) else value for value in values]
        for split, values in cells.items()
    }


def is_fraction(value: Any) -> bool:
    """Whether a label is a number with a fraction: 5.0 has none."""
    return isinstance(value, float) and not value.is_integer()


def split_labels(text: str) -> list[str]:
    """
    The labels of one cell: "a, b", "a|b" and "a; b" are two; only the first separator of `|;,` in it counts.

    Blanks separate numbers: "2 25" are two labels.
    """
    separator = next((mark for mark in _SEPARATORS if mark in text), None)
    if separator is None and _NUMBERS.fullmatch(text):
        return text.split()
    return [part.strip() for part in text.split(separator or ",") if part.strip()]


def check_single_labels(cells: Mapping[str, Cells], column: str) -> None:
    """
    Check that classes are not several labels in one cell, as "2,25" or "sports|politics".

    Raises:
        UserError: the parts of a cell are all classes of other cells, or the parts of all cells are numbers.
    """
    names = {value for _, _, value in labels_of(cells) if isinstance(value, str)}
    parts = {name: split_labels(name) for name in names}
    several = sorted(name for name in names if len(parts[name]) > 1)
    counts = Counter(part for name in names for part in {*parts[name]})
    are_numbers = all(_WHOLE.fullmatch(part) for part in counts)
    for name in several:
        if are_numbers or names.issuperset(parts[name]):
            raise UserError(
                f"Column {column!r} has {short_repr(name)}, which seem to be several labels. Write --problem_type "
                "multi_label_classification, or --problem_type single_label_classification if it is one class, or "
                "--problem_type regression if it is a number."
            )
    shared = [name for name in several if any(counts[part] > 1 for part in parts[name])]
    if shared:
        logger.warning(
            "Column %r has %s, which is one class. If it has several labels, write --problem_type "
            "multi_label_classification",
            column,
            short_repr(shared[0]),
        )


def join_label_columns(
    splits: DatasetDict, label_column_name: str | None, drop_empty: bool = False
) -> tuple[DatasetDict, tuple[str, ...] | None]:
    """
    Join columns of 0 and 1, one per label and separated by commas in the flag (`toxic,insult`), to a column of lists.

    Args:
        splits: with 0 and 1, or true and false, in each of these columns. A row has no label if all are empty or -1.
        label_column_name: the names; `None`, or the name of one column, changes nothing.
        drop_empty: a row with an empty cell has no label, instead of being an error.

    Returns:
        The splits, and the names in their order, or `None` if nothing changed.
    """
    names = tuple(name.strip() for name in (label_column_name or "").split(",") if name.strip())
    if len(names) < 2 or any(label_column_name in dataset.column_names for dataset in splits.values()):
        return splits, None

    def marked(split: str, row: int, cells: Sequence[Any]) -> list[str] | None:
        empty = [cell is None or str(cell).strip() in ("", "nan") for cell in cells]
        if (drop_empty and any(empty)) or all(
            map(is_minus_one, [c for c, e in zip(cells, empty, strict=True) if not e])
        ):
            return None
        marks = [_MARKS.get(str(cell).strip().lower()) for cell in cells]
        if None in marks:
            place = marks.index(None)
            raise UserError(
                f"{row_ref(split, row)}: column {names[place]!r} has {short_repr(cells[place])}. Each column of "
                f"--label_column_name {label_column_name} has 0 or 1; --drop_empty omits rows with empty cells"
            )
        return [name for name, mark in zip(names, marks, strict=True) if mark]

    joined = {}
    for split, dataset in splits.items():
        if split == "train" or "train" not in splits or not set(names).isdisjoint(dataset.column_names):
            check_columns(DatasetDict({split: dataset}), names, "--label_column_name", everywhere=True)
            rows = zip(*(dataset[name][:] for name in names), strict=True)
            lists = [marked(split, row, cells) for row, cells in enumerate(rows)]
            dataset = dataset.remove_columns(list(names))
            dataset = dataset.add_column(label_column_name, lists, feature=List(Value("string")))
        joined[split] = dataset
    return DatasetDict(joined), names


# ------ Names


def ordered(names: set[str]) -> list[str]:
    """Numbers by size; tags with "O" first, then by type and B before I; others by alphabet."""
    if all(map(_WHOLE.fullmatch, names)):
        return sorted(names, key=int)

    def key(name: str) -> tuple[bool, str, int, str]:
        tag = entity_tag(name)
        if name == "O" or tag is None:
            return name != "O", name, -1, name
        return True, tag[1], _PREFIXES.index(name[0]), name

    return sorted(names, key=key)


def name_of(value: Any) -> str:
    """The name of a label: 3 and 3.0 are "3"."""
    return str(int(value)) if type(value) is float and value.is_integer() else str(value)


def has_names(labels: Sequence[str]) -> bool:
    """Whether labels have names other than LABEL_0, LABEL_1, ..., the defaults of transformers."""
    return any(name != f"LABEL_{place}" for place, name in enumerate(labels))


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
    The label list, and the id of every name.

    Args:
        names: split -> the names that occur in it.
        declared: the names of a `ClassLabel`, in their order.
        label_list: a saved model's labels. If it has only the default names (`has_names`), whole numbers in the data
            are places in it, and the names of as many labels in the data replace it.

    Raises:
        UserError: a label is not in `label_list`, such as a number where the model's labels have names; or no label of
            a split is in train.
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
        return labels, {name: place for place, name in enumerate(labels)}
    ids = {name: place for place, name in enumerate(label_list)}
    strange = sorted(present - set(ids))
    places = {str(place): place for place in range(len(label_list))}
    if strange and len(strange) == len(present) and present <= places.keys():
        if not has_names(label_list):
            return tuple(label_list), ids | places
        raise UserError(
            f"The labels are the numbers {', '.join(strange)}, and the model's labels are "
            f"{short_repr(list(label_list))}: which is which is unknown. Write the names in the data, such as "
            f"{label_list[0]!r} for 0, or train a new head: --ignore_mismatched_sizes"
        )
    if strange:
        raise UserError(
            f"The label {strange[0]!r} is not one of the model's {len(label_list)} labels, "
            f"{short_repr(list(label_list))}. Use these labels, or train a new head: --ignore_mismatched_sizes"
        )
    return tuple(label_list), ids


# ------ Numbers


def labels_of(cells: Mapping[str, Cells]) -> Iterator[tuple[str, int, Any]]:
    """Every label with its split and row."""
    for split, values in cells.items():
        for row, value in enumerate(values):
            if value is not None:
                yield split, row, value


def _map(cells: Mapping[str, Cells], change: Callable[[Any], Any]) -> dict[str, list[Any]]:
    """The labels after a change."""
    return {split: [None if cell is None else change(cell) for cell in values] for split, values in cells.items()}


def check_types(labels: Iterable[tuple[str, int, Any]], column: str, allowed: Sequence[type]) -> set[type]:
    """
    The types of labels.

    Args:
        labels: with their splits and rows (`labels_of`).

    Raises:
        UserError: a label has another type than those that are allowed, or labels have several; whole numbers and
            fractions can be mixed.
    """
    seen: dict[type, str] = {}
    for split, row, value in labels:
        if type(value) in seen:
            continue
        place = f"{row_ref(split, row)} has {short_repr(value)}"
        if type(value) not in allowed:
            names = ", ".join(kind.__name__ for kind in allowed)
            if isinstance(value, list) and [type(part) for part in value] == [int, int, str]:
                raise UserError(
                    f"Column {column!r}: {place}, a span of characters. A tagger learns from it: `modeling-star tag`."
                )
            raise UserError(f"Column {column!r}: {place}. Labels can be {names}; choose another --label_column_name")
        seen[type(value)] = place
        if len(seen) > 1 and seen.keys() != {int, float}:
            raise UserError(f"Column {column!r} has labels of mixed types: {', '.join(seen.values())}. Use one type.")
    return set(seen)


def problem_type_of(cells: Mapping[str, Cells], column: str) -> ProblemType:
    """The problem type by the labels of all labelled splits: lists, fractions, or classes."""
    types = check_types(labels_of(cells), column, (str, int, float, bool, list))
    if list in types:
        return "multi_label_classification"
    is_regression = float in types and any(is_fraction(value) for _, _, value in labels_of(cells))
    return "regression" if is_regression else "single_label_classification"


def encode_classes(
    cells: Mapping[str, Cells], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> Encoded:
    """One id per row."""
    check_types(labels_of(cells), column, (str, int, bool, float))
    for split, row, value in labels_of(cells):
        if is_fraction(value):
            raise UserError(
                f"{row_ref(split, row)}: the label {value!r} in column {column!r} is a fraction. Write "
                "--problem_type regression, or labels as whole numbers or text."
            )
    named = _map(cells, name_of)
    labels, ids = label_ids({split: set(values) - {None} for split, values in named.items()}, declared, label_list)
    return labels, _map(named, ids.__getitem__), Value("int64")


def encode_numbers(cells: Mapping[str, Cells], column: str) -> Encoded:
    """One float per row."""
    for split, row, value in labels_of(cells):
        is_number = type(value) in (int, float) and math.isfinite(value)
        # All are still texts if one of them is no number.
        if not (is_number or (isinstance(value, str) and _NUMBER.fullmatch(value))):
            raise UserError(
                f"{row_ref(split, row)}: the label {short_repr(value)} in column {column!r} is not a finite number. "
                "Correct it, or write --problem_type single_label_classification"
            )
    return (), _map(cells, float), Value("float32")


def encode_lists(
    cells: Mapping[str, Cells], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> Encoded:
    """A row of 0.0 and 1.0 with one place per label, from lists of labels or from such rows."""
    for split, row, items in labels_of(cells):
        if not isinstance(items, list) or any(item is None or item in NO_LABEL for item in items):
            raise UserError(
                f"{row_ref(split, row)}: column {column!r} has {short_repr(items)}. Several labels of a text are a "
                'list without gaps, e.g. ["sports", "politics"] or [0, 1, 1]'
            )
    items_of = ((split, row, item) for split, row, items in labels_of(cells) for item in items)
    check_types(items_of, column, (str, int, bool, float))
    rows = [items for _, _, items in labels_of(cells)]
    width = len(rows[0]) if rows else 0
    feature = List(Value("float32"))
    if not declared and width > 1 and all(len(items) == width and set(items) <= {0, 1} for items in rows):
        labels = tuple(label_list or map(str, range(width)))
        if len(labels) != width:
            raise UserError(f"Column {column!r} has lists of {width} places, but the model has {len(labels)} labels.")
        return labels, _map(cells, lambda items: list(map(float, items))), feature
    named = _map(cells, lambda items: set(map(name_of, items)))
    names = {split: set().union(*filter(None, values)) for split, values in named.items()}
    labels, ids = label_ids(names, declared, label_list)
    numbers = _map(named, lambda items: {ids[name] for name in items})
    return labels, _map(numbers, lambda items: [float(place in items) for place in range(len(labels))]), feature
