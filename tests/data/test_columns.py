"""Which columns hold words, tags, texts and labels, and what is said where that cannot be told."""

import pytest
from datasets import Dataset, DatasetDict
from task_samples import one, table

from modeling_star.data.columns import find_predicted_columns, find_reading_columns
from modeling_star.data.labels import literal_list
from modeling_star.data.splits import (
    find_classification_columns,
    find_tagging_columns,
    prepare_classification,
    prepare_tagging,
    task_to_keys,
)
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
    ],
)
def test_tagging_columns_are_found(columns, task, expected):
    row = {name: "7" if name == "id" else ["a", "b"] for name in columns}
    assert find_tagging_columns(DatasetDict({"train": Dataset.from_list([row])}), task_name=task) == expected


def test_a_task_is_not_given_another_tasks_tags():
    splits = one(tokens=[["It", "rains"]], ner_tags=[["O", "O"]])
    with pytest.raises(UserError, match=r"Which column holds the tags.*'ner_tags'.*--label_column_name ner_tags"):
        find_tagging_columns(splits, task_name="pos")
    assert find_tagging_columns(splits, None, "ner_tags", "pos") == ("tokens", "ner_tags")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (
            {"text": ["Anna left"], "entities": [[{"start": 0, "end": 4, "label": "PER"}]]},
            "'entities'.*by their places",
        ),
        ({"Sentence #": ["1", ""], "Word": ["Anna", "left"], "Tag": ["B-per", "O"]}, "'Word' holds one word a row"),
    ],
)
def test_other_notations_of_tags_are_known(columns, told):
    with pytest.raises(UserError, match=rf"Which column holds the \w+\?.*{told}.*write"):
        prepare_tagging(one(**columns))


def test_a_list_of_words_wins_over_a_text():
    splits = one(text=["It rains"], tokens=[["It", "rains"]], tags=[["O", "O"]])
    assert find_tagging_columns(splits) == ("tokens", "tags")


@pytest.mark.parametrize(
    ("columns", "task", "expected"),
    [
        (["idx", "sentence", "label"], "cola", (("sentence",), "label")),
        (["text", "label"], "cola", (("text",), "label")),
        (["premise", "hypothesis", "label"], None, (("premise", "hypothesis"), "label")),
        (["question", "sentence", "label"], "qnli", (("question", "sentence"), "label")),
        (["body", "category"], None, (("body",), "category")),
        (["sentence1", "sentence2", "label"], None, (("sentence1", "sentence2"), "label")),
        (["text", "sentiment"], None, (("text",), "sentiment")),
        (["序号", "评论", "标签"], None, (("评论",), "标签")),
    ],
)
def test_classification_columns_are_found(columns, task, expected):
    row = {name: 3 if name in ("idx", "label") else "a b" for name in columns}
    assert find_classification_columns(DatasetDict({"train": Dataset.from_list([row])}), task_name=task) == expected


@pytest.mark.parametrize("task", task_to_keys)
def test_glue_tasks_have_their_columns(task):
    row = dict.fromkeys(task_to_keys[task], "a") | {"label": 0, "idx": 0}
    splits = DatasetDict({"train": Dataset.from_list([row])})
    assert find_classification_columns(splits, task_name=task) == (task_to_keys[task], "label")


def test_columns_may_be_named():
    splits = one(a=["x"], b=["y"], c=[1], text=["z"], label=[0])
    assert find_classification_columns(splits, "a, b", "c") == (("a", "b"), "c")
    assert find_classification_columns(splits, ["b"], "c") == (("b",), "c")
    lists = one(x=[["a"]], y=[["O"]], tokens=[["b"]], tags=[["O"]])
    assert find_tagging_columns(lists, "x", "y") == ("x", "y")


