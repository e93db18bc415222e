"""
Operations of the attentions on a CPU that index the rows of a tensor without gathering a copy of them. attention.py
has the reference in torch operations.

Axes: b batch  N flat tokens  M of them  d width  R rows of a table  h heads  c width of a head
      w rows that a token attends to  r candidates
"""

import functools
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from .token_layout import TokenLayout
from .utils import first_derivatives_only


def row_attention_applies(states: Tensor) -> bool:
    """Whether the operations support this device and precision."""
    return states.device.type == "cpu" and states.dtype in (torch.float32, torch.float64)


def row_attention(
    query: Tensor,
    table: Tensor,
    index: Tensor,
    role_bias: Tensor | None = None,
    spans: Tensor | None = None,
    exists: Tensor | None = None,
    dropout_p: float = 0.0,
) -> tuple[Tensor, Tensor | None]:
    """
    Each token attends to candidates that are rows of a table, or sums of some of its rows.

    Gradients reach `query`, `table` and `role_bias`; they cannot be differentiated again.

    Args:
        query: `[M, h, c]`, float32 or float64 on a CPU, not yet scaled.
        table: `[R, 2 h c]`: in every row a key and, beside it, its value without bias.
        index: `[M, w]`, long: the rows that each token attends to.
        role_bias: `[h, r]`, added to the scores; or `None`.
        spans: `[w, r]`, bool: which of its w rows a candidate is the sum of; `None` where each is one, r = w.
        exists: `[M, r]`, bool: whether a token has the candidate; `None` where it has all.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[M, h, c]` without any value's bias, zeros where a token has no candidate; and the sum of the
        weights `[M, h]`, by which that bias counts, or `None` without dropout, where it is 1.
    """
    context, total = _RowAttention.apply(query, table, index, role_bias, spans, exists, dropout_p)
    return context, total if dropout_p else None


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
        index: Tensor,
        role_bias: Tensor | None,
        spans: Tensor | None,
        exists: Tensor | None,
        dropout_p: float,
    ) -> tuple[Tensor, Tensor]:
        m, h, c = query.shape
        rows = table.view(-1, c)
        keys = _head_rows(index, h)
        spans = None if spans is None else spans.to(query.dtype)
        scores = _gather(_dots(query.reshape(-1, c), rows, keys).T, spans) * c**-0.5
        # Candidates come first: a softmax over a last axis of five takes ten times as long.
        scores = scores.unflatten(1, (m, h))
        if role_bias is not None:
            scores = scores + role_bias.T[:, None]
        if exists is not None:
            scores = scores.masked_fill(~exists.T[..., None], torch.finfo(scores.dtype).min)
        weights = scores.softmax(0)
        if exists is not None and not exists.any(1).all():
            # A softmax over nothing is not 0.
            weights = weights.masked_fill(~exists.T[..., None], 0)
        dropout_mask = nn.functional.dropout(torch.ones_like(weights), dropout_p) if dropout_p else None
        applied = weights if dropout_mask is None else weights * dropout_mask
        spread = _spread(applied, spans)
        context = _weighted_sums(rows, keys + h, spread)
        ctx.save_for_backward(query, table, index, spans, weights, dropout_mask)
        ctx.has_bias = role_bias is not None
        return context.view(m, h, c), applied.sum(0) if dropout_p else query.new_zeros(())

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, d_context: Tensor, d_total: Tensor) -> tuple[Tensor | None, ...]:
        query, table, index, spans, weights, dropout_mask = ctx.saved_tensors
        m, h, c = query.shape
        rows = table.view(-1, c)
        keys = _head_rows(index, h)
        d_context = d_context.reshape(-1, c)
        d_weights = _gather(_dots(d_context, rows, keys + h).T, spans).unflatten(1, (m, h))
        applied = weights
        if dropout_mask is not None:
            applied, d_weights = weights * dropout_mask, (d_weights + d_total) * dropout_mask
        d_scores = weights * (d_weights - (weights * d_weights).sum(0))
        d_bias = d_scores.sum(1).T if ctx.has_bias else None
        d_dots = _spread(d_scores * c**-0.5, spans)
        d_query = _weighted_sums(rows, keys, d_dots).view(m, h, c)
        d_table = None
        if ctx.needs_input_grad[1]:
            source = torch.cat([query.reshape(-1, c), d_context])
            d_table = _sums_by_row(source, index, d_dots, _spread(applied, spans), len(table), h).view_as(table)
        return d_query, d_table, None, d_bias, None, None, None


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


