"""Tables and figures of masked summation, made of the kept files alone: the same files give the same page."""

import csv
import io
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from lab.benchmark_report import fitted_slope
from lab.launching import ran_on_gpu
from lab.masked_summation import SYSTEMS
from lab.plots import plot_over_length
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import (
    BLUE,
    GREEN,
    ORANGE,
    markdown_table,
    write_text,
)
from modeling_star.training.checkpoints import differences


COLORS = {
    "star": BLUE,
    "star-no-radial": "#8a5fbf",
    "star-no-ring": "#2a9d9d",
    "vanilla": GREEN,
    "bilstm": ORANGE,
    "lstm": "#c2453d",
    "always k/2": "#888888",
}
# Table 6 of the paper: MSE at n = 200, k = 10, d = 10.
PAPER = {"star": 0.0284, "star-no-radial": 0.1536, "star-no-ring": 0.0359}
# Marks what was made on a GPU.
ON_GPU = "‡"
# Flags that name where a run's files lie.
# Kept runs name the script by the path that it had when they ran.
SCRIPT = "experiments/masked_summation.py"
FOLDERS = ("results", "output_dir")
PAPER_TASK = {"flagged": 10, "width": 10}


class SavedRuns:
    """
    The finished runs and times of a folder.

    Args:
        folder: `results`.

    Raises:
        UserError: there is none, or they were made with different arguments and so do not belong in one table.
    """

    def __init__(self, folder: Path):
        self.runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*-seed*.json"))]
        times = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("times-n*.json"))]
        self.times = {kept["length"]: kept for kept in sorted(times, key=lambda kept: kept["length"])}
        if not self.runs and not self.times:
            raise UserError(f"{folder} holds no finished run: write --stages train time report")
        for run in self.runs[1:]:
            mine, first = run["arguments"], self.runs[0]["arguments"]
            # An early run tells fewer of them; `check_same` has seen to the others.
            if any(mine[name] != first[name] for name in mine.keys() & first.keys()):
                raise UserError(f"{folder} holds runs of different arguments: keep those of one kind in a folder.")
        configs = [(run["system"], run["config"]) for run in self.runs]
        configs += [each for kept in self.times.values() for each in kept["config"].items()]
        for system, config in configs[1:]:
            other = differences(*(_shared(each, system, configs[0][0]) for each in (configs[0][1], config)))
            if other:
                raise UserError(
                    f"{folder} holds {configs[0][0]} and {system} of different shapes ({other}): keep those of one "
                    "shape in a folder."
                )
        self.lengths = sorted({run["length"] for run in self.runs} | set(self.times))
        names = {run["system"] for run in self.runs} | {
            name for kept in self.times.values() for name in kept["config"]
        }
        self.systems = [name for name in SYSTEMS if name in names] + sorted(names - set(SYSTEMS))

    def of(self, system: str, length: int) -> list[dict[str, Any]]:
        """The runs of a system at a length, one for each seed."""
        return [run for run in self.runs if (run["system"], run["length"]) == (system, length)]

    def guess(self, name: str, length: int) -> float | None:
        """The error of a guess at a length, which all runs there share."""
        return next((run["guesses"][name] for run in self.runs if run["length"] == length), None)

    def milliseconds(self, system: str, length: int) -> float | None:
        """The median pass over a batch."""
        seconds = self.times[length]["seconds"].get(system) if length in self.times else None
        return 1e3 * median(seconds) if seconds else None


def _shared(config: dict[str, Any], *systems: str) -> dict[str, Any]:
    """A configuration without what makes some systems what they are: the rest is that of every system."""
    own = {"model_type", *(name for system in systems for name in SYSTEMS.get(system, ("", {}))[1])}
    return {name: value for name, value in config.items() if name not in own}


def write_report(results: Path, folder: Path) -> str:
    """
    Write results.md, results.csv, figure_3a.png and figure_3b.png (Figure 3 of the paper) into `folder`.

    Args:
        results: the folder of the kept files.

    Returns:
        The text of results.md.

    Raises:
        UserError: as in `SavedRuns`.
    """
    kept = SavedRuns(results)
    write_text(folder / "results.csv", csv_table(kept))
    pictures = [plot_errors(kept, folder / "figure_3a.png"), plot_times(kept, folder / "figure_3b.png")]
    parts = ["# Masked summation", *error_sections(kept), *time_sections(kept)]
    parts += [f"![{picture.stem.replace('_', ' ')}]({picture.name})" for picture in pictures if picture]
    page = "\n\n".join(parts) + "\n"
    write_text(folder / "results.md", page)
    return page


