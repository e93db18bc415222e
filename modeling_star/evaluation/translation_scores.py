"""Scores of translations: BLEU and chrF by sacrebleu, without a network."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from transformers import EvalPrediction


@dataclass(frozen=True)
class TranslationMetrics:
    """
    BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole split, from 0 to 100.

    Attributes:
        tokenize: how sacrebleu cuts up words: "13a", "zh", ...
        references: the split's translations as they were written; `for_split` sets them.
        decode: token ids to texts.
        task, label_list, metric_for_best_model: as in `TaskMetrics`.
    """

    tokenize: str = "13a"
    references: tuple[str, ...] = ()
    decode: Callable[[np.ndarray], list[str]] | None = None
    task: str = "translation"
    label_list: tuple[str, ...] = ()
    metric_for_best_model: str = "bleu"

    def for_split(self, references: Sequence[str], decode: Callable[[np.ndarray], list[str]]) -> "TranslationMetrics":
        """The same metrics against the texts of a split, in its order."""
        return replace(self, references=tuple(references), decode=decode)

    def score_names(self) -> list[str]:
        """What `__call__` returns."""
        return ["bleu", "chrf"]

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """
        Of `predictions[0]`, token ids `[rows, m]`; nothing where none were generated, `[rows, 0]`.

        Raises:
            ValueError: the rows are not those of the references.
        """
        ids = np.asarray(prediction.predictions[0])
        if ids.shape[1] == 0:
            return {}
        texts = self.decode(ids)
        if len(texts) != len(self.references):
            raise ValueError(f"{len(texts)} translations were made for {len(self.references)} references.")
        return score_translations(texts, self.references, self.tokenize)


def score_translations(translations: Sequence[str], references: Sequence[str], tokenize: str) -> dict[str, float]:
    """`bleu` and `chrf` of translations against one reference each, from 0 to 100."""
    expected = [list(references)]
    return {
        "bleu": float(BLEU(tokenize=tokenize).corpus_score(list(translations), expected).score),
        "chrf": float(CHRF().corpus_score(list(translations), expected).score),
    }


def bleu_signature(tokenize: str) -> str:
    """What is to stand beside a BLEU score, so that it can be computed again: `nrefs:1|case:mixed|...`."""
    metric = BLEU(tokenize=tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def count_translations(translations: Sequence[str], references: Sequence[str], tokenize: str) -> np.ndarray:
    """What each sentence adds to BLEU and to chrF: `[sentences, 28]`, `count_ngrams` and `count_characters`."""
    return np.hstack([count_ngrams(translations, references, tokenize), count_characters(translations, references)])


def count_ngrams(translations: Sequence[str], references: Sequence[str], tokenize: str) -> np.ndarray:
    """
    What each sentence adds to BLEU: `[sentences, 10]`, n-grams found and made for n = 1 to 4, the two lengths.
    """
    # Told that the score of one sentence will not be read.
    metric = BLEU(tokenize=tokenize, effective_order=True)
    scores = (metric.sentence_score(text, [known]) for text, known in zip(translations, references, strict=True))
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.float64)


def bleu_of_counts(sums: np.ndarray) -> np.ndarray:
    """
    BLEU from 0 to 1 of sums of `count_ngrams`, `[..., 10]` to `[...]`, smoothed as sacrebleu does by default ("exp").
    """
    found, made, length, expected = sums[..., :4], sums[..., 4:8], sums[..., 8], sums[..., 9]
    # The k-th order of which nothing was found counts as 1 / 2^k of an n-gram.
    empty = np.cumsum(found == 0, axis=-1)
    counted = np.where(found == 0, 0.5**empty, found)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.log(np.where(made > 0, counted / made, 0)).mean(axis=-1)
        brevity = np.where(length < expected, np.exp(1 - expected / length), 1)
    return np.where(found.any(axis=-1), brevity * np.exp(precision), 0.0)


def count_characters(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """
    What each sentence adds to chrF: `[sentences, 18]`, n-grams of characters found, made and expected, for n = 1 to 6.
    """
    rows = [_count_characters(text, known) for text, known in zip(translations, references, strict=True)]
    return np.array(rows, dtype=np.float64)


def _count_characters(text: str, known: str) -> list[int]:
    found, made, expected = [], [], []
    for n in range(1, 7):
        own, other = _character_ngrams(text, n), _character_ngrams(known, n)
        found.append((own & other).total())
        # sacrebleu leaves out what no reference could match.
        made.append(own.total() if other else 0)
        expected.append(other.total())
    return [*found, *made, *expected]


def _character_ngrams(text: str, n: int) -> Counter[str]:
    letters = "".join(text.split())
    return Counter(letters[start : start + n] for start in range(len(letters) - n + 1))


def chrf_of_counts(sums: np.ndarray) -> np.ndarray:
    """
    chrF from 0 to 1 of sums of `count_characters`, `[..., 18]` to `[...]`: F2 of mean precision and mean recall over
    the orders that both sides have.
    """
    found, made, expected = sums[..., :6], sums[..., 6:12], sums[..., 12:]
    there = (made > 0) & (expected > 0)
    orders = np.maximum(there.sum(axis=-1), 1)
    precision = (np.where(there, found / np.maximum(made, 1), 0)).sum(axis=-1) / orders
    recall = (np.where(there, found / np.maximum(expected, 1), 0)).sum(axis=-1) / orders
    weighted = 4 * precision + recall
    return np.where(weighted > 0, 5 * precision * recall / np.where(weighted > 0, weighted, 1), 0.0)


__all__ = [
    "TranslationMetrics",
    "bleu_of_counts",
    "bleu_signature",
    "chrf_of_counts",
    "count_characters",
    "count_ngrams",
    "count_translations",
    "score_translations",
]
