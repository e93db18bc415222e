"""The attentions against sums over candidates whose keys and values are projected one by one."""

import itertools
import math
from typing import Any

import pytest
import torch
from common import Adapter, LinearAdapter, assert_close, difference, examples, gradients, masks, padded
from hypothesis import given
from hypothesis import strategies as st
from reference import multi_att
from torch import Tensor
from torch_modes import LargestTensor

from modeling_star.models.attention import (
    AttentionProjections,
    BandCandidates,
    band_attention,
    relay_attention,
    ring_attention,
)
from modeling_star.models.token_layout import TokenLayout


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


def relay_case(mask: Tensor, keep_padding: bool, dropout_p: float = 0.0, relays: int = 1) -> tuple:
    """Leaves for relay_attention, its layout, and its two results."""
    h, c, d = 2, 4, 6
    leaves = {
        "query": random(len(mask), relays, h, c, seed=1),
        "relays": random(len(mask), relays, d, seed=2),
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
    """W_V x + b of the one relay and of each place of the rows, `[b, 1 + m, h, c]`."""
    rows = layout.to_rows(layout.pack(leaves["tokens"]))
    candidates = torch.cat([leaves["relays"], rows], dim=1)
    return torch.einsum("hcd,bmd->bmhc", leaves["value_weight"], candidates) + leaves["value_bias"]


def test_products_that_float16_cannot_hold_are_scaled_before() -> None:
    n, h, c = 3, 1, 64
    query, key = (torch.full((n, h, c), 50.0, dtype=torch.float16) for _ in range(2))
    values = [torch.full((n, h, c), x, dtype=torch.float16) for x in (1.0, 3.0)]
    bias = torch.zeros(h, c, dtype=torch.float16)
    # A product is 160,000, beyond float16, and a score 20,000.
    ring, _ = ring_attention(query, [key, key], values, bias, None, 0.0)
    assert (ring == 2).all()
    alone = BandCandidates(torch.ones(n, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool), 0)
    band, _ = band_attention(query, [key], values[:1], bias, (key, values[1]), alone, 0.0)
    assert (band == 2).all()


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


@pytest.mark.parametrize("given", ["bfloat16", "autocast"])
def test_beside_a_long_text_the_relay_lays_no_padding_out_in_half_precision(given: str) -> None:
    b, m, h, c, d = 20, 50, 2, 4, 64
    layout = TokenLayout.from_mask(torch.arange(m) < torch.tensor([m] + [2] * (b - 1))[:, None], False)
    shapes = {"query": (b, 1, h, c), "relays": (b, 1, d), "tokens": (int(layout.mask.sum()), d)}
    shapes |= {"key_weight": (h, c, d), "value_weight": (h, c, d), "value_bias": (h, c)}
    leaves = {
        name: torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        for seed, (name, shape) in enumerate(shapes.items())
    }
    expected, _ = relay_attention(**leaves, layout=layout, dropout_p=0.0)
    half = {name: leaf.bfloat16() if given == "bfloat16" else leaf for name, leaf in leaves.items()}
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=given == "autocast"), LargestTensor() as largest_tensor:
        context, _ = relay_attention(**half, layout=layout, dropout_p=0.0)
        context.float().sum().backward()
    torch.testing.assert_close(context.float(), expected, rtol=0.05, atol=0.2)
    assert largest_tensor.numbers < b * m * d / 4
    assert all(leaf.grad.isfinite().all() for leaf in leaves.values())


def test_weights_of_the_relay_over_texts_of_several_lengths_are_in_full_precision_under_autocast() -> None:
    d = 4
    layout = TokenLayout.from_mask(padded([3, 1], 3, "right"), False)
    leaves = {
        # The queries are exact in bfloat16, the vectors that they meet are not.
        "query": torch.full((2, 1, 1, d), 2.0),
        "relays": random(2, 1, d, seed=1).float(),
        "tokens": random(4, d, seed=2).float(),
        "key_weight": torch.eye(d)[None],
        **{name: torch.zeros(shape) for name, shape in (("value_weight", (1, d, d)), ("value_bias", (1, d)))},
    }
    _, expected = relay_attention(**leaves, layout=layout, dropout_p=0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, weights = relay_attention(**leaves, layout=layout, dropout_p=0.0)
    torch.testing.assert_close(weights, expected)


@pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])
@given(mask=masks(), relays=st.integers(1, 3))
@examples(25)
def test_relay_attention_equals_projecting_every_candidate(keep_padding: bool, mask: Tensor, relays: int) -> None:
    leaves, layout, context, weights = relay_case(mask, keep_padding, relays=relays)
    contexts, all_weights = [], []
    for row, places in enumerate(layout.row_mask):
        places = places.nonzero().flatten()
        tokens = layout.to_rows(layout.pack(leaves["tokens"]))[row, places]
        for relay, head in itertools.product(range(relays), range(2)):
            candidates = [leaves["relays"][row, relay], *tokens]
            keys = [leaves["key_weight"][head] @ x for x in candidates]
            values = [leaves["value_weight"][head] @ x + leaves["value_bias"][head] for x in candidates]
            exp = torch.stack([torch.dot(leaves["query"][row, relay, head], key) / 2 for key in keys]).exp()
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


