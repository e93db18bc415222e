"""Read CoNLL files: one token per line with its tags, and an empty line after each sentence."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ...models.tag_schemes import entity_tag
from ..detect import CONLL, DataFile, Head
from ..files import Options, copied_rows
from .conll_layout import (
    DOCUMENT,
    GLOBAL_COLUMNS,
    RANGE_OR_EMPTY_NODE,
    Layout,
    are_tags,
    find_layout,
    is_word,
)


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_TAGGER_COLUMNS = {"_", "tokens", "words", "token", "form", "tags", "upos"}


def recognise(head: Head, options: Options) -> Layout | None:
    """The layout of a CoNLL file; `None` for tables and lines of texts."""
    names, is_text = options.column_names, head.ending == ".txt"
    if not head.content or (is_text and options.sample_by):
        return None
    may_be_other = head.ending in (".csv", ".tsv") or (options.as_texts and head.ending not in CONLL)
    if names and (is_text or may_be_other):
        is_conll = has_sentences(head, names) or (not is_text and _has_tags(head))
    else:
        is_conll = not may_be_other or _has_tags(head)
    return find_layout(head, names) if is_conll else None


def read(file: DataFile) -> Dataset:
    """All sentences of a file. Tabs or blanks are between its columns; in a `.csv` commas, semicolons or tabs."""
    import pyarrow

    _check(file)
    types = dict.fromkeys(file.found.columns.values(), pyarrow.list_(pyarrow.string()))
    return copied_rows(file.path, file.options, types, _rows(file))


def stream(file: DataFile) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file."""
    _check(file)
    names = list(file.found.columns.values())
    for row in _rows(file):
        yield dict(zip(names, row))  # noqa: B905 (as in `tables`)


def has_columns(file: DataFile, column_names: Sequence[str]) -> bool:
    """Whether a file has as many columns as there are names."""
    return file.found.width == len(column_names)


def columns_like(file: DataFile, other: DataFile) -> list[str] | None:
    """The columns of another file, for a file that has as many and does not name them; else `None`."""
    own, layout = file.found, other.found
    if ".txt" in (file.head.ending, other.head.ending) or own.is_named or layout.split or own.width != layout.width:
        return None
    return [layout.columns.get(index, "_") for index in range(own.width)]


def _rows(file: DataFile) -> Iterator[list[list[str]]]:
    indices = list(file.found.columns)
    for sentence in _sentences(file.head, file.found):
        cells = list(zip(*sentence, strict=True))
        yield [list(cells[index]) for index in indices]


def _check(file: DataFile) -> None:
    """Raise an error for a file that has no words with tags; show a layout that is not the usual one."""
    path, layout = file.path, file.found
    if layout.problem is not None:
        raise UserError(f"{path} {layout.problem}")
    if layout.header is not None and not layout.is_named:
        logger.warning("%s: the first line, %r, is read as a header line, since it has no tag.", path, layout.header)
    if not file.options.column_names:
        _show(path, layout)


def _sentences(head: Head, layout: Layout) -> Iterator[Sequence[Sequence[str]]]:
    """The cells of each line of each sentence."""
    separator, width, blank, header, split = layout.separator, layout.width, layout.blank, layout.header, layout.split
    number = layout.number
    sentence: list[Sequence[str]] = []
    with head.open() as lines:
        for line_number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            if not line.strip(blank) or line == header:
                if sentence:
                    yield sentence
                sentence = []
                continue
            cells = line.split("\t") if separator == "\t" else layout.cells(line)
            if DOCUMENT in line and (line.startswith(DOCUMENT) or DOCUMENT in cells):
                if sentence:
                    yield sentence
                sentence = []
                continue
            if len(cells) == width - 1 and line.startswith("  "):  # the token is a blank
                cells = [" ", *cells]
            is_comment = layout.is_comment(line, cells, bool(sentence)) if line.startswith("#") else False
            if is_comment:
                continue
            if len(cells) != width or not cells[0] or not cells[-1] or is_comment is None:
                raise UserError(
                    f"{head.path}, line {line_number} is {line[:80]!r}, which is no word: others have {width} columns"
                    f"{' with other tags' if is_comment is None else ''}. Write one word per line with all columns, "
                    "and an empty line after each sentence."
                )
            if split:
                parts = [cells[index].split() for index in split]
                if len(set(map(len, parts))) > 1:
                    counts = " and ".join(str(len(part)) for part in parts)
                    raise UserError(
                        f"{head.path}, line {line_number} is {line[:80]!r}, with {counts} words and tags. Write as "
                        "many tags as words in each line."
                    )
                yield list(zip(*parts, strict=True))
                continue
            if sentence and number is not None and _begins(cells[number], sentence[-1][number]):
                yield sentence
                sentence = []
            if number is None or not RANGE_OR_EMPTY_NODE.fullmatch(cells[number]):
                sentence.append(cells)
    if sentence:
        yield sentence


