"""The paired bootstrap by calling a metric on every resample, to compare the fast one with."""

from collections.abc import Callable
from typing import Any

import numpy as np

from modeling_star.evaluation.bootstrap import Interval, _draws, _interval


def naive_bootstrap(metric: Callable[[Any, Any], float], references: Any, *systems: Any, **options: Any) -> Interval:
    """`paired_bootstrap` by calling a metric on every resample; `systems` are two lists of runs."""
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
