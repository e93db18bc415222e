"""
Word vectors from text files.

Axes: V vocabulary entries  w width of a vector
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from .files import open_text


def _read_lines(path: Path, width: int | None) -> Iterator[tuple[str, list[str]]]:
    """The word and the number fields of each line but a header (`count width`); one of another width is an error."""
    for number, line in enumerate(_whole_lines(path), start=1):
        if number == 1 and "\0" in line:  # in the spaces of UTF-16 and UTF-32
            raise ValueError(f"{path} is not UTF-8 text. If it is UTF-16: `iconv -f UTF-16 -t UTF-8 {path}`")
        parts = line.rstrip().split("\t" if "\t" in line else " ")
        if parts == [""]:
            continue
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            width = width or int(parts[1]) or None
            continue
        if width is None:
            width = max(len(parts) - 1, 1)
        # GloVe 840B has words with spaces in them: the last `width` parts are the vector.
        if len(parts) <= width or (len(parts) > width + 1 and _is_number(parts[-width - 1])):
            raise ValueError(
                f"{path}, line {number}: a word and {width} numbers are needed: {line.strip()[:60]!r}. Fix this "
                "line; if the whole file has another width, give embedding_size."
            )
        yield " ".join(parts[:-width]), parts[-width:]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def words_of_vectors(path: str | Path) -> Iterator[str]:
    """The words of a vectors file in their order; arguments and errors as in `read_vectors`."""
    return (word for word, _ in _read_lines(Path(path), None))


def _whole_lines(path: Path) -> Iterator[str]:
    """The lines of a file, with an error that names it if its gzip is broken."""
    try:
        # Published files hold a few words in other encodings, which no vocabulary has.
        with open_text(path, errors="replace") as file:
            yield from file
    except (EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is not a whole gzip file: {error}.") from error


def read_vectors(path: str | Path, vocabulary: dict[str, int], width: int | None = None) -> tuple[Tensor, Tensor]:
    """
    The vectors of a vocabulary from a GloVe or word2vec text file: a table `[V, w]` in float32, V being the largest id
    + 1, and which rows have one `[V]`. An entry that the file lacks takes the vector of its lower-cased form, or
    zeros. A ValueError where the file is broken, empty, or not `width` wide.
    """
    path = Path(path)
    lowered: dict[str, list[int]] = {}
    for word, index in vocabulary.items():
        lowered.setdefault(word.lower(), []).append(index)
    size = max(vocabulary.values(), default=-1) + 1
    exact, has_vector = torch.zeros(size, dtype=torch.bool), torch.zeros(size, dtype=torch.bool)
    table = None
    for word, numbers in _read_lines(path, width):
        if table is None:
            table = torch.zeros(size, len(numbers))
        exact_row = vocabulary.get(word)
        rows = [index for index in lowered.get(word, ()) if not exact[index]]
        rows = rows if exact_row is None else [exact_row, *rows]
        if rows:
            try:
                vector = torch.tensor([float(number) for number in numbers])
            except ValueError as error:
                raise ValueError(f"{path}: the vector of {word!r} is not numeric: {error}.") from error
            if not vector.isfinite().all():
                raise ValueError(f"{path}: the vector of {word!r} is not finite. Fix or remove its line.")
            table[rows] = vector
            has_vector[rows] = True
        if exact_row is not None:
            exact[exact_row] = True
    if table is None:
        raise ValueError(f"{path} has no vectors: one word per line, followed by its numbers, is needed.")
    return table, has_vector
