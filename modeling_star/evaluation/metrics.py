"""Metrics of tagging, classification and regression, and `compute_metrics` for Trainer.

The classes have the interface of `evaluate.load` (`metric.compute(predictions=..., references=...)`), and need no
network: they are built on seqeval, scikit-learn and SciPy.
"""

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import datasets
import evaluate
import numpy as np
import scipy.stats
import seqeval.metrics as entity_metrics
from sklearn import metrics as scores
from transformers import EvalPrediction

from ..data.labels import IGNORE_INDEX
from ..models.tag_schemes import SEGMENT, entity_tag, typed_labels


class _OfflineMetric(evaluate.Metric):
    """An `evaluate.Metric` that holds its inputs in memory, so that parallel processes share no cache file."""

    description = ""
    feature: Any = datasets.Value("int64")

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"keep_in_memory": True, **kwargs})

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description=self.description,
            citation="",
            inputs_description="predictions and references, in the same order",
            features=datasets.Features(predictions=self.feature, references=self.feature),
        )


class EntityScores(_OfflineMetric):
    """Entities of tagged sentences, exact in type and both ends, as seqeval (and conlleval) counts them.

    `compute` takes lists of label strings (BIO, BIOES, BILOU or BMES) and returns `overall_precision`,
    `overall_recall`, `overall_f1`, `overall_accuracy` (of tokens), and for each entity type a dictionary of
    `precision`, `recall`, `f1` and `support` (entities in the references). Undefined scores are 0.
    """

    description = "Entity-level precision, recall and F1 (seqeval)"
    feature = datasets.Sequence(datasets.Value("string"))

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, Any]:
        predictions, references = seqeval_labels(predictions), seqeval_labels(references)
        report = entity_metrics.classification_report(references, predictions, output_dict=True, zero_division=0)
        rows = {
            name: {
                "precision": float(row["precision"]),
                "recall": float(row["recall"]),
                "f1": float(row["f1-score"]),
                "support": int(row["support"]),
            }
            for name, row in report.items()
        }
        overall = rows["micro avg"]
        return {name: row for name, row in rows.items() if not name.endswith(" avg")} | {
            **{f"overall_{name}": overall[name] for name in ("precision", "recall", "f1")},
            "overall_accuracy": float(entity_metrics.accuracy_score(references, predictions)),
        }


class TokenScores(_OfflineMetric):
    """Labels of tokens that name no entities, such as parts of speech: `accuracy` and `macro_f1` over all tokens."""

    description = "Token-level accuracy and macro F1"
    feature = datasets.Sequence(datasets.Value("string"))

    def _compute(self, predictions: list[list[str]], references: list[list[str]]) -> dict[str, float]:
        flat_references = [label for sentence in references for label in sentence]
        flat_predictions = [label for sentence in predictions for label in sentence]
        return {
            "accuracy": float(scores.accuracy_score(flat_references, flat_predictions)),
            "macro_f1": float(scores.f1_score(flat_references, flat_predictions, average="macro", zero_division=0)),
        }


class ClassificationScores(_OfflineMetric):
    """One label for each example: `accuracy`, `macro_f1`, `weighted_f1`, `matthews_correlation`.

    With `compute(..., binary=True)` also `f1`, that of label 1.
    """

    description = "Accuracy, F1 and Matthews correlation"

    def _compute(self, predictions: list[int], references: list[int], binary: bool = False) -> dict[str, float]:
        result = {
            "accuracy": float(scores.accuracy_score(references, predictions)),
            "macro_f1": float(scores.f1_score(references, predictions, average="macro", zero_division=0)),
            "weighted_f1": float(scores.f1_score(references, predictions, average="weighted", zero_division=0)),
            "matthews_correlation": float(scores.matthews_corrcoef(references, predictions)),
        }
        if binary:
            result["f1"] = float(scores.f1_score(references, predictions, pos_label=1, zero_division=0))
        return result


class MultiLabelScores(_OfflineMetric):
    """Several labels for each example, as rows of 0 and 1: `micro_f1`, `macro_f1`, `accuracy` (of whole rows)."""

    description = "Multi-label F1 and exact match"
    feature = datasets.Sequence(datasets.Value("int64"))

    def _compute(self, predictions: list[list[int]], references: list[list[int]]) -> dict[str, float]:
        table, truth = np.asarray(predictions), np.asarray(references)
        return {
            "micro_f1": float(scores.f1_score(truth, table, average="micro", zero_division=0)),
            "macro_f1": float(scores.f1_score(truth, table, average="macro", zero_division=0)),
            "accuracy": float(scores.accuracy_score(truth, table)),
        }


class RegressionScores(_OfflineMetric):
    """A number for each example: `pearson`, `spearmanr`, `mse`. The correlation of a constant counts as 0."""

    description = "Pearson and Spearman correlation, mean squared error"
    feature = datasets.Value("float64")

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        guess, truth = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
        return {
            "pearson": _correlation(scipy.stats.pearsonr, truth, guess),
            "spearmanr": _correlation(scipy.stats.spearmanr, truth, guess),
            "mse": float(np.mean((guess - truth) ** 2)),
        }


