"""The columns of words, tags, texts and labels: by the flag, else by a known name."""

import pytest
from datasets import Dataset, DatasetDict
from task_samples import one, table

from modeling_star.data.classification import prepare_classification
from modeling_star.data.columns import find_classification_columns, find_reading_columns, find_tagging_columns
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (["id", "tokens", "ner_tags", "pos_tags"], ("tokens", "ner_tags")),
        (["words", "labels"], ("words", "labels")),
        (["id", "tokens", "my_labels"], ("tokens", "my_labels")),
        (["Tokens", "NER_tags"], ("Tokens", "NER_tags")),
    ],
)
def test_tagging_columns_have_known_names(columns, expected):
    row = {name: "7" if name == "id" else ["a", "b"] for name in columns}
    assert find_tagging_columns(DatasetDict({"train": Dataset.from_list([row])})) == expected


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
        (["question", "passage", "idx", "label"], (("question", "passage"), "label")),
        (["label", "context", "question"], (("question", "context"), "label")),
        (["Query", "Document", "label"], (("Query", "Document"), "label")),
        (["text", "aspect", "label"], (("text", "aspect"), "label")),
        (["sentence", "aspect_term", "sentiment"], (("sentence", "aspect_term"), "sentiment")),
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


LONG = [f"The lamp {row} shines in the hall" for row in range(12)]
OTHER = [f"Nobody saw the lamp number {row}" for row in range(12)]
CHINESE = [f"第{row}盏灯在大厅里发光" for row in range(12)]
FEW = ["yes", "no", "maybe"] * 4
IDS = [f"a{row:03}-7f" for row in range(12)]


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ({"premise": LONG, "hypo": OTHER, "label": FEW}, "`--text_column_name premise,hypo`"),
        ({"claim": LONG, "evidence": CHINESE, "label": FEW}, "`--text_column_name claim,evidence`"),
        ({"uuid": IDS, "claim": CHINESE, "label": FEW, "evidence": LONG}, "`--text_column_name claim,evidence`"),
        ({"a": LONG, "b": OTHER, "c": CHINESE, "label": FEW}, "`--text_column_name NAME` .*'a', 'b', 'c'"),
        ({"uuid": IDS, "body": LONG, "kind": FEW}, "`--label_column_name kind`"),
        ({"kind": [1, 0] * 6, "uuid": IDS, "body": CHINESE}, "`--label_column_name kind`"),
        ({"text": LONG, "context": OTHER}, "`--label_column_name NAME`"),
        ({"text": LONG, "uuid": IDS}, "`--label_column_name NAME`"),
        ({"text": LONG, "published_time": [f"2020-01-{row + 1:02} 10:00" for row in range(12)]}, "_name NAME`"),
    ],
)
def test_the_suggested_columns_are_those_that_hold_texts_or_few_values(cells, line):
    with pytest.raises(UserError, match=line):
        prepare_classification(one(**cells))


@pytest.mark.parametrize(
    ("cells", "unread"),
    [
        ({"text": LONG, "title": OTHER}, "`--text_column_name text,title`"),
        ({"review": CHINESE, "answer_in_full": OTHER}, "`--text_column_name review,answer_in_full`"),
        ({"sentence": LONG, "target": FEW, "polarity": FEW}, "`--text_column_name sentence,target`"),
        ({"tweet": LONG, "topic": FEW}, "`--text_column_name tweet,topic`"),
        ({"text": LONG, "id": IDS, "source": FEW}, None),
        ({"text": LONG, "target": FEW, "id": IDS}, None),
        ({"text": LONG, "doc_id": [f"{text}.txt" for text in OTHER]}, None),
    ],
)
def test_a_column_of_texts_that_is_not_read_is_warned_of(caplog, cells, unread):
    cells = {"label": FEW, **cells} if "target" not in cells or unread else cells
    prepare_classification(one(**cells))
    assert (unread or "") in caplog.text
    assert ("alone" in caplog.text) == (unread is not None)
    caplog.clear()
    prepare_classification(one(**cells), text_column_name=next(name for name in cells if name != "label"))
    assert "alone" not in caplog.text


@pytest.mark.parametrize(
    ("cells", "named", "message"),
    [
        ({"text": FEW, "label": LONG}, {}, "12 different labels.*`--text_column_name label --label_column_name text`"),
        ({"text": LONG, "label": IDS, "kind": FEW}, {}, "different labels.*`--label_column_name kind`"),
        (
            {"text": LONG, "id": list(range(12)), "label": FEW},
            {"label_column_name": "id"},
            "`--label_column_name label`",
        ),
        ({"text": LONG, "label": list(range(100, 112))}, {}, "--problem_type regression"),
        ({"text": ["yes", "no"] * 6, "label": [*LONG[:9], *LONG[:3]]}, {}, "9 different labels"),
        ({"sentence1": FEW, "sentence2": FEW, "label": CHINESE}, {}, "12 different labels"),
    ],
)
def test_labels_that_are_all_different_are_texts_or_identifiers(cells, named, message):
    with pytest.raises(UserError, match=message):
        prepare_classification(one(**cells), **named)


def test_many_classes_of_few_texts_are_classes():
    labels = [f"intent {row}" for row in range(8)] * 2
    assert len(prepare_classification(one(text=LONG[:8] + OTHER[:8], label=labels)).label_list) == 8
    numbers = prepare_classification(one(text=LONG, label=list(range(12))), problem_type="regression")
    assert numbers.problem_type == "regression"


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
