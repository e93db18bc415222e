"""Masking of tokens and whole words."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from modeling_star import Lexicon
from modeling_star.data.collators import MaskingCollator, MaskingUnits
from modeling_star.data.packing import Chunk
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError


WORDS = ["playing", "played", "player", "plays", "sing", "singer", "singing", "longest", "longer", "walker"]
TEXTS = [" ".join(WORDS[(3 * text + place) % len(WORDS)] for place in range(12)) + " ." for text in range(30)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(TEXTS, "wordpiece", vocab_size=40, min_frequency=50)


def pieces_of(tokenizer: PreTrainedTokenizerBase, texts: list[str], *source: int) -> list[Chunk]:
    encoded = tokenizer(texts)["input_ids"]
    return [Chunk(np.array(ids), (*source, number)) for number, ids in enumerate(encoded)]


def collator(tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon | None = None, **options: Any) -> MaskingCollator:
    return MaskingCollator.of(tokenizer, lexicon, options.get("probability", 0.15))


def test_a_piece_is_masked_alike_in_whatever_block_and_batch_it_comes(tokenizer: PreTrainedTokenizerFast) -> None:
    pieces = pieces_of(tokenizer, TEXTS[:6], 1)
    collate = collator(tokenizer, Lexicon.whole_word(tokenizer), probability=0.3)
    packed = collate([pieces[4:1:-1], pieces[:2], pieces[5:]])
    alone = [collate([[piece]]) for piece in pieces]
    assert packed["blocks"].tolist() == [0, 0, 0, 1, 1, 2]
    for row, piece in enumerate([4, 3, 2, 0, 1, 5]):
        own = packed["attention_mask"][row] == 1
        for name in ("input_ids", "labels"):
            assert torch.equal(packed[name][row][own], alone[piece][name][0]), name


def test_masks_follow_their_key_alone(tokenizer: PreTrainedTokenizerFast) -> None:
    collate = collator(tokenizer)
    batches = [collate([pieces_of(tokenizer, TEXTS, *source)]) for source in ((1, 0), (1, 0), (1, 1))]
    assert torch.equal(batches[0]["labels"], batches[1]["labels"])
    assert torch.equal(batches[0]["input_ids"], batches[1]["input_ids"])
    assert not torch.equal(batches[0]["labels"], batches[2]["labels"])


@pytest.mark.parametrize("unit", ["token", "whole_word"])
def test_of_the_hidden_tokens_most_are_masks_some_are_others_and_some_stay(
    tokenizer: PreTrainedTokenizerFast, unit: str
) -> None:
    lexicon = Lexicon.whole_word(tokenizer) if unit == "whole_word" else None
    batch = collator(tokenizer, lexicon)([[piece] for piece in pieces_of(tokenizer, TEXTS * 40, 7)])
    ids, labels, real = batch["input_ids"], batch["labels"], batch["attention_mask"] == 1
    original = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(piece.ids) for piece in pieces_of(tokenizer, TEXTS * 40)], batch_first=True
    )
    hidden = labels != -100
    assert torch.equal(labels[hidden], original[hidden])
    assert torch.equal(ids[~hidden & real], original[~hidden & real])
    special = torch.isin(original, torch.tensor(tokenizer.all_special_ids))
    assert not (hidden & special).any()
    ordinary = real & ~special
    assert int(ordinary.sum()) > 40_000
    # Deviations of 4 standard errors and more, words being drawn as one.
    assert float(hidden.sum() / ordinary.sum()) == pytest.approx(0.15, abs=0.012)
    masked = (ids == tokenizer.mask_token_id)[hidden].float().mean()
    unchanged = (ids == original)[hidden].float().mean()
    assert float(masked) == pytest.approx(0.8, abs=0.02)
    assert float(unchanged) == pytest.approx(0.1 + 0.1 / len(tokenizer), abs=0.02)
    assert not torch.isin(ids[hidden], torch.tensor(sorted({*tokenizer.all_special_ids} - {4}))).any()


def test_a_word_is_hidden_as_a_whole(tokenizer: PreTrainedTokenizerFast) -> None:
    pieces = pieces_of(tokenizer, TEXTS, 7)
    labels = collator(tokenizer, Lexicon.whole_word(tokenizer), probability=0.4)([[piece] for piece in pieces])[
        "labels"
    ]
    seen = set()
    for row, text in enumerate(TEXTS):
        words = tokenizer(text).word_ids()
        for word in set(words) - {None}:
            hidden = {bool(labels[row, place] != -100) for place, own in enumerate(words) if own == word}
            assert len(hidden) == 1
            seen |= {(words.count(word) > 1, *hidden)}
    assert len(seen) == 4  # words of one and of several tokens, hidden and shown


def test_the_words_of_a_lexicon_are_taken_longest_first_from_the_left() -> None:
    texts = ["今天天气很好", "天气好天天"]
    tokenizer = train_tokenizer(texts, "character", min_frequency=1)
    lexicon = Lexicon.from_words(["今天", "天天", "天气", "天气很", "很好"], tokenizer)
    ids = [tokenizer(text)["input_ids"] for text in texts]
    first = MaskingUnits(lexicon).first_tokens(np.concatenate(ids), [len(own) for own in ids])
    #      [CLS] 今天 天气很 好 [SEP] [CLS] 天气 好 天天 [SEP]
    assert first.tolist() == [0, 1, 1, 3, 3, 3, 6, 7, 8, 9, 9, 11, 12, 12, 14]


def test_a_word_does_not_reach_into_the_next_piece(tokenizer: PreTrainedTokenizerFast) -> None:
    # As of a tokenizer that puts no special tokens around a text, cut in the middle of a word.
    word = tokenizer("walker", add_special_tokens=False)["input_ids"]
    assert len(word) > 2
    units = MaskingUnits(Lexicon.whole_word(tokenizer))
    ids = np.array([*word[:2], *word[2:]])
    assert units.first_tokens(ids, [len(word)]).tolist() == [0] * len(word)
    assert units.first_tokens(ids, [2, len(word) - 2]).tolist() == [0, 0] + [2] * (len(word) - 2)


def test_a_piece_of_a_word_after_an_added_token_is_a_unit(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.add_tokens(["<added>"])
    start, rest = tokenizer("walker", add_special_tokens=False)["input_ids"][:2]
    units = MaskingUnits(Lexicon.whole_word(tokenizer))
    # As where a long document is cut within a word.
    ids = np.array([tokenizer.cls_token_id, rest, start, rest, tokenizer.convert_tokens_to_ids("<added>"), rest])
    assert units.first_tokens(ids, [6]).tolist() == [0, 1, 2, 2, 4, 5]


def test_padding_holds_the_padding_token_and_no_label(tokenizer: PreTrainedTokenizerFast) -> None:
    blocks = [[piece] for piece in pieces_of(tokenizer, ["playing", "playing sing singer"], 1)]
    batch = collator(tokenizer)(blocks)
    padding = batch["attention_mask"] == 0
    assert padding.any()
    assert set(batch["input_ids"][padding].tolist()) == {tokenizer.pad_token_id}
    assert set(batch["labels"][padding].tolist()) == {-100}


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    tokenizer = train_tokenizer(TEXTS, "word")
    tokenizer.mask_token = None
    with pytest.raises(UserError, match="no mask token"):
        collator(tokenizer)
    for probability in (0.0, 1.0, 1.5):
        with pytest.raises(UserError, match=f"mlm_probability {probability}"):
            collator(train_tokenizer(TEXTS, "word"), probability=probability)
