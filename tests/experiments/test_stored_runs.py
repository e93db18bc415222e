"""Runs of tables: which are due, begun, scored, stored and compared; their environment and file."""

import json
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from filelock import FileLock
from harness.launching import (
    AVX2,
    commit,
    environment,
    round_as_avx2,
)
from harness.stored_runs import RunFile, read_counts, write_counts
from harness.table_runs import Runner
from harness.tables import Configuration, Table
from hypothesis import given
from hypothesis import strategies as st
from table_samples import keep, runner_of, write_table

from modeling_star.errors import UserError


def test_of_runs_that_are_added_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "stored" / "two.jsonl"
    names = [f"films/none/star-0-seed{seed}" for seed in range(60)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: RunFile(path).keep({name: {"test": 0.5}}), names))
    assert list(RunFile(path).read_all()) == sorted(names)
    assert not list(path.parent.glob("*.tmp"))


def test_a_new_run_is_one_new_line_and_the_others_stay_as_they_were(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "two.jsonl")
    file.keep({"c": {"z": 1, "a": {"y": 2.50, "b": "é\u2028"}}, "a": {"test": float("nan")}})
    before = file.path.read_bytes().split(b"\n")
    file.keep({"b": {"test": 1}})
    after = file.path.read_bytes().split(b"\n")
    assert [after[0], *after[2:]] == before
    assert json.loads(after[1]) == {"run": "b", "test": 1}
    assert list(file.read_all()) == ["a", "b", "c"]
    assert (file.read("a"), file.read("d")) == ({"test": None}, None)
    assert list(file.read("c") or ()) == ["z", "a"]
    assert file.read("c") == {"z": 1, "a": {"y": 2.5, "b": "é\u2028"}}


NUMBERS = st.floats(0, 50) | st.integers(0, 99) | st.integers(0, 1)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1))
def test_counts_of_any_numbers_are_read_as_they_were_written(rows: list[tuple[float, ...]]) -> None:
    counts = np.array(rows)
    assert np.array_equal(read_counts(write_counts(counts)), counts)


