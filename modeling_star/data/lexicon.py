"""
Words as sequences of token ids, from files, lists and the marks of a subword tokenizer.

Axes: W words  V vocabulary entries  L max_word_length
"""

import gzip
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from ..models.vocabulary import Vocabulary
from ..models.word_marks import word_marker
from ..models.word_matcher import LexiconKind
from .files import open_text
from .vectors import read_vectors, words_of_vectors


logger = logging.get_logger(__name__)

_WORDS_AT_ONCE = 1000  # tokenized in one call; more takes memory and saves no time
_IDS_ALONE = {
    "add_special_tokens": False,
    "return_attention_mask": False,
    "return_token_type_ids": False,
    "verbose": False,
}
_NEIGHBOUR = "，"  # a single token in any vocabulary that has it
# A word may hold spaces; columns begin with a number, or are one of jieba's parts of speech alone.
_NUMBER = r"[+-]?\d+(\.\d*)?([eE][+-]?\d+)?"
_PARTS_OF_SPEECH = (
    "a|ad|ag|an|b|c|d|df|dg|e|eng|f|g|h|i|j|k|l|m|mg|mq|n|ng|nr|nrfg|nrt|ns|nt|nz|o|p|q|r|rg|rr|rz|s|t|tg|u|ud|ug|uj|"
    "ul|uv|uz|v|vd|vg|vi|vn|vq|w|x|y|z|zg"
)
# From the first of several spaces alone: from each of them, time would grow with their square.
_COLUMNS = re.compile(rf"(?<!\s)(\s+{_NUMBER}(\s+\S+)*|(?<=[^\x00-\x7f])\s+({_PARTS_OF_SPEECH}))$")


