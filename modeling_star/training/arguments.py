"""
The arguments of the training scripts: dataclasses, and their parser for recipes and the command line.

This file imports nothing heavy, so that `--help` answers at once: `parse` imports transformers.
"""

import argparse
import dataclasses
import difflib
import json
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints


def flag(help: str, default: Any = None, **metadata: Any) -> Any:
    """A dataclass field with its help text, and other metadata that argparse reads."""
    metadata["help"] = help
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)
    return field(default=default, metadata=metadata)


_TYPES = "star_transformer, big_transformer, vanilla_transformer, disan or bilstm"


@dataclass
class ModelArguments:
    """Model, tokenizer and embeddings."""

    _argument_group_name = "model, tokenizer and embeddings"
    ignore_mismatched_sizes = False  # a flag of the scripts whose data have labels

    model_name_or_path: str | None = flag("Saved model to fine-tune; it replaces a recipe's fresh model.")
    model_type: str | None = flag(f"Type of a fresh model: {_TYPES}, in the paper's form.")
    config_name: str | None = flag(
        "Configuration of a fresh model: a file, or a name such as star-base, the paper's form; without it or "
        "--model_type, star-plus."
    )
    config_overrides: str | None = flag("Configuration fields to set, such as hidden_size=192,use_crf=false.")
    tokenizer_name: str | None = flag("Tokenizer, if not the model's; without any, one is trained on the data.")
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a trained tokenizer: character suits Chinese, word suits word vectors.", "word"
    )
    lower_case: bool = flag("Lower-case the text in a trained tokenizer.", True)
    vocab_size: int = flag("Maximum vocabulary size of a trained tokenizer.", 30000)
    embeddings_name_or_path: str | None = flag("Embeddings of a fresh model: a BERT or a file of word vectors.")
    embeddings_mode: Literal["static", "contextual", "vectors"] = flag(
        "Use a BERT's word embeddings (static), a BERT's output (contextual), or a file of word vectors (vectors).",
        "static",
    )
    vocabulary_from: Literal["data", "vectors"] = flag(
        "Words of a trained tokenizer: those of the training split, or also those of the file of vectors.", "data"
    )
    lexicon: str | None = flag("Words for big_transformer: a file with one word per line, jieba, or whole_word.")
    freeze_embeddings: bool = flag("Do not train the embeddings.", False)
    model_revision: str = flag("Branch, tag or commit of the model on the Hub.", "main")
    trust_remote_code: bool = flag("Run the code that a saved model ships.", False)


@dataclass
class ClassificationModelArguments(ModelArguments):
    """Model, tokenizer and embeddings of a classifier."""

    model_type: str | None = flag(f"Type of a fresh model: {_TYPES}, in the paper's form, or tfidf.")
    ignore_mismatched_sizes: bool = flag("Replace a head whose size differs from the data's labels.", False)


@dataclass
class TaggingModelArguments(ModelArguments):
    """Model, tokenizer and embeddings of a tagger."""

    # Entities are often rare words: subwords and capitals say something about them.
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a trained tokenizer: character suits Chinese, word suits word vectors.", "wordpiece"
    )
    lower_case: bool = flag("Lower-case the text in a trained tokenizer.", False)
    vocab_size: int = flag("Maximum vocabulary size of a trained tokenizer.", 8000)
    ignore_mismatched_sizes: bool = flag("Replace a head whose size differs from the data's labels.", False)


@dataclass
class DataArguments:
    """Data of any script."""

    _argument_group_name = "data"

    dataset_name: str | None = flag("Data set on the Hub, or a folder, in place of files.")
    dataset_config_name: str | None = flag("Configuration of the data set.")
    dataset_revision: str | None = flag("Branch, tag or commit of the data set.")
    dataset_title: str | None = flag("Name of the data on the model card; write synthetic for generated data.")
    train_file: str | None = flag("Training file: json, jsonl, csv, tsv or parquet, .gz allowed.")
    validation_file: str | None = flag("Validation file, which chooses the best model.")
    test_file: str | None = flag("Test file, which is scored at the end.")
    validation_fraction: float = flag("Fraction of train held out if there is no validation split.", 0.1)
    max_seq_length: int | None = flag("Maximum number of tokens of an input; without it, the model's.")
    max_train_samples: int | None = flag("Use only the first N training examples.")
    max_eval_samples: int | None = flag("Use only the first N validation examples.")
    max_predict_samples: int | None = flag("Use only the first N test examples.")
    card_examples: bool = flag(
        "Show texts of the test or validation split on the model card, which is published with the model.", False
    )


@dataclass
class FileArguments(DataArguments):
    """Data in tables, one example per row."""

    column_names: str | None = flag("Columns of a file without header, such as label,text; _ skips one.")
    drop_empty: bool = flag("Skip empty rows with a warning instead of stopping.", False)


@dataclass
class TaggingArguments(FileArguments):
    """Data of run_ner.py."""

    train_file: str | None = flag("Training file: json, jsonl, csv, tsv, parquet or CoNLL, .gz allowed.")
    text_column_name: str | None = flag("Column of the words; without it, a known name such as tokens.")
    label_column_name: str | None = flag("Column of the tags; without it, a known name such as ner_tags.")
    stride: int | None = flag("Overlap in tokens of the windows of a long input; without it, training truncates.")
    label_all_tokens: bool = flag("Label every token of a word, B- becoming I-, not only the first.", False)


