"""
DiSAN (Shen et al. 2018, https://arxiv.org/abs/1709.04696) as transformers models: attention with a weight for every
feature, over the tokens before and over those after.

Axes: b batch  n columns  N flat tokens  m longest sequence  d width  f features of one direction, d / 2
      r rows of a block  q its queries  k its keys
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, elu, pad
from transformers.modeling_layers import GradientCheckpointingLayer

from .configuration_disan import DisanConfig
from .derivatives import first_derivatives_only
from .heads import ForMaskedLM, ForQuestionAnswering, ForSequenceClassification, ForTokenClassification
from .modeling_encoder import EncoderModel, EncoderPreTrainedModel, Recorder
from .token_layout import TokenLayout, is_traced


# c of section 3.3: scores lie between -5 and 5.
SCORE_SCALE = 5.0

# Scores, one for each query, key and feature, that are held at once: by each thread of a CPU, or by another device.
SCORES_AT_ONCE = 2**18
SCORES_AT_ONCE_ON_DEVICE = 2**24

# Features whose scores are held at once with recorded weights, and in a traced graph, which knows no lengths.
FEATURES_AT_ONCE = 16


def token2token_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    real: Tensor,
    extents: list[int] | None,
    backwards: bool,
    dropout_p: float,
    output_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    """
    Masked multi-dimensional token2token attention (section 3.3): the scores of token j for token i are the vector
    `c tanh((query_i + key_j) / c)`, and each of its features has a separate softmax, over the tokens before i or over
    those after it.

    The m x m x f scores are computed in blocks of rows and queries, and again in the backward pass. Where the weights
    are returned, or in a traced graph, they are computed for a few features at once, and gradients can be
    differentiated again.

    Args:
        query, key, value: `[b, m, f]`.
        real: `[b, m]`, bool: the columns that may be attended to.
        extents: how many columns of each row hold all its real ones; `None` where shapes must not depend on the data.
        backwards: attend to the tokens after, not to those before.
        dropout_p: probability with which a token drops another, all features at once; 0 outside training.
        output_weights: also return the weights.

    Returns:
        The context `[b, m, f]`, zeros where there is no token to attend to, and the weights as they were applied,
        averaged over the features, `[b, m, m]`, or `None`.
    """
    f, dtype = query.shape[-1], value.dtype
    query, key = query * (2 / SCORE_SCALE), key * (2 / SCORE_SCALE)
    if extents is None or output_weights:
        pieces = zip(*(x.split(FEATURES_AT_ONCE, dim=-1) for x in (query, key, value)), strict=True)
        # One mask for all features.
        dropout_mask = dropout(key.new_ones(*real.shape, real.shape[1]), dropout_p) if dropout_p > 0 else None
        parts = [attend_features(q, k, v, real, dropout_mask, backwards) for q, k, v in pieces]
        context = torch.cat([context for context, _ in parts], dim=-1)
        return context.to(dtype), torch.stack([sums for _, sums in parts]).sum(0) / f if output_weights else None
    # Sums of many exponentials overflow in half precision. Widened once: a block keeps its inputs for backward.
    query, key, value = (x.to(torch.promote_types(dtype, torch.float32)) for x in (query, key, value))
    limit = SCORES_AT_ONCE * torch.get_num_threads() if query.device.type == "cpu" else SCORES_AT_ONCE_ON_DEVICE
    groups = group_rows(extents, f, limit)
    sizes = [len(group) for group in groups]
    rows = zip(*(x.split(sizes) for x in (query, key, value, real)), strict=True)
    blocks = [
        attend_rows(q, k, v, columns, max(1, *group), limit, backwards, dropout_p)
        for group, (q, k, v, columns) in zip(groups, rows, strict=True)
    ]
    return torch.cat(blocks).to(dtype), None


def group_rows(extents: list[int], features: int, limit: int) -> list[list[int]]:
    """The extents of consecutive rows in groups with at most `limit` scores, or of one row each."""
    groups: list[list[int]] = []
    for extent in extents:
        if groups and (len(groups[-1]) + 1) * max(extent, *groups[-1]) ** 2 * features <= limit:
            groups[-1].append(extent)
        else:
            groups.append([extent])
    return groups


def attend_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    real: Tensor,
    extent: int,
    limit: int,
    backwards: bool,
    dropout_p: float,
) -> Tensor:
    """
    The context of a few rows, whose real columns are the first `extent`, in blocks of queries of at most `limit`
    scores, or of one query; queries and keys times 2 / c.
    """
    rows, m, f = query.shape
    at_once = max(1, limit // (rows * extent * f))
    contexts = []
    for start in range(0, extent, at_once):
        queries = slice(start, min(start + at_once, extent))
        # None of these queries attends to the tokens on the other side.
        keys = slice(start, extent) if backwards else slice(0, queries.stop)
        inputs = (query[:, queries], key[:, keys], value[:, keys], real[:, keys], start - keys.start)
        contexts.append(attend_block(*inputs, backwards, dropout_p))
    return pad(torch.cat(contexts, dim=1), (0, 0, 0, m - extent))


def attend_features(
    query: Tensor, key: Tensor, value: Tensor, real: Tensor, dropout_mask: Tensor | None, backwards: bool
) -> tuple[Tensor, Tensor]:
    """
    The equation as it is, all scores `[b, m, m, f]` of a few features at once: context `[b, m, f]`, and the weights'
    sums over these features `[b, m, m]`. Queries and keys are times 2 / c; the mask has factors `[b, m, m]`.
    """
    allowed = _allowed(real, query.shape[1], 0, backwards)
    # c tanh(x) is 2 c sigmoid(2 x) - c, whose constant cancels in the softmax.
    scores = (query[:, :, None] + key[:, None]).sigmoid_()
    bias = torch.zeros_like(allowed, dtype=scores.dtype).masked_fill(~allowed, torch.finfo(scores.dtype).min)
    weights = torch.add(bias[..., None], scores, alpha=2 * SCORE_SCALE).softmax(2).to(value.dtype)
    if dropout_mask is not None:
        weights = weights * dropout_mask[..., None]
    # A softmax over nothing is not 0.
    nothing = ~allowed.any(2, keepdim=True)
    # Autocast on a GPU returns sums in float32.
    context = (weights * value[:, None]).sum(2).to(value.dtype).masked_fill(nothing, 0)
    return context, weights.sum(-1).to(value.dtype).masked_fill(nothing, 0)


def attend_block(
    query: Tensor, key: Tensor, value: Tensor, real: Tensor, offset: int, backwards: bool, dropout_p: float
) -> Tensor:
    """
    The context `[r, q, f]` of a few queries of float32 or float64, in place, in half the time of `attend_features`,
    with first derivatives only. `offset` is the column of the first query, counted from the first key.
    """
    seed = int(torch.randint(2**62, ())) if dropout_p > 0 else 0
    return _BlockAttention.apply(query, key, value, real, offset, backwards, dropout_p, seed)


class _BlockAttention(torch.autograd.Function):
    """
    With `s = sigmoid(q_i + k_j)`, `e = exp(2 c s)` where i may attend to j and 0 elsewhere, `z = sum_j e` and `u` the
    dropout of a pair, `context_i = sum_j u e v_j / z`: no score is so high that a maximum must be subtracted first.

    Scores are not saved: the backward pass computes them again, and draws `u` again from the seed.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        real: Tensor,
        offset: int,
        backwards: bool,
        dropout_p: float,
        seed: int,
    ) -> Tensor:
        allowed = _allowed(real, query.shape[1], offset, backwards)[..., None]
        dropout_mask = _dropout_mask(allowed, dropout_p, seed, query.dtype)
        weights = (query[:, :, None] + key[:, None]).sigmoid_().mul_(2 * SCORE_SCALE).exp_().mul_(allowed)
        total = weights.sum(2)
        total.masked_fill_(total == 0, 1)
        if dropout_mask is not None:
            weights.mul_(dropout_mask)
        context = weights.mul_(value[:, None]).sum(2).div_(total)
        ctx.save_for_backward(query, key, value, real, total, context)
        ctx.options = offset, backwards, dropout_p, seed
        return context

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, d_context: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, real, total, context = ctx.saved_tensors
        offset, backwards, dropout_p, seed = ctx.options
        allowed = _allowed(real, query.shape[1], offset, backwards)[..., None]
        dropout_mask = _dropout_mask(allowed, dropout_p, seed, query.dtype)
        scores = (query[:, :, None] + key[:, None]).sigmoid_()
        # In turn: e, its share of the gradient e g / z, the gradient of q_i + k_j.
        flow = (scores * (2 * SCORE_SCALE)).exp_().mul_(allowed).mul_((d_context / total)[:, :, None])
        if dropout_mask is None:
            d_value = flow.sum(1)
            flow.mul_(value[:, None] - context[:, :, None])
        else:
            d_value = (flow * dropout_mask).sum(1)
            flow.mul_((dropout_mask * value[:, None]).sub_(context[:, :, None]))
        flow.mul_(scores).mul_(scores.neg_().add_(1)).mul_(2 * SCORE_SCALE)
        return flow.sum(2), flow.sum(1), d_value, None, None, None, None, None


