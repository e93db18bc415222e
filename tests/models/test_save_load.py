"""A saved model is the model: save_pretrained, from_pretrained, Auto classes, presets."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from common import EVERY_MODEL, HEADS, TINY, lexicon_of, tiny_bert, tiny_model
from safetensors import safe_open
from samples import (
    AUTO_CLASSES,
    CHARACTERS,
    EMBEDDINGS,
    STEMS,
    assert_identical,
    class_of,
    crossed,
    embedded_model,
    some_inputs,
    tensors_of,
    write_vectors,
)
from transformers import (
    AlbertConfig,
    AutoConfig,
    BertConfig,
    BertModel,
    ElectraConfig,
    PreTrainedConfig,
    PreTrainedModel,
)

import modeling_star


PRESETS = sorted((Path(__file__).resolve().parents[2] / "configuration" / "models").glob("*.json"))

# Every field away from its default at least once.
OPTIONS: dict[str, dict[str, Any]] = {
    "StarTransformer": {
        "defaults": {},
        "ring": {"position_embedding_type": "ring", "residual": True, "head_dim": 5},
        "radius": {"ring_radius": 2},
        "positions": {"position_embedding_type": "sinusoidal", "type_vocab_size": 2},
        "no radial": {"use_radial": False, "position_embedding_type": "none", "hidden_act": "gelu"},
        "no ring": {"use_ring": False, "pair_mode": "siamese", "classifier_hidden_size": 6},
        "contextual": {"backbone_config": tiny_bert()},
        "characters": {**CHARACTERS, "char_kernel_size": 5, "embedding_size": 5},
        "chains": {"use_crf": True},
        "word vectors": {
            **{"word_vector_size": 3, "word_vector_count": 4, "word_table_size": 20, "word_vector_length": 3},
            "train_word_vectors": True,
        },
    },
    "BigTransformer": {
        "defaults": {},
        "words": {"lexicon_kind": "words", "lexicon_size": 20, "max_word_length": 3, "intermediate_size": 6},
        "whole words": {"lexicon_kind": "whole_word", "lexicon_size": 13, "include_self": False, "type_vocab_size": 2},
        "adjacent": {"local_connection": "adjacent", "pooling": "max", "position_embedding_type": "learned"},
        "no local": {"local_connection": "none", "pooling": "global", "pair_mode": "siamese", "hidden_act": "gelu"},
        "from bert": {
            **{"local_connection": "window", "window_radius": 2, "word_vector": "mean", "global_node": "first"},
            **{"embedding_norm": True, "pooling": "global", "position_embedding_type": "learned"},
        },
        "no global": {"global_connection": False, "sinusoidal_base": 100, "classifier_hidden_size": 6},
        "contextual": {"backbone_config": tiny_bert(), "position_embedding_type": "none"},
    },
    "VanillaTransformer": {
        "defaults": {},
        "narrow": {"intermediate_size": 6, "position_embedding_type": "sinusoidal", "type_vocab_size": 2},
        "siamese": {"pair_mode": "siamese", "classifier_dropout": 0.5, "hidden_act": "gelu"},
        "contextual": {"backbone_config": tiny_bert()},
    },
    "Disan": {
        "defaults": {},
        "one layer": {"num_hidden_layers": 1, "position_embedding_type": "learned", "type_vocab_size": 2},
        "siamese": {"pair_mode": "siamese", "classifier_dropout": 0.5, "hidden_act": "gelu"},
        "contextual": {"backbone_config": tiny_bert()},
    },
    "BiLstm": {
        "defaults": {},
        "mean": {"pooling": "mean", "position_embedding_type": "sinusoidal", "type_vocab_size": 2},
        "one direction": {"bidirectional": False},
        "siamese": {"pair_mode": "siamese", "classifier_dropout": 0.5, "hidden_act": "gelu"},
        "contextual": {"backbone_config": tiny_bert()},
    },
}
EVERY_OPTION = [(stem, name) for stem in STEMS for name in OPTIONS[stem]]
# Peers share the code of vocabularies, heads and files with these two.
OURS = STEMS[:2]


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory that is handed out uninitialised holds NaN, so that a parameter nobody initialised shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(2).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def parameters_without_prefix(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Parameters by the names that the encoder alone would give them; a head's own keep theirs."""
    return {name.removeprefix("model."): parameter for name, parameter in model.named_parameters()}


