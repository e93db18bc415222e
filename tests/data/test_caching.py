"""Caches of `datasets` are not used for newer code or newer files."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import pytest

import modeling_star
from modeling_star.data import classification, packing, squad, tagging
from modeling_star.data.files import source_version
from modeling_star.data.readers import read_file
from modeling_star.errors import UserError


ENCODERS = (
    *(classification._TextEncoder, tagging._WordEncoder, packing.PieceEncoder),
    *(squad._Unfolder, squad.WindowEncoder),
)
TOKENIZE = """
import sys
from modeling_star.data.readers import read_file
from modeling_star.data.tagging import tokenize_and_align
from modeling_star.data.tokenizers import train_tokenizer

rows = read_file(sys.argv[1])
tokenizer = train_tokenizer(rows["tokens"], "word", min_frequency=1)
print(tokenize_and_align(rows, tokenizer, tags_column=None)[0]["word_ids"])
"""


@pytest.mark.slow
def test_features_are_made_anew_where_the_code_that_makes_them_has_changed(tmp_path: Path) -> None:
    copy, data = tmp_path / "modeling_star", tmp_path / "train.conll"
    shutil.copytree(Path(modeling_star.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    data.write_text("we O\nlive O\n", encoding="utf-8")
    changed = copy / "data" / "windows.py"

    def word_ids() -> str:
        command = [sys.executable, "-c", TOKENIZE, str(data)]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    assert word_ids() == "[-1, 0, 1, -1]"
    source = changed.read_text(encoding="utf-8")
    assert "\nNO_WORD = -1\n" in source
    changed.write_text(source.replace("\nNO_WORD = -1\n", "\nNO_WORD = -7\n"), encoding="utf-8")
    assert word_ids() == "[-7, 0, 1, -7]"


@pytest.mark.parametrize("encoder", ENCODERS, ids=lambda encoder: encoder.__name__)
def test_every_encoder_has_the_version_of_its_source(encoder: Any) -> None:
    others = {
        squad._Unfolder: ("columns",),
        squad.WindowEncoder: ("question_windows", "windows"),
        tagging._WordEncoder: ("windows",),
        classification._TextEncoder: ("windows",),
    }
    modules = (encoder.__module__, *(f"modeling_star.data.{name}" for name in others.get(encoder, ())))
    assert encoder.__dataclass_fields__["version"].default == source_version(*modules)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return str(tmp_path / "cache")


def test_conll_files_are_cached_until_they_change(tmp_path: Path, cache: str) -> None:
    path = tmp_path / "train.conll"
    path.write_text("we O\n\nlive O\n", encoding="utf-8")
    rows = read_file(path)
    assert rows["tokens"][:] == [["we"], ["live"]]
    (cached,) = rows.cache_files
    assert cached["filename"].startswith(cache)
    again = read_file(path)
    assert (again.cache_files, again._fingerprint) == (rows.cache_files, rows._fingerprint)
    path.write_text("Kyoto O\n", encoding="utf-8")
    assert read_file(path)["tokens"][:] == [["Kyoto"]]


@pytest.mark.usefixtures("cache")
def test_a_broken_sentence_after_good_ones_leaves_no_cache_behind(tmp_path: Path) -> None:
    path = tmp_path / "train.conll"
    path.write_text("we O\n\n" * 3000 + "live\n", encoding="utf-8")
    for _ in range(2):
        with pytest.raises(UserError, match=r"train\.conll, line 6001 is 'live'"):
            read_file(path)
