"""The base of every encoder as a transformers model: inputs, outputs, saving, loading, embeddings."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple, logging

from .char_cnn import CharCNN
from .configuration_encoder import EncoderConfig
from .embeddings import TokenEmbeddings, first_position
from .token_layout import TokenLayout, is_fixed, is_traced
from .utils import check_taken, installed
from .vocabulary import Vocabulary, VocabularyTables


logger = logging.get_logger(__name__)

_FEW_VECTORS = 0.2

# Auto class -> ending of the class name that serves it, for every encoder.
AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
    "AutoModelForMaskedLM": "ForMaskedLM",
}


@dataclass
class EncoderOutput(ModelOutput):
    """
    Output of an encoder. In siamese pair mode the relay and the pooled vector have an axis more: `[b, 2, d]`.

    Args:
        last_hidden_state: `[b, n, d]`, zeros at padding.
        pooler_output: `[b, d]`, the fixed-length vector of the sequence; `None` without a pooling layer.
        relay_state: `[b, d]`, state of the Star-Transformer's relay node after its last update.
        hidden_states: T + 1 of `[b, n, d]`: the embeddings, then each layer's states.
        attentions: one per layer, in the shape that each encoder's class documents; `None` for the BiLSTM.
        relay_attentions: one of `[b, h, n + 1]` per relay update, the relay first.
    """

    last_hidden_state: Tensor | None = None
    pooler_output: Tensor | None = None
    relay_state: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None
    relay_attentions: tuple[Tensor, ...] | None = None


class EncoderPreTrainedModel(PreTrainedModel):
    """Saving, loading and initialisation that all encoders and their heads share."""

    config_class = EncoderConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["TokenEmbeddings"]
    _embeddings_hook: RemovableHandle | None = None

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Xavier for projections, `initializer_range` for tables: states reach the first LayerNorm at scale."""
        super()._init_weights(module)
        if isinstance(module, nn.Linear):
            init.xavier_uniform_(module.weight)
        elif isinstance(module, nn.PReLU):
            init.constant_(module.weight, module.init)
        elif isinstance(module, CharCNN):
            module.reset()

    # ------ gradients

    def enable_input_require_grads(self) -> None:
        """As in PreTrainedModel; the output of a frozen encoder inside requires gradients too."""
        super().enable_input_require_grads()
        if self._embeddings_hook is None:
            self._embeddings_hook = self._embeddings.register_forward_hook(_require_gradient)

    def disable_input_require_grads(self) -> None:
        """As in PreTrainedModel."""
        super().disable_input_require_grads()
        if self._embeddings_hook is not None:
            self._embeddings_hook.remove()
            self._embeddings_hook = None

    # ------ embeddings

    @property
    def _encoder(self) -> "EncoderModel":
        """This encoder, or the one inside a head, whatever its attribute is called."""
        if isinstance(self.base_model, EncoderModel):
            return self.base_model
        encoders = [module for module in self.modules() if isinstance(module, EncoderModel)]
        if len(encoders) != 1:
            # An AttributeError would be hidden: torch looks the property up as a module then.
            raise TypeError(
                f"{type(self).__name__} has {len(encoders)} encoders, and one is needed: call the method on one of "
                'them, model.NAME.set_lexicon(...), or set base_model_prefix = "NAME" in the class.'
            )
        return encoders[0]

    @property
    def _embeddings(self) -> TokenEmbeddings:
        return self._encoder.embeddings

    def get_input_embeddings(self) -> nn.Embedding:
        return self._embeddings.table

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        self._embeddings.set_table(value)

    def resize_token_embeddings(self, *args: Any, **kwargs: Any) -> nn.Embedding:
        """As in PreTrainedModel; the configuration of an encoder inside follows, and a frozen table stays frozen."""
        table = super().resize_token_embeddings(*args, **kwargs)
        if self.config.backbone_config is not None:
            self.config.backbone_config.vocab_size = self.config.vocab_size
        if self.config.freeze_embeddings:
            self._embeddings.freeze()
            output = self.get_output_embeddings()
            # transformers gives the resized output layer the flag of its weight, which is the frozen table.
            if output is not None and output.bias is not None:
                output.bias.requires_grad_(True)
        for tables in self._vocabulary_tables():
            tables.resize_vocabulary(len(table.weight))
        return table

    def set_vocabulary(self, tokenizer: PreTrainedTokenizerBase, label_all_tokens: bool = False) -> None:
        """
        Give the model its vocabulary: the text of each token, for character features, and which tokens carry a tag,
        for a CRF. It is saved with the model.

        Args:
            tokenizer: the one that makes the model's input_ids.
            label_all_tokens: the pieces that continue a word are labelled too, not only its first one.

        Raises:
            ValueError: the model has neither, or the tokenizer has more entries than the model.
        """
        all_tables = self._vocabulary_tables()
        if not all_tables:
            raise ValueError(
                f"set_vocabulary is called on a {type(self).__name__} without a CRF or character features: set "
                "use_crf=True or char_features=True."
            )
        vocabulary = Vocabulary.read(tokenizer)
        if len(vocabulary) > self.config.vocab_size:
            raise ValueError(
                f"The tokenizer has ids up to {len(vocabulary) - 1}, and the model embeds {self.config.vocab_size} "
                "tokens: model.resize_token_embeddings(len(tokenizer)) first."
            )
        for tables in all_tables:
            tables.load_vocabulary(vocabulary, label_all_tokens)

    def _vocabulary_tables(self) -> list[VocabularyTables]:
        return [module for module in self.modules() if isinstance(module, VocabularyTables)]

    @classmethod
    def from_pretrained(cls, *args: Any, **kwargs: Any) -> Any:
        """As in PreTrainedModel, which makes every parameter trainable: frozen embeddings are frozen again."""
        loaded = super().from_pretrained(*args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        for module in model.modules():
            if isinstance(module, EncoderModel) and module.config.freeze_embeddings:
                module.embeddings.freeze()
        return loaded

    @classmethod
    def from_embeddings(
        cls,
        name_or_path: str | Path,
        mode: str = "static",
        *,
        freeze: bool = False,
        vocabulary: dict[str, int] | None = None,
        revision: str = "main",
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        config: PreTrainedConfig | None = None,
        **fields: Any,
    ) -> "EncoderPreTrainedModel":
        """
        A fresh model on pretrained embeddings. Once saved, it does not need their source.

        Args:
            name_or_path: an encoder such as "bert-base-chinese" (a Hub name or a folder); with mode="vectors", a
                GloVe or word2vec text file.
            mode: "static" copies the encoder's word embeddings; "contextual" puts the whole encoder inside;
                "vectors" reads a file.
            freeze: do not train what was copied.
            vocabulary: word to id, from `tokenizer.get_vocab()`; mode="vectors" needs it.
            revision, token, cache_dir: as in `AutoModel.from_pretrained`.
            config: the shape; its fields about embeddings and vocabulary are replaced.
            fields: of the configuration, such as `hidden_size=300`, `num_labels=9`; they override `config`.

        Raises:
            ValueError: mode is unknown, or `config` is of another class.
            ImportError: mode="vectors", and only the code of a saved folder is there, not this package.
        """
        if config is not None:
            fields = cls._shape_of(config, fields, mode)
        if mode == "vectors":
            return cls._from_vectors(name_or_path, freeze, vocabulary, fields)
        if mode not in ("static", "contextual"):
            raise ValueError(f'mode={mode!r} is given; "static", "contextual" or "vectors" is allowed.')
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir}
        source_config = AutoConfig.from_pretrained(name_or_path, **hub)
        source, report = AutoModel.from_pretrained(
            name_or_path, config=source_config, dtype=torch.float32, output_loading_info=True, **hub
        )
        table = source.get_input_embeddings().weight
        taken = {"vocab_size": len(table), "freeze_embeddings": freeze, "pad_token_id": source_config.pad_token_id}
        if mode == "contextual":
            # The encoder inside has positions already.
            taken |= {"backbone_config": source_config, "position_embedding_type": "none"}
        else:
            taken["embedding_size"] = table.shape[1]
            names = {name for name, weight in source.named_parameters() if weight is table}
            check_taken(name_or_path, names & {*report["missing_keys"]})
        model = cls(cls.config_class(**{**taken, **fields}))
        if mode == "contextual":
            backbone = model._embeddings.backbone
            names = backbone.state_dict().keys()  # without the pooler's
            check_taken(name_or_path, names & {*report["missing_keys"]})
            backbone.load_state_dict({k: v for k, v in source.state_dict().items() if k in names})
        else:
            model._copy_table(table.detach())
        return model

    @classmethod
    def _shape_of(cls, config: PreTrainedConfig, fields: dict[str, Any], mode: str) -> dict[str, Any]:
        """The fields of a configuration, without those about embeddings and words, overridden by others."""
        if not isinstance(config, cls.config_class):
            raise ValueError(
                f"config is a {type(config).__name__}; {cls.__name__} needs a {cls.config_class.__name__}, such as "
                f'{cls.config_class.__name__}.from_pretrained("configuration/models/star-plus.json").'
            )
        shape = cls.config_class.overridden(config.to_dict(), fields)
        others = {"vocab_size", "embedding_size", "backbone_config", "freeze_embeddings", "pad_token_id"}
        others |= {"lexicon_kind", "lexicon_size"}  # words are saved with weights
        if mode == "contextual" and shape["position_embedding_type"] == cls.config_class().position_embedding_type:
            others.add("position_embedding_type")  # the default: the encoder inside decides
        return {name: value for name, value in shape.items() if name in fields or name not in others}

    @classmethod
    def _from_vectors(
        cls, path: str | Path, freeze: bool, vocabulary: dict[str, int] | None, fields: dict[str, Any]
    ) -> "EncoderPreTrainedModel":
        if vocabulary is None:
            raise ValueError('mode="vectors" needs the ids of the words: vocabulary=tokenizer.get_vocab().')
        table, has_vector = installed("data.vectors").read_vectors(path, vocabulary, fields.get("embedding_size"))
        logger.info(f"{path}: vectors found for {int(has_vector.sum())} of {len(vocabulary)} vocabulary entries.")
        if not has_vector.any():
            raise ValueError(f"{path} has a vector for none of the {len(vocabulary)} vocabulary entries.")
        if has_vector.float().mean() < _FEW_VECTORS:
            logger.warning(
                f"{path} has vectors for only {int(has_vector.sum())} of {len(vocabulary)} vocabulary entries; the "
                "others are random. Check its language, its encoding (UTF-8) and whether it keeps capitals."
            )
        # Entries without a vector start at the scale of those with one.
        table[~has_vector] = torch.randn(int((~has_vector).sum()), table.shape[1]) * table[has_vector].std()
        taken = {"vocab_size": len(table), "embedding_size": table.shape[1], "freeze_embeddings": freeze}
        model = cls(cls.config_class(**{**taken, **fields}))
        model._copy_table(table)
        return model

    @torch.no_grad()
    def _copy_table(self, table: Tensor) -> None:
        self.get_input_embeddings().weight.copy_(table)

    # ------ saving

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """As in PreTrainedModel; the saved folder names every head, so that any of them loads without this package."""
        with as_published(self) as published:
            if published is not None:
                self.config.auto_map = _auto_map(published, type(self.config))
            super().save_pretrained(*args, **kwargs)


