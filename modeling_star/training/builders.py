"""From a script's arguments to a tokenizer and a model."""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..data.tokenizers import TokenizerKind, train_tokenizer
from ..errors import UserError
from ..models.configuration_base import did_you_mean
from ..models.configuration_star import StarTransformerConfig
from ..models.embeddings import words_of_vectors
from ..models.lexicon import Lexicon
from ..models.modeling_encoder import EncoderPreTrainedModel, longest_input
from ..models.vocabulary import VocabularyTables, word_marker
from .arguments import ModelArguments
from .checkpoints import differences


logger = logging.getLogger(__name__)

# Fields of a configuration that are not of the model's shape.
_CHANGED_BY_SAVING = (
    *("transformers_version", "architectures", "auto_map", "dtype", "torch_dtype", "_name_or_path", "name_or_path"),
    *("use_cache", "problem_type", "task_specific_params"),
)
_SPECIAL = ("pad", "bos", "eos", "cls", "sep")
# Fields that follow from --embeddings_from.
_OF_EMBEDDINGS = ("embedding_size", "backbone_config")

# No language has so few words; what stands in such a column may be tags.
_FEW_ENTRIES = 30
_LEXICONS = ("jieba", "whole_word")

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_RELAY = re.compile(r"(?:^|\.)layers\.(\d+)\.relay_(?:attention|norm)\.")


@contextmanager
def loading(flag: str, name: str) -> Iterator[None]:
    """
    Says which flag named what could not be loaded.

    Raises:
        UserError: instead of what transformers raises for an absent folder or name.
    """
    try:
        yield
    except UserError:
        raise
    except (OSError, ValueError, ImportError) as error:
        is_there = Path(name).exists()
        if not is_there and (name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith("/")):
            # The Hub's own word of such a name is that it is none.
            raise UserError(
                f"{flag} {name} could not be loaded: there is no such folder (looked in {Path.cwd()}). Name a model's "
                "folder, or a model of the Hub: bert-base-cased"
            ) from error
        here = "" if is_there else f" A folder {name} is not here either."
        raise UserError(
            f"{flag} {name} could not be loaded: {error}{here} Name a model's folder, or a model of the Hub: "
            "bert-base-cased"
        ) from error


def parse_overrides(text: str | None) -> dict[str, Any]:
    """
    Fields of a configuration from `name=value,name=value`, a value being JSON or else a plain word; or a JSON object.

    Raises:
        UserError: a part has no `=`, or is about labels, which the data tells.
    """
    overrides = _written_overrides(text or "")
    for name in ("num_labels", "id2label", "label2id"):
        if name in overrides:
            raise UserError(f"--config_overrides sets {name}, and the labels are those of the data: leave it away.")
    return overrides


def _written_overrides(text: str) -> dict[str, Any]:
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"--config_overrides {text} is no JSON ({error}): write name=value,name=value") from None
    overrides: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise UserError(f"--config_overrides has the part {part!r}; write name=value,name=value")
        try:
            overrides[name.strip()] = json.loads(value)
        except json.JSONDecodeError:
            overrides[name.strip()] = value.strip()
    return overrides


def load_tokenizer(
    name: str | None,
    texts: Iterable[str | list[str]],
    *,
    kind: TokenizerKind,
    lower_case: bool,
    vocab_size: int,
    vectors: str | None = None,
    **hub: Any,
) -> PreTrainedTokenizerBase:
    """
    The tokenizer of that name, or one trained on `texts`.

    Args:
        name: Hub name or folder; `None` trains one.
        texts: the training split's texts or lists of words.
        kind, lower_case, vocab_size: of a trained tokenizer, see `train_tokenizer`.
        vectors: a file of them, all words of which a trained tokenizer is to know.
        hub: `revision`, `token`, `cache_dir`, `trust_remote_code` as in `AutoTokenizer.from_pretrained`.

    Raises:
        UserError: the tokenizer is a slow one.
    """
    if name is None:
        known = () if vectors is None else words_of_vectors(vectors)
        tokenizer = train_tokenizer(texts, kind, lower_case=lower_case, vocab_size=vocab_size, known_words=known)
        source = "the training split" + ("" if vectors is None else f" and the words of {vectors}")
        logger.info(f"Trained a {kind} tokenizer of {len(tokenizer)} entries on {source}.")
        if len(tokenizer) < _FEW_ENTRIES:
            known = tokenizer.get_vocab()
            words = [word for word in sorted(known, key=known.get) if word not in tokenizer.all_special_tokens]
            some = ", ".join(map(repr, words[:8]))
            logger.warning(
                f"That is few: {some}, ... Are these from your texts? If not, name the column of texts, "
                "--text_column_name, or those of a CoNLL file in their order, --column_names tokens,_,_,ner_tags."
            )
        return tokenizer
    with loading("The tokenizer of", name):
        # GPT-2 and RoBERTa tokenizers take words only with a space before them.
        tokenizer = AutoTokenizer.from_pretrained(name, add_prefix_space=True, **hub)
    if not tokenizer.is_fast:
        raise UserError(
            f"The tokenizer of {name} is a slow one, and these scripts need a fast one: name another model, or a fast "
            "tokenizer of the same entries with --tokenizer_name"
        )
    return tokenizer


