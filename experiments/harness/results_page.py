"""
experiments/results.md and experiments/pages/TABLE.md, made from the finished runs alone: the same files give the same
pages, byte for byte.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import masked_summation
import numpy as np
import peers

from harness import ensembles
from harness.launching import USUAL, ran_on_gpu
from harness.stored_runs import (
    ON_GPU,
    RunFile,
    are_of_other_rows,
    count_rows,
    read_counts,
    training_minutes,
    write_counts,
)
from harness.table_runs import FinishedRuns
from harness.tables import Configuration, Table
from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import Interval, bootstrap_counts, bootstrap_mean
from modeling_star.evaluation.compare import summary
from modeling_star.evaluation.metrics import score_counts
from modeling_star.evaluation.reports import markdown_table
from modeling_star.files import write_text


INTRODUCTION = """# Results

Made by `python experiments/reproduce.py{made_by}` from `{results}/TABLE.jsonl`, where each line is a run with its
arguments, its scores and, where an interval needs it, what each test example added to them.

## How to read the tables

- **Scores** are those of the test split in percent, unless a table says otherwise: the mean over seeds, ± the standard
  deviation, and in brackets how many seeds have run.
- **A configuration** is chosen on the validation split with the first seed.
- **A difference** has its 95 % interval: a paired bootstrap over test examples and, where several seeds have run, over
  these too. One seed says nothing about another. One in twenty of such intervals is expected to miss; other draws than
  these 1,000 move its ends by about a twentieth of its width.
- **`--`** marks rows without a finished run. What a paper reports, on its own data and vectors, is in separate rows.
- **Training times** are rough, since other jobs shared the machine. Parameters include those that are not trained,
  such as frozen embeddings and sinusoidal positions.

## How to repeat a number

    OMP_NUM_THREADS=1 python experiments/reproduce.py {table} --data DATA --only TASK/SETTING/SYSTEM --seeds N \\
        --results again --work outputs/again

Add `--configuration N` where validation chose one: it is below each such table. Digits depend on the number of
threads, the CPU's instructions and the version of the code, and training amplifies such differences: processors with
AVX-512 use AVX2 here, and each line names its threads and its commit. Where there is a GPU, `--launch cpu` repeats
what ran without one.

## All tables

The score of the system that a table compares the others with, the highest test score among the others, and the
former minus the latter.

