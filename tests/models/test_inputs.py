"""
Bad configurations and inputs: each message says what was given, what is allowed, and what to write instead.

The words of a message are matched in their order.
"""

import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, tiny_bert, tiny_model, words
from samples import STEMS, class_of
from transformers import AlbertConfig, AutoConfig, AutoModel, BartConfig, BertConfig, ElectraConfig, XLNetConfig

import modeling_star
from modeling_star import (
    BigTransformerConfig,
    BiLstmConfig,
    DisanConfig,
    StarTransformerConfig,
    VanillaTransformerConfig,
)
from modeling_star.models.embeddings import FROM_PADDING
from modeling_star.models.modeling_encoder import longest_input


IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])

# What has an end; some encoders have others by default.
LEARNED = {"position_embedding_type": "learned"}


# ------ configurations


WITH_HEADS = (StarTransformerConfig, BigTransformerConfig, VanillaTransformerConfig)
WITH_DIRECTIONS = (DisanConfig, BiLstmConfig)
EVERY_CONFIG = (*WITH_HEADS, *WITH_DIRECTIONS)

BAD_FIELDS: list[dict[str, Any]] = [
    *({name: 0} for name in ("num_attention_heads", "hidden_size", "num_hidden_layers", "vocab_size")),
    *({name: 0} for name in ("max_position_embeddings", "classifier_hidden_size", "embedding_size")),
    *({name: 0} for name in ("char_vocab_size", "char_embedding_size", "char_num_filters", "char_kernel_size")),
    {"max_char_length": 0},
    {"hidden_size": -6},
    {"type_vocab_size": -1},
    {"hidden_dropout_prob": 1.0},
    {"embedding_dropout_prob": -0.1},
    {"classifier_dropout": 2},
    {"hidden_act": "rellu"},
    {"position_embedding_type": "lerned"},
    {"pair_mode": "siamees"},
    {"hidden_size": "300"},
    {"num_attention_heads": 6.0},
    {"hidden_dropout_prob": "0.1"},
    {"freeze_embeddings": 1},
    {"id2label": {1: "a", 2: "b"}},
    {"backbone_config": {"hidden_size": 8}},
    {"backbone_config": "bert-base-cased"},
    {"backbone_config": tiny_bert(), "embedding_size": 9},
]


@pytest.mark.parametrize("fields", BAD_FIELDS, ids=lambda fields: str(list(fields)[-1]))
@pytest.mark.parametrize("config_class", EVERY_CONFIG)
def test_a_bad_field_is_an_error(config_class: type, fields: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=list(fields)[-1]):
        config_class(**fields)


@pytest.mark.parametrize(
    ("config_class", "fields"),
    [
        (StarTransformerConfig, {"norm_position": "pots"}),
        (StarTransformerConfig, {"use_ring": "no"}),
        (StarTransformerConfig, {"head_dim": 0}),
        (StarTransformerConfig, {"ring_radius": 0}),
        (StarTransformerConfig, {"num_relays": 2}),
        *((each, {"hidden_size": 10, "num_attention_heads": 3}) for each in WITH_HEADS),
        *((each, {"hidden_size": 301}) for each in WITH_DIRECTIONS),
        *((each, {"position_embedding_type": "ring"}) for each in EVERY_CONFIG if each is not StarTransformerConfig),
        (BiLstmConfig, {"pooling": "last"}),
        (VanillaTransformerConfig, {"intermediate_size": 0}),
        (BigTransformerConfig, {"intermediate_size": 0}),
        (BigTransformerConfig, {"max_word_length": 1}),
        (BigTransformerConfig, {"local_connection": "ring"}),
        (BigTransformerConfig, {"pooling": "sum"}),
        (BigTransformerConfig, {"include_self": "no"}),
        (BigTransformerConfig, {"lexicon_kind": "jieba"}),
        (BigTransformerConfig, {"lexicon_kind": "words"}),
        (BigTransformerConfig, {"lexicon_size": 8}),
        (BigTransformerConfig, {"lexicon_kind": "whole_word", "lexicon_size": -1}),
    ],
)
def test_a_bad_field_of_one_encoder_is_an_error(config_class: type, fields: dict[str, Any]) -> None:
    with pytest.raises(Exception, match="ring" if "position_embedding_type" in fields else next(iter(fields))):
        config_class(**fields)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("hiden_size", "hidden_size"), ("num_layers", "num_hidden_layers"), ("dropout_prob", "hidden_dropout_prob")],
)
@pytest.mark.parametrize("config_class", EVERY_CONFIG)
def test_an_unknown_key_is_warned_about(
    config_class: type, given: str, meant: str, caplog: pytest.LogCaptureFixture
) -> None:
    config_class(**{given: 1})
    [record] = caplog.records
    assert re.search(words(config_class.__name__, f"no field '{given}'", "no effect", "Did you mean"), record.message)
    # Several fields may be as close; each is a fair guess.
    guess = record.message.split("Did you mean")[1]
    assert meant.rsplit("_", 1)[-1] in guess
    assert meant in guess or given == "dropout_prob"


