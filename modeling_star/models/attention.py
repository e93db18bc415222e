"""
The attentions of the encoders: a token over its few candidates, and the relay over its sequence.

The candidates of a token are neighbours on a ring, its embedding and a relay in the Star-Transformer; in the
BiG-Transformer the words that contain it and a global node. These operations of torch are the reference; `ops.py`
chooses them or faster ones that give the same results.

    Star, radius 1     left  self  right  embedding  relay      one softmax over all candidates of a token
    BiG, words         itself  1 of 2  2 of 2  1 of 3  ...  global node

Axes: b batch  N flat tokens  m longest sequence  d width  h heads  c width of a head
      w offsets of neighbours, 2 * reach + 1  r candidate roles  L longest word
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .modeling_encoder import require_plain_linear
from .token_layout import (
    Memo,
    TokenLayout,
    at_least_float32,
    cached_unless_traced,
    neighbours,
)


# Up to so many tokens a copy of them costs less than further operations.
FEW_TOKENS = 1024


class AttentionProjections(nn.Module):
    """
    W_Q, W_K, W_V and W_O of one multi-head attention (Eqs 2 and 3 of https://arxiv.org/abs/1902.09113), of h heads of
    width c; h * c may differ from d. Keys carry no bias: within one softmax it would add the same to every score.
    """

    def __init__(self, hidden_size: int, num_heads: int, head_dim: int):
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5
        self.query = nn.Linear(hidden_size, num_heads * head_dim)
        self.key = nn.Linear(hidden_size, num_heads * head_dim, bias=False)
        self.value = nn.Linear(hidden_size, num_heads * head_dim)
        self.output = nn.Linear(num_heads * head_dim, hidden_size)

    def split(self, projected: Tensor) -> Tensor:
        """`[..., h * c]` to `[..., h, c]`."""
        return projected.unflatten(-1, (self.num_heads, self.head_dim))

    def plain(self, name: str) -> nn.Linear:
        """A projection whose weight or bias is read without calling it; a TypeError as of `require_plain_linear`."""
        alternative = "Put adapters at query and output: LoraConfig(target_modules=['query', 'output'])."
        return require_plain_linear(getattr(self, name), f"projections.{name}", alternative)

    def key_value_weight(self) -> Tensor:
        """W_K above W_V, `[2 h c, d]`: one product is faster than two."""
        return torch.cat([self.plain("key").weight, self.plain("value").weight])

    @property
    def value_bias(self) -> Tensor:
        """`[h, c]`"""
        return self.split(self.plain("value").bias)

    def project_output(self, context: Tensor) -> Tensor:
        """`[..., h, c]` to `[..., d]`."""
        return self.output(context.flatten(-2))

    def add_value_bias(self, context: Tensor, total: Tensor | None) -> Tensor:
        """A context `[..., h * c]` with the values' bias, times the sum of the weights `[..., h]` (`None`: 1)."""
        bias = self.plain("value").bias
        return context + (bias if total is None else (total[..., None] * self.split(bias)).flatten(-2))


# ------ a token over its candidates


@dataclass(frozen=True)
class BandCandidates:
    """
    Candidates around each token: sums of neighbouring tokens, from `reach` before it to `reach` after it.

    Of words of at most two tokens, `spans` says (x) which offsets each candidate is the sum of:

        offset          -1   0   1
        itself           .   x   .
        1 of 2           .   x   x     a word of two tokens that starts here
        2 of 2           x   x   .     one that ends here

    Args:
        exists: `[N, r]`, bool: whether a token has the candidate of each role.
        spans: `[w, r]`, bool, or float for weighted sums: which offsets, from `-reach` to `reach`, a role is the
            sum of; `None` where each role is one offset, r = w.
        reach: the largest offset on either side.
        memo, of_spans: what is derived from the candidates, for all layers, and from the spans alone.
    """

    exists: Tensor
    spans: Tensor | None
    reach: int
    memo: Memo = field(default_factory=dict, repr=False, compare=False)
    of_spans: Memo = field(default_factory=dict, repr=False, compare=False)

    def all_spans(self) -> Tensor:
        """`spans`, also where each role is one offset."""
        if self.spans is not None:
            return self.spans
        return torch.eye(self.exists.shape[1], dtype=torch.bool, device=self.exists.device)


@dataclass(frozen=True)
class Candidates:
    """
    The candidates of all tokens.

    On a ring these are C_i of the Star-Transformer (Eq 4): ring neighbours and the token itself, its
    embedding, the relay. Otherwise they are the words of the BiG-Transformer that contain the token (`band`), and the
    global node.

    Args:
        tokens: `[N, d]`.
        layout: where they lie.
        key_value_weight: `[2 h c, d]`, W_K above W_V.
        ring_radius: how many ring neighbours on either side; `None` where there is no ring.
        node: `[b, d]`, the relay or global node of each sequence; or `None`.
        band: the candidates that are sums of tokens `[N, r]`; or `None`.
        embedded: `[N, d]`, the embeddings; `None` where `tokens` are these.
    """

    tokens: Tensor
    layout: TokenLayout
    key_value_weight: Tensor
    ring_radius: int | None = None
    node: Tensor | None = None
    band: BandCandidates | None = None
    embedded: Tensor | None = None

    @property
    def on_ring(self) -> bool:
        return self.ring_radius is not None

    @property
    def radius(self) -> int:
        """Furthest neighbour on either side."""
        return self.band.reach if self.band is not None else self.ring_radius or 0

    @property
    def has_neighbours(self) -> bool:
        """Whether any candidate is made of the tokens around."""
        return self.on_ring or self.band is not None

    def project(self, states: Tensor) -> Tensor:
        """Keys and, beside them, values without bias: `[..., d]` to `[..., 2 h c]`."""
        return nn.functional.linear(states, self.key_value_weight)


class CandidateAttention(nn.Module):
    """
    MultiAtt of each token over its candidates (Eqs 1-3 and 5; Eqs 5-7 of the BiG-Transformer's paper).

    Args:
        hidden_size: d.
        num_heads, head_dim: h and c.
        dropout_p: probability with which a weight is dropped in training.
        biased_roles: roles that have a learned bias in each head, all r or none.
    """

    def __init__(self, hidden_size: int, num_heads: int, head_dim: int, dropout_p: float, biased_roles: int = 0):
        super().__init__()
        self.dropout_p = dropout_p
        self.projections = AttentionProjections(hidden_size, num_heads, head_dim)
        self.role_bias = nn.Parameter(torch.zeros(num_heads, biased_roles)) if biased_roles else None

    def init_own_weights(self) -> None:
        """For `_init_weights`: no role is preferred."""
        if self.role_bias is not None:
            init.zeros_(self.role_bias)

    def forward(self, candidates: Candidates, operation: "Attend | None" = None) -> tuple[Tensor, Tensor | None]:
        """
        The update `[N, d]` and the weights `[b, h, n, r]`, zeros at padding; `None` where they are not recorded.
        `operation` computes it, `attend` by default.
        """
        return (operation or attend)(self, self.projections.query(candidates.tokens), candidates)


# From queries `[N, h * c]`, not yet scaled, to what `CandidateAttention.forward` returns.
Attend = Callable[[CandidateAttention, Tensor, Candidates], tuple[Tensor, Tensor | None]]


def attend(
    attention: CandidateAttention, query: Tensor, candidates: Candidates, records: bool = False
) -> tuple[Tensor, Tensor | None]:
    """
    The attention in torch operations, the reference of all others: `candidate_attention`, of queries `[N, h * c]`, not
    yet scaled. Returns what `CandidateAttention.forward` returns; `records`: with the weights.
    """
    projections, layout = attention.projections, candidates.layout
    width = projections.num_heads * projections.head_dim

    def split(key_value: Tensor) -> tuple[Tensor, Tensor]:
        return projections.split(key_value[:, :width]), projections.split(key_value[:, width:])

    key_values: list[Tensor] = []
    if candidates.has_neighbours:
        key_values = neighbours(layout, candidates.project(candidates.tokens), candidates.radius, candidates.on_ring)
    if candidates.embedded is not None:
        key_values.append(candidates.project(candidates.embedded))
    elif candidates.on_ring:
        key_values.append(key_values[candidates.radius])
    node = None
    if candidates.node is not None:
        node = candidates.project(candidates.node).index_select(0, layout.sequence_index)
        if candidates.band is None and key_values:
            key_values.append(node)
            node = None
    context, weights = candidate_attention(
        projections.split(query),
        [split(key_value) for key_value in key_values],
        projections.value_bias,
        role_bias=attention.role_bias,
        band=candidates.band,
        node=None if node is None else split(node),
        dropout_p=attention.dropout_p if attention.training else 0.0,
        scale=projections.scale,
        recorded_in=layout if records else None,
    )
    return projections.project_output(context), weights if records else None


def candidate_attention(
    query: Tensor,
    key_values: list[tuple[Tensor, Tensor]],
    value_bias: Tensor,
    *,
    role_bias: Tensor | None = None,
    band: BandCandidates | None = None,
    node: tuple[Tensor, Tensor] | None = None,
    dropout_p: float = 0.0,
    scale: float | None = None,
    recorded_in: TokenLayout | None = None,
) -> tuple[Tensor, Tensor]:
    """
    Each token attends to its candidates (Eqs 1-5 of https://arxiv.org/abs/1902.09113; Eqs 5-7 of
    https://openreview.net/forum?id=xulJokm5GeE).

    Sums of tokens are never formed. As `q . (k_1 + k_2) = q . k_1 + q . k_2`, scores of candidates are sums of scores
    at offsets, and as `a (v_1 + v_2) = a v_1 + a v_2`, each token of a candidate takes the candidate's weight.

    Args:
        query: `[N, h, c]`, not yet scaled.
        key_values: for each offset a key and a value without its bias, `[N, h, c]` or a shape that broadcasts to it.
        value_bias: `[h, c]`, added once for each candidate, times the sum of the weights, which dropout changes.
        role_bias: `[h, r]`, added to the scores; or `None`.
        band: candidates that are sums over offsets; `None` where each offset is a candidate.
        node: key and value of one more candidate; or `None`.
        dropout_p: probability with which a weight is dropped; 0 outside training.
        scale: of the scores; c^-0.5 where it is `None`.
        recorded_in: the layout of the tokens, where their weights are recorded.

    Returns:
        The context `[N, h, c]`, zeros where a token has no candidate, and the weights as they were applied
        `[N, h, r]`, the node's last; with `recorded_in` `[b, h, n, r]`, zeros at padding.
    """
    dtype = query.dtype
    # Scaled before the product: q . k of large numbers overflows float16, and inf - inf is NaN.
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    query = (query.float() if dtype == torch.float16 else query) * scale
    # Roles come first: a softmax over a last axis of five takes ten times as long.
    scores: list[Tensor] = []
    if key_values:
        scores.append(torch.stack([(query * key).sum(-1) for key, _ in key_values]))
    spans = None if band is None or band.spans is None else band.spans.to(query.dtype)
    if band is not None:
        missing, sums = ~band.exists.T[..., None], scores[0].to(query.dtype)
        if spans is not None:
            sums = (spans.T @ sums.flatten(1)).unflatten(1, sums.shape[1:])
        scores[0] = sums.masked_fill(missing, torch.finfo(sums.dtype).min)
    if node is not None:
        scores.append((query * node[0]).sum(-1)[None])
    joined = scores[0] if len(scores) == 1 else torch.cat(scores)
    if role_bias is not None:
        joined = joined + role_bias.T[:, None]
    weights = joined.softmax(0).to(dtype)
    may_have_none = band is not None and node is None
    if may_have_none:
        # A softmax over nothing is not 0.
        weights = weights.masked_fill(missing, 0)
    weights, total = _drop(weights, dropout_p, dim=0)
    recorded = weights.permute(1, 2, 0)
    if recorded_in is not None:
        # The context is made from the recorded tensor, so that this has a gradient.
        recorded = recorded_in.unpack(recorded).transpose(1, 2)
        weights = recorded_in.pack(recorded.transpose(1, 2)).permute(2, 0, 1)
    if may_have_none:
        total = weights.sum(0)
    context = value_bias if total is None else total[..., None] * value_bias
    if node is not None:
        context = _add_weighted(context, weights[-1:], [node[1]])
    if key_values:
        spread = weights[: len(scores[0])]
        if spans is not None:
            spread = (spans.to(dtype) @ spread.flatten(1)).unflatten(1, spread.shape[1:])
        context = _add_weighted(context, spread, [value for _, value in key_values])
    return context, recorded


def _add_weighted(start: Tensor, weights: Tensor, values: list[Tensor]) -> Tensor:
    """`start` plus, over r, weights `[r, N, h]` times values `[N, h, c]`; `[N, h, c]`."""
    total = torch.addcmul(start, weights[0, ..., None], values[0])
    # In place where no gradient is needed: one tensor less to go through memory.
    add = torch.addcmul if total.requires_grad else Tensor.addcmul_
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = add(total, weight[..., None], value)
    return total


def _drop(weights: Tensor, dropout_p: float, dim: int = -1) -> tuple[Tensor, Tensor | None]:
    """Weights after dropout, and their sum over an axis; `None` without dropout, where it is 1."""
    if dropout_p == 0.0:
        return weights, None
    weights = nn.functional.dropout(weights, dropout_p)
    return weights, weights.sum(dim)


# ------ the relay over its sequence


# From queries `[b, h, d]`, relays or `None`, tokens, their layout and the dropout to what `relay_mix` returns.
Mix = Callable[[Tensor, Tensor | None, Tensor, TokenLayout, float], tuple[Tensor, Tensor | None, Tensor | None]]


def relay_attention(
    projections: AttentionProjections,
    relay: Tensor,
    tokens: Tensor,
    layout: TokenLayout,
    dropout_p: float,
    include_relay: bool = True,
    mix: Mix | None = None,
) -> tuple[Tensor, Tensor | None]:
    """
    The relay attends to itself and to every token of its sequence (Eq 7), without projecting the tokens.

    A score is `q . (W_K x) = (W_K^T q) . x`, and a sum of projected values is the projection of the sum, so a token
    costs 2 d h multiply-adds in place of the 2 d^2 of its key and value.

    Args:
        projections: W_Q, W_K and W_V.
        relay: `[b, d]`, the first of its own candidates.
        tokens: `[N, d]`, laid out by `layout`.
        dropout_p: probability with which a weight is dropped; 0 outside training.
        include_relay: the relay is a candidate beside the tokens; `False` where it is one of them.
        mix: what computes weights and sums, as `relay_mix` does, the default.

    Returns:
        The context `[b, h * c]` and the weights `[b, h, 1 + m]` over the relay and the columns of `layout.to_rows`, or
        `[b, h, m]` without the relay; `None` in place of the weights where kernels are used.
    """
    heads = (projections.num_heads, projections.head_dim)
    key_weight, value_weight = (projections.plain(name).weight.unflatten(0, heads) for name in ("key", "value"))
    # Products for each head by torch.bmm: torch.einsum starts 13 operations for one.
    query = projections.split(projections.query(relay)).transpose(0, 1)
    nothing = _zero(query.dtype, query.device)
    query = torch.baddbmm(nothing, query, key_weight, beta=0, alpha=projections.scale).transpose(0, 1)
    mixed, weights, total = (mix or relay_mix)(query, relay if include_relay else None, tokens, layout, dropout_p)
    # The weight on the right: on the left, last bits depend on where in memory it lies.
    context = torch.bmm(mixed.transpose(0, 1), value_weight.transpose(1, 2)).transpose(0, 1).flatten(1)
    return projections.add_value_bias(context, total), weights


@cached_unless_traced
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device)


