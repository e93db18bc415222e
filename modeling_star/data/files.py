"""Open data files of every format, with errors that name the file, and keep their rows in the cache of `datasets`."""

from __future__ import annotations

import bz2
import difflib
import glob
import gzip
import importlib
import inspect
import io
import itertools
import os
import shlex
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, cast

from ..errors import UserError, is_bug
from .encodings import is_wide, not_utf8


# Prediction from csv, tsv and jsonl needs neither: they are imported where they are used.
if TYPE_CHECKING:
    import pyarrow
    from datasets import Dataset


SampleBy = Literal["line", "paragraph", "file"]
"""One document of a `.txt` file with running text; an empty line ends a paragraph."""

_LISTS_AT_ONCE = 600  # rows and cells: more start Python's search for cycles, which takes longer than the reading
_UNPACK = {".gz": "gzip -dc", ".bz2": "bzip2 -dc", ".zst": "zstd -dc"}


class Options(NamedTuple):
    """
    What a user says about a file.

    Attributes:
        column_names: the columns of a csv, tsv or `.txt` table without a header line, or of a CoNLL file, where "_"
            skips a column. `None`: named by the first line, or by the number of CoNLL columns.
        sample_by: read `.txt` files as running text with one row per line, paragraph or file; `None`: as CoNLL.
        with_spans: read files with labelled spans of characters as words and tags; see `formats.spans`.
        as_rows: read rows with columns, also from an annotation tool.
        as_texts: a text per line is expected where a file has no columns, as in prediction.
    """

    column_names: Sequence[str] | None = None
    sample_by: SampleBy | None = None
    with_spans: bool = True
    as_rows: bool = False
    as_texts: bool = False


def ending_of(path: Path) -> str:
    """The ending of a file, before that of its packing."""
    name = path.name.lower()
    return Path(name.removesuffix(Path(name).suffix) if name.endswith(tuple(_UNPACK)) else name).suffix


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise any error in this context but those of this package's code as a `UserError` that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ or error  # datasets wraps the errors of its readers
        if isinstance(cause, UserError):
            raise cause from None
        if is_bug(cause):
            raise
        if "corresponds to no data" in str(cause):
            raise no_rows(path) from None
        if isinstance(cause, UnicodeError):
            raise wrong_encoding(path) from error
        if isinstance(cause, (gzip.BadGzipFile, EOFError, zlib.error)):
            raise UserError(f"{path} is a broken or incomplete gzip file ({cause}). Write it again.") from error
        raise UserError(f"{path} could not be read: {cause}") from error


def open_text(path: Path, newline: str | None = None, errors: str = "strict") -> IO[str]:
    """Open a UTF-8 text file, packed or not; UTF-16 and UTF-32, which can be UTF-8 with zeros, are errors."""
    content = open_bytes(path)
    if is_wide(content.peek(1 << 10)[: 1 << 10]):
        content.close()
        raise wrong_encoding(path)
    return io.TextIOWrapper(content, encoding="utf-8-sig", newline=newline, errors=errors)


def open_bytes(path: Path) -> Any:
    """Open a file, unpacked if its first bytes are those of gzip, bzip2 or Zstandard; it has `peek`."""
    file = open(path, "rb")  # noqa: SIM115 (the caller closes it)
    start = file.peek(4)[:4]
    if not start.startswith((b"\x1f\x8b", b"BZh", b"\x28\xb5\x2f\xfd")):
        return file
    file.close()
    if start.startswith(b"\x1f\x8b"):
        return gzip.open(path)
    if start.startswith(b"BZh"):
        return bz2.open(path)
    import pyarrow

    return io.BufferedReader(pyarrow.input_stream(str(path), compression="zstd"))


