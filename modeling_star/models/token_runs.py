"""
Linear models over runs of tokens inside a sequence classifier: TF-IDF with logistic regression, which votes with the
encoder, and hashed n-grams, whose logits add to the encoder's.

Axes: b batch  n columns  m occurrences of terms  F terms  k labels
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import initialization as init

from .configuration_encoder import EncoderConfig
from .sorted_keys import find_key
from .token_layout import cached_unless_traced, is_traced


# Some runtimes of exported graphs compute integers in 32 bits, and remainders, quotients and comparisons of them in
# float32 (OpenVINO 2026.4), which is exact below 2^24: hashes are below 2^16, their products made of smaller ones.
DIGIT = 2**12
"""Two digits of this base are a number below 2^24."""
PRIME = 46_337
"""The largest prime whose square is below 2^31."""
# Two rolling hashes, each with a first state and a multiplier. A run of two tokens is their solution of two linear
# equations, so that runs of one and two tokens have keys of their own in vocabularies below PRIME - 1 entries.
STATES, MULTIPLIERS = (1, 2), (41_959, 18_693)
# An id above PRIME is two digits; the second is multiplied.
OF_SECOND_DIGIT = (10_946, 6_765)
NO_TERM = 2**31 - 1
"""A key that no run of tokens has."""


def real_tokens_first(input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """
    The real tokens of each row in their order, then its padding, so that the neighbours of a token are real: ids `[b,
    n]`, int64, and which are real `[b, n]`, bool. Padding may be anywhere.
    """
    ids = input_ids.long()
    if attention_mask is None:
        return ids, torch.ones_like(ids).bool()
    mask = attention_mask != 0
    n = ids.shape[1]
    order = (torch.arange(n, device=ids.device) + (~mask).long() * n).argsort(1)
    mask = mask.gather(1, order)
    return ids.gather(1, order).masked_fill(~mask, 0), mask


def product(x: Tensor, y: Tensor, plus: Tensor | None = None) -> Tensor:
    """`(x * y + plus) % PRIME` of numbers below PRIME and below 2^23."""
    if not is_traced():
        return (x * y if plus is None else torch.addcmul(plus, x, y)) % PRIME
    high, low = y // 256, y % 256
    sums = x * high % PRIME * 256 % PRIME + x * low % PRIME
    return (sums if plus is None else sums + plus) % PRIME


def run_hashes(ids: Tensor, mask: Tensor, longest: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """
    The two hashes of all runs of 1, 2, .. `longest` tokens of what `real_tokens_first` gives: for each length l `[b, n
    - l + 1]` each, from 0 to PRIME - 1, and which runs lie among the real tokens.
    """
    factors, multipliers, begun = _run_constants(ids.device)
    digits = product(ids // PRIME, factors, plus=ids % PRIME)  # [2, b, n]
    state = (digits + begun) % PRIME
    for length in range(1, longest + 1):
        if length > 1:
            state = product(state[..., :-1], multipliers, plus=digits[..., length - 1 :])
        yield state[0], state[1], mask[:, length - 1 :]


@cached_unless_traced
def _run_constants(device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Of the two hashes `[2, 1, 1]` each: factors of the second digit, multipliers, first states multiplied."""
    begun = [state * multiplier % PRIME for state, multiplier in zip(STATES, MULTIPLIERS, strict=True)]
    constants = torch.tensor([OF_SECOND_DIGIT, MULTIPLIERS, begun], device=device)[..., None, None]
    return constants[0], constants[1], constants[2]


# The last token of a run is added to its hashes as it is: multiplied, ids that differ by 4096 have other last digits.
OF_HASHES = (28_411, 17_389)


@cached_unless_traced
def _factors_of_hashes(device: torch.device) -> Tensor:
    return torch.tensor(OF_HASHES, device=device)[:, None, None]


def run_keys(ids: Tensor, mask: Tensor, longest: int) -> Iterator[tuple[Tensor, Tensor]]:
    """As `run_hashes`, with one key of each run, from 0 to PRIME^2 - 1."""
    for first, second, is_real in run_hashes(ids, mask, longest):
        yield first * PRIME + second, is_real


