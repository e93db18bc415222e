"""The benchmark: what it reads, what it runs, how it counts. No timing decides a test."""

import csv
import gzip
import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from lab import benchmark, benchmark_report, benchmark_systems, benchmark_workloads, plots
from lab.benchmark import Result, Timing
from lab.benchmark_count import LaunchCounter, count_launches, count_operations
from lab.benchmark_options import SYSTEMS, Options
from lab.benchmark_systems import PARTS, Subject, check_systems
from lab.benchmark_workloads import Workload
from torch.utils.flop_counter import FlopCounterMode

from modeling_star.errors import UserError
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


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


def test_what_onnx_runtime_and_a_cpu_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match="star-onnx"):
        Options(systems=["star-onnx"], mode="train")
    with pytest.raises(UserError, match="--graphs"):
        Options(systems=["star"], graphs=True)


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


def test_rows_have_the_requested_lengths_and_no_padding_inside() -> None:
    ids = benchmark_workloads.draw_ids(PADDED, Options(**TINY))
    assert [[len(row) for row in batch] for batch in ids] == PADDED.batches
    assert all(row.min() >= benchmark_workloads.FIRST_ID and row.max() < 100 for batch in ids for row in batch)


def test_words_of_the_lexicon_occur_in_the_input() -> None:
    """About half of the pieces are words of 2 to 4 tokens, the others single tokens: one word every 4 tokens."""
    options = Options(**{**TINY, "vocab_size": 5000})
    lexicon = benchmark_workloads.random_lexicon(options.lexicon_words, options.vocab_size, options.seed)
    [[row]] = benchmark_workloads.draw_ids(Workload("1x400", [[400]], 400), options)
    matcher = WordMatcher("words", WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    matches = matcher(row, TokenLayout.from_mask(torch.ones(1, 400, dtype=torch.bool), keep_padding=False))
    assert 90 <= int(matches.sum()) <= 120
    assert matches.any(0).tolist() == [False, True, True, True]
    start, length = (int(x) for x in matches.nonzero()[0])
    word = row[start : start + length + 1].tolist() + [-1] * (3 - length)
    assert word in lexicon.words.tolist()


def test_a_sub_batch_is_padded_to_its_own_longest_row() -> None:
    options = Options(systems=["bert-sdpa"], **TINY)
    subject = Subject("bert-sdpa", options, PADDED.longest)
    first, second = subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 2)
    assert [tuple(ids.shape) for ids, _ in first + second] == [(2, 16), (1, 9), (2, 5)]
    assert [None if mask is None else mask.sum(1).tolist() for _, mask in first + second] == [[16, 3], None, [5, 1]]


# ------ the systems


@pytest.mark.parametrize("system", [name for name in SYSTEMS if name not in PARTS])
def test_a_system_has_the_requested_width_and_depth(system: str) -> None:
    options = Options(systems=[system], num_layers=3, **TINY)
    model = benchmark_systems.build(system, options, 16)
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (3, 12)
    assert tuple(model.get_input_embeddings().weight.shape) == (100, 12)


@pytest.mark.parametrize("system", ["star", "bert-sdpa"])
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_what_is_timed_trains_or_does_not_and_knows_the_padding(system: str, mode: str) -> None:
    options = Options(systems=[system], mode=mode, **TINY)
    subject = Subject(system, options, PADDED.longest)
    seen: list[tuple[bool, bool, int]] = []

    def note(module: Any, args: Any, given: dict[str, Any]) -> None:
        seen.append((module.training, torch.is_grad_enabled(), int(given["attention_mask"].sum())))

    subject.model.register_forward_pre_hook(note, with_kwargs=True)
    subject.run(subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 3))
    trains = mode == "train"
    assert seen == [(trains, trains, 16 + 3 + 9), (trains, trains, 5 + 1)]
    assert (subject.optimizer is not None) == trains


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


def test_a_part_of_a_model_is_not_run_by_onnx_runtime() -> None:
    options = Options(systems=["products-onnx", "star"], **TINY)
    part, whole = benchmark.measure(options, PADDED)
    assert part.error == "ValueError: a part of a model is not run by ONNX Runtime."
    assert whole.milliseconds


def test_matching_alone_finds_what_bigs_model_finds() -> None:
    options = Options(**TINY)
    model = benchmark_systems.build("big", options, 16)
    matches = []
    model.matcher.register_forward_hook(lambda matcher, inputs, output: matches.append(output))
    subject = Subject("matching", options, PADDED.longest)
    for batch in subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 2):
        for ids, mask in batch:
            model(ids, attention_mask=mask)
            assert torch.equal(subject.model(ids, mask), matches[-1])
    assert any(words.any() for words in matches)


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize(("mode", "times"), [("forward", 1), ("train", 3)])
def test_the_lower_bound_has_6t_minus_2_products_a_token(layers: int, mode: str, times: int) -> None:
    workload = Workload("lengths", [[2000, 600]])  # blocks that are full, and one that is not
    with FlopCounterMode(display=False) as counter:
        run_once("products", workload, num_layers=layers, mode=mode)
    assert counter.get_total_flops() == times * 2 * (6 * layers - 2) * 12**2 * 2600


