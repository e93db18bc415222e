"""Build the tokenizer and the model that a script's arguments describe."""

import inspect
import logging
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..data.lexicon import Lexicon
from ..data.tokenizers import set_token_types, train_tokenizer
from ..data.vectors import words_of_vectors
from ..errors import UserError
from ..loading import check_whole
from ..models import modeling_big, modeling_window_modernbert
from ..models.configuration_encoder import MOST_REPEATED, did_you_mean
from ..models.configuration_star import StarTransformerConfig
from ..models.convert import load_encoder
from ..models.modeling_encoder import EncoderPreTrainedModel, longest_input
from ..models.vocabulary import VocabularyTables
from ..models.word_marks import word_marker
from .arguments import ModelArguments
from .checkpoints import differences
from .named_models import as_typed, config_fields, loading, parse_overrides, saved_labels
from .task import Task


logger = logging.getLogger(__name__)

# The classes of a head by configuration, as transformers names them.
_MAPPINGS = {
    "AutoModelForSequenceClassification": transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING,
    "AutoModelForTokenClassification": transformers.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING,
    "AutoModelForQuestionAnswering": transformers.MODEL_FOR_QUESTION_ANSWERING_MAPPING,
    "AutoModelForMaskedLM": transformers.MODEL_FOR_MASKED_LM_MAPPING,
}
_SPECIAL_TOKENS = ("pad", "bos", "eos", "cls", "sep")
# Fields of a saved model's configuration that --embeddings_name_or_path replaces.
_EMBEDDING_FIELDS = ("embedding_size", "backbone_config", "freeze_embeddings")
# Fields that saving or loading changes, so that a resumed run may differ in them.
_CHANGED_BY_SAVING = (
    *("transformers_version", "architectures", "auto_map", "dtype", "torch_dtype", "_name_or_path", "name_or_path"),
    *("use_cache", "problem_type", "task_specific_params"),
)
# A new model that neither --model_type nor --config_name describes: configuration/models/star-plus-2.json.
STAR_PLUS: dict[str, Any] = {
    "position_embedding_type": "none",
    "role_bias": True,
    "residual": True,
    "embedding_norm": True,
    "relay_start_norm": True,
}
# A small pretrained model of the types that transformers has and users name most.
_PRETRAINED = {
    "bert": "bert-base-uncased",
    "roberta": "roberta-base",
    "distilbert": "distilbert-base-uncased",
    "albert": "albert-base-v2",
    "electra": "google/electra-small-discriminator",
    "deberta-v2": "microsoft/deberta-v3-small",
    "xlm-roberta": "xlm-roberta-base",
    "modernbert": "answerdotai/ModernBERT-base",
}
_LEXICONS = ("jieba", "whole_word")
_FEWEST_USED = 0.9  # share of the embeddings that a model's own tokenizer uses; some tables are rounded up


# What a task needs


def build_parts(task: Task) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """The tokenizer and the model of a task: loaded, or trained and new."""
    arguments = task.model_args
    names = list(task.labels.get("id2label", {}).values())
    is_choice = task.labels.get("problem_type") != "multi_label_classification"
    if len(names) == 1 and is_choice and saved_labels(arguments, task.data.splits) is None:
        raise UserError(
            f"Every label is {names[0]!r}, so that there is only one class: add rows with other labels, or name "
            "another column, --label_column_name"
        )
    tokenizer = make_tokenizer(task)
    model = make_model(task, tokenizer)
    if arguments.lexicon is not None:
        set_lexicon(model, arguments.lexicon, tokenizer)
    elif lacks_words(model.config):
        logger.warning("big_transformer has no words to read: add --lexicon FILE, jieba or whole_word.")
    check_vocabulary(tokenizer, model, arguments.tokenizer_name)
    takes_types = getattr(model.config, "type_vocab_size", 2) > 1  # a RoBERTa's tells texts of a pair by [SEP]
    if task.needs_types and takes_types and "token_type_ids" in inspect.signature(model.forward).parameters:
        set_token_types(tokenizer)
        is_siamese = getattr(model.config, "pair_mode", None) == "siamese"
        if is_siamese and 1 not in tokenizer("a", "a")["token_type_ids"]:
            raise UserError(
                f"{type(tokenizer).__name__} gives both texts of a pair the type 0, and pair_mode=siamese needs "
                "two types: omit pair_mode, or name another tokenizer, --tokenizer_name"
            )
    tables = [module for module in model.modules() if isinstance(module, VocabularyTables)]
    if isinstance(model, EncoderPreTrainedModel) and not all(table.has_vocabulary for table in tables):
        model.set_vocabulary(tokenizer)
    return tokenizer, model


