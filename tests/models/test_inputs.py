"""Bad configurations, inputs and labels are refused by name; padding may hold anything."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, tiny_bert, tiny_model, words
from huggingface_hub.errors import StrictDataclassFieldValidationError
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

BAD_FIELDS: tuple[tuple[type, dict[str, Any]], ...] = (
    *(
        (StarTransformerConfig, {name: 0})
        for name in (
            *("num_attention_heads", "hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings"),
            *("classifier_hidden_size", "embedding_size", "char_vocab_size", "char_embedding_size"),
            *("char_num_filters", "char_kernel_size", "max_char_length", "head_dim", "ring_radius"),
        )
    ),
    (StarTransformerConfig, {"hidden_size": -6}),
    (StarTransformerConfig, {"type_vocab_size": -1}),
    (StarTransformerConfig, {"char_kernel_size": 4}),
    (StarTransformerConfig, {"hidden_dropout_prob": 1.0}),
    (StarTransformerConfig, {"embedding_dropout_prob": -0.1}),
    (StarTransformerConfig, {"classifier_dropout": 2}),
    (StarTransformerConfig, {"hidden_act": "rellu"}),
    (StarTransformerConfig, {"position_embedding_type": "lerned"}),
    (StarTransformerConfig, {"pair_mode": "siamees"}),
    (StarTransformerConfig, {"hidden_size": "300"}),
    (StarTransformerConfig, {"num_attention_heads": 6.0}),
    (StarTransformerConfig, {"hidden_dropout_prob": "0.1"}),
    (StarTransformerConfig, {"freeze_embeddings": 1}),
    (StarTransformerConfig, {"backbone_config": {"hidden_size": 8}}),
    (StarTransformerConfig, {"backbone_config": "bert-base-cased"}),
    (StarTransformerConfig, {"embedding_size": 9, "backbone_config": tiny_bert()}),
    (StarTransformerConfig, {"id2label": {1: "a", 2: "b"}}),
    (StarTransformerConfig, {"crf_constraints": "iob2"}),
    (StarTransformerConfig, {"norm_position": "pots"}),
    (StarTransformerConfig, {"num_relays": 2}),
    *((config, {"num_attention_heads": 3, "hidden_size": 10}) for config in WITH_HEADS),
    *((config, {"hidden_size": 301}) for config in WITH_DIRECTIONS),
    *((config, {"position_embedding_type": "ring"}) for config in EVERY_CONFIG if config is not StarTransformerConfig),
    (BiLstmConfig, {"pooling": "last"}),
    (VanillaTransformerConfig, {"intermediate_size": 0}),
    (BigTransformerConfig, {"intermediate_size": 0}),
    (BigTransformerConfig, {"max_word_length": 1}),
    (BigTransformerConfig, {"local_connection": "ring"}),
    (BigTransformerConfig, {"include_self": "no"}),
    (BigTransformerConfig, {"lexicon_kind": "words"}),
    (BigTransformerConfig, {"lexicon_size": 8}),
)


@pytest.mark.parametrize(
    ("config_class", "fields"), BAD_FIELDS, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_bad_field_is_named(config_class: type, fields: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=next(iter(fields))):
        config_class(**fields)


FORMER_NAMES = {
    "char_hidden_size": "char_num_filters",
    "position_base": "sinusoidal_base",
    "self_word": "include_self",
}


@pytest.mark.parametrize(
    ("former", "name", "value"), [(*names, 0 if names[0] == "self_word" else 7) for names in FORMER_NAMES.items()]
)
def test_former_names_of_fields_are_read(
    former: str, name: str, value: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = bool(value) if name == "include_self" else value
    config = BigTransformerConfig(**{former: given})
    assert getattr(config, name) == getattr(config, former) == given
    assert former not in config.to_dict()
    saved = {name: value for name, value in config.to_dict().items() if name not in FORMER_NAMES.values()}
    (tmp_path / "config.json").write_text(
        json.dumps({**saved, former: given, "model_type": "big_transformer"}, default=str)
    )
    default = getattr(BigTransformerConfig(), name)
    assert getattr(AutoConfig.from_pretrained(tmp_path), name) == given
    for override in (former, name):
        assert getattr(AutoConfig.from_pretrained(tmp_path, **{override: default}), name) == default
    model = modeling_star.BigTransformerModel(BigTransformerConfig(**TINY))
    model.save_pretrained(tmp_path)
    assert (
        getattr(modeling_star.BigTransformerModel.from_pretrained(tmp_path, **{former: given}).config, name) == given
    )
    with pytest.raises(StrictDataclassFieldValidationError, match=name):
        BigTransformerConfig(**{former: "x"})
    assert "no field" not in caplog.text


def test_a_saved_star_of_one_relay_loads_silently(caplog: pytest.LogCaptureFixture) -> None:
    assert "num_relays" not in StarTransformerConfig.from_dict({"num_relays": 1}).to_dict()
    assert not caplog.records


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


def test_keys_of_transformers_are_not_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    labels = {"num_labels": 2, "id2label": {0: "a", 1: "b"}, "label2id": {"a": 0, "b": 1}}
    library = {"output_attentions": True, "return_dict": True, "architectures": ["X"], "torch_dtype": "float32"}
    library |= {"attn_implementation": "eager", "name_or_path": "here", "finetuning_task": "ner", "use_cache": False}
    with caplog.at_level(logging.WARNING):
        StarTransformerConfig(**labels, **library, auto_map={}, transformers_version="5.0.0")
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
    inside = StarTransformerConfig(backbone_config=given).backbone_config
    inside.hidden_dropout_prob = 0.5
    assert (given.name_or_path, given.hidden_dropout_prob) == ("somewhere", 0.0)


@pytest.mark.parametrize("stem", STEMS)
def test_the_vocabulary_is_that_of_the_encoder_inside(stem: str) -> None:
    # 13 ids are known to the BERT inside; the configuration says nothing of its own.
    fields = {name: value for name, value in TINY.items() if name != "vocab_size"}
    model = class_of(stem, "Model")(class_of(stem, "Model").config_class(backbone_config=tiny_bert(), **fields))
    with pytest.raises(IndexError, match="input_ids hold 13; 0 to 12"):
        model(IDS + 3)


# ------ inputs


ADDITIVE = torch.zeros(2, 5).masked_fill(IDS > 8, float("-inf"))
BAD_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "ids too large": ({"input_ids": IDS + 3}, "input_ids hold 13; 0 to 12"),
    "negative ids": ({"input_ids": IDS - 3}, "input_ids hold -2"),
    "one row without its axis": ({"input_ids": IDS[0]}, r"\[5\]"),
    "an axis too many": ({"input_ids": IDS[None]}, r"\[1, 2, 5\]"),
    "no rows": ({"input_ids": IDS[:0]}, r"\[0, 5\]"),
    "no columns": ({"input_ids": IDS[:, :0]}, r"\[2, 0\]"),
    "long mask": ({"input_ids": IDS, "attention_mask": torch.ones(2, 6)}, "attention_mask has shape"),
    "mask without its axis": ({"input_ids": IDS, "attention_mask": torch.ones(5)}, "attention_mask has shape"),
    "mask of pairs": ({"input_ids": IDS, "attention_mask": torch.ones(2, 5, 5)}, "attention_mask has shape"),
    "additive mask": ({"input_ids": IDS, "attention_mask": ADDITIVE}, "attention_mask holds -inf"),
    "additive mask of integers": (
        {"input_ids": IDS, "attention_mask": (IDS > 8) * -10000},
        "attention_mask holds -10000",
    ),
    "types": ({"input_ids": IDS, "token_type_ids": IDS[:, :4]}, "token_type_ids has shape"),
    "positions": ({"input_ids": IDS, "position_ids": torch.arange(5)}, "position_ids has shape"),
    "positions beyond the table": ({"input_ids": IDS, "position_ids": IDS + 14}, "position_ids hold 24; 0 to 15"),
    "types beyond the table": ({"input_ids": IDS, "token_type_ids": IDS % 3}, "token_type_ids hold 2; 0 to 1"),
    "ids and vectors": (
        {"input_ids": IDS, "inputs_embeds": torch.zeros(2, 5, 8)},
        "either input_ids or inputs_embeds",
    ),
    "neither": ({}, "either input_ids or inputs_embeds"),
    "width of the vectors": ({"inputs_embeds": torch.zeros(2, 5, 7)}, r"\[2, 5, 7\]"),
    "vectors without an axis": ({"inputs_embeds": torch.zeros(5, 8)}, r"\[5, 8\]"),
    "too long": ({"input_ids": torch.ones(1, 17, dtype=torch.long)}, "max_position_embeddings allows 16"),
}


@pytest.mark.parametrize(("inputs", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
@pytest.mark.parametrize("ending", ["Model", "ForTokenClassification"])
def test_a_bad_input_is_named(inputs: dict[str, torch.Tensor], message: str, ending: str) -> None:
    model = tiny_model("StarTransformer", ending, type_vocab_size=2, **LEARNED)
    with pytest.raises((ValueError, IndexError), match=message):
        model(**inputs)


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
    with pytest.raises(ValueError, match="xlnet"):
        xlnet_inside()(IDS, position_ids=torch.arange(5)[None])


def test_an_encoder_inside_may_have_no_limit() -> None:
    assert xlnet_inside()(torch.ones(1, 40, dtype=torch.long)).last_hidden_state.isfinite().all()


def xlnet_inside() -> Any:
    inside = XLNetConfig(vocab_size=TINY["vocab_size"], d_model=12, n_head=2, n_layer=1, d_inner=16)
    return tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


def test_an_encoder_with_a_decoder_cannot_be_inside() -> None:
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
    with pytest.raises(IndexError, match="token_type_ids hold 2; 0 to 1"):
        model(IDS, token_type_ids=torch.tensor([[0, 0, 1, 1, 2]] * 2))


def test_a_type_that_the_encoder_inside_does_not_have_is_named() -> None:
    model = tiny_model("StarTransformer", backbone_config=tiny_bert(), position_embedding_type="none")
    with pytest.raises(IndexError, match="token_type_ids hold 2; 0 to 1"):
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


@pytest.mark.parametrize("limit", [16, 12, 40])
def test_the_encoder_inside_limits_the_length(limit: int) -> None:
    model = tiny_model("StarTransformer", backbone_config=tiny_bert(), max_position_embeddings=limit, **LEARNED)
    with pytest.raises(
        ValueError, match=f"{'max_position' if limit == 12 else 'bert inside'}.* allows {min(limit, 16)}"
    ):
        model(torch.ones(1, 17, dtype=torch.long))


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


def test_siamese_pairs_need_token_types() -> None:
    with pytest.raises(ValueError, match="token_type_ids"):
        tiny_model("StarTransformer", pair_mode="siamese")(IDS)


def test_siamese_pairs_without_any_second_text_are_warned_about(warnings_of: Any) -> None:
    model, types = tiny_model("StarTransformer", pair_mode="siamese", type_vocab_size=0), torch.zeros_like(IDS)
    assert not warnings_of(model, input_ids=IDS, token_type_ids=types.index_fill(1, torch.tensor([4]), 1))
    [message] = warnings_of(model, input_ids=IDS, token_type_ids=types)
    assert "token_type_ids" in message


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
    requested = {} if recorded == "nothing" else {recorded: True}
    results = []
    for vectors in (plain, given):
        model.zero_grad()
        output = model(inputs_embeds=vectors, attention_mask=PADDED, **requested)
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
SEQUENCE, TOKEN = "ForSequenceClassification", "ForTokenClassification"
BAD_LABELS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "too many classes": (SEQUENCE, {}, {"labels": TAGS[0, :3]}),
    "an unknown class": (SEQUENCE, {}, {"labels": torch.tensor([0, 3])}),
    "a negative class": (SEQUENCE, {}, {"labels": torch.tensor([0, -1])}),
    "whole numbers for each class": (SEQUENCE, {}, {"labels": torch.tensor([[0, 1, 0], [1, 0, 0]])}),
    "floats for classes": (SEQUENCE, {}, {"labels": torch.tensor([0.0, 1.0])}),
    "numbers of other texts": (SEQUENCE, {"num_labels": 1}, {"labels": torch.zeros(3)}),
    "transposed labels": (SEQUENCE, {"problem_type": "multi_label_classification"}, {"labels": torch.zeros(3, 2)}),
    "tags of a shorter text": (TOKEN, {}, {"labels": TAGS[:, :4]}),
    "transposed tags": (TOKEN, {}, {"labels": TAGS.T}),
    "floats for tags": (TOKEN, {}, {"labels": TAGS.float()}),
    "an unknown tag": (TOKEN, {}, {"labels": TAGS + 1}),
    "an unknown tag of a chain": (TOKEN, {"use_crf": True}, {"labels": TAGS + 1}),
    "a negative tag of a chain": (TOKEN, {"use_crf": True}, {"labels": TAGS - 1}),
    "tags of a shorter chain": (TOKEN, {"use_crf": True}, {"labels": TAGS[:, :4]}),
    "starts of other rows": (
        "ForQuestionAnswering",
        {},
        {"start_positions": torch.zeros(3).long(), "end_positions": torch.zeros(2).long()},
    ),
    "hidden tokens of a shorter text": ("ForMaskedLM", {}, {"labels": IDS[:, :4]}),
    "an unknown hidden token": ("ForMaskedLM", {}, {"labels": IDS + 3}),
}


@pytest.mark.parametrize("case", BAD_LABELS.values(), ids=BAD_LABELS.keys())
def test_bad_labels_are_refused_and_do_not_set_the_problem_type(
    case: tuple[str, dict[str, Any], dict[str, Any]],
) -> None:
    ending, options, labels = case
    model = head(ending, **options)
    before = model.config.problem_type
    with pytest.raises((ValueError, IndexError)):
        model(IDS, **labels)
    assert model.config.problem_type == before


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
    with pytest.raises(ValueError, match=r"\[batch, length, 6\]"):
        model(inputs_embeds=torch.zeros(2, 5, 12))
