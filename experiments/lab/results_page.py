"""experiments/results.md, made from the finished runs alone: the same files give the same page, byte for byte."""

import copy
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from lab.launching import USUAL, ran_on_gpu
from lab.masked_summation_page import ON_GPU, training_minutes, write_report
from lab.table_runs import FinishedRuns, are_of_other_rows, count_rows, read_counts, write_counts
from lab.tables import Configuration, Table
from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import Interval, bootstrap_counts, bootstrap_mean, score_counts
from modeling_star.evaluation.compare import summary
from modeling_star.evaluation.reports import markdown_table, write_text


INTRODUCTION = """# Results

Made by `python experiments/reproduce.py{made_by}` from `{results}/`, where every run keeps its arguments, its scores
and what each test example added to them. Scores are those of the test split in percent, unless a table says
otherwise: the mean over seeds, ± the deviation, and in brackets how many seeds have run. A system's configuration is
chosen on the validation split with the first seed. A difference comes with its 95 % interval: a paired bootstrap over
test examples and, where several seeds have run, over these too; of one seed nothing tells what another would give.
One in twenty of such intervals is expected to miss; other draws than these 1,000 move its ends by about a twentieth
of its width. `--` stands where no run is finished. What a paper reports, on its own data and vectors, stands in rows
of its own.

To run one number again: `OMP_NUM_THREADS=1 python experiments/reproduce.py {table} --data DATA --only
TASK/SETTING/SYSTEM --seeds N --results again --work outputs/again`, with `--configuration N` where validation chose
one: it stands below each such table. Rounding depends on the number of threads, on the CPU's instructions and on the
version of the code, and training makes such differences large: processors with AVX-512 keep to AVX2 here, and
the files tell with each run how many threads it had and which commit made it. Where there is a GPU, `--launch cpu`
runs what ran without one.

Training times are rough, since other jobs shared the machine. Parameters include those that are not trained, such as
frozen embeddings and sinusoidal positions.
"""


# Folder of what masked_summation.py keeps, and of its page.
SUMMATION = "masked_summation"
# Marks what no commit is known of.
EARLY = "†"
EARLY_NOTE = f"{EARLY} Has a run that no commit is known of, such as early ones: today's code may give other digits."
GPU_NOTE = (
    f"{ON_GPU} Has a run on a GPU, which `experiments/results/` names: on a CPU the same seed gives other digits. "
    "Where others ran on a CPU, only these are timed."
)
# End the names of further columns: test rows that do not occur in train, another score of the same counts.
REPEATED = ", rows not in train"
EXACT = ", exact match"
CHRF = ", chrF"
# Metric of a task -> the further column that it has, and what that is scored by.
FURTHER = {"answer_f1": (EXACT, "answer_em"), "bleu": (CHRF, "chrf"), "bleu_zh": (CHRF, "chrf")}
# The column of the mean over all tasks.
AVERAGE = ""
# Of a table on the page.
MOST_COLUMNS = 8


