"""
The command line of the training commands: `[RECIPE.yaml|RECIPE.json] [--flag value ...]` to typed arguments.

Nothing heavy is imported here, so that `--help` answers at once: `parse` imports transformers.
"""

import argparse
import dataclasses
import difflib
import importlib.util
import itertools
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..errors import UserError
from ..training.arguments import RENAMED, RunArguments, current_names


# Keys for recipes; --help does not list them.
RECIPE_KEYS = frozenset(
    ("vocabulary_from", "model_revision", "dataset_revision", "dataset_title", "n_best_size", "shuffle_length_groups")
) | {
    *("max_eval_samples", "max_predict_samples", "layerwise_lr_decay", "max_tokenizer_samples", "card_examples"),
    *("teacher_cache", "teacher_batch_size", "loss", "temperature", "alpha", "augment"),
}
# Keys of recipes of the command `distill`, which were about the choice between `glue` and `ner`.
IGNORED_KEYS = frozenset(("task",))
# What a recipe says about a new model; a saved model has its own shape, embeddings and tokenizer.
FRESH_MODEL = frozenset(
    ("model_type", "config_name", "config_overrides", "embeddings_name_or_path", "embeddings_mode")
) | {"freeze_embeddings", "tokenizer_kind", "lower_case", "vocab_size", "vocabulary_from", "word_vectors"}
# What to write in place of flags that a script does not have: those that went, and usual ones of other programs.
_INSTEAD = {
    "lr": " Did you mean --learning_rate?",
    **dict.fromkeys(("batch_size", "bs"), " Did you mean --per_device_train_batch_size?"),
    **dict.fromkeys(("epochs", "num_epochs"), " Did you mean --num_train_epochs?"),
    **dict.fromkeys(("model", "model_name"), " Did you mean --model_name_or_path?"),
    **dict.fromkeys(("max_length", "max_len"), " Did you mean --max_seq_length?"),
    **dict.fromkeys(("train", "data"), " Did you mean --train_file?"),
    **dict.fromkeys(("dev", "dev_file", "eval_file"), " Did you mean --validation_file?"),
    "test": " Did you mean --test_file?",
    "output": " Did you mean --output_dir?",
    **dict.fromkeys(("hidden_size", "num_layers"), " Write --config_overrides hidden_size=192,num_hidden_layers=2."),
    "token": " Set HF_TOKEN, or run `hf auth login`.",
    "cache_dir": " Set HF_HOME.",
    **dict.fromkeys(("device", "gpu", "gpus", "cuda"), " A GPU is used if there is one; --use_cpu uses none."),
    "overwrite_output_dir": " Nothing is overwritten: delete the folder, or name another.",
    "teacher": " Omit it, and fine-tune with a teacher: classify --teacher FOLDER, or tag --teacher FOLDER.",
    "label_all_tokens": " Omit it: the first token of a word has its tag.",
    "hidden_weight": " Omit it: a student learns the outputs of its teacher.",
    **dict.fromkeys(
        ("target_recall", "target_precision"),
        " Omit it, and write predict --min_probability 0.1: report/calibration_test.md has what each finds.",
    ),
    **dict.fromkeys(
        ("streaming", "shuffle_buffer"),
        " Omit it: texts stay on disk in any case; write --max_train_samples N for a part of them.",
    ),
}

# What the scripts set differently from transformers' TrainingArguments.
DEFAULTS: dict[str, Any] = {
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "logging_steps": 50,
    "report_to": "none",
    "ddp_broadcast_buffers": False,
    "hub_strategy": "end",
    "label_names": ["labels"],  # of a model for question answering Trainer would take start_positions
}
FRESH_LEARNING_RATE = 5e-4
# Of --pretrained, for sentences and for whole documents: of long texts fewer are in a batch.
PRETRAINED: dict[str, Any] = {"learning_rate": 1e-4, "per_device_train_batch_size": 32, "warmup_steps": 0.1}
TOKENS_OF_PRETRAINED = 4096
# Three epochs of 200 texts, 21 updates, train little (experiments/pages/peers.md).
UPDATES_OF_PRETRAINED = 100

_USUAL = {"per_device_train_batch_size": 8, "warmup_steps": 0}  # in the help
TRAINING_HELP = """
training:
  Every field of transformers.TrainingArguments is a flag too; --help_all lists them, and the keys that are meant for
  recipes. The most used:
  --output_dir DIR                     output folder (default: outputs/SCRIPT)
  --do_train --do_eval --do_predict    do only these (default: everything there is data for)
  --num_train_epochs N                 passes over the training data (default: 3)
  --learning_rate X                    peak (default: 0.0005 for a new model, 0.0001 with --pretrained, 5e-05 for a
                                       saved one)
  --per_device_train_batch_size N      examples per process and step (default: {per_device_train_batch_size})
  --gradient_accumulation_steps N      steps per update (default: 1)
  --warmup_steps X                     number of steps, or below 1 a fraction of all (default: {warmup_steps})
  --metric_for_best_model NAME         score that chooses the best model (default: the task's main score)
  --resume_from_checkpoint last|DIR    resume an interrupted run
  --save_total_limit N                 keep N checkpoints of a finished run (default: none, and 2 while it runs)
  --use_cpu, --bf16, --torch_compile, --gradient_checkpointing
  --log_level debug                    show the traceback of a one-line error
  --push_to_hub --hub_model_id NAME    upload the model and its card at the end, without predictions and checkpoints
"""


