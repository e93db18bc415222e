"""Labels as they stand in a data set -> label names -> numbers, the same in all splits.

A label has a kind (text, whole number, number, true/false, or a list of these) and a name: the text itself, the number
written out, or what a `ClassLabel` calls it. Ids are places in the list of names.
"""

import ast
import io
import itertools
import logging
import math
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from datasets import ClassLabel, Dataset, DatasetDict, List, Value

from ..errors import UserError
from ..models.crf import ENTITY_PREFIXES, IGNORE_INDEX, entity_tag


logger = logging.getLogger(__name__)

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]

IGNORE_INDEX = IGNORE_INDEX
"""A tag that no loss and no metric counts; torch's cross entropy skips it."""

GOLD_LABEL = "gold_label"
"""The column of SNLI's and MultiNLI's own files that holds "-" where the annotators did not agree."""

_OF_INFERENCE = {"entailment", "neutral", "contradiction"}

_PREFIX = "".join(ENTITY_PREFIXES)
OTHER_SCHEME = re.compile(rf"[{_PREFIX}][_.:/|]\S+|[^\W\d]{{2,}}[-_.:/|][{_PREFIX}]")
"""What looks like an entity's label, and is none that `entity_tag` knows."""

_SIDE_BY_SIDE = re.compile(r"""['"]\s+['"]""")
_WHOLE = re.compile(r"-?(0|[1-9]\d*)")
_COMMA_NUMBER = re.compile(r"-?\d+,\d+")
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?")

TEXT, WHOLE, NUMBER, TRUTH, LIST = "text", "a whole number", "a number", "true/false", "a list"
_KINDS: dict[type, str] = {str: TEXT, int: WHOLE, float: NUMBER, bool: TRUTH, list: LIST}

Cells = Sequence[Any]
"""The labels of one split, row by row; None where a row has none."""


# Words for messages


def row_ref(split: str, row: int) -> str:
    """Rows are counted from 1, as the lines of a file."""
    return f"{split} row {row + 1}"


def short_repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 120 else text[:117] + "..."


def kind_of(value: Any) -> str:
    return _KINDS.get(type(value), f"of type {type(value).__name__}")


# Cells


def class_names(dataset: Dataset, column: str) -> list[str]:
    """The names of a `ClassLabel` column, or of a list of `ClassLabel`s; [] for other columns."""
    feature = dataset.features.get(column)
    inner = getattr(feature, "feature", feature)
    return list(inner.names or []) if isinstance(inner, ClassLabel) else []


def has_dashes(dataset: Dataset, column: str) -> bool:
    """
    Whether "-" means that the annotators did not agree: in a column "gold_label", and beside SNLI's three labels, as
    in CLUE's files (CMNLI, OCNLI), whose column is called "label".
    """
    if column == GOLD_LABEL or column not in dataset.column_names:
        return column == GOLD_LABEL
    names = {value.strip() for value in dataset[column][:] if isinstance(value, str)} - {""}
    return "-" in names and names > {"-"} and names <= {"-"} | _OF_INFERENCE


def label_cells(dataset: Dataset, column: str) -> list[Any] | None:
    """The labels of a split, names where the column is a `ClassLabel`; None without the column.

    A cell is None where blank, and where its "-" says that there is none (`has_dashes`). Blanks around a text are no
    part of a label.

    Raises:
        UserError: an id outside the `ClassLabel`'s names.
    """
    if column not in dataset.column_names:
        return None
    names = class_names(dataset, column)
    dashes = has_dashes(dataset, column)

    def name(value: Any) -> Any:
        if isinstance(value, list):
            return [name(item) for item in value]
        if not names or value is None or value == IGNORE_INDEX:
            return value.strip() if isinstance(value, str) else value
        if not -1 <= value < len(names):
            raise UserError(
                f"Column {column!r} holds the id {value}, but has {len(names)} names: {short_repr(names)}."
            )
        return names[value] if value >= 0 else None

    def cell(value: Any) -> Any:
        value = value.strip() if isinstance(value, str) else value
        if value == "" or (isinstance(value, float) and math.isnan(value)) or (dashes and value == "-"):
            return None
        if isinstance(value, str) and not names:
            written = literal_list(value)
            return value if written is None else name(written)
        return name(value)

    return [cell(value) for value in dataset[column][:]]


def literal_list(text: str) -> list[Any] | None:
    """
    A list written into a csv cell, by Python or as json ("['It', 'rains']"); None for other texts.

    Raises:
        UserError: numpy wrote it, ['It' 'rains'], which Python reads as the one text 'Itrains'.
    """
    if text[:1] != "[" or text[-1:] != "]":
        return None
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if _SIDE_BY_SIDE.search(text) and _has_joined_texts(text):
        raise UserError(
            f"A cell holds {short_repr(text)}, an array as numpy writes it, whose texts nothing parts: write lists before "
            "the file, df[column] = df[column].map(list), or .jsonl or .parquet in the place of .csv"
        )
    return value if isinstance(value, list) else None


