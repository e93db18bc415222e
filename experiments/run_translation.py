#!/usr/bin/env python
"""
Train a translator with transformers' Trainer: the standard Transformer, or an encoder of the package with its decoder.

From the project's folder, with a recipe; the command line overrides it:
    python experiments/run_translation.py experiments/translation/recipes/tatoeba_zh_en.yaml \\
        --train_file train.jsonl.gz --validation_file validation.jsonl.gz --test_file test.jsonl.gz \\
        --output_dir outputs/zh_en

Files are csv, or json lines; a row has two columns, or {"translation": {"de": ..., "en": ...}}. A Star encoder:
    ... --config_name experiments/translation/shapes/star-translation-small.json
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from datasets import DatasetDict, load_dataset
from safetensors.torch import load_file
from transformers import (
    DataCollatorForSeq2Seq,
    GenerationConfig,
    HfArgumentParser,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    set_seed,
)
from translation import new_model
from translation.scores import score_translations
from translation.tokens import train_tokenizer

from modeling_star.data.lexicon import Lexicon
from modeling_star.files import write_json, write_json_lines


@dataclass
class TranslationArguments:
    """Data, model and search of a translator."""

    train_file: str = field(metadata={"help": "Pairs to learn from."})
    validation_file: str = field(metadata={"help": "Pairs that the last model is scored on."})
    test_file: str | None = field(default=None, metadata={"help": "Further pairs that it is scored on."})
    source_column: str | None = field(default=None, metadata={"help": "Column or language (default: the first)."})
    target_column: str | None = field(default=None, metadata={"help": "Column or language (default: the second)."})
    config_name: str = field(default="experiments/translation/shapes/marian-small.json", metadata={"help": "A shape."})
    vocab_size: int = field(default=8000, metadata={"help": "Entries of the vocabulary of both languages."})
    max_seq_length: int = field(default=256, metadata={"help": "Tokens of a source and of a translation."})
    lexicon: str | None = field(default=None, metadata={"help": "Words of a BiG encoder: a file, or jieba."})
    num_beams: int = field(default=4, metadata={"help": "Beams of the reported scores."})
    length_penalty: float = field(default=0.5, metadata={"help": "Exponent of the length of a beam."})
    average_checkpoints: int = field(default=5, metadata={"help": "Epochs whose mean weights are scored."})


# The training of https://arxiv.org/abs/1706.03762, section 5.
DEFAULTS: dict[str, Any] = {
    **{"adam_beta1": 0.9, "adam_beta2": 0.98, "adam_epsilon": 1e-9, "label_smoothing_factor": 0.1},
    **{"lr_scheduler_type": "inverse_sqrt", "warmup_steps": 0.1, "save_strategy": "epoch"},
    **{"per_device_train_batch_size": 64, "per_device_eval_batch_size": 64, "predict_with_generate": True},
}


def parse(words: Sequence[str]) -> tuple[TranslationArguments, Seq2SeqTrainingArguments]:
    """The flags, after those of a recipe."""
    parser = HfArgumentParser((TranslationArguments, Seq2SeqTrainingArguments), description=__doc__)
    parser.set_defaults(**DEFAULTS)
    recipe = yaml.safe_load(Path(words[0]).read_text(encoding="utf-8")) if words and words[0].endswith("yaml") else {}
    flags = [f"--{name}={value}" for name, value in recipe.items() if value is not None]
    options, training = parser.parse_args_into_dataclasses([*flags, *words[bool(recipe) :]])
    training.save_total_limit = max(1, options.average_checkpoints)
    return options, training


def read_pairs(options: TranslationArguments) -> DatasetDict:
    """The splits with the columns `source` and `target`."""
    named = {split: getattr(options, f"{split}_file") for split in ("train", "validation", "test")}
    files = {split: name for split, name in named.items() if name is not None}
    splits = load_dataset("csv" if ".csv" in Path(options.train_file).suffixes else "json", data_files=files)
    prefix = ""
    if "translation" in splits["train"].column_names:
        splits, prefix = splits.select_columns("translation").flatten(), "translation."
    columns = splits["train"].column_names
    names = [options.source_column, options.target_column]
    chosen = [column if name is None else prefix + name for name, column in zip(names, columns, strict=False)]
    return splits.select_columns(chosen).rename_columns(dict(zip(chosen, ("source", "target"), strict=True)))


def encode(splits: DatasetDict, tokenizer: PreTrainedTokenizerBase, limit: int) -> DatasetDict:
    """Ids of both sides; longer ones are cut."""

    def ids(rows: dict[str, list[str]]) -> dict[str, Any]:
        sides = [tokenizer(rows[side], truncation=True, max_length=limit) for side in ("source", "target")]
        return {**sides[0], "labels": sides[1]["input_ids"]}

    return splits.map(ids, batched=True, remove_columns=["source", "target"])


def average(model: PreTrainedModel, checkpoints: Sequence[Path]) -> None:
    """Give a model the mean weights of checkpoints."""
    if checkpoints:
        loaded = [load_file(folder / "model.safetensors") for folder in checkpoints]
        floats = [name for name, tensor in loaded[0].items() if tensor.is_floating_point()]
        means = {name: torch.stack([each[name] for each in loaded]).mean(0) for name in floats}
        model.load_state_dict({**loaded[0], **means}, strict=False)


def run(options: TranslationArguments, training: Seq2SeqTrainingArguments) -> None:
    """Train, score, and write the model, its scores and the translations of the test split."""
    splits = read_pairs(options)
    texts = (text for side in ("source", "target") for text in splits["train"][side])
    tokenizer = train_tokenizer(texts, options.vocab_size)
    set_seed(training.seed)
    model = new_model(Path(options.config_name), tokenizer)
    if options.lexicon is not None:
        jieba = options.lexicon == "jieba"
        words = Lexicon.from_jieba(tokenizer) if jieba else Lexicon.from_file(options.lexicon, tokenizer)
        model.get_encoder().set_lexicon(words)
    model.generation_config = GenerationConfig(
        num_beams=options.num_beams,
        length_penalty=options.length_penalty if options.num_beams > 1 else None,
        max_length=options.max_seq_length,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        decoder_start_token_id=tokenizer.bos_token_id,
    )

    encoded = encode(splits, tokenizer, options.max_seq_length)
    collator = DataCollatorForSeq2Seq(tokenizer, model=model)
    trainer = Seq2SeqTrainer(
        model, training, train_dataset=encoded["train"], data_collator=collator, processing_class=tokenizer
    )
    metrics = trainer.train().metrics | {"parameters": model.num_parameters()}
    folder = Path(training.output_dir)
    checkpoints = sorted(folder.glob("checkpoint-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    average(model, checkpoints[-options.average_checkpoints :] if options.average_checkpoints else [])
    trainer.save_model()
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split not in encoded:
            continue
        ids = trainer.predict(encoded[split], metric_key_prefix=prefix).predictions
        ids = np.where(ids >= 0, ids, tokenizer.pad_token_id)
        found = [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
        sources, targets = splits[split]["source"][:], splits[split]["target"][:]
        metrics |= {f"{prefix}_{name}": score for name, score in score_translations(found, targets).items()}
        rows = zip(sources, targets, found, strict=True)
        lines = [{"source": source, "label": target, "predicted": text} for source, target, text in rows]
        write_json_lines(folder / f"predictions_{split}.jsonl", lines)
    write_json(folder / "all_results.json", metrics)


if __name__ == "__main__":
    run(*parse(sys.argv[1:]))
