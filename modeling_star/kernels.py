"""
The attentions of attention.py as Triton kernels, forward and backward, over packed tokens.

Only `attention.choose_kernels` imports this file, where its kernels are to be used.

What all of them share:

- Neighbours, relays and nodes are read where they lie, through indices: the copies `[N, d]` that PyTorch's operations
  would gather never exist.
- Inputs are float16, bfloat16 or float32, sums float32. float64 works in Triton's interpreter, for the tests.
- Nothing is added atomically, so that the same input gives the same bits. What a sequence gets from its tokens is
  summed in two stages: over chunks of its tokens (`TokenLayout.chunks`), each by a program of its own however long the
  sequence, then over the chunks. What a token gets from its neighbours is gathered: a ring and a band are symmetric.
- Backward computes weights again from queries and keys: reading them costs what reading stored weights would.
- Dropout draws from a counter (Philox), by token, head and role: backward draws the same again.

Axes: N flat tokens  b sequences  d width  h heads  c width of a head  w places of the band  r roles  p chunks
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .tokens import TokenLayout


try:
    import triton
    import triton.language as tl
except ImportError as error:
    # In a block of its own: transformers demands of a user whatever a shipped file imports outside of one.
    raise ImportError("The kernels need Triton: pip install triton.") from error


# ------ a token over its candidates: forward, and what backward starts with
#
# One kernel serves the ring and the band. Both have local candidates, which are sums over places around the token; the
# ring's are one place each, closed at the ends. To these come at most two more: the token's embedding, and one node of
# its sequence, the relay of the Star-Transformer or the global node of the BiG-Transformer.
#
# A program computes some tokens for one head, [tokens, c] at a time. Heads change fastest from program to program: those
# that run side by side read the same rows, of which a head needs a piece of only c numbers.


@triton.jit
def _load(pointer, rows, there, ROW: tl.constexpr, start, columns, WIDTH: tl.constexpr, TYPE: tl.constexpr):
    """WIDTH numbers of each row, from `start` on, in a memory of rows of ROW numbers; zeros where there is no row."""
    at = pointer + rows[:, None] * ROW + start + columns[None, :]
    return tl.load(at, mask=there[:, None] & (columns < WIDTH)[None, :], other=0.0).to(TYPE)


@triton.jit
def _store(pointer, rows, there, ROW: tl.constexpr, start, columns, WIDTH: tl.constexpr, tile):
    """Counterpart of `_load`."""
    at = pointer + rows[:, None] * ROW + start + columns[None, :]
    tl.store(at, tile.to(pointer.dtype.element_ty), mask=there[:, None] & (columns < WIDTH)[None, :])


@triton.jit
def _rows_at(tokens, real, neighbours, count, place, REACH: tl.constexpr):
    """Which token stands so many places after each, and whether there is one: on a ring always, on a band in 0..N."""
    if neighbours is None:
        rows = tokens + place
        there = real & (rows >= 0) & (rows < count)
    else:
        rows = tl.load(neighbours + (place + REACH) * count.to(tl.int64) + tokens, mask=real, other=0)
        there = real
    return rows, there


@triton.jit
def _span(spans, roles, index, ROLES: tl.constexpr, TYPE: tl.constexpr):
    """Which roles the place of that index is part of, as 0 and 1, [1, roles]: on a ring each place is a role."""
    if spans is None:
        part = (roles == index).to(TYPE)
    else:
        part = tl.load(spans + index * ROLES + roles, mask=roles < ROLES, other=0.0).to(TYPE)
    return part[None, :]


@triton.jit
def _kept(seed, offsets, dropout_p):
    """1 / (1 - p) where a weight stays and 0 where it is dropped, the same whenever asked for the same offset."""
    return tl.where(tl.rand(seed, offsets) < dropout_p, 0.0, 1.0 / (1.0 - dropout_p))


@triton.jit
def _kept_candidates(seed, tokens, head, roles, dropout_p, HEADS: tl.constexpr, ROLE_BLOCK: tl.constexpr):
    """`_kept` of the local roles, the embedding and the node."""
    offsets = (tokens * HEADS + head) * (ROLE_BLOCK + 2)
    local = _kept(seed, offsets[:, None] + roles[None, :], dropout_p)
    return local, _kept(seed, offsets + ROLE_BLOCK, dropout_p), _kept(seed, offsets + ROLE_BLOCK + 1, dropout_p)


@triton.jit
def _weights(
    query,
    key_value,
    embedded,
    node,
    role_bias,
    exists,
    spans,
    neighbours,
    node_rows,
    tokens,
    real,
    head,
    count,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    REACH: tl.constexpr,
    UNROLL: tl.constexpr,
    ROLES: tl.constexpr,
    EMBEDDING: tl.constexpr,
    TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    ROLE_BLOCK: tl.constexpr,
):
    """Softmax over the candidates: of the local roles [tokens, roles], the embedding and the node [tokens] each."""
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    scores = tl.zeros([TOKEN_BLOCK, ROLE_BLOCK], dtype=TYPE)
    own = tl.zeros([TOKEN_BLOCK], dtype=TYPE)
    for place in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, neighbours, count, place, REACH)
        key = _load(key_value, rows, there, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        score = tl.sum(query * key, axis=1) * SCALE
        # q . (k_1 + k_2) = q . k_1 + q . k_2: no sum of keys is formed.
        scores += score[:, None] * _span(spans, roles, place + REACH, ROLES, TYPE)
        own += tl.where(place == 0, score, 0.0)
    embedding_score = tl.full([TOKEN_BLOCK], float("-inf"), dtype=TYPE)
    if EMBEDDING == 1:
        embedding_score = own
    if EMBEDDING == 2:
        key = _load(embedded, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        embedding_score = tl.sum(query * key, axis=1) * SCALE
    node_score = tl.full([TOKEN_BLOCK], float("-inf"), dtype=TYPE)
    if node is not None:
        key = _load(node, node_rows, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
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
    # A token without candidates, and what pads the tile, gets weights of 0 in place of 0 / 0.
    highest = tl.where(highest == float("-inf"), 0.0, highest)
    local = tl.exp(scores - highest[:, None])
    embedding = tl.exp(embedding_score - highest)
    of_node = tl.exp(node_score - highest)
    total = tl.sum(local, axis=1) + embedding + of_node
    share = 1.0 / tl.where(total == 0.0, 1.0, total)
    return local * share[:, None], embedding * share, of_node * share


@triton.jit(do_not_specialize=["count", "seed"])
def _candidates_forward(
    query_pointer,
    key_value,
    embedded,
    node,
    value_bias,
    role_bias,
    exists,
    spans,
    neighbours,
    sequence,
    context_pointer,
    count,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    REACH: tl.constexpr,
    UNROLL: tl.constexpr,
    ROLES: tl.constexpr,
    EMBEDDING: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    ROLE_BLOCK: tl.constexpr,
):
    """What `ring_attention` and `band_attention` return."""
    head = tl.program_id(0) % HEADS
    tokens = (tl.program_id(0) // HEADS).to(tl.int64) * TOKEN_BLOCK + tl.arange(0, TOKEN_BLOCK)
    real = tokens < count
    columns = tl.arange(0, WIDTH_BLOCK)
    roles = tl.arange(0, ROLE_BLOCK)
    node_rows = tokens
    if node is not None:
        node_rows = tl.load(sequence + tokens, mask=real, other=0)
    query = _load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    local, embedding, of_node = _weights(
        query, key_value, embedded, node, role_bias, exists, spans, neighbours, node_rows, tokens, real, head, count,
        HEADS, WIDTH, SCALE, REACH, UNROLL, ROLES, EMBEDDING, TYPE, TOKEN_BLOCK, WIDTH_BLOCK, ROLE_BLOCK,
    )  # fmt: skip
    if DROPOUT:
        kept_local, kept_embedding, kept_node = _kept_candidates(
            seed, tokens, head, roles, dropout_p, HEADS, ROLE_BLOCK
        )
        local *= kept_local
        embedding *= kept_embedding
        of_node *= kept_node
    total = tl.sum(local, axis=1) + embedding + of_node
    bias = tl.load(value_bias + head * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
    context = total[:, None] * bias[None, :]
    for place in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, neighbours, count, place, REACH)
        value = _load(key_value, rows, there, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        # Each token that a candidate is made of takes the candidate's weight.
        weight = tl.sum(local * _span(spans, roles, place + REACH, ROLES, TYPE), axis=1)
        if EMBEDDING == 1:
            weight += tl.where(place == 0, embedding, 0.0)
        context += weight[:, None] * value
    if EMBEDDING == 2:
        value = _load(embedded, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        context += embedding[:, None] * value
    if node is not None:
        value = _load(node, node_rows, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        context += of_node[:, None] * value
    _store(context_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, context)


@triton.jit(do_not_specialize=["count", "seed"])
def _candidates_backward(
    query_pointer,
    key_value,
    embedded,
    node,
    value_bias,
    role_bias,
    exists,
    spans,
    neighbours,
    sequence,
    context_grad,
    query_grad,
    embedded_grad,
    role_bias_grads,
    scratch,
    count,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    SCALE: tl.constexpr,
    REACH: tl.constexpr,
    UNROLL: tl.constexpr,
    ROLES: tl.constexpr,
    EMBEDDING: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
    ROLE_BLOCK: tl.constexpr,
):
    """
    Gradients of what belongs to one token: its query, its embedding's key and value.

    For `_gather_gradients` it leaves in `scratch` [2 w + 3, h, N]: the gradients of the scores at each place of the
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
    query = _load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    grad = _load(context_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
    local, embedding, of_node = _weights(
        query, key_value, embedded, node, role_bias, exists, spans, neighbours, node_rows, tokens, real, head, count,
        HEADS, WIDTH, SCALE, REACH, UNROLL, ROLES, EMBEDDING, TYPE, TOKEN_BLOCK, WIDTH_BLOCK, ROLE_BLOCK,
    )  # fmt: skip

    # Of the weights: context = sum of weight (value + bias).
    bias = tl.load(value_bias + head * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
    of_bias = tl.sum(grad * bias[None, :], axis=1)
    local_grad = tl.zeros([TOKEN_BLOCK, ROLE_BLOCK], dtype=TYPE) + of_bias[:, None]
    embedding_grad = of_bias
    node_grad = of_bias
    for place in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        rows, there = _rows_at(tokens, real, neighbours, count, place, REACH)
        value = _load(key_value, rows, there, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        of_place = tl.sum(grad * value, axis=1)
        local_grad += of_place[:, None] * _span(spans, roles, place + REACH, ROLES, TYPE)
        if EMBEDDING == 1:
            embedding_grad += tl.where(place == 0, of_place, 0.0)
    if EMBEDDING == 2:
        value = _load(embedded, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        embedding_grad += tl.sum(grad * value, axis=1)
    if node is not None:
        value = _load(node, node_rows, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, TYPE)
        node_grad += tl.sum(grad * value, axis=1)
    dropped_local = local
    dropped_embedding = embedding
    dropped_node = of_node
    if DROPOUT:
        kept_local, kept_embedding, kept_node = _kept_candidates(
            seed, tokens, head, roles, dropout_p, HEADS, ROLE_BLOCK
        )
        local_grad *= kept_local
        embedding_grad *= kept_embedding
        node_grad *= kept_node
        dropped_local = local * kept_local
        dropped_embedding = embedding * kept_embedding
        dropped_node = of_node * kept_node

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
    PLACES: tl.constexpr = 2 * REACH + 1
    slot = count.to(tl.int64) * HEADS
    mine = scratch + head.to(tl.int64) * count + tokens
    query_sum = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
    for place in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
        span = _span(spans, roles, place + REACH, ROLES, TYPE)
        score_grad = tl.sum(local_grad * span, axis=1)
        weight = tl.sum(dropped_local * span, axis=1)
        if EMBEDDING == 1:
            score_grad += tl.where(place == 0, embedding_grad, 0.0)
            weight += tl.where(place == 0, dropped_embedding, 0.0)
        rows, there = _rows_at(tokens, real, neighbours, count, place, REACH)
        key = _load(key_value, rows, there, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += score_grad[:, None] * key
        tl.store(mine + (place + REACH) * slot, score_grad * SCALE, mask=real)
        tl.store(mine + (place + REACH + PLACES + 1) * slot, weight, mask=real)
    if EMBEDDING == 2:
        key = _load(embedded, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += embedding_grad[:, None] * key
        key_grad = (embedding_grad * SCALE)[:, None] * query
        value_grad = dropped_embedding[:, None] * grad
        _store(embedded_grad, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, key_grad)
        _store(embedded_grad, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, value_grad)
    if node is not None:
        key = _load(node, node_rows, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        query_sum += node_grad[:, None] * key
        tl.store(mine + PLACES * slot, node_grad * SCALE, mask=real)
        tl.store(mine + (2 * PLACES + 1) * slot, dropped_node, mask=real)
    total = tl.sum(dropped_local, axis=1) + dropped_embedding + dropped_node
    tl.store(mine + (2 * PLACES + 2) * slot, total, mask=real)
    _store(query_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, query_sum * SCALE)


@triton.jit(do_not_specialize=["count"])
def _gather_gradients(
    query_pointer,
    context_grad,
    scratch,
    neighbours,
    chunk_start,
    chunk_stop,
    key_value_grad,
    partial,
    count,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    REACH: tl.constexpr,
    UNROLL: tl.constexpr,
    HAS_NODE: tl.constexpr,
    TYPE: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """
    Gradients of each token's key and value, and of what a sequence or all have in common, summed over a chunk.

    The tokens that have this one PLACE places after them stand PLACE places before it, on the ring too, where they are
    its right neighbour for the left place and its left one for the right. Each collects, and nothing is scattered.
    `partial` [p, 3, h, c] are the sums of the node's key and value and of the value bias.
    """
    head = tl.program_id(0) % HEADS
    chunk = tl.program_id(0) // HEADS
    start = tl.load(chunk_start + chunk)
    stop = tl.load(chunk_stop + chunk)
    columns = tl.arange(0, WIDTH_BLOCK)
    PLACES: tl.constexpr = 2 * REACH + 1
    slot = count.to(tl.int64) * HEADS
    mine = scratch + head.to(tl.int64) * count
    node_key = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    node_value = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    bias = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        own_query = _load(query_pointer, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        own_grad = _load(context_grad, tokens, real, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
        key = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
        value = tl.zeros([TOKEN_BLOCK, WIDTH_BLOCK], dtype=TYPE)
        for place in tl.range(-REACH, REACH + 1, loop_unroll_factor=UNROLL):
            rows, there = _rows_at(tokens, real, neighbours, count, -place, REACH)
            query = _load(query_pointer, rows, there, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
            grad = _load(context_grad, rows, there, HEADS * WIDTH, head * WIDTH, columns, WIDTH, TYPE)
            # Zero where the place is another sequence's: there is no candidate.
            score_grad = tl.load(mine + (place + REACH) * slot + rows, mask=there, other=0.0)
            weight = tl.load(mine + (place + REACH + PLACES + 1) * slot + rows, mask=there, other=0.0)
            key += score_grad[:, None] * query
            value += weight[:, None] * grad
        _store(key_value_grad, tokens, real, 2 * HEADS * WIDTH, head * WIDTH, columns, WIDTH, key)
        _store(key_value_grad, tokens, real, 2 * HEADS * WIDTH, (HEADS + head) * WIDTH, columns, WIDTH, value)
        total = tl.load(mine + (2 * PLACES + 2) * slot + tokens, mask=real, other=0.0)
        bias += tl.sum(total[:, None] * own_grad, axis=0)
        if HAS_NODE:
            score_grad = tl.load(mine + PLACES * slot + tokens, mask=real, other=0.0)
            weight = tl.load(mine + (2 * PLACES + 1) * slot + tokens, mask=real, other=0.0)
            node_key += tl.sum(score_grad[:, None] * own_query, axis=0)
            node_value += tl.sum(weight[:, None] * own_grad, axis=0)
    sums = partial + (chunk.to(tl.int64) * 3 * HEADS + head) * WIDTH + columns
    tl.store(sums, node_key, mask=columns < WIDTH)
    tl.store(sums + HEADS * WIDTH, node_value, mask=columns < WIDTH)
    tl.store(sums + 2 * HEADS * WIDTH, bias, mask=columns < WIDTH)


@triton.jit
def _sum_chunks(
    partial,
    start_pointer,
    first_chunk,
    out,
    ROW: tl.constexpr,
    WIDTH: tl.constexpr,
    TYPE: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """Per sequence the sum over its chunks of the first WIDTH of ROW numbers, and of `start` where that is given."""
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    sequence = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    start = tl.load(first_chunk + sequence)
    stop = tl.load(first_chunk + sequence + 1)
    total = tl.zeros([WIDTH_BLOCK], dtype=TYPE)
    if start_pointer is not None:
        total += tl.load(start_pointer + sequence * WIDTH + columns, mask=columns < WIDTH, other=0.0).to(TYPE)
    for first in range(start, stop, CHUNK_BLOCK):
        chunks = first + tl.arange(0, CHUNK_BLOCK).to(tl.int64)
        total += tl.sum(_load(partial, chunks, chunks < stop, ROW, 0, columns, WIDTH, TYPE), axis=0)
    tl.store(out + sequence * WIDTH + columns, total.to(out.dtype.element_ty), mask=columns < WIDTH)


# ------ the relay over its sequence
#
# All heads of a sequence look at the same tokens, which serve as keys and as values. So a program takes a chunk of
# tokens for all heads at once, as small matrix products, and tokens are read once for the scores and once for the sums.
# Splitting the width as well in the second keeps tiles small whatever d is, and needs the softmax to be finished in
# between: its highest score and its sum, of each chunk and then of the sequence, are few numbers.


@triton.jit
def _load_turned(pointer, rows, there, ROW: tl.constexpr, columns, WIDTH: tl.constexpr, TYPE: tl.constexpr):
    """`_load`, [columns, rows]."""
    at = pointer + rows[None, :] * ROW + columns[:, None]
    return tl.load(at, mask=there[None, :] & (columns < WIDTH)[:, None], other=0.0).to(TYPE)


@triton.jit(do_not_specialize=["seed"])
def _relay_scores(
    query_pointer,
    tokens_pointer,
    chunk_start,
    chunk_stop,
    chunk_sequence,
    scores_pointer,
    statistics,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    OPERAND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """
    Scores [N, h], and of each chunk `statistics` [p, 3, h]: its highest score m, the sum of exp(score - m), and that
    sum after dropout. The softmax is computed on the go: m grows, and the sums so far are scaled down to it.
    """
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(chunk_start + chunk)
    stop = tl.load(chunk_stop + chunk)
    sequence = tl.load(chunk_sequence + chunk)
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
            states = _load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
            query = _load_turned(
                query_pointer + sequence * HEADS * WIDTH, heads, heads < HEADS, WIDTH, columns, WIDTH, OPERAND
            )
            scores = tl.dot(states, query, scores, input_precision="ieee", out_dtype=TYPE)
        _store(scores_pointer, tokens, real, HEADS, 0, heads, HEADS, scores)
        scores = tl.where(real[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        exponentials = tl.exp(scores - higher[None, :])
        shrink = tl.exp(highest - higher)
        total = total * shrink + tl.sum(exponentials, axis=0)
        if DROPOUT:
            kept = _kept(seed, tokens[:, None] * HEADS + heads[None, :], dropout_p)
            dropped = dropped * shrink + tl.sum(exponentials * kept, axis=0)
        highest = higher
    mine = statistics + chunk * 3 * HEADS + heads
    tl.store(mine, highest, mask=heads < HEADS)
    tl.store(mine + HEADS, total, mask=heads < HEADS)
    tl.store(mine + 2 * HEADS, dropped, mask=heads < HEADS)


@triton.jit(do_not_specialize=["count", "seed"])
def _relay_softmax(
    statistics,
    own_scores,
    first_chunk,
    log_sums,
    own_weights,
    totals,
    count,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    CHUNK_BLOCK: tl.constexpr,
):
    """
    The softmax of a sequence from those of its chunks and the relay's own score: log of the sum of exp(score), the
    relay's own weight, and the sum of all weights, the last two after dropout; [b, h] each.
    """
    sequence = tl.program_id(0).to(tl.int64)
    start = tl.load(first_chunk + sequence)
    stop = tl.load(first_chunk + sequence + 1)
    heads = tl.arange(0, HEAD_BLOCK)
    at = sequence * HEADS + heads
    own = tl.load(own_scores + at, mask=heads < HEADS, other=0.0)
    highest = own
    total = tl.full([HEAD_BLOCK], 1.0, dtype=TYPE)
    dropped = tl.zeros([HEAD_BLOCK], dtype=TYPE)
    for first in range(start, stop, CHUNK_BLOCK):
        chunks = first + tl.arange(0, CHUNK_BLOCK).to(tl.int64)
        there = chunks < stop
        scores = _load(statistics, chunks, there, 3 * HEADS, 0, heads, HEADS, TYPE)
        scores = tl.where(there[:, None], scores, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=0))
        shares = tl.exp(scores - higher[None, :])
        shrink = tl.exp(highest - higher)
        sums = _load(statistics, chunks, there, 3 * HEADS, HEADS, heads, HEADS, TYPE)
        total = total * shrink + tl.sum(shares * sums, axis=0)
        if DROPOUT:
            sums = _load(statistics, chunks, there, 3 * HEADS, 2 * HEADS, heads, HEADS, TYPE)
            dropped = dropped * shrink + tl.sum(shares * sums, axis=0)
        highest = higher
    log_sum = highest + tl.log(total)
    own_weight = tl.exp(own - log_sum)
    sum_of_weights = tl.full([HEAD_BLOCK], 1.0, dtype=TYPE)
    if DROPOUT:
        # After the tokens', which count from 0.
        own_weight *= _kept(seed, (count + sequence) * HEADS + heads, dropout_p)
        sum_of_weights = own_weight + dropped / total
    tl.store(log_sums + at, log_sum, mask=heads < HEADS)
    tl.store(own_weights + at, own_weight, mask=heads < HEADS)
    tl.store(totals + at, sum_of_weights, mask=heads < HEADS)


@triton.jit(do_not_specialize=["seed"])
def _relay_mix(
    tokens_pointer,
    scores_pointer,
    statistics,
    log_sums,
    chunk_start,
    chunk_stop,
    chunk_sequence,
    partial,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    OPERAND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """Sum of a chunk's tokens by their weights, for each head and some of the columns: `partial` [p, h, d]."""
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    chunk = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    start = tl.load(chunk_start + chunk)
    stop = tl.load(chunk_stop + chunk)
    sequence = tl.load(chunk_sequence + chunk)
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
            weights *= _kept(seed, tokens[None, :] * HEADS + heads[:, None], dropout_p)
        states = _load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
        mixed = tl.dot(weights.to(OPERAND), states, mixed, input_precision="ieee", out_dtype=TYPE)
    mixed *= tl.exp(highest - log_sum)[:, None]
    _store(partial + chunk * HEADS * WIDTH, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, mixed)


@triton.jit(do_not_specialize=["seed"])
def _relay_backward_weights(
    query_pointer,
    tokens_pointer,
    mixed_grad,
    total_grad,
    means,
    log_sums,
    chunk_start,
    chunk_stop,
    chunk_sequence,
    weights_pointer,
    score_grads,
    seed,
    dropout_p,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    DROPOUT: tl.constexpr,
    TYPE: tl.constexpr,
    OPERAND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """The weights after dropout and the gradients of the scores, [N, h] each."""
    chunk = tl.program_id(0).to(tl.int64)
    start = tl.load(chunk_start + chunk)
    stop = tl.load(chunk_stop + chunk)
    sequence = tl.load(chunk_sequence + chunk)
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
            states = _load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
            query = _load_turned(
                query_pointer + sequence * HEADS * WIDTH, heads, heads < HEADS, WIDTH, columns, WIDTH, OPERAND
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
            kept = _kept(seed, tokens[:, None] * HEADS + heads[None, :], dropout_p)
            dropped = weights * kept
            grads *= kept
        _store(weights_pointer, tokens, real, HEADS, 0, heads, HEADS, dropped)
        _store(score_grads, tokens, real, HEADS, 0, heads, HEADS, weights * (grads - mean[None, :]))


@triton.jit
def _relay_backward_mix(
    query_pointer,
    tokens_pointer,
    mixed_grad,
    weights_pointer,
    score_grads,
    chunk_start,
    chunk_stop,
    chunk_sequence,
    tokens_grad,
    partial,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    TYPE: tl.constexpr,
    OPERAND: tl.constexpr,
    HEAD_BLOCK: tl.constexpr,
    TOKEN_BLOCK: tl.constexpr,
    WIDTH_BLOCK: tl.constexpr,
):
    """Some columns of the gradients of a chunk's tokens, and of its share in that of the query: `partial` [p, h, d]."""
    blocks = tl.cdiv(WIDTH, WIDTH_BLOCK)
    chunk = (tl.program_id(0) // blocks).to(tl.int64)
    columns = (tl.program_id(0) % blocks) * WIDTH_BLOCK + tl.arange(0, WIDTH_BLOCK)
    start = tl.load(chunk_start + chunk)
    stop = tl.load(chunk_stop + chunk)
    sequence = tl.load(chunk_sequence + chunk)
    heads = tl.arange(0, HEAD_BLOCK)
    of_sequence = sequence * HEADS * WIDTH
    query = _load(query_pointer + of_sequence, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, OPERAND)
    grad = _load(mixed_grad + of_sequence, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, OPERAND)
    query_sum = tl.zeros([HEAD_BLOCK, WIDTH_BLOCK], dtype=TYPE)
    for first in range(start, stop, TOKEN_BLOCK):
        tokens = first + tl.arange(0, TOKEN_BLOCK).to(tl.int64)
        real = tokens < stop
        weights = _load(weights_pointer, tokens, real, HEADS, 0, heads, HEADS, OPERAND)
        of_scores = _load(score_grads, tokens, real, HEADS, 0, heads, HEADS, OPERAND)
        states = _load(tokens_pointer, tokens, real, WIDTH, 0, columns, WIDTH, OPERAND)
        out = tl.dot(weights, grad, input_precision="ieee", out_dtype=TYPE)
        out = tl.dot(of_scores, query, out, input_precision="ieee", out_dtype=TYPE)
        _store(tokens_grad, tokens, real, WIDTH, 0, columns, WIDTH, out)
        query_sum = tl.dot(tl.trans(of_scores), states, query_sum, input_precision="ieee", out_dtype=TYPE)
    _store(partial + chunk * HEADS * WIDTH, heads, heads < HEADS, WIDTH, 0, columns, WIDTH, query_sum)


# ------ launching them

# Under TRITON_INTERPRET=1 the kernels run in Python, on a CPU too.
INTERPRETED = not isinstance(_sum_chunks, triton.JITFunction)
# Numbers in the tiles [tokens, c] of one program, of which it holds a few in registers at a time.
TILE = 1024
CHUNKS_AT_ONCE = 32
TYPES = {torch.float16: tl.float16, torch.bfloat16: tl.bfloat16, torch.float32: tl.float32, torch.float64: tl.float64}


def _sum_type(x: Tensor) -> torch.dtype:
    """What sums over numbers like these are held in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _new_seed(dropout_p: float) -> int:
    """
    Where dropout starts to draw. It comes from the generator of the CPU, so that nothing waits for the GPU, and both
    torch.manual_seed and gradient checkpointing hold for it.
    """
    return int(torch.randint(2**31 - 1, (), device="cpu")) if dropout_p > 0 else 0


def _launch(kernel: Any, programs: int, *arguments: Any, **constants: Any) -> None:
    """Run a kernel where its first argument lies, which need not be the current GPU."""
    with torch.cuda.device_of(arguments[0]):
        kernel[(programs,)](*arguments, **constants)


def _summed_over_chunks(partial: Tensor, start: Tensor | None, layout: TokenLayout, out: Tensor) -> Tensor:
    """`out` `[b, ...]`: for each sequence the sum of its chunks' first numbers in `partial` `[p, ...]`, and `start`."""
    width = out[0].numel()
    constants = {"CHUNK_BLOCK": CHUNKS_AT_ONCE, "WIDTH_BLOCK": min(128, triton.next_power_of_2(width))}
    programs = len(out) * triton.cdiv(width, constants["WIDTH_BLOCK"])
    constants |= {"ROW": partial[0].numel(), "WIDTH": width, "TYPE": TYPES[partial.dtype]}
    _launch(_sum_chunks, programs, partial, start, layout.chunks.first, out, **constants)
    return out


@dataclass(frozen=True)
class _Case:
    """
    What `_CandidateAttention` needs beside tensors that have gradients.

    Args:
        layout: where the tokens lie, packed.
        neighbours: `[w, N]`, which tokens stand around each on a ring; or `None`, where they are counted.
        exists, spans: which sums of the band there are; or `None` on a ring.
        reach: furthest place on either side.
        embedding: 0 if it is no candidate, 1 if its key and value are the token's own, 2 if they are given.
        dropout_p, seed: of the dropout of weights.
    """

    layout: TokenLayout
    neighbours: Tensor | None
    exists: Tensor | None
    spans: Tensor | None
    reach: int
    embedding: int
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
            "UNROLL": min(3, 2 * self.reach + 1),
            "TYPE": TYPES[_sum_type(query)],
            "TOKEN_BLOCK": max(1, min(64, TILE // width_block)),
            "WIDTH_BLOCK": width_block,
        }

    def launch(self, kernel: Any, inputs: list[Tensor | None], outputs: tuple[Tensor | None, ...]) -> None:
        """Run `_candidates_forward` or `_candidates_backward`."""
        query, layout = inputs[0], self.layout
        constants = self.constants(query)
        roles = 2 * self.reach + 1 if self.exists is None else self.exists.shape[1]
        _launch(
            kernel,
            triton.cdiv(len(query), constants["TOKEN_BLOCK"]) * constants["HEADS"],
            *inputs,
            None if self.exists is None else self.exists.contiguous().view(torch.uint8),
            None if self.spans is None else self.spans.to(torch.float32).contiguous(),
            self.neighbours,
            layout.sequence_index,
            *outputs,
            len(query),
            self.seed,
            self.dropout_p,
            **constants,
            SCALE=constants["WIDTH"] ** -0.5,
            ROLES=roles,
            ROLE_BLOCK=triton.next_power_of_2(roles),
            EMBEDDING=self.embedding,
            DROPOUT=self.dropout_p > 0,
        )


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
            case.launch(_candidates_forward, inputs, (context,))
        ctx.save_for_backward(*inputs)
        ctx.case = case
        return context

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, context_grad: Tensor) -> tuple[Tensor | None, ...]:
        case, inputs = ctx.case, list(ctx.saved_tensors)
        query, key_value, embedded, node, value_bias, role_bias = inputs
        if not len(query):
            return (*(None if x is None else torch.zeros_like(x) for x in inputs), None)
        context_grad = context_grad.contiguous()
        grads = [None if x is None else torch.empty_like(x) for x in (query, key_value, embedded, node)]
        constants = case.constants(query)
        count, heads, width = query.shape
        numbers = {"dtype": _sum_type(query), "device": query.device}
        scratch = torch.empty(2 * (2 * case.reach + 1) + 3, heads, count, **numbers)
        role_grads = None
        if role_bias is not None:
            blocks = triton.cdiv(count, constants["TOKEN_BLOCK"])
            role_grads = torch.empty(blocks, *role_bias.shape, **numbers)
        case.launch(_candidates_backward, [*inputs], (context_grad, grads[0], grads[2], role_grads, scratch))
        chunks = case.layout.chunks
        partial = torch.empty(len(chunks.start), 3, heads, width, **numbers)
        _launch(
            _gather_gradients,
            len(chunks.start) * heads,
            query,
            context_grad,
            scratch,
            case.neighbours,
            chunks.start,
            chunks.stop,
            grads[1],
            partial,
            count,
            **constants,
            HAS_NODE=node is not None,
        )
        if node is not None:
            _summed_over_chunks(partial, None, case.layout, grads[3])
        value_bias_grad = partial[:, 2].sum(0).to(value_bias.dtype)
        role_bias_grad = None if role_grads is None else role_grads.sum(0).to(role_bias.dtype)
        return *grads, value_bias_grad, role_bias_grad, None


def ring_attention(
    query: Tensor,
    key_value: Tensor,
    embedded: Tensor | None,
    relay: Tensor | None,
    value_bias: Tensor,
    role_bias: Tensor | None,
    use_ring: bool,
    layout: TokenLayout,
    dropout_p: float,
) -> Tensor:
    """
    `attention.ring_attention` of each token to its left neighbour, itself, its right neighbour, its embedding and its
    sequence's relay, in this order.

    Args:
        query: `[N, h, c]`, not yet scaled.
        key_value: `[N, 2, h, c]`, keys and values, the values without their bias.
        embedded: `[N, 2, h, c]`, those of the embeddings; `None` where they are the same.
        relay: `[b, 2, h, c]`, those of the relays; or `None`.
        value_bias: `[h, c]`.
        role_bias: `[h, r]`; or `None`.
        use_ring: whether the neighbours are candidates.
        layout: where the tokens lie, packed.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[N, h, c]`.
    """
    reach, embedding = 1 if use_ring else 0, 1 if embedded is None else 2
    neighbours = layout.neighbours if use_ring else None
    case = _Case(layout, neighbours, None, None, reach, embedding, dropout_p, _new_seed(dropout_p))
    return _CandidateAttention.apply(query, key_value, embedded, relay, value_bias, role_bias, case)


def band_attention(
    query: Tensor,
    key_value: Tensor,
    node: Tensor | None,
    value_bias: Tensor,
    exists: Tensor,
    spans: Tensor,
    reach: int,
    layout: TokenLayout,
    dropout_p: float,
) -> Tensor:
    """
    `attention.band_attention` of each token to sums of the tokens around it, and to one node of its sequence.

    Args:
        query: `[N, h, c]`, not yet scaled.
        key_value: `[N, 2, h, c]`, keys and values, the values without their bias.
        node: `[b, 2, h, c]`, those of the nodes; or `None`.
        value_bias: `[h, c]`.
        exists, spans, reach: the sums, as `attention.BandCandidates` tells them.
        layout: where the tokens lie, packed.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        The context `[N, h, c]`, zeros where a token has nothing to attend to.
    """
    case = _Case(layout, None, exists, spans, reach, 0, dropout_p, _new_seed(dropout_p))
    return _CandidateAttention.apply(query, key_value, None, node, value_bias, None, case)


class _RelayMix(torch.autograd.Function):
    """See `relay_mix`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, relay: Tensor, tokens: Tensor, layout: TokenLayout, dropout_p: float
    ) -> tuple[Tensor, Tensor]:
        query, relay, tokens = query.contiguous(), relay.contiguous(), tokens.contiguous()
        b, h, d = query.shape
        chunks, seed = layout.chunks, _new_seed(dropout_p)
        numbers = {"dtype": _sum_type(query), "device": query.device}
        constants = _relay_constants(query)
        dropping = {"DROPOUT": dropout_p > 0}
        own_scores = (query.to(numbers["dtype"]) * relay[:, None]).sum(-1)
        scores = torch.empty(len(tokens), h, **numbers)
        statistics = torch.empty(len(chunks.start), 3, h, **numbers)
        log_sums, own_weights, totals = torch.empty(3, b, h, **numbers)
        partial = torch.empty(len(chunks.start), h, d, **numbers)
        places = (chunks.start, chunks.stop, chunks.sequence)
        _launch(
            _relay_scores, len(statistics), query, tokens, *places, scores, statistics, seed, dropout_p,
            **constants, **dropping,
        )  # fmt: skip
        _launch(
            _relay_softmax, b, statistics, own_scores, chunks.first, log_sums, own_weights, totals, len(tokens), seed,
            dropout_p, **dropping, CHUNK_BLOCK=CHUNKS_AT_ONCE,
            **{name: constants[name] for name in ("HEADS", "TYPE", "HEAD_BLOCK")},
        )  # fmt: skip
        _launch(
            _relay_mix, len(statistics) * triton.cdiv(d, constants["WIDTH_BLOCK"]),
            tokens, scores, statistics, log_sums, *places, partial, seed, dropout_p, **constants, **dropping,
        )  # fmt: skip
        start = own_weights[..., None] * relay[:, None]
        mixed = _summed_over_chunks(partial, start, layout, torch.empty_like(partial[:1].expand(b, h, d)))
        ctx.save_for_backward(query, relay, tokens, mixed, totals, own_scores, own_weights, log_sums)
        ctx.layout, ctx.dropout_p, ctx.seed = layout, dropout_p, seed
        return mixed, totals

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, mixed_grad: Tensor, total_grad: Tensor) -> tuple[Tensor | None, ...]:
        query, relay, tokens, mixed, totals, own_scores, own_weights, log_sums = ctx.saved_tensors
        mixed_grad, total_grad = mixed_grad.contiguous(), total_grad.contiguous()
        b, h, d = query.shape
        chunks = ctx.layout.chunks
        constants = _relay_constants(query)
        numbers = {"dtype": mixed.dtype, "device": mixed.device}
        # The mean of the weights' gradients by the weights, as the softmax needs it.
        means = (mixed_grad * mixed).sum(-1) + total_grad * totals
        weights, score_grads = torch.empty(2, len(tokens), h, **numbers)
        tokens_grad = torch.empty_like(tokens)
        partial = torch.empty(len(chunks.start), h, d, **numbers)
        places = (chunks.start, chunks.stop, chunks.sequence)
        _launch(
            _relay_backward_weights, len(partial), query, tokens, mixed_grad, total_grad, means, log_sums, *places,
            weights, score_grads, ctx.seed, ctx.dropout_p, **constants, DROPOUT=ctx.dropout_p > 0,
        )  # fmt: skip
        _launch(
            _relay_backward_mix, len(partial) * triton.cdiv(d, constants["WIDTH_BLOCK"]),
            query, tokens, mixed_grad, weights, score_grads, *places, tokens_grad, partial, **constants,
        )  # fmt: skip
        own_grads = (mixed_grad * relay[:, None]).sum(-1) + total_grad
        # The weight after dropout takes the gradient; the one before it is what the softmax shares out.
        own_score_grads = own_weights * own_grads - (own_scores - log_sums).exp() * means
        start = own_score_grads[..., None] * relay[:, None]
        query_grad = _summed_over_chunks(partial, start, ctx.layout, torch.empty_like(query))
        relay_grad = (own_weights[..., None] * mixed_grad + own_score_grads[..., None] * query).sum(1)
        return query_grad, relay_grad.to(relay.dtype), tokens_grad, None, None


def _relay_constants(query: Tensor) -> dict[str, Any]:
    """The compile-time arguments of the relay's kernels."""
    # The interpreter would multiply the bits of bfloat16.
    operand = torch.float32 if INTERPRETED and query.dtype == torch.bfloat16 else query.dtype
    return {
        "HEADS": query.shape[1],
        "WIDTH": query.shape[2],
        "TYPE": TYPES[_sum_type(query)],
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
    The core of `attention.relay_attention`: softmax over the relay and the tokens of its sequence, and their sum.

    Args:
        query: `[b, h, d]`, W_K^T q, scaled. Products are taken in its type.
        relay: `[b, d]`.
        tokens: `[N, d]`, packed.
        layout: where the tokens lie.
        dropout_p: probability with which a weight is dropped; 0 outside training.

    Returns:
        Relay and tokens by their weights `[b, h, d]`, and the sums of the weights `[b, h]` under dropout; float32, or
        float64 for such.
    """
    mixed, totals = _RelayMix.apply(query, relay, tokens, layout, dropout_p)
    return mixed, totals if dropout_p > 0 else None


def failure_on(device: torch.device) -> Exception | None:
    """Run the smallest of the kernels on a device; what went wrong, or `None`."""
    if device.type == "cuda" and torch.version.cuda and torch.cuda.get_device_capability(device) < (8, 0):
        return RuntimeError("Triton compiles for compute capability 8.0 and higher")
    try:
        partial = torch.tensor([[1.0], [2.0]], device=device)
        first_chunk, out = torch.tensor([0, 2], device=device), partial.new_empty(1, 1)
        constants = {"ROW": 1, "WIDTH": 1, "TYPE": tl.float32, "CHUNK_BLOCK": CHUNKS_AT_ONCE, "WIDTH_BLOCK": 1}
        _launch(_sum_chunks, 1, partial, None, first_chunk, out, **constants)
        if float(out) != 3:
            return ValueError(f"1 + 2 is {float(out)} there")
    except Exception as error:  # whatever Triton raises where a compiler, a driver or a GPU that it knows is missing
        return error
    return None


__all__ = ["band_attention", "failure_on", "relay_mix", "ring_attention"]
