"""Documents cut into pieces, packed into blocks, laid out as rows."""

import itertools

import datasets
import numpy as np
import pytest
from common import examples
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from modeling_star.data import packing
from modeling_star.data.packing import (
    Blocks,
    PieceEncoder,
    pack,
    packing_efficiency,
    to_pieces,
)
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError


TEXTS = [" ".join(f"w{(7 * text + 3 * place) % 19}" for place in range(1 + text % 11)) for text in range(40)]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture(scope="module")
def encode() -> PieceEncoder:
    return PieceEncoder(train_tokenizer(TEXTS, "word"), "text", 8)


@pytest.fixture
def pieces(encode: PieceEncoder) -> Dataset:
    return to_pieces(Dataset.from_dict({"text": TEXTS}), encode, "train")


# Pieces


def test_the_pieces_of_a_document_are_its_tokens_each_between_special_ones(encode: PieceEncoder) -> None:
    tokenizer = encode.tokenizer
    text = TEXTS[10]
    whole = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert len(whole) == 11
    rows = encode({"text": [text]})["input_ids"]
    assert [len(row) for row in rows] == [8, 7]
    assert all(row[0] == tokenizer.cls_token_id and row[-1] == tokenizer.sep_token_id for row in rows)
    assert [index for row in rows for index in row[1:-1]] == whole


def test_a_document_that_no_token_is_made_of_has_no_piece(encode: PieceEncoder) -> None:
    assert len(encode({"text": ["w1 w2", "\u200b", "w3"]})["input_ids"]) == 2


def test_a_split_of_which_no_token_is_made_is_refused(encode: PieceEncoder) -> None:
    with pytest.raises(UserError, match="validation split has no text"):
        to_pieces(Dataset.from_dict({"text": ["\u200b"]}), encode, "validation")


# Blocks


@given(lengths=st.lists(st.integers(1, 16), max_size=40))
@examples(60)
def test_every_piece_lies_in_one_block_and_no_two_blocks_would_fit_into_one(lengths: list[int]) -> None:
    order, starts = pack(lengths, 16)
    assert sorted(order.tolist()) == list(range(len(lengths)))
    assert starts[0] == 0
    assert starts[-1] == len(lengths)
    blocks = [order[a:b].tolist() for a, b in itertools.pairwise(starts.tolist())]
    totals = [sum(lengths[piece] for piece in block) for block in blocks]
    assert all(0 < total <= 16 for total in totals)
    assert all(a + b > 16 for a, b in itertools.combinations(totals, 2))
    assert all(block == sorted(block) for block in blocks)


def test_pieces_are_packed_with_those_near_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_WINDOW", 4)
    order, starts = pack([3, 5, 2, 6, 8, 1, 7], 8)
    assert [order[a:b].tolist() for a, b in itertools.pairwise(starts.tolist())] == [[2, 3], [0, 1], [4], [5, 6]]


def test_a_block_holds_its_pieces_with_keys_that_change_with_seed_and_epoch(pieces: Dataset) -> None:
    blocks = Blocks(pieces, 16, seed=5)
    assert packing_efficiency(blocks, 16) == pytest.approx(blocks.lengths.sum() / (16 * len(blocks)))

    def keys(blocks: Blocks) -> list[tuple[int, ...]]:
        return [piece.key for index in range(len(blocks)) for piece in blocks[index]]

    rows = pieces["input_ids"][:]
    for index in range(len(blocks)):
        assert all(np.array_equal(piece.ids, rows[piece.key[-1]]) for piece in blocks[index])
    first = keys(blocks)
    assert len(set(first)) == len(first) == len(pieces)
    blocks.begin_epoch(1)
    sets = [set(first), set(keys(blocks)), set(keys(Blocks(pieces, 16, seed=6))), set(keys(Blocks(pieces, 16, None)))]
    assert not any(a & b for a, b in itertools.combinations(sets, 2))
    # One document a block: the same pieces under the same keys.
    assert set(keys(Blocks(pieces, None, seed=5))) == sets[0]


def test_a_worker_that_lives_through_several_epochs_sees_each_begin(pieces: Dataset) -> None:
    blocks = Blocks(pieces, 16, seed=5)
    loader = DataLoader(blocks, batch_size=len(blocks), num_workers=1, persistent_workers=True, collate_fn=list)
    epochs = []
    for epoch in (0, 1):
        blocks.begin_epoch(epoch)
        (batch,) = loader
        epochs.append({piece.key[2] for block in batch for piece in block})
    assert epochs == [{0}, {1}]
