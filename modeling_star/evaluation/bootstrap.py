"""
Paired bootstrap: confidence intervals of the difference between two systems, over test examples and seeds.

    a, b, c = count_runs("accuracy", references, [predictions_a, predictions_b, predictions_c])
    bootstrap_counts("accuracy", [a, b], [c])  # two seeds of one system minus one of another
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from .metrics import METRICS


class Interval(NamedTuple):
    """A difference (a minus b) and the ends of its confidence interval."""

    difference: float
    low: float
    high: float


def bootstrap_counts(
    metric: str, runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], **options: Any
) -> Interval:
    """
    The difference between two systems' mean over runs (seeds), from counts `[examples, k]`, with a percentile
    interval.

    Whole examples (sentences) are drawn with replacement, the same ones for both systems. The runs of each system are
    drawn too: one fewer than there are, so that the mean varies as that of so many seeds does (Rao and Wu, 1988,
    "Resampling Inference With Complex Survey Data"). Two or three seeds give a rough estimate only.
    """
    return bootstrap_mean([(metric, runs_a, runs_b)], **options)


def bootstrap_mean(
    tasks: Sequence[tuple[str, Sequence[np.ndarray], Sequence[np.ndarray]]],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """`bootstrap_counts` of the mean over several tasks, whose examples and runs are drawn independently."""
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
