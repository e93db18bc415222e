"""Scripts started as processes of their own, and what their figures depend on beside their arguments."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import torch
import transformers
import yaml

from modeling_star.errors import UserError
from modeling_star.evaluation.reports import write_json


# What a number depends on; results/ and the page change with every run.
CODE = ("modeling_star", "configuration", "run_scripts", "constraints.txt")
# How runs are launched, where their environment says nothing else.
USUAL = {"num_processes": 1, "mixed_precision": "no"}
# What a command that `run_to_the_end` runs has printed.
LOG = "log.txt"
_PROCESS = "process.json"
# What torch, oneDNN and MKL read to keep to AVX2 on a processor that has more.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def round_as_avx2() -> None:
    """
    Have the runs that are started from here add up as processors with AVX2 do, also on one with AVX-512.

    The two add up in other orders, which training makes large: SST-2, BiG on static MiniLM, seed 1 is 79.5 on the one
    and 83.5 on the other. What is set already, stays.
    """
    asked = os.environ.get("ATEN_CPU_CAPABILITY") == AVX2["ATEN_CPU_CAPABILITY"]
    if asked or torch.backends.cpu.get_cpu_capability() == "AVX512":
        for name, value in AVX2.items():
            os.environ.setdefault(name, value)


def environment(use_cpu: bool = False) -> dict[str, Any]:
    """
    What the figures depend on beside the arguments.

    Args:
        use_cpu: the processor computes, whether there is a GPU or not.
    """
    on_gpu = torch.cuda.is_available() and not use_cpu
    asked = {name: os.environ[name] for name in AVX2 if name in os.environ}
    told = [f"{name}={value}" for name, value in asked.items()]
    instructions = "AVX2" if asked == AVX2 else " ".join([torch.backends.cpu.get_cpu_capability(), *told])
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        **({} if on_gpu else {"instructions": instructions}),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()),
        "commit": commit(Path.cwd()),
    }


def ran_on_gpu(run: dict[str, Any]) -> bool:
    """Whether a kept run was made on a GPU, by its `environment`."""
    return run.get("environment", {}).get("device", "cpu") != "cpu"


def read_environment(folder: Path) -> dict[str, Any]:
    """What a run in a folder was begun in; without a commit where nothing tells."""
    path = folder / "environment.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {**environment(), "commit": None}


def commit(folder: Path) -> str | None:
    """The commit of the project in a folder, with `-dirty` where its code differs from it; `None` outside git."""
    git = shutil.which("git")
    if git is None:
        return None
    asked = [["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", *CODE]]
    answers = [subprocess.run([git, "-C", str(folder), *words], capture_output=True, text=True) for words in asked]
    if any(answer.returncode for answer in answers):
        return None
    found, changed = (answer.stdout.strip() for answer in answers)
    return f"{found}-dirty" if changed else found


def run_to_the_end(command: list[str], folder: Path) -> int:
    """
    The exit status of a command. Where this process is stopped while it waits (Ctrl-C, or a signal that raises), so
    are the command and all that it has started: `accelerate launch` starts the training. Nothing can where this
    process is killed; `still_runs` tells.

    Args:
        command: its words.
        folder: what the command prints goes to its `log.txt`, after what is there; `process.json` tells its number.
    """
    with (
        (folder / LOG).open("a", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        try:
            begun = psutil.Process(process.pid).create_time()  # a number is given again, not at the same time
            write_json(folder / _PROCESS, {"pid": process.pid, "begun": begun})
            return process.wait()
        except BaseException:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGTERM)  # a session's first process leads its group
            else:  # Windows
                process.terminate()
            raise


def still_runs(folder: Path) -> int | None:
    """The number of the process that `run_to_the_end` began in a folder, if it outlived who waited for it."""
    path = folder / _PROCESS
    if not path.is_file():
        return None
    told = json.loads(path.read_text(encoding="utf-8"))
    try:
        process = psutil.Process(told["pid"])
        alive = process.create_time() == told["begun"] and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return None
    return told["pid"] if alive else None


def accelerate_launch(config: str | None) -> list[str]:
    """
    `accelerate launch` of this Python, with a configuration of configuration/accelerate.

    Raises:
        UserError: there is no such file.
    """
    folder = Path("configuration/accelerate")
    if config and not (folder / f"{config}.yaml").is_file():
        names = ", ".join(sorted(path.stem for path in folder.glob("*.yaml")))
        raise UserError(f"There is no {folder / config}.yaml; {folder} has {names}: write --launch cpu")
    own = ["--config_file", f"{folder / config}.yaml"] if config else []
    return [sys.executable, "-m", "accelerate.commands.launch", *own]


def launch_settings(launcher: list[str]) -> dict[str, Any]:
    """The configuration that `accelerate launch` is given."""
    if "--config_file" not in launcher:
        return {}
    config = Path(launcher[launcher.index("--config_file") + 1])
    return yaml.safe_load(config.read_text(encoding="utf-8"))


__all__ = [
    "AVX2",
    "LOG",
    "USUAL",
    "accelerate_launch",
    "commit",
    "environment",
    "launch_settings",
    "ran_on_gpu",
    "read_environment",
    "round_as_avx2",
    "run_to_the_end",
    "still_runs",
]
