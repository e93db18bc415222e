"""
The base of every encoder as a transformers model: from padded inputs to flat tokens, their embeddings, and back.

What only some models or calls need is imported where it is needed: of the others nobody has to read it. A saved folder
has it too: transformers copies the file of each line `from .name import ...`.

Axes: b batch  n columns  N flat tokens  w width of the table  d width
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.utils import ModelOutput, can_return_tuple, logging

from .backbone import first_position
from .configuration_encoder import EncoderConfig
from .embeddings import TokenEmbeddings
from .token_layout import TokenLayout, is_fixed, is_traced


logger = logging.get_logger(__name__)


# ------ layers whose weights are read without a call


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether a layer computes what its class does: it is no adapter or quantised layer, and has no hook."""
    return _is_unmodified(layer, kind) and not has_hooks(layer)


def require_plain_linear(layer: nn.Module, name: str, alternative: str) -> nn.Linear:
    """
    A linear layer whose weight and bias may be read without calling it. Weights that a hook recomputes, as in
    torch.nn.utils.prune, are recomputed by a call on one row.

    Args:
        layer: the layer.
        name: its name, for the error.
        alternative: where adapters are possible, for the error.

    Raises:
        TypeError: an adapter or a quantised layer has replaced it, or a hook changes its output; both would be
            ignored.
    """
    advice = f"its weight is read without calling it: keep it a plain nn.Linear. {alternative}"
    if not isinstance(layer, nn.Linear) or not _is_unmodified(layer, nn.Linear):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"  # an adapter is often called Linear too
        raise TypeError(f"{name} is a {kind}, and {advice}")
    if has_hooks(layer):
        row = torch.linspace(-1, 1, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
        output = layer(row[None])
        expected = nn.functional.linear(row[None], layer.weight, layer.bias)
        if not isinstance(output, Tensor) or not torch.equal(output, expected):
            raise TypeError(f"A hook at {name} changes its output, and {advice}")
    return layer


def _is_unmodified(layer: nn.Module, kind: type[nn.Module]) -> bool:
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def has_hooks(layer: nn.Module) -> bool:
    """
    Whether code runs before, after or instead of a layer's forward, which accelerate patches. Torch has no public
    function for this (2.13).
    """
    return bool(layer._forward_hooks or layer._forward_pre_hooks) or "forward" in layer.__dict__


# ------ the models


@dataclass
class EncoderOutput(ModelOutput):
    """
    Output of an encoder. In siamese pair mode what is per sequence has an axis of 2 more, such as `[b, 2, d]`.

    Args:
        last_hidden_state: `[b, n, d]`, zeros at padding.
        pooler_output: `[b, d]`, the fixed-length vector of the sequence; `None` without a pooling layer.
        relay_state: `[b, d]`, state of the Star-Transformer's relay node after its last update.
        hidden_states: T + 1 of `[b, n, d]`: the embeddings, then each layer's states.
        attentions: one per layer, in the shape that each encoder's class documents; `None` for the BiLSTM.
        relay_attentions: one of `[b, h, n + 1]` per update of the Star-Transformer's relay, the relay first; of
            `[b, h, n]` for each layer of a BiG-Transformer whose first token is the global node.
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
        elif (init_own_weights := getattr(module, "init_own_weights", None)) is not None:
            init_own_weights()

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
        from .vocabulary import Vocabulary

        vocabulary = Vocabulary.read(tokenizer)
        if len(vocabulary) > self.config.vocab_size:
            raise ValueError(
                f"The tokenizer has ids up to {len(vocabulary) - 1}, and the model embeds {self.config.vocab_size} "
                "tokens: model.resize_token_embeddings(len(tokenizer)) first."
            )
        for tables in all_tables:
            tables.load_vocabulary(vocabulary, label_all_tokens)

    def set_word_vectors(self, lexicon: Any) -> None:
        """
        Give the model words with vectors, in place of those it has; they are saved with it.

        Args:
            lexicon: `Lexicon.from_vectors(path, tokenizer)`, with the tokenizer that makes the model's input_ids.

        Raises:
            ValueError: the lexicon has no vectors, or of another width than the model reads.
        """
        size = 0 if getattr(lexicon, "vectors", None) is None else lexicon.vectors.shape[1]
        config, part = self.config, self._embeddings.word_vectors
        if part is None or size != config.word_vector_size:
            raise ValueError(
                f"The lexicon has vectors of {size} numbers, and the model reads words of {config.word_vector_size}: "
                f"make the lexicon by Lexicon.from_vectors(path, tokenizer), and the model with "
                f"word_vector_size={size or 'WIDTH'}."
            )
        part.load(lexicon)
        config.word_vector_count, config.word_table_size = len(lexicon), len(part.vector_of_row)
        config.word_vector_length = lexicon.max_word_length

    def _vocabulary_tables(self) -> list[Any]:
        return [module for module in self.modules() if hasattr(module, "load_vocabulary")]

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
        from .convert import model_on_encoder, model_on_vectors, shape_of

        if config is not None:
            fields = shape_of(cls, config, fields, mode)
        if mode == "vectors":
            return model_on_vectors(cls, name_or_path, freeze, vocabulary, fields)
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir}
        return model_on_encoder(cls, name_or_path, mode, freeze, hub, fields)

    # ------ saving

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """As in PreTrainedModel, with the code in `code/`, so that any head loads without this package."""
        from .saving import code_apart

        with code_apart(self, save_directory, is_main_process):
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)


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
    ) -> tuple[Tensor | None, dict[str, Any]]:
        """
        Flat embeddings `[N, d]` to flat states `[N, d]` and the fields of the output that are per sequence. The states
        may be `None` where `record` wants none.

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
            input_ids: `[b, n]`; or `inputs_embeds`: `[b, n, w]`, w being the width of `get_input_embeddings()`; not
                for a model that reads characters or words, which embeddings do not tell.
            attention_mask: `[b, n]`, 1 at real tokens; padding may be anywhere.
            token_type_ids: `[b, n]`: embedded where `type_vocab_size` > 0; they split a pair in siamese mode.
            position_ids: `[b, n]`, or `[1, n]` for all rows; default to each token's index among the real tokens of
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
        keep_padding = is_traced() or output_attentions
        # The look-up of packed ids in a table on a CPU checks them.
        table = self.embeddings.table
        looks_up = self.config.backbone_config is None and type(table) is nn.Embedding and not keep_padding
        checks_ids = not looks_up or table.weight.device.type != "cpu"
        mask, inputs = self._checked(attention_mask, inputs, check_values=not fixed, check_ids=checks_ids)
        given = inputs["input_ids"] if inputs["inputs_embeds"] is None else inputs["inputs_embeds"]
        b, n = given.shape[:2]
        siamese = self.config.pair_mode == "siamese"
        if mask is None and not siamese and not is_traced():
            layout = TokenLayout.full(b, n, given.device)
        else:
            if mask is None:
                mask = torch.ones((b, n), dtype=torch.bool, device=given.device)
            if siamese:
                from .pairs import join_pairs, split_pairs

                mask, inputs = split_pairs(mask, inputs)
            layout = TokenLayout.from_mask(mask, keep_padding)
        if not fixed:
            self._check_length(layout)
        if inputs["inputs_embeds"] is not None and layout.in_rows and not layout.is_full:
            # A weight of 0 leaves nothing of a number, but not of infinity.
            inputs = {**inputs, "inputs_embeds": inputs["inputs_embeds"].masked_fill(~mask[..., None], 0)}
        try:
            embedded = self.embeddings(layout, **{name: x for name, x in inputs.items() if name != "word_mask"})
        except IndexError:
            self._in_range("input_ids", inputs["input_ids"], self.config.vocab_size, mask)
            raise
        record = Recorder(layout, bool(output_hidden_states), bool(output_attentions), output_token_states)
        tokens, per_sequence = self.encode(embedded, layout, record, inputs)
        states = layout.unpack(tokens) if tokens is not None and output_token_states else None
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
        given = ids if ids is not None else embeds
        inner = [] if ids is not None else [self._embedding_width()]
        shape = given.shape[:2]
        if [*given.shape[2:]] != inner or given.dim() < 2 or 0 in shape:
            needed = f"[{', '.join(map(str, ['batch', 'length', *inner]))}]"
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
        read = [name for name in ("token_type_ids", "position_ids") if inputs[name] is not None]
        read += ["input_ids"] if check_ids else []
        if read:
            sizes = self.input_sizes()
            inputs = {**inputs, **{name: self._in_range(name, inputs[name], sizes[name], mask) for name in read}}
        if ids is not None and attention_mask is None:
            ends = ids[:, :: max(ids.shape[1] - 1, 1)].flatten().tolist()
            if self.config.pad_token_id in ends:  # what the next line looks at takes it longer
                self.warn_if_padding_and_no_attention_mask(ids, attention_mask)
        return mask, inputs

    def _embedding_width(self) -> int:
        """Numbers of a given embedding; the table of an ELECTRA or ALBERT inside is narrower than its output."""
        return getattr(self.embeddings.table, "embedding_dim", self.config.embedding_size)

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
        longest, limit = layout.max_length, longest_input(self.config)
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
        self.wants_all = hidden_states or attentions
        self.wants_token_states = token_states or self.wants_all
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

    def attention_over_rows(self, weights: Tensor | None) -> None:
        """`[b, h, m, m]` between the tokens of rows as `[b, h, n, n]`; `None` only where nothing is recorded."""
        if weights is not None and self._attentions is not None:
            of_queries = self.layout.rows_to_columns(weights.transpose(1, 2))  # [b, n, h, m]
            of_keys = self.layout.rows_to_columns(of_queries.transpose(1, 3))  # [b, n, h, n], keys first
            self._attentions.append(of_keys.permute(0, 2, 3, 1))

    def relay_attention(self, weights: Tensor | None) -> None:
        """
        `[b, h, m]` over rows as `[b, h, n]`, or `[b, h, 1 + m]` with the relay's own first, zeros for empty sequences;
        `None` where no relay was updated.
        """
        if weights is None or self._relay_attentions is None:
            return
        layout = self.layout
        own, of_rows = weights.split([weights.shape[-1] - layout.max_length, layout.max_length], dim=-1)
        columns = layout.rows_to_columns(of_rows.transpose(1, 2)).transpose(1, 2)
        self._relay_attentions.append(torch.cat([layout.zero_empty(own), columns], dim=-1))

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
