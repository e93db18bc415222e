"""The first rows of a file, with what `columns` and `word_rows` ask of a `datasets.Dataset`, without importing it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple


class Value(NamedTuple):
    """The type of a cell, as in `datasets`."""

    dtype: str


class Items(NamedTuple):
    """The type of a list, by that of its items; a dictionary means that they are objects."""

    feature: Value | dict[str, Any]


class FirstRows:
    """Columns of the first rows of a file, `None` where a row has none; one with a text is of texts."""

    def __init__(self, columns: Mapping[str, list[Any]]) -> None:
        self._columns = dict(columns)
        self.column_names = list(self._columns)
        self.features = {name: _type(cells) for name, cells in self._columns.items()}

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> "FirstRows":
        """The columns of some rows."""
        names = dict.fromkeys(name for row in rows for name in row)
        return cls({name: [row.get(name) for row in rows] for name in names})

    def __len__(self) -> int:
        return max(map(len, self._columns.values()), default=0)

    def __getitem__(self, name: str) -> list[Any]:
        return self._columns[name]

    def select(self, rows: Iterable[int]) -> "FirstRows":
        """Some of the rows."""
        rows = list(rows)
        return FirstRows({name: [cells[row] for row in rows] for name, cells in self._columns.items()})


_NAMES = {str: "string", bool: "bool", int: "int64", float: "float64"}


def _type(cells: Iterable[Any]) -> Value | Items:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {list}:
        items = {type(item) for cell in cells for item in cell or () if item is not None}
        return Items({} if dict in items else Value("null" if len(items) != 1 else _NAMES.get(items.pop(), "other")))
    if str in kinds:
        return Value("string")
    return Value(_NAMES.get(kinds.pop(), "other") if len(kinds) == 1 else "null")
