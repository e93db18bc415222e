"""Splits -> columns and labels as numbers; errors name the row."""

import gzip
import json
import random

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from real_data import data_folder
from script_samples import jsonl
from task_samples import one, table

from modeling_star.data.classification import prepare_classification
from modeling_star.data.splits import _some_of_each, hold_out, load_splits, take_first
from modeling_star.data.tagging import prepare_tagging
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.data.vectors import read_vectors
from modeling_star.errors import UserError
from modeling_star.evaluation.metrics import is_entity_scheme


# Hold-out and caps


def test_hold_out_splits_train_in_two_and_keeps_the_order():
    splits = hold_out(DatasetDict({"train": table(n=list(range(100))), "test": table(n=[5])}), 0.1, seed=3)
    train, validation = splits["train"]["n"][:], splits["validation"]["n"][:]
    assert len(validation) == 10
    assert validation == sorted(validation)
    assert train == [n for n in range(100) if n not in validation]
    assert splits["test"]["n"][:] == [5]


def test_hold_out_depends_on_the_seed_alone():
    splits = DatasetDict({"train": table(n=list(range(50)))})
    chosen = [hold_out(splits, 0.2, seed=seed)["validation"]["n"][:] for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]


@pytest.mark.parametrize(("fraction", "rows"), [(0.001, 2), (0.999, 2)])
def test_hold_out_leaves_a_row_on_both_sides(fraction, rows):
    splits = hold_out(DatasetDict({"train": table(n=list(range(rows)))}), fraction)
    assert {split: len(dataset) for split, dataset in splits.items()} == {"train": 1, "validation": 1}


def test_a_row_of_csv_without_words_is_empty():
    splits = one(tokens=["['a', 'b']", "[]"], ner_tags=["['O', 'B-x']", "[]"])
    with pytest.raises(UserError, match=r"train row 2.*--drop_empty"):
        prepare_tagging(splits)
    data = prepare_tagging(splits, drop_empty=True)
    assert data.splits["train"]["tokens"][:] == [["a", "b"]]
    assert data.label_list == ("O", "B-x")


@pytest.mark.parametrize("seed", range(5))
def test_hold_out_takes_its_part_of_every_class_and_leaves_one(seed):
    labels = ["rare"] + ["small"] * 9 + ["large"] * 90
    splits = hold_out(one(label=labels, n=list(range(100))), 0.2, seed=seed, classes="label")
    held = [splits["validation"]["label"][:].count(name) for name in ("rare", "small", "large")]
    assert held == [0, 2, 18]
    assert sorted(splits["train"]["n"][:] + splits["validation"]["n"][:]) == list(range(100))
    assert splits["validation"]["n"][:] == sorted(splits["validation"]["n"][:])


def test_hold_out_leaves_one_of_each_class_where_most_rows_go():
    splits = hold_out(one(label=["a", "a", "b", "b", "c"]), 0.9, classes="label")
    assert splits["train"]["label"][:] == ["a", "b", "c"]
    with pytest.raises(UserError, match=r"'label'.*--validation_file"):
        hold_out(one(label=["a", "b"]), 0.5, classes="label")


def test_hold_out_refuses_what_it_cannot_do():
    rows = table(n=[1, 2, 3])
    with pytest.raises(UserError, match="--validation_fraction"):
        hold_out(DatasetDict({"train": rows, "validation": rows}), 0.1)
    with pytest.raises(UserError, match="2 rows or more"):
        hold_out(DatasetDict({"test": rows}), 0.1)
    with pytest.raises(UserError, match=r"--validation_fraction 1\.5"):
        hold_out(DatasetDict({"train": rows}), 1.5)


def test_the_first_rows_are_taken():
    rows = table(n=list(range(5)))
    assert [len(take_first(rows, n)) for n in (None, 1, 5, 99)] == [5, 1, 5, 5]
    assert take_first(rows, 2)["n"][:] == [0, 1]
    with pytest.raises(UserError, match="-1"):
        take_first(rows, -1)


# Tags


