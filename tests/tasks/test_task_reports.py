"""The reports of the tasks: predictions, tables, the card."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from script_samples import read_rows, write_rows
from task_samples import ROWS, TINY, Parsed, trainer_of
from transformers import PreTrainedTokenizerFast

from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification
from modeling_star.data.readers import read_file
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.evaluation.reports import score_lines
from modeling_star.runs.run import load_task, run_once
from modeling_star.tasks import tfidf
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.tfidf import tfidf_scores
from modeling_star.tasks.token_classification import TaggingTask


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    words = ["Ann", "sees", "Oslo", "and", "Rome", "It", "rains"]
    return train_tokenizer([words], "word", min_frequency=1)


def test_long_inputs_are_scored_in_windows(task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"]
    learnt, scored = (task.features(split, pieces, 5) for split in ("train", "test"))
    assert (len(learnt), len(scored)) == (2, 3)
    read = [word for row in scored if row["example_index"] == 0 for word in row["word_ids"] if word >= 0]
    assert read == [0, 1, 2, 3, 4]
    assert len(task.features("test", pieces, None)) == 2


def test_words_without_a_label_are_not_counted(
    task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"].map(lambda row: {"tags": [-100, *row["tags"][1:]]})
    features = task.features("test", pieces, None)
    right = [[max(label, 0) for label in row] + [-100] * (7 - len(row)) for row in features["labels"]]
    sections = task.report(tmp_path, "test", features, np.array(right))
    (table,) = sections.values()
    # Of Ann, Oslo and Rome the first has no label now.
    assert [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")][-1] == "2"
    assert "1.0" in table
    assert "0 of 2 rows" in (tmp_path / "errors_test.html").read_text(encoding="utf-8")
    assert '"labels": [null, "O", "B-LOC", "O", "B-LOC"]' in (tmp_path / "predictions_test.jsonl").read_text()
    # Nor does another scorer count them.
    first = ["sees O O", "Oslo B-LOC B-LOC", "and O O", "Rome B-LOC B-LOC", ""]
    assert (tmp_path / "predictions_test.conll").read_text().split("\n") == [*first, "rains O O", "", ""]


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


def test_several_labels_have_a_score_each(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "label": [["a"], ["a", "b"]][number % 2]} for number in range(4)]
    path = write_rows(tmp_path / "given.jsonl", rows)
    arguments = parsed(ClassificationTask, f"--train_file={path}", "--validation_fraction=0.25")
    _, (row,) = report_of(load_task(ClassificationTask, *arguments[:3]), tmp_path, [[2.0, -1000.0]])
    assert (row["predicted"], row["score"]) == (["a"], {"a": 0.8808, "b": 0.0})
    page = (tmp_path / "errors_validation.html").read_text(encoding="utf-8")
    assert page.count("of 1 rows are wrong") == page.count("only predicted") == 1
    table = (tmp_path / "classes_validation.md").read_text(encoding="utf-8")
    assert table.splitlines()[2] == "| a | 1.0000 | 1.0000 | 1.0000 | 1 |"


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


def test_answers_are_scored_by_the_length_of_their_contexts(task_of: Callable[..., Any], tmp_path: Path) -> None:
    lengths, exact, f1 = np.array([5, 128, 129, 700]), np.array([1.0, 0, 1, 0]), np.array([1.0, 0.5, 1, 0.25])
    (table,) = task_of(ReadingTask)._by_length(tmp_path, "test", lengths, exact, f1).values()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["up to 128", "129 to 256", "513 to 1,024"]
    assert [[float(cell) for cell in row[1:]] for row in rows] == [[0.5, 0.75, 2], [1, 1, 1], [0, 0.25, 1]]


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


def test_tfidf_is_not_fitted_where_it_cannot_be(
    parsed: Callable[..., Parsed],
    pieces: PreTrainedTokenizerFast,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def scores(rows: list[dict[str, Any]], *given: str) -> dict[str, float]:
        file = write_rows(tmp_path / "rows.jsonl", rows)
        *groups, training = parsed(ClassificationTask, f"--train_file={file}", "--validation_fraction=0.5", *given)
        return tfidf_scores(load_task(ClassificationTask, *groups), pieces, training)

    rows = [{"text": f"{['Ann', 'It'][number % 2]} sees", "label": "ab"[number % 2]} for number in range(8)]
    assert scores(rows)
    assert scores([{**row, "text": "?!"} for row in rows]) == {}
    assert scores([{**row, "label": number / 3} for number, row in enumerate(rows)]) == {}
    monkeypatch.setattr(tfidf, "MOST_TEXTS", 3)
    assert scores(rows) == {}
