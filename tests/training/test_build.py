"""From arguments to a model: names, files and the tokenizer's part in it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import HfHubHTTPError, RepositoryNotFoundError
from script_samples import write_bert, write_rows, write_typeless_tokenizer
from task_samples import ROWS, Parsed
from transformers import AutoModel, AutoTokenizer, BertConfig, RobertaConfig, RobertaModel

from modeling_star import StarTransformerConfig
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.runs.run import load_task, make_features, make_trainer
from modeling_star.sources import check_exists
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.arguments import ModelArguments
from modeling_star.training.build import build_parts, fresh_model, saved_model
from modeling_star.training.named_models import check_names


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


@pytest.mark.parametrize(("kind", "expected"), [("learned", 600), ("ring", 512), ("sinusoidal", 512), ("none", 512)])
def test_positions_follow_the_length_of_inputs_where_they_limit_it(kind: str, expected: int) -> None:
    tokenizer = train_tokenizer(["a text"], min_frequency=1)
    arguments = ModelArguments(config_overrides=f"hidden_size=8,num_attention_heads=2,position_embedding_type={kind}")
    model = fresh_model("AutoModelForMaskedLM", tokenizer, {}, arguments, 600)
    assert model.config.max_position_embeddings == expected


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


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mock:
    """The question to the Hub, in a folder with two trained models, with an empty cache."""
    for name in ("outputs/reviews", "outputs/tagger", "mine"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    question = Mock()
    monkeypatch.setattr(HfApi, "repo_info", question)
    return question


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("./outputs/reviws", "outputs/reviews"),
        ("outputs/taggr/", "outputs/tagger"),
        ("../none/at/all", ""),
        ("shape.json", ""),
        ("vectors.txt", ""),
        ("~/mine", ""),
        ("outputs\\reviews", ""),
    ],
)
def test_a_path_that_does_not_exist_is_refused_without_a_question(asked: Mock, name: str, nearest: str) -> None:
    with pytest.raises(UserError, match="--model_name_or_path") as refused:
        check_exists("--model_name_or_path", name)
    assert nearest in str(refused.value)
    asked.assert_not_called()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("outputs/reviws", "outputs/reviews"), ("output/reviews", "outputs/reviews"), ("min", "mine"), ("bert", None)],
)
@pytest.mark.parametrize("error", [RepositoryNotFoundError("404", response=Mock()), ConnectionError("no network")])
def test_a_name_that_the_hub_does_not_have_is_refused_after_one_question(
    asked: Mock, name: str, nearest: str | None, error: Exception
) -> None:
    asked.side_effect = error
    with pytest.raises(UserError) as refused:
        check_exists("MODEL", name)
    assert asked.call_count == 1
    assert ("Did you mean" in str(refused.value)) == (nearest is not None)
    assert (nearest or "") in str(refused.value)


def test_a_name_that_is_neither_here_nor_cached_is_refused_offline(
    asked: Mock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"MODEL outputs/reviws is no folder .* Did you mean outputs/reviews\?"):
        check_exists("MODEL", "outputs/reviws")
    with pytest.raises(UserError, match="bert-base-cased is no folder"):
        check_exists("MODEL", "bert-base-cased")
    check_exists("--dataset_name", "reviws", "dataset")
    asked.assert_not_called()


@pytest.mark.parametrize("name", ["bert-base-cased", "google/bert-mini", "a/star-v1.1", "mines", "outputs/tagge"])
def test_names_of_the_hub_are_used_whatever_they_resemble(asked: Mock, name: str) -> None:
    check_exists("MODEL", name)
    asked.side_effect = HfHubHTTPError("503", response=Mock())
    check_exists("MODEL", name)
    asked.side_effect = ConnectionError("no network")
    (Path("cache") / f"models--{name.replace('/', '--')}" / "snapshots").mkdir(parents=True)
    check_exists("MODEL", name)


# ------ --pretrained


@pytest.fixture
def built(parsed: Callable[..., Parsed], tmp_path: Path) -> Callable[..., Any]:
    """Task, tokenizer and model of a run on tiny data with further arguments."""

    def build(kind: type[Any], *given: str, rows: Any = None) -> Any:
        file = write_rows(tmp_path / "rows.jsonl", ROWS[kind] * 3 if rows is None else rows)
        *groups, training = parsed(kind, f"--train_file={file}", "--validation_fraction=0.25", *given)
        training.output_dir = str(tmp_path / "run")
        check_names(groups[0])
        task = load_task(kind, *groups)
        tokenizer, model = build_parts(task)
        make_trainer(task, training, tokenizer, model, make_features(task, training, tokenizer, model))
        return task, tokenizer, model

    return build


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return write_bert(tmp_path / "encoder", [row["text"] for row in ROWS[ClassificationTask]], layers=3)


@pytest.mark.parametrize(("kind", "layers"), [(ClassificationTask, 3), (TaggingTask, 2)])
def test_a_pretrained_encoder_is_converted_with_a_new_head(
    built: Callable[..., Any], encoder: Path, kind: type[Any], layers: int
) -> None:
    given = [] if layers == 3 else ["--layers", "0", "1"]
    task, tokenizer, model = built(kind, f"--pretrained={encoder}", *given)
    assert model.config.model_type == "big_transformer"
    assert (model.config.window_radius, model.config.num_hidden_layers) == (128, layers)
    assert model.config.num_labels == len(task.data.label_list)
    assert getattr(model.config, "use_crf", False) == (kind is TaggingTask)
    heads = {name for name, _ in model.named_parameters()} - {f"model.{n}" for n, _ in model.model.named_parameters()}
    assert task.new_parameters == heads
    bert, batch = AutoModel.from_pretrained(encoder), tokenizer(["text 3 text"], return_tensors="pt")
    bert.encoder.layer = bert.encoder.layer[:layers]
    with torch.no_grad():
        expected, found = (each.eval()(**batch).last_hidden_state for each in (bert, model.model))
    assert torch.allclose(found, expected, atol=1e-5)


def test_a_pretrained_encoder_reads_what_the_arguments_say(built: Callable[..., Any], encoder: Path) -> None:
    _, _, model = built(
        ClassificationTask,
        f"--pretrained={encoder}",
        "--config_overrides=window_radius=2",
        "--max_seq_length=100",
        "--freeze_embeddings",
    )
    assert not any(each.requires_grad for each in model.get_input_embeddings().parameters())
    assert (model.config.window_radius, model.config.max_position_embeddings) == (2, 100)


def test_pairs_without_types_are_read_by_a_pretrained_roberta(
    built: Callable[..., Any], encoder: Path, tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24}
    config = RobertaConfig(vocab_size=len(tokenizer), type_vocab_size=1, max_position_embeddings=70, **sizes)
    RobertaModel(config).save_pretrained(tmp_path / "roberta")
    write_typeless_tokenizer(tmp_path / "roberta", [row["text"] for row in ROWS[ClassificationTask]])
    rows = [{"sentence1": "text 1", "sentence2": f"text {n}", "label": "ab"[n % 2]} for n in range(8)]
    _, tokenizer, model = built(ClassificationTask, f"--pretrained={tmp_path / 'roberta'}", rows=rows)
    assert model(**tokenizer("text 1", "text 2", return_tensors="pt")).logits.isfinite().all()


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        (["--pretrained={encoder}", "--layers", "0", "7"], ["--pretrained={encoder}", "--layers", "0", "2"]),
        (["--layers", "0"], ["--layers", "0", "--pretrained={encoder}"]),
        (["--pretrained={encoder}", "--config_name=star-base"], ["--pretrained={encoder}"]),
        (["--pretrained={encoder}", "--model_type=tfidf"], ["--pretrained={encoder}"]),
        (["--pretrained={encoder}", "--model_name_or_path={encoder}"], ["--model_name_or_path={encoder}"]),
    ],
)
def test_what_does_not_fit_a_pretrained_encoder_is_refused_with_what_to_write(
    built: Callable[..., Any], encoder: Path, given: list[str], instead: list[str]
) -> None:
    with pytest.raises(UserError, match=r"omit|--layers 0 2"):
        built(ClassificationTask, *(each.format(encoder=encoder) for each in given))
    built(ClassificationTask, *(each.format(encoder=encoder) for each in instead))
