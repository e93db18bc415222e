"""Read CoNLL files: one token per line with its tags, and an empty line after each sentence."""

from __future__ import annotations

import csv
import itertools
import logging
import re
import string
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...errors import UserError
from ...models.tag_schemes import entity_tag
from ..columns import TOKENS
from ..files import FORMATS, Options, copied_rows, ending_of, no_rows, open_text, reading
from .conll_layout import (
    GLOBAL_COLUMNS,
    RANGE_OR_EMPTY_NODE,
    SENTENCE_END,
    Roles,
    are_names,
    are_tags,
    find_roles,
    is_header,
)


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_TAGGER_COLUMNS = {"_", "tokens", "words", "token", "form", "tags", "upos"}
_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
_BLANKS = re.compile(r"[ \t]+")
_LINES_CHECKED = 1000
_DOCUMENT = "-DOCSTART-"


class _Form(NamedTuple):
    """
    How lines become words.

    Attributes:
        separator: of cells; `None`: blanks or tabs.
        width: the number of cells.
        roles: of the columns.
        header: a line that names the columns.
    """

    separator: str | None
    width: int
    roles: Roles
    header: str | None = None


def read(path: Path, options: Options) -> Dataset:
    """All sentences of a file. Tabs or blanks are between its columns; in a `.csv` commas, semicolons or tabs."""
    import pyarrow

    form = _layout(path, options.column_names)
    types = dict.fromkeys(form.roles.columns.values(), pyarrow.list_(pyarrow.string()))
    return copied_rows(path, options, types, _rows(path, form))


