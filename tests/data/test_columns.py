"""The columns of words, tags, texts and labels: by the flag, else by a known name."""

import pytest
from datasets import Dataset, DatasetDict
from task_samples import one, table

from modeling_star.data.classification import prepare_classification
from modeling_star.data.columns import find_classification_columns, find_reading_columns, find_tagging_columns
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


@pytest.mark.parametrize(
    ("columns", "task", "expected"),
    [
        (["id", "tokens", "ner_tags", "pos_tags"], None, ("tokens", "ner_tags")),
        (["id", "tokens", "ner_tags", "pos_tags"], "pos", ("tokens", "pos_tags")),
        (["words", "labels"], "ner", ("words", "labels")),
        (["id", "tokens", "my_labels"], None, ("tokens", "my_labels")),
        (["tokens", "tags"], "chunk", ("tokens", "tags")),
        (["form", "upos", "ner_tags"], "pos", ("form", "upos")),
        (["tokens", "ner_tags", "brands"], "brand", ("tokens", "brands")),
        (["Tokens", "NER_tags"], None, ("Tokens", "NER_tags")),
    ],
)
def test_tagging_columns_have_known_names(columns, task, expected):
    row = {name: "7" if name == "id" else ["a", "b"] for name in columns}
    assert find_tagging_columns(DatasetDict({"train": Dataset.from_list([row])}), task_name=task) == expected


def test_the_tags_of_another_task_are_not_taken():
    splits = one(tokens=[["It", "rains"]], ner_tags=[["O", "O"]])
    with pytest.raises(UserError, match=r"'ner_tags'.*--label_column_name"):
        find_tagging_columns(splits, task_name="pos")
    assert find_tagging_columns(splits, None, "ner_tags", "pos") == ("tokens", "ner_tags")


def test_a_list_of_words_comes_before_a_text():
    splits = one(text=["It rains"], tokens=[["It", "rains"]], tags=[["O", "O"]])
    assert find_tagging_columns(splits) == ("tokens", "tags")


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["idx", "sentence", "label"], (("sentence",), "label")),
        (["text", "label"], (("text",), "label")),
        (["hypothesis", "premise", "label"], (("premise", "hypothesis"), "label")),
        (["question", "sentence", "label"], (("question", "sentence"), "label")),
        (["body", "category"], (("body",), "category")),
        (["sentence1", "sentence2", "label"], (("sentence1", "sentence2"), "label")),
        (["text", "sentiment"], (("text",), "sentiment")),
        (["序号", "评论", "标签"], (("评论",), "标签")),
        (["Review", "label "], (("Review",), "label ")),
        (["Text", "text", "Label"], (("text",), "Label")),
    ],
)
def test_classification_columns_have_known_names(columns, expected):
    row = {name: 3 if name in ("idx", "label") else "a b" for name in columns}
    assert find_classification_columns(DatasetDict({"train": Dataset.from_list([row])})) == expected


def test_reading_columns_have_known_names():
    questions = one(Question=["?"], Context=["x"], Answers=[{"text": ["x"], "answer_start": [0]}])
    assert find_reading_columns(questions) == ("Question", "Context", "Answers")


def test_columns_can_be_named():
    splits = one(a=["x"], b=["y"], c=[1], text=["z"], label=[0])
    assert find_classification_columns(splits, "a, b", "c") == (("a", "b"), "c")
    assert find_classification_columns(splits, ["b"], "c") == (("b",), "c")
    lists = one(x=[["a"]], y=[["O"]], tokens=[["b"]], tags=[["O"]])
    assert find_tagging_columns(lists, "x", "y") == ("x", "y")


@pytest.mark.parametrize(
    ("prepare", "columns", "named", "flag"),
    [
        (prepare_tagging, "tokens tags", {"text_column_name": "token"}, "--text_column_name"),
        (prepare_tagging, "tokens tags", {"label_column_name": "tag"}, "--label_column_name"),
        (prepare_tagging, "tokens tags", {"label_column_name": "tokens"}, "--label_column_name"),
        (prepare_tagging, "tokens a b", {}, "--label_column_name"),
        (prepare_classification, "a b label", {}, "--text_column_name"),
        (prepare_classification, "a b c label", {"text_column_name": "a,b,c"}, "--text_column_name"),
    ],
)
def test_a_missing_column_lists_those_present_and_the_flag(prepare, columns, named, flag):
    names = columns.split()
    cell = ["x"] if prepare is prepare_tagging else "x"
    with pytest.raises(UserError) as caught:
        prepare(one(**{name: [cell] for name in names}), **named)
    assert flag in str(caught.value)
    assert all(name in str(caught.value) for name in names)


@pytest.mark.parametrize(
    ("cells", "label"),
    [
        (
            {"text": ["a b", "c d"], "options": ["x", "x"], "accept": [["A"], ["B"]], "answer": ["accept"] * 2},
            "accept",
        ),
        ({"v1": ["ham", "spam", "ham"], "v2": ["a long text", "c d e f", "g h"], "Unnamed: 2": ["", "", ""]}, "v1"),
    ],
)
def test_the_suggested_label_column_is_neither_a_verdict_nor_constant(cells, label):
    with pytest.raises(UserError, match=f"--label_column_name {label}`"):
        prepare_classification(one(**cells))


def test_a_column_that_one_split_lacks_is_named_with_the_split():
    splits = DatasetDict({"train": table(text=["x"], label=[0]), "test": table(txt=["x"])})
    with pytest.raises(UserError, match=r"test has no column 'text'.*test: 'txt'"):
        prepare_classification(splits)


def test_a_split_without_the_label_column_is_unlabelled():
    splits = DatasetDict({"train": table(text=["x", "y"], label=[0, 1]), "test": table(text=["x"], score=[1])})
    assert not prepare_classification(splits).is_labelled("test")