def test_an_unknown_key_like_no_field_gets_no_guess(caplog: pytest.LogCaptureFixture) -> None:
    StarTransformerConfig(xyzzy=1)
    assert "no field 'xyzzy'" in caplog.text
    assert "Did you mean" not in caplog.text


@pytest.mark.parametrize("config_class", EVERY_CONFIG)
def test_keys_of_transformers_are_not_warned_about(config_class: type, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config_class(
            num_labels=3,
            id2label={0: "a", 1: "b", 2: "c"},
            label2id={"a": 0, "b": 1, "c": 2},
            problem_type="regression",
            output_attentions=True,
            output_hidden_states=True,
            return_dict=True,
            architectures=["X"],
            dtype="float32",
            torch_dtype="float32",
            attn_implementation="eager",
            name_or_path="somewhere",
            finetuning_task="ner",
            chunk_size_feed_forward=0,
            is_encoder_decoder=False,
            transformers_version="5.0.0",
            auto_map={},
            use_cache=False,
        )
    assert not caplog.records, caplog.text


def test_an_encoder_that_transformers_cannot_build_is_refused() -> None:
    class HomeMadeConfig(BertConfig):
        model_type = "home_made"

    config = StarTransformerConfig(backbone_config=HomeMadeConfig(), hidden_size=8, num_attention_heads=2)
    with pytest.raises(ValueError, match="HomeMadeConfig"):
        modeling_star.StarTransformerModel(config)


def test_the_configuration_of_an_encoder_inside_stays_as_it_was_given() -> None:
    given = tiny_bert()
    given.name_or_path = "somewhere"
    own = StarTransformerConfig(backbone_config=given).backbone_config
    own.hidden_dropout_prob = 0.5
    assert (given.name_or_path, given.hidden_dropout_prob) == ("somewhere", 0.0)


@pytest.mark.parametrize("stem", STEMS)
def test_the_vocabulary_is_that_of_the_encoder_inside(stem: str) -> None:
    # 13 ids are known to the BERT inside; the configuration says nothing of its own.
    fields = {name: value for name, value in TINY.items() if name != "vocab_size"}
    model = class_of(stem, "Model")(class_of(stem, "Model").config_class(backbone_config=tiny_bert(), **fields))
    with pytest.raises(IndexError, match=words("input_ids hold 13", "0 to 12")):
        model(IDS + 3)


# ------ inputs


BAD_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "ids too large": ({"input_ids": IDS + 3}, "13"),
    "negative ids": ({"input_ids": IDS - 3}, "-2"),
    "one row without its axis": ({"input_ids": IDS[0]}, "[5]"),
    "an axis too many": ({"input_ids": IDS[None]}, "[1, 2, 5]"),
    "long mask": ({"input_ids": IDS, "attention_mask": torch.ones(2, 6)}, "[2, 6]"),
    "mask without its axis": ({"input_ids": IDS, "attention_mask": torch.ones(5)}, "[5]"),
    "mask of pairs": ({"input_ids": IDS, "attention_mask": torch.ones(2, 5, 5)}, "[2, 5, 5]"),
    "mask that is added to scores": (
        {"input_ids": IDS, "attention_mask": torch.zeros(2, 5).masked_fill(IDS > 8, float("-inf"))},
        "-inf",
    ),
    "mask of whole numbers that is added to scores": (
        {"input_ids": IDS, "attention_mask": (IDS > 8) * -10000},
        "-10000",
    ),
    "types": ({"input_ids": IDS, "token_type_ids": torch.zeros(2, 4, dtype=torch.long)}, "[2, 4]"),
    "positions": ({"input_ids": IDS, "position_ids": torch.arange(5)}, "[5]"),
    "positions beyond the table": ({"input_ids": IDS, "position_ids": torch.arange(14, 19).expand(2, 5)}, "18"),
    "types beyond the table": ({"input_ids": IDS, "token_type_ids": torch.full((2, 5), 2)}, "2"),
    "ids and vectors": ({"input_ids": IDS, "inputs_embeds": torch.zeros(2, 5, 8)}, "inputs_embeds"),
    "neither": ({}, "inputs_embeds"),
    "width of the vectors": ({"inputs_embeds": torch.zeros(2, 5, 7)}, "[2, 5, 7]"),
    "vectors without an axis": ({"inputs_embeds": torch.zeros(5, 8)}, "[5, 8]"),
    "too long": ({"input_ids": torch.ones(1, 17, dtype=torch.long)}, "17 tokens"),
}


