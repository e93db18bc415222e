"""
ModernBERT (https://arxiv.org/abs/2412.13663) in time and memory that grow with the length.

Its layers with a sliding window stay as they are. In the others a token attends to a wider window and to [CLS], which
attends to all tokens. Classes and weights are those of transformers; only the masks differ, which are made before the
encoder runs.
"""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import (
    AutoConfig,
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
from .window_attention import ends_of, window_mask
from .window_interface import WINDOW, is_traced, register_window_attention


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
            ImportError: only the code of a saved folder is there, not this package.

        Example:

        ```python
        model = WindowModernBertForTokenClassification.from_encoder("jhu-clsp/ettin-encoder-32m", num_labels=9)
        ```
        """
        hub = {"revision": revision, "token": token, "cache_dir": cache_dir}
        config = AutoConfig.from_pretrained(name_or_path, **hub)
        if config.model_type != "modernbert":
            raise ValueError(
                f"{name_or_path} has model_type={config.model_type!r}; a modernbert is needed: write "
                'from_encoder("jhu-clsp/ettin-encoder-32m"). BERT, RoBERTa, XLM-R, CamemBERT, DistilBERT and ELECTRA '
                'become a BiG-Transformer: BigTransformerModel.from_encoder("bert-base-uncased").'
            )
        count = config.num_hidden_layers
        chosen = list(range(count) if layers is None else layers)
        if chosen[:1] != [0] or 0 in chosen[1:] or any(index not in range(count) for index in chosen):
            raise ValueError(
                f"layers={chosen} are given; the modernbert has 0 to {count - 1}, of which the first has no norm: "
                f"layers={list(range(count))[::2]}."
            )
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
        source, report = source_class.from_pretrained(
            name_or_path,
            dtype=torch.float32,
            output_loading_info=True,
            **(
                {"num_labels": fields["num_labels"], "ignore_mismatched_sizes": True} if "num_labels" in fields else {}
            ),
            **hub,
        )
        heads = ("head.", "decoder.", "classifier.")
        # By its name, so that a saved folder has not what that module imports.
        pretrained = importlib.import_module("modeling_star.models.pretrained_embeddings")
        pretrained.check_taken(name_or_path, (key for key in report["missing_keys"] if not key.startswith(heads)))
        number = {str(index): str(new) for new, index in enumerate(chosen)}
        weights = {}
        for name, value in source.state_dict().items():
            before, layer, after = name.partition("layers.")
            index, _, rest = after.partition(".")
            if not layer or index in number:
                weights[f"{before}{layer}{number[index]}.{rest}" if layer else name] = value
        model.load_state_dict(weights)
        return model.eval()

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
