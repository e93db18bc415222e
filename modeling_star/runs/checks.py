"""What is checked before a run begins: arguments that contradict each other, or would fail only after hours."""

import dataclasses
from pathlib import Path
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import HubStrategy

from ..data.splits import check_fraction
from ..errors import UserError
from ..sources import check_exists
from ..training.arguments import STUDENT, DataArguments, ModelArguments, RunArguments
from ..training.build import check_embeddings, check_lexicon
from ..training.named_models import check_names, saved_config
from ..training.task import Task, is_scored
from .output_folder import changed_arguments


def check_arguments(
    task_class: type[Task],
    model_args: ModelArguments,
    data_args: DataArguments,
    run_args: RunArguments,
    training: TrainingArguments,
) -> None:
    """Check the arguments of a run before any data are read."""
    check_training(training)
    check_fraction(data_args.validation_fraction)
    check_student(data_args)
    task_class.check_arguments(data_args, training)
    check_lexicon(model_args.lexicon, model_args.word_vectors)
    check_embeddings(model_args)
    check_names(model_args)
    check_exists("--dataset_name", data_args.dataset_name, "dataset")
    check_learning_rates(model_args, run_args)
    tokens = run_args.max_tokens_per_batch
    if tokens is not None and (tokens < 1 or training.world_size > 1):
        raise UserError(
            f"--max_tokens_per_batch {tokens} is given to {training.world_size} processes: it is a number from 1, and "
            "for one process; omit it, and write --per_device_train_batch_size 1 --train_sampling_strategy "
            "group_by_length."
        )
    check_head(task_class, model_args)


def check_learning_rates(model_args: ModelArguments, run_args: RunArguments) -> None:
    """Raise a UserError where a rate is not allowed, or nothing that it applies to is pretrained and trained."""
    rate, decay = run_args.encoder_learning_rate, run_args.layerwise_lr_decay
    if rate is not None and not rate > 0:
        raise UserError(f"--encoder_learning_rate {rate:g} is given: write a number above 0, such as 2e-5.")
    if decay is not None and not 0 < decay <= 1:
        raise UserError(f"--layerwise_lr_decay {decay:g} is given: write a number above 0, at most 1, such as 0.9.")
    has_encoder = model_args.embeddings_mode == "contextual" and not model_args.freeze_embeddings
    if (rate, decay) != (None, None) and model_args.encoder is None and not has_encoder:
        flag = "--layerwise_lr_decay" if rate is None else "--encoder_learning_rate"
        raise UserError(
            f"{flag} is for a pretrained encoder, and none is trained here: omit it, or write --model_name_or_path "
            "NAME, or --embeddings_mode contextual without --freeze_embeddings"
        )


_KINDS = {"ForTokenClassification": "tagger", "ForSequenceClassification": "classifier"}


def check_head(task_class: type[Task], model_args: ModelArguments) -> None:
    """Raise a UserError where a classifier is named for a tagger, or the other way round."""
    config = saved_config(model_args)
    saved = ((config and config.architectures) or [""])[0]
    kind = next((kind for ending, kind in _KINDS.items() if saved.endswith(ending)), None)
    needed = _KINDS.get(task_class.head.removeprefix("AutoModel"))
    if kind and needed and kind != needed:
        raise UserError(
            f"--model_name_or_path {model_args.model_name_or_path} is a {kind} ({saved}), and a {needed} is needed "
            "here: name another model, or add --ignore_mismatched_sizes to train a new head on its encoder."
        )


def check_training(training: TrainingArguments) -> None:
    """Check training arguments whose values would fail only after hours of training, or be ignored."""
    supported = {"prediction_loss_only": False, "batch_eval_metrics": False, "eval_do_concat_batches": True}
    for name, value in supported.items():
        if getattr(training, name) != value:
            raise UserError(f"--{name} {getattr(training, name)} leaves no predictions to score and write: omit it.")
    if (training.fp16 or training.fp16_full_eval) and training.device.type == "cpu":
        raise UserError("--fp16 needs a GPU, and this run has none: write --bf16 true, or omit it.")
    if training.push_to_hub and not training.do_train:
        raise UserError(
            "--push_to_hub uploads a model at the end of its training: add --do_train, or upload a finished folder "
            f"with modeling-star push {training.output_dir} YOURNAME/MODEL"
        )
    if training.push_to_hub and training.hub_strategy != HubStrategy.END:
        # Trainer has no public way to choose the files of the others.
        raise UserError(
            f"--hub_strategy {HubStrategy(training.hub_strategy).value} uploads everything in the output folder, "
            "pickles with your --hub_token among it: write --hub_strategy end."
        )


def check_student(data_args: DataArguments) -> None:
    """Raise a UserError where an argument of a student is given without a teacher."""
    if getattr(data_args, "teacher", "") is not None:
        return
    for field in dataclasses.fields(data_args):
        if field.name in STUDENT and getattr(data_args, field.name) != field.default:
            raise UserError(f"--{field.name} is for a student: add --teacher FOLDER, or omit it.")


def check_parts(task: Task, training: TrainingArguments) -> None:
    """Raise a UserError where there are no data, or no model, for the requested parts of a run."""
    if training.do_train and "train" not in task.data.splits:
        raise UserError("There is no train split to train on: add --train_file, or write --do_predict or --do_eval.")
    if training.do_train:
        return
    if not any(is_scored(split, training) for split in task.data.splits):
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


def check_same_rates(checkpoint: Path, config: dict[str, Any]) -> None:
    """Raise a UserError where a checkpoint to resume from has other groups of parameters in its optimizer."""
    rates = {name: config[name] for name in ("encoder_learning_rate", "layerwise_lr_decay")}
    if changes := changed_arguments(checkpoint.parent, rates):
        raise UserError(
            f"{checkpoint} was trained with other learning rates ({changes}): resume with the same, or name another "
            "--output_dir."
        )
