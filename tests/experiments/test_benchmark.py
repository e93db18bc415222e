"""The benchmark: what it processes, what it runs, how it counts. No timing decides a test."""

import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import benchmark
import pytest
import torch
import transformers
from benchmark import FROM_BERT, SYSTEMS, Subject, Workload, draw_ids, parse, parse_shape
from script_samples import write_bert
from torch.utils.flop_counter import FlopCounterMode

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]
TINY = ["--hidden_size=12", "--num_heads=2", "--vocab_size=100", "--lexicon_words=300", "--repeats=1"]
PADDED = Workload("lengths", [[16, 3, 9], [5, 1]])


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Silence models that pad their input; restore PyTorch's threads."""
    threads, verbosity = torch.get_num_threads(), transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    torch.set_num_threads(threads)
    transformers.logging.set_verbosity(verbosity)


@pytest.mark.parametrize("text", ["16", "x16", "3x0", "3x16x2"])
def test_a_bad_shape_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="--shapes"):
        parse_shape(text)


@pytest.mark.parametrize("content", [b"16\nseven\n", b"16\n0\n", b"\n", b"\xff\xfe\xfa", None])
def test_a_bad_file_of_lengths_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "lengths.txt").write_bytes(content)
    with pytest.raises(UserError, match="--lengths"):
        benchmark.read_lengths(tmp_path / "lengths.txt")


@pytest.mark.parametrize("words", ["bert-sdap", "bert-sdap-onnx", "star --graphs", "star-onnx --mode train"])
def test_what_cannot_be_measured_is_refused(words: str) -> None:
    with pytest.raises(UserError, match=r"no system bert-sdap|CUDA graphs|ONNX Runtime"):
        parse(["--systems", *words.split()])


@pytest.mark.parametrize(
    ("rows", "lengths"),
    [
        ([{"text": "a b  c"}, {"text": ""}], [3, 1]),
        ([{"text": "a b", "tokens": ["a", "b", "c", "d"]}], [4]),
        ([{"text": "今天 天气不错。"}, {"text": "OK"}, {"text": "我喜欢 Python 3.11 和transformers"}], [7, 1, 7]),
    ],
)
def test_lengths_of_a_data_set_are_counted_in_words(tmp_path: Path, rows: list[dict], lengths: list[int]) -> None:
    path = tmp_path / "test.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    assert benchmark.read_lengths(path) == lengths


def test_batches_are_in_the_files_order_and_truncated(tmp_path: Path) -> None:
    for name, lengths in {"a.txt": "9\n2\n\n 7 \n", "b.txt": "1\n8"}.items():
        (tmp_path / name).write_text(lengths, encoding="utf-8")
    workload = benchmark.lengths_workload([tmp_path / "a.txt", tmp_path / "b.txt"], 2, truncate=8)
    assert workload == Workload("a.txt and 1 more", [[8, 2], [7], [1, 8]])


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_every_system_runs_full_and_padded_batches(mode: str) -> None:
    systems = [name for name in SYSTEMS if mode == "forward" or FROM_BERT.fullmatch(name) is None]
    options = parse([*TINY, "--mode", mode, "--systems", *systems])
    for workload in (parse_shape("2x16"), PADDED):
        rows = benchmark.measure(options, workload)
        assert [row["system"] for row in rows] == systems
        assert [(row["system"], row["error"]) for row in rows if row["error"]] == []
        assert all(row["milliseconds"] > 0 and row["passes"] == 1 for row in rows)


@pytest.mark.parametrize("layers", [1, 2, 5])
@pytest.mark.parametrize(("mode", "times"), [("forward", 1), ("train", 3)])
def test_the_lower_bound_has_6t_minus_2_products_a_token(layers: int, mode: str, times: int) -> None:
    options = parse([*TINY, "--systems", "products", "--num_layers", str(layers), "--mode", mode])
    workload = Workload("lengths", [[2000, 600]])  # blocks that are full, and one that is not
    subject = Subject("products", options, workload.longest)
    with FlopCounterMode(display=False) as counter:
        subject.run(subject.prepare(draw_ids(workload, options)))
    assert counter.get_total_flops() == times * 2 * (6 * layers - 2) * 12**2 * 2600


@pytest.mark.slow
@pytest.mark.parametrize("system", ["star", "fnet"])
def test_in_onnx_runtime_a_system_computes_the_same(system: str) -> None:
    options = parse([*TINY, "--systems", f"{system}-onnx", "--num_layers=1"])
    subject = Subject(f"{system}-onnx", options, PADDED.longest)
    for ids, mask in subject.prepare(draw_ids(PADDED, options)):
        real = torch.ones_like(ids).bool() if mask is None else mask.bool()
        given = {} if system == "fnet" or mask is None else {"attention_mask": mask}
        expected = subject.model(ids, **given).last_hidden_state
        found = torch.from_numpy(subject.states(ids, mask)[0])
        assert (found - expected)[real].abs().max() < 1e-4  # float32, and Fourier sums


def test_a_slow_pass_is_measured_once_and_a_failed_one_has_its_error() -> None:
    clock = iter(range(1000))

    def fails() -> None:
        raise RuntimeError("no memory\nmore")

    def slow() -> None:
        for _ in range(100):
            next(clock)

    passes = {"fast": lambda: None, "slow": slow, "fails": fails}
    seconds, errors = benchmark.interleave(passes, 3, 50.0, clock=lambda: next(clock))
    assert seconds == {"fast": [1, 1, 1], "slow": [101], "fails": []}
    assert errors == {"fails": "RuntimeError: no memory"}


@pytest.mark.slow
def test_the_script_measures_a_file_of_lengths_and_prints_its_table(tmp_path: Path) -> None:
    (tmp_path / "lengths.txt").write_text("16\n3\n9\n", encoding="utf-8")
    command = [sys.executable, "experiments/benchmark.py", *TINY, "--systems", "star", "bert-eager", "--threads=1"]
    command += ["--lengths", str(tmp_path / "lengths.txt"), "--batch_size=2", "--truncate=8", "--memory"]
    command += ["--mode=train", "--output_dir", str(tmp_path / "out")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "results.md").read_text(encoding="utf-8")
    assert page in done.stdout
    assert "3 texts, 19 tokens, longest 8" in page
    with open(tmp_path / "out" / "results.csv", encoding="utf-8", newline="") as file:
        assert all(float(row["megabytes"]) >= 0 and row["error"] == "" for row in csv.DictReader(file))
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True).returncode == 1  # nothing is overwritten


def test_saved_classifiers_are_measured_on_texts(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert", ["a good meal", "a bland soup"])
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a good meal", "soup", "a meal")))
    options = parse(["--texts", str(texts), "--systems", f"a={bert}", f"b={bert}@4", "--repeats=1", "--batch_size=2"])
    (workload,) = benchmark.workloads_of(options)
    rows = benchmark.measure(options, workload)
    assert [(row["system"], row["error"]) for row in rows] == [("a", ""), ("b", "")]
    assert all(row["texts_per_second"] > 0 for row in rows)
