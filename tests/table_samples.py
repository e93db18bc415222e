"""A small table of experiments for tests: two tasks, two settings, three systems; and finished runs of it."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml
from harness.results_page import write_page
from harness.stored_runs import RunFile
from harness.table_runs import Runner
from harness.tables import Configuration, Table


CONTENT: dict[str, Any] = {
    "title": "A table",
    "about": "Of two systems.",
    "against": "star",
    "seeds": [1, 2, 3],
    "arguments": {"per_device_train_batch_size": 16},
    "tasks": {
        "films": {
            "title": "Films",
            "metric": "accuracy",
            "script": "run_glue.py",
            "recipe": "paper_sst2",
            "data": "films",
        },
        "books": {
            "title": "Books",
            "metric": "accuracy",
            "script": "run_glue.py",
            "recipe": "paper_sst2",
            "data": "books",
        },
    },
    "settings": {
        "none": {"title": "random", "grid": [{"learning_rate": 1e-3}, {"learning_rate": 1e-4}]},
        "bert": {"title": "BERT", "tasks": {"films": {"num_train_epochs": 1}}, "arguments": {"learning_rate": 5e-5}},
    },
    "systems": {
        "star": {"title": "Star"},
        "big": {"title": "BiG", "settings": ["none"], "arguments": {"config_overrides": {"hidden_size": 8}}},
        "linear": {"title": "linear", "settings": ["bert"], "last": {"config_name": None, "config_overrides": None}},
    },
}


def with_changes(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of a table's content with changed keys; mappings within are merged."""
    return content | {
        key: with_changes(content[key], value)
        if isinstance(value, dict) and isinstance(content.get(key), dict)
        else value
        for key, value in changes.items()
    }


def write_table(tmp_path: Path, **changes: Any) -> Table:
    """The table with changes, read from `tables/two.yaml`."""
    path = tmp_path / "tables" / "two.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump(with_changes(CONTENT, changes), sort_keys=False), encoding="utf-8")
    return Table.read(path)


def runner_of(table: Table, tmp_path: Path) -> Runner:
    """A runner whose scripts fail."""
    return Runner(table, tmp_path / "results", tmp_path / "work", {"DATA": "/my/data"}, ["false"])


def page_of(tmp_path: Path) -> str:
    """The page of the table, made now."""
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    return (tmp_path / "pages" / "two.md").read_text(encoding="utf-8")


def forget(file: RunFile, pattern: str) -> None:
    """Delete the lines of the runs whose names match."""
    runs = {name: run for name, run in file.read_all().items() if not fnmatchcase(name, pattern)}
    file.path.unlink()
    file.keep(runs)


def keep(
    runner: Runner, configuration: Configuration, seed: int, validation: float, correct: str, **more: Any
) -> None:
    """A finished run: 1 for each test example that was right, 0 for the others."""
    right = [int(one) for one in correct]
    result = {
        "validation": validation,
        "test": sum(right) / len(right),
        "parameters": 1_000_000,
        "training_seconds": 60.0,
        "environment": {"commit": "0123456789ab"},
        "counts": "; ".join([" ".join(map(str, right)), " ".join("1" for _ in right)]),
        **more,
    }
    runner.finished.keep(configuration, seed, result)
