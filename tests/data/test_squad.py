"""SQuAD's forms of data, errors that name the question, and windows whose labels slice to the answers."""

import gzip
import json
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from common import examples
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st
from samples import word_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from modeling_star.data.question_windows import encode_windows
from modeling_star.data.splits import hold_out, load_splits
from modeling_star.data.squad import WindowEncoder, flatten_squad, prepare_reading, window_features
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.tasks.question_answering import ReadingMetrics


OSLO = "Maria lives in Oslo, and Ada in Rome."


def row(name: str, question: str, context: str, *answers: tuple[str, int]) -> dict[str, Any]:
    spans = {"text": [text for text, _ in answers], "answer_start": [start for _, start in answers]}
    return {"id": name, "question": question, "context": context, "answers": spans}


ROWS = [
    row("a", "Where is Maria?", OSLO, ("Oslo", 15)),
    row("b", "Who is in Rome?", OSLO, ("Ada", 25), ("Ada in Rome", 25)),
    row("c", "谁住在北京？", "王明住在北京。", ("王明", 0)),
]


def answers_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    answers = row["answers"]
    return [
        {"id": "x", "text": text, "answer_start": start}
        for text, start in zip(answers["text"], answers["answer_start"], strict=True)
    ]


def nested(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """As SQuAD and DRCD write them: a paragraph for each context, with ids on every level."""
    paragraphs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        question = {"id": row["id"], "question": row["question"], "answers": answers_of(row)}
        if not question["answers"]:
            question |= {"is_impossible": True, "plausible_answers": [{"text": "Oslo", "answer_start": 15}]}
        paragraphs.setdefault(row["context"], []).append(question)
    articles = [
        {"title": "t", "id": "1", "paragraphs": [{"context": context, "id": "1-1", "qas": questions}]}
        for context, questions in paragraphs.items()
    ]
    return {"version": "1", "data": articles}


def write(path: Path, content: Any, **options: Any) -> Path:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
    text = lines if path.name.startswith("lines") else json.dumps(content, ensure_ascii=False, **options)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def prepared(rows: list[dict[str, Any]], **options: Any) -> list[dict[str, Any]]:
    data = prepare_reading(DatasetDict({"train": Dataset.from_list(rows)}), **options)
    return data.splits["train"].to_list()


# Forms


@pytest.mark.parametrize("name", ["squad.json", "squad.json.gz", "pretty.json", "lines.jsonl", "lines.jsonl.gz"])
def test_every_form_of_a_file_gives_the_same_questions(tmp_path: Path, name: str) -> None:
    content = ROWS if name.startswith("lines") else nested(ROWS)
    path = write(tmp_path / name, content, **({"indent": 2} if name == "pretty.json" else {}))
    splits = load_splits(files={"train": path})
    data = prepare_reading(DatasetDict({split: flatten_squad(rows) for split, rows in splits.items()}))
    assert data.splits["train"].to_list() == ROWS
    assert data.is_labelled("train")


def test_answers_may_be_a_list_of_objects_and_columns_may_be_named() -> None:
    rows = [{"ask": row["question"], "body": row["context"], "spans": answers_of(row)} for row in ROWS]
    found = prepared(rows, text_column_name="ask, body", label_column_name="spans")
    assert [row["id"] for row in found] == ["1", "2", "3"]
    assert [row["answers"] for row in found] == [row["answers"] for row in ROWS]
    assert [row["context"] for row in found] == [row["context"] for row in ROWS]


@pytest.mark.parametrize("hidden", ["absent", "empty", "null"])
def test_a_split_without_answers_is_unlabelled(hidden: str) -> None:
    plain = [{key: value for key, value in row.items() if key != "answers"} for row in ROWS]
    if hidden != "absent":
        own = {"text": [], "answer_start": []} if hidden == "empty" else None
        plain = [{**row, "answers": own} for row in plain]
    splits = DatasetDict({"train": Dataset.from_list(ROWS), "test": Dataset.from_list(plain)})
    data = prepare_reading(splits)
    assert [data.is_labelled(split) for split in ("train", "test")] == [True, False]
    assert data.splits["test"].to_list() == [{k: row[k] for k in ("id", "question", "context")} for row in ROWS]
    with pytest.raises(UserError, match="--label_column_name"):
        prepare_reading(DatasetDict({"train": splits["test"]}))


def test_questions_about_one_context_are_held_out_together() -> None:
    rows = [{**ROWS[0], "id": str(i), "context": f"{OSLO} {i // 4}"} for i in range(40)]
    splits = hold_out(DatasetDict({"train": Dataset.from_list(rows)}), 0.2, together="context")
    contexts = {split: set(rows["context"]) for split, rows in splits.items()}
    assert not contexts["train"] & contexts["validation"]
    assert len(splits["validation"]) == 8
    with pytest.raises(UserError, match=r"'context'.*--validation_file"):
        hold_out(DatasetDict({"train": Dataset.from_list(rows[:4])}), 0.2, together="context")


# Questions without an answer, and the ways to write answers


@pytest.mark.parametrize("ending", ["json", "list.json", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize(
    ("marks", "answers"),
    [
        ({"is_impossible": True}, [("Oslo", 15)]),
        ({"isImpossible": "true"}, [("Oslo", 15)]),
        ({"is_impossible": 1, "plausible_answers": [{"text": "Oslo", "answer_start": 15}]}, []),
        ({"has_answer": False}, [("Rome", 33)]),
        ({"answerable": 0}, [("Rome", 33)]),
        ({}, [("", -1)]),
        ({}, [("", 0), ("", 0)]),
        ({}, []),
    ],
)
def test_a_question_that_is_said_to_have_no_answer_has_none(
    tmp_path: Path, ending: str, marks: dict[str, Any], answers: list[tuple[str, int]]
) -> None:
    """In every kind of file; questions of nested files have different keys."""
    key = {"isImpossible": "isImpossible", "has_answer": "has_answer", "answerable": "answerable"}
    name = next((name for name in marks if name != "plausible_answers"), "is_impossible")
    answered = {key.get(name, "is_impossible"): str(name in ("has_answer", "answerable")).lower()}
    rows = [ROWS[0] | answered, row("x", "Who?", OSLO, *answers) | marks]
    path = tmp_path / f"a.{ending}"
    if ending.endswith("json"):
        qas = [
            {k: v for k, v in each.items() if k not in ("context", "answers")} | {"answers": answers_of(each)}
            for each in rows
        ]
        paragraphs = [{"context": OSLO, "qas": qas}]
        path.write_text(json.dumps(paragraphs if "list" in ending else {"data": [{"paragraphs": paragraphs}]}))
    elif ending == "jsonl":
        path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    else:
        frame = pd.DataFrame([{k: v for k, v in each.items() if k != "plausible_answers"} for each in rows])
        frame = frame.astype({name: str for name in frame if name not in ("answers",)})
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    splits = load_splits(files={"train": path})
    splits = DatasetDict({split: flatten_squad(rows) for split, rows in splits.items()})
    found = prepare_reading(splits, version_2=True).splits["train"]
    assert [row["answers"]["text"] for row in found] == [["Oslo"], []]
    with pytest.raises(UserError, match=r"'x'.*--version_2_with_negative"):
        prepare_reading(splits)


@pytest.mark.parametrize(
    "cells",
    [
        {"answers": "{'text': ['Oslo'], 'answer_start': [15]}"},
        {"answers": '{"text": ["Oslo"], "answer_start": [15]}'},
        {"answers": '[{"text": "Oslo", "answer_start": 15}]'},
        {"answers": {"text": "Oslo", "answer_start": 15}},
        {"answers": {"text": ["Oslo"], "answer_start": ["15"]}},
        {"answers": {"text": ["Oslo"], "answer_start": [15.0]}},
        {"answer_text": "Oslo", "answer_start": 15},
        {"answer": "Oslo", "answer_start": "15"},
        {"answers": ["Oslo"], "answer_start": [15]},
        {"answer": "Oslo", "answer_start": 15, "answers_start": None},
    ],
)
def test_an_answer_can_be_written_in_many_ways(cells: dict[str, Any]) -> None:
    found = prepared([{"question": "Where?", "context": OSLO} | cells])
    assert [row["answers"] for row in found] == [{"text": ["Oslo"], "answer_start": [15]}]


# Errors


# Features


# A zero-width space among them, for which no tokenizer here has a token.
WORDS = [
    "Oslo",
    "oslo",
    "U.S.",
    "don't",
    "3.14",
    "北京",
    "王明住在",
    "é",
    "naïve",
    "Ünï",
    "(",
    "a",
    "。",
    "IBM公司",
    "\u200b",
]


@pytest.fixture(scope="module", params=["word", "wordpiece", "character", "minilm"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    if request.param == "minilm":
        return AutoTokenizer.from_pretrained(request.getfixturevalue("minilm_path"))
    return train_tokenizer([" ".join(WORDS)] * 2, request.param, vocab_size=60)


@st.composite
def reading_rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Questions whose answers are some of the words of their contexts."""
    rows = []
    for number in range(draw(st.integers(1, 3))):
        words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=25))
        joiner = draw(st.sampled_from([" ", "  "]))
        first = draw(st.integers(0, len(words) - 1))
        last = draw(st.integers(first, min(first + 3, len(words) - 1)))
        start = sum(len(word) + len(joiner) for word in words[:first])
        answer = joiner.join(words[first : last + 1])
        question = " ".join(draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)))
        context = joiner.join(words)
        assert context[start : start + len(answer)] == answer
        rows.append(row(str(number), question, context, (answer, start)))
    return rows


@examples(60)
@given(rows=reading_rows(), room=st.integers(4, 60), stride=st.integers(0, 20))
def test_labels_slice_to_the_answer_in_every_window_that_holds_it(
    tokenizer: PreTrainedTokenizerBase, rows: list[dict[str, Any]], room: int, stride: int
) -> None:
    longest = max(len(tokenizer(row["question"]).input_ids) for row in rows) + 1 + room
    batch = {name: [row[name] for row in rows] for name in rows[0]}
    made = WindowEncoder(tokenizer, longest, stride, labelled=True)(batch, list(range(len(rows))))
    windows = encode_windows(batch["question"], batch["context"], tokenizer, longest, stride)
    assert made["example_index"] == [index for index, own in enumerate(windows) for _ in own]
    for index, window, (first, last) in zip(made["example_index"], chain(*windows), made["labels"], strict=True):
        context, answers = rows[index]["context"], rows[index]["answers"]
        start, end = answers["answer_start"][0], answers["answer_start"][0] + len(answers["text"][0])
        whole = tokenizer(context, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        tokens = [place for place, (a, b) in enumerate(whole) if a < end and b > start]
        stop = window.first + len(window.offsets)
        if tokens and window.first <= tokens[0] and tokens[-1] < stop:
            ends = [window.offsets[column - window.begin] for column in (first, last)]
            found = context[int(ends[0][0]) : int(ends[1][1])]
            assert found == answers["text"][0].strip(" \u200b")
        else:
            assert first == last == window.no_answer == 0


# Scores


def test_logits_that_point_at_the_labels_read_the_answers(tmp_path: Path) -> None:
    data = prepare_reading(DatasetDict({"train": Dataset.from_list(ROWS)}))
    examples = data.splits["train"]
    tokenizer = train_tokenizer([row["context"] for row in ROWS], "character", min_frequency=1)
    features = window_features(examples, tokenizer, max_seq_length=14, doc_stride=3)
    longest = max(map(len, features["input_ids"]))
    logits = torch.full((len(features), longest, 2), -5.0)
    for row, (start, end) in enumerate(features["labels"]):
        # Trainer pads with -100, which no window reads.
        logits[row, len(features[row]["input_ids"]) :] = -100.0
        logits[row, start, 0] = logits[row, end, 1] = 5.0 if start else 1.0
    metrics = ReadingMetrics("en", n_best_size=3)
    found = metrics.read(examples, features, logits.numpy())
    assert [one.text for one in found] == ["Oslo", "Ada", "王明"]
    assert [len(one.answers) for one in found] == [3, 3, 3]
    assert metrics.compute(examples, found) == {"exact_match": 1.0, "f1": 1.0}


def test_scores_of_questions_without_an_answer() -> None:
    rows = [ROWS[0], ROWS[1], {**ROWS[0], "id": "c", "answers": {"text": [], "answer_start": []}}]
    examples = prepare_reading(DatasetDict({"train": Dataset.from_list(rows)}), version_2=True).splits["train"]
    tokenizer = word_tokenizer("Maria lives in Oslo , and Ada Rome .")
    features = window_features(examples, tokenizer, max_seq_length=None, doc_stride=0)
    logits = torch.zeros(3, max(map(len, features["input_ids"])), 2)
    begin = features["begin"][:]
    for row, (span, null) in enumerate([(3, 1.0), (6, 7.0), (3, 6.0)]):
        logits[row, begin[row] + span] = 3.0  # "Oslo" or "Ada", at a sum of 6
        logits[row, 0] = null / 2
    metrics = ReadingMetrics("en", n_best_size=1, null_threshold=0.0)
    found = metrics.read(examples, features, logits.numpy())
    assert [one.text for one in found] == ["Oslo", "", "Oslo"]
    assert [one.null_difference for one in found] == [-5.0, 1.0, 0.0]
    scores = metrics.compute(examples, found)
    expected = {"exact_match": 1 / 3, "f1": 1 / 3, "has_answer_exact_match": 1 / 2, "has_answer_f1": 1 / 2}
    assert scores == pytest.approx({**expected, "no_answer_accuracy": 0.0})
    assert set(scores) == set(metrics.score_names())
