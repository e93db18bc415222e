"""What a run shows in the terminal: little of the libraries below it, one bar, and a closing block."""

import shlex
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import datasets
import psutil
import torch
from transformers import ProgressCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..evaluation.reports import score_lines
from ..files import REPORT
from ..loading import SHOWING, quiet_transformers
from ..training.task import Task


_EXAMPLES = {
    "text-classification": '"A text."',
    "token-classification": '"A sentence ."',
    "question-answering": '--question "A question?" "A text with the answer."',
}
"""What `predict` takes, by transformers' name of the task."""


@contextmanager
def quiet_libraries(log_level: str = "passive", *, downloads: bool = False) -> Iterator[None]:
    """`loading.quiet_transformers`, and no bars of datasets."""
    has_bars = log_level not in SHOWING and not datasets.are_progress_bars_disabled()

    def switch(change: Callable[[], None]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # on an environment variable, which wins
            if has_bars:
                change()

    with quiet_transformers(log_level, downloads=downloads):
        switch(datasets.disable_progress_bars)
        try:
            yield
        finally:
            switch(datasets.enable_progress_bars)


class TrainingLines(TrainerCallback):
    """A line for each loss and evaluation, with the main score and the time left: what a log keeps of a bar."""

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.shown = ("loss", "learning_rate", *dict.fromkeys(("eval_loss", f"eval_{metric}")))
        self.began: tuple[int, float] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self.began = (state.global_step, time.monotonic())

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_end(args, state, control, **kwargs)
        self.began = None

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """One line; all values are in trainer_state.json."""
        values = {name: (logs or {})[name] for name in self.shown if name in (logs or {})}
        if values and state.is_world_process_zero and self.began is not None:
            shown = [f"{name.replace('eval_', 'validation ').replace('_', ' ')} {x:.4g}" for name, x in values.items()]
            shown.append(f"peak memory {peak_memory() / 2**30:.1f} GiB")
            first, began = self.began  # of the run, or of what was resumed
            per_step = (time.monotonic() - began) / max(state.global_step - first, 1)
            left = timedelta(seconds=round(per_step * (state.max_steps - state.global_step)))
            self.write(f"epoch {state.epoch or 0:.2f}: {', '.join(shown)}", f"; {left} left")

    def write(self, line: str, left: str) -> None:
        """Print a line and the time that is left."""
        print(line + left, flush=True)


class TrainingBar(TrainingLines, ProgressCallback):
    """Above a bar, as in transformers, with one bar at a time: in a terminal."""

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """As in transformers; an evaluation within the training has no bar of its own."""
        if self.training_bar is None:
            super().on_prediction_step(args, state, control, **kwargs)
            if self.prediction_bar is not None:
                self.prediction_bar.leave = False

    def write(self, line: str, left: str) -> None:
        """Write above the bar, which has the time."""
        if self.training_bar is not None:
            self.training_bar.write(line)


def peak_memory() -> int:
    """The most bytes that tensors took on this process's GPU so far, or without a GPU the process itself."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource  # Windows has none

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def closing_lines(task: Task, training: TrainingArguments, seeds: list[int], results: Mapping[str, Any]) -> list[str]:
    """
    What a finished run prints last, at most ten lines: scores with those of the baseline, files, the next command.
    """
    folder = Path(training.output_dir)
    model = folder if len(seeds) == 1 else folder / f"seed-{seeds[0]}"
    mean = "" if len(seeds) == 1 else "mean over seeds: "
    lines = [f"{mean}{line}" for line in score_lines(results, task.metrics.metric_for_best_model)[:4]]
    for name in (name.removesuffix("_samples") for name in results if name.endswith("_samples")):
        if name.startswith("test") and f"{name}_{task.metrics.metric_for_best_model}" not in results:
            lines.append(f"{name}: no row has a label, so that only predictions are written, and no score.")
    if task.closing is not None:
        lines.append(f"{task.closing}.")
    has_model = (model / "config.json").is_file()
    if len(seeds) > 1:
        lines.append(f"Folders of the seeds: {folder}; their means: {folder / REPORT / 'seeds.md'}")
    elif has_model:
        lines.append(f"Model and its card README.md: {folder}; scores, plots and predictions: {folder / REPORT}")
    else:
        lines.append(f"Scores, plots and predictions: {folder / REPORT}")
    if pages := sorted((folder / REPORT).glob("errors_*.html")):
        lines.append(f"Mistakes, worst first: {', '.join(map(str, pages))}")
    if has_model and task.pipeline in _EXAMPLES:
        is_pair = task.pipeline == "text-classification" and task.needs_types
        example = '--pairs "A text." "Another text."' if is_pair else _EXAMPLES[task.pipeline]
        lines.append(f"Next: modeling-star predict {shlex.quote(str(model))} {example}")
    return lines
