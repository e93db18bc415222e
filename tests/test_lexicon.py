"""Words found in batches against brute force and an Aho-Corasick automaton; word lists, tokenizers and buffers."""

import gzip
import importlib.util
import json
import logging
import os
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from ahocorasick_rs import AhoCorasick
from common import examples, lexicon_of, masks, padded
from hypothesis import given
from hypothesis import strategies as st
from reference import find_whole_words, find_words
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from torch import Tensor, nn
from transformers import AutoTokenizer, ByT5Tokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.dynamic_module_utils import get_imports

from modeling_star import lexicon as lexicon_module
from modeling_star.lexicon import Lexicon, WordMatcher
from modeling_star.tokens import TokenLayout


both_layouts = pytest.mark.parametrize("keep_padding", [False, True], ids=["packed", "padded"])

Words = set[tuple[int, ...]]
Span = tuple[int, int]  # first token and number of tokens


def matcher_of(lexicon: Lexicon) -> WordMatcher:
    """As a model has it: built for the size, then filled."""
    matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    return matcher


def found(matcher: WordMatcher, ids: Tensor, mask: Tensor, keep_padding: bool) -> list[set[Span]]:
    """The words of each row of `ids` (`[b, n]`), counted in real tokens."""
    layout = TokenLayout.from_mask(mask, keep_padding)
    matches = matcher(layout.pack(ids), layout)
    assert matches.dtype == torch.bool
    assert matches.shape == (len(layout.position), matcher.max_word_length)
    real = layout.pack(mask)
    assert not matches[~real].any(), "a word starts at padding"
    assert not matches[:, 0].any(), "a single token is a word"
    spans: list[set[Span]] = [set() for _ in mask]
    for token, column in matches.nonzero().tolist():
        spans[int(layout.sequence_index[token])].add((int(layout.position[token]), column + 1))
    return spans


def texts_of(ids: Tensor, mask: Tensor) -> list[list[int]]:
    """The real ids of each row."""
    return [row[real].tolist() for row, real in zip(ids, mask, strict=True)]


def found_in(lexicon: Lexicon, text: Sequence[int]) -> set[Span]:
    """The words of one text."""
    ids = torch.tensor([text])
    return found(matcher_of(lexicon), ids, torch.ones_like(ids, dtype=torch.bool), keep_padding=False)[0]


def words_in(lexicon: Lexicon) -> Words:
    return {tuple(i for i in row if i >= 0) for row in lexicon.words.tolist()}


# ------ tokenizers


def character_tokenizer(letters: Iterable[str]) -> PreTrainedTokenizerFast:
    """One token for each of `letters`, lower-cased; white space is dropped."""
    vocabulary = {token: index for index, token in enumerate(["[UNK]", "[PAD]", *sorted({*letters})])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="[UNK]", pad_token="[PAD]")


CORPUS = [
    "The unbelievable transformer believed in unbreakable transformations, and was unbroken.",
    "Believers believe; breakers break: an unbelieving breaker transforms a broken belief.",
    "我爱北京天安门，北京大学在北京。天安门上太阳升，我爱太阳。",
    "The breaker in 北京 was unbroken，and the transformer believed.",
] * 3


def byte_level_tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level BPE as GPT-2 and RoBERTa have it."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    return _trained(backend, trainer, CORPUS)


def metaspace_tokenizer(corpus: list[str] = CORPUS) -> PreTrainedTokenizerFast:
    """BPE over "▁" and letters, as SentencePiece makes it for Llama."""
    backend = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=["<s>", "</s>", "<unk>"], show_progress=False)
    return _trained(backend, trainer, corpus, unk_token="<unk>")


def _trained(
    backend: Tokenizer, trainer: trainers.Trainer, corpus: list[str], **special: str
) -> PreTrainedTokenizerFast:
    backend.train_from_iterator(corpus, trainer)
    ends = [(token, backend.token_to_id(token)) for token in ("<s>", "</s>")]
    backend.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>", **special)


@pytest.fixture
def minilm(minilm_path: str) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture(params=["WordPiece", "byte-level BPE", "SentencePiece"])
def subword_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    if request.param == "WordPiece":
        return request.getfixturevalue("minilm")
    return byte_level_tokenizer() if request.param == "byte-level BPE" else metaspace_tokenizer()


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
    # Each of the three ids starts a word, continues one, or stands alone, as do ids that the lexicon has not seen.
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


