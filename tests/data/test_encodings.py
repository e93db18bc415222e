"""Files in other encodings are refused with the line that converts them."""

import gzip
import io
import json
import re
import subprocess
from pathlib import Path

import pytest

from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.readers import read_file
from modeling_star.errors import UserError


TEXTS = {
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
        read_file(path, str(path.parent / "cache"), **options)
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
    text = "text,label\n" + TEXTS[language].replace("\n", ",1\n")
    path = Path("my file.csv")
    path.write_bytes(text.encode(encoding))
    subprocess.run(advice_of(path), shell=True, check=True)
    assert Path("my file_utf8.csv").read_text(encoding="utf-8-sig") == text


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.json", "a.conll", "a.tsv.gz"])
def test_every_format_is_converted(tmp_path, monkeypatch, name, encoding):
    monkeypatch.chdir(tmp_path)
    lines = TEXTS["Spanish"].splitlines()
    objects = [json.dumps({"text": line}, ensure_ascii=False) for line in lines]
    text = {
        ".jsonl": "\n".join(objects),
        ".json": f"[{','.join(objects)}]\n",
        ".conll": "".join(f"{word} O\n" for line in lines for word in line.split()),
    }.get(Path(name).suffix, TEXTS["Spanish"])
    content = text.encode(encoding)
    Path(name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    options = {"sample_by": "line"} if name == "a.txt" else {}
    subprocess.run(advice_of(Path(name), **options), shell=True, check=True)
    converted = Path(name.removesuffix(".gz"))
    assert Path(f"a_utf8{converted.suffix}").read_text(encoding="utf-8-sig") == text


@pytest.mark.parametrize("broken", [b"cut \xed\xa0\xbd emoji", b"one \xff byte"])
def test_a_few_bytes_among_utf8_are_omitted(tmp_path, monkeypatch, broken):
    monkeypatch.chdir(tmp_path)
    path = Path("a.txt")
    path.write_bytes("día\n".encode() * 9 + broken + b"\n")
    with pytest.raises(UserError, match="line 10") as caught:
        list(read_texts(path))
    subprocess.run(re.search("`(.*)`", str(caught.value))[1], shell=True, check=False)
    assert len(list(read_texts("a_utf8.txt"))) == 10


@pytest.mark.parametrize("name", ["train.arrow", "image.txt", "train.csv"])
def test_binary_data_have_no_encoding(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff\xfe\xaa\n" * 20)
    with pytest.raises(UserError, match="binary"):
        list(read_texts(tmp_path / name))


@pytest.mark.parametrize(("encoding", "name"), [("latin-1", "WINDOWS-1252"), ("utf-16-le", "UTF-16LE")])
def test_standard_input_is_refused_with_its_encoding(monkeypatch, encoding, name):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXTS["Spanish"].encode(encoding))))
    with pytest.raises(UserError, match=f"`iconv -f {name} -t UTF-8`"):
        list(read_texts("-"))