def _even_shares(found: Sequence[Tensor]) -> Tensor:
    """Of what runs of 1, 2, .. tokens add, `[b, n - l + 1, k]` each, that of each token, `[b, n, k]`: even parts."""
    shares = torch.zeros_like(found[0])
    for length, added in enumerate(found, start=1):
        for offset in range(length):
            shares[:, offset : offset + added.shape[1]] += added / length
    return shares


@dataclass(frozen=True, eq=False, repr=False)
class TfidfTerms:
    """
    Fitted terms of TF-IDF with logistic regression.

    Args:
        keys: `[F]`, ascending, from `run_keys`.
        idf: `[F]`.
        weight, bias: `[F, k]` and `[k]`, of the logits.
        max_length: tokens of the longest term.
        share: of this model in the vote, between 0 and 1.
        temperature: that the encoder's logits are divided by.
        sublinear: whether c occurrences count 1 + ln c, or c.
        strength: the inverse regularisation of the weights.
    """

    keys: Tensor
    idf: Tensor
    weight: Tensor
    bias: Tensor
    max_length: int = 2
    share: float = 0.5
    temperature: float = 1.0
    sublinear: bool = True
    strength: float = 1.0


class TfidfVote(nn.Module):
    """
    TF-IDF of runs of tokens with logistic regression, and its vote with an encoder.

    From a thousand texts a linear model over words and pairs of words learns more about sentiment than an encoder
    with random embeddings, and the two err in different texts. Terms and weights are fitted outside (`TfidfTerms`),
    and no gradient changes them: they are buffers, saved with the model.

    A term is a run of tokens by its 31-bit key. Its value in a text is (1 + ln c) idf for c occurrences, or c idf,
    divided by the norm of all values of the text, as in scikit-learn's TfidfVectorizer(sublinear_tf=...).

    Args:
        config: the number of terms, `tfidf_terms`, tokens of the longest, `tfidf_max_length`, `tfidf_sublinear`, and
            labels.
    """

    keys: Tensor
    idf: Tensor
    weight: Tensor
    bias: Tensor
    share: Tensor
    temperature: Tensor

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.longest = config.tfidf_max_length
        self.config = config
        terms, labels = config.tfidf_terms, config.num_labels
        self.register_buffer("keys", torch.full((terms,), NO_TERM, dtype=torch.int32))
        self.register_buffer("idf", torch.ones(terms))
        self.register_buffer("weight", torch.zeros(terms, labels))
        self.register_buffer("bias", torch.zeros(labels))
        self.register_buffer("share", torch.full((), 0.5))
        self.register_buffer("temperature", torch.ones(()))

    def init_own_weights(self) -> None:
        """No terms, for `_init_weights`, which leaves buffers from a checkpoint as they are."""
        values = {"keys": NO_TERM, "idf": 1, "weight": 0, "bias": 0, "share": 0.5, "temperature": 1}
        for name, value in values.items():
            init.constant_(getattr(self, name), value)

    @classmethod
    def from_terms(cls, terms: TfidfTerms, config: EncoderConfig) -> "TfidfVote":
        """The vote of fitted terms, as many as the configuration of the classifier says, with its labels."""
        given, shape = list(terms.weight.shape), [config.tfidf_terms, config.num_labels]
        if given != shape:
            raise ValueError(f"The weights of the terms have shape {given}; {shape} is needed, [terms, labels].")
        vote = cls(config)
        for name in ("keys", "idf", "weight", "bias"):
            getattr(vote, name).copy_(getattr(terms, name))
        vote.share.fill_(terms.share)
        vote.temperature.fill_(terms.temperature)
        return vote

    def find_terms(self, input_ids: Tensor, attention_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """
        The terms in texts `[b, n]`: each occurrence's term `[b, m]`, from 0 to F - 1, and its part of the term's value
        `[b, m]`, the value divided by the number of occurrences in the text; 0 where a run is no term. The columns are
        the runs of one token, then those of two, and so on.
        """
        ids, mask = real_tokens_first(input_ids, attention_mask)
        found = list(run_hashes(ids, mask, self.longest))
        first, second, is_real = (torch.cat(parts, dim=1) for parts in zip(*found, strict=True))
        term, is_known = find_key(self.keys, PRIME, first, second)
        is_known = is_known & is_real
        count = _counts(term.masked_fill(~is_known, len(self.keys))).clamp(min=1).float()
        # The look-up of an embedding is the gather that every runtime has.
        idf = nn.functional.embedding(term, self.idf[:, None])[..., 0].float()
        value = (1 + count.log() if self.config.tfidf_sublinear else count) * idf * is_known
        # Each of c occurrences has a c-th of the square, in sum the square of the value.
        norm = (value.square() / count).sum(1, keepdim=True).clamp(min=1e-12).sqrt()
        return term, value / count / norm

    def logits(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The logits `[b, k]` of the linear model alone."""
        term, value = self.find_terms(input_ids, attention_mask)
        found = nn.functional.embedding(term, self.weight).float() * value[..., None]
        return found.sum(1) + self.bias.float()

    def shares(self, input_ids: Tensor) -> Tensor:
        """What each token of texts `[b, n]` adds to the logits, `[b, n, k]`: even parts of its terms."""
        term, value = self.find_terms(input_ids, None)
        found = nn.functional.embedding(term, self.weight).float() * value[..., None]
        n = input_ids.shape[1]
        return _even_shares(found.split([n - length + 1 for length in range(1, min(self.longest, n) + 1)], dim=1))

    def forward(self, logits: Tensor, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The vote: logits `[b, k]` of the weighted mean of the encoder's probabilities and those of the terms."""
        both = torch.stack([logits.float() / self.temperature.float(), self.logits(input_ids, attention_mask)])
        weights = torch.stack([1 - self.share, self.share]).float().log()[:, None, None]
        if self.config.problem_type == "multi_label_classification":
            yes, no = (nn.functional.logsigmoid(sign * both) + weights for sign in (1, -1))
            voted = yes.logsumexp(0) - no.logsumexp(0)
        else:
            voted = (both.log_softmax(-1) + weights).logsumexp(0)
        return voted.to(logits.dtype)


def _counts(terms: Tensor) -> Tensor:
    """How often each of the numbers `[b, m]` is in its row, `[b, m]`."""
    ordered, order = terms.sort(1)
    begins = torch.ones_like(ordered)
    begins[:, 1:] = (ordered[:, 1:] != ordered[:, :-1]).long()
    group = begins.cumsum(1) - 1
    sizes = torch.zeros_like(ordered).scatter_add(1, group, torch.ones_like(ordered))
    return torch.zeros_like(ordered).scatter(1, order, sizes.gather(1, group))


# ------ n-grams


class NgramLogits(nn.Module):
    """
    A linear classifier over the n-grams of tokens that a text holds, up to `config.max_ngram_length` long.

    Its logits add to those of an encoder (a wide part beside a deep one, https://arxiv.org/abs/1606.07792), which from
    few texts learns less about the sentiment of a pair of words than logistic regression does. N-grams share the rows
    of the weights by their hash (https://arxiv.org/abs/0902.2206).

    Args:
        config: `ngram_buckets` rows, `max_ngram_length`, `ngram_dropout`, `num_labels`.
    """

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
        What each n-gram adds to the logits: for each length l from 1 `[b, n - l + 1, k]`, at the first token of an
        n-gram among the real tokens of its row; zeros after the last one.
        """
        ids, mask = real_tokens_first(input_ids, attention_mask)
        scale = self.SCALE * mask.sum(1, keepdim=True).clamp(min=1).to(self.weight.dtype).rsqrt()
        found = []
        for key, is_real in self._keys(ids, mask):
            kept = self.dropout(is_real * scale)
            found.append(nn.functional.embedding(key % len(self.weight), self.weight) * kept[..., None])
        return found

    def _keys(self, ids: Tensor, mask: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """For each length the keys of n-grams, and which of them lie among the real tokens."""
        for first, second, is_real in run_hashes(ids, mask, self.longest):
            high, low = product(torch.stack([first, second]), _factors_of_hashes(ids.device)) % DIGIT
            yield torch.add(low, high, alpha=DIGIT), is_real

    def shares(self, input_ids: Tensor) -> Tensor:
        """What each token of texts `[b, n]` adds to the logits, `[b, n, k]`: even parts of its n-grams."""
        return _even_shares(self.ngram_logits(input_ids, None))

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """The logits `[b, k]` of texts `[b, n]`, the sum of `ngram_logits`."""
        return torch.stack([logits.sum(1) for logits in self.ngram_logits(input_ids, attention_mask)]).sum(0)
