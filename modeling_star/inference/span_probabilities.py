"""
The probability of a span: that the labels of a CRF form exactly this group with exactly this type.

Given the text, the labels of a linear-chain CRF are a Markov chain. With the backward messages B (`messages` of the
model's output, log-sum-exp of all that follows a label at a token, its emission included) and the transitions T

    P(y_t = b | y_(t-1) = a) = softmax_b(T[a, b] + B_t[b])

so that one marginal before the span and a product of small matrices give its probability (the constrained forward
algorithm of Culotta and McCallum 2004). All spans above a bound are found by making those that begin at each token
longer, as long as the probability that they go on is above it:

    y_(i-1)      y_i         y_(i+1) ... y_j        y_(j+1)
    any label -> begins X -> goes on    goes on  -> does not go on

Axes: c tokens of the chains of some texts  k labels  s spans
"""

import numpy as np

from ..data.entities import EntityGroups


_SPANS_AT_ONCE = 4096


class SpanScorer:
    """
    Scores spans of `groups` by the scores `[k, k]` of a CRF's transitions, from the row's label to the column's;
    `carries_no_tag` `[V]`, bool, are entries of the vocabulary that its chain omits.
    """

    def __init__(self, groups: EntityGroups, transitions: np.ndarray, carries_no_tag: np.ndarray) -> None:
        self.transitions = transitions.astype(np.float64)
        self.carries_no_tag, self.groups = carries_no_tag, groups
        tags, self.outside = groups.tags, groups.outside
        self.kinds = np.array([[kind == other for _, other in tags] for _, kind in tags])
        """`[k, k]`, bool, whether two labels have one type."""
        open_kinds = [kind if prefix in ("B", "I") else None for prefix, kind in tags]
        self.goes_on = np.array(
            [[prefix in ("I", "E") and kind == open for prefix, kind in tags] for open in open_kinds]
        )
        """`[k, k]`, bool, whether the column's label continues the group of the row's, as `EntityGroups.bounds`."""

    def chain(self, ids: np.ndarray) -> np.ndarray:
        """Which of the tokens of a text, without special tokens or with them, the chain has: bool, as `ids`."""
        return ~self.carries_no_tag[ids]

    def __call__(
        self,
        log_marginals: np.ndarray,
        messages: np.ndarray,
        texts: np.ndarray,
        firsts: np.ndarray,
        lasts: np.ndarray,
        labels: np.ndarray,
    ) -> np.ndarray:
        """
        The probabilities of spans `[s]` with some first and last tokens and the label of the first `[s]`, by log
        marginals and messages `[c, k]` of the chains of texts, one after the other, and each token's text `[c]`.
        """
        if len(firsts) > _SPANS_AT_ONCE:
            parts = (slice(at, at + _SPANS_AT_ONCE) for at in range(0, len(firsts), _SPANS_AT_ONCE))
            found = [self(log_marginals, messages, texts, firsts[x], lasts[x], labels[x]) for x in parts]
            return np.concatenate(found)
        weights = self._begun(log_marginals, messages, texts, firsts) * self.kinds[labels]
        for step in range(1, int((lasts - firsts).max(initial=0)) + 1):
            longer = np.flatnonzero(firsts + step <= lasts)
            weights[longer] = self._longer(weights[longer], messages, firsts[longer] + step)
        return self._ended(weights, messages, texts, lasts)

    def above(
        self, bound: float, log_marginals: np.ndarray, messages: np.ndarray, texts: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """
        All spans of entities with at least a probability, above 0, however long, ordered by their first token, then
        their last: the first and the last token, a label of the type, and the probability, `[s]` each.
        """
        found = [(np.zeros(0, dtype=np.int64),) * 3 + (np.zeros(0),)]
        _, kinds = np.unique(self.kinds, axis=0, return_index=True)  # a label of each type
        kinds = kinds[kinds != self.outside]
        for at in range(0, len(texts), _SPANS_AT_ONCE):
            firsts = np.arange(at, min(at + _SPANS_AT_ONCE, len(texts)))
            weights = self._begun(log_marginals, messages, texts, firsts)[:, None] * self.kinds[kinds]
            starts, types = np.nonzero(weights.sum(-1) >= bound)
            weights, firsts, lasts, labels = weights[starts, types], firsts[starts], firsts[starts], kinds[types]
            while len(firsts):
                found.append((firsts, lasts, labels, self._ended(weights, messages, texts, lasts)))
                inside = np.flatnonzero(self._has_next(texts, lasts))
                weights = self._longer(weights[inside], messages, lasts[inside] + 1)
                is_open = weights.sum(-1) >= bound  # no longer span is more probable than that it goes on
                weights, inside = weights[is_open], inside[is_open]
                firsts, lasts, labels = firsts[inside], lasts[inside] + 1, labels[inside]
        firsts, lasts, labels, probabilities = map(np.concatenate, zip(*found, strict=True))
        kept = np.flatnonzero(probabilities >= bound)
        order = kept[np.lexsort((lasts[kept], firsts[kept]))]
        return firsts[order], lasts[order], labels[order], probabilities[order]

    def _begun(
        self, log_marginals: np.ndarray, messages: np.ndarray, texts: np.ndarray, firsts: np.ndarray
    ) -> np.ndarray:
        """The probability that a group begins at some tokens with each label, `[s, k]`."""
        weights = np.exp(log_marginals[firsts].astype(np.float64))
        # After another label, the one that begins the span must not continue what was before.
        inside = (firsts > 0) & (texts[firsts - 1] == texts[firsts])
        before = np.exp(log_marginals[firsts[inside] - 1].astype(np.float64))
        steps = self._steps(messages, firsts[inside]) * ~self.goes_on
        weights[inside] = np.einsum("sa,sab->sb", before, steps)
        return weights

    def _longer(self, weights: np.ndarray, messages: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """The probability that groups `[s, k]` go on to a token, with each label there, `[s, k]`."""
        return np.einsum("sa,sab->sb", weights, self._steps(messages, lasts) * self.goes_on)

    def _ended(self, weights: np.ndarray, messages: np.ndarray, texts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
        """The probability that groups `[s, k]` do not go on after their last tokens, `[s]`."""
        weights, inside = weights.copy(), self._has_next(texts, lasts)
        steps = self._steps(messages, lasts[inside] + 1) * ~self.goes_on
        weights[inside] = np.einsum("sa,sab->sb", weights[inside], steps)
        return weights.sum(-1).clip(0, 1)

    def _has_next(self, texts: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """Whether there is a token of the same text after some tokens, `[s]`, bool."""
        after = np.minimum(tokens + 1, len(texts) - 1)
        return (after > tokens) & (texts[after] == texts[tokens])

    def _steps(self, messages: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The probability of each label at some tokens, given the one before: `[s, k, k]`, rows add up to 1."""
        scores = self.transitions + messages[tokens].astype(np.float64)[:, None]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
