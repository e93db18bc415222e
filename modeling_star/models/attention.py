"""
The attentions of the encoders: a token over its few candidates, and the relay over its sequence.

The candidates of a token are neighbours on a ring, its embedding and a relay in the Star-Transformer; in the
BiG-Transformer the words that contain it and a global node. `choose_backend` picks one of three ways to compute the
same attention: torch operations, sparse rows on a CPU, Triton kernels on a GPU.

    Star, radius 1     left  self  right  embedding  relay      one softmax over all candidates of a token
    BiG, words         itself  1 of 2  2 of 2  1 of 3  ...  global node

Axes: b batch  N flat tokens  m longest sequence  d width  h heads  c width of a head
      w offsets of neighbours, 2 * reach + 1  r candidate roles  L longest word
"""

import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .modeling_encoder import require_plain_linear
from .neighbours import has_shifted, neighbour_index, neighbours, windows
from .sparse_attention import RowIndex, row_attention, row_attention_applies, sequence_scores, sequence_sums
from .token_layout import (
    Memo,
    TokenLayout,
    at_least_float32,
    cached_unless_traced,
    get_or_compute,
    is_traced,
)


logger = logging.get_logger(__name__)

# Up to so many tokens a copy of them costs less than further operations.
FEW_TOKENS = 1024

# The widest reach of the kernels. A program holds the weights of a token's roles in registers: the words around it are
# 55 where words have up to ten tokens.
LONGEST_KERNEL_REACH = 9
# `modeling_star.kernels.INTERFACE` for which this code calls kernels.
KERNEL_INTERFACE = 4


