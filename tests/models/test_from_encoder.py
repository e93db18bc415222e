"""Encoders whose block is BERT's, as a BiG-Transformer: the same states and logits under the same mask."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from common import EVERY_MODEL, HEADS, assert_close, examples, lexicon_of, named_outputs, padded, randomise, some_words
from hypothesis import given
from hypothesis import strategies as st
from samples import class_of
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, BertForSequenceClassification, PreTrainedModel

from modeling_star import (
    BigTransformerForMaskedLM,
    BigTransformerForSequenceClassification,
    BigTransformerForTokenClassification,
    BigTransformerModel,
)
from modeling_star.models import modeling_big
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
    "roberta": ("Roberta", {**SIZES, "hidden_act": "silu", "type_vocab_size": 1, "layer_norm_eps": 1e-3}),
    "xlm-roberta": ("XLMRoberta", {**SIZES, "type_vocab_size": 1, "layer_norm_eps": 1e-5}),
    "camembert": ("Camembert", {**SIZES, "hidden_size": 15, "num_attention_heads": 3, "pad_token_id": 3}),
    "distilbert": ("DistilBert", DISTILBERT),
    "electra": ("Electra", {**SIZES, "hidden_act": "relu", "embedding_size": 12}),
    "electra small": ("Electra", {**SIZES, "embedding_size": 7}),
}
LABELS: dict[str, Any] = {"id2label": dict(enumerate("abc")), "label2id": {name: i for i, name in enumerate("abc")}}


def saved(family: str, folder: Path, ending: str = "Model", **more: Any) -> Any:
    """A random encoder in `folder`, in eval mode, whose attention takes any mask."""
    stem, fields = FAMILIES[family]
    model_class = getattr(transformers, stem + ending)
    labels = LABELS if ending in HEADS[:2] else {}
    config = model_class.config_class(**{**fields, **labels, **more})
    model = model_class._from_config(config, attn_implementation="eager")
    randomise(model, seed=3)
    model.save_pretrained(folder)
    return model.eval()


def with_layers(model: Any, layers: list[int]) -> Any:
    """The model with some of its layers."""
    encoder = model.base_model
    holder = encoder.transformer if hasattr(encoder, "transformer") else encoder.encoder
    holder.layer = nn.ModuleList(holder.layer[index] for index in layers)
    return model


def batch(mask: Tensor, pad: int, seed: int = 0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, 40, mask.shape, generator=generator).masked_fill(~mask, pad)
    return {"input_ids": ids, "attention_mask": mask.long()}


def expected_outputs(model: Any, inputs: dict[str, Tensor], radius: int) -> list[dict[str, Tensor]]:
    """
    Outputs for each row without its padding: those of the model as it is where the radius covers the text, else under
    the dense mask of a window and the first token.
    """
    rows = []
    for number, mask in enumerate(inputs["attention_mask"].bool()):
        alone = {name: x[number][mask][None] for name, x in inputs.items() if name != "attention_mask"}
        n = int(mask.sum())
        if radius < n - 1:
            place = torch.arange(n)
            allowed = (place[:, None] - place).abs() <= radius
            allowed[0] = allowed[:, 0] = True
            additive = torch.zeros(n, n, dtype=model.dtype).masked_fill(~allowed, torch.finfo(model.dtype).min)
            alone["attention_mask"] = additive[None, None]
        rows.append(named_outputs(model(**alone)))
    return rows


def assert_same_outputs(model: Any, source: Any, inputs: dict[str, Tensor], radius: int, tolerance: float) -> None:
    found = named_outputs(model(**inputs))
    for number, expected in enumerate(expected_outputs(source, inputs, radius)):
        mask = inputs["attention_mask"][number].bool()
        expected.pop("pooler_output", None)  # a BERT's has a layer of its own, a part of our classifier
        own = {name: found[name][number] for name in expected}
        own = {name: x[mask] if name != "logits" or len(x) == len(mask) else x for name, x in own.items()}
        assert_close(own, {name: x[0] for name, x in expected.items()}, tolerance)


# ------ states


@pytest.fixture(scope="module")
def bert_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    saved("bert", folder, "ForMaskedLM", num_hidden_layers=4, hidden_dropout_prob=0.1)
    return folder


def gradients_of(model: Any, names: dict[str, str]) -> dict[str, Tensor]:
    return {ours: model.get_submodule(theirs).weight.grad for ours, theirs in names.items()}


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=4),
    radius=st.integers(1, 30),
    padding=st.sampled_from(["right", "left", "holes", "none"]),
    recorded=st.booleans(),
    seed=st.integers(0, 1000),
)
@examples(40)
def test_any_window_gives_values_and_gradients_of_the_bert_under_the_dense_mask(
    bert_path: Path, lengths: list[int], radius: int, padding: str, recorded: bool, seed: int
) -> None:
    mask = torch.ones(2, lengths[0]).bool() if padding == "none" else padded(lengths, max(lengths), padding)
    types = (torch.rand(mask.shape, generator=torch.Generator().manual_seed(seed)) < 0.5).long()
    inputs = {**batch(mask, 0, seed), "token_type_ids": types}
    options: dict[str, Any] = {"attn_implementation": "eager", "add_pooling_layer": False}
    bert = with_layers(AutoModel.from_pretrained(bert_path, **options), [0, 3]).double()
    model = BigTransformerModel.from_encoder(bert_path, [0, 3], radius).double()
    states = model(**inputs, output_attentions=recorded).last_hidden_state[mask]
    expected = torch.cat([row["last_hidden_state"][0] for row in expected_outputs(bert, inputs, radius)])
    torch.testing.assert_close(states, expected, atol=1e-10, rtol=0)
    states.sin().sum().backward()
    expected.sin().sum().backward()
    names = {
        "embeddings.position_embeddings": "embeddings.position_embeddings",
        "layers.0.attention.projections.query": "encoder.layer.0.attention.self.query",
        "layers.0.attention.projections.key": "encoder.layer.0.attention.self.key",
        "layers.1.attention.projections.value": "encoder.layer.1.attention.self.value",
        "layers.1.output": "encoder.layer.1.output.dense",
    }
    own = gradients_of(model, {name: name for name in names})
    assert_close(own, gradients_of(bert, names), 1e-9)


def test_wide_windows_are_computed_in_blocks(bert_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = BigTransformerModel.from_encoder(bert_path, radius=17)
    calls: list[Any] = []
    attention = modeling_big.window_attention
    monkeypatch.setattr(modeling_big, "window_attention", lambda *a, **k: calls.append(a) or attention(*a, **k))
    inputs = batch(padded([60, 40], 60, "right"), 0)
    states = model(**inputs).last_hidden_state
    assert len(calls) == 4
    # Recorded weights are those of candidates.
    torch.testing.assert_close(model(**inputs, output_attentions=True).last_hidden_state, states, atol=1e-5, rtol=0)
    assert len(calls) == 4


# ------ states and logits of every family and head


@pytest.mark.parametrize("ending", EVERY_MODEL)
@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_states_and_logits_are_those_of_the_encoder(family: str, ending: str, tmp_path: Path) -> None:
    source = saved(family, tmp_path, ending)
    for padding in ("right", "left"):
        inputs = batch(padded([50, 1, 20], 50, padding), source.config.pad_token_id)
        for radius in (2, 18, 49):  # candidates, blocks, the longest text
            model = class_of("BigTransformer", ending).from_encoder(tmp_path, radius=radius, max_positions=150)
            assert model(torch.ones(1, 150).long())[0].isfinite().all()
            assert_same_outputs(model, source, inputs, radius, 1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_the_encoder_under_the_dense_mask(family: str, tmp_path: Path) -> None:
    encoder = with_layers(saved(family, tmp_path), [0, 2]).double()
    inputs = batch(padded([50, 1, 20], 50, "left"), encoder.config.pad_token_id)
    model = BigTransformerModel.from_encoder(tmp_path, [0, 2], 18).double()
    states = model(**inputs).last_hidden_state[inputs["attention_mask"].bool()]
    expected = torch.cat([row["last_hidden_state"][0] for row in expected_outputs(encoder, inputs, 18)])
    states.sin().sum().backward()
    expected.sin().sum().backward()
    layer = "transformer.layer.1.ffn.lin2" if family == "distilbert" else "encoder.layer.1.output.dense"
    table = "embeddings.position_embeddings"
    own, wanted = (
        gradients_of(model, {"table": table, "layer": "layers.1.output"}),
        gradients_of(encoder, {"table": table, "layer": layer}),
    )
    assert_close(own, {**wanted, "table": wanted["table"][first_position(encoder.config) :]}, 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_the_decoder_of_a_masked_language_model_may_be_untied(family: str, tmp_path: Path) -> None:
    source = saved(family, tmp_path, "ForMaskedLM", tie_word_embeddings=False)
    model = BigTransformerForMaskedLM.from_encoder(tmp_path)
    assert_same_outputs(model, source, batch(torch.ones(2, 30).bool(), 0), 128, 1e-5)


@pytest.mark.parametrize("radius", [4, 17, 128])
@torch.no_grad()
def test_a_real_bert_gives_the_same_logits(minilm_path: str, radius: int) -> None:
    tokenizer = AutoTokenizer.from_pretrained(minilm_path)
    pairs = [("A man is eating food.", "He eats."), ("Short.", "Not as short as the first one, but " * 13)]
    torch.manual_seed(0)
    source = BertForSequenceClassification.from_pretrained(minilm_path, attn_implementation="eager", num_labels=3)
    encoder, source = source.bert, source.eval()
    source.classifier.weight.mul_(10)
    classifier = BigTransformerForSequenceClassification.from_encoder(source, radius=radius)
    model = BigTransformerModel.from_encoder(minilm_path, radius=radius)
    for side in ("right", "left"):
        inputs = dict(tokenizer(*zip(*pairs, strict=True), padding=True, padding_side=side, return_tensors="pt"))
        assert 120 < inputs["input_ids"].shape[1] <= 129
        assert_same_outputs(model, encoder, inputs, radius, 1e-5)
        assert_same_outputs(classifier, source, inputs, radius, 1e-5)


# ------ what is kept


@pytest.mark.parametrize("ending", HEADS[:2])
def test_labels_problem_and_dropout_are_kept(ending: str, tmp_path: Path) -> None:
    saved("electra", tmp_path, ending, problem_type="multi_label_classification", classifier_dropout=0.3)
    config = class_of("BigTransformer", ending).from_encoder(tmp_path).config
    assert {name: getattr(config, name) for name in LABELS} == LABELS
    assert (config.problem_type, config.classifier_dropout) == ("multi_label_classification", 0.3)
    renamed = class_of("BigTransformer", ending).from_encoder(tmp_path, id2label=dict(enumerate("xyz")))
    assert renamed.config.label2id == {"x": 0, "y": 1, "z": 2}


@torch.no_grad()
def test_a_loaded_model_is_converted_and_left_as_it_is(tmp_path: Path) -> None:
    source = saved("roberta", tmp_path, "ForTokenClassification")
    before = {name: x.clone() for name, x in source.state_dict().items()}
    model = BigTransformerForTokenClassification.from_encoder(source.bfloat16(), max_positions=100)
    assert model.dtype == torch.float32
    assert source.state_dict().keys() == before.keys()
    assert all(torch.equal(x, before[name].bfloat16()) for name, x in source.state_dict().items())
    same = BigTransformerForTokenClassification.from_encoder(tmp_path, max_positions=100)
    inputs = batch(torch.ones(2, 90).bool(), 1)
    torch.testing.assert_close(model(**inputs).logits, same(**inputs).logits, atol=0.2, rtol=0.1)


@pytest.mark.parametrize(
    ("source", "target", "fields", "named"),
    [
        ("Model", "ForSequenceClassification", {}, "BertModel"),
        ("ForSequenceClassification", "ForTokenClassification", {}, "BertForSequenceClassification"),
        ("ForSequenceClassification", "ForSequenceClassification", {"num_labels": 4}, "of 3 labels"),
        ("ForTokenClassification", "ForTokenClassification", {"id2label": {0: "a"}}, "of 3 labels"),
        ("Model", "ForMaskedLM", {}, "BertModel"),
    ],
)
@torch.no_grad()
def test_a_head_that_cannot_be_kept_begins_anew(
    source: str, target: str, fields: dict[str, Any], named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved("bert", tmp_path, source)
    model = class_of("BigTransformer", target).from_encoder(tmp_path, **fields)
    own = [record.message for record in caplog.records if record.name.startswith("modeling_star")]
    assert [named in message for message in own] == [True]
    assert model.config.head_act is None
    assert model(torch.ones(1, 9).long()).logits.isfinite().all()
    if target == "ForMaskedLM":
        assert model.lm_head.decoder.weight is model.get_input_embeddings().weight


# ------ what the model is


@torch.no_grad()
def test_words_are_further_candidates(bert_path: Path) -> None:
    inputs = batch(padded([9, 4], 9, "right"), 0)
    inputs["input_ids"] %= 13
    plain = BigTransformerModel.from_encoder(bert_path, [0, 3], 1)
    with_words = BigTransformerModel.from_encoder(bert_path, [0, 3], 1, lexicon_of(some_words()))
    assert with_words.config.candidate_roles[:4] == ("left", "self", "right", "1 of 2")
    assert (with_words(**inputs).last_hidden_state - plain(**inputs).last_hidden_state).abs().max() > 1e-3
    with_words.set_lexicon(None)
    assert with_words.config.candidate_roles == plain.config.candidate_roles
    assert torch.equal(with_words(**inputs).last_hidden_state, plain(**inputs).last_hidden_state)


@pytest.mark.parametrize("ragged", [False, True])
def test_a_classifier_computes_only_the_first_token_in_its_last_layer(bert_path: Path, ragged: bool) -> None:
    model = BigTransformerForSequenceClassification.from_encoder(bert_path, [0, 3], 2, num_labels=3).double()
    inputs = batch(padded([9, 0, 4] if ragged else [9, 9], 9, "right"), 0)
    logits = model(**inputs).logits
    pooled = model.model(**inputs).pooler_output
    torch.testing.assert_close(logits, model.classifier(pooled), atol=1e-10, rtol=0)
    seen: list[Any] = []
    handle = model.model.layers[-1].output.register_forward_hook(lambda *args: seen.append(args[2].shape[0]))
    model(**inputs).logits.sum().backward()
    handle.remove()
    assert seen == [len(inputs["input_ids"])]
    assert all(parameter.grad is not None for name, parameter in model.named_parameters() if "token_type" not in name)


@pytest.mark.parametrize("ending", EVERY_MODEL)
@torch.no_grad()
def test_a_converted_model_loads_as_any_other(ending: str, tmp_path: Path) -> None:
    saved("bert", tmp_path / "bert", ending)
    model = class_of("BigTransformer", ending).from_encoder(tmp_path / "bert", [0, 2], 3, lexicon_of(some_words()))
    model.save_pretrained(tmp_path / "big")
    loaded = class_of("BigTransformer", ending).from_pretrained(tmp_path / "big")
    inputs = batch(padded([9, 4], 9, "right"), 0)
    assert_close(named_outputs(loaded(**inputs)), named_outputs(model(**inputs)), 0)
    encoder = AutoModel.from_pretrained(tmp_path / "big")
    assert encoder.config.lexicon_kind == "words"
    assert torch.equal(encoder.layers[1].output.weight, model.base_model.layers[1].output.weight)


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


def test_texts_beyond_the_positions_are_an_error(bert_path: Path) -> None:
    model = BigTransformerModel.from_encoder(bert_path)
    assert model(torch.ones(1, 60).long()).last_hidden_state.isfinite().all()
    with pytest.raises(ValueError, match="max_position_embeddings allows 60"):
        model(torch.ones(1, 61).long())


@pytest.mark.parametrize("layers", [(0, 4), (-1,), ()])
def test_a_layer_that_the_encoder_lacks_is_an_error(bert_path: Path, layers: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="0 to 3"):
        BigTransformerModel.from_encoder(bert_path, layers)


def test_a_field_that_changes_a_shape_is_an_error(bert_path: Path) -> None:
    with pytest.raises(ValueError, match="intermediate"):
        BigTransformerModel.from_encoder(bert_path, intermediate_size=32)
    model = BigTransformerModel.from_encoder(bert_path, position_embedding_type="none")
    assert model(torch.ones(1, 61).long()).last_hidden_state.isfinite().all()


def test_layers_with_adapters_are_an_error(bert_path: Path) -> None:
    bert: PreTrainedModel = AutoModel.from_pretrained(bert_path)
    query = bert.encoder.layer[1].attention.self
    query.query = nn.ModuleDict({"base_layer": query.query})
    with pytest.raises(ValueError, match="merge"):
        BigTransformerModel.from_encoder(bert)


@pytest.mark.parametrize("config", ["AlbertConfig", "MPNetConfig", "GPT2Config", "ModernBertConfig"])
def test_another_family_is_an_error_that_names_those_that_are_taken(config: str, tmp_path: Path) -> None:
    getattr(transformers, config)().save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="camembert, distilbert, electra, roberta, xlm-roberta") as error:
        BigTransformerModel.from_encoder(tmp_path)
    assert ("WindowModernBertModel.from_encoder" in str(error.value)) == (config == "ModernBertConfig")
