#!/usr/bin/env python
"""
Masked summation: the sum of the k flagged ones of n random vectors, for any encoder at any n. Table 6 and Figure 3 of
the Star-Transformer's paper (section 5.1 of Guo et al. 2019, https://arxiv.org/abs/1902.09113).

Everything, many hours of a CPU:
    python experiments/masked_summation.py

One number of it (Star at n = 200, Table 6):
    python experiments/masked_summation.py --systems star --lengths 200

An example is n vectors of d numbers. The first number is a flag, 1 for k vectors chosen at random and 0 for others;
the rest are drawn from [0, 1). The target is the sum of the flagged vectors without their flags. The score is the mean
squared error (MSE): the mean over all examples and over the d - 1 numbers of their targets.

Finished runs are lines of results.jsonl in the output folder and not repeated; several of these commands may run at
once. In the folder also results.md and figure_3a.png (MSE over n), and, of stored times, figure_3b.png (time over n).
Commit ac87bc8 has the code that measured the times (`--stages time`).
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
    default_data_collator,
    set_seed,
)

import modeling_star  # noqa: F401  # the auto classes know its models
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import BLUE, GREEN, ORANGE, markdown_table, new_figure, save_figure
from modeling_star.files import write_text


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
SHAPE = Path("configuration/models/star-masked-summation.json")
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
Run = dict[str, Any]


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
    add("--use_cpu", action="store_true", help="where there is a GPU")
    add("--output_dir", type=Path, default=Path("outputs/masked_summation"))
    options = parser.parse_args(words)
    n, k, d = min(options.lengths), options.flagged, options.width
    if not 1 <= k <= n or d < 2:
        raise UserError(f"n = {n}, k = {k}, d = {d}: 1 <= k <= n and 2 <= d are needed. Write --flagged 10 --width 10")
    return options


def draw(options: argparse.Namespace, length: int, split: str) -> tuple[Tensor, Tensor]:
    """Examples `[b, n, d]` and targets `[b, d - 1]` of a split, the same at every call."""
    number, width = SPLITS.index(split), options.width
    count = getattr(options, f"{split}_samples")
    source = np.random.default_rng([options.draw_seed, number])  # each split is a stream of its own
    inputs = np.empty((count, length, width), dtype=np.float32)
    inputs[..., 1:] = source.random((count, length, width - 1), dtype=np.float32)
    flags = np.zeros((count, length), dtype=np.float32)
    flags[:, : options.flagged] = 1
    inputs[..., 0] = source.permuted(flags, axis=1)
    targets = (inputs[:, None, :, 0] @ inputs[..., 1:])[:, 0]
    return torch.from_numpy(inputs), torch.from_numpy(targets)


def guess_errors(flagged: int, inputs: Tensor, targets: Tensor) -> dict[str, float]:
    """MSE of "half", always k/2, which is k/12 on average, and of "scaled", k/n times the sum of all vectors."""
    everything = inputs[..., 1:].sum(1, dtype=torch.float64)
    guesses = {"half": torch.tensor(flagged / 2), "scaled": everything * flagged / inputs.shape[1]}
    return {name: float((guess - targets.double()).square().mean()) for name, guess in guesses.items()}


def fields_of(system: str, options: argparse.Namespace) -> dict[str, Any]:
    """The fields of a system's configuration that are set: the shape that all share, and what defines it."""
    shape = json.loads(SHAPE.read_text(encoding="utf-8")) | {"embedding_size": options.width}
    model_type, defining = SYSTEMS[system]
    return shape | {"model_type": model_type} | defining | options.overrides


def build(system: str, options: argparse.Namespace) -> PreTrainedModel:
    """The randomly initialised model with the MLP head, for examples as wide as the task's; of any length."""
    fields = fields_of(system, options)
    default = AutoConfig.for_model(fields.pop("model_type"))
    for name in options.overrides:
        if not hasattr(default, name):
            raise UserError(f"--overrides: a {default.model_type} has no field {name}. Write hidden_size, for example")
    fields = {name: value for name, value in fields.items() if hasattr(default, name)}
    config = type(default)(**fields, num_labels=options.width - 1, problem_type="regression")
    return AutoModelForSequenceClassification.from_config(config)


@torch.no_grad()
def forward(model: PreTrainedModel, inputs: Tensor) -> Tensor:
    """The answers `[b, d - 1]` to `[b, n, d]`, on the CPU, which waits for a GPU."""
    return model(inputs_embeds=inputs).logits.cpu()


def mean_squared_error(model: PreTrainedModel, inputs: Tensor, targets: Tensor) -> float:
    """The MSE over all examples and the d - 1 numbers of each."""
    answers = [forward(model.eval(), part.to(model.device)) for part in inputs.split(100)]
    return float((torch.cat(answers).double() - targets.double()).square().mean())


