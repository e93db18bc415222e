"""Window attention in blocks equals the loops and the dense mask, and holds no tensor of n x n numbers."""

import pytest
import reference
import torch
from common import examples, padded
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch_modes import LargestTensor, compiled

from modeling_star.models import window_attention as blocks
from modeling_star.models.window_attention import (
    WindowMask,
    attend,
    dense_window,
    ends_of,
    window_attention,
    window_mask,
)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(actual, expected, atol=tolerance, rtol=0)


def states(batch: int, heads: int, length: int, width: int, seed: int = 0, **options: object) -> list[Tensor]:
    """Queries, keys and values `[b, h, n, c]`."""
    generator = torch.Generator().manual_seed(seed)
    made = torch.randn(3, batch, heads, length, width, generator=generator, dtype=torch.float64)
    return [part.to(**options).requires_grad_() for part in made]


def gradients(context: Tensor, leaves: list[Tensor], real: Tensor) -> list[Tensor]:
    """Of a weighted sum of the context at real tokens."""
    weight = torch.randn(context.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    total = (context * weight.to(context.dtype) * real[:, None, :, None]).sum()
    return torch.autograd.grad(total + 0 * sum(leaf.sum() for leaf in leaves), leaves)


@pytest.mark.parametrize("seen", ["none", "first", "first and last"])
@given(data=st.data())
@examples(12)
def test_blocks_equal_the_loops_in_values_and_gradients(seen: str, data: st.DataObject) -> None:
    lengths = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=3))
    real = padded(lengths, 40, data.draw(st.sampled_from(["right", "left"])))
    left, right = data.draw(st.integers(0, 5)), data.draw(st.integers(0, 5))
    query, key, value = leaves = states(len(lengths), 2, 40, 3)
    everybody = None if seen == "none" else ends_of(real, last=seen == "first and last")
    mask = window_mask(40, left, right, real, everybody, batch=len(lengths), dtype=query.dtype)
    assert isinstance(mask, WindowMask) == (32 + left + right < 40)
    context = window_attention(query, key, value, mask)
    expected = torch.stack(
        [
            reference.window_attention(
                query[row], key[row], value[row], left, right, real[row].tolist(),
                [] if everybody is None else everybody[row].tolist(),
            )
            for row in range(len(lengths))
        ]
    )  # fmt: skip
    assert context.isfinite().all()
    assert_close(context * real[:, None, :, None], expected, 1e-12)
    for found, wanted in zip(gradients(context, leaves, real), gradients(expected, leaves, real), strict=True):
        assert_close(found, wanted, 1e-12)


CASES = {
    "one side": {"left": 70, "right": 0},
    "both sides": {"left": 64, "right": 64},
    "uneven": {"left": 9, "right": 150},
    "itself": {"left": 0, "right": 0},
}


