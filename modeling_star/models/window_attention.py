"""
Attention of each token to its neighbourhood, in time and memory that grow with the length, for any model.

A text is cut into blocks of queries. A block attends to its own keys and to those on either side, cut out as a view:

    keys      . . . . [ left |   block   | right ] . . .
    queries                  [   block   ]

`torch.nn.functional.scaled_dot_product_attention` computes many blocks at once, under a mask of B x W for each, so
that no tensor has n x n entries. Tokens that everybody sees ([CLS]) are further columns of every block, and attend to
all tokens in a product of their own.

Axes: b batch  n tokens  h heads  c width of a head  k blocks of a text  B queries in a block
      W keys of a block, left + B + right  g tokens that everybody sees  L rows, b * k * B
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import pad, scaled_dot_product_attention

from .token_layout import is_traced


# Rows that are computed at once without gradients. Keys beside those that everybody sees are copied, W / B times.
ROWS_AT_ONCE = 2048
# Tokens of a text up to which a GPU computes a dense mask faster than blocks (64x512 on an H200: 0.26 and 1.01 ms).
DENSE_ON_GPU = 1024


class WindowMask(NamedTuple):
    """
    Which tokens attend to which: one for all layers that share it.

    Args:
        left, right: how many tokens a token sees on either side.
        block: B.
        blocks: `[b * k, 1, B, W + g]`, what is added to the scores: 0 or the lowest number.
        real: `[b, n]`, bool: which tokens are no padding; `None` where all are.
        seen: `[b, g]`, indices of the tokens that everybody sees and that see everybody, -1 for none; or `None`.
    """

    left: int
    right: int
    block: int
    blocks: Tensor
    real: Tensor | None
    seen: Tensor | None


def ends_of(real: Tensor, last: bool = False) -> Tensor:
    """The indices of first real tokens, `[b, 1]`, or with `last` ones `[b, 2]`, for `seen`; -1 without any."""
    count = real.shape[1]
    first = real.long().argmax(1)
    first = first.masked_fill(~real.any(1), -1)
    if not last:
        return first[:, None]
    end = count - 1 - real.flip(1).long().argmax(1)
    return torch.stack([first, end.masked_fill((end == first) | (first < 0), -1)], dim=1)


def dense_window(
    length: int, left: int, right: int, real: Tensor | None = None, seen: Tensor | None = None, device: Any = None
) -> Tensor:
    """
    The mask of a window as `[b, 1, n, n]`, bool, b = 1 without `real` and `seen`: for short texts, and for a look.
    """
    position = torch.arange(length, device=device)
    offset = position - position[:, None]
    allowed = ((offset >= -left) & (offset <= right))[None]
    if seen is not None:
        is_seen = (seen[..., None] == position).any(1)
        allowed = allowed | is_seen[:, None] | is_seen[..., None]
    if real is not None:
        allowed = allowed & real[:, None]
    return allowed[:, None]


def lowest(dtype: torch.dtype) -> float:
    """
    What is added to a score to take it out. It is not -inf: a softmax over nothing, at padding, would be NaN. bfloat16
    holds that of float32.
    """
    return max(torch.finfo(dtype).min, -1e30)


def block_size(length: int, left: int, right: int) -> int | None:
    """
    B, queries in a block; `None` where a text is so short that a dense mask of it is as small. A wide block computes
    scores that nobody reads, a narrow one has more keys than queries.
    """
    reach = left + right
    block = 32 if reach <= 64 else 64 if reach < 256 else 128
    if block + reach >= length:
        return None
    count = -(-length // block)
    return min(-(-length // count) + 7 & ~7, length)


def window_mask(
    length: int,
    left: int,
    right: int,
    real: Tensor | None = None,
    seen: Tensor | None = None,
    *,
    batch: int = 1,
    dtype: torch.dtype = torch.float32,
    device: Any = None,
) -> WindowMask | Tensor:
    """
    What `window_attention` takes, made once for all layers: blocks for a long text, `dense_window` for a short one;
    left, right, real and seen as in `WindowMask`, batch, dtype and device those of the queries.
    """
    left, right = min(left, length), min(right, length)
    block = block_size(length, left, right)
    on_gpu = device is not None and torch.device(device).type == "cuda"
    if block is None or (on_gpu and length <= DENSE_ON_GPU):
        return dense_window(length, left, right, real, seen, device)
    count = -(-length // block)
    # Columns of a block are numbered by their distance to its first query.
    query = torch.arange(block, device=device)
    column = torch.arange(-left, block + right, device=device)
    offset = column - query[:, None]
    near = (offset >= -left) & (offset <= right)
    position = torch.arange(0, count * block, block, device=device)[:, None] + column
    inside = (position >= 0) & (position < length)
    candidate = inside[None].expand(batch, -1, -1)
    if real is not None or seen is not None:
        clamped = position.clamp(0, length - 1)
        if real is not None:
            candidate = candidate & real[:, clamped]
        if seen is not None:
            # Further columns hold them.
            candidate = candidate & ~(seen[..., None, None] == position).any(1)
    allowed = candidate[:, :, None] & near
    if seen is not None:
        further = (seen >= 0)[:, None, None].expand(-1, count, block, -1)
        allowed = torch.cat([allowed, further], dim=-1)
    blocks = torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, lowest(dtype))
    return WindowMask(left, right, block, blocks.flatten(0, 1)[:, None], real, seen)


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: WindowMask | Tensor,
    *,
    dropout_p: float = 0.0,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """
    Each token attends to the tokens around it, and to those that everybody sees.

    Args:
        query: `[b, h, n, c]`.
        key, value: of the same shape, or with fewer heads, of which each serves several of the query's.
        mask: made by `window_mask` for tensors of these sizes.
        dropout_p: probability with which a weight is dropped; 0 outside training.
        scale: of the scores; c^-0.5 where it is `None`.
        softcap: scores s become `softcap * tanh(s / softcap)`; `None` leaves them.
        sinks: `[h]`, the score of one more candidate, whose value is 0; or `None`.

    Returns:
        `[b, h, n, c]`; at padding any finite numbers.
    """
    options: dict[str, Any] = {"dropout_p": dropout_p, "scale": scale, "softcap": softcap}
    if isinstance(mask, Tensor):
        return attend(query, key, value, mask, sinks=sinks, **options)
    length = query.shape[2]
    blocks_of_text = -(-length // mask.block)
    if len(key) * key.shape[2] != len(query) * length or len(mask.blocks) != len(query) * blocks_of_text:
        raise ValueError(
            f"query and key have shapes {list(query.shape)} and {list(key.shape)}, and the mask was made for other "
            "sizes: window_mask(query.shape[2], left, right, batch=len(query))."
        )
    query_rows, key_rows, value_rows = (_as_rows(states, mask.block) for states in (query, key, value))
    further = None if mask.seen is None else (_at(key, mask.seen), _at(value, mask.seen))
    count = len(mask.blocks)
    # With gradients one product is faster, and a graph has no loop.
    size = count if is_traced() or torch.is_grad_enabled() else max(ROWS_AT_ONCE // mask.block, 1)
    # A block at the end of a text reaches into the next one, where 0 times what is no number would be no number. Rows
    # that it must not read are cut out only then, as this doubles the time; a graph, and a GPU, cannot ask.
    apart = blocks_of_text < count
    if apart and not is_traced() and key.device.type == "cpu":
        apart = not (key.detach().sum() + value.detach().sum()).isfinite()
    rows = (query_rows, key_rows, value_rows, further, mask, blocks_of_text, apart)
    options["sinks"] = sinks
    context = torch.cat(
        [_attend_in_blocks(*rows, range(start, min(start + size, count)), options) for start in range(0, count, size)]
    )
    context = context.unflatten(0, (query.shape[0], -1))[:, :length].transpose(1, 2)
    if mask.seen is None:
        return context
    over_all = attend(
        _at(query, mask.seen),
        key,
        value,
        None if mask.real is None else mask.real[:, None, None],
        **options,
    )
    position = torch.arange(length, device=query.device)
    for number in range(mask.seen.shape[1]):
        is_seen = mask.seen[:, number, None] == position
        context = torch.where(is_seen[:, None, :, None], over_all[:, :, number, None], context)
    return context


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    dropout_p: float = 0.0,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """
    Attention under a dense mask, bool or added to the scores, that broadcasts to `[b, h, n, m]`: PyTorch's function
    where it has what is asked for.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    if mask is not None and mask.dtype not in (torch.bool, query.dtype):  # under autocast
        mask = mask.clamp(min=lowest(query.dtype)).to(query.dtype)
    if softcap is None and sinks is None:
        return scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout_p, scale=scale)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    scores = (query @ key.transpose(-1, -2)) * scale
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    if sinks is not None:
        sink = sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sink], dim=-1)
    weights = nn.functional.dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout_p)
    return (weights if sinks is None else weights[..., :-1]) @ value


