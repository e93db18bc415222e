"""Lexicons from word lists and from tokenizers."""

import gzip
import re
import sys
from pathlib import Path

import pytest
import torch
from lexicon_samples import (
    CORPUS,
    Span,
    byte_level_tokenizer,
    character_tokenizer,
    found_in,
    metaspace_tokenizer,
    words_in,
)
from real_data import data_folder
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from modeling_star.data.lexicon import Lexicon


@pytest.fixture
def minilm(minilm_path: str) -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(minilm_path)


@pytest.fixture(params=["WordPiece", "byte-level BPE", "SentencePiece"])
def subword_tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    if request.param == "WordPiece":
        return request.getfixturevalue("minilm")
    return byte_level_tokenizer() if request.param == "byte-level BPE" else metaspace_tokenizer()


# ------ word lists

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789&北京大学天安门云计算创新"


def list_of(tokenizer: PreTrainedTokenizerBase, lexicon: Lexicon) -> set[str]:
    """The words of a lexicon as text, without spaces."""
    return {"".join(tokenizer.convert_ids_to_tokens(word)) for word in words_in(lexicon)}


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
        ("北京 ns\n大学 n\n云 计\nb c\n创新 nb\n", {"北京", "大学", "云计", "bc", "创新nb"}),
        ("北京 -1.5 2e-3 0.1\n大学 1.E5 0 0\n创新 +3 x y\n", {"北京", "大学", "创新"}),
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
        "part of speech alone",
        "vectors",
    ],
)
def test_every_format_of_word_list_is_read(content: str, words: set[str], tmp_path: Path) -> None:
    plain, compressed = tmp_path / "words.txt", tmp_path / "packed.txt"
    plain.write_bytes(content.encode())
    compressed.write_bytes(gzip.compress(content.encode()))
    tokenizer = character_tokenizer(LETTERS)
    for path in (plain, str(compressed)):
        assert list_of(tokenizer, Lexicon.from_file(path, tokenizer)) == words


def test_a_line_of_blanks_is_read_in_linear_time(tmp_path: Path) -> None:
    """One of 10,000 blanks took two seconds, one of ten times as many 200."""
    path = tmp_path / "words.txt"
    path.write_text("大学" + " " * 1_000_000 + "北京\n大学\n", encoding="utf-8")
    tokenizer = character_tokenizer(LETTERS)
    assert list_of(tokenizer, Lexicon.from_file(path, tokenizer)) >= {"大学"}


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


# ------ omitted words


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("w.txt", b""),
        ("w.txt", b"\n \n\t5\n"),
        ("w.csv.gz", gzip.compress(b"word,freq\nab,3\n")),
        ("w.txt", "大学\n北京\n".encode("gb18030")),
        ("w.txt", "京\n囍囍\n".encode()),
    ],
    ids=["empty", "blank", "csv", "GBK", "no usable word"],
)
def test_a_word_list_without_usable_words_is_an_error(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError):  # noqa: PT011 (also a UnicodeDecodeError)
        Lexicon.from_file(path, character_tokenizer(LETTERS))


def test_omitted_words_are_counted() -> None:
    usable, single = ["北京", "大学", "天安门", "Ab", "aB"], ["京", "学"]
    omitted = ["北京大学天安门", "北京大学天", "囍囍", "北囍", "囍", " ", ""]
    lexicon = Lexicon.from_words([*usable, *omitted, *single, "北京", "囍囍"], character_tokenizer(LETTERS))
    assert (len(lexicon), lexicon.left_out) == (4, 7)


@pytest.mark.parametrize("maker", ["from_words", "from_file", "from_jieba", "whole_word"])
def test_a_maximum_below_two_tokens_is_an_error(maker: str, a_package_named_jieba: Path) -> None:
    source = {"from_words": (["北京"],), "from_file": (a_package_named_jieba / "dict.txt",)}.get(maker, ())
    with pytest.raises(ValueError, match="max_word_length"):
        getattr(Lexicon, maker)(*source, character_tokenizer(LETTERS), max_word_length=1)


def test_rows_are_sorted_unique_and_padded() -> None:
    tokenizer = character_tokenizer("abc")
    a, b, c = (tokenizer.convert_tokens_to_ids(letter) for letter in "abc")
    lexicon = Lexicon.from_words(["ba", "abca", "AB", "ab", "cab"], tokenizer)
    assert lexicon.words.tolist() == [[a, b, -1, -1], [a, b, c, a], [b, a, -1, -1], [c, a, b, -1]]
    assert lexicon.words.dtype == torch.long


def test_tokenizing_words_together_equals_tokenizing_each_alone(minilm: PreTrainedTokenizerBase) -> None:
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


# ------ subword tokenizers


def tokens_between(offsets: list[Span], start: int, end: int) -> Span:
    """First and number of the tokens of `text[start:end]`."""
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
        # A space mark that is a token on its own does not belong to the word.
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


def words_by_the_tokenizer(encoding: object, longest: int) -> set[Span]:
    """The words of 2 to `longest` tokens, according to `word_ids()` of the tokenizer."""
    numbers = encoding.word_ids()
    spans = set()
    for word in {number for number in numbers if number is not None}:
        tokens = [i for i, number in enumerate(numbers) if number == word]
        if 2 <= len(tokens) <= longest:
            spans.add((tokens[0], len(tokens)))
    return spans


@pytest.mark.parametrize("longest", [2, 4, 7])
def test_whole_words_equal_the_words_of_the_tokenizer(
    subword_tokenizer: PreTrainedTokenizerBase, longest: int
) -> None:
    text = " ".join(re.findall(r"\w+", " ".join(CORPUS[:2]))) + " unbelieved brokenness transformers"
    encoding = subword_tokenizer(text)
    expected = words_by_the_tokenizer(encoding, longest)
    assert expected
    lexicon = Lexicon.whole_word(subword_tokenizer, longest)
    assert found_in(lexicon, encoding["input_ids"]) == expected
    assert len(lexicon) == max(subword_tokenizer.get_vocab().values()) + 1


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


def test_a_vocabulary_without_subword_marks_is_an_error() -> None:
    tokenizer = character_tokenizer("abc#")
    tokenizer.add_tokens(["##x"])
    with pytest.raises(ValueError, match="##"):
        Lexicon.whole_word(tokenizer)