@contextmanager
def as_published(model: PreTrainedModel) -> Iterator[type[PreTrainedModel] | None]:
    """
    Give a model, for a while, the name of the class whose code is saved with it.

    transformers copies the file of an object's class. FSDP replaces the class of a model (`fully_shard`), and users
    define subclasses: the saved class is the nearest registered one (`register_for_auto_class`).

    Args:
        model: any model.

    Yields:
        That class, or `None` where none is registered.
    """
    current = type(model)
    published = next((base for base in current.__mro__ if vars(base).get("_auto_class") is not None), None)
    if published not in (None, current):
        model.__class__ = type(published.__name__, (current,), {"__module__": published.__module__})
    try:
        yield published
    finally:
        model.__class__ = current


def _auto_map(model: type[PreTrainedModel], config: type[PreTrainedConfig]) -> dict[str, str]:
    """The Auto classes of an encoder's models; a custom class is left to transformers."""
    module = sys.modules[model.__module__]
    endings = [ending for ending in AUTO_CLASSES.values() if model.__name__.endswith(ending)]
    stem = model.__name__.removesuffix(endings[0]) if endings else model.__name__
    auto_map = {"AutoConfig": f"{config.__module__.rsplit('.', 1)[-1]}.{config.__name__}"}
    names = {auto: f"{stem}{ending}" for auto, ending in AUTO_CLASSES.items()}
    modeling = model.__module__.rsplit(".", 1)[-1]
    return auto_map | {auto: f"{modeling}.{name}" for auto, name in names.items() if hasattr(module, name)}


