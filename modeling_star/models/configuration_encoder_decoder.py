"""Configuration of an encoder of this package with a Transformer decoder."""

from collections.abc import Mapping
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MarianConfig, PreTrainedConfig

from .configuration_base import BaseConfig, did_you_mean
from .configuration_big import BigTransformerConfig
from .configuration_bilstm import BiLstmConfig
from .configuration_disan import DisanConfig
from .configuration_encoder import EncoderConfig
from .configuration_star import StarTransformerConfig
from .configuration_vanilla import VanillaTransformerConfig


ENCODER_CONFIGS: dict[str, type[EncoderConfig]] = {
    config.model_type: config
    for config in (StarTransformerConfig, BigTransformerConfig, VanillaTransformerConfig, DisanConfig, BiLstmConfig)
}


@strict
class TextEncoderDecoderConfig(BaseConfig):
    r"""
    Configuration of a `TextEncoderDecoderModel`: any encoder of this package, and the decoder of the standard
    Transformer (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) as transformers' Marian has it.

    Args:
        encoder (`dict` or `EncoderConfig`, *optional*): the encoder, told by its `model_type`. Defaults to a
            Star-Transformer.
        decoder (`dict` or `MarianConfig`, *optional*): the decoder. What a dict leaves out follows the encoder
            (`d_model`, `decoder_layers`, `decoder_attention_heads`, a feed-forward layer four times as wide) and the
            paper (ReLU, embeddings times the square root of `d_model`).
        vocab_size (`int`, *optional*): entries of the vocabulary that source and target share; overrides those of
            both sides. Defaults to the encoder's.
        share_embeddings (`bool`, *optional*): one table for source, target and output. Defaults to whether the
            encoder has a table of its own as wide as the decoder, trained, of as many entries.
        decoder_start_token_id (`int`, *optional*): what generation starts from; defaults to `bos_token_id`.

    Example:

    ```python
    >>> from modeling_star import TextEncoderDecoderConfig, TextEncoderDecoderModel

    >>> config = TextEncoderDecoderConfig(
    ...     encoder={"model_type": "big_transformer", "hidden_size": 64, "num_attention_heads": 4}, vocab_size=500
    ... )
    >>> TextEncoderDecoderModel(config).config.decoder.d_model
    64
    ```
    """

    model_type = "text_encoder_decoder"
    keys_to_ignore_at_inference = ["past_key_values"]
    derived_fields: ClassVar[tuple[str, ...]] = ("share_embeddings", "decoder_start_token_id")
    inner_configurations: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    encoder: Any = None
    decoder: Any = None
    vocab_size: int | None = None
    share_embeddings: bool | None = None
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | None = 3
    decoder_start_token_id: int | None = None
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    use_cache: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        for side in ("encoder", "decoder"):
            given = getattr(self, side)
            if not (given is None or isinstance(given, (dict, PreTrainedConfig))):
                raise ValueError(
                    f"{side}={given!r} is given; a configuration or its fields are needed, {side}={{...}}."
                )
        own_size = {} if self.vocab_size is None else {"vocab_size": self.vocab_size}
        if self.encoder is None or isinstance(self.encoder, dict):
            self.encoder = _encoder_config({**(self.encoder or {}), **own_size})
        if self.vocab_size is None:
            self.vocab_size = self.encoder.vocab_size
        if self.vocab_size != self.encoder.vocab_size and self.encoder.backbone_config is None:
            raise ValueError(
                f"vocab_size={self.vocab_size} is given, and the encoder's is {self.encoder.vocab_size}: leave "
                "vocab_size out, or give the encoder the same."
            )
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        decoder = self.decoder.to_dict() if isinstance(self.decoder, PreTrainedConfig) else self.decoder
        self.decoder = self._decoder_config(decoder or {})
        self._check_embeddings()
        super().__post_init__(**kwargs)

    @classmethod
    def overridden(cls, saved: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        """As in every configuration; the vocabulary is the encoder's where an encoder is given that tells its own."""
        encoder = overrides.get("encoder")
        tells_own = "vocab_size" in encoder if isinstance(encoder, dict) else encoder is not None
        if tells_own and "vocab_size" not in overrides:
            saved = {name: value for name, value in saved.items() if name != "vocab_size"}
        return super().overridden(saved, overrides)

    @classmethod
    def _merged(cls, name: str, saved: Any, given: Any) -> Any:
        """As in every configuration; what the encoder has derived is derived again."""
        merged = super()._merged(name, saved, given)
        if name != "encoder" or merged is given:
            return merged
        kind = saved.get("model_type", StarTransformerConfig.model_type)
        return ENCODER_CONFIGS[kind].overridden(saved, given) if kind in ENCODER_CONFIGS else merged

    def _decoder_config(self, given: dict[str, Any]) -> MarianConfig:
        """Marian's, its fields about special tokens and vocabulary being those of the whole model."""
        width = given.get("d_model", self.encoder.hidden_size)
        fields = {
            "d_model": width,
            "decoder_layers": self.encoder.num_hidden_layers,
            "decoder_attention_heads": self.encoder.num_attention_heads,
            "decoder_ffn_dim": 4 * width,
            "activation_function": "relu",
            "scale_embedding": True,
            "init_std": width**-0.5,
            **{name: value for name, value in given.items() if name != "model_type"},
            "vocab_size": self.vocab_size,
            "decoder_vocab_size": self.vocab_size,
            "is_decoder": True,
            "is_encoder_decoder": False,
            "tie_word_embeddings": self.tie_word_embeddings,
        }
        unknown = next((name for name in fields if not hasattr(MarianConfig, name)), None)
        if unknown is not None and not unknown.startswith("_"):
            known = [name for name in MarianConfig().to_dict() if not name.startswith("_")]
            raise ValueError(f"decoder has a field {unknown!r}, which Marian has not.{did_you_mean(unknown, known)}")
        heads = fields["decoder_attention_heads"]
        if width % heads:
            allowed = ", ".join(str(h) for h in range(1, min(width, 4 * heads) + 1) if width % h == 0)
            fewer = max(h for h in range(1, heads + 1) if width % h == 0)
            raise ValueError(
                f"The decoder's d_model={width} cannot be shared by decoder_attention_heads={heads}; {allowed} could: "
                f'write decoder={{"decoder_attention_heads": {fewer}}}.'
            )
        special = {f"{name}_token_id": getattr(self, f"{name}_token_id") for name in ("pad", "bos", "eos")}
        # There is no encoder in it; caches count these as the layers of a model.
        shape = {"encoder_layers": fields["decoder_layers"], "encoder_ffn_dim": fields["decoder_ffn_dim"]}
        shape["encoder_attention_heads"] = fields["decoder_attention_heads"]
        start = {"decoder_start_token_id": self.decoder_start_token_id, "forced_eos_token_id": None}
        return MarianConfig(**{**fields, **special, **shape, **start})

    def _check_embeddings(self) -> None:
        """
        Raises:
            ValueError: one table is asked for, and the two sides have none in common, or tie none.
        """
        encoder, decoder = self.encoder, self.decoder
        alike = (encoder.vocab_size, encoder.embedding_size) == (decoder.vocab_size, decoder.d_model)
        can_share = alike and encoder.backbone_config is None and not encoder.freeze_embeddings
        if self.share_embeddings is None:
            self.share_embeddings = can_share and self.tie_word_embeddings
        if self.share_embeddings and not self.tie_word_embeddings:
            raise ValueError(
                "share_embeddings=True is given with tie_word_embeddings=False, which ties nothing: leave out one of "
                "the two."
            )
        if self.share_embeddings and not can_share:
            raise ValueError(
                f"share_embeddings=True needs one trained table: the encoder has {encoder.vocab_size} rows of width "
                f"{encoder.embedding_size} (freeze_embeddings={encoder.freeze_embeddings}, an encoder inside: "
                f"{encoder.backbone_config is not None}), the decoder {decoder.vocab_size} of {decoder.d_model}; "
                "write share_embeddings=False, or leave it out."
            )


def _encoder_config(given: dict[str, Any]) -> EncoderConfig:
    """
    Raises:
        ValueError: its model type is not one of this package.
    """
    fields = dict(given)
    kind = fields.pop("model_type", StarTransformerConfig.model_type)
    if kind not in ENCODER_CONFIGS:
        allowed = list(ENCODER_CONFIGS)
        raise ValueError(
            f"encoder has model_type={kind!r}; {', '.join(allowed)} are allowed.{did_you_mean(kind, allowed)}"
        )
    return ENCODER_CONFIGS[kind](**fields)


__all__ = ["ENCODER_CONFIGS", "TextEncoderDecoderConfig"]
