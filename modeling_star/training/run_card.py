"""What the model card of a run says: settings and scores of that run, and the command that was typed."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from transformers import PreTrainedConfig

from ..evaluation.reports import metrics_only
from ..inference.pipelines import aggregation_for
from .model_card import CardContent, shown_path


if TYPE_CHECKING:
    from ..tasks.base import Task
    from .trainer import FineTuner


EXAMPLE_CHARACTERS = 1000  # of a text that the card shows

_SECRETS = ("__token", "__hub_token", "__push_to_hub_token")
_SIZES = ("hidden_size", "num_hidden_layers")


def run_card(task: "Task", trainer: "FineTuner", results: dict[str, Any], sections: dict[str, str]) -> CardContent:
    """What the model card tells of this run: only what was measured in it."""
    options, arguments, training = task.data_args, task.model_args, trainer.args
    config = trainer.model.config
    splits = {"validation": "eval_", "test": "test_"}
    scores = {
        split: metrics_only({name: value for name, value in results.items() if name.startswith(prefix)})
        for split, prefix in splits.items()
    }
    named = options.train_file or options.test_file or "data"
    title = options.dataset_title or options.dataset_name or title_of(named if isinstance(named, str) else named[0])
    batch = training.train_batch_size * training.gradient_accumulation_steps * training.world_size
    return CardContent(
        model_name=(training.hub_model_id or Path(training.output_dir).resolve().name).split("/")[-1],
        model_type=config.model_type,
        task=task.pipeline,
        dataset_name=title,
        results=scores,
        seeds=[training.seed],
        command=typed_command(),
        hyperparameters={
            "parameters": results.get("parameters"),
            "embeddings": _embeddings_of(arguments),
            "hidden size, layers": ", ".join(str(getattr(config, n, "?")) for n in _SIZES),
            **_extras_of(config),
            "learning rate": training.learning_rate,
            "epochs": round(trainer.state.epoch or 0, 2),
            "examples an update": batch,
            "processes": training.world_size,
            "warm-up": training.warmup_steps,
            "weight decay": training.weight_decay,
            "schedule": getattr(training.lr_scheduler_type, "value", training.lr_scheduler_type),
            **({"checkpoints averaged": trainer.averaged} if trainer.averaged else {}),
            **(
                {"resumed from": Path(training.resume_from_checkpoint).name}
                if training.resume_from_checkpoint
                else {"training time (s)": results.get("train_runtime")}
            ),
            **task.card_settings(trainer),
        },
        dataset_id=options.dataset_name,
        synthetic="synthetic" in title.lower(),
        base_model=arguments.model_name_or_path or (arguments.embeddings_from or None),
        examples=[shortened(example) for example in task.example_texts()],
        label_list=task.data.label_list,
        aggregation=aggregation_for(trainer.processing_class),
        regression=task.metrics.task == "regression",
        usage_options=task.usage_options,
        tables=sections,
        pictures={
            "Training curves": "training_curves.png",
            "Entities by type": "entities_test.png",
            "Confusion matrix": "confusion_test.png",
            "Answers by length of the context": "lengths_test.png",
        },
        repo_id=training.hub_model_id,
    )


def shortened(example: str | tuple[str, ...]) -> str | tuple[str, ...]:
    """An example text, or several that belong together, as a card has room for: the beginning of a long one."""
    if not isinstance(example, str):
        return tuple(str(shortened(part)) for part in example)
    if len(example) <= EXAMPLE_CHARACTERS:
        return example
    beginning = example[:EXAMPLE_CHARACTERS]
    return beginning if len(beginning.split()) < EXAMPLE_CHARACTERS // 50 else beginning.rsplit(maxsplit=1)[0]


def title_of(file: str) -> str:
    """
    What data are called after a file; train.jsonl and the like say less than the folder that they lie in, unless it is
    the one that the run was started in.
    """
    path = Path(file).resolve()
    says_nothing = path.name.split(".")[0].lower() in (*("train", "training", "validation", "dev", "test"), "data")
    return path.parent.name if says_nothing and path.parent != Path.cwd() else path.name


def _extras_of(config: PreTrainedConfig) -> dict[str, str]:
    """Rows of the card on what a model has beside its layers."""
    extras = {}
    if getattr(config, "char_features", False):
        extras["character features"] = f"{config.char_num_filters} wide"
    if getattr(config, "use_crf", False):
        constraints = getattr(config, "crf_constraints", None)
        extras["CRF"] = f"with constraints ({constraints})" if constraints else "without constraints"
    return extras


def _embeddings_of(arguments: Any) -> str:
    if arguments.model_name_or_path:
        return f"those of {shown_path(arguments.model_name_or_path)}"
    if arguments.embeddings_from is None:
        return "random"
    frozen = ", frozen" if arguments.freeze_embeddings else ""
    return f"{arguments.embeddings_mode}, {Path(arguments.embeddings_from).name}{frozen}"


def typed_command() -> str:
    """
    The command that this process was started by, with what `accelerate launch` was told, without secrets and without
    the folders of this machine.
    """
    if "ACCELERATE_MIXED_PRECISION" not in os.environ:
        return f"python {_without_secrets(sys.argv)}"
    typed = psutil.Process(os.getppid()).cmdline()
    # As `accelerate launch`, or as a module.
    starts = [i + 1 for i, word in enumerate(typed) if word in ("launch", "accelerate.commands.launch")]
    if not starts or sys.argv[0] not in typed:
        return f"accelerate launch {_without_secrets(sys.argv)}"
    return f"accelerate launch {_without_secrets(typed[starts[0] :])}"


def _without_secrets(words: list[str]) -> str:
    """A command line, with stars in the place of the Hub's tokens: cards are published."""
    shown = []
    for before, word in zip(["", *words], words, strict=False):
        flag, equals, _ = word.partition("=")
        if flag.replace("-", "_") in _SECRETS and equals:
            word = f"{flag}=***"
        elif before.replace("-", "_") in _SECRETS:
            word = "***"
        elif equals and flag.startswith("--"):
            word = f"{flag}={shown_path(word.removeprefix(f'{flag}='))}"
        shown.append(shown_path(word))
    return shlex.join(shown)


__all__ = ["EXAMPLE_CHARACTERS", "run_card", "shortened", "title_of", "typed_command"]
