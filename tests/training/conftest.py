"""Fixtures that the tests of data share."""

import gzip
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from datasets import DatasetDict

from modeling_star.training.data import load_splits


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., DatasetDict]:
    """Write texts to files (packed where the name ends in .gz) and load them as splits."""

    def write_and_load(**named: tuple[str, str]) -> DatasetDict:
        files = {}
        for split, (name, text) in named.items():
            path = tmp_path / split / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
            files[split] = path
        return load_splits(files=files, cache_dir=str(tmp_path / "cache"))

    return write_and_load
