"""Paired bootstrap: against scikit-learn, seqeval and sacrebleu on every resample, its coverage, its counts."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats
import seqeval.metrics
from naive_bootstrap import naive_bootstrap, paired_bootstrap
from sklearn import metrics as sklearn_metrics

from modeling_star.evaluation.bootstrap import bootstrap_counts, bootstrap_mean
from modeling_star.evaluation.metrics import count_examples, score_counts


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


def test_accuracy_of_tagged_sentences_weighs_tokens() -> None:
    result = paired_bootstrap("accuracy", [["A"], ["A"] * 9], [["B"], ["A"] * 9], [["A"], ["B"] * 9], samples=10)
    assert result.difference == pytest.approx(0.8)


@pytest.mark.parametrize("name", ["macro_f1", "weighted_f1"])
def test_label_metrics_of_tagged_sentences_count_every_word_that_has_a_label(name: str) -> None:
    truth, guess = [["A", "A", None, "B"], ["B", "B"]], [["A", "A", "D", "C"], ["B", "A"]]
    words = [(a, b) for row, found in zip(truth, guess, strict=True) for a, b in zip(row, found, strict=True) if a]
    assert score_counts(name, count_examples(name, truth, guess)) == pytest.approx(
        LABEL_METRICS[name](*zip(*words, strict=True))
    )


def test_numbers_that_are_all_one_are_correlated_with_nothing() -> None:
    # Of 0.3 seven times, rounding makes the variance negative.
    counts = count_examples("pearson", [1, 2, 3, 4, 5, 6, 7], [0.3] * 7)
    assert score_counts("pearson", counts) == pytest.approx(0, abs=1e-6)


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


def test_a_seed_gives_one_interval_and_another_a_different_one() -> None:
    rng = np.random.default_rng(0)
    truth, first, second = (rng.integers(0, 2, 200) for _ in range(3))
    results = [paired_bootstrap("accuracy", truth, first, second, seed=seed) for seed in (1, 1, 2)]
    assert results[0] == results[1] != results[2]
    wider = paired_bootstrap("accuracy", truth, first, second, seed=1, confidence=0.99)
    assert wider.low < results[0].low
    assert wider.high > results[0].high


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


def test_words_without_a_label_add_nothing() -> None:
    truth, found = [["B-PER", None], [None], ["O"]], [["B-PER", "B-LOC"], ["B-PER"], ["O"]]
    assert score_counts("accuracy", count_examples("accuracy", truth, found)) == 1.0
    assert score_counts("entity_f1", count_examples("entity_f1", truth, found)) == 1.0


def test_answers_are_compared_in_the_language_that_is_named() -> None:
    """In English articles do not count; as Chinese every character does."""
    truth, found = [["the 公司"]], ["公司"]
    scores = [
        score_counts("answer_em", count_examples("answer_em", truth, found, language=name)) for name in ("en", "zh")
    ]
    assert scores == [1.0, 0.0]


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


def test_the_f1_of_two_classes_with_one_that_never_occurs() -> None:
    assert paired_bootstrap("f1", [1, 1], [1, 1], [1, 1], samples=5) == (0, 0, 0)
