"""
The flags of the scripts, and how a recipe and the command line are read.

This file imports nothing heavy, so that `--help` answers at once: torch and transformers come in `parse`.
"""

import argparse
import dataclasses
import difflib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints


# The help of a flag that a script has with others and refuses: it is told when it is given.
HIDDEN = argparse.SUPPRESS


def flag(help: str, default: Any = None, **more: Any) -> Any:
    """A dataclass field with its help text."""
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata={"help": help, **more})
    return field(default=default, metadata={"help": help, **more})


@dataclass
class ModelArguments:
    """model, tokenizer and embeddings"""

    model_name_or_path: str | None = flag(
        "A saved model to fine-tune: Hub name or folder; what a recipe says of a fresh model is then left out. None: "
        "a fresh model."
    )
    model_type: str | None = flag(
        "Kind of a fresh model: star_transformer, big_transformer, vanilla_transformer, disan, bilstm. None: as "
        "--config_name says, or star_transformer."
    )
    config_name: str | None = flag("Shape of a fresh model: a file such as configuration/models/star-base.json.")
    config_overrides: str | None = flag(
        "Fields of the configuration: hidden_size=200,position_embedding_type=ring; for taggers use_crf=true, "
        "crf_constraints=auto; char_features=true with a cased tokenizer."
    )
    tokenizer_name: str | None = flag("Tokenizer, if not the model's or the embeddings'. None: one is trained.")
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a tokenizer that is trained from the training split; character suits Chinese.", "word"
    )
    lower_case: bool = flag("Lower-case the words of a tokenizer that is trained.", True)
    vocab_size: int = flag("Maximum number of entries of a tokenizer that is trained.", 30000)
    embeddings_from: str | None = flag("Embeddings of a fresh model: a BERT (Hub name or folder) or a vectors file.")
    embeddings_mode: Literal["static", "contextual", "vectors"] = flag(
        "static: a BERT's word embeddings; contextual: the BERT itself; vectors: a GloVe or word2vec text file.",
        "static",
    )
    vocabulary_from: Literal["data", "vectors"] = flag(
        "Words of a tokenizer that is trained: those of the training split, or those of the file of vectors too, as "
        "new texts may have them.",
        "data",
    )
    lexicon: str | None = flag(
        "Words that a big_transformer reads: a file with one a line, jieba (its dictionary), or whole_word (the words "
        "of a subword tokenizer)."
    )
    freeze_embeddings: bool = flag("Do not train the embeddings.", False)
    model_revision: str = flag("Branch, tag or commit of the model on the Hub.", "main")
    cache_dir: str | None = flag("Where downloads are kept.")
    token: str | None = flag("Hub token; None: the one of `hf auth login`.")
    trust_remote_code: bool = flag("Run the code that a saved model brings along.", False)
    ignore_mismatched_sizes: bool = flag("Replace a head whose size differs from the data's labels.", False)


@dataclass
class ClassificationModelArguments(ModelArguments):
    """model, tokenizer and embeddings"""

    model_type: str | None = flag(
        "Kind of a fresh model: star_transformer, big_transformer, vanilla_transformer, disan, bilstm; or tfidf, "
        "TF-IDF with logistic regression. None: as --config_name says, or star_transformer."
    )


@dataclass
class TaggingModelArguments(ModelArguments):
    """model, tokenizer and embeddings"""

    # Names and other rare words are what entities are made of: pieces and capitals tell about them.
    tokenizer_kind: Literal["word", "wordpiece", "character"] = flag(
        "Kind of a tokenizer that is trained from the training split; character suits Chinese, word suits vectors of "
        "words.",
        "wordpiece",
    )
    lower_case: bool = flag("Lower-case the words of a tokenizer that is trained.", False)
    vocab_size: int = flag("Maximum number of entries of a tokenizer that is trained.", 8000)


