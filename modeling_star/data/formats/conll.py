"""Read CoNLL files: one token per line with its tags, and an empty line after each sentence."""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ...models.tag_schemes import entity_tag
from ..files import FORMATS, Options, copied_rows, ending_of, open_text, reading
from .conll_layout import (
    DOCUMENT,
    GLOBAL_COLUMNS,
    RANGE_OR_EMPTY_NODE,
    SENTENCE_END,
    Layout,
    are_tags,
    find_layout,
    is_word,
)


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_TAGGER_COLUMNS = {"_", "tokens", "words", "token", "form", "tags", "upos"}
_LINES_CHECKED = 1000


def read(path: Path, options: Options) -> Dataset:
    """All sentences of a file. Tabs or blanks are between its columns; in a `.csv` commas, semicolons or tabs."""
    import pyarrow

    layout = _layout(path, options.column_names)
    types = dict.fromkeys(layout.columns.values(), pyarrow.list_(pyarrow.string()))
    return copied_rows(path, options, types, _rows(path, layout))


def stream(path: Path, options: Options) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file."""
    layout = _layout(path, options.column_names)
    names = list(layout.columns.values())
    for row in _rows(path, layout):
        yield dict(zip(names, row))  # noqa: B905 (as in `tables`)


def _rows(path: Path, layout: Layout) -> Iterator[list[list[str]]]:
    indices = list(layout.columns)
    for sentence in _sentences(path, layout):
        cells = list(zip(*sentence, strict=True))
        yield [list(cells[index]) for index in indices]


def _layout(path: Path, column_names: Sequence[str] | None) -> Layout:
    """The layout of a file, which is shown where it is not the usual one."""
    layout = find_layout(path, _first_lines(path), column_names)
    if layout.problem is not None:
        raise UserError(f"{path} {layout.problem}")
    if layout.header is not None and not layout.is_named:
        logger.warning("%s: the first line, %r, is read as a header line, since it has no tag.", path, layout.header)
    if not column_names:
        _show(path, layout)
    return layout


def _sentences(path: Path, layout: Layout) -> Iterator[Sequence[Sequence[str]]]:
    """The cells of each line of each sentence."""
    separator, width, blank, header, split = layout.separator, layout.width, layout.blank, layout.header, layout.split
    number, group, end = layout.number, layout.group, layout.end
    has_marks = number is not None or group is not None or end is not None
    sentence: list[Sequence[str]] = []
    with open_text(path) as lines:
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
                    f"{path}, line {line_number} is {line[:80]!r}, which is no word: others have {width} columns"
                    f"{' with other tags' if is_comment is None else ''}. Write one word per line with all columns, "
                    "and an empty line after each sentence."
                )
            if split:
                parts = [cells[index].split() for index in split]
                if len(set(map(len, parts))) > 1:
                    counts = " and ".join(str(len(part)) for part in parts)
                    raise UserError(
                        f"{path}, line {line_number} is {line[:80]!r}, with {counts} words and tags. Write as many "
                        "tags as words in each line."
                    )
                yield list(zip(*parts, strict=True))
                continue
            if not has_marks:
                sentence.append(cells)
                continue
            if sentence and _begins(cells, sentence[-1], number, group):
                yield sentence
                sentence = []
            if number is None or not RANGE_OR_EMPTY_NODE.fullmatch(cells[number]):
                sentence.append(cells)
            if end is not None and SENTENCE_END.search(cells[end]) and sentence:
                yield sentence
                sentence = []
    if sentence:
        yield sentence


def _begins(cells: Sequence[str], before: Sequence[str], number: int | None, group: int | None) -> bool:
    """Whether a line begins a sentence that no empty line precedes."""
    if group is not None:
        return cells[group] != before[group]
    return (
        number is not None
        and cells[number].isdecimal()
        and before[number].isdecimal()
        and int(cells[number]) <= int(before[number])
    )


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


def _first_lines(path: Path) -> list[str]:
    """The first lines up to a thousand that may be words."""
    lines: list[str] = []
    count = 0
    with reading(path), open_text(path) as file:
        for line in file:
            lines.append(line.strip("\r\n"))
            count += bool(line.strip()) and not line.startswith("#")
            if count >= _LINES_CHECKED:
                break
    return lines


# ------ Which files are CoNLL


def is_conll(path: Path, column_names: Sequence[str] | None) -> bool:
    """Whether a `.txt`, `.csv` or `.tsv` file is CoNLL, by the names of its columns or by its tags."""
    is_text = ending_of(path) == ".txt"
    if not column_names:
        return is_text or has_tags(path)
    return _has_sentences(path, column_names) or (not is_text and has_tags(path))


def _has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a file has the columns of a tagger, and empty lines between sentences."""
    is_tagger = any(name in _TAGGER_COLUMNS or name.endswith("_tags") for name in column_names)
    return is_tagger and _has_gaps(path, _first_lines(path))


def _has_gaps(path: Path, lines: Sequence[str]) -> bool:
    """Whether there are empty lines between others."""
    blank = " \t,;" if ending_of(path) == ".csv" else " \t"
    return "\n\n" in "\n".join(line.strip(blank) for line in lines).strip()


def has_tags(path: Path) -> bool:
    """
    Whether a `.txt`, `.csv` or `.tsv` file without column names is CoNLL: words with well-known tags, or with any tags
    below a header line, and empty lines, marks or comments between sentences, unless the first one is very long.
    """
    lines = _first_lines(path)
    try:
        layout = find_layout(path, lines)
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
        return tagged and (layout.header is None or ending_of(path) == ".txt")
    is_long = has_entities and (len(rows) >= _LINES_CHECKED or any(line.startswith("#") for line in lines))
    has_marks = any(map(GLOBAL_COLUMNS.match, lines)) or any(map(SENTENCE_END.search, lines))
    if not (has_marks or is_long or _has_gaps(path, lines)):
        return False
    if any(" " in word.strip() for word in words):  # texts, unless each has the tag of an entity
        return has_entities
    return tagged or (layout.is_named and len(words) == len(rows))


def has_columns(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a file has as many columns as there are names; a `.txt` has cells with tabs, or a token per line."""
    if ending_of(path) in FORMATS and ending_of(path) != ".txt":
        return bool(path.stat().st_size) and find_layout(path, _first_lines(path)).width == len(column_names)
    lines = [line for line in _first_lines(path) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or _has_sentences(path, column_names))


def columns_like(path: Path, other: Path) -> list[str] | None:
    """The columns of another file, for a file that has as many and does not name them; else `None`."""
    if ".txt" in (ending_of(path), ending_of(other)) or 0 in (path.stat().st_size, other.stat().st_size):
        return None
    own, layout = (find_layout(each, _first_lines(each)) for each in (path, other))
    if own.is_named or layout.split or own.width != layout.width:
        return None
    return [layout.columns.get(index, "_") for index in range(own.width)]
