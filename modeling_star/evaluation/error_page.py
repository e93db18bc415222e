"""The mistakes of a scored split as one HTML page, worst first, with its confusion in counts and percent."""

import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import jinja2
import numpy as np

from ..files import write_text


TEMPLATE = Path(__file__).with_name("error_page.html")
MOST_MISTAKES = 200
NO_ENTITY, OTHER_ENDS = "no entity", "other ends"
BOTH, MISSED, WRONG = "true and predicted", "only true", "only predicted"


@dataclass(frozen=True)
class Mistake:
    """
    What the page shows of a row: its number in the data, its text in pieces, some of them highlighted, and lines on
    what the data say and what the model does.
    """

    row: int
    parts: Sequence[tuple[str, bool]]
    expected: Sequence[str]
    predicted: Sequence[str]


@dataclass(frozen=True)
class Confusion:
    """How often each row's class was predicted as each column's, `counts` `[rows, columns]`, and how to read it."""

    counts: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    note: str = ""


def write_error_page(
    path: str | os.PathLike[str],
    title: str,
    total: int,
    losses: Mapping[int, float],
    mistake: Callable[[int], Mistake],
    confusion: Confusion | None,
    order: str,
) -> Path:
    """
    Write the page: the MOST_MISTAKES worst of `total` rows, and the confusion. `losses` are those of the rows that are
    wrong, by their index in the split; `order` says what they are.
    """
    template = jinja2.Template(TEMPLATE.read_text(encoding="utf-8"), autoescape=True, trim_blocks=True)
    worst = [mistake(index) for index in heapq.nlargest(MOST_MISTAKES, losses, key=lambda index: losses[index])]
    table = []
    if confusion is not None:
        shares = confusion.counts / np.maximum(confusion.counts.sum(axis=1, keepdims=True), 1)
        table = [
            (name, [(c in (name, BOTH), *cell) for c, *cell in zip(confusion.columns, counts, of_row, strict=True)])
            for name, counts, of_row in zip(confusion.rows, confusion.counts, shares, strict=True)
            if counts.any()
        ]
    page = template.render(
        title=title,
        total=total,
        wrong=len(losses),
        mistakes=worst,
        table=table,
        confusion=confusion,
        order=order,
    )
    return write_text(path, page)


def marked_words(words: Sequence[str], wrong: Sequence[bool], between: str) -> list[tuple[str, bool]]:
    """A sentence in pieces: each run of words, and whether it is wrong."""
    runs = groupby(zip(words, wrong, strict=True), key=lambda pair: pair[1])
    parts = [(between.join(word for word, _ in run), is_wrong) for is_wrong, run in runs]
    return [piece for part in parts for piece in ((between, False), part)][1:]


def entity_confusion(
    expected: Sequence[set[tuple[str, int, int]]], predicted: Sequence[set[tuple[str, int, int]]]
) -> Confusion:
    """
    Types of entities with the same ends. An entity that only overlaps a predicted one has "other ends"; a predicted
    one that overlaps none has a row of its own.
    """
    pairs = []
    for truth, guess in zip(expected, predicted, strict=True):
        types = {(first, end): kind for kind, first, end in guess}
        for kind, first, end in truth:
            overlaps = any(start < end and stop > first for start, stop in types)
            pairs.append((kind, types.get((first, end), OTHER_ENDS if overlaps else NO_ENTITY)))
        pairs += [
            (NO_ENTITY, kind)
            for kind, first, end in guess
            if not any(start < end and stop > first for _, start, stop in truth)
        ]
    rows, columns = (
        sorted({pair[side] for pair in pairs}, key=lambda name: (name in (NO_ENTITY, OTHER_ENDS), name))
        for side in (0, 1)
    )
    counts = np.zeros((len(rows), len(columns)), dtype=int)
    for kind, found in pairs:
        counts[rows.index(kind), columns.index(found)] += 1
    note = f'"{OTHER_ENDS}": an entity that overlaps was predicted. "{NO_ENTITY}": nothing there.'
    return Confusion(counts, rows, columns, note)
