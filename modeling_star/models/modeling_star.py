"""
Star-Transformer (Guo et al. 2019, https://arxiv.org/abs/1902.09113) as transformers models.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width  h heads  c width of a head  r candidate roles
      k relays, of which the paper has one
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer

from .attention import AttentionProjections, relay_attention, ring_attention, use_kernels
from .configuration_star import StarTransformerConfig
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder
from .sparse_attention import row_attention, row_attention_applies
from .token_layout import CPUBlock, TokenLayout


class RingAttention(nn.Module):
    """
    MultiAtt of a satellite over its candidates C_i (Eqs 4 and 5): neighbours and itself, its embedding, the relays.

    Args:
        config: which roles there are, the heads, the dropout, and whether roles have a learned bias.
    """

    def __init__(self, config: StarTransformerConfig):
        super().__init__()
        self.dropout_p = config.attention_probs_dropout_prob
        self.projections = AttentionProjections(config.hidden_size, config.num_attention_heads, config.head_dim)
        self.role_bias = None
        if config.position_embedding_type == "ring":
            self.role_bias = nn.Parameter(torch.zeros(config.num_attention_heads, len(config.candidate_roles)))

    def forward(
        self,
        rows: Tensor,
        key_value_weight: Tensor,
        embedded: Tensor | None,
        embedded_key_value: Tensor | None,
        relays: Tensor | None,
        part: CPUBlock,
        layout: TokenLayout,
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            rows: a part's tokens and their neighbours `[M', d]`, h of the layer below.
            key_value_weight: `[2 h c, d]`, joined once for all parts.
            embedded: the part's embeddings `[M, d]`; `None` where they are what `rows` hold.
            embedded_key_value: their keys and values `[M, 2 h c]`, where these are known; or `None`.
            relays: `[b, k, d]`; `None` without radial connections.
            part: which tokens, and where their neighbours are.
            layout: where all tokens lie.

        Returns:
            The update `[M, d]` and the weights `[M, h, r]`; of packed tokens, which none are recorded of, `None`.
        """
        dropout_p = self.dropout_p if self.training else 0.0
        query = self.projections.project_query(part.own(rows))
        if part.alone and use_kernels(query, layout, part.radius, 1 if relays is None else relays.shape[1]):
            context = self._with_kernels(
                query, rows, key_value_weight, embedded, embedded_key_value, relays, part, layout, dropout_p
            )
            return self.projections.project_output(context), None
        relays = None if relays is None else relays[part.sequences]
        if layout.is_packed and row_attention_applies(query):
            table, index = self._table(rows, key_value_weight, embedded, embedded_key_value, relays, part, layout)
            context, total = row_attention(query, table, index, self.role_bias, dropout_p=dropout_p)
            return self.projections.project_unbiased(context, total), None
        candidates = self._candidates(rows, key_value_weight, embedded, embedded_key_value, relays, part, layout)
        width = self.projections.num_heads * self.projections.head_dim
        split = self.projections.split
        context, weights = ring_attention(
            query,
            [split(candidate[:, :width]) for candidate in candidates],
            [split(candidate[:, width:]) for candidate in candidates],
            self.projections.value_bias,
            self.role_bias,
            dropout_p,
        )
        return self.projections.project_output(context), weights

    def _with_kernels(
        self,
        query: Tensor,
        rows: Tensor,
        weight: Tensor,
        embedded: Tensor | None,
        embedded_key_value: Tensor | None,
        relays: Tensor | None,
        part: CPUBlock,
        layout: TokenLayout,
        dropout_p: float,
    ) -> Tensor:
        """The context of all tokens: `candidate_kernels.ring_attention`."""
        from .triton_ring_attention import ring_attention as kernel

        pairs = (2, self.projections.num_heads, self.projections.head_dim)

        def project(states: Tensor | None) -> Tensor | None:
            return None if states is None else nn.functional.linear(states, weight).unflatten(-1, pairs)

        return kernel(
            query,
            project(rows),
            project(embedded) if embedded_key_value is None else embedded_key_value.unflatten(-1, pairs),
            project(None if relays is None else relays[:, 0]),
            self.projections.value_bias,
            self.role_bias,
            part.ring,
            layout,
            dropout_p,
        )

    def _table(
        self,
        rows: Tensor,
        weight: Tensor,
        embedded: Tensor | None,
        embedded_key_value: Tensor | None,
        relays: Tensor | None,
        part: CPUBlock,
        layout: TokenLayout,
    ) -> tuple[Tensor, Tensor]:
        """Keys and values of all candidates of a part `[R, 2 h c]`, and which each token has, `[M, r]`."""
        sources = [rows]
        ring = part.neighbour_index(len(part.own(rows)))
        embedding = ring[part.radius]
        if embedded is not None and embedded_key_value is None:
            embedding = torch.arange(len(rows), len(rows) + len(embedded))
            sources.append(embedded)
        radial: list[Tensor] = []
        if relays is not None:
            count = relays.shape[1]
            first = part.sequence_index(layout) * count + sum(map(len, sources))
            radial = [first + relay for relay in range(count)]
            sources.append(relays.flatten(0, 1))
        table = nn.functional.linear(torch.cat(sources) if len(sources) > 1 else rows, weight)
        if embedded_key_value is not None:
            embedding = torch.arange(len(table), len(table) + len(embedded_key_value))
            table = torch.cat([table, embedded_key_value])
        return table, torch.stack([*ring, embedding, *radial], dim=1)

    def _candidates(
        self,
        rows: Tensor,
        weight: Tensor,
        embedded: Tensor | None,
        embedded_key_value: Tensor | None,
        relays: Tensor | None,
        part: CPUBlock,
        layout: TokenLayout,
    ) -> list[Tensor]:
        """Keys and values of the candidates of a part, `[M, 2 h c]` for each role or what broadcasts to it."""
        candidates = part.neighbours(nn.functional.linear(rows, weight))
        if embedded_key_value is not None:
            candidates.append(embedded_key_value)
        else:
            own = candidates[part.radius]
            candidates.append(own if embedded is None else nn.functional.linear(embedded, weight))
        if relays is not None:
            projected = nn.functional.linear(relays, weight)
            candidates.extend(part.of_sequences(relay, layout) for relay in projected.unbind(1))
        return candidates


