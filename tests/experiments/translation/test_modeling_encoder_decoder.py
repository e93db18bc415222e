"""An encoder of ours with a Transformer decoder: padding, beams, caches, losses, saving."""

from pathlib import Path
from typing import Any

import pytest
import torch
from common import lexicon_of, some_words, trained_by
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSeq2SeqLM, BertConfig, MarianConfig
from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel
from translation.generation import generate_translations


KINDS = ("star_transformer", "big_transformer", "vanilla_transformer", "disan", "bilstm")
V, PAD, START, END = 23, 0, 2, 3


def tiny(kind: str, seed: int = 0, **fields: Any) -> TextEncoderDecoderModel:
    """A model of a few numbers without dropout; its weights are spread out, so that beams do not tie."""
    dropouts = dict.fromkeys(("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    encoder = {"model_type": kind, "hidden_size": 12, "num_attention_heads": 2, "scale_embedding": True, **dropouts}
    encoder |= {"position_embedding_type": "sinusoidal", **fields.pop("encoder", {})}
    decoder = {"max_position_embeddings": 40, "dropout": 0.0, **fields.pop("decoder", {})}
    torch.manual_seed(seed)
    model = TextEncoderDecoderModel(
        TextEncoderDecoderConfig(**{"vocab_size": V, **fields}, encoder=encoder, decoder=decoder)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(0.3 * torch.randn(parameter.shape))
    if kind == "big_transformer":
        model.get_encoder().set_lexicon(lexicon_of(some_words()))
    return model.double().eval()


def sources(seed: int = 1) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 13, (1, length), generator=generator) for length in (7, 1, 4, 6)]


def batch_of(rows: list[Tensor], side: str) -> dict[str, Tensor]:
    """The rows as one batch, padded on one side."""
    longest = max(row.shape[1] for row in rows)
    padded = [torch.full((1, longest - row.shape[1]), PAD) for row in rows]
    pairs = zip(rows, padded, strict=True)
    ids = torch.cat([torch.cat([row, pad] if side == "right" else [pad, row], dim=1) for row, pad in pairs])
    return {"input_ids": ids, "attention_mask": (ids != PAD).long()}


def ended(ids: Tensor) -> list[int]:
    """A row of generated ids up to its end."""
    listed = ids.tolist()
    return listed[: listed.index(END) + 1] if END in listed else [index for index in listed if index != PAD]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("kind", KINDS)
def test_beams_give_the_same_alone_and_in_a_batch(kind: str, side: str) -> None:
    model = tiny(kind, seed=1)
    options = {"num_beams": 4, "min_new_tokens": 4, "max_new_tokens": 15, "length_penalty": 0.5}
    alone = [ended(model.generate(row, attention_mask=torch.ones_like(row), **options)[0]) for row in sources()]
    together = [ended(row) for row in model.generate(**batch_of(sources(), side), **options)]
    assert together == alone
    assert len({tuple(row) for row in alone}) > 1, "one output for every source would be the same in any batch"


@pytest.mark.parametrize("kind", KINDS)
def test_a_cache_changes_nothing(kind: str) -> None:
    model, batch = tiny(kind, seed=3), batch_of(sources(), "right")
    options = {"num_beams": 3, "max_new_tokens": 15}
    read: list[int] = []
    model.decoder.register_forward_pre_hook(
        lambda module, args, given: read.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    with_cache = model.generate(**batch, use_cache=True, **options)
    assert set(read) == {1}
    read.clear()
    assert torch.equal(with_cache, model.generate(**batch, use_cache=False, **options))
    assert len(set(read)) > 1
    start = torch.full((len(batch["input_ids"]), 1), START)
    assert model(**batch, decoder_input_ids=start, use_cache=True).past_key_values.get_seq_length() == 1
    assert model(**batch, decoder_input_ids=start, use_cache=False).past_key_values is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_output_of_the_encoder_may_be_given_back(kind: str) -> None:
    model, batch = tiny(kind), batch_of(sources(), "right")
    target = {"decoder_input_ids": torch.tensor([[START, 5]] * 4), "attention_mask": batch["attention_mask"]}
    expected = model(**batch | target).logits
    for named in (True, False):
        states = model.encoder(**batch, return_dict=named)
        logits = model(encoder_outputs=states, **target).logits
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


def test_types_and_words_reach_the_encoder() -> None:
    source, target = sources()[0], torch.tensor([[START, 5]])
    typed = tiny("star_transformer", encoder={"type_vocab_size": 2})
    types = torch.ones_like(source)
    plain = typed(source, decoder_input_ids=target).logits
    other = typed(source, decoder_input_ids=target, token_type_ids=types).logits
    assert not torch.allclose(plain, other)
    places = torch.arange(source.shape[1])[None].flip(1)
    placed = tiny("star_transformer", encoder={"position_embedding_type": "learned", "max_position_embeddings": 16})
    moved = placed(source, decoder_input_ids=target, position_ids=places).logits
    assert torch.equal(
        moved, placed(encoder_outputs=placed.encoder(source, position_ids=places), decoder_input_ids=target).logits
    )
    assert not torch.allclose(moved, placed(source, decoder_input_ids=target).logits)
    states = typed.encoder(source, token_type_ids=types)
    assert torch.equal(typed(encoder_outputs=states, decoder_input_ids=target).logits, other)
    big = tiny("big_transformer")
    words = torch.zeros(*source.shape, big.config.encoder.max_word_length, dtype=torch.long)
    words[0, 1, 2] = 1
    other = big(source, decoder_input_ids=target, word_mask=words).logits
    assert not torch.allclose(big(source, decoder_input_ids=target, word_mask=0 * words).logits, other)
    states = big.encoder(source, word_mask=words)
    assert torch.equal(big(encoder_outputs=states, decoder_input_ids=target).logits, other)


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_gradients_know_no_padding(kind: str) -> None:
    rows = sources()
    target = torch.tensor([[5, 6, 7, END]])
    gradients = []
    for side in ("right", "left"):
        model = tiny(kind)
        logits = model(**batch_of(rows, side), labels=target.expand(len(rows), -1)).logits
        for row, own in zip(rows, logits, strict=True):
            torch.testing.assert_close(own[None], model(row, labels=target).logits, rtol=0, atol=1e-10)
        model(**batch_of(rows, side), labels=target.expand(len(rows), -1)).loss.backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    for name, gradient in gradients[0].items():
        assert gradient is not None, name
        torch.testing.assert_close(gradient, gradients[1][name], rtol=0, atol=1e-10)


def test_the_loss_is_the_mean_over_the_labels_or_over_a_given_number() -> None:
    model, batch = tiny("star_transformer"), batch_of(sources(), "right")
    labels = torch.tensor([[5, 6, END, -100], [7, END, -100, -100], [8, 9, 5, END], [END, -100, -100, -100]])
    output = model(**batch, labels=labels)
    total, count = 0.0, 0
    for row, own in zip(labels.tolist(), output.logits.log_softmax(-1), strict=True):
        for place, label in enumerate(row):
            if label != -100:
                total, count = total - own[place, label].item(), count + 1
    assert output.loss.item() == pytest.approx(total / count)
    assert model(**batch, labels=labels, num_items_in_batch=50).loss.item() == pytest.approx(total / 50)


def test_a_decoder_sees_what_was_written_and_nothing_later() -> None:
    model, (source, *_) = tiny("star_transformer"), sources()
    written = torch.tensor([[START, 5, 6, 7, 8]])
    other = written.clone()
    other[0, 3:] = 11
    first, second = (model(source, decoder_input_ids=ids).logits for ids in (written, other))
    torch.testing.assert_close(first[:, :3], second[:, :3], rtol=0, atol=1e-12)
    assert not torch.allclose(first[:, 3:], second[:, 3:])


def test_labels_are_shifted_behind_the_start() -> None:
    model = tiny("star_transformer", pad_token_id=1, decoder_start_token_id=4)
    shifted = model.prepare_decoder_input_ids_from_labels(torch.tensor([[5, END, -100, -100]]))
    assert shifted.tolist() == [[4, 5, END, 1]]


def test_a_target_that_is_given_beside_labels_is_read_and_no_cache_is_kept() -> None:
    model, (source, *_) = tiny("star_transformer"), sources()
    labels, target = torch.tensor([[5, 6, END]]), torch.tensor([[START, 9, 8]])
    output = model(source, decoder_input_ids=target, labels=labels, use_cache=True)
    assert torch.equal(output.logits, model(source, decoder_input_ids=target).logits)
    assert output.past_key_values is None


def test_source_and_target_may_be_given_as_vectors() -> None:
    model, (source, *_) = tiny("star_transformer"), sources()
    target = torch.tensor([[START, 9, 8]])
    expected = model(source, decoder_input_ids=target).logits
    embedded = model.get_input_embeddings()(source)
    torch.testing.assert_close(model(inputs_embeds=embedded, decoder_input_ids=target).logits, expected)
    vectors = model.get_decoder().get_input_embeddings()(target)
    torch.testing.assert_close(model(source, decoder_inputs_embeds=vectors).logits, expected)
    options = {"max_extra_tokens": 3, "num_beams": 1}
    written = generate_translations(model, {"input_ids": source}, **options)
    assert torch.equal(generate_translations(model, {"inputs_embeds": embedded}, **options), written)


def test_masked_places_of_a_target_are_ignored() -> None:
    model, (source, *_) = tiny("star_transformer"), sources()
    seen = torch.tensor([[1, 0, 1, 1]])
    first, second = (
        model(source, decoder_input_ids=torch.tensor([[START, hidden, 6, 7]]), decoder_attention_mask=seen).logits
        for hidden in (5, 9)
    )
    torch.testing.assert_close(first[:, 2:], second[:, 2:], rtol=0, atol=1e-12)
    assert not torch.allclose(first[:, 1], second[:, 1])


def test_the_loss_is_summed_in_float32_and_0_without_labels() -> None:
    model, batch = tiny("star_transformer").to(torch.bfloat16), batch_of(sources(), "right")
    labels = torch.full((4, 3), 5)
    output = model(**batch, labels=labels)
    assert output.logits.dtype == torch.bfloat16
    expected = nn.functional.cross_entropy(output.logits.flatten(0, 1).float(), labels.flatten())
    torch.testing.assert_close(output.loss, expected)
    assert model(**batch, labels=torch.full((4, 3), -100)).loss.item() == 0


def test_one_table_serves_source_target_and_output_where_the_sides_allow_it() -> None:
    shared = tiny("star_transformer")
    table = shared.get_input_embeddings().weight
    assert table is shared.get_output_embeddings().weight
    assert table is shared.get_decoder().get_input_embeddings().weight
    apart = tiny("star_transformer", encoder={"embedding_size": 5})
    assert not apart.config.share_embeddings
    assert apart.get_input_embeddings().weight is not apart.get_output_embeddings().weight
    narrow = tiny("star_transformer", decoder={"d_model": 8, "decoder_attention_heads": 2})
    assert narrow.projection is not None
    assert narrow(sources()[0], decoder_input_ids=torch.tensor([[START]])).logits.shape == (1, 1, V)


def test_scaled_embeddings_are_the_table_times_the_root_of_its_width() -> None:
    plain = tiny("star_transformer", encoder={"scale_embedding": False}).encoder
    scaled = tiny("star_transformer").encoder
    ids = sources()[0]
    with torch.no_grad():
        plain.get_input_embeddings().weight.mul_(12**0.5)
    torch.testing.assert_close(plain(ids).last_hidden_state, scaled(ids).last_hidden_state, rtol=0, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_a_saved_model_writes_the_same(kind: str, tmp_path: Path) -> None:
    model, batch = tiny(kind).float(), batch_of(sources(), "right")
    model.save_pretrained(tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values())
    with torch.no_grad():
        expected, actual = (m(**batch, labels=batch["input_ids"]).logits for m in (model, loaded))
    # An LSTM of double weights cast down lies in pieces, a loaded one in one block: torch rounds them differently.
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5 if kind == "bilstm" else 0)
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in loaded.state_dict().items())
    fixed = [name for name, parameter in loaded.named_parameters() if not parameter.requires_grad]
    assert fixed == ["decoder.model.decoder.embed_positions.weight"]
    assert loaded.get_input_embeddings().weight is loaded.get_output_embeddings().weight
    assert torch.equal(loaded.generate(**batch, num_beams=2), model.generate(**batch, num_beams=2))


def test_frozen_embeddings_stay_frozen_when_loaded(tmp_path: Path) -> None:
    model = tiny("star_transformer", encoder={"freeze_embeddings": True}).float()
    assert not model.config.share_embeddings
    model.save_pretrained(tmp_path)
    loaded = TextEncoderDecoderModel.from_pretrained(tmp_path)
    assert not loaded.get_input_embeddings().weight.requires_grad
    assert loaded.get_output_embeddings().weight.requires_grad


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"encoder": {"model_type": "star_transfomer"}}, "star_transfomer"),
        ({"encoder": "star_transformer"}, "encoder"),
        ({"decoder": {"decoder_layer": 3}}, "decoder_layers"),
        ({"decoder": {"decoder_layers": 10**12}}, "decoder_layers"),
        ({"encoder": {"embedding_size": 5}, "share_embeddings": True}, "share_embeddings=False"),
        ({"tie_word_embeddings": False, "share_embeddings": True}, "share_embeddings=False"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        TextEncoderDecoderConfig(**fields)


def vocabulary_sizes(config: Any) -> set[int]:
    return {config.vocab_size, config.encoder.vocab_size, config.decoder.vocab_size}


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"vocab_size": 70}, 70), ({"encoder": {"vocab_size": 70}}, 70), ({"encoder": {"model_type": "disan"}}, V)],
)
def test_a_vocabulary_given_at_loading_is_that_of_both_sides(
    given: dict[str, Any], expected: int, tmp_path: Path
) -> None:
    tiny("star_transformer").save_pretrained(tmp_path)
    assert vocabulary_sizes(AutoConfig.from_pretrained(tmp_path, **given)) == {expected}
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, **given, ignore_mismatched_sizes=True)
    loaded.save_pretrained(tmp_path / "again")
    again = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "again")
    assert vocabulary_sizes(again.config) == {expected}


