"""The arguments of run_translation.py."""

from dataclasses import dataclass
from typing import Any, Literal

from modeling_star.training.arguments import FileArguments, ModelArguments, RunArguments, flag


@dataclass
class TranslationModelArguments(ModelArguments):
    """Model, tokenizer and embeddings of a translator."""

    model_type: str | None = flag(
        "Type of a new model: marian, star_transformer, big_transformer, vanilla_transformer, disan or bilstm "
        "(default: marian)."
    )
    config_name: str | None = flag(
        "Configuration of a new model, such as experiments/translation/shapes/marian-small.json."
    )
    config_overrides: str | None = flag("Configuration fields to set, such as dropout=0.3,encoder.hidden_size=200.")
    tokenizer_kind: Literal["bpe"] = flag(  # type: ignore[assignment]  # another choice than the encoders'
        "Kind of a trained tokenizer: byte pairs, learned from both languages together.", "bpe"
    )
    lower_case: bool = flag("Lower-case the text in a trained tokenizer.", False)
    vocab_size: int = flag("Maximum vocabulary size of a trained tokenizer.", 8000)


@dataclass
class TranslationArguments(FileArguments):
    """Data of run_translation.py."""

    _argument_group_name = "data and translation"

    source_column: str | None = flag("Column of the source texts, or their key in the column translation.")
    target_column: str | None = flag("Column of the target texts, or their key in the column translation.")
    max_seq_length: int | None = flag("Maximum number of tokens of a source or target in training.", 256)
    num_beams: int = flag("Beams of the reported scores; --generation_num_beams sets those during training.", 4)
    length_penalty: float = flag("Exponent of the length by which a beam's log-probability is divided.", 0.5)
    max_extra_tokens: int = flag("Maximum number of tokens of a translation beyond those of its source.", 50)
    bleu_tokenize: Literal["13a", "intl", "zh", "char", "none"] | None = flag(
        "Tokenizer of sacrebleu; without it, zh for Chinese targets, otherwise 13a."
    )


@dataclass
class TranslationRunArguments(RunArguments):
    """The run of a translator."""

    average_checkpoints: int = flag("Average the weights of the last N checkpoints; 0 takes the best one.", 5)


# The training of https://arxiv.org/abs/1706.03762, section 5.
TRANSLATION_DEFAULTS: dict[str, Any] = {
    "adam_beta1": 0.9,
    "adam_beta2": 0.98,
    "adam_epsilon": 1e-9,
    "lr_scheduler_type": "inverse_sqrt",
    "warmup_steps": 0.1,
    "label_smoothing_factor": 0.1,
    "per_device_train_batch_size": 64,
    "per_device_eval_batch_size": 64,
    "predict_with_generate": True,
    "generation_num_beams": 1,
    "save_total_limit": 5,
}
