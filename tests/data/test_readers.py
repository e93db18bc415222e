"""Data files and names of data sets -> splits; every error names the file and the line."""

import gzip
import json
import random

import datasets
import pytest
from datasets import Dataset
from script_samples import jsonl

from modeling_star.data.readers import has_sentences
from modeling_star.data.splits import load_splits, prepare_classification, prepare_tagging
from modeling_star.errors import UserError


TAGGED = [
    {"tokens": ["Anna", "lives", "in", "Oslo", "."], "ner_tags": ["B-PER", "O", "O", "B-LOC", "O"]},
    {"tokens": ["#", "New", "York", "\u3000", "NA"], "ner_tags": ["O", "B-LOC", "I-LOC", "O", "O"]},
]


# Formats


@pytest.mark.parametrize("packed", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("train.jsonl", jsonl(TAGGED)),
        ("train.v2.JSONL", jsonl(TAGGED)),
        ("train.json", json.dumps(TAGGED, indent=1)),
        ("train.json", json.dumps({"version": 1, "data": TAGGED})),
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


def test_splits_may_have_different_formats_and_no_labels(load):
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
def test_csv_cells_are_the_text_that_they_are(load, name):
    text = 'text,label\nNA,1\n"null, ""x""\ny",0\n007,1\n1.50,0\n,1\n'
    assert load(train=(name, text))["train"]["text"][:] == ["NA", 'null, "x"\ny', "007", "1.50", ""]


def test_tsv_quotes_are_text_unless_they_enclose_whole_fields(load):
    plain = load(train=("a.tsv", 'text\tlabel\n"Hi, he said\t1\n"No" is no\t0\n'))
    assert plain["train"]["text"][:] == ['"Hi, he said', '"No" is no']
    quoted = load(train=("b.tsv", 'text\tlabel\n"He said ""hi"""\t1\n'))
    assert quoted["train"]["text"][:] == ['He said "hi"']
    several = 'text\tlabel\n"one\ntwo"\t1\n"plain ""q"" x"\t0\nc\t1\n'  # as pandas writes a text of two lines
    assert load(train=("c.tsv", several))["train"]["text"][:] == ["one\ntwo", 'plain "q" x', "c"]
    alone = load(train=("d.tsv", 'text\n"one\ntwo"\nc\n'))
    assert alone["train"]["text"][:] == ["one\ntwo", "c"]
    # Two sentences of a quotation: the marks are theirs.
    spoken = load(train=("e.tsv", 'text\tlabel\n"Hi\t1\nthere"\t0\n'))
    assert spoken["train"]["text"][:] == ['"Hi', 'there"']


@pytest.mark.parametrize(("name", "gap"), [("a.csv", ","), ("a.tsv", "\t"), ("a.txt", "\t"), ("a.txt.gz", "\t")])
def test_columns_of_files_without_a_header_are_named(tmp_path, name, gap):
    text = f'sport{gap}"a" goal\nmoney{gap}NA\n' if gap == "\t" else 'sport,"a ""goal"""\nmoney,NA\n'
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    options = {"cache_dir": str(tmp_path / "cache"), "column_names": ["label", "text"]}
    rows = load_splits(files={"train": path}, **options)["train"]
    assert rows["label"][:] == ["sport", "money"]
    assert rows["text"][:] == ['"a" goal' if gap == "\t" else 'a "goal"', "NA"]
    with pytest.raises(UserError, match="line 1 has 2 cells, but --column_names names 3 columns"):
        load_splits(files={"train": path}, **options | {"column_names": ["label", "text", "more"]})


def test_the_index_that_pandas_writes_is_a_column_without_a_name(load):
    rows = load(train=("a.csv", ",text,label\n0,good,1\n1,bad,0\n"))["train"]
    assert rows["text"][:] == ["good", "bad"]
    assert rows.column_names == ["Unnamed: 0", "text", "label"]


def test_a_header_is_no_row_of_a_file_whose_columns_are_named(tmp_path):
    (tmp_path / "a.csv").write_text("Text,label \nfine,1\n")
    with pytest.raises(UserError, match=r"a\.csv names its columns in its first line already"):
        load_splits(files={"train": tmp_path / "a.csv"}, column_names=["label", "text"])


def test_column_names_are_for_files_without_names(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "word"}\n')
    with pytest.raises(UserError, match=r"a\.jsonl is json, whose columns have their names"):
        load_splits(files={"train": tmp_path / "a.jsonl"}, column_names=["tokens", "tags"])
    (tmp_path / "a.csv").write_text("a,b\n")
    with pytest.raises(UserError, match="--column_names names the column 'text' twice"):
        load_splits(files={"train": tmp_path / "a.csv"}, column_names=["text", "text"])


def test_byte_order_mark_is_no_part_of_a_column_name(load):
    assert load(train=("a.csv", "\ufefftext,label\na,1\n"))["train"].column_names == ["text", "label"]
    assert load(train=("a.conll", "\ufeffAnna B-PER\n"))["train"]["tokens"][0] == ["Anna"]


def test_json_texts_that_look_like_dates_stay_texts(load):
    rows = [{"text": "2020-01-01", "label": "2021-05-05"}, {"text": "2020-01-02", "label": "2021-05-06"}]
    assert load(train=("a.jsonl", jsonl(rows)))["train"].to_list() == rows


def test_json_that_turns_from_whole_numbers_to_fractions_late_is_read(load):
    # datasets fixes the types at its first ten megabytes.
    rows = [{"text": "x" * 20000, "label": 1}] * 600 + [{"text": "y", "label": 1.5}]
    data = prepare_classification(load(train=("a.jsonl", jsonl(rows))))
    assert data.problem_type == "regression"
    assert data.splits["train"]["label"][-1] == 1.5


def test_conll_comments_hashes_and_odd_blanks(load):
    text = "# sent_id = 1\n# text = # x\n#\tO\nNew York\tB-LOC\n\u3000\tO\n\n# newdoc\n# a comment\n#tag\tO\n\n\n\n"
    assert load(train=("a.bio", text))["train"]["tokens"][:] == [["#", "New York", "\u3000"], ["#tag"]]
    spaced = "# id = 1\n# O\nOslo  B-LOC\n\n# O\n"
    assert load(train=("a.iob", spaced))["train"]["tokens"][:] == [["#", "Oslo"], ["#"]]
    numbered = "# id 5239d808-f300\tdomain=en\nrobert _ _ B-PER\nran _ _ O\n"
    assert load(train=("a.conll", numbered))["train"]["tokens"][:] == [["robert", "ran"]]


def test_a_remark_of_two_words_is_no_token_of_entities(load, caplog):
    text = "# WNUT17\nAnn B-PER\n# O\n\n# O\nOslo B-LOC\n\n# page\nIt O\n"
    rows = load(train=("a.conll", text))["train"]
    assert rows["tokens"][:] == [["Ann", "#"], ["#", "Oslo"], ["It"]]
    assert "2 lines are read as comments, first line 1: '# WNUT17'" in caplog.text
    # The Penn Treebank has a tag of its own for it.
    rows = load(train=("b.conll", "We NN\n\n# #\n10 CD\n\n# SYM\nme PRP\n"))["train"]
    assert rows["tokens"][:] == [["We"], ["#", "10"], ["#", "me"]]


def test_a_hashtag_that_begins_as_a_comment_does_is_a_word(load):
    text = "#newparents\tO\nsing\tO\n\n#id\tB-MISC\n#newdocs\tO\n"
    assert load(train=("a.conll", text))["train"]["tokens"][:] == [["#newparents", "sing"], ["#id", "#newdocs"]]


def test_a_comment_of_as_many_parts_as_a_line_has_columns_is_no_token(load):
    text = "# sent_id = 1\nEU NNP B-NP B-ORG\n\n# text = x\nBut CC O O\n"
    assert load(train=("a.conll", text))["train"]["tokens"][:] == [["EU"], ["But"]]


def test_the_mark_of_a_document_has_any_number_of_columns(load):
    text = "-DOCSTART-\n\n# page one\nAnn B-PER\n-DOCSTART- -X-\n# two\nIt O\n"
    assert load(train=("a.conll", text))["train"]["tokens"][:] == [["Ann"], ["It"]]


def test_a_sentence_may_begin_with_a_number(load):
    rows = load(train=("a.conll", "3 O\nmen O\n"))["train"]
    assert rows[0] == {"tokens": ["3", "men"], "tags": ["O", "O"]}


def test_ten_columns_without_numbers_are_named_as_any_others(load):
    columns = load(train=("a.conll", "Ann b c d e f g h i O\n"))["train"].column_names
    assert columns == ["tokens", *(f"column_{number}" for number in range(2, 10)), "tags"]


def test_within_a_sentence_nothing_is_a_comment(load):
    rows = load(train=("a.conll", "Ann\tB-PER\n# a = b\tO\n"))["train"]
    assert rows["tokens"][:] == [["Ann", "# a = b"]]


def test_a_word_of_a_file_without_tags_may_be_an_ideographic_blank(load):
    assert load(train=("a.txt", "EU\n\u3000\nBut\n"))["train"]["tokens"][:] == [["EU", "\u3000", "But"]]


def test_a_tag_without_its_word_is_named(load):
    with pytest.raises(UserError, match=r"line 2 has 1 columns.*' O'"):
        load(train=("a.conll", "Ann B-PER\n O\n"))


def test_a_line_that_ends_without_its_tag_is_named(load):
    with pytest.raises(UserError, match=r"line 2 ends in a tab.*'ran\\t'.*O for none"):
        load(train=("a.conll", "Ann\tB-PER\nran\t\n"))


def test_a_blank_may_be_a_word_and_an_ideographic_one_an_empty_line(load):
    lines = "李 B-PER\n  O\n娜 B-PER\n\u3000\n\u3000 O\n好 O\n \n再 O\n"
    rows = load(train=("a.conll", lines))["train"]
    assert rows["tokens"][:] == [["李", " ", "娜"], ["\u3000", "好"], ["再"]]
    assert rows["tags"][0] == ["B-PER", "O", "B-PER"]


def test_conll_columns_by_their_number(load):
    four = load(train=("a.txt", "EU NNP B-NP B-ORG\n"))["train"]
    assert four[0] == {"tokens": ["EU"], "pos_tags": ["NNP"], "chunk_tags": ["B-NP"], "ner_tags": ["B-ORG"]}
    assert load(train=("a.txt", "EU x B-ORG\n"))["train"].column_names == ["tokens", "column_2", "tags"]
    assert load(train=("a.txt", "EU\n\nBut\n"))["train"]["tokens"][:] == [["EU"], ["But"]]


@pytest.mark.parametrize(
    ("name", "blank"),
    [("a.tsv", "\t"), *((name, blank) for name in ("a.conll", "a.bio.gz", "a.txt") for blank in "\t ")],
)
def test_conll_columns_have_the_names_that_are_given(tmp_path, name, blank):
    text = "1 B-PER Ann NNP\n2 O runs VBZ\n\n1 O It PRP\n".replace(" ", blank).encode()
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    names = ["_", "ner_tags", "tokens", "_"]
    rows = load_splits(files={"train": tmp_path / name}, column_names=names, cache_dir=str(tmp_path / "c"))["train"]
    assert rows[:] == {"ner_tags": [["B-PER", "O"], ["O"]], "tokens": [["Ann", "runs"], ["It"]]}
    with pytest.raises(
        UserError, match="2 columns|names 2" if name.endswith((".txt", ".tsv")) else "4 columns.*names 2"
    ):
        load_splits(files={"train": tmp_path / name}, column_names=["tokens", "ner_tags"])


@pytest.mark.parametrize("name", ["a.tsv", "a.txt"])
def test_chinese_texts_and_empty_lines_are_no_conll(tmp_path, name):
    (tmp_path / name).write_text("很好的电影\t1\n不好看\t0\n\n一般\t0\n", encoding="utf-8")
    rows = load_splits(files={"train": tmp_path / name}, column_names=["text", "label"], cache_dir=str(tmp_path / "c"))
    assert rows["train"]["text"][:] == ["很好的电影", "不好看", "一般"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["Ann B-PER", "runs O", "", "It O"], True),
        (["Ann B-PER", "runs O"], False),
        (["Ann B-PER", "", "runs O"], False),
        (["Ann~runs B-PER~O", "It~runs O~O", "", "It~rains O~O"], False),
        (["Ann B-PER x", "runs O", "", "It O"], False),
    ],
    ids=["words and sentences", "no empty line", "none without", "a sentence a line", "another width"],
)
def test_words_a_line_and_empty_lines_between_sentences_tell_conll(tmp_path, lines, told):
    (tmp_path / "a.tsv").write_text("\n".join(lines).replace(" ", "\t").replace("~", " "))
    assert has_sentences(tmp_path / "a.tsv", ["tokens", "tags"]) == told