def stream(path: Path, options: Options) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file."""
    form = _layout(path, options.column_names)
    names = list(form.roles.columns.values())
    for row in _rows(path, form):
        yield dict(zip(names, row))  # noqa: B905 (as in `tables`)


def _rows(path: Path, form: _Form) -> Iterator[list[list[str]]]:
    indices = list(form.roles.columns)
    for sentence in _sentences(path, form):
        cells = list(zip(*sentence, strict=True))
        yield [list(cells[index]) for index in indices]


def _layout(path: Path, column_names: Sequence[str] | None, is_shown: bool = True) -> _Form:
    """The form of a file, from its first lines."""
    form, names, sentences = _first_sentences(path)
    every = list(itertools.chain.from_iterable(itertools.chain.from_iterable(sentences)))
    if form.separator is None and form.width > 1 and any(all(mark in cell[1:-1] for cell in every) for mark in "/|_"):
        raise UserError(
            f"{path} has words with tags in their lines, such as {every[0]!r}. Write one word per line and its tag "
            "after a tab, and an empty line after each sentence."
        )
    if column_names:
        chosen = [name for name in column_names if name != "_"]
        if len(column_names) != form.width or not chosen or len(set(chosen)) < len(chosen):
            raise UserError(
                f"{path} has {form.width} columns and --column_names is {','.join(column_names)}. Write one distinct "
                "name per column, or _ to skip it: `--column_names _,tokens,ner_tags`"
            )
    roles = find_roles(sentences, names, column_names)
    first, *others = sentences[0]
    rest = [others, *sentences[1:]] if others else sentences[1:]
    if names is None and rest and is_header(first, inner := find_roles(rest, None, column_names), rest):
        form, roles = form._replace(header=_start(path)[1]), inner
        if is_shown:
            logger.warning("%s: the first line, %r, is read as a header line, since it has no tag.", path, form.header)
    form = form._replace(roles=roles)
    if is_shown and not column_names:
        _show(path, form)
    return form


def _first_sentences(path: Path) -> tuple[_Form, list[str] | None, list[list[list[str]]]]:
    """The form of a file, the names of its columns, if it has any, and its first sentences, at least a line."""
    names, line, following = _start(path)
    separator = _separator(path, line)
    cells = _cells(line, separator)
    form = _Form(separator, len(cells), Roles({}, 0, len(cells) - 1, are_entities=False))
    if names is not None and len(names) != form.width:
        names = None
    if names is None and are_names(cells):
        form, names, cells = form._replace(header=line), cells, _cells(following, separator)
    form = form._replace(roles=form.roles._replace(are_entities=entity_tag(cells[-1]) is not None))
    sentences: list[list[list[str]]] = []
    count = 0
    with reading(path):
        for sentence in _sentences(path, form):
            sentences.append(sentence[: _LINES_CHECKED - count])
            count += len(sentence)
            if count >= _LINES_CHECKED:
                break
    if not sentences:
        raise no_rows(path)
    return form, names, sentences


def _sentences(path: Path, form: _Form) -> Iterator[list[list[str]]]:
    """The cells of each line of each sentence."""
    separator, width, (*_, number, group, end), header = form
    has_marks = number is not None or group is not None or end is not None
    # An ideographic space alone can be a token of a file without tags.
    blank = (_blank_cells(path) + string.whitespace) if ending_of(path) == ".csv" else None if width > 1 else " \t"
    sentence: list[list[str]] = []
    with open_text(path) as lines:
        for line_number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            if not line.strip(blank) or line == header:
                if sentence:
                    yield sentence
                sentence = []
                continue
            cells = line.split("\t") if separator == "\t" else _cells(line, separator)
            if _DOCUMENT in line and (line.startswith(_DOCUMENT) or _DOCUMENT in cells):
                if sentence:
                    yield sentence
                sentence = []
                continue
            if len(cells) == width - 1 and line.startswith("  "):  # the token is a blank
                cells = [" ", *cells]
            # Within a sentence "#" is a token, and before it if a tag follows.
            if line.startswith("#") and _is_comment(line, cells, form, bool(sentence)):
                continue
            if len(cells) != width or not cells[0] or not cells[-1]:
                raise UserError(
                    f"{path}, line {line_number} is {line[:80]!r}, but the first line has {width} columns. "
                    "Write one token per line with all columns, and an empty line after each sentence."
                )
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


def _is_comment(line: str, cells: list[str], form: _Form, is_inside: bool) -> bool:
    if form.roles.number == 0 or (is_inside and len(cells) != form.width and _COMMENT.match(line)):
        return True
    if is_inside:
        return False
    if len(cells) != form.width or _COMMENT.match(line) or are_names([cells[0].lstrip("# "), *cells[1:]]):
        return True
    # Above a sentence, "# O" is a token where tags are of entities, and "# page" a comment.
    tag = cells[form.roles.tags] if form.roles.are_entities and form.roles.tags is not None else "O"
    return cells[0] == "#" and tag != "-100" and entity_tag(tag) is None


def _begins(cells: list[str], before: list[str], number: int | None, group: int | None) -> bool:
    """Whether a line begins a sentence that no empty line precedes."""
    if group is not None:
        return cells[group] != before[group]
    return (
        number is not None
        and cells[number].isdecimal()
        and before[number].isdecimal()
        and int(cells[number]) <= int(before[number])
    )


def _show(path: Path, form: _Form) -> None:
    """Log the columns of a file that has not words first and tags last, and how to choose others."""
    roles = form.roles
    if form.header is not None:
        logger.info("%s: the first line names the columns %s", path, ", ".join(roles.columns.values()))
    if roles.tags is None or (roles.words == 0 and roles.tags == form.width - 1):
        return

    def names(tags: int) -> str:
        return ",".join({roles.words: "tokens", tags: "tags"}.get(index, "_") for index in range(form.width))

    others = [index for index in roles.columns if index not in (roles.words, roles.tags)]
    other = f"; column {others[0] + 1} has other values: `--column_names {names(others[0])}`" if others else ""
    logger.info(
        f"{path}: the words are in column {roles.words + 1} and the tags in column {roles.tags + 1} of {form.width}, "
        f"as with `--column_names {names(roles.tags)}`{other}."
    )


def _width(path: Path) -> int | None:
    """The number of columns; `None` for `.txt` and empty files."""
    if ending_of(path) == ".txt" or path.stat().st_size == 0:
        return None
    _, line, _ = _start(path)
    return len(_cells(line, _separator(path, line)))


def _start(path: Path) -> tuple[list[str] | None, str, str]:
    """The names of `# global.columns`, the first line with cells, and the next one that is not empty, or the same."""
    names = None
    with reading(path), open_text(path) as lines:
        for line in lines:
            if named := GLOBAL_COLUMNS.match(line):
                names = named[1].split()
            if line.strip(" \t\r\n") and not line.startswith("#") and _DOCUMENT not in line:
                line = line.strip("\r\n")
                return names, line, next((each.strip("\r\n") for each in lines if each.strip()), line)
    raise no_rows(path)


def _separator(path: Path, line: str) -> str | None:
    if ending_of(path) == ".csv":
        return max(",;\t", key=line.count)
    return "\t" if "\t" in line else None


def _blank_cells(path: Path) -> str:
    """The characters of a line without a cell, as spreadsheets write an empty line into a csv."""
    return ",;\t" if ending_of(path) == ".csv" else ""


def _cells(line: str, separator: str | None) -> list[str]:
    if separator == "\t":
        return line.split("\t")
    if separator is not None:
        return next(csv.reader([line], delimiter=separator))
    # Not str.split(): a no-break or ideographic space can be a token.
    line = line.strip(" \t")
    return _BLANKS.split(line) if "  " in line or "\t" in line else line.split(" ")  # which is faster


def _first_lines(path: Path) -> list[str]:
    with reading(path), open_text(path) as lines:
        blank = " \r\n" + _blank_cells(path)
        return [line.strip(blank) for line in itertools.islice(lines, _LINES_CHECKED)]


# ------ Which files are CoNLL


def is_conll(path: Path, column_names: Sequence[str] | None) -> bool:
    """Whether a `.txt`, `.csv` or `.tsv` file is CoNLL, by the names of its columns or by its tags."""
    is_text = ending_of(path) == ".txt"
    if not column_names:
        return is_text or has_tags(path)
    return _has_sentences(path, column_names) or (not is_text and has_tags(path))


def _has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a file has the columns of a tagger, and empty lines between sentences."""
    if not any(name in _TAGGER_COLUMNS or name.endswith("_tags") for name in column_names):
        return False
    return "\n\n" in "\n".join(_first_lines(path)).strip()


