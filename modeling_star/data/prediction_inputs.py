"""Read the texts that run_predict.py predicts: the lines of a file, or its columns in any format of `readers`."""

import io
import itertools
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..errors import UserError
from .columns import ONE_WORD, TAGS, are_known, show_guess, text_columns
from .detect import DataFile, detect, is_data, is_span_folder
from .encodings import HALF_CHARACTER, is_wide, not_utf8, warn_of_halves
from .files import Options, ending_of, missing_file, open_bytes, reading
from .first_rows import FirstRows
from .labels import literal_list
from .text_types import QuestionContext, Text, joined
from .word_rows import Keys, check_order, find_keys, group_rows, has_word_rows, no_keys
from .writing_systems import between_words


logger = logging.getLogger(__name__)
_ROWS_INSPECTED = 1000


@dataclass(frozen=True)
class Texts:
    """
    The columns of a file's rows, none of lines; those with texts as they are predicted, not as words; and the number
    of each line or row, from 0, its text, and its cells by column. Rows without text are omitted.
    """

    columns: tuple[str, ...]
    plain: tuple[str, ...]
    rows: Iterator[tuple[int, Text, dict[str, Any]]]


def read_texts(path: str | Path, **options: Any) -> Iterator[tuple[int, Text]]:
    """The texts of a file with the numbers of their rows; `options` as in `open_texts`."""
    return ((number, text) for number, text, _ in open_texts(path, **options).rows)


def open_texts(
    path: str | Path,
    *,
    pairs: bool = False,
    contexts: bool = False,
    questions: bool = False,
    tags: bool = False,
    text_column_name: str | None = None,
    column_names: Sequence[str] | None = None,
    trained_on: str | None = None,
    trained_columns: Sequence[str] | None = None,
) -> Texts:
    """
    Stream the texts of a file.

    Columns, their types and the separator of words are found in the first rows, before the first text is asked for.
    Questions and contexts are read at once, since those in SQuAD's form share contexts.

    Args:
        path: csv, tsv, json, jsonl, parquet or CoNLL, or lines of text with any other ending; also with `.gz`, `.bz2`
            or `.zst`; "-" is standard input. A `.txt` file with a tag per line, or with the columns of the training,
            has columns.
        pairs: two texts per row, separated by a tab in lines.
        contexts: the texts are contexts of one question.
        questions: each row has its own question, in the columns of run_qa.py.
        tags: the model labels words, so that a table with one word per row has sentences; see `word_rows`.
        text_column_name: see `find_predicted_columns`.
        column_names: see `readers.read_file`.
        trained_on: the text columns of the training, used if the file has them.
        trained_columns: the `column_names` of the training, used for files with as many columns and no header line.

    Raises:
        UserError: the file cannot be read, or has no such column or text.
    """
    if str(path) == "-":
        return _as_lines(_standard_input(pairs))
    path = Path(path)
    if not path.is_file() and not is_span_folder(path):
        raise UserError(f"{missing_file(path)} Write --file texts.txt")
    options = Options(column_names, as_rows=bool(pairs or contexts or questions or text_column_name), as_texts=True)
    file = detect(path, options)
    if file.format == "span_json" and trained_on is not None and file.module.has_column(file, trained_on):
        file = detect(path, options._replace(as_rows=True))
    if column_names is None and trained_columns and file.has_columns(trained_columns):
        file = file.with_columns(trained_columns)
        logger.info("%s has the columns of the training: %s", path, ", ".join(trained_columns))
    name = file.only_column if column_names is None and text_column_name is None else None
    if name is not None and name != trained_on and not are_known([name]):
        advice = "if it is a text, write --column_names text."
        logger.warning("%s: the first line, %r, is read as the name of the column; %s", path, name, advice)
    if file.format == "running_text":
        if text_column_name or column_names:
            flag = "text_column_name" if text_column_name else "column_names"
            raise UserError(f"{path} has lines of text and no columns: omit --{flag}.")
        return _as_lines(_lines_of_file(file, pairs))
    if file.has_texts:
        texts = enumerate(file.texts())
        return _as_lines((number, _without_halves(text)) for number, text in texts if text.strip())
    if contexts or questions:
        sample: Any = _question_rows(file, contexts)
        rows: Iterator[dict[str, Any]] = iter(sample)
    else:
        rows = file.stream()
        first = list(itertools.islice(rows, _ROWS_INSPECTED))
        rows = itertools.chain(first, rows)
        sample = FirstRows.of(first)
    if tags and text_column_name is None and trained_on not in sample.column_names:
        words = [name for name in sample.column_names if name.casefold() in ONE_WORD]
        text_column_name = words[0] if len(words) == 1 else None
    columns = text_columns(sample, text_column_name, trained_on, pairs=pairs, contexts=contexts, questions=questions)
    trained = {trained_on, *map(str.strip, (trained_on or "").split(","))}
    if text_column_name is None and not trained.issuperset(columns):
        show_guess(path, columns, sample.column_names)
    keys = _keys_of_sentences(path, sample, columns[0]) if tags and len(columns) == 1 else None
    if keys is not None:
        rows = _sentences_of_words(rows, keys, sample.column_names)
    as_words = [
        [
            text
            for text in (_text_of(path, row, name, cell) for row, cell in enumerate(sample[name][:]))
            if isinstance(text, list)
        ]
        for name in columns
    ]
    separators = [between_words(words) if len(columns) == 2 or contexts else None for words in as_words]
    make: Callable[[Sequence[Any]], Text] = QuestionContext._make if questions else tuple if pairs else itemgetter(0)
    plain = () if keys is not None or any(as_words) else columns
    return Texts(tuple(sample.column_names), plain, _texts_of_rows(path, rows, columns, separators, make))


