"""The page of a split's mistakes."""

import re
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from seqeval.metrics.sequence_labeling import get_entities

from modeling_star.data.entities import EntityGroups
from modeling_star.evaluation.error_page import (
    MOST_MISTAKES,
    Confusion,
    Mistake,
    entity_confusion,
    marked_words,
    write_error_page,
)
from modeling_star.evaluation.metrics import entities_in
from modeling_star.models.tag_schemes import entity_tag


def cells(page: str) -> list[list[str]]:
    """The rows of the table of mistakes, without tags."""
    rows = re.findall(r"<tr><td>(.*?)</tr>", page, re.DOTALL)
    return [[re.sub(r"<[^>]*>", "", cell).strip() for cell in row.split("<td>")] for row in rows]


def test_the_worst_row_comes_first_and_the_page_is_whole_and_escaped(tmp_path: Path) -> None:
    losses = {place: float(place % 7) for place in range(MOST_MISTAKES + 50)}

    def mistake(place: int) -> Mistake:
        return Mistake(place, [("a <b> ", False), ("word", True)], [str(losses[place])], ["x"])

    confusion = Confusion(np.array([[3, 1], [0, 0]]), ["yes", "no"], ["yes", "no"])
    page = write_error_page(tmp_path / "page.html", "Title", 1000, losses, mistake, confusion, "by loss").read_text()
    rows = cells(page)
    assert len(rows) == MOST_MISTAKES
    shown = [float(row[2]) for row in rows]
    assert shown == sorted(losses.values(), reverse=True)[:MOST_MISTAKES]
    assert "a &lt;b&gt; <mark>word</mark>" in page
    assert "250 of 1,000 rows" in page
    assert "75.0 %" in page
    assert "http" not in page


def test_entities_with_other_ends_and_without_a_counterpart_are_counted_apart() -> None:
    expected = entities_in([["B-PER", "I-PER", "O", "B-LOC", "O", "B-LOC", "O"]])
    predicted = entities_in([["B-PER", "O", "O", "B-ORG", "O", "O", "B-ORG"]])
    confusion = entity_confusion(expected, predicted)
    table = {
        (row, column): int(confusion.counts[i, j])
        for i, row in enumerate(confusion.rows)
        for j, column in enumerate(confusion.columns)
        if confusion.counts[i, j]
    }
    assert table == {
        ("PER", "other ends"): 1,
        ("LOC", "ORG"): 1,
        ("LOC", "no entity"): 1,
        ("no entity", "ORG"): 1,
    }
    assert marked_words("abcd", [False, True, True, False], " ") == [
        ("a", False),
        (" ", False),
        ("b c", True),
        (" ", False),
        ("d", False),
    ]


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
