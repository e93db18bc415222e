"""Files of the benchmark: results.csv, results.md and plots over length."""

import csv
import io
import math
import os
import platform
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Literal

import torch
import transformers

from harness.benchmark import Result
from harness.benchmark_options import Options, plain_name
from harness.benchmark_systems import PARTS, UNMASKED
from harness.benchmark_workloads import Workload
from harness.plots import plot_over_length
from modeling_star import __version__
from modeling_star.evaluation.reports import BLUE, GREEN, ORANGE, markdown_table
from modeling_star.files import write_text


# Whether our Triton kernels run.
KERNELS = "MODELING_STAR_KERNELS"
COLORS = {"star": BLUE, "big": ORANGE, "vanilla": GREEN, "products": "#888888", "matching": "#bbbbbb"}
TITLES = {"whole": "Called alike, whole batches", "best": "Each with sub-batches of its own best size"}


def environment(options: Options) -> dict[str, str]:
    """What the numbers depend on besides the options."""
    info = Path("/proc/cpuinfo")
    model = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    return {
        "modeling_star": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "CPU": f"{model[1] if model else platform.processor() or platform.machine()}, {os.cpu_count()} seen",
        **({"GPU": torch.cuda.get_device_name(options.device)} if options.on_gpu else {}),
        "threads": str(torch.get_num_threads()),
        **({KERNELS: os.environ[KERNELS]} if KERNELS in os.environ else {}),
    }


def report(options: Options, workloads: Sequence[Workload], results: Sequence[Result], command: str) -> str:
    """The Markdown page: options, environment, command, and a table for each batching."""
    work = "forward pass" if options.mode == "forward" else "training step (forward, backward, AdamW)"
    unmasked = [name for name in options.systems if plain_name(name) in UNMASKED]
    note = f" Without a mask, so that padding is read as tokens: {', '.join(unmasked)}." if unmasked else ""
    parts = [
        f"# Benchmark: {work}",
        f"Width {options.hidden_size}, {options.num_layers} layers, {options.num_heads} heads, vocabulary "
        f"{options.vocab_size:,}, {options.dtype}, {options.device}{', compiled' if options.compile else ''}"
        f"{', CUDA graphs' if options.graphs else ''}, seed "
        f"{options.seed}. Median of {options.repeats} interleaved passes after one to warm up"
        f"{' (and one before, to compile)' if options.compiles else ''}; where that took over "
        f"{options.max_seconds:g} s, it is the only one. Tokens are real ones, without padding.{note}",
        "; ".join(f"{name} {value}" for name, value in environment(options).items()) + ".",
        f"    {command}",
    ]
    for workload in workloads:
        if workload.length is None:
            share = 100 * workload.tokens / sum(len(batch) * max(batch) for batch in workload.batches)
            parts.append(
                f"{workload.name}: {workload.sequences:,} texts, {workload.tokens:,} tokens, longest "
                f"{workload.longest:,}, in {len(workload.batches):,} batches; padded, {share:.0f} % of them are real."
            )
    for batching, title in TITLES.items():
        rows = [result for result in results if result.batching == batching]
        parts += [f"## {title}", _table(rows, options)] if rows else []
    return "\n\n".join(parts) + "\n"


def _table(results: Sequence[Result], options: Options) -> str:
    references = " or ".join(dict.fromkeys(result.reference for result in results if result.reference)) or "-"
    columns: dict[str, Callable[[Result], object]] = {
        "batch x n": lambda result: result.workload,
        "system": lambda result: result.system,
        "rows": lambda result: result.rows,
        "ms": lambda result: _number(result.milliseconds),
        "tokens/s": lambda result: _number(result.tokens_per_second),
        "us/token": lambda result: _number(result.microseconds_per_token),
        f"times as fast as {references}": lambda result: _number(result.speed),
        "time / products": lambda result: _number(result.of_products),
        "peak MB": lambda result: _number(result.megabytes),
        "passes": lambda result: result.passes,
        "note": lambda result: result.error,
    }
    if all(result.batching == "whole" for result in results):
        del columns["rows"]
    if all(result.of_products is None for result in results):
        del columns["time / products"]
    if not options.memory:
        del columns["peak MB"]
    return markdown_table(list(columns), [[cell(result) for cell in columns.values()] for result in results])


def _number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def fitted_slope(lengths: Sequence[float], values: Sequence[float]) -> float:
    """The exponent of the power law nearest to the points: the slope of a line through their logarithms."""
    return statistics.linear_regression([math.log(x) for x in lengths], [math.log(y) for y in values]).slope


def plot_by_length(results: Sequence[Result], path: Path, value: Literal["milliseconds", "megabytes"]) -> None:
    """
    Draw `value` for one sequence over its length, with each system's slope; nothing where no system has two lengths.

    Args:
        results: of one batching; those without a length or the value are skipped.
        path: the PNG to write.
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        amount = getattr(result, value)
        if result.length is not None and amount is not None and amount > 0:
            points.setdefault(result.system, []).append((result.length, amount / result.sequences))
    lines = {system: line for system, line in points.items() if len(dict(line)) > 1}
    if lines:
        plot_over_length(
            lines,
            path,
            {"milliseconds": "ms a sequence", "megabytes": "peak MB a sequence"}[value],
            colors=COLORS,
            labels={name: f"{name}  n^{fitted_slope(*zip(*line, strict=True)):.2f}" for name, line in lines.items()},
            dashed=tuple(PARTS),
        )


def write_results(
    options: Options, workloads: Sequence[Workload], results: Sequence[Result], folder: Path, command: str
) -> str:
    """
    Write results.csv, results.md and, where lengths differ, PNG plots into `folder`.

    Returns:
        The text of results.md.
    """
    table = io.StringIO()
    writer = csv.DictWriter(table, [field.name for field in fields(Result)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(result) for result in results)
    write_text(folder / "results.csv", table.getvalue())
    page = report(options, workloads, results, command)
    write_text(folder / "results.md", page)
    for batching, ending in (("whole", ""), ("best", "_best")):
        rows = [result for result in results if result.batching == batching]
        plot_by_length(rows, folder / f"time_by_length{ending}.png", "milliseconds")
        plot_by_length(rows, folder / f"memory_by_length{ending}.png", "megabytes")
    return page
