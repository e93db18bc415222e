"""
Texts with labelled spans of characters become words with BIO tags.

    Mira went to Quell.   0-4 PER, 13-18 LOC
    Mira went to Quell .
    B-PER O   O  B-LOC O
"""

from __future__ import annotations

import itertools
import logging
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import regex

from ...errors import UserError
from ..columns import SPAN_TAGS
from ..writing_systems import _Offsets, split_words


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
CLASSES_OF_TEXTS = "Classes of texts are read from csv or json (Label Studio's CSV and JSON-MIN)."
NOT_ANNOTATED = "texts that nobody has annotated are omitted"


@dataclass(frozen=True)
class Span:
    """A label of the characters `start` to `end`, exclusive, which are `surface` by the file; "" is not learned."""

    start: int
    end: int
    label: str
    surface: str | None = None


@dataclass(frozen=True)
class Document:
    """A text, named as "row 3", its spans, `None` where nobody has annotated it, and its words, if given."""

    name: str
    text: str
    spans: Sequence[Span] | None
    words: Sequence[Span] | None = None


@dataclass
class SpanFile:
    """
    The documents of a file in their order, why others were left out, how offsets may be counted, the usual way first,
    and whether documents are divided into lines.
    """

    format: str
    documents: list[Document]
    counts: Counter[str] = field(default_factory=Counter)
    units: Sequence[str] = ("code points", "UTF-16 units", "graphemes")
    has_lines: bool = False


# ------ Units: tools in JavaScript and Java count UTF-16 units, where Python counts code points


def resolve_offsets(path: Path, file: SpanFile) -> SpanFile:
    """
    The same file with offsets in code points: in the unit in which they fit the texts of spans and words, or else in
    which fewer spans begin or end within a word. A span that is not within its text, or has another one, is an error.
    """
    spans = [each for document in file.documents for each in _spans_of(document)]
    readings = [(unit, 0) for unit in file.units]
    if any(span.surface for span in spans):  # an inclusive end is seen by them alone
        readings += [(unit, 1) for unit in file.units]
    costs = dict.fromkeys(readings, 0)
    if len(readings) > 1:
        for document in file.documents:
            if len(readings) > len(file.units) or not _is_plain(document.text):
                for reading, cost in zip(readings, _costs(document, readings), strict=True):
                    costs[reading] += cost
    unit, inclusive = min(costs, key=lambda reading: costs[reading])  # the first of equal ones
    documents = []
    for document in file.documents:
        table = code_points(document.text, unit)
        moved = [
            None if each is None else [_moved(path, document, span, table, inclusive) for span in each]
            for each in (document.spans, document.words)
        ]
        documents.append(replace(document, spans=moved[0], words=moved[1]))
    equal = [reading for reading in costs if costs[reading] == costs[unit, inclusive]]
    _show_reading(path, file, documents, f"{unit}{', the end inclusive' * inclusive}", equal)
    return replace(file, documents=documents)


def _spans_of(document: Document) -> list[Span]:
    return [*(document.spans or ()), *(document.words or ())]


def _show_reading(
    path: Path, file: SpanFile, documents: Sequence[Document], reading: str, equal: Sequence[tuple[str, int]]
) -> None:
    """Show how offsets are read where that makes a difference, with an example."""
    for before, after in zip(file.documents, documents, strict=True):
        if _is_plain(before.text) and reading in file.units:
            continue
        tables = [code_points(before.text, unit) for unit, _ in equal]
        for old, span in zip(before.spans or (), after.spans or (), strict=True):
            others = {(table[old.start], table[old.end]) for table in tables if old.end < len(table)}
            if (old.start, old.end) != (span.start, span.end) or len(others) > 1:
                level = logging.WARNING if len(others) > 1 else logging.INFO
                text = "%s: offsets are read as %s, e.g. in %s: %r"
                logger.log(level, text, path, reading, before.name, after.text[span.start : span.end])
                return


def _is_plain(text: str) -> bool:
    """Whether a text has the same offsets in every unit; the end of a line of Windows is one grapheme."""
    return text.isascii() and "\r\n" not in text


def code_points(text: str, unit: str) -> Sequence[int]:
    """The code point at each offset of a unit, the end of the text included."""
    if unit == "UTF-16 units" and max(text, default="") > "\uffff":
        return [*(i for i, letter in enumerate(text) for _ in range(1 + (letter > "\uffff"))), len(text)]
    if unit == "graphemes" and not _is_plain(text):
        return [*(match.start() for match in regex.finditer(r"\X", text)), len(text)]
    return range(len(text) + 1)


def _costs(document: Document, readings: Sequence[tuple[str, int]]) -> list[int]:
    """How badly the spans of a document fit its text in each reading of their offsets."""
    text, costs = document.text, []
    words = split_words(text)
    starts, ends = {start for start, _ in words}, {end for _, end in words}
    for unit, inclusive in readings:
        table, cost = code_points(text, unit), 0
        for span in _spans_of(document):
            end = span.end + inclusive
            if not 0 <= span.start <= end < len(table):
                cost += 100
            elif span.surface is not None:
                cost += 100 * (_plain(span.surface) != _plain(text[table[span.start] : table[end]]))
            elif found := text[table[span.start] : table[end]]:
                cost += 2 * ((table[span.start] not in starts) + (table[end] not in ends))
                cost += (not found[0].isalnum()) + (not found[-1].isalnum())
        costs.append(cost)
    return costs


