"""An exported model gives the same outputs in ONNX Runtime for any batch size, length and right padding."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
import torch
from common import TINY, lexicon_of, some_words, tiny_model
from samples import word_tokenizer
from torch import Tensor
from transformers import PreTrainedModel


SHAPES = ((7, 4), (12, 1, 6), (5,), (1, 0))  # lengths of the rows of each batch; the first one is exported


def batch(lengths: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(len(lengths))
    ids = torch.randint(3, TINY["vocab_size"], (len(lengths), max(lengths)), generator=generator)
    return {"input_ids": ids, "attention_mask": (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()}


def star(head: str, **options: Any) -> Callable[[], PreTrainedModel]:
    return lambda: tiny_model("StarTransformer", head, **options)


def with_characters() -> PreTrainedModel:
    model = tiny_model("StarTransformer", "ForTokenClassification", char_features=True)
    model.set_vocabulary(word_tokenizer("a ##b C 1 DE 2f ; 文"))
    return model


def with_words() -> PreTrainedModel:
    model = tiny_model("BigTransformer", "ForTokenClassification")
    model.set_lexicon(lexicon_of(some_words()))
    return model


FROM_BERT = {
    **{"local_connection": "window", "window_radius": 2, "word_vector": "mean", "global_node": "first"},
    **{"embedding_norm": True, "pooling": "global", "hidden_act": "gelu"},
}


MODELS = {
    "star": star("ForSequenceClassification"),
    "star-plus": star("ForTokenClassification", position_embedding_type="ring", residual=True),
    "characters": with_characters,
    "words": with_words,
    "from bert": lambda: tiny_model("BigTransformer", "ForSequenceClassification", **FROM_BERT),
    "from bert, tokens": lambda: tiny_model("BigTransformer", "ForTokenClassification", **FROM_BERT),
    "radius": star("ForQuestionAnswering", ring_radius=2, pooling="mean", norm_position="pre"),
    "vanilla": lambda: tiny_model("VanillaTransformer", "ForMaskedLM"),
    "disan": lambda: tiny_model("Disan", "ForSequenceClassification"),
}


@torch.no_grad()
@pytest.mark.parametrize(
    "kind",
    [
        kind if kind in ("star-plus", "words", "from bert") else pytest.param(kind, marks=pytest.mark.slow)
        for kind in MODELS
    ],
)
def test_onnx_runtime_computes_the_same_for_every_shape(kind: str, tmp_path: Path) -> None:
    model, example = MODELS[kind]().eval(), batch(SHAPES[0])
    sizes = dict.fromkeys(example, dict.fromkeys((0, 1), torch.export.Dim.DYNAMIC))
    path = tmp_path / "model.onnx"
    torch.onnx.export(model, (), path, kwargs=example, dynamic_shapes=sizes, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path)
    for lengths in SHAPES:
        inputs = batch(lengths)
        outputs = session.run(None, {name: value.numpy() for name, value in inputs.items()})
        for actual, expected in zip(map(torch.from_numpy, outputs), model(**inputs).values(), strict=True):
            real = inputs["attention_mask"].bool() if expected.shape[:2] == inputs["input_ids"].shape else ...
            assert (actual - expected)[real].abs().max() < 1e-4