def trainable(model: PreTrainedModel) -> set[str]:
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def saved_names(folder: Path) -> set[str]:
    """Names of the tensors in the folder's safetensors file."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        return set(file.keys())


# ------ the same model comes back


@pytest.mark.parametrize(
    ("stem", "ending", "embeddings", "freeze"), crossed(STEMS, EVERY_MODEL, EMBEDDINGS, [False, True])
)
def test_a_loaded_model_is_the_saved_one_bit_for_bit(
    stem: str, ending: str, embeddings: str, freeze: bool, tmp_path: Path, tiny_bert_path: str
) -> None:
    model = embedded_model(embeddings, stem, ending, tmp_path, tiny_bert_path, freeze=freeze)
    model.save_pretrained(tmp_path / "saved")
    loaded, info = class_of(stem, ending).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info
    assert not loaded.training
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))
    assert_identical(loaded.state_dict(), model.state_dict())
    # The same parameters are trained: frozen embeddings stay frozen, and nothing else is.
    assert trainable(loaded) == trainable(model)
    frozen = [name for name, _ in model.named_parameters() if name not in trainable(model)]
    assert bool(frozen) == freeze
    assert all("word_embeddings" in name or "backbone" in name for name in frozen)


@pytest.mark.parametrize(("stem", "options", "ending"), crossed(EVERY_OPTION, EVERY_MODEL))
def test_every_option_survives_saving(stem: str, options: str, ending: str, tmp_path: Path) -> None:
    model = tiny_model(stem, ending, **OPTIONS[stem][options]).eval()
    model.save_pretrained(tmp_path)
    loaded, info = class_of(stem, ending).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))


@pytest.mark.parametrize("ending", ["ForTokenClassification", "ForMaskedLM"])
@pytest.mark.parametrize("mode", ["static", "contextual"])
def test_a_real_bert_inside_is_saved_and_stays_frozen(
    mode: str, ending: str, tmp_path: Path, minilm_path: str
) -> None:
    model_class = class_of("StarTransformer", ending)
    model = model_class.from_embeddings(minilm_path, mode=mode, freeze=True, **without_vocabulary(TINY)).eval()
    model.save_pretrained(tmp_path)
    loaded, info = model_class.from_pretrained(tmp_path, output_loading_info=True)
    inputs = some_inputs(vocab_size=30522)
    assert not any(info.values()), info
    assert_identical(tensors_of(loaded, inputs), tensors_of(model, inputs))
    assert trainable(loaded) == trainable(model)
    assert not any(parameter.requires_grad for parameter in loaded.get_input_embeddings().parameters())


def without_vocabulary(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "vocab_size"}


@pytest.mark.parametrize("mode", ["static", "contextual"])
def test_the_shape_of_a_preset_is_put_on_embeddings(mode: str, tmp_path: Path) -> None:
    BertModel(tiny_bert()).save_pretrained(tmp_path)
    model_class = modeling_star.StarTransformerForTokenClassification
    shape = modeling_star.StarTransformerConfig.from_pretrained(PRESETS[0].parent / "star-plus.json", num_labels=7)
    model = model_class.from_embeddings(tmp_path, mode=mode, config=shape, hidden_size=24, num_attention_heads=4)
    config = model.config
    assert (config.residual, config.role_bias, config.num_labels) == (True, True, 7)
    assert (config.hidden_size, config.head_dim, config.embedding_size) == (24, 6, 12)
    assert (config.vocab_size, shape.vocab_size) == (TINY["vocab_size"], 30522)
    plain = modeling_star.StarTransformerConfig(num_hidden_layers=3)
    model = model_class.from_embeddings(tmp_path, mode=mode, config=plain)
    expected = "none" if mode == "contextual" else "learned"
    assert (model.config.num_hidden_layers, model.config.position_embedding_type) == (3, expected)
    words = modeling_star.BigTransformerConfig(lexicon_kind="words", lexicon_size=20)
    assert (
        modeling_star.BigTransformerModel.from_embeddings(tmp_path, mode=mode, config=words).config.lexicon_size == 0
    )
    with pytest.raises(ValueError, match="BigTransformerConfig"):
        model_class.from_embeddings(tmp_path, mode=mode, config=modeling_star.BigTransformerConfig())


@pytest.mark.parametrize("mode", ["static", "contextual"])
def test_the_padding_token_is_that_of_the_source_of_the_embeddings(mode: str, tmp_path: Path) -> None:
    source = tiny_bert()
    source.pad_token_id = 4
    BertModel(source).save_pretrained(tmp_path)
    shape = modeling_star.StarTransformerConfig(pad_token_id=2)
    for config in (None, shape):
        model = modeling_star.StarTransformerModel.from_embeddings(tmp_path, mode=mode, config=config)
        assert model.config.pad_token_id == 4


def test_embeddings_equal_those_of_the_bert(minilm_path: str) -> None:
    bert = BertModel.from_pretrained(minilm_path, add_pooling_layer=False).eval()
    inputs = some_inputs(vocab_size=30522)
    expected = bert(**inputs).last_hidden_state
    model_class = modeling_star.StarTransformerModel
    static = model_class.from_embeddings(minilm_path, mode="static", **without_vocabulary(TINY))
    assert torch.equal(static.get_input_embeddings().weight, bert.get_input_embeddings().weight)
    # As wide as BERT, so that nothing is projected, and without positions: E is BERT's last hidden state.
    model = model_class.from_embeddings(
        minilm_path, mode="contextual", **{**without_vocabulary(TINY), "hidden_size": 384}
    ).eval()
    embedded = model(**inputs, output_hidden_states=True).hidden_states[0]
    real = inputs["attention_mask"].bool()
    assert torch.allclose(embedded[real], expected[real], atol=1e-5)


@pytest.mark.parametrize("stem", OURS)
def test_a_frozen_bert_runs_without_dropout_after_loading_and_train(stem: str, tmp_path: Path) -> None:
    bert = BertConfig(**{**tiny_bert().to_dict(), "hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5})
    for freeze in (True, False):
        model = tiny_model(stem, "ForTokenClassification", backbone_config=bert, freeze_embeddings=freeze)
        folder = tmp_path / str(freeze)
        model.save_pretrained(folder)
        loaded = class_of(stem, "ForTokenClassification").from_pretrained(folder).train()
        assert loaded.training
        assert loaded.model.embeddings.backbone.training is not freeze
        same = torch.equal(loaded(**some_inputs()).logits, loaded(**some_inputs()).logits)
        # TINY drops nothing out, so that all randomness comes from the BERT inside.
        assert same is freeze


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("options", [{}, {"backbone_config": tiny_bert()}], ids=["random", "contextual"])
@pytest.mark.parametrize("stem", OURS)
def test_a_half_precision_checkpoint_loads_as_it_is_or_as_float32(
    stem: str, options: dict[str, Any], dtype: torch.dtype, tmp_path: Path
) -> None:
    model = tiny_model(stem, "ForSequenceClassification", dtype=dtype, **options).eval()
    model.save_pretrained(tmp_path)
    model_class = class_of(stem, "ForSequenceClassification")
    loaded = model_class.from_pretrained(tmp_path)
    assert {parameter.dtype for parameter in loaded.parameters()} == {dtype}
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))
    widened = model_class.from_pretrained(tmp_path, dtype=torch.float32)
    assert {parameter.dtype for parameter in widened.parameters()} == {torch.float32}
    assert_identical(widened.state_dict(), model.float().state_dict())


# ------ what lies in the folder


@pytest.mark.parametrize("stem", OURS)
def test_weights_are_saved_as_safetensors_only(stem: str, tmp_path: Path) -> None:
    tiny_model(stem, "ForMaskedLM").save_pretrained(tmp_path)
    kinds = {path.suffix for path in tmp_path.rglob("*") if path.is_file()}
    assert kinds == {".json", ".py", ".safetensors"}


@pytest.mark.parametrize("embeddings", ["random", "contextual"])
@pytest.mark.parametrize("stem", OURS)
def test_a_tied_output_is_saved_once_and_comes_back_tied(
    stem: str, embeddings: str, tmp_path: Path, tiny_bert_path: str
) -> None:
    model = embedded_model(embeddings, stem, "ForMaskedLM", tmp_path, tiny_bert_path)
    model.save_pretrained(tmp_path / "saved")
    assert "lm_head.decoder.weight" not in saved_names(tmp_path / "saved")
    loaded = class_of(stem, "ForMaskedLM").from_pretrained(tmp_path / "saved")
    assert loaded.lm_head.decoder.weight is loaded.get_input_embeddings().weight


@pytest.mark.parametrize("stem", OURS)
def test_an_untied_output_is_saved_beside_the_table(stem: str, tmp_path: Path) -> None:
    model = tiny_model(stem, "ForMaskedLM", tie_word_embeddings=False).eval()
    assert not torch.equal(model.lm_head.decoder.weight, model.get_input_embeddings().weight)
    model.save_pretrained(tmp_path)
    loaded, info = class_of(stem, "ForMaskedLM").from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    assert_identical(loaded.state_dict(), model.state_dict())


@pytest.mark.parametrize("embeddings", ["static", "contextual", "vectors"])
def test_a_saved_model_needs_no_other_folder(
    embeddings: str, tmp_path: Path, tiny_bert_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = tmp_path / "sources"
    shutil.copytree(tiny_bert_path, sources / "bert")
    model = embedded_model(embeddings, "StarTransformer", "ForTokenClassification", sources, str(sources / "bert"))
    model.save_pretrained(tmp_path / "saved")
    shutil.rmtree(sources)
    (tmp_path / "elsewhere").mkdir()
    shutil.move(tmp_path / "saved", tmp_path / "elsewhere" / "moved")
    monkeypatch.chdir(tmp_path / "elsewhere")
    loaded = modeling_star.StarTransformerForTokenClassification.from_pretrained("moved")
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))


@pytest.mark.parametrize("embeddings", ["static", "contextual", "vectors"])
def test_a_saved_model_contains_no_path_of_the_machine(embeddings: str, tmp_path: Path, tiny_bert_path: str) -> None:
    # The folder may be published.
    model = embedded_model(embeddings, "StarTransformer", "ForTokenClassification", tmp_path, tiny_bert_path)
    model.save_pretrained(tmp_path / "saved")
    text = (tmp_path / "saved" / "config.json").read_text()
    assert tiny_bert_path not in text
    assert str(tmp_path) not in text


# ------ from one head to another


@pytest.mark.parametrize(("stem", "source", "target"), crossed(OURS, EVERY_MODEL, EVERY_MODEL))
def test_every_model_loads_what_it_shares_with_any_other(stem: str, source: str, target: str, tmp_path: Path) -> None:
    model = tiny_model(stem, source, freeze_embeddings=True)
    model.save_pretrained(tmp_path)
    loaded, info = class_of(stem, target).from_pretrained(tmp_path, output_loading_info=True)
    have, want = parameters_without_prefix(model), parameters_without_prefix(loaded)
    shared = have.keys() & want.keys()
    assert {name.removeprefix("model.") for name in info["missing_keys"]} == want.keys() - have.keys()
    # That a head without a pooled vector has nothing that only makes one is no news.
    surplus = {name for name in have.keys() - want.keys() if "relay_" not in name and not name.startswith("pooler.")}
    assert {name.removeprefix("model.") for name in info["unexpected_keys"]} == surplus
    assert not info["mismatched_keys"]
    assert all(torch.equal(want[name], have[name]) for name in shared)
    # Only heads and what feeds no token may differ.
    ours = ("classifier.", "qa_outputs.", "lm_head.", "pooler.", f"layers.{TINY['num_hidden_layers'] - 1}.relay_")
    assert all(name.startswith(ours) for name in have.keys() ^ want.keys())
    assert not loaded.get_input_embeddings().weight.requires_grad


@pytest.mark.parametrize("ending", HEADS)
@pytest.mark.parametrize("stem", OURS)
def test_a_head_that_the_checkpoint_lacks_starts_as_in_a_fresh_model(
    stem: str, ending: str, tmp_path: Path, poisoned_memory: None
) -> None:
    wide = {"hidden_size": 48, "vocab_size": 64, "num_attention_heads": 4}
    tiny_model(stem, **wide).save_pretrained(tmp_path)
    model_class = class_of(stem, ending)
    fresh = dict(model_class(model_class.config_class(**{**TINY, **wide})).named_parameters())
    for _ in range(4):
        loaded, info = model_class.from_pretrained(tmp_path, output_loading_info=True)
        assert any(not name.startswith("model.") for name in info["missing_keys"])
        parameters = dict(loaded.named_parameters())
        for name in info["missing_keys"]:
            assert_alike(name, parameters[name], fresh[name])
        for tensor in tensors_of(loaded, some_inputs()).values():
            assert tensor.isfinite().all()


def assert_alike(name: str, loaded: torch.Tensor, fresh: torch.Tensor) -> None:
    """As if drawn from the same distribution: a constant is the same one, random numbers have the same scale."""
    assert loaded.isfinite().all(), name
    if fresh.numel() == 1 or fresh.std() == 0:
        assert torch.equal(loaded, fresh), name
        return
    # The scale of a few numbers is known only roughly.
    slack, slack_of_largest = (1.25, 2) if fresh.numel() > 400 else (2.5, 4)
    assert 1 / slack < loaded.std() / fresh.std() < slack, (name, loaded.std(), fresh.std())
    assert loaded.abs().max() < slack_of_largest * fresh.abs().max(), name


# Activations with parameters of their own, too.
INITIALISED = [*EVERY_OPTION, *((stem, "prelu") for stem in STEMS)]


@pytest.mark.parametrize(("stem", "options", "ending"), crossed(INITIALISED, EVERY_MODEL))
def test_an_empty_checkpoint_gives_a_fresh_model(stem: str, options: str, ending: str, poisoned_memory: None) -> None:
    model_class = class_of(stem, ending)
    wide = {"hidden_size": 48, "vocab_size": 64, "num_attention_heads": 4}
    fields = {"hidden_act": "prelu"} if options == "prelu" else OPTIONS[stem][options]
    config = model_class.config_class(**{**TINY, **wide, **fields})
    fresh = dict(model_class(config).named_parameters())
    loaded = dict(model_class.from_pretrained(None, config=config, state_dict={}).named_parameters())
    assert loaded.keys() == fresh.keys()
    for name, parameter in fresh.items():
        assert_alike(name, loaded[name], parameter)


@pytest.mark.parametrize("names", [["x", "y"], ["x", "b", "z"], ["v", "w", "x", "y"]])
def test_other_names_of_labels_replace_all_that_were_saved(names: list[str], tmp_path: Path) -> None:
    saved = {"id2label": dict(enumerate("abc")), "label2id": {name: number for number, name in enumerate("abc")}}
    config = modeling_star.StarTransformerConfig(**{**without_labels(TINY), **saved})
    modeling_star.StarTransformerForTokenClassification(config).save_pretrained(tmp_path)
    given = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    for also in ({}, {"num_labels": len(names)}):
        loaded = AutoConfig.from_pretrained(tmp_path, **given, **also)
        assert (loaded.id2label, loaded.label2id) == (given["id2label"], given["label2id"])
        assert loaded.num_labels == len(names)


def test_positions_that_the_checkpoint_lacks_start_fresh(tmp_path: Path, poisoned_memory: None) -> None:
    # A model trained with learned positions, read on with a bias for each role.
    tiny_model("StarTransformer").save_pretrained(tmp_path)
    loaded = modeling_star.StarTransformerModel.from_pretrained(tmp_path, position_embedding_type="ring")
    assert all((layer.ring_attention.role_bias == 0).all() for layer in loaded.layers)


# ------ another vocabulary


@pytest.mark.parametrize(
    ("stem", "embeddings", "ending", "size"),
    crossed(
        OURS,
        EMBEDDINGS,
        ["ForMaskedLM", "ForTokenClassification"],
        [TINY["vocab_size"] + 4, TINY["vocab_size"] - 3],
    ),
)
def test_a_resized_vocabulary_comes_back(
    stem: str, embeddings: str, ending: str, size: int, tmp_path: Path, tiny_bert_path: str
) -> None:
    model = embedded_model(embeddings, stem, ending, tmp_path, tiny_bert_path, freeze=True)
    kept = min(size, TINY["vocab_size"])
    before = model.get_input_embeddings().weight[:kept].clone()
    trained = trainable(model)
    model.resize_token_embeddings(size)
    assert torch.equal(model.get_input_embeddings().weight[:kept], before)
    assert not model.get_input_embeddings().weight.requires_grad
    model.save_pretrained(tmp_path / "saved")
    loaded, info = class_of(stem, ending).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info
    assert loaded.config.vocab_size == size
    assert loaded.get_input_embeddings().weight.shape[0] == size
    inputs = some_inputs(vocab_size=size)
    assert (inputs["input_ids"] >= kept).any() or size == kept
    assert_identical(tensors_of(loaded, inputs), tensors_of(model, inputs))
    assert trainable(loaded) == trained
    if ending == "ForMaskedLM":
        assert tensors_of(loaded, inputs)["logits"].shape[-1] == size


@pytest.mark.parametrize("stem", OURS)
@pytest.mark.parametrize("inside", [AlbertConfig, ElectraConfig])
def test_a_masked_lm_is_tied_to_a_table_narrower_than_the_encoder_inside(
    stem: str, inside: type[PreTrainedConfig], tmp_path: Path
) -> None:
    sizes = {"vocab_size": TINY["vocab_size"], "embedding_size": 6, "hidden_size": 12, "intermediate_size": 12}
    narrow = inside(**sizes, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=32)
    model = tiny_model(stem, "ForMaskedLM", backbone_config=narrow, position_embedding_type="none").eval()
    assert model.lm_head.decoder.weight is model.get_input_embeddings().weight
    assert model.lm_head.decoder.in_features == 6
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))


# ------ subclasses


class Tagger(modeling_star.StarTransformerForTokenClassification):
    """A user's own, whose name says nothing of its head."""


