"""The benchmark: what it reads, what it runs, how it counts. No timing decides a test."""

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from harness import benchmark, benchmark_report, benchmark_workloads
from harness.benchmark import Timing
from harness.benchmark_count import LaunchCounter, count_launches, count_operations
from harness.benchmark_options import SYSTEMS, Options
from harness.benchmark_systems import Subject, check_systems
from harness.benchmark_workloads import Workload
from torch.utils.flop_counter import FlopCounterMode

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, Any] = {
    "hidden_size": 12,
    "num_heads": 2,
    "vocab_size": 100,
    "lexicon_words": 300,
    "repeats": 1,
}
PADDED = Workload("lengths", [[16, 3, 9], [5, 1]])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence models that pad their input; restore PyTorch's threads."""
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)


def run_once(system: str, workload: Workload, **more: Any) -> Subject:
    options = Options(systems=[system], **{**TINY, **more})
    subject = Subject(system, options, workload.longest)
    subject.run(subject.prepare(benchmark_workloads.draw_ids(workload, options), workload.rows))
    return subject


# ------ what is read


@pytest.mark.parametrize("text", ["16", "x16", "3x0", "3x16x2"])
def test_a_bad_shape_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--shapes"):
        benchmark_workloads.parse_shape(text)


@pytest.mark.parametrize("content", [b"16\nseven\n", b"16\n0\n", b"\n", b"\xff\xfe\xfa", None])
def test_a_bad_file_of_lengths_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "lengths.txt").write_bytes(content)
    with pytest.raises(UserError, match="--lengths"):
        benchmark_workloads.read_lengths(tmp_path / "lengths.txt")


@pytest.mark.parametrize("name", ["bert-sdap", "bert-sdap-onnx"])
def test_an_unknown_system_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=name):
        check_systems(Options(systems=[name]))
    with pytest.raises(UserError, match=name):
        check_systems(Options(reference=[name]))


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        ([{"text": "a b  c"}, {"text": ""}], [3, 1]),
        ([{"text": "a b", "tokens": ["a", "b", "c", "d"]}], [4]),
        ([{"text": "今天 天气不错。"}, {"text": "OK"}, {"text": "我喜欢 Python 3.11 和transformers"}], [7, 1, 7]),
        ([{"tokens": ["今天", "天气"]}], [2]),
    ],
)
def test_lengths_of_a_data_set_are_counted_in_words(tmp_path: Path, rows: list[dict], lengths: list[int]) -> None:
    path = tmp_path / "test.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert benchmark_workloads.read_lengths(path) == lengths


def test_batches_are_in_the_files_order_and_truncated(tmp_path: Path) -> None:
    for name, lengths in {"a.txt": "9\n2\n\n 7 \n", "b.txt": "1\n8"}.items():
        (tmp_path / name).write_text(lengths, encoding="utf-8")
    workload = benchmark_workloads.lengths_workload([tmp_path / "a.txt", tmp_path / "b.txt"], 2, truncate=8)
    assert workload == Workload("a.txt and 1 more", [[8, 2], [7], [1, 8]])


# ------ the systems


@pytest.mark.parametrize("system", ["star", "fnet"])
@pytest.mark.slow
def test_in_onnx_runtime_a_system_computes_the_same(system: str) -> None:
    subject = Subject(f"{system}-onnx", Options(systems=[f"{system}-onnx"], num_layers=1, **TINY), PADDED.longest)
    for batch in subject.prepare(benchmark_workloads.draw_ids(PADDED, subject.options), 3):
        for ids, mask in batch:
            real = torch.ones_like(ids).bool() if mask is None else mask.bool()
            given = {} if system == "fnet" or mask is None else {"attention_mask": mask}
            expected = subject.model(ids, **given).last_hidden_state
            assert (subject._states(ids, mask) - expected)[real].abs().max() < 1e-4  # float32, and Fourier sums
    assert not isinstance(subject.call, torch.nn.Module)


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize(("mode", "times"), [("forward", 1), ("train", 3)])
def test_the_lower_bound_has_6t_minus_2_products_a_token(layers: int, mode: str, times: int) -> None:
    workload = Workload("lengths", [[2000, 600]])  # blocks that are full, and one that is not
    with FlopCounterMode(display=False) as counter:
        run_once("products", workload, num_layers=layers, mode=mode)
    assert counter.get_total_flops() == times * 2 * (6 * layers - 2) * 12**2 * 2600


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_every_system_runs_full_and_padded_batches(mode: str) -> None:
    options = Options(systems=list(SYSTEMS), mode=mode, **TINY)
    workloads = [benchmark_workloads.parse_shape("2x16"), PADDED]
    results = [result for workload in workloads for result in benchmark.measure(options, workload)]
    assert [(result.workload, result.system) for result in results] == [
        (workload.name, system) for workload in workloads for system in SYSTEMS
    ]
    assert [(result.system, result.error) for result in results if result.error] == []
    assert all(result.milliseconds > 0 and result.passes == 1 for result in results)


# ------ counting


