"""Vectors of the words around a token against plain loops, alone and in models."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from common import assert_close, difference, gradients, padded, random_batch, tiny_model
from lexicon_samples import character_tokenizer
from reference import word_features
from samples import LEXICON, with_vectors
from transformers import PreTrainedModel

from modeling_star import Lexicon
from modeling_star.models.token_layout import TokenLayout


LENGTHS = [5, 0, 7, 1, 7]


def model_with_words(ending: str = "Model", stem: str = "StarTransformer", **options: bool) -> PreTrainedModel:
    model = tiny_model(stem, ending, word_vector_size=2, dtype=torch.float64, **options)
    model.set_word_vectors(with_vectors(LEXICON, width=2))
    return model


@pytest.mark.parametrize("is_packed", [True, False])
def test_features_equal_plain_loops_in_values_and_gradients(is_packed: bool) -> None:
    module = model_with_words(train_word_vectors=True).embeddings.word_vectors
    batch = random_batch(padded(LENGTHS, 8, "holes"))
    layout = TokenLayout.from_mask(batch.attention_mask, keep_padding=not is_packed)
    leaf = with_vectors(LEXICON, width=2).vectors.requires_grad_()
    words = {tuple(i for i in row if i >= 0): leaf[k] for k, row in enumerate(LEXICON.words.tolist())}
    texts = [ids[real].tolist() for ids, real in zip(batch.input_ids, batch.attention_mask, strict=True)]
    expected = [word_features(text, words, LEXICON.max_word_length, 2) for text in texts if text]
    actual = module(layout.pack(batch.input_ids), layout)[layout.pack(batch.attention_mask)]
    assert (torch.cat(expected) != 0).any(0).all(), "no word begins, goes on or ends"
    assert_close({"x": actual}, {"x": torch.cat(expected)}, 1e-12)
    (of_model,) = gradients({"x": actual}, {"vectors": module.vectors}).values()
    (of_loops,) = gradients({"x": torch.cat(expected)}, {"vectors": leaf}).values()
    assert difference(of_model[1:], of_loops) < 1e-12


@pytest.mark.parametrize("stem", ["StarTransformer", "BigTransformer", "BiLstm"])
def test_padding_and_the_batch_change_nothing(stem: str) -> None:
    model = model_with_words(stem=stem).eval()
    batch = random_batch(padded(LENGTHS, 8, "holes"))
    states = model(**batch.inputs()).last_hidden_state
    for ids, real, state in zip(batch.input_ids, batch.attention_mask, states, strict=True):
        if real.any():
            assert difference(state[real], model(ids[real][None]).last_hidden_state[0]) < 1e-9
    recorded = model(**batch.inputs(), output_hidden_states=True).last_hidden_state
    assert difference(states, recorded) < 1e-9


def test_vectors_are_read_with_the_words_that_the_tokenizer_knows(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("4 2\n重庆 1 2\n庆大 3 4\n重 5 6\n天津 7 8\n", encoding="utf-8")
    tokenizer = character_tokenizer("重庆大学")
    lexicon = Lexicon.from_vectors(path, tokenizer)
    rows = ["".join(tokenizer.convert_ids_to_tokens([i for i in row if i >= 0])) for row in lexicon.words.tolist()]
    assert dict(zip(rows, lexicon.vectors.tolist(), strict=True)) == {"重庆": [1, 2], "庆大": [3, 4]}
    model = tiny_model("StarTransformer", word_vector_size=2).eval()
    model.set_word_vectors(lexicon)
    ids = torch.tensor(tokenizer("重庆大")["input_ids"])
    layout = TokenLayout.full(1, 3, ids.device)
    # 重 begins 重庆; 庆 begins 庆大 and ends 重庆; 大 ends 庆大.
    expected = torch.tensor([[1, 2, 0, 0, 0, 0], [3, 4, 0, 0, 1, 2], [0, 0, 0, 0, 3, 4]])
    assert difference(model.embeddings.word_vectors(ids, layout), expected) == 0


def test_frozen_vectors_are_no_parameter_and_trained_ones_are() -> None:
    frozen, trained = model_with_words(), model_with_words(train_word_vectors=True)
    names = {name for name, _ in trained.named_parameters()}
    assert names - {name for name, _ in frozen.named_parameters()} == {"embeddings.word_vectors.vectors"}


def test_words_of_another_width_are_an_error() -> None:
    model = model_with_words()
    with pytest.raises(ValueError, match="word_vector_size=5"):
        model.set_word_vectors(with_vectors(LEXICON, width=5))
    with pytest.raises(ValueError, match="from_vectors"):
        model.set_word_vectors(replace(LEXICON, vectors=None))


@pytest.mark.slow
def test_one_graph_serves_every_shape() -> None:
    model = model_with_words().eval()
    inputs = random_batch(padded([3, 5], 6, "holes")).inputs()
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    exported = torch.export.export(
        model, (), inputs, dynamic_shapes=dict.fromkeys(inputs, axes), strict=False
    ).module()  # fmt: skip
    inputs = random_batch(padded([4, 0, 8], 9, "left")).inputs()
    assert difference(exported(**inputs).last_hidden_state, model(**inputs).last_hidden_state) < 1e-9
