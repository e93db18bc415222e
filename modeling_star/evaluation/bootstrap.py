"""
Paired bootstrap: confidence intervals of the difference between two systems, over test examples and seeds.

    a, b, c = count_runs("accuracy", references, [predictions_a, predictions_b, predictions_c])
    bootstrap_counts("accuracy", [a, b], [c])  # two seeds of one system minus one of another
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from .metrics import seqeval_labels
from .squad import Language, answer_language, score_answers


class Interval(NamedTuple):
    """A difference (a minus b) and the ends of its confidence interval."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class Metric:
    """A metric that is a function of sums over examples: resampling then only adds rows of numbers.

    `count(references, predictions)` gives `[examples, k]`; `score` of sums `[..., k]` gives metrics `[...]`.
    """

    count: Callable[..., np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]


def count_runs(
    metric: str, references: Sequence[Any], runs: Sequence[Sequence[Any]], language: Language | None = None
) -> list[np.ndarray]:
    """
    What each example adds to a metric, so that runs can be scored and compared without their predictions.

    Args:
        metric: "accuracy", "macro_f1", "weighted_f1", "f1" (the second of two labels in their order, 1 of 0 and 1) or
            "matthews_correlation" (of labels, or of lists of labels: tagged sentences, whose words with the reference
            `None` do not count), "entity_f1" (lists of entity tags), "micro_f1" (lists of the labels of a text,
            or these in JSON), "answer_f1" or "answer_em" (a text against the list of a question's answers),
            "pearson" (numbers), or another key of `METRICS`.
        references: one item for each example.
        runs: the predictions of each run, one item for each example.
        language: of answers; `None`: guessed from the references.

    Returns:
        The counts of each run `[examples, k]`; "answer_f1" and "answer_em" share theirs.

    Raises:
        ValueError: for unequal lengths, or an unknown metric.
    """
    if metric not in METRICS:
        raise ValueError(f"metric={metric!r}; choose one of {', '.join(METRICS)}.")
    count = METRICS[metric].count
    options: dict[str, Any] = {}
    if count is _count_answers:
        options["language"] = language or answer_language(answer for answers in references for answer in answers)
    if count is _count_confusions:
        options["labels"] = _all_labels(metric, references, runs)
    return [count(*_labelled(references, run), **options) for run in runs]


def count_examples(
    metric: str, references: Sequence[Any], predictions: Sequence[Any], language: Language | None = None
) -> np.ndarray:
    """`count_runs` of one run."""
    return count_runs(metric, references, [predictions], language)[0]


def score_counts(metric: str, counts: np.ndarray) -> float:
    """The metric of one run, from its counts `[examples, k]`."""
    return float(METRICS[metric].score(counts.sum(axis=0)))


def bootstrap_counts(
    metric: str, runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], **options: Any
) -> Interval:
    """
    The difference between two systems' mean over runs (seeds), with a percentile bootstrap interval.

    Whole examples (sentences) are drawn with replacement, the same ones for both systems. The runs of each system are
    drawn too: one fewer than there are, so that the mean varies as that of so many seeds does (Rao and Wu, 1988,
    "Resampling Inference With Complex Survey Data"). Two or three seeds give a rough estimate only.

    Args:
        metric: see `count_runs`.
        runs_a, runs_b: the counts `[examples, k]` of each run.
        options: see `bootstrap_mean`.
    """
    return bootstrap_mean([(metric, runs_a, runs_b)], **options)


def bootstrap_mean(
    tasks: Sequence[tuple[str, Sequence[np.ndarray], Sequence[np.ndarray]]],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """
    The difference of two systems' mean over several tasks; the examples and runs of each task are drawn independently.

    Args:
        tasks: the arguments of `bootstrap_counts` for each task.
        samples: the number of resamples.
        confidence: the share of resamples inside the interval.
    """
    differences = [_resample(*task, samples, seed + number) for number, task in enumerate(tasks)]
    return _interval(np.mean(differences, axis=0), confidence)


class _Draw(NamedTuple):
    """Indices of examples, and of the runs of each system."""

    examples: np.ndarray
    runs_a: np.ndarray
    runs_b: np.ndarray


def _draws(examples: int, runs_a: int, runs_b: int, samples: int, seed: int) -> Iterator[_Draw]:
    """All examples and runs once, then `samples` draws with replacement."""
    rng, rng_of_runs = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    yield _Draw(np.arange(examples), np.arange(runs_a), np.arange(runs_b))
    for _ in range(samples):
        runs = [rng_of_runs.integers(count, size=max(1, count - 1)) for count in (runs_a, runs_b)]
        yield _Draw(rng.integers(examples, size=examples), *runs)


def _interval(differences: np.ndarray, confidence: float) -> Interval:
    """From the difference on all examples and those on the resamples, `[1 + samples]`."""
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences[1:], [tail, 1 - tail])
    return Interval(float(differences[0]), float(low), float(high))


def _resample(
    metric: str, runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], samples: int, seed: int
) -> np.ndarray:
    """The difference on each draw, `[1 + samples]`, from each run's counts `[examples, k]`."""
    counts = np.stack([*runs_a, *runs_b], axis=1).astype(np.float64)
    examples, runs, width = counts.shape
    draws = list(_draws(examples, len(runs_a), len(runs_b), samples, seed))
    # One product resamples the counts of all runs.
    flat = counts.reshape(examples, -1)
    times = (np.bincount(draw.examples, minlength=examples).astype(np.float64) for draw in draws)
    values = METRICS[metric].score(np.stack([weights @ flat for weights in times]).reshape(-1, runs, width))
    scores_a, scores_b = values[:, : len(runs_a)], values[:, len(runs_a) :]
    pairs = zip(scores_a, scores_b, draws, strict=True)
    return np.array([a[draw.runs_a].mean() - b[draw.runs_b].mean() for a, b, draw in pairs])


