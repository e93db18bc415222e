"""
Vectors of the words around a token, beside its embedding, as in SoftLexicon (Ma et al., ACL 2020,
https://aclanthology.org/2020.acl-main.528, section 3.2, with plain means):

    tokens           重       庆       大       学
    words           [重       庆]     [大       学]
                            [庆       大]
                    [重       庆       大       学]
    of the token 庆: begins   庆大               -> their mean
                     inside   重庆大学           -> their mean
                     ends     重庆               -> their mean, joined: [3 w]

Axes: N flat tokens  W words with a vector  S rows of the table  L tokens of the longest word  w width of a vector
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import initialization as init
from transformers.utils import logging

from .configuration_encoder import EncoderConfig
from .token_layout import TokenLayout, shifted
from .word_matcher import WordMatcher


logger = logging.get_logger(__name__)


class WordVectors(nn.Module):
    """
    The mean vectors of the words that begin at a token, that it is inside of, and that end at it: `[N, 3 w]`, zeros
    where there is none. Words and vectors are saved with the model.

    Args:
        config: of any encoder. `word_vector_count` and `word_table_size` are 0 in a new model, which knows no words
            before `load`.

    Attributes:
        vector_of_row: `[S]`, the row in `vectors` of the word in each row of the matcher's table, which earlier
            versions saved in another order, with empty rows.
        vectors: `[W + 1, w]`, zeros first; a buffer, or a parameter where they are trained.
    """

    vector_of_row: Tensor
    vectors: Tensor

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.width = 3 * config.word_vector_size
        self.matcher = WordMatcher("words", config.word_table_size, config.word_vector_length)
        self.register_buffer("vector_of_row", torch.zeros(config.word_table_size, dtype=torch.int32))
        vectors = torch.zeros(config.word_vector_count + 1, config.word_vector_size)
        if config.train_word_vectors:
            self.vectors = nn.Parameter(vectors)
        else:
            self.register_buffer("vectors", vectors)

    def init_own_weights(self) -> None:
        """For `_init_weights`, which leaves what comes from a checkpoint as it is: no words."""
        init.zeros_(self.vector_of_row)
        init.zeros_(self.vectors)

    def load(self, lexicon: Any) -> None:
        """Take words and vectors of a `Lexicon` with vectors, in place of those of before."""
        device = self.vectors.device
        self.matcher.load(lexicon, device)
        self.vector_of_row = torch.arange(1, len(lexicon) + 1, dtype=torch.int32, device=device)
        vectors = nn.functional.pad(lexicon.vectors, (0, 0, 1, 0)).to(self.vectors)
        if isinstance(self.vectors, nn.Parameter):
            vectors = nn.Parameter(vectors)
        self.vectors = vectors

    def forward(self, ids: Tensor, layout: TokenLayout) -> Tensor:
        """Token ids `[N]`, anything at padding, to `[N, 3 w]`: begins, inside, ends."""
        if not len(self.vector_of_row):
            logger.warning_once(
                f"word_vector_size={self.vectors.shape[1]}, and the model has no words: call "
                "model.set_word_vectors(Lexicon.from_vectors(path, tokenizer))."
            )
            return self.vectors.new_zeros(len(ids), self.width)
        rows, exists = self.matcher.rows(ids, layout)  # [N, L - 1]: words of 2 to L tokens that start at a token
        index = self.vector_of_row[rows].long().masked_fill(~exists, 0)
        starting = nn.functional.embedding(index, self.vectors).unbind(1)
        counts = exists.to(self.vectors.dtype)[..., None].unbind(1)
        # Words end in their sequence, so that none comes from another.
        roles: list[list[tuple[Tensor, Tensor]]] = [[], [], []]  # begins, inside, ends
        for length, (vector, count) in enumerate(zip(starting, counts, strict=True), start=2):
            for index_in_word in range(length):
                role = 0 if index_in_word == 0 else 2 if index_in_word == length - 1 else 1
                roles[role].append((shifted(vector, -index_in_word), shifted(count, -index_in_word)))
        return torch.cat([_mean(found, like=starting[0]) for found in roles], dim=-1)


def _mean(found: list[tuple[Tensor, Tensor]], like: Tensor) -> Tensor:
    """The sum of vectors `[N, w]` over that of their counts `[N, 1]`, or 0; zeros where words have no such token."""
    if not found:
        return torch.zeros_like(like)
    total, count = (torch.stack(parts).sum(0) for parts in zip(*found, strict=True))
    return total / count.clamp(min=1)


__all__ = ["WordVectors"]
