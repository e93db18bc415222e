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
    "token_type_embeddings": "token_type_embeddings",
    "norm": "LayerNorm",
}
_OF_BERT = (
    *("vocab_size", "hidden_size", "num_attention_heads", "intermediate_size", "type_vocab_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"),
    *("layer_norm_eps", "initializer_range", "pad_token_id", "tie_word_embeddings"),
)


@dataclass(frozen=True)
class _Head:
    """
    Where an encoder keeps the head of a task.

    Args:
        modules: modules of our head, and their names with theirs.
        activation: of its dense layer; `None`: that of the encoder's layers.
    """

    modules: dict[str, str]
    activation: str | None = None


@dataclass(frozen=True)
class _Family:
    """
    Where encoders of one kind keep what a BiG-Transformer has.

    Args:
        heads: by the name of our head's class, which ends that of the Auto class for theirs.
        layers: the list of layers.
        layer, embeddings: modules of ours, and their names in a layer and in the embeddings.
        fields: fields of our configuration, and their names in the encoder's.
        constants: fields of our configuration that the encoder's does not have.
    """

    heads: dict[str, _Head]
    layers: str = "encoder.layer"
    layer: dict[str, str] = field(default_factory=lambda: _LAYER)
    embeddings: dict[str, str] = field(default_factory=lambda: _EMBEDDINGS)
    fields: dict[str, str] = field(default_factory=lambda: {name: name for name in _OF_BERT})
    constants: dict[str, Any] = field(default_factory=dict)


def _heads(classifier: _Head, masked_lm: _Head) -> dict[str, _Head]:
    return {
        "ForSequenceClassification": classifier,
        "ForTokenClassification": _Head({"classifier": "classifier"}),
        "ForQuestionAnswering": _Head({"qa_outputs": "qa_outputs"}),
        "ForMaskedLM": masked_lm,
    }


def _masked_lm(dense: str, norm: str, decoder: str, activation: str | None = None) -> _Head:
    return _Head({"lm_head.dense": dense, "lm_head.layer_norm": norm, "lm_head.decoder": decoder}, activation)


def _classifier(dense: str, out_proj: str, activation: str) -> _Head:
    return _Head({"classifier.dense": dense, "classifier.out_proj": out_proj}, activation)


