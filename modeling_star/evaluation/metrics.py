"""
Every metric once: what each example adds to it, and the score of the sums. Training, reports, `compare` and the
bootstrap use the same.

A new metric is a line of `METRICS`, and of `TASKS`, from which runs and `compare` take theirs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata
from seqeval.metrics.sequence_labeling import get_entities

from ..errors import UserError
from ..models.tag_schemes import SEGMENT, entity_tag, typed_labels
from .squad import Language, answer_language, score_answers


@dataclass(frozen=True)
class Metric:
    """
    A metric that is a function of sums over examples: resampling then only adds rows of numbers.

    Attributes:
        count: of references and predictions, and what `shared` gives: `[examples, k]`.
        score: of sums `[..., k]`: metrics `[...]`.
        shared: of references and the predictions of all runs: keyword arguments of `count`.
        full: the full score in all_results.json.
    """

    count: Callable[..., np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]
    shared: Callable[[Sequence[Any], Sequence[Sequence[Any]]], dict[str, Any]] = lambda references, runs: {}
    full: float = 1.0


def count_runs(
    metric: str, references: Sequence[Any], runs: Sequence[Sequence[Any]], **given: Any
) -> list[np.ndarray]:
    """
    What each example adds to a metric, `[examples, k]` for each run, so that runs can be scored and compared without
    their predictions; "answer_f1" and "answer_em" share theirs.

    Args:
        references: one item for each example: a label, or a list of them for a tagged sentence, whose words with the
            reference `None` do not count; a frozenset of labels; a number; a list of a question's answers.
        runs: the predictions of each run, one item for each example, of the same kind; of answers texts.
        given: in place of what is found in references and runs: `language` of answers, `labels` in their order.
    """
    if metric not in METRICS:
        raise UserError(f"metric={metric!r}; choose one of {', '.join(METRICS)}.")
    options = given or METRICS[metric].shared(references, runs)
    return [METRICS[metric].count(*labelled_words(references, run), **options) for run in runs]


def count_examples(metric: str, references: Sequence[Any], predictions: Sequence[Any], **given: Any) -> np.ndarray:
    """`count_runs` of one run."""
    return count_runs(metric, references, [predictions], **given)[0]


def score_counts(metric: str, counts: np.ndarray) -> float:
    """The metric of one run, from its counts `[examples, k]`."""
    return float(METRICS[metric].score(counts.sum(axis=0)))


# Counts


def _seen_labels(references: Sequence[Any], runs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """The labels that occur, in their order."""
    items = (label for each in (references, *runs) for item in each for label in _listed(item))
    return {"labels": sorted(set().union(*map(_as_set, items)) - {None})}


def _two_labels(references: Sequence[Any], runs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """`_seen_labels`, which have to be two."""
    labels = set(_seen_labels(references, runs)["labels"])
    labels |= {0, 1} if labels <= {0, 1} else set()
    if len(labels) != 2:
        raise UserError(f'metric="f1" is that of the second of two labels, and these are {sorted(labels)}.')
    return {"labels": sorted(labels)}


def _answer_language(references: Sequence[Any], runs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    return {"language": answer_language(answer for answers in references for answer in answers)}


def _listed(item: Any) -> list[Any]:
    """The labels of a tagged sentence, or one label as a list of one."""
    return list(item) if isinstance(item, (list, tuple, np.ndarray)) else [item]


def _as_set(label: Any) -> frozenset[Any]:
    return label if isinstance(label, frozenset) else frozenset([label])


def _pairs(references: Sequence[Any], predictions: Sequence[Any]) -> Iterator[list[tuple[Any, Any]]]:
    for truth, guess in zip(references, predictions, strict=True):
        yield list(zip(_listed(truth), _listed(guess), strict=True))


def labelled_words(references: Sequence[Any], predictions: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """References and predictions without the words of tagged sentences whose reference is `None`."""
    if not any(None in _listed(reference) for reference in references):
        return references, predictions
    labelled = [[pair for pair in item if pair[0] is not None] for item in _pairs(references, predictions)]
    return [[truth for truth, _ in item] for item in labelled], [[guess for _, guess in item] for item in labelled]


def _count_correct(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """Correct labels and all labels, `[examples, 2]`."""
    pairs = _pairs(references, predictions)
    return np.array([(sum(truth == guess for truth, guess in item), len(item)) for item in pairs])


def _count_shared(truths: Sequence[Any], guesses: Sequence[Any]) -> np.ndarray:
    """Items that both sets of an example have, that the first has and that the second has, `[examples, 3]`."""
    pairs = zip(truths, guesses, strict=True)
    rows = [(len(truth & guess), len(truth), len(guess)) for truth, guess in pairs]
    return np.array(rows, dtype=np.int64).reshape(-1, 3)


def _for_f1(counts: np.ndarray) -> np.ndarray:
    """From `_count_shared` twice the shared items, and those of both sets, `[examples, 2]`."""
    return np.stack([2 * counts[:, 0], counts[:, 1] + counts[:, 2]], axis=1)


def _count_entities(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    return _count_shared(*map(entities_in, (references, predictions)))


def _count_answers(references: Sequence[Any], predictions: Sequence[Any], language: Language) -> np.ndarray:
    """F1, exact match and 1 of each question, `[examples, 3]`."""
    exact, f1 = score_answers(predictions, references, language)
    return np.stack([f1, exact, np.ones_like(f1)], axis=1)


def _count_labels(references: Sequence[Any], predictions: Sequence[Any], labels: Sequence[Any]) -> np.ndarray:
    """How often each label is predicted rightly, expected and predicted, `[examples, 3 * labels]`."""
    index, shape = {label: number for number, label in enumerate(labels)}, (len(references), len(labels))
    pairs = [(row, pair) for row, item in enumerate(_pairs(references, predictions)) for pair in item]
    sets = [(row * len(labels), _as_set(truth), _as_set(guess)) for row, (truth, guess) in pairs]
    places = (
        [start + index[label] for start, truth, guess in sets for label in truth & guess],
        [start + index[label] for start, truth, _ in sets for label in truth],
        [start + index[label] for start, _, guess in sets for label in guess],
    )
    tables = (np.bincount(np.array(each, dtype=np.int64), minlength=shape[0] * shape[1]) for each in places)
    return np.concatenate([table.reshape(shape) for table in tables], axis=1).astype(np.float64)


def _count_moments(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """1, x, y, xx, yy, xy of each example, `[examples, 6]`."""
    x, y = np.asarray(references, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _count_errors(references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """The squared difference and 1 of each example, `[examples, 2]`."""
    errors = (np.asarray(predictions, dtype=np.float64) - np.asarray(references, dtype=np.float64)) ** 2
    return np.stack([errors, np.ones_like(errors)], axis=1)


# Scores


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotients, 0 where undefined."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=np.asarray(denominator) != 0)


def _ratio(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0], sums[..., 1])


def _by_label(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parts of `_count_labels`, `[..., labels]` each."""
    right, truth, guess = np.moveaxis(sums.reshape(*sums.shape[:-1], 3, -1), -2, 0)
    return right, truth, guess


