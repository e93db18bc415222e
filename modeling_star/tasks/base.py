"""What a script knows of its task: the base of all tasks that `running.run` runs."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from ..errors import UserError
from ..training.builders import (
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
from ..training.losses import MetricsWithLoss, TaskLoss
from ..training.trainer import FineTuner, make_trainer


logger = logging.getLogger(__name__)


class Task(ABC):
    """
    What a script knows of its task.

    Args:
        arguments: the script's model, data and run arguments.
    """

    head: str
    pipeline: str
    loss_class: type[TaskLoss] = TaskLoss
    trainer_class: type[FineTuner] = FineTuner
    # Whether what is scored is cut, or read in windows, at --max_seq_length too.
    cuts_inputs: bool = False
    # Column whose equal values are held out for validation together.
    held_out_together: str | None = None
    # What `load_data` and `choose_metrics` give: each task has its own kinds.
    data: Any
    metrics: Any

    def __init__(self, model_args: Any, data_args: Any, run_args: Any):
        self.model_args = model_args
        self.data_args = data_args
        self.run_args = run_args
        self.data: Any = self.with_validation(self.load_data())
        self.metrics: Any = self.choose_metrics()

    @classmethod
    def check_arguments(cls, data_args: Any, training: TrainingArguments) -> None:
        """
        Before anything is read.

        Args:
            data_args: the script's data arguments.

        Raises:
            UserError: an argument has a value that is not allowed, or that the task cannot do.
        """
        check_training(training)
        check_fraction(data_args.validation_fraction)

    def saved_config(self) -> PreTrainedConfig | None:
        """The configuration of a saved model whose head is kept; `None` for a fresh model or head."""
        name = self.model_args.model_name_or_path
        if name is None or self.model_args.ignore_mismatched_sizes:
            return None
        with loading("--model_name_or_path", name):
            return AutoConfig.from_pretrained(
                name,
                revision=self.model_args.model_revision,
                token=self.model_args.token,
                cache_dir=self.model_args.cache_dir,
                trust_remote_code=self.model_args.trust_remote_code,
            )

    def saved_labels(self, splits: Collection[str]) -> tuple[str, ...] | None:
        """
        The labels of a saved model; `None`, so that the data tells, of one that has no names for them and is trained.

        Args:
            splits: which there are.
        """
        config = self.saved_config()
        if config is None:
            return None
        names = tuple(config.id2label[index] for index in sorted(config.id2label))
        return names if has_names(names) or "train" not in splits else None

    def load_splits(self) -> DatasetDict:
        """The splits as given, capped."""
        options = self.data_args
        splits = self.one_row_an_example(
            load_splits(
                options.dataset_name,
                options.dataset_config_name,
                {"train": options.train_file, "validation": options.validation_file, "test": options.test_file},
                cache_dir=self.model_args.cache_dir,
                token=self.model_args.token,
                revision=options.dataset_revision,
                column_names=options.column_names.split(",") if options.column_names else None,
            )
        )
        limits = {
            "train": options.max_train_samples,
            "validation": options.max_eval_samples,
            "test": options.max_predict_samples,
        }
        # Data sets may have other splits, such as one without labels: no script reads them.
        return DatasetDict(
            {
                split: take_first(rows, limits[split.split("_")[0]])
                for split, rows in splits.items()
                if split.split("_")[0] in limits
            }
        )

    def one_row_an_example(self, splits: DatasetDict) -> DatasetDict:
        """The splits as rows to be capped, checked and held out; for data that nest their examples."""
        return splits

    def with_validation(self, data: Any) -> Any:
        """The data with a validation split, held out of train where there is none."""
        fraction = self.data_args.validation_fraction
        if "validation" in data.splits or "train" not in data.splits or fraction == 0:
            return data
        logger.warning(f"No validation split: {fraction:.0%} of train is held out (--validation_fraction).")
        splits = hold_out(data.splits, fraction, together=self.held_out_together, classes=self.class_column(data))
        splits["validation"] = take_first(splits["validation"], self.data_args.max_eval_samples)
        return replace(data, splits=splits)

    def class_column(self, data: Any) -> str | None:
        """The column of each row's one class, each of which gives its part to validation; `None`: there is none."""
        return None

    @property
    def found(self) -> dict[str, Any]:
        """What was found in the data and a saved model's reader asks for, to be kept beside the arguments."""
        return {}

    @property
    def split_names(self) -> list[str]:
        """The splits that there are features of."""
        return list(self.data.splits)

    @abstractmethod
    def load_data(self) -> Any:
        """The checked data, labels as numbers."""

    @abstractmethod
    def choose_metrics(self) -> Any:
        """The metrics, and which of them chooses the best model."""

    @abstractmethod
    def training_texts(self) -> Any:
        """Texts or lists of words of the training split, for a tokenizer to be trained on."""

    def tokenizer_texts(self) -> Any:
        """
        `training_texts`, where no tokenizer is named.

        Raises:
            UserError: there is no training split.
        """
        if "train" not in self.split_names:
            raise UserError(
                "There is no train split to train a tokenizer on: name a saved model, --model_name_or_path FOLDER, or "
                "add --train_file"
            )
        return self.training_texts()

    @abstractmethod
    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        """Model inputs of a split."""

    @abstractmethod
    def collator(self, tokenizer: PreTrainedTokenizerBase) -> DataCollator:
        """What makes a batch."""

    @abstractmethod
    def report(self, folder: Path, split: str, features: Dataset, predictions: np.ndarray) -> dict[str, str]:
        """Write predictions, tables and plots of a split; returns Markdown sections for the card, by heading."""

    @abstractmethod
    def example_texts(self) -> list[Any]:
        """A few texts, or pairs of texts, for the model card."""

    def metrics_of(self, split: str, features: Dataset) -> Callable[[EvalPrediction], dict[str, float]]:
        """The metrics of one split; rows that are windows of one example are scored as one."""
        if "example_index" in features.column_names:
            return self.metrics.for_windows(features["example_index"])
        return self.metrics

    def build(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """
        Tokenizer and model as the arguments say.

        Raises:
            UserError: arguments do not fit each other, or the data have one label alone for a new head to choose from.
        """
        arguments = self.model_args
        names = list(self.labels.get("id2label", {}).values())
        if (
            len(names) == 1
            and self.saved_labels(self.data.splits) is None
            and self.labels.get("problem_type") != "multi_label_classification"
        ):
            raise UserError(
                f"Every label is {names[0]!r}, so that there is nothing to learn: add rows with other labels, or name "
                "another column, --label_column_name"
            )
        tokenizer = self.make_tokenizer()
        model = self.make_model(tokenizer)
        if arguments.lexicon is not None:
            set_lexicon(model, arguments.lexicon, tokenizer)
        elif lacks_words(model.config):
            logger.warning(
                "big_transformer has no words here, and reads each token for itself alone: add --lexicon FILE, jieba "
                "or whole_word"
            )
        check_vocabulary(tokenizer, model, arguments.tokenizer_name)
        if self.needs_types and "token_type_ids" in inspect.signature(model.forward).parameters:
            set_token_types(tokenizer)
            if (
                getattr(model.config, "pair_mode", None) == "siamese"
                and 1 not in tokenizer("a", "a")["token_type_ids"]
            ):
                raise UserError(
                    f"{type(tokenizer).__name__} gives both texts of a pair the type 0, by which pair_mode=siamese "
                    "would tell them apart: leave pair_mode out, both are read as one then, or name another "
                    "tokenizer, --tokenizer_name"
                )
        set_vocabulary(model, tokenizer, label_all_tokens=getattr(self.data_args, "label_all_tokens", False))
        return tokenizer, model

    @property
    def tokenizer_from(self) -> str | None:
        """What the tokenizer is loaded from; `None`: it is trained on the data."""
        arguments = self.model_args
        embeddings = arguments.embeddings_from if arguments.embeddings_mode != "vectors" else None
        return arguments.tokenizer_name or arguments.model_name_or_path or embeddings

    @property
    def tokenizer_hub(self) -> dict[str, Any]:
        """How it is read from the Hub: --revision is the model's, and none of a tokenizer's of another repository."""
        arguments = self.model_args
        hub = {**hub_options(arguments), "trust_remote_code": arguments.trust_remote_code}
        return {**hub, "revision": None} if self.tokenizer_from == arguments.tokenizer_name else hub

    def make_tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer as the arguments say."""
        arguments, name = self.model_args, self.tokenizer_from
        return load_tokenizer(
            name,
            self.tokenizer_texts() if name is None else (),
            kind=arguments.tokenizer_kind,
            lower_case=arguments.lower_case,
            vocab_size=arguments.vocab_size,
            vectors=arguments.embeddings_from if arguments.vocabulary_from == "vectors" else None,
            **self.tokenizer_hub,
        )

    def make_model(self, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
        """
        The model as the arguments say, for this tokenizer where it is a fresh one.

        Raises:
            UserError: arguments of a fresh model stand beside a saved one.
        """
        arguments = self.model_args
        hub, overrides = hub_options(arguments), parse_overrides(arguments.config_overrides)
        if overrides.get("use_crf") and self.head != "AutoModelForTokenClassification":
            raise UserError(
                "--config_overrides sets use_crf, and a CRF scores the labels of tokens, which run_ner.py learns: "
                "leave it away."
            )
        if arguments.model_name_or_path is None:
            return fresh_model(
                self.head,
                tokenizer,
                self.labels,
                model_type=arguments.model_type,
                config_name=arguments.config_name,
                overrides=overrides,
                embeddings_from=arguments.embeddings_from,
                embeddings_mode=arguments.embeddings_mode,
                freeze_embeddings=arguments.freeze_embeddings,
                max_seq_length=self.data_args.max_seq_length,
                defaults=self.config_defaults,
                **hub,
            )
        for flag in ("embeddings_from", "config_name", "model_type"):
            if getattr(arguments, flag) is not None:
                raise UserError(
                    f"--{flag} is for a fresh model, and --model_name_or_path names a saved one: leave one away."
                )
        return saved_model(
            self.head,
            arguments.model_name_or_path,
            self.labels,
            freeze_embeddings=arguments.freeze_embeddings,
            overrides=overrides,
            ignore_mismatched_sizes=arguments.ignore_mismatched_sizes,
            trust_remote_code=arguments.trust_remote_code,
            **hub,
        )

    def make_trainer(
        self,
        training: TrainingArguments,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        features: dict[str, Any],
    ) -> FineTuner:
        """The trainer of one run."""
        return make_trainer(self, training, model, tokenizer, features)

    def score(
        self, trainer: FineTuner, split: str, features: Any, prefix: str, results: dict[str, Any]
    ) -> dict[str, str]:
        """
        Predict a split, measure it where it has labels, and write its report.

        Args:
            trainer: with the model.
            split, features: the split's name and model inputs.
            prefix: of the names of its scores.
            results: gets the scores.

        Returns:
            Sections for the card, by heading.
        """
        trainer.compute_metrics = MetricsWithLoss(self.metrics_of(split, features))
        output = trainer.predict(features, metric_key_prefix=prefix)
        results |= output.metrics | {f"{prefix}_samples": len(self.data.splits[split])}
        trainer.log_metrics(prefix, output.metrics)
        if not trainer.is_world_process_zero():
            return {}
        predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
        return self.report(Path(trainer.args.output_dir), split, features, predictions)

    def training_results(self, trainer: FineTuner) -> dict[str, Any]:
        """What all_results.json tells of the training data."""
        return {"train_samples": len(trainer.train_dataset)}

    def card_settings(self, trainer: FineTuner) -> dict[str, Any]:
        """Rows of the card's table of settings that only this task has."""
        return {}

    @property
    def labels(self) -> dict[str, Any]:
        """The configuration's label fields."""
        labels: dict[str, Any] = {"num_labels": len(self.data.label_list) or 1}
        if self.data.label_list:
            labels |= {"id2label": self.data.id2label, "label2id": self.data.label2id}
        return labels

    @property
    def saved_options(self) -> dict[str, Any]:
        """Arguments of this package's own call that the saved model has for its defaults: those of this run."""
        return {}

    @property
    def usage_options(self) -> dict[str, Any]:
        """Arguments of the call that the model card shows."""
        return {}

    @property
    def config_defaults(self) -> dict[str, Any]:
        """Fields of a fresh model's configuration that suit the task."""
        return {}

    @property
    def needs_types(self) -> bool:
        """Whether token types are to tell two texts apart, for models that embed or split by them."""
        return False


def is_scored(split: str, training: TrainingArguments) -> bool:
    """Whether a split's scores are asked for."""
    return {"validation": training.do_eval, "test": training.do_predict}.get(split.split("_")[0], False)


def score_prefix(split: str) -> str:
    """validation -> eval, test -> test; validation_mismatched (MNLI's) -> eval_mismatched."""
    return split.replace("validation", "eval", 1)


def check_training(training: TrainingArguments) -> None:
    """
    Raises:
        UserError: a field of transformers' arguments has a value that the scripts cannot do, said before hours of
            training and not after.
    """
    for name in ("prediction_loss_only", "batch_eval_metrics"):
        if getattr(training, name):
            raise UserError(f"--{name} leaves no predictions to score and write: leave it away.")
    if getattr(training, "sortish_sampler", False):
        raise UserError(
            "--sortish_sampler does nothing in transformers 5: write --train_sampling_strategy group_by_length"
        )
    if not training.eval_do_concat_batches:
        raise UserError("--eval_do_concat_batches false leaves no rows to score: leave it away.")
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        if getattr(training, name) < 1:
            raise UserError(f"--{name} {getattr(training, name)} is given: at least 1 is needed.")
    if training.do_train and training.max_steps <= 0 and training.num_train_epochs <= 0:
        raise UserError(
            f"--num_train_epochs {training.num_train_epochs:g} trains nothing: write more than 0, or --do_train false."
        )
    if training.push_to_hub and not training.do_train:
        raise UserError(
            "--push_to_hub uploads what was trained, and no training is asked for: add --do_train, or upload a "
            "finished folder with run_scripts/push_to_hub.py."
        )
    if training.push_to_hub and training.hub_strategy != HubStrategy.END:
        # Trainer has no public way to choose the files of these.
        raise UserError(
            f"--hub_strategy {HubStrategy(training.hub_strategy).value} uploads all that lies in the output folder "
            "while training, pickles with your --hub_token among it: write --hub_strategy end, which uploads the "
            "model with its card and scores."
        )


__all__ = ["Task", "check_training", "is_scored", "score_prefix"]
