"""What a script tells its user when it stops."""

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
def test_an_interrupted_run_tells_how_it_goes_on(place: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    assert stopped.value.code == 130
    assert "interrupted. No checkpoint was written" in capsys.readouterr().err
    write_json(tmp_path / place / "trainer_state.json", {})
    with pytest.raises(SystemExit), script_messages(arguments(tmp_path)):
        raise KeyboardInterrupt
    told = capsys.readouterr().err
    assert f"{tmp_path / place} is kept" in told
    assert "--resume_from_checkpoint last" in told


def test_a_terminated_run_tells_the_same(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as stopped, script_messages(arguments(tmp_path)):
            signal.raise_signal(signal.SIGTERM)
        with multiprocessing.get_context("fork").Pool(1) as pool:  # as datasets has, whose end sends SIGTERM
            assert pool.map(abs, [-1]) == [1]
    finally:
        signal.signal(signal.SIGTERM, before)
    assert stopped.value.code == 143
    told = capsys.readouterr().err
    assert "interrupted. No checkpoint was written" in told
    assert "Traceback" not in told


def test_a_full_disk_is_told_and_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "checkpoint-5" / "trainer_state.json", {})
    words = r"the disk of .* is full .*checkpoint-5 is kept.*--resume_from_checkpoint last.*Make room"
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(RuntimeError, match="unexpected pos"), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(SystemExit, match=words), script_messages(arguments(tmp_path)):
        raise RuntimeError("unexpected pos 41152 vs 41040")


def test_what_is_the_users_to_mend_is_told_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r": no such\ncolumn|: no such column$"), script_messages(arguments(tmp_path)):
        raise UserError("no such\ncolumn")


def test_a_mistake_of_ours_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(TypeError), script_messages(arguments(tmp_path)):
        raise TypeError


@pytest.mark.parametrize("kind", [*unreachable_errors(), OSError, ValueError])
def test_a_hub_that_is_not_reached_is_no_mistake_of_ours(kind: type[Exception]) -> None:
    with pytest.raises(UserError, match="Connection refused"), as_user_error():
        raise kind("Connection refused")


@pytest.fixture(autouse=True)
def _levels() -> Iterator[None]:
    """`script_messages` sets the levels of loud libraries; other tests have them as they were."""
    names = ("httpx", "httpcore", "filelock", "fsspec", "matplotlib")
    before = {name: logging.getLogger(name).level for name in names}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


def test_an_error_of_files_is_no_full_disk(tmp_path: Path) -> None:
    with pytest.raises(PermissionError), script_messages(TrainingArguments(str(tmp_path), use_cpu=True)):
        raise PermissionError(13, "Permission denied", "arguments.json")
