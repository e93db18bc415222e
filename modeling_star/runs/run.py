"""
One run from data to report, for one or several seeds: `run`, then `run_once` for each seed, call everything in order.

    arguments -> data, with a validation split -> tokenizer and model -> features -> trainer -> training -> scores ->
    report and card
"""

import json
import logging
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import PreTrainedModel, PreTrainedTokenizerBase, ProgressCallback, TrainingArguments, set_seed

from ..data.splits import ROW, hold_out, load_splits, take_first
from ..data.windows import tokenizing
from ..evaluation.metrics import LESS_IS_BETTER
from ..evaluation.reports import plot_training_curves, score_prefix, seeds_table, summarize_seeds
from ..files import ARGUMENTS, REPORT, find_report, write_json, write_text
from ..loading import check_whole
from ..models.modeling_encoder import longest_input
from ..publish.hub import upload_run
from ..publish.model_card import write_model_card
from ..publish.run_card import run_card
from ..training.arguments import DataArguments, FileArguments, ModelArguments, RunArguments
from ..training.build import build_parts, check_resumed, length_limit
from ..training.checkpoints import ManifestWriter, remove_checkpoints
from ..training.guards import warn_about_majority, warn_about_overlap, warn_about_tokens
from ..training.losses import loss_of
from ..training.settled_arguments import settle_training
from ..training.task import Task, is_scored
from ..training.trainer import EarlyStopping, StarTrainer, separate_rates, uncalibrated
from .checks import check_arguments, check_parts, check_same_rates
from .cli_errors import as_main_process, as_user_error, script_messages
from .output_folder import changed_arguments, check_several_seeds, lock_output_dir, plan_seeds, run_config
from .terminal import TrainingBar, TrainingLines, closing_lines, quiet_libraries


logger = logging.getLogger(__name__)

# Trainer and `Pretrainer` measure these since a run was resumed, not over the whole run.
_SINCE_RESUMED = (
    *("train_runtime", "train_loss", "train_samples_per_second", "train_steps_per_second"),
    "train_tokens_per_second",
)


def run_script(
    task_class: type[Task],
    model_args: ModelArguments,
    data_args: DataArguments,
    run_args: RunArguments,
    training: TrainingArguments,
) -> None:
    """`run`, with one-line errors, little of the libraries' own output, and a closing block."""
    with script_messages(training), quiet_libraries(training.log_level, downloads=True):
        task, results = run(task_class, model_args, data_args, run_args, training)
    if training.should_log:
        print("\n" + "\n".join(closing_lines(task, training, run_args.seeds or [training.seed], results)))


def run(
    task_class: type[Task],
    model_args: ModelArguments,
    data_args: DataArguments,
    run_args: RunArguments,
    training: TrainingArguments,
    splits: DatasetDict | None = None,
) -> tuple[Task, dict[str, Any]]:
    """
    Fine-tune, evaluate and report, for one or several seeds; `splits`: rows in place of those of the files that the
    arguments name. Returns the task with its data, and all results of a single run, or the summary over seeds.
    """
    check_arguments(task_class, model_args, data_args, run_args, training)
    folder = Path(training.output_dir)
    seeds = run_args.seeds or [training.seed]
    folders = [folder]
    if len(seeds) > 1:
        folders = [folder / f"seed-{seed}" for seed in seeds]
        check_several_seeds(seeds, training)
    config = run_config(model_args, data_args, run_args, training)
    with ExitStack() as until_the_end:

        def begin() -> list[tuple[bool, str | None]]:
            until_the_end.enter_context(lock_output_dir(folder))
            return plan_seeds(folders, training, config)

        plan = as_main_process(begin, training)
        logger.info(f"Output folder: {folder}")
        task = load_task(task_class, model_args, data_args, run_args, splits)
        is_held_out = data_args.validation_file is None and data_args.dataset_name is None
        warn_about_overlap(task.data.splits, task.input_columns, is_held_out)
        results = {}
        if len(seeds) > 1 and training.process_index == 0:
            write_json(folder / ARGUMENTS, config)
        for seed, each, (is_finished, checkpoint) in zip(seeds, folders, plan, strict=True):
            if is_finished:
                scores = find_report(each, "all_results.json")
                logger.info(f"The run of seed {seed} is finished already: {scores}")
                results[seed] = json.loads(scores.read_text(encoding="utf-8"))
                continue
            of_seed = copy(training)
            of_seed.seed, of_seed.output_dir, of_seed.resume_from_checkpoint = seed, str(each), checkpoint
            results[seed] = run_once(task, of_seed)
        if len(seeds) == 1:
            return task, results[seeds[0]]
        return task, report_seeds(folder, results, task.metrics.metric_for_best_model, training.process_index == 0)


