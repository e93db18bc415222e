"""The two attentions against sums over candidates whose keys and values are projected one by one."""

import math

import pytest
import torch
from common import assert_close, difference, examples, gradients, masks, padded
from hypothesis import given
from hypothesis import strategies as st
from reference import multi_att
from torch import Tensor

from modeling_star.attention import AttentionProjections, relay_attention, ring_attention
from modeling_star.tokens import TokenLayout


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).double().requires_grad_()


def projections(d: int = 6, h: int = 2, c: int = 4) -> AttentionProjections:
    """W_Q, W_K, W_V and W_O with every number random, the biases too."""
    module = AttentionProjections(d, h, c).double()
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = random(*parameter.shape, seed=seed).detach()
    return module


def ring_case(n: int, roles: int, dropout_p: float = 0.0, h: int = 2, c: int = 3, biased: bool = True) -> tuple:
    """Leaves for ring_attention, and its two results."""
    leaves = {
        "query": random(n, h, c, seed=1),
        "value_bias": random(h, c, seed=2),
        "role_bias": random(h, roles, seed=3),
        **{f"key {r}": random(n, h, c, seed=10 + r) for r in range(roles)},
        **{f"value {r}": random(n, h, c, seed=20 + r) for r in range(roles)},
    }
    keys, values = ([leaves[f"{kind} {r}"] for r in range(roles)] for kind in ("key", "value"))
    context, weights = ring_attention(
        leaves["query"], keys, values, leaves["value_bias"], leaves["role_bias"] if biased else None, dropout_p
    )
    return leaves, context, weights


def relay_case(mask: Tensor, keep_padding: bool, dropout_p: float = 0.0) -> tuple:
    """Leaves for relay_attention, its layout, and its two results."""
    h, c, d = 2, 4, 6
    leaves = {
        "query": random(len(mask), h, c, seed=1),
        "relay": random(len(mask), d, seed=2),
        "tokens": random(*mask.shape, d, seed=3),
        "key_weight": random(h, c, d, seed=4),
        "value_weight": random(h, c, d, seed=5),
        "value_bias": random(h, c, seed=6),
    }
    layout = TokenLayout.from_mask(mask, keep_padding)
    inputs = {**leaves, "tokens": layout.pack(leaves["tokens"])}
    context, weights = relay_attention(**inputs, layout=layout, dropout_p=dropout_p)
    return leaves, layout, context, weights


def projected_values(leaves: dict[str, Tensor], layout: TokenLayout) -> Tensor:
    """W_V x + b of the relay and of each place of the rows, `[b, 1 + m, h, c]`."""
    rows = layout.to_rows(layout.pack(leaves["tokens"]))
    candidates = torch.cat([leaves["relay"][:, None], rows], dim=1)
    return torch.einsum("hcd,bmd->bmhc", leaves["value_weight"], candidates) + leaves["value_bias"]


@pytest.mark.parametrize("biased", [False, True], ids=["no bias", "role bias"])
@given(n=st.integers(1, 4), roles=st.integers(1, 5), heads=st.integers(1, 3), width=st.integers(1, 4))
@examples(15)
def test_ring_attention_equals_loops_in_values_and_gradients(
    biased: bool, n: int, roles: int, heads: int, width: int
) -> None:
    leaves, context, weights = ring_case(n, roles, h=heads, c=width, biased=biased)
    rows, all_weights = [], []
    for i in range(n):
        for head in range(heads):
            query = leaves["query"][i, head]
            scores = [torch.dot(query, leaves[f"key {r}"][i, head]) / math.sqrt(width) for r in range(roles)]
            if biased:
                scores = [score + leaves["role_bias"][head, r] for r, score in enumerate(scores)]
            exp = torch.stack(scores).exp()
            a = exp / exp.sum()
            values = [leaves[f"value {r}"][i, head] + leaves["value_bias"][head] for r in range(roles)]
            rows.append(sum(a[r] * values[r] for r in range(roles)))
            all_weights.append(a)
    expected = {
        "context": torch.stack(rows).reshape(n, heads, width),
        "weights": torch.stack(all_weights).reshape(n, heads, roles),
    }
    actual = {"context": context, "weights": weights}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


@pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])
@given(mask=masks())
@examples(25)
def test_relay_attention_equals_projecting_every_candidate(keep_padding: bool, mask: Tensor) -> None:
    leaves, layout, context, weights = relay_case(mask, keep_padding)
    contexts, all_weights = [], []
    for row, places in enumerate(layout.row_mask):
        places = places.nonzero().flatten()
        candidates = [leaves["relay"][row], *layout.to_rows(layout.pack(leaves["tokens"]))[row, places]]
        for head in range(2):
            keys = [leaves["key_weight"][head] @ x for x in candidates]
            values = [leaves["value_weight"][head] @ x + leaves["value_bias"][head] for x in candidates]
            exp = torch.stack([torch.dot(leaves["query"][row, head], key) / 2 for key in keys]).exp()
            a = exp / exp.sum()
            contexts.append(sum(a[i] * value for i, value in enumerate(values)))
            index = torch.cat([torch.zeros(1).long(), places + 1])
            all_weights.append(torch.zeros(weights.shape[-1]).double().index_copy(0, index, a))
    expected = {
        "context": torch.stack(contexts).reshape(context.shape),
        "weights": torch.stack(all_weights).reshape(weights.shape),
    }
    actual = {"context": context, "weights": weights}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