def parse(
    groups: tuple[type, ...],
    description: str,
    defaults: Mapping[str, Any] | None = None,
    epilog: str = TRAINING_HELP,
    training_class: str = "TrainingArguments",
    typed: Sequence[str] | None = None,
    checks_files: bool = False,
) -> tuple[Any, ...]:
    """
    Read `[RECIPE.yaml|RECIPE.json] [--flag value ...]`: the command line overrides the recipe.

    argparse reads the flags of `groups`, for which transformers need not be imported, and its HfArgumentParser the
    others.

    Args:
        groups: dataclasses of the script's own flags.
        description: the script's docstring, for `--help`.
        defaults: training arguments that this script sets differently from the others.
        epilog: help on the training arguments.
        training_class: the class of transformers that holds them.
        typed: what to read; `None`: the command line.
        checks_files: refuse files, columns and folders that cannot be used, before the imports, which take seconds.

    Returns:
        An object of each class of `groups`, then one of `training_class`.

    Raises:
        SystemExit: help was printed, or a flag or a key of the recipe is wrong.
    """
    typed = sys.argv[1:] if typed is None else typed
    typed = [re.sub(r"^--([\w-]+)", lambda name: f"--{_current(name[1])}", argument) for argument in typed]
    own = _Flags(groups, description, epilog.format(**{**_USUAL, **(defaults or {})}), "--help_all" in typed)
    if {"-h", "--help"} & set(typed):
        own.print_help()
        raise SystemExit(0)
    if "--help_all" in typed:
        own.print_help()
        others, known = _flags_of_transformers(own.prog, groups, training_class)
        others.set_defaults(**_defaults({"train_file": ""}, known, defaults or {}))
        others.print_help()
        raise SystemExit(0)
    recipe = Path(typed[0]) if typed and _is_recipe(typed[0]) else None
    given, unread = own.read(typed if recipe is None else typed[1:])
    for flag in unread:
        if flag.startswith("--") and _name_of(flag) in _INSTEAD:
            raise SystemExit(f"{own.prog}: {_about_unknown(flag, set())}")
    if checks_files:
        _check_files(own.prog, given, recipe is not None)
    others, known = _flags_of_transformers(own.prog, groups, training_class)
    by_recipe: dict[str, Any] = {}
    if recipe is not None:
        by_recipe = _with_others(others, known, *own.read(read_recipe(recipe, known)))
    given = _with_others(others, known, given, unread)
    if {"model_name_or_path", "pretrained"} & given.keys():
        by_recipe = {name: value for name, value in by_recipe.items() if name not in FRESH_MODEL}
    try:
        return from_values(groups, by_recipe | given, defaults, training_class)
    except (ValueError, ImportError) as error:  # from TrainingArguments, about flags that do not fit together
        if importlib.util.find_spec("accelerate") is None:
            raise ModuleNotFoundError(str(error), name="accelerate") from error
        raise SystemExit(f"{own.prog}: {' '.join(str(error).split())}") from None


def _flags_of_transformers(prog: str, groups: tuple[type, ...], training_class: str) -> tuple[Any, set[str]]:
    """The parser of the flags that transformers knows, and the names of all flags."""
    import transformers

    class Others(transformers.HfArgumentParser):
        error = _Flags.error
        read = _Flags.read

    training = getattr(transformers, training_class)
    others = Others(training, prog=prog, usage=argparse.SUPPRESS, add_help=False, allow_abbrev=False)
    for action in others._actions:
        action.default = argparse.SUPPRESS
    return others, {field.name for group in (*groups, training) for field in dataclasses.fields(group)}


def _with_others(others: Any, known: set[str], given: dict[str, Any], unread: list[str]) -> dict[str, Any]:
    """The values of all flags that are given; an error names one that nobody knows."""
    more, unknown = others.read(unread)
    if unknown:
        raise SystemExit(f"{others.prog}: {_about_unknown(unknown[0], known)}")
    return given | more


