"""Reading data files beyond the tables of test_cases.py: encodings, packing, tools, texts to predict."""

import bz2
import gzip
import io
import json
import logging
import random
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import pytest
from datasets import Dataset, DatasetDict
from pyarrow.parquet import write_table
from script_samples import jsonl

from modeling_star.data.classification import prepare_classification
from modeling_star.data.formats import json_rows
from modeling_star.data.prediction_inputs import count_rows, data_files, read_texts
from modeling_star.data.readers import read_file
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


TAGGED = [
    {"tokens": ["Anna", "lives", "in", "Oslo", "."], "ner_tags": ["B-PER", "O", "O", "B-LOC", "O"]},
    {"tokens": ["#", "New", "York", "\u3000", "NA"], "ner_tags": ["O", "B-LOC", "I-LOC", "O", "O"]},
]


def test_parquet_is_read(tmp_path):
    Dataset.from_list(TAGGED).to_parquet(tmp_path / "train.parquet")
    splits = load_splits(files={"train": tmp_path / "train.parquet"})
    assert splits["train"].to_list() == TAGGED


def test_splits_can_have_different_formats_and_no_labels(load):
    splits = load(
        train=("a.jsonl", jsonl([{"text": "good", "label": 1}, {"text": "bad", "label": 0}])),
        validation=("b.csv.gz", "text,label\nfine,1\npoor,0\n"),
        test=("c.tsv", "text\nwho knows\n"),
    )
    data = prepare_classification(splits)
    assert data.label_list == ("0", "1")
    assert data.splits["validation"]["label"][:] == [1, 0]
    assert [data.is_labelled(split) for split in ("train", "validation", "test")] == [True, True, False]


def test_a_column_that_is_only_called_timestamp_stays_on_disk(load, monkeypatch):
    monkeypatch.setattr(json_rows, "stream", None)  # reads all rows into memory
    row = {"text": "x", "timestamp": 3, "meta": {"timestamp": "y"}}
    assert load(train=("a.jsonl", json.dumps(row) + "\n"))["train"].to_list() == [row]


def test_json_numbers_can_become_fractions_late_in_a_file(load):
    # datasets fixes the types at its first ten megabytes.
    rows = [{"text": "x" * 20000, "label": 1}] * 600 + [{"text": "y", "label": 1.5}]
    data = prepare_classification(load(train=("a.jsonl", jsonl(rows))))
    assert data.problem_type == "regression"
    assert data.splits["train"]["label"][-1] == 1.5


def test_sentences_survive_a_round_trip_through_conll(load):
    rng = random.Random(0)
    words = ["Oslo", "#", "# x", "中", "a\u00a0b", '"', "-", "\u3000", "'"]
    rows = [[(rng.choice(words), rng.choice(["O", "B-X"])) for _ in range(rng.randint(1, 9))] for _ in range(200)]
    text = "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in row) for row in rows)
    dataset = load(train=("a.conll", text))["train"]
    assert dataset["tokens"][:] == [[word for word, _ in row] for row in rows]
    assert dataset["tags"][:] == [[tag for _, tag in row] for row in rows]


def test_a_local_folder_is_a_data_set_name(tmp_path):
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").write_text(jsonl(TAGGED))
    assert set(load_splits(str(tmp_path))) == {"train", "validation"}


# Bad files


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.conll.gz"])
def test_a_broken_gzip_file_is_named(tmp_path, name):
    whole = gzip.compress(random.Random(0).randbytes(50_000).hex().encode())
    for content in (b"\x1f\x8bgarbage", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}.*gzip"):
            load_splits(files={"train": tmp_path / name})


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.conll", "a.json"])
def test_an_empty_file_is_called_so_packed_or_not(tmp_path, name):
    for path, content in ((tmp_path / name, b""), (tmp_path / f"{name}.gz", gzip.compress(b""))):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{path.name} is empty"):
            load_splits(files={"train": path})


def test_an_absent_file_or_a_folder_is_named(tmp_path):
    for path in (tmp_path / "gone.jsonl", tmp_path):
        with pytest.raises(UserError, match=path.name):
            load_splits(files={"train": path})


