"""Attention against loops that form the key and value of every candidate."""

import math
from typing import Any

import pytest
import torch
from common import (
    TINY,
    Adapter,
    LinearAdapter,
    assert_close,
    difference,
    examples,
    given_projections,
    gradients,
    lexicon_of,
    masks,
    padded,
    some_words,
)
from hypothesis import given
from hypothesis import strategies as st
from reference import multi_att
from torch import Tensor, nn
from torch_modes import LargestTensor

import modeling_star
from modeling_star.models import ops
from modeling_star.models.attention import (
    AttentionProjections,
    BandCandidates,
    CandidateAttention,
    Candidates,
    candidate_attention,
    relay_attention,
)
from modeling_star.models.modeling_big import word_candidates
from modeling_star.models.token_layout import TokenLayout, has_shifted, neighbours


both_layouts = pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])


def random(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator).double().requires_grad_()


def projections(d: int = 6, h: int = 2, c: int = 4) -> AttentionProjections:
    """W_Q, W_K, W_V and W_O with random weights and biases."""
    module = AttentionProjections(d, h, c).double()
    for seed, parameter in enumerate(module.parameters()):
        parameter.data = random(*parameter.shape, seed=seed).detach()
    return module


# ------ tokens


def words_of(mask: Tensor, longest: int, keep_padding: bool, include_self: bool) -> tuple[TokenLayout, BandCandidates]:
    """A layout and random words in it."""
    layout = TokenLayout.from_mask(mask, keep_padding)
    fits = torch.stack([has_shifted(layout, length) for length in range(longest)], dim=-1)
    return layout, word_candidates(fits & (random(*fits.shape, seed=9) > 0), include_self)


def attention_case(
    n: int, places: int, *, roles: int = 0, with_node: bool = False, dropout_p: float = 0.0, **options: Any
) -> tuple[dict[str, Tensor], Tensor, Tensor]:
    """Leaves for candidate_attention, and its two results; a role bias for each of `roles`."""
    h, c = 2, 3
    leaves = {"query": random(n, h, c, seed=1), "value_bias": random(h, c, seed=2)}
    for place in [*range(places), *(["node"] if with_node else [])]:
        seed = 99 if place == "node" else place
        leaves |= {f"key {place}": random(n, h, c, seed=10 + seed), f"value {place}": random(n, h, c, seed=50 + seed)}
    if roles:
        leaves["role_bias"] = random(h, roles, seed=3)
    context, weights = candidate_attention(
        leaves["query"],
        [(leaves[f"key {place}"], leaves[f"value {place}"]) for place in range(places)],
        leaves["value_bias"],
        role_bias=leaves.get("role_bias"),
        node=(leaves["key node"], leaves["value node"]) if with_node else None,
        dropout_p=dropout_p,
        **options,
    )
    return leaves, context, weights


def formed(leaves: dict[str, Tensor], name: str, places: int, band: BandCandidates | None) -> Tensor:
    """Keys or values of the candidates, each the sum of its places, the node's last: `[N, r, h, c]`."""
    of_places = [leaves[f"{name} {place}"] for place in range(places)]
    spans = torch.eye(places).bool() if band is None else band.spans
    sums = [sum(x for x, part in zip(of_places, span, strict=True) if part) for span in spans.T.tolist()]
    return torch.stack([*sums, *([leaves[f"{name} node"]] if f"{name} node" in leaves else [])], dim=1)


@pytest.mark.parametrize("kind", ["places", "words", "words and node"])
@given(n=st.integers(1, 5), places=st.integers(2, 4), biased=st.booleans(), include_self=st.booleans())
@examples(20)
def test_candidate_attention_equals_loops_in_values_and_gradients(
    kind: str, n: int, places: int, biased: bool, include_self: bool
) -> None:
    band, with_node = None, kind == "words and node"
    if kind != "places":
        _, band = words_of(torch.ones(1, n), places, keep_padding=False, include_self=include_self)
        places = len(band.spans)
    roles = (places if band is None else band.spans.shape[1]) + with_node
    leaves, context, weights = attention_case(n, places, roles=roles if biased else 0, with_node=with_node, band=band)
    exists = torch.ones(n, roles).bool()
    if band is not None:
        exists[:, : roles - with_node] = band.exists
    keys, values = (formed(leaves, name, places, band) for name in ("key", "value"))
    contexts, all_weights = torch.zeros_like(context) * leaves["query"], torch.zeros_like(weights)
    for i in range(n):
        present = exists[i].nonzero().flatten()
        for head in range(2):
            if not len(present):
                continue
            scores = keys[i, present, head] @ leaves["query"][i, head] / math.sqrt(3)
            if biased:
                scores = scores + leaves["role_bias"][head, present]
            a = scores.exp() / scores.exp().sum()
            at = torch.tensor(i), torch.tensor(head)
            contexts = contexts.index_put(at, a @ (values[i, present, head] + leaves["value_bias"][head]))
            all_weights = all_weights.index_put((*at, present), a)
    actual, expected = {"c": context, "w": weights}, {"c": contexts, "w": all_weights}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


