"""
The standard Transformer encoder (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) as transformers models:
torch.nn's layers between this package's embeddings and heads.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width  h heads
"""

from typing import Any

from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_vanilla import VanillaTransformerConfig
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder, is_plain, require_plain_linear
from .token_layout import TokenLayout


class VanillaTransformerLayer(GradientCheckpointingLayer):
    """One post-norm layer: torch.nn.TransformerEncoderLayer, with its attention weights."""

    def __init__(self, config: VanillaTransformerConfig):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            config.hidden_size,
            config.num_attention_heads,
            config.intermediate_size,
            dropout=config.hidden_dropout_prob,
            activation=ACT2FN[config.hidden_act],
            layer_norm_eps=config.layer_norm_eps,
            batch_first=True,
        )
        self.layer.self_attn.dropout = config.attention_probs_dropout_prob

    def forward(self, rows: Tensor, padding: Tensor, output_attentions: bool) -> tuple[Tensor, Tensor | None]:
        """
        The new states `[b, m, d]` of rows, `padding` true in none of them everywhere, and the weights `[b, h, m, m]`
        or `None`, which are computed a second time, as the layer does not return them.
        """
        attention = self.layer.self_attn
        if isinstance(attention, nn.MultiheadAttention):
            alternative = "Put adapters at linear1 and linear2: LoraConfig(target_modules=['linear1', 'linear2'])."
            # torch.nn.MultiheadAttention reads its weight too.
            require_plain_linear(attention.out_proj, "self_attn.out_proj", alternative)
        weights = None
        if output_attentions:
            _, weights = attention(
                rows, rows, rows, key_padding_mask=padding, need_weights=True, average_attn_weights=False
            )
        if self._is_plain():
            return self.layer(rows, src_key_padding_mask=padding), weights
        return self._called(rows, padding), weights

    def _is_plain(self) -> bool:
        """Whether torch's fused inference, which reads weights and calls no layer, computes what the layers would."""
        kinds: dict[str, type[nn.Module]] = {
            **{"self_attn": nn.MultiheadAttention, "linear1": nn.Linear, "linear2": nn.Linear},
            **{"norm1": nn.LayerNorm, "norm2": nn.LayerNorm},
        }
        layers = ((getattr(self.layer, name), kind) for name, kind in kinds.items())
        return all(type(layer) is kind and is_plain(layer, kind) for layer, kind in layers)

    def _called(self, rows: Tensor, padding: Tensor) -> Tensor:
        """The layer as calls of its parts, which may be adapters: `[b, m, d]` to `[b, m, d]`."""
        layer = self.layer
        update, _ = layer.self_attn(rows, rows, rows, key_padding_mask=padding, need_weights=False)
        rows = layer.norm1(rows + layer.dropout1(update))
        update = layer.linear2(layer.dropout(layer.activation(layer.linear1(rows))))
        return layer.norm2(rows + layer.dropout2(update))


class VanillaTransformerPreTrainedModel(EncoderPreTrainedModel):
    """Base class of the standard Transformer's models."""

    config_class = VanillaTransformerConfig
    _no_split_modules = ["TokenEmbeddings", "VanillaTransformerLayer"]


class VanillaTransformerModel(VanillaTransformerPreTrainedModel, EncoderModel):
    """
    The bare standard Transformer encoder, post-norm.

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding) and `pooler_output [b, d]`, the
    mean plus the maximum over real tokens, so that its head sees no less than the Star-Transformer's. `attentions`
    are `[b, h, n, n]`.

    Example:

    ```python
    >>> import torch
    >>> from modeling_star import VanillaTransformerConfig, VanillaTransformerModel

    >>> model = VanillaTransformerModel(VanillaTransformerConfig(vocab_size=100))
    >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
    torch.Size([1, 3, 300])
    ```
    """

    def build_encoder(self, config: VanillaTransformerConfig) -> None:
        self.layers = nn.ModuleList(VanillaTransformerLayer(config) for _ in range(config.num_hidden_layers))

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Any]]:
        tokens = record.hidden_state(embedded)
        rows, real = layout.to_rows(tokens), layout.row_mask
        # A softmax over nothing is NaN: an empty sequence attends to its padding, and is zeroed afterwards.
        padding = ~real & real.any(1, keepdim=True)
        for layer in self.layers:
            rows, weights = layer(rows, padding, record.wants_attentions)
            tokens = record.hidden_state(layout.from_rows(rows))
            if record.wants_hidden_states:
                rows = layout.to_rows(tokens)
            record.attention_over_rows(weights)
        pooled = {"pooler_output": layout.mean(tokens) + layout.max(tokens)} if self.add_pooling_layer else {}
        return tokens, pooled


class VanillaTransformerForSequenceClassification(VanillaTransformerPreTrainedModel, ForSequenceClassification):
    """Standard Transformer with an MLP on the pooled vector: texts, text pairs, regression."""

    encoder_class = VanillaTransformerModel


class VanillaTransformerForTokenClassification(VanillaTransformerPreTrainedModel, ForTokenClassification):
    """Standard Transformer with a label for every token: entities, parts of speech."""

    encoder_class = VanillaTransformerModel


class VanillaTransformerForQuestionAnswering(VanillaTransformerPreTrainedModel, ForQuestionAnswering):
    """Standard Transformer with the start and end of an answer span."""

    encoder_class = VanillaTransformerModel


class VanillaTransformerForMaskedLM(VanillaTransformerPreTrainedModel, ForMaskedLM):
    """Standard Transformer with a masked-language-model output tied to the embeddings."""

    encoder_class = VanillaTransformerModel


__all__ = [
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForQuestionAnswering",
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerForTokenClassification",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
]
