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
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, load_dataset
from datasets.exceptions import DatasetsError

from ..errors import UserError
from .columns import list_names, listed
from .detect import is_span_folder
from .files import Options
from .labels import row_ref
from .readers import read_splits


logger = logging.getLogger(__name__)
_SPLIT_NAMES = ("train", "validation", "dev", "val", "valid", "test")
ROW = "row_in_data"
"""The number of a row before others were dropped or held out for validation."""
# ------ Results


class Labelled:
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

    def counts(self, split: str) -> dict[str, int]:
        """How often each label occurs in a labelled split, in the order of `label_list`; empty for regression."""
        numbers = Counter(chain.from_iterable(map(self._ids, self.splits[split][self.label_column])))
        return {name: numbers[index] for index, name in enumerate(self.label_list)}

    def _ids(self, cell: Any) -> Iterable[int]:
        """The ids in a cell of labels."""
        return cell if isinstance(cell, list) else [cell]


# ------ Splits


def load_splits(
    dataset_name: str | None = None,
    dataset_config_name: str | None = None,
    files: Mapping[str, str | Path | None] | None = None,
    *,
    revision: str | None = None,
    column_names: Sequence[str] | None = None,
    with_spans: bool = True,
) -> DatasetDict:
    """
    A data set of the Hub or a local folder, as in `datasets.load_dataset`, or files, split -> path (`None`: no such
    split); formats can be mixed. A split called dev, val or valid is "validation".
    """
    paths = {split: path for split, path in (files or {}).items() if path is not None}
    check_source(dataset_name, paths.values())
    if dataset_name:
        if is_span_folder(Path(dataset_name)):
            raise UserError(f"{dataset_name} has labelled spans of characters: --train_file {dataset_name}")
        return load_named(dataset_name, dataset_config_name, revision=revision)
    rows = read_splits(paths, Options(column_names, with_spans=with_spans))
    return with_validation_name(DatasetDict(rows))


def check_source(dataset_name: str | None, paths: Iterable[str | Path]) -> None:
    """Check that data are given once, by a name or as files."""
    if bool(dataset_name) == bool(list(paths)):
        given = f"The data set {dataset_name!r} and files are given" if dataset_name else "No data is given"
        raise UserError(f"{given}. Write either --dataset_name NAME, or --train_file train.jsonl and so on.")


def load_named(name: str, config: str | None = None, revision: str | None = None) -> Any:
    """The splits of a data set of the Hub, or of a local folder, which can be one of `save_to_disk`."""
    files = _saved_files(Path(name, config or ""))
    try:
        if files:
            splits = load_dataset("arrow", data_files=files)
        else:
            splits = load_dataset(name, config, revision=revision)
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
    """Split -> the files of a folder of `save_to_disk`; `load_from_disk` would write the caches of a run into it."""
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
    Move a random part of "train" to a new split "validation"; both keep at least one row, and their order.

    Args:
        together: column whose equal values stay in one split, such as a context with several questions. Slightly more
            rows than the fraction can be moved.
        classes: column of each row's class: the same part of every class is moved, and one row of each is kept.
    """
    if "validation" in splits:
        raise UserError("There is a validation split: omit --validation_fraction.")
    if "train" in splits and len(splits["train"]) == 1 and list_names(splits["train"]):
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
            cause = f"another {classes!r}, so that no class" if classes else f"the same {together!r}, so that no row"
            raise UserError(
                f"Each row of the train split has {cause} can be held out. Give a --validation_file, or write "
                "--validation_fraction 0."
            )
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


NewColumn = tuple[Sequence[Any] | None, Any]


def replace_columns(dataset: Dataset, columns: Mapping[str, NewColumn], keep: Sequence[int]) -> Dataset:
    """The rows `keep` with new columns (values and feature) instead of those of the same names; `None` removes."""
    if len(keep) < len(dataset):
        dataset = dataset.select(keep)
    for name, (values, feature) in columns.items():
        if name in dataset.column_names:
            dataset = dataset.remove_columns(name)
        if values is not None:
            dataset = dataset.add_column(name, [values[row] for row in keep], feature=feature)
    return dataset
