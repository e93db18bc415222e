"""Read the texts with labels of fastText, "__label__pos __label__short a fine film"."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..detect import DataFile, Head
from ..files import Options, copied_rows


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_LABEL = "__label__"


def recognise(head: Head, options: Options) -> bool | None:
    """Whether the first line and most lines of the beginning have a label."""
    if not head.content.removeprefix(b"\xef\xbb\xbf").startswith(_LABEL.encode()):
        return None
    first = [line for line in head.lines if line.strip()]
    return sum(line.startswith(_LABEL) for line in first) > len(first) / 2 or None


def read(file: DataFile) -> Dataset:
    """The texts and their labels: one per text, or lists where a text has none or several."""
    import pyarrow

    several = any(len(labels) != 1 for _, labels in filter(any, _rows(file.head)))
    cells = ((text, labels if several else labels[0]) for text, labels in filter(any, _rows(file.head)))
    string = pyarrow.string()
    types = {"text": string, "label": pyarrow.list_(string) if several else string}
    rows = copied_rows(file.path, file.options, types, cells)
    kind = "lists of labels" if several else "a label each"
    logger.info("%s is fastText's: %d texts with %s", file.path, len(rows), kind)
    return rows


def texts(file: DataFile) -> Iterator[str]:
    """The texts of a file, without their labels."""
    return (text for text, _ in _rows(file.head))


def _rows(head: Head) -> Iterator[tuple[str, list[str]]]:
    """The text and the labels of each line."""
    with head.open() as lines:
        for line in lines:
            labels = [word.removeprefix(_LABEL) for word in line.split() if word.startswith(_LABEL)]
            yield re.sub(rf"(?<!\S){_LABEL}\S+\s*", "", line).strip(), labels
