"""
Predictions of files of any size: in windows, one part file per window, joined at the end.

The texts are cut into windows in the order of the input, whatever the number of processes. Process i of n predicts
windows i, i + n, ... and renames the file of a window when it is whole. A run that was killed continues with the
windows that have no file. The output is therefore the same, byte for byte, however often a run was interrupted. The
name of a part has the number of its window, a hash of its texts, the number of its rows and a hash of its content. The
last two are compared when a run continues, and before the parts are joined.
"""

import hashlib
import io
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.parquet import ParquetFile, ParquetWriter, write_table

from ..data.prediction_inputs import Text
from ..data.writing_systems import between_words
from ..errors import UserError
from ..files import no_empty_folder
from .prediction import Prediction, Predictor


logger = logging.getLogger(__name__)

TEXTS_OF_WINDOW, CHARACTERS_OF_WINDOW = 4096, 1 << 22
FORMATS = (".jsonl", ".parquet")

Source = dict[str, Any]
"""Where a text is from: `file`, of several files, and `index`, the number of its row in it; empty for typed texts."""

Window = list[tuple[Source, Text]]
Predicted = list[tuple[Source, Text, list[Prediction]]]


@dataclass(frozen=True)
class Processes:
    """The processes of `accelerate launch`; they share files, and need no other connection."""

    index: int
    count: int

    @classmethod
    def of_environment(cls) -> "Processes":
        return cls(int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1")))


def predict_windows(predictor: Predictor, rows: Iterable[tuple[Source, Text]]) -> Iterator[Predicted]:
    """The predictions of each window of texts."""
    for window in windows(rows, predictor):
        yield predict_window(predictor, window)


def windows(rows: Iterable[tuple[Source, Text]], predictor: Predictor) -> Iterator[Window]:
    """Successive rows, as many as fit into memory; the first ones decide how words are joined."""
    window: Window = []
    characters = 0
    for source, text in rows:
        window.append((source, text))
        characters += sum(map(len, text if isinstance(text, (list, tuple)) else (text,)))
        if len(window) == TEXTS_OF_WINDOW or characters >= CHARACTERS_OF_WINDOW:
            yield _with_delimiter(window, predictor)
            window, characters = [], 0
    if window:
        yield _with_delimiter(window, predictor)


def _with_delimiter(window: Window, predictor: Predictor) -> Window:
    if predictor.delimiter is None:
        predictor.delimiter = between_words(text for _, text in window if isinstance(text, list))
    return window


def predict_window(predictor: Predictor, window: Window) -> Predicted:
    predicted = predictor.predict([text for _, text in window])
    return [(source, text, found) for (source, _), (text, found) in zip(window, predicted, strict=True)]


def as_row(source: Source, text: Text, found: list[Prediction]) -> dict[str, Any]:
    """A row of the output, its numbers rounded."""
    # A question and its context are a named tuple.
    names = ("text",) if isinstance(text, str) else getattr(text, "_fields", ("text", "text_pair"))
    cells = (text,) if isinstance(text, str) else text
    return {**source, **dict(zip(names, cells, strict=True)), "found": rounded(found)}


def rounded(found: list[Prediction]) -> list[Prediction]:
    """Predictions with four decimals, as they are printed and written."""
    return [
        {name: round(value, 4) if isinstance(value, float) else value for name, value in each.items()}
        for each in found
    ]


def as_json(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, allow_nan=False)


def predict_parts(predictor: Predictor, parts: Iterable[tuple[Path, Window]]) -> Iterator[tuple[Path, Predicted]]:
    """The predictions of the windows of some parts, in this process."""
    for part, window in parts:
        yield part, predict_window(predictor, window)


def predict_to_file(
    predictor: Predictor,
    rows: Iterable[tuple[Source, Text]],
    output: Path,
    options: dict[str, Any],
    progress: Callable[[int], Any] = lambda texts: None,
    predict: Callable[[Predictor, Iterable[tuple[Path, Window]]], Iterator[tuple[Path, Predicted]]] = predict_parts,
) -> None:
    """
    Predict rows into a file, or continue to do so.

    Args:
        predictor: the model and its options.
        rows: the same ones in every process.
        output: a `.jsonl` or `.parquet` file, written at the end; until then the parts are in `OUTPUT.parts`.
        options: what else the output depends on.
        progress: called with the number of texts of each window that is done.
        predict: what predicts windows, in any order.

    Raises:
        UserError: the file exists, its parts belong to another model, other options or other texts, or one was damaged
            after it was written.
    """
    processes = Processes.of_environment()
    folder = parts_of(output)
    if output.exists() and processes.index > 0:  # the main process had nothing left to do
        return
    with _begun(output, folder, json.loads(json.dumps({**predictor.options, **options})), processes.index == 0):
        keys = []
        written = _parts(folder, output.suffix)
        numbers = {key.split("-")[0] for key in written}

        def missing() -> Iterator[tuple[Path, Window]]:
            """The parts of this process that are not written."""
            for number, window in enumerate(windows(rows, predictor)):
                content = hashlib.blake2b(repr(window).encode(), digest_size=8).hexdigest()
                keys.append(f"{number:08}-{content}")
                # Without a part there is only an output if the main process has joined all parts.
                if number % processes.count == processes.index and not output.exists():
                    if f"{number:08}" in numbers and keys[-1] not in written:
                        raise UserError(
                            f"{folder} has predictions of other texts: the input has changed. Delete the folder, or "
                            "name another --output_file."
                        )
                    if keys[-1] not in written or not _is_whole(written[keys[-1]]):
                        yield folder / keys[-1], window
                        continue
                progress(len(window))

        for part, predicted in predict(predictor, missing()):
            _write_part(part, [as_row(*row) for row in predicted], predictor, output.suffix)
            progress(len(predicted))
        if processes.index == 0:
            if not keys:
                raise UserError("There is no text in the input: name a file with texts.")
            while not output.exists():
                parts = _parts(folder, output.suffix)
                if all(key in parts for key in keys):
                    _join([parts[key] for key in keys], output, folder)
                else:  # those of the other processes; where one fails, the launcher ends this one
                    time.sleep(0.1)
            shutil.rmtree(folder)


def parts_of(output: Path) -> Path:
    """The folder of the parts of a file that is not yet whole."""
    return output.with_name(f"{output.name}.parts")


@contextmanager
def _begun(output: Path, folder: Path, options: dict[str, Any], is_main: bool) -> Iterator[None]:
    """Make the folder of the parts, or check that it is of the same run; after an error it stays only with parts."""
    if output.suffix not in FORMATS:
        raise UserError(f"--output_file {output} ends in {output.suffix!r}: write .jsonl or .parquet.")
    if output.exists() and not folder.exists():
        raise UserError(f"{output} exists, and nothing is overwritten: delete it, or name another --output_file.")
    with no_empty_folder(output.parent):
        folder.mkdir(exist_ok=True)
        path = folder / "options.json"
        if path.is_file():
            before = json.loads(path.read_text(encoding="utf-8"))
            changed = [name for name in options if before.get(name) != options[name]]
            if changed:
                was, now = ({name: values.get(name) for name in changed} for values in (before, options))
                raise UserError(
                    f"{folder} belongs to a run with {was}, this one has {now}. Delete the folder, or name another "
                    "--output_file."
                )
        else:
            with _whole(path) as temporary:
                temporary.write_text(json.dumps(options, ensure_ascii=False, indent=2), encoding="utf-8")
        try:
            yield
        except BaseException:
            if is_main and {each.name for each in folder.iterdir()} <= {path.name}:
                shutil.rmtree(folder)
            raise


@contextmanager
def _whole(path: Path, folder: Path | None = None) -> Iterator[Path]:
    """A temporary path, beside `path` or in a folder, that becomes `path` at the end: a file is whole or absent."""
    temporary = (folder or path.parent) / f"{path.name}.{os.getpid()}.tmp"
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _parts(folder: Path, suffix: str) -> dict[str, Path]:
    """The parts in a folder by the number of their window and the hash of its texts."""
    return {path.name.rsplit("-", 2)[0]: path for path in folder.glob(f"*-*-*-*{suffix}")}


def _write_part(path: Path, rows: list[dict[str, Any]], predictor: Predictor, suffix: str) -> None:
    """Write a part, with the number of its rows and the hash of its content in its name."""
    stream = io.BytesIO()
    if suffix == ".parquet":
        write_table(pa.Table.from_pylist(rows, _schema(rows[0], predictor)), stream)
    else:
        stream.writelines((as_json(row) + "\n").encode() for row in rows)
    content = stream.getvalue()
    with _whole(path.with_name(f"{path.name}-{len(rows)}-{_hash(content)}{suffix}")) as temporary:
        temporary.write_bytes(content)


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _is_whole(part: Path) -> bool:
    """Whether a part is as it was written; another is deleted. A power cut can leave the beginning of a file."""
    *_, rows, expected = part.stem.split("-")
    content = part.read_bytes()
    if _hash(content) == expected:
        count = content.count(b"\n") if part.suffix == ".jsonl" else ParquetFile(part).metadata.num_rows
        if count == int(rows):
            return True
    logger.warning(f"{part} is not as it was written, and is deleted: its {rows} texts are predicted again.")
    part.unlink()
    return False


def _schema(row: dict[str, Any], predictor: Predictor) -> pa.Schema:
    columns = {name: pa.int64() if name == "index" else pa.string() for name in row}
    fields = [(name, pa.type_for_alias(kind)) for name, kind in predictor.fields.items()]
    return pa.schema({**columns, "found": pa.list_(pa.struct(fields))})


def _join(parts: Sequence[Path], output: Path, folder: Path) -> None:
    """
    Raises:
        UserError: a part is not as it was written.
    """
    damaged = [part for part in parts if not _is_whole(part)]
    if damaged:
        raise UserError(
            f"{len(damaged)} of {len(parts)} parts in {folder} were damaged: repeat the command, which predicts their "
            "texts again."
        )
    with _whole(output, folder) as temporary:  # a killed process leaves nothing beside the output
        if output.suffix == ".parquet":
            with ParquetWriter(temporary, ParquetFile(parts[0]).schema_arrow) as writer:
                for part in parts:
                    writer.write_table(ParquetFile(part).read())
        else:
            with open(temporary, "wb") as file:
                for part in parts:
                    with open(part, "rb") as content:
                        shutil.copyfileobj(content, file, 1 << 20)
