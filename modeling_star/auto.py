"""Star-Transformer and its kin as Hugging Face Transformers models. Importing it enters them under Auto*."""

import transformers
from transformers import AutoConfig

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
from .models.modeling_big import (
    BigTransformerForMaskedLM,
    BigTransformerForQuestionAnswering,
    BigTransformerForSequenceClassification,
    BigTransformerForTokenClassification,
    BigTransformerModel,
    BigTransformerPreTrainedModel,
)
from .models.modeling_bilstm import (
    BiLstmForMaskedLM,
    BiLstmForQuestionAnswering,
    BiLstmForSequenceClassification,
    BiLstmForTokenClassification,
    BiLstmModel,
    BiLstmPreTrainedModel,
)
from .models.modeling_disan import (
    DisanForMaskedLM,
    DisanForQuestionAnswering,
    DisanForSequenceClassification,
    DisanForTokenClassification,
    DisanModel,
    DisanPreTrainedModel,
)
from .models.modeling_encoder import AUTO_CLASSES, EncoderOutput
from .models.modeling_encoder_decoder import TextEncoderDecoderModel
from .models.modeling_star import (
    StarTransformerForMaskedLM,
    StarTransformerForQuestionAnswering,
    StarTransformerForSequenceClassification,
    StarTransformerForTokenClassification,
    StarTransformerModel,
    StarTransformerPreTrainedModel,
)
from .models.modeling_vanilla import (
    VanillaTransformerForMaskedLM,
    VanillaTransformerForQuestionAnswering,
    VanillaTransformerForSequenceClassification,
    VanillaTransformerForTokenClassification,
    VanillaTransformerModel,
    VanillaTransformerPreTrainedModel,
)


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

__all__ = [
    "BiLstmConfig",
    "BiLstmForMaskedLM",
    "BiLstmForQuestionAnswering",
    "BiLstmForSequenceClassification",
    "BiLstmForTokenClassification",
    "BiLstmModel",
    "BiLstmPreTrainedModel",
    "BigTransformerConfig",
    "BigTransformerForMaskedLM",
    "BigTransformerForQuestionAnswering",
    "BigTransformerForSequenceClassification",
    "BigTransformerForTokenClassification",
    "BigTransformerModel",
    "BigTransformerPreTrainedModel",
    "DisanConfig",
    "DisanForMaskedLM",
    "DisanForQuestionAnswering",
    "DisanForSequenceClassification",
    "DisanForTokenClassification",
    "DisanModel",
    "DisanPreTrainedModel",
    "EncoderOutput",
    "Lexicon",
    "StarTransformerConfig",
    "StarTransformerForMaskedLM",
    "StarTransformerForQuestionAnswering",
    "StarTransformerForSequenceClassification",
    "StarTransformerForTokenClassification",
    "StarTransformerModel",
    "StarTransformerPreTrainedModel",
    "TextEncoderDecoderConfig",
    "TextEncoderDecoderModel",
    "VanillaTransformerConfig",
    "VanillaTransformerForMaskedLM",
    "VanillaTransformerForQuestionAnswering",
    "VanillaTransformerForSequenceClassification",
    "VanillaTransformerForTokenClassification",
    "VanillaTransformerModel",
    "VanillaTransformerPreTrainedModel",
    "answer_question",
    "translate",
]
