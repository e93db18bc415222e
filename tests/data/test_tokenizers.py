"""Tokenizers trained on a data set, windows of long texts, alignment of words and labels."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given
from transformers import PreTrainedTokenizerFast

from modeling_star.data.classification import tokenize_texts
from modeling_star.data.tagging import (
    predictions_to_words,
    tokenize_and_align,
)
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.data.windows import cut_windows


KINDS = ["word", "wordpiece", "character"]
FAMILY, THUMB, FLAG, KEYCAP, HEART = "👨‍👩‍👧", "👍🏽", "🇨🇳", "1️⃣", "❤️"
CORPUS = [
    "The quick brown fox didn't jump over 3.14 lazy dogs, did it? The fox isn't quick.",
    "Zürich's café costs 1,000 francs... see https://example.org/a?b=c or ask @fox #dogs!!!",
    "我爱北京天安门，天安门上太阳升。我在 Google 工作，用 iPhone12 打电话！",
    f"今天 happy😀😀{THUMB}{FAMILY}{FLAG}{KEYCAP}{HEART} 2023年！カタカナとひらがな。",
    "Привет мир, Ελλάδα, नमस्ते दुनिया, 한국어 문장, مرحبا بالعالم, สวัสดี",
]
LATIN = (
    "The fox did n't U.S. e-mail it's rock'n'roll 3.14 10:30 １２３ ＡＢＣ ﬁne İstanbul straße Ǆ $5 50% ½ ² --- ..."
)
ASIAN = "我 爱 北京 𠮷野家 ， ！ 「 カ が か\u3099 ー 々 한국어 नमस्ते می‌خواهم สวัสดี cafe\u0301 e\u0301"
EMOJI = [FAMILY, THUMB, FLAG, KEYCAP, HEART, "😀", "😀😀", "\U0001fae8", "🏴󠁧󠁢󠁥󠁮󠁧󠁿"]
ODD = ["\u200b", "\ufeff", "\u00ad", "\t", "\n", "\u3000", "\x00", "\x85", "#", "@", "##x", "[x]"]
FRAGMENTS = [*LATIN.split(), *ASIAN.split(), *EMOJI, *ODD]


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return train_tokenizer(CORPUS, request.param, min_frequency=1)


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    """Spells every word, so that words have several pieces."""
    return train_tokenizer([["abcdefgh" * 3, "hgfedcba", "x"]] * 2, "wordpiece", vocab_size=30)


def random_text(rng: random.Random) -> str:
    return "".join(rng.choice(FRAGMENTS) + rng.choice(["", "", " ", "  "]) for _ in range(rng.randint(1, 12)))


def words_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[str]:
    return [text[start:end] for start, end in tokenizer(text, return_offsets_mapping=True)["offset_mapping"][1:-1]]


# Offsets


def test_offsets_slice_the_text_to_the_token(tokenizer: PreTrainedTokenizerFast) -> None:
    rng = random.Random(0)
    for _ in range(400):
        text = random_text(rng)
        encoding = tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        for token, (start, end) in zip(encoding.tokens(), encoding["offset_mapping"], strict=True):
            assert start < end
            if token != "[UNK]":
                assert text[start:end].lower() == token.removeprefix("##") if token != text[start:end] else True


def test_offsets_lose_nothing_but_separators(tokenizer: PreTrainedTokenizerFast) -> None:
    rng = random.Random(1)
    separators = set("\u200b\ufeff\u00ad\x00\x85")
    for _ in range(400):
        text = random_text(rng)
        covered = [False] * len(text)
        previous = 0
        for start, end in tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]:
            assert start >= previous, f"tokens overlap in {text!r}"
            previous = end
            covered[start:end] = [True] * (end - start)
        lost = [letter for letter, seen in zip(text, covered, strict=True) if not seen]
        assert all(letter.isspace() or letter in separators for letter in lost), repr(text)


# What is a token


def test_characters_of_chinese_are_tokens_and_latin_words_and_numbers_stay_whole() -> None:
    tokenizer = train_tokenizer(CORPUS, "character", min_frequency=1)
    text = f"我在Google工作，iPhone12卖1,000元！2023年{FAMILY}{THUMB}😀😀{FLAG}{KEYCAP}{HEART}。"
    expected = [*"我在", "Google", *"工作，", "iPhone12", "卖", "1,000", *"元！", "2023", "年"]
    assert words_of(tokenizer, text) == [*expected, FAMILY, THUMB, "😀", "😀", FLAG, KEYCAP, HEART, "。"]


@pytest.mark.parametrize("kind", ["word", "wordpiece", "character"])
def test_data_split_by_character_and_their_text_have_the_same_tokens(kind: Any) -> None:
    texts = ["1978年1月7日，刘洋加入NBA公司……", f"IBM的3.14号👍🏿{FLAG}", "don't卖1,000元"]
    split = [[*"1978年1月7日，刘洋加入NBA公司……"], [*"IBM的3.14号", "👍🏿", FLAG], [*"don't卖1,000元"]]
    tokenizer = train_tokenizer(split, kind, min_frequency=1)
    for text, words in zip(texts, split, strict=True):
        assert tokenizer(text)["input_ids"] == tokenizer(words, is_split_into_words=True)["input_ids"]
        assert words_of(tokenizer, text) == words
        assert "[UNK]" not in tokenizer.tokenize(text)


def test_words_split_as_in_the_penn_treebank() -> None:
    text = "He didn't say it's U.S. style, e.g. 3.14... @bob: http://a.org/b?c=d. Can't 'salt' isn'table"
    split = "He did n't say it 's U.S. style , e.g. 3.14 ... @bob : http://a.org/b?c=d . Ca n't ' salt ' isn ' table"
    assert " ".join(words_of(train_tokenizer([text], "word", min_frequency=1), text)) == split


# Special tokens, saving and loading


def test_pairs_get_token_types_as_in_bert(tokenizer: PreTrainedTokenizerFast) -> None:
    encoding = tokenizer("fox", "did fox")
    tokens, types = encoding.tokens(), encoding["token_type_ids"]
    middle = tokens.index("[SEP]")
    assert (tokens[0], tokens[-1], tokens.count("[SEP]")) == ("[CLS]", "[SEP]", 2)
    assert types == [0] * (middle + 1) + [1] * (len(tokens) - middle - 1)
    assert tokenizer.pad_token_id == 0


LOAD = """
import json, sys
from transformers import AutoTokenizer
assert "modeling_star" not in sys.modules
text, pair = json.loads(sys.argv[1])
for folder in sys.argv[2:]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoding = tokenizer(text, pair, return_offsets_mapping=True)
    words = tokenizer([["New York", "", "fox"]], is_split_into_words=True).word_ids(0)
    decoded = tokenizer.decode(encoding["input_ids"], skip_special_tokens=True)
    masked = tokenizer.tokenize("fox [MASK]")
    facts = [tokenizer.model_max_length, tokenizer.padding_side, tokenizer.mask_token, len(tokenizer)]
    print(json.dumps([dict(encoding), words, decoded, masked, facts]))
