"""One fine-tuning run from data to report, shared by run_ner.py and run_glue.py: the scripts say only what differs."""

import json
import logging
import os
import shlex
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    DataCollator,
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_utils import get_last_checkpoint

from .building import fresh_model, length_limit, load_tokenizer, parse_overrides, saved_model
from .cards import CardContent, write_model_card
from .data import ClassificationData, TaggingData, cap, hold_out, load_splits
from .data_files import DataError
from .metrics import TaskMetrics
from .reports import plot_training_curves, seeds_table, summarize_seeds, write_json, write_text


logger = logging.getLogger(__name__)


class Task(ABC):
    """
    What a script knows of its task.

    Args:
        arguments: the script's model, data and run arguments.
    """

    head: str

    def __init__(self, model_arguments: Any, data_arguments: Any, run_arguments: Any):
        self.model = model_arguments
        self.options = data_arguments
        self.run = run_arguments
        self.data: TaggingData | ClassificationData = self.load_data()
        self.metrics: TaskMetrics = self.choose_metrics()

    def saved_labels(self) -> tuple[str, ...] | None:
        """The labels of a saved model that has names for them, else `None`: then the data tells."""
        name = self.model.model_name_or_path
        if name is None or self.model.ignore_mismatched_sizes:
            return None
        config = AutoConfig.from_pretrained(
            name,
            revision=self.model.model_revision,
            token=self.model.token,
            cache_dir=self.model.cache_dir,
            trust_remote_code=self.model.trust_remote_code,
        )
        names = tuple(config.id2label[index] for index in sorted(config.id2label))
        return None if all(name == f"LABEL_{index}" for index, name in enumerate(names)) else names

    def load_splits(self) -> Any:
        """The splits as given, with a validation split held out of train where there is none."""
        options = self.options
        splits = load_splits(
            options.dataset_name,
            options.dataset_config_name,
            {"train": options.train_file, "validation": options.validation_file, "test": options.test_file},
            cache_dir=self.model.cache_dir,
            token=self.model.token,
            revision=options.dataset_revision,
        )
        if "validation" not in splits and "train" in splits and options.validation_fraction > 0:
            logger.warning(f"No validation split: {options.validation_fraction:.0%} of train is held out.")
            splits = hold_out(splits, options.validation_fraction)
        limits = {
            "train": options.max_train_samples,
            "validation": options.max_eval_samples,
            "test": options.max_predict_samples,
        }
        for split in splits:
            splits[split] = cap(splits[split], limits.get(split))
        return splits

    @abstractmethod
    def load_data(self) -> Any:
        """The checked data, labels as numbers."""

    @abstractmethod
    def choose_metrics(self) -> TaskMetrics:
        """The metrics, and which of them chooses the best model."""

    @abstractmethod
    def training_texts(self) -> Any:
        """Texts or lists of words of the training split, for a tokenizer to be trained on."""

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

    pipeline: str

    @property
    def labels(self) -> dict[str, Any]:
        """The configuration's label fields."""
        labels = {"num_labels": len(self.data.label_list) or 1}
        if self.data.label_list:
            labels |= {"id2label": self.data.id2label, "label2id": self.data.label2id}
        return labels

    @property
    def config_defaults(self) -> dict[str, Any]:
        """Fields of a fresh model's configuration that suit the task."""
        return {}


