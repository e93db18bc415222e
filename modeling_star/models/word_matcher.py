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

from .sorted_keys import find_key
from .token_layout import TokenLayout, has_shifted, is_continuation, shifted, windows, words_end_inside


LexiconKind = Literal["words", "whole_word"]

# Ids, and the numbers of beginnings behind them, are numbers below 2^24.
_BEGINNINGS, _BASE = 2**23, 2**24


class WordMatcher(nn.Module):
    """
    The words of a lexicon that start at each token. Everything is in buffers, saved with the model.

    Words are looked up token by token: the beginnings of all words, of two tokens and more, are sorted by the number
    of the beginning without the last token, or the id of the first token, and by the id of the last token.

    Args:
        kind: `"words"`, `"whole_word"`, or `None`: no lexicon, nothing matches.
        size: words, or vocabulary entries, from `table_size`; nothing matches before `load`.
        max_word_length: L, the most tokens of a word.

    Attributes:
        table: `[S, L]`, the words of a list: ids, then -1. Earlier versions saved other orders, with empty rows.
        keys, pairs: `[P]` and `[P, 2]`, what the beginnings are sorted by, as one number and two. These and the next
            are made of the table, and not saved.
        row_of_key: `[P]`, the row of the word that a beginning is as a whole; -1 where it is none.
    """

    table: Tensor | None
    keys: Tensor
    pairs: Tensor
    row_of_key: Tensor
    continues: Tensor | None
    alone: Tensor | None

    def __init__(self, kind: LexiconKind | None, size: int, max_word_length: int):
        super().__init__()
        self.filled = False  # whether there are words
        self.kind = kind
        self.max_word_length = max_word_length
        words, whole = kind == "words", kind == "whole_word"
        self.register_buffer("table", torch.full((size, max_word_length), -1, dtype=torch.int32) if words else None)
        self.register_buffer("continues", torch.zeros(size, dtype=torch.bool) if whole else None)
        self.register_buffer("alone", torch.zeros(size, dtype=torch.bool) if whole else None)
        for name, shape in (("pairs", (1, 2)), ("keys", (1,)), ("row_of_key", (1,))):
            self.register_buffer(name, torch.full(shape, -1), persistent=False)
        self.register_load_state_dict_post_hook(_sort_again)

    @staticmethod
    def table_size(lexicon: Any | None) -> int:
        """The `size` that `lexicon` needs: words, or vocabulary entries; 0 for none."""
        if lexicon is None:
            return 0
        return len(lexicon.words if lexicon.kind == "words" else lexicon.continues)

    def load(self, lexicon: Any | None, device: torch.device | str | None = None) -> None:
        """
        Match the words of `lexicon` from now on, whatever kind and size it has; `None`: nothing. Its buffers are where
        those of the last one were, or on the CPU, unless `device` is given.
        """
        if device is None:
            device = next((buffer.device for buffer in self.buffers()), "cpu")
        buffers: dict[str, Tensor] = {}
        if lexicon is not None:
            self.max_word_length = lexicon.max_word_length
            if lexicon.kind == "words":
                buffers = {"table": lexicon.words.int()}
            else:
                buffers = {"continues": lexicon.continues, "alone": lexicon.alone}
        self.kind = None if lexicon is None else lexicon.kind
        for name in ("table", "continues", "alone"):
            # Copies: another model may have the same lexicon, and load_state_dict writes into buffers.
            setattr(self, name, buffers[name].to(device, copy=True) if name in buffers else None)
        for name in ("pairs", "keys", "row_of_key"):
            setattr(self, name, torch.full_like(getattr(self, name)[:1], -1, device=device))
        self.sort()

    def sort(self) -> None:
        """Make what is looked up of the buffers that were loaded."""
        whole = [buffer for buffer in (self.continues, self.alone) if buffer is not None and not buffer.is_meta]
        self.filled = any(bool(buffer.any()) for buffer in whole)
        if self.table is not None and not self.table.is_meta:
            found = (x.to(self.table.device) for x in _beginnings(self.table.cpu().long()))
            self.pairs, self.keys, self.row_of_key = found
            self.filled = len(self.keys) > 1

    def init_own_weights(self) -> None:
        """For `_init_weights`, which leaves buffers from a checkpoint as they are: match nothing."""
        for name, buffer in self.named_buffers():
            init.constant_(buffer, 0 if name in ("continues", "alone") else -1)
        self.sort()

    def forward(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """
        Whether a word of l tokens starts at token i, at (i, l - 1): ids `[N]`, anything at padding, to `[N, L]`, bool.
        A word lies within one sequence; column 0 is always false.
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
        The words of a list of 2 to L tokens that start at each token, by their rows in the table, and whether there is
        one: ids `[N]` to `[N, L - 1]` each.
        """
        longest = self.max_word_length
        state, *following = windows(ids, 0, longest - 1).unbind(1)
        rows = []
        for entry in following:
            index, is_beginning = find_key(self.keys, _BASE, state, entry, self.pairs)
            rows.append(self.row_of_key[index].masked_fill(~is_beginning, -1))
            state = torch.where(is_beginning, index + _BEGINNINGS, -1)
        row = torch.stack(rows, 1)
        return row.clamp(min=0), (row >= 0) & words_end_inside(layout, longest)

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


def _sort_again(matcher: WordMatcher, _: Any) -> None:
    """After `load_state_dict`; a function of the module, which can be pickled."""
    matcher.sort()


def _beginnings(table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """
    The sorted beginnings of the words in a table `[S, L]`, as `WordMatcher` has them: `pairs`, `keys`, `row_of_key`.
    The first is that of nothing, so that there is one.
    """
    row = (table[:, 0] >= 0).nonzero()[:, 0]
    for column in reversed(range(table.shape[1])):
        row = row[table[row, column].argsort(stable=True)]
    words = table[row]
    differs = nn.functional.pad(words[1:] != words[:-1], (0, 0, 1, 0), value=True)
    state, count = words[:, 0], 1
    pairs, rows = [table.new_full((1, 2), -1)], [table.new_full((1,), -1)]
    for last in range(1, table.shape[1]):
        reaches = words[:, last] >= 0
        begins = reaches & differs[:, : last + 1].any(1)
        pairs.append(torch.stack([state, words[:, last]], 1)[begins])
        number = begins.cumsum(0) - 1
        is_whole = reaches & (words[:, last + 1 : last + 2] < 0).all(1)
        rows.append(table.new_full((len(pairs[-1]),), -1).index_copy(0, number[is_whole], row[is_whole]))
        state = torch.where(reaches, number + count + _BEGINNINGS, -1)
        count += len(pairs[-1])
    both = torch.cat(pairs)
    return both, both[:, 0] * _BASE + both[:, 1], torch.cat(rows)
