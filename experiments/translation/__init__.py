"""
Translation, for experiments/tables/translation.yaml: encoders of the package with a Transformer decoder.

Importing it makes the models known to `AutoModelForSeq2SeqLM`. With `experiments/` on the path:

    from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel, translate
"""

from transformers import AutoConfig, AutoModelForSeq2SeqLM

from .configuration_encoder_decoder import TextEncoderDecoderConfig
from .generation import translate
from .modeling_encoder_decoder import TextEncoderDecoderModel


AutoConfig.register(TextEncoderDecoderConfig.model_type, TextEncoderDecoderConfig)
AutoModelForSeq2SeqLM.register(TextEncoderDecoderConfig, TextEncoderDecoderModel)
# Saved folders carry the code of these two classes, which imports the package.
TextEncoderDecoderConfig.register_for_auto_class()
TextEncoderDecoderModel.register_for_auto_class("AutoModelForSeq2SeqLM")

__all__ = ["TextEncoderDecoderConfig", "TextEncoderDecoderModel", "translate"]
