"""The loss of a fine-tuning run: one for every model, ours or another of transformers."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..heads import sequence_loss
from .data_files import DataError


def class_weights(given: str, label_list: tuple[str, ...], counts: dict[str, int]) -> np.ndarray | None:
    """
    The weight of each class, or `None` where all count alike.

    Args:
        given: "none"; "balanced": inversely to how often a class occurs; or a number for each label: "1,2.5,1".
        label_list: names of the labels.
        counts: how often each occurs in the training split.

    Raises:
        DataError: the numbers are none, or do not fit the labels.
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
        raise DataError(
            f"--class_weights {given} is given; none, balanced or numbers such as 1,2.5 are allowed."
        ) from None
    if len(weights) != len(label_list):
        raise DataError(
            f"--class_weights has {len(weights)} numbers for {len(label_list)} labels: {', '.join(label_list)}."
        )
    if not (np.isfinite(weights) & (weights >= 0)).all():
        raise DataError(f"--class_weights {given} is given; numbers from 0 up are allowed, such as 1,2.5,1.")
    return weights


def make_loss(
    problem_type: str, weights: np.ndarray | None = None, smoothing: float = 0.0
) -> Callable[..., torch.Tensor]:
    """
    `compute_loss_func` for Trainer.

    Models are not asked for their own loss: in transformers 5.23 those for regression and for several labels take no
    notice of `num_items_in_batch`, which multiplies their gradients by the steps that are accumulated.

    Args:
        problem_type: "multi_label_classification", "regression", or anything else for one class a text or token.
        weights: of the classes, `[k]`.
        smoothing: part of the target that is spread over all classes (`--label_smoothing_factor`).
    """
    table = None if weights is None else torch.tensor(weights, dtype=torch.float32)

    def loss(outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        logits = outputs["logits"].float()
        if problem_type in ("multi_label_classification", "regression"):
            return sequence_loss(logits, labels, problem_type, num_items_in_batch)
        flat = labels.reshape(-1).to(logits.device)
        total = torch.nn.functional.cross_entropy(
            logits.reshape(len(flat), -1),
            flat,
            weight=None if table is None else table.to(logits.device),
            reduction="sum",
            ignore_index=-100,
            label_smoothing=smoothing,
        )
        count = (flat != -100).sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch
        return total / (count.to(total.device) if torch.is_tensor(count) else count)

    return loss


__all__ = ["class_weights", "make_loss"]