def test_tags_are_ordered_and_the_same_in_all_splits():
    splits = DatasetDict(
        {
            "train": table(tokens=[["a", "b", "c"]], tags=[["I-PER", "B-PER", "O"]]),
            "test": table(tokens=[["a", "b"]], tags=[["B-LOC", "O"]]),
        }
    )
    data = prepare_tagging(splits)
    assert data.label_list == ("O", "B-PER", "I-PER")
    assert data.label2id == {"O": 0, "B-PER": 1, "I-PER": 2}
    assert data.splits["train"]["tags"][0] == [2, 1, 0]
    assert data.splits["test"]["tags"][0] == [-100, 0]  # train has no B-LOC
    assert data.counts("test") == {"O": 1, "B-PER": 0, "I-PER": 0}
    assert is_entity_scheme(data.label_list)


def test_whole_number_tags_are_ordered_by_size():
    data = prepare_tagging(one(tokens=[["a", "b", "c"]], tags=[[10, 2, -100]]))
    assert data.label_list == ("2", "10")
    assert data.splits["train"]["tags"][0] == [1, 0, -100]
    assert not is_entity_scheme(data.label_list)


def test_class_labels_keep_their_order_and_names():
    features = Features({"tokens": List(Value("string")), "ner_tags": List(ClassLabel(names=["O", "B-X", "B-A"]))})
    rows = Dataset.from_dict({"tokens": [["a", "b"]], "ner_tags": [[2, 0]]}, features=features)
    data = prepare_tagging(DatasetDict({"train": rows}))
    assert data.label_list == ("O", "B-X", "B-A")
    assert data.splits["train"]["ner_tags"][0] == [2, 0]


def test_a_models_labels_fix_the_ids():
    splits = one(tokens=[["a", "b"]], tags=[["B-X", "O"]])
    assert prepare_tagging(splits, label_list=["B-X", "B-Y", "O"]).splits["train"]["tags"][0] == [0, 2]
    with pytest.raises(UserError, match=r"'B-X'.*--ignore_mismatched_sizes"):
        prepare_tagging(splits, label_list=["O", "B-Y"])
    with pytest.raises(UserError, match="the numbers 0, 1"):
        prepare_tagging(one(tokens=[["a", "b"]], tags=[[1, 0]]), label_list=["O", "B-Y"])


def test_unlabelled_splits_lose_their_label_column():
    rows = table(tokens=[["a"], ["b"]], tags=[["O"], ["O"]])
    for tags in ([None, None], [[], []]):
        test = Dataset.from_dict(
            {"tokens": [["a"], ["b"]], "tags": tags},
            features=Features({"tokens": List(Value("string")), "tags": List(Value("string"))}),
        )
        data = prepare_tagging(DatasetDict({"train": rows, "test": test}))
        assert not data.is_labelled("test")
    only = prepare_tagging(DatasetDict({"test": table(tokens=[["a"]])}), label_list=["O", "B-X"])
    assert only.label_list == ("O", "B-X")
    assert not only.is_labelled("test")


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([(["a"], ["O"]), (["a", "b"], ["O"])], "train row 2 has 2 words"),
        ([(["a"], ["O"]), ([], [])], "train row 2 has no words in column 'tokens'"),
        ([(["a"], ["O"]), (None, ["O"])], "train row 2 has no words"),
        ([(["a"], ["O"]), (["a"], None)], "train row 2"),
        ([(["a", None], ["O", "O"])], "train row 1: column 'tokens'"),
        ([(["a", "b"], ["O", None])], "train row 1"),
        ([(["a"], [0.5])], "train row 1 has 0.5"),
    ],
)
def test_a_bad_tagging_row_is_named(rows, words):
    with pytest.raises(UserError, match=words):
        prepare_tagging(one(tokens=[tokens for tokens, _ in rows], tags=[tags for _, tags in rows]))


def test_empty_rows_can_be_dropped():
    splits = one(tokens=[["a"], [], ["c"]], tags=[["O"], [], ["X"]])
    data = prepare_tagging(splits, drop_empty=True)
    assert data.splits["train"].to_list() == [{"tokens": ["a"], "tags": [0]}, {"tokens": ["c"], "tags": [1]}]


def test_train_without_tags_is_an_error():
    with pytest.raises(
        UserError, match=r"No row of the train split has a label in column 'tags'.*--label_column_name"
    ):
        prepare_tagging(one(tokens=[["a"]], tags=[[]]))


