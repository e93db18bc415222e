"""Markdown tables, plots and the page of mistakes of a run."""

import re
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from matplotlib.figure import Figure
from seqeval.metrics.sequence_labeling import get_entities
from sklearn.metrics import f1_score, precision_recall_fscore_support

from modeling_star.data.entities import EntityGroups
from modeling_star.evaluation import reports
from modeling_star.evaluation.error_page import (
    MOST_MISTAKES,
    Confusion,
    Mistake,
    write_error_page,
)
from modeling_star.evaluation.metrics import entities_in, entity_report
from modeling_star.evaluation.reports import (
    baseline_lines,
    classes_report,
    confusion_counts,
    labels_report,
    per_entity_table,
    plot_training_curves,
    score_lines,
    seeds_table,
    summarize_seeds,
)
from modeling_star.models.tag_schemes import entity_tag


LOG = [
    {"loss": 2.0, "step": 10, "epoch": 0.5},
    {"eval_loss": 1.8, "eval_runtime": 0.1, "eval_f1": 0.5, "eval_samples_per_second": 9.0, "step": 20, "epoch": 1.0},
    {"loss": 1.0, "step": 30, "epoch": 1.5},
    {"eval_loss": 1.6, "eval_runtime": 0.1, "eval_f1": 0.7, "step": 40, "epoch": 2.0},
    {"eval_loss": 1.7, "eval_runtime": 0.1, "eval_f1": 0.6, "step": 60, "epoch": 3.0},
    {"train_runtime": 9.0, "train_loss": 1.2, "step": 60, "epoch": 3.0},
]
REPORT = entity_report([["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC"]], [["B-PER", "I-PER", "O", "O"], ["B-LOC"]])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures that were drawn, to look inside."""
    figures: list[Figure] = []
    save = reports.save_figure

    def keep(figure: Figure, path: Path, title: str | None) -> Path:
        figures.append(figure)
        return save(figure, path, title)

    monkeypatch.setattr(reports, "save_figure", keep)
    return figures


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG\r\n") and path.stat().st_size > 5000


# Tables


def test_entity_table_has_a_row_for_each_type_and_one_for_all() -> None:
    lines = per_entity_table(REPORT).splitlines()[2:]
    assert lines == [
        "| LOC | 1.0000 | 0.5000 | 0.6667 | 2 |",
        "| PER | 1.0000 | 1.0000 | 1.0000 | 1 |",
        "| **all** | 1.0000 | 0.6667 | 0.8000 | 3 |",
    ]


def test_classes_are_scored_as_scikit_learn_does_and_counted() -> None:
    labels = ["bad|worse", "good", "fair", "never"]
    truth, guess = [0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 2, 1]
    lines = classes_report(truth, guess, labels).splitlines()
    expected = precision_recall_fscore_support(truth, guess, zero_division=0)
    for place, line in zip(range(3), lines[2:5], strict=True):
        name, *numbers = line.strip("| ").replace("\\|", "/").split(" | ")
        assert name == labels[place].replace("|", "/")
        assert numbers == [*(f"{column[place]:.4f}" for column in expected[:3]), str(expected[3][place])]
    mean = f1_score(truth, guess, average="macro", zero_division=0)
    assert lines[5].startswith("| **mean** |")
    assert lines[5].endswith(f"| {mean:.4f} | 6 |")
    assert lines[7:] == [
        "| true ↓ predicted → | bad\\|worse | good | fair |",
        "| :-- | --: | --: | --: |",
        "| bad\\|worse | 1 | 1 | 0 |",
        "| good | 0 | 2 | 1 |",
        "| fair | 0 | 1 | 0 |",
    ]


@pytest.mark.filterwarnings("error")
def test_one_label_alone_is_counted_without_a_warning() -> None:
    assert confusion_counts(["a", "a"], ["a", "a"], ["a"])[0].tolist() == [[2]]
    assert confusion_counts(["a", "b", "a"], ["b", "b", "c"], ["a", "b"])[0].tolist() == [[0, 1], [0, 1]]


def test_several_labels_are_scored_each_as_scikit_learn_does() -> None:
    labels = ["a", "b|c", "never"]
    truth = np.array([[1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 0]])
    guess = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]])
    lines = labels_report(truth, guess, labels).splitlines()
    expected = precision_recall_fscore_support(truth, guess, average=None, zero_division=0)
    assert len(lines) == 6
    for place, line in enumerate(lines[2:5]):
        assert line.strip("| ").split(" | ")[1:] == [
            *(f"{column[place]:.4f}" for column in expected[:3]),
            str(expected[3][place]),
        ]
    assert lines[5].startswith("| **mean** |")


def test_seeds_are_summarized_by_mean_and_sample_deviation() -> None:
    results = {1: {"f1": 0.5, "note": "x", "extra": 1.0}, 2: {"f1": 0.7, "note": "y"}, 3: {"f1": np.float64(0.6)}}
    summary = summarize_seeds(results)
    assert summary == {"f1": {"mean": pytest.approx(0.6), "std": pytest.approx(0.1), "values": [0.5, 0.7, 0.6]}}
    lines = seeds_table(results).splitlines()[2:]
    assert lines == [
        "| 1 | 0.5000 |",
        "| 2 | 0.7000 |",
        "| 3 | 0.6000 |",
        "| **mean** | 0.6000 |",
        "| **standard deviation** | 0.1000 |",
    ]


# Plots


def test_training_curves_show_losses_and_the_metric(tmp_path: Path, drawn: list[Figure]) -> None:
    path = plot_training_curves(LOG, tmp_path / "curves.png", "f1")
    assert path is not None
    assert is_png(path)
    losses, metric = drawn[0].axes
    assert {line.get_label(): line.get_xydata().tolist() for line in losses.lines} == {
        "training": [[10, 2.0], [30, 1.0]],
        "validation": [[20, 1.8], [40, 1.6], [60, 1.7]],
    }
    assert metric.lines[0].get_xydata().tolist() == [[20, 0.5], [40, 0.7], [60, 0.6]]
    assert metric.get_title() == "best 0.7000 at step 40"
    assert metric.get_ylabel() == "validation f1"


def test_a_model_and_its_baseline_are_in_one_line_for_each_split() -> None:
    scores = {"eval_f1": 0.5, "eval_macro_f1": 0.25, "eval_mismatched_f1": 0.75, "test_f1": 0.125}
    baseline = {f"tfidf_{name}": value / 2 for name, value in scores.items() if name != "test_f1"}
    samples = {"train_samples": 9, "eval_samples": 1200, "eval_mismatched_samples": 4, "test_samples": 5}
    lines = baseline_lines({**scores, **baseline, **samples}, "f1")
    assert [re.findall(r"[\d.,]*\d", line.replace("f1", "")) for line in lines] == [
        ["0.500", "0.250", "1,200"],
        ["0.750", "0.375", "4"],
    ]
    assert lines[1].startswith("validation_mismatched f1 ")
    shown = score_lines({**scores, **baseline, **samples}, "f1")
    assert shown == [score_lines({"test_f1": 0.125, "test_samples": 5}, "f1")[0], *lines]
    assert score_lines({"test_f1": 0.5, "train_samples": 9}, "f1"), "a run of TF-IDF alone counts no rows"
    seeds = {seed: {"eval_f1": seed / 4, "tfidf_eval_f1": 0.5, "eval_samples": 8} for seed in (1, 2)}
    assert baseline_lines(summarize_seeds(seeds), "f1") == baseline_lines({**seeds[1], "eval_f1": 0.375}, "f1")


def rows_of_page(page: str) -> list[list[str]]:
    """The rows of the table of mistakes, without tags."""
    rows = re.findall(r"<tr><td>(.*?)</tr>", page, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row.split("<td>")] for row in rows]


def test_the_worst_row_comes_first_and_the_page_is_whole_and_escaped(tmp_path: Path) -> None:
    losses = {place: float(place % 7) for place in range(MOST_MISTAKES + 50)}

    def mistake(place: int) -> Mistake:
        return Mistake(place, [("a <b> ", False), ("word", True)], [str(losses[place])], ["x"])

    confusion = Confusion(np.array([[3, 1], [0, 0]]), ["yes", "no"], ["yes", "no"])
    page = write_error_page(tmp_path / "page.html", "Title", 1000, losses, mistake, confusion, "by loss").read_text()
    rows = rows_of_page(page)
    assert len(rows) == MOST_MISTAKES
    shown = [float(row[2]) for row in rows]
    assert shown == sorted(losses.values(), reverse=True)[:MOST_MISTAKES]
    assert "a &lt;b&gt; <mark>word</mark>" in page
    assert "250 of 1,000 rows" in page
    assert "75.0 %" in page
    assert "http" not in page


@pytest.mark.parametrize(
    "names",
    [
        "O B-X I-X B-Y I-Y",
        "O I-X I-Y B-X",
        "O B-X I-X E-X S-X B-Y I-Y E-Y S-Y",
        "O B-X I-X L-X U-X",
        "O B-X M-X E-X S-X",
        "O B-X M-X E-X W-X",
        "B M E S",
        "O B I",
        "O B-A-b I-A-b B-A I-A",
    ],
)
@given(data=st.data())
def test_entities_are_those_that_seqeval_counts(names: str, data: st.DataObject) -> None:
    labels = data.draw(st.lists(st.sampled_from(names.split()), max_size=9))
    known = [entity_tag(label) or entity_tag(f"{label}-word") for label in labels]  # the letters that seqeval reads
    found = get_entities(["-".join(filter(None, tag)) for tag in known])
    assert entities_in([labels]) == [{(kind, first, last + 1) for kind, first, last in found}]
    groups = EntityGroups(names.split())
    assert entities_in([labels]) == [set(groups(groups.numbers(labels)))]