def test_data_are_named_once(tmp_path):
    with pytest.raises(UserError, match="--dataset_name NAME, or --train_file"):
        load_splits(files={"train": None})
    with pytest.raises(UserError, match=r"'glue'.*either --dataset_name"):
        load_splits("glue", files={"train": tmp_path / "x.jsonl"})


def test_an_unreachable_data_set_is_named(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"nyu-mll/glue \(cola\).*--train_file"):
        load_splits("nyu-mll/glue", "cola")


def tagged(path: Path, column_names: list[str] | None = None) -> list[list[str]]:
    """The words of each sentence with their labels."""
    splits = load_splits(files={"train": path}, column_names=column_names)
    data = prepare_tagging(splits)
    rows = data.splits["train"]
    pairs = zip(rows[data.text_column][:], rows[data.label_column][:], strict=True)
    return [[f"{word}/{data.id2label[tag]}" for word, tag in zip(*pair, strict=True)] for pair in pairs]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "train.tsv",
            "#|http://a.org|[2020]\n1|Ann|B-PER|O\n2|ran|O|O\n\n#|http://b.org|[2020]\n1|Oslo|B-LOC|B-ORG\n2|is|O|O\n",
        ),
        ("train.tsv", "Ann|B-PER|O\nran|O|O\n\nOslo|B-LOC|B-LOC\nis|O|B-LOC\n"),
        ("train.conllu", "1|Ann|Ann|PROPN|X|_|2|nsubj|_|_\n2|ran|run|VERB|V|_|0|root|_|SpaceAfter=No\n"),
    ],
    ids=["GermEval", "tags and predictions", "CoNLL-U"],
)
def test_the_line_that_is_shown_names_the_columns_that_are_read_and_others(
    name: str, text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / name
    path.write_text(text.replace("|", "\t"), encoding="utf-8")
    with caplog.at_level(logging.INFO):
        found = tagged(path)
    names = [part.split("`")[0].split(",") for part in caplog.text.split("--column_names ")[1:3]]
    assert tagged(path, names[0]) == found
    if name != "train.conllu":
        assert tagged(path, names[1]) != found


@pytest.mark.parametrize("split", ["validation", "test"])
def test_a_split_without_any_label_of_train_is_refused(load: Callable[..., DatasetDict], split: str) -> None:
    train = ("train.csv", "text,label\na good film,good\na bad film,bad\n")
    other = ("other.csv", "text,label\na good film,1.0\na bad film,0.0\n")
    with pytest.raises(UserError, match=f"{split} split are 0.0, 1.0"):
        prepare_classification(load(train=train, **{split: other}))


def test_a_mistyped_file_names_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\na,b\n")
    with pytest.raises(UserError, match=r"Did you mean .*train\.csv"):
        read_file(tmp_path / "trian.csv")


Sentences = list[tuple[list[str], list[str]]]


def sentences(path: Path, **others: Path) -> Sentences:
    """The words and tags of a training file."""
    data = prepare_tagging(load_splits(files={"train": path, **others}))
    rows = data.splits["train"]
    return [(row[data.text_column], [data.id2label[tag] for tag in row[data.label_column]]) for row in rows]


# ------ brat


def test_a_brat_folder_is_read_by_lines(tmp_path):
    (tmp_path / "b").mkdir()
    files = {
        "a.txt": "Mira Keil went\nto Quell.\n\nNo one.\n",
        "a.ann": "T1\tPER 0 9\tMira Keil\nT2\tLOC 18 23\tQuell\n#1\tAnnotatorNotes T1\tx\nR1\tAt Arg1:T1 Arg2:T2\n",
        "b/c.txt": "North and South Quell\r\nMira lives there\r\n",
        "b/c.ann": "T1\tLOC 0 5;16 21\tNorth Quell\nT3\tPER 23 27\tMira\n",
        "d.txt": "Mira\nKeil went.\n",
        "d.ann": "T1\tPER 0 4;5 9\tMira Keil\n",
        "e.txt": "Nobody has annotated it\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content.encode())
    assert sentences(tmp_path) == [
        (["Mira", "Keil", "went"], ["B-PER", "I-PER", "O"]),
        (["to", "Quell", "."], ["O", "B-LOC", "O"]),
        (["No", "one", "."], ["O", "O", "O"]),
        (["North", "and", "South", "Quell"], ["B-LOC", "O", "O", "B-LOC"]),
        (["Mira", "lives", "there"], ["B-PER", "O", "O"]),
        (["Mira", "Keil", "went", "."], ["B-PER", "I-PER", "O", "O"]),
    ]
    assert [text for _, text in read_texts(tmp_path / "a.ann")] == ["Mira Keil went", "to Quell.", "No one."]


@pytest.mark.parametrize(
    ("annotation", "message"),
    [("T1\tPER 0 4\tMara\n", "Mara"), ("T1\tPER 0 99\tMira\n", "0-99"), ("T1 PER 0 4 Mira\n", "line 1")],
)
def test_a_wrong_line_of_brat_is_named(tmp_path, annotation, message):
    (tmp_path / "a.ann").write_text(annotation)
    (tmp_path / "a.txt").write_text("Mira went.\n")
    with pytest.raises(UserError, match=message):
        sentences(tmp_path / "a.ann")


# ------ fastText


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("a.txt", "__label__pos a good film\n__label__neg bad\n", [("a good film", "pos"), ("bad", "neg")]),
        ("a.txt", "__label__a __label__b c d\n\n__label__b e\n", [("c d", ["a", "b"]), ("e", ["b"])]),
        ("a.train", "__label__x , a : b\n__label__y-z c __label__x\n", [(", a : b", ["x"]), ("c", ["y-z", "x"])]),
        ("a.txt.bz2", "__label__2 Great: I\tlove it\n__label__1 No\n", [("Great: I\tlove it", "2"), ("No", "1")]),
    ],
)
def test_the_labels_of_fasttext_are_classes(tmp_path, name, content, rows):
    path = tmp_path / name
    path.write_bytes(bz2.compress(content.encode()) if name.endswith("bz2") else content.encode())
    splits = load_splits(files={"train": path}, with_spans=False)
    assert [(row["text"], row["label"]) for row in splits["train"]] == rows
    assert prepare_classification(splits).label_list


