"""
The Triton kernels against the operations that they replace, in values and in gradients.

On a CPU they run in Triton's interpreter, which conftest.py enables and which takes milliseconds per line of a kernel.
`TRITON_INTERPRET=0 pytest tests/models/test_kernels.py` runs the same tests on a CUDA GPU.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from common import (
    Batch,
    assert_close,
    assert_gradients_close,
    difference,
    examples,
    given_projections,
    gradients,
    masks,
    named_outputs,
    padded,
    random_batch,
    tiny_model,
    weighted_sum,
)
from encoder_contract import HALF_TOLERANCES
from hypothesis import given
from hypothesis import strategies as st
from kernel_samples import DEVICE, VARIANTS, on_device, setting
from torch import Tensor

from modeling_star.kernels import triton_relay_attention as relay_kernels
from modeling_star.kernels import triton_ring_attention as candidate_kernels
from modeling_star.kernels import triton_utils as kernels
from modeling_star.models import attention, ops
from modeling_star.models.attention import BandCandidates, UpdateLayerNorm, relay_attention
from modeling_star.models.modeling_big import adjacent_candidates, window_candidates, word_candidates
from modeling_star.models.token_layout import TokenLayout, has_shifted, neighbour_index, neighbours


# Relative to the largest number. Sums are in float32; incoming gradients are rounded to the type of the inputs.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-5, torch.float16: 0.004, torch.bfloat16: 0.03}
EXACT = torch.float64 if kernels.INTERPRETED else torch.float32


@pytest.fixture(autouse=True)
def chunks_as_before() -> Iterator[None]:
    before = kernels.TOKENS_OF_CHUNK
    yield
    kernels.TOKENS_OF_CHUNK = before


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def assert_same(
    kernel: Callable[[dict[str, Tensor], TokenLayout], Tensor],
    reference: Callable[[dict[str, Tensor], TokenLayout], Tensor],
    leaves: dict[str, Tensor],
    mask: Tensor,
    dtype: torch.dtype,
) -> None:
    """`kernel` in `dtype` equals `reference` in float64 on the same numbers, and so do all gradients."""
    given = {name: x.detach().to(DEVICE, dtype).requires_grad_() for name, x in leaves.items()}
    exact = {name: x.detach().cpu().double().requires_grad_() for name, x in given.items()}
    context = kernel(given, TokenLayout.from_mask(mask.to(DEVICE), keep_padding=False))
    assert context.dtype == dtype
    actual = {"context": context.cpu().double()}
    expected = {"context": reference(exact, TokenLayout.from_mask(mask, keep_padding=False))}
    assert_close(actual, expected, TOLERANCES[dtype])
    of_kernel = {name: x.cpu() for name, x in gradients(actual, given).items()}
    assert_gradients_close(of_kernel, gradients(expected, exact), TOLERANCES[dtype])


# ------ against the operations that they replace


def ring_leaves(
    mask: Tensor, h: int, c: int, radius: int, radial: bool, embedded: bool, biased: bool
) -> dict[str, Tensor]:
    b, n = len(mask), int(mask.sum())
    leaves = {"query": random(n, h, c), "key_value": random(n, 2, h, c, seed=1), "value_bias": random(h, c, seed=2)}
    if embedded:
        leaves["embedded"] = random(n, 2, h, c, seed=3)
    if radial:
        leaves["node"] = random(b, 2, h, c, seed=4)
    if biased:
        leaves["role_bias"] = random(h, 1 + 2 * radius + 1 + radial, seed=5)
    return leaves


def ring_kernel(leaves: dict[str, Tensor], layout: TokenLayout, radius: int, dropout_p: float = 0.0) -> Tensor:
    optional = {name: leaves.get(name) for name in ("embedded", "node", "role_bias")}
    given = {name: leaves[name] for name in ("query", "key_value", "value_bias")}
    return candidate_kernels.candidate_attention(
        **given,
        **optional,
        radius=radius,
        exists=None,
        spans=None,
        layout=layout,
        dropout_p=dropout_p,
    )


def ring_reference(leaves: dict[str, Tensor], layout: TokenLayout, radius: int) -> Tensor:
    key_value = leaves["key_value"]
    candidates = [key_value[index] for index in neighbour_index(layout, radius, closed=True)]
    candidates.append(leaves.get("embedded", key_value))
    if "node" in leaves:
        candidates.append(leaves["node"][layout.sequence_index])
    places = [(candidate[:, 0], candidate[:, 1]) for candidate in candidates]
    bias = leaves.get("role_bias")
    return attention.candidate_attention(leaves["query"], places, leaves["value_bias"], role_bias=bias)[0]


def assert_ring_is_same(
    mask: Tensor, radius: int, dtype: torch.dtype = EXACT, h: int = 2, c: int = 3, **which: bool
) -> None:
    leaves = ring_leaves(mask, h, c, radius, **which)
    assert_same(
        lambda given, layout: ring_kernel(given, layout, radius),
        lambda given, layout: ring_reference(given, layout, radius),
        leaves,
        mask,
        dtype,
    )


def relay_leaves(mask: Tensor, h: int, c: int, d: int) -> dict[str, Tensor]:
    shapes = {
        "query": (len(mask), h, c),
        "relay": (len(mask), d),
        "tokens": (int(mask.sum()), d),
        "key": (h, c, d),
        "value": (h, c, d),
        "value_bias": (h, c),
    }
    leaves = {name: random(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    # Projections are scaled so that the attention is spread over several tokens.
    return leaves | {name: leaves[name] / d**0.5 for name in ("key", "value")}


def relay_operation(leaves: dict[str, Tensor], layout: TokenLayout, value: str, dropout_p: float = 0.0) -> Tensor:
    given = given_projections(leaves), leaves["relay"], leaves["tokens"], layout, dropout_p
    with setting(value):
        mix = ops.choose(leaves["tokens"], layout, 1, has_relay=True, records=False).mix
        context, weights = relay_attention(*given, mix=mix)
    assert (weights is None) == (value == "1")
    return context


def assert_relay_is_same(mask: Tensor, dtype: torch.dtype = EXACT, h: int = 2, c: int = 3, d: int = 6) -> None:
    assert_same(
        lambda given, layout: relay_operation(given, layout, "1"),
        lambda given, layout: relay_operation(given, layout, "0"),
        relay_leaves(mask, h, c, d),
        mask,
        dtype,
    )


def band_leaves(mask: Tensor, h: int, c: int, with_node: bool) -> dict[str, Tensor]:
    n = int(mask.sum())
    leaves = {"query": random(n, h, c), "key_value": random(n, 2, h, c, seed=1), "value_bias": random(h, c, seed=2)}
    return leaves | ({"node": random(len(mask), 2, h, c, seed=3)} if with_node else {})


def candidates_of(layout: TokenLayout, longest: int, include_self: bool) -> BandCandidates:
    """Random words, or, if the longest is of one token, the tokens on both sides, or a window of them."""
    if longest == 1:
        return adjacent_candidates(layout) if include_self else window_candidates(layout, 4, True)
    fits = torch.stack([has_shifted(layout, length) for length in range(longest)], dim=-1)
    return word_candidates(fits & (random(*fits.shape, seed=9).to(fits.device) > 0), include_self)


def band_kernel(
    leaves: dict[str, Tensor], layout: TokenLayout, candidates: BandCandidates, dropout_p: float = 0.0
) -> Tensor:
    given = {name: leaves.get(name) for name in ("query", "key_value", "node", "value_bias")}
    absent = {"embedded": None, "role_bias": None}
    sums = {
        "radius": candidates.reach,
        "exists": candidates.exists,
        "spans": candidates.all_spans().to(torch.float32).contiguous(),
    }
    return candidate_kernels.candidate_attention(**given, **absent, **sums, layout=layout, dropout_p=dropout_p)


def band_reference(leaves: dict[str, Tensor], layout: TokenLayout, candidates: BandCandidates) -> Tensor:
    around = neighbours(layout, leaves["key_value"], candidates.reach, closed=False)
    places = [(place[:, 0], place[:, 1]) for place in around]
    node = None
    if "node" in leaves:
        of_tokens = leaves["node"][layout.sequence_index]
        node = (of_tokens[:, 0], of_tokens[:, 1])
    bias = leaves["value_bias"]
    return attention.candidate_attention(leaves["query"], places, bias, band=candidates, node=node)[0]


def assert_band_is_same(
    mask: Tensor,
    longest: int,
    include_self: bool,
    with_node: bool,
    dtype: torch.dtype = EXACT,
    h: int = 2,
    c: int = 3,
) -> None:
    assert_same(
        lambda given, layout: band_kernel(given, layout, candidates_of(layout, longest, include_self)),
        lambda given, layout: band_reference(given, layout, candidates_of(layout, longest, include_self)),
        band_leaves(mask, h, c, with_node),
        mask,
        dtype,
    )


# Among them rows of padding, of one token and of two; small chunks split the longer rows.
SHORT = masks(max_rows=2, max_columns=6)
LONG = masks(max_rows=4, max_columns=300)
CHUNKS = st.sampled_from([2, 3, 128])
HEADS, WIDTHS = st.integers(1, 2), st.sampled_from([1, 3, 4, 5])
RING_CASES: dict[str, st.SearchStrategy] = {
    "radius": st.integers(0, 3),
    **{name: st.booleans() for name in ("radial", "embedded", "biased")},
}


@given(mask=SHORT, chunk=CHUNKS, h=HEADS, c=WIDTHS, which=st.fixed_dictionaries(RING_CASES))
@examples(6)
def test_ring_attention_equals_the_kernels(mask: Tensor, chunk: int, h: int, c: int, which: dict[str, Any]) -> None:
    kernels.TOKENS_OF_CHUNK = chunk
    assert_ring_is_same(mask, h=h, c=c, **which)


@given(mask=SHORT, chunk=CHUNKS, h=HEADS, c=WIDTHS, d=st.integers(1, 9))
@examples(6)
def test_relay_attention_equals_the_kernels(mask: Tensor, chunk: int, h: int, c: int, d: int) -> None:
    kernels.TOKENS_OF_CHUNK = chunk
    assert_relay_is_same(mask, h=h, c=c, d=d)


@given(mask=SHORT, chunk=CHUNKS, h=HEADS, c=WIDTHS, longest=st.integers(1, 4), flags=st.tuples(*[st.booleans()] * 2))
@examples(6)
def test_band_attention_equals_the_kernels(
    mask: Tensor, chunk: int, h: int, c: int, longest: int, flags: tuple[bool, bool]
) -> None:
    kernels.TOKENS_OF_CHUNK = chunk
    assert_band_is_same(mask, longest, *flags, h=h, c=c)


@pytest.mark.slow
@given(data=st.data(), mask=LONG, h=st.integers(1, 7), c=st.integers(1, 70))
@examples(25)
def test_attentions_equal_the_kernels_on_long_texts_and_wide_heads(
    data: st.DataObject, mask: Tensor, h: int, c: int
) -> None:
    kernels.TOKENS_OF_CHUNK = data.draw(st.sampled_from([16, 128]))
    operation = data.draw(st.sampled_from(["ring", "relay", "band"]))
    if operation == "ring":
        assert_ring_is_same(mask, h=h, c=c, **data.draw(st.fixed_dictionaries(RING_CASES)))
    elif operation == "relay":
        assert_relay_is_same(mask, h=h, c=c, d=data.draw(st.integers(1, 200)))
    else:
        longest, flags = data.draw(st.integers(1, 10)), data.draw(st.tuples(st.booleans(), st.booleans()))
        assert_band_is_same(mask, longest, *flags, h=h, c=c)


# With the paper's head width, 50 = 300 / 6; one full block of tokens and one partial block.
ODD = padded([17, 0, 2], 17, "holes")


@pytest.mark.parametrize("dtype", [pytest.param(torch.float16, marks=pytest.mark.slow), torch.bfloat16], ids=str)
def test_sums_are_in_float32_for_every_type(dtype: torch.dtype) -> None:
    assert_ring_is_same(ODD, 1, dtype, h=1, c=50, radial=True, embedded=True, biased=True)
    assert_relay_is_same(ODD, dtype, h=1, c=50, d=75)
    assert_band_is_same(ODD, 2, include_self=True, with_node=True, dtype=dtype, h=1, c=50)


def test_large_scores_do_not_overflow() -> None:
    mask = padded([3, 2], 3, "right")
    leaves = ring_leaves(mask, 1, 2, radius=1, radial=True, embedded=True, biased=False)
    leaves = {name: 1e3 * x for name, x in leaves.items()}
    layout = TokenLayout.from_mask(mask.to(DEVICE), keep_padding=False)
    given = {name: x.to(DEVICE, torch.float32).requires_grad_() for name, x in leaves.items()}
    context = ring_kernel(given, layout, radius=1)
    assert_close({"c": context.cpu()}, {"c": ring_reference(leaves, layout_on_cpu(mask), radius=1)}, 1e-5)
    far = relay_leaves(mask, 1, 2, 4)
    far = {name: (1e3 * x).to(DEVICE, torch.float32).requires_grad_() for name, x in far.items()}
    for output in (context, relay_operation(far, layout, "1")):
        output.sum().backward()
        assert output.isfinite().all()
    assert all(x.grad.isfinite().all() for x in (*given.values(), *far.values()))


def layout_on_cpu(mask: Tensor) -> TokenLayout:
    return TokenLayout.from_mask(mask, keep_padding=False)


# ------ dropout

ROWS_OF_FOUR = torch.ones(60, 4)


def ring_weights(dropout_p: float, bias: float = 0.0) -> Tensor:
    """
    The applied weights `[N, 2, 5]`, read from contexts: the four tokens of a sequence, its embeddings and its relay
    have unit vectors as values. Each column also has `bias` times the sum of the weights.
    """
    layout = TokenLayout.from_mask(ROWS_OF_FOUR.bool().to(DEVICE), keep_padding=False)
    leaves = ring_leaves(ROWS_OF_FOUR, 2, 6, radius=1, radial=True, embedded=True, biased=False)
    units = torch.eye(6, dtype=torch.float64)
    leaves["key_value"][:, 1] = units[layout.position.cpu()][:, None]
    leaves["embedded"][:, 1], leaves["node"][:, 1] = units[4], units[5]
    leaves["value_bias"] = torch.full((2, 6), bias, dtype=torch.float64)
    context = ring_kernel({name: x.to(DEVICE, EXACT) for name, x in leaves.items()}, layout, 1, dropout_p).cpu()
    place = layout.position.cpu()[:, None] + torch.tensor([-1, 0, 1])
    columns = torch.cat([place % 4, torch.tensor([4, 5]).expand(len(place), 2)], dim=1)
    return context.gather(2, columns[:, None].expand(-1, 2, -1))


def test_ring_dropout_zeroes_or_scales_each_weight_with_its_bias() -> None:
    torch.manual_seed(0)
    dropped = ring_weights(0.4)
    torch.testing.assert_close(dropped, torch.where(dropped > 0, ring_weights(0.0) / 0.6, 0.0), rtol=1e-5, atol=1e-6)
    # 2,400 weights: three standard deviations are 0.03.
    assert abs(float((dropped > 0).double().mean()) - 0.6) < 0.03
    # Weights are dropped independently: all subsets of the five occur.
    assert len((dropped > 0).flatten(0, 1).unique(dim=0)) == 32
    torch.manual_seed(0)
    biased = ring_weights(0.4, bias=2.0)
    torch.testing.assert_close(biased - dropped, (2 * dropped.sum(-1, keepdim=True)).expand_as(dropped))


def test_relay_dropout_zeroes_or_scales_each_weight_with_its_bias() -> None:
    n, d = 80, 81
    layout = TokenLayout.from_mask(torch.ones(2, n, device=DEVICE).bool(), keep_padding=False)
    units = torch.eye(d, device=DEVICE, dtype=EXACT)
    query = random(2, 3, d).to(DEVICE, EXACT)

    def weights(dropout_p: float) -> tuple[Tensor, Tensor | None]:
        torch.manual_seed(0)
        # Each token is a unit vector, and the relay is the last one.
        mixed, total = relay_kernels.relay_mix(
            query, units[-1:].expand(2, d), units[:n].repeat(2, 1), layout, dropout_p
        )
        return mixed.cpu(), total if total is None else total.cpu()

    (whole, none), (dropped, total) = weights(0.0), weights(0.4)
    assert none is None
    torch.testing.assert_close(dropped, torch.where(dropped > 0, whole / 0.6, 0.0), rtol=1e-5, atol=1e-7)
    assert abs(float((dropped > 0).double().mean()) - 0.6) < 0.08
    torch.testing.assert_close(total, dropped.sum(-1), rtol=1e-5, atol=1e-7)
    assert len({tuple(row) for row in (dropped > 0).flatten(0, 1).tolist()}) == 6


def test_band_dropout_drops_whole_words_and_adds_the_bias_once_per_word() -> None:
    mask = torch.ones(60, 2)
    layout = TokenLayout.from_mask(mask.bool().to(DEVICE), keep_padding=False)
    words = torch.zeros(120, 2, dtype=torch.bool, device=DEVICE)
    words[::2, 1] = True  # each text is one word of two tokens
    candidates = word_candidates(words, include_self=True)
    leaves = band_leaves(mask, 1, 2, with_node=False)
    leaves["key_value"][:, 1] = torch.eye(2, dtype=torch.float64).repeat(60, 1)[:, None]

    def weights(dropout_p: float, bias: float) -> Tensor:
        torch.manual_seed(0)
        given = leaves | {"value_bias": torch.full((1, 2), bias)}
        given = {name: x.to(DEVICE, EXACT) for name, x in given.items()}
        return band_kernel(given, layout, candidates, dropout_p)[:, 0].cpu()

    # The other token has the weight of the word; the token itself has in addition the weight of "self".
    other = torch.tensor([1, 0]).repeat(60)[:, None]

    def split(context: Tensor) -> Tensor:
        word = context.gather(1, other)
        return torch.cat([context.gather(1, 1 - other) - word, word], dim=1)

    whole, dropped = split(weights(0.0, 0.0)), split(weights(0.4, 0.0))
    # The subtraction leaves a rounding error.
    is_kept = dropped > 1e-6
    torch.testing.assert_close(dropped, torch.where(is_kept, whole / 0.6, 0.0), rtol=1e-5, atol=1e-6)
    assert {tuple(row) for row in is_kept.tolist()} == {(a, b) for a in (True, False) for b in (True, False)}
    added = weights(0.4, 2.0) - weights(0.4, 0.0)
    torch.testing.assert_close(added, (2 * dropped.sum(1, keepdim=True)).expand(-1, 2), rtol=1e-5, atol=1e-6)


@pytest.mark.skipif(not kernels.INTERPRETED, reason="finite differences need float64")
@pytest.mark.parametrize("operation", ["ring", "relay", "band"])
def test_forward_and_backward_drop_the_same_weights(operation: str) -> None:
    mask = padded([3, 1], 3, "right")
    layout = TokenLayout.from_mask(mask, keep_padding=False)
    if operation == "ring":
        leaves = ring_leaves(mask, 1, 2, radius=1, radial=True, embedded=True, biased=True)
    else:
        leaves = relay_leaves(mask, 2, 2, 3) if operation == "relay" else band_leaves(mask, 1, 2, with_node=True)
    candidates = candidates_of(layout, 2, include_self=True)

    def dropped(given: dict[str, Tensor], dropout_p: float = 0.5) -> Tensor:
        torch.manual_seed(2)
        if operation == "ring":
            return ring_kernel(given, layout, radius=1, dropout_p=dropout_p)
        if operation == "relay":
            return relay_operation(given, layout, "1", dropout_p)
        return band_kernel(given, layout, candidates, dropout_p)

    given = {name: x.requires_grad_() for name, x in leaves.items()}
    assert difference(dropped(given), dropped(given, dropout_p=0.0)) > 0.1
    # Along one random direction through all inputs at once.
    directions = {name: random(*x.shape, seed=99) for name, x in leaves.items()}
    ahead, behind = (
        dropped({name: x + step * directions[name] for name, x in leaves.items()}) for step in (1e-6, -1e-6)
    )
    slope = float(weighted_sum({"c": (ahead - behind) / 2e-6}).detach())
    computed = gradients({"c": dropped(given)}, given)
    expected = sum(float((computed[name] * direction).sum()) for name, direction in directions.items())
    assert slope == pytest.approx(expected, rel=1e-6)


# ------ whole models


def outputs_and_gradients(
    model: Any, batch: Batch, value: str | None, leaves: dict[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    with setting(value):
        outputs = {name: x.cpu() for name, x in named_outputs(model(**on_device(batch))).items()}
        return outputs, {name: x.cpu() for name, x in gradients(outputs, leaves).items()}


@pytest.mark.parametrize(
    "variant",
    [
        pytest.param(
            name, marks=[] if name in ("Star", "Star, ring of radius 2", "BiG", "BiG, window") else pytest.mark.slow
        )
        for name in VARIANTS
    ],
)
def test_a_model_equals_itself_without_kernels(variant: str) -> None:
    stem, options = VARIANTS[variant]
    kernels.TOKENS_OF_CHUNK = 4
    model = tiny_model(stem, dtype=EXACT, num_attention_heads=1, **options).to(DEVICE)
    batch = random_batch(padded([0, 6, 1, 2], 7, "holes"))
    leaves = dict(model.named_parameters())
    expected, expected_gradients = outputs_and_gradients(model, batch, "0", leaves)
    actual, actual_gradients = outputs_and_gradients(model, batch, "1", leaves)
    assert_close(actual, expected, TOLERANCES[EXACT])
    assert_gradients_close(actual_gradients, expected_gradients, TOLERANCES[EXACT])


@pytest.mark.parametrize(
    ("variant", "dtype"),
    [
        ("Star", torch.bfloat16),
        pytest.param("Star", torch.float16, marks=pytest.mark.slow),
        pytest.param("BiG", torch.bfloat16, marks=pytest.mark.slow),
    ],
    ids=str,
)
@pytest.mark.parametrize("autocast", [False, True], ids=["half precision", "autocast"])
def test_a_model_in_half_precision_stays_close_to_float32_with_kernels(
    autocast: bool, variant: str, dtype: torch.dtype
) -> None:
    stem, options = VARIANTS[variant]
    shape = {"hidden_size": 32, "num_hidden_layers": 1 + autocast, "attention_probs_dropout_prob": 0.1}
    model = tiny_model(stem, seed=None, **shape, **options).to(DEVICE).eval()
    batch = random_batch(padded([5, 0], 6, "holes"))
    with setting("0"):
        expected = {name: x.cpu() for name, x in named_outputs(model(**on_device(batch))).items()}
    with setting("1"), torch.autocast(DEVICE, dtype=dtype, enabled=autocast):
        output = (model if autocast else model.to(dtype))(**on_device(batch))
    assert_close({name: x.cpu() for name, x in named_outputs(output).items()}, expected, HALF_TOLERANCES[dtype])
    with setting("1"), torch.autocast(DEVICE, dtype=dtype, enabled=autocast):
        output = model.train()(**on_device(batch))
    output.last_hidden_state.float().pow(2).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_batch_of_padding_gives_zeros_and_finite_gradients() -> None:
    for variant in ("Star", "BiG"):
        stem, options = VARIANTS[variant]
        model = tiny_model(stem, num_hidden_layers=1, **options).to(DEVICE)
        leaves = dict(model.named_parameters())
        outputs, computed = outputs_and_gradients(model, random_batch(padded([0, 0], 3, "right")), "1", leaves)
        assert not any(x.any() for x in outputs.values())
        assert all(x.isfinite().all() for x in computed.values())


def test_gradient_checkpointing_repeats_the_dropout() -> None:
    options = {"attention_probs_dropout_prob": 0.5, "num_attention_heads": 1, "num_hidden_layers": 1}
    model = tiny_model("StarTransformer", **options).to(DEVICE)
    leaves = dict(model.named_parameters())
    batch = random_batch(padded([5, 2], 5, "right"))
    torch.manual_seed(0)
    _, expected = outputs_and_gradients(model, batch, "1", leaves)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    torch.manual_seed(0)
    _, actual = outputs_and_gradients(model, batch, "1", leaves)
    assert_gradients_close(actual, expected, 1e-5)


# ------ Triton's compiler, which the interpreter does not use

COMPILE = """
import sys
import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver
from modeling_star.kernels import triton_relay_attention as relay_kernels
from modeling_star.kernels import triton_ring_attention as candidate_kernels
from modeling_star.models.modeling_big import word_candidates
from modeling_star.models.token_layout import TokenLayout