def _allowed(real: Tensor, queries: int, offset: int, backwards: bool) -> Tensor:
    """Which of the real columns `[r, k]` each of the queries may attend to: `[r, q, k]`."""
    column = torch.arange(offset, offset + queries, device=real.device)[:, None]
    key_column = torch.arange(real.shape[1], device=real.device)
    return real[:, None] & (key_column > column if backwards else key_column < column)


def _dropout_mask(allowed: Tensor, dropout_p: float, seed: int, dtype: torch.dtype) -> Tensor | None:
    """Factors of the weights, shaped as `allowed`, determined by the seed; `None` without dropout."""
    if dropout_p == 0:
        return None
    generator = torch.Generator(allowed.device).manual_seed(seed)
    dropout_mask = torch.empty(allowed.shape, dtype=dtype, device=allowed.device).bernoulli_(
        1 - dropout_p, generator=generator
    )
    return dropout_mask.div_(1 - dropout_p)


class DirectionalSelfAttention(nn.Module):
    """
    One DiSA block (section 3.3): hidden states, token2token attention to the tokens before or, `backwards`, after, and
    a fusion gate of both.
    """

    def __init__(self, config: DisanConfig, backwards: bool):
        super().__init__()
        features = config.hidden_size // 2
        self.backwards = backwards
        self.attention_dropout_p = config.attention_probs_dropout_prob
        self.dropout = nn.Dropout(config.hidden_dropout_prob)
        self.dense = nn.Linear(config.hidden_size, features)
        # W1 and W2; one bias serves both.
        self.query = nn.Linear(features, features)
        self.key = nn.Linear(features, features, bias=False)
        # W(f1) and W(f2); one bias serves both.
        self.gate_context = nn.Linear(features, features, bias=False)
        self.gate_state = nn.Linear(features, features)

    def forward(
        self, rows: Tensor, real: Tensor, extents: list[int] | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """u `[b, m, f]` of rows `[b, m, d]`, and the weights `[b, m, m]` or `None`; as in `token2token_attention`."""
        states = elu(self.dense(rows))
        context, weights = token2token_attention(
            self.query(states),
            self.key(states),
            states,
            real,
            extents,
            self.backwards,
            self.attention_dropout_p if self.training else 0.0,
            output_attentions,
        )
        context = self.dropout(context)
        gate = torch.sigmoid(self.gate_context(context) + self.gate_state(states))
        return torch.lerp(context, states, gate), weights


class DisanLayer(GradientCheckpointingLayer):
    """Both directions, side by side (section 4)."""

    def __init__(self, config: DisanConfig):
        super().__init__()
        self.forwards = DirectionalSelfAttention(config, backwards=False)
        self.backwards = DirectionalSelfAttention(config, backwards=True)

    def forward(
        self, rows: Tensor, real: Tensor, extents: list[int] | None, output_attentions: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The new states `[b, m, d]` and the weights `[b, 2, m, m]` or `None`; as in `token2token_attention`."""
        before, weights_before = self.forwards(rows, real, extents, output_attentions)
        after, weights_after = self.backwards(rows, real, extents, output_attentions)
        weights = torch.stack([weights_before, weights_after], dim=1) if output_attentions else None
        return torch.cat([before, after], dim=-1), weights


class Source2TokenAttention(nn.Module):
    """
    Multi-dimensional source2token attention (section 3.2), which makes one vector of a sequence: the scores of a token
    are the vector `W ELU(W1 u + b1)`, and each of its features has a separate softmax over the tokens.

    The paper's bias b after W would add the same to the scores of all tokens and cancel.
    """

    def __init__(self, config: DisanConfig):
        super().__init__()
        self.dropout_p = config.attention_probs_dropout_prob
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.score = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, rows: Tensor, real: Tensor) -> Tensor:
        """Rows `[b, m, d]` with real columns `[b, m]` to `[b, d]`; arbitrary for an empty one."""
        scores = self.score(elu(self.dense(rows)))
        scores = scores.masked_fill(~real[..., None], torch.finfo(scores.dtype).min)
        weights = dropout(scores.softmax(1).to(rows.dtype), self.dropout_p, self.training)
        return (weights * rows).sum(1)


class DisanPreTrainedModel(EncoderPreTrainedModel):
    """Base class of DiSAN's models."""

    config_class = DisanConfig
    # Heads without a pooled vector build none; a checkpoint may hold it.
    _keys_to_ignore_on_load_unexpected = [r"(^|\.)pooler\."]
    _no_split_modules = ["TokenEmbeddings", "DisanLayer"]


class DisanModel(DisanPreTrainedModel, EncoderModel):
    """
    The bare DiSAN (section 4): tokens attend to those before and to those after them, feature by feature.

    Returns an `EncoderOutput` with `last_hidden_state [b, n, d]` (zeros at padding), the forward direction in its
    first half, and `pooler_output [b, d]`, their source2token attention. `attentions` are `[b, 2, n, n]`, those to the
    tokens before and those to the tokens after, each averaged over its features.

    Time grows with the square of the length. Memory does not, since scores are held in blocks. Under `torch.compile`
    and export, where lengths are not known, the blocks are of features, `[b, n, n, 16]`, and a compiled training step
    keeps the scores of all features.

    Example:

    ```python
    >>> import torch
    >>> from modeling_star import DisanConfig, DisanModel

    >>> model = DisanModel(DisanConfig(vocab_size=100))
    >>> model(torch.tensor([[5, 6, 7]])).last_hidden_state.shape
    torch.Size([1, 3, 300])
    ```
    """

    def build_encoder(self, config: DisanConfig) -> None:
        self.layers = nn.ModuleList(DisanLayer(config) for _ in range(config.num_hidden_layers))
        self.pooler = Source2TokenAttention(config) if self.add_pooling_layer else None

    def encode(
        self, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor, dict[str, Any]]:
        tokens = record.hidden_state(embedded)
        rows, real = layout.to_rows(tokens), layout.row_mask
        extents = None if is_traced() else layout.row_extents
        for layer in self.layers:
            rows, weights = layer(rows, real, extents, record.wants_attentions)
            tokens = record.hidden_state(layout.from_rows(rows))
            if record.wants_hidden_states:
                rows = layout.to_rows(tokens)
            record.attention_over_rows(weights)
        if self.pooler is None:
            return tokens, {}
        return tokens, {"pooler_output": layout.zero_empty(self.pooler(rows, real))}


class DisanForSequenceClassification(DisanPreTrainedModel, ForSequenceClassification):
    """DiSAN with an MLP on the pooled vector: texts, text pairs, regression."""

    encoder_class = DisanModel


class DisanForTokenClassification(DisanPreTrainedModel, ForTokenClassification):
    """DiSAN with a label for every token: entities, parts of speech."""

    encoder_class = DisanModel


class DisanForQuestionAnswering(DisanPreTrainedModel, ForQuestionAnswering):
    """DiSAN with the start and end of an answer span."""

    encoder_class = DisanModel


class DisanForMaskedLM(DisanPreTrainedModel, ForMaskedLM):
    """DiSAN with a masked-language-model output tied to the embeddings."""

    encoder_class = DisanModel


__all__ = [
    "DisanForMaskedLM",
    "DisanForQuestionAnswering",
    "DisanForSequenceClassification",
    "DisanForTokenClassification",
    "DisanModel",
    "DisanPreTrainedModel",
]