@dataclass
class FileArguments:
    """data"""

    dataset_name: str | None = flag("Data set on the Hub, or a folder. Otherwise name files:")
    dataset_config_name: str | None = flag("Its configuration.")
    dataset_revision: str | None = flag("Its branch, tag or commit.")
    train_file: str | None = flag("json, jsonl, csv, tsv or parquet, .gz allowed.")
    validation_file: str | None = flag("Likewise; chooses the best model.")
    test_file: str | None = flag("Likewise; scored at the end.")
    column_names: str | None = flag(
        "Columns of csv, tsv and txt files without a header line, such as label,text; of CoNLL files in their order, "
        "_ for one to leave out, such as _,tokens,_,ner_tags."
    )
    dataset_title: str | None = flag("What the model card calls the data; say synthetic where they are generated.")
    validation_fraction: float = flag(
        "Fraction of --train_file held out by chance where there is no --validation_file; 0: none.", 0.1
    )
    max_seq_length: int | None = flag("Maximum number of tokens of an input. None: what model and tokenizer allow.")
    max_train_samples: int | None = flag("Use only the first so many examples of --train_file.")
    max_eval_samples: int | None = flag("Likewise of --validation_file, or of what is held out.")
    max_predict_samples: int | None = flag("Likewise of --test_file.")
    drop_empty: bool = flag("Leave empty rows out, with a warning, instead of stopping at them.", False)
    preprocessing_num_workers: int | None = flag("Processes that tokenize.")
    overwrite_cache: bool = flag("Tokenize again even if it was done before.", False)


@dataclass
class DataArguments(FileArguments):
    """data"""

    train_file: str | None = flag("json, jsonl, csv, tsv, parquet or CoNLL, .gz allowed.")
    task_name: str | None = flag("A task that tells columns and metrics: ner, pos; cola, sst2, mrpc, stsb, ...")
    text_column_name: str | None = flag(
        "Column of the words or texts; two, joined by a comma, for pairs. None: found by its name: tokens, words, "
        "text, sentence, review, ..."
    )
    label_column_name: str | None = flag("Column of the tags. None: found by its name: ner_tags, tags, label, ...")
    pad_to_max_length: bool = flag("Pad every input to max_seq_length, not each batch to its longest.", False)


@dataclass
class TaggingArguments(DataArguments):
    """data"""

    stride: int | None = flag(
        "Overlap, in tokens, of the windows of an input that is too long. None: validation and test are read in "
        "windows that overlap by an eighth; training inputs are truncated, with a warning."
    )
    label_all_tokens: bool = flag("Label every piece of a word (B- becomes I-), not only the first.", False)
    return_entity_level_metrics: bool = flag("Log the scores of every entity type at each evaluation.", False)


@dataclass
class ClassificationArguments(DataArguments):
    """data"""

    label_column_name: str | None = flag(
        "Column of the labels; several, joined by commas, with 0 or 1 in each, for several labels a text. None: found "
        "by its name: label, class, sentiment, ..."
    )
    problem_type: Literal["single_label_classification", "multi_label_classification", "regression"] | None = flag(
        "What the labels are; several in one cell are parted by commas, | or ;. None: told from the data, where "
        "several are lists or columns."
    )
    validation_fraction: float = flag(
        "Fraction of --train_file held out by chance where there is no --validation_file; of texts with one label the "
        "same of every class, of which one example stays; 0: none.",
        0.1,
    )


@dataclass
class ReadingArguments(DataArguments):
    """data"""

    train_file: str | None = flag("SQuAD's own json, or json, jsonl, parquet with a question a row; .gz allowed.")
    column_names: str | None = flag(HIDDEN)
    task_name: str | None = flag(HIDDEN)
    validation_fraction: float = flag(
        "Fraction of --train_file held out by chance where there is no --validation_file, all questions about a "
        "context together; 0: none.",
        0.1,
    )
    text_column_name: str | None = flag(
        "Columns of questions and contexts, joined by a comma. None: found by their names."
    )
    label_column_name: str | None = flag(
        'Column of the answers, {"text": [...], "answer_start": [...]}. None: found by its name.'
    )
    max_seq_length: int | None = flag("Maximum number of tokens of a window, question included. None: the model's.")
    doc_stride: int = flag("Tokens that windows of a too long context share.", 128)
    n_best_size: int = flag("Best answers to each question that the predictions hold.", 20)
    max_answer_length: int = flag("Maximum number of tokens of a predicted answer.", 30)
    version_2_with_negative: bool = flag("Some questions have no answer, as in SQuAD 2.0.", False)
    null_score_diff_threshold: float = flag(
        "No answer where its score exceeds the best answer's by more than this, with --version_2_with_negative.", 0.0
    )
    answer_language: Literal["en", "zh"] | None = flag(
        "How answers are compared: en by words, as SQuAD's evaluation; zh by Chinese characters, as CMRC 2018's. "
        "None: told from the answers."
    )


