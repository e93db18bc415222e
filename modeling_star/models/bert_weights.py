"""
The weights of a BERT, or of an encoder with its block, in a BiG-Transformer, whose layer is a BERT layer with fewer
candidates.

Key biases are not copied: every candidate has one key, so that the bias adds the same to all scores of a softmax.
"""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedConfig
from transformers.utils import logging

from .embeddings import first_position
from .pretrained_embeddings import check_taken


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
_OF_BERT = (
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("layer_norm_eps", "initializer_range", "pad_token_id", "tie_word_embeddings"),
)


@dataclass(frozen=True)
class _Family:
    """
    Where encoders of one kind keep what a BiG-Transformer has.

    Args:
        head: the module of a masked language model, beside which its others are; `None` where none is copied.
        head_modules: those of our head, and their names there.
        layers: the list of layers.
        layer, embeddings: modules of ours, and their names in a layer and in the embeddings.
        fields: fields of our configuration, and their names in the encoder's.
        constants: fields of our configuration that the encoder's does not have.
    """

    head: str | None
    head_modules: dict[str, str] = field(default_factory=dict)
    layers: str = "encoder.layer"
    layer: dict[str, str] = field(default_factory=lambda: _LAYER)
    embeddings: dict[str, str] = field(default_factory=lambda: _EMBEDDINGS)
    fields: dict[str, str] = field(default_factory=lambda: {name: name for name in _OF_BERT})
    constants: dict[str, Any] = field(default_factory=dict)


