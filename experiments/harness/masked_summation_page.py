"""Tables and figures of masked summation, made of the kept files alone: the same files give the same page."""

import csv
import io
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

from harness.benchmark_report import fitted_slope
from harness.stored_runs import RunFile
from harness.launching import ran_on_gpu
from harness.masked_summation import SYSTEMS
from harness.plots import plot_over_length
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import BLUE, GREEN, ORANGE, markdown_table
from modeling_star.files import write_text
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
PAPER_TASK = {"flagged": 10, "width": 10}
# Marks results from a GPU.
ON_GPU = "‡"
# Kept runs name the script by its earlier path.
SCRIPT, SCRIPT_NAMES = "experiments/masked_summation.py", ("masked_summation.py", "run_masked_summation.py")
# Flags of a kept command that select runs or folders.
SELECTION = ("systems", "lengths", "seeds", "seed", "stages", "results", "output_dir")


class SavedRuns:
    """
    The finished runs and times of a file.

    Args:
        path: `results.jsonl`.

    Raises:
        UserError: there is none, or they do not belong in one table, since their arguments or shapes differ.
    """

    def __init__(self, path: Path):
        file = RunFile(path)
        self.runs = list(file.read_all("*-seed*").values())
        times = file.read_all("times-n*").values()
        self.times = {kept["length"]: kept for kept in sorted(times, key=lambda kept: kept["length"])}
        if not self.runs and not self.times:
            raise UserError(f"{path} holds no finished run: write --stages train time report")
        configs = [(run["system"], run["config"]) for run in self.runs]
        configs += [each for kept in self.times.values() for each in kept["config"].items()]
        first, first_config = configs[0]
        other = [
            differences(*(_shared(each, system, first) for each in (first_config, config)))
            for system, config in configs
        ]
        for run in self.runs:
            ours, reference = run["arguments"], self.runs[0]["arguments"]
            common = ours.keys() & reference.keys()  # early runs list fewer
            other.append(differences(*({name: each[name] for name in common} for each in (reference, ours))))
        if any(other):
            raise UserError(f"{path} mixes runs of different arguments or shapes ({next(filter(None, other))}).")
        self.lengths = sorted({run["length"] for run in self.runs} | set(self.times))
        names = {system for system, _ in configs}
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

    @property
    def rows(self) -> str:
        """Examples of a timed batch."""
        return " or ".join(map(str, sorted({entry["rows"] for entry in self.times.values()})))


def _shared(config: dict[str, Any], *systems: str) -> dict[str, Any]:
    """A configuration without the fields that define some systems."""
    defining = {"model_type", *(name for system in systems for name in SYSTEMS.get(system, ("", {}))[1])}
    return {name: value for name, value in config.items() if name not in defining}


def write_report(results: Path, folder: Path) -> str:
    """
    Write results.md, results.csv, figure_3a.png and figure_3b.png (Figure 3 of the paper) into `folder`.

    Args:
        results: the file of the kept runs.

    Returns:
        The text of results.md.

    Raises:
        UserError: as in `SavedRuns`.
    """
    saved = SavedRuns(results)
    write_text(folder / "results.csv", csv_table(saved))
    pictures = [plot_errors(saved, folder / "figure_3a.png"), plot_times(saved, folder / "figure_3b.png")]
    parts = ["# Masked summation", *error_sections(saved), *time_sections(saved)]
    parts += [f"![{picture.stem.replace('_', ' ')}]({picture.name})" for picture in pictures if picture]
    page = "\n\n".join(parts) + "\n"
    write_text(folder / "results.md", page)
    return page


