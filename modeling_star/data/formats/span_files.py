"""
Files of annotation tools with labelled spans of characters, recognised by their content.

Json files are in `span_json`: doccano, Prodigy, Label Studio, spaCy's pairs, CLUENER. Here are brat's folders, the
texts with `__label__` of fastText, and what to write for formats that are not read.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ..files import FORMATS, Options, copied_rows, ending_of, is_table, open_bytes, open_text, reading
from .span_json import (
    CLASSES_OF_TEXTS,
    JsonRows,
    has_text_column,
    read_json_spans,
    recognise_json,
    results_without_spans,
    stream_documents,
)
from .spans import Document, Span, SpanFile, as_rows, lines_of


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_LABEL = "__label__"
_LINES_CHECKED = 1000


def read(path: Path, options: Options, with_spans: bool) -> Dataset | None:
    """The rows of a file or folder with spans (unless `with_spans` is false) or of fastText; `None` for others."""
    if _is_fasttext(path):
        return _read_fasttext(path, options)
    read = reader_of(path)
    if read is not None and FORMATS.get(ending_of(path)) == "json" and (kinds := results_without_spans(path)):
        raise UserError(f"{path} has {kinds} of Label Studio's JSON, which are no spans. {CLASSES_OF_TEXTS}")
    if with_spans and read is not None:
        with reading(path):
            return as_rows(path, read(path))
    if read is not None and not _is_table(path):
        raise UserError(
            f"{path} has regions of texts, which a tagger reads: `modeling-star tag --train_file {path} --output_dir "
            f"outputs/tagger`. {CLASSES_OF_TEXTS}"
        )
    _refuse_other_formats(path)
    return None


def read_texts(path: Path, column: str | None = None) -> Iterator[str] | None:
    """The texts of a file with spans or of fastText, in its order; `None` for others, as tables with `column`."""
    is_json = FORMATS.get(ending_of(path)) == "json"
    if _is_fasttext(path):
        return (text for text, _ in _fasttext_rows(path))
    with reading(path):
        format = recognise_json(path) if is_json else None
        if format and (column in (None, getattr(format.parse, "text", None)) or not has_text_column(path, column)):
            logger.info("%s is %s", path, format.name)
            return (document.text for _, documents in stream_documents(path, format) for document in documents)
    read = None if is_json else reader_of(path)
    if read is None or (read is _read_brat and ending_of(path) == ".txt"):  # its lines are read as those of any text
        if is_table(path) or ending_of(path) in _OTHER_ENDINGS:
            _refuse_other_formats(path)
        return None
    with reading(path):
        file = read(path)
    logger.info("%s is %s: %d texts", path, file.format, len(file.documents))
    return (
        part.text for document in file.documents for part in (lines_of(document) if file.has_lines else [document])
    )


def reader_of(path: Path) -> Callable[[Path], SpanFile] | None:
    """The function that reads a file or folder with spans of characters."""
    if path.is_dir():
        return _read_brat if next(path.rglob("*.ann"), None) else None
    if not path.is_file():
        return None
    ending = ending_of(path)
    if ending == ".ann" or (ending == ".txt" and path.with_suffix(".ann").is_file()):
        return _read_brat
    if FORMATS.get(ending) != "json":
        return None
    with reading(path):
        found = recognise_json(path)
    return None if found is None else lambda path: read_json_spans(path, found)


def _is_table(path: Path) -> bool:
    """Whether a file with spans of characters can be read without them."""
    if FORMATS.get(ending_of(path)) == "json":
        with reading(path):
            return isinstance(recognise_json(path).parse, JsonRows)
    return ending_of(path) == ".txt"


# ------ brat: DOC.txt with DOC.ann, whose lines are "T1<tab>PER 0 4;10 14<tab>Mira Keil"


def _read_brat(path: Path) -> SpanFile:
    """A folder of texts with annotations, or one of them."""
    paths = sorted(path.rglob("*.ann")) if path.is_dir() else [path.with_suffix(".ann")]
    file = SpanFile("brat's standoff", [], has_lines=True)
    for spans_of in paths:
        text_path = spans_of.with_suffix(".txt")
        if not text_path.is_file():
            raise UserError(f"{spans_of} has no text beside it: {text_path.name}. Copy it there.")
        with reading(text_path), open_bytes(text_path) as content:
            text = content.read().decode("utf-8")  # with \r\n, which brat counts as two characters
        name = str(spans_of.relative_to(path)) if path.is_dir() else spans_of.name
        with reading(spans_of), open_text(spans_of) as lines:
            spans = [span for line in enumerate(lines, 1) for span in _brat_spans(spans_of, *line, text, file)]
        if "\r\n" in text and any(text[each.start : each.end] != each.surface for each in spans if each.surface):
            text = text.replace("\r\n", "\n")
        file.documents.append(Document(name, text, spans))
    if path.is_dir() and (
        count := len([each for each in path.rglob("*.txt") if not each.with_suffix(".ann").exists()])
    ):
        file.counts["texts without a file .ann are omitted"] = count
    return file


def _brat_spans(path: Path, number: int, line: str, text: str, file: SpanFile) -> Iterator[Span]:
    """The span of a line, or the fragments of a discontinuous one."""
    if not line.startswith("T"):
        return
    match = re.fullmatch(r"T\S*\t(\S+) (\d+ \d+(?:;\d+ \d+)*)\t(.*)", line.rstrip("\n"))
    if match is None:
        raise UserError(f"{path}, line {number} is {line[:60]!r}. Lines of spans are T1<tab>LABEL 0 4<tab>TEXT.")
    label, offsets, surface = match.groups()
    fragments: list[tuple[int, int]] = []
    for start, end in (map(int, pair.split()) for pair in offsets.split(";")):
        if fragments and not text[fragments[-1][1] : start].strip():  # brat divides a span at the end of a line
            start = fragments.pop()[0]
        fragments.append((start, end))
    file.counts["spans have several parts, each of which is an entity of its own"] += len(fragments) > 1
    # The surface has a blank between the parts.
    known, at = len(surface) == sum(end - start + 1 for start, end in fragments) - 1, 0
    for start, end in fragments:
        part = surface if len(fragments) == 1 else surface[at : at + end - start] if known else None
        yield Span(start, end, label, part)
        at += end - start + 1


# ------ fastText: "__label__pos __label__short a fine film"


def _is_fasttext(path: Path) -> bool:
    """Whether a text file has the labels of fastText: in the first line, and in most of the first lines."""
    if not path.is_file() or FORMATS.get(ending_of(path), "conll") != "conll":
        return False
    with reading(path), open_bytes(path) as file:
        if not file.read(len(_LABEL) + 3).removeprefix(b"\xef\xbb\xbf").startswith(_LABEL.encode()):
            return False
    with reading(path), open_text(path) as lines:
        first = [line for line in itertools.islice(lines, _LINES_CHECKED) if line.strip()]
    return sum(line.startswith(_LABEL) for line in first) > len(first) / 2


def _read_fasttext(path: Path, options: Options) -> Dataset:
    """The texts and their labels: one per text, or lists where a text has none or several."""
    several = any(len(labels) != 1 for _, labels in filter(any, _fasttext_rows(path)))
    cells = ((text, labels if several else labels[0]) for text, labels in filter(any, _fasttext_rows(path)))
    import pyarrow

    string = pyarrow.string()
    rows = copied_rows(path, options, {"text": string, "label": pyarrow.list_(string) if several else string}, cells)
    kind = "lists of labels" if several else "a label each"
    logger.info("%s is fastText's: %d texts with %s", path, len(rows), kind)
    return rows


def _fasttext_rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The text and the labels of each line."""
    with reading(path), open_text(path) as lines:
        for line in lines:
            labels = [word.removeprefix(_LABEL) for word in line.split() if word.startswith(_LABEL)]
            yield re.sub(rf"(?<!\S){_LABEL}\S+\s*", "", line).strip(), labels


