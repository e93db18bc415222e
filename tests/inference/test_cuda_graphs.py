"""
CUDA graphs: what they rely on, on any machine; the graphs themselves on a GPU.

`TRITON_INTERPRET=0 pytest tests/inference/test_cuda_graphs.py` runs all of it on a CUDA GPU.
"""

from typing import Any

import pytest
import torch
from common import assert_close, examples, masks, named_outputs, padded, random_batch, tiny_bert, tiny_model
from hypothesis import given
from kernel_samples import DEVICE, LEXICON, VARIANTS, on_device, setting
from samples import word_tokenizer
from torch import Tensor
from transformers import BertModel, PreTrainedModel

from modeling_star.inference.cuda_graphs import aligned, cuda_graphs
from modeling_star.kernels import triton_utils as kernels
from modeling_star.models.token_layout import fixed_shapes


EXACT = torch.float64 if kernels.INTERPRETED else torch.float32
TOLERANCE = 1e-8 if kernels.INTERPRETED else 1e-5  # kernels have means of words in float32
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("VanillaTransformer", {}),
    "DiSAN": ("Disan", {}),
    "Star, mean": ("StarTransformer", {"pooling": "mean"}),
    "BiG, max": ("BigTransformer", {"pooling": "max", "lexicon": LEXICON}),
    "Star, characters": (
        "StarTransformer",
        {"char_features": True, "char_scope": "word", "tokenizer": word_tokenizer("aus Wall ##au Haus ##es a b c")},
    ),
    "BiG without global node": ("BigTransformer", {"global_connection": False}),
}
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")


def model_of(name: str, ending: str = "Model", **options: Any) -> PreTrainedModel:
    stem, fields = {**VARIANTS, **OTHERS}[name]
    return tiny_model(stem, ending, **{**fields, **options}).eval()


# ------ in rows


@pytest.mark.parametrize(
    ("name", "kernels_used"),
    [
        *[(name, "0") for name in [*VARIANTS, *OTHERS]],
        *[(name, "1") for name in ("Star", "Star, mean", "BiG", "BiG, window")],
    ],
)
@torch.no_grad()
def test_where_shapes_are_fixed_outputs_are_the_same(name: str, kernels_used: str) -> None:
    model = model_of(name, dtype=EXACT).to(DEVICE)
    constants: dict[Any, Any] = {}

    @given(mask=masks())
    @examples(3)
    def check(mask: Tensor) -> None:
        inputs = on_device(random_batch(mask))
        with setting("0"):
            expected = named_outputs(model(**inputs))
        with setting(kernels_used), fixed_shapes(constants):
            found = named_outputs(model(**inputs))
        assert_close(found, expected, TOLERANCE)

    check()


# ------ widths


@pytest.mark.parametrize("kernels_used", ["0", "1"], ids=["operations", "kernels"])
@pytest.mark.parametrize("name", [*VARIANTS, "Star, mean", "BiG, max"])
@torch.no_grad()
def test_padded_widths_compute_the_same(name: str, kernels_used: str) -> None:
    model = model_of(name, dtype=torch.bfloat16, hidden_size=10, num_attention_heads=2)
    wide = aligned(model).to(DEVICE, EXACT)
    model.to(DEVICE, EXACT)
    assert {p.shape for p in wide.parameters()} != {p.shape for p in model.parameters()}
    inputs = on_device(random_batch(padded([4, 0, 7, 1], 7, "holes")))
    with setting("0"):
        expected = named_outputs(model(**inputs))
    with setting(kernels_used):
        assert_close(named_outputs(wide(**inputs)), expected, TOLERANCE)


# ------ graphs


def test_a_model_on_a_cpu_is_an_error() -> None:
    with pytest.raises(ValueError, match="cpu"):
        cuda_graphs(model_of("Star"))


