"""Which columns hold the words, the tags, the texts and the labels: those that are named, else by name and type."""

import difflib
import itertools
import logging
import re
import shlex
from collections.abc import Iterable, Sequence

from datasets import Dataset, DatasetDict

from ..errors import UserError
from ..models.crf import entity_tag
from .labels import GOLD_LABEL


logger = logging.getLogger(__name__)

task_to_keys: dict[str, tuple[str, ...]] = {
    "cola": ("sentence",),
    "mnli": ("premise", "hypothesis"),
    "mrpc": ("sentence1", "sentence2"),
    "qnli": ("question", "sentence"),
    "qqp": ("question1", "question2"),
    "rte": ("sentence1", "sentence2"),
    "sst2": ("sentence",),
    "stsb": ("sentence1", "sentence2"),
    "wnli": ("sentence1", "sentence2"),
}
"""The text columns of the nine GLUE tasks."""

_FILE = "file"
"""Stands for the split of a file that a saved model is to read."""

_ROWS_COUNTED = 1000

_SENTENCE_END = re.compile(r"[.!?。！？…]\W*$")

_TOKEN_COLUMNS = ("tokens", "words", "token", "form", "text", "sentence")
_TAG_COLUMNS = ("ner_tags", "tags", "labels", "label", "ner", "pos_tags", "upos", "pos", "xpos_tags", "chunk_tags")
_TAGS_OF_ANY_TASK = ("tags", "labels", "label")
_PAIR_COLUMNS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text1", "text2"),
    ("text_a", "text_b"),
)
_TEXT_COLUMNS = (
    "text",
    "sentence",
    "review",
    "content",
    "comment",
    "document",
    "tweet",
    "question",
    "文本",
    "句子",
    "内容",
    "评论",
    "正文",
)
_QUESTION_COLUMNS = ("question", "query")
_CONTEXT_COLUMNS = ("context", "passage", "paragraph", "document", "text")
_ANSWER_COLUMNS = ("answers", "answer")
_LABEL_COLUMNS = (
    "label",
    "labels",
    GOLD_LABEL,
    "class",
    "category",
    "sentiment",
    "target",
    "score",
    "stars",
    "rating",
    "标签",
    "类别",
    "分类",
    "情感",
)


def find_tagging_columns(
    splits: DatasetDict,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
) -> tuple[str, str]:
    """The columns of the words and of the tags: those named, else by name and type.

    Args:
        task_name: "ner", "pos", "chunk": tags are in `{task_name}_tags`, in another column with the task in its name
            ("upos"), or in one that names no task ("tags").

    Raises:
        UserError: a named column is absent, or none or several could be meant; the columns present are listed.
    """
    example = splits["train"] if "train" in splits else next(iter(splits.values()))
    lists = [name for name in example.column_names if is_list(example, name)]
    texts = [name for name in example.column_names if is_text(example, name)]
    if text_column_name is None:
        # A list wins over a text of the same rows, as in {"text": "It rains", "tokens": ["It", "rains"]}.
        names = [name for kind in (lists, texts) for name in _called(_TOKEN_COLUMNS, kind)]
        if not names:
            raise _no_column(splits, "words", "--text_column_name", "a list of words")
        text_column_name = names[0]
    if label_column_name is None:
        others = [name for name in lists if name != text_column_name]
        known: tuple[str, ...] = _TAG_COLUMNS
        if task_name:
            own = [name for name in _TAG_COLUMNS if task_name in name]
            known = (f"{task_name}_tags", task_name, *own, *_TAGS_OF_ANY_TASK)
            others = [name for name in others if name not in _called(_TAG_COLUMNS, others)]
        names = _called(known, [*lists, *texts])
        names = [name for name in names if name != text_column_name] or (others if len(others) == 1 else [])
        if not names and "train" in splits:
            raise _no_column(splits, "tags", "--label_column_name", "a list of tags, one a word")
        label_column_name = names[0] if names else "tags"
    check_columns(splits, (text_column_name,), "--text_column_name", everywhere=True)
    check_columns(splits, (label_column_name,), "--label_column_name", everywhere=False)
    if text_column_name == label_column_name:
        raise UserError(f"Words and tags cannot be in one column, {text_column_name!r}. Name two: {listed(splits)}.")
    return text_column_name, label_column_name


