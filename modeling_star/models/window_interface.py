"""
Window attention for the models of transformers: `attn_implementation="star_window"`.

transformers describes a mask by a function of indices, and gives it to whoever makes masks for an implementation of
attention. `visible` reads from such a function how far a token sees. Where that is a window, its layers compute
`window_attention`; everything else is transformers' own, `"sdpa"`.
"""

import inspect
import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    or_masks,
    sliding_window_bidirectional_overlay,
    sliding_window_overlay,
)

from .token_layout import is_traced
from .window_attention import WindowMask, attend, window_attention, window_mask


WINDOW = "star_window"
"""The name of the attention implementation."""

# How far a token sees on either side.
Reach = tuple[float, float]


def register_window_attention() -> str:
    """
    Make `attn_implementation="star_window"` known to transformers.

    A model computes what it computes with `"sdpa"` (with `"eager"` where it has no other); its layers with a sliding
    window take time and memory that grow with the length.

    Returns:
        The name, "star_window".

    Example:

    ```python
    name = register_window_attention()
    model = AutoModel.from_pretrained("answerdotai/ModernBERT-base", attn_implementation=name)
    ```
    """
    AttentionInterface.register(WINDOW, attention_forward)
    AttentionMaskInterface.register(WINDOW, make_mask)
    return WINDOW


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    **kwargs: Any,
) -> WindowMask | Tensor | None:
    """
    The mask of a layer, as `AttentionMaskInterface` asks for it: a `WindowMask` where the tokens of a text see a
    window of it; otherwise what sdpa takes.
    """
    reach = None
    # A graph cannot read functions.
    if q_length == kv_length and isinstance(q_offset, int) and q_offset == kv_offset == 0 and not is_traced():
        reach = visible(mask_function)
    if reach is not None and max(reach) < kv_length:
        real = None if attention_mask is None or attention_mask.all() else attention_mask
        left, right = (int(distance) for distance in reach)
        return window_mask(q_length, left, right, real, batch=batch_size, dtype=dtype, device=device)
    return AttentionMaskInterface()["sdpa"](
        batch_size=batch_size,
        q_length=q_length,
        kv_length=kv_length,
        q_offset=q_offset,
        kv_offset=kv_offset,
        mask_function=mask_function,
        attention_mask=attention_mask,
        device=device,
        dtype=dtype,
        **kwargs,
    )


def attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: WindowMask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attention of a layer, as `AttentionInterface` asks for it: `[b, n, h, c]`, and no weights."""
    if not isinstance(attention_mask, WindowMask) and softcap is None and s_aux is None:
        sdpa = AttentionInterface()["sdpa"]
        options = {"dropout": dropout, "scaling": scaling, "is_causal": is_causal, **kwargs}
        return sdpa(module, query, key, value, attention_mask, **options)
    if kwargs.get("position_bias") is not None or kwargs.get("cache") is not None:
        raise ValueError(
            f'attn_implementation="{WINDOW}" has neither position_bias nor a paged cache, which '
            f'{type(module).__name__} gives it: use attn_implementation="eager".'
        )
    options = {"dropout_p": dropout, "scale": scaling, "softcap": softcap, "sinks": s_aux}
    if isinstance(attention_mask, WindowMask):
        context = window_attention(query, key, value, attention_mask, **options)
    else:
        if attention_mask is None and query.shape[2] > 1 and (module.is_causal if is_causal is None else is_causal):
            shape = (query.shape[2], key.shape[2])
            attention_mask = torch.ones(shape, dtype=torch.bool, device=query.device).tril()
        context = attend(query, key, value, attention_mask, **options)
    return context.transpose(1, 2).contiguous(), None


def visible(mask_function: Callable[..., Any]) -> Reach | None:
    """
    How far a token sees to the left and to the right by a mask function of transformers; `None` where that is not all
    that the function says, or it is not known here.
    """
    code = getattr(mask_function, "__code__", None)
    values = inspect.getclosurevars(mask_function).nonlocals if code is not None else {}
    if code in (_ALL_OF, _ANY_OF):
        parts = [visible(part) for part in values["mask_functions"]]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        # Every part sees the token itself, so that the union has no gap.
        choose = min if code is _ALL_OF else max
        return choose(left for left, _ in known), choose(right for _, right in known)
    return _LEAVES[code](**values) if code in _LEAVES else _of_models(mask_function, values)


def _of_models(mask_function: Callable[..., Any], values: Mapping[str, Any]) -> Reach | None:
    """`visible` of functions that models make for themselves (seen in transformers 5.23); `None` for any other."""
    module = sys.modules.get(mask_function.__module__)
    for model, factory, width, reach in _MODEL_FUNCTIONS:
        if module is not None and module.__name__ == f"transformers.models.{model}.modeling_{model}":
            made = getattr(module, factory, None)
            if made is not None and made(width).__code__ is mask_function.__code__:
                return reach(**values)
    return None


_ALL_OF = and_masks(causal_mask_function).__code__
_ANY_OF = or_masks(causal_mask_function).__code__
_LEAVES: dict[Any, Callable[..., Reach]] = {
    bidirectional_mask_function.__code__: lambda: (math.inf, math.inf),
    causal_mask_function.__code__: lambda: (math.inf, 0),
    sliding_window_overlay(1).__code__: lambda sliding_window: (sliding_window - 1, math.inf),
    sliding_window_bidirectional_overlay(1).__code__: lambda sliding_window: (sliding_window, sliding_window),
}


def _of_t5gemma2(sliding_window: int, is_causal: bool) -> Reach:
    return (sliding_window - 1, 0) if is_causal else ((sliding_window + 1) // 2 - 1, sliding_window // 2)


def _of_moonshine(sliding_window: tuple[int, int]) -> Reach:
    return sliding_window[0] - 1, max(sliding_window[1] - 1, 0)


# Model, the function that makes its mask functions, a width for it, and how far these see.
_MODEL_FUNCTIONS: tuple[tuple[str, str, Any, Callable[..., Reach]], ...] = (
    ("gemma3", "_bidirectional_window_overlay", 1, lambda sliding_window: (sliding_window - 1, sliding_window - 1)),
    ("t5gemma2", "sliding_window_mask_function", 1, _of_t5gemma2),
    ("moonshine_streaming", "sliding_window_mask_function", (1, 1), _of_moonshine),
)
