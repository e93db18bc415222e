"""Encoders whose block is BERT's, as a BiG-Transformer: the same states under the same mask."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from common import padded, randomise
from torch import Tensor, nn

from modeling_star import BigTransformerForMaskedLM, BigTransformerModel
from modeling_star.models.backbone import first_position


SIZES = {
    "vocab_size": 40,
    "hidden_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 20,
    "max_position_embeddings": 60,
    "hidden_act": "gelu",
}
DISTILBERT = {
    **{"vocab_size": 40, "dim": 12, "n_layers": 3, "n_heads": 2, "hidden_dim": 20, "max_position_embeddings": 60},
    "activation": "relu",
}
# Stem of the classes, and the fields of the configuration.
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {**SIZES, "layer_norm_eps": 1e-3}),
    "roberta": ("Roberta", {**SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-3}),
    "xlm-roberta": ("XLMRoberta", {**SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "camembert": ("Camembert", {**SIZES, "type_vocab_size": 1, "pad_token_id": 3}),
    "distilbert": ("DistilBert", DISTILBERT),
    "electra": ("Electra", {**SIZES, "embedding_size": 12}),
    "electra small": ("Electra", {**SIZES, "embedding_size": 8}),
}


def saved(family: str, folder: Path, ending: str = "Model", **more: Any) -> nn.Module:
    """A random encoder in `folder`, in eval mode, whose attention takes any mask."""
    stem, fields = FAMILIES[family]
    model_class = getattr(transformers, stem + ending)
    model = model_class._from_config(model_class.config_class(**fields, **more), attn_implementation="eager")
    randomise(model, seed=3)
    model.save_pretrained(folder)
    return model.eval()


def with_layers(encoder: nn.Module, layers: list[int]) -> nn.Module:
    holder = encoder.transformer if hasattr(encoder, "transformer") else encoder.encoder
    holder.layer = nn.ModuleList(holder.layer[index] for index in layers)
    return encoder


def batch(mask: Tensor, pad: int) -> dict[str, Tensor]:
    ids = torch.randint(5, 40, mask.shape, generator=torch.Generator().manual_seed(0)).masked_fill(~mask, pad)
    return {"input_ids": ids, "attention_mask": mask.long()}


def expected_states(encoder: nn.Module, inputs: dict[str, Tensor], radius: int) -> Tensor:
    """States under the dense mask of a window and the first token; positions are places among the real tokens."""
    mask = inputs["attention_mask"].bool()
    position = (mask.long().cumsum(1) - 1).clamp(min=0)
    is_first = mask & (mask.long().cumsum(1) == 1)
    near = (position[:, :, None] - position[:, None]).abs() <= radius
    allowed = (near | is_first[:, None] | is_first[:, :, None]) & mask[:, None]
    additive = torch.zeros(allowed.shape, dtype=encoder.dtype).masked_fill(~allowed, torch.finfo(encoder.dtype).min)
    options = {"attention_mask": additive[:, None], "position_ids": position + first_position(encoder.config)}
    return encoder(input_ids=inputs["input_ids"], **options).last_hidden_state


@pytest.mark.parametrize("padding", ["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_window_gives_values_and_gradients_of_the_encoder_under_the_dense_mask(
    family: str, padding: str, tmp_path: Path
) -> None:
    encoder = with_layers(saved(family, tmp_path), [0, 2]).double()
    mask = padded([50, 1, 20], 50, padding)
    inputs = batch(mask, encoder.config.pad_token_id)
    for radius in (2, 18, 100):  # candidates, blocks, beyond the text
        model = BigTransformerModel.from_encoder(tmp_path, [0, 2], radius).double()
        states, expected = model(**inputs).last_hidden_state, expected_states(encoder, inputs, radius)
        assert expected[mask].abs().max() > 0.5
        torch.testing.assert_close(states[mask], expected[mask], atol=1e-9, rtol=0)
        encoder.zero_grad()
        states[mask].sin().sum().backward()
        expected[mask].sin().sum().backward()
        found = model.embeddings.position_embeddings.weight.grad
        wanted = encoder.embeddings.position_embeddings.weight.grad[first_position(encoder.config) :]
        torch.testing.assert_close(found, wanted, atol=1e-8, rtol=1e-8)
        output = "ffn.lin2" if family == "distilbert" else "output.dense"
        holder = encoder.transformer if hasattr(encoder, "transformer") else encoder.encoder
        wanted = holder.layer[1].get_submodule(output).weight.grad
        torch.testing.assert_close(model.layers[1].output.weight.grad, wanted, atol=1e-8, rtol=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_beyond_the_text_the_states_are_those_of_the_encoder_as_it_is(family: str, tmp_path: Path) -> None:
    encoder = saved(family, tmp_path)
    mask = padded([40, 7], 40, "right")
    inputs = batch(mask, encoder.config.pad_token_id)
    found = BigTransformerModel.from_encoder(tmp_path, radius=100)(**inputs).last_hidden_state
    torch.testing.assert_close(found[mask], encoder(**inputs).last_hidden_state[mask], atol=1e-5, rtol=0)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", [family for family in FAMILIES if "electra" not in family])
@torch.no_grad()
def test_a_masked_language_model_keeps_its_head(family: str, tied: bool, tmp_path: Path) -> None:
    source = saved(family, tmp_path, "ForMaskedLM", tie_word_embeddings=tied)
    inputs = batch(torch.ones(2, 30).bool(), source.config.pad_token_id)
    model = BigTransformerForMaskedLM.from_encoder(tmp_path, radius=100)
    torch.testing.assert_close(model(**inputs).logits, source(**inputs).logits, atol=1e-4, rtol=0)


@torch.no_grad()
def test_electras_head_is_new_and_tied(tmp_path: Path) -> None:
    saved("electra small", tmp_path, "ForMaskedLM")
    model = BigTransformerForMaskedLM.from_encoder(tmp_path)
    assert model.lm_head.decoder.weight is model.get_input_embeddings().weight
    assert model(torch.ones(1, 9).long()).logits.isfinite().all()


# ------ positions


@pytest.mark.parametrize("family", ["bert", "roberta"])
@torch.no_grad()
def test_longer_texts_read_the_table_again(family: str, tmp_path: Path) -> None:
    saved(family, tmp_path)
    rows = BigTransformerModel.from_encoder(tmp_path).embeddings.position_embeddings.weight
    model = BigTransformerModel.from_encoder(tmp_path, max_positions=150)
    assert model.config.max_position_embeddings == 150
    assert torch.equal(model.embeddings.position_embeddings.weight, rows.repeat(3, 1)[:150])
    assert model(torch.ones(1, 150).long()).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match="150"):
        model(torch.ones(1, 151).long())
    shorter = BigTransformerModel.from_encoder(tmp_path, max_positions=10)
    assert torch.equal(shorter.embeddings.position_embeddings.weight, rows[:10])


@torch.no_grad()
def test_a_table_is_stretched(tmp_path: Path) -> None:
    saved("roberta", tmp_path)
    rows = BigTransformerModel.from_encoder(tmp_path).embeddings.position_embeddings.weight
    count = 3 * (len(rows) - 1) + 1
    model = BigTransformerModel.from_encoder(tmp_path, max_positions=count, positions="interpolated")
    found = model.embeddings.position_embeddings.weight
    torch.testing.assert_close(found[::3], rows, atol=1e-5, rtol=0)
    torch.testing.assert_close(found[1], (2 * rows[0] + rows[1]) / 3, atol=1e-5, rtol=0)
    with pytest.raises(ValueError, match="interpolated"):
        BigTransformerModel.from_encoder(tmp_path, positions="other")


def test_in_training_texts_begin_anywhere_in_the_table(tmp_path: Path) -> None:
    saved("bert", tmp_path)
    model = BigTransformerModel.from_encoder(tmp_path, [0], random_position_offset=True, hidden_dropout_prob=0.0)
    mask = padded([20, 60, 1], 60, "right")
    inputs = batch(mask, 0)
    model.train()
    torch.manual_seed(0)
    seen: list[Tensor] = []
    model.embeddings.position_embeddings.register_forward_hook(lambda module, given, output: seen.append(given[0]))
    for _ in range(300):
        model(**inputs)
    first, whole = torch.stack([places[:20] for places in seen]), torch.stack([places[20:80] for places in seen])
    assert torch.equal(first - first[:, :1], torch.arange(20).expand(300, -1))
    assert torch.equal(whole, torch.arange(60).expand(300, -1))  # as long as the table
    assert (int(first.min()), int(first.max())) == (0, 59)
    last = torch.stack([places[80] for places in seen])
    assert len(last.unique()) > 50
    model.eval()
    model(**inputs)
    assert torch.equal(seen[-1][:20], torch.arange(20))


# ------ what is not possible


@pytest.mark.parametrize("config", ["AlbertConfig", "MPNetConfig", "GPT2Config", "ModernBertConfig"])
def test_another_family_is_an_error_that_names_those_that_are_taken(config: str, tmp_path: Path) -> None:
    getattr(transformers, config)().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="camembert, distilbert, electra, roberta, xlm-roberta") as error:
        BigTransformerModel.from_encoder(tmp_path)
    assert ("WindowModernBertModel.from_encoder" in str(error.value)) == (config == "ModernBertConfig")
