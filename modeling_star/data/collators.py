"""
Masking for masked language modeling: single tokens or whole words, 80/10/10 (Devlin et al. 2019).

Each piece's masks are drawn from its key (`Chunk.key`), so that they are the same in any batch, block or process,
and in a resumed run. transformers' collator (5.23) draws them for a whole batch; its whole-word option leaves no token
unchanged and takes Chinese text between two spaces for one word.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..models.token_layout import TokenLayout
from ..models.word_matcher import WordMatcher
from .labels import IGNORE_INDEX
from .lexicon import Lexicon
from .packing import Chunk


# Of the masked tokens, a draw below the first number gives [MASK], one below the second a random token.
_MASKED, _REPLACED = 0.8, 0.9


class MaskingUnits:
    """What is masked together: tokens, the words of a `whole_word` lexicon, or the longest words of a list."""

    def __init__(self, lexicon: Lexicon | None):
        self.continues: np.ndarray | None = None
        self.matcher: WordMatcher | None = None
        if lexicon is not None and lexicon.kind == "whole_word":
            self.continues, self.alone = lexicon.continues.numpy(), lexicon.alone.numpy()
        elif lexicon is not None:
            self.matcher = WordMatcher("words", WordMatcher.table_size(lexicon), lexicon.max_word_length)
            self.matcher.load(lexicon)

    def first_tokens(self, ids: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        """The first token of each token's unit `[N]`, for the ids `[N]` of pieces, one after the other."""
        if self.continues is None and self.matcher is None:
            return np.arange(len(ids))
        begins = np.zeros(len(ids), dtype=bool)
        begins[np.cumsum([0, *lengths[:-1]])] = True
        if self.continues is not None:
            after_alone = np.append(True, self.alone[ids][:-1])
            begins |= ~self.continues[ids] | after_alone
        else:
            begins |= self._word_starts(ids, lengths)
        return np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))

    def _word_starts(self, ids: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        counts = torch.tensor(lengths)
        layout = TokenLayout.from_mask(torch.arange(max(lengths)) < counts[:, None], keep_padding=False)
        words = self.matcher(torch.from_numpy(ids), layout).numpy()
        # Column l - 1 marks words of l tokens; every token is a word of 1.
        longest = (words * np.arange(1, words.shape[1] + 1)).max(axis=1).clip(min=1)
        starts = np.zeros(len(ids), dtype=bool)
        token = 0
        while token < len(ids):
            starts[token] = True
            token += int(longest[token])
        return starts


@dataclass
class MaskingCollator:
    """
    Collates blocks into model inputs with masked tokens, a row for each piece: no model mixes documents. `special`
    `[V]`, bool, are entries that are never masked, and never replace others.
    """

    mask_id: int
    pad_id: int
    special: np.ndarray
    units: MaskingUnits
    probability: float

    def __post_init__(self) -> None:
        self.ordinary = np.flatnonzero(~self.special)

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon | None, probability: float) -> "MaskingCollator":
        """Raise a UserError where the tokenizer has no mask token, or the probability is not between 0 and 1."""
        if tokenizer.mask_token_id is None:
            raise UserError(
                "The tokenizer has no mask token: name one of a masked language model, such as bert-base-cased, or "
                "omit --tokenizer_name to train one."
            )
        if not 0 < probability < 1:
            raise UserError(f"--mlm_probability {probability} must be between 0 and 1, such as 0.15.")
        ids = list(tokenizer.get_vocab().values())
        special = np.ones(max(ids) + 1, dtype=bool)
        special[ids] = False
        special[tokenizer.all_special_ids] = True
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.mask_token_id
        return cls(tokenizer.mask_token_id, pad_id, special, MaskingUnits(lexicon), probability)

    def __call__(self, blocks: list[list[Chunk]]) -> dict[str, Tensor]:
        """
        Of blocks with S pieces `input_ids`, `attention_mask` and `labels` (-100 at tokens that are not masked),
        `[S, m]` each with m the tokens of the longest piece; `blocks` `[S]`, the number of each row's block.
        """
        pieces = [piece for block in blocks for piece in block]
        ids = np.concatenate([piece.ids for piece in pieces]).astype(np.int64)
        is_masked, given = self._mask(ids, pieces)
        lengths = np.array([len(piece.ids) for piece in pieces])
        is_token = np.arange(lengths.max()) < lengths[:, None]
        inputs, labels = (np.full(is_token.shape, padding) for padding in (self.pad_id, IGNORE_INDEX))
        inputs[is_token], labels[is_token] = given, np.where(is_masked, ids, IGNORE_INDEX)
        return {
            "input_ids": torch.from_numpy(inputs),
            "attention_mask": torch.from_numpy(is_token.astype(np.int64)),
            "labels": torch.from_numpy(labels),
            "blocks": torch.from_numpy(np.repeat(np.arange(len(blocks)), list(map(len, blocks)))),
        }

    def _mask(self, ids: np.ndarray, pieces: list[Chunk]) -> tuple[np.ndarray, np.ndarray]:
        """Whether each token is masked, `[N]`, and the model's input there, `[N]`."""
        lengths = [len(piece.ids) for piece in pieces]
        draws = [np.random.default_rng(piece.key).random((3, len(piece.ids))) for piece in pieces]
        choice, fate, other = np.concatenate(draws, axis=1)
        first = self.units.first_tokens(ids, lengths)
        is_masked = (choice[first] < self.probability) & ~self.special[ids]
        given = np.where(is_masked & (fate < _MASKED), self.mask_id, ids)
        replaced = is_masked & (fate >= _MASKED) & (fate < _REPLACED)
        given[replaced] = self.ordinary[(other[replaced] * len(self.ordinary)).astype(np.int64)]
        return is_masked, given
