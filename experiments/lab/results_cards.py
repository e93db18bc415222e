"""
model_cards/*.md, one for each encoder of this package that has a finished run: all it reached, made from results/ and
configuration/ alone, as experiments/results.md is.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from huggingface_hub import ModelCardData

from lab.launching import ran_on_gpu
from lab.masked_summation_page import SavedRuns, command_again, error_cell
from lab.results_page import EARLY_NOTE, GPU_NOTE, SUMMATION, Cell, read_cells
from lab.tables import Table
from modeling_star.evaluation.reports import markdown_table, write_text
from modeling_star.training.model_card import FAMILIES


_TEXT = """---
{metadata}
---

# {name}: what it reached

A {family}.

> **No weights are published with this card.** A line's models are trained and measured again by
> `OMP_NUM_THREADS={threads} python experiments/reproduce.py RUNS --data DATA --results again --work outputs/again`,
> where RUNS stands in its last cell, and DATA is a folder with one folder for each data set: train, validation and
> test .jsonl.gz (docs/data.md).

## Results

Scores of the test split in percent: the mean over seeds, ± the deviation, and in brackets how many seeds have run.
[{page}]({link}) has them beside other systems, with the intervals of the differences.

{results}
{summation}
The arguments of each run, its versions and what each test example added to its score are kept in
`{kept_in}/TABLE/TASK/SETTING/`. {where}

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
    def place(self) -> str:
        return f"{self.task}/{self.setting}/{self.system}"


def write_cards(tables: Path, results: Path, folder: Path, page: Path) -> list[Path]:
    """
    Write the cards of all encoders that have a finished run, and remove those of encoders that have none.

    Args:
        tables: folder of the tables' files.
        results: folder of the finished runs.
        folder: where the cards go, each named after its encoder's model_type.
        page: that of all tables, to which they link.

    Returns:
        The files written.
    """
    families: dict[str, list[_Line]] = {}
    told = (table for table in Table.begun(tables, results) if table.split == "test")
    for line in (line for table in told for line in _lines(table, results)):
        model_type = _model_type(line)
        if model_type in FAMILIES:
            families.setdefault(model_type, []).append(line)
    summation = SavedRuns(results / SUMMATION) if (results / SUMMATION).is_dir() else None
    paths = {model_type: folder / f"{model_type.replace('_', '-')}.md" for model_type in FAMILIES}
    for model_type in FAMILIES.keys() - families.keys():  # its runs were deleted
        paths[model_type].unlink(missing_ok=True)
    return [
        write_text(paths[model_type], _card(model_type, lines, summation, results, folder, page))
        for model_type, lines in sorted(families.items())
    ]


def _model_type(line: _Line) -> str | None:
    """
    What a line's models are, by the arguments of the run that began with fresh weights: its own, or that of the model
    which the table has trained before. `None` where no file here tells, as of another's saved model.
    """
    arguments = line.cell.chosen.arguments
    begun_from = str(arguments.get("model_name_or_path")).removeprefix("$")
    if begun_from in line.table.before:
        arguments = line.table.arguments_before(begun_from)
    config = Path(arguments.get("config_name", ""))
    for path in (config, config / "config.json"):
        if path.is_file():
            return json.loads(path.read_text(encoding="utf-8")).get("model_type")
    return arguments.get("model_type")


def _lines(table: Table, results: Path) -> Iterator[_Line]:
    for setting in table.content["settings"]:
        for (task, system), cell in read_cells(table, setting, results).items():
            if cell.runs and task in table.content["tasks"]:
                yield _Line(table, task, setting, system, cell)


def _runs_again(line: _Line, threads: int) -> str:
    """What reproduce.py is given for a line's runs and no others, and how many threads where they are others."""
    parts = [line.table.called, f"--only {line.place}"]
    if len(line.table.configurations(line.task, line.setting, line.system)) > 1:
        parts.append(f"--configuration {line.cell.chosen.number}")
    seeds = " ".join(map(str, line.cell.seeds))
    own = _threads(line)
    return f"`{' '.join(parts)} --seeds {seeds}`" + ("" if own == threads else f", OMP_NUM_THREADS={own}")


def _threads(line: _Line) -> int:
    return line.cell.runs[0]["environment"]["threads"]


def _summed(model_type: str, kept: SavedRuns | None) -> list[dict[str, Any]]:
    """The family's runs of masked summation."""
    return [] if kept is None else [run for run in kept.runs if run["config"].get("model_type") == model_type]


def _summation(runs: list[dict[str, Any]], kept: SavedRuns | None) -> str:
    """What the family reached at masked summation, and the commands; nothing where it has no run."""
    places = sorted({(run["length"], run["system"]) for run in runs})
    if kept is None or not places:
        return ""
    rows = [
        [
            system,
            f"n = {length}",
            error_cell(kept.of(system, length)),
            f"`{command_again(kept.of(system, length)[0])}`",
        ]
        for length, system in places
    ]
    heads = ["system", "vectors", "test MSE", "command"]
    return f"\nMasked summation (`experiments/results/{SUMMATION}/`):\n\n{markdown_table(heads, rows)}\n"


def _card(
    model_type: str, lines: list[_Line], summation: SavedRuns | None, results: Path, folder: Path, page: Path
) -> str:
    family = FAMILIES[model_type]
    name = re.split(r" \(|, ", family)[0]
    threads = _threads(lines[0])
    rows = []
    for line in lines:
        content = line.table.content
        size = f"{line.cell.runs[0]['parameters'] / 1e6:.2f} M"
        titles = (
            ": ".join([*filter(None, [content.get("collection")]), content["tasks"][line.task]["title"]]),
            content["settings"][line.setting]["title"],
            content["systems"][line.system]["title"],
        )
        rows.append([*titles, str(line.cell), size, _runs_again(line, threads)])
    heads = ["data", "embeddings", "system", "score", "parameters", "RUNS"]
    summed = _summed(model_type, summation)
    kept = (run["environment"] for run in [*(run for line in lines for run in line.cell.runs), *summed])
    machines = {(each["device"], each["torch"], each["threads"]) for each in kept}
    where = ", or on ".join(
        f"{'a CPU' if device == 'cpu' else device} with torch {torch} and OMP_NUM_THREADS={threads}"
        for device, torch, threads in sorted(machines, key=lambda machine: (machine[0] != "cpu", machine))
    )
    on_gpu = any(line.cell.on_gpu for line in lines) or any(map(ran_on_gpu, summed))
    marks = {EARLY_NOTE: any(line.cell.is_early for line in lines), GPU_NOTE: on_gpu}
    told = f"{page.parent.name}/{page.name}"
    repeated = any(line.cell.has_repeated for line in lines)
    limits = f"- Some test rows occur in train too; {told} has the scores without them.\n" if repeated else ""
    return _TEXT.format(
        metadata=_metadata(model_type).to_yaml(),
        kept_in=results.as_posix(),
        threads=threads,
        name=name,
        family=family,
        page=told,
        link=Path(os.path.relpath(page, folder)).as_posix(),
        results=markdown_table(heads, rows),
        summation=_summation(summed, summation),
        where="\n\n".join([f"All ran on {where}.", *(note for note, marked in marks.items() if marked)]),
        limits=limits,
    )


def _metadata(model_type: str) -> ModelCardData:
    """Without scores: those are of a model's weights, of which there are none, and of many models here."""
    tags = [model_type.replace("_", "-")]
    return ModelCardData(license="apache-2.0", library_name="transformers", tags=tags)


__all__ = ["write_cards"]