def test_comments_of_conll_by_another_ending_are_passed_over(tmp_path):
    text = "#\tn-tv.de [2009-10-17]\n1\tAnn\tB-PER\tO\n2\truns\tO\tO\n\n#\tn-tv.de [2009]\n1\tIt\tO\tO\n"
    (tmp_path / "a.tsv").write_text(text, encoding="utf-8")
    names = ["_", "tokens", "ner_tags", "_"]
    rows = load_splits(files={"train": tmp_path / "a.tsv"}, column_names=names, cache_dir=str(tmp_path / "c"))["train"]
    assert rows["tokens"][:] == [["Ann", "runs"], ["It"]]


@pytest.mark.parametrize("names", [["_", "_"], ["tags", "tags"]])
def test_columns_of_conll_have_a_name_each(tmp_path, names):
    (tmp_path / "a.conll").write_text("Ann B-PER\n")
    with pytest.raises(UserError, match="names no column, or one twice"):
        load_splits(files={"train": tmp_path / "a.conll"}, column_names=names)


def test_conllu_skips_ranges_and_empty_nodes(load):
    words = [("1-2", "del", "_"), ("1", "de", "ADP"), ("2", "el", "DET"), ("2.1", "x", "VERB"), ("3", "mar", "NOUN")]
    lines = "".join(f"{i}\t{word}\t_\t{tag}\tX\t_\t_\t_\t_\t_\n" for i, word, tag in words)
    data = prepare_tagging(load(train=("es.conllu", "# newpar\n# text = del mar\n" + lines)))
    assert data.splits["train"][0]["tokens"] == ["de", "el", "mar"]
    assert data.label_list == ("ADP", "DET", "NOUN")


