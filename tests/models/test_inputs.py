"""Bad configurations, inputs and labels are errors that name them; unusual but valid ones work."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from common import TINY, tiny_bert, tiny_model
from huggingface_hub.errors import StrictDataclassError
from samples import STEMS
from transformers import AlbertConfig, AutoConfig, AutoModel, BartConfig, BertConfig, ElectraConfig, XLNetConfig

import modeling_star
from modeling_star import (
    BigTransformerConfig,
    BiLstmConfig,
    DisanConfig,
    StarTransformerConfig,
    VanillaTransformerConfig,
)
from modeling_star.models.backbone import FROM_PADDING
from modeling_star.models.configuration_encoder import EncoderConfig
from modeling_star.models.modeling_encoder import longest_input


IDS = torch.tensor([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])

# Positions of a limited length; some encoders have unlimited ones by default.
LEARNED = {"position_embedding_type": "learned"}


# ------ configurations


WITH_HEADS = (StarTransformerConfig, BigTransformerConfig, VanillaTransformerConfig)
WITH_DIRECTIONS = (DisanConfig, BiLstmConfig)
EVERY_CONFIG = (*WITH_HEADS, *WITH_DIRECTIONS)

# The last field of each is the wrong one.
SHARED_BAD_FIELDS: list[dict[str, Any]] = [
    {"ngram_buckets": -1},
    {"max_ngram_length": 10**12},
    {"ngram_dropout": 1.0},
    *({name: 0} for name in EncoderConfig.sizes),
    {"type_vocab_size": -1},
    {"hidden_dropout_prob": 1.0},
    {"embedding_dropout_prob": -0.1},
    {"classifier_dropout": 2},
    {"hidden_act": "rellu"},
    {"head_act": "rellu"},
    {"position_embedding_type": "lerned"},
    {"pair_mode": "siamees"},
    {"hidden_size": "300"},
    {"freeze_embeddings": 1},
    {"char_kernel_size": 4},
    {"id2label": {1: "a", 2: "b"}},
    {"backbone_config": {"hidden_size": 8}},
    {"backbone_config": "bert-base-cased"},
    {"backbone_config": tiny_bert(), "embedding_size": 9},
]
BAD_FIELDS: list[tuple[type, dict[str, Any]]] = [
    *((StarTransformerConfig, fields) for fields in SHARED_BAD_FIELDS),
    # One per way of checking, for every encoder.
    *((each, {"num_hidden_layers": 0}) for each in EVERY_CONFIG if each is not VanillaTransformerConfig),
    (VanillaTransformerConfig, {"num_hidden_layers": -1}),
    *((each, {"num_hidden_layers": 10**12}) for each in EVERY_CONFIG),
    *((each, {"pair_mode": "siamees"}) for each in EVERY_CONFIG),
    *((each, {"num_attention_heads": 3, "hidden_size": 10}) for each in WITH_HEADS),
    *((each, {"hidden_size": 301}) for each in WITH_DIRECTIONS),
    *((each, {"position_embedding_type": "ring"}) for each in EVERY_CONFIG if each is not StarTransformerConfig),
    (StarTransformerConfig, {"pooling": "maxx"}),
    (StarTransformerConfig, {"head_dim": 0}),
    (StarTransformerConfig, {"ring_radius": 0}),
    (StarTransformerConfig, {"ring_radius": 10**12}),
    (BiLstmConfig, {"pooling": "last"}),
    (VanillaTransformerConfig, {"intermediate_size": 0}),
    (BigTransformerConfig, {"intermediate_size": 0}),
    (BigTransformerConfig, {"max_word_length": 1}),
    (BigTransformerConfig, {"max_word_length": 10**12}),
    (BigTransformerConfig, {"window_radius": 10**12}),
    (BigTransformerConfig, {"local_connection": "ring"}),
    (BigTransformerConfig, {"lexicon_kind": "jieba"}),
    (BigTransformerConfig, {"lexicon_kind": "words"}),
    (BigTransformerConfig, {"lexicon_size": 8}),
    (BigTransformerConfig, {"lexicon_kind": "whole_word", "lexicon_size": -1}),
]


@pytest.mark.parametrize(
    ("config_class", "fields"), BAD_FIELDS, ids=lambda x: str(list(x)[-1]) if type(x) is dict else x.__name__
)
def test_a_bad_field_is_an_error(config_class: type, fields: dict[str, Any]) -> None:
    with pytest.raises((ValueError, StrictDataclassError), match=list(fields)[-1]):
        config_class(**fields)


@pytest.mark.parametrize(
    ("given", "meant"), [("hiden_size", "hidden_size"), ("num_layers", "num_hidden_layers"), ("xyzzy", None)]
)
def test_an_unknown_key_is_warned_about(given: str, meant: str | None, caplog: pytest.LogCaptureFixture) -> None:
    StarTransformerConfig(**{given: 1})
    [record] = caplog.records
    assert f"'{given}'" in record.message
    assert meant is None or f'"{meant}"' in record.message


def test_a_backbone_that_transformers_cannot_build_is_an_error() -> None:
    class HomeMadeConfig(BertConfig):
        model_type = "home_made"

    config = StarTransformerConfig(backbone_config=HomeMadeConfig(), hidden_size=8, num_attention_heads=2)
    with pytest.raises(ValueError, match="HomeMadeConfig"):
        modeling_star.StarTransformerModel(config)


def test_the_configuration_of_a_backbone_is_copied() -> None:
    given = tiny_bert()
    given.name_or_path = "somewhere"
    copied = StarTransformerConfig(backbone_config=given).backbone_config
    copied.hidden_dropout_prob = 0.5
    assert (given.name_or_path, given.hidden_dropout_prob) == ("somewhere", 0.0)


def test_the_vocabulary_is_that_of_the_backbone() -> None:
    fields = {name: value for name, value in TINY.items() if name != "vocab_size"}
    assert all(config(backbone_config=tiny_bert(), **fields).vocab_size == 13 for config in EVERY_CONFIG)


# ------ inputs


BAD_INPUTS: dict[str, tuple[dict[str, Any], str]] = {
    "ids too large": ({"input_ids": IDS + 3}, "13"),
    "negative ids": ({"input_ids": IDS - 3}, "-2"),
    "one row without its axis": ({"input_ids": IDS[0]}, "[5]"),
    "an axis too many": ({"input_ids": IDS[None]}, "[1, 2, 5]"),
    "long mask": ({"input_ids": IDS, "attention_mask": torch.ones(2, 6)}, "[2, 6]"),
    "mask without its axis": ({"input_ids": IDS, "attention_mask": torch.ones(5)}, "[5]"),
    "mask of pairs": ({"input_ids": IDS, "attention_mask": torch.ones(2, 5, 5)}, "[2, 5, 5]"),
    "additive mask": (
        {"input_ids": IDS, "attention_mask": torch.zeros(2, 5).masked_fill(IDS > 8, float("-inf"))},
        "-inf",
    ),
    "additive mask of integers": (
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


@pytest.mark.parametrize(("inputs", "named"), BAD_INPUTS.values(), ids=BAD_INPUTS.keys())
def test_a_bad_input_is_an_error_that_names_it(inputs: dict[str, torch.Tensor], named: str) -> None:
    model = tiny_model("StarTransformer", type_vocab_size=2, **LEARNED)
    with pytest.raises((ValueError, IndexError), match=re.escape(named)):
        model(**inputs)


@pytest.mark.parametrize("case", ["ids too large", "long mask", "too long"])
@pytest.mark.parametrize("stem", STEMS)
def test_every_encoder_and_head_checks_its_inputs(stem: str, case: str) -> None:
    inputs, named = BAD_INPUTS[case]
    for ending, recorded in (("Model", True), ("ForTokenClassification", False)):
        model = tiny_model(stem, ending, type_vocab_size=2, **LEARNED)
        with pytest.raises((ValueError, IndexError), match=re.escape(named)):
            model(**inputs, output_hidden_states=recorded)


INSIDE = {
    **{"vocab_size": TINY["vocab_size"], "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"intermediate_size": 16, "max_position_embeddings": 16},
}


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_positions_reach_the_backbone(kind: str) -> None:
    config = AutoConfig.for_model(kind, pad_token_id=1, **INSIDE)
    model = tiny_model("StarTransformer", backbone_config=config, position_embedding_type="none").eval()
    positions = torch.tensor([4, 2, 0, 1, 3])
    inside = model.embeddings.backbone
    expected = inside(IDS, position_ids=positions[None] + (2 if kind == "roberta" else 0)).last_hidden_state
    embedded = model(IDS, position_ids=positions[None], output_hidden_states=True).hidden_states[0]
    projected = model.embeddings.projection(expected)
    torch.testing.assert_close(embedded, projected)
    # Padding on the left moves no position.
    shifted = [torch.nn.functional.pad(x, (2, 0)) for x in (IDS, positions.expand(2, 5), torch.ones_like(IDS))]
    names = ("input_ids", "position_ids", "attention_mask")
    left = model(**dict(zip(names, shifted, strict=True)), output_hidden_states=True).hidden_states[0]
    torch.testing.assert_close(left[:, 2:], projected)
    with pytest.raises(IndexError, match="position_ids hold 18"):
        model(IDS, position_ids=positions[None] + 14)


def xlnet_inside() -> Any:
    inside = XLNetConfig(vocab_size=TINY["vocab_size"], d_model=12, n_head=2, n_layer=1, d_inner=16)
    return tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


def test_positions_for_a_backbone_without_positions_are_an_error() -> None:
    with pytest.raises(ValueError, match="position_ids"):
        xlnet_inside()(IDS, position_ids=torch.arange(5)[None])


def test_a_backbone_may_have_no_longest_sequence() -> None:
    assert xlnet_inside()(torch.ones(1, 40, dtype=torch.long)).last_hidden_state.isfinite().all()


def test_an_encoder_decoder_as_backbone_is_an_error() -> None:
    inside = BartConfig(vocab_size=TINY["vocab_size"], d_model=12, encoder_layers=1, decoder_layers=1)
    with pytest.raises(ValueError, match="BartConfig"):
        tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")


@pytest.mark.parametrize("inside", [False, True], ids=["table", "backbone"])
@pytest.mark.parametrize("pair_mode", ["cross", "siamese"])
def test_an_unknown_token_type_is_an_error(pair_mode: str, inside: bool) -> None:
    backbone = {"backbone_config": tiny_bert(), "position_embedding_type": "none"} if inside else {}
    types = 2 if pair_mode == "cross" and not inside else 0
    model = tiny_model("StarTransformer", pair_mode=pair_mode, type_vocab_size=types, **backbone)
    with pytest.raises(IndexError, match="token_type_ids hold 2"):
        model(IDS, token_type_ids=torch.tensor([[0, 0, 1, 1, 2]] * 2))


def test_a_backbone_with_one_token_type_ignores_token_types() -> None:
    inside = tiny_bert()
    inside.type_vocab_size = 1
    model = tiny_model("StarTransformer", backbone_config=inside, position_embedding_type="none")
    typed = model(IDS, token_type_ids=torch.full_like(IDS, 2)).last_hidden_state
    assert torch.equal(typed, model(IDS).last_hidden_state)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("inside", [False, True], ids=["table", "backbone"])
def test_padding_does_not_count_towards_the_longest_sequence(inside: bool, recorded: bool) -> None:
    mask = torch.tensor([[0, 1] * 16])
    options = {"backbone_config": tiny_bert(), "position_embedding_type": "none"} if inside else LEARNED
    output = tiny_model("StarTransformer", **options)(
        torch.ones_like(mask), attention_mask=mask, output_hidden_states=recorded
    )
    assert output.last_hidden_state.shape == (1, 32, 8)


@pytest.mark.parametrize(("outer", "limit"), [(16, 16), (12, 12), (40, 16), (None, 16)])
def test_the_shorter_limit_of_encoder_and_backbone_holds(outer: int | None, limit: int) -> None:
    options = {"position_embedding_type": "none"} if outer is None else {"max_position_embeddings": outer, **LEARNED}
    model = tiny_model("StarTransformer", backbone_config=tiny_bert(), **options)
    with pytest.raises(ValueError, match=f"max_length={limit}"):
        model(torch.ones(1, 17, dtype=torch.long))
    assert model(torch.ones(1, limit, dtype=torch.long)).last_hidden_state.shape == (1, limit, 8)


@pytest.mark.parametrize("kind", ["bert", "electra", *sorted(set(FROM_PADDING) - {"lilt", "longformer", "xmod"})])
def test_the_longest_input_of_a_backbone_is_exact(kind: str) -> None:
    # The three others pad their input or need more than tokens.
    shape = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = AutoConfig.for_model(kind, vocab_size=40, max_position_embeddings=16, pad_token_id=1, **shape)
    inside = AutoModel.from_config(config).eval()
    limit = longest_input(config)
    inside(torch.full((1, limit), 5))
    with pytest.raises((IndexError, RuntimeError)):
        inside(torch.full((1, limit + 1), 5))


def test_siamese_pairs_need_token_types() -> None:
    with pytest.raises(ValueError, match="token_type_ids"):
        tiny_model("StarTransformer", "ForSequenceClassification", pair_mode="siamese")(IDS)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0)])
def test_an_empty_batch_is_an_error(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match=re.escape(str(list(shape)))):
        tiny_model("StarTransformer")(torch.zeros(shape, dtype=torch.long))


PADDED = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("stem", STEMS)
def test_padding_may_hold_any_number(stem: str, recorded: bool) -> None:
    model = tiny_model(stem, "ForTokenClassification", type_vocab_size=2, use_crf=True, **LEARNED)
    expected = model(IDS, PADDED, output_hidden_states=recorded).logits
    arbitrary = {
        "position_ids": PADDED.cumsum(1) - 1,
        "input_ids": IDS.masked_fill(PADDED == 0, -100),
        "token_type_ids": PADDED - 1,
    }
    actual = model(**arbitrary, attention_mask=PADDED, output_hidden_states=recorded).logits
    assert torch.equal(actual[PADDED == 1], expected[PADDED == 1])


@pytest.mark.parametrize("stem", STEMS[:2])
def test_padding_may_hold_any_number_in_an_exported_graph(stem: str) -> None:
    model = tiny_model(stem, "Model", type_vocab_size=2, **LEARNED)
    # One tensor under two names would be one input.
    inputs = {"input_ids": IDS, "attention_mask": PADDED, "token_type_ids": PADDED + 0, "position_ids": PADDED + 1}
    graph = torch.export.export(model, (), inputs, strict=False).module()
    strange = {name: x if name == "attention_mask" else x.masked_fill(PADDED == 0, -1) for name, x in inputs.items()}
    assert torch.equal(graph(**strange).last_hidden_state, graph(**inputs).last_hidden_state)


@pytest.mark.parametrize("recorded", ["nothing", "output_attentions"])
@pytest.mark.parametrize("stem", STEMS)
def test_vectors_at_padding_reach_neither_outputs_nor_gradients(stem: str, recorded: str) -> None:
    model = tiny_model(stem, "Model", embedding_size=5)
    plain = torch.randn(2, 5, 5)
    given = plain.masked_fill(PADDED[..., None] == 0, float("nan"))
    flags = {} if recorded == "nothing" else {recorded: True}
    results = []
    for vectors in (plain, given):
        model.zero_grad()
        output = model(inputs_embeds=vectors, attention_mask=PADDED, **flags)
        (output.last_hidden_state.sum() + output.pooler_output.sum()).backward()
        results.append([output.pooler_output, *(p.grad for p in model.parameters() if p.grad is not None)])
    for expected, actual in zip(*results, strict=True):
        assert torch.equal(actual, expected)


def test_positions_of_one_row_serve_all_rows() -> None:
    model, positions = tiny_model("StarTransformer", **LEARNED), torch.tensor([[3, 1, 4, 0, 5]])
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
    "transposed labels": (
        "ForSequenceClassification",
        {"problem_type": "multi_label_classification"},
        {"labels": torch.zeros(3, 2)},
        "[3, 2]",
    ),
    "tags of a shorter text": ("ForTokenClassification", {}, {"labels": TAGS[:, :4]}, "[2, 4]"),
    "transposed tags": ("ForTokenClassification", {}, {"labels": TAGS.T}, "[5, 2]"),
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
    assert model.config.problem_type == before, "bad labels choose no problem type"


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint8])
@pytest.mark.parametrize("ending", ["ForSequenceClassification", "ForTokenClassification", "ForMaskedLM"])
def test_labels_may_have_any_integer_type(ending: str, dtype: torch.dtype) -> None:
    model, labels = head(ending), TAGS[:, 0] if ending == "ForSequenceClassification" else TAGS
    assert torch.equal(model(IDS, labels=labels.to(dtype)).loss, model(IDS, labels=labels).loss)


# ------ given vectors


NARROW = {"vocab_size": 13, "embedding_size": 6, "hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize("config", [ElectraConfig, AlbertConfig], ids=lambda config: config.model_type)
def test_given_vectors_are_as_wide_as_the_table_of_the_backbone(config: type) -> None:
    inside = config(**NARROW, intermediate_size=16, max_position_embeddings=16)
    model = tiny_model("StarTransformer", backbone_config=inside).eval()
    embedded = model.get_input_embeddings()(IDS)
    assert embedded.shape[-1] == 6
    assert torch.equal(model(inputs_embeds=embedded).last_hidden_state, model(IDS).last_hidden_state)
    with pytest.raises(ValueError, match="length, 6"):
        model(inputs_embeds=torch.zeros(2, 5, 12))


@pytest.mark.parametrize(
    ("fields", "needed"),
    [({"char_features": True}, "input_ids"), ({"word_vector_size": 2}, "input_ids"), ({"use_crf": True}, "tag_mask")],
    ids=lambda fields: next(iter(fields)) if isinstance(fields, dict) else "",
)
def test_what_reads_ids_beside_embeddings_is_not_left_out_of_given_vectors(
    fields: dict[str, Any], needed: str
) -> None:
    model = tiny_model("StarTransformer", "ForTokenClassification", **fields).eval()
    vectors, tags = model.get_input_embeddings()(IDS), torch.ones_like(IDS)
    if "use_crf" in fields:
        assert torch.equal(model(inputs_embeds=vectors).logits, model(IDS).logits)  # it knows no vocabulary
        model.crf.carries_no_tag[2] = True
        assert torch.equal(model(inputs_embeds=vectors, tag_mask=tags).logits, model(IDS, tag_mask=tags).logits)
    with pytest.raises(ValueError, match=f"inputs_embeds.*{needed}"):
        model(inputs_embeds=vectors)


def test_a_configuration_file_with_a_wrong_field_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "star_transformer", "pooling": "middle"}')
    with pytest.raises(StrictDataclassError, match="pooling"):
        AutoConfig.from_pretrained(tmp_path)
