"""How `reproduce.py` starts a script, through `accelerate launch` no longer than it is there itself, and in what."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from lab.launching import (
    AVX2,
    accelerate_launch,
    commit,
    environment,
    round_as_avx2,
    run_to_the_end,
    still_runs,
)

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]
LONG = 300  # seconds, more than a test waits


def test_a_launch_that_there_is_no_file_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert accelerate_launch("cpu")[-1] == "configuration/accelerate/cpu.yaml"
    with pytest.raises(UserError, match=r"no configuration/accelerate/cpu\.yaml\.yaml.*fsdp, multi_cpu.*--launch cpu"):
        accelerate_launch("cpu.yaml")


def test_a_command_is_run_to_its_end_and_its_status_told(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_to_the_end([sys.executable, "-c", "print('seen'); raise SystemExit(3)"], tmp_path) == 3
    assert (tmp_path / "log.txt").read_text() == "seen\nseen\n"
    assert still_runs(tmp_path) is None


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_what_a_command_has_started_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    training = f"import os, time; print(os.getpid(), flush=True); time.sleep({LONG})"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {training!r}])"
    waiting = (
        "import signal, sys, pathlib; from lab.launching import run_to_the_end; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
        f"run_to_the_end([sys.executable, '-c', {launcher!r}], pathlib.Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], cwd=ROOT) as process:
        started = _until(lambda: log.is_file() and log.read_text().strip())
        process.terminate()
        assert process.wait() == 143
    assert _until(lambda: not _runs(int(started)))
    assert still_runs(tmp_path) is None
    with subprocess.Popen([sys.executable, "-c", waiting], cwd=ROOT) as process:
        started = _until(lambda: log.read_text().split()[1:])[0]
        process.kill()
    left = still_runs(tmp_path)
    assert left is not None
    assert _runs(int(started)), "a killed process ends nothing"
    os.killpg(left, signal.SIGKILL)
    assert _until(lambda: still_runs(tmp_path) is None)


def test_a_run_tells_its_commit_and_whether_the_code_was_changed(tmp_path: Path) -> None:
    assert commit(tmp_path) is None

    def git(*words: str) -> str:
        own = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(["git", "-C", str(tmp_path), *own, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    for name in ("modeling_star", "results"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a").write_text("1")
    git("init")
    assert commit(tmp_path) is None
    git("add", ".")
    git("commit", "-m", "first")
    found = commit(tmp_path)
    assert found is not None
    assert git("rev-parse", "HEAD").startswith(found)
    (tmp_path / "results" / "a").write_text("2")
    assert commit(tmp_path) == found
    (tmp_path / "modeling_star" / "b").write_text("new")
    assert commit(tmp_path) == f"{found}-dirty"


@pytest.mark.parametrize("capability", ["AVX512", "AVX2", "DEFAULT"])
def test_runs_on_a_processor_with_more_than_avx2_keep_to_it(capability: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in AVX2:
        monkeypatch.setenv(name, "")  # so that what is set below is taken back
        monkeypatch.delenv(name)
    round_as_avx2()
    found = {name: os.environ.get(name) for name in AVX2}
    assert found == (AVX2 if capability == "AVX512" else dict.fromkeys(AVX2))
    assert environment()["instructions"] == ("AVX2" if capability == "AVX512" else capability)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"ATEN_CPU_CAPABILITY": "default"}, "AVX512 ATEN_CPU_CAPABILITY=default DNNL_MAX_CPU_ISA=AVX2 {mkl}"),
        ({"DNNL_MAX_CPU_ISA": "AVX512_CORE"}, "AVX512 ATEN_CPU_CAPABILITY=avx2 DNNL_MAX_CPU_ISA=AVX512_CORE {mkl}"),
        ({"ATEN_CPU_CAPABILITY": "avx2"}, "AVX2"),
    ],
    ids=str,
)
def test_instructions_that_are_asked_for_are_kept_and_told(
    asked: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As torch, which heeds the variable.
    capability = "AVX2" if asked.get("ATEN_CPU_CAPABILITY") == "avx2" else "AVX512"
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for name in AVX2:
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in asked.items():
        monkeypatch.setenv(name, value)
    round_as_avx2()
    assert environment()["instructions"] == told.format(mkl="MKL_ENABLE_INSTRUCTIONS=AVX2")


def _until(seen: Callable[[], Any]) -> Any:
    """What `seen` returns, once it is true."""
    for _ in range(LONG):
        found = seen()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError("not seen in time")


def _runs(process: int) -> bool:
    """A process whose parent is gone and that nobody reaps is dead as well."""
    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE
