"""Padded and packed layouts of random masks against loops over the real tokens of each row."""

import itertools

import pytest
import torch
from common import difference, examples, masks, padded, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from modeling_star.models.token_layout import (
    TokenLayout,
    fixed_shapes,
    has_shifted,
    neighbour_index,
    neighbours,
    shifted,
    words_end_inside,
)


both_layouts = pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "in rows"])


def columns_of(mask: Tensor) -> list[list[int]]:
    """The real columns of each row, in order."""
    return [row.nonzero().flatten().tolist() for row in mask]


def numbers(mask: Tensor, width: int = 3) -> Tensor:
    """Distinct numbers `[b, n, width]`."""
    return torch.arange(1.0, mask.numel() * width + 1).double().reshape(*mask.shape, width)


def flat_index(layout: TokenLayout, mask: Tensor) -> list[list[int]]:
    """Index of each real token of each row among the flat tokens."""
    index = layout.unpack(torch.arange(len(layout.position)))
    return [index[row, columns].tolist() for row, columns in enumerate(columns_of(mask))]


@given(mask=masks())
@examples(50)
def test_packed_tokens_are_the_real_columns_row_by_row(mask: Tensor) -> None:
    x = numbers(mask)
    layout = TokenLayout.from_mask(mask, keep_padding=False)
    expected = [x[row, column] for row, columns in enumerate(columns_of(mask)) for column in columns]
    assert layout.in_rows == bool(mask.all())
    assert layout.pack(x).tolist() == [vector.tolist() for vector in expected]


@both_layouts
@given(mask=masks(), longest=st.integers(2, 4))
@examples(50)
def test_fits_holds_what_has_shifted_says_of_each_offset(keep_padding: bool, mask: Tensor, longest: int) -> None:
    layout = TokenLayout.from_mask(mask.bool(), keep_padding)
    expected = torch.stack([has_shifted(layout, offset) for offset in range(1, longest)], dim=1)
    assert torch.equal(words_end_inside(layout, longest), expected)


@both_layouts
@given(mask=masks())
@examples(50)
def test_unpacking_gives_back_the_real_columns_and_zeros_elsewhere(keep_padding: bool, mask: Tensor) -> None:
    x = numbers(mask)
    layout = TokenLayout.from_mask(mask, keep_padding)
    garbage = x.masked_fill(~mask[..., None], float("nan"))
    assert torch.equal(layout.unpack(layout.pack(garbage)), x * mask[..., None])


@given(mask=masks())
@examples(50)
def test_rows_are_as_long_as_the_longest_sequence_or_as_all_columns(mask: Tensor) -> None:
    layout = TokenLayout.from_mask(mask, keep_padding=True)
    assert layout.in_rows
    assert len(layout.pack(numbers(mask))) == len(mask) * max(1, int(mask.sum(1).max()))
    with fixed_shapes({}):
        layout = TokenLayout.from_mask(mask, keep_padding=False)
    assert layout.pack(numbers(mask)).flatten().sort().values.tolist() == numbers(mask).flatten().tolist()


@both_layouts
@given(mask=masks())
@examples(50)
def test_neighbours_follow_the_real_tokens_and_close_the_ring(keep_padding: bool, mask: Tensor) -> None:
    layout = TokenLayout.from_mask(mask, keep_padding)
    for tokens in flat_index(layout, mask):
        n = len(tokens)
        around = [[tokens[(i + place) % n] for i in range(n)] for place in range(-3, 4)]
        assert neighbour_index(layout, 3, closed=True)[:, tokens].tolist() == around


@both_layouts
def test_the_mean_of_a_long_text_is_finite_in_half_precision(keep_padding: bool) -> None:
    mask = torch.ones(2, 70_000, dtype=torch.bool)
    mask[1, 5:] = False
    layout = TokenLayout.from_mask(mask, keep_padding)
    tokens = torch.full((len(layout.position), 1), 3.0, dtype=torch.float16)
    assert layout.mean(tokens).tolist() == [[3.0], [3.0]]


@both_layouts
@given(mask=masks(), offset=st.integers(-6, 6))
@examples(50)
def test_shifting_counts_real_tokens_and_ends_with_the_sequence(keep_padding: bool, mask: Tensor, offset: int) -> None:
    layout, x = TokenLayout.from_mask(mask, keep_padding), numbers(mask)
    values, exists = shifted(layout.pack(x), offset), has_shifted(layout, offset)
    assert values.shape == layout.pack(x).shape
    expected = torch.zeros(len(exists), dtype=torch.bool)
    for (row, columns), tokens in zip(enumerate(columns_of(mask)), flat_index(layout, mask), strict=True):
        for i, token in enumerate(tokens):
            if 0 <= i + offset < len(tokens):
                expected[token] = True
                assert torch.equal(values[token], x[row, columns[i + offset]])
    # Nothing exists at padding.
    assert torch.equal(exists, expected)


