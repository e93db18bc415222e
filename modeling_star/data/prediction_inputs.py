"""Read the texts that run_predict.py predicts: the lines of a file, or its columns in any format of `readers`."""

import io
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from datasets import Dataset, DatasetDict

from ..errors import UserError
from .columns import find_predicted_columns, find_reading_columns
from .labels import literal_list
from .parallel_text import keys_of
from .readers import conll_width, fits_columns, has_tags, is_table, read_file, read_lines
from .squad import flatten_squad
from .writing_systems import between_words


logger = logging.getLogger(__name__)


class QuestionContext(NamedTuple):
    """A question and the text with its answer."""

    question: str
    context: str


Text = str | tuple[str, str] | list[str] | QuestionContext
"""A text, a pair of texts, the words of a text, or a question with its context."""


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
    The texts of a file with the numbers of their lines or rows, from 0; rows without any text are omitted.

    Args:
        path: csv, tsv, json, jsonl, parquet or CoNLL, or lines of text with any other ending; also with `.gz`; "-" is
            standard input. A `.txt` file with a tag per line, or with the columns of the training, has columns.
        pairs: two texts per row, separated by a tab in lines.
        contexts: the texts are contexts of one question.
        questions: each row has its own question, in the columns of run_qa.py.
        text_column_name: see `find_predicted_columns`.
        column_names: see `readers.read_file`.
        trained_on: the text columns of the training, used if the file has them.
        trained_columns: the `column_names` of the training, used for CoNLL and `.txt` files with as many columns.

    Raises:
        UserError: the file cannot be read, or has no such column or text.
    """
    if str(path) == "-":
        with io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8-sig") as lines:
            try:
                return _of_lines("standard input", [line.rstrip("\n") for line in lines], pairs)
            except UnicodeDecodeError as error:
                raise UserError(f"Standard input is not UTF-8 text ({error}): convert it with iconv") from error
    path = Path(path)
    if not path.is_file():
        raise UserError(f"There is no file {path}: --file texts.txt")
    if column_names is None and trained_columns:
        fits = conll_width(path) == len(trained_columns) if is_table(path) else fits_columns(path, trained_columns)
        column_names = trained_columns if fits else None
    if not (is_table(path) or column_names or has_tags(path)):
        if text_column_name is not None:
            raise UserError(f"{path} has lines of text and no columns: omit --text_column_name.")
        return _of_lines(str(path), read_lines(path), pairs)
    rows = read_file(path, column_names=column_names)
    if contexts or questions:
        flat = flatten_squad(rows)
        # Questions in SQuAD's nested form share a context.
        rows = Dataset.from_dict({"context": flat.unique("context")}) if contexts and flat is not rows else flat
    keys = keys_of(rows.features[rows.column_names[0]]) if len(rows.column_names) == 1 else None
    if keys:  # {"translation": {"zh": ..., "en": ...}}: the first is the source, as in training
        rows = rows.flatten().rename_columns({f"{rows.column_names[0]}.{key}": key for key in keys})
        trained_on = trained_on or keys[0]
    columns = _columns(rows, text_column_name, trained_on, pairs, contexts, questions)
    sides = [[_text_of(path, row, name, cell) for row, cell in enumerate(rows[name][:])] for name in columns]
    if len(columns) == 2 or contexts:
        sides = [joined(texts) for texts in sides]
    texts: list[tuple[int, Text]] = []
    for number, row in enumerate(zip(*sides, strict=True)):
        if all("".join(text).strip() for text in row):
            texts.append((number, QuestionContext(*row) if questions else row if pairs else row[0]))
    if len(texts) < len(rows):
        logger.warning(
            "%s: %d rows without a text in %s are omitted", path, len(rows) - len(texts), ", ".join(columns)
        )
    return texts


def _columns(
    rows: Dataset, given: str | None, trained_on: str | None, pairs: bool, contexts: bool, questions: bool
) -> tuple[str, ...]:
    """The columns of the texts: those that are given, those of the training, or those with known names."""
    if given is None and trained_on is not None and not contexts:
        names = [trained_on] if trained_on in rows.column_names else [name.strip() for name in trained_on.split(",")]
        if len(names) == 1 + (pairs or questions) and set(names) <= set(rows.column_names):
            given = trained_on
    if questions:
        return find_reading_columns(DatasetDict({"file": rows}), given)[:2]
    return find_predicted_columns(rows, given, pairs=pairs, contexts=contexts)


def _of_lines(source: str, lines: Sequence[str], pairs: bool) -> list[tuple[int, Text]]:
    texts: list[tuple[int, Text]] = []
    for number, line in enumerate(lines):
        parts = line.split("\t")
        if pairs and line.strip() and len(parts) != 2:
            raise UserError(f"{source}, line {number + 1}: --pairs reads two texts separated by one tab")
        if line.strip():
            texts.append((number, (parts[0], parts[1]) if pairs else line))
    return texts


def joined(texts: Sequence[Any]) -> list[Any]:
    """Texts, some of which can be lists of words, as texts."""
    between = between_words(text for text in texts if isinstance(text, list))
    return [between.join(text) if isinstance(text, list) else text for text in texts]


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
