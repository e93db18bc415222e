"""The configuration that all encoders share: its fields, those that follow from others, unknown keys."""

import copy
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.utils import logging


logger = logging.get_logger(__name__)

MOST_REPEATED = 1000
"""The most layers, and the most candidates on one side of a token; models of more would not end being built."""
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")

# Keys that transformers itself passes to or stores in any configuration, beside the declared fields.
_LIBRARY_KEYS = {
    *("name_or_path", "num_labels", "output_attentions", "attn_implementation", "torch_dtype", "auto_map"),
    *("tie_last_hidden_states", "custom_pipelines", "finetuning_task", "task_specific_params", "use_cache"),
    *("per_layer_config", "quantization_config"),
}


def did_you_mean(given: str, allowed: list[str]) -> str:
    """
    A sentence such as ` Did you mean "relu"?`, or an empty string when nothing is close.

    A name that has all words of the given one comes before one with closer letters: num_hidden_layers for num_layers.
    """
    longer = [name for name in allowed if set(given.split("_")) <= set(name.split("_"))]
    close = difflib.get_close_matches(given, longer, n=1) or difflib.get_close_matches(given, allowed, n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


@strict
class BaseConfig(PreTrainedConfig):
    """
    A configuration whose fields may follow from one another, whichever of a saved one are overridden.

    Attributes:
        derived_fields: fields that follow from others unless they are given.
        inner_configurations: fields that hold a configuration.
    """

    derived_fields: ClassVar[tuple[str, ...]] = ()
    inner_configurations: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self, **kwargs: Any) -> None:
        self._warn_about_unknown_keys(kwargs)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        As in PreTrainedConfig, but overridden fields are in place before others are derived from them and all are
        checked. A dict for an inner configuration overrides the fields that it has.
        """
        names = {f.name for f in fields(cls)}
        overrides = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        if overrides:
            config_dict = cls.overridden(config_dict, overrides)
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def overridden(cls, saved: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        """
        The fields of a saved configuration with others instead.

        Fields that were derived, not given, when it was saved are left out, so that they are derived again: 300 and 6
        heads make a head of 50 numbers, which must change along with the number of heads.
        """
        given = {name: value for name, value in saved.items() if name in overrides or not cls._is_derived(name, saved)}
        return given | {name: cls._merged(name, saved.get(name), value) for name, value in overrides.items()}

    @classmethod
    def _is_derived(cls, name: str, saved: Mapping[str, Any]) -> bool:
        """Whether a saved field has the value that the others give it."""
        if name not in cls.derived_fields:
            return False
        declared = {f.name for f in fields(cls)} - {name}
        try:
            others = cls(**{other: value for other, value in saved.items() if other in declared})
        except (ValueError, StrictDataclassError):
            return False  # invalid without it, or at all, which is reported when all are read
        return getattr(others, name) == saved[name]

    @classmethod
    def _merged(cls, name: str, saved: Any, given: Any) -> Any:
        """The value of an overridden field; a dict for an inner configuration of the same type is laid over it."""
        if name not in cls.inner_configurations or not (isinstance(saved, dict) and isinstance(given, dict)):
            return given
        model_type = saved.get("model_type")
        return {**saved, **given} if given.get("model_type", model_type) == model_type else given

    def _warn_about_unknown_keys(self, kwargs: dict[str, Any]) -> None:
        known = [f.name for f in fields(self)]
        for key in kwargs:
            if key.startswith("_") or key in _LIBRARY_KEYS or hasattr(type(self), key):
                continue
            logger.warning(
                f"{type(self).__name__} has no field {key!r}: it is kept and has no effect.{did_you_mean(key, known)}"
            )


@strict
class EncoderConfig(BaseConfig):
    r"""
    The fields that the configurations of all encoders have in common.

    Args:
        vocab_size (`int`, defaults to 30522): entries of the token embedding table; with `backbone_config`, those of
            the encoder inside.
        hidden_size (`int`, defaults to 300): width d of the token states.
        num_hidden_layers (`int`, defaults to 2): number of layers T.
        num_attention_heads (`int`, defaults to 6): attention heads h.
        embedding_size (`int`, *optional*): width of the token embeddings; projected to `hidden_size` where it
            differs. Defaults to `hidden_size`, or to the width of the encoder in `backbone_config`.
        embedding_projection (`str`, defaults to `"first"`): where a projection to `hidden_size` is: "first", before
            positions and token types are added, or "last", after them and the norm, as in ELECTRA.
        backbone_config (`PreTrainedConfig` or `dict`, *optional*): a transformers encoder such as BERT that runs
            inside the embeddings; its last hidden state replaces the embedding table.
        freeze_embeddings (`bool`, defaults to `False`): the table or the backbone is not trained; a backbone then
            also runs without dropout.
        scale_embedding (`bool`, defaults to `False`): token embeddings are multiplied by the square root of their
            width, as for a table shared with a decoder's output (section 3.4 of https://arxiv.org/abs/1706.03762).
        embedding_norm (`bool`, defaults to `False`): LayerNorm on the sum of the embeddings, as in BERT.
        type_vocab_size (`int`, defaults to 0): token types that are embedded; 0 embeds none.
        position_embedding_type (`str`, defaults to `"learned"`): "learned", "sinusoidal" or "none".
        sinusoidal_base (`float`, defaults to 10000): base of the sinusoidal wavelengths.
        max_position_embeddings (`int`, defaults to 512): longest sequence, in real tokens, that learned positions
            cover. The other types have no maximum.
        random_position_offset (`bool`, defaults to `False`): in training each text begins at a random row of the
            learned positions, so that every row is trained by texts shorter than the table.
        embedding_dropout_prob, hidden_dropout_prob, attention_probs_dropout_prob (`float`, default to 0.1): dropout
            on the embeddings, after each output projection, and on the attention weights.
        classifier_dropout (`float`, *optional*): dropout in the heads; defaults to `hidden_dropout_prob`.
        classifier_hidden_size (`int`, *optional*): width of the hidden layer of the sequence classifier; defaults
            to `hidden_size`.
        ngram_buckets (`int`, defaults to 0): rows of the hashed n-grams of tokens whose linear logits a sequence
            classifier adds to those of the encoder, such as 262144; 0 reads none.
        max_ngram_length (`int`, defaults to 2), ngram_dropout (`float`, defaults to 0.5): tokens of the longest of
            these n-grams, and the share of them that training leaves out.
        ngram_hash_bits (`int`, defaults to 24): bits of the numbers of their hash; saved models say so, since earlier
            versions had another one.
        pair_mode (`str`, defaults to `"cross"`): "cross" reads a pair as one sequence; "siamese" splits each row by
            `token_type_ids` into two sequences that do not see each other.
        char_features (`bool`, defaults to `False`): the spelling of a token and its writing (capitals, digits) join
            its embedding; needs `model.set_vocabulary(tokenizer)`. Special tokens and [UNK] have no characters.
        char_scope (`str`, defaults to `"word"`): "word" joins the features of a token and the maximum over all tokens
            of its word; "token" only the former, which is enough where every word is one token.
        char_vocab_size (`int`, defaults to 1024): number of distinct characters, by code point modulo this.
        char_embedding_size (`int`, defaults to 30), char_num_filters (`int`, defaults to 100): width of a character,
            and of the convolution's output.
        char_kernel_size (`int`, defaults to 3): characters in a window of the convolution; an odd number.
        max_char_length (`int`, defaults to 20): characters of the longest entry; both ends are read of a longer one.
        word_vector_size (`int`, defaults to 0): width of the vectors of words that join the embedding of a token: the
            means over the words that begin at it, that it is inside of, and that end at it; 0 joins none. Words and
            vectors come from `model.set_word_vectors(lexicon)`, which sets the next two fields and the fourth.
        word_vector_count, word_table_size (`int`, default to 0): words with a vector, and rows of their table.
        word_vector_length (`int`, defaults to 4): tokens of the longest of these words.
        train_word_vectors (`bool`, defaults to `False`): the vectors are trained.
        use_crf (`bool`, defaults to `False`): a tagger scores its labels together, by a linear-chain CRF.
        crf_constraints (`str`, *optional*): transitions between entity labels that the CRF forbids: those of "iob1",
            "iob2" or "iobes" (also BILOU and BMES), or "auto" for the scheme of the labels. By default none.
        calibration_temperature (`float`, defaults to 1.0): without labels and outside training, the logits of a
            classifier or a tagger are divided by it, those of a CRF with its transitions (Guo et al. 2017,
            https://arxiv.org/abs/1706.04599): best labels and paths stay.
        hidden_act (`str`, defaults to `"relu"`): any activation that transformers knows by name.
        head_act (`str`, *optional*): that of the dense layer in the heads for classes of texts and for masked tokens;
            defaults to `hidden_act`.
        layer_norm_eps (`float`, defaults to 1e-5), initializer_range (`float`, defaults to 0.02): as in BERT.
    """

    vocab_size: int = 30522
    hidden_size: int = 300
    num_hidden_layers: int = 2
    num_attention_heads: int = 6
    embedding_size: int | None = None
    embedding_projection: Literal["first", "last"] = "first"
    backbone_config: dict | PreTrainedConfig | None = None
    freeze_embeddings: bool = False
    scale_embedding: bool = False
    embedding_norm: bool = False
    type_vocab_size: int = 0
    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "learned"
    sinusoidal_base: float | int = 10000.0
    max_position_embeddings: int = 512
    random_position_offset: bool = False
    embedding_dropout_prob: float | int = 0.1
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    classifier_dropout: float | int | None = None
    classifier_hidden_size: int | None = None
    ngram_buckets: int = 0
    max_ngram_length: int = 2
    ngram_dropout: float | int = 0.5
    ngram_hash_bits: Literal[24] = 24
    tfidf_terms: int = 0
    tfidf_max_length: int = 2
    tfidf_sublinear: bool = True
    tfidf_alone: bool = False
    tfidf_labels: int | None = None
    pair_mode: Literal["cross", "siamese"] = "cross"
    char_features: bool = False
    char_scope: Literal["token", "word"] = "word"
    char_vocab_size: int = 1024
    char_embedding_size: int = 30
    char_num_filters: int = 100
    char_kernel_size: int = 3
    max_char_length: int = 20
    word_vector_size: int = 0
    word_vector_count: int = 0
    word_table_size: int = 0
    word_vector_length: int = 4
    train_word_vectors: bool = False
    use_crf: bool = False
    crf_constraints: Literal["auto", "iob1", "iob2", "iobes"] | None = None
    calibration_temperature: float | int = 1.0
    hidden_act: str = "relu"
    head_act: str | None = None
    layer_norm_eps: float | int = 1e-5
    initializer_range: float | int = 0.02
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    cls_token_id: int | None = None
    sep_token_id: int | None = None
    tie_word_embeddings: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        if isinstance(self.backbone_config, dict):
            backbone = dict(self.backbone_config)
            if "model_type" not in backbone:
                raise ValueError(
                    'backbone_config has no model_type: backbone_config={"model_type": "bert", ...} or '
                    "AutoConfig.from_pretrained(...)."
                )
            self.backbone_config = AutoConfig.for_model(backbone.pop("model_type"), **backbone)
        if self.backbone_config is not None:
            # The encoder inside has its own vocabulary; the source of its configuration is not saved.
            self.backbone_config = copy.deepcopy(self.backbone_config)
            self.backbone_config.name_or_path = ""
            self.vocab_size = getattr(self.backbone_config, "vocab_size", self.vocab_size)
        if self.embedding_size is None:
            self.embedding_size = (
                self.hidden_size if self.backbone_config is None else self.backbone_config.hidden_size
            )
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        As in `BaseConfig`.

        Raises:
            ValueError: the model has n-grams by the hash of earlier versions.
        """
        if config_dict.get("ngram_buckets") and config_dict.get("ngram_hash_bits") != 24:
            raise ValueError(
                "The n-grams of this model have the hash of a version before 0.2, and ngram_hash_bits=24 is needed: "
                "train it again, or install that version."
            )
        return super().from_dict(config_dict, **kwargs)

    @property
    def keys_to_ignore_at_inference(self) -> list[str]:
        """Outputs that Trainer omits from predictions, so that a tagger with a CRF predicts logits as any other."""
        return ["paths", "sequence_losses", "messages"] if self.use_crf else []

    derived_fields: ClassVar[tuple[str, ...]] = ("embedding_size",)
    inner_configurations: ClassVar[tuple[str, ...]] = ("backbone_config",)
    sizes: ClassVar[tuple[str, ...]] = (
        *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "embedding_size"),
        *("max_position_embeddings", "classifier_hidden_size", "max_ngram_length", "tfidf_max_length"),
        *("char_vocab_size", "char_embedding_size", "char_num_filters", "char_kernel_size", "max_char_length"),
    )
    repeated: ClassVar[tuple[str, ...]] = ("num_hidden_layers", "max_ngram_length", "tfidf_max_length")

    def validate_values(self) -> None:
        """Part of strict validation: numbers are in their range."""
        dropouts = [f.name for f in fields(self) if "dropout" in f.name]
        counts = ("num_hidden_layers", "type_vocab_size", "ngram_buckets", "tfidf_terms", "word_vector_size")
        ranges: list[tuple[Iterable[str], Callable[[Any], bool], str]] = [
            (self.sizes, lambda x: x >= 1, "at least 1 is needed"),
            (self.repeated, lambda x: x <= MOST_REPEATED, f"at most {MOST_REPEATED:,} are allowed"),
            (counts, lambda x: x >= 0, "0 (none) or more is allowed"),
            (dropouts, lambda x: 0 <= x < 1, "a probability in [0, 1) is allowed"),
            (("calibration_temperature",), lambda x: x > 0, "a number above 0 is allowed"),
            (("char_kernel_size",), lambda x: x % 2, "an odd number is needed"),
        ]
        for names, holds, needed in ranges:
            for name in names:
                if (value := getattr(self, name)) is not None and not holds(value):
                    raise ValueError(f"{name}={value} is given; {needed}.")

    def validate_choices(self) -> None:
        """Part of strict validation: fields fit each other, labels count from 0, and the activation has a name."""
        inside, given = getattr(self.backbone_config, "hidden_size", self.embedding_size), sorted(self.id2label or {})
        if self.embedding_size != inside:
            wrong = (
                f"embedding_size={self.embedding_size} is given; the encoder in backbone_config has {inside}: omit it."
            )
        elif self.tfidf_terms and self.problem_type == "regression":
            wrong = (
                "tfidf_terms is given with problem_type='regression', whose numbers are no votes: set tfidf_terms=0."
            )
        elif self.crf_constraints is not None and not self.use_crf:
            wrong = f"crf_constraints={self.crf_constraints!r} is given without a CRF: set use_crf=True too."
        elif given != list(range(len(given))):
            wrong = f"id2label has the ids {given}; they count from 0: id2label=dict(enumerate(labels))."
        elif unknown := [name for name in ("hidden_act", "head_act") if getattr(self, name) not in (None, *ACT2FN)]:
            value = getattr(self, unknown[0])
            hint = did_you_mean(value, sorted(ACT2FN))
            wrong = f"{unknown[0]}={value!r} is given, which transformers does not have.{hint}"
        else:
            return
        raise ValueError(wrong)

    def heads_must_divide(self) -> None:
        """Raise where the heads do not share `hidden_size` evenly."""
        if self.num_attention_heads < 1 or self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is given; a multiple of "
                f"num_attention_heads={self.num_attention_heads}, at least 1, is needed."
            )

    def directions_must_share(self) -> None:
        """Raise where `hidden_size` is odd: the states of two directions share it."""
        if self.hidden_size % 2:
            raise ValueError(f"hidden_size={self.hidden_size} is given; two directions share it: use an even number.")
