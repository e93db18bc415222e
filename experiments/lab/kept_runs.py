"""Finished runs, kept as JSON files: claim a run, begin or resume it, and compare its arguments with others."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from scipy.stats import t

from lab.launching import read_environment
from lab.tables import with_kept_names
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import write_json
from modeling_star.training.checkpoints import differences


def read_json(path: Path) -> dict[str, Any] | None:
    """The content of a file, or `None`."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def check_arguments(path: Path, made_with: dict[str, Any], requested: dict[str, Any]) -> None:
    """
    Args:
        path: of the result, or of the folder of an interrupted run.
        made_with: its arguments.
        requested: the arguments that it should have.

    Raises:
        UserError: they differ.
    """
    difference = differences(with_kept_names(made_with), with_kept_names(requested))
    if difference:
        raise UserError(
            f"{path} was made with other arguments ({difference}). Delete it to run it again, or name other folders "
            "for results and work."
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
    """
    Write arguments.json and environment.json into the folder of a run that begins or resumes.

    Args:
        environment: of this process; the commit of a run that was begun in another one is unknown.

    Raises:
        UserError: the run was begun with other arguments.
    """
    check_resumed(folder, resumes, arguments)
    if resumes and read_environment(folder) != environment:
        environment = {**environment, "commit": None}
    write_json(folder / "environment.json", environment)
    write_json(folder / "arguments.json", arguments)


def check_resumed(folder: Path, resumes: bool, arguments: dict[str, Any]) -> None:
    """
    Raises:
        UserError: the run in a folder was begun with other arguments.
    """
    begun_with = read_json(folder / "arguments.json")
    if resumes and begun_with is not None:
        check_arguments(folder, begun_with, arguments)


def compare_rerun(rerun: dict[str, Any], kept: list[dict[str, Any]], place: int, split: str) -> tuple[str, bool]:
    """
    How a run that was repeated differs from the kept one.

    Args:
        rerun: the repeated run.
        kept: the kept runs of its configuration, one for each seed.
        place: of the kept run with the same seed among them.
        split: whose scores are compared.

    Returns:
        A sentence, and whether the scores are the same to the last digit, or the new one is where 95 % of further
        seeds are expected: `mean ± t · deviation · sqrt(1 + 1 / n)` of the kept ones.
    """
    same = kept[place]
    scores = f"{split} {100 * rerun[split]:.2f}, kept {100 * same[split]:.2f}"
    if all(rerun.get(part) == same.get(part) for part in ("validation", "test", "counts")):
        return f"{scores}: equal to the last digit", True
    environments = (same.get("environment", {}), rerun.get("environment", {}))
    changes = differences(*environments)
    made = f" ({changes})" if changes else ""
    seeds = np.array([run[split] for run in kept])
    if len(seeds) < 2:
        return f"{scores}: different, and one seed alone has no deviation{made}", False
    half = t.ppf(0.975, len(seeds) - 1) * seeds.std(ddof=1) * (1 + 1 / len(seeds)) ** 0.5
    within = bool(abs(rerun[split] - seeds.mean()) <= half)
    spread = f"the deviation over {len(seeds)} seeds, which allows {100 * seeds.mean():.2f} ± {100 * half:.2f}"
    return f"{scores}: {'within' if within else 'outside'} {spread}{made}", within


def count_rows(run: dict[str, Any]) -> int:
    """The number of test rows of a kept run."""
    return len(run.get("counts", "").split(";")[0].split())


def are_of_other_rows(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the test rows of two kept runs differ in number or in labels."""
    if "counts" not in one or "counts" not in other:
        return False
    labels = {run["references"] for run in (one, other) if "references" in run}  # early runs have none
    return count_rows(one) != count_rows(other) or len(labels) > 1


def write_counts(counts: np.ndarray) -> str:
    """`[examples, k]` as text, one column after the other, to the last digit."""
    numbers = [[float(number) for number in column] for column in counts.T]
    return "; ".join(" ".join(str(int(x)) if x.is_integer() else repr(x) for x in column) for column in numbers)


def read_counts(text: str) -> np.ndarray:
    """`[examples, k]`, from `write_counts`."""
    return np.array([[float(number) for number in column.split()] for column in text.split(";")]).T