# ------ training


def train(system: str, length: int, seed: int, options: argparse.Namespace) -> Run:
    """Train and test one system."""
    with tempfile.TemporaryDirectory() as folder:
        training = TrainingArguments(
            folder,
            seed=seed,
            num_train_epochs=options.num_train_epochs,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=options.per_device_train_batch_size,
            use_cpu=options.use_cpu,
            **TRAINING,
        )
        set_seed(seed)
        model = build(system, options)
        data = {split: draw(options, length, split) for split in SPLITS}
        examples: Any = [
            {"inputs_embeds": vectors, "labels": sums} for vectors, sums in zip(*data["train"], strict=True)
        ]
        output = Trainer(model, training, train_dataset=examples, data_collator=default_data_collator).train()
        errors = {split: mean_squared_error(model, *data[split]) for split in SPLITS[1:]}
    if not all(map(math.isfinite, errors.values())):
        raise UserError(f"{system} at n = {length} diverged. Write a lower --learning_rate")
    return {
        **{"system": system, "length": length, "seed": seed, **errors},
        "guesses": guess_errors(options.flagged, *data["test"]),
        "parameters": model.num_parameters(only_trainable=True),
        "training_seconds": round(output.metrics["train_runtime"], 1),
        "config": fields_of(system, options),
        "environment": environment(options.use_cpu),
    }


def due(options: argparse.Namespace, file: RunFile, made_with: Run) -> Iterator[tuple[str, int, int, str]]:
    """System, length, seed and name of the runs that are not finished."""
    for length in options.lengths:
        for seed in options.seeds:
            for system in options.systems:
                name = f"{system}-n{length}-seed{seed}"
                stored = file.read(name)
                if stored is None:
                    yield system, length, seed, name
                    continue
                before = {key: stored["arguments"][key] for key in made_with} | stored["config"]
                check_arguments(f"{file.path}, run {name},", before, made_with | fields_of(system, options))


# ------ the page


def write_report(results: Path, folder: Path) -> str:
    """Write results.md, figure_3a.png and figure_3b.png (Figure 3 of the paper) into `folder`; the page's text."""
    file = RunFile(results)
    runs = list(file.read_all("*-seed*").values())
    times = sorted(file.read_all("times-n*").values(), key=lambda stored: stored["length"])
    if not runs:
        raise UserError(f"{results} holds no finished run: write --stages train time report")
    for run in runs:
        pair = ({name: each["arguments"][name] for name in DECISIVE} for each in (runs[0], run))
        check_arguments(f"{results} holds runs of different arguments, one of which", *pair)
    cells: dict[tuple[str, int], list[Run]] = {}
    for run in runs:
        cells.setdefault((run["system"], run["length"]), []).append(run)
    parts = ["# Masked summation", *error_sections(runs, cells), *(time_sections(times) if times else ())]
    guesses = {run["length"]: run["guesses"] for run in runs}
    errors = {
        system: [(n, fmean(run["test"] for run in cells[system, n])) for n in sorted(guesses) if (system, n) in cells]
        for system in SYSTEMS
    }
    errors["always k/2"] = [(n, guesses[n]["half"]) for n in sorted(guesses)]
    pictures = [plot_over_n(errors, folder / "figure_3a.png", "test MSE")]
    if times:
        points = {
            system: [(each["length"], x) for each in times if (x := milliseconds(each, system)) is not None]
            for system in SYSTEMS
        }
        label = f"ms for {times[0]['rows']} examples"
        pictures.append(plot_over_n(points, folder / "figure_3b.png", label, True))
    parts += [f"![{picture.stem.replace('_', ' ')}]({picture.name})" for picture in pictures]
    page = "\n\n".join(parts) + "\n"
    write_text(folder / "results.md", page)
    return page


def milliseconds(times: Run, system: str) -> float | None:
    """The median pass over a batch."""
    seconds = times["seconds"].get(system)
    return 1e3 * median(seconds) if seconds else None


def plot_over_n(
    lines: Mapping[str, list[tuple[int, float]]], path: Path, ylabel: str, with_slopes: bool = False
) -> Path:
    """Draw (n, value) of each system, both axes logarithmic; with slopes, the exponents of the nearest power laws."""
    figure, (axis,) = new_figure(width=7.4, height=4.6)
    lines = {system: points for system, points in lines.items() if points}
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