def test_special_tokens_given_at_loading_are_those_of_the_decoder(tmp_path: Path) -> None:
    tiny("star_transformer").config.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path, eos_token_id=9, bos_token_id=8)
    assert (config.decoder.eos_token_id, config.decoder.bos_token_id, config.decoder_start_token_id) == (9, 8, 8)
    assert config.decoder.decoder_start_token_id == 8


def test_tables_that_are_untied_at_loading_are_not_shared(tmp_path: Path) -> None:
    tiny("star_transformer", encoder={"embedding_size": 12}).config.save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).share_embeddings
    assert not AutoConfig.from_pretrained(tmp_path, tie_word_embeddings=False).share_embeddings


@pytest.mark.parametrize(
    "given",
    [{"encoder": {"freeze_embeddings": True}}, {"share_embeddings": False}, {"tie_word_embeddings": False}],
    ids=lambda given: next(iter(given)),
)
def test_a_shared_table_is_copied_to_each_side_that_no_longer_shares_it(given: dict[str, Any], tmp_path: Path) -> None:
    saved = tiny("star_transformer").float()
    assert saved.config.share_embeddings
    saved.save_pretrained(tmp_path)
    loaded, info = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, **given, output_loading_info=True)
    assert not info["missing_keys"]
    source = loaded.get_input_embeddings().weight
    assert source is not loaded.decoder.get_input_embeddings().weight
    assert source.requires_grad == ("encoder" not in given)
    batch = {"input_ids": sources()[0], "decoder_input_ids": torch.tensor([[START, 5]])}
    torch.testing.assert_close(loaded(**batch).logits, saved(**batch).logits)


