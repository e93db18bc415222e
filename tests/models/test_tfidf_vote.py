"""TF-IDF inside a classifier against a loop over texts, its vote with the encoder, and its place in the models."""

import functools
import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import TINY, examples, masks, padded, random_batch, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from reference import tfidf_logits
from torch import Tensor
from torch_modes import compiled
from transformers import AutoModelForSequenceClassification, PreTrainedModel
from transformers.utils import logging

from modeling_star import StarTransformerConfig
from modeling_star.models import heads
from modeling_star.models.sorted_keys import binary_search
from modeling_star.models.token_runs import PRIME, TfidfTerms, TfidfVote, real_tokens_first, run_keys


Run = tuple[int, ...]
LONGEST = 3
SOME_RUNS: list[Run] = [
    run
    for length in range(1, LONGEST + 1)
    for run in itertools.product(range(TINY["vocab_size"]), repeat=length)
    if sum(run) % 3
]


@functools.cache
def key_of(run: Run) -> Tensor:
    """A run's key, from a row of its own."""
    keys, _ = list(run_keys(torch.tensor([run]), torch.ones(1, len(run)).bool(), len(run)))[-1]
    return keys[0, 0]


def keys_of(runs: list[Run]) -> Tensor:
    return torch.stack([key_of(run) for run in runs])


def some_terms(
    runs: list[Run], labels: int = 3, share: float = 0.5, temperature: float = 1.0
) -> tuple[TfidfTerms, dict[Run, Any], Tensor]:
    """Random terms, the same by their runs for the reference, and the bias."""
    generator = torch.Generator().manual_seed(0)
    keys, order = keys_of(runs).sort()
    idf = 1 + torch.rand(len(runs), generator=generator)
    weight, bias = (torch.randn(*shape, generator=generator) for shape in ((len(runs), labels), (labels,)))
    terms = TfidfTerms(keys, idf, weight, bias, LONGEST, share, temperature)
    found = {runs[place]: (float(idf[row]), weight[row]) for row, place in enumerate(order.tolist())}
    return terms, found, bias


def voter(terms: TfidfTerms, **options: Any) -> TfidfVote:
    fields = {"tfidf_terms": len(terms.keys), "tfidf_max_length": terms.max_length}
    fields["tfidf_sublinear"] = terms.sublinear
    return TfidfVote.from_terms(terms, StarTransformerConfig(num_labels=terms.weight.shape[1], **fields, **options))


def voting_model(stem: str = "StarTransformer", **options: Any) -> PreTrainedModel:
    model = tiny_model(stem, "ForSequenceClassification", **options)
    model.set_tfidf(some_terms(SOME_RUNS, share=0.25, temperature=3.0)[0])
    return model.eval()


def test_runs_of_one_and_two_tokens_have_keys_of_their_own() -> None:
    # Any two runs of two tokens differ if the four states of their hashes are a solvable system.
    ids = torch.tensor([0, 1, 2, 30_521, 46_335, 12_345])
    keys = keys_of([*((int(a),) for a in ids), *((int(a), int(b)) for a in ids for b in ids)])
    assert len(keys.unique()) == len(keys)
    everything = torch.arange(PRIME - 1)
    singles = next(run_keys(everything[None], torch.ones(1, PRIME - 1).bool(), 1))[0][0]
    for first in (0, 1, 777, 46_335):
        pairs = torch.stack([torch.full_like(everything, first), everything], 1)
        of_pairs = list(run_keys(pairs, torch.ones_like(pairs).bool(), 2))[1][0][:, 0]
        assert not np.intersect1d(singles.numpy(), of_pairs.numpy()).size
        assert len(of_pairs.unique()) == len(of_pairs)


