"""The scripts make what golden.json says: labels, held-out rows, vocabularies, sizes and scores (make_golden.py)."""

from pathlib import Path
from typing import Any

import pytest
from make_golden import GOLDEN, HERE, REAL, SYNTHETIC, Case, Snapshot, differences, read_json, run_case
from real_data import data_folder
from script_runner import ScriptRunner


@pytest.fixture(scope="module")
def golden() -> dict[str, dict[str, Snapshot]]:
    """The snapshots that are kept."""
    return read_json(GOLDEN)


def assert_nothing_differs(kept: Snapshot, now: Snapshot) -> None:
    """Every difference is a line of the message."""
    found = differences(kept, now)
    assert not found, "\n".join(["The run is another than golden.json says (see make_golden.py):", *found])


def run(scripts: ScriptRunner, case: Case, data: Path, folder: Path) -> dict[str, Any]:
    return run_case(case, scripts.check, data, folder / "run")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in ("reviews", "documents") else name for name in SYNTHETIC],
)
def test_a_run_on_synthetic_data_is_as_it_was(
    scripts: ScriptRunner, golden: dict[str, dict[str, Snapshot]], tmp_path: Path, name: str
) -> None:
    assert_nothing_differs(golden["synthetic"][name], run(scripts, SYNTHETIC[name], HERE / "data", tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_a_run_on_real_data_is_as_it_was(
    scripts: ScriptRunner,
    golden: dict[str, dict[str, Snapshot]],
    tmp_path: Path,
    name: str,
    request: pytest.FixtureRequest,
) -> None:
    case = REAL[name]
    (data,) = {data_folder(folder).parent for folder in case.needs}
    if any("{minilm}" in flag for flag in case.flags):
        request.getfixturevalue("minilm_path")  # skips where it is not installed
    assert_nothing_differs(golden["real"][name], run(scripts, case, data, tmp_path))


def test_a_difference_is_named_with_its_place() -> None:
    kept = {"labels": ["O", "B-PER"], "scores": {"eval_loss": 1.0}, "gone": 1}
    now = {"labels": ["B-PER", "O"], "scores": {"eval_loss": 1.00005}, "new": 1}
    assert differences(kept, now) == [
        "/gone: missing",
        "/labels: was ['O', 'B-PER'], is ['B-PER', 'O']",
        "/new: new",
    ]
    assert len(differences({"scores": {"a": 1.0}}, {"scores": {"a": 1.001}})) == 1