@pytest.mark.parametrize("ending", ["Model", "ForTokenClassification"])
@pytest.mark.parametrize(("inputs", "named"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
@pytest.mark.parametrize("stem", STEMS)
def test_a_bad_input_is_an_error_that_names_it(
    stem: str, inputs: dict[str, torch.Tensor], named: str, ending: str
) -> None:
    model = tiny_model(stem, ending, type_vocab_size=2, **LEARNED)
    with pytest.raises((ValueError, IndexError), match=re.escape(named)):
        model(**inputs)


@pytest.mark.parametrize("stem", STEMS)
def test_a_sequence_too_long_is_an_error_when_states_are_recorded_too(stem: str) -> None:
    with pytest.raises(ValueError, match=words("17 tokens", "max_position_embeddings allows 16")):
        tiny_model(stem, **LEARNED)(torch.ones(1, 17, dtype=torch.long), output_hidden_states=True)


INSIDE = {
    **{"vocab_size": TINY["vocab_size"], "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 16, "max_position_embeddings": 16},
}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_positions_reach_the_encoder_inside(kind: str) -> None:
    config = AutoConfig.for_model(kind, pad_token_id=1, **INSIDE)
    model = tiny_model("StarTransformer", backbone_config=config, position_embedding_type="none").eval()
    positions = torch.tensor([4, 2, 0, 1, 3])
    inside = model.embeddings.backbone
    expected = inside(IDS, position_ids=positions[None] + (2 if kind == "roberta" else 0)).last_hidden_state
    found = model(IDS, position_ids=positions[None], output_hidden_states=True).hidden_states[0]
    projected = model.embeddings.projection(expected)
    torch.testing.assert_close(found, projected)
    # Padding on the left moves no position.
    shifted = [torch.nn.functional.pad(x, (2, 0)) for x in (IDS, positions.expand(2, 5), torch.ones_like(IDS))]
    names = ("input_ids", "position_ids", "attention_mask")
    left = model(**dict(zip(names, shifted, strict=True)), output_hidden_states=True).hidden_states[0]
    torch.testing.assert_close(left[:, 2:], projected)
    with pytest.raises(IndexError, match=r"position_ids hold 18; 0 to 1[35] are allowed"):
        model(IDS, position_ids=positions[None] + 14)


def test_positions_for_an_encoder_inside_that_takes_none_are_refused() -> None:
    with pytest.raises(ValueError, match="position_ids"):
        xlnet_inside()(IDS, position_ids=torch.arange(5)[None])


def test_an_encoder_inside_may_have_no_limit() -> None:
    assert xlnet_inside()(torch.ones(1, 40, dtype=torch.long)).last_hidden_state.isfinite().all()


def xlnet_inside() -> Any:
    inside = XLNetConfig(vocab_size=TINY["vocab_size"], d_model=12, n_head=2, n_layer=1, d_inner=16)
    return tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


def test_an_encoder_with_a_decoder_is_no_backbone() -> None:
    inside = BartConfig(vocab_size=TINY["vocab_size"], d_model=12, encoder_layers=1, decoder_layers=1)
    with pytest.raises(ValueError, match="BartConfig"):
        tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


@pytest.mark.parametrize("position", ["sinusoidal", "none", "ring"])
def test_other_positions_have_no_longest_sequence(position: str) -> None:
    model = tiny_model("StarTransformer", position_embedding_type=position)
    assert model(torch.ones(1, 40, dtype=torch.long)).last_hidden_state.isfinite().all()


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("inside", [False, True])
def test_a_type_that_neither_text_of_a_pair_has_is_named(stem: str, inside: bool) -> None:
    embedded = {"backbone_config": tiny_bert(), "position_embedding_type": "none"} if inside else {}
    model = tiny_model(stem, pair_mode="siamese", type_vocab_size=0, **embedded)
    with pytest.raises(IndexError, match=words("token_type_ids hold 2", "0 to 1")):
        model(IDS, token_type_ids=torch.tensor([[0, 0, 1, 1, 2]] * 2))


def test_a_type_that_the_encoder_inside_does_not_have_is_named() -> None:
    model = tiny_model("StarTransformer", backbone_config=tiny_bert(), position_embedding_type="none")
    with pytest.raises(IndexError, match=words("token_type_ids hold 2", "0 to 1")):
        model(IDS, token_type_ids=torch.full_like(IDS, 2))


def test_an_encoder_inside_that_has_one_type_is_given_none() -> None:
    inside = tiny_bert()
    inside.type_vocab_size = 1
    model = tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")
    typed = model(IDS, token_type_ids=torch.full_like(IDS, 2)).last_hidden_state
    assert torch.equal(typed, model(IDS).last_hidden_state)


@pytest.mark.parametrize("stem", STEMS)
def test_padding_does_not_count_towards_the_longest_sequence(stem: str) -> None:
    mask = torch.tensor([[0, 1] * 16])
    for recorded in (False, True):
        output = tiny_model(stem)(torch.ones_like(mask), attention_mask=mask, output_hidden_states=recorded)
        assert output.last_hidden_state.shape == (1, 32, 8)


@pytest.mark.parametrize("recorded", [False, True])
def test_padding_does_not_count_towards_what_the_encoder_inside_takes(recorded: bool) -> None:
    mask = torch.tensor([[0, 1] * 16])
    model = tiny_model("StarTransformer", backbone_config=tiny_bert(), position_embedding_type="none")
    output = model(torch.ones_like(mask), attention_mask=mask, output_hidden_states=recorded)
    assert output.last_hidden_state.shape == (1, 32, 8)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("own", [16, 12, 40])
def test_the_encoder_inside_limits_the_length(stem: str, own: int) -> None:
    long = torch.ones(1, 17, dtype=torch.long)
    model = tiny_model(stem, backbone_config=tiny_bert(), max_position_embeddings=own, **LEARNED)
    message = ("max_position_embeddings allows 12",) if own == 12 else ("bert inside", "allows 16")
    with pytest.raises(ValueError, match=words("17 tokens", *message, "max_length=", "stride=", "overflowing")):
        model(long)
    without = tiny_model(stem, backbone_config=tiny_bert(), position_embedding_type="none")
    with pytest.raises(ValueError, match=words("17 tokens", "bert inside", "allows 16", "max_length=16", "stride=4")):
        without(long)


@pytest.mark.parametrize("kind", ["bert", "electra", *sorted(set(FROM_PADDING) - {"lilt", "longformer", "xmod"})])
def test_the_limit_of_an_encoder_inside_is_what_it_takes(kind: str) -> None:
    # Those left out pad what they read, or want more than tokens.
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = AutoConfig.for_model(kind, vocab_size=40, max_position_embeddings=16, pad_token_id=1, **shape)
    inside = AutoModel.from_config(config).eval()
    limit = longest_input(config)
    inside(torch.full((1, limit), 5))
    with pytest.raises((IndexError, RuntimeError)):
        inside(torch.full((1, limit + 1), 5))


@pytest.mark.parametrize("stem", STEMS)
def test_the_windows_of_a_message_fit_the_model(stem: str) -> None:
    # The numbers that the error gives are good: cut so, the text goes through.
    model = tiny_model(stem, **LEARNED)
    with pytest.raises(ValueError, match="17 tokens") as error:
        model(torch.ones(1, 17, dtype=torch.long))
    limit = int(re.search(r"max_length=(\d+)", str(error.value))[1])
    assert model(torch.ones(1, limit, dtype=torch.long)).last_hidden_state.shape == (1, limit, 8)


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.parametrize("ending", ["Model", "ForSequenceClassification"])
def test_siamese_pairs_need_token_types(stem: str, ending: str) -> None:
    with pytest.raises(ValueError, match="token_type_ids"):
        tiny_model(stem, ending, pair_mode="siamese")(IDS)


def test_siamese_pairs_without_a_second_text_are_warned_about(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("modeling_star"), "propagate", True)
    model, types = tiny_model("StarTransformer", pair_mode="siamese", type_vocab_size=0), torch.zeros_like(IDS)
    logger = logging.getLogger("modeling_star.models.modeling_encoder")
    type(logger).warning_once.cache_clear()
    model(IDS, token_type_ids=types.index_fill(1, torch.tensor([IDS.shape[1] - 1]), 1))
    assert not caplog.records
    model(IDS, token_type_ids=types)
    assert "token_type_ids" in caplog.text


@pytest.mark.parametrize("pair_mode", ["cross", "siamese"])
@pytest.mark.parametrize("stem", STEMS)
def test_a_classifier_makes_no_room_for_padding(stem: str, pair_mode: str) -> None:
    model = tiny_model(stem, "ForSequenceClassification", pair_mode=pair_mode, type_vocab_size=2).eval()
    outputs: list[Any] = []
    model.model.register_forward_hook(lambda module, args, output: outputs.append(output))
    inputs = {"attention_mask": torch.ones_like(IDS).tril(2), "token_type_ids": torch.ones_like(IDS).triu(2)}
    logits = model(IDS, **inputs).logits
    assert outputs[0].last_hidden_state is None
    whole = model.model(IDS, **inputs)
    assert whole.last_hidden_state.shape[:2] == IDS.shape
    assert torch.equal(whole.pooler_output, outputs[0].pooler_output)
    recorded = model(IDS, **inputs, output_hidden_states=True)
    assert recorded.hidden_states[-1].shape[:2] == IDS.shape
    torch.testing.assert_close(recorded.logits, logits)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
@pytest.mark.parametrize("stem", STEMS)
def test_an_empty_batch_is_refused(stem: str, shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(list(shape)))):
        tiny_model(stem)(torch.zeros(shape, dtype=torch.long))


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("options", [{}, {"backbone_config": tiny_bert()}], ids=["random", "contextual"])
@pytest.mark.parametrize("stem", STEMS)
def test_a_batch_of_nothing_but_padding_gives_zeros(stem: str, options: dict[str, Any], recorded: bool) -> None:
    model = tiny_model(stem, **options)
    output = model(IDS, attention_mask=torch.zeros_like(IDS), output_hidden_states=recorded)
    assert output.last_hidden_state.shape == (2, 5, 8)
    assert not output.last_hidden_state.any()
    assert not output.pooler_output.any()


PADDED = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
HARMLESS = {
    "positions": {"position_ids": PADDED.cumsum(1) - 1},
    "ids": {"input_ids": IDS.masked_fill(PADDED == 0, -100)},
    "types": {"token_type_ids": PADDED - 1},
}


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("inputs", HARMLESS.values(), ids=HARMLESS.keys())
@pytest.mark.parametrize("stem", STEMS)
def test_padding_may_hold_any_number(stem: str, inputs: dict[str, torch.Tensor], recorded: bool) -> None:
    model = tiny_model(stem, "ForTokenClassification", type_vocab_size=2, use_crf=True, **LEARNED)
    expected = model(IDS, PADDED, output_hidden_states=recorded).logits
    actual = model(**{"input_ids": IDS, **inputs}, attention_mask=PADDED, output_hidden_states=recorded).logits
    assert torch.equal(actual[PADDED == 1], expected[PADDED == 1])


@pytest.mark.parametrize("stem", STEMS)
def test_padding_may_hold_any_number_in_an_exported_graph_too(stem: str) -> None:
    model = tiny_model(stem, "Model", type_vocab_size=2, **LEARNED)
    # One tensor under two names would be one input.
    inputs = {"input_ids": IDS, "attention_mask": PADDED, "token_type_ids": PADDED + 0, "position_ids": PADDED + 1}
    graph = torch.export.export(model, (), inputs, strict=False).module()
    strange = {name: x if name == "attention_mask" else x.masked_fill(PADDED == 0, -1) for name, x in inputs.items()}
    assert torch.equal(graph(**strange).last_hidden_state, graph(**inputs).last_hidden_state)


@pytest.mark.parametrize("recorded", ["nothing", "output_hidden_states", "output_attentions"])
@pytest.mark.parametrize("strange", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("stem", STEMS)
def test_vectors_at_padding_reach_neither_outputs_nor_gradients(stem: str, strange: float, recorded: str) -> None:
    model = tiny_model(stem, "Model", embedding_size=5)
    plain = torch.randn(2, 5, 5)
    given = plain.masked_fill(PADDED[..., None] == 0, strange)
    asked = {} if recorded == "nothing" else {recorded: True}
    results = []
    for vectors in (plain, given):
        model.zero_grad()
        output = model(inputs_embeds=vectors, attention_mask=PADDED, **asked)
        (output.last_hidden_state.sum() + output.pooler_output.sum()).backward()
        results.append([output.pooler_output, *(p.grad for p in model.parameters() if p.grad is not None)])
    for expected, actual in zip(*results, strict=True):
        assert torch.equal(actual, expected)


@pytest.mark.parametrize("stem", STEMS)
def test_positions_of_one_row_are_those_of_all(stem: str) -> None:
    model, positions = tiny_model(stem, **LEARNED), torch.tensor([[3, 1, 4, 0, 5]])
    expected = model(IDS, position_ids=positions.expand(2, 5)).last_hidden_state
    assert torch.equal(model(IDS, position_ids=positions).last_hidden_state, expected)


# ------ labels


def head(ending: str, **options: Any) -> Any:
    return tiny_model("StarTransformer", ending, **options)


TAGS = IDS % 3
BAD_LABELS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "too many classes": ("ForSequenceClassification", {}, {"labels": TAGS[0, :3]}, "[3]"),
    "an unknown class": ("ForSequenceClassification", {}, {"labels": torch.tensor([0, 3])}, "3"),
    "a negative class": ("ForSequenceClassification", {}, {"labels": torch.tensor([0, -1])}, "-1"),
    "whole numbers for each class": (
        "ForSequenceClassification",
        {},
        {"labels": torch.tensor([[0, 1, 0], [1, 0, 0]])},
        "[2, 3]",
    ),
    "floats for classes": ("ForSequenceClassification", {}, {"labels": torch.tensor([0.0, 1.0])}, "[2]"),
    "floats where classes are expected": (
        "ForSequenceClassification",
        {"problem_type": "single_label_classification"},
        {"labels": torch.tensor([0.0, 1.0])},
        "labels",
    ),
    "numbers of other texts": ("ForSequenceClassification", {"num_labels": 1}, {"labels": torch.zeros(3)}, "[3]"),
    "labels turned round": (
        "ForSequenceClassification",
        {"problem_type": "multi_label_classification"},
        {"labels": torch.zeros(3, 2)},
        "[3, 2]",
    ),
    "tags of a shorter text": ("ForTokenClassification", {}, {"labels": TAGS[:, :4]}, "[2, 4]"),
    "tags turned round": ("ForTokenClassification", {}, {"labels": TAGS.T}, "[5, 2]"),
    "an unknown tag": ("ForTokenClassification", {}, {"labels": TAGS + 1}, "3"),
    "an unknown tag of a chain": ("ForTokenClassification", {"use_crf": True}, {"labels": TAGS + 1}, "3"),
    "a negative tag of a chain": ("ForTokenClassification", {"use_crf": True}, {"labels": TAGS - 1}, "-1"),
    "tags of a chain": ("ForTokenClassification", {"use_crf": True}, {"labels": TAGS[:, :4]}, "[2, 4]"),
    "starts of other rows": (
        "ForQuestionAnswering",
        {},
        {"start_positions": torch.zeros(3).long(), "end_positions": torch.zeros(2).long()},
        "[3]",
    ),
    "hidden tokens of a shorter text": ("ForMaskedLM", {}, {"labels": IDS[:, :4]}, "[2, 4]"),
    "an unknown hidden token": ("ForMaskedLM", {}, {"labels": IDS + 3}, "13"),
}


@pytest.mark.parametrize("case", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels_are_an_error(case: tuple[str, dict[str, Any], dict[str, Any], str]) -> None:
    ending, options, labels, named = case
    model = head(ending, **options)
    before = model.config.problem_type
    with pytest.raises((ValueError, IndexError), match=re.escape(named)):
        model(IDS, **labels)
    assert model.config.problem_type == before, "a mistake says nothing of the labels that follow"


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
@pytest.mark.parametrize("ending", ["ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"])
def test_labels_may_be_whole_numbers_of_any_size(ending: str, dtype: torch.dtype) -> None:
    model, labels = head(ending), TAGS[:, 0] if ending == "ForSequenceClassification" else TAGS
    assert torch.equal(model(IDS, labels=labels.to(dtype)).loss, model(IDS, labels=labels).loss)


# ------ embeddings from elsewhere


NARROW = {"vocab_size": 13, "embedding_size": 6, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("config", [ElectraConfig, AlbertConfig], ids=lambda config: config.model_type)
def test_vectors_are_as_wide_as_the_table_of_the_encoder_inside(config: type) -> None:
    inside = config(**NARROW, intermediate_size=16, max_position_embeddings=16)
    model = tiny_model("StarTransformer", backbone_config=inside).eval()
    embedded = model.get_input_embeddings()(IDS)
    assert embedded.shape[-1] == 6
    assert torch.equal(model(inputs_embeds=embedded).last_hidden_state, model(IDS).last_hidden_state)
    with pytest.raises(ValueError, match=words("[2, 5, 12]", "[batch, length, 6] is needed")):
        model(inputs_embeds=torch.zeros(2, 5, 12))


def test_a_configuration_file_with_a_wrong_field_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "star_transformer", "norm_position": "middle"}')
    with pytest.raises(Exception, match=words("norm_position", "post", "pre", "middle")):
        AutoConfig.from_pretrained(tmp_path)
