"""The benchmark: what it reads, what it runs, how it counts. No timing decides a test."""

import csv
import gzip
import importlib.util
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import transformers
from lab import benchmark, benchmark_report, benchmark_systems, benchmark_workloads, plots
from lab.benchmark import Result, Timing
from lab.benchmark_systems import PARTS, Subject
from lab.benchmark_workloads import Options, Workload
from torch.utils.flop_counter import FlopCounterMode

from modeling_star.errors import UserError
from modeling_star.models.lexicon import WordMatcher
from modeling_star.models.token_layout import TokenLayout


ROOT = Path(__file__).resolve().parents[2]
TINY: dict[str, Any] = {
    "hidden_size": 12,
    "num_heads": 2,
    "vocab_size": 100,
    "lexicon_words": 300,
    "repeats": 1,
    "reference": ("bert-sdpa",),
}
PADDED = Workload("lengths", [[16, 3, 9], [5, 1]])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Models that pad their input say so; PyTorch's threads are put back."""
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)


def run_once(system: str, workload: Workload, **more: Any) -> Subject:
    options = Options(systems=(system,), **{**TINY, **more})
    subject = Subject(system, options, workload.longest)
    subject.run(subject.prepare(benchmark_workloads.draw_ids(workload, options), workload.rows))
    return subject


# ------ what is read


def test_a_shape_is_rows_times_tokens() -> None:
    shape = benchmark_workloads.parse_shape("3x16")
    assert (shape.batches, shape.tokens, shape.longest, shape.rows, shape.sequences) == ([[16] * 3], 48, 16, 3, 3)


@pytest.mark.parametrize("text", ["16", "3x", "x16", "0x16", "3x0", "3x16x2", "-3x16", "a few"])
def test_a_bad_shape_is_told_with_one_to_write(text: str) -> None:
    with pytest.raises(UserError, match=rf"{re.escape(repr(text))}.*write --shapes 128x109"):
        benchmark_workloads.parse_shape(text)


def test_lengths_are_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("16\n3\n\n 9 \n", encoding="utf-8")
    assert benchmark_workloads.read_lengths(path) == [16, 3, 9]


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


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("lengths.txt", b"16\nseven\n", r"line 2: 'seven' is no length.*write 17"),
        ("lengths.txt", b"16\n0\n", r"line 2: '0' is no length"),
        ("lengths.txt", b"\n\n", r"holds no lengths: write one a line"),
        ("lengths.txt", b"\xff\xfe\xfa", r"is not UTF-8 text"),
        ("test.jsonl", b'{"sentence": "a b"}\n', r"has the columns sentence; text or tokens is needed"),
        ("test.jsonl", b'{"text": 5}\n', r"has 5 in its column text; a text or a list of words is needed"),
        (None, b"", r"does not exist: name a file with one length a line"),
    ],
)
def test_a_bad_file_of_lengths_is_told(tmp_path: Path, name: str | None, content: bytes, message: str) -> None:
    path = tmp_path / (name or "absent.txt")
    if name:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        benchmark_workloads.read_lengths(path)


def test_words_in_the_cell_of_a_table_are_counted_as_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("tokens\na b c\n", encoding="utf-8")
    assert benchmark_workloads.read_lengths(tmp_path / "a.csv") == [3]


def test_batches_are_in_the_files_order_and_truncated(tmp_path: Path) -> None:
    for name, lengths in {"a.txt": "9 2 7", "b.txt": "1 8"}.items():
        (tmp_path / name).write_text(lengths.replace(" ", "\n"), encoding="utf-8")
    workload = benchmark_workloads.lengths_workload([tmp_path / "a.txt", tmp_path / "b.txt"], 2, truncate=8)
    assert workload == Workload("a.txt and 1 more", [[8, 2], [7], [1, 8]])


