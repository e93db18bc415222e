"""What a run shows in the terminal: little of the libraries below it, one bar, and a closing block."""

import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import psutil
import torch
import transformers
from huggingface_hub import utils as hub
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments

from ..evaluation.reports import score_lines
from ..files import REPORT
from ..training.task import Task


_EXAMPLES = {
    "text-classification": '"A text."',
    "token-classification": '"A sentence ."',
    "question-answering": '--question "A question?" "A text with the answer."',
}
"""What `predict` takes, by transformers' name of the task."""


@contextmanager
def quiet_libraries(log_level: str = "passive", *, downloads: bool = False) -> Iterator[None]:
    """
    Within it, transformers and datasets show no bars and no warnings, such as the report on loaded weights, which the
    commands replace by checks of their own. Afterwards they show what they showed before.

    Args:
        log_level: of the command line: "warning" shows the warnings; "info", "debug" and "detail" show everything.
        downloads: whether downloads still have bars, unless the user has switched them off.
    """
    if log_level in ("info", "debug", "detail"):
        yield
        return
    verbosity = transformers.logging.get_verbosity()
    bars = transformers.logging.is_progress_bar_enabled()
    of_datasets, of_hub = not datasets.are_progress_bars_disabled(), not hub.are_progress_bars_disabled()
    if log_level != "warning":
        transformers.logging.set_verbosity_error()
    _switch(bars, of_datasets, of_hub, on=False)
    if downloads and of_hub:
        hub.enable_progress_bars()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        _switch(bars, of_datasets, of_hub, on=True)


def _switch(bars: bool, of_datasets: bool, of_hub: bool, *, on: bool) -> None:
    """Switch the bars of transformers, datasets and the Hub, each if it was on. An environment variable wins."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # on such a variable
        if bars:  # these switch the Hub's too
            transformers.logging.enable_progress_bar() if on else transformers.logging.disable_progress_bar()
        if of_datasets:
            datasets.enable_progress_bars() if on else datasets.disable_progress_bars()
        hub.enable_progress_bars() if on and of_hub else hub.disable_progress_bars()


class TrainingBar(ProgressCallback):
    """
    As in transformers, with one bar at a time, and the loss, the learning rate and the main score of what is logged.
    """

    def __init__(self, metric: str) -> None:
        super().__init__()
        self.shown = ("loss", "learning_rate", *dict.fromkeys(("eval_loss", f"eval_{metric}")))

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """As in transformers; an evaluation within the training has no bar of its own."""
        if self.training_bar is None:
            super().on_prediction_step(args, state, control, **kwargs)
            if self.prediction_bar is not None:
                self.prediction_bar.leave = False

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
        if values and self.training_bar is not None:
            shown = [f"{name.replace('eval_', 'validation ').replace('_', ' ')} {x:.4g}" for name, x in values.items()]
            shown.append(f"peak memory {peak_memory() / 2**30:.1f} GiB")
            self.training_bar.write(f"epoch {state.epoch or 0:.2f}: {', '.join(shown)}")


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
    What a finished run prints last, at most ten lines: scores beside those of the baseline, files, the next command.

    Args:
        task, training: of the run.
        seeds: one or several, each with a folder in the output folder.
        results: as in all_results.json.
    """
    folder = Path(training.output_dir)
    model = folder if len(seeds) == 1 else folder / f"seed-{seeds[0]}"
    mean = "" if len(seeds) == 1 else "mean over seeds: "
    lines = [f"{mean}{line}" for line in score_lines(results, task.metrics.metric_for_best_model)[:4]]
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
