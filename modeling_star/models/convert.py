"""
Models made of another encoder: its embeddings below ours, its layers as those of a BiG-Transformer, or a ModernBERT
with other masks.

A BiG-Transformer's layer is a BERT layer with fewer candidates. Key biases are not copied: every candidate has one
key, so that the bias adds the same to all scores of a softmax.
"""

import importlib
import inspect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .backbone import first_position


logger = logging.get_logger(__name__)

_FEW_VECTORS = 0.2

# ------ what each kind of encoder has, and where

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
        heads: the heads that are taken, by the name of our head's class, which ends that of the Auto class for theirs;
            modules of ours, and their names with theirs.
        layers: the list of layers.
        layer, embeddings: modules of ours, and their names in a layer and in the embeddings.
        fields: fields of our configuration, and their names in the encoder's.
        constants: fields of our configuration that the encoder's does not have.
    """

    heads: dict[str, dict[str, str]] = field(default_factory=dict)
    layers: str = "encoder.layer"
    layer: dict[str, str] = field(default_factory=lambda: _LAYER)
    embeddings: dict[str, str] = field(default_factory=lambda: _EMBEDDINGS)
    fields: dict[str, str] = field(default_factory=lambda: {name: name for name in _OF_BERT})
    constants: dict[str, Any] = field(default_factory=dict)


def _masked_lm(dense: str, norm: str, decoder: str) -> dict[str, dict[str, str]]:
    return {"ForMaskedLM": {"lm_head.dense": dense, "lm_head.layer_norm": norm, "lm_head.decoder": decoder}}


_ROBERTA = _Family(_masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"))
_FAMILIES = {
    "bert": _Family(
        _masked_lm("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm", "cls.predictions.decoder")
    ),
    "camembert": _ROBERTA,
    "distilbert": _Family(
        _masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector"),
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
        fields={name: name for name in (*_OF_BERT, "embedding_size")},
        constants={"embedding_projection": "last"},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""Model types whose block is BERT's."""


def kept_head(config: PreTrainedConfig) -> str:
    """The ending of our class that keeps all that is taken of a checkpoint: "ForMaskedLM", or "Model" without head."""
    has_head = any(name.endswith(("ForMaskedLM", "ForPreTraining")) for name in config.architectures or [])
    family = _FAMILIES.get(config.model_type)  # a ModernBERT has none, and keeps its heads
    return "ForMaskedLM" if has_head and (family is None or "ForMaskedLM" in family.heads) else "Model"


def _chosen_layers(config: PreTrainedConfig, layers: Sequence[int] | None, needs_first: bool = False) -> list[int]:
    """The indices of the layers that are taken, all where `layers` is `None`; `needs_first`: 0 first, and once."""
    count = config.num_hidden_layers
    chosen = list(range(count) if layers is None else layers)
    begins = chosen[:1] == [0] and 0 not in chosen[1:]
    if not chosen or any(index not in range(count) for index in chosen) or (needs_first and not begins):
        reason = ", of which the first has no norm" if needs_first else ""
        raise ValueError(
            f"layers={chosen} are given; the {config.model_type} has 0 to {count - 1}{reason}: "
            f"layers={list(range(count))[::2]}."
        )
    return chosen


def check_taken(name: str | Path, missing: Iterable[str]) -> None:
    """Raise where `from_pretrained` made weights random, `missing`, which the file of a model lacks."""
    lacking = sorted(missing)
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"The weights of {name} are not all there: its file lacks {', '.join(lacking[:3])}{more}. Copy its files "
            'again, or name another model, "bert-base-cased".'
        )


# ------ BERT and its kin to a BiG-Transformer


def read_encoder_config(name_or_path: str | Path, hub: dict[str, Any]) -> PreTrainedConfig:
    """The configuration of an encoder whose block is BERT's, or an error that says what becomes what."""
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    positions, is_decoder = (getattr(config, name, None) for name in ("position_embedding_type", "is_decoder"))
    if config.model_type not in _FAMILIES or is_decoder or positions not in (None, "absolute"):
        advice = 'BigTransformerModel.from_encoder("bert-base-uncased")'
        if config.model_type == "modernbert":
            advice = f'WindowModernBertModel.from_encoder("{name_or_path}")'
        kind = f"a {config.model_type}"
        if config.model_type in _FAMILIES:
            kind += " that is a decoder" if is_decoder else f" with {positions} positions"
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
    chosen = _chosen_layers(source, layers)
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
    model: Any, name_or_path: str | Path, layers: Sequence[int] | None, hub: dict[str, Any], positions: str
) -> None:
    """Copy embeddings, layers and the head, where it is taken, into a model of the shape of `fields_from_encoder`."""
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    family, encoder = _FAMILIES[config.model_type], model._encoder
    source = _source_with_head(model, family, config, name_or_path, hub)
    table = source.embeddings.position_embeddings
    rows = table.weight.detach()[first_position(config) :]
    table.weight = nn.Parameter(_positions(rows, encoder.embeddings.position_embeddings, positions))
    _copy(encoder.embeddings, source.embeddings, family.embeddings)
    if hasattr(source, "embeddings_project"):
        _copy(encoder.embeddings, source, {"projection": "embeddings_project"})
    all_layers = source.get_submodule(family.layers)
    for target, index in zip(encoder.layers, _chosen_layers(config, layers), strict=True):
        _copy(target, all_layers[index], family.layer)