@dataclass
class TextArguments:
    """data"""

    dataset_name: str | None = flag("Data set on the Hub, or a folder. Otherwise name files, any number of each:")
    dataset_config_name: str | None = flag("Its configuration.")
    dataset_revision: str | None = flag("Its branch, tag or commit.")
    train_file: list[str] | None = flag("txt, json, jsonl, csv, tsv or parquet, .gz allowed.")
    validation_file: list[str] | None = flag("Likewise.")
    test_file: list[str] | None = flag("Likewise.")
    text_unit: Literal["line", "paragraph", "file"] = flag(
        "What a document is in a .txt file; an empty line ends a paragraph.", "line"
    )
    text_column_name: str | None = flag("Column of the texts in the other files. None: found by its name: text, ...")
    dataset_title: str | None = flag("What the model card calls the data; say synthetic where they are generated.")
    streaming: bool = flag("Read the training data while they are used; needs --max_steps.", False)
    shuffle_buffer: int = flag("Size of the shuffle buffer of a stream, in documents; 0: no shuffling.", 10000)
    validation_fraction: float = flag(
        "Fraction of --train_file held out where there is no --validation_file; 0: none.", 0.05
    )
    max_seq_length: int = flag("Tokens of a block; a longer document is cut into several.", 512)
    packing: bool = flag("Several documents a block. false: one, and batches are padded to their longest.", True)
    mlm_probability: float = flag("Fraction of the tokens that are masked.", 0.15)
    mask_unit: str = flag(
        "What is hidden at a time: token; whole_word, the words that a subword tokenizer cut up; or words of Chinese "
        "characters: jieba (its dictionary), or a file with one word a line.",
        "token",
    )
    max_tokenizer_samples: int | None = flag(
        "Documents that a tokenizer is trained on. None: all; of a stream 100,000, or 400 million characters of them."
    )
    max_train_samples: int | None = flag("Use only so many documents of --train_file.")
    max_eval_samples: int | None = flag(
        "Use only so many documents of --validation_file; of a stream without validation split, its first ones."
    )
    max_predict_samples: int | None = flag("Use only so many documents of --test_file.")
    preprocessing_num_workers: int | None = flag("Processes that tokenize.")
    overwrite_cache: bool = flag("Tokenize again even if it was done before.", False)


@dataclass
class TranslationModelArguments(ModelArguments):
    """model, tokenizer and embeddings"""

    model_type: str | None = flag(
        "Kind of a fresh model: marian, the standard Transformer; or an encoder with its decoder: star_transformer, "
        "big_transformer, vanilla_transformer, disan, bilstm. None: as --config_name says, or marian."
    )
    config_name: str | None = flag("Shape of a fresh model: a file such as configuration/models/marian-small.json.")
    config_overrides: str | None = flag(
        "Fields of the configuration: dropout=0.3; with an encoder encoder.num_hidden_layers=4,decoder.dropout=0.3"
    )
    tokenizer_kind: Literal["bpe"] = flag(  # type: ignore[assignment]  # another choice than the encoders'
        "Kind of a tokenizer that is trained from source and target together: byte pairs, Chinese by characters.",
        "bpe",
    )
    lower_case: bool = flag("Lower-case what is read and written.", False)
    vocab_size: int = flag("Maximum number of entries of a tokenizer that is trained.", 8000)


