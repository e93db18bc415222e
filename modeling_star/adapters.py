"""Registers the encoders with PEFT, so that LoRA needs no `target_modules` and trains the CRF of a tagger."""

from typing import Any

import peft
from peft import MODEL_TYPE_TO_PEFT_MODEL_MAPPING, PeftConfig
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
from transformers import PreTrainedModel

from .auto import ENCODERS


# Layers that are called, not only read, as patterns of whole names; also those of a BERT inside.
_IN_BERT = r"self\.(query|value)"
TARGET_MODULES = {
    "star_transformer": rf".*\.(projections\.(query|output)|{_IN_BERT})",
    "big_transformer": rf".*\.(projections\.(query|output)|{_IN_BERT})",
    "vanilla_transformer": rf".*\.(layer\.linear[12]|{_IN_BERT})",
    "window_modernbert": r".*\.attn\.(Wqkv|Wo)",
    "disan": rf".*\.((for|back)wards\.(dense|query|key)|{_IN_BERT})",
}


class PeftModelForTokenClassification(peft.PeftModelForTokenClassification):
    """
    As in PEFT, which trains a new classifier beside the adapters; also the CRF of our taggers.

    Models of others, and taggers without a CRF, become PEFT's own class. `AutoPeftModelForTokenClassification`
    requires this name.
    """

    def __new__(cls, model: PreTrainedModel | None = None, *args: Any, **kwargs: Any) -> Any:
        if model is not None and not _is_ours_with_crf(model):  # a copy is created without a model
            return peft.PeftModelForTokenClassification(model, *args, **kwargs)
        return super().__new__(cls)

    def __init__(self, model: PreTrainedModel, peft_config: PeftConfig, *args: Any, **kwargs: Any) -> None:
        super().__init__(model, _with_crf(model, peft_config), *args, **kwargs)

    def add_adapter(self, adapter_name: str, peft_config: PeftConfig, *args: Any, **kwargs: Any) -> None:
        super().add_adapter(adapter_name, _with_crf(self.get_base_model(), peft_config), *args, **kwargs)


def _is_ours_with_crf(model: PreTrainedModel) -> bool:
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    return model_type in ENCODERS and getattr(model, "crf", None) is not None


def _with_crf(model: PreTrainedModel, peft_config: PeftConfig) -> PeftConfig:
    saved = getattr(peft_config, "modules_to_save", None) or []  # prompt tuning has no such field
    if hasattr(peft_config, "modules_to_save") and "crf" not in saved:
        peft_config.modules_to_save = [*saved, "crf"]
    return peft_config


# On import, of this module or of PEFT; other models of transformers are not affected.
TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.update(TARGET_MODULES)
MODEL_TYPE_TO_PEFT_MODEL_MAPPING["TOKEN_CLS"] = PeftModelForTokenClassification
