"""csv and tsv, with a header line or without: cells that are the text they are."""

import csv
import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, Features, Value

from .data_opening import DataError, load_rows, open_text


logger = logging.getLogger(__name__)

_QUOTED_FIELD = re.compile(r'"([^"]|"")*"')


def read_csv(path: Path, separator: str, cache_dir: str | None, column_names: Sequence[str] | None) -> Dataset:
    """Every cell as text ("NA", "007" and "1.0" included): which columns are numbers is decided by who uses them."""
    plain = separator == "\t" and _quotes_are_text(path)
    quoting: Literal[0, 3] = csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL
    names = _csv_header(path, separator, quoting, column_names)
    features = Features({name: Value("string") for name in names})
    header: dict[str, Any] = {"names": names, "header": None} if column_names else {}
    return load_rows(
        "csv", path, cache_dir, sep=separator, quoting=quoting, features=features, keep_default_na=False, **header
    )


def separator_of(path: Path, kind: str, column_names: Sequence[str] | None) -> str:
    """
    What parts the cells: tabs in a tsv, commas in a csv, but where its first line has none and other marks part it
    into several: spreadsheets in many countries write semicolons.
    """
    if kind == "tsv":
        return "\t"
    with open_text(path) as lines:
        first = next((line for line in lines if line.strip()), "")
    if "," in first:
        return ","
    cells = {mark: first.count(mark) + 1 for mark in ";\t"}
    found = [
        mark for mark, number in cells.items() if number == (len(column_names) if column_names else max(number, 2))
    ]
    if len(found) != 1 or cells[found[0]] < 2:
        return ","
    told = "semicolons" if found[0] == ";" else "tabs"
    logger.info(f"{path}: the cells are parted by {told}.")
    return found[0]


def _csv_header(path: Path, separator: str, quoting: Literal[0, 3], column_names: Sequence[str] | None) -> list[str]:
    """The column names, after a look at every row: pandas fills short rows and shifts the columns of long ones."""
    says = "--column_names" if column_names else "the first line"
    try:
        with _long_cells(), open_text(path) as lines:
            rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
            first = next((row for row in rows if row), [])
            # An index without a name, which pandas writes by default, is called as pandas calls it.
            header = [name or f"Unnamed: {place}" for place, name in enumerate(first)]
            names = list(column_names or header)
            if column_names and _alike(first) == _alike(names):
                raise DataError(f"{path} names its columns in its first line already: leave --column_names away.")
            for row in itertools.chain([first] if column_names else [], rows):
                if row and len(row) != len(names):
                    raise DataError(
                        f"{path}, line {rows.line_num} has {len(row)} cells, but {says} names {len(names)} "
                        f"columns ({', '.join(names)}): {separator.join(row)[:80]!r}. Give every row one cell a "
                        f"column, and put quotation marks around a text that holds {separator!r}."
                    )
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num} could not be read as csv: {error}") from error
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise DataError(f"For {path} {says} names the column {repeated[0]!r} twice. Rename one of the two.")
    return names


@contextmanager
def _long_cells() -> Iterator[None]:
    """Within it a long document may be one cell."""
    limit = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _alike(names: Sequence[str]) -> list[str]:
    """Names whatever their order and capitals."""
    return sorted(name.strip().casefold() for name in names)


def _quotes_are_text(path: Path) -> bool:
    """Whether a tsv's quotation marks belong to the text (GLUE's files), not around fields (pandas' files)."""
    if _is_quoted(path):
        return False
    with open_text(path) as lines:
        fields = (field for line in lines for field in line.rstrip("\n").split("\t"))
        return any(field.startswith('"') and not _QUOTED_FIELD.fullmatch(field) for field in fields)


def _is_quoted(path: Path) -> bool:
    """Whether a tsv is whole with marks around its fields, of which some have several lines, and none a tab too."""
    widths, lines_in_fields = set(), False
    try:
        with _long_cells(), open_text(path) as lines:
            for row in csv.reader(lines, delimiter="\t", strict=True):
                widths.add(len(row) or 1)
                if any("\n" in field and "\t" in field for field in row):
                    return False
                lines_in_fields = lines_in_fields or any("\n" in field for field in row)
    except csv.Error:
        return False
    return lines_in_fields and len(widths) == 1


__all__ = ["read_csv", "separator_of"]
