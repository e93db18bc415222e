"""
Masked summation from the command line: every system at every length and seed, trained, tested and timed.

Each finished run is a small file, and so are the times at each length. What is there already is not done again, a run
that was stopped goes on from its last checkpoint, and tables and figures are made of the files alone.
"""

import json
import logging
import math
import shutil
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock, Timeout
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel, Trainer, TrainingArguments, default_data_collator, set_seed

from lab.benchmark import interleave
from lab.launching import environment, read_environment
from lab.masked_summation import MaskedSummation, System, read_shape
from lab.masked_summation_page import write_report
from lab.summation_arguments import SummationArguments
from modeling_star.errors import UserError
from modeling_star.evaluation.metrics import metrics_for
from modeling_star.evaluation.reports import plot_training_curves, write_json
from modeling_star.training.builders import parse_overrides
from modeling_star.training.checkpoints import DECISIVE, differences, last_checkpoint
from modeling_star.training.cli_errors import as_main_process, script_messages
from modeling_star.training.losses import MetricsWithLoss, TaskLoss
from modeling_star.training.run_card import typed_command


logger = logging.getLogger(__name__)

STAGES = ("train", "time", "report")
MAX_SECONDS = 60.0  # a slower pass is timed once, not repeated
# The training arguments that a result depends on; here no task says which way a score is better.
_TRAINED_BY = (*DECISIVE, "greater_is_better")
# Those of results that tell fewer of them: those that were not named.
_UNTOLD = {field.name: field.default for field in fields(TrainingArguments) if field.name in _TRAINED_BY} | {
    "do_train": True,
    "save_strategy": "epoch",
}


