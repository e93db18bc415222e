"""An encoder of ours with a Transformer decoder: padding, beams, caches, losses, saving."""

from pathlib import Path
from typing import Any

import pytest
import torch
from common import lexicon_of, some_words
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM
from translation import TextEncoderDecoderConfig, TextEncoderDecoderModel


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
        ({"encoder": {"embedding_size": 5}, "share_embeddings": True}, "share_embeddings=False"),
        ({"tie_word_embeddings": False, "share_embeddings": True}, "share_embeddings=False"),
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        TextEncoderDecoderConfig(**fields)
