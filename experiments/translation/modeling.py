"""An encoder of the package with the standard Transformer's decoder, and the standard Transformer itself."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSeq2SeqLM,
    EncoderDecoderConfig,
    EncoderDecoderModel,
    MarianConfig,
    MarianMTModel,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

import modeling_star  # noqa: F401  # AutoModel knows its encoders


@strict
class TranslatorConfig(EncoderDecoderConfig):
    """The configurations of an encoder and of Marian's decoder."""

    model_type = "star_translator"
    tie_word_embeddings: bool = True


class Translator(EncoderDecoderModel):
    """
    transformers' `EncoderDecoderModel` of any encoder of the package and Marian's decoder (Vaswani et al. 2017,
    https://arxiv.org/abs/1706.03762), with one table of embeddings for source, target and output.
    """

    config_class = TranslatorConfig
    _tied_weights_keys = {"encoder.embeddings.word_embeddings.weight": "decoder.model.decoder.embed_tokens.weight"}

    def __init__(self, config: TranslatorConfig):
        # The pooled vector has no part in a translation.
        super().__init__(config, encoder=AutoModel.from_config(config.encoder, add_pooling_layer=False))
        self.decoder.model.decoder.embed_positions.requires_grad_(False)  # sinusoids


AutoConfig.register(TranslatorConfig.model_type, TranslatorConfig)
AutoModelForSeq2SeqLM.register(TranslatorConfig, Translator)


def new_model(shape: Path, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The randomly initialised model that a file of `shapes/` describes, for a tokenizer's vocabulary."""
    fields = json.loads(shape.read_text(encoding="utf-8"))
    start, end = tokenizer.bos_token_id, tokenizer.eos_token_id
    tokens = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": start, "eos_token_id": end}
    of_target = {"vocab_size": len(tokenizer), "decoder_vocab_size": len(tokenizer), "decoder_start_token_id": start}
    if fields.pop("model_type") == "marian":
        return MarianMTModel(MarianConfig(**fields, **tokens, **of_target, forced_eos_token_id=end))
    encoder = AutoConfig.for_model(vocab_size=len(tokenizer), **fields["encoder"])
    decoder = {**_decoder_fields(fields["decoder"], encoder.hidden_size), **tokens, **of_target}
    config = TranslatorConfig(encoder=encoder.to_dict(), decoder=MarianConfig(**decoder).to_dict(), **tokens)
    config.decoder_start_token_id, config.vocab_size = start, len(tokenizer)
    return Translator(config)


def _decoder_fields(given: dict[str, Any], width: int) -> dict[str, Any]:
    """Marian's fields of a decoder alone, ReLU and scaled embeddings as in the paper."""
    paper = {"d_model": width, "activation_function": "relu", "scale_embedding": True, "init_std": width**-0.5}
    # Caches count the layers of an encoder, which it does not have.
    counted = {name.replace("decoder", "encoder"): value for name, value in given.items() if "decoder" in name}
    return {**paper, **given, **counted, "is_decoder": True, "is_encoder_decoder": False, "forced_eos_token_id": None}