def _head_rows(index: Tensor, h: int) -> Tensor:
    """Rows of a table `[R, 2 h c]` to rows of `[R 2 h, c]` that hold their keys, `[M, w]` to `[M h, w]`."""
    head = torch.arange(h, dtype=torch.int32, device=index.device)
    return (index.to(torch.int32)[:, None] * (2 * h) + head[:, None]).flatten(0, 1)


def _dots(vectors: Tensor, rows: Tensor, index: Tensor) -> Tensor:
    """Dot products of each vector `[V, c]` with its rows, `[V, w]` for `index` `[V, w]`."""
    v, w = index.shape
    if w > len(rows):
        # A sparse matrix cannot have more entries than places.
        return (vectors[:, None] * rows[index]).sum(-1)
    starts = torch.arange(0, v * w + 1, w, dtype=index.dtype)
    _hide_beta_warning()
    # Entries of a row are in no order, and may occur twice: the kernel reads them one by one (torch 2.13). Zeros, not
    # empty memory: NaN times beta = 0 is NaN.
    wanted = torch.sparse_csr_tensor(
        starts, index.flatten(), rows.new_zeros(v * w), (v, len(rows)), check_invariants=False
    )
    return torch.sparse.sampled_addmm(wanted, vectors, rows.T, beta=0.0).values().view(v, w)


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


def _gather(dots: Tensor, spans: Tensor | None) -> Tensor:
    """From the rows that a token attends to to its candidates, `[w, ...]` to `[r, ...]`."""
    return dots if spans is None else spans.T @ dots


def _spread(weights: Tensor, spans: Tensor | None) -> Tensor:
    """From candidates back to rows, one line for each token and head: `[r, M, h]` to `[M h, w]`."""
    flat = weights.flatten(1)
    return (flat if spans is None else spans @ flat).T.contiguous()


def _sums_by_row(source: Tensor, index: Tensor, for_keys: Tensor, for_values: Tensor, count: int, h: int) -> Tensor:
    """
    The gradient of a table: for each row the sum over the tokens that attend to it.

    Args:
        source: `[2 M h, c]`, the vectors that keys receive above those that values receive.
        index: `[M, w]`.
        for_keys, for_values: `[M h, w]`, their weights.
        count, h: R and h.

    Returns:
        `[R 2 h, c]`
    """
    m, w = index.shape
    order = index.flatten().argsort()
    row = index.flatten()[order]
    uses = row.bincount(minlength=count)
    start = uses.cumsum(0) - uses
    slot = torch.arange(2 * h)
    # Row after row, within it key after key and value after value of the heads, within these use after use.
    place = (start[row] * (2 * h - 1) + torch.arange(m * w))[:, None] + slot * uses[row][:, None]
    token, nth = order // w, order % w
    line = torch.where(slot < h, slot, (m - 1) * h + slot) + (token * h)[:, None]
    weights = torch.cat([for_keys, for_values])[line, nth[:, None]]
    place, line, weights = place.flatten(), line.flatten(), weights.flatten()
    line = torch.empty_like(line).scatter_(0, place, line)
    weights = torch.empty_like(weights).scatter_(0, place, weights)
    offsets = (start[:, None] * (2 * h) + slot * uses[:, None]).flatten()
    return nn.functional.embedding_bag(line, source, offsets, per_sample_weights=weights, mode="sum")
