"""Files and Hub names -> documents, held as a whole or streamed."""

import gzip
import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow
import pyarrow.parquet
import pytest

from modeling_star.data import text as data_text
from modeling_star.data.formats import running_text
from modeling_star.data.readers import stream_files
from modeling_star.data.text import TextData, TextSource, documents, load_texts, stream_texts
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


def train_of(data: TextData) -> list[str]:
    rows = data.splits["train"] if data.stream is None else data.stream
    return list(documents(rows, data.text_column, data.held_out))


def load(streaming: bool, files: dict[str, Any], cache: Path, unit: str = "line", **options: Any) -> TextData:
    source = TextSource(files, unit, cache_dir=str(cache), **options)
    return stream_texts(source) if streaming else load_texts(source)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("line", LINES),
        ("paragraph", ["one", "two a\ntwo b", "\nthree\n", "four", "five\n"]),
        ("file", ["one\n\ntwo a\ntwo b\n\n\nthree\n", "four\n\nfive\n"]),
    ],
)
def test_a_document_of_a_text_file_is_a_line_a_paragraph_or_the_file(
    paths: dict[str, str], tmp_path: Path, streaming: bool, unit: str, expected: list[str]
) -> None:
    data = load(streaming, {"train": [paths["a.txt"], paths["b.txt.gz"]]}, tmp_path / "cache", unit)
    assert train_of(data) == expected


@pytest.mark.parametrize("streaming", [False, True])
def test_files_of_several_kinds_are_read_one_after_the_other(
    paths: dict[str, str], tmp_path: Path, streaming: bool
) -> None:
    named = ["c.jsonl", "a.txt", *([] if streaming else ["d.csv"])]
    data = load(streaming, {"train": [paths[name] for name in named]}, tmp_path / "cache")
    assert train_of(data) == ["six", *LINES[:4], *([] if streaming else ["seven"])]


@pytest.mark.parametrize("streaming", [False, True])
def test_texts_of_pandas_are_combined_with_others(paths: dict[str, str], tmp_path: Path, streaming: bool) -> None:
    table = pyarrow.table({"text": pyarrow.array(["eight"], pyarrow.large_string())})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    named = [paths["c.jsonl"], str(tmp_path / "e.parquet"), paths["a.txt"]]
    data = load(streaming, {"train": named}, tmp_path / "cache")
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


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("what", UNEQUAL)
def test_rows_can_differ_in_other_columns(tmp_path: Path, what: str, streaming: bool) -> None:
    named = []
    for number, content in enumerate(UNEQUAL[what]):
        named.append(str(tmp_path / f"{number}.json"))
        Path(named[-1]).write_text(content)
    data = load(streaming, {"train": named}, tmp_path / "cache", text_column_name="text")
    assert train_of(data) == ["one", "two"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_column_may_begin_far_into_a_file(tmp_path: Path, streaming: bool) -> None:
    long = [{"text": f"{number} " + "a" * 10_000} for number in range(1100)]  # beyond what `datasets` reads at a time
    path = tmp_path / "a.jsonl"
    path.write_text(rows_of(*long, {"text": "last", "id": 3}))
    data = load(streaming, {"train": [str(path)]}, tmp_path / "cache")
    assert [text.split()[0] for text in train_of(data)] == [*map(str, range(1100)), "last"]


@pytest.mark.parametrize("streaming", [False, True])
def test_parquet_files_may_have_other_columns(tmp_path: Path, streaming: bool) -> None:
    for name, columns in (("a", {"text": ["one"]}), ("b", {"id": [3], "text": ["two"]})):
        pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / f"{name}.parquet")
    named = [str(tmp_path / "a.parquet"), str(tmp_path / "b.parquet")]
    assert train_of(load(streaming, {"train": named}, tmp_path / "cache")) == ["one", "two"]