def relay_mix(
    query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """
    Relay `[b, d]`, where there is one, and tokens `[N, d]` of each sequence summed by their weights, in torch
    operations, for W_K^T q `[b, h, d]`, scaled. Returns the sums `[b, h, d]`; the weights `[b, h, 1 + m]` or
    `[b, h, m]`, and their sum under dropout `[b, h]`.
    """
    if query.dtype == torch.float16:  # scores of large numbers are beyond it
        return in_float32(relay_mix, query, relay, tokens, layout, dropout_p)
    if relay is not None and layout.is_full and len(tokens) <= FEW_TOKENS:
        # A copy of few tokens costs less than operations for the relay alone.
        rows, relay = torch.cat([relay[:, None], layout.to_rows(tokens)], dim=1), None
    else:
        rows = layout.to_rows(tokens)
    scores = torch.bmm(query, rows.transpose(1, 2))
    weights, total = relay_weights(scores, query, relay, layout, dropout_p, tokens.dtype)
    mixed = torch.bmm(weights if relay is None else weights[..., 1:], rows)
    return mixed if relay is None else mixed + weights[..., :1] * relay[:, None], weights, total


def in_float32(
    mix: Mix, query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """A mix in float32 where numbers are of half precision, with results in the type of the queries."""
    dtype, wide = query.dtype, at_least_float32(tokens.dtype)
    with torch.autocast(query.device.type, enabled=False):
        own = None if relay is None else relay.to(wide)
        results = mix(query.to(wide), own, tokens.to(wide), layout, dropout_p)
    mixed, weights, total = (None if x is None else x.to(dtype) for x in results)
    return mixed, weights, total


def relay_weights(
    scores: Tensor, query: Tensor, relay: Tensor | None, layout: TokenLayout, dropout_p: float, dtype: torch.dtype
) -> tuple[Tensor, Tensor | None]:
    """
    The weights of scores `[b, h, m]` over rows, after that of the relay where there is one, and their sum under
    dropout.
    """
    if not layout.is_full:
        scores = scores.masked_fill(~layout.row_mask[:, None], torch.finfo(scores.dtype).min)
    if relay is not None:
        scores = torch.cat([torch.bmm(query, relay[..., None]), scores], dim=-1)
    return _drop(scores.softmax(-1).to(dtype), dropout_p)  # autocast computes a softmax in float32


# ------ the norm after an attention


class UpdateLayerNorm(nn.LayerNorm):
    """
    LayerNorm of a state plus its update, the post-norm of both encoders.
    Its name has "LayerNorm" in it, by which transformers initialises norms (seen in 5.23).

    Attributes:
        padding: columns of zeros after the d that are normalised, `[N, d + padding]` in and out; see `aligned`.
    """

    padding = 0

    def forward(
        self,
        update: Tensor,
        state: Tensor | None = None,
        activation: nn.Module | None = None,
        kernel: Callable[..., Tensor] | None = None,
    ) -> Tensor:
        """
        LN(state + activation(update)), `[..., d]`; `state`: `None` for 0. `kernel` computes it as one, of `[N, d]`
        without gradients, `ops.Operations.update_norm`.
        """
        rectified = kernel is not None and isinstance(activation, nn.ReLU)
        if activation is not None and not rectified:
            update = activation(update)
        if kernel is not None:
            return kernel(update, state, self.weight, self.bias, self.eps, rectified)
        state = update if state is None else state + update
        if not self.padding:
            return super().forward(state)
        return nn.functional.pad(super().forward(state[..., : -self.padding]), (0, self.padding))
