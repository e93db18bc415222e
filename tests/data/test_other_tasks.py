"""Files of another task, and first lines that are no header: the message names what to write."""

from collections.abc import Callable
from pathlib import Path

import pytest
from datasets import DatasetDict

from modeling_star.data.classification import prepare_classification
from modeling_star.data.readers import read_file
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


CONLL = "Mira B-PER\nwent O\n\nin O\nQuell B-LOC\n\n"


@pytest.mark.parametrize(
    ("prepare", "name", "text", "advice"),
    [
        (prepare_classification, "words.conll", CONLL, "modeling-star tag"),
        (
            prepare_classification,
            "spans.jsonl",
            '{"text": "Mira went to Quell .", "label": [[0, 4, "PER"], [13, 18, "LOC"]]}\n' * 2,
            "modeling-star tag",
        ),
        (prepare_tagging, "texts.csv", "text,label\na good film,pos\na bad film,neg\n", "modeling-star classify"),
        (
            prepare_classification,
            "nohead.csv",
            "a good film,pos\na bad film,neg\nnice,pos\n",
            "--column_names text,label",
        ),
        (
            prepare_classification,
            "nohead2.csv",
            "It was quiet.,5\nIt was loud.,1\n",
            "--column_names text,label",
        ),
    ],
)
def test_the_command_for_such_a_file_is_named(
    load: Callable[..., DatasetDict], prepare: Callable[..., object], name: str, text: str, advice: str
) -> None:
    with pytest.raises(UserError, match=advice):
        prepare(load(train=(name, text)))


def test_texts_without_labels_are_not_suggested_as_labels(load: Callable[..., DatasetDict]) -> None:
    with pytest.raises(UserError, match="Add a column of labels"):
        prepare_classification(load(train=("texts.csv", "text\na good film\na bad film\n")))


def test_columns_with_other_names_are_no_row(load: Callable[..., DatasetDict]) -> None:
    with pytest.raises(UserError, match="--label_column_name urteil"):
        prepare_classification(load(train=("odd.csv", "kommentar,urteil\na good film,pos\na bad film,neg\nok,neg\n")))


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_split_without_any_label_of_train_is_refused(load: Callable[..., DatasetDict], split: str) -> None:
    train = ("train.csv", "text,label\na good film,good\na bad film,bad\n")
    other = ("other.csv", "text,label\na good film,1.0\na bad film,0.0\n")
    with pytest.raises(UserError, match=f"{split} split are 0.0, 1.0"):
        prepare_classification(load(train=train, **{split: other}))


def test_a_mistyped_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(UserError, match=r"Did you mean .*train\.csv"):
        read_file(tmp_path / "trian.csv")
