"""Words found in batches, against brute force and an Aho-Corasick automaton; the buffers that hold them."""

import gzip
import importlib.util
import json
import pickle
import random
import time
from pathlib import Path

import pytest
import torch
from ahocorasick_rs import AhoCorasick
from common import examples, lexicon_of, masks, padded
from hypothesis import given
from hypothesis import strategies as st
from lexicon_samples import (
    Words,
    character_tokenizer,
    found,
    matcher_of,
    texts_of,
)
from real_data import data_folder
from reference import find_whole_words, find_words
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_star.data.lexicon import Lexicon
from modeling_star.models import sorted_keys
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


both_layouts = pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])


# ------ matching


@st.composite
def texts_and_words(draw: st.DrawFn) -> tuple[Tensor, Tensor, Words, int]:
    """Ids and mask `[b, n]`, words of 2 to `longest` ids, many of them parts of the texts, and `longest`."""
    mask = draw(masks(max_rows=4, max_columns=9))
    generator = random.Random(draw(st.integers(0, 10**6)))
    ids = torch.tensor([[generator.randrange(3) for _ in row] for row in mask])
    longest = draw(st.integers(2, 6))
    words = {
        tuple(generator.choices(range(3), k=generator.randint(2, longest))) for _ in range(generator.randint(1, 9))
    }
    for text in texts_of(ids, mask):
        if len(text) >= 2:
            start = generator.randrange(len(text) - 1)
            words.add(tuple(text[start : start + generator.randint(2, longest)]))
    return ids, mask, words, longest


@both_layouts
@given(sample=texts_and_words(), garbage=st.sampled_from([0, 2, -100, 2**40]))
@examples(100)
def test_matching_equals_brute_force(
    keep_padding: bool, sample: tuple[Tensor, Tensor, Words, int], garbage: int
) -> None:
    ids, mask, words, longest = sample
    spans = found(matcher_of(lexicon_of(words, longest)), ids.masked_fill(~mask, garbage), mask, keep_padding)
    assert spans == [find_words(text, words, longest) for text in texts_of(ids, mask)]


@both_layouts
@given(
    sample=texts_and_words(),
    flags=st.integers(0, 26),
    size=st.integers(1, 3),
    garbage=st.sampled_from([0, 2, -100, 2**40]),
)
@examples(100)
def test_whole_words_equal_brute_force(
    keep_padding: bool, sample: tuple[Tensor, Tensor, Words, int], flags: int, size: int, garbage: int
) -> None:
    ids, mask, _, longest = sample
    # Each of the three ids starts a word, continues one, or is alone, as do ids that the lexicon has not seen.
    kinds = [flags // 3**i % 3 if i < size else 2 for i in range(3)]
    continues, alone = ({i for i in range(3) if kinds[i] == kind} for kind in (1, 2))
    lexicon = Lexicon(
        "whole_word",
        longest,
        continues=torch.tensor([i in continues for i in range(size)]),
        alone=torch.tensor([i in alone for i in range(size)]),
    )
    spans = found(matcher_of(lexicon), ids.masked_fill(~mask, garbage), mask, keep_padding)
    assert spans == [find_whole_words(text, continues, alone, longest) for text in texts_of(ids, mask)]


def test_without_a_lexicon_nothing_is_a_word() -> None:
    ids, mask = torch.tensor([[1, 2, 3]]), torch.ones(1, 3).bool()
    matcher = WordMatcher(None, 0, 3)
    assert not matcher.state_dict()
    assert found(matcher, ids, mask, keep_padding=False) == [set()]
    # Built and not yet filled. Zeros: the ids that an empty table could be taken to hold.
    for kind in ("words", "whole_word"):
        assert found(WordMatcher(kind, 20, 3), torch.zeros_like(ids), mask, keep_padding=False) == [set()]


# ------ many words


def random_words(count: int, vocabulary: int, seed: int) -> Tensor:
    """Rows `[W, 4]`: about `count` words of 2 to 4 random ids, no two of them with the same first two."""
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.unique(torch.randint(vocabulary**2, (count,), generator=generator))
    others = torch.randint(vocabulary, (len(pairs), 2), generator=generator)
    lengths = torch.randint(2, 5, (len(pairs), 1), generator=generator)
    rows = torch.cat([(pairs // vocabulary)[:, None], (pairs % vocabulary)[:, None], others], 1)
    return rows.masked_fill(torch.arange(4) >= lengths, -1)


def in_rows(words: Tensor, matcher: WordMatcher) -> Tensor:
    """Whether each row of `words` (`[W, 4]`), a text of its own, is as a whole one of the matcher's words (`[W]`)."""
    matches = []
    for texts in words.split(2_000):
        layout = TokenLayout.from_mask(texts >= 0, keep_padding=True)
        first = layout.unpack(matcher(layout.pack(texts), layout))[:, 0]
        matches.append(first.gather(1, (texts >= 0).sum(1, keepdim=True) - 1)[:, 0])
    return torch.cat(matches)


def test_half_a_million_words_are_found_and_no_others() -> None:
    words = random_words(500_000, 250_000, seed=0)
    start = time.perf_counter()
    matcher = matcher_of(Lexicon("words", 4, words=words))
    print(f"table of {len(words):,} words: {time.perf_counter() - start:.2f} s, {len(matcher.table):,} rows")
    assert in_rows(words, matcher).all()
    # Words with one id changed, and words backwards; with this seed none of them is a word too.
    near = words[::25].clone()
    near[:, 1] = (near[:, 1] + 1) % 250_000
    assert not in_rows(near, matcher).any()
    assert not in_rows(words[::25, [1, 0, 2, 3]], matcher).any()


@pytest.mark.parametrize("shape", [(300, 300), (3, 30_000), (30_000, 3), (17, 17, 17, 17)], ids=str)
def test_dense_words_find_their_places(shape: tuple[int, ...]) -> None:
    rows = torch.cartesian_prod(*(torch.arange(size) for size in shape))
    words = torch.cat([rows, torch.full((len(rows), 4 - len(shape)), -1)], 1)
    matcher = matcher_of(Lexicon("words", 4, words=words))
    assert torch.equal(matcher.table, words.int())
    assert in_rows(words, matcher).all()


def test_the_same_words_make_the_same_buffers_in_any_order() -> None:
    tokenizer = character_tokenizer("abcdefghij")
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 4))) for _ in range(500)]
    first = matcher_of(Lexicon.from_words(words, tokenizer)).state_dict()
    second = matcher_of(Lexicon.from_words(words[::-1], tokenizer)).state_dict()
    assert first.keys() == second.keys() == {"table"}
    assert all(torch.equal(first[name], second[name]) for name in first)


