"""The texts that run_predict.py reads from a file, in every format."""

import bz2
import gzip
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from datasets import Dataset
from pyarrow.parquet import write_table

from modeling_star.data.prediction_inputs import count_rows, data_files, read_texts
from modeling_star.data.readers import read_file
from modeling_star.errors import UserError


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")


def texts_of(path: str | Path, **options: Any) -> list[str | tuple[str, str]]:
    return [text for _, text in read_texts(path, **options)]


def written(path: Path, text: str) -> Path:
    content = text.encode()
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": lambda content: pyarrow.compress(content, "zstd")}
    path.write_bytes(memoryview(pack.get(path.suffix, bytes)(content)))
    return path


CSV = 'id,Review Text,label\n1,"fine, really",good\n2,"dull",bad\n'
JSON = '{"id": 1, "Review Text": "fine, really"}\n{"id": 2, "Review Text": "dull"}\n'


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", CSV),
        ("a.csv.gz", CSV),
        ("a.csv.zst", CSV),
        ("a.jsonl.bz2", JSON),
        ("a.tsv", CSV.replace('"fine, really"', "fine; really").replace(",", "\t").replace(";", ",").replace('"', "")),
        ("a.jsonl", JSON),
        ("a.jsonl.gz", JSON),
    ],
)
def test_a_column_of_texts_is_read(tmp_path: Path, name: str, text: str) -> None:
    path = written(tmp_path / name, text)
    assert texts_of(path, text_column_name="Review Text") == ["fine, really", "dull"]


