"""Runs the scripts as their command lines do, without paying for the imports each time.

A process imports what the scripts import, and forks for every command: the child has the command's argv, working
folder and environment, and runs the script as `__main__`. What only a launcher does is tested with the launcher.
"""

import contextlib
import copy
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "run_scripts"
EXPERIMENTS = ROOT / "experiments"


@dataclass(frozen=True)
class Done:
    """How a command ended; of several processes, the first that failed, and what all of them said."""

    code: int
    out: str
    error: str


class ScriptRunner:
    """The process that forks, and a folder to run in. `environment` is what it, and so every command, starts from."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def in_folder(self, folder: Path) -> "ScriptRunner":
        """The same process, for commands in another folder."""
        runner = copy.copy(self)
        runner.folder = folder
        return runner

    def start(self, script: str, *arguments: Any, processes: int = 1) -> list[dict[str, Any]]:
        """Start a script of run_scripts/ or experiments/ in the runner's folder; returns what `wait` takes."""
        port = free_port() if processes > 1 else 0
        started = []
        for rank in range(processes):
            logs = Path(tempfile.mkdtemp(dir=self.folder, prefix="logs-"))
            environment = {} if processes == 1 else rank_environment(rank, processes, port)
            command = {
                "argv": [
                    str((EXPERIMENTS if (EXPERIMENTS / script).exists() else SCRIPTS) / script),
                    *map(str, arguments),
                ],
                "environment": environment,
            }
            answer = self._ask({**command, "do": "start", "folder": str(self.folder), "logs": str(logs)})
            started.append({"pid": answer["pid"], "logs": str(logs)})
        return started

    def wait(self, started: list[dict[str, Any]]) -> Done:
        """Wait until the processes of one command have ended."""
        codes = [self._ask({"do": "wait", "pid": entry["pid"]})["code"] for entry in started]
        out, error = (
            "".join(Path(entry["logs"], name).read_text(encoding="utf-8") for entry in started)
            for name in ("out", "error")
        )
        return Done(next((code for code in codes if code), 0), out, error)

    def run(self, script: str, *arguments: Any, processes: int = 1) -> Done:
        """`start` and `wait`."""
        return self.wait(self.start(script, *arguments, processes=processes))

    def check(self, script: str, *arguments: Any, processes: int = 1) -> Done:
        """`run`, for a command that has to succeed."""
        done = self.run(script, *arguments, processes=processes)
        assert done.code == 0, done.out + done.error
        return done

    def kill_when(self, sign: Path, script: str, *arguments: Any) -> None:
        """Start a command, and kill it as soon as a file is there, or after a minute."""
        started = self.start(script, *arguments)
        until = time.monotonic() + 60
        while not sign.is_file() and time.monotonic() < until:
            time.sleep(0.005)
        os.kill(started[0]["pid"], 9)
        assert self.wait(started).code == -9

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def script_runner(folder: Path, **environment: str) -> Iterator[ScriptRunner]:
    """A runner that is gone after the `with` block."""
    runner = ScriptRunner(folder, environment)
    try:
        yield runner
    finally:
        runner.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rank_environment(rank: int, processes: int, port: int) -> dict[str, str]:
    """The variables that torchrun, and so `accelerate launch`, sets in each process."""
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }


def run_processes(program: str, kind: str, out: Path, processes: int) -> dict[str, Any]:
    """Run a file in several processes; returns what the first one writes to `out`."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, program, kind, str(out)],
            env={**environment, **rank_environment(rank, processes, port)},
        )
        for rank in range(processes)
    ]
    assert [process.wait(timeout=300) for process in started] == [0] * processes
    return json.loads(out.read_text(encoding="utf-8"))


# The process that forks


def serve() -> None:
    """Answer the requests of `ScriptRunner`, one JSON object a line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # nothing else may speak on the channel
    sys.path.insert(0, str(EXPERIMENTS))
    import_what_scripts_import()
    importlib.import_module("translation")
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "start":
            pid = os.fork()
            if pid == 0:
                run_command(request)
            answer = {"pid": pid}
        else:
            status = os.waitpid(request["pid"], 0)[1]
            answer = {"code": os.waitstatus_to_exitcode(status)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def import_what_scripts_import() -> None:
    """All that takes time; nothing of it starts a thread."""
    import accelerate  # noqa: F401
    import transformers
    from transformers import BertForSequenceClassification, EarlyStoppingCallback, Trainer, pipeline  # noqa: F401

    from modeling_star import tasks
    from modeling_star.evaluation import compare  # noqa: F401
    from modeling_star.inference import prediction_files  # noqa: F401

    for module in pkgutil.iter_modules(tasks.__path__):
        importlib.import_module(f"{tasks.__name__}.{module.name}")
    assert transformers.is_torch_available()
    draw_nothing()
    gc.collect()
    gc.freeze()  # what is imported is not looked at by each command's collections


def draw_nothing() -> None:
    """Drawing is a third of a short run; tests/evaluation/test_reports.py looks at the plots."""
    import sklearn.feature_extraction.text
    import sklearn.linear_model  # noqa: F401
    from matplotlib.figure import Figure

    def savefig(figure: Figure, file: Any, **_: Any) -> None:
        file.write(b"\x89PNG\r\n")

    Figure.savefig = savefig  # type: ignore[method-assign]


def run_command(request: Mapping[str, Any]) -> None:
    """Become the command; never returns."""
    code = 1
    try:
        for number, name in ((1, "out"), (2, "error")):
            os.dup2(os.open(Path(request["logs"], name), os.O_WRONLY | os.O_CREAT), number)
        sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(n, "wb", 0), write_through=True) for n in (1, 2))
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        sys.argv = request["argv"]
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