class Pretrainer(modeling_star.StarTransformerForMaskedLM):
    """Likewise."""


class Reader(modeling_star.StarTransformerForQuestionAnswering):
    """Likewise."""


@pytest.mark.parametrize("own", [Tagger, Pretrainer, Reader])
def test_a_subclass_has_the_loss_of_its_parent_and_is_saved_as_it(own: type[PreTrainedModel], tmp_path: Path) -> None:
    parent = own.__mro__[1]
    model = own(parent.config_class(**TINY)).eval()
    model.save_pretrained(tmp_path)
    assert type(model) is own
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert config["architectures"] == [parent.__name__]
    assert config["auto_map"]["AutoModelForTokenClassification"].startswith("code/modeling_star.StarTransformerFor")
    assert (tmp_path / "code" / "modeling_star.py").is_file()
    labels = torch.ones_like(some_inputs()["input_ids"])
    given = {"start_positions": labels[:, 0], "end_positions": labels[:, 1]} if own is Reader else {"labels": labels}
    losses = [kind.from_pretrained(tmp_path)(**some_inputs(), **given).loss for kind in (own, parent)]
    assert torch.equal(*losses)


def test_a_registered_subclass_is_saved_as_itself(tmp_path: Path) -> None:
    class Own(modeling_star.StarTransformerForTokenClassification):
        pass

    Own.register_for_auto_class("AutoModelForTokenClassification")
    Own(Own.config_class(**TINY)).save_pretrained(tmp_path)
    auto_map = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))["auto_map"]
    assert auto_map["AutoModelForTokenClassification"] == "code/test_save_load.Own"
    assert "AutoModelForMaskedLM" not in auto_map


