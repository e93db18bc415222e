"""The pictures of the pages: differences of a table's first reference system to the others, and scores over speed."""

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

from harness.results_page import (
    TEACHER,
    FinishedRuns,
    column_title,
    intervals,
    picture_name,
    read_cells,
    read_speeds,
    system_title,
)
from harness.tables import Table
from modeling_star.evaluation.reports import new_figure, save_figure


def write_pictures(tables: Path, results: Path, folder: Path) -> list[Path]:
    """Draw the differences of every setting that has any, a mark for the difference, a line for its 95 % interval."""
    begun = list(Table.begun(tables, results))
    made = [_draw(table, setting, results, folder) for table in begun for setting in table.settings]
    made += [_draw_speed(table, results, folder) for table in begun]
    return [picture for picture in made if picture is not None]


def _draw(table: Table, setting: str, results: Path, folder: Path) -> Path | None:
    differences = intervals(table, read_cells(table, setting, results), table.against[0])
    if not differences:
        return None
    tasks = list(dict.fromkeys(task for task, _ in differences))
    systems = [system for system in table.systems if any(place[1] == system for place in differences)]
    height_of_task = len(systems) + 1
    figure, (axis,) = new_figure(7.0, 1.4 + 0.16 * len(tasks) * height_of_task)
    for number, system in enumerate(systems):
        ends = [
            (row * height_of_task + number, differences[task, system])
            for row, task in enumerate(tasks)
            if (task, system) in differences
        ]
        values = [100 * one.difference for _, one in ends]
        below = [100 * (one.difference - one.low) for _, one in ends]
        above = [100 * (one.high - one.difference) for _, one in ends]
        axis.errorbar(
            values,
            [height for height, _ in ends],
            xerr=[below, above],
            fmt="o",
            markersize=4,
            capsize=2,
            label=table.systems[system].title,
        )
    axis.axvline(0.0, color="black", linewidth=0.8)
    axis.set_yticks(
        [row * height_of_task + (len(systems) - 1) / 2 for row in range(len(tasks))],
        [column_title(table, t) for t in tasks],
    )
    axis.set_ylim(len(tasks) * height_of_task - 1, -1)
    axis.set_xlabel(f"{table.systems[table.against[0]].title} minus the other, in points")
    axis.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside lower center", fontsize="small", frameon=False)  # beside long names it leaves no place
    title = f"{table.title}, {table.settings[setting].title}"
    return save_figure(figure, folder / picture_name(table, setting), title)


def _draw_speed(table: Table, results: Path, folder: Path) -> Path | None:
    """Draw the mean score of each measured system over its texts per second, a panel for each task."""
    panels = [(task, points) for task in table.tasks if (points := list(_points(table, results, task)))]
    if not panels:
        return None
    figure, axes = new_figure(4.2 * len(panels) + 2.8, 3.8, columns=len(panels))
    names = list(dict.fromkeys(name for _, points in panels for name, _, _ in points))
    markers = "o^sDvPX<>*hp"
    for axis, (task, points) in zip(axes, panels, strict=True):
        for name, speed, score in points:
            number = names.index(name)
            axis.scatter([speed], [100 * score], marker=markers[number % len(markers)], color=f"C{number % 10}", s=45)
        axis.set_xscale("log")
        axis.set_xlabel("texts per second, batches of 32")
        axis.set_ylabel(table.tasks[task].metric.replace("_", " "))
        axis.set_title(table.tasks[task].title, fontsize=10)
        axis.grid(alpha=0.3)
    for number, name in enumerate(names):
        style = {"marker": markers[number % len(markers)], "color": f"C{number % 10}"}
        axes[-1].plot([], [], linestyle="", label=system_title(table, name), **style)
    axes[-1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False)
    return save_figure(figure, folder / picture_name(table, "speed"), None)


def _points(table: Table, results: Path, task: str) -> Iterator[tuple[str, float, float]]:
    """Name, texts per second and mean score of each system with both."""
    speeds = read_speeds(table, results, task)
    if not speeds:
        return
    scores: dict[str, float] = {}
    for setting in table.settings:
        for (column, system), cell in read_cells(table, setting, results).items():
            if column == task and cell.runs:
                scores[f"{setting}/{system}"] = fmean(cell.scores)
    teacher = table.tasks[task].arguments.get(TEACHER, "")[1:]
    if teacher in table.prerequisites:
        stored = FinishedRuns(table, results).read_prerequisite(teacher) or {}
        metric = table.tasks[task].metric.removeprefix("entity_")
        if metric in stored.get("test_scores", {}):
            scores[TEACHER] = stored["test_scores"][metric]
    for name, speed in speeds.items():
        if name in scores:
            yield name, speed["32"], scores[name]
