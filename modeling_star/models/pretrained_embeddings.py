"""Fresh models on pretrained embeddings: a table of words, or a whole encoder inside. See `from_embeddings`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.utils import logging

from .modeling_encoder import EncoderPreTrainedModel, installed


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
    table, has_vector = installed("data.vectors").read_vectors(path, vocabulary, fields.get("embedding_size"))
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
