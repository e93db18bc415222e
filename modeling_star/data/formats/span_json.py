"""Json files with labelled spans of characters: doccano, Prodigy, Label Studio, spaCy, CLUENER."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import UserError
from ...models.tag_schemes import entity_tag
from ..columns import is_rejected
from ..encodings import HALF_CHARACTER
from .json_rows import items
from .spans import NOT_ANNOTATED, Document, Span, SpanFile


_SAMPLE = 100  # items by which a format is recognised
_TEXTS = ("text", "sentence", "content", "document", "data", "review", "comment", "tweet", "文本", "句子", "内容")
_SPANS = ("spans", "entities", "label", "labels", "ents", "annotations", "annotation", "ner")
_START = ("start", "start_offset", "startOffset", "start_idx", "begin")
_END = ("end", "end_offset", "endOffset", "end_idx")
_LABEL = ("label", "labels", "type", "entity_group", "entity_type", "tag")
_SURFACE = ("text", "surface", "word", "value", "entity")
_Item = Any
_Parse = Callable[[str, _Item], Iterator[Document]]


@dataclass(frozen=True)
class JsonFormat:
    """
    A format of the items of a file.

    Attributes:
        name: in messages.
        parse: the documents of an item; most items have one.
        units: see `SpanFile`.
    """

    name: str
    parse: _Parse
    units: Sequence[str] = SpanFile.units


def recognise_json(path: Path) -> JsonFormat | None:
    """The format of a json file with spans of characters; `None` for other files."""
    first = list(itertools.islice(_items(path), _SAMPLE))
    if not first:
        return None
    if all(_is_label_studio(item) for item in first):
        return JsonFormat("Label Studio's JSON", _label_studio, ("UTF-16 units", "code points"))
    if all(_is_pair(item) for item in first):
        return JsonFormat("spaCy's json", _spacy_pair)
    if not all(isinstance(item, dict) for item in first):
        return None
    if all(isinstance(item.get("paragraphs"), list) and _sentences(item) for item in first):
        return JsonFormat("spaCy's json", _spacy_paragraphs)
    if any(_is_tagged(item) for item in first):
        return None
    return _recognise_rows(first)


def read_json_spans(path: Path, format: JsonFormat) -> SpanFile:
    """The documents of a json file in a recognised format."""
    file = SpanFile(format.name, [], units=format.units)
    for item, documents in stream_documents(path, format):
        file.counts.update(_lacks(item, documents))
        file.documents += map(_without_surrogates, documents)
    return file


def stream_documents(path: Path, format: JsonFormat) -> Iterator[tuple[_Item, list[Document]]]:
    """
    Each item of a json file in a recognised format with its documents.

    Raises:
        UserError: an item is not in the format.
    """
    for number, item in enumerate(_items(path), 1):
        name = f"row {number}"
        try:
            yield item, list(format.parse(name, item))
        except UserError as error:
            raise UserError(f"{path}, {name}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise UserError(
                f"{path}, {name} is not as in {format.name}: {str(item)[:80]!r}. Export the file again, or correct "
                "this row."
            ) from error


def has_text_column(path: Path, column: str) -> bool:
    """Whether the first item of a json file has a text with this name."""
    return any(
        isinstance(item, dict) and isinstance(item.get(column), str) for item in itertools.islice(_items(path), 1)
    )


def _lacks(item: _Item, documents: Sequence[Document]) -> Iterator[str]:
    """Why documents have no spans, and what else was left out."""
    if isinstance(item, dict) and is_rejected(item):
        yield "rows that annotators rejected or ignored are omitted"
    elif any(document.spans is None for document in documents):
        yield NOT_ANNOTATED
    if any(HALF_CHARACTER.search(document.text) for document in documents):
        yield "texts have half a character (a surrogate), read as U+FFFD"
    if isinstance(item, dict) and _is_label_studio(item) and len(_finished(item)) > 1:
        yield "texts have several annotations: the first, or the ground truth, is read"


def _without_surrogates(document: Document) -> Document:
    """The document with U+FFFD for each half of a character, which no file in UTF-8 can have."""
    if not HALF_CHARACTER.search(document.text):
        return document
    spans, words = (
        some and [replace(each, surface=each.surface and HALF_CHARACTER.sub("\ufffd", each.surface)) for each in some]
        for some in (document.spans, document.words)
    )
    return replace(document, text=HALF_CHARACTER.sub("\ufffd", document.text), spans=spans, words=words)


def _items(path: Path) -> Iterator[_Item]:
    return items(path, _unfolded)


def _unfolded(value: _Item) -> list[_Item]:
    """The items of a list, or of an object with a list of spaCy's pairs."""
    if (
        isinstance(value, dict)
        and isinstance(pairs := value.get("annotations"), list)
        and not value.keys() & {*_TEXTS}
    ):
        return [pair for pair in pairs if pair is not None]
    return value if isinstance(value, list) and not _is_pair(value) else [value]