def test_tables_that_are_put_in_are_those_that_are_read_and_saved(tmp_path: Path) -> None:
    batch = {"input_ids": sources()[0], "decoder_input_ids": torch.tensor([[START, 5]])}
    for shared in (True, False):
        model = tiny("star_transformer", share_embeddings=shared).float()
        before, decoder_table = model(**batch).logits, model.decoder.get_input_embeddings().weight
        table = nn.Embedding(V, 12, padding_idx=PAD)
        model.set_input_embeddings(table)
        assert model.get_input_embeddings() is table
        assert (model.decoder.get_input_embeddings().weight is decoder_table) != shared
        assert (model.get_output_embeddings().weight is table.weight) == shared
        assert not torch.equal(model(**batch).logits, before)
        model.save_pretrained(tmp_path / str(shared))
        loaded = TextEncoderDecoderModel.from_pretrained(tmp_path / str(shared))
        torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits)
    output = nn.Linear(12, V, bias=False)
    model.set_output_embeddings(output)
    assert model.get_output_embeddings() is output


def test_a_decoder_given_as_a_configuration_follows_the_whole_as_its_fields_do(tmp_path: Path) -> None:
    shape = {"d_model": 12, "decoder_layers": 1, "decoder_attention_heads": 2, "decoder_ffn_dim": 24}
    given = TextEncoderDecoderConfig(
        vocab_size=V, encoder={"hidden_size": 12, "num_attention_heads": 2}, decoder=MarianConfig(**shape)
    )
    assert vocabulary_sizes(given) == {V}
    assert (given.decoder.pad_token_id, given.decoder.decoder_start_token_id) == (PAD, START)
    assert given.share_embeddings
    assert given.decoder.decoder_layers == 1
    model = TextEncoderDecoderModel(given).eval()
    model.save_pretrained(tmp_path)
    loaded = TextEncoderDecoderModel.from_pretrained(tmp_path)
    batch = {"input_ids": sources()[0], "decoder_input_ids": torch.tensor([[START, 5]])}
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)


