"""One local file of any supported format -> one `datasets.Dataset`.

`datasets` reads json, csv and parquet; `data_csv`, `data_json` and `data_conll` say what of these formats it does not.
Whatever goes wrong is an error that names the file, the line, and what to write instead.
"""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from datasets import Dataset, IterableDataset, Value
from pyarrow.parquet import ParquetFile

from .data_conll import has_sentences, has_tags, read_conll, width_of
from .data_csv import read_csv, separator_of
from .data_json import json_rows, read_json
from .data_opening import (
    BROKEN_GZIP,
    DataError,
    DataFileError,
    is_packed,
    load_rows,
    naming,
    no_rows,
    open_text,
)


FORMATS = {
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".txt": "conll",
    ".conll": "conll",
    ".conllu": "conll",
    ".bio": "conll",
    ".iob": "conll",
    ".iob2": "conll",
    ".bmes": "conll",
}
"""What a file's ending (before `.gz`) says about its format."""

TextUnit = Literal["line", "paragraph", "file"]
"""What a document is in a `.txt` file that holds running text: a paragraph ends at an empty line."""

_STREAMED = ("text", "json", "parquet")
# Of a file that is streamed, held at a time: characters of running text, and rows.
_TEXT_BLOCK, _PARQUET_ROWS = 10 << 20, 100


def read_file(
    path: str | Path,
    cache_dir: str | None = None,
    text_unit: TextUnit | None = None,
    column_names: Sequence[str] | None = None,
) -> Dataset:
    """Read one file.

    Args:
        path: a file whose name ends as one of `FORMATS`, optionally followed by `.gz`.
        cache_dir: where `datasets` keeps its copy.
        text_unit: `.txt` files hold running text, and this is a row; None: they hold CoNLL columns.
        column_names: those of a csv, tsv or `.txt` file (of columns with tabs between them) without a header line, or
            of a CoNLL file, where "_" is a column to leave out. None: the first line of csv and tsv names them, and
            the number of columns those of CoNLL.

    Returns:
        The rows, in the order of the file. csv cells are all text; CoNLL gives `tokens` and one list column per tag;
        running text gives `text`, empty where a line or paragraph is.

    Raises:
        DataFileError: the file is absent or has no rows.
        DataError: its ending is unknown or its content is not of that format.
    """
    path = Path(path)
    kind = _check_file(path, text_unit)
    if column_names:
        kind = _headless(path, kind)
    if kind == "tsv" and column_names and has_sentences(path, column_names):
        kind = "conll"
    with naming(path, kind):
        if kind == "json":
            dataset = read_json(path, cache_dir)
        elif kind == "parquet":
            dataset = load_rows("parquet", path, cache_dir)
        elif kind == "text":
            dataset = load_rows("text", path, cache_dir, **_text_options(text_unit))
        elif kind == "conll":
            dataset = read_conll(path, cache_dir, column_names)
        else:
            dataset = read_csv(path, separator_of(path, kind, column_names), cache_dir, column_names)
    if dataset.num_rows == 0:
        raise no_rows(path)
    return dataset


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file in UTF-8, `.gz` too, as they are.

    Raises:
        DataError: it is not UTF-8, or no whole gzip file.
    """
    path = Path(path)
    with naming(path, "text"), open_text(path) as lines:
        return [line.rstrip("\n") for line in lines]


def is_table(path: str | Path) -> bool:
    """Whether a file's ending says that it has columns; `.txt` and unknown ones do not."""
    name = Path(path).name.lower().removesuffix(".gz")
    return not name.endswith(".txt") and Path(name).suffix in FORMATS


def conll_width(path: str | Path) -> int | None:
    """How many columns a file of CoNLL has; `None` of other endings."""
    return width_of(Path(path)) if is_table(path) and _check_file(Path(path)) == "conll" else None


