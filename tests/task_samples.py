"""Tiny data for every task, and its trainer."""

from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict

from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training import arguments as flags
from modeling_star.training.task import Task
from modeling_star.training.trainer import settle_training


GROUPS: dict[type[Task], tuple[type, ...]] = {
    TaggingTask: (flags.TaggingModelArguments, flags.TaggingArguments, flags.LabelRunArguments),
    ClassificationTask: (flags.ClassificationModelArguments, flags.ClassificationArguments, flags.LabelRunArguments),
    ReadingTask: (flags.ModelArguments, flags.ReadingArguments, flags.RunArguments),
    PretrainingTask: (flags.ModelArguments, flags.TextArguments, flags.RunArguments),
}
# Options of `parse`, of tasks with other training arguments.
OWN_TRAINING: dict[type[Task], dict[str, Any]] = {}
ROWS: dict[type[Task], list[dict[str, Any]]] = {
    TaggingTask: [
        {"tokens": ["Ann", "sees", "Oslo", "and", "Rome"], "tags": ["B-PER", "O", "B-LOC", "O", "B-LOC"]},
        {"tokens": ["It", "rains"], "tags": ["O", "O"]},
    ],
    ClassificationTask: [{"text": f"text {number}", "label": "ab"[number == 0]} for number in range(8)],
    ReadingTask: [
        {
            "id": str(number),
            "question": f"who {number}",
            "context": f"Ann {number % 4} sees Oslo",
            "answers": {"text": ["Ann"], "answer_start": [0]},
        }
        for number in range(16)
    ],
    PretrainingTask: [{"text": f"a b c d e f {number}"} for number in range(9)],
}

Parsed = tuple[Any, Any, Any, Any]


def table(**columns: list[Any]) -> Dataset:
    """Rows from their columns."""
    return Dataset.from_dict(columns)


def one(**columns: list[Any]) -> DatasetDict:
    """A train split alone."""
    return DatasetDict({"train": table(**columns)})


def trainer_of(kind: type[Task], arguments: Parsed, folder: Path) -> tuple[Any, Any]:
    """A task with its trainer, as `run` makes them."""
    *groups, training = arguments
    training.output_dir = str(folder)
    task = kind(*groups)
    tokenizer, model = task.build()
    features = {split: task.features(split, tokenizer, 16) for split in task.split_names}
    has_validation = task.validation_features(features) is not None
    settled = settle_training(training, task.run_args, task.metrics, model, has_validation)
    return task, task.make_trainer(settled, model, tokenizer, features)


TINY = ("--config_overrides=hidden_size=16,num_attention_heads=2", "--report_to=none")
