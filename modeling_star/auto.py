"""Public names of the package. Importing this module registers all models under Auto*."""
# ruff: noqa: F403

import transformers
from transformers import AutoConfig
from transformers.utils import is_peft_available

from .inference.question_answering import answer_question
from .inference.translation import translate
from .models import modeling_big, modeling_bilstm, modeling_disan, modeling_star, modeling_vanilla
from .models.configuration_big import BigTransformerConfig
from .models.configuration_bilstm import BiLstmConfig
from .models.configuration_disan import DisanConfig
from .models.configuration_encoder_decoder import TextEncoderDecoderConfig
from .models.configuration_star import StarTransformerConfig
from .models.configuration_vanilla import VanillaTransformerConfig
from .models.lexicon import Lexicon
from .models.modeling_big import *
from .models.modeling_bilstm import *
from .models.modeling_disan import *
from .models.modeling_encoder import AUTO_CLASSES, EncoderOutput
from .models.modeling_encoder_decoder import TextEncoderDecoderModel
from .models.modeling_star import *
from .models.modeling_vanilla import *


for _module, _config, _stem in (
    (modeling_star, StarTransformerConfig, "StarTransformer"),
    (modeling_big, BigTransformerConfig, "BigTransformer"),
    (modeling_vanilla, VanillaTransformerConfig, "VanillaTransformer"),
    (modeling_disan, DisanConfig, "Disan"),
    (modeling_bilstm, BiLstmConfig, "BiLstm"),
):
    AutoConfig.register(_config.model_type, _config)
    _config.register_for_auto_class()
    for _auto, _ending in AUTO_CLASSES.items():
        _model = getattr(_module, _stem + _ending)
        getattr(transformers, _auto).register(_config, _model)
        # Saved folders carry their code, so that they load where this package is not installed.
        _model.register_for_auto_class(_auto)

AutoConfig.register(TextEncoderDecoderConfig.model_type, TextEncoderDecoderConfig)
TextEncoderDecoderConfig.register_for_auto_class()
transformers.AutoModelForSeq2SeqLM.register(TextEncoderDecoderConfig, TextEncoderDecoderModel)
TextEncoderDecoderModel.register_for_auto_class("AutoModelForSeq2SeqLM")

if is_peft_available():
    from .adapters import register

    register()

__all__ = [
    "BiLstmConfig",
    "BigTransformerConfig",
    "DisanConfig",
    "EncoderOutput",
    "Lexicon",
    "StarTransformerConfig",
    "TextEncoderDecoderConfig",
    "TextEncoderDecoderModel",
    "VanillaTransformerConfig",
    "answer_question",
    "translate",
]
__all__ += modeling_star.__all__
__all__ += modeling_big.__all__
__all__ += modeling_vanilla.__all__
__all__ += modeling_disan.__all__
__all__ += modeling_bilstm.__all__
