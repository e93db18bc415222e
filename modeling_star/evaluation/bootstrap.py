"""Paired bootstrap: how sure a difference between two systems is, given the test examples and the seeds."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from .metrics import seqeval_labels
from .squad import Language, answer_language, score_answers
from .translation_scores import bleu_of_counts, chrf_of_counts, count_translations


class Interval(NamedTuple):
    """A difference (a minus b) and the ends of its confidence interval."""

    difference: float
    low: float
    high: float


@dataclass(frozen=True)
class _Counted:
    """A metric that is a function of sums over examples: resampling then only adds rows of numbers.

    `count(references, predictions, labels)` gives `[examples, k]`; `score` of sums `[..., k]` gives metrics `[...]`.
    """

    count: Callable[[Sequence[Any], Sequence[Any], list[Any]], np.ndarray]
    score: Callable[[np.ndarray], np.ndarray]


def paired_bootstrap(
    metric: str | Callable[[list[Any], list[Any]], float],
    references: Sequence[Any],
    predictions_a: Sequence[Any],
    predictions_b: Sequence[Any],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
    several_runs: bool = False,
) -> Interval:
    """The difference between two systems on the same examples, with a percentile bootstrap interval.

    Whole examples (sentences) are drawn with replacement, the same ones for both systems. Where a system has several
    runs, some of these are drawn too, for each system by itself: one fewer than there are, so that the mean varies as
    that of so many seeds does (Rao and Wu, 1988, "Resampling Inference With Complex Survey Data"). Two or three seeds
    tell roughly how far seeds differ, no more.

    Args:
        metric: "accuracy", "macro_f1", "weighted_f1", "f1" (the second of two labels in their order, 1 of 0 and 1) or
            "matthews_correlation" (of labels, or of lists of labels: tagged sentences, whose words with the reference
            `None` do not count), "entity_f1" (lists of entity tags), "micro_f1" (lists of the labels of a text,
            or these in JSON), "answer_f1" or "answer_em" (a text against the list of a question's answers; their
            language is told from them), "bleu", "bleu_zh" (texts, cut up as English or as Chinese) or "chrf" (all
            three from 0 to 1), "pearson" or "mse" (numbers): about a second for thousands of examples. Or a function
            of (references, predictions), called 2 x `samples` times.
        references: one item for each example.
        predictions_a, predictions_b: likewise; with `several_runs`, a list of such lists for each system (its seeds),
            whose metrics are averaged within every sample. One run tells nothing of what other seeds would change.
        samples: how many resamples.
        confidence: the share of resamples inside the interval.

    Returns:
        metric(a) - metric(b), and the interval's ends.

    Raises:
        ValueError: for unequal lengths, no example, or an unknown metric.
    """
    systems = [list(predictions) if several_runs else [predictions] for predictions in (predictions_a, predictions_b)]
    if not len(references) or samples < 1 or not all(systems):
        raise ValueError(f"{len(references)} references, {samples} samples: give at least one of each, and one run.")
    for run in [*systems[0], *systems[1]]:
        if len(run) != len(references):
            raise ValueError(
                f"{len(references)} references against {len(run)} predictions: give those of the same examples, in "
                "the same order (for several seeds, lists of them and several_runs=True)."
            )
    resample = _resample_by_call if callable(metric) else _resample_by_counts
    draws = _draws(len(references), [len(system) for system in systems], samples, seed)
    return _interval(resample(metric, references, systems, draws), confidence)


def count_examples(
    metric: str, references: Sequence[Any], predictions: Sequence[Any], language: Language | None = None
) -> np.ndarray:
    """
    What each example adds to a metric, so that a run can be compared later without its predictions.

    Args:
        metric: "accuracy", "entity_f1", "micro_f1", "answer_f1", "answer_em", "bleu", "bleu_zh", "chrf", "pearson" or
            "mse": those whose counts need no list of all labels. The two for answers have the same counts; those for
            BLEU serve chrF too.
        references, predictions: one item for each example, as in `paired_bootstrap`; words whose reference is `None`
            are those without a label, which add nothing.
        language: how answers are compared; `None`: as the references tell.

    Returns:
        `[examples, k]`, for `bootstrap_counts`.
    """
    if language is not None and metric in ("answer_f1", "answer_em"):
        return _count_answers_in(language, references, predictions)
    return _METRICS[metric].count(*_labelled(references, predictions), [])


def score_examples(metric: str, references: Sequence[Any], predictions: Sequence[Any]) -> float:
    """A metric of one run; arguments as in `paired_bootstrap`."""
    labels = _labels_for(metric, references, [predictions])
    counts = _METRICS[metric].count(*_labelled(references, predictions), labels)
    return score_counts(metric, counts)


def score_counts(metric: str, counts: np.ndarray) -> float:
    """The metric, from the counts `[examples, k]` of one run (`count_examples`)."""
    return float(_METRICS[metric].score(counts.sum(axis=0)))


def bootstrap_counts(
    metric: str,
    runs_a: Sequence[np.ndarray],
    runs_b: Sequence[np.ndarray],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """`paired_bootstrap` of several runs, from the counts `[examples, k]` of each run (`count_examples`)."""
    return _interval(_resample_counts(metric, runs_a, runs_b, _draws_of(runs_a, runs_b, samples, seed)), confidence)


def bootstrap_mean(
    tasks: Sequence[tuple[str, Sequence[np.ndarray], Sequence[np.ndarray]]],
    *,
    samples: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> Interval:
    """
    The difference of two systems' mean over several tasks, the examples and runs of each drawn by themselves.

    Args:
        tasks: for each task its metric, as in `count_examples`, the counts of system a's runs and those of system b's.
        samples, seed, confidence: as in `paired_bootstrap`.
    """
    differences = [
        _resample_counts(metric, runs_a, runs_b, _draws_of(runs_a, runs_b, samples, seed + number))
        for number, (metric, runs_a, runs_b) in enumerate(tasks)
    ]
    return _interval(np.mean(differences, axis=0), confidence)


class _Draw(NamedTuple):
    """Indices of examples, and for each of two systems those of its runs."""

    examples: np.ndarray
    runs: list[np.ndarray]


def _draws(examples: int, runs: list[int], samples: int, seed: int) -> list[_Draw]:
    """All of them as they are, then `samples` draws with replacement."""
    rng, rng_of_runs = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    whole = _Draw(np.arange(examples), [np.arange(count) for count in runs])
    return [
        whole,
        *(
            _Draw(
                rng.integers(examples, size=examples),
                [rng_of_runs.integers(count, size=max(1, count - 1)) for count in runs],
            )
            for _ in range(samples)
        ),
    ]


def _draws_of(runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], samples: int, seed: int) -> list[_Draw]:
    """Draws for the counts `[examples, k]` of two systems' runs."""
    return _draws(len(runs_a[0]), [len(runs_a), len(runs_b)], samples, seed)


