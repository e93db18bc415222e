"""Flags, recipes, shapes and names of commands: parsing, defaults, errors before slow imports."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from datasets import Dataset, DatasetDict
from script_runner import ROOT, SCRIPTS
from task_samples import GROUPS, ROWS, flags

from modeling_star import commands
from modeling_star.commands import COMMANDS, distill, glue, ner, parse_run
from modeling_star.commands.parser import RECIPE_KEYS, parse
from modeling_star.data import splits
from modeling_star.runs.run import load_task
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.question_answering import ReadingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.arguments import (
    RENAMED,
    ClassificationArguments,
    LabelRunArguments,
    TaggingArguments,
    TaggingModelArguments,
)
from modeling_star.training.named_models import parse_overrides
from modeling_star.training.task import Task


def parsed(monkeypatch: pytest.MonkeyPatch, *arguments: Any, kind: type[Task] = ClassificationTask) -> tuple[Any, ...]:
    """Model, data, run and training arguments of a command line."""
    monkeypatch.setattr(sys, "argv", ["run_scripts/run_ner.py", *map(str, arguments)])
    return parse(GROUPS[kind], "A script.")


def error_of(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> str:
    """The one-line error of a command line."""
    with pytest.raises(SystemExit) as stop:
        parsed(monkeypatch, *arguments)
    message = str(stop.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("kind", GROUPS)
@pytest.mark.parametrize("changes", [{}, {"task_name": "sst2"}], ids=["files", "glue"])
def test_reading_the_data_changes_no_argument(
    kind: type[Task], changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """They are compared with those of an earlier run, and a user may use them again."""
    if changes and kind is not ClassificationTask:
        pytest.skip("GLUE is for classification")
    rows = "".join(json.dumps(row) + "\n" for row in ROWS[kind])
    (tmp_path / "a.jsonl").write_text(rows, encoding="utf-8")
    path = str(tmp_path / "a.jsonl")
    given = changes or {"train_file": [path] if kind is PretrainingTask else path}
    read: list[Any] = []

    def load_named(*names: Any, **_: Any) -> DatasetDict:
        read.append(names)
        return DatasetDict({"train": Dataset.from_list(ROWS[kind]), "validation": Dataset.from_list(ROWS[kind])})

    monkeypatch.setattr(splits, "load_named", load_named)
    groups = [of_group(**{x: y for x, y in given.items() if hasattr(of_group, x)}) for of_group in GROUPS[kind]]
    before = deepcopy(groups)
    load_task(kind, *groups)
    assert groups == before
    assert read == ([("nyu-mll/glue", "sst2")] if changes else [])


def recipe(folder: Path, **keys: Any) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(keys), encoding="utf-8")
    return path


COMMON = ("--train_file", "--learning_rate", "--embeddings_name_or_path", "--seeds")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("run_ner.py", COMMON),
        ("run_glue.py", COMMON),
        ("run_qa.py", (*COMMON, "--doc_stride", "--version_2_with_negative")),
        ("run_mlm.py", (*COMMON, "--packing", "--mask_unit")),
    ],
)
def test_help_imports_nothing_heavy(script: str, words: tuple[str, ...], tmp_path: Path) -> None:
    program = (
        "import runpy, sys\n"
        f"sys.argv = [{str(SCRIPTS / script)!r}, '--help']\n"
        "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'transformers', 'datasets', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert [word for word in words if word not in done.stdout] == []
    assert not [name for name in {*RECIPE_KEYS, *RENAMED} if f"--{name} " in done.stdout]
    assert max(map(len, done.stdout.splitlines())) <= 119


def test_the_command_line_overrides_the_recipe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    overrides = {"hidden_size": 20, "position_embedding_type": "ring", "attention_window": [64, 64], "x": "a,b"}
    path = recipe(
        tmp_path,
        learning_rate=1e-3,
        num_train_epochs=7,
        seeds=[1, 2, 3],
        lower_case=False,
        config_overrides=overrides,
        train_file=None,
    )
    model, data, run, training = parsed(monkeypatch, path, "--learning-rate", "2e-3", "--seeds", 4, 5)
    assert (training.learning_rate, training.num_train_epochs) == (2e-3, 7)
    assert run.seeds == [4, 5]
    assert model.lower_case is False
    assert parse_overrides(model.config_overrides) == overrides
    assert data.train_file is None
    assert training.output_dir == "outputs/run_ner"


def test_old_names_are_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recipe(tmp_path, embeddings_from="bert", text_unit="file")
    for arguments in ([path], ["--embeddings_from=bert", "--text-unit", "file"]):
        model, data, *_ = parsed(monkeypatch, *arguments, kind=PretrainingTask)
        assert (model.embeddings_name_or_path, data.sample_by) == ("bert", "file")
    model, *_ = parsed(monkeypatch, path, "--embeddings_name_or_path=other", kind=PretrainingTask)
    assert model.embeddings_name_or_path == "other"


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (["--train_file=a"], (True, True, True)),
        (["--dataset_name=a"], (True, True, True)),
        (["--task_name=sst2"], (True, True, True)),  # from the Hub
        (["--task_name=sst2", "--test_file=a"], (False, True, True)),
        (["--test_file=a"], (False, True, True)),
        (["--test_file=a", "--do_train"], (True, True, False)),  # which the run refuses later
        (["--train_file=a", "--do_predict"], (False, False, True)),
        (["--train_file=a", "--do_eval", "true", "--do_predict=yes"], (False, True, True)),
        (["--train_file=a", "--do_train", "--do_eval"], (True, True, False)),
        (["--train_file=a", "--do_train", "false"], (False, True, True)),
        (["--train_file=a", "--do_train=false", "--do_eval=no"], (False, False, True)),
        (["--train_file=a", "--do_train", "--do_eval", "false"], (True, False, False)),
    ],
)
def test_everything_is_done_unless_parts_are_requested(
    monkeypatch: pytest.MonkeyPatch, given: list[str], parts: tuple[bool, bool, bool]
) -> None:
    training = parsed(monkeypatch, *given)[-1]
    assert (training.do_train, training.do_eval, training.do_predict) == parts
    assert training.eval_strategy == ("epoch" if parts[:2] == (True, True) else "no")


def test_a_saved_model_replaces_a_recipes_fresh_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recipe(
        tmp_path,
        config_name="shape.json",
        config_overrides={"hidden_size": 8},
        embeddings_from="bert",
        tokenizer_kind="character",
        num_train_epochs=3,
        problem_type="regression",
    )
    model, data, _, training = parsed(monkeypatch, path, "--model_name_or_path=saved")
    assert model == flags.ClassificationModelArguments(model_name_or_path="saved")
    assert (data.problem_type, training.num_train_epochs) == ("regression", 3)
    fresh, *_ = parsed(monkeypatch, path)
    assert (fresh.config_name, fresh.embeddings_name_or_path, fresh.tokenizer_kind) == (
        "shape.json",
        "bert",
        "character",
    )
    both, *_ = parsed(monkeypatch, path, "--model_name_or_path=saved", "--config_name=own.json")
    assert both.config_name == "own.json", "a typed flag is kept, and refused later"


def test_defaults_depend_on_the_script_and_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parsed(monkeypatch, kind=TaggingTask)[0]
    assert (model.tokenizer_kind, model.lower_case) == ("wordpiece", False)
    assert parsed(monkeypatch)[-1].learning_rate == 5e-4
    assert parsed(monkeypatch, "--model_name_or_path=x")[-1].learning_rate == 5e-5


def test_an_unknown_flag_or_key_is_named_with_a_similar_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = recipe(tmp_path, num_train_epoch=3)
    message = error_of(monkeypatch, path)
    assert str(path) in message
    assert "'num_train_epoch'" in message
    assert "num_train_epochs" in message
    for given, similar in (
        ("--learning_rat=1", "--learning_rate"),
        ("--epochs=2", "--num_train_epochs"),
        ("--patience=3", "--early_stopping_patience"),
        ("--do_pred", "--do_predict"),  # not an abbreviation
        *(("--lr=1", "--learning_rate?"), ("--batch_size=8", "--per_device_train_batch_size?")),
        *(("--max_length=8", "--max_seq_length?"), ("--model=x", "--model_name_or_path?")),
        *(("--train=x", "--train_file?"), ("--test=x", "--test_file?"), ("--output=x", "--output_dir?")),
        *(("--eval_file=x", "--validation_file?"), ("--hidden_size=8", "--config_overrides hidden_size=192")),
        ("--device=cuda", "--use_cpu"),
        ("--token=x", "HF_TOKEN"),
        ("--overwrite_output_dir", "delete the folder"),
        ("--target_recall=0.9", "predict --min_probability 0.1"),
        ("--hidden_weight=1", "Omit it"),
    ):
        assert similar in error_of(monkeypatch, given)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"tokenizer_kind": "words"}, ["tokenizer_kind", "words", "wordpiece"]),
        ({"max_seq_length": "long"}, ["max_seq_length", "long"]),
        ({"lower_case": "perhaps"}, ["perhaps"]),
        ({"eval_strategy": "sometimes"}, ["eval_strategy", "sometimes", "epoch"]),
        ({"eval_strategy": "steps", "eval_steps": 0, "logging_steps": 0}, ["eval_steps"]),
    ],
)
def test_a_recipe_is_checked_like_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, keys: dict[str, Any], words: list[str]
) -> None:
    message = error_of(monkeypatch, recipe(tmp_path, **keys))
    assert not [word for word in words if word not in message], message


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configuration" / "recipes").glob("*.yaml")), ids=lambda path: path.stem
)
def test_every_recipe_is_read_by_its_script(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    kinds = {"run_glue": ClassificationTask, "run_qa": ReadingTask, "run_mlm": PretrainingTask}
    kinds["task: classification"] = ClassificationTask
    kind = next((kind for script, kind in kinds.items() if script in text), TaggingTask)
    model, data, _, training = parsed(monkeypatch, path, kind=kind)
    assert model.config_name is None or (ROOT / model.config_name).is_file()
    assert training.output_dir.startswith("outputs/")
    assert data.train_file or data.dataset_name or "--train_file" in text


OF_TAGGER = (TaggingModelArguments, TaggingArguments, LabelRunArguments)


def test_every_command_has_a_module_and_every_script_runs_another_command() -> None:
    for name in COMMANDS:
        module = {"classify": "glue", "tag": "ner"}.get(name, name)
        assert callable(importlib.import_module(f"modeling_star.commands.{module}").main)
    scripts = [path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py")]
    named = [name for script in scripts for name in COMMANDS if f'run("{name}")' in script]
    assert len(scripts) == len(named) == len({*named})


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
        parse_run(OF_TAGGER, "A command.", typed=typed.split())


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
    model, _, _, training = parse_run(OF_TAGGER, "")
    assert training.num_train_epochs == 10  # of paper_wnut17.yaml
    assert training.output_dir == "outputs/ner"
    assert json.loads(Path(model.config_name).read_text())["model_type"] == "star_transformer"  # the recipe's path
    monkeypatch.setattr(sys, "argv", ["modeling-star ner", *typed, "--config_name", "star-plus"])
    assert Path(parse_run(OF_TAGGER, "")[0].config_name) == ROOT / "configuration" / "models" / "star-plus.json"


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


@pytest.mark.parametrize("name", ["star-pls", "starplus", "Star_Plus", "configuration/models/star-pls.json"])
def test_a_mistyped_shape_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(SystemExit, match="star-plus"):
        commands._shape(name)
