"""
Compiles `cpu.cpp`: for a wheel when it is built, or for a user when a process first needs it (`cpu.py`).

A library is beside the source where a wheel has brought it, or in the cache of the user. `hatch_build.py` imports this
file where neither torch nor transformers is installed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from ..version import __version__


SOURCE = Path(__file__).with_name("cpu.cpp")
COMPILE = ("-std=c++17", "-O3", "-fPIC", "-fopenmp", "-shared")
# The instructions of each level, best first, and the flags of /proc/cpuinfo that a processor must have.
LEVELS: dict[str, tuple[tuple[str, ...], frozenset[str]]] = {
    "amx": (
        ("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
        frozenset(("avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_bf16", "amx_tile", "amx_bf16")),
    ),
    "avx512": (("-march=x86-64-v4",), frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))),
    "avx2": (("-march=x86-64-v3",), frozenset(("avx2", "fma", "bmi2", "f16c"))),
    "plain": ((), frozenset()),
}
# Seconds after which a build that has not finished is taken for dead.
LONGEST_BUILD = 600


class UnavailableError(Exception):
    """Why the compiled code cannot be used."""


def cache_folder() -> Path:
    """
    Where compiled code of this user is kept.

    Raises:
        UnavailableError: there is no such folder, as for a user of a container whom its system does not know.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modeling_star"
    except RuntimeError as error:
        raise UnavailableError("the user has no home folder (export XDG_CACHE_HOME=FOLDER)") from error


def levels_of_machine() -> tuple[str, ...]:
    """The levels that a wheel for this machine holds: a processor that runs it may have more or less than this one."""
    return ("amx", "avx512", "avx2") if platform.machine() in ("x86_64", "AMD64") else ("plain",)


def _library_name(name: str) -> str:
    """
    How the name of the library of a level begins: another version, source or flags have another name. The SHA-256 of
    the file follows, so that one rename publishes both.
    """
    content = "\0".join((SOURCE.read_text(encoding="utf-8"), *COMPILE, *LEVELS[name][0], platform.machine()))
    return f"cpu-{__version__}-{name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def find(name: str) -> Path | None:
    """
    The compiled library of a level; `None` where there is none, or where it is not as it was written. A file that a
    full disk or a power cut has cut off would end the process when it is loaded.
    """
    for folder in (lambda: SOURCE.parent, cache_folder):
        try:
            for path in sorted(folder().glob(f"{_library_name(name)}-*.so")):
                if path.stem.rpartition("-")[2] == hashlib.sha256(path.read_bytes()).hexdigest():
                    return path
        except (OSError, UnavailableError):  # it is built again; where it cannot be written either, `build` says so
            continue
    return None


def _command(name: str, target: Path) -> list[str]:
    """
    Raises:
        UnavailableError: there is no compiler.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        raise UnavailableError("there is no C++ compiler (apt install g++)")
    return [*compiler.split(), *COMPILE, *LEVELS[name][0], str(SOURCE), "-o", str(target)]


def build(name: str) -> Path:
    """
    Find the library of a level, or compile it into the user's cache.

    Raises:
        UnavailableError: as in `build_in`.
    """
    return find(name) or build_in(cache_folder(), name)


def build_in(folder: Path, name: str) -> Path:
    """
    Compile the library of a level.

    Raises:
        UnavailableError: there is no compiler, it fails, or its output cannot be written.
    """
    stem = folder / _library_name(name)
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=stem.parent) as temporary:
            new = Path(temporary) / "new"
            command = _command(name, new)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = done.stderr.strip()[:500] or f"it ends with status {done.returncode}"
                raise UnavailableError(f"{command[0]} fails: {reason}")
            with new.open("rb+") as file:
                content = file.read()
                os.fsync(file.fileno())
            return new.replace(stem.with_name(f"{stem.name}-{hashlib.sha256(content).hexdigest()}.so"))
    except OSError as error:
        raise UnavailableError(f"{stem}-*.so cannot be written: {error}") from error


# `build` for a shell: the new file, the stem of its name, and the compiler's command.
_BUILD = """
new=$1; stem=$2; shift 2
if "$@" && [ -s "$new" ] && sync "$new" && sum=$(sha256sum < "$new") && [ -n "$sum" ]
then mv -f "$new" "$stem-${sum%% *}.so"
else rm -f "$new"
fi
"""


def build_in_background(name: str) -> bool:
    """Start a process that compiles the library for later ones; false where another process does, or none can."""
    nothing = subprocess.DEVNULL
    try:
        stem = cache_folder() / _library_name(name)
        new = stem.with_name(f"{stem.name}.building")
        command = _command(name, new)
        stem.parent.mkdir(parents=True, exist_ok=True)
        if new.exists() and time.time() - new.stat().st_mtime > LONGEST_BUILD:
            new.unlink()
        new.touch(exist_ok=False)
        subprocess.Popen(
            ["nice", "sh", "-c", _BUILD, "sh", str(new), str(stem), *command],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
        )
    except (OSError, UnavailableError):
        return False
    return True
