"""LoRA of PEFT with the stock Trainer: a tagger with a CRF learns other tags, and keeps them in its adapter."""

from itertools import pairwise
from pathlib import Path

import torch
from peft import AutoPeftModelForTokenClassification, LoraConfig, get_peft_model
from transformers import (
    AutoModelForTokenClassification,
    AutoTokenizer,
    DataCollatorForTokenClassification,
    Trainer,
    TrainingArguments,
)

from modeling_star.inference import Predictor


SENTENCES = [["Ann", "moved", "to", "Oslo"], ["Bo", "sees", "New", "York", "now"]] * 10
OTHER_TAGS = [["B-LOC", "O", "O", "B-PER"], ["B-LOC", "O", "O", "O", "O"]] * 10


def test_a_tagger_with_a_crf_learns_other_tags_and_loads_them_from_its_adapter(
    tagger_folder: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tagger_folder)
    base = AutoModelForTokenClassification.from_pretrained(tagger_folder)
    assert base.config.use_crf
    rows = []
    for words, tags in zip(SENTENCES, OTHER_TAGS, strict=True):
        row = tokenizer(words, is_split_into_words=True)
        of_words, labels = [None, *row.word_ids()], []
        for before, word in pairwise(of_words):
            labels.append(-100 if word in (None, before) else base.config.label2id[tags[word]])
        rows.append({**row, "labels": labels})
    torch.manual_seed(0)
    lora = get_peft_model(base, LoraConfig(task_type="TOKEN_CLS"))
    options = {"learning_rate": 2e-2, "num_train_epochs": 20, "report_to": "none", "use_cpu": True}
    arguments = TrainingArguments(str(tmp_path / "runs"), save_strategy="no", disable_tqdm=True, **options)
    Trainer(lora, arguments, DataCollatorForTokenClassification(tokenizer), rows).train()
    lora.save_pretrained(tmp_path / "adapter")

    loaded = AutoPeftModelForTokenClassification.from_pretrained(tmp_path / "adapter").eval()
    inputs = tokenizer(SENTENCES[:2], is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected, outputs = lora.eval()(**inputs), loaded(**inputs)
    assert torch.equal(outputs.paths, expected.paths)
    torch.testing.assert_close(outputs.logits, expected.logits)
    loaded.merge_and_unload().save_pretrained(tmp_path / "merged")
    tokenizer.save_pretrained(tmp_path / "merged")
    assert Predictor(tmp_path / "merged").tag_words(SENTENCES[:2]) == OTHER_TAGS[:2]
    assert Predictor(tagger_folder).tag_words(SENTENCES[:2]) != OTHER_TAGS[:2]
