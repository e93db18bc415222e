"""
The layout of a CoNLL file, found and checked in one place, on its first lines: the separator, a header line, what the
columns are, and which lines are words.
"""

import csv
import re
import string
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from ...errors import UserError
from ...models.tag_schemes import IGNORE_INDEX, entity_tag
from ..columns import PARTS_OF_SPEECH, TAGS, TOKENS
from ..detect import Head
from ..files import no_rows
from ..labels import entity_names


GLOBAL_COLUMNS = re.compile(r"#\s*global\.columns\s*=\s*(.+)")
"""The line of CoNLL-U Plus that names the columns."""
RANGE_OR_EMPTY_NODE = re.compile(r"\d+[-.]\d+")
"""The number of a range ("3-4") or an empty node ("5.1") of CoNLL-U, which is no word."""
SENTENCE_END = re.compile("EndOfSentence|PySBDSegment")
"""The marks of HIPE's column MISC after the last word of a sentence."""
DOCUMENT = "-DOCSTART-"
_COMMENT = re.compile(r"#(\s*(newdoc|newpar)\b|\s*global\.columns|\s+id\s|\s*[\w.:-]+ = )")
_BLANKS = re.compile(r"[ \t]+")
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
_UNKNOWN = {"_", str(IGNORE_INDEX)}
_Rows = Sequence[Sequence[Sequence[str]]]  # the cells of the lines of sentences


class Layout(NamedTuple):
    """
    How lines become words.

    Attributes:
        separator: of cells; `None`: blanks or tabs.
        width: the number of cells.
        blank: the characters of a line that ends a sentence; `None`: white space.
        columns: names by index; the others are skipped.
        words: the index of the words.
        tags: the index of the tags that are learned without --label_column_name; `None`: there are none.
        kinds: the tags in the first lines.
        number: the index of the words' numbers, which begin again with each sentence or never.
        group: the index of identifiers that change with each sentence of a file without empty lines.
        end: the index of HIPE's column MISC, if it marks the ends of sentences.
        header: a line that names the columns.
        is_named: whether the file itself names its columns.
        split: where a line is a sentence, the columns with its words and tags; the other indices count in these.
        problem: what is wrong with the whole file, and the line to write.
    """

    separator: str | None
    width: int = 0
    blank: str | None = None
    columns: dict[int, str] = {}
    words: int = 0
    tags: int | None = None
    kinds: frozenset[str] = frozenset()
    number: int | None = None
    group: int | None = None
    end: int | None = None
    header: str | None = None
    is_named: bool = False
    split: tuple[int, ...] = ()
    problem: str | None = None

    @property
    def are_entities(self) -> bool:
        """Whether all tags are those of entities, or O."""
        return entity_names(self.kinds) is not None

    def cells(self, line: str) -> list[str]:
        """The cells of a line."""
        if self.separator == "\t":
            return line.split("\t")
        if self.separator is not None:
            return next(csv.reader([line], delimiter=self.separator))
        # Not str.split(): a no-break or ideographic space can be a token.
        line = line.strip(" \t")
        return _BLANKS.split(line) if "  " in line or "\t" in line else line.split(" ")  # which is faster

    def is_comment(self, line: str, cells: Sequence[str], is_inside: bool) -> bool | None:
        """
        Whether a line that begins with "#" is a comment: above a sentence by its tag, within one by its form. `None`
        for a line within a sentence that is neither a comment nor a word.
        """
        if self.number == 0 or len(cells) != self.width:
            return self.number == 0 or not is_inside or bool(_COMMENT.match(line))
        if not is_inside and (_COMMENT.match(line) or _are_names([cells[0].lstrip("# "), *cells[1:]])):
            return True
        if self.tags is None or (is_inside and not self.are_entities):
            return False
        tags = cells[self.split[self.tags]].split() if self.split else [cells[self.tags].strip()]
        return False if all(self._may_have(cells[0], tag) for tag in tags) else None if is_inside else True

    def _may_have(self, word: str, tag: str) -> bool:
        """Whether a word that begins with "#" may have a tag."""
        if tag in self.kinds or tag in _UNKNOWN:
            return True
        if self.are_entities:
            return entity_names({tag, *self.kinds}) is not None
        is_hash = bool(re.fullmatch(r"#[^#\s]+", word)) or (word == "#" and self.separator is not None)
        is_lower = tag != tag.upper() and all(kind == kind.upper() for kind in self.kinds)
        return tag in _WORD_CLASSES or (is_hash and not is_lower)