@pytest.mark.parametrize(("batch_size", "truncate"), [(0, None), (2, 0)])
def test_a_batch_size_or_truncation_below_one_is_told(tmp_path: Path, batch_size: int, truncate: int | None) -> None:
    (tmp_path / "a.txt").write_text("9\n", encoding="utf-8")
    with pytest.raises(UserError, match="0 is given; at least 1 is needed"):
        benchmark_workloads.lengths_workload([tmp_path / "a.txt"], batch_size, truncate)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"systems": ("bert-sdap",)}, r'names bert-sdap, which is unknown.*Did you mean "bert-sdpa"'),
        ({"systems": ()}, r"write --systems star bert-sdpa"),
        ({"hidden_size": 12, "num_heads": 5}, r"not a multiple of --num_heads 5: write one of --num_heads 1, 2, 3, 4"),
        ({"systems": ("bilstm",), "hidden_size": 15, "num_heads": 3}, r"bilstm .*--hidden_size 15 is odd"),
        ({"systems": ("disan",), "hidden_size": 15, "num_heads": 3}, r"disan .*--hidden_size 15 is odd"),
        ({"repeats": 0}, r"--repeats 0 is given; more than 0"),
        ({"max_seconds": -1.0}, r"--max_seconds -1.0 is given"),
        ({"max_seconds": float("nan")}, r"--max_seconds nan is given"),
        ({"max_memory": float("inf")}, r"--max_memory inf is given"),
        ({"seed": 10**20}, r"--seed 1000.* whole numbers from 0"),
        ({"seed": -1}, r"--seed -1 is given"),
        ({"vocab_size": 5}, r"--vocab_size 5 is given"),
        ({"mode": "sideways"}, r"forward and train are allowed"),
        ({"dtype": "float16"}, r"float32 and bfloat16 are allowed"),
        ({"device": "gpu"}, r"--device gpu is given; cpu, cuda and cuda:1 are allowed"),
        ({"device": "mps"}, r"--device mps is given"),
        ({"reference": ("bert-sdap",)}, r'--reference names bert-sdap.*Did you mean "bert-sdpa"'),
        ({"systems": ("gemma4_assistant",)}, r"--systems names gemma4_assistant"),
        ({"systems": ("bert-sdap-onnx",)}, r'names bert-sdap, which is unknown.*Did you mean "bert-sdpa"'),
        ({"systems": ("star-onnx",), "mode": "train"}, r"star-onnx: ONNX Runtime is measured with --mode forward"),
        ({"systems": ("star-onnx",), "dtype": "bfloat16"}, r"star-onnx: .*--dtype float32"),
    ],
)
def test_options_that_cannot_be_are_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Options(**given)


def test_rows_have_the_asked_lengths_and_no_padding_inside() -> None:
    ids = benchmark_workloads.draw_ids(PADDED, Options(**TINY))
    assert [[len(row) for row in batch] for batch in ids] == PADDED.batches
    assert all(row.min() >= benchmark_workloads.FIRST_ID and row.max() < 100 for batch in ids for row in batch)


def test_words_of_the_lexicon_stand_in_the_input_as_written() -> None:
    """About half of the pieces are words of 2 to 4 tokens, the others single tokens: one word every 4 tokens."""
    options = Options(**{**TINY, "vocab_size": 5000})
    lexicon = benchmark_workloads.random_lexicon(options.lexicon_words, options.vocab_size, options.seed)
    [[row]] = benchmark_workloads.draw_ids(Workload("1x400", [[400]], 400), options)
    matcher = WordMatcher("words", WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    found = matcher(row, TokenLayout.from_mask(torch.ones(1, 400, dtype=torch.bool), keep_padding=False))
    assert 90 <= int(found.sum()) <= 120
    assert found.any(0).tolist() == [False, True, True, True]
    start, length = (int(x) for x in found.nonzero()[0])
    word = row[start : start + length + 1].tolist() + [-1] * (3 - length)
    assert word in lexicon.words.tolist()


def test_sub_batches_are_powers_of_two_below_the_batch() -> None:
    assert benchmark_workloads.sub_batch_sizes(1) == []
    assert benchmark_workloads.sub_batch_sizes(8) == [1, 2, 4]
    assert benchmark_workloads.sub_batch_sizes(9) == [1, 2, 4, 8]


def test_a_sub_batch_is_padded_to_its_own_longest_row() -> None:
    options = Options(systems=("bert-sdpa",), **TINY)
    subject = Subject("bert-sdpa", options, PADDED.longest)
    first, second = subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 2)
    assert [tuple(ids.shape) for ids, _ in first + second] == [(2, 16), (1, 9), (2, 5)]
    assert [None if mask is None else mask.sum(1).tolist() for _, mask in first + second] == [[16, 3], None, [5, 1]]


