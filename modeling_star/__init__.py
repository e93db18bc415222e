"""
Star-Transformer and its kin as Hugging Face Transformers models.

Importing the package makes them known to `AutoModel` and its kin by name; a name is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from . import auto
from .errors import missing_package
from .version import __version__ as __version__


if TYPE_CHECKING:
    from .data.lexicon import Lexicon as Lexicon
    from .estimators import *  # noqa: F403
    from .inference.question_answering import answer_question as answer_question
    from .kernels.compiled import compiled as compiled
    from .kernels.compiled import describe as describe
    from .models.configuration_big import *  # noqa: F403
    from .models.configuration_bilstm import *  # noqa: F403
    from .models.configuration_disan import *  # noqa: F403
    from .models.configuration_star import *  # noqa: F403
    from .models.configuration_vanilla import *  # noqa: F403
    from .models.configuration_window_modernbert import *  # noqa: F403
    from .models.modeling_big import *  # noqa: F403
    from .models.modeling_bilstm import *  # noqa: F403
    from .models.modeling_disan import *  # noqa: F403
    from .models.modeling_encoder import EncoderOutput as EncoderOutput
    from .models.modeling_star import *  # noqa: F403
    from .models.modeling_vanilla import *  # noqa: F403
    from .models.modeling_window_modernbert import *  # noqa: F403
    from .models.window_interface import register_window_attention as register_window_attention

_MODULES = {
    "EncoderOutput": "models.modeling_encoder",
    "Lexicon": "data.lexicon",
    "StarClassifier": "estimators",
    "StarTagger": "estimators",
    "answer_question": "inference.question_answering",
    "compiled": "kernels.compiled",
    "describe": "kernels.compiled",
    "register_window_attention": "models.window_interface",
    **auto.MODULES,
}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name in ("inference", "models"):
        return importlib.import_module(f".{name}", __name__)
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{name}: {missing_package(error)}", name=error.name) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


auto.register(__name__)