def error_sections(kept: SavedRuns) -> list[str]:
    """What was done, the errors, and the cost of the runs; nothing where there is no run."""
    if not kept.runs:
        return []
    arguments = kept.runs[0]["arguments"]
    lengths = sorted({run["length"] for run in kept.runs})
    with_paper = 200 in lengths and all(arguments[name] == value for name, value in PAPER_TASK.items())
    about = (
        f"Test MSE: the mean over {arguments['test_samples']:,} examples and the {arguments['width'] - 1} numbers of "
        f"each target; k = {arguments['flagged']}, d = {arguments['width']}; the mean over seeds, ± the deviation, "
        f"and in brackets how many seeds have run. {arguments['train_samples']:,} training examples, "
        f"{arguments['num_train_epochs']:g} epochs, batch {batch_size(arguments)}, peak learning rate "
        f"{arguments['learning_rate']:g}. `--` stands where no run is finished. The last rows need no model: always "
        "k/2, and k/n times the sum of all vectors, flagged or not."
    )
    systems = [system for system in kept.systems if any(run["system"] == system for run in kept.runs)]
    rows: list[list[object]] = []
    for system in systems:
        row: list[object] = [system, *(error_cell(kept.of(system, length)) for length in lengths)]
        rows.append([*row, *([PAPER.get(system, "--")] if with_paper else [])])
    for name, title in (("half", "always k/2"), ("scaled", "k/n of the sum of all")):
        rows.append([title, *(kept.guess(name, length) for length in lengths), *(["--"] if with_paper else [])])
    header = ["", *(f"n = {length}" for length in lengths)]
    costs = [[system, *(cost_cell(kept.of(system, length)) for length in lengths)] for system in systems]
    return [
        about,
        markdown_table([*header, *(["paper, n = 200"] if with_paper else [])], rows),
        *(
            [f"{ON_GPU} On a GPU: elsewhere the same seed gives other digits."]
            if any(map(ran_on_gpu, kept.runs))
            else []
        ),
        command_of(kept.runs),
        f"Parameters, and minutes of training ({places(kept.runs)}):",
        markdown_table(header, costs),
    ]


def command_of(runs: Sequence[dict[str, Any]]) -> str:
    """How one of the numbers is made again; the file of each has what was typed."""
    threads = f"OMP_NUM_THREADS={runs[0]['environment']['threads']} "
    return (
        "The file of each run has its arguments, its environment and the command that was typed. To make one again, "
        f"with as many threads and the same instructions: `{threads}{command_again(runs[0])}`"
    )


def command_again(run: dict[str, Any]) -> str:
    """What was typed for a run, for this run alone and with a folder of its own."""
    typed, dropped = [], False
    for word in shlex.split(run["command"]):
        if word.startswith("--"):
            dropped = word[2:].split("=")[0] in ("systems", "lengths", "seeds", "seed", "stages", *FOLDERS)
        if not dropped:
            typed.append(SCRIPT if word.endswith("run_masked_summation.py") else word)
    own = f"--systems {run['system']} --lengths {run['length']} --seeds {run['seed']} --stages train report"
    return f"{shlex.join(typed)} {own} --output_dir outputs/again"


def time_sections(kept: SavedRuns) -> list[str]:
    """The times of a pass; nothing where there are none."""
    if not kept.times:
        return []
    timed = list(kept.times.values())
    rows = " or ".join(map(str, sorted({entry["rows"] for entry in timed})))
    about = (
        f"Test time: milliseconds of a forward pass over {rows} examples, the median of "
        f"{most_passes(timed)} passes of all systems in turn after one to warm up ({places(timed)})."
    )
    systems = [name for name in kept.systems if any(name in entry["config"] for entry in timed)]
    table = [[system, *(time_cell(kept, system, length) for length in kept.times)] for system in systems]
    return [about, markdown_table(["", *(f"n = {length}" for length in kept.times)], table)]


def batch_size(arguments: dict[str, Any]) -> int:
    """Examples of an update."""
    size = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
    return size * arguments["processes"]


def places(entries: Sequence[dict[str, Any]]) -> str:
    """Where runs or times were taken: device, threads, versions."""
    told = set()
    for entry in entries:
        environment = {"instructions": None, **entry["environment"]}
        instructions = f" ({environment['instructions']})" if environment["instructions"] else ""
        versions = "PyTorch {torch}, transformers {transformers}".format(**environment)
        told.add(f"{environment['device']}{instructions}, threads {environment['threads']}, {versions}")
    return "; ".join(sorted(told))


def most_passes(timed: Sequence[dict[str, Any]]) -> int:
    """Measured passes of a system, which are fewer where one took too long to be repeated."""
    return max(len(seconds) for entry in timed for seconds in entry["seconds"].values())


