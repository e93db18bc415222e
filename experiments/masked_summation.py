#!/usr/bin/env python
"""
Masked summation: the sum of the k flagged ones of n random vectors, for any encoder at any n. Table 6 and Figure 3 of
the Star-Transformer's paper (section 5.1 of Guo et al. 2019, https://arxiv.org/abs/1902.09113).

Everything, many hours of a CPU:
    python experiments/masked_summation.py

One number of it (Star at n = 200, Table 6):
    python experiments/masked_summation.py --systems star --lengths 200

The times alone, on a machine without other jobs:
    OMP_NUM_THREADS=2 python experiments/masked_summation.py --stages time report

A small example of a minute:
    python experiments/masked_summation.py --systems star vanilla --lengths 10 20 --flagged 3 --width 4 \\
        --train_samples 2000 --test_samples 500 --validation_samples 500 --epochs 5 --output_dir outputs/tiny

An example is n vectors of d numbers. The first number is a flag, 1 for k vectors chosen at random and 0 for others;
the rest are drawn from [0, 1). The target is the sum of the flagged vectors without their flags. The score is the mean
squared error (MSE): the mean over all examples and over the d - 1 numbers of their targets.

Finished runs and times are lines of results.jsonl in the output folder and not repeated; several of these commands may
run at once. In the folder also results.md, figure_3a.png (MSE over n) and figure_3b.png (test time over n).
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any

import numpy as np
import torch
from harness.launching import environment, ran_on_gpu
from harness.stored_runs import ON_GPU, RunFile, check_arguments, claim, training_minutes
from matplotlib.ticker import LogLocator, StrMethodFormatter
from torch import Tensor
from torch.utils.data import Dataset
from transformers import PreTrainedModel, Trainer, TrainingArguments, default_data_collator, set_seed

from modeling_star import compiled
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import BLUE, GREEN, ORANGE, markdown_table, new_figure, save_figure
from modeling_star.files import write_text
from modeling_star.runs.cli_errors import as_user_error
from modeling_star.training.arguments import ModelArguments
from modeling_star.training.build import fresh_model


SPLITS = ("train", "validation", "test")
# Name of a system -> model type, and the fields that define it.
SYSTEMS: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {}),
    "star-no-radial": ("star_transformer", {"use_radial": False}),
    "star-no-ring": ("star_transformer", {"use_ring": False}),
    "vanilla": ("vanilla_transformer", {}),
    "bilstm": ("bilstm", {}),
    "lstm": ("bilstm", {"bidirectional": False}),
    **{name: (name, {}) for name in ("big_transformer", "disan")},
}
SHAPE = "configuration/models/star-masked-summation.json"
# One cycle of the learning rate, and no evaluation during training, since the model of the last step is scored.
TRAINING: dict[str, Any] = {
    **{"lr_scheduler_type": "cosine", "warmup_steps": 0.3, "max_grad_norm": 5.0, "save_strategy": "no"},
    **{"logging_steps": 100, "eval_strategy": "no", "disable_tqdm": True, "report_to": "none"},
}
# The arguments that a result depends on, in addition to its configuration.
DECISIVE = (
    *("flagged", "width", "train_samples", "validation_samples", "test_samples", "draw_seed", "num_train_epochs"),
    *("learning_rate", "per_device_train_batch_size", "lr_scheduler_type", "warmup_steps", "max_grad_norm"),
)
COLORS = {
    **{"star": BLUE, "star-no-radial": "#8a5fbf", "star-no-ring": "#2a9d9d", "vanilla": GREEN, "bilstm": ORANGE},
    **{"lstm": "#c2453d", "always k/2": "#888888"},
}
# Table 6 of the paper: MSE at n = 200, k = 10, d = 10.
PAPER = {"star": 0.0284, "star-no-radial": 0.1536, "star-no-ring": 0.0359}
MAX_SECONDS = 60.0  # a slower pass is timed once, not repeated


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = partial(parser.add_argument, help="(default: %(default)s)")
    add("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS)[:6])
    add("--lengths", nargs="+", type=int, default=[10, 50, 100, 200, 400, 800], help="n (default: %(default)s)")
    add("--seeds", nargs="+", type=int, default=[1], help="of weights and batches (default: %(default)s)")
    add("--flagged", type=int, default=10, help="k, flagged vectors of an example (default: %(default)s)")
    add("--width", type=int, default=10, help="d, numbers of a vector (default: %(default)s)")
    for split in SPLITS:
        add(f"--{split}_samples", type=int, default=10_000)
    add("--draw_seed", type=int, default=0, help="of the data, the same for all systems (default: %(default)s)")
    add("--overrides", type=json.loads, default={}, help="fields of all configurations: '{\"hidden_size\": 200}'")
    add("--epochs", type=float, default=40, dest="num_train_epochs")
    add("--learning_rate", type=float, default=1e-3, help="peak of a rise and a cosine fall (default: %(default)s)")
    add("--batch_size", type=int, default=100, dest="per_device_train_batch_size")
    add("--rows", type=int, default=100, help="examples timed at once (default: %(default)s)")
    add("--repeats", type=int, default=5, help="passes of which the median time is reported (default: %(default)s)")
    add("--stages", nargs="+", choices=("train", "time", "report"), default=["train", "time", "report"])
    add("--use_cpu", action="store_true", help="where there is a GPU")
    add("--output_dir", type=Path, default=Path("outputs/masked_summation"))
    return parser.parse_args(words)


# ------ the task


class SummationData(Dataset):
    """Examples in memory: inputs `[b, n, d]`, targets `[b, d - 1]`."""

    def __init__(self, inputs: Tensor, targets: Tensor):
        self.inputs, self.targets = inputs, targets

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """One example as a model takes it."""
        return {"inputs_embeds": self.inputs[index], "labels": self.targets[index]}


@dataclass(frozen=True)
class MaskedSummation:
    """The task at one length: n vectors of `width` d, of which k are `flagged`; examples of each split."""

    length: int
    flagged: int = 10
    width: int = 10
    samples: tuple[int, int, int] = (10_000, 10_000, 10_000)
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.flagged <= self.length or self.width < 2 or min(self.samples) < 1 or self.seed < 0:
            raise UserError(
                f"n = {self.length}, k = {self.flagged}, d = {self.width}, samples {self.samples}, seed {self.seed}: "
                "1 <= k <= n, 2 <= d, samples of 1 or more and a seed of 0 or more are allowed. Write --lengths 10 "
                "--flagged 10 --width 10"
            )

    def draw(self, split: str) -> SummationData:
        """The examples of a split, the same at every call; each split is a stream of random numbers of its own."""
        number = SPLITS.index(split)
        count = self.samples[number]
        source = np.random.default_rng([self.seed, number])
        inputs = np.empty((count, self.length, self.width), dtype=np.float32)
        inputs[..., 1:] = source.random((count, self.length, self.width - 1), dtype=np.float32)
        flags = np.zeros((count, self.length), dtype=np.float32)
        flags[:, : self.flagged] = 1
        inputs[..., 0] = source.permuted(flags, axis=1)
        targets = (inputs[:, None, :, 0] @ inputs[..., 1:])[:, 0]  # [b, d - 1]
        return SummationData(torch.from_numpy(inputs), torch.from_numpy(targets))

    def guess_errors(self, data: SummationData) -> dict[str, float]:
        """
        MSE of guesses without a model: "half" of always k/2, which is k/12 on average; "scaled" of k/n times the sum
        of all vectors, whose flags are not used.
        """
        targets = data.targets.double()
        everything = data.inputs[..., 1:].sum(1, dtype=torch.float64)
        guesses = {"half": torch.tensor(self.flagged / 2), "scaled": everything * self.flagged / self.length}
        return {name: float((guess - targets).square().mean()) for name, guess in guesses.items()}


def fields_of(system: str, options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a system's configuration that are set: the shape that all share, and what defines it."""
    shape = json.loads(Path(SHAPE).read_text(encoding="utf-8")) | {"embedding_size": options.width}
    model_type, defining = SYSTEMS[system]
    return shape | {"model_type": model_type} | defining | options.overrides