def fits_columns(path: str | Path, column_names: Sequence[str]) -> bool:
    """Whether a `.txt` file has columns of these names: as many cells between tabs in each line, or a word a line."""
    lines = [line for line in read_lines(path) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or has_sentences(Path(path), column_names))


def stream_files(paths: Sequence[str | Path], text_unit: TextUnit, column: str) -> IterableDataset:
    """Texts of files, one file after the other, read while they are used and never held as a whole.

    Args:
        paths: running text (`.txt`), json lines or parquet, each also with `.gz`; their kinds may be mixed.
        text_unit: what a row of running text is.
        column: of the texts. What else a file holds is not looked at, and may differ between files and rows.

    Raises:
        DataFileError: a file is absent or empty.
        DataError: a file is of another kind.
    """
    for path in paths:
        _streamed_kind(Path(path), text_unit)
    # A reader of `datasets` would want the columns of the first rows everywhere. The list of files is what is shared
    # out, and shuffled.
    options = {"paths": [str(path) for path in paths], "text_unit": text_unit, "column": column}
    return IterableDataset.from_generator(_stream, gen_kwargs=options)


def streamed_columns(path: str | Path, text_unit: TextUnit, column: str | None) -> Dataset:
    """The columns of a file for `stream_files`, as a table: of json those of the first row that has `column`.

    Raises:
        DataFileError, DataError: as in `stream_files`.
    """
    path = Path(path)
    kind = _streamed_kind(path, text_unit)
    with naming(path, kind):
        if kind == "text":
            return Dataset.from_dict({"text": [""]})
        if kind == "parquet":
            with _open_parquet(path) as file:
                if not file.metadata.num_rows:
                    raise no_rows(path)
                return Dataset(file.schema_arrow.empty_table())
        rows = json_rows(path)
        first = next(rows, None)
        if first is None:
            raise no_rows(path)
        if column is not None and column not in first:
            first = next((row for row in rows if column in row), first)
        # A table has one type a column; a row of json may hold what no table does.
        return Dataset.from_list([{name: cell if isinstance(cell, str) else None for name, cell in first.items()}])


def _streamed_kind(path: Path, text_unit: TextUnit) -> str:
    kind = _check_file(path, text_unit)
    if kind not in _STREAMED:
        raise DataError(
            f"{path} is {kind}, which is checked as a whole before use and so not streamed: write .txt, .jsonl or "
            ".parquet files, or leave --streaming away."
        )
    return kind


def _stream(paths: list[str], text_unit: TextUnit, column: str) -> Iterator[dict[str, str | None]]:
    """The texts of files, with nothing in the rows that have none."""
    for path in map(Path, paths):
        kind = _check_file(path, text_unit)
        with naming(path, kind):
            cells: Iterator[Any]
            if kind == "text":
                cells = _texts(path, text_unit)
            elif kind == "parquet":
                cells = _parquet_cells(path, column)
            else:
                cells = (row.get(column) for row in json_rows(path))
            for number, cell in enumerate(cells, 1):
                if cell is not None and not isinstance(cell, str):
                    raise DataError(
                        f"{path}, row {number} holds {str(cell)[:60]!r} in column {column!r}, where a text is wanted. "
                        f'Write it as one, e.g. {{"{column}": "a fine film"}}'
                    )
                yield {column: cell}


def _texts(path: Path, unit: TextUnit) -> Iterator[str]:
    """The rows of running text, as `datasets` splits it."""
    with open_text(path) as file:
        if unit == "line":
            for line in file:
                yield line.rstrip("\n")
        elif unit == "file":
            yield file.read()
        else:
            # Of a paragraph longer than a block the parts are joined once, at its end. The end of a line is kept for
            # the next block, with which it may make an empty line.
            parts: list[str] = []
            line_end = ""
            while block := file.read(_TEXT_BLOCK):
                first, *others = (line_end + block).split("\n\n")
                parts.append(first)
                if others:
                    yield "".join(parts)
                    yield from others[:-1]
                    parts = [others[-1]]
                line_end = "\n" if parts[-1].endswith("\n") else ""
                parts[-1] = parts[-1].removesuffix("\n")
            yield "".join([*parts, line_end])