def wrong_encoding(path: Path) -> UserError:
    """The error of a file in another encoding, with the line that converts it."""
    unpack = _UNPACK.get(path.suffix)
    name, given = Path(path.stem) if unpack else path, shlex.quote(str(path))
    written = shlex.quote(f"{name.stem}_utf8{name.suffix}")

    def convert(iconv: str) -> str:
        return f"{unpack} {given} | {iconv} > {written}" if unpack else f"{iconv} {given} > {written}"

    with open_bytes(path) as lines:
        return not_utf8(str(path), lines, convert)


def no_rows(path: Path) -> UserError:
    """The error of a file without a row."""
    return UserError(
        f"{path} is empty, or has only a header, comments or blank rows. Write at least one row, or omit the file."
    )


def missing_file(path: Path) -> str:
    """Sentences that a file is not there, with the file of the folder that has the nearest name."""
    folder = path.parent
    names = [each.name for each in folder.iterdir()] if folder.is_dir() else []
    # With their endings, all csv files would be alike.
    alike = difflib.get_close_matches(path.stem, [Path(name).stem for name in names], n=1)
    close = difflib.get_close_matches(path.name, [name for name in names if Path(name).stem in alike], n=1, cutoff=0)
    return f"There is no file {path}." + (f" Did you mean {folder / close[0]}?" if close else "")


# ------ The cache of `datasets`


@cache
def source_version(*modules: str) -> str:
    """A hash of the source of modules, for a field of an object by whose fields `datasets` caches results."""
    version = blake2b(digest_size=8)
    for name in modules:
        version.update(inspect.getsource(importlib.import_module(name)).encode())
    return version.hexdigest()


@cache
def _readers_version() -> bytes:
    """A hash of this module, of `detect` and of the formats."""
    folder = Path(__file__).parent
    paths = [Path(__file__), folder / "detect.py", *sorted(folder.glob("formats/*.py"))]
    return blake2b(b"".join(path.read_bytes() for path in paths), digest_size=8).digest()


def cached_copy(path: Path, options: Options, ending: str, write: Callable[[Path], None]) -> Path:
    """
    A copy of a file in another format, in the folder of the cache; `write` is called only if there is none of this
    file with these options by this code.
    """
    from datasets import config

    state = path.stat()
    made_from = (str(path.resolve()), state.st_size, state.st_mtime_ns, _readers_version(), *options)
    folder = Path(config.HF_DATASETS_CACHE) / "modeling_star"
    copy = folder / (blake2b(repr(made_from).encode(), digest_size=16).hexdigest() + ending)
    if not copy.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            new = Path(temporary) / copy.name
            write(new)
            # datasets hashes the time, which is then the same in each of several processes that write a copy.
            os.utime(new, ns=(state.st_atime_ns, state.st_mtime_ns))
            new.replace(copy)
    return copy


def load_file(builder: str, path: Path, **options: Any) -> Dataset:
    """One file with a builder of `datasets`."""
    from datasets import load_dataset

    files = {"train": glob.escape(str(path.resolve()))}
    return cast("Dataset", load_dataset(builder, data_files=files, split="train", **options))


def copied_rows(
    path: Path, options: Options, types: Mapping[str, pyarrow.DataType], rows: Iterable[Sequence[Any]]
) -> Dataset:
    """Rows, cells in the order of `types`, as a Dataset of a copy in the cache, which is mapped into memory."""
    import pyarrow
    from datasets import Dataset

    def write(copy: Path) -> None:
        unread, schema = iter(rows), pyarrow.schema(list(types.items()))
        at_once = _LISTS_AT_ONCE // (1 + sum(map(pyarrow.types.is_list, types.values()))) or 1
        with pyarrow.OSFile(str(copy), "wb") as file, pyarrow.ipc.new_stream(file, schema) as stream:
            while batch := list(itertools.islice(unread, at_once)):
                cells = map(pyarrow.array, zip(*batch, strict=True), types.values())
                stream.write_batch(pyarrow.record_batch(list(cells), schema))

    return Dataset.from_file(str(cached_copy(path, options, ".arrow", write)))
