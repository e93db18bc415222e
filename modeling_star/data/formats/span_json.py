"""Json files with labelled spans of characters: doccano, Prodigy, Label Studio, spaCy's pairs, CLUENER."""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ...errors import UserError
from ...models.tag_schemes import entity_tag
from ..columns import ONE_WORD, is_rejected
from ..detect import DataFile, Head
from ..encodings import HALF_CHARACTER
from ..files import Options
from .json_rows import Values
from .spans import CLASSES_OF_TEXTS, NOT_ANNOTATED, Document, Span, SpanFile, as_rows


if TYPE_CHECKING:
    from datasets import Dataset


logger = logging.getLogger(__name__)


_SAMPLE = 100  # items by which a format is recognised
_TEXTS = ("text", "sentence", "content", "document", "data", "review", "comment", "tweet", "文本", "句子", "内容")
_SPANS = ("spans", "entities", "label", "labels", "ents", "annotations", "annotation", "ner")
# Keys of a span, without marks and capitals: `start_offset` and "startOffset" are one.
_UNIT = "(offset|idx|index|char|pos|position)?"
_START, _END = re.compile(f"(start|begin|from){_UNIT}|offset"), re.compile(f"(end|stop|to){_UNIT}")
_BOTH = ("span", "offset", "offsets", "position", "pos", "range", "indices", "loc", "location")
_LABEL = (
    *("label", "labels", "type", "entitygroup", "entitytype", "labeltype", "tag", "category", "class", "ner"),
    "entity",
)
_SURFACE = ("text", "surface", "word", "value", "entity", "mention", "name")
_Item = Any
_Parse = Callable[[str, _Item], Iterator[Document]]


@dataclass(frozen=True)
class JsonFormat:
    """The name of a format, the parser of its items into documents, and the units of `SpanFile`."""

    name: str
    parse: _Parse
    units: Sequence[str] = SpanFile.units


class SpanValues(NamedTuple):
    """The items of a file, and their format."""

    values: Values
    format: JsonFormat


def recognise(head: Head, options: Options) -> SpanValues | None:
    """The format of a json file with spans of characters; `None` for others, and for rows that are read as such."""
    if not head.content:
        return None
    values = Values(head)
    format = _recognise(list(itertools.islice(values.items(_unfolded), _SAMPLE)))
    if format is None or (isinstance(format.parse, JsonRows) and not options.with_spans):
        return None
    found = SpanValues(values, format)
    is_trained = format.parse is _label_studio and not options.as_texts
    if is_trained and (kinds := _results_without_spans(values)):
        raise UserError(f"{head.path} has {kinds} of Label Studio's JSON, which are no spans. {CLASSES_OF_TEXTS}")
    if not options.with_spans:
        raise UserError(
            f"{head.path} has regions of texts, which a tagger reads: `modeling-star tag --train_file {head.path} "
            f"--output_dir outputs/tagger`. {CLASSES_OF_TEXTS}"
        )
    return found


def _recognise(first: Sequence[_Item]) -> JsonFormat | None:
    if not first:
        return None
    if all(_is_label_studio(item) for item in first):
        return JsonFormat("Label Studio's JSON", _label_studio, ("UTF-16 units", "code points"))
    if all(_is_pair(item) for item in first):
        return JsonFormat("spaCy's json", _spacy_pair)
    if not all(isinstance(item, dict) for item in first) or any(_is_tagged(item) for item in first):
        return None
    return _recognise_rows(first)


def read(file: DataFile) -> Dataset:
    """The words and tags of the documents."""
    found: SpanValues = file.found
    spans = SpanFile(found.format.name, [], units=found.format.units)
    for item, documents in _documents(file):
        spans.counts.update(_lacks(item, documents))
        spans.documents += map(_without_surrogates, documents)
    return as_rows(file.path, spans)


def texts(file: DataFile) -> Iterator[str]:
    """The texts of the documents."""
    logger.info("%s is %s", file.path, file.found.format.name)
    return (document.text for _, documents in _documents(file) for document in documents)


def has_column(file: DataFile, column: str) -> bool:
    """Whether the first item has a text with this name that is not that of the spans."""
    first = next(file.found.values.items(_unfolded))
    is_other = column != getattr(file.found.format.parse, "text", None)
    return is_other and isinstance(first, dict) and isinstance(first.get(column), str)


def _documents(file: DataFile) -> Iterator[tuple[_Item, list[Document]]]:
    """Each item with its documents; an error names the row."""
    found: SpanValues = file.found
    for number, item in enumerate(found.values.items(_unfolded), 1):
        name = f"row {number}"
        try:
            yield item, list(found.format.parse(name, item))
        except UserError as error:
            raise UserError(f"{file.path}, {name}: {error}") from error
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise UserError(
                f"{file.path}, {name} is not as in {found.format.name}: {str(item)[:80]!r}. Export the file again, or "
                "correct this row."
            ) from error


def _results_without_spans(values: Values) -> str:
    """The kinds of results of Label Studio's tasks, such as "choices", if there are some and none is a span."""
    tasks = (item for item in values.items(_unfolded) if _is_label_studio(item))
    kinds = {each.get("type", "") for item in tasks for each in itertools.chain(*map(_results, _finished(item)))}
    return "" if any(kind.endswith("labels") for kind in kinds) else " and ".join(sorted(kinds))


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
    found = [name for name in names if "relation" not in name and _has_spans([item.get(name) for item in items], name)]
    found = [name for name in found if not all(_are_of_words(item, item.get(name) or ()) for item in items)]
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
    """Whether cells are lists of spans: in known columns alone if without a label, in doccano's alone if empty."""
    lists = [cell for cell in cells if cell is not None]
    if not lists or not all(isinstance(cell, list) and all(map(span_parts, cell)) for cell in lists):
        return False
    labelled = any(label not in (None, "") for cell in lists for value in cell for _, _, label, _ in span_parts(value))
    return (labelled or name in _SPANS) if any(lists) else name in ("label", "labels")


