"""CoNLL: a word a line with its columns, and an empty line after each sentence."""

import itertools
import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from datasets import Dataset, Features, List, Value

from ..crf import entity_tag
from .data_opening import DataError, generated, naming, no_rows, open_text


logger = logging.getLogger(__name__)

_CONLL_COLUMNS = {
    1: ["tokens"],
    2: ["tokens", "tags"],
    4: ["tokens", "pos_tags", "chunk_tags", "ner_tags"],  # CoNLL-2003
}
# Of ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC.
_CONLLU_COLUMNS = {1: "tokens", 3: "pos_tags", 4: "xpos_tags"}
# "#newparents" and "#id" are words of tweets.
_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
# Names of columns that a tagger alone has ("_" is one to leave out), and the lines that tell whether a file is CoNLL.
_OF_TAGGERS = {
    "_",
    "tokens",
    "words",
    "token",
    "form",
    "tags",
    "ner_tags",
    "pos_tags",
    "chunk_tags",
    "xpos_tags",
    "upos",
}
_LINES_TO_TELL = 1000


def has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """
    Whether a file whose ending is not CoNLL's is CoNLL: its columns are called as those of a tagger, each line has as
    many cells without blanks, and empty lines stand between sentences. Chinese texts have no blanks either: a table
    is told by its names.
    """
    if not _OF_TAGGERS & set(column_names):
        return False
    with naming(path, "text"), open_text(path) as lines:
        begun = [line.strip("\r\n") for line in itertools.islice(lines, _LINES_TO_TELL)]
    tabbed = any("\t" in line for line in begun)
    rows = [_cells(line, tabbed) if line.strip(" \t") and not _is_docstart(line) else None for line in begun]
    rows = [row for row in rows if row is None or len(row) == len(column_names) or not row[0].startswith("#")]
    full = [row for row in rows if row is not None]
    words = all(len(row) == len(column_names) and not any(" " in cell for cell in row) for row in full)
    sentences = "".join(" " if row is None else "x" for row in rows).split()
    return words and len(sentences) > 1 and max(map(len, sentences)) > 1


def has_tags(path: Path) -> bool:
    """Whether a file whose ending is not CoNLL's is CoNLL without a doubt: each line ends in O or in a tag of one."""
    with naming(path, "text"), open_text(path) as lines:
        rows = [line.split() for line in itertools.islice(lines, _LINES_TO_TELL) if line.strip()]
    rows = [row for row in rows if not _is_docstart(row[0])]
    tagged = all(len(row) > 1 and entity_tag(row[-1]) for row in rows)
    return bool(rows) and tagged and has_sentences(path, _default_names(width_of(path)))


def width_of(path: Path) -> int:
    """
    How many columns a CoNLL file has.

    Raises:
        DataFileError: it has no line of them.
    """
    first = _first_line(path)
    return len(_cells(first, "\t" in first))


def read_conll(path: Path, cache_dir: str | None, column_names: Sequence[str] | None = None) -> Dataset:
    """
    Columns separated by tabs or blanks, one token a line, an empty line after each sentence.

    Args:
        path: the file.
        cache_dir: where `datasets` keeps its copy.
        column_names: a name for each column, "_" for one to leave out; None: what their number tells.

    Raises:
        DataError: the names are of another number, none is left, or one stands there twice.
    """
    first = _first_line(path)
    tabbed, width = "\t" in first, width_of(path)
    columns = dict(enumerate(_default_names(width)))
    conllu = width == 10 and first[0].isdigit()
    if conllu:
        columns = _CONLLU_COLUMNS
    if column_names:
        if len(column_names) != width:
            raise DataError(
                f"{path} has {width} columns ({first.strip()[:60]!r}), but --column_names names {len(column_names)}: "
                "name each, and write _ for one to leave out, e.g. `--column_names _,tokens,ner_tags`"
            )
        columns = {place: name for place, name in enumerate(column_names) if name != "_"}
        if not columns or len(set(columns.values())) < len(columns):
            raise DataError(
                f"--column_names {','.join(column_names)} names no column, or one twice: write a name for each that "
                "is read, e.g. `--column_names _,tokens,ner_tags`"
            )
    features = Features({name: List(Value("string")) for name in columns.values()})
    options = {"tabbed": tabbed, "width": width, "places": tuple(columns), "names": tuple(columns.values())}
    return generated(_conll_rows, path, features, cache_dir, **options, conllu=conllu)


