"""Character features against plain loops, reading of vocabularies, and the table of a copy for inference."""

import copy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from common import TINY, assert_close, difference, gradients, padded, random_batch, tiny_model
from reference import spelling, under
from samples import CHARACTERS, EMBEDDINGS, SPELLED, embedded_model, some_inputs, tensors_of, word_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch_modes import compiled
from transformers import PreTrainedModel, PreTrainedTokenizerFast

import modeling_star
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.models import char_cnn
from modeling_star.models.char_cnn import TRAITS, CharCNN, spelled, tabulate_characters, traits_of
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.vocabulary import Vocabulary


def model_with_characters(ending: str = "Model", **options: Any) -> PreTrainedModel:
    return tiny_model("StarTransformer", ending, **{**CHARACTERS, "tokenizer": word_tokenizer(SPELLED), **options})


def features_of(model: PreTrainedModel) -> CharCNN:
    return model.base_model.embeddings.characters


def text_of(row: torch.Tensor) -> str:
    return "".join(chr(code) for code in row.tolist() if code)


# ------ values


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_features_equal_plain_loops_in_values_and_gradients(kernel: int) -> None:
    model = model_with_characters(dtype=torch.float64, char_kernel_size=kernel, char_vocab_size=50)
    module, config = features_of(model), model.config
    parameters = {name: p.detach().clone().requires_grad_() for name, p in module.named_parameters()}
    ids = torch.tensor([5, 6, 2, 7, 8, 9, 10, 6, 11, 12, 0])
    rows = []
    texts = [None, None, None, None, None, *SPELLED.split()]
    for index in ids.tolist():
        text = texts[index]
        if text is None:
            rows.append(torch.zeros(config.char_num_filters + len(TRAITS), dtype=torch.float64))
            continue
        continues = text.startswith("##")
        codes = spelled(text.removeprefix("##"), config.max_char_length)
        # The first symbol marks the start of a word (1) or its continuation (2), the last one its end (3).
        symbols = [2 if continues else 1, *(4 + code % 50 for code in codes), 3]
        traits = torch.tensor(traits_of(text.removeprefix("##"), continues), dtype=torch.float64)
        rows.append(torch.cat([spelling(parameters, symbols, kernel), traits]))
    expected, actual = {"x": torch.stack(rows)}, {"x": module.token_features(ids)}
    assert_close(actual, expected, 1e-10)
    assert_close(gradients(actual, dict(module.named_parameters())), gradients(expected, parameters), 1e-10)


# Their ids are 5 to 9, after the special tokens; "@USER" is an added token, 10.
PIECES = "we ##ll ##ing 42 USA"


def model_of_words(**options: Any) -> PreTrainedModel:
    tokenizer = word_tokenizer(PIECES)
    tokenizer.add_tokens(["@USER"])
    return model_with_characters(tokenizer=tokenizer, **options)


@pytest.mark.parametrize("packed", [True, False], ids=["packed", "padded"])
@pytest.mark.parametrize("kind", ["right", "left", "holes"])
def test_a_word_has_the_maximum_of_its_tokens_in_values_and_gradients(kind: str, packed: bool) -> None:
    module = features_of(model_of_words(dtype=torch.float64))
    with torch.no_grad():
        module.convolution.bias.sub_(10)  # below the zeros of padding
    mask = padded([9, 1, 0, 6, 3], 10, kind)
    # Tokens 2 ([CLS]) and 10 belong to no word, and no word crosses from one text to the next.
    rows = [[2, 5, 6, 7, 8, 10, 7, 6, 6], [7], [], [6, 7, 9, 2, 7, 6], [7, 5, 7]]
    words = [[[0], [1, 2, 3], [4], [5], [6, 7, 8]], [[0]], [], [[0, 1], [2], [3], [4, 5]], [[0], [1, 2]]]
    ids = mask.long()
    ids[mask] = torch.tensor([index for row in rows for index in row])
    layout = TokenLayout.from_mask(mask, keep_padding=not packed)
    flat = layout.pack(ids)
    of_tokens = module.token_features(flat)
    places = {place: row for row, place in enumerate(layout.pack(torch.arange(ids.numel()).view_as(ids)).tolist())}
    expected = torch.zeros_like(of_tokens)
    for row, of_row in enumerate(words):
        columns = mask[row].nonzero().flatten().tolist()
        for word in of_row:
            index = [places[row * ids.shape[1] + columns[token]] for token in word]
            largest = of_tokens[index].max(0).values.expand(len(index), -1)
            expected = expected.index_copy(0, torch.tensor(index), largest.contiguous())
    leaves = dict(module.named_parameters())
    actual = {"x": module(flat, layout)[:, of_tokens.shape[1] :]}
    assert_close(actual, {"x": expected}, 1e-12)
    assert_close(gradients(actual, leaves), gradients({"x": expected}, leaves), 1e-10)


