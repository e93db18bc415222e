"""
Read brat's folders, DOC.txt with DOC.ann, whose lines are "T1<tab>PER 0 4;10 14<tab>Mira Keil".
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ..detect import DataFile, Head
from ..files import Options, open_bytes, open_text, reading
from .spans import CLASSES_OF_TEXTS, Document, Span, SpanFile, as_rows, lines_of


if TYPE_CHECKING:
    from datasets import Dataset


def recognise(head: Head, options: Options) -> bool | None:
    """Whether a path is a folder of brat or one of its files; the lines of its texts alone are predicted."""
    path = head.path
    if path.is_dir():
        is_brat = next(path.rglob("*.ann"), None) is not None
    elif head.ending == ".txt":
        is_brat = path.with_suffix(".ann").is_file() and options.with_spans and not options.as_texts
    else:
        is_brat = head.ending == ".ann"
    if is_brat and not options.with_spans:
        raise UserError(
            f"{path} has regions of texts, which a tagger reads: `modeling-star tag --train_file {path} --output_dir "
            f"outputs/tagger`. {CLASSES_OF_TEXTS}"
        )
    return is_brat or None


def read(file: DataFile) -> Dataset:
    """The words and tags of a folder of texts with annotations, or of one of them."""
    return as_rows(file.path, _read_brat(file.path))


def texts(file: DataFile) -> Iterator[str]:
    """The lines of the texts."""
    return (part.text for document in _read_brat(file.path).documents for part in lines_of(document))


def _read_brat(path: Path) -> SpanFile:
    """A folder of texts with annotations, or one of them."""
    paths = sorted(path.rglob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]
    file = SpanFile("brat's standoff", [], has_lines=True)
    for spans_of in paths:
        text_path = spans_of.with_suffix(".txt")
        if not text_path.is_file():
            raise UserError(f"{spans_of} has no text in its folder: {text_path.name}. Copy it there.")
        with reading(text_path), open_bytes(text_path) as content:
            text = content.read().decode("utf-8")  # with \r\n, which brat counts as two characters
        name = str(spans_of.relative_to(path)) if path.is_dir() else spans_of.name
        with reading(spans_of), open_text(spans_of) as lines:
            spans = [span for line in enumerate(lines, 1) for span in _brat_spans(spans_of, *line, text, file)]
        if "\r\n" in text and any(text[each.start : each.end] != each.surface for each in spans if each.surface):
            text = text.replace("\r\n", "\n")
        file.documents.append(Document(name, text, spans))
    if path.is_dir() and (
        count := len([each for each in path.rglob("*.txt") if not each.with_suffix(".ann").exists()])
    ):
        file.counts["texts without a file .ann are omitted"] = count
    return file


def _brat_spans(path: Path, number: int, line: str, text: str, file: SpanFile) -> Iterator[Span]:
    """The span of a line, or the fragments of a discontinuous one."""
    if not line.startswith("T"):
        return
    match = re.fullmatch(r"T\S*\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)", line.rstrip("\n"))
    if match is None:
        raise UserError(f"{path}, line {number} is {line[:60]!r}. Lines of spans are T1<tab>LABEL 0 4<tab>TEXT.")
    label, offsets, surface = match.groups()
    fragments: list[tuple[int, int]] = []
    for start, end in (map(int, pair.split()) for pair in offsets.split(";")):
        if fragments and not text[fragments[-1][1] : start].strip():  # brat divides a span at the end of a line
            start = fragments.pop()[0]
        fragments.append((start, end))
    file.counts["spans have several parts, each of which is an entity of its own"] += len(fragments) > 1
    # The surface has a blank between the parts.
    known, at = len(surface) == sum(end - start + 1 for start, end in fragments) - 1, 0
    for start, end in fragments:
        part = surface if len(fragments) == 1 else surface[at : at + end - start] if known else None
        yield Span(start, end, label, part)
        at += end - start + 1