def fresh_model(
    head: str,
    tokenizer: PreTrainedTokenizerBase | None,
    labels: dict[str, Any],
    *,
    model_type: str | None = None,
    config_name: str | None = None,
    overrides: dict[str, Any] | None = None,
    embeddings_from: str | None = None,
    embeddings_mode: str = "static",
    freeze_embeddings: bool = False,
    max_seq_length: int | None = None,
    defaults: dict[str, Any] | None = None,
    **hub: Any,
) -> PreTrainedModel:
    """
    A model with fresh weights, on given embeddings or random ones.

    Args:
        head: the auto class, such as "AutoModelForTokenClassification".
        tokenizer: gives the size of the vocabulary and the special tokens, whatever the configuration's file says of
            them; `None` where the inputs are vectors.
        labels: `num_labels`, `id2label` and so on, for the configuration.
        model_type, config_name: kind, or a file or name of a configuration, which tells the kind too; without either
            a Star-Transformer.
        overrides: fields that win over the file's.
        embeddings_from, embeddings_mode, freeze_embeddings: see `EncoderPreTrainedModel.from_embeddings`.
        max_seq_length: learned positions reach at least so far.
        defaults: fields where neither the file nor `overrides` say anything.
        hub: `revision`, `token`, `cache_dir` for the embeddings.

    Raises:
        UserError: the model type is unknown or not the configuration's, or embeddings are asked for a model that is
            not of this package.
    """
    fields = dict(defaults or {})
    if config_name is not None:
        fields |= without_words(config_fields(config_name))
        told = fields.pop("model_type", None)
        check_kind(model_type, [told], config_name)
        model_type = told or model_type
        if embeddings_from is not None:  # the file may be of a saved model, which has its own
            fields = {name: value for name, value in fields.items() if name not in _OF_EMBEDDINGS}
            freeze_embeddings = fields.pop("freeze_embeddings", False) or freeze_embeddings
    if tokenizer is not None:  # the file may be of a saved model, which has another one
        fields |= {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in _SPECIAL}
        fields["vocab_size"] = len(tokenizer)
    fields |= overrides or {}
    model_type = model_type or StarTransformerConfig.model_type
    try:
        standard = AutoConfig.for_model(model_type)
    except ValueError:
        raise UserError(
            f"--model_type {model_type} is unknown: star_transformer, big_transformer, vanilla_transformer, disan, "
            "bilstm, or a type of transformers."
        ) from None
    check_overrides(standard, overrides or {})
    config_class = type(standard)
    try:
        model_class = getattr(transformers, _mapping_name(head))[config_class]
    except KeyError:
        raise UserError(f"--model_type {model_type} has no {head.removeprefix('AutoModel')}: name another.") from None
    fields |= labels
    positions = fields.get("position_embedding_type", getattr(standard, "position_embedding_type", "learned"))
    if max_seq_length is not None and positions in ("learned", "absolute"):  # others reach any length
        fields.setdefault("max_position_embeddings", max(max_seq_length, 512))
    if embeddings_from is None:
        if freeze_embeddings:
            if not hasattr(config_class, "freeze_embeddings"):
                raise UserError(f"--freeze_embeddings works with this package's models; {model_type} is another.")
            logger.warning("--freeze_embeddings without --embeddings_from: random embeddings stay as they are.")
            fields["freeze_embeddings"] = True
        return model_class(config_class(**fields))
    if not hasattr(model_class, "from_embeddings"):
        raise UserError(f"--embeddings_from works with this package's models; {model_type} has embeddings of its own.")
    vocabulary = {"vocabulary": tokenizer.get_vocab()} if embeddings_mode == "vectors" else {}
    sources = {} if embeddings_mode == "vectors" else hub
    fields.pop("vocab_size", None)
    return model_class.from_embeddings(
        embeddings_from, mode=embeddings_mode, freeze=freeze_embeddings, **vocabulary, **sources, **fields
    )


