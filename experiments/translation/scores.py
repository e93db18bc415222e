"""Scores of translations: BLEU and chrF by sacrebleu, and as metrics that runs are compared by."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams
from transformers import EvalPrediction

from modeling_star.evaluation.compare import KINDS, MADE_BY
from modeling_star.evaluation.metrics import METRICS, TASKS, Metric


@dataclass(frozen=True)
class TranslationMetrics:
    """BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole split, from 0 to 100."""

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
        """The keys of what `__call__` returns."""
        return ["bleu", "chrf"]

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """BLEU and chrF of `predictions[0]`, token ids `[rows, m]`; nothing where none were generated, `[rows, 0]`."""
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
    """sacrebleu's signature, with which others can compute the same BLEU again: `nrefs:1|case:mixed|...`."""
    metric = BLEU(tokenize=tokenize)
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def count_translations(translations: Sequence[str], references: Sequence[str], tokenize: str) -> np.ndarray:
    """What each sentence adds to BLEU and to chrF: `[sentences, 28]`, `count_ngrams` and `count_characters`."""
    return np.hstack([count_ngrams(translations, references, tokenize), count_characters(translations, references)])


def count_ngrams(translations: Sequence[str], references: Sequence[str], tokenize: str) -> np.ndarray:
    """What each sentence adds to BLEU: `[sentences, 10]`, n-grams matched and made for n = 1 to 4, the two lengths."""
    metric = BLEU(tokenize=tokenize, effective_order=True)  # without a warning about scores of single sentences
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


def _metric(tokenize: str, score: Callable[[np.ndarray], np.ndarray]) -> Metric:
    return Metric(lambda references, texts: count_translations(texts, references, tokenize), score, full=100)


# Each from 0 to 1; BLEU of words as 13a or as Chinese characters.
METRICS |= {
    "bleu": _metric("13a", lambda sums: bleu_of_counts(sums[..., :10])),
    "bleu_zh": _metric("zh", lambda sums: bleu_of_counts(sums[..., :10])),
    "chrf": _metric("13a", lambda sums: chrf_of_counts(sums[..., 10:])),
}
# Runs of run_translation.py, whose predictions have a "source"; their BLEU is of words or of Chinese characters.
MADE_BY["run_translation.py"] = "source"
TASKS |= {name: ("bleu", {"bleu": name, "chrf": "chrf"}) for name in ("bleu", "bleu_zh")}
KINDS["source"] = ("bleu", "bleu_zh")
