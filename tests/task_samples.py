"""Tiny data for every task, and its trainer."""

from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict

from modeling_star.runs.run import load_task, make_features, make_trainer
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training import arguments as flags
from modeling_star.training.build import build_parts
from modeling_star.training.task import Task


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
    task = load_task(kind, *groups)
    tokenizer, model = parts_of(task)
    task.data_args.max_seq_length = 16
    features = make_features(task, training, tokenizer, model)
    return task, make_trainer(task, training, tokenizer, model, features)


def parts_of(task: Task) -> tuple[Any, Any]:
    """The tokenizer and the model of a task, as `run` makes them."""
    return build_parts(task)


TINY = ("--config_overrides=hidden_size=16,num_attention_heads=2", "--report_to=none")
