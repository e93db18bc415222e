"""How a script ends: interruptions, full disks, and errors that a user can fix."""

import errno
import logging
import multiprocessing
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.evaluation.reports import write_json
from modeling_star.training.cli_errors import as_user_error, script_messages
from modeling_star.training.hub import unreachable_errors


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
    with pytest.raises(RuntimeError, match="unexpected pos"), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")


def test_a_user_error_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r": no such\ncolumn|: no such column$"), script_messages(arguments(tmp_path)):
        raise UserError("no such\ncolumn")


def test_a_bug_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(TypeError), script_messages(arguments(tmp_path)):
        raise TypeError


@pytest.mark.parametrize("kind", [*unreachable_errors(), OSError, ValueError])
def test_errors_about_inputs_become_user_errors(kind: type[Exception]) -> None:
    with pytest.raises(UserError, match="Connection refused"), as_user_error():
        raise kind("Connection refused")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """Restore the log levels that `script_messages` sets."""
    names = ("httpx", "httpcore", "filelock", "fsspec", "matplotlib")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_other_file_errors_are_not_reported_as_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), script_messages(TrainingArguments(str(tmp_path), use_cpu=True)):
        raise PermissionError(13, "Permission denied", "arguments.json")
