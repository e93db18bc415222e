"""Masked summation: the data, the systems, and the script that trains, times and reports them."""

import runpy
import sys
from pathlib import Path
from typing import Any

import masked_summation
import pytest
from harness.stored_runs import RunFile
from masked_summation import DECISIVE, SPLITS, TRAINING, build, draw, due, guess_errors, parse, write_report

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "experiments" / "masked_summation.py"
SMALL = ["--flagged=3", "--width=4", "--train_samples=40", "--validation_samples=30", "--test_samples=20"]
SMALL = [*SMALL, "--lengths=7", "--draw_seed=5"]
# A run of a second.
TINY = (
    *("--flagged=2", "--width=3", "--train_samples=64", "--validation_samples=24", "--test_samples=20"),
    *("--epochs=2", "--batch_size=16", "--learning_rate=1e-2", "--use_cpu"),
    *("--overrides", '{"hidden_size": 16, "num_attention_heads": 2}'),
)


@pytest.fixture(autouse=True)
def from_the_projects_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shape of the systems is a file of the project."""
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("split", SPLITS)
def test_k_vectors_are_flagged_and_the_target_is_their_sum(split: str) -> None:
    data = draw(parse(SMALL), 7, split)
    assert len(data[0]) == {"train": 40, "validation": 30, "test": 20}[split]
    for vectors, target in zip(*(tensor.tolist() for tensor in data), strict=True):
        assert [len(vector) for vector in vectors] == [4] * 7
        assert sorted(vector[0] for vector in vectors) == [0, 0, 0, 0, 1, 1, 1]
        assert all(0 <= number < 1 for vector in vectors for number in vector[1:])
        flagged = [numbers for flag, *numbers in vectors if flag == 1]
        assert target == pytest.approx([sum(numbers) for numbers in zip(*flagged, strict=True)], abs=1e-6)


def test_guesses_without_a_model_have_the_errors_that_loops_find() -> None:
    data = draw(parse(SMALL), 7, "train")
    half, scaled, count = 0.0, 0.0, 0
    for inputs, target in zip(*(tensor.tolist() for tensor in data), strict=True):
        for place, wanted in enumerate(target, start=1):
            half += (1.5 - wanted) ** 2
            scaled += (3 / 7 * sum(vector[place] for vector in inputs) - wanted) ** 2
            count += 1
    assert guess_errors(3, *data) == pytest.approx({"half": half / count, "scaled": scaled / count}, rel=1e-6)


def test_the_variants_are_those_of_table_6() -> None:
    configs = [build(name, parse([])).config for name in masked_summation.PAPER]
    assert [(c.use_radial, c.use_ring) for c in configs] == [(True, True), (False, True), (True, False)]
    # Table 1: 100 wide, 10 heads of 10
    assert all((c.hidden_size, c.num_attention_heads, c.head_dim) == (100, 10, 10) for c in configs)


def run_script(monkeypatch: pytest.MonkeyPatch, folder: Path, *flags: Any) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *TINY, f"--output_dir={folder}", *map(str, flags)])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_the_script_stores_runs_and_repeats_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = RunFile(tmp_path / "results.jsonl")
    flags = ("--systems", "star", "vanilla", "--lengths", 4, 6)
    run_script(monkeypatch, tmp_path, *flags)
    stored = file.read_all()
    runs = {f"{system}-n{length}-seed1" for system in ("star", "vanilla") for length in (4, 6)}
    assert set(stored) == runs
    assert stored["star-n4-seed1"]["arguments"]["flagged"] == 2
    assert stored["star-n4-seed1"]["environment"]["threads"] >= 1
    page = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert f"| star | {stored['star-n4-seed1']['test']:.4f} (1) | {stored['star-n6-seed1']['test']:.4f} (1) |" in page
    assert f"| always k/2 | {stored['star-n4-seed1']['guesses']['half']:.4f} |" in page
    assert (tmp_path / "figure_3a.png").read_bytes().startswith(b"\x89PNG")
    assert "(figure_3a.png)" in page
    # A run that were repeated would take another time.
    run_script(monkeypatch, tmp_path, *flags, "--seeds", 1, 2)
    again = file.read_all()
    assert {name: again[name] for name in stored} == stored
    assert set(again) - set(stored) == {name.replace("seed1", "seed2") for name in runs}
    assert again["star-n4-seed2"]["test"] != stored["star-n4-seed1"]["test"]
    for flag, difference in (("--epochs=3", "num_train_epochs 2.0, now 3.0"), ("--flagged=1", "flagged 2, now 1")):
        with pytest.raises(SystemExit, match=difference):
            run_script(monkeypatch, tmp_path, *flags, flag)
    assert file.read_all() == again


def test_the_committed_result_is_that_of_its_command(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").symlink_to(ROOT / "experiments/results/masked_summation.jsonl")
    options = parse(["--systems", "star", "--lengths", "200", f"--output_dir={tmp_path}"])
    made_with = {name: value for name, value in {**vars(options), **TRAINING}.items() if name in DECISIVE}
    assert list(due(options, RunFile(tmp_path / "results.jsonl"), made_with)) == []


ARGUMENTS = {
    **{"flagged": 10, "width": 10, "train_samples": 10_000, "validation_samples": 10_000, "test_samples": 10_000},
    **{"num_train_epochs": 40.0, "per_device_train_batch_size": 100, "learning_rate": 1e-3, "draw_seed": 0},
    **{"lr_scheduler_type": "cosine", "warmup_steps": 0.3, "max_grad_norm": 5.0},
}
ENVIRONMENT = {"python": "3.11", "torch": "2.13", "transformers": "5.23", "device": "cpu", "threads": 2}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Two seeds of star at n = 200, one of vanilla at n = 400, and times at n = 200."""
    file = RunFile(tmp_path / "results.jsonl")
    for system, length, seed, test in (("star", 200, 1, 0.002), ("star", 200, 2, 0.004), ("vanilla", 400, 1, 0.5)):
        run = {"system": system, "length": length, "seed": seed, "validation": test, "test": test, "parameters": 1234}
        run |= {"guesses": {"half": 10 / 12, "scaled": 0.75}, "training_seconds": 60.0 * seed}
        run |= {"arguments": ARGUMENTS, "config": {}, "environment": ENVIRONMENT}
        file.keep({f"{system}-n{length}-seed{seed}": run})
    times = {"length": 200, "rows": 100, "seconds": {"star": [0.003, 0.001, 0.002], "vanilla": []}}
    times |= {"errors": {"vanilla": "RuntimeError: no memory"}, "environment": ENVIRONMENT}
    file.keep({"times-n200": times | {"config": {"star": {}, "vanilla": {}}}})
    return file.path


def test_the_page_has_means_deviations_gaps_and_the_papers_numbers(results: Path) -> None:
    page = write_report(results, results.parent)
    for line in (
        "|  | n = 200 | n = 400 | paper, n = 200 |",
        "| star | 0.0030 ± 0.0014 (2) | -- | 0.0284 |",
        "| vanilla | -- | 0.5000 (1) | -- |",
        "| always k/2 | 0.8333 | 0.8333 | -- |",
        "| star | 1,234, 1.5 | -- |",
        "| star | 2.0 |",
        "| vanilla | RuntimeError: no memory |",
    ):
        assert line in page.splitlines()
    run = RunFile(results).read("star-n200-seed2") or {}
    RunFile(results).keep({"star-n200-seed2": run | {"arguments": ARGUMENTS | {"num_train_epochs": 1}}})
    with pytest.raises(UserError, match="num_train_epochs"):
        write_report(results, results.parent)
