"""Compare finished runs: their scores over seeds, and intervals of the differences."""

import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from ..errors import UserError
from ..files import find_report
from .bootstrap import bootstrap_counts
from .metrics import LESS_IS_BETTER, METRICS, TASKS, count_runs, score_counts
from .reports import markdown_table, score_prefix


# The kind of a prediction, a key that marks it -> the tasks, keys of `TASKS`, whose runs make such predictions.
# Classifiers, whose texts have the names of their columns, come first. An experiment may add its own kind to this
# table and to the next one.
KINDS: dict[str, tuple[str, ...]] = {
    "index": ("multi_label_classification", "single_label_classification", "regression"),
    "tokens": ("entities", "tokens"),
    "n_best": ("reading",),
}


def reported_names(kind: str) -> dict[str, str]:
    """The metrics of predictions of a kind, keys of `METRICS`, and their names in all_results.json."""
    scores = (score for task in KINDS[kind] for score in TASKS[task][1].items())
    return {metric: name for name, metric in scores if name not in LESS_IS_BETTER}  # no percentages


@dataclass(frozen=True)
class System:
    """
    The runs in one output folder, one for each seed: the label of each example, of several labels a frozenset, what
    each run predicts, its all_results.json, and the kind of the predictions, a key of `KINDS`.
    """

    folder: Path
    kind: str
    references: list[Any]
    predictions: list[list[Any]]
    results: list[dict[str, Any]]


def read_system(folder: Path, split: str = "test") -> System:
    """The runs in an output folder of `classify`, `tag` or `qa`: one, or those of `--seeds` in seed-1, seed-2, ..."""
    name = f"predictions_{split}.jsonl"
    runs = [run for run in sorted(folder.glob("seed-*")) if find_report(run, name).is_file()] or [folder]
    if not find_report(runs[0], name).is_file():
        raise UserError(f"{folder} has no {name}: name the output folder of a finished run, or another --split.")
    rows = [_read_rows(find_report(run, name)) for run in runs]
    kind = next((key for key in KINDS if key in rows[0][0]), "index")
    has_sets = kind == "index" and isinstance(rows[0][0].get("label"), list)

    def comparable(label: Any) -> Any:
        return frozenset(map(str, label)) if has_sets else label

    references = [[comparable(row.get("labels", row.get("label"))) for row in run] for run in rows]
    for run, labels in zip(runs, references, strict=True):
        _check_same_examples(runs[0], references[0], run, labels)
    predictions = [[comparable(row["predicted"]) for row in run] for run in rows]
    paths = [find_report(run, "all_results.json") for run in runs]
    results = [json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {} for path in paths]
    return System(folder, kind, references[0], predictions, results)


def _read_rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:  # splitlines() would also split texts at U+2028
        rows = [json.loads(line) for line in lines]
    if not rows or not all("label" in row or "labels" in row for row in rows):
        raise UserError(f"{path} has no labels: name a --split with labels.")
    return rows


def _check_same_examples(folder: Path, references: list[Any], other: Path, labels: list[Any]) -> None:
    """Raise a UserError where the labels of two runs differ."""
    if labels != references:
        pairs = zip(references, labels, strict=False)
        first = next((number for number, (one, two) in enumerate(pairs, 1) if one != two), None)
        where = f"{len(references):,} and {len(labels):,}" if first is None else f"number {first} differs"
        raise UserError(
            f"{folder} and {other} were scored on different examples ({where}): give both the same --test_file."
        )


def compare(systems: Sequence[System], metric: str | None = None, split: str = "test") -> str:
    """
    Markdown: each system's score, then how far the first is ahead of each other one, with 95 % intervals. `metric` is
    a key of `METRICS`; `None`: the one that the runs were scored by.
    """
    first, *others = systems
    for other in others:
        _check_same_examples(first.folder, first.references, other.folder, other.references)
    metric, counts = _choose_metric(systems, metric, score_prefix(split))
    scores = []
    for system, runs in zip(systems, counts, strict=True):
        values = [score_counts(metric, run) for run in runs]
        size = next((f"{run['parameters']:,}" for run in system.results if "parameters" in run), "--")
        seconds = [run["train_runtime"] for run in system.results if "train_runtime" in run]
        minutes = f"{fmean(seconds) / 60:.1f}" if seconds else "--"
        scores.append([str(system.folder), summary(values), size, minutes])
    differences = []
    for system, runs in zip(others, counts[1:], strict=True):
        difference, low, high = (100 * number for number in bootstrap_counts(metric, counts[0], runs))
        differences.append([str(system.folder), f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"])
    seeds = [len(runs) for runs in counts]
    note = (
        f"On the {len(first.references):,} examples of the {split} split. In brackets: the number of seeds, and the "
        f"95 % interval of a difference by a paired bootstrap over the examples{' and the seeds' * (max(seeds) > 1)}."
    )
    if min(seeds) == 1:
        note += " One seed does not show how much seeds differ."
    tables = [
        markdown_table(["", f"{metric}, %", "parameters", "minutes of training"], scores),
        markdown_table([f"{first.folder} minus", f"{metric}, %"], differences),
    ]
    return "\n\n".join([*tables, note])


def _choose_metric(systems: Sequence[System], metric: str | None, prefix: str) -> tuple[str, list[list[np.ndarray]]]:
    """The metric that is named, or that gave the scores in all_results.json; and the counts of each system's runs."""
    first = systems[0]
    known = reported_names(first.kind)
    if metric is not None and metric not in known:
        raise UserError(f"--metric {metric} does not fit these predictions: choose one of {', '.join(known)}.")
    best = [TASKS[task][1][TASKS[task][0]] for task in KINDS[first.kind]]
    candidates = best if metric is None else [metric]
    results = [run for system in systems for run in system.results]
    for candidate in candidates:
        values = [run.get(f"{prefix}_{known[candidate]}") for run in results]
        if metric is None and None in values:
            continue
        predictions = [run for system in systems for run in system.predictions]
        counts = count_runs(candidate, first.references, predictions)
        scores = [score_counts(candidate, run) * METRICS[candidate].full for run in counts]
        pairs = [(score, value) for score, value in zip(scores, values, strict=True) if value is not None]
        if all(math.isclose(score, value, abs_tol=1e-4 * METRICS[candidate].full) for score, value in pairs):
            runs = iter(counts)
            return candidate, [list(itertools.islice(runs, len(system.predictions))) for system in systems]
    # Here "f1" is that of the later of two labels by alphabet.
    raise UserError(
        f"The scores in all_results.json are not the {' or '.join(candidates)} of the predictions: choose another "
        "metric, e.g. `--metric macro_f1`."
    )


def summary(scores: list[float]) -> str:
    """Mean, deviation and number of some seeds' scores, in percent: `83.3 ± 0.4 (3)`."""
    if not scores:
        return "--"
    deviation = f" ± {100 * stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * fmean(scores):.1f}{deviation} ({len(scores)})"