"""
READ = "[How to read and repeat these numbers](../results.md).\n"

# Folder of the tables' pages.
PAGES = "pages"
SUMMATION = "masked_summation"
# Marks runs of an unknown commit.
EARLY = "†"
EARLY_NOTE = f"{EARLY} Includes a run of an unknown commit: today's code may give other digits."
GPU_NOTE = (
    f"{ON_GPU} Includes a run on a GPU, which `experiments/results/` names: a CPU gives other digits. "
    "Where others ran on a CPU, only these are timed."
)
# End the names of further columns: test rows that do not occur in train, another score of the same counts.
REPEATED = ", rows not in train"
EXACT = ", exact match"
CHRF = ", chrF"
# Metric of a task -> its further column, and the metric of that column.
FURTHER = {"answer_f1": (EXACT, "answer_em"), "bleu": (CHRF, "chrf")}
# A wider table is transposed.
MOST_COLUMNS = 8
TEACHER = "teacher"  # its name among the systems whose speed was measured


class Cell:
    """The finished runs of one system on one task in one setting, with the configuration that validation chose."""

    def __init__(self, finished: FinishedRuns, configurations: list[Configuration]):
        self.cell = configurations[0].cell
        self.chosen = finished.best(configurations)
        self.split = finished.table.split
        self.seeds: list[int] = []
        self.runs: list[dict[str, Any]] = []
        for seed in finished.table.seeds_of(self.chosen.system) if self.chosen is not None else []:
            run = finished.read(self.chosen, seed)
            if run is not None:
                self.seeds.append(seed)
                self.runs.append(run)
        environments = [run.get("environment", {}) for run in self.runs]
        launched = {tuple(each.get(name, usual) for name, usual in USUAL.items()) for each in environments}
        if len(launched) > 1:
            raise UserError(
                f"The runs of {self.cell} were launched with different {' and '.join(USUAL)}: "
                f"{sorted(launched)}. Delete those of one kind, or keep them apart: --results NAME"
            )

    def of_seeds(self, seeds: list[int]) -> "Cell":
        """The runs with some of the seeds."""
        cell = copy.copy(self)
        pairs = [(seed, run) for seed, run in zip(self.seeds, self.runs, strict=True) if seed in seeds]
        cell.seeds, cell.runs = [seed for seed, _ in pairs], [run for _, run in pairs]
        return cell

    @property
    def scores(self) -> list[float]:
        """The score of each run."""
        return [run[self.split] for run in self.runs]

    @property
    def counts(self) -> list[np.ndarray]:
        """`[examples, k]` of each run."""
        if not all("counts" in run for run in self.runs):
            raise UserError(
                f"A run of {self.cell} has no counts, since validation chose another configuration once. Delete its "
                "line to run it again."
            )
        return [read_counts(run["counts"]) for run in self.runs]

    def without_repeated(self, metric: str) -> "Cell":
        """The runs that know which test rows occur in train, scored on the others."""
        cell = self.of_seeds([seed for seed, run in zip(self.seeds, self.runs, strict=True) if "repeated" in run])
        pairs = list(zip(cell.runs, cell.counts, strict=True))
        rows = [np.delete(counts, run["repeated"], axis=0) for run, counts in pairs]
        cell.runs = [
            {**run, "test": score_counts(metric, counts), "counts": write_counts(counts)}
            for run, counts in zip(cell.runs, rows, strict=True)
        ]
        return cell

    def scored_by(self, metric: str) -> "Cell":
        """The same runs, scored by another metric of the same counts."""
        cell = copy.copy(self)
        pairs = zip(self.runs, self.counts, strict=True)
        cell.runs = [{**run, "test": score_counts(metric, counts)} for run, counts in pairs]
        return cell

    @property
    def has_repeated(self) -> bool:
        """Whether a test row occurs in train."""
        return any(run.get("repeated") for run in self.runs)

    @property
    def is_early(self) -> bool:
        """Whether no commit contains the code of a run: early ones have none, nor do those of modified code."""
        commits = [run.get("environment", {}).get("commit") for run in self.runs]
        return any(commit is None or commit.endswith("-dirty") for commit in commits)

    @property
    def on_gpu(self) -> bool:
        """Whether a run was made on a GPU."""
        return any(map(ran_on_gpu, self.runs))

    def __str__(self) -> str:
        return summary(self.scores) + marks([self])


Cells = dict[tuple[str, str], Cell]  # by column and system
Intervals = dict[tuple[str, str], Interval]


def marks(cells: list[Cell]) -> str:
    """The marks of some cells, each after a space."""
    shown = {EARLY: any(cell.is_early for cell in cells), ON_GPU: any(cell.on_gpu for cell in cells)}
    return "".join(f" {mark}" for mark, applies in shown.items() if applies)


@dataclass(frozen=True)
class SettingResults:
    """The cells of a setting that has a finished run, and how far each reference system is ahead of the others."""

    setting: str
    cells: Cells
    differences: dict[str, Intervals]

    @property
    def columns(self) -> list[str]:
        """The columns with a run."""
        return list(dict.fromkeys(column for (column, _), cell in self.cells.items() if cell.runs))


def write_page(tables: Path, results: Path, page: Path) -> None:
    """Write the page of each table that has a finished run, in `PAGES` beside `page`."""
    begun = list(Table.begun(tables, results))
    others = [name for name in (SUMMATION, "peers", "tfidf_vote") if (results / f"{name}.jsonl").is_file()]
    if not begun and not others:
        raise UserError(
            f"{results} holds no finished run of a table in {tables}, and nothing is written. Name its folder and its "
            "table: reproduce.py MINE.yaml --results FOLDER --page"
        )
    arguments = [table.argument for table in begun]
    one = arguments[0] if len(begun) == 1 else "TABLE"
    # A page of the project's own tables holds all of them.
    made_by = " --page" if all(table.argument == table.name for table in begun) else f" {one}"
    rows = []
    for table in begun:
        settings = read_settings(table, results)
        text = "\n".join(table_sections(table, settings, results))
        write_text(page.parent / PAGES / f"{table.name}.md", text + _notes(text))
        rows += _without_repetition([row for setting in settings for row in _summary(table, setting)])
    for path in set(tables.glob("*.y*ml")) - {table.path for table in begun}:
        (page.parent / PAGES / f"{path.stem}.md").unlink(missing_ok=True)
    text = INTRODUCTION.format(made_by=made_by, results=results.as_posix(), table=one)
    if rows:
        heads = ["table", "embeddings", "data", "system", "highest of the others", "difference"]
        text += markdown_table(heads, rows) + "\n"
    if SUMMATION in others:
        masked_summation.write_report(results / f"{SUMMATION}.jsonl", page.parent / SUMMATION)
        text += f"\nMasked summation, Table 6 and Figure 3: [its page]({SUMMATION}/results.md).\n"
    if "peers" in others:
        sections = peers.sections(RunFile(results / "peers.jsonl").read_all())
        write_text(page.parent / PAGES / "peers.md", "\n".join(sections))
        text += f"\nOther packages on the same files: [their page]({PAGES}/peers.md).\n"
    if "tfidf_vote" in others:
        write_text(page.parent / PAGES / "tfidf_vote.md", "\n".join(ensembles.page_sections(results)) + "\n")
        text += f"\nEnsembles of TF-IDF and an encoder: [their page]({PAGES}/tfidf_vote.md).\n"
        text += f"\nClosed studies: [notes]({PAGES}/notes.md).\n"
    write_text(page, text + _notes(text))


def _notes(text: str) -> str:
    """What the marks in a text mean."""
    return "".join(f"\n{note}\n" for mark, note in {EARLY: EARLY_NOTE, ON_GPU: GPU_NOTE}.items() if mark in text)


def read_settings(table: Table, results: Path) -> list[SettingResults]:
    """The settings of a table that have a finished run."""
    cells = {setting: read_cells(table, setting, results) for setting in table.settings}
    return [
        SettingResults(setting, each, {against: intervals(table, each, against) for against in table.against})
        for setting, each in cells.items()
        if any(cell.runs for cell in each.values())
    ]


def _summary(table: Table, of_setting: SettingResults) -> Iterator[list[str]]:
    """A row for each mean over tasks, or else for each task."""
    cells, averages = of_setting.cells, _averages(table, of_setting.cells)
    for column in averages or [column for column in of_setting.columns if column in table.tasks]:
        tasks = averages.get(column, [column])
        scores = {system: _mean_scores(tasks, system, cells) for system in table.systems}
        against = next((system for system in table.against if scores[system]), table.against[0])
        others = [system for system, of_system in scores.items() if of_system and system != against]
        best = max(others, key=lambda system: fmean(scores[system]), default=None)
        yield [
            f"[{table.title}]({PAGES}/{table.name}.md)",
            table.settings[of_setting.setting].title,
            column_title(table, column),
            *(
                f"{table.systems[system].title} {summary(scores[system])}" if system and scores[system] else "--"
                for system in (against, best)
            ),
            _difference(of_setting.differences[against], cells, column, tasks, best, against) if best else "--",
        ]


def _without_repetition(rows: list[list[str]]) -> list[list[str]]:
    """Rows whose first two cells are empty where the row before has the same."""
    before = [["", ""], *rows]
    return [
        [*("" if one == other else one for one, other in zip(row[:2], above[:2], strict=True)), *row[2:]]
        for row, above in zip(rows, before, strict=False)
    ]


def table_sections(table: Table, settings: list[SettingResults], results: Path) -> Iterator[str]:
    """The Markdown of one table."""
    yield f"# {table.title}\n\n{table.about.strip()}\n"
    yield READ
    yield from _prerequisites(table, results)
    for of_setting in settings:
        setting, cells, columns = of_setting.setting, of_setting.cells, of_setting.columns
        yield f"## {table.settings[setting].title}\n"
        tasks = [column for column in columns if column in table.tasks]
        averages = _averages(table, cells)
        yield from _scores_and_differences(
            table, [c for c in columns if not c.endswith(REPEATED)], averages, of_setting
        )
        # Other scores of the same runs cost nothing.
        costs = [_cost(table, system, tasks, cells) for system in table.systems if _has_run(system, cells)]
        yield _table("parameters, training minutes", [column_title(table, task) for task in tasks], costs)
        yield from _configurations(table, setting, tasks, cells, results)
        if of_setting.differences[table.against[0]]:
            title = f"Differences, {table.settings[setting].title}"
            yield f"![{title}](../pictures/{picture_name(table, setting)})\n"
        repeated = [column for column in columns if column.endswith(REPEATED)]
        if repeated:
            yield f"### Test rows that do not occur in train, {table.settings[setting].title}\n"
            yield from _scores_and_differences(table, repeated, {}, of_setting)
    yield from _speed(table, results)
    if table.notes:
        yield f"{table.notes.rstrip()}\n"


def _scores_and_differences(
    table: Table, columns: list[str], averages: dict[str, list[str]], of_setting: SettingResults
) -> Iterator[str]:
    """The scores in some columns and means, and the differences in them."""
    cells = of_setting.cells
    titles = [column_title(table, column).removesuffix(REPEATED) for column in (*columns, *averages)]
    systems = [system for system in table.systems if _has_run(system, cells)]
    rows = [_scores(table, system, columns, averages, cells) for system in systems]
    yield _table("", titles, rows + list(_paper(table, columns, averages)))
    yield from _differences(table, columns, averages, of_setting)


def _has_run(system: str, cells: Cells) -> bool:
    return any(cell.runs for (_, name), cell in cells.items() if name == system)


def _prerequisites(table: Table, results: Path) -> Iterator[str]:
    """The models that were trained before the table's runs, with the first of their scores."""
    finished, rows = FinishedRuns(table, results), []
    for name, prerequisite in table.prerequisites.items():
        stored = finished.read_prerequisite(name)
        if stored is None:
            continue
        on_test = stored.get("test_scores", {})
        shown = [score for score in on_test if score in ("f1", "pearson") and "precision" in on_test] or [
            *stored["scores"]
        ]
        scores = [f"{score.replace('_', ' ')} {stored['scores'][score]:.4g}" for score in shown[:2]]
        speed, minutes = stored["tokens_per_second"], training_minutes([stored]).removeprefix(", ")
        rows.append(
            [
                f"{prerequisite.title} (`before/{name}`)",
                f"`{prerequisite.script}`, `{prerequisite.recipe}.yaml`",
                ", ".join(scores),
                ", ".join(f"{on_test[score]:.4g}" for score in shown[:2] if score in on_test) or "--",
                f"{stored['parameters'] / 1e6:.2f} M",
                minutes or "--",
                "--" if speed is None else f"{speed:,.0f}",
            ]
        )
    if rows:
        heads = ["model", "script and recipe", "validation", "test", "parameters", "minutes", "tokens a second"]
        yield "## Models trained before\n"
        yield f"Arguments, all scores and losses are in `{finished.file.path.as_posix()}`, by the name in brackets.\n"
        yield markdown_table(heads, rows) + "\n"