@both_layouts
@pytest.mark.parametrize("padding", ["right", "left", "holes"])
@pytest.mark.parametrize("length", [2, 3, 4])
def test_a_word_may_be_the_whole_text(keep_padding: bool, padding: str, length: int) -> None:
    mask = padded([length, length - 1], 6, padding)
    ids = torch.zeros(2, 6, dtype=torch.long)
    ids[mask] = torch.tensor([5, 6, 7, 8][:length] + [5, 6, 7][: length - 1])
    spans = found(matcher_of(lexicon_of({(5, 6, 7, 8)[:length]})), ids, mask, keep_padding)
    assert spans == [{(0, length)}, set()]


@both_layouts
def test_a_word_does_not_cross_from_one_text_to_the_next(keep_padding: bool) -> None:
    ids, mask = torch.tensor([[1, 2], [3, 4]]), torch.ones(2, 2, dtype=torch.bool)
    spans = found(matcher_of(lexicon_of({(2, 3), (1, 2, 3), (4, 1), (2, 1), (3, 4)})), ids, mask, keep_padding)
    assert spans == [set(), {(0, 2)}]


@both_layouts
@pytest.mark.parametrize("mask", [torch.zeros(2, 3).bool(), torch.ones(1, 1).bool()], ids=["no token", "one token"])
def test_texts_too_short_for_a_word_have_none(keep_padding: bool, mask: Tensor) -> None:
    spans = found(matcher_of(lexicon_of({(1, 1), (1, 1, 1, 1)})), torch.ones(mask.shape).long(), mask, keep_padding)
    assert spans == [set() for _ in mask]


@pytest.mark.parametrize("dtype", [torch.int32, torch.long])
def test_ids_of_either_integer_type_are_matched(dtype: torch.dtype) -> None:
    # Products of 32-bit numbers would overflow.
    lexicon = lexicon_of({(249_998, 249_999, 249_997)})
    ids = torch.tensor([[249_998, 249_999, 249_997]], dtype=dtype)
    assert found(matcher_of(lexicon), ids, torch.ones(1, 3).bool(), keep_padding=False) == [{(0, 3)}]


def test_without_a_lexicon_nothing_is_a_word() -> None:
    ids, mask = torch.tensor([[1, 2, 3]]), torch.ones(1, 3).bool()
    matcher = WordMatcher(None, 0, 3)
    assert list(matcher.buffers()) == []
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
    found = []
    for texts in words.split(2_000):
        layout = TokenLayout.from_mask(texts >= 0, keep_padding=True)
        first = matcher(layout.pack(texts), layout).unflatten(0, texts.shape)[:, 0]
        found.append(first.gather(1, (texts >= 0).sum(1, keepdim=True) - 1)[:, 0])
    return torch.cat(found)


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
    # All pairs of a small vocabulary: what linear hashing cannot place.
    rows = torch.cartesian_prod(*(torch.arange(size) for size in shape))
    words = torch.cat([rows, torch.full((len(rows), 4 - len(shape)), -1)], 1)
    matcher = matcher_of(Lexicon("words", 4, words=words))
    assert len(matcher.table) < 2.5 * len(words)
    assert in_rows(words, matcher).all()


def test_words_that_find_no_place_get_other_places_and_the_model_knows_which(monkeypatch: pytest.MonkeyPatch) -> None:
    words = random_words(1_000, 50, seed=1)
    size = WordMatcher.table_size(Lexicon("words", 4, words=words))
    multipliers = lexicon_module._multipliers
    # Multiplied by 1, ids in any order have the same two places.
    monkeypatch.setattr(
        lexicon_module, "_multipliers", lambda attempt: torch.ones(2).long() if attempt < 3 else multipliers(attempt)
    )
    matcher = matcher_of(Lexicon("words", 4, words=words))
    assert len(matcher.table) > size
    monkeypatch.undo()
    loaded = WordMatcher("words", len(matcher.table), 4)
    loaded.load_state_dict(matcher.state_dict())
    assert in_rows(words, loaded).all()


def test_words_that_are_alike_are_refused_and_not_searched_places_for_ever() -> None:
    with pytest.raises(RuntimeError, match=r"torch\.unique\(words, dim=0\)"):
        matcher_of(Lexicon("words", 2, words=torch.tensor([[1, 2], [1, 2], [1, 2]])))