def _interval(differences: np.ndarray, confidence: float) -> Interval:
    tail = (1 - confidence) / 2
    low, high = np.quantile(differences[1:], [tail, 1 - tail])
    return Interval(float(differences[0]), float(low), float(high))


def _resample_by_call(
    metric: Any, references: Sequence[Any], systems: list[list[Sequence[Any]]], draws: list[_Draw]
) -> np.ndarray:
    """The difference on each draw, `[draws]`."""
    differences = []
    for examples, chosen in draws:
        truth = [references[i] for i in examples]
        means = [
            np.mean([metric(truth, [runs[number][i] for i in examples]) for number in numbers])
            for runs, numbers in zip(systems, chosen, strict=True)
        ]
        differences.append(means[0] - means[1])
    return np.array(differences)


def _resample_by_counts(
    metric: Any, references: Sequence[Any], systems: list[list[Sequence[Any]]], draws: list[_Draw]
) -> np.ndarray:
    """As `_resample_by_call`, from sums of counts."""
    if metric not in _METRICS:
        raise ValueError(f"metric={metric!r}; choose one of {', '.join(_METRICS)}, or give a function.")
    runs = [run for system in systems for run in system]
    labels = _labels_for(metric, references, runs)
    counts = [_METRICS[metric].count(*_labelled(references, run), labels) for run in runs]
    split = len(systems[0])
    return _resample_counts(metric, counts[:split], counts[split:], draws)