def find_layout(head: Head, given: Sequence[str] | None = None) -> Layout:
    """The layout of a file by its first lines; `given`: the names that the user wrote, "_" for a column to skip."""
    path, lines, is_csv = head.path, head.lines, head.ending == ".csv"
    blank = string.whitespace + ",;" * is_csv
    # A line that begins with "#" may be a comment: it decides nothing.
    sure = [line for line in lines if is_word(line, blank)]
    if not sure:
        raise no_rows(path)
    marks = {mark: sum(line.count(mark) for line in sure) for mark in (",;\t" if is_csv else "\t")}
    has_tabs = 2 * sum("\t" in line for line in sure) >= len(sure)
    layout = Layout(max(marks, key=lambda mark: marks[mark]) if is_csv or has_tabs else None)
    width = Counter(len(layout.cells(line)) for line in sure).most_common(1)[0][0]
    # An ideographic space alone can be a token of a file without tags.
    layout = layout._replace(width=width, blank=blank if is_csv else None if width > 1 else " \t")
    chosen = [name for name in given or () if name != "_"]
    if given and (len(given) != width or not chosen or len(set(chosen)) < len(chosen)):
        raise UserError(
            f"{path} has {width} columns and --column_names is {','.join(given)}. Write one distinct name per column, "
            "or _ to skip it: `--column_names _,tokens,ner_tags`"
        )
    names = next((match[1].split() for match in map(GLOBAL_COLUMNS.match, lines) if match), None)
    names = names if names and len(names) == width else None
    if names is None and _are_names(first := layout.cells(sure[0])):
        layout, names = layout._replace(header=sure[0]), first
    layout = layout._replace(is_named=names is not None)
    sentences = _sentences(layout, lines)
    if split := _split_columns(list(chain.from_iterable(sentences))) if layout.separator else ():
        names, given = ([known[index] for index in split] if known else None for known in (names, given))
        parts = ([cells[index].split() for index in split] for cells in chain.from_iterable(sentences))
        layout, sentences = layout._replace(split=split), [list(map(list, zip(*each))) for each in parts]  # noqa: B905
    known = _with_roles(layout, sentences, names, given)
    first, *others = sentences[0]
    rest = [others, *sentences[1:]] if others else sentences[1:]
    if names is None and rest and _is_header(first, inner := _with_roles(layout, rest, None, given), rest):
        return inner._replace(header=sure[0])
    return known


def is_word(line: str, blank: str | None) -> bool:
    """Whether a line is a word without a doubt, or names the columns."""
    return bool(line.strip(blank)) and line[0] != "#" and DOCUMENT not in line


def _sentences(layout: Layout, lines: Sequence[str]) -> list[list[list[str]]]:
    """The cells of the lines that surely are words, in sentences; of a header line where there is no other."""
    sentences: list[list[list[str]]] = [[]]
    for line in lines:
        if not line.strip(layout.blank) or DOCUMENT in line or line == layout.header:
            sentences.append([])
        elif line[0] != "#" and len(cells := layout.cells(line)) == layout.width:
            sentences[-1].append(cells)
    return [sentence for sentence in sentences if sentence] or [[layout.cells(layout.header or "")]]