# Labels of texts


@pytest.mark.parametrize(
    ("labels", "names", "ids", "kind"),
    [
        (["pos", "neg", "pos"], ("neg", "pos"), [1, 0, 1], "single_label_classification"),
        ([5, 1, 10], ("1", "5", "10"), [1, 0, 2], "single_label_classification"),
        (["5", "1", "10"], ("1", "5", "10"), [1, 0, 2], "single_label_classification"),
        ([-1, 0, 1], ("-1", "0", "1"), [0, 1, 2], "single_label_classification"),
        ([True, False, True], ("False", "True"), [1, 0, 1], "single_label_classification"),
        (["01", "02", "02"], ("01", "02"), [0, 1, 1], "single_label_classification"),
        ([0.5, 3.0, 4.0], (), [0.5, 3.0, 4.0], "regression"),
        (["0.5", "3", "-4"], (), [0.5, 3.0, -4.0], "regression"),
        ([["a", "b"], [], ["a"]], ("a", "b"), [[1, 1], [0, 0], [1, 0]], "multi_label_classification"),
        ([[2, 7], [7], [7, 2]], ("2", "7"), [[1, 1], [0, 1], [1, 1]], "multi_label_classification"),
        (
            [[0, 1, 1], [0, 0, 0], [1, 0, 0]],
            ("0", "1", "2"),
            [[0, 1, 1], [0, 0, 0], [1, 0, 0]],
            "multi_label_classification",
        ),
        ([[1.0, 0.0]] * 3, ("0", "1"), [[1, 0]] * 3, "multi_label_classification"),
        ([[True, False]] * 3, ("0", "1"), [[1, 0]] * 3, "multi_label_classification"),
        (["['a', 'b']", "['a']", '["b"]'], ("a", "b"), [[1, 1], [1, 0], [0, 1]], "multi_label_classification"),
        (["['a', 'b']", "[]", '["b"]'], ("a", "b"), [[1, 1], [0, 0], [0, 1]], "multi_label_classification"),
    ],
)
def test_labels_of_every_kind(labels, names, ids, kind):
    data = prepare_classification(one(text=["x", "y", "z"], label=labels))
    assert (data.label_list, data.problem_type) == (names, kind)
    assert data.splits["train"]["label"][:] == ids
    assert data.num_labels == max(len(names), 1)


@pytest.mark.parametrize(
    ("labels", "forced", "ids", "names"),
    [
        ([1, 3, 2], "regression", [1.0, 3.0, 2.0], ()),
        (["1,5", "0,25", "2"], "regression", [1.5, 0.25, 2.0], ()),  # of a German Excel
        ([1.0, 3.0, 1.0], "single_label_classification", [0, 1, 0], ("1", "3")),
        (["0.5", "1.5", "0.5"], "single_label_classification", [0, 1, 0], ("0.5", "1.5")),
        (["a, b", "b", "a"], "multi_label_classification", [[1, 1], [0, 1], [1, 0]], ("a", "b")),
    ],
)
def test_the_problem_type_can_be_forced(labels, forced, ids, names):
    data = prepare_classification(one(text=["x", "y", "z"], label=labels), problem_type=forced)
    assert data.splits["train"]["label"][:] == ids
    assert data.label_list == names


def test_stsb_is_regression_even_where_all_scores_are_whole():
    data = prepare_classification(one(sentence1=["x"], sentence2=["y"], label=[5]), task_name="stsb")
    assert data.problem_type == "regression"


def test_glue_test_labels_of_minus_one_are_no_labels():
    features = Features({"sentence": Value("string"), "label": ClassLabel(names=["unacceptable", "acceptable"])})
    splits = DatasetDict(
        {
            split: Dataset.from_dict({"sentence": ["x", "y"], "label": labels}, features=features)
            for split, labels in {"train": [1, 0], "test": [-1, -1]}.items()
        }
    )
    data = prepare_classification(splits, task_name="cola")
    assert data.label_list == ("unacceptable", "acceptable")
    assert data.splits["train"]["label"][:] == [1, 0]
    assert not data.is_labelled("test")
    for labels in ([-1, -1], ["-1", "-1"], [-1.0, -1.0], ["", ""], [None, None]):
        splits = DatasetDict(
            {"train": table(text=["x"], label=["good"]), "test": table(text=["a", "b"], label=labels)}
        )
        assert not prepare_classification(splits).is_labelled("test")