class RelayAttention(nn.Module):
    """
    MultiAtt of each relay over itself and all satellites (Eq 7).

    Args:
        config: the heads and the dropout.
    """

    def __init__(self, config: StarTransformerConfig):
        super().__init__()
        self.dropout_p = config.attention_probs_dropout_prob
        self.projections = AttentionProjections(config.hidden_size, config.num_attention_heads, config.head_dim)

    def forward(self, relays: Tensor, tokens: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            relays: `[b, k, d]`.
            tokens: `[N, d]`, the satellites after their update.
            layout: where the tokens lie.

        Returns:
            The update `[b, k, d]` and the weights `[b, k h, 1 + m]`, the first relay's heads first; `None` in their
            place where kernels are used.
        """
        heads = (self.projections.num_heads, self.projections.head_dim)
        context, weights = relay_attention(
            self.projections.project_query(relays),
            relays,
            tokens,
            layout,
            self.projections.weight_of("key").unflatten(0, heads),
            self.projections.weight_of("value").unflatten(0, heads),
            self.projections.value_bias,
            self.dropout_p if self.training else 0.0,
        )
        return self.projections.project_output(context), weights


class StarTransformerLayer(GradientCheckpointingLayer):
    """
    One step t of Algorithm 1: all satellites, then the relays.

    Args:
        config: the encoder's configuration.
        updates_relay: build the relays' attention. The last layer of a model whose head reads no relay has none.
    """

    def __init__(self, config: StarTransformerConfig, updates_relay: bool):
        super().__init__()
        self.pre_norm = config.norm_position == "pre"
        self.residual = config.residual
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.ring_attention = RingAttention(config)
        self.ring_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.relay_attention = RelayAttention(config) if updates_relay else None
        # Before the attention, relays are normalised for the satellites to read, also where they are not updated.
        normalises_relay = config.use_radial and (updates_relay or self.pre_norm)
        self.relay_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps) if normalises_relay else None

    def embedded_key_value(self, embedded: Tensor) -> Tensor:
        """Keys and values of the embeddings, `[N, d]` to `[N, 2 h c]`."""
        return nn.functional.linear(embedded, self.ring_attention.projections.key_value_weight())

    def forward(
        self,
        tokens: Tensor,
        relays: Tensor | None,
        embedded: Tensor | None,
        embedded_key_value: Tensor | None,
        layout: TokenLayout,
        parts: list[CPUBlock],
        update_relay: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """
        Args:
            tokens: `[N, d]`, the satellites H^(t-1).
            relays: `[b, k, d]`, s^(t-1); `None` without radial connections.
            embedded: `[N, d]`; `None` where `tokens` are the embeddings themselves.
            embedded_key_value: `[N, 2 h c]`, their keys and values, where layers share them; or `None`.
            layout: where the tokens lie.
            parts: the tokens in parts, `layout.parts`.
            update_relay: whether s^t has a reader.

        Returns:
            H^t `[N, d]`, s^t `[b, k, d]`, the ring weights `[N, h, r]` and the relay weights `[b, k h, 1 + m]`.
        """
        read_relays = self.relay_norm(relays) if self.pre_norm and relays is not None else relays
        key_value_weight = self.ring_attention.projections.key_value_weight()
        pieces = CPUBlock.split(tokens, parts)
        nothing = [None] * len(parts)
        known = embedded is not None and embedded_key_value is not None
        embeddings = nothing if embedded is None or known else CPUBlock.split(embedded, parts)
        shared = CPUBlock.split(embedded_key_value, parts) if known else nothing
        ends = None
        if len(parts) > 1:
            first, last = layout.ends(parts[0].radius)
            ends = (tokens[first], tokens[last])

        def updated(index: int, part: CPUBlock) -> tuple[Tensor, Tensor | None]:
            rows = part.with_neighbours(pieces, index, ends)
            rows = self.ring_norm(rows) if self.pre_norm else rows
            update, weights = self.ring_attention(
                rows, key_value_weight, embeddings[index], shared[index], read_relays, part, layout
            )
            return self._update(pieces[index], update, self.ring_norm), weights

        tokens, weights = CPUBlock.join((updated(*part) for part in enumerate(parts)), parts, tokens)
        if relays is None or not update_relay:
            return tokens, relays, weights, None
        read_tokens = self.ring_norm(tokens) if self.pre_norm else tokens
        update, relay_weights = self.relay_attention(read_relays, read_tokens, layout)
        return tokens, self._update(relays, update, self.relay_norm), weights, relay_weights

    def _update(self, state: Tensor, update: Tensor, norm: nn.LayerNorm) -> Tensor:
        """Eqs 6 and 8, with the options on norm and residual: `[..., d]` to `[..., d]`."""
        update = self.activation(self.dropout(update))
        state = state + update if self.residual else update
        return state if self.pre_norm else norm(state)


class StarTransformerPreTrainedModel(EncoderPreTrainedModel):
    """Base class of the Star-Transformer's models."""

    config_class = StarTransformerConfig
    # Heads without a pooled vector build no last relay update; a checkpoint may hold one.
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)relay_(attention|norm)\."]
    _no_split_modules = ["TokenEmbeddings", "StarTransformerLayer"]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """As in every encoder; ring positions start without a preference, several relays apart."""
        super()._init_weights(module)
        if isinstance(module, StarTransformerModel) and module.relay_start is not None:
            init.normal_(module.relay_start, std=self.config.initializer_range)
        if isinstance(module, RingAttention) and module.role_bias is not None:
            init.zeros_(module.role_bias)