class TwoHeads(modeling_star.BigTransformerPreTrainedModel):
    """A head of somebody else's, who calls the encoder as they like."""

    def __init__(self, config: modeling_star.BigTransformerConfig):
        super().__init__(config)
        self.reader = modeling_star.BigTransformerModel(config)
        self.topic, self.mood = torch.nn.Linear(config.hidden_size, 5), torch.nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        pooled = self.reader(**inputs).pooler_output
        return torch.cat([self.topic(pooled), self.mood(pooled)], dim=1)


def test_a_head_may_call_its_encoder_as_it_likes(tmp_path: Path) -> None:
    model = TwoHeads(modeling_star.BigTransformerConfig(**TINY, freeze_embeddings=True)).eval()
    model.set_lexicon(lexicon_of([(5, 6)]))
    model.resize_token_embeddings(20, mean_resizing=False)
    model.enable_input_require_grads()
    model.save_pretrained(tmp_path)
    loaded = TwoHeads.from_pretrained(tmp_path)
    assert not loaded.get_input_embeddings().weight.requires_grad
    assert torch.equal(loaded(**some_inputs()), model(**some_inputs()))
    assert model(**some_inputs()).requires_grad


def test_a_model_of_two_encoders_refuses_what_needs_one() -> None:
    model = TwoHeads(modeling_star.BigTransformerConfig(**TINY))
    model.other = modeling_star.BigTransformerModel(model.config)
    with pytest.raises(TypeError, match="base_model_prefix"):
        model.set_lexicon(lexicon_of([(5, 6)]))


