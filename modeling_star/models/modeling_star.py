"""
Star-Transformer (Guo et al. 2019, https://arxiv.org/abs/1902.09113) as transformers models.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width  h heads  c width of a head  r candidate roles
"""

from typing import Any

from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import AttentionProjections, CandidateAttention, Candidates, Mix, UpdateLayerNorm, relay_attention
from .configuration_star import StarTransformerConfig
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder
from .ops import Operations, choose
from .token_layout import TokenLayout


class RelayAttention(nn.Module):
    """MultiAtt of the relay over itself and all satellites (Eq 7)."""

    def __init__(self, config: StarTransformerConfig):
        super().__init__()
        self.dropout_p = config.attention_probs_dropout_prob
        self.projections = AttentionProjections(config.hidden_size, config.num_attention_heads, config.head_dim)

    def forward(self, relay: Tensor, tokens: Tensor, layout: TokenLayout, mix: Mix) -> tuple[Tensor, Tensor | None]:
        """
        The update of relays `[b, d]`, by the satellites `[N, d]` after theirs, and the weights `[b, h, 1 + m]`; `None`
        where kernels are used.
        """
        dropout_p = self.dropout_p if self.training else 0.0
        context, weights = relay_attention(self.projections, relay, tokens, layout, dropout_p, mix=mix)
        return self.projections.output(context), weights


class StarTransformerLayer(GradientCheckpointingLayer):
    """One step t of Algorithm 1: all satellites, then the relay, which a last layer that no head reads lacks."""

    def __init__(self, config: StarTransformerConfig, updates_relay: bool):
        super().__init__()
        self.reach = config.reach
        self.residual = config.residual
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.ring_attention = CandidateAttention(
            config.hidden_size,
            config.num_attention_heads,
            config.head_dim,
            config.attention_probs_dropout_prob,
            biased_roles=len(config.candidate_roles) if config.role_bias else 0,
        )
        self.ring_norm = UpdateLayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.relay_attention = RelayAttention(config) if updates_relay else None
        self.relay_norm = UpdateLayerNorm(config.hidden_size, eps=config.layer_norm_eps) if updates_relay else None

    def forward(
        self,
        tokens: Tensor,
        relay: Tensor | None,
        embedded: Tensor | None,
        layout: TokenLayout,
        update_relay: bool,
        ops: Operations,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """
        H^t `[N, d]`, s^t `[b, d]`, the ring weights `[b, h, n, r]` and the relay weights `[b, h, 1 + m]`, of H^(t-1),
        s^(t-1) (`None` without radial connections) and E (`None` where the tokens are the embeddings).
        """
        c = Candidates(  # Eq 4: C_i = [h_(i-1); h_i; h_(i+1); e_i; s]
            tokens,
            layout,
            self.ring_attention.projections.key_value_weight(),
            self.reach,
            node=relay,
            embedded=embedded,
        )
        update, ring_weights = self.ring_attention(c, ops.attend)  # Eq 5: MultiAtt(h_i, C_i)
        tokens = self._update(tokens, update, self.ring_norm, ops)  # Eq 6
        if relay is None or not update_relay:
            return tokens, relay, ring_weights, None
        update, relay_weights = self.relay_attention(relay, tokens, layout, ops.mix)  # Eq 7: MultiAtt(s, [s; H])
        relay = self._update(relay, update, self.relay_norm, ops)  # Eq 8
        return tokens, relay, ring_weights, relay_weights

    def _update(self, state: Tensor, update: Tensor, norm: UpdateLayerNorm, ops: Operations) -> Tensor:
        """Eqs 6 and 8, LN(ReLU(update)), or LN(state + ReLU(update)): `[..., d]` to `[..., d]`."""
        return norm(self.dropout(update), state if self.residual else None, self.activation, ops.update_norm)


class StarTransformerPreTrainedModel(EncoderPreTrainedModel):
    """Base class of the Star-Transformer's models."""

    config_class = StarTransformerConfig
    # Heads without a pooled vector build no last relay update; a checkpoint may hold one.
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)relay_(attention|norm)\."]
    _no_split_modules = ["TokenEmbeddings", "StarTransformerLayer"]