class StarTransformerModel(StarTransformerPreTrainedModel, EncoderModel):
    """
    The bare Star-Transformer (Algorithm 1): satellites on a ring, one relay that every satellite reads and feeds, or
    several (`num_relays`; not in the paper).

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding), `relay_state [b, d]` (`None`
    without radial connections; of several relays, their mean) and `pooler_output [b, d]`, that state plus the maximum
    over real tokens (section 3.3) or, with `pooling="mean"`, plus their mean. `attentions` are the ring weights
    `[b, h, n, r]` in the order left, self, right, embedding, relay, of which a variant keeps what it has
    (`config.candidate_roles`); `relay_attentions` are `[b, h, n + 1]`, the relay first, or with k relays
    `[b, k h, n + 1]`, the heads of each together.

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
        count = 1 if config.share_layers else config.num_hidden_layers
        # What s^0 differs by from relay to relay, without which all of them would stay the same.
        self.relay_start: nn.Parameter | None = None
        if config.num_relays > 1:
            self.relay_start = nn.Parameter(torch.zeros(config.num_relays, config.hidden_size))
        # Weights that one of the steps trains are trained: a shared relay update is idle only if T = 1.
        self.layers = nn.ModuleList(
            StarTransformerLayer(config, config.use_radial and (self.add_pooling_layer or layer < last))
            for layer in range(count)
        )
        self.ring_norm: nn.LayerNorm | None = None
        self.relay_norm: nn.LayerNorm | None = None
        if config.norm_position == "pre":
            self.ring_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
            if config.use_radial and self.add_pooling_layer:
                self.relay_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Any]]:
        tokens = embedded = record.hidden_state(embedded)
        relays = layout.mean(embedded)[:, None] if self.config.use_radial else None
        if relays is not None and self.relay_start is not None:
            relays = relays + self.relay_start
        parts = layout.parts(radius=self.config.reach)
        first: Any = self.layers[0]
        shared = first.embedded_key_value(embedded) if self.config.share_layers else None
        for step in range(self.config.num_hidden_layers):
            layer: Any = self.layers[0 if self.config.share_layers else step]
            is_last = step == self.config.num_hidden_layers - 1
            tokens, relays, ring_weights, relay_weights = layer(
                tokens,
                relays,
                None if step == 0 and not layer.pre_norm else embedded,
                shared,
                layout,
                parts,
                self.add_pooling_layer or not is_last,
            )
            if is_last and self.ring_norm is not None:
                tokens = self.ring_norm(tokens)
            tokens = record.hidden_state(tokens)
            record.attention(ring_weights)
            if relay_weights is not None and record.wants_attentions:
                record.relay_attention(layout.zero_empty(relay_weights))
        return tokens, self._pool(tokens, relays, layout) if self.add_pooling_layer else {}

    def _pool(self, tokens: Tensor, relays: Tensor | None, layout: TokenLayout) -> dict[str, Any]:
        """The relay and the pooled vector, `[b, d]` each; zeros for an empty sequence."""
        pooled = (layout.mean if self.config.pooling == "mean" else layout.max)(tokens)
        if relays is None:
            return {"pooler_output": pooled, "relay_state": None}
        relay = (relays if self.relay_norm is None else self.relay_norm(relays)).mean(1)
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
