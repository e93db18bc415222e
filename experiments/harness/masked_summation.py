"""
Masked summation: the task, its data and its systems (section 5.1 of Guo et al. 2019, https://arxiv.org/abs/1902.09113).

An example is n vectors of d numbers. The first number is a flag, 1 for k vectors chosen at random and 0 for the
others; the rest are drawn from [0, 1). The target is the sum of the flagged vectors without their flags. The score is
the mean squared error (MSE): the mean over all examples and over the d - 1 numbers of their targets.

Axes: b examples  n vectors  d numbers of a vector  k flagged vectors
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedModel

from modeling_star.errors import UserError
from modeling_star.runs.cli_errors import as_user_error
from modeling_star.training.arguments import ModelArguments
from modeling_star.training.build import fresh_model


Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

# Name of a system -> model type, and the fields that define it.
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {}),
    "star-no-radial": ("star_transformer", {"use_radial": False}),
    "star-no-ring": ("star_transformer", {"use_ring": False}),
    "vanilla": ("vanilla_transformer", {}),
    "bilstm": ("bilstm", {}),
    "lstm": ("bilstm", {"bidirectional": False}),
}
# Encoders of this package, which take vectors of any width.
MODEL_TYPES = ("star_transformer", "big_transformer", "vanilla_transformer", "disan", "bilstm")


class SummationData(Dataset):
    """
    Examples in memory.

    Args:
        inputs: `[b, n, d]`.
        targets: `[b, d - 1]`.
    """

    def __init__(self, inputs: Tensor, targets: Tensor):
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """One example as a model takes it: `inputs_embeds [n, d]` and `labels [d - 1]`."""
        return {"inputs_embeds": self.inputs[index], "labels": self.targets[index]}


@dataclass(frozen=True)
class MaskedSummation:
    """
    The task at one length.

    Args:
        length: n.
        flagged: k.
        width: d.
        samples: examples of the train, validation and test split.
        seed: of the data. Each split is a stream of random numbers of its own.

    Raises:
        UserError: a number is too small, or k > n.
    """

    length: int
    flagged: int = 10
    width: int = 10
    samples: tuple[int, int, int] = (10_000, 10_000, 10_000)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.flagged <= self.length or self.width < 2 or min(self.samples) < 1 or self.seed < 0:
            raise UserError(
                f"n = {self.length}, k = {self.flagged}, d = {self.width}, samples {self.samples}, seed {self.seed}: "
                "1 <= k <= n, 2 <= d, samples of 1 or more and a seed of 0 or more are allowed. Write --lengths 10 "
                "--flagged 10 --width 10"
            )

    def draw(self, split: Split) -> SummationData:
        """The examples of a split, the same at every call."""
        number = SPLITS.index(split)
        count = self.samples[number]
        source = np.random.default_rng([self.seed, number])
        inputs = np.empty((count, self.length, self.width), dtype=np.float32)
        inputs[..., 1:] = source.random((count, self.length, self.width - 1), dtype=np.float32)
        flags = np.zeros((count, self.length), dtype=np.float32)
        flags[:, : self.flagged] = 1
        inputs[..., 0] = source.permuted(flags, axis=1)
        targets = (inputs[:, None, :, 0] @ inputs[..., 1:])[:, 0]  # [b, d - 1]
        return SummationData(torch.from_numpy(inputs), torch.from_numpy(targets))

    def guess_errors(self, data: SummationData) -> dict[str, float]:
        """
        MSE of guesses without a model.

        Returns:
            "half": of always guessing k/2, which is k/12 on average over data sets (the variance of a number is 1/12).
            "scaled": of k/n times the sum of all vectors, whose flags are not read; k/12 (1 - k/n) on average.
        """
        targets = data.targets.double()
        everything = data.inputs[..., 1:].sum(1, dtype=torch.float64)
        guesses = {"half": torch.tensor(self.flagged / 2), "scaled": everything * self.flagged / self.length}
        return {name: float((guess - targets).square().mean()) for name, guess in guesses.items()}


def read_shape(path: str, width: int) -> dict[str, Any]:
    """
    The fields that all systems share: those of a configuration's JSON file, without its model type.

    Args:
        path: the file.
        width: d, which replaces the file's `embedding_size`.

    Raises:
        UserError: the file cannot be read.
    """
    with as_user_error():
        shape = json.loads(Path(path).read_text(encoding="utf-8"))
    return {name: value for name, value in shape.items() if name != "model_type"} | {"embedding_size": width}


@dataclass(frozen=True)
class System:
    """
    An encoder with the MLP head, d - 1 numbers out.

    Args:
        name: in `SYSTEMS`, or a model type of this package.
        shape: fields that all systems share, from `read_shape`; a model ignores those that it does not have.
        overrides: fields that win, and that every system must have.

    Raises:
        UserError: there is no such system.
    """

    name: str
    shape: dict[str, Any]
    overrides: dict[str, Any]

    def __post_init__(self) -> None:
        if self.model_type not in MODEL_TYPES:
            raise UserError(f"--systems names {self.name}; {', '.join([*SYSTEMS, *MODEL_TYPES])} are allowed.")

    @property
    def model_type(self) -> str:
        """Its `model_type` in transformers."""
        return SYSTEMS[self.name][0] if self.name in SYSTEMS else self.name

    @property
    def defining_fields(self) -> dict[str, Any]:
        """The fields that distinguish this system, and the overrides."""
        return {**(SYSTEMS[self.name][1] if self.name in SYSTEMS else {}), **self.overrides}

    @property
    def fields(self) -> dict[str, Any]:
        """All fields of its configuration that are set."""
        return {"model_type": self.model_type, **self.shape, **self.defining_fields}

    def build(self, task: MaskedSummation) -> PreTrainedModel:
        """
        The model with fresh weights, for examples as long and wide as the task's.

        Raises:
            UserError: its configuration does not allow the fields.
        """
        with as_user_error():
            return fresh_model(
                "AutoModelForSequenceClassification",
                None,
                {"num_labels": task.width - 1, "problem_type": "regression"},
                ModelArguments(model_type=self.model_type, config_overrides=json.dumps(self.defining_fields)),
                task.length,
                self.shape,
            )
