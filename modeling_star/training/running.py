"""One run from data to report, shared by the scripts that train: each says only what differs."""

import inspect
import json
import logging
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    DataCollator,
    EvalPrediction,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
    set_seed,
)

from ..modeling_encoder import longest_input
from ..saved_options import save_options
from .building import (
    check_lexicon,
    check_resumed,
    check_vocabulary,
    fresh_model,
    give_lexicon,
    give_vocabulary,
    length_limit,
    load_tokenizer,
    loading,
    parse_overrides,
    saved_model,
)
from .data import cap, hold_out, load_splits
from .data_files import DataError
from .fine_tuner import LESS_IS_BETTER, FineTuner, make_trainer
from .losses import TaskLoss, WithLoss
from .output_folder import ARGUMENTS, check_output_dir, check_several_runs
from .reports import plot_training_curves, seeds_table, summarize_seeds, write_json, write_text
from .run_card import run_card
from .tfidf import run_tfidf
from .tokenizers import give_types


logger = logging.getLogger(__name__)
Found = TypeVar("Found")
DECISIVE = (
    *("learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "weight_decay", "max_grad_norm"),
    *("num_train_epochs", "max_steps", "per_device_train_batch_size", "gradient_accumulation_steps"),
    *("optim", "optim_args", "adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor"),
    *("train_sampling_strategy", "data_seed", "bf16", "fp16", "metric_for_best_model", "do_train"),
    *("eval_strategy", "eval_steps", "eval_delay", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("dataloader_drop_last", "neftune_noise_alpha", "average_tokens_across_devices", "bf16_full_eval"),
    *("fp16_full_eval", "predict_with_generate", "generation_num_beams", "generation_max_length"),
)
"""Of TrainingArguments, what decides which weights a run ends with, or what they are scored with."""

# Of the script's own arguments, what does not.
_INDECISIVE = ("seeds", "token", "cache_dir", "preprocessing_num_workers", "overwrite_cache")
# What Trainer and `Pretrainer` tell of the part of a run since it was resumed.
_OF_ONE_PART = (
    "train_runtime",
    "train_loss",
    "train_samples_per_second",
    "train_steps_per_second",
    "train_tokens_per_second",
)


class Task(ABC):
    """
    What a script knows of its task.

    Args:
        arguments: the script's model, data and run arguments.
    """

    head: str
    pipeline: str
    loss_class: type[TaskLoss] = TaskLoss
    # Whether what is scored is cut, or read in windows, at --max_seq_length too.
    cuts_inputs: bool = False
    # Column whose equal values are held out for validation together.
    held_out_together: str | None = None
    # What `load_data` and `choose_metrics` give: each task has its own kinds.
    data: Any
    metrics: Any

    def __init__(self, model_arguments: Any, data_arguments: Any, run_arguments: Any):
        self.model = model_arguments
        self.options = data_arguments
        self.run = run_arguments
        self.data: Any = self.with_validation(self.load_data())
        self.metrics: Any = self.choose_metrics()

    @classmethod
    def check_arguments(cls, options: Any, training: TrainingArguments) -> None:
        """
        Before anything is read.

        Args:
            options: the script's data arguments.

        Raises:
            DataError: an argument has a value that is not allowed, or that the task cannot do.
        """
        check_training(training)

    def saved_config(self) -> PreTrainedConfig | None:
        """The configuration of a saved model whose head is kept; `None` for a fresh model or head."""
        name = self.model.model_name_or_path
        if name is None or self.model.ignore_mismatched_sizes:
            return None
        with loading("--model_name_or_path", name):
            return AutoConfig.from_pretrained(
                name,
                revision=self.model.model_revision,
                token=self.model.token,
                cache_dir=self.model.cache_dir,
                trust_remote_code=self.model.trust_remote_code,
            )

    def saved_labels(self) -> tuple[str, ...] | None:
        """The labels of a saved model that has names for them, else `None`: then the data tells."""
        config = self.saved_config()
        if config is None:
            return None
        names = tuple(config.id2label[index] for index in sorted(config.id2label))
        return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names

    def load_splits(self) -> DatasetDict:
        """The splits as given, capped."""
        options = self.options
        splits = self.one_row_an_example(
            load_splits(
                options.dataset_name,
                options.dataset_config_name,
                {"train": options.train_file, "validation": options.validation_file, "test": options.test_file},
                cache_dir=self.model.cache_dir,
                token=self.model.token,
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
                split: cap(rows, limits[split.split("_")[0]])
                for split, rows in splits.items()
                if split.split("_")[0] in limits
            }
        )

    def one_row_an_example(self, splits: DatasetDict) -> DatasetDict:
        """The splits as rows to be capped, checked and held out; for data that nest their examples."""
        return splits

    def with_validation(self, data: Any) -> Any:
        """The data with a validation split, held out of train where there is none."""
        fraction = self.options.validation_fraction
        if "validation" in data.splits or "train" not in data.splits or fraction == 0:
            return data
        logger.warning(f"No validation split: {fraction:.0%} of train is held out (--validation_fraction).")
        splits = hold_out(data.splits, fraction, together=self.held_out_together, classes=self.class_column(data))
        splits["validation"] = cap(splits["validation"], self.options.max_eval_samples)
        return replace(data, splits=splits)

    def class_column(self, data: Any) -> str | None:
        """The column of each row's one class, each of which gives its part to validation; `None`: there is none."""
        return None

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
            DataError: there is no training split.
        """
        if "train" not in self.split_names:
            raise DataError(
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
        """Tokenizer and model as the arguments say."""
        return build(self)

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
        """Measure a split, write its report, and add to `results`; returns the card's sections, by heading."""
        return score(self, trainer, split, features, prefix, results)

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


def run(
    task_class: type[Task], model: Any, data: Any, run_arguments: Any, training: TrainingArguments
) -> dict[str, Any]:
    """
    Fine-tune, evaluate and report, once or for each seed.

    Args:
        task_class: the script's task.
        model, data, run_arguments: the script's arguments.
        training: transformers' own.

    Returns:
        All results of the one run, or the summary over seeds.
    """
    task_class.check_arguments(data, training)
    check_lexicon(model.lexicon)
    seeds = run_arguments.seeds or [training.seed]
    folders = [Path(training.output_dir)]
    if len(seeds) > 1:
        folders = [Path(training.output_dir) / f"seed-{seed}" for seed in seeds]
        check_several_seeds(seeds, training)
    told = asked_for(model, data, run_arguments, training)
    plan = as_main_process(partial(plan_seeds, folders, training, told), training)
    task = task_class(model, data, run_arguments)
    if len(seeds) > 1 and training.process_index == 0:
        write_json(Path(training.output_dir) / ARGUMENTS, told)
    results: dict[int, dict[str, Any]] = {}
    for seed, folder, (done, checkpoint) in zip(seeds, folders, plan, strict=True):
        if done:
            logger.info(f"Seed {seed} is finished already: {folder / 'all_results.json'}")
            results[seed] = json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
        else:
            own = replace(training, seed=seed, output_dir=str(folder), resume_from_checkpoint=checkpoint)
            results[seed] = run_tfidf(task, own) if own_model(model) == "tfidf" else run_once(task, own)
    if len(seeds) == 1:
        return results[seeds[0]]
    summary = summarize_seeds(results)
    if training.process_index == 0:
        names = [f"{prefix}_{task.metrics.metric_for_best_model}" for prefix in ("eval", "test")]
        table = seeds_table(results, names)
        write_json(Path(training.output_dir) / "all_results.json", {"seeds": seeds, **summary})
        write_text(Path(training.output_dir) / "seeds.md", table + "\n")
        print(table)
    return summary


def check_training(training: TrainingArguments) -> None:
    """
    Raises:
        DataError: a field of transformers' arguments has a value that the scripts cannot do, said before hours of
            training and not after.
    """
    for name in ("prediction_loss_only", "batch_eval_metrics"):
        if getattr(training, name):
            raise DataError(f"--{name} leaves no predictions to score and write: leave it away.")
    if getattr(training, "sortish_sampler", False):
        raise DataError(
            "--sortish_sampler does nothing in transformers 5: write --train_sampling_strategy group_by_length"
        )
    if not training.eval_do_concat_batches:
        raise DataError("--eval_do_concat_batches false leaves no rows to score: leave it away.")
    for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps"):
        if getattr(training, name) < 1:
            raise DataError(f"--{name} {getattr(training, name)} is given: at least 1 is needed.")


def own_model(model: Any) -> str | None:
    """The kind of a fresh model by the script's arguments, `None` for a saved one."""
    return None if model.model_name_or_path else model.model_type


def check_several_seeds(seeds: list[int], training: TrainingArguments) -> None:
    """
    Raises:
        DataError: a seed is named twice, or something is asked for that only a single run can do.
    """
    if len(set(seeds)) < len(seeds):
        raise DataError(f"--seeds {' '.join(map(str, seeds))} names a seed twice: write each once.")
    if training.push_to_hub:
        raise DataError("--push_to_hub uploads one model: name one seed, --seed 1, or leave --push_to_hub away.")
    if training.resume_from_checkpoint and training.resume_from_checkpoint.lower() not in ("last", "true"):
        raise DataError("With several --seeds write --resume_from_checkpoint last: each goes on from its own.")


def asked_for(model: Any, data: Any, run_arguments: Any, training: TrainingArguments) -> dict[str, Any]:
    """The arguments that decide what a seed's run comes to."""
    given = {**vars(model), **vars(data), **vars(run_arguments)}
    given |= {name: value for name, value in training.to_dict().items() if name in DECISIVE}
    given["processes"] = training.world_size
    # As they are read back.
    return json.loads(
        json.dumps({name: value for name, value in given.items() if name not in _INDECISIVE}, default=str)
    )


def plan_seeds(
    folders: list[Path], training: TrainingArguments, told: dict[str, Any]
) -> list[tuple[bool, str | None]]:
    """
    For the folder of each seed, whether the run in it is finished, and the checkpoint that it goes on from.

    Args:
        folders: one for each seed.
        training: with the folder that they lie in.
        told: what `asked_for` tells, the same for all seeds.

    Raises:
        DataError: see `check_output_dir`, `check_several_runs`.
    """
    resume = training.resume_from_checkpoint
    if len(folders) > 1:
        check_several_runs(Path(training.output_dir), told, resume)
        finished = [(folder / "all_results.json").is_file() for folder in folders]
    else:
        finished = [False]
    return [
        (done, None if done else check_output_dir(folder, resume))
        for folder, done in zip(folders, finished, strict=True)
    ]


def as_main_process(look: Callable[[], Found], training: TrainingArguments) -> Found:
    """
    What `look()` finds on the main process, on all of them: what it looks at may change under the hands of the others.

    Raises:
        DataError: the one that `look` raised there.
    """
    found: Any = None
    problem = None
    if training.process_index == 0:
        try:
            found = look()
        except DataError as error:
            problem = str(error)
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        held = [found, problem]
        torch.distributed.broadcast_object_list(held)
        found, problem = held
    if problem is not None:
        raise DataError(problem)
    return found


def run_once(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    One seed: build, train, evaluate, predict, report.

    Returns:
        What all_results.json holds.
    """
    set_seed(training.seed)
    folder = Path(training.output_dir)
    if training.do_train and "train" not in task.split_names:
        raise DataError(
            "There is no train split to train on: add --train_file, or say what else is to be done, --do_predict say."
        )
    if not training.do_train and not any(is_scored(split, training) for split in task.split_names):
        raise DataError(
            "There is nothing to do: no training is asked for, and there is no data of a split that is to be scored. "
            "Add --validation_file with --do_eval, or --test_file with --do_predict."
        )
    if not training.do_train and (task.model.model_name_or_path is None or training.resume_from_checkpoint):
        raise DataError(
            "Nothing is to be trained, and what is scored is a saved model: write --model_name_or_path FOLDER and "
            "another --output_dir, without --resume_from_checkpoint; or --do_train too."
        )
    with told_plainly():
        tokenizer, model = task.build()
        if training.resume_from_checkpoint:
            check_resumed(training.resume_from_checkpoint, tokenizer, model.config)
        limit = length_limit(model.config, task.options.max_seq_length)
        if task.cuts_inputs and task.options.max_seq_length is not None:
            # A saved tokenizer may tell the limit of the training before.
            tokenizer.model_max_length = max(tokenizer.model_max_length, limit)
        with training.main_process_first(desc="tokenizing"):
            features = {
                split: task.features(split, tokenizer, limit)
                for split in task.split_names
                if split != "train" or training.do_train
            }
    if task.saved_options:
        save_options(model.config, task.pipeline, task.saved_options)
    # The cut of the last call would be saved with the tokenizer; and would not, where the features came from a cache.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    longest = limit if task.cuts_inputs else longest_input(model.config)
    if longest is not None:  # where stock pipelines cut, or read in windows, if they are asked to: as it is scored
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    with told_plainly():  # a repository of the Hub is made here
        trainer = task.make_trainer(training, model, tokenizer, features)
    trainer.shuffle_length_groups = task.run.shuffle_length_groups
    trainer.averaged = task.run.average_checkpoints if training.do_train else 0
    results: dict[str, Any] = {}
    sections: dict[str, str] = {}
    trainer.card = lambda: run_card(task, trainer, results, sections)
    if training.do_train:
        train(task, trainer, training, results)
    for split in sorted(features, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            sections |= task.score(trainer, split, features[split], score_prefix(split), results)
    if trainer.is_world_process_zero():
        write_json(folder / "all_results.json", results)
    if training.do_train:
        trainer.create_model_card()
        if training.push_to_hub:
            trainer.push_to_hub(commit_message="End of training")
    return results


def is_scored(split: str, training: TrainingArguments) -> bool:
    """Whether a split's scores are asked for."""
    return {"validation": training.do_eval, "test": training.do_predict}.get(split.split("_")[0], False)


def score_prefix(split: str) -> str:
    """validation -> eval, test -> test; validation_mismatched (MNLI's) -> eval_mismatched."""
    return split.replace("validation", "eval", 1)


@contextmanager
def told_plainly() -> Iterator[None]:
    """
    What goes wrong while inputs are read is the user's to mend: a message, no traceback.

    Raises:
        DataError: instead of the ValueError, OSError and the like that was raised inside.
    """
    try:
        yield
    except DataError:
        raise
    except StrictDataclassError as error:
        raise DataError(str(error.__cause__ or error)) from error
    except (ValueError, TypeError, OSError, ImportError) as error:
        raise DataError(str(error)) from error


def build(task: Task) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """
    Tokenizer and model as the arguments say.

    Raises:
        DataError: arguments do not fit each other, or the data have one label alone for a new head to choose from.
    """
    arguments = task.model
    names = list(task.labels.get("id2label", {}).values())
    if (
        len(names) == 1
        and task.saved_labels() is None
        and task.labels.get("problem_type") != "multi_label_classification"
    ):
        raise DataError(
            f"Every label is {names[0]!r}, so that there is nothing to learn: add rows with other labels, or name "
            "another column, --label_column_name"
        )
    hub = hub_options(arguments)
    embeddings = arguments.embeddings_from if arguments.embeddings_mode != "vectors" else None
    name = arguments.tokenizer_name or arguments.model_name_or_path or embeddings
    tokenizer = load_tokenizer(
        name,
        task.tokenizer_texts() if name is None else (),
        kind=arguments.tokenizer_kind,
        lower_case=arguments.lower_case,
        vocab_size=arguments.vocab_size,
        **({**hub, "revision": None} if name == arguments.tokenizer_name else hub),
        trust_remote_code=arguments.trust_remote_code,
    )
    overrides = parse_overrides(arguments.config_overrides)
    if arguments.model_name_or_path is not None:
        if arguments.embeddings_from is not None or arguments.config_name is not None:
            given = "--embeddings_from" if arguments.embeddings_from is not None else "--config_name"
            raise DataError(
                f"{given} is for a fresh model, and --model_name_or_path names a saved one: leave one away."
            )
        model = saved_model(
            task.head,
            arguments.model_name_or_path,
            task.labels,
            freeze_embeddings=arguments.freeze_embeddings,
            overrides=overrides,
            ignore_mismatched_sizes=arguments.ignore_mismatched_sizes,
            trust_remote_code=arguments.trust_remote_code,
            **hub,
        )
    else:
        model = fresh_model(
            task.head,
            tokenizer,
            task.labels,
            model_type=arguments.model_type,
            config_name=arguments.config_name,
            overrides=overrides,
            embeddings_from=arguments.embeddings_from,
            embeddings_mode=arguments.embeddings_mode,
            freeze_embeddings=arguments.freeze_embeddings,
            max_seq_length=task.options.max_seq_length,
            defaults=task.config_defaults,
            **hub,
        )
    if arguments.lexicon is not None:
        give_lexicon(model, arguments.lexicon, tokenizer)
    check_vocabulary(tokenizer, model, arguments.tokenizer_name)
    if task.needs_types and "token_type_ids" in inspect.signature(model.forward).parameters:
        give_types(tokenizer)
    give_vocabulary(model, tokenizer, label_all_tokens=getattr(task.options, "label_all_tokens", False))
    return tokenizer, model


def hub_options(arguments: Any) -> dict[str, Any]:
    """Where models are looked for on the Hub, and kept."""
    return {"revision": arguments.model_revision, "token": arguments.token, "cache_dir": arguments.cache_dir}


def train(task: Task, trainer: FineTuner, training: TrainingArguments, results: dict[str, Any]) -> None:
    """Train or go on training; save the best model, its state and the curves."""
    folder = Path(training.output_dir)
    output = trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model(_internal_call=True)  # not to be uploaded before it is measured
    trainer.save_state()
    measured = output.metrics
    if training.resume_from_checkpoint:  # time and mean loss of the last part alone would mislead
        measured = {name: value for name, value in measured.items() if name not in _OF_ONE_PART}
    results |= measured | task.training_results(trainer)
    results["parameters"] = trainer.model.num_parameters()
    trainer.log_metrics("train", measured)
    if trainer.is_world_process_zero():
        chosen_by = (training.metric_for_best_model or task.metrics.metric_for_best_model).removeprefix("eval_")
        drawn = None if chosen_by == "loss" else chosen_by  # the loss has a panel of its own
        plot_training_curves(
            trainer.state.log_history,
            folder / "training_curves.png",
            metric=drawn,
            greater_is_better=drawn not in LESS_IS_BETTER,
        )


def score(
    task: Task, trainer: FineTuner, split: str, features: Dataset, prefix: str, results: dict[str, Any]
) -> dict[str, str]:
    """Predict a split, measure it where it has labels, and write its report."""
    trainer.compute_metrics = WithLoss(task.metrics_of(split, features))
    output = trainer.predict(features, metric_key_prefix=prefix)
    results |= output.metrics | {f"{prefix}_samples": len(task.data.splits[split])}
    trainer.log_metrics(prefix, output.metrics)
    if not trainer.is_world_process_zero():
        return {}
    predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    return task.report(Path(trainer.args.output_dir), split, features, predictions)


@contextmanager
def script_messages(training: TrainingArguments) -> Iterator[None]:
    """
    Logging set up; what a user did wrong is told in one message, without a traceback.

    Raises:
        SystemExit: instead of a DataError.
    """
    logging.basicConfig(
        format="%(levelname)s %(message)s", level=logging.INFO if training.should_log else logging.ERROR
    )
    for name in ("httpx", "httpcore", "filelock", "fsspec", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if os.environ.get("ACCELERATE_USE_FSDP") == "true" and training.device.type == "cpu":
        logger.warning("accelerate shards nothing on the CPU: each process holds the whole model, as under DDP.")
    try:
        yield
    except DataError as error:
        # Of several processes, all of which stop here, one speaks.
        message = f"{Path(sys.argv[0]).name}: {' '.join(str(error).split())}"
        raise SystemExit(message if training.should_log else 1) from None


def run_script(task_class: type[Task], model: Any, data: Any, run_arguments: Any, training: TrainingArguments) -> None:
    """`run`, with its messages."""
    with script_messages(training):
        run(task_class, model, data, run_arguments, training)
    if training.should_log:
        made = "scores, predictions"
        if training.do_train and own_model(model) == "tfidf":
            made = "scores, predictions, plots"
        elif training.do_train:
            made = "model, scores, predictions, plots, and its card README.md"
        print(f"\nEverything is in {training.output_dir}: {made}.")