def find_classification_columns(
    splits: DatasetDict,
    text_column_name: str | Sequence[str] | None = None,
    label_column_name: str | None = None,
    task_name: str | None = None,
) -> tuple[tuple[str, ...], str]:
    """The one or two text columns and the label column: those named, else by name and type.

    Args:
        text_column_name: a name, two names, or two in one text with a comma between them.
        task_name: one of the GLUE tasks of `task_to_keys`.

    Raises:
        UserError: a named column is absent, or none or several could be meant; the columns present are listed.
    """
    example = splits["train"] if "train" in splits else next(iter(splits.values()))
    present = example.column_names
    if label_column_name is None:
        names = _called(_LABEL_COLUMNS, present)
        if not names and "train" in splits:
            raise _no_column(splits, "labels", "--label_column_name", "the labels")
        label_column_name = names[0] if names else "label"
    if text_column_name is None:
        columns = _detect_texts(splits, example, label_column_name, task_name)
    elif isinstance(text_column_name, str):
        columns = tuple(name.strip() for name in text_column_name.split(","))
        columns = (text_column_name,) if text_column_name in present else columns
    else:
        columns = tuple(text_column_name)
    if len(columns) not in (1, 2) or label_column_name in columns or len(set(columns)) != len(columns):
        raise UserError(
            f"The text columns are {', '.join(map(repr, columns))} and the label column is {label_column_name!r}. "
            f"Name one or two text columns and another for the label, of {listed(splits)}: e.g. "
            "`--text_column_name sentence1,sentence2 --label_column_name label`"
        )
    check_columns(splits, columns, "--text_column_name", everywhere=True)
    check_columns(splits, (label_column_name,), "--label_column_name", everywhere=False)
    return columns, label_column_name


def find_reading_columns(
    splits: DatasetDict, text_column_name: str | None = None, label_column_name: str | None = None
) -> tuple[str, str, str]:
    """The columns of the questions, of their contexts and of the answers: those named, else by name.

    Args:
        text_column_name: the first two, with a comma between them.

    Raises:
        UserError: a named column is absent, or none could be meant; the columns present are listed.
    """
    present = (splits["train"] if "train" in splits else next(iter(splits.values()))).column_names
    if label_column_name is None:
        names = _called(_ANSWER_COLUMNS, present)
        if not names and "train" in splits:
            raise _no_column(splits, "answers", "--label_column_name", "the answers")
        label_column_name = names[0] if names else "answers"
    if text_column_name is None:
        found = [_called(names, present) for names in (_QUESTION_COLUMNS, _CONTEXT_COLUMNS)]
        if not all(found):
            raise UserError(
                f"Which columns hold the questions and their contexts? The columns are {listed(splits)}. Name both, "
                "e.g. `--text_column_name question,context`"
            )
        columns = [names[0] for names in found]
    else:
        columns = [name.strip() for name in text_column_name.split(",")]
    if len(columns) != 2 or len({*columns, label_column_name}) != 3:
        raise UserError(
            f"The columns are {', '.join(map(repr, columns))} and, for the answers, {label_column_name!r}. Name three "
            f"of {listed(splits)}: e.g. `--text_column_name question,context --label_column_name answers`"
        )
    check_columns(splits, columns, "--text_column_name", everywhere=True)
    check_columns(splits, (label_column_name,), "--label_column_name", everywhere=False)
    return columns[0], columns[1], label_column_name


def find_text_column(splits: DatasetDict, text_column_name: str | None = None) -> str:
    """The column of running text: the one named, else by name and type.

    Raises:
        UserError: a named column is absent, or none or several could be meant; the columns present are listed.
    """
    if text_column_name is None:
        example = splits["train"] if "train" in splits else next(iter(splits.values()))
        texts = [name for name in example.column_names if is_text(example, name)]
        names = _called(_TEXT_COLUMNS, texts) or (texts if len(texts) == 1 else [])
        if not names or is_first_row(names):
            raise _no_column(splits, "texts", "--text_column_name", "the texts")
        text_column_name = names[0]
    check_columns(splits, (text_column_name,), "--text_column_name", everywhere=True)
    return text_column_name


