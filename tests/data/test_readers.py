"""Data files of every format, and errors that name the file."""

import gzip
import json
import random

import datasets
import pytest
from datasets import Dataset
from script_samples import jsonl

from modeling_star.data.classification import prepare_classification
from modeling_star.data.formats import json_rows
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


TAGGED = [
    {"tokens": ["Anna", "lives", "in", "Oslo", "."], "ner_tags": ["B-PER", "O", "O", "B-LOC", "O"]},
    {"tokens": ["#", "New", "York", "\u3000", "NA"], "ner_tags": ["O", "B-LOC", "I-LOC", "O", "O"]},
]


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", jsonl(TAGGED)),
        ("train.v2.JSONL", jsonl(TAGGED)),
        ("train.json", json.dumps(TAGGED, indent=1)),
        ("train.json", ",\n".join(map(json.dumps, TAGGED))),
        ("train.json", json.dumps({"version": 1, "data": TAGGED})),
        ("train.json", json.dumps({name: {i: TAGGED[i][name] for i in (0, 1)} for name in TAGGED[0]})),  # pandas
        ("train.json", json.dumps(dict(enumerate(TAGGED)), indent=1)),
        ("train.csv", "tokens,ner_tags\nAnna lives in Oslo .,B-PER O O B-LOC O\n"),
        ("train.tsv", "tokens\tner_tags\nAnna lives in Oslo .\tB-PER O O B-LOC O\n"),
        ("train.csv", "tokens,ner_tags\n\"['Anna', 'lives', 'in', 'Oslo', '.']\",B-PER O O B-LOC O\n"),
        ("train.conll", "Anna B-PER\nlives O\nin O\nOslo B-LOC\n. O\n\n"),
        ("train.txt", "-DOCSTART- O\n\nAnna\tB-PER\nlives\tO\nin\tO\nOslo\tB-LOC\n.\tO"),
    ],
)
def test_every_format_gives_the_same_sentence(load, name, text, packed):
    data = prepare_tagging(load(train=(name + packed, text)))
    row = data.splits["train"][0]
    assert row[data.text_column] == TAGGED[0]["tokens"]
    assert [data.id2label[tag] for tag in row[data.label_column]] == TAGGED[0]["ner_tags"]


def test_parquet_is_read(tmp_path):
    Dataset.from_list(TAGGED).to_parquet(tmp_path / "train.parquet")
    splits = load_splits(files={"train": tmp_path / "train.parquet"}, cache_dir=str(tmp_path / "cache"))
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


@pytest.mark.parametrize("name", ["data.csv", "data.csv.gz"])
def test_csv_cells_are_texts(load, name):
    text = 'text,label\nNA,1\n"null, ""x""\ny",0\n007,1\n1.50,0\n,1\n'
    assert load(train=(name, text))["train"]["text"][:] == ["NA", 'null, "x"\ny', "007", "1.50", ""]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        ('text\tlabel\n"Hi, he said\t1\n"No" is no\t0\n', ['"Hi, he said', '"No" is no']),  # GLUE
        ('text\tlabel\n"He said ""hi"""\t1\n', ['He said "hi"']),  # pandas
        ('text\tlabel\n"one\ntwo"\t1\n"plain ""q"" x"\t0\nc\t1\n', ["one\ntwo", 'plain "q" x', "c"]),
        ('text\tlabel\n"Hi\t1\nthere"\t0\n', ['"Hi', 'there"']),
    ],
)
def test_quotation_marks_in_tsv_are_text_unless_they_enclose_cells(load, text, cells):
    assert load(train=("a.tsv", text))["train"]["text"][:] == cells


