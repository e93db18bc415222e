"""The baseline for long texts: a BERT's classifier on the mean of its vectors of windows."""

from pathlib import Path

import pytest
import torch
from harness.mean_of_windows import MeanOfWindowsConfig, MeanOfWindowsForSequenceClassification
from torch.testing import assert_close
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification


CLS, SEP, WINDOW = 2, 3, 10


@pytest.fixture(scope="module")
def models() -> tuple[MeanOfWindowsForSequenceClassification, BertForSequenceClassification]:
    """The model, and BERT's with the same weights."""
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=WINDOW,
    )
    bert = BertForSequenceClassification(config).eval()
    model = MeanOfWindowsForSequenceClassification(
        MeanOfWindowsConfig(
            encoder={**config.to_dict(), "dtype": "float32"}, cls_token_id=CLS, sep_token_id=SEP, num_labels=2
        )
    ).eval()
    model.encoder.load_state_dict(bert.bert.state_dict())
    model.classifier.load_state_dict(bert.classifier.state_dict())
    return model, bert


def batch(*lengths: int) -> dict[str, torch.Tensor]:
    """Texts of some tokens between [CLS] and [SEP], padded."""
    rows = [torch.tensor([CLS, *torch.randint(4, 50, (length,)).tolist(), SEP]) for length in lengths]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("length", [9, 16, 17, 30])
def test_longer_ones_are_the_mean_of_their_windows(
    models: tuple[MeanOfWindowsForSequenceClassification, BertForSequenceClassification], length: int
) -> None:
    model, bert = models
    inputs = batch(length, 4)
    body = inputs["input_ids"][0, 1 : length + 1]
    parts = [torch.tensor([[CLS, *part.tolist(), SEP]]) for part in body.split(WINDOW - 2)]
    mean = torch.stack([bert.bert(part).pooler_output[0] for part in parts]).mean(0)
    assert_close(model(**inputs).logits[0], bert.classifier(mean))


def test_it_is_saved_with_its_code(
    models: tuple[MeanOfWindowsForSequenceClassification, BertForSequenceClassification], tmp_path: Path
) -> None:
    models[0].save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=True).eval()
    inputs = batch(20)
    assert_close(again(**inputs).logits, models[0](**inputs).logits)
    low = AutoModelForSequenceClassification.from_pretrained(tmp_path, trust_remote_code=True, dtype=torch.bfloat16)
    assert {each.dtype for each in low.state_dict().values() if each.is_floating_point()} == {torch.bfloat16}
    assert_close(low.eval()(**inputs).logits.float(), models[0](**inputs).logits, atol=0.02, rtol=0)