def build(system: str, task: MaskedSummation, options: argparse.Namespace) -> PreTrainedModel:
    """The randomly initialised model, with the MLP head, for examples as long and wide as the task's."""
    fields = fields_of(system, options)
    model_type, defining = fields.pop("model_type"), SYSTEMS[system][1] | options.overrides
    labels = {"num_labels": task.width - 1, "problem_type": "regression"}
    arguments = ModelArguments(model_type=model_type, config_overrides=json.dumps(defining))
    with as_user_error():
        return fresh_model("AutoModelForSequenceClassification", None, labels, arguments, task.length, fields)


# ------ training and timing


class Experiment:
    """One call of the script."""

    def __init__(self, options: argparse.Namespace):
        self.options = options
        self.file = RunFile(options.output_dir / "results.jsonl")
        samples = (options.train_samples, options.validation_samples, options.test_samples)
        self.tasks = [
            MaskedSummation(length, options.flagged, options.width, samples, options.draw_seed)
            for length in options.lengths
        ]
        self.arguments = {name: value for name, value in {**vars(options), **TRAINING}.items() if name in DECISIVE}
        for system in options.systems:  # an error before hours are spent on the systems before it
            build(system, self.tasks[0], options)

    def due(self) -> Iterator[tuple[str, MaskedSummation, int]]:
        """The runs that are not finished."""
        for task in self.tasks:
            for seed in self.options.seeds:
                for system in self.options.systems:
                    name = f"{system}-n{task.length}-seed{seed}"
                    stored = self.file.read(name)
                    if stored is None:
                        yield system, task, seed
                        continue
                    made_with = {key: stored["arguments"][key] for key in self.arguments}
                    requested = self.arguments | fields_of(system, self.options)
                    check_arguments(f"{self.file.path}, run {name},", made_with | stored["config"], requested)

    def train(self, system: str, task: MaskedSummation, seed: int) -> dict[str, Any]:
        """Train and test one system."""
        options = self.options
        chosen = {name: getattr(options, name) for name in ("num_train_epochs", "learning_rate", "use_cpu")}
        with tempfile.TemporaryDirectory() as folder:
            training = TrainingArguments(
                folder,
                seed=seed,
                per_device_train_batch_size=options.per_device_train_batch_size,
                per_device_eval_batch_size=100,
                **TRAINING,
                **chosen,
            )
            set_seed(seed)
            model = build(system, task, options)
            data = {split: task.draw(split) for split in SPLITS}
            trainer = Trainer(model, training, train_dataset=data["train"], data_collator=default_data_collator)
            output = trainer.train()
            errors = {split: mean_squared_error(model, data[split]) for split in SPLITS[1:]}
        if not all(map(math.isfinite, errors.values())):
            raise UserError(f"{system} at n = {task.length} diverged. Write a lower --learning_rate")
        return {
            **{"system": system, "length": task.length, "seed": seed, **errors},
            "guesses": task.guess_errors(data["test"]),
            "parameters": model.num_parameters(only_trainable=True),
            "training_seconds": round(output.metrics["train_runtime"], 1),
            "arguments": self.arguments,
            "config": fields_of(system, options),
            "environment": environment(options.use_cpu),
        }

    def train_all(self) -> None:
        """Train and test what is due, but for what another process does."""
        for system, task, seed in list(self.due()):
            name = f"{system}-n{task.length}-seed{seed}"
            with claim(self.options.output_dir / "running" / name) as free:
                if free and self.file.read(name) is None:
                    run = self.train(system, task, seed)
                    self.file.keep({name: run})
                    print(f"{name}: MSE {run['validation']:.4f} on validation, {run['test']:.4f} on test", flush=True)

    def time_all(self) -> None:
        """Time a forward pass of all systems at each length, in turns."""
        from benchmark import interleave

        options = self.options
        for task in self.tasks:
            name = f"times-n{task.length}"
            stored = self.file.read(name) or {"config": {}}
            systems = list(dict.fromkeys([*stored["config"], *options.systems]))
            config = {system: fields_of(system, options) for system in systems}
            if config == stored["config"] and options.rows == stored["rows"]:
                continue
            device = "cuda" if torch.cuda.is_available() and not options.use_cpu else "cpu"
            inputs = replace(task, samples=(1, 1, options.rows)).draw("test").inputs.to(device)
            passes = {
                system: partial(forward, compiled(build(system, task, options).to(device)), inputs)
                for system in systems
            }
            seconds, errors = interleave(passes, options.repeats, MAX_SECONDS)
            times = {"length": task.length, "seconds": seconds, "errors": errors, "rows": options.rows}
            self.file.keep({name: {**times, "environment": environment(options.use_cpu), "config": config}})


