"""The texts of a file that a saved model is to read: its lines, or a column of any of the formats of `data_files`."""

import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, DatasetDict

from ..errors import UserError
from .columns import find_predicted_columns, find_reading_columns, is_list, is_text_name
from .labels import literal_list
from .parallel_text import keys_of
from .readers import (
    conll_width,
    fits_columns,
    has_tags,
    is_table,
    likely_encoding,
    read_file,
    read_lines,
)
from .splits import check_are_words
from .squad import flatten_squad
from .writing_systems import between_words


logger = logging.getLogger(__name__)


class QuestionContext(NamedTuple):
    """A question of a file, and the text that it is about."""

    question: str
    context: str


Text = str | tuple[str, str] | list[str] | QuestionContext
"""A text, a pair of texts, the words of a text, or a question with its text."""


def read_texts(
    path: str | Path,
    *,
    pairs: bool = False,
    contexts: bool = False,
    questions: bool = False,
    text_column_name: str | None = None,
    column_names: Sequence[str] | None = None,
    trained_on: str | None = None,
    trained_columns: Sequence[str] | None = None,
) -> list[tuple[int, Text]]:
    """
    The texts of a file, or its pairs of texts, each with the number of its line or row, from 0; those without any text
    are left out. Words stay words where the file has such; in pairs, and where a question is asked, they are a text.

    Args:
        path: csv, tsv, json, jsonl, parquet or CoNLL, or lines of text, in `.txt` or whatever else it is called; `.gz`
            too; "-" is standard input, of lines. Of lines a pair's two texts are parted by a tab. A `.txt` with the
            columns of the training, or with a word and its tag a line, is read as one of columns, as training does.
        pairs: two texts each.
        contexts: a question is asked about each text.
        questions: each row of a table has a question of its own, found as run_qa.py finds it.
        text_column_name: see `find_predicted_columns`.
        column_names: of a csv or tsv without a header line, or of a CoNLL file.
        trained_on: the `text_column_name` of the training, or a translator's `source_column`, which counts where none
            is given and the file has it.
        trained_columns: its `column_names`, which count for a CoNLL or `.txt` file with as many columns.

    Raises:
        UserError, UserError: as in `read_file`; a column or a text cannot be found.
    """
    if str(path) == "-":
        if text_column_name is not None or column_names:
            raise UserError(
                "Standard input is read as lines of text, which have no columns: leave --text_column_name and "
                "--column_names away, or name a file in .csv, .tsv, .jsonl or .parquet"
            )
        return _of_lines("standard input", _piped_lines(), pairs)
    path = Path(path)
    if not path.is_file():
        raise UserError(f"--file {path} does not exist: name a file of texts, such as texts.txt or reviews.csv")
    if not is_table(path) and not column_names and trained_columns and fits_columns(path, trained_columns):
        column_names = trained_columns
    if is_table(path) or column_names or has_tags(path):
        if column_names is None and trained_columns and conll_width(path) == len(trained_columns):
            column_names = trained_columns
        if questions:
            return _of_questions(path, text_column_name, column_names, trained_on)
        return _of_columns(path, pairs, contexts, text_column_name, column_names, trained_on)
    if text_column_name is not None:
        raise UserError(
            f"{path} holds lines of text, which have no column {text_column_name!r}: leave --text_column_name away, "
            "or name a file in .csv, .tsv, .jsonl or .parquet"
        )
    return _of_lines(str(path), read_lines(path), pairs)


def _piped_lines() -> list[str]:
    """The lines of standard input, in UTF-8 whatever the terminal is set to."""
    given = sys.stdin.buffer.read()
    try:
        with io.TextIOWrapper(io.BytesIO(given), encoding="utf-8-sig") as lines:
            return [line.rstrip("\n") for line in lines]
    except UnicodeDecodeError as error:
        raise UserError(
            f"Standard input is not UTF-8 text ({error}): write `iconv -f {likely_encoding(given)} -t UTF-8 |` before "
            "this command"
        ) from error


def _of_lines(source: str, lines: Sequence[str], pairs: bool) -> list[tuple[int, Text]]:
    found: list[tuple[int, Text]] = []
    tabbed = sum("\t" in line for line in lines)
    if not pairs and 2 * tabbed > len(lines):
        logger.warning(
            f"{source}: {tabbed} of {len(lines)} lines hold tabs, and each line is read as one text. Where tabs part "
            "columns, name them in their order: `--column_names label,text`"
        )
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        parts = line.split("\t")
        if pairs and len(parts) != 2:
            raise UserError(f"{source}, line {number + 1}: --pairs wants two texts parted by one tab")
        found.append((number, (parts[0], parts[1]) if pairs else line))
    return found


