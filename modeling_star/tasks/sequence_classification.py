"""The task of run_glue.py: classes, several labels or a number for every text or pair of texts."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset, DatasetDict
from scipy.special import expit, log_expit, log_softmax, softmax
from transformers import DataCollatorWithPadding, PreTrainedTokenizerBase, TrainingArguments

from ..data.classification import ClassificationData, prepare_classification, tokenize_texts
from ..data.labels import short_repr
from ..errors import UserError
from ..evaluation.error_page import BOTH, MISSED, WRONG, Confusion, Mistake, write_error_page
from ..evaluation.reports import classes_report, confusion_counts, labels_report
from ..evaluation.task_metrics import GLUE_METRICS, TaskMetrics, are_predicted, metrics_for
from ..files import write_json_lines, write_text
from ..models.configuration_encoder import did_you_mean
from ..models.heads import ForSequenceClassification
from ..publish.run_card import EXAMPLE_CHARACTERS
from ..training.arguments import ClassificationArguments
from ..training.named_models import saved_config, saved_labels
from ..training.task import Task, first_rows, label_fields
from .calibration import calibrate_classifier, calibration_report, labelled
from .tfidf import LinearModel, linear_model, take_vote, tfidf_scores, why_alone, without_encoder


logger = logging.getLogger(__name__)


class ClassificationTask(Task[ClassificationArguments]):
    """Predict a class, several labels or a number for every text or pair of texts."""

    head = "AutoModelForSequenceClassification"
    pipeline = "text-classification"
    collate = DataCollatorWithPadding
    cuts_inputs = True
    advice = "a pretrained encoder, --pretrained bert-base-uncased"
    _fitted: float = 1.0
    data_args: ClassificationArguments
    data: ClassificationData
    metrics: TaskMetrics
    linear: LinearModel | None = None
    _config: Any = None  # of the model that Trainer trains
    _tokenizer: PreTrainedTokenizerBase

    @classmethod
    def check_arguments(cls, data_args: ClassificationArguments, training: TrainingArguments) -> None:
        name = data_args.task_name
        if name is not None and name not in GLUE_METRICS:
            raise UserError(
                f"--task_name {name} is unknown: {', '.join(GLUE_METRICS)}, or omit it."
                f"{did_you_mean(name.lower(), list(GLUE_METRICS))}"
            )

    def prepare(self, splits: DatasetDict) -> ClassificationData:
        options = self.data_args
        splits = first_rows(splits, options)
        # MNLI: the matched splits choose the best model; the mismatched ones are scored too.
        for name in ("validation", "test"):
            if f"{name}_matched" in splits and name not in splits:
                splits[name] = splits.pop(f"{name}_matched")
        data = prepare_classification(
            splits,
            text_column_name=options.text_column_name,
            label_column_name=options.label_column_name,
            task_name=options.task_name,
            problem_type=options.problem_type or self._saved_problem_type(splits),
            label_list=saved_labels(self.model_args, splits),
            drop_empty=options.drop_empty,
        )
        if data.problem_type == "single_label_classification":
            self.stratified_by = data.label_column
        return data

    def _saved_problem_type(self, splits: Collection[str]) -> str | None:
        """The problem type of a saved model, for data without labels; `None` if its configuration has none."""
        config = saved_config(self.model_args)
        if config is None or (saved_labels(self.model_args, splits) is None and config.problem_type != "regression"):
            return None
        if config.problem_type is None and config.num_labels == 1:  # as in transformers
            return "regression"
        return config.problem_type

    def describe(self) -> None:
        data, name = self.data, self.data_args.task_name
        task = data.problem_type if name is None else name
        self.metrics = metrics_for(task, data.label_list)
        if "f1" in self.metrics.names and len(data.label_list) not in (0, 2):
            raise UserError(
                f"--task_name {task} is scored by the F1 of two labels, and the data have {len(data.label_list)}: "
                "omit --task_name."
            )
        self.labels = {**label_fields(data), "problem_type": data.problem_type}
        self.input_columns = data.text_columns
        self.found = {"text_columns": list(data.text_columns)}
        self.needs_types = len(data.text_columns) == 2
        self.config_defaults = {"type_vocab_size": 2} if self.needs_types else {}
        self.why_untrained = why_alone(self)
        if data.label_list and all(
            split in data.splits and data.is_labelled(split) for split in ("train", "validation")
        ):
            counts = {split: data.counts(split) for split in ("train", "validation")}
            lacking = [label for label, rows in counts["train"].items() if rows and not counts["validation"][label]]
            if lacking:
                logger.warning(
                    f"validation: no row has the label {short_repr(lacking)}, of which its scores say nothing: name a "
                    "--validation_file with all labels."
                )

    def training_texts(self) -> Any:
        train = self.data.splits["train"]
        return (text for column in self.data.text_columns for text in train[column])

    def example_texts(self) -> list[Any]:
        split = "test" if "test" in self.data.splits else "validation"
        rows = self.data.splits.get(split)
        if rows is None:
            return []
        texts = list(zip(*(rows[name][:] for name in self.data.text_columns), strict=True))
        short = [text for text in texts if max(map(len, text)) <= EXAMPLE_CHARACTERS]
        return [text[0] if len(text) == 1 else text for text in (short or texts)[:3]]

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        return tokenize_texts(
            self.data.splits[split],
            tokenizer,
            *self.data.text_columns,
            label_column=self.data.label_column if self.data.is_labelled(split) else None,
            max_seq_length=limit,
            split=split,
        )

    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        rows, logits = self.data.splits[split], np.asarray(predictions, dtype=np.float64)
        # Beside labels logits are as learnt.
        temperature = getattr(self._config, "calibration_temperature", 1.0) if self._has_one_label else 1.0
        predictions = logits / temperature if self.data.is_labelled(split) else logits
        predicted, scores = self._predicted(predictions)
        columns = {"index": self.data.row_numbers(split), **{name: rows[name][:] for name in self.data.text_columns}}
        columns["predicted"] = predicted
        if scores is not None:
            columns["score"] = scores
        expected = rows[self.data.label_column][:] if self.data.is_labelled(split) else None
        if expected is not None:
            columns["label"] = [self._named(label) for label in expected]
        cells = zip(*columns.values(), strict=True)
        lines = (dict(zip(columns, row, strict=True)) for row in cells)
        write_json_lines(folder / f"predictions_{split}.jsonl", lines)
        if expected is None:
            return {}
        self._write_mistakes(folder, split, columns, predictions, np.asarray(expected))
        if self.data.problem_type == "regression":
            return {}
        names = self.data.label_list
        if self.data.problem_type == "multi_label_classification":
            heading = f"Labels of the {split} split"
            table = labels_report(np.asarray(expected), are_predicted(np.asarray(predictions)), names)
        else:
            heading = f"Classes of the {split} split"
            table = classes_report(expected, predicted, names)
        write_text(folder / f"classes_{split}.md", table + "\n")
        shown = self._fitted if temperature == 1 else temperature
        if shown == 1:
            return {heading: table}
        before, after = (labelled(logits, np.asarray(expected), each) for each in (1.0, shown))
        of_probabilities = calibration_report(folder, split, before, after, shown, shown == temperature)
        write_text(folder / f"calibration_{split}.md", of_probabilities + "\n")
        return {heading: table, f"Probabilities of the {split} split": of_probabilities}

    def _write_mistakes(
        self, folder: Path, split: str, columns: dict[str, Any], logits: np.ndarray, expected: np.ndarray
    ) -> None:
        """Write the page of mistakes, of `columns` as in the predictions and logits `[examples, labels]`."""
        names, kind = list(self.data.label_list), self.data.problem_type
        probabilities = self._probabilities(logits)
        confusion, order = None, "by the loss; in brackets are probabilities"
        if kind == "regression":
            losses, order = np.abs(logits.reshape(-1) - expected), "by the difference"
            is_wrong = losses > 0
        elif kind == "multi_label_classification":
            truth, guess = expected.astype(bool), are_predicted(logits).astype(bool)
            losses = -np.where(truth, log_expit(logits), log_expit(-logits)).sum(-1)
            is_wrong = (truth != guess).any(-1)
            counts = np.stack([(truth & guess).sum(0), (truth & ~guess).sum(0), (guess & ~truth).sum(0)], axis=1)
            confusion = Confusion(counts, names, (BOTH, MISSED, WRONG))
        else:
            losses = -log_softmax(logits, axis=-1)[np.arange(len(expected)), expected]
            is_wrong = logits.argmax(-1) != expected
            counts, shown = confusion_counts(columns["label"], columns["predicted"], names)
            confusion = Confusion(counts, shown, shown)

        def mistake(row: int) -> Mistake:
            def lines(label: Any) -> list[str]:
                if probabilities is None:
                    return [f"{label:.3f}"]
                labels = [label] if isinstance(label, str) else label
                return [f"{name} ({probabilities[row, names.index(name)]:.3f})" for name in labels]

            text = " ‖ ".join(str(columns[name][row]) for name in self.data.text_columns)
            answers = (lines(columns[name][row]) for name in ("label", "predicted"))
            return Mistake(columns["index"][row], [(text, False)], *answers)

        wrong = {row: float(losses[row]) for row in np.flatnonzero(is_wrong).tolist()}
        path, title = folder / f"errors_{split}.html", f"Mistakes in the {split} split"
        write_error_page(path, title, len(expected), wrong, mistake, confusion, order)

    def prepare_trainer(self, trainer: Any) -> None:
        """As in Task: TF-IDF is fitted first, and the encoder is trained without it."""
        self._config, self._tokenizer = trainer.model.config, trainer.processing_class
        self.linear = linear_model(self, trainer, take_vote(trainer), self.why_untrained)

    @property
    def builder(self) -> Task:
        """As in Task."""
        return self if self.why_untrained is None else without_encoder(self)

    def complete(self, trainer: Any, seconds: float) -> dict[str, Any]:
        """As in Task: TF-IDF votes with the encoder, or classifies alone."""
        if self.linear is None:
            return {}
        results = self.linear.join(trainer, seconds)
        self._config, self.closing = trainer.model.config, self.linear.closing
        return results

    def refit(self, trainer: Any) -> None:
        """As in Task: TF-IDF reads the validation split too."""
        if self.linear is not None:
            self.linear.refit(trainer)

    def calibrate(self, trainer: Any) -> None:
        is_wanted = self.may_calibrate and trainer.eval_dataset is not None
        if is_wanted and isinstance(trainer.model, ForSequenceClassification) and self._has_one_label:
            self._fitted = calibrate_classifier(trainer)

    @property
    def _has_one_label(self) -> bool:
        return self.data.problem_type == "single_label_classification"

    def baselines(self, training: TrainingArguments) -> dict[str, float]:
        if not self.data_args.tfidf_baseline or getattr(self._config, "tfidf_alone", False):
            return {}
        return tfidf_scores(self, self._tokenizer, training, self.linear)

    def _probabilities(self, logits: np.ndarray) -> np.ndarray | None:
        """Of each label, in the shape of the logits; a regression has none."""
        if self.data.problem_type == "regression":
            return None
        return expit(logits) if self.data.problem_type == "multi_label_classification" else softmax(logits, axis=-1)

    def _predicted(self, logits: np.ndarray) -> tuple[list[Any], list[Any] | None]:
        """The prediction for each row, and its probability; of several labels the probability of each."""
        names, probabilities = self.data.label_list, self._probabilities(logits)
        if probabilities is None:
            return logits.reshape(-1).tolist(), None
        if self.data.problem_type == "multi_label_classification":
            scores = [dict(zip(names, row, strict=True)) for row in probabilities.round(4).tolist()]
            return [self._named(row) for row in are_predicted(logits)], scores
        return [names[index] for index in logits.argmax(-1)], probabilities.max(-1).round(4).tolist()

    def _named(self, label: Any) -> Any:
        """A class's name, the names of the labels that a row of 0 and 1 marks, or a number as it is."""
        if self.data.problem_type == "regression":
            return label
        if self.data.problem_type == "multi_label_classification":
            return [self.data.label_list[index] for index in np.flatnonzero(label)]
        return self.data.label_list[label]