def test_conllu_has_tags_of_its_language_beside_the_universal_ones(load):
    rows = load(train=("en.conllu", "1\tcats\tcat\tNOUN\tNNS\tNumber=Plur\t0\troot\t_\t_\n"))["train"]
    assert rows[0] == {"tokens": ["cats"], "pos_tags": ["NOUN"], "xpos_tags": ["NNS"]}


def test_any_sentences_survive_a_round_trip_through_conll(load):
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
        ("a.jsonl", "", ["a.jsonl", "is empty"]),
        ("a.jsonl", " \n\n ", ["a.jsonl", "is empty"]),
        ("a.json", "[]", ["a.json", "no rows"]),
        ("a.csv", "text,label\n", ["a.csv", "no rows"]),
        ("a.conll", "# only = comments\n", ["a.conll", "no rows"]),
        ("a.xlsx", "x", ["a.xlsx", "'.xlsx'", ".jsonl", ".gz", "a.jsonl"]),
        ("noending", "x", ["noending", "'no suffix'", ".csv"]),
        ("a.jsonl", '{"text": "a"}\n{"text": \n', ["a.jsonl", "line 2", "not valid json", "one object per line"]),
        ("a.json", '[{"text": "a"}, 3]', ["a.json", "element 2", "'3'", "object"]),
        ("a.json", '[{"text": "a"}', ["a.json", "not valid json"]),
        ("a.jsonl", '"just a text"\n', ["a.jsonl", "line 1", "object"]),
        ("a.csv", "text,label\na,1\nb,1,2\n", ["a.csv", "line 3", "3 cells", "2", "quotation marks"]),
        ("a.csv", "text,label\na\n", ["a.csv", "line 2", "1 cells"]),
        ("a.csv", 'text,label\n"a,1\n', ["a.csv", "could not be read as csv"]),
        ("a.csv", "text,text\na,1\n", ["a.csv", "'text' twice"]),
        ("a.conll", "Anna B-PER\nlives\n", ["a.conll", "line 2", "1 columns", "line 1 has 2", "'lives'"]),
        ("a.txt", "A text.\nAnother text of six words.\n", ["a.txt", "line 2", ".jsonl or .csv", "'text'"]),
        ("a.conll", "Anna\tB-PER\n\tO\n", ["a.conll", "line 2"]),
        ("a.parquet", "not parquet", ["a.parquet", "parquet"]),
    ],
)
def test_a_bad_file_is_named_with_the_line(load, name, content, words):
    with pytest.raises(UserError) as caught:
        load(train=(name, content))
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.conll.gz"])
def test_a_broken_gzip_file_is_named(tmp_path, name):
    whole = gzip.compress(random.Random(0).randbytes(50_000).hex().encode())
    for content in (b"\x1f\x8bgarbage", whole[: len(whole) // 2]):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="broken or incomplete gzip"):
            load_splits(files={"train": tmp_path / name}, cache_dir=str(tmp_path / "cache"))


def test_a_folder_in_the_place_of_a_file_is_answered_with_a_file_in_it_or_how_to_write_one(tmp_path):
    (tmp_path / "pos").mkdir()
    (tmp_path / "README.txt").touch()
    with pytest.raises(UserError, match=r"is a folder.*a folder for each class.*in a \.jsonl"):
        load_splits(files={"train": tmp_path})
    (tmp_path / "TRAIN.CSV").touch()
    with pytest.raises(UserError, match=r"is a folder.*Name a file in it, e\.g\. \S+TRAIN\.CSV"):
        load_splits(files={"train": tmp_path})


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.conll"])
@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("text,label\ncafé,1\nà propos,2\n", "CP1252"),
        ("text,label\n“fine” – 5 €,1\n", "CP1252"),
        ("评论,标签\n这家宾馆 OK,1\n", "GB18030"),
        ("李 B\n娜 I\n", "GB18030"),
        ("text,label\ncafé,1\n", "UTF-16"),
    ],
)
def test_a_file_that_is_not_utf8_is_named(tmp_path, name, text, encoding):
    (tmp_path / name).write_bytes(text.encode(encoding))
    with pytest.raises(UserError, match=rf"not UTF-8.*iconv -f {encoding} -t UTF-8 \S+ > a_utf8\.\w+"):
        load_splits(files={"train": tmp_path / name}, cache_dir=str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('text;label\n"a; b, c";x\nd;y\n', None),
        ("text\tlabel\na; b, c\tx\nd\ty\n", None),
        ("d;y\ne;x\n", ["text", "label"]),
    ],
)
def test_a_csv_whose_first_line_has_no_comma_may_be_parted_by_others(tmp_path, text, names):
    (tmp_path / "a.csv").write_text(text)
    splits = load_splits(files={"train": tmp_path / "a.csv"}, cache_dir=str(tmp_path / "cache"), column_names=names)
    expected = [("d", "y"), ("e", "x")] if names else [("a; b, c", "x"), ("d", "y")]
    assert list(zip(splits["train"]["text"][:], splits["train"]["label"][:], strict=True)) == expected


