"""The n-grams of a sequence classifier against a loop over texts, and their place in the models."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from common import assert_close, assert_gradients_close, gradients, padded, random_batch, tiny_model
from reference import ngram_logits
from torch import Tensor
from torch_modes import compiled

from modeling_star import StarTransformerConfig
from modeling_star.models import token_runs
from modeling_star.models.token_runs import NgramLogits, run_hashes


def ngrams_of(longest: int, dropout: float = 0.0, **fields: Any) -> NgramLogits:
    options = {"ngram_buckets": 50, "max_ngram_length": longest, "ngram_dropout": dropout, "num_labels": 3}
    config = StarTransformerConfig(**options, **fields)
    ngrams = NgramLogits(config).double()
    with torch.no_grad():
        ngrams.weight.normal_(generator=torch.Generator().manual_seed(0))
    return ngrams


@pytest.mark.parametrize("longest", [1, 2, 4])
@pytest.mark.parametrize("padding", [None, "right", "left", "holes"])
def test_logits_and_gradients_equal_the_reference(padding: str | None, longest: int) -> None:
    ngrams = ngrams_of(longest)
    mask = padded([5, 1, 0, 6], 6, padding) if padding else torch.ones(2, 3).bool()
    ids = random_batch(mask).input_ids
    leaves = {"weight": ngrams.weight.detach().clone().requires_grad_()}
    rows = [ngram_logits(leaves["weight"], ids[row][mask[row]].tolist(), longest) for row in range(len(mask))]
    expected, actual = {"logits": torch.stack(rows)}, {"logits": ngrams(ids, mask.long() if padding else None)}
    assert_close(actual, expected, 1e-12)
    assert torch.equal(ngrams(ids.int(), mask.long() if padding else None), actual["logits"])
    assert_gradients_close(gradients(actual, {"weight": ngrams.weight}), gradients(expected, leaves), 1e-12)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_hashes_of_ngrams_in_a_graph_are_exact_in_float32(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.randint(0, 300_000, (50, 40), generator=torch.Generator().manual_seed(0))
    expected = list(run_hashes(ids, ids >= 0, 4))
    monkeypatch.setattr(token_runs, "is_traced", lambda: True)
    for correct, actual in zip(expected, run_hashes(ids.to(dtype), ids >= 0, 4), strict=True):
        assert all(torch.equal(one, other.long()) for one, other in zip(correct[:2], actual[:2], strict=True))
    ngrams = ngrams_of(4)
    in_graph = [keys.long() for keys, _ in ngrams._keys(ids.to(dtype), ids >= 0)]
    monkeypatch.undo()
    for (keys, _), traced in zip(ngrams._keys(ids, ids >= 0), in_graph, strict=True):
        assert torch.equal(keys, traced)
        assert keys.max() < 2**24


@pytest.mark.parametrize("before", [(), (7,), (5, 9)], ids=str)
def test_few_of_a_vocabulary_share_a_row(before: tuple[int, ...]) -> None:
    ids = torch.arange(1, 30_000)
    runs = torch.stack([torch.full_like(ids, token) for token in before] + [ids], 1)
    ngrams = ngrams_of(len(before) + 1)
    *_, (keys, _) = ngrams._keys(runs, runs > 0)
    assert len((keys % 2**18).unique()) > 0.9 * len(ids)  # of random rows 0.945


@pytest.mark.parametrize("saved_bits", [None, 64])
def test_a_classifier_with_another_hash_is_refused(saved_bits: int | None, tmp_path: Path) -> None:
    ids = torch.arange(1, 12)[None]
    model = tiny_model("StarTransformer", "ForSequenceClassification", ngram_buckets=64).eval()
    torch.nn.init.normal_(model.classifier.ngrams.weight)
    model.save_pretrained(tmp_path)
    assert torch.allclose(type(model).from_pretrained(tmp_path)(ids).logits, model(ids).logits)
    path = tmp_path / "config.json"
    saved = json.loads(path.read_text(encoding="utf-8"))
    assert saved.pop("ngram_hash_bits") == 24
    path.write_text(json.dumps(saved if saved_bits is None else {**saved, "ngram_hash_bits": saved_bits}))
    with pytest.raises(ValueError, match=r"before 0\.2.*train it again"):
        type(model).from_pretrained(tmp_path)


def test_shares_of_tokens_add_up_to_the_logits() -> None:
    ngrams, ids = ngrams_of(3), torch.tensor([[4, 7, 7, 2, 9]])
    shares = ngrams.shares(ids)
    assert shares.shape == (1, 5, 3)
    torch.testing.assert_close(shares.sum(1), ngrams(ids, None))
    # The last token takes part in one n-gram of each length.
    last = ngrams(ids, None) * 5**0.5 - ngrams(ids[:, :4], None) * 4**0.5
    parts = [found[0, -1] / length for length, found in enumerate(ngrams.ngram_logits(ids, None), start=1)]
    torch.testing.assert_close(shares[0, -1], sum(parts))
    torch.testing.assert_close(last[0], sum(found[0, -1] * 5**0.5 for found in ngrams.ngram_logits(ids, None)))


def test_training_leaves_out_the_configured_share_of_ngrams() -> None:
    ngrams, ids = ngrams_of(2, dropout=0.25), torch.arange(400)[None]
    with torch.no_grad():
        ngrams.weight.fill_(1)
    torch.manual_seed(0)
    found = torch.cat(ngrams.train().ngram_logits(ids, None), dim=1)
    assert 0.2 < (found == 0).double().mean() < 0.3
    assert not (torch.cat(ngrams.eval().ngram_logits(ids, None), dim=1) == 0).any()


def test_a_fresh_classifier_begins_without_a_preference_and_learns_one() -> None:
    options: dict[str, Any] = {"ngram_buckets": 64, "ngram_dropout": 0.0}
    model = tiny_model("StarTransformer", "ForSequenceClassification", seed=None, **options)
    plain = tiny_model("StarTransformer", "ForSequenceClassification", seed=None)
    plain.load_state_dict(model.state_dict(), strict=False)
    batch = random_batch(padded([3, 5], 5, "right"))
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask.long()}
    assert torch.equal(model.eval()(**inputs).logits, plain.eval()(**inputs).logits)
    model(**inputs, labels=torch.tensor([0, 1])).loss.backward()
    assert model.classifier.ngrams.weight.grad.abs().max() > 0


@pytest.mark.slow
def test_a_compiled_classifier_equals_the_eager_one() -> None:
    model = tiny_model("StarTransformer", "ForSequenceClassification", ngram_buckets=64, max_ngram_length=3).eval()
    graph = compiled(model, dynamic=True)
    for lengths in ([2, 4], [7, 3, 1]):
        mask = padded(lengths, max(lengths), "right")
        inputs: dict[str, Tensor] = {"input_ids": random_batch(mask).input_ids, "attention_mask": mask.long()}
        torch.testing.assert_close(graph(**inputs).logits, model(**inputs).logits)


def test_vectors_in_place_of_ids_are_refused() -> None:
    model = tiny_model("StarTransformer", "ForSequenceClassification", ngram_buckets=64)
    with pytest.raises(ValueError, match="ngram_buckets"):
        model(inputs_embeds=torch.zeros(1, 3, model.config.embedding_size))
