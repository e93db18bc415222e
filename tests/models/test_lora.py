"""LoRA of PEFT finds the layers that an encoder calls, and trains what is new in a tagger."""

from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, randomise, tiny_bert
from transformers import BertModel

import modeling_star


peft = pytest.importorskip("peft")

TASKS = {"TokenClassification": "TOKEN_CLS", "SequenceClassification": "SEQ_CLS", "QuestionAnswering": "QUESTION_ANS"}
IDS = torch.tensor([[2, 5, 6, 7, 8, 3], [2, 9, 10, 5, 3, 0]])
MASK = torch.tensor([[1] * 6, [1] * 5 + [0]])


def model(stem: str, head: str = "TokenClassification", **fields: Any) -> Any:
    fields = {**TINY, "num_labels": 2, **fields}
    made = getattr(modeling_star, f"{stem}For{head}")(getattr(modeling_star, f"{stem}Config")(**fields))
    randomise(made, seed=1)
    return made


def adapted(base: Any, task: str = "TOKEN_CLS", **options: Any) -> Any:
    torch.manual_seed(0)
    return peft.get_peft_model(base, peft.LoraConfig(task_type=task, init_lora_weights=False, **options))  # not zeros


@pytest.mark.parametrize("head", TASKS)
@pytest.mark.parametrize("stem", ["StarTransformer", "BigTransformer", "VanillaTransformer", "Disan"])
def test_merged_adapters_compute_the_same(stem: str, head: str) -> None:
    base = model(stem, head).eval()
    with torch.no_grad():
        plain = base(IDS, MASK)[0]
        lora = adapted(base, TASKS[head]).eval()
        outputs = lora(input_ids=IDS, attention_mask=MASK)[0]
        assert not torch.allclose(outputs, plain, atol=1e-3)
        with lora.disable_adapter():
            torch.testing.assert_close(lora(input_ids=IDS, attention_mask=MASK)[0], plain)
        merged = lora.merge_and_unload()
        torch.testing.assert_close(merged(IDS, MASK)[0], outputs, atol=1e-5, rtol=0)
    assert type(merged) is type(base)


@pytest.mark.parametrize("stem", ["StarTransformer", "BigTransformer", "VanillaTransformer", "Disan"])
def test_adapters_at_all_linear_layers_compute_or_the_error_names_those_that_can(stem: str) -> None:
    lora = adapted(model(stem, "SequenceClassification"), "SEQ_CLS", target_modules="all-linear")
    if stem == "Disan":
        assert lora(input_ids=IDS, attention_mask=MASK).logits.isfinite().all()
        return
    with pytest.raises(TypeError, match="target_modules="):  # a weight that is read without a call
        lora(input_ids=IDS, attention_mask=MASK)


def test_adapters_are_in_a_bert_inside_too(tmp_path: Path) -> None:
    BertModel(tiny_bert()).save_pretrained(tmp_path)
    base = modeling_star.StarTransformerForTokenClassification.from_embeddings(
        tmp_path, mode="contextual", freeze=True, **{**TINY, "position_embedding_type": "none", "vocab_size": 13}
    )
    lora = adapted(base)
    (loss, *_) = lora(input_ids=IDS, attention_mask=MASK, labels=IDS % 2).to_tuple()
    loss.backward()
    inside = {name: p.grad for name, p in lora.named_parameters() if "backbone" in name and p.grad is not None}
    assert {name.split(".")[-4] for name in inside} == {"query", "value"}


def test_head_and_crf_are_trained_and_saved_with_the_adapters(tmp_path: Path) -> None:
    base = model("StarTransformer", use_crf=True)
    base.save_pretrained(tmp_path / "base")
    lora = adapted(base)
    before = {name: value.detach().clone() for name, value in lora.state_dict().items()}
    optimizer = torch.optim.SGD([p for p in lora.parameters() if p.requires_grad], lr=1.0)
    lora(input_ids=IDS, attention_mask=MASK, labels=IDS % 2, tag_mask=MASK).loss.backward()
    optimizer.step()
    changed = {name for name, value in lora.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[2] for name in changed} == {"model", "classifier", "crf"}
    assert all("lora_" in name or "modules_to_save" in name for name in changed)
    lora.eval().save_pretrained(tmp_path / "adapter")
    fresh = modeling_star.StarTransformerForTokenClassification.from_pretrained(tmp_path / "base")
    loaded = peft.PeftModel.from_pretrained(fresh, tmp_path / "adapter").eval()
    inputs = {"input_ids": IDS, "attention_mask": MASK, "tag_mask": MASK}
    for each in (loaded, loaded.merge_and_unload()):
        outputs, expected = each(**inputs), lora(**inputs)
        torch.testing.assert_close(outputs.logits, expected.logits, atol=1e-5, rtol=0)
        assert torch.equal(outputs.paths, expected.paths)


def test_other_taggers_are_as_in_peft() -> None:
    config = peft.LoraConfig(task_type="TOKEN_CLS")
    peft.get_peft_model(model("StarTransformer"), config)
    assert set(config.modules_to_save) == {"classifier", "score"}
    lora = adapted(model("StarTransformer", use_crf=True))
    second = peft.LoraConfig(task_type="TOKEN_CLS")
    lora.add_adapter("second", second)
    assert "crf" in second.modules_to_save
    with pytest.raises(ValueError, match="target_modules"):  # an LSTM has no layer for LoRA
        adapted(model("BiLstm"))
