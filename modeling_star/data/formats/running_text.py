"""Read running text: a document per line, paragraph or file."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow
from datasets import Dataset

from ..files import Options, copied_rows, open_text


_BLOCK = 10 << 20  # characters that are held at a time


def read(path: Path, options: Options) -> Dataset:
    """All documents of a file, in the column "text"."""
    rows = ((text,) for text in _texts(path, options.sample_by))
    return copied_rows(path, options, {"text": pyarrow.string()}, rows)


def stream(path: Path, options: Options) -> Iterator[dict[str, str]]:
    """The documents of a file."""
    yield from ({"text": text} for text in _texts(path, options.sample_by))


def _texts(path: Path, sample_by: str | None) -> Iterator[str]:
    """The documents, divided as `datasets` does."""
    with open_text(path) as file:
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