def read_speeds(table: Table, results: Path, task: str) -> dict[str, dict[str, float]]:
    """Texts per second by `SETTING/SYSTEM`, or TEACHER, and batch size; empty if nothing was measured."""
    run = FinishedRuns(table, results).file.read(f"speed/{task}")
    return {} if run is None else run["texts_per_second"]


def _speed(table: Table, results: Path) -> Iterator[str]:
    """The Markdown of the measured speeds: a table, and the plot."""
    tasks = {task: speeds for task in table.tasks if (speeds := read_speeds(table, results, task))}
    if not tasks:
        return
    yield "## Speed\n"
    yield (
        "Texts of the test split per second on two threads, one by one / in batches of 32 of like length, "
        "tokenization and the grouping of tags included. `reproduce.py --speed` of commit ac87bc8 measured them (runs "
        "`speed/TASK` of the file).\n"
    )
    names = dict.fromkeys(name for speeds in tasks.values() for name in speeds)
    rows = [[system_title(table, name), *(_pair(speeds.get(name)) for speeds in tasks.values())] for name in names]
    yield _table("", [table.tasks[task].title for task in tasks], rows)
    yield f"![Scores over speed](../pictures/{picture_name(table, 'speed')})\n"  # drawn by the same commit


def system_title(table: Table, name: str) -> str:
    """The title of `SETTING/SYSTEM`, or of the teacher."""
    return "the teacher" if name == TEACHER else table.systems[name.split("/")[1]].title


