"""
The relay over its sequence as Triton kernels, forward and backward: the core of `attention.relay_attention` over
packed tokens. triton_utils.py describes what all kernels have in common.

All heads of a sequence look at the same tokens, which serve as keys and as values. So a program takes a chunk of
tokens for all heads at once, as small matrix products, and tokens are read once for the scores and once for the sums.
Splitting the width as well in the second keeps tiles small whatever d is, and needs the softmax to be finished in
between: its highest score and its sum, of each chunk and then of the sequence, are few numbers.

Axes: N flat tokens  b sequences  d width  h heads  p chunks
"""

from typing import Any

import torch
from torch import Tensor

from ..models.derivatives import first_derivatives_only
from ..models.token_layout import TokenLayout
from .triton_utils import (
    CHUNKS_AT_ONCE,
    INTERPRETED,
    TYPES,
    chunk_at,
    chunks_of,
    dropout_factor,
    launch,
    load,
    new_seed,
    store,
    sum_type,
    summed_over_chunks,
)


try:
    import triton
    import triton.language as tl
except ImportError as error:
    raise ImportError("The kernels need Triton: pip install triton.") from error


@triton.jit
def _load_turned(pointer, rows, there, ROW: tl.constexpr, columns, WIDTH: tl.constexpr, TYPE: tl.constexpr):
    """`load`, [columns, rows]."""
    at = pointer + rows[None, :] * ROW + columns[:, None]
    return tl.load(at, mask=there[None, :] & (columns < WIDTH)[:, None], other=0.0).to(TYPE)


