"""Texts with classes, several labels or a number: columns and labels, checked and encoded, and model inputs."""

import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from datasets import Dataset, DatasetDict, List, Value
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..models.configuration_encoder import PROBLEM_TYPES
from .columns import check_classes, check_columns, contents, find_classification_columns, rejected_rows, suggested
from .files import source_version
from .inspection import inspect_classification
from .labels import (
    IGNORE_INDEX,
    NO_LABEL,
    WHOLE,
    Cells,
    check_types,
    class_names,
    declared_names,
    has_dashes,
    label_cells,
    label_ids,
    labels_of,
    name_of,
    ordered,
    row_ref,
    short_repr,
)
from .splits import ROW, Labelled, check_train, drop_or_raise, replace_columns
from .tokenizers import length_limit, map_rows, warn_about_cuts
from .windows import shorten_all


logger = logging.getLogger(__name__)

ProblemType = Literal["single_label_classification", "multi_label_classification", "regression"]


@dataclass(frozen=True)
class ClassificationData(Labelled):
    """
    Texts, or pairs of texts, with labels.

    Attributes:
        splits: rows with `text_columns` and `label_column`: an id (single label), a list of 0.0 and 1.0 (multi-label)
            or a float (regression); a split without labels lacks `label_column`.
        text_columns: one column, or two for pairs.
        label_list: label names by their ids; empty for regression.
    """

    splits: DatasetDict
    text_columns: tuple[str, ...]
    label_column: str
    label_list: tuple[str, ...]
    problem_type: ProblemType

    @property
    def num_labels(self) -> int:
        """The width of a model's output: 1 for regression."""
        return 1 if self.problem_type == "regression" else len(self.label_list)

    def row_numbers(self, split: str) -> list[int]:
        """The number of each row of a split in the data as given, from 0."""
        return self.splits[split][ROW][:]

    def _ids(self, cell: Any) -> Iterable[int]:
        if self.problem_type == "multi_label_classification":
            return [index for index, is_label in enumerate(cell) if is_label]
        return [cell]


# ------ Classification


