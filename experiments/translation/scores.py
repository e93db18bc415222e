"""Scores of translations: BLEU and chrF by sacrebleu, and as metrics that runs are compared by."""

from collections.abc import Callable, Sequence

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from modeling_star.evaluation.compare import KINDS
from modeling_star.evaluation.metrics import METRICS, TASKS, Metric


def score_translations(translations: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """`bleu` and `chrf` of translations against one reference each, from 0 to 100."""
    expected = [list(references)]
    return {
        "bleu": float(BLEU().corpus_score(list(translations), expected).score),
        "chrf": float(CHRF().corpus_score(list(translations), expected).score),
    }


def count_translations(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """What each sentence adds to BLEU and to chrF: `[sentences, 28]`, `count_ngrams` and `count_characters`."""
    return np.hstack([count_ngrams(translations, references), count_characters(translations, references)])


def count_ngrams(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """What each sentence adds to BLEU: `[sentences, 10]`, n-grams matched and made for n = 1 to 4, the two lengths."""
    metric = BLEU(effective_order=True)  # without a warning about scores of single sentences
    scores = (metric.sentence_score(text, [truth]) for text, truth in zip(translations, references, strict=True))
    return np.array([[*s.counts, *s.totals, s.sys_len, s.ref_len] for s in scores], dtype=np.float64)


def bleu_of_counts(sums: np.ndarray) -> np.ndarray:
    """BLEU from 0 to 1 of sums of `count_ngrams`, `[..., 10]` to `[...]`."""

    def score(row: np.ndarray) -> float:
        counts = row.astype(int).tolist()
        return BLEU.compute_bleu(counts[:4], counts[4:8], counts[8], counts[9], smooth_method="exp").score / 100

    return np.apply_along_axis(score, -1, sums)


def count_characters(translations: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """What each sentence adds to chrF."""
    rows = [_count_characters(text, truth) for text, truth in zip(translations, references, strict=True)]
    return np.array(rows, dtype=np.float64).reshape(-1, 18)


def _count_characters(text: str, reference: str) -> list[list[int]]:
    """`[3, 6]`; n-grams that are longer than the reference count as not made, as for sacrebleu."""
    made, expected = (extract_all_char_ngrams(side, 6) for side in (text, reference))
    pairs = list(zip(made, expected, strict=True))
    return [
        [(one & other).total() for one, other in pairs],
        [one.total() if other else 0 for one, other in pairs],
        [other.total() for _, other in pairs],
    ]


def chrf_of_counts(sums: np.ndarray) -> np.ndarray:
    """chrF from 0 to 1 of sums of `count_characters`, `[..., 18]` to `[...]`."""
    matched, made, expected = sums[..., :6], sums[..., 6:12], sums[..., 12:]
    orders = np.maximum(((made > 0) & (expected > 0)).sum(axis=-1), 1)
    precision = (matched / np.maximum(made, 1)).sum(axis=-1) / orders
    recall = (matched / np.maximum(expected, 1)).sum(axis=-1) / orders
    weighted = 4 * precision + recall
    return np.where(weighted > 0, 5 * precision * recall / np.where(weighted > 0, weighted, 1), 0.0)


def _metric(score: Callable[[np.ndarray], np.ndarray]) -> Metric:
    return Metric(lambda references, texts: count_translations(texts, references), score, full=100)


# Each from 0 to 1.
METRICS |= {
    "bleu": _metric(lambda sums: bleu_of_counts(sums[..., :10])),
    "chrf": _metric(lambda sums: chrf_of_counts(sums[..., 10:])),
}
# Runs of run_translation.py, whose predictions have a "source".
TASKS["bleu"] = ("bleu", {"bleu": "bleu", "chrf": "chrf"})
KINDS["source"] = ("bleu",)
