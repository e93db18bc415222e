"""Configuration of an encoder of this package with a Transformer decoder."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import MarianConfig, PreTrainedConfig

from modeling_star.models.configuration_big import BigTransformerConfig
from modeling_star.models.configuration_bilstm import BiLstmConfig
from modeling_star.models.configuration_disan import DisanConfig
from modeling_star.models.configuration_encoder import BaseConfig, EncoderConfig
from modeling_star.models.configuration_star import StarTransformerConfig
from modeling_star.models.configuration_vanilla import VanillaTransformerConfig


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
        encoder (`dict` or `EncoderConfig`, *optional*): the encoder; a dict has a `model_type`. Defaults to a
            Star-Transformer.
        decoder (`dict` or `MarianConfig`, *optional*): the decoder. Fields that a dict omits follow the encoder
            (`d_model`, `decoder_layers`, `decoder_attention_heads`, a feed-forward layer four times as wide) and the
            paper (ReLU, embeddings times the square root of `d_model`).
        vocab_size (`int`, *optional*): entries of the vocabulary that source and target share; overrides those of
            both sides. Defaults to the encoder's.
        share_embeddings (`bool`, *optional*): one table for source, target and output. Defaults to whether the
            encoder has a trained table of the decoder's size.
        decoder_start_token_id (`int`, *optional*): where generation starts; defaults to `bos_token_id`.
    """

    model_type = "text_encoder_decoder"
    keys_to_ignore_at_inference = ["past_key_values", "cache"]  # the latter from transformers 5.24 on
    derived_fields: ClassVar[tuple[str, ...]] = ("share_embeddings", "decoder_start_token_id")
    inner_configurations: ClassVar[tuple[str, ...]] = ("encoder", "decoder")

    encoder: dict | PreTrainedConfig | None = None
    decoder: dict | PreTrainedConfig | None = None
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
        size = {} if self.vocab_size is None else {"vocab_size": self.vocab_size}
        if self.encoder is None or isinstance(self.encoder, dict):
            self.encoder = _encoder_config({**(self.encoder or {}), **size})
        if self.vocab_size is None:
            self.vocab_size = self.encoder.vocab_size
        if self.vocab_size != self.encoder.vocab_size and self.encoder.backbone_config is None:
            raise ValueError(f"vocab_size={self.vocab_size} is given, and the encoder has {self.encoder.vocab_size}.")
        if self.decoder_start_token_id is None:
            self.decoder_start_token_id = self.bos_token_id
        decoder = self.decoder.to_dict() if isinstance(self.decoder, PreTrainedConfig) else self.decoder
        self.decoder = self._decoder_config(decoder or {})
        self._check_embeddings()
        super().__post_init__(**kwargs)

    def _decoder_config(self, given: dict[str, Any]) -> MarianConfig:
        """Marian's configuration, with the special tokens and the vocabulary of the whole model."""
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
        special = {f"{name}_token_id": getattr(self, f"{name}_token_id") for name in ("pad", "bos", "eos")}
        # It has no encoder, but caches count these as layers of the model.
        shape = {"encoder_layers": fields["decoder_layers"], "encoder_ffn_dim": fields["decoder_ffn_dim"]}
        shape["encoder_attention_heads"] = fields["decoder_attention_heads"]
        start = {"decoder_start_token_id": self.decoder_start_token_id, "forced_eos_token_id": None}
        return MarianConfig(**{**fields, **special, **shape, **start})

    def _check_embeddings(self) -> None:
        """Raise ValueError where one table is requested that the two sides cannot share, or that nothing ties."""
        encoder, decoder = self.encoder, self.decoder
        alike = (encoder.vocab_size, encoder.embedding_size) == (decoder.vocab_size, decoder.d_model)
        can_share = alike and encoder.backbone_config is None and not encoder.freeze_embeddings
        if self.share_embeddings is None:
            self.share_embeddings = can_share and self.tie_word_embeddings
        if self.share_embeddings and not (can_share and self.tie_word_embeddings):
            raise ValueError(
                "share_embeddings=True needs tie_word_embeddings=True and one trained table: the encoder's has "
                f"{encoder.vocab_size} rows of width {encoder.embedding_size}, the decoder's {decoder.vocab_size} of "
                f"{decoder.d_model}. Write share_embeddings=False."
            )


def _encoder_config(given: dict[str, Any]) -> EncoderConfig:
    """Raise ValueError where its model type is not one of this package."""
    fields = dict(given)
    kind = fields.pop("model_type", StarTransformerConfig.model_type)
    if kind not in ENCODER_CONFIGS:
        raise ValueError(f"encoder has model_type={kind!r}; {', '.join(ENCODER_CONFIGS)} are allowed.")
    return ENCODER_CONFIGS[kind](**fields)


__all__ = ["ENCODER_CONFIGS", "TextEncoderDecoderConfig"]