class NoGpu:
    # The queries of triton 3.7 before it compiles.
    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_current_target(self):
        return GPUTarget("cuda", int(sys.argv[1]), 32)


driver.set_active(NoGpu())
run, compiled = JITFunction.run, set()


def compile_only(self, *arguments, grid, warmup, **options):
    kernel = run(self, *arguments, grid=grid, warmup=True, **options)
    assert kernel.asm["cubin"]
    compiled.add(self.__name__)


JITFunction.run = compile_only
dtype, (h, c, d) = getattr(torch, sys.argv[2]), map(int, sys.argv[3].split(","))
layout = TokenLayout.from_mask(torch.ones(2, 40).bool(), keep_padding=False)


def random(*shape):
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


leaves = random(80, h, c), random(80, 2, h, c), random(80, 2, h, c), random(2, 2, h, c), random(h, c), random(h, 5)
candidate_kernels.candidate_attention(*leaves, 1, None, None, layout, 0.1).sum().backward()
sum(x.sum() for x in relay_kernels.relay_mix(random(2, h, d), random(2, d), random(80, d), layout, 0.1)).backward()
words = word_candidates(torch.rand(80, 4) < 0.5, True)
leaves = random(80, h, c), random(80, 2, h, c), None, random(2, 2, h, c), random(h, c), None
candidate_kernels.candidate_attention(*leaves, words.reach, words.exists, words.spans, layout, 0.0).sum().backward()
print(*sorted(compiled))
"""


@pytest.mark.slow
@pytest.mark.skipif(not kernels.INTERPRETED, reason="on a GPU every test compiles")
@pytest.mark.parametrize(
    ("capability", "dtype", "shape"),
    [(80, "float32", "6,50,300"), (80, "float16", "12,64,768"), (90, "bfloat16", "6,50,300")],
)
def test_every_kernel_compiles_without_a_gpu(capability: int, dtype: str, shape: str, tmp_path: Path) -> None:
    unset = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability), dtype, shape],
        env={**unset, "TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(done.stdout.split()) == {
        "_candidates_forward",
        "_candidates_backward",
        "_gather_gradients",
        "_relay_scores",
        "_relay_softmax",
        "_relay_mix",
        "_relay_backward_weights",
        "_relay_backward_mix",
        "sum_chunks",
    }


# ------ norms


@pytest.mark.parametrize("dtype", [EXACT, torch.bfloat16], ids=str)
@pytest.mark.parametrize("activation", [None, torch.nn.ReLU(), torch.nn.GELU()], ids=str)
@pytest.mark.parametrize("has_state", [False, True])
@torch.no_grad()
def test_an_update_is_normed_as_without_the_kernel(
    has_state: bool, activation: torch.nn.Module | None, dtype: torch.dtype
) -> None:
    update, state = (random(9, 10, seed=seed).to(DEVICE, dtype) for seed in range(2))
    norm = UpdateLayerNorm(7).to(DEVICE, dtype)
    norm.padding = 3
    norm.weight.copy_(random(7, seed=2))
    norm.bias.copy_(random(7, seed=3))
    results = {}
    for value in ("0", "1"):
        with setting(value):
            layout = TokenLayout.full(1, len(update), update.device)
            kernel = ops.choose(update, layout, 1, has_relay=True, records=False).update_norm
            results[value] = norm(update, state if has_state else None, activation, kernel)
    assert results["1"].dtype == dtype
    assert not results["1"][:, 7:].any()
    assert difference(results["1"], results["0"]) < TOLERANCES[dtype]