class Cell:
    """
    The finished runs of one system on one task in one setting, with the configuration that validation chose.

    Args:
        finished: the table's runs.
        configurations: those of the cell.
    """

    def __init__(self, finished: FinishedRuns, configurations: list[Configuration]):
        self.chosen = finished.best(configurations)
        self.split = finished.table.split
        self.seeds: list[int] = []
        self.runs: list[dict[str, Any]] = []
        for seed in finished.table.seeds_of(self.chosen.system) if self.chosen is not None else []:
            run = finished.read(self.chosen, seed)
            if run is not None:
                self.seeds.append(seed)
                self.runs.append(run)
        places = [run.get("environment", {}) for run in self.runs]
        launched = {tuple(place.get(name, usual) for name, usual in USUAL.items()) for place in places}
        if self.chosen is not None and len(launched) > 1:
            raise UserError(
                f"The runs of {self.chosen.cell} were launched with different {' and '.join(USUAL)}: "
                f"{sorted(launched)}. Those of one kind make a mean: delete the others, or keep them in another "
                "folder, --results NAME"
            )

    def of_seeds(self, seeds: list[int]) -> "Cell":
        """The runs with some of the seeds."""
        cell = copy.copy(self)
        kept = [(seed, run) for seed, run in zip(self.seeds, self.runs, strict=True) if seed in seeds]
        cell.seeds, cell.runs = [seed for seed, _ in kept], [run for _, run in kept]
        return cell

    @property
    def scores(self) -> list[float]:
        return [run[self.split] for run in self.runs]

    @property
    def counts(self) -> list[np.ndarray]:
        """`[examples, k]` of each run."""
        return [read_counts(run["counts"]) for run in self.runs]

    def without_repeated(self, metric: str) -> "Cell":
        """The runs that tell which test rows occur in train, scored on the others."""
        cell = self.of_seeds([seed for seed, run in zip(self.seeds, self.runs, strict=True) if "repeated" in run])
        runs = []
        for run, counts in zip(cell.runs, cell.counts, strict=True):
            counts = counts[[flag == "0" for flag in run["repeated"]]]
            runs.append({**run, "test": score_counts(metric, counts), "counts": write_counts(counts)})
        cell.runs = runs
        return cell

    def scored_by(self, metric: str) -> "Cell":
        """The same runs, scored by another metric of the same counts."""
        cell = copy.copy(self)
        cell.runs = [
            {**run, "test": score_counts(metric, counts)} for run, counts in zip(self.runs, self.counts, strict=True)
        ]
        return cell

    @property
    def has_repeated(self) -> bool:
        """Whether a test row occurs in train."""
        return any("1" in run.get("repeated", "") for run in self.runs)

    @property
    def is_early(self) -> bool:
        """Whether no commit has all code of a run: early ones keep none, nor those of changed code or outside git."""
        commits = [run.get("environment", {}).get("commit") for run in self.runs]
        return any(commit is None or commit.endswith("-dirty") for commit in commits)

    @property
    def on_gpu(self) -> bool:
        """Whether a run was made on a GPU."""
        return any(map(ran_on_gpu, self.runs))

    def __str__(self) -> str:
        return summary(self.scores) + marks([self])


def marks(cells: list[Cell]) -> str:
    """What is to be told of the runs of some cells, each after a space."""
    shown = {EARLY: any(cell.is_early for cell in cells), ON_GPU: any(cell.on_gpu for cell in cells)}
    return "".join(f" {mark}" for mark, applies in shown.items() if applies)


def write_page(tables: Path, results: Path, page: Path) -> None:
    """
    Write the page of all tables that have a finished run, and beside it that of masked summation, if it has one.

    Args:
        tables: folder of the tables' files.
        results: folder of the finished runs; those of masked_summation.py in `masked_summation` (`--results`).
        page: the file to write.

    Raises:
        UserError: there is no finished run, and a page that is there would be emptied.
    """
    begun = list(Table.begun(tables, results))
    called = [table.called for table in begun]
    one = called[0] if len(called) == 1 else "TABLE"
    # A page of the project's own tables holds all of them.
    made_by = " --page" if all(table.called == table.name for table in begun) else f" {one}"
    parts = [INTRODUCTION.format(made_by=made_by, results=results.as_posix(), table=one)]
    for table in begun:
        parts += table_sections(table, results)
    if len(parts) == 1 and not (results / SUMMATION).is_dir():
        raise UserError(
            f"{results} holds no finished run of a table in {tables}: nothing is written. Name the folder, --results, "
            "and with it a table's file of your own: reproduce.py MINE.yaml --page"
        )
    notes = {EARLY: EARLY_NOTE, ON_GPU: GPU_NOTE}
    parts[1:1] = [f"{note}\n" for mark, note in notes.items() if any(mark in part for part in parts)]
    if (results / SUMMATION).is_dir():
        write_report(results / SUMMATION, page.parent / SUMMATION)
        parts.append(
            f"## Masked summation\n\nTable 6 and Figure 3: [{SUMMATION}/results.md]({SUMMATION}/results.md).\n"
        )
    write_text(page, "\n".join(parts))


