"""The base of every configuration: fields that follow from others, former names, unknown keys."""

import difflib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers import PreTrainedConfig
from transformers.utils import logging


logger = logging.get_logger(__name__)

# Keys that transformers itself passes to or stores in any configuration, beside the declared fields.
_LIBRARY_KEYS = {
    *("name_or_path", "num_labels", "output_attentions", "attn_implementation", "torch_dtype", "auto_map"),
    *("tie_last_hidden_states", "custom_pipelines", "finetuning_task", "task_specific_params", "use_cache"),
    *("per_layer_config", "quantization_config"),
}


def did_you_mean(given: str, allowed: list[str]) -> str:
    """
    A sentence such as ` Did you mean "relu"?`, or an empty string when nothing is close.

    A name that has all words of the given one comes before one with closer letters: num_hidden_layers for num_layers.
    """
    longer = [name for name in allowed if set(given.split("_")) <= set(name.split("_"))]
    close = difflib.get_close_matches(given, longer, n=1) or difflib.get_close_matches(given, allowed, n=1)
    return f' Did you mean "{close[0]}"?' if close else ""


@strict
class BaseConfig(PreTrainedConfig):
    """
    A configuration whose fields may follow from one another, whichever of a saved one are overridden.

    Attributes:
        derived_fields: fields that follow from others unless they are given.
        inner_configurations: fields that hold a configuration.
        attribute_map: former names of fields, which saved configurations and callers may still use.
    """

    derived_fields: ClassVar[tuple[str, ...]] = ()
    inner_configurations: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self, **kwargs: Any) -> None:
        for name in self.attribute_map.keys() & kwargs.keys():
            setattr(self, self.attribute_map[name], kwargs.pop(name))
        self._warn_about_unknown_keys(kwargs)
        super().__post_init__(**kwargs)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        """
        As in PreTrainedConfig, but overridden fields are in place before others are derived from them and all are
        checked. A dict for an inner configuration overrides the fields that it has.
        """
        kwargs = cls._renamed(kwargs)
        names = {f.name for f in fields(cls)}
        overrides = {name: kwargs.pop(name) for name in list(kwargs) if name in names}
        if overrides:
            config_dict = cls.overridden(config_dict, overrides)
        return super().from_dict(config_dict, **kwargs)

    @classmethod
    def overridden(cls, saved: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
        """
        The fields of a saved configuration with others in their place.

        Fields that were derived, not given, when it was saved are left out, so that they are derived again: 300 and 6
        heads make a head of 50 numbers, which must change along with the number of heads.

        Args:
            saved: fields by name, as a file has them.
            overrides: fields in their place.
        """
        saved, overrides = cls._renamed(saved), cls._renamed(overrides)
        given = {name: value for name, value in saved.items() if name in overrides or not cls._is_derived(name, saved)}
        return given | {name: cls._merged(name, saved.get(name), value) for name, value in overrides.items()}

    @classmethod
    def _renamed(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Values by the current names of their fields."""
        return {cls.attribute_map.get(name, name): value for name, value in values.items()}

    @classmethod
    def _is_derived(cls, name: str, saved: Mapping[str, Any]) -> bool:
        """Whether a saved field has the value that the others give it."""
        if name not in cls.derived_fields:
            return False
        declared = {f.name for f in fields(cls)} - {name}
        try:
            others = cls(**{other: value for other, value in saved.items() if other in declared})
        except (ValueError, StrictDataclassError):
            return False  # invalid without it, or at all, which is reported when all are read
        return getattr(others, name) == saved[name]

    @classmethod
    def _merged(cls, name: str, saved: Any, given: Any) -> Any:
        """The value of an overridden field; a dict for an inner configuration of the same type is laid over it."""
        if name not in cls.inner_configurations or not (isinstance(saved, dict) and isinstance(given, dict)):
            return given
        model_type = saved.get("model_type")
        return {**saved, **given} if given.get("model_type", model_type) == model_type else given

    def _warn_about_unknown_keys(self, kwargs: dict[str, Any]) -> None:
        known = [f.name for f in fields(self)]
        for key in kwargs:
            if key.startswith("_") or key in _LIBRARY_KEYS or hasattr(type(self), key):
                continue
            logger.warning(
                f"{type(self).__name__} has no field {key!r}: it is kept and has no effect.{did_you_mean(key, known)}"
            )


__all__ = ["BaseConfig", "did_you_mean"]
