"""Read json: an object per line, objects over several lines, a list, {"data": [...]}, or columns of pandas."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import UserError
from ..encodings import HALF_CHARACTER, warn_of_halves
from ..files import Options, cached_copy, load_file, no_rows, open_bytes, open_text


if TYPE_CHECKING:
    from datasets import Dataset


_BETWEEN = re.compile(r"[\s,]*")
_HALF_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def read(path: Path, options: Options) -> Dataset:
    """All rows of a file."""
    from datasets import Dataset
    from datasets.exceptions import DatasetsError

    halves = _rows_with_halves(path)
    warn_of_halves(path, halves)

    def write(copy: Path) -> None:
        rows = (json.dumps(row, ensure_ascii=False) for row in stream(path, options))
        with open(copy, "w", encoding="utf-8") as lines:
            lines.writelines(HALF_CHARACTER.sub("\ufffd", row) + "\n" for row in rows)

    # datasets reads lines. It takes some objects over several lines for one row, and drops halves of characters.
    lines = path if _has_lines(path) and not halves else cached_copy(path, options, ".jsonl", write)
    if lines.stat().st_size == 0:
        raise no_rows(path)
    try:
        # datasets does not check the bytes of "utf-8", its default.
        dataset = load_file("json", lines, options, encoding="utf8")
        if not any("timestamp[" in str(kind) for kind in dataset.features.arrow_schema.types):
            return dataset
    except (DatasetsError, ValueError):
        pass
    # datasets reads texts such as "2020-01-01" as dates, fails where whole numbers become fractions late in the file,
    # and does not name the line of an error.
    rows = list(stream(lines, options))
    names = dict.fromkeys(name for row in rows for name in row)
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})


def stream(path: Path, options: Options) -> Iterator[dict[str, Any]]:
    """The objects of a file, one after the other; halves of characters remain."""
    for number, item in enumerate(items(path, _unfolded), 1):
        if not isinstance(item, dict):
            example = '{"text": "a fine film", "label": "positive"}'
            raise UserError(f"{path}, row {number} is not an object. Write rows as {example}")
        yield item


def items(path: Path, unfold: Callable[[Any], list[Any]]) -> Iterator[Any]:
    """The values of a file, one after the other where each has a line."""
    values = _line_values(path) if _has_lines(path) else _block_values(path)
    first = list(itertools.islice(values, 2))
    yield from itertools.chain(unfold(first[0]) if len(first) == 1 else first, values)


def _line_values(path: Path) -> Iterator[Any]:
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    yield json.loads(line)
                except json.JSONDecodeError as error:
                    raise UserError(f"{path}, line {number} is not valid json ({error}).") from error


def _block_values(path: Path) -> Iterator[Any]:
    """The values of a text, one after the other, perhaps with commas between them."""
    with open_text(path) as file:
        text = file.read()
    decoder, end = json.JSONDecoder(), 0
    while (start := _BETWEEN.match(text, end).end()) < len(text):
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {error.lineno} is not valid json ({error}).") from error
        yield value


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
    if not (isinstance(item, dict) and item and all(isinstance(cells, dict) and cells for cells in item.values())):
        return []
    if all(map(str.isdecimal, item)):
        return list(item.values())
    columns = [list(cells) for cells in item.values()]
    if any(numbers != columns[0] for numbers in columns) or not all(map(str.isdecimal, columns[0])):
        return []
    return [{name: cells[number] for name, cells in item.items()} for number in columns[0]]


def _has_lines(path: Path) -> bool:
    """Whether a file has an object per line, and is neither a list, nor an object over lines or with rows in it."""
    with open_text(path) as lines:
        first, second = itertools.islice(itertools.chain(filter(str.strip, lines), ("", "")), 2)
    if first.lstrip().startswith("["):
        return False
    try:
        value = json.loads(first)
    except ValueError:
        return False
    return bool(second) or not _rows_of(value)


def _rows_with_halves(path: Path) -> list[int]:
    """The numbers of the rows that have an escape of half a character, from 1."""
    with open_bytes(path) as lines:
        if not any(map(_HALF_ESCAPE.search, lines)):
            return []
    rows = enumerate(stream(path, Options()), 1)
    return [number for number, row in rows if HALF_CHARACTER.search(json.dumps(row, ensure_ascii=False))]
