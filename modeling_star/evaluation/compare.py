"""Finished runs beside each other, for run_scripts/compare.py: their scores, and how sure the differences are."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ..errors import UserError
from .bootstrap import paired_bootstrap, score_examples
from .reports import markdown_table, score_prefix


# A key that the predictions of a task have -> the metrics by which they may have been scored: the name in
# all_results.json, and the full score there. Classifiers, whose texts have the names of their columns, come first.
SCORED_BY = {
    "index": {"accuracy": ("accuracy", 1), "pearson": ("pearson", 1)},
    "tokens": {"entity_f1": ("f1", 1), "accuracy": ("accuracy", 1)},
    "n_best": {"answer_f1": ("f1", 1)},
    "source": {"bleu": ("bleu", 100), "bleu_zh": ("bleu", 100)},
}
# The script that makes predictions with such a key.
MADE_BY = {"run_glue.py": "index", "run_ner.py": "tokens", "run_qa.py": "n_best", "run_translation.py": "source"}


@dataclass(frozen=True)
class System:
    """
    The runs of one output folder, one for each seed.

    Attributes:
        folder: of the call that made them.
        rows: what the predictions of each run say, a dict for each example.
        results: what all_results.json of each run says.
    """

    folder: Path
    rows: list[list[dict[str, Any]]]
    results: list[dict[str, Any]]

    @property
    def references(self) -> list[Any]:
        """What the examples are labelled with."""
        return [label_of(row) for row in self.rows[0]]

    @property
    def predictions(self) -> list[list[Any]]:
        """What each run predicts of them."""
        return [[_comparable(row["predicted"], row) for row in rows] for rows in self.rows]

    def scores(self, metric: str) -> list[float]:
        """Of each run."""
        return [score_examples(metric, self.references, predictions) for predictions in self.predictions]


def read_system(folder: Path, split: str = "test") -> System:
    """
    The runs in an output folder of run_glue.py, run_ner.py, run_qa.py or run_translation.py.

    Args:
        folder: with one run, or with those of `--seeds` in seed-1, seed-2, ...
        split: whose predictions are read.

    Raises:
        UserError: there are none, or they tell no labels.
    """
    name = f"predictions_{split}.jsonl"
    found = [path for path in sorted(folder.glob("seed-*")) if (path / name).is_file()] or [folder]
    rows, results = [], []
    for run in found:
        if not (run / name).is_file():
            raise UserError(
                f"{run} has no {name}: name the output folder of a run that scored its {split} split, or another "
                "--split"
            )
        with (run / name).open(encoding="utf-8") as lines:  # splitlines() would part texts at U+2028 too
            rows.append([json.loads(line) for line in lines])
        if not rows[-1] or not all("label" in row or "labels" in row for row in rows[-1]):
            raise UserError(f"{run / name} has no labels: what is compared is scored, on a {split} split with labels.")
        told = run / "all_results.json"
        results.append(json.loads(told.read_text(encoding="utf-8")) if told.is_file() else {})
    return System(folder, rows, results)


def kind_of(row: dict[str, Any]) -> str:
    """The key of a prediction that tells its task."""
    return next((key for key in SCORED_BY if key in row), "index")


def label_of(row: dict[str, Any]) -> Any:
    """What an example is labelled with, as `System.references` has it."""
    return _comparable(row["labels"] if "labels" in row else row["label"], row)


def _comparable(value: Any, row: dict[str, Any]) -> Any:
    """Several labels of a text as one, a list in JSON; anything else as it is."""
    return json.dumps(sorted(map(str, value)), ensure_ascii=False) if has_several(row) else value


def has_several(row: dict[str, Any]) -> bool:
    """Whether a text has several labels."""
    return kind_of(row) == "index" and isinstance(row.get("label"), list)


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
        UserError: they are of other examples, or the metric is unknown, or none gives the scores that the runs tell.
        ValueError: the metric is none of such labels.
    """
    first, *others = systems
    for system in systems:
        for rows in system.rows:
            _check_same(first, system, rows)
    kind = kind_of(first.rows[0][0])
    known_metrics = [*SCORED_BY[kind], *_ALSO[kind]]
    if metric is not None and metric not in known_metrics:
        raise UserError(f"--metric {metric} is none of such predictions: {', '.join(known_metrics)} are.")
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
        raise UserError(
            f"{first.folder} was scored on {len(first.references):,} examples, {system.folder} on "
            f"{len(references):,}: give both the same --test_file."
        )
    for number, (own, other) in enumerate(zip(first.references, references, strict=True), 1):
        if own != other:
            raise UserError(
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
    raise UserError(
        f"None of {', '.join(candidates)} gives the scores that all_results.json tells of the {split} split: name the "
        "metric, e.g. `--metric macro_f1`"
    )


def _check_as_told(systems: Sequence[System], metric: str, told_as: tuple[str, int] | None, split: str) -> None:
    """
    Raises:
        UserError: all_results.json tells another score under this name.
    """
    if told_as is None:
        return
    name, full = told_as
    for system in systems:
        for score, run in zip(system.scores(metric), system.results, strict=True):
            told = run.get(f"{score_prefix(split)}_{name}")
            if told is not None and not math.isclose(score, told / full, abs_tol=1e-4):
                raise UserError(
                    f"--metric {metric} is {100 * score:.1f} by the predictions in {system.folder}, and "
                    f"{100 * told / full:.1f} by its all_results.json: here several labels of a text count as one, "
                    "and f1 is that of the later of two labels by alphabet. Choose another, e.g. `--metric accuracy`"
                )


def _minutes(seconds: list[float]) -> str:
    return f"{fmean(seconds) / 60:.1f}" if seconds else "--"


def summary(scores: list[float]) -> str:
    """Mean, deviation and number of some seeds' scores."""
    if not scores:
        return "--"
    deviation = f" ± {100 * stdev(scores):.1f}" if len(scores) > 1 else ""
    return f"{100 * fmean(scores):.1f}{deviation} ({len(scores)})"


__all__ = [
    "MADE_BY",
    "SCORED_BY",
    "System",
    "compare",
    "has_several",
    "kind_of",
    "label_of",
    "read_system",
]
