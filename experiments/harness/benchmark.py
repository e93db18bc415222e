"""Encoders side by side: time, tokens per second and peak memory of a forward pass or a training step.

All systems get the same random ids and run interleaved in one process, so that other jobs of the machine disturb all
of them alike. `experiments/benchmark.py` is the command line.
"""

import ctypes
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm

from harness.benchmark_options import Options
from harness.benchmark_systems import Subject
from harness.benchmark_workloads import Workload, draw_ids, sub_batch_sizes


@dataclass(frozen=True)
class Timing:
    """Seconds of each measured pass, or why there is none."""

    seconds: tuple[float, ...] = ()
    error: str = ""


def interleave(
    passes: Mapping[Any, Callable[[], object]],
    repeats: int,
    max_seconds: float,
    *,
    untimed: bool = False,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[int], object] = lambda count: None,
) -> dict[Any, Timing]:
    """
    Time passes in rounds: each once to warm up, then all in turn, `repeats` times.

    Args:
        passes: functions by name; one that raises is not run again, and keeps the first line of its error.
        max_seconds: one whose warm-up took longer keeps that as its only measurement.
        untimed: run each once before, without a clock, since a first pass compiles.
        clock: seconds.
        tick: called with the number of passes done or dropped, of `repeats + 1` each, and one more if `untimed`.

    Returns:
        A `Timing` for each name, in their order.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in passes}
    errors: dict[Any, str] = {}
    due = dict(passes)
    for turn in range(-1 if untimed else 0, repeats + 1):
        for name, run in list(due.items()):
            start = clock()
            try:
                run()
            except Exception as error:
                errors[name] = first_line(error)
            taken = clock() - start
            slow = turn == 0 and taken > max_seconds
            if name in errors or slow:
                del due[name]
            if name not in errors and (turn > 0 or slow):
                seconds[name].append(taken)
            tick(1 if name in due else repeats + 1 - turn)
    return {name: Timing(() if name in errors else tuple(seconds[name]), errors.get(name, "")) for name in passes}


def first_line(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])[:200]


@dataclass
class Result:
    """
    A row of results.csv.

    `length` is None where rows differ; `batching` is "whole", or "best" with the sub-batches that this system is
    fastest with, of `rows` rows; `milliseconds` is the median, or None with an `error`; rates are over real tokens;
    `speed` is times as fast as `reference`; `of_products` is time over that of the products alone; `megabytes` is peak
    memory of a pass on top of what was held before it (weights; in training also AdamW's state).
    """

    workload: str
    length: int | None
    sequences: int
    tokens: int
    system: str
    batching: str
    rows: int
    passes: int = 0
    milliseconds: float | None = None
    tokens_per_second: float | None = None
    microseconds_per_token: float | None = None
    reference: str = ""
    speed: float | None = None
    of_products: float | None = None
    megabytes: float | None = None
    error: str = ""


def summarize(
    workload: Workload, timings: Mapping[tuple[str, int], Timing], references: Sequence[str]
) -> list[Result]:
    """
    Medians and ratios.

    Args:
        workload: the input.
        timings: by system and rows of a sub-batch; as many as the largest batch has are whole batches.
        references: the others are compared with the first of them that ran, whole with whole and best with best.

    Returns:
        A row for each system, "whole"; and where there are sub-batches, a second one, "best".
    """
    whole = {system: (rows, timing) for (system, rows), timing in timings.items() if rows == workload.rows}
    tables = {"whole": whole}
    if len(timings) > len(whole):
        best: dict[str, tuple[int, Timing]] = {}
        for (system, rows), timing in timings.items():
            if timing.seconds and (system not in best or _median(timing) < _median(best[system][1])):
                best[system] = (rows, timing)
        tables["best"] = {system: best.get(system, whole[system]) for system in whole}
    results = []
    for batching, table in tables.items():
        medians = {system: _median(timing) for system, (_, timing) in table.items() if timing.seconds}
        reference = next((name for name in references if name in medians), "")
        for system, (rows, timing) in table.items():
            result = Result(
                workload.name, workload.length, workload.sequences, workload.tokens, system, batching, rows
            )
            result.passes, result.error = len(timing.seconds), timing.error
            median = medians.get(system)
            if median is not None:
                result.milliseconds = 1e3 * median
                result.tokens_per_second = workload.tokens / median
                result.microseconds_per_token = 1e6 * median / workload.tokens
                result.reference, result.speed = reference, medians[reference] / median
                result.of_products = median / medians["products"] if "products" in medians else None
            results.append(result)
    return results


def _median(timing: Timing) -> float:
    return statistics.median(timing.seconds)


@contextmanager
def memory_limit(gigabytes: float | None) -> Iterator[None]:
    """Let allocations beyond it fail with an error, instead of the system ending the process."""
    if gigabytes is None:
        yield
        return
    import resource  # not on Windows, where the other measures work

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def measure(options: Options, workload: Workload) -> list[Result]:
    """
    Run every system over a workload.

    A system that cannot be built or run has its error in place of numbers.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    ids = draw_ids(workload, options)
    sizes = [workload.rows, *(sub_batch_sizes(workload.rows) if options.own_best_batch else [])]
    timings: dict[tuple[str, int], Timing] = {}
    passes: dict[tuple[str, int], Callable[[], object]] = {}
    with memory_limit(options.max_memory), tqdm(desc=workload.name, unit="pass", disable=None) as bar:
        for system in options.systems:
            try:
                subject = Subject(system, options, workload.longest)
                for rows in sizes:
                    timings[system, rows] = Timing()  # keeps the order of the systems
                    passes[system, rows] = partial(subject.run, subject.prepare(ids, rows))
            except Exception as error:
                passes = {key: run for key, run in passes.items() if key[0] != system}
                timings |= {(system, rows): Timing(error=first_line(error)) for rows in sizes}
        bar.total = len(passes) * (options.repeats + 1 + options.compiles)
        clock = time.process_time if options.cpu_time else time.perf_counter
        timings |= interleave(
            passes, options.repeats, options.max_seconds, untimed=options.compiles, clock=clock, tick=bar.update
        )
    results = summarize(workload, timings, options.references)
    passes.clear()
    gc.collect()
    peaks: dict[tuple[str, int], tuple[float | None, str]] = {}  # "whole" and "best" may be the same
    for result in tqdm(results, f"{workload.name} memory", unit="system", disable=None) if options.memory else ():
        key = (result.system, result.rows)
        if result.milliseconds is not None:
            if key not in peaks:
                peaks[key] = peak_memory(options, result.system, workload, result.rows)
            result.megabytes, result.error = peaks[key]
    return results


# Memory


def peak_memory(options: Options, system: str, workload: Workload, rows: int) -> tuple[float | None, str]:
    """
    MB that a pass needs at its peak on top of what is held before it, measured in a fresh process.

    Returns:
        The megabytes (10^6 bytes) and an empty string, or None and what went wrong.
    """
    request = {"options": asdict(options), "system": system, "workload": asdict(workload), "rows": rows}
    experiments = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(filter(None, [str(experiments), str(experiments.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", "from harness.benchmark import answer_memory; answer_memory()"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        message = done.stderr.strip().splitlines()[-1:] or [f"ended by signal {-done.returncode}"]
        return None, f"memory: {message[0]}"[:200]
    return json.loads(done.stdout.splitlines()[-1]), ""


def answer_memory() -> None:
    """The process of `peak_memory`: read the request from stdin, print the megabytes."""
    transformers.logging.set_verbosity_error()
    request = json.load(sys.stdin)
    options, workload = Options(**request["options"]), Workload(**request["workload"])
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with memory_limit(options.max_memory):
        ids = draw_ids(workload, options)
        subject = Subject(request["system"], options, workload.longest)
        batches = subject.prepare(ids, request["rows"])
        # Memory that libraries allocate once, AdamW's state and a compiler's are not part of a pass.
        subject.run(batches if options.compiles else subject.prepare([[ids[0][0][:16]]], 1))
        gc.collect()
        if options.on_gpu:
            torch.cuda.reset_peak_memory_stats(options.device)
            before = torch.cuda.memory_allocated(options.device)
            subject.run(batches)
            peak = torch.cuda.max_memory_allocated(options.device)
        else:
            _trim_memory()
            before = _resident_bytes(reset_peak=True)
            subject.run(batches)
            peak = _resident_bytes(peak=True)
    print(json.dumps((peak - before) / 1e6))


def _trim_memory() -> None:
    """Return freed memory to the system: a pass would use it without the peak rising."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _resident_bytes(*, peak: bool = False, reset_peak: bool = False) -> int:
    """Bytes of this process in memory, now or at most. On Linux ru_maxrss of a child begins with its parent's."""
    status = Path("/proc/self/status")
    if not status.is_file():
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return 1024 * int(lines["VmHWM" if peak else "VmRSS"].split()[0])
