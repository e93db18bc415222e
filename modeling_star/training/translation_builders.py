"""From the arguments of run_translation.py to a model that reads and writes the tokens of one tokenizer."""

from typing import Any

import transformers
from transformers import AutoConfig, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from ..data.subwords import start_and_end
from ..errors import UserError
from ..models.configuration_encoder_decoder import ENCODER_CONFIGS, TextEncoderDecoderConfig
from ..models.modeling_encoder_decoder import ENCODERS, TextEncoderDecoderModel
from .builders import check_kind, check_overrides, config_fields, without_words


def fresh_translator(
    tokenizer: PreTrainedTokenizerBase,
    *,
    model_type: str | None = None,
    config_name: str | None = None,
    overrides: dict[str, Any] | None = None,
    embeddings_from: str | None = None,
    embeddings_mode: str = "static",
    freeze_embeddings: bool = False,
    **hub: Any,
) -> PreTrainedModel:
    """
    A model with fresh weights: an encoder of this package with a Transformer decoder, or any sequence-to-sequence
    model of transformers.

    Args:
        tokenizer: gives the vocabulary and the special tokens of both sides.
        model_type, config_name: kind, or a file or name of a configuration, which tells the kind too; that of an
            encoder alone gets a decoder of its size. Without either a Marian.
        overrides: fields that win over the file's; of the two sides as `encoder.NAME` and `decoder.NAME`.
        embeddings_from, embeddings_mode, freeze_embeddings: of the encoder, see `EncoderPreTrainedModel`.
        hub: `revision`, `token`, `cache_dir` for the embeddings.

    Raises:
        UserError: the kind is unknown, has no decoder, or has no size; or a field is unknown.
    """
    fields = config_fields(config_name) if config_name is not None else {}
    told = fields.pop("model_type", None)
    if config_name is not None:
        inside = fields.get("encoder", {}).get("model_type") if told == TextEncoderDecoderConfig.model_type else None
        check_kind(model_type, [told, inside], config_name)
    kind = told or model_type or "marian"
    if kind in ENCODER_CONFIGS:
        fields, kind = {"encoder": {"model_type": kind, **fields}}, TextEncoderDecoderConfig.model_type
    if kind != TextEncoderDecoderConfig.model_type:
        if embeddings_from is not None or freeze_embeddings:
            raise UserError(
                f"--embeddings_from and --freeze_embeddings work with an encoder of this package; a {kind} has "
                "embeddings of its own: write --model_type star_transformer"
            )
        return _of_transformers(kind, fields, overrides or {}, tokenizer)
    # The words of a saved model are not in its configuration.
    fields["encoder"] = without_words(fields.get("encoder", {}))
    start, end = start_and_end(tokenizer)
    fields |= {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": start, "eos_token_id": end}
    fields = _with_overrides(fields, overrides or {})
    if (overrides or {}).get("vocab_size", len(tokenizer)) != len(tokenizer):
        raise UserError(
            f"--config_overrides sets vocab_size, which is the tokenizer's {len(tokenizer)} entries: leave it away."
        )
    if embeddings_from is None:
        fields["vocab_size"] = len(tokenizer)
        if freeze_embeddings:
            fields["encoder"]["freeze_embeddings"] = True
        return TextEncoderDecoderModel(TextEncoderDecoderConfig(**fields))
    encoder = dict(fields.pop("encoder", {}))
    encoder_class = ENCODERS[encoder.pop("model_type", "star_transformer")]
    if (overrides or {}).get("share_embeddings"):
        raise UserError(
            "--config_overrides sets share_embeddings=true, and the embeddings of --embeddings_from are the encoder's "
            "alone: leave one away."
        )
    fields.pop("share_embeddings", None)
    # A given embedding is scaled as the encoder's own default says, not as a table shared with the output.
    if "encoder.scale_embedding" not in (overrides or {}):
        encoder.pop("scale_embedding", None)
    vectors = embeddings_mode == "vectors"
    source = encoder_class.from_embeddings(
        embeddings_from,
        mode=embeddings_mode,
        freeze=freeze_embeddings,
        **({"vocabulary": tokenizer.get_vocab()} if vectors else hub),
        **encoder,
    )
    model = TextEncoderDecoderModel(TextEncoderDecoderConfig(**fields, encoder=source.config, share_embeddings=False))
    own = model.encoder.state_dict()
    model.encoder.load_state_dict({name: tensor for name, tensor in source.state_dict().items() if name in own})
    return model


def _of_transformers(
    kind: str, fields: dict[str, Any], overrides: dict[str, Any], tokenizer: PreTrainedTokenizerBase
) -> PreTrainedModel:
    try:
        standard = AutoConfig.for_model(kind)
        model_class = transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING[type(standard)]
    except (ValueError, KeyError):
        raise UserError(
            f"--model_type {kind} is unknown, or writes no text: marian, {', '.join(ENCODER_CONFIGS)}, or a "
            "sequence-to-sequence type of transformers."
        ) from None
    check_overrides(standard, overrides)
    if not fields and not overrides:
        raise UserError(
            f"A fresh {kind} needs a size: --config_name configuration/models/marian-small.json, or --config_overrides"
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
        side, dot, own = name.partition(".")
        if dot and side in sides:
            sides[side][own] = value
        elif name in sides and isinstance(value, dict):
            sides[name] |= value
        elif hasattr(TextEncoderDecoderConfig, name) and name not in sides:
            fields[name] = value
        else:
            raise UserError(
                f"--config_overrides sets {name}: of an encoder with a decoder write encoder.{own or name}={value} or "
                f"decoder.{own or name}={value}"
            )
    encoder = sides["encoder"]
    kind = encoder.get("model_type", "star_transformer")
    if kind in ENCODER_CONFIGS:
        names = {name: value for name, value in encoder.items() if name != "model_type"}
        check_overrides(ENCODER_CONFIGS[kind](), names)
    # The decoder's output shares the table, which so is as small as an output layer has to be.
    encoder.setdefault("scale_embedding", True)
    return {**fields, **sides}


def check_languages(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """
    Raises:
        UserError: the tokenizer writes codes of languages, and nothing here tells it which.
    """
    if hasattr(tokenizer, "src_lang"):
        raise UserError(
            f"The tokenizer of {name} marks texts with a code of their language, {tokenizer.src_lang} now, which "
            "run_translation.py cannot tell it: write --model_name_or_path facebook/bart-base, say, which has none, "
            "or train a fresh model without --tokenizer_name"
        )


def set_generation(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, num_beams: int, penalty: float) -> None:
    """Save with the model how it is to translate; `generate` then needs no arguments."""
    own = model.generation_config
    start, end = start_and_end(tokenizer)
    limit = getattr(getattr(model.config, "decoder", None) or model.config, "max_position_embeddings", None)
    model.generation_config = GenerationConfig(
        num_beams=num_beams,
        # Without beams there is nothing to weigh, and a model that says otherwise cannot be saved.
        **({"length_penalty": penalty} if num_beams > 1 else {}),
        max_length=limit or 512,
        pad_token_id=own.pad_token_id if own.pad_token_id is not None else tokenizer.pad_token_id,
        bos_token_id=own.bos_token_id,
        eos_token_id=own.eos_token_id if own.eos_token_id is not None else end,
        decoder_start_token_id=own.decoder_start_token_id if own.decoder_start_token_id is not None else start,
        forced_eos_token_id=own.forced_eos_token_id,
        forced_bos_token_id=own.forced_bos_token_id,
        bad_words_ids=own.bad_words_ids,
    )


__all__ = ["check_languages", "fresh_translator", "set_generation"]
