"""The benchmark: what it processes, what it runs, how it counts. No timing decides a test."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import benchmark
import pytest
import torch
import transformers
from benchmark import FROM_BERT, SYSTEMS, Workload, parse, parse_shape
from script_samples import write_bert


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


@pytest.mark.parametrize("mode", ["forward", "train"])
def test_every_system_runs_full_and_padded_batches(mode: str) -> None:
    systems = [name for name in SYSTEMS if mode == "forward" or FROM_BERT.fullmatch(name) is None]
    options = parse([*TINY, "--mode", mode, "--systems", *systems])
    for workload in (parse_shape("2x16"), PADDED):
        rows = benchmark.measure(options, workload)
        assert [row["system"] for row in rows] == systems
        assert [(row["system"], row["error"]) for row in rows if row["error"]] == []
        assert all(row["milliseconds"] > 0 and row["passes"] == 1 for row in rows)


def test_saved_classifiers_are_measured_on_texts(tmp_path: Path) -> None:
    bert = write_bert(tmp_path / "bert", ["a good meal", "a bland soup"])
    texts = tmp_path / "texts.jsonl"
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("a good meal", "soup", "a meal")))
    options = parse(["--texts", str(texts), "--systems", f"a={bert}", f"b={bert}@4", "--repeats=1", "--batch_size=2"])
    (workload,) = benchmark.workloads_of(options)
    rows = benchmark.measure(options, workload)
    assert [(row["system"], row["error"]) for row in rows] == [("a", ""), ("b", "")]
    assert all(row["texts_per_second"] > 0 for row in rows)
