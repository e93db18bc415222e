"""
The command line of the training commands: `[RECIPE.yaml|RECIPE.json] [--flag value ...]` to typed arguments.

Nothing heavy is imported here, so that `--help` answers at once: `parse` imports transformers.
"""

import argparse
import dataclasses
import difflib
import importlib.util
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from ..errors import UserError
from ..training import arguments
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
# What a recipe says about a fresh model; a saved model has its own shape, embeddings and tokenizer.
FRESH_MODEL = frozenset(
    ("model_type", "config_name", "config_overrides", "embeddings_name_or_path", "embeddings_mode")
) | {"freeze_embeddings", "tokenizer_kind", "lower_case", "vocab_size", "vocabulary_from", "word_vectors"}
# What people type for some flags, and in other programs: by the flag that is meant, one of which a script has.
_MEANT = {
    "learning_rate": "lr rate step_size",
    "per_device_train_batch_size": "batch_size bs batch batchsize train_batch_size per_gpu_train_batch_size "
    "train_bs mini_batch_size",
    "per_device_eval_batch_size": "eval_batch_size per_gpu_eval_batch_size dev_batch_size test_batch_size",
    "num_train_epochs": "epochs epoch num_epochs n_epochs nb_epochs max_epochs train_epochs number_of_epochs",
    "max_steps": "steps num_steps train_steps num_train_steps max_train_steps updates",
    "max_seq_length": "max_length max_len maxlen max_seq_len seq_length seq_len sequence_length block_size max_tokens",
    "model_name_or_path": "model model_name model_path pretrained pretrained_model model_id base_model bert "
    "checkpoint_path init_checkpoint",
    "tokenizer_name": "tokenizer tokenizer_name_or_path tokenizer_path",
    "config_name": "config config_file shape architecture arch",
    "train_file": "train train_data training_data train_path training_file train_set data_file data input input_file",
    "validation_file": "dev dev_file valid valid_file val val_file validation eval_file dev_data validation_data "
    "valid_data eval_data development_file",
    "test_file": "test test_data test_path test_set predict_file",
    "validation_fraction": "validation_split dev_size val_size test_size",
    "dataset_name": "dataset dataset_path data_dir",
    "output_dir": "output out out_dir outdir output_folder output_path save_dir save_path model_dir output_file "
    "save_to",
    "text_column_name": "text_column text text_col text_field sentence_column words_column",
    "label_column_name": "label_column label labels label_col target tags_column label_field",
    "lr_scheduler_type": "scheduler lr_scheduler schedule",
    "warmup_steps": "warmup warmup_ratio warmup_proportion num_warmup_steps",
    "weight_decay": "wd l2 decay",
    "gradient_accumulation_steps": "grad_accum accumulation_steps accumulate_grad_batches grad_acc_steps",
    "max_grad_norm": "clip grad_clip clip_grad gradient_clip gradient_clip_val clip_grad_norm",
    "early_stopping_patience": "patience early_stopping early_stop",
    "resume_from_checkpoint": "resume checkpoint resume_from ckpt continue",
    "dataloader_num_workers": "num_workers workers n_workers",
    "seed": "random_seed random_state",
    "use_cpu": "no_cuda cpu no_gpu",
    "eval_strategy": "evaluation_strategy",
    "metric_for_best_model": "metric best_metric monitor",
    "label_smoothing_factor": "label_smoothing smoothing",
    "lower_case": "do_lower_case lowercase uncased",
    "optim": "optimizer",
    "log_level": "verbose verbosity",
    "embeddings_name_or_path": "embeddings embedding word_vectors vectors glove",
    "config_overrides hidden_size=192": "hidden_size hidden_dim hidden dim d_model",
    "config_overrides num_hidden_layers=2": "num_layers layers num_hidden_layers n_layers",
    "config_overrides num_attention_heads=6": "num_heads heads num_attention_heads n_heads",
    "config_overrides hidden_dropout_prob=0.1": "dropout hidden_dropout_prob",
}
# What to do in place of some flags that a script does not have.
_INSTEAD = {
    "token": " Set HF_TOKEN, or run `hf auth login`.",
    "cache_dir": " Set HF_HOME.",
    **dict.fromkeys(("device", "gpu", "gpus", "cuda"), " A GPU is used if there is one; --use_cpu uses none."),
    "overwrite_output_dir": " Nothing is overwritten: delete the folder, or name another.",
    "teacher": " Omit it, and fine-tune with a teacher: classify --teacher FOLDER, or tag --teacher FOLDER.",
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

TRAINING_HELP = """
training:
  Every field of transformers.TrainingArguments is a flag too; --help_all lists them, and the keys that are meant for
  recipes. The most used:
  --output_dir DIR                     output folder (default: outputs/SCRIPT)
  --do_train --do_eval --do_predict    do only these (default: everything there is data for)
  --num_train_epochs N                 passes over the training data (default: 3)
  --learning_rate X                    peak (default: 0.0005 for a fresh model, 5e-05 for a saved one)
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
) -> tuple[Any, ...]:
    """
    Read `[RECIPE.yaml|RECIPE.json] [--flag value ...]`: the command line overrides the recipe.

    Args:
        groups: dataclasses of the script's own flags.
        description: the script's docstring, for `--help`.
        defaults: training arguments that this script sets differently from the others.
        epilog: help on the training arguments.
        training_class: the class of transformers that holds them.
        typed: what to read; `None`: the command line.

    Returns:
        An object of each class of `groups`, then one of `training_class`.

    Raises:
        SystemExit: help was printed, or a flag or a key of the recipe is wrong.
    """
    script = Path(sys.argv[0]).name
    typed = sys.argv[1:] if typed is None else typed
    typed = [re.sub(r"^--([\w-]+)", lambda name: f"--{_current(name[1])}", argument) for argument in typed]
    if {"-h", "--help"} & set(typed):
        shown = {"per_device_train_batch_size": 8, "warmup_steps": 0, **(defaults or {})}
        _print_help(groups, description, epilog.format(**shown))
        raise SystemExit(0)

    import transformers

    class Parser(transformers.HfArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise SystemExit(f"{script}: {message}")

        def read(self, arguments: list[str]) -> dict[str, Any]:
            """The values of the flags that are given, and only these."""
            values, unknown = self.parse_known_args(arguments)
            if unknown:
                raise SystemExit(f"{script}: {_about_unknown(unknown[0], known)}")
            return {name: value for name, value in vars(values).items() if value is not absent}

    classes = (*groups, getattr(transformers, training_class))
    known = {field.name for group in classes for field in dataclasses.fields(group)}
    # Without abbreviations, so that a mistyped flag is not another one.
    parser = Parser(
        classes,
        prog=script,
        usage=f"{script} [RECIPE.yaml] [--flag value ...]; {script} --help lists the flags",
        allow_abbrev=False,
    )
    if "--help_all" in typed:
        parser.set_defaults(**_defaults({"train_file": ""}, known, defaults or {}))
        parser.print_help()
        raise SystemExit(0)
    absent = object()
    parser.set_defaults(**dict.fromkeys(known, absent))
    recipe: dict[str, Any] = {}
    if typed and _is_recipe(typed[0]):
        recipe, typed = parser.read(read_recipe(Path(typed[0]), known)), typed[1:]
    given = parser.read(typed)
    if "model_name_or_path" in given:
        recipe = {name: value for name, value in recipe.items() if name not in FRESH_MODEL}
    try:
        return from_values(groups, recipe | given, defaults, training_class)
    except (ValueError, ImportError) as error:  # from TrainingArguments, about flags that do not fit together
        if importlib.util.find_spec("accelerate") is None:
            raise ModuleNotFoundError(str(error), name="accelerate") from error
        raise SystemExit(f"{script}: {' '.join(str(error).split())}") from None


def check_typed(groups: tuple[type, ...], typed: Sequence[str]) -> None:
    """
    Refuse known wrong flags, missing files and columns, before the imports of `parse`, which take seconds.

    Raises:
        SystemExit: there is one.
    """
    script = Path(sys.argv[0]).name
    own = {field.name for group in groups for field in dataclasses.fields(group)}
    kinds = [kind for kind in vars(arguments).values() if dataclasses.is_dataclass(kind)]
    of_any = {field.name for kind in kinds for field in dataclasses.fields(kind)}
    given: dict[str, list[str]] = {}
    for argument in typed:
        name, equals, value = argument.partition("=")
        if argument.startswith("--"):
            given[name[2:].replace("-", "_")] = [value] if equals else []
        elif given:
            given[list(given)[-1]].append(argument)
    wrong = {*_INSTEAD, *(word for words in _MEANT.values() for word in words.split())} - own
    for name in given:
        if name in wrong:
            of_transformers = {key for key in _MEANT if key not in of_any}
            raise SystemExit(f"{script}: {_about_unknown(f'--{name}', own | of_transformers)}")
    from ..data.columns import check_columns
    from ..data.files import Options
    from ..data.readers import first_rows, kind_of
    from ..files import ARGUMENTS, check_empty, folder_contents

    try:
        for name in ("train_file", "validation_file", "test_file"):
            for path in map(Path, given.get(name, ()) if name in own else ()):
                if not path.exists():
                    kind_of(path, Options())
        has_recipe = not "".join(typed[:1]).startswith("--")  # which may name the columns
        output = Path("".join(given.get("output_dir", ())[:1]))
        begins = "output_dir" in given and not {"resume_from_checkpoint", "seeds"} & given.keys()
        begins &= "WORLD_SIZE" not in os.environ
        exists = output.exists() or any(map(Path.is_file, output.parents))
        if begins and not has_recipe and exists and not any(output.glob("checkpoint-*")):
            check_empty(output, [name for name in folder_contents(output) if name != ARGUMENTS], "name another folder")
        train = [Path(path) for path in given.get("train_file", ()) if path.endswith((".csv", ".tsv"))]
        flags = {name: given.get(name, [])[:1] for name in ("text_column_name", "label_column_name")}
        if len(train) == 1 and any(flags.values()) and "column_names" not in given and not has_recipe:
            splits: Any = {"train": first_rows(train[0])}
            for name, (value,) in ((name, value) for name, value in flags.items() if value):
                present = splits["train"].column_names
                columns = [value] if value in present else [each.strip() for each in value.split(",")]
                used = [other for each in flags for other in flags[each] if each != name]
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
        if isinstance(group, RunArguments) and given.get("load_best_model_at_end") is False:
            group.takes_last = True
        if isinstance(group, RunArguments) and given.get("save_total_limit") is not None:
            group.keeps_checkpoints = True
    return (*parsed, training)


def _defaults(given: Mapping[str, Any], known: set[str], of_script: Mapping[str, Any]) -> dict[str, Any]:
    """The training arguments of a script where neither the recipe nor the command line sets them."""
    import torch

    defaults = {**DEFAULTS, "output_dir": f"outputs/{Path(sys.argv[0]).stem.split()[-1]}"}
    # Several processes on a CPU communicate by gloo, and memory is pinned only for a device.
    has_accelerator = torch.accelerator.is_available()
    defaults |= {"dataloader_pin_memory": has_accelerator, "use_cpu": not has_accelerator}
    if not has_accelerator and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        defaults["ddp_backend"] = "gloo"
    if "model_name_or_path" not in given:
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
    return RENAMED.get(name.replace("-", "_"), name)


def _is_recipe(argument: str) -> bool:
    return not argument.startswith("-") and Path(argument).suffix in (".yaml", ".yml", ".json")


def _about_unknown(argument: str, known: set[str]) -> str:
    if _is_recipe(argument):
        return f"{argument} follows a flag: write the recipe first."
    if not argument.startswith("-"):
        return f"{argument!r} belongs to no flag: write --flag {argument}."
    name = argument.split("=")[0].lstrip("-").replace("-", "_")
    return f"there is no flag {argument}.{_did_you_mean(name, known, '--')} --help_all lists all flags."


def _did_you_mean(name: str, known: set[str], prefix: str = "") -> str:
    if name in _INSTEAD:
        return _INSTEAD[name]
    meant = [flag for flag, words in _MEANT.items() if name in words.split() and flag.split()[0] in known]
    similar = (
        meant or difflib.get_close_matches(name, sorted(known), n=1) or sorted(each for each in known if name in each)
    )
    return f" Did you mean {prefix}{similar[0]}?" if similar else ""


def _print_help(groups: tuple[type, ...], description: str, epilog: str) -> None:
    """The script's own flags, and the most used training flags; without transformers, whose import takes seconds."""
    script = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(
        usage=f"{script} [RECIPE.yaml] [--flag value ...]",
        description=description.strip(),
        epilog=epilog,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=118),
        add_help=False,
    )
    for group in groups:
        section = parser.add_argument_group(getattr(group, "_argument_group_name", group.__doc__))
        hints = get_type_hints(group)
        for f in dataclasses.fields(group):
            if f.name in RECIPE_KEYS:
                continue
            default = (
                f.default if f.default_factory is dataclasses.MISSING else " ".join(map(str, f.default_factory()))
            )
            default = str(default).lower() if isinstance(default, bool) else default
            text = f.metadata["help"] + ("" if default is None else f" (default: {default})")
            section.add_argument(f"--{f.name}", metavar=_metavar(hints[f.name]), help=text.replace("%", "%%"))
    parser.print_help()


def _metavar(hint: Any) -> str:
    """The placeholder of a flag's value in the help."""
    if get_origin(hint) is Literal:
        return "{" + ",".join(get_args(hint)) + "}"
    if get_origin(hint) is list:
        return f"{_metavar(get_args(hint)[0])} ..."
    if get_args(hint):  # X | None
        return _metavar(get_args(hint)[0])
    return {int: "N", float: "X", bool: "{true,false}"}.get(hint, "TEXT")
