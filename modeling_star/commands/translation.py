"""
Train a translator: the standard Transformer, or an encoder of this package with a Transformer decoder.

With a recipe; the command line overrides it:
    modeling-star translation tatoeba_zh_en \\
        --train_file train.jsonl.gz --validation_file validation.jsonl.gz --test_file test.jsonl.gz

A small standard Transformer on your own files, two columns or {"translation": {"de": ..., "en": ...}} per row, with a
tokenizer trained on both languages:
    modeling-star translation --train_file train.csv --validation_file dev.csv --output_dir outputs/mine \\
        --config_name marian-small --num_train_epochs 20

A Star encoder instead; or a saved model of transformers that has one fast tokenizer for both languages and needs
neither language codes nor instructions, such as BART (Marian's own tokenizers are slow, T5 needs a prefix):
    ... --config_name star-translation-small
    ... --model_name_or_path facebook/bart-base

Several processes:
    accelerate launch --config_file configuration/accelerate/multi_gpu.yaml -m modeling_star translation ...
"""

from ..training.arguments import (
    TRANSLATION_DEFAULTS,
    TranslationArguments,
    TranslationModelArguments,
    TranslationRunArguments,
)
from . import parse_run


def main() -> None:
    """Read the arguments, run, report."""
    groups = (TranslationModelArguments, TranslationArguments, TranslationRunArguments)
    model, data, run, training = parse_run(
        groups, __doc__, TRANSLATION_DEFAULTS, training_class="Seq2SeqTrainingArguments"
    )

    from ..tasks.translation import TranslationTask
    from ..training.run import run_script

    run_script(TranslationTask, model, data, run, training)