@pytest.mark.parametrize("labels", [["a", "-100", "b"], [0, -100, 1], ["0", "-100", "1"]], ids=str)
def test_minus_one_hundred_is_no_class(labels):
    rows = one(text=["x", "y", "z"], label=labels)
    with pytest.raises(UserError, match=r"row 2.*no label in column 'label'|no label in column 'label'.*2"):
        prepare_classification(rows)
    data = prepare_classification(rows, drop_empty=True)
    assert len(data.label_list) == 2
    assert data.splits["train"]["text"][:] == ["x", "z"]
    kept = prepare_classification(one(text=["x", "y"], label=[-100, 1]), label_list=["-100", "1"])
    assert kept.splits["train"]["label"][:] == [0, 1]
    scores = prepare_classification(one(text=["x", "y"], label=[-100, 3]), problem_type="regression")
    assert scores.splits["train"]["label"][:] == [-100.0, 3.0]


@pytest.mark.parametrize("labels", [[[1, 0, -100], [0, 1, 1]], [["a", "-100"], ["b"]]], ids=str)
def test_minus_one_hundred_among_several_labels_is_refused(labels):
    with pytest.raises(UserError, match=r"train row 1: column 'label' has .*-100"):
        prepare_classification(one(text=["x", "y"], label=labels))


def test_minus_one_may_be_a_class():
    splits = DatasetDict({"train": table(text=["x", "y"], label=[-1, 1]), "test": table(text=["a"], label=[-1])})
    data = prepare_classification(splits)
    assert data.label_list == ("-1", "1")
    assert data.splits["test"]["label"][:] == [0]
    alone = prepare_classification(DatasetDict({"test": splits["test"]}), label_list=["-1", "1"])
    assert alone.splits["test"]["label"][:] == [0]


def test_rows_without_a_class_label_are_left_out():
    features = Features({"text": Value("string"), "label": ClassLabel(names=["a", "b"])})
    rows = Dataset.from_dict({"text": ["x", "y", "z"], "label": [1, -1, 0]}, features=features)
    data = prepare_classification(DatasetDict({"train": rows}))
    kept = data.splits["train"]
    assert (kept["text"][:], kept["label"][:], data.row_numbers("train")) == (["x", "z"], [1, 0], [0, 2])


def test_snlis_own_rows_without_agreement_are_left_out():
    rows = one(sentence1=["a", "b", "c"], sentence2=["d", "e", "f"], gold_label=["neutral", "-", "entailment"])
    data = prepare_classification(rows)
    assert data.label_list == ("entailment", "neutral")
    assert data.splits["train"]["sentence1"][:] == ["a", "c"]
    # CLUE calls the column otherwise.
    assert prepare_classification(rows.rename_column("gold_label", "label")).label_list == data.label_list
    # Beside other labels "-" is one of them.
    signs = one(text=["a", "b", "c"], label=["+", "-", "neutral"])
    assert set(prepare_classification(signs).label_list) == {"+", "-", "neutral"}


def test_numbers_are_not_taken_for_a_models_named_labels():
    names = ["negative", "positive"]
    by_name = prepare_classification(one(text=["x", "y"], label=["positive", "negative"]), label_list=names)
    assert by_name.splits["train"]["label"][:] == [1, 0]
    for numbers in ([1, 0], ["1", "1"]):
        with pytest.raises(UserError, match=r"'negative' for 0, .*--ignore_mismatched_sizes"):
            prepare_classification(one(text=["x", "y"], label=numbers), label_list=names)
    with pytest.raises(UserError, match="'0' is not one of the model's 2 labels"):
        prepare_classification(one(text=["x", "y"], label=[2, 0]), label_list=names)
    # Names 1 and 2 and a row of class 0: not ids, but other classes.
    with pytest.raises(UserError, match="'0'"):
        prepare_classification(one(text=["x", "y"], label=[0, 1]), label_list=["1", "2"])


