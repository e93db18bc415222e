"""The commands `modeling-star NAME`: their scripts, and recipes and model shapes by name."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from script_runner import ROOT, SCRIPTS

from modeling_star import commands
from modeling_star.commands import COMMANDS, distill, glue, ner, parse_run
from modeling_star.training.arguments import (
    ClassificationArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
)


GROUPS = (TaggingModelArguments, TaggingArguments, LabelRunArguments)


def test_every_script_is_a_command() -> None:
    moved = SCRIPTS / "run_translation.py"  # says where it is now
    scripts = [path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py") if path != moved]
    assert len(scripts) == len(COMMANDS)
    for name in COMMANDS:
        module = {"classify": "glue", "tag": "ner"}.get(name, name)
        assert callable(importlib.import_module(f"modeling_star.commands.{module}").main)
        assert sum(f'run("{name}")' in script for script in scripts) == 1


def test_the_wheel_has_the_command_and_the_configuration() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    module, _, function = project["project"]["scripts"]["modeling-star"].partition(":")
    assert getattr(importlib.import_module(module), function) is commands.main
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included == {"configuration": "modeling_star/configuration"}


@pytest.mark.parametrize(
    ("typed", "named"),
    [
        ("--train_file nope.csv", "nope.csv"),
        ("--train_file=train.csv --test_file nope.csv", "nope.csv"),
        ("--train_file train.csv --text_column_name nope", "'nope'.*--text_column_name words"),
        ("--train_file train.csv --label-column-name=nope", "'nope'.*--label_column_name tag"),
        ("--train_file train.csv --lr 1", "--learning_rate"),
        ("--train_file train.csv --batch-size=4", "--per_device_train_batch_size"),
        ("--cache_dir x", "HF_HOME"),
        ("--train_file train.csv --output_dir .", "holds train.csv"),
        ("--train_file train.csv --output_dir train.csv", "train.csv cannot be created"),
        ("--train_file train.csv --output_dir train.csv/a/b", "train.csv/a/b cannot be created"),
    ],
)
def test_what_is_typed_wrong_is_refused_before_slow_imports(
    typed: str, named: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("words,tag\nOslo is cold,O\n", encoding="utf-8")
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(SystemExit, match=named):
        parse_run(GROUPS, "A command.", typed=typed.split())


@pytest.mark.parametrize(("command", "extras"), [("ner", "train"), ("export", "train,onnx"), ("demo", "train,demo")])
def test_a_package_that_is_not_installed_is_named_with_its_extra(
    command: str, extras: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_another = SimpleNamespace(main=lambda: importlib.import_module("another"))
    monkeypatch.setitem(sys.modules, f"modeling_star.commands.{command}", needs_another)
    with pytest.raises(
        SystemExit,
        match=re.escape(f'write pip install ".[{extras}]"'),
    ):
        commands.run(command)


@pytest.mark.parametrize(
    "typed", [["--recipe", "wnut17"], ["wnut17"], ["--seed=3", "--recipe=configuration/recipes/wnut17.yaml"]]
)
def test_recipes_and_shapes_are_found_by_name(
    typed: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wnut17").mkdir()  # the data of the recipe
    monkeypatch.setattr(sys, "argv", ["modeling-star ner", *typed])
    model, _, _, training = parse_run(GROUPS, "")
    assert training.num_train_epochs == 10  # of paper_wnut17.yaml
    assert training.output_dir == "outputs/ner"
    assert json.loads(Path(model.config_name).read_text())["model_type"] == "star_transformer"  # the recipe's path
    monkeypatch.setattr(sys, "argv", ["modeling-star ner", *typed, "--config_name", "star-plus"])
    assert Path(parse_run(GROUPS, "")[0].config_name) == ROOT / "configuration" / "models" / "star-plus.json"


def test_an_existing_file_comes_before_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wnut17.yaml").write_text("label_column_name: mine")
    (tmp_path / "star-plus").mkdir()
    monkeypatch.setattr(sys, "argv", ["modeling-star ner", "wnut17.yaml", "--config_name=star-plus"])
    model, data, *_ = parse_run(GROUPS, "")
    assert (model.config_name, data.label_column_name) == ("star-plus", "mine")
    monkeypatch.setattr(sys, "argv", ["modeling-star ner", "nosuch"])
    with pytest.raises(SystemExit, match=r"no recipe nosuch.*wnut17"):
        parse_run(GROUPS, "")


def test_the_module_runs_commands(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "modeling_star", *arguments]
        return subprocess.run(command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)

    for name in ("tag", "ner"):
        assert f"modeling-star {name} [RECIPE.yaml]" in run(name, "--help").stdout
    assert all(f"  {name} " in run("--help").stdout for name in COMMANDS)


def test_a_mistyped_command_and_flags_of_other_programs_name_what_is_meant(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["modeling-star", "clasify"])
    with pytest.raises(SystemExit, match="Did you mean classify"):
        commands.main()
    for typed, meant in (
        ("--lr", "--learning_rate"),
        ("--batch_size", "train_batch_size"),
        ("--epochs", "num_train_"),
    ):
        monkeypatch.setattr(sys, "argv", ["modeling-star", "classify", typed, "1"])
        with pytest.raises(SystemExit, match=f"Did you mean .*{meant}"):
            commands.main()
    for typed, meant in (("--input", "--file"), ("--save", "--output_file"), ("--model", "predict MODEL")):
        monkeypatch.setattr(sys, "argv", ["modeling-star", "predict", "folder", "A text.", typed, "x"])
        with pytest.raises(SystemExit):
            commands.main()
        assert meant in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "command"),
    [
        (["--teacher=a"], "glue"),
        (["--teacher=a", "--task=tagging", "--stride=3"], "ner"),
        (["distill_ewt_pos", "--teacher=a"], "ner"),
        (["--recipe", "distill_sst2", "--teacher", "a", "--loss=kl"], "glue"),
        (["distill_ewt_pos", "--task", "classification", "--teacher=a", "--task_name=cola"], "glue"),
    ],
)
def test_distill_is_another_name_of_two_commands(
    typed: list[str], command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, Any]] = []
    for module in (glue, ner):
        name = module.__name__.rpartition(".")[2]
        monkeypatch.setattr(module, "train", lambda *arguments, name=name: called.append((name, arguments[1])))
    monkeypatch.setattr(sys, "argv", ["modeling-star distill", *typed])
    distill.main()
    ((name, data),) = called
    assert (name, data.teacher) == (command, "a")
    assert isinstance(data, {"glue": ClassificationArguments, "ner": TaggingArguments}[command])
