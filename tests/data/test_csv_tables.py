"""csv and tsv files as programs write them: separators, escapes, line ends; the same in training and prediction."""

from pathlib import Path

import pytest

from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.readers import read_file
from modeling_star.errors import UserError


def both(path: Path, content: str, **options) -> list[str]:
    """The texts of a file, which training and prediction read alike."""
    path.write_bytes(content.encode())
    rows = read_file(path, str(path.parent / "cache"), **options)
    predicted = [text for _, text in read_texts(path, **options)]
    assert rows["text"][:] == predicted
    return predicted


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("a.csv", "id;text;label\n1;a good, long film;pos\n2;dull;neg\n", ["a good, long film", "dull"]),
        ("a.csv", 'text;label\n"a; b";pos\n"say ""x""";neg\n', ["a; b", 'say "x"']),
        ("a.csv", "text;score\ngut;0,5\nschlecht;1,5\n", ["gut", "schlecht"]),
        ("a.csv", 'id\ttext\tlabel\n1\t"Fine", she said\tpos\n', ['"Fine", she said']),
        ("a.csv", "id|text\n1|good, fine\n", ["good, fine"]),
        ("a.tsv", "id,text\n1,good\n", ["good"]),
        ("a.tsv", "id;text\n1;good\n", ["good"]),
        ("a.csv", "\ufeffsep=;\r\ntext;label\r\ngood;pos\r\n", ["good"]),
        ("a.csv", "text\na; b\nc, d\n".replace(",", ""), ["a; b", "c d"]),
        ("a.csv", "text,label\na; b,1\n", ["a; b"]),
        ("a.csv", 'text,label\n"two\r\nlines",1\r\nc,0\r\n', ["two\r\nlines", "c"]),
        ("a.csv", "text,label\rgood,1\rbad,0\r", ["good", "bad"]),
        ("a.csv", 'text,label\n"she said \\"fine\\" twice",pos\nplain,neg\n', ['she said "fine" twice', "plain"]),
        ("a.csv", 'text;label\n"a \\"b\\"; c";pos\n"d \\\\";neg\n', ['a "b"; c', "d \\"]),
        ("a.csv", 'text,label\nC:\\temp,1\n"a \\ ""b""",0\n', ["C:\\temp", 'a \\ "b"']),
        ("a.csv", 'text,label,text\n"a",1,b\n', ["a"]),
        ("a.csv", "text\na\n  \n\nb\n", ["a", "b"]),
    ],
)
def test_the_dialect_of_a_table_is_seen_in_its_lines(tmp_path, name, content, texts):
    assert both(tmp_path / name, content) == texts


def test_column_names_help_to_see_the_separator(tmp_path):
    content = "gut, sehr;0,5\nschlecht;1,5\n"
    assert both(tmp_path / "a.csv", content, column_names=["text", "score"]) == ["gut, sehr", "schlecht"]


@pytest.mark.parametrize(
    ("content", "line"),
    [('text,label\nfine,1\n"she "said" it",0\n', 3), ("text;label\ngood;1\nbad;0;1\n", 3), ('text,label\n"a,1\n', 2)],
)
def test_a_broken_line_is_named(tmp_path, content, line):
    with pytest.raises(UserError, match=rf"a\.csv, line {line}\b"):
        both(tmp_path / "a.csv", content)