def test_keys_are_those_of_saved_models() -> None:
    ids = [0, 7, 46_336, 46_337, 250_001, 2**31 - 1]
    row = torch.tensor([ids])
    for length, (keys, _) in enumerate(run_keys(row, torch.ones_like(row).bool(), 4), start=1):
        for start, key in enumerate(keys[0].tolist()):
            first, second = 1, 2
            for token in ids[start : start + length]:
                low, high = token % 46_337, token // 46_337
                first = (first * 41_959 + low + high * 10_946) % 46_337
                second = (second * 18_693 + low + high * 6_765) % 46_337
            assert key == first * 46_337 + second < 2**31


@examples(60)
@given(mask=masks(max_columns=9), seed=st.integers(0, 3))
def test_logits_equal_the_reference(mask: Tensor, seed: int) -> None:
    terms, found, bias = some_terms(SOME_RUNS)
    ids = random_batch(mask, seed).input_ids
    actual = voter(terms).logits(ids, mask.long())
    rows = [tfidf_logits(found, bias, ids[row][mask[row]].tolist(), LONGEST) for row in range(len(mask))]
    torch.testing.assert_close(actual, torch.stack(rows))


@pytest.mark.parametrize("sublinear", [True, False])
def test_values_are_those_of_scikit_learn(sublinear: bool) -> None:
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [[4, 7, 7, 7, 2], [2, 4, 4], [9, 7, 2, 9]]
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=sublinear, token_pattern=r"\w+")
    expected = vectorizer.fit_transform([" ".join(map(str, text)) for text in texts]).toarray()
    runs = [tuple(map(int, name.split())) for name in vectorizer.get_feature_names_out()]
    keys, order = keys_of(runs).sort()
    weight, bias = torch.eye(len(runs)), torch.zeros(len(runs))
    terms = TfidfTerms(keys, torch.from_numpy(vectorizer.idf_)[order], weight, bias, sublinear=sublinear)
    for row, text in enumerate(texts):
        values = voter(terms).logits(torch.tensor([text]), None)[0]
        torch.testing.assert_close(values, torch.from_numpy(expected[row]).float()[order])


@pytest.mark.parametrize("several", [False, True])
def test_the_vote_is_the_mean_of_probabilities(several: bool) -> None:
    options = {"problem_type": "multi_label_classification"} if several else {}
    vote = voter(some_terms(SOME_RUNS, share=0.3, temperature=2.5)[0], **options)
    ids, logits = torch.tensor([[4, 7, 7, 2], [1, 1, 9, 3]]), torch.randn(2, 3, generator=torch.manual_seed(0))
    turned = torch.sigmoid if several else (lambda x: x.softmax(-1))
    expected = 0.7 * turned(logits / 2.5) + 0.3 * turned(vote.logits(ids, None))
    torch.testing.assert_close(turned(vote(logits, ids, None)), expected)
    extreme = vote(torch.tensor([[-1e4, 0, 1e4], [1e4, 1e4, 1e4]]), ids, None)
    assert extreme.isfinite().all()


def test_shares_of_tokens_add_up_to_the_logits() -> None:
    vote, ids = voter(some_terms(SOME_RUNS)[0]), torch.tensor([[4, 7, 7, 2, 9], [1, 1, 1, 1, 1]])
    shares = vote.shares(ids)
    torch.testing.assert_close(shares.sum(1) + vote.bias, vote.logits(ids, None))
    torch.testing.assert_close(vote.shares(ids[:, :1]).sum(1) + vote.bias, vote.logits(ids[:, :1], None))


def test_training_sees_the_encoder_alone_and_evaluation_the_vote() -> None:
    model = voting_model("VanillaTransformer")
    batch = random_batch(padded([3, 5], 6, "holes"))
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask.long()}
    voted, alone = model(**inputs).logits, model.train()(**inputs).logits
    torch.testing.assert_close(model.classifier.vote(alone, **inputs), voted)
    model.set_tfidf(None)
    assert torch.equal(model.eval()(**inputs).logits, alone)
    assert model.config.tfidf_terms == 0


