"""DiSAN against its reference, its blocks, and what every encoder promises."""

from typing import Any

import pytest
import torch
from common import (
    TINY,
    Batch,
    assert_close,
    assert_gradients_close,
    gradients,
    named_outputs,
    padded,
    random_batch,
    tiny_model,
)
from encoder_contract import RECORD, TwoDirectionContract
from hypothesis import strategies as st
from torch import Tensor
from torch_modes import LargestTensor
from transformers import PreTrainedModel

from modeling_star.models import modeling_disan


class TestDisan(TwoDirectionContract):
    """Its promises."""

    stem = "Disan"
    second_derivatives = "recorded"
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
        }
    )

    def prepare(self, data: st.DataObject, model: PreTrainedModel, batch: Batch) -> None:
        """All scores at once, or a few."""
        modeling_disan.SCORES_AT_ONCE = data.draw(st.sampled_from([1, 30, 100, 2**20]))

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        return (b, 2, n, n)

    def sums_of_attention(self, config: Any, mask: Tensor, sums: Tensor) -> Tensor:
        # The first token of a text has none before it, the last none after it.
        nothing = mask & (sums == 0)
        texts = 2 if config.pair_mode == "siamese" else 1
        assert (nothing.sum(1) <= texts).all()
        assert torch.equal(nothing.any(1), mask.any(1))
        return (mask & ~nothing).to(sums)


# ------ blocks of scores


@pytest.mark.parametrize("at_once", [1, 40, 200, 1000])
@pytest.mark.parametrize("recorded", [False, True], ids=["packed", "padded"])
def test_how_many_scores_are_held_at_once_changes_neither_values_nor_gradients(recorded: bool, at_once: int) -> None:
    model = tiny_model("Disan", dtype=torch.float64)
    batch = random_batch(padded([5, 0, 1, 9, 3, 9], 9, "holes"), 0, TINY["hidden_size"], torch.float64)
    leaves = {**dict(model.named_parameters()), "inputs_embeds": batch.inputs_embeds}
    record = RECORD if recorded else {}
    expected = named_outputs(model(**batch.inputs(), **record))
    expected_gradients = gradients(expected, leaves)
    modeling_disan.SCORES_AT_ONCE = at_once
    outputs = named_outputs(model(**batch.inputs(), **record))
    assert_close(outputs, expected, 1e-12)
    assert_gradients_close(gradients(outputs, leaves), expected_gradients, 1e-12)


def test_no_tensor_holds_the_scores_of_a_whole_text() -> None:
    model = tiny_model("Disan", hidden_size=24)
    inputs = random_batch(padded([50, 7, 50], 50, "right")).inputs()
    # The states of all tokens are 3 x 50 x 24 numbers.
    for limit, expected in ((2**20, 3 * 50 * 50 * 12), (4000, 4000)):
        modeling_disan.SCORES_AT_ONCE = limit // torch.get_num_threads()
        with LargestTensor() as largest_tensor:
            model(**inputs).pooler_output.sum().backward()
        assert 0.9 * expected <= largest_tensor.numbers <= expected


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "autocast"])
def test_memory_for_the_backward_pass_is_linear_in_the_length(autocast: bool) -> None:
    modeling_disan.SCORES_AT_ONCE = 2**10
    model = tiny_model("Disan")
    kept = []
    for n in (40, 80):
        storages: dict[int, int] = {}

        def note(x: Tensor, storages: dict[int, int] = storages) -> Tensor:
            storage = x.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            return x

        half = torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast)
        with half, torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            output = model(**random_batch(padded([n], n, "right")).inputs())
        assert output.pooler_output.requires_grad
        kept.append(sum(storages.values()))
    assert 1.5 < kept[1] / kept[0] < 2.5


@pytest.mark.parametrize("output_weights", [False, True], ids=["states", "states and weights"])
def test_the_second_pass_drops_the_same_weights(output_weights: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 4, 3, generator=generator).double().requires_grad_() for _ in range(3))
    modeling_disan.SCORES_AT_ONCE = 12

    def attended(*inputs: Tensor) -> Tensor:
        torch.manual_seed(0)
        real = torch.ones(2, 4, dtype=torch.bool)
        context, weights = modeling_disan.token2token_attention(*inputs, real, [4, 4], False, 0.5, output_weights)
        return context if weights is None else torch.cat([context, weights], dim=-1)

    assert torch.autograd.gradcheck(attended, (query, key, value))