def test_ratios_are_those_of_the_medians() -> None:
    timings = {
        ("bert-sdpa", 4): Timing((0.5, 0.1, 0.4)),
        ("star", 4): Timing((0.1, 0.3, 0.01)),
        ("products", 4): Timing((0.05,)),
        ("fnet", 4): Timing(error="no"),
    }
    bert, star, products, fnet = benchmark.summarize(benchmark_workloads.parse_shape("4x50"), timings, ["bert-sdpa"])
    assert (bert.milliseconds, bert.speed, bert.of_products) == pytest.approx((400, 1, 8))
    assert (star.milliseconds, star.speed, star.of_products) == pytest.approx((100, 4, 2))
    assert (star.tokens_per_second, star.microseconds_per_token) == pytest.approx((2000, 500))
    assert (star.passes, products.passes) == (3, 1)
    assert (fnet.milliseconds, fnet.speed, fnet.error) == (None, None, "no")


def test_each_best_is_compared_with_the_references_best() -> None:
    timings = {
        ("star", 4): Timing((0.2,)),
        ("star", 1): Timing((0.3,)),
        ("bert-sdpa", 4): Timing((0.8,)),
        ("bert-sdpa", 1): Timing((0.5,)),
        ("fnet", 4): Timing(error="no"),
        ("fnet", 1): Timing((1.0,)),
    }
    results = benchmark.summarize(benchmark_workloads.parse_shape("4x50"), timings, ["bert-sdpa"])
    assert [(result.batching, result.system, result.rows) for result in results] == [
        *(("whole", name, 4) for name in ("star", "bert-sdpa", "fnet")),
        *(("best", "star", 4), ("best", "bert-sdpa", 1), ("best", "fnet", 1)),
    ]
    assert [result.speed for result in results] == pytest.approx([4, 1, None, 2.5, 1, 0.5])


# ------ what is written


def test_results_are_written_as_csv_markdown_and_plots(tmp_path: Path) -> None:
    options = Options(systems=["star", "bert-sdpa"], own_best_batch=True, **TINY)
    workloads = [benchmark_workloads.parse_shape("3x8"), benchmark_workloads.parse_shape("2x16"), PADDED]
    results = [result for workload in workloads for result in benchmark.measure(options, workload)]
    page = benchmark_report.write_results(options, workloads, results, tmp_path, "the command")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("results.csv", "results.md", "time_by_length.png", "time_by_length_best.png")
    ]
    with open(tmp_path / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 2  # workloads, systems, whole and best
    assert {row["batching"] for row in rows} == {"whole", "best"}
    assert all(word in page for word in ("the command", torch.__version__, "34 tokens", "59 %"))  # of 3 x 16 + 2 x 5
    assert page.count("| 3x8 | star |") == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_peak_memory_is_that_of_a_pass(mode: str) -> None:
    """The scores alone of BERT's attention as it is written down are 2 x 2 x 1,000^2 x 4 bytes."""
    options = Options(systems=["bert-eager"], mode=mode, **TINY)
    megabytes, error = benchmark.peak_memory(options, "bert-eager", Workload("2x1000", [[1000, 1000]], 1000), 2)
    assert error == ""
    assert 16 < megabytes < 500


@pytest.mark.slow
def test_a_pass_without_enough_memory_has_an_error() -> None:
    options = Options(systems=["bert-eager"], max_memory=0.5, **TINY)
    workload = benchmark_workloads.parse_shape("2x8000")  # 1 GB of scores
    [result] = benchmark.measure(options, workload)
    assert result.milliseconds is None
    assert "memory" in result.error
    megabytes, error = benchmark.peak_memory(options, "bert-eager", workload, 2)
    assert megabytes is None
    assert error.startswith("memory: ")


@pytest.mark.slow
def test_the_script_measures_a_file_of_lengths_and_prints_its_table(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("16\n3\n9\n", encoding="utf-8")
    command = [sys.executable, "experiments/benchmark.py", "--systems", "star", "bert-sdpa"]
    command += ["--hidden_size=12", "--num_heads=2", "--vocab_size=100", "--lexicon_words=300", "--repeats=1"]
    command += ["--lengths", str(tmp_path / "lengths.txt"), "--batch_size=2", "--truncate=8", "--memory"]
    command += ["--threads=1"]
    command += ["--mode=train", "--output_dir", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "results.md").read_text(encoding="utf-8") in done.stdout
    with open(tmp_path / "out" / "results.csv", encoding="utf-8", newline="") as file:
        assert all(float(row["megabytes"]) >= 0 and row["error"] == "" for row in csv.DictReader(file))
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).returncode == 1  # nothing is overwritten


def test_a_kernel_is_one_launch_and_a_view_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODELING_STAR_KERNELS", "1")
    options = Options(systems=["star"], **TINY)
    full, padded = (count_launches("star", options, Workload("2x5", [[5, 5]]), padding) for padding in (0, 1))
    # Star's products, norms and kernels of two layers; the layout of a batch without padding is kept.
    assert 40 < full.launches < padded.launches < 130
    assert full.waits < padded.waits < 6
    counter = LaunchCounter()
    with counter:
        (torch.empty(2, 3).t().reshape(6) + 1).sum().item()
    assert (counter.launches, counter.waits) == (3, 1)  # the copy, the addition and the sum


def test_operations_are_counted_by_part_and_by_step() -> None:
    options = Options(systems=["star"], **TINY)
    forward, steps = count_operations("star", options, Workload("1x5", [[5]]))
    assert forward["layers"] > forward["checks"] > 0
    assert forward.total() < steps["forward"] < steps.total()