_ROBERTA = _Family(
    _heads(
        _classifier("classifier.dense", "classifier.out_proj", "tanh"),
        _masked_lm("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "gelu"),
    )
)
_FAMILIES = {
    "bert": _Family(
        _heads(
            _classifier("bert.pooler.dense", "classifier", "tanh"),
            _masked_lm(*(f"cls.predictions.{name}" for name in ("transform.dense", "transform.LayerNorm", "decoder"))),
        )
    ),
    "camembert": _ROBERTA,
    "distilbert": _Family(
        _heads(
            _classifier("pre_classifier", "classifier", "relu"),
            _masked_lm("vocab_transform", "vocab_layer_norm", "vocab_projector"),
        ),
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
        _heads(
            _classifier("classifier.dense", "classifier.out_proj", "gelu"),
            _masked_lm("generator_predictions.dense", "generator_predictions.LayerNorm", "generator_lm_head", "gelu"),
        ),
        fields={name: name for name in (*_OF_BERT, "embedding_size")},
        constants={"embedding_projection": "last"},
    ),
    "roberta": _ROBERTA,
    "xlm-roberta": _ROBERTA,
}
"""Model types whose block is BERT's."""


def kept_head(architectures: Sequence[str] | None) -> str:
    """The ending of our class that keeps the head of a checkpoint of these classes: "Model" if none does."""
    for name in architectures or []:
        if name == "BertForPreTraining":  # and the head of pairs of sentences, which nothing of ours has
            return "ForMaskedLM"
        for ending in _ROBERTA.heads:
            if name.endswith(ending):
                return ending
    return "Model"


def _warn_of_new_head(model_class: type, name_or_path: Any, why: str) -> None:
    logger.warning(f"The head of the {model_class.__name__} begins anew: {name_or_path} {why}.")


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


def big_transformer(
    cls: Any,
    source: str | Path | PreTrainedModel,
    layers: Sequence[int] | None,
    radius: int,
    hub: dict[str, Any],
    fields: dict[str, Any],
    max_positions: int | None,
    positions: str,
) -> PreTrainedModel:
    """`BigTransformerPreTrainedModel.from_encoder`, without a lexicon."""
    if isinstance(source, PreTrainedModel):
        config, name_or_path, architectures = source.config, source.name_or_path, [type(source).__name__]
    else:
        config, name_or_path = AutoConfig.from_pretrained(source, **hub), source
        architectures = config.architectures or []
    _check_family(config, name_or_path)
    head = _head_to_keep(cls, architectures, config, name_or_path, fields)
    taken = fields_from_encoder(config, layers, radius, max_positions, head)
    if "id2label" in fields:
        taken["label2id"] = {label: number for number, label in fields["id2label"].items()}
    model = cls(cls.config_class(**{**taken, **fields}))
    encoder = source if isinstance(source, PreTrainedModel) else load_encoder(source, config, head, hub)
    family, target = _FAMILIES[config.model_type], model._encoder
    if head != "Model":
        _copy(model, encoder, family.heads[head].modules)
    encoder = encoder.base_model
    _copy(target.embeddings, encoder.embeddings, family.embeddings)
    if hasattr(encoder, "embeddings_project"):
        _copy(target.embeddings, encoder, {"projection": "embeddings_project"})
    if (table := target.embeddings.position_embeddings) is not None:
        rows = encoder.embeddings.position_embeddings.weight.detach().to(table.weight)[first_position(config) :]
        table.weight = nn.Parameter(_positions(rows, table.num_embeddings, positions))
    all_layers = encoder.get_submodule(family.layers)
    for layer, index in zip(target.layers, _chosen_layers(config, layers), strict=True):
        _copy(layer, all_layers[index], family.layer)
    return model.eval()


def is_like_bert(config: PreTrainedConfig) -> bool:
    """Whether an encoder's block is BERT's, with absolute positions."""
    positions, is_decoder = (getattr(config, name, None) for name in ("position_embedding_type", "is_decoder"))
    return config.model_type in _FAMILIES and not is_decoder and positions in (None, "absolute")


def _check_family(config: PreTrainedConfig, name_or_path: str | Path) -> None:
    """Raise where an encoder's block is not BERT's, and say what becomes what."""
    if not is_like_bert(config):
        if config.model_type in ("big_transformer", "window_modernbert"):
            raise ValueError(f"{name_or_path} is a {config.model_type}, which needs no conversion: use it as it is.")
        advice = 'BigTransformerModel.from_encoder("bert-base-uncased")'
        if config.model_type == "modernbert":
            advice = f'WindowModernBertModel.from_encoder("{name_or_path}")'
        kind = f"a {config.model_type}"
        if config.model_type in _FAMILIES:
            kind += " that is a decoder" if config.is_decoder else f" with {config.position_embedding_type} positions"
        raise ValueError(
            f"{name_or_path} is {kind}; an encoder with absolute positions of type {', '.join(_FAMILIES)} becomes a "
            f"BiG-Transformer, and a modernbert a WindowModernBert: {advice}."
        )


def _head_to_keep(
    cls: type, architectures: Sequence[str], config: PreTrainedConfig, name_or_path: Any, fields: dict[str, Any]
) -> str:
    """`kept_head` where `cls` has it with as many labels, else "Model"; a head that is not kept is named."""
    classes, kept = [base.__name__ for base in cls.__mro__], kept_head(architectures)
    wanted = next((ending for ending in _ROBERTA.heads if ending in classes), "Model")
    labels = fields.get("num_labels", len(fields.get("id2label", config.id2label)))
    has_labels = wanted in ("ForSequenceClassification", "ForTokenClassification")
    if wanted == "Model" or (wanted == kept and (labels == config.num_labels or not has_labels)):
        return wanted
    why = f"is a {', '.join(architectures) or config.model_type}"
    _warn_of_new_head(cls, name_or_path, why + f" of {config.num_labels} labels" * (wanted == kept))
    return "Model"


def fields_from_encoder(
    source: PreTrainedConfig,
    layers: Sequence[int] | None,
    radius: int,
    max_positions: int | None = None,
    head: str = "Model",
) -> dict[str, Any]:
    """
    The fields of `BigTransformerConfig` that make its layers those of an encoder.

    Args:
        source: its configuration.
        layers: indices of the layers that are taken; all where `None`.
        radius: neighbours on either side.
        max_positions: the longest text; the encoder's where `None`.
        head: the ending of the class whose head is kept; "Model": none.

    Raises:
        ValueError: the encoder lacks one of the layers.
    """
    chosen = _chosen_layers(source, layers)
    family = _FAMILIES[source.model_type]
    taken = {name: getattr(source, theirs) for name, theirs in family.fields.items()} | family.constants
    if max_positions is None:
        max_positions = source.max_position_embeddings - first_position(source)
    if head != "Model":
        of_head = ("id2label", "label2id", "problem_type", "task_specific_params")
        taken |= {name: getattr(source, name) for name in of_head if hasattr(source, name)}
        taken["head_act"] = family.heads[head].activation
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


def load_encoder(
    name_or_path: str | Path, config: PreTrainedConfig, head: str, hub: dict[str, Any]
) -> PreTrainedModel:
    """An encoder with all weights of its file, with its head where this is kept."""
    options = {"dtype": torch.float32, "output_loading_info": True, **hub}
    if head == "Model" and "add_pooling_layer" in inspect.signature(MODEL_MAPPING[type(config)].__init__).parameters:
        options["add_pooling_layer"] = False
    auto_class = getattr(transformers, f"AutoModel{head.removeprefix('Model')}")
    source, report = auto_class.from_pretrained(name_or_path, **options)
    check_taken(name_or_path, report["missing_keys"])
    return source


def _positions(table: Tensor, count: int, how: str) -> Tensor:
    """
    `count` rows of a table of positions `[n, d]`: again and again ("repeated"), or stretched evenly from the first
    row to the last ("interpolated").
    """
    if how not in ("repeated", "interpolated"):
        raise ValueError(f'positions={how!r} is given; "repeated" or "interpolated" is allowed.')
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
    for to_name, from_name in names.items():
        values = dict(source.get_submodule(from_name).named_parameters())
        for name, parameter in target.named_parameters():
            if not name.startswith(f"{to_name}."):
                continue
            rest = name.removeprefix(f"{to_name}.")
            if rest not in values:
                raise ValueError(
                    f"{name} is not in the encoder's {from_name}, which is no plain layer: merge its adapters first, "
                    "model.merge_and_unload()."
                )
            if parameter.shape != values[rest].shape:
                raise ValueError(
                    f"{name} has shape {list(parameter.shape)}, and the encoder's {list(values[rest].shape)}: omit "
                    "the field of the configuration that changes it."
                )
            parameter.copy_(values[rest])


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
    new = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    of_head = {name for name in new if name.startswith(("head.", "decoder.", "classifier."))}
    check_taken(name_or_path, new - of_head)
    if of_head:
        _warn_of_new_head(cls, name_or_path, f"lacks {min(of_head)} in this size")
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
