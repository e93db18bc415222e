"""
The words that start at each token, found exactly and for all tokens at once.

A model holds its lexicon (data/lexicon.py) in buffers of a `WordMatcher`, so that it needs only input_ids: stock
tokenizers, Trainer and pipelines work.

Axes: N flat tokens  W words  S rows of the table  V vocabulary entries  L max_word_length
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .hashing import number, product
from .token_layout import (
    TokenLayout,
    cached_unless_traced,
    has_shifted,
    is_continuation,
    shifted,
    windows,
    words_end_inside,
)


LexiconKind = Literal["words", "whole_word"]

# Two, so that no two tokens are the same to both hashes, and 2 modulo 3, so that numbers below them have different
# cubes. Tables that earlier versions saved have multipliers beyond them, and another prime.
_PRIMES, _EARLIER_PRIME = (45_989, 44_987), 2**31 - 1
_GENERATOR = 48271  # its powers run through all numbers below the earlier prime
_ATTEMPTS = 64


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
    def table_size(lexicon: Any | None) -> int:
        """The `size` that `lexicon` needs: rows of its table, or vocabulary entries; 0 for none."""
        if lexicon is None:
            return 0
        return len(lexicon.table[0] if lexicon.kind == "words" else lexicon.continues)

    def load(self, lexicon: Any | None, device: torch.device | str | None = None) -> None:
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

    def init_own_weights(self) -> None:
        """For `_init_weights`, which leaves buffers from a checkpoint as they are: match nothing."""
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

    def rows(self, ids: Tensor, layout: TokenLayout) -> tuple[Tensor, Tensor]:
        """
        The words of a list that start at each token, by their rows in the table.

        Args:
            ids, layout: as in `forward`.

        Returns:
            `[N, L - 1]`: the row of the word of 2 to L tokens, and whether there is one.
        """
        longest, half = self.max_word_length, len(self.table) // 2
        window = windows(ids, 0, longest - 1)
        beyond, halves = _word_constants(longest, half, ids.device)
        primes = _primes(self.multipliers)
        first, *following = (window + 1).unsqueeze(2).unbind(1)
        state = first % primes
        states = [state := _hashed(state, entry, self.multipliers, primes) for entry in following]
        possible = _possible_rows(torch.stack(states, 1), primes, half, halves)  # [N, L - 1, 2]
        words = window.unflatten(1, (1, 1, longest)).masked_fill(beyond, -1)
        same = (self.table[possible] == words).all(3)
        row = torch.where(same[..., 0], possible[..., 0], possible[..., 1])
        return row, same.any(2) & words_end_inside(layout, longest)

    def _match_words(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """Whether a word of 1, 2, .. L tokens starts at each token: `[N, L]`; none of 1 does."""
        return nn.functional.pad(self.rows(ids, layout)[1], (1, 0))

    def _match_whole_words(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """As `_match_words`, for the runs of tokens that a subword tokenizer made of one word."""
        # Entries that were added to the vocabulary later are words of their own.
        known = (ids >= 0) & (ids < len(self.continues))
        entry = ids.clamp(0, len(self.continues) - 1)
        alone = self.alone[entry] | ~known
        continues = is_continuation(layout, self.continues[entry] & known, alone)
        run, following, matches = ~continues, continues, []
        for length in range(2, self.max_word_length + 1):
            following = shifted(following, 1)
            run = run & following & has_shifted(layout, length - 1)
            is_longer = shifted(following, 1) & has_shifted(layout, length)
            matches.append(run & ~is_longer)
        return torch.stack([torch.zeros_like(run), *matches], 1)


@cached_unless_traced
def _word_constants(longest: int, half: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """
    Which entries words of 2 to L tokens do not have, `[L - 1, 1, L]`, and the first row of each half of the table,
    `[2]`.
    """
    last = torch.arange(1, longest, device=device)[:, None, None]
    return torch.arange(longest, device=device) > last, torch.arange(2, device=device) * half


# ------ the hash table


def _primes(multipliers: Tensor) -> Tensor:
    """The primes `[2]` of the two hashes with some multipliers `[2]`."""
    now, earlier = _prime_constants(multipliers.device)
    return torch.where(multipliers < now, now, earlier)


@cached_unless_traced
def _prime_constants(device: torch.device) -> tuple[Tensor, Tensor]:
    return torch.tensor(_PRIMES, device=device), torch.tensor([_EARLIER_PRIME] * 2, device=device)


def _hashed(state: Tensor, entry: Tensor, multipliers: Tensor, primes: Tensor) -> Tensor:
    """The hashes `[N, 2]` of windows that are extended by one token each; `entry` `[N, 1]` is its id + 1."""
    return product(state, multipliers, primes, plus=entry)


def _possible_rows(state: Tensor, primes: Tensor, half: int, halves: Tensor) -> Tensor:
    """
    The two rows `[..., 2]` that may hold the word of the hashes `state`, one in each half of a table; the halves begin
    at the rows `halves`.
    """
    # Powers: sums of multiples alone would keep the patterns of dense sets of ids, which two rows cannot resolve.
    square = product(state, state, primes)
    first, second = product(square, state, primes).unbind(-1)
    # One hash has fewer values than a large table has rows: a row is of both, the second of their leading digits.
    keys = torch.stack([number(first, second), number(second // 11, first // 12)], -1)
    return torch.where(primes < _EARLIER_PRIME, keys, square) % half + halves


def build_table(words: Tensor) -> tuple[Tensor, Tensor]:
    """
    A table `[S, L]` in which each of `words` (`[W, L]`, unique) lies in one of its two rows, and its multipliers.

    S is about 2.4 W: below half full, two rows a word suffice for all but one in about W choices of multipliers.
    """
    for attempt in range(_ATTEMPTS):
        multipliers = _multipliers(attempt)
        primes = _primes(multipliers)
        state = torch.zeros((len(words), 2), dtype=torch.long)
        for entry in (words + 1)[..., None].unbind(1):
            state = torch.where(entry > 0, _hashed(state, entry, multipliers, primes), state)
        # Each new attempt has a little more room too, so that one succeeds.
        half = 8 + len(words) * (20 + attempt) * 6 // 100
        row = _one_row_each(_possible_rows(state, primes, half, torch.tensor([0, half])), 2 * half)
        if row is not None:
            table = torch.full((2 * half, words.shape[1]), -1, dtype=torch.int32)
            table[row] = words.int()
            return table, multipliers
    raise RuntimeError(f"{len(words)} words do not fit into {_ATTEMPTS} tables: make the rows unique.")


def _multipliers(attempt: int) -> Tensor:
    """Two pseudo-random numbers for each attempt, the same on every machine."""
    powers = [pow(_GENERATOR, 1000 + 2 * attempt + side, _EARLIER_PRIME) for side in range(2)]
    return torch.tensor([power % prime for power, prime in zip(powers, _PRIMES, strict=True)])


def _one_row_each(rows: Tensor, size: int) -> Tensor | None:
    """
    One of the two `rows` (`[W, 2]`) for each word, no row twice (`[W]`); `None` where that cannot be.

    Words are the edges of a graph over the rows. A word that is the only one at a row takes it, repeatedly. In the
    circles that remain each word takes the row towards the next; anything else has no solution.
    """
    chosen = torch.full((len(rows),), -1, dtype=torch.long)
    open_words = torch.arange(len(rows))
    while True:
        ends = rows[open_words]
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
    edges = dict(zip(open_words.tolist(), rows[open_words].tolist(), strict=True))
    for word, (first, second) in edges.items():
        at.setdefault(first, []).append(word)
        at.setdefault(second, []).append(word)
    for start in edges:
        word, row = start, edges[start][0]
        while chosen[word] < 0:
            chosen[word] = row
            row = sum(edges[word]) - row
            word = sum(at[row]) - word
    return chosen