@dataclass
class ClassificationArguments(FileArguments):
    """Data of run_glue.py."""

    task_name: str | None = flag("GLUE task, which sets columns and metrics: cola, sst2, mrpc, stsb, ...")
    text_column_name: str | None = flag("Column of the texts, or two for pairs, separated by a comma.")
    label_column_name: str | None = flag("Column of the labels, or several 0/1 columns separated by commas.")
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = flag(
        "Kind of the labels; write multi_label_classification if a cell holds several separated by a comma, | or ;."
    )
    tfidf_baseline: bool = flag("Compare with TF-IDF and logistic regression, fitted beside in seconds.", True)


@dataclass
class ReadingArguments(DataArguments):
    """Data of run_qa.py."""

    train_file: str | None = flag("Training file: SQuAD's json, or json, jsonl or parquet with one question per row.")
    drop_empty: bool = flag("Skip empty rows with a warning instead of stopping.", False)
    text_column_name: str | None = flag("Columns of question and context, separated by a comma.")
    label_column_name: str | None = flag('Column of the answers, {"text": [...], "answer_start": [...]}.')
    doc_stride: int = flag("Overlap in tokens of the windows of a long context.", 128)
    n_best_size: int = flag("Number of answers per question in the predictions.", 20)
    max_answer_length: int = flag("Maximum number of tokens of a predicted answer.", 30)
    version_2_with_negative: bool = flag("Some questions have no answer, as in SQuAD 2.0.", False)
    null_score_diff_threshold: float = flag("Predict no answer if its score exceeds the best answer's by more.", 0.0)
    answer_language: Literal["en", "zh"] | None = flag(
        "Compare answers by words (en, as SQuAD) or by Chinese characters (zh, as CMRC 2018); without it, detected."
    )


@dataclass
class TextArguments(DataArguments):
    """Data of run_mlm.py: running text."""

    train_file: list[str] | None = flag(  # type: ignore[assignment]  # several files of each split
        "Training files: txt, json, jsonl, csv, tsv or parquet, .gz allowed."
    )
    validation_file: list[str] | None = flag("Validation files.")  # type: ignore[assignment]
    test_file: list[str] | None = flag("Test files.")  # type: ignore[assignment]
    validation_fraction: float = flag("Fraction of train held out if there is no validation split.", 0.05)
    max_seq_length: int = flag("Number of tokens of a block; longer documents are split.", 512)
    sample_by: Literal["line", "paragraph", "file"] = flag("Document of a .txt file.", "line")
    text_column_name: str | None = flag("Column of the texts in other files; without it, a known name such as text.")
    streaming: bool = flag("Read the training data during training; needs --max_steps.", False)
    shuffle_buffer: int = flag("Documents in the shuffle buffer of a stream; 0 for no shuffling.", 10000)
    packing: bool = flag("Pack several documents into a block; false pads each document.", True)
    mlm_probability: float = flag("Fraction of the tokens to mask.", 0.15)
    mask_unit: str = flag("Unit of masking: token, whole_word, jieba, or a file with one word per line.", "token")
    max_tokenizer_samples: int | None = flag("Documents to train a tokenizer on; without it all, or 100,000.")
    teacher: str | None = flag("Encoder whose last hidden states are learned, a Hub name or a folder.")
    alpha: float = flag("Weight of the masked-LM loss beside that of --teacher; at 0 nothing is masked.", 0.0)


@dataclass
class RunArguments:
    """The run."""

    _argument_group_name = "run"
    class_weights = "none"  # a flag of the scripts whose data have classes
    # Whether the user wrote --load_best_model_at_end false; TrainingArguments cannot tell it from the default.
    takes_last = False

    seeds: list[int] | None = flag("Several seeds in one call, reported with mean and deviation: --seeds 1 2 3.")
    encoder_learning_rate: float | None = flag(
        "Learning rate of what is pretrained: a saved model but for a new head, or the BERT of --embeddings_mode "
        "contextual; without it, --learning_rate."
    )
    layerwise_lr_decay: float | None = flag(
        "Factor of the learning rate from each pretrained layer to the one below it; the embeddings are the lowest."
    )
    early_stopping_patience: int | None = flag("Stop after N evaluations without a better score.")
    average_checkpoints: int = flag("Average the weights of the last N checkpoints; 0 takes the best one.", 0)
    shuffle_length_groups: bool = flag("Shuffle length-grouped batches; false keeps Trainer's order.", True)


@dataclass
class LabelRunArguments(RunArguments):
    """The run, on data with classes."""

    class_weights: str = flag("Weights of the classes in the loss: none, balanced, or one number per class.", "none")


