"""
How sure a trained model may be: the temperature of classifiers and taggers, from the validation split; reports of it,
and of the precision and recall of all spans above a probability.

A tagger's temperature has the least log loss of "this predicted span is right": that of all labels is less than spans
need, since most are O, of which it is sure and right (docs/decisions.md). Here windows of a long text count as texts.

Axes: b rows  n columns  k labels  s spans
"""

import logging
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from torch import Tensor

from ..data.entities import EntityGroups
from ..evaluation.calibration import calibration_error, error_by_chance, plot_reliability
from ..evaluation.metrics import is_entity_scheme
from ..evaluation.reports import markdown_table
from ..files import write_text
from ..inference.span_probabilities import SpanScorer
from ..models.heads import ForTokenClassification, eval_mode
from ..models.tag_schemes import IGNORE_INDEX
from ..training.task import Task


logger = logging.getLogger(__name__)

_GRID = np.geomspace(0.2, 10, 30)  # temperatures that cross-validation tries
_FEWEST = 10  # right and wrong predictions that a temperature is fitted to
_ROWS_AT_ONCE = 64
_SHOWN_BOUNDS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01)

Scored = tuple[np.ndarray, np.ndarray]
"""The probabilities `[s]` of predictions, and which of them are right."""
Measured = Callable[[float], tuple[Scored, np.ndarray]]
"""Of a temperature, the predictions and the loss `[s]` of each."""


def fit_temperature(loss: Callable[[float], float]) -> float:
    """The temperature with the least loss, from 0.2 to 10."""
    found = minimize_scalar(
        lambda log: loss(math.exp(log)),
        bounds=(math.log(0.2), math.log(10)),
        method="bounded",
        options={"xatol": 0.01},
    )
    return round(math.exp(found.x), 3)


def _held_out(measured: Measured) -> Scored:
    """The predictions of each fifth with the temperature that has the least loss on the others, from a grid."""
    tried = [measured(temperature) for temperature in _GRID]
    is_right = tried[0][0][1]
    fifth, probabilities = np.arange(len(is_right)) % 5, np.zeros(len(is_right))
    for held_out in (fifth == number for number in range(5)):
        (best, _), _ = min(tried, key=lambda each: each[1][~held_out].mean())
        probabilities[held_out] = best[held_out]
    return probabilities, is_right


def _temperature(measured: Measured, what: str) -> tuple[float, float]:
    """
    Fit and log the temperature: the one that is kept, and the one that was fitted. The first is 1 where too few
    predictions are right or wrong, or where it does not lessen the calibration error, of all predictions and of those
    held out.
    """
    before, _ = measured(1.0)
    right = int(before[1].sum())
    if min(right, len(before[1]) - right) < _FEWEST:
        logger.info(
            f"No temperature is fitted: {right} of {len(before[1])} {what} in the validation split are right, and at "
            f"least {_FEWEST} right and {_FEWEST} wrong ones are needed."
        )
        return 1.0, 1.0
    temperature = fit_temperature(lambda tried: float(measured(tried)[1].mean()))
    error, fitted, held_out = (
        calibration_error(*each) for each in (before, measured(temperature)[0], _held_out(measured))
    )
    is_better = max(fitted, held_out) < error
    logger.info(
        f"Temperature {temperature:g}{'' if is_better else ' is not kept'}: the calibration error of "
        f"{len(before[1]):,} {what} in the validation split is {fitted:.3f}, held out {held_out:.3f}, before "
        f"{error:.3f}" + " (without it: --calibrate false)" * is_better
    )
    return temperature if is_better else 1.0, temperature


def calibration_report(
    folder: Path, split: str, before: Scored, after: Scored, temperature: float, is_kept: bool
) -> str:
    """Write the reliability picture and the table of a split; returns the table."""
    tried = "after" if is_kept else "not kept"
    rows = [
        [name, value, len(each[0]), each[1].mean(), each[0].mean(), calibration_error(*each), error_by_chance(each[0])]
        for name, value, each in (("before", 1.0, before), (tried, temperature, after))
    ]
    header = ["", "temperature", "predictions", "right", "mean probability", "calibration error", "by chance"]
    series = [("before", *before), (tried, *after)]
    plot_reliability(series, folder / f"calibration_{split}.png", title=f"{split}: probabilities")
    return markdown_table(header, rows)


