"""
Read csv and tsv files, for training and for prediction alike.

Every cell is a text: "NA", "007" and "1.0" too. The separator, and how quotation marks are escaped, is found in the
file; what is not usual is shown.
"""

from __future__ import annotations

import csv
import itertools
import logging
import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UserError
from ..columns import are_known
from ..detect import DataFile, Head
from ..files import Options, copied_rows


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_ROWS_INSPECTED = 50
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_COPY = re.compile(r"(.+)\.\d+")  # the name of a later column with a name that an earlier one has
_EXCEL = re.compile(r'"?sep=(.)"?\s*', re.IGNORECASE)  # the line before the header that tells Excel the separator
_DECIMALS = re.compile(r"\d,\d")


class Dialect(NamedTuple):
    """How a table is written: the arguments of `csv.reader`, and the lines before its header."""

    separator: str
    quoting: int
    escape: str | None = None
    skipped: int = 0


def recognise(head: Head, options: Options) -> Dialect | None:
    """How a csv or tsv file is written, and a `.txt` file whose columns are named; `None` for others."""
    if not head.content or (head.ending == ".txt" and not options.column_names):
        return None
    return _dialect(head, options.column_names)


def read(file: DataFile) -> Dataset:
    """All rows of a file."""
    import pyarrow

    names, rows = _open(file)
    return copied_rows(file.path, file.options, dict.fromkeys(names, pyarrow.string()), rows)


def stream(file: DataFile) -> Iterator[dict[str, Any]]:
    """The rows of a file."""
    names, rows = _open(file)
    for row in rows:
        yield dict(zip(names, row))  # noqa: B905 (strict is slower, and the rows are checked)


def has_columns(file: DataFile, column_names: Sequence[str]) -> bool:
    """Whether a file has as many columns as there are names, and its first line has none of known names."""
    first = next(_rows(file.head, file.found, None))
    return len(first) == len(column_names) and not are_known(first, column_names)


def only_column(file: DataFile) -> str | None:
    """The cell of the first line of a file with one column."""
    first = next(_rows(file.head, file.found, None))
    return first[0] if len(first) == 1 else None


def _open(file: DataFile) -> tuple[list[str], Iterator[list[str]]]:
    """The names of the columns, and the rows; a dialect that is not the usual one of the ending is shown."""
    dialect: Dialect = file.found
    if dialect.separator != _usual_separator(file.head):
        logger.warning("%s is separated by %s.", file.path, _SEPARATORS[dialect.separator])
    if dialect.escape:
        logger.warning("%s has quotation marks escaped by backslashes, which are removed.", file.path)
    rows = _rows(file.head, dialect, file.options.column_names)
    names = next(rows)
    if repeated := [name for name in names if (copy := _COPY.fullmatch(name)) and copy[1] in names]:
        logger.warning("%s has several columns of one name: the later ones are %s.", file.path, ", ".join(repeated))
    return names, rows


def _rows(head: Head, dialect: Dialect, column_names: Sequence[str] | None) -> Iterator[list[str]]:
    """The names of the columns, then the cells of each row; empty lines are no rows."""
    path = head.path
    with head.open(newline="") as lines:
        rows = csv.reader(
            itertools.islice(lines, dialect.skipped, None),
            delimiter=dialect.separator,
            quoting=dialect.quoting,  # type: ignore[arg-type]
            escapechar=dialect.escape,
            strict=True,
        )
        try:
            first = next(filter(None, rows), [])
            names = list(column_names or _distinct(first))
            if column_names and _folded(first) == _folded(names):
                raise UserError(f"{path} has a header line: omit --column_names.")
            yield names
            cells: Iterator[list[str]] = itertools.chain([first] if column_names else [], rows)
            width = len(names)
            if width == 1:  # a line of blanks is empty too
                cells = (row for row in cells if row and not row[0].isspace())
            for row in cells:
                if len(row) == width:
                    yield row
                elif row and not (len(row) == 1 and row[0].isspace()):
                    raise UserError(
                        f"{path}, line {rows.line_num + dialect.skipped} has {len(row)} cells, not the {width} "
                        f"of {', '.join(names)}. Write one cell per column, and quotation marks around texts with "
                        f"{dialect.separator!r}."
                    )
        except csv.Error as error:
            raise UserError(
                f"{path}, line {rows.line_num + dialect.skipped}: {error}. Within quoted texts, write quotation marks "
                'twice: "she said ""fine"""'
            ) from error