def _has_joined_texts(literal: str) -> bool:
    """Whether two texts of a Python literal stand beside each other, which makes them one."""
    kinds = [token.type for token in tokenize.generate_tokens(io.StringIO(literal).readline)]
    kinds = [kind for kind in kinds if kind != tokenize.NL]
    return any(pair == (tokenize.STRING, tokenize.STRING) for pair in itertools.pairwise(kinds))


def is_unlabelled(cells: Cells | None, minus_one_is_a_class: bool = False) -> bool:
    """Whether no row has a label, or every label is GLUE's -1."""
    if cells is None or all(value is None for value in cells):
        return True
    return not minus_one_is_a_class and all(map(is_minus_one, cells))


def is_minus_one(value: Any) -> bool:
    """GLUE's label of rows that have none; in data of one's own it may be a class, beside 1 say."""
    return value in (-1, "-1")


def texts_as_numbers(cells: Mapping[str, Cells | None], fractions: bool) -> dict[str, Cells | None]:
    """Labels that are texts, but all of them numbers, as numbers: csv files have nothing else.

    Args:
        fractions: whether "3.5" counts as a number, or only "3".
    """
    texts = {value for values in cells.values() for value in values or () if isinstance(value, str)}
    if texts and all(_WHOLE.fullmatch(text) for text in texts):
        numbers: dict[str, int | float] = {text: int(text) for text in texts}
    elif fractions and texts and all(_NUMBER.fullmatch(text) for text in texts):
        numbers = {text: float(text) for text in texts}
    else:
        return dict(cells)
    return {
        split: values and [numbers[value] if isinstance(value, str) else value for value in values]
        for split, values in cells.items()
    }


def tell_of_numbers(cells: Mapping[str, Cells], column: str) -> None:
    """
    Warn where nearly all labels are numbers, with fractions among them, and a few are not, or where all have a comma
    for a point: all become classes.
    """
    texts = [
        (split, row, value) for split, rows in cells.items() for row, value in enumerate(rows) if value is not None
    ]
    if not all(isinstance(value, str) for _, _, value in texts):
        return
    commas = [value for _, _, value in texts if _COMMA_NUMBER.fullmatch(value)]
    if commas and all(_COMMA_NUMBER.fullmatch(value) or _WHOLE.fullmatch(value) for _, _, value in texts):
        logger.warning(
            "The labels in column %r, such as %r, are taken for names of classes. Where they are numbers, write "
            "points for the commas; several labels a text are --problem_type multi_label_classification.",
            column,
            commas[0],
        )
        return
    others = [(split, row, value) for split, row, value in texts if not _NUMBER.fullmatch(value)]
    fractions = any(_NUMBER.fullmatch(value) and not _WHOLE.fullmatch(value) for _, _, value in texts)
    if fractions and 0 < 10 * len(others) <= len(texts):
        some = ", ".join(f"{row_ref(split, row)} {short_repr(value)}" for split, row, value in others[:3])
        logger.warning(
            "%d of the %d labels in column %r are numbers, and these are not: %s. So all are taken for names of "
            "classes. To learn numbers, correct these.",
            len(texts) - len(others),
            len(texts),
            column,
            some,
        )


# Kinds


class LabelTypeChecker:
    """Sees every label and stops at the first of a second kind."""

    def __init__(self, column: str, allowed: Sequence[str]) -> None:
        self.column = column
        self.allowed = allowed
        self.seen: dict[str, tuple[str, Any]] = {}

    def check(self, split: str, row: int, value: Any) -> None:
        """
        Raises:
            UserError: the label is of a kind that is not allowed, or the labels before it are of another.
        """
        kind = _KINDS.get(type(value), "")
        if kind in self.seen:
            return
        if kind not in self.allowed:
            raise UserError(
                f"{row_ref(split, row)}: the label {short_repr(value)} in column {self.column!r} is {kind_of(value)}. "
                f"A label may be {', '.join(self.allowed)}. Name another column with --label_column_name, or write "
                "the labels as text."
            )
        for other, (place, example) in self.seen.items():
            if {kind, other} != {WHOLE, NUMBER}:
                raise UserError(
                    f"Column {self.column!r} holds labels of mixed types: {place} has {short_repr(example)} ({other}), "
                    f"{row_ref(split, row)} has {short_repr(value)} ({kind}). Write all as text or all as numbers."
                )
        self.seen[kind] = (row_ref(split, row), value)


# Names