class StarTransformerModel(StarTransformerPreTrainedModel, EncoderModel):
    """
    The bare Star-Transformer (Algorithm 1): satellites on a ring, and one relay that every satellite reads and feeds.

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding), `relay_state [b, d]` (`None`
    without radial connections) and `pooler_output [b, d]`, that state plus the maximum over real tokens (section 3.3)
    or, with `pooling="mean"`, plus their mean. `attentions` are the ring weights `[b, h, n, r]` in the order left,
    self, right, embedding, relay, without the roles that a variant lacks (`config.candidate_roles`);
    `relay_attentions` are `[b, h, n + 1]`, the relay first.

    Example:

    ```python
    >>> import torch
    >>> from modeling_star import StarTransformerConfig, StarTransformerModel

    >>> model = StarTransformerModel(StarTransformerConfig(vocab_size=100))
    >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
    torch.Size([1, 3, 300])
    ```
    """

    def build_encoder(self, config: StarTransformerConfig) -> None:
        last = config.num_hidden_layers - 1
        self.layers = nn.ModuleList(
            StarTransformerLayer(config, config.use_radial and (self.add_pooling_layer or layer < last))
            for layer in range(config.num_hidden_layers)
        )
        self.relay_start_norm: UpdateLayerNorm | None = None
        if config.use_radial and config.relay_start_norm:
            self.relay_start_norm = UpdateLayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor | None, dict[str, Any]]:
        ops = choose(embedded, layout, self.config.reach, has_relay=True, records=record.wants_attentions)
        tokens = embedded = record.hidden_state(embedded)
        relay: Tensor | None = layout.mean(embedded) if self.config.use_radial else None
        if relay is not None and self.relay_start_norm is not None:
            relay = self.relay_start_norm(relay, kernel=ops.update_norm)
        for step, layer in enumerate(self.layers):
            is_last = step == len(self.layers) - 1
            # H^0 = E, whose keys and values the first layer has as those of its tokens.
            update_relay = self.add_pooling_layer or not is_last
            tokens, relay, ring_weights, relay_weights = layer(
                tokens, relay, None if step == 0 else embedded, layout, update_relay, ops
            )
            tokens = record.hidden_state(tokens)
            record.attention(ring_weights)
            record.relay_attention(relay_weights)
        return tokens, self._pool(tokens, relay, layout) if self.add_pooling_layer else {}

    def _pool(self, tokens: Tensor, relay: Tensor | None, layout: TokenLayout) -> dict[str, Any]:
        """The relay and the pooled vector, `[b, d]` each; zeros for an empty sequence."""
        pooled = (layout.mean if self.config.pooling == "mean" else layout.max)(tokens)
        if relay is None:
            return {"pooler_output": pooled, "relay_state": None}
        relay = layout.zero_empty(relay)
        return {"pooler_output": pooled + relay, "relay_state": relay}


class StarTransformerForSequenceClassification(StarTransformerPreTrainedModel, ForSequenceClassification):
    """Star-Transformer with an MLP on the pooled vector (section 3.3): texts, text pairs, regression."""

    encoder_class = StarTransformerModel


class StarTransformerForTokenClassification(StarTransformerPreTrainedModel, ForTokenClassification):
    """Star-Transformer with a label for every token (section 3.3): entities, parts of speech."""

    encoder_class = StarTransformerModel


class StarTransformerForQuestionAnswering(StarTransformerPreTrainedModel, ForQuestionAnswering):
    """Star-Transformer with the start and end of an answer span."""

    encoder_class = StarTransformerModel


class StarTransformerForMaskedLM(StarTransformerPreTrainedModel, ForMaskedLM):
    """Star-Transformer with a masked-language-model output tied to the embeddings."""

    encoder_class = StarTransformerModel


__all__ = [
    "StarTransformerForMaskedLM",
    "StarTransformerForQuestionAnswering",
    "StarTransformerForSequenceClassification",
    "StarTransformerForTokenClassification",
    "StarTransformerModel",
    "StarTransformerPreTrainedModel",
]
