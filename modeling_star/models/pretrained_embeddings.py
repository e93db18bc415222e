"""
Pretrained embeddings: fresh models on a table of words or a whole encoder (`from_embeddings`), and how an encoder of
transformers, such as BERT, runs inside the embeddings (`backbone_config`).

Axes: N flat tokens  w width of its states
"""

import contextlib
import importlib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import MODEL_MAPPING, AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from .embeddings import first_position
from .modeling_encoder import EncoderPreTrainedModel
from .token_layout import TokenLayout


logger = logging.get_logger(__name__)

_FEW_VECTORS = 0.2


def model_on_encoder(
    cls: type[EncoderPreTrainedModel],
    name_or_path: str | Path,
    mode: str,
    freeze: bool,
    hub: dict[str, Any],
    fields: dict[str, Any],
) -> EncoderPreTrainedModel:
    """
    Args:
        cls: the class of the model.
        name_or_path, mode, freeze, fields: as in `from_embeddings`; mode "static" or "contextual".
        hub: `revision`, `token`, `cache_dir` as in `AutoModel.from_pretrained`.

    Raises:
        ValueError: mode is another.
    """
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
    cls: type[EncoderPreTrainedModel],
    path: str | Path,
    freeze: bool,
    vocabulary: dict[str, int] | None,
    fields: dict[str, Any],
) -> EncoderPreTrainedModel:
    """
    As `model_on_encoder`, from a file of word vectors.

    Raises:
        ValueError: there is no vocabulary, or no vector for any of its entries.
    """
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


def shape_of(
    cls: type[EncoderPreTrainedModel], config: PreTrainedConfig, fields: dict[str, Any], mode: str
) -> dict[str, Any]:
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
def _copy_table(model: EncoderPreTrainedModel, table: Tensor) -> None:
    model.get_input_embeddings().weight.copy_(table)


def check_taken(name: str | Path, missing: Iterable[str]) -> None:
    """
    Args:
        name: Hub name or folder of a model whose weights are copied.
        missing: the names of those that its file lacks, and that `from_pretrained` made random.

    Raises:
        ValueError: there are some.
    """
    lacking = sorted(missing)
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"The weights of {name} are not all there: its file lacks {', '.join(lacking[:3])}{more}. Copy its files "
            'again, or name another model, "bert-base-cased".'
        )


# ------ an encoder inside


def build_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """
    The encoder of `config` with fresh weights, without a pooler, which nothing would train.

    Raises:
        ValueError: it is no encoder of transformers.
    """
    if type(config) not in MODEL_MAPPING or config.is_encoder_decoder:
        raise ValueError(
            f"backbone_config is a {type(config).__name__}; the configuration of an encoder such as BERT is needed: "
            'AutoConfig.from_pretrained("bert-base-uncased").'
        )
    model_class = MODEL_MAPPING[type(config)]
    has_pooler = "add_pooling_layer" in inspect.signature(model_class.__init__).parameters
    return model_class(config, **({"add_pooling_layer": False} if has_pooler else {}))


def run_backbone(
    backbone: PreTrainedModel,
    layout: TokenLayout,
    tokens: Tensor,
    types: Tensor | None,
    position: Tensor | None,
    is_frozen: bool,
) -> Tensor:
    """
    Last hidden state of the encoder inside, which reads one right-padded row a sequence.

    Args:
        backbone: the encoder.
        layout: where the tokens lie.
        tokens: ids `[N]`, or embeddings `[N, w]`.
        types, position: `[N]`, counted from 0; or `None`.
        is_frozen: nothing of it is trained.

    Returns:
        `[N, w]`.

    Raises:
        ValueError: positions are given, and it takes none.
    """
    rows, mask = layout.to_right_padded(tokens)
    as_ids = tokens.dim() == 1
    if as_ids:
        pad = getattr(backbone.config, "pad_token_id", None) or 0
        rows = rows.masked_fill(~mask, pad)
    inputs = {"input_ids" if as_ids else "inputs_embeds": rows}
    taken = inspect.signature(backbone.forward).parameters
    if position is not None and "position_ids" not in taken:
        raise ValueError(f"position_ids are given, and the {backbone.config.model_type} inside takes none: omit them.")
    if position is not None:
        inputs["position_ids"] = layout.to_right_padded(position + first_position(backbone.config))[0]
    if types is not None and "token_type_ids" in taken and getattr(backbone.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = layout.to_right_padded(types)[0]
    # An empty sequence attends to its first column of padding: a softmax over nothing would be NaN.
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    inputs["attention_mask"] = (mask | (first & ~mask.any(1, keepdim=True))).long()
    # The gradient of `inputs_embeds` flows through frozen weights too.
    with torch.no_grad() if is_frozen and not tokens.requires_grad else contextlib.nullcontext():
        hidden = backbone(**inputs, return_dict=True).last_hidden_state
    return layout.from_right_padded(hidden)
