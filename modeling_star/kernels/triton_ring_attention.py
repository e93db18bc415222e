"""
A token over its candidates as Triton kernels, forward and backward: `attention.candidate_attention` over packed
tokens. triton_utils.py describes what all kernels have in common.

One kernel serves the ring and the band. Both have local candidates, which are sums over offsets from the token; the
ring's are one offset each, closed at the ends. To these come at most two more: the token's embedding, and one node of
its sequence, the relay of the Star-Transformer or the global node of the BiG-Transformer.

A program computes some tokens for one head, [tokens, c] at a time. Heads change fastest from program to program:
programs that run at the same time read the same rows, of which a head needs only c numbers.

Axes: N flat tokens  b sequences  h heads  c width of a head  w offsets of the band  r roles  p chunks
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..models.derivatives import first_derivatives_only
from ..models.token_layout import TokenLayout
from .triton_utils import (
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


# Numbers in the tiles [tokens, c] of one program, of which it holds a few in registers at a time.
TILE = 1024


@triton.jit
def _ring_of(tokens, real, sequence, starts, stops, CLOSED: tl.constexpr):
    """The first token and the length of each token's sequence; off the ring nothing reads them."""
    start = tokens
    length = tokens
    if CLOSED:
        of = tl.load(sequence + tokens, mask=real, other=0)
        start = tl.load(starts + of)
        length = tl.load(stops + of) - start
    return start, length


@triton.jit
def _rows_at(tokens, real, start, length, count, offset, REACH: tl.constexpr, CLOSED: tl.constexpr):
    """The token at an offset from each, and whether there is one: on a ring always, on a band in 0..N."""
    if CLOSED:
        # The remainder of a negative number may be negative. Tokens beyond N read from a sequence that may be empty.
        rounds = tl.maximum(length, 1)
        rows = start + (tokens - start + offset + REACH * rounds) % rounds
        there = real
    else:
        rows = tokens + offset
        there = real & (rows >= 0) & (rows < count)
    return rows, there


@triton.jit
def _span(spans, roles, index, ROLES: tl.constexpr, TYPE: tl.constexpr):
    """Which roles the offset of that index is part of, as 0 and 1, [1, roles]: on a ring each offset is a role."""
    if spans is None:
        part = (roles == index).to(TYPE)
    else:
        part = tl.load(spans + index * ROLES + roles, mask=roles < ROLES, other=0.0).to(TYPE)
    return part[None, :]


@triton.jit
def _candidate_factors(seed, tokens, head, roles, dropout_p, HEADS: tl.constexpr, ROLE_BLOCK: tl.constexpr):
    """`keep` of the local roles, the embedding and the node."""
    offsets = (tokens * HEADS + head) * (ROLE_BLOCK + 2)
    local = dropout_factor(seed, offsets[:, None] + roles[None, :], dropout_p)
    return (
        local,
        dropout_factor(seed, offsets + ROLE_BLOCK, dropout_p),
        dropout_factor(seed, offsets + ROLE_BLOCK + 1, dropout_p),
    )


