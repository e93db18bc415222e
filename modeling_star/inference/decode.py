"""
Decode what a tagger says of tokens to entities with offsets and probabilities: for `Predictor`, and so for commands,
estimators, spaCy and exported models, and for `BestPathPipeline`. The page of an export repeats it (web/predict.js).

    outputs of windows -> `best_labels` -> `add_window` -> `TaggedText` -> words -> groups -> entities

Axes: b rows  n tokens  k labels  w words
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.entities import EntityGroups, aggregation_for
from ..data.windows import Window
from .output_rows import Prediction
from .span_probabilities import SpanScorer


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# ------ labels of tokens


def softmax(logits: np.ndarray) -> np.ndarray:
    """The probabilities of logits `[..., k]`."""
    with np.errstate(invalid="ignore"):  # what is no number becomes an error of its own
        powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def best_labels(outputs: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The label of each token, on the best path of a CRF, and its probability, `[..., n]` each."""
    probabilities, paths = softmax(outputs["logits"]), outputs.get("paths")
    labels = probabilities.argmax(-1) if paths is None else paths.clip(min=0)
    return labels, np.take_along_axis(probabilities, labels[..., None], -1)[..., 0]


def add_window(
    whole: Sequence[np.ndarray] | None, window: Window, parts: Sequence[np.ndarray], length: int
) -> Sequence[np.ndarray]:
    """What is said of a text's n tokens, `[n, ...]` each, with that of one more window where its predictions count."""
    if len(window.tokens) == length:
        return parts
    if whole is None:
        whole = [np.zeros_like(part, shape=(length, *part.shape[1:])) for part in parts]
    for joined, part in zip(whole, parts, strict=True):
        joined[window.tokens[window.read]] = part[window.read]
    return whole


# ------ entities


@dataclass
class TaggedText:
    """
    A text, as its offsets count it, and what a tagger says of its n tokens but special ones: `ids`, `labels`, `scores`
    `[n]`, the first character and the one after the last `[n, 2]`; of a CRF log marginals and messages `[n, k]`.
    """

    text: str
    ids: np.ndarray
    offsets: np.ndarray
    labels: np.ndarray
    scores: np.ndarray
    log_marginals: np.ndarray | None = None
    messages: np.ndarray | None = None


def offsets_in_text(offsets: np.ndarray, words: Sequence[int], begins: Sequence[int] | np.ndarray) -> np.ndarray:
    """The characters `[n, 2]` in a text of words, from those in the words and the first character of each word."""
    return offsets + np.array(begins, dtype=np.int64)[list(words)][:, None]


Words = tuple[np.ndarray, np.ndarray]
"""The first and the last token of each word of a text, `[w]` each."""
_Span = tuple[int, int, int, Prediction]
"""The number of a text, and the first and the last token of an entity of it."""