@needs_gpu
@pytest.mark.parametrize(
    ("name", "ending", "dtype"),
    [
        *[
            (name, "Model", torch.float32)
            for name in [*VARIANTS, *OTHERS]
            if name not in ("DiSAN", "Star, characters")
        ],
        *[(name, "Model", torch.bfloat16) for name in VARIANTS],
        ("Star", "ForSequenceClassification", torch.bfloat16),
        ("BiG", "ForTokenClassification", torch.bfloat16),
        ("BiG, window", "ForQuestionAnswering", torch.float32),
        ("Star", "ForMaskedLM", torch.bfloat16),
    ],
    ids=str,
)
@torch.no_grad()
def test_a_graph_computes_the_same(name: str, ending: str, dtype: torch.dtype) -> None:
    sizes = {"hidden_size": 20, "num_attention_heads": 2, "max_position_embeddings": 64}
    model = model_of(name, ending, dtype=dtype, **sizes).to("cuda")
    graphed = cuda_graphs(model)
    # 19 columns and 17 rows are rounded up; the third batch uses the second one's graph again.
    for lengths, columns in ([5, 9, 9], 9), ([19, 3, 0], 19), ([2, 20, 7], 20), ([4] * 17, 4), ([4, 4], 4):
        batch = random_batch(padded(lengths, columns, "left"), seed=columns)
        inputs = {key: x.to("cuda") for key, x in batch.inputs().items()}
        expected = named_outputs(model(**inputs))
        tolerance = 1e-4 if dtype == torch.float32 else 0.1
        assert_close(named_outputs(graphed(**inputs)), expected, tolerance)
        assert_close(named_outputs(graphed(**batch.inputs())), expected, tolerance)
    assert graphed._graphs
    assert all(graph is not None for graph in graphed._graphs.values())


@needs_gpu
def test_outputs_belong_to_the_caller() -> None:
    graphed = cuda_graphs(model_of("Star").to("cuda"))
    first = graphed(torch.tensor([[5, 6, 7]])).last_hidden_state
    kept = first.clone()
    graphed(torch.tensor([[1, 2, 3]]))
    assert torch.equal(first, kept)


@needs_gpu
def test_what_cannot_be_recorded_is_computed_as_usual() -> None:
    ids = torch.tensor([[5, 6, 7], [1, 2, 3]], device="cuda")
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    for stem in ("BiLstm", "Disan"):
        model = tiny_model(stem).eval().to("cuda")
        with torch.no_grad():
            expected = named_outputs(model(ids, attention_mask=mask.to("cuda")))
        assert_close(named_outputs(cuda_graphs(model)(ids, attention_mask=mask)), expected, 1e-4)
    classifier = model_of("Star", "ForSequenceClassification").to("cuda")
    graphed = cuda_graphs(classifier)
    labels = torch.tensor([0, 1], device="cuda")
    assert torch.allclose(graphed(ids, labels=labels).loss, classifier(ids, labels=labels).loss, atol=1e-4)
    assert len(graphed(ids, output_attentions=True).attentions) == 2
    # A failed recording leaves the GPU usable.
    assert graphed(ids).logits.isfinite().all()


@needs_gpu
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_an_unknown_id_is_an_error_and_later_batches_are_right(device: str) -> None:
    model = model_of("Star").to("cuda")
    graphed = cuda_graphs(model)
    with pytest.raises(IndexError, match="input_ids hold 999"):
        graphed(torch.tensor([[5, 999, 7]], device=device))
    ids = torch.tensor([[5, 6, 7]], device="cuda")
    assert_close(named_outputs(graphed(ids)), named_outputs(model(ids)), 1e-4)


@needs_gpu
def test_graphs_beyond_the_most_are_dropped() -> None:
    graphed = cuda_graphs(model_of("Star").to("cuda"), max_graphs=2)
    for length in (3, 4, 3, 5, 3):
        graphed(torch.ones(1, length, dtype=torch.long))
    assert [key[1] for key in graphed._graphs] == [5, 3]


@needs_gpu
@torch.no_grad()
def test_a_bert_has_graphs_too() -> None:
    model = BertModel(tiny_bert()).eval().to("cuda")
    ids = torch.tensor([[5, 6, 7]], device="cuda")
    graphed = cuda_graphs(model)
    assert_close(named_outputs(graphed(ids)), named_outputs(model(ids)), 1e-4)
    assert all(graph is not None for graph in graphed._graphs.values())