class Experiment:
    """
    Everything that the script was asked for.

    Args:
        options: `SummationArguments` of run_scripts/summation_arguments.py.
        training: transformers' own; its output folder holds all that is written.

    Raises:
        UserError: an argument that is not allowed, or a system that cannot be built.
    """

    def __init__(self, options: SummationArguments, training: TrainingArguments):
        self.options, self.training = options, training
        self.seeds: list[int] = options.seeds or [training.seed]
        self.folder = Path(training.output_dir)
        self.results = Path(options.results) if options.results else self.folder / "results"
        self._check_arguments()
        samples = (options.train_samples, options.validation_samples, options.test_samples)
        self.tasks = [
            MaskedSummation(length, options.flagged, options.width, samples, options.draw_seed)
            for length in options.lengths
        ]
        self.shape = read_shape(options.config_name, options.width)
        self.overrides = parse_overrides(options.config_overrides)
        self.systems = [System(name, self.shape, self.overrides) for name in options.systems]
        for system in self.systems:  # before hours are spent on those in front of it
            system.build(self.tasks[0])

    def _check_arguments(self) -> None:
        options, training = self.options, self.training
        named: dict[str, list[Any]] = {"systems": options.systems, "lengths": options.lengths}
        named |= {"seeds": self.seeds, "stages": options.stages}
        for flag, values in named.items():
            if not values or len(set(values)) < len(values):
                told = f"names {' '.join(map(str, values))}" if values else "is empty"
                raise UserError(f"--{flag} {told}: write each once, and at least one.")
        for stage in options.stages:
            if stage not in STAGES:
                raise UserError(f"--stages names {stage}; {', '.join(STAGES)} are allowed: write --stages time report")
        outside = [seed for seed in self.seeds if not 0 <= seed < 2**32]
        if outside:
            raise UserError(f"--seeds names {outside[0]}; 0 to {2**32 - 1} are allowed: write --seeds 1 2 3")
        if options.repeats < 1:
            raise UserError(f"--repeats {options.repeats} is given; at least 1 is needed: write --repeats 5")
        if not (training.do_train and training.do_eval and training.do_predict):
            raise UserError("What is done is told by --stages: leave --do_train, --do_eval and --do_predict away.")
        if training.push_to_hub:
            raise UserError("--push_to_hub uploads one model, and here are many small ones: leave it away.")
        if training.resume_from_checkpoint not in (None, "last", "true"):
            raise UserError("Every run goes on from its own last checkpoint: leave --resume_from_checkpoint away.")

    @property
    def arguments(self) -> dict[str, Any]:
        """What the results of all systems and lengths depend on alike."""
        options, training = self.options, self.training
        task = ("flagged", "width", "train_samples", "validation_samples", "test_samples", "draw_seed")
        told = {name: value for name, value in training.to_dict().items() if name in _TRAINED_BY}
        return {**{name: getattr(options, name) for name in task}, **told, "processes": training.world_size}

    @property
    def on_cpu(self) -> bool:
        return self.training.device.type == "cpu"

    def run(self) -> bool:
        """Do what is asked for and not there; whether a run failed."""
        failed = False
        if "train" in self.options.stages:
            failed = self.train_all()
        if self.training.process_index == 0:
            if "time" in self.options.stages:
                training = self.runs_in_progress()
                if training:
                    logger.warning(
                        f"Nothing is timed while another process is at {', '.join(training)}, which would disturb the "
                        "times. It takes them when it is done, or: --stages time report"
                    )
                else:
                    self.time_all()
            if "report" in self.options.stages:
                print(write_report(self.results, self.folder))
        return failed

    # ------ training

    def due(self) -> list[tuple[System, MaskedSummation, int]]:
        """
        The runs that are not finished: for each length and seed, all systems.

        Raises:
            UserError: a finished one was made with other arguments.
        """
        due = []
        for task in self.tasks:
            for seed in self.seeds:
                for system in self.systems:
                    path = self.results / f"{run_name(system, task, seed)}.json"
                    kept = read_kept(path)
                    if kept is None:
                        due.append((system, task, seed))
                    else:
                        check_same(path, kept, {"arguments": self.arguments, "config": system.fields})
        return due

    def train_all(self) -> bool:
        """Train and test what is due; whether a run failed, of which the others are independent."""
        failed = False
        due = as_main_process(self.due, self.training)
        for number, (system, task, seed) in enumerate(due, start=1):
            name = run_name(system, task, seed)
            logger.info(f"Run {number} of {len(due)}: {name}")
            try:
                result = self.train_one(system, task, seed)
            except UserError as error:
                failed = True
                logger.error(str(error))
                continue
            if result is None:
                logger.info(f"{name}: another process is at it, or was.")
                continue
            guesses = result["guesses"]
            logger.info(
                f"{name}: MSE {result['validation']:.4f} on validation, {result['test']:.4f} on test; always guessing "
                f"k/2 has {guesses['half']:.4f}, k/n of the sum of all {guesses['scaled']:.4f}"
            )
        return failed

    def train_one(self, system: System, task: MaskedSummation, seed: int) -> dict[str, Any] | None:
        """
        One run, or the rest of one that was stopped; keeps its result.

        Returns:
            What is kept, or `None` where another process is at this run or has finished it.

        Raises:
            UserError: it was begun with other arguments, or its error is no number.
        """
        folder = self.folder / "runs" / run_name(system, task, seed)
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "running.lock")
        if not as_main_process(partial(self._is_free, lock, system, task, seed), self.training):
            return None
        try:
            return self._train_alone(system, task, seed, folder)
        finally:
            lock.release()

    def _is_free(self, lock: FileLock, system: System, task: MaskedSummation, seed: int) -> bool:
        """Whether a run is not finished, and no other process at it: then it is held."""
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return False
        if (self.results / f"{run_name(system, task, seed)}.json").is_file():
            lock.release()
            return False
        return True

    def _train_alone(self, system: System, task: MaskedSummation, seed: int, folder: Path) -> dict[str, Any]:
        """`train_one`, in a folder that no other process writes to."""
        name = run_name(system, task, seed)
        made_by = {"arguments": self.arguments, "config": system.fields}
        checkpoint = as_main_process(partial(begin, folder, made_by, environment(self.on_cpu)), self.training)
        set_seed(seed)
        trainer = self._trainer(system.build(task), task, seed, folder)
        output = trainer.train(resume_from_checkpoint=checkpoint)
        test = task.draw("test")
        errors = {
            "validation": mean_squared_error(trainer, trainer.eval_dataset or task.draw("validation"), "validation"),
            "test": mean_squared_error(trainer, test, "test"),
        }
        if not all(map(math.isfinite, errors.values())):
            raise UserError(
                f"{name} diverged, its MSE is {errors['test']}: write a lower --learning_rate and another "
                "--output_dir."
            )
        result = {
            "system": system.name,
            "length": task.length,
            "seed": seed,
            **errors,
            "guesses": task.guess_errors(test),
            "parameters": trainer.model.num_parameters(only_trainable=True),
            # those of the last part alone would mislead
            "training_seconds": None if checkpoint else round(output.metrics["train_runtime"], 1),
            **made_by,
            "environment": read_environment(folder),
            "command": typed_command(),
        }
        if self.options.keep_models:
            trainer.save_model(str(folder))
        if trainer.is_world_process_zero():
            plot_training_curves(trainer.state.log_history, folder / "training_curves.png")
            write_json(self.results / f"{name}.json", result)
            for path in folder.glob("checkpoint-*"):
                shutil.rmtree(path)
        return result

    def _trainer(self, model: PreTrainedModel, task: MaskedSummation, seed: int, folder: Path) -> Trainer:
        training = replace(self.training, seed=seed, output_dir=str(folder), resume_from_checkpoint=None)
        if training.ddp_find_unused_parameters is None:
            training.ddp_find_unused_parameters = False
        loss = TaskLoss("regression")
        return Trainer(
            model=model,
            args=training,
            train_dataset=task.draw("train"),
            eval_dataset=None if training.eval_strategy == "no" else task.draw("validation"),
            data_collator=default_data_collator,
            compute_metrics=MetricsWithLoss(replace(metrics_for("regression"), names=("mse",))),
            preprocess_logits_for_metrics=loss.preprocess_logits,
            compute_loss_func=loss,
        )

    # ------ test time

    def runs_in_progress(self) -> list[str]:
        """The runs that another process is at."""
        held = []
        for path in sorted(self.folder.glob("runs/*/running.lock")):
            try:
                with FileLock(path, timeout=0):
                    pass
            except Timeout:
                held.append(path.parent.name)
        return held

    def time_all(self) -> None:
        """
        Time a forward pass of each system at each length, interleaved: what disturbs the machine disturbs all of them.

        The weights are fresh, since time does not depend on them. Where a length has times already, but not of every
        system, all are taken again: only those of one sitting can be compared.

        Raises:
            UserError: there are times with another batch or configuration, or of another machine.
        """
        logger.info(f"Timing on {self.training.device}, {environment(self.on_cpu)['threads']} threads")
        for task in self.tasks:
            path = self.results / f"times-n{task.length}.json"
            kept = read_kept(path)
            names = list(dict.fromkeys([*(kept["config"] if kept else []), *self.options.systems]))
            systems = [System(name, self.shape, self.overrides) for name in names]
            machine = environment(self.on_cpu)
            commit = machine.pop("commit")  # times of another one still compare
            made_by = {"rows": self.training.per_device_eval_batch_size, "environment": machine}
            config = {system.name: system.fields for system in systems}
            if kept is not None:
                check_same(path, kept, {**made_by, "config": {name: config[name] for name in kept["config"]}})
                if set(config) == set(kept["config"]):
                    continue
            times = {"length": task.length, **self._times(task, systems), **made_by}
            write_json(path, {**times, "commit": commit, "config": config})

    def _times(self, task: MaskedSummation, systems: Sequence[System]) -> dict[str, Any]:
        """Seconds of each pass over one batch, and the errors of those that cannot run."""
        device, rows = self.training.device, self.training.per_device_eval_batch_size
        inputs = replace(task, samples=(1, 1, rows)).draw("test").inputs.to(device)
        passes = {system.name: partial(forward, system.build(task).eval().to(device), inputs) for system in systems}
        with tqdm(
            desc=f"n = {task.length}", total=len(passes) * (self.options.repeats + 1), unit="pass", disable=None
        ) as bar:
            timings = interleave(passes, self.options.repeats, MAX_SECONDS, tick=bar.update)
        return {
            "seconds": {name: list(timing.seconds) for name, timing in timings.items()},
            "errors": {name: timing.error for name, timing in timings.items() if timing.error},
        }