def has_tags(path: Path) -> bool:
    """
    Whether a `.txt`, `.csv` or `.tsv` file without column names is CoNLL: empty lines between sentences, and in each
    other line a word with a well-known tag, or with any tag below a header line.
    """
    lines = _first_lines(path)
    has_marks = any(map(GLOBAL_COLUMNS.match, lines)) or any(map(SENTENCE_END.search, lines))
    if not (has_marks or "\n\n" in "\n".join(lines).strip()):
        return False
    try:
        form, names, sentences = _first_sentences(path)
        if form.width < 2:
            return False
        roles = find_roles(sentences, names)
    except (UserError, csv.Error):  # not the same number of cells in each line
        return False
    named = names is not None and names[roles.words].casefold() in TOKENS
    tokens = list(itertools.chain.from_iterable(sentences))
    tags = [] if roles.tags is None else [cells[roles.tags] for cells in tokens[1:] or tokens]  # the first: a header
    tagged = bool(tags) and are_tags(tags)
    if any(" " in cells[roles.words].strip() for cells in tokens):  # texts, unless each has the tag of an entity
        return tagged and any("-" in tag for tag in tags)
    return named or tagged


def has_columns(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a file has as many columns as there are names; a `.txt` has cells with tabs, or a token per line."""
    if ending_of(path) in FORMATS and ending_of(path) != ".txt":
        return _width(path) == len(column_names)
    lines = [line for line in _first_lines(path) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or _has_sentences(path, column_names))


def columns_like(path: Path, other: Path) -> list[str] | None:
    """The columns of another file, for a file that has as many and does not name them; else `None`."""
    width = _width(path)
    if width is None or width != _width(other):
        return None
    _, names, _ = _first_sentences(path)
    columns = _layout(other, None, is_shown=False).roles.columns
    return [columns.get(index, "_") for index in range(width)] if names is None else None
