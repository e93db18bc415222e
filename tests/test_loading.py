"""Saved models are loaded whole or not at all, by everything that uses them."""

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import TINY
from safetensors.torch import load_file, save_file
from saved_models import saved, with_vocabulary
from transformers import BertConfig, BertForMaskedLM

import modeling_star
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.inference import Predictor
from modeling_star.inference.export import load as load_for_export
from modeling_star.inference.export import write_export
from modeling_star.loading import load_config, load_model
from modeling_star.training.arguments import ClassificationModelArguments
from modeling_star.training.build import saved_model
from modeling_star.training.checkpoints import seal_model
from modeling_star.training.distillation import Teacher


TEXTS = ["a good film", "a bad film"]
NAMES = ("neg", "neutral", "pos")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A classifier as a training leaves it."""
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS, "word", min_frequency=1)
    fields = {**TINY, "vocab_size": len(tokenizer), "num_hidden_layers": 2}
    fields.pop("num_labels")
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: number for number, name in enumerate(NAMES)}}
    config = modeling_star.StarTransformerConfig(**fields, **labels)
    model = modeling_star.StarTransformerForSequenceClassification(config)
    for saving in (model, tokenizer):
        saving.save_pretrained(tmp_path / "model")
    seal_model(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def tagger(tmp_path: Path) -> Path:
    """A tagger with a CRF that knows its vocabulary, as a training leaves it."""
    folder = saved(tmp_path / "tagger", "TokenClassification", id2label={0: "O", 1: "B-x", 2: "I-x"}, use_crf=True)
    with_vocabulary(folder)
    seal_model(folder)
    return folder


def edit_config(folder: Path, **fields: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))
    if (folder / "manifest.json").is_file():
        seal_model(folder)


def edit_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], Any], is_sealed: bool = True) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    change(weights)
    save_file(weights, path, metadata={"format": "pt"})
    if is_sealed:
        seal_model(folder)


def by_predictor(folder: Path) -> None:
    Predictor(folder).predict(TEXTS)


USERS: dict[str, Callable[[Path], Any]] = {
    "predictor": by_predictor,
    "export": lambda folder: load_for_export(str(folder)),
    "teacher": lambda folder: Teacher.load(str(folder), NAMES, ("text",)),
}

DAMAGES: dict[str, Callable[[Path], Any]] = {
    "a tensor is missing": lambda folder: edit_weights(
        folder, lambda weights: weights.pop("classifier.out_proj.weight")
    ),
    "a tensor of the encoder is missing": lambda folder: edit_weights(
        folder, lambda weights: weights.pop("model.embeddings.word_embeddings.weight")
    ),
    "a tensor has another shape": lambda folder: edit_weights(
        folder, lambda weights: weights.update({"classifier.out_proj.bias": torch.zeros(2)})
    ),
    "there is one tensor more": lambda folder: edit_weights(
        folder, lambda weights: weights.update({"model.layers.7.bias": torch.zeros(2)})
    ),
    "fewer layers": lambda folder: edit_config(folder, num_hidden_layers=1),
    "more layers": lambda folder: edit_config(folder, num_hidden_layers=3),
    "another width": lambda folder: edit_config(folder, hidden_size=TINY["hidden_size"] * 2),
    "a number is NaN": lambda folder: edit_weights(
        folder, lambda weights: weights["classifier.out_proj.bias"].fill_(np.nan)
    ),
    "a number is infinite": lambda folder: edit_weights(
        folder, lambda weights: weights["model.embeddings.word_embeddings.weight"][1].fill_(-np.inf)
    ),
    "the file is of another training": lambda folder: edit_weights(
        folder, lambda weights: weights["classifier.out_proj.bias"].add_(1), is_sealed=False
    ),
    "a name is there twice": lambda folder: edit_config(folder, id2label={"0": "neg", "1": "pos", "2": "pos"}),
    "names are swapped in one table": lambda folder: edit_config(
        folder, id2label={"0": "pos", "1": "neutral", "2": "neg"}
    ),
    "a name differs in one table": lambda folder: edit_config(folder, label2id={"neg": 0, "neutral": 1, "good": 2}),
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_refused_by_everything_that_uses_it(damage: str, user: str, folder: Path) -> None:
    USERS[user](folder)
    DAMAGES[damage](folder)
    with pytest.raises(UserError, match=str(folder)):
        USERS[user](folder)


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "manifest.json").unlink(),  # as of version 0.2
        lambda folder: edit_config(
            folder, id2label={"0": "bad", "1": "so-so", "2": "good"}, label2id={"bad": 0, "so-so": 1, "good": 2}
        ),
        lambda folder: edit_config(folder, id2label={"2": "pos", "0": "neg", "1": "neutral"}, label2id=None),
        lambda folder: edit_config(folder, label2id={"neg": "0", "neutral": "1", "pos": "2"}),
        lambda folder: (folder / "README.md").write_text("My model"),
    ],
)
def test_what_users_change_on_purpose_changes_no_score(change: Callable[[Path], Any], folder: Path) -> None:
    def scores() -> list[list[float]]:
        return [[each["score"] for each in found] for _, found in Predictor(folder).predict(TEXTS)]

    before = scores()
    change(folder)
    assert scores() == before


def test_single_files_can_be_copied(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(folder / name, tmp_path / "copy")
    assert Predictor(tmp_path / "copy").predict(TEXTS) == Predictor(folder).predict(TEXTS)


def test_a_fine_tuning_starts_from_whole_weights_and_may_have_a_new_head(folder: Path) -> None:
    head, classifier = "AutoModelForTokenClassification", "AutoModelForSequenceClassification"
    arguments = ClassificationModelArguments(model_name_or_path=str(folder))
    assert "classifier.weight" in saved_model(head, {"num_labels": 4}, arguments)[1]
    assert saved_model(classifier, {"num_labels": 4}, replace(arguments, ignore_mismatched_sizes=True))[1]
    edit_weights(folder, lambda weights: weights.pop("model.embeddings.word_embeddings.weight"))
    with pytest.raises(UserError, match="word_embeddings"):
        saved_model(classifier, {"num_labels": 3}, arguments)


@pytest.mark.parametrize("lacking", ["embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.bias"])
def test_a_bert_whose_weights_are_not_all_there_is_not_copied(lacking: str, tmp_path: Path) -> None:
    BertForMaskedLM(
        BertConfig(vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
    ).save_pretrained(tmp_path)
    edit_weights(tmp_path, lambda weights: weights.pop(f"bert.{lacking}"), is_sealed=False)
    star, shape = modeling_star.StarTransformerModel, {"hidden_size": 16, "num_attention_heads": 2}
    uses: list[Callable[[], Any]] = [
        lambda: modeling_star.BigTransformerModel.from_encoder(tmp_path, [0, 1]),
        lambda: modeling_star.BigTransformerForMaskedLM.from_encoder(tmp_path, [0, 1]),
        lambda: star.from_embeddings(tmp_path, "contextual", **shape),
    ]
    if "embeddings" in lacking:
        uses.append(lambda: star.from_embeddings(tmp_path, **shape))
    else:  # the layer is not copied
        star.from_embeddings(tmp_path, **shape)
    for use in uses:
        with pytest.raises(ValueError, match=lacking):
            use()


def test_threads_load_one_after_the_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise models that are made later may not tie their weights (transformers 5.23)."""
    kind = modeling_star.StarTransformerForSequenceClassification
    make, begun, ended = kind.__init__, list[float](), list[float]()

    def slowly(self: Any, config: Any) -> None:
        begun.append(time.monotonic())
        make(self, config)
        time.sleep(0.05)
        ended.append(time.monotonic())

    monkeypatch.setattr(kind, "__init__", slowly)
    with ThreadPoolExecutor(3) as threads:
        list(threads.map(lambda _: load_model("AutoModelForSequenceClassification", str(folder)), range(3)))
    assert all(end <= next_one for end, next_one in zip(ended[:-1], begun[1:], strict=True))


