"""
Two texts that are read one without the other, `pair_mode="siamese"`: two sequences for each row of a batch.

Axes: b batch  n columns
"""

from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from .embeddings import check_range
from .modeling_encoder import EncoderOutput
from .token_layout import is_fixed, is_traced


logger = logging.get_logger(__name__)


def split_pairs(mask: Tensor | None, inputs: dict[str, Tensor | None]) -> tuple[Tensor, dict[str, Tensor | None]]:
    """
    Two sequences for each row, by token type: row i becomes rows 2i (type 0) and 2i + 1 (type 1).

    Returns the masks `[2b, n]` and the inputs, each row of them twice.
    """
    types = inputs["token_type_ids"]
    if types is None:
        raise ValueError(
            'pair_mode="siamese" needs token_type_ids: '
            "model(**tokenizer(first, second, return_token_type_ids=True, return_tensors='pt'))."
        )
    mask = torch.ones_like(types, dtype=torch.bool) if mask is None else mask
    if not is_fixed():
        check_range("token_type_ids", types[mask], 2)
    second = mask & (types == 1)
    if mask.device.type == "cpu" and not is_traced() and not second.any() and mask.any():
        logger.warning_once(
            'pair_mode="siamese": every second text of a batch is empty, as no token_type_ids are 1. Tokenizers that '
            "give both texts the type 0, as RoBERTa's, cannot be used with it."
        )
    halves = torch.stack([mask & (types == 0), second], dim=1).flatten(0, 1)
    return halves, {name: None if x is None else x.repeat_interleave(2, dim=0) for name, x in inputs.items()}


def join_pairs(output: EncoderOutput) -> EncoderOutput:
    """Undo `split_pairs`: token outputs return to their row, per-sequence ones get an axis of 2."""

    def join(name: str, x: Tensor) -> Tensor:
        halves = x.unflatten(0, (-1, 2))
        return halves if name in ("pooler_output", "relay_state", "relay_attentions") else halves.sum(1)

    joined: dict[str, Any] = {
        name: tuple(join(name, x) for x in value) if isinstance(value, tuple) else join(name, value)
        for name, value in output.items()
    }
    return EncoderOutput(**joined)