def _are_of_words(item: Mapping[str, Any], spans: Iterable[Any]) -> bool:
    """Whether a row has a list of words, and no span ends after its last word: offsets count words."""
    words: list[Any] = next((item[name] for name in ONE_WORD if isinstance(item.get(name), list)), [])
    ends = [end for value in spans for _, end, _, _ in span_parts(value)]
    return all(isinstance(word, str) for word in words) and bool(words) and max(ends, default=0) <= len(words)


_Part = tuple[int, int, Any, Any]


def span_parts(value: Any, text: str = "") -> list[_Part]:
    """
    The start, end, label and surface of each part of a span, such as {"start": 0, ...}, [0, 4, "PER"] or ["Mira",
    "PER", 0, 4], of which that in the text is the surface; none for other values.
    """
    if isinstance(value, list):
        cells = [cell for part in value[:4] for cell in (part if isinstance(part, list) else [part])]
        numbers = [cell for cell in cells if _are_offsets([cell])]
        names = [cell for cell in cells if isinstance(cell, str)]
        if not names or len(numbers) != 2 or not 0 <= numbers[0] <= numbers[1]:
            is_usual = len(value) > 2 and _are_offsets(value[:2]) and isinstance(value[2], str)
            return [(value[0], value[1], value[2], None)] if is_usual else []
        surface = next((name for name in names[:2] if name and text.startswith(name, numbers[0])), None)
        label = next((name for name in names if len(names) < 2 or name != surface), surface)
        return [(*numbers, label, surface if len(names) > 1 else None)]
    if not isinstance(value, dict):
        return []
    keys = {re.sub(r"[\W_]", "", key).casefold(): cell for key, cell in value.items() if cell is not None}
    named, shown = (next((name for name in names if name in keys), None) for names in (_LABEL, _SURFACE))
    label, surface = keys.get(named) if named != shown else None, keys.get(shown)
    if isinstance(points := value.get("points"), list):  # of Dataturks
        parts = [span_parts({**point, "label": label}) for point in points if isinstance(point, dict)]
        return [part for each in parts for part in each] if all(parts) else []
    start, end = (next((keys[key] for key in keys if name.fullmatch(key)), None) for name in (_START, _END))
    if end is None and _are_offsets([start, keys.get("length")]):
        end = start + keys["length"]
    pairs: list[Any] = [[start, end]]
    if not _are_offsets(pairs[0]):
        both: list[Any] = next((keys[name] for name in _BOTH if isinstance(keys.get(name), list)), [])
        pairs = both if all(isinstance(pair, list) for pair in both) else [both]
    surfaces = surface if isinstance(surface, list) and len(surface) == len(pairs) else [surface] * len(pairs)
    if not pairs or not all(len(pair) == 2 and _are_offsets(pair) for pair in pairs):
        return []
    return [(*pair, label, each) for pair, each in zip(pairs, surfaces, strict=True)]


def _are_offsets(values: Iterable[Any]) -> bool:
    return all(isinstance(value, int) and not isinstance(value, bool) for value in values)


@dataclass(frozen=True)
class JsonRows:
    """The document of a row with a text and a list of spans."""

    text: str
    spans: str
    spans_of: Callable[[Any], Iterator[Span]] | None = None

    def __call__(self, name: str, item: _Item) -> Iterator[Document]:
        text, cell = item[self.text], item.get(self.spans)
        spans = list(self.spans_of(cell) if self.spans_of else _spans(cell, text)) if cell else []
        tokens = item.get("tokens")
        has_offsets = (
            isinstance(tokens, list)
            and tokens
            and all(
                isinstance(token, dict) and _are_offsets([token.get("start"), token.get("end")]) for token in tokens
            )
        )
        words = [Span(t["start"], t["end"], "word", t.get("text")) for t in tokens] if has_offsets else None
        is_open = self.spans in item and cell is None
        yield Document(name, text, None if is_open or is_rejected(item) else spans, words)


def _spans(cell: Iterable[Any], text: str) -> Iterator[Span]:
    """The spans of a list; one with several labels is several, and one without has the label ""."""
    for start, end, label, surface in itertools.chain.from_iterable(span_parts(value, text) for value in cell):
        for each in (label or [""]) if isinstance(label, list) else [label]:
            if not isinstance(each, str | None):
                raise UserError(
                    f"the label of the span {start}-{end} is {each!r}, not a name. Export labels as texts: from "
                    "doccano as JSONL (Text label)"
                )
            yield Span(start, end, (each or "").strip(), surface if isinstance(surface, str) and surface else None)


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


def _results(annotation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in annotation["result"] if isinstance(each, dict)]


def _label_studio(name: str, item: _Item) -> Iterator[Document]:
    finished, data = _finished(item), item["data"]
    results = [each for each in (_results(finished[0]) if finished else []) if each.get("type", "").endswith("labels")]
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
        spans += _spans([{**value, "label": labels}], text)
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
    yield Document(name, item[0], list(_spans(item[1]["entities"], item[0])))
