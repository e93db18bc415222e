"""The real data sets, where this machine has them: they are never part of the project."""

import os
from pathlib import Path

import pytest


def data_folder(name: str) -> Path:
    """The folder of a data set; the test that asks is skipped where it is absent."""
    data = Path(os.environ.get("MODELING_STAR_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / name).is_dir():
        pytest.skip(f"{data / name} is absent: set MODELING_STAR_DATA to the folder with the data sets")
    return data / name
