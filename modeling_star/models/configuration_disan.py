"""Configuration of DiSAN."""

from typing import Literal

from huggingface_hub.dataclasses import strict

from .configuration_encoder import EncoderConfig


@strict
class DisanConfig(EncoderConfig):
    r"""
    Configuration of DiSAN, the Directional Self-Attention Network (Shen et al. 2018,
    https://arxiv.org/abs/1709.04696). The defaults are the paper's form: one layer, whose masks replace positions.
    The fields that all encoders share are described in `EncoderConfig`.

    Each direction is `hidden_size / 2` wide, and a token's state is both. Every feature has separate weights, so
    `num_attention_heads` is ignored. `hidden_dropout_prob` applies to the attention's output, before the fusion
    gate; `hidden_act` is the activation of the heads, that of the encoder is ELU.
    """

    model_type = "disan"

    num_hidden_layers: int = 1
    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "none"

    def validate_directions(self) -> None:
        """Part of strict validation: both directions are equally wide."""
        self.directions_must_share()


__all__ = ["DisanConfig"]