def tokenizer_name(task: Task) -> str | None:
    """The tokenizer that the arguments name: itself, with a model, or with embeddings; `None`: one is trained."""
    arguments = task.model_args
    has_none = arguments.embeddings_name_or_path is not None and arguments.embeddings_mode == "vectors"
    return arguments.tokenizer_name or (None if has_none else arguments.source)


def tokenizer_texts(task: Task) -> Any:
    """The training texts, to train a tokenizer on."""
    if "train" not in task.data.splits:
        raise UserError(
            "There is no train split to train a tokenizer on: name a saved model, --model_name_or_path FOLDER, or "
            "add --train_file"
        )
    return task.training_texts()


def make_tokenizer(task: Task) -> PreTrainedTokenizerBase:
    """Load the tokenizer that the arguments name, or train one."""
    arguments, name = task.model_args, tokenizer_name(task)
    if name is not None:
        return load_tokenizer(name, arguments)
    vectors = arguments.embeddings_name_or_path if arguments.vocabulary_from == "vectors" else None
    tokenizer = train_tokenizer(
        tokenizer_texts(task),
        arguments.tokenizer_kind,
        lower_case=arguments.lower_case,
        vocab_size=arguments.vocab_size,
        known_words=() if vectors is None else words_of_vectors(vectors),
    )
    source = "the training split" + ("" if vectors is None else f" and the words of {vectors}")
    logger.info(f"Trained a {arguments.tokenizer_kind} tokenizer of {len(tokenizer)} entries on {source}.")
    return tokenizer


