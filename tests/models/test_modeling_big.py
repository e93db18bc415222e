"""The BiG-Transformer against Algorithm 1, its words and its receptive field, and the contract of every encoder."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from common import (
    EVERY_MODEL,
    HEADS,
    TINY,
    Batch,
    assert_close,
    assert_same_without_rows,
    difference,
    gradients,
    lexicon_of,
    named_outputs,
    padded,
    random_batch,
    some_words,
    tiny_model,
)
from encoder_contract import RECORD, EncoderContract
from hypothesis import strategies as st
from reference import find_whole_words, find_words
from torch import Tensor
from torch_modes import compiled
from transformers import PreTrainedModel

import modeling_star
from modeling_star import BigTransformerConfig, Lexicon


WORDS = some_words()
LEXICON = lexicon_of(WORDS)


def whole_word_lexicon(continues: set[int], alone: set[int], longest: int, size: int = TINY["vocab_size"]) -> Lexicon:
    """A lexicon of the words that a subword tokenizer cut up."""
    flags = [torch.tensor([index in ids for index in range(size)]) for ids in (continues, alone)]
    return Lexicon("whole_word", longest, continues=flags[0], alone=flags[1])


def real_columns(batch: Batch, row: int, siamese: bool) -> list[list[int]]:
    """The columns of the one or two texts of a row."""
    mask, types = batch.attention_mask[row], batch.token_type_ids[row]
    texts = [mask & (types == 0), mask & (types == 1)] if siamese else [mask]
    return [text.nonzero().flatten().tolist() for text in texts]


def random_words(batch: Batch, longest: int, seed: int = 0, density: float = 0.5, siamese: bool = False) -> Tensor:
    """A word_mask `[b, n, longest]` of words that end in their text; anything at padding and for single tokens."""
    generator = torch.Generator().manual_seed(seed)
    words = torch.rand(*batch.shape, longest, generator=generator) < density
    for row in range(len(words)):
        for columns in real_columns(batch, row, siamese):
            for start, column in enumerate(columns):
                words[row, column, max(len(columns) - start, 1) :] = False
    return words


# The options of a model that from_encoder makes.
FROM_BERT = {
    "local_connection": "window",
    "word_vector": "mean",
    "global_node": "first",
    "pooling": "global",
    "embedding_norm": True,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "head_act": "tanh",
}


def with_global_node(options: dict[str, Any]) -> dict[str, Any]:
    """Options whose "global" becomes the two fields that depend on each other."""
    connection, node = options["global"]
    others = {name: value for name, value in options.items() if name != "global"}
    return {**others, "global_connection": connection, "global_node": node}


class TestBigTransformer(EncoderContract):
    """Its promises, over the ablations of the paper and the options of the design."""

    stem = "BigTransformer"
    attentions_have_gradients = True
    second_derivatives = "recorded"
    own_variants = {
        "lexicon": {"lexicon": LEXICON},
        "whole words": {"lexicon": whole_word_lexicon({1, 2, 3, 7, 8}, {0}, 3)},
        "siamese lexicon": {"lexicon": LEXICON, "pair_mode": "siamese", "pooling": "global"},
        "adjacent": {"local_connection": "adjacent", "pooling": "max"},
        "adjacent alone": {"local_connection": "adjacent", "global_connection": False},
        "global alone": {"local_connection": "none", "pooling": "global"},
        "lexicon without global": {"lexicon": LEXICON, "global_connection": False, "pooling": "global"},
        "without self word": {"lexicon": LEXICON, "include_self": False},
        "nothing but words": {"lexicon": LEXICON, "include_self": False, "global_connection": False},
        "no connection": {"local_connection": "none", "global_connection": False},
        "first": {"global_node": "first", "lexicon": LEXICON},
        "window": {**FROM_BERT, "window_radius": 2},
        "window and words": {**FROM_BERT, "window_radius": 1, "lexicon": LEXICON},
        "siamese window": {**FROM_BERT, "pair_mode": "siamese", "local_connection": "window"},
    }
    main_variants = ("default", "lexicon", "adjacent", "window")
    config_options = st.fixed_dictionaries(
        {
            "hidden_size": st.sampled_from([6, 12]),
            "num_attention_heads": st.integers(1, 3),
            "intermediate_size": st.sampled_from([None, 5]),
            "num_hidden_layers": st.integers(1, 3),
            "embedding_size": st.sampled_from([None, 3]),
            "type_vocab_size": st.sampled_from([0, 2]),
            "position_embedding_type": st.sampled_from(["learned", "sinusoidal", "none"]),
            "scale_embedding": st.sampled_from([None, False, True]),
            "pair_mode": st.sampled_from(["cross", "siamese"]),
            "hidden_act": st.sampled_from(["relu", "gelu", "silu"]),
            "max_word_length": st.integers(2, 5),
            "local_connection": st.sampled_from(["lexicon", "lexicon", "lexicon", "adjacent", "window", "none"]),
            "window_radius": st.integers(1, 6),
            "word_vector": st.sampled_from(["sum", "mean"]),
            "include_self": st.booleans(),
            "global": st.sampled_from([(True, "mean"), (True, "first"), (False, "mean")]),
            "embedding_norm": st.booleans(),
            "pooling": st.sampled_from(["mean", "max", "global"]),
        }
    ).map(with_global_node)

    def prepare(self, data: st.DataObject, model: PreTrainedModel, batch: Batch) -> None:
        """Words from a lexicon, from flags, as a mask, or none."""
        config, seed = model.config, data.draw(st.integers(0, 1000))
        siamese, longest = config.pair_mode == "siamese", config.max_word_length
        kind = data.draw(st.sampled_from(["words", "words", "whole_word", "word_mask", "nothing"]))
        if config.local_connection not in ("lexicon", "window") or kind == "nothing":
            return
        if config.local_connection == "window" and "word" not in kind:
            return
        if config.local_connection == "window" and (kind == "word_mask" or batch.inputs_embeds is not None):
            # Recorded weights have roles for words where there is a lexicon.
            model.set_lexicon(lexicon_of({(1, 2)}, longest))
        if kind == "word_mask" or batch.inputs_embeds is not None:
            batch.word_mask = random_words(batch, longest, seed, siamese=siamese)
        elif kind == "words":
            # Half of the windows of the texts, so that words overlap and lie within one another, and some more.
            texts = [
                batch.input_ids[row, columns].tolist()
                for row in range(len(batch.input_ids))
                for columns in real_columns(batch, row, siamese)
            ]
            windows = {
                tuple(text[start : start + length])
                for text in texts
                for length in range(2, longest + 1)
                for start in range(len(text) - length + 1)
            }
            kept = torch.rand(len(windows), generator=torch.Generator().manual_seed(seed)) < 0.5
            words = {(1, 2), *(word for word, keep in zip(sorted(windows), kept, strict=True) if keep)}
            model.set_lexicon(lexicon_of(words, longest))
            batch.find_words = functools.partial(find_words, lexicon=words, longest=longest)
        else:
            continues, alone = data.draw(st.sets(st.integers(3, 12))), data.draw(st.sets(st.integers(0, 2)))
            model.set_lexicon(whole_word_lexicon(continues, alone, longest))
            batch.find_words = functools.partial(find_whole_words, continues=continues, alone=alone, longest=longest)

    def attention_shape(self, config: Any, b: int, n: int) -> tuple[int, ...]:
        longest = config.max_word_length
        local = {
            "lexicon": longest * (longest + 1) // 2 - (0 if config.include_self else 1),
            "adjacent": 3,
            "window": 2 * config.window_radius + 1,
            "none": 0,
        }[config.local_connection]
        if config.local_connection == "window" and config.lexicon_kind is not None:
            local += longest * (longest + 1) // 2 - 1
        return (b, config.num_attention_heads, n, local + (1 if config.global_connection else 0))

    def sums_of_attention(self, config: Any, mask: Tensor, sums: Tensor) -> Tensor:
        if config.global_node == "first":
            # The weights of the first token of each text are recorded elsewhere.
            assert not sums[mask & (mask.cumsum(1) == 1)].any()
            return mask.float() * (sums != 0)
        if config.global_connection or (config.include_self and config.local_connection == "lexicon"):
            return mask.float()
        if config.local_connection == "adjacent":
            return mask.float()
        # A token in no word attends to nothing.
        nothing = sums == 0
        assert nothing.any()
        return (mask & ~nothing).float()

    def has_gradient(self, config: Any, name: str) -> bool:
        # The global node alone: nothing to choose.
        alone = config.local_connection == "none" and config.global_connection
        if alone and ("projections.query" in name or "projections.key" in name):
            return False
        return super().has_gradient(config, name)

    # ------ word_mask in place of the lexicon

    def test_words_may_be_given(self, ending: str) -> None:
        model = self.model(ending, "lexicon", dtype=torch.float64)
        batch = random_batch(padded([5, 0, 1, 3], 6, "holes"), dtype=torch.float64)
        found = named_outputs(model(**batch.inputs()))
        batch.find_words = functools.partial(find_words, lexicon=WORDS, longest=4)
        given_words = torch.zeros(*batch.shape, 4)
        for row in range(len(given_words)):
            [columns] = real_columns(batch, row, siamese=False)
            for start, length in batch.words(row, columns):
                given_words[row, columns[start], length - 1] = 1
        assert given_words.any()
        assert_close(named_outputs(model(**batch.inputs(), word_mask=given_words)), found, 0.0)
        # They overrule those of the lexicon.
        none = named_outputs(model(**batch.inputs(), word_mask=torch.zeros_like(given_words)))
        assert max(difference(none[name], found[name]) for name in found) > 1e-8
        model.set_lexicon(None)
        assert_close(named_outputs(model(**batch.inputs())), none, 0.0)

    def test_candidates_by_row_have_the_values_and_gradients_of_gathered_ones(
        self, variant: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert_same_without_rows(self.model(variant=variant, dtype=torch.float64), monkeypatch)

    def test_a_compiled_model_takes_given_words(self) -> None:
        model = self.model()
        batch = random_batch(padded([3, 0, 5], 6, "holes"))
        batch.word_mask = random_words(batch, 4)
        expected = named_outputs(model(**batch.inputs()))
        graph = compiled(model)
        assert_close(named_outputs(graph(**batch.inputs())), expected, 1e-5)
        # Shapes that depend on no data cannot raise: a word that is cut off is no word.
        batch.word_mask[0, :, 3] = True
        assert_close(named_outputs(graph(**batch.inputs())), expected, 1e-5)

    @pytest.mark.slow
    def test_one_compiled_or_exported_graph_finds_words_at_every_shape(self) -> None:
        model = self.model(variant="lexicon").eval()
        graph = compiled(model, dynamic=True)
        axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
        inputs = random_batch(padded([3, 5], 6, "holes")).inputs()
        shapes = dict.fromkeys(inputs, axes)
        exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False).module()
        with torch._dynamo.config.patch(error_on_recompile=True):
            for lengths, columns in (([3, 2], 6), ([4, 0, 5], 7), ([9, 8, 7, 3], 11)):
                inputs = random_batch(padded(lengths, columns, "holes"), seed=columns).inputs()
                expected = named_outputs(model(**inputs))
                assert_close(named_outputs(graph(**inputs)), expected, 1e-5)
                assert_close(named_outputs(exported(**inputs)), expected, 1e-5)


# ------ which words a token attends to


def attended(model: PreTrainedModel, ids: list[int], **inputs: Any) -> list[set[str]]:
    """The roles that have a weight, for each token of a text."""
    output = model(torch.tensor([ids]), output_attentions=True, **inputs)
    roles = model.config.candidate_roles
    for weights in output.attentions:
        assert torch.equal(weights > 0, output.attentions[0] > 0)
    return [{role for role, weight in zip(roles, token, strict=True) if weight > 0} for token in weights[0, 0]]


@pytest.mark.parametrize("has_lexicon", [True, False])
@pytest.mark.parametrize("local", ["lexicon", "window"])
def test_attentions_have_the_roles_that_the_configuration_names(local: str, has_lexicon: bool) -> None:
    lexicon = {"lexicon": lexicon_of({(1, 2)}, 4)} if has_lexicon else {}
    model = tiny_model("BigTransformer", local_connection=local, window_radius=2, **lexicon)
    ids, words = torch.tensor([[1, 2, 3]]), torch.zeros(1, 3, 4)
    words[0, 1, 1] = 1
    for given, roles in (({}, model.config.candidate_roles), ({"word_mask": words}, model.config.roles(True))):
        assert model(ids, output_attentions=True, **given).attentions[0].shape[-1] == len(roles)
    assert "2 of 2" in roles


def test_a_token_attends_to_all_words_that_contain_it_to_itself_and_to_the_global_node() -> None:
    # 南京市长江大桥: 南京, 南京市, 市长, 长江, 长江大桥, 大桥.
    city = [1, 2, 3, 4, 5, 6, 7]
    words = {(1, 2), (1, 2, 3), (3, 4), (4, 5), (4, 5, 6, 7), (6, 7), (2, 4), (7, 1)}
    model = tiny_model("BigTransformer", lexicon=lexicon_of(words))
    always = {"1 of 1", "global"}
    assert attended(model, city) == [
        always | {"1 of 2", "1 of 3"},
        always | {"2 of 2", "2 of 3"},
        always | {"3 of 3", "1 of 2"},
        always | {"2 of 2", "1 of 2", "1 of 4"},
        always | {"2 of 2", "2 of 4"},
        always | {"1 of 2", "3 of 4"},
        always | {"2 of 2", "4 of 4"},
    ]


def test_words_stay_within_a_text_of_a_siamese_pair() -> None:
    model = tiny_model("BigTransformer", lexicon=lexicon_of({(1, 2), (2, 3)}), pair_mode="siamese")
    ids, types = [1, 2, 3, 1, 2], torch.tensor([[0, 0, 1, 1, 1]])
    always = {"1 of 1", "global"}
    expected = [{"1 of 2"}, {"2 of 2"}, set(), {"1 of 2"}, {"2 of 2"}]
    assert attended(model, ids, token_type_ids=types) == [always | words for words in expected]
    # As if each were alone, wherever its columns are: here one text is within the other.
    inside = attended(model, [1, 3, 1, 2, 2], token_type_ids=torch.tensor([[0, 1, 1, 1, 0]]))
    assert inside == [always | words for words in [{"1 of 2"}, set(), {"1 of 2"}, {"2 of 2"}, {"2 of 2"}]]


def test_padding_within_a_word_does_not_hide_it() -> None:
    model = tiny_model("BigTransformer", lexicon=lexicon_of({(1, 2, 3)}))
    mask = torch.tensor([[0, 1, 0, 1, 1, 0]])
    holes = model(torch.tensor([[1, 1, 3, 2, 3, 9]]), attention_mask=mask)
    plain = model(torch.tensor([[1, 2, 3]]))
    assert_close({"x": holes.last_hidden_state[:, mask[0] == 1]}, {"x": plain.last_hidden_state}, 1e-6)


def test_hidden_dropout_acts_after_the_attention_and_after_the_feed_forward_layer() -> None:
    model = tiny_model("BigTransformer", num_hidden_layers=1, hidden_dropout_prob=0.5)
    layer = model.layers[0]
    given_to: list[Tensor] = []
    layer.dropout.register_forward_hook(lambda _, inputs, __: given_to.append(inputs[0]))
    outputs: list[Tensor] = []
    layer.attention.register_forward_hook(lambda *call: outputs.append(call[2][0]))
    layer.output.register_forward_hook(lambda *call: outputs.append(call[2]))
    model(torch.tensor([[1, 2, 3]]))
    assert len(given_to) == len(outputs) == 2
    assert all(map(torch.equal, given_to, outputs))


# ------ receptive field


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_without_the_global_node_a_token_sees_what_a_chain_of_words_reaches(layers: int) -> None:
    options = {"global_connection": False, "num_hidden_layers": layers, "hidden_act": "gelu"}
    model = tiny_model("BigTransformer", dtype=torch.float64, **options)
    batch = random_batch(padded([9], 11, "holes"), width=8, dtype=torch.float64)
    batch.word_mask = random_words(batch, 4, seed=2, density=0.25)
    [columns] = real_columns(batch, 0, siamese=False)
    step = torch.eye(9).bool()
    for start, length in batch.words(0, columns):
        step[start : start + length, start : start + length] = True
    assert not step.all()
    reached = torch.linalg.matrix_power(step.double(), layers) > 0
    output = model(**batch.inputs())
    for row, state in enumerate(output.last_hidden_state[0, columns]):
        seen = gradients({"state": state}, {"e": batch.inputs_embeds})["e"][0, columns].abs().sum(-1) > 0
        assert torch.equal(seen, reached[row])


def test_padding_takes_no_part_in_the_computation() -> None:
    model = tiny_model("BigTransformer", lexicon=LEXICON)
    counts: list[int] = []
    for layer in model.layers:
        layer.attention.register_forward_hook(lambda _, inputs, __: counts.append(len(inputs[0].tokens)))
    model(**random_batch(padded([3, 0, 7], 12, "holes")).inputs())
    assert counts == [10, 10]


# ------ weights


@pytest.mark.parametrize(
    ("fields", "scaled"),
    [
        ({}, True),
        ({"position_embedding_type": "learned"}, False),
        ({"position_embedding_type": "none"}, False),
        ({"scale_embedding": False}, False),
        ({"position_embedding_type": "none", "scale_embedding": True}, True),
        ({"backbone_config": {"model_type": "bert"}}, False),
    ],
)
def test_a_table_is_scaled_where_sinusoids_would_drown_it(
    fields: dict[str, Any], scaled: bool, tmp_path: Path
) -> None:
    config = BigTransformerConfig(**fields)
    assert config.scale_embedding is scaled
    config.save_pretrained(tmp_path)
    assert BigTransformerConfig.from_pretrained(tmp_path).scale_embedding is scaled


def test_only_a_model_that_reads_it_has_the_last_global_node() -> None:
    def names(ending: str, **options: Any) -> set[str]:
        return {name for name, _ in tiny_model("BigTransformer", ending, **options).named_parameters()}

    assert "model.global_pooling.weight" in names(HEADS[0], pooling="global")
    for ending in HEADS[1:]:
        assert "model.global_pooling.weight" not in names(ending, pooling="global")
    assert "model.global_pooling.weight" not in names(HEADS[0])


# ------ set_lexicon


@pytest.mark.parametrize("ending", EVERY_MODEL)
@pytest.mark.parametrize("kind", ["words", "whole_word"])
def test_a_model_is_saved_with_its_lexicon(kind: str, ending: str, tmp_path: Path) -> None:
    lexicon = LEXICON if kind == "words" else whole_word_lexicon({4, 5, 6, 7}, {0}, 5)
    model = tiny_model("BigTransformer", ending, lexicon=lexicon).eval()
    assert model.config.lexicon_kind == model.base_model.config.lexicon_kind == kind
    assert model.config.max_word_length == lexicon.max_word_length
    model.save_pretrained(tmp_path)
    loaded, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info
    inputs = random_batch(padded([7, 5], 7, "right")).inputs()
    assert_close(named_outputs(loaded(**inputs)), named_outputs(model(**inputs)), 0.0)
    # It finds words, so that the above says something.
    model.set_lexicon(None)
    without = named_outputs(model(**inputs))
    assert difference(next(iter(named_outputs(loaded(**inputs)).values())), next(iter(without.values()))) > 1e-5


@pytest.mark.parametrize("ending", ["Model", "ForTokenClassification"])
def test_another_lexicon_takes_the_place_of_the_first(ending: str, tmp_path: Path) -> None:
    inputs = random_batch(padded([7, 5], 7, "right")).inputs()
    short = lexicon_of({(1, 2), (2, 3)}, longest=2)
    lexicons = [LEXICON, short, whole_word_lexicon({4, 5, 6}, {0}, 3), None]
    model = tiny_model("BigTransformer", ending).eval()
    for first, second in zip(lexicons, [*lexicons[1:], lexicons[0]], strict=True):
        model.set_lexicon(first)
        model.save_pretrained(tmp_path)
        loaded = type(model).from_pretrained(tmp_path)
        loaded.set_lexicon(second)
        loaded.save_pretrained(tmp_path)
        again, info = type(model).from_pretrained(tmp_path, output_loading_info=True)
        assert not any(info.values()), info
        model.set_lexicon(second)
        expected = named_outputs(model(**inputs))
        assert_close(named_outputs(loaded(**inputs)), expected, 0.0)
        assert_close(named_outputs(again(**inputs)), expected, 0.0)
        if second is not None:
            assert again.config.max_word_length == second.max_word_length
            assert again.config.lexicon_kind == second.kind


def test_a_model_that_reads_no_words_refuses_a_lexicon() -> None:
    for ending in ("Model", "ForTokenClassification"):
        model = tiny_model("BigTransformer", ending, local_connection="adjacent")
        with pytest.raises(ValueError, match="local_connection='adjacent'"):
            model.set_lexicon(LEXICON)


def test_a_lexicon_that_the_checkpoint_lacks_is_empty(tmp_path: Path) -> None:
    tiny_model("BigTransformer").save_pretrained(tmp_path)
    torch.use_deterministic_algorithms(True)  # fills uninitialised memory with large numbers
    try:
        for kind, size in (("words", 22), ("whole_word", 13)):
            model, info = modeling_star.BigTransformerModel.from_pretrained(
                tmp_path, lexicon_kind=kind, lexicon_size=size, output_loading_info=True
            )
            assert {name.split(".")[0] for name in info["missing_keys"]} == {"matcher"}
            assert attended(model, list(range(13))) == [{"1 of 1", "global"}] * 13
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("ending", ["ForMaskedLM", "ForTokenClassification"])
@pytest.mark.parametrize("lexicon", [LEXICON, whole_word_lexicon({4, 5, 6}, {0}, 3)], ids=["words", "whole_word"])
def test_ids_added_after_the_lexicon_are_words_of_their_own(lexicon: Lexicon, ending: str, tmp_path: Path) -> None:
    model = tiny_model("BigTransformer", ending, lexicon=lexicon).eval()
    old, new = [1, 4, 5, 3, 6, 1], [13, 4, 15, 5, 14, 13]
    before = attended(model, old)
    model.resize_token_embeddings(16)
    assert attended(model, old) == before
    assert attended(model, [13, 14, 15]) == [{"1 of 1", "global"}] * 3
    model.save_pretrained(tmp_path)
    assert attended(type(model).from_pretrained(tmp_path), new) == attended(model, new)


# ------ warnings and errors


def test_a_word_mask_of_another_shape_or_for_another_encoder_is_refused() -> None:
    for stem in ("BigTransformer", "StarTransformer"):
        with pytest.raises(ValueError, match="word_mask"):
            tiny_model(stem)(torch.ones(2, 5).long(), word_mask=torch.zeros(2, 5, 3))


@pytest.mark.parametrize("recorded", [False, True], ids=["packed", "padded"])
def test_a_given_word_that_reaches_past_its_text_is_refused(recorded: bool) -> None:
    ids, mask = torch.ones(2, 5).long(), torch.tensor([[1, 1, 1, 1, 1], [1, 0, 1, 0, 1]])
    types = torch.tensor([[0, 0, 1, 1, 1], [0, 0, 0, 0, 1]])
    record = RECORD if recorded else {}
    for pair_mode, column, length in (("cross", 4, 2), ("cross", 2, 3), ("cross", 0, 4), ("siamese", 2, 2)):
        model = tiny_model("BigTransformer", pair_mode=pair_mode)
        words = torch.zeros(2, 5, 4)
        words[1, column, length - 2] = 1
        model(ids, mask, types, word_mask=words, **record)
        words[1, column, length - 1] = 1
        with pytest.raises(ValueError, match=f"row 1, column {column}"):
            model(ids, mask, types, word_mask=words, **record)


def test_anything_but_a_lexicon_of_the_models_tokens_is_refused() -> None:
    model = tiny_model("BigTransformer", lexicon=LEXICON)
    for wrong in (["北京"], "jieba"):
        with pytest.raises(TypeError, match="set_lexicon"):
            model.set_lexicon(wrong)
    size = model.config.vocab_size
    with pytest.raises(ValueError, match=f"{size}"):
        model.set_lexicon(Lexicon("words", 2, words=torch.tensor([[3, size]])))
    assert model.base_model.matcher.table_size(LEXICON) == model.config.lexicon_size, "as it was"


def test_a_lexicon_of_other_code_is_taken() -> None:
    # The code of a saved model has a Lexicon class of its own.
    attributes = {name: value for name, value in vars(Lexicon).items() if name not in ("__dict__", "__weakref__")}
    other = type("Lexicon", (), attributes)
    model = tiny_model("BigTransformer")
    words = object.__new__(other)
    vars(words).update(vars(LEXICON))
    assert not isinstance(words, Lexicon)
    model.set_lexicon(words)
    assert model.config.lexicon_size == tiny_model("BigTransformer", lexicon=LEXICON).config.lexicon_size