def error_cell(runs: Sequence[dict[str, Any]]) -> str:
    """0.0041 ± 0.0002 (3), marked where a GPU made one of them"""
    if not runs:
        return "--"
    errors = [run["test"] for run in runs]
    deviation = f" ± {stdev(errors):.4f}" if len(errors) > 1 else ""
    return f"{fmean(errors):.4f}{deviation} ({len(errors)})" + (f" {ON_GPU}" if any(map(ran_on_gpu, runs)) else "")


def cost_cell(runs: Sequence[dict[str, Any]]) -> str:
    """81,209, 12.3"""
    return f"{runs[0]['parameters']:,}{training_minutes(runs)}" if runs else "--"


def training_minutes(runs: Sequence[dict[str, Any]]) -> str:
    """`, 12.3`: the mean of what runs took on the CPU, or, where all ran on a GPU, there; nothing where none tells."""
    on_cpu = [run for run in runs if not ran_on_gpu(run)]
    minutes = mean_of([run["training_seconds"] for run in on_cpu or runs])
    return "" if minutes is None else f", {minutes / 60:.1f}" + ("" if on_cpu else f" {ON_GPU}")


def time_cell(kept: SavedRuns, system: str, length: int) -> str:
    """Milliseconds, or why there are none."""
    milliseconds = kept.milliseconds(system, length)
    return kept.times[length]["errors"].get(system, "--") if milliseconds is None else f"{milliseconds:,.1f}"


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of those that there are."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def csv_table(kept: SavedRuns) -> str:
    """A row for each system at each length that has a run or a time."""
    table = io.StringIO()
    names = ["system", "n", "runs", "validation_mse", "test_mse", "test_mse_deviation", "always_half_mse"]
    names += ["scaled_sum_mse", "parameters", "training_seconds", "pass_milliseconds", "pass_examples"]
    writer = csv.DictWriter(table, names, lineterminator="\n")
    writer.writeheader()
    for system in kept.systems:
        for length in kept.lengths:
            runs, milliseconds = kept.of(system, length), kept.milliseconds(system, length)
            if not runs and milliseconds is None:
                continue
            errors = [run["test"] for run in runs]
            row = {
                "validation_mse": mean_of([run["validation"] for run in runs]),
                "test_mse": mean_of(errors),
                "test_mse_deviation": stdev(errors) if len(errors) > 1 else None,
                "always_half_mse": kept.guess("half", length),
                "scaled_sum_mse": kept.guess("scaled", length),
                "training_seconds": mean_of([run["training_seconds"] for run in runs]),
                "pass_milliseconds": milliseconds,
            }
            told = {name: None if value is None else f"{value:.6g}" for name, value in row.items()}
            told |= {"system": system, "n": str(length), "runs": str(len(runs))}
            told["parameters"] = runs[0]["parameters"] if runs else None
            told["pass_examples"] = None if milliseconds is None else kept.times[length]["rows"]
            writer.writerow(told)
    return table.getvalue()


def plot_errors(kept: SavedRuns, path: Path) -> Path | None:
    """Figure 3a: test MSE over n, the mean over seeds; `None` without a run."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for run in kept.runs:
        lines.setdefault(run["system"], [])
    for system, points in lines.items():
        points += [(n, fmean([r["test"] for r in kept.of(system, n)])) for n in kept.lengths if kept.of(system, n)]
    if not lines:
        return None
    ordered = {system: lines[system] for system in kept.systems if system in lines}
    ordered["always k/2"] = [(n, guess) for n in kept.lengths if (guess := kept.guess("half", n)) is not None]
    return plot_over_length(ordered, path, "test MSE", colors=COLORS, dashed=("always k/2",), xlabel="n")


def plot_times(kept: SavedRuns, path: Path) -> Path | None:
    """Figure 3b: milliseconds of a pass over n, with each system's slope; `None` without a time."""
    lines = {
        system: [(n, time) for n in kept.times if (time := kept.milliseconds(system, n)) is not None]
        for system in kept.systems
    }
    lines = {system: points for system, points in lines.items() if points}
    if not lines:
        return None
    labels = {
        system: f"{system}  n^{fitted_slope(*zip(*points, strict=True)):.2f}"
        for system, points in lines.items()
        if len(points) > 1
    }
    rows = " or ".join(map(str, sorted({entry["rows"] for entry in kept.times.values()})))
    return plot_over_length(lines, path, f"ms for {rows} examples", colors=COLORS, labels=labels, xlabel="n")


__all__ = ["ON_GPU", "SavedRuns", "command_again", "error_cell", "training_minutes", "write_report"]
