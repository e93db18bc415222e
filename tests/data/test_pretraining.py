"""Documents of files, cut into pieces, packed into blocks, masked."""

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import examples
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from modeling_star import Lexicon
from modeling_star.data.collators import MaskingCollator, MaskingUnits
from modeling_star.data.formats import running_text
from modeling_star.data.packing import (
    Blocks,
    Chunk,
    PieceEncoder,
    pack,
    packing_efficiency,
    to_pieces,
)
from modeling_star.data.text import TextData, load_texts
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError


FILES = {
    "a.txt": "\ufeffone\n\ntwo a\ntwo b\n\n\nthree\n",
    "b.txt.gz": "four\r\n\r\nfive\r\n",
    "c.jsonl": json.dumps({"title": "t", "text": "six"}) + "\n" + json.dumps({"title": "t", "text": "  "}) + "\n",
    "d.csv": "text,label\nseven,x\n",
}
LINES = ["one", "two a", "two b", "three", "four", "five"]


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return {name: str(tmp_path / name) for name in FILES}


def load_documents(files: dict[str, Any], unit: str = "line", **options: Any) -> TextData:
    return load_texts(files, unit, **options)


def test_a_column_of_running_text_that_is_guessed_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.jsonl").write_text('{"Kunde": "Mira Keil", "n": 1}\n')
    files = {"train": [str(tmp_path / "a.jsonl")]}
    assert load_documents(files, text_column_name="Kunde").text_column == "Kunde"
    assert not caplog.records
    assert load_documents(files).text_column == "Kunde"
    assert "'Kunde'" in caplog.text


def train_of(data: TextData) -> list[str]:
    return list(data.training_texts(None))


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("line", LINES),
        ("paragraph", ["one", "two a\ntwo b", "\nthree\n", "four", "five\n"]),
        ("file", ["one\n\ntwo a\ntwo b\n\n\nthree\n", "four\n\nfive\n"]),
    ],
)
def test_a_document_of_a_text_file_is_a_line_a_paragraph_or_the_file(
    paths: dict[str, str], tmp_path: Path, unit: str, expected: list[str]
) -> None:
    data = load_documents({"train": [paths["a.txt"], paths["b.txt.gz"]]}, unit)
    assert train_of(data) == expected


def rows_of(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


UNEQUAL = {
    "a file with more": [rows_of({"text": "one"}), rows_of({"text": "two", "id": 3})],
    "other types": [rows_of({"text": "one", "id": 3}), rows_of({"text": "two", "id": "x9"})],
    "an empty cell first": [rows_of({"text": "one", "meta": None}, {"text": "two", "meta": "m"})],
    "no text first": [rows_of({"id": 1}, {"text": "one"}), rows_of({"id": 2}, {"text": "two", "date": "2020-01-01"})],
    "a list": [json.dumps([{"text": "one"}, {"text": "two", "more": [1]}])],
}


@pytest.mark.parametrize("what", UNEQUAL)
def test_rows_can_differ_in_other_columns(tmp_path: Path, what: str) -> None:
    named = []
    for number, content in enumerate(UNEQUAL[what]):
        named.append(str(tmp_path / f"{number}.json"))
        Path(named[-1]).write_text(content)
    data = load_documents({"train": named}, text_column_name="text")
    assert train_of(data) == ["one", "two"]


def test_a_file_without_the_column_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(rows_of({"text": "one"}))
    (tmp_path / "b.jsonl").write_text(rows_of({"content": "two"}))
    with pytest.raises(UserError, match="content"):
        load_documents({"train": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]})


def test_a_data_set_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    for split, texts in (("train", ["a", "b"]), ("dev", ["c"])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"content": text}) + "\n" for text in texts))
    data = load_documents({}, dataset_name=str(folder))
    assert data.text_column == "content"
    assert train_of(data) == ["a", "b"]
    assert data.splits["validation"]["content"][:] == ["c"]