def make_model(task: Task, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """Load or convert the model that the arguments name, or build a new one for this tokenizer."""
    arguments, head = task.model_args, task.head
    overrides = parse_overrides(arguments.config_overrides)
    if overrides.get("use_crf") and head != "AutoModelForTokenClassification":
        raise UserError("--config_overrides sets use_crf, and only taggers have a CRF: omit it.")
    if overrides.get("ngram_buckets") and head != "AutoModelForSequenceClassification":
        raise UserError("--config_overrides sets ngram_buckets, and only classifiers read n-grams: omit it.")
    if arguments.encoder is None:
        length, defaults = task.data_args.max_seq_length, task.config_defaults
        if arguments.word_vectors is None:
            return fresh_model(head, tokenizer, task.labels, arguments, length, defaults)
        lexicon = Lexicon.from_vectors(arguments.word_vectors, tokenizer)
        defaults = {**defaults, "word_vector_size": lexicon.vectors.shape[1]}
        model = fresh_model(head, tokenizer, task.labels, arguments, length, defaults)
        if not isinstance(model, EncoderPreTrainedModel):
            raise UserError(
                f"--word_vectors works with this package's encoders, not with a {model.config.model_type}: omit it."
            )
        model.set_word_vectors(lexicon)
        return model
    if arguments.model_name_or_path is None:
        model, task.new_parameters = pretrained_model(task)
        return model
    model, task.new_parameters = saved_model(head, task.labels, arguments)
    if task.new_parameters:
        names = textwrap.shorten(", ".join(sorted(task.new_parameters)), width=200, placeholder=" ...")
        count, name = len(task.new_parameters), arguments.model_name_or_path
        logger.info(f"{count} tensors are not in {name}, or have another size there, and begin anew: {names}")
    return model


# Arguments


def check_overrides(config: PreTrainedConfig, overrides: dict[str, Any]) -> None:
    """Raise a UserError where configurations of this kind have no such field."""
    for name in overrides:
        if not hasattr(config, name):
            hint = did_you_mean(name, [field for field in config.to_dict() if not field.startswith("_")])
            raise UserError(f"--config_overrides sets {name}, which {type(config).__name__} does not have.{hint}")


def check_kind(model_type: str | None, saved: str | None, config_name: str) -> None:
    """Raise a UserError where --model_type and --config_name name different kinds of models."""
    if None not in (model_type, saved) and model_type != saved:
        raise UserError(
            f"--model_type {model_type} is given, and --config_name {config_name} is a {saved}: omit one of them."
        )


def check_embeddings(arguments: ModelArguments) -> None:
    """Raise a UserError where the flags of embeddings do not fit together, so that some would have no effect."""
    mode = arguments.embeddings_mode
    if arguments.embeddings_name_or_path is None and mode != "static":
        raise UserError(
            f"--embeddings_mode {mode} needs --embeddings_name_or_path: add it, or omit --embeddings_mode."
        )
    trains_words = arguments.tokenizer_name is None and arguments.tokenizer_kind != "wordpiece"
    if arguments.vocabulary_from == "vectors" and not (mode == "vectors" and trains_words):
        raise UserError(
            "--vocabulary_from vectors needs --embeddings_mode vectors and --tokenizer_kind word or character, "
            "without --tokenizer_name."
        )


def check_layers(number: Any) -> None:
    """Raise a UserError where a model has so many layers that building them would not end."""
    if isinstance(number, int) and number > MOST_REPEATED:
        raise UserError(f"num_hidden_layers is {number}: at most {MOST_REPEATED:,} are allowed.")


def without_lexicon(fields: dict[str, Any]) -> dict[str, Any]:
    """Configuration fields but for those of lexicons, whose words are saved with the weights alone."""
    left_out = ("lexicon_kind", "lexicon_size", "word_vector_size", "word_vector_count", "word_table_size")
    return {name: value for name, value in fields.items() if name not in left_out}


def length_limit(config: PreTrainedConfig, requested: int | None) -> int | None:
    """The maximum number of tokens of an input: the requested one, or the model's if it is less; `None`: no limit."""
    longest = longest_input(config)
    if requested is not None and longest is not None and requested > longest:
        logger.warning(
            f"max_seq_length={requested} exceeds the {longest} tokens that the model takes; using {longest}."
        )
    return min((limit for limit in (requested, longest) if limit is not None), default=None)


# Tokenizer


def load_tokenizer(name: str, arguments: ModelArguments) -> PreTrainedTokenizerBase:
    """Load a tokenizer."""
    revision = None if name == arguments.tokenizer_name else arguments.model_revision
    options = {"revision": revision, "trust_remote_code": arguments.trust_remote_code}
    with loading("The tokenizer of", name):
        # GPT-2 and RoBERTa tokenizers take words only with a space before them.
        tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True, **options)
    if not tokenizer.is_fast:
        raise UserError(f"The tokenizer of {name} is a slow one: name a fast tokenizer with --tokenizer_name")
    return tokenizer


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, tokenizer_name: str | None) -> None:
    """Warn about a tokenizer that is much smaller than the model's vocabulary."""
    ids, rows = max(tokenizer.get_vocab().values(), default=-1) + 1, model.get_input_embeddings().num_embeddings
    if ids > rows:
        advice = "omit --tokenizer_name, or name the model's" if tokenizer_name else "raise vocab_size, or omit it"
        raise UserError(f"The tokenizer has token ids up to {ids - 1}, and the model embeds {rows} tokens: {advice}.")
    if ids < _FEWEST_USED * rows:
        logger.warning(
            f"The tokenizer has {ids} entries, and the model embeds {rows}: it may be another model's. Omit "
            "--tokenizer_name, or name the model's."
        )


# Fresh models


