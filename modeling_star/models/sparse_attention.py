"""
The attentions on a CPU by operations that index the rows of a tensor without gathering a copy of them, which ops.py
chooses. attention.py has the reference in torch operations.

Axes: b batch  N flat tokens  M lines of an index  d width  R rows of a table  h heads  c width of a head
      w rows that a token attends to  r candidates
"""

import functools
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .attention import BandCandidates, CandidateAttention, Candidates, in_float32, relay_weights
from .derivatives import first_derivatives_only
from .token_layout import TokenLayout, at_least_float32, cached_unless_traced, get_or_compute, neighbour_index


logger = logging.get_logger(__name__)


def attend_over_rows(
    attention: CandidateAttention, query: Tensor, candidates: Candidates
) -> tuple[Tensor, Tensor | None]:
    """As `attention.attend`: every candidate is a row of one table of keys and values."""
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
    spans, missing = (None, None) if band is None else _row_options(band, candidates.node is not None, dtype)
    with torch.autocast(query.device.type, enabled=False):
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


def _row_options(band: BandCandidates, with_node: bool, dtype: torch.dtype) -> tuple[Tensor | None, Tensor]:
    """`spans` and `missing` as `row_attention` takes them, with one more row and candidate of a node."""

    def make_spans() -> Tensor | None:
        spans = None if band.spans is None else band.spans.to(dtype)
        if spans is None or not with_node:
            return spans
        spans = nn.functional.pad(spans, (0, 1, 0, 1))
        spans[-1, -1] = 1
        return spans

    def make_missing() -> Tensor:
        missing = nn.functional.pad(~band.exists, (0, 1)) if with_node else ~band.exists
        return missing.T.unsqueeze(2)

    spans = get_or_compute(band.of_spans, (with_node, dtype), make_spans)
    return spans, get_or_compute(band.memo, with_node, make_missing)