def test_states_of_words_in_pieces_do_not_depend_on_the_batch() -> None:
    model = model_of_words(dtype=torch.float64).eval()
    ids = torch.tensor([[5, 6, 7, 6], [7, 6, 0, 0], [6, 7, 7, 0]])
    states = model(ids, attention_mask=ids != 0).last_hidden_state
    for row, length in enumerate((4, 2, 3)):
        alone = model(ids[row : row + 1, :length]).last_hidden_state[0]
        assert difference(states[row, :length], alone) < 1e-12


def test_the_scope_token_has_no_features_of_the_word() -> None:
    model = model_with_characters(char_scope="token")
    module, ids = features_of(model), torch.tensor([[5, 6, 10]])
    layout = TokenLayout.from_mask(torch.ones_like(ids).bool(), keep_padding=False)
    assert torch.equal(module(ids[0], layout), module.token_features(ids[0]))
    assert model.embeddings.projection.in_features == TINY["hidden_size"] + module.width


def test_an_embedding_joins_vector_and_features() -> None:
    model = model_with_characters(dtype=torch.float64, position_embedding_type="none")
    ids = torch.tensor([[5, 6, 10]])
    embedded = model(ids, output_hidden_states=True).hidden_states[0][0]
    embeddings = model.embeddings
    layout = TokenLayout.from_mask(torch.ones_like(ids).bool(), keep_padding=False)
    joined = torch.cat([embeddings.word_embeddings(ids[0]), embeddings.characters(ids[0], layout)], dim=-1)
    projection = under(dict(embeddings.named_parameters()), "projection")
    assert difference(embedded, joined @ projection["weight"].T + projection["bias"]) < 1e-12


@pytest.mark.parametrize(
    ("text", "traits"),
    [
        ("walk", []),
        ("Walk", ["title case"]),
        ("I", ["upper case", "title case"]),
        ("USA", ["upper case", "a capital further on"]),
        ("U.S.", ["upper case", "a capital further on"]),
        ("iPhone", ["a capital further on"]),
        ("McDonald", ["a capital further on"]),
        ("'Tis", ["title case"]),
        ("42", ["digits alone"]),
        ("3rd", ["a digit among others"]),
        ("1,000", ["a digit among others"]),
        ("...", ["neither letter nor digit"]),
        ("东京", []),
        ("Ångström", ["title case"]),
        ("", []),
    ],
)
def test_traits_of_a_token(text: str, traits: list[str]) -> None:
    assert [name for name, has in zip(TRAITS, traits_of(text, False), strict=True) if has] == traits
    assert traits_of(text, True)[0]


def test_a_long_entry_keeps_both_ends_and_accents_are_composed() -> None:
    assert "".join(map(chr, spelled("incomprehensibilities", 9))) == "incomties"
    assert "".join(map(chr, spelled("exactly", 7))) == "exactly"
    assert "".join(map(chr, spelled("中国", 1))) == "中"
    assert spelled("e\u0301", 3) == [0xE9]


# ------ vocabularies


def test_a_wordpiece_vocabulary_is_read() -> None:
    vocabulary = Vocabulary.read(word_tokenizer(SPELLED))
    assert vocabulary.marker == "##"
    assert vocabulary.texts == ["", "", "", "", "", "we", "ll", "Live", "42", "USA", "3rd", ",", "東京"]
    assert vocabulary.continues.nonzero()[:, 0].tolist() == [6]
    # [PAD], [CLS], [SEP], [MASK]; [UNK] is a word.
    assert vocabulary.special.nonzero()[:, 0].tolist() == [0, 2, 3, 4]