@pytest.mark.parametrize("padding", ["none", "right", "left", "holes"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("everybody", [False, True])
def test_blocks_equal_a_dense_mask(case: str, padding: str, everybody: bool) -> None:
    length, window = 517, CASES[case]
    real = torch.ones(3, length).bool() if padding == "none" else padded([517, 200, 3], length, padding)
    seen = ends_of(real, last=True) if everybody else None
    query, key, value = leaves = states(3, 2, length, 4)
    given_real = None if padding == "none" else real
    mask = window_mask(length, **window, real=given_real, seen=seen, batch=3, dtype=query.dtype)
    assert isinstance(mask, WindowMask)
    context = window_attention(query, key, value, mask)
    expected = attend(query, key, value, dense_window(length, **window, real=given_real, seen=seen))
    assert context.isfinite().all()
    assert_close(context * real[:, None, :, None], expected * real[:, None, :, None], 1e-12)
    for found, wanted in zip(gradients(context, leaves, real), gradients(expected, leaves, real), strict=True):
        assert_close(found, wanted, 1e-11)
    with torch.no_grad():  # in several products
        assert_close(window_attention(query, key, value, mask), context, 1e-12)


@torch.no_grad()
def test_texts_longer_than_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "ROWS_AT_ONCE", 100)
    real = padded([517, 200], 517, "right")
    query, key, value = states(2, 2, 517, 4)
    mask = window_mask(517, 40, 3, real, ends_of(real), batch=2, dtype=query.dtype)
    expected = attend(query, key, value, dense_window(517, 40, 3, real, ends_of(real)))
    context = window_attention(query, key, value, mask)
    assert_close(context * real[:, None, :, None], expected * real[:, None, :, None], 1e-12)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype) -> None:
    real = padded([300, 100], 300, "left")
    leaves = states(2, 2, 300, 8, dtype=dtype)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    mask = window_mask(300, 30, 30, real, ends_of(real), batch=2, dtype=dtype)
    context = window_attention(*leaves, mask)
    expected = attend(*exact, dense_window(300, 30, 30, real, ends_of(real)))
    tolerance = 32 * torch.finfo(dtype).eps
    assert context.dtype == dtype
    assert_close((context * real[:, None, :, None]).double(), expected * real[:, None, :, None], tolerance)
    found, wanted = gradients(context, leaves, real), gradients(expected, exact, real)
    for number in range(3):
        assert_close(found[number].double(), wanted[number], tolerance * float(wanted[number].abs().max()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_mask_in_float32_serves_states_of_half_precision(dtype: torch.dtype) -> None:
    real = padded([300, 0], 300, "right")
    leaves = states(2, 2, 300, 8, dtype=dtype)
    both = [
        window_attention(*leaves, window_mask(300, 30, 30, real, batch=2, dtype=of)) for of in (dtype, torch.float32)
    ]
    assert both[0].isfinite().all()
    assert torch.equal(*both)


def test_sinks_and_caps_equal_a_dense_mask() -> None:
    real = padded([200, 90], 200, "right")
    query, key, value = leaves = states(2, 4, 200, 4)
    shared = [leaf[:, :2] for leaf in (key, value)]  # two heads of keys serve four of queries
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=query.dtype, requires_grad=True)
    options = {"scale": 0.7, "softcap": 2.0, "sinks": sinks}
    mask = window_mask(200, 10, 20, real, ends_of(real), batch=2, dtype=query.dtype)
    context = window_attention(query, *shared, mask, **options)
    repeated = [part.repeat_interleave(2, 1) for part in shared]
    scores = (query @ repeated[0].mT * 0.7 / 2).tanh() * 2
    scores = scores.masked_fill(~dense_window(200, 10, 20, real, ends_of(real)), -torch.inf)
    with_sink = torch.cat([scores, sinks[None, :, None, None].expand(2, 4, 200, 1)], dim=-1)
    expected = with_sink.softmax(-1)[..., :-1] @ repeated[1]
    assert_close(context * real[:, None, :, None], expected * real[:, None, :, None], 1e-6)
    found, wanted = gradients(context, [*leaves, sinks], real), gradients(expected, [*leaves, sinks], real)
    for number in range(4):
        assert_close(found[number], wanted[number], 1e-6)


@pytest.mark.parametrize("everybody", [False, True])
def test_dropout_leaves_the_mean_and_drops_its_share(everybody: bool) -> None:
    length, share = 400, 0.3
    query, key, _ = (part.detach() for part in states(1, 3, length, 4))
    value = torch.ones(1, 3, length, 1, dtype=query.dtype)
    seen = torch.zeros(1, 1).long() if everybody else None
    mask = window_mask(length, 20, 20, seen=seen, dtype=query.dtype)
    torch.manual_seed(0)
    sums = torch.cat([window_attention(query, key, value, mask, dropout_p=share) for _ in range(20)])
    assert abs(float(sums.mean()) - 1) < 0.02  # kept weights are scaled up
    alone = window_mask(length, 0, 0, dtype=query.dtype)  # one weight, there or not
    kept = torch.cat([window_attention(query, key, value, alone, dropout_p=share) for _ in range(20)])
    assert abs(float((kept == 0).double().mean()) - share) < 0.02
    assert torch.equal(window_attention(query, key, value, alone), value.expand_as(kept[:1]))


@pytest.mark.parametrize("gradient", [False, True])
def test_no_tensor_has_n_times_n_numbers(gradient: bool) -> None:
    largest = []
    for length in (2048, 4096):
        with LargestTensor() as watch, torch.set_grad_enabled(gradient):
            leaves = states(1, 1, length, 2, dtype=torch.float32)
            seen = torch.tensor([[0, length - 1]])
            context = window_attention(*leaves, window_mask(length, 8, 8, seen=seen))
            if gradient:
                context.sum().backward()
        largest.append(watch.numbers)
    assert largest[1] <= 2 * largest[0]
    assert largest[1] < 64 * 4096


@pytest.mark.parametrize(("length", "batch"), [(260, 2), (200, 1)])
def test_a_mask_of_another_size_is_an_error(length: int, batch: int) -> None:
    with pytest.raises(ValueError, match="other sizes"):
        window_attention(*states(2, 1, 200, 4), window_mask(length, 3, 3, batch=batch))


@torch.no_grad()
def test_a_compiled_graph_computes_the_same() -> None:
    query, key, value = states(2, 2, 300, 4)
    real = padded([300, 100], 300, "right")

    def function(query: Tensor, key: Tensor, value: Tensor, real: Tensor) -> Tensor:
        mask = window_mask(300, 20, 20, real, ends_of(real), batch=2, dtype=query.dtype)
        return window_attention(query, key, value, mask)

    assert_close(compiled(function)(query, key, value, real), function(query, key, value, real), 1e-12)


@pytest.mark.parametrize("seen", ["none", "first"])
@pytest.mark.parametrize("mode", ["eager", "training", "traced"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_what_is_no_number_stays_in_its_text(seen: str, mode: str, value: float) -> None:
    leaves = states(4, 2, 90, 3)
    everybody = None if seen == "none" else ends_of(torch.ones(4, 90))
    mask = window_mask(90, 16, 16, None, everybody, batch=4, dtype=leaves[0].dtype)
    assert isinstance(mask, WindowMask)
    attention = compiled(window_attention) if mode == "traced" else window_attention
    with torch.set_grad_enabled(mode == "training"):
        expected = attention(*leaves, mask)
        for leaf in leaves:
            leaf.data[1, :, [0, 89]] = value
        context = attention(*leaves, mask)
    others = [0, 2, 3]
    assert torch.equal(context[others], expected[others])
    assert context[1, :, [0, 16, 89]].isnan().all()