# ------ Auto classes and configurations


@pytest.mark.parametrize("ending", EVERY_MODEL)
@pytest.mark.parametrize("stem", STEMS)
def test_auto_classes_know_every_model(stem: str, ending: str, tmp_path: Path) -> None:
    model = tiny_model(stem, ending).eval()
    model.save_pretrained(tmp_path)
    auto = getattr(transformers, AUTO_CLASSES[ending])
    loaded = auto.from_pretrained(tmp_path)
    # The class of this package, though the folder holds code too.
    assert type(loaded) is class_of(stem, ending)
    assert_identical(tensors_of(loaded, some_inputs()), tensors_of(model, some_inputs()))
    assert type(auto.from_config(model.config)) is class_of(stem, ending)
    assert type(AutoConfig.from_pretrained(tmp_path)) is class_of(stem, ending).config_class


@pytest.mark.parametrize(("stem", "options"), EVERY_OPTION)
def test_a_configuration_survives_the_round_trip(stem: str, options: str, tmp_path: Path) -> None:
    config_class = class_of(stem, "Model").config_class
    labels = {"id2label": {0: "O", 1: "B-city"}, "label2id": {"O": 0, "B-city": 1}}
    config = config_class(**{**without_labels(TINY), **labels, **OPTIONS[stem][options]})
    config.save_pretrained(tmp_path)
    copies = [
        AutoConfig.from_pretrained(tmp_path),
        AutoConfig.from_pretrained(tmp_path / "config.json"),
        config_class.from_pretrained(tmp_path),
        config_class.from_dict(config.to_dict()),
        config_class.from_dict(json.loads(config.to_json_string(use_diff=False))),
    ]
    expected = without_origin(config.to_dict())
    for copy in copies:
        assert type(copy) is config_class
        assert without_origin(copy.to_dict()) == expected
        assert copy.id2label == {0: "O", 1: "B-city"}
        assert type(copy.backbone_config) is type(config.backbone_config)


