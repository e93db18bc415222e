"""Recipes for data sets that are not ours to keep, each on two rows in the form that the data set has."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from script_runner import ROOT
from task_samples import GROUPS

from modeling_star.commands.parser import parse
from modeling_star.runs.run import load_task
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.task import Task


KINDS: dict[str, type[Task]] = {"tag": TaggingTask, "classify": ClassificationTask}
FORMS = [json.loads(line) for line in (ROOT / "tests/data/cases/recipes.jsonl").read_text("utf-8").splitlines()]


@pytest.mark.parametrize("form", FORMS, ids=[form["recipe"] for form in FORMS])
def test_a_recipe_reads_data_as_they_come(
    form: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path, kind = tmp_path / form["file"], KINDS[form["task"]]
    path.write_text(form["text"], encoding="utf-8")
    monkeypatch.chdir(ROOT)
    recipe = f"configuration/recipes/{form['recipe']}.yaml"
    files = [f"--{split}_file={path}" for split in ("train", "validation", "test")]
    monkeypatch.setattr(sys, "argv", ["script.py", recipe, *files])
    *groups, _ = parse(GROUPS[kind], "A script.")
    assert [*load_task(kind, *groups).data.label_list] == form["labels"]
