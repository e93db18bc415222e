"""Read CoNLL files: one token per line with its tags, and an empty line after each sentence."""

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from datasets import Dataset, Features, List, Value

from ..errors import UserError
from ..models.crf import entity_tag
from .caching import source_version
from .files import FORMATS, ending_of, no_rows, open_text, reading


_CONLL_COLUMNS = {
    1: ["tokens"],
    2: ["tokens", "tags"],
    4: ["tokens", "pos_tags", "chunk_tags", "ner_tags"],  # CoNLL-2003
}
_CONLLU_COLUMNS = {1: "tokens", 3: "pos_tags", 4: "xpos_tags"}  # of ID FORM LEMMA UPOS XPOS ...
_TAGGER_COLUMNS = {"_", "tokens", "words", "token", "form", "tags", "upos"}
_CONLL_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
_LINES_CHECKED = 1000


def read_conll(path: Path, cache_dir: str | None, column_names: Sequence[str] | None) -> Dataset:
    """One token per line, columns separated by tabs or blanks, and an empty line after each sentence."""
    state, options = path.stat(), _conll_options(path, column_names)
    # datasets finds the cache by the arguments: the code and the state of the file are among them.
    version = source_version(__name__, open_text.__module__)
    cached_by = {"version": version, "size": state.st_size, "time": state.st_mtime_ns}
    features = Features({name: List(Value("string")) for name in options["columns"].values()})
    return cast(Dataset, Dataset.from_generator(_conll_rows, features, cache_dir, gen_kwargs={**options, **cached_by}))


def stream_conll(path: Path, column_names: Sequence[str] | None = None) -> Iterator[dict[str, list[str]]]:
    """The sentences that `read_conll` reads, one after the other and without a cache."""
    yield from _conll_rows(**_conll_options(path, column_names))


def _conll_options(path: Path, column_names: Sequence[str] | None) -> dict[str, Any]:
    """The arguments of `_conll_rows`: the file, its columns, its first token line, and whether it is CoNLL-U."""
    line = _first_token_line(path)
    first = _cells(line, "\t" in line)
    is_conllu = len(first) == 10 and line[0].isdigit()
    columns = _CONLLU_COLUMNS if is_conllu else dict(enumerate(_default_names(len(first))))
    if column_names:
        columns = {place: name for place, name in enumerate(column_names) if name != "_"}
        if len(column_names) != len(first) or not columns or len(set(columns.values())) < len(columns):
            raise UserError(
                f"{path} has {len(first)} columns and --column_names is {','.join(column_names)}. Write one distinct "
                "name per column, or _ to skip it: `--column_names _,tokens,ner_tags`"
            )
    return {"path": path, "columns": columns, "first": line, "is_conllu": is_conllu}


def _conll_rows(
    path: Path, columns: dict[int, str], first: str, is_conllu: bool, **_: Any
) -> Iterator[dict[str, list[str]]]:
    """The sentences of a file. CoNLL-U has lines for ranges ("3-4") and empty nodes ("5.1"), which are skipped."""
    for sentence in _conll_sentences(path, first):
        rows = [cells for cells in sentence if cells[0].isdigit()] if is_conllu else sentence
        yield {name: [cells[place] for cells in rows] for place, name in columns.items()}


def _conll_sentences(path: Path, first: str) -> Iterator[list[list[str]]]:
    """The cells of each line of each sentence, in the form of the first line with a token."""
    tabbed = "\t" in first
    width = len(_cells(first, tabbed))
    has_entities = entity_tag(_cells(first, tabbed)[-1]) is not None
    sentence: list[list[str]] = []
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            line = line.strip("\r\n")
            # An ideographic space alone can be a token of a file without tags.
            if not line.strip(None if width > 1 else " \t") or line.startswith("-DOCSTART-"):
                if sentence:
                    yield sentence
                sentence = []
                continue
            cells = _cells(line, tabbed)
            if len(cells) == width - 1 and line.startswith("  "):  # the token is a blank
                cells = [" ", *cells]
            # Within a sentence "#" is a token, and before it if a tag follows.
            if not sentence and line.startswith("#"):
                is_tagged = cells[0] != "#" or not has_entities or cells[-1] == "-100" or entity_tag(cells[-1])
                if len(cells) != width or _CONLL_COMMENT.match(line) or not is_tagged:
                    continue
            if len(cells) != width or not cells[0] or not cells[-1]:
                raise UserError(
                    f"{path}, line {number} is {line[:80]!r}, but the first line has {width} columns. "
                    "Write one token per line with all columns, and an empty line after each sentence."
                )
            sentence.append(cells)
    if sentence:
        yield sentence


def conll_width(path: str | Path) -> int | None:
    """The number of columns of a CoNLL file; `None` for other formats."""
    ending = ending_of(Path(path))
    if FORMATS.get(ending) != "conll" or ending == ".txt":
        return None
    line = _first_token_line(Path(path))
    return len(_cells(line, "\t" in line))


def _first_token_line(path: Path) -> str:
    with reading(path), open_text(path) as lines:
        for line in lines:
            if line.strip(" \t\r\n") and not line.startswith(("#", "-DOCSTART-")):
                return line.strip("\r\n")
    raise no_rows(path)


def _default_names(width: int) -> list[str]:
    return _CONLL_COLUMNS.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def _cells(line: str, tabbed: bool) -> list[str]:
    # Not str.split(): a no-break or ideographic space can be a token.
    return line.split("\t") if tabbed else re.split(r"[ \t]+", line.strip(" \t"))


def _first_lines(path: Path) -> list[str]:
    with reading(path), open_text(path) as lines:
        return [line.strip(" \r\n") for line in itertools.islice(lines, _LINES_CHECKED)]


def has_sentences(path: Path, column_names: Sequence[str]) -> bool:
    """Whether a `.tsv` or `.txt` file is CoNLL: a tagger's column names, and empty lines between sentences."""
    if not any(name in _TAGGER_COLUMNS or name.endswith("_tags") for name in column_names):
        return False
    return "\n\n" in "\n".join(_first_lines(path)).strip()


def has_tags(path: Path) -> bool:
    """Whether a `.txt` file without column names is CoNLL: each line ends in the tag of an entity or in O."""
    rows = [line.split() for line in _first_lines(path) if not line.startswith("-DOCSTART-")]
    tokens = [row for row in rows if row]
    tagged = {len(row) for row in tokens if len(row) > 1 and entity_tag(row[-1])} == {len(row) for row in tokens}
    return bool(tokens) and tagged and len({len(row) for row in tokens}) == 1 and has_sentences(path, ["tokens"])


def fits_columns(path: str | Path, column_names: Sequence[str]) -> bool:
    """Whether a `.txt` file has these columns: cells separated by tabs, or one token per line."""
    lines = [line for line in _first_lines(Path(path)) if line.strip()]
    tabbed = len(column_names) > 1 and all(line.count("\t") == len(column_names) - 1 for line in lines)
    return bool(lines) and (tabbed or has_sentences(Path(path), column_names))
