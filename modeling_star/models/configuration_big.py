"""Configuration of the BiG-Transformer."""

from typing import Any, ClassVar, Literal

from huggingface_hub.dataclasses import strict

from .configuration_encoder import EncoderConfig


@strict
class BigTransformerConfig(EncoderConfig):
    r"""
    Configuration of a BiG-Transformer (Shu et al., IJCNN 2020, https://openreview.net/forum?id=xulJokm5GeE). The
    defaults are the paper's form, except for the sizes, which it does not give; the fields that all encoders share are
    described in `EncoderConfig`.

    Args:
        intermediate_size (`int`, *optional*): width of the feed-forward layer; defaults to 4 x `hidden_size`.
        max_word_length (`int`, defaults to 4): tokens of the longest word that is matched. Time and memory grow with
            its square.
        lexicon_kind (`str`, *optional*): "words" or "whole_word", the kind of the model's lexicon. Set by
            `model.set_lexicon(lexicon)`, as is the next field.
        lexicon_size (`int`, defaults to 0): size of the tables that hold the lexicon.
        local_connection (`str`, defaults to `"lexicon"`): the candidates around a token: "lexicon", the words that
            contain it; "adjacent", the tokens before, at and after it, each of its own; "none", nothing. The last two
            are the ablations of section IV-G. "window": all tokens at most `window_radius` tokens away, each of its
            own, and the words that contain it where the model has a lexicon.
        window_radius (`int`, defaults to 4): neighbours on either side, with `local_connection="window"`.
        word_vector (`str`, defaults to `"sum"`): the vector of a word: the "sum" of its tokens' (Eq 3) or their
            "mean", which keeps the scale of a single token.
        include_self (`bool`, defaults to `True`): with "lexicon", every token is also a word of its own.
        global_connection (`bool`, defaults to `True`): every token attends to the global node (Eq 4).
        global_node (`str`, defaults to `"mean"`): what the global node is: the projected "mean" of the tokens (Eq 4),
            or the "first" token of the sequence, such as [CLS], which attends to all tokens and is never a neighbour
            too.
        pooling (`str`, defaults to `"mean"`): the vector of a text: "mean" or "max" over its last states, or "global",
            the global node of the last states; the last state of the first token, where this is the global node.
        position_embedding_type (`str`, defaults to `"sinusoidal"`), sinusoidal_base (`float`, defaults to 100000): as
            in Eqs 8 and 9.
        scale_embedding (`bool`, *optional*): as in `EncoderConfig`. Defaults to `True` where sinusoidal positions are
            added to an embedding table, which they would dominate, and to `False` elsewhere.
    """

    model_type = "big_transformer"
    derived_fields: ClassVar[tuple[str, ...]] = (*EncoderConfig.derived_fields, "intermediate_size", "scale_embedding")
    sizes: ClassVar[tuple[str, ...]] = (*EncoderConfig.sizes, "intermediate_size", "window_radius")
    repeated: ClassVar[tuple[str, ...]] = (*EncoderConfig.repeated, "window_radius", "max_word_length")

    intermediate_size: int | None = None
    max_word_length: int = 4
    lexicon_kind: Literal["words", "whole_word"] | None = None
    lexicon_size: int = 0
    local_connection: Literal["lexicon", "adjacent", "none", "window"] = "lexicon"
    window_radius: int = 4
    word_vector: Literal["sum", "mean"] = "sum"
    include_self: bool = True
    global_connection: bool = True
    global_node: Literal["mean", "first"] = "mean"
    pooling: Literal["mean", "max", "global"] = "mean"
    position_embedding_type: Literal["learned", "sinusoidal", "none"] = "sinusoidal"
    sinusoidal_base: float | int = 100000.0
    scale_embedding: bool | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        self.heads_must_divide()
        if self.intermediate_size is None:
            self.intermediate_size = 4 * self.hidden_size
        if self.scale_embedding is None:
            self.scale_embedding = self.position_embedding_type == "sinusoidal" and self.backbone_config is None
        super().__post_init__(**kwargs)

    def validate_lexicon(self) -> None:
        """Part of strict validation: words have two tokens or more, and a lexicon has a kind and a size."""
        if self.max_word_length < 2:
            raise ValueError(
                f"max_word_length={self.max_word_length} is given; at least 2 is needed. For tokens only: no lexicon."
            )
        if (self.lexicon_kind is None) != (self.lexicon_size == 0) or self.lexicon_size < 0:
            raise ValueError(
                f"lexicon_kind={self.lexicon_kind!r} and lexicon_size={self.lexicon_size} are given; omit both: "
                "model.set_lexicon(lexicon) sets them."
            )

    def validate_global_node(self) -> None:
        """Part of strict validation: a first token is the global node only where tokens attend to one."""
        if self.global_node == "first" and not self.global_connection:
            raise ValueError('global_node="first" is given with global_connection=False: omit one of them.')

    @property
    def reach(self) -> int | None:
        """The largest offset of a neighbour that a token attends to; `None`: it attends to none, nor to itself."""
        if self.local_connection in ("adjacent", "none"):
            return 1 if self.local_connection == "adjacent" else None
        words = self.max_word_length - 1 if self.lexicon_kind or self.local_connection == "lexicon" else 0
        return max(words, self.window_radius) if self.local_connection == "window" else words

    @property
    def candidate_roles(self) -> tuple[str, ...]:
        """The candidates in the order of the attention weights: "2 of 3" is the word whose second token it is."""
        return self.roles(with_words=self.lexicon_kind is not None)

    def roles(self, with_words: bool) -> tuple[str, ...]:
        """`candidate_roles`, of a window with words or without: a `word_mask` has words where no lexicon has."""
        local: tuple[str, ...] = ()
        if self.local_connection == "adjacent":
            local = ("left", "self", "right")
        elif self.local_connection == "window":
            steps = ["" if distance == 1 else f"_{distance}" for distance in range(1, self.window_radius + 1)]
            local = (*(f"left{step}" for step in reversed(steps)), "self", *(f"right{step}" for step in steps))
        if self.local_connection == "lexicon" or (self.local_connection == "window" and with_words):
            shortest = 1 if self.local_connection == "lexicon" and self.include_self else 2
            lengths = range(shortest, self.max_word_length + 1)
            local += tuple(f"{index} of {length}" for length in lengths for index in range(1, length + 1))
        return (*local, *(("global",) if self.global_connection else ()))


__all__ = ["BigTransformerConfig"]
