"""The paired bootstrap of predictions: by counts, and by calling a metric on every resample."""

from collections.abc import Callable
from typing import Any

import numpy as np

from modeling_star.evaluation.bootstrap import Interval, _draws, _interval, bootstrap_counts
from modeling_star.evaluation.metrics import count_runs


def naive_bootstrap(metric: Callable[[Any, Any], float], references: Any, *systems: Any, **options: Any) -> Interval:
    """`bootstrap_counts` by calling a metric on every resample; `systems` are two lists of runs."""
    samples, seed = options["samples"], options.get("seed", 0)
    differences = []
    for draw in _draws(len(references), *map(len, systems), samples, seed):
        truth = [references[i] for i in draw.examples]
        means = [
            np.mean([metric(truth, [runs[number][i] for i in draw.examples]) for number in numbers])
            for runs, numbers in zip(systems, (draw.runs_a, draw.runs_b), strict=True)
        ]
        differences.append(means[0] - means[1])
    return _interval(np.array(differences), 0.95)


def paired_bootstrap(
    metric: str, references: Any, *systems: Any, several_runs: bool = False, **options: Any
) -> Interval:
    """The interval of two systems' predictions; with `several_runs`, of two lists of runs."""
    runs_a, runs_b = systems if several_runs else ([run] for run in systems)
    counts = count_runs(metric, references, [*runs_a, *runs_b])
    return bootstrap_counts(metric, counts[: len(runs_a)], counts[len(runs_a) :], **options)
