"""The folder of a run: what may begin or go on there, so that nothing is overwritten."""

import os
from pathlib import Path

import pytest
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.evaluation.reports import write_json
from modeling_star.training.checkpoints import (
    check_output_dir,
    check_several_runs,
    last_checkpoint,
    lock_output_dir,
    plan_seeds,
    warn_of_other_arguments,
)


def test_only_a_whole_checkpoint_is_gone_on_from(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    assert check_output_dir(tmp_path / "new", "last") is None  # killed before the first one: a fresh start
    for step, state in ((9, "{}"), (10, "{}"), (100, '{"log'), (200, None)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if state is not None:
            (folder / "trainer_state.json").write_text(state)
            (folder / "scheduler.pt").touch()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert check_output_dir(tmp_path, "last") == str(tmp_path / "checkpoint-10")


def test_going_on_from_a_checkpoint_overwrites_no_other_run(tmp_path: Path) -> None:
    for step in (3, 6):
        folder = tmp_path / "run" / f"checkpoint-{step}"
        folder.mkdir(parents=True)
        (folder / "trainer_state.json").write_text("{}")
        (folder / "scheduler.pt").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").touch()
    first, last = (str(tmp_path / "run" / f"checkpoint-{step}") for step in (3, 6))
    assert check_output_dir(tmp_path / "run", last) == last
    assert check_output_dir(tmp_path / "new", first) == first
    with pytest.raises(UserError, match=r"would overwrite checkpoint-6.*write last"):
        check_output_dir(tmp_path / "run", first)
    with pytest.raises(UserError, match=r"holds model\.safetensors.*name a new folder"):
        check_output_dir(tmp_path / "other", last)


@pytest.mark.parametrize("resume", ["last", "checkpoint-3"])
def test_a_model_alone_is_not_gone_on_from(tmp_path: Path, resume: str) -> None:
    write_json(tmp_path / "checkpoint-3" / "trainer_state.json", {})  # what --save_only_model leaves
    with pytest.raises(UserError, match=r"checkpoint-3 holds the model alone .*--model_name_or_path"):
        check_output_dir(tmp_path, resume if resume == "last" else str(tmp_path / resume))


def test_seeds_of_other_arguments_are_not_taken_into_one_mean(tmp_path: Path) -> None:
    folder, told = tmp_path / "seeds", {"learning_rate": 1e-3, "max_steps": -1}
    check_several_runs(folder, told, None)
    write_json(folder / "arguments.json", {"learning_rate": 5})
    (folder / "seed-1").mkdir()
    check_several_runs(folder, told, None)  # of a call that failed before its first run
    write_json(folder / "arguments.json", told)
    (folder / "seed-1" / "all_results.json").touch()
    check_several_runs(folder, told, "last")
    with pytest.raises(UserError, match=r"holds arguments.json, seed-1.*--resume_from_checkpoint last"):
        check_several_runs(folder, told, None)
    with pytest.raises(
        UserError, match=r"run with other arguments \(learning_rate 0\.001, now 0\.01\).*another --output_dir"
    ):
        check_several_runs(folder, {**told, "learning_rate": 1e-2}, "last")
    (tmp_path / "single").mkdir()
    (tmp_path / "single" / "all_results.json").touch()
    with pytest.raises(UserError, match=r"holds all_results\.json"):
        check_several_runs(tmp_path / "single", {}, "last")


@pytest.mark.parametrize("left", ["checkpoint-5/model.safetensors", "model.safetensors"])
def test_a_seed_that_was_killed_without_a_whole_checkpoint_begins_anew(tmp_path: Path, left: str) -> None:
    told = {"learning_rate": 1e-3}
    folders = [tmp_path / f"seed-{seed}" for seed in (1, 2, 3)]
    for file in (folders[0] / "all_results.json", folders[1] / left):
        file.parent.mkdir(parents=True)
        file.touch()
    training = TrainingArguments(str(tmp_path), resume_from_checkpoint="last", use_cpu=True)
    with pytest.raises(UserError, match="no whole checkpoint"):
        plan_seeds(folders, training, told)  # nothing says that these are the same arguments
    write_json(tmp_path / "arguments.json", told)
    assert plan_seeds(folders, training, told) == [(True, None), (False, None), (False, None)]
    with pytest.raises(UserError, match=r"run with other arguments \(learning_rate 0\.001, now 1\)"):
        plan_seeds(folders, training, {"learning_rate": 1})
    with pytest.raises(UserError, match="no whole checkpoint"):
        check_output_dir(folders[1], "last")


def test_a_folder_with_nothing_but_arguments_is_new(tmp_path: Path) -> None:
    write_json(tmp_path / "arguments.json", {"learning_rate": 1e-3})
    assert check_output_dir(tmp_path, None) is None
    assert check_output_dir(tmp_path, "last") is None


def test_what_a_run_goes_on_with_otherwise_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_other_arguments(tmp_path, {"num_train_epochs": 2})  # of an earlier version: nothing is known
    write_json(tmp_path / "arguments.json", {"num_train_epochs": 60, "learning_rate": 1e-3})
    warn_of_other_arguments(tmp_path, {"num_train_epochs": 60, "learning_rate": 1e-3})
    assert not caplog.records
    warn_of_other_arguments(tmp_path, {"num_train_epochs": 2, "learning_rate": 1e-3})
    assert "goes on with those of now: num_train_epochs 60, now 2" in caplog.text


def test_only_a_run_with_checkpoints_is_advised_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "predictions_test.jsonl").touch()
    with pytest.raises(UserError, match=r"holds predictions_test\.jsonl.*: name another folder$"):
        check_output_dir(tmp_path, None)
    write_json(tmp_path / "checkpoint-1" / "trainer_state.json", {})
    with pytest.raises(UserError, match=r"name another folder, or go on .* --resume_from_checkpoint last"):
        check_output_dir(tmp_path, None)


def test_a_folder_that_a_run_is_at_is_left_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock_output_dir(folder):
        with (
            pytest.raises(UserError, match=r"Another run is at --output_dir .*run.*name another folder"),
            lock_output_dir(folder),
        ):
            pass
        assert check_output_dir(folder, None) is None, "the lock is nothing of a run"
    assert list(folder.iterdir()) == []
    with lock_output_dir(folder):
        pass


def test_a_folder_without_permission_to_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # for root every folder can be written
    with pytest.raises(UserError, match="cannot be written: name another folder"):
        check_output_dir(tmp_path, None)


def test_a_run_that_finds_nothing_to_go_on_with_says_that_it_begins(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        assert check_output_dir(tmp_path / "new", "last") is None
    assert "There is nothing in" in caplog.text
    assert "to go on with: its run begins." in caplog.text


@pytest.mark.parametrize("state", ["absent", "empty"])
def test_a_folder_that_is_no_checkpoint_is_not_resumed_from(tmp_path: Path, state: str) -> None:
    given = tmp_path / "model"
    if state == "empty":
        given.mkdir()
    with pytest.raises(UserError, match=r"--resume_from_checkpoint .*model is no checkpoint's folder: write last"):
        check_output_dir(tmp_path / "run", str(given))