def test_a_packed_parquet_file_is_streamed(tmp_path: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one"]}), tmp_path / "a.parquet")
    packed = tmp_path / "b.parquet.gz"
    packed.write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    assert train_of(stream_texts(TextSource({"train": [str(packed)]}))) == ["one"]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_file_without_the_column_is_named_before_training(tmp_path: Path, streaming: bool) -> None:
    (tmp_path / "a.jsonl").write_text(rows_of({"text": "one"}))
    (tmp_path / "b.jsonl").write_text(rows_of({"content": "two"}))
    with pytest.raises(UserError, match="content"):
        load(streaming, {"train": [str(tmp_path / "a.jsonl"), str(tmp_path / "b.jsonl")]}, tmp_path / "cache")


def test_a_streamed_number_instead_of_a_text_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(rows_of({"text": "one"}, {"text": 2}))
    data = stream_texts(TextSource({"train": [str(tmp_path / "a.jsonl")]}))
    with pytest.raises(UserError, match=r"a\.jsonl, row 2"):
        train_of(data)


BROKEN = {
    "a.jsonl": (rows_of(*[{"text": "one"}] * 5).encode() + b'{"text": "t\n', "line 6 is not valid json"),
    "a.txt": (b"one\n" * 300_000 + "caf\u00e9\n".encode("latin-1"), "is not UTF-8 text"),
    "a.txt.gz": (gzip.compress(bytes(range(33, 127)) * 5000 + b"\n" + b"one\n" * 300_000)[:-200], "gzip file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_where_a_stream_breaks_off_its_file_is_named(tmp_path: Path, name: str) -> None:
    content, problem = BROKEN[name]
    (tmp_path / name).write_bytes(content)
    data = stream_texts(TextSource({"train": [str(tmp_path / name)]}))
    texts = documents(data.stream or (), data.text_column)
    assert next(texts)
    with pytest.raises(UserError) as raised:
        list(texts)
    message = str(raised.value)
    assert f"{tmp_path / name}" in message
    assert problem in message
    assert "--resume_from_checkpoint last" in message


@pytest.mark.parametrize("streaming", [False, True])
def test_the_first_documents_are_counted_without_empty_rows(tmp_path: Path, streaming: bool) -> None:
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join(f"text {number}" for number in range(9)))
    files = {"train": [str(path)], "validation": [str(path)], "test": [str(path)]}
    limits = {"validation": 3, "test": 4} | ({} if streaming else {"train": 5})
    data = load(streaming, files, tmp_path / "cache", limits=limits)
    assert {split: len(data.splits[split]) for split in limits} == limits


def test_files_are_what_a_stream_shuffles_and_shares_out(paths: dict[str, str]) -> None:
    stream = stream_files([paths[name] for name in ("a.txt", "b.txt.gz", "c.jsonl")], "line", "text")
    assert stream.num_shards == 3
    assert list(documents(stream.shard(3, 1), "text")) == LINES[4:]


@pytest.mark.parametrize("streaming", [False, True])
def test_a_data_set_is_read_by_name(tmp_path: Path, streaming: bool) -> None:
    folder = tmp_path / "named"
    folder.mkdir()
    for split, texts in (("train", ["a", "b"]), ("dev", ["c"])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps({"content": text}) + "\n" for text in texts))
    data = load(streaming, {}, tmp_path / "cache", dataset_name=str(folder))
    assert data.text_column == "content"
    assert train_of(data) == ["a", "b"]
    assert list(documents(data.splits["validation"], "content")) == ["c"]


def test_the_first_documents_of_a_stream_are_held_out(paths: dict[str, str]) -> None:
    data = stream_texts(TextSource({"train": [paths["a.txt"]]}, limits={"validation": 2}))
    assert data.splits["validation"]["text"][:] == LINES[:2]
    assert train_of(data) == list(data.training_texts(None)) == LINES[2:4]
    files = {"train": [paths["a.txt"]], "validation": [paths["b.txt.gz"]]}
    named = stream_texts(TextSource(files, limits={"validation": 1}))
    assert named.splits["validation"]["text"][:] == ["four"]
    assert train_of(named) == LINES[:4]


def test_a_tokenizer_may_be_trained_on_the_first_documents(paths: dict[str, str], tmp_path: Path) -> None:
    for streaming in (False, True):
        data = load(streaming, {"train": [paths["a.txt"]]}, tmp_path / "cache")
        assert list(data.training_texts(2)) == LINES[:2]


def test_a_tokenizer_is_trained_on_so_many_characters_of_a_stream(
    paths: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_text, "CHARACTERS_FOR_TOKENIZER", 8)
    data = stream_texts(TextSource({"train": [paths["a.txt"]]}))
    assert list(data.training_texts(None)) == LINES[:2]
    assert list(data.training_texts(3)) == LINES[:3]


@pytest.mark.parametrize(
    ("files", "options", "error", "named"),
    [
        ({}, {}, UserError, "--dataset_name NAME"),
        ({"train": ["a.txt"]}, {"dataset_name": "x"}, UserError, "either --dataset_name"),
        ({"train": ["none.txt"]}, {}, UserError, "none.txt"),
        ({"train": ["empty.txt"]}, {}, UserError, "empty.txt"),
        ({"train": ["c.jsonl"]}, {"text_column_name": "texts"}, UserError, "--text_column_name"),
        ({"train": ["numbers.jsonl"]}, {}, UserError, "--text_column_name n"),
        ({"train": ["a.pdf"]}, {}, UserError, "'.pdf'"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_what_cannot_be_used_is_named(
    paths: dict[str, str],
    tmp_path: Path,
    files: dict[str, list[str]],
    options: dict[str, Any],
    error: type,
    named: str,
    streaming: bool,
) -> None:
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "a.pdf").write_text("x")
    (tmp_path / "numbers.jsonl").write_text('{"n": 1}\n')
    given = {split: [str(tmp_path / name) for name in several] for split, several in files.items()}
    with pytest.raises(error, match=named):
        load(streaming, given, tmp_path / "cache", **options)


def test_a_split_without_any_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n{"text": " "}\n')
    with pytest.raises(UserError, match="train split has no text"):
        load(False, {"train": [str(tmp_path / "a.jsonl")]}, tmp_path / "cache")


def test_other_formats_and_limits_are_not_streamed(paths: dict[str, str]) -> None:
    with pytest.raises(UserError, match=r"csv.*\.jsonl"):
        stream_files([paths["d.csv"]], "line", "text")
    with pytest.raises(UserError, match="--max_steps"):
        stream_texts(TextSource({"train": [paths["a.txt"]]}, limits={"train": 3}))
    with pytest.raises(UserError, match="--max_eval_samples 1000"):
        stream_texts(TextSource({"train": [paths["a.txt"]]}, limits={"validation": 1000}))


@pytest.mark.parametrize("block", [1, 2, 3, 5])
def test_paragraphs_are_separated_wherever_a_block_of_the_file_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(running_text, "_BLOCK", block)
    for number, text in enumerate(["a\n\nb", "a\nb\n", "a\n\n\nb\n\n", "\n\na", "a\n\n\n\nb\nc\n\nd", "a", "\n"]):
        path = tmp_path / f"{number}.txt"
        path.write_text(text, encoding="utf-8")
        assert list(running_text._texts(path, "paragraph")) == text.split("\n\n")
