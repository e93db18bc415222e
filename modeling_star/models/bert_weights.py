"""
A BERT's weights in a BiG-Transformer, whose layer is a BERT layer with fewer candidates.

Key biases are not copied: every candidate has one key, so that the bias adds the same to all scores of a softmax.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedConfig
from transformers.utils import logging

from .utils import check_taken


logger = logging.get_logger(__name__)

# Modules of one of our layers, and those of a BERT layer.
_LAYER = {
    "attention.projections.query": "attention.self.query",
    "attention.projections.key": "attention.self.key",
    "attention.projections.value": "attention.self.value",
    "attention.projections.output": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
    "output_norm": "output.LayerNorm",
}
_EMBEDDINGS = {
    "word_embeddings": "word_embeddings",
    "position_embeddings": "position_embeddings",
    "token_type_embeddings": "token_type_embeddings",
    "norm": "LayerNorm",
}
_MASKED_LM_HEAD = {"dense": "transform.dense", "layer_norm": "transform.LayerNorm", "decoder": "decoder"}


def read_bert_config(name_or_path: str | Path, hub: dict[str, Any]) -> PreTrainedConfig:
    """
    The configuration of a BERT.

    Args:
        name_or_path: a Hub name or a folder.
        hub: keywords for `from_pretrained`.

    Raises:
        ValueError: it is another kind of model.
    """
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    positions, is_decoder = (getattr(config, name, None) for name in ("position_embedding_type", "is_decoder"))
    if config.model_type != "bert" or is_decoder or positions not in (None, "absolute"):
        raise ValueError(
            f"{name_or_path} has model_type={config.model_type!r}, position_embedding_type={positions!r} and "
            f"is_decoder={is_decoder}; a BERT encoder with absolute positions is needed: "
            'from_bert("bert-base-uncased").'
        )
    return config


def fields_from_bert(bert: PreTrainedConfig, layers: Sequence[int] | None, radius: int) -> dict[str, Any]:
    """
    The fields of `BigTransformerConfig` that make its layers those of a BERT.

    Args:
        bert: its configuration.
        layers: indices of the layers that are taken; all where `None`.
        radius: neighbours on either side.

    Raises:
        ValueError: the BERT lacks one of the layers.
    """
    chosen = range(bert.num_hidden_layers) if layers is None else layers
    if not chosen or any(index not in range(bert.num_hidden_layers) for index in chosen):
        raise ValueError(
            f"layers={list(chosen)} are given; the BERT has 0 to {bert.num_hidden_layers - 1}: "
            f"layers={list(range(bert.num_hidden_layers))[::2]}."
        )
    same = (
        *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size", "hidden_act"),
        *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "max_position_embeddings"),
        *("layer_norm_eps", "initializer_range", "pad_token_id"),
    )
    return {
        **{name: getattr(bert, name) for name in same},
        "num_hidden_layers": len(chosen),
        "embedding_dropout_prob": bert.hidden_dropout_prob,
        "embedding_norm": True,
        "position_embedding_type": "learned",
        "local_connection": "window",
        "window_radius": radius,
        "word_vector": "mean",
        "global_node": "first",
        "pooling": "global",
    }


def copy_bert(
    encoder: Any,
    name_or_path: str | Path,
    layers: Sequence[int] | None,
    hub: dict[str, Any],
    masked_lm_head: nn.Module | None = None,
) -> None:
    """
    Copy embeddings and layers of a BERT into the bare BiG-Transformer that `fields_from_bert` describes.

    Args:
        encoder: the bare BiG-Transformer.
        name_or_path, layers, hub: as in `read_bert_config` and `fields_from_bert`.
        masked_lm_head: takes the BERT's head of masked words, where the checkpoint has one.
    """
    if masked_lm_head is None:
        bert, report = AutoModel.from_pretrained(
            name_or_path, add_pooling_layer=False, dtype=torch.float32, output_loading_info=True, **hub
        )
        check_taken(name_or_path, report["missing_keys"])
    else:
        bert = _copy_head(masked_lm_head, name_or_path, hub)
    _copy(encoder.embeddings, bert.embeddings, _EMBEDDINGS)
    chosen = range(len(bert.encoder.layer)) if layers is None else layers
    for target, index in zip(encoder.layers, chosen, strict=True):
        _copy(target, bert.encoder.layer[index], _LAYER)


def _copy_head(head: nn.Module, name_or_path: str | Path, hub: dict[str, Any]) -> nn.Module:
    """Copy the head of a masked language model, and return the BERT below it."""
    source, report = AutoModelForMaskedLM.from_pretrained(
        name_or_path, dtype=torch.float32, output_loading_info=True, **hub
    )
    check_taken(name_or_path, (key for key in report["missing_keys"] if not key.startswith("cls.")))
    if any(key.startswith("cls.predictions.transform") for key in report["missing_keys"]):
        logger.warning(f"{name_or_path} has no head of a masked language model: the model's is new.")
    else:
        _copy(head, source.cls.predictions, _MASKED_LM_HEAD)
    return source.bert


@torch.no_grad()
def _copy(target: nn.Module, source: nn.Module, names: dict[str, str]) -> None:
    """
    Copy the parameters of submodules, by their names in both modules. What the target lacks is left out: the bias of
    keys, embeddings that the configuration omits.

    Raises:
        ValueError: the target's have another shape.
    """
    parameters = dict(target.named_parameters())
    for to_name, from_name in names.items():
        for name, value in source.get_submodule(from_name).named_parameters():
            parameter = parameters.get(f"{to_name}.{name}")
            if parameter is not None and parameter.shape != value.shape:
                raise ValueError(
                    f"{to_name}.{name} has shape {list(parameter.shape)}, and the BERT's {list(value.shape)}: omit "
                    "the field of the configuration that changes it."
                )
            if parameter is not None:
                parameter.copy_(value)


__all__ = ["copy_bert", "fields_from_bert", "read_bert_config"]
