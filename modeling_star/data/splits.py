"""Data sets for run_ner.py and run_glue.py: files or Hub names -> splits, columns, labels as numbers.

    splits = load_splits(files={"train": "train.jsonl", "test": "test.conll.gz"})
    data = prepare_tagging(splits)                # or prepare_classification(splits)
    splits = hold_out(data.splits, 0.1, seed=1)   # after the check: errors name the rows of the file
    train = cap(splits["train"], 1000)

Nothing is tokenized here and nothing here knows a model. Rows are numbered from 1 in messages, as lines are.
"""

import logging
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, DatasetDict, List, Value, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import UserError
from ..models.configuration_encoder import PROBLEM_TYPES
from ..models.crf import entity_tag
from .columns import find_classification_columns, find_tagging_columns, is_text, task_to_keys
from .label_columns import join_label_columns
from .labels import (
    IGNORE_INDEX,
    OTHER_SCHEME,
    TEXT,
    WHOLE,
    Cells,
    LabelTypeChecker,
    ProblemType,
    class_names,
    declared_names,
    encode_classes,
    encode_lists,
    encode_numbers,
    has_dashes,
    is_minus_one,
    is_unlabelled,
    label_cells,
    label_ids,
    listed_counts,
    literal_list,
    name_of,
    problem_type_of,
    row_ref,
    short_repr,
    split_labels,
    tell_of_numbers,
    texts_as_numbers,
)
from .readers import read_file


