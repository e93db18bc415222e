"""The tasks: how flags reach data and model, saved models and tokenizers, reports, and what a run is compared with."""

import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from script_samples import read_rows, write_rows, write_typeless_tokenizer
from seqeval.metrics import f1_score
from task_samples import ROWS, TINY, Parsed, parts_of, trainer_of
from transformers import (
    AutoTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification
from modeling_star.data.readers import read_file
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.evaluation.reports import score_lines
from modeling_star.inference import Predictor
from modeling_star.runs.run import load_task, run_once
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.tagging_baseline import EntityDictionary
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.task import Task


@pytest.mark.parametrize("kind", ["star_transformer", "big_transformer"])
def test_a_file_of_word_vectors_gives_a_fresh_model_its_words(
    kind: str, task_of: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("Ann 1 2 3\nIt 4 5 6\nrains 7 8 9\nZz 10 11 12\n", encoding="utf-8")
    shape = "--config_overrides=hidden_size=16,num_attention_heads=2,train_word_vectors=true"
    flags = (
        f"--model_type={kind}",
        "--tokenizer_kind=character",
        "--validation_fraction=0",
        f"--word_vectors={path}",
        shape,
    )
    _, model = parts_of(task_of(TaggingTask, *flags))
    config, part = model.config, model.base_model.embeddings.word_vectors
    assert (config.word_vector_size, config.word_vector_count) == (3, 2)  # of two to four letters that are known
    assert sorted(part.vectors.tolist()) == [[0, 0, 0], [1, 2, 3], [4, 5, 6]]
    model.save_pretrained(tmp_path / "saved")
    loaded = type(model).from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.base_model.embeddings.word_vectors.vectors, part.vectors)


# What is held out


def test_equal_texts_are_held_out_together(task_of: Callable[..., Any]) -> None:
    splits = task_of(ReadingTask, "--validation_fraction=0.5").data.splits
    learnt, held = set(splits["train"]["context"]), set(splits["validation"]["context"])
    assert learnt
    assert held
    assert not learnt & held
    # Four rows share each text.
    assert len(splits["train"]) == 4 * len(learnt)


# Flags of the tasks


# Contradictory flags


# Saved models


# TF-IDF


@pytest.mark.parametrize("letters", ["Latin", "Chinese"])
def test_a_saved_tfidf_model_is_a_classifier_that_predicts_the_same(
    letters: str, parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    words = {"Latin": ["good film", "bad plot", "so so, Mary"], "Chinese": ["好电影", "坏剧情", "还行吧"]}[letters]
    rows = write_rows(tmp_path / "rows.jsonl", [{"text": word, "label": word[0]} for word in words * 4])
    files = [f"--{split}_file={rows}" for split in ("train", "validation", "test")]
    folder = tmp_path / "run"
    *groups, training = parsed(ClassificationTask, *files, "--model_type=tfidf", "--report_to=none")
    training.output_dir = str(folder)
    results = run_once(load_task(ClassificationTask, *groups), training)
    assert results["eval_accuracy"] == results["test_accuracy"] == 1
    predictions = read_rows(folder / "report" / "predictions_test.jsonl")
    found = Predictor(folder).predict([row["text"] for row in predictions])
    assert [each[0]["label"] for _, each in found] == [row["predicted"] for row in predictions]
    assert [each[0]["score"] for _, each in found] == pytest.approx([row["score"] for row in predictions], abs=1e-4)
    classifier = pipeline("text-classification", str(folder))
    assert classifier(words)[0]["score"] == pytest.approx(found[0][1][0]["score"], abs=1e-6)


# The saved tokenizer


@pytest.mark.parametrize("kind", [ReadingTask, ClassificationTask])
def test_a_saved_tokenizer_gives_the_token_types_of_training(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    pairs = [{"sentence1": f"text {n}", "sentence2": "more", "label": "ab"[n == 0]} for n in range(8)]
    rows = write_rows(tmp_path / "rows.jsonl", pairs if kind is ClassificationTask else ROWS[kind])
    name = write_typeless_tokenizer(tmp_path / "tokenizer", ["who Ann sees Oslo text more"] * 2)
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(name)("a", "b")
    _, trainer = trainer_of(kind, parsed(kind, *TINY, f"--train_file={rows}", f"--tokenizer_name={name}"), tmp_path)
    trainer.processing_class.save_pretrained(tmp_path / "saved")
    given = AutoTokenizer.from_pretrained(tmp_path / "saved")("who", "Ann")["token_type_ids"]
    assert given == trainer.processing_class("who", "Ann")["token_type_ids"] == [0, 0, 0, 1, 1]
    assert max(trainer.train_dataset[0]["token_type_ids"]) == 1


def test_a_fresh_model_is_star_plus_2_unless_a_shape_or_a_type_is_named(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    rows = f"--train_file={write_rows(tmp_path / 'rows.jsonl', ROWS[ClassificationTask])}"

    def config_of(*given: str) -> Any:
        return parts_of(load_task(ClassificationTask, *parsed(ClassificationTask, rows, *given)[:3]))[1].config

    named, default = config_of("--config_name=configuration/models/star-plus-2.json"), config_of()
    assert default.to_dict() == named.to_dict()
    assert (default.residual, default.role_bias) == (True, True)
    first = config_of("--config_name=configuration/models/star-plus.json")  # that of published runs
    assert (first.embedding_norm, first.relay_start_norm) == (False, False)
    for paper in ("--config_name=configuration/models/star-base.json", "--model_type=star_transformer"):
        assert (config_of(paper).residual, config_of(paper).position_embedding_type) == (False, "learned")
    assert config_of("--config_overrides=residual=false").residual is False


@pytest.mark.parametrize(
    ("tags", "given", "expected"),
    [
        (["B-x", "I-x", "O"], (), (True, "auto")),
        (["B-x", "E-x", "S-x"], (), (True, "auto")),
        (["B", "E", "S"], (), (True, "auto")),
        (["O", "I-x", "B-x"], (), (True, None)),  # which IOB2 forbids
        (["O", "I-x", "B-x"], ("--config_overrides=crf_constraints=iob1",), (True, "iob1")),
        (["B-x", "I-x", "O"], ("--config_overrides=use_crf=false",), (False, None)),
        (["B-x", "I-x", "O"], ("--config_overrides=use_crf=true",), (True, None)),
        (["NN", "VB", "O"], (), (False, None)),
        (["B-x", "I-x", "O"], ("--model_type=bert", "--config_overrides=hidden_size=12"), (None, None)),
    ],
)
def test_a_fresh_tagger_of_entities_has_a_crf(
    parsed: Callable[..., Parsed], tmp_path: Path, tags: list[str], given: tuple[str, ...], expected: Any
) -> None:
    rows = write_rows(tmp_path / "rows.jsonl", [{"tokens": ["a", "b", "c"], "tags": tags}] * 8)
    tokenizer, model = parts_of(load_task(TaggingTask, *parsed(TaggingTask, f"--train_file={rows}", *given)[:3]))
    assert (getattr(model.config, "use_crf", None), getattr(model.config, "crf_constraints", None)) == expected
    tokenizer.save_pretrained(tmp_path / "saved")
    model.save_pretrained(tmp_path / "saved")
    saved = parsed(TaggingTask, f"--train_file={rows}", f"--model_name_or_path={tmp_path / 'saved'}")
    again = parts_of(load_task(TaggingTask, *saved[:3]))[1]
    assert getattr(again.config, "use_crf", None) == expected[0]


@pytest.mark.parametrize("kind", [TaggingTask, pytest.param(ClassificationTask, marks=pytest.mark.slow)])
def test_the_saved_tokenizer_truncates_as_in_scoring(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    def limit_of(folder: str, *given: str) -> int:
        *groups, training = parsed(kind, "--report_to=none", "--max_steps=1", "--disable_tqdm=true", *given)
        training.output_dir = str(tmp_path / folder)
        run_once(load_task(kind, *groups), training)
        return AutoTokenizer.from_pretrained(tmp_path / folder).model_max_length

    assert limit_of("short", TINY[0], "--max_seq_length=6") == 6
    assert limit_of("whole", TINY[0], "--model_type=star_transformer") == 512
    saved = f"--model_name_or_path={tmp_path / 'short'}"
    assert limit_of("later", saved, "--max_seq_length=9") == 9
    assert limit_of("same", saved) == 6


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    words = ["Ann", "sees", "Oslo", "and", "Rome", "It", "rains"]
    return train_tokenizer([words], "word", min_frequency=1)


def test_predictions_in_conll_can_be_read_again(
    task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"].remove_columns("tags").map(lambda row: {"tokens": ["a b", *row["tokens"][1:]]})
    features = task.features("test", pieces, None)
    task.report(tmp_path, "test", features, np.zeros((2, 7), dtype=int))
    read = read_file(tmp_path / "predictions_test.conll")
    assert read["tokens"][:] == [["a_b", "sees", "Oslo", "and", "Rome"], ["a_b", "rains"]]
    assert read["tags"][:] == [["O"] * 5, ["O"] * 2]


def report_of(task: Any, folder: Path, logits: list[list[float]]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    sections = task.report(folder, "validation", task.data.splits["validation"], np.array(logits))
    return sections, read_rows(folder / "predictions_validation.jsonl")


def test_a_prediction_has_its_row_of_the_file_its_text_and_its_score(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    rows = [{"text": None if number == 2 else f"text {number}", "label": "ab"[number % 2]} for number in range(12)]
    path = write_rows(tmp_path / "given.jsonl", rows)
    arguments = parsed(ClassificationTask, f"--train_file={path}", "--drop_empty", "--validation_fraction=0.4")
    task = load_task(ClassificationTask, *arguments[:3])
    held = len(task.data.splits["validation"])
    sections, lines = report_of(task, tmp_path, [[0.0, 2.0]] * held)
    assert held == 4
    assert all(row["text"] == rows[row["index"]]["text"] for row in lines)
    assert all(row["label"] == rows[row["index"]]["label"] for row in lines)
    assert max(row["index"] for row in lines) > held
    assert {(row["predicted"], row["score"]) for row in lines} == {("b", 0.8808)}
    assert (tmp_path / "classes_validation.md").read_text() == sections["Classes of the validation split"] + "\n"
    mistakes = (tmp_path / "errors_validation.html").read_text(encoding="utf-8")
    assert mistakes.count("<td>a (0.119)") == sum(row["label"] == "a" for row in lines) > 0
    assert mistakes.count("<td>b (0.881)") == mistakes.count("<td>a (0.119)")


def test_the_table_of_entities_has_the_reported_scores(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    """A fresh model guesses, so that no score is 0 or 1."""
    rows = write_rows(tmp_path / "test.jsonl", ROWS[TaggingTask] * 20)
    alone = (f"{TINY[0]},use_crf=false", *TINY[1:])
    arguments = parsed(TaggingTask, *alone, f"--test_file={rows}", "--validation_fraction=0")
    task, trainer = trainer_of(TaggingTask, arguments, tmp_path / "run")
    labels = len(task.data.label_list)
    torch.manual_seed(3)
    config = StarTransformerConfig(vocab_size=100, hidden_size=16, num_attention_heads=2, num_labels=labels)
    trainer.model = StarTransformerForTokenClassification(config).eval()
    features = task.features("test", trainer.processing_class, 5)  # in windows
    trainer.compute_metrics = None
    output = trainer.predict(features)
    predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    scores = task.scorer("test", features).metrics(
        SimpleNamespace(predictions=predictions, label_ids=output.label_ids)
    )
    folder = tmp_path / "report"
    folder.mkdir()
    (table,) = task.report(folder, "test", features, predictions).values()
    everything = [cell.strip().strip("*") for cell in table.splitlines()[-1].strip("|").split("|")]
    assert 0 < scores["f1"] < 1
    shown = [float(cell) for cell in everything[1:4]]
    assert shown == pytest.approx([scores["precision"], scores["recall"], scores["f1"]], abs=6e-4)


@pytest.mark.parametrize(
    "texts",
    [pytest.param(("text",), id="text"), pytest.param(("sentence1", "sentence2"), id="pair", marks=pytest.mark.slow)],
)
def test_a_classifier_is_compared_with_tfidf(
    parsed: Callable[..., Parsed], tmp_path: Path, caplog: pytest.LogCaptureFixture, texts: tuple[str, ...]
) -> None:
    # Easy for TF-IDF; a model that is not trained predicts one class.
    cells = [f"{word} text {number}" for number, word in enumerate(["dull", "fine"] * 20)]
    rows = [{**dict.fromkeys(texts, cell), "label": cell[:4]} for cell in cells]
    files = [f"--{split}_file={write_rows(tmp_path / f'{split}.jsonl', rows)}" for split in ("train", "test")]
    flags = ("--max_steps=1", "--learning_rate=0", "--disable_tqdm=true", "--validation_fraction=0.5", *TINY, *files)

    def results_of(name: str, *given: str) -> dict[str, Any]:
        *groups, training = parsed(ClassificationTask, *flags, *given)
        training.output_dir = str(tmp_path / name)
        return run_once(load_task(ClassificationTask, *groups), training)

    caplog.set_level("INFO")
    results = results_of("with")
    assert (results["tfidf_eval_accuracy"], results["tfidf_test_accuracy"]) == (1.0, 1.0)
    assert results["eval_accuracy"] < 1
    assert "of a baseline (TF-IDF with logistic regression)" in caplog.text
    line = rf"test accuracy {results['test_accuracy']:.3f};.* 1\.000, on the same 40 rows"
    assert re.match(line, score_lines(results, "accuracy")[0])
    assert re.search(line, (tmp_path / "with" / "README.md").read_text(encoding="utf-8"))
    assert not any("tfidf" in name for name in results_of("without", "--tfidf_baseline=false"))


Entity = tuple[str, int, int]


def dictionary_by_loops(sentences: list[list[str]], entities: list[list[Entity]], text: list[str]) -> list[str]:
    """The definition of `EntityDictionary`, with every run of words compared with every entity."""
    found = [
        (tuple(words[i:j]), kind)
        for words, own in zip(sentences, entities, strict=True)
        for kind, i, j in own
    ]  # fmt: skip
    runs = [tuple(w[i:j]) for w in sentences for i in range(len(w)) for j in range(i + 1, len(w) + 1)]
    tags, first = ["O"] * len(text), 0
    while first < len(text):
        for end in range(len(text), first, -1):
            kinds = Counter(kind for run, kind in found if run == tuple(text[first:end]))
            if kinds and kinds.total() >= runs.count(tuple(text[first:end])) / 2:
                tags[first] = f"B-{kinds.most_common(1)[0][0]}"
                tags[first + 1 : end] = [f"I-{kinds.most_common(1)[0][0]}"] * (end - first - 1)
                break
        else:
            end = first + 1
        first = end
    return tags


def test_the_dictionary_of_entities_equals_its_definition() -> None:
    draw = random.Random(1)
    sentences = [[draw.choice("abcd") for _ in range(draw.randint(0, 9))] for _ in range(40)]
    entities = []
    for words in sentences:
        ends = sorted(draw.sample(range(len(words) + 1), min(4, len(words) // 2 * 2)))
        entities.append([(draw.choice(["X", "Y"]), *pair) for pair in zip(ends[::2], ends[1::2], strict=True)])
    dictionary = EntityDictionary(sentences, entities)
    texts = [[draw.choice("abcde") for _ in range(12)] for _ in range(30)]
    found = [dictionary(text) for text in texts]
    assert found == [dictionary_by_loops(sentences, entities, text) for text in texts]
    assert {"B-X", "I-X", "B-Y", "O"} <= {tag for tags in found for tag in tags}


@pytest.fixture
def results_of(parsed: Callable[..., Parsed], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(train: list[dict[str, Any]], test: list[dict[str, Any]], *given: str) -> dict[str, Any]:
        files = [
            f"--{split}_file={write_rows(tmp_path / f'{split}.jsonl', rows)}"
            for split, rows in (("train", train), ("validation", train), ("test", test))
        ]
        flags = ("--max_steps=1", "--learning_rate=0", "--disable_tqdm=true", *TINY, *files, *given)
        *groups, training = parsed(TaggingTask, *flags)
        training.output_dir = str(tmp_path / "run")
        return run_once(load_task(TaggingTask, *groups), training)

    return run


TRAIN = [{"tokens": ["In", "New", "Oslo", str(n)], "tags": ["O", "B-LOC", "I-LOC", "O"]} for n in range(8)]
TEST = [
    {"tokens": ["Oslo", "New"], "tags": ["O", "O"]},
    {"tokens": ["New", "Oslo", "New", "Oslo"], "tags": ["B-LOC", "I-LOC"] * 2},
]


def test_a_tagger_is_compared_with_what_training_counts(
    results_of: Callable[..., dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = results_of(TRAIN, TEST)
    assert (results["dictionary_eval_f1"], results["dictionary_test_f1"]) == (1.0, 1.0)
    frequent = [["I-LOC", "B-LOC"], ["B-LOC", "I-LOC"] * 2]
    assert results["frequent_test_f1"] == pytest.approx(f1_score([row["tags"] for row in TEST], frequent))
    assert results["eval_f1"] < 1
    assert "dictionary of the training entities" in caplog.text
    (line, _) = score_lines(results, "f1")
    for score in ("test_f1", "dictionary_test_f1", "frequent_test_f1"):
        assert f" {results[score]:.3f}" in line
    assert line in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
