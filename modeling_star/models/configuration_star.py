"""Configuration of the Star-Transformer."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_encoder import EncoderConfig


@strict
class StarTransformerConfig(EncoderConfig):
    r"""
    Configuration of a Star-Transformer (Guo et al. 2019, https://arxiv.org/abs/1902.09113). The defaults are the
    paper's form; the fields that all encoders share are described in `EncoderConfig`.

    Args:
        head_dim (`int`, *optional*): width of one head; heads x head_dim may differ from `hidden_size`. Defaults to
            `hidden_size / num_attention_heads`.
        position_embedding_type (`str`, defaults to `"learned"`): "learned" (the paper), "sinusoidal" or "none"; "ring"
            is a former spelling of "none" with `role_bias=True`.
        role_bias (`bool`, defaults to `False`): a learned bias per head for each role a candidate has (left, self,
            right, embedding, relay), which distinguishes left from right at any length.
        use_ring (`bool`, defaults to `True`): `False` is variant (b) of Table 6, without the ring neighbours.
        ring_radius (`int`, defaults to 1): how many neighbours on either side a satellite reads; the paper's is one.
            On a ring shorter than that, offsets that lead to the same token count as candidates of their own.
        use_radial (`bool`, defaults to `True`): `False` is variant (a) of Table 6, without the relay node.
        relay_start_norm (`bool`, defaults to `False`): LayerNorm on the mean of the embeddings that the relay starts
            from. The mean of n tokens is about `n ** 0.5` times smaller than a token; so are the relay's first scores.
        residual (`bool`, defaults to `False`): adds the state before the update; the paper does not.
        pooling (`str`, defaults to `"max"`): what is added to the relay in the vector of a text: the "max" over the
            last satellites (section 3.3), or their "mean".
    """

    model_type = "star_transformer"
    derived_fields: ClassVar[tuple[str, ...]] = (*EncoderConfig.derived_fields, "head_dim")
    sizes: ClassVar[tuple[str, ...]] = (*EncoderConfig.sizes, "head_dim", "ring_radius")
    repeated: ClassVar[tuple[str, ...]] = (*EncoderConfig.repeated, "ring_radius")

    head_dim: int | None = None
    position_embedding_type: Literal["learned", "sinusoidal", "none", "ring"] = "learned"  # type: ignore[assignment]
    role_bias: bool = False
    use_ring: bool = True
    ring_radius: int = 1
    use_radial: bool = True
    relay_start_norm: bool = False
    residual: bool = False
    pooling: Literal["max", "mean"] = "max"

    def __post_init__(self, **kwargs: Any) -> None:
        if self.position_embedding_type == "ring":
            self.position_embedding_type, self.role_bias = "none", True
        if self.head_dim is None:
            self.heads_must_divide()
            self.head_dim = self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)

    @property
    def reach(self) -> int:
        """Number of neighbours read on either side, 0 without a ring."""
        return self.ring_radius if self.use_ring else 0

    @property
    def candidate_roles(self) -> tuple[str, ...]:
        """The members of C_i (Eq 4), in the order of the attention weights; further neighbours are left_2, right_2."""
        steps = ["" if distance == 1 else f"_{distance}" for distance in range(1, self.reach + 1)]
        left, right = [f"left{step}" for step in reversed(steps)], [f"right{step}" for step in steps]
        return (*left, "self", *right, "embedding", *(["relay"] if self.use_radial else []))


__all__ = ["StarTransformerConfig"]