class _Flags(argparse.ArgumentParser):
    """The flags of dataclasses, without defaults, as `read` returns those that are given alone."""

    def __init__(self, groups: tuple[type, ...], description: str, epilog: str, shows_all: bool) -> None:
        script = Path(sys.argv[0]).name
        super().__init__(
            prog=script,
            usage=f"{script} [RECIPE.yaml] [--flag value ...]",
            description=description.strip(),
            epilog=epilog,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=118),
            add_help=False,
            allow_abbrev=False,  # so that a mistyped flag is not another one
            argument_default=argparse.SUPPRESS,
        )
        for group in groups:
            section = self.add_argument_group(getattr(group, "_argument_group_name", group.__doc__))
            hints = get_type_hints(group)
            for field in dataclasses.fields(group):
                is_shown = shows_all or field.name not in RECIPE_KEYS
                options = {**_kind(hints[field.name]), "help": _help(field) if is_shown else argparse.SUPPRESS}
                section.add_argument(f"--{field.name}", **options)
        for name in ("output_dir", "resume_from_checkpoint"):  # of transformers, for the checks before its import
            self.add_argument(f"--{name}", help=argparse.SUPPRESS)

    def error(self, message: str) -> NoReturn:
        raise SystemExit(f"{self.prog}: {message}")

    def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
        """The values of the flags that are given, and what is not read."""
        values, unread = self.parse_known_args(arguments)
        return vars(values), unread


def _kind(hint: Any) -> dict[str, Any]:
    """How argparse reads a value of a type."""
    arguments = get_args(hint)
    if get_origin(hint) is Literal:
        return {"choices": arguments, "metavar": "{" + ",".join(arguments) + "}"}
    if get_origin(hint) is list:
        of_one = _kind(arguments[0])
        return {**of_one, "nargs": "+", "metavar": f"{of_one['metavar']} ..."}
    if arguments:  # X | None
        return _kind(arguments[0])
    if hint is bool:
        return {"type": _truth, "nargs": "?", "const": True, "metavar": "{true,false}"}
    return {"type": hint, "metavar": {int: "N", float: "X"}.get(hint, "TEXT")}


def _truth(text: str) -> bool:
    if text.lower() in ("true", "yes", "t", "y", "1"):
        return True
    if text.lower() in ("false", "no", "f", "n", "0"):
        return False
    raise argparse.ArgumentTypeError(f"{text!r} is given: write true or false")


def _help(field: dataclasses.Field[Any]) -> str:
    default = field.default
    if field.default_factory is not dataclasses.MISSING:
        default = " ".join(map(str, field.default_factory()))
    default = str(default).lower() if isinstance(default, bool) else default
    return (field.metadata["help"] + ("" if default is None else f" (default: {default})")).replace("%", "%%")


def _check_files(script: str, given: Mapping[str, Any], has_recipe: bool) -> None:
    """Refuse missing files and columns and a folder that is not empty; a recipe may name others."""
    from ..data.columns import check_columns
    from ..data.detect import detect
    from ..data.files import Options
    from ..data.first_rows import FirstRows
    from ..files import ARGUMENTS, check_empty, folder_contents

    try:
        for name in ("train_file", "validation_file", "test_file"):
            paths = given.get(name) or []
            for path in map(Path, [paths] if isinstance(paths, str) else paths):
                if not path.exists():
                    detect(path)
        output = Path(given.get("output_dir", ""))
        begins = "output_dir" in given and not {"resume_from_checkpoint", "seeds"} & given.keys()
        begins &= not has_recipe and "WORLD_SIZE" not in os.environ
        exists = output.exists() or any(map(Path.is_file, output.parents))
        if begins and exists and not any(output.glob("checkpoint-*")):
            check_empty(output, [name for name in folder_contents(output) if name != ARGUMENTS], "name another folder")
        flags = {name: given[name] for name in ("text_column_name", "label_column_name") if given.get(name)}
        train = given.get("train_file")
        is_table = isinstance(train, str) and train.endswith((".csv", ".tsv"))
        if is_table and flags and "column_names" not in given and not has_recipe:
            rows = detect(train, Options(as_rows=True)).stream()
            splits: Any = {"train": FirstRows.of(list(itertools.islice(rows, 1000)))}
            for name, value in flags.items():
                present = splits["train"].column_names
                columns = [value] if value in present else [each.strip() for each in value.split(",")]
                used = [other for each, other in flags.items() if each != name]
                check_columns(splits, columns, f"--{name}", True, used)
    except UserError as error:
        raise SystemExit(f"{script}: {error}") from None