def _source_with_head(
    model: Any, family: _Family, config: PreTrainedConfig, name_or_path: str | Path, hub: dict[str, Any]
) -> Any:
    """The encoder to copy; the head above it is copied into `model` where it is taken and the checkpoint has it."""
    options = {"dtype": torch.float32, "output_loading_info": True, **hub}
    classes = [base.__name__ for base in type(model).__mro__]
    head = next((name for name in family.heads if name in classes), None)
    if head is None:
        if "add_pooling_layer" in inspect.signature(MODEL_MAPPING[type(config)].__init__).parameters:
            options["add_pooling_layer"] = False
        source, report = AutoModel.from_pretrained(name_or_path, **options)
        check_taken(name_or_path, report["missing_keys"])
        is_new = "ForMaskedLM" in classes
    else:
        with_head, report = getattr(transformers, f"AutoModel{head}").from_pretrained(name_or_path, **options)
        source = with_head.base_model
        below = f"{with_head.base_model_prefix}."
        check_taken(name_or_path, (key for key in report["missing_keys"] if key.startswith(below)))
        # A decoder is the embedding table.
        needed = [theirs for ours, theirs in family.heads[head].items() if not ours.endswith("decoder")]
        is_new = any(key.startswith(tuple(needed)) for key in report["missing_keys"])
        if not is_new:
            _copy(model, with_head, family.heads[head])
    if is_new:
        logger.warning(f"{name_or_path} has no head of a masked language model that is taken: the model's is new.")
    return source


def _positions(table: Tensor, target: nn.Embedding | None, how: str) -> Tensor:
    """
    The rows of a table of positions `[n, d]` for a longer one: again and again ("repeated"), or stretched evenly from
    the first row to the last ("interpolated").
    """
    if how not in ("repeated", "interpolated"):
        raise ValueError(f'positions={how!r} is given; "repeated" or "interpolated" is allowed.')
    count = len(table) if target is None else target.num_embeddings
    if how == "repeated" or count <= len(table):
        return table[torch.arange(count) % len(table)]
    stretched = nn.functional.interpolate(table.T[None], size=count, mode="linear", align_corners=True)
    return stretched[0].T.contiguous()


