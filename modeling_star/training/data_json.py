"""json lines, or a json list: rows, whatever their keys."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from datasets import Dataset, Features, List, Value
from datasets.exceptions import DatasetsError

from .data_opening import DataError, generated, load_rows, no_rows, open_text


# In text that Python has put pairs of together: what is left is half of a character, which no file in UTF-8 holds.
_HALF = re.compile("[\ud800-\udfff]")


def read_json(path: Path, cache_dir: str | None) -> Dataset:
    """json lines, a json list of objects, or an object with such a list under "data"."""
    try:
        dataset = load_rows("json", path, cache_dir)
    except (DatasetsError, ValueError) as error:
        return _dataset_from_rows(path, list(json_rows(path)), error)
    if dataset.num_rows == 1 and isinstance(getattr(dataset.features.get("data"), "feature", None), dict):
        return load_rows("json", path, cache_dir, field="data")
    dated = [name for name, feature in dataset.features.items() if "timestamp" in str(feature)]
    if not dated:
        return dataset
    # json has no dates: the reader takes texts such as "2020-01-01" for dates and would lose their spelling.
    if not all(isinstance(getattr(feature, "feature", feature), Value) for feature in dataset.features.values()):
        return _dataset_from_rows(path, list(json_rows(path)), None)  # with objects in it, of keys that may be absent
    text = Value("string")
    kinds = {
        name: feature if name not in dated else text if isinstance(feature, Value) else List(text)
        for name, feature in dataset.features.items()
    }
    return generated(_json_cells, path, Features(kinds), cache_dir, names=tuple(kinds))


def _json_cells(path: str, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in json_rows(Path(path)):
        yield {name: row.get(name) for name in names}


def json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of a json file, read one by one: slower than `datasets`, but able to name a line."""
    with open_text(path) as lines:
        head = lines.read(1 << 10).lstrip()
        lines.seek(0)
        if head.startswith("["):
            try:
                parsed: Iterable[tuple[int, Any]] = enumerate(json.load(lines), 1)
            except json.JSONDecodeError as error:
                raise DataError(f"{path} is not valid json: {error}") from error
            unit = "element"
        else:
            parsed, unit = _json_lines(path, lines), "line"
        for number, row in parsed:
            if not isinstance(row, dict):
                raise DataError(
                    f"{path}, {unit} {number} holds {str(row)[:60]!r}. Every row is an object with the columns as "
                    'keys, e.g. {"text": "a fine film", "label": "positive"}'
                )
            if _HALF.search(json.dumps(row, ensure_ascii=False)):
                raise DataError(
                    f"{path}, {unit} {number} has half of a character, as \\ud83d without what belongs to it: a text "
                    "was cut inside an emoji, say. Cut it before or behind."
                )
            yield row


def _json_lines(path: Path, lines: IO[str]) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(
                f"{path}, line {number} is not valid json ({error.msg} at column {error.colno}): "
                f"{line.strip()[:80]!r}. "
                'Write one object per line, e.g. {"text": "a fine film", "label": "positive"}'
            ) from error


def _dataset_from_rows(path: Path, rows: list[dict[str, Any]], error: Exception | None) -> Dataset:
    """The rows as a data set in memory, or an error that names the first two values of different types."""
    if not rows:
        raise no_rows(path)
    names = list(dict.fromkeys(name for row in rows for name in row))
    for name in names:
        first: tuple[str, int, Any] | None = None
        for number, row in enumerate(rows, 1):
            kind = _json_kind(row.get(name))
            if kind is None:
                continue
            if first is None:
                first = (kind, number, row[name])
            elif kind != first[0]:
                raise DataError(
                    f"{path} mixes types in column {name!r}: row {first[1]} has {first[2]!r} ({first[0]}) and row "
                    f"{number} has {row[name]!r} ({kind}). Write one type everywhere, e.g. {str(row[name])!r} as text."
                )
    try:
        return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})
    except Exception as unreadable:
        raise DataError(f"{path} could not be read as json: {unreadable}") from (error or unreadable)


def _json_kind(value: Any) -> str | None:
    """Types that a column may not mix; None for values that fit any. Whole numbers and floats may be mixed."""
    if value is None or value == []:
        return None
    if isinstance(value, list):
        kinds = sorted({kind for kind in map(_json_kind, value) if kind})
        return "list of " + " and ".join(kinds) if kinds else None
    return {bool: "true/false", int: "number", float: "number", str: "text"}.get(type(value), type(value).__name__)


__all__ = ["json_rows", "read_json"]
