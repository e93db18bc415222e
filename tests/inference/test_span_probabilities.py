"""The probability of a span is the sum over all label sequences that have exactly this span with this type."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from saved_models import TEXTS, saved, with_vocabulary
from torch import Tensor

from modeling_star.data.entities import EntityGroups
from modeling_star.errors import UserError
from modeling_star.inference import Predictor
from modeling_star.inference.span_probabilities import SpanScorer
from modeling_star.models.crf import LinearChainCrf


LABELS = {
    "iob1": ["O", "I-X", "B-X", "I-Y"],
    "iob2": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "iobes": ["B-X", "I-X", "E-X", "S-X", "O"],
    "pos": ["NOUN", "VERB", "ADJ"],
}


def random_crf(labels: list[str], constraints: Any) -> LinearChainCrf:
    crf = LinearChainCrf(labels, constraints, vocab_size=8)
    generator = torch.Generator().manual_seed(len(labels))
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 30)
    return crf


@torch.no_grad()
def all_spans(crf: LinearChainCrf, emissions: Tensor, groups: EntityGroups) -> dict[tuple[str, int, int], float]:
    """Each span of any label sequence, with the sum of the probabilities of the sequences that have it."""
    n, k = emissions.shape
    found: dict[tuple[str, int, int], float] = {}
    total = 0.0
    for path in itertools.product(range(k), repeat=n):
        labels = torch.tensor([path])
        # Not `log_likelihood`, which leaves a forbidden first or last label without a score.
        start, end, transitions = (x.double() for x in crf._scores(torch.float64))
        score = sum(emissions[t, label].double() for t, label in enumerate(path)) + start[path[0]] + end[path[-1]]
        score = score + sum(transitions[a, b] for a, b in itertools.pairwise(path))
        weight = float(score.exp())
        total += weight
        for span in groups(labels[0].numpy()):
            found[span] = found.get(span, 0.0) + weight
    return {span: weight / total for span, weight in found.items()}


@pytest.mark.parametrize("length", [1, 2, 4, pytest.param(6, marks=pytest.mark.slow)])
@pytest.mark.parametrize("constrained", [True, False])
@pytest.mark.parametrize("scheme", LABELS)
def test_a_span_has_the_sum_over_all_label_sequences(scheme: str, constrained: bool, length: int) -> None:
    labels = LABELS[scheme]
    crf = random_crf(labels, scheme if constrained and scheme != "pos" else None)
    groups = EntityGroups(labels)
    generator = torch.Generator().manual_seed(length)
    texts = [torch.randn(n, len(labels), generator=generator) for n in (length, max(length - 1, 1))]
    with torch.no_grad():
        rows = [crf.log_marginals(text[None], torch.ones(1, len(text), dtype=torch.bool)) for text in texts]
        transitions = crf.transition_scores().numpy()
    scorer = SpanScorer(groups, transitions, np.zeros(8, dtype=bool))
    expected = [all_spans(crf, text, groups) for text in texts]
    spans, begin = [], 0
    for text, of_text in zip(texts, expected, strict=True):
        for kind, first, last in of_text:
            number = next(
                n for n, tag in enumerate(groups.tags) if kind in (tag[1], groups.labels[n]) or tag[1] == kind
            )
            spans.append((begin + first, begin + last - 1, number))
        begin += len(text)
    chains = [np.concatenate([row[part][0].numpy() for row in rows]) for part in (0, 1)]
    numbers = np.repeat([0, 1], [len(text) for text in texts])
    actual = scorer(*chains, numbers, *np.array(spans).T)
    assert actual == pytest.approx([p for of_text in expected for p in of_text.values()], abs=1e-6)

    # All spans above a bound, of every length, and no other.
    found: list[dict[tuple[str, int, int], float]] = [{}, {}]
    for first, last, label, probability in zip(*scorer.above(0.02, *chains, numbers), strict=True):
        begin = length * numbers[first]
        kind = groups.labels[label].split("-", 1)[-1]
        found[numbers[first]][kind, int(first - begin), int(last + 1 - begin)] = probability
    for spans_found, of_text in zip(found, expected, strict=True):
        assert {span for span, p in of_text.items() if p > 0.02 + 1e-6} <= spans_found.keys()
        assert {span: of_text[span] for span in spans_found} == pytest.approx(spans_found, abs=1e-6)
        assert all(p > 0.02 - 1e-6 for p in spans_found.values())


@pytest.mark.parametrize("scheme", ["iob1", "iob2", "iobes"])
def test_the_predictor_gives_the_probability_of_its_spans(scheme: str, tmp_path: Path) -> None:
    labels = LABELS[scheme]
    fields = {"id2label": dict(enumerate(labels)), "use_crf": True, "max_position_embeddings": 64}
    folder = with_vocabulary(saved(tmp_path, "TokenClassification", "word", **fields))
    predictor = Predictor(folder)
    assert predictor.score_is == "span probability"
    groups = EntityGroups(labels)
    for text in ("Ada met Charles", "London rained all", "Ada"):
        model, inputs = predictor.model, predictor.tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            emissions = model.classifier(model.model(**inputs).last_hidden_state)
        chain = model.crf.chain(inputs["attention_mask"].bool(), inputs["input_ids"], None)  # no special tokens
        expected = all_spans(model.crf, emissions[chain], groups)
        ((_, found),) = predictor.predict([text])
        starts = {0: 0} | {i + 1: text[: i + 1].count(" ") for i, letter in enumerate(text) if letter == " "}
        for entity in found:
            first = starts[entity["start"]]
            span = (entity["label"], first, first + entity["text"].count(" ") + 1)
            assert entity["score"] == pytest.approx(expected[span], abs=1e-6)


def test_the_predictor_lists_the_most_probable_spans(tmp_path: Path) -> None:
    fields = {"id2label": dict(enumerate(LABELS["iob2"])), "use_crf": True, "max_position_embeddings": 24}
    folder = with_vocabulary(saved(tmp_path, "TokenClassification", **fields))
    texts: list[Any] = [*TEXTS, " ".join(TEXTS), TEXTS[0].split()]  # one in windows, one of words
    best, listed, two = (
        [found for _, found in Predictor(folder, **options).predict(texts)]
        for options in ({}, {"min_probability": 0.05}, {"n_best": 2, "min_probability": 0.05})
    )
    for entities, spans, most in zip(best, listed, two, strict=True):
        assert all(span["score"] >= 0.05 for span in spans)
        assert spans == sorted(spans, key=lambda span: (span["start"], span["end"]))
        for entity in entities:  # those of the best path are among them, with their scores
            if entity["score"] > 0.05:
                same = [s for s in spans if all(s[name] == entity[name] for name in ("start", "end", "label"))]
                assert [s["score"] for s in same] == pytest.approx([entity["score"]], abs=1e-6)
        ranked = sorted((span["score"] for span in spans), reverse=True)
        assert sorted((span["score"] for span in most), reverse=True) == ranked[:2]
    assert any(a["end"] > b["start"] for spans in listed for a, b in itertools.pairwise(spans))  # they overlap
    with pytest.raises(UserError, match="whole number"):
        Predictor(folder, n_best=1.5)


def test_without_a_crf_the_score_is_the_product_over_the_words(tmp_path: Path) -> None:
    fields = {"id2label": dict(enumerate(LABELS["iob2"])), "max_position_embeddings": 64}
    predictor = Predictor(saved(tmp_path, "TokenClassification", "word", **fields))
    assert predictor.score_is == "product of token probabilities"
    text = TEXTS[0]
    inputs = predictor.tokenizer(text, return_offsets_mapping=True, return_tensors="pt")
    offsets = inputs.pop("offset_mapping")[0]
    best = predictor.model(**inputs).logits.softmax(-1).amax(-1)[0]
    ((_, found),) = predictor.predict([text])
    assert found
    for entity in found:
        inside = (offsets[:, 0] >= entity["start"]) & (offsets[:, 1] <= entity["end"]) & (offsets[:, 1] > 0)
        assert entity["score"] == pytest.approx(float(best[inside].prod()), abs=1e-6)
