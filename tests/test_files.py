"""Files are written whole or not at all."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from modeling_star.files import write_atomically, write_json, write_text


def test_json_holds_numpy_paths_and_chinese_and_no_nan(tmp_path: Path) -> None:
    data = {"f1": np.float32(0.5), "counts": np.arange(3), 1: (True, None), "nan": float("nan"), "路径": tmp_path}
    path = write_json(tmp_path / "new" / "all_results.json", data | {"inf": np.float64("inf")})
    expected = {"f1": 0.5, "counts": [0, 1, 2], "1": [True, None], "nan": None, "路径": str(tmp_path), "inf": None}
    assert json.loads(path.read_text(encoding="utf-8")) == expected
    assert "路径" in path.read_text(encoding="utf-8")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write_json(tmp_path / "results.json", {"f1": 0.5})
    with pytest.raises(TypeError):
        write_json(path, {"f1": 0.6, "model": [object()]})

    def fail_halfway(stream: object) -> None:
        stream.write(b"{")
        raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_atomically(path, fail_halfway)
    assert json.loads(path.read_text()) == {"f1": 0.5}
    assert os.listdir(tmp_path) == ["results.json"]


def test_files_are_as_readable_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    path = write_text(tmp_path / "ours", "é\n")
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert path.read_bytes() == b"\xc3\xa9\n"