def check_kind(model_type: str | None, kinds: Sequence[str | None], config_name: str) -> None:
    """
    Raises:
        UserError: another kind of model is asked for than a configuration is of.
    """
    if model_type is not None and any(kinds) and model_type not in kinds:
        raise UserError(
            f"--model_type {model_type} is given, and --config_name {config_name} is a {kinds[0]}: name a shape of "
            "that kind, as configuration/models/bilstm-base.json is of bilstm, or leave one of the two away."
        )


def check_embeddings(arguments: ModelArguments) -> None:
    """
    Args:
        arguments: those about the model.

    Raises:
        UserError: what is said of the embeddings does not fit together, so that others would be trained.
    """
    source, mode = arguments.embeddings_name_or_path, arguments.embeddings_mode
    if source is None and mode != "static":
        raise UserError(
            f"--embeddings_mode {mode} says how --embeddings_from is used, and none is named: add --embeddings_from "
            "bert-base-cased, say, or leave it away."
        )
    has_vectors = mode == "vectors" and arguments.tokenizer_name is None and arguments.tokenizer_kind != "wordpiece"
    if arguments.vocabulary_from == "vectors" and not has_vectors:
        raise UserError(
            "--vocabulary_from vectors gives a tokenizer that is trained here the words of a file of vectors: it goes "
            "with --embeddings_from FILE, --embeddings_mode vectors and --tokenizer_kind word or character, without "
            "--tokenizer_name."
        )
    if source is not None and mode != "vectors" and Path(source).is_file():
        raise UserError(
            f"--embeddings_from {source} is a file, and --embeddings_mode {mode} takes a BERT's folder or Hub name: "
            "for a text file of vectors add --embeddings_mode vectors"
        )


def saved_model(
    head: str,
    name: str,
    labels: dict[str, Any],
    *,
    freeze_embeddings: bool = False,
    overrides: dict[str, Any] | None = None,
    **options: Any,
) -> PreTrainedModel:
    """
    A saved model, ours or any of transformers, with a head for these labels, in float32 whatever it was saved in.

    Args:
        head: the auto class, such as "AutoModelForTokenClassification".
        name: Hub name or folder.
        labels: `num_labels`, `id2label` and so on.
        freeze_embeddings: do not train them; for this package's models.
        overrides: fields of the configuration to change.
        options: as in `AutoModel.from_pretrained`.

    Raises:
        UserError: its head is of another size, or its embeddings cannot be frozen.
    """
    hub = {key: options[key] for key in ("revision", "token", "cache_dir", "trust_remote_code") if key in options}
    with loading("--model_name_or_path", name):
        config = AutoConfig.from_pretrained(name, **hub)
    check_overrides(config, overrides or {})
    fields = {**labels, **(overrides or {})}
    if freeze_embeddings:
        if not hasattr(config, "freeze_embeddings"):
            raise UserError(f"--freeze_embeddings works with this package's models; {name} is a {config.model_type}.")
        fields["freeze_embeddings"] = True
    load = getattr(transformers, head).from_pretrained
    reports: list[logging.LogRecord] = []
    try:
        with _holding_reports(reports):
            model, info = load(name, dtype=torch.float32, output_loading_info=True, **fields, **options)
    except RuntimeError as error:
        _tell(reports)
        if "size" not in str(error):
            raise
        if config.num_labels == labels.get("num_labels", config.num_labels):
            raise UserError(
                f"--config_overrides {', '.join(overrides or {})} make weights of {name} another size than was saved: "
                "leave out what changes a size."
            ) from error
        raise UserError(
            f"The head of {name} is of another size than the data's {labels['num_labels']} labels need: where it is "
            "trained, replace it by --ignore_mismatched_sizes"
        ) from error
    new = _new_parts(model, info)
    if new is None:
        _tell(reports)
    elif new:
        logger.info(f"New in this model, not in {name}, and to be trained here: {'; '.join(new)}.")
    # Early BERTs call LayerNorms' weights gamma and beta. Saved under these names again, they would be left out by
    # Trainer, which resumes and takes the best model back by the names that the model has.
    model.save_pretrained = partial(model.save_pretrained, save_original_format=False)
    return model