def _split_columns(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """The columns with all words and tags of a sentence, as many in each; none where a line is a word."""
    counts = [[len(cell.split()) for cell in cells] for cells in rows]
    several = [each for each in counts if max(each) > 1]
    if 2 * len(several) < len(rows) or not any(each[-1] > 1 for each in several):
        return ()
    equal = [sum(each[index] == each[-1] for each in several) for index in range(len(rows[0]))]
    split = tuple(index for index, number in enumerate(equal) if 3 * number >= 2 * len(several))
    is_exact = len(rows) > 1 and all(each[index] == each[-1] for each in counts for index in split)
    return split if len(split) > 1 and (is_exact or are_tags(" ".join(cells[-1] for cells in rows).split())) else ()


def _with_roles(
    layout: Layout, sentences: _Rows, names: Sequence[str] | None, given: Sequence[str] | None = None
) -> Layout:
    """The layout with the roles of its columns, by the names of the file or of the user, or by their values."""
    lines = list(chain.from_iterable(sentences))
    columns = [_Column(values, sentences, index) for index, values in enumerate(zip(*lines, strict=True))]
    width = len(columns)
    known = given or names or ()
    first = lines[0][0]  # that of a range, where the first word is one of several: "1-2 du"
    is_conllu = not names and width == 10 and (first.isdigit() or bool(RANGE_OR_EMPTY_NODE.fullmatch(first)))
    words = 1 if is_conllu and not given else _words(columns, known)
    number = 0 if is_conllu else next((column.index for column in columns[:words] if column.counts), None)
    tags = _main_tags([column for column in columns if column.index not in (words, number)], known)
    if is_conllu and not known and tags is not None and not columns[tags].is_entity:
        tags = 3
    marks = [
        index
        for index, name in enumerate(names or known)
        if name == "MISC" and any(map(SENTENCE_END.search, columns[index].values))
    ]
    are_groups = len(sentences) == 1 and words > 0 and columns[0].has_shape and not columns[0].counts
    layout = layout._replace(
        words=words,
        tags=tags,
        kinds=frozenset() if tags is None else columns[tags].tags,
        number=number,
        group=0 if are_groups else None,
        end=marks[0] if marks else None,
    )
    if given:
        chosen = {index: name for index, name in enumerate(given) if name != "_"}
    elif names:
        chosen = _named(names, layout)
    elif is_conllu:
        chosen = {**_CONLLU, tags: "ner_tags"} if tags != 3 and tags is not None else dict(_CONLLU)
    elif words == 0 and (tags is None or tags == width - 1):
        chosen = dict(enumerate(default_names(width)))
    else:
        chosen = {c.index: f"column_{c.index + 1}" for c in columns if not (c.is_identifier or c.is_constant)}
        chosen |= {words: "tokens"} if tags is None else {words: "tokens", tags: "tags"}
        chosen = {index: name for index, name in sorted(chosen.items()) if index != number}
    return layout._replace(columns=chosen, problem=_problem(layout, lines))


def _problem(layout: Layout, lines: Sequence[Sequence[str]]) -> str | None:
    """Why the first lines are no words with tags, and what to write."""
    cells = list(chain.from_iterable(lines)) if layout.separator is None and layout.width > 1 else []
    if cells and any(all(mark in cell[1:-1] for cell in cells) for mark in "/|_"):
        return (
            f"has words with tags in their lines, such as {cells[0]!r}. Write one word per line and its tag after a "
            "tab, and an empty line after each sentence."
        )
    several = [tag for tag in layout.kinds if " " in tag and are_tags(tag.split())]
    if several:
        return (
            f"has several tags in one cell, {several[0]!r}. Write one word per line and its tag after a tab, or as "
            "many words as tags in each line."
        )
    return None


def are_tags(values: Sequence[str]) -> bool:
    """Whether values are tags without a doubt: of entities, of word segmentation, or well-known parts of speech."""
    kinds = {value.strip() for value in values}
    parts_of_speech = kinds <= _WORD_CLASSES and sum(map(str.isalpha, kinds)) > 1
    return parts_of_speech or entity_names(kinds) is not None or all(k in _LETTERS or entity_tag(k) for k in kinds)


def default_names(width: int) -> list[str]:
    """The names of columns with the words first and the tags last."""
    return _NAMES.get(width, ["tokens", *(f"column_{index}" for index in range(2, width)), "tags"])


def _are_names(cells: Sequence[str]) -> bool:
    """Whether the cells of a line are known names of columns, those of words among them."""
    folded = [cell.strip().casefold() for cell in cells]
    if len(cells) == 1:
        return cells[0] in ("token", "tokens", "TOKEN", "TOKENS")
    others = [name for name in folded if name not in _WORD_NAMES]
    named = [name in TAGS or name in _OTHER_NAMES or _is_name_of_tags(name) for name in others]
    return len(others) < len(folded) == len(set(folded)) and any(named) and 2 * sum(named) >= len(named)


def _is_header(cells: Sequence[str], layout: Layout, sentences: _Rows) -> bool:
    """Whether a first line has no number or no entity tag where every other line has one."""
    if len(list(chain.from_iterable(sentences))) <= 2:
        return False
    if layout.tags is not None and layout.are_entities:
        tag = cells[layout.tags].strip()
        return tag not in _UNKNOWN and entity_names({tag, *layout.kinds}) is None
    return layout.number is not None and not cells[layout.number][:1].isdigit()


class _Column:
    """What the values of a column may be: tags, numbers that count words, identifiers of sentences, or words."""

    def __init__(self, values: Sequence[str], sentences: _Rows, index: int):
        self.index, self.values, self.distinct = index, values, set(values)
        self.tags = frozenset(map(str.strip, self.distinct)) - _UNKNOWN
        entities = entity_names(self.tags)
        self.is_entity = entities is not None
        self.types = {tag[1] for tag in map(entity_tag, (entities or {}).values()) if tag} - {""}
        self.is_constant = len(values) > 1 and len(self.distinct) == 1
        self.is_part_of_speech = len(values) > 1 and self.distinct <= _WORD_CLASSES
        numbers = [[int(line[index]) for line in lines if line[index].isdecimal()] for lines in sentences]
        steps = [pair for sentence in numbers for pair in pairwise(sentence)]
        are_numbers = all(value.isdecimal() or RANGE_OR_EMPTY_NODE.fullmatch(value) for value in self.distinct)
        starts = [sentence[0] for sentence in numbers if sentence]
        self.counts = (
            are_numbers
            and bool(starts)
            and (starts[0] in (0, 1) or all(before < after for before, after in steps))
            and all(after == before + 1 or (after == starts[0] < 2) for before, after in steps)
            and (any(before < after for before, after in steps) if steps else set(starts) <= {0, 1})
        )
        shapes = {re.sub(r"\d+", "0", value) for value in self.distinct}
        several = [{line[index] for line in each} for each in sentences if len(each) > 1]
        self.has_shape = len(values) > 1 and len(shapes) == 1 and "0" in next(iter(shapes))
        stays = len(several) > 1 < len(self.distinct) and all(len(each) == 1 for each in several)
        self.has_shape = self.has_shape and not all(map(str.isdecimal, self.distinct))
        stays = stays and len(sentences[0][0]) > 2
        self.is_identifier = not self.is_entity and (self.counts or self.has_shape or stays)
        is_dense = len(values) > 50 and sum(value == "O" for value in values) < 0.3 * len(values)
        # Tags of phrases, or others that nearly every word has, in an entity scheme.
        self.is_chunk = bool(self.types) and (self.types <= _CHUNKS or is_dense)

    @property
    def may_be_words(self) -> bool:
        """Whether the values are neither tags nor the same nor identifiers."""
        are_same = self.is_constant and len(self.values) > 4
        return not (self.is_entity or self.is_part_of_speech or are_same or self.is_identifier)


def _words(columns: Sequence[_Column], names: Sequence[str]) -> int:
    """The index of the words: by name, else the first column that has neither numbers, identifiers nor tags."""
    folded = [name.strip().casefold() for name in names]
    known = [folded.index(name) for name in _WORD_NAMES if name in folded]
    if known:
        return known[0]
    return next((column.index for column in columns if column.may_be_words), 0)


def _main_tags(columns: Sequence[_Column], names: Sequence[str]) -> int | None:
    """
    The index of the tags: a known name but of parts of speech, the first layer of entities, a known name, the last
    that varies.
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


def _named(names: Sequence[str], roles: Layout) -> dict[int, str]:
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
