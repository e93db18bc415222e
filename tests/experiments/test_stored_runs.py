"""The file of a table's finished runs."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from harness.stored_runs import RunFile, read_counts, write_counts
from harness.tables import Table
from hypothesis import given
from hypothesis import strategies as st
from table_samples import runner_of, write_table

from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import count_examples


def test_of_runs_that_are_added_at_once_none_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "stored" / "two.jsonl"
    names = [f"films/none/star-0-seed{seed}" for seed in range(60)]
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda name: RunFile(path).keep({name: {"test": 0.5}}), names))
    assert list(RunFile(path).read_all()) == sorted(names)
    assert not list(path.parent.glob("*.tmp"))


def test_a_new_run_is_one_new_line_and_the_others_stay_as_they_were(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "two.jsonl")
    file.keep({"c": {"z": 1, "a": {"y": 2.50, "b": "é\u2028"}}, "a": {"test": float("nan")}})
    before = file.path.read_bytes().split(b"\n")
    file.keep({"b": {"test": 1}})
    after = file.path.read_bytes().split(b"\n")
    assert [after[0], *after[2:]] == before
    assert json.loads(after[1]) == {"run": "b", "test": 1}
    assert list(file.read_all()) == ["a", "b", "c"]
    assert (file.read("a"), file.read("d")) == ({"test": None}, None)
    assert list(file.read("c") or ()) == ["z", "a"]
    assert file.read("c") == {"z": 1, "a": {"y": 2.5, "b": "é\u2028"}}


def test_what_another_process_has_written_is_read(tmp_path: Path) -> None:
    file = RunFile(tmp_path / "two.jsonl")
    for score in (1, 2):  # texts of one length
        file.keep({"a": {"test": score}})
        assert file.read("a") == {"test": score}
    file.path.unlink()
    assert file.read("a") is None


@pytest.mark.parametrize("line", ["<<<<<<< HEAD", '{"test": 1}', "[1]", '{"run": "a"', '{"run": "a", "test": 2}'])
def test_a_line_that_is_no_run_or_a_second_one_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "two.jsonl"
    path.write_text(f'{{"run": "a", "test": 1}}\n{line}\n', encoding="utf-8")
    before = path.read_bytes()
    for action in (lambda: RunFile(path).read("a"), lambda: RunFile(path).keep({"b": {}})):
        with pytest.raises(UserError, match=r"two\.jsonl, line 2"):
            action()
    assert path.read_bytes() == before


NUMBERS = st.floats(0, 50) | st.integers(0, 99) | st.integers(0, 1)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1))
def test_counts_of_any_numbers_are_read_as_they_were_written(rows: list[tuple[float, ...]]) -> None:
    counts = np.array(rows)
    assert np.array_equal(read_counts(write_counts(counts)), counts)


def test_counts_are_short_and_may_have_spaces() -> None:
    rows = np.array([[1, 1, 12], [0, 1, 3], [1, 1, 0]])
    assert write_counts(rows) == "101; 1x3; 12 3 0"
    pearson = count_examples("pearson", [1987.123, 1990.0], [0.1, 1 / 3])  # squares, to the last digit
    assert write_counts(pearson) == f"1x2; 1987.123 1990; 0.1 {1 / 3}; 1*1; 2*2; 1*2"
    assert np.array_equal(read_counts(write_counts(pearson)), pearson)
    assert read_counts("1 0 1; 1 1 1; 12 3 0").tolist() == rows.tolist()


def test_a_run_of_a_model_file_with_another_content_is_refused(tmp_path: Path, table: Table) -> None:
    shape = tmp_path / "shape.json"
    shape.write_text('{"hidden_size": 8, "num_layers": 2}', encoding="utf-8")
    table = write_table(tmp_path, systems={"star": {"arguments": {"config_name": str(shape)}}})
    runner = runner_of(table, tmp_path)
    (star,) = table.configurations("films", "bert", "star")
    model = runner.work / "two" / star.cell / "0-seed1" / "model"
    model.mkdir(parents=True)
    scores = {"eval_accuracy": 0.7, "test_accuracy": 1.0, "parameters": 3}
    (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    (model / "predictions_test.jsonl").write_text('{"predicted": "a", "label": "a"}', encoding="utf-8")
    kept = runner.run(star, 1)
    shape.write_text('{\n  "num_layers": 2,\n  "hidden_size": 8\n}', encoding="utf-8")  # the same content
    assert runner.finished.read(star, 1) == kept
    shape.write_text('{"hidden_size": 16, "num_layers": 2}', encoding="utf-8")
    with pytest.raises(UserError, match=r"two\.jsonl.*shape"):
        runner.finished.read(star, 1)
