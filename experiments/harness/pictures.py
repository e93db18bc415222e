"""The pictures of the pages: differences of a table's first reference system to the others, with their intervals."""

from pathlib import Path

import peers

from harness.results_page import (
    column_title,
    intervals,
    picture_name,
    read_cells,
)
from harness.stored_runs import RunFile
from harness.tables import Table
from modeling_star.evaluation.reports import new_figure, save_figure


def write_pictures(tables: Path, results: Path, folder: Path) -> list[Path]:
    """Draw the differences of every setting that has any, a mark for the difference, a line for its 95 % interval."""
    begun = Table.begun(tables, results)
    made = [_draw(table, setting, results, folder) for table in begun for setting in table.settings]
    others = RunFile(results / "peers.jsonl").read_all("*/*-seed*")
    return [picture for picture in (*made, peers.draw(others, folder) if others else None) if picture is not None]


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
