"""
Data of extractive question answering: questions, contexts and answers in SQuAD's forms, and windows of them.

data = prepare_reading({split: flatten_squad(rows) for split, rows in splits.items()})
features = window_features(data.splits["train"], tokenizer, max_seq_length=512, doc_stride=128)
"""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NoReturn

import numpy as np
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .columns import find_reading_columns, is_impossible, rejected_rows
from .files import source_version
from .inspection import warn_of_choosing_columns
from .labels import literal_list, row_ref, short_repr
from .question_windows import QuestionWindow, encode_windows
from .splits import Labelled, check_train, drop_or_raise
from .tokenizers import map_rows
from .windows import cut_windows


logger = logging.getLogger(__name__)
_TEXTS = {name: Value("string") for name in ("id", "question", "context")}
_ANSWER = {"text": Value("string"), "answer_start": Value("int64")}
ANSWERS = {name: List(kind) for name, kind in _ANSWER.items()}
_NESTED = ("data", "paragraphs", "qas")
_FORM = (
    'Write {"text": ["Oslo"], "answer_start": [17]}, the answers and the first character of each in the context, as '
    'json lines: df.to_json("train.jsonl", orient="records", lines=True)'
)
_NESTED_FORM = (
    'Write {"context": ..., "qas": [{"id": ..., "question": ..., "answers": [{"text": "Oslo", "answer_start": 17}]}]}.'
)
_IMPOSSIBLE = "is_impossible"
_SINGLE = (str, int, float)
_STARTS = "answer_start"
_COUNTS = ("inexact", "outside")  # columns that count answers for a warning
_WINDOW = ("begin", "first", "no_answer")


@dataclass(frozen=True)
class ReadingData(Labelled):
    """
    Rows with `id`, `question`, `context` and `answers`, lists `text` and `answer_start`, empty without an answer; a
    split without labels lacks `answers`.
    """

    splits: DatasetDict
    label_column: str = "answers"
    label_list: tuple[str, ...] = ()


def flatten_squad(dataset: Dataset) -> Dataset:
    """One row for each question of SQuAD's nested articles and paragraphs; other data unchanged."""
    nested = [dataset[name] for name in _NESTED if name in dataset.column_names]
    # Where questions have different keys, the type of their column says nothing of them.
    if not any(isinstance(cell, list) and any(isinstance(item, dict) for item in cell) for cell in chain(*nested)):
        return dataset
    features = Features({**_TEXTS, "answers": [_ANSWER], _IMPOSSIBLE: Value("bool")})
    questions = map_rows(dataset, _Unfolder(), "Reading questions", features)
    # Without any `answers`, the file has no labels: its questions may have answers.
    empty = [name for name in ("answers", _IMPOSSIBLE) if all(cell is None for cell in questions[name])]
    return questions.remove_columns(empty)