def test_a_model_without_names_for_its_labels_reads_ids_or_takes_names():
    names = ["LABEL_0", "LABEL_1", "LABEL_2"]

    def read(labels):
        data = prepare_classification(one(text=["x"] * len(labels), label=labels), label_list=names)
        return data.label_list, data.splits["train"]["label"][:]

    assert read([2, 0]) == (tuple(names), [2, 0])
    assert read(["LABEL_1", "LABEL_1"]) == (tuple(names), [1, 1])
    assert read(["good", "bad", "fair"]) == (("bad", "fair", "good"), [2, 0, 1])
    with pytest.raises(UserError, match="'bad' is not one of the model's 3 labels"):
        read(["good", "bad"])


def test_several_labels_must_have_the_models_width():
    splits = one(text=["x"], label=[[0, 1, 1]])
    assert prepare_classification(splits, label_list=["a", "b", "c"]).label_list == ("a", "b", "c")
    with pytest.raises(UserError, match="model has 2 labels"):
        prepare_classification(splits, label_list=["a", "b"])


@pytest.mark.parametrize(
    ("columns", "problem_type", "words"),
    [
        ({"text": ["a", None], "label": [0, 1]}, None, "train row 2 has no text.*--drop_empty"),
        ({"text": ["a", "b"], "label": [0, None]}, None, "train row 2 has no label.*--drop_empty"),
        ({"text": ["a", "b"], "label": ["x", ""]}, None, "train row 2 has no label"),
        ({"text": [1, 2], "label": [0, 1]}, None, "--text_column_name"),
        ({"text": ["a"], "label": [{"x": 1}]}, None, "train row 1 has {'x': 1}"),
        ({"text": ["a"], "label": [[["x"]]]}, None, r"train row 1 has \['x'\]"),
        ({"text": ["a"], "label": [[None]]}, None, r"train row 1: column 'label' has \[None\]"),
        ({"text": ["a"], "label": ["x"]}, "regression", "train row 1: the label 'x'"),
        ({"text": ["a"], "label": [float("inf")]}, None, "train row 1: the label inf"),
        ({"text": ["a"], "label": [0.5]}, "single_label_classification", "0.5.*--problem_type regression"),
        ({"text": ["a"], "label": [["x"]]}, "single_label_classification", r"train row 1 has \['x'\]"),
        ({"text": ["a"], "label": [1]}, "multi_label_classification", "train row 1: column 'label' has 1"),
        ({"text": ["a"], "label": [1]}, "ranking", "--problem_type is 'ranking'"),
        ({"text": ["a"], "label": [-1]}, None, "train split.*--label_column_name"),
    ],
)
def test_a_bad_classification_row_is_named(columns, problem_type, words):
    with pytest.raises(UserError, match=words):
        prepare_classification(one(**columns), problem_type=problem_type)


@pytest.mark.parametrize("labels", [{"train": [1, 0, "good"]}, {"train": ["good"], "test": [1]}])
def test_mixed_labels_name_both_rows_and_values(load, labels):
    files = {
        split: (f"{split}.jsonl", jsonl([{"text": "a", "label": x} for x in rows])) for split, rows in labels.items()
    }
    with pytest.raises(UserError, match=r"mixed types: .*row \d has (1|'good'), .*row \d has (1|'good')"):
        prepare_classification(load(**files))


def test_rows_without_text_or_label_can_be_dropped():
    splits = one(text=["a", None, "c", "", " \t", "d"], label=["x", "y", None, "x", "x", "y"])
    data = prepare_classification(splits, drop_empty=True)
    assert data.splits["train"]["text"][:] == ["a", "d"]
    assert data.splits["train"]["label"][:] == [0, 1]
    assert data.row_numbers("train") == [0, 5]


def test_a_text_may_have_none_of_several_labels_that_stand_in_one_cell():
    splits = one(text=list("abc"), label=["x|y", "[]", "y"])
    data = prepare_classification(splits, problem_type="multi_label_classification")
    assert data.label_list == ("x", "y")
    assert data.splits["train"]["label"][:] == [[1, 1], [0, 0], [0, 1]]
    splits = one(text=list("abc"), label=["x|y", "", "y"])
    with pytest.raises(UserError, match=r"train row 2 has no label.*--drop_empty"):
        prepare_classification(splits, problem_type="multi_label_classification")