def test_parquet_is_read(tmp_path: Path) -> None:
    Dataset.from_dict({"text": ["fine", "dull"], "n": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    assert texts_of(tmp_path / "a.parquet") == ["fine", "dull"]


def test_the_column_is_found_beside_labels_and_numbers(tmp_path: Path) -> None:
    assert texts_of(written(tmp_path / "a.csv", "label,body\ngood,fine\n")) == ["fine"]
    both = written(tmp_path / "b.csv", "source,target\nja,yes\n")
    assert texts_of(both, text_column_name="target") == ["yes"]
    asked = written(tmp_path / "b.jsonl", '{"question": "who?", "context": "Ann sings.", "title": "x"}\n')
    assert texts_of(asked, contexts=True) == ["Ann sings."]


def test_nested_questions_give_each_context_once(tmp_path: Path) -> None:
    asked = [{"question": q, "id": q, "answers": [{"text": "Ann", "answer_start": 0}]} for q in ("who?", "what?")]
    article = {"title": "x", "paragraphs": [{"context": "Ann sings.", "qas": asked}, {"context": "b", "qas": asked}]}
    path = written(tmp_path / "a.json", json.dumps({"version": "1", "data": [article]}))
    assert texts_of(path, contexts=True) == ["Ann sings.", "b"]


def test_the_column_of_the_training_is_read_where_the_file_has_it(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "评论,text,n\n好,x,1\n")
    assert texts_of(path, trained_on="评论") == ["好"]
    assert texts_of(path, trained_on="评论", text_column_name="text") == ["x"]
    assert texts_of(path, trained_on="body") == ["x"]
    assert texts_of(path, trained_on="text, 评论", pairs=True) == [("x", "好")]
    assert texts_of(path, trained_on="text,评论") == ["x"]


def test_the_columns_of_the_training_are_those_of_a_conll_file(tmp_path: Path) -> None:
    path = written(tmp_path / "a.conll", "1\tB-PER\tAnn\n2\tO\tsings\n\n")
    assert texts_of(path, trained_columns=["_", "ner_tags", "tokens"]) == [["Ann", "sings"]]
    assert texts_of(written(tmp_path / "b.csv", "text,n\na,1\n"), trained_columns=["n", "text"]) == ["a"]


def test_a_txt_is_read_by_the_columns_of_the_training(tmp_path: Path) -> None:
    path = written(tmp_path / "a.txt", "good\ta fine film\nbad\ta poor one\n")
    assert texts_of(path, trained_columns=["label", "text"]) == ["a fine film", "a poor one"]
    assert texts_of(path) == ["good\ta fine film", "bad\ta poor one"]
    assert texts_of(path, pairs=True) == [("good", "a fine film"), ("bad", "a poor one")]
    plain = written(tmp_path / "b.txt", "a fine film\na poor one\n")
    assert texts_of(plain, trained_columns=["label", "text"]) == ["a fine film", "a poor one"]


@pytest.mark.parametrize("mark", [" ", "\t"])
def test_a_word_and_its_tag_a_line_are_conll_whatever_the_file_is_called(tmp_path: Path, mark: str) -> None:
    lines = ["-DOCSTART-|O", "", "Ann|B-PER", "sings|O", "", "It|O", "rains|O"]
    path = written(tmp_path / "a.txt", "\n".join(lines).replace("|", mark) + "\n")
    assert texts_of(path) == [["Ann", "sings"], ["It", "rains"]]
    prose = "\n".join(["plan O", "from B-52", "", "outer space O"])
    assert len(texts_of(written(tmp_path / "b.txt", prose))) == 3


def test_sentences_of_conll_are_words(tmp_path: Path) -> None:
    lines = "-DOCSTART- O\n\nAnn B-PER\nsings O\n\n安 B-PER\n娜 I-PER\n"
    path = written(tmp_path / "a.conll", lines)
    assert texts_of(path) == [["Ann", "sings"], ["安", "娜"]]
    assert texts_of(written(tmp_path / "a.jsonl", '{"tokens": ["Ann", "sings"]}\n')) == [["Ann", "sings"]]
    more = written(tmp_path / "b.conll", lines + "\nIt O\nrains O\nall O\nday O\nlong O\n")
    expected = ["Ann sings", "安 娜", "It rains all day long"]
    assert texts_of(more, contexts=True) == expected, "one file, one way to write"


def test_words_that_are_written_into_a_cell_are_words(tmp_path: Path) -> None:
    cells = """tokens,n\n"['Ann', 'sings']",1\n"[""安"", ""娜""]",2\n[sic] fine,3\n"[1, 2]",4\n"""
    assert texts_of(written(tmp_path / "a.csv", cells)) == [["Ann", "sings"], ["安", "娜"], "[sic] fine", "[1, 2]"]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst", "a"])
def test_lines_are_read_as_they_are(tmp_path: Path, name: str) -> None:
    path = written(tmp_path / name, "\ufeffid,text\r\n\r\na\u2028b\n")
    assert texts_of(path) == ["id,text", "a\u2028b"]
    assert texts_of(written(tmp_path / name, "a\tb\n\nc\td\n"), pairs=True) == [("a", "b"), ("c", "d")]


def test_lines_are_piped(monkeypatch: pytest.MonkeyPatch) -> None:
    def pipe(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))

    pipe("\ufeffein Käse\r\n\r\na\u2028b".encode())
    assert texts_of("-") == ["ein Käse", "a\u2028b"]
    pipe(b"a\tb\n")
    assert texts_of("-", pairs=True) == [("a", "b")]
    pipe(b"a\n")
    with pytest.raises(UserError, match="standard input, line 1: --pairs"):
        texts_of("-", pairs=True)
    pipe("Käse".encode("latin-1"))
    with pytest.raises(UserError, match="Standard input is not UTF-8 text"):
        texts_of("-")


def test_pairs_are_two_columns(tmp_path: Path) -> None:
    path = written(tmp_path / "a.csv", "premise,hypothesis,label\na,b,yes\n")
    assert texts_of(path, pairs=True) == [("a", "b")]
    assert texts_of(path, pairs=True, text_column_name="hypothesis,premise") == [("b", "a")]
    # In the order that training takes them, wherever they are.
    assert texts_of(written(tmp_path / "c.csv", "hypothesis,premise\nb,a\n"), pairs=True) == [("a", "b")]
    plain = written(tmp_path / "b.tsv", "a\tb\nc\td\n")
    assert texts_of(plain, pairs=True, column_names=["x", "y"]) == [("a", "b"), ("c", "d")]
    with pytest.raises(UserError, match="--pairs"):
        texts_of(path)


def test_rows_without_a_text_are_omitted(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "a"}\n{"text": " "}\n{"text": null}\n')
    assert texts_of(path) == ["a"]


@pytest.mark.parametrize(
    ("name", "text", "asked", "words"),
    [
        ("a.csv", "a,b\nx,y\n", {}, "--text_column_name"),
        ("a.csv", "ID,Review Text\n1,y\n", {}, "'Review Text'"),
        ("a.csv", "a,b\nx,y\n", {"text_column_name": "c"}, "no column 'c'"),
        ("a.jsonl", '{"text": 3}\n', {"text_column_name": "text"}, "row 1: column 'text' has '3'"),
        ("a.jsonl", '{"tokens": [3, 4]}\n', {}, "row 1: column 'tokens' has '.3, 4.'"),
        ("a.txt", "a\n", {"text_column_name": "text"}, "--text_column_name"),
        ("a.csv", "text,label\nx,y\n", {"pairs": True}, "--pairs"),
        ("a.csv", "I loved every minute of it.\nDull.\n", {}, "--column_names"),
        ("a.tsv", "He sleeps.\tHe rests.\nA.\tB.\n", {"pairs": True}, "--column_names"),
    ],
)
def test_a_bad_file_or_column_is_named(
    tmp_path: Path, name: str, text: str, asked: dict[str, str], words: str
) -> None:
    with pytest.raises(UserError, match=words):
        texts_of(written(tmp_path / name, text), **asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "text"), [("a.txt", "one\n\nthree\n"), ("a.csv", 'text,n\none,1\n"",2\nthree,3\n')])
