"""Tables with one word per row (simpletransformers, Kaggle, spreadsheets) as sentences, by their identifiers."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from .columns import TAGS, find_tagging_columns, text_names
from .labels import literal_list


if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from .first_rows import FirstRows


logger = logging.getLogger(__name__)
_SUFFIX = r"[ _.\-]*(#|ids?|idx|index|no|num|number|nr)?"
_SENTENCE = re.compile(rf"(sent|sentence|utt|utterance|seq|sequence|line|text|example|句子?){_SUFFIX}", re.IGNORECASE)
_DOCUMENT = re.compile(rf"(doc|document|file|article|paper|abstract)([ _.\-]*name|{_SUFFIX})", re.IGNORECASE)
_ROWS_INSPECTED = 10_000
Keys = tuple[str, ...]


def sentences_of_words(
    splits: DatasetDict,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
) -> DatasetDict:
    """The splits with a list of words and of tags per row, if each of their rows has one word; else as they are."""
    from datasets import Dataset, DatasetDict, Features, List, Value

    text, label = find_tagging_columns(splits, text_column_name, label_column_name)
    result = {}
    for split, rows in splits.items():
        if not has_word_rows(rows, text, label):
            result[split] = rows
            continue
        keys = find_keys(rows, text, label)
        if keys is None:
            raise no_keys(f"The {split} split", text)
        labels = [label] if label in rows.column_names else []
        columns = [*keys, text, *labels]
        first = len(columns) - 1 - len(labels)
        check_order(rows, split, keys)
        sentences = group_rows(zip(*(rows[name][:] for name in columns), strict=True), keys)
        lists: dict[str, list[Any]] = {name: [] for name in columns[first:]}
        for sentence in sentences:
            for name, cells in zip(columns[first:], zip(*(row[first:] for row in sentence), strict=True), strict=True):
                lists[name].append(list(cells))
        features = {text: List(Value("string"))} | {name: List(rows.features[name]) for name in labels}
        result[split] = Dataset.from_dict(lists, Features(features))
        by = " and ".join(repr(name) for name in columns[:first])
        logger.info(f"{split}: {len(rows):,} rows of one word are {len(result[split]):,} sentences, by column {by}")
    return DatasetDict(result)


def has_word_rows(rows: Dataset | FirstRows, text: str, label: str | None = None) -> bool:
    """Whether each row has one word and at most one tag."""
    if len(rows) < 2 or text not in text_names(rows):
        return False
    cells: list[Sequence[Any]] = [rows[text][:]]
    if label in rows.column_names:
        if getattr(rows.features[label], "feature", None) is not None:
            return False
        cells.append(rows[label][:])
    return all(_is_single(cell) for cell in chain.from_iterable(cells))


def _is_single(cell: Any) -> bool:
    """Whether a cell has no blank between words and no list."""
    if not isinstance(cell, str):
        return True
    return len(cell.split(None, 1)) < 2 and not (cell.startswith(("[", "(")) and literal_list(cell) is not None)


def find_keys(rows: Dataset | FirstRows, text: str, label: str | None = None) -> Keys | None:
    """The columns whose change ends a sentence in a table with one word per row, by known names."""
    sample = rows.select(range(min(len(rows), _ROWS_INSPECTED)))
    others = [name for name in rows.column_names if name not in (text, label) and name.casefold() not in TAGS]
    filled = {name: _filled(sample[name][:]) for name in others if hasattr(sample.features[name], "dtype")}
    named = {name: kind for name in filled for kind in (_SENTENCE, _DOCUMENT) if kind.fullmatch(name.strip())}
    named |= {name: _SENTENCE for name in filled if name.casefold() == "id"}
    repeated = [name for name in named if 1 < len(set(filled[name])) < len(sample)]
    sentence, document = ([name for name in repeated if named[name] is kind] for kind in (_SENTENCE, _DOCUMENT))
    if sentence or not document:
        document += _larger_units(filled, set(named), sentence[:1])
    if document and not sentence and any(_restarts(filled[name], filled[document[-1]]) for name in filled):
        return None  # words have numbers: a document has several sentences, and no column says which
    if sentence or document:
        return (*document, *sentence[:1])
    return next(((name,) for name in named if len(set(filled[name])) == 1), None)


def _larger_units(filled: dict[str, list[Any]], named: set[str], sentence: list[str]) -> list[str]:
    """Columns of documents by any name: each value is one run of rows, which may hold several sentences."""
    runs = {name: 1 + sum(a != b for a, b in pairwise(cells)) for name, cells in filled.items()}
    half = len(next(iter(filled.values()), [])) // 2
    most = runs[sentence[0]] if sentence else half
    if most > half:  # the rows of sentences do not follow each other, which `check_order` refuses
        return []
    return [name for name, cells in filled.items() if name not in named and 1 < len(set(cells)) == runs[name] <= most]


def _restarts(numbers: list[Any], documents: list[Any]) -> bool:
    """Whether whole numbers, three or more, count up and begin again within a document."""
    if not all(isinstance(number, int) for number in numbers) or max(numbers) < numbers[0] + 2:
        return False
    follow = list(zip(pairwise(numbers), pairwise(documents), strict=True))
    begins = [b == numbers[0] and above == below for (_, b), (above, below) in follow]
    return any(begins) and all(b in (a + 1, numbers[0]) for (a, b), _ in follow)


def no_keys(source: str, text: str) -> UserError:
    """The error of rows with one word of which no column says what a sentence is."""
    return UserError(
        f"{source} has one word per row in column {text!r}, and no column says which rows are a sentence. Add a "
        "column sentence_id with the same number in each row of a sentence, or, in a .tsv or .csv file, an empty line "
        "after each sentence."
    )


def group_rows(rows: Iterable[Sequence[Any]], keys: Keys) -> Iterator[list[Sequence[Any]]]:
    """The rows of each sentence; they begin with the cells of the keys."""
    sentence: list[Sequence[Any]] = []
    key: tuple[Any, ...] = ()
    for row in rows:
        after = _below(key, row[: len(keys)])
        if sentence and after != key:
            yield sentence
            sentence = []
        sentence.append(row)
        key = after
    if sentence:
        yield sentence


def check_order(rows: Dataset | FirstRows, source: str, names: Keys) -> None:
    """Check that the rows of a sentence follow each other, unless the numbers of sentences begin again."""
    keys: list[tuple[Any, ...]] = []
    for row in zip(*(rows[name][:] for name in names), strict=True):
        keys.append(_below(keys[-1] if keys else (), row))
    firsts = [0, *(row for row in range(1, len(keys)) if keys[row] != keys[row - 1])]
    runs = [keys[row] for row in firsts]
    if len(set(runs)) == len(runs):
        return
    numbers = [int("".join(re.findall(r"\d+$", str(run[-1]))) or -1) for run in runs]
    if 2 * len(runs) <= len(keys) and all(b > a or b == numbers[0] for a, b in pairwise(numbers)):
        return
    again = next(row for row, run in zip(firsts, runs, strict=True) if runs.index(run) < firsts.index(row))
    raise UserError(
        f"{source}, row {again + 1} continues the sentence {', '.join(map(str, keys[again]))} of column "
        f"{' and '.join(map(repr, names))} after rows of others. Sort the rows by sentence."
    )


def _below(key: tuple[Any, ...], cells: Sequence[Any]) -> tuple[Any, ...]:
    """The key of a row, in which an empty cell repeats the one above it."""
    empty = [cell is None or cell == "" or cell != cell for cell in cells]  # NaN differs from itself
    return tuple(key[i] if empty[i] and key else cell for i, cell in enumerate(cells))


def _filled(cells: Sequence[Any]) -> list[Any]:
    key: tuple[Any, ...] = ()
    return [(key := _below(key, (cell,)))[0] for cell in cells]