# Counts


def _all_labels(metric: str, references: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """The labels that occur, in their order; for "f1" always two."""
    labels = {label for items in (references, *runs) for item in items for label in _listed(item)} - {None}
    if metric != "f1":
        return sorted(labels)
    labels |= {0, 1} if labels <= {0, 1} else set()
    if len(labels) != 2:
        raise ValueError(f'metric="f1" is that of the second of two labels, and these are {sorted(labels)}.')
    return sorted(labels)


def _listed(item: Any) -> list[Any]:
    """The labels of a tagged sentence, or one label as a list of one."""
    return list(item) if isinstance(item, (list, tuple, np.ndarray)) else [item]


def _pairs(references: Sequence[Any], predictions: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
    for truth, guess in zip(references, predictions, strict=True):
        yield list(zip(_listed(truth), _listed(guess), strict=True))


def _labelled(references: Sequence[Any], predictions: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """References and predictions without the words of tagged sentences whose reference is `None`."""
    if not any(None in _listed(reference) for reference in references):
        return references, predictions
    labelled = [[pair for pair in item if pair[0] is not None] for item in _pairs(references, predictions)]
    return [[truth for truth, _ in item] for item in labelled], [[guess for _, guess in item] for item in labelled]


def _count_correct(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """Correct labels and all labels, `[examples, 2]`."""
    pairs = _pairs(references, predictions)
    return np.array([(sum(truth == guess for truth, guess in item), len(item)) for item in pairs])


def _count_shared(references: Sequence[set[Any]], predictions: Sequence[set[Any]]) -> np.ndarray:
    """Items that both sets have, twice, and those of the one plus those of the other, `[examples, 2]`."""
    pairs = zip(references, predictions, strict=True)
    return np.array([(2 * len(truth & guess), len(truth) + len(guess)) for truth, guess in pairs])


def _count_sets(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """`_count_shared` of lists of labels, or of such lists in JSON."""
    truths, guesses = (
        [set(json.loads(item) if isinstance(item, str) else item) for item in items]
        for items in (references, predictions)
    )
    return _count_shared(truths, guesses)


def _count_entities(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """`_count_shared` of the entities of tagged sentences."""
    truths, guesses = ([set(get_entities(row)) for row in seqeval_labels(rows)] for rows in (references, predictions))
    return _count_shared(truths, guesses)


def _count_answers(references: Sequence[Any], predictions: Sequence[Any], language: Language) -> np.ndarray:
    """F1, exact match and 1 of each question, `[examples, 3]`."""
    exact, f1 = score_answers(predictions, references, language)
    return np.stack([f1, exact, np.ones_like(f1)], axis=1)


def _count_confusions(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """How often each label is predicted as each other, `[examples, labels * labels]`, reference first."""
    index = {label: number for number, label in enumerate(labels)}
    table = np.zeros((len(references), len(labels) ** 2))
    for row, item in zip(table, _pairs(references, predictions), strict=True):
        for truth, guess in item:
            row[index[truth] * len(labels) + index[guess]] += 1
    return table


def _count_moments(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """1, x, y, xx, yy, xy of each example, `[examples, 6]`."""
    x, y = np.asarray(references, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


# Scores


def _ratio(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0], sums[..., 1])


def _margins(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """How often each label is predicted rightly, expected and predicted, `[..., labels]` each."""
    size = math.isqrt(sums.shape[-1])
    tables = sums.reshape(*sums.shape[:-1], size, size)
    return np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(axis=-1), tables.sum(axis=-2)


def _label_f1(sums: np.ndarray) -> np.ndarray:
    """F1 of each label, `[..., labels]`."""
    right, truth, guess = _margins(sums)
    return _divide(2 * right, truth + guess)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    """The mean over the labels that occur in references or predictions, as scikit-learn's."""
    _, truth, guess = _margins(sums)
    return _divide(_label_f1(sums).sum(axis=-1), (truth + guess > 0).sum(axis=-1))


def _weighted_f1(sums: np.ndarray) -> np.ndarray:
    _, truth, _ = _margins(sums)
    return _divide((_label_f1(sums) * truth).sum(axis=-1), truth.sum(axis=-1))


def _matthews(sums: np.ndarray) -> np.ndarray:
    right, truth, guess = _margins(sums)
    total = truth.sum(axis=-1)
    spread = (total**2 - (truth**2).sum(axis=-1)) * (total**2 - (guess**2).sum(axis=-1))
    return _divide(right.sum(axis=-1) * total - (truth * guess).sum(axis=-1), np.sqrt(spread))


def _pearson(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum((n * xx - x * x) * (n * yy - y * y), 0)  # rounding may leave it below 0
    return _divide(n * xy - x * y, np.sqrt(spread))


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotients, 0 where undefined."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=np.asarray(denominator) != 0)


METRICS = {
    "accuracy": Metric(_count_correct, _ratio),
    "entity_f1": Metric(_count_entities, _ratio),
    "micro_f1": Metric(_count_sets, _ratio),
    "answer_f1": Metric(_count_answers, lambda sums: _divide(sums[..., 0], sums[..., 2])),
    "answer_em": Metric(_count_answers, lambda sums: _divide(sums[..., 1], sums[..., 2])),
    "macro_f1": Metric(_count_confusions, _macro_f1),
    "weighted_f1": Metric(_count_confusions, _weighted_f1),
    "f1": Metric(_count_confusions, lambda sums: _label_f1(sums)[..., 1]),
    "matthews_correlation": Metric(_count_confusions, _matthews),
    "pearson": Metric(_count_moments, _pearson),
}
"""The metrics by name; an experiment may add its own."""