# ------ classifiers


def labelled(logits: np.ndarray, expected: np.ndarray, temperature: float) -> Scored:
    """The probability of the best label of each text `[b, k]`, and whether it is right."""
    return np.exp(log_softmax(logits / temperature, -1).max(-1)), logits.argmax(-1) == expected


def calibrate_classifier(trainer: Any) -> float:
    """Fit the temperature of a classifier with one label for each text, and return it, kept or not."""
    output = trainer.predict(trainer.eval_dataset)
    predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    logits, expected = np.asarray(predictions, dtype=np.float64), np.asarray(output.label_ids)
    rows = np.arange(len(expected))

    def measured(temperature: float) -> tuple[Scored, np.ndarray]:
        losses = -log_softmax(logits / temperature, -1)[rows, expected]
        return labelled(logits, expected, temperature), losses

    trainer.model.config.calibration_temperature, fitted = _temperature(measured, "predictions")
    return fitted


# ------ taggers


class TaggedSplit:
    """A labelled split as the head of a tagger reads it: temperatures are tried without the encoder."""

    @torch.no_grad()
    def __init__(self, model: ForTokenClassification, features: Dataset, collate: Callable[..., Any]) -> None:
        self.crf = model.crf
        names = [model.config.id2label[number] for number in range(model.config.num_labels)]
        self.groups = EntityGroups(names)
        self.batches: list[tuple[Tensor, Tensor]] = []
        """Logits `[b, n, k]`, and whether a token has a label `[b, n]`."""
        self.lengths: list[int] = []
        self.true: list[set[tuple[str, int, int]]] = []
        inputs = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in features.column_names]
        features = features.select_columns([*inputs, "labels"])
        order = np.argsort([len(ids) for ids in features["input_ids"]], kind="stable")
        with eval_mode(model):
            for start in range(0, len(order), _ROWS_AT_ONCE):
                batch = collate([features[int(row)] for row in order[start : start + _ROWS_AT_ONCE]])
                labels = batch.pop("labels")
                states = model.model(**{name: each.to(model.device) for name, each in batch.items()}, return_dict=True)
                self.batches.append((model.classifier(states.last_hidden_state).float(), labels != IGNORE_INDEX))
                for row in labels:
                    known = row[row != IGNORE_INDEX].numpy()
                    self.lengths.append(len(known))
                    self.true.append(set(self.groups(known)))
        (best,) = self._flat(
            lambda logits, chain: (logits.argmax(-1) if self.crf is None else self.crf.best_paths(logits, chain),)
        )
        self._best = self._spans(best)

    @torch.no_grad()
    def _flat(self, values: Callable[[Tensor, Tensor], tuple[Tensor, ...]]) -> list[np.ndarray]:
        """What a function of logits and chain gives, `[b, n, ...]` each, of the labelled tokens of all texts."""
        parts = [[x.cpu()[chain].numpy() for x in values(e, chain.to(e.device))] for e, chain in self.batches]
        return [np.concatenate(part) for part in zip(*parts, strict=True)]

    def _spans(self, labels: np.ndarray) -> list[tuple[int, int, int, bool]]:
        """The first token of all, the one after the last, the label and whether it is right, of each span."""
        spans, begin = [], 0
        for length, true in zip(self.lengths, self.true, strict=True):
            own = labels[begin : begin + length]
            for kind, first, last in self.groups(own):
                spans.append((begin + first, begin + last, int(own[first]), (kind, first, last) in true))
            begin += length
        return spans

    def bounds(self, temperature: float, bounds: Iterable[float]) -> list[tuple[float, float, float]]:
        """Bounds of the probability, and the precision and recall of all spans above each."""
        bounds = list(bounds)
        probabilities, is_right = self.listed(temperature, min(bounds))
        true, points = sum(map(len, self.true)), []
        for bound in bounds:
            found = is_right[probabilities >= bound]
            right = int(found.sum())
            points.append((bound, round(right / max(len(found), 1), 4), round(right / max(true, 1), 4)))
        return points

    def scored(self, temperature: float) -> Scored:
        """The predicted spans: their probabilities as a `Predictor` gives them."""
        firsts, ends, labels, is_right = np.array(self._best, dtype=np.int64).reshape(-1, 4).T
        if self.crf is None:
            (logits,) = self._flat(lambda logits, _: (logits,))
            scores = log_softmax(logits.astype(np.float64) / temperature, -1).max(-1)
            sums = np.concatenate([[0.0], scores.cumsum()])
            return np.exp(sums[ends] - sums[firsts]), is_right > 0
        scorer, arrays = self._scorer(temperature)
        return scorer(*arrays, firsts, ends - 1, labels), is_right > 0

    @property
    def lists_spans(self) -> bool:
        """Whether a predictor lists spans by their probability: of entities, by a CRF that knows the vocabulary."""
        return self.crf is not None and self.crf.has_vocabulary and is_entity_scheme(self.groups.labels)

    def measured(self, temperature: float) -> tuple[Scored, np.ndarray]:
        """`scored`, and the negative log likelihood of which spans are right."""
        probabilities, is_right = scored = self.scored(temperature)
        return scored, -np.log(np.where(is_right, probabilities, 1 - probabilities).clip(1e-9))

    def listed(self, temperature: float, bound: float) -> Scored:
        """All spans with at least a probability."""
        scorer, arrays = self._scorer(temperature)
        firsts, lasts, labels, probabilities = scorer.above(bound, *arrays)
        begins = np.cumsum([0, *self.lengths])
        is_right = [
            (self.groups.kind(label), first - begins[text], last + 1 - begins[text]) in self.true[text]
            for text, first, last, label in zip(arrays[-1][firsts], firsts, lasts, labels, strict=True)
        ]
        return probabilities, np.array(is_right, dtype=bool)

    def _scorer(self, temperature: float) -> tuple[SpanScorer, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        crf = self.crf
        assert crf is not None
        arrays = self._flat(lambda logits, chain: crf.log_marginals(logits, chain, temperature))
        with torch.no_grad():
            transitions = crf.transition_scores(temperature).cpu().numpy()
        texts = np.repeat(np.arange(len(self.lengths)), self.lengths)
        return SpanScorer(self.groups, transitions, np.zeros(0, dtype=bool)), (arrays[0], arrays[1], texts)


def can_calibrate(trainer: Any) -> bool:
    """Whether a tagger is one of this package, and whole on this process."""
    return isinstance(trainer.model, ForTokenClassification) and not trainer.is_fsdp_enabled


def calibrate_tagger(task: Task, trainer: Any) -> float:
    """Fit the temperature, and return it, kept or not."""
    fitted = 1.0
    if can_calibrate(trainer) and task.may_calibrate and trainer.eval_dataset is not None:
        model = trainer.model
        split = TaggedSplit(model, trainer.eval_dataset, task.collate(trainer.processing_class))
        what = "entities found" if task.metrics.task == "entities" else "labels"
        model.config.calibration_temperature, fitted = _temperature(split.measured, what)
    return fitted


def tagger_report(
    folder: Path, name: str, model: ForTokenClassification, split: TaggedSplit, fitted: float
) -> dict[str, str]:
    """Write the pictures and tables of a split, with a temperature that was fitted; returns sections for the card."""
    temperature = model.config.calibration_temperature
    before, sections = split.scored(1.0), {}
    shown = fitted if temperature == 1 else temperature
    if shown != 1 and len(before[0]):
        table = calibration_report(folder, name, before, split.scored(shown), shown, shown == temperature)
        sections[f"Probabilities of the {name} split"] = table
    rows = split.bounds(temperature, _SHOWN_BOUNDS) if split.lists_spans else []
    if any(recall for *_, recall in rows):
        sections[f"All spans of the {name} split"] = markdown_table(["--min_probability", "precision", "recall"], rows)
    if sections:
        write_text(folder / f"calibration_{name}.md", "\n\n".join(sections.values()) + "\n")
    return sections
