"""
An encoder of transformers, such as BERT, inside the embeddings (`backbone_config`).

Axes: N flat tokens  w width of its states
"""

import contextlib
import inspect

import torch
from torch import Tensor
from transformers import MODEL_MAPPING, PreTrainedConfig, PreTrainedModel

from .token_layout import TokenLayout


FROM_PADDING = (
    *("camembert", "data2vec-text", "esm", "ibert", "lilt", "longformer", "luke", "markuplm", "mpnet", "roberta"),
    *("roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Model types like RoBERTa (in transformers 5.23), which count positions from `pad_token_id + 1`."""


def first_position(config: PreTrainedConfig) -> int:
    """The position id that an encoder of transformers gives to a first token."""
    return (config.pad_token_id or 0) + 1 if config.model_type in FROM_PADDING else 0


def build_backbone(config: PreTrainedConfig) -> PreTrainedModel:
    """The encoder of `config` with random weights, without a pooler, which nothing would train."""
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
    Last hidden state `[N, w]` of the encoder inside, which reads one right-padded row a sequence: ids `[N]` or
    embeddings `[N, w]`, with types and positions `[N]`, or `None`. `is_frozen`: nothing of it is trained.
    """
    rows, mask = layout.to_rows(tokens), layout.row_mask
    as_ids = tokens.dim() == 1
    if as_ids:
        pad = getattr(backbone.config, "pad_token_id", None) or 0
        rows = rows.masked_fill(~mask, pad)
    inputs = {"input_ids" if as_ids else "inputs_embeds": rows}
    taken = inspect.signature(backbone.forward).parameters
    if position is not None and "position_ids" not in taken:
        raise ValueError(f"position_ids are given, and the {backbone.config.model_type} inside takes none: omit them.")
    if position is not None:
        inputs["position_ids"] = layout.to_rows(position + first_position(backbone.config))
    if types is not None and "token_type_ids" in taken and getattr(backbone.config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = layout.to_rows(types)
    # An empty sequence attends to its first column of padding: a softmax over nothing would be NaN.
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    inputs["attention_mask"] = (mask | (first & ~mask.any(1, keepdim=True))).long()
    # The gradient of `inputs_embeds` flows through frozen weights too.
    with torch.no_grad() if is_frozen and not tokens.requires_grad else contextlib.nullcontext():
        hidden = backbone(**inputs, return_dict=True).last_hidden_state
    return layout.from_rows(hidden)
