"""How `reproduce.py` starts a script: through `accelerate launch`, and no longer than it is there itself."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from modeling_star.training.data_files import DataError
from modeling_star.training.launching import accelerate_launch, run_to_the_end


ROOT = Path(__file__).resolve().parents[2]
LONG = 300  # seconds, more than a test waits


def test_a_launch_that_there_is_no_file_of_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert accelerate_launch("cpu")[-1] == "configuration/accelerate/cpu.yaml"
    with pytest.raises(DataError, match=r"no configuration/accelerate/cpu\.yaml\.yaml.*fsdp, multi_cpu.*--launch cpu"):
        accelerate_launch("cpu.yaml")


def test_a_command_is_run_to_its_end_and_its_status_told(tmp_path: Path) -> None:
    with (tmp_path / "log.txt").open("w") as log:
        assert run_to_the_end([sys.executable, "-c", "print('seen'); raise SystemExit(3)"], log) == 3
    assert (tmp_path / "log.txt").read_text() == "seen\n"


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_what_a_command_has_started_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    training = f"import os, time; print(os.getpid(), flush=True); time.sleep({LONG})"
    launcher = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {training!r}])"
    waiting = (
        "import signal, sys; from modeling_star.training.launching import run_to_the_end; "
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(143)); "
        f"run_to_the_end([sys.executable, '-c', {launcher!r}], open({str(log)!r}, 'w'))"
    )
    with subprocess.Popen([sys.executable, "-c", waiting], cwd=ROOT) as process:
        started = _until(lambda: log.is_file() and log.read_text().strip())
        process.terminate()
        assert process.wait() == 143
    assert _until(lambda: not _runs(int(started)))


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