@pytest.mark.parametrize("with_words", [False, True])
def test_dropout_zeroes_or_scales_each_weight_with_its_bias(with_words: bool) -> None:
    n, places = 200, 5
    band = words_of(torch.ones(1, n), 3, keep_padding=False, include_self=True)[1] if with_words else None
    torch.manual_seed(0)
    whole = attention_case(n, places, with_node=with_words, band=band)[2]
    leaves, context, weights = attention_case(n, places, with_node=with_words, band=band, dropout_p=0.4)
    torch.testing.assert_close(weights, torch.where(weights > 0, whole / 0.6, 0.0))
    assert abs(float((weights > 0).sum() / (whole > 0).sum()) - 0.6) < 0.05
    values = formed(leaves, "value", places, band) + leaves["value_bias"]
    expected = torch.einsum("nhr,nrhc->nhc", weights, values)
    assert_close({"c": context}, {"c": expected}, 1e-10)
    assert_close(gradients({"c": context}, leaves), gradients({"c": expected}, leaves), 1e-10)


def test_queries_are_scaled_before_the_product_in_float16() -> None:
    n, h, c = 3, 1, 64
    vector = torch.full((n, h, c), 50.0, dtype=torch.float16)
    # A product is 160,000, beyond float16, and a score 20,000.
    places = [(vector, torch.full_like(vector, x)) for x in (1.0, 3.0)]
    context, _ = candidate_attention(vector, places, torch.zeros(h, c, dtype=torch.float16))
    assert (context == 2).all()


@pytest.mark.parametrize(("heads", "width"), [(1, 6), (3, 2), (2, 5), (4, 1)])
def test_projections_and_candidate_attention_equal_the_multi_head_attention_of_the_paper(
    heads: int, width: int
) -> None:
    module = projections(6, heads, width)
    query, candidates = random(6, seed=1), [random(6, seed=2 + r) for r in range(4)]
    pairs = [nn.functional.linear(x[None], module.key_value_weight()).chunk(2, -1) for x in candidates]
    context, weights = candidate_attention(
        module.split(module.query(query[None])),
        [(module.split(key), module.split(value)) for key, value in pairs],
        module.value_bias,
    )
    expected, expected_weights = multi_att(dict(module.named_parameters()), query, candidates, heads, width)
    assert difference(module.project_output(context)[0], expected) <= 1e-12
    assert difference(weights[0], expected_weights) <= 1e-12


def test_no_vector_of_a_word_is_materialised() -> None:
    n, h, c, longest = 64, 2, 32, 4
    layout, band = words_of(torch.ones(1, n).bool(), longest, keep_padding=False, include_self=True)
    query, key, value = (random(n, h, c, seed=seed) for seed in range(3))
    with LargestTensor() as largest_tensor:
        places = zip(*(neighbours(layout, x, longest - 1, closed=False) for x in (key, value)), strict=True)
        context, _ = candidate_attention(query, list(places), random(h, c).detach(), band=band)
        context.sum().backward()
    assert largest_tensor.numbers == n * h * c


# ------ the relay


def relay_case(mask: Tensor, keep_padding: bool, dropout_p: float = 0.0) -> tuple:
    """Leaves for relay_attention, its layout, and its two results."""
    h, c, d = 2, 4, 6
    leaves = {
        "query": random(len(mask), h, c, seed=1),
        "relay": random(len(mask), d, seed=2),
        "tokens": random(*mask.shape, d, seed=3),
        "key": random(h, c, d, seed=4),
        "value": random(h, c, d, seed=5),
        "value_bias": random(h, c, seed=6),
    }
    layout = TokenLayout.from_mask(mask, keep_padding)
    tokens = layout.pack(leaves["tokens"])
    mix = ops.choose(tokens, layout, 1, has_relay=True, records=False).mix
    context, weights = relay_attention(given_projections(leaves), leaves["relay"], tokens, layout, dropout_p, mix=mix)
    return leaves, layout, context.unflatten(-1, (h, c)), weights


