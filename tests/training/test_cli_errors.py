"""How a script ends: interruptions, full disks, and errors that a user can fix."""

import errno
import logging
import multiprocessing
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.files import write_json
from modeling_star.inference.output_rows import check_output
from modeling_star.models.configuration_encoder import did_you_mean
from modeling_star.runs.cli_errors import as_user_error, command_messages, script_messages
from modeling_star.sources import unreachable_errors
from modeling_star.training.named_models import loading


def arguments(folder: Path) -> TrainingArguments:
    return TrainingArguments(str(folder), use_cpu=True)


@pytest.mark.parametrize("place", ["checkpoint-5", "seed-2/checkpoint-5"])
def test_an_interrupted_run_says_how_to_resume(place: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert "--resume_from_checkpoint" not in capsys.readouterr().err
    for name, content in (("trainer_state.json", {}), ("manifest.json", {"files": {}})):
        write_json(tmp_path / place / name, content)
    with pytest.raises(SystemExit), script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    message = capsys.readouterr().err
    assert str(tmp_path / place) in message
    assert "--resume_from_checkpoint last" in message


def test_sigterm_is_treated_as_an_interruption(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
            signal.raise_signal(signal.SIGTERM)
        with multiprocessing.get_context("fork").Pool(1) as pool:  # as datasets has, whose end sends SIGTERM
            assert pool.map(abs, [-1]) == [1]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped.value.code == 143
    message = capsys.readouterr().err
    assert "interrupted" in message
    assert "Traceback" not in message


def test_a_full_disk_is_reported_with_the_last_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in (("trainer_state.json", {}), ("manifest.json", {"files": {}})):
        write_json(tmp_path / "checkpoint-5" / name, content)
    words = r"full.*checkpoint-5.*--resume_from_checkpoint last"
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="unexpected pos"), script_messages(arguments(tmp_path / "run")):
        raise RuntimeError("unexpected pos 41152 vs 41040")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")


def test_an_error_with_another_number_is_no_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=0))  # as of /proc
    with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "/proc/x.csv.parts")
    assert "is full" not in str(stopped.value)
    with pytest.raises(SystemExit, match="is full"), script_messages(arguments(tmp_path)):
        raise OSError(errno.EDQUOT, "Disk quota exceeded")


def test_a_folder_that_may_not_be_searched_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output, stat = tmp_path / "closed" / "x.csv", os.stat

    def closed(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if "closed" in os.fspath(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, *args, **kwargs)

    monkeypatch.setattr(os, "stat", closed)  # root may search all folders
    with pytest.raises(SystemExit, match="closed may not be searched"), command_messages("predict", output):
        check_output(output)


def test_an_output_in_a_folder_without_permission_to_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_output(tmp_path / "x.csv")
    monkeypatch.setattr(os, "access", lambda path, mode: path != tmp_path)  # root may write to all folders
    with pytest.raises(UserError, match="may not be written"):
        check_output(tmp_path / "x.csv")
    check_output(tmp_path / "new" / "x.csv")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restore the log levels that `script_messages` sets."""
    names = ("httpx", "httpcore", "filelock", "fsspec", "matplotlib")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


# ------ errors of the code


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), RuntimeError("x"), ZeroDivisionError()])
def test_an_error_of_the_code_is_not_changed(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(type(error)) as raised, command_messages("predict", tmp_path / "out.jsonl"):
        raise error
    assert raised.value is error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [UserError("x"), FileNotFoundError("x"), ImportError("x")])
def test_errors_of_input_leave_no_file(error: Exception, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"predict: .*x"), command_messages("predict", tmp_path / "out.jsonl"):
        raise error
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", unreachable_errors())
def test_a_hub_that_cannot_be_reached_is_no_error_of_the_code(kind: type[Exception], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"refused"), command_messages("predict", tmp_path / "out"), as_user_error():
        raise kind("Connection refused")
    assert not list(tmp_path.iterdir())


def test_a_mistake_in_this_package_is_not_taken_for_a_damaged_file(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(TypeError), loading("MODEL", str(tmp_path)):
        did_you_mean(None, 5)  # type: ignore[arg-type]


def test_a_traceback_is_one_flag_away(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    for level, is_shown in (("info", False), ("debug", True)):
        with pytest.raises(SystemExit), command_messages("predict", tmp_path / "out", log_level=level):
            raise UserError("unforeseen")
        assert ("Traceback" in capsys.readouterr().err) == is_shown


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_says_what_it_does_next(
    number: signal.Signals, code: int, capsys: pytest.CaptureFixture
) -> None:
    # A shell that runs the tests in the background ignores SIGINT for them.
    handlers = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    before = {each: signal.signal(each, handler) for each, handler in handlers.items()}
    try:
        with pytest.raises(SystemExit) as stopped, command_messages("predict", next_time=lambda: "It continues."):
            signal.raise_signal(number)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert stopped.value.code == code
    message = capsys.readouterr().err
    assert "It continues." in message
    assert "Traceback" not in message