def _question_rows(file: DataFile, contexts: bool) -> Any:
    """The rows of questions; or of contexts, once each, as questions in SQuAD's nested form share them."""
    from datasets import Dataset

    from .squad import flatten_squad  # needs torch

    whole = file.read()
    flat = flatten_squad(whole)
    return Dataset.from_dict({"context": flat.unique("context")}) if contexts and flat is not whole else flat


def _as_lines(lines: Iterator[tuple[int, Text]]) -> Texts:
    """Texts without columns."""
    return Texts((), (), ((number, text, {}) for number, text in lines))


def _standard_input(pairs: bool) -> Iterator[tuple[int, Text]]:
    with io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig") as lines:
        try:
            yield from _of_lines("standard input", (line.rstrip("\n") for line in lines), pairs)
        except UnicodeDecodeError as error:
            raise not_utf8("Standard input", error.object.splitlines(True), str, is_numbered=False) from error


def _lines_of_file(file: DataFile, pairs: bool) -> Iterator[tuple[int, Text]]:
    with reading(file.path), file.head.open() as lines:
        yield from _of_lines(str(file.path), (line.rstrip("\n") for line in lines), pairs)


def _texts_of_rows(
    path: Path,
    rows: Iterator[dict[str, Any]],
    columns: tuple[str, ...],
    separators: Sequence[str | None],
    make: Callable[[Sequence[Any]], Text],
) -> Iterator[tuple[int, Text, dict[str, Any]]]:
    """The number, text and cells of each row; a separator joins the words of a column's texts."""
    omitted, halves = 0, []
    for number, cells in enumerate(rows):
        row: list[Any] = [_text_of(path, number, name, cells.get(name)) for name in columns]
        if any(HALF_CHARACTER.search("".join(text)) for text in row):
            halves.append(number + 1)
            row = [_without_halves(text) for text in row]
        if not all("".join(text).strip() for text in row):
            omitted += 1
            continue
        row = [
            text if separator is None else joined([text], separator)[0]
            for text, separator in zip(row, separators, strict=True)
        ]
        yield number, make(row), cells
    if omitted:
        logger.warning("%s: %d rows without a text in %s are omitted", path, omitted, ", ".join(columns))
    warn_of_halves(path, halves)


