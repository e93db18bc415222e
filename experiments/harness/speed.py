"""Texts per second of a table's systems on the texts of each task."""

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from datasets import Dataset
from tqdm import tqdm

from harness.launching import environment
from harness.table_runs import FinishedRuns, Runner
from harness.tables import Configuration, Table
from modeling_star.data.splits import load_splits
from modeling_star.inference import Predictor
from modeling_star.inference.tfidf import TERMS, TfidfClassifier


BATCH_SIZES = (1, 32)
THREADS = 2
# Enough of each for a second or more.
TEXTS = {1: 100, 32: 1000}
ROUNDS = 5
# What changes the training and not the model's speed.
_TRAINING = {"task", "teacher", "unlabeled_file", "augment", "loss", "alpha", "learning_rate", "num_train_epochs"}
# The argument that names the teacher, and the teacher's name among the systems.
TEACHER = "teacher"


def measure_speed(runner: Runner, cells: list[list[Configuration]]) -> None:
    """
    Measure the systems of some cells and their teachers, each task's in turn in one process, and keep the medians as
    `speed/TASK` among the table's runs. A model is trained for one step on labels alone: speed does not depend on its
    weights.

    Args:
        runner: of the table.
        cells: the configurations of each; the first is measured.
    """
    torch.set_num_threads(THREADS)
    by_task: dict[str, dict[str, Path]] = {}
    for configuration, *_ in cells:
        task = configuration.task
        arguments = _plain(configuration.arguments)
        folder = runner.untrained(runner.table.tasks[task].script, arguments)
        models = by_task.setdefault(task, {})
        # A baseline that is the same in several settings has one place.
        if not any(name.endswith(f"/{configuration.system}") and models[name] == folder for name in models):
            models[f"{configuration.setting}/{configuration.system}"] = folder
    for task, models in by_task.items():
        name = teacher_of(runner.table, task)
        if name is not None:
            arguments = _plain(runner.table.prerequisite_arguments(name))
            models[TEACHER] = runner.untrained(runner.table.prerequisites[name].script, arguments)
    for task, models in by_task.items():
        test = f"{runner.names['DATA']}/{runner.table.tasks[task].data}/test.jsonl.gz"
        rows = load_splits(files={"test": test})["test"]
        measured = environment(use_cpu=True) | {"threads": THREADS}
        run = {"environment": measured, "texts_per_second": _texts_per_second(models, rows, task)}
        runner.finished.file.keep({f"speed/{task}": run})


def read_speeds(table: Table, results: Path, task: str) -> dict[str, dict[str, float]]:
    """Texts per second by `SETTING/SYSTEM`, or TEACHER, and batch size; empty if nothing was measured."""
    run = FinishedRuns(table, results).file.read(f"speed/{task}")
    return {} if run is None else run["texts_per_second"]


def teacher_of(table: Table, task: str) -> str | None:
    """The prerequisite that is a task's teacher, or `None`."""
    name = table.tasks[task].arguments.get(TEACHER, "")[1:]
    return name if name in table.prerequisites else None


def _plain(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if name not in _TRAINING}


def _texts_per_second(models: dict[str, Path], rows: Dataset, task: str) -> dict[str, dict[str, float]]:
    """The median of interleaved rounds for each model and batch size; models of one folder are measured once."""
    folders = list(dict.fromkeys(models.values()))
    seconds: dict[tuple[Path, int], list[float]] = {}
    for size in BATCH_SIZES:
        batch = rows[: TEXTS[size]]
        count = len(next(iter(batch.values())))
        calls = {folder: _predict(folder, batch, size) for folder in folders}
        for turn in tqdm(range(ROUNDS + 1), desc=f"{task}, batches of {size}", disable=None):
            for folder, call in calls.items():
                started = time.perf_counter()
                call()
                if turn:  # the first warms up
                    seconds.setdefault((folder, size), []).append((time.perf_counter() - started) / count)
    return {
        name: {str(size): round(1 / median(seconds[folder, size]), 1) for size in BATCH_SIZES}
        for name, folder in models.items()
    }


def _predict(folder: Path, batch: dict[str, list[Any]], size: int) -> Callable[[], object]:
    """A function that predicts a batch of rows, `size` at once."""
    if (folder / TERMS).is_file():
        classifier = TfidfClassifier.load(folder)
        texts: list[str] = next(cells for cells in batch.values() if isinstance(cells[0], str))
        parts = [texts[start : start + size] for start in range(0, len(texts), size)]
        return lambda: [classifier.log_probabilities(part) for part in parts]
    predictor = Predictor(str(folder), batch_size=size)
    if size > 1:
        return lambda: predictor(batch)
    each = [{name: [cell] for name, cell in zip(batch, row, strict=True)} for row in zip(*batch.values(), strict=True)]
    return lambda: [predictor(row) for row in each]