def test_one_relay_comes_out_to_the_last_digit_whatever_several_take() -> None:
    """Published scores hang on it: the operations, and the order that they add up in, are those for one relay."""
    b, n, h, c, d = 32, 20, 6, 32, 192
    mask = torch.ones(b, n, dtype=torch.bool)
    query, relay, tokens = (random(*shape, seed=i).float() for i, shape in enumerate([(b, h, c), (b, d), (b, n, d)]))
    key, value, bias = (random(*shape, seed=9 + i).float() for i, shape in enumerate([(h, c, d), (h, c, d), (h, c)]))
    layout = TokenLayout.from_mask(mask, keep_padding=True)
    context, _ = relay_attention(
        query[:, None], relay[:, None], layout.pack(tokens), layout, key, value, bias, dropout_p=0.0
    )
    absorbed = torch.einsum("bhc,hcd->bhd", query / math.sqrt(c), key)
    scores = [torch.einsum("bhd,bd->bh", absorbed, relay)[..., None], torch.einsum("bhd,bmd->bhm", absorbed, tokens)]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    mixed = torch.einsum("bhm,bmd->bhd", weights[..., 1:], tokens) + weights[..., :1] * relay[:, None]
    assert torch.equal(context[:, 0], torch.einsum("bhd,hcd->bhc", mixed, value) + bias)


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
    expected = torch.einsum("bhm,bmhc->bhc", weights, projected_values(leaves, layout))[:, None]
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
        torch.ones(3, 1, 1, 2), torch.full((3, 1, 2), -1e3), tokens, layout, one, one, torch.ones(1, 2), 0.0
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


# ------ band attention