@contextmanager
def _holding_reports(held: list[logging.LogRecord]) -> Iterator[None]:
    """Within it transformers' table of what a saved model lacks is kept in `held`, to be told if it says something."""

    def hold(record: logging.LogRecord) -> bool:
        is_report = "LOAD REPORT" in record.getMessage()
        if is_report:
            held.append(record)
        return not is_report

    source = logging.getLogger("transformers.modeling_utils")
    source.addFilter(hold)
    try:
        yield
    finally:
        source.removeFilter(hold)


def _tell(records: Iterable[logging.LogRecord]) -> None:
    for record in records:
        logging.getLogger(record.name).handle(record)


def _new_parts(model: PreTrainedModel, info: Mapping[str, Any]) -> list[str] | None:
    """What a loaded model has that was not saved, in words; `None` where that is more than a new task brings along."""
    inside = f"{model.base_model_prefix}."
    missing = sorted(info["missing_keys"])
    head = sorted({key.split(".")[0] for key in missing if not key.startswith(inside)})
    layers = [int(found[1]) for name, _ in model.named_parameters() if (found := _LAYER.search(name))]
    relay = [key for key in missing if (found := _RELAY.search(key)) and int(found[1]) == max(layers)]
    others = [key for key in missing if key.startswith(inside) and key not in relay]
    if others or info["mismatched_keys"] or any(key.startswith(inside) for key in info["unexpected_keys"]):
        return None
    parts = [f"its head ({', '.join(head)})"] if head else []
    if relay:
        parts.append(
            f"the relay's update in layer {max(layers)}, the last, which a model for masked words or labels of tokens "
            "has no use for and does not build (everything else was loaded)"
        )
    return parts


def check_resumed(checkpoint: str, tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig) -> None:
    """
    Make sure that a run goes on with the tokenizer, labels and layers that its weights are of.

    Args:
        checkpoint: the folder that it goes on from.
        tokenizer, config: what the arguments and the data make now.

    Raises:
        UserError: they were others when the checkpoint was written.
    """
    other = differences(_shape(type(config).from_pretrained(checkpoint)), _shape(config))
    if other:
        raise UserError(
            f"{checkpoint} was begun with other arguments or data ({other}): go on with the same data and "
            "arguments, or begin anew in another --output_dir."
        )
    if AutoTokenizer.from_pretrained(checkpoint).get_vocab() != tokenizer.get_vocab():
        raise UserError(
            f"The tokenizer of {checkpoint} has other entries than the one made of this data: go on with the same "
            "data, or begin anew in another --output_dir."
        )


def _shape(config: PreTrainedConfig) -> dict[str, Any]:
    """The fields of a configuration that saving, loading and training leave alone."""

    def own(fields: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in fields.items() if name not in _CHANGED_BY_SAVING}
        kept = {name: value for name, value in kept.items() if not str(name).endswith("_token_id")}
        return {name: own(value) if isinstance(value, dict) else value for name, value in kept.items()}

    return own(config.to_dict())


def check_lexicon(name: str | None) -> None:
    """
    Before anything is read, or a folder is made.

    Raises:
        UserError: there is no such word list.
    """
    if name not in (None, *_LEXICONS) and not Path(name).is_file():
        raise UserError(
            f"--lexicon {name} does not exist: name a file with one word a line, .gz allowed, or write "
            f"{' or '.join(_LEXICONS)}"
        )


def lacks_words(config: PreTrainedConfig) -> bool:
    """Whether a model is to read words and has none."""
    return getattr(config, "local_connection", None) == "lexicon" and config.lexicon_kind is None


def set_lexicon(model: PreTrainedModel, name: str, tokenizer: PreTrainedTokenizerBase) -> None:
    """
    Put a lexicon into a BiG-Transformer, in place of the one it has.

    Args:
        model: fresh or saved.
        name: "jieba", "whole_word", or a file with one word a line.
        tokenizer: gives the words their token ids.

    Raises:
        UserError: the model reads no words.
    """
    if not hasattr(model, "set_lexicon"):
        raise UserError(
            f"--lexicon works with --model_type big_transformer; a {model.config.model_type} has no use of it."
        )
    model.set_lexicon(read_lexicon(name, tokenizer, model.config.max_word_length))


