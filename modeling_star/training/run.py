"""One run from data to report, for one or several seeds."""

import json
import logging
from collections.abc import Callable
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, TrainingArguments, set_seed

from ..data.long_runs import tokenizing
from ..errors import UserError
from ..evaluation.reports import baseline_lines, plot_training_curves, score_prefix, seeds_table, summarize_seeds
from ..files import write_json, write_text
from ..loading import check_whole
from ..models.modeling_encoder import longest_input
from .arguments import DataArguments, ModelArguments, RunArguments
from .builders import check_embeddings, check_lexicon, check_names, check_resumed, length_limit
from .checkpoints import (
    ARGUMENTS,
    ManifestWriter,
    changed_arguments,
    check_several_seeds,
    lock_output_dir,
    plan_seeds,
    run_config,
)
from .cli_errors import as_main_process, as_user_error, script_messages
from .guards import warn_about_overlap, warn_about_unknown_tokens
from .learning_rates import check_learning_rates, learning_rates, pretrained_parameters
from .run_card import run_card
from .sources import check_exists
from .task import Task
from .trainer import LESS_IS_BETTER, EarlyStopping, FineTuner, settle_training


logger = logging.getLogger(__name__)

Baseline = Callable[[Task, TrainingArguments], dict[str, Any]]

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
    baselines: dict[str, Baseline] | None = None,
) -> None:
    """`run`, with one-line errors and a last line that names the results."""
    with script_messages(training):
        run(task_class, model_args, data_args, run_args, training, baselines)
    if training.should_log:
        parts = "scores, predictions"
        if training.do_train:
            parts = "model, scores, predictions, plots, and the model card README.md"
        if run_args.seeds and len(run_args.seeds) > 1:
            parts = f"for each seed a folder with {parts}; their means in seeds.md and all_results.json"
        print(f"\nEverything is in {training.output_dir}: {parts}.")
        for page in sorted(Path(training.output_dir).glob("errors_*.html")):
            print(f"Mistakes, worst first: {page}")


def run(
    task_class: type[Task],
    model_args: ModelArguments,
    data_args: DataArguments,
    run_args: RunArguments,
    training: TrainingArguments,
    baselines: dict[str, Baseline] | None = None,
) -> dict[str, Any]:
    """
    Fine-tune, evaluate and report, for one or several seeds.

    Args:
        task_class: the script's task.
        model_args, data_args, run_args: the script's arguments.
        training: transformers' own.
        baselines: values of --model_type that are no neural model, with the functions that run them.

    Returns:
        All results of a single run, or the summary over seeds.
    """
    task_class.check_arguments(data_args, training)
    check_lexicon(model_args.lexicon)
    check_embeddings(model_args)
    check_names(model_args)
    check_exists("--dataset_name", data_args.dataset_name, "dataset")
    check_learning_rates(model_args, run_args)
    folder = Path(training.output_dir)
    seeds = run_args.seeds or [training.seed]
    folders = [folder]
    if len(seeds) > 1:
        folders = [folder / f"seed-{seed}" for seed in seeds]
        check_several_seeds(seeds, training)
    config = run_config(model_args, data_args, run_args, training)
    baseline = None if model_args.model_name_or_path else (baselines or {}).get(model_args.model_type)
    with ExitStack() as until_the_end:

        def begin() -> list[tuple[bool, str | None]]:
            until_the_end.enter_context(lock_output_dir(folder))
            return plan_seeds(folders, training, config)

        plan = as_main_process(begin, training)
        task = task_class(model_args, data_args, run_args)
        warn_about_overlap(task.data.splits, task.input_columns)
        if len(seeds) == 1:
            return _run_seed(task, training, baseline, seeds[0], folders[0], *plan[0])
        if training.process_index == 0:
            write_json(folder / ARGUMENTS, config)
        runs = zip(seeds, folders, plan, strict=True)
        results = {seed: _run_seed(task, training, baseline, seed, each, *planned) for seed, each, planned in runs}
        summary = summarize_seeds(results)
        if training.process_index == 0:
            names = [f"{prefix}_{task.metrics.metric_for_best_model}" for prefix in ("eval", "test")]
            table = seeds_table(results, names)
            write_json(folder / "all_results.json", {"seeds": seeds, **summary})
            write_text(folder / "seeds.md", table + "\n")
            print(table)
            for line in baseline_lines(summary, task.metrics.metric_for_best_model):
                print(f"mean over seeds: {line}")
        return summary


