"""Read data files (csv, tsv, json, parquet, CoNLL, running text) as `datasets.Dataset`."""

import bz2
import csv
import glob
import gzip
import io
import itertools
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

import pyarrow
from datasets import Dataset, Features, IterableDataset, List, Value, load_dataset
from datasets.exceptions import DatasetsError
from pyarrow.parquet import ParquetFile

from ..errors import UserError
from ..models.crf import entity_tag
from .caching import source_version


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
"""The format of a file by its ending (before `.gz`)."""

PACKED = (".gz", ".bz2", ".zst")
"""The endings of packed files."""

SampleBy = Literal["line", "paragraph", "file"]
"""One document of a `.txt` file with running text; an empty line ends a paragraph."""

_STREAMED = ("text", "json", "parquet")
_TEXT_BLOCK, _PARQUET_ROWS = 10 << 20, 100  # characters and rows that a stream holds at a time

_CONLL_COLUMNS = {
    1: ["tokens"],
    2: ["tokens", "tags"],
    4: ["tokens", "pos_tags", "chunk_tags", "ner_tags"],  # CoNLL-2003
}
_CONLLU_COLUMNS = {1: "tokens", 3: "pos_tags", 4: "xpos_tags"}  # of ID FORM LEMMA UPOS XPOS ...
_TAGGER_COLUMNS = {"_", "tokens", "words", "token", "form", "tags", "upos"}
_CONLL_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
_LINES_CHECKED = 1000


