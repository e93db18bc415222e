"""A table of experiments for tests: two tasks, two settings, three systems."""

from typing import Any


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
