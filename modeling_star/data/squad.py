"""Reading data for run_qa.py: questions, their contexts and answers, as SQuAD and its kin write them.

    data = prepare_reading({split: unfold(rows) for split, rows in splits.items()})
    features = window_features(data.splits["train"], tokenizer, max_seq_length=512, doc_stride=128)

Rows are numbered from 1 in messages, and questions are named by their id.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..inference.question_answering import Window, encode_windows
from .caching import source_version
from .columns import find_reading_columns
from .labels import row_ref, short_repr
from .splits import check_train, drop_or_raise
from .tokenizers import map_rows


logger = logging.getLogger(__name__)

_ANSWER = {"text": Value("string"), "answer_start": Value("int64")}
ANSWERS = {name: List(kind) for name, kind in _ANSWER.items()}
_NESTED = ("data", "paragraphs", "qas")
_FORM = 'Write {"text": ["Oslo"], "answer_start": [17]}: the answers, and the character of the context each begins at.'
_NESTED_FORM = (
    'Write it in SQuAD\'s form: {"context": ..., "qas": [{"id": ..., "question": ..., "answers": [{"text": "Oslo", '
    '"answer_start": 17}]}]}.'
)
_CHECKED = ("inexact", "outside")  # columns that count what one warning tells


@dataclass(frozen=True)
class ReadingData:
    """Questions about contexts, with spans of them as answers.

    Attributes:
        splits: rows with `id`, `question`, `context` (texts) and `answers` (lists `text` and `answer_start`, empty
            where the context has no answer); a split without labels lacks `answers`.
        label_column: "answers".
        label_list: empty: spans have no names.
    """

    splits: DatasetDict
    label_column: str = "answers"
    label_list: tuple[str, ...] = ()

    def is_labelled(self, split: str) -> bool:
        return self.label_column in self.splits[split].column_names


def flatten_squad(dataset: Dataset) -> Dataset:
    """SQuAD's own nesting, articles of paragraphs of questions, as one row a question; other data as they are."""
    if not any(isinstance(getattr(dataset.features.get(name), "feature", None), dict) for name in _NESTED):
        return dataset
    kinds = {**{name: Value("string") for name in ("id", "question", "context")}, "answers": [_ANSWER]}
    questions = dataset.map(
        _Unfolder(),
        batched=True,
        remove_columns=dataset.column_names,
        features=Features(kinds),
        desc="Reading questions",
    )
    # A test file may tell none, which is not to have none.
    return (
        questions
        if any(answers is not None for answers in questions["answers"])
        else questions.remove_columns("answers")
    )


