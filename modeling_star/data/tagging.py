"""Words with tags: checked and encoded, as model inputs with a label per word, and predictions as labels of words."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from datasets import Dataset, DatasetDict, List, Value
from transformers import BatchEncoding, PreTrainedTokenizerBase

from ..errors import UserError
from ..models.tag_schemes import entity_tag
from .columns import SPAN_TAGS, find_tagging_columns, list_names, rejected_rows, text_names
from .files import source_version
from .formats.span_json import span_parts
from .inspection import inspect_tagging
from .labels import (
    IGNORE_INDEX,
    NO_LABEL,
    check_types,
    declared_names,
    entity_names,
    label_cells,
    label_ids,
    labels_of,
    literal_list,
    name_of,
    row_ref,
    short_repr,
)
from .splits import Labelled, NewColumn, check_train, drop_or_raise, replace_columns
from .tokenizers import length_limit, map_rows, warn_about_cuts
from .windows import NO_WORD, cut_windows, first_pieces, shorten_all
from .word_rows import sentences_of_words
from .writing_systems import split_words


logger = logging.getLogger(__name__)

Nested = Literal["outermost", "innermost"]


@dataclass(frozen=True)
class TaggingData(Labelled):
    """Rows with lists of words and of ids, or -100, by the names of `label_list`; none in a split without labels."""

    splits: DatasetDict
    text_column: str
    label_column: str
    label_list: tuple[str, ...]


# ------ Tagging


def prepare_tagging(
    splits: DatasetDict,
    *,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    label_list: Sequence[str] | None = None,
    drop_empty: bool = False,
) -> TaggingData:
    """
    Check every row of a tagging data set and encode its tags, without a change of their scheme. A text cell (csv) of
    words or tags is split at blanks. `label_list`: a saved model's labels; without it they come from the data: a
    `ClassLabel`'s names in their order, else "O" first, then by type, numbers by size.
    """
    splits = as_sentences(splits, text_column_name, label_column_name)
    text, label = find_tagging_columns(splits, text_column_name, label_column_name)
    words, tags, keep = {}, {}, {}
    for split, dataset in splits.items():
        rejected = rejected_rows(split, dataset, (text, label))
        words[split] = [_as_list(cell) for cell in dataset[text][:]]
        cells = label_cells(dataset, label)
        if cells is not None and any(cells):
            tags[split] = [None if row in rejected else _as_list(cell) for row, cell in enumerate(cells)]
        empty = [row for row, tokens in enumerate(words[split]) if not tokens and row not in rejected]
        drop_or_raise(split, empty, f"no words in column {text!r}", drop_empty)
        keep[split] = sorted(set(range(len(dataset))) - set(empty) - rejected)
        for row in keep[split]:
            _check_words(split, row, words[split][row], text)
            if split in tags:
                _check_tags(split, row, words[split][row], tags[split][row], label)
    check_train(splits, tags, label)
    labels, ids = _tag_ids(tags, label, declared_names(splits, label), label_list)
    result = {}
    for split, dataset in splits.items():
        columns: dict[str, NewColumn] = {label: (None, None)}
        if split in tags:
            columns[label] = ([[ids[tag] for tag in row or ()] for row in tags[split]], List(Value("int64")))
        if not hasattr(dataset.features[text], "feature"):
            columns[text] = (words[split], List(Value("string")))
        result[split] = replace_columns(dataset, columns, keep[split])
    data = TaggingData(DatasetDict(result), text, label, labels)
    inspect_tagging(data.splits, text, label, labels)
    return data


def as_sentences(
    splits: DatasetDict,
    text_column_name: str | None = None,
    label_column_name: str | None = None,
    nested: Nested = "outermost",
) -> DatasetDict:
    """
    The splits with a sentence and its tags per row, where files have labelled characters, a word per row, or entities
    as spans of words: `[[first, end, type], ...]`, ends exclusive; `nested`: which of those that share words are tags.
    """
    names = text_column_name, label_column_name
    splits = sentences_of_words(named_as_others(splits, *names), *names)
    text, label = find_tagging_columns(splits, *names)
    return DatasetDict({split: _with_tags(split, rows, text, label, nested) for split, rows in splits.items()})


def _with_tags(split: str, rows: Dataset, text: str, label: str, nested: Nested) -> Dataset:
    """Rows whose column of spans of words, if it is one, has BIO tags instead."""
    is_read = label in rows.column_names and text in list_names(rows)
    cells = [_as_spans(cell) for cell in rows[label][:]] if is_read else []
    spans = next((cell for cell in cells if cell), None)
    if not (isinstance(spans, list) and all(map(_is_span, spans))):
        return rows
    tags, omitted = [], 0
    for row, (words, entities) in enumerate(zip(rows[text][:], cells, strict=True)):
        own = ["O"] * len(words)
        order = sorted(entities or [], key=lambda span: span[1] - span[0], reverse=nested == "outermost")
        for span in order:
            if not _is_span(span) or not 0 <= span[0] < span[1] <= len(words):
                raise UserError(
                    f"{row_ref(split, row)}: {short_repr(span)} in column {label!r} is no span of its {len(words)} "
                    "words. Write [first word, the one after the last, type], counted from 0."
                )
            first, end, kind = span
            if any(tag != "O" for tag in own[first:end]):
                omitted += 1
                continue
            own[first:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - first - 1)]
        tags.append(own)
    if omitted:
        other = "innermost" if nested == "outermost" else "outermost"
        logger.warning(
            f"{split}: {omitted:,} entities share words with others, of which the {nested} are kept "
            f"(--nested_entities {other} for the others)."
        )
    return replace_columns(rows, {label: (tags, List(Value("string")))}, range(len(rows)))


def _is_span(span: Any) -> bool:
    """Whether a value is `[first, end, type]`."""
    kinds = (int, int, str)
    return isinstance(span, list) and len(span) == 3 and all(map(isinstance, span, kinds))


def _as_spans(cell: Any) -> Any:
    """Spans of words in any of the ways of `span_parts` as lists; other cells as they are."""
    if not isinstance(cell, list) or not cell or not all(map(span_parts, cell)):
        return cell
    return [[*part[:3]] for value in cell for part in span_parts(value)]


def _as_list(cell: Any) -> Any:
    """A text cell (csv has no lists) as a list."""
    if not isinstance(cell, str):
        return cell
    written = literal_list(cell)
    return cell.split() if written is None else written


def _check_words(split: str, row: int, words: Any, column: str) -> None:
    if not isinstance(words, list) or any(not isinstance(word, str) for word in words):
        raise UserError(
            f"{row_ref(split, row)}: column {column!r} has {short_repr(words)}, not a list of words. Name the column "
            "of words: `--text_column_name tokens`"
        )


def _check_tags(split: str, row: int, words: list[str], tags: Any, column: str) -> None:
    if not isinstance(tags, list) or len(tags) != len(words) or None in tags:
        count = len(tags) if isinstance(tags, list) else "no"
        if count != "no" and any(isinstance(tag, list | tuple | dict) for tag in tags):
            raise UserError(
                f"{row_ref(split, row)} has spans in column {column!r}, {short_repr(tags)}. Spans are read from json, "
                '{"text": "Mira went", "entities": [{"start": 0, "end": 4, "label": "PER"}]}, or, counted in words, '
                '{"tokens": ["Mira", "went"], "entities": [[0, 1, "PER"]]}'
            )
        if count == 1 and "-" not in str(tags[0]):
            raise UserError(
                f"{row_ref(split, row)} has {len(words)} words and one label, {short_repr(tags[0])}. Write "
                "`modeling-star classify` to classify texts, or name a column with a tag per word: --label_column_name"
            )
        raise UserError(
            f"{row_ref(split, row)} has {len(words)} words and {count} tags in column {column!r}, {short_repr(tags)}. "
            'Write a list with one tag per word, "O" for none, or name another column: --label_column_name'
        )


def _tag_ids(
    tags: dict[str, list[Any]], column: str, declared: Sequence[str], label_list: Sequence[str] | None
) -> tuple[tuple[str, ...], dict[Any, int]]:
    """The label list, and the id of every tag; a split all of whose labels are unknown is removed from `tags`."""
    used = [(split, row, tag) for split, row, items in labels_of(tags) for tag in items if tag not in NO_LABEL]
    check_types(used, column, (str, int))
    names: dict[str, set[str]] = {split: set() for split in tags}
    for split, _, tag in used:
        names[split].add(name_of(tag))
    spelled = _usual_names(names, set(declared), set(label_list or ()))
    names = {split: {spelled.get(name, name) for name in own} for split, own in names.items()}
    declared = list(dict.fromkeys(spelled.get(name, name) for name in declared))
    unknown = set() if label_list else _outside_train(names, declared)
    for split in [split for split, own in names.items() if own and unknown >= own]:
        del tags[split], names[split]
    labels, ids = label_ids({split: own - unknown for split, own in names.items()}, declared, label_list)
    ids |= dict.fromkeys(unknown, IGNORE_INDEX)
    of_tags = {tag: ids[spelled.get(name_of(tag), name_of(tag))] for _, _, tag in used}
    return labels, of_tags | dict.fromkeys(NO_LABEL, IGNORE_INDEX)


def _usual_names(names: Mapping[str, set[str]], declared: set[str], saved: set[str]) -> dict[str, str]:
    """Tags of entities in their usual spelling; a warning says where that is another, or where some are no tags."""
    every = declared.union(*names.values())
    train = declared | names.get("train", every)
    if saved >= every:
        return {}
    # A saved model has O, also where the data have another name for it.
    spelled = next(filter(None, map(entity_names, (every | saved - {"O"}, every | saved, every, train))), {})
    if not spelled and any({name[:2].upper(), name[-2:]} & {"B-", "B_", "-B", "_B"} for name in train):
        others = sorted(name for name in train if entity_tag(name) is None)
        logger.warning(
            "Labels such as %s are not read as tags of entities: accuracy of words is scored, not F1 of entities, "
            "and a new model has no CRF. Write O for words outside of entities, and B-TYPE or I-TYPE inside.",
            ", ".join(map(short_repr, others[:5])),
        )
    changed = [f"{name!r} as {spelled[name]!r}" for name in sorted(every & spelled.keys()) if spelled[name] != name]
    if changed:
        logger.warning("Labels are read as tags of entities: %s. Write them so in the data.", ", ".join(changed[:10]))
    return spelled


def _outside_train(names: Mapping[str, set[str]], declared: Sequence[str]) -> set[str]:
    """The labels that only other splits have, which no model can learn, but those of an entity that train has."""
    known = {*declared, *names.get("train", ())}
    types = {tag[1] for tag in map(entity_tag, known) if tag} - {""}
    unknown: set[str] = set()
    for split, own in names.items() if known else ():
        lacking = {name for name in own - known if (entity_tag(name) or ("", ""))[1] not in types}
        if lacking and (len(lacking) < len(own) or len(own) == 1):
            logger.warning(
                "%s: words with %s are not scored, since train has no such label. Correct the label, or add such "
                "sentences to the training file.",
                split,
                ", ".join(map(short_repr, sorted(lacking)[:10])),
            )
            unknown |= lacking
    return unknown


def named_as_others(splits: DatasetDict, text_column_name: str | None, label_column_name: str | None) -> DatasetDict:
    """The splits of `as_rows` with the columns, and the division into words, of the splits in other formats."""
    others = DatasetDict({split: rows for split, rows in splits.items() if SPAN_TAGS not in rows.column_names})
    if len(others) == len(splits):
        return splits
    text, label = text_column_name or "tokens", label_column_name or SPAN_TAGS
    if others:
        text, label = find_tagging_columns(others, text_column_name, label_column_name)
    result = {}
    for split, rows in splits.items():
        if SPAN_TAGS in rows.column_names:
            rows = Dataset.from_dict({text: rows["tokens"][:], label: rows[SPAN_TAGS][:]})
        elif label not in rows.column_names and text in text_names(rows):
            words = [[cell[start:end] for start, end in split_words(cell or "")] for cell in rows[text][:]]
            rows = Dataset.from_dict({**{name: rows[name][:] for name in rows.column_names}, text: words})
        result[split] = rows
    return DatasetDict(result)


_MAY_DIFFER = 0.05  # share of sentences


def tokenize_and_align(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    tokens_column: str = "tokens",
    tags_column: str | None = "tags",
    max_seq_length: int | None = None,
    stride: int | None = None,
    split: str = "data",
) -> Dataset:
    """
    Tagged words as model inputs with a label at each word's first piece and -100 elsewhere. A word without tokens
    (empty, white space) becomes the unknown token, so that every word counts.

    Args:
        dataset: rows with `tokens_column` (words) and `tags_column` (as many numbers of labels, or `None`).
        tokenizer: a fast tokenizer that pads on the right.
        max_seq_length: the most tokens of a row, special tokens included; None: the tokenizer's limit.
        stride: a longer row becomes several that share so many tokens, and each word is labelled and read in the one
            where it has the most context; None: it is cut, with one warning.

    Returns:
        The model inputs, `labels [n]`, and what `predictions_to_words` needs: `word_ids [n]` (the word whose label is
        read at this token, -1 elsewhere), `example_index` (the row of `dataset`), `num_words`.
    """
    if tokenizer.padding_side != "right":
        raise ValueError('Words are found by counting tokens from the left: set tokenizer.padding_side = "right".')
    limit = length_limit(tokenizer, max_seq_length)
    if stride is not None:
        room = 0 if limit is None else limit - tokenizer.num_special_tokens_to_add()
        if not 0 <= stride < room:
            raise ValueError(f"stride={stride} must be less than max_seq_length without special tokens ({room}).")
    encode = _WordEncoder(
        tokenizer=tokenizer,
        tokens_column=tokens_column,
        tags_column=tags_column,
        limit=limit,
        stride=stride,
    )
    features = map_rows(dataset, encode, f"Tokenizing {split}")
    advice = (
        "Raise max_seq_length, if the model takes more, or set stride (16, say) to read them in overlapping windows."
    )
    return warn_about_cuts(features, split, limit, advice)


@dataclass
class _WordEncoder:
    """Encodes a batch of rows for `tokenize_and_align`. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    tokens_column: str
    tags_column: str | None
    limit: int | None
    stride: int | None
    version: str = source_version(__name__, cut_windows.__module__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        sentences: list[list[str]] = batch[self.tokens_column]
        encoding = self._encode(sentences)
        from_end = self.tokenizer.truncation_side == "left"
        columns = {name: encoding[name] for name in self.tokenizer.model_input_names if name in encoding}
        rows: list[dict[str, Any]] = []
        for row, sentence in enumerate(sentences):
            words = encoding.word_ids(row)
            is_content = [word is not None for word in words]
            windows = cut_windows(is_content, self.limit, self.stride, from_end=from_end)
            pieces = first_pieces(words, windows)
            reads = [window.words_read(pieces) for window in windows]
            counts = {"example_index": indices[row], "num_words": len(sentence), "cut_tokens": 0, "cut_words": 0}
            if self.stride is None and len(windows[0].tokens) < len(words):
                counts["cut_tokens"] = len(words) - len(windows[0].tokens)
                counts["cut_words"] = len(sentence) - sum(word != NO_WORD for word in reads[0])
            for window, read in zip(windows, reads, strict=True):
                tokens = window.tokens.tolist()
                inputs = {name: [cells[row][token] for token in tokens] for name, cells in columns.items()}
                if self.tags_column is not None:
                    tags = batch[self.tags_column][row]
                    inputs["labels"] = [IGNORE_INDEX if word == NO_WORD else tags[word] for word in read]
                rows.append({**inputs, "word_ids": read, **counts})
        return {name: [row[name] for row in rows] for name in rows[0]}

    def _encode(self, sentences: list[list[str]]) -> BatchEncoding:
        """Encode; words without tokens are encoded again as the unknown token."""
        encoding = self._tokenize(sentences)
        seen = [{*encoding.word_ids(row)} - {None} for row in range(len(sentences))]
        unknown = self.tokenizer.unk_token
        if unknown is None or all(len(ids) == len(words) for words, ids in zip(sentences, seen, strict=True)):
            return encoding
        known = [
            [word if index in ids else unknown for index, word in enumerate(words)]
            for words, ids in zip(sentences, seen, strict=True)
        ]
        return self._tokenize(known)

    def _tokenize(self, sentences: list[list[str]]) -> BatchEncoding:
        short = [shorten_all(words, self.tokenizer) for words in sentences]
        return self.tokenizer(short, is_split_into_words=True, verbose=False)


def predictions_to_words(
    features: Dataset, predictions: np.ndarray, label_list: Sequence[str], *, fill: str = "O"
) -> list[list[str]]:
    """
    The predicted label of each word, from logits `[rows, n, labels]` or label indices `[rows, n]` of the rows of
    `tokenize_and_align`, whose padding is not read; `fill`: the label of words that were cut off.
    """
    predictions = np.asarray(predictions)
    if len(predictions) != len(features):
        raise ValueError(f"{len(predictions)} rows of predictions for {len(features)} rows of features.")
    if predictions.ndim == 3:
        predictions = predictions.argmax(axis=-1)
    sentences: dict[int, list[str]] = {}
    rows = zip(features["example_index"], features["num_words"], features["word_ids"], predictions, strict=True)
    for example, num_words, word_ids, row in rows:
        sentence = sentences.setdefault(example, [fill] * num_words)
        for token, word in enumerate(word_ids):
            if word != NO_WORD:
                sentence[word] = label_list[int(row[token])]
    return [sentences[example] for example in sorted(sentences)]


def warn_of_other_tokens(
    sentences: Sequence[Sequence[str]], between: str, tokenizer: PreTrainedTokenizerBase, split: str
) -> None:
    """Warn where the words of the data have other tokens than their text, joined by `between`, in a pipeline."""
    by_word = tokenizer([list(words) for words in sentences], is_split_into_words=True, verbose=False)
    as_text = tokenizer([between.join(words) for words in sentences], verbose=False)
    other = [
        row
        for row, words in enumerate(sentences)
        if by_word["input_ids"][row] != as_text["input_ids"][row]
        or len({*by_word.word_ids(row)} - {None}) < len(words)
    ]
    if len(other) > _MAY_DIFFER * len(sentences):
        words, text = (encoding.tokens(other[0])[1:-1] for encoding in (by_word, as_text))
        first = next((index for index, pair in enumerate(zip(words, text, strict=False)) if len({*pair}) > 1), 0)
        logger.warning(
            "%d of %d sentences of the %s split have other tokens as texts than as words, and the model is trained on "
            "words: %s instead of %s. To predict, give words: predict MODEL --file with such a file, or a pipeline "
            "with is_split_into_words=True and delimiter=%r.",
            len(other),
            len(sentences),
            split,
            " ".join(text[first : first + 4]),
            " ".join(words[first : first + 4]),
            between,
        )