@triton.jit(do_not_specialize=["batch", "per_sequence", "seed"])
def _relay_scores(
    query_pointer, tokens_pointer, scores_pointer, statistics, batch, starts, stops, per_sequence, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    OPERAND: tl.constexpr, HEAD_BLOCK: tl.constexpr, TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """
    Scores [N, h], and of each chunk `statistics` [p, 3, h]: its highest score m, the sum of exp(score - m), and that
    sum after dropout. The softmax is computed on the go: m grows, and the sums so far are scaled down to it.
    """
    chunk = tl.program_id(0).to(tl.int64)
    start, stop, sequence = chunk_at(starts, stops, chunk, per_sequence, CHUNK)
    heads = tl.arange(0, HEAD_BLOCK)
    highest = tl.full([HEAD_BLOCK], float("-inf"), dtype=TYPE)
    total = tl.zeros([HEAD_BLOCK], dtype=TYPE)
    dropped = tl.zeros([HEAD_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        scores = tl.zeros([TOKEN_BLOCK, HEAD_BLOCK], dtype=TYPE)
        for column in range(0, WIDTH, WIDTH_BLOCK):
            columns = column + tl.arange(0, WIDTH_BLOCK)
            states = load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
            query = _load_turned(
                query_pointer, heads * batch + sequence, heads < HEADS, WIDTH, columns, WIDTH, OPERAND
            )
            scores = tl.dot(states, query, scores, input_precision="ieee", out_dtype=TYPE)
        store(scores_pointer, tokens, real, HEADS, 0, heads, HEADS, scores)
        scores = tl.where(real[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        exponentials = tl.exp(scores - higher[None, :])
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(exponentials, axis=0)
        if DROPOUT:
            factor = dropout_factor(seed, tokens[:, None] * HEADS + heads[None, :], dropout_p)
            dropped = dropped * shrink + tl.sum(exponentials * factor, axis=0)
        highest = higher
    mine = statistics + chunk * 3 * HEADS + heads
    tl.store(mine, highest, mask=heads < HEADS)
    tl.store(mine + HEADS, total, mask=heads < HEADS)
    tl.store(mine + 2 * HEADS, dropped, mask=heads < HEADS)


@triton.jit(do_not_specialize=["batch", "count", "per_sequence", "seed"])
def _relay_softmax(
    query_pointer, relay_pointer, statistics, own_scores, log_sums, own_weights, totals, batch, count, starts, stops,
    per_sequence, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    HEAD_BLOCK: tl.constexpr, CHUNK_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """
    The softmax of a sequence over its relay and, from those of its chunks, its tokens: the relay's own score, log of
    the sum of exp(score), the relay's own weight, and the sum of all weights, the last two after dropout; [b, h] each.
    """
    sequence = tl.program_id(0).to(tl.int64)
    length = tl.load(stops + sequence) - tl.load(starts + sequence)
    start = sequence * per_sequence
    stop = start + tl.cdiv(length, CHUNK)
    heads = tl.arange(0, HEAD_BLOCK)
    at = sequence * HEADS + heads
    own = tl.zeros([HEAD_BLOCK], dtype=TYPE)
    for column in range(0, WIDTH, WIDTH_BLOCK):
        columns = column + tl.arange(0, WIDTH_BLOCK)
        query = load(query_pointer, heads * batch + sequence, heads < HEADS, WIDTH, 0, columns, WIDTH, TYPE)
        state = tl.load(relay_pointer + sequence * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
        own += tl.sum(query * state[None, :], axis=1)
    tl.store(own_scores + at, own, mask=heads < HEADS)
    highest = own
    total = tl.full([HEAD_BLOCK], 1.0, dtype=TYPE)
    dropped = tl.zeros([HEAD_BLOCK], dtype=TYPE)
    for first in range(start, stop, CHUNK_BLOCK):
        chunks = first + tl.arange(0, CHUNK_BLOCK).to(tl.int64)
        there = chunks < stop
        scores = load(statistics, chunks, there, 3 * HEADS, 0, heads, HEADS, TYPE)
        scores = tl.where(there[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        shares = tl.exp(scores - higher[None, :])
        shrink = tl.exp(highest - higher)
        sums = load(statistics, chunks, there, 3 * HEADS, HEADS, heads, HEADS, TYPE)
        total = total * shrink + tl.sum(shares * sums, axis=0)
        if DROPOUT:
            sums = load(statistics, chunks, there, 3 * HEADS, 2 * HEADS, heads, HEADS, TYPE)
            dropped = dropped * shrink + tl.sum(shares * sums, axis=0)
        highest = higher
    log_sum = highest + tl.log(total)
    own_weight = tl.exp(own - log_sum)
    sum_of_weights = tl.full([HEAD_BLOCK], 1.0, dtype=TYPE)
    if DROPOUT:
        # After the tokens', which count from 0.
        own_weight *= dropout_factor(seed, (count + sequence) * HEADS + heads, dropout_p)
        sum_of_weights = own_weight + dropped / total
    tl.store(log_sums + at, log_sum, mask=heads < HEADS)
    tl.store(own_weights + at, own_weight, mask=heads < HEADS)
    tl.store(totals + at, sum_of_weights, mask=heads < HEADS)


@triton.jit(do_not_specialize=["per_sequence", "seed"])
def _relay_mix(
    tokens_pointer, scores_pointer, statistics, log_sums, partial, starts, stops, per_sequence, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    OPERAND: tl.constexpr, HEAD_BLOCK: tl.constexpr, TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Sum of a chunk's tokens by their weights, for each head and some of the columns: `partial` [p, h, d]."""
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    chunk = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    start, stop, sequence = chunk_at(starts, stops, chunk, per_sequence, CHUNK)
    heads = tl.arange(0, HEAD_BLOCK)
    highest = tl.load(statistics + chunk * 3 * HEADS + heads, mask=heads < HEADS, other=0.0)
    log_sum = tl.load(log_sums + sequence * HEADS + heads, mask=heads < HEADS, other=0.0)
    mixed = tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        scores = _load_turned(scores_pointer, tokens, real, HEADS, heads, HEADS, TYPE)
        # Relative to the chunk's highest, so that weights of long texts, which are small, do not underflow in float16.
        weights = tl.exp(tl.where(real[None, :], scores - highest[:, None], float("-inf")))
        if DROPOUT:
            weights *= dropout_factor(seed, tokens[None, :] * HEADS + heads[:, None], dropout_p)
        states = load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
        mixed = tl.dot(weights.to(OPERAND), states, mixed, input_precision="ieee", out_dtype=TYPE)
    mixed *= tl.exp(highest - log_sum)[:, None]
    store(partial + chunk * HEADS * WIDTH, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, mixed)


@triton.jit(do_not_specialize=["batch", "per_sequence", "seed"])
def _relay_backward_weights(
    query_pointer, tokens_pointer, mixed_grad, total_grad, means, log_sums, weights_pointer, score_grads, batch,
    starts, stops, per_sequence, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    OPERAND: tl.constexpr, HEAD_BLOCK: tl.constexpr, TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """The weights after dropout and the gradients of the scores, [N, h] each."""
    chunk = tl.program_id(0).to(tl.int64)
    start, stop, sequence = chunk_at(starts, stops, chunk, per_sequence, CHUNK)
    heads = tl.arange(0, HEAD_BLOCK)
    at = sequence * HEADS + heads
    log_sum = tl.load(log_sums + at, mask=heads < HEADS, other=0.0)
    of_total = tl.load(total_grad + at, mask=heads < HEADS, other=0.0).to(TYPE)
    mean = tl.load(means + at, mask=heads < HEADS, other=0.0)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        scores = tl.zeros([TOKEN_BLOCK, HEAD_BLOCK], dtype=TYPE)
        grads = tl.zeros([TOKEN_BLOCK, HEAD_BLOCK], dtype=TYPE)
        for column in range(0, WIDTH, WIDTH_BLOCK):
            columns = column + tl.arange(0, WIDTH_BLOCK)
            states = load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
            query = _load_turned(
                query_pointer, heads * batch + sequence, heads < HEADS, WIDTH, columns, WIDTH, OPERAND
            )
            grad = _load_turned(
                mixed_grad + sequence * HEADS * WIDTH, heads, heads < HEADS, WIDTH, columns, WIDTH, OPERAND
            )
            scores = tl.dot(states, query, scores, input_precision="ieee", out_dtype=TYPE)
            grads = tl.dot(states, grad, grads, input_precision="ieee", out_dtype=TYPE)
        weights = tl.exp(tl.where(real[:, None], scores - log_sum[None, :], float("-inf")))
        grads += of_total[None, :]
        dropped = weights
        if DROPOUT:
            factor = dropout_factor(seed, tokens[:, None] * HEADS + heads[None, :], dropout_p)
            dropped = weights * factor
            grads *= factor
        store(weights_pointer, tokens, real, HEADS, 0, heads, HEADS, dropped)
        store(score_grads, tokens, real, HEADS, 0, heads, HEADS, weights * (grads - mean[None, :]))


@triton.jit(do_not_specialize=["batch", "per_sequence"])
def _relay_backward_mix(
    query_pointer, tokens_pointer, mixed_grad, weights_pointer, score_grads, tokens_grad, partial, batch, starts,
    stops, per_sequence,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, CHUNK: tl.constexpr, TYPE: tl.constexpr, OPERAND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr, TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
):  # fmt: skip
    """Some columns of the gradients of a chunk's tokens, and of its part of the query's: `partial` [p, h, d]."""
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    chunk = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    start, stop, sequence = chunk_at(starts, stops, chunk, per_sequence, CHUNK)
    heads = tl.arange(0, HEAD_BLOCK)
    query = load(query_pointer, heads * batch + sequence, heads < HEADS, WIDTH, 0, columns, WIDTH, OPERAND)
    grad = load(mixed_grad, heads + sequence * HEADS, heads < HEADS, WIDTH, 0, columns, WIDTH, OPERAND)
    query_sum = tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        weights = load(weights_pointer, tokens, real, HEADS, 0, heads, HEADS, OPERAND)
        of_scores = load(score_grads, tokens, real, HEADS, 0, heads, HEADS, OPERAND)
        states = load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
        out = tl.dot(weights, grad, input_precision="ieee", out_dtype=TYPE)
        out = tl.dot(of_scores, query, out, input_precision="ieee", out_dtype=TYPE)
        store(tokens_grad, tokens, real, WIDTH, 0, columns, WIDTH, out)
        query_sum = tl.dot(tl.trans(of_scores), states, query_sum, input_precision="ieee", out_dtype=TYPE)
    store(partial + chunk * HEADS * WIDTH, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, query_sum)


class _RelayMix(torch.autograd.Function):
    """See `relay_mix`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, relay: Tensor, tokens: Tensor, layout: TokenLayout, dropout_p: float
    ) -> tuple[Tensor, Tensor]:
        # A product for each head has left them in the order [h, b, d], in which the kernels read them.
        query = query.transpose(0, 1).contiguous().transpose(0, 1)
        relay, tokens = relay.contiguous(), tokens.contiguous()
        b, h, d = query.shape
        chunks, bounds = chunks_of(layout)
        seed = new_seed(dropout_p)
        numbers: dict[str, Any] = {"dtype": sum_type(query), "device": query.device}
        constants = _relay_constants(query)
        dropping = {"seed": seed, "dropout_p": dropout_p, "DROPOUT": dropout_p > 0}
        scores = torch.empty(len(tokens), h, **numbers)
        statistics = torch.empty(chunks, 3, h, **numbers)
        own_scores, log_sums, own_weights, totals = torch.empty(4, b, h, **numbers)
        partial = torch.empty(chunks, h, d, **numbers)
        launch(
            _relay_scores, chunks, query, tokens, scores, statistics, b, **bounds, **dropping, **constants,
        )  # fmt: skip
        launch(
            _relay_softmax, b, query, relay, statistics, own_scores, log_sums, own_weights, totals, b, len(tokens),
            **bounds, **dropping, CHUNK_BLOCK=CHUNKS_AT_ONCE,
            **{name: constants[name] for name in ("HEADS", "WIDTH", "TYPE", "HEAD_BLOCK", "WIDTH_BLOCK")},
        )  # fmt: skip
        launch(
            _relay_mix, chunks * triton.cdiv(d, constants["WIDTH_BLOCK"]),
            tokens, scores, statistics, log_sums, partial, **bounds, **dropping, **constants,
        )  # fmt: skip
        mixed = summed_over_chunks(partial, layout, partial.new_empty(b, h, d), own_weights, relay)
        ctx.save_for_backward(query, relay, tokens, mixed, totals, own_scores, own_weights, log_sums)
        ctx.layout, ctx.dropout_p, ctx.seed = layout, dropout_p, seed
        return mixed, totals

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, mixed_grad: Tensor, total_grad: Tensor) -> tuple[Tensor | None, ...]:
        query, relay, tokens, mixed, totals, own_scores, own_weights, log_sums = ctx.saved_tensors
        mixed_grad, total_grad = mixed_grad.contiguous(), total_grad.contiguous()
        b, h, d = query.shape
        chunks, bounds = chunks_of(ctx.layout)
        constants = _relay_constants(query)
        numbers: dict[str, Any] = {"dtype": mixed.dtype, "device": mixed.device}
        # The mean of the weights' gradients by the weights, as the softmax needs it.
        means = (mixed_grad * mixed).sum(-1) + total_grad * totals
        weights, score_grads = torch.empty(2, len(tokens), h, **numbers)
        tokens_grad = torch.empty_like(tokens)
        partial = torch.empty(chunks, h, d, **numbers)
        launch(
            _relay_backward_weights, chunks, query, tokens, mixed_grad, total_grad, means, log_sums, weights,
            score_grads, b, **bounds, seed=ctx.seed, dropout_p=ctx.dropout_p, **constants, DROPOUT=ctx.dropout_p > 0,
        )  # fmt: skip
        launch(
            _relay_backward_mix, chunks * triton.cdiv(d, constants["WIDTH_BLOCK"]),
            query, tokens, mixed_grad, weights, score_grads, tokens_grad, partial, b, **bounds, **constants,
        )  # fmt: skip
        own_grads = (mixed_grad * relay[:, None]).sum(-1) + total_grad
        # The weight after dropout takes the gradient; the one before it is what the softmax shares out.
        own_score_grads = own_weights * own_grads - (own_scores - log_sums).exp() * means
        query_grad = summed_over_chunks(partial, ctx.layout, query.new_empty(b, h, d), own_score_grads, relay)
        relay_grad = (own_weights[..., None] * mixed_grad + own_score_grads[..., None] * query).sum(1)
        return query_grad, relay_grad.to(relay.dtype), tokens_grad, None, None


def _relay_constants(query: Tensor) -> dict[str, Any]:
    """The compile-time arguments of the relay's kernels."""
    # The interpreter would multiply the bits of bfloat16.
    operand = torch.float32 if INTERPRETED and query.dtype == torch.bfloat16 else query.dtype
    return {
        "HEADS": query.shape[1],
        "WIDTH": query.shape[2],
        "TYPE": TYPES[sum_type(query)],
        "OPERAND": TYPES[operand],
        # No side of a matrix product may be shorter than 16.
        "HEAD_BLOCK": max(16, triton.next_power_of_2(query.shape[1])),
        "TOKEN_BLOCK": 64,
        "WIDTH_BLOCK": 32 if operand.itemsize > 2 else 64,
    }


def relay_mix(
    query: Tensor, relay: Tensor, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor | None]:
    """
    As `attention.relay_mix`, of packed tokens: relay and tokens by their weights `[b, h, d]`, and the sums of the
    weights `[b, h]` under dropout; float32, or float64 for such. Products are taken in the query's type.
    """
    mixed, totals = _RelayMix.apply(query, relay, tokens, layout, float(dropout_p))
    return mixed, totals if dropout_p > 0 else None
