"""
Bad configurations and inputs: each message says what was given, what is allowed, and what to write instead.

The words that must stand in a message are matched in their order.
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

BAD_FIELDS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no heads": ({"num_attention_heads": 0}, ("num_attention_heads=0 is given", "at least 1")),
    "no width": ({"hidden_size": 0}, ("hidden_size=0 is given", "at least 1")),
    "negative width": ({"hidden_size": -6}, ("hidden_size=-6 is given", "at least 1")),
    "no layers": ({"num_hidden_layers": 0}, ("num_hidden_layers=0 is given", "at least 1")),
    "no vocabulary": ({"vocab_size": 0}, ("vocab_size=0 is given", "at least 1")),
    "no positions": ({"max_position_embeddings": 0}, ("max_position_embeddings=0 is given", "at least 1")),
    "classifier width": ({"classifier_hidden_size": 0}, ("classifier_hidden_size=0 is given", "at least 1")),
    "no width of embeddings": ({"embedding_size": 0}, ("embedding_size=0 is given", "at least 1")),
    **{
        f"no {name}": ({name: 0}, (f"{name}=0 is given", "at least 1"))
        for name in ("char_vocab_size", "char_embedding_size", "char_num_filters", "char_kernel_size")
    },
    "no characters": ({"max_char_length": 0}, ("max_char_length=0 is given", "at least 1")),
    "negative types": ({"type_vocab_size": -1}, ("type_vocab_size=-1 is given", "0 (none embedded) or more")),
    "dropout of 1": (
        {"hidden_dropout_prob": 1.0},
        ("hidden_dropout_prob=1.0 is given", "from 0 up to, not including, 1"),
    ),
    "negative dropout": ({"embedding_dropout_prob": -0.1}, ("embedding_dropout_prob=-0.1 is given", "from 0 up to")),
    "classifier dropout": ({"classifier_dropout": 2}, ("classifier_dropout=2 is given", "from 0 up to")),
    "activation": ({"hidden_act": "rellu"}, ("hidden_act='rellu' is given", "gelu", "relu", 'Did you mean "relu"?')),
    "strange activation": ({"hidden_act": "xyzzy"}, ("hidden_act='xyzzy' is given", "allowed are gelu")),
    "positions": ({"position_embedding_type": "lerned"}, ("position_embedding_type", "learned", "lerned")),
    "pairs": ({"pair_mode": "siamees"}, ("pair_mode", "cross", "siamese", "siamees")),
    "problem": ({"problem_type": "regresion"}, ("problem_type", "regresion")),
    "text for a number": ({"hidden_size": "300"}, ("hidden_size", "expected int", "'300'")),
    "fraction for a count": ({"num_attention_heads": 6.0}, ("num_attention_heads", "expected int", "6.0")),
    "text for a probability": ({"hidden_dropout_prob": "0.1"}, ("hidden_dropout_prob", "expected float", "'0.1'")),
    "number for a switch": ({"freeze_embeddings": 1}, ("freeze_embeddings", "expected bool", "1")),
    "no model type": (
        {"backbone_config": {"hidden_size": 8}},
        ("backbone_config", "without model_type", '"model_type": "bert"'),
    ),
    "labels from 1": ({"id2label": {1: "a", 2: "b"}}, ("id2label has the ids [1, 2]", "from 0", "dict(enumerate")),
    "name for a configuration": ({"backbone_config": "bert-base-cased"}, ("backbone_config", "bert-base-cased")),
    "width against the encoder inside": (
        {"backbone_config": tiny_bert(), "embedding_size": 9},
        ("embedding_size=9 is given", "12 wide", "leave embedding_size out"),
    ),
}


@pytest.mark.parametrize(("fields", "message"), BAD_FIELDS.values(), ids=BAD_FIELDS.keys())
@pytest.mark.parametrize("config_class", EVERY_CONFIG)
def test_a_bad_field_is_named_with_what_is_allowed(
    config_class: type, fields: dict[str, Any], message: tuple[str, ...]
) -> None:
    with pytest.raises(Exception, match=words(*message)):
        config_class(**fields)


@pytest.mark.parametrize(
    ("config_class", "fields", "message"),
    [
        (StarTransformerConfig, {"norm_position": "pots"}, ("norm_position", "post", "pre", "pots")),
        (StarTransformerConfig, {"use_ring": "no"}, ("use_ring", "expected bool", "'no'")),
        (StarTransformerConfig, {"head_dim": 0}, ("head_dim=0 is given", "at least 1")),
        (StarTransformerConfig, {"ring_radius": 0}, ("ring_radius=0 is given", "at least 1", "use_ring=False")),
        (StarTransformerConfig, {"num_relays": 2}, ("num_relays=2",)),
        (StarTransformerConfig, {"hidden_size": 10, "num_attention_heads": 3}, ("or set head_dim",)),
        *(
            (
                config_class,
                {"hidden_size": 10, "num_attention_heads": 3},
                ("hidden_size=10", "num_attention_heads=3", "[1, 2, 5, 10]"),
            )
            for config_class in WITH_HEADS
        ),
        *(
            (config_class, {"hidden_size": 301}, ("hidden_size=301 is given", "two directions", "hidden_size=302"))
            for config_class in WITH_DIRECTIONS
        ),
        *((config_class, {"hidden_size": -5}, ("hidden_size=-5", "at least 1")) for config_class in WITH_DIRECTIONS),
        *(
            (config_class, {"position_embedding_type": "ring"}, ("'ring' is given", "learned", "sinusoidal"))
            for config_class in WITH_DIRECTIONS
        ),
        (BiLstmConfig, {"pooling": "last"}, ("pooling", "max", "mean", "last")),
        (VanillaTransformerConfig, {"intermediate_size": 0}, ("intermediate_size=0 is given", "at least 1")),
        (BigTransformerConfig, {"intermediate_size": 0}, ("intermediate_size=0 is given", "at least 1")),
        (BigTransformerConfig, {"max_word_length": 1}, ("max_word_length=1 is given", "at least 2")),
        (BigTransformerConfig, {"local_connection": "ring"}, ("local_connection", "lexicon", "adjacent", "none")),
        (BigTransformerConfig, {"pooling": "sum"}, ("pooling", "mean", "max", "global", "sum")),
        (BigTransformerConfig, {"include_self": "no"}, ("include_self", "expected bool", "'no'")),
        (BigTransformerConfig, {"lexicon_kind": "jieba"}, ("lexicon_kind", "words", "whole_word", "jieba")),
        (
            BigTransformerConfig,
            {"lexicon_kind": "words"},
            ("lexicon_kind='words' and lexicon_size=0", "model.set_lexicon(lexicon)"),
        ),
        (BigTransformerConfig, {"lexicon_size": 8}, ("lexicon_kind=None and lexicon_size=8", "set_lexicon")),
        (BigTransformerConfig, {"lexicon_kind": "whole_word", "lexicon_size": -1}, ("lexicon_size=-1", "set_lexicon")),
        (BigTransformerConfig, {"position_embedding_type": "ring"}, ("'ring' is given", "learned", "sinusoidal")),
        (
            VanillaTransformerConfig,
            {"position_embedding_type": "ring"},
            ("'ring' is given", "learned", "sinusoidal", "none"),
        ),
    ],
)
def test_a_bad_field_of_one_encoder_is_named_with_what_is_allowed(
    config_class: type, fields: dict[str, Any], message: tuple[str, ...]
) -> None:
    with pytest.raises(Exception, match=words(*message)):
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
    with pytest.raises(ValueError, match=words("HomeMadeConfig", "no AutoModel", "AutoConfig.from_pretrained")):
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


BAD_INPUTS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "ids too large": (
        {"input_ids": IDS + 3},
        ("input_ids hold 13", "0 to 12", "resize_token_embeddings(len(tokenizer))"),
    ),
    "negative ids": ({"input_ids": IDS - 3}, ("input_ids hold -2", "0 to 12")),
    "one row without its axis": (
        {"input_ids": IDS[0]},
        ("input_ids has shape [5]", "[batch, length]", "input_ids[None]"),
    ),
    "an axis too many": ({"input_ids": IDS[None]}, ("input_ids has shape [1, 2, 5]", "[batch, length]")),
    "long mask": (
        {"input_ids": IDS, "attention_mask": torch.ones(2, 6)},
        ("attention_mask has shape [2, 6]", "[2, 5] is needed", "tokenizer(texts, padding=True"),
    ),
    "mask without its axis": (
        {"input_ids": IDS, "attention_mask": torch.ones(5)},
        ("attention_mask has shape [5]", "[2, 5] is needed"),
    ),
    "mask of pairs": (
        {"input_ids": IDS, "attention_mask": torch.ones(2, 5, 5)},
        ("attention_mask has shape [2, 5, 5]", "[2, 5] is needed"),
    ),
    "mask that is added to scores": (
        {"input_ids": IDS, "attention_mask": torch.zeros(2, 5).masked_fill(IDS > 8, float("-inf"))},
        ("attention_mask holds -inf", "1 at real tokens and 0 at padding", "(attention_mask == 0).long()"),
    ),
    "mask of whole numbers that is added to scores": (
        {"input_ids": IDS, "attention_mask": (IDS > 8) * -10000},
        ("attention_mask holds -10000", "1 at real tokens and 0 at padding"),
    ),
    "types": (
        {"input_ids": IDS, "token_type_ids": torch.zeros(2, 4, dtype=torch.long)},
        ("token_type_ids has shape [2, 4]", "[2, 5] is needed"),
    ),
    "positions": (
        {"input_ids": IDS, "position_ids": torch.arange(5)},
        ("position_ids has shape [5]", "[2, 5] is needed"),
    ),
    "positions beyond the table": (
        {"input_ids": IDS, "position_ids": torch.arange(14, 19).expand(2, 5)},
        ("position_ids hold 18", "0 to 15"),
    ),
    "types beyond the table": (
        {"input_ids": IDS, "token_type_ids": torch.full((2, 5), 2)},
        ("token_type_ids hold 2", "0 to 1"),
    ),
    "ids and vectors": (
        {"input_ids": IDS, "inputs_embeds": torch.zeros(2, 5, 8)},
        ("either input_ids or inputs_embeds",),
    ),
    "neither": ({}, ("either input_ids or inputs_embeds", "model(input_ids=...)")),
    "width of the vectors": (
        {"inputs_embeds": torch.zeros(2, 5, 7)},
        ("inputs_embeds has shape [2, 5, 7]", "[batch, length, 8] is needed"),
    ),
    "vectors without an axis": (
        {"inputs_embeds": torch.zeros(5, 8)},
        ("inputs_embeds has shape [5, 8]", "[batch, length, 8] is needed"),
    ),
    "too long": (
        {"input_ids": torch.ones(1, 17, dtype=torch.long)},
        ("17 tokens", "max_position_embeddings allows 16", "max_length=16", "stride=4", "sinusoidal"),
    ),
}


@pytest.mark.parametrize("ending", ["Model", "ForTokenClassification"])
@pytest.mark.parametrize(("inputs", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
@pytest.mark.parametrize("stem", STEMS)
def test_a_bad_input_is_named_with_what_is_needed(
    stem: str, inputs: dict[str, torch.Tensor], message: tuple[str, ...], ending: str
) -> None:
    model = tiny_model(stem, ending, type_vocab_size=2, **LEARNED)
    with pytest.raises((ValueError, IndexError), match=words(*message)):
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
    with pytest.raises(ValueError, match="the xlnet inside takes none: leave them out"):
        xlnet_inside()(IDS, position_ids=torch.arange(5)[None])


def test_an_encoder_inside_may_have_no_limit() -> None:
    assert xlnet_inside()(torch.ones(1, 40, dtype=torch.long)).last_hidden_state.isfinite().all()


def xlnet_inside() -> Any:
    inside = XLNetConfig(vocab_size=TINY["vocab_size"], d_model=12, n_head=2, n_layer=1, d_inner=16)
    return tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


def test_an_encoder_with_a_decoder_is_none_to_stand_inside() -> None:
    inside = BartConfig(vocab_size=TINY["vocab_size"], d_model=12, encoder_layers=1, decoder_layers=1)
    with pytest.raises(ValueError, match=r"a BartConfig, of an encoder with a decoder.*an encoder alone"):
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
    message = ("siamese", "token_type_ids", "none are given", "tokenizer(first, second", "return_token_type_ids=True")
    with pytest.raises(ValueError, match=words(*message)):
        tiny_model(stem, ending, pair_mode="siamese")(IDS)


def test_siamese_pairs_of_which_none_has_a_second_text_are_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("modeling_star"), "propagate", True)
    model, types = tiny_model("StarTransformer", pair_mode="siamese", type_vocab_size=0), torch.zeros_like(IDS)
    logger = logging.getLogger("modeling_star.models.modeling_encoder")
    type(logger).warning_once.cache_clear()
    model(IDS, token_type_ids=types.index_fill(1, torch.tensor([IDS.shape[1] - 1]), 1))
    assert "empty second text" not in caplog.text
    model(IDS, token_type_ids=types)
    assert "reads an empty second text in every row" in caplog.text


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
    with pytest.raises(ValueError, match=words(str(list(shape)), "at least one row and one column are needed")):
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
def test_what_stands_at_padding_may_be_any_number(stem: str, inputs: dict[str, torch.Tensor], recorded: bool) -> None:
    model = tiny_model(stem, "ForTokenClassification", type_vocab_size=2, use_crf=True, **LEARNED)
    expected = model(IDS, PADDED, output_hidden_states=recorded).logits
    actual = model(**{"input_ids": IDS, **inputs}, attention_mask=PADDED, output_hidden_states=recorded).logits
    assert torch.equal(actual[PADDED == 1], expected[PADDED == 1])


@pytest.mark.parametrize("stem", STEMS)
def test_what_stands_at_padding_may_be_any_number_in_an_exported_graph_too(stem: str) -> None:
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
BAD_LABELS: dict[str, tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "too many classes": ("ForSequenceClassification", {}, {"labels": TAGS[0, :3]}, ("[3]", "[2] is needed")),
    "an unknown class": (
        "ForSequenceClassification",
        {},
        {"labels": torch.tensor([0, 3])},
        ("A label is 3", "0 to 2"),
    ),
    "a negative class": ("ForSequenceClassification", {}, {"labels": torch.tensor([0, -1])}, ("A label is -1",)),
    "whole numbers for each class": (
        "ForSequenceClassification",
        {},
        {"labels": torch.tensor([[0, 1, 0], [1, 0, 0]])},
        ("labels have shape [2, 3]", "[2] is needed", "float labels"),
    ),
    "floats for classes": (
        "ForSequenceClassification",
        {},
        {"labels": torch.tensor([0.0, 1.0])},
        ("labels have shape [2]", "float32", "multi_label_classification [2, 3] is needed", "labels.long()"),
    ),
    "floats where classes are expected": (
        "ForSequenceClassification",
        {"problem_type": "single_label_classification"},
        {"labels": torch.tensor([0.0, 1.0])},
        ("labels are torch.float32", "labels.long()"),
    ),
    "numbers of other texts": (
        "ForSequenceClassification",
        {"num_labels": 1},
        {"labels": torch.zeros(3)},
        ("labels have shape [3]", "regression [2] or [2, 1] is needed"),
    ),
    "labels turned round": (
        "ForSequenceClassification",
        {"problem_type": "multi_label_classification"},
        {"labels": torch.zeros(3, 2)},
        ("labels have shape [3, 2]", "[2, 3] is needed"),
    ),
    "tags of a shorter text": (
        "ForTokenClassification",
        {},
        {"labels": TAGS[:, :4]},
        ("labels have shape [2, 4]", "[2, 5] is needed", "a label for each token"),
    ),
    "tags turned round": ("ForTokenClassification", {}, {"labels": TAGS.T}, ("[5, 2]", "[2, 5] is needed")),
    "an unknown tag": ("ForTokenClassification", {}, {"labels": TAGS + 1}, ("A label is 3", "-100 for none")),
    "an unknown tag of a chain": (
        "ForTokenClassification",
        {"use_crf": True},
        {"labels": TAGS + 1},
        ("A label is 3", "-100 for none"),
    ),
    "a negative tag of a chain": (
        "ForTokenClassification",
        {"use_crf": True},
        {"labels": TAGS - 1},
        ("A label is -1", "0 to 2"),
    ),
    "tags of a chain": (
        "ForTokenClassification",
        {"use_crf": True},
        {"labels": TAGS[:, :4]},
        ("labels have shape [2, 4]", "[2, 5] is needed"),
    ),
    "a tag mask of one row": (
        "ForTokenClassification",
        {"use_crf": True},
        {"tag_mask": torch.ones(1, 5)},
        ("tag_mask has shape [1, 5]", "[2, 5] is needed"),
    ),
    "starts of other rows": (
        "ForQuestionAnswering",
        {},
        {"start_positions": torch.zeros(3).long(), "end_positions": torch.zeros(2).long()},
        ("start_positions or end_positions have shape [3]", "[2] is needed"),
    ),
    "hidden tokens of a shorter text": ("ForMaskedLM", {}, {"labels": IDS[:, :4]}, ("[2, 4]", "[2, 5] is needed")),
    "an unknown hidden token": ("ForMaskedLM", {}, {"labels": IDS + 3}, ("A label is 13", "0 to 12")),
}


@pytest.mark.parametrize("case", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels_are_named_with_what_is_needed(
    case: tuple[str, dict[str, Any], dict[str, Any], tuple[str, ...]],
) -> None:
    ending, options, labels, message = case
    model = head(ending, **options)
    before = model.config.problem_type
    with pytest.raises((ValueError, IndexError), match=words(*message)):
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


@pytest.mark.parametrize("name", ["vocab_size", "embedding_size"])
def test_sizes_of_embeddings_are_those_of_their_source(name: str, tmp_path: Path) -> None:
    AutoModel.from_config(tiny_bert()).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=words(f"{name}=5 is given", f"whose {name} is 1", "leave it out")):
        modeling_star.StarTransformerForTokenClassification.from_embeddings(
            tmp_path, **{"hidden_size": 8, "num_attention_heads": 2, name: 5}
        )


def test_a_configuration_file_with_a_wrong_field_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "star_transformer", "norm_position": "middle"}')
    with pytest.raises(Exception, match=words("norm_position", "post", "pre", "middle")):
        AutoConfig.from_pretrained(tmp_path)