def fresh_model(
    head: str,
    tokenizer: PreTrainedTokenizerBase | None,
    labels: dict[str, Any],
    arguments: ModelArguments,
    max_seq_length: int | None = None,
    defaults: dict[str, Any] | None = None,
) -> PreTrainedModel:
    """
    A model with random weights, on given or random embeddings.

    What the tokenizer says of the vocabulary wins over the configuration's file, fields of the arguments over both,
    and `labels` over all; `defaults` are for fields that nothing else sets and such a model has. Learned positions
    reach at least `max_seq_length`. Without --model_type and --config_name it is star-plus-2.
    """
    overrides = parse_overrides(arguments.config_overrides)
    model_type, config_name = arguments.model_type, arguments.config_name
    embeddings, freeze_embeddings = arguments.embeddings_name_or_path, arguments.freeze_embeddings
    fields = {**STAR_PLUS} if model_type is None and config_name is None else {}
    if config_name is not None:
        fields = without_lexicon(config_fields(config_name))
        saved_type = fields.pop("model_type", None)
        check_kind(model_type, saved_type, config_name)
        model_type = saved_type or model_type
    if embeddings is not None:  # the file may be of a saved model with other embeddings
        freeze_embeddings = freeze_embeddings or fields.get("freeze_embeddings", False)
        fields = {name: value for name, value in fields.items() if name not in _EMBEDDING_FIELDS}
    if tokenizer is not None:
        fields |= {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in _SPECIAL_TOKENS}
        fields["vocab_size"] = len(tokenizer)
    standard, model_class = _classes(head, model_type or StarTransformerConfig.model_type)
    check_overrides(standard, overrides)
    fields = {name: value for name, value in (defaults or {}).items() if hasattr(standard, name)} | fields
    fields |= overrides | labels
    check_layers(fields.get("num_hidden_layers"))
    positions = fields.get("position_embedding_type", getattr(standard, "position_embedding_type", "learned"))
    if max_seq_length is not None and positions in ("learned", "absolute"):  # others have no limit
        fields.setdefault("max_position_embeddings", max(max_seq_length, 512))
    is_ours = issubclass(model_class, EncoderPreTrainedModel)
    if config_name is not None and saved_type is None:
        logger.warning(f"--config_name {config_name} has no model_type: a {standard.model_type} is built.")
    if not is_ours and head != "AutoModelForMaskedLM":  # which pretrains
        is_saved = config_name is not None and not config_name.endswith(".json")
        name = config_name if is_saved else _PRETRAINED.get(standard.model_type, "NAME")
        logger.warning(
            f"A {standard.model_type} with random weights is trained, which needs more data than a pretrained one: "
            f"write --model_name_or_path {name} in place of --model_type and --config_name to fine-tune one."
        )
    if (embeddings is not None or freeze_embeddings) and not is_ours:
        raise UserError(
            "--embeddings_name_or_path and --freeze_embeddings work with the encoders of this package, not with "
            f"{model_type}."
        )
    if embeddings is None:
        if freeze_embeddings:
            fields["freeze_embeddings"] = True
        return model_class(type(standard)(**fields))
    fields.pop("vocab_size", None)
    mode = arguments.embeddings_mode
    source = {"vocabulary": tokenizer.get_vocab()} if mode == "vectors" else {"revision": arguments.model_revision}
    return model_class.from_embeddings(embeddings, mode=mode, freeze=freeze_embeddings, **source, **fields)


def _classes(head: str, model_type: str) -> tuple[PreTrainedConfig, type[PreTrainedModel]]:
    """The standard configuration of a kind of model, and its class for a head."""
    try:
        standard = AutoConfig.for_model(model_type)
        return standard, _MAPPINGS[head][type(standard)]
    except ValueError:
        raise UserError(
            f"--model_type {model_type} is unknown: star_transformer, big_transformer, vanilla_transformer, disan, "
            "bilstm, or a type of transformers; a pretrained model has the flag --model_name_or_path."
        ) from None
    except KeyError:
        raise UserError(f"--model_type {model_type} has no {head.removeprefix('AutoModel')}: name another.") from None


# Saved models


def pretrained_model(task: Task) -> tuple[PreTrainedModel, set[str]]:
    """The encoder of --pretrained, converted with a new head, and the head's names."""
    arguments, overrides = task.model_args, parse_overrides(task.model_args.config_overrides)
    if arguments.freeze_embeddings:
        overrides["freeze_embeddings"] = True
    name, hub = str(arguments.pretrained), {"revision": arguments.model_revision}
    with loading("--pretrained", name):
        config = AutoConfig.from_pretrained(name, **hub)
    ending, defaults = task.head.removeprefix("AutoModel"), task.config_defaults
    if config.model_type == "modernbert":
        model_class: Any = getattr(modeling_window_modernbert, f"WindowModernBert{ending}")
        source, fields = name, {**hub, **overrides}
    else:
        model_class = getattr(modeling_big, f"BigTransformer{ending}")
        with loading("--pretrained", name):
            source = load_encoder(name, config, "Model", hub)
        of_crf: dict[str, Any] = {
            field: defaults[field] for field in ("use_crf", "crf_constraints") if field in defaults
        }
        longest = max(longest_input(config) or 0, task.data_args.max_seq_length or 0)
        # Without a pooler that has learned to read the first token; encoders of sentences are trained with the mean.
        fields = {"max_positions": longest, "pooling": "mean", **of_crf, **overrides}
    check_overrides(model_class.config_class(), overrides)
    with as_typed():
        model = model_class.from_encoder(source, arguments.layers, **fields, **task.labels)
    inside = f"{model.base_model_prefix}."
    return model, {name for name, _ in model.named_parameters() if not name.startswith(inside)}