def prepare_classification(
    splits: DatasetDict,
    *,
    text_column_name: str | Sequence[str] | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
    problem_type: str | None = None,
    label_list: Sequence[str] | None = None,
    drop_empty: bool = False,
) -> ClassificationData:
    """
    Check every row of a classification data set and encode its labels as ids, rows of 0.0 and 1.0, or floats. A split
    in which every label is absent or -1 (GLUE's test splits) has no label column, unless -1 is a class of train or of
    the saved model. Rows without a label in a `ClassLabel` column (-1), or with the "-" of SNLI and CLUE, are omitted
    with a warning.

    Args:
        text_column_name, label_column_name: see `find_classification_columns` and `join_label_columns`.
        task_name: a GLUE task; "stsb" is regression.
        problem_type: one of `PROBLEM_TYPES`. Without it lists are several labels per text, fractions are regression,
            and texts, whole numbers and true/false are classes. Texts that are all numbers are read as such.
        label_list: a saved model's labels; without it they come from the data (see `prepare_tagging`).
        drop_empty: omit rows without a label or with a blank text, with a warning, instead of an error.
    """
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise UserError(f"--problem_type is {problem_type!r}. Write one of {', '.join(PROBLEM_TYPES)}, or omit it.")
    splits, label_columns = join_label_columns(splits, label_column_name, drop_empty)
    texts, label = find_classification_columns(splits, text_column_name, label_column_name)
    dropped = {split: rejected_rows(split, dataset, (*texts, label)) for split, dataset in splits.items()}
    for split, dataset in splits.items():
        dropped[split] |= _rows_without_text(split, dataset, texts, drop_empty, dropped[split])
    numbers = _label_values(splits, label, problem_type, is_score=task_name == "stsb", label_list=label_list)
    minus_ones = [is_minus_one(value) for value in numbers.get("train") or ()]
    minus_one_is_a_class = "-1" in (label_list or ()) or (any(minus_ones) and not all(minus_ones))
    cells: dict[str, Cells] = {}
    for split, values in numbers.items():
        if values is None or is_unlabelled(values, minus_one_is_a_class):
            continue
        missing = [row for row, value in enumerate(values) if value is None and row not in dropped[split]]
        unlabelled_rows = has_dashes(splits[split], label) or bool(class_names(splits[split], label))
        drop_or_raise(split, missing, f"no label in column {label!r}", drop_empty or unlabelled_rows)
        dropped[split].update(missing)
        cells[split] = [None if row in dropped[split] else value for row, value in enumerate(values)]
        if problem_type == "multi_label_classification":
            cells[split] = [split_labels(value) if isinstance(value, str) else value for value in cells[split]]
    check_train(splits, cells, label)
    detected = "regression" if task_name == "stsb" else problem_type_of(cells, label)
    kind = cast(ProblemType, problem_type or detected)
    if problem_type is None and kind == "single_label_classification" and not label_list:
        check_single_labels(cells, label)
        if "train" in cells and not declared_names(splits, label):
            _check_classes(splits["train"], cells["train"], texts, label)
            _drop_unseen(cells, dropped)
    if kind == "regression":
        labels, encoded, feature = encode_numbers(cells, label)
    else:
        encode = encode_lists if kind == "multi_label_classification" else encode_classes
        labels, encoded, feature = encode(cells, label, declared_names(splits, label), label_list or label_columns)
    result = {}
    for split, dataset in splits.items():
        keep = [row for row in range(len(dataset)) if row not in dropped[split]]
        columns = {label: (encoded.get(split), feature), ROW: (range(len(dataset)), Value("int64"))}
        result[split] = replace_columns(dataset, columns, keep)
    data = ClassificationData(DatasetDict(result), texts, label, labels, kind)
    inspect_classification(data.splits, texts, label, labels)
    return data


def _drop_unseen(cells: dict[str, Cells], dropped: Mapping[str, set[int]]) -> None:
    """Omit rows of other splits whose label train lacks, as no row teaches it."""
    known = {name_of(value) for value in cells["train"] if value is not None}
    for split, values in cells.items():
        unseen = {row for row, value in enumerate(values) if value is not None and name_of(value) not in known}
        names = {name_of(values[row]) for row in unseen}
        if unseen and any(value is not None and row not in unseen for row, value in enumerate(values)):
            logger.warning(
                "%s: %s rows with the label %s are omitted, since train has no such label. Correct the label, or add "
                "such rows to the training file.",
                *(split, f"{len(unseen):,}", short_repr(ordered(names))),
            )
            dropped[split].update(unseen)
            cells[split] = [None if row in unseen else value for row, value in enumerate(values)]


def _check_classes(train: Dataset, cells: Cells, texts: Sequence[str], label: str) -> None:
    """Check that the training labels are not texts or identifiers, and name the columns that look like both."""
    kept = [row for row, cell in enumerate(cells) if cell is not None]
    rows = list(zip(*(train[name][:] for name in texts), strict=True))
    long, classes = contents(train)
    if label in long and classes:
        advice = f"`--text_column_name {label} --label_column_name {classes[0]}`"
    else:
        advice = f"Name the labels{suggested(train, '--label_column_name', (*texts, label))}"
    check_classes(
        [cells[row] for row in kept],
        [rows[row] for row in kept],
        f"Column {label!r} has",
        f"{advice}; or write --problem_type regression (numbers) or single_label_classification (classes).",
    )