# ------ real words in real texts


def data_texts(name: str) -> list[str]:
    """All texts of a data set, each once."""
    texts = {}
    for path in sorted(data_folder(name).glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as file:
            for line in file:
                row = json.loads(line)
                values = ["".join(row["tokens"])] if "tokens" in row else [row.get(c) for c in ("text", *DRCD_COLUMNS)]
                texts |= dict.fromkeys(value for value in values if value)
    return list(texts)


DRCD_COLUMNS = ("title", "question", "context")


@pytest.fixture(scope="module")
def jieba_words() -> list[str]:
    """The words of jieba's dictionary, read without jieba and without us."""
    spec = importlib.util.find_spec("jieba")
    if spec is None:
        pytest.skip("jieba is not installed: pip install jieba")
    lines = (Path(spec.origin).parent / "dict.txt").read_text(encoding="utf-8").splitlines()
    return [line.split(" ")[0] for line in lines]


def assert_equals_automaton(
    lexicon: Lexicon, words: list[str], texts: list[str], tokenizer: PreTrainedTokenizerBase, least: float
) -> None:
    """
    Every word of every text, as an Aho-Corasick automaton over the ids of `words` finds them; at least `least` for a
    token.
    """

    def letters(ids: list[int]) -> str:
        return "".join(chr(0x10000 + i) for i in ids)

    cut = tokenizer(words, add_special_tokens=False)["input_ids"]
    patterns = {letters(ids) for ids in cut if 2 <= len(ids) <= 4 and tokenizer.unk_token_id not in ids}
    assert len(lexicon) == len(patterns)
    automaton = AhoCorasick(patterns)
    matcher = matcher_of(lexicon)
    rows = sorted(tokenizer(texts, add_special_tokens=False)["input_ids"], key=len)
    count = 0
    for number, start in enumerate(range(0, len(rows), 64)):
        batch = rows[start : start + 64]
        mask = padded([len(ids) for ids in batch], max(map(len, batch)), ("right", "left", "holes")[number % 3])
        ids = torch.full(mask.shape, 1)
        ids[mask] = torch.tensor([i for text in batch for i in text], dtype=torch.long)
        spans = found(matcher, ids, mask, keep_padding=number % 2 == 1)
        for text, actual in zip(batch, spans, strict=True):
            matches = automaton.find_matches_as_indexes(letters(text), overlapping=True)
            assert actual == {(first, end - first) for _, first, end in matches}
            count += len(matches)
    print(f"{len(lexicon):,} words found {count:,} times in {len(rows):,} texts of {sum(map(len, rows)):,} tokens")
    assert count > least * sum(map(len, rows))


def test_words_of_real_texts_equal_those_of_an_automaton(jieba_words: list[str]) -> None:
    texts = [text for name in ("weibo_ner", "chnsenticorp", "drcd") for text in data_texts(name)[::50]]
    # Words of two characters are the commonest in texts.
    words = jieba_words[::30] + [word for word in jieba_words if len(word) == 2][::4]
    tokenizer = character_tokenizer("".join(texts).lower())
    assert_equals_automaton(Lexicon.from_words(words, tokenizer), words, texts, tokenizer, least=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["weibo_ner", "chnsenticorp", "drcd"])
def test_all_of_jiebas_words_in_all_texts_equal_those_of_an_automaton(name: str, jieba_words: list[str]) -> None:
    texts = data_texts(name)
    tokenizer = character_tokenizer("".join([*texts, *jieba_words]).lower())
    start = time.perf_counter()
    lexicon = Lexicon.from_jieba(tokenizer)
    print(f"{len(lexicon):,} words of jieba's: {time.perf_counter() - start:.1f} s")
    assert_equals_automaton(lexicon, jieba_words, texts, tokenizer, least=0.1)


# ------ the buffers


WHOLE = Lexicon("whole_word", 3, continues=torch.tensor([False, True]), alone=torch.zeros(2).bool())
PAIRS = lexicon_of({(0, 1), (1, 0, 1)}, 3)
OTHERS = lexicon_of({(1, 1), (1, 1, 1, 1), (0, 0)}, 4)
TEXT = [0, 1, 0, 1, 1, 1, 1]


@pytest.mark.parametrize("lexicon", [WHOLE, PAIRS, OTHERS], ids=["whole words", "pairs", "others"])
def test_a_matcher_built_for_the_size_is_filled_from_a_state_dict(lexicon: Lexicon) -> None:
    matcher = matcher_of(lexicon)
    loaded = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    assert loaded.state_dict().keys() == matcher.state_dict().keys()
    ids, mask = torch.tensor([TEXT]), torch.ones(1, len(TEXT)).bool()
    assert found(loaded, ids, mask, keep_padding=False) == [set()]
    loaded.load_state_dict(matcher.state_dict(), strict=True)
    loaded = pickle.loads(pickle.dumps(loaded))
    spans = found(matcher, ids, mask, keep_padding=False)
    assert found(loaded, ids, mask, keep_padding=False) == spans
    assert spans != [set()]


IN_64_BITS = (429_183_498, 341_889_349), {1: [3, 1, 4], 3: [3, 1, -1], 4: [2, 7, 1], 6: [70_000, 5, -1]}
IN_24_BITS = (14_150, 33_136), {5: [2, 7, 1], 6: [3, 1, -1], 7: [70_000, 5, -1], 11: [3, 1, 4]}


@pytest.mark.parametrize(("multipliers", "rows"), [IN_64_BITS, IN_24_BITS], ids=["64 bits", "24 bits"])
def test_a_table_that_was_saved_earlier_is_read(multipliers: tuple[int, int], rows: dict[int, list[int]]) -> None:
    """Its rows are in the order of hashes, some of them empty."""
    table = torch.tensor([rows.get(row, [-1, -1, -1]) for row in range(24)], dtype=torch.int32)
    state = {"table": table, "multipliers": torch.tensor(multipliers)}
    matcher = WordMatcher("words", 24, 3)
    matcher.load_state_dict(state, strict=False)
    ids = torch.tensor([[3, 1, 4, 70_000, 5, 2, 7, 1, 3]])
    spans = {(0, 2), (0, 3), (3, 2), (5, 3)}
    assert found(matcher, ids, torch.ones_like(ids).bool(), keep_padding=False) == [spans]


def test_a_graph_finds_the_same_words_with_numbers_that_float32_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    words = random_words(20_000, 300_000, seed=0)
    matcher = matcher_of(Lexicon("words", 4, words=words))
    monkeypatch.setattr(sorted_keys, "is_traced", lambda: True)
    matcher.keys = None
    assert matcher.pairs.max() < 2**24
    assert in_rows(words, matcher).all()


@pytest.mark.parametrize("after", [WHOLE, PAIRS, OTHERS, None], ids=["whole words", "pairs", "others", "none"])
@pytest.mark.parametrize("before", [WHOLE, PAIRS, OTHERS, None], ids=["whole words", "pairs", "others", "none"])
def test_one_lexicon_takes_the_place_of_another_of_any_kind(before: Lexicon | None, after: Lexicon | None) -> None:
    matcher, fresh = WordMatcher(None, 0, 3), WordMatcher(None, 0, 3)
    matcher.load(before)
    matcher.load(after)
    fresh.load(after)
    if after is None:
        fresh.max_word_length = matcher.max_word_length
    ids, mask = torch.tensor([TEXT]), torch.ones(1, len(TEXT)).bool()
    assert found(matcher, ids, mask, keep_padding=True) == found(fresh, ids, mask, keep_padding=True)
    assert matcher.kind == (None if after is None else after.kind)
    state, expected = matcher.state_dict(), fresh.state_dict()
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[name], expected[name]) for name in state)


def test_a_lexicon_is_moved_to_the_device_of_the_last_one_or_a_given_one() -> None:
    matcher = matcher_of(PAIRS).to("meta")
    matcher.load(OTHERS)
    assert {buffer.device.type for buffer in matcher.state_dict().values()} == {"meta"}
    matcher.load(WHOLE, "cpu")
    assert {buffer.device.type for buffer in matcher.buffers()} == {"cpu"}
