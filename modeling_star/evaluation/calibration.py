"""Whether predictions are right as often as their probabilities say; a picture."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .reports import BLUE, ORANGE, new_figure, save_figure


_BINS = 10
_SIMULATIONS = 200


def calibration_error(probabilities: np.ndarray, is_right: np.ndarray) -> float:
    """
    The expected calibration error (Guo et al. 2017, Eq 3): in ten bins of equal width, the difference between the mean
    probability and the share that is right, weighted by their sizes.
    """
    bins = _bins(probabilities)
    differences = np.bincount(bins, weights=probabilities - is_right, minlength=_BINS)
    return float(np.abs(differences).sum() / max(len(probabilities), 1))


def error_by_chance(probabilities: np.ndarray) -> float:
    """
    The mean `calibration_error` of predictions that are right exactly as often as their probabilities `[s]` say: what
    the fewness of the predictions alone leaves of it.
    """
    generator = np.random.default_rng(0)
    rights = generator.random((_SIMULATIONS, len(probabilities))) < probabilities
    return float(np.mean([calibration_error(probabilities, is_right) for is_right in rights]))


def plot_reliability(
    series: Sequence[tuple[str, np.ndarray, np.ndarray]], path: str | os.PathLike[str], *, title: str
) -> Path:
    """Draw the share of right predictions over their probability, with 95 % of its spread, and how many there are."""
    figure, (axis, counts) = new_figure(width=8, height=3.6, columns=2)
    axis.plot([0, 1], [0, 1], color="grey", linewidth=1, linestyle=":")
    for (name, probabilities, is_right), color in zip(series, (ORANGE, BLUE), strict=False):
        bins = _bins(probabilities)
        sizes = np.bincount(bins, minlength=_BINS)
        filled = np.flatnonzero(sizes)
        means, shares = (
            np.bincount(bins, weights=values, minlength=_BINS)[filled] / sizes[filled]
            for values in (probabilities, is_right)
        )
        spread = 1.96 * np.sqrt(shares * (1 - shares) / sizes[filled])
        label = f"{name}: error {calibration_error(probabilities, is_right):.3f}"
        axis.errorbar(means, shares, yerr=spread, color=color, marker="o", markersize=4, capsize=2, label=label)
        edges = np.linspace(0, 1, _BINS + 1)
        counts.stairs(sizes, edges, color=color, label=name, linewidth=1.6)
    axis.set(xlim=(0, 1), ylim=(-0.02, 1.02), xlabel="probability", ylabel="share that is right")
    counts.set(xlim=(0, 1), xlabel="probability", ylabel="predictions")
    for each in (axis, counts):
        each.grid(alpha=0.25)
        each.legend(frameon=False, fontsize=8, loc="upper left")
    return save_figure(figure, path, title)


def _bins(probabilities: np.ndarray) -> np.ndarray:
    return np.minimum((probabilities * _BINS).astype(np.int64), _BINS - 1)