def _pair(speed: dict[str, float] | None) -> str:
    return " / ".join(f"{speed[size]:,.0f}" for size in ("1", "32")) if speed else "--"


def picture_name(table: Table, part: str) -> str:
    """The picture's file of a setting with differences, or of the speeds."""
    return f"results_{table.name}_{part}.png"


def column_title(table: Table, column: str) -> str:
    """The title of a task, of its further column, or of a mean over tasks."""
    if column in table.averages:
        return column
    task = _task(column)
    return table.tasks[task].title + column.removeprefix(task)


def _averages(table: Table, cells: Cells) -> dict[str, list[str]]:
    """The tasks of each mean, by its title: those of `averages` of which any system has a run."""
    begun = {column for (column, _), cell in cells.items() if cell.runs}
    means: dict[str, list[str]] = {}
    for title, names in table.averages.items():
        tasks = [task for task in (table.tasks if names is None else names) if task in begun]
        if tasks and tasks not in means.values():
            means[title] = tasks
    return means


def _table(corner: str, columns: list[str], rows: list[list[str]]) -> str:
    """A table whose rows begin with their title, transposed where it would be too wide."""
    cells = [[corner, *columns], *rows]
    if len(columns) > MOST_COLUMNS:
        cells = [list(column) for column in zip(*cells, strict=True)]
    return markdown_table(cells[0], cells[1:]) + "\n"