SPELLED = {
    "Spanish": "una película buena\nuna canción mala\nel niño pequeño\nla mañana fría\n",
    "French": "un film très réussi\nça ne marche pas\n",
    "German": "ein schöner Film\ngrüße aus München\n",
    "quoted": "it’s a “fine” film – really\n",
    "Polish": "świetny film żółć\nzły film łódź\n",
    "Russian": "хороший фильм\nплохой фильм\n",
    "Greek": "καλή ταινία\nκακή ταινία\n",
    "Turkish": "çok güzel bir film ığş\n",
    "simplified": "这部电影很好看\n不好看的电影\n",
    "traditional": "這部電影很好看\n不好看的電影\n",
    "Japanese": "この映画はとても良い\nラーメン\n",
    "Korean": "이 영화는 정말 좋다\n재미없는 영화\n",
    "ASCII": "a fine film\na dull one\n",
}


def advice_of(path: Path, **options) -> str:
    """The line that training and prediction give alike."""
    with pytest.raises(UserError) as trained:
        read_file(path, **options)
    with pytest.raises(UserError) as predicted:
        list(read_texts(path))
    assert str(trained.value) == str(predicted.value)
    return re.search("`(.*)`", str(trained.value))[1]


@pytest.mark.parametrize(
    ("language", "encoding"),
    [
        *((language, "cp1252") for language in ("Spanish", "French", "German", "quoted")),
        *(("Spanish", encoding) for encoding in ("utf-16", "utf-16-le", "utf-16-be", "utf-32")),
        *(("simplified", encoding) for encoding in ("gb18030", "utf-16", "utf-16-le")),
        *(("Japanese", encoding) for encoding in ("shift_jis", "euc_jp")),
        *(("Russian", encoding) for encoding in ("cp1251", "koi8-r")),
        ("Polish", "cp1250"),
        ("Greek", "cp1253"),
        ("Turkish", "cp1254"),
        ("traditional", "big5"),
        ("Korean", "euc_kr"),
        ("ASCII", "utf-16-le"),
    ],
)
def test_the_given_line_converts_the_file(tmp_path, monkeypatch, language, encoding):
    monkeypatch.chdir(tmp_path)
    text = "text,label\n" + SPELLED[language].replace("\n", ",1\n")
    path = Path("my file.csv")
    path.write_bytes(text.encode(encoding))
    subprocess.run(advice_of(path), shell=True, check=True)
    assert Path("my file_utf8.csv").read_text(encoding="utf-8-sig") == text


