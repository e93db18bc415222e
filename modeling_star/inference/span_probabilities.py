"""
The probability of a span: that the labels of a CRF form exactly this group with exactly this type.

Given the text, the labels of a linear-chain CRF are a Markov chain. With the backward messages B (`messages` of the
model's output, log-sum-exp of all that follows a label at a token, its emission included) and the transitions T

    P(y_t = b | y_(t-1) = a) = softmax_b(T[a, b] + B_t[b])

so that one marginal before the span and a product of small matrices give its probability (the constrained forward
algorithm of Culotta and McCallum 2004):

    y_(i-1)      y_i         y_(i+1) ... y_j        y_(j+1)
    any label -> begins X -> goes on    goes on  -> does not go on

Axes: c tokens of the chains of some texts  k labels  s spans
"""

import numpy as np

from ..data.entities import EntityGroups


_SPANS_AT_ONCE = 4096


class SpanScorer:
    """
    Args:
        groups: which labels begin and continue an entity.
        transitions: `[k, k]`, the scores of a CRF, from the row's label to the column's.
        carries_no_tag: `[V]`, bool, entries of the vocabulary that the CRF's chain omits.
    """

    def __init__(self, groups: EntityGroups, transitions: np.ndarray, carries_no_tag: np.ndarray) -> None:
        self.transitions = transitions.astype(np.float64)
        self.carries_no_tag = carries_no_tag
        tags = groups.tags
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
        The probabilities of spans, `[s]`.

        Args:
            log_marginals, messages: `[c, k]`, of the chains of texts, one after the other.
            texts: `[c]`, the number of the text that a token is of.
            firsts, lasts: `[s]`, the first and the last token of each span.
            labels: `[s]`, the label of its first token, whose type is the span's.
        """
        if len(firsts) > _SPANS_AT_ONCE:
            parts = (slice(at, at + _SPANS_AT_ONCE) for at in range(0, len(firsts), _SPANS_AT_ONCE))
            found = [self(log_marginals, messages, texts, firsts[x], lasts[x], labels[x]) for x in parts]
            return np.concatenate(found)
        of_kind = self.kinds[labels]  # [s, k]
        marginals = np.exp(log_marginals[firsts].astype(np.float64)) * of_kind
        # After another label, the one that begins the span must not continue what was before.
        inside = (firsts > 0) & (texts[firsts - 1] == texts[firsts])
        before = np.exp(log_marginals[firsts[inside] - 1].astype(np.float64))
        steps = self._steps(messages, firsts[inside]) * ~self.goes_on
        weights = marginals
        weights[inside] = np.einsum("sa,sab->sb", before, steps) * of_kind[inside]
        for step in range(1, int((lasts - firsts).max(initial=0)) + 1):
            longer = np.flatnonzero(firsts + step <= lasts)
            steps = self._steps(messages, firsts[longer] + step) * self.goes_on
            weights[longer] = np.einsum("sa,sab->sb", weights[longer], steps)
        after = np.minimum(lasts + 1, len(texts) - 1)
        inside = (after > lasts) & (texts[after] == texts[lasts])
        steps = self._steps(messages, after[inside]) * ~self.goes_on
        weights[inside] = np.einsum("sa,sab->sb", weights[inside], steps)
        return weights.sum(-1).clip(0, 1)

    def _steps(self, messages: np.ndarray, tokens: np.ndarray) -> np.ndarray:
        """The probability of each label at some tokens, given the one before: `[s, k, k]`, rows add up to 1."""
        scores = self.transitions + messages[tokens].astype(np.float64)[:, None]
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)