def test_texts_have_the_numbers_of_their_rows_where_some_are_left_out(tmp_path: Path, name: str, text: str) -> None:
    assert list(read_texts(written(tmp_path / name, text))) == [(0, "one"), (2, "three")]


def test_a_folder_is_its_data_files_and_rows_are_counted(tmp_path: Path) -> None:
    names = ["2.jsonl.gz", "1.txt", "README.md"]
    for name in names:
        written(tmp_path / name, JSON)
    files = [str(tmp_path / name) for name in ("1.txt", "2.jsonl.gz")]
    assert data_files([str(tmp_path), "-"]) == [*files, "-"]
    assert [count_rows(path) for path in files] == [2, 2]
    Dataset.from_dict({"text": ["fine", "dull", "x"]}).to_parquet(tmp_path / "a.parquet")
    assert count_rows(tmp_path / "a.parquet") == 3
    assert count_rows(written(tmp_path / "a.conll", "It O\nrains O\n")) is None


def test_the_first_texts_come_before_a_broken_line(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", '{"text": "fine"}\n' * 3000 + "{broken\n")
    rows = read_texts(path)
    assert next(rows) == (0, "fine")
    with pytest.raises(UserError, match="line 3001"):
        list(rows)


@pytest.mark.parametrize(
    "rows",
    [
        [{"text": "a", "label": [[0, 4, "PER"]]}, {"text": "b", "label": []}],
        [{"id": 1, "text": "a", "meta": {"by": "x"}}, {"id": "q", "text": "b", "meta": "none"}],
        [{"text": "a", "n": 1 << 70}, {"text": "b", "n": 1.5}],
        [{"text": "a", "spans": [{"start": 1}]}, {"text": "b", "spans": [{"start": "x"}, 3]}],
    ],
)
@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_columns_that_are_not_needed_can_have_any_cells(tmp_path: Path, rows: list[Any], name: str) -> None:
    text = json.dumps(rows) if name == "a.json" else "\n".join(map(json.dumps, rows))
    assert texts_of(written(tmp_path / name, text)) == ["a", "b"]


@pytest.mark.parametrize("row", [2, 1501])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_half_a_character_is_replaced_and_its_row_named(tmp_path: Path, name: str, row: int) -> None:
    path, texts = tmp_path / name, ["fine"] * 1600
    texts[row - 1] = "bad \ud83d"
    if name == "a.parquet":
        content = [text.encode("utf-8", "surrogatepass") for text in texts]
        offsets = pyarrow.array([0, *np.cumsum([*map(len, content)])], pyarrow.int32()).buffers()[1]
        column = pyarrow.Array.from_buffers(
            pyarrow.string(), 1600, [None, offsets, pyarrow.py_buffer(b"".join(content))]
        )
        write_table(pyarrow.table({"text": column}), path)
    else:
        objects = [json.dumps({"text": text}) for text in texts]
        path.write_text(f"[{','.join(objects)}]" if name == "a.json" else "\n".join(objects), encoding="utf-8")
    for read in (texts_of(path), read_file(path)["text"][:]):
        assert len(read) == 1600
        assert read[row - 1].startswith("bad \ufffd")


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.tsv", "1\tMira\tB-PER\n2\twent\tO\n\n1\tin\tO\n", [["Mira", "went"], ["in"]]),
        ("a.csv", "3,a fine film,good\n4,dull,bad\n", ["a fine film", "dull"]),
        ("a.csv", "3;a fine film;good\n4;dull;bad\n", ["a fine film", "dull"]),
        ("a.tsv", "n\ttext\tlabel\n1\tdull\tbad\n", ["dull"]),
        ("a.csv", "id,Text,label\n1,dull,bad\n", ["dull"]),
    ],
)
def test_the_column_names_of_the_training_count_where_a_table_has_no_header(
    tmp_path: Path, name: str, text: str, expected: list[Any]
) -> None:
    names = ["_", "tokens", "ner_tags"] if "Mira" in text else ["n", "body", "label"]
    path = written(tmp_path / name, text)
    assert texts_of(path, trained_columns=names, trained_on=names[1]) == expected