def _parquet_cells(path: Path, column: str) -> Iterator[Any]:
    with _open_parquet(path) as file:
        for rows in file.iter_batches(_PARQUET_ROWS, columns=[column]):
            yield from rows[column].to_pylist()


@contextmanager
def _open_parquet(path: Path) -> Iterator[ParquetFile]:
    with gzip.open(path) if is_packed(path) else open(path, "rb") as content, ParquetFile(content) as file:
        yield file


def plain_texts(rows: Any) -> Any:
    """Texts of one type: pandas writes those of a parquet file as another than json lines have."""
    for name, feature in (rows.features or {}).items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows


def _text_options(unit: TextUnit) -> dict[str, str]:
    """Of the reader of running text, which knows a whole file as a document."""
    return {"sample_by": "document" if unit == "file" else unit, "encoding": "utf-8-sig"}


def _check_file(path: Path, text_unit: TextUnit | None = None) -> str:
    """The format of an existing file that is not empty; of a `.txt` file "text" where it has a unit."""
    if path.is_dir():
        raise DataFileError(f"{path} is a folder, not a file. {_advice_on_folder(path)}")
    if not path.is_file():
        raise DataFileError(
            f"There is no file {path} (looked in {path.parent.resolve()}). Check the path of --train_file, "
            "--validation_file and --test_file."
        )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    ending = suffixes[-2] if suffixes[-1:] == [".gz"] and len(suffixes) > 1 else "".join(suffixes[-1:])
    if ending not in FORMATS:
        raise DataError(
            f"{path} ends in {ending or 'no suffix'!r}. Files may end in {', '.join(FORMATS)}, each also with .gz. "
            f"Rename it where it is such a file, e.g. {path.name.split('.')[0]}.jsonl, or save its rows as one (a "
            "spreadsheet as .csv)."
        )
    kind = "text" if ending == ".txt" and text_unit is not None else FORMATS[ending]
    try:
        with open_text(path) as lines:
            while block := lines.read(1 << 16):
                if block.strip():
                    return kind
    except UnicodeDecodeError:
        return kind  # parquet is not text; for the others the reader says where
    except BROKEN_GZIP as error:
        raise DataError(f"{path} is a broken or incomplete gzip file ({error}). Write it again.") from error
    raise DataFileError(f"{path} is empty. Write at least one row, or leave this file out of the arguments.")


def _advice_on_folder(folder: Path) -> str:
    """What to name in the place of a folder: a file in it, where there is one of a known kind."""
    rows = FORMATS.keys() - {".txt", ".json"}
    inside = sorted(path for path in folder.iterdir() if not rows.isdisjoint(map(str.lower, path.suffixes)))
    if inside:
        return f"Name a file in it, e.g. {inside[0]}"
    return (
        "Name a file of rows. Texts that lie in files of their own, a folder for each class, are to be written to one "
        'first: a line {"text": "...", "label": "..."} each, in a .jsonl'
    )


def _headless(path: Path, kind: str) -> str:
    """The format of a file whose columns are named by the user."""
    if path.name.removesuffix(".gz").lower().endswith(".txt"):
        return "tsv"
    if kind not in ("csv", "tsv", "conll"):
        raise DataError(
            f"{path} is {kind}, whose columns have their names: --column_names is for CoNLL, .csv, .tsv and .txt "
            "files without a header line. Leave it away."
        )
    return kind


__all__ = [
    "FORMATS",
    "DataError",
    "DataFileError",
    "TextUnit",
    "conll_width",
    "fits_columns",
    "has_tags",
    "is_table",
    "plain_texts",
    "read_file",
    "read_lines",
    "stream_files",
    "streamed_columns",
]