class FineTuner(Trainer):
    """Trainer whose model card is ours, at the end and whenever it uploads."""

    card: Callable[[], CardContent] | None = None

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write README.md with the numbers measured so far."""
        if self.is_world_process_zero() and self.card is not None:
            write_model_card(Path(self.args.output_dir), self.card())


def check_output_dir(folder: Path, resume: str | None) -> str | None:
    """
    Make sure that a run may write here, before anything is loaded, and find what to resume from.

    Args:
        folder: the output folder; made if absent.
        resume: `last` (or `true`), a checkpoint's folder, or `None`.

    Returns:
        The checkpoint to resume from, or `None`.

    Raises:
        DataError: the folder is a file, cannot be written, holds something already, or has no such checkpoint.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"--output_dir {folder} is a file: name a folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"--output_dir {folder} cannot be made ({error.strerror}): name another folder.") from None
    if not os.access(folder, os.W_OK):
        raise DataError(f"--output_dir {folder} cannot be written: name another folder, or change its permissions.")
    if resume and resume.lower() in ("last", "true"):
        resume = get_last_checkpoint(str(folder))
        if resume is None and any(folder.iterdir()):
            raise DataError(f"There is no checkpoint in {folder} to resume from: leave --resume_from_checkpoint away.")
        return resume
    if resume:
        if not Path(resume).is_dir():
            raise DataError(f"--resume_from_checkpoint {resume} is no folder: write last, or a checkpoint's folder.")
        return resume
    held = sorted(path.name for path in folder.iterdir())
    if held:
        raise DataError(
            f"--output_dir {folder} holds {', '.join(held[:4])}{', ...' if len(held) > 4 else ''}, and nothing is "
            "overwritten: name another folder, or go on with the run in it by --resume_from_checkpoint last"
        )
    return None


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
    seeds = run_arguments.seeds or [training.seed]
    folders = [Path(training.output_dir)]
    if len(seeds) > 1:
        folders = [Path(training.output_dir) / f"seed-{seed}" for seed in seeds]
    resume = training.resume_from_checkpoint
    with training.main_process_first(desc="looking at the output folder"):
        # The others look when the main process has begun to write: their answer would be another.
        if training.process_index == 0 and training.do_train:
            finished = [bool(resume) and len(seeds) > 1 and (f / "all_results.json").is_file() for f in folders]
            for folder, done in zip(folders, finished, strict=True):
                if not done:
                    check_output_dir(folder, resume)
    task = task_class(model, data, run_arguments)
    results: dict[int, dict[str, Any]] = {}
    for seed, folder in zip(seeds, folders, strict=True):
        finished_file = folder / "all_results.json"
        if resume and len(seeds) > 1 and finished_file.is_file():
            logger.info(f"Seed {seed} is finished already: {finished_file}")
            results[seed] = json.loads(finished_file.read_text(encoding="utf-8"))
        else:
            results[seed] = run_once(task, replace(training, seed=seed, output_dir=str(folder)))
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