# ------ the systems


@pytest.mark.parametrize("system", [name for name in benchmark_workloads.SYSTEMS if name not in PARTS])
def test_a_system_has_the_asked_width_and_depth(system: str) -> None:
    options = Options(systems=(system,), num_layers=3, **TINY)
    model = benchmark_systems.build(system, options, 16)
    assert (model.config.num_hidden_layers, model.config.hidden_size) == (3, 12)
    assert tuple(model.get_input_embeddings().weight.shape) == (100, 12)


def test_the_kind_of_attention_is_the_asked_one() -> None:
    options = Options(**TINY)
    kinds = {
        name: benchmark_systems.build(name, options, 16).config._attn_implementation
        for name in ("bert-sdpa", "bert-eager")
    }
    assert kinds == {"bert-sdpa": "sdpa", "bert-eager": "eager"}


def test_a_model_type_of_transformers_is_a_system() -> None:
    model = run_once("roberta-eager", PADDED).model
    assert (model.config.model_type, model.config._attn_implementation) == ("roberta", "eager")


@pytest.mark.parametrize("system", ["star", "bert-sdpa"])
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_what_is_timed_trains_or_does_not_and_knows_the_padding(system: str, mode: str) -> None:
    options = Options(systems=(system,), mode=mode, **TINY)
    subject = Subject(system, options, PADDED.longest)
    seen: list[tuple[bool, bool, int]] = []

    def note(module: Any, args: Any, given: dict[str, Any]) -> None:
        seen.append((module.training, torch.is_grad_enabled(), int(given["attention_mask"].sum())))

    subject.model.register_forward_pre_hook(note, with_kwargs=True)
    subject.run(subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 3))
    trains = mode == "train"
    assert seen == [(trains, trains, 16 + 3 + 9), (trains, trains, 5 + 1)]
    assert (subject.optimizer is not None) == trains


def test_as_many_threads_compute_as_are_asked_for() -> None:
    torch.set_num_threads(2)
    threads: list[int] = []

    def count(ids: Any, mask: Any) -> None:
        threads.append(torch.get_num_threads())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subject, "_states", lambda self, ids, mask: count(ids, mask))
        benchmark.measure(Options(systems=("star",), threads=1, **TINY), [PADDED])
    assert set(threads) == {1}


def test_what_is_compiled_is_what_is_called() -> None:
    subject = Subject("star", Options(systems=("star",), compile=True, **TINY), PADDED.longest)
    assert subject.call is not subject.model


@pytest.mark.parametrize("system", ["star", "fnet"])
def test_in_onnx_runtime_a_system_computes_the_same(system: str) -> None:
    subject = Subject(f"{system}-onnx", Options(systems=(f"{system}-onnx",), num_layers=1, **TINY), PADDED.longest)
    for batch in subject.prepare(benchmark_workloads.draw_ids(PADDED, subject.options), 3):
        for ids, mask in batch:
            real = torch.ones_like(ids).bool() if mask is None else mask.bool()
            given = {} if system == "fnet" or mask is None else {"attention_mask": mask}
            expected = subject.model(ids, **given).last_hidden_state
            assert (subject._states(ids, mask) - expected)[real].abs().max() < 1e-4  # float32, and Fourier sums
    assert not isinstance(subject.call, torch.nn.Module)


