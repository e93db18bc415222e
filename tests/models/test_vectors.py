"""Files of word vectors, as GloVe and word2vec write them: what is read, and what is said of those that are broken."""

import gzip
from pathlib import Path

import pytest
import torch
from common import words

import modeling_star
from modeling_star.models.embeddings import read_vectors


TAGGER = modeling_star.StarTransformerForTokenClassification
VOCABULARY = {"tea": 0, "cup": 1, "New York": 2, "Tokyo": 3}


def vectors(tmp_path: Path, text: str | bytes, name: str = "vectors.txt") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_an_unknown_mode_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=words("mode='statics' is given", '"static", "contextual" or "vectors"')):
        TAGGER.from_embeddings("bert-base-cased", mode="statics")


def test_vectors_need_a_vocabulary(tmp_path: Path) -> None:
    path = vectors(tmp_path, "tea 1 2\n")
    with pytest.raises(ValueError, match=words('mode="vectors" needs', "vocabulary=tokenizer.get_vocab()")):
        TAGGER.from_embeddings(path, mode="vectors")


def test_a_missing_vectors_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing\.txt"):
        TAGGER.from_embeddings(tmp_path / "missing.txt", mode="vectors", vocabulary=VOCABULARY)


def test_vectors_of_no_word_are_an_error(tmp_path: Path) -> None:
    path = vectors(tmp_path, "sugar 1 2\nmilk 3 4\n")
    with pytest.raises(ValueError, match=words("vectors.txt", "none of the 4 vocabulary entries")):
        TAGGER.from_embeddings(path, mode="vectors", vocabulary=VOCABULARY)


@pytest.mark.parametrize("known", [1, 2])
def test_vectors_of_few_words_are_warned_about(known: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    messages: list[str] = []
    monkeypatch.setattr(modeling_star.models.modeling_encoder.logger, "warning", messages.append)
    vocabulary = {f"w{index}": index for index in range(10)}
    path = vectors(tmp_path, "".join(f"w{index} 1 2\n" for index in range(known)))
    TAGGER.from_embeddings(path, mode="vectors", vocabulary=vocabulary)
    assert bool(messages) == (known == 1)


BAD_FILES: dict[str, tuple[str | bytes, int | None, tuple[str, ...]]] = {
    "other width": ("tea 1 2 3\n", 5, ("line 1", "a word and 5 numbers", "3 fields", "'tea 1 2 3'", "embedding_size")),
    "smaller width": ("tea 1 2 3\n", 2, ("line 1", "a word and 2 numbers", "3 fields", "embedding_size")),
    "header of another width": ("1 3\ntea 1 2\n", None, ("line 2", "a word and 3 numbers", "2 fields")),
    "short line": ("tea 1 2 3\ncup 4 5\n", None, ("line 2", "a word and 3 numbers", "2 fields", "'cup 4 5'")),
    "short line of an unknown word": ("tea 1 2 3\nmilk 4 5\ncup 4 5 6\n", None, ("line 2", "2 fields")),
    "long line": ("tea 1 2 3\ncup 4 5 6 7\n", None, ("line 2", "a word and 3 numbers", "4 fields")),
    "no number": ("tea 1 2 3\ncup 4 x 6\n", None, ("cup", "x")),
    "not a number": ("tea 1 2 3\ncup 4 nan 6\n", None, ("cup", "finite")),
    "infinite": ("tea 1 2 3\ncup 4 inf 6\n", None, ("cup", "finite")),
    "word alone": ("tea\ncup 1 2\n", None, ("line 1", "0 fields")),
    "empty": ("", None, ("no vectors",)),
    "header alone": ("2 3\n", None, ("no vectors",)),
    "empty lines": ("\n\n", None, ("no vectors",)),
    "binary": (b"2 3\ntea \x00\x00\x80?\x00\x00\x00@\x00\x00@@\ncup ", None, ("line 2", "a word and 3 numbers")),
}


@pytest.mark.parametrize(("text", "width", "message"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_broken_vectors_file_is_named_by_its_line(
    text: str | bytes, width: int | None, message: tuple[str, ...], tmp_path: Path
) -> None:
    path = vectors(tmp_path, text)
    fields = {} if width is None else {"embedding_size": width}
    with pytest.raises(ValueError, match=words(str(path), *message[:1])):
        TAGGER.from_embeddings(path, mode="vectors", vocabulary=VOCABULARY, **fields)


@pytest.mark.parametrize("broken", ["not gzip", "cut off"])
def test_a_broken_gzip_file_is_named(broken: str, tmp_path: Path) -> None:
    whole = gzip.compress(b"tea 1 2\n" * 1000)
    path = vectors(tmp_path, b"tea 1 2\n" if broken == "not gzip" else whole[:-9], "vectors.txt.gz")
    with pytest.raises(ValueError, match=r"vectors\.txt\.gz"):
        read_vectors(path, VOCABULARY)


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


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gz"])
@pytest.mark.parametrize("text", GOOD_FILES.values(), ids=GOOD_FILES.keys())
def test_every_kind_of_vectors_file_is_read(text: str | bytes, packed: bool, tmp_path: Path) -> None:
    content = text.encode() if isinstance(text, str) else text
    path = vectors(tmp_path, gzip.compress(content) if packed else content, "v.txt.gz" if packed else "v.txt")
    table, found = read_vectors(path, VOCABULARY)
    assert found.tolist() == [True, True, False, False]
    assert table.tolist() == [[1, 2], [3, 4], [0, 0], [0, 0]]
    assert table.dtype == torch.float32


def test_words_with_spaces_are_read(tmp_path: Path) -> None:
    path = vectors(tmp_path, "tea 1 2\nNew York 3 4\n. . . 5 6\n")
    table, found = read_vectors(path, {**VOCABULARY, ". . .": 4})
    assert found.tolist() == [True, False, True, False, True]
    assert table[2].tolist() == [3, 4]
    assert table[4].tolist() == [5, 6]


@pytest.mark.parametrize("text", ["tokyo 1 2\nTokyo 3 4\n", "Tokyo 3 4\ntokyo 1 2\n"])
def test_a_words_own_vector_goes_before_that_of_its_lower_case(text: str, tmp_path: Path) -> None:
    path = vectors(tmp_path, text)
    table, _ = read_vectors(path, {"tokyo": 0, "Tokyo": 1, "TOKYO": 2})
    assert table.tolist() == [[1, 2], [3, 4], [1, 2]]


def test_the_lower_case_of_a_word_serves_where_it_has_no_vector(tmp_path: Path) -> None:
    path = vectors(tmp_path, "tokyo 1 2\nTEA 3 4\n")
    table, found = read_vectors(path, VOCABULARY)
    # Not the other way round: "TEA" says nothing of "tea".
    assert found.tolist() == [False, False, False, True]
    assert table[3].tolist() == [1, 2]


def test_a_vocabulary_with_gaps_gets_a_row_for_every_id(tmp_path: Path) -> None:
    table, found = read_vectors(vectors(tmp_path, "tea 1 2\n"), {"tea": 5})
    assert table.shape == (6, 2)
    assert found.tolist() == [False] * 5 + [True]