def read_cells(table: Table, setting: str, results: Path) -> Cells:
    """The cells of a setting, by column and system."""
    cells: Cells = {}
    for name, task in table.tasks.items():
        row: dict[str, Cell] = {}
        for system in table.systems:
            configurations = table.configurations(name, setting, system)
            if configurations:
                row[system] = cells[name, system] = Cell(FinishedRuns(table, results), configurations)
        if table.split != "test":
            continue  # further columns are made of the test rows
        _check_same_rows(f"{table.name}/{name}/{setting}", row)
        if task.repeated is not None and any(cell.has_repeated for cell in row.values()):
            cells |= {(name + REPEATED, system): cell.without_repeated(task.metric) for system, cell in row.items()}
        if task.metric in FURTHER:
            column, metric = FURTHER[task.metric]
            cells |= {(name + column, system): cell.scored_by(metric) for system, cell in row.items()}
    return cells


def _check_same_rows(place: str, cells: dict[str, Cell]) -> None:
    """Raise UserError where runs of a task in a setting were measured on different test rows."""
    runs = [
        (f"{system}, seed {seed}", run)
        for system, cell in cells.items()
        for seed, run in zip(cell.seeds, cell.runs, strict=True)
    ]
    for name, run in runs[1:]:
        first_name, first = runs[0]
        if are_of_other_rows(first, run):
            raise UserError(
                f"{place}: {first_name}, and {name}, were measured on different test rows ({count_rows(first)} and "
                f"{count_rows(run)}). Delete the runs on other data, or keep them apart: --results NAME"
            )


def _task(column: str) -> str:
    """The task of a column."""
    return column.removesuffix(REPEATED).removesuffix(EXACT).removesuffix(CHRF)


def _metric(table: Table, column: str) -> str:
    """The metric of a column."""
    metric = table.tasks[_task(column)].metric
    suffix, further = FURTHER.get(metric, ("", ""))
    return further if suffix and column.endswith(suffix) else metric


def _scores(table: Table, system: str, columns: list[str], averages: dict[str, list[str]], cells: Cells) -> list[str]:
    row = [table.systems[system].title, *(str(cells.get((column, system), "--")) for column in columns)]
    for tasks in averages.values():
        row.append(summary(_mean_scores(tasks, system, cells)) + marks(_averaged(tasks, system, cells)))
    return row


def _mean_scores(tasks: list[str], system: str, cells: Cells) -> list[float]:
    """A system's mean over tasks, for each seed that all of them have."""
    return [fmean(scores) for scores in zip(*(cell.scores for cell in _averaged(tasks, system, cells)), strict=True)]


def mean_of_cells(tasks: list[str], system: str, cells: Cells) -> tuple[str, str]:
    """A system's mean over tasks and its parameters, as model cards have them."""
    return summary(_mean_scores(tasks, system, cells)), f"{cells[tasks[0], system].runs[0]['parameters'] / 1e6:.2f} M"


def _averaged(tasks: list[str], system: str, cells: Cells) -> list[Cell]:
    """A system's cells of some tasks, with the seeds that all of them have; empty where there is none."""
    row = [cells[task, system] for task in tasks if (task, system) in cells]
    common = [seed for seed in row[0].seeds if all(seed in cell.seeds for cell in row)] if row else []
    return [cell.of_seeds(common) for cell in row] if len(row) == len(tasks) and common else []


def _paper(table: Table, columns: list[str], averages: dict[str, list[str]]) -> Iterator[list[str]]:
    """The paper's scores, a row for each system that it has; its average is over the same tasks as ours."""
    for system, scores in table.paper.items():
        numbers = [scores.get(column) for column in columns]
        for tasks in averages.values():
            averaged = [scores.get(task) for task in tasks]
            known = [score for score in averaged if score is not None]
            numbers.append(fmean(known) if len(known) == len(averaged) else None)
        if any(number is not None for number in numbers):
            title = f"{table.systems[system].title}, the paper's"
            yield [title, *("--" if number is None else f"{number:.1f}" for number in numbers)]


