"""What a saved folder says of its code, so that it loads where this package is not installed."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:  # `auto.py` reads the table below before transformers is imported
    from transformers import PreTrainedConfig, PreTrainedModel

AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
    "AutoModelForMaskedLM": "ForMaskedLM",
}
"""Auto class -> ending of the name of the class that it loads, for every encoder."""

CODE = "code"
"""The folder with the code in a saved one; auto_map names its classes as "code/modeling_star.StarTransformerModel"."""


@contextmanager
def code_apart(
    model: "PreTrainedModel", folder: str | os.PathLike[str], is_main_process: bool = True
) -> Iterator[None]:
    """
    Write a model's code to `folder/code`, and name it in the configuration, which transformers saves within this.

    transformers would copy the file of an object's class, and those that it imports, beside the weights. FSDP replaces
    the class of a model (`fully_shard`), and users define subclasses: the saved class is the nearest registered one
    (`register_for_auto_class`). Where none is registered, nothing changes.
    """
    from transformers.dynamic_module_utils import custom_object_save

    current, config = type(model), model.config
    published = next((base for base in current.__mro__ if vars(base).get("_auto_class") is not None), None)
    if published is None:
        yield
        return
    # `_auto_class` is what `register_for_auto_class` sets (seen in 5.23).
    as_published = {"__module__": published.__module__, "_auto_class": None}
    model.__class__ = type(published.__name__, (current,), as_published)
    try:
        if is_main_process:
            code = Path(folder, CODE)
            code.mkdir(parents=True, exist_ok=True)
            custom_object_save(model, code)
            if type(config)._auto_class is not None:
                custom_object_save(config, code)
        config.auto_map = {auto: f"{CODE}/{name}" for auto, name in auto_map(published, type(config)).items()}
        config._auto_class = None  # of this object alone
        yield
    finally:
        model.__class__ = current
        vars(config).pop("_auto_class", None)


def auto_map(model: "type[PreTrainedModel]", config: "type[PreTrainedConfig]") -> dict[str, str]:
    """The Auto classes of a registered model; those of all of its encoder's models for one of `AUTO_CLASSES`."""
    module = sys.modules[model.__module__]
    modeling = model.__module__.rsplit(".", 1)[-1]
    names = {str(model._auto_class): model.__name__}
    if model._auto_class in AUTO_CLASSES:
        stem = model.__name__.removesuffix(AUTO_CLASSES[model._auto_class])
        all_heads = {auto: f"{stem}{ending}" for auto, ending in AUTO_CLASSES.items()}
        names |= {auto: name for auto, name in all_heads.items() if hasattr(module, name)}
    named = {"AutoConfig": f"{config.__module__.rsplit('.', 1)[-1]}.{config.__name__}"}
    return named | {auto: f"{modeling}.{name}" for auto, name in names.items()}
