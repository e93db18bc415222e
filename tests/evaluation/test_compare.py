"""Comparisons of finished runs, as run_scripts/compare.py prints them."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from script_runner import SCRIPTS
from script_samples import write_rows
from sklearn.metrics import f1_score

from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import bootstrap_counts
from modeling_star.evaluation.compare import compare, read_system
from modeling_star.evaluation.metrics import count_examples


TRUTH = ["good", "bad", "good", "bad", "good", "good"]
RIGHT = {"a/seed-1": "110111", "a/seed-2": "111110", "b": "100011"}


def write_run(folder: Path, right: str, truth: list[str] = TRUTH, **scores: float) -> None:
    other = {"good": "bad", "bad": "good"}
    guesses = [label if one == "1" else other[label] for label, one in zip(truth, right, strict=True)]
    rows = [
        {"index": index, "question": "x\u2028y", "label": label, "predicted": guess}
        for index, (label, guess) in enumerate(zip(truth, guesses, strict=True))
    ]
    write_rows(folder / "predictions_test.jsonl", rows)
    results = {"test_accuracy": right.count("1") / len(right), "parameters": 1234, "train_runtime": 90.0, **scores}
    (folder / "all_results.json").write_text(json.dumps(results), encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, right in RIGHT.items():
        write_run(tmp_path / name, right)
    return tmp_path


def test_a_baseline_is_in_one_line_with_the_model(folder: Path) -> None:
    systems = [read_system(folder / name) for name in "ab"]
    assert "TF-IDF" not in compare(systems)
    write_run(folder / "a/seed-1", "110111", tfidf_test_accuracy=0.5, tfidf_eval_accuracy=0.1)
    write_run(folder / "a/seed-2", "111110", tfidf_test_accuracy=1.0)
    lines = compare([read_system(folder / name) for name in "ab"]).splitlines()
    [line] = [line for line in lines if "TF-IDF" in line]
    assert line.startswith(f"{folder / 'a'}: test accuracy 83.3 %;")
    assert line.endswith("75.0 %, on the same 6 rows")


def cells(text: str, name: Path) -> list[list[str]]:
    """The rows of a folder in the tables."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(f"| {name} |")]
    return [[cell.strip() for cell in row[1:]] for row in found]