def ordered(names: set[str]) -> list[str]:
    """Numbers by size; tags with "O" first, then by type and B before I; others by alphabet."""
    if all(_WHOLE.fullmatch(name) for name in names):
        return sorted(names, key=int)

    def key(name: str) -> tuple[bool, str, int, str]:
        tag = entity_tag(name)
        if name == "O" or tag is None:
            return name != "O", name, -1, name
        return True, tag[1], _PREFIX.index(name[0]), name

    return sorted(names, key=key)


def name_of(value: Any) -> str:
    """What a label is called: 3 and 3.0 are "3"."""
    return str(int(value)) if type(value) is float and value.is_integer() else str(value)


def _spelt_alike(names: Iterable[str]) -> list[str]:
    """Labels that are one but for capitals, each group as a text."""
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        groups.setdefault(name.casefold(), []).append(name)
    return [" and ".join(map(repr, group)) for group in groups.values() if len(group) > 1]


def listed_counts(counts: Mapping[str, int], most: int = 12) -> str:
    """`negative (183), positive (217)`; of many, the most frequent ones."""
    names = list(counts) if len(counts) <= most else sorted(counts, key=lambda name: -counts[name])[:most]
    told = ", ".join(f"{name} ({counts[name]:,})" for name in names)
    return told if len(names) == len(counts) else f"{told} and {len(counts) - len(names)} more"