def test_terms_alone_classify_without_the_encoder(tmp_path: Path) -> None:
    model, ids = voting_model(), torch.tensor([[4, 7, 7, 2]])
    model.set_tfidf(replace(some_terms(SOME_RUNS)[0], share=1.0, sublinear=False))
    model.model.forward = None
    expected = model.classifier.vote.logits(ids, None)
    assert torch.equal(model(ids).logits, expected)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded(ids).logits, expected)
    assert loaded.train()(ids).logits.requires_grad


def test_training_a_model_with_terms_warns_once(caplog: pytest.LogCaptureFixture) -> None:
    model, ids = voting_model().train(), torch.tensor([[4, 7, 7, 2]])
    logging.get_logger("transformers").propagate = True
    heads.logger.warning_once.cache_clear()
    for _ in range(2):
        model(ids, labels=torch.tensor([1])).loss.backward()
    assert "set_tfidf(None)" in "".join(caplog.messages)
    assert len(caplog.messages) == 1


def test_a_new_head_has_no_terms_of_other_labels(tmp_path: Path) -> None:
    voting_model().save_pretrained(tmp_path)
    options = {"num_labels": 5, "ignore_mismatched_sizes": True}
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path, **options)
    assert model.classifier.vote is None
    assert model.config.tfidf_terms == 0


@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_padding_and_batch_mates_change_nothing(kind: str) -> None:
    model = voting_model()
    mask = padded([4, 1, 6], 9, kind)
    ids = random_batch(mask).input_ids
    together = model(ids, attention_mask=mask.long()).logits
    for row in range(3):
        torch.testing.assert_close(together[row], model(ids[row][mask[row]][None]).logits[0])
    other = ids.masked_fill(~mask, 5)
    assert torch.equal(model(other, attention_mask=mask.long()).logits, together)


@pytest.mark.parametrize("several", [False, True])
def test_a_saved_vote_is_the_same(several: bool, tmp_path: Path) -> None:
    options = {"problem_type": "multi_label_classification"} if several else {}
    model, ids = voting_model(**options), torch.tensor([[4, 7, 7, 2, 9, 9]])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert (float(loaded.classifier.vote.share), float(loaded.classifier.vote.temperature)) == (0.25, 3.0)
    half = AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    assert half(ids).logits.dtype == torch.bfloat16
    torch.testing.assert_close(half(ids).logits.float(), model(ids).logits, atol=0.1, rtol=0.05)


def test_what_does_not_fit_is_refused() -> None:
    terms = some_terms(SOME_RUNS)[0]
    with pytest.raises(ValueError, match="shape"):
        tiny_model("StarTransformer", "ForSequenceClassification", num_labels=2).set_tfidf(terms)
    with pytest.raises(ValueError, match="regression"):
        tiny_model("StarTransformer", "ForSequenceClassification", problem_type="regression").set_tfidf(terms)
    with pytest.raises(ValueError, match="input_ids"):
        voting_model()(inputs_embeds=torch.randn(1, 3, TINY["hidden_size"]))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100])
def test_the_written_out_search_is_that_of_torch(size: int) -> None:
    table = torch.arange(size) * 3 + 2
    keys = torch.arange(3 * size + 5)[None]
    expected = (torch.searchsorted(table, keys, right=True) - 1).clamp(min=0)
    pairs = torch.stack([table // 7, table % 7], 1)
    assert torch.equal(binary_search(pairs, keys // 7, keys % 7), expected)


def test_padding_goes_last() -> None:
    ids, mask = real_tokens_first(torch.tensor([[9, 4, 9, 5]]), torch.tensor([[0, 1, 0, 1]]))
    assert ids.tolist() == [[4, 5, 0, 0]]
    assert mask.tolist() == [[True, True, False, False]]


@pytest.mark.slow
def test_a_compiled_vote_equals_the_eager_one() -> None:
    model = voting_model()
    graph = compiled(model, dynamic=True)
    for lengths in ([2, 4], [7, 3, 1]):
        mask = padded(lengths, max(lengths), "right")
        inputs: dict[str, Tensor] = {"input_ids": random_batch(mask).input_ids, "attention_mask": mask.long()}
        torch.testing.assert_close(graph(**inputs).logits, model(**inputs).logits)
