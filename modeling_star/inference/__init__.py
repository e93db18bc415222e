"""Prediction with saved models: pipelines, question answering, long texts in windows, many texts."""

from typing import TYPE_CHECKING, Any


if TYPE_CHECKING:
    from .prediction import Predictor

__all__ = ["Predictor"]


def __getattr__(name: str) -> Any:
    # Models need torch and transformers alone; a predictor also needs `datasets`.
    if name == "Predictor":
        from .prediction import Predictor

        return Predictor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