def label_ids(
    names: Mapping[str, set[str]], declared: Sequence[str], label_list: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """The label list and the id of every name.

    Args:
        names: split -> the names that occur in it.
        declared: the names of a `ClassLabel`, whose order is kept.
        label_list: a saved model's labels, which the data must keep to. Data that hold whole numbers instead of its
            names mean places in it. Where it has no names for them, LABEL_0 and so on, those of as many labels of the
            data count.

    Raises:
        UserError: a label is not in `label_list`.
    """
    found = {name for split in names.values() for name in split}
    for split, here in names.items():
        unseen = sorted(here - names.get("train", here))
        if unseen:
            logger.warning(
                "%d labels of the %s split never occur in train, so a model cannot learn them: %s. What has one of "
                "them counts as wrong, and a model that is trained here has an output for each: correct what is "
                "misspelt, give train some examples, or take them out of the %s split",
                len(unseen),
                split,
                ", ".join(unseen[:20]),
                split,
            )
    for alike in _spelt_alike(found):
        logger.warning("The labels %s differ in capitals alone, and are read as different ones", alike)
    own = (*declared, *ordered(found - set(declared)))
    nameless = label_list is not None and not has_names(label_list) and len(own) == len(label_list)
    if label_list is None or (nameless and found - set(label_list)):
        return own, {name: place for place, name in enumerate(own)}
    ids = {name: place for place, name in enumerate(label_list)}
    strange = sorted(found - set(ids))
    numbers = not found & set(ids) and all(_WHOLE.fullmatch(name) for name in found)
    if strange and numbers and all(0 <= int(name) < len(label_list) for name in found):
        return tuple(label_list), ids | {name: int(name) for name in found}
    if strange:
        split = next(split for split, here in names.items() if strange[0] in here)
        raise UserError(
            f"The label {strange[0]!r} of the {split} split is not among the model's {len(label_list)} labels "
            f"({short_repr(list(label_list))}); {len(strange)} of the data's {len(found)} labels are not. Use data with "
            "the model's labels, or train a new head: --ignore_mismatched_sizes beside --train_file"
        )
    return tuple(label_list), ids


def has_names(labels: Sequence[str]) -> bool:
    """Whether labels are called something, not LABEL_0, LABEL_1, ... as transformers does where nothing is known."""
    return any(name != f"LABEL_{place}" for place, name in enumerate(labels))


def declared_names(splits: DatasetDict, column: str) -> list[str]:
    return list(dict.fromkeys(name for dataset in splits.values() for name in class_names(dataset, column)))


# From labels to numbers


def problem_type_of(cells: Mapping[str, Cells], column: str) -> ProblemType:
    """What the labels of all labelled splits say: lists, floats, or classes.

    Raises:
        UserError: labels of mixed or unknown kinds.
    """
    kinds = LabelTypeChecker(column, (TEXT, WHOLE, NUMBER, TRUTH, LIST))
    for split, values in cells.items():
        for row, value in enumerate(values):
            if value is not None:
                kinds.check(split, row, value)
    if LIST in kinds.seen:
        return "multi_label_classification"
    return "regression" if NUMBER in kinds.seen else "single_label_classification"


Encoded = tuple[tuple[str, ...], dict[str, list[Any]], Any]
"""The label list, split -> numbers row by row, and the feature that they are stored as."""


def encode_classes(
    cells: Mapping[str, Cells], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> Encoded:
    """One id a row."""
    kinds = LabelTypeChecker(column, (TEXT, WHOLE, TRUTH, NUMBER))
    for split, values in cells.items():
        for row, value in enumerate(values):
            if value is None:
                continue
            kinds.check(split, row, value)
            if type(value) is float and not value.is_integer():
                raise UserError(
                    f"{row_ref(split, row)}: the label {value!r} in column {column!r} is a fraction, not a class. "
                    "Write --problem_type regression, or labels as whole numbers or text."
                )
    named = {split: [None if value is None else name_of(value) for value in values] for split, values in cells.items()}
    names = {split: {name for name in values if name is not None} for split, values in named.items()}
    labels, ids = label_ids(names, declared, label_list)
    if len(labels) == 1:
        logger.warning("Every label in column %r is %r: there is nothing to learn.", column, labels[0])
    encoded = {split: [None if name is None else ids[name] for name in values] for split, values in named.items()}
    return labels, encoded, Value("int64")


def encode_numbers(cells: Mapping[str, Cells], column: str) -> Encoded:
    """One float a row."""
    for split, values in cells.items():
        for row, value in enumerate(values):
            is_number = type(value) in (int, float) and math.isfinite(value)
            # Where one is none, all are still texts.
            if value is not None and not (is_number or (isinstance(value, str) and _NUMBER.fullmatch(value))):
                advice = "Correct it, or write --problem_type single_label_classification"
                if isinstance(value, str) and _COMMA_NUMBER.fullmatch(value):
                    advice = f"Where the comma is a decimal one, write a point, {value.replace(',', '.')}"
                raise UserError(
                    f"{row_ref(split, row)}: the label {short_repr(value)} in column {column!r} is {kind_of(value)}, and "
                    f"regression wants a finite number. {advice}"
                )
    encoded = {split: [None if value is None else float(value) for value in values] for split, values in cells.items()}
    return (), encoded, Value("float32")


def encode_lists(
    cells: Mapping[str, Cells], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> Encoded:
    """A row of 0.0 and 1.0, one place a label, from lists of labels or from such rows."""
    lists = {
        split: [_as_labels(split, row, value, column) for row, value in enumerate(values)]
        for split, values in cells.items()
    }
    kinds = LabelTypeChecker(column, (TEXT, WHOLE, TRUTH, NUMBER))
    for split, values in lists.items():
        for row, items in enumerate(values):
            for item in items or ():
                kinds.check(split, row, item)
                if item in (IGNORE_INDEX, str(IGNORE_INDEX)):
                    raise UserError(
                        f"{row_ref(split, row)}: column {column!r} holds {short_repr(items)}, where {IGNORE_INDEX} is no label: "
                        "leave the row out, or write which labels it has."
                    )
    width = _vector_width([items for values in lists.values() for items in values if items is not None])
    feature = List(Value("float32"))
    if width and not declared:
        labels = tuple(label_list or (str(place) for place in range(width)))
        if len(labels) != width:
            raise UserError(
                f"The rows of column {column!r} have {width} places, but the model has {len(labels)} labels "
                f"({short_repr(list(labels))}). Use data with the model's labels, or train a new head: "
                "--ignore_mismatched_sizes beside --train_file"
            )
        encoded = {split: [items and [float(x) for x in items] for items in values] for split, values in lists.items()}
        return labels, encoded, feature
    names = {split: {name_of(x) for items in values for x in items or ()} for split, values in lists.items()}
    labels, ids = label_ids(names, declared, label_list)

    def multi_hot(items: list[Any] | None) -> list[float] | None:
        chosen = {ids[name_of(x)] for x in items or ()}
        return None if items is None else [float(place in chosen) for place in range(len(labels))]

    return labels, {split: [multi_hot(items) for items in values] for split, values in lists.items()}, feature


def split_labels(text: str) -> list[str]:
    """
    The labels of one cell: "sports, politics", "sports|politics" and "sports; politics" are two. The first of these
    marks that it holds, in the order `|`, `;`, `,` and their Chinese forms, parts them: a label of "arts, crafts|law"
    may hold a comma.
    """
    mark = next((mark for mark in "|；;，、," if mark in text), ",")
    return [part.strip() for part in text.split(mark) if part.strip()]


def _as_labels(split: str, row: int, value: Any, column: str) -> list[Any] | None:
    if value is None or (isinstance(value, list) and all(item is not None for item in value)):
        return value
    raise UserError(
        f"{row_ref(split, row)}: the label {short_repr(value)} in column {column!r} is {kind_of(value)}, and several labels "
        'a text are written as a list without gaps, e.g. ["sports", "politics"] or [0, 1, 1]'
    )


def _vector_width(rows: list[list[Any]]) -> int:
    """The length of the rows where they are 0/1 vectors, else 0. (Lists of ids differ in length or hold others.)"""
    widths = {len(items) for items in rows}
    if len(widths) != 1 or max(widths) < 2:
        return 0
    return widths.pop() if all(x in (0, 1) for items in rows for x in items) else 0