def find_predicted_columns(
    rows: Dataset, text_column_name: str | None = None, *, pairs: bool = False, contexts: bool = False
) -> tuple[str, ...]:
    """The one column, or for pairs the two, of what a saved model is to read: those named, else by name and type.

    Args:
        text_column_name: a name, or two with a comma between them.
        contexts: a question is asked about each text.

    Raises:
        UserError: a named column is absent, or none, or another number, could be meant; those present are listed.
    """
    splits = DatasetDict({_FILE: rows})
    # A csv has no lists: there words count where nothing else is called a text.
    written = not _called(_TEXT_COLUMNS, rows.column_names)
    words = [
        name
        for name in _called(_TOKEN_COLUMNS, rows.column_names)
        if is_list(rows, name) or (is_text(rows, name) and written)
    ]
    known = _called(_CONTEXT_COLUMNS, rows.column_names) if contexts else []
    if text_column_name is None and (words or known) and not pairs:
        return ([*known, *words][0],)
    named = {name.strip() for name in (text_column_name or "").split(",")} | {text_column_name}
    label = next((name for name in _called(_LABEL_COLUMNS, rows.column_names) if name not in named), "")
    texts = [name for name in rows.column_names if is_text(rows, name) and name != label]
    in_pairs = any(all(_called((name,), texts) for name in columns) for columns in _PAIR_COLUMNS)
    if text_column_name is None and pairs and len(texts) == 2 and not in_pairs and not is_first_row(texts):
        return texts[0], texts[1]
    columns, _ = find_classification_columns(splits, text_column_name, None if text_column_name is None else label)
    if len(columns) != 1 + pairs:
        told = " and ".join(map(repr, columns))
        if pairs:
            advice = "--pairs reads two columns, e.g. `--text_column_name sentence1,sentence2`"
        else:
            advice = f"Write --pairs, or name one of them, e.g. `--text_column_name {shlex.quote(columns[0])}`"
        raise UserError(f"The texts are in {told}, of {listed(splits)}. {advice}")
    return columns


def _detect_texts(splits: DatasetDict, example: Dataset, label: str, task_name: str | None) -> tuple[str, ...]:
    texts = [name for name in example.column_names if is_text(example, name) and name != label]
    task = [task_to_keys[task_name]] if task_name in task_to_keys else []
    for columns in (*task, *_PAIR_COLUMNS, *((name,) for name in _TEXT_COLUMNS)):
        found = [_called((name,), texts)[:1] for name in columns]
        if all(found):
            return tuple(name for names in found for name in names)
    if len(texts) != 1 or is_first_row(texts):
        raise _no_column(splits, "texts", "--text_column_name", "the texts (for pairs two names, with a comma)")
    return (texts[0],)


def _called(known: Iterable[str], names: Sequence[str]) -> list[str]:
    """Those of some columns that have a known name, in the order of these; Text, which is meant as text, after it."""
    found = [name for meant in known for name in names if name == meant]
    return found + [
        name for meant in known for name in names if name not in found and name.strip().casefold() == meant
    ]


def is_text(dataset: Dataset, name: str) -> bool:
    return str(getattr(dataset.features[name], "dtype", "")) in ("string", "large_string", "string_view")


def is_text_name(name: str) -> bool:
    """Whether a column of this name is taken for texts by its name."""
    known = (*_TEXT_COLUMNS, *_TOKEN_COLUMNS, *_CONTEXT_COLUMNS, *itertools.chain(*_PAIR_COLUMNS))
    return bool(_called(known, [name]))


def is_list(dataset: Dataset, name: str) -> bool:
    """Whether a column holds lists, of words say."""
    inner = getattr(dataset.features[name], "feature", None)
    return inner is not None and not isinstance(inner, dict)


def listed(splits: DatasetDict) -> str:
    """The columns of the splits, said once where they agree."""
    columns = {split: ", ".join(map(repr, dataset.column_names)) for split, dataset in splits.items()}
    if len(set(columns.values())) == 1:
        return next(iter(columns.values()))
    return "; ".join(f"{split}: {names}" for split, names in columns.items())


def is_first_row(names: Iterable[str]) -> bool:
    """Whether what stands for column names looks like texts: then the file has no header line."""
    return any(len(name.split()) > 5 or len(name) > 60 or _SENTENCE_END.search(name) for name in names)


def _no_column(splits: DatasetDict, what: str, flag: str, holds: str) -> UserError:
    names = _in_all(splits)
    if what in ("words", "tags") and any(entity_tag(name) for name in names):
        order = ",".join(["tokens", *["_"] * (len(names) - 2), "ner_tags"])
        return UserError(
            f"The first line, {listed(splits)}, is read as the names of columns, and one of them is a tag. Where it "
            f"is a word with its tag, name the columns: `--column_names {order}`, with _ for those to leave out"
        )
    if what in ("words", "tags") and (advice := _other_notation(splits)):
        return UserError(f"Which column holds the {what}? The columns are {listed(splits)}. {advice}")
    known = {"words": _TOKEN_COLUMNS, "tags": _TAG_COLUMNS, "texts": _TEXT_COLUMNS, "answers": _ANSWER_COLUMNS}
    meant = known.get(what, _LABEL_COLUMNS)
    alike = [name for name in names if name.strip().casefold() in meant]
    alike += [name for name in names if set(re.split(r"[\W_]+", name.casefold())) & set(meant)]  # Review Text
    others = [name for name in names if meant in (_TEXT_COLUMNS, _TOKEN_COLUMNS) or not is_text_name(name)]
    if meant == _LABEL_COLUMNS:  # the one with the fewest
        rows = next(iter(splits.values())).select_columns(others)[:_ROWS_COUNTED]
        others = sorted(others, key=lambda name: len(set(map(str, rows[name]))))
    example = shlex.quote([*alike, *others, *names, "NAME"][0])
    advice = f"Name the one that holds {holds}, e.g. `{flag} {example}`"
    if len(names) == 1:
        advice += "; where cells are parted by something else than commas or, in a .tsv, tabs, write them so; and "
        advice += "where the first line names no columns, `--column_names text,label` (`text` alone for texts to read)"
    else:
        advice += _without_header(splits, what)
    return UserError(f"Which column holds the {what}? The columns are {listed(splits)}. {advice}")