def test_the_same_words_make_the_same_buffers_in_any_order() -> None:
    tokenizer = character_tokenizer("abcdefghij")
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghij", k=generator.randint(2, 4))) for _ in range(500)]
    first = matcher_of(Lexicon.from_words(words, tokenizer)).state_dict()
    second = matcher_of(Lexicon.from_words(words[::-1], tokenizer)).state_dict()
    assert first.keys() == second.keys() == {"table", "multipliers"}
    assert all(torch.equal(first[name], second[name]) for name in first)


# ------ real words in real texts


def data_folder(name: str) -> Path:
    """The folder of a data set, where this machine has it."""
    data = Path(os.environ.get("MODELING_STAR_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / name).is_dir():
        pytest.skip(f"{data / name} is absent: set MODELING_STAR_DATA to the folder with the data sets")
    return data / name


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


# ------ word lists

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789&北京大学天安门云计算创新"


def list_of(tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon) -> set[str]:
    """The words of a lexicon as text, without spaces."""
    return {"".join(tokenizer.convert_ids_to_tokens(word)) for word in words_in(lexicon)}


@pytest.mark.parametrize("suffix", [".txt", ".txt.gz"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("北京\n大学\n", {"北京", "大学"}),
        ("\ufeff北京\r\n\r\n  大学  \r\n", {"北京", "大学"}),
        ("北京 34488 ns\nat&t 3 nz\n大 5 a\n大学 20025 n", {"北京", "at&t", "大学"}),
        ("北京 34488\n大学 0.5 n\n", {"北京", "大学"}),
        ("北京\t395499\n大学\t317\tIT\n天安门\tn\n", {"北京", "大学", "天安门"}),
        ("北京\t\n大学\tn 3 x\n", {"北京", "大学"}),
        ("b c 5 nz\nd e\n", {"bc", "de"}),
        ("云计算\n创新 3 i\n2008 7 m\n", {"云计算", "创新", "2008"}),
        ("a 1\t9\n", {"a1"}),
    ],
    ids=[
        "plain",
        "BOM, CRLF, blanks",
        "jieba",
        "frequency only",
        "THUOCL",
        "odd tabs",
        "spaces",
        "mixed",
        "number, tab",
    ],
)
def test_word_lists_of_every_form_are_read(content: str, words: set[str], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"words{suffix}"
    path.write_bytes(gzip.compress(content.encode()) if suffix.endswith("gz") else content.encode())
    tokenizer = character_tokenizer(LETTERS)
    assert list_of(tokenizer, Lexicon.from_file(path, tokenizer)) == words
    assert list_of(tokenizer, Lexicon.from_file(str(path), tokenizer)) == words


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("w.txt", b"", "holds no words: expected one word a line"),
        ("w.txt", b"\n \n\t5\n", "holds no words: expected one word a line"),
        ("w.txt", "大学\n北京\n".encode("gb18030"), r"line 1: .* no text in UTF-8 .* iconv -f GB18030 -t UTF-8"),
        ("w.txt", "北京\n".encode() + "大学".encode("gb18030"), "line 2: .* no text in UTF-8"),
        ("w.txt.gz", "北京\n".encode(), "no whole gzip file .* fetch it again, or unpack it"),
        ("w.txt.gz", gzip.compress("北京\n".encode() * 99)[:-12], "no whole gzip file .* fetch it again"),
        ("w.txt", "京\n囍囍\n".encode(), r"no word of use: .* 1 left out \(1 with unknown tokens\); 1 single tokens"),
    ],
    ids=["empty", "blank", "GBK", "GBK further down", "no gzip", "half a gzip", "no word of use"],
)
def test_a_word_list_that_is_none_is_told_with_its_name(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        Lexicon.from_file(path, character_tokenizer(LETTERS))
    assert str(path) in str(error.value) or "no word of use" in message


def test_a_missing_word_list_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.txt", tmp_path):
        with pytest.raises(FileNotFoundError, match=re.escape(f"no word list {path}")):
            Lexicon.from_file(path, character_tokenizer(LETTERS))


def test_the_words_of_thuocl_are_read(tmp_path: Path) -> None:
    source = data_folder("zh_lexicon") / "thuocl.tsv.gz"
    with gzip.open(source, "rt", encoding="utf-8") as file:
        lines = list(file)[::20]
    given = {line.split("\t")[0] for line in lines}
    words = {word.replace(" ", "").lower() for word in given}
    path = tmp_path / "thuocl.tsv"
    path.write_text("".join(lines), encoding="utf-8")
    tokenizer = character_tokenizer("".join(words))
    lexicon = Lexicon.from_file(path, tokenizer)
    assert list_of(tokenizer, lexicon) == {word for word in words if 2 <= len(word) <= 4}
    assert lexicon.left_out == sum(len(word.replace(" ", "")) > 4 for word in given)


@pytest.fixture
def a_package_named_jieba(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that `import jieba` would run, first on the path; running it fails."""
    package = tmp_path / "jieba"
    package.mkdir()
    (package / "__init__.py").write_text('raise RuntimeError("jieba was imported")\n')
    (package / "dict.txt").write_text("北京 34488 ns\n大学 20025 n\n京 5 n\n", encoding="utf-8")
    monkeypatch.delitem(sys.modules, "jieba", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return package


def test_jiebas_dictionary_is_read_without_running_jieba(a_package_named_jieba: Path) -> None:
    tokenizer = character_tokenizer(LETTERS)
    assert list_of(tokenizer, Lexicon.from_jieba(tokenizer)) == {"北京", "大学"}


def test_without_jieba_the_line_that_installs_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "jieba" else find_spec(name))
    with pytest.raises(ImportError, match="pip install jieba"):
        Lexicon.from_jieba(character_tokenizer(LETTERS))


def test_remote_code_asks_for_nothing_but_torch_and_transformers() -> None:
    imported = {name.split(".")[0] for name in get_imports(lexicon_module.__file__)}
    assert imported - set(sys.stdlib_module_names) == {"torch", "transformers"}


# ------ what is left out


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    """The lines that the lexicon logged."""
    with caplog.at_level(logging.INFO, logger="modeling_star.lexicon"):
        yield lambda: [record.getMessage() for record in caplog.records if record.name == "modeling_star.lexicon"]


def test_one_line_counts_the_words_that_are_left_out_and_why(log: Callable[[], list[str]]) -> None:
    words = [
        "北京",
        "大学",
        "天安门",
        "北京大学天安门",
        "北京大学天",
        "囍囍",
        "北囍",
        "囍",
        "京",
        "学",
        " ",
        "",
        "Ab",
        "aB",
    ]
    # A repeated word is one word.
    lexicon = Lexicon.from_words([*words, "北京", "囍囍"], character_tokenizer(LETTERS))
    assert log() == [
        "Lexicon: 4 words of 2 to 4 tokens; 7 left out (2 too long, 3 with unknown tokens, 2 empty); "
        "2 single tokens, which every token is by itself."
    ]
    assert (len(lexicon), lexicon.left_out) == (4, 7)


def test_where_none_is_left_out_no_reason_is_given(log: Callable[[], list[str]]) -> None:
    lexicon = Lexicon.from_words(["北京大学天"], character_tokenizer(LETTERS), max_word_length=5)
    assert log() == ["Lexicon: 1 words of 2 to 5 tokens; 0 left out; 0 single tokens, which every token is by itself."]
    assert (lexicon.left_out, lexicon.words.shape) == (0, (1, 5))


def test_rows_are_sorted_unique_and_filled_up() -> None:
    tokenizer = character_tokenizer("abc")
    a, b, c = (tokenizer.convert_tokens_to_ids(letter) for letter in "abc")
    lexicon = Lexicon.from_words(["ba", "abca", "AB", "ab", "cab"], tokenizer)
    assert lexicon.words.tolist() == [[a, b, -1, -1], [a, b, c, a], [b, a, -1, -1], [c, a, b, -1]]
    assert lexicon.words.dtype == torch.long


def test_a_tokenizer_that_was_told_to_cut_and_pad_still_gives_whole_words() -> None:
    tokenizer = character_tokenizer("abc")
    tokenizer(["abcabc", "a"], padding="max_length", max_length=3, truncation=True)
    assert list_of(tokenizer, Lexicon.from_words(["ab", "abca"], tokenizer)) == {"ab", "abca"}


def test_words_cut_up_together_are_those_cut_up_one_by_one(minilm: PreTrainedTokenizerBase) -> None:
    minilm.add_tokens(["believ"])
    words = [
        "believable",
        "a believer",
        "北京",
        "[SEP]s",
        "at&t",
        " ",
        "",
        "\n",
        "Ünïcode",
        "e\u0301tude",
        "[UNK]a",
        "can't",
    ]
    expected = {tuple(minilm(word, add_special_tokens=False)["input_ids"]) for word in words}
    lexicon = Lexicon.from_words(words, minilm, max_word_length=9)
    assert words_in(lexicon) == {ids for ids in expected if len(ids) > 1 and minilm.unk_token_id not in ids}
    assert len(lexicon) >= 6


def test_a_tokenizer_written_in_python_serves_too() -> None:
    tokenizer = ByT5Tokenizer()
    assert not tokenizer.is_fast
    lexicon = Lexicon.from_words(["北京", "ab", "abcdefg"], tokenizer, max_word_length=6)
    assert words_in(lexicon) == {tuple(byte + 3 for byte in word.encode()) for word in ("北京", "ab")}


@pytest.mark.parametrize("given", ["北京", Path("words.txt"), b"ab"], ids=["str", "Path", "bytes"])
def test_one_text_in_place_of_a_list_is_refused(given: object) -> None:
    with pytest.raises(
        TypeError, match=r"one text; a list of words is needed: .* Lexicon\.from_file\(path, tokenizer\)"
    ):
        Lexicon.from_words(given, character_tokenizer(LETTERS))


@pytest.mark.parametrize("wrong", [7, None, ["a", "b"]], ids=str)
def test_a_word_that_is_no_text_is_named(wrong: object) -> None:
    with pytest.raises(TypeError, match=re.escape(f"words hold {wrong!r}, a {type(wrong).__name__}")):
        Lexicon.from_words(["北京", wrong], character_tokenizer(LETTERS))


@pytest.mark.parametrize("length", [1, 0, -4])
@pytest.mark.parametrize("maker", ["from_words", "from_file", "from_jieba", "whole_word"])
def test_words_must_be_allowed_two_tokens(maker: str, length: int, a_package_named_jieba: Path) -> None:
    source = {"from_words": (["北京"],), "from_file": (a_package_named_jieba / "dict.txt",)}.get(maker, ())
    with pytest.raises(ValueError, match=f"max_word_length={length} is given; 2 or more .*: max_word_length=4"):
        getattr(Lexicon, maker)(*source, character_tokenizer(LETTERS), max_word_length=length)


# ------ words that a subword tokenizer cuts up


def tokens_between(offsets: list[Span], start: int, end: int) -> Span:
    """First and number of the tokens that stand for `text[start:end]`."""
    tokens = [i for i, (first, last) in enumerate(offsets) if first < end and last > start]
    assert tokens == list(range(tokens[0], tokens[-1] + 1))
    return tokens[0], len(tokens)


@pytest.mark.parametrize("before", ["", " ", "in ", "，", "in，"], ids=repr)
def test_a_word_is_found_at_the_start_after_a_space_and_after_other_characters(
    subword_tokenizer: PreTrainedTokenizerBase, before: str
) -> None:
    words = ["unbelievable", "unbroken", "breakers", "transformations", "unbelieving", "北京", "天安门", "北京大学"]
    lexicon = Lexicon.from_words(words, subword_tokenizer, max_word_length=9)
    assert lexicon.left_out == sum(
        subword_tokenizer.unk_token_id in ids for ids in plain_ids(subword_tokenizer, words)
    )
    seen = 0
    for word in words:
        text = before + word
        given = subword_tokenizer(text, return_offsets_mapping=True, add_special_tokens=False)
        # A mark of a space that is a token by itself is no part of the word.
        bare = [
            (0, 0) if token in ("▁", "Ġ") else span
            for token, span in zip(given.tokens(), given["offset_mapping"], strict=True)
        ]
        first, count = tokens_between(bare, len(before), len(text))
        if subword_tokenizer.unk_token_id in given["input_ids"][first:] or not 2 <= count <= 9:
            continue
        seen += 1
        assert (first, count) in found_in(lexicon, given["input_ids"]), (text, given.tokens())
    assert seen >= 3


def plain_ids(tokenizer: PreTrainedTokenizerBase, words: list[str]) -> list[list[int]]:
    return tokenizer(words, add_special_tokens=False)["input_ids"]


def test_a_word_that_melts_into_an_unknown_neighbour_leaves_no_rest_behind() -> None:
    # To this tokenizer "，" and "囍" are unknown, and one token where they stand together.
    tokenizer = metaspace_tokenizer(CORPUS[:2])
    melted = tokenizer("，囍unbelieving", add_special_tokens=False)["input_ids"]
    assert melted.count(tokenizer.unk_token_id) == 1
    lexicon = Lexicon.from_words(["囍unbelieving", "breaks"], tokenizer, 12)
    assert words_in(lexicon) == words_in(Lexicon.from_words(["breaks"], tokenizer, 12))
    assert lexicon.left_out == 1


def test_forms_that_do_not_differ_are_one_word(minilm: PreTrainedTokenizerBase) -> None:
    words = ["unbelievable", "Unbelievable", "transformers are", "breakers"]
    lexicon = Lexicon.from_words(words, minilm, max_word_length=6)
    assert words_in(lexicon) == {tuple(ids) for ids in plain_ids(minilm, words) if len(ids) > 1}


def test_the_space_before_a_word_is_no_word(subword_tokenizer: PreTrainedTokenizerBase) -> None:
    lexicon = Lexicon.from_words(["北京大学", "天安门", "unbelieving"], subword_tokenizer, max_word_length=12)
    for word in words_in(lexicon):
        assert subword_tokenizer.convert_ids_to_tokens(word[0]) not in ("Ġ", "▁")


def words_by_the_tokenizer(encoding: object, longest: int) -> set[Span]:
    """The words of 2 to `longest` tokens, as the tokenizer remembers what it cut up."""
    numbers = encoding.word_ids()
    spans = set()
    for word in {number for number in numbers if number is not None}:
        tokens = [i for i, number in enumerate(numbers) if number == word]
        if 2 <= len(tokens) <= longest:
            spans.add((tokens[0], len(tokens)))
    return spans


@pytest.mark.parametrize("longest", [2, 4, 7])
def test_whole_words_are_those_that_the_tokenizer_cut_up(
    subword_tokenizer: PreTrainedTokenizerBase, longest: int
) -> None:
    text = " ".join(re.findall(r"\w+", " ".join(CORPUS[:2]))) + " unbelieved brokenness transformers"
    encoding = subword_tokenizer(text)
    expected = words_by_the_tokenizer(encoding, longest)
    assert expected
    lexicon = Lexicon.whole_word(subword_tokenizer, longest)
    assert found_in(lexicon, encoding["input_ids"]) == expected
    assert len(lexicon) == max(subword_tokenizer.get_vocab().values()) + 1


def test_wordpiece_punctuation_is_no_part_of_a_word(minilm: PreTrainedTokenizerBase) -> None:
    encoding = minilm("Unbelievability, (transformability); [MASK]ing 北京! x")
    assert found_in(Lexicon.whole_word(minilm, 6), encoding["input_ids"]) == words_by_the_tokenizer(encoding, 6)


def test_punctuation_continues_a_word_where_only_spaces_are_marked() -> None:
    tokenizer = metaspace_tokenizer()
    ids = tokenizer("in, the.", add_special_tokens=False)["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    starts = [i for i, token in enumerate(tokens) if token.startswith("▁")]
    assert tokens[-1] == "."
    expected = {(starts[0], starts[1]), (starts[1], len(tokens) - starts[1])}
    assert found_in(Lexicon.whole_word(tokenizer, 8), ids) == expected


def test_special_and_added_tokens_and_line_breaks_belong_to_no_word() -> None:
    tokenizer = byte_level_tokenizer()
    tokenizer.add_tokens(["@@"])
    lexicon = Lexicon.whole_word(tokenizer, 30)
    ids = tokenizer("unbroken\nunbroken@@unbroken\tunbroken</s>unbroken")["input_ids"]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    outside = {i for i, token in enumerate(tokens) if token in ("<s>", "</s>", "@@", "Ċ", "ĉ")}
    assert len(outside) == 6
    spans = found_in(lexicon, ids)
    assert len(spans) == 5
    assert not outside & {i for start, length in spans for i in range(start, start + length)}


def test_a_vocabulary_without_marks_is_refused() -> None:
    tokenizer = character_tokenizer("abc#")
    # Its own token, which says nothing of the others.
    tokenizer.add_tokens(["##x"])
    message = r'\(7 entries\) .* "##" .* "Ġ" .* "▁" .* Lexicon\.from_words\(words, tokenizer\)'
    with pytest.raises(ValueError, match=message):
        Lexicon.whole_word(tokenizer)


def test_a_log_line_tells_the_mark(log: Callable[[], list[str]]) -> None:
    tokenizer = byte_level_tokenizer()
    Lexicon.whole_word(tokenizer)
    special = 2
    starting = sum(token.startswith("Ġ") for token in tokenizer.get_vocab())
    white = 5  # tab to carriage return
    continuing = len(tokenizer) - special - starting - white
    assert log() == [f'Lexicon: words are told by "Ġ"; {continuing} of {len(tokenizer)} entries continue one.']


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
    spans = found(matcher, ids, mask, keep_padding=False)
    assert found(loaded, ids, mask, keep_padding=False) == spans
    assert spans != [set()]


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


def test_two_matchers_of_one_lexicon_do_not_share_memory() -> None:
    first, second = matcher_of(PAIRS), matcher_of(PAIRS)
    first.reset_buffers()
    ids, mask = torch.tensor([TEXT]), torch.ones(1, len(TEXT)).bool()
    assert found(first, ids, mask, keep_padding=False) == [set()]
    assert found(second, ids, mask, keep_padding=False) != [set()]


def test_a_lexicon_goes_to_the_device_of_the_last_one_or_the_one_told() -> None:
    matcher = matcher_of(PAIRS).to("meta")
    matcher.load(OTHERS)
    assert {buffer.device.type for buffer in matcher.buffers()} == {"meta"}
    matcher.load(WHOLE, "cpu")
    assert {buffer.device.type for buffer in matcher.buffers()} == {"cpu"}


def test_casting_a_model_leaves_its_words() -> None:
    matcher = matcher_of(PAIRS).to(torch.bfloat16)
    ids, mask = torch.tensor([TEXT]), torch.ones(1, len(TEXT)).bool()
    assert found(matcher, ids, mask, keep_padding=False) == [find_words(TEXT, {(0, 1), (1, 0, 1)}, 3)]


@pytest.mark.parametrize(
    ("kind", "size", "message"),
    [
        ("word", 10, 'kind=\'word\' is given; "words", "whole_word" or None'),
        ("words", 0, r"size=0 is given with kind='words'; WordMatcher\.table_size\(lexicon\)"),
        ("words", 7, "size=7 is given with kind='words'"),
        ("whole_word", 0, "size=0 is given with kind='whole_word'"),
    ],
)
def test_a_matcher_of_no_kind_or_size_is_refused(kind: str, size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WordMatcher(kind, size, 4)


# ------ tracing


class Batched(nn.Module):
    """Matching as a traced model does it: ids and mask `[b, n]` to words `[b, n, L]`."""

    def __init__(self, lexicon: Lexicon | None):
        super().__init__()
        self.matcher = WordMatcher(None, 0, 3)
        self.matcher.load(lexicon)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        layout = TokenLayout.from_mask(mask, keep_padding=True)
        return layout.unpack(self.matcher(layout.pack(ids), layout))


def batches() -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    for lengths, columns, padding in (([3, 7, 0], 8, "right"), ([5, 2], 6, "holes"), ([9, 1, 4, 6, 0], 9, "left")):
        mask = padded(lengths, columns, padding)
        yield torch.randint(2, mask.shape, generator=generator), mask


each_kind = pytest.mark.parametrize("lexicon", [WHOLE, OTHERS, None], ids=["whole words", "words", "none"])


@each_kind
def test_one_compiled_graph_matches_batches_of_every_shape(lexicon: Lexicon | None) -> None:
    model = Batched(lexicon)
    torch._dynamo.reset()
    graph = torch.compile(model, fullgraph=True, backend="eager", dynamic=True)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for ids, mask in batches():
            assert torch.equal(graph(ids, mask), model(ids, mask))


@each_kind
def test_one_exported_graph_matches_batches_of_every_shape(lexicon: Lexicon | None) -> None:
    model = Batched(lexicon)
    axes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    first, *others = batches()
    graph = torch.export.export(model, first, dynamic_shapes=(axes, axes)).module()
    for ids, mask in [first, *others]:
        assert torch.equal(graph(ids, mask), model(ids, mask))
