"""Star-Transformer and its kin as Hugging Face Transformers models. Importing it registers them under Auto*."""

import sys
from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .estimators import StarClassifier as StarClassifier
    from .estimators import StarTagger as StarTagger

__version__ = "0.2.0"

# A command that only prints its help does not wait seconds for torch and transformers.
if "--help" not in sys.argv:
    from .auto import *  # noqa: F403


def __getattr__(name: str) -> Any:
    # Models need torch and transformers alone; the estimators also need `datasets` and scikit-learn.
    if name in ("StarClassifier", "StarTagger"):
        from . import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