@pytest.mark.parametrize("kind", KINDS)
def test_reentrant_checkpointing_trains_what_a_frozen_encoder_feeds(kind: str) -> None:
    inside = BertConfig(vocab_size=V, hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)
    model = tiny(kind, encoder={"backbone_config": inside, "freeze_embeddings": True}).train()
    given = {"input_ids": sources()[0], "labels": sources()[3]}
    expected = trained_by(model, given)
    model.gradient_checkpointing_enable({"use_reentrant": True})
    assert trained_by(model, given) == expected
    model.enable_input_require_grads()  # as PEFT does besides
    assert any(name.startswith("encoder.layers.0.") for name in expected)
    model.disable_input_require_grads()
    assert not model.encoder.embeddings._forward_hooks


@pytest.mark.parametrize("kind", KINDS)
def test_embeddings_and_each_layer_stay_on_one_device(kind: str) -> None:
    model = tiny(kind)
    whole = (model.encoder.embeddings, *model.encoder.layers, *model.decoder.model.decoder.layers)
    assert {type(module).__name__ for module in whole} <= set(model._no_split_modules)


def test_fields_of_one_side_are_laid_over_the_saved_ones(tmp_path: Path) -> None:
    saved = tiny("star_transformer").config
    saved.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(
        tmp_path, encoder={"hidden_dropout_prob": 0.3, "hidden_size": 24}, decoder={"dropout": 0.2}
    )
    assert (config.encoder.hidden_dropout_prob, config.decoder.dropout) == (0.3, 0.2)
    # What follows from the width does so again, and all else is as it was.
    assert (config.encoder.head_dim, config.encoder.embedding_size) == (12, 24)
    assert config.encoder.num_attention_heads == saved.encoder.num_attention_heads
    assert config.decoder.max_position_embeddings == saved.decoder.max_position_embeddings


