"""
Fit TF-IDF with logistic regression on token ids: the linear model of models/token_runs.py.

Axes: r texts  F terms  k labels
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags
from scipy.special import expit, log_expit, log_softmax
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import normalize
from torch import Tensor

from ..data.writing_systems import FIRST_CJK
from ..models.configuration_encoder import EncoderConfig
from ..models.token_runs import TfidfTerms, TfidfVote, real_tokens_first, run_keys


# Inverse regularisation; the loss of cross-validation chooses.
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
# The most terms, those in the most texts: 4 MB and another 1 MB for each label.
MOST_TERMS = 262_144
# A term is in at least so many training texts.
FEWEST_TEXTS = 2
# The logit of a label that the training texts do not have, or all have.
CERTAIN = 30.0
# Cross-validation takes so many texts at most, and as many of its folds as hold out so many.
FOLDS, _MOST_VALIDATED, _ENOUGH_HELD_OUT = 5, 20_000, 2_000
_TEMPERATURES = np.geomspace(0.5, 16, 31)
_SHARES = np.linspace(0.1, 0.9, 17)
_ROWS_AT_ONCE = 64

Rows = Sequence[Sequence[int]]


def fit_terms(
    rows: Rows,
    labels: np.ndarray,
    k: int,
    longest: int,
    class_weight: dict[int, float] | None = None,
    like: TfidfTerms | None = None,
) -> TfidfTerms | None:
    """
    Fit terms and weights to the token ids of r texts and their classes `[r]`, or several labels `[r, k]`, with the
    counts of occurrences (`sublinear`) and the regularisation that have the least loss in cross-validation, or those
    of earlier terms. `None` where no run of tokens is in two texts, but not in all.

    The weight of a term is regularised the less, the more unevenly the classes of the training texts have it: values
    are multiplied by 0.5 + |r| before the fit, and weights after it, r being the largest log ratio of a class (Wang
    and Manning 2012, "Baselines and Bigrams", Eq 2, without the sign; 0.5 replaces their interpolation).
    """
    keys, counts = _count_runs(rows, longest)
    is_term, idf = _idf(counts)
    if not is_term.any():
        return None
    sublinear, strength = (
        _settings(counts, labels, k, class_weight) if like is None else (like.sublinear, like.strength)
    )
    features = _values(counts[:, is_term], idf, sublinear)
    [(weight, bias)] = _fitted(features, labels, k, class_weight, (strength,))
    numbers = (_tensor(keys[is_term]), _tensor(idf), _tensor(weight), _tensor(bias))
    return TfidfTerms(*numbers, longest, sublinear=sublinear, strength=strength)


def _settings(
    counts: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None
) -> tuple[bool, float]:
    """`sublinear` and the strength with the least loss on held-out folds, of equal ones the largest strength."""
    order = np.random.default_rng(0).permutation(counts.shape[0])[:_MOST_VALIDATED]
    folds = min(FOLDS, len(order))
    fold = np.arange(len(order)) % folds
    losses: dict[tuple[bool, float], float] = {}
    for number in range(min(folds, -(-_ENOUGH_HELD_OUT * FOLDS // len(order)))):
        train, held_out = order[fold != number], order[fold == number]
        is_term, idf = _idf(counts[train])
        if not is_term.any():
            continue
        parts = [counts[part][:, is_term] for part in (train, held_out)]
        for sublinear in (True, False):
            fit_on, tried_on = (_values(part, idf, sublinear) for part in parts)
            fits = _fitted(fit_on, labels[train], k, class_weight, STRENGTHS)
            for strength, (weight, bias) in zip(STRENGTHS, fits, strict=True):
                loss = log_loss(tried_on @ weight + bias, labels[held_out]) * len(held_out)
                losses[sublinear, strength] = losses.get((sublinear, strength), 0.0) + loss
    return min(losses, key=lambda setting: (losses[setting], -setting[1]), default=(True, 10.0))


def linear_logits(terms: TfidfTerms, rows: Rows) -> np.ndarray:
    """The logits `[r, k]` of fitted terms for texts by their token ids."""
    vote, logits = _module(terms), np.empty((len(rows), len(terms.bias)))
    for indices, ids, mask in _batches(rows):
        logits[indices] = vote.logits(ids, mask).numpy()
    return logits


def log_loss(logits: np.ndarray, expected: np.ndarray) -> float:
    """The mean of `log_losses`."""
    return float(log_losses(logits, expected).mean())


def log_losses(logits: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """The losses of logits `[r, k]` for classes `[r]`, or for the labels of 0 and 1 among `[r, k]`."""
    if expected.ndim == 1:
        return -log_softmax(logits, axis=-1)[np.arange(len(expected)), expected]
    signs = np.where(expected > 0, 1, -1)
    return -log_expit(signs * logits)[expected >= 0]


def _module(terms: TfidfTerms) -> TfidfVote:
    fields = {"tfidf_terms": len(terms.keys), "tfidf_max_length": terms.max_length, "num_labels": len(terms.bias)}
    return TfidfVote.from_terms(terms, EncoderConfig(**fields, tfidf_sublinear=terms.sublinear))


def _tensor(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))


def longest_term(texts: Sequence[str]) -> int:
    """The tokens of the longest term: 2, or 3 where most letters of the first texts are Chinese or Japanese."""
    letters = [letter for text in texts[:200] for letter in text if letter.isalnum()]
    return 3 if sum(ord(letter) >= FIRST_CJK for letter in letters) * 2 > len(letters) else 2


# ------ features


def _batches(rows: Rows) -> Iterator[tuple[np.ndarray, Tensor, Tensor]]:
    """Texts of similar length: their indices, ids and mask, padded."""
    order = np.argsort([len(row) for row in rows], kind="stable")
    for start in range(0, len(order), _ROWS_AT_ONCE):
        indices = order[start : start + _ROWS_AT_ONCE]
        some = [torch.as_tensor(rows[index]) for index in indices]
        ids = torch.nn.utils.rnn.pad_sequence(some, batch_first=True)
        lengths = torch.tensor([len(row) for row in some])
        yield indices, ids, torch.arange(ids.shape[1]) < lengths[:, None]


def _count_runs(rows: Rows, longest: int) -> tuple[np.ndarray, csr_matrix]:
    """The keys `[F]`, ascending, of the runs of tokens in at least two texts; their counts in each text `[r, F]`."""
    found, texts = [], []
    for indices, ids, mask in _batches(rows):
        for keys, is_real in run_keys(*real_tokens_first(ids, mask), longest):
            found.append(keys[is_real].int().numpy())
            texts.append(np.repeat(indices, is_real.sum(1).numpy()))
    all_keys, columns = np.unique(np.concatenate(found), return_inverse=True)
    cells = (np.ones(len(columns), dtype=np.float32), (np.concatenate(texts), columns))
    counts = csr_matrix(cells, shape=(len(rows), len(all_keys)))  # adds up the occurrences
    in_texts = counts.getnnz(0)
    kept = np.flatnonzero(in_texts >= FEWEST_TEXTS)
    if len(kept) > MOST_TERMS:
        kept = np.sort(kept[np.argsort(-in_texts[kept], kind="stable")[:MOST_TERMS]])
    return all_keys[kept], counts[:, kept]


def _idf(counts: csr_matrix) -> tuple[np.ndarray, np.ndarray]:
    """Which runs are terms, those in at least two texts, but not in all, `[F]`; the idf of each term."""
    in_texts, r = counts.getnnz(0), counts.shape[0]
    is_term = (in_texts >= FEWEST_TEXTS) & (in_texts < r)
    return is_term, np.log((1 + r) / (1 + in_texts[is_term])) + 1


def _values(counts: csr_matrix, idf: np.ndarray, sublinear: bool) -> csr_matrix:
    """The values of the terms in each text, `[r, F]`, as in `TfidfVote`."""
    values = counts.astype(np.float64)
    if sublinear:
        values.data = 1 + np.log(values.data)
    return normalize(values @ diags(idf))


# ------ logistic regression


def _scales(features: csr_matrix, is_class: np.ndarray) -> np.ndarray:
    """0.5 + |r| of each term `[F]`; `is_class` `[r, k]` says which texts have which label."""
    has_term = (features > 0).astype(np.float64)
    inside = has_term.T @ is_class + 1
    outside = np.asarray(has_term.sum(0)).reshape(-1, 1) - inside + 2
    ratios = np.log(inside / inside.sum(0)) - np.log(outside / outside.sum(0))
    return 0.5 + np.abs(ratios).max(1)


def _fitted(
    features: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None, strengths: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights `[F, k]` and bias `[k]` for each strength."""
    fit = _fit_classes if labels.ndim == 1 else _fit_labels
    return fit(features, labels, k, class_weight, strengths)