def relay_mix_over_parts(
    query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """
    As `attention.relay_mix`, of packed tokens: with one long text nearly all of the rows `[b, m, d]` is padding.
    Sparse rows are of float32 or float64.
    """
    return in_float32(_mix_over_parts, query, relay, tokens, layout, dropout_p)


def _mix_over_parts(
    query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor, Tensor | None]:
    scores = layout.to_rows(sequence_scores(tokens, query, layout)).transpose(1, 2)
    weights, total = relay_weights(scores, query, relay, layout, dropout_p, tokens.dtype)
    of_tokens = weights if relay is None else weights[..., 1:]
    mixed = sequence_sums(tokens, layout.from_rows(of_tokens.transpose(1, 2)), layout)
    return mixed if relay is None else mixed + weights[..., :1] * relay[:, None], weights, total


# ------ rows


@functools.cache
def products_are_sampled(dtype: torch.dtype) -> bool:
    """
    Whether `sampled_addmm` computes the entries of a row that are in no order and occur twice, which the rules of the
    CSR format forbid and torch's kernel does not mind (seen in 2.12 and 2.13). Tried once in a process.
    """
    index = torch.tensor([[2, 0, 2], [1, 1, 0]], dtype=torch.int32)
    vectors, rows = torch.tensor([[1, 2], [3, -1]], dtype=dtype), torch.tensor([[1, 0], [2, 5], [-4, 3]], dtype=dtype)
    try:
        products = torch.sparse.sampled_addmm(_sparse_zeros(index, 3, dtype), vectors, rows.T, beta=0.0).values()
        right = torch.equal(products.view_as(index), (vectors[:, None] * rows[index]).sum(-1))
    except RuntimeError as error:
        reason: object = error
    else:
        if right:
            return True
        reason = "its results are wrong"
    logger.warning(f"torch.sparse.sampled_addmm is not used, so that attention takes longer: {reason}.")
    return False


@dataclass(frozen=True)
class RowIndex:
    """
    The rows of a table that each token attends to, prepared once for all layers.

    Args:
        heads (`int`): h.
        rows (`Tensor` of shape `[M, w]`, long): rows of the table `[R, 2 h c]`.
        keys (`Tensor` of shape `[M h, w]`, int32): rows of `[R 2 h, c]` that hold the keys; values are h rows later.
        entries (`Tensor` of shape `[M h w]`, int32): `keys` line by line.
        starts (`Tensor` of shape `[M h]`, int32): where the entries of each line begin.
        scores (sparse `Tensor` of shape `[M h, R 2 h]`): zeros at the entries of `keys`; `None` where w is more than
            its columns.
    """

    heads: int
    rows: Tensor
    keys: Tensor
    entries: Tensor
    starts: Tensor
    scores: Tensor | None

    @classmethod
    def build(cls, rows: Tensor, table_rows: int, heads: int, dtype: torch.dtype) -> "RowIndex":
        """Of `rows` `[M, w]` among R `table_rows`, for states of type `dtype`."""
        head = torch.arange(heads, dtype=torch.int32)[:, None]
        keys = ((rows.to(torch.int32) * (2 * heads))[:, None] + head).flatten(0, 1)
        scores = _zeros_at(keys, 2 * heads * table_rows, dtype)
        return cls(heads, rows, keys, keys.view(-1), _starts(*keys.shape)[:-1], scores)

    @functools.cached_property
    def uses(self) -> tuple[Tensor, Tensor, Tensor]:
        """
        Who attends to each row of a table, for its gradient: row after row, within it key after key and value after
        value of the heads, within these use after use.

        Returns:
            For each use the line of `[2 M h, c]` that holds what the row receives, queries above gradients of
            contexts; its entry among `[2 M h w]` weights, those of keys first; and where the uses of each of the
            2 h rows of the rows 0 to the last used one begin.
        """
        h, (m, w) = self.heads, self.rows.shape
        flat = self.rows.flatten()
        order = flat.argsort()
        row = flat[order]
        uses = row.bincount()
        start = uses.cumsum(0) - uses
        slot = torch.arange(2 * h)
        target = (start[row] * (2 * h - 1) + torch.arange(m * w))[:, None] + slot * uses[row][:, None]
        token, nth = order // w, order % w
        line = torch.where(slot < h, slot, (m - 1) * h + slot) + (token * h)[:, None]
        entry = line * w + nth[:, None]
        target = target.flatten()
        line, entry = (torch.empty_like(target).scatter_(0, target, x.flatten()).int() for x in (line, entry))
        return line, entry, (start[:, None] * (2 * h) + slot * uses[:, None]).int().flatten()


def row_attention(
    query: Tensor,
    table: Tensor,
    index: RowIndex,
    role_bias: Tensor | None = None,
    spans: Tensor | None = None,
    missing: Tensor | None = None,
    may_have_none: bool = True,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> tuple[Tensor, Tensor | None]:
    """
    Each token attends to candidates that are rows of a table, or sums of some of its rows.

    Gradients reach `query`, `table` and `role_bias`; they cannot be differentiated again.

    Args:
        query: `[M, h c]`, float32 or float64 on a CPU, not yet scaled.
        table: `[R, 2 h c]`: in every row a key and, beside it, its value without bias.
        index: the w rows that each token attends to.
        role_bias: `[h, r]`, added to the scores; or `None`.
        spans: `[w, r]`, of the states' type: which of its w rows a candidate is the sum of; `None` where each is one,
            r = w.
        missing: `[r, M, 1]`, bool: whether a token lacks the candidate; `None` where it has all.
        may_have_none: a token may lack all candidates.
        dropout_p: probability with which a weight is dropped; 0 outside training.
        scale: of the scores; c^-0.5 where it is `None`.

    Returns:
        The context `[M, h c]` without any value's bias, zeros where a token has no candidate; and the sum of the
        weights `[M, h]`, by which that bias counts, or `None` without dropout, where it is 1.
    """
    scale = (query.shape[1] // index.heads) ** -0.5 if scale is None else scale
    options = (index, spans, missing, may_have_none and missing is not None, dropout_p, scale)
    if torch.is_grad_enabled():
        context, total = _RowAttention.apply(query, table, role_bias, *options)
    else:
        context, total, *_ = _attend(query, table, role_bias, *options)
    return context, total if dropout_p else None


def _attend(
    query: Tensor,
    table: Tensor,
    role_bias: Tensor | None,
    index: RowIndex,
    spans: Tensor | None,
    missing: Tensor | None,
    may_have_none: bool,
    dropout_p: float,
    scale: float,
) -> tuple[Tensor, Tensor | None, Tensor, Tensor | None]:
    """Context `[M, h c]`, sums of the weights `[M, h]`, the weights `[r, M, h]` before dropout, and its mask."""
    h, (m, w) = index.heads, index.rows.shape
    c = query.shape[1] // h
    rows = table.view(-1, c)
    scores = _dots(query.reshape(-1, c), rows, index.keys, index.scores, scale)
    # Candidates come first: a softmax over a last axis of five takes ten times as long.
    if spans is not None:
        scores = (scores @ spans).view(m, h, spans.shape[1]).permute(2, 0, 1)
        scores = scores if role_bias is None else scores + role_bias.T[:, None]
    else:
        scores = scores.view(m, h, w)
        scores = (scores if role_bias is None else scores + role_bias).permute(2, 0, 1)
    if missing is not None:
        scores = scores.masked_fill(missing, torch.finfo(scores.dtype).min)
    weights = scores.softmax(0)
    if may_have_none:
        # A softmax over nothing is not 0.
        weights = weights.masked_fill(missing, 0)
    dropout_mask = nn.functional.dropout(torch.ones_like(weights), dropout_p) if dropout_p else None
    applied = weights if dropout_mask is None else weights * dropout_mask
    context = _bags(rows[h:], index, _spread(applied, spans))
    return context.view(m, h * c), applied.sum(0) if dropout_p else None, weights, dropout_mask


class _RowAttention(torch.autograd.Function):
    """
    Scores, softmax, dropout and sum as one step of autograd, which saves the inputs and the weights.

    With `s_ij = q_i . k_j`, `a = dropout(softmax(S^T s))` and `context_i = sum_j (S a)_ij v_j`, S being `spans`, every
    product with keys and values indexes rows, backward as well as forward.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        table: Tensor,
        role_bias: Tensor | None,
        index: RowIndex,
        spans: Tensor | None,
        missing: Tensor | None,
        may_have_none: bool,
        dropout_p: float,
        scale: float,
    ) -> tuple[Tensor, Tensor | None]:
        options = (index, spans, missing, may_have_none, dropout_p, scale)
        context, total, weights, dropout_mask = _attend(query, table, role_bias, *options)
        ctx.save_for_backward(query, table, spans, weights, dropout_mask)
        ctx.index, ctx.has_bias, ctx.scale = index, role_bias is not None, scale
        return context, total

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, d_context: Tensor, d_total: Tensor | None) -> tuple[Tensor | None, ...]:
        query, table, spans, weights, dropout_mask = ctx.saved_tensors
        index, (_, m, h) = ctx.index, weights.shape
        c = query.shape[1] // h
        rows = table.view(-1, c)
        d_context = d_context.reshape(-1, c)
        d_spread = _dots(d_context, rows[h:], index.keys).T
        d_weights = (d_spread if spans is None else spans.T @ d_spread).unflatten(1, (m, h))
        applied = weights
        if dropout_mask is not None:
            applied, d_weights = weights * dropout_mask, (d_weights + d_total) * dropout_mask
        d_scores = weights * (d_weights - (weights * d_weights).sum(0))
        d_bias = d_scores.sum(1).T if ctx.has_bias else None
        d_dots = _spread(d_scores * ctx.scale, spans)
        d_query = _bags(rows, index, d_dots).view_as(query)
        d_table = None
        if ctx.needs_input_grad[1]:
            # Rows after the last one that is used receive nothing.
            source, (line, entry, offsets) = torch.cat([query.reshape(-1, c), d_context]), index.uses
            received = torch.cat([d_dots, _spread(applied, spans)])[entry]
            sums = torch.embedding_bag(source, line, offsets, False, 0, False, received)[0]
            d_table = nn.functional.pad(sums, (0, 0, 0, len(rows) - len(sums))).view_as(table)
        return d_query, d_table, d_bias, None, None, None, None, None, None


def sequence_scores(tokens: Tensor, query: Tensor, layout: TokenLayout) -> Tensor:
    """Dot products of packed tokens `[N, d]` with the queries `[b, h, d]` of their sequences: `[N, h]`."""
    return _SequenceScores.apply(tokens, query, layout)


def sequence_sums(tokens: Tensor, weights: Tensor, layout: TokenLayout) -> Tensor:
    """
    Sums over each sequence of packed tokens `[N, d]`, one for each column of weights `[N, h]`: `[b, h, d]`, zeros for
    an empty sequence.
    """
    return _SequenceSums.apply(tokens, weights, layout)


class _SequenceScores(torch.autograd.Function):
    """`s_ih = x_i . q_jh`, j being the sequence of i."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, query: Tensor, layout: TokenLayout) -> Tensor:
        ctx.save_for_backward(tokens, query)
        ctx.layout = layout
        return _dots(tokens, query.flatten(0, 1), _of_sequence(layout, query.shape[1]))

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, d_scores: Tensor) -> tuple[Tensor, Tensor, None]:
        tokens, query = ctx.saved_tensors
        d_tokens = _weighted_sums(query.flatten(0, 1), _of_sequence(ctx.layout, query.shape[1]), d_scores)
        return d_tokens, _sums_by_sequence(tokens, d_scores, ctx.layout), None


class _SequenceSums(torch.autograd.Function):
    """`y_jh = sum_i a_ih x_i` over the tokens i of sequence j."""

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, weights: Tensor, layout: TokenLayout) -> Tensor:
        ctx.save_for_backward(tokens, weights)
        ctx.layout = layout
        return _sums_by_sequence(tokens, weights, layout)

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, d_sums: Tensor) -> tuple[Tensor, Tensor, None]:
        tokens, weights = ctx.saved_tensors
        rows, index = d_sums.flatten(0, 1), _of_sequence(ctx.layout, d_sums.shape[1])
        return _weighted_sums(rows, index, weights), _dots(tokens, rows, index), None


