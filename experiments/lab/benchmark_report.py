"""Files of the benchmark: results.csv, results.md and plots over length."""

import csv
import io
import math
import os
import platform
import re
import statistics
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Literal

import torch
import transformers

from lab.benchmark import Result
from lab.benchmark_options import IN_ONNX, Options
from lab.benchmark_systems import PARTS, UNMASKED
from lab.benchmark_workloads import Workload
from lab.plots import plot_over_length
from modeling_star import __version__
from modeling_star.evaluation.reports import BLUE, GREEN, ORANGE, markdown_table, write_text


# Whether our Triton kernels run (attention.use_kernels).
KERNELS = "MODELING_STAR_KERNELS"
COLORS = {"star": BLUE, "big": ORANGE, "vanilla": GREEN, "products": "#888888", "matching": "#bbbbbb"}


def environment(options: Options) -> dict[str, str]:
    """What the numbers depend on besides the options."""
    return {
        "modeling_star": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "CPU": f"{_cpu_name()}, {os.cpu_count()} seen",
        **({"GPU": torch.cuda.get_device_name(options.device)} if options.on_gpu else {}),
        "threads": str(torch.get_num_threads()),
        **({KERNELS: os.environ[KERNELS]} if KERNELS in os.environ else {}),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def report(options: Options, workloads: Sequence[Workload], results: Sequence[Result], command: str = "") -> str:
    """The Markdown page: what was measured, on what, and a table for whole batches and for each system's best."""
    work = "forward pass" if options.mode == "forward" else "training step (forward, backward, AdamW)"
    named = "; ".join(f"{name} {value}" for name, value in environment(options).items())
    lines = [
        f"# Benchmark: {work}",
        "",
        f"Width {options.hidden_size}, {options.num_layers} layers, {options.num_heads} heads, vocabulary "
        f"{options.vocab_size:,}, {options.dtype}, {options.device}{', compiled' if options.compile else ''}, seed "
        f"{options.seed}. Median of {options.repeats} interleaved passes after one to warm up"
        f"{' (and one before, to compile)' if options.compiles else ''}; where that took over "
        f"{options.max_seconds:g} s, it is the only one. Tokens are real ones, without padding.{_unmasked(options)}",
        "",
        f"{named}.",
    ]
    if command:
        lines += ["", f"    {command}"]
    for workload in workloads:
        if workload.length is None:
            cells = sum(len(batch) * max(batch) for batch in workload.batches)
            share = 100 * workload.tokens / cells
            lines += [
                "",
                f"{workload.name}: {workload.sequences:,} texts, {workload.tokens:,} tokens, longest "
                f"{workload.longest:,}, in {len(workload.batches):,} batches; padded, {share:.0f} % of them are real.",
            ]
    titles = {"whole": "Called alike, whole batches", "best": "Each with sub-batches of its own best size"}
    for batching, title in titles.items():
        rows = [result for result in results if result.batching == batching]
        if rows:
            lines += ["", f"## {title}", "", _table(rows, options)]
    return "\n".join(lines) + "\n"


def _unmasked(options: Options) -> str:
    names = [name for name in options.systems if name.removesuffix(IN_ONNX) in UNMASKED]
    return f" Without a mask, so that padding is read as tokens: {', '.join(names)}." if names else ""


def _table(results: Sequence[Result], options: Options) -> str:
    best = any(result.batching == "best" for result in results)
    products = any(result.of_products is not None for result in results)
    header = ["batch x n", "system", *(["rows"] if best else []), "ms", "tokens/s", "us/token"]
    compared = list(dict.fromkeys(result.reference for result in results if result.reference))
    header += [f"times as fast as {' or '.join(compared) or '-'}", *(["time / products"] if products else [])]
    header += [*(["peak MB"] if options.memory else []), "passes", "note"]
    rows = []
    for result in results:
        row = [result.workload, result.system, *([result.rows] if best else []), _number(result.milliseconds)]
        row += [_number(result.tokens_per_second), _number(result.microseconds_per_token), _number(result.speed)]
        row += [*([_number(result.of_products)] if products else [])]
        row += [*([_number(result.megabytes)] if options.memory else []), result.passes, result.error]
        rows.append(row)
    return markdown_table(header, rows)


def _number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def fitted_slope(lengths: Sequence[float], values: Sequence[float]) -> float:
    """
    The exponent of the power law nearest to the points: the slope of a line through their logarithms.

    Raises:
        ValueError: fewer than two different lengths.
    """
    if len(set(lengths)) < 2:
        raise ValueError(f"A slope needs two different lengths; {sorted(set(lengths))} are given.")
    return statistics.linear_regression([math.log(x) for x in lengths], [math.log(y) for y in values]).slope


def plot_by_length(results: Sequence[Result], path: Path, value: Literal["milliseconds", "megabytes"]) -> Path | None:
    """
    Draw `value` for one sequence over its length, both logarithmic, with each system's slope in the legend.

    Args:
        results: of one batching; those without a length or the value are left out.
        path: the PNG to write.

    Returns:
        The path, or None where no system has two lengths (and nothing is written).
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        amount = getattr(result, value)
        if result.length is not None and amount is not None and amount > 0:
            points.setdefault(result.system, []).append((result.length, amount / result.sequences))
    points = {system: own for system, own in points.items() if len({length for length, _ in own}) > 1}
    if not points:
        return None
    return plot_over_length(
        points,
        path,
        {"milliseconds": "ms a sequence", "megabytes": "peak MB a sequence"}[value],
        colors=COLORS,
        labels={system: f"{system}  n^{fitted_slope(*zip(*own, strict=True)):.2f}" for system, own in points.items()},
        dashed=tuple(PARTS),
    )


def write_results(
    options: Options, workloads: Sequence[Workload], results: Sequence[Result], folder: Path, command: str = ""
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
