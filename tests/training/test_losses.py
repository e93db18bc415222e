"""The loss of the tasks: weights of classes, smoothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import tiny_model
from task_samples import Parsed
from torch import Tensor
from training_samples import collate, rows_of
from transformers import EvalPrediction, TrainingArguments

from modeling_star.models.heads import sequence_loss
from modeling_star.runs.run import load_task
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.losses import CRFLoss, MetricsWithLoss, SpanLoss, TaskLoss, class_weights, loss_of
from modeling_star.training.trainer import StarTrainer


def test_balanced_weights_are_inverse_to_how_often_a_class_occurs() -> None:
    weights = class_weights("balanced", ("a", "b", "c"), {"a": 6, "b": 3, "c": 0})
    assert weights == pytest.approx([10 / (3 * 6), 10 / (3 * 3), 10 / (3 * 1)])
    assert class_weights("2,0.5", ("a", "b"), {}) == pytest.approx([2, 0.5])
    assert class_weights("none", ("a", "b"), {"a": 1, "b": 1}) is None


def by_loops(logits: Tensor, labels: Tensor, weights: list[float], smoothing: float) -> tuple[float, int]:
    """Weighted and smoothed cross entropy: each class counts by its weight, also where the smoothing spreads it."""
    total, count = 0.0, 0
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).tolist(), strict=True):
        if label == -100:
            continue
        count += 1
        logs = torch.log_softmax(row.double(), -1).tolist()
        total -= (1 - smoothing) * weights[label] * logs[label]
        total -= smoothing / len(logs) * sum(weight * log for weight, log in zip(weights, logs, strict=True))
    return total, count


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [2.0, 0.5, 0.0]])
def test_weights_and_smoothing_are_in_the_loss(weights: list[float], smoothing: float) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 5, 3), torch.randint(0, 3, (4, 5))
    labels[0, 1:] = -100
    loss = TaskLoss("tokens", np.array(weights), smoothing)
    total, count = by_loops(logits, labels, weights, smoothing)
    assert loss({"logits": logits}, labels).item() == pytest.approx(total / count, rel=1e-5)
    assert loss({"logits": logits}, labels, 70).item() == pytest.approx(total / 70, rel=1e-5)


def test_an_unknown_label_of_several_has_no_loss() -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 3), torch.randint(0, 2, (4, 3)).float()
    unknown = labels.clone()
    unknown[0, 1] = unknown[3, 2] = -100
    known = unknown != -100
    each = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    expected = each[known].mean().item()
    assert sequence_loss(logits, unknown, "multi_label_classification", None).item() == pytest.approx(expected)
    loss = TaskLoss("multi_label_classification")
    assert loss({"logits": logits}, unknown).item() == pytest.approx(expected)
    assert loss.rows(logits, unknown)[:, 1].tolist() == [2, 3, 3, 2]
    nothing = torch.full_like(labels, -100)
    assert sequence_loss(logits, nothing, "multi_label_classification", None).item() == 0


def test_the_flags_of_the_loss_reach_it(parsed: Callable[..., Parsed]) -> None:
    model, data, run, training = parsed(
        ClassificationTask, "--class_weights=balanced", "--label_smoothing_factor=0.2", "--validation_fraction=0"
    )
    task = load_task(ClassificationTask, model, data, run)
    loss = loss_of(task, torch.nn.Linear(1, 1), training)
    assert loss.smoothing == 0.2
    assert loss.weights is not None
    # One row is of the one class, seven of the other.
    assert sorted(loss.weights.tolist()) == pytest.approx([8 / (2 * 7), 8 / 2])


def test_the_loss_of_a_split_of_questions_is_that_of_its_spans() -> None:
    torch.manual_seed(0)
    start, end, labels = torch.randn(4, 6), torch.randn(4, 6), torch.tensor([[0, 2], [1, 5], [3, 3], [4, 5]])
    loss = SpanLoss("reading")
    outputs = {"start_logits": start, "end_logits": end}
    predictions = loss.predictions(outputs), loss.of_outputs(outputs, labels)
    scores = MetricsWithLoss(lambda _: {})(EvalPrediction(predictions=predictions, label_ids=labels))
    assert scores["loss"] == pytest.approx(loss(outputs, labels).item())


def test_the_loss_of_a_split_with_a_crf_is_that_of_the_model() -> None:
    batch = collate(rows_of("chains", 5))
    batch["labels"][0, 0] = -100
    model = tiny_model("StarTransformer", "ForTokenClassification", use_crf=True).eval()
    with torch.no_grad():
        output = model(**batch)
    predictions = output.paths, CRFLoss().of_outputs(output, batch["labels"])
    scores = MetricsWithLoss(lambda _: {})(EvalPrediction(predictions=predictions, label_ids=batch["labels"]))
    assert scores["loss"] == pytest.approx(output.loss.item(), rel=1e-5)


@pytest.mark.parametrize("recorded", [(), ("output_hidden_states",), ("output_attentions", "output_hidden_states")])
def test_a_split_is_scored_alike_where_a_tagger_with_a_crf_records_its_states(recorded: Any, tmp_path: Path) -> None:
    """States and attentions come before the best paths in the outputs, and messages after them."""
    batch = collate(rows_of("chains", 5))
    model = tiny_model("StarTransformer", "ForTokenClassification", use_crf=True).eval()
    with torch.no_grad():
        expected, alone = model(**batch), model(**{name: x for name, x in batch.items() if name != "labels"})
    for name in recorded:
        setattr(model.config, name, True)
    trainer = StarTrainer(model, TrainingArguments(str(tmp_path), report_to=[], use_cpu=True))
    trainer.loss = CRFLoss()
    _, (paths, sums), _ = trainer.prediction_step(model, batch, prediction_loss_only=False)
    assert torch.equal(paths, expected.paths)
    torch.testing.assert_close(sums[:, 0], expected.sequence_losses)
    unlabelled = {name: x for name, x in batch.items() if name != "labels"}
    _, paths, _ = trainer.prediction_step(model, unlabelled, prediction_loss_only=False)
    assert torch.equal(paths, alone.paths)