def run_once(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    One seed: build, train, evaluate, predict, report.

    Returns:
        What all_results.json holds.
    """
    set_seed(training.seed)
    folder = Path(training.output_dir)
    tokenizer, model = build(task)
    limit = length_limit(model.config, task.options.max_seq_length)
    with training.main_process_first(desc="tokenizing"):
        features = {split: task.features(split, tokenizer, limit) for split in task.data.splits}
    trainer = make_trainer(task, training, model, tokenizer, features)
    results: dict[str, Any] = {}
    sections: dict[str, str] = {}
    trainer.card = lambda: run_card(task, trainer, results, sections)
    if training.do_train:
        train(trainer, training, results)
    for split, wanted, prefix in (("validation", training.do_eval, "eval"), ("test", training.do_predict, "test")):
        if wanted and split in features:
            sections |= score(task, trainer, split, features[split], prefix, results)
    if trainer.is_world_process_zero():
        write_json(folder / "all_results.json", results)
    if training.do_train:
        trainer.create_model_card()
        if training.push_to_hub:
            trainer.push_to_hub(commit_message="End of training")
    return results


def build(task: Task) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Tokenizer and model as the arguments say."""
    arguments = task.model
    hub = {"revision": arguments.model_revision, "token": arguments.token, "cache_dir": arguments.cache_dir}
    embeddings = arguments.embeddings_from if arguments.embeddings_mode != "vectors" else None
    name = arguments.tokenizer_name or arguments.model_name_or_path or embeddings
    tokenizer = load_tokenizer(
        name,
        task.training_texts() if name is None else (),
        kind=arguments.tokenizer_kind,
        lower_case=arguments.lower_case,
        vocab_size=arguments.vocab_size,
        **({} if name == arguments.tokenizer_name else hub),
        trust_remote_code=arguments.trust_remote_code,
    )
    overrides = parse_overrides(arguments.config_overrides)
    if arguments.model_name_or_path is not None:
        options = {"trust_remote_code": arguments.trust_remote_code}
        options["ignore_mismatched_sizes"] = arguments.ignore_mismatched_sizes
        model = saved_model(task.head, arguments.model_name_or_path, task.labels, **options, **hub, **overrides)
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
    return tokenizer, model


def make_trainer(
    task: Task,
    training: TrainingArguments,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    features: dict[str, Dataset],
) -> FineTuner:
    """The trainer, choosing the best model by the task's score where there is a validation split."""
    has_validation = "validation" in features and "labels" in features["validation"].column_names
    if not has_validation:
        training.eval_strategy = "no"
    elif training.eval_strategy != "no" and training.eval_strategy == training.save_strategy:
        training.load_best_model_at_end = True
        training.metric_for_best_model = training.metric_for_best_model or task.metrics.metric_for_best_model
        training.greater_is_better = "loss" not in training.metric_for_best_model
    callbacks = []
    if task.run.early_stopping_patience is not None:
        if not training.load_best_model_at_end:
            raise DataError("--early_stopping_patience needs a validation split, and eval and save at the same steps.")
        callbacks.append(EarlyStoppingCallback(task.run.early_stopping_patience))
    metrics = task.metrics
    if has_validation and "example_index" in features["validation"].column_names:
        metrics = metrics.for_windows(features["validation"]["example_index"])
    return FineTuner(
        model=model,
        args=training,
        train_dataset=features.get("train") if training.do_train else None,
        eval_dataset=features.get("validation") if has_validation else None,
        processing_class=tokenizer,
        data_collator=task.collator(tokenizer),
        compute_metrics=metrics,
        preprocess_logits_for_metrics=_keep_what_metrics_read if task.metrics.task in ("entities", "tokens") else None,
        compute_loss_func=weighted_loss(task),
        callbacks=callbacks,
    )


def _keep_what_metrics_read(logits: Any, labels: Any) -> torch.Tensor:
    """Label indices in place of logits: `[b, n]` held in memory over a whole split, not `[b, n, k]`."""
    return (logits[0] if isinstance(logits, tuple) else logits).argmax(-1)


def weighted_loss(task: Task) -> Callable[..., torch.Tensor] | None:
    """
    Cross entropy with class weights, or `None` where there are none.

    Raises:
        DataError: the weights fit neither the labels nor the task.
    """
    given = task.run.class_weights
    if given == "none":
        return None
    labels = task.data.label_list
    if task.metrics.task not in ("entities", "tokens", "single_label_classification"):
        raise DataError(f"--class_weights works with one class for each text or token, not with {task.metrics.task}.")
    if given == "balanced":
        counts = np.array([max(count, 1) for count in task.data.counts("train").values()], dtype=np.float64)
        weights = counts.sum() / (len(counts) * counts)
    else:
        try:
            weights = np.array([float(part) for part in given.split(",")])
        except ValueError:
            raise DataError(
                f"--class_weights {given} is given; none, balanced or numbers such as 1,2.5 are allowed."
            ) from None
        if len(weights) != len(labels):
            raise DataError(
                f"--class_weights has {len(weights)} numbers for {len(labels)} labels: {', '.join(labels)}."
            )

    def loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        logits = outputs["logits"]
        flat = labels.reshape(-1).to(logits.device)
        table = torch.tensor(weights, dtype=torch.float32, device=logits.device)
        losses = torch.nn.functional.cross_entropy(
            logits.reshape(len(flat), -1).float(), flat, weight=table, reduction="sum", ignore_index=-100
        )
        return losses / ((flat != -100).sum() if num_items_in_batch is None else num_items_in_batch)

    return loss


def train(trainer: FineTuner, training: TrainingArguments, results: dict[str, Any]) -> None:
    """Train or go on training; save the best model, its state and the curves."""
    folder = Path(training.output_dir)
    resume = training.resume_from_checkpoint
    if resume and resume.lower() in ("last", "true"):
        resume = get_last_checkpoint(str(folder))
    output = trainer.train(resume_from_checkpoint=resume)
    trainer.save_model()
    trainer.save_state()
    results |= output.metrics | {"train_samples": len(trainer.train_dataset)}
    results["parameters"] = trainer.model.num_parameters()
    trainer.log_metrics("train", output.metrics)
    if trainer.is_world_process_zero():
        plot_training_curves(trainer.state.log_history, folder / "training_curves.png")


def score(
    task: Task, trainer: FineTuner, split: str, features: Dataset, prefix: str, results: dict[str, Any]
) -> dict[str, str]:
    """Predict a split, measure it where it has labels, and write its report."""
    if "example_index" in features.column_names:
        trainer.compute_metrics = task.metrics.for_windows(features["example_index"])
    output = trainer.predict(features, metric_key_prefix=prefix)
    results |= output.metrics | {f"{prefix}_samples": len(task.data.splits[split])}
    trainer.log_metrics(prefix, output.metrics)
    if not trainer.is_world_process_zero():
        return {}
    return task.report(Path(trainer.args.output_dir), split, features, output.predictions)


def run_card(task: Task, trainer: FineTuner, results: dict[str, Any], sections: dict[str, str]) -> CardContent:
    """What the model card tells of this run: only what was measured in it."""
    options, arguments, training = task.options, task.model, trainer.args
    config = trainer.model.config
    splits = {"validation": "eval", "test": "test"}
    scores = {split: _scores(results, f"{prefix}_") for split, prefix in splits.items()}
    files = [options.train_file or options.test_file or options.dataset_name or "data"]
    title = options.dataset_title or options.dataset_name or Path(files[0]).resolve().parent.name
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps * training.world_size
    return CardContent(
        model_name=(training.hub_model_id or Path(training.output_dir).resolve().name).split("/")[-1],
        model_type=config.model_type,
        task=task.pipeline,
        dataset_name=title,
        results=scores,
        seeds=[training.seed],
        command=typed_command(),
        hyperparameters={
            "parameters": results.get("parameters"),
            "embeddings": _embeddings_of(arguments),
            "hidden size, layers": f"{config.hidden_size}, {config.num_hidden_layers}",
            "learning rate": training.learning_rate,
            "epochs": training.num_train_epochs,
            "examples an update": batch,
            "processes": training.world_size,
            "warm-up": training.warmup_steps,
            "weight decay": training.weight_decay,
            "schedule": getattr(training.lr_scheduler_type, "value", training.lr_scheduler_type),
            "training time (s)": results.get("train_runtime"),
        },
        dataset_id=options.dataset_name,
        synthetic="synthetic" in title.lower(),
        base_model=arguments.model_name_or_path or (arguments.embeddings_from or None),
        examples=task.example_texts(),
        label_list=task.data.label_list,
        regression=task.metrics.task == "regression",
        tables=sections,
        pictures={
            "Training curves": "training_curves.png",
            "Entities by type": "entities_test.png",
            "Confusion matrix": "confusion_test.png",
        },
        repo_id=training.hub_model_id,
    )


_NOT_SCORES = ("runtime", "per_second", "samples", "steps", "model_preparation_time", "_loss")


def _scores(results: dict[str, Any], prefix: str) -> dict[str, float]:
    """The scores of one split among the results, under their own names."""
    found = {name: value for name, value in results.items() if name.startswith(prefix)}
    return {
        name.removeprefix(prefix): value
        for name, value in found.items()
        if not any(word in name for word in _NOT_SCORES)
    }


def _embeddings_of(arguments: Any) -> str:
    if arguments.model_name_or_path:
        return f"those of {arguments.model_name_or_path}"
    if arguments.embeddings_from is None:
        return "random"
    frozen = ", frozen" if arguments.freeze_embeddings else ""
    return f"{arguments.embeddings_mode}, {Path(arguments.embeddings_from).name}{frozen}"


def typed_command() -> str:
    """The command that this process was started by."""
    launcher = "accelerate launch" if "ACCELERATE_MIXED_PRECISION" in os.environ else "python"
    return f"{launcher} {shlex.join(sys.argv)}"


def run_script(task_class: type[Task], model: Any, data: Any, run_arguments: Any, training: TrainingArguments) -> None:
    """`run`, with logging set up; what a user did wrong is told in one message, without a traceback."""
    logging.basicConfig(
        format="%(levelname)s %(message)s", level=logging.INFO if training.should_log else logging.ERROR
    )
    for name in ("httpx", "httpcore", "filelock", "fsspec", "matplotlib"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        run(task_class, model, data, run_arguments, training)
    except (DataError, FileNotFoundError, StrictDataclassError) as error:
        raise SystemExit(f"{Path(sys.argv[0]).name}: {error}") from None
    if training.should_log:
        print(f"\nEverything is in {training.output_dir}: model, scores, predictions, plots, and its card README.md.")