# ------ Rows: doccano, Prodigy, JSON_MIN, CLUENER and the like


def _is_tagged(item: Mapping[str, Any]) -> bool:
    """Whether a row has as many tags as words, so that its spans are not needed."""
    lists = [cell for cell in item.values() if isinstance(cell, list) and all(isinstance(x, str | int) for x in cell)]
    texts = [cell.split() for cell in item.values() if isinstance(cell, str)]
    tags = [*lists, *(parts for parts in texts if all(map(entity_tag, parts)))]
    words = [*(cell for cell in lists if all(isinstance(word, str) for word in cell)), *texts]
    return any(len(some) == len(others) > 1 and some is not others for some in words for others in tags)


def _recognise_rows(items: Sequence[Mapping[str, Any]]) -> JsonFormat | None:
    texts = [name for name in (*_TEXTS, *items[0]) if all(isinstance(item.get(name), str) for item in items)]
    if not texts:
        return None
    text = texts[0] if texts[0] in _TEXTS else max(texts, key=lambda name: len(items[0][name]))
    names = dict.fromkeys(itertools.chain(_SPANS, *items))
    for name in names:
        cells = [item[name] for item in items if item.get(name) is not None]
        if any(cells) and all(map(_is_cluener, cells)):
            return JsonFormat("CLUENER's json", JsonRows(text, name, _cluener_spans))
    found = [name for name in names if _has_spans([item.get(name) for item in items], name)]
    for name in sorted(found, key=lambda name: not any(item.get(name) for item in items)):
        first = next((item[name][0] for item in items if item.get(name)), None)
        keys = {*items[0], *(first if isinstance(first, dict) else ())}
        if name == "spans" or {"answer", "_input_hash"} & keys:
            return JsonFormat("Prodigy's jsonl", JsonRows(text, name))
        if "labels" in keys and isinstance(first, dict):
            return JsonFormat("Label Studio's JSON_MIN", JsonRows(text, name), ("UTF-16 units", "code points"))
        if name in ("label", "labels") or {"start_offset", "Comments"} & keys:
            return JsonFormat("doccano's jsonl", JsonRows(text, name), ("UTF-16 units", "code points", "graphemes"))
        return JsonFormat(f"json with {name!r}", JsonRows(text, name))
    return None


def _has_spans(cells: Sequence[Any], name: str) -> bool:
    """Whether the cells of a column are lists of spans; empty ones are spans of doccano's columns alone."""
    lists = [cell for cell in cells if cell is not None]
    if not lists or not all(isinstance(cell, list) and all(map(_is_span, cell)) for cell in lists):
        return False
    return any(lists) or name in ("label", "labels")


def _is_span(value: Any) -> bool:
    if isinstance(value, list):
        return len(value) >= 3 and _are_offsets(value[:2]) and isinstance(value[2], str)
    if isinstance(value, dict) and isinstance(value.get("points"), list):
        return all(
            isinstance(point, dict) and _are_offsets(map(point.get, ("start", "end"))) for point in value["points"]
        )
    if not isinstance(value, dict) or not _are_offsets([_first(value, _START), _first(value, _END)]):
        return False
    label = _first(value, _LABEL)
    return isinstance(label, str | int | list) or (label is None and "start_offset" in value)


