"""The arguments of run_distill.py."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from .arguments import ClassificationArguments, TaggingArguments, flag


@dataclass
class DistillationArguments:
    """Distillation."""

    recipe_keys: ClassVar[frozenset[str]] = frozenset(
        ("teacher_cache", "teacher_batch_size", "temperature", "dataset_config_name", "drop_empty", "class_weights")
    ) | {"ignore_mismatched_sizes", "label_all_tokens", "problem_type", "stride", "task_name", "tfidf_baseline"}
    """Further keys that `--help` does not list."""

    task: Literal["classification", "tagging"] = flag(
        "Task of teacher and student: texts or pairs as in run_glue.py, or words as in run_ner.py.", "classification"
    )
    teacher: str | None = flag("Fine-tuned model to learn from, a Hub name or a folder, with the data's labels.")
    unlabeled_file: list[str] | None = flag(
        "Files of unlabelled texts: txt with one per line, json, jsonl, csv, tsv, parquet or CoNLL, .gz allowed."
    )
    loss: Literal["mse", "kl"] | None = flag(
        "Loss on the teacher's outputs: mse of the logits, the default, or kl of the distributions, the default and "
        "only choice with a CRF."
    )
    temperature: float = flag("Temperature of --loss kl.", 2.0)
    alpha: float = flag(
        "Weight of the labels in the loss of labelled texts; the teacher's outputs have the rest.", 0.0
    )
    hidden_weight: float = flag("Weight of the cosine loss on the inputs of the last layer.", 0.0)
    augment: int = flag("Copies of each labelled text with masked words or as a part, as further unlabelled texts.", 0)
    teacher_batch_size: int = flag("Texts per batch of the teacher.", 64)
    teacher_cache: str | None = flag("Folder of the teacher's outputs; without it, one in the cache of datasets.")


@dataclass
class DistillClassificationArguments(DistillationArguments, ClassificationArguments):
    """Distillation and data."""

    _argument_group_name = "distillation and data"


@dataclass
class DistillTaggingArguments(DistillationArguments, TaggingArguments):
    """Distillation and data."""

    _argument_group_name = "distillation and data"


@dataclass
class AnyDistillationArguments(DistillTaggingArguments, DistillClassificationArguments):
    """Distillation and data."""

    _argument_group_name = "distillation and data"


__all__ = [
    "AnyDistillationArguments",
    "DistillClassificationArguments",
    "DistillTaggingArguments",
    "DistillationArguments",
]
