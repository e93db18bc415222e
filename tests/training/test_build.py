"""Arguments to a model: what of it is the tokenizer's, and what a configuration's file may say."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from transformers import BertConfig, BertModel, RobertaConfig

from modeling_star import StarTransformerConfig
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.training.arguments import ModelArguments
from modeling_star.training.build import check_vocabulary, fresh_model, saved_model
from modeling_star.training.named_models import loading


SHAPE: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2}


@pytest.mark.parametrize(
    "saved",
    [
        RobertaConfig(**SHAPE, num_hidden_layers=1, intermediate_size=16),
        StarTransformerConfig(**SHAPE, vocab_size=100, pad_token_id=1),
    ],
    ids=["roberta", "star"],
)
def test_size_and_special_tokens_are_the_tokenizers_whatever_the_configurations_file_says(
    tmp_path: Path, saved: Any
) -> None:
    saved.save_pretrained(tmp_path)
    tokenizer, arguments = train_tokenizer(["a b c d e f"] * 3, "word"), ModelArguments(config_name=str(tmp_path))
    model = fresh_model("AutoModelForSequenceClassification", tokenizer, {"num_labels": 2}, arguments)
    embeddings = model.get_input_embeddings()
    assert embeddings.weight.shape == (len(tokenizer), 16)
    assert model.config.pad_token_id == tokenizer.pad_token_id == 0
    assert embeddings.padding_idx in (None, 0)
    assert model.config.sep_token_id == tokenizer.sep_token_id
    # An override wins over the tokenizer.
    asked = fresh_model("AutoModelForMaskedLM", tokenizer, {}, replace(arguments, config_overrides="vocab_size=64"))
    assert asked.get_input_embeddings().weight.shape == (64, 16)


@pytest.mark.parametrize("mode", ["static", "contextual"])
def test_a_saved_models_shape_may_be_put_on_other_embeddings(tmp_path: Path, mode: str) -> None:
    saved = StarTransformerConfig(**SHAPE, vocab_size=100, embedding_size=12, freeze_embeddings=True, residual=True)
    saved.save_pretrained(tmp_path / "saved")
    bert = BertModel(BertConfig(vocab_size=90, hidden_size=8, num_hidden_layers=1, num_attention_heads=2))
    bert.save_pretrained(tmp_path / "bert")
    model = fresh_model(
        "AutoModelForTokenClassification",
        train_tokenizer(["a b c d e f"] * 3, "word"),
        {"num_labels": 3},
        ModelArguments(
            model_type="star_transformer",
            config_name=str(tmp_path / "saved"),
            embeddings_name_or_path=str(tmp_path / "bert"),
            embeddings_mode=mode,
        ),
    )
    assert model.config.residual
    assert model.config.embedding_size == 8
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen
    assert all(".embeddings." in name for name in frozen)
    assert (model.config.backbone_config is None) == (mode == "static")


@pytest.mark.parametrize(("kind", "expected"), [("learned", 600), ("ring", 512), ("sinusoidal", 512), ("none", 512)])
def test_positions_follow_the_length_of_inputs_where_they_limit_it(kind: str, expected: int) -> None:
    tokenizer = train_tokenizer(["a text"], min_frequency=1)
    arguments = ModelArguments(config_overrides=f"hidden_size=8,num_attention_heads=2,position_embedding_type={kind}")
    model = fresh_model("AutoModelForMaskedLM", tokenizer, {}, arguments, 600)
    assert model.config.max_position_embeddings == expected


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bert-base-cased", "sentencepiece is missing"),
        ("user/model", "sentencepiece is missing"),
        ("outputs/mine/", "outputs/mine/ does not exist"),
        ("./mine", "./mine does not exist"),
    ],
)
def test_an_error_names_the_reason_or_the_missing_folder(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # the Hub is not asked first
    (tmp_path / "user").mkdir()
    with pytest.raises(UserError, match=reason), loading("MODEL", name):
        raise ImportError("sentencepiece is missing")


def test_a_model_without_end_is_not_built(tmp_path: Path) -> None:
    BertConfig(num_hidden_layers=999999999999).save_pretrained(tmp_path)
    asked, written, saved = (
        ModelArguments(config_overrides="num_hidden_layers=999999999999"),
        ModelArguments(config_name=str(tmp_path)),
        ModelArguments(model_name_or_path=str(tmp_path)),
    )
    with pytest.raises(UserError, match="num_hidden_layers"):
        fresh_model("AutoModelForTokenClassification", None, {}, asked)
    with pytest.raises(UserError, match="num_hidden_layers"):
        fresh_model("AutoModelForTokenClassification", None, {}, written)
    with pytest.raises(UserError, match="num_hidden_layers"):
        saved_model("AutoModelForTokenClassification", {}, saved)


def test_a_tokenizer_that_is_much_smaller_than_the_vocabulary_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(["a fine film"] * 2, "word")

    def check(rows: int) -> str:
        config = BertConfig(vocab_size=rows, hidden_size=4, num_attention_heads=1, num_hidden_layers=1)
        check_vocabulary(tokenizer, BertModel(config), "other")
        return caplog.text

    assert check(len(tokenizer)) == ""
    assert "has 8 entries, and the model embeds 562" in check(562)
    with pytest.raises(UserError, match="--tokenizer_name"):
        check(len(tokenizer) - 1)


def test_truncated_weights_are_a_user_error(tiny_bert_path: str, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_bert_path, tmp_path / "bert")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:300])
    with pytest.raises(UserError, match=re.escape(str(folder))):
        saved_model("AutoModelForSequenceClassification", {}, ModelArguments(model_name_or_path=str(folder)))


@pytest.mark.parametrize(
    ("source", "line"), [("bert", "bert-base-uncased"), ("roberta", "roberta-base"), ("folder", "")]
)
def test_a_foreign_model_with_random_weights_is_warned_about(
    source: str, line: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    BertConfig(**sizes).save_pretrained(tmp_path)
    named = ModelArguments(model_type=source, config_overrides=json.dumps(sizes))
    if source == "folder":
        named = ModelArguments(config_name=str(tmp_path))
    fresh_model("AutoModelForSequenceClassification", None, {"num_labels": 2}, named)
    assert f"--model_name_or_path {line or tmp_path} " in caplog.text
    caplog.clear()
    fresh_model("AutoModelForMaskedLM", None, {}, named)  # pretraining begins with random weights
    small = ModelArguments(config_overrides="hidden_size=6")
    fresh_model("AutoModelForSequenceClassification", None, {"num_labels": 2}, small)
    assert "random weights" not in caplog.text