def test_runs_are_scored_and_their_differences_have_intervals(folder: Path) -> None:
    text = compare([read_system(folder / name) for name in "ab"])
    counts = {name: count_examples("accuracy", [1] * 6, list(map(int, right))) for name, right in RIGHT.items()}
    expected = bootstrap_counts("accuracy", [counts["a/seed-1"], counts["a/seed-2"]], [counts["b"]])
    difference, low, high = (100 * number for number in expected)
    assert cells(text, folder / "a") == [["83.3 ± 0.0 (2)", "1,234", "1.5"]]
    assert cells(text, folder / "b") == [
        ["50.0 (1)", "1,234", "1.5"],
        [f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"],
    ]
    assert low < difference < high


def test_another_metric_may_be_named(folder: Path) -> None:
    system = read_system(folder / "b")
    text = compare([system, system], "f1")
    expected = 100 * f1_score(TRUTH, system.predictions[0], pos_label="good")
    assert cells(text, folder / "b")[0][0] == f"{expected:.1f} (1)"
    for metric in ("f2", "bleu"):
        with pytest.raises(UserError, match=f"--metric {metric} "):
            compare([system, system], metric)


def test_a_metric_that_is_not_the_score_of_that_name_in_all_results_is_refused(folder: Path) -> None:
    # The model's second label is "bad": the F1 of the run is that of the other class.
    write_run(folder / "run", RIGHT["b"], test_f1=0.0, test_macro_f1=1 / 3)
    system = read_system(folder / "run")
    assert "| macro_f1, % |" in compare([system], "macro_f1")
    with pytest.raises(UserError, match=r"all_results.json.*--metric"):
        compare([system], "f1")


@pytest.mark.parametrize(
    ("row", "metric", "scores"),
    [
        ({"question": "who?", "n_best": [], "label": ["Ann"], "predicted": "Ann"}, "answer_em", {"exact_match": 1.0}),
        # The run's f1 is that of entities.
        ({"tokens": ["Ann", "a"], "labels": ["B-PER", "O"], "predicted": ["O", "O"]}, "macro_f1", {"f1": 0.0}),
    ],
)
def test_another_metric_agrees_with_the_scale_of_all_results(
    tmp_path: Path, row: dict[str, Any], metric: str, scores: dict[str, float]
) -> None:
    write_rows(tmp_path / "predictions_test.jsonl", [row])
    results = {f"test_{name}": value for name, value in scores.items()}
    (tmp_path / "all_results.json").write_text(json.dumps(results), encoding="utf-8")
    assert f"| {metric}, % |" in compare([read_system(tmp_path)] * 2, metric)


@pytest.mark.parametrize(
    ("rows", "scores", "metric"),
    [
        (
            [{"tokens": ["Ann", "ran"], "labels": ["B-PER", "O"], "predicted": ["B-PER", "B-PER"]}],
            {"test_f1": 2 / 3, "test_accuracy": 0.5},
            "entity_f1",
        ),
        (
            [{"tokens": ["Ann", "ran"], "labels": ["NNP", None], "predicted": ["NNP", "VBZ"]}],
            {"test_f1": 0.7, "test_accuracy": 1.0},
            "accuracy",
        ),
        (
            [{"question": "who?", "n_best": [], "label": ["Ann"], "predicted": "Ann B"}],
            {"test_f1": 2 / 3},
            "answer_f1",
        ),
        (
            [{"index": 0, "text": "a", "label": ["x", "y"], "predicted": ["y", "x"]}],
            {"test_accuracy": 1.0},
            "accuracy",
        ),
        (
            [{"text": "a", "label": 1.0, "predicted": 1.5}, {"text": "a", "label": 2.0, "predicted": 2.0}],
            {"test_pearson": 1.0},
            "pearson",
        ),
    ],
)
def test_the_metric_is_what_the_runs_were_scored_by(
    tmp_path: Path, rows: list[dict[str, Any]], scores: dict[str, float], metric: str
) -> None:
    write_rows(tmp_path / "predictions_test.jsonl", rows)
    (tmp_path / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    system = read_system(tmp_path)
    assert f"| {metric}, % |" in compare([system, system])


def test_several_labels_are_compared_by_their_micro_f1(tmp_path: Path) -> None:
    truth, names = [["a", "b"], ["c"], [], ["a"]], ["a", "b", "c"]
    guesses = {"one": [["a"], ["c"], ["b"], ["a"]], "two": [["b", "a"], [], [], []]}
    micro_f1 = {}
    for name, guess in guesses.items():
        rows = [
            {"index": index, "label": label, "predicted": found}
            for index, (label, found) in enumerate(zip(truth, guess, strict=True))
        ]
        write_rows(tmp_path / name / "predictions_test.jsonl", rows)
        table, expected = ([[int(label in row) for label in names] for row in rows] for rows in (guess, truth))
        micro_f1[name] = float(f1_score(expected, table, average="micro", zero_division=0))
        scores = {"test_micro_f1": micro_f1[name], "test_accuracy": 0.5, "parameters": 1, "train_runtime": 60.0}
        (tmp_path / name / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    runs = [read_system(tmp_path / name) for name in guesses]
    text = compare(runs)
    for name in guesses:
        assert cells(text, tmp_path / name)[0][0] == f"{100 * micro_f1[name]:.1f} (1)"
    assert "micro_f1, %" in text
    assert "accuracy, %" in compare(runs, metric="accuracy")


def test_runs_that_cannot_be_compared_are_refused(folder: Path) -> None:
    write_run(folder / "fewer", "11", TRUTH[:2])
    write_run(folder / "others", "111111", TRUTH[::-1])
    write_run(folder / "rescored", "111111", test_accuracy=0.5)
    write_rows(folder / "blind" / "predictions_test.jsonl", [{"text": "x", "predicted": "good"}])
    system = read_system(folder / "b")
    for name, message in {"fewer": "6 and 2", "others": "number 2 differs", "rescored": "--metric"}.items():
        with pytest.raises(UserError, match=message):
            compare([system, read_system(folder / name)])
    (folder / "rescored/all_results.json").unlink()
    with pytest.raises(UserError, match="--metric"):
        compare([system, read_system(folder / "rescored")])
    with pytest.raises(UserError, match="blind"):
        read_system(folder / "blind")
    with pytest.raises(UserError, match=r"predictions_validation\.jsonl"):
        read_system(folder / "b", "validation")


@pytest.mark.slow
def test_the_command_prints_the_tables(folder: Path) -> None:
    command = [sys.executable, str(SCRIPTS / "compare.py")]
    done = subprocess.run([*command, "a", "b"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "| a minus |" in done.stdout
    alone = subprocess.run([*command, "a"], cwd=folder, capture_output=True, text=True)
    assert "name two" in alone.stderr
    for name in ("a/seed-1", "a/seed-2", "b"):
        write_rows(folder / name / "predictions_test.jsonl", [{"label": n, "predicted": n} for n in "abc"])
    three = subprocess.run([*command, "a", "b", "--metric", "f1"], cwd=folder, capture_output=True, text=True)
    assert three.stderr.startswith("modeling-star compare: ")
    absent = subprocess.run([*command, "a", "c"], cwd=folder, capture_output=True, text=True)
    assert absent.returncode == 1
    assert "predictions_test.jsonl" in absent.stderr
