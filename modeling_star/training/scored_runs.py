"""What finished runs of the scripts predicted and were scored by, read from their output folders."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .bootstrap import score_examples
from .data_files import DataError


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
        DataError: there are none, or they tell no labels.
    """
    name = f"predictions_{split}.jsonl"
    found = [path for path in sorted(folder.glob("seed-*")) if (path / name).is_file()] or [folder]
    rows, results = [], []
    for run in found:
        if not (run / name).is_file():
            raise DataError(
                f"{run} has no {name}: name the output folder of a run that scored its {split} split, or another "
                "--split"
            )
        with (run / name).open(encoding="utf-8") as lines:  # splitlines() would part texts at U+2028 too
            rows.append([json.loads(line) for line in lines])
        if not rows[-1] or not all("label" in row or "labels" in row for row in rows[-1]):
            raise DataError(f"{run / name} has no labels: what is compared is scored, on a {split} split with labels.")
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


__all__ = ["MADE_BY", "SCORED_BY", "System", "has_several", "kind_of", "label_of", "read_system"]