def test_the_checkpoint_of_a_training_that_is_not_finished_is_named(tmp_path: Path) -> None:
    (tmp_path / "checkpoint-7").mkdir()
    with pytest.raises(UserError) as refused:
        load_config(str(tmp_path))
    assert str(tmp_path / "checkpoint-7") in str(refused.value)


@pytest.mark.parametrize("kind", ["model", "export"])
def test_no_file_of_a_folder_changes_predictions_in_silence(kind: str, tagger: Path, tmp_path: Path) -> None:
    """A byte is another, at several places of each file; a change on purpose is accepted by the line of the error."""
    source = tagger
    if kind == "export":
        source = tmp_path / "export"
        write_export(*load_for_export(str(tagger)), source, web=True)
    expected, protected = Predictor(source).predict(TEXTS), set()
    for file in sorted(path for path in source.iterdir() if path.is_file()):
        content = file.read_bytes()
        for place in range(0, len(content), max(len(content) // 4, 1)):
            changed = Path(shutil.copytree(source, tmp_path / "changed", dirs_exist_ok=True))
            (changed / file.name).write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
            try:
                assert Predictor(changed).predict(TEXTS) == expected
            except UserError:
                protected.add(file.name)
    weights = (
        ["model.safetensors", "tokenizer_config.json"] if kind == "model" else ["model.onnx", "crf.json", "web.json"]
    )
    assert protected >= {*weights, "config.json", "tokenizer.json"}
    fields = json.loads((source / "config.json").read_text(encoding="utf-8"))
    renamed = json.dumps(fields).replace('-x"', '-y"')
    (source / "config.json").write_text(renamed, encoding="utf-8")
    with pytest.raises(UserError, match=r"python -m modeling_star\.files") as error:
        Predictor(source).predict(TEXTS)
    command = shlex.split(str(error.value).partition("write ")[2])
    subprocess.run([sys.executable, *command[1:]], check=True)
    assert Predictor(source).saved.config.id2label[1] == "B-y"
    found = [[(each["label"], each["start"]) for each in row] for _, row in Predictor(source).predict(TEXTS)]
    assert found == [[("y", each["start"]) for each in row] for _, row in expected]


@pytest.mark.parametrize(
    "field",
    [
        *({"id2label": wrong} for wrong in ("x", ["a"], {"a": "b"}, {"0": "a", "7": "b"})),
        *({"label2id": wrong} for wrong in ("x", [1])),
        *({"auto_map": wrong} for wrong in (None, "x", [])),
        *({"architectures": wrong} for wrong in ("x", [3], {"a": 1}, None)),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["model", "export"])
def test_a_field_of_another_kind_is_one_line(kind: str, field: dict[str, Any], folder: Path) -> None:
    if kind == "export":  # its configuration is read before its model
        (folder / "model.safetensors").rename(folder / "model.onnx")
    (folder / "manifest.json").unlink()
    edit_config(folder, **field)
    with pytest.raises(UserError):
        Predictor(folder).predict(TEXTS)
    edit_config(folder, architectures=["StarTransformerForSequenceClassification"])
    (folder / "arguments.json").write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="arguments"):
        Predictor(folder)