@pytest.mark.parametrize(
    ("prepare", "named", "words"),
    [
        (
            prepare_tagging,
            {"text_column_name": "token"},
            ["'token'", "'tokens', 'tags'", "`--text_column_name tokens`"],
        ),
        (prepare_tagging, {"label_column_name": "tag"}, ["'tag'", "'tokens', 'tags'", "`--label_column_name tags`"]),
        (prepare_tagging, {"label_column_name": "tokens"}, ["one column", "'tokens', 'tags'"]),
        (prepare_classification, {}, ["labels?", "'tokens', 'tags'", "--label_column_name"]),
        (prepare_classification, {"label_column_name": "tags"}, ["texts?", "'tokens', 'tags'", "--text_column_name"]),
    ],
)
def test_a_missing_column_lists_those_present(prepare, named, words):
    with pytest.raises(UserError) as caught:
        prepare(one(tokens=[["a"]], tags=[["O"]]), **named)
    assert [word for word in words if word not in str(caught.value)] == []


def test_columns_that_cannot_be_told_apart_are_asked_for():
    with pytest.raises(UserError, match=r"Which column holds the texts\? The columns are 'a', 'b', 'label'"):
        prepare_classification(one(a=["x"], b=["y"], label=[0]))
    with pytest.raises(UserError, match=r"Which column holds the tags\?"):
        prepare_tagging(one(tokens=[["x"]], a=[["y"]], b=[["z"]]))
    with pytest.raises(UserError, match=r"one or two text columns.*sentence1,sentence2"):
        prepare_classification(one(a=["x"], b=["y"], c=["z"], label=[0]), text_column_name="a,b,c")


def test_a_column_absent_from_one_split_is_named_with_the_split():
    splits = DatasetDict({"train": table(text=["x"], label=[0]), "test": table(txt=["x"])})
    with pytest.raises(UserError, match=r"no column 'text' in the split test.*train: 'text', 'label'; test: 'txt'"):
        prepare_classification(splits)
    with pytest.raises(UserError, match=r"Rename what is meant there to 'text'"):
        prepare_classification(splits)


@pytest.mark.parametrize(
    ("prepare", "train", "test", "name"),
    [
        (prepare_classification, {"text": ["x", "y"], "label": [0, 1]}, {"text": ["x"], "Label": [0]}, "Label"),
        (prepare_classification, {"text": ["x", "y"], "label": [0, 1]}, {"text": ["x"], "class": [0]}, "class"),
        (prepare_tagging, {"tokens": [["x"]], "ner_tags": [["O"]]}, {"tokens": [["x"]], "tags": [["O"]]}, "tags"),
    ],
)
def test_labels_under_another_name_are_not_taken_for_none(prepare, train, test, name, caplog):
    splits = DatasetDict({"train": table(**train), "test": table(**test)})
    label = next(column for column in train if column not in test)
    with pytest.raises(UserError, match=f"no column '{label}' as train has, but '{name}': rename it to '{label}'"):
        prepare(splits)
    data = prepare(DatasetDict({**splits, "test": splits["test"].remove_columns(name)}))
    assert not data.is_labelled("test")
    assert f"The test split has no column '{label}': it is predicted, not scored" in caplog.text
    # What train has too, such as tags of another task, is no other name for them.
    both = {"train": splits["train"].add_column(name, test[name] * len(splits["train"])), "test": splits["test"]}
    assert not prepare(DatasetDict(both), label_column_name=label).is_labelled("test")


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"text": ["x"], "Gold Label": [0]}, ["`--label_column_name 'Gold Label'`"]),
        ({"text": ["x"], "verdict": [0]}, ["`--label_column_name verdict`"]),
        ({"text;label": ["x;0"]}, ["write them so", "--column_names text,label"]),
    ],
)
def test_a_column_that_is_meant_is_named(columns, words):
    with pytest.raises(UserError) as caught:
        prepare_classification(one(**columns))
    assert [word for word in words if word not in str(caught.value)] == []


