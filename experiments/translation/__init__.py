"""Translation, for experiments/tables/translation.yaml: the model, the tokenizer, and the scores."""

from .modeling import Translator, TranslatorConfig, new_model


__all__ = ["Translator", "TranslatorConfig", "new_model"]
