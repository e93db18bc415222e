"""Line plots over the length of the input."""

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from matplotlib.ticker import LogLocator, StrMethodFormatter

from modeling_star.evaluation.reports import new_figure, save_figure


OTHER_COLORS = ("#8a5fbf", "#c2453d", "#7a5548", "#d277b3", "#2a9d9d", "#a8a032", "#1f3d6b", "#555555")


def plot_over_length(
    lines: Mapping[str, Sequence[tuple[int, float]]],
    path: str | os.PathLike[str],
    ylabel: str,
    *,
    colors: Mapping[str, str],
    labels: Mapping[str, str] | None = None,
    dashed: Collection[str] = (),
    xlabel: str = "tokens of a sequence",
) -> Path:
    """Draw a line for each system over the length of its input, both axes logarithmic.

    Args:
        lines: (length, value above 0) of each system, in any order.
        path: the PNG to write.
        ylabel, xlabel: names of the axes.
        colors: of systems; those without one get what is left.
        labels: what the legend says of a system, if not its name.
        dashed: systems that are bounds or guesses.
    """
    figure, (axis,) = new_figure(width=7.4, height=4.6)
    others = iter(range(len(lines)))
    for system, points in lines.items():
        lengths, values = zip(*sorted(points), strict=True)
        color = colors.get(system) or OTHER_COLORS[next(others) % len(OTHER_COLORS)]
        style, label = "--" if system in dashed else "-", (labels or {}).get(system, system)
        axis.plot(lengths, values, style, color=color, label=label, marker="o", markersize=4, linewidth=1.6)
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    ticks = sorted({length for points in lines.values() for length, _ in points})
    axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
    axis.minorticks_off()
    # less than a decade has one power of ten at most
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_xlabel(xlabel)
    axis.set_ylabel(ylabel)
    axis.grid(alpha=0.25)
    axis.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save_figure(figure, path, None)
