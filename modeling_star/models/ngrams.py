"""
Logits of hashed n-grams, beside those of a sequence classifier; only where `ngram_buckets` asks for them.

Axes: b batch  n columns  k labels
"""

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_encoder import EncoderConfig
from .tfidf_vote import real_tokens_first


class NgramLogits(nn.Module):
    """
    A linear classifier over the n-grams of tokens that a text holds, up to `config.max_ngram_length` long.

    Its logits add to those of an encoder (a wide part beside a deep one, https://arxiv.org/abs/1606.07792), which from
    few texts learns less about the sentiment of a pair of words than logistic regression does. N-grams share the rows
    of the weights by their hash (https://arxiv.org/abs/0902.2206).

    Args:
        config: `ngram_buckets` rows, `max_ngram_length`, `ngram_dropout`, `num_labels`.
    """

    # A prime, so that products of two hashes fit into int64; and two numbers below it without pattern.
    PRIME, OF_TOKEN, OF_RUN = 2**31 - 1, 1_640_531_527, 1_013_904_223
    # AdamW moves each weight by about the learning rate: an n-gram has one for a label, a feature hundreds.
    SCALE = 10.0

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.longest = config.max_ngram_length
        self.weight = nn.Parameter(torch.zeros(config.ngram_buckets, config.num_labels))
        self.dropout = nn.Dropout(config.ngram_dropout)

    def init_own_weights(self) -> None:
        """For `_init_weights`: unseen n-grams say nothing."""
        init.zeros_(self.weight)

    def ngram_logits(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """
        What each n-gram adds to the logits.

        Args:
            input_ids: `[b, n]`.
            attention_mask: `[b, n]`; padding may be anywhere.

        Returns:
            For each length l from 1 `[b, n - l + 1, k]`, at the first token of an n-gram among the real tokens of its
            row; zeros after the last one.
        """
        ids, mask = real_tokens_first(input_ids, attention_mask)  # hashes need the 64 bits that these ids have
        scale = self.SCALE * mask.sum(1, keepdim=True).clamp(min=1).to(self.weight.dtype).rsqrt()
        of_token = run = ids * self.OF_TOKEN % self.PRIME
        found = []
        for length in range(1, self.longest + 1):
            if length > 1:
                run = (run[:, :-1] * self.OF_RUN + of_token[:, length - 1 :]) % self.PRIME
            kept = self.dropout(mask[:, length - 1 :] * scale)
            found.append(nn.functional.embedding(run % len(self.weight), self.weight) * kept[..., None])
        return found

    def shares(self, input_ids: Tensor) -> Tensor:
        """What each token of texts `[b, n]` adds to the logits, `[b, n, k]`: even parts of its n-grams."""
        found = self.ngram_logits(input_ids, None)
        shares = torch.zeros_like(found[0])
        for length, logits in enumerate(found, start=1):
            for offset in range(length):
                shares[:, offset : offset + logits.shape[1]] += logits / length
        return shares

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The logits `[b, k]` of texts `[b, n]`, the sum of `ngram_logits`."""
        return torch.stack([logits.sum(1) for logits in self.ngram_logits(input_ids, attention_mask)]).sum(0)
