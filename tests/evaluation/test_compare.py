"""The paired bootstrap against scikit-learn and seqeval on every resample, and comparisons of finished runs."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import seqeval.metrics
from naive_bootstrap import naive_bootstrap, paired_bootstrap
from script_samples import write_rows
from sklearn import metrics as sklearn_metrics

from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import bootstrap_counts, bootstrap_mean
from modeling_star.evaluation.compare import compare, read_system
from modeling_star.evaluation.metrics import count_examples


TAGS = ["O", "O", "O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def tagged(rng: random.Random, count: int) -> list[list[str]]:
    return [[rng.choice(TAGS) for _ in range(rng.randint(0, 12))] for _ in range(count)]


def noisy(rng: random.Random, sentences: list[list[str]], rate: float) -> list[list[str]]:
    return [[rng.choice(TAGS) if rng.random() < rate else tag for tag in sentence] for sentence in sentences]


def sklearn_f1(average: str) -> Callable[[Any, Any], float]:
    return lambda truth, guess: sklearn_metrics.f1_score(truth, guess, average=average, zero_division=0)


LABEL_METRICS = {
    "accuracy": sklearn_metrics.accuracy_score,
    "macro_f1": sklearn_f1("macro"),
    "weighted_f1": sklearn_f1("weighted"),
    "f1": sklearn_f1("binary"),
    "matthews_correlation": sklearn_metrics.matthews_corrcoef,
}
NUMBER_METRICS = {
    "pearson": lambda truth, guess: scipy.stats.pearsonr(truth, guess).statistic,
}


@pytest.mark.parametrize("name", LABEL_METRICS)
def test_counts_give_what_scikit_learn_gives_on_every_sample(name: str) -> None:
    rng = np.random.default_rng(1)
    truth, first, second = (rng.integers(0, 2 if name == "f1" else 4, 40).tolist() for _ in range(3))
    if name != "f1":
        truth[0] = 9  # a label that many samples lack
    by_counts = paired_bootstrap(name, truth, first, second, samples=40, seed=3)
    by_call = naive_bootstrap(LABEL_METRICS[name], truth, [first], [second], samples=40, seed=3)
    assert by_counts == pytest.approx(by_call)
    assert by_counts.difference == pytest.approx(
        LABEL_METRICS[name](truth, first) - LABEL_METRICS[name](truth, second)
    )


@pytest.mark.parametrize("name", NUMBER_METRICS)
def test_moments_give_what_the_libraries_give_on_every_sample(name: str) -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(3, 1, 40)
    first, second = truth + rng.normal(size=40), truth + rng.normal(0, 2, 40)
    by_counts = paired_bootstrap(name, truth, first, second, samples=40)
    assert by_counts == pytest.approx(naive_bootstrap(NUMBER_METRICS[name], truth, [first], [second], samples=40))


def test_entity_counts_give_what_seqeval_gives_on_every_sample() -> None:
    rng = random.Random(0)
    truth = tagged(rng, 60)
    first, second = noisy(rng, truth, 0.1), noisy(rng, truth, 0.3)
    by_counts = paired_bootstrap("entity_f1", truth, first, second, samples=40)
    by_call = naive_bootstrap(seqeval.metrics.f1_score, truth, [first], [second], samples=40)
    assert by_counts == pytest.approx(by_call)
    assert 0 < by_counts.low < by_counts.difference < by_counts.high


def test_systems_are_resampled_together() -> None:
    # b is right exactly where a is, and once more: unpaired, the interval would span 0 by far
    truth = [1] * 400
    first = [1, 0] * 200
    second = [1, 0] * 190 + [1, 1] * 10
    result = paired_bootstrap("accuracy", truth, second, first)
    assert result.difference == pytest.approx(0.025)
    assert 0 < result.low < result.high < 0.06


def test_the_interval_covers_the_true_difference_about_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        truth = np.ones(200, int)
        first, second = (rng.random(200) < 0.8).astype(int), (rng.random(200) < 0.7).astype(int)
        result = paired_bootstrap("accuracy", truth, first, second, samples=200, seed=trial, confidence=0.9)
        covered += result.low <= 0.1 <= result.high
    assert 165 <= covered <= 195  # 180 expected, standard deviation 4.2


def test_several_runs_are_averaged_and_drawn_within_each_sample() -> None:
    rng = np.random.default_rng(0)
    truth, *runs = (rng.integers(0, 3, 50).tolist() for _ in range(5))
    by_counts = paired_bootstrap("macro_f1", truth, runs[:3], runs[3:], several_runs=True, samples=30)
    by_call = naive_bootstrap(sklearn_f1("macro"), truth, runs[:3], runs[3:], samples=30)
    assert by_counts == pytest.approx(by_call)
    scores = [sklearn_f1("macro")(truth, run) for run in runs]
    assert by_counts.difference == pytest.approx(np.mean(scores[:3]) - np.mean(scores[3:]))


@pytest.mark.parametrize("seeds", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_the_interval_covers_what_other_seeds_would_have_given(seeds: int) -> None:
    """Seeds move a run by two points here, the examples by one: seeds taken as given leave it out 85 times of 200."""
    rng = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        systems = []
        for rate in (0.8, 0.75):
            rates = np.clip(rng.normal(rate, 0.02, seeds), 0, 1)
            systems.append([np.stack([rng.random(2000) < own, np.ones(2000)], axis=1) for own in rates])
        found = bootstrap_counts("accuracy", *systems, samples=200, seed=trial)
        covered += found.low <= 0.05 <= found.high
    assert covered >= 180


@pytest.mark.parametrize(
    ("metric", "truth", "first", "second"),
    [
        ("accuracy", [0, 1], [0], [0, 1]),
        ("rouge", [0], [0], [0]),
        ("f1", [0, 1, 2], [0, 1, 2], [0, 1, 2]),
        ("f1", ["yes", "yes"], ["yes", "yes"], ["yes", "yes"]),
    ],
)
def test_unequal_lengths_and_undefined_metrics_are_refused(
    metric: str, truth: list, first: list, second: list
) -> None:
    with pytest.raises(ValueError, match=r"rouge|f1|shorter|longer"):
        paired_bootstrap(metric, truth, first, second, samples=5)


def test_the_interval_of_a_mean_over_tasks_is_that_of_loops_that_draw_each_by_itself() -> None:
    """Tasks that were drawn alike would make it wider, by the square root of how many they are."""
    rng = np.random.default_rng(0)
    tasks = []
    for rows in (60, 80, 100):
        right = [[rng.random(rows) < rate for _ in range(2)] for rate in (0.8, 0.7)]
        tasks.append([[np.stack([run, np.ones(rows)], 1) for run in system] for system in right])
    found = bootstrap_mean([("accuracy", a, b) for a, b in tasks], samples=2000)

    def gain(first: list[np.ndarray], second: list[np.ndarray]) -> float:
        drawn = rng.integers(len(first[0]), size=len(first[0]))
        # Of two runs one is drawn.
        return first[rng.integers(2)][drawn, 0].mean() - second[rng.integers(2)][drawn, 0].mean()

    resampled = [np.mean([gain(first, second) for first, second in tasks]) for _ in range(2000)]
    low, high = np.quantile(resampled, [0.025, 0.975])
    gains = [np.mean([a[:, 0] for a in first]) - np.mean([b[:, 0] for b in second]) for first, second in tasks]
    assert found.difference == pytest.approx(np.mean(gains))
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.1 * (high - low))


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


def test_a_metric_that_is_not_the_score_of_that_name_in_all_results_is_refused(folder: Path) -> None:
    # The model's second label is "bad": the F1 of the run is that of the other class.
    write_run(folder / "run", RIGHT["b"], test_f1=0.0, test_macro_f1=1 / 3)
    system = read_system(folder / "run")
    assert "| macro_f1, % |" in compare([system], "macro_f1")
    with pytest.raises(UserError, match=r"all_results.json.*--metric"):
        compare([system], "f1")


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