def _labels_for(metric: str, references: Sequence[Any], runs: Sequence[Sequence[Any]]) -> list[Any]:
    """
    All labels of a metric that counts by label; none for one that does not.

    Raises:
        ValueError: "f1" is asked for of more than two labels.
    """
    if _METRICS[metric].count is not _count_confusions:
        return []
    labels = {label for items in (references, *runs) for item in items for label in _listed(item)} - {None}
    if metric == "f1":
        if len(labels) > 2:
            raise ValueError(f'metric="f1" is that of one of two labels, not among {sorted(labels)}; use "macro_f1".')
        labels = {0, 1} if labels <= {0, 1} else labels
        if len(labels) == 1:
            raise ValueError(f'metric="f1" is that of the second of two labels, and all is {labels}; use "accuracy".')
    return sorted(labels)


def _resample_counts(
    metric: str, runs_a: Sequence[np.ndarray], runs_b: Sequence[np.ndarray], draws: list[_Draw]
) -> np.ndarray:
    """The difference on each draw, `[draws]`, from each run's counts `[examples, k]`."""
    # all runs' counts side by side, so that one product resamples them all
    counts = np.stack([*runs_a, *runs_b], axis=1).astype(np.float64)
    examples, runs, width = counts.shape
    times = (np.bincount(draw.examples, minlength=examples).astype(np.float64) for draw in draws)
    flat = counts.reshape(examples, -1)
    values = _METRICS[metric].score(np.stack([weights @ flat for weights in times]).reshape(-1, runs, width))
    split = len(runs_a)
    return np.array(
        [
            own[:split][draw.runs[0]].mean() - own[split:][draw.runs[1]].mean()
            for own, draw in zip(values, draws, strict=True)
        ]
    )


def _listed(item: Any) -> list[Any]:
    """The labels of a tagged sentence, or one label as a list of one."""
    return list(item) if isinstance(item, (list, tuple, np.ndarray)) else [item]


