"""
Fit TF-IDF with logistic regression on token ids: the linear model of models/token_runs.py.

Axes: r texts  F terms  k labels
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import csr_matrix, diags, vstack
from scipy.special import expit, log_expit, log_softmax
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ..data.writing_systems import FIRST_CJK
from ..models.configuration_encoder import EncoderConfig
from ..models.token_runs import NO_TERM, TfidfTerms, TfidfVote, real_tokens_first, run_keys


# Inverse regularisation; the loss on validation chooses.
STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0)
# The most terms, those in the most texts: 4 MB and another 1 MB for each label.
MOST_TERMS = 262_144
# A term is in at least so many training texts.
FEWEST_TEXTS = 2
# The logit of a label that the training texts do not have, or all have.
CERTAIN = 30.0
_TEMPERATURES = np.geomspace(0.5, 16, 31)
_SHARES = np.linspace(0.1, 0.9, 17)
_ROWS_AT_ONCE = 64

Rows = Sequence[Sequence[int]]


def fit_terms(
    train: Rows,
    labels: np.ndarray,
    validation: Rows,
    expected: np.ndarray,
    k: int,
    longest: int,
    class_weight: dict[int, float] | None = None,
) -> TfidfTerms | None:
    """
    Fit terms and weights on train, with the regularisation that has the least loss on validation.

    The weight of a term is regularised the less, the more unevenly the classes of the training texts have it: values
    are multiplied by 0.5 + |r| before the fit, and weights after it, r being the largest log ratio of a class (Wang
    and Manning 2012, "Baselines and Bigrams", Eq 2, without the sign; 0.5 replaces their interpolation).

    Args:
        train, validation: token ids of the texts, r of them each.
        labels, expected: their classes `[r]`, or of several labels 0 and 1 `[r, k]`.
        k: the number of labels.
        longest: tokens of the longest term.
        class_weight: of each class in the loss.

    Returns:
        The terms, or `None` where no run of tokens is in two texts, but not in all.
    """
    keys, counts = _document_counts(train, longest)
    is_term = (counts >= FEWEST_TEXTS) & (counts < len(train))
    keys, counts = keys[is_term], counts[is_term]
    if len(keys) > MOST_TERMS:
        kept = np.sort(np.argsort(-counts, kind="stable")[:MOST_TERMS])
        keys, counts = keys[kept], counts[kept]
    if not len(keys):
        return None
    idf = np.log((1 + len(train)) / (1 + counts)) + 1
    empty = TfidfTerms(_tensor(keys), _tensor(idf), torch.zeros(len(keys), k), torch.zeros(k), longest)
    vote = _module(empty)
    features, held_out = _matrix(vote, train), _matrix(vote, validation)
    fit = _fit_classes if labels.ndim == 1 else _fit_labels
    fitted = fit(features, labels, k, class_weight)
    losses = [log_loss(held_out @ weight + bias, expected) for weight, bias in fitted]
    best = int(np.argmin(losses))
    weight, bias = fitted[best]
    return replace(empty, weight=_tensor(weight), bias=_tensor(bias))


def linear_logits(terms: TfidfTerms, rows: Rows) -> np.ndarray:
    """The logits `[r, k]` of fitted terms for texts by their token ids."""
    vote, logits = _module(terms), np.empty((len(rows), len(terms.bias)))
    for indices, ids, mask in _batches(rows):
        logits[indices] = vote.logits(ids, mask).numpy()
    return logits


def log_loss(logits: np.ndarray, expected: np.ndarray) -> float:
    """The mean loss of logits `[r, k]` for classes `[r]`, or for labels of 0 and 1 `[r, k]`."""
    if expected.ndim == 1:
        return float(-log_softmax(logits, axis=-1)[np.arange(len(expected)), expected].mean())
    signs = np.where(expected > 0, 1, -1)
    return float(-log_expit(signs * logits)[expected >= 0].mean())


def _module(terms: TfidfTerms) -> TfidfVote:
    sizes = {"tfidf_terms": len(terms.keys), "tfidf_max_length": terms.max_length, "num_labels": len(terms.bias)}
    return TfidfVote.from_terms(terms, EncoderConfig(**sizes))


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


def _document_counts(rows: Rows, longest: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys of all runs of tokens, ascending, and the number of texts that each is in."""
    found = []
    for _, ids, mask in _batches(rows):
        runs = list(run_keys(*real_tokens_first(ids, mask), longest))
        keys = torch.cat([keys.masked_fill(~is_real, NO_TERM) for keys, is_real in runs], dim=1).int().numpy()
        keys.sort(axis=1)
        is_first = np.diff(keys, axis=1, prepend=-1) != 0
        found.append(keys[is_first & (keys != NO_TERM)])
    return np.unique(np.concatenate(found), return_counts=True)


