"""Finished runs beside each other, for run_scripts/compare.py: their scores, and how sure the differences are."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from .bootstrap import paired_bootstrap
from .data_files import DataError
from .reports import markdown_table
from .results_page import summary
from .scored_runs import SCORED_BY, System, has_several, kind_of, label_of
from .task import score_prefix


_BY_LABEL = ("macro_f1", "weighted_f1", "f1", "matthews_correlation")
_OF_SEVERAL = "micro_f1"
# The others that there are for such predictions, likewise; `None`: all_results.json tells no such score of labels of
# words, where f1 is that of entities. All are told in percent.
_ALSO: dict[str, dict[str, tuple[str, int] | None]] = {
    "index": {metric: (metric, 1) for metric in (*_BY_LABEL, _OF_SEVERAL)},
    "tokens": dict.fromkeys(_BY_LABEL),
    "n_best": {"answer_em": ("exact_match", 1)},
    "source": {"chrf": ("chrf", 100)},
}


def compare(systems: Sequence[System], metric: str | None = None, split: str = "test") -> str:
    """
    Markdown: each system's score, then how far the first is ahead of each other one, with 95 % intervals.

    Args:
        systems: of `read_system`, at least two.
        metric: see `paired_bootstrap`; `None`: what the runs were scored by.
        split: the split that was read.

    Raises:
        DataError: they are of other examples, or the metric is unknown, or none gives the scores that the runs tell.
        ValueError: the metric is none of such labels.
    """
    first, *others = systems
    for system in systems:
        for rows in system.rows:
            _check_same(first, system, rows)
    kind = kind_of(first.rows[0][0])
    known_metrics = [*SCORED_BY[kind], *_ALSO[kind]]
    if metric is not None and metric not in known_metrics:
        raise DataError(f"--metric {metric} is none of such predictions: {', '.join(known_metrics)} are.")
    if metric is None:
        before = {_OF_SEVERAL: (_OF_SEVERAL, 1)} if has_several(first.rows[0][0]) else {}
        metric = _metric_of(systems, {**before, **SCORED_BY[kind]}, split)
    else:
        _check_as_told(systems, metric, {**SCORED_BY[kind], **_ALSO[kind]}[metric], split)
    lines = []
    for system in systems:
        known = [run for run in system.results if "parameters" in run]
        size = f"{known[0]['parameters']:,}" if known else "--"
        seconds = [run["train_runtime"] for run in system.results if "train_runtime" in run]
        lines.append([str(system.folder), summary(system.scores(metric)), size, _minutes(seconds)])
    scores = markdown_table(["", f"{metric}, %", "parameters", "minutes of training"], lines)
    told = []
    for other in others:
        found = paired_bootstrap(metric, first.references, first.predictions, other.predictions, several_runs=True)
        difference, low, high = (100 * number for number in found)
        told.append([str(other.folder), f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"])
    seeds = " and over the seeds of each" if max(len(system.rows) for system in systems) > 1 else ""
    alone = any(len(system.rows) == 1 for system in systems)
    note = (
        f"Of the {split} split's {len(first.references):,} examples. In brackets how many seeds have run; the 95 % "
        f"interval of a difference is a paired bootstrap over the examples{seeds}."
        + (" Of one seed nothing tells what another would give." if alone else "")
    )
    return "\n\n".join([scores, markdown_table([f"{first.folder} minus", f"{metric}, %"], told), note])


def _check_same(first: System, system: System, rows: list[dict[str, Any]]) -> None:
    references = [label_of(row) for row in rows]
    if len(references) != len(first.references):
        raise DataError(
            f"{first.folder} was scored on {len(first.references):,} examples, {system.folder} on "
            f"{len(references):,}: give both the same --test_file."
        )
    for number, (own, other) in enumerate(zip(first.references, references, strict=True), 1):
        if own != other:
            raise DataError(
                f"Example {number} is labelled {own!r} in {first.folder} and {other!r} in {system.folder}: they were "
                "scored on other examples, or in another order. Give both the same --test_file."
            )


def _metric_of(systems: Sequence[System], candidates: dict[str, tuple[str, int]], split: str) -> str:
    """The metric that gives the scores which all_results.json tells."""
    prefix = score_prefix(split)
    for metric, (name, full) in candidates.items():
        told = [run.get(f"{prefix}_{name}") for system in systems for run in system.results]
        if all(value is not None for value in told):
            scores = [score for system in systems for score in system.scores(metric)]
            if all(math.isclose(own, value / full, abs_tol=1e-4) for own, value in zip(scores, told, strict=True)):
                return metric
    raise DataError(
        f"None of {', '.join(candidates)} gives the scores that all_results.json tells of the {split} split: name the "
        "metric, e.g. `--metric macro_f1`"
    )


def _check_as_told(systems: Sequence[System], metric: str, told_as: tuple[str, int] | None, split: str) -> None:
    """
    Raises:
        DataError: all_results.json tells another score under this name.
    """
    if told_as is None:
        return
    name, full = told_as
    for system in systems:
        for score, run in zip(system.scores(metric), system.results, strict=True):
            told = run.get(f"{score_prefix(split)}_{name}")
            if told is not None and not math.isclose(score, told / full, abs_tol=1e-4):
                raise DataError(
                    f"--metric {metric} is {100 * score:.1f} by the predictions in {system.folder}, and "
                    f"{100 * told / full:.1f} by its all_results.json: here several labels of a text count as one, "
                    "and f1 is that of the later of two labels by alphabet. Choose another, e.g. `--metric accuracy`"
                )


def _minutes(seconds: list[float]) -> str:
    return f"{fmean(seconds) / 60:.1f}" if seconds else "--"


__all__ = ["compare"]
