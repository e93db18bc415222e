"""Finished runs, stored in a file for each table: claim, begin or resume a run, and compare it with others."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import combinations_with_replacement
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from scipy.stats import t

from harness.launching import ran_on_gpu, read_environment
from harness.tables import with_stored_names
from modeling_star.errors import UserError
from modeling_star.files import write_json, write_text
from modeling_star.training.checkpoints import differences


ON_GPU = "‡"  # marks results from a GPU


@dataclass(frozen=True)
class RunFile:
    """Finished runs, a line of JSON each, sorted by their name, which is under the key `run`."""

    path: Path

    def read(self, name: str) -> dict[str, Any] | None:
        """A run without its name, or `None`."""
        line = self._lines().get(name)
        return None if line is None else {key: value for key, value in json.loads(line).items() if key != "run"}

    def read_all(self, pattern: str = "*") -> dict[str, dict[str, Any]]:
        """The runs whose names match, by name; `*` matches `/` too."""
        return {name: self.read(name) or {} for name in self._lines() if fnmatchcase(name, pattern)}

    def keep(self, runs: dict[str, dict[str, Any]]) -> None:
        """Add runs by name, or replace those of the same names; NaN and infinities become null."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(self.path.with_name(f".{self.path.name}.lock")):
            lines = self._lines() | {name: _as_line(name, run) for name, run in runs.items()}
            write_text(self.path, "".join(f"{lines[name]}\n" for name in sorted(lines)))

    def _lines(self) -> dict[str, str]:
        if not self.path.is_file():
            return {}
        status = self.path.stat()
        return _read_lines(self.path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(maxsize=32)
def _read_lines(path: Path, *_version: int) -> dict[str, str]:
    """The lines of a file by the names of their runs; read again where the file's time, size or inode is another."""
    lines: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
        if not line:
            continue
        try:
            name = json.loads(line)["run"]
        except (ValueError, TypeError, KeyError):
            raise UserError(f"{path}, line {number}, is no finished run: correct or delete this line.") from None
        if name in lines:
            raise UserError(f"{path}, line {number}: {name} is there twice. Delete one of the two lines.")
        lines[name] = line
    return lines


def _as_line(name: str, run: dict[str, Any]) -> str:
    finite = json.loads(json.dumps({"run": name} | run), parse_constant=lambda _: None)
    return json.dumps(finite, ensure_ascii=False)


def check_arguments(path: object, made_with: dict[str, Any], requested: dict[str, Any]) -> None:
    """Raise UserError where a run, named by `path`, was made with other arguments than requested."""
    difference = differences(with_stored_names(made_with), with_stored_names(requested))
    if difference:
        raise UserError(
            f"{path} was made with other arguments ({difference}). Delete this folder or line to run it again, or "
            "name other folders for results and work."
        )


@contextmanager
def claim(folder: Path) -> Iterator[bool]:
    """Hold a run's folder, which is made if absent; False where another process holds it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / "running.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        lock.release()


def begin(folder: Path, resumes: bool, arguments: dict[str, Any], environment: dict[str, Any]) -> None:
    """Write arguments.json and environment.json into the folder of a run that begins or resumes."""
    check_resumed(folder, resumes, arguments)
    if resumes and read_environment(folder) != environment:
        environment = {**environment, "commit": None}
    write_json(folder / "environment.json", environment)
    write_json(folder / "arguments.json", arguments)


def check_resumed(folder: Path, resumes: bool, arguments: dict[str, Any]) -> None:
    """Raise UserError where the run in a folder was begun with other arguments."""
    begun_with = folder / "arguments.json"
    if resumes and begun_with.is_file():
        check_arguments(folder, json.loads(begun_with.read_text(encoding="utf-8")), arguments)


def compare_rerun(rerun: dict[str, Any], stored: list[dict[str, Any]], place: int, split: str) -> tuple[str, bool]:
    """
    How a run that was repeated differs from the stored one.

    Args:
        rerun: the repeated run.
        stored: the stored runs of its configuration, one for each seed.
        place: of the stored run with the same seed among them.
        split: whose scores are compared.

    Returns:
        A sentence, and whether the scores are the same to the last digit, or the new one is where 95 % of further
        seeds are expected: `mean ± t · deviation · sqrt(1 + 1 / n)` of the stored ones.
    """
    same = stored[place]
    scores = f"{split} {100 * rerun[split]:.2f}, stored {100 * same[split]:.2f}"
    parts = ["validation", "test", *(["counts"] if "counts" in same else [])]
    if all(rerun.get(part) == same.get(part) for part in parts):
        return f"{scores}: equal to the last digit", True
    environments = (same.get("environment", {}), rerun.get("environment", {}))
    changes = differences(*environments)
    made = f" ({changes})" if changes else ""
    seeds = np.array([run[split] for run in stored])
    if len(seeds) < 2:
        return f"{scores}: different, and one seed alone has no deviation{made}", False
    half = t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) * (1 + 1 / len(seeds)) ** 0.5
    within = bool(abs(rerun[split] - seeds.mean()) <= half)
    spread = f"the deviation over {len(seeds)} seeds, which allows {100 * seeds.mean():.2f} ± {100 * half:.2f}"
    return f"{scores}: {'within' if within else 'outside'} {spread}{made}", within


def count_rows(run: dict[str, Any]) -> int:
    """The number of test rows of a stored run."""
    return len(read_counts(run["counts"])) if "counts" in run else 0


def are_of_other_rows(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the test rows of two stored runs differ in number or in labels."""
    if "counts" not in one or "counts" not in other:
        return False
    labels = {run["references"] for run in (one, other) if "references" in run}  # early runs have none
    return count_rows(one) != count_rows(other) or len(labels) > 1


def write_counts(counts: np.ndarray) -> str:
    """
    `[examples, k]` as text, one column after the other, to the last digit.

    A column is `1x400`, one number for all 400 examples; or `1*2`, the product of the columns 1 and 2, counted from 0;
    or a digit for each example, as `0110`; or the numbers with spaces between them.
    """
    texts = []
    columns = counts.astype(float).T
    for number, column in enumerate(columns):
        words = [str(int(x)) if x.is_integer() else repr(x) for x in column.tolist()]
        pairs = combinations_with_replacement(range(number), 2)
        products = (f"{i}*{j}" for i, j in pairs if np.array_equal(columns[i] * columns[j], column))
        if len(set(words)) == 1:
            texts.append(f"{words[0]}x{len(words)}")
        elif (product := next(products, None)) is not None:
            texts.append(product)
        else:
            texts.append(("" if all(len(word) == 1 for word in words) else " ").join(words))
    return "; ".join(texts)


def read_counts(text: str) -> np.ndarray:
    """`[examples, k]`, from `write_counts`."""
    columns: list[np.ndarray] = []
    for column in text.split("; "):
        if "x" in column:
            number, examples = column.split("x")
            columns.append(np.full(int(examples), float(number)))
        elif "*" in column:
            i, j = map(int, column.split("*"))
            columns.append(columns[i] * columns[j])
        else:
            columns.append(np.array(column.split() if " " in column else list(column), float))
    return np.stack(columns, axis=1)


def training_minutes(runs: Sequence[dict[str, Any]]) -> str:
    """`, 12.3`: mean minutes of training on a CPU, or, where all ran on a GPU, there; nothing where none is known."""
    on_cpu = [run for run in runs if not ran_on_gpu(run)]
    seconds = [run["training_seconds"] for run in on_cpu or runs if run["training_seconds"] is not None]
    return f", {fmean(seconds) / 60:.1f}" + ("" if on_cpu else f" {ON_GPU}") if seconds else ""
