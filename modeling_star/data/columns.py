"""
Find the columns of texts, words, tags, labels and answers: by the flag, else by a known name.

Every function raises a `UserError` that lists the columns if a named one is absent or none has a known name.
"""

from __future__ import annotations

import itertools
import logging
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UserError


if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from .first_rows import FirstRows


logger = logging.getLogger(__name__)
GOLD_LABEL = "gold_label"
"""The label column of SNLI's and MultiNLI's own files."""
# Known names, the first one that is present wins.
ONE_WORD = ("tokens", "words", "token", "word", "form")
TOKENS = (*ONE_WORD, "text", "sentence")
PARTS_OF_SPEECH = ("pos_tags", "upos", "pos", "xpos_tags", "chunk_tags", "pos_tag")
TAGS = ("ner_tags", "tags", "labels", "label", "ner", "ner_tag", "tag", *PARTS_OF_SPEECH)
_QUESTIONS = ("question", "query")
_CONTEXTS = ("context", "passage", "paragraph", "document", "text")
_ASPECTS = ("aspect", "aspect_term", "aspect_category")
_PAIRS = (
    *(("sentence1", "sentence2"), ("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence")),
    *(("text1", "text2"), ("text_a", "text_b")),
    *itertools.product(_QUESTIONS, _CONTEXTS[:-1]),
    *itertools.product(("text", "sentence", "review", "comment", "tweet"), _ASPECTS),
)
_TEXTS = (
    *("text", "sentence", "review", "content", "comment", "document", "tweet", "question"),
    *("文本", "句子", "内容", "评论", "正文"),
)
_LABELS = (
    *("label", "labels", GOLD_LABEL, "class", "category", "sentiment", "polarity", "stance", "target", "score"),
    *("stars", "rating"),
    *("标签", "类别", "分类", "情感"),
)
_ANSWERS = ("answers", "answer", "answer_text")
_HALVES = ("title", "topic", "entity", "term", "target", "keyword")
"""Names of columns without which a text may not be understood."""
_META = re.compile("(id|idx|url|link|path|file|author|user|date|time)s?$")
"""Ends of the names of columns that describe a row."""
_SPANS = ("entities", "spans", "ents", "mentions")
_ROWS_COMPARED = 1000
_FEWEST_ROWS = 10  # of which all labels can differ by chance in fewer


def find_tagging_columns(
    splits: DatasetDict,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
) -> tuple[str, str]:
    """The columns of the words and of the tags."""
    example = _example(splits)
    lists = list_names(example)
    texts = text_names(example)
    # Lists before texts, as in {"text": "It rains", "tokens": ["It", "rains"]}.
    words = [*_called(TOKENS, lists), *_called(TOKENS, texts)]
    text = text_column_name or _first(splits, words, "--text_column_name", without_header="tokens,tags")
    others = [name for name in lists if name != text]
    objects = [name for name, kind in example.features.items() if isinstance(getattr(kind, "feature", None), dict)]
    tags = [name for name in _called((*TAGS, *_SPANS), [*lists, *texts, *objects]) if name != text]
    tags = tags or (others if len(others) == 1 else [])
    label = label_column_name or _first(
        splits, tags, "--label_column_name", "tags", without_header="tokens,tags", used=(text,)
    )
    _check(splits, (text,), label)
    return text, label


def find_classification_columns(
    splits: DatasetDict,
    text_column_name: str | Sequence[str] | None = None,
    label_column_name: str | None = None,
) -> tuple[tuple[str, ...], str]:
    """The one or two text columns, which may be named in one text with a comma between them, and the label column."""
    example = _example(splits)
    is_named = text_column_name is not None or label_column_name is not None
    if not is_named and list_names(example) and not text_names(example):
        raise UserError(f"The columns {listed(splits)} are lists of words and tags. Write `modeling-star tag`")
    labels = _called(_LABELS, example.column_names)
    label = label_column_name or _first(splits, labels, "--label_column_name", without_train="label", pairs=True)
    columns = _text_columns(splits, text_column_name, label)
    if text_column_name is None and len(columns) == 1:
        likely = dict.fromkeys((*contents(example)[0], *_called(_HALVES, text_names(example))))
        if unread := [name for name in likely if name not in (*columns, label)]:
            logger.warning(
                "Texts are read from column %r alone, not from %s. To read both write `--text_column_name %s`.",
                columns[0],
                " and ".join(map(repr, unread)),
                shlex.quote(f"{columns[0]},{unread[0]}"),
            )
    if len(columns) not in (1, 2):
        raise UserError(f"Name one or two text columns of {listed(splits)}: `--text_column_name text1,text2`")
    _check(splits, columns, label)
    return columns, label


