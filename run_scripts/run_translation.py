#!/usr/bin/env python
"""
Train a translator: the standard Transformer, or an encoder of this package with a Transformer decoder.

With a recipe; the command line overrides it:
    accelerate launch run_scripts/run_translation.py configuration/recipes/tatoeba_zh_en.yaml \\
        --train_file train.jsonl.gz --validation_file validation.jsonl.gz --test_file test.jsonl.gz

A small standard Transformer on your own files, two columns or {"translation": {"de": ..., "en": ...}} per row, with a
tokenizer trained on both languages:
    python run_scripts/run_translation.py --train_file train.csv --validation_file dev.csv --output_dir outputs/mine \\
        --config_name configuration/models/marian-small.json --num_train_epochs 20

A Star encoder instead; or a saved model of transformers that has one fast tokenizer for both languages and needs
neither language codes nor instructions, such as BART (Marian's own tokenizers are slow, T5 needs a prefix):
    ... --config_name configuration/models/star-translation-small.json
    ... --model_name_or_path facebook/bart-base

Several processes:
    accelerate launch --config_file configuration/accelerate/multi_gpu.yaml run_scripts/run_translation.py ...
"""

from modeling_star.training.arguments import (
    TRANSLATION_DEFAULTS,
    TranslationArguments,
    TranslationModelArguments,
    TranslationRunArguments,
    parse,
)


def main() -> None:
    """Read the arguments, run, report."""
    groups = (TranslationModelArguments, TranslationArguments, TranslationRunArguments)
    model, data, run, training = parse(
        groups, __doc__, TRANSLATION_DEFAULTS, training_class="Seq2SeqTrainingArguments"
    )

    from modeling_star.tasks.translation import TranslationTask
    from modeling_star.training.run import run_script

    run_script(TranslationTask, model, data, run, training)


if __name__ == "__main__":
    main()