def _of_sequence(layout: TokenLayout, h: int) -> Tensor:
    """Rows of `[b h, ...]` of each token's sequence, `[N, h]`."""
    return (layout.sequence_index[:, None] * h + torch.arange(h)).int()


def _sums_by_sequence(tokens: Tensor, weights: Tensor, layout: TokenLayout) -> Tensor:
    """Sums of tokens `[N, d]` over each sequence with weights `[N, h]`: `[b, h, d]`."""
    index, starts = torch.arange(len(tokens)), layout.starts
    sums = [
        nn.functional.embedding_bag(index, tokens, starts, per_sample_weights=column.contiguous(), mode="sum")
        for column in weights.T
    ]
    return torch.stack(sums, dim=1)


@cached_unless_traced
def _starts(v: int, w: int) -> Tensor:
    """Where the entries of each of v lines begin, w in each, and where they end: `[v + 1]`, int32."""
    return torch.arange(0, v * w + 1, max(w, 1), dtype=torch.int32)[: v + 1]


def _dots(vectors: Tensor, rows: Tensor, index: Tensor, wanted: Tensor | None = None, scale: float = 1.0) -> Tensor:
    """
    Dot products of each vector `[V, c]` with its rows, times `scale`: `[V, w]` for `index` `[V, w]`, int32. `wanted`
    is `_zeros_at(index, len(rows), ...)`, where it was made before.
    """
    wanted = _zeros_at(index, len(rows), rows.dtype) if wanted is None else wanted
    if wanted is None:
        return (vectors[:, None] * rows[index]).sum(-1) * scale
    # Entries of a row are in no order, and may occur twice: `products_are_sampled`.
    return torch.sparse.sampled_addmm(wanted, vectors, rows.T, beta=0.0, alpha=scale).values().view_as(index)


