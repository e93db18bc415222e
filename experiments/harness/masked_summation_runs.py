"""
Masked summation from the command line: every system at every length and seed, trained, tested and timed.

Each finished run is a line of one file, and so are the times at each length. What is kept is not repeated, an
interrupted run resumes from its last checkpoint, and tables and figures are made of the file alone.
"""

import logging
import math
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel, Trainer, TrainingArguments, default_data_collator, set_seed

from harness.benchmark import interleave
from harness.stored_runs import RunFile, begin, check_arguments, claim
from harness.launching import environment, read_environment
from harness.masked_summation import MaskedSummation, System, read_shape
from harness.masked_summation_page import write_report
from harness.summation_arguments import SummationArguments
from modeling_star.errors import UserError
from modeling_star.evaluation.metrics import metrics_for
from modeling_star.evaluation.reports import plot_training_curves
from modeling_star.publish.run_card import typed_command
from modeling_star.runs.cli_errors import as_main_process, script_messages
from modeling_star.runs.output_folder import DECISIVE
from modeling_star.training.checkpoints import last_checkpoint
from modeling_star.training.losses import MetricsWithLoss, TaskLoss
from modeling_star.training.named_models import parse_overrides


logger = logging.getLogger(__name__)

STAGES = ("train", "time", "report")
MAX_SECONDS = 60.0  # a slower pass is timed once, not repeated
# The training arguments that a result depends on.
TRAINING = (*DECISIVE, "greater_is_better")

Run = tuple[System, MaskedSummation, int]  # with the seed