def from_values(
    groups: tuple[type, ...],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any] | None = None,
    training_class: str = "TrainingArguments",
) -> tuple[Any, ...]:
    """
    The arguments of a script from some of their values; the others have the script's defaults.

    Args:
        groups, defaults, training_class: see `parse`.
        given: values by the names of the flags.

    Returns:
        An object of each class of `groups`, then one of `training_class`.

    Raises:
        UserError: a name is unknown.
        ValueError: values do not fit together.
    """
    import transformers

    classes = (*groups, getattr(transformers, training_class))
    known = {field.name for group in classes for field in dataclasses.fields(group)}
    for name in given.keys() - known:
        raise UserError(f"There is no argument {name!r}.{_did_you_mean(name, known)}")
    values = {**_defaults(given, known, defaults or {}), **given}
    *parsed, training = transformers.HfArgumentParser(classes).parse_dict(values)
    if "metric_for_best_model" not in given:  # TrainingArguments sets the loss for some other flags
        training.metric_for_best_model = training.greater_is_better = None
    for group in parsed:
        if isinstance(group, RunArguments):
            group.takes_last = given.get("load_best_model_at_end") is False
            group.keeps_checkpoints = given.get("save_total_limit") is not None
            if "pretrained" in given and not {"num_train_epochs", "max_steps"} & given.keys():
                group.fewest_updates = UPDATES_OF_PRETRAINED
    return (*parsed, training)


def _defaults(given: Mapping[str, Any], known: set[str], of_script: Mapping[str, Any]) -> dict[str, Any]:
    """The training arguments of a script where neither the recipe nor the command line sets them."""
    import torch

    defaults = {**DEFAULTS, "output_dir": f"outputs/{Path(sys.argv[0]).stem.split()[-1]}"}
    # Several processes on a CPU communicate by gloo, and memory is pinned only for a device.
    has_accelerator = torch.accelerator.is_available()
    defaults |= {"dataloader_pin_memory": has_accelerator, "use_cpu": not has_accelerator}
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if not has_accelerator and processes > 1:
        defaults["ddp_backend"] = "gloo"
    if "pretrained" in given:
        defaults |= PRETRAINED
        defaults |= {"max_tokens_per_batch": TOKENS_OF_PRETRAINED} if processes == 1 else {}
    elif "model_name_or_path" not in given:
        defaults["learning_rate"] = FRESH_LEARNING_RATE
    has_training_data = "train_file" not in known or bool({"train_file", "dataset_name"} & given.keys())
    # run_glue.py downloads a GLUE task if no file is named.
    has_training_data |= "task_name" in given and not {"validation_file", "test_file"} & given.keys()
    does_everything = not any(given.get(part) for part in ("do_train", "do_eval", "do_predict"))
    defaults |= {"do_train": does_everything and has_training_data, "do_eval": does_everything}
    defaults |= {"do_predict": does_everything, **of_script}
    if not given.get("do_train", defaults["do_train"]) or given.get("do_eval") is False:
        defaults["eval_strategy"] = "no"
    return defaults


def load_recipe(path: Path) -> dict[str, Any]:
    """
    The content of a YAML or JSON file, with current names.

    Raises:
        SystemExit: there is no such file, or it holds no mapping.
    """
    import yaml

    if not path.is_file():
        raise SystemExit(f"There is no recipe {path}: name a YAML or JSON file with the script's arguments.")
    try:
        text = path.read_text(encoding="utf-8")
        recipe = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise SystemExit(f"The recipe {path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(recipe, dict):
        raise SystemExit(f"The recipe {path} holds a {type(recipe).__name__}: write `argument: value` lines.")
    return current_names(recipe)


def read_recipe(path: Path, known: set[str]) -> list[str]:
    """
    A recipe as the arguments that could be typed instead; a key without a value is ignored.

    Raises:
        SystemExit: as in `load_recipe`, or a key is unknown.
    """
    typed: list[str] = []
    for key, value in load_recipe(path).items():
        if key in IGNORED_KEYS - known:
            continue
        if key not in known:
            raise SystemExit(f"The recipe {path} sets {key!r}, an unknown argument.{_did_you_mean(str(key), known)}")
        if isinstance(value, list):
            typed += [f"--{key}", *map(str, value)]
        elif value is not None:
            typed.append(f"--{key}={value if isinstance(value, str) else json.dumps(value)}")
    return typed


def _current(name: str) -> str:
    name = name.replace("-", "_")
    return RENAMED.get(name, name)


def _is_recipe(argument: str) -> bool:
    return not argument.startswith("-") and Path(argument).suffix in (".yaml", ".yml", ".json")


def _name_of(flag: str) -> str:
    return flag.split("=")[0].lstrip("-")


def _about_unknown(argument: str, known: set[str]) -> str:
    if _is_recipe(argument):
        return f"{argument} follows a flag: write the recipe first."
    if not argument.startswith("-"):
        return f"{argument!r} belongs to no flag: write --flag {argument}."
    return f"there is no flag {argument}.{_did_you_mean(_name_of(argument), known, '--')} --help_all lists all flags."


def _did_you_mean(name: str, known: set[str], prefix: str = "") -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    similar = difflib.get_close_matches(name, sorted(known), n=1) or sorted(each for each in known if name in each)
    return f" Did you mean {prefix}{similar[0]}?" if similar else ""
