"""Configuration of a ModernBERT without an attention over the whole text."""

from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers import ModernBertConfig


@strict
class WindowModernBertConfig(ModernBertConfig):
    r"""
    Configuration of a ModernBERT whose global layers attend to a window and to [CLS], which attends to all tokens.

    Args:
        global_radius (`int`, defaults to 128): neighbours on either side in layers of `"full_attention"`.
        global_tokens (`str`, defaults to `"first"`): tokens that everybody sees there, and that see everybody: the
            "first" real token, or "ends", the first and the last.

    All other fields are those of `ModernBertConfig`.
    """

    model_type = "window_modernbert"

    global_radius: int = 128
    global_tokens: Literal["first", "ends"] = "first"

    def __post_init__(self, **kwargs: Any) -> None:
        # The name that `register_window_attention` gives; another one is given to from_pretrained.
        kwargs.setdefault("attn_implementation", "star_window")
        super().__post_init__(**kwargs)

    def validate_radius(self) -> None:
        """Part of strict validation: a token sees at least one neighbour."""
        if self.global_radius < 1:
            raise ValueError(f"global_radius={self.global_radius} is given; at least 1 is needed.")


__all__ = ["WindowModernBertConfig"]