def _other_notation(splits: DatasetDict) -> str:
    """What to write where entities are told by their places in a text, or each row is a word; else nothing."""
    dataset = next(iter(splits.values()))
    for name, feature in dataset.features.items():
        inner = getattr(feature, "feature", None)
        if isinstance(inner, dict) and {"start", "end"} <= inner.keys():
            return (
                f"{name!r} tells entities by their places in the text, which is not read: write the words of each "
                'text with a tag each, {"tokens": ["Anna", "left"], "ner_tags": ["B-PER", "O"]}'
            )
    word = next((name for name in dataset.column_names if name.strip().casefold() in ("word", "token")), None)
    if word is not None and not is_list(dataset, word):
        return (
            f"{word!r} holds one word a row. Sentences are needed: write a CoNLL file, a word and its tag a line and "
            "an empty line after each sentence, or lists of words and of tags in a .jsonl"
        )
    return ""


def _without_header(splits: DatasetDict, what: str = "texts") -> str:
    """What to write where names look like a row, or may be a word with its tag; else nothing."""
    if what in ("words", "tags"):
        return (
            ". Where the first line of a csv or tsv is a word with its tag and names no columns, name them in their "
            "order: `--column_names tokens,ner_tags`, with _ for those to leave out"
        )
    if not any(is_first_row(dataset.column_names) for dataset in splits.values()):
        return ""
    return (
        ". Where the first line of a csv or tsv is a row and names no columns, name them in their order, e.g. "
        "`--column_names text,label`"
    )


def _tell_of_unlabelled(splits: DatasetDict, split: str, column: str) -> None:
    """
    Warn that a split has no labels.

    Raises:
        UserError: it has some, in a column of another name.
    """
    known = {name for names in (_TAG_COLUMNS, _LABEL_COLUMNS, _ANSWER_COLUMNS) if column in names for name in names}
    others = [name for name in splits[split].column_names if name not in splits["train"].column_names]
    meant = [name for name in others if name.strip().casefold() == column.strip().casefold() or name in known]
    if meant:
        raise UserError(
            f"The {split} split has no column {column!r} as train has, but {meant[0]!r}: rename it to {column!r}, and "
            f"the split is scored, or leave it out of the file, and the split is only predicted. The columns are "
            f"{listed(splits)}."
        )
    logger.warning("The %s split has no column %r: it is predicted, not scored.", split, column)


def _in_all(splits: DatasetDict) -> list[str]:
    """The columns that every split has."""
    first, *others = (dataset.column_names for dataset in splits.values())
    return [name for name in first if all(name in names for names in others)]


def check_columns(splits: DatasetDict, columns: Iterable[str], flag: str, everywhere: bool) -> None:
    """
    Named columns must be in every split, or (labels) in train, or in one split where there is no train; others that
    lack labels are told of.

    Raises:
        UserError: a column is absent, or has another name in one split.
    """
    for column in columns:
        lacking = [split for split, dataset in splits.items() if column not in dataset.column_names]
        if not everywhere and "train" not in lacking:
            for split in lacking if "train" in splits else ():
                _tell_of_unlabelled(splits, split, column)
            continue
        if not lacking:
            continue
        present = _in_all(splits)
        if len(lacking) < len(splits) or not present:
            advice = f"Rename what is meant there to {column!r}: a column has one name in all files."
        else:
            meant = (difflib.get_close_matches(column, present, n=1) or present)[0]
            advice = f"Write one of them, e.g. `{flag} {shlex.quote(meant)}`"
        place = "the file" if list(splits) == [_FILE] else f"the split {', '.join(lacking)}"
        raise UserError(
            f"There is no column {column!r} in {place}. The columns are {listed(splits)}. "
            f"{advice}{_without_header(splits)}"
        )
