"""The loss of a fine-tuning run: one for every model, ours or another of transformers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import EvalPrediction

from ..data.labels import IGNORE_INDEX
from ..errors import UserError
from ..models.heads import mask_ignored


def class_weights(given: str, label_list: tuple[str, ...], counts: dict[str, int]) -> np.ndarray | None:
    """
    The weight of each class, or `None` where all count alike.

    Args:
        given: "none"; "balanced": inversely to how often a class occurs; or a number for each label: "1,2.5,1".
        label_list: names of the labels.
        counts: how often each occurs in the training split.

    Raises:
        UserError: the numbers are none, or do not fit the labels.
    """
    if given == "none":
        return None
    if given == "balanced":
        # A label that never occurs (a tag that only the test split has) gets the weight of one that occurs once.
        found = np.array([max(counts[name], 1) for name in label_list], dtype=np.float64)
        return found.sum() / (len(found) * found)
    try:
        weights = np.array([float(part) for part in given.split(",")])
    except ValueError:
        raise UserError(
            f"--class_weights {given} is given; none, balanced or numbers such as 1,2.5 are allowed."
        ) from None
    if len(weights) != len(label_list):
        raise UserError(
            f"--class_weights has {len(weights)} numbers for {len(label_list)} labels: {', '.join(label_list)}."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise UserError(f"--class_weights {given} is given; numbers from 0 up are allowed, such as 1,2.5,1.")
    return weights


class TaskLoss:
    """
    What Trainer takes as `compute_loss_func`, and the exact loss of a whole split.

    Models are not asked for their own loss: in transformers 5.23 those for regression and for several labels take no
    notice of `num_items_in_batch`, which multiplies their gradients by the steps that are accumulated. Trainer's own
    evaluation loss is a mean of batch means: it changes with the batches, and counts rows twice where the processes do
    not share them evenly.

    Args:
        problem_type: "multi_label_classification", "regression", or anything else for one class a text, token or span
            end.
        weights: of the classes, `[k]`.
        smoothing: part of the target that is spread over all classes (`--label_smoothing_factor`).
    """

    def __init__(self, problem_type: str, weights: np.ndarray | None = None, smoothing: float = 0.0):
        self.problem_type = problem_type
        self.weights = None if weights is None else torch.tensor(weights, dtype=torch.float32)
        self.smoothing = smoothing

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """The mean over the labels of a batch, or its part of `num_items_in_batch` labels."""
        total, count = self.rows(outputs["logits"], labels).sum(0)
        if num_items_in_batch is None:
            return total / count.clamp(min=1)
        # A batch may have no label at all, where few tokens have one.
        items = torch.as_tensor(num_items_in_batch, device=total.device)
        return total / items.clamp(min=1)

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
                losses, counted = mask_ignored(losses, labels), (labels != IGNORE_INDEX).float()
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
        # Written out: there may be no example, and then -1 would not be known.
        shape = (len(labels), losses.numel() // max(len(labels), 1))
        return torch.stack([losses.reshape(shape).sum(1), counted.reshape(shape).sum(1)], dim=1)

    def keep(self, logits: Any, labels: Tensor | None) -> Any:
        """
        What is held in memory over a whole split, and sent to the main process: `preprocess_logits_for_metrics`.

        Label indices `[b, n]` take the place of a tagger's logits `[b, n, k]`; with labels, `rows` comes after them.
        """
        logits = logits[0] if isinstance(logits, tuple) else logits
        kept = logits.argmax(-1) if logits.dim() == 3 else logits
        return kept if labels is None else (kept, self.rows(logits, labels))


class SpanLoss(TaskLoss):
    """
    Of question answering: labels `[b, 2]`, the columns where the answer starts and ends, one class a column each.

    `TaskLoss.rows` reads the scores as `[b, 2, n]`.
    """

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=1)
        return super().__call__({"logits": logits}, labels, num_items_in_batch)

    def keep(self, logits: Any, labels: Tensor | None) -> Any:
        """Start and end scores as `[b, n, 2]`, which Trainer pads to equal n; with labels, `rows` comes after them."""
        kept = torch.stack(logits[:2], dim=2)
        return kept if labels is None else (kept, self.rows(kept.transpose(1, 2), labels))


class CRFLoss(TaskLoss):
    """
    For taggers with a CRF, which compute their own loss: what is kept of a split is the best paths and that loss.

    Trainer is given no `compute_loss_func` then: the likelihood of a row is no sum over its logits.
    """

    def __init__(self) -> None:
        super().__init__("tokens")

    def keep(self, logits: Any, labels: Tensor | None) -> Any:
        """Best paths `[b, n]`; with labels, the loss of each row and the number of its labels `[b, 2]` after them."""
        if labels is None:
            return logits[-1]
        *_, paths, losses = logits
        counted = (labels != IGNORE_INDEX).sum(1).to(losses)
        return paths, torch.stack([losses.float(), counted], dim=1)


@dataclass
class MetricsWithLoss:
    """A task's metrics and the loss of the split, from what `TaskLoss.keep` has left: `compute_metrics`."""

    metrics: Callable[[EvalPrediction], dict[str, float]]

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        total, count = np.asarray(prediction.predictions[1], dtype=np.float64).sum(0)
        return {**self.metrics(prediction), "loss": float(total / max(count, 1))}


__all__ = ["CRFLoss", "MetricsWithLoss", "SpanLoss", "TaskLoss", "class_weights"]
