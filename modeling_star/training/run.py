"""One run from data to report, once or for each seed, shared by the scripts that train."""

import json
import logging
from contextlib import ExitStack
from copy import copy
from pathlib import Path
from typing import Any

from transformers import TrainingArguments, set_seed

from ..errors import UserError
from ..evaluation.reports import plot_training_curves, seeds_table, summarize_seeds, write_json, write_text
from ..inference.question_answering import save_options
from ..models.modeling_encoder import longest_input
from ..tasks.base import Task, is_scored, score_prefix
from ..tasks.tfidf_baseline import run_tfidf
from .builders import check_embeddings, check_lexicon, check_resumed, length_limit
from .checkpoints import (
    ARGUMENTS,
    check_several_seeds,
    lock_output_dir,
    plan_seeds,
    run_config,
    warn_of_other_arguments,
)
from .cli_errors import as_main_process, as_user_error, script_messages
from .run_card import run_card
from .trainer import LESS_IS_BETTER, FineTuner


logger = logging.getLogger(__name__)

# What Trainer and `Pretrainer` tell of the part of a run since it was resumed.
_OF_ONE_PART = (
    "train_runtime",
    "train_loss",
    "train_samples_per_second",
    "train_steps_per_second",
    "train_tokens_per_second",
)


def run_script(
    task_class: type[Task], model_args: Any, data_args: Any, run_args: Any, training: TrainingArguments
) -> None:
    """`run`, with its messages."""
    with script_messages(training):
        run(task_class, model_args, data_args, run_args, training)
    if training.should_log:
        made = "scores, predictions"
        if training.do_train and own_model(model_args) == "tfidf":
            made = "model (for run_predict.py), scores, predictions, plots"
        elif training.do_train:
            made = "model, scores, predictions, plots, and its card README.md"
        if run_args.seeds and len(run_args.seeds) > 1:
            made = f"for each seed a folder with {made}; their means in seeds.md and all_results.json"
        print(f"\nEverything is in {training.output_dir}: {made}.")


def run(
    task_class: type[Task], model_args: Any, data_args: Any, run_args: Any, training: TrainingArguments
) -> dict[str, Any]:
    """
    Fine-tune, evaluate and report, once or for each seed.

    Args:
        task_class: the script's task.
        model_args, data_args, run_args: the script's arguments.
        training: transformers' own.

    Returns:
        All results of the one run, or the summary over seeds.
    """
    task_class.check_arguments(data_args, training)
    check_lexicon(model_args.lexicon)
    check_embeddings(model_args)
    seeds = run_args.seeds or [training.seed]
    folders = [Path(training.output_dir)]
    if len(seeds) > 1:
        folders = [Path(training.output_dir) / f"seed-{seed}" for seed in seeds]
        check_several_seeds(seeds, training)
    told = run_config(model_args, data_args, run_args, training)
    with ExitStack() as until_the_end:

        def begin() -> list[tuple[bool, str | None]]:
            until_the_end.enter_context(lock_output_dir(Path(training.output_dir)))
            return plan_seeds(folders, training, told)

        plan = as_main_process(begin, training)
        task = task_class(model_args, data_args, run_args)
        if len(seeds) == 1:
            return run_seed(task, training, seeds[0], folders[0], *plan[0])
        if training.process_index == 0:
            write_json(Path(training.output_dir) / ARGUMENTS, told)
        runs = zip(seeds, folders, plan, strict=True)
        results = {seed: run_seed(task, training, seed, folder, *planned) for seed, folder, planned in runs}
        summary = summarize_seeds(results)
        if training.process_index == 0:
            names = [f"{prefix}_{task.metrics.metric_for_best_model}" for prefix in ("eval", "test")]
            table = seeds_table(results, names)
            write_json(Path(training.output_dir) / "all_results.json", {"seeds": seeds, **summary})
            write_text(Path(training.output_dir) / "seeds.md", table + "\n")
            print(table)
        return summary


def run_seed(
    task: Task, training: TrainingArguments, seed: int, folder: Path, done: bool, checkpoint: str | None
) -> dict[str, Any]:
    """What all_results.json holds of one seed's run: read where it is finished, else run, or gone on with."""
    if done:
        logger.info(f"Seed {seed} is finished already: {folder / 'all_results.json'}")
        return json.loads((folder / "all_results.json").read_text(encoding="utf-8"))
    own = copy(training)  # dataclasses.replace would have it choose by the loss for some flags (5.23)
    own.seed, own.output_dir, own.resume_from_checkpoint = seed, str(folder), checkpoint
    return run_tfidf(task, own) if own_model(task.model_args) == "tfidf" else run_once(task, own)


def own_model(model_args: Any) -> str | None:
    """The kind of a fresh model by the script's arguments, `None` for a saved one."""
    return None if model_args.model_name_or_path else model_args.model_type


def run_once(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    One seed: build, train, evaluate, predict, report.

    Returns:
        What all_results.json holds.
    """
    set_seed(training.seed)
    folder = Path(training.output_dir)
    told = run_config(task.model_args, task.data_args, task.run_args, training)  # before they are settled
    told |= {"seed": training.seed, **task.found}
    if training.resume_from_checkpoint and training.process_index == 0:
        warn_of_other_arguments(folder, told)
    if training.do_train and "train" not in task.split_names:
        raise UserError(
            "There is no train split to train on: add --train_file, or say what else is to be done, --do_predict say."
        )
    if not training.do_train and not any(is_scored(split, training) for split in task.split_names):
        raise UserError(
            "There is nothing to do: no training is asked for, and there is no data of a split that is to be scored. "
            "Add --validation_file with --do_eval, or --test_file with --do_predict."
        )
    if not training.do_train and (task.model_args.model_name_or_path is None or training.resume_from_checkpoint):
        raise UserError(
            "Nothing is to be trained, and what is scored is a saved model: write --model_name_or_path FOLDER and "
            "another --output_dir, without --resume_from_checkpoint; or --do_train too."
        )
    if not training.do_train and task.model_args.ignore_mismatched_sizes:
        raise UserError(
            "--ignore_mismatched_sizes gives the model a new head, and nothing is trained here: leave it away, or add "
            "--train_file."
        )
    with as_user_error():
        tokenizer, model = task.build()
        if training.resume_from_checkpoint:
            check_resumed(training.resume_from_checkpoint, tokenizer, model.config)
        limit = length_limit(model.config, task.data_args.max_seq_length)
        if task.cuts_inputs and task.data_args.max_seq_length is not None:
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
    with as_user_error(RuntimeError):  # --report_to of what is not installed; a repository of the Hub is made here
        trainer = task.make_trainer(training, model, tokenizer, features)
    trainer.shuffle_length_groups = task.run_args.shuffle_length_groups
    trainer.averaged = task.run_args.average_checkpoints if training.do_train else 0
    results: dict[str, Any] = {}
    sections: dict[str, str] = {}
    trainer.card = lambda: run_card(task, trainer, results, sections)
    if training.do_train:
        if not training.resume_from_checkpoint and training.process_index == 0:
            write_json(folder / ARGUMENTS, told)
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


__all__ = ["own_model", "run", "run_once", "run_script", "train"]
