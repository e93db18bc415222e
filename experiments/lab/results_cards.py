"""
model_cards/*.md, one for each encoder of this package that has a finished run, made from results/ and configuration/
alone, as experiments/results.md and its pages are.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import translation.task  # noqa: F401  # adds the families of translators
from huggingface_hub import ModelCardData

from lab.launching import ran_on_gpu
from lab.masked_summation_page import SavedRuns, command_again, error_cell
from lab.results_page import EARLY_NOTE, GPU_NOTE, SUMMATION_RUNS, Cell, read_cells
from lab.tables import Table
from modeling_star.evaluation.reports import markdown_table
from modeling_star.files import write_text
from modeling_star.publish.model_card import FAMILIES


_TEXT = """---
{metadata}
---

# {name}: what it reached

A {family}.

> **No weights are published with this card.** A line's models are trained and measured again by
> `OMP_NUM_THREADS={threads} python experiments/reproduce.py RUNS --data DATA --results again --work outputs/again`,
> where RUNS is in its last cell, and DATA is a folder with one folder for each data set: train, validation and
> test .jsonl.gz (docs/data.md).

## Results

Scores of the test split in percent: the mean over seeds, ± the deviation, and in brackets how many seeds have run.
[{page}]({link}) links the pages that have them beside other systems, with the intervals of the differences.

{results}
{summation}
The arguments of each run, its versions and what each test example added to its score are kept in
`{kept_in}/TABLE.jsonl`. {where}

## Limits

- Small models, each trained on one data set: expect other scores on other text.
- A deviation is that of a few seeds; a difference smaller than its interval is none.
{limits}"""


@dataclass(frozen=True)
class _Line:
    """One cell of a table: a system of the family on a task in a setting."""

    table: Table
    task: str
    setting: str
    system: str
    cell: Cell

    @property
    def threads(self) -> int:
        """CPU threads of its runs."""
        return self.cell.runs[0]["environment"]["threads"]


def write_cards(tables: Path, results: Path, folder: Path, page: Path) -> list[Path]:
    """
    Write the cards of all encoders that have a finished run, and remove those of encoders that have none.

    Args:
        tables: folder of the tables' files.
        results: folder of the finished runs.
        folder: where the cards go, each named after its encoder's model_type.
        page: of all tables, which the cards link.

    Returns:
        The files written.
    """
    families: dict[str, list[_Line]] = {}
    for table in Table.begun(tables, results):
        for line in _lines(table, results):
            families.setdefault(_model_type(line) or "", []).append(line)
    summation = SavedRuns(results / SUMMATION_RUNS) if (results / SUMMATION_RUNS).is_file() else None
    written = []
    for model_type in sorted(FAMILIES):
        path = folder / f"{model_type.replace('_', '-')}.md"
        if model_type in families:
            written.append(write_text(path, _card(model_type, families[model_type], summation, results, path, page)))
        else:  # its runs were deleted
            path.unlink(missing_ok=True)
    return written


def _model_type(line: _Line) -> str | None:
    """
    The model type of a line, by the arguments of the run that began with fresh weights: the line's run, or that of a
    prerequisite. `None` where no file here defines it, as of a saved model from elsewhere.
    """
    arguments = line.cell.chosen.arguments if line.cell.chosen else {}
    begun_from = str(arguments.get("model_name_or_path")).removeprefix("$")
    if begun_from in line.table.prerequisites:
        arguments = line.table.prerequisite_arguments(begun_from)
    config = Path(arguments.get("config_name", ""))
    for path in (config, config / "config.json"):
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8")).get("model_type")
    return arguments.get("model_type")


def _lines(table: Table, results: Path) -> Iterator[_Line]:
    """The lines of a table with runs; none where it reports validation scores."""
    for setting in table.settings if table.split == "test" else ():
        for (task, system), cell in read_cells(table, setting, results).items():
            if cell.runs and task in table.tasks:
                yield _Line(table, task, setting, system, cell)


def _row(line: _Line, threads: int) -> list[str]:
    """A line's titles, score and size, and the arguments of reproduce.py that run it alone."""
    table = line.table
    parts = [table.argument, f"--only {line.task}/{line.setting}/{line.system}"]
    if line.cell.chosen and len(table.configurations(line.task, line.setting, line.system)) > 1:
        parts.append(f"--configuration {line.cell.chosen.number}")
    runs = f"`{' '.join([*parts, '--seeds', *map(str, line.cell.seeds)])}`"
    return [
        ": ".join([*filter(None, [table.collection]), table.tasks[line.task].title]),
        table.settings[line.setting].title,
        table.systems[line.system].title,
        str(line.cell),
        f"{line.cell.runs[0]['parameters'] / 1e6:.2f} M",
        runs + ("" if line.threads == threads else f", OMP_NUM_THREADS={line.threads}"),
    ]


def _summation(runs: list[dict[str, Any]], saved: SavedRuns | None) -> str:
    """The family's scores at masked summation, and the commands; empty where it has no run."""
    places = sorted({(run["length"], run["system"]) for run in runs})
    if saved is None or not places:
        return ""
    rows = []
    for length, system in places:
        of_place = saved.of(system, length)
        rows.append([system, f"n = {length}", error_cell(of_place), f"`{command_again(of_place[0])}`"])
    table = markdown_table(["system", "vectors", "test MSE", "command"], rows)
    return f"\nMasked summation (`experiments/results/{SUMMATION_RUNS}`):\n\n{table}\n"


def _card(model_type: str, lines: list[_Line], saved: SavedRuns | None, results: Path, path: Path, page: Path) -> str:
    threads = lines[0].threads
    summation = [run for run in saved.runs if run["config"].get("model_type") == model_type] if saved else []
    runs = [*(run for line in lines for run in line.cell.runs), *summation]
    machines = {tuple(run["environment"][name] for name in ("device", "torch", "threads")) for run in runs}
    where = ", or on ".join(
        f"{'a CPU' if device == 'cpu' else device} with torch {torch} and OMP_NUM_THREADS={number}"
        for device, torch, number in sorted(machines, key=lambda machine: (machine[0] != "cpu", machine))
    )
    marks = {EARLY_NOTE: any(line.cell.is_early for line in lines), GPU_NOTE: any(map(ran_on_gpu, runs))}
    title = f"{page.parent.name}/{page.name}"
    repeated = any(line.cell.has_repeated for line in lines)
    # Without scores in the metadata: they would be those of weights, which are not published.
    metadata = ModelCardData(license="apache-2.0", library_name="transformers", tags=[model_type.replace("_", "-")])
    heads = ["data", "embeddings", "system", "score", "parameters", "RUNS"]
    return _TEXT.format(
        metadata=metadata.to_yaml(),
        kept_in=results.as_posix(),
        threads=threads,
        name=re.split(r" \(|, ", FAMILIES[model_type])[0],
        family=FAMILIES[model_type],
        page=title,
        link=Path(os.path.relpath(page, path.parent)).as_posix(),
        results=markdown_table(heads, [_row(line, threads) for line in lines]),
        summation=_summation(summation, saved),
        where="\n\n".join([f"All ran on {where}.", *(note for note, marked in marks.items() if marked)]),
        limits="- Some test rows occur in train too; the pages have the scores without them.\n" if repeated else "",
    )
