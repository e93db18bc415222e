"""Reports of a run: Markdown tables and plots."""

import math
import os
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, cast

import numpy as np
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from sklearn.metrics import precision_recall_fscore_support

from ..files import write_atomically


MOST_LABELS = 25
"""Of more labels than these, tables have the most frequent ones; the others share a row."""

BLUE, ORANGE, GREEN = "#2a6fbb", "#d9782d", "#3c8d5a"
# The first font that is installed draws Chinese labels; without one they appear as boxes.
_CJK_FONTS = ["Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "WenQuanYi Zen Hei", "PingFang SC", "SimHei"]
# Timings and counters that Trainer and the scripts log with the metrics.
_NOT_METRICS = re.compile(r"(^|_)(runtime|per_second|loss|epoch|samples|time)$|(^|_)mem_")


# Tables


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table: the first column to the left, the others to the right. Floats get four decimals."""
    names, *lines = ([_cell(value) for value in row] for row in (header, *rows))
    alignment = [":--", *["--:"] * (len(header) - 1)]
    return "\n".join("| " + " | ".join(line) + " |" for line in (names, alignment, *lines))


def escaped(text: str) -> str:
    """A name as Markdown that shows it literally: without markup, HTML, formulas and line ends."""
    text = escape(" ".join(text.split()), quote=False)
    return re.sub(r"[\\`*\[\]~$]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def _cell(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return f"{value:.4f}"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def per_entity_table(report: Mapping[str | None, Mapping[str, float]]) -> str:
    """A Markdown table of `entity_report`: a row for each type, then all together."""
    rows = [
        ["**all**" if name is None else escaped(name), row["precision"], row["recall"], row["f1"], row["support"]]
        for name, row in report.items()
    ]
    return markdown_table(["entity type", "precision", "recall", "F1", "entities"], rows)


def classes_report(references: Sequence[Any], predictions: Sequence[Any], label_list: Sequence[str]) -> str:
    """Markdown: precision, recall, F1 and number of each class, then how often each was predicted as each other."""
    truth, guess = _names(references, label_list), _names(predictions, label_list)
    seen = {*truth, *guess}
    names = [name for name in label_list if name in seen]
    columns = precision_recall_fscore_support(truth, guess, labels=names, zero_division=0)
    support = columns[3]
    frequent = sorted(np.argsort(-support, kind="stable")[:MOST_LABELS].tolist())
    more = f" ({len(names)} classes, the most frequent above)" if len(names) > MOST_LABELS else ""
    scores = _scores_table("class", names, columns, frequent, f"**mean**{more}")
    counts, names = confusion_counts(truth, guess, names)
    names = list(map(escaped, names))
    rows = ([name, *row] for name, row in zip(names, counts, strict=True))
    return f"{scores}\n\n{markdown_table(['true ↓ predicted →', *names], rows)}"


def labels_report(references: np.ndarray, predictions: np.ndarray, label_list: Sequence[str]) -> str:
    """Markdown: precision, recall, F1 and number of examples of each label, of 0 and 1 `[examples, labels]`."""
    truth, guess = references.astype(int), predictions.astype(int)
    # scikit-learn takes a single column for classes 0 and 1.
    labels = range(len(label_list)) if len(label_list) > 1 else [1]
    columns = precision_recall_fscore_support(truth, guess, labels=labels, zero_division=0)
    return _scores_table("label", label_list, columns, range(len(label_list)), "**mean**")


def _scores_table(
    kind: str, names: Sequence[str], columns: Sequence[np.ndarray], indices: Iterable[int], mean: str
) -> str:
    """Rows of scikit-learn's precision, recall, F1 and support `[labels]` each, and their mean."""
    *scores, support = columns
    rows: list[list[object]] = [[escaped(names[i]), *(score[i] for score in scores), int(support[i])] for i in indices]
    rows.append([mean, *(score.mean() for score in scores), int(support.sum())])
    return markdown_table([kind, "precision", "recall", "F1", "examples"], rows)


def _names(labels: Iterable[Any], label_list: Sequence[str]) -> list[str]:
    """Names of labels that are names or indices."""
    return [label if isinstance(label, str) else label_list[label] for label in labels]


def confusion_counts(
    references: Sequence[str], predictions: Sequence[str], names: Sequence[str]
) -> tuple[np.ndarray, list[str]]:
    """How often each label, a row, was predicted as each other, a column; the rarest labels share "other (17)"."""
    rows = list(names)
    if len(names) > MOST_LABELS:
        support = Counter(references)
        frequent = set(sorted(names, key=lambda name: -support[name])[: MOST_LABELS - 1])
        rows = [*(name for name in names if name in frequent), f"other ({len(names) - len(frequent)})"]
        references, predictions = (
            [x if x in frequent else rows[-1] for x in labels] for labels in (references, predictions)
        )
    counts = Counter(zip(references, predictions, strict=True))
    return np.array([[counts[row, column] for column in rows] for row in rows]), rows


def summarize_seeds(results: Mapping[int, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """
    Of every metric that all seeds have `mean`, `std` (of the sample, n - 1; `None` for a single run) and `values`, in
    the order of the seeds.
    """
    runs = list(results.values())
    shared = [name for name in runs[0] if all(_is_number(run.get(name)) for run in runs)]
    summary = {}
    for name in shared:
        values = [float(run[name]) for run in runs]
        summary[name] = {"mean": fmean(values), "std": stdev(values) if len(values) > 1 else None, "values": values}
    return summary


def seeds_table(results: Mapping[int, Mapping[str, Any]], metrics: Sequence[str] | None = None) -> str:
    """A Markdown table of `metrics` (all, if None): a row for each seed, then mean and standard deviation."""
    summary = summarize_seeds(results)
    names = list(summary) if metrics is None else [name for name in metrics if name in summary]
    rows: list[list[object]] = [[str(seed), *(float(run[name]) for name in names)] for seed, run in results.items()]
    if len(results) > 1:
        rows.append(["**mean**", *(summary[name]["mean"] for name in names)])
        rows.append(["**standard deviation**", *(summary[name]["std"] for name in names)])
    return markdown_table(["seed", *names], rows)


def score_prefix(split: str) -> str:
    """validation -> eval, test -> test; validation_mismatched (MNLI's) -> eval_mismatched."""
    return split.replace("validation", "eval", 1)


BASELINES = {
    "tfidf": "TF-IDF with logistic regression",
    "dictionary": "dictionary of the training entities",
    "frequent": "most frequent tag of each word",
}
"""What a model is compared with, by the prefixes of its scores in all_results.json."""


def baseline_lines(results: Mapping[str, Any], metric: str) -> list[str]:
    """The scores of a model and of its baselines in one line, for each split on which these were scored."""
    values = {name: value["mean"] if isinstance(value, Mapping) else value for name, value in results.items()}
    prefixes = [name.removesuffix("_samples") for name in values if name.endswith("_samples")]
    lines = []
    for prefix in prefixes:
        name = f"{prefix}_{metric}"
        others = [
            f"{text} {values[f'{kind}_{name}']:.3f}" for kind, text in BASELINES.items() if f"{kind}_{name}" in values
        ]
        if others:
            score = f"{prefix.replace('eval', 'validation', 1)} {metric} {values[name]:.3f}"
            rows = round(values[f"{prefix}_samples"])
            lines.append(f"{score}; {', '.join(others)}, on the same {rows:,} rows")
    return lines


def best_baseline(results: Mapping[str, Any], name: str) -> tuple[str, float] | None:
    """The baseline with the highest score `name`, such as "eval_f1", in the results of a run, and that score."""
    scored = [(kind, float(results[f"{kind}_{name}"])) for kind in BASELINES if f"{kind}_{name}" in results]
    return max(scored, key=lambda pair: pair[1], default=None)


def score_lines(results: Mapping[str, Any], metric: str) -> list[str]:
    """The score on each split, the test splits first, in one line with those of the baselines if there are any."""
    values = {name: value["mean"] if isinstance(value, Mapping) else value for name, value in results.items()}
    lines = baseline_lines(values, metric)
    scored = (name.removesuffix("_samples") for name in values if name.endswith("_samples"))
    for prefix in dict.fromkeys((*scored, "eval", "test")):
        name = f"{prefix}_{metric}"
        if name in values and best_baseline(values, name) is None:
            rows = f", on {round(values[f'{prefix}_samples']):,} rows" if f"{prefix}_samples" in values else ""
            split = prefix.replace("eval", "validation", 1)
            lines.append(f"{split} {metric} {values[name]:.3f}{rows}")
    return sorted(lines, key=lambda line: not line.startswith("test"))


def metrics_only(results: Mapping[str, Any], prefix: str) -> dict[str, float]:
    """The metrics of a split in the results of `Trainer.evaluate` or `predict`, without losses, timings and counts."""
    of_split = {name.removeprefix(prefix): x for name, x in results.items() if name.startswith(prefix)}
    return {name: float(x) for name, x in of_split.items() if _is_number(x) and not _NOT_METRICS.search(name)}


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


# Plots


def plot_training_curves(
    log_history: Sequence[Mapping[str, Any]],
    path: str | os.PathLike[str],
    metric: str | None = None,
    *,
    greater_is_better: bool = True,
) -> Path | None:
    """
    Draw training and validation loss, and a validation metric (`None`: the first that was evaluated), over optimizer
    steps; `None` where nothing was logged, and nothing is written.
    """
    train = _series(log_history, "loss")
    validation = _series(log_history, "eval_loss")
    name = _metric_name(log_history, metric)
    scores = _series(log_history, name) if name else []
    if not train and not validation and not scores:
        return None
    panels = bool(train or validation) + bool(scores)
    figure, axes = new_figure(width=5.2 * panels, height=3.6, columns=panels)
    if train or validation:
        _curve(axes[0], train, BLUE, "training")
        _curve(axes[0], validation, ORANGE, "validation")
        axes[0].set_ylabel("loss")
        axes[0].legend(frameon=False)
    if name and scores:
        label = name.removeprefix("eval_").replace("_", " ")
        _curve(axes[-1], scores, GREEN, label)
        step, best = (max if greater_is_better else min)(scores, key=lambda point: point[1])
        axes[-1].plot([step], [best], "o", markersize=9, markerfacecolor="none", color=GREEN)
        axes[-1].set_title(f"best {best:.4f} at step {step:,}", fontsize=9, color="#444444")
        axes[-1].set_ylabel(f"validation {label}")
    last = max(step for points in (train, validation, scores) for step, _ in points)
    for axis in axes:
        axis.set_xlim(0, last * 1.03)  # both panels alike
        axis.set_xlabel("step")
        axis.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, min_n_ticks=1))
        axis.grid(alpha=0.25)
    return save_figure(figure, path, None)


def _metric_name(log_history: Sequence[Mapping[str, Any]], metric: str | None) -> str | None:
    """The key of the metric to draw: the one that is named, or the first that was evaluated."""
    if metric is not None:
        return metric if metric.startswith("eval_") else f"eval_{metric}"
    for entry in log_history:
        names = metrics_only(entry, "eval_")
        if names:
            return f"eval_{next(iter(names))}"
    return None


def _series(log_history: Sequence[Mapping[str, Any]], name: str) -> list[tuple[int, float]]:
    """(step, value) of every finite logged value; of a step logged twice (a resumed run), the last."""
    points = {}
    for entry in log_history:
        if _is_number(entry.get(name)) and math.isfinite(entry[name]) and "step" in entry:
            points[int(entry["step"])] = float(entry[name])
    return sorted(points.items())


def _curve(axis: Any, points: Sequence[tuple[int, float]], color: str, label: str) -> None:
    if points:
        steps, values = zip(*points, strict=True)
        # a lone point, or a few, would not show as a line
        marker = "o" if len(points) <= 30 else None
        axis.plot(steps, values, color=color, label=label, marker=marker, markersize=3.5, linewidth=1.6)


def new_figure(width: float, height: float, columns: int = 1) -> tuple[Figure, list[Any]]:
    """A figure drawn by Agg alone: no display, no pyplot, no state shared between threads. Sizes in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, columns, squeeze=False)[0].tolist()


def save_figure(figure: Figure, path: str | os.PathLike[str], title: str | None) -> Path:
    if title:
        figure.suptitle(title, fontsize=11)
    installed = {font.name for font in font_manager.fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in _CJK_FONTS if name in installed)]
    for text in figure.findobj(Text):
        cast(Text, text).set_fontfamily(families)
        if "$" in cast(Text, text).get_text():  # of a label; axes add those of numbers later
            cast(Text, text).set_parse_math(False)
    # Software: no version of matplotlib inside, so that equal runs give equal files. Tight: the layout engine forgets
    # the axis label of an axes with a fixed aspect ratio.
    options: dict[str, Any] = {"format": "png", "metadata": {"Software": None}, "bbox_inches": "tight"}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        return write_atomically(path, lambda stream: figure.savefig(stream, pad_inches=0.1, **options))