@dataclass
class _Unfolder:
    """What `flatten_squad` does to a batch of articles; the questions stay on disk, so that features are cached."""

    version: str = source_version(__name__)

    def __call__(self, batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
        rows: list[dict[str, Any]] = []
        for cells in zip(*batch.values(), strict=True):
            _collect(dict(zip(batch, cells, strict=True)), {}, rows)
        return {name: [row.get(name) for row in rows] for name in ("id", "question", "context", "answers")}


def _collect(item: dict[str, Any], above: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """
    The questions below an article, a paragraph or a question, each with the context that it stands under.

    Raises:
        UserError: what stands under `qas` has no question, but other keys, as in the first files of CMRC 2018, or
            answers without their places.
    """
    below = next((name for name in _NESTED if item.get(name) is not None), None)
    if below is not None:
        context = {"context": item["context"]} if item.get("context") is not None else {}
        for part in item[below]:
            if below == "qas" and "question" not in part:
                told = f"A question under 'qas' has the keys {', '.join(map(repr, part))}, and none is 'question'."
                raise UserError(f"{told} {_NESTED_FORM}")
            _collect(part, above | context, rows)
    elif "question" in item:
        name, answers = item.get("id"), item.get("answers")
        if not all(isinstance(answer, dict) for answer in answers or ()):
            raise UserError(f"A question under 'qas' has the answers {short_repr(answers)}. {_NESTED_FORM}")
        rows.append(
            {
                **above,
                "id": None if name is None else str(name),
                "question": item["question"],
                "answers": answers and [{key: answer.get(key) for key in ANSWERS} for answer in answers],
            }
        )


def prepare_reading(
    splits: DatasetDict,
    *,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    version_2: bool = False,
    drop_empty: bool = False,
) -> ReadingData:
    """Check every question of a reading data set.

    Args:
        splits: what `load_splits` and `flatten_squad` gave: one row a question.
        text_column_name, label_column_name: see `find_reading_columns`.
        version_2: questions may be without an answer, as in SQuAD 2.0.
        drop_empty: leave rows without a question or a context out, with a warning, instead of stopping at them.

    Returns:
        The splits, in columns of fixed names. Rows without an id get their number. A split without a single answer is
        unlabelled (with `version_2`: one without the column).

    Raises:
        UserError: a column is absent; a text or an answer is missing or of another form; an answer does not begin
            where it is said to; an id occurs twice. Split, row and id are named.
    """
    question, context, label = find_reading_columns(splits, text_column_name, label_column_name)
    result = {}
    for split, dataset in splits.items():
        texts = {"question": dataset[question][:], "context": dataset[context][:]}
        empty = _without_text(split, texts, {"question": question, "context": context})
        drop_or_raise(split, empty, f"no text in column {question!r} or {context!r}", drop_empty)
        keep = sorted(set(range(len(dataset))) - set(empty))
        if not keep:
            raise UserError(f"The {split} split has no row with a text in {question!r} and in {context!r}.")
        given = dataset["id"][:] if "id" in dataset.column_names else [None] * len(dataset)
        ids = [str(row + 1 if name is None else name) for row, name in enumerate(given)]
        _check_ids(split, [ids[row] for row in keep])
        cells = dataset[label][:] if label in dataset.column_names else None
        answers = cells and [_answers(split, row, ids[row], cell, label) for row, cell in enumerate(cells)]
        if answers is not None and not version_2 and not any(answer["text"] for answer in answers):
            answers = None
        for row in keep if answers is not None else ():
            _check_answers(split, row, ids[row], answers[row], texts["context"][row], version_2)
        result[split] = _standard(dataset, {question: "question", context: "context", label: "answers"}, ids, answers)
        if empty:
            result[split] = result[split].select(keep)
    data = ReadingData(DatasetDict(result))
    check_train(splits, [split for split in result if data.is_labelled(split)], label)
    return data


def _standard(
    dataset: Dataset, names: dict[str, str], ids: list[str], answers: list[dict[str, list[Any]]] | None
) -> Dataset:
    """The rows in columns of fixed names. Those that are right already stay on disk, so that features are cached."""
    if answers is None:
        names = {old: new for old, new in names.items() if new != "answers"}
    columns: dict[str, tuple[list[Any], Any]] = {"id": (ids, Value("string"))}
    if answers is not None:
        columns["answers"] = (answers, ANSWERS)
    held = {"id": "id", **names}
    for name, (values, _) in list(columns.items()):
        old = next(old for old, new in held.items() if new == name)
        if old in dataset.column_names and dataset[old][:] == values:
            columns.pop(name)
        else:
            held.pop(old)
    dataset = dataset.select_columns(list(held))
    dataset = dataset.rename_columns({old: new for old, new in held.items() if old != new})
    for name, (values, kind) in columns.items():
        dataset = dataset.add_column(name, values, feature=kind)
    return dataset.select_columns(["id", "question", "context", *(["answers"] if answers is not None else [])])


def _without_text(split: str, texts: dict[str, list[Any]], columns: dict[str, str]) -> list[int]:
    """Rows where a text is None or blank; a cell that is anything else is an error."""
    empty = set()
    for kind, cells in texts.items():
        for row, text in enumerate(cells):
            if text is not None and not isinstance(text, str):
                raise UserError(
                    f"{row_ref(split, row)}: column {columns[kind]!r} holds {short_repr(text)}, and a text is wanted. Name "
                    "the columns, e.g. `--text_column_name question,context`"
                )
            if text is None or not text.strip():
                empty.add(row)
    return sorted(empty)


def _check_ids(split: str, ids: list[str]) -> None:
    seen: set[str] = set()
    for one in ids:
        if one in seen:
            raise UserError(
                f"{split} has two questions with the id {one!r}: predictions are told apart by it. Give each its own."
            )
        seen.add(one)


def _answers(split: str, row: int, name: str, cell: Any, column: str) -> dict[str, list[Any]]:
    """An answers cell in either of its forms, one object of lists or a list of objects, as an object of lists."""
    if cell is None:
        return {"text": [], "answer_start": []}
    if isinstance(cell, list) and all(isinstance(answer, dict) for answer in cell):
        cell = {key: [answer.get(key) for answer in cell] for key in ANSWERS}
    if isinstance(cell, dict):
        text, start = cell.get("text"), cell.get("answer_start")
        lists = isinstance(text, list) and isinstance(start, list) and len(text) == len(start)
        if lists and all(isinstance(one, str) for one in text) and all(isinstance(one, int) for one in start):
            return {"text": text, "answer_start": start}
    raise UserError(f"{row_ref(split, row)} (question {name!r}): column {column!r} holds {short_repr(cell)}. {_FORM}")


def _check_answers(
    split: str, row: int, name: str, answers: dict[str, list[Any]], context: str, version_2: bool
) -> None:
    place = f"{row_ref(split, row)} (question {name!r})"
    if not answers["text"] and not version_2:
        raise UserError(
            f"{place} has no answer, and other questions of the split have one. Where the context may have none: "
            "write --version_2_with_negative"
        )
    for text, start in zip(answers["text"], answers["answer_start"], strict=True):
        there = context[start : start + len(text)] if start >= 0 else ""
        if text and there == text:
            continue
        found = context.find(text) if text else -1
        hint = f" It is at {found}." if found >= 0 else " The context does not hold it."
        raise UserError(
            f"{place}: the answer {short_repr(text)} should be at character {start} of the context, and there stands "
            f"{short_repr(there)}.{hint if text else ' An answer has at least one character.'}"
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
    num_proc: int | None = None,
    load_from_cache_file: bool | None = None,
) -> Dataset:
    """Questions with their contexts as model inputs, a row for each window.

    Args:
        dataset: rows as in `ReadingData`.
        tokenizer: a fast tokenizer that pads on the right.
        max_seq_length: tokens of a window, question included; None: the whole context in one.
        doc_stride: tokens of the context that neighbouring windows share.
        labelled: whether to make `labels` of the first of the answers.
        split: the name of the split in warnings.
        num_proc, load_from_cache_file: as in `datasets.Dataset.map`.

    Returns:
        A data set of the model inputs, `labels [2]` (columns of the answer's first and last token; both the window's
        no-answer column where it does not hold the whole answer, as for BERT), and what `windows_of` needs.

    Raises:
        ValueError: a tokenizer that pads on the left, or a question that leaves no room for its context.
    """
    if tokenizer.padding_side != "right":
        raise ValueError('Answers are columns counted from the left: set tokenizer.padding_side = "right".')
    encode = WindowEncoder(tokenizer, max_seq_length, doc_stride, labelled)
    features = map_rows(dataset, encode, f"Tokenizing {split}", num_proc, load_from_cache_file)
    logger.info(f"{split}: {len(dataset):,} questions in {len(features):,} windows.")
    if not labelled:
        return features
    inexact, outside = (int(np.sum(features[name][:])) for name in _CHECKED)
    if inexact:
        logger.warning(
            f"{split}: {inexact:,} of {len(dataset):,} answers begin or end inside a token: they are learned with the "
            "whole of it."
        )
    if outside:
        logger.warning(
            f"{split}: {outside:,} of {len(dataset):,} answers lie in no window as a whole: raise --max_seq_length or "
            "--doc_stride."
        )
    return features.remove_columns(_CHECKED)


@dataclass
class WindowEncoder:
    """What `window_features` does to a batch of rows, as lists. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    limit: int | None
    stride: int
    labelled: bool
    version: str = source_version(__name__, "modeling_star.inference.question_answering")

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        found = encode_windows(batch["question"], batch["context"], self.tokenizer, self.limit, self.stride)
        output: dict[str, list[Any]] = {name: [] for name in found[0][0].inputs}
        own = ["example_index", "begin", "first", "no_answer", "offsets"]
        output |= {name: [] for name in [*own, *(["labels", *_CHECKED] if self.labelled else [])]}
        for row, windows in enumerate(found):
            for window in windows:
                for name, values in window.inputs.items():
                    output[name].append(values)
                output["example_index"].append(indices[row])
                for name in ("begin", "first", "no_answer"):
                    output[name].append(getattr(window, name))
                output["offsets"].append(window.offsets.flatten().tolist())
            if self.labelled:
                self._label(windows, batch["answers"][row], output)
        return output

    def _label(self, windows: list[Window], answers: dict[str, list[Any]], output: dict[str, list[Any]]) -> None:
        """Labels of one question's windows, and whether they say what the answer says."""
        start = answers["answer_start"][0] if answers["text"] else 0
        end = start + len(answers["text"][0]) if answers["text"] else 0
        span = answer_tokens(windows, start, end)
        output["labels"] += [window_labels(window, span) for window in windows]
        exact = not answers["text"] or (span is not None and _characters(windows, span) == (start, end))
        outside = bool(answers["text"]) and not any(_holds(window, span) for window in windows)
        # Once for a question, at its first window.
        counts = {"inexact": int(not exact), "outside": int(outside)}
        for name, count in counts.items():
            output[name] += [count] + [0] * (len(windows) - 1)


def answer_tokens(windows: Sequence[Window], start: int, end: int) -> tuple[int, int] | None:
    """The first and last token of the context that the characters from `start` to `end` have a part in, if any."""
    touched: list[int] = []
    for window in windows:
        inside = (window.offsets[:, 1] > start) & (window.offsets[:, 0] < end)
        touched += (inside.nonzero().flatten() + window.first).tolist()
    return (min(touched), max(touched)) if touched else None


def window_labels(window: Window, span: tuple[int, int] | None) -> list[int]:
    """Columns of the first and last token of a span, or twice the no-answer column where the window lacks a part."""
    if not _holds(window, span):
        return [window.no_answer] * 2
    return [window.begin + token - window.first for token in span]


def _holds(window: Window, span: tuple[int, int] | None) -> bool:
    return span is not None and window.first <= span[0] and span[1] < window.first + len(window.offsets)


def _characters(windows: Sequence[Window], span: tuple[int, int]) -> tuple[int, int]:
    """From which to which character a span of the context's tokens reaches."""
    places = {}
    for window in windows:
        for side, token in enumerate(span):
            if window.first <= token < window.first + len(window.offsets):
                places[side] = int(window.offsets[token - window.first, side])
    return places[0], places[1]


def windows_of(features: Dataset) -> dict[int, list[tuple[int, Window]]]:
    """The windows of each question, by its row, each with its own row in `features`; without their inputs."""
    columns = features.select_columns(["example_index", "begin", "first", "no_answer", "offsets"])
    found: dict[int, list[tuple[int, Window]]] = {}
    for row, cells in enumerate(columns.with_format("numpy")):
        window = Window(
            inputs={},
            begin=int(cells["begin"]),
            first=int(cells["first"]),
            offsets=torch.from_numpy(np.array(cells["offsets"], dtype=np.int64)).reshape(-1, 2),
            no_answer=int(cells["no_answer"]),
        )
        found.setdefault(int(cells["example_index"]), []).append((row, window))
    return found


__all__ = [
    "ANSWERS",
    "ReadingData",
    "WindowEncoder",
    "answer_tokens",
    "flatten_squad",
    "prepare_reading",
    "window_features",
    "windows_of",
]
