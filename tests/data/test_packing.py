"""Documents cut into pieces, packed into blocks, laid out as rows."""

import itertools
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from common import examples
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from modeling_star.data import packing
from modeling_star.data.packing import (
    Blocks,
    Chunk,
    PieceEncoder,
    StreamedBlocks,
    block_rows,
    pack,
    packing_efficiency,
    to_pieces,
    unpack_documents,
)
from modeling_star.data.readers import stream_files
from modeling_star.data.text import fingerprint
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


class CountingTokenizer:
    """A token a character, and the number of characters of each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[int, int]] = []

    def num_special_tokens_to_add(self) -> int:
        return 0

    def __call__(self, texts: list[str], max_length: int, **_: object) -> dict[str, list[list[int]]]:
        self.calls.append((len(texts), sum(map(len, texts))))
        cuts = ((text, start) for text in texts for start in range(0, len(text), max_length))
        return {"input_ids": [[ord(sign) for sign in text[start : start + max_length]] for text, start in cuts]}


def test_a_call_of_the_tokenizer_ends_after_so_many_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_TOKENIZED_CHARACTERS", 50)
    tokenizer = CountingTokenizer()
    texts = ["a" * length for length in (200, 30, 20, 1, 200, 10, 10, 10, 30)]
    pieces = PieceEncoder(tokenizer, "text", 1000)({"text": texts})["input_ids"]  # type: ignore[arg-type]
    assert [len(ids) for ids in pieces] == [200, 30, 20, 1, 200, 10, 10, 10, 30]
    assert all(ids.dtype == np.int32 for ids in pieces)
    assert tokenizer.calls == [(1, 200), (2, 50), (2, 201), (4, 60)]


def test_few_long_documents_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_WINDOW_CHARACTERS", 100)
    texts = ["ab" * 20 + str(number % 10) for number in range(40)]  # 41 characters each
    for streams in (False, True):
        tokenizer = CountingTokenizer()
        encode = PieceEncoder(tokenizer, "text", 16)  # type: ignore[arg-type]
        if streams:
            assert len(list(itertools.islice(streamed(encode, texts, packed=False, buffer=0), 40))) == 40
        else:
            assert len(to_pieces(Dataset.from_dict({"text": texts}), encode, "train")) == 40 * 3
        counts = [count for count, _ in tokenizer.calls]
        assert max(counts) == 3, "until there are 100 characters"
        assert sum(count == 3 for count in counts) >= len(counts) - 1


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


# Streams


def streamed(encode: PieceEncoder, texts: list[str], **options: object) -> StreamedBlocks:
    stream = Dataset.from_dict({"text": texts}).to_iterable_dataset()
    return StreamedBlocks(stream, encode, **{"packed": True, "seed": 3, "buffer": 10, **options})


def test_a_stream_gives_every_document_once_before_it_begins_again_in_another_order(encode: PieceEncoder) -> None:
    expected = Counter(tuple(ids) for ids in encode({"text": TEXTS})["input_ids"])
    # One document a block: packing has an order of its own.
    blocks = iter(streamed(encode, TEXTS, packed=False))
    passes = []
    for _ in range(2):
        seen: list[Chunk] = []
        while len(seen) < expected.total():
            seen += next(blocks)
        passes.append([tuple(piece.ids.tolist()) for piece in seen])
        assert Counter(passes[-1]) == expected
    assert passes[0] != passes[1]


def test_each_window_of_a_stream_is_packed_and_comes_in_another_order(encode: PieceEncoder) -> None:
    ids = [tuple(row.tolist()) for row in encode({"text": TEXTS})["input_ids"]]
    order, starts = pack([len(row) for row in ids], encode.size)
    packed = [[ids[place] for place in order[a:b]] for a, b in itertools.pairwise(starts.tolist())]
    blocks = itertools.islice(streamed(encode, TEXTS, buffer=0), len(packed))
    seen = [[tuple(piece.ids.tolist()) for piece in block] for block in blocks]
    assert sorted(seen) == sorted(packed)
    assert seen != packed


@pytest.mark.parametrize("buffer", [0, 10])
def test_workers_give_every_document_once_whatever_the_files_hold(
    encode: PieceEncoder, tmp_path: Path, buffer: int
) -> None:
    paths, count = [], 0
    for size in (100, 30, 30):
        paths.append(tmp_path / f"{size}-{count}.txt")
        # Each its own: numbers in the nineteen words of the tokenizer.
        lines = (f"w{number // 19 % 19} w{number % 19}\n" for number in range(count, count + size))
        paths[-1].write_text("".join(lines))
        count += size
    stream = stream_files(paths, "line", "text")
    blocks = StreamedBlocks(stream, encode, packed=False, seed=3, buffer=buffer)
    loader = DataLoader(blocks, batch_size=1, num_workers=2, collate_fn=list)
    seen = [tuple(block[0].ids.tolist()) for (block,) in itertools.islice(loader, 160)]
    assert len(set(seen)) == 160
    assert len({piece.key for (block,) in itertools.islice(loader, 160) for piece in block}) == 160


@pytest.mark.slow
def test_workers_give_every_document_once_in_every_pass(encode: PieceEncoder) -> None:
    loader = DataLoader(streamed(encode, TEXTS[:6], packed=False), batch_size=1, num_workers=2, collate_fn=list)
    passes: dict[int, list[tuple]] = {}
    for (block,) in itertools.islice(loader, 6 * 610):
        for piece in block:
            *_, number_of_pass, _ = piece.key
            passes.setdefault(number_of_pass, []).append(tuple(piece.ids.tolist()))
    expected = sorted(tuple(ids) for ids in encode({"text": TEXTS[:6]})["input_ids"])
    assert len(passes) >= 600
    assert all(sorted(passes[number]) == expected for number in range(600))


@pytest.mark.parametrize("packed", [True, False])
def test_a_stream_is_the_same_each_time_it_is_read(
    encode: PieceEncoder, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "_STREAM_WINDOW", 7)

    def read(seed: int = 3) -> list[list[tuple]]:
        blocks = itertools.islice(streamed(encode, TEXTS, packed=packed, seed=seed), 60)
        return [[(piece.key, *piece.ids.tolist()) for piece in block] for block in blocks]

    first = read()
    assert read() == first
    assert read(seed=4) != first
    keys = [entry[0] for block in first for entry in block]
    assert len(set(keys)) == len(keys)
    assert all(len(block) == 1 for block in first) is not packed


def first_texts(encode: PieceEncoder, count: int, **options: object) -> list[int]:
    """Which of six texts a stream begins with, counted from 0."""
    whole = [tuple(ids) for ids in encode({"text": TEXTS[:6]})["input_ids"]]
    blocks = itertools.islice(streamed(encode, TEXTS[:6], packed=False, **options), count)
    return [whole.index(tuple(block[0].ids)) for block in blocks]


def test_without_a_buffer_documents_come_in_their_order(encode: PieceEncoder) -> None:
    assert first_texts(encode, 6, buffer=0) == list(range(6))


def test_another_seed_gives_another_order_of_documents(encode: PieceEncoder) -> None:
    orders = [first_texts(encode, 6, buffer=10, seed=seed) for seed in (1, 2)]
    assert sorted(orders[0]) == sorted(orders[1])
    assert orders[0] != orders[1]


def test_a_document_is_one_of_those_that_a_buffer_holds(encode: PieceEncoder) -> None:
    firsts = {first_texts(encode, 1, buffer=2, seed=seed)[0] for seed in range(8)}
    assert firsts == {0, 1}


def test_the_masks_of_a_stream_change_with_the_seed(encode: PieceEncoder) -> None:
    first, other = (next(iter(streamed(encode, TEXTS, seed=seed)))[0].key for seed in (3, 4))
    assert first[:2] != other[:2]


def test_documents_that_are_held_out_never_come(encode: PieceEncoder) -> None:
    held = TEXTS[:5]
    blocks = streamed(encode, TEXTS, held_out=frozenset(map(fingerprint, held)))
    seen = {tuple(piece.ids.tolist()) for block in itertools.islice(blocks, 60) for piece in block}
    assert seen == {tuple(ids) for ids in encode({"text": [t for t in TEXTS if t not in held]})["input_ids"]}


def test_a_stream_without_any_document_ends(encode: PieceEncoder) -> None:
    assert list(streamed(encode, ["", "\u200b"])) == []


# Rows


@st.composite
def blocks_of_documents(draw: st.DrawFn) -> list[list[list[int]]]:
    """Up to 3 blocks of up to 4 documents of up to 5 numbers."""
    document = st.lists(st.integers(1, 99), min_size=1, max_size=5)
    return draw(st.lists(st.lists(document, min_size=1, max_size=4), min_size=1, max_size=3))


def test_blocks_of_padding_alone_become_no_row() -> None:
    mask, of_block, rows = unpack_documents(torch.zeros(2, 3, dtype=torch.long), (torch.ones(2, 3), -1))
    assert (mask.shape, of_block.shape, rows.shape) == ((0, 0), (0,), (0, 0))


@given(blocks=blocks_of_documents(), columns=st.sampled_from([None, 20]))
@examples(60)
def test_a_document_of_a_block_becomes_a_row(blocks: list[list[list[int]]], columns: int | None) -> None:
    pieces = [[Chunk(np.array(document), (0,)) for document in block] for block in blocks]
    tokens, sequences = block_rows(pieces, columns)
    assert tokens.shape == sequences.shape
    assert tokens.shape[1] == (20 if columns else max(sum(map(len, block)) for block in blocks))
    flat = [number for block in blocks for document in block for number in document]
    ids = torch.from_numpy(np.array([*flat, 0])[tokens])
    mask, of_block, rows = unpack_documents(torch.from_numpy(sequences), (ids, -1))
    documents = [(number, document) for number, block in enumerate(blocks) for document in block]
    assert of_block.tolist() == [number for number, _ in documents]
    longest = max(len(document) for _, document in documents)
    assert rows.tolist() == [document + [-1] * (longest - len(document)) for _, document in documents]
    assert mask.tolist() == [[1] * len(document) + [0] * (longest - len(document)) for _, document in documents]
