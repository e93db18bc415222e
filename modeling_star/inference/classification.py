"""
Classify many texts for a `Predictor`: texts or pairs -> token ids, logits -> labels and their probabilities.

Axes: b rows  k labels
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.text_types import Text
from ..data.windows import max_length_or_none, shorten, tokenizing
from .decode import softmax
from .output_rows import Prediction


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode_texts(
    texts: Sequence[Text], tokenizer: "PreTrainedTokenizerBase", longest_run: int | None, pairs: bool
) -> tuple[Mapping[str, Sequence[Any]], int]:
    """The columns of token ids, and how many of the texts, or pairs of texts, were truncated."""
    limit = max_length_or_none(tokenizer.model_max_length)
    given: list[list[Any]] = [*map(list, zip(*texts, strict=True))] if pairs else [list(texts)]
    sides = [[shorten(text, longest_run).text for text in side] for side in given]
    with tokenizing(texts):
        encoded = tokenizer(*sides, verbose=False)
    cut = 0 if limit is None else sum(len(ids) > limit for ids in encoded["input_ids"])
    return (tokenizer(*sides, truncation=True, max_length=limit) if cut else encoded), cut


def probabilities(logits: np.ndarray, problem: str | None) -> np.ndarray:
    """Those of the labels for logits `[b, k]`, as the pipeline "text-classification" has them; numbers as they are."""
    if problem == "regression":
        return logits
    if problem == "multi_label_classification" or logits.shape[-1] == 1:
        return np.exp(-np.logaddexp(0, -logits))  # the sigmoid, without overflow
    return softmax(logits)


def labelled(
    scores: Sequence[float], labels: Mapping[int, str], problem: str | None, threshold: float
) -> list[Prediction]:
    """The predictions of a text from its scores `[k]`: all labels, the best first, or a number."""
    if problem == "regression" and len(scores) == 1:
        return [{"value": scores[0]}]
    order = sorted(range(len(scores)), key=lambda label: -scores[label])
    found: list[Prediction] = [{"label": labels[each], "score": scores[each]} for each in order]
    if problem == "multi_label_classification":
        for label, each in zip(found, order, strict=True):
            label["predicted"] = scores[each] > threshold
    return found