def _run_seed(
    task: Task,
    training: TrainingArguments,
    baseline: Baseline | None,
    seed: int,
    folder: Path,
    is_finished: bool,
    checkpoint: str | None,
) -> dict[str, Any]:
    """The results of one seed: read if its run is finished, otherwise made, from a checkpoint if there is one."""
    if is_finished:
        logger.info(f"Seed {seed} is finished already: {folder / 'all_results.json'}")
        return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    of_seed = copy(training)
    of_seed.seed, of_seed.output_dir, of_seed.resume_from_checkpoint = seed, str(folder), checkpoint
    return run_once(task, of_seed) if baseline is None else baseline(task, of_seed)


def run_once(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    One seed: build, train, evaluate, predict, report.

    Returns:
        The content of all_results.json.
    """
    set_seed(training.seed)
    folder, checkpoint = Path(training.output_dir), training.resume_from_checkpoint
    config = run_config(task.model_args, task.data_args, task.run_args, training)
    config |= {"seed": training.seed, **task.found}
    if checkpoint and training.process_index == 0 and (changes := changed_arguments(folder, config)):
        logger.warning(f"The run in {folder} began with other arguments and continues with the new ones: {changes}")
    if checkpoint:
        check_same_rates(Path(checkpoint), config)
    if checkpoint and len([*Path(checkpoint).glob("rng_state*.pth")]) != training.world_size:
        logger.warning(
            f"{checkpoint} was written by another number of processes: dropout will differ from that of a run without "
            "interruption."
        )
    check_parts(task, training)
    with as_user_error(), tokenizing():
        tokenizer, model = task.build()
        if not training.do_train:
            check_whole(str(task.model_args.model_name_or_path), model, task.new_parameters or ())
        if checkpoint:
            check_resumed(checkpoint, tokenizer, model.config)
        limit = length_limit(model.config, task.data_args.max_seq_length)
        if task.cuts_inputs and task.data_args.max_seq_length is not None:
            # A saved tokenizer may have the limit of an earlier training.
            tokenizer.model_max_length = max(tokenizer.model_max_length, limit)
        with training.main_process_first(desc="tokenizing"):
            features = {
                split: task.features(split, tokenizer, limit)
                for split in task.split_names
                if split != "train" or training.do_train
            }
    for split, inputs in features.items():
        warn_about_unknown_tokens(inputs, tokenizer, split)
    if task.saved_options:
        options = getattr(model.config, "task_specific_params", None) or {}
        model.config.task_specific_params = {**options, task.pipeline: task.saved_options}
    # The truncation of the last call would be saved with the tokenizer, but not if the features came from a cache.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    longest = limit if task.cuts_inputs else longest_input(model.config)
    if longest is not None:  # stock pipelines truncate, or split into windows, at this length: as it is scored
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    has_validation = task.validation_features(features) is not None
    training = settle_training(training, task.run_args, task.metrics, model, has_validation)
    rates = separate_rates(task, training, model)  # before a trainer adds what is not pretrained
    with as_user_error(RuntimeError):  # --report_to a package that is not installed, or the Hub refuses
        trainer = task.make_trainer(training, model, tokenizer, features)
    trainer.add_callback(ManifestWriter())
    if task.run_args.early_stopping_patience is not None:
        trainer.add_callback(EarlyStopping(task.run_args.early_stopping_patience))
    trainer.shuffle_length_groups = task.run_args.shuffle_length_groups
    trainer.learning_rates = rates
    trainer.averaged = task.run_args.average_checkpoints if training.do_train else 0
    results: dict[str, Any] = {}
    sections: dict[str, str] = {}
    trainer.card = lambda: run_card(task, trainer, results, sections)
    if training.do_train:
        if not checkpoint and training.process_index == 0:
            write_json(folder / ARGUMENTS, config)
        train(task, trainer, results)
    for split in sorted(features, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            sections |= task.score(trainer, split, features[split], score_prefix(split), results)
    if training.do_train and trainer.is_world_process_zero():
        sections |= task.compare(trainer, results)
    if trainer.is_world_process_zero():
        write_json(folder / "all_results.json", results)
    if training.do_train:
        trainer.create_model_card()
        if training.push_to_hub:
            trainer.push_to_hub(commit_message="End of training")
    return results


def check_same_rates(checkpoint: Path, config: dict[str, Any]) -> None:
    """
    Raises:
        UserError: a checkpoint to resume from has other groups of parameters in its optimizer.
    """
    rates = {name: config[name] for name in ("encoder_learning_rate", "layerwise_lr_decay")}
    if changes := changed_arguments(checkpoint.parent, rates):
        raise UserError(
            f"{checkpoint} was trained with other learning rates ({changes}): resume with the same, or name another "
            "--output_dir."
        )


def separate_rates(task: Task, training: TrainingArguments, model: PreTrainedModel) -> dict[str, float]:
    """The learning rates of a model's parameters by name, where the arguments set others than --learning_rate."""
    rate, decay = task.run_args.encoder_learning_rate, task.run_args.layerwise_lr_decay
    if (rate, decay) == (None, None):
        return {}
    names = pretrained_parameters(model, task.new_parameters)
    return learning_rates(names, training.learning_rate if rate is None else rate, 1.0 if decay is None else decay)


def is_scored(split: str, training: TrainingArguments) -> bool:
    """Whether the arguments request the scores of a split."""
    return {"validation": training.do_eval, "test": training.do_predict}.get(split.split("_")[0], False)


def check_parts(task: Task, training: TrainingArguments) -> None:
    """
    Raises:
        UserError: there are no data, or no model, for the requested parts of a run.
    """
    if training.do_train and "train" not in task.split_names:
        raise UserError("There is no train split to train on: add --train_file, or write --do_predict or --do_eval.")
    if training.do_train:
        return
    if not any(is_scored(split, training) for split in task.split_names):
        raise UserError(
            "There is nothing to do, without training and without data to score: add --validation_file with "
            "--do_eval, or --test_file with --do_predict."
        )
    if task.model_args.model_name_or_path is None or training.resume_from_checkpoint:
        raise UserError(
            "Without training a saved model is scored: write --model_name_or_path FOLDER and another --output_dir, "
            "without --resume_from_checkpoint; or add --do_train."
        )
    if task.model_args.ignore_mismatched_sizes:
        raise UserError(
            "--ignore_mismatched_sizes gives the model a new head, and nothing is trained here: omit it, or add "
            "--train_file."
        )


def train(task: Task, trainer: FineTuner, results: dict[str, Any]) -> None:
    """Train or resume; save the best model, its state and the curves."""
    training = trainer.args
    output = trainer.train(resume_from_checkpoint=training.resume_from_checkpoint)
    trainer.save_model(_internal_call=True)  # uploaded after it is measured
    trainer.save_state()
    metrics = output.metrics
    if training.resume_from_checkpoint:
        metrics = {name: value for name, value in metrics.items() if name not in _SINCE_RESUMED}
    results |= metrics | task.training_results(trainer)
    results["parameters"] = trainer.model.num_parameters()
    trainer.log_metrics("train", metrics)
    if trainer.is_world_process_zero():
        chosen_by = (training.metric_for_best_model or task.metrics.metric_for_best_model).removeprefix("eval_")
        score = None if chosen_by == "loss" else chosen_by  # the loss has its own panel
        plot_training_curves(
            trainer.state.log_history,
            Path(training.output_dir) / "training_curves.png",
            metric=score,
            greater_is_better=score not in LESS_IS_BETTER,
        )