_ROBERTA = _Family("lm_head", {"dense": "dense", "layer_norm": "layer_norm", "decoder": "decoder"})
_FAMILIES = {
    "bert": _Family(
        "cls.predictions", {"dense": "transform.dense", "layer_norm": "transform.LayerNorm", "decoder": "decoder"}
    ),
    "camembert": _ROBERTA,
    "distilbert": _Family(
        "",
        {"dense": "vocab_transform", "layer_norm": "vocab_layer_norm", "decoder": "vocab_projector"},
        layers="transformer.layer",
        layer={
            "attention.projections.query": "attention.q_lin",
            "attention.projections.key": "attention.k_lin",
            "attention.projections.value": "attention.v_lin",
            "attention.projections.output": "attention.out_lin",
            "attention_norm": "sa_layer_norm",
            "intermediate": "ffn.lin1",
            "output": "ffn.lin2",
            "output_norm": "output_layer_norm",
        },
        embeddings={name: source for name, source in _EMBEDDINGS.items() if name != "token_type_embeddings"},
        fields={
            "vocab_size": "vocab_size",
            "hidden_size": "dim",
            "num_attention_heads": "n_heads",
            "intermediate_size": "hidden_dim",
            "hidden_act": "activation",
            "hidden_dropout_prob": "dropout",
            "attention_probs_dropout_prob": "attention_dropout",
            "classifier_dropout": "seq_classif_dropout",
            "initializer_range": "initializer_range",
            "pad_token_id": "pad_token_id",
            "tie_word_embeddings": "tie_word_embeddings",
        },
        constants={"layer_norm_eps": 1e-12},
    ),
    "electra": _Family(
        None,
        fields={name: name for name in (*_OF_BERT, "embedding_size")},
        constants={"embedding_projection": "last"},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""Model types whose block is BERT's."""


def read_encoder_config(name_or_path: str | Path, hub: dict[str, Any]) -> PreTrainedConfig:
    """
    The configuration of an encoder whose block is BERT's.

    Raises:
        ValueError: it is another kind of model.
    """
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    positions, is_decoder = (getattr(config, name, None) for name in ("position_embedding_type", "is_decoder"))
    if config.model_type not in _FAMILIES or is_decoder or positions not in (None, "absolute"):
        advice = 'BigTransformerModel.from_encoder("bert-base-uncased")'
        if config.model_type == "modernbert":
            advice = f'WindowModernBertModel.from_encoder("{name_or_path}")'
        kind = f"a {config.model_type}" + (
            ""
            if config.model_type not in _FAMILIES
            else " that is a decoder"
            if is_decoder
            else f" with {positions} positions"
        )
        raise ValueError(
            f"{name_or_path} is {kind}; an encoder with absolute positions of type {', '.join(_FAMILIES)} becomes a "
            f"BiG-Transformer, and a modernbert a WindowModernBert: {advice}."
        )
    return config


def fields_from_encoder(
    source: PreTrainedConfig, layers: Sequence[int] | None, radius: int, max_positions: int | None = None
) -> dict[str, Any]:
    """
    The fields of `BigTransformerConfig` that make its layers those of an encoder.

    Args:
        source: its configuration.
        layers: indices of the layers that are taken; all where `None`.
        radius: neighbours on either side.
        max_positions: the longest text; the encoder's where `None`.

    Raises:
        ValueError: the encoder lacks one of the layers.
    """
    count = source.num_hidden_layers
    chosen = range(count) if layers is None else layers
    if not chosen or any(index not in range(count) for index in chosen):
        raise ValueError(
            f"layers={list(chosen)} are given; the {source.model_type} has 0 to {count - 1}: "
            f"layers={list(range(count))[::2]}."
        )
    family = _FAMILIES[source.model_type]
    taken = {name: getattr(source, theirs) for name, theirs in family.fields.items()} | family.constants
    if max_positions is None:
        max_positions = source.max_position_embeddings - first_position(source)
    return {
        **taken,
        "num_hidden_layers": len(chosen),
        "max_position_embeddings": max_positions,
        "embedding_dropout_prob": taken["hidden_dropout_prob"],
        "embedding_norm": True,
        "position_embedding_type": "learned",
        "local_connection": "window",
        "window_radius": radius,
        "word_vector": "mean",
        "global_node": "first",
        "pooling": "global",
    }


def copy_encoder(
    encoder: Any,
    name_or_path: str | Path,
    layers: Sequence[int] | None,
    hub: dict[str, Any],
    masked_lm_head: nn.Module | None = None,
    positions: str = "repeated",
) -> None:
    """
    Copy embeddings and layers into the bare BiG-Transformer that `fields_from_encoder` describes.

    Args:
        encoder: the bare BiG-Transformer.
        name_or_path, layers, hub: as in `read_encoder_config` and `fields_from_encoder`.
        masked_lm_head: takes the encoder's head of masked words, where the checkpoint has one.
        positions: how a longer table is filled, "repeated" or "interpolated".
    """
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    family = _FAMILIES[config.model_type]
    if masked_lm_head is None or family.head is None:
        has_pooler = "add_pooling_layer" in inspect.signature(MODEL_MAPPING[type(config)].__init__).parameters
        options = {"add_pooling_layer": False} if has_pooler else {}
        source, report = AutoModel.from_pretrained(
            name_or_path, dtype=torch.float32, output_loading_info=True, **options, **hub
        )
        check_taken(name_or_path, report["missing_keys"])
        if masked_lm_head is not None:
            _warn_of_new_head(name_or_path)
    else:
        source = _copy_head(masked_lm_head, family, name_or_path, hub)
    table = source.embeddings.position_embeddings
    rows = table.weight.detach()[first_position(config) :]
    table.weight = nn.Parameter(_positions(rows, encoder.embeddings.position_embeddings, positions))
    _copy(encoder.embeddings, source.embeddings, family.embeddings)
    if hasattr(source, "embeddings_project"):
        _copy(encoder.embeddings, source, {"projection": "embeddings_project"})
    all_layers = source.get_submodule(family.layers)
    chosen = range(len(all_layers)) if layers is None else layers
    for target, index in zip(encoder.layers, chosen, strict=True):
        _copy(target, all_layers[index], family.layer)


def _positions(table: Tensor, target: nn.Embedding | None, how: str) -> Tensor:
    """
    The rows of a longer table.

    Args:
        table: `[n, d]`, the encoder's.
        target: the embedding that takes them; `None` where there is none.
        how: "repeated", the table again and again, or "interpolated", stretched evenly from its first row to its last.

    Raises:
        ValueError: `how` is neither.
    """
    if how not in ("repeated", "interpolated"):
        raise ValueError(f'positions={how!r} is given; "repeated" or "interpolated" is allowed.')
    count = len(table) if target is None else target.num_embeddings
    if how == "repeated" or count <= len(table):
        return table[torch.arange(count) % len(table)]
    stretched = nn.functional.interpolate(table.T[None], size=count, mode="linear", align_corners=True)
    return stretched[0].T.contiguous()


def _warn_of_new_head(name_or_path: str | Path) -> None:
    logger.warning(f"{name_or_path} has no head of a masked language model that is taken: the model's is new.")


def _copy_head(head: nn.Module, family: _Family, name_or_path: str | Path, hub: dict[str, Any]) -> nn.Module:
    """Copy the head of a masked language model, and return the encoder below it."""
    source, report = AutoModelForMaskedLM.from_pretrained(
        name_or_path, dtype=torch.float32, output_loading_info=True, **hub
    )
    below = f"{source.base_model_prefix}."
    check_taken(name_or_path, (key for key in report["missing_keys"] if key.startswith(below)))
    modules = [".".join(filter(None, (family.head, name))) for name in family.head_modules.values()]
    if any(key.startswith(tuple(modules[:2])) for key in report["missing_keys"]):
        _warn_of_new_head(name_or_path)
    else:
        _copy(head, source, dict(zip(family.head_modules, modules, strict=True)))
    return source.base_model


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
                    f"{to_name}.{name} has shape {list(parameter.shape)}, and the encoder's {list(value.shape)}: omit "
                    "the field of the configuration that changes it."
                )
            if parameter is not None:
                parameter.copy_(value)