@dataclass
class _Unfolder:
    """Flattens a batch of articles. A class with the version of its code, for the cache of `datasets`."""

    version: str = source_version(__name__, is_impossible.__module__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        rows: list[dict[str, Any]] = []
        for cells in zip(*batch.values(), strict=True):
            _collect(dict(zip(batch, cells, strict=True)), {}, rows)
        return {name: [row.get(name) for row in rows] for name in (*_TEXTS, "answers", _IMPOSSIBLE)}


def _collect(item: dict[str, Any], above: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """
    Add the questions below an article, a paragraph or a question to `rows`, each with its context; an item of `qas`
    that is no question, as in the first files of CMRC 2018, is an error.
    """
    level = next((name for name in _NESTED if item.get(name) is not None), None)
    if level is not None:
        above = above | {"context": item["context"]} if item.get("context") is not None else above
        for part in item[level]:
            answers = _objects(part.get("answers")) or ()
            if level == "qas" and ("question" not in part or not all(isinstance(answer, dict) for answer in answers)):
                raise UserError(f"'qas' holds {short_repr(part)}. {_NESTED_FORM}")
            _collect(part, above, rows)
    elif "question" in item:
        name, answers = item.get("id"), _objects(item.get("answers"))
        rows.append(
            {
                **above,
                "id": None if name is None else str(name),
                "question": item["question"],
                "answers": answers and [{key: answer.get(key) for key in ANSWERS} for answer in answers],
                _IMPOSSIBLE: is_impossible(item),
            }
        )


def _objects(answers: Any) -> Any:
    """An object of lists as a list of objects; others unchanged."""
    lists = [answers.get(key) for key in ANSWERS] if isinstance(answers, dict) else []
    if not all(isinstance(each, list) and len(each) == len(lists[0] or ()) for each in lists) or not lists:
        return answers
    return [dict(zip(ANSWERS, cells, strict=True)) for cells in zip(*lists, strict=True)]


def prepare_reading(
    splits: DatasetDict,
    *,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    version_2: bool = False,
    drop_empty: bool = False,
) -> ReadingData:
    """Check the questions of a data set, and bring them to columns of fixed names.

    Args:
        splits: from `load_splits` and `flatten_squad`: one row for each question.
        text_column_name, label_column_name: see `find_reading_columns`.
        version_2: questions may have no answer, as in SQuAD 2.0: their list is empty or has the answer "", or a column
            such as `is_impossible` says so, whatever answers they have.
        drop_empty: drop rows without a question, a context, or an answer in it, with a warning, instead of an error.

    Returns:
        The splits. Rows without an id get their number, from 1 on. A split without a single answer is unlabelled (with
        `version_2`: one without the column).

    Raises:
        UserError: a column is absent; a text or an answer is missing or has another form; no answer of a question is a
            span of its context; an id occurs twice.
    """
    question, context, label = find_reading_columns(splits, text_column_name, label_column_name)
    result = {}
    for split, dataset in splits.items():
        labelled = label in dataset.column_names
        counts_of = {"omitted": Value("int64"), "at_odds": Value("bool")}
        features = Features({**_TEXTS, "answers": ANSWERS, **counts_of} if labelled else _TEXTS)
        rows = map_rows(dataset, _RowReader(split, question, context, label), f"Reading {split}", features)
        warn_of_choosing_columns(split, dataset, (question, context, label))
        empty = [
            number
            for number, texts in enumerate(zip(rows["question"][:], rows["context"][:], strict=True))
            if not all(text.strip() for text in texts)
        ]
        drop_or_raise(split, empty, f"no text in column {question!r} or {context!r}", drop_empty)
        dropped = {*empty, *rejected_rows(split, dataset, (question, context, label))}
        if labelled:
            counts = rows["omitted"][:]
            unusable = [row for row, count in enumerate(counts) if count < 0 and row not in dropped]
            if unusable and not drop_empty:
                _raise_unusable(row_ref(split, unusable[0]), rows[unusable[0]]["id"], dataset[unusable[0]], label)
            drop_or_raise(split, unusable, "no answer that is in its context", drop_empty)
            dropped.update(unusable)
            at_odds = [row for row, is_at_odds in enumerate(rows["at_odds"][:]) if is_at_odds and row not in dropped]
            if at_odds and (version_2 or len(at_odds) < len(rows)):
                logger.warning(
                    f"{split}: {len(at_odds)} questions have an answer and say that there is none, or the reverse "
                    f"(first: row {at_odds[0] + 1}). They are read as without an answer."
                )
            omitted = sum(count for row, count in enumerate(counts) if row not in dropped)
            if omitted:
                logger.warning("%s: %d other answers that are not in their context are omitted.", split, omitted)
            rows = rows.remove_columns(["omitted", "at_odds"])
        if dropped:
            rows = rows.select(sorted(set(range(len(rows))) - dropped))
        if not len(rows):
            raise UserError(f"The {split} split has no row with a text in {question!r} and in {context!r}.")
        ids = rows["id"][:]
        ((name, count),) = Counter(ids).most_common(1)
        if count > 1:
            raise UserError(f"{split} has two questions with the id {name!r}: ids must be unique.")
        if labelled and not version_2:
            unanswered = [name for name, answers in zip(ids, rows["answers"][:], strict=True) if not answers["text"]]
            if len(unanswered) == len(rows):
                rows = rows.remove_columns("answers")
            elif unanswered:
                raise UserError(
                    f"Question {unanswered[0]!r} of the {split} split has no answer. Where contexts may have none: "
                    "write --version_2_with_negative"
                )
        result[split] = rows
    data = ReadingData(DatasetDict(result))
    check_train(splits, [split for split in result if data.is_labelled(split)], label)
    return data


@dataclass
class _RowReader:
    """Reads a batch of rows for `prepare_reading`. A class with the version of its code, for the cache."""

    split: str
    question: str
    context: str
    label: str
    version: str = source_version(__name__, is_impossible.__module__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        names = batch.get("id", [None] * len(indices))
        questions, contexts = (
            [text if isinstance(text, str) else "" for text in batch[column]]
            for column in (self.question, self.context)
        )
        output: dict[str, list[Any]] = {
            "id": [str(row + 1 if name is None else name) for row, name in zip(indices, names, strict=True)],
            "question": questions,
            "context": contexts,
        }
        if self.label in batch:
            output |= {"answers": [], "omitted": [], "at_odds": []}
            cells = zip(indices, output["id"], questions, contexts, *batch.values(), strict=True)
            for row, name, question, context, *others in cells:
                cell_of = dict(zip(batch, others, strict=True))
                answers, impossible = _read_answers(cell_of, self.label), is_impossible(cell_of)
                if answers is None:
                    where = f"{row_ref(self.split, row)} (question {name!r})"
                    raise UserError(f"{where}: column {self.label!r} holds {short_repr(cell_of[self.label])}. {_FORM}")
                output["at_odds"].append(impossible == bool(answers["text"]))
                answers = {key: [] for key in ANSWERS} if impossible else answers
                usable = _usable(answers, context) if question.strip() and context.strip() else answers
                is_unusable = answers["text"] and not usable["text"]
                output["answers"].append(usable)
                output["omitted"].append(-1 if is_unusable else len(answers["text"]) - len(usable["text"]))
        return output


def _read_answers(row: Mapping[str, Any], column: str) -> dict[str, list[Any]] | None:
    """
    The answers of a row as an object of lists; `None` for other forms than an object of lists or of one answer, a list
    of objects, either of them in a text (csv), or texts beside a column `answer_start`. An empty text is no answer.
    """
    cell = row[column]
    if isinstance(cell, str):
        written = literal_list(f"[{cell}]") or [cell]
        cell = written[0] if isinstance(written[0], dict | list) else cell
    if cell is None or cell != cell or str(cell).isspace() or cell == "":  # NaN is not itself
        return {key: [] for key in ANSWERS}
    if isinstance(cell, list) and all(isinstance(answer, dict) for answer in cell):
        cell = {key: [answer.get(key) for answer in cell] for key in ANSWERS}
    if not isinstance(cell, dict):
        cell = {"text": cell, "answer_start": next((row[name] for name in row if name.lower() == _STARTS), None)}
    texts, starts = ([each] if isinstance(each, _SINGLE) else each for each in map(cell.get, ANSWERS))
    if not isinstance(texts, list) or not isinstance(starts, list) or len(texts) != len(starts):
        return None
    pairs = [(text, start) for text, start in zip(texts, starts, strict=True) if text or start not in (None, -1)]
    pairs = [(text, start) for text, start in pairs if text != ""]
    if not all(isinstance(text, str) and re.fullmatch(r"-?\d+(\.0)?", str(start)) for text, start in pairs):
        return None
    return {"text": [text for text, _ in pairs], "answer_start": [int(float(start)) for _, start in pairs]}


def _usable(answers: dict[str, list[Any]], context: str) -> dict[str, list[Any]]:
    """The answers that are spans of the context."""
    pairs = zip(answers["text"], answers["answer_start"], strict=True)
    spans = [
        (text, start) for text, start in pairs if text and start >= 0 and context[start : start + len(text)] == text
    ]
    return {"text": [text for text, _ in spans], "answer_start": [start for _, start in spans]}


def _raise_unusable(where: str, name: str, row: Mapping[str, Any], column: str) -> NoReturn:
    answers = _read_answers(row, column)
    raise UserError(
        f"{where} (question {name!r}): the context does not have the answer {short_repr(answers['text'][0])} at "
        f"character {answers['answer_start'][0]}. Characters are counted from 0; write [] where there is no answer, "
        "or omit such questions: --drop_empty"
    )


# Model inputs
def window_features(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_seq_length: int | None,
    doc_stride: int,
    labelled: bool = True,
    split: str = "data",
) -> Dataset:
    """
    Model inputs of questions and their contexts, a row for each window; `labels [2]` are the columns of the first
    answer's first and last token, both the window's no-answer column where it does not hold the whole answer, as for
    BERT.

    Args:
        dataset: rows as in `ReadingData`.
        tokenizer: a fast tokenizer that pads on the right.
        max_seq_length: tokens of a window, question included; None: the whole context in one.
        doc_stride: tokens of the context that neighbouring windows share.
    """
    if tokenizer.padding_side != "right":
        raise ValueError('Answers are columns counted from the left: set tokenizer.padding_side = "right".')
    encode = WindowEncoder(tokenizer, max_seq_length, doc_stride, labelled)
    features = map_rows(dataset, encode, f"Tokenizing {split}")
    logger.info(f"{split}: {len(dataset):,} questions in {len(features):,} windows.")
    if not labelled:
        return features
    inexact, outside = (int(np.sum(features[name][:])) for name in _COUNTS)
    if inexact:
        logger.warning(
            f"{split}: {inexact:,} of {len(dataset):,} answers begin or end inside a token, which is learned whole."
        )
    if outside:
        logger.warning(
            f"{split}: {outside:,} of {len(dataset):,} answers lie in no window as a whole: raise --max_seq_length or "
            "--doc_stride."
        )
    return features.remove_columns(_COUNTS)


@dataclass
class WindowEncoder:
    """Encodes a batch of rows for `window_features`. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    limit: int | None
    stride: int
    labelled: bool
    version: str = source_version(__name__, encode_windows.__module__, cut_windows.__module__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        encoded = encode_windows(batch["question"], batch["context"], self.tokenizer, self.limit, self.stride)
        rows: list[dict[str, Any]] = []
        for number, windows in enumerate(encoded):
            labels = self._labels(windows, batch["answers"][number]) if self.labelled else [{}] * len(windows)
            for window, columns in zip(windows, labels, strict=True):
                numbers = {name: getattr(window, name) for name in _WINDOW}
                offsets = window.offsets.flatten().tolist()
                index = indices[number]
                rows.append({**window.inputs, "example_index": index, **numbers, "offsets": offsets, **columns})
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _labels(self, windows: list[QuestionWindow], answers: dict[str, list[Any]]) -> list[dict[str, Any]]:
        """Labels of one question's windows; the first one also counts an answer that they do not give exactly."""
        start = answers["answer_start"][0] if answers["text"] else 0
        end = start + len(answers["text"][0]) if answers["text"] else 0
        first, last, characters = _answer_tokens(windows, start, end)
        columns = [dict.fromkeys(_COUNTS, 0) | {"labels": [window.no_answer] * 2} for window in windows]
        held = [first is not None and _holds(window, first, last) for window in windows]
        for window, column, holds in zip(windows, columns, held, strict=True):
            if holds:
                column["labels"] = [window.begin + token - window.first for token in (first, last)]
        if answers["text"]:
            columns[0] |= {"inexact": int(characters != (start, end)), "outside": int(not any(held))}
        return columns


def _answer_tokens(
    windows: Sequence[QuestionWindow], start: int, end: int
) -> tuple[int | None, int | None, tuple[int, int] | None]:
    """The first and last token of the context that share characters with those from `start` to `end`, and theirs."""
    tokens: list[int] = []
    characters: list[int] = []
    for window in windows:
        inside = (window.offsets[:, 1] > start) & (window.offsets[:, 0] < end)
        tokens += (inside.nonzero().flatten() + window.first).tolist()
        characters += window.offsets[inside].flatten().tolist()
    return (min(tokens), max(tokens), (min(characters), max(characters))) if tokens else (None, None, None)


def _holds(window: QuestionWindow, first: int, last: int) -> bool:
    return window.first <= first and last < window.first + len(window.offsets)


def windows_of(features: Dataset) -> dict[int, list[tuple[int, QuestionWindow]]]:
    """The windows of each question, by its row, each with its row in `features`; without their inputs."""
    columns = features.select_columns(["example_index", *_WINDOW, "offsets"])
    windows: dict[int, list[tuple[int, QuestionWindow]]] = {}
    for row, cells in enumerate(columns.with_format("numpy")):
        offsets = torch.from_numpy(np.array(cells["offsets"], dtype=np.int64)).reshape(-1, 2)
        window = QuestionWindow(inputs={}, offsets=offsets, **{name: int(cells[name]) for name in _WINDOW})
        windows.setdefault(int(cells["example_index"]), []).append((row, window))
    return windows