def read_lexicon(name: str, tokenizer: PreTrainedTokenizerBase, max_word_length: int) -> Lexicon:
    """
    A lexicon by name.

    Args:
        name: "jieba", "whole_word", or a file with one word a line.
        tokenizer: gives the words their token ids.
        max_word_length: the most tokens of a word.

    Raises:
        UserError: "whole_word", and the tokenizer has no pieces of words.
    """
    if name == "whole_word" and word_marker(tokenizer) is None:
        raise UserError(
            "whole_word is for tokens that are pieces of words, and each of this tokenizer's is a word: write "
            "--tokenizer_kind wordpiece"
        )
    if name == "whole_word":
        lexicon = Lexicon.whole_word(tokenizer, max_word_length)
        logger.info(f"Lexicon: words by {len(lexicon):,} entries of the vocabulary that continue one.")
        return lexicon
    logger.info(f"Reading the words of {name}.")  # what is of use and what is left out, `Lexicon` tells itself
    if name == "jieba":
        return Lexicon.from_jieba(tokenizer, max_word_length)
    return Lexicon.from_file(name, tokenizer, max_word_length)


def set_vocabulary(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, label_all_tokens: bool) -> None:
    """
    Tell a model what its vocabulary says, where it asks for that and was not told before.

    Args:
        model: fresh or saved.
        tokenizer: the one that makes its input.
        label_all_tokens: whether the pieces that continue a word are labelled in training.
    """
    asking = [module for module in model.modules() if isinstance(module, VocabularyTables)]
    if isinstance(model, EncoderPreTrainedModel) and any(not tables.has_vocabulary for tables in asking):
        model.set_vocabulary(tokenizer, label_all_tokens)


def check_overrides(config: PreTrainedConfig, overrides: dict[str, Any]) -> None:
    """
    Raises:
        UserError: a configuration of this kind has no such field.
    """
    for name in overrides:
        if not hasattr(config, name):
            hint = did_you_mean(name, [field for field in config.to_dict() if not field.startswith("_")])
            raise UserError(f"--config_overrides sets {name}, which {type(config).__name__} does not have.{hint}")


def check_vocabulary(tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, given: str | None) -> None:
    """
    Raises:
        UserError: the tokenizer has ids that the model has no embedding for.
    """
    ids, rows = max(tokenizer.get_vocab().values(), default=-1) + 1, model.get_input_embeddings().num_embeddings
    if ids > rows:
        advice = (
            "leave --tokenizer_name away, or name the model's own" if given else "raise vocab_size, or leave it out"
        )
        raise UserError(f"The tokenizer has token ids up to {ids - 1}, and the model embeds {rows} tokens: {advice}.")


def length_limit(config: PreTrainedConfig, asked: int | None) -> int | None:
    """The most tokens of an input: what was asked for, but no more than the model takes; `None`: no limit."""
    own = longest_input(config)
    if asked is not None and own is not None and asked > own:
        logger.warning(f"max_seq_length={asked} exceeds the {own} tokens that the model takes; using {own}.")
    return min((limit for limit in (asked, own) if limit is not None), default=None)


def without_words(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a configuration but for those of a lexicon, whose words are saved with the weights alone."""
    return {name: value for name, value in fields.items() if name not in ("lexicon_kind", "lexicon_size")}


def hub_options(arguments: ModelArguments) -> dict[str, Any]:
    """Where models are looked for on the Hub, and kept."""
    return {"revision": arguments.model_revision}


def config_fields(name: str) -> dict[str, Any]:
    """
    The fields of a configuration, of a file or of a saved model.

    Raises:
        UserError: there is none of that name, or the file is no JSON object.
    """
    path = Path(name)
    if not path.is_file():
        if path.suffix in (".json", ".yaml"):
            raise UserError(f"--config_name {name} does not exist: name a file of configuration/models, or a model.")
        with loading("--config_name", name):
            return PreTrainedConfig.get_config_dict(name)[0]
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(
            f"--config_name {name} is no JSON ({error}): name a file such as configuration/models/star-base.json; a "
            "recipe is written before all flags, without one"
        ) from error
    if not isinstance(fields, dict):
        raise UserError(f"--config_name {name} holds a {type(fields).__name__}: a JSON object is needed.")
    return fields


def _mapping_name(head: str) -> str:
    """AutoModelForTokenClassification -> MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING, as transformers names them."""
    names = {
        "AutoModelForSequenceClassification": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING",
        "AutoModelForTokenClassification": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING",
        "AutoModelForQuestionAnswering": "MODEL_FOR_QUESTION_ANSWERING_MAPPING",
        "AutoModelForMaskedLM": "MODEL_FOR_MASKED_LM_MAPPING",
    }
    return names[head]
