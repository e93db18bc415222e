"""docs/results.md, made from the finished runs in results/ alone: the same files give the same page, byte for byte."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from .bootstrap import bootstrap_counts, score_counts
from .experiments import Table
from .reports import markdown_table, write_text


INTRODUCTION = """# Results

Made by `python run_scripts/reproduce.py --page` from `results/`, where every run keeps its arguments, its scores and
what each test example added to them. Scores are those of the test split in percent: the mean over seeds, ± the
deviation, and in brackets how many seeds have run. A system's configuration is chosen on the validation split with
the first seed. A difference comes with its 95 % interval: a paired bootstrap over test examples, the seeds taken as
they are. `--` stands where no run is finished.

To run one number again: `python run_scripts/reproduce.py TABLE --data DATA --only TASK/SETTING/SYSTEM --seeds N
--results again --work outputs/again`.
"""


# End the names of further columns: test rows that do not occur in train, answers that are right as a whole.
REPEATED = ", rows not in train"
EXACT = ", exact match"


class Cell:
    """
    The finished runs of one system on one task in one setting, with the configuration that validation chose.

    Args:
        folder: `results/TABLE/TASK/SETTING`.
        system: the system's name.
        seeds: the table's seeds; the first one chooses.
        configurations: how many the system has.
    """

    def __init__(self, folder: Path, system: str, seeds: list[int], configurations: int):
        tried = [_read(folder / f"{system}-{number}-seed{seeds[0]}.json") for number in range(configurations)]
        self.chosen: int | None = None
        self.runs: list[dict[str, Any]] = []
        if all(tried):
            self.chosen = max(range(configurations), key=lambda number: tried[number]["validation"])
            found = (_read(folder / f"{system}-{self.chosen}-seed{seed}.json") for seed in seeds)
            self.runs = [run for run in found if run]

    @property
    def scores(self) -> list[float]:
        return [run["test"] for run in self.runs]

    @property
    def counts(self) -> list[np.ndarray]:
        """`[examples, k]` of each run."""
        return [
            np.array([[float(number) for number in column.split()] for column in run["counts"].split(";")]).T
            for run in self.runs
        ]

    def without_repeated(self, metric: str) -> "Cell":
        """The same runs, scored on the test rows that do not occur in train."""
        cell = copy.copy(self)
        cell.runs = []
        for run, counts in zip(self.runs, self.counts, strict=True):
            counts = counts[[flag == "0" for flag in run["repeated"]]]
            kept = "; ".join(" ".join(f"{number:g}" for number in column) for column in counts.T)
            cell.runs.append({**run, "test": score_counts(metric, counts), "counts": kept})
        return cell

    def scored_by(self, metric: str) -> "Cell":
        """The same runs, scored by another metric of the same counts."""
        cell = copy.copy(self)
        cell.runs = [
            {**run, "test": score_counts(metric, counts)} for run, counts in zip(self.runs, self.counts, strict=True)
        ]
        return cell

    def __str__(self) -> str:
        if not self.runs:
            return "--"
        deviation = f" ± {100 * stdev(self.scores):.1f}" if len(self.runs) > 1 else ""
        return f"{100 * fmean(self.scores):.1f}{deviation} ({len(self.runs)})"


def _read(path: Path) -> dict[str, Any] | None:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def write_page(tables: Path, results: Path, page: Path) -> None:
    """
    Write the page of all tables that have a finished run.

    Args:
        tables: folder of the tables' files.
        results: folder of the finished runs.
        page: the file to write.
    """
    parts = [INTRODUCTION]
    for path in sorted(tables.glob("*.yaml")):
        if (results / path.stem).is_dir():
            parts += table_sections(Table.read(path), results)
    write_text(page, "\n".join(parts))


def table_sections(table: Table, results: Path) -> Iterator[str]:
    """The Markdown of one table."""
    content = table.content
    yield f"## {content['title']}\n\n{content['about'].strip()}\n"
    for setting, told in content["settings"].items():
        cells = read_cells(table, setting, results)
        if not any(cell.runs for cell in cells.values()):
            continue
        yield f"### {told['title']}\n"
        tasks = list(dict.fromkeys(place[0] for place in cells))
        titles = [content["tasks"][_own(task)]["title"] + task.removeprefix(_own(task)) for task in tasks]
        systems = [system for system in content["systems"] if any(place[1] == system for place in cells)]
        yield markdown_table(["", *titles], [_row(table, system, tasks, cells) for system in systems]) + "\n"
        differences = list(_differences(table, tasks, systems, cells))
        if differences:
            first = content["systems"][content["against"]]["title"]
            yield markdown_table([f"{first} minus", *titles], differences) + "\n"
        yield (
            markdown_table(["parameters, training minutes", *titles], [_cost(table, s, tasks, cells) for s in systems])
            + "\n"
        )


def read_cells(table: Table, setting: str, results: Path) -> dict[tuple[str, str], Cell]:
    """The cells of a setting, by task and system."""
    cells: dict[tuple[str, str], Cell] = {}
    for task, told in table.content["tasks"].items():
        for system in table.content["systems"]:
            count = len(table.configurations(task, setting, system))
            if count:
                cells[task, system] = Cell(results / table.name / task / setting, system, table.seeds, count)
        for (name, system), cell in list(cells.items()):
            if name == task and "repeated" in told:
                cells[task + REPEATED, system] = cell.without_repeated(told["metric"])
            if name == task and told["metric"] == "answer_f1":
                cells[task + EXACT, system] = cell.scored_by("answer_em")
    return cells


def _own(task: str) -> str:
    """The task that a column is of."""
    return task.removesuffix(REPEATED).removesuffix(EXACT)


def _metric(table: Table, task: str) -> str:
    """What a column is scored by."""
    return "answer_em" if task.endswith(EXACT) else table.content["tasks"][_own(task)]["metric"]


def _title(table: Table, system: str) -> str:
    return table.content["systems"][system]["title"]


def _row(table: Table, system: str, tasks: list[str], cells: dict[tuple[str, str], Cell]) -> list[str]:
    return [_title(table, system), *(str(cells.get((task, system), "--")) for task in tasks)]


def _differences(
    table: Table, tasks: list[str], systems: list[str], cells: dict[tuple[str, str], Cell]
) -> Iterator[list[str]]:
    """A row for each system that the first one is compared with."""
    against = table.content["against"]
    for system in systems:
        if system == against:
            continue
        row = [_title(table, system)]
        for task in tasks:
            one, other = cells.get((task, against)), cells.get((task, system))
            if one is None or other is None or not one.runs or not other.runs:
                row.append("--")
                continue
            both = bootstrap_counts(_metric(table, task), one.counts, other.counts)
            row.append(f"{100 * both.difference:+.1f} [{100 * both.low:+.1f}, {100 * both.high:+.1f}]")
        yield row


def _cost(table: Table, system: str, tasks: list[str], cells: dict[tuple[str, str], Cell]) -> list[str]:
    row = [_title(table, system)]
    for task in tasks:
        runs = cells[task, system].runs if (task, system) in cells else []
        times = [run["training_seconds"] / 60 for run in runs if run["training_seconds"] is not None]
        size = f"{runs[0]['parameters'] / 1e6:.2f} M" if runs else "--"
        row.append(f"{size}, {fmean(times):.1f}" if times else size)
    return row


__all__ = ["Cell", "read_cells", "table_sections", "write_page"]
