"""
Rows of an output file: the columns of the input, then what was predicted.

    review, stars                      ->  review, stars, label, score                          .csv, .tsv
                                       ->  index, text, found, review, stars, label, score      .jsonl, .parquet

`index`, `file`, `text` (or `text_pair`, `question`, `context`) and `found`, the whole prediction, have these names in
every file; a column of the input that has one of them for something else is written as `input_NAME`. What is predicted
gives way to the input: `predicted_label` where the input has a `label`.
"""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..data.encodings import HALF_CHARACTER
from ..errors import UserError


Prediction = dict[str, Any]
"""An entity or answer (`label`, `start`, `end`, `text`, `score`), a label (`label`, `score`; of several per text also
`predicted`), or a number (`value`)."""

TABLES = {".csv": "excel", ".tsv": "excel-tab"}
"""The endings of tables of text, and the dialect of each."""
FORMATS = (".jsonl", ".parquet", *TABLES)


def parts_of(output: Path) -> Path:
    """The folder of the parts of a file that is not yet whole."""
    return output.with_name(f"{output.name}.parts")


def check_output(output: Path) -> None:
    """Raise a UserError where a file has another ending, or exists, or its folder may not be searched or written."""
    if output.suffix not in FORMATS:
        raise UserError(f"--output_file {output} ends in {output.suffix!r}: write {', '.join(FORMATS)}.")
    try:
        is_written = output.exists() and not parts_of(output).exists()
    except PermissionError as error:
        raise UserError(
            f"{output.parent} may not be searched by this user: write --output_file {output.name}, or name another "
            "folder."
        ) from error
    if os.path.isdir(output.parent) and not os.access(output.parent, os.W_OK | os.X_OK):
        raise UserError(
            f"{output.parent} may not be written by this user: write --output_file {output.name}, or name another "
            "folder."
        )
    if is_written:
        raise UserError(f"{output} exists, and nothing is overwritten: delete it, or name another --output_file.")


@dataclass(frozen=True)
class Source:
    """Where a text is from: its row, `None` for typed texts, its file, where there are several, the row's cells."""

    index: int | None = None
    file: str | None = None
    cells: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class InputColumns:
    """The `columns` and `plain` of the `Texts` of a file, or none of typed texts."""

    columns: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    is_file: bool = False


@dataclass(frozen=True)
class OutputColumns:
    """
    The names of the columns of an output: `source` has `file`, `index`, the texts and `found`, as far as there are
    any; `own` those of the input by column; `predicted` those of `predicted_fields`. `has_several`: a text has several
    labels, or a number for each.
    """

    source: tuple[str, ...]
    own: dict[str, str]
    predicted: dict[str, str]
    has_several: bool = False

    @classmethod
    def of(
        cls,
        inputs: Iterable[InputColumns],
        texts: Sequence[str],
        predicted: Iterable[str],
        has_several: bool,
        suffix: str,
    ) -> "OutputColumns":
        """The columns of an output; a table of text has the texts only where no column of the input has them."""
        is_table = suffix in TABLES
        inputs = list(inputs)
        files = sum(each.is_file for each in inputs)
        has = {
            "file": files > 1,
            "index": files > 0 and not is_table,
            **dict.fromkeys(texts, not is_table or any(len(each.plain) < len(texts) for each in inputs)),
            "found": not is_table,
        }
        source = tuple(name for name, is_there in has.items() if is_there)
        columns = dict.fromkeys(name for each in inputs for name in each.columns)

        def is_text(name: str) -> bool:
            """Whether a column of the input is what the output has under this name."""
            side = texts.index(name) if name in texts else -1
            return side >= 0 and all(each.plain[side : side + 1] == (name,) for each in inputs if name in each.columns)

        own: dict[str, str] = {}
        for name in columns:
            if name not in source:
                own[name] = name
            elif not is_text(name):
                own[name] = _free(f"input_{name}", (*source, *columns, *own.values()))
        names: dict[str, str] = {}
        for name in predicted:
            taken = (*source, *own.values(), *names.values())
            names[name] = _free(f"predicted_{name}", taken) if name in taken else name
        return cls(source, own, names, has_several)

    @property
    def names(self) -> tuple[str, ...]:
        """All columns of the output, in their order."""
        return (*self.source, *self.own.values(), *self.predicted.values())

    @property
    def renamed(self) -> dict[str, str]:
        """The names that gave way, of columns of the input and of what is predicted, and the new ones."""
        pairs = (*self.own.items(), *self.predicted.items())
        return {before: after for before, after in pairs if before != after}

    def row(self, source: Source, text: Any, found: list[Prediction]) -> dict[str, Any]:
        """A row of the output, its numbers rounded; what does not apply, as the index of a typed text, is omitted."""
        found = rounded(found)
        has = {"file": source.file, "index": source.index, **named_texts(text), "found": found}
        own = {new: _plain(source.cells[name]) for name, new in self.own.items() if name in source.cells}
        row = {name: has[name] for name in self.source if has.get(name) is not None}
        best = _best(found, self.predicted, self.has_several)
        return {**row, **own, **{new: best[name] for name, new in self.predicted.items()}}