@dataclass
class TranslationArguments(FileArguments):
    """data and translation"""

    source_column: str | None = flag("Column of the texts, or a key of the column translation. None: the first.")
    target_column: str | None = flag("Column, or key, of their translations. None: the second.")
    max_seq_length: int | None = flag(
        "Maximum number of tokens of a source or target in training. None: the model's.", 256
    )
    num_beams: int = flag("Beams of what is scored and reported (--generation_num_beams: while training).", 4)
    length_penalty: float = flag(
        "Beams are ranked by their log-probability divided by length ** this. 0.5 does at 25 tokens what the "
        "Transformer's 0.6 does in its own formula.",
        0.5,
    )
    max_extra_tokens: int = flag("A translation may have so many tokens more than its source.", 50)
    bleu_tokenize: Literal["13a", "intl", "zh", "char", "none"] | None = flag(
        "How sacrebleu cuts up words. None: zh where the targets are Chinese, else 13a."
    )


AVERAGE_HELP = "Average the weights of the last so many checkpoints; 0: take the best by validation score."


@dataclass
class RepeatArguments:
    """the run"""

    seeds: list[int] | None = flag("Several seeds in one call, with mean and deviation: --seeds 1 2 3")
    early_stopping_patience: int | None = flag("Stop after so many evaluations without a better score.")
    average_checkpoints: int = flag(AVERAGE_HELP, 0)
    shuffle_length_groups: bool = flag(
        "With --train_sampling_strategy group_by_length: batches in random order. False: as in Trainer, from long to "
        "short within each 50 batches.",
        True,
    )
    # No flag: whether the user wrote --load_best_model_at_end false. TrainingArguments have false either way, also
    # where nothing was written, and then the best model is kept.
    takes_last = False


@dataclass
class RunArguments(RepeatArguments):
    """the run"""

    class_weights: str = flag(
        "Weights of the classes in the loss: none, balanced, or one number for each: 1,2.5,1", "none"
    )


@dataclass
class ReadingRunArguments(RunArguments):
    """the run"""

    class_weights: str = flag(HIDDEN, "none")


@dataclass
class TranslationRunArguments(RepeatArguments):
    """the run"""

    average_checkpoints: int = flag(AVERAGE_HELP, 5)


# What a script sets unlike transformers' TrainingArguments.
DEFAULTS = {
    "eval_strategy": "epoch",
    "save_strategy": "epoch",
    "save_total_limit": 2,
    "logging_steps": 50,
    "report_to": "none",
    "ddp_broadcast_buffers": False,
    "hub_strategy": "end",
}
FRESH_LEARNING_RATE = 5e-4
# What a recipe says of a fresh model, whose shape, embeddings and tokenizer a saved one has already.
FRESH_MODEL = frozenset(
    ("model_type", "config_name", "config_overrides", "embeddings_from", "embeddings_mode", "freeze_embeddings")
) | {"tokenizer_kind", "lower_case", "vocab_size", "vocabulary_from"}

# An epoch of pretraining may take days.
PRETRAINING_DEFAULTS: dict[str, Any] = {
    "eval_strategy": "steps",
    "eval_steps": 500,
    "save_strategy": "steps",
    "save_steps": 500,
}

TRAINING_HELP = f"""
training:
  Every field of transformers.TrainingArguments is a flag as well (--help_all lists them). The most used:
  --output_dir DIR                     where everything goes (default: outputs/SCRIPT)
  --do_train --do_eval --do_predict    do only these (default: whatever there is data for)
  --num_train_epochs N                 passes over the training data (default: 3)
  --learning_rate X                    peak (default: {FRESH_LEARNING_RATE:g} for a fresh model, 5e-05 for a saved one)
  --per_device_train_batch_size N      examples a process and step (default: 8)
  --gradient_accumulation_steps N      steps gathered into one update (default: 1)
  --warmup_steps X                     number of steps, or below 1 a fraction of all (default: 0)
  --metric_for_best_model NAME         score that chooses the best model (default: the task's main score)
  --resume_from_checkpoint last|DIR    go on where a run was interrupted
  --use_cpu, --bf16, --torch_compile, --gradient_checkpointing
  --log_level debug                    of an error that is told in one line, also where it was raised
  --push_to_hub --hub_model_id NAME    upload the model with its card at the end; predictions and
                                       checkpoints stay here, as with push_to_hub.py
"""