def test_words_that_begin_with_a_mark_do_not_make_a_subword_vocabulary() -> None:
    tokenizer = train_tokenizer(["Ġorġ sees ### and ▁ there"], min_frequency=1, lower_case=False)
    assert {"Ġorġ", "###"} <= set(tokenizer.get_vocab())
    vocabulary = Vocabulary.read(tokenizer)
    assert vocabulary.marker is None
    assert not vocabulary.continues.any()
    pieces = word_tokenizer("we ##ll Ġa Ġb Ġc ▁a ▁b")
    assert Vocabulary.read(pieces).marker == "##"


def test_a_byte_level_vocabulary_is_read_as_text() -> None:
    letters = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - {"Ġ"})
    words = ["Ġ", "Ġna", "Ã¯", "ve", *(f"Ġ{letter}" for letter in letters), *letters]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = Vocabulary.read(PreTrainedTokenizerFast(tokenizer_object=tokenizer))
    assert vocabulary.marker == "Ġ"
    assert vocabulary.texts[:4] == ["", "na", "ï", "ve"]
    assert vocabulary.continues[:4].tolist() == [False, False, True, True]


def test_a_sentencepiece_vocabulary_is_read() -> None:
    words = ["<unk>", "▁", "▁New", "▁york", "er", "▁a▁b"]
    tokenizer = Tokenizer(models.Unigram([(word, -1.0) for word in words], unk_id=0))
    vocabulary = Vocabulary.read(PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>"))
    assert vocabulary.marker == "▁"
    assert vocabulary.texts == ["", "", "New", "york", "er", "a b"]
    assert vocabulary.continues.tolist() == [False, False, False, False, True, False]


def test_an_added_word_has_characters_and_an_unknown_one_has_none() -> None:
    tokenizer = word_tokenizer("we ##ll")
    tokenizer.add_tokens(["Kyoto"])
    model = tiny_model("StarTransformer", **{**CHARACTERS, "max_char_length": 8}, vocab_size=10, tokenizer=tokenizer)
    table = features_of(model).characters
    assert [text_of(row) for row in table] == ["", "", "", "", "", "we", "ll", "Kyoto", "", ""]
    none, kyoto = features_of(model).token_features(torch.tensor([tokenizer.unk_token_id, 7]))
    assert not none.any()
    assert kyoto.any()


@pytest.mark.parametrize("has_vocabulary", [True, False])
def test_tokens_without_characters_are_warned_about_without_a_vocabulary_alone(
    has_vocabulary: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer, warned = word_tokenizer("we ##ll"), Mock()
    monkeypatch.setattr(char_cnn.logger, "warning_once", warned)
    model = model_with_characters(tokenizer=tokenizer if has_vocabulary else None)
    features_of(model).token_features(torch.tensor([tokenizer.unk_token_id]))
    assert warned.called != has_vocabulary


def test_a_tokenizer_larger_than_the_model_is_an_error() -> None:
    with pytest.raises(ValueError, match="resize_token_embeddings"):
        model_with_characters(tokenizer=word_tokenizer(SPELLED + " a b c"))


def test_a_second_vocabulary_replaces_the_first() -> None:
    tagger = {"ending": "ForTokenClassification", "use_crf": True, "tokenizer": None}
    model, fresh = (model_with_characters(**tagger).eval() for _ in range(2))
    first, second = word_tokenizer(SPELLED), word_tokenizer("a ##b c")
    first.add_special_tokens({"additional_special_tokens": ["USA"]})  # an id that the second has no entry for
    ids = torch.tensor([[5, 6, 7, 9, 10]])
    with torch.no_grad():
        model.set_vocabulary(first)
        model(ids)
        for one in (model, fresh):
            one.set_vocabulary(second)
        assert_close(dict(model.named_buffers()), dict(fresh.named_buffers()), 0.0)
        assert torch.equal(model(ids).logits, fresh(ids).logits)


# ------ the table of a copy for inference


def test_a_batch_computes_each_entry_once_and_a_copy_for_inference_looks_all_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, rows = model_with_characters().eval(), []
    features = CharCNN.features

    def counted(module: CharCNN, characters: torch.Tensor, traits: torch.Tensor) -> torch.Tensor:
        rows.append(len(characters))
        return features(module, characters, traits)

    monkeypatch.setattr(CharCNN, "features", counted)
    inputs = {"input_ids": torch.tensor([[5, 6, 5, 9], [6, 6, 6, 6]])}
    expected = model(**inputs).last_hidden_state
    assert rows == [3]
    fast = copy.deepcopy(model)
    tabulate_characters(fast)
    assert rows == [3, TINY["vocab_size"]]
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            assert difference(fast(**inputs).last_hidden_state, expected) < 1e-6
    assert rows == [3, TINY["vocab_size"]]
    fast(**inputs).last_hidden_state.sum().backward()  # the table has no gradients
    assert rows == [3, TINY["vocab_size"], 3]
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert features_of(model).table is None


def test_compiled_copies_have_the_table() -> None:
    model = model_with_characters().eval()
    ids = torch.tensor([[5, 6, 9, 10]])
    fast = modeling_star.compiled(model)
    assert features_of(fast).table is not None
    with torch.no_grad():
        assert difference(fast(ids).last_hidden_state, model(ids).last_hidden_state) < 1e-5


@pytest.mark.slow
def test_a_compiled_model_equals_the_eager_one() -> None:
    model = model_with_characters()
    inputs = random_batch(padded([3, 0, 5], 6, "holes")).inputs()
    leaves = dict(model.named_parameters())
    expected, actual = ({"x": call(**inputs).pooler_output} for call in (model, compiled(model)))
    assert_close(actual, expected, 1e-5)
    assert_close(gradients(actual, leaves), gradients(expected, leaves), 1e-4)


@pytest.mark.slow
def test_one_graph_serves_every_shape_compiled_or_exported() -> None:
    model = model_with_characters().eval()
    inputs = random_batch(padded([3, 5], 6, "holes")).inputs()
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    shapes = dict.fromkeys(inputs, axes)
    exported = torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False).module()
    graph = compiled(model, dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for lengths, columns in (([4, 0, 8], 9), ([1, 3], 4)):
            inputs = random_batch(padded(lengths, columns, "left")).inputs()
            expected = model(**inputs).last_hidden_state
            assert difference(graph(**inputs).last_hidden_state, expected) < 1e-5
            assert difference(exported(**inputs).last_hidden_state, expected) < 1e-5


# ------ combination with embeddings


@pytest.mark.parametrize("embeddings", EMBEDDINGS)
def test_characters_join_every_type_of_embedding(embeddings: str, tmp_path: Path, tiny_bert_path: str) -> None:
    model = embedded_model(embeddings, "StarTransformer", "Model", tmp_path, tiny_bert_path, freeze=True, **CHARACTERS)
    inputs = some_inputs()
    without = tensors_of(model, inputs)["last_hidden_state"]
    model.set_vocabulary(word_tokenizer("a ##b C 1 DE 2f ; 文"))
    assert difference(tensors_of(model, inputs)["last_hidden_state"], without) > 1e-3
    # The embeddings are frozen, the characters are not.
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name, _ in model.named_parameters() if "characters" in name} <= trained
    model.save_pretrained(tmp_path / "saved")
    loaded, info = type(model).from_pretrained(tmp_path / "saved", output_loading_info=True)
    assert not any(info.values()), info
    assert_close(tensors_of(loaded, inputs), tensors_of(model, inputs), 0.0)


def test_a_resized_vocabulary_keeps_its_characters_and_accepts_new_ones(tmp_path: Path) -> None:
    model = model_with_characters("ForTokenClassification", use_crf=True).eval()
    tokenizer, ids = word_tokenizer(SPELLED), torch.tensor([[2, 5, 6, 10, 3]])
    before = model(ids).logits
    tokenizer.add_tokens(["##Oslo"])
    model.resize_token_embeddings(len(tokenizer))
    assert torch.equal(model(ids).logits, before)
    table = features_of(model).characters
    assert text_of(table[-1]) == ""
    model.set_vocabulary(tokenizer)
    assert text_of(features_of(model).characters[-1]) == "##o"
    assert not model.crf.carries_no_tag[-1]
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path)
    more = torch.tensor([[2, 5, 13, 3]])
    assert difference(loaded(more).logits, model(more).logits) < 1e-5
