"""The mean of the last checkpoints."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from modeling_star.errors import UserError
from modeling_star.training.trainer import average_checkpoints


def test_checkpoints_are_averaged_tensor_by_tensor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folders, saved = [], []
    for number in range(5):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        weights = {"a": torch.randn(3, 2), "b": torch.randn(4).half(), "words": torch.tensor([number])}
        parts = [{"a": weights["a"]}, {"b": weights["b"], "words": weights["words"]}]
        for part, tensors in enumerate(parts):
            save_file(tensors, folder / f"model-{part}.safetensors")
        folders.append(folder)
        saved.append(weights)
    mean = average_checkpoints(folders)
    assert mean["words"].item() == 0  # that of the first named, the newest
    for name in ("a", "b"):
        assert mean[name].dtype == saved[0][name].dtype
        for place in np.ndindex(*mean[name].shape):
            expected = sum(weights[name][place].item() for weights in saved) / 5
            assert mean[name][place].item() == pytest.approx(expected, rel=1e-6 if name == "a" else 1e-3, abs=1e-6)
    assert average_checkpoints(folders[:1])["a"].equal(saved[0]["a"])


def test_averages_are_refused_for_lack_of_checkpoints_or_of_one_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no whole checkpoint to average"):
        average_checkpoints([])
    for name, width in (("one", 2), ("other", 3)):
        (tmp_path / name).mkdir()
        save_file({"a": torch.zeros(width)}, tmp_path / name / "model.safetensors")
    with pytest.raises(UserError, match="name another --output_dir"):
        average_checkpoints([tmp_path / "one", tmp_path / "other"])
