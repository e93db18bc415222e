"""The metrics of a task as Trainer's `compute_metrics`: its predictions to what `metrics.py` counts."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from transformers import EvalPrediction

from ..models.tag_schemes import IGNORE_INDEX
from .metrics import METRICS, TASKS, count_examples, is_entity_scheme, score_counts


_LABEL = "single_label_classification"
GLUE_METRICS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cola": (_LABEL, ("matthews_correlation",)),
    **dict.fromkeys(("mnli", "qnli", "rte", "sst2", "wnli"), (_LABEL, ("accuracy",))),
    **dict.fromkeys(("mrpc", "qqp"), (_LABEL, ("accuracy", "f1"))),
    "stsb": ("regression", ("pearson", "spearmanr")),
}


@dataclass(frozen=True)
class TaskMetrics:
    """The metrics of a task, to be given to `Trainer` as `compute_metrics`. Made by `metrics_for`.

    Attributes:
        task: "entities", "tokens", "single_label_classification", "multi_label_classification" or "regression".
        label_list: the names of the labels.
        metric_for_best_model: the name of the metric to choose the best model by, without `eval_`.
        names: the metrics to report; with `combined_score`, the mean of the others (GLUE).
        example_index: for windowed tagging data, the example of each row (see `for_windows`).
    """

    task: str
    label_list: tuple[str, ...]
    metric_for_best_model: str
    names: tuple[str, ...]
    example_index: tuple[int, ...] | None = None

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute the metrics of `predictions` against `label_ids`, shaped as in `decode`."""
        references, predictions = self.decode(prediction)
        result: dict[str, float] = {}
        counts: dict[Any, np.ndarray] = {}
        for name in self.names:
            if metric := TASKS[self.task][1].get(name):
                given = {"labels": range(len(self.label_list))} if metric == "labels_f1" else {}
                same = METRICS[metric].count, METRICS[metric].shared, *given
                if same not in counts:
                    counts[same] = count_examples(metric, references, predictions, **given)
                result[name] = score_counts(metric, counts[same])
        return result | {name: float(np.mean([*result.values()])) for name in self.names if name not in result}

    def score_names(self) -> list[str]:
        """The keys of what `__call__` returns."""
        return list(self.names)

    def for_windows(self, example_index: Sequence[int]) -> "TaskMetrics":
        """The same metrics for a data set whose rows are windows: rows of one example are scored as one sentence."""
        return replace(self, example_index=tuple(example_index))

    def decode(self, prediction: EvalPrediction) -> tuple[list[Any], list[Any]]:
        """
        References and predictions as `count_runs` takes them, of logits or label indices and labels `[rows, n]`
        (tagging; -100 is ignored), `[rows]`, or `[rows, labels]`. A ValueError where there is nothing to score.
        """
        truth = np.asarray(prediction.label_ids)
        guess = self._guess(prediction.predictions, truth)
        if not truth.size or (self.task in ("entities", "tokens") and not (truth != IGNORE_INDEX).any()):
            raise ValueError("There is nothing to score: the evaluated data has no labels.")
        if self.task in ("entities", "tokens"):
            return self._sentences(truth, guess)
        if self.task == "regression":
            return truth.reshape(-1).tolist(), guess.reshape(-1).tolist()
        if self.task == "multi_label_classification":
            rows = ([frozenset(np.flatnonzero(row).tolist()) for row in x] for x in (truth > 0, are_predicted(guess)))
            return next(rows), next(rows)
        return truth.tolist(), (guess.argmax(axis=-1) if guess.ndim > truth.ndim else guess).tolist()

    @staticmethod
    def _guess(raw: Any, truth: np.ndarray) -> np.ndarray:
        """Logits, or a CRF's best paths where the model's outputs, a tuple with the logits first, have them."""
        if not isinstance(raw, tuple):
            return np.asarray(raw)
        arrays = [np.asarray(array) for array in raw if not isinstance(array, tuple)]
        paths = [a for a in arrays[1:] if a.shape == truth.shape and np.issubdtype(a.dtype, np.integer)]
        return paths[0] if paths else arrays[0]

    def _sentences(self, truth: np.ndarray, guess: np.ndarray) -> tuple[list[list[str]], list[list[str]]]:
        if guess.ndim > truth.ndim:
            guess = guess.argmax(axis=-1)
        rows = range(len(truth)) if self.example_index is None else self.example_index
        if len(rows) != len(truth):
            raise ValueError(
                f"{len(truth)} rows were evaluated, but example_index has {len(rows)}. For another data set write "
                'trainer.compute_metrics = metrics.for_windows(dataset["example_index"]).'
            )
        references: dict[int, list[str]] = {}
        predictions: dict[int, list[str]] = {}
        for row, labels, guesses in zip(rows, truth, guess, strict=True):
            scored = labels != IGNORE_INDEX
            references.setdefault(row, []).extend(self.label_list[label] for label in labels[scored])
            predictions.setdefault(row, []).extend(self.label_list[label] for label in guesses[scored])
        return list(references.values()), list(predictions.values())


def are_predicted(logits: np.ndarray) -> np.ndarray:
    """Whether the probability of each label of several is above one half, bool, in the shape of the logits."""
    return logits > 0


def metrics_for(task: str, label_list: Sequence[str] = ()) -> TaskMetrics:
    """
    The metrics of a task, and the one to choose the best model by: of a GLUE task its official ones ("cola", "stsb",
    ...), of "tagging" those of "entities" where the labels are entity tags, else of "tokens"; or of a key of `TASKS`.
    """
    official = None
    if task in GLUE_METRICS:
        task, official = GLUE_METRICS[task]
        label_list = label_list or (("0", "1") if "f1" in official else ())
    if task == "tagging":
        task = "entities" if is_entity_scheme(label_list) else "tokens"
    if task not in TASKS:
        raise ValueError(f"task={task!r}; choose 'tagging', {', '.join(map(repr, [*TASKS, *GLUE_METRICS]))}.")
    if task in ("entities", "tokens") and not label_list:
        raise ValueError("Tagging needs the names of the labels: metrics_for('tagging', ['O', 'B-PER', ...]).")
    best, scores = TASKS[task]
    names = official or tuple(name for name in scores if name != "f1" or task != _LABEL or len(label_list) == 2)
    if official:
        best = names[0]
        if len(names) > 1:
            names, best = (*names, "combined_score"), "combined_score"
    return TaskMetrics(task, tuple(label_list), best, names)