def _of_questions(
    path: Path, text_column_name: str | None, column_names: Sequence[str] | None, trained_on: str | None
) -> list[tuple[int, Text]]:
    rows = flatten_squad(read_file(path, column_names=column_names))
    named = [name.strip() for name in (trained_on or "").split(",")]
    if text_column_name is None and len(named) == 2 and set(named) <= set(rows.column_names):
        text_column_name = trained_on
    try:
        columns = find_reading_columns(DatasetDict({"file": rows}), text_column_name)[:2]
    except UserError as error:
        raise UserError(f'{error}. Where all texts are asked the same: `--question "Who moved to Oslo?"`') from None
    sides = [joined([_read(path, row, name, cell) for row, cell in enumerate(rows[name][:])]) for name in columns]
    asked = [(row, QuestionContext(*texts)) for row, texts in enumerate(zip(*sides, strict=True))]
    return _with_text(path, columns, asked)


def _with_text(path: Path, columns: Sequence[str], rows: Sequence[tuple[int, Text]]) -> list[tuple[int, Text]]:
    """The rows whose text, or each of whose two, is not empty; a warning tells of the others."""
    sides = [(text if isinstance(text, tuple) else (text,)) for _, text in rows]
    found = [row for row, texts in zip(rows, sides, strict=True) if all("".join(text).strip() for text in texts)]
    if len(found) < len(rows):
        kept = {number for number, _ in found}
        first = next(number for number, _ in rows if number not in kept)
        lack = f"no text in column {' or '.join(map(repr, columns))}"
        count = len(rows) - len(found)
        told = f"1 row has {lack}, and is" if count == 1 else f"{count} rows have {lack}, and are"
        logger.warning(f"{path}: {told} left out (the first has index {first})")
    return found


def _of_columns(
    path: Path,
    pairs: bool,
    contexts: bool,
    text_column_name: str | None,
    column_names: Sequence[str] | None,
    trained_on: str | None,
) -> list[tuple[int, Text]]:
    rows = read_file(path, column_names=column_names)
    nested = flatten_squad(rows) if contexts else rows
    if nested is not rows:  # questions of SQuAD's own nesting: each context once
        rows = Dataset.from_dict({"context": nested.unique("context")})
    keys = keys_of(rows.features[rows.column_names[0]]) if len(rows.column_names) == 1 else None
    if keys:  # {"translation": {"zh": ..., "en": ...}}, of which training takes the first as the source
        rows = rows.flatten().rename_columns({f"{rows.column_names[0]}.{key}": key for key in keys})
        trained_on = trained_on or keys[0]
    if text_column_name is None and trained_on is not None and not contexts:
        named = [trained_on] if trained_on in rows.column_names else [name.strip() for name in trained_on.split(",")]
        if len(named) == 1 + pairs and set(named) <= set(rows.column_names):
            text_column_name = trained_on
    columns = find_predicted_columns(rows, text_column_name, pairs=pairs, contexts=contexts)
    if text_column_name is None and column_names is None and set(columns) == set(rows.column_names):
        _warn_of_first_line(path, columns)
    if is_list(rows, columns[0]):
        check_are_words(str(path), [cell for cell in rows[columns[0]][:] if _is_words(cell)], columns[0])
    sides = [[_read(path, row, column, cell) for row, cell in enumerate(rows[column][:])] for column in columns]
    if pairs or contexts:
        sides = [joined(texts) for texts in sides]
    texts = [(row, texts if pairs else texts[0]) for row, texts in enumerate(zip(*sides, strict=True))]
    return _with_text(path, columns, texts)


def _warn_of_first_line(path: Path, columns: Sequence[str]) -> None:
    """Tell that a csv or tsv of nothing but texts begins with the name of its column, which may be a text."""
    if path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv")) and not any(map(is_text_name, columns)):
        logger.warning(
            f"{path}: the first line, {', '.join(map(repr, columns))}, is read as the name of the column. Where it is "
            f"a text, write `--column_names {','.join(['text', 'text2'][: len(columns)])}`"
        )


def _is_words(cell: Any) -> bool:
    return isinstance(cell, list) and all(isinstance(word, str) for word in cell)


def joined(texts: Sequence[Any]) -> list[Any]:
    """Texts, of which some may be lists of words, as texts."""
    between = between_words(text for text in texts if isinstance(text, list))
    return [between.join(text) if isinstance(text, list) else text for text in texts]


def _read(path: Path, row: int, column: str, cell: Any) -> str | list[str]:
    if _is_words(cell):
        return cell
    if cell is None or isinstance(cell, str):
        written = literal_list(cell or "")  # of words in a csv, which run_ner.py reads so
        return written if written and _is_words(written) else cell or ""
    raise UserError(
        f"{path}, row {row + 1}: column {column!r} holds {str(cell)[:60]!r}, and a text is wanted. Name the column of "
        "texts, e.g. `--text_column_name text`"
    )


__all__ = ["QuestionContext", "Text", "joined", "read_texts"]
