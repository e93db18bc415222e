"""What a saved folder says of its code, so that it loads where this package is not installed."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from transformers import PreTrainedConfig, PreTrainedModel


# Auto class -> ending of the class name that serves it, for every encoder.
AUTO_CLASSES = {
    "AutoModel": "Model",
    "AutoModelForSequenceClassification": "ForSequenceClassification",
    "AutoModelForTokenClassification": "ForTokenClassification",
    "AutoModelForQuestionAnswering": "ForQuestionAnswering",
    "AutoModelForMaskedLM": "ForMaskedLM",
}


@contextmanager
def as_published(model: PreTrainedModel) -> Iterator[type[PreTrainedModel] | None]:
    """
    Give a model, for a while, the name of the class whose code is saved with it.

    transformers copies the file of an object's class. FSDP replaces the class of a model (`fully_shard`), and users
    define subclasses: the saved class is the nearest registered one (`register_for_auto_class`).

    Yields:
        That class, or `None` where none is registered.
    """
    current = type(model)
    published = next((base for base in current.__mro__ if vars(base).get("_auto_class") is not None), None)
    if published not in (None, current):
        model.__class__ = type(published.__name__, (current,), {"__module__": published.__module__})
    try:
        yield published
    finally:
        model.__class__ = current


def auto_map(model: type[PreTrainedModel], config: type[PreTrainedConfig]) -> dict[str, str]:
    """The Auto classes of an encoder's models; a custom class is left to transformers."""
    module = sys.modules[model.__module__]
    endings = [ending for ending in AUTO_CLASSES.values() if model.__name__.endswith(ending)]
    stem = model.__name__.removesuffix(endings[0]) if endings else model.__name__
    named = {"AutoConfig": f"{config.__module__.rsplit('.', 1)[-1]}.{config.__name__}"}
    names = {auto: f"{stem}{ending}" for auto, ending in AUTO_CLASSES.items()}
    modeling = model.__module__.rsplit(".", 1)[-1]
    return named | {auto: f"{modeling}.{name}" for auto, name in names.items() if hasattr(module, name)}