def test_ring_attention_under_dropout_is_the_sum_of_biased_values_by_the_weights_it_returns() -> None:
    torch.manual_seed(0)
    leaves, context, weights = ring_case(50, 5, dropout_p=0.4)
    values = torch.stack([leaves[f"value {r}"] + leaves["value_bias"] for r in range(5)], dim=2)
    expected = (weights[..., None] * values).sum(2)
    assert difference(weights.sum(-1), torch.ones(50, 2)) > 0.1
    assert_close({"context": context}, {"context": expected}, 1e-10)
    assert_close(gradients({"c": context}, leaves), gradients({"c": expected}, leaves), 1e-10)


@pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])
def test_relay_attention_under_dropout_is_the_sum_of_biased_values_by_the_weights_it_returns(
    keep_padding: bool,
) -> None:
    torch.manual_seed(0)
    mask = padded([20, 0, 1, 9], 20, "holes")
    leaves, layout, context, weights = relay_case(mask, keep_padding, dropout_p=0.4)
    expected = torch.einsum("bhm,bmhc->bhc", weights, projected_values(leaves, layout))
    assert difference(weights.sum(-1), torch.ones(4, 2)) > 0.1
    assert_close({"context": context}, {"context": expected}, 1e-10)
    assert_close(gradients({"c": context}, leaves), gradients({"c": expected}, leaves), 1e-10)


def test_ring_dropout_leaves_a_weight_out_or_scales_it_up() -> None:
    torch.manual_seed(0)
    _, _, whole = ring_case(400, 5)
    _, _, dropped = ring_case(400, 5, dropout_p=0.4)
    kept = dropped > 0
    torch.testing.assert_close(dropped, torch.where(kept, whole / 0.6, 0.0))
    # 4,000 weights: three standard deviations are 0.023.
    assert abs(float(kept.double().mean()) - 0.6) < 0.03


def test_relay_dropout_leaves_a_weight_out_or_scales_it_up() -> None:
    torch.manual_seed(0)
    mask = padded([200, 150], 200, "right")
    whole, dropped = (relay_case(mask, keep_padding=False, dropout_p=p)[3] for p in (0.0, 0.4))
    kept = dropped > 0
    torch.testing.assert_close(dropped, torch.where(kept, whole / 0.6, 0.0))
    assert abs(float(kept.sum() / (whole > 0).sum()) - 0.6) < 0.06


@pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])
def test_padding_never_has_a_relay_weight_however_low_the_real_scores(keep_padding: bool) -> None:
    mask = padded([3, 0, 1], 5, "holes")
    layout = TokenLayout.from_mask(mask, keep_padding)
    tokens = layout.pack(torch.where(mask[..., None], -1e3, 1e6) * torch.ones(3, 5, 2))
    one = torch.ones(1, 2, 2)
    _, weights = relay_attention(
        torch.ones(3, 1, 2), torch.full((3, 2), -1e3), tokens, layout, one, one, torch.ones(1, 2), 0.0
    )
    assert not weights[:, 0, 1:][~layout.row_mask].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1))


@pytest.mark.parametrize("roles", [1, 3, 5])
def test_a_key_bias_would_cancel(roles: int) -> None:
    leaves, context, _ = ring_case(4, roles, biased=False)
    keys = [leaves[f"key {r}"] + random(2, 3, seed=99) for r in range(roles)]
    values = [leaves[f"value {r}"] for r in range(roles)]
    moved, _ = ring_attention(leaves["query"], keys, values, leaves["value_bias"], None, 0.0)
    assert difference(moved, context) <= 1e-12


@pytest.mark.parametrize(("heads", "width"), [(1, 6), (2, 3), (3, 2), (2, 5), (4, 1)])
def test_projections_and_ring_attention_make_the_multi_head_attention_of_the_paper(heads: int, width: int) -> None:
    module = projections(6, heads, width)
    query, candidates = random(6, seed=1), [random(6, seed=2 + r) for r in range(4)]
    pairs = [module.project_key_value(candidate[None]) for candidate in candidates]
    context, weights = ring_attention(
        module.project_query(query[None]),
        [key for key, _ in pairs],
        [value for _, value in pairs],
        module.value_bias,
        None,
        0.0,
    )
    expected, expected_weights = multi_att(dict(module.named_parameters()), query, candidates, heads, width)
    assert difference(module.project_output(context)[0], expected) <= 1e-12
    assert difference(weights[0], expected_weights) <= 1e-12
