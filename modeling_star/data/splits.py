"""
Splits with columns and labels for run_ner.py and run_glue.py, from files or data sets of the Hub.

    splits = load_splits(files={"train": "train.jsonl", "test": "test.conll.gz"})
    data = prepare_tagging(splits)                # or prepare_classification(splits)
    splits = hold_out(data.splits, 0.1, seed=1)   # after the checks: messages name rows of the file
    train = take_first(splits["train"], 1000)
"""

import glob
import heapq
import json
import logging
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, DatasetDict, List, Value, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import UserError
from ..models.configuration_encoder import PROBLEM_TYPES
from .annotation_marks import rejected_rows
from .character_spans import named_as_others
from .columns import find_classification_columns, find_tagging_columns, listed
from .conll import columns_like
from .inspection import inspect_classification, inspect_tagging
from .labels import (
    IGNORE_INDEX,
    NO_LABEL,
    Cells,
    ProblemType,
    check_single_labels,
    check_types,
    class_names,
    declared_names,
    encode_classes,
    encode_lists,
    encode_numbers,
    has_dashes,
    is_minus_one,
    is_unlabelled,
    join_label_columns,
    label_cells,
    label_ids,
    labels_of,
    literal_list,
    name_of,
    problem_type_of,
    row_ref,
    short_repr,
    split_labels,
    texts_as_numbers,
)
from .readers import read_file
from .span_formats import is_span_folder
from .word_rows import sentences_of_words


logger = logging.getLogger(__name__)

_SPLIT_NAMES = ("train", "validation", "dev", "val", "valid", "test")
_ROW = "row_in_data"
"""The place of a row before others were dropped or held out for validation."""


# ------ Results


class _Labelled:
    """What both kinds of data have in common."""

    splits: DatasetDict
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


@dataclass(frozen=True)
class TaggingData(_Labelled):
    """
    Sentences with one tag per token.

    Attributes:
        splits: rows with `text_column` (list of words) and `label_column` (list of ids, or -100); a split without
            labels lacks `label_column`.
        label_list: tag names; their places are the ids.
    """

    splits: DatasetDict
    text_column: str
    label_column: str
    label_list: tuple[str, ...]

    def counts(self, split: str) -> dict[str, int]:
        """The number of occurrences of each label in a labelled split, in the order of `label_list`."""
        numbers = Counter(tag for tags in self.splits[split][self.label_column][:] for tag in tags)
        return {name: numbers[index] for index, name in enumerate(self.label_list)}


