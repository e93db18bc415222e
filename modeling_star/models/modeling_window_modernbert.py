"""
ModernBERT (https://arxiv.org/abs/2412.13663) in time and memory that grow with the length.

Its layers with a sliding window stay as they are. In the others a token attends to a wider window and to [CLS], which
attends to all tokens. Classes and weights are those of transformers; only the masks differ, which are made before the
encoder runs.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    ModernBertForMaskedLM,
    ModernBertForQuestionAnswering,
    ModernBertForSequenceClassification,
    ModernBertForTokenClassification,
    ModernBertModel,
    PreTrainedModel,
)
from transformers.masking_utils import create_bidirectional_mask, create_bidirectional_sliding_window_mask

from .configuration_window_modernbert import WindowModernBertConfig
from .saving import code_apart
from .token_layout import is_traced
from .window_attention import ends_of, window_mask
from .window_interface import WINDOW, register_window_attention


register_window_attention()
_INPUTS = ("input_ids", "attention_mask", "position_ids", "inputs_embeds")


class WindowModernBertPreTrainedModel(PreTrainedModel):
    """What the models below share."""

    config_class = WindowModernBertConfig

    def __init__(self, config: WindowModernBertConfig, *args: Any, **kwargs: Any):
        super().__init__(config, *args, **kwargs)
        self.base_model.register_forward_pre_hook(_with_masks, with_kwargs=True)

    @classmethod
    def from_encoder(
        cls,
        name_or_path: str | Path,
        layers: Sequence[int] | None = None,
        radius: int = 128,
        *,
        revision: str = "main",
        token: str | bool | None = None,
        cache_dir: str | Path | None = None,
        **fields: Any,
    ) -> "WindowModernBertPreTrainedModel":
        """
        A model with the weights of a ModernBERT or Ettin encoder; its heads too, where the checkpoint has them.

        Where the radius covers the text, the outputs are those of the encoder with the same layers. Positions are
        rotations: no table ends, but ModernBERT was trained on texts up to 8,192 tokens.

        Args:
            name_or_path: a model of type "modernbert", as a Hub name or a folder.
            layers: indices of its layers that are taken, 0 first; all where `None`.
            radius: neighbours on either side in its global layers.
            revision, token, cache_dir: as in `AutoModel.from_pretrained`.
            fields: of the configuration, such as `num_labels=9`, `global_tokens="ends"`.

        Raises:
            ValueError: it is another kind of model, or lacks one of the layers or weights.

        Example:

        ```python
        model = WindowModernBertForTokenClassification.from_encoder("jhu-clsp/ettin-encoder-32m", num_labels=9)
        ```
        """
        from .convert import window_modernbert

        hub = {"revision": revision, "token": token, "cache_dir": cache_dir}
        return window_modernbert(cls, name_or_path, layers, radius, hub, fields)

    def save_pretrained(
        self, save_directory: str | os.PathLike[str], is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """As in PreTrainedModel, with the code in `code/`, so that any head loads without this package."""
        with code_apart(self, save_directory, is_main_process):
            super().save_pretrained(save_directory, is_main_process, *args, **kwargs)


class WindowModernBertModel(WindowModernBertPreTrainedModel, ModernBertModel):
    """The bare encoder; inputs and outputs are those of `ModernBertModel`."""


class WindowModernBertForMaskedLM(WindowModernBertPreTrainedModel, ModernBertForMaskedLM):
    """With the head of a masked language model."""


class WindowModernBertForSequenceClassification(WindowModernBertPreTrainedModel, ModernBertForSequenceClassification):
    """With a classifier of texts."""


class WindowModernBertForTokenClassification(WindowModernBertPreTrainedModel, ModernBertForTokenClassification):
    """With a label for every token."""


class WindowModernBertForQuestionAnswering(WindowModernBertPreTrainedModel, ModernBertForQuestionAnswering):
    """With the start and end of an answer span."""


def _with_masks(model: ModernBertModel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The encoder's inputs with the masks of both kinds of layers in place of `attention_mask`."""
    inputs = {**kwargs, **dict(zip(_INPUTS, args, strict=False))}
    given = inputs.get("attention_mask")
    if isinstance(given, dict):
        return None
    config = model.config
    implementation = config._attn_implementation
    if "flash" in implementation:
        raise ValueError(
            f'attn_implementation="{implementation}" has windows without tokens that everybody sees: use "{WINDOW}".'
        )
    ids = inputs.get("input_ids")
    b, n = (ids if ids is not None else inputs["inputs_embeds"]).shape[:2]
    weight = model.get_input_embeddings().weight
    # Only its shape, type and device are read.
    like = torch.empty(b, n, 0, dtype=weight.dtype, device=weight.device)
    real = torch.ones(b, n, dtype=torch.bool, device=like.device) if given is None else given != 0
    seen = ends_of(real, last=config.global_tokens == "ends")
    options = {"config": config, "inputs_embeds": like, "attention_mask": given}
    if implementation == WINDOW and not is_traced():
        whole = given is None or bool(real.all())
        radius = config.global_radius
        full = window_mask(
            n, radius, radius, None if whole else real, seen, batch=b, dtype=like.dtype, device=like.device
        )
    else:
        full = create_bidirectional_mask(**options, and_mask_function=_seen_or_near(seen, config.global_radius))
    sliding = create_bidirectional_sliding_window_mask(**options)
    inputs["attention_mask"] = {"full_attention": full, "sliding_attention": sliding}
    return (), inputs


def _seen_or_near(seen: Tensor, radius: int) -> Any:
    """A mask function of transformers: a window, and the tokens `[b, g]` that everybody sees."""

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        near = (query - key).abs() <= radius
        return near | (seen[batch] == key).any(-1) | (seen[batch] == query).any(-1)

    return visible


__all__ = [
    "WindowModernBertForMaskedLM",
    "WindowModernBertForQuestionAnswering",
    "WindowModernBertForSequenceClassification",
    "WindowModernBertForTokenClassification",
    "WindowModernBertModel",
    "WindowModernBertPreTrainedModel",
]
