"""Attention over rows of a table against attention over gathered copies of these rows."""

from typing import Any

import pytest
import torch
from common import assert_close, examples, gradients, padded, random_batch, tiny_model
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch_modes import LargestTensor

from modeling_star.models import ops
from modeling_star.models.sparse_attention import (
    RowIndex,
    products_are_sampled,
    row_attention,
)


WINDOW = ("BigTransformer", {"local_connection": "window", "global_node": "first"})


def gathered(
    query: Tensor,
    table: Tensor,
    index: Tensor,
    role_bias: Tensor | None,
    spans: Tensor | None,
    exists: Tensor | None,
    dropout: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The context `[M, h, c]` and the sum of the weights `[M, h]`, with every candidate's key and value formed."""
    m, h, c = query.shape
    pairs = table[index].unflatten(-1, (2, h, c))  # [M, w, 2, h, c]
    if spans is not None:
        pairs = torch.einsum("mw...,wr->mr...", pairs, spans.to(pairs.dtype))
    contexts, totals = [], []
    for i in range(m):
        present = torch.ones(pairs.shape[1], dtype=torch.bool) if exists is None else exists[i]
        for head in range(h):
            keys, values = pairs[i, present, 0, head], pairs[i, present, 1, head]
            scores = keys @ query[i, head] / c**0.5
            if role_bias is not None:
                scores = scores + role_bias[head, present]
            weights = scores.softmax(0)
            if dropout is not None:
                weights = weights * dropout[present, i, head]
            contexts.append(weights @ values)
            totals.append(weights.sum())
    return torch.stack(contexts).view(m, h, c), torch.stack(totals).view(m, h)


@pytest.mark.parametrize("dropout_p", [0.0, 0.4], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("sums", [False, True], ids=["rows", "sums of rows"])
@given(data=st.data())
@examples(25)
def test_row_attention_equals_gathered_candidates_in_values_and_gradients(
    sums: bool, dropout_p: float, data: st.DataObject
) -> None:
    m, rows, h, c, w = (data.draw(st.integers(1, limit)) for limit in (6, 9, 3, 4, 5))
    r = data.draw(st.integers(1, 6)) if sums else w
    torch.manual_seed(data.draw(st.integers(0, 999)))
    leaves = {
        "query": torch.randn(m, h, c, dtype=torch.float64, requires_grad=True),
        "table": torch.randn(rows, 2 * h * c, dtype=torch.float64, requires_grad=True),
        "role_bias": torch.randn(h, r, dtype=torch.float64, requires_grad=True),
    }
    index = torch.randint(0, rows, (m, w))
    spans = torch.rand(w, r) < 0.5 if sums else None
    exists = torch.rand(m, r) < 0.6 if sums else None
    torch.manual_seed(1)
    dropout = nn.functional.dropout(torch.ones(r, m, h, dtype=torch.float64), dropout_p) if dropout_p else None
    torch.manual_seed(1)
    context, total = row_attention(
        leaves["query"].flatten(1),
        leaves["table"],
        RowIndex.build(index, rows, h, torch.float64),
        leaves["role_bias"],
        None if spans is None else spans.double(),
        None if exists is None else ~exists.T[..., None],
        dropout_p=dropout_p,
    )
    expected = dict(
        zip(
            ("context", "total"),
            gathered(**leaves, index=index, spans=spans, exists=exists, dropout=dropout),
            strict=True,
        )
    )
    actual = {"context": context.view(m, h, c), "total": total}
    if not dropout_p:
        assert total is None
        del actual["total"], expected["total"]
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-10)


@pytest.mark.parametrize("failure", ["wrong", "error"])
def test_a_torch_that_does_not_sample_any_entries_is_told_and_not_used(
    failure: str, monkeypatch: pytest.MonkeyPatch, warnings_of: Any
) -> None:
    def sampled_addmm(wanted: Tensor, *_: Any, **__: Any) -> Tensor:
        if failure == "error":
            raise RuntimeError("not sorted")
        return wanted

    inputs = random_batch(padded([5, 1], 5, "right")).inputs()
    model = tiny_model("StarTransformer").eval()
    expected = model(**inputs).last_hidden_state
    monkeypatch.setattr(torch.sparse, "sampled_addmm", sampled_addmm)
    products_are_sampled.cache_clear()
    try:
        [message] = warnings_of(model, **inputs)
        assert "sampled_addmm" in message
        torch.testing.assert_close(model(**inputs).last_hidden_state, expected)
    finally:
        products_are_sampled.cache_clear()


@pytest.mark.parametrize("precision", ["bfloat16", "float16", "autocast"])
@pytest.mark.parametrize(("stem", "options"), [("StarTransformer", {"position_embedding_type": "ring"}), WINDOW])
def test_in_half_precision_rows_are_as_near_to_float32_as_the_reference(
    stem: str, options: dict[str, Any], precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = tiny_model(stem, hidden_size=32, num_attention_heads=4, **options)
    model = tiny_model(stem, hidden_size=32, num_attention_heads=4, **options)
    if precision != "autocast":
        model = model.to(getattr(torch, precision))
    inputs = random_batch(padded([5, 1, 9, 12, 0], 12, "holes")).inputs()

    def run(model: nn.Module, autocast: bool) -> list[Tensor]:
        """The states and the gradients of all parameters."""
        model.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            states = model(**inputs).last_hidden_state
        states.float().square().sum().backward()
        return [states.detach().float(), *(p.grad.float() for p in model.parameters() if p.grad is not None)]

    expected = run(exact, False)
    by_row = run(model, precision == "autocast")
    monkeypatch.setattr(ops, "rows_apply", lambda states: False)
    gathered = run(model, precision == "autocast")

    def error(actual: list[Tensor]) -> float:
        return sum(((a - e).norm() / e.norm()).item() for a, e in zip(actual, expected, strict=True))

    assert 0 < error(by_row) < 1.2 * error(gathered)


def test_neither_pass_copies_candidates() -> None:
    m, w, c = 200, 8, 32
    query, table = torch.randn(m, c, requires_grad=True), torch.randn(m, 2 * c, requires_grad=True)
    with LargestTensor() as largest_tensor:
        context, _ = row_attention(query, table, RowIndex.build(torch.randint(0, m, (m, w)), m, 1, query.dtype))
        context.sum().backward()
    assert largest_tensor.numbers <= table.numel() < m * w * c


def test_zero_tokens_give_an_empty_context() -> None:
    query, table = torch.randn(0, 8, requires_grad=True), torch.randn(5, 16, requires_grad=True)
    context, _ = row_attention(query, table, RowIndex.build(torch.zeros(0, 3, dtype=torch.long), 5, 2, query.dtype))
    context.sum().backward()
    assert context.shape == (0, 8)
    assert not table.grad.any()
