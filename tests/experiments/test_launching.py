"""Scripts as subprocesses of reproduce.py, and the environment of their results."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from harness.launching import (
    AVX2,
    commit,
    environment,
    round_as_avx2,
    run_to_the_end,
)


ROOT = Path(__file__).resolve().parents[2]
LONG = 300  # seconds, more than a test waits


def test_a_command_is_run_to_its_end_and_its_status_returned(tmp_path: Path) -> None:
    for _ in range(2):
        assert run_to_the_end([sys.executable, "-c", "print('seen'); raise SystemExit(3)"], tmp_path) == 3
    assert (tmp_path / "log.txt").read_text() == "seen\nseen\n"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
@pytest.mark.slow
def test_the_children_of_a_command_end_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    training = f"import os, time; print(os.getpid(), flush=True); time.sleep({LONG})"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {training!r}])"
    waiting = (
        "import signal, sys, pathlib; from harness.launching import run_to_the_end; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
        f"run_to_the_end([sys.executable, '-c', {launcher!r}], pathlib.Path({str(tmp_path)!r}))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "experiments")])}
    with subprocess.Popen([sys.executable, "-c", waiting], cwd=ROOT, env=environment) as process:
        started = _until(lambda: log.is_file() and log.read_text().strip())
        process.terminate()
        assert process.wait() == 143
    assert _until(lambda: not _runs(int(started)))


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


def _until(condition: Callable[[], Any]) -> Any:
    """The value of `condition`, once it is true."""
    for _ in range(5 * LONG):
        value = condition()
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError("not seen in time")


def _runs(process: int) -> bool:
    """Whether a process is alive; a zombie is not."""
    return psutil.pid_exists(process) and psutil.Process(process).status() != psutil.STATUS_ZOMBIE