@both_layouts
@given(mask=masks(max_columns=9), radius=st.integers(0, 4), closed=st.booleans())
@examples(150)
def test_neighbours_are_those_of_the_ring_or_of_the_sequence(
    keep_padding: bool, mask: Tensor, radius: int, closed: bool
) -> None:
    layout = TokenLayout.from_mask(mask, keep_padding)
    x = layout.pack(numbers(mask))
    order = torch.arange(len(x))
    found = neighbours(layout, x, radius, closed)
    for offset, neighbour in zip(range(-radius, radius + 1), found, strict=True):
        if closed:
            exists, index = has_shifted(layout, 0), neighbour_index(layout, radius, closed)[offset + radius]
        else:
            exists, index = has_shifted(layout, offset), shifted(order, offset)
        assert neighbour.isfinite().all()
        assert torch.equal(neighbour[exists], x[index][exists])
        if len(x):
            assert torch.equal(x[neighbour_index(layout, radius, closed)[offset + radius]][exists], neighbour[exists])


@given(mask=masks(max_columns=9))
@examples(50)
def test_offsets_are_where_sequences_begin(mask: Tensor) -> None:
    layout = TokenLayout.from_mask(mask.bool(), keep_padding=False)
    assert layout.offsets.tolist() == [0, *itertools.accumulate(layout.lengths.tolist())]
    assert layout.in_rows or layout.starts.tolist() == layout.offsets.tolist()[:-1]


@both_layouts
@given(mask=masks())
@examples(50)
def test_positions_and_sequences_count_real_tokens_only(keep_padding: bool, mask: Tensor) -> None:
    layout = TokenLayout.from_mask(mask, keep_padding)
    assert layout.lengths.tolist() == [len(columns) for columns in columns_of(mask)]
    for row, tokens in enumerate(flat_index(layout, mask)):
        assert layout.position[tokens].tolist() == list(range(len(tokens)))
        assert layout.sequence_index[tokens].tolist() == [row] * len(tokens)


@both_layouts
@given(mask=masks())
@examples(50)
def test_indices_at_padding_are_in_range(keep_padding: bool, mask: Tensor) -> None:
    # Padding is gathered too.
    layout = TokenLayout.from_mask(mask, keep_padding)
    for index, end in (
        (neighbour_index(layout, 2, closed=True), len(layout.position)),
        (layout.position, mask.shape[1]),
        (layout.sequence_index, mask.shape[0]),
    ):
        assert ((index >= 0) & (index < end)).all()


@both_layouts
@given(mask=masks())
@examples(50)
def test_rows_hold_each_sequence_in_order_where_the_row_mask_is_true(keep_padding: bool, mask: Tensor) -> None:
    x = numbers(mask)
    layout = TokenLayout.from_mask(mask, keep_padding)
    rows = layout.to_rows(layout.pack(x))
    for row, columns in enumerate(columns_of(mask)):
        assert torch.equal(rows[row, layout.row_mask[row]], x[row, columns])
    assert torch.equal(layout.unpack(layout.from_rows(rows)), x * mask[..., None])


@both_layouts
@given(mask=masks())
@examples(50)
def test_row_extents_reach_to_the_last_real_token_of_each_row(keep_padding: bool, mask: Tensor) -> None:
    layout = TokenLayout.from_mask(mask, keep_padding)
    assert len(layout.row_extents) == len(mask)
    for places, extent in zip(layout.row_mask, layout.row_extents, strict=True):
        assert extent <= len(places)
        assert not places[extent:].any()


@both_layouts
@given(mask=masks())
@examples(50)
def test_right_padded_rows_have_no_holes_and_can_be_undone(keep_padding: bool, mask: Tensor) -> None:
    x = numbers(mask)
    layout = TokenLayout.from_mask(mask, keep_padding)
    rows, real = layout.to_rows(layout.pack(x)), layout.row_mask
    assert rows.shape[:2] == real.shape
    for row, columns in enumerate(columns_of(mask)):
        assert real[row].tolist() == [place < len(columns) for place in range(real.shape[1])]
        assert torch.equal(rows[row, : len(columns)], x[row, columns])
    assert torch.equal(layout.rows_to_columns(rows), x * mask[..., None])


