"""Saved models with random weights, and texts that they predict."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import TINY
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import AutoModelForTokenClassification, AutoTokenizer, PreTrainedTokenizerFast

import modeling_star
from modeling_star.data.tokenizers import SPECIAL_TOKENS, train_tokenizer


TEXTS = [
    "Ada Lovelace met Charles Babbage (1791-1871) in London.",
    "London",
    "李娜 2011年在巴黎 won",
    " It rained, unbelievably; it rained all day while Ada read and Charles wrote and London slept.",
    "...",
]
SCHEMES = {
    "iob": ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"],
    "bmes": ["B-PER", "M-PER", "E-PER", "S-PER", "O"],
    "pos": ["NOUN", "VERB", "X-Y"],
}


def byte_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")


def bert_tokenizer() -> PreTrainedTokenizerFast:
    """As BERT's, of which transformers writes the normalizer and what splits texts."""
    cased = train_tokenizer(TEXTS, "wordpiece", lower_case=True, vocab_size=120).backend_tokenizer
    cased.normalizer, cased.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    return PreTrainedTokenizerFast(tokenizer_object=cased, **SPECIAL_TOKENS)


def saved(
    folder: Path,
    head: str,
    kind: str = "wordpiece",
    texts: Sequence[str] = TEXTS,
    vocab_size: int = 120,
    **fields: Any,
) -> Path:
    """A model with random weights, large enough for its labels to vary, and a tokenizer of some texts."""
    torch.manual_seed(1)
    made = {"byte": byte_tokenizer, "bert": bert_tokenizer}
    tokenizer = made[kind]() if kind in made else train_tokenizer(texts, kind, lower_case=False, vocab_size=vocab_size)
    fields = {**TINY, "num_hidden_layers": 1, "max_position_embeddings": 24, "vocab_size": len(tokenizer), **fields}
    if "id2label" in fields:
        fields.pop("num_labels")
        fields["label2id"] = {label: number for number, label in fields["id2label"].items()}
    model = getattr(modeling_star, f"StarTransformerFor{head}")(modeling_star.StarTransformerConfig(**fields))
    for weight in model.parameters():
        weight.data.mul_(4)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def with_vocabulary(folder: Path) -> Path:
    """A saved tagger with moderate scores, whose CRF knows the pieces of words."""
    model = AutoModelForTokenClassification.from_pretrained(folder)
    model.set_vocabulary(AutoTokenizer.from_pretrained(folder))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "crf" in name or "classifier" in name:
                weight.mul_(0.1)
    model.save_pretrained(folder)
    return folder
