"""What a masked-LM run computes of a batch of blocks."""

from typing import Any

import numpy as np
import pytest
import torch
from common import TINY, assert_gradients_close, randomise, tiny_bert, tiny_model
from samples import LEXICON
from torch import Tensor
from transformers import BertForMaskedLM, PreTrainedModel

from modeling_star.data.collators import MaskingCollator, MaskingUnits
from modeling_star.data.packing import Chunk
from modeling_star.tasks.masked_lm import (
    MaskedScores,
    Pretrainer,
    logits_at,
)
from modeling_star.training.losses import MaskedLoss, chosen_logits


# Lengths of the documents of three blocks.
BLOCKS = [[5, 3, 1], [9], [2, 2, 4]]


def model_of(kind: str, dtype: torch.dtype = torch.float64) -> PreTrainedModel:
    if kind == "BERT":
        torch.manual_seed(0)
        model = BertForMaskedLM(tiny_bert()).to(dtype)
        randomise(model, seed=3)
        return model
    options: dict[str, Any] = {"position_embedding_type": "learned"}
    if kind == "BigTransformer":
        options["lexicon"] = LEXICON
    return tiny_model(kind, "ForMaskedLM", dtype=dtype, **options)


def pieces() -> list[list[Chunk]]:
    draw = np.random.default_rng(0)
    blocks, number = [], 0
    for lengths in BLOCKS:
        blocks.append([])
        for length in lengths:
            blocks[-1].append(Chunk(draw.integers(2, TINY["vocab_size"], length), (number,)))
            number += 1
    return blocks


def collator(probability: float = 0.5) -> MaskingCollator:
    special = np.zeros(TINY["vocab_size"], dtype=bool)
    special[:2] = True
    return MaskingCollator(1, 0, special, MaskingUnits(None), probability)


def pretrainer_of(model: PreTrainedModel, tmp_path: Any, **arguments: Any) -> Pretrainer:
    from transformers import TrainingArguments

    return Pretrainer(
        model=model,
        args=TrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=True, **arguments),
        data_collator=collator(),
        compute_loss_func=MaskedLoss("masked_lm"),
        compute_metrics=MaskedScores(),
        eval_dataset=pieces(),
    )


def gradients_of(loss: Tensor, model: PreTrainedModel) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in model.named_parameters()
    }


@pytest.mark.parametrize("kind", ["StarTransformer", "BigTransformer", "BERT"])
def test_packed_documents_have_the_loss_and_gradients_of_one_document_at_a_time(kind: str, tmp_path: Any) -> None:
    model = model_of(kind).eval()  # without dropout, which BERT has
    batch = collator()(pieces())
    assert batch["input_ids"].shape == (7, 9)
    losses, count = [], 0
    for block in pieces():
        for piece in block:
            alone = collator()([[piece]])
            labels = alone["labels"][0, : len(piece.ids)]
            logits = model(input_ids=alone["input_ids"][:, : len(piece.ids)]).logits[0]
            losses.append(torch.nn.functional.cross_entropy(logits, labels, reduction="sum", ignore_index=-100))
            count += int((labels != -100).sum())
    assert 5 < count < 29
    # TaskLoss works in float32 on what comes out of the model.
    expected = torch.stack(losses).sum() / count
    trainer = pretrainer_of(model, tmp_path)
    loss = trainer.compute_loss(model, dict(batch), num_items_in_batch=torch.tensor(count))
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
    assert_gradients_close(gradients_of(loss, model), gradients_of(expected, model), 1e-5)


@pytest.mark.parametrize("kind", ["StarTransformer", "BigTransformer", "BERT"])
def test_logits_of_some_tokens_are_those_among_the_logits_of_all(kind: str) -> None:
    model = model_of(kind).eval()
    ids = torch.randint(2, TINY["vocab_size"], (3, 6), generator=torch.Generator().manual_seed(0))
    chosen = torch.rand(3, 6, generator=torch.Generator().manual_seed(1)) < 0.4
    everywhere = model(input_ids=ids).logits
    with logits_at(model, chosen):
        some = model(input_ids=ids).logits
    assert some.shape == (int(chosen.sum()), TINY["vocab_size"])
    assert torch.allclose(some, everywhere[chosen], rtol=0, atol=1e-12)
    assert torch.equal(model(input_ids=ids).logits, everywhere)  # as it was
    assert torch.equal(chosen_logits(everywhere, chosen), everywhere[chosen])
    assert chosen_logits(some, chosen) is some


@pytest.mark.parametrize("batch_size", [1, 2, 3])
def test_evaluation_is_over_all_hidden_tokens_whatever_the_batches(batch_size: int, tmp_path: Any) -> None:
    model = model_of("StarTransformer", torch.float32)
    trainer = pretrainer_of(model, tmp_path, per_device_eval_batch_size=batch_size)
    measured = trainer.evaluate()
    total, count, right = 0.0, 0, 0
    for block in pieces():
        for piece in block:
            alone = collator()([[piece]])
            with torch.no_grad():
                logits = model.eval()(input_ids=alone["input_ids"]).logits[0]
            for place, label in enumerate(alone["labels"][0].tolist()):
                if label != -100:
                    total -= float(logits[place].log_softmax(-1)[label])
                    right += int(logits[place].argmax()) == label
                    count += 1
    assert measured["eval_loss"] == pytest.approx(total / count, abs=1e-5)
    assert measured["eval_perplexity"] == pytest.approx(np.exp(total / count), rel=1e-5)
    assert measured["eval_masked_accuracy"] == right / count
    # Label smoothing is of training alone.
    trainer.compute_loss_func = MaskedLoss("masked_lm", smoothing=0.3)
    assert trainer.evaluate()["eval_loss"] == measured["eval_loss"]
