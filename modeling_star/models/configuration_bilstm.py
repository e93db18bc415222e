"""Configuration of the BiLSTM encoder."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_encoder import EncoderConfig


@strict
class BiLstmConfig(EncoderConfig):
    r"""
    Configuration of a bidirectional LSTM (Hochreiter and Schmidhuber 1997,
    https://doi.org/10.1162/neco.1997.9.8.1735), a baseline of the Star-Transformer and BiG-Transformer papers.
    The fields that all encoders share are described in `EncoderConfig`.

    Each direction is `hidden_size / 2` wide, and a token's state is both. `hidden_dropout_prob` drops from the states
    of every layer but the last, as in `torch.nn.LSTM`; `hidden_act` is the activation of the heads. There is no
    attention: `num_attention_heads` and `attention_probs_dropout_prob` are ignored.

    Args:
        bidirectional (`bool`, defaults to `True`): `False` reads from left to right only, at full width.
        pooling (`str`, defaults to `"max"`): the vector of a text: "max" or "mean" over its last states.
    """

    model_type = "bilstm"

    bidirectional: bool = True
    pooling: Literal["max", "mean"] = "max"
    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "none"

    def validate_directions(self) -> None:
        """Part of strict validation: both directions are equally wide."""
        if self.bidirectional:
            self.directions_must_share()


__all__ = ["BiLstmConfig"]