def find_reading_columns(
    splits: DatasetDict, text_column_name: str | None = None, label_column_name: str | None = None
) -> tuple[str, str, str]:
    """The columns of the questions, of their contexts and of the answers; the first two are named with a comma."""
    present = _example(splits).column_names
    answers = _called(_ANSWERS, present)
    if not (label_column_name or answers) and "train" in splits:
        raise UserError(
            f"No column of {listed(splits)} has answers. Write a column `answers` with "
            '{"text": ["Oslo"], "answer_start": [17]}, or name it: `--label_column_name NAME`'
        )
    label = label_column_name or next(iter(answers), "answers")
    if text_column_name is None:
        known = [_called(names, present)[:1] for names in (_QUESTIONS, _CONTEXTS)]
        columns = [name for names in known for name in names]
    else:
        columns = [name.strip() for name in text_column_name.split(",")]
    if len(columns) != 2:
        raise UserError(
            f"The columns are {listed(splits)}. Name those of the questions and of their contexts: "
            "`--text_column_name question,context`"
        )
    _check(splits, columns, label)
    return columns[0], columns[1], label


def find_text_column(splits: DatasetDict, text_column_name: str | None = None) -> str:
    """The column of running text."""
    example = _example(splits)
    texts = text_names(example)
    known = _called(_TEXTS, texts) or (texts if len(texts) == 1 else [])
    text = text_column_name or _first(splits, known, "--text_column_name")
    check_columns(splits, (text,), "--text_column_name", everywhere=True)
    if text_column_name is None:
        show_guess(next(iter(splits)), (text,), example.column_names)
    return text


def show_guess(source: object, columns: Sequence[str], present: Sequence[str]) -> None:
    """Warn where columns are read as texts that have no known name, and others are present."""
    if len(present) > len(columns) and not are_known(columns):
        advice = "where these are not the texts, write --text_column_name NAME."
        logger.warning("%s: texts are read from column %s; %s", source, " and ".join(map(repr, columns)), advice)


def find_predicted_columns(
    rows: Dataset | FirstRows, text_column_name: str | None = None, *, pairs: bool = False, contexts: bool = False
) -> tuple[str, ...]:
    """The column, or for pairs the two columns, that a saved model reads; `contexts`: of a question."""
    splits: Any = {"file": rows}
    names = rows.column_names
    if text_column_name is None and not pairs:
        lists = list_names(rows)
        texts = [] if _called(_TEXTS, names) else text_names(rows)
        words = [name for name in _called(TOKENS, names) if name in (*lists, *texts)]
        known = [*(_called(_CONTEXTS, names) if contexts else ()), *words]
        if known:
            return (known[0],)
    given = {text_column_name, *(name.strip() for name in (text_column_name or "").split(","))}
    label = next((name for name in _called(_LABELS, names) if name not in given), "")
    texts = [name for name in text_names(rows) if name != label]
    if text_column_name is None and pairs and len(texts) == 2 and not is_first_row(texts):
        columns = _first_known(_PAIRS, texts) or tuple(texts)
    else:
        columns = _text_columns(splits, text_column_name, label)
    check_columns(splits, columns, "--text_column_name", everywhere=True)
    if len(columns) != 1 + pairs:
        raise UserError(
            f"The text columns are {' and '.join(map(repr, columns))} of {listed(splits)}. Name one, "
            f"`--text_column_name {shlex.quote(columns[0])}`, or two: `--pairs --text_column_name sentence1,sentence2`"
        )
    return columns


def check_columns(
    splits: DatasetDict, columns: Iterable[str], flag: str, everywhere: bool, used: Iterable[str] = ()
) -> None:
    """Check that columns are in every split; those of labels in train, with a warning for other splits."""
    for column in columns:
        lacking = [split for split, rows in splits.items() if column not in rows.column_names]
        if lacking and (everywhere or "train" in lacking):
            raise UserError(
                f"{', '.join(lacking)} has no column {column!r} but {listed(splits)}. Name another"
                f"{suggested(splits[lacking[0]], flag, used)}"
            )
        if lacking and "train" in splits:
            logger.warning("No column %r in %s: predicted, not scored.", column, ", ".join(lacking))