# Old names, accepted on the command line, in recipes and in the arguments of earlier runs.
RENAMED = {"embeddings_from": "embeddings_name_or_path", "text_unit": "sample_by"}
# Keys for recipes; --help does not list them.
RECIPE_KEYS = frozenset(
    ("vocabulary_from", "model_revision", "dataset_revision", "dataset_title", "n_best_size", "shuffle_length_groups")
) | {"max_eval_samples", "max_predict_samples", "layerwise_lr_decay", "max_tokenizer_samples", "card_examples"}
# What a recipe says about a fresh model; a saved model has its own shape, embeddings and tokenizer.
FRESH_MODEL = frozenset(
    ("model_type", "config_name", "config_overrides", "embeddings_name_or_path", "embeddings_mode")
) | {"freeze_embeddings", "tokenizer_kind", "lower_case", "vocab_size", "vocabulary_from"}
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

# An epoch of pretraining may take days.
PRETRAINING_DEFAULTS: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
    "include_num_input_tokens_seen": "non_padding",
}

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
) -> tuple[Any, ...]:
    """
    Read `[RECIPE.yaml|RECIPE.json] [--flag value ...]`: the command line overrides the recipe.

    Args:
        groups: dataclasses of the script's own flags.
        description: the script's docstring, for `--help`.
        defaults: training arguments that this script sets differently from the others.
        epilog: help on the training arguments.
        training_class: the class of transformers that holds them.

    Returns:
        An object of each class of `groups`, then one of `training_class`.

    Raises:
        SystemExit: help was printed, or a flag or a key of the recipe is wrong.
    """
    script = Path(sys.argv[0]).name
    typed = [re.sub(r"^--([\w-]+)", lambda name: f"--{_current(name[1])}", argument) for argument in sys.argv[1:]]
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
            return vars(values)

    # Without abbreviations, so that a mistyped flag is not another one.
    parser = Parser(
        (*groups, getattr(transformers, training_class)),
        prog=script,
        usage=f"{script} [RECIPE.yaml] [--flag value ...]; {script} --help lists the flags",
        allow_abbrev=False,
    )
    known = {action.dest for action in parser._actions} - {"help"}
    if "--help_all" in typed:
        parser.set_defaults(**_defaults({"train_file": ""}, known, defaults or {}))
        parser.print_help()
        raise SystemExit(0)
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    recipe: dict[str, Any] = {}
    if typed and _is_recipe(typed[0]):
        recipe, typed = parser.read(read_recipe(Path(typed[0]), known)), typed[1:]
    given = parser.read(typed)
    if "model_name_or_path" in given:
        recipe = {name: value for name, value in recipe.items() if name not in FRESH_MODEL}
    try:
        return from_values(groups, recipe | given, defaults, training_class)
    except (ValueError, ImportError) as error:  # from TrainingArguments, about flags that do not fit together
        raise SystemExit(f"{script}: {' '.join(str(error).split())}") from None


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

    from ..errors import UserError

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
    return (*parsed, training)


def _defaults(given: Mapping[str, Any], known: set[str], of_script: Mapping[str, Any]) -> dict[str, Any]:
    """
    The training arguments of a script where neither the recipe nor the command line sets them.

    Args:
        given: the flags that are set.
        known: all flags of the script.
        of_script: its own defaults.
    """
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


def read_recipe(path: Path, known: set[str]) -> list[str]:
    """
    Read a YAML or JSON file as the arguments that could be typed instead; a key without a value is ignored.

    Args:
        path: the file.
        known: the flags of the script.

    Raises:
        SystemExit: there is no such file, it holds no mapping, or a key is unknown.
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
    typed: list[str] = []
    for key, value in current_names(recipe).items():
        if key not in known:
            raise SystemExit(f"The recipe {path} sets {key!r}, an unknown argument.{_did_you_mean(str(key), known)}")
        if isinstance(value, list):
            typed += [f"--{key}", *map(str, value)]
        elif value is not None:
            typed.append(f"--{key}={value if isinstance(value, str) else json.dumps(value)}")
    return typed


def current_names(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with old names replaced by the current ones."""
    return {RENAMED.get(name, name): value for name, value in arguments.items()}


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
            if f.name in recipe_keys(groups):
                continue
            default = (
                f.default if f.default_factory is dataclasses.MISSING else " ".join(map(str, f.default_factory()))
            )
            default = str(default).lower() if isinstance(default, bool) else default
            text = f.metadata["help"] + ("" if default is None else f" (default: {default})")
            section.add_argument(f"--{f.name}", metavar=_metavar(hints[f.name]), help=text.replace("%", "%%"))
    parser.print_help()


def recipe_keys(groups: tuple[type, ...]) -> frozenset[str]:
    """The arguments of these dataclasses that `--help` does not list."""
    return RECIPE_KEYS.union(*(getattr(group, "recipe_keys", ()) for group in groups))


def _metavar(hint: Any) -> str:
    """The placeholder of a flag's value in the help."""
    if get_origin(hint) is Literal:
        return "{" + ",".join(get_args(hint)) + "}"
    if get_origin(hint) is list:
        return f"{_metavar(get_args(hint)[0])} ..."
    if get_args(hint):  # X | None
        return _metavar(get_args(hint)[0])
    return {int: "N", float: "X", bool: "{true,false}"}.get(hint, "TEXT")
