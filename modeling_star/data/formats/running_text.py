"""Read running text: a document per line, paragraph or file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..detect import DataFile, Head
from ..files import Options, copied_rows
from .conll import has_sentences


if TYPE_CHECKING:
    from datasets import Dataset


_BLOCK = 10 << 20  # characters that are held at a time


def recognise(head: Head, options: Options) -> str | None:
    """What a document is, where the user names it or expects texts."""
    return options.sample_by or ("line" if options.as_texts else None)


def read(file: DataFile) -> Dataset:
    """All documents of a file, in the column "text"."""
    import pyarrow

    rows = ((text,) for text in texts(file))
    return copied_rows(file.path, file.options, {"text": pyarrow.string()}, rows)


def stream(file: DataFile) -> Iterator[dict[str, str]]:
    """The documents of a file."""
    yield from ({"text": text} for text in texts(file))


def texts(file: DataFile) -> Iterator[str]:
    """The documents, divided as `datasets` does."""
    return _texts(file.head, file.found)


def has_columns(file: DataFile, column_names: Sequence[str]) -> bool:
    """Whether each line of a `.txt` file has as many cells as there are names, or a word of a sentence."""
    lines = [line for line in file.head.lines if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or has_sentences(file.head, column_names))


def _texts(head: Head, sample_by: str) -> Iterator[str]:
    with head.open() as file:
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
            while block := file.read(_BLOCK):
                first, *others = (line_end + block).split("\n\n")
                parts.append(first)
                if others:
                    yield "".join(parts)
                    yield from others[:-1]
                    parts = [others[-1]]
                line_end = "\n" if parts[-1].endswith("\n") else ""
                parts[-1] = parts[-1].removesuffix("\n")
            yield "".join([*parts, line_end])