def text_names(dataset: Dataset | FirstRows) -> list[str]:
    """The columns that hold texts."""
    features = dataset.features  # a deep copy, which takes seconds for hundreds of columns
    kinds = ("string", "large_string", "string_view")
    return [name for name in dataset.column_names if str(getattr(features[name], "dtype", "")) in kinds]


def list_names(dataset: Dataset | FirstRows) -> list[str]:
    """The columns that hold lists, such as the words of a sentence."""
    inner = {name: getattr(feature, "feature", None) for name, feature in dataset.features.items()}
    return [name for name in dataset.column_names if inner[name] is not None and not isinstance(inner[name], dict)]


def are_known(names: Iterable[str], more: Iterable[str] = ()) -> bool:
    """Whether any name is a known one, or one of `more`, in any case: those of a header line."""
    known = {*TOKENS, *TAGS, *_TEXTS, *_LABELS, *_CONTEXTS, *_ANSWERS, *itertools.chain(*_PAIRS), *more} - {"_"}
    return not {name.strip().casefold() for name in known}.isdisjoint(name.strip().casefold() for name in names)


def contents(dataset: Dataset | FirstRows, used: Iterable[str] = ()) -> tuple[list[str], list[str]]:
    """The columns that hold texts, and those in which few values repeat, fewest first; all by their first rows."""
    from .inspection import UNSPACED, are_numbers

    texts, classes = [], {}
    strings = text_names(dataset)
    for name in (name for name in dataset.column_names if name not in used and not _META.search(plain(name))):
        cells = [str(cell) for cell in dataset[name][:_ROWS_COMPARED] if cell is not None and str(cell).strip()]
        # In a language without spaces a word has two characters.
        words = sum(max(len(cell.split()), len(UNSPACED.findall(cell)) / 2) for cell in cells) / (len(cells) or 1)
        distinct = len({*cells})
        if words <= 3 and 1 < distinct <= len(cells) * 2 / 3:
            classes[name] = distinct
        elif name in strings and words > 2 and not are_numbers(cells) and not cells[0].startswith(("{", "[")):
            texts.append(name)
    return texts, sorted(classes, key=classes.__getitem__)


def suggested(dataset: Dataset | FirstRows, flag: str, used: Iterable[str] = (), pairs: bool = False) -> str:
    """The end of a message, with a column for a flag: by a known name, else by what the columns hold."""
    names = [name for name in dataset.column_names if name not in used]
    texts, classes = contents(dataset, used)
    if flag == "--label_column_name":
        words = next((dataset[name][:_ROWS_COMPARED] for name in used if name in list_names(dataset)), [])
        tags = [
            name
            for name in _called(names, list_names(dataset))
            if [*map(len, words)] == [len(cell or ()) for cell in dataset[name][:_ROWS_COMPARED]]
        ]
        classes = [name for name in classes if not _called((*_QUESTIONS, *_CONTEXTS, *_TEXTS), [name])]
        likely = [*_called((*_LABELS, *TAGS, "accept"), names), *(tags if words else classes)][:1]
    else:
        known = _called((*TOKENS, *_TEXTS), [*list_names(dataset), *texts])
        likely = texts if pairs and len(texts) < 3 else [*known, *(texts if len(texts) == 1 else ())][:1]
        likely = likely or [*list_names(dataset), *text_names(dataset)] * (len(names) == 1)
    if likely:
        return f", e.g. `{flag} {shlex.quote(','.join(likely))}`"
    return f": `{flag} NAME`" + (f" (texts are in {', '.join(map(repr, texts))})" if texts else "")


def check_classes(labels: Sequence[Any], texts: Iterable[Any], name: str, advice: str) -> None:
    """Check that labels repeat, as classes do; texts repeat more where the columns are swapped."""
    distinct = len(set(labels))
    if len(labels) < _FEWEST_ROWS or 2 * distinct <= len(labels) or len(set(texts)) >= distinct < len(labels):
        return
    raise UserError(
        f"{name} {distinct} different labels for {len(labels)} texts, such as {str(labels[0])[:60]!r}: these are "
        f"texts, identifiers or numbers, not classes. {advice}"
    )


