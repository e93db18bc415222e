"""Parts of a parquet file, and their join: the types of the input's columns are known when all rows are."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter, write_table

from .output_rows import as_json


def write_parquet(rows: Sequence[dict[str, Any]], names: Sequence[str], types: dict[str, Any], file: BinaryIO) -> None:
    """Write rows, with the types of some columns, see `parquet_type`; others follow from the cells."""
    arrays = {}
    for name in names:
        cells = [row.get(name) for row in rows]
        arrays[name] = pa.array(cells, parquet_type(types[name])) if name in types else _array(cells)
    write_table(pa.table(arrays), file)


def parquet_type(kind: Any) -> pa.DataType:
    """The type of an alias, of `[kind]`, a list, or of a dictionary of fields."""
    if isinstance(kind, list):
        return pa.list_(parquet_type(kind[0]))
    if isinstance(kind, dict):
        return pa.struct([(name, parquet_type(each)) for name, each in kind.items()])
    return pa.type_for_alias(kind)


def _array(cells: Sequence[Any]) -> pa.Array:
    """Cells of one type, or all as texts."""
    try:
        return pa.array(cells)
    except (pa.ArrowException, OverflowError):
        return _texts(cells)


def _texts(cells: Sequence[Any]) -> pa.Array:
    texts = [cell if cell is None or isinstance(cell, str) else as_json(cell) for cell in cells]
    return pa.array(texts, pa.string())


def join_parquet(parts: Sequence[Path], output: BinaryIO) -> None:
    """Write the rows of some parts into one file. A column whose parts have types without a common one has texts."""
    schema = _joined([ParquetFile(part).schema_arrow for part in parts])
    with ParquetWriter(output, schema) as writer:
        for part in parts:
            writer.write_table(_cast(ParquetFile(part).read(), schema))


def _joined(schemas: Sequence[pa.Schema]) -> pa.Schema:
    def fields() -> Iterator[pa.Field]:
        for name in schemas[0].names:
            columns = [pa.schema([schema.field(name)]) for schema in schemas]
            try:
                (field,) = pa.unify_schemas(columns, promote_options="permissive")
            except pa.ArrowException:
                field = pa.field(name, pa.string())
            yield field

    return pa.schema(list(fields()))


def _cast(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """A part in the types of the whole; only what has none in common becomes text."""
    columns = []
    for column, field in zip(table.columns, schema, strict=True):
        as_text = pa.types.is_string(field.type) and not pa.types.is_string(column.type)
        columns.append(_texts(column.to_pylist()) if as_text else column.cast(field.type))
    return pa.table(columns, schema=schema)
