"""Splits -> columns and labels as numbers, held-out rows, and warnings of what looks like something else."""

import gzip
import json
import logging
import random
import re
from typing import Any

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value, load_from_disk
from real_data import data_folder
from script_samples import jsonl
from task_samples import one, table

from modeling_star.data.classification import prepare_classification
from modeling_star.data.columns import find_reading_columns
from modeling_star.data.splits import _some_of_each, hold_out, load_splits
from modeling_star.data.squad import prepare_reading
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


@pytest.mark.parametrize("seed", range(5))
def test_hold_out_takes_its_part_of_every_class_and_leaves_one(seed):
    labels = ["rare"] + ["small"] * 9 + ["large"] * 90
    splits = hold_out(one(label=labels, n=list(range(100))), 0.2, seed=seed, classes="label")
    held = [splits["validation"]["label"][:].count(name) for name in ("rare", "small", "large")]
    assert held == [0, 2, 18]
    assert sorted(splits["train"]["n"][:] + splits["validation"]["n"][:]) == list(range(100))
    assert splits["validation"]["n"][:] == sorted(splits["validation"]["n"][:])


def test_hold_out_refuses_what_it_cannot_do():
    rows = table(n=[1, 2, 3])
    with pytest.raises(UserError, match="--validation_fraction"):
        hold_out(DatasetDict({"train": rows, "validation": rows}), 0.1)
    with pytest.raises(UserError, match="2 rows or more"):
        hold_out(DatasetDict({"test": rows}), 0.1)
    with pytest.raises(UserError, match=r"--validation_fraction 1\.5"):
        hold_out(DatasetDict({"train": rows}), 1.5)


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


# Labels of texts


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


def test_rows_of_empty_lists_have_no_label():
    with pytest.raises(UserError, match="No row has a label"):
        prepare_classification(one(text=["x", "y"], label=[[], []]))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1)])
def test_pairs_without_a_header_line_are_advised_names_that_read_them(tmp_path, order):
    rows = [(f"A man sat on {n}.", f"Some dogs ran to {n}.", "yes" if n % 2 else "no") for n in range(12)]
    file = tmp_path / "train.tsv"
    file.write_text("".join("\t".join(row[index] for index in order) + "\n" for row in rows))
    with pytest.raises(UserError, match="--column_names") as error:
        prepare_classification(load_splits(files={"train": file}))
    names = re.search(r"--column_names ([\w,]+)", str(error.value))[1].split(",")
    data = prepare_classification(load_splits(files={"train": file}, column_names=names))
    assert len(data.splits["train"]) == 12
    assert [data.splits["train"][name][0] for name in data.text_columns] == [*rows[0][:2]]
    # A header line is none of the rows.
    file.write_text("premise\thypo\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    with pytest.raises(UserError, match=r"--text_column_name premise,hypo`$"):
        prepare_classification(load_splits(files={"train": file}))


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


@pytest.mark.parametrize("labels", [{"train": [1, 0, "good"]}, {"train": ["good"], "test": [1]}])
def test_mixed_labels_name_both_rows_and_values(load, labels):
    files = {
        split: (f"{split}.jsonl", jsonl([{"text": "a", "label": x} for x in rows])) for split, rows in labels.items()
    }
    with pytest.raises(UserError, match=r"mixed types: .*row \d has (1|'good'), .*row \d has (1|'good')"):
        prepare_classification(load(**files))


# Real files


@pytest.mark.slow
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


def test_reading_columns_have_known_names():
    questions = one(Question=["?"], Context=["x"], Answers=[{"text": ["x"], "answer_start": [0]}])
    assert find_reading_columns(questions) == ("Question", "Context", "Answers")


OTHER = [f"Nobody saw the lamp number {row}" for row in range(12)]


def test_a_split_without_the_label_column_is_unlabelled():
    splits = DatasetDict({"train": table(text=["x", "y"], label=[0, 1]), "test": table(text=["x"], score=[1])})
    assert not prepare_classification(splits).is_labelled("test")


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
    sizes = {"saved": {"train": 20, "validation": 4}, "single": {"train": 20}, "apart": {"train": 20, "test": 4}}
    for name, expected in sizes.items():
        splits = load_splits(str(tmp_path / name))
        assert {split: len(dataset) for split, dataset in splits.items()} == expected
        assert splits["train"]["text"][:] == rows(20)["text"][:]
        assert len(load_splits(str(tmp_path), name)["train"]) == 20
    assert sorted(tmp_path.rglob("*")) == before
    with pytest.raises(UserError, match="--dataset_name"):
        load_splits(str(tmp_path))


def test_sentences_may_be_numbered_anew_in_each_document() -> None:
    splits = one(sentence_id=[0, 0, 1, 1, 0, 0], words=list("abcdef"), labels=["O"] * 6)
    assert prepare_tagging(splits).splits["train"]["words"][:] == [["a", "b"], ["c", "d"], ["e", "f"]]


def test_a_word_of_each_sentence_in_lists_stays_as_it_is() -> None:
    data = prepare_tagging(one(tokens=[["Ann"], ["rains"]], tags=[["B-PER"], ["O"]]))
    assert data.splits["train"]["tokens"][:] == [["Ann"], ["rains"]]
    written = one(tokens=["['Ann']", "['rains']"], tags=["['B-PER']", "['O']"])
    assert prepare_tagging(written).splits["train"]["tokens"][:] == [["Ann"], ["rains"]]


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