class EntityDecoder:
    """
    Entities of the labels of tokens; `crf_tables` are arguments of a `SpanScorer`, `None` without a CRF that knows its
    chain. With `min_probability` all spans with at least this probability, the `n_best` of a text.
    """

    def __init__(
        self,
        names: Sequence[str],
        tokenizer: "PreTrainedTokenizerBase",
        crf_tables: Mapping[str, np.ndarray] | None,
        min_probability: float | None = None,
        n_best: int | None = None,
    ) -> None:
        self.groups = EntityGroups(names)
        self.tokenizer = tokenizer
        self.scorer = None if crf_tables is None else SpanScorer(self.groups, **crf_tables)
        self.min_probability, self.n_best = min_probability, n_best

    def may_have_entities(self, labels: np.ndarray) -> bool:
        """Whether the labels of a text are not all O; spans with some probability may be anywhere."""
        return self.min_probability is not None or not (labels == self.groups.outside).all()

    def __call__(self, texts: Sequence[TaggedText], with_outside: bool = False) -> list[list[Prediction]]:
        """The entities of each text, with words with O too if asked, or all spans with at least `min_probability`."""
        if self.min_probability is not None:
            return self._all_spans(texts)
        found: list[list[Prediction]] = []
        spans: list[_Span] = []
        for number, text in enumerate(texts):
            firsts, lasts = words = self.words(text)
            groups = self.groups(text.labels[firsts], with_outside)
            found.append([_entity(text, words, *group) for group in groups])
            tokens = ((firsts[first], lasts[last - 1]) for _, first, last in groups)
            spans += [(number, *of_span, entity) for of_span, entity in zip(tokens, found[-1], strict=True)]
        if self.scorer is not None and spans:
            self._score(texts, spans)
        return found

    def words(self, text: TaggedText) -> Words:
        """The words of a text: a token that the tokenizer marks as a continuation belongs to the one before it."""
        firsts = np.arange(len(text.ids))
        lengths = self._token_lengths
        if lengths is not None and len(firsts):
            starts, ends = text.offsets.T
            if len(lengths):
                continues = lengths[text.ids] != ends - starts
            else:
                continues = np.array([start > 0 and " " not in text.text[start - 1 : start + 1] for start in starts])
            continues[text.ids == self.tokenizer.unk_token_id] = False
            continues[0] = False
            firsts = np.flatnonzero(~continues)
        return firsts, np.append(firsts[1:], len(text.ids)) - 1

    @cached_property
    def _token_lengths(self) -> np.ndarray | None:
        """Characters of each entry, with its marker; `None`: tokens are words; empty: nothing is marked."""
        if aggregation_for(self.tokenizer) == "simple":
            return None
        if not getattr(self.tokenizer.backend_tokenizer.model, "continuing_subword_prefix", None):
            return np.zeros(0, dtype=np.int64)
        entries = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        return np.array([len(entry or "") for entry in entries])

    def _chains(
        self, texts: Sequence[TaggedText]
    ) -> tuple[list[np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Which tokens of each text the CRF's chain has; log marginals, messages and text numbers of all chains."""
        chains = [self.scorer.chain(text.ids) for text in texts]
        pairs = list(zip(texts, chains, strict=True))
        log_marginals = np.concatenate([text.log_marginals[chain] for text, chain in pairs])
        messages = np.concatenate([text.messages[chain] for text, chain in pairs])
        return chains, (log_marginals, messages, np.repeat(np.arange(len(texts)), [chain.sum() for chain in chains]))

    def _score(self, texts: Sequence[TaggedText], spans: Sequence[_Span]) -> None:
        """Set the scores of entities to the probabilities of their spans, those of all texts at once."""
        chains, arrays = self._chains(texts)
        begins = np.cumsum([0, *(chain.sum() for chain in chains)])
        # In the chains of all texts; of a token outside, that before it.
        index = [chain.cumsum() - 1 + begin for chain, begin in zip(chains, begins, strict=False)]
        # A piece that the vocabulary calls a continuation, and the text a word, has no tag.
        spans = [span for span in spans if chains[span[0]][span[1]]]
        if spans:
            tokens = [
                (index[text][first], index[text][last], texts[text].labels[first]) for text, first, last, _ in spans
            ]
            probabilities = self.scorer(*arrays, *np.array(tokens).T)
            for (*_, entity), probability in zip(spans, probabilities.tolist(), strict=True):
                entity["score"] = probability

    def _all_spans(self, texts: Sequence[TaggedText]) -> list[list[Prediction]]:
        """All spans with a probability of at least `min_probability`, the `n_best` most probable ones of each text."""
        entities: list[list[Prediction]] = [[] for _ in texts]
        if not any(len(text.ids) for text in texts):
            return entities
        chains, arrays = self._chains(texts)
        columns = np.concatenate([np.flatnonzero(chain) for chain in chains])
        firsts, lasts, labels, probabilities = self.scorer.above(self.min_probability, *arrays)
        ends = np.searchsorted(arrays[-1][firsts], np.arange(len(texts) + 1))
        for text, found, (begin, end) in zip(texts, entities, pairwise(ends), strict=True):
            words = self.words(text)
            best = begin + np.argsort(-probabilities[begin:end], kind="stable")[: self.n_best]
            for span in np.sort(best):
                tokens = columns[[firsts[span], lasts[span]]]
                first, last = np.searchsorted(words[0], tokens, side="right") - 1
                entity = _entity(text, words, self.groups.kind(labels[span]), first, last + 1)
                found.append({**entity, "score": float(probabilities[span])})
        return entities


def _entity(text: TaggedText, words: Words, label: str, first: int, last: int) -> Prediction:
    """An entity of the words before `last`. Without a CRF labels are independent: the product of probabilities."""
    firsts, lasts = words
    start, end = int(text.offsets[firsts[first], 0]), int(text.offsets[lasts[last - 1], 1])
    score: Any = text.scores[firsts[first:last]].astype(np.float64).prod()
    return {"label": label, "start": start, "end": end, "text": text.text[start:end], "score": float(score)}
