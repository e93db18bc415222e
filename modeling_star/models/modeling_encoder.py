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

from .configuration_encoder import EncoderConfig
from .embeddings import TokenEmbeddings, extremes, longest_input
from .token_layout import TokenLayout, is_fixed, is_traced


logger = logging.get_logger(__name__)


# ------ layers whose weights are read without a call


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """
    Whether a layer computes what its class does: no adapter or quantised layer, and no code before, after or instead
    of its forward, which accelerate patches. Torch has no public function for this (2.13).
    """
    has_hooks = layer._forward_hooks or layer._forward_pre_hooks or "forward" in layer.__dict__
    return isinstance(layer, kind) and type(layer).forward is kind.forward and not has_hooks


def require_plain_linear(layer: nn.Module, name: str, alternative: str) -> nn.Linear:
    """
    A linear layer whose weight and bias may be read without calling it. Weights that a hook recomputes, as in
    torch.nn.utils.prune, are recomputed by a call on one row. A TypeError, which names an alternative, where an
    adapter or a quantised layer has replaced it, or a hook changes its output: both would be ignored.
    """
    if is_plain(layer, nn.Linear):
        return layer  # type: ignore[return-value]
    if isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward:
        row = torch.linspace(-1, 1, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)[None]
        output, expected = layer(row), nn.functional.linear(row, layer.weight, layer.bias)
        if isinstance(output, Tensor) and torch.equal(output, expected):
            return layer
    kind = f"{type(layer).__module__}.{type(layer).__name__}"  # an adapter is often called Linear too
    raise TypeError(
        f"{name} is a {kind}, or a hook changes its output, and its weight is read without calling it: keep it a "
        f"plain nn.Linear. {alternative}"
    )


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

    def set_vocabulary(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """
        Give the model its vocabulary: the text of each token, for character features, and which tokens carry a tag,
        for a CRF. It is saved with the model.

        Args:
            tokenizer: the one that makes the model's input_ids.

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
            tables.load_vocabulary(vocabulary)

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
        A new model on pretrained embeddings. Once saved, it does not need their source.

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
        Flat embeddings `[N, d]` to flat states `[N, d]`, `None` where `record` wants none, and the fields of the
        output that are per sequence. `inputs` are the checked tensors of the forward call, `[b, n, ...]`, for those
        that are not embedded.
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
        recorded = {
            name: bool(getattr(self.config, f"output_{name}") if given is None else given)
            for name, given in (("attentions", output_attentions), ("hidden_states", output_hidden_states))
        }
        inputs = {
            "input_ids": input_ids,
            "inputs_embeds": inputs_embeds,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "word_mask": word_mask,
        }
        mask, inputs = self._checked(attention_mask, inputs)
        siamese = self.config.pair_mode == "siamese"
        if siamese:
            from .pairs import join_pairs, split_pairs

            mask, inputs = split_pairs(mask, inputs)
        layout = self._layout(mask, inputs, recorded["attentions"])
        if layout.in_rows and not layout.is_full:
            # Padding may hold anything, and is computed too. A weight of 0 leaves nothing of a number, but not of NaN.
            inputs = {name: None if x is None else _zeros_at(~layout.mask, x) for name, x in inputs.items()}
        embedded = self.embeddings(layout, **{name: x for name, x in inputs.items() if name != "word_mask"})
        record = Recorder(layout, **recorded, token_states=output_token_states)
        tokens, per_sequence = self.encode(embedded, layout, record, inputs)
        states = layout.unpack(tokens) if tokens is not None and output_token_states else None
        records: dict[str, Any] = record.recorded()
        output = EncoderOutput(last_hidden_state=states, **per_sequence, **records)
        return join_pairs(output) if siamese else output

    def _layout(self, mask: Tensor | None, inputs: dict[str, Tensor | None], records: bool) -> TokenLayout:
        """Where the tokens lie; a `ValueError` where a sequence is longer than positions reach."""
        given = inputs["input_ids"] if inputs["inputs_embeds"] is None else inputs["inputs_embeds"]
        if mask is None and not is_traced():
            layout = TokenLayout.full(given.shape[0], given.shape[1], given.device)
        else:
            mask = torch.ones(given.shape[:2], dtype=torch.bool, device=given.device) if mask is None else mask
            layout = TokenLayout.from_mask(mask, keep_padding=records)
        limit = None if is_fixed() else longest_input(self.config)
        if limit is not None and layout.max_length > limit:
            backbone = self.config.backbone_config
            inside = backbone is not None and limit == longest_input(backbone)
            owner = f"the {backbone.model_type} inside the embeddings" if inside else "max_position_embeddings"
            raise ValueError(
                f"A sequence of {layout.max_length} tokens is given; {owner} allows {limit}. Cut it, or read it in "
                f"overlapping windows: tokenizer(..., truncation=True, max_length={limit}, stride={limit // 4}, "
                "return_overflowing_tokens=True)."
            )
        return layout

    def _checked(
        self, attention_mask: Tensor | None, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor | None, dict[str, Tensor | None]]:
        """The mask as booleans `[b, n]`, `None` where all tokens are real, and the inputs, in their shapes."""
        ids, embeds = inputs["input_ids"], inputs["inputs_embeds"]
        if (ids is None) == (embeds is None):
            raise ValueError("Give either input_ids or inputs_embeds: model(input_ids=...).")
        given, width = (ids, []) if embeds is None else (embeds, [self.embeddings.given_width()])
        shape = [*given.shape[:2]]
        if given.dim() != 2 + len(width) or [*given.shape[2:]] != width or 0 in shape:
            axes = ", ".join(map(str, ["batch", "length", *width]))
            raise ValueError(f"The inputs have shape {[*given.shape]}; [{axes}] is needed, neither of them 0.")
        if inputs["word_mask"] is not None and not hasattr(self.config, "max_word_length"):
            raise ValueError(f"word_mask is given, and {type(self).__name__} reads no words: omit it.")
        positions = inputs["position_ids"]
        if positions is not None and [*positions.shape] == [1, shape[1]]:
            inputs = {**inputs, "position_ids": positions.expand(shape)}
        for name, tensor in {"attention_mask": attention_mask, **inputs}.items():
            needed = shape + ([self.config.max_word_length] if name == "word_mask" and tensor is not None else [])
            if tensor is not None and name != "inputs_embeds" and [*tensor.shape] != needed:
                raise ValueError(f"{name} has shape {[*tensor.shape]}; {needed} is needed.")
        if attention_mask is None:
            ends = [] if ids is None or is_fixed() else ids[:, :: max(shape[1] - 1, 1)].flatten().tolist()
            if self.config.pad_token_id in ends:  # what the next line looks at takes it longer
                self.warn_if_padding_and_no_attention_mask(ids, attention_mask)
            return None, inputs
        if is_fixed():
            return attention_mask != 0, inputs
        if attention_mask.dtype == torch.bool:
            return None if bool(attention_mask.all()) else attention_mask, inputs
        low, _ = extremes(attention_mask)
        if low < 0:
            raise ValueError(
                f"attention_mask holds {low}, as additive masks do; 1 at real tokens and 0 at padding is needed: "
                "attention_mask=(attention_mask == 0).long()."
            )
        return attention_mask != 0 if low == 0 else None, inputs


def _require_gradient(module: nn.Module, inputs: Any, output: Tensor) -> None:
    if not output.requires_grad:
        output.requires_grad_(True)


def _zeros_at(padding: Tensor, columns: Tensor) -> Tensor:
    """`[b, n, ...]` with zeros at the padding `[b, n]`."""
    return columns.masked_fill(padding if columns.dim() == 2 else padding[..., None], 0)


class Recorder:
    """Collects hidden states and attention weights in the order of the layers, where they are requested."""

    def __init__(self, layout: TokenLayout, hidden_states: bool, attentions: bool, token_states: bool = True):
        self.layout = layout
        self.wants_all = hidden_states or attentions
        self.wants_token_states = token_states or self.wants_all
        self.wants_hidden_states = hidden_states
        self.wants_attentions = attentions
        self._recorded: dict[str, list[Tensor]] = {"hidden_states": [], "attentions": [], "relay_attentions": []}

    def hidden_state(self, tokens: Tensor) -> Tensor:
        """Record `[N, d]` as `[b, n, d]`; what to continue with is made from it, so that it has a gradient."""
        if not self.wants_hidden_states:
            return tokens
        self._recorded["hidden_states"].append(self.layout.unpack(tokens))
        return self.layout.pack(self._recorded["hidden_states"][-1])

    def attention(self, weights: Tensor | None) -> None:
        """`[b, h, n, r]`; `None` only where nothing is recorded."""
        if self.wants_attentions and weights is not None:
            self._recorded["attentions"].append(weights)

    def attention_over_rows(self, weights: Tensor | None) -> None:
        """`[b, h, m, m]` between the tokens of rows as `[b, h, n, n]`; `None` only where nothing is recorded."""
        if weights is not None:
            of_queries = self.layout.rows_to_columns(weights.transpose(1, 2))  # [b, n, h, m]
            of_keys = self.layout.rows_to_columns(of_queries.transpose(1, 3))  # [b, n, h, n], keys first
            self.attention(of_keys.permute(0, 2, 3, 1))

    def relay_attention(self, weights: Tensor | None) -> None:
        """
        `[b, h, m]` over rows as `[b, h, n]`, or `[b, h, 1 + m]` with the relay's own first, zeros for empty sequences;
        `None` where no relay was updated.
        """
        if self.wants_attentions and weights is not None:
            layout = self.layout
            own, of_rows = weights.split([weights.shape[-1] - layout.max_length, layout.max_length], dim=-1)
            columns = layout.rows_to_columns(of_rows.transpose(1, 2)).transpose(1, 2)
            self._recorded["relay_attentions"].append(torch.cat([layout.zero_empty(own), columns], dim=-1))

    def recorded(self) -> dict[str, tuple[Tensor, ...] | None]:
        """The fields of `EncoderOutput`."""
        return {name: tuple(states) or None for name, states in self._recorded.items()}