# ------ Other formats


_ROW = '{"text": "Mira went to Quell .", "label": [[0, 4, "PER"], [13, 18, "LOC"]]}'
_TABLE = "a workbook, which is not read. Save its sheet as csv"
_PICKLE = "a pickle, which can run code and is not read. Save its rows as json lines: " + _ROW
_CONLL = f"Export CoNLL 2002 from INCEpTION, or write rows with offsets: {_ROW}"
_SPACY = (
    "Convert it where spaCy is installed: `python -c 'import json, spacy; from spacy.training.converters import "
    'json_to_docs; docs = {docs}; [print(json.dumps({"text": d.text, "entities": [[e.start_char, e.end_char, '
    'e.label_] for e in d.ents]})) for d in docs if d.has_annotation("ENT_IOB")]\' > {stem}.jsonl`'
)
_DOCBIN, _V2 = 'spacy.tokens.DocBin().from_disk("{path}").get_docs(spacy.blank("xx").vocab)', 'open("{path}").read()'
_OTHER_ENDINGS = {
    ".xmi": f"UIMA's XMI, which is not read. {_CONLL}",
    ".zip": "an archive. Unpack it, and name a file or folder in it",
    ".rels": "a file of relations, which are not read. Name the folder with brat's .txt and .ann",
    ".spacy": "spaCy's DocBin, which is not read. " + _SPACY.replace("{docs}", _DOCBIN),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _TABLE),
    **dict.fromkeys((".pkl", ".pickle"), _PICKLE),
}
_BCONV = (
    "Convert it: `pip install bconv` and `python -c \"import bconv; bconv.dump(bconv.load('{path}', fmt='FORMAT'), "
    "open('{stem}.conll', 'w'), fmt='conll', tagset='IOB', include_offsets=False)\"`"
)
_INLINE = re.compile(r"<(START:)?([A-Za-z_]+)>[^<>\n]+<(/\2|END)>")
_XML = r"(<[?!][^>]*>\s*)*<"
_OTHER_BEGINNINGS = {
    r"#FORMAT=WebAnno TSV": ("WebAnno TSV", _CONLL),
    r"""(?s)\s*[\[{].{,200}?"paragraphs"\s*:\s*\[\s*\{(\s*"raw"\s*:\s*"(\\.|[^"\\])*",)?\s*"sentences"\s*:""": (
        "spaCy's json of version 2",
        _SPACY.replace("{docs}", f"json_to_docs({_V2})"),
    ),
    r"\d+\|[ta]\|": ("PubTator", _BCONV.replace("FORMAT", "pubtator")),
    _XML + r"collection\b": ("BioC", _BCONV.replace("FORMAT", "bioc_xml")),
    r'\s*\{[^\[\]]*"documents"\s*:\s*\[[^\[\]]*"passages"': ("BioC", _BCONV.replace("FORMAT", "bioc_json")),
    _XML + r"TEI\b": ("TEI", f"Import it in INCEpTION. {_CONLL}"),
    _XML + r"GateDocument\b": ("GATE's XML", f"Write rows with offsets: {_ROW}"),
}


def _refuse_other_formats(path: Path) -> None:
    """Name what to write instead of a file in a known format that is never read."""
    ending = ending_of(path)

    def error(problem: str) -> UserError:
        filled = problem.replace("{path}", str(path)).replace("{stem}", path.stem)
        return UserError(f"{path} {filled}")

    if ending in _OTHER_ENDINGS:
        raise error(f"ends in {ending!r}: {_OTHER_ENDINGS[ending]}.")
    if not path.is_file() or FORMATS.get(ending) in ("parquet", "csv"):
        return
    with reading(path), open_bytes(path) as file:
        start = file.read(1 << 14).decode("utf-8", "ignore").removeprefix("\ufeff")
    for beginning, (name, advice) in _OTHER_BEGINNINGS.items():
        if re.match(beginning, start):
            raise error(f"is {name}, which is not read. {advice}")
    widths = {len(line.split()) for line in start.splitlines()} - {0}
    if ending == ".xml" or (ending == ".txt" and len(widths) > 1 and _INLINE.search(start)):
        raise error(f"has its labels within the text, which is not read. Write rows with offsets: {_ROW}")