def _keys_of_sentences(path: Path, sample: Any, text: str) -> Keys | None:
    """What divides a table with one word per row into sentences, as training reads them; `None` for other tables."""
    if not has_word_rows(sample, text):
        return None
    keys = find_keys(sample, text)
    if keys is None:
        if text.casefold() in ONE_WORD and any(name.casefold() in TAGS for name in sample.column_names):
            raise no_keys(str(path), text)
        return None
    check_order(sample, str(path), keys)
    return keys


def _sentences_of_words(
    rows: Iterator[dict[str, Any]], keys: Keys, columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The sentences of a table with one word per row: lists of its cells, but one cell of what is the sentence's."""
    names = [*keys, *(name for name in columns if name not in keys)]
    for sentence in group_rows(([row.get(name) for name in names] for row in rows), keys):
        cells = dict(zip(names, map(list, zip(*sentence, strict=True)), strict=True))
        yield {name: cells[name][0] if name in keys else cells[name] for name in columns}


def data_files(paths: Sequence[str]) -> list[str]:
    """Files, and the data files of folders in the order of their names."""
    files: list[str] = []
    for path in paths:
        if path != "-" and not Path(path).exists():
            raise UserError(f"{missing_file(Path(path))} Write --file texts.txt")
        inside = sorted(str(each) for each in Path(path).iterdir() if is_data(each)) if Path(path).is_dir() else [path]
        if not inside and not is_span_folder(Path(path)):
            raise UserError(
                f"The folder {path} has no data files: name one with .txt, .csv, .jsonl or .parquet files."
            )
        files += inside or [path]
    return files


def count_rows(path: str | Path) -> int | None:
    """About how many rows a file has, for a progress bar; `None` where only reading it all would say."""
    path = Path(path)
    if not path.is_file():
        return None
    format = detect(path, Options(as_texts=True)).format
    if format == "conll" or ending_of(path) == ".json":  # a row takes several lines
        return None
    if path.name.endswith(".parquet"):
        from pyarrow.parquet import ParquetFile

        with reading(path):
            return ParquetFile(path).metadata.num_rows
    with reading(path), open_bytes(path) as file:
        lines = sum(block.count(b"\n") for block in iter(lambda: file.read(1 << 20), b""))
    return max(lines - (format == "tables"), 0)  # without the header line


def _of_lines(source: str, lines: Iterable[str], pairs: bool) -> Iterator[tuple[int, Text]]:
    for number, line in enumerate(lines):
        parts = line.split("\t")
        if "\0" in line and is_wide(line.encode()):  # its ASCII characters are valid UTF-8
            raise not_utf8(source, [line.encode()], str, is_numbered=False)
        if pairs and line.strip() and len(parts) != 2:
            raise UserError(f"{source}, line {number + 1}: --pairs reads two texts separated by one tab")
        if line.strip():
            yield number, (parts[0], parts[1]) if pairs else line


def _without_halves(text: str | list[str]) -> str | list[str]:
    if isinstance(text, list):
        return [HALF_CHARACTER.sub("\ufffd", word) for word in text]
    return HALF_CHARACTER.sub("\ufffd", text)


def _text_of(path: Path, row: int, column: str, cell: Any) -> str | list[str]:
    """A cell as a text or as words; words can be written into a csv cell."""
    words = literal_list(cell) if isinstance(cell, str) else cell
    if words and isinstance(words, list) and all(isinstance(word, str) for word in words):
        return words
    if cell is None or cell == [] or isinstance(cell, str):
        return cell or ""
    raise UserError(
        f"{path}, row {row + 1}: column {column!r} has {str(cell)[:60]!r}, not a text. Name the column of texts: "
        "`--text_column_name text`"
    )