def is_entity_scheme(label_list: Sequence[str]) -> bool:
    """
    Whether the labels are entity tags (O, B-x, I-x and the like) or the letters of word segmentation, rather than
    parts of speech or other names.
    """
    others = [label for label in typed_labels(label_list) if label != "O"]
    return bool(others) and all(entity_tag(label) for label in others)


def seqeval_labels(sentences: Iterable[Sequence[str]]) -> list[list[str]]:
    """Entity tags in the letters that seqeval knows: BILOU and BMES as BIOES, letters alone with a type."""

    def rename(label: str) -> str:
        tag = entity_tag(label) or entity_tag(f"{label}-{SEGMENT}")
        return label if tag is None else "-".join(filter(None, tag))

    return [[rename(label) for label in sentence] for sentence in sentences]


def _correlation(function: Callable[..., Any], truth: np.ndarray, guess: np.ndarray) -> float:
    if len(truth) < 2 or np.ptp(truth) == 0 or np.ptp(guess) == 0:
        return 0.0
    return float(function(truth, guess).statistic)


# Metrics for Trainer


# Task -> its metrics, and the one to choose the best model by.
_TASKS: dict[str, tuple[type[_OfflineMetric], str]] = {
    "entities": (EntityScores, "f1"),
    "tokens": (TokenScores, "accuracy"),
    "single_label_classification": (ClassificationScores, "accuracy"),
    "multi_label_classification": (MultiLabelScores, "micro_f1"),
    "regression": (RegressionScores, "pearson"),
}
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
        names: the metrics to report, None for all; with several, `combined_score` is their mean (GLUE).
        example_index: for windowed tagging data, the example of each row (see `for_windows`).
    """

    task: str
    label_list: tuple[str, ...]
    metric_for_best_model: str
    names: tuple[str, ...] | None = None
    example_index: tuple[int, ...] | None = None

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Compute the metrics of `predictions` against `label_ids`, shaped as in `decode`."""
        references, predictions = self.decode(prediction)
        options = {"binary": len(self.label_list) == 2} if self.task == "single_label_classification" else {}
        result = _TASKS[self.task][0]().compute(references=references, predictions=predictions, **options)
        if self.task == "entities":
            result = _overall(result)
        if self.names is not None:
            result = {name: result[name] for name in self.names}
            if len(self.names) > 1:
                result["combined_score"] = float(np.mean(list(result.values())))
        return result

    def score_names(self) -> list[str]:
        """The keys of what `__call__` returns."""
        shape = (2, len(self.label_list)) if self.task == "multi_label_classification" else (2,)
        nothing = np.zeros((2, 1) if self.task in ("entities", "tokens") else shape, dtype=np.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(self(EvalPrediction(predictions=nothing, label_ids=nothing)))

    def for_windows(self, example_index: Sequence[int]) -> "TaskMetrics":
        """The same metrics for a data set whose rows are windows: rows of one example are scored as one sentence.

        Args:
            example_index: the column of that name of the data set that will be evaluated.
        """
        return replace(self, example_index=tuple(example_index))

    def decode(self, prediction: EvalPrediction) -> tuple[list[Any], list[Any]]:
        """References and predictions in the form of the metric's inputs.

        Tagging: logits `[rows, n, labels]` or label indices `[rows, n]` against labels `[rows, n]`, -100 ignored;
        gives lists of label names. Classification: logits `[rows, labels]` or indices `[rows]`; multi-label:
        logits and 0/1 labels `[rows, labels]`; regression: `[rows]` or `[rows, 1]`.

        Raises:
            ValueError: when there is nothing to score, or the rows do not fit `example_index`.
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
            return truth.astype(int).tolist(), are_predicted(guess).astype(int).tolist()
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
    """The metrics of a task, and the one to choose the best model by.

    Args:
        task: a GLUE task, for its official metrics ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb",
            "wnli"); "tagging", scored by entities where the labels are entity tags and by tokens where not, or
            "entities" or "tokens" outright; or transformers' problem types "single_label_classification",
            "multi_label_classification", "regression".
        label_list: the names of the labels, in the order of their indices.

    Raises:
        ValueError: for an unknown task, or tagging without labels.
    """
    names = best = None
    if task in GLUE_METRICS:
        task, names = GLUE_METRICS[task]
        best = names[0] if len(names) == 1 else "combined_score"
        label_list = label_list or (("0", "1") if "f1" in names else ())
    if task == "tagging":
        task = "entities" if is_entity_scheme(label_list) else "tokens"
    if task not in _TASKS:
        raise ValueError(f"task={task!r}; choose 'tagging', {', '.join(map(repr, [*_TASKS, *GLUE_METRICS]))}.")
    if task in ("entities", "tokens") and not label_list:
        raise ValueError("Tagging needs the names of the labels: metrics_for('tagging', ['O', 'B-PER', ...]).")
    return TaskMetrics(
        task=task,
        label_list=tuple(label_list),
        metric_for_best_model=best or _TASKS[task][1],
        names=names,
    )


def _overall(result: dict[str, Any]) -> dict[str, float]:
    """The scores of all entities together, with the names in transformers' example of token classification."""
    return {name.removeprefix("overall_"): value for name, value in result.items() if not isinstance(value, dict)}
