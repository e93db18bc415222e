"""Lexicons from word lists and from tokenizers; word vector files."""

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
from transformers import AutoTokenizer, PreTrainedTokenizerBase

import modeling_star
from modeling_star.data.lexicon import Lexicon
from modeling_star.data.vectors import read_vectors


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


TAGGER = modeling_star.StarTransformerForTokenClassification
VOCABULARY = {"tea": 0, "cup": 1, "New York": 2, "Tokyo": 3}


def vectors(tmp_path: Path, text: str | bytes, name: str = "vectors.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_a_file_without_any_word_of_the_vocabulary_is_an_error(tmp_path: Path) -> None:
    path = vectors(tmp_path, "sugar 1 2\nmilk 3 4\n")
    with pytest.raises(ValueError, match="4 vocabulary entries"):
        TAGGER.from_embeddings(path, mode="vectors", vocabulary=VOCABULARY)


BAD_FILES: dict[str, tuple[str | bytes, int | None, str]] = {
    "other width": ("tea 1 2 3\n", 5, "line 1"),
    "smaller width": ("tea 1 2 3\n", 2, "line 1"),
    "header of another width": ("1 3\ntea 1 2\n", None, "line 2"),
    "short line": ("tea 1 2 3\ncup 4 5\n", None, "line 2"),
    "long line": ("tea 1 2 3\ncup 4 5 6 7\n", None, "line 2"),
    "no number": ("tea 1 2 3\ncup 4 x 6\n", None, "'x'"),
    "not a number": ("tea 1 2 3\ncup 4 nan 6\n", None, "'cup'"),
    "word alone": ("tea\ncup 1 2\n", None, "line 1"),
    "header alone": ("2 3\n", None, "no vectors"),
    "empty lines": ("\n\n", None, "no vectors"),
    "UTF-16": ("tea 1 2\ncup 3 4".encode("utf-16"), None, "UTF-16"),
    "UTF-16 without a byte-order mark": ("tea 1 2\ncup 3 4".encode("utf-16-be"), None, "UTF-16"),
    "UTF-16, packed": (gzip.compress("tea 1 2\n".encode("utf-16")), None, "UTF-16"),
    "incomplete gzip": (gzip.compress(b"tea 1 2\n")[:-4], None, "gzip"),
    "binary": (b"2 3\ntea \x00\x00\x80?\x00\x00\x00@\x00\x00@@\ncup ", None, "line 2"),
}


@pytest.mark.parametrize(("text", "width", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_broken_vectors_file_is_an_error(text: str | bytes, width: int | None, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_vectors(vectors(tmp_path, text), VOCABULARY, width)


GOOD_FILES: dict[str, str | bytes] = {
    "GloVe": "tea 1 2\ncup 3 4\nnobody 5 6\n",
    "word2vec": "3 2\ntea 1 2\ncup 3 4\nnobody 5 6\n",
    "fastText": "3 2 \ntea 1 2 \ncup 3 4 \nnobody 5 6 \n",
    "tabs": "tea\t1\t2\ncup\t3\t4\n",
    "Windows": "tea 1 2\r\ncup 3 4\r\n",
    "byte-order mark": b"\xef\xbb\xbftea 1 2\ncup 3 4\n",
    "other encoding": b"tea 1 2\ncaf\xe9 7 8\ncup 3 4\n",
    "empty line at the end": "tea 1 2\ncup 3 4\n\n",
    "no last line break": "tea 1 2\ncup 3 4",
    "exponents": "tea 1e0 +2.0\ncup 3 4e-0\n",
    "strange spaces": "tea 1 2\na\u00a0b 7 8\n\u0085 7 8\n\u2028 7 8\ncup 3 4\n",
}


@pytest.mark.parametrize("text", GOOD_FILES.values(), ids=GOOD_FILES.keys())
def test_every_format_of_vectors_file_is_read(text: str | bytes, tmp_path: Path) -> None:
    content = text.encode() if isinstance(text, str) else text
    for path in (vectors(tmp_path, content), vectors(tmp_path, gzip.compress(content), "packed.txt")):
        table, has_vector = read_vectors(path, VOCABULARY)
        assert has_vector.tolist() == [True, True, False, False]
        assert table.tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
        assert table.dtype == torch.float32


@pytest.mark.parametrize("text", ["tokyo 1 2\nTokyo 3 4\n", "Tokyo 3 4\ntokyo 1 2\n"])
def test_the_exact_spelling_of_a_word_comes_before_its_lower_case(text: str, tmp_path: Path) -> None:
    path = vectors(tmp_path, text)
    table, _ = read_vectors(path, {"tokyo": 0, "Tokyo": 1, "TOKYO": 2})
    assert table.tolist() == [[1, 2], [3, 4], [1, 2]]