@torch.no_grad()
def forward(model: PreTrainedModel, inputs: Tensor) -> Tensor:
    """The answers `[b, d - 1]` to `[b, n, d]`, on the CPU, which waits for a GPU."""
    return model(inputs_embeds=inputs).logits.cpu()


def mean_squared_error(model: PreTrainedModel, data: SummationData) -> float:
    """The MSE over all examples and the d - 1 numbers of each."""
    answers = [forward(model.eval(), part.to(model.device)) for part in data.inputs.split(100)]
    return float((torch.cat(answers).double() - data.targets.double()).square().mean())


# ------ the page


class SavedRuns:
    """The finished runs and times of a file."""

    def __init__(self, path: Path):
        file = RunFile(path)
        self.runs = list(file.read_all("*-seed*").values())
        times = file.read_all("times-n*").values()
        self.times = {stored["length"]: stored for stored in sorted(times, key=lambda stored: stored["length"])}
        if not self.runs:
            raise UserError(f"{path} holds no finished run: write --stages train time report")
        for run in self.runs:
            pair = ({name: each["arguments"][name] for name in DECISIVE} for each in (self.runs[0], run))
            check_arguments(f"{path} holds runs of different arguments, one of which", *pair)
        self.lengths = sorted({run["length"] for run in self.runs})
        self.systems = [name for name in SYSTEMS if any(run["system"] == name for run in self.runs)]

    def of(self, system: str, length: int) -> list[dict[str, Any]]:
        """The runs of a system at a length, one for each seed."""
        return [run for run in self.runs if (run["system"], run["length"]) == (system, length)]

    def guess(self, name: str, length: int) -> float:
        """The error of a guess at a length, which all runs there share."""
        return next(run["guesses"][name] for run in self.runs if run["length"] == length)

    def milliseconds(self, system: str, length: int) -> float | None:
        """The median pass over a batch."""
        seconds = self.times[length]["seconds"].get(system)
        return 1e3 * median(seconds) if seconds else None