def test_known_names_are_found_in_other_letters():
    found = prepare_classification(one(**{"Review": ["x"], "label ": [0]}))
    assert (found.text_columns, found.label_column) == (("Review",), "label ")
    assert prepare_classification(one(Text=["y"], text=["x"], Label=[0])).text_columns == ("text",)
    pairs = one(Premise=["x"], Hypothesis=["y"], Label=[0])
    assert prepare_classification(pairs).text_columns == ("Premise", "Hypothesis")
    tags = one(Tokens=[["x"]], NER_tags=[["O"]])
    assert find_tagging_columns(tags) == ("Tokens", "NER_tags")
    answers = {"text": ["x"], "answer_start": [0]}
    questions = one(Question=["?"], Context=["x"], Answers=[answers])
    assert find_reading_columns(questions) == ("Question", "Context", "Answers")


@pytest.mark.parametrize("asked", [{}, {"text_column_name": "text", "label_column_name": "label"}])
def test_a_first_row_in_the_place_of_names_is_told(asked):
    with pytest.raises(UserError, match=r"names no columns.*`--column_names text,label`"):
        prepare_classification(one(**{"a fine film .": ["dull"], "good": ["bad"]}), **asked)
    with pytest.raises(UserError) as caught:
        prepare_classification(one(body=["dull"], verdict=["bad"]), **asked)
    assert "--column_names" not in str(caught.value)


@pytest.mark.parametrize("cell", ["['It' 'rains']", "['It'\n 'rains' 'a']", """["It's" 'so']"""])
def test_arrays_that_numpy_wrote_are_no_lists(cell):
    with pytest.raises(UserError, match=r"as numpy writes it.*map\(list\)"):
        prepare_tagging(one(tokens=[cell], tags=["['O', 'O']"]))
    assert literal_list("""["a' 'b", 'c']""") == ["a' 'b", "c"]


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        ([["1"], ["1", "2", "3"]], "holds numbers of words, no words: 1 2 3"),
        ([["O", "B-PER", "I-PER"], ["O", "O"]], "holds labels, no words: O B-PER I-PER"),
    ],
)
def test_columns_in_another_order_are_told_of(tokens, told):
    with pytest.raises(UserError, match=f"{told}.*--column_names _,tokens"):
        prepare_tagging(one(tokens=tokens, tags=[["O"] * len(row) for row in tokens]))


@pytest.mark.parametrize("tokens", [[["1"], ["2"]], [["1", "2", "4"]], [["O", "O"]], [["B-52", "flies"]]])
def test_words_may_look_a_bit_like_numbers_and_labels(tokens, caplog):
    with caplog.at_level("INFO"):
        prepare_tagging(one(tokens=tokens, tags=[["O"] * len(row) for row in tokens]))
    assert f"Words: column 'tokens' ({' '.join(tokens[0])} ...); labels: column 'tags', O." in caplog.text


def test_whole_numbers_written_as_fractions_are_warned_about(caplog):
    data = prepare_classification(one(text=["a", "b", "c"], label=["1.0", "0.0", "1.0"]))
    assert data.problem_type == "regression"
    assert "--problem_type single_label_classification" in caplog.text
    caplog.clear()
    prepare_classification(one(text=["a", "b", "c"], label=["1.5", "0.0", "1.0"]))
    prepare_classification(one(text=["a", "b"], label=[1.0, 2.0]), problem_type="regression")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_a_word_and_its_tag_for_a_header_are_told():
    with pytest.raises(UserError, match=r"one of them is a tag.*`--column_names tokens,_,ner_tags`"):
        find_tagging_columns(one(**{"Maria": ["lives"], "NNP": ["VBZ"], "B-PER": ["O"]}))


def test_the_file_of_a_model_that_reads_is_no_split():
    rows = one(text=["good"])["train"]
    with pytest.raises(UserError, match=r"no column 'revew' in the file\. The columns are 'text'"):
        find_predicted_columns(rows, "revew")


def test_the_column_with_the_fewest_labels_is_the_example():
    splits = one(序号=["1", "2", "3"], 评论内容=["好", "坏", "很好"], 好不好=["1", "0", "1"])
    with pytest.raises(UserError, match="--label_column_name '好不好'"):
        find_classification_columns(splits, "评论内容")