def error_sections(runs: list[Run], cells: Mapping[tuple[str, int], list[Run]]) -> Iterator[str]:
    """The task, the errors, and the cost of the runs."""
    first, arguments = runs[0], runs[0]["arguments"]
    guesses = {run["length"]: run["guesses"] for run in runs}
    lengths = sorted(guesses)
    yield (
        f"Test MSE: the mean over {arguments['test_samples']:,} examples and the {arguments['width'] - 1} numbers of "
        f"each target; k = {arguments['flagged']}, d = {arguments['width']}; the mean over seeds, ± the deviation, "
        f"and in brackets how many seeds have run. {arguments['train_samples']:,} training examples, "
        f"{arguments['num_train_epochs']:g} epochs, batch {arguments['per_device_train_batch_size']}, peak learning "
        f"rate {arguments['learning_rate']:g}. `--` marks rows without a finished run. The last rows need no model: "
        "always k/2, and k/n times the sum of all vectors, flagged or not."
    )
    heads = ["", *(f"n = {length}" for length in lengths)]
    systems = [name for name in SYSTEMS if any(run["system"] == name for run in runs)]

    def rows(cell: Callable[[list[Run]], str]) -> list[list[object]]:
        return [[name, *(cell(cells.get((name, length), [])) for length in lengths)] for name in systems]

    errors = rows(error_cell)
    for name, title in (("half", "always k/2"), ("scaled", "k/n of the sum of all")):
        errors.append([title, *(f"{guesses[length][name]:.4f}" for length in lengths)])
    paper = PAPER if (arguments["flagged"], arguments["width"]) == (10, 10) else {}
    errors = [[*row, paper.get(str(row[0]), "--")] for row in errors]
    yield markdown_table([*heads, "paper, n = 200"], errors)
    if any(map(ran_on_gpu, runs)):
        yield f"{ON_GPU} On a GPU: elsewhere the same seed gives other digits."
    yield (
        "Each run's arguments and environment are in its line of the file. To make one again, with as many threads "
        f"and the same instructions: `OMP_NUM_THREADS={first['environment']['threads']} python "
        f"experiments/masked_summation.py --systems {first['system']} --lengths {first['length']} --seeds "
        f"{first['seed']} --output_dir outputs/again`"
    )
    yield f"Parameters, and minutes of training ({places(runs)}):"
    yield markdown_table(
        heads, rows(lambda runs: f"{runs[0]['parameters']:,}{training_minutes(runs)}" if runs else "--")
    )


def time_sections(times: list[Run]) -> Iterator[str]:
    """The times of a pass."""
    # Fewer where one took too long to be repeated.
    passes = max(len(seconds) for entry in times for seconds in entry["seconds"].values())
    yield (
        f"Test time: milliseconds of a forward pass over {times[0]['rows']} examples, the median of {passes} passes "
        f"of all systems in turn after one to warm up ({places(times)})."
    )

    def cell(entry: Run, system: str) -> str:
        found = milliseconds(entry, system)
        return entry["errors"].get(system, "--") if found is None else f"{found:,.1f}"

    systems = [name for name in SYSTEMS if any(name in entry["config"] for entry in times)]
    table = [[system, *(cell(entry, system) for entry in times)] for system in systems]
    yield markdown_table(["", *(f"n = {entry['length']}" for entry in times)], table)


def places(entries: Sequence[Run]) -> str:
    """Devices, threads and versions of runs or times."""
    names = set()
    for entry in entries:
        made = entry["environment"]
        instructions = f" ({made['instructions']})" if made.get("instructions") else ""
        versions = "PyTorch {torch}, transformers {transformers}".format(**made)
        names.add(f"{made['device']}{instructions}, threads {made['threads']}, {versions}")
    return "; ".join(sorted(names))


def error_cell(runs: Sequence[Run]) -> str:
    """0.0041 ± 0.0002 (3), marked where one ran on a GPU"""
    if not runs:
        return "--"
    errors = [run["test"] for run in runs]
    deviation = f" ± {stdev(errors):.4f}" if len(errors) > 1 else ""
    return f"{fmean(errors):.4f}{deviation} ({len(errors)})" + (f" {ON_GPU}" if any(map(ran_on_gpu, runs)) else "")


def main() -> None:
    """Read the arguments, run what is missing, report."""
    try:
        options = parse()
        file = RunFile(options.output_dir / "results.jsonl")
        for system in options.systems:  # an error before hours are spent on the systems before it
            build(system, options)
        made_with = {name: value for name, value in {**vars(options), **TRAINING}.items() if name in DECISIVE}
        for system, length, seed, name in list(due(options, file, made_with)):
            with claim(options.output_dir / "running" / name) as free:  # but for what another process does
                if free and file.read(name) is None:
                    run = train(system, length, seed, options) | {"arguments": made_with}
                    file.keep({name: run})
                    print(f"{name}: MSE {run['validation']:.4f} on validation, {run['test']:.4f} on test", flush=True)
        print(write_report(file.path, options.output_dir))
    except UserError as error:
        sys.exit(f"masked_summation.py: {error}")


if __name__ == "__main__":
    main()
