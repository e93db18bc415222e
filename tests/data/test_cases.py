"""
Data files of every format, as tables: what is read of each, and which are refused with what message.

A line of cases/tags.jsonl or cases/texts.jsonl has the name and the text of a file and what training and prediction
read of it; one of cases/columns.jsonl has columns and what becomes of them; one of cases/refusals.jsonl has a file, or
columns, and a pattern of the error. A new format is a line in the first two, its mistakes are lines in the last.
"""

import bz2
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from task_samples import one

from modeling_star.data.classification import prepare_classification
from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.readers import read_file
from modeling_star.data.splits import load_splits
from modeling_star.data.squad import prepare_reading
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


FOLDER = Path(__file__).with_name("cases")
PREPARE: dict[str, Any] = {"tag": prepare_tagging, "classify": prepare_classification, "ask": prepare_reading}
BLANK = "␣"  # in a word with blanks
Case = dict[str, Any]


def cases(name: str) -> Any:
    """The lines of a table as parameters of a test."""
    lines = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").split("\n") if line]
    return pytest.mark.parametrize("case", lines, ids=[line["case"] for line in lines])


def written(case: Case, folder: Path) -> Path:
    """The file of a case, packed where its name says so."""
    path = folder / case["file"]
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(case["text"].encode()))
    return path


@cases("tags")
def test_training_and_prediction_read_the_same_words(case: Case, tmp_path: Path) -> None:
    path, options = written(case, tmp_path), case.get("options", {})
    data = prepare_tagging(load_splits(files={"train": path}, **options))
    rows = data.splits["train"]
    names = {**data.id2label, -100: "?"}  # a word without a label
    found = [
        [(word, names[tag]) for word, tag in zip(*pair, strict=True)]
        for pair in zip(rows[data.text_column][:], rows[data.label_column][:], strict=True)
    ]
    expected = [[word.replace(BLANK, " ").rsplit("/", 1) for word in row.split(" ")] for row in case["tags"]]
    assert [[[*pair] for pair in sentence] for sentence in found] == expected
    texts = case.get("texts", [[word for word, _ in sentence] for sentence in expected])
    assert [text for _, text in read_texts(path, tags=True, **options)] == texts


@cases("texts")
def test_texts_are_read(case: Case, tmp_path: Path) -> None:
    path, options = written(case, tmp_path), case.get("options", {})
    if "tokens" in case:
        assert read_file(path, **options)["tokens"][:] == case["tokens"]
        return
    assert json.loads(json.dumps([text for _, text in read_texts(path, **options)])) == case["texts"]
    if case.get("trained"):
        assert read_file(path, **options)["text"][:] == case["texts"]


@cases("columns")
def test_columns_become_texts_and_labels(case: Case) -> None:
    data = PREPARE[case["task"]](one(**case["columns"]), **case.get("options", {}))
    rows = data.splits["train"]
    found = {
        "ids": rows[data.label_column][:],
        "labels": [*data.label_list],
        "kind": getattr(data, "problem_type", None),
        "texts": list(data.text_columns if case["task"] == "classify" else [data.text_column]),
        "label_column": data.label_column,
    }
    assert {name: found[name] for name in case["read"]} == case["read"]


def read(case: Case, folder: Path) -> None:
    """What `task` does with the columns or the file of a case."""
    task, options, of_file = case["task"], case.get("options", {}), case.get("file_options", {})
    if "columns" in case:
        PREPARE[task](one(**case["columns"]), **options)
    elif task == "predict":
        list(read_texts(written(case, folder), **options))
    elif task == "load":
        read_file(written(case, folder), **of_file)
    else:
        PREPARE[task](load_splits(files={"train": written(case, folder)}, **of_file), **options)


@cases("refusals")
def test_what_cannot_be_read_is_refused_with_what_to_write(case: Case, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.compile(case["error"], re.DOTALL)):
        read(case, tmp_path)