@torch.no_grad()
def _copy(target: nn.Module, source: nn.Module, names: dict[str, str]) -> None:
    """
    Copy the parameters of submodules, by their names in both modules. What the target lacks is left out: the bias of
    keys, embeddings that the configuration omits.
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


# ------ ModernBERT with other masks


def window_modernbert(
    cls: type[PreTrainedModel],
    name_or_path: str | Path,
    layers: Sequence[int] | None,
    radius: int,
    hub: dict[str, Any],
    fields: dict[str, Any],
) -> PreTrainedModel:
    """`WindowModernBertPreTrainedModel.from_encoder`: the weights of the class of transformers below `cls`."""
    config = AutoConfig.from_pretrained(name_or_path, **hub)
    if config.model_type != "modernbert":
        raise ValueError(
            f"{name_or_path} has model_type={config.model_type!r}; a modernbert is needed: write "
            'from_encoder("jhu-clsp/ettin-encoder-32m"). BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT and ELECTRA '
            'become a BiG-Transformer: BigTransformerModel.from_encoder("bert-base-uncased").'
        )
    chosen = _chosen_layers(config, layers, needs_first=True)
    taken = {**config.to_dict(), "num_hidden_layers": len(chosen), "global_radius": radius}
    taken["layer_types"] = [config.layer_types[index] for index in chosen]
    for name in ("model_type", "architectures", "transformers_version", "auto_map", "dtype", "num_labels"):
        taken.pop(name, None)
    if "num_labels" in fields:
        taken.pop("id2label", None)
        taken.pop("label2id", None)
    model = cls(cls.config_class(**{**taken, **fields}))
    source_class: Any = next(
        base for base in cls.__mro__ if base.__module__.startswith("transformers.models.modernbert")
    )
    options = {"dtype": torch.float32, "output_loading_info": True, **hub}
    if "num_labels" in fields:
        options |= {"num_labels": fields["num_labels"], "ignore_mismatched_sizes": True}
    source, report = source_class.from_pretrained(name_or_path, **options)
    heads = ("head.", "decoder.", "classifier.")
    check_taken(name_or_path, (key for key in report["missing_keys"] if not key.startswith(heads)))
    number = {str(index): str(new) for new, index in enumerate(chosen)}
    weights = {}
    for name, value in source.state_dict().items():
        before, layer, after = name.partition("layers.")
        index, _, rest = after.partition(".")
        if not layer or index in number:
            weights[f"{before}{layer}{number[index]}.{rest}" if layer else name] = value
    model.load_state_dict(weights)
    return model.eval()


# ------ embeddings below one of our encoders


def model_on_encoder(
    cls: Any,
    name_or_path: str | Path,
    mode: str,
    freeze: bool,
    hub: dict[str, Any],
    fields: dict[str, Any],
) -> PreTrainedModel:
    """`from_embeddings` of an encoder of transformers, mode "static" or "contextual"."""
    if mode not in ("static", "contextual"):
        raise ValueError(f'mode={mode!r} is given; "static", "contextual" or "vectors" is allowed.')
    source_config = AutoConfig.from_pretrained(name_or_path, **hub)
    source, report = AutoModel.from_pretrained(
        name_or_path, config=source_config, dtype=torch.float32, output_loading_info=True, **hub
    )
    table = source.get_input_embeddings().weight
    taken = {"vocab_size": len(table), "freeze_embeddings": freeze, "pad_token_id": source_config.pad_token_id}
    if mode == "contextual":
        # The encoder inside has positions already.
        taken |= {"backbone_config": source_config, "position_embedding_type": "none"}
    else:
        taken["embedding_size"] = table.shape[1]
        names = {name for name, weight in source.named_parameters() if weight is table}
        check_taken(name_or_path, names & {*report["missing_keys"]})
    model = cls(cls.config_class(**{**taken, **fields}))
    if mode == "contextual":
        backbone = model._embeddings.backbone
        names = backbone.state_dict().keys()  # without the pooler's
        check_taken(name_or_path, names & {*report["missing_keys"]})
        backbone.load_state_dict({k: v for k, v in source.state_dict().items() if k in names})
    else:
        _copy_table(model, table.detach())
    return model


def model_on_vectors(
    cls: Any,
    path: str | Path,
    freeze: bool,
    vocabulary: dict[str, int] | None,
    fields: dict[str, Any],
) -> PreTrainedModel:
    """`from_embeddings` of a file of word vectors."""
    if vocabulary is None:
        raise ValueError('mode="vectors" needs the ids of the words: vocabulary=tokenizer.get_vocab().')
    # By its name: the code in a saved folder works without the package.
    try:
        vectors = importlib.import_module("modeling_star.data.vectors")
    except ModuleNotFoundError as error:
        raise ImportError("Files of vectors need the package modeling-star: pip install . in its checkout") from error
    table, has_vector = vectors.read_vectors(path, vocabulary, fields.get("embedding_size"))
    logger.info(f"{path}: vectors found for {int(has_vector.sum())} of {len(vocabulary)} vocabulary entries.")
    if not has_vector.any():
        raise ValueError(f"{path} has a vector for none of the {len(vocabulary)} vocabulary entries.")
    if has_vector.float().mean() < _FEW_VECTORS:
        logger.warning(
            f"{path} has vectors for only {int(has_vector.sum())} of {len(vocabulary)} vocabulary entries; the "
            "others are random. Check its language, its encoding (UTF-8) and whether it keeps capitals."
        )
    # Entries without a vector start at the scale of those with one.
    table[~has_vector] = torch.randn(int((~has_vector).sum()), table.shape[1]) * table[has_vector].std()
    taken = {"vocab_size": len(table), "embedding_size": table.shape[1], "freeze_embeddings": freeze}
    model = cls(cls.config_class(**{**taken, **fields}))
    _copy_table(model, table)
    return model


def shape_of(cls: Any, config: PreTrainedConfig, fields: dict[str, Any], mode: str) -> dict[str, Any]:
    """The fields of a configuration, without those about embeddings and words, overridden by others."""
    if not isinstance(config, cls.config_class):
        raise ValueError(
            f"config is a {type(config).__name__}; {cls.__name__} needs a {cls.config_class.__name__}, such as "
            f'{cls.config_class.__name__}.from_pretrained("configuration/models/star-plus.json").'
        )
    shape = cls.config_class.overridden(config.to_dict(), fields)
    others = {"vocab_size", "embedding_size", "backbone_config", "freeze_embeddings", "pad_token_id"}
    others |= {"lexicon_kind", "lexicon_size"}  # words are saved with weights
    if mode == "contextual" and shape["position_embedding_type"] == cls.config_class().position_embedding_type:
        others.add("position_embedding_type")  # the default: the encoder inside decides
    return {name: value for name, value in shape.items() if name in fields or name not in others}


@torch.no_grad()
def _copy_table(model: PreTrainedModel, table: Tensor) -> None:
    model.get_input_embeddings().weight.copy_(table)