def test_a_part_of_a_model_is_not_run_by_onnx_runtime() -> None:
    options = Options(systems=("products-onnx", "star"), **TINY)
    part, whole = benchmark.measure(options, [PADDED])
    assert part.error == "ValueError: a part of a model is not run by ONNX Runtime."
    assert whole.milliseconds


def test_bigs_model_finds_the_words() -> None:
    model = benchmark_systems.build("big", Options(**TINY), 16)
    assert model.config.lexicon_kind == "words"
    assert int((model.matcher.table >= 0).any(1).sum()) == len(benchmark_workloads.random_lexicon(300, 100, 0))


def test_matching_alone_finds_what_bigs_model_finds() -> None:
    options = Options(**TINY)
    model = benchmark_systems.build("big", options, 16)
    found = []
    model.matcher.register_forward_hook(lambda matcher, inputs, output: found.append(output))
    subject = Subject("matching", options, PADDED.longest)
    for batch in subject.prepare(benchmark_workloads.draw_ids(PADDED, options), 2):
        for ids, mask in batch:
            model(ids, attention_mask=mask)
            assert torch.equal(subject.model(ids, mask), found[-1])
    assert any(words.any() for words in found)


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
    options = Options(systems=benchmark_workloads.SYSTEMS, mode=mode, **TINY)
    workloads = [benchmark_workloads.parse_shape("2x16"), PADDED]
    results = benchmark.measure(options, workloads)
    assert [(result.workload, result.system) for result in results] == [
        (workload.name, system) for workload in workloads for system in benchmark_workloads.SYSTEMS
    ]
    assert [(result.system, result.error) for result in results if result.error] == []
    assert all(result.milliseconds > 0 and result.passes == 1 for result in results)


def test_nystromformer_runs_beyond_its_landmarks() -> None:
    run_once("nystromformer", Workload("lengths", [[130, 70], [40]]))


def test_bfloat16_runs() -> None:
    assert next(run_once("star", PADDED, dtype="bfloat16").model.parameters()).dtype == torch.bfloat16


def test_a_system_that_cannot_run_a_shape_is_told_and_the_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    build = benchmark_systems.build

    def failing(name: str, options: Options, longest: int) -> torch.nn.Module:
        if name == "bert-eager":
            raise MemoryError("no room\nfor this")
        return build(name, options, longest)

    monkeypatch.setattr(benchmark_systems, "build", failing)
    options = Options(systems=("bert-eager", "star"), **TINY)
    failed, ran = benchmark.measure(options, [benchmark_workloads.parse_shape("2x4")])
    assert (failed.system, failed.error, failed.milliseconds) == ("bert-eager", "MemoryError: no room", None)
    assert (ran.system, ran.error, ran.passes) == ("star", "", 1)


# ------ counting


class Clock:
    """Time that passes only when a pass takes it."""

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


def test_a_slow_pass_is_measured_once_and_not_repeated() -> None:
    clock, ticks = Clock(), []
    passes = {"slow": clock.taking("slow", 11), "b": clock.taking("b", 8, 3, 4)}
    timings = benchmark.interleave(passes, 2, 10, clock=clock, tick=ticks.append)
    assert timings == {"slow": Timing((11,)), "b": Timing((3, 4))}
    assert sum(ticks) == 6


def test_what_compiles_at_first_is_run_once_without_a_clock() -> None:
    clock, ticks = Clock(), []
    passes = {"a": clock.taking("a", 50, 1, 2, 3), "b": clock.taking("b", 50, 30, 4)}
    timings = benchmark.interleave(passes, 2, 10, untimed=True, clock=clock, tick=ticks.append)
    assert timings == {"a": Timing((2, 3)), "b": Timing((30,))}
    assert clock.log == ["a", "b", "a", "b", "a", "a"]
    assert sum(ticks) == 8


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


