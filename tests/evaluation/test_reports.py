"""Markdown tables and plots of a run."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.metrics import f1_score, precision_recall_fscore_support

from modeling_star.evaluation import reports
from modeling_star.evaluation.metrics import entity_report
from modeling_star.evaluation.reports import (
    baseline_lines,
    classes_report,
    labels_report,
    markdown_table,
    metrics_only,
    per_entity_table,
    plot_training_curves,
    score_lines,
    seeds_table,
    summarize_seeds,
)


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


def test_tables_format_numbers_and_escape_bars() -> None:
    table = markdown_table(["name", "value"], [["a|b", 0.12345], ["c\nd", 12345], ["e", "x"]])
    assert table.splitlines() == [
        "| name | value |",
        "| :-- | --: |",
        "| a\\|b | 0.1235 |",
        "| c d | 12,345 |",
        "| e | x |",
    ]


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


def test_of_many_classes_the_most_frequent_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "MOST_LABELS", 21)
    labels = [f"class{number}" for number in range(40)]
    truth = [*range(40), *range(20, 40)]
    scores, counts = classes_report(truth, truth, labels).split("\n\n")
    assert [line.split(" | ")[0] for line in scores.splitlines()[2:22]] == [f"| class{n}" for n in (0, *range(20, 39))]
    assert "**mean** (40 classes, the most frequent above)" in scores
    assert counts.splitlines()[-1].startswith("| other (20) | ")


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


def test_timings_and_counts_are_not_among_the_metrics() -> None:
    logged = {"test_f1": 0.5, "test_loss": 1.0, "test_runtime": 2.0, "test_steps_per_second": 3.0, "eval_f1": 0.1}
    assert metrics_only(logged | {"test_samples": 4, "epoch": 5.0, "test_name": "x"}, "test_") == {"f1": 0.5}
    timings = {"eval_model_preparation_time": 1.0, "train_mem_gpu_alloc_delta": 1.0, "eval_loss": 1.0}
    types = {"eval_arrive_time_f1": 0.25, "eval_glossary_f1": 0.5, "eval_time_precision": 1.0}
    assert metrics_only(timings | types, "eval_") == {
        "arrive_time_f1": 0.25,
        "glossary_f1": 0.5,
        "time_precision": 1.0,
    }


# Plots


def test_training_curves_show_losses_and_the_metric(tmp_path: Path, drawn: list[Figure]) -> None:
    path = plot_training_curves(LOG, tmp_path / "curves.png", "f1", title="run")
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


def test_the_first_metric_is_drawn_when_none_is_named(tmp_path: Path, drawn: list[Figure]) -> None:
    plot_training_curves(LOG, tmp_path / "curves.png", greater_is_better=False)
    assert drawn[0].axes[1].get_title() == "best 0.5000 at step 20"


def test_curves_of_a_resumed_run_go_forward(tmp_path: Path, drawn: list[Figure]) -> None:
    log = [
        {"loss": 3.0, "step": 1},
        {"loss": 2.0, "step": 2},
        {"loss": 9.0, "step": 2},
        {"loss": float("nan"), "step": 3},
    ]
    plot_training_curves(log, tmp_path / "curves.png")
    assert drawn[0].axes[0].lines[0].get_xydata().tolist() == [[1, 3.0], [2, 9.0]]
    assert len(drawn[0].axes) == 1


def test_nothing_logged_draws_nothing(tmp_path: Path) -> None:
    assert plot_training_curves([{"train_runtime": 1.0, "step": 3}], tmp_path / "curves.png") is None
    assert os.listdir(tmp_path) == []


def test_equal_runs_draw_equal_files(tmp_path: Path) -> None:
    paths = [plot_training_curves(LOG, tmp_path / name, "f1") for name in ("a.png", "b.png")]
    assert paths[0].read_bytes() == paths[1].read_bytes()


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
