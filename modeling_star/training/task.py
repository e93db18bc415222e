"""The base class of all tasks: what a run asks about data, metrics, model inputs and reports of one command."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import (
    DataCollator,
    EvalPrediction,
    PreTrainedTokenizerBase,
    TrainingArguments,
)

from ..data.splits import take_first
from ..evaluation.reports import BASELINES, baseline_lines, best_baseline
from .arguments import DataArguments, ModelArguments, RunArguments
from .losses import MetricsWithLoss, TaskLoss


logger = logging.getLogger(__name__)

DataArgs = TypeVar("DataArgs", bound=DataArguments)


class Task(ABC, Generic[DataArgs]):
    """
    One kind of task, on its data. `runs/run.py` calls the methods in the order in which they are here, and reads the
    fields.

    Args:
        model_args, data_args, run_args: the command's arguments.

    Attributes of the class:
        head: the auto class of the model, such as "AutoModelForTokenClassification".
        pipeline: transformers' name of the task.
        loss_class: of the training loss.
        trainer_class: its own trainer, a subclass of `StarTrainer`; `None`: `StarTrainer`.
        collate: makes the data collator for a tokenizer.
        reads_tables: whether `prepare` gets the rows of the files; a task of running text reads them itself.
        reads_spans: whether files with labelled spans of characters are read as words and tags.
        cuts_inputs: whether --max_seq_length also limits, or splits into windows, what is scored.
        advice: what is pretrained to begin with, where a baseline is better.
        held_out_together: the column whose equal values stay together when a validation split is held out.

    Attributes that `prepare` and `describe` set:
        data: what `prepare` returns, with a validation split.
        stratified_by: the column with one class per row, by which a validation split is held out.
        metrics: have the fields `task`, `metric_for_best_model` and the method `score_names`.
        labels: the label fields of the model's configuration.
        input_columns: those that the model reads.
        config_defaults: fields of a new model's configuration that suit the task.
        needs_types: whether token types distinguish two texts, for models that embed or split by them.
        found: facts about the data that the reader of a saved model needs, kept with the arguments.
        saved_options: default arguments of this package's own inference call, saved in the model's configuration.
        usage_options: those of them that the call on the model card shows.
        sample_counts: facts about the training data for all_results.json.
        why_untrained: why no gradient trains the model, which `complete` fits; `None`: one does.
        closing: a last line of the run.

    Attributes that building sets:
        new_parameters: those of the last model built that were not saved; `None`: it is new.
    """

    head: str
    pipeline: str
    loss_class: type[TaskLoss] = TaskLoss
    trainer_class: type[Any] | None = None
    collate: Callable[[PreTrainedTokenizerBase], DataCollator]
    reads_tables: bool = True
    reads_spans: bool = False
    cuts_inputs: bool = False
    advice: str = ""
    held_out_together: str | None = None
    why_untrained: str | None = None
    closing: str | None = None
    _baselines: dict[str, float] | None = None
    data: Any
    metrics: Any
    labels: dict[str, Any]
    input_columns: tuple[str, ...]

    def __init__(self, model_args: ModelArguments, data_args: DataArgs, run_args: RunArguments):
        self.model_args = model_args
        self.data_args = data_args
        self.run_args = run_args
        self.stratified_by: str | None = None
        self.config_defaults: dict[str, Any] = {}
        self.needs_types: bool = False
        self.found: Mapping[str, Any] = {}
        self.saved_options: Mapping[str, Any] = {}
        self.usage_options: Mapping[str, Any] = {}
        self.sample_counts: Mapping[str, int] = {}
        self.new_parameters: set[str] | None = None

    @classmethod
    def check_arguments(cls, data_args: DataArgs, training: TrainingArguments) -> None:
        """Check the task's own arguments before any data are read."""
        return

    @abstractmethod
    def prepare(self, splits: DatasetDict) -> Any:
        """The checked data, with labels as numbers, from rows as they are in the files."""

    @abstractmethod
    def describe(self) -> None:
        """Set the metrics, `labels`, `input_columns` and other fields, from data with a validation split."""

    @abstractmethod
    def training_texts(self) -> Any:
        """Texts or lists of words of the training split, to train a tokenizer on."""

    @abstractmethod
    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Any:
        """The model inputs of a split, of at most `limit` tokens each."""

    def scorer(self, split: str, features: Any) -> Callable[[EvalPrediction], dict[str, float]]:
        """Trainer's `compute_metrics` for a split; rows that are windows of one example are scored as one."""
        metrics = self.metrics
        if "example_index" in features.column_names:
            metrics = metrics.for_windows(features["example_index"])
        return MetricsWithLoss(metrics)

    def prepare_trainer(self, trainer: Any) -> None:
        """Set what is special about the task's trainer, before it trains or scores."""
        return

    @property
    def builder(self) -> "Task":
        """The task by whose arguments tokenizer and model are built."""
        return self

    def complete(self, trainer: Any, seconds: float) -> dict[str, Any]:
        """Add to the model, trained for some seconds, what no gradient trains; returns more results of the run."""
        return {}

    def refit(self, trainer: Any) -> None:
        """Fit that to all labelled rows, once the validation split is scored and before the model is saved."""
        return

    def calibrate(self, trainer: Any) -> None:
        """Set how sure the model is, by the validation split, before it is saved."""
        return

    @property
    def may_calibrate(self) -> bool:
        """Whether a temperature may be fitted."""
        return getattr(self.run_args, "calibrate", True)

    @abstractmethod
    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        """Write predictions, tables and plots of a split; returns Markdown sections for the card, by heading."""

    def baselines(self, training: TrainingArguments) -> dict[str, float]:
        """The scores of the task's baselines on the splits that are scored, with the prefixes in BASELINES."""
        return {}

    def weakness(self, results: Mapping[str, Any]) -> str | None:
        """What validation scores above the baselines hide."""
        return None

    def compare(self, trainer: Any, results: dict[str, Any]) -> dict[str, str]:
        """
        Compare a model that was trained and scored with the task's baselines, whose scores are computed once for all
        seeds and added to `results`; returns Markdown sections for the card, by heading.
        """
        training = trainer.args
        if self._baselines is None:
            self._baselines = self.baselines(training)
        results |= self._baselines
        metric = self.metrics.metric_for_best_model
        own, best = results.get(f"eval_{metric}"), best_baseline(results, f"eval_{metric}")
        if own is not None and best is not None:
            kind, score = best
            below = f"the {metric} {own:.3f} is below the {score:.3f} of a baseline ({BASELINES[kind]})"
            if reason := below if own < score else self.weakness(results):
                losses = [log["eval_loss"] for log in trainer.state.log_history if "eval_loss" in log]
                may_fall = bool(losses) and losses[-1] == min(losses)
                start = (
                    ""
                    if self.model_args.source or not self.advice
                    else f", or begin with what is pretrained: {self.advice}"
                )
                rate = "train longer, or change --learning_rate" if may_fall else "change --learning_rate"
                logger.warning(f"validation: {reason}; {rate}{start}.")
        lines = baseline_lines(results, metric)
        return {"Baseline": "\n".join(f"- {line}" for line in lines)} if lines else {}

    @abstractmethod
    def example_texts(self) -> list[Any]:
        """A few texts, or pairs of texts, for the model card."""

    def card_settings(self, trainer: Any) -> dict[str, Any]:
        """Rows of the card's table of settings for this task alone."""
        return {}


def label_fields(data: Any) -> dict[str, Any]:
    """The label fields of a configuration, from data with `label_list`; a regression has one output without a name."""
    if not data.label_list:
        return {"num_labels": 1}
    return {"num_labels": len(data.label_list), "id2label": data.id2label, "label2id": data.label2id}


def first_rows(splits: DatasetDict, options: DataArguments) -> DatasetDict:
    """The splits for training and scoring, with the numbers of examples that the arguments set."""
    limits = {
        "train": options.max_train_samples,
        "validation": options.max_eval_samples,
        "test": options.max_predict_samples,
    }
    # Data sets may have other splits, such as one without labels, which no command reads.
    kinds = {split: split.split("_")[0] for split in splits}
    return DatasetDict({split: take_first(splits[split], limits[k]) for split, k in kinds.items() if k in limits})


def is_scored(split: str, training: TrainingArguments) -> bool:
    """Whether the arguments request the scores of a split."""
    return {"validation": training.do_eval, "test": training.do_predict}.get(split.split("_")[0], False)