def intervals(table: Table, cells: Cells, against: str) -> Intervals:
    """How far the system `against` is ahead, by column and system; of a mean over tasks under its title."""
    ahead: Intervals = {}
    if table.split != "test":
        return ahead
    for (column, system), other in cells.items():
        one = cells.get((column, against))
        if system != against and one is not None and one.runs and other.runs:
            ahead[column, system] = bootstrap_counts(_metric(table, column), one.counts, other.counts)
    for title, tasks in _averages(table, cells).items():
        for system in table.systems:
            both = [_averaged(tasks, name, cells) for name in (against, system)]
            if system != against and all(both):
                metrics = [table.tasks[task].metric for task in tasks]
                counts = [[cell.counts for cell in row] for row in both]
                ahead[title, system] = bootstrap_mean(list(zip(metrics, *counts, strict=True)))
    return ahead


def _differences(
    table: Table, columns: list[str], averages: dict[str, list[str]], of_setting: SettingResults
) -> Iterator[str]:
    """For each reference system a row for each other system; a pair of references is shown once."""
    for number, (against, ahead) in enumerate(of_setting.differences.items()):
        pairs = [(column, system) for column, system in ahead if system not in table.against[:number]]
        shown = {column: [column] for column in columns} | averages
        shown = {column: tasks for column, tasks in shown.items() if any(column == name for name, _ in pairs)}
        others = {system for column, system in pairs if column in shown}
        rows = [
            [
                table.systems[system].title,
                *(
                    _difference(ahead, of_setting.cells, column, tasks, system, against)
                    for column, tasks in shown.items()
                ),
            ]
            for system in table.systems
            if system in others
        ]
        if rows:
            titles = [column_title(table, column).removesuffix(REPEATED) for column in shown]
            yield _table(f"{table.systems[against].title} minus", titles, rows)


def _difference(ahead: Intervals, cells: Cells, column: str, tasks: list[str], system: str, against: str) -> str:
    """One difference, with the marks of both systems' runs of its tasks."""
    if (column, system) not in ahead:
        return "--"
    difference, low, high = (100 * number for number in ahead[column, system])
    both = [cells[task, name] for task in tasks for name in (system, against)]
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]{marks(both)}"


def _cost(table: Table, system: str, tasks: list[str], cells: Cells) -> list[str]:
    row = [table.systems[system].title]
    for task in tasks:
        runs = cells[task, system].runs if (task, system) in cells else []
        row.append(f"{runs[0]['parameters'] / 1e6:.2f} M{training_minutes(runs)}" if runs else "--")
    return row


def _configurations(table: Table, setting: str, tasks: list[str], cells: Cells, results: Path) -> Iterator[str]:
    """Where systems have several configurations: the chosen ones, and the cost of all together."""
    finished = FinishedRuns(table, results)
    choices, runs = [], []
    for system in table.systems:
        chosen: dict[str, list[str]] = {}
        for task in tasks:
            configurations = table.configurations(task, setting, system)
            stored = (finished.read(each, seed) for each in configurations for seed in table.seeds)
            runs += [run for run in stored if run]
            cell = cells.get((task, system))
            if len(configurations) > 1 and cell is not None and cell.runs and cell.chosen is not None:
                grid = table.grid(setting, system)[cell.chosen.number]
                values = ", ".join(f"{name} {value}" for name, value in grid.items())
                chosen.setdefault(f"{cell.chosen.number} ({values})", []).append(column_title(table, task))
        for name, titles in chosen.items():
            choices.append([table.systems[system].title, name, "all" if len(chosen) == 1 else ", ".join(titles)])
    if choices:
        minutes = sum(run["training_seconds"] or 0 for run in runs) / 60
        on_gpu = sum(map(ran_on_gpu, runs))
        yield (
            f"Configurations that validation chose (`--configuration N` runs one alone). All {len(runs)} runs, those "
            f"of the others included, trained for {minutes:,.0f} minutes"
            + (f", {on_gpu} of the runs on a GPU.\n" if on_gpu else ".\n")
        )
        yield markdown_table(["system", "configuration", "of"], choices) + "\n"
