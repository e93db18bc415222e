"""Tables with one word per row become sentences."""

from pathlib import Path

import pytest
from script_samples import jsonl
from task_samples import one

from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


TWO = [["Ann", "sees", "Oslo"], ["It", "rains"]]
WORDS, TAGS = ["Ann", "sees", "Oslo", "It", "rains"], ["B-PER", "O", "B-LOC", "O", "O"]


@pytest.mark.parametrize(
    "columns",
    [
        {"sentence_id": [0, 0, 0, 1, 1], "words": WORDS, "labels": TAGS},
        {"Sentence #": ["Sentence: 1", "", "", "Sentence: 2", ""], "Word": WORDS, "POS": list("NVNPV"), "Tag": TAGS},
        {"Sentence #": ["Sentence: 1", None, None, "Sentence: 2", None], "Word": WORDS, "Tag": TAGS},
        {"sentence": [4, 4, 4, 7, 7], "word": WORDS, "tag": TAGS},
        {"doc_id": ["a", "a", "a", "b", "b"], "sent": [0, 0, 0, 0, 0], "token": WORDS, "label": TAGS},
        {"doc_id": ["a", "a", "a", "a", "a"], "sent_id": [0, 0, 0, 1, 1], "token": WORDS, "label": TAGS},
        {"id": ["s1", "s1", "s1", "s2", "s2"], "token": WORDS, "ner": TAGS},
        {"row": [0, 1, 2, 3, 4], "句子": ["1", "1", "1", "2", "2"], "tokens": WORDS, "tags": TAGS},
    ],
)
@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "tsv"])
def test_rows_of_a_word_are_sentences_by_their_identifiers(tmp_path: Path, columns: dict, ending: str) -> None:
    rows = one(**columns)["train"]
    path = tmp_path / f"train.{ending}"
    if ending == "jsonl":
        path.write_text(jsonl(rows.to_list()), encoding="utf-8")
    elif ending == "parquet":
        rows.to_parquet(path)
    else:
        rows.to_csv(path, sep="\t" if ending == "tsv" else ",")
    data = prepare_tagging(load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache")))
    train = data.splits["train"]
    assert train[data.text_column][:] == TWO
    assert [data.id2label[tag] for tags in train[data.label_column] for tag in tags] == TAGS
    assert [text for _, text in read_texts(path, tags=True)] == TWO


def test_a_classifier_reads_a_word_of_each_row(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("sentence_id,words,labels\n0,Ann,a\n0,sees,b\n", encoding="utf-8")
    assert [text for _, text in read_texts(tmp_path / "a.csv")] == ["Ann", "sees"]


def test_sentences_may_be_numbered_anew_in_each_document() -> None:
    splits = one(sentence_id=[0, 0, 1, 1, 0, 0], words=list("abcdef"), labels=["O"] * 6)
    assert prepare_tagging(splits).splits["train"]["words"][:] == [["a", "b"], ["c", "d"], ["e", "f"]]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"words": WORDS, "labels": TAGS}, "sentence_id"),
        ({"i": [1, 2, 3, 1, 2], "words": WORDS, "labels": TAGS}, "sentence_id"),
        ({"n": [1, 2, 3, 4, 5], "words": WORDS, "labels": TAGS}, "sentence_id"),
        ({"words": WORDS, "pos": ["N", "V", "N", "P", "V"], "labels": TAGS}, "sentence_id"),
        ({"sentence_id": [0, 1, 0, 1, 2], "words": WORDS, "labels": TAGS}, "row 3.*Sort"),
    ],
)
def test_rows_of_a_word_without_a_sentence_are_refused(tmp_path: Path, columns: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        prepare_tagging(one(**columns))
    one(**columns)["train"].to_csv(tmp_path / "a.csv")
    with pytest.raises(UserError, match=message):
        list(read_texts(tmp_path / "a.csv", tags=True))


def test_a_word_of_each_sentence_in_lists_stays_as_it_is() -> None:
    data = prepare_tagging(one(tokens=[["Ann"], ["rains"]], tags=[["B-PER"], ["O"]]))
    assert data.splits["train"]["tokens"][:] == [["Ann"], ["rains"]]
    written = one(tokens=["['Ann']", "['rains']"], tags=["['B-PER']", "['O']"])
    assert prepare_tagging(written).splits["train"]["tokens"][:] == [["Ann"], ["rains"]]
