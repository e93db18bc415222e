"""The mean of the weights of several checkpoints."""

from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from .data_files import DataError


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """
    The mean of each tensor over checkpoints (section 6.1 of https://arxiv.org/abs/1706.03762), added up in float64.

    Args:
        folders: each with a model's safetensors files, in one or several parts; the newest first. What is not
            floating point, such as a lexicon, is that of the newest.

    Raises:
        DataError: there is no folder, a folder has no weights, or they are not those of the same model.
    """
    if not folders:
        raise DataError(
            "There is no whole checkpoint to average: write --save_strategy epoch, or steps with --save_steps"
        )
    sums: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for folder in folders:
        weights: dict[str, Tensor] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            weights |= load_file(file)
        if not first:
            first = weights
        shapes, known = ({name: x.shape for name, x in held.items()} for held in (weights, first))
        if not weights or shapes != known:
            raise DataError(
                f"{folder} holds no weights of the model that {folders[0]} holds: name another --output_dir, so that "
                "checkpoints of one run stand by themselves."
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (sums[name] / len(folders)).to(x.dtype) if name in sums else x for name, x in first.items()}


__all__ = ["average_checkpoints"]
