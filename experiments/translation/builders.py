"""Build the encoder-decoder that the arguments of run_translation.py describe."""

from typing import Any

import transformers
from transformers import AutoConfig, GenerationConfig, PreTrainedModel, PreTrainedTokenizerBase

from modeling_star.errors import UserError
from modeling_star.training.build import check_kind, check_overrides, without_lexicon
from modeling_star.training.named_models import config_fields

from .configuration_encoder_decoder import ENCODER_CONFIGS, TextEncoderDecoderConfig
from .modeling_encoder_decoder import ENCODERS, TextEncoderDecoderModel
from .subwords import start_and_end


_OURS = TextEncoderDecoderConfig.model_type


def fresh_translator(
    tokenizer: PreTrainedTokenizerBase,
    *,
    model_type: str | None = None,
    config_name: str | None = None,
    overrides: dict[str, Any] | None = None,
    embeddings_name_or_path: str | None = None,
    embeddings_mode: str = "static",
    freeze_embeddings: bool = False,
    **hub: Any,
) -> PreTrainedModel:
    """
    A model with fresh weights: an encoder of this package with a Transformer decoder, or any sequence-to-sequence
    model of transformers.

    Args:
        tokenizer: gives the vocabulary and the special tokens of both sides.
        model_type, config_name: the kind of model, and a file or model with the fields of its configuration; an
            encoder's gets a decoder of its size. Without either a Marian.
        overrides: fields that win over the file's; of the two sides as `encoder.NAME` and `decoder.NAME`.
        embeddings_name_or_path, embeddings_mode, freeze_embeddings: of the encoder, see `EncoderPreTrainedModel`.
        hub: `revision`, `token`, `cache_dir` for the embeddings.

    Raises:
        UserError: the kind is unknown, has no decoder, or has no size; or a field is unknown.
    """
    overrides = overrides or {}
    fields = config_fields(config_name) if config_name is not None else {}
    kind = fields.pop("model_type", None)
    if config_name is not None:
        check_kind(model_type, [kind, fields.get("encoder", {}).get("model_type")], config_name)
    kind = kind or model_type or "marian"
    if kind in ENCODER_CONFIGS:
        fields, kind = {"encoder": {"model_type": kind, **fields}}, _OURS
    if kind != _OURS:
        if embeddings_name_or_path is not None or freeze_embeddings:
            raise UserError(
                f"--embeddings_name_or_path and --freeze_embeddings do not work with {kind}: write --model_type "
                "star_transformer"
            )
        return _of_transformers(kind, fields, overrides, tokenizer)
    # The words of a saved model are not in its configuration.
    fields["encoder"] = without_lexicon(fields.get("encoder", {}))
    start, end = start_and_end(tokenizer)
    fields |= {"pad_token_id": tokenizer.pad_token_id, "bos_token_id": start, "eos_token_id": end}
    fields["vocab_size"] = len(tokenizer)
    fields = _with_overrides(fields, overrides)
    if embeddings_name_or_path is None:
        if freeze_embeddings:
            fields["encoder"]["freeze_embeddings"] = True
        return TextEncoderDecoderModel(TextEncoderDecoderConfig(**fields))
    encoder = fields.pop("encoder")
    # The default for given embeddings is that of the encoder alone, not that of a table shared with the output.
    if "encoder.scale_embedding" not in overrides:
        encoder.pop("scale_embedding", None)
    encoder_class = ENCODERS[encoder.pop("model_type", "star_transformer")]
    source = encoder_class.from_embeddings(
        embeddings_name_or_path,
        mode=embeddings_mode,
        freeze=freeze_embeddings,
        **({"vocabulary": tokenizer.get_vocab()} if embeddings_mode == "vectors" else hub),
        **encoder,
    )
    fields |= {"encoder": source.config, "share_embeddings": overrides.get("share_embeddings", False)}
    if "vocab_size" not in overrides:
        del fields["vocab_size"]  # the encoder's
    model = TextEncoderDecoderModel(TextEncoderDecoderConfig(**fields))
    names = model.encoder.state_dict().keys()
    model.encoder.load_state_dict({name: tensor for name, tensor in source.state_dict().items() if name in names})
    return model


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


def check_languages(tokenizer: PreTrainedTokenizerBase, name: str) -> None:
    """
    Raises:
        UserError: the tokenizer marks texts with a code of their language, which run_translation.py cannot set.
    """
    if hasattr(tokenizer, "src_lang"):
        raise UserError(
            f"The tokenizer of {name} marks texts with the code of a language, {tokenizer.src_lang} now: write "
            "--model_name_or_path facebook/bart-base, which has none, or train a fresh model without --tokenizer_name"
        )


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