def test_without_the_reference_there_is_no_ratio() -> None:
    [star] = benchmark.summarize(benchmark_workloads.parse_shape("4x50"), {("star", 4): Timing((0.2,))}, ["bert-sdpa"])
    assert star.speed is None
    assert star.of_products is None


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (("big", "bert-sdpa"), "bert-sdpa"),
        (("fnet",), "star"),
        (("star", "bert-sdpa"), "star"),
        (("modernbert", "bert-sdpa"), "bert-sdpa"),
        (("modernbert",), "star"),
    ],
)
def test_the_reference_is_the_first_named_that_runs(reference: tuple[str, ...], expected: str) -> None:
    options = Options(systems=("modernbert", "star", "bert-sdpa"), reference=reference)
    timings = {("star", 4): Timing((0.2,)), ("bert-sdpa", 4): Timing((0.4,)), ("modernbert", 4): Timing(error="no")}
    results = benchmark.summarize(benchmark_workloads.parse_shape("4x50"), timings, options.references)
    assert {result.reference for result in results if result.milliseconds} == {expected}


def test_the_slope_is_the_exponent() -> None:
    assert benchmark_report.fitted_slope([128, 512, 2048], [3 * n**1.5 for n in (128, 512, 2048)]) == pytest.approx(
        1.5
    )
    with pytest.raises(ValueError, match="two different lengths"):
        benchmark_report.fitted_slope([128, 128], [1, 2])


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (1234567.8, "1,234,568"), (12.345, "12.3"), (0.01234, "0.0123"), (0.0, "0")]
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert benchmark_report._number(value) == text


# ------ what is written


def results_at(length: int, milliseconds: float, **more: Any) -> Result:
    return Result(f"2x{length}", length, 2, 2 * length, "star", "whole", 2, 1, milliseconds, **more)


def test_the_plot_is_of_one_sequence_and_tells_the_slope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Any] = []
    monkeypatch.setattr(plots, "save_figure", lambda figure, path, title: kept.append(figure))
    benchmark_report.plot_by_length([results_at(8, 4.0), results_at(16, 16.0)], tmp_path / "plot.png", "milliseconds")
    [line] = kept[0].axes[0].lines
    assert (line.get_xdata().tolist(), line.get_ydata().tolist()) == ([8, 16], [2.0, 8.0])
    assert [text.get_text() for text in kept[0].axes[0].get_legend().get_texts()] == ["star  n^2.00"]


def test_one_length_gives_no_plot(tmp_path: Path) -> None:
    assert benchmark_report.plot_by_length([results_at(8, 4.0)], tmp_path / "plot.png", "milliseconds") is None
    assert not list(tmp_path.iterdir())


def test_results_are_written_as_csv_markdown_and_plots(tmp_path: Path) -> None:
    options = Options(systems=("star", "bert-sdpa"), own_best_batch=True, **TINY)
    workloads = [benchmark_workloads.parse_shape("3x8"), benchmark_workloads.parse_shape("2x16"), PADDED]
    results = benchmark.measure(options, workloads)
    page = benchmark_report.write_results(options, workloads, results, tmp_path, "the command")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("results.csv", "results.md", "time_by_length.png", "time_by_length_best.png")
    ]
    assert (tmp_path / "results.md").read_text(encoding="utf-8") == page
    with open(tmp_path / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 * 2  # workloads, systems, whole and best
    assert {row["batching"] for row in rows} == {"whole", "best"}
    for told in (
        "the command",
        f"PyTorch {torch.__version__}",
        "threads ",
        "5 texts, 34 tokens, longest 16, in 2 batches",
    ):
        assert told in page
    assert "padded, 59 % of them are real" in page  # 34 of 3 x 16 + 2 x 5
    assert page.count("| 3x8 | star |") == 2


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["forward", "train"])
def test_peak_memory_is_that_of_a_pass(mode: str) -> None:
    """The scores alone of BERT's attention as it is written down are 2 x 2 x 1,000^2 x 4 bytes."""
    options = Options(systems=("bert-eager",), mode=mode, **TINY)
    megabytes, error = benchmark.peak_memory(options, "bert-eager", Workload("2x1000", [[1000, 1000]], 1000), 2)
    assert error == ""
    assert 16 < megabytes < 500


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak of a pass is read of Linux's /proc")
def test_peak_memory_counts_what_was_used_and_freed_before_the_pass() -> None:
    """A lexicon that Star does not read leaves freed memory behind, which its pass may use again."""
    workload = Workload("8x512", [[512] * 8], 512)
    states = 8 * 512 * 300 * 4 / 1e6
    for words in (1_000, 350_000):
        megabytes, error = benchmark.peak_memory(Options(systems=("star",), lexicon_words=words), "star", workload, 8)
        assert error == ""
        assert states < megabytes < 20 * states