@pytest.mark.parametrize("backwards", [False, True], ids=["before", "after"])
def test_results_computed_in_place_equal_the_equation(backwards: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    real = torch.rand(3, 9, generator=generator) > 0.3
    real[1] = False
    results = []
    query, key, value = (8 * torch.randn(3, 9, 5, generator=generator).double() for _ in range(3))
    slope = torch.randn(3, 4, 5, generator=generator).double()
    for in_place in (False, True):
        leaves = [x.clone().requires_grad_() for x in (query, key, value)]
        if in_place:  # the fourth to the seventh query of nine keys, some of which lie at the ends of the scores
            context = modeling_disan.attend_block(leaves[0][:, 3:7], *leaves[1:], real, 3, backwards, 0.0)
        else:
            context = modeling_disan.attend_features(*leaves, real, None, backwards)[0][:, 3:7]
        results.append([context, *torch.autograd.grad(context, leaves, slope)])
    assert results[0][0].any()
    assert not results[0][0][1].any()
    for plain, fast in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("traced", [False, True], ids=["eager", "traced"])
@pytest.mark.parametrize("output_weights", [False, True], ids=["states", "states and weights"])
def test_dropout_is_of_pairs_of_tokens(output_weights: bool, traced: bool) -> None:
    n, p, f = 200, 0.3, modeling_disan.FEATURES_AT_ONCE + 1
    real = torch.ones(1, n, dtype=torch.bool)
    # All scores are alike, so that the context counts the earlier tokens that were kept.
    query, key, value = (torch.full((1, n, f), x, dtype=torch.float64) for x in (0, 0, 1))
    extents = None if traced else [n]
    context, _ = modeling_disan.token2token_attention(query, key, value, real, extents, False, p, output_weights)
    torch.testing.assert_close(context, context[..., :1].expand_as(context))
    before = torch.arange(n)
    kept = context[0, :, 0] * before * (1 - p)
    torch.testing.assert_close(kept, kept.round(), rtol=1e-4, atol=1e-4)
    # Its standard deviation is 0.0032.
    assert abs(float(kept.sum() / before.sum()) - (1 - p)) < 0.015


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_long_texts_in_half_precision(dtype: torch.dtype) -> None:
    n = 2000
    # With the highest scores, 2,000 exponentials of 10 are far beyond what float16 can hold.
    query, key = (torch.full((1, n, 2), 50.0, dtype=dtype) for _ in range(2))
    value = torch.randn(1, n, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    real = torch.ones(1, n, dtype=torch.bool)
    context, _ = modeling_disan.token2token_attention(query, key, value, real, [n], False, 0.0, output_weights=False)
    before = (value.float().cumsum(1) - value.float()) / torch.arange(n).clamp(min=1)[:, None]
    torch.testing.assert_close(context.float(), before, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("recorded", [False, True], ids=["states", "states and weights"])
def test_a_traced_graph_holds_the_scores_of_a_few_features(recorded: bool) -> None:
    model = tiny_model("Disan", hidden_size=40).eval()
    inputs = random_batch(padded([8, 0, 5], 9, "holes")).inputs()
    record = RECORD if recorded else {}
    exported = torch.export.export(model, (), {**inputs, **record}, strict=False).module()
    with LargestTensor() as largest_tensor:
        outputs = named_outputs(exported(**inputs, **record))
    assert_close(outputs, named_outputs(model(**inputs, **record)), 1e-5)
    assert largest_tensor.numbers == 3 * 9 * 9 * modeling_disan.FEATURES_AT_ONCE


# ------ the vector of a text


def test_dropout_of_attention_drops_features_of_the_pooled_vector_in_training_alone() -> None:
    model = tiny_model("Disan", attention_probs_dropout_prob=0.5, hidden_size=64)
    rows, real = torch.ones(3, 1, 64), torch.ones(3, 1, dtype=torch.bool)
    # All of the weight is that of the one token, so that a feature is left out or doubled.
    pooled = model.pooler(rows, real)
    assert set(pooled.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(model.eval().pooler(rows, real), rows[:, 0])


# ------ directions