def _first_line(path: Path) -> str:
    with open_text(path) as lines:
        found = (line for line in lines if line.strip(" \t\r\n") and line[0] != "#" and not _is_docstart(line))
        first = next(found, None)
    if first is None:
        raise no_rows(path)
    return first.strip("\r\n")


def _default_names(width: int) -> list[str]:
    return _CONLL_COLUMNS.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def _conll_rows(
    path: str, tabbed: bool, width: int, places: tuple[int, ...], names: tuple[str, ...], conllu: bool
) -> Iterator[dict[str, list[str]]]:
    """The sentences, each with the columns that stand at some places of a line."""
    for sentence in _conll_sentences(Path(path), tabbed, width):
        if conllu:  # "3-4" is a spelling of two words that follow, "5.1" a word that nobody wrote: neither is a token
            sentence = [cells for cells in sentence if cells[0].isdigit()]
        yield {name: [cells[place] for cells in sentence] for place, name in zip(places, names, strict=True)}


def _conll_sentences(path: Path, tabbed: bool, width: int) -> Iterator[list[list[str]]]:
    """The cells of each line of each sentence."""
    sentence: list[list[str]] = []
    first_number: int | None = None
    of_entities: bool | None = None
    remarks: list[tuple[int, str]] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            # An ideographic space is no empty line where it has a tag, or the line could be a token alone.
            if not line.strip(None if width > 1 else " \t") or _is_docstart(line):
                if sentence:
                    yield sentence
                    sentence = []
                continue
            cells = _cells(line, tabbed)
            if len(cells) == width - 1 and line.startswith("  "):  # a blank, a blank and its tag
                cells = [" ", *cells]
            if not sentence and line.startswith("#") and (_COMMENT.match(line) or len(cells) != width):
                continue
            if not sentence and width == 2 and len(cells) == 2 and cells[0] == "#" and not entity_tag(cells[1]):
                if of_entities is None:
                    of_entities = _tags_entities(path, tabbed)
                if of_entities:
                    remarks.append((number, line))
                    continue
            first_number = first_number or number
            if len(cells) != width or not cells[0]:
                raise DataError(
                    f"{path}, line {number} has {len(cells)} columns, but line {first_number} has {width}: "
                    f"{line[:80]!r}. A CoNLL file has one token a line with the same columns everywhere and an empty "
                    "line between sentences. Texts to classify go in a .jsonl or .csv file with a column 'text'."
                )
            if not cells[-1]:
                told = f"{path}, line {number} ends in a tab, with no tag after it: {line[:80]!r}."
                raise DataError(f"{told} Write one, O for none.")
            sentence.append(cells)
    if remarks:
        number, line = remarks[0]
        logger.warning("%s: %d lines are read as comments, first line %d: %r", path, len(remarks), number, line[:80])
    if sentence:
        yield sentence


def _tags_entities(path: Path, tabbed: bool) -> bool:
    """Whether a file of two columns tags entities, so that "# word" ahead of a sentence tags nothing."""
    with open_text(path) as lines:
        rows = (_cells(line.strip("\r\n"), tabbed) for line in lines if line.strip() and not _is_docstart(line))
        return all(entity_tag(cells[-1]) for cells in rows if cells[0] != "#")


def _is_docstart(line: str) -> bool:
    return line.startswith("-DOCSTART-")


def _cells(line: str, tabbed: bool) -> list[str]:
    # Not str.split(): a no-break or ideographic space may be the token itself.
    return line.split("\t") if tabbed else re.split(r"[ \t]+", line.strip(" \t"))


__all__ = ["has_sentences", "has_tags", "read_conll", "width_of"]