def table_sections(table: Table, results: Path) -> Iterator[str]:
    """The Markdown of one table."""
    content = table.content
    yield f"## {content['title']}\n\n{content['about'].strip()}\n"
    yield from _before(table, results)
    for setting, told in content["settings"].items():
        cells = read_cells(table, setting, results)
        if not any(cell.runs for cell in cells.values()):
            continue
        yield f"### {told['title']}\n"
        tasks = list(dict.fromkeys(place[0] for place in cells))
        systems = [system for system in content["systems"] if any(place[1] == system for place in cells)]
        rows = [_row(table, system, tasks, cells) for system in systems] + list(_paper(content, tasks, cells))
        columns = [*tasks, AVERAGE] if "average" in content else tasks
        yield _laid_out("", [column_title(table, task) for task in columns], rows)
        differences = {against: intervals(table, cells, against) for against in table.compared}
        yield from _differences(table, columns, cells, differences)
        # Other scores of the same runs cost nothing.
        own = [task for task in tasks if _own(task) == task]
        costs = [_cost(table, system, own, cells) for system in systems]
        yield _laid_out("parameters, training minutes", [column_title(table, task) for task in own], costs)
        yield from _configurations(table, setting, own, cells, results)
        if differences[table.compared[0]]:
            yield f"![Differences, {told['title']}](pictures/{picture_name(table, setting)})\n"


def _before(table: Table, results: Path) -> Iterator[str]:
    """What ran before the table's runs: what it reached, and its losses."""
    for name, told in table.before.items():
        kept = FinishedRuns(table, results).read_before(name)
        if kept is None:
            continue
        facts = [f"{score.replace('_', ' ')} {value:.4g}" for score, value in kept["scores"].items()]
        facts.append(f"{kept['parameters'] / 1e6:.2f} M parameters")
        if kept["training_seconds"] is not None:
            facts.append(f"{kept['training_seconds'] / 60:.0f} minutes")
        if kept["tokens_per_second"] is not None:
            facts.append(f"{kept['tokens_per_second']:,.0f} tokens a second")
        if ran_on_gpu(kept):
            facts.append(f"on one {kept['environment']['device']}")
        yield (
            f"{told['title']} (`{told['script']}`, `{told['recipe']}.yaml`; its arguments and losses are in "
            f"`experiments/results/{table.name}/before/{name}.json`), on validation: {', '.join(facts)}.\n"
        )
        yield f"![Losses of {name}](pictures/{picture_name(table, name)})\n"


def picture_name(table: Table, part: str) -> str:
    """File of the picture of a setting that has differences to show, or of what ran before."""
    return f"results_{table.name}_{part}.png"


def column_title(table: Table, task: str) -> str:
    """Of a task, of a further column that it has, or of the mean over all."""
    if task == AVERAGE:
        return table.content["average"]
    return table.content["tasks"][_own(task)]["title"] + task.removeprefix(_own(task))


