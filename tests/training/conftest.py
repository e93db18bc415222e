"""Fixtures that the tests of training share."""

import gzip
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from datasets import DatasetDict
from script_samples import write_rows
from table_samples import CONTENT
from task_samples import GROUPS, ROWS, Parsed, flags

from modeling_star.training.data import load_splits
from modeling_star.training.experiments import Table
from modeling_star.training.task import Task
from modeling_star.training.translation import TranslationTask


ROOT = Path(__file__).resolve().parents[2]


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


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Parsed]:
    """The arguments of a task on its rows: model, data, run, training."""

    def parse(kind: type[Task], *given: str) -> Parsed:
        path = write_rows(tmp_path / f"{kind.__name__}.jsonl", ROWS[kind])
        command = ["script.py", f"--train_file={path}", f"--cache_dir={tmp_path}/cache", *given]
        monkeypatch.setattr(sys, "argv", command)
        own = flags.TRANSLATION_DEFAULTS if kind is TranslationTask else None
        training = "Seq2SeqTrainingArguments" if kind is TranslationTask else "TrainingArguments"
        return flags.parse(GROUPS[kind], "A script.", own, training_class=training)

    return parse


@pytest.fixture
def task_of(parsed: Callable[..., Parsed]) -> Callable[..., Any]:
    return lambda kind, *given: kind(*parsed(kind, *given)[:3])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table of table_samples, read from a file."""
    monkeypatch.chdir(ROOT)  # recipes are found from the project's root
    path = tmp_path / "tables" / "two.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CONTENT, sort_keys=False), encoding="utf-8")
    return Table.read(path)