def error_sections(saved: SavedRuns) -> Iterator[str]:
    """The task, the errors, and the cost of the runs; nothing where there is no run."""
    if not saved.runs:
        return
    arguments = saved.runs[0]["arguments"]
    lengths = sorted({run["length"] for run in saved.runs})
    batch = arguments["per_device_train_batch_size"] * arguments["gradient_accumulation_steps"]
    yield (
        f"Test MSE: the mean over {arguments['test_samples']:,} examples and the {arguments['width'] - 1} numbers of "
        f"each target; k = {arguments['flagged']}, d = {arguments['width']}; the mean over seeds, ± the deviation, "
        f"and in brackets how many seeds have run. {arguments['train_samples']:,} training examples, "
        f"{arguments['num_train_epochs']:g} epochs, batch {batch * arguments['processes']}, peak learning rate "
        f"{arguments['learning_rate']:g}. `--` marks rows without a finished run. The last rows need no model: always "
        "k/2, and k/n times the sum of all vectors, flagged or not."
    )
    systems = [system for system in saved.systems if any(run["system"] == system for run in saved.runs)]
    header = ["", *(f"n = {length}" for length in lengths), "paper, n = 200"]
    rows: list[list[object]] = [
        [system, *(error_cell(saved.of(system, length)) for length in lengths), PAPER.get(system, "--")]
        for system in systems
    ]
    for name, title in (("half", "always k/2"), ("scaled", "k/n of the sum of all")):
        rows.append([title, *(saved.guess(name, length) for length in lengths), "--"])
    with_paper = 200 in lengths and all(arguments[name] == value for name, value in PAPER_TASK.items())
    columns = len(header) - (not with_paper)
    yield markdown_table(header[:columns], [row[:columns] for row in rows])
    if any(map(ran_on_gpu, saved.runs)):
        yield f"{ON_GPU} On a GPU: elsewhere the same seed gives other digits."
    yield (
        "The file of each run has its arguments, its environment and the command that was typed. To make one again, "
        "with as many threads and the same instructions: "
        f"`OMP_NUM_THREADS={saved.runs[0]['environment']['threads']} {command_again(saved.runs[0])}`"
    )
    yield f"Parameters, and minutes of training ({places(saved.runs)}):"
    costs = [[system, *(cost_cell(saved.of(system, length)) for length in lengths)] for system in systems]
    yield markdown_table(header[:-1], costs)


def command_again(run: dict[str, Any]) -> str:
    """The command of a run for this run alone, with its own folder."""
    words, dropped = [], False
    for word in shlex.split(run["command"]):
        if word.startswith("--"):
            dropped = word[2:].split("=")[0] in SELECTION
        if not dropped:
            words.append(SCRIPT if Path(word).name in SCRIPT_NAMES else word)
    selection = f"--systems {run['system']} --lengths {run['length']} --seeds {run['seed']} --stages train report"
    return f"{shlex.join(words)} {selection} --output_dir outputs/again"


def time_sections(saved: SavedRuns) -> Iterator[str]:
    """The times of a pass; nothing where there are none."""
    if not saved.times:
        return
    timed = list(saved.times.values())
    # Fewer where one took too long to be repeated.
    passes = max(len(seconds) for entry in timed for seconds in entry["seconds"].values())
    yield (
        f"Test time: milliseconds of a forward pass over {saved.rows} examples, the median of "
        f"{passes} passes of all systems in turn after one to warm up ({places(timed)})."
    )
    systems = [name for name in saved.systems if any(name in entry["config"] for entry in timed)]
    table = [[system, *(time_cell(saved, system, length) for length in saved.times)] for system in systems]
    yield markdown_table(["", *(f"n = {length}" for length in saved.times)], table)


def places(entries: Sequence[dict[str, Any]]) -> str:
    """Devices, threads and versions of runs or times."""
    names = set()
    for entry in entries:
        environment = {"instructions": None, **entry["environment"]}
        instructions = f" ({environment['instructions']})" if environment["instructions"] else ""
        versions = "PyTorch {torch}, transformers {transformers}".format(**environment)
        names.add(f"{environment['device']}{instructions}, threads {environment['threads']}, {versions}")
    return "; ".join(sorted(names))


