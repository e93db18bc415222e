"""
Makes the models known to transformers and PEFT by name, at no cost before either is imported.

transformers itself has tables of names, and imports a model's module when its class is needed. Ours are added to these
tables; `AutoModel.register` needs classes, whose import takes seconds, and is used where a version of transformers has
no such tables.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .models.saving import AUTO_CLASSES


ENCODERS = {
    "star_transformer": ("star", "StarTransformer"),
    "big_transformer": ("big", "BigTransformer"),
    "vanilla_transformer": ("vanilla", "VanillaTransformer"),
    "disan": ("disan", "Disan"),
    "bilstm": ("bilstm", "BiLstm"),
    "window_modernbert": ("window_modernbert", "WindowModernBert"),
}
"""Model type -> ending of the modules and beginning of the class names."""

_ENDINGS = (*AUTO_CLASSES.values(), "PreTrainedModel")

MODULES = {
    **{f"{stem}Config": f"models.configuration_{name}" for name, stem in ENCODERS.values()},
    **{f"{stem}{ending}": f"models.modeling_{name}" for name, stem in ENCODERS.values() for ending in _ENDINGS},
}
"""Class name -> module in the package, for all models and configurations."""


def register(package: str) -> None:
    """Make the models, attributes of a package, known to transformers and PEFT when a program imports these."""
    here = sys.modules[package]
    _after_import("transformers.models.auto.configuration_auto", lambda module: _add_configurations(module, here))
    _after_import("transformers.models.auto.modeling_auto", lambda module: _add_models(module, here))
    for name in set(MODULES.values()):
        _after_import(f"{package}.{name}", _publish)
    _after_import("peft", lambda _: importlib.import_module(f"{package}.adapters"))


def _add_configurations(configuration_auto: ModuleType, package: ModuleType) -> None:
    for model_type, (_, stem) in ENCODERS.items():
        # Where it looks for the class: it has no public way to name a module (seen in 5.23).
        modules = getattr(configuration_auto.CONFIG_MAPPING, "_modules", None)
        if modules is None:
            configuration_auto.AutoConfig.register(model_type, getattr(package, f"{stem}Config"))
        else:
            configuration_auto.CONFIG_MAPPING_NAMES[model_type] = f"{stem}Config"
            modules[model_type] = package


def _add_models(modeling_auto: ModuleType, package: ModuleType) -> None:
    for name, ending in AUTO_CLASSES.items():
        auto = getattr(modeling_auto, name)
        mapping = getattr(auto, "_model_mapping", None)
        privates = ("_reverse_config_mapping", "_modules", "_model_mapping")
        is_known = all(hasattr(mapping, private) for private in privates)
        for model_type, (_, stem) in ENCODERS.items():
            if is_known:
                mapping._model_mapping[model_type] = f"{stem}{ending}"
                mapping._reverse_config_mapping[f"{stem}Config"] = model_type
                mapping._modules[model_type] = package
            else:
                auto.register(getattr(package, f"{stem}Config"), getattr(package, f"{stem}{ending}"))


def _publish(module: ModuleType) -> None:
    """Saved folders carry the code of their classes, so that they load where this package is not installed."""
    for name in module.__all__:
        if name in MODULES and not name.endswith("PreTrainedModel"):
            getattr(module, name).register_for_auto_class(_auto_name(name))


def _auto_name(name: str) -> str:
    """The auto class that loads a class of `MODULES`."""
    if name.endswith("Config"):
        return "AutoConfig"
    return next(auto for auto, ending in AUTO_CLASSES.items() if name.endswith(ending))


def _after_import(name: str, function: Callable[[ModuleType], object]) -> None:
    """Call a function with a module as soon as it is imported, now if it is."""
    if name in sys.modules:
        function(importlib.import_module(name))  # waits for a thread that imports it
    else:
        _waiting[name] = function


_waiting: dict[str, Callable[[ModuleType], object]] = {}


class _Finder:
    """Finds the modules of `_waiting` as Python does, and gives them a `_Loader`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
        return spec


class _Loader:
    """A module's own loader, which calls the function of `_waiting` after the module's code."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _waiting.pop(module.__name__, lambda _: None)(module)


sys.meta_path.insert(0, _Finder())
