"""The base class of all tasks: data, model, trainer, scores and reports of one script."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from datasets import Dataset, DatasetDict
from transformers import (
    AutoConfig,
    DataCollator,
    EvalPrediction,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)
from transformers.trainer_utils import HubStrategy

from ..data.labels import has_names
from ..data.splits import check_fraction, hold_out, load_splits, take_first
from ..data.tokenizers import set_token_types
from ..data.writing_systems import language_of
from ..errors import UserError
from .arguments import DataArguments, FileArguments, ModelArguments, RunArguments
from .builders import (
    check_vocabulary,
    fresh_model,
    hub_options,
    lacks_words,
    load_tokenizer,
    loading,
    parse_overrides,
    saved_model,
    set_lexicon,
    set_vocabulary,
)
from .guards import warn_about_majority
from .losses import CRFLoss, MetricsWithLoss, TaskLoss, class_weights
from .trainer import FineTuner


logger = logging.getLogger(__name__)

DataArgs = TypeVar("DataArgs", bound=DataArguments)


class Task(ABC, Generic[DataArgs]):
    """
    The task of a script, on its data.

    Args:
        model_args, data_args, run_args: the script's arguments.

    Attributes:
        head: the auto class, such as "AutoModelForTokenClassification".
        pipeline: transformers' name of the task.
        loss_class, trainer_class: for the training loss and the trainer.
        cuts_inputs: whether --max_seq_length also limits, or splits into windows, what is scored.
        reads_spans: whether files with labelled spans of characters are read as words and tags.
        held_out_together: the column whose equal values stay together when a validation split is held out.
        data: what `load_data` returns, with a validation split.
        metrics: what `choose_metrics` returns.
        new_parameters: those of the last model built that were not saved; `None`: it is fresh.
    """

    head: str
    pipeline: str
    loss_class: type[TaskLoss] = TaskLoss
    trainer_class: type[FineTuner] = FineTuner
    cuts_inputs: bool = False
    reads_spans: bool = False
    held_out_together: str | None = None
    data: Any
    metrics: Any
    new_parameters: set[str] | None = None

    def __init__(self, model_args: ModelArguments, data_args: DataArgs, run_args: RunArguments):
        self.model_args = model_args
        self.data_args = data_args
        self.run_args = run_args
        self.data: Any = self.with_validation(self.load_data())
        self.metrics: Any = self.choose_metrics()

    @classmethod
    def check_arguments(cls, data_args: DataArgs, training: TrainingArguments) -> None:
        """
        Check arguments before any data are read.

        Raises:
            UserError: an argument has a value that is not allowed, or that the task cannot use.
        """
        check_training(training)
        check_fraction(data_args.validation_fraction)

    # ------ data

    @abstractmethod
    def load_data(self) -> Any:
        """The checked data, with labels as numbers."""

    @abstractmethod
    def choose_metrics(self) -> Any:
        """The metrics, and which of them chooses the best model."""

    def load_splits(self) -> DatasetDict:
        """The splits, limited to the numbers of examples that the arguments set."""
        options = self.data_args
        names = options.column_names if isinstance(options, FileArguments) else None
        splits = self.one_row_an_example(
            load_splits(
                options.dataset_name,
                options.dataset_config_name,
                {"train": options.train_file, "validation": options.validation_file, "test": options.test_file},
                revision=options.dataset_revision,
                column_names=names.split(",") if names else None,
                with_spans=self.reads_spans,
            )
        )
        limits = {
            "train": options.max_train_samples,
            "validation": options.max_eval_samples,
            "test": options.max_predict_samples,
        }
        # Data sets may have other splits, such as one without labels, which no script reads.
        kinds = {split: split.split("_")[0] for split in splits}
        return DatasetDict({split: take_first(splits[split], limits[k]) for split, k in kinds.items() if k in limits})

    def one_row_an_example(self, splits: DatasetDict) -> DatasetDict:
        """The splits with one example per row, for data that nest their examples."""
        return splits

    def with_validation(self, data: Any) -> Any:
        """The data with a validation split, held out of train if there is none."""
        fraction = self.data_args.validation_fraction
        if "validation" in data.splits or "train" not in data.splits or fraction == 0:
            return data
        logger.warning(f"No validation split: {fraction:.0%} of train is held out (--validation_fraction).")
        splits = hold_out(data.splits, fraction, together=self.held_out_together, classes=self.class_column(data))
        splits["validation"] = take_first(splits["validation"], self.data_args.max_eval_samples)
        return replace(data, splits=splits)

    def class_column(self, data: Any) -> str | None:
        """The column with one class per row, by which the validation split is stratified; `None` for none."""
        return None

    @property
    def split_names(self) -> list[str]:
        """The splits that have features."""
        return list(self.data.splits)

    @property
    def input_columns(self) -> tuple[str, ...]:
        """The columns that the model reads."""
        return getattr(self.data, "text_columns", None) or (self.data.text_column,)

    @property
    def labels(self) -> dict[str, Any]:
        """The label fields of the configuration."""
        labels: dict[str, Any] = {"num_labels": len(self.data.label_list) or 1}
        if self.data.label_list:
            labels |= {"id2label": self.data.id2label, "label2id": self.data.label2id}
        return labels

    @abstractmethod
    def training_texts(self) -> Any:
        """Texts or lists of words of the training split, to train a tokenizer on."""

    @abstractmethod
    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        """The model inputs of a split."""

    @abstractmethod
    def collator(self, tokenizer: PreTrainedTokenizerBase) -> DataCollator:
        """The data collator."""

    # ------ tokenizer and model

    def saved_config(self) -> PreTrainedConfig | None:
        """The configuration of a saved model whose head is kept; `None` for a fresh model or head."""
        arguments = self.model_args
        if arguments.model_name_or_path is None or arguments.ignore_mismatched_sizes:
            return None
        with loading("--model_name_or_path", arguments.model_name_or_path):
            return AutoConfig.from_pretrained(
                arguments.model_name_or_path,
                revision=arguments.model_revision,
                trust_remote_code=arguments.trust_remote_code,
            )

    def saved_labels(self, splits: Collection[str]) -> tuple[str, ...] | None:
        """The labels of a saved model; `None` without one, or if it is trained here and its labels have no names."""
        config = self.saved_config()
        if config is None:
            return None
        names = tuple(config.id2label[index] for index in sorted(config.id2label))
        return names if has_names(names) or "train" not in splits else None

    def build(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """
        Build the tokenizer and the model from the arguments.

        Raises:
            UserError: arguments contradict each other, or a new head would have a single class.
        """
        names = list(self.labels.get("id2label", {}).values())
        is_choice = self.labels.get("problem_type") != "multi_label_classification"
        if len(names) == 1 and is_choice and self.saved_labels(self.data.splits) is None:
            raise UserError(
                f"Every label is {names[0]!r}, so that there is only one class: add rows with other labels, or name "
                "another column, --label_column_name"
            )
        tokenizer = self.make_tokenizer()
        model = self.make_model(tokenizer)
        if self.model_args.lexicon is not None:
            set_lexicon(model, self.model_args.lexicon, tokenizer)
        elif lacks_words(model.config):
            logger.warning("big_transformer has no words to read: add --lexicon FILE, jieba or whole_word.")
        check_vocabulary(tokenizer, model, self.model_args.tokenizer_name)
        if self.needs_types and "token_type_ids" in inspect.signature(model.forward).parameters:
            set_token_types(tokenizer)
            is_siamese = getattr(model.config, "pair_mode", None) == "siamese"
            if is_siamese and 1 not in tokenizer("a", "a")["token_type_ids"]:
                raise UserError(
                    f"{type(tokenizer).__name__} gives both texts of a pair the type 0, and pair_mode=siamese needs "
                    "two types: omit pair_mode, or name another tokenizer, --tokenizer_name"
                )
        set_vocabulary(model, tokenizer, label_all_tokens=getattr(self.data_args, "label_all_tokens", False))
        return tokenizer, model

    @property
    def tokenizer_from(self) -> str | None:
        """The name of the tokenizer to load; `None` if one is trained on the data."""
        arguments = self.model_args
        embeddings = arguments.embeddings_name_or_path if arguments.embeddings_mode != "vectors" else None
        return arguments.tokenizer_name or arguments.model_name_or_path or embeddings

    @property
    def tokenizer_hub(self) -> dict[str, Any]:
        """Options of its `from_pretrained`; the model's revision does not apply to another repository."""
        hub = {**hub_options(self.model_args), "trust_remote_code": self.model_args.trust_remote_code}
        return {**hub, "revision": None} if self.tokenizer_from == self.model_args.tokenizer_name else hub

    def tokenizer_texts(self) -> Any:
        """
        `training_texts`, if there is a training split.

        Raises:
            UserError: there is none.
        """
        if "train" not in self.split_names:
            raise UserError(
                "There is no train split to train a tokenizer on: name a saved model, --model_name_or_path FOLDER, or "
                "add --train_file"
            )
        return self.training_texts()

    def make_tokenizer(self) -> PreTrainedTokenizerBase:
        """Load the tokenizer that the arguments name, or train one."""
        arguments, name = self.model_args, self.tokenizer_from
        return load_tokenizer(
            name,
            self.tokenizer_texts() if name is None else (),
            kind=arguments.tokenizer_kind,
            lower_case=arguments.lower_case,
            vocab_size=arguments.vocab_size,
            vectors=arguments.embeddings_name_or_path if arguments.vocabulary_from == "vectors" else None,
            **self.tokenizer_hub,
        )

    def make_model(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """
        Load the saved model that the arguments name, or build a fresh one for this tokenizer.

        Raises:
            UserError: arguments of a fresh model are given together with a saved one.
        """
        arguments = self.model_args
        hub, overrides = hub_options(arguments), parse_overrides(arguments.config_overrides)
        if overrides.get("use_crf") and self.head != "AutoModelForTokenClassification":
            raise UserError("--config_overrides sets use_crf, and only taggers (run_ner.py) have a CRF: omit it.")
        if overrides.get("ngram_buckets") and self.head != "AutoModelForSequenceClassification":
            raise UserError(
                "--config_overrides sets ngram_buckets, and only classifiers (run_glue.py) read n-grams: omit it."
            )
        if arguments.model_name_or_path is None:
            return fresh_model(
                self.head,
                tokenizer,
                self.labels,
                model_type=arguments.model_type,
                config_name=arguments.config_name,
                overrides=overrides,
                embeddings_name_or_path=arguments.embeddings_name_or_path,
                embeddings_mode=arguments.embeddings_mode,
                freeze_embeddings=arguments.freeze_embeddings,
                max_seq_length=self.data_args.max_seq_length,
                defaults=self.config_defaults,
                **hub,
            )
        for flag in ("embeddings_name_or_path", "config_name", "model_type"):
            if getattr(arguments, flag) is not None:
                raise UserError(f"--{flag} is for a fresh model, and --model_name_or_path names a saved one: omit it.")
        model, self.new_parameters = saved_model(
            self.head,
            arguments.model_name_or_path,
            self.labels,
            freeze_embeddings=arguments.freeze_embeddings,
            overrides=overrides,
            ignore_mismatched_sizes=arguments.ignore_mismatched_sizes,
            trust_remote_code=arguments.trust_remote_code,
            **hub,
        )
        return model

    @property
    def config_defaults(self) -> dict[str, Any]:
        """Fields of a fresh model's configuration that suit the task."""
        return {}

    @property
    def needs_types(self) -> bool:
        """Whether token types distinguish two texts, for models that embed or split by them."""
        return False

    # ------ training and scores

    def make_trainer(
        self,
        training: TrainingArguments,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        features: dict[str, Any],
    ) -> FineTuner:
        """The trainer of one run, from its final training arguments."""
        validation = self.validation_features(features)
        metrics = self.metrics if validation is None else self.metrics_of("validation", validation)
        loss = self.make_loss(training, model)
        return self.trainer_class(
            model=model,
            args=training,
            train_dataset=features.get("train") if training.do_train else None,
            eval_dataset=validation,
            processing_class=tokenizer,
            data_collator=self.collator(tokenizer),
            compute_metrics=MetricsWithLoss(metrics),
            preprocess_logits_for_metrics=loss.preprocess_logits,
            compute_loss_func=None if isinstance(loss, CRFLoss) else loss,
        )

    def validation_features(self, features: dict[str, Any]) -> Dataset | None:
        """The features of the validation split, if it has labels to score by."""
        validation = features.get("validation")
        return validation if validation is not None and "labels" in validation.column_names else None

    def make_loss(self, training: TrainingArguments, model: PreTrainedModel) -> TaskLoss:
        """
        The loss, with class weights and label smoothing if they are set; a run that only scores has the plain loss.

        Raises:
            UserError: they are set, and the task does not have one class per text or token.
        """
        weighting, smoothing = self.run_args.class_weights, float(training.label_smoothing_factor)
        problem, has_crf = self.metrics.task, getattr(model, "crf", None) is not None
        if has_crf or problem not in ("entities", "tokens", "single_label_classification"):
            for flag, is_set in (
                ("--class_weights", weighting != "none"),
                ("--label_smoothing_factor", smoothing > 0),
            ):
                if is_set:
                    advice = "write --config_overrides use_crf=false, or omit it" if has_crf else "omit it"
                    what = "a CRF" if has_crf else problem
                    raise UserError(f"{flag} works with one class for each text or token, not with {what}: {advice}.")
            return CRFLoss() if has_crf else self.loss_class(problem)
        if not training.do_train:
            return TaskLoss(problem, smoothing=smoothing)
        counts = self.data.counts("train") if weighting == "balanced" else {}
        return TaskLoss(problem, class_weights(weighting, tuple(self.data.label_list), counts), smoothing)

    def metrics_of(self, split: str, features: Dataset) -> Callable[[EvalPrediction], dict[str, float]]:
        """The metrics of one split; rows that are windows of one example are scored as one."""
        if "example_index" in features.column_names:
            return self.metrics.for_windows(features["example_index"])
        return self.metrics

    def score(
        self, trainer: FineTuner, split: str, features: Any, prefix: str, results: dict[str, Any]
    ) -> dict[str, str]:
        """
        Predict a split, measure it if it has labels, and write its report.

        Args:
            trainer: with the model.
            split, features: the split's name and model inputs.
            prefix: of the names of its scores.
            results: gets the scores.

        Returns:
            Markdown sections for the card, by heading.
        """
        trainer.compute_metrics = MetricsWithLoss(self.metrics_of(split, features))
        output = trainer.predict(features, metric_key_prefix=prefix)
        results |= output.metrics | {f"{prefix}_samples": len(self.data.splits[split])}
        trainer.log_metrics(prefix, output.metrics)
        if not trainer.is_world_process_zero():
            return {}
        predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        one_label = self.metrics.task in ("entities", "tokens", "single_label_classification")
        if trainer.args.do_train and split.startswith("validation") and one_label and output.label_ids is not None:
            warn_about_majority(predictions, output.label_ids, self.data.label_list, split)
        return self.report(Path(trainer.args.output_dir), split, features, predictions)

    @abstractmethod
    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        """Write predictions, tables and plots of a split; returns Markdown sections for the card, by heading."""

    def compare(self, trainer: FineTuner, results: dict[str, Any]) -> dict[str, str]:
        """
        Compare a model that was trained and scored with a baseline of the task, if it has one.

        Args:
            trainer: with the model.
            results: the scores so far; gets those of the baseline.

        Returns:
            Markdown sections for the card, by heading.
        """
        return {}

    # ------ what is kept and published

    @property
    def found(self) -> dict[str, Any]:
        """Facts about the data that the reader of a saved model needs, kept with the arguments."""
        return {}

    @property
    def saved_options(self) -> dict[str, Any]:
        """Default arguments of this package's own inference call, saved in the model's configuration."""
        return {}

    def training_results(self, trainer: FineTuner) -> dict[str, Any]:
        """Facts about the training data for all_results.json."""
        return {"train_samples": len(trainer.train_dataset)}

    @abstractmethod
    def example_texts(self) -> list[Any]:
        """A few texts, or pairs of texts, for the model card."""

    def languages(self) -> list[str | None]:
        """The languages of the training texts for the model card, as far as they are detected."""
        return [language_of(self.training_texts())] if "train" in self.split_names else []

    def card_settings(self, trainer: FineTuner) -> dict[str, Any]:
        """Rows of the card's table of settings for this task alone."""
        return {}

    @property
    def usage_options(self) -> dict[str, Any]:
        """Arguments of the call that the model card shows."""
        return {}


def check_training(training: TrainingArguments) -> None:
    """
    Check training arguments whose values would fail only after hours of training, or be ignored.

    Raises:
        UserError: a value is not supported by the scripts.
    """
    supported = {"prediction_loss_only": False, "batch_eval_metrics": False, "eval_do_concat_batches": True}
    for name, value in supported.items():
        if getattr(training, name) != value:
            raise UserError(f"--{name} {getattr(training, name)} leaves no predictions to score and write: omit it.")
    if training.push_to_hub and not training.do_train:
        raise UserError(
            "--push_to_hub uploads a model at the end of its training: add --do_train, or upload a finished folder "
            "with run_scripts/push_to_hub.py."
        )
    if training.push_to_hub and training.hub_strategy != HubStrategy.END:
        # Trainer has no public way to choose the files of the others.
        raise UserError(
            f"--hub_strategy {HubStrategy(training.hub_strategy).value} uploads everything in the output folder, "
            "pickles with your --hub_token among it: write --hub_strategy end."
        )