# What run_translation.py sets unlike the others: the training of https://arxiv.org/abs/1706.03762, section 5.
TRANSLATION_DEFAULTS: dict[str, Any] = {
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 0.1,
    "label_smoothing_factor": 0.1,
    "per_device_train_batch_size": 64,
    "per_device_eval_batch_size": 64,
    "predict_with_generate": True,
    "generation_num_beams": 1,
    "save_total_limit": 5,
}

TRANSLATION_HELP = (
    TRAINING_HELP.replace("(default: 8)", "(default: {per_device_train_batch_size})")
    .replace("below 1 a fraction of all (default: 0)", "below 1 a fraction of all (default: {warmup_steps:g})")
    .format(**TRANSLATION_DEFAULTS)
)


def print_help(groups: tuple[type, ...], description: str, epilog: str = TRAINING_HELP) -> None:
    """The script's own flags, and the training flags that people use."""
    script = Path(sys.argv[0]).name
    parser = argparse.ArgumentParser(
        prog=script,
        usage=f"{script} [RECIPE.yaml] [--flag value ...]",
        description=description.strip(),
        epilog=epilog,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=36, width=118),
        add_help=False,
    )
    for group in groups:
        section = parser.add_argument_group((group.__doc__ or "").strip())
        hints = get_type_hints(group)
        for f in (f for f in dataclasses.fields(group) if f.metadata["help"] != HIDDEN):
            default = None if f.default is dataclasses.MISSING else f.default
            if f.default_factory is not dataclasses.MISSING:
                default = " ".join(map(str, f.default_factory()))
            shown = (
                ""
                if default is None
                else f" (default: {str(default).lower() if isinstance(default, bool) else default})"
            )
            section.add_argument(
                f"--{f.name}", metavar=_metavar(hints[f.name]), help=(f.metadata["help"] + shown).replace("%", "%%")
            )
    parser.print_help()