def test_a_training_step_changes_the_weights_once_a_batch() -> None:
    subject = run_once("star", PADDED, mode="train")
    assert subject.optimizer is not None
    assert {int(state["step"]) for state in subject.optimizer.state.values()} == {len(PADDED.batches)}


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


def test_a_system_that_cannot_run_a_shape_has_its_error_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    build = benchmark_systems.build

    def failing(name: str, options: Options, longest: int) -> torch.nn.Module:
        if name == "bert-eager":
            raise MemoryError("no room\nfor this")
        return build(name, options, longest)

    monkeypatch.setattr(benchmark_systems, "build", failing)
    options = Options(systems=["bert-eager", "star"], **TINY)
    failed, ran = benchmark.measure(options, benchmark_workloads.parse_shape("2x4"))
    assert (failed.system, failed.error, failed.milliseconds) == ("bert-eager", "MemoryError: no room", None)
    assert (ran.system, ran.error, ran.passes) == ("star", "", 1)


# ------ counting


class Clock:
    """Time that passes only in passes."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def taking(self, name: str, *seconds: float) -> Any:
        turns = iter(seconds)

        def run() -> None:
            self.log.append(name)
            self.now += next(turns)

        return run


def test_passes_run_in_turn_and_the_warm_up_does_not_count() -> None:
    clock = Clock()
    passes = {"a": clock.taking("a", 9, 1, 2), "b": clock.taking("b", 8, 3, 4)}
    timings = benchmark.interleave(passes, 2, 10, clock=clock)
    assert clock.log == ["a", "b"] * 3
    assert timings == {"a": Timing((1, 2)), "b": Timing((3, 4))}


def test_a_pass_that_fails_is_not_run_again() -> None:
    clock, ticks = Clock(), []

    def fails() -> None:
        clock.log.append("fails")
        raise RuntimeError("out of memory\nat great length")

    timings = benchmark.interleave(
        {"fails": fails, "b": clock.taking("b", 1, 1, 1)}, 2, 10, clock=clock, tick=ticks.append
    )
    assert timings["fails"] == Timing(error="RuntimeError: out of memory")
    assert clock.log.count("fails") == 1
    assert sum(ticks) == 6


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


@pytest.mark.parametrize(
    ("reference", "expected"),
    [(["big", "bert-sdpa"], "bert-sdpa"), (["fnet"], "star"), (["modernbert", "bert-sdpa"], "bert-sdpa")],
)
def test_the_reference_is_the_first_named_that_runs(reference: list[str], expected: str) -> None:
    options = Options(systems=["modernbert", "star", "bert-sdpa"], reference=reference)
    timings = {("star", 4): Timing((0.2,)), ("bert-sdpa", 4): Timing((0.4,)), ("modernbert", 4): Timing(error="no")}
    results = benchmark.summarize(benchmark_workloads.parse_shape("4x50"), timings, options.references)
    assert {result.reference for result in results if result.milliseconds} == {expected}


def test_the_slope_is_the_exponent() -> None:
    assert benchmark_report.fitted_slope([128, 512, 2048], [3 * n**1.5 for n in (128, 512, 2048)]) == pytest.approx(
        1.5
    )


# ------ what is written


def results_at(length: int, milliseconds: float, **more: Any) -> Result:
    return Result(f"2x{length}", length, 2, 2 * length, "star", "whole", 2, 1, milliseconds, **more)


def test_the_plot_is_of_one_sequence_and_has_the_slope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path, title: kept.append(figure))
    benchmark_report.plot_by_length([results_at(8, 4.0), results_at(16, 16.0)], tmp_path / "plot.png", "milliseconds")
    [line] = kept[0].axes[0].lines
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([8, 16], [2.0, 8.0])
    assert [text.get_text() for text in kept[0].axes[0].get_legend().get_texts()] == ["star  n^2.00"]


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


def test_help_answers_without_torch() -> None:
    code = (
        "import runpy, sys; sys.path.insert(0, 'experiments'); sys.argv = ['benchmark.py', '--help']\n"
        "try: runpy.run_path('experiments/benchmark.py', run_name='__main__')\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--own_best_batch" in done.stdout


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


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """The script, in this process."""
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    runpy.run_path(str(ROOT / "experiments" / "benchmark.py"))["main"]()


def test_what_was_measured_before_an_interruption_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(options: Options, workload: Workload) -> list[Result]:
        if workload.longest > 8:
            raise KeyboardInterrupt
        return [Result(workload.name, workload.rows, 8, 8, "star", "whole", workload.rows)]

    monkeypatch.setattr(benchmark, "measure", measure)
    with pytest.raises(SystemExit, match="1 of 3 workloads"):
        run_main(monkeypatch, "--shapes", "1x8", "1x9", "1x7", "--output_dir", str(tmp_path / "out"))
    with open(tmp_path / "out" / "results.csv", encoding="utf-8", newline="") as file:
        assert [row["workload"] for row in csv.DictReader(file)] == ["1x8"]


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
