"""
Files of annotation tools with labelled spans of characters, recognised by their content.

Json files are in `span_json`: doccano, Prodigy, Label Studio, spaCy, CLUENER. Here are brat's folders, WebAnno TSV 3,
spaCy's DocBin, the texts with `__label__` of fastText, and what to write for formats that are not read.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UserError
from ..files import FORMATS, Options, copied_rows, ending_of, open_bytes, open_text, reading
from .span_json import JsonRows, has_text_column, read_json_spans, recognise_json, stream_documents
from .spans import NOT_ANNOTATED, Document, Span, SpanFile, as_rows, code_points, lines_of


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)
_WEBANNO = "#FORMAT=WebAnno TSV"
_LABEL = "__label__"
_LINES_CHECKED = 1000


def read(path: Path, options: Options, with_spans: bool) -> Dataset | None:
    """
    A file or folder with spans of characters as words and tags, or one of fastText as texts and labels.

    Args:
        with_spans: `False`: read no file for its spans.

    Returns:
        The rows; `None` for other files.

    Raises:
        UserError: see `spans.as_rows`; or the file is not in its format, or in one that is never read.
    """
    if _is_fasttext(path):
        return _read_fasttext(path, options)
    read = reader_of(path)
    if with_spans and read is not None:
        with reading(path):
            return as_rows(path, read(path))
    if read is not None and not _is_table(path):
        raise UserError(
            f"{path} has labelled spans of characters: `modeling-star tag --train_file {path} --output_dir "
            "outputs/tagger`. Classes of texts are read from csv or json (Label Studio's CSV and JSON-MIN)."
        )
    _refuse_other_formats(path)
    return None


def read_texts(path: Path, column: str | None = None) -> Iterator[str] | None:
    """
    The texts of a file with spans of characters or of fastText, in its order; `None` for other files.

    Args:
        column: of the texts of the training: a file with such a column is read as a table.
    """
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
        return _read_brat if next(path.rglob("*.ann"), None) else _read_webanno if _webanno_files(path) else None
    if not path.is_file():
        return None
    ending = ending_of(path)
    if ending == ".ann" or (ending == ".txt" and path.with_suffix(".ann").is_file()):
        return _read_brat
    if ending == ".spacy":
        return _read_docbin
    with reading(path):
        if FORMATS.get(ending) == "json":
            found = recognise_json(path)
            return None if found is None else lambda path: read_json_spans(path, found)
        return _read_webanno if _starts_with(path, _WEBANNO) else None


def _is_table(path: Path) -> bool:
    """Whether a file with spans of characters can be read without them."""
    if FORMATS.get(ending_of(path)) == "json":
        with reading(path):
            return isinstance(recognise_json(path).parse, JsonRows)
    return ending_of(path) == ".txt"


def _starts_with(path: Path, text: str) -> bool:
    with open_bytes(path) as file:
        return file.read(len(text) + 3).removeprefix(b"\xef\xbb\xbf").startswith(text.encode())


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


# ------ WebAnno TSV 3: a table of words below a list of layers


_Row = list[str]
_Layer = tuple[str, str]
_LEXICAL = ("POS", "Lemma", "Morpheme", "MorphologicalFeatures", "Stem", "SurfaceForm")
_FEATURES = ("value", "label", "type", "category", "tag")  # rather than an identifier or a comment


def _webanno_files(folder: Path) -> list[Path]:
    """The documents of a project; INITIAL_CAS is what an annotator began with."""
    paths = sorted(path for path in folder.rglob("*.tsv") if path.stem != "INITIAL_CAS")
    return [path for path in paths if _starts_with(path, _WEBANNO)]


def _read_webanno(path: Path) -> SpanFile:
    """The sentences of a document, or of a folder of documents, of WebAnno or INCEpTION."""
    paths = _webanno_files(path) if path.is_dir() else [path]
    parsed = [_parse_webanno(each) for each in paths]
    layers = {layer: False for names, _ in parsed for layer in names if _may_be_labels(layer)}
    for names, sentences in parsed:
        for row in itertools.chain.from_iterable(rows for _, rows in sentences):
            for layer, cell in zip(names, row[3:], strict=False):
                if layer in layers and cell not in ("_", "*"):
                    layers[layer] = True
    chosen = min(
        layers,
        key=lambda layer: (layer[0] != "NamedEntity", not layers[layer], layer[1] not in _FEATURES),
        default=None,
    )
    name = "WebAnno TSV 3" if chosen is None else f"WebAnno TSV 3, layer {chosen[0]}, feature {chosen[1] or 'none'}"
    file = SpanFile(name, [], units=("code points",))
    for each, (names, sentences) in zip(paths, parsed, strict=True):
        column = names.index(chosen) + 3 if chosen in names else None
        source = f"{each.relative_to(path)}, " if path.is_dir() else ""
        for number, (text, rows) in enumerate(sentences, 1):
            where = f"{source}sentence {number}"
            words, spans = _webanno_spans(f"{path}, {where}", text, rows, column, chosen)
            file.documents.append(Document(where, text, None if chosen is None else spans, words))
    return file


def _may_be_labels(layer: _Layer) -> bool:
    kind, feature = layer  # a role is followed by the type of its target
    return bool(kind) and kind not in _LEXICAL and not feature.startswith("ROLE_") and "." not in feature


def _parse_webanno(path: Path) -> tuple[list[_Layer], list[tuple[str, list[_Row]]]]:
    """The layer and feature of each column after the third, and the text and rows of each sentence."""
    layers: list[_Layer] = []
    sentences: list[tuple[str, list[_Row]]] = []
    with reading(path), open_text(path) as lines:
        version = next(lines).removeprefix(_WEBANNO).strip()
        if not version.startswith("3"):
            raise UserError(f"{path} is WebAnno TSV {version}. Export it as WebAnno TSV v3.")
        for line in lines:
            line = line.rstrip("\n")
            if line.startswith(("#T_SP=", "#T_CH=", "#T_RL=")):
                kind, *features = line[6:].split("|")
                name = kind.rpartition(".")[2] if line.startswith("#T_SP=") else ""
                layers += [(name, feature) for feature in features or [""]]
            elif line.startswith("#Text="):
                text = _unescaped(line[6:])
                if sentences and not sentences[-1][1]:  # a sentence over several lines
                    text = f"{sentences.pop()[0]}\n{text}"
                sentences.append((text, []))
            elif re.match(r"\d+-\d+(\.\d+)?\t", line) and sentences:
                sentences[-1][1].append(line.split("\t"))
    return layers, sentences


def _webanno_spans(
    where: str, text: str, rows: list[_Row], column: int | None, layer: _Layer | None
) -> tuple[list[Span], list[Span]]:
    """The words and the spans of a sentence. Parts of a word have rows of their own: "1-3.1" below "1-3"."""
    words: list[Span] = []
    spans: dict[tuple[str, str], Span] = {}
    for row in rows:
        number, (unit, _), surface = row[0], map(int, row[1].split("-")), _unescaped(row[2])
        if "." not in number:
            start, of_word = text.find(surface, words[-1].end if words else 0), unit
            if start < 0:
                raise UserError(f"{where}: the word {surface!r} is not in its text {text[:60]!r}. Export it again.")
            words.append(Span(start, start + len(surface), "word", surface))
        else:  # offsets are UTF-16 units of the whole document
            start = words[-1].start + code_points(words[-1].surface, "UTF-16 units")[unit - of_word]
        cell = row[column] if column is not None and column < len(row) else "_"
        for part in re.split(r"(?<!\\)\|", cell):
            if part != "_":
                label, identifier = re.fullmatch(r"(.*?)((?<!\\)\[\d+\])?", part).groups()
                label = layer[0] if label == "*" else _unescaped(label)
                key = label, identifier or number
                first = spans[key].start if key in spans else start
                spans[key] = Span(first, start + len(surface), label)
    return words, list(spans.values())


def _unescaped(text: str) -> str:
    letters = {"t": "\t", "n": "\n", "r": "\r"}
    return re.sub(r"\\(->|.)", lambda match: letters.get(match[1], match[1]), text)


# ------ spaCy's DocBin


def _read_docbin(path: Path) -> SpanFile:
    """The sentences, or documents without sentences, of a file `.spacy`."""
    try:
        from spacy.tokens import DocBin
        from spacy.vocab import Vocab
    except ImportError as error:
        convert = (
            "import json, spacy; from spacy.tokens import DocBin; "
            f'docs = DocBin().from_disk("{path}").get_docs(spacy.blank("xx").vocab); '
            '[print(json.dumps({"text": d.text, "entities": [[e.start_char, e.end_char, e.label_] for e in d.ents]})) '
            "for d in docs]"
        )
        raise UserError(
            f"{path} is spaCy's DocBin: `pip install spacy`, or convert it where spaCy is installed: "
            f"`python -c '{convert}' > {path.stem}.jsonl`"
        ) from error
    with open_bytes(path) as content:
        docs = list(DocBin().from_bytes(content.read()).get_docs(Vocab()))
    groups = not any(doc.ents for doc in docs)  # of a span categorizer
    file = SpanFile("spaCy's DocBin", [], units=("code points",))
    for number, doc in enumerate(docs, 1):
        found = [span for group in doc.spans.values() for span in group] if groups else list(doc.ents)
        sentences = list(doc.sents) if doc.has_annotation("SENT_START") else [doc[:]]
        if any(span.sent.end < span.end for span in found if len(sentences) > 1):
            sentences = [doc[:]]
        is_annotated = bool(doc.spans) if groups else doc.has_annotation("ENT_IOB")
        for sentence in sentences:
            at = sentence.start_char
            words = [Span(token.idx - at, token.idx - at + len(token), "word", token.text) for token in sentence]
            spans = [
                Span(span.start_char - at, span.end_char - at, span.label_)
                for span in found
                if sentence.start <= span.start < sentence.end
            ]
            file.documents.append(
                Document(f"document {number}", sentence.text, spans if is_annotated else None, words)
            )
        file.counts[NOT_ANNOTATED] += not is_annotated
    return file


# ------ fastText: "__label__pos __label__short a fine film"


def _is_fasttext(path: Path) -> bool:
    """Whether a text file has the labels of fastText: in the first line, and in most of the first lines."""
    if not path.is_file() or FORMATS.get(ending_of(path), "conll") != "conll":
        return False
    with reading(path):
        if not _starts_with(path, _LABEL):
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
_OTHER_ENDINGS = {
    ".xmi": "UIMA's XMI, which is not read. Export WebAnno TSV v3 from INCEpTION",
    ".zip": "an archive. Unpack it, and name a file or folder in it",
    ".rels": "a file of relations, which are not read. Name the folder with brat's .txt and .ann",
    **dict.fromkeys((".xlsx", ".xls", ".ods"), _TABLE),
    **dict.fromkeys((".pkl", ".pickle"), _PICKLE),
}
_BCONV = (
    "Convert it: `pip install bconv` and `python -c \"import bconv; bconv.dump(bconv.load('{path}', fmt='{format}'), "
    "open('{stem}.conll', 'w'), fmt='conll', tagset='IOB', include_offsets=False)\"`"
)
_INLINE = re.compile(r"<(START:)?([A-Za-z_]+)>[^<>\n]+<(/\2|END)>")
_OTHER_BEGINNINGS = {
    re.compile(r"\d+\|[ta]\|"): ("PubTator", "pubtator"),
    re.compile(r"(<[?!][^>]*>\s*)*<collection\b"): ("BioC", "bioc_xml"),
    re.compile(r'\s*\{[^\[\]]*"documents"\s*:\s*\[[^\[\]]*"passages"'): ("BioC", "bioc_json"),
}


def _refuse_other_formats(path: Path) -> None:
    """Name what to write instead of a file in a known format that is never read."""
    ending = ending_of(path)
    if ending in _OTHER_ENDINGS:
        raise UserError(f"{path} ends in {ending!r}: {_OTHER_ENDINGS[ending]}.")
    if not path.is_file() or FORMATS.get(ending) in ("parquet", "csv"):
        return
    with reading(path), open_bytes(path) as file:
        start = file.read(1 << 14).decode("utf-8", "ignore").removeprefix("\ufeff")
    for beginning, (name, format) in _OTHER_BEGINNINGS.items():
        if beginning.match(start):
            advice = _BCONV.format(path=path, stem=path.stem, format=format)
            raise UserError(f"{path} is {name}, which is not read. {advice}")
    root = re.match(r"(?:<[?!][^>]*>\s*)*<(TEI|GateDocument)\b", start)
    if root:
        advice = "Import it in INCEpTION and export WebAnno TSV v3, or write" if root[1] == "TEI" else "Write"
        raise UserError(f"{path} is {root[1]} in XML, which is not read. {advice} rows with offsets: {_ROW}")
    widths = {len(line.split()) for line in start.splitlines()} - {0}
    if ending == ".xml" or (ending == ".txt" and len(widths) > 1 and _INLINE.search(start)):
        raise UserError(f"{path} has its labels within the text, which is not read. Write rows with offsets: {_ROW}")