def test_the_decoder_uses_the_requested_attention_implementation(tmp_path: Path) -> None:
    tiny("star_transformer").save_pretrained(tmp_path)
    for way in ("eager", "sdpa"):
        model = TextEncoderDecoderModel.from_pretrained(tmp_path, attn_implementation=way)
        assert model.decoder.config._attn_implementation == way
    model = TextEncoderDecoderModel.from_pretrained(tmp_path, attn_implementation="eager")
    output = model(sources()[0], decoder_input_ids=torch.tensor([[START, 5]]), output_attentions=True)
    assert [weights.shape[-2:] for weights in output.cross_attentions] == [
        (2, 7)
    ] * model.config.decoder.decoder_layers


def test_states_requested_in_the_configuration_are_those_of_both_sides(tmp_path: Path) -> None:
    tiny("star_transformer").save_pretrained(tmp_path)
    requested = {"output_hidden_states": True, "output_attentions": True, "attn_implementation": "eager"}
    model = TextEncoderDecoderModel.from_pretrained(tmp_path, **requested)
    output = model(sources()[0], decoder_input_ids=torch.tensor([[START, 5]]))
    layers = model.config.encoder.num_hidden_layers
    assert len(output.encoder_hidden_states) == len(output.decoder_hidden_states) == layers + 1
    assert len(output.encoder_attentions) == len(output.cross_attentions) == layers
    none = model(sources()[0], decoder_input_ids=torch.tensor([[START, 5]]), output_hidden_states=False)
    assert none.encoder_hidden_states is None


def test_a_target_beyond_the_positions_is_refused() -> None:
    model, (source, *_) = tiny("star_transformer"), sources()
    message = "max_position_embeddings"
    with pytest.raises(ValueError, match=message):
        model(source, labels=torch.full((1, 41), 5))
    with pytest.raises(ValueError, match=message):  # with the cache a step gives one token
        model.generate(source, num_beams=1, min_new_tokens=60, max_new_tokens=60)
    assert model(source, labels=torch.full((1, 40), 5)).logits.shape[1] == 40


def test_a_missing_target_is_refused() -> None:
    with pytest.raises(ValueError, match="decoder_input_ids"):
        tiny("star_transformer")(sources()[0])


def test_a_model_without_an_end_token_is_refused() -> None:
    model = tiny("star_transformer")
    model.generation_config.eos_token_id = None
    with pytest.raises(ValueError, match="eos_token_id"):
        generate_translations(model, {"input_ids": torch.tensor([[5, 6]])})