def _laid_out(corner: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table whose rows begin with their title, turned round where it would be too wide."""
    whole = [[corner, *columns], *rows]
    if len(columns) > MOST_COLUMNS:
        whole = [list(column) for column in zip(*whole, strict=True)]
    return markdown_table(whole[0], whole[1:]) + "\n"


def read_cells(table: Table, setting: str, results: Path) -> dict[tuple[str, str], Cell]:
    """The cells of a setting, by task and system."""
    cells: dict[tuple[str, str], Cell] = {}
    for task, told in table.content["tasks"].items():
        for system in table.content["systems"]:
            configurations = table.configurations(task, setting, system)
            if configurations:
                cells[task, system] = Cell(FinishedRuns(table, results), configurations)
        if table.split != "test":
            continue  # what else is kept of a run is of its test rows
        own = [(system, cell) for (name, system), cell in cells.items() if name == task]
        _check_same_rows(f"{table.name}/{task}/{setting}", dict(own))
        if "repeated" in told and any(cell.has_repeated for _, cell in own):
            for system, cell in own:
                cells[task + REPEATED, system] = cell.without_repeated(told["metric"])
        for (name, system), cell in list(cells.items()):
            if name == task and told["metric"] in FURTHER:
                column, metric = FURTHER[told["metric"]]
                cells[task + column, system] = cell.scored_by(metric)
    return cells


def _check_same_rows(place: str, cells: dict[str, Cell]) -> None:
    """
    Raises:
        UserError: runs of a task in a setting were measured on different test rows.
    """
    runs = [
        (system, seed, run) for system, cell in cells.items() for seed, run in zip(cell.seeds, cell.runs, strict=True)
    ]
    for system, seed, run in runs[1:]:
        first = runs[0]
        if are_of_other_rows(first[2], run):
            raise UserError(
                f"{place}: {first[0]}, seed {first[1]}, was measured on other test rows ({count_rows(first[2])}) than "
                f"{system}, seed {seed} ({count_rows(run)}), and no mean or interval is of both: delete the runs on "
                "other data, or keep them in another folder, --results NAME"
            )


def _own(task: str) -> str:
    """The task that a column is of."""
    return task.removesuffix(REPEATED).removesuffix(EXACT).removesuffix(CHRF)


def _metric(table: Table, task: str) -> str:
    """What a column is scored by."""
    metric = table.metric(_own(task))
    column, further = FURTHER.get(metric, ("", ""))
    return further if column and task.endswith(column) else metric


def _title(table: Table, system: str) -> str:
    return table.content["systems"][system]["title"]


def _row(table: Table, system: str, tasks: list[str], cells: dict[tuple[str, str], Cell]) -> list[str]:
    row = [_title(table, system), *(str(cells.get((task, system), "--")) for task in tasks)]
    if "average" in table.content:
        averaged = _averaged(tasks, system, cells)
        means = [fmean(scores) for scores in zip(*(cell.scores for cell in averaged), strict=True)]
        row.append(summary(means) + marks(averaged))
    return row


def _started(tasks: list[str], cells: dict[tuple[str, str], Cell]) -> list[str]:
    """The tasks of which any system has a run: those that are averaged over."""
    own = [task for task in tasks if _own(task) == task]
    return [task for task in own if any(cell.runs for (name, _), cell in cells.items() if name == task)]


def _averaged(tasks: list[str], system: str, cells: dict[tuple[str, str], Cell]) -> list[Cell]:
    """A system's cell of each task with a run, their runs with the seeds that all have; nothing where none has."""
    row = [cells[task, system] for task in _started(tasks, cells) if (task, system) in cells]
    common = [seed for seed in row[0].seeds if all(seed in cell.seeds for cell in row)] if row else []
    complete = len(row) == len(_started(tasks, cells)) and common
    return [cell.of_seeds(common) for cell in row] if complete else []


def _paper(content: dict[str, Any], tasks: list[str], cells: dict[tuple[str, str], Cell]) -> Iterator[list[str]]:
    """What the paper reports, a row for each system that it has; its average over the same tasks as ours."""
    for system, scores in content.get("paper", {}).items():
        numbers = [scores.get(task) for task in tasks]
        if "average" in content:
            started = _started(tasks, cells)
            known = bool(started) and all(task in scores for task in started)
            numbers.append(fmean(scores[task] for task in started) if known else None)
        title = content["systems"][system]["title"]
        yield [f"{title}, the paper's", *("--" if number is None else f"{number:.1f}" for number in numbers)]


def intervals(table: Table, cells: dict[tuple[str, str], Cell], against: str) -> dict[tuple[str, str], Interval]:
    """
    How far the system `against` is ahead, by task and system; of the mean over tasks under AVERAGE.

    Args:
        table: the table.
        cells: those of one setting, from `read_cells`.
        against: the system.
    """
    found: dict[tuple[str, str], Interval] = {}
    if table.split != "test":
        return found
    for (task, system), other in cells.items():
        one = cells.get((task, against))
        if system != against and one is not None and one.runs and other.runs:
            found[task, system] = bootstrap_counts(_metric(table, task), one.counts, other.counts)
    if "average" in table.content:
        tasks = list(table.content["tasks"])
        for system in table.content["systems"]:
            both = [_averaged(tasks, name, cells) for name in (against, system)]
            if system != against and all(both):
                metrics = map(table.metric, _started(tasks, cells))
                counts = [[cell.counts for cell in row] for row in both]
                found[AVERAGE, system] = bootstrap_mean(list(zip(metrics, *counts, strict=True)))
    return found


def _differences(
    table: Table,
    columns: list[str],
    cells: dict[tuple[str, str], Cell],
    differences: dict[str, dict[tuple[str, str], Interval]],
) -> Iterator[str]:
    """For each system that others are compared with, a row for each other; a pair of two such stands there once."""
    for number, (against, found) in enumerate(differences.items()):
        others = {system for _, system in found}.difference(table.compared[:number])
        rows = [
            [_title(table, system), *(_told(found, cells, task, system, against) for task in columns)]
            for system in table.content["systems"]
            if system in others
        ]
        if rows:
            titles = [column_title(table, task) for task in columns]
            yield _laid_out(f"{_title(table, against)} minus", titles, rows)


def _told(
    found: dict[tuple[str, str], Interval], cells: dict[tuple[str, str], Cell], task: str, system: str, against: str
) -> str:
    """One difference, marked as the runs of the two systems in its column are."""
    if (task, system) not in found:
        return "--"
    difference, low, high = (100 * number for number in found[task, system])
    both = [cell for (name, own), cell in cells.items() if own in (system, against) and task in (name, AVERAGE)]
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]{marks(both)}"