def without_labels(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name != "num_labels"}


def without_origin(fields: dict[str, Any]) -> dict[str, Any]:
    """Without the fields that record the path and the version that wrote a configuration."""
    return {name: value for name, value in fields.items() if name not in ("_name_or_path", "transformers_version")}


def assert_holds(config: PreTrainedConfig, written: dict[str, Any]) -> None:
    """The configuration, and those within it, have the values that are written."""
    for name, value in written.items():
        actual = getattr(config, name)
        if isinstance(actual, PreTrainedConfig):
            assert_holds(actual, value)
        else:
            assert actual == value, name


@pytest.mark.parametrize("path", PRESETS, ids=lambda path: path.name)
def test_a_preset_loads_by_its_file_name(path: Path) -> None:
    config = AutoConfig.from_pretrained(path)
    written = json.loads(path.read_text())
    assert type(config).model_type == written.pop("model_type")
    assert_holds(config, written)
    auto = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModel
    with torch.device("meta"):
        model = auto.from_config(config)
    assert model.num_parameters() > 0


@pytest.mark.parametrize("stem", STEMS)
def test_a_field_given_at_loading_overrules_the_file(stem: str, tmp_path: Path) -> None:
    # What follows from another field is not written in this file, and so follows from the one that is given.
    model_type = class_of(stem, "Model").config_class.model_type
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, "hidden_size": 60, "vocab_size": 9}))
    config = AutoConfig.from_pretrained(tmp_path, hidden_size=12, num_attention_heads=3, hidden_dropout_prob=0)
    assert (config.hidden_size, config.num_attention_heads, config.hidden_dropout_prob) == (12, 3, 0)
    assert config.embedding_size == 12
    derived = {"StarTransformer": {"head_dim": 4}, "Disan": {}, "BiLstm": {}}.get(stem, {"intermediate_size": 48})
    assert {name: getattr(config, name) for name in derived} == derived
    model = transformers.AutoModel.from_config(config)
    assert model(torch.tensor([[1, 2]])).last_hidden_state.shape == (1, 2, 12)