def _regressions(
    features: csr_matrix, labels: np.ndarray, class_weight: dict[int, float] | None, strengths: Sequence[float]
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """
    Coefficients `[1 or k, F]` and intercepts of a fit for each strength, each from the last one's. Of few long texts
    as many numbers as texts have the same products as their many values, and so the same fit.
    """
    numbers, back = features, None
    if len(labels) ** 2 < features.nnz:
        squares, vectors = np.linalg.eigh((features @ features.T).toarray())
        is_kept = squares > 1e-9
        roots, vectors = np.sqrt(squares[is_kept]), vectors[:, is_kept]
        numbers, back = vectors * roots, vectors / roots
    model = LogisticRegression(max_iter=1000, warm_start=True, class_weight=class_weight)
    for strength in strengths:
        model.set_params(C=strength).fit(numbers, labels)
        coefficients = model.coef_.copy() if back is None else (features.T @ (back @ model.coef_.T)).T
        yield coefficients, model.intercept_.copy()


def _fit_classes(
    features: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None, strengths: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As `_fitted`, of one class per text."""
    classes = np.unique(labels)
    bias = np.full(k, -CERTAIN)
    if len(classes) == 1:
        bias[classes] = CERTAIN
        return [(np.zeros((features.shape[1], k)), bias)] * len(strengths)
    scales = _scales(features, labels[:, None] == classes)
    found = []
    for coefficients, intercepts in _regressions(features @ diags(scales), labels, class_weight, strengths):
        if len(classes) == 2:  # the logit of the second is half of it up, that of the first half of it down
            coefficients, intercepts = (np.stack([-x[0], x[0]]) / 2 for x in (coefficients, intercepts))
        weight, shifted = np.zeros((features.shape[1], k)), bias.copy()
        weight[:, classes], shifted[classes] = (coefficients * scales).T, intercepts
        found.append((weight, shifted))
    return found


def _fit_labels(
    features: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None, strengths: Sequence[float]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As `_fit_classes`, of several labels per text: a regression for each; texts where a label is unknown omitted."""
    found = [(np.zeros((features.shape[1], k)), np.zeros(k)) for _ in strengths]
    for label in range(k):
        is_known = labels[:, label] >= 0
        given, values = features[is_known], labels[is_known, label] > 0
        if values.all() or not values.any():
            for _, bias in found:
                bias[label] = CERTAIN if len(values) and values.all() else -CERTAIN
            continue
        scales = _scales(given, values[:, None])
        models = _regressions(given @ diags(scales), values, None, strengths)
        for (weight, bias), (coefficients, intercepts) in zip(found, models, strict=True):
            weight[:, label], bias[label] = coefficients[0] * scales, intercepts[0]
    return found


# ------ the ensemble


def calibrated(terms: TfidfTerms, encoder: np.ndarray, linear: np.ndarray, expected: np.ndarray) -> TfidfTerms:
    """
    The terms with the temperature of the encoder and their share in the vote that have the least loss on validation,
    from both models' logits `[r, k]`. An encoder that has learnt a thousand texts by heart is as good as certain of
    every text: without a temperature the mean of the probabilities would be its own answer.
    """
    temperature = temperature_of(encoder, expected)
    one_label = expected.ndim == 1
    losses = [log_loss(mixed(encoder / temperature, linear, share, one_label), expected) for share in _SHARES]
    share = float(_SHARES[int(np.argmin(losses))])
    return replace(terms, share=share, temperature=temperature)


def temperature_of(logits: np.ndarray, expected: np.ndarray) -> float:
    """The temperature with the least loss."""
    return float(min(_TEMPERATURES, key=lambda temperature: log_loss(logits / temperature, expected)))


def mixed(encoder: np.ndarray, linear: np.ndarray, share: float, one_label: bool) -> np.ndarray:
    """Logits `[r, k]` of the weighted mean of the probabilities of two models, as in `TfidfVote`."""
    if one_label:
        return np.logaddexp(log_softmax(encoder, -1) + np.log(1 - share), log_softmax(linear, -1) + np.log(share))
    mean = (1 - share) * expit(encoder) + share * expit(linear)
    return np.log(mean) - np.log1p(-mean)
