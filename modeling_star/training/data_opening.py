"""How a data file is opened and becomes rows, and what its errors are: shared by the readers of each format."""

import glob
import gzip
import re
import shlex
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from datasets import Dataset, Features, load_dataset
from datasets.exceptions import DatasetGenerationError

from .caching import source_version


_BYTES_TO_TELL = 1 << 16
_SIDE_BY_SIDE = re.compile(rb"[\x80-\xFF]{2,}")
BROKEN_GZIP = (gzip.BadGzipFile, EOFError, zlib.error)


class DataError(ValueError):
    """The data cannot be used as asked: the message says what was given, what is allowed and what to write."""


class DataFileError(DataError, FileNotFoundError):
    """A file or data set is absent, empty or out of reach."""


@contextmanager
def naming(path: Path, kind: str) -> Iterator[None]:
    """Within it whatever a reader raises becomes a DataError that names the file."""
    try:
        yield
    except DataError:
        raise
    except BROKEN_GZIP as error:
        raise DataError(f"{path} is a broken or incomplete gzip file ({error}). Write it again.") from error
    except UnicodeDecodeError as error:
        packed = path.suffix.lower() == ".gz"
        here, there = shlex.quote(str(path)), shlex.quote(f"{path.stem}_utf8{path.suffix}")
        with open(path, "rb") as file:
            encoding = likely_encoding(file.read(_BYTES_TO_TELL))
        convert = f", or convert it: iconv -f {encoding} -t UTF-8 {here} > {there}"
        advice = f"Save it as UTF-8{'' if packed else convert}."
        raise DataError(f"{path} is not UTF-8 text ({error}). {advice}") from error
    except Exception as error:
        # datasets wraps the reader's own words, which name the line, one level down.
        reason = str(error.__cause__ or error).strip() or type(error).__name__
        if "corresponds to no data" in reason:
            raise no_rows(path) from error
        raise DataError(f"{path} could not be read as {kind}: {reason}") from error


def likely_encoding(content: bytes) -> str:
    """
    What iconv may call the encoding of a text that is not UTF-8: UTF-16 by its first bytes, GB18030 where nearly all
    bytes beyond ASCII stand side by side, as those of Chinese do, else CP1252, which is Latin-1 with the quotes,
    dashes and the euro that Windows writes.
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "UTF-16"
    high = sum(byte > 0x7F for byte in content)
    return "GB18030" if sum(map(len, _SIDE_BY_SIDE.findall(content))) > 0.9 * high else "CP1252"


def no_rows(path: Path) -> DataFileError:
    """The error of a file without rows."""
    return DataFileError(f"{path} holds no rows. Write at least one, or leave this file out of the arguments.")


def open_text(path: Path) -> IO[str]:
    """A text file, unpacked where its first two bytes say gzip (whatever its name says)."""
    if is_packed(path):
        return cast(IO[str], gzip.open(path, "rt", encoding="utf-8-sig", newline=None))
    return open(path, encoding="utf-8-sig", newline=None)


def is_packed(path: Path) -> bool:
    """Whether a file is one of gzip, whatever its name says."""
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def load_rows(builder: str, path: Path, cache_dir: str | None, **kwargs: Any) -> Dataset:
    """What a builder of `datasets` makes of one file."""
    # data_files are patterns: a "[" in a folder's name must not be read as one.
    files = {"train": glob.escape(str(path.resolve()))}
    return cast(Dataset, load_dataset(builder, data_files=files, split="train", cache_dir=cache_dir, **kwargs))


def generated(
    rows: Callable[..., Iterator[dict[str, Any]]],
    path: Path,
    features: Features,
    cache_dir: str | None,
    **options: Any,
) -> Dataset:
    """What `rows(path, **options)` yields, written to the cache one after the other and never held as a whole."""
    file = path.resolve()
    state = file.stat()
    # The cache is found by the arguments alone.
    told = (state.st_size, state.st_mtime_ns, source_version(__name__, rows.__module__))
    try:
        return Dataset.from_generator(
            _Generator(rows, told), features=features, cache_dir=cache_dir, gen_kwargs={"path": str(path), **options}
        )
    except DatasetGenerationError as error:
        raise (error.__cause__ or error) from None


@dataclass(frozen=True)
class _Generator:
    """A generator of rows, and what its rows depend on beside its arguments."""

    rows: Callable[..., Iterator[dict[str, Any]]]
    told: tuple[int, int, str]

    def __call__(self, **options: Any) -> Iterator[dict[str, Any]]:
        return self.rows(**options)


__all__ = [
    "BROKEN_GZIP",
    "DataError",
    "DataFileError",
    "generated",
    "is_packed",
    "load_rows",
    "naming",
    "no_rows",
    "open_text",
]
