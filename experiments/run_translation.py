#!/usr/bin/env python
"""
Train a translator: the standard Transformer, or an encoder of the package with a Transformer decoder.

From the project's folder, with a recipe; the command line overrides it:
    python experiments/run_translation.py experiments/translation/recipes/tatoeba_zh_en.yaml \\
        --train_file train.jsonl.gz --validation_file validation.jsonl.gz --test_file test.jsonl.gz

A small standard Transformer on your own files, two columns or {"translation": {"de": ..., "en": ...}} per row, with a
tokenizer trained on both languages:
    python experiments/run_translation.py --train_file train.csv --validation_file dev.csv --output_dir outputs/mine \\
        --config_name experiments/translation/shapes/marian-small.json --num_train_epochs 20

A Star encoder instead; or a saved model of transformers that has one fast tokenizer for both languages and needs
neither language codes nor instructions, such as BART (Marian's own tokenizers are slow, T5 needs a prefix):
    ... --config_name experiments/translation/shapes/star-translation-small.json
    ... --model_name_or_path facebook/bart-base

Several processes:
    accelerate launch --config_file configuration/accelerate/multi_gpu.yaml experiments/run_translation.py ...
"""

from translation.arguments import (
    TRANSLATION_DEFAULTS,
    TranslationArguments,
    TranslationModelArguments,
    TranslationRunArguments,
)
from translation.task import TranslationTask

from modeling_star.commands import parse_run
from modeling_star.runs.run import run_script


def main() -> None:
    """Read the arguments, run, report."""
    groups = (TranslationModelArguments, TranslationArguments, TranslationRunArguments)
    parsed = parse_run(groups, __doc__, TRANSLATION_DEFAULTS, training_class="Seq2SeqTrainingArguments")
    run_script(TranslationTask, *parsed)


if __name__ == "__main__":
    main()
