"""A ModernBERT whose global layers attend to a window and [CLS]."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from common import padded, randomise
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from torch_modes import LargestTensor
from transformers import AutoModel, AutoModelForMaskedLM, ModernBertConfig, ModernBertForMaskedLM, ModernBertModel

import modeling_star
from modeling_star import (
    WindowModernBertForMaskedLM,
    WindowModernBertForSequenceClassification,
    WindowModernBertForTokenClassification,
    WindowModernBertModel,
)


LENGTH = 120


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random masked language model of five layers, the first and the fourth of them global."""
    config = ModernBertConfig(
        **{"vocab_size": 50, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 5},
        **{"num_attention_heads": 2, "local_attention": 10, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        **{"cls_token_id": 1, "sep_token_id": 2},
    )
    model = ModernBertForMaskedLM(config)
    randomise(model, seed=4)
    folder = tmp_path_factory.mktemp("modernbert")
    model.save_pretrained(folder)
    return folder


def test_lora_needs_no_target_modules(path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = WindowModernBertForSequenceClassification.from_pretrained(path, global_radius=4)
    lora = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS"))
    adapted = {name.split(".")[-4] for name, _ in lora.named_parameters() if "lora_A" in name}
    assert adapted == {"Wqkv", "Wo"}


def batch(padding: str) -> tuple[dict[str, Tensor], Tensor]:
    mask = torch.ones(2, LENGTH).bool() if padding == "none" else padded([LENGTH, 50], LENGTH, padding)
    ids = torch.randint(3, 50, mask.shape, generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": mask.long()}, mask


def stock(path: Path, layers: list[int] | None = None) -> nn.Module:
    model = ModernBertModel.from_pretrained(path, attn_implementation="eager").eval()
    if layers is not None:
        model.config.layer_types = [model.config.layer_types[index] for index in layers]
        model.layers = nn.ModuleList(model.layers[index] for index in layers)
    return model


def dense_masks(mask: Tensor, radius: int, local: int, last: bool) -> dict[str, Tensor]:
    """What each layer sees, additive, `[b, 1, n, n]`."""
    place = torch.arange(mask.shape[1])
    distance = (place - place[:, None]).abs()
    is_seen = mask & (mask.long().cumsum(1) == 1)
    if last:
        is_seen = is_seen | (mask & (mask.flip(1).long().cumsum(1).flip(1) == 1))
    near = (distance <= radius) | is_seen[:, None] | is_seen[..., None]
    allowed = {"full_attention": near, "sliding_attention": (distance <= local).expand_as(near)}
    lowest = torch.finfo(torch.float32).min
    return {
        name: torch.zeros(near.shape).masked_fill(~(seen & mask[:, None]), lowest)[:, None]
        for name, seen in allowed.items()
    }


def gradients(states: Tensor, mask: Tensor, model: nn.Module) -> dict[str, Tensor]:
    model.zero_grad()
    (states[mask].sin()).sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("implementation", ["star_window", "sdpa", "eager"])
@pytest.mark.parametrize("tokens", ["first", "ends"])
@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_values_and_gradients_are_those_under_the_dense_mask(
    path: Path, padding: str, tokens: str, implementation: str
) -> None:
    inputs, mask = batch(padding)
    model = WindowModernBertModel.from_encoder(path, [0, 1, 3], 8, global_tokens=tokens)
    assert model.config._attn_implementation == "star_window"
    model.set_attn_implementation(implementation)
    original = stock(path, [0, 1, 3])
    masks = dense_masks(mask, 8, original.config.sliding_window, tokens == "ends")
    states = model(**inputs).last_hidden_state
    expected = original(input_ids=inputs["input_ids"], attention_mask=masks).last_hidden_state
    torch.testing.assert_close(states[mask], expected[mask], atol=1e-5, rtol=1e-5)
    found, wanted = gradients(states, mask, model), gradients(expected, mask, original)
    largest = max(float(value.abs().max()) for value in wanted.values())
    assert max(float((found[name] - wanted[name]).abs().max()) for name in wanted) < 2e-5 * largest


@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_beyond_the_text_the_outputs_are_those_of_the_modernbert(path: Path, padding: str) -> None:
    inputs, mask = batch(padding)
    model = WindowModernBertForMaskedLM.from_encoder(path, radius=LENGTH)
    expected = ModernBertForMaskedLM.from_pretrained(path).eval()
    logits, wanted = model(**inputs).logits[mask], expected(**inputs).logits[mask]
    torch.testing.assert_close(logits, wanted, atol=1e-5 * float(wanted.abs().max()), rtol=1e-5)
    narrow = WindowModernBertForMaskedLM.from_encoder(path, radius=4)(**inputs).logits[mask]
    assert (narrow - wanted).abs().max() > 1e-3


@torch.no_grad()
def test_every_layer_is_linear(path: Path) -> None:
    model = WindowModernBertModel.from_encoder(path, radius=8)
    largest = []
    for length in (1024, 2048):
        with LargestTensor() as watch:
            model(input_ids=torch.ones(1, length).long())
        largest.append(watch.numbers)
    assert largest[1] <= 2 * largest[0] < 1024**2 // 4


def test_heads_are_kept_or_new(path: Path) -> None:
    tagger = WindowModernBertForTokenClassification.from_encoder(path, radius=8, num_labels=7)
    source = ModernBertModel.from_pretrained(path)
    assert torch.equal(tagger.model.layers[4].mlp.Wi.weight, source.layers[4].mlp.Wi.weight)
    inputs, _ = batch("right")
    output = tagger(**inputs, labels=torch.zeros_like(inputs["input_ids"]))
    assert output.logits.shape == (2, LENGTH, 7)
    output.loss.backward()
    assert all(parameter.grad is not None for parameter in tagger.parameters())
    for pooling in ("cls", "mean"):
        classifier = WindowModernBertForSequenceClassification.from_encoder(
            path, radius=8, num_labels=3, classifier_pooling=pooling
        )
        logits = classifier(**inputs).logits
        alone = classifier(input_ids=inputs["input_ids"][1:, :50], attention_mask=torch.ones(1, 50).long()).logits
        torch.testing.assert_close(logits[1:], alone, atol=1e-5, rtol=1e-4)


COLD = """
import sys, json, torch
sys.modules["modeling_star"] = None
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification
folder = sys.argv[1]
ids = torch.load(folder + "/ids.pt")
model = AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
load = dict(trust_remote_code=True, output_loading_info=True)
tagger, report = AutoModelForTokenClassification.from_pretrained(folder, **load)
with torch.no_grad():
    logits = model(ids).logits
print(json.dumps([type(model).__name__, type(tagger).__name__, model.config._attn_implementation,
                  float(logits.sum()), float(logits[0, 7, 3]), sorted(report["missing_keys"])]))
"""


@torch.no_grad()
def test_a_saved_folder_loads_with_and_without_the_package(path: Path, tmp_path: Path) -> None:
    model = WindowModernBertForMaskedLM.from_encoder(path, [0, 2, 3], 8)
    model.save_pretrained(tmp_path)
    ids = batch("none")[0]["input_ids"]
    again = AutoModelForMaskedLM.from_pretrained(tmp_path)
    assert type(again) is WindowModernBertForMaskedLM
    assert torch.equal(again(ids).logits, model(ids).logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is WindowModernBertModel
    assert {file.name for file in (tmp_path / "code").iterdir()} == {
        *("configuration_window_modernbert.py", "modeling_window_modernbert.py", "saving.py"),
        *("window_attention.py", "window_interface.py", "token_layout.py", "backbone.py", "convert.py"),
    }
    torch.save(ids, tmp_path / "ids.pt")
    done = subprocess.run(
        [sys.executable, "-c", COLD, str(tmp_path)], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    assert found[:3] == ["WindowModernBertForMaskedLM", "WindowModernBertForTokenClassification", "star_window"]
    logits = model(ids).logits
    assert found[3:5] == pytest.approx([float(logits.sum()), float(logits[0, 7, 3])], rel=1e-4, abs=1e-4)
    assert all(name.startswith("classifier.") for name in found[5])


@pytest.mark.parametrize("layers", [[1, 2], [0, 5], [0, 0], []])
def test_layers_that_do_not_fit_are_an_error(path: Path, layers: list[int]) -> None:
    with pytest.raises(ValueError, match="0 to 4"):
        WindowModernBertModel.from_encoder(path, layers)


def test_another_family_is_an_error(tiny_bert_path: str) -> None:
    with pytest.raises(ValueError, match="become a BiG-Transformer"):
        WindowModernBertModel.from_encoder(tiny_bert_path)


def test_an_attention_without_such_tokens_is_an_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = WindowModernBertModel.from_encoder(path)
    monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")
    with pytest.raises(ValueError, match="star_window"):
        model(torch.ones(1, 9).long())


def test_it_is_public() -> None:
    assert modeling_star.WindowModernBertConfig().global_radius == 128
    with pytest.raises(StrictDataclassError, match="at least 1"):
        modeling_star.WindowModernBertConfig(global_radius=0)
