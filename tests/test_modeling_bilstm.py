"""The BiLSTM against its reference, and what every encoder promises."""

from typing import Any

import pytest
import torch
from common import assert_close, gradients, named_outputs, padded, random_batch, tiny_model
from encoder_contract import EncoderContract
from hypothesis import strategies as st


class TestBiLstm(EncoderContract):
    """Its promises."""

    stem = "BiLstm"
    has_attention = False
    any_length_traced = False
    own_variants = {"mean": {"pooling": "mean"}}
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
            "pooling": st.sampled_from(["max", "mean"]),
        }
    )
