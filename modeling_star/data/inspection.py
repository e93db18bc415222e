"""Show what was read of a data set, and warn where it looks like other columns or another layout."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError
from ..models.tag_schemes import entity_tag
from .columns import plain
from .writing_systems import HAN, KANA


if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


logger = logging.getLogger(__name__)
_ROWS = 1000  # whose words and texts are inspected
_SHOWN, _NAMES_SHOWN = 3, 8
_NUMBER = re.compile(r"[\d.,:/%+-]*\d[\d.,:/%+-]*")
_IDENTIFIER = re.compile(r"(?=.*\d)[\w-]*", re.ASCII)
UNSPACED = re.compile(f"[{HAN}{KANA}\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # also Thai, Lao, Burmese, Khmer
_LONGEST_MEAN = 8  # characters of a word of a language without spaces
_CHOOSING = {
    *("answer", "isvalid", "isselected", "split", "fold", "kfold", "subset", "partition", "usage", "istest"),
    "istrain",
    *("datasetsplit", "weight", "sampleweight"),
}
_FEW = 20


def inspect_tagging(splits: DatasetDict, text: str, label: str, labels: Sequence[str]) -> None:
    """Log a line per split with words and labels, and warnings; `labels` are the names of the ids."""
    for split, rows in splits.items():
        first = _first_rows(split, rows)
        sentences = first[text][:]
        shown, parts = sentences[0][:_SHOWN], [f"{len(rows):,} sentences"]
        if label in rows.column_names:
            parts += _tag_counts(rows, label, labels)
            row, start = _first_entity(first[label][:], labels)
            pairs = zip(sentences[row][start : start + _SHOWN], first[label][row][start:])  # noqa: B905
            shown = [f"{word}/{'-' if tag < 0 else labels[tag]}" for word, tag in pairs]
        line = " ".join(map(_short, shown))
        logger.info(f"{split}: words in column {text!r}, labels in {label!r}: {line}; {', '.join(parts)}")
        _warn_of_words(split, text, sentences)
        warn_of_choosing_columns(split, rows, (text, label))


def inspect_classification(splits: DatasetDict, texts: Sequence[str], label: str, labels: Sequence[str]) -> None:
    """Log a line per split with texts and labels, and warnings; numbers have no `labels`."""
    for split, rows in splits.items():
        first = _first_rows(split, rows)
        shown = list(zip(*(first[name][:_SHOWN] for name in texts), strict=True))
        parts = [" | ".join(_short(text or "", 40) for text in row) for row in shown]
        numbers = f"{len(rows):,} rows"
        if label in rows.column_names:
            cells = rows[label][:]
            parts = [f"{part!r} {_label_of(cell, labels)}" for part, cell in zip(parts, cells[:_SHOWN], strict=True)]
            if labels:
                several = isinstance(cells[0], list)
                counts = np.sum(cells, axis=0) if several else np.bincount(cells, minlength=len(labels))
                numbers += f", {_listed(labels, counts)}"
            else:
                numbers += f", regression of numbers from {min(cells):g} to {max(cells):g}"
        columns = ", ".join(map(repr, texts))
        logger.info(f"{split}: texts in column {columns}, labels in {label!r}: {'; '.join(parts)}; {numbers}")
        for name in texts:
            _warn_of_texts(split, name, [text for text in first[name][:] if text])
        warn_of_choosing_columns(split, rows, (*texts, label))


def _first_rows(split: str, rows: Dataset) -> Dataset:
    """The rows that are inspected; a UserError if there are none."""
    if not len(rows):
        raise UserError(f"No row of the {split} split is left: all lack a text or a label. Correct or omit its file.")
    return rows.select(range(min(len(rows), _ROWS)))


def count_entities(ids: np.ndarray, starts: np.ndarray, labels: Sequence[str]) -> dict[str, int]:
    """
    The number of entities of each type, by the ids `[W]` of all words, negative without a label, and the index of the
    first word of each sentence.
    """
    tags = [entity_tag(name) or ("O", "") for name in labels]
    kinds = sorted({kind for _, kind in tags if kind})
    kind_of = np.array([kinds.index(kind) if kind else -1 for _, kind in tags] + [-1])
    begins = np.array([prefix in ("B", "S") for prefix, _ in tags] + [False])
    kind = kind_of[np.maximum(ids, -1)]
    before = np.concatenate([[-1], kind[:-1]])
    before[starts[starts < len(ids)]] = -1
    first = (kind >= 0) & (begins[np.maximum(ids, -1)] | (kind != before))
    return dict(zip(kinds, np.bincount(kind[first], minlength=len(kinds)).tolist(), strict=True))


def _tag_counts(rows: Dataset, label: str, labels: Sequence[str]) -> list[str]:
    """The numbers of words and of entities, or of labels, as texts."""
    lists = rows.select_columns(label).with_format("arrow")[:].column(0).combine_chunks()
    ids = lists.flatten().to_numpy(zero_copy_only=False)
    starts = lists.offsets.to_numpy()[:-1] - lists.offsets[0].as_py()
    words = f"{len(ids):,} words"
    if all(map(entity_tag, labels)) and len(labels) > 1:
        entities = count_entities(ids, starts, labels)
        return [words, f"{sum(entities.values()):,} entities: {_listed(list(entities), list(entities.values()))}"]
    return [words, _listed(labels, np.bincount(ids[ids >= 0], minlength=len(labels)))]


def _first_entity(rows: Sequence[Sequence[int]], labels: Sequence[str]) -> tuple[int, int]:
    """The row and the index of the first label but O, or (0, 0)."""
    tagged = ((row, i) for row, ids in enumerate(rows) for i, tag in enumerate(ids) if tag >= 0 and labels[tag] != "O")
    return next(tagged, (0, 0))


def _warn_of_words(split: str, column: str, sentences: Sequence[Sequence[str]]) -> None:
    words = list(chain.from_iterable(sentences))
    several = len(sentences) > 1
    are_single = several and 2 * sum(len(sentence) == 1 for sentence in sentences) > len(sentences)
    unspaced = [word for word in words if UNSPACED.match(word)]
    mean = sum(map(len, unspaced)) / max(len(unspaced), 1)
    if are_numbers(words):
        logger.warning(
            f"{split}: most words in column {column!r} are numbers or identifiers, such as {_some(words)}. If these "
            "are no words, write --text_column_name NAME, or all columns of a CoNLL file: --column_names _,tokens,tags"
        )
    elif 2 * len(unspaced) > len(words) and (mean > _LONGEST_MEAN or (are_single and mean > 2)):
        logger.warning(
            f"{split}: words such as {_some(unspaced)} are phrases of a language without spaces. Write one word or "
            "character per line or list item, each with its label."
        )
    elif are_single:
        logger.warning(
            f"{split}: most sentences have one word, such as {_some(words)}. Write the words of a sentence into one "
            "list, or into consecutive lines of a CoNLL file with an empty line after the last."
        )
    elif not several and len(words) > 500:
        logger.warning(f"{split} is one sentence of {len(words):,} words. Write an empty line after each sentence.")


def _warn_of_texts(split: str, column: str, texts: Sequence[str]) -> None:
    single = [text for text in texts if len(text) < 30 and len(text.split()) == 1 and not UNSPACED.search(text)]
    kind = "are numbers or identifiers" if are_numbers(texts) else "have one word"
    if len(texts) > 1 and 2 * len(single) > len(texts):
        logger.warning(
            f"{split}: most texts in column {column!r} {kind}, such as {_some(single)}. If they are not what you "
            "classify, write --text_column_name NAME."
        )


def warn_of_choosing_columns(split: str, rows: Dataset, used: Sequence[str]) -> None:
    """Warn of columns that say which rows to use, or how much they count, whose rows are all used alike."""
    for name in rows.column_names:
        if plain(name) in _CHOOSING and name not in used:
            values = list(map(str, dict.fromkeys(rows[name])))
            if len(values) > 1 and (len(values) <= _FEW or "weight" in plain(name)):
                logger.warning(
                    f"{split} has a column {name!r} with {_some(values)}, and all its rows are used alike. If "
                    "it chooses rows, write those of each value into a file: --train_file, --validation_file, ..."
                )


def are_numbers(words: Sequence[str]) -> bool:
    """Whether more than half of some words are numbers, or distinct and with digits, as identifiers are."""
    numbers = [word for word in words if _NUMBER.fullmatch(word.strip())]
    identifiers = {word for word in words if _IDENTIFIER.fullmatch(word.strip())}
    return len(words) > 1 and 2 * max(len(numbers), len(identifiers)) > len(words)


def _label_of(cell: Any, labels: Sequence[str]) -> str:
    if not labels:
        return f"{cell:g}"
    if isinstance(cell, list):
        return ",".join(name for name, value in zip(labels, cell, strict=True) if value) or "(none)"
    return labels[cell]


def _listed(names: Sequence[str], counts: Sequence[int] | np.ndarray) -> str:
    """Names with their counts, the most frequent ones first."""
    order = sorted(zip(names, map(int, counts), strict=True), key=lambda pair: -pair[1])
    more = f", and {len(order) - _NAMES_SHOWN} more" if len(order) > _NAMES_SHOWN else ""
    return ", ".join(f"{name} {count:,}" for name, count in order[:_NAMES_SHOWN]) + more


def _some(words: Sequence[str]) -> str:
    return ", ".join(_short(word) for word in islice(dict.fromkeys(words), _SHOWN))


def _short(text: str, length: int = 30) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"