def _metavar(hint: Any) -> str:
    kinds = [part for part in get_args(hint) if part is not type(None)] if type(None) in get_args(hint) else [hint]
    kind = kinds[0]
    if get_origin(kind) is Literal:
        return "{" + ",".join(get_args(kind)) + "}"
    if get_origin(kind) is list:
        return f"{_metavar(get_args(kind)[0])} ..."
    return {int: "N", float: "X", bool: "{true,false}"}.get(kind, "TEXT")


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
        defaults: training arguments that this script sets unlike the others.
        epilog: what `--help` tells of the training arguments.
        training_class: the class of transformers that holds them.

    Returns:
        An object of each class of `groups`, then one of `training_class`.

    Raises:
        SystemExit: help was printed, or a flag or a key of the recipe is wrong; the message says which.
    """
    arguments = sys.argv[1:]
    if {"-h", "--help"} & set(arguments):
        print_help(groups, description, epilog)
        raise SystemExit(0)

    import transformers
    from transformers import HfArgumentParser

    script = Path(sys.argv[0]).name

    class Parser(HfArgumentParser):
        def error(self, message: str) -> NoReturn:
            raise SystemExit(f"{script}: {message}")

    # Without abbreviations: a flag that is mistyped must not be another.
    parser = Parser(
        (*groups, getattr(transformers, training_class)), prog=script, usage=_usage(script), allow_abbrev=False
    )
    if "--help_all" in arguments:
        parser.set_defaults(**_defaults(script, set(), {}, True, defaults or {}))
        parser.print_help()
        raise SystemExit(0)
    known = {action.dest for action in parser._actions} - {"help"}
    if arguments and _is_recipe(arguments[0]):
        # Before the command line, which so has the last word; what is written there is checked in the same way.
        recipe, typed = read_recipe(Path(arguments[0]), known), arguments[1:]
        if "model_name_or_path" in map(flag_name, typed):
            recipe = without(recipe, FRESH_MODEL)
        arguments = recipe + typed
    named = {flag_name(argument) for argument in arguments if argument.startswith("--")}
    trains = "train_file" not in known or bool({"train_file", "dataset_name"} & named)
    # A task of GLUE is fetched where no file is named.
    trains |= "task_name" in named and not {"validation_file", "test_file"} & named
    parser.set_defaults(**_defaults(script, named, _parts(arguments), trains, defaults or {}))
    try:
        *parsed, unknown = parser.parse_args_into_dataclasses(
            args=arguments, return_remaining_strings=True, look_for_args_file=False
        )
    except (ValueError, ImportError) as error:  # what TrainingArguments says of flags that do not fit together
        raise SystemExit(f"{script}: {' '.join(str(error).split())}") from None
    if unknown:
        raise SystemExit(f"{script}: {_about_unknown(unknown[0], known)}")
    training = parsed[-1]
    if "metric_for_best_model" not in named:  # TrainingArguments puts the loss there for some other flags
        training.metric_for_best_model = training.greater_is_better = None
    if "load_best_model_at_end" in named and not training.load_best_model_at_end:
        for group in parsed:
            if isinstance(group, RepeatArguments):
                group.takes_last = True
    return tuple(parsed)


def _usage(script: str) -> str:
    return f"{script} [RECIPE.yaml] [--flag value ...]; {script} --help lists the flags"


def _is_recipe(argument: str) -> bool:
    return not argument.startswith("-") and Path(argument).suffix in (".yaml", ".yml", ".json")


def flag_name(argument: str) -> str:
    """--learning-rate=1e-3 -> learning_rate; --no_do_eval -> do_eval"""
    return argument.split("=")[0].lstrip("-").replace("-", "_").removeprefix("no_")


def _about_unknown(argument: str, known: set[str]) -> str:
    if _is_recipe(argument):
        return f"the recipe {argument} comes first: {_usage(Path(sys.argv[0]).name)}."
    if not argument.startswith("-"):
        return f"{argument!r} belongs to no flag: write --flag {argument}, and the recipe before all flags."
    return f"there is no flag {argument}.{_did_you_mean(flag_name(argument), known, '--')} All of them: --help_all."


def without(recipe: list[str], names: frozenset[str]) -> list[str]:
    """The arguments of a recipe but those of some names, with what stands after them."""
    kept, left_out = [], False
    for argument in recipe:
        if argument.startswith("--"):
            left_out = flag_name(argument) in names
        if not left_out:
            kept.append(argument)
    return kept


# What others call some flags, where the letters alone do not tell; --no_cuda is asked for as cuda.
_KNOWN_AS = {
    **dict.fromkeys(("lr", "learn_rate", "learningrate"), "learning_rate"),
    **dict.fromkeys(("epoch", "epochs", "num_epochs", "n_epochs", "max_epochs"), "num_train_epochs"),
    **dict.fromkeys(("steps", "num_steps", "num_train_steps"), "max_steps"),
    **dict.fromkeys(("bs", "batch", "batch_size", "train_batch_size"), "per_device_train_batch_size"),
    "eval_batch_size": "per_device_eval_batch_size",
    **dict.fromkeys(("patience", "early_stopping"), "early_stopping_patience"),
    **dict.fromkeys(("warmup", "warmup_ratio", "num_warmup_steps"), "warmup_steps"),
    **dict.fromkeys(("model", "pretrained_model", "checkpoint"), "model_name_or_path"),
    **dict.fromkeys(("out", "output", "out_dir", "save_dir"), "output_dir"),
    **dict.fromkeys(("max_len", "max_length", "seq_len", "max_seq_len"), "max_seq_length"),
    **dict.fromkeys(("dev_file", "valid_file", "val_file", "eval_file"), "validation_file"),
    **dict.fromkeys(("text_column", "text_col"), "text_column_name"),
    **dict.fromkeys(("label_column", "label_col"), "label_column_name"),
    **dict.fromkeys(("cpu", "cuda"), "use_cpu"),
    "resume": "resume_from_checkpoint",
}


def _did_you_mean(given: str, known: set[str], prefix: str = "") -> str:
    if given == "overwrite_output_dir":
        return " Nothing is overwritten: delete the folder, or name another."
    if _KNOWN_AS.get(given) in known:
        return f" Did you mean {prefix}{_KNOWN_AS[given]}?"
    close = difflib.get_close_matches(given, sorted(known), n=1)
    return f" Did you mean {prefix}{close[0]}?" if close else ""


def _parts(arguments: list[str]) -> dict[str, bool]:
    """Which of --do_train, --do_eval and --do_predict are named, and whether they are asked for or declined."""
    parts = {}
    for index, argument in enumerate(arguments):
        name = flag_name(argument)
        if argument.startswith("--") and name in ("do_train", "do_eval", "do_predict"):
            value = "".join([*argument.split("=")[1:], *arguments[index + 1 : index + 2]][:1])
            parts[name] = not argument.startswith("--no") and value.lower() not in ("false", "no", "f", "n", "0")
    return parts


def _defaults(
    script: str, named: set[str], parts: dict[str, bool], trains: bool, own: Mapping[str, Any]
) -> dict[str, Any]:
    """
    What holds where neither the recipe nor the command line names a flag.

    Args:
        script: its path.
        named: the flags that are named.
        parts: what `_parts` tells.
        trains: whether there may be data to train on.
        own: what the script sets itself.
    """
    defaults = {**DEFAULTS, "output_dir": f"outputs/{Path(script).stem}", **_device_defaults()}
    if "model_name_or_path" not in named:
        defaults["learning_rate"] = FRESH_LEARNING_RATE
    everything = not any(parts.values())  # nothing is asked for alone
    defaults |= {name: parts.get(name, everything) for name in ("do_eval", "do_predict")}
    defaults["do_train"] = parts.get("do_train", everything and trains)
    defaults |= own
    if not defaults["do_train"] or not parts.get("do_eval", True):
        defaults["eval_strategy"] = "no"
    return defaults


def _device_defaults() -> dict[str, Any]:
    """What the machine decides: several processes on a CPU talk through gloo, and nothing is pinned for no device."""
    import torch

    has_accelerator = torch.accelerator.is_available()
    defaults: dict[str, Any] = {"dataloader_pin_memory": has_accelerator, "use_cpu": not has_accelerator}
    if not has_accelerator and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        defaults["ddp_backend"] = "gloo"
    return defaults


def read_recipe(path: Path, known: set[str]) -> list[str]:
    """
    The arguments in a YAML or JSON file, as they would be typed. A key without a value is as if it were not there.

    Args:
        path: the file.
        known: the flags that the script has.

    Raises:
        SystemExit: there is no such file, it is no mapping, or a key is unknown.
    """
    import yaml

    if not path.is_file():
        raise SystemExit(f"There is no recipe {path}: name a YAML or JSON file with the script's arguments.")
    try:
        text = path.read_text(encoding="utf-8")
        recipe = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError) as error:
        raise SystemExit(f"The recipe {path} cannot be read: {' '.join(str(error).split())}") from None
    if not isinstance(recipe, dict):
        raise SystemExit(f"The recipe {path} holds {type(recipe).__name__}; `argument: value` lines are needed.")
    typed: list[str] = []
    for key, value in recipe.items():
        if key not in known:
            hint = _did_you_mean(str(key), known)
            raise SystemExit(f"The recipe {path} sets {key!r}, which is no argument of this script.{hint}")
        if isinstance(value, list):
            typed += [f"--{key}", *map(str, value)]
        elif value is not None:
            typed.append(f"--{key}={value if isinstance(value, str) else json.dumps(value)}")
    return typed
