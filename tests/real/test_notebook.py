"""A notebook, run cell by cell in a kernel of Jupyter, as `jupyter notebook` does."""

import ast
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from modeling_star.inference import Predictor


CELLS = """
from modeling_star.inference import Predictor
predictor = Predictor("{folder}")
---
[(text, found[0]["label"], found[0]["score"]) for text, found in predictor.predict(["a fine film", "dull song"])]
---
from transformers import pipeline
[one["label"] for one in pipeline("text-classification", "{folder}")(["a fine film", "dull song"])]
"""


def test_a_notebook_predicts_with_a_line_on_the_log_at_most(
    classifier_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing is compiled yet
    monkeypatch.setenv("MODELING_STAR_CPU_KERNELS", "auto")
    cells = CELLS.format(folder=classifier_folder).split("---")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip()) for cell in cells])
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.outputs]
    streams = "".join(output.text for output in outputs if output.output_type == "stream").splitlines()
    logged = [line for line in streams if line.strip() and "it/s]" not in line and "tqdm" not in line]  # no bars
    assert len(logged) <= 1, logged
    results = [
        ast.literal_eval(output.data["text/plain"]) for output in outputs if output.output_type == "execute_result"
    ]
    expected = Predictor(classifier_folder, dtype="float32").predict(["a fine film", "dull song"])
    assert [label for _, label, _ in results[0]] == results[1] == ["good", "bad"]
    assert [score for *_, score in results[0]] == pytest.approx([found[0]["score"] for _, found in expected], abs=1e-5)
