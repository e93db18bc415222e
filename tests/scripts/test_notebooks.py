"""The notebooks of docs/notebooks run, and print what they show but for numbers."""

import re
from pathlib import Path

import pytest
from script_runner import ROOT


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(cells: list) -> list[str]:
    """What each cell prints, without the digits, which depend on the processor."""
    texts = (
        "".join(output["text"] for output in cell.get("outputs", ()) if output.get("name") == "stdout")
        for cell in cells
    )
    return [re.sub(r"\d+(\.\d+)?", "0", text) for text in texts if text]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    shown = nbformat.read(path, as_version=4)
    expected = printed(shown.cells)
    nbclient.NotebookClient(shown, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert len(expected) >= 3
    assert printed(shown.cells) == expected