def _label_values(
    splits: DatasetDict,
    label: str,
    problem_type: str | None,
    is_score: bool,
    label_list: Sequence[str] | None,
) -> dict[str, Cells | None]:
    """The labels of each split, with texts of numbers as numbers, and `None` for -100 where it is not a score."""
    cells = {split: label_cells(dataset, label) for split, dataset in splits.items()}
    is_class = problem_type == "single_label_classification"
    is_score = is_score or problem_type == "regression"
    numbers = texts_as_numbers(cells, fractions=not is_class, label_list=label_list)
    if is_score or str(IGNORE_INDEX) in (label_list or ()):
        return numbers
    types = (int, str, float) if is_class else (int, str)
    return {
        split: values and [None if type(value) in types and value in NO_LABEL else value for value in values]
        for split, values in numbers.items()
    }


def _rows_without_text(
    split: str, dataset: Dataset, columns: Sequence[str], drop_empty: bool, omitted: Collection[int]
) -> set[int]:
    """The rows to drop: those without a text, and with `drop_empty` those with a blank one; none of `omitted`."""
    empty: list[int] = []
    blank: list[int] = []
    for row, texts in enumerate(zip(*(dataset[column][:] for column in columns), strict=True)):
        if row in omitted:
            continue
        if any(text is not None and not isinstance(text, str) for text in texts):
            raise UserError(
                f"{row_ref(split, row)} has {short_repr(texts)} in {', '.join(columns)}, not a text. Name the column "
                "of texts: `--text_column_name text`"
            )
        if None in texts:
            empty.append(row)
        elif not all(map(str.strip, texts)):
            blank.append(row)
    lack = f"no text in column {' or '.join(map(repr, columns))}"
    if drop_empty:
        empty, blank = sorted([*empty, *blank]), []
    drop_or_raise(split, empty, lack, drop_empty)
    if blank:
        logger.warning("%d rows of the %s split have %s; omit them with --drop_empty", len(blank), split, lack)
    return set(empty)


Encoded = tuple[tuple[str, ...], dict[str, list[Any]], Any]
"""The label list, split -> numbers row by row, and their feature."""
_MARKS = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
_SEPARATORS = "|；;，、,"
_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d*)?([eE][+-]?\d+)?")
_NUMBERS = re.compile(r"\d+( \d+)+")


def is_minus_one(value: Any) -> bool:
    """Whether a label is GLUE's mark of an unlabelled row."""
    return value in (-1, "-1")


def is_unlabelled(cells: Cells | None, minus_one_is_a_class: bool = False) -> bool:
    """Whether no row of a split has a label, or every label is GLUE's -1."""
    if cells is None or all(value is None for value in cells):
        return True
    return not minus_one_is_a_class and all(map(is_minus_one, cells))


def texts_as_numbers(
    cells: Mapping[str, Cells | None], fractions: bool, label_list: Sequence[str] | None = None
) -> dict[str, Cells | None]:
    """Labels as numbers if all are texts of numbers; "nan" among them is none, `label_list` are texts."""
    texts = {value for values in cells.values() for value in values or () if isinstance(value, str)}
    written = {text for text in texts if text.lower() != "nan"}
    if not written or not all(map(_NUMBER.fullmatch, written)) or written <= {*(label_list or ())}:
        return dict(cells)
    numbers: dict[str, int | float | None] = {
        text: int(text) if WHOLE.fullmatch(text) else float(text) for text in written
    }
    if not fractions and any(is_fraction(number) for number in numbers.values()):
        return dict(cells)
    numbers |= dict.fromkeys(texts - written)
    return {
        split: values and [numbers[value] if isinstance(value, str) else value for value in values]
        for split, values in cells.items()
    }


def is_fraction(value: Any) -> bool:
    """Whether a label is a number with a fraction: 5.0 has none."""
    return isinstance(value, float) and not value.is_integer()


def split_labels(text: str) -> list[str]:
    """The labels of a cell: "a, b", "a|b" and "a; b" are two; only the first of `|;,` in it counts. So are "2 25"."""
    separator = next((mark for mark in _SEPARATORS if mark in text), None)
    if separator is None and _NUMBERS.fullmatch(text):
        return text.split()
    return [part.strip() for part in text.split(separator or ",") if part.strip()]