def band_case(
    layout: TokenLayout, candidates: BandCandidates | None, with_node: bool, dropout_p: float = 0.0
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Leaves for band_attention, keys and values one for each flat token, and its two results."""
    n, h, c = len(layout.position), 2, 3
    leaves = {
        **{name: random(n, h, c, seed=seed) for seed, name in enumerate(("query", "key", "value"))},
        "value_bias": random(h, c, seed=3),
    }
    node = None
    if with_node:
        leaves |= {"node key": random(n, h, c, seed=4), "node value": random(n, h, c, seed=5)}
        node = (leaves["node key"], leaves["node value"])
    [part], reach = layout.parts(), 0 if candidates is None else candidates.reach
    context, weights = band_attention(
        leaves["query"],
        part.band(leaves["key"], reach, layout),
        part.band(leaves["value"], reach, layout),
        leaves["value_bias"],
        node,
        candidates,
        dropout_p,
    )
    return leaves, context, weights


def summed(leaves: dict[str, Tensor], name: str, i: int, candidates: BandCandidates, layout: TokenLayout) -> Tensor:
    """What the candidates of token i hold, each the sum of its tokens, zeros where there is none: `[r, h, c]`."""
    found = []
    for role in range(candidates.exists.shape[1]):
        places = candidates.spans[:, role].nonzero().flatten().tolist() if candidates.exists[i, role] else []
        zeros = torch.zeros(2, 3).double()
        found.append(sum((layout.shifted(leaves[name], p - candidates.reach)[i] for p in places), zeros))
    return torch.stack(found)


def words_of(mask: Tensor, longest: int, keep_padding: bool, include_self: bool) -> tuple[TokenLayout, BandCandidates]:
    """A layout, and random words in it."""
    layout = TokenLayout.from_mask(mask, keep_padding)
    fits = torch.stack([layout.has_shifted(length) for length in range(longest)], dim=-1)
    words = fits & (random(*fits.shape, seed=9) > 0)
    return layout, BandCandidates.words(words, layout, include_self)


both_layouts = pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])


@both_layouts
@pytest.mark.parametrize("with_node", [False, True], ids=["words alone", "with node"])
@given(
    mask=masks(max_columns=6).filter(lambda mask: bool(mask.any())), longest=st.integers(2, 4), include_self=st.booleans()
)
@examples(25)
def test_band_attention_equals_attention_to_vectors_that_are_summed(
    keep_padding: bool, with_node: bool, mask: Tensor, longest: int, include_self: bool
) -> None:
    layout, candidates = words_of(mask, longest, keep_padding, include_self)
    real = layout.pack(mask).nonzero().flatten().tolist()
    leaves, context, weights = band_case(layout, candidates, with_node)
    # Part of the graph, also where no token has anything to attend to.
    nothing = 0 * leaves["query"].sum()
    contexts, all_weights = torch.zeros_like(context) + nothing, torch.zeros_like(weights) + nothing
    for i in real:
        keys, values = (summed(leaves, name, i, candidates, layout) for name in ("key", "value"))
        exists = candidates.exists[i].tolist()
        if with_node:
            keys, values = (
                torch.cat([x, leaves[f"node {name}"][i][None]]) for x, name in ((keys, "key"), (values, "value"))
            )
            exists = [*exists, True]
        present = [role for role, there in enumerate(exists) if there]
        for head in range(2):
            if not present:
                continue
            scores = torch.stack([leaves["query"][i, head] @ keys[role, head] / math.sqrt(3) for role in present])
            a = scores.exp() / scores.exp().sum()
            biased = values[present, head] + leaves["value_bias"][head]
            at = torch.tensor(i), torch.tensor(head)
            contexts = contexts.index_put(at, (a[:, None] * biased).sum(0))
            all_weights = all_weights.index_put((*at, torch.tensor(present)), a)
    # What padding gets is nobody's business.
    actual = {"context": context[real], "weights": weights[real]}
    expected = {"context": contexts[real], "weights": all_weights[real]}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


def test_band_dropout_drops_words_whole_and_adds_the_bias_once_for_each() -> None:
    torch.manual_seed(0)
    layout, candidates = words_of(torch.ones(1, 60), 3, keep_padding=False, include_self=True)
    whole = band_case(layout, candidates, with_node=True)[2]
    leaves, context, weights = band_case(layout, candidates, with_node=True, dropout_p=0.4)
    torch.testing.assert_close(weights, torch.where(weights > 0, whole / 0.6, 0.0))
    assert 0.5 < float((weights > 0).sum() / (whole > 0).sum()) < 0.7
    values = torch.stack([summed(leaves, "value", i, candidates, layout) for i in range(60)])
    values = torch.cat([values, leaves["node value"][:, None]], dim=1) + leaves["value_bias"]
    expected = torch.einsum("nhr,nrhc->nhc", weights, values)
    assert_close({"context": context}, {"context": expected}, 1e-10)
    assert_close(gradients({"c": context}, leaves), gradients({"c": expected}, leaves), 1e-10)


def test_the_words_of_a_token_come_by_length_and_by_its_place_in_them() -> None:
    layout = TokenLayout.from_mask(torch.ones(1, 4).bool(), keep_padding=False)
    words = torch.zeros(4, 3).bool()
    words[0, 1] = words[1, 2] = words[2, 1] = True  # 0-1, 1-3, 2-3
    candidates = BandCandidates.words(words, layout, include_self=True)
    # self; first and second of two; first, second and third of three
    assert candidates.exists.long().tolist() == [
        [1, 1, 0, 0, 0, 0],
        [1, 0, 1, 1, 0, 0],
        [1, 1, 0, 0, 1, 0],
        [1, 0, 1, 0, 0, 1],
    ]
    # From two places before the token to two after it.
    assert candidates.spans.long().T.tolist() == [
        [0, 0, 1, 0, 0],
        [0, 0, 1, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 1, 1],
        [0, 1, 1, 1, 0],
        [1, 1, 1, 0, 0],
    ]
    without = BandCandidates.words(words, layout, include_self=False)
    assert torch.equal(without.exists, candidates.exists[:, 1:])
    assert torch.equal(without.spans, candidates.spans[:, 1:])


@pytest.mark.parametrize("with_node", [False, True])
def test_nothing_of_the_size_of_words_times_width_is_made(with_node: bool) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = function(*args, **(kwargs or {}))
            for x in out if isinstance(out, (tuple, list)) else [out]:
                if isinstance(x, Tensor):
                    self.size = max(self.size, x.numel())
            return out

    n, h, c, longest = 64, 2, 32, 4
    layout, candidates = words_of(torch.ones(1, n), longest, keep_padding=False, include_self=True)
    query, key, value = (random(n, h, c, seed=seed) for seed in range(3))
    [part] = layout.parts()
    with Largest() as largest:
        node = (key, value) if with_node else None
        context, _ = band_attention(
            query,
            part.band(key, longest - 1, layout),
            part.band(value, longest - 1, layout),
            random(h, c).detach(),
            node,
            candidates,
            0.0,
        )
        context.sum().backward()
    # The tokens with what stands around them.
    assert largest.size == (n + 2 * (longest - 1)) * h * c


# Adapters


@pytest.mark.parametrize("kind", [Adapter, LinearAdapter])
def test_an_adapter_at_the_output_is_called(kind: Any) -> None:
    module, context = projections(), random(3, 2, 4)
    module.output = kind(module.output)
    expected = module.project_output(context + module.value_bias)
    assert torch.equal(module.project_unbiased(context, None), expected)
    plain = projections()
    assert difference(plain.project_unbiased(context, None), expected) > 1e-2


@pytest.mark.parametrize("kind", [Adapter, LinearAdapter])
@pytest.mark.parametrize("name", ["key", "value"])
def test_an_adapter_that_would_not_be_called_is_refused(kind: Any, name: str) -> None:
    module = projections()
    setattr(module, name, kind(getattr(module, name)))
    with pytest.raises(TypeError, match=rf"projections\.{name} is a \S*{kind.__name__}.*\['query', 'output'\]"):
        module.key_value_weight()


def test_a_layer_that_is_reparametrized_is_read() -> None:
    module = projections()
    weight = module.key_value_weight().clone()
    torch.nn.utils.parametrizations.weight_norm(module.key)
    assert_close({"weight": module.key_value_weight()}, {"weight": weight}, 1e-10)