def _moved(path: Path, document: Document, span: Span, table: Sequence[int], inclusive: int) -> Span:
    end = span.end + inclusive
    if not 0 <= span.start <= end < len(table):
        raise UserError(
            f"{path}, {document.name}: the span {span.start}-{span.end} ({span.label}) is not within its text of "
            f"{len(table) - 1} characters. Export the file again, or correct this span."
        )
    moved = replace(span, start=table[span.start], end=table[end])
    found = document.text[moved.start : moved.end]
    if span.surface is not None and _plain(span.surface) != _plain(found):
        raise UserError(
            f"{path}, {document.name}: the span {span.start}-{span.end} ({span.label}) is {span.surface[:60]!r} "
            f"by the file and {found[:60]!r} by its text. Export the file again, or correct this span."
        )
    return moved


def _plain(surface: str) -> str:
    """A text without differences of white space, which tools write as blanks or as a backslash and a letter."""
    return " ".join(surface.replace("\\n", "\n").replace("\\r", "\n").replace("\\t", "\t").split())


# ------ Words and tags


def as_rows(path: Path, file: SpanFile) -> Dataset:
    """The annotated texts as `tokens` and SPAN_TAGS: spans are widened to words, and the longest of several stays."""
    file = resolve_offsets(path, file)
    counts: Counter[str] = Counter()
    tokens, tags, types, unlabelled = [], [], Counter[str](), ""
    parts = (lines_of(each) if file.has_lines else [each] for each in file.documents)
    for document in itertools.chain.from_iterable(parts):
        if document.spans is None:
            continue
        words = [(word.start, word.end) for word in document.words or ()] if document.words is not None else None
        words = split_words(document.text) if words is None else words
        words = [(start, end) for start, end in words if not document.text[start:end].isspace()]
        if not words:
            counts["texts without a word are omitted"] += 1
            continue
        names = ["O"] * len(words)
        for first, last, label in _chosen(document, words, counts):
            names[first:last] = (
                [f"B-{label}", *[f"I-{label}"] * (last - first - 1)] if label else ["-100"] * (last - first)
            )
            types[label] += 1
            unlabelled = unlabelled or (document.name if not label else "")
        tokens.append([document.text[start:end] for start, end in words])
        tags.append(names)
    if not tokens:
        raise UserError(f"{path} is {file.format} without an annotated text: annotate some, or omit the file.")
    if omitted := types.pop("", 0):
        if not types:
            raise UserError(f"{path}: none of {omitted} spans has a label. Export the labels too.")
        counts[f"spans have no label: their words are not learned or scored (first: {unlabelled})"] = omitted
    shown = ", ".join(f"{label} {number}" for label, number in types.most_common(10))
    logger.info(
        "%s is %s: %d texts with spans of characters, %d entities%s",
        path,
        file.format,
        len(tokens),
        types.total(),
        f" ({shown})" if shown else "",
    )
    for reason, number in (file.counts + counts).items():
        logger.warning("%s: %d %s", path, number, reason)
    from datasets import Dataset

    return Dataset.from_dict({"tokens": tokens, SPAN_TAGS: tags})


def _chosen(document: Document, words: Sequence[_Offsets], counts: Counter[str]) -> Iterator[tuple[int, int, str]]:
    """The first word, the end and the label of the spans that are kept."""
    starts, ends = zip(*words, strict=True)
    found: dict[tuple[int, int, str], int] = {}
    for span in document.spans or ():
        text = document.text[span.start : span.end]
        start, end = span.start + len(text) - len(text.lstrip()), span.end - len(text) + len(text.rstrip())
        first, last = bisect_right(ends, start), bisect_left(starts, end)
        if start >= end or first >= last:
            counts["spans without a word are omitted"] += 1
        elif (first, last, span.label) not in found:
            counts["spans that begin or end within a word are widened to the whole word"] += (
                starts[first] < start or ends[last - 1] > end
            )
            found[first, last, span.label] = end - start
    free = [True] * len(words)
    for first, last, label in sorted(found, key=lambda key: (starts[key[0]] - ends[key[1] - 1], -found[key])):
        if all(free[first:last]):
            free[first:last] = [False] * (last - first)
            yield first, last, label
        else:
            counts["spans overlap a longer one and are omitted"] += 1


def lines_of(document: Document) -> Iterator[Document]:
    """The lines of a document with the spans in them; lines that share a span stay together."""
    start = end = 0
    for line in document.text.splitlines(keepends=True):
        end += len(line)
        if end < len(document.text) and any(span.start < end < span.end for span in document.spans or ()):
            continue
        text = document.text[start:end].rstrip("\r\n")
        spans = [
            replace(span, start=span.start - start, end=min(span.end - start, len(text)))
            for span in document.spans or ()
            if start <= span.start < end
        ]
        if text.strip():
            yield replace(document, text=text, spans=None if document.spans is None else spans)
        start = end
