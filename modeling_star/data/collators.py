"""Which tokens a masked-LM run hides: single tokens or whole words, 80/10/10 (Devlin et al. 2019).

Every piece's masks are drawn from numbers of its own (`Chunk.key`). So they are the same in whatever batch, block or
process it comes, also in a run that was resumed; transformers' collator (5.23) draws for a batch, and its option for
whole words leaves no token as it is, and takes Chinese text between two spaces for one word.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from ..models.lexicon import Lexicon, WordMatcher
from ..models.token_layout import TokenLayout
from .labels import IGNORE_INDEX
from .packing import Chunk, block_rows


# Of the hidden tokens those below the first number become the mask, those below the second any token; others stay.
_MASKED, _REPLACED = 0.8, 0.9


class MaskingUnits:
    """
    What is hidden together: a token, or the tokens of a word.

    Args:
        lexicon: `None`: every token by itself. A `whole_word` lexicon: the words that the tokenizer cut up, however
            many tokens they have. A list of words: from left to right the longest that starts there.
    """

    def __init__(self, lexicon: Lexicon | None):
        self.continues: np.ndarray | None = None
        self.matcher: WordMatcher | None = None
        if lexicon is not None and lexicon.kind == "whole_word":
            self.continues, self.alone = lexicon.continues.numpy(), lexicon.alone.numpy()
        elif lexicon is not None:
            self.matcher = WordMatcher("words", WordMatcher.table_size(lexicon), lexicon.max_word_length)
            self.matcher.load(lexicon)

    def first_tokens(self, ids: np.ndarray, lengths: Sequence[int]) -> np.ndarray:
        """
        Args:
            ids: `[N]`, the tokens of some pieces, one piece after the other.
            lengths: tokens of each piece.

        Returns:
            `[N]`, for each token the number of the first token of its unit.
        """
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
        # Column l - 1 tells of words of l tokens, and every token is one of 1.
        longest = (words * np.arange(1, words.shape[1] + 1)).max(axis=1).clip(min=1)
        starts = np.zeros(len(ids), dtype=bool)
        place = 0
        while place < len(ids):
            starts[place] = True
            place += int(longest[place])
        return starts


@dataclass
class MaskingCollator:
    """
    Blocks to model inputs with hidden tokens.

    Args:
        mask_id, pad_id: token ids.
        special: `[V]`, bool: entries that are never hidden, nor put in the place of others.
        units: what is hidden together.
        probability: with which a unit is hidden.
        columns: n, tokens of a block; `None`: as many as the fullest of a batch has.
    """

    mask_id: int
    pad_id: int
    special: np.ndarray
    units: MaskingUnits
    probability: float
    columns: int | None

    def __post_init__(self) -> None:
        self.ordinary = np.flatnonzero(~self.special)

    @classmethod
    def of(
        cls, tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon | None, probability: float, columns: int | None
    ) -> "MaskingCollator":
        """
        Raises:
            UserError: the tokenizer has no mask, or the probability is none.
        """
        if tokenizer.mask_token_id is None:
            raise UserError(
                "The tokenizer has no mask token, so nothing can be hidden: name one of a masked language model, such "
                "as bert-base-cased, or leave --tokenizer_name away to train one."
            )
        if not 0 < probability < 1:
            raise UserError(f"--mlm_probability {probability} is given; between 0 and 1 is allowed, such as 0.15.")
        size = max(tokenizer.get_vocab().values()) + 1
        special = np.ones(size, dtype=bool)
        special[list(tokenizer.get_vocab().values())] = False
        special[tokenizer.all_special_ids] = True
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.mask_token_id
        return cls(tokenizer.mask_token_id, pad_id, special, MaskingUnits(lexicon), probability, columns)

    def __call__(self, blocks: list[list[Chunk]]) -> dict[str, Tensor]:
        """
        Args:
            blocks: B lists of pieces.

        Returns:
            `input_ids`, `attention_mask`, `sequence_ids` (the number of the document in its block, from 1 on; 0 at
            padding) and `labels` (-100 where nothing is hidden), `[B, n]` each.
        """
        pieces = [piece for block in blocks for piece in block]
        ids = np.concatenate([piece.ids for piece in pieces]).astype(np.int64)
        hidden, shown = self._hide(ids, pieces)
        # What the place -1 takes stands at padding.
        inputs = np.append(shown, self.pad_id)
        labels = np.append(np.where(hidden, ids, IGNORE_INDEX), IGNORE_INDEX)
        tokens, sequences = block_rows(blocks, self.columns)
        return {
            "input_ids": torch.from_numpy(inputs[tokens]),
            "attention_mask": torch.from_numpy((sequences > 0).astype(np.int64)),
            "sequence_ids": torch.from_numpy(sequences),
            "labels": torch.from_numpy(labels[tokens]),
        }

    def _hide(self, ids: np.ndarray, pieces: list[Chunk]) -> tuple[np.ndarray, np.ndarray]:
        """Which of the tokens `[N]` are hidden, and what the model is shown in the place of all of them."""
        lengths = [len(piece.ids) for piece in pieces]
        draws = [np.random.default_rng(piece.key).random((3, len(piece.ids))) for piece in pieces]
        choice, fate, other = np.concatenate(draws, axis=1)
        first = self.units.first_tokens(ids, lengths)
        hidden = (choice[first] < self.probability) & ~self.special[ids]
        shown = np.where(hidden & (fate < _MASKED), self.mask_id, ids)
        replaced = hidden & (fate >= _MASKED) & (fate < _REPLACED)
        shown[replaced] = self.ordinary[(other[replaced] * len(self.ordinary)).astype(np.int64)]
        return hidden, shown


__all__ = ["MaskingCollator", "MaskingUnits"]
