"""Several labels per text: a column of 0 and 1 for each, or several in one cell."""

import pytest
from datasets import DatasetDict
from task_samples import one

from modeling_star.data.classification import prepare_classification
from modeling_star.errors import UserError


def marked(**columns):
    """A split of three texts with two label columns."""
    return one(**{"text": ["x", "y", "z"], "rude": [1, 0, 0], "loud": [0, 0, 1], **columns})


@pytest.mark.parametrize(
    "cells",
    [
        {},
        {"rude": ["1", "0", "0"], "loud": ["0", "0", "1"]},
        {"rude": [True, False, False], "loud": ["False", "FALSE", "true"]},
        {"rude": [1.0, 0.0, 0.0]},
    ],
    ids=["whole numbers", "texts", "true and false", "fractions"],
)
def test_one_column_per_label_gives_several_labels_per_text(cells):
    data = prepare_classification(marked(**cells), label_column_name="rude, loud")
    assert (data.label_list, data.problem_type) == (("rude", "loud"), "multi_label_classification")
    assert data.splits["train"][data.label_column][:] == [[1, 0], [0, 0], [0, 1]]
    assert "rude" not in data.splits["train"].column_names
    assert data.counts("train") == {"rude": 1, "loud": 1}


def test_a_label_that_no_text_has_keeps_its_place():
    data = prepare_classification(marked(rude=[0, 0, 0]), label_column_name="rude,loud")
    assert data.label_list == ("rude", "loud")
    assert data.splits["train"][data.label_column][:] == [[0, 0], [0, 0], [0, 1]]


def test_a_saved_models_order_counts():
    data = prepare_classification(marked(), label_column_name="rude,loud", label_list=["loud", "rude"])
    assert data.splits["train"][data.label_column][:] == [[0, 1], [0, 0], [1, 0]]


def test_splits_and_rows_may_lack_all_labels():
    rows = {"rude": ["1", None, "-1"], "loud": ["0", "", "-1"]}
    splits = DatasetDict(
        {"train": marked(**rows)["train"], "test": marked()["train"].remove_columns(["rude", "loud"])}
    )
    with pytest.raises(UserError, match=r"train row 2 has no label in column 'rude,loud' \(2 rows"):
        prepare_classification(splits, label_column_name="rude,loud")
    data = prepare_classification(splits, label_column_name="rude,loud", drop_empty=True)
    assert data.splits["train"]["rude,loud"][:] == [[1, 0]]
    assert not data.is_labelled("test")
    assert len(data.splits["test"]) == 3


def test_a_row_with_an_empty_label_is_an_error_or_dropped():
    rows = marked(rude=["1", "", "0"], loud=["0", "1", "1"])
    with pytest.raises(UserError, match=r"train row 2: column 'rude'.*--drop_empty"):
        prepare_classification(rows, label_column_name="rude,loud")
    data = prepare_classification(rows, label_column_name="rude,loud", drop_empty=True)
    assert data.splits["train"]["rude,loud"][:] == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("cells", "names", "words"),
    [
        ({"loud": [0, 2, 1]}, "rude,loud", "train row 2: column 'loud' has 2"),
        ({"loud": [0, None, 1]}, "rude,loud", "train row 2: column 'loud' has None"),
        ({"loud": ["yes", "no", "no"]}, "rude,loud", "train row 1: column 'loud' has 'yes'"),
        ({}, "rude,lout", "no column 'lout'.*--label_column_name"),
    ],
)
def test_label_columns_have_zero_or_one(cells, names, words):
    with pytest.raises(UserError, match=words):
        prepare_classification(marked(**cells), label_column_name=names)


def test_a_split_needs_all_label_columns_or_none():
    splits = DatasetDict({"train": marked()["train"], "test": marked()["train"].remove_columns("loud")})
    with pytest.raises(UserError, match=r"test has no column 'loud'"):
        prepare_classification(splits, label_column_name="rude,loud")


def test_a_column_name_can_have_a_comma():
    splits = one(**{"text": ["x", "y"], "rude,loud": ["a", "b"]})
    assert prepare_classification(splits, label_column_name="rude,loud").label_list == ("a", "b")


@pytest.mark.parametrize(
    "cells", [["a,b", "b", "a"], ["a | b", "b", "a"], ["a;b", " b", "a;"], ["a，b", "b", "a"], ["a、b", "b", "a"]]
)
def test_several_labels_in_a_cell_are_separated(cells):
    splits = one(text=["x", "y", "z"], label=cells)
    data = prepare_classification(splits, problem_type="multi_label_classification")
    assert data.label_list == ("a", "b")
    assert data.splits["train"]["label"][:] == [[1, 1], [0, 1], [1, 0]]


def test_a_label_can_have_a_comma_if_another_separator_is_used():
    splits = one(text=["x", "y"], label=["arts, crafts|law", "law|law, old"])
    data = prepare_classification(splits, problem_type="multi_label_classification")
    assert data.label_list == ("arts, crafts", "law", "law, old")