@pytest.mark.parametrize(
    ("stem", "given", "derived"),
    [
        ("StarTransformer", {"hidden_size": 64}, {"head_dim": 32, "embedding_size": 64}),
        ("StarTransformer", {"num_attention_heads": 4}, {"head_dim": 2, "embedding_size": 8}),
        ("StarTransformer", {"hidden_size": 64, "head_dim": 5}, {"head_dim": 5}),
        ("VanillaTransformer", {"hidden_size": 64}, {"intermediate_size": 256}),
        ("BigTransformer", {"position_embedding_type": "learned"}, {"scale_embedding": False, "embedding_size": 8}),
        ("BigTransformer", {"backbone_config": tiny_bert()}, {"scale_embedding": False, "embedding_size": 12}),
        ("Disan", {"hidden_size": 64}, {"embedding_size": 64}),
    ],
)
def test_fields_derived_from_one_that_is_given_at_loading_are_derived_again(
    stem: str, given: dict[str, Any], derived: dict[str, Any], tmp_path: Path
) -> None:
    class_of(stem, "Model").config_class(**TINY).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, **given)
    assert {name: getattr(config, name) for name in derived} == derived


def test_fields_of_the_encoder_inside_are_laid_over_the_saved_ones(tmp_path: Path) -> None:
    config_class = class_of("StarTransformer", "Model").config_class
    config_class(**TINY, backbone_config=tiny_bert()).save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, backbone_config={"hidden_dropout_prob": 0.3})
    assert (config.backbone_config.hidden_dropout_prob, config.backbone_config.hidden_size) == (0.3, 12)