@dataclass(frozen=True)
class ClassificationData(_Labelled):
    """
    Texts, or pairs of texts, with labels.

    Attributes:
        splits: rows with `text_columns` and `label_column`: an id (single label), a list of 0.0 and 1.0 (multi-label)
            or a float (regression); a split without labels lacks `label_column`.
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

    def places(self, split: str) -> list[int]:
        """The place of each row of a split in the data as given, from 0."""
        return self.splits[split][_ROW][:]

    def counts(self, split: str) -> dict[str, int]:
        """The number of occurrences of each label in a labelled split; empty for regression."""
        if self.problem_type == "regression":
            return {}
        cells = self.splits[split][self.label_column][:]
        if self.problem_type == "multi_label_classification":
            return {name: int(sum(row[i] for row in cells)) for i, name in enumerate(self.label_list)}
        numbers = Counter(cells)
        return {name: numbers[index] for index, name in enumerate(self.label_list)}


# ------ Splits


def load_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    files: Mapping[str, str | Path | None] | None = None,
    *,
    cache_dir: str | None = None,
    token: str | bool | None = None,
    revision: str | None = None,
    column_names: Sequence[str] | None = None,
    with_spans: bool = True,
) -> DatasetDict:
    """
    A data set of the Hub (or a local folder), or local files.

    Args:
        dataset_name, dataset_config_name: as in `datasets.load_dataset`.
        files: split -> path (`None`: no such split); formats can be mixed, see `files.FORMATS`.
        cache_dir, token, revision: as in `datasets.load_dataset`.
        column_names, with_spans: see `readers.read_file`.

    Returns:
        The splits; one with the name dev, val or valid is returned as "validation".

    Raises:
        UserError: no data or both kinds are given, or they cannot be read.
    """
    paths = {split: path for split, path in (files or {}).items() if path is not None}
    check_source(dataset_name, paths.values())
    if dataset_name:
        if is_span_folder(Path(dataset_name)):
            raise UserError(f"{dataset_name} has labelled spans of characters: --train_file {dataset_name}")
        options = {"cache_dir": cache_dir, "token": token, "revision": revision}
        return load_named(dataset_name, dataset_config_name, **options)
    train = paths.get("train")
    rows = {
        split: read_file(path, cache_dir, None, column_names or columns_like(path, train), with_spans)
        for split, path in paths.items()
    }
    return with_validation_name(DatasetDict(rows))


def check_source(dataset_name: str | None, paths: Iterable[str | Path]) -> None:
    """
    Check that data are given once.

    Raises:
        UserError: there is no data set and no file, or both.
    """
    if bool(dataset_name) == bool(list(paths)):
        given = f"The data set {dataset_name!r} and files are given" if dataset_name else "No data is given"
        raise UserError(f"{given}. Write either --dataset_name NAME, or --train_file train.jsonl and so on.")


def load_named(name: str, config: str | None = None, **options: Any) -> Any:
    """
    The splits of a data set of the Hub, or of a local folder, which can be one of `save_to_disk`.

    Args:
        name, config, options: as in `datasets.load_dataset`.

    Raises:
        UserError: the data set cannot be loaded.
    """
    files = _saved_files(Path(name, config or ""))
    try:
        if files:
            splits = load_dataset("arrow", data_files=files, **options | {"revision": None})
        else:
            splits = load_dataset(name, config, **options)
        for rows in splits.values():
            if isinstance(rows, Dataset):
                rows.data.validate(full=True)  # that strings are UTF-8, which loading json lines does not
        return with_validation_name(splits)
    except (OSError, ValueError, RuntimeError, DatasetsError) as error:
        full_name = name if config is None else f"{name} ({config})"
        raise UserError(
            f"The data set {full_name} could not be read: {error.__cause__ or error}. Check --dataset_name and "
            "--dataset_config_name, or use local files: --train_file train.jsonl"
        ) from error


def _saved_files(folder: Path) -> dict[str, list[str]]:
    """
    Split -> the files of a folder that `save_to_disk` wrote; empty for other folders.

    `load_from_disk` would keep the caches of a run in this folder, where `load_dataset` then takes them for data.
    """
    described = folder / "dataset_dict.json"
    names = json.loads(described.read_text(encoding="utf-8"))["splits"] if described.is_file() else _SPLIT_NAMES
    saved = {}
    for part in (folder, *(folder / name for name in names)):
        if (part / "state.json").is_file():
            state = json.loads((part / "state.json").read_text(encoding="utf-8"))
            split = part.name if part != folder else state.get("_split") or "train"
            files = [part.resolve() / file["filename"] for file in state["_data_files"]]
            saved[split] = [glob.escape(str(file)) for file in files]
    deeper = None if saved else next(folder.glob("*/**/state.json"), None)
    if deeper is not None:
        one = deeper.parent.parent if (deeper.parent.parent / "dataset_dict.json").is_file() else deeper.parent
        raise UserError(f"{folder} has saved data sets in its folders. Name one: --dataset_name {one}")
    return saved


def with_validation_name(splits: Any) -> Any:
    """The splits, of which dev, val or valid is renamed to "validation" if there is none."""
    for name in ("dev", "val", "valid"):
        if name in splits and "validation" not in splits:
            splits["validation"] = splits.pop(name)
    return splits


def take_first(dataset: Dataset, max_samples: int | None) -> Dataset:
    """The first `max_samples` rows; all for `None`."""
    if max_samples is None:
        return dataset
    if max_samples < 1:
        raise UserError(f"The number of samples is {max_samples}. Write 1 or more, or omit it for all rows.")
    return dataset.select(range(min(max_samples, len(dataset))))


def hold_out(
    splits: DatasetDict,
    fraction: float,
    seed: int = 42,
    together: str | None = None,
    classes: str | None = None,
) -> DatasetDict:
    """
    Move a random part of "train" to a new split "validation"; both keep the order of their rows.

    Args:
        fraction: the part of the rows that is moved, below 1; at least one row is moved and one is kept.
        seed: of the random choice.
        together: column whose equal values stay in one split, such as a context with several questions. Slightly more
            rows than the fraction can be moved.
        classes: column of each row's class: the same part of every class is moved, and one row of each is kept.

    Raises:
        UserError: there is a validation split, no train split, or there are too few rows or groups.
    """
    if "validation" in splits:
        raise UserError("There is a validation split: omit --validation_fraction.")
    if "train" in splits and len(splits["train"]) == 1 and "List(Value('string'))" in str(splits["train"].features):
        raise UserError(
            "The train split is one sentence, from which no validation split can be taken. Write an empty line after "
            "each sentence of a CoNLL file, or give a --validation_file."
        )
    if "train" not in splits or len(splits["train"]) < 2:
        raise UserError("A validation split needs a train split of 2 rows or more, or write --validation_fraction 0")
    check_fraction(fraction)
    train = splits["train"]
    size = min(max(1, round(fraction * len(train))), len(train) - 1)
    draw = random.Random(seed)
    if together is None and classes is None:
        chosen = set(draw.sample(range(len(train)), size))
    else:
        groups: dict[Any, list[int]] = {}
        for row, value in enumerate(train[classes or together][:]):
            groups.setdefault(value, []).append(row)
        if len(groups) == (len(train) if classes else 1):
            column = classes or together
            raise UserError(f"The train split cannot be divided by its column {column!r}. Give a --validation_file.")
        chosen = _some_of_each(groups, size, draw) if classes else _some_groups(groups, size, draw)
    parts = {
        "train": train.select([row for row in range(len(train)) if row not in chosen]),
        "validation": train.select(sorted(chosen)),
    }
    return DatasetDict({**splits, **parts})


def check_fraction(fraction: float) -> None:
    """Check that --validation_fraction is at least 0 and below 1."""
    if not 0 <= fraction < 1:
        raise UserError(f"--validation_fraction {fraction:g} is given. Write a number between 0 and 1, e.g. 0.1")


def _some_groups(groups: Mapping[Any, list[int]], size: int, draw: random.Random) -> set[int]:
    """About `size` random rows in whole groups."""
    chosen: set[int] = set()
    for value in draw.sample(list(groups), len(groups) - 1):
        if len(chosen) >= size:
            break
        chosen.update(groups[value])
    return chosen


def _some_of_each(groups: Mapping[Any, list[int]], size: int, draw: random.Random) -> set[int]:
    """`size` random rows, the same part of each group, or fewer where a group would become empty."""
    total = sum(map(len, groups.values()))
    size = min(size, total - len(groups))
    share = {value: size * len(rows) / total for value, rows in groups.items()}
    taken = {value: min(int(share[value]), len(rows) - 1) for value, rows in groups.items()}

    def entry(order: int, value: Any) -> tuple[float, int, int, Any]:
        return taken[value] - share[value], -len(groups[value]), order, value

    # Add one where rounding removed most.
    open_ones = [entry(order, value) for order, value in enumerate(groups) if taken[value] < len(groups[value]) - 1]
    heapq.heapify(open_ones)
    for _ in range(size - sum(taken.values())):
        *_, order, value = heapq.heappop(open_ones)
        taken[value] += 1
        if taken[value] < len(groups[value]) - 1:
            heapq.heappush(open_ones, entry(order, value))
    return {row for value, rows in groups.items() for row in draw.sample(rows, taken[value])}


# ------ Rows


def drop_or_raise(split: str, rows: Sequence[int], lack: str, drop: bool) -> None:
    """Rows that lack something: an error for the first, or a warning if they can be dropped."""
    if rows and not drop:
        raise UserError(f"{row_ref(split, rows[0])} has {lack} ({len(rows)} rows in all). Omit them: --drop_empty")
    if rows:
        logger.warning("%d rows of the %s split are omitted: %s (first: row %d)", len(rows), split, lack, rows[0] + 1)


def check_train(splits: DatasetDict, labelled: Iterable[str], column: str) -> None:
    """Check that the train split has labels."""
    if "train" in splits and "train" not in labelled:
        raise UserError(
            f"No row of the train split has a label in column {column!r}. Write --label_column_name NAME, one of "
            f"{listed(splits)}"
        )


_NewColumn = tuple[Sequence[Any] | None, Any]


def _replace(dataset: Dataset, columns: Mapping[str, _NewColumn], keep: Sequence[int]) -> Dataset:
    """The rows `keep` with new columns (values and feature) instead of those of the same names; `None` removes."""
    if len(keep) < len(dataset):
        dataset = dataset.select(keep)
    for name, (values, feature) in columns.items():
        if name in dataset.column_names:
            dataset = dataset.remove_columns(name)
        if values is not None:
            dataset = dataset.add_column(name, [values[row] for row in keep], feature=feature)
    return dataset


# ------ Tagging


def prepare_tagging(
    splits: DatasetDict,
    *,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
    label_list: Sequence[str] | None = None,
    drop_empty: bool = False,
) -> TaggingData:
    """
    Check every row of a tagging data set and encode its tags, without a change of their scheme.

    Args:
        splits: from `load_splits`. Words and tags are lists; a text cell (csv) is split at blanks.
        text_column_name, label_column_name, task_name: see `find_tagging_columns`.
        label_list: a saved model's labels. Without it they come from the data: a `ClassLabel`'s names in their order,
            else "O" first, then by type, numbers by size.
        drop_empty: omit rows without words, with a warning, instead of an error.

    Returns:
        The splits with ids for tags. A split without any tag has no label column.

    Raises:
        UserError: a column is absent; a row has no words, or words and tags of different number; tags have an unknown
            type, mixed types, or are not in `label_list`.
    """
    splits = as_sentences(splits, text_column_name, label_column_name, task_name)
    text, label = find_tagging_columns(splits, text_column_name, label_column_name, task_name)
    words, tags, keep = {}, {}, {}
    for split, dataset in splits.items():
        rejected = rejected_rows(split, dataset, (text, label))
        words[split] = [_as_list(cell) for cell in dataset[text][:]]
        cells = label_cells(dataset, label)
        if cells is not None and any(cells):
            tags[split] = [None if row in rejected else _as_list(cell) for row, cell in enumerate(cells)]
        empty = [row for row, tokens in enumerate(words[split]) if not tokens and row not in rejected]
        drop_or_raise(split, empty, f"no words in column {text!r}", drop_empty)
        keep[split] = sorted(set(range(len(dataset))) - set(empty) - rejected)
        for row in keep[split]:
            _check_words(split, row, words[split][row], text)
            if split in tags:
                _check_tags(split, row, words[split][row], tags[split][row], label)
    check_train(splits, tags, label)
    labels, ids = _tag_ids(tags, label, declared_names(splits, label), label_list)
    result = {}
    for split, dataset in splits.items():
        columns: dict[str, _NewColumn] = {label: (None, None)}
        if split in tags:
            columns[label] = ([[ids[tag] for tag in row or ()] for row in tags[split]], List(Value("int64")))
        if not hasattr(dataset.features[text], "feature"):
            columns[text] = (words[split], List(Value("string")))
        result[split] = _replace(dataset, columns, keep[split])
    data = TaggingData(DatasetDict(result), text, label, labels)
    inspect_tagging(data.splits, text, label, labels)
    return data


def as_sentences(
    splits: DatasetDict,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
) -> DatasetDict:
    """
    The splits with a sentence per row, where files have labelled characters or a word per row.

    Args:
        text_column_name, label_column_name, task_name: see `find_tagging_columns`.
    """
    splits = named_as_others(splits, text_column_name, label_column_name, task_name)
    return sentences_of_words(splits, text_column_name, label_column_name, task_name)


def _as_list(cell: Any) -> Any:
    """A text cell (csv has no lists) as a list."""
    if not isinstance(cell, str):
        return cell
    written = literal_list(cell)
    return cell.split() if written is None else written


def _check_words(split: str, row: int, words: Any, column: str) -> None:
    if not isinstance(words, list) or any(not isinstance(word, str) for word in words):
        raise UserError(
            f"{row_ref(split, row)}: column {column!r} has {short_repr(words)}, not a list of words. Name the column "
            "of words: `--text_column_name tokens`"
        )


def _check_tags(split: str, row: int, words: list[str], tags: Any, column: str) -> None:
    if not isinstance(tags, list) or len(tags) != len(words) or None in tags:
        count = len(tags) if isinstance(tags, list) else "no"
        if count == 1 and "-" not in str(tags[0]):
            raise UserError(
                f"{row_ref(split, row)} has {len(words)} words and one label, {short_repr(tags[0])}. Write "
                "`modeling-star classify` to classify texts, or name a column with a tag per word: --label_column_name"
            )
        raise UserError(
            f"{row_ref(split, row)} has {len(words)} words and {count} tags in column {column!r}, {short_repr(tags)}. "
            'Write a list with one tag per word, "O" for none, or name another column: --label_column_name'
        )


def _tag_ids(
    tags: Mapping[str, list[Any]], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The label list, and the id of every tag in the data."""
    used = [(split, row, tag) for split, row, items in labels_of(tags) for tag in items if tag not in NO_LABEL]
    check_types(used, column, (str, int))
    names: dict[str, set[str]] = {split: set() for split in tags}
    for split, _, tag in used:
        names[split].add(name_of(tag))
    labels, ids = label_ids(names, declared, label_list)
    return labels, {tag: ids[name_of(tag)] for _, _, tag in used} | dict.fromkeys(NO_LABEL, IGNORE_INDEX)


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
    Check every row of a classification data set and encode its labels as ids, rows of 0.0 and 1.0, or floats.

    Args:
        splits: from `load_splits`.
        text_column_name, label_column_name: see `find_classification_columns`; for several label columns
            `join_label_columns`.
        task_name: a GLUE task; "stsb" is regression.
        problem_type: one of `PROBLEM_TYPES`. Without it lists are several labels per text, fractions are regression,
            and texts, whole numbers and true/false are classes. Texts that are all numbers are read as such.
        label_list: a saved model's labels; without it they come from the data (see `prepare_tagging`).
        drop_empty: omit rows without a label or with a blank text, with a warning, instead of an error.

    Returns:
        The splits with labels as numbers. A split in which every label is absent or -1 (GLUE's test splits) has no
        label column, unless -1 is a class of train or of the saved model. Rows without a label in a `ClassLabel`
        column (-1), or with the "-" of SNLI and CLUE, are omitted with a warning.

    Raises:
        UserError: a column is absent; a text or label is missing; labels have an unknown type, mixed types, or are not
            in `label_list`.
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
    if kind == "regression":
        labels, encoded, feature = encode_numbers(cells, label)
    else:
        encode = encode_lists if kind == "multi_label_classification" else encode_classes
        labels, encoded, feature = encode(cells, label, declared_names(splits, label), label_list or label_columns)
    result = {}
    for split, dataset in splits.items():
        keep = [row for row in range(len(dataset)) if row not in dropped[split]]
        columns = {label: (encoded.get(split), feature), _ROW: (range(len(dataset)), Value("int64"))}
        result[split] = _replace(dataset, columns, keep)
    data = ClassificationData(DatasetDict(result), texts, label, labels, kind)
    inspect_classification(data.splits, texts, label, labels)
    return data


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
    numbers = texts_as_numbers(cells, fractions=not is_class, label_list=label_list, commas=is_score)
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
