"""Build the encoder-decoder that the arguments of run_translation.py describe."""

from typing import Any

import transformers
from transformers import AutoConfig, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_star.errors import UserError
from modeling_star.training.build import check_kind, check_overrides, without_lexicon
from modeling_star.training.named_models import config_fields

from .configuration_encoder_decoder import ENCODER_CONFIGS, TextEncoderDecoderConfig
from .modeling_encoder_decoder import TextEncoderDecoderModel
from .subwords import start_and_end


_OURS = TextEncoderDecoderConfig.model_type


def fresh_translator(
    tokenizer: PreTrainedTokenizerBase,
    *,
    model_type: str | None = None,
    config_name: str | None = None,
    overrides: dict[str, Any] | None = None,
) -> PreTrainedModel:
    """A randomly initialised encoder of this package with a Transformer decoder, or a model of transformers."""
    overrides = overrides or {}
    fields = config_fields(config_name) if config_name is not None else {}
    kind = fields.pop("model_type", None)
    if config_name is not None:
        check_kind(model_type, [kind, fields.get("encoder", {}).get("model_type")], config_name)
    kind = kind or model_type or "marian"
    if kind in ENCODER_CONFIGS:
        fields, kind = {"encoder": {"model_type": kind, **fields}}, _OURS
    if kind != _OURS:
        return _of_transformers(kind, fields, overrides, tokenizer)
    # The words of a saved model are not in its configuration.
    fields["encoder"] = without_lexicon(fields.get("encoder", {}))
    start, end = start_and_end(tokenizer)
    fields |= {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": start, "eos_token_id": end}
    fields["vocab_size"] = len(tokenizer)
    fields = _with_overrides(fields, overrides)
    return TextEncoderDecoderModel(TextEncoderDecoderConfig(**fields))


def _of_transformers(
    kind: str, fields: dict[str, Any], overrides: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    try:
        standard = AutoConfig.for_model(kind)
        model_class = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(standard)]
    except (ValueError, KeyError):
        raise UserError(
            f"--model_type {kind} is unknown, or generates no text: marian, {', '.join(ENCODER_CONFIGS)}, or a "
            "sequence-to-sequence type of transformers."
        ) from None
    check_overrides(standard, overrides)
    if not fields and not overrides:
        raise UserError(
            f"A new {kind} needs a size: --config_name experiments/translation/shapes/marian-small.json, or "
            "--config_overrides"
        )
    start, end = start_and_end(tokenizer)
    special = {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": start, "eos_token_id": end}
    special |= {"decoder_start_token_id": start, "forced_eos_token_id": end}
    size = {name: len(tokenizer) for name in ("vocab_size", "decoder_vocab_size") if hasattr(standard, name)}
    return model_class(type(standard)(**{**fields, **special, **size, **overrides}))


def _with_overrides(fields: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """The fields of both sides with `encoder.NAME` and `decoder.NAME`, or `encoder: {NAME: ...}`, in their places."""
    sides = {side: dict(fields.get(side, {})) for side in ("encoder", "decoder")}
    for name, value in overrides.items():
        side, dot, field = name.partition(".")
        if dot and side in sides:
            sides[side][field] = value
        elif name in sides and isinstance(value, dict):
            sides[name] |= value
        elif hasattr(TextEncoderDecoderConfig, name) and name not in sides:
            fields[name] = value
        else:
            field = field or name
            raise UserError(
                f"--config_overrides sets {name}: write encoder.{field}={value} or decoder.{field}={value}"
            )
    encoder = sides["encoder"]
    kind = encoder.get("model_type", "star_transformer")
    if kind in ENCODER_CONFIGS:
        check_overrides(ENCODER_CONFIGS[kind](), {name: x for name, x in encoder.items() if name != "model_type"})
    # The decoder's output shares the table, whose numbers are as small as those of an output layer.
    encoder.setdefault("scale_embedding", True)
    return {**fields, **sides}


def set_generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, num_beams: int, penalty: float) -> None:
    """Save beams and length penalty with the model, so that `generate` needs no arguments."""
    saved = model.generation_config
    start, end = start_and_end(tokenizer)
    limit = getattr(getattr(model.config, "decoder", None) or model.config, "max_position_embeddings", None)
    defaults = {
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": None,
        "eos_token_id": end,
        "decoder_start_token_id": start,
        "forced_eos_token_id": None,
        "forced_bos_token_id": None,
        "bad_words_ids": None,
    }
    tokens = {name: getattr(saved, name) for name in defaults}
    model.generation_config = GenerationConfig(
        num_beams=num_beams,
        # A configuration with a length penalty and no beams cannot be saved.
        **({"length_penalty": penalty} if num_beams > 1 else {}),
        max_length=limit or 512,
        **{name: value if value is not None else defaults[name] for name, value in tokens.items()},
    )