def run_once(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """One seed: build, train, evaluate, predict, report; returns the content of all_results.json."""
    set_seed(training.seed)
    folder = Path(training.output_dir)
    config = run_config(task.model_args, task.data_args, task.run_args, training)
    config |= {"seed": training.seed, **task.found}
    check_checkpoint(training, config)
    check_parts(task, training)
    with as_user_error(), tokenizing():
        tokenizer, model = build_parts(task.builder if training.do_train else task)
        if not training.do_train:
            check_whole(str(task.model_args.model_name_or_path), model, task.new_parameters or ())
        if training.resume_from_checkpoint:
            check_resumed(training.resume_from_checkpoint, tokenizer, model.config)
        features = make_features(task, training, tokenizer, model)
    if training.do_train:
        uncalibrated(model)
    trainer = make_trainer(task, training, tokenizer, model, features)
    results: dict[str, Any] = {}
    sections: dict[str, str] = {}
    if training.do_train:
        if not training.resume_from_checkpoint and training.process_index == 0:
            write_json(folder / ARGUMENTS, config)
        train(task, trainer, results)
    scored = [split for split in features if is_scored(split, training)]
    for split in (split for split in scored if split.startswith("validation")):
        sections |= score(task, trainer, split, features[split], results)
    if training.do_train:
        task.refit(trainer)
        trainer.save_model(_internal_call=True)  # uploaded after it is measured
    for split in (split for split in scored if not split.startswith("validation")):
        sections |= score(task, trainer, split, features[split], results)
    if trainer.is_world_process_zero():
        if training.do_train:
            sections |= task.compare(trainer, results)
        write_json(folder / REPORT / "all_results.json", results)
        if training.do_train:
            write_model_card(folder, run_card(task, trainer, results, sections))
            if training.push_to_hub:
                upload_run(training)
            if not task.run_args.keeps_checkpoints:
                remove_checkpoints(folder)
    return results


# ------ data


def load_task(
    task_class: type[Task],
    model_args: ModelArguments,
    data_args: DataArguments,
    run_args: RunArguments,
    splits: DatasetDict | None = None,
) -> Task:
    """A task with its data: rows that are read, checked and have a validation split; arguments as in `run`."""
    task = task_class(model_args, data_args, run_args)
    if splits is None:
        splits = read_rows(data_args, task.reads_spans) if task.reads_tables else DatasetDict()
    task.data = with_validation(task, task.prepare(splits))
    task.describe()
    return task


def read_rows(options: DataArguments, with_spans: bool) -> DatasetDict:
    """The rows of the files, or of the data set, that the arguments name."""
    files = {"train": options.train_file, "validation": options.validation_file, "test": options.test_file}
    names = options.column_names if isinstance(options, FileArguments) else None
    return load_splits(
        options.dataset_name,
        options.dataset_config_name,
        files,
        revision=options.dataset_revision,
        column_names=names.split(",") if names else None,
        with_spans=with_spans,
    )


def with_validation(task: Task, data: Any) -> Any:
    """The data with a validation split, held out of train if there is none."""
    options = task.data_args
    fraction = options.validation_fraction
    if "validation" in data.splits or "train" not in data.splits or fraction == 0:
        return data
    logger.warning(f"No validation split: {fraction:.0%} of train is held out (--validation_fraction).")
    splits = hold_out(data.splits, fraction, together=task.held_out_together, classes=task.stratified_by)
    splits["validation"] = take_first(splits["validation"], options.max_eval_samples)
    return replace(data, splits=splits)


# ------ the steps of a seed


def check_checkpoint(training: TrainingArguments, config: dict[str, Any]) -> None:
    """Warn about what has changed since the checkpoint, if any, that a run resumes from."""
    if training.resume_from_checkpoint is None:
        return
    folder, checkpoint = Path(training.output_dir), Path(training.resume_from_checkpoint)
    if training.process_index == 0 and (changes := changed_arguments(folder, config)):
        logger.warning(f"The run in {folder} began with other arguments and continues with the new ones: {changes}")
    check_same_rates(checkpoint, config)
    if len([*checkpoint.glob("rng_state*.pth")]) != training.world_size:
        logger.warning(
            f"{checkpoint} was written by another number of processes: dropout will differ from that of a run without "
            "interruption."
        )


def make_features(
    task: Task, training: TrainingArguments, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel
) -> dict[str, Any]:
    """The model inputs of each split that is trained on or may be scored; the tokenizer is left ready to be saved."""
    requested = task.data_args.max_seq_length
    limit = length_limit(model.config, requested)
    if task.cuts_inputs and requested is not None:
        # A saved tokenizer may have the limit of an earlier training.
        tokenizer.model_max_length = max(tokenizer.model_max_length, limit)
    names = [split for split in task.data.splits if split.split("_")[0] in ("validation", "test")]
    names = [*(["train"] if training.do_train else []), *names]
    with training.main_process_first(desc="tokenizing"):
        features = {split: task.features(split, tokenizer, limit) for split in names}
    for split, inputs in features.items():
        rows = task.data.splits.get(split)
        numbers = rows[ROW][:] if isinstance(rows, Dataset) and ROW in rows.column_names else None
        warn_about_tokens(inputs, tokenizer, split, numbers)
    if task.saved_options:
        options = getattr(model.config, "task_specific_params", None) or {}
        model.config.task_specific_params = {**options, task.pipeline: task.saved_options}
    # The truncation of the last call would be saved with the tokenizer, but not if the features came from a cache.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    longest = limit if task.cuts_inputs else longest_input(model.config)
    if longest is not None:  # stock pipelines truncate, or split into windows, at this length: as it is scored
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    return features


def make_trainer(
    task: Task,
    training: TrainingArguments,
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    features: Mapping[str, Any],
) -> StarTrainer:
    """The trainer of one seed, with the final training arguments, the loss and the callbacks."""
    validation, run_args = features.get("validation"), task.run_args
    # Rows without labels cannot choose the best model; blocks get theirs when they are masked.
    if validation is not None and "labels" not in getattr(validation, "column_names", ["labels"]):
        validation = None
    count = len(features["train"]) if "train" in features else 0
    training = settle_training(training, run_args, task.metrics, model, count, validation is not None)
    rates = separate_rates(task, training, model)  # before a trainer adds what is not pretrained
    loss = loss_of(task, model, training)
    with as_user_error(RuntimeError):  # --report_to a package that is not installed, or the Hub refuses
        trainer = (task.trainer_class or StarTrainer)(
            model=model,
            args=training,
            train_dataset=features.get("train"),
            eval_dataset=validation,
            processing_class=tokenizer,
            data_collator=task.collate(tokenizer),
            compute_metrics=None if validation is None else task.scorer("validation", validation),
            compute_loss_func=None if loss.in_model else loss,
        )
        trainer.loss = loss
        task.prepare_trainer(trainer)
    if trainer.pop_callback(ProgressCallback) is not None:
        kind = TrainingBar if sys.stderr.isatty() else TrainingLines
        trainer.add_callback(kind(task.metrics.metric_for_best_model))
    trainer.add_callback(ManifestWriter())
    if run_args.early_stopping_patience is not None:
        trainer.add_callback(EarlyStopping(run_args.early_stopping_patience))
    trainer.shuffle_length_groups = run_args.shuffle_length_groups
    trainer.max_tokens_per_batch = run_args.max_tokens_per_batch
    trainer.learning_rates = rates
    trainer.averaged = run_args.average_checkpoints if training.do_train else 0
    return trainer


def train(task: Task, trainer: StarTrainer, results: dict[str, Any]) -> None:
    """Train or resume, or fit what no gradient trains; save what was logged and the curves."""
    training, state, began = trainer.args, trainer.state, time.monotonic()
    metrics: dict[str, Any] = {}
    if task.why_untrained is None:
        metrics = trainer.train(resume_from_checkpoint=training.resume_from_checkpoint).metrics
        state = trainer.state
    if training.load_best_model_at_end and state.best_global_step and not trainer.averaged:
        epoch = next((log["epoch"] for log in state.log_history if log.get("step") == state.best_global_step), None)
        logger.info(
            f"The model of step {state.best_global_step:,}, epoch {epoch}, is kept: the best "
            f"{str(training.metric_for_best_model).replace('eval_', '').replace('_', ' ')} on validation."
        )
    more = task.complete(trainer, time.monotonic() - began)
    task.calibrate(trainer)
    if training.resume_from_checkpoint:
        metrics = {name: value for name, value in metrics.items() if name not in _SINCE_RESUMED}
    results |= metrics | {"train_samples": len(trainer.train_dataset), **task.sample_counts}
    results |= {"parameters": trainer.model.num_parameters(), **more}
    if trainer.is_world_process_zero():
        report = Path(training.output_dir) / REPORT
        report.mkdir(exist_ok=True)
        trainer.state.save_to_json(str(report / "trainer_state.json"))
        chosen_by = (training.metric_for_best_model or task.metrics.metric_for_best_model).removeprefix("eval_")
        score = None if chosen_by == "loss" else chosen_by  # the loss has its own panel
        plot_training_curves(
            trainer.state.log_history,
            report / "training_curves.png",
            metric=score,
            greater_is_better=score not in LESS_IS_BETTER,
        )


def score(task: Task, trainer: StarTrainer, split: str, features: Any, results: dict[str, Any]) -> dict[str, str]:
    """Predict a split, measure it if it has labels, and write its report."""
    prefix = score_prefix(split)
    trainer.compute_metrics = task.scorer(split, features)
    output = trainer.predict(features, metric_key_prefix=prefix)
    results |= output.metrics | {f"{prefix}_samples": len(task.data.splits[split])}
    if not trainer.is_world_process_zero():
        return {}
    predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    one_label = task.metrics.task in ("entities", "tokens", "single_label_classification")
    if trainer.args.do_train and split.startswith("validation") and one_label and output.label_ids is not None:
        warn_about_majority(predictions, output.label_ids, task.data.label_list, split)
    return task.report(Path(trainer.args.output_dir) / REPORT, split, features, predictions)


# ------ several seeds


def report_seeds(
    folder: Path, results: dict[int, dict[str, Any]], metric: str, is_main: bool
) -> dict[str, dict[str, Any]]:
    """Write and print the means over seeds, with deviations; returns the summary of `summarize_seeds`."""
    summary = summarize_seeds(results)
    if is_main:
        table = seeds_table(results, [f"{prefix}_{metric}" for prefix in ("eval", "test")])
        write_json(folder / REPORT / "all_results.json", {"seeds": list(results), **summary})
        write_text(folder / REPORT / "seeds.md", table + "\n")
        print(table)
    return summary