"""


def test_auto_tokenizer_loads_it_elsewhere_without_our_code(tmp_path: Path) -> None:
    tokenizers = {kind: train_tokenizer(CORPUS, kind, min_frequency=1, model_max_length=64) for kind in KINDS}
    for kind, tokenizer in tokenizers.items():
        tokenizer("made to", "truncate and pad", truncation=True, max_length=5, padding="max_length")
        tokenizer.save_pretrained(tmp_path / kind)
        (tmp_path / kind / "config.json").write_text('{"model_type": "star_transformer"}')
    texts = ["The fox didn't 我爱北京 😀 zzz", "3.14 dogs"]
    command = [sys.executable, "-I", "-c", LOAD, json.dumps(texts), *(str(tmp_path / kind) for kind in KINDS)]
    output = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True).stdout
    for line, tokenizer in zip(output.splitlines(), tokenizers.values(), strict=True):
        encoding, words, decoded, masked, facts = json.loads(line)
        here = tokenizer(*texts, return_offsets_mapping=True)
        assert encoding == {name: json.loads(json.dumps(values)) for name, values in here.items()}
        assert set(encoding) == {"input_ids", "token_type_ids", "attention_mask", "offset_mapping"}
        assert words == tokenizer([["New York", "", "fox"]], is_split_into_words=True).word_ids(0)
        assert decoded == tokenizer.decode(here["input_ids"], skip_special_tokens=True)
        assert masked[-1] == "[MASK]"
        assert facts == [64, "right", "[MASK]", len(tokenizer)]


@pytest.mark.parametrize("kind", KINDS)
def test_training_twice_gives_the_same_tokenizer(kind: str) -> None:
    def train() -> str:
        return train_tokenizer(CORPUS, kind, min_frequency=1, vocab_size=200).backend_tokenizer.to_str()

    # the trainers' hash maps are seeded anew each time: left to themselves, five WordPiece vocabularies all differ
    assert len({train() for _ in range(5)}) == 1


# Words and their labels

LABELS = ["O", "B-PER", "I-PER"]


def tagged(*sentences: list[str]) -> Dataset:
    return Dataset.from_dict({"tokens": sentences, "tags": [[i % 3 for i in range(len(s))] for s in sentences]})


def test_first_pieces_are_labelled(pieces: PreTrainedTokenizerFast) -> None:
    features = tokenize_and_align(tagged(["abc", "x", "hg"]), pieces)
    row = features[0]
    word_ids = pieces([["abc", "x", "hg"]], is_split_into_words=True).word_ids(0)
    assert len(word_ids) > 5  # words do have several pieces
    firsts = [word_ids.index(word) for word in range(3)]
    assert [row["labels"][place] for place in firsts] == [0, 1, 2]
    assert sum(label != -100 for label in row["labels"]) == 3
    assert [row["word_ids"][place] for place in firsts] == [0, 1, 2]
    assert set(features.column_names) == {
        *pieces.model_input_names, "labels", "word_ids", "example_index", "num_words"
    }  # fmt: skip


def test_words_of_nothing_or_with_spaces_keep_their_label(tokenizer: PreTrainedTokenizerFast) -> None:
    words = ["fox", "", " ", "New York", "\u200b", "我爱", "dogs"]
    data = Dataset.from_dict({"tokens": [words, []], "tags": [[0, 1, 2, 0, 1, 2, 0], []]})
    features = tokenize_and_align(data, tokenizer)
    read = [place for place, word in enumerate(features[0]["word_ids"]) if word >= 0]
    assert [features[0]["labels"][place] for place in read] == data[0]["tags"]
    assert features[0]["input_ids"][read[1]] == tokenizer.unk_token_id
    assert features[1]["labels"] == [-100, -100]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("stride", [0, 3, 6])
def test_windows_read_every_word_once_and_in_order(
    pieces: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, stride: int, side: str
) -> None:
    monkeypatch.setattr(pieces, "truncation_side", side)
    rng = random.Random(stride)
    sentences = [["abcdefgh"[: rng.randint(0, 8)] for _ in range(rng.randint(0, 30))] for _ in range(20)]
    data = tagged(*sentences)
    features = tokenize_and_align(data, pieces, max_seq_length=10, stride=stride)
    assert len(features) > len(data)
    assert all(len(row["input_ids"]) <= 10 for row in features)
    whole = pieces([[word or "[UNK]" for word in s] for s in sentences], is_split_into_words=True)
    for example, words in enumerate(sentences):
        rows = [row for row in features if row["example_index"] == example]
        read = [(word, row["input_ids"][i]) for row in rows for i, word in enumerate(row["word_ids"]) if word >= 0]
        assert [word for word, _ in read] == list(range(len(words)))
        # each at its first piece, also where a window starts in the middle of the word
        word_ids = whole.word_ids(example)
        assert [token for _, token in read] == [whole["input_ids"][example][word_ids.index(w)] for w, _ in read]
        labels = [label for row in rows for label in row["labels"] if label != -100]
        assert labels == data[example]["tags"]


def test_predictions_return_to_their_words(pieces: PreTrainedTokenizerFast) -> None:
    rng = np.random.default_rng(0)
    sentences = [["abcdefgh"[: length % 9] for length in range(count)] for count in (25, 0, 7, 40)]
    tags = [rng.integers(0, 3, len(words)).tolist() for words in sentences]
    data = Dataset.from_dict({"tokens": sentences, "tags": tags})
    features = tokenize_and_align(data, pieces, max_seq_length=12, stride=4)
    # as Trainer returns them: padded to the longest batch with -100
    logits = np.full((len(features), 15, 3), -100.0)
    for row, labels in enumerate(features["labels"]):
        for place, label in enumerate(labels):
            logits[row, place] = np.eye(3)[label] if label >= 0 else rng.random(3)
    assert predictions_to_words(features, logits, LABELS) == [[LABELS[tag] for tag in row] for row in tags]
    with pytest.raises(ValueError, match="3 rows of predictions"):
        predictions_to_words(features, logits[:3], LABELS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_seq_length": 10, "stride": 8}, "stride=8"),
        ({"stride": 4}, "max_seq_length"),
        ({"max_seq_length": 2}, "leaves no room"),
    ],
)
def test_impossible_lengths_are_refused(pieces: PreTrainedTokenizerFast, change: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tokenize_and_align(tagged(["x"]), pieces, **change)


# Texts


def test_long_texts_are_cut(tokenizer: PreTrainedTokenizerFast) -> None:
    data = Dataset.from_dict({"a": ["fox " * 10, "fox", "fox " * 6], "b": ["dogs", "dogs", "dogs " * 4]})
    features = tokenize_texts(data, tokenizer, "a", "b", max_seq_length=8, split="train")
    assert [len(ids) for ids in features["input_ids"]] == [8, 5, 8]
    assert [sum(types) for types in features["token_type_ids"]] == [2, 2, 3]  # the longer text is cut first


def read(count: int, limit: int, stride: int | None, from_end: bool = False) -> list[tuple[list[int], list[int]]]:
    """The tokens of each window of a text without special tokens, and those that count."""
    windows = cut_windows([True] * count, limit, stride, from_end=from_end)
    return [(window.tokens.tolist(), window.tokens[window.read].tolist()) for window in windows]


@given(
    head=st.integers(0, 3),
    count=st.integers(0, 40),
    tail=st.integers(0, 2),
    size=st.integers(1, 12),
    stride=st.integers(0, 12),
    from_end=st.booleans(),
)
def test_every_token_counts_once_where_it_has_most_context(
    head: int, count: int, tail: int, size: int, stride: int, from_end: bool
) -> None:
    is_content = [False] * head + [True] * count + [False] * tail
    windows = cut_windows(is_content, head + size + tail, stride, from_end=from_end)
    spans = [window.tokens[head : len(window.tokens) - tail].tolist() for window in windows]
    for window, span in zip(windows, spans, strict=True):
        assert window.tokens.tolist() == [*range(head), *span, *range(head + count, head + count + tail)]
        assert len(span) <= size
    # the loop over all windows that hold a token
    best: dict[int, tuple[int, int]] = {}
    for number, span in enumerate(spans):
        for token in span:
            context = min(token - span[0], span[-1] - token)
            if token not in best or context > best[token][0]:
                best[token] = (context, number)
    assert sorted(best) == list(range(head, head + count))
    for number, window in enumerate(windows):
        assert window.tokens[window.read].tolist() == [token for token, (_, n) in sorted(best.items()) if n == number]
