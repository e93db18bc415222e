"""Words as sequences of token ids, and a matcher of the words that start at each token, exact and vectorised.

A model holds its lexicon in buffers of a `WordMatcher`, so that it needs only input_ids: stock tokenizers, Trainer and
pipelines work.

Axes: N flat tokens  W words  S rows of the table  V vocabulary entries  L max_word_length
"""

import gzip
import importlib.util
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase
from transformers import initialization as init
from transformers.utils import logging

from .token_layout import TokenLayout, constant
from .utils import open_text
from .vocabulary import Vocabulary, word_marker


logger = logging.get_logger(__name__)

LexiconKind = Literal["words", "whole_word"]

# Products of two numbers below it fit into 64 bits, on every device and in ONNX.
_PRIME = 2**31 - 1
_GENERATOR = 48271  # its powers run through all numbers below the prime
_ATTEMPTS = 64
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
        left_out (`int`): words that have more than L tokens, an unknown token, or no token.
    """

    kind: LexiconKind
    max_word_length: int
    words: Tensor | None = None
    continues: Tensor | None = None
    alone: Tensor | None = None
    left_out: int = 0

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
        _check_length(max_word_length)
        if isinstance(words, (str, bytes, Path)):
            raise TypeError(
                f"words={str(words)[:40]!r} is one text; a list of words is needed. For a file: "
                "Lexicon.from_file(path, tokenizer)."
            )
        rows: set[tuple[int, ...]] = set()
        counts: Counter[str] = Counter()
        different = list(dict.fromkeys(words))
        for forms in _tokenized(different, tokenizer):
            usable = [form for form in forms if 2 <= len(form) <= max_word_length]
            rows.update(map(tuple, usable))
            counts["usable" if usable else _reason(forms)] += 1
        left_out = sum(counts[reason] for reason in ("too long", "with unknown tokens", "empty"))
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in counts.items())
        summary = f"{len(rows):,} words of 2 to {max_word_length} tokens; of those given {reasons or 'none'}"
        if not rows:
            raise ValueError(
                f"The lexicon has no usable word: {summary}. Give words of 2 to {max_word_length} known tokens, or "
                f"raise max_word_length: Lexicon.from_words(words, tokenizer, max_word_length={max_word_length + 2})."
            )
        logger.info(f"Lexicon: {summary}.")
        return cls("words", max_word_length, words=_padded_rows(rows, max_word_length), left_out=left_out)

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

    @cached_property
    def table(self) -> tuple[Tensor, Tensor]:
        """Of a `"words"` lexicon the hash table `[S, L]` (int32, -1 where empty) and its multipliers `[2]`."""
        return _build_table(self.words)


class WordMatcher(nn.Module):
    """
    The words of a lexicon that start at each token. Everything is in buffers, saved with the model.

    Words are in a cuckoo hash table (Pagh and Rodler 2004): each has two possible rows, one in either half. The rows
    are the words' ids, so that two look-ups and a comparison are exact, whatever the hash.

    Args:
        kind: `"words"`, `"whole_word"`, or `None`: no lexicon, nothing matches.
        size: rows of the table, or vocabulary entries, from `table_size`; nothing matches before `load`.
        max_word_length: L, the most tokens of a word.
    """

    table: Tensor | None
    multipliers: Tensor | None
    continues: Tensor | None
    alone: Tensor | None

    def __init__(self, kind: LexiconKind | None, size: int, max_word_length: int):
        super().__init__()
        self.filled = False  # known to have words, so that this is checked once
        self.kind = kind
        self.max_word_length = max_word_length
        words, whole = kind == "words", kind == "whole_word"
        self.register_buffer("table", torch.full((size, max_word_length), -1, dtype=torch.int32) if words else None)
        self.register_buffer("multipliers", torch.zeros(2, dtype=torch.long) if words else None)
        self.register_buffer("continues", torch.zeros(size, dtype=torch.bool) if whole else None)
        self.register_buffer("alone", torch.zeros(size, dtype=torch.bool) if whole else None)

    @staticmethod
    def table_size(lexicon: Lexicon | None) -> int:
        """The `size` that `lexicon` needs: rows of its table, or vocabulary entries; 0 for none."""
        if lexicon is None:
            return 0
        return len(lexicon.table[0] if lexicon.kind == "words" else lexicon.continues)

    def load(self, lexicon: Lexicon | None, device: torch.device | str | None = None) -> None:
        """
        Match the words of `lexicon` from now on, whatever kind and size it has; `None`: nothing.

        Args:
            device: of the buffers; defaults to that of the last lexicon, else the CPU.
        """
        if device is None:
            device = next((buffer.device for buffer in self.buffers()), "cpu")
        buffers: dict[str, Tensor] = {}
        if lexicon is not None:
            self.max_word_length = lexicon.max_word_length
            if lexicon.kind == "words":
                buffers = dict(zip(("table", "multipliers"), lexicon.table, strict=True))
            else:
                buffers = {"continues": lexicon.continues, "alone": lexicon.alone}
        self.kind = None if lexicon is None else lexicon.kind
        self.filled = False
        for name in ("table", "multipliers", "continues", "alone"):
            # Copies: another model may have the same lexicon, and load_state_dict writes into buffers.
            setattr(self, name, buffers[name].to(device, copy=True) if name in buffers else None)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was ever loaded."""
        if self.table is not None:
            return not bool((self.table >= 0).any())
        return not any(bool(buffer.any()) for buffer in self.buffers())

    def reset_buffers(self) -> None:
        """Match nothing, for `_init_weights`, which leaves buffers from a checkpoint as they are."""
        for name, buffer in self.named_buffers():
            init.constant_(buffer, -1 if name == "table" else 0)

    def forward(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """
        Args:
            ids: `[N]`, token ids, anything at padding.
            layout: where they lie; a word lies within one sequence.

        Returns:
            `[N, L]`, bool: whether a word of l tokens starts at token i, at (i, l - 1). Column 0 is always false.
        """
        if self.kind == "words":
            lengths = self._match_words(ids, layout)
        elif self.kind == "whole_word":
            lengths = self._match_whole_words(ids, layout)
        else:
            return torch.zeros((ids.shape[0], self.max_word_length), dtype=torch.bool, device=ids.device)
        return lengths

    def _match_words(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """Whether a word of 1, 2, .. L tokens starts at each token: `[N, L]`; none of 1 does."""
        longest, half = self.max_word_length, len(self.table) // 2
        window = layout.windows(ids, 0, longest - 1)
        beyond, halves = _word_constants(longest, half, ids.device)
        state, *following = (window + 1).unsqueeze(2).unbind(1)
        states = [state := _hashed(state, entry, self.multipliers) for entry in following]
        rows = self.table[_places(torch.stack(states, 1), half, halves)]  # [N, L - 1, 2, L]
        words = window.unflatten(1, (1, 1, longest)).masked_fill(beyond, -1)
        same = (rows == words).all(3).any(2) & layout.fits(longest)
        return nn.functional.pad(same, (1, 0))

    def _match_whole_words(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """As `_match_words`, for the runs of tokens that a subword tokenizer made of one word."""
        # Entries that were added to the vocabulary later are words of their own.
        known = (ids >= 0) & (ids < len(self.continues))
        entry = ids.clamp(0, len(self.continues) - 1)
        alone = self.alone[entry] | ~known
        continues = layout.is_continuation(self.continues[entry] & known, alone)
        run, following, matches = ~continues, continues, []
        for length in range(2, self.max_word_length + 1):
            following = layout.shifted(following, 1)
            run = run & following & layout.has_shifted(length - 1)
            is_longer = layout.shifted(following, 1) & layout.has_shifted(length)
            matches.append(run & ~is_longer)
        return torch.stack([torch.zeros_like(run), *matches], 1)


@constant
def _word_constants(longest: int, half: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """
    The places that words of 2 to L tokens do not have, `[L - 1, 1, L]`, and the first row of each half of the table,
    `[2]`.
    """
    last = torch.arange(1, longest, device=device)[:, None, None]
    return torch.arange(longest, device=device) > last, torch.arange(2, device=device) * half


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
    first = next((place for place, index in enumerate(ids) if index not in spaces), len(ids))
    return ids[first:]


def _padded_rows(words: set[tuple[int, ...]], width: int) -> Tensor:
    """Sorted rows `[W, width]`, -1 after the ids of each word."""
    ordered = sorted(words)
    lengths = torch.tensor([len(word) for word in ordered])
    rows = torch.full((len(ordered), width), -1, dtype=torch.long)
    rows[torch.arange(width) < lengths[:, None]] = torch.tensor(list(chain.from_iterable(ordered)))
    return rows


# ------ the hash table


def _hashed(state: Tensor, entry: Tensor, multipliers: Tensor) -> Tensor:
    """The hashes `[N, 2]` of windows that are extended by one token each; `entry` `[N, 1]` is its id + 1."""
    return torch.addcmul(entry, state, multipliers) % _PRIME


def _places(state: Tensor, half: int, halves: Tensor) -> Tensor:
    """
    The two places `[..., 2]` of the words with the hashes `state`, one in each half of a table, which begin at rows
    `halves`.
    """
    # Squared: sums of multiples alone would keep the patterns of dense sets of ids, which two places cannot resolve.
    return (state * state % _PRIME) % half + halves


def _build_table(words: Tensor) -> tuple[Tensor, Tensor]:
    """
    A table `[S, L]` in which each of `words` (`[W, L]`, unique) lies in one of its two places, and its multipliers.

    S is about 2.4 W: below half full, two places a word suffice for all but one in about W choices of multipliers.
    """
    for attempt in range(_ATTEMPTS):
        multipliers = _multipliers(attempt)
        state = torch.zeros((len(words), 2), dtype=torch.long)
        for entry in (words + 1)[..., None].unbind(1):
            state = torch.where(entry > 0, _hashed(state, entry, multipliers), state)
        # Each new attempt has a little more room too, so that one succeeds.
        half = 8 + len(words) * (20 + attempt) * 6 // 100
        place = _one_place_each(_places(state, half, torch.tensor([0, half])), 2 * half)
        if place is not None:
            table = torch.full((2 * half, words.shape[1]), -1, dtype=torch.int32)
            table[place] = words.int()
            return table, multipliers
    raise RuntimeError(f"{len(words)} words do not fit into {_ATTEMPTS} tables: make the rows unique.")


def _multipliers(attempt: int) -> Tensor:
    """Two pseudo-random numbers for each attempt, the same on every machine."""
    return torch.tensor([pow(_GENERATOR, 1000 + 2 * attempt + side, _PRIME) for side in range(2)])


def _one_place_each(places: Tensor, size: int) -> Tensor | None:
    """
    One of the two `places` (`[W, 2]`) for each word, no place twice (`[W]`); `None` where that cannot be.

    Words are the edges of a graph over the places. A word that is the only one at a place takes it, repeatedly. In the
    circles that remain each word takes the place towards the next; anything else has no solution.
    """
    chosen = torch.full((len(places),), -1, dtype=torch.long)
    open_words = torch.arange(len(places))
    while True:
        ends = places[open_words]
        degree = torch.bincount(ends.flatten(), minlength=size)
        lone = degree[ends] == 1
        settled = lone.any(1)
        if not settled.any():
            break
        chosen[open_words[settled]] = torch.where(lone[:, 0], ends[:, 0], ends[:, 1])[settled]
        open_words = open_words[~settled]
    if degree.max() > 2:
        return None
    at: dict[int, list[int]] = {}
    edges = dict(zip(open_words.tolist(), places[open_words].tolist(), strict=True))
    for word, (first, second) in edges.items():
        at.setdefault(first, []).append(word)
        at.setdefault(second, []).append(word)
    for start in edges:
        word, place = start, edges[start][0]
        while chosen[word] < 0:
            chosen[word] = place
            place = sum(edges[word]) - place
            word = sum(at[place]) - word
    return chosen


__all__ = ["Lexicon", "WordMatcher"]