def test_a_run_of_a_model_file_with_another_content_is_refused(tmp_path: Path, table: Table) -> None:
    shape = tmp_path / "shape.json"
    shape.write_text('{"hidden_size": 8, "num_layers": 2}', encoding="utf-8")
    table = write_table(tmp_path, systems={"star": {"arguments": {"config_name": str(shape)}}})
    runner = runner_of(table, tmp_path)
    (star,) = table.configurations("films", "bert", "star")
    model = runner.work / "two" / star.cell / "0-seed1" / "model"
    model.mkdir(parents=True)
    scores = {"eval_accuracy": 0.7, "test_accuracy": 1.0, "parameters": 3}
    (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    (model / "predictions_test.jsonl").write_text('{"predicted": "a", "label": "a"}', encoding="utf-8")
    kept = runner.run(star, 1)
    shape.write_text('{\n  "num_layers": 2,\n  "hidden_size": 8\n}', encoding="utf-8")  # the same content
    assert runner.finished.read(star, 1) == kept
    shape.write_text('{"hidden_size": 16, "num_layers": 2}', encoding="utf-8")
    with pytest.raises(UserError, match=r"two\.jsonl.*shape"):
        runner.finished.read(star, 1)


def test_the_commit_of_modified_code_is_marked(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*words: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    for name in ("modeling_star", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("1")
    git("init")
    assert commit(tmp_path) is None
    git("add", ".")
    git("commit", "-m", "first")
    head = commit(tmp_path)
    assert head is not None
    assert git("rev-parse", "HEAD").startswith(head)
    (tmp_path / "results" / "a").write_text("2")
    assert commit(tmp_path) == head
    (tmp_path / "modeling_star" / "b").write_text("new")
    assert commit(tmp_path) == f"{head}-dirty"


@pytest.mark.parametrize(
    ("capability", "variables", "instructions"),
    [
        ("AVX512", {}, "AVX2"),
        ("AVX2", {}, "AVX2"),
        ("DEFAULT", {}, "DEFAULT"),
        (
            "AVX512",
            {"ATEN_CPU_CAPABILITY": "default"},
            "AVX512 ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2",
        ),
        ("AVX2", {"ATEN_CPU_CAPABILITY": "avx2"}, "AVX2"),  # as torch answers with the variable set
    ],
)
def test_runs_use_avx2_unless_other_instructions_are_requested(
    capability: str, variables: dict[str, str], instructions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in AVX2:
        monkeypatch.setenv(name, "")  # so that the variables set below are removed again
        monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    round_as_avx2()
    assert environment()["instructions"] == instructions
    if capability == "AVX512" and not variables:
        assert {name: os.environ[name] for name in AVX2} == AVX2


@pytest.fixture
def star(table: Table) -> Configuration:
    """A cell with one configuration."""
    (configuration,) = table.configurations("films", "bert", "star")
    return configuration


@pytest.fixture
def runner(table: Table, tmp_path: Path) -> Runner:
    """A runner whose scripts fail."""
    return runner_of(table, tmp_path)


def folder_of(runner: Runner, configuration: Configuration) -> Path:
    return runner.work / runner.table.name / configuration.cell / "0-seed1"


def finish_unnoticed(runner: Runner, configuration: Configuration, labels: str) -> Path:
    """Files of a run with predictions that are all `a` and a test accuracy of 0.5; returns the model's folder."""
    model = folder_of(runner, configuration) / "model"
    model.mkdir(parents=True, exist_ok=True)
    scores = {"eval_accuracy": 0.7, "test_accuracy": 0.5, "parameters": 3, "train_runtime": 2.0}
    (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    rows = "".join(json.dumps({"predicted": "a", "label": label}) + "\n" for label in labels)
    (model / "predictions_test.jsonl").write_text(rows, encoding="utf-8")
    return model


@pytest.mark.parametrize(
    ("overrides", "written"),
    [
        ({}, {"use_crf": False}),
        ({"use_crf": True}, {"use_crf": True}),
    ],
)
def test_runs_of_tables_have_the_defaults_of_kept_results(
    tmp_path: Path, table: Table, overrides: dict[str, Any], written: dict[str, Any]
) -> None:
    arguments = {"config_overrides": overrides} if overrides else {}
    task = {"films": {"script": "run_ner.py", "recipe": "paper_wnut17", "metric": "entity_f1"}}
    table = write_table(tmp_path, tasks=task, systems={"star": {"arguments": arguments}})
    (star,) = table.configurations("films", "bert", "star")
    assert star.arguments.get("config_overrides", {}) == overrides  # as kept results
    with pytest.raises(UserError, match="stopped"):
        runner_of(table, tmp_path).run(star, 1)
    (recipe,) = tmp_path.rglob("recipe.yaml")
    assert yaml.safe_load(recipe.read_text(encoding="utf-8"))["config_overrides"] == written


def test_a_run_that_another_process_does_is_left_to_it(runner: Runner, star: Configuration) -> None:
    folder = folder_of(runner, star)
    checkpoint = folder / "model" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    with FileLock(folder / "running.lock"):
        assert runner.run(star, 1) is None
    with FileLock(folder / "model" / "running.lock"), pytest.raises(UserError, match="Another run"):
        runner.run(star, 1)  # reproduce.py was killed, its script was not
    assert checkpoint.is_dir()
    assert not (folder / "recipe.yaml").exists()
    # Finished by the other process after it was missing here.
    keep(runner, star, 1, 0.7, "10")
    assert runner.run(star, 1)["validation"] == 0.7


def test_a_run_that_finished_unnoticed_is_scored_and_not_repeated(runner: Runner, star: Configuration) -> None:
    folder = finish_unnoticed(runner, star, "ab").parent
    (folder / "arguments.json").write_text('{"learning_rate": 9.0}', encoding="utf-8")
    with pytest.raises(UserError, match=r"learning_rate 9.0, now 5e-05"):
        runner.run(star, 1)
    (folder / "arguments.json").unlink()
    (folder / "environment.json").write_text('{"commit": "0123456789ab"}', encoding="utf-8")
    (folder / "model" / "model.safetensors").touch()
    kept = runner.run(star, 1)
    assert kept == runner.finished.read(star, 1)
    assert (kept["test"], kept["counts"], kept["training_seconds"]) == (0.5, "10; 1x2", 2.0)
    assert kept["environment"] == {"commit": "0123456789ab"}, "that of the run, not of its scoring"
    assert not (folder / "model" / "model.safetensors").exists()


def test_a_run_of_another_metric_or_of_other_arguments_is_not_used(runner: Runner, star: Configuration) -> None:
    finish_unnoticed(runner, star, "ab")
    kept = runner.run(star, 1)
    assert list(runner.missing([star], [1])) == []
    runner.table.tasks["films"].metric = "pearson"
    with pytest.raises(UserError, match=r"two\.jsonl.*star-0-seed1.*accuracy, now pearson"):
        runner.finished.read(star, 1)
    with pytest.raises(UserError, match="stopped with 1"):
        replace(runner, table=replace(runner.table, name="other")).run(star, 1)
    runner.table.tasks["films"].metric = "accuracy"
    other = {**kept, "arguments": {**kept["arguments"], "num_train_epochs": 77}}
    runner.finished.keep(star, 1, other)
    with pytest.raises(UserError, match=r"num_train_epochs 77, now 1"):
        list(runner.missing([star], [1]))
