"""Tiny data for the task of translation."""

from task_samples import GROUPS, OWN_TRAINING, ROWS
from translation.arguments import (
    TRANSLATION_DEFAULTS,
    TranslationArguments,
    TranslationModelArguments,
    TranslationRunArguments,
)
from translation.task import TranslationTask


GROUPS[TranslationTask] = (TranslationModelArguments, TranslationArguments, TranslationRunArguments)
OWN_TRAINING[TranslationTask] = {"defaults": TRANSLATION_DEFAULTS, "training_class": "Seq2SeqTrainingArguments"}
ROWS[TranslationTask] = [{"zh": f"雨{number % 4}", "en": f"rain {number}"} for number in range(16)]
