"""
Predictions of files of any size: in windows, one part file per window, joined at the end.

The texts are cut into windows in the order of the input, whatever the number of processes. Process i of n predicts
windows i, i + n, ... and names the file of a window, by its number and a hash of its rows, when it is whole and on the
disk. A run that was killed continues with the windows that have no file. The output is therefore the same, byte for
byte, however often a run was interrupted.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout

from ..data.writing_systems import between_words
from ..errors import UserError
from ..files import LOCK, no_empty_folder, write_atomically, write_text
from .output_rows import (
    TABLES,
    InputColumns,
    OutputColumns,
    Prediction,
    Source,
    as_json,
    as_table,
    check_output,
    parts_of,
    predicted_fields,
)


if TYPE_CHECKING:
    from ..data.text_types import Text
    from .prediction import Predictor

logger = logging.getLogger(__name__)

TEXTS_OF_WINDOW, CHARACTERS_OF_WINDOW = 4096, 1 << 22
_OPTIONS = "options.json"
PATIENCE = 3600.0
"""Seconds without a new part of another process, after which the main process gives up."""

Window = list[tuple[Source, "Text"]]
Predicted = list[tuple[Source, "Text", list[Prediction]]]


@dataclass(frozen=True)
class Processes:
    """The processes of `accelerate launch`; they share files, and need no other connection."""

    index: int
    count: int

    @classmethod
    def of_environment(cls) -> "Processes":
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def predict_windows(predictor: "Predictor", rows: Iterable[tuple[Source, "Text"]]) -> Iterator[Predicted]:
    """The predictions of each window of texts."""
    for window in windows(rows, predictor):
        yield predict_window(predictor, window)


def windows(rows: Iterable[tuple[Source, "Text"]], predictor: "Predictor") -> Iterator[Window]:
    """Successive rows, as many as fit into memory, or a UserError; the first ones decide how words are joined."""
    window: Window = []
    characters, is_first = 0, True

    def with_delimiter(window: Window) -> Window:
        if predictor.delimiter is None:
            predictor.delimiter = between_words(text for _, text in window if isinstance(text, list))
        return window

    for source, text in rows:
        window.append((source, text))
        characters += sum(map(len, text if isinstance(text, (list, tuple)) else (text,)))
        if len(window) == TEXTS_OF_WINDOW or characters >= CHARACTERS_OF_WINDOW:
            yield with_delimiter(window)
            window, characters, is_first = [], 0, False
    if window:
        yield with_delimiter(window)
    elif is_first:
        raise UserError("There is no text in the input: name a file with texts.")


def predict_window(predictor: "Predictor", window: Window) -> Predicted:
    numbers = [number if source.index is None else source.index + 1 for number, (source, _) in enumerate(window, 1)]
    return with_sources(window, predictor._predict([text for _, text in window], numbers))


def with_sources(window: Window, predicted: Sequence[tuple["Text", list[Prediction]]]) -> Predicted:
    """Predictions of the texts of a window, with what its other columns have."""
    return [(source, text, found) for (source, _), (text, found) in zip(window, predicted, strict=True)]


def output_columns(predictor: "Predictor", inputs: Iterable[InputColumns], suffix: str) -> OutputColumns:
    """The columns of an output, in a file that ends in `suffix`; a warning names those that have another name."""
    texts = ("text", "text_pair") if predictor.pairs else ("text",)
    if predictor.saved.task == "question-answering" and predictor.question is None:
        texts = ("question", "context")
    fields = predicted_fields(predictor.fields, predictor.has_several)
    columns = OutputColumns.of(inputs, texts, fields, predictor.has_several, suffix)
    for before, after in columns.renamed.items():
        if before in columns.predicted and columns.predicted[before] == after:
            logger.warning(f"The input has a column {before}: what is predicted is in the column {after}.")
        else:
            logger.warning(f"The column {before} of the input is written as {after}: the output has its own {before}.")
    return columns


def predict_parts(predictor: "Predictor", parts: Iterable[tuple[Path, Window]]) -> Iterator[tuple[Path, Predicted]]:
    """The predictions of the windows of some parts, in this process."""
    for part, window in parts:
        yield part, predict_window(predictor, window)


def predict_to_file(
    predictor: "Predictor",
    rows: Iterable[tuple[Source, "Text"]],
    output: Path,
    options: dict[str, Any],
    progress: Callable[[int], Any] = lambda texts: None,
    inputs: Iterable[InputColumns] = (InputColumns(is_file=True),),
    predict: Callable[["Predictor", Iterable[tuple[Path, Window]]], Iterator[tuple[Path, Predicted]]] = predict_parts,
) -> int:
    """
    Predict rows into a file, or continue to do so; the parts are in `OUTPUT.parts` until the end. Returns the number
    of its rows; 0 in a process that does not write the file. A UserError where the file exists, or its parts belong to
    another model, other options or other texts.

    Args:
        rows: the same ones in every process.
        options: what else the output depends on.
        progress: called with the number of texts of each window that is done.
        inputs: the columns of the files, and of typed texts.
        predict: what predicts windows, in any order.
    """
    processes = Processes.of_environment()
    folder = parts_of(output)
    if output.exists() and processes.index > 0:  # the main process had nothing left to do
        return 0
    columns = output_columns(predictor, inputs, output.suffix)
    if _recorded(folder).get("instructions", "") is None:  # before code was compiled: the parts have its digits
        predictor.instructions = None
    options = {**predictor.options, **options, "columns": asdict(columns)}
    with _begun(output, folder, json.loads(json.dumps(options)), processes.index == 0):
        names, count = [], 0
        written = _parts(folder, output.suffix)
        numbers = {name.split("-")[0] for name in written}

        def missing() -> Iterator[tuple[Path, Window]]:
            """The parts of this process that are not written."""
            nonlocal count
            for number, window in enumerate(windows(rows, predictor)):
                content = hashlib.blake2b(repr(window).encode(), digest_size=8).hexdigest()
                names.append(f"{number:08}-{content}{output.suffix}")
                count += len(window)
                if f"{number:08}" in numbers and names[-1] not in written:
                    raise UserError(
                        f"{folder} has predictions of other texts: the input has changed. Delete the folder, or name "
                        "another --output_file."
                    )
                # Without a part there is only an output if the main process has joined all parts.
                is_due = number % processes.count == processes.index and not output.exists()
                if is_due and names[-1] not in written:
                    yield folder / names[-1], window
                else:
                    progress(len(window))

        for part, predicted in predict(predictor, missing()):
            _write_part(part, [columns.row(*row) for row in predicted], columns, predictor)
            progress(len(predicted))
        if processes.index == 0:
            if not output.exists():  # it does where an earlier process ended after it was joined
                _join(_awaited(folder, names, output.suffix), columns, output, folder)
            for name in _parts(folder, output.suffix):
                (folder / name).unlink()
            shutil.rmtree(folder)  # the options last, by which a repeated command knows its output
            return count
    return 0


def _awaited(folder: Path, names: Sequence[str], suffix: str) -> list[Path]:
    """The parts of all windows, once other processes have written theirs; a UserError after PATIENCE."""
    latest, count_seen = time.monotonic(), 0
    while not (parts := _parts(folder, suffix)) >= set(names):
        if len(parts) > count_seen:
            latest, count_seen = time.monotonic(), len(parts)
        if time.monotonic() - latest > PATIENCE:
            raise UserError(
                f"{len(names) - len(parts)} parts in {folder} are missing, and none was written for "
                f"{PATIENCE / 60:g} minutes: repeat the command, which predicts what is missing."
            )
        time.sleep(0.1)
    return [folder / name for name in names]


@contextmanager
def _begun(output: Path, folder: Path, options: dict[str, Any], is_main: bool) -> Iterator[None]:
    """Make the folder of the parts, or check that it is of the same run; after an error it stays only with parts."""
    check_output(output)
    with no_empty_folder(output.parent), ExitStack() as at_the_end:
        folder.mkdir(exist_ok=True)
        path = folder / _OPTIONS
        if is_main:
            try:
                at_the_end.enter_context(FileLock(folder / LOCK, timeout=0))
            except Timeout:
                raise UserError(
                    f"Another process writes {output}: wait until it has ended, or name another --output_file."
                ) from None
            if output.exists() and not path.is_file():
                shutil.rmtree(folder)
                check_output(output)
        if before := _recorded(folder):
            changed = [name for name in options if before.get(name) != options[name]]
            if changed:
                was, now = ({name: values.get(name) for name in changed} for values in (before, options))
                raise UserError(
                    f"{folder} belongs to a run with {was}, this one has {now}. Delete the folder, or name another "
                    "--output_file."
                )
        else:
            write_text(path, json.dumps(options, ensure_ascii=False, indent=2))
        try:
            yield
        except BaseException:
            if is_main and {each.name for each in folder.iterdir()} <= {path.name, LOCK}:
                shutil.rmtree(folder)
            raise


def _recorded(folder: Path) -> dict[str, Any]:
    """The options of a run that was begun; empty where none was."""
    path = folder / _OPTIONS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _parts(folder: Path, suffix: str) -> set[str]:
    """The names of the parts in a folder."""
    return {path.name for path in folder.glob(f"[0-9]*-*{suffix}")}


def _write_part(part: Path, rows: list[dict[str, Any]], columns: OutputColumns, predictor: "Predictor") -> None:
    """Write a part, which has its name when it is on the disk, also after a power cut."""

    def write(file: BinaryIO) -> None:
        if part.suffix == ".parquet":
            from .parquet_rows import write_parquet

            write_parquet(rows, columns.names, _types(columns, predictor), file)
        elif part.suffix in TABLES:
            file.write(as_table(rows, columns.names, part.suffix))
        else:
            file.writelines((as_json(row) + "\n").encode() for row in rows)
        _to_disk(file)

    write_atomically(part, write)


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _types(columns: OutputColumns, predictor: "Predictor") -> dict[str, Any]:
    """The types of the columns of an output that are not the input's."""
    fields = {"index": "int64", "found": [predictor.fields]}
    types = {name: fields.get(name, "string") for name in columns.source}
    predicted = predicted_fields(predictor.fields, predictor.has_several)
    return {**types, **{columns.predicted[name]: kind for name, kind in predicted.items()}}


def _join(parts: Sequence[Path], columns: OutputColumns, output: Path, folder: Path) -> None:
    """Write the rows of some parts into the output, whole or not at all; nothing of a killed process is left."""
    joined = folder / f"joined{output.suffix}"
    with open(joined, "wb") as file:
        if output.suffix == ".parquet":
            from .parquet_rows import join_parquet

            join_parquet(parts, file)
        else:
            if output.suffix in TABLES:
                names = dict(zip(columns.names, columns.names, strict=True))
                file.write(as_table([names], columns.names, output.suffix))
            for part in parts:
                with open(part, "rb") as content:
                    shutil.copyfileobj(content, file, 1 << 20)
        _to_disk(file)
    os.replace(joined, output)