def _label_f1(sums: np.ndarray) -> np.ndarray:
    """F1 of each label, `[..., labels]`."""
    right, truth, guess = _by_label(sums)
    return _divide(2 * right, truth + guess)


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    """The mean over the labels that occur in references or predictions, as scikit-learn's."""
    _, truth, guess = _by_label(sums)
    return _divide(_label_f1(sums).sum(axis=-1), (truth + guess > 0).sum(axis=-1))


def _weighted_f1(sums: np.ndarray) -> np.ndarray:
    _, truth, _ = _by_label(sums)
    return _divide((_label_f1(sums) * truth).sum(axis=-1), truth.sum(axis=-1))


def _matthews(sums: np.ndarray) -> np.ndarray:
    right, truth, guess = _by_label(sums)
    total = truth.sum(axis=-1)
    spread = (total**2 - (truth**2).sum(axis=-1)) * (total**2 - (guess**2).sum(axis=-1))
    return _divide(right.sum(axis=-1) * total - (truth * guess).sum(axis=-1), np.sqrt(spread))


def _pearson(sums: np.ndarray) -> np.ndarray:
    """0 where all numbers of one side are the same."""
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y = n * xx - x * x, n * yy - y * y
    varies = (spread_x > 1e-14 * n * xx) & (spread_y > 1e-14 * n * yy)  # beyond rounding
    return _divide(n * xy - x * y, np.sqrt(np.where(varies, spread_x * spread_y, 0)))