class EncoderModel(EncoderPreTrainedModel):
    """
    Base of the bare encoders: padded inputs to flat tokens, embeddings, `encode`, and back.

    Args:
        config: the encoder's configuration.
        add_pooling_layer: build the layers that only the pooled vector needs; heads on tokens omit them.
    """

    def __init__(self, config: EncoderConfig, add_pooling_layer: bool = True):
        super().__init__(config)
        self.add_pooling_layer = add_pooling_layer
        self.embeddings = TokenEmbeddings(config)
        self.build_encoder(config)
        self.post_init()
        if config.freeze_embeddings:
            self.embeddings.freeze()

    def build_encoder(self, config: EncoderConfig) -> None:
        """Create the encoder's modules. Each encoder defines it."""
        raise TypeError(f"{type(self).__name__} defines no build_encoder(config).")

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: "Recorder", inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Any]]:
        """
        Flat embeddings `[N, d]` to flat states `[N, d]` and the fields of the output that are per sequence.

        Args:
            embedded: the states that the encoder starts from.
            layout: where the tokens lie.
            record: takes hidden states and attention weights.
            inputs: the checked tensors of the forward call by name, `[b, n, ...]`, for those that are not embedded.
        """
        raise TypeError(f"{type(self).__name__} defines no encode(embedded, layout, record, inputs).")

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        word_mask: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        output_token_states: bool = True,
        **kwargs: Any,
    ) -> EncoderOutput:
        """
        Args:
            input_ids: `[b, n]`; or `inputs_embeds`: `[b, n, w]`, w being the width of
                `get_input_embeddings()`.
            attention_mask: `[b, n]`, 1 at real tokens; padding may be anywhere.
            token_type_ids: `[b, n]`: embedded where `type_vocab_size` > 0; they split a pair in siamese mode.
            position_ids: `[b, n]`, or `[1, n]` for all rows; default to each token's place among the real tokens of
                its sequence.
            word_mask: `[b, n, max_word_length]`, for the BiG-Transformer: the words, in place of its lexicon's. At
                `[b, i, l - 1]`, nonzero where a word of l real tokens starts in column i; l = 1 and padding are
                ignored.
            output_attentions, output_hidden_states: record them; default to the configuration's.
            output_token_states: return `last_hidden_state`, which costs memory for all padding.
            kwargs: keywords that Trainer and pipelines add; ignored.

        Raises:
            ValueError, IndexError: inputs of wrong shape, ids outside the vocabulary, or too long a sequence.
        """
        output_attentions = self.config.output_attentions if output_attentions is None else output_attentions
        if output_hidden_states is None:
            output_hidden_states = self.config.output_hidden_states
        fixed = is_fixed()
        inputs = {
            "input_ids": input_ids,
            "inputs_embeds": inputs_embeds,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "word_mask": word_mask,
        }
        keep_padding = bool(is_traced() or output_attentions or output_hidden_states)
        # The look-up of packed ids in a table on a CPU checks them.
        table = self.get_input_embeddings()
        looks_up = self.config.backbone_config is None and type(table) is nn.Embedding and not keep_padding
        checks_ids = not looks_up or table.weight.device.type != "cpu"
        mask, inputs = self._checked(attention_mask, inputs, check_values=not fixed, check_ids=checks_ids)
        given = inputs["input_ids"] if inputs["inputs_embeds"] is None else inputs["inputs_embeds"]
        b, n = given.shape[:2]
        siamese = self.config.pair_mode == "siamese"
        if mask is None and not siamese and not keep_padding:
            layout = TokenLayout.full(b, n, given.device)
        else:
            if mask is None:
                mask = torch.ones((b, n), dtype=torch.bool, device=given.device)
            if siamese:
                mask, inputs = split_pairs(mask, inputs)
            layout = TokenLayout.from_mask(mask, keep_padding)
        if not fixed:
            self._check_length(layout)
        if inputs["inputs_embeds"] is not None and not layout.is_packed:
            # A weight of 0 leaves nothing of a number, but not of infinity.
            inputs = {**inputs, "inputs_embeds": inputs["inputs_embeds"].masked_fill(~mask[..., None], 0)}
        try:
            embedded = self.embeddings(layout, **{name: x for name, x in inputs.items() if name != "word_mask"})
        except IndexError:
            self._in_range("input_ids", inputs["input_ids"], self.config.vocab_size, mask)
            raise
        record = Recorder(layout, bool(output_hidden_states), bool(output_attentions), output_token_states)
        tokens, per_sequence = self.encode(embedded, layout, record, inputs)
        states = layout.unpack(tokens) if output_token_states else None
        output = EncoderOutput(last_hidden_state=states, **per_sequence, **record.recorded())
        return join_pairs(output) if siamese else output

    def _checked(
        self, attention_mask: Tensor | None, inputs: dict[str, Tensor | None], check_values: bool, check_ids: bool
    ) -> tuple[Tensor | None, dict[str, Tensor | None]]:
        """
        The mask as booleans `[b, n]`, `None` where all tokens are known to be real; and the inputs, checked against
        it. Padding may hold anything.
        """
        ids, embeds = inputs["input_ids"], inputs["inputs_embeds"]
        if (ids is None) == (embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds: model(input_ids=...).")
        # The table of an ELECTRA or ALBERT inside is narrower than its output.
        width = getattr(self.get_input_embeddings(), "embedding_dim", self.config.embedding_size)
        given = ids if ids is not None else embeds
        shape = given.shape[:2]
        if given.shape[2:] != (() if ids is not None else (width,)) or given.dim() < 2 or 0 in shape:
            needed = "[batch, length]" if ids is not None else f"[batch, length, {width}]"
            raise ValueError(f"The inputs have shape {list(given.shape)}; {needed} is needed, neither of them 0.")
        self._check_word_mask(inputs["word_mask"], shape)
        positions = inputs["position_ids"]
        if positions is not None and positions.shape == (1, *shape[1:]):
            inputs = {**inputs, "position_ids": positions.expand(shape)}
        for name, tensor in {"attention_mask": attention_mask, **inputs}.items():
            if tensor is not None and name not in ("inputs_embeds", "word_mask") and tensor.shape != shape:
                raise ValueError(
                    f"{name} has shape {list(tensor.shape)}; {list(shape)} is needed, one value for each token."
                )
        if not check_values:
            # A graph cannot depend on values.
            if attention_mask is None:
                return None, inputs
            mask = attention_mask != 0
            named = {name: inputs[name] for name in ("input_ids", "token_type_ids", "position_ids")}
            return mask, inputs | {name: x.masked_fill(~mask, 0) for name, x in named.items() if x is not None}
        mask = None if attention_mask is None else self._checked_mask(attention_mask)
        sizes = self.input_sizes() | ({} if check_ids else {"input_ids": None})
        inputs = {**inputs, **{name: self._in_range(name, inputs[name], sizes[name], mask) for name in sizes}}
        if ids is not None and attention_mask is None:
            self.warn_if_padding_and_no_attention_mask(ids, attention_mask)
        return mask, inputs

    @staticmethod
    def _checked_mask(attention_mask: Tensor) -> Tensor | None:
        """
        `attention_mask` `[b, n]` as booleans; `None` where all tokens are real.

        Raises:
            ValueError: it is an additive mask.
        """
        if attention_mask.dtype == torch.bool:
            return None if bool(attention_mask.all()) else attention_mask
        low, _ = _extremes(attention_mask)
        if low < 0:
            raise ValueError(
                f"attention_mask holds {low}, as additive masks do; 1 at real tokens and 0 at padding is needed: "
                "attention_mask=(attention_mask == 0).long()."
            )
        return attention_mask != 0 if low == 0 else None

    def _check_word_mask(self, word_mask: Tensor | None, shape: torch.Size) -> None:
        """Raise where words are given to an encoder that reads none, or not in the shape `[*shape, L]`."""
        longest = getattr(self.config, "max_word_length", None)
        if word_mask is not None and longest is None:
            raise ValueError(f"word_mask is given, and {type(self).__name__} reads no words: omit it.")
        if word_mask is not None and word_mask.shape != (*shape, longest):
            raise ValueError(
                f"word_mask has shape {list(word_mask.shape)}; {[*shape, longest]} is needed, [batch, length, "
                "config.max_word_length]."
            )

    def input_sizes(self) -> dict[str, int | None]:
        """How many numbers from 0 on each input of ids may hold; `None` where any is allowed."""
        return {
            "input_ids": self.config.vocab_size,
            "token_type_ids": self._token_types(),
            "position_ids": longest_input(self.config),
        }

    def _token_types(self) -> int | None:
        """Number of token types that are read; `None` where none is, so that any is allowed."""
        inside = getattr(self.config.backbone_config, "type_vocab_size", 0)
        siamese = self.config.pair_mode == "siamese"
        # An encoder inside that has one type is given none.
        counts = (self.config.type_vocab_size, 2 if siamese else 0, inside if inside > 1 else 0)
        return min((count for count in counts if count), default=None)

    @staticmethod
    def _in_range(name: str, given: Tensor | None, size: int | None, mask: Tensor | None) -> Tensor | None:
        """
        `given` `[b, n]`, with zeros at padding that is not from 0 to `size` - 1.

        Raises:
            IndexError: a real token is not.
        """
        wrong = None if given is None or size is None else _outside(given, size)
        if wrong is None:
            return given
        if mask is not None:
            wrong = _outside(given[mask], size)
        if wrong is None:
            return given.masked_fill(~mask, 0)
        hint = "; for added tokens, model.resize_token_embeddings(len(tokenizer))" if name == "input_ids" else ""
        raise IndexError(f"{name} hold {wrong}; 0 to {size - 1} are allowed{hint}.")

    def _check_length(self, layout: TokenLayout) -> None:
        """Raise where a sequence is longer than positions reach."""
        longest = layout.max_length if layout.is_packed else int(layout.lengths.max())
        limit = longest_input(self.config)
        if limit is not None and longest > limit:
            backbone = self.config.backbone_config
            inside = backbone is not None and limit == longest_input(backbone)
            owner = f"the {backbone.model_type} inside the embeddings" if inside else "max_position_embeddings"
            raise ValueError(
                f"A sequence of {longest} tokens is given; {owner} allows {limit}. Cut it, or read it in overlapping "
                f"windows: tokenizer(..., truncation=True, max_length={limit}, stride={limit // 4}, "
                "return_overflowing_tokens=True)."
            )


def _require_gradient(module: nn.Module, inputs: Any, output: Tensor) -> None:
    if not output.requires_grad:
        output.requires_grad_(True)


def _outside(given: Tensor, size: int) -> int | None:
    """A number of `given` that is not from 0 to `size` - 1; `None` where there is none."""
    if not given.numel():
        return None
    low, high = _extremes(given)
    return int(low) if low < 0 else int(high) if high >= size else None


def _extremes(given: Tensor) -> tuple[float, float]:
    """The smallest and the largest number."""
    extremes = torch.aminmax(given)
    if given.device.type == "cpu":
        return extremes.min.item(), extremes.max.item()
    low, high = torch.stack(tuple(extremes)).tolist()  # a GPU is waited for once
    return low, high


class Recorder:
    """
    Collects hidden states and attention weights in the order of the layers, where they are requested.

    Args:
        layout: where the tokens lie.
        hidden_states, attentions: these are requested.
        token_states: the last states of all tokens are.
    """

    def __init__(self, layout: TokenLayout, hidden_states: bool, attentions: bool, token_states: bool = True):
        self.layout = layout
        self.wants_token_states = token_states or hidden_states or attentions
        self.wants_hidden_states = hidden_states
        self.wants_attentions = attentions
        self._hidden_states: list[Tensor] | None = [] if hidden_states else None
        self._attentions: list[Tensor] | None = [] if attentions else None
        self._relay_attentions: list[Tensor] | None = [] if attentions else None

    def hidden_state(self, tokens: Tensor) -> Tensor:
        """
        Record `[N, d]` as `[b, n, d]`.

        Returns:
            `tokens` to continue with, made from the recorded tensor, so that this has a gradient.
        """
        if self._hidden_states is None:
            return tokens
        self._hidden_states.append(self.layout.unpack(tokens))
        return self.layout.pack(self._hidden_states[-1])

    def attention(self, weights: Tensor | None) -> None:
        """`[b, h, n, r]`; `None` only where nothing is recorded."""
        if self._attentions is not None:
            self._attentions.append(weights)

    def relay_attention(self, weights: Tensor | None) -> None:
        """`[b, h, n + 1]`, recorded with zeros for empty sequences; `None` where no relay was updated."""
        if weights is not None and self._relay_attentions is not None:
            self._relay_attentions.append(self.layout.zero_empty(weights))

    def recorded(self) -> dict[str, Any]:
        """The fields of `EncoderOutput`."""
        return {
            "hidden_states": None if self._hidden_states is None else tuple(self._hidden_states),
            "attentions": tuple(self._attentions) if self._attentions else None,
            "relay_attentions": tuple(self._relay_attentions) if self._relay_attentions else None,
        }


def longest_input(config: PreTrainedConfig) -> int | None:
    """The most tokens that any encoder of transformers takes; `None` where it has no limit."""
    backbone = getattr(config, "backbone_config", None)
    inside = None if backbone is None else longest_input(backbone)
    # BERT calls learned positions "absolute"; most encoders have no such field.
    if getattr(config, "position_embedding_type", "learned") not in ("learned", "absolute"):
        return inside
    positions = getattr(config, "max_position_embeddings", None)
    if positions is not None:  # XLNet's -1 is no limit
        positions = positions - first_position(config) if positions > 0 else None
    return min((limit for limit in (positions, inside) if limit is not None), default=None)


def split_pairs(mask: Tensor, inputs: dict[str, Tensor | None]) -> tuple[Tensor, dict[str, Tensor | None]]:
    """
    Two sequences for each row, by token type: row i becomes rows 2i (type 0) and 2i + 1 (type 1).

    Returns the masks `[2b, n]` and the inputs, each row of them twice.
    """
    types = inputs["token_type_ids"]
    if types is None:
        raise ValueError(
            'pair_mode="siamese" needs token_type_ids: '
            "model(**tokenizer(first, second, return_token_type_ids=True, return_tensors='pt'))."
        )
    second = mask & (types == 1)
    if mask.device.type == "cpu" and not is_traced() and not second.any() and mask.any():
        logger.warning_once(
            'pair_mode="siamese": every second text of a batch is empty, as no token_type_ids are 1. Tokenizers that '
            "give both texts the type 0, as RoBERTa's, cannot be used with it."
        )
    halves = torch.stack([mask & (types == 0), second], dim=1).flatten(0, 1)
    return halves, {name: None if x is None else x.repeat_interleave(2, dim=0) for name, x in inputs.items()}


def join_pairs(output: EncoderOutput) -> EncoderOutput:
    """Undo `split_pairs`: token outputs return to their row, per-sequence ones get an axis of 2."""

    def join(name: str, x: Tensor) -> Tensor:
        halves = x.unflatten(0, (-1, 2))
        return halves if name in ("pooler_output", "relay_state", "relay_attentions") else halves.sum(1)

    joined: dict[str, Any] = {
        name: tuple(join(name, x) for x in value) if isinstance(value, tuple) else join(name, value)
        for name, value in output.items()
    }
    return EncoderOutput(**joined)


__all__ = ["AUTO_CLASSES", "EncoderModel", "EncoderOutput", "EncoderPreTrainedModel", "Recorder", "as_published"]
