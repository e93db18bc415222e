"""DiSAN against its reference, its blocks, and what every encoder promises."""

from typing import Any

import pytest
import torch
from common import Batch, assert_close, gradients, named_outputs, padded, random_batch, tiny_model
from encoder_contract import EncoderContract
from hypothesis import strategies as st
from torch import Tensor
from transformers import PreTrainedModel

from modeling_star import modeling_disan


class TestDisan(EncoderContract):
    """Its promises."""

    stem = "Disan"
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
        }
    )

    def prepare(self, data: st.DataObject, model: PreTrainedModel, batch: Batch) -> None:
        """All scores at once, or a few."""
        modeling_disan.SCORES_AT_ONCE = data.draw(st.sampled_from([1, 30, 100, 2**20]))

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        return (b, 2, n, n)

    def sums_of_attention(self, config: Any, mask: Tensor, sums: Tensor) -> Tensor:
        # The first token of a text has none before it, the last none after it.
        nothing = mask & (sums == 0)
        texts = 2 if config.pair_mode == "siamese" else 1
        assert (nothing.sum(1) <= texts).all()
        assert torch.equal(nothing.any(1), mask.any(1))
        return (mask & ~nothing).to(sums)
