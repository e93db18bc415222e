"""Configuration of the standard Transformer encoder."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict

from .configuration_encoder import EncoderConfig


@strict
class VanillaTransformerConfig(EncoderConfig):
    r"""
    Configuration of the standard Transformer encoder (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762): the
    baseline of the Star-Transformer and BiG-Transformer papers. The fields that all encoders share are described in
    `EncoderConfig`.

    Args:
        num_hidden_layers (`int`, defaults to 2): as in every encoder; with 0 a text is the mean plus the maximum of
            its embeddings.
        intermediate_size (`int`, *optional*): width of the feed-forward layer; defaults to 4 x `hidden_size`.
    """

    model_type = "vanilla_transformer"
    derived_fields: ClassVar[tuple[str, ...]] = (*EncoderConfig.derived_fields, "intermediate_size")
    sizes: ClassVar[tuple[str, ...]] = (
        *(name for name in EncoderConfig.sizes if name != "num_hidden_layers"),
        "intermediate_size",
    )

    intermediate_size: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.heads_must_divide()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        super().__post_init__(**kwargs)


__all__ = ["VanillaTransformerConfig"]