def _labelled(references: Sequence[Any], predictions: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
    """References and predictions without the words of tagged sentences whose reference is `None`."""
    if not any(None in _listed(reference) for reference in references):
        return references, predictions
    kept = [[pair for pair in item if pair[0] is not None] for item in _pairs(references, predictions)]
    return [[truth for truth, _ in item] for item in kept], [[guess for _, guess in item] for item in kept]


def _pairs(references: Sequence[Any], predictions: Sequence[Any]) -> Iterable[list[tuple[Any, Any]]]:
    for truth, guess in zip(references, predictions, strict=True):
        yield list(zip(_listed(truth), _listed(guess), strict=True))


def _count_correct(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """Correct labels and all labels, [examples, 2]."""
    return np.array(
        [(sum(truth == guess for truth, guess in item), len(item)) for item in _pairs(references, predictions)]
    )


def _count_sets(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """Labels right, twice, and labels found plus labels expected, [examples, 2]; of lists of labels, or of JSON."""
    truths, guesses = (
        [set(json.loads(item) if isinstance(item, str) else item) for item in items]
        for items in (references, predictions)
    )
    pairs = list(zip(truths, guesses, strict=True))
    return np.array([(2 * len(truth & guess), len(truth) + len(guess)) for truth, guess in pairs])


def _count_entities(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """Entities right, and entities found plus entities expected, [examples, 2]."""
    rows = []
    for truth, guess in zip(seqeval_labels(references), seqeval_labels(predictions), strict=True):
        expected, found = set(get_entities(truth)), set(get_entities(guess))
        rows.append((2 * len(found & expected), len(found) + len(expected)))
    return np.array(rows)


def _count_answers(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    language = answer_language(answer for answers in references for answer in answers)
    return _count_answers_in(language, references, predictions)


def _count_answers_in(language: Language, references: Sequence[Any], predictions: Sequence[Any]) -> np.ndarray:
    """F1, exact match and 1 of each question, [examples, 3]."""
    exact, f1 = score_answers(predictions, references, language)
    return np.stack([f1, exact, np.ones_like(f1)], axis=1)


def _count_translations(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    return count_translations(predictions, references, "13a")


def _count_translations_zh(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    return count_translations(predictions, references, "zh")


def _count_confusions(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """How often each label stands against each other, [examples, labels * labels], reference first."""
    index = {label: number for number, label in enumerate(labels)}
    table = np.zeros((len(references), len(labels) ** 2))
    for row, item in zip(table, _pairs(references, predictions), strict=True):
        for truth, guess in item:
            row[index[truth] * len(labels) + index[guess]] += 1
    return table


def _count_moments(references: Sequence[Any], predictions: Sequence[Any], labels: list[Any]) -> np.ndarray:
    """1, x, y, xx, yy, xy of each example, [examples, 6]."""
    x, y = np.asarray(references, dtype=np.float64), np.asarray(predictions, dtype=np.float64)
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _ratio(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0], sums[..., 1])


def _answer_f1(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 0], sums[..., 2])


def _answer_exact(sums: np.ndarray) -> np.ndarray:
    return _divide(sums[..., 1], sums[..., 2])


def _bleu(sums: np.ndarray) -> np.ndarray:
    return bleu_of_counts(sums[..., :10])


def _chrf(sums: np.ndarray) -> np.ndarray:
    return chrf_of_counts(sums[..., 10:])


def _tables(sums: np.ndarray) -> np.ndarray:
    size = round(sums.shape[-1] ** 0.5)
    return sums.reshape(*sums.shape[:-1], size, size)


def _label_f1(tables: np.ndarray) -> np.ndarray:
    return _divide(2 * np.diagonal(tables, axis1=-2, axis2=-1), tables.sum(axis=-1) + tables.sum(axis=-2))


def _positive_f1(sums: np.ndarray) -> np.ndarray:
    return _label_f1(_tables(sums))[..., 1]


def _macro_f1(sums: np.ndarray) -> np.ndarray:
    tables = _tables(sums)
    present = (tables.sum(axis=-1) + tables.sum(axis=-2)) > 0  # scikit-learn, too, averages over these only
    return _divide(_label_f1(tables).sum(axis=-1), present.sum(axis=-1))


def _weighted_f1(sums: np.ndarray) -> np.ndarray:
    tables = _tables(sums)
    support = tables.sum(axis=-1)
    return _divide((_label_f1(tables) * support).sum(axis=-1), support.sum(axis=-1))


def _matthews(sums: np.ndarray) -> np.ndarray:
    tables = _tables(sums)
    truth, guess, total = tables.sum(axis=-1), tables.sum(axis=-2), tables.sum(axis=(-2, -1))
    correct = np.diagonal(tables, axis1=-2, axis2=-1).sum(axis=-1)
    spread = (total**2 - (truth**2).sum(axis=-1)) * (total**2 - (guess**2).sum(axis=-1))
    return _divide(correct * total - (truth * guess).sum(axis=-1), np.sqrt(spread))


def _pearson(sums: np.ndarray) -> np.ndarray:
    n, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread = np.maximum((n * xx - x * x) * (n * yy - y * y), 0)
    return _divide(n * xy - x * y, np.sqrt(spread))


def _mean_squared_error(sums: np.ndarray) -> np.ndarray:
    n, _, _, xx, yy, xy = np.moveaxis(sums, -1, 0)
    return (xx + yy - 2 * xy) / n


def _divide(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Quotients, 0 where undefined."""
    return np.divide(numerator, denominator, out=np.zeros(np.shape(numerator)), where=np.asarray(denominator) != 0)


_METRICS = {
    "accuracy": _Counted(_count_correct, _ratio),
    "entity_f1": _Counted(_count_entities, _ratio),
    "micro_f1": _Counted(_count_sets, _ratio),
    "answer_f1": _Counted(_count_answers, _answer_f1),
    "answer_em": _Counted(_count_answers, _answer_exact),
    "bleu": _Counted(_count_translations, _bleu),
    "bleu_zh": _Counted(_count_translations_zh, _bleu),
    "chrf": _Counted(_count_translations, _chrf),
    "macro_f1": _Counted(_count_confusions, _macro_f1),
    "weighted_f1": _Counted(_count_confusions, _weighted_f1),
    "f1": _Counted(_count_confusions, _positive_f1),
    "matthews_correlation": _Counted(_count_confusions, _matthews),
    "pearson": _Counted(_count_moments, _pearson),
    "mse": _Counted(_count_moments, _mean_squared_error),
}
