"""The roles of the columns of a CoNLL file, from its header line or from the values in its first lines."""

import re
from collections.abc import Sequence
from itertools import chain, groupby, pairwise
from typing import NamedTuple

from ...models.tag_schemes import entity_tag
from ..columns import PARTS_OF_SPEECH, TAGS, TOKENS


GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(.+)")
"""The line of CoNLL-U Plus that names the columns."""
RANGE_OR_EMPTY_NODE = re.compile(r"\d+[-.]\d+")
"""The number of a range ("3-4") or an empty node ("5.1") of CoNLL-U, which is no word."""
SENTENCE_END = re.compile("EndOfSentence|PySBDSegment")
"""The marks of HIPE's column MISC after the last word of a sentence."""
_NAMES = {
    1: ["tokens"],
    2: ["tokens", "tags"],
    4: ["tokens", "pos_tags", "chunk_tags", "ner_tags"],  # CoNLL-2003
}
_CONLLU = {1: "tokens", 3: "pos_tags", 4: "xpos_tags"}  # of ID FORM LEMMA UPOS XPOS ...
_CONLLU_NAMES = {"FORM": "tokens", "UPOS": "pos_tags", "XPOS": "xpos_tags"}
_CONLLU_OTHERS = ("ID", "LEMMA", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC", "_")
_WORD_NAMES = [name for name in TOKENS if name != "sentence"]
_NUMBER_NAMES = ("id", "idx", "index", "no", "#", "token_id", "word_id")
_OTHER_NAMES = (
    *(*_NUMBER_NAMES, "lemma", "xpos", "feats", "head", "deprel", "deps", "misc"),
    *("sentence", "document", "_"),
)
_CHUNKS = frozenset(["NP", "VP", "PP", "ADVP", "ADJP", "SBAR", "PRT", "CONJP", "INTJ", "LST", "UCP"])
_WORD_CLASSES = {
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN"),
    *("PUNCT", "SCONJ", "SYM", "VERB", "X", "CC", "CD", "DT", "EX", "FW", "IN", "JJ", "JJR", "JJS", "LS"),
    *("MD", "NN", "NNS", "NNP", "NNPS", "PDT", "POS", "PRP", "PRP$", "RB", "RBR", "RBS", "RP", "TO", "UH"),
    *("VB", "VBD", "VBG", "VBN", "VBP", "VBZ", "WDT", "WP", "WP$", "WRB", ".", ",", ":", "``", "''", "-LRB-"),
    *("-RRB-", "#", "$", "HYPH", "NFP", "ADD", "AFX"),
}
"""The parts of speech of Universal Dependencies and of the Penn Treebank."""
_LETTERS = {*"BIEMSOLUW"}  # tags of one type of entity, or of word segmentation
Rows = Sequence[Sequence[Sequence[str]]]
"""The cells of the lines of sentences."""


class Roles(NamedTuple):
    """
    What the columns of a file are.

    Attributes:
        columns: names by index; the others are skipped.
        words: the index of the words.
        tags: the index of the tags that are learned without --label_column_name; `None`: there are none.
        are_entities: whether all tags are those of entities, or O.
        number: the index of the words' numbers, which begin again with each sentence or never.
        group: the index of an identifier that changes with each sentence of a file without empty lines.
        end: the index of HIPE's column MISC, if it marks the ends of sentences.
    """

    columns: dict[int, str]
    words: int
    tags: int | None
    are_entities: bool
    number: int | None = None
    group: int | None = None
    end: int | None = None


def find_roles(sentences: Rows, names: Sequence[str] | None = None, given: Sequence[str] | None = None) -> Roles:
    """
    The roles of columns.

    Args:
        sentences: at least one line.
        names: those of a header line, or of `# global.columns`.
        given: those that the user wrote, "_" for a column to skip.
    """
    lines = list(chain.from_iterable(sentences))
    columns = [_Column(values, sentences, index) for index, values in enumerate(zip(*lines, strict=True))]
    width = len(columns)
    known = given or names or ()
    first = lines[0][0]  # that of a range, where the first word is one of several: "1-2 du"
    is_conllu = not names and width == 10 and (first.isdigit() or bool(RANGE_OR_EMPTY_NODE.fullmatch(first)))
    words = 1 if is_conllu and not given else _words(columns, known)
    number = 0 if is_conllu else next((c.index for c in columns if c.counts and c.index != words), None)
    tags = _main_tags([column for column in columns if column.index not in (words, number)], known)
    group = None
    if len(sentences) == 1 and not (number is not None and columns[number].restarts):
        group = next((c.index for c in columns if c.is_group and c.index not in (words, tags)), None)
    marks = [
        i
        for i, name in enumerate(names or known)
        if name == "MISC" and any(map(SENTENCE_END.search, columns[i].values))
    ]
    are_entities = tags is not None and columns[tags].is_entity
    roles = Roles({}, words, tags, are_entities, number, group, marks[0] if marks else None)
    if given:
        chosen = {index: name for index, name in enumerate(given) if name != "_"}
    elif names:
        chosen = _named(names, roles)
    elif is_conllu:
        chosen = {**_CONLLU, tags: "ner_tags"} if tags is not None and are_entities else _CONLLU
    elif words == 0 and (tags is None or tags == width - 1):
        chosen = dict(enumerate(default_names(width)))
    else:
        chosen = {c.index: f"column_{c.index + 1}" for c in columns if not (c.is_identifier or c.is_constant)}
        chosen |= {words: "tokens"} if tags is None else {words: "tokens", tags: "tags"}
        chosen = {index: name for index, name in sorted(chosen.items()) if index not in (number, group)}
    return roles._replace(columns=chosen)


def are_tags(values: Sequence[str]) -> bool:
    """Whether values are tags without a doubt: of entities, of word segmentation, or well-known parts of speech."""
    kinds = set(values)
    parts_of_speech = kinds <= _WORD_CLASSES and sum(map(str.isalpha, kinds)) > 1
    return parts_of_speech or all(kind in _LETTERS or entity_tag(kind) for kind in kinds)


def default_names(width: int) -> list[str]:
    """The names of columns with the words first and the tags last."""
    return _NAMES.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def are_names(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are known names of columns, those of words among them."""
    folded = [cell.strip().casefold() for cell in cells]
    if len(cells) == 1:
        return cells[0] in ("token", "tokens", "TOKEN", "TOKENS")
    others = [name for name in folded if name not in _WORD_NAMES]
    named = [name in TAGS or name in _OTHER_NAMES or _is_name_of_tags(name) for name in others]
    return len(others) < len(folded) == len(set(folded)) and any(named) and 2 * sum(named) >= len(named)


def is_header(cells: Sequence[str], roles: Roles, sentences: Rows) -> bool:
    """Whether a first line has no number or no entity tag where every other line has one."""
    lines = list(chain.from_iterable(sentences))
    if len(lines) > 2 and roles.are_entities and roles.tags is not None:
        return entity_tag(cells[roles.tags]) is None and cells[roles.tags] not in ("-100", "_")
    return len(lines) > 2 and roles.number is not None and not cells[roles.number][:1].isdigit()


class _Column:
    """
    What the values of a column may be.

    Attributes:
        is_entity: every value is the tag of an entity or O.
        counts: the values are the numbers of the words.
        is_identifier: they differ in nothing but their digits, or never change within a sentence.
        is_group: each value occurs in one run of lines, of two on average.
    """

    def __init__(self, values: Sequence[str], sentences: Rows, index: int):
        self.index, self.values, self.distinct = index, values, set(values)
        entities = {value: entity_tag(value) for value in self.distinct if value not in ("_", "-100")}
        self.is_entity = None not in entities.values() and bool(entities)
        self.types = {tag[1] for tag in entities.values() if tag} - {""}
        self.is_constant = len(values) > 1 and len(self.distinct) == 1
        self.is_part_of_speech = len(values) > 1 and self.distinct <= _WORD_CLASSES
        numbers = [[int(line[index]) for line in lines if line[index].isdecimal()] for lines in sentences]
        steps = [pair for sentence in numbers for pair in pairwise(sentence)]
        are_numbers = all(value.isdecimal() or RANGE_OR_EMPTY_NODE.fullmatch(value) for value in self.distinct)
        starts = [sentence[0] for sentence in numbers if sentence]
        self.restarts = any(after <= before for before, after in steps)
        self.counts = (
            are_numbers
            and bool(starts)
            and (starts[0] in (0, 1) or not self.restarts)
            and all(after == before + 1 or (after == starts[0] < 2) for before, after in steps)
            and (bool(steps) or set(starts) <= {0, 1})
        )
        shapes = {re.sub(r"\d+", "0", value) for value in self.distinct}
        several = [{line[index] for line in lines} for lines in sentences if len(lines) > 1]
        self.has_shape = len(values) > 1 and len(shapes) == 1 and "0" in next(iter(shapes))
        stays = len(several) > 1 and len(self.distinct) > 1 and all(len(each) == 1 for each in several)
        self.is_identifier = not self.is_entity and (self.counts or self.has_shape or stays)
        runs = [value for value, _ in groupby(values)]
        self.is_group = (
            not self.is_entity
            and 1 < len(runs) == len(self.distinct)
            and 2 * len(runs) <= len(values)
            and all(re.search(r"\d", value) for value in self.distinct)
        )
        outside = sum(value == "O" for value in values)
        self.is_dense = len(values) > 50 and outside < 0.3 * len(values)

    @property
    def is_chunk(self) -> bool:
        """Whether these are tags of phrases, or others that nearly every word has, in an entity scheme."""
        return self.is_entity and bool(self.types) and (self.types <= _CHUNKS or self.is_dense)


def _words(columns: Sequence[_Column], names: Sequence[str]) -> int:
    """The index of the words: by name, else the first column, unless its values are no words and another's are."""
    folded = [name.strip().casefold() for name in names]
    known = [folded.index(name) for name in _WORD_NAMES if name in folded]
    if known:
        return known[0]
    first = columns[0]
    others = [
        column
        for column in columns[1:]
        if not (column.is_entity or column.is_identifier or column.is_constant or column.is_part_of_speech)
    ]
    best = max(others, key=lambda column: len(column.distinct), default=None)
    if best is None or (len(first.values) == 1 and len(columns) < 3):
        return 0
    numbered = first.counts or (first.has_shape and not all(map(str.isdecimal, first.distinct)))
    names_rows = first.is_identifier or first.is_group or (first.is_constant and len(first.values) > 4)
    named = len(columns) > 2 and names_rows and (first.has_shape or len(best.distinct) >= len(first.distinct))
    tagged = len(first.values) > 1 and (first.is_entity or first.is_part_of_speech)
    swapped = len(columns) == 2 and len(first.values) >= 30 and 3 * len(first.distinct) <= len(best.distinct)
    return best.index if numbered or named or tagged or swapped else 0


def _main_tags(columns: Sequence[_Column], names: Sequence[str]) -> int | None:
    """
    The index of the tags among the columns without words and numbers: by a known name that is no part of speech, else
    of several layers of entities the first, else by a known name, else the last column whose values differ.
    """
    if names:
        folded = {column.index: names[column.index].strip().casefold() for column in columns}
        known = [index for name in TAGS for index, called in folded.items() if called == name]
        if known and folded[known[0]] not in PARTS_OF_SPEECH:
            return known[0]
        standard = {"_", *_OTHER_NAMES, *map(str.casefold, _CONLLU_OTHERS)}
        columns = [column for column in columns if folded[column.index] not in standard or column.is_entity]
        custom = [column for column in columns if column.index not in known]
        if known and not any(column.is_entity for column in custom) and "form" not in map(str.casefold, names):
            return known[0]
        columns = custom or columns
    entities = [column for column in columns if column.is_entity]
    layers = [column for column in entities if column.types and not column.is_chunk]
    if layers:
        return layers[0].index
    if entities:
        return entities[-1 if any(column.is_chunk for column in entities) else 0].index
    varied = [column for column in columns if not column.is_constant]
    return (varied or columns)[-1].index if columns else None


def _named(names: Sequence[str], roles: Roles) -> dict[int, str]:
    """The names of a header line; words and tags with an unknown name are tokens and tags."""
    if "FORM" in names:
        chosen = {i: _CONLLU_NAMES.get(name, name) for i, name in enumerate(names) if name not in _CONLLU_OTHERS}
    else:
        chosen = {i: name for i, name in enumerate(names) if name.casefold() not in _NUMBER_NAMES and name != "_"}
        chosen.pop(-1 if roles.number is None else roles.number, None)
    if roles.words not in chosen or chosen[roles.words].casefold() not in TOKENS:
        chosen[roles.words] = "tokens"
    if roles.tags is not None and chosen.get(roles.tags, "").casefold() not in TAGS:
        chosen[roles.tags] = "tags"
    if len(set(chosen.values())) < len(chosen):
        chosen = {i: f"column_{i + 1}" for i in chosen} | {roles.words: "tokens"}
        chosen |= {} if roles.tags is None else {roles.tags: "tags"}
    return chosen


def _is_name_of_tags(name: str) -> bool:
    return name.endswith(("tag", "tags", "label", "labels")) or name.startswith(("ner", "ne-", "nel-", "pos", "chunk"))