def _matrix(vote: TfidfVote, rows: Rows) -> csr_matrix:
    """The values of the terms in each text, `[r, F]`."""
    parts, order = [], []
    for indices, ids, mask in _batches(rows):
        term, value = (x.numpy() for x in vote.find_terms(ids, mask))
        row = np.broadcast_to(np.arange(len(term))[:, None], term.shape)
        is_found = value > 0
        cells = (value[is_found].astype(np.float64), (row[is_found], term[is_found]))
        parts.append(csr_matrix(cells, shape=(len(term), len(vote.keys))))  # adds up the occurrences of a term
        order.append(indices)
    return vstack(parts).tocsr()[np.argsort(np.concatenate(order))]


# ------ logistic regression


def _scales(features: csr_matrix, is_class: np.ndarray) -> np.ndarray:
    """0.5 + |r| of each term `[F]`; `is_class` `[r, k]` says which texts have which label."""
    has_term = (features > 0).astype(np.float64)
    inside = has_term.T @ is_class + 1
    outside = np.asarray(has_term.sum(0)).reshape(-1, 1) - inside + 2
    ratios = np.log(inside / inside.sum(0)) - np.log(outside / outside.sum(0))
    return 0.5 + np.abs(ratios).max(1)


def _regressions(
    features: csr_matrix, labels: np.ndarray, class_weight: dict[int, float] | None
) -> Iterator[LogisticRegression]:
    """One fit for each strength, each from the last one's weights."""
    model = LogisticRegression(max_iter=1000, warm_start=True, class_weight=class_weight)
    for strength in STRENGTHS:
        yield model.set_params(C=strength).fit(features, labels)


def _fit_classes(
    features: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights `[F, k]` and bias `[k]` for each strength, of one class per text."""
    classes = np.unique(labels)
    bias = np.full(k, -CERTAIN)
    if len(classes) == 1:
        bias[classes] = CERTAIN
        return [(np.zeros((features.shape[1], k)), bias)] * len(STRENGTHS)
    scales = _scales(features, labels[:, None] == classes)
    found = []
    for model in _regressions(features @ diags(scales), labels, class_weight):
        coefficients, intercepts = model.coef_, model.intercept_
        if len(classes) == 2:  # the logit of the second is half of it up, that of the first half of it down
            coefficients, intercepts = (np.stack([-x[0], x[0]]) / 2 for x in (coefficients, intercepts))
        weight, shifted = np.zeros((features.shape[1], k)), bias.copy()
        weight[:, classes], shifted[classes] = (coefficients * scales).T, intercepts
        found.append((weight, shifted))
    return found


def _fit_labels(
    features: csr_matrix, labels: np.ndarray, k: int, class_weight: dict[int, float] | None
) -> list[tuple[np.ndarray, np.ndarray]]:
    """As `_fit_classes`, of several labels per text: a regression for each; texts where a label is unknown omitted."""
    found = [(np.zeros((features.shape[1], k)), np.zeros(k)) for _ in STRENGTHS]
    for label in range(k):
        is_known = labels[:, label] >= 0
        given, values = features[is_known], labels[is_known, label] > 0
        if values.all() or not values.any():
            for _, bias in found:
                bias[label] = CERTAIN if len(values) and values.all() else -CERTAIN
            continue
        scales = _scales(given, values[:, None])
        models = _regressions(given @ diags(scales), values, None)
        for (weight, bias), model in zip(found, models, strict=True):
            weight[:, label], bias[label] = model.coef_[0] * scales, model.intercept_[0]
    return found


# ------ the ensemble


def calibrated(terms: TfidfTerms, encoder: np.ndarray, linear: np.ndarray, expected: np.ndarray) -> TfidfTerms:
    """
    The terms with the temperature of the encoder and their share in the vote that have the least loss on validation.

    An encoder that has learnt a thousand texts by heart is as good as certain of every text: without a temperature the
    mean of the probabilities would be its own answer.

    Args:
        terms: fitted.
        encoder, linear: both models' logits for the validation texts, `[r, k]`.
        expected: their classes `[r]`, or of several labels 0 and 1 `[r, k]`.
    """
    temperature = min(_TEMPERATURES, key=lambda temperature: log_loss(encoder / temperature, expected))
    turned = log_softmax if expected.ndim == 1 else None
    losses = []
    for share in _SHARES:
        if turned is not None:
            both = np.logaddexp(
                log_softmax(encoder / temperature, -1) + np.log(1 - share), log_softmax(linear, -1) + np.log(share)
            )
            losses.append(log_loss(both, expected))
        else:
            mean = (1 - share) * expit(encoder / temperature) + share * expit(linear)
            losses.append(log_loss(np.log(mean) - np.log1p(-mean), expected))
    share = float(_SHARES[int(np.argmin(losses))])
    return replace(terms, share=share, temperature=float(temperature))
