"""The cards of the model families: short, and every score in them is that of stored runs."""

from pathlib import Path

import pytest
from harness.results_page import mean_of_cells, read_cells
from harness.tables import Table
from huggingface_hub import ModelCard


ROOT = Path(__file__).resolve().parents[2]
CARDS = sorted((ROOT / "model_cards").glob("*.md"))


@pytest.mark.parametrize("path", CARDS, ids=lambda path: path.stem)
def test_scores_and_sizes_of_a_card_are_those_of_stored_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = path.read_text(encoding="utf-8")
    rows = [
        line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|") and line.endswith("` |")
    ]
    assert 1 <= len(rows) <= 10
    for *_, score, size, cell in rows:
        name, (task, setting, system) = cell.strip("`").split()[0], cell.strip("`").split()[1].split("/")
        table = Table.read(Path(f"experiments/tables/{name}.yaml"))
        cells = read_cells(table, setting, Path("experiments/results"))
        begun = [
            column for (column, of), each in cells.items() if of == system and each.runs and column in table.tasks
        ]
        tasks = begun if task == "*" else [task]
        assert (score, size) == mean_of_cells(tasks, system, cells), cell
    # A model-index would have scores of weights, which are not published.
    data = ModelCard(text).data
    assert (data.license, data.tags, data.eval_results) == ("apache-2.0", [path.stem], None)