def read_file(
    path: str | Path,
    cache_dir: str | None = None,
    sample_by: SampleBy | None = None,
    column_names: Sequence[str] | None = None,
) -> Dataset:
    """
    Read one data file.

    Args:
        path: a file with one of the endings in `FORMATS`, optionally followed by `.gz`.
        cache_dir: the folder of the cache of `datasets`.
        sample_by: read `.txt` files as running text with one row per line, paragraph or file; `None`: as CoNLL.
        column_names: the columns of a csv, tsv or `.txt` table without a header line, or of a CoNLL file, where "_"
            skips a column. `None`: named by the first line, or by the number of CoNLL columns.

    Returns:
        The rows in the order of the file. csv cells are texts; CoNLL has lists: `tokens` and one column per tag;
        running text has the column `text`.

    Raises:
        UserError: the file is absent or empty, has an unknown ending, or is not in its format.
    """
    path = Path(path)
    kind = _format_of(path, sample_by, column_names)
    with reading(path):
        if kind == "json":
            dataset = _read_json(path, cache_dir)
        elif kind == "parquet":
            dataset = _load("parquet", path, cache_dir)
        elif kind == "text":
            unit = "document" if sample_by == "file" else sample_by
            dataset = _load("text", path, cache_dir, sample_by=unit, encoding="utf-8-sig")
        elif kind == "conll":
            dataset = _read_conll(path, cache_dir, column_names)
        else:
            dataset = _read_csv(path, kind, cache_dir, column_names)
    if dataset.num_rows == 0:
        raise _no_rows(path)
    return dataset


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise any error in this context as a `UserError` that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ or error  # datasets wraps the errors of its readers
        if isinstance(cause, UserError):
            raise cause from None
        if "corresponds to no data" in str(cause):
            raise _no_rows(path) from None
        if isinstance(cause, UnicodeError):
            unpack, name = ("gzip -dc", Path(path.stem)) if path.suffix == ".gz" else ("cat", path)
            advice = f"`{unpack} {path} | iconv -f GB18030 -t UTF-8 > {name.stem}_utf8{name.suffix}`"
            raise UserError(f"{path}{_undecodable_line(path)} is not UTF-8 text ({cause}). Write {advice}") from error
        if isinstance(cause, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise UserError(f"{path} is a broken or incomplete gzip file ({cause}). Write it again.") from error
        raise UserError(f"{path} could not be read: {cause}") from error


def open_text(path: Path) -> IO[str]:
    """Open a UTF-8 text file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard."""
    return io.TextIOWrapper(open_bytes(path), encoding="utf-8-sig", newline=None)


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard."""
    with open(path, "rb") as file:
        start = file.read(4)
    if start.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.open(path))
    if start.startswith(b"BZh"):
        return bz2.open(path)
    if start == b"\x28\xb5\x2f\xfd":
        return cast(IO[bytes], pyarrow.input_stream(str(path), compression="zstd"))
    return open(path, "rb")


def _undecodable_line(path: Path) -> str:
    """The first line that is not UTF-8, as part of a message."""
    with open_bytes(path) as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return f", line {number}"
    return ""


def _no_rows(path: Path) -> UserError:
    return UserError(f"{path} is empty. Write at least one row, or omit the file.")


def _load(builder: str, path: Path, cache_dir: str | None, **options: Any) -> Dataset:
    """One file with a builder of `datasets`."""
    files = {"train": glob.escape(str(path.resolve()))}
    return cast(Dataset, load_dataset(builder, data_files=files, split="train", cache_dir=cache_dir, **options))


def _format_of(path: Path, sample_by: SampleBy | None = None, column_names: Sequence[str] | None = None) -> str:
    """The format of an existing file; "text" for running text."""
    if not path.is_file():
        problem = f"{path} is a folder" if path.is_dir() else f"There is no file {path}"
        raise UserError(f"{problem}. Check --train_file, --validation_file and --test_file.")
    if path.stat().st_size == 0:
        raise _no_rows(path)
    ending = _ending(path)
    if ending not in FORMATS:
        raise UserError(f"{path} ends in {ending!r}. Data files end in {', '.join(FORMATS)}, optionally with .gz.")
    if ending == ".txt" and sample_by is not None:
        return "text"
    kind = FORMATS[ending]
    if not column_names:
        return kind
    if kind not in ("csv", "tsv", "conll"):
        raise UserError(f"{path} has column names of its own format: omit --column_names.")
    if ending in (".tsv", ".txt"):
        return "conll" if has_sentences(path, column_names) else "tsv"
    return kind


def _ending(path: Path) -> str:
    name = path.name.lower()
    return Path(name.removesuffix(Path(name).suffix) if name.endswith(PACKED) else name).suffix


def is_data(path: Path) -> bool:
    """Whether a path is a file with one of the endings in `FORMATS`."""
    return path.is_file() and _ending(path) in FORMATS


def is_table(path: str | Path) -> bool:
    """Whether the ending of a file implies columns; `.txt` and unknown ones do not."""
    ending = _ending(Path(path))
    return ending in FORMATS and ending != ".txt"


# ------ csv and tsv


def _read_csv(path: Path, kind: str, cache_dir: str | None, column_names: Sequence[str] | None) -> Dataset:
    """A table in which every cell is text: "NA", "007" and "1.0" too."""
    separator, quoting = _csv_dialect(path, kind)
    rows = _csv_rows(path, separator, quoting, column_names)
    names = next(rows)
    for _ in rows:  # pandas fills short rows silently
        pass
    features = Features(dict.fromkeys(names, Value("string")))
    options: dict[str, Any] = {"names": names, "header": None} if column_names else {}
    options |= {"sep": separator, "quoting": quoting, "keep_default_na": False}
    return _load("csv", path, cache_dir, features=features, **options)


def _csv_dialect(path: Path, kind: str) -> tuple[str, Literal[0, 3]]:
    """The separator and the quoting of a csv or tsv file."""
    csv.field_size_limit(sys.maxsize)
    if kind == "csv":
        return ",", csv.QUOTE_MINIMAL
    return "\t", csv.QUOTE_MINIMAL if _quotes_enclose_cells(path) else csv.QUOTE_NONE


def _csv_rows(
    path: Path, separator: str, quoting: Literal[0, 3], column_names: Sequence[str] | None
) -> Iterator[list[str]]:
    """The names of the columns, then the cells of each row; empty lines are no rows."""
    with open_text(path) as lines:
        rows = csv.reader(lines, delimiter=separator, quoting=quoting, strict=True)
        first = next(filter(None, rows), [])
        names = list(column_names or (name or f"Unnamed: {place}" for place, name in enumerate(first)))
        if column_names and _folded(first) == _folded(names):
            raise UserError(f"{path} has a header line: omit --column_names.")
        yield names
        for row in itertools.chain([first] if column_names else [], rows):
            if row and len(row) != len(names):
                raise UserError(
                    f"{path}, line {rows.line_num} has {len(row)} cells, not the {len(names)} of {', '.join(names)}. "
                    f"Write one cell per column, and quotation marks around texts with {separator!r}."
                )
            if row:
                yield row


def _folded(names: Sequence[str]) -> list[str]:
    return sorted(name.strip().casefold() for name in names)


def _quotes_enclose_cells(path: Path) -> bool:
    """Whether quotation marks in a tsv file enclose cells (pandas), not belong to the text (GLUE)."""
    widths = set()
    try:
        with open_text(path) as lines:
            for row in csv.reader(lines, delimiter="\t", strict=True):
                if any("\t" in cell for cell in row):
                    return False
                widths.add(len(row) or 1)
    except csv.Error:
        return False
    return len(widths) == 1


# ------ json


def _read_json(path: Path, cache_dir: str | None) -> Dataset:
    """json lines, a json list of objects, or an object with such a list in "data"."""
    options = {"encoding": "utf8"}  # datasets does not check the bytes if it is "utf-8", the default
    try:
        dataset = _load("json", path, cache_dir, **options)
        if dataset.num_rows == 1 and isinstance(getattr(dataset.features.get("data"), "feature", None), dict):
            return _load("json", path, cache_dir, field="data", **options)
        if "timestamp" not in str(dataset.features):
            return dataset
    except (DatasetsError, ValueError):
        pass
    # datasets reads texts such as "2020-01-01" as dates, fails where whole numbers become fractions late in the file,
    # and does not name the line of an error.
    rows = list(_json_rows(path))
    names = dict.fromkeys(name for row in rows for name in row)
    return Dataset.from_dict({name: [row.get(name) for row in rows] for name in names})


def _json_rows(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a json file, one after the other."""
    with open_text(path) as lines:
        is_list = lines.read(1 << 10).lstrip().startswith("[")
        lines.seek(0)
        items = json.load(lines) if is_list else (line for line in lines)
        for number, item in enumerate(items, 1):
            if not is_list:
                if not item.strip():
                    continue
                try:
                    item = json.loads(item)
                except json.JSONDecodeError as error:
                    raise UserError(f"{path}, line {number} is not valid json ({error}).") from error
            if not isinstance(item, dict):
                example = '{"text": "a fine film", "label": "positive"}'
                raise UserError(f"{path}, row {number} is not an object. Write rows as {example}")
            yield item


# ------ CoNLL


def _read_conll(path: Path, cache_dir: str | None, column_names: Sequence[str] | None) -> Dataset:
    """One token per line, columns separated by tabs or blanks, and an empty line after each sentence."""
    state, options = path.stat(), _conll_options(path, column_names)
    # datasets finds the cache by the arguments: the code and the state of the file are among them.
    cached_by = {"version": source_version(__name__), "size": state.st_size, "time": state.st_mtime_ns}
    features = Features({name: List(Value("string")) for name in options["columns"].values()})
    return cast(Dataset, Dataset.from_generator(_conll_rows, features, cache_dir, gen_kwargs={**options, **cached_by}))


def _conll_options(path: Path, column_names: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of `_conll_rows`: the file, its columns, its first token line, and whether it is CoNLL-U."""
    line = _first_token_line(path)
    first = _cells(line, "\t" in line)
    is_conllu = len(first) == 10 and line[0].isdigit()
    columns = _CONLLU_COLUMNS if is_conllu else dict(enumerate(_default_names(len(first))))
    if column_names:
        columns = {place: name for place, name in enumerate(column_names) if name != "_"}
        if len(column_names) != len(first) or not columns or len(set(columns.values())) < len(columns):
            raise UserError(
                f"{path} has {len(first)} columns and --column_names is {','.join(column_names)}. Write one distinct "
                "name per column, or _ to skip it: `--column_names _,tokens,ner_tags`"
            )
    return {"path": path, "columns": columns, "first": line, "is_conllu": is_conllu}


def _conll_rows(
    path: Path, columns: dict[int, str], first: str, is_conllu: bool, **_: Any
) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file. CoNLL-U has lines for ranges ("3-4") and empty nodes ("5.1"), which are skipped."""
    for sentence in _conll_sentences(path, first):
        rows = [cells for cells in sentence if cells[0].isdigit()] if is_conllu else sentence
        yield {name: [cells[place] for cells in rows] for place, name in columns.items()}


def _conll_sentences(path: Path, first: str) -> Iterator[list[list[str]]]:
    """The cells of each line of each sentence, in the form of the first line with a token."""
    tabbed = "\t" in first
    width = len(_cells(first, tabbed))
    has_entities = entity_tag(_cells(first, tabbed)[-1]) is not None
    sentence: list[list[str]] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            # An ideographic space alone can be a token of a file without tags.
            if not line.strip(None if width > 1 else " \t") or line.startswith("-DOCSTART-"):
                if sentence:
                    yield sentence
                sentence = []
                continue
            cells = _cells(line, tabbed)
            if len(cells) == width - 1 and line.startswith("  "):  # the token is a blank
                cells = [" ", *cells]
            # Within a sentence "#" is a token, and before it if a tag follows.
            if not sentence and line.startswith("#"):
                is_tagged = cells[0] != "#" or not has_entities or cells[-1] == "-100" or entity_tag(cells[-1])
                if len(cells) != width or _CONLL_COMMENT.match(line) or not is_tagged:
                    continue
            if len(cells) != width or not cells[0] or not cells[-1]:
                raise UserError(
                    f"{path}, line {number} is {line[:80]!r}, but the first line has {width} columns. "
                    "Write one token per line with all columns, and an empty line after each sentence."
                )
            sentence.append(cells)
    if sentence:
        yield sentence


def conll_width(path: str | Path) -> int | None:
    """The number of columns of a CoNLL file; `None` for other formats."""
    if not is_table(path) or _format_of(Path(path)) != "conll":
        return None
    line = _first_token_line(Path(path))
    return len(_cells(line, "\t" in line))


def _first_token_line(path: Path) -> str:
    with reading(path), open_text(path) as lines:
        for line in lines:
            if line.strip(" \t\r\n") and not line.startswith(("#", "-DOCSTART-")):
                return line.strip("\r\n")
    raise _no_rows(path)


def _default_names(width: int) -> list[str]:
    return _CONLL_COLUMNS.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def _cells(line: str, tabbed: bool) -> list[str]:
    # Not str.split(): a no-break or ideographic space can be a token.
    return line.split("\t") if tabbed else re.split(r"[ \t]+", line.strip(" \t"))


def _first_lines(path: Path) -> list[str]:
    with reading(path), open_text(path) as lines:
        return [line.strip(" \r\n") for line in itertools.islice(lines, _LINES_CHECKED)]


def has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a `.tsv` or `.txt` file is CoNLL: a tagger's column names, and empty lines between sentences."""
    if not any(name in _TAGGER_COLUMNS or name.endswith("_tags") for name in column_names):
        return False
    return "\n\n" in "\n".join(_first_lines(path)).strip()


def has_tags(path: Path) -> bool:
    """Whether a `.txt` file without column names is CoNLL: each line ends in the tag of an entity or in O."""
    rows = [line.split() for line in _first_lines(path) if not line.startswith("-DOCSTART-")]
    tokens = [row for row in rows if row]
    tagged = {len(row) for row in tokens if len(row) > 1 and entity_tag(row[-1])} == {len(row) for row in tokens}
    return bool(tokens) and tagged and len({len(row) for row in tokens}) == 1 and has_sentences(path, ["tokens"])


def fits_columns(path: str | Path, column_names: Sequence[str]) -> bool:
    """Whether a `.txt` file has these columns: cells separated by tabs, or one token per line."""
    lines = [line for line in _first_lines(Path(path)) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or has_sentences(Path(path), column_names))


# ------ Streams


def stream_files(paths: Sequence[str | Path], sample_by: SampleBy, column: str) -> IterableDataset:
    """
    Stream the texts of files, one file after the other.

    Args:
        paths: running text (`.txt`), json lines or parquet, also with `.gz`; formats can be mixed.
        sample_by: one row of running text.
        column: the column of the texts. Other columns can differ between files and rows.

    Raises:
        UserError: a file is absent, empty or in another format.
    """
    for path in paths:
        _streamed_format(Path(path), sample_by)
    # The list of files is what datasets shuffles and shards.
    options = {"paths": [str(path) for path in paths], "sample_by": sample_by, "column": column}
    return IterableDataset.from_generator(_stream, gen_kwargs=options)


def streamed_columns(path: str | Path, sample_by: SampleBy, column: str | None) -> Dataset:
    """The first row of a file for `stream_files` with `column`, as a table of the columns."""
    rows = _rows(Path(path), sample_by)
    first = next(rows, None)
    if first is None:
        raise _no_rows(Path(path))
    if column is not None:
        first = next((row for row in itertools.chain([first], rows) if column in row), first)
    return Dataset.from_list([{name: cell if isinstance(cell, str) else None for name, cell in first.items()}])


def stream_rows(path: Path, column_names: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """
    Stream the rows of a table or of CoNLL as `read_file` reads them, in little memory and without a cache.

    Raises:
        UserError: see `read_file`.
    """
    kind = _format_of(path, None, column_names)
    with reading(path):
        count = 0
        for row in _table_rows(path, kind, column_names):
            count += 1
            yield row
        if not count:
            raise _no_rows(path)


def _table_rows(path: Path, kind: str, column_names: Sequence[str] | None) -> Iterator[dict[str, Any]]:
    if kind == "conll":
        yield from _conll_rows(**_conll_options(path, column_names))
    elif kind in ("csv", "tsv"):
        rows = _csv_rows(path, *_csv_dialect(path, kind), column_names)
        names = next(rows)
        yield from (dict(zip(names, row, strict=True)) for row in rows)
    elif kind == "json" and _is_json_object(path):
        yield from _read_json(path, None)
    else:
        yield from _rows(path, "line")


def _is_json_object(path: Path) -> bool:
    """Whether a json file is one object over many lines, such as {"data": [...]}, not a list or an object per line."""
    with open_text(path) as lines:
        first = next(filter(str.strip, lines), "")
    try:
        return not first.lstrip().startswith("[") and isinstance(json.loads(first).get("data"), list)
    except ValueError:
        return True


def has_blocks(path: Path) -> bool:
    """Whether a row of a file takes several lines: CoNLL, or a json list."""
    return _ending(path) == ".json" or (
        FORMATS.get(_ending(path)) == "conll" and (_ending(path) != ".txt" or has_tags(path))
    )


def _streamed_format(path: Path, sample_by: SampleBy) -> str:
    kind = _format_of(path, sample_by)
    if kind not in _STREAMED:
        raise UserError(f"{path} is {kind}, which cannot be streamed. Write .txt, .jsonl or .parquet files.")
    return kind


def _stream(paths: list[str], sample_by: SampleBy, column: str) -> Iterator[dict[str, str | None]]:
    """The texts of files; `None` for rows without one."""
    for path in paths:
        for number, row in enumerate(_rows(Path(path), sample_by, [column]), 1):
            cell = row.get(column)
            if cell is not None and not isinstance(cell, str):
                raise UserError(f"{path}, row {number} has {str(cell)[:60]!r} in column {column!r}, not a text.")
            yield {column: cell}


def _rows(path: Path, sample_by: SampleBy, columns: list[str] | None = None) -> Iterator[dict[str, Any]]:
    """The rows of a file, one after the other."""
    kind = _streamed_format(path, sample_by)
    with reading(path):
        if kind == "text":
            yield from ({"text": text} for text in _texts(path, sample_by))
        elif kind == "parquet":
            with open_bytes(path) as content, ParquetFile(content) as file:
                for batch in file.iter_batches(_PARQUET_ROWS, columns=columns):
                    yield from batch.to_pylist()
        else:
            yield from _json_rows(path)


def _texts(path: Path, sample_by: SampleBy) -> Iterator[str]:
    """The rows of running text, as `datasets` splits it."""
    with open_text(path) as file:
        if sample_by == "line":
            for line in file:
                yield line.rstrip("\n")
        elif sample_by == "file":
            yield file.read()
        else:
            # The parts of a long paragraph are joined once, at its end. The newline at the end of a block is kept for
            # the next one: together they can be an empty line.
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


def plain_texts(rows: Dataset) -> Dataset:
    """Cast the large strings of pandas' parquet files to the strings of other formats."""
    for name, feature in rows.features.items():
        if getattr(feature, "dtype", "") in ("large_string", "string_view"):
            rows = rows.cast_column(name, Value("string"))
    return rows