@torch.no_grad()
def forward(model: PreTrainedModel, inputs: Tensor) -> None:
    """One pass over `[b, n, d]`."""
    model(inputs_embeds=inputs)
    if inputs.is_cuda:
        torch.cuda.synchronize()


def mean_squared_error(trainer: Trainer, data: Any, split: str) -> float:
    """The MSE of a trainer's model: over all examples, and the d - 1 numbers of each."""
    return trainer.evaluate(data, metric_key_prefix=split)[f"{split}_mse"]


def run_name(system: System, task: MaskedSummation, seed: int) -> str:
    """What the files of a run are called."""
    return f"{system.name}-n{task.length}-seed{seed}"


def read_kept(path: Path) -> dict[str, Any] | None:
    """What is kept in a file, or `None`."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def check_same(path: Path, kept: dict[str, Any], asked: dict[str, Any]) -> None:
    """
    Args:
        path: where `kept` was read.
        kept: what was made.
        asked: what it has to have been made by, key by key.

    Raises:
        UserError: it was made by something else.
    """
    asked = json.loads(json.dumps(asked))  # as it is kept: tuples are lists
    before = {key: kept.get(key) for key in asked}
    if "arguments" in asked:
        before["arguments"] = {**_UNTOLD, **kept["arguments"]}
    other = differences(_flat(before), _flat(asked))
    if other:
        raise UserError(
            f"{path} was made with other arguments ({other}): name another --output_dir (and --results, where it is "
            "given), or write the same again."
        )


def _flat(nested: dict[str, Any]) -> dict[str, Any]:
    """What a dictionary and those in it hold, by name."""
    flat: dict[str, Any] = {}
    for name, value in nested.items():
        flat |= _flat(value) if isinstance(value, dict) else {name: value}
    return flat


def begin(folder: Path, made_by: dict[str, Any], now: dict[str, Any]) -> str | None:
    """
    Note in a run's folder what it is made by and in, and find the checkpoint that it goes on from.

    Args:
        now: the environment, of which the commit is forgotten where another one began the run.

    Raises:
        UserError: it was begun with other arguments.
    """
    path = folder / "made_by.json"
    kept = read_kept(path)
    if kept is None:
        write_json(path, made_by)
    else:
        check_same(path, kept, made_by)
    checkpoint = last_checkpoint(folder)
    if checkpoint is not None and read_environment(folder) != now:
        now = {**now, "commit": None}
    write_json(folder / "environment.json", now)
    return None if checkpoint is None else str(checkpoint)


def run_script(options: SummationArguments, training: TrainingArguments) -> None:
    """`Experiment.run`, with its messages; ends with 1 where a run failed."""
    with script_messages(training):
        failed = Experiment(options, training).run()
    raise SystemExit(int(failed))


__all__ = ["Experiment", "run_script"]