def _free(name: str, taken: Sequence[str]) -> str:
    """A name that is not taken."""
    names = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(each for each in names if each not in taken)


def named_texts(text: Any) -> dict[str, str]:
    """A text, a pair of texts, or a question and its context, which is a named tuple, by name."""
    if isinstance(text, str):
        return {"text": text}
    return dict(zip(getattr(text, "_fields", ("text", "text_pair")), text, strict=True))


def rounded(found: list[Prediction]) -> list[Prediction]:
    """Predictions with four decimals, as they are printed and written."""
    return [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in each.items()}
        for each in found
    ]


def predicted_fields(fields: dict[str, str], has_several: bool) -> dict[str, Any]:
    """
    What an output has of a prediction with some fields, with the type of pyarrow by its alias; in a list, one of
    lists: `entities` of a tagger; `answer`, `start`, `end` and `score` of an answer; `value` of a number; `label` and
    `score` of the best label, or of several the lists of those that are predicted.
    """
    if "start" in fields:
        if "label" in fields:
            return {"entities": [fields]}
        return {"answer": "string", "start": "int64", "end": "int64", "score": "float64"}
    if "value" in fields:
        return {"value": "float64"}
    types = {"label": "string", "score": "float64"}
    return {name: [kind] for name, kind in types.items()} if has_several else types


def _best(found: list[Prediction], names: Iterable[str], has_several: bool) -> dict[str, Any]:
    """The cells of `predicted_fields`; `None` where there is no answer."""
    if "entities" in names:
        return {"entities": found}
    if has_several:
        predicted = [each for each in found if each.get("predicted", True)]
        return {name: [each[name] for each in predicted] for name in names}
    first = found[0] if found else {}
    return {name: first.get("text" if name == "answer" else name) for name in names}


def _plain(cell: Any) -> Any:
    """A cell of the input as it can be written: UTF-8, and no numbers that JSON lacks."""
    if isinstance(cell, str):
        return HALF_CHARACTER.sub("\ufffd", cell) if not cell.isascii() else cell
    if isinstance(cell, float):
        return cell if math.isfinite(cell) else None
    if isinstance(cell, dict):
        return {str(name): _plain(value) for name, value in cell.items()}
    if isinstance(cell, (list, tuple)):
        return [*map(_plain, cell)]
    return cell


def as_json(row: Any) -> str:
    """One line; dates and other values without a form in JSON are texts."""
    return json.dumps(row, ensure_ascii=False, allow_nan=False, default=str)


def as_table(rows: Iterable[dict[str, Any]], columns: Sequence[str], suffix: str) -> bytes:
    """Rows of a table of text, in UTF-8; lists and the like are JSON, an absent cell is empty."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, TABLES[suffix], lineterminator="\n")
    # Python does not quote a cell with "\r" alone (3.11), at which a reader would end the row.
    quoting = csv.writer(stream, TABLES[suffix], lineterminator="\n", quoting=csv.QUOTE_ALL)
    for row in rows:
        cells = [_as_cell(row.get(name)) for name in columns]
        (quoting if any("\r" in cell for cell in cells) else writer).writerow(cells)
    return stream.getvalue().encode()


def _as_cell(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else as_json(value)