METRICS = {
    "accuracy": Metric(_count_correct, _ratio),  # of sets of labels: of whole sets
    "entity_f1": Metric(lambda *items: _for_f1(_count_entities(*items)), _ratio),
    "entity_precision": Metric(lambda *items: _count_entities(*items)[:, [0, 2]], _ratio),
    "entity_recall": Metric(lambda *items: _count_entities(*items)[:, [0, 1]], _ratio),
    "micro_f1": Metric(lambda *items: _for_f1(_count_shared(*items)), _ratio),
    "answer_f1": Metric(_count_answers, lambda sums: _divide(sums[..., 0], sums[..., 2]), _answer_language),
    "answer_em": Metric(_count_answers, lambda sums: _divide(sums[..., 1], sums[..., 2]), _answer_language),
    "macro_f1": Metric(_count_labels, _macro_f1, _seen_labels),
    "labels_f1": Metric(_count_labels, lambda sums: _label_f1(sums).mean(axis=-1), _seen_labels),
    "weighted_f1": Metric(_count_labels, _weighted_f1, _seen_labels),
    "f1": Metric(_count_labels, lambda sums: _label_f1(sums)[..., 1], _two_labels),
    "matthews_correlation": Metric(_count_labels, _matthews, _seen_labels),
    "pearson": Metric(_count_moments, _pearson),
    # Of a resample: with the ranks among all examples.
    "spearmanr": Metric(lambda *numbers: _count_moments(*map(rankdata, numbers)), _pearson),
    "mse": Metric(_count_errors, _ratio),
}
"""The metrics by name; an experiment may add its own. "f1" is that of the second of two labels in their order."""

TASKS: dict[str, tuple[str, dict[str, str]]] = {
    "entities": (
        "f1",
        {"precision": "entity_precision", "recall": "entity_recall", "f1": "entity_f1", "accuracy": "accuracy"},
    ),
    "tokens": ("accuracy", {"accuracy": "accuracy", "macro_f1": "macro_f1"}),
    "single_label_classification": (
        "accuracy",
        {name: name for name in ("accuracy", "macro_f1", "weighted_f1", "matthews_correlation", "f1")},
    ),
    "multi_label_classification": (
        "micro_f1",
        {"micro_f1": "micro_f1", "macro_f1": "labels_f1", "accuracy": "accuracy"},
    ),
    "regression": ("pearson", {name: name for name in ("pearson", "spearmanr", "mse")}),
    "reading": ("f1", {"exact_match": "answer_em", "f1": "answer_f1"}),
}
"""Of each task the score that chooses the best model, and its scores by their names in all_results.json."""

LESS_IS_BETTER = ("loss", "mse", "perplexity")
"""The scores of all tasks that are better when lower."""


# Entities


def is_entity_scheme(label_list: Sequence[str]) -> bool:
    """Whether labels are entity tags (O, B-x, I-x and the like) or the letters of word segmentation."""
    others = [label for label in typed_labels(label_list) if label != "O"]
    return bool(others) and all(entity_tag(label) for label in others)


def entities_in(sentences: Iterable[Sequence[str]]) -> list[set[tuple[str, int, int]]]:
    """
    The entities of sentences tagged in BIO, BIOES, BILOU or BMES, exact in type and both ends, as seqeval (and
    conlleval) finds them: type, first word, the one after the last.
    """
    rows = [[_letters(label) for label in sentence] for sentence in sentences]
    return [{(kind, first, last + 1) for kind, first, last in get_entities(row)} for row in rows]


def _letters(label: str) -> str:
    """A tag in the letters that seqeval knows: BILOU and BMES as BIOES, a letter alone with a type."""
    tag = entity_tag(label) or entity_tag(f"{label}-{SEGMENT}")
    return label if tag is None else "-".join(filter(None, tag))


def entity_report(
    references: Sequence[Sequence[str]], predictions: Sequence[Sequence[str]]
) -> dict[str | None, dict[str, float]]:
    """
    `precision`, `recall`, `f1` and `support` (entities in the references) of each type of entity; of all as `None`.
    """
    truths, guesses = (
        {(number, *entity) for number, entities in enumerate(entities_in(rows)) for entity in entities}
        for rows in (references, predictions)
    )
    report: dict[str | None, dict[str, float]] = {}
    for kind in (*sorted({kind for _, kind, *_ in truths | guesses}), None):
        truth, guess = ({entity for entity in found if kind in (None, entity[1])} for found in (truths, guesses))
        counts = _count_shared([truth], [guess])
        scores = {"precision": counts[0, [0, 2]], "recall": counts[0, [0, 1]], "f1": _for_f1(counts)[0]}
        report[kind] = {**{name: float(_ratio(sums)) for name, sums in scores.items()}, "support": len(truth)}
    return report