@both_layouts
@given(mask=masks())
@examples(25)
def test_relay_attention_equals_projecting_every_candidate(keep_padding: bool, mask: Tensor) -> None:
    leaves, layout, context, weights = relay_case(mask, keep_padding)
    contexts, all_weights = [], []
    for row, places in enumerate(layout.row_mask):
        places = places.nonzero().flatten()
        tokens = layout.to_rows(layout.pack(leaves["tokens"]))[row, places]
        candidates = torch.stack([leaves["relay"][row], *tokens])
        for head in range(2):
            keys = candidates @ leaves["key"][head].T
            values = candidates @ leaves["value"][head].T + leaves["value_bias"][head]
            a = (keys @ leaves["query"][row, head] / 2).exp()
            a = a / a.sum()
            contexts.append(a @ values)
            index = torch.cat([torch.zeros(1).long(), places + 1])
            all_weights.append(torch.zeros(weights.shape[-1]).double().index_copy(0, index, a))
    actual = {"c": context, "w": weights}
    expected = {"c": torch.stack(contexts).view_as(context), "w": torch.stack(all_weights).view_as(weights)}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


@pytest.mark.parametrize(("b", "n"), [(32, 20), (64, 20)], ids=["joined with its tokens", "apart from them"])
@both_layouts
def test_relay_attention_equals_products_of_all_heads(keep_padding: bool, b: int, n: int) -> None:
    h, c, d = 6, 32, 192
    shapes = {"query": (b, h, c), "key": (h, c, d), "value": (h, c, d), "value_bias": (h, c), "relay": (b, d)}
    leaves = {name: random(*shape, seed=seed).float() for seed, (name, shape) in enumerate(shapes.items())}
    tokens, relay = random(b, n, d, seed=9).float(), leaves["relay"]
    layout = TokenLayout.from_mask(torch.ones(b, n, dtype=torch.bool), keep_padding)
    context, _ = relay_attention(given_projections(leaves), relay, layout.pack(tokens), layout, dropout_p=0.0)
    absorbed = torch.einsum("bhc,hcd->bhd", leaves["query"] / math.sqrt(c), leaves["key"])
    scores = [torch.einsum("bhd,bd->bh", absorbed, relay)[..., None], torch.einsum("bhd,bmd->bhm", absorbed, tokens)]
    weights = torch.cat(scores, dim=-1).softmax(-1)
    mixed = torch.einsum("bhm,bmd->bhd", weights[..., 1:], tokens) + weights[..., :1] * relay[:, None]
    expected = torch.einsum("bhd,hcd->bhc", mixed, leaves["value"]) + leaves["value_bias"]
    torch.testing.assert_close(context, expected.flatten(1), rtol=1e-4, atol=1e-4)


@both_layouts
def test_relay_dropout_zeroes_or_scales_each_weight_with_its_bias(keep_padding: bool) -> None:
    torch.manual_seed(0)
    mask = padded([60, 0, 1, 50], 60, "holes")
    whole = relay_case(mask, keep_padding)[3]
    leaves, layout, context, weights = relay_case(mask, keep_padding, dropout_p=0.4)
    torch.testing.assert_close(weights, torch.where(weights > 0, whole / 0.6, 0.0))
    assert abs(float((weights > 0).sum() / (whole > 0).sum()) - 0.6) < 0.1
    candidates = torch.cat([leaves["relay"][:, None], layout.to_rows(layout.pack(leaves["tokens"]))], dim=1)
    values = torch.einsum("hcd,bmd->bmhc", leaves["value"], candidates) + leaves["value_bias"]
    expected = torch.einsum("bhm,bmhc->bhc", weights, values)
    assert_close({"c": context}, {"c": expected}, 1e-10)
    assert_close(gradients({"c": context}, leaves), gradients({"c": expected}, leaves), 1e-10)


