"""
model_cards/*.md, one for each encoder of this package that has a finished run: all it reached, made from results/ and
configuration/ alone, as docs/results.md is.
"""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from huggingface_hub import EvalResult, ModelCardData

from .cards import FAMILIES, HUB_METRICS
from .experiment_runs import SCORES
from .experiments import Table
from .masked_summation_page import Kept, command_again, error_cell
from .reports import markdown_table, write_text
from .results_page import EARLY_NOTE, SUMMATION, Cell, read_cells


# Script -> the task's name on the Hub.
_HUB_TASKS = {
    "run_glue.py": "text-classification",
    "run_ner.py": "token-classification",
    "run_qa.py": "question-answering",
    "run_translation.py": "translation",
}

_TEXT = """---
{metadata}
---

# {name}: what it reached

A {family}.

> **No weights are published with this card.** Each line's command trains the models and measures them again; DATA is a
> folder with one folder for each data set: train, validation and test .jsonl.gz (docs/data.md).

## Results

Scores of the test split in percent: the mean over seeds, ± the deviation, and in brackets how many seeds have run.
[{page}]({link}) has them beside other systems, with the intervals of the differences.

{results}
{summation}
The arguments of each run, its versions and what each test example added to its score are kept in
`results/TABLE/TASK/SETTING/`. {where}

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
        config = line.cell.chosen.arguments.get("config_name")
        if config is not None:
            model_type = json.loads(Path(config).read_text(encoding="utf-8"))["model_type"]
            families.setdefault(model_type, []).append(line)
    summation = Kept(results / SUMMATION) if (results / SUMMATION).is_dir() else None
    paths = {model_type: folder / f"{model_type.replace('_', '-')}.md" for model_type in FAMILIES}
    for model_type in FAMILIES.keys() - families.keys():  # its runs were deleted
        paths[model_type].unlink(missing_ok=True)
    return [
        write_text(paths[model_type], _card(model_type, lines, summation, folder, page))
        for model_type, lines in sorted(families.items())
    ]


def _lines(table: Table, results: Path) -> Iterator[_Line]:
    for setting in table.content["settings"]:
        for (task, system), cell in read_cells(table, setting, results).items():
            if cell.runs and task in table.content["tasks"]:
                yield _Line(table, task, setting, system, cell)


def _command_again(line: _Line) -> str:
    """What makes a line's runs anew, and no others."""
    threads = line.cell.runs[0]["environment"]["threads"]
    script = f"python run_scripts/reproduce.py {line.table.name}"
    parts = [f"OMP_NUM_THREADS={threads} {script} --data DATA --only {line.place}"]
    if len(line.table.configurations(line.task, line.setting, line.system)) > 1:
        parts.append(f"--configuration {line.cell.chosen.number}")
    seeds = " ".join(map(str, line.cell.seeds))
    return " ".join([*parts, f"--seeds {seeds} --results again --work outputs/again"])


def _summation(model_type: str, kept: Kept | None) -> str:
    """What the family reached at masked summation, and the commands; nothing where it has no run."""
    runs = [] if kept is None else [run for run in kept.runs if run["config"].get("model_type") == model_type]
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
    return f"\nMasked summation (`results/{SUMMATION}/`):\n\n{markdown_table(heads, rows)}\n"


def _card(model_type: str, lines: list[_Line], summation: Kept | None, folder: Path, page: Path) -> str:
    family = FAMILIES[model_type]
    name = re.split(r" \(|, ", family)[0]
    rows = []
    for line in lines:
        content = line.table.content
        size = f"{line.cell.runs[0]['parameters'] / 1e6:.2f} M"
        titles = (
            content["tasks"][line.task]["title"],
            content["settings"][line.setting]["title"],
            content["systems"][line.system]["title"],
        )
        rows.append([*titles, str(line.cell), size, f"`{_command_again(line)}`"])
    heads = ["data", "embeddings", "system", "score", "parameters", "command"]
    kept = (run["environment"] for line in lines for run in line.cell.runs)
    machines = {(each["device"], each["torch"], each["threads"]) for each in kept}
    where = " and ".join(
        f"a {device.upper()} with torch {torch} and OMP_NUM_THREADS={threads}"
        for device, torch, threads in sorted(machines)
    )
    told = f"{page.parent.name}/{page.name}"
    repeated = any(line.cell.has_repeated for line in lines)
    limits = f"- Some test rows occur in train too; {told} has the scores without them.\n" if repeated else ""
    return _TEXT.format(
        metadata=_metadata(name, model_type, lines).to_yaml(),
        name=name,
        family=family,
        page=told,
        link=Path(os.path.relpath(page, folder)).as_posix(),
        results=markdown_table(heads, rows),
        summation=_summation(model_type, summation),
        where=f"All ran on {where}." + (f"\n\n{EARLY_NOTE}" if any(line.cell.is_early for line in lines) else ""),
        limits=limits,
    )


def _metadata(name: str, model_type: str, lines: list[_Line]) -> ModelCardData:
    results = [
        EvalResult(
            task_type=_HUB_TASKS[told["script"]],
            dataset_type=told["data"],
            dataset_name=told["title"],
            dataset_split="test",
            metric_type=HUB_METRICS.get(SCORES[told["metric"]], SCORES[told["metric"]]),
            metric_name=f"{told['metric']}, mean of {len(line.cell.runs)}, {line.place}",
            metric_value=round(fmean(line.cell.scores), 6),
        )
        for line in lines
        for told in [line.table.content["tasks"][line.task]]
    ]
    return ModelCardData(
        model_name=name,
        license="apache-2.0",
        library_name="transformers",
        tags=[model_type.replace("_", "-")],
        eval_results=results,
    )


__all__ = ["write_cards"]