def test_blanks_around_a_label_are_no_part_of_it():
    data = prepare_classification(one(text=list("abc"), label=["good ", "good", "\tbad"]))
    assert data.label_list == ("bad", "good")
    assert prepare_classification(one(text=["a"], label=[["x ", "x"]])).label_list == ("x",)
    assert prepare_tagging(one(tokens=[["a", "b"]], tags=[["O ", "O"]])).label_list == ("O",)


# Real files


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))

    def load_real(folder: str) -> DatasetDict:
        files = {split: data_folder(folder) / f"{split}.jsonl.gz" for split in ("train", "validation", "test")}
        return DatasetDict(
            {split: take_first(rows, 3000) for split, rows in load_splits(files=files, cache_dir=cache).items()}
        )

    return load_real


@pytest.mark.parametrize(
    ("folder", "label_column", "labels", "entities"),
    [("wnut17", "ner_tags", 13, True), ("ud_english_ewt", "pos_tags", 17, False), ("weibo_ner", "ner_tags", 17, True)],
)
def test_real_tagging_sets(real, folder, label_column, labels, entities):
    data = prepare_tagging(real(folder))
    assert (data.text_column, data.label_column) == ("tokens", label_column)
    assert (len(data.label_list), is_entity_scheme(data.label_list)) == (labels, entities)
    assert all(data.is_labelled(split) for split in data.splits)


@pytest.mark.parametrize(
    ("folder", "texts", "labels", "kind", "test_labels"),
    [
        ("sst5", ("text",), 5, "single_label_classification", True),
        ("snli", ("sentence1", "sentence2"), 3, "single_label_classification", True),
        ("glue_stsb", ("sentence1", "sentence2"), 0, "regression", True),
        ("glue_cola", ("text",), 2, "single_label_classification", False),
        ("chnsenticorp", ("text",), 2, "single_label_classification", True),
        # Its grades are 0.0, 1.0 ... 5.0: classes, unless --problem_type regression is given, as its recipe does.
        ("chinese_stsb", ("sentence1", "sentence2"), 6, "single_label_classification", True),
    ],
)
def test_real_classification_sets(real, folder, texts, labels, kind, test_labels):
    data = prepare_classification(real(folder))
    assert (data.text_columns, data.label_column) == (texts, "label")
    assert (len(data.label_list), data.problem_type) == (labels, kind)
    assert data.is_labelled("test") == test_labels


def test_published_glove_vectors_cover_the_words_of_sst5() -> None:
    path = data_folder("embeddings") / "glove.6B.50d.subset.txt.gz"
    with gzip.open(data_folder("sst5") / "train.jsonl.gz", "rt", encoding="utf-8") as file:
        texts = [json.loads(line)["text"] for line in file]
    tokenizer = train_tokenizer(texts, "word", min_frequency=1)
    table, found = read_vectors(path, tokenizer.get_vocab())
    ids = [index for row in tokenizer(texts, add_special_tokens=False)["input_ids"] for index in row]
    assert found[ids].float().mean().item() == pytest.approx(0.77, abs=0.02)
    with gzip.open(path, "rt", encoding="utf-8") as file:
        numbers = next(line.split()[1:] for line in file if line.startswith("the "))
    assert table[tokenizer.get_vocab()["the"]].tolist() == pytest.approx([float(number) for number in numbers])


def some_of_each_one_by_one(groups: dict[int, list[int]], size: int, draw: random.Random) -> set[int]:
    """`_some_of_each`, which looks through all groups for each row that rounding removed."""
    total = sum(map(len, groups.values()))
    size = min(size, total - len(groups))
    share = {value: size * len(rows) / total for value, rows in groups.items()}
    taken = {value: min(int(share[value]), len(rows) - 1) for value, rows in groups.items()}
    while sum(taken.values()) < size:
        open_ones = [value for value, rows in groups.items() if taken[value] < len(rows) - 1]
        taken[max(open_ones, key=lambda value: (share[value] - taken[value], len(groups[value])))] += 1
    return {row for value, rows in groups.items() for row in draw.sample(rows, taken[value])}