@pytest.mark.slow
def test_a_pass_without_room_is_told() -> None:
    options = Options(systems=("bert-eager",), max_memory=0.5, **TINY)
    workload = benchmark_workloads.parse_shape("2x8000")  # 1 GB of scores
    [result] = benchmark.measure(options, [workload])
    assert result.milliseconds is None
    assert "memory" in result.error
    megabytes, error = benchmark.peak_memory(options, "bert-eager", workload, 2)
    assert megabytes is None
    assert error.startswith("memory: ")


def test_help_answers_without_torch() -> None:
    code = (
        "import runpy, sys; sys.argv = ['benchmark.py', '--help']\n"
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
    command += [
        "--lengths",
        str(tmp_path / "lengths.txt"),
        "--batch_size=2",
        "--truncate=8",
        "--memory",
        "--threads=1",
    ]
    command += ["--mode=train", "--output_dir", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "results.md").read_text(encoding="utf-8") in done.stdout
    assert "3 texts, 19 tokens, longest 8, in 2 batches" in done.stdout
    with open(tmp_path / "out" / "results.csv", encoding="utf-8", newline="") as file:
        assert all(float(row["megabytes"]) >= 0 and row["error"] == "" for row in csv.DictReader(file))
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "holds results.csv, results.md, and nothing is overwritten" in again.stderr


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    """The script, in this process."""
    monkeypatch.setattr(sys, "argv", ["benchmark.py", *arguments])
    runpy.run_path(str(ROOT / "experiments" / "benchmark.py"))["main"]()


def test_what_was_measured_before_an_interruption_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def measure(options: Options, workloads: list[Workload]) -> list[Result]:
        if workloads[0].longest > 8:
            raise KeyboardInterrupt
        return [Result(workload.name, workload.rows, 8, 8, "star", "whole", workload.rows) for workload in workloads]

    monkeypatch.setattr(benchmark, "measure", measure)
    with pytest.raises(SystemExit, match=r"interrupted; 1 of 3 workloads measured, in .*out\."):
        run_main(monkeypatch, "--shapes", "1x8", "1x9", "1x7", "--output_dir", str(tmp_path / "out"))
    with open(tmp_path / "out" / "results.csv", encoding="utf-8", newline="") as file:
        assert [row["workload"] for row in csv.DictReader(file)] == ["1x8"]


def test_an_interruption_while_lengths_are_read_is_told_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a.txt").write_text("9\n", encoding="utf-8")
    monkeypatch.setattr(benchmark_workloads, "read_lengths", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(SystemExit, match=r"benchmark\.py: interrupted; 0 workloads measured"):
        run_main(monkeypatch, "--lengths", str(tmp_path / "a.txt"), "--output_dir", str(tmp_path / "out"))


def test_a_limit_of_lengths_needs_lengths(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="--truncate 5 is given without --lengths"):
        run_main(monkeypatch, "--shapes", "1x8", "--truncate", "5", "--output_dir", str(tmp_path / "out"))


@pytest.mark.slow
def test_the_script_tells_a_bad_shape_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "experiments/benchmark.py", "--shapes", "128"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.startswith("benchmark.py: --shapes has '128'")


def test_it_is_imported_where_there_is_no_resource_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Windows, where README has the package installed."""
    monkeypatch.setitem(sys.modules, "resource", None)
    spec = importlib.util.find_spec("lab.benchmark")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.memory_limit(None):
        assert module.interleave
