"""Files and Hub names -> documents, in memory-mapped splits."""

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from modeling_star.data.formats import running_text
from modeling_star.data.text import TextData, TextSource, load_texts
from modeling_star.errors import UserError


FILES = {
    "a.txt": "\ufeffone\n\ntwo a\ntwo b\n\n\nthree\n",
    "b.txt.gz": "four\r\n\r\nfive\r\n",
    "c.jsonl": json.dumps({"title": "t", "text": "six"}) + "\n" + json.dumps({"title": "t", "text": "  "}) + "\n",
    "d.csv": "text,label\nseven,x\n",
}
LINES = ["one", "two a", "two b", "three", "four", "five"]


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture
def paths(tmp_path: Path) -> dict[str, str]:
    for name, text in FILES.items():
        content = text.encode()
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return {name: str(tmp_path / name) for name in FILES}


def load(files: dict[str, Any], cache: Path, unit: str = "line", **options: Any) -> TextData:
    return load_texts(TextSource(files, unit, cache_dir=str(cache), **options))


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
    data = load({"train": [paths["a.txt"], paths["b.txt.gz"]]}, tmp_path / "cache", unit)
    assert train_of(data) == expected


def test_files_of_several_kinds_are_read_one_after_the_other(paths: dict[str, str], tmp_path: Path) -> None:
    named = ["c.jsonl", "a.txt", "d.csv"]
    data = load({"train": [paths[name] for name in named]}, tmp_path / "cache")
    assert train_of(data) == ["six", *LINES[:4], "seven"]
    assert list(data.training_texts(2)) == ["six", "one"]


def test_texts_of_pandas_are_combined_with_others(paths: dict[str, str], tmp_path: Path) -> None:
    table = pyarrow.table({"text": pyarrow.array(["eight"], pyarrow.large_string())})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    named = [paths["c.jsonl"], str(tmp_path / "e.parquet"), paths["a.txt"]]
    data = load({"train": named}, tmp_path / "cache")
    assert train_of(data) == ["six", "eight", *LINES[:4]]


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
    data = load({"train": named}, tmp_path / "cache", text_column_name="text")
    assert train_of(data) == ["one", "two"]


def test_a_column_may_begin_far_into_a_file(tmp_path: Path) -> None:
    long = [{"text": f"{number} " + "a" * 10_000} for number in range(1100)]  # beyond what `datasets` reads at a time
    path = tmp_path / "a.jsonl"
    path.write_text(rows_of(*long, {"text": "last", "id": 3}))
    data = load({"train": [str(path)]}, tmp_path / "cache")
    assert [text.split()[0] for text in train_of(data)] == [*map(str, range(1100)), "last"]


def test_a_file_without_the_column_is_named_before_training(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(rows_of({"text": "one"}))
    (tmp_path / "b.jsonl").write_text(rows_of({"content": "two"}))
    with pytest.raises(UserError, match="content"):
        load({"train": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]}, tmp_path / "cache")


def test_the_first_documents_are_counted_without_empty_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"text {number}" for number in range(9)))
    files = {"train": [str(path)], "validation": [str(path)], "test": [str(path)]}
    limits = {"validation": 3, "test": 4, "train": 5}
    data = load(files, tmp_path / "cache", limits=limits)
    assert {split: len(data.splits[split]) for split in limits} == limits


def test_a_data_set_is_read_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    for split, texts in (("train", ["a", "b"]), ("dev", ["c"])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"content": text}) + "\n" for text in texts))
    data = load({}, tmp_path / "cache", dataset_name=str(folder))
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
        load(given, tmp_path / "cache", **options)


def test_a_split_without_any_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": " "}\n')
    with pytest.raises(UserError, match="train split has no text"):
        load({"train": [str(tmp_path / "a.jsonl")]}, tmp_path / "cache")


@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_paragraphs_are_separated_wherever_a_block_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(running_text, "_BLOCK", block)
    for number, text in enumerate(["a\n\nb", "a\nb\n", "a\n\n\nb\n\n", "\n\na", "a\n\n\n\nb\nc\n\nd", "a", "\n"]):
        path = tmp_path / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        assert list(running_text._texts(path, "paragraph")) == text.split("\n\n")