@pytest.mark.parametrize(("name", "gap"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", "\t"), ("a.txt.gz", "\t")])
def test_column_names_replace_a_header_line(tmp_path, name, gap):
    text = f'sport{gap}"a" goal\nmoney{gap}NA\n' if gap == "\t" else 'sport,"a ""goal"""\nmoney,NA\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    options = {"cache_dir": str(tmp_path / "cache"), "column_names": ["label", "text"]}
    rows = load_splits(files={"train": path}, **options)["train"]
    assert rows["label"][:] == ["sport", "money"]
    assert rows["text"][:] == ['"a" goal' if gap == "\t" else 'a "goal"', "NA"]
    with pytest.raises(UserError, match="line 1 has 2 cells"):
        load_splits(files={"train": path}, **options | {"column_names": ["label", "text", "more"]})


def test_column_names_are_refused_where_the_file_has_its_own(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "word"}\n')
    (tmp_path / "a.csv").write_text("Label,text\nfine,1\n")
    for name in ("a.jsonl", "a.csv"):
        with pytest.raises(UserError, match="--column_names"):
            load_splits(files={"train": tmp_path / name}, column_names=["text", "label"])


def test_byte_order_mark_is_not_part_of_a_column_name(load):
    assert load(train=("a.csv", "\ufefftext,label\na,1\n"))["train"].column_names == ["text", "label"]
    assert load(train=("a.conll", "\ufeffAnna B-PER\n"))["train"]["tokens"][0] == ["Anna"]


def test_json_texts_that_look_like_dates_stay_texts(load):
    rows = [{"text": "2020-01-01", "label": "2021-05-05"}, {"text": "2020-01-02", "label": "2021-05-06"}]
    assert load(train=("a.jsonl", jsonl(rows)))["train"].to_list() == rows


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


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (
            "# sent_id = 1\n# text = # x\n#\tO\nNew York\tB-LOC\n\n# newdoc\n# x\n#tag\tO\n",
            [["#", "New York"], ["#tag"]],
        ),
        ("# id 5239d808-f300\tdomain=en\nrobert _ _ B-PER\nran _ _ O\n", [["robert", "ran"]]),
        ("# sent_id = 1\nEU NNP B-NP B-ORG\n\n# text = x\nBut CC O O\n", [["EU"], ["But"]]),
        ("# WNUT17\nAnn B-PER\n# O\n\n# O\nOslo B-LOC\n\n# page\nIt O\n", [["Ann", "#"], ["#", "Oslo"], ["It"]]),
        ("We NN\n\n# #\n10 CD\n\n# SYM\nme PRP\n", [["We"], ["#", "10"], ["#", "me"]]),  # tags of the Penn Treebank
        ("#newparents\tO\nsing\tO\n\n#id\tB-MISC\n#newdocs\tO\n", [["#newparents", "sing"], ["#id", "#newdocs"]]),
        ("Ann\tB-PER\n# a = b\tO\n", [["Ann", "# a = b"]]),
        ("-DOCSTART-\n\n# page one\nAnn B-PER\n-DOCSTART- -X-\n# two\nIt O\n", [["Ann"], ["It"]]),
        ("李 B-PER\n  O\n娜 B-PER\n\u3000\n\u3000 O\n好 O\n \n再 O\n", [["李", " ", "娜"], ["\u3000", "好"], ["再"]]),
        ("EU\n\u3000\nBut\n\nIt\n", [["EU", "\u3000", "But"], ["It"]]),
        ("3 O\nmen O\n", [["3", "men"]]),
    ],
)
def test_conll_comments_documents_and_blank_tokens(load, text, tokens):
    assert load(train=("a.conll", text))["train"]["tokens"][:] == tokens


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("EU", ["tokens"]),
        ("EU B-ORG", ["tokens", "tags"]),
        ("EU x B-ORG", ["tokens", "column_2", "tags"]),
        ("EU NNP B-NP B-ORG", ["tokens", "pos_tags", "chunk_tags", "ner_tags"]),
        ("EU b c d e f g h i O", ["tokens", *(f"column_{number}" for number in range(2, 10)), "tags"]),
        ("1 cats cat NOUN NNS Number=Plur 0 root _ _", ["tokens", "pos_tags", "xpos_tags"]),
    ],
)
def test_conll_columns_are_named_by_their_number(load, line, names):
    assert load(train=("a.conll", line + "\n"))["train"].column_names == names


@pytest.mark.parametrize(
    ("name", "blank"),
    [("a.tsv", "\t"), *((name, blank) for name in ("a.conll", "a.bio.gz", "a.txt") for blank in "\t ")],
)
def test_column_names_rename_and_skip_conll_columns(tmp_path, name, blank):
    text = "1 B-PER Ann NNP\n2 O runs VBZ\n\n1 O It PRP\n".replace(" ", blank).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    options = {"files": {"train": tmp_path / name}, "cache_dir": str(tmp_path / "cache")}
    rows = load_splits(**options, column_names=["_", "ner_tags", "tokens", "_"])["train"]
    assert rows[:] == {"ner_tags": [["B-PER", "O"], ["O"]], "tokens": [["Ann", "runs"], ["It"]]}
    for names in (["tokens", "ner_tags"], ["_", "_", "_", "_"], ["_", "tags", "tags", "_"]):
        with pytest.raises(UserError, match=r"4 columns|has 4 cells"):
            load_splits(**options, column_names=names)


