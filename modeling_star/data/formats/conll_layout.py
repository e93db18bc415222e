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
    columns = [[cell.strip() for cell in cells] for cells in zip(*lines, strict=True)]
    width, called = len(columns), [name.strip().casefold() for name in given or names or ()]
    first = lines[0][0]  # that of a range, where the first word is one of several: "1-2 du"
    is_conllu = not names and width == 10 and (first.isdigit() or bool(RANGE_OR_EMPTY_NODE.fullmatch(first)))
    number = 0 if is_conllu or (width > 2 and _counts(sentences)) else None
    known = next((called.index(name) for name in _WORD_NAMES if name in called), None)
    words = 1 if is_conllu and not given else known if known is not None else int(number is not None)
    number = number if words else None
    tags = _main_tags(columns, [index for index in range(width) if index not in (words, number)], called)
    if is_conllu and not called and tags is not None and entity_names({*columns[tags]} - _UNKNOWN) is None:
        tags = 3
    layout = layout._replace(
        words=words,
        tags=tags,
        kinds=frozenset() if tags is None else frozenset(columns[tags]) - _UNKNOWN,
        number=number,
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
        chosen = {index: f"column_{index + 1}" for index in range(width)}
        chosen |= {words: "tokens"} if tags is None else {words: "tokens", tags: "tags"}
        chosen = {index: name for index, name in sorted(chosen.items()) if index != number}
    return layout._replace(columns=chosen, problem=_problem(layout, sentences, is_named=bool(called)))


def _counts(sentences: _Rows) -> bool:
    """Whether the first column numbers the words, of each sentence or of the file."""
    cells = [[line[0] for line in lines if not RANGE_OR_EMPTY_NODE.fullmatch(line[0])] for lines in sentences]
    if not all(map(str.isdecimal, chain.from_iterable(cells))):
        return False
    numbers = [list(map(int, each)) for each in cells if each]
    steps = [pair for each in numbers for pair in pairwise(each)]
    first = numbers[0][0] if numbers else 0
    is_next = all(after == before + 1 or (after == first < 2) for before, after in steps)
    return bool(numbers) and is_next and (bool(steps) or all(each[0] < 2 for each in numbers))


def _are_no_words(sentences: _Rows, index: int) -> bool:
    """Whether a column has tags, numbers or identifiers, which repeat in a sentence, instead of words."""
    several = [{line[index] for line in lines} for lines in sentences if len(lines) > 1]
    distinct = set().union(*several)
    if len({line[index] for lines in sentences for line in lines}) == 1 < sum(map(len, sentences)) - 1:
        return True
    shapes = {re.sub(r"\d+", "0", value) for value in distinct}
    stays = len(several) > 1 and all(len(each) == 1 for each in several) and len(distinct) > 1
    are_tags = entity_names(distinct) is not None or distinct <= _WORD_CLASSES
    return len(distinct) > 1 and (are_tags or stays or (len(shapes) == 1 and "0" in next(iter(shapes))))


def _problem(layout: Layout, sentences: _Rows, is_named: bool) -> str | None:
    """Why the first lines are no words with tags, and what to write."""
    lines = list(chain.from_iterable(sentences))
    of_entities = [entity_names(set(cells)) is not None for cells in zip(*lines, strict=True)]
    is_swapped = of_entities == [True, False]
    if not is_named and (layout.width > 2 or is_swapped) and _are_no_words(sentences, layout.words):
        names = ",".join(_likely_names(layout, sentences))
        return (
            f"has no words in column {layout.words + 1}, such as {lines[0][layout.words]!r}. Name those of words and "
            f"tags, and skip others with _: `--column_names {names}`"
        )
    if brackets := [tag for tag in layout.kinds if re.fullmatch(r"\(.+\*|\*\)", tag)]:
        return (
            f"has the brackets of CoNLL-2012 for tags, such as {brackets[0]!r}. Write a tag per word: B-x, I-x or O."
        )
    texts = [line[layout.words] for line in lines if layout.separator == "\t" and not layout.split]
    if 2 * sum(" " in text.strip() for text in texts) >= len(lines) > 1 and not layout.are_entities:
        return (
            f"has texts in column {layout.words + 1}, such as {texts[0]!r:.60}, and not a word per line. Texts with "
            "labels are in a file that ends in .tsv: rename it."
        )
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


def _likely_names(layout: Layout, sentences: _Rows) -> list[str]:
    """Names of columns to write: the first that may be words, and the main tags of the others."""
    columns = [[line[index] for lines in sentences for line in lines] for index in range(layout.width)]
    words = next((index for index in range(layout.width) if not _are_no_words(sentences, index)), layout.width - 1)
    tags = _main_tags(columns, [index for index in range(layout.width) if index != words], [])
    return ["tokens" if index == words else "tags" if index == tags else "_" for index in range(layout.width)]


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


def _main_tags(columns: Sequence[Sequence[str]], others: Sequence[int], names: Sequence[str]) -> int | None:
    """
    The index of the tags, of some columns: a known name but of parts of speech, else the first layer of entities but
    of phrases, else a known name, else the last column whose values differ.
    """
    named = [index for name in TAGS for index in others if names and names[index] == name]
    if named and names[named[0]] not in PARTS_OF_SPEECH:
        return named[0]
    entities = {index: kinds for index in others if (kinds := entity_names({*columns[index]} - _UNKNOWN)) is not None}
    types = {index: {tag[1] for tag in map(entity_tag, kinds.values()) if tag} for index, kinds in entities.items()}
    layers = [index for index, own in types.items() if own - {""} and not own - {""} <= _CHUNKS]
    if layers:
        return layers[0]
    if named and "form" not in names:
        return named[0]
    standard = {"_", *_OTHER_NAMES, *map(str.casefold, _CONLLU_OTHERS), *PARTS_OF_SPEECH}
    others = [index for index in others if not names or names[index] not in standard] or named or others
    varied = [index for index in others if len({*columns[index]}) > 1]
    return next(reversed(entities), (varied or others)[-1] if others else None)


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