@both_layouts
@pytest.mark.parametrize("pooling", ["mean", "max"])
@given(mask=masks(), garbage=st.sampled_from([1e6, -1e6, float("inf"), float("nan")]))
@examples(30)
def test_pooling_reads_real_tokens_only_and_gives_zero_without_any(
    keep_padding: bool, pooling: str, mask: Tensor, garbage: float
) -> None:
    # All numbers are negative, so that a zero of padding would be the maximum.
    x = (-numbers(mask)).masked_fill(~mask[..., None], garbage)
    layout = TokenLayout.from_mask(mask, keep_padding)
    pooled = getattr(layout, pooling)(layout.pack(x))
    for row, columns in enumerate(columns_of(mask)):
        real = x[row, columns]
        expected = torch.zeros(3).double()
        if columns:
            expected = real.sum(0) / len(columns) if pooling == "mean" else real.max(0).values
        assert difference(pooled[row], expected) <= 1e-12


@both_layouts
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_gradient_of_pooling_reaches_real_tokens_only(keep_padding: bool, pooling: str) -> None:
    mask = torch.tensor([[False, True, True], [False, False, False]])
    x = (-numbers(mask)).masked_fill(~mask[..., None], float("nan")).requires_grad_()
    layout = TokenLayout.from_mask(mask, keep_padding)
    getattr(layout, pooling)(layout.pack(x)).sum().backward()
    share = [0.5, 0.5] if pooling == "mean" else [1.0, 0.0]
    assert x.grad is not None
    assert x.grad[..., 0].tolist() == [[0.0, *share], [0.0, 0.0, 0.0]]


@both_layouts
def test_a_batch_of_padding_has_a_layout(keep_padding: bool) -> None:
    mask = torch.zeros(2, 3, dtype=torch.bool)
    layout, x = TokenLayout.from_mask(mask, keep_padding), numbers(mask)
    tokens = layout.pack(x)
    assert len(tokens) == (2 if keep_padding else 0)
    assert torch.equal(layout.unpack(tokens), torch.zeros_like(x))
    assert not layout.mean(tokens).any()
    assert not layout.max(tokens).any()


@pytest.mark.parametrize(("b", "n"), [(1, 1), (1, 5), (3, 4), (2, 400)])
def test_a_full_layout_is_that_of_a_mask_of_ones(b: int, n: int) -> None:
    layout = TokenLayout.full(b, n, torch.device("cpu"))
    expected = TokenLayout.from_mask(torch.ones(b, n).bool(), keep_padding=False)
    assert (layout.max_length, layout.is_full) == (n, True)
    for name in ("mask", "lengths", "starts", "sequence_index", "position"):
        assert torch.equal(getattr(layout, name), getattr(expected, name)), name


def test_what_is_kept_from_inference_mode_serves_training_and_other_models() -> None:
    ids = torch.randint(0, 10, (5, 1))  # as many sequences as tokens
    for stem, options in ("StarTransformer", {}), ("StarTransformer", {"use_radial": False}), ("BigTransformer", {}):
        model = tiny_model(stem, "Model", **options)
        expected = model(ids, attention_mask=torch.ones(5, 1), output_hidden_states=True).last_hidden_state
        with torch.inference_mode():
            assert torch.allclose(model(ids).last_hidden_state, expected, atol=1e-5)
        output = model.train()(ids)
        (output.last_hidden_state.sum() + output.pooler_output.sum()).backward()


@pytest.mark.parametrize("lengths", [[3, 1, 0, 4], [3, 3]], ids=["ragged", "full"])
@pytest.mark.parametrize("keep_padding", [False, True])
@pytest.mark.parametrize("pooling", ["max", "mean"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_shows_in_the_vector_of_its_text_alone(
    lengths: list[int], keep_padding: bool, pooling: str, value: float
) -> None:
    layout = TokenLayout.from_mask(padded(lengths, max(lengths), "right"), keep_padding)
    tokens = torch.randn(len(layout.position), 2, generator=torch.Generator().manual_seed(0))
    expected = getattr(layout, pooling)(tokens)
    tokens[2 if value != -torch.inf else slice(3)] = value  # what is smallest is not seen beside others
    pooled = getattr(layout, pooling)(tokens)
    assert torch.equal(pooled[1:], expected[1:])
    torch.testing.assert_close(pooled[0], torch.full((2,), value), equal_nan=True)