def saved_model(head: str, labels: dict[str, Any], arguments: ModelArguments) -> tuple[PreTrainedModel, set[str]]:
    """
    A saved model, ours or any of transformers, with a head for these labels, in float32 whatever it was saved in; and
    the names of its weights that are new. Weights that are missing although the saved model has this very head, that
    are NaN or infinite, or that have other sizes, are a UserError.
    """
    name, overrides = str(arguments.model_name_or_path), parse_overrides(arguments.config_overrides)
    hub = {"revision": arguments.model_revision, "trust_remote_code": arguments.trust_remote_code}
    with loading("--model_name_or_path", name):
        config = AutoConfig.from_pretrained(name, **hub)
    check_overrides(config, overrides)
    fields = {**labels, **overrides}
    check_layers(fields.get("num_hidden_layers", getattr(config, "num_hidden_layers", None)))
    if arguments.freeze_embeddings:
        if not hasattr(config, "freeze_embeddings"):
            raise UserError(f"--freeze_embeddings works with this package's models; {name} is a {config.model_type}.")
        fields["freeze_embeddings"] = True
    with loading("The weights of", name):
        try:
            model, info = getattr(transformers, head).from_pretrained(
                name,
                dtype=torch.float32,
                output_loading_info=True,
                ignore_mismatched_sizes=arguments.ignore_mismatched_sizes,
                **fields,
                **hub,
            )
        except RuntimeError as error:
            if "size" not in str(error):
                raise
            raise UserError(
                f"Weights of {name} have other sizes than {labels.get('num_labels', 'these')} labels"
                f"{' and --config_overrides ' + ', '.join(overrides) if overrides else ''} need: to train a new head, "
                "add --ignore_mismatched_sizes"
            ) from error
    is_same = not overrides and type(model).__name__ in (config.architectures or [])
    check_whole(name, model, info["missing_keys"] if is_same else ())
    # Early BERTs call LayerNorms' weights gamma and beta. Saved under these names again, they would be missing where
    # Trainer resumes or loads the best model, which it does by the names that the model has.
    model.save_pretrained = partial(model.save_pretrained, save_original_format=False)
    return model, {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}


def check_resumed(checkpoint: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """Make sure that a resumed run has the tokenizer, labels and layers of its checkpoint."""
    changes = differences(_shape(type(config).from_pretrained(checkpoint).to_dict()), _shape(config.to_dict()))
    if AutoTokenizer.from_pretrained(checkpoint).get_vocab() != tokenizer.get_vocab():
        changes = changes or "the tokenizer has other entries"
    if changes:
        raise UserError(
            f"{checkpoint} was trained with other arguments or data ({changes}): resume with the same, or name "
            "another --output_dir."
        )


def _shape(fields: dict[str, Any]) -> dict[str, Any]:
    """The configuration fields that saving, loading and training do not change."""
    return {
        name: _shape(value) if isinstance(value, dict) else value
        for name, value in fields.items()
        if name not in _CHANGED_BY_SAVING and not str(name).endswith("_token_id") and not str(name).startswith("tfidf")
    }


# Words and vocabulary inside the model


def check_lexicon(name: str | None, vectors: str | None = None) -> None:
    """Raise a UserError, before data are read, where --lexicon names no word list, or --word_vectors no file."""
    if vectors is not None and not Path(vectors).is_file():
        raise UserError(
            f"--word_vectors {vectors} does not exist: name a text file of a word and its numbers per line."
        )
    if name not in (None, *_LEXICONS) and not Path(name).is_file():
        raise UserError(
            f"--lexicon {name} does not exist: name a file with one word per line, or write {' or '.join(_LEXICONS)}"
        )


def lacks_words(config: PreTrainedConfig) -> bool:
    """Whether a model reads words and has no lexicon."""
    return getattr(config, "local_connection", None) == "lexicon" and config.lexicon_kind is None


def read_lexicon(name: str, tokenizer: PreTrainedTokenizerBase, max_word_length: int) -> Lexicon:
    """Read a lexicon."""
    if name == "whole_word":
        if word_marker(tokenizer) is None:
            raise UserError("whole_word needs a tokenizer of subwords: write --tokenizer_kind wordpiece")
        return Lexicon.whole_word(tokenizer, max_word_length)
    logger.info(f"Reading the words of {name}.")
    if name == "jieba":
        return Lexicon.from_jieba(tokenizer, max_word_length)
    return Lexicon.from_file(name, tokenizer, max_word_length)


def set_lexicon(model: PreTrainedModel, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """Put a lexicon into a BiG-Transformer, in place of the one it has."""
    if not hasattr(model, "set_lexicon"):
        raise UserError(f"--lexicon works with --model_type big_transformer, not with a {model.config.model_type}.")
    model.set_lexicon(read_lexicon(name, tokenizer, model.config.max_word_length))