def _are_offsets(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _first(value: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((value[name] for name in names if value.get(name) is not None), None)


@dataclass(frozen=True)
class JsonRows:
    """The document of a row with a text and a list of spans."""

    text: str
    spans: str
    spans_of: Callable[[Any], Iterator[Span]] | None = None

    def __call__(self, name: str, item: _Item) -> Iterator[Document]:
        text, cell = item[self.text], item.get(self.spans)
        spans = list((self.spans_of or _spans)(cell)) if cell else []
        tokens = item.get("tokens")
        has_offsets = (
            isinstance(tokens, list)
            and tokens
            and all(
                isinstance(token, dict) and _are_offsets([token.get("start"), token.get("end")]) for token in tokens
            )
        )
        words = [Span(t["start"], t["end"], "word", t.get("text")) for t in tokens] if has_offsets else None
        yield Document(name, text, None if is_rejected(item) else spans, words)


def _spans(cell: Iterable[Any]) -> Iterator[Span]:
    """The spans of a list; one with several labels is several."""
    for value in cell:
        if isinstance(value, dict) and "points" in value:  # of Dataturks
            yield from _spans({**point, "label": value["label"]} for point in value["points"])
            continue
        if isinstance(value, dict):
            start, end = _first(value, _START), _first(value, _END)
            label, surface = _first(value, _LABEL), _first(value, _SURFACE)
        else:
            (start, end, label), surface = value[:3], None
        for each in label if isinstance(label, list) else [label]:
            if not isinstance(each, str) or not each:
                raise UserError(
                    f"the label of the span {start}-{end} is {each!r}, not a name. Export labels as texts: from "
                    "doccano as JSONL (Text label)"
                )
            yield Span(start, end, each, surface if isinstance(surface, str) and surface else None)


def _is_cluener(cell: Any) -> bool:
    """Whether a cell is {label: {surface: [[first, last], ...]}}."""
    if not isinstance(cell, dict) or not all(each is None or isinstance(each, dict) for each in cell.values()):
        return False
    spans = [pairs for each in cell.values() for pairs in (each or {}).values()]
    return all(
        isinstance(pairs, list)
        and all(isinstance(pair, list) and len(pair) == 2 and _are_offsets(pair) for pair in pairs)
        for pairs in spans
    )


def _cluener_spans(cell: Mapping[str, Mapping[str, list[list[int]]]]) -> Iterator[Span]:
    for label, surfaces in cell.items():
        for surface, pairs in (surfaces or {}).items():
            for first, last in pairs or ():
                yield Span(first, last + 1, label, surface)


# ------ Label Studio


def _is_label_studio(item: _Item) -> bool:
    """Whether an item is a task with its data and annotations ("completions" before 1.0)."""
    return (
        isinstance(item, dict)
        and isinstance(item.get("data"), dict)
        and any(isinstance(item.get(name), list) for name in ("annotations", "completions"))
    )


def _finished(item: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The annotations that were not skipped, the ground truth first."""
    annotations = item.get("annotations") or item.get("completions") or []
    kept = [each for each in annotations if isinstance(each, dict) and not each.get("was_cancelled")]
    return sorted(kept, key=lambda each: not each.get("ground_truth"))


def _label_studio(name: str, item: _Item) -> Iterator[Document]:
    finished, data = _finished(item), item["data"]
    results = [each for each in (finished[0]["result"] if finished else []) if each.get("type", "").endswith("labels")]
    texts = {key: value for key, value in data.items() if isinstance(value, str)}
    known = [each.get("to_name") for each in results] + [*_TEXTS]
    text = next((texts[key] for key in known if key in texts), max(texts.values(), key=len, default=None))
    if text is None:
        raise UserError("the task has no text. Export tasks with texts alone.")
    spans: list[Span] = []
    for each in results:
        value = each["value"]
        if not _are_offsets([value.get("start"), value.get("end")]):
            raise UserError("the span is one of a page of HTML or of a dialogue. Label plain texts (<Text>) alone.")
        labels: list[str] = next((cell for key, cell in value.items() if key.endswith("labels")), [])
        spans += _spans([{**value, "label": labels}])
    yield Document(name, text, spans if finished else None)


# ------ spaCy


def _is_pair(item: _Item) -> bool:
    """Whether an item is [text, {"entities": [[start, end, label], ...]}]."""
    return (
        isinstance(item, list)
        and len(item) == 2
        and isinstance(item[0], str)
        and isinstance(item[1], dict)
        and isinstance(item[1].get("entities"), list)
    )


def _spacy_pair(name: str, item: _Item) -> Iterator[Document]:
    yield Document(name, item[0], list(_spans(item[1]["entities"])))


def _sentences(item: Mapping[str, Any]) -> list[Any]:
    """The sentences of a document of `spacy train` before version 3; none for other objects, such as SQuAD's."""
    return [
        sentence
        for paragraph in item["paragraphs"]
        if isinstance(paragraph, dict)
        for sentence in paragraph.get("sentences") or []
        if isinstance(sentence, dict) and isinstance(sentence.get("tokens"), list)
    ]


def _spacy_paragraphs(name: str, item: _Item) -> Iterator[Document]:
    """A document for each sentence, with tags BILUO at its words, or entities of the paragraph."""
    for paragraph in item["paragraphs"]:
        raw, at = paragraph.get("raw"), 0
        entities = list(_spans(paragraph.get("entities") or []))
        for sentence in paragraph["sentences"]:
            words: list[Span] = []
            for token in sentence["tokens"]:
                start = raw.index(token["orth"], at) if raw else at
                at = start + len(token["orth"])
                words.append(Span(start, at, token.get("ner") or "O", token["orth"]))
                at += not raw
            if not words:
                continue
            first, last = words[0].start, words[-1].end
            text = raw[first:last] if raw else " ".join(word.surface or "" for word in words)
            spans = [*_biluo(words), *(each for each in entities if first <= each.start < last)]
            moved = [
                [Span(each.start - first, each.end - first, each.label, each.surface) for each in some]
                for some in (spans, words)
            ]
            yield Document(name, text, *moved)


def _biluo(words: Sequence[Span]) -> Iterator[Span]:
    start = 0
    for word in words:
        prefix, _, label = word.label.partition("-")
        if prefix in ("B", "U"):
            start = word.start
        if prefix in ("L", "U"):
            yield Span(start, word.end, label)
