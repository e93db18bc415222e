"""Word vector files in the formats of GloVe, word2vec and fastText."""

import gzip
from pathlib import Path

import pytest
import torch

import modeling_star
from modeling_star.data.vectors import read_vectors


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


def test_words_with_spaces_are_read(tmp_path: Path) -> None:
    path = vectors(tmp_path, "tea 1 2\nNew York 3 4\n. . . 5 6\n")
    table, has_vector = read_vectors(path, {**VOCABULARY, ". . .": 4})
    assert has_vector.tolist() == [True, False, True, False, True]
    assert table[2].tolist() == [3, 4]
    assert table[4].tolist() == [5, 6]


@pytest.mark.parametrize("text", ["tokyo 1 2\nTokyo 3 4\n", "Tokyo 3 4\ntokyo 1 2\n"])
def test_the_exact_spelling_of_a_word_comes_before_its_lower_case(text: str, tmp_path: Path) -> None:
    path = vectors(tmp_path, text)
    table, _ = read_vectors(path, {"tokyo": 0, "Tokyo": 1, "TOKYO": 2})
    assert table.tolist() == [[1, 2], [3, 4], [1, 2]]


def test_the_vector_of_the_lower_case_is_the_fallback(tmp_path: Path) -> None:
    path = vectors(tmp_path, "tokyo 1 2\nTEA 3 4\n")
    table, has_vector = read_vectors(path, VOCABULARY)
    # "TEA" is no fallback for "tea".
    assert has_vector.tolist() == [False, False, False, True]
    assert table[3].tolist() == [1, 2]


def test_a_vocabulary_with_gaps_gets_a_row_for_every_id(tmp_path: Path) -> None:
    table, has_vector = read_vectors(vectors(tmp_path, "tea 1 2\n"), {"tea": 5})
    assert table.shape == (6, 2)
    assert has_vector.tolist() == [False] * 5 + [True]