def write_report(results: Path, folder: Path) -> str:
    """Write results.md, figure_3a.png and figure_3b.png (Figure 3 of the paper) into `folder`; the page's text."""
    saved = SavedRuns(results)
    parts = ["# Masked summation", *error_sections(saved), *(time_sections(saved) if saved.times else ())]
    errors = {
        system: [(n, fmean(run["test"] for run in runs)) for n in saved.lengths if (runs := saved.of(system, n))]
        for system in saved.systems
    }
    errors["always k/2"] = [(n, saved.guess("half", n)) for n in saved.lengths]
    pictures = [plot_over_n(errors, folder / "figure_3a.png", "test MSE")]
    if saved.times:
        rows = next(iter(saved.times.values()))["rows"]
        pictures.append(plot_over_n(timed_points(saved), folder / "figure_3b.png", f"ms for {rows} examples", True))
    parts += [f"![{picture.stem.replace('_', ' ')}]({picture.name})" for picture in pictures]
    page = "\n\n".join(parts) + "\n"
    write_text(folder / "results.md", page)
    return page


def timed_points(saved: SavedRuns) -> Mapping[str, list[tuple[int, float]]]:
    """Lengths and milliseconds of each system that was timed."""
    points = {
        system: [(n, time) for n in saved.times if (time := saved.milliseconds(system, n)) is not None]
        for system in saved.systems
    }
    return {system: line for system, line in points.items() if line}


def plot_over_n(
    lines: Mapping[str, list[tuple[int, float]]], path: Path, ylabel: str, with_slopes: bool = False
) -> Path:
    """Draw (n, value) of each system, both axes logarithmic; with slopes, the exponents of the nearest power laws."""
    figure, (axis,) = new_figure(width=7.4, height=4.6)
    for system, points in lines.items():
        lengths, values = zip(*points, strict=True)
        label, style = system, "--" if system == "always k/2" else "-"
        if with_slopes and len(points) > 1:
            logarithms = zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)
            label = f"{system}  n^{statistics.linear_regression(*logarithms).slope:.2f}"
        color = COLORS.get(system)
        axis.plot(lengths, values, style, color=color, label=label, marker="o", markersize=4, linewidth=1.6)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = sorted({length for points in lines.values() for length, _ in points})
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    # less than a decade has one power of ten at most
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_xlabel("n")
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save_figure(figure, path, None)