def error_cell(runs: Sequence[dict[str, Any]]) -> str:
    """0.0041 ± 0.0002 (3), marked where one ran on a GPU"""
    if not runs:
        return "--"
    errors = [run["test"] for run in runs]
    deviation = f" ± {stdev(errors):.4f}" if len(errors) > 1 else ""
    return f"{fmean(errors):.4f}{deviation} ({len(errors)})" + (f" {ON_GPU}" if any(map(ran_on_gpu, runs)) else "")


def cost_cell(runs: Sequence[dict[str, Any]]) -> str:
    """81,209, 12.3"""
    return f"{runs[0]['parameters']:,}{training_minutes(runs)}" if runs else "--"


def training_minutes(runs: Sequence[dict[str, Any]]) -> str:
    """`, 12.3`: mean minutes of training on a CPU, or, where all ran on a GPU, there; nothing where none is known."""
    on_cpu = [run for run in runs if not ran_on_gpu(run)]
    seconds = mean_of([run["training_seconds"] for run in on_cpu or runs])
    return "" if seconds is None else f", {seconds / 60:.1f}" + ("" if on_cpu else f" {ON_GPU}")


def time_cell(saved: SavedRuns, system: str, length: int) -> str:
    """Milliseconds, or why there are none."""
    milliseconds = saved.milliseconds(system, length)
    return saved.times[length]["errors"].get(system, "--") if milliseconds is None else f"{milliseconds:,.1f}"


def mean_of(values: Sequence[float | None]) -> float | None:
    """The mean of the known ones."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def csv_table(saved: SavedRuns) -> str:
    """A row for each system at each length that has a run or a time."""
    rows = []
    for system in saved.systems:
        for length in saved.lengths:
            runs, milliseconds = saved.of(system, length), saved.milliseconds(system, length)
            if not runs and milliseconds is None:
                continue
            errors = [run["test"] for run in runs]
            numbers = {
                "validation_mse": mean_of([run["validation"] for run in runs]),
                "test_mse": mean_of(errors),
                "test_mse_deviation": stdev(errors) if len(errors) > 1 else None,
                "always_half_mse": saved.guess("half", length),
                "scaled_sum_mse": saved.guess("scaled", length),
                "parameters": None,
                "training_seconds": mean_of([run["training_seconds"] for run in runs]),
                "pass_milliseconds": milliseconds,
            }
            row: dict[str, Any] = {"system": system, "n": length, "runs": len(runs)}
            row |= {name: None if value is None else f"{value:.6g}" for name, value in numbers.items()}
            row["parameters"] = runs[0]["parameters"] if runs else None
            row["pass_examples"] = None if milliseconds is None else saved.times[length]["rows"]
            rows.append(row)
    table = io.StringIO()
    writer = csv.DictWriter(table, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return table.getvalue()


def plot_errors(saved: SavedRuns, path: Path) -> Path | None:
    """Figure 3a: test MSE over n, the mean over seeds; `None` without a run."""
    lines = {
        system: [(n, fmean(run["test"] for run in runs)) for n in saved.lengths if (runs := saved.of(system, n))]
        for system in saved.systems
    }
    lines = {system: points for system, points in lines.items() if points}
    if not lines:
        return None
    lines["always k/2"] = [(n, guess) for n in saved.lengths if (guess := saved.guess("half", n)) is not None]
    return plot_over_length(lines, path, "test MSE", colors=COLORS, dashed=("always k/2",), xlabel="n")


def plot_times(saved: SavedRuns, path: Path) -> Path | None:
    """Figure 3b: milliseconds of a pass over n, with each system's slope; `None` without a time."""
    lines = {
        system: [(n, time) for n in saved.times if (time := saved.milliseconds(system, n)) is not None]
        for system in saved.systems
    }
    lines = {system: points for system, points in lines.items() if points}
    if not lines:
        return None
    labels = {
        system: f"{system}  n^{fitted_slope(*zip(*points, strict=True)):.2f}"
        for system, points in lines.items()
        if len(points) > 1
    }
    return plot_over_length(lines, path, f"ms for {saved.rows} examples", colors=COLORS, labels=labels, xlabel="n")
