"""A table of experiments for tests: two tasks, two settings, three systems; and finished runs of it."""

import json
from pathlib import Path
from typing import Any

from lab.table_runs import Runner
from lab.tables import Configuration, Table


CONTENT: dict[str, Any] = {
    "title": "A table",
    "about": "Of two systems.",
    "against": "star",
    "seeds": [1, 2, 3],
    "arguments": {"per_device_train_batch_size": 16},
    "tasks": {
        "films": {"title": "Films", "metric": "accuracy", "script": "run_glue.py", "recipe": "sst2", "data": "films"},
        "books": {"title": "Books", "metric": "accuracy", "script": "run_glue.py", "recipe": "sst2", "data": "books"},
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


def runner_of(table: Table, tmp_path: Path) -> Runner:
    return Runner(table, tmp_path / "results", tmp_path / "work", {"DATA": "/my/data"}, ["true"])


def keep(runner: Runner, configuration: Configuration, seed: int, validation: float, correct: str) -> None:
    """A finished run: which of the test examples were right."""
    right = [int(one) for one in correct]
    result = {
        "validation": validation,
        "test": sum(right) / len(right),
        "parameters": 1_000_000,
        "training_seconds": 60.0,
        "environment": {"commit": "0123456789ab"},
        "counts": "; ".join([" ".join(map(str, right)), " ".join("1" for _ in right)]),
    }
    path = runner.finished.path(configuration, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result), encoding="utf-8")
