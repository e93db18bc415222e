"""What was read is shown, with warnings where it looks like other columns or another layout."""

import logging
from typing import Any

import numpy as np
import pytest
from datasets import DatasetDict
from seqeval.metrics.sequence_labeling import get_entities
from task_samples import one

from modeling_star.data.classification import prepare_classification
from modeling_star.data.inspection import count_entities
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


def shown(caplog: pytest.LogCaptureFixture, prepare: Any, level: int = logging.WARNING, **columns: list[Any]) -> str:
    caplog.clear()
    with caplog.at_level(level):
        prepare(one(**columns))
    return caplog.text


@pytest.mark.parametrize(
    ("words", "word"),
    [
        ([["1", "2"], ["1", "2", "3"]], "numbers"),
        ([["2020-01-01", "12:30"], ["7", "-"]], "numbers"),
        ([["w1", "w2"], ["w3", "w4"]], "numbers"),
        ([["Ann"], ["sees"], ["Oslo"]], "one word"),
        ([["我爱北京天安门"], ["今天天气很好"]], "without spaces"),
        ([["我爱北京天安门今天天气", "很好我们一起去看看吧"], ["今天天气很好啊我们去公园"]], "without spaces"),
        ([["ฉันรักกรุงเทพมหานคร"], ["วันนี้อากาศดีมาก"]], "without spaces"),
        ([["w"] * 600], "one sentence"),
    ],
)
def test_words_that_look_like_another_layout_are_warned_of(
    caplog: pytest.LogCaptureFixture, words: list[list[str]], word: str
) -> None:
    assert word in shown(caplog, prepare_tagging, tokens=words, tags=[["O" for _ in row] for row in words])


@pytest.mark.parametrize(
    "words",
    [
        [["Ann", "is", "37"], ["It", "rains"]],
        [[*"我爱北京"], [*"天气很好"]],
        [["我", "爱", "北京天安门"], ["今天", "天气", "很", "好"]],
        [["Hello"], ["It", "rains", "in", "2024"]],
    ],
)
def test_usual_sentences_are_not_warned_of(caplog: pytest.LogCaptureFixture, words: list[list[str]]) -> None:
    assert not shown(caplog, prepare_tagging, tokens=words, tags=[["O" for _ in row] for row in words])


@pytest.mark.parametrize(
    ("texts", "word"),
    [
        (["1", "2", "30"], "numbers"),
        (["a1f3-77", "b2e4-12", "c9d8-33"], "identifiers"),
        (["u_1", "u_2", "u_3"], "identifiers"),
        (["film", "book", "song"], "one word"),
        (["很好", "不好", "一般"], ""),
        (["a film", "a book", "song"], ""),
    ],
)
def test_texts_that_look_like_another_column_are_warned_of(
    caplog: pytest.LogCaptureFixture, texts: list[str], word: str
) -> None:
    warning = shown(caplog, prepare_classification, text=texts, label=["a", "a", "a"])
    assert word in warning
    assert bool(word) == bool(warning)


@pytest.mark.parametrize("name", ["answer", "is_valid", "is_selected", "split", "Split", "kfold", "sample weight"])
@pytest.mark.parametrize("prepare", [prepare_tagging, prepare_classification])
def test_a_column_that_chooses_rows_is_warned_of(caplog: pytest.LogCaptureFixture, name: str, prepare: Any) -> None:
    cells = [["It", "rains"]] * 4 if prepare is prepare_tagging else ["It rains"] * 4
    labels = [["O", "O"]] * 4 if prepare is prepare_tagging else ["a", "b", "a", "b"]
    columns = {"tokens" if prepare is prepare_tagging else "text": cells, "labels": labels}
    assert repr(name) in shown(caplog, prepare, **columns, **{name: ["x", "y", "x", "y"]})
    assert not shown(caplog, prepare, **columns, **{name: ["x"] * 4})


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_split_that_loses_every_row_is_named(split: str) -> None:
    words, texts = {"tokens": [["It", "rains"]], "tags": [["O", "B-X"]]}, {"text": ["It rains"], "label": ["a"]}
    for prepare, cells, empty in (
        (prepare_tagging, words, {"tokens": [[]], "tags": [[]]}),
        (prepare_classification, texts, {"text": [" "], "label": ["a"]}),
    ):
        splits = one(**cells) | {split: one(**empty)["train"].cast(one(**cells)["train"].features)}
        with pytest.raises(UserError, match=rf"\b{split} split"):
            prepare(DatasetDict(splits), drop_empty=True)


def test_labels_that_occur_once_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert "once, such as psos" in shown(
        caplog, prepare_classification, text=["a b", "c d", "e f"], label=["pos", "psos", "pos"]
    )
    tags = [["B-PER", "O"], ["B-PRE", "O"], ["B-PER", "O"]]
    assert "once, such as B-PRE" in shown(caplog, prepare_tagging, tokens=[["Ann", "sings"]] * 3, tags=tags)


@pytest.mark.parametrize("prefixes", ["BIO", "BIOES", "BMESO"])
def test_entities_are_counted_as_seqeval_counts_them(prefixes: str) -> None:
    random = np.random.default_rng(0)
    labels = ["O", *(f"{prefix}-{kind}" for prefix in prefixes.replace("O", "") for kind in ("X", "Y"))]
    sentences = []
    for length in random.integers(1, 9, 200):
        tags: list[str] = []
        while len(tags) < length:
            kind, last = random.choice(["X", "Y"]), "E" if "E" in prefixes else "I"
            inner = "M" if "M" in prefixes else "I"
            whole = ["S"] if "S" in prefixes else ["B"]
            tags += [["O"], [f"{whole[0]}-{kind}"], [f"B-{kind}", f"{inner}-{kind}", f"{last}-{kind}"]][
                random.integers(3)
            ]
        sentences.append(tags)
    ids = np.array([labels.index(tag) for tags in sentences for tag in tags])
    starts = np.cumsum([0, *map(len, sentences[:-1])])
    plain = [[tag.replace("M-", "I-") for tag in tags] for tags in sentences]
    expected = [kind for tags in plain for kind, *_ in get_entities(tags)]
    assert count_entities(ids, starts, labels) == {kind: expected.count(kind) for kind in ("X", "Y")}