@both_layouts
def test_padding_has_no_relay_weight_even_with_low_real_scores(keep_padding: bool) -> None:
    mask = padded([3, 0, 1], 5, "holes")
    layout = TokenLayout.from_mask(mask, keep_padding)
    tokens = layout.pack(torch.where(mask[..., None], -1e3, 1e6) * torch.ones(3, 5, 2))
    leaves = {"query": torch.ones(3, 1, 2), "key": torch.ones(1, 2, 2), "value": torch.ones(1, 2, 2)}
    given = given_projections({**leaves, "value_bias": torch.ones(1, 2)})
    _, weights = relay_attention(given, torch.full((3, 2), -1e3), tokens, layout, 0.0)
    assert not weights[:, 0, 1:][~layout.row_mask].any()
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 1))


@pytest.mark.parametrize("precision", ["bfloat16", "autocast"])
def test_relay_attention_in_half_precision_allocates_no_padding(precision: str) -> None:
    b, m, h, c, d = 20, 50, 2, 4, 64
    layout = TokenLayout.from_mask(torch.arange(m) < torch.tensor([m] + [2] * (b - 1))[:, None], False)
    shapes = {"query": (b, h, c), "relay": (b, d), "tokens": (int(layout.mask.sum()), d)}
    shapes |= {"key": (h, c, d), "value": (h, c, d), "value_bias": (h, c)}
    leaves = {
        name: random(*shape, seed=s).detach().float().requires_grad_()
        for s, (name, shape) in enumerate(shapes.items())
    }

    def context_of(given: dict[str, Tensor]) -> Tensor:
        mix = ops.choose(given["tokens"], layout, 1, has_relay=True, records=False).mix
        return relay_attention(given_projections(given), given["relay"], given["tokens"], layout, 0.0, mix=mix)[0]

    expected = context_of(leaves)
    half = {name: leaf.bfloat16() if precision == "bfloat16" else leaf for name, leaf in leaves.items()}
    autocast = torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "autocast")
    with autocast, LargestTensor() as largest_tensor:
        context = context_of(half)
        context.float().sum().backward()
    torch.testing.assert_close(context.float(), expected, rtol=0.05, atol=0.2)
    assert largest_tensor.numbers < b * m * d / 4
    assert all(leaf.grad.isfinite().all() for leaf in leaves.values())


# ------ adapters


@pytest.mark.parametrize("kind", [Adapter, LinearAdapter])
def test_an_adapter_on_the_output_is_called(kind: Any) -> None:
    module = projections()
    layout = TokenLayout.from_mask(torch.ones(1, 4).bool(), keep_padding=False)
    attention = CandidateAttention(6, 2, 4, 0.0)
    attention.projections = module

    def update() -> Tensor:
        return attention(Candidates(random(4, 6), layout, module.key_value_weight(), ring_radius=1))[0]

    before = update()
    module.output = kind(module.output)
    assert difference(update(), before) > 1e-2


@pytest.mark.parametrize("kind", [Adapter, LinearAdapter])
@pytest.mark.parametrize("name", ["key", "value"])
def test_an_adapter_that_would_not_be_called_is_an_error(kind: Any, name: str) -> None:
    module = projections()
    setattr(module, name, kind(getattr(module, name)))
    with pytest.raises(TypeError, match=kind.__name__):
        module.key_value_weight()


def test_a_reparametrised_layer_works() -> None:
    module = projections()
    weight = module.key_value_weight().clone()
    torch.nn.utils.parametrizations.weight_norm(module.key)
    assert_close({"weight": module.key_value_weight()}, {"weight": weight}, 1e-10)


@pytest.mark.parametrize("name", ["StarTransformer", "BigTransformer"])
def test_large_embeddings_stay_finite_in_float16(name: str) -> None:
    """Scores of such embeddings are beyond float16, the states are not."""
    model = getattr(modeling_star, f"{name}Model")(getattr(modeling_star, f"{name}Config")(**TINY)).eval()
    if name == "BigTransformer":
        model.set_lexicon(lexicon_of(some_words()))
    torch.manual_seed(0)
    model.get_input_embeddings().weight.data.normal_(0, 1000)
    ids, mask = torch.randint(5, TINY["vocab_size"], (3, 12)), torch.ones(3, 12, dtype=torch.long)
    mask[1, 7:] = 0
    with torch.no_grad():
        expected = model(ids, attention_mask=mask).last_hidden_state[mask.bool()]
        actual = model.half()(ids, attention_mask=mask).last_hidden_state[mask.bool()]
    assert torch.isfinite(actual).all()
    assert float((actual.float() - expected).abs().mean()) < 0.05
