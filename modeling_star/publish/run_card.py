"""The content of a run's model card: its settings, scores and command."""

import os
import re
import shlex
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from ..data.entities import aggregation_for
from ..data.writing_systems import language_of
from ..evaluation.reports import metrics_only
from ..files import REPORT
from ..training.arguments import ModelArguments, RunArguments
from ..training.task import Task
from ..training.trainer import StarTrainer
from .model_card import CardContent, shown_path


EXAMPLE_CHARACTERS = 200  # of a text on the card
CONTEXT_CHARACTERS = 1000  # of the context of a question


def run_card(task: Task, trainer: StarTrainer, results: dict[str, Any], sections: dict[str, str]) -> CardContent:
    """The content of the model card of a run, with what was measured in it."""
    options, training = task.data_args, trainer.args
    config = trainer.model.config
    is_linear = getattr(config, "tfidf_alone", False)
    limit = CONTEXT_CHARACTERS if task.pipeline == "question-answering" else EXAMPLE_CHARACTERS
    file = options.train_file or options.test_file or "data"
    time = {"training time (s)": results.get("train_runtime")}
    if training.resume_from_checkpoint:
        time = {"resumed from": Path(training.resume_from_checkpoint).name}
    return CardContent(
        model_name=(training.hub_model_id or Path(training.output_dir).resolve().name).split("/")[-1],
        model_type="tfidf" if is_linear else config.model_type,
        task=task.pipeline,
        dataset_name=options.dataset_title
        or shown_path(options.dataset_name or "")
        or title_of(file if isinstance(file, str) else file[0]),
        results={
            split: metrics_only(results, prefix) for split, prefix in {"validation": "eval_", "test": "test_"}.items()
        },
        seed=training.seed,
        command=shown_command(task.run_args.typed, training.world_size),
        hyperparameters={
            "parameters": results.get("parameters"),
            **_extras_of(config),
            **({} if is_linear else _settings(task, trainer)),
            **time,
            **task.card_settings(trainer),
        },
        dataset_id=options.dataset_name,
        base_model=None if is_linear else task.model_args.source,
        examples=[shortened(example, limit) for example in task.example_texts()] if options.card_examples else (),
        is_pair=task.needs_types,
        mask_token=trainer.processing_class.mask_token or "[MASK]",
        language=language_of(task.training_texts()) if "train" in task.data.splits else None,
        label_list=task.data.label_list,
        aggregation=aggregation_for(trainer.processing_class),
        regression=task.metrics.task == "regression",
        usage_options=task.usage_options,
        tables=sections,
        pictures={
            "Training curves": f"{REPORT}/training_curves.png",
            "Probabilities": f"{REPORT}/calibration_test.png",
        },
        repo_id=training.hub_model_id,
    )


def _settings(task: Task, trainer: StarTrainer) -> dict[str, Any]:
    """Rows of the card on an encoder and its training."""
    training, config = trainer.args, trainer.model.config
    return {
        "embeddings": _embeddings_of(task.model_args),
        "hidden size, layers": ", ".join(str(getattr(config, n, "?")) for n in ("hidden_size", "num_hidden_layers")),
        "learning rate": training.learning_rate,
        **_separate_rates(task.run_args),
        "epochs": round(trainer.state.epoch or 0, 2),
        "examples per update": training.train_batch_size * training.gradient_accumulation_steps * training.world_size,
        "processes": training.world_size,
        "warm-up": training.warmup_steps,
        "weight decay": training.weight_decay,
        "schedule": getattr(training.lr_scheduler_type, "value", training.lr_scheduler_type),
        **({"checkpoints averaged": trainer.averaged} if trainer.averaged else {}),
    }


def shortened(example: str | tuple[str, ...], limit: int = EXAMPLE_CHARACTERS) -> str | tuple[str, ...]:
    """An example text, or several that belong together, cut to `limit` at a space if there is one."""
    if not isinstance(example, str):
        return tuple(str(shortened(part, limit)) for part in example)
    if len(example) <= limit:
        return example
    beginning = example[:limit]
    return beginning if len(beginning.split()) < limit // 50 else beginning.rsplit(maxsplit=1)[0]


def title_of(file: str) -> str:
    """The title of a data file: its name, or for train.jsonl and the like that of a folder but this and the home."""
    path = Path(file).resolve()
    is_generic = path.name.split(".")[0].lower() in ("train", "training", "validation", "dev", "test", "data")
    return path.parent.name if is_generic and path.parent not in (Path.cwd(), Path.home()) else path.name


def _extras_of(config: PreTrainedConfig) -> dict[str, str]:
    """Rows of the card on the model's n-grams, vote, character features, word vectors and CRF."""
    extras = {}
    if getattr(config, "ngram_buckets", 0):
        extras["n-grams"] = f"up to {config.max_ngram_length} tokens, {config.ngram_buckets:,} buckets"
    if getattr(config, "tfidf_terms", 0):
        extras["TF-IDF"] = f"{config.tfidf_terms:,} terms, up to {config.tfidf_max_length} tokens each"
    if getattr(config, "char_features", False):
        extras["character features"] = f"{config.char_num_filters} wide"
    if getattr(config, "word_vector_size", 0):
        extras["word vectors"] = f"{config.word_vector_count:,} words, {config.word_vector_size} wide"
    if getattr(config, "use_crf", False):
        constraints = getattr(config, "crf_constraints", None)
        extras["CRF"] = f"with constraints ({constraints})" if constraints else "without constraints"
    return extras


def _separate_rates(arguments: RunArguments) -> dict[str, float]:
    """Rows of the card on the pretrained part of the model."""
    rates = {
        "encoder learning rate": arguments.encoder_learning_rate,
        "layer-wise decay": arguments.layerwise_lr_decay,
    }
    return {name: value for name, value in rates.items() if value is not None}


def _embeddings_of(arguments: ModelArguments) -> str:
    if arguments.encoder is not None:
        return f"those of {shown_path(arguments.encoder)}"
    if arguments.embeddings_name_or_path is None:
        return "random"
    frozen = ", frozen" if arguments.freeze_embeddings else ""
    return f"{arguments.embeddings_mode}, {Path(arguments.embeddings_name_or_path).name}{frozen}"


def shown_command(typed: Sequence[str], processes: int = 1) -> str:
    """
    A command of this package as a card shows it: without tokens, and without the folders of this machine. A card is
    published, so that the command line of another program is never on it.
    """
    if not typed:
        return ""
    program, *arguments = typed
    launcher, is_command = "python", program.startswith("modeling-star ")  # see `modeling_star.commands`
    if "ACCELERATE_MIXED_PRECISION" in os.environ:
        launcher = f"accelerate launch --num_processes {processes}"
        program = program.replace("modeling-star ", "-m modeling_star ")
    shown = shlex.join(_shown(flag, word) for flag, word in pairwise(["", *arguments]))
    program = program if is_command else shown_path(program)
    return f"{program} {shown}" if program.startswith("modeling-star ") else f"{launcher} {program} {shown}"


def _shown(flag: str, word: str) -> str:
    """An argument that follows another one, without tokens and folders of this machine."""
    name, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    if (name or flag).replace("-", "_").endswith("_token"):
        return f"{name}{equals}***" if equals or not name else word
    value = shown_path(re.sub(r"hf_\w{8,}|(?<=://)[^/@\s]+(?=@)", "***", value))
    return name + equals + re.sub(r"(?<![\w.~:/-])/(?:[^/\s,;\"']+/)+", "", value)