def _as_rows(states: Tensor, block: int) -> Tensor:
    """`[b, h, n, c]` to `[L, h, c]`, each text filled up to whole blocks."""
    states = states.transpose(1, 2)
    missing = -states.shape[1] % block
    return (pad(states, (0, 0, 0, 0, 0, missing)) if missing else states).flatten(0, 1)


def _at(states: Tensor, index: Tensor) -> Tensor:
    """States `[b, h, n, c]` at indices `[b, g]`: `[b, h, g, c]`; those of the first token where there is no index."""
    index = index.clamp(min=0)[:, None, :, None].expand(-1, states.shape[1], -1, states.shape[3])
    return states.gather(2, index)


def _attend_in_blocks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    further: tuple[Tensor, Tensor] | None,
    mask: WindowMask,
    blocks_of_text: int,
    apart: bool,
    numbers: range,
    options: dict[str, Any],
) -> Tensor:
    """
    The context `[l, h, c]` of the blocks `numbers` of a batch, of rows `[L, h, c]`, `further` keys and values of the
    tokens that everybody sees, `[b, h, g, c]`, and its mask; `apart`: keys and values of other texts become zeros.
    """
    width = mask.left + mask.block + mask.right
    start, stop = numbers.start * mask.block - mask.left, numbers.stop * mask.block + mask.right
    around = slice(max(start, 0), min(stop, len(query)))
    missing = (0, 0, 0, 0, around.start - start, stop - around.stop)
    keys, values = (pad(rows[around], missing).unfold(0, width, mask.block).transpose(2, 3) for rows in (key, value))
    block = torch.arange(numbers.start, numbers.stop, device=query.device)
    if apart:
        first = block % blocks_of_text * mask.block
        position = first[:, None] + torch.arange(-mask.left, mask.block + mask.right, device=query.device)
        outside = ((position < 0) | (position >= blocks_of_text * mask.block))[:, None, :, None]
        keys, values = keys.masked_fill(outside, 0), values.masked_fill(outside, 0)
    if further is not None:
        text = block // blocks_of_text
        keys, values = (torch.cat([own, seen[text]], dim=2) for own, seen in zip((keys, values), further, strict=True))
    queries = query[numbers.start * mask.block : numbers.stop * mask.block]
    queries = queries.unflatten(0, (-1, mask.block)).transpose(1, 2)
    context = attend(queries, keys, values, mask.blocks[numbers.start : numbers.stop], **options)
    return context.transpose(1, 2).flatten(0, 1)
