"""
Compiles `cpu.cpp`: for a wheel when it is built, or for a user when a process first needs it (`cpu.py`).

A library is beside the source where a wheel has brought it, or in the cache of the user, and is loaded only where no
other user can have written it. `hatch_build.py` imports this file where neither torch nor transformers is installed.
"""

import functools
import hashlib
import logging
import os
import platform
import shutil
import stat
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
    "avx512bf16": (
        ("-march=x86-64-v4", "-mavx512bf16"),
        frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl", "avx512_bf16")),
    ),
    "avx512": (("-march=x86-64-v4",), frozenset(("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"))),
    "avx2": (("-march=x86-64-v3",), frozenset(("avx2", "fma", "bmi2", "f16c"))),
    "plain": ((), frozenset()),
}
# Seconds after which a build that has not finished is taken for dead.
LONGEST_BUILD = 600


logger = logging.getLogger(__name__)


class UnavailableError(Exception):
    """Why the compiled code cannot be used."""


def cache_folder() -> Path:
    """Where compiled code of this user is kept; it need not exist. An UnavailableError without a home."""
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "modeling_star"
    except RuntimeError as error:
        raise UnavailableError("the user has no home folder (export XDG_CACHE_HOME=FOLDER)") from error


def levels_of_machine() -> tuple[str, ...]:
    """The levels that a wheel for this machine holds: a processor that runs it may have more or less than this one."""
    return tuple(LEVELS)[:-1] if platform.machine() in ("x86_64", "AMD64") else ("plain",)


def _library_name(name: str) -> str:
    """
    How the name of the library of a level begins: another version, source or flags have another name. The SHA-256 of
    the file follows, so that one rename publishes both.
    """
    content = "\0".join((SOURCE.read_text(encoding="utf-8"), *COMPILE, *LEVELS[name][0], platform.machine()))
    return f"cpu-{__version__}-{name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def _others_write(path: Path, allowed: int = 0) -> bool:
    """Whether a file or folder is a link, another user's or open to writing by others, but for the bits `allowed`."""
    found = path.lstat()
    owners = (0, getattr(os, "getuid", int)(), SOURCE.stat().st_uid)
    # In a folder with the sticky bit, as /tmp, nobody replaces what belongs to another.
    is_sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    is_open = found.st_mode & 0o022 & ~allowed and not is_sticky
    return stat.S_ISLNK(found.st_mode) or bool(is_open) or found.st_uid not in owners


def _private_cache(create: bool = False) -> Path:
    """The cache folder without links in its path; an UnavailableError where others may write, or it cannot be."""
    folder = cache_folder()
    try:
        for path in (*reversed(folder.parents), folder) if create else ():
            path.mkdir(mode=0o700, exist_ok=True)
        folder = folder.resolve()
        there = [path for path in (folder, *folder.parents) if path.exists()]
        found = [path for path in there if _others_write(path) or (path == folder and path.stat().st_mode & 0o022)]
    except OSError as error:
        raise UnavailableError(f"{folder} cannot be used: {error}") from error
    if found:
        _warn(reason := f"other users may write in {found[0]} (export XDG_CACHE_HOME=FOLDER, one of this user alone)")
        raise UnavailableError(reason)
    return folder


@functools.cache
def _warn(reason: str) -> None:
    logger.warning(f"PyTorch computes: {reason}. To hide this: export MODELING_STAR_CPU_KERNELS=0.")


def find(name: str) -> Path | None:
    """
    The compiled library of a level; `None` where there is none, where another user can have written it, or where it is
    not as it was written. A file that a full disk or a power cut has cut off would end the process when it is loaded.
    """
    # Beside the source a file is as private as the source, which runs from there.
    for place, allowed in ((lambda: SOURCE.parent, SOURCE.stat().st_mode), (_private_cache, 0)):
        try:
            for path in sorted(place().glob(f"{_library_name(name)}-*.so")):
                if not path.is_file() or _others_write(path, allowed):
                    continue
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
    """Find the library of a level, or compile it into the user's cache; an UnavailableError as in `build_in`."""
    return find(name) or build_in(_private_cache(create=True), name)


def build_in(folder: Path, name: str) -> Path:
    """Compile the library of a level; an UnavailableError without a compiler, where it fails or cannot write."""
    stem = folder / _library_name(name)
    try:
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / "new"
            command = _command(name, new)
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                reason = done.stderr.strip()[:500] or f"it ends with status {done.returncode}"
                raise UnavailableError(f"{command[0]} fails: {reason}")
            with new.open("rb+") as file:
                content = file.read()
                os.fsync(file.fileno())
            new.chmod(0o755)
            return new.replace(stem.with_name(f"{stem.name}-{hashlib.sha256(content).hexdigest()}.so"))
    except OSError as error:
        raise UnavailableError(f"{stem}-*.so cannot be written: {error}") from error


# `build` for a shell: the new file, the stem of its name, and the compiler's command.
_BUILD = """
umask 022; new=$1; stem=$2; shift 2
if "$@" && [ -s "$new" ] && sync "$new" && sum=$(sha256sum < "$new") && [ -n "$sum" ]
then mv -f "$new" "$stem-${sum%% *}.so"
else rm -f "$new"
fi
"""


def build_in_background(name: str) -> bool:
    """Start a process that compiles the library for later ones; false where another process does, or none can."""
    nothing = subprocess.DEVNULL
    try:
        stem = _private_cache(create=True) / _library_name(name)
        new = stem.with_name(f"{stem.name}.building")
        command = _command(name, new)
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
