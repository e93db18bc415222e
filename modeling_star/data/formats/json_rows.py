"""Read json: an object per line, objects over several lines, a list, {"data": [...]}, or columns of pandas."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..detect import DataFile, Head
from ..encodings import HALF_CHARACTER, warn_of_halves
from ..files import Options, cached_copy, load_file, no_rows


if TYPE_CHECKING:
    from datasets import Dataset


_BETWEEN = re.compile(r"[\s,]*")
_HALF_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


class Values:
    """The values of a file, one after the other where each has a line."""

    def __init__(self, head: Head) -> None:
        self.head = head

    @cached_property
    def have_lines(self) -> bool:
        """Whether a file has an object per line, and is neither a list, nor an object over lines or of rows."""
        with self.head.open() as lines:
            first, second = itertools.islice(itertools.chain(filter(str.strip, lines), ("", "")), 2)
        if first.lstrip().startswith("["):
            return False
        try:
            value = json.loads(first)
        except ValueError:
            return False
        return bool(second) or not _rows_of(value)

    def items(self, unfold: Callable[[Any], list[Any]]) -> Iterator[Any]:
        """The values; `unfold`: the values in a single one."""
        values = self._by_line() if self.have_lines else iter(self._block)
        first = list(itertools.islice(values, 2))
        yield from itertools.chain(unfold(first[0]) if len(first) == 1 else first, values)

    def _by_line(self) -> Iterator[Any]:
        with self.head.open() as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    try:
                        yield json.loads(line)
                    except json.JSONDecodeError as error:
                        raise UserError(f"{self.head.path}, line {number} is not valid json ({error}).") from error

    @cached_property
    def _block(self) -> list[Any]:
        """The values of a text, one after the other, perhaps with commas between them."""
        with self.head.open() as file:
            text = file.read()
        values, decoder, end = [], json.JSONDecoder(), 0
        while (start := _BETWEEN.match(text, end).end()) < len(text):
            try:
                value, end = decoder.raw_decode(text, start)
            except json.JSONDecodeError as error:
                raise UserError(f"{self.head.path}, line {error.lineno} is not valid json ({error}).") from error
            values.append(value)
        return values


def recognise(head: Head, options: Options) -> Values | None:
    """Every file with this ending."""
    if options.column_names:
        raise UserError(f"{head.path} has column names of its own format: omit --column_names.")
    return Values(head) if head.content else None


def read(file: DataFile) -> Dataset:
    """All rows of a file."""
    from datasets import Dataset
    from datasets.exceptions import DatasetsError

    path = file.path
    halves = _rows_with_halves(file)
    warn_of_halves(path, halves)

    def write(copy: Path) -> None:
        rows = (json.dumps(row, ensure_ascii=False) for row in stream(file))
        with open(copy, "w", encoding="utf-8") as lines:
            lines.writelines(HALF_CHARACTER.sub("\ufffd", row) + "\n" for row in rows)

    # datasets reads lines. It takes some objects over several lines for one row, and drops halves of characters.
    is_read = file.found.have_lines and not halves
    lines = path if is_read else cached_copy(path, file.options, ".jsonl", write)
    if lines.stat().st_size == 0:
        raise no_rows(path)
    try:
        # datasets does not check the bytes of "utf-8", its default.
        dataset = load_file("json", lines, encoding="utf8")
        if not any("timestamp[" in str(kind) for kind in dataset.features.arrow_schema.types):
            return dataset
    except (DatasetsError, ValueError):
        pass
    # datasets reads texts such as "2020-01-01" as dates, fails where whole numbers become fractions late in the file,
    # and does not name the line of an error.
    rows = list(stream(file if is_read else file._replace(found=Values(Head(lines)))))
    names = dict.fromkeys(name for row in rows for name in row)
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})


def stream(file: DataFile) -> Iterator[dict[str, Any]]:
    """The objects of a file, one after the other; halves of characters remain."""
    for number, item in enumerate(file.found.items(_unfolded), 1):
        if not isinstance(item, dict):
            example = '{"text": "a fine film", "label": "positive"}'
            raise UserError(f"{file.path}, row {number} is not an object. Write rows as {example}")
        yield item


def _unfolded(value: Any) -> list[Any]:
    """The rows in a list or an object."""
    if isinstance(value, list):
        return [{"text": item} if isinstance(item, str) else item for item in value]
    return _rows_of(value) or [value]


def _rows_of(item: Any) -> list[Any]:
    """The rows of {"data": [...]}, or of pandas' columns or index, with the numbers of the rows; else none."""
    rows = item.get("data") if isinstance(item, dict) else None
    if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
        return rows
    if isinstance(item, dict) and _are_columns(list(item.values())):
        return [dict(zip(item, cells, strict=True)) for cells in zip(*item.values(), strict=True)]
    if not (isinstance(item, dict) and item and all(isinstance(cells, dict) and cells for cells in item.values())):
        return []
    if all(map(str.isdecimal, item)):
        return list(item.values())
    columns = [list(cells) for cells in item.values()]
    if any(numbers != columns[0] for numbers in columns) or not all(map(str.isdecimal, columns[0])):
        return []
    return [{name: cells[number] for name, cells in item.items()} for number in columns[0]]


def _are_columns(values: list[Any]) -> bool:
    """Whether the values of an object are lists as long as each other, one of texts: not the words of one text."""
    if not values or not all(isinstance(cells, list) and len(cells) == len(values[0]) > 1 for cells in values):
        return False
    return any(2 * sum(isinstance(cell, str) and " " in cell for cell in cells) > len(cells) for cells in values)


def _rows_with_halves(file: DataFile) -> list[int]:
    """The numbers of the rows that have an escape of half a character, from 1."""
    with file.head.open_bytes() as lines:
        if not any(map(_HALF_ESCAPE.search, lines)):
            return []
    rows = enumerate(stream(file), 1)
    return [number for number, row in rows if HALF_CHARACTER.search(json.dumps(row, ensure_ascii=False))]
