"""
The losses of all tasks, the same for every model: they read its outputs by their names.

Another loss is a class here, which `loss_of` chooses.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import EvalPrediction, PreTrainedModel, TrainingArguments

from ..errors import UserError
from ..models.tag_schemes import IGNORE_INDEX


def class_weights(given: str, label_list: tuple[str, ...], counts: dict[str, int]) -> np.ndarray | None:
    """
    The weight of each class, or `None` for equal weights: "none"; "balanced" for the inverse of their frequencies in
    the training split, `counts`; or one number per label, such as "1,2.5,1".
    """
    if given == "none":
        return None
    if given == "balanced":
        # A label that only another split has gets the weight of a label that occurs once.
        occurrences = np.array([max(counts[name], 1) for name in label_list], dtype=np.float64)
        return occurrences.sum() / (len(occurrences) * occurrences)
    try:
        weights = np.array([float(part) for part in given.split(",")])
    except ValueError:
        weights = np.array([np.nan] * len(label_list))
    if len(weights) != len(label_list):
        raise UserError(
            f"--class_weights has {len(weights)} numbers for {len(label_list)} labels: {', '.join(label_list)}."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise UserError(f"--class_weights {given} is given: write none, balanced, or numbers from 0 up such as 1,2.5.")
    return weights


class TaskLoss:
    """
    Trainer's `compute_loss_func`; what is held of a scored split, and the exact loss of that split.

    The models' own losses are not used: in transformers 5.23 those for regression and for several labels ignore
    `num_items_in_batch`, which multiplies their gradients by the accumulation steps. Trainer's own evaluation loss is
    a mean of batch means: it depends on the batches, and counts rows twice if the processes do not share them evenly.

    `weights` are those of the classes, `[k]`; `smoothing` is the part of the target that is spread over all classes.
    `has_one_class` says whether these are allowed, and `in_model` whether the model computes the loss from labels.
    """

    has_one_class = True
    in_model = False

    def __init__(self, problem_type: str, weights: np.ndarray | None = None, smoothing: float = 0.0):
        self.problem_type = problem_type
        self.weights = None if weights is None else torch.tensor(weights, dtype=torch.float32)
        self.smoothing = smoothing

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The mean loss over the labels of a batch, or over `num_items_in_batch` labels of several batches."""
        total, count = self.rows(self.logits(outputs), labels).sum(0)
        if num_items_in_batch is None:
            return total / count.clamp(min=1)
        # A batch may have no label if few tokens have one.
        items = torch.as_tensor(num_items_in_batch, device=total.device)
        return total / items.clamp(min=1)

    def logits(self, outputs: Any) -> Tensor:
        """What `rows` takes, from a model's outputs."""
        return outputs["logits"]

    def predictions(self, outputs: Any) -> Tensor:
        """What is held of each row of a split: logits, of a tagger's `[b, n, k]` the predicted labels `[b, n]`."""
        logits = outputs["logits"]
        return logits.argmax(-1) if logits.dim() == 3 else logits

    def of_outputs(self, outputs: Any, labels: Tensor) -> Tensor:
        """`rows` of a model's outputs, `[b, 2]`."""
        return self.rows(self.logits(outputs), labels)

    def rows(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each example, summed over its labels, and their number: `[b, 2]`."""
        logits, labels = logits.float(), labels.to(logits.device)
        if self.problem_type in ("multi_label_classification", "regression"):
            labels = labels.reshape(logits.shape).float()
            if self.problem_type == "regression":
                losses = nn.functional.mse_loss(logits, labels, reduction="none")
                counted = torch.ones_like(losses)
            else:
                losses = nn.functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
                counted = (labels != IGNORE_INDEX).float()
                losses = losses.masked_fill(labels == IGNORE_INDEX, 0)
        else:
            losses = nn.functional.cross_entropy(
                logits.reshape(-1, logits.shape[-1]),
                labels.reshape(-1),
                weight=None if self.weights is None else self.weights.to(logits.device),
                reduction="none",
                ignore_index=IGNORE_INDEX,
                label_smoothing=self.smoothing,
            )
            counted = (labels != IGNORE_INDEX).float()
        # Not -1, which is ambiguous for an empty batch.
        shape = (len(labels), losses.numel() // max(len(labels), 1))
        return torch.stack([losses.reshape(shape).sum(1), counted.reshape(shape).sum(1)], dim=1)


class SpanLoss(TaskLoss):
    """The loss of question answering: labels `[b, 2]`, first and last column of the answer, one class per column."""

    has_one_class = False

    def logits(self, outputs: Any) -> Tensor:
        """`[b, 2, n]`."""
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=1)

    def predictions(self, outputs: Any) -> Tensor:
        """Start and end scores `[b, n, 2]`, which Trainer pads to equal n."""
        return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=2)


class CRFLoss(TaskLoss):
    """The loss of taggers with a CRF, which the model computes: the likelihood of a row is no sum over its logits."""

    in_model = True

    def __init__(self) -> None:
        super().__init__("tokens")

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The mean that the model has computed."""
        return outputs["loss"]

    def predictions(self, outputs: Any) -> Tensor:
        """The best paths `[b, n]`."""
        return outputs["paths"]

    def of_outputs(self, outputs: Any, labels: Tensor) -> Tensor:
        """The likelihood of each row and the number of its labels, `[b, 2]`."""
        losses = outputs["sequence_losses"]
        return torch.stack([losses.float(), (labels != IGNORE_INDEX).sum(1).to(losses)], dim=1)


class MaskedLoss(TaskLoss):
    """The loss of masked language models: the mean over all masked tokens of an update, from their logits alone."""

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Of logits as in `chosen_logits` and labels `[S, m]`."""
        chosen = labels != IGNORE_INDEX
        chosen_outputs = {"logits": chosen_logits(outputs["logits"], chosen)}
        return super().__call__(chosen_outputs, labels[chosen], num_items_in_batch)


def chosen_logits(logits: Tensor, chosen: Tensor) -> Tensor:
    """The logits `[P, V]` of some tokens `[S, m]`, also from a model that has computed those of all, `[S, m, V]`."""
    return logits[chosen] if logits.dim() == 3 else logits


@dataclass
class MetricsWithLoss:
    """A task's metrics, and the loss of the split from `TaskLoss.of_outputs`: Trainer's `compute_metrics`."""

    metrics: Callable[[EvalPrediction], dict[str, float]]

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        total, count = np.asarray(prediction.predictions[1], dtype=np.float64).sum(0)
        loss = float(total / max(count, 1))
        scores = self.metrics(prediction) if np.isfinite(loss) else {}  # libraries refuse NaN
        return {**scores, "loss": loss}


def loss_of(task: Any, model: PreTrainedModel, training: TrainingArguments) -> TaskLoss:
    """The loss of a run: the task's own or that of a CRF, with --class_weights and --label_smoothing_factor."""
    problem, weighting, smoothing = task.metrics.task, task.run_args.class_weights, training.label_smoothing_factor
    has_crf = getattr(model, "crf", None) is not None
    one_class = task.loss_class.has_one_class and problem not in ("multi_label_classification", "regression")
    if has_crf or not one_class:
        for flag, is_set in (("--class_weights", weighting != "none"), ("--label_smoothing_factor", smoothing > 0)):
            if is_set:
                advice = "write --config_overrides use_crf=false, or omit it" if has_crf else "omit it"
                what = "a CRF" if has_crf else problem
                raise UserError(f"{flag} works with one class for each text or token, not with {what}: {advice}.")
        return CRFLoss() if has_crf else task.loss_class(problem)
    weights = None
    if weighting != "none" and training.do_train:
        counts = task.data.counts("train") if weighting == "balanced" else {}
        weights = class_weights(weighting, tuple(task.data.label_list), counts)
    return task.loss_class(problem, weights, float(smoothing))