def test_a_csv_of_one_column_stays_one(tmp_path):
    (tmp_path / "a.csv").write_text("text\na; b\nc\td\n")
    splits = load_splits(files={"train": tmp_path / "a.csv"}, cache_dir=str(tmp_path / "cache"))
    assert splits["train"]["text"][:] == ["a; b", "c\td"]


def test_an_absent_file_or_a_folder_is_a_file_error(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*gone\.jsonl.*--train_file"):
        load_splits(files={"train": tmp_path / "gone.jsonl"})
    with pytest.raises(UserError, match="is a folder"):
        load_splits(files={"train": tmp_path})


def test_naming_nothing_or_both_says_what_to_write(tmp_path):
    with pytest.raises(UserError, match="--dataset_name NAME, or --train_file"):
        load_splits(files={"train": None})
    with pytest.raises(UserError, match=r"Both the data set 'glue'.*either --dataset_name or --train_file"):
        load_splits("glue", files={"train": tmp_path / "x.jsonl"})


def test_an_unreachable_data_set_says_how_to_use_files(monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"nyu-mll/glue \(cola\).*--train_file"):
        load_splits("nyu-mll/glue", "cola")


@pytest.mark.parametrize("text", ["cut \ud83d", "\udc4d cut"], ids=ascii)
def test_half_a_character_in_json_is_told_with_its_line(load, text):
    whole = {"text": "\U0001f44d", "label": "good"}
    assert load(train=("a.jsonl", '{"text": "\\ud83d\\udc4d", "label": "good"}\n'))["train"][0] == whole
    with pytest.raises(UserError, match=r"b\.jsonl, line 2 has half of a character"):
        load(train=("b.jsonl", "".join(json.dumps({**whole, "text": one}) + "\n" for one in ("whole", text))))


def test_mixed_types_in_json_name_both_rows(load):
    rows = [{"text": "x" * 20000, "label": 7}] * 600 + [{"text": "y", "label": "good"}]
    with pytest.raises(UserError, match=r"mixes types in column 'label': row 1 has 7 .*row 601 has 'good'"):
        load(train=("a.jsonl", jsonl(rows)))
