"""Rows that annotators rejected are no examples; numbers without a fraction, and several labels in a cell."""

import json

import pytest
from datasets import Dataset, DatasetDict, load_from_disk
from task_samples import one

from modeling_star.data.classification import prepare_classification
from modeling_star.data.splits import load_splits
from modeling_star.data.squad import flatten_squad, prepare_reading
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("answer", ["accept", "reject", "ignore", "accept"]),
        ("was_cancelled", [False, True, True, False]),
        ("wasCancelled", ["False", "True", "True", ""]),
        ("status", ["submitted", "discarded", "Rejected", None]),
        ("annotation_status", ["completed", "skipped", "cancelled", "completed"]),
        ("Skipped", ["0", "1", "1", "0"]),
        ("is_accepted", [True, False, False, True]),
    ],
)
def test_rejected_rows_are_omitted_in_every_task(column, cells):
    texts = ["a", "b", "c", "d"]
    classes = prepare_classification(one(text=texts, label=["x", "z", "x", "y"], **{column: cells}))
    assert (classes.splits["train"]["text"][:], classes.label_list) == (["a", "d"], ("x", "y"))
    tags = prepare_tagging(one(tokens=[[text] for text in texts], tags=[["O"], ["B-X"], [], ["O"]], **{column: cells}))
    assert (tags.splits["train"]["tokens"][:], tags.label_list) == ([["a"], ["d"]], ("O",))
    asked = {"question": texts, "context": texts, "answers": [{"text": [t], "answer_start": [0]} for t in texts]}
    assert prepare_reading(one(**asked, **{column: cells})).splits["train"]["context"][:] == ["a", "d"]


def test_a_column_of_states_can_be_the_label():
    data = prepare_classification(one(text=["a", "b"], status=["rejected", "approved"]), label_column_name="status")
    assert data.label_list == ("approved", "rejected")
    with pytest.raises(UserError, match="every row"):
        prepare_classification(one(text=["a"], label=["x"], answer=["reject"]))


@pytest.mark.parametrize(
    "labels",
    [
        ["1.0", "0.0", "5.0"],
        [1.0, 0.0, 5.0],
        ["1", "0.0", "5."],
        ["1e0", "0.0", "5"],
    ],
)
@pytest.mark.parametrize("problem_type", [None, "single_label_classification"])
def test_whole_numbers_that_are_written_with_a_point_are_classes(labels, problem_type):
    data = prepare_classification(one(text=["a", "b", "c"], label=labels), problem_type=problem_type)
    assert (data.label_list, data.problem_type) == (("0", "1", "5"), "single_label_classification")
    assert data.splits["train"]["label"][:] == [1, 0, 2]


@pytest.mark.parametrize("gap", ["", "nan", "NaN"])
def test_a_gap_among_numbers_is_no_class(gap):
    splits = one(text=["a", "b", "c"], label=["1.0", gap, "0.0"])
    with pytest.raises(UserError, match="row 2 has no label"):
        prepare_classification(splits)
    assert prepare_classification(splits, drop_empty=True).label_list == ("0", "1")


def test_a_fraction_in_any_split_makes_a_regression():
    splits = DatasetDict({**one(text=["a"], label=["1.0"]), "test": one(text=["b"], label=["2.5"])["train"]})
    assert prepare_classification(splits).problem_type == "regression"
    forced = prepare_classification(one(text=["a"], label=["1.0"]), problem_type="regression")
    assert forced.splits["train"]["label"][:] == [1.0]


@pytest.mark.parametrize(
    "labels",
    [
        ["2,25", "3", "2"],
        ["2 25", "3"],
        ["7|8", "9"],
        ["joy|anger", "joy", "anger"],
        ["a; b", "a", "b"],
        ["a、b", "a", "b"],
    ],
)
def test_several_labels_in_a_cell_are_no_class_of_their_own(labels):
    splits = one(text=list("xyz")[: len(labels)], label=labels)
    with pytest.raises(UserError, match="--problem_type multi_label_classification"):
        prepare_classification(splits)
    assert "," not in "".join(prepare_classification(splits, problem_type="multi_label_classification").label_list)
    assert set(prepare_classification(splits, problem_type="single_label_classification").label_list) == set(labels)


# Answers outside their contexts


def test_answers_outside_their_context_are_omitted_and_questions_without_any_dropped():
    answers = [
        {"text": ["Nil", "Ann", "Ann sings"], "answer_start": [-1, 0, 0]},
        {"text": ["Ann", ""], "answer_start": [3, 0]},
    ]
    splits = one(id=["p", "q"], question=["who?", "where?"], context=["Ann sings."] * 2, answers=answers)
    with pytest.raises(UserError, match=r"row 2 \(question 'q'\).*--drop_empty"):
        prepare_reading(splits)
    rows = prepare_reading(splits, drop_empty=True).splits["train"]
    assert rows["answers"][:] == [{"text": ["Ann", "Ann sings"], "answer_start": [0, 0]}]
    assert "omitted" not in rows.column_names


# Folders of `save_to_disk`


def rows(count: int) -> Dataset:
    return Dataset.from_dict({"text": [f"good {n}" for n in range(count)], "label": ["pos", "neg"] * (count // 2)})


def test_saved_data_sets_are_read_without_the_caches_beside_them(tmp_path):
    DatasetDict({"train": rows(20), "dev": rows(4)}).save_to_disk(tmp_path / "saved")
    load_from_disk(tmp_path / "saved")["train"].map(lambda row: {"n": 1})
    rows(20).save_to_disk(tmp_path / "single", num_shards=3)
    rows(20).save_to_disk(tmp_path / "apart" / "train")
    rows(4).save_to_disk(tmp_path / "apart" / "test")
    before = sorted(tmp_path.rglob("*"))
    cache = str(tmp_path.parent / "cache")
    sizes = {"saved": {"train": 20, "validation": 4}, "single": {"train": 20}, "apart": {"train": 20, "test": 4}}
    for name, expected in sizes.items():
        splits = load_splits(str(tmp_path / name), cache_dir=cache)
        assert {split: len(dataset) for split, dataset in splits.items()} == expected
        assert splits["train"]["text"][:] == rows(20)["text"][:]
        assert len(load_splits(str(tmp_path), name, cache_dir=cache)["train"]) == 20
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match="--dataset_name"):
        load_splits(str(tmp_path), cache_dir=cache)


@pytest.mark.parametrize("indent", [1, 4, "\t", 0])
@pytest.mark.parametrize("size", [2, 1000, 2600])
def test_articles_are_read_whatever_the_size_of_the_file(load, size, indent):
    asked = [{"id": "q", "question": "who?", "answers": [{"text": "Ann", "answer_start": 0}]}]
    article = {"paragraphs": [{"context": "Ann sings. " * 60, "qas": asked}]}
    text = json.dumps({"version": "1", "data": [article] * size}, indent=indent)
    assert len(flatten_squad(load(train=("a.json", text))["train"])) == size