class Experiment:
    """
    One call of the script.

    Args:
        options: the script's arguments.
        training: those of transformers; its output folder holds all that is written.

    Raises:
        UserError: an argument that is not allowed, or a system that cannot be built.
    """

    def __init__(self, options: SummationArguments, training: TrainingArguments):
        if not set(options.stages) <= set(STAGES):
            raise UserError(f"--stages {' '.join(options.stages)}: {', '.join(STAGES)} are allowed.")
        self.options, self.training = options, training
        self.seeds = list(dict.fromkeys(options.seeds or [training.seed]))
        self.folder = Path(training.output_dir)
        self.results = RunFile(Path(options.results or self.folder / "results.jsonl"))
        samples = (options.train_samples, options.validation_samples, options.test_samples)
        self.tasks = [
            MaskedSummation(length, options.flagged, options.width, samples, options.draw_seed)
            for length in dict.fromkeys(options.lengths)
        ]
        self.shape = read_shape(options.config_name, options.width)
        self.overrides = parse_overrides(options.config_overrides)
        self.systems = [System(name, self.shape, self.overrides) for name in dict.fromkeys(options.systems)]
        for system in self.systems:  # an error before hours are spent on the systems before it
            system.build(self.tasks[0])

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments that all results depend on."""
        names = ("flagged", "width", "train_samples", "validation_samples", "test_samples", "draw_seed")
        of_task = {name: getattr(self.options, name) for name in names}
        of_training = {name: value for name, value in self.training.to_dict().items() if name in TRAINING}
        return {**of_task, **of_training, "processes": self.training.world_size}

    @property
    def on_cpu(self) -> bool:
        """Whether the CPU computes."""
        return self.training.device.type == "cpu"

    def run(self) -> bool:
        """Do the stages; whether a run failed."""
        failed = "train" in self.options.stages and self.train_all()
        if self.training.process_index == 0:
            if "time" in self.options.stages:
                self.time_all()
            if "report" in self.options.stages:
                print(write_report(self.results.path, self.folder))
        return failed

    # ------ training

    def due(self) -> list[Run]:
        """
        The runs that are not finished: for each length and seed, all systems.

        Raises:
            UserError: a finished one was made with other arguments.
        """
        runs = [(system, task, seed) for task in self.tasks for seed in self.seeds for system in self.systems]
        return [run for run in runs if not self.is_finished(*run)]

    def is_finished(self, system: System, task: MaskedSummation, seed: int) -> bool:
        """
        Whether the result of a run is kept.

        Raises:
            UserError: it was made with other arguments.
        """
        name = run_name(system, task, seed)
        kept = self.results.read(name)
        if kept is None:
            return False
        made_with = kept["arguments"]  # early results list fewer
        requested = {name: value for name, value in self.arguments.items() if name in made_with}
        check_arguments(f"{self.results.path}, run {name},", made_with | kept["config"], requested | system.fields)
        return True

    def train_all(self) -> bool:
        """Train and test what is due; whether a run failed. The others continue."""
        failed = False
        due = as_main_process(self.due, self.training)
        for number, run in enumerate(due, start=1):
            name = run_name(*run)
            logger.info(f"Run {number} of {len(due)}: {name}")
            try:
                result = self.train_one(*run)
            except UserError as error:
                failed = True
                logger.error(str(error))
                continue
            if result is None:
                logger.info(f"{name}: another process does this run, or did it.")
                continue
            guesses = result["guesses"]
            logger.info(
                f"{name}: MSE {result['validation']:.4f} on validation, {result['test']:.4f} on test; guessing k/2 "
                f"{guesses['half']:.4f}, k/n of the sum of all {guesses['scaled']:.4f}"
            )
        return failed

    def train_one(self, system: System, task: MaskedSummation, seed: int) -> dict[str, Any] | None:
        """
        Train and test one system, or resume its run, and keep the result.

        Returns:
            The kept result, or `None` where another process does this run or has finished it.

        Raises:
            UserError: it was begun with other arguments, or its error is not a number.
        """
        folder = self.folder / "runs" / run_name(system, task, seed)
        with ExitStack() as stack:

            def start() -> tuple[bool, str | None]:
                if not stack.enter_context(claim(folder)) or self.is_finished(system, task, seed):
                    return False, None
                checkpoint = last_checkpoint(folder)
                begin(folder, checkpoint is not None, self.arguments | system.fields, environment(self.on_cpu))
                return True, None if checkpoint is None else str(checkpoint)

            free, checkpoint = as_main_process(start, self.training)
            return self._train(system, task, seed, folder, checkpoint) if free else None

    def _train(
        self, system: System, task: MaskedSummation, seed: int, folder: Path, checkpoint: str | None
    ) -> dict[str, Any]:
        name = run_name(system, task, seed)
        set_seed(seed)
        trainer = self._trainer(system.build(task), task, seed, folder)
        output = trainer.train(resume_from_checkpoint=checkpoint)
        test = task.draw("test")
        splits = {"validation": trainer.eval_dataset or task.draw("validation"), "test": test}
        errors = {split: mean_squared_error(trainer, data, split) for split, data in splits.items()}
        if not all(map(math.isfinite, errors.values())):
            raise UserError(f"{name} diverged: its MSE is {errors['test']}. Write a lower --learning_rate")
        result = {
            "system": system.name,
            "length": task.length,
            "seed": seed,
            **errors,
            "guesses": task.guess_errors(test),
            "parameters": trainer.model.num_parameters(only_trainable=True),
            # those of the last part alone would mislead
            "training_seconds": None if checkpoint else round(output.metrics["train_runtime"], 1),
            "arguments": self.arguments,
            "config": system.fields,
            "environment": read_environment(folder),
            "command": typed_command(),
        }
        if self.options.keep_models:
            trainer.save_model(str(folder))
        if trainer.is_world_process_zero():
            plot_training_curves(trainer.state.log_history, folder / "training_curves.png")
            self.results.keep({name: result})
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

    def running(self) -> Iterator[str]:
        """The runs that other processes do."""
        for folder in sorted((self.folder / "runs").glob("*")):
            with claim(folder) as free:
                if not free:
                    yield folder.name

    def time_all(self) -> None:
        """
        Time a forward pass of each system at each length, interleaved, unless another process is training.

        The weights are fresh, since time does not depend on them. Where a length has times, but not of every system,
        all are taken again: only times of one session can be compared.

        Raises:
            UserError: there are times with another batch or configuration, or of another machine.
        """
        running = ", ".join(self.running())
        if running:
            logger.warning(f"No times: another process trains {running}. Afterwards write --stages time report")
            return
        for task in self.tasks:
            name = f"times-n{task.length}"
            kept = self.results.read(name)
            kept_systems = kept["config"] if kept else {}
            systems = [
                System(each, self.shape, self.overrides)
                for each in dict.fromkeys([*kept_systems, *self.options.systems])
            ]
            machine = environment(self.on_cpu)
            commit = machine.pop("commit")  # times of another one can be compared
            made_by = {"rows": self.training.per_device_eval_batch_size, "environment": machine}
            config = {system.name: system.fields for system in systems}
            if kept is not None:
                before = {"rows": kept["rows"]} | kept["environment"] | kept["config"]
                requested = {"rows": made_by["rows"]} | machine | _only(config, kept["config"])
                check_arguments(f"{self.results.path}, run {name},", before, requested)
                if set(config) == set(kept["config"]):
                    continue
            times = {"length": task.length, **self._times(task, systems), **made_by}
            self.results.keep({name: {**times, "commit": commit, "config": config}})

    def _times(self, task: MaskedSummation, systems: Sequence[System]) -> dict[str, Any]:
        """Seconds of each pass over one batch, and the errors of systems that cannot run."""
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


def _only(fields: dict[str, Any], names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name in names}


@torch.no_grad()
def forward(model: PreTrainedModel, inputs: Tensor) -> None:
    """One pass over `[b, n, d]`."""
    model(inputs_embeds=inputs)
    if inputs.is_cuda:
        torch.cuda.synchronize()


def mean_squared_error(trainer: Trainer, data: Any, split: str) -> float:
    """The MSE of a trainer's model over all examples and the d - 1 numbers of each."""
    return trainer.evaluate(data, metric_key_prefix=split)[f"{split}_mse"]


def run_name(system: System, task: MaskedSummation, seed: int) -> str:
    """The name of a run, and of its folder."""
    return f"{system.name}-n{task.length}-seed{seed}"


def run_script(options: SummationArguments, training: TrainingArguments) -> None:
    """`Experiment.run`, with its messages; exits with 1 where a run failed."""
    with script_messages(training):
        failed = Experiment(options, training).run()
    raise SystemExit(int(failed))