logger = logging.getLogger(__name__)


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
        UserError: there is a validation split already, no train split, too few rows or no proper fraction.
    """
    if "validation" in splits:
        raise UserError("There is a validation split already: leave --validation_fraction away.")
    if "train" not in splits or len(splits["train"]) < 2:
        raise UserError(
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
        UserError: it is no part of a whole, nor 0, which holds out nothing.
    """
    if not 0 <= fraction < 1:
        raise UserError(
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
        raise UserError(
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
        raise UserError(
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


_VALIDATION_NAMES = ("dev", "val", "valid")

# Of the words and labels that are shown before training, and the rows that are looked at for columns in another order.
_WORDS_TOLD, _LABELS_TOLD, _ROWS_LOOKED_AT = 4, 12, 100
_ROWS_OF_MANY = 20
# More rows than these, of one word each, are no sentences.
_WORDS_ALONE = 20

_NO_TAG = (IGNORE_INDEX, str(IGNORE_INDEX))  # in a csv everything is text

_ROW = "row_in_data"
"""Where a row stood before any was left out, or held out for validation."""


# Results


@dataclass(frozen=True)
class TaggingData:
    """Sentences with one tag a token.

    Attributes:
        splits: rows with `text_column` (list of words) and `label_column` (list of ids, or -100); a split without
            labels lacks `label_column`.
        label_list: tag names; their places are the ids.
    """

    splits: DatasetDict
    text_column: str
    label_column: str
    label_list: tuple[str, ...]

    @property
    def label2id(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.label_list)}

    @property
    def id2label(self) -> dict[int, str]:
        return dict(enumerate(self.label_list))

    def is_labelled(self, split: str) -> bool:
        return self.label_column in self.splits[split].column_names

    def counts(self, split: str) -> dict[str, int]:
        """How often each label occurs in a labelled split, in the order of `label_list`."""
        found = Counter(tag for tags in self.splits[split][self.label_column][:] for tag in tags)
        return {name: found[index] for index, name in enumerate(self.label_list)}


@dataclass(frozen=True)
class ClassificationData:
    """Texts, or pairs of texts, with labels.

    Attributes:
        splits: rows with `text_columns` and `label_column`: an id (single label), a list of 0.0 and 1.0 (multi-label)
            or a float (regression); a split without labels lacks `label_column`. Each row keeps its place in the data
            as they were given (`places`).
        text_columns: one column, or two for pairs.
        label_list: label names, whose places are the ids; empty for regression.
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

    @property
    def label2id(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.label_list)}

    @property
    def id2label(self) -> dict[int, str]:
        return dict(enumerate(self.label_list))

    def is_labelled(self, split: str) -> bool:
        return self.label_column in self.splits[split].column_names

    def places(self, split: str) -> list[int]:
        """Where each row of a split stood in the data as they were given, from 0."""
        return self.splits[split][_ROW][:]

    def counts(self, split: str) -> dict[str, int]:
        """How often each label occurs in a labelled split; empty for regression."""
        if self.problem_type == "regression":
            return {}
        cells = self.splits[split][self.label_column][:]
        if self.problem_type == "multi_label_classification":
            return {name: int(sum(row[i] for row in cells)) for i, name in enumerate(self.label_list)}
        found = Counter(cells)
        return {name: found[index] for index, name in enumerate(self.label_list)}


# Splits


def load_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    files: Mapping[str, str | Path | None] | None = None,
    *,
    cache_dir: str | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    column_names: Sequence[str] | None = None,
) -> DatasetDict:
    """A data set of the Hub (or of a local folder) by name, or local files, one a split.

    Args:
        dataset_name: as in `datasets.load_dataset`.
        dataset_config_name: its configuration, e.g. "cola" of "nyu-mll/glue".
        files: split -> path (None: no such split). Every file may be of another format; see `data_files.FORMATS`.
        cache_dir, token, revision: as in `datasets.load_dataset`.
        column_names: of files without a header line; see `data_files.read_file`.

    Returns:
        The splits; one called dev, val or valid comes back as "validation".

    Raises:
        UserError: nothing was named, or it is absent, empty or out of reach.
        UserError: both kinds were named, or a file's content is not of its format.
    """
    paths = {split: path for split, path in (files or {}).items() if path is not None}
    if dataset_name and paths:
        raise UserError(
            f"Both the data set {dataset_name!r} and files ({', '.join(map(str, paths.values()))}) were given. Write "
            "either --dataset_name or --train_file, --validation_file and --test_file."
        )
    if dataset_name:
        splits = load_named(dataset_name, dataset_config_name, cache_dir=cache_dir, token=token, revision=revision)
    elif paths:
        splits = DatasetDict(
            {split: read_file(path, cache_dir, column_names=column_names) for split, path in paths.items()}
        )
    else:
        raise UserError("No data was given. Write --dataset_name NAME, or --train_file train.jsonl and so on.")
    return with_validation_name(splits)


def with_validation_name(splits: Any) -> Any:
    """The splits; one called dev, val or valid is called "validation", where none is already."""
    for name in _VALIDATION_NAMES:
        if name in splits and "validation" not in splits:
            splits["validation"] = splits.pop(name)
    return splits


def load_named(name: str, config: str | None = None, **options: Any) -> Any:
    """The splits of a data set of the Hub, or of a local folder.

    Args:
        name, config: as in `datasets.load_dataset`.
        options: likewise: cache_dir, token, revision, streaming.

    Raises:
        UserError, UserError: as in `load_splits`.
    """
    full_name = name if config is None else f"{name} ({config})"
    try:
        return load_dataset(name, config, **options)
    except (ConnectionError, FileNotFoundError) as error:
        raise UserError(
            f"The data set {full_name} could not be loaded: {error}. Check --dataset_name and --dataset_config_name; "
            "without a network name local files: --train_file train.jsonl --validation_file validation.jsonl"
        ) from error
    except DatasetsError as error:  # what went wrong in a file is its cause
        raise UserError(
            f"The data set {full_name} could not be read: {error.__cause__ or error} Correct the file, or name files that "
            "are read and checked line by line: --train_file train.jsonl"
        ) from error
    except RuntimeError as error:  # "Dataset scripts are no longer supported"
        raise UserError(
            f"The data set {full_name} could not be loaded: {error}. A data set that is a script has a parquet copy: "
            "write --dataset_revision refs/convert/parquet"
        ) from error
    except ValueError as error:  # a configuration is missing or unknown: the text lists them
        raise UserError(f"The data set {full_name} could not be loaded: {error}") from error


def take_first(dataset: Dataset, max_samples: int | None) -> Dataset:
    """The first `max_samples` rows; all of them for None.

    Raises:
        UserError: `max_samples` is below 1.
    """
    if max_samples is None:
        return dataset
    if max_samples < 1:
        raise UserError(f"The number of samples is {max_samples}; write 1 or more, or leave it away for all rows.")
    return dataset.select(range(min(max_samples, len(dataset))))


# Rows


def drop_or_raise(split: str, rows: Sequence[int], lack: str, drop: bool) -> None:
    """Rows that lack something: an error at the first, or one warning for all where they may be left out."""
    if not rows:
        return
    if not drop:
        raise UserError(
            f"{row_ref(split, rows[0])} has {lack}; there are {len(rows)} such rows. Fill them, or leave them out: "
            "write --drop_empty"
        )
    logger.warning("%d rows of the %s split are left out: %s (first: row %d)", len(rows), split, lack, rows[0] + 1)


def check_train(splits: DatasetDict, labelled: Iterable[str], column: str) -> None:
    if "train" in splits and "train" not in labelled:
        raise UserError(
            f"No row of the train split has a label in column {column!r}. The columns are "
            f"{', '.join(map(repr, splits['train'].column_names))}: write --label_column_name NAME"
        )


_NewColumn = tuple[Sequence[Any] | None, Any]


def _replace(dataset: Dataset, columns: Mapping[str, _NewColumn], keep: Sequence[int]) -> Dataset:
    """The rows `keep` with new columns in the place of old ones of their names; values None: only without the old."""
    if len(keep) < len(dataset):
        dataset = dataset.select(keep)
    for name, (values, feature) in columns.items():
        if name in dataset.column_names:
            dataset = dataset.remove_columns(name)
        if values is not None:
            dataset = dataset.add_column(name, [values[row] for row in keep], feature=feature)
    return dataset


# Tagging


def prepare_tagging(
    splits: DatasetDict,
    *,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
    label_list: Sequence[str] | None = None,
    drop_empty: bool = False,
) -> TaggingData:
    """Check every row of a tagging data set and turn its tags into ids, used as they are given (no change of scheme).

    Args:
        splits: what `load_splits` gave. Words and tags are lists; a text cell (csv) is split at blanks.
        text_column_name, label_column_name, task_name: see `find_tagging_columns`.
        label_list: a saved model's labels; without it they come from the data: a `ClassLabel`'s names in their order,
            else "O" first, then by type, numbers by size. Whole-number tags may also be places in this list.
        drop_empty: leave rows without words out, with a warning, instead of stopping at them.

    Returns:
        The splits with ids for tags. A split whose tags are all absent has no label column.

    Raises:
        UserError: a column is absent; a row has no words, or words and tags of different number; a tag is of an
            unknown kind, mixed kinds, or outside `label_list`. Split, row and values are named.
    """
    text, label = find_tagging_columns(splits, text_column_name, label_column_name, task_name)
    words, tags, keep = {}, {}, {}
    for split, dataset in splits.items():
        words[split], tags[split], keep[split] = _tagging_rows(split, dataset, text, label, drop_empty)
    found = {split: rows for split, rows in tags.items() if rows is not None}
    check_train(splits, found, label)
    for split, rows in words.items():
        check_are_words(f"the {split} split", rows, text)
        if is_text(splits[split], text):
            _check_are_sentences(split, rows, text)
    labels, ids = _tag_ids(found, label, declared_names(splits, label), label_list)
    result = {}
    for split, dataset in splits.items():
        columns: dict[str, _NewColumn] = {label: (None, None)}
        if split in found:
            columns[label] = ([[ids[tag] for tag in row or ()] for row in found[split]], List(Value("int64")))
        if not hasattr(dataset.features[text], "feature"):
            columns[text] = (words[split], List(Value("string")))
        result[split] = _replace(dataset, columns, keep[split])
    data = TaggingData(DatasetDict(result), text, label, labels)
    others = [label for label in labels if label != "O"]
    if len(labels) > len(others) > 0 and all(map(OTHER_SCHEME.fullmatch, others)):
        logger.warning(
            "Labels such as %r look like entities, and are scored as labels of single words: entities are written "
            "with a hyphen after B or I, as in B-PER and I-PER.",
            others[0],
        )
    kinds = ", ".join(labels[:_LABELS_TOLD]) + (f", ... ({len(labels)})" if len(labels) > _LABELS_TOLD else "")
    example = " ".join(next(iter(data.splits.values()))[0][text][:_WORDS_TOLD])
    logger.info("Words: column %r (%s ...); labels: column %r, %s.", text, example, label, kinds or "none")
    return data


def check_are_words(place: str, rows: Sequence[Any], column: str) -> None:
    """
    Args:
        place: where they stand, for the message.
        rows: words of sentences.
        column: whose they are.

    Raises:
        UserError: the column counts the words of each sentence, or holds their labels: it is another one.
    """
    several = [row for row in rows[:_ROWS_LOOKED_AT] if len(row) > 1]
    counted = several and all(row == [str(number) for number in range(1, len(row) + 1)] for row in several)
    labels = several and all(entity_tag(word) for row in several for word in row)
    if counted or (labels and any(word != "O" for row in several for word in row)):
        raise UserError(
            f"Column {column!r} of {place} holds {'labels' if labels else 'numbers of words'}, no words: "
            f"{' '.join(several[0][:6])}. Name the column of words, `--text_column_name NAME`; of a CoNLL file all "
            "columns in their order, `--column_names _,tokens,_,ner_tags`"
        )


def _check_are_sentences(split: str, rows: Sequence[Any], column: str) -> None:
    """
    Raises:
        UserError: a table has a word a row, which says nothing of its sentence.
    """
    if len(rows) > _WORDS_ALONE and all(len(row) == 1 for row in rows):
        raise UserError(
            f"Each of the {len(rows)} rows of the {split} split has one word in column {column!r}, and a tagger reads "
            "sentences: write them as CoNLL, a word and its label a line, an empty line after each sentence; or give "
            "each row all words of a sentence"
        )


def _tagging_rows(
    split: str, dataset: Dataset, text: str, label: str, drop_empty: bool
) -> tuple[list[Any], list[Any] | None, list[int]]:
    """Words, tags (None: an unlabelled split) and the places of the rows to keep."""
    words = [_as_list(cell) for cell in dataset[text][:]]
    cells = label_cells(dataset, label)
    tags = [_as_list(cell) for cell in cells] if cells is not None and any(cells) else None
    empty = [row for row, tokens in enumerate(words) if not tokens]
    drop_or_raise(split, empty, f"no words in column {text!r}", drop_empty)
    dropped = set(empty)
    keep = [row for row in range(len(words)) if row not in dropped]
    for row in keep:
        _check_words(split, row, words[row], text)
        if tags is not None:
            _check_tags(split, row, words[row], tags[row], text, label)
    return words, tags, keep


def _as_list(cell: Any) -> Any:
    """A text cell (csv has no lists) as a list: one written out, else split at blanks."""
    if not isinstance(cell, str):
        return cell
    written = literal_list(cell)
    return cell.split() if written is None else written


def _check_words(split: str, row: int, words: Any, column: str) -> None:
    if not isinstance(words, list) or any(not isinstance(word, str) for word in words):
        raise UserError(
            f"{row_ref(split, row)}: column {column!r} holds {short_repr(words)}, and a list of words is wanted. Name the "
            "column of words, e.g. `--text_column_name tokens`"
        )


def _check_tags(split: str, row: int, words: list[str], tags: Any, text: str, label: str) -> None:
    if not isinstance(tags, list):
        raise UserError(
            f"{row_ref(split, row)}: column {label!r} holds {short_repr(tags)}, and a list of tags, one a word, is wanted. "
            "Name the column of tags, e.g. `--label_column_name ner_tags`; run_glue.py takes texts with one label each"
        )
    if len(tags) != len(words):
        raise UserError(
            f"{row_ref(split, row)} has {len(words)} words in {text!r} but {len(tags)} tags in {label!r}: "
            f'{short_repr(words)}, {short_repr(tags)}. Give every word one tag ("O" for none).'
        )
    if None in tags:
        raise UserError(
            f"{row_ref(split, row)}: tag {tags.index(None) + 1} in column {label!r} is missing: {short_repr(tags)}. Give "
            'every word one tag ("O" for none; in a column of ids, -100 is one that is neither learnt nor counted).'
        )


def _tag_ids(
    tags: Mapping[str, list[Any]], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The label list, and the id of every tag as it stands in the data."""
    kinds = LabelTypeChecker(column, (TEXT, WHOLE))
    names: dict[str, set[str]] = {}
    values: set[Any] = set()
    for split, rows in tags.items():
        here: set[Any] = set()
        for row, row_tags in enumerate(rows):
            for tag in row_tags or ():
                if tag not in _NO_TAG:
                    kinds.check(split, row, tag)
                    here.add(tag)
        names[split] = {name_of(tag) for tag in here}
        values |= here
    labels, ids = label_ids(names, declared, label_list)
    return labels, {tag: ids[name_of(tag)] for tag in values} | dict.fromkeys(_NO_TAG, IGNORE_INDEX)


# Classification


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
    """Check every row of a classification data set and turn its labels into ids, rows of 0.0 and 1.0, or floats.

    Args:
        splits: what `load_splits` gave.
        text_column_name, label_column_name, task_name: see `find_classification_columns`; of several
            columns of labels `join_label_columns`.
        problem_type: one of `PROBLEM_TYPES`. Without it lists are several labels a text, floats (and GLUE's stsb) are
            regression, and texts, whole numbers and true/false are classes. Texts that are all numbers count as such.
        label_list: a saved model's labels; without it they come from the data (see `prepare_tagging`).
        drop_empty: leave rows without a text or label out, with a warning, instead of stopping at them; and those
            whose text is blank, which are otherwise read, with a warning.

    Returns:
        The splits with labels as numbers. A split where every label is absent or -1 (GLUE's test splits) has no label
        column, unless -1 is a class of train or of the saved model. Rows without a label in a `ClassLabel` column (-1,
        as in SNLI) or a column "gold_label" ("-", in SNLI's own files) are left out with a warning.

    Raises:
        UserError: a column is absent; a text or label is missing; labels are of an unknown kind, of mixed kinds, or
            outside `label_list`. Split, row and values are named.
    """
    if problem_type is not None and problem_type not in PROBLEM_TYPES:
        raise UserError(
            f"The problem type is {problem_type!r}. Write --problem_type with one of {', '.join(PROBLEM_TYPES)}, or "
            "leave it away."
        )
    splits, label_columns = join_label_columns(splits, label_column_name, drop_empty)
    texts, label = find_classification_columns(splits, text_column_name, label_column_name, task_name)
    dropped = {split: _rows_without_text(split, dataset, texts, drop_empty) for split, dataset in splits.items()}
    cells = {split: label_cells(dataset, label) for split, dataset in splits.items()}
    numbers = texts_as_numbers(cells, fractions=problem_type != "single_label_classification")
    if problem_type != "regression" and task_name != "stsb" and str(IGNORE_INDEX) not in (label_list or ()):
        # -100 is no class: torch's own word for none. A fraction may be a score, unless classes are asked for.
        kinds = (int, str, float) if problem_type == "single_label_classification" else (int, str)
        numbers = {
            split: values and [None if type(value) in kinds and value in _NO_TAG else value for value in values]
            for split, values in numbers.items()
        }
    found: dict[str, Cells] = {}
    minus_ones = [is_minus_one(value) for value in numbers.get("train") or ()]
    minus_one_is_a_class = "-1" in (label_list or ()) or (any(minus_ones) and not all(minus_ones))
    for split, values in numbers.items():
        if values is None or is_unlabelled(values, minus_one_is_a_class):
            continue
        missing = [row for row, value in enumerate(values) if value is None and row not in dropped[split]]
        # In a ClassLabel column -1 is the known way to say "none", in SNLI's own files "-": nobody can fill it in.
        may_drop = drop_empty or has_dashes(splits[split], label) or bool(class_names(splits[split], label))
        lack = f"no label in column {label!r}"
        if missing and not may_drop and problem_type == "multi_label_classification":
            raise UserError(
                f"{row_ref(split, missing[0])} has {lack}; there are {len(missing)} such rows. Where that means none of "
                "the labels, write `[]` in these cells; where it is not known, leave such rows out: write --drop_empty"
            )
        drop_or_raise(split, missing, lack, may_drop)
        dropped[split].update(missing)
        found[split] = [None if row in dropped[split] else value for row, value in enumerate(values)]
        if problem_type == "multi_label_classification":
            found[split] = [split_labels(value) if isinstance(value, str) else value for value in found[split]]
    check_train(splits, found, label)
    detected = problem_type_of(found, label)
    kind = cast(ProblemType, problem_type or ("regression" if task_name == "stsb" else detected))
    if kind == "regression" and problem_type is None and task_name is None and _are_whole(found):
        logger.warning(
            "The labels in column %r are whole numbers written as fractions (1.0), as pandas writes them where one is "
            "missing, and are taken for numbers to predict. For classes write --problem_type "
            "single_label_classification",
            label,
        )
    if kind == "single_label_classification" and problem_type is None:
        tell_of_numbers(found, label)
        _tell_of_joined(found, label)
        _tell_of_too_many(found, label)
    if kind == "regression":
        labels, encoded, feature = encode_numbers(found, label)
    else:
        encode = encode_lists if kind == "multi_label_classification" else encode_classes
        labels, encoded, feature = encode(found, label, declared_names(splits, label), label_list or label_columns)
    result = {}
    for split, dataset in splits.items():
        keep = [row for row in range(len(dataset)) if row not in dropped[split]]
        columns = {label: (encoded.get(split), feature), _ROW: (range(len(dataset)), Value("int64"))}
        result[split] = _replace(dataset, columns, keep)
    data = ClassificationData(DatasetDict(result), texts, label, labels, kind)
    named = " and ".join(map(repr, texts))
    logger.info("Texts: column %s; labels: column %r, %s.%s", named, label, kind, _told_labels(data))
    return data


def _told_labels(data: ClassificationData) -> str:
    """The labels with how often they occur in train, or in the first split that has some; nothing for regression."""
    split = next(
        (split for split in ("train", *data.splits) if split in data.splits and data.is_labelled(split)), None
    )
    counts = {} if split is None else data.counts(split)
    return f" {len(counts)} labels in {split}: {listed_counts(counts)}." if counts else ""


def _tell_of_joined(cells: Mapping[str, Cells], column: str) -> None:
    """Warn where classes look like several labels in one cell: their parts are classes too."""
    names = {value for values in cells.values() for value in values if isinstance(value, str)}
    joined = sorted(name for name in names if len(several := split_labels(name)) > 1 and names & set(several))
    if joined:
        logger.warning(
            "Labels such as %r in column %r are one class each. If they are several labels of a text, write "
            "--problem_type multi_label_classification",
            joined[0],
            column,
        )


def _tell_of_too_many(cells: Mapping[str, Cells], column: str) -> None:
    """Warn where most rows have a class of their own, as where the column is another one."""
    rows = [value for value in cells.get("train", ()) if value is not None]
    classes = len(set(map(str, rows)))
    if len(rows) >= _ROWS_OF_MANY and 2 * classes > len(rows):
        logger.warning(
            "%d rows of the train split have %d labels in column %r, which can hardly be learnt: is it the column of "
            "labels? Otherwise write --label_column_name NAME",
            len(rows),
            classes,
            column,
        )


def _are_whole(cells: Mapping[str, Cells]) -> bool:
    """Whether labels are few enough to be classes, and fractions by their form alone."""
    values = {value for column in cells.values() for value in column if value is not None}
    return len(values) <= 10 and all(isinstance(value, (int, float)) and float(value).is_integer() for value in values)


def _rows_without_text(split: str, dataset: Dataset, columns: Iterable[str], drop_empty: bool) -> set[int]:
    """
    Rows to leave out for lack of a text. A blank text can be read: without `drop_empty` there is only a warning, where
    None is an error. A cell that is anything else is an error.
    """
    empty: set[int] = set()
    blank: set[int] = set()
    for column in columns:
        for row, text in enumerate(dataset[column][:]):
            if text is None:
                empty.add(row)
            elif not isinstance(text, str):
                raise UserError(
                    f"{row_ref(split, row)}: column {column!r} holds {short_repr(text)}, and a text is wanted. Name the "
                    "column of texts, e.g. `--text_column_name text`"
                )
            elif not text.strip():
                blank.add(row)
    lack = f"no text in column {' or '.join(map(repr, columns))}"
    if drop_empty:
        drop_or_raise(split, sorted(empty | blank), lack, drop=True)
        return empty | blank
    drop_or_raise(split, sorted(empty), lack, drop=False)
    if blank:
        logger.warning(
            "%d rows of the %s split have %s and are read all the same (first: row %d): write --drop_empty to leave "
            "them out",
            len(blank),
            split,
            lack,
            min(blank) + 1,
        )
    return empty


__all__ = [
    "IGNORE_INDEX",
    "PROBLEM_TYPES",
    "ClassificationData",
    "ProblemType",
    "TaggingData",
    "UserError",
    "check_are_words",
    "check_fraction",
    "find_classification_columns",
    "find_tagging_columns",
    "hold_out",
    "load_splits",
    "prepare_classification",
    "prepare_tagging",
    "take_first",
    "task_to_keys",
]