@pytest.mark.parametrize(
    ("files", "options", "error", "named"),
    [
        ({}, {}, UserError, "--dataset_name NAME"),
        ({"train": ["a.txt"]}, {"dataset_name": "x"}, UserError, "either --dataset_name"),
        ({"train": ["none.txt"]}, {}, UserError, "none.txt"),
        ({"train": ["empty.txt"]}, {}, UserError, "empty.txt"),
        ({"train": ["c.jsonl"]}, {"text_column_name": "texts"}, UserError, "--text_column_name"),
        ({"train": ["numbers.jsonl"]}, {}, UserError, "--text_column_name NAME"),
        ({"train": ["a.pdf"]}, {}, UserError, "'.pdf'"),
    ],
)
def test_what_cannot_be_used_is_named(
    paths: dict[str, str],
    tmp_path: Path,
    files: dict[str, list[str]],
    options: dict[str, Any],
    error: type,
    named: str,
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.pdf").write_text("x")
    (tmp_path / "numbers.jsonl").write_text('{"n": 1}\n')
    given = {split: [str(tmp_path / name) for name in several] for split, several in files.items()}
    with pytest.raises(error, match=named):
        load_documents(given, **options)


@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_paragraphs_are_separated_wherever_a_block_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(running_text, "_BLOCK", block)
    for number, text in enumerate(["a\n\nb", "a\nb\n", "a\n\n\nb\n\n", "\n\na", "a\n\n\n\nb\nc\n\nd", "a", "\n"]):
        path = tmp_path / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        assert list(running_text._texts(path, "paragraph")) == text.split("\n\n")


TEXTS = [" ".join(f"w{(7 * text + 3 * place) % 19}" for place in range(1 + text % 11)) for text in range(40)]


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


# Rows


WORDS = ["playing", "played", "player", "plays", "sing", "singer", "singing", "longest", "longer", "walker"]
SENTENCES = [" ".join(WORDS[(3 * text + place) % len(WORDS)] for place in range(12)) + " ." for text in range(30)]


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return train_tokenizer(SENTENCES, "wordpiece", vocab_size=40, min_frequency=50)


def pieces_of(tokenizer: PreTrainedTokenizerBase, texts: list[str], *source: int) -> list[Chunk]:
    encoded = tokenizer(texts)["input_ids"]
    return [Chunk(np.array(ids), (*source, number)) for number, ids in enumerate(encoded)]


def collator(tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon | None = None, **options: Any) -> MaskingCollator:
    return MaskingCollator.of(tokenizer, lexicon, options.get("probability", 0.15))


def test_a_piece_is_masked_alike_in_whatever_block_and_batch_it_comes(tokenizer: PreTrainedTokenizerFast) -> None:
    pieces = pieces_of(tokenizer, SENTENCES[:6], 1)
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
    batches = [collate([pieces_of(tokenizer, SENTENCES, *source)]) for source in ((1, 0), (1, 0), (1, 1))]
    assert torch.equal(batches[0]["labels"], batches[1]["labels"])
    assert torch.equal(batches[0]["input_ids"], batches[1]["input_ids"])
    assert not torch.equal(batches[0]["labels"], batches[2]["labels"])


@pytest.mark.parametrize("unit", ["token", "whole_word"])
def test_of_the_hidden_tokens_most_are_masks_some_are_others_and_some_stay(
    tokenizer: PreTrainedTokenizerFast, unit: str
) -> None:
    lexicon = Lexicon.whole_word(tokenizer) if unit == "whole_word" else None
    batch = collator(tokenizer, lexicon)([[piece] for piece in pieces_of(tokenizer, SENTENCES * 40, 7)])
    ids, labels, real = batch["input_ids"], batch["labels"], batch["attention_mask"] == 1
    original = torch.nn.utils.rnn.pad_sequence(
        [torch.from_numpy(piece.ids) for piece in pieces_of(tokenizer, SENTENCES * 40)], batch_first=True
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
    pieces = pieces_of(tokenizer, SENTENCES, 7)
    labels = collator(tokenizer, Lexicon.whole_word(tokenizer), probability=0.4)([[piece] for piece in pieces])[
        "labels"
    ]
    seen = set()
    for row, text in enumerate(SENTENCES):
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


def test_a_tokenizer_without_a_mask_is_refused() -> None:
    tokenizer = train_tokenizer(SENTENCES, "word")
    tokenizer.mask_token = None
    with pytest.raises(UserError, match="no mask token"):
        collator(tokenizer)
    for probability in (0.0, 1.0, 1.5):
        with pytest.raises(UserError, match=f"mlm_probability {probability}"):
            collator(train_tokenizer(SENTENCES, "word"), probability=probability)