def _distinct(header: list[str]) -> list[str]:
    """The names of a header line: those without a name, such as the index of pandas, and repeated ones get one."""
    names: dict[str, None] = {}
    for index, name in enumerate(header):
        name = name or f"Unnamed: {index}"
        copies = (f"{name}.{number}" for number in itertools.count(1))
        names[next(each for each in itertools.chain([name], copies) if each not in names)] = None
    return list(names)


def _folded(names: Sequence[str]) -> list[str]:
    return sorted(name.strip().casefold() for name in names)


# ------ Dialects


def _dialect(head: Head, column_names: Sequence[str] | None) -> Dialect:
    """How a file is written: its first lines say the separator, all of it how quotation marks are used."""
    csv.field_size_limit(sys.maxsize)
    with head.open(newline="") as lines:
        first = next(lines, "")
        excel = _EXCEL.fullmatch(first)
        sample = list(itertools.islice(itertools.chain([] if excel else [first], lines), _ROWS_INSPECTED))
    separator = excel[1] if excel else _separator(sample, _usual_separator(head), len(column_names or ()))
    dialect = Dialect(separator, csv.QUOTE_MINIMAL, skipped=1 if excel else 0)
    if separator not in _SEPARATORS:
        raise UserError(f"{head.path} is separated by {separator!r}. Write it with commas, semicolons, tabs or |")
    if separator == "\t" and not _quotes_enclose_cells(head):
        return dialect._replace(quoting=csv.QUOTE_NONE)
    escaped = dialect._replace(escape="\\")
    is_escaped = _has_escapes(head) and not _is_whole(head, dialect, column_names)
    return escaped if is_escaped and _is_whole(head, escaped, column_names) else dialect


def _usual_separator(head: Head) -> str:
    return "," if head.ending == ".csv" else "\t"


def _separator(lines: list[str], usual: str, width: int) -> str:
    """The separator that gives most rows the same number of cells: at least two, or as many as column names."""

    def fitting(separator: str) -> int:
        if separator == "\t":
            widths = [line.count("\t") + 1 for line in lines if line.strip()]  # quotation marks can be text
        elif separator == "," and all(line.count(",") == len(_DECIMALS.findall(line)) for line in lines):
            return 0
        else:
            widths = [len(row) for row in csv.reader(lines, delimiter=separator) if row]
        wanted = width or next(iter(widths), 0)
        return sum(each == wanted for each in widths) if wanted > 1 else 0

    return max((usual, *_SEPARATORS), key=fitting)


def _quotes_enclose_cells(head: Head) -> bool:
    """Whether quotation marks in a tsv file enclose cells (pandas), not belong to the text (GLUE)."""
    widths = set()
    try:
        with head.open(newline="") as lines:
            for row in csv.reader(lines, delimiter="\t", strict=True):
                if any("\t" in cell for cell in row):
                    return False
                widths.add(len(row) or 1)
    except csv.Error:
        return False
    return len(widths) == 1


def _has_escapes(head: Head) -> bool:
    with head.open_bytes() as file:
        last = b""
        while block := file.read(1 << 20):
            if b'\\"' in last + block:
                return True
            last = block[-1:]
    return False


def _is_whole(head: Head, dialect: Dialect, column_names: Sequence[str] | None) -> bool:
    """Whether all rows have as many cells as there are columns."""
    try:
        return all(_rows(head, dialect, column_names))
    except UserError:
        return False
