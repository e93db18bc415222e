"""A BiG-Transformer with the weights of a BERT is that BERT, with fewer candidates."""

from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, examples, lexicon_of, padded, randomise, some_words, tiny_bert
from hypothesis import given
from hypothesis import strategies as st
from samples import class_of
from torch import Tensor
from transformers import AlbertConfig, AutoModel, AutoTokenizer, BertForMaskedLM, BertModel, GPT2Config

from modeling_star import (
    BigTransformerForMaskedLM,
    BigTransformerForSequenceClassification,
    BigTransformerModel,
)
from modeling_star.models import modeling_big


LAYERS = (0, 3)
BEYOND = 20  # a radius that covers every text


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a random masked language model of four layers, whose biases and norms all matter."""
    config = tiny_bert()
    config.num_hidden_layers, config.hidden_act, config.layer_norm_eps = 4, "gelu", 1e-3
    config.hidden_dropout_prob = 0.1
    model = BertForMaskedLM(config)
    randomise(model, seed=2)
    folder = tmp_path_factory.mktemp("bert")
    model.save_pretrained(folder)
    return folder


def cut_bert(path: str | Path, layers: tuple[int, ...] = LAYERS) -> BertModel:
    """The BERT with some of its layers, in eval mode and with attention that takes any mask."""
    model = BertModel.from_pretrained(path, attn_implementation="eager", add_pooling_layer=False).eval()
    model.encoder.layer = torch.nn.ModuleList(model.encoder.layer[index] for index in layers)
    return model


def allowed(mask: Tensor, radius: int) -> Tensor:
    """Which columns each column attends to: those near it, [CLS], and [CLS] to all; `[b, n, n]`, bool."""
    position = mask.long().cumsum(1) - 1
    is_first = mask & (position == 0)
    near = (position[:, :, None] - position[:, None]).abs() <= radius
    return (near | is_first[:, None] | is_first[:, :, None]) & mask[:, None]


def states_of_bert(model: BertModel, inputs: dict[str, Tensor], radius: int) -> Tensor:
    """States `[b, n, d]` under a dense mask; positions are places among the real tokens, as ours are."""
    mask = inputs["attention_mask"].bool()
    additive = torch.zeros(mask.shape[0], 1, mask.shape[1], mask.shape[1], dtype=model.dtype)
    additive = additive.masked_fill(~allowed(mask, radius)[:, None], torch.finfo(model.dtype).min)
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    return model(**{**inputs, "attention_mask": additive, "position_ids": position}).last_hidden_state


def random_inputs(mask: Tensor, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(TINY["vocab_size"], mask.shape, generator=generator)
    types = (torch.rand(mask.shape, generator=generator) < 0.5).long()
    return {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": types}


# ------ equality with the BERT


@given(
    lengths=st.lists(st.integers(1, 16), min_size=1, max_size=4),
    radius=st.integers(1, 6),
    padding=st.sampled_from(["right", "left", "holes"]),
    recorded=st.booleans(),
    seed=st.integers(0, 1000),
)
@examples(40)
def test_any_window_gives_values_and_gradients_of_the_bert_under_the_dense_mask(
    bert_path: Path, lengths: list[int], radius: int, padding: str, recorded: bool, seed: int
) -> None:
    mask = padded(lengths, max(lengths), padding)
    inputs = random_inputs(mask, seed)
    bert = cut_bert(bert_path).double()
    model = BigTransformerModel.from_encoder(bert_path, LAYERS, radius).double()
    states = model(**inputs, output_attentions=recorded).last_hidden_state
    expected = states_of_bert(bert, inputs, radius)
    torch.testing.assert_close(states[mask], expected[mask], atol=1e-10, rtol=0)
    (states[mask].sin()).sum().backward()
    (expected[mask].sin()).sum().backward()
    for ours, theirs in (
        ("embeddings.word_embeddings", "embeddings.word_embeddings"),
        ("embeddings.position_embeddings", "embeddings.position_embeddings"),
        ("layers.0.attention.projections.query", "encoder.layer.0.attention.self.query"),
        ("layers.0.attention.projections.key", "encoder.layer.0.attention.self.key"),
        ("layers.1.attention.projections.value", "encoder.layer.1.attention.self.value"),
    ):
        actual, gradient = (m.get_submodule(n).weight.grad for m, n in ((model, ours), (bert, theirs)))
        keep = slice(1 if "word" in ours else 0, None)  # a BERT does not train the vector of padding
        torch.testing.assert_close(actual[keep], gradient[keep], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("padding", ["right", "left", "holes", "none"])
def test_wide_windows_are_computed_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, padding: str) -> None:
    config = tiny_bert()
    config.num_hidden_layers, config.max_position_embeddings, config.hidden_act = 2, 90, "gelu"
    bert = BertModel(config, add_pooling_layer=False)
    randomise(bert, seed=2)
    bert.save_pretrained(tmp_path)
    mask = torch.ones(3, 90).bool() if padding == "none" else padded([90, 40, 60], 90, padding)
    inputs = random_inputs(mask)
    bert, model = cut_bert(tmp_path, (0, 1)).double(), BigTransformerModel.from_encoder(tmp_path, None, 17).double()
    calls: list[Any] = []
    attention = modeling_big.window_attention
    monkeypatch.setattr(modeling_big, "window_attention", lambda *a, **k: calls.append(a) or attention(*a, **k))
    states, expected = model(**inputs).last_hidden_state, states_of_bert(bert, inputs, 17)
    assert len(calls) == 2
    torch.testing.assert_close(states[mask], expected[mask], atol=1e-10, rtol=0)
    states[mask].sin().sum().backward()
    expected[mask].sin().sum().backward()
    found, wanted = model.embeddings.position_embeddings, bert.embeddings.position_embeddings
    torch.testing.assert_close(found.weight.grad, wanted.weight.grad, atol=1e-9, rtol=1e-9)
    # Recorded weights are those of candidates.
    recorded = model(**inputs, output_attentions=True)
    assert len(calls) == 2
    torch.testing.assert_close(recorded.last_hidden_state, states, atol=1e-10, rtol=0)


@pytest.mark.parametrize("radius", [1, 4, 17, 200])
@torch.no_grad()
def test_a_real_bert_gives_the_same_states(minilm_path: str, radius: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    pairs = [("A man is eating food.", "He eats."), ("Short.", "Not as short as the first one, but " * 4)]
    bert = cut_bert(minilm_path)
    model = BigTransformerModel.from_encoder(minilm_path, LAYERS, radius)
    for side in ("right", "left"):
        inputs = dict(tokenizer(*zip(*pairs, strict=True), padding=True, padding_side=side, return_tensors="pt"))
        mask = inputs["attention_mask"].bool()
        expected = states_of_bert(bert, inputs, radius)
        assert expected[mask].abs().max() > 1
        torch.testing.assert_close(model(**inputs).last_hidden_state[mask], expected[mask], atol=1e-5, rtol=0)


@torch.no_grad()
def test_a_masked_language_model_has_the_berts_head(bert_path: Path, tiny_bert_path: str) -> None:
    inputs = random_inputs(padded([9, 4], 9, "right"))
    mask = inputs["attention_mask"].bool()
    expected = BertForMaskedLM.from_pretrained(bert_path).eval()(**inputs).logits
    model = BigTransformerForMaskedLM.from_encoder(bert_path, None, BEYOND)
    torch.testing.assert_close(model(**inputs).logits[mask], expected[mask], atol=1e-4, rtol=0)
    # A checkpoint without one: fresh, and tied.
    fresh = BigTransformerForMaskedLM.from_encoder(tiny_bert_path, None)
    assert fresh.lm_head.decoder.weight is fresh.get_input_embeddings().weight
    assert fresh(**inputs).logits.isfinite().all()


# ------ what the model is


@torch.no_grad()
def test_words_are_further_candidates(bert_path: Path) -> None:
    inputs = random_inputs(padded([9, 4], 9, "right"))
    plain = BigTransformerModel.from_encoder(bert_path, LAYERS, 1)
    with_words = BigTransformerModel.from_encoder(bert_path, LAYERS, 1, lexicon_of(some_words()))
    assert with_words.config.candidate_roles[:4] == ("left", "self", "right", "1 of 2")
    assert (with_words(**inputs).last_hidden_state - plain(**inputs).last_hidden_state).abs().max() > 1e-3
    with_words.set_lexicon(None)
    assert with_words.config.candidate_roles == plain.config.candidate_roles
    assert torch.equal(with_words(**inputs).last_hidden_state, plain(**inputs).last_hidden_state)


@pytest.mark.parametrize("ragged", [False, True])
def test_a_classifier_computes_only_the_first_token_in_its_last_layer(bert_path: Path, ragged: bool) -> None:
    model = BigTransformerForSequenceClassification.from_encoder(bert_path, LAYERS, 2, num_labels=3).double()
    inputs = random_inputs(padded([9, 0, 4] if ragged else [9, 9], 9, "right"))
    logits = model(**inputs).logits
    pooled = model.model(**inputs).pooler_output
    torch.testing.assert_close(logits, model.classifier(pooled), atol=1e-10, rtol=0)
    seen: list[Any] = []
    handle = model.model.layers[-1].output.register_forward_hook(lambda *args: seen.append(args[2].shape[0]))
    model(**inputs).logits.sum().backward()
    handle.remove()
    assert seen == [len(inputs["input_ids"])]
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("ending", ["Model", "ForTokenClassification"])
@torch.no_grad()
def test_a_converted_model_loads_as_any_other(bert_path: Path, ending: str, tmp_path: Path) -> None:
    model = class_of("BigTransformer", ending).from_encoder(bert_path, LAYERS, 3, lexicon_of(some_words()))
    model.save_pretrained(tmp_path)
    loaded = class_of("BigTransformer", ending).from_pretrained(tmp_path)
    inputs = random_inputs(padded([9, 4], 9, "right"))
    assert torch.equal(loaded(**inputs)[0], model(**inputs)[0])
    encoder = AutoModel.from_pretrained(tmp_path)
    assert encoder.config.lexicon_kind == "words"
    assert torch.equal(encoder.layers[1].output.weight, model.base_model.layers[1].output.weight)


# ------ what is not possible


def test_texts_beyond_the_berts_positions_are_an_error(bert_path: Path) -> None:
    model = BigTransformerModel.from_encoder(bert_path, LAYERS)
    assert model(torch.ones(1, 16).long()).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match="max_position_embeddings allows 16"):
        model(torch.ones(1, 17).long())


@pytest.mark.parametrize("layers", [(0, 4), (-1,), ()])
def test_a_layer_that_the_bert_lacks_is_an_error(bert_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        BigTransformerModel.from_encoder(bert_path, layers)


def test_a_field_that_changes_a_shape_is_an_error(bert_path: Path) -> None:
    with pytest.raises(ValueError, match="intermediate"):
        BigTransformerModel.from_encoder(bert_path, LAYERS, intermediate_size=32)
    model = BigTransformerModel.from_encoder(bert_path, LAYERS, position_embedding_type="none")
    assert model(torch.ones(1, 17).long()).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("config", [AlbertConfig(), GPT2Config()])
def test_another_model_is_an_error(config: Any, tmp_path: Path) -> None:
    config.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=config.model_type):
        BigTransformerModel.from_encoder(tmp_path)