def test_hold_out_chooses_the_rows_that_it_always_chose():
    draw = random.Random(0)
    for _ in range(300):
        groups: dict[int, list[int]] = {}
        for row in range(draw.randint(2, 80)):
            groups.setdefault(draw.choice([0, 0, draw.randint(1, 20)]), []).append(row)
        size = draw.randint(1, 40)
        chosen = _some_of_each(groups, size, random.Random(1))
        assert chosen == some_of_each_one_by_one(groups, size, random.Random(1))


# Tags of entities


@pytest.mark.parametrize(
    ("train", "test", "labels"),
    [
        (["B-PER", "0"], ["0", "B-PER"], ["O", "B-PER"]),
        (["B-PER", "OTHER"], ["OTHER", "B-PER"], ["O", "B-PER"]),
        (["B-PER", "_"], ["_", "_"], ["O", "B-PER"]),
        (["B_person", "I_person", "O"], ["B_person", "O", "O"], ["O", "B-person", "I-person"]),
        (["b-per", "i-per", "o"], ["b-per", "o", "o"], ["O", "B-per", "I-per"]),
        (["U_LOC", "B_LOC", "O"], ["O", "B_LOC", "O"], ["O", "B-LOC", "U-LOC"]),
        (["PER-B", "PER-I", "O"], ["PER-B", "PER-I", "O"], ["O", "B-PER", "I-PER"]),
        (["PER", "VITAMIN-B", "O"], ["PER", "O", "O"], ["O", "PER", "VITAMIN-B"]),
        (["1", "0"], ["1", "0"], ["0", "1"]),
    ],
)
def test_tags_of_entities_are_known_in_every_spelling(train: list[str], test: list[str], labels: list[str]) -> None:
    words = [f"word{number}" for number in range(len(train))]
    splits = DatasetDict(
        {
            split: Dataset.from_dict({"tokens": [words], "tags": [tags]})
            for split, tags in (("train", train), ("test", test))
        }
    )
    data = prepare_tagging(splits)
    assert list(data.label_list) == labels
    assert min(tag for split in data.splits.values() for tags in split["tags"] for tag in tags) == 0
    saved = prepare_tagging(DatasetDict({"test": splits["test"]}), label_list=data.label_list)
    assert saved.splits["test"]["tags"][:] == data.splits["test"]["tags"][:]


def test_a_label_that_train_lacks_is_no_class_and_one_of_a_known_entity_is(caplog: pytest.LogCaptureFixture) -> None:
    rows = {"train": [["B-PER", "O"]], "test": [["B-LOC", "I-PER"], ["B-PER", "O"]], "validation": [["X", "X"]]}
    data = prepare_tagging(
        DatasetDict(
            {
                split: Dataset.from_dict({"tokens": [["a", "b"]] * len(tags), "tags": tags})
                for split, tags in rows.items()
            }
        )
    )
    assert list(data.label_list) == ["O", "B-PER", "I-PER"]
    assert data.splits["test"]["tags"][:] == [[-100, 2], [1, 0]]
    assert not data.is_labelled("validation")
    assert "test: words with 'B-LOC' are not scored" in caplog.text


def test_a_tag_of_no_entity_among_others_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    tags = [["B-PER", "O"], ["desk", "O"]]
    data = prepare_tagging(DatasetDict({"train": Dataset.from_dict({"tokens": [["a", "b"]] * 2, "tags": tags})}))
    assert list(data.label_list) == ["O", "B-PER", "desk"]
    assert "'desk'" in caplog.text
    assert "no CRF" in caplog.text


def test_a_label_that_train_lacks_is_no_class_of_a_classifier(caplog: pytest.LogCaptureFixture) -> None:
    splits = DatasetDict(
        {
            "train": table(text=["a", "b", "c"], label=["neg", "pos", "neg"]),
            "test": table(text=["d", "e", "f"], label=["pos", "neutral", "neg"]),
        }
    )
    data = prepare_classification(splits)
    assert data.label_list == ("neg", "pos")
    assert data.splits["test"]["text"][:] == ["d", "f"]
    assert any("neutral" in message for message in caplog.messages)