@pytest.mark.parametrize("stem", OURS)
def test_fields_are_checked_when_they_are_given_at_loading(stem: str, tmp_path: Path) -> None:
    tiny_model(stem).config.save_pretrained(tmp_path)
    with pytest.raises(Exception, match="hidden_dropout_prob=2"):
        AutoConfig.from_pretrained(tmp_path, hidden_dropout_prob=2)
    model_class = class_of(stem, "Model")
    with pytest.raises(Exception, match="reluu"):
        model_class.from_pretrained(tmp_path, hidden_act="reluu")


def test_vectors_are_in_the_rows_of_their_words(tmp_path: Path) -> None:
    vocabulary = {"[PAD]": 0, "tea": 1, "Tea": 2, "cup": 3}
    path = write_vectors(tmp_path / "vectors.txt", {"tea": 1, "cup": 3, "unused": 7}, width=4)
    model = modeling_star.StarTransformerModel.from_embeddings(
        path, mode="vectors", vocabulary=vocabulary, hidden_size=8, num_attention_heads=2
    )
    table = model.get_input_embeddings().weight
    assert table.shape == (4, 4)
    assert torch.allclose(table[1], torch.tensor([1.0, 1.1, 1.2, 1.3]))
    assert torch.allclose(table[3], torch.tensor([3.0, 3.1, 3.2, 3.3]))
    # A word in capitals takes its lower-cased form's vector; one without any is random, not zero.
    assert torch.equal(table[2], table[1])
    assert (table[0] != 0).any()
    assert table[0].isfinite().all()