def check_single_labels(cells: Mapping[str, Cells], column: str) -> None:
    """Check that classes are not several labels in one cell, as "2,25" or "sports|politics"."""
    names = {value for _, _, value in labels_of(cells) if isinstance(value, str)}
    parts = {name: split_labels(name) for name in names}
    several = sorted(name for name in names if len(parts[name]) > 1)
    counts = Counter(part for name in names for part in {*parts[name]})
    are_numbers = all(WHOLE.fullmatch(part) for part in counts)
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
    Join columns of 0 and 1, one per label, named with commas (`toxic,insult`), to a column of lists; and the names, or
    `None`. A row whose cells are all empty or -1 has no label; with `drop_empty` one with an empty cell neither.
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
            index = marks.index(None)
            raise UserError(
                f"{row_ref(split, row)}: column {names[index]!r} has {short_repr(cells[index])}. Each column of "
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


def _map(cells: Mapping[str, Cells], change: Callable[[Any], Any]) -> dict[str, list[Any]]:
    """The labels after a change."""
    return {split: [None if cell is None else change(cell) for cell in values] for split, values in cells.items()}


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
                f"{row_ref(split, row)}: the label {short_repr(value)} in column {column!r} is not a number such "
                "as 1.5. Correct it, or write --problem_type single_label_classification"
            )
    return (), _map(cells, float), Value("float32")


def encode_lists(
    cells: Mapping[str, Cells], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> Encoded:
    """A row of 0.0 and 1.0 with a column per label, from lists of labels or from such rows."""
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
            raise UserError(f"Column {column!r} has lists of {width} numbers, but the model has {len(labels)} labels.")
        return labels, _map(cells, lambda items: list(map(float, items))), feature
    named = _map(cells, lambda items: set(map(name_of, items)))
    names = {split: set().union(*filter(None, values)) for split, values in named.items()}
    labels, ids = label_ids(names, declared, label_list)
    if not labels:
        raise UserError(f"No row has a label, as all lists of column {column!r} are empty: name another column.")
    numbers = _map(named, lambda items: {ids[name] for name in items})
    return labels, _map(numbers, lambda items: [float(number in items) for number in range(len(labels))]), feature


def tokenize_texts(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    text_column: str = "text",
    pair_column: str | None = None,
    *,
    label_column: str | None = None,
    max_seq_length: int | None = None,
    split: str = "data",
) -> Dataset:
    """
    Texts, or pairs of them, as a row of model inputs each; `label_column` is copied into `labels`. Rows of more tokens
    than `max_seq_length`, or than the tokenizer's limit, are cut, of a pair the longer text first, with one warning.
    """
    columns = [text_column] if pair_column is None else [text_column, pair_column]
    limit = length_limit(tokenizer, max_seq_length)
    encode = _TextEncoder(tokenizer, tuple(columns), label_column, limit)
    features = map_rows(dataset, encode, f"Tokenizing {split}")
    return warn_about_cuts(features, split, limit, "Raise max_seq_length to keep them, if the model takes more.")


@dataclass
class _TextEncoder:
    """Encodes a batch of rows for `tokenize_texts`. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    columns: tuple[str, ...]
    label_column: str | None
    limit: int | None
    version: str = source_version(__name__, shorten_all.__module__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        texts = [shorten_all(batch[column], self.tokenizer) for column in self.columns]
        # Without a limit first, to count the tokens that are cut.
        encoding = self.tokenizer(*texts, verbose=False)
        lengths = [len(ids) for ids in encoding["input_ids"]]
        cut = [max(0, length - (self.limit or length)) for length in lengths]
        if any(cut):
            encoding = self.tokenizer(*texts, truncation=True, max_length=self.limit)
        output = {name: encoding[name] for name in self.tokenizer.model_input_names if name in encoding}
        if self.label_column is not None:
            output["labels"] = batch[self.label_column]
        return output | {"cut_tokens": cut}