@dataclass(frozen=True, eq=False, repr=False)
class Lexicon:
    """
    Words as sequences of token ids, for `WordMatcher`.

    Made by `from_words`, `from_file`, `from_jieba` or `whole_word`. Single tokens are not in it: for the
    BiG-Transformer every token is a word (`include_self`).

    Args:
        kind (`str`): `"words"`, a list of words; or `"whole_word"`, the words that a subword tokenizer cut up.
        max_word_length (`int`): L, the most tokens of a word, at least 2.
        words (`Tensor` of shape `[W, L]`, long, or `None`): rows of 2 to L ids followed by -1, sorted, no two alike.
        continues (`Tensor` of shape `[V]`, bool, or `None`): vocabulary entries that continue the word before them.
        alone (`Tensor` of shape `[V]`, bool, or `None`): entries that no word reaches across: special and added
            tokens, line breaks.
        vectors (`Tensor` of shape `[W, w]`, or `None`): of the words, as `from_vectors` reads them.
    """

    kind: LexiconKind
    max_word_length: int
    words: Tensor | None = None
    continues: Tensor | None = None
    alone: Tensor | None = None
    vectors: Tensor | None = None

    def __len__(self) -> int:
        """Number of words; of a `whole_word` lexicon, of vocabulary entries."""
        return len(self.words if self.kind == "words" else self.continues)

    def __repr__(self) -> str:
        return f"Lexicon(kind={self.kind!r}, max_word_length={self.max_word_length}, len={len(self)})"

    @classmethod
    def from_words(
        cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_word_length: int = 4
    ) -> "Lexicon":
        """
        The words of a list, as `tokenizer` cuts them up.

        Tokenizers that mark spaces (byte-level BPE, SentencePiece) cut a word differently at the start of a text,
        after a space and after other characters: each of the three is a word here. A word that they merge with its
        neighbours in a running text is not matched there.

        Args:
            words: duplicates are allowed.
            tokenizer: the one that makes the model's input_ids.
            max_word_length: the most tokens of a word; longer words are left out.

        Raises:
            ValueError: no word can be used, or max_word_length is less than 2.
            TypeError: a single text is given.
        """
        return cls._of_words(words, tokenizer, max_word_length)[0]

    @classmethod
    def _of_words(
        cls, words: Iterable[str], tokenizer: PreTrainedTokenizerBase, max_word_length: int
    ) -> tuple["Lexicon", list[str]]:
        """As `from_words`; returns for each row its word too."""
        _check_length(max_word_length)
        if isinstance(words, (str, bytes, Path)):
            raise TypeError(
                f"words={str(words)[:40]!r} is one text; a list of words is needed. For a file: "
                "Lexicon.from_file(path, tokenizer)."
            )
        rows: dict[tuple[int, ...], str] = {}
        counts: Counter[str] = Counter()
        different = list(dict.fromkeys(words))
        for word, forms in zip(different, _tokenized(different, tokenizer), strict=True):
            usable = [form for form in forms if 2 <= len(form) <= max_word_length]
            for form in usable:
                rows.setdefault(tuple(form), word)
            counts["usable" if usable else _reason(forms)] += 1
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        summary = f"{len(rows):,} words of 2 to {max_word_length} tokens; of those given {reasons or 'none'}"
        if not rows:
            raise ValueError(
                f"The lexicon has no usable word: {summary}. Give words of 2 to {max_word_length} known tokens, or "
                f"raise max_word_length: Lexicon.from_words(words, tokenizer, max_word_length={max_word_length + 2})."
            )
        logger.info(f"Lexicon: {summary}.")
        lexicon = cls("words", max_word_length, words=_padded_rows(rows, max_word_length))
        return lexicon, [rows[row] for row in sorted(rows)]

    @classmethod
    def from_vectors(cls, path: str | Path, tokenizer: PreTrainedTokenizerBase, max_word_length: int = 4) -> "Lexicon":
        """
        The words of a GloVe or word2vec text file, as `from_words`, and their vectors, for `model.set_word_vectors`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is broken, as in `read_vectors`, or as in `from_words`.
        """
        lexicon, texts = cls._of_words(words_of_vectors(path), tokenizer, max_word_length)
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        table, _ = read_vectors(path, numbers)
        return replace(lexicon, vectors=table[[numbers[text] for text in texts]])

    @classmethod
    def from_file(cls, path: str | Path, tokenizer: PreTrainedTokenizerBase, max_word_length: int = 4) -> "Lexicon":
        """
        The words of a text file in UTF-8, one per line, packed by gzip or not.

        A line is a word alone; a word, a tab and anything (THUOCL: `word<TAB>frequency`); a word, spaces, a number and
        anything (jieba: `word frequency tag`; vectors); or a Chinese word, spaces and one of jieba's parts of speech.
        A word may contain spaces: "Edu Trust认证 2000" is "Edu Trust认证". A word that ends in a number needs a tab
        after it.

        Raises:
            OSError: there is no such file.
            ValueError: it is a csv, broken or not in UTF-8, or as in `from_words`.
        """
        path = Path(path)
        if path.name.removesuffix(".gz").endswith(".csv"):
            raise ValueError(f"{path} is a csv; one word per line is needed: write its words to words.txt.")
        try:
            with open_text(path) as file:
                lines = file.read().splitlines()
        except (UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise ValueError(f"{path} is not a whole text file in UTF-8: {error}.") from error
        return cls.from_words([word for line in lines if (word := _word_of(line))], tokenizer, max_word_length)

    @classmethod
    def from_jieba(cls, tokenizer: PreTrainedTokenizerBase, max_word_length: int = 4) -> "Lexicon":
        """
        The 349,046 words of the dictionary in the PyPI package jieba, which is read without importing the package.

        Raises:
            ImportError: jieba is not installed.
        """
        spec = importlib.util.find_spec("jieba")
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("from_jieba needs jieba's dictionary: pip install jieba")
        return cls.from_file(Path(spec.submodule_search_locations[0], "dict.txt"), tokenizer, max_word_length)

    @classmethod
    def whole_word(cls, tokenizer: PreTrainedTokenizerBase, max_word_length: int = 4) -> "Lexicon":
        """
        The words that a subword tokenizer cut up, as the marks in its vocabulary say.

        WordPiece: an entry with "##" before it continues a word. Byte-level BPE and SentencePiece: one without "Ġ" or
        "▁" before it does. With those two, punctuation belongs to the word before it ("Ġend", "."), and a text without
        spaces is one long word. Special and added tokens and line breaks belong to none.

        A word of 2 to `max_word_length` tokens is matched once, a longer one not at all.

        Raises:
            ValueError: the vocabulary has no such mark, or max_word_length is less than 2.
        """
        _check_length(max_word_length)
        vocabulary = Vocabulary.read(tokenizer)
        if vocabulary.marker is None:
            raise ValueError(
                f'The vocabulary of this {type(tokenizer).__name__} has none of the marks "##", "Ġ" and "▁", which '
                "say what continues a word. Give a list of words: Lexicon.from_words(words, tokenizer)."
            )
        continues, alone = vocabulary.continues, vocabulary.alone
        logger.info(
            f'Lexicon: words are marked by "{vocabulary.marker}"; {int(continues.sum()):,} of {len(vocabulary):,} '
            "entries continue one."
        )
        return cls("whole_word", max_word_length, continues=continues, alone=alone)


# ------ text to rows of ids


def _check_length(max_word_length: int) -> None:
    if max_word_length < 2:
        raise ValueError(f"max_word_length={max_word_length} is given; 2 or more is needed: single tokens are words.")


def _word_of(line: str) -> str:
    """The word of one line, without its columns; empty where there is none."""
    return line.split("\t")[0].strip() if "\t" in line else _COLUMNS.sub("", line.strip())


def _reason(forms: list[list[int]]) -> str:
    """Why none of the `forms` of a word can be used; a form with unknown tokens is not among them."""
    if not forms:
        return "with unknown tokens"
    if any(len(form) == 1 for form in forms):
        return "single tokens"
    return "too long" if any(forms) else "empty"


def _tokenized(words: list[str], tokenizer: PreTrainedTokenizerBase) -> Iterator[list[list[int]]]:
    """The forms that each word takes in running text, without those that have unknown tokens."""
    marker = word_marker(tokenizer)
    forms_of = _spaced_forms(tokenizer, marker) if marker in ("Ġ", "▁") else _one_form(tokenizer)
    for start in range(0, len(words), _WORDS_AT_ONCE):
        yield from forms_of(words[start : start + _WORDS_AT_ONCE])


def _one_form(tokenizer: PreTrainedTokenizerBase) -> Callable[[list[str]], Iterator[list[list[int]]]]:
    """For a tokenizer that cuts up a word in the same way everywhere."""
    unknown = tokenizer.unk_token_id

    def forms_of(words: list[str]) -> Iterator[list[list[int]]]:
        if tokenizer.is_fast:
            # Each word of one text is cut up separately, at half the cost of a call with many texts.
            text = tokenizer(words, is_split_into_words=True, **_IDS_ALONE)
            cut: list[list[int]] = [[] for _ in words]
            for word, index in zip(text.word_ids(), text["input_ids"], strict=True):
                cut[word].append(index)
        else:
            cut = tokenizer(words, **_IDS_ALONE)["input_ids"]
        return ([ids] if unknown not in ids else [] for ids in cut)

    return forms_of


def _spaced_forms(tokenizer: PreTrainedTokenizerBase, marker: str) -> Callable[[list[str]], Iterator[list[list[int]]]]:
    """For a tokenizer that marks spaces: a word at the start of a text, after a space, and after another character."""
    unknown = tokenizer.unk_token_id
    # A space that is a separate token is no part of a word.
    spaces = {index for token, index in tokenizer.get_vocab().items() if not token.strip(marker)}
    [neighbour] = tokenizer([_NEIGHBOUR], **_IDS_ALONE)["input_ids"]

    def forms_of(words: list[str]) -> Iterator[list[list[int]]]:
        cut = (
            tokenizer([before + word for word in words], **_IDS_ALONE)["input_ids"] for before in ("", " ", _NEIGHBOUR)
        )
        for first, after_space, after_other in zip(*cut, strict=True):
            forms = [first, after_space]
            if after_other[: len(neighbour)] == neighbour:
                forms.append(after_other[len(neighbour) :])
            # A word with an unknown token may merge with its neighbour.
            known = unknown not in first
            yield [_without_leading(form, spaces) for form in forms if known and unknown not in form]

    return forms_of


def _without_leading(ids: list[int], spaces: set[int]) -> list[int]:
    first = next((token for token, index in enumerate(ids) if index not in spaces), len(ids))
    return ids[first:]


def _padded_rows(words: Iterable[tuple[int, ...]], width: int) -> Tensor:
    """Sorted rows `[W, width]`, -1 after the ids of each word."""
    ordered = sorted(words)
    lengths = torch.tensor([len(word) for word in ordered])
    rows = torch.full((len(ordered), width), -1, dtype=torch.long)
    rows[torch.arange(width) < lengths[:, None]] = torch.tensor(list(chain.from_iterable(ordered)))
    return rows