@pytest.mark.parametrize("name", ["train.arrow", "image.txt", "train.csv"])
def test_binary_data_have_no_encoding(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\xaa\n" * 20)
    with pytest.raises(UserError, match="binary"):
        list(read_texts(tmp_path / name))


@pytest.mark.parametrize(("encoding", "name"), [("latin-1", "WINDOWS-1252"), ("utf-16-le", "UTF-16LE")])
def test_standard_input_is_refused_with_its_encoding(monkeypatch, encoding, name):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(SPELLED["Spanish"].encode(encoding))))
    with pytest.raises(UserError, match=f"`iconv -f {name} -t UTF-8`"):
        list(read_texts("-"))


def texts_of(path: str | Path, **options: Any) -> list[str | tuple[str, str]]:
    return [text for _, text in read_texts(path, **options)]


def written(path: Path, text: str) -> Path:
    content = text.encode()
    pack = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": lambda content: pyarrow.compress(content, "zstd")}
    path.write_bytes(memoryview(pack.get(path.suffix, bytes)(content)))
    return path


JSON = '{"id": 1, "Review Text": "fine, really"}\n{"id": 2, "Review Text": "dull"}\n'


def test_texts_of_parquet_are_read(tmp_path: Path) -> None:
    Dataset.from_dict({"text": ["fine", "dull"], "n": [1, 2]}).to_parquet(tmp_path / "a.parquet")
    assert texts_of(tmp_path / "a.parquet") == ["fine", "dull"]


def test_nested_questions_give_each_context_once(tmp_path: Path) -> None:
    asked = [{"question": q, "id": q, "answers": [{"text": "Ann", "answer_start": 0}]} for q in ("who?", "what?")]
    article = {"title": "x", "paragraphs": [{"context": "Ann sings.", "qas": asked}, {"context": "b", "qas": asked}]}
    path = written(tmp_path / "a.json", json.dumps({"version": "1", "data": [article]}))
    assert texts_of(path, contexts=True) == ["Ann sings.", "b"]


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


def test_the_only_line_of_names_that_may_be_a_text_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert texts_of(written(tmp_path / "b.csv", "text\nA film.\n")) == ["A film."]
    assert not caplog.records
    assert texts_of(written(tmp_path / "c.csv", "Comments\nA film.\n")) == ["A film."]
    assert "--column_names text" in caplog.text
    assert texts_of(tmp_path / "c.csv", column_names=["text"]) == ["Comments", "A film."]


def test_a_column_of_texts_that_is_guessed_is_shown(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "a.jsonl", '{"Kunde": "Mira", "n": 3}\n')
    assert texts_of(path, trained_on="Kunde") == texts_of(path, text_column_name="Kunde") == ["Mira"]
    pairs = written(tmp_path / "b.jsonl", '{"one": "Mira", "other": "Keil", "n": 3}\n')
    assert texts_of(pairs, pairs=True, trained_on="one, other") == [("Mira", "Keil")]
    assert not caplog.records
    assert texts_of(path, trained_on="Review") == ["Mira"]
    assert "'Kunde'" in caplog.text
    assert texts_of(pairs, pairs=True) == [("Mira", "Keil")]
    assert "'one' and 'other'" in caplog.text


def test_repeated_names_of_columns_are_shown(
    load: Callable[..., DatasetDict], caplog: pytest.LogCaptureFixture
) -> None:
    rows = load(train=("train.csv", "text,label,text\na,b,c\n"))["train"]
    assert rows.column_names[:3] == ["text", "label", "text.1"]
    assert "text.1" in caplog.text


def test_a_text_whose_spans_are_null_was_not_annotated(tmp_path: Path) -> None:
    rows = [{"text": "Ann ran", "entities": [[0, 3, "PER"]]}, {"text": "Bo ran", "entities": None}]
    path = written(tmp_path / "a.jsonl", "".join(json.dumps(row) + "\n" for row in rows * 2))
    splits = load_splits(files={"train": path}, with_spans=True)
    assert len(splits["train"]) == 2


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