def is_first_row(names: Iterable[str]) -> bool:
    """Whether column names look like texts, as those of a file without a header line."""
    return any(
        len(name.split()) > 5 or len(name) > 60 or name.rstrip().endswith((".", "!", "?", "。")) for name in names
    )


def listed(splits: DatasetDict) -> str:
    """The columns of the splits, once if they agree."""
    columns = {split: ", ".join(map(repr, dataset.column_names)) for split, dataset in splits.items()}
    if len(set(columns.values())) == 1:
        return next(iter(columns.values()))
    return "; ".join(f"{split}: {names}" for split, names in columns.items())


def _example(splits: DatasetDict) -> Dataset:
    return splits["train"] if "train" in splits else next(iter(splits.values()))


def _called(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """The columns with a known name, in the order of the known names; those in other case ("Text") come last."""
    known = list(known)
    exact = [name for meant in known for name in names if name == meant]
    return exact + [n for meant in known for n in names if n not in exact and n.strip().casefold() == meant]


def _first(
    splits: DatasetDict,
    names: Sequence[str],
    flag: str,
    without_train: str | None = None,
    without_header: str = "text,label",
    used: Iterable[str] = (),
    pairs: bool = False,
) -> str:
    """The first of some names; without a training split, a name that need not be there."""
    if names:
        return names[0]
    if without_train is not None and "train" not in splits:
        return without_train
    example = _example(splits)
    texts = [*text_names(example), *list_names(example)]
    known = _called((*TOKENS, *_TEXTS), example.column_names) if flag == "--text_column_name" else []
    if known and not set(known) & set(texts):
        kind = getattr(example.features[known[0]], "dtype", "other values")
        texts = [name for name in texts if name not in _called(_LABELS, texts)]
        other = f", or name the column of texts, --text_column_name {shlex.quote(texts[0])}" if texts else ""
        raise UserError(f"Column {known[0]!r} of {listed(splits)} holds {kind}, not texts: write strings in it{other}")
    rest = [*without_header.split(","), *["_"] * (len(example.column_names) - 2)]
    found, _ = contents(example, used)
    if pairs and len(found) == 2 < len(example.column_names):
        position = {found[0]: "sentence1", found[1]: "sentence2"}
        rest = [position.get(name) or rest.pop(1) for name in example.column_names]
    header = f"`--column_names {','.join(rest)}`"
    # The first label of a file without a header line comes again.
    is_cell = any(name in example[name][:_ROWS_COMPARED] for name in example.column_names)
    if len(example.column_names) == 2 and (is_cell or is_first_row(example.column_names)):
        raise UserError(
            f"The first line, {listed(splits)}, looks like a row. If there is no header line, write {header}"
        )
    if len(example.column_names) == 1 and flag == "--label_column_name":
        raise UserError(f"There is no other column than {listed(splits)}. Add a column of labels, such as 'label'.")
    kind = "texts" if flag == "--text_column_name" else "labels"
    is_header = _called((*_LABELS, *TAGS, *TOKENS, *_TEXTS), example.column_names)
    raise UserError(
        f"No column of {listed(splits)} has a known name of {kind}. Name it{suggested(example, flag, used, pairs)}"
        + ("" if is_header else f"; without a header line, name all: {header}")
    )


def _first_known(known: Iterable[Sequence[str]], texts: Sequence[str]) -> tuple[str, ...] | None:
    """The first pair, or other combination, of known names of which all are present."""
    for names in known:
        columns = [name for meant in names for name in _called((meant,), texts)[:1]]
        if len(columns) == len(names):
            return tuple(columns)
    return None


def _text_columns(splits: DatasetDict, given: str | Sequence[str] | None, label: str) -> tuple[str, ...]:
    example = _example(splits)
    if isinstance(given, str):
        return (given,) if given in example.column_names else tuple(name.strip() for name in given.split(","))
    if given is not None:
        return tuple(given)
    texts = [name for name in text_names(example) if name != label]
    columns = _first_known([*_PAIRS, *((name,) for name in _TEXTS)], texts)
    alone = texts if len(texts) == 1 and not is_first_row(texts) else []
    return columns or (_first(splits, alone, "--text_column_name", used=(label,), pairs=True),)


def _check(splits: DatasetDict, texts: Sequence[str], label: str) -> None:
    """Check that columns are distinct and present."""
    if len({*texts, label}) != len(texts) + 1:
        raise UserError(
            f"The text columns are {', '.join(texts)} and the label column is {label}. Name distinct ones of "
            f"{listed(splits)}: `--text_column_name NAME --label_column_name NAME`"
        )
    check_columns(splits, texts, "--text_column_name", everywhere=True, used=(label,))
    check_columns(splits, (label,), "--label_column_name", everywhere=False, used=texts)


# Names without case and marks: `was_cancelled` and "wasCancelled" are one.
_STATES = {
    *("answer", "status", "state", "decision", "verdict"),
    *(f"{part}status" for part in ("annotation", "label", "record", "response", "review")),
}
_REFUSED = {
    *("reject", "rejected", "ignore", "ignored", "discard", "discarded", "skip", "skipped"),
    *("cancelled", "canceled", "invalid"),
}
_REFUSALS = {prefix + word for prefix in ("", "is", "was") for word in _REFUSED - {"invalid"}}
_APPROVALS = {"accept", "accepted", "isaccepted", "wasaccepted"}
_IMPOSSIBLE = {prefix + word for prefix in ("", "is") for word in ("impossible", "unanswerable", "noanswer")}
_POSSIBLE = {"isanswerable", "answerable", "hasanswer"}
_YES, _NO = {"true", "1", "1.0", "yes"}, {"false", "0", "0.0", "no"}


def rejected_rows(split: str, dataset: Dataset, used: Iterable[str]) -> set[int]:
    """
    The rows that annotators rejected, cancelled or ignored, with a warning: Prodigy marks them in `answer`, Label
    Studio in `was_cancelled`, Argilla in `status`. A UserError where these are all.
    """
    rejected: set[int] = set()
    for column in dataset.column_names:
        name = plain(column)
        if column in used or name not in _STATES | _REFUSALS | _APPROVALS:
            continue
        cells = [str(cell).strip().lower() for cell in dataset[column][:]]
        refused = _refusing(name)
        rows = {row for row, cell in enumerate(cells) if cell in refused}
        if rows:
            listed = ", ".join(sorted({cells[row] for row in rows}))
            logger.warning("%d rows of %s are omitted: column %r has %s.", len(rows), split, column, listed)
        rejected |= rows
    if rejected and len(rejected) == len(dataset):
        raise UserError(f"Annotators rejected every row of the {split} split. Remove the column that says so.")
    return rejected


def is_rejected(row: Mapping[str, Any]) -> bool:
    """Whether a row says that annotators rejected, cancelled or ignored it; see `rejected_rows`."""
    marks = {name: cell for name, cell in row.items() if isinstance(cell, str | int)}
    return any(str(cell).strip().lower() in _refusing(plain(name)) for name, cell in marks.items())


def is_impossible(row: Mapping[str, Any]) -> bool | None:
    """Whether a row says that its question has no answer; `None` where no column says so."""
    for name, cell in row.items():
        written = str(cell).strip().lower()
        if plain(name) in _IMPOSSIBLE | _POSSIBLE and written in _YES | _NO:
            return (written in _YES) == (plain(name) in _IMPOSSIBLE)
    return None


def plain(name: str) -> str:
    """The name of a column without marks and capitals."""
    return re.sub(r"[\W_]", "", name).lower()


def _refusing(name: str) -> set[str]:
    """The values with which a column refuses a row."""
    if name in _STATES:
        return _REFUSED
    return _YES if name in _REFUSALS else _NO if name in _APPROVALS else set()


def text_columns(
    rows: Dataset | FirstRows,
    given: str | None,
    trained_on: str | None,
    *,
    pairs: bool = False,
    contexts: bool = False,
    questions: bool = False,
) -> tuple[str, ...]:
    """The columns of the texts: those that are given, those of the training, or those with known names."""
    if given is None and trained_on is not None and not contexts:
        names = [trained_on] if trained_on in rows.column_names else [name.strip() for name in trained_on.split(",")]
        if len(names) == 1 + (pairs or questions) and set(names) <= set(rows.column_names):
            given = trained_on
    if questions:
        splits: Any = {"file": rows}
        return find_reading_columns(splits, given)[:2]
    return find_predicted_columns(rows, given, pairs=pairs, contexts=contexts)


SPAN_TAGS = "span_tags"
"""The column of the tags."""