@triton.jit
def _weights(
    query, key_value, embedded, node, role_bias, exists, spans, start, length, node_rows, tokens, real, head, count,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr, REACH: tl.constexpr, CLOSED: tl.constexpr,
    UNROLL: tl.constexpr, ROLES: tl.constexpr, EMBEDDING: tl.constexpr, TYPE: tl.constexpr, TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr, ROLE_BLOCK: tl.constexpr,
):  # fmt: skip
    """Softmax over the candidates: of the local roles [tokens, roles], the embedding and the node [tokens] each."""
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    scores = tl.zeros([TOKEN_BLOCK, ROLE_BLOCK], dtype=TYPE)
    own = tl.zeros([TOKEN_BLOCK], dtype=TYPE)
    for offset in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, start, length, count, offset, REACH, CLOSED)
        key = load(key_value, rows, there, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        score = tl.sum(query * key, axis=1) * SCALE
        # q . (k_1 + k_2) = q . k_1 + q . k_2: no sum of keys is formed.
        scores += score[:, None] * _span(spans, roles, offset + REACH, ROLES, TYPE)
        own += tl.where(offset == 0, score, 0.0)
    embedding_score = tl.full([TOKEN_BLOCK], float("-inf"), dtype=TYPE)
    if EMBEDDING == 1:
        embedding_score = own
    if EMBEDDING == 2:
        key = load(embedded, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        embedding_score = tl.sum(query * key, axis=1) * SCALE
    node_score = tl.full([TOKEN_BLOCK], float("-inf"), dtype=TYPE)
    if node is not None:
        key = load(node, node_rows, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        node_score = tl.sum(query * key, axis=1) * SCALE
    if role_bias is not None:
        bias = role_bias + head * (ROLES + 1 + (node is not None))
        scores += tl.load(bias + roles, mask=roles < ROLES, other=0.0).to(TYPE)[None, :]
        embedding_score += tl.load(bias + ROLES).to(TYPE)
        if node is not None:
            node_score += tl.load(bias + ROLES + 1).to(TYPE)
    exist = (roles < ROLES)[None, :] & real[:, None]
    if exists is not None:
        exist = tl.load(exists + tokens[:, None] * ROLES + roles[None, :], mask=exist, other=0) != 0
    scores = tl.where(exist, scores, float("-inf"))
    highest = tl.maximum(tl.max(scores, axis=1), tl.maximum(embedding_score, node_score))
    # A token without candidates, and what pads the tile, gets weights of 0 instead of 0 / 0.
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    local = tl.exp(scores - highest[:, None])
    embedding = tl.exp(embedding_score - highest)
    of_node = tl.exp(node_score - highest)
    total = tl.sum(local, axis=1) + embedding + of_node
    share = 1.0 / tl.where(total == 0.0, 1.0, total)
    return local * share[:, None], embedding * share, of_node * share


@triton.jit(do_not_specialize=["count", "seed"])
def _candidates_forward(
    query_pointer, key_value, embedded, node, value_bias, role_bias, exists, spans, sequence, starts, stops,
    context_pointer, count, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr, REACH: tl.constexpr, CLOSED: tl.constexpr,
    UNROLL: tl.constexpr, ROLES: tl.constexpr, EMBEDDING: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr, ROLE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The context that `candidate_attention` returns."""
    head = tl.program_id(0) % HEADS
    tokens = (tl.program_id(0) // HEADS).to(tl.int64) * TOKEN_BLOCK + tl.arange(0, TOKEN_BLOCK)
    real = tokens < count
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    node_rows = tokens
    if node is not None:
        node_rows = tl.load(sequence + tokens, mask=real, other=0)
    start, length = _ring_of(tokens, real, sequence, starts, stops, CLOSED)
    query = load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    local, embedding, of_node = _weights(
        query, key_value, embedded, node, role_bias, exists, spans, start, length, node_rows, tokens, real, head,
        count, HEADS, WIDTH, SCALE, REACH, CLOSED, UNROLL, ROLES, EMBEDDING, TYPE, TOKEN_BLOCK, WIDTH_BLOCK,
        ROLE_BLOCK,
    )  # fmt: skip
    if DROPOUT:
        factor_local, factor_embedding, factor_node = _candidate_factors(
            seed, tokens, head, roles, dropout_p, HEADS, ROLE_BLOCK
        )
        local *= factor_local
        embedding *= factor_embedding
        of_node *= factor_node
    total = tl.sum(local, axis=1) + embedding + of_node
    bias = tl.load(value_bias + head * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
    context = total[:, None] * bias[None, :]
    for offset in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, start, length, count, offset, REACH, CLOSED)
        value = load(key_value, rows, there, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        # Each token that a candidate is made of takes the candidate's weight.
        weight = tl.sum(local * _span(spans, roles, offset + REACH, ROLES, TYPE), axis=1)
        if EMBEDDING == 1:
            weight += tl.where(offset == 0, embedding, 0.0)
        context += weight[:, None] * value
    if EMBEDDING == 2:
        value = load(embedded, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        context += embedding[:, None] * value
    if node is not None:
        value = load(node, node_rows, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        context += of_node[:, None] * value
    store(context_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, context)


@triton.jit
def _weight_gradients(
    grad, key_value, embedded, node, value_bias, spans, start, length, node_rows, tokens, real, head, count,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, REACH: tl.constexpr, CLOSED: tl.constexpr, UNROLL: tl.constexpr,
    ROLES: tl.constexpr, EMBEDDING: tl.constexpr, TYPE: tl.constexpr, TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr, ROLE_BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of the weights that `_weights` gives, as they were applied: context = sum of weight (value + bias)."""
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    bias = tl.load(value_bias + head * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
    of_bias = tl.sum(grad * bias[None, :], axis=1)
    local_grad = tl.zeros([TOKEN_BLOCK, ROLE_BLOCK], dtype=TYPE) + of_bias[:, None]
    embedding_grad = of_bias
    node_grad = of_bias
    for offset in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, start, length, count, offset, REACH, CLOSED)
        value = load(key_value, rows, there, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        of_offset = tl.sum(grad * value, axis=1)
        local_grad += of_offset[:, None] * _span(spans, roles, offset + REACH, ROLES, TYPE)
        if EMBEDDING == 1:
            embedding_grad += tl.where(offset == 0, of_offset, 0.0)
    if EMBEDDING == 2:
        value = load(embedded, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        embedding_grad += tl.sum(grad * value, axis=1)
    if node is not None:
        value = load(node, node_rows, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        node_grad += tl.sum(grad * value, axis=1)
    return local_grad, embedding_grad, node_grad


@triton.jit(do_not_specialize=["count", "seed"])
def _candidates_backward(
    query_pointer, key_value, embedded, node, value_bias, role_bias, exists, spans, sequence, starts, stops,
    context_grad, query_grad, embedded_grad, role_bias_grads, scratch, count, seed, dropout_p,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SCALE: tl.constexpr, REACH: tl.constexpr, CLOSED: tl.constexpr,
    UNROLL: tl.constexpr, ROLES: tl.constexpr, EMBEDDING: tl.constexpr, DROPOUT: tl.constexpr, TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr, ROLE_BLOCK: tl.constexpr,
):  # fmt: skip
    """
    Gradients of what belongs to one token: its query, its embedding's key and value.

    For `_gather_gradients` it writes to `scratch` [2 w + 3, h, N]: the gradients of the scores at each offset of the
    band and with the node, the weights of the same, and the sum of a token's weights. `role_bias_grads` [programs, r]
    are sums over the tokens of a program.
    """
    head = tl.program_id(0) % HEADS
    tokens = (tl.program_id(0) // HEADS).to(tl.int64) * TOKEN_BLOCK + tl.arange(0, TOKEN_BLOCK)
    real = tokens < count
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    node_rows = tokens
    if node is not None:
        node_rows = tl.load(sequence + tokens, mask=real, other=0)
    start, length = _ring_of(tokens, real, sequence, starts, stops, CLOSED)
    query = load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    grad = load(context_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    local, embedding, of_node = _weights(
        query, key_value, embedded, node, role_bias, exists, spans, start, length, node_rows, tokens, real, head,
        count, HEADS, WIDTH, SCALE, REACH, CLOSED, UNROLL, ROLES, EMBEDDING, TYPE, TOKEN_BLOCK, WIDTH_BLOCK,
        ROLE_BLOCK,
    )  # fmt: skip
    local_grad, embedding_grad, node_grad = _weight_gradients(
        grad, key_value, embedded, node, value_bias, spans, start, length, node_rows, tokens, real, head, count,
        HEADS, WIDTH, REACH, CLOSED, UNROLL, ROLES, EMBEDDING, TYPE, TOKEN_BLOCK, WIDTH_BLOCK, ROLE_BLOCK,
    )  # fmt: skip
    dropped_local = local
    dropped_embedding = embedding
    dropped_node = of_node
    if DROPOUT:
        factor_local, factor_embedding, factor_node = _candidate_factors(
            seed, tokens, head, roles, dropout_p, HEADS, ROLE_BLOCK
        )
        local_grad *= factor_local
        embedding_grad *= factor_embedding
        node_grad *= factor_node
        dropped_local = local * factor_local
        dropped_embedding = embedding * factor_embedding
        dropped_node = of_node * factor_node

    # Of the scores, through the softmax.
    mean = tl.sum(local * local_grad, axis=1) + embedding * embedding_grad + of_node * node_grad
    local_grad = local * (local_grad - mean[:, None])
    embedding_grad = embedding * (embedding_grad - mean)
    node_grad = of_node * (node_grad - mean)
    if role_bias is not None:
        sums = role_bias_grads + tl.program_id(0).to(tl.int64) * (ROLES + 1 + (node is not None))
        tl.store(sums + roles, tl.sum(local_grad, axis=0), mask=roles < ROLES)
        tl.store(sums + ROLES, tl.sum(embedding_grad, axis=0))
        if node is not None:
            tl.store(sums + ROLES + 1, tl.sum(node_grad, axis=0))

    # Of the query, and for the keys and values, which belong to other tokens too.
    OFFSETS: tl.constexpr = 2 * REACH + 1
    slot = count.to(tl.int64) * HEADS
    mine = scratch + head.to(tl.int64) * count + tokens
    query_sum = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
    for offset in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        span = _span(spans, roles, offset + REACH, ROLES, TYPE)
        score_grad = tl.sum(local_grad * span, axis=1)
        weight = tl.sum(dropped_local * span, axis=1)
        if EMBEDDING == 1:
            score_grad += tl.where(offset == 0, embedding_grad, 0.0)
            weight += tl.where(offset == 0, dropped_embedding, 0.0)
        rows, there = _rows_at(tokens, real, start, length, count, offset, REACH, CLOSED)
        key = load(key_value, rows, there, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += score_grad[:, None] * key
        tl.store(mine + (offset + REACH) * slot, score_grad * SCALE, mask=real)
        tl.store(mine + (offset + REACH + OFFSETS + 1) * slot, weight, mask=real)
    if EMBEDDING == 2:
        key = load(embedded, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += embedding_grad[:, None] * key
        key_grad = (embedding_grad * SCALE)[:, None] * query
        value_grad = dropped_embedding[:, None] * grad
        store(embedded_grad, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, key_grad)
        store(embedded_grad, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, value_grad)
    if node is not None:
        key = load(node, node_rows, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += node_grad[:, None] * key
        tl.store(mine + OFFSETS * slot, node_grad * SCALE, mask=real)
        tl.store(mine + (2 * OFFSETS + 1) * slot, dropped_node, mask=real)
    total = tl.sum(dropped_local, axis=1) + dropped_embedding + dropped_node
    tl.store(mine + (2 * OFFSETS + 2) * slot, total, mask=real)
    store(query_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, query_sum * SCALE)


@triton.jit(do_not_specialize=["count", "per_sequence"])
def _gather_gradients(
    query_pointer, context_grad, scratch, key_value_grad, partial, count, starts, stops, per_sequence,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, REACH: tl.constexpr, CLOSED: tl.constexpr, UNROLL: tl.constexpr,
    HAS_NODE: tl.constexpr, TYPE: tl.constexpr, TOKEN_BLOCK: tl.constexpr, WIDTH_BLOCK: tl.constexpr,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """
    Gradients of each token's key and value, and of the node and the value bias, summed over a chunk.

    The token that attends to this one at an offset lies at the opposite offset: the left neighbour of its
    right neighbour is the token itself. So each token gathers, and nothing is scattered.
    `partial` [p, 3, h, c] are the sums of the node's key and value and of the value bias.
    """
    head = tl.program_id(0) % HEADS
    chunk = tl.program_id(0) // HEADS
    start, stop, of = chunk_at(starts, stops, chunk, per_sequence, CHUNK)
    ring_start = tl.load(starts + of)
    length = tl.load(stops + of) - ring_start
    columns = tl.arange(0, WIDTH_BLOCK)
    OFFSETS: tl.constexpr = 2 * REACH + 1
    slot = count.to(tl.int64) * HEADS
    mine = scratch + head.to(tl.int64) * count
    node_key = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    node_value = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    bias = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        own_query = load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        own_grad = load(context_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        key = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
        value = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
        for offset in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
            rows, there = _rows_at(tokens, real, ring_start, length, count, -offset, REACH, CLOSED)
            query = load(query_pointer, rows, there, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
            grad = load(context_grad, rows, there, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
            # Zero where another sequence's token is at the offset: there is no candidate.
            score_grad = tl.load(mine + (offset + REACH) * slot + rows, mask=there, other=0.0)
            weight = tl.load(mine + (offset + REACH + OFFSETS + 1) * slot + rows, mask=there, other=0.0)
            key += score_grad[:, None] * query
            value += weight[:, None] * grad
        store(key_value_grad, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, key)
        store(key_value_grad, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, value)
        total = tl.load(mine + (2 * OFFSETS + 2) * slot + tokens, mask=real, other=0.0)
        bias += tl.sum(total[:, None] * own_grad, axis=0)
        if HAS_NODE:
            score_grad = tl.load(mine + OFFSETS * slot + tokens, mask=real, other=0.0)
            weight = tl.load(mine + (2 * OFFSETS + 1) * slot + tokens, mask=real, other=0.0)
            node_key += tl.sum(score_grad[:, None] * own_query, axis=0)
            node_value += tl.sum(weight[:, None] * own_grad, axis=0)
    sums = partial + (chunk.to(tl.int64) * 3 * HEADS + head) * WIDTH + columns
    tl.store(sums, node_key, mask=columns < WIDTH)
    tl.store(sums + HEADS * WIDTH, node_value, mask=columns < WIDTH)
    tl.store(sums + 2 * HEADS * WIDTH, bias, mask=columns < WIDTH)


@dataclass(frozen=True)
class _Case:
    """
    The arguments of `_CandidateAttention` without gradients. `exists` and `spans` are `None` on a ring; `embedding`: 0
    if it is no candidate, 1 if its key and value are the token's, 2 if they are given.
    """

    layout: TokenLayout
    exists: Tensor | None
    spans: Tensor | None
    reach: int
    embedding: int
    scale: float
    dropout_p: float
    seed: int

    def constants(self, query: Tensor) -> dict[str, Any]:
        """The compile-time arguments that the kernels have in common."""
        heads, width = query.shape[1:]
        width_block = triton.next_power_of_2(width)
        return {
            "HEADS": heads,
            "WIDTH": width,
            "REACH": self.reach,
            "CLOSED": self.exists is None,
            "UNROLL": min(3, 2 * self.reach + 1),
            "TYPE": TYPES[sum_type(query)],
            "TOKEN_BLOCK": max(1, min(64, TILE // width_block)),
            "WIDTH_BLOCK": width_block,
        }

    def run(self, kernel: Any, inputs: list[Tensor | None], outputs: tuple[Tensor | None, ...]) -> None:
        """Run `_candidates_forward` or `_candidates_backward`."""
        query, layout = inputs[0], self.layout
        constants = self.constants(query)
        roles = 2 * self.reach + 1 if self.exists is None else self.exists.shape[1]
        launch(
            kernel, triton.cdiv(len(query), constants["TOKEN_BLOCK"]) * constants["HEADS"], *inputs,
            None if self.exists is None else self.exists.contiguous().view(torch.uint8),
            self.spans, layout.sequence_index, layout.starts, layout.stops, *outputs, len(query), self.seed,
            self.dropout_p, **constants, SCALE=self.scale, ROLES=roles, ROLE_BLOCK=triton.next_power_of_2(roles),
            EMBEDDING=self.embedding, DROPOUT=self.dropout_p > 0,
        )  # fmt: skip


class _CandidateAttention(torch.autograd.Function):
    """Tensors as the kernels take them, `[N, h, c]`, keys with values `[N, 2, h, c]`, to the context `[N, h, c]`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key_value: Tensor,
        embedded: Tensor | None,
        node: Tensor | None,
        value_bias: Tensor,
        role_bias: Tensor | None,
        case: _Case,
    ) -> Tensor:
        given = (query, key_value, embedded, node, value_bias, role_bias)
        inputs = [None if x is None else x.contiguous() for x in given]
        context = torch.empty_like(inputs[0])
        if len(context):
            case.run(_candidates_forward, inputs, (context,))
        ctx.save_for_backward(*inputs)
        ctx.case = case
        return context

    @staticmethod
    @first_derivatives_only
    def backward(ctx: Any, context_grad: Tensor) -> tuple[Tensor | None, ...]:
        case, inputs = ctx.case, list(ctx.saved_tensors)
        query, key_value, embedded, node, value_bias, role_bias = inputs
        if not len(query):
            return (*(None if x is None else torch.zeros_like(x) for x in inputs), None)
        context_grad = context_grad.contiguous()
        grads = [None if x is None else torch.empty_like(x) for x in (query, key_value, embedded, node)]
        constants = case.constants(query)
        count, heads, width = query.shape
        numbers: dict[str, Any] = {"dtype": sum_type(query), "device": query.device}
        scratch = torch.empty(2 * (2 * case.reach + 1) + 3, heads, count, **numbers)
        role_grads = None
        if role_bias is not None:
            blocks = triton.cdiv(count, constants["TOKEN_BLOCK"])
            role_grads = torch.empty(blocks, *role_bias.shape, **numbers)
        case.run(_candidates_backward, [*inputs], (context_grad, grads[0], grads[2], role_grads, scratch))
        chunks, bounds = chunks_of(case.layout)
        partial = torch.empty(chunks, 3, heads, width, **numbers)
        launch(
            _gather_gradients, chunks * heads, query, context_grad, scratch, grads[1], partial, count, **bounds,
            **constants, HAS_NODE=node is not None,
        )  # fmt: skip
        if node is not None:
            summed_over_chunks(partial, case.layout, grads[3])
        value_bias_grad = partial[:, 2].sum(0).to(value_bias.dtype)
        role_bias_grad = None if role_grads is None else role_grads.sum(0).to(role_bias.dtype)
        return *grads, value_bias_grad, role_bias_grad, None


def candidate_attention(
    query: Tensor,
    key_value: Tensor,
    embedded: Tensor | None,
    node: Tensor | None,
    value_bias: Tensor,
    role_bias: Tensor | None,
    radius: int,
    exists: Tensor | None,
    spans: Tensor | None,
    layout: TokenLayout,
    dropout_p: float,
    scale: float | None = None,
) -> Tensor:
    """
    `attention.candidate_attention` on a ring or a band. On a ring the candidates are the neighbours from left to
    right, the token itself in the middle, its embedding, and the relay of its sequence, in this order; on a band they
    are sums of the tokens around, and the global node.

    Args:
        query: `[N, h, c]`, not yet scaled.
        key_value: `[N, 2, h, c]`, keys and values, the values without their bias.
        embedded: `[N, 2, h, c]`, those of the embeddings; `None` on a band, or where they are the same.
        node: `[b, 2, h, c]`, those of the relays or global nodes; or `None`.
        value_bias: `[h, c]`.
        role_bias: `[h, r]`; or `None`.
        radius: neighbours on either side on a ring; largest offset of a band.
        exists: `[N, r]`, which sums of a band there are (`attention.BandCandidates`); `None` on a ring.
        spans: `[w, r]`, float32, contiguous: of which offsets they are sums; `None` on a ring.
        layout: where the tokens lie, packed.
        dropout_p: probability with which a weight is dropped; 0 outside training.
        scale: of the scores; c^-0.5 where it is `None`.

    Returns:
        The context `[N, h, c]`, zeros where a token has nothing to attend to.
    """
    seed, dropout_p = new_seed(dropout_p), float(dropout_p)
    embedding = 0 if spans is not None else 1 if embedded is None else 2
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    case = _Case(layout, exists, spans, radius, embedding, scale, dropout_p, seed)
    return _CandidateAttention.apply(query, key_value, embedded, node, value_bias, role_bias, case)