def _begins(number: str, before: str) -> bool:
    """Whether the number of a word begins a sentence that no empty line precedes."""
    return number.isdecimal() and before.isdecimal() and int(number) <= int(before)


def _show(path: Path, layout: Layout) -> None:
    """Log the columns of a file that has not words first and tags last, and how to choose others."""
    words, tags, width = layout.words, layout.tags, layout.width
    if layout.is_named and layout.header is not None:
        logger.info("%s: the first line names the columns %s", path, ", ".join(layout.columns.values()))
    if layout.split:
        logger.info("%s: each line is a sentence, with as many tags as words.", path)
    if layout.split or tags is None or (words == 0 and tags == width - 1):
        return

    def names(tags: int) -> str:
        return ",".join({words: "tokens", tags: "tags"}.get(index, "_") for index in range(width))

    others = [index for index in layout.columns if index not in (words, tags)]
    other = f"; column {others[0] + 1} has other values: `--column_names {names(others[0])}`" if others else ""
    logger.info(
        f"{path}: the words are in column {words + 1} and the tags in column {tags + 1} of {width}, "
        f"as with `--column_names {names(tags)}`{other}."
    )


# ------ Which files are CoNLL


def has_sentences(head: Head, column_names: Sequence[str]) -> bool:
    """Whether a file has the columns of a tagger, and empty lines between sentences."""
    is_tagger = any(name in _TAGGER_COLUMNS or name.endswith("_tags") for name in column_names)
    return is_tagger and _has_gaps(head)


def _has_gaps(head: Head) -> bool:
    """Whether there are empty lines between others."""
    blank = " \t,;" if head.ending == ".csv" else " \t"
    return "\n\n" in "\n".join(line.strip(blank) for line in head.lines).strip()


def _has_tags(head: Head) -> bool:
    """
    Whether a `.txt`, `.csv` or `.tsv` file without column names is CoNLL: words with well-known tags, or with any tags
    below a header line, and empty lines, marks or comments between sentences, unless the first one is very long.
    """
    lines = head.lines
    try:
        layout = find_layout(head)
        rows = [layout.cells(line) for line in lines if is_word(line, layout.blank) and line != layout.header]
    except (UserError, csv.Error, ValueError):  # a number of more digits than Python reads
        return False
    words = [cells[layout.words] for cells in rows if len(cells) == layout.width]
    if layout.width < 2 or layout.tags is None or 10 * len(words) < 9 * len(rows):
        return False
    tags = [cells[layout.tags].strip() for cells in rows if len(cells) == layout.width]
    are_known = bool(layout.kinds) and are_tags(list(layout.kinds))
    are_entities = 10 * sum(are_known or entity_tag(tag) is not None for tag in tags) >= 9 * len(tags)
    has_entities = are_entities and any("-" in kind for kind in layout.kinds)
    tagged = are_known or has_entities
    if layout.split:  # below a header line, `tagging` divides the texts of a table
        return tagged and (layout.header is None or head.ending == ".txt")
    is_long = has_entities and (not head.is_whole or any(line.startswith("#") for line in lines))
    if not (any(map(GLOBAL_COLUMNS.match, lines)) or is_long or _has_gaps(head)):
        return False
    if any(" " in word.strip() for word in words):  # texts, unless each has the tag of an entity
        return has_entities
    return tagged or (layout.is_named and len(words) == len(rows))