def error_sections(saved: SavedRuns) -> Iterator[str]:
    """The task, the errors, and the cost of the runs."""
    arguments = saved.runs[0]["arguments"]
    yield (
        f"Test MSE: the mean over {arguments['test_samples']:,} examples and the {arguments['width'] - 1} numbers of "
        f"each target; k = {arguments['flagged']}, d = {arguments['width']}; the mean over seeds, ± the deviation, "
        f"and in brackets how many seeds have run. {arguments['train_samples']:,} training examples, "
        f"{arguments['num_train_epochs']:g} epochs, batch {arguments['per_device_train_batch_size']}, peak learning "
        f"rate {arguments['learning_rate']:g}. `--` marks rows without a finished run. The last rows need no model: "
        "always k/2, and k/n times the sum of all vectors, flagged or not."
    )
    heads = ["", *(f"n = {length}" for length in saved.lengths)]

    def rows(cell: Callable[[list[dict[str, Any]]], str]) -> list[list[object]]:
        return [[name, *(cell(saved.of(name, length)) for length in saved.lengths)] for name in saved.systems]

    errors = rows(error_cell)
    for name, title in (("half", "always k/2"), ("scaled", "k/n of the sum of all")):
        errors.append([title, *(f"{saved.guess(name, length):.4f}" for length in saved.lengths)])
    if 200 in saved.lengths and (arguments["flagged"], arguments["width"]) == (10, 10):
        errors = [[*row, PAPER.get(str(row[0]), "--")] for row in errors]
        yield markdown_table([*heads, "paper, n = 200"], errors)
    else:
        yield markdown_table(heads, errors)
    if any(map(ran_on_gpu, saved.runs)):
        yield f"{ON_GPU} On a GPU: elsewhere the same seed gives other digits."
    first = saved.runs[0]
    yield (
        "Each run's arguments and environment are in its line of the file. To make one again, with as many threads "
        f"and the same instructions: `OMP_NUM_THREADS={first['environment']['threads']} python "
        f"experiments/masked_summation.py --systems {first['system']} --lengths {first['length']} --seeds "
        f"{first['seed']} --output_dir outputs/again`"
    )
    yield f"Parameters, and minutes of training ({places(saved.runs)}):"
    yield markdown_table(
        heads, rows(lambda runs: f"{runs[0]['parameters']:,}{training_minutes(runs)}" if runs else "--")
    )


def time_sections(saved: SavedRuns) -> Iterator[str]:
    """The times of a pass."""
    timed = list(saved.times.values())
    # Fewer where one took too long to be repeated.
    passes = max(len(seconds) for entry in timed for seconds in entry["seconds"].values())
    yield (
        f"Test time: milliseconds of a forward pass over {timed[0]['rows']} examples, the median of {passes} passes "
        f"of all systems in turn after one to warm up ({places(timed)})."
    )

    def cell(system: str, length: int) -> str:
        milliseconds = saved.milliseconds(system, length)
        return saved.times[length]["errors"].get(system, "--") if milliseconds is None else f"{milliseconds:,.1f}"

    systems = [name for name in saved.systems if any(name in entry["config"] for entry in timed)]
    table = [[system, *(cell(system, length) for length in saved.times)] for system in systems]
    yield markdown_table(["", *(f"n = {length}" for length in saved.times)], table)


def places(entries: Sequence[dict[str, Any]]) -> str:
    """Devices, threads and versions of runs or times."""
    names = set()
    for entry in entries:
        made = entry["environment"]
        instructions = f" ({made['instructions']})" if made.get("instructions") else ""
        versions = "PyTorch {torch}, transformers {transformers}".format(**made)
        names.add(f"{made['device']}{instructions}, threads {made['threads']}, {versions}")
    return "; ".join(sorted(names))


def error_cell(runs: Sequence[dict[str, Any]]) -> str:
    """0.0041 ± 0.0002 (3), marked where one ran on a GPU"""
    if not runs:
        return "--"
    errors = [run["test"] for run in runs]
    deviation = f" ± {stdev(errors):.4f}" if len(errors) > 1 else ""
    return f"{fmean(errors):.4f}{deviation} ({len(errors)})" + (f" {ON_GPU}" if any(map(ran_on_gpu, runs)) else "")


def main() -> None:
    """Read the arguments, run what is missing, report."""
    options = parse()
    try:
        experiment = Experiment(options)
        if "train" in options.stages:
            experiment.train_all()
        if "time" in options.stages:
            experiment.time_all()
        if "report" in options.stages:
            print(write_report(experiment.file.path, options.output_dir))
    except UserError as error:
        sys.exit(f"masked_summation.py: {error}")


if __name__ == "__main__":
    main()
