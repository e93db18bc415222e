"""Scripts run as subprocesses, and the environment that their results depend on in addition to their arguments."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml


# The code that a result depends on; results and pages change with every run.
CODE = (
    *("modeling_star", "configuration", "run_scripts", "constraints.txt"),
    *("experiments/run_translation.py", "experiments/translation"),
)
# Launch settings that a stored environment does not mention.
USUAL = {"num_processes": 1, "mixed_precision": "no"}
# Output of a command that `run_to_the_end` runs.
LOG = "log.txt"
# What torch, oneDNN and MKL read to use AVX2 on a processor that has more.
AVX2 = {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}


def round_as_avx2() -> None:
    """Have the runs that are started from here round as on processors with AVX2, also on one with AVX-512."""
    # The two add up in different orders, which training amplifies: SST-2, BiG on static MiniLM, seed 1 reaches 79.5 on
    # the one and 83.5 on the other. Variables that are set already stay.
    requested = os.environ.get("ATEN_CPU_CAPABILITY") == AVX2["ATEN_CPU_CAPABILITY"]
    if requested or torch.backends.cpu.get_cpu_capability() == "AVX512":
        for name, value in AVX2.items():
            os.environ.setdefault(name, value)


def script_path(name: str) -> Path:
    """The file of a script, from the project's folder: an experiment's own, or one of the package's commands."""
    path = Path("experiments") / name
    return path if path.is_file() else Path("run_scripts") / name


def environment(use_cpu: bool = False) -> dict[str, Any]:
    """What results depend on in addition to the arguments."""
    on_gpu = torch.cuda.is_available() and not use_cpu
    variables = {name: os.environ[name] for name in AVX2 if name in os.environ}
    settings = [f"{name}={value}" for name, value in variables.items()]
    instructions = "AVX2" if variables == AVX2 else " ".join([torch.backends.cpu.get_cpu_capability(), *settings])
    return {
        "python": platform.python_version(),
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
        "device": torch.cuda.get_device_name() if on_gpu else "cpu",
        **({} if on_gpu else {"instructions": instructions, "processor": processor()}),
        "threads": int(os.environ.get("OMP_NUM_THREADS") or torch.get_num_threads()),
        "commit": commit(Path.cwd()),
    }


def processor(info: Path = Path("/proc/cpuinfo")) -> str:
    """The maker and the model of this CPU, of Linux: `AuthenticAMD AMD EPYC`."""
    pairs = (line.partition(":") for line in info.read_text(encoding="utf-8").split("\n\n")[0].splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    return " ".join(facts[name] for name in ("vendor_id", "model name") if name in facts) or platform.machine()


def ran_on_gpu(run: dict[str, Any]) -> bool:
    """Whether a stored run was made on a GPU, by its `environment`."""
    return run.get("environment", {}).get("device", "cpu") != "cpu"


def read_environment(folder: Path) -> dict[str, Any]:
    """The environment of the run in a folder; without a commit where it is unknown."""
    path = folder / "environment.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {**environment(), "commit": None}


def commit(folder: Path) -> str | None:
    """The project's commit in a folder, with `-dirty` where its code differs from it; `None` outside git."""
    git = shutil.which("git")
    if git is None:
        return None
    commands = [["rev-parse", "--short=12", "HEAD"], ["status", "--porcelain", "--", *CODE]]
    answers = [subprocess.run([git, "-C", str(folder), *words], capture_output=True, text=True) for words in commands]
    if any(answer.returncode for answer in answers):
        return None
    head, changes = (answer.stdout.strip() for answer in answers)
    return f"{head}-dirty" if changes else head


def run_to_the_end(command: list[str], folder: Path) -> int:
    """Run a command, log it in `folder`, return its status; it and its children end where this process is stopped."""
    with (
        (folder / LOG).open("a", encoding="utf-8") as log,
        subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True) as process,
    ):
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)  # a session's first process leads its group
            raise


def accelerate_launch(config: str) -> list[str]:
    """`accelerate launch` of this Python, with configuration/accelerate/CONFIG.yaml."""
    path = f"configuration/accelerate/{config}.yaml"
    return [sys.executable, "-m", "accelerate.commands.launch", "--config_file", path]


def launch_settings(launcher: list[str]) -> dict[str, Any]:
    """The configuration of a command from `accelerate_launch`; empty for another one."""
    if "--config_file" not in launcher:
        return {}
    config = Path(launcher[launcher.index("--config_file") + 1])
    return yaml.safe_load(config.read_text(encoding="utf-8"))