def _cost(table: Table, system: str, tasks: list[str], cells: dict[tuple[str, str], Cell]) -> list[str]:
    row = [_title(table, system)]
    for task in tasks:
        runs = cells[task, system].runs if (task, system) in cells else []
        row.append(f"{runs[0]['parameters'] / 1e6:.2f} M{training_minutes(runs)}" if runs else "--")
    return row


def _configurations(
    table: Table, setting: str, tasks: list[str], cells: dict[tuple[str, str], Cell], results: Path
) -> Iterator[str]:
    """Where systems have several configurations: which one validation chose, and what all of them cost together."""
    finished = FinishedRuns(table, results)
    told, runs = [], []
    for system in table.content["systems"]:
        chosen: dict[str, list[str]] = {}
        for task in tasks:
            configurations = table.configurations(task, setting, system)
            found = (finished.read(each, seed) for each in configurations for seed in table.seeds)
            runs += [run for run in found if run]
            cell = cells.get((task, system))
            if len(configurations) > 1 and cell is not None and cell.runs:
                grid = table.grid(setting, system)[cell.chosen.number]
                values = ", ".join(f"{name} {value}" for name, value in grid.items())
                chosen.setdefault(f"{cell.chosen.number} ({values})", []).append(column_title(table, task))
        for name, titles in chosen.items():
            where = "" if len(chosen) == 1 else f" on {', '.join(titles)}"
            told.append(f"{_title(table, system)} {name}{where}")
    if told:
        minutes = sum(run["training_seconds"] or 0 for run in runs) / 60
        on_gpu = sum(map(ran_on_gpu, runs))
        yield (
            f"Configurations that validation chose (`--configuration N` runs one alone): {'; '.join(told)}. All "
            f"{len(runs)} runs, those of the others included, trained for {minutes:,.0f} minutes"
            + (f", {on_gpu} of the runs on a GPU.\n" if on_gpu else ".\n")
        )


__all__ = ["Cell", "read_cells", "table_sections", "write_page"]