@pytest.mark.parametrize("name", ["a.tsv", "a.txt"])
def test_a_table_without_a_taggers_column_names_is_not_conll(tmp_path, name):
    (tmp_path / name).write_text("很好的电影\t1\n不好看\t0\n\n一般\t0\n", encoding="utf-8")
    rows = load_splits(files={"train": tmp_path / name}, column_names=["text", "label"], cache_dir=str(tmp_path / "c"))
    assert rows["train"]["text"][:] == ["很好的电影", "不好看", "一般"]


def test_conllu_skips_ranges_and_empty_nodes(load):
    words = [("1-2", "del", "_"), ("1", "de", "ADP"), ("2", "el", "DET"), ("2.1", "x", "VERB"), ("3", "mar", "NOUN")]
    lines = "".join(f"{i}\t{word}\t_\t{tag}\tX\t_\t_\t_\t_\t_\n" for i, word, tag in words)
    data = prepare_tagging(load(train=("es.conllu", "# newpar\n# text = del mar\n" + lines)))
    assert data.splits["train"][0]["tokens"] == ["de", "el", "mar"]
    assert data.label_list == ("ADP", "DET", "NOUN")


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
    assert set(load_splits(str(tmp_path), cache_dir=str(tmp_path / "cache"))) == {"train", "validation"}


def test_folder_names_are_not_patterns(tmp_path):
    path = tmp_path / "run[1]*" / "train.jsonl"
    path.parent.mkdir()
    path.write_text(jsonl(TAGGED))
    assert len(load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))["train"]) == 2


# Bad files


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", " \n\n ", "is empty"),
        ("a.json", "[]", "is empty"),
        ("a.csv", "text,label\n", "is empty"),
        ("a.csv", 'text\n" "\n', "blank rows"),
        ("a.conll", "# only = comments\n", "is empty"),
        ("a.xlsx", "x", "'.xlsx'"),
        ("noending", "x", ".csv"),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', "line 2"),
        ("a.json", '[{"text": "a"}, 3]', "row 2"),
        ("a.json", '[{"text": "a"}', "a.json"),
        ("a.jsonl", '"just a text"\n', "row 1"),
        ("a.csv", "text,label\na,1\nb,1,2\n", "line 3 has 3 cells"),
        ("a.csv", "text,label\na\n", "line 2 has 1 cells"),
        ("a.csv", 'text,label\n"a,1\n', "a.csv"),
        ("a.conll", "Anna B-PER\nlives\n", "line 2"),
        ("a.conll", "Anna B-PER\n O\n", "line 2"),
        ("a.conll", "Anna\tB-PER\n\tO\n", "line 2"),
        ("a.conll", "Anna\tB-PER\nran\t\n", "line 2"),
        ("a.txt", "A text.\nAnother text of six words.\n", "line 2"),
        ("a.parquet", "not parquet", "a.parquet"),
    ],
)
def test_a_bad_file_is_named_with_the_line(load, name, content, words):
    with pytest.raises(UserError) as caught:
        load(train=(name, content))
    assert name in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.conll.gz"])
def test_a_broken_gzip_file_is_named(tmp_path, name):
    whole = gzip.compress(random.Random(0).randbytes(50_000).hex().encode())
    for content in (b"\x1f\x8bgarbage", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match=f"{name}.*gzip"):
            load_splits(files={"train": tmp_path / name}, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.conll", "a.jsonl.gz"])
@pytest.mark.parametrize("encoding", ["CP1252", "UTF-16"])
def test_a_file_that_is_not_utf8_is_named_with_the_line(tmp_path, name, encoding):
    content = "text,label\ncafé,1\n".encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    with pytest.raises(UserError, match=rf"{name}, line {1 + (encoding == 'CP1252')} is not UTF-8.*iconv"):
        load_splits(files={"train": tmp_path / name}, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize("encoding", ["latin1", "GB18030"])
def test_json_that_is_valid_but_for_its_encoding_is_refused(tmp_path, encoding):
    text = {"latin1": "café noir", "GB18030": "好看"}[encoding]
    path, rows = tmp_path / "a.jsonl", '{"text": "fine"}\n' * 1000
    for number, content in ((1, ""), (1001, rows)):
        path.write_bytes((content + json.dumps({"text": text}, ensure_ascii=False)).encode(encoding))
        with pytest.raises(UserError, match=rf"a\.jsonl, line {number} is not UTF-8"):
            load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))


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