def _zeros_at(index: Tensor, columns: int, dtype: torch.dtype) -> Tensor | None:
    """
    A sparse matrix `[V, columns]` with zeros in the columns `index` `[V, w]` of each row; `None` where w is more than
    its columns, which it cannot have, or where torch needs a valid matrix.
    """
    return _sparse_zeros(index, columns, dtype) if index.shape[1] <= columns and products_are_sampled(dtype) else None


def _sparse_zeros(index: Tensor, columns: int, dtype: torch.dtype) -> Tensor:
    v, w = index.shape
    _hide_beta_warning()
    # Zeros, not empty memory: NaN times beta = 0 is NaN.
    zeros = torch.zeros(v * w, dtype=dtype)
    return torch.sparse_csr_tensor(_starts(v, w), index.view(-1), zeros, (v, columns), check_invariants=False)


@functools.cache
def _hide_beta_warning() -> None:
    """Hide torch's warning, once in a process, that sparse rows are in beta."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        nothing = torch.zeros(1, dtype=torch.int32)
        torch.sparse_csr_tensor(nothing, nothing[:0], torch.zeros(0), (0, 1), check_invariants=False)


def _weighted_sums(rows: Tensor, index: Tensor, weights: Tensor) -> Tensor:
    """Sums of `rows` `[.., c]` at `index` `[V, w]` with `weights` `[V, w]`: `[V, c]`."""
    return nn.functional.embedding_bag(index, rows, per_sample_weights=weights, mode="sum")


def _bags(rows: Tensor, index: RowIndex, weights: Tensor) -> Tensor:
    """Sums of `rows` `[.., c]` at `index.keys` with `weights` `[M h w]`: `[M h, c]`."""
    # As torch.nn.functional.embedding_bag does, which computes the starts of the bags in every call.
    return torch.embedding_bag(rows, index.entries, index.starts, False, 0, False, weights)[0]


def _spread(weights: Tensor, spans: Tensor | None) -> Tensor:
    """From candidates back to rows, entry by entry: `[r, M, h]` to `[M h w]`."""
    if spans is None:
        return weights.permute(1, 2, 0).reshape(-1)
    return (spans @ weights.flatten(1)).T.reshape(-1)