class AttentionProjections(nn.Module):
    """
    W_Q, W_K, W_V and W_O of one multi-head attention (Eqs 2 and 3 of https://arxiv.org/abs/1902.09113).

    Keys carry no bias: within one softmax it would add the same to every score and cancel.

    Args:
        hidden_size: d.
        num_heads, head_dim: h and c; h * c may differ from d.

    Attributes:
        scale: of the scores, c^-0.5.
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
        """
        A projection whose weight or bias is read without calling it.

        Raises:
            TypeError: an adapter or a quantised layer has replaced it, or a hook changes its output.
        """
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
        """
        A context `[..., h * c]` with the values' bias.

        Args:
            total: `[..., h]`, the sum of the weights, by which the bias counts; `None` where it is 1.
        """
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

    def span_matrix(self) -> Tensor:
        """`all_spans` as numbers `[w, r]`, float32."""
        return get_or_compute(self.of_spans, "kernels", lambda: self.all_spans().to(torch.float32).contiguous())

    def row_options(self, with_node: bool, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
        """
        `spans` and `missing` as `row_attention` takes them.

        Args:
            with_node: there is one more row after the band and one more candidate made of it, which every token has.
            dtype: of the states.
        """

        def make_spans() -> Tensor | None:
            spans = None if self.spans is None else self.spans.to(dtype)
            if spans is None or not with_node:
                return spans
            spans = nn.functional.pad(spans, (0, 1, 0, 1))
            spans[-1, -1] = 1
            return spans

        def make_missing() -> Tensor:
            missing = nn.functional.pad(~self.exists, (0, 1)) if with_node else ~self.exists
            return missing.T.unsqueeze(2)

        spans = get_or_compute(self.of_spans, (with_node, dtype), make_spans)
        return spans, get_or_compute(self.memo, with_node, make_missing)

    @classmethod
    def words(
        cls, words: Tensor, layout: TokenLayout, include_self: bool, mean_dtype: torch.dtype | None = None
    ) -> "BandCandidates":
        """
        The words that contain a token: by length, then by the token's index in a word of that length.

        Args:
            words: `[N, L]`, bool: at (i, l - 1) whether a word of l tokens starts at token i. It must end in the
                sequence of i; column 0 is ignored.
            layout: where the tokens lie.
            include_self: every token is also a word of its own.
            mean_dtype: a word is the mean of its tokens, in this precision, in place of their sum.
        """
        longest = words.shape[1]
        spans, columns, memo = _word_roles(longest, include_self, words.device, mean_dtype)
        # Words end in their sequence, so that none comes from another.
        exists = windows(layout, words, 1 - longest, 0).index_select(1, columns)
        if include_self:
            exists = nn.functional.pad(exists, (1, 0), value=True)
        return cls(exists, spans, longest - 1, of_spans=memo)

    @classmethod
    def adjacent(cls, layout: TokenLayout) -> "BandCandidates":
        """The tokens before, at and after each, every one a candidate of its own; the ends have no other side."""
        left, right = has_shifted(layout, -1), has_shifted(layout, 1)
        exists = torch.stack([left, torch.ones_like(left), right], dim=-1)
        return cls(exists, None, reach=1)

    @classmethod
    def window(cls, layout: TokenLayout, radius: int, without_first: bool) -> "BandCandidates":
        """
        The tokens from `radius` before to `radius` after each, every one a candidate of its own, within the sequence.

        Args:
            layout: where the tokens lie.
            radius: tokens on either side.
            without_first: the first token of a sequence, which is the global node, is no candidate.
        """
        offset = torch.arange(-radius, radius + 1, device=layout.position.device)
        position = layout.position[:, None] + offset
        exists = (position >= int(without_first)) & (position < layout.lengths[layout.sequence_index][:, None])
        if not layout.is_packed:
            exists = exists & layout.mask.flatten()[:, None]
        return cls(exists, None, radius)

    def concatenate(self, other: "BandCandidates") -> "BandCandidates":
        """The candidates of both, those of `other` last."""
        reach, dtype = (
            max(self.reach, other.reach),
            torch.promote_types(self.all_spans().dtype, other.all_spans().dtype),
        )
        spans = [
            nn.functional.pad(band.all_spans().to(dtype), (0, 0, reach - band.reach, reach - band.reach))
            for band in (self, other)
        ]
        return BandCandidates(torch.cat([self.exists, other.exists], dim=1), torch.cat(spans, dim=1), reach)


@cached_unless_traced
def _word_roles(
    longest: int, include_self: bool, device: torch.device, mean_dtype: torch.dtype | None
) -> tuple[Tensor, Tensor, Memo]:
    """
    The `spans` `[w, r]` of words; for roles of two tokens or more the columns among the L x L words that start L - 1
    to 0 tokens before a token, by length; and what is derived from the spans.
    """
    # Row by row, a lower triangle holds the indices below each length.
    length, index = torch.tril_indices(longest, longest, device=device)
    offset = torch.arange(1 - longest, longest, device=device)[:, None]
    spans = (offset >= -index) & (offset <= length - index)
    if mean_dtype is not None:
        spans = spans.to(mean_dtype) / spans.sum(0)
    columns = (longest - 1 - index) * longest + length
    return spans if include_self else spans[:, 1:], columns[1:], {}


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

    def forward(self, candidates: Candidates) -> tuple[Tensor, Tensor | None]:
        """
        Returns:
            The update `[N, d]` and the weights `[b, h, n, r]`, zeros at padding; `None` instead for packed
            tokens, of which none are recorded.
        """
        query = self.projections.query(candidates.tokens)
        return choose_backend(query, candidates)(self, query, candidates)


# From queries `[N, h * c]`, not yet scaled, to what `CandidateAttention.forward` returns.
Backend = Callable[[CandidateAttention, Tensor, Candidates], tuple[Tensor, Tensor | None]]


def choose_backend(query: Tensor, candidates: Candidates) -> Backend:
    """Choose the function that computes the attention of queries `[N, h * c]`; results agree but for rounding."""
    layout = candidates.layout
    if candidates.has_neighbours and use_kernels(query, layout, candidates.radius):
        return attend_with_triton
    if layout.is_packed and row_attention_applies(query):
        return attend_over_sparse_rows
    return attend_with_torch


def attend_with_torch(
    attention: CandidateAttention, query: Tensor, candidates: Candidates
) -> tuple[Tensor, Tensor | None]:
    """The reference, in torch operations: `candidate_attention`."""
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
        recorded_in=None if layout.is_packed else layout,
    )
    return projections.project_output(context), None if layout.is_packed else weights


def attend_over_sparse_rows(
    attention: CandidateAttention, query: Tensor, candidates: Candidates
) -> tuple[Tensor, Tensor | None]:
    """Packed tokens on a CPU: every candidate is a row of one table of keys and values, `sparse_attention`."""
    band, projections = candidates.band, attention.projections
    sources = [candidates.tokens] if candidates.has_neighbours else []
    sources += [states for states in (candidates.node, candidates.embedded) if states is not None]
    table = candidates.project(torch.cat(sources) if len(sources) > 1 else sources[0])
    has_embedded = candidates.embedded is not None
    # The operations on rows are of float32 or float64, and so is a softmax.
    heads, dtype = projections.num_heads, at_least_float32(query.dtype)
    index = get_or_compute(
        candidates.layout.memo,
        (heads, dtype, candidates.on_ring, band is None, candidates.radius, candidates.node is None, has_embedded),
        lambda: RowIndex.build(_candidate_rows(candidates, has_embedded), len(table), heads, dtype),
    )
    spans, missing = (None, None) if band is None else band.row_options(candidates.node is not None, dtype)
    with torch.autocast("cpu", enabled=False):
        context, total = row_attention(
            query.to(dtype),
            table.to(dtype),
            index,
            None if attention.role_bias is None else attention.role_bias.to(dtype),
            spans,
            missing,
            may_have_none=candidates.node is None,
            dropout_p=attention.dropout_p if attention.training else 0.0,
            scale=projections.scale,
        )
    context, total = context.to(query.dtype), None if total is None else total.to(query.dtype)
    return projections.output(projections.add_value_bias(context, total)), None


def _candidate_rows(candidates: Candidates, has_embedded: bool) -> Tensor:
    """
    The rows that each token attends to, `[N, w]`, in a table of the tokens, the nodes of their sequences and, if
    `has_embedded`, their embeddings.
    """
    count, layout = len(candidates.tokens), candidates.layout
    index: list[Tensor] = []
    after_rows = 0
    if candidates.has_neighbours:
        index.extend(neighbour_index(layout, candidates.radius, candidates.on_ring))
        after_rows = count
    node = candidates.node
    if candidates.on_ring:
        after_nodes = after_rows + (0 if node is None else len(node))
        index.append(torch.arange(count) + after_nodes if has_embedded else index[candidates.radius])
    if node is not None:
        index.append(layout.sequence_index + after_rows)
    return torch.stack(index, dim=1)


def attend_with_triton(
    attention: CandidateAttention, query: Tensor, candidates: Candidates
) -> tuple[Tensor, Tensor | None]:
    """Packed tokens on a GPU: `triton_ring_attention.py` of `modeling_star.kernels`."""
    pairs = (2, attention.projections.num_heads, attention.projections.head_dim)

    def project(states: Tensor | None) -> Tensor | None:
        return None if states is None else candidates.project(states).unflatten(-1, pairs)

    context = find_kernels("triton_ring_attention").candidate_attention(
        attention.projections.split(query),
        project(candidates.tokens),
        project(candidates.embedded),
        project(candidates.node),
        attention.projections.value_bias,
        attention.role_bias,
        candidates.radius,
        None if candidates.band is None else candidates.band.exists,
        None if candidates.band is None else candidates.band.span_matrix(),
        candidates.layout,
        attention.dropout_p if attention.training else 0.0,
        attention.projections.scale,
    )
    return attention.projections.project_output(context), None


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
        recorded_in: the layout of padded tokens, N = b n, whose weights are recorded.

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


def relay_attention(
    projections: AttentionProjections,
    relay: Tensor,
    tokens: Tensor,
    layout: TokenLayout,
    dropout_p: float,
    include_relay: bool = True,
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
    weights: Tensor | None = None
    if include_relay and use_kernels(query, layout):
        mixed, total = find_kernels("triton_relay_attention").relay_mix(query, relay, tokens, layout, dropout_p)
        mixed, total = mixed.to(query.dtype), None if total is None else total.to(query.dtype)
    elif layout.is_ragged or query.dtype == torch.float16:
        # Scores of large float16 numbers are beyond float16. Sparse rows are of one precision; in bfloat16 they would
        # be laid out as `[b, m, d]` instead, beside one long text nearly all of it padding.
        dtype, wide = query.dtype, at_least_float32(tokens.dtype)
        with torch.autocast(query.device.type, enabled=False):
            own = relay.to(wide) if include_relay else None
            mixed, weights, total = _relay_mix(query.to(wide), own, tokens.to(wide), layout, dropout_p)
        mixed, weights, total = mixed.to(dtype), weights.to(dtype), None if total is None else total.to(dtype)
    else:
        mixed, weights, total = _relay_mix(query, relay if include_relay else None, tokens, layout, dropout_p)
    # The weight on the right: on the left, last bits depend on where in memory it lies.
    context = torch.bmm(mixed.transpose(0, 1), value_weight.transpose(1, 2)).transpose(0, 1).flatten(1)
    return projections.add_value_bias(context, total), weights


@cached_unless_traced
def _zero(dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.zeros((), dtype=dtype, device=device)


def _relay_mix(
    query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    """
    Relay, where there is one, and tokens of each sequence summed by their weights, `[b, h, d]` from queries
    `[b, h, d]`; the weights `[b, h, 1 + m]` or `[b, h, m]`, and their sum under dropout `[b, h]`.
    """
    if layout.is_ragged:
        scores = layout.to_rows(sequence_scores(tokens, query, layout)).transpose(1, 2)
    else:
        if relay is not None and layout.is_full and len(tokens) <= FEW_TOKENS:
            # A copy of few tokens costs less than operations for the relay alone.
            rows, relay = _rows_after_relay(relay, tokens, layout), None
        else:
            rows = layout.to_rows(tokens)
        scores = torch.bmm(query, rows.transpose(1, 2))
    if not layout.is_full:
        scores = scores.masked_fill(~layout.row_mask[:, None], torch.finfo(scores.dtype).min)
    if relay is not None:
        scores = torch.cat([torch.bmm(query, relay[..., None]), scores], dim=-1)
    weights = scores.softmax(-1)
    if weights.dtype != tokens.dtype:  # autocast computes a softmax in float32
        weights = weights.to(tokens.dtype)
    weights, total = _drop(weights, dropout_p)
    of_tokens = weights if relay is None else weights[..., 1:]
    if layout.is_ragged:
        mixed = sequence_sums(tokens, layout.from_rows(of_tokens.transpose(1, 2)), layout)
    else:
        mixed = torch.bmm(of_tokens, rows)
    return mixed if relay is None else mixed + weights[..., :1] * relay[:, None], weights, total


def _rows_after_relay(relay: Tensor, tokens: Tensor, layout: TokenLayout) -> Tensor:
    """Each row of a batch without padding after its relay: `[b, d]` and `[N, d]` to `[b, 1 + n, d]`."""
    if len(relay) == 1:
        return torch.cat([relay, tokens])[None]
    return torch.cat([relay[:, None], layout.to_rows(tokens)], dim=1)


# ------ the norm after an attention


class UpdateLayerNorm(nn.LayerNorm):
    """
    LayerNorm of a state plus its update, the post-norm of both encoders. On a GPU, outside training, it is one kernel.
    Its name has "LayerNorm" in it, by which transformers initialises norms (seen in 5.23).

    Attributes:
        padding: columns of zeros after the d that are normalised, `[N, d + padding]` in and out; see `aligned`.
    """

    padding = 0

    def forward(self, update: Tensor, state: Tensor | None = None, activation: nn.Module | None = None) -> Tensor:
        """
        Args:
            update: `[..., d]`.
            state: `[..., d]`; `None` for 0.
            activation: applied to the update first.

        Returns:
            LN(state + activation(update)), `[..., d]`.
        """
        fused = update.dim() == 2 and not torch.is_grad_enabled() and kernels_run(update)
        # Autocast would have the result in float32.
        fused = fused and not torch.is_autocast_enabled(update.device.type)
        rectified = fused and isinstance(activation, nn.ReLU)
        if activation is not None and not rectified:
            update = activation(update)
        if fused:
            update_norm = find_kernels("triton_norm").update_norm
            return update_norm(update, state, self.weight, self.bias, self.eps, rectified)
        state = update if state is None else state + update
        if not self.padding:
            return super().forward(state)
        return nn.functional.pad(super().forward(state[..., : -self.padding]), (0, self.padding))


# ------ when kernels are used


def use_kernels(tokens: Tensor, layout: TokenLayout, reach: int = 1) -> bool:
    """
    Whether Triton kernels compute an attention, instead of torch operations; nothing else decides this.

    The environment variable MODELING_STAR_KERNELS is read on every call: "auto", the default, uses them on a CUDA GPU
    where Triton works; "0" never does; "1" always does and raises where they cannot run. They are never used where a
    model is compiled or exported, where attention weights are recorded (the layout is padded there), or beyond
    LONGEST_KERNEL_REACH.

    Args:
        tokens: any tensor with the tokens' device and type.
        layout: where the tokens lie.
        reach: the largest offset that a token attends to.

    Raises:
        ValueError: the variable has another value.
        RuntimeError: it is "1" and they cannot run.
    """
    return layout.is_packed and reach <= LONGEST_KERNEL_REACH and kernels_run(tokens)


def kernels_run(tokens: Tensor) -> bool:
    """Whether Triton kernels run on the device and in the precision of `tokens`; `use_kernels` adds the layout."""
    if is_traced():
        return False
    setting = os.environ.get("MODELING_STAR_KERNELS", "auto")
    if setting not in ("auto", "0", "1"):
        raise ValueError(f'MODELING_STAR_KERNELS={setting} is set; "auto", "0" (never) and "1" (always) are allowed.')
    if setting == "0" or (setting == "auto" and (tokens.device.type != "cuda" or tokens.dtype == torch.float64)):
        return False
    failure = _kernel_failure(tokens.device)
    if failure is None:
        return True
    reason = f"the Triton kernels do not run on {tokens.device}: {str(failure).rstrip('.')}"
    if setting == "1":
        raise RuntimeError(
            f"MODELING_STAR_KERNELS=1 is set, and {reason}. They need a CUDA GPU, or TRITON_INTERPRET=1 for tests: "
            "export MODELING_STAR_KERNELS=0."
        ) from failure
    logger.warning_once(f"PyTorch computes attention, as {reason}. To hide this: export MODELING_STAR_KERNELS=0.")
    return False


@functools.lru_cache
def _kernel_failure(device: torch.device) -> Exception | None:
    """The error that keeps the Triton kernels from running on a device; `None` where they run."""
    try:
        return find_kernels("triton_utils").failure_on(device)
    except ImportError as error:
        return error


def find_kernels(name: str) -> Any:
    """
    A file of `modeling_star.kernels`, which depends on this folder and is looked up by its name: the code in a saved
    folder computes without it, and uses it where the package is installed.

    Raises:
        ImportError: the package or Triton is not installed, or the package's kernels are of another interface.
    """
    try:
        package = importlib.import_module("modeling_star.kernels")
    except ModuleNotFoundError as error:
        raise ImportError("they need the package modeling-star: pip install . in its checkout") from error
    if package.INTERFACE != KERNEL_INTERFACE:
        raise ImportError(
            f"the kernels of the installed modeling_star have interface {package.INTERFACE}, and this model's code "
            f"calls {KERNEL_INTERFACE}"
        )
    return importlib.import_module(f"modeling_star.kernels.{name}")
