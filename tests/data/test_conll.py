"""CoNLL files whose columns are known by their values, their header line or their names."""

import gzip
import logging
from pathlib import Path

import pytest

from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import prepare_tagging
from modeling_star.errors import UserError


TWO = [["Ann/B-PER", "ran/O"], ["Oslo/B-LOC", "is/O"]]

LAYOUTS = {
    "Universal NER": "# sent_id = 1\n1|Ann|B-PER|-|x\n2|ran|O|-|x\n\n# sent_id = 2\n1|Oslo|B-LOC|-|x\n2|is|O|-|x\n",
    "GermEval": "#|http://a.org|[2020]\n1|Ann|B-PER|O\n2|ran|O|O\n\n#|http://b.org|[2020]\n1|Oslo|B-LOC|B-ORG\n2|is|O|O\n",
    "WikiNEuRal": "0|Ann|B-PER\n1|ran|O\n\n0|Oslo|B-LOC\n1|is|O\n",
    "numbers of the whole file": "1|Ann|B-PER\n2|ran|O\n\n3|Oslo|B-LOC\n4|is|O\n",
    "numbers without empty lines": "1|Ann|B-PER\n2|ran|O\n1|Oslo|B-LOC\n2|is|O\n",
    "DOCSTART below the numbers": "0|-DOCSTART-|O\n\n1|Ann|B-PER\n2|ran|O\n\n0|-DOCSTART-|O\n\n1|Oslo|B-LOC\n2|is|O\n",
    "CoNLL-U Plus": (
        "# global.columns = ID FORM UPOS X:NE\n1|Ann|PROPN|B-PER\n2|ran|VERB|O\n\n1|Oslo|PROPN|B-LOC\n2|is|AUX|O\n"
    ),
    "tags and probabilities": "Ann|B-PER|0.98\nran|O|0.71\n\nOslo|B-LOC|0.5\nis|O|0.9\n",
    "tags and predictions": "Ann|B-PER|O\nran|O|O\n\nOslo|B-LOC|B-LOC\nis|O|B-LOC\n",
    "a header": "token|label\nAnn|B-PER\nran|O\n\nOslo|B-LOC\nis|O\n",
    "a header above an empty line": "TOKEN|TAG\n\nAnn|B-PER\nran|O\n\nOslo|B-LOC\nis|O\n",
    "a header with a hash": "#token|label\nAnn|B-PER\nran|O\n\nOslo|B-LOC\nis|O\n",
    "a header in German": "Wort|Etikett\nAnn|B-PER\nran|O\n\nOslo|B-LOC\nis|O\n",
    "a header of numbered words": "id|token|lemma|ner\n1|Ann|Ann|B-PER\n2|ran|run|O\n\n1|Oslo|Oslo|B-LOC\n2|is|be|O\n",
    "a header with the tags first": "tag|word\nB-PER|Ann\nO|ran\n\nB-LOC|Oslo\nO|is\n",
    "HIPE": (
        "TOKEN|NE-COARSE-LIT|NE-COARSE-METO|MISC\n# document_id = x\n# segment = y\nAnn|B-PER|O|_\n"
        "ran|O|O|EndOfSentence\n# segment = z\nOslo|B-LOC|O|NoSpaceAfter\nis|O|O|EndOfSentence\n"
    ),
}


NO_WORDS_FIRST = [
    "1-1|Ann|B-PER\n1-2|ran|O\n\n2-1|Oslo|B-LOC\n2-2|is|O\n",
    "news_a|Ann|B-PER\nnews_a|ran|O\n\nnews_b|Oslo|B-LOC\nnews_b|is|O\n",
    "s1|Ann|B-PER\ns1|ran|O\ns2|Oslo|B-LOC\ns2|is|O\n",
    "NNP|Ann|B-PER\nVBD|ran|O\n\nNNP|Oslo|B-LOC\nVBZ|is|O\n",
    "B-PER|Ann\nO|ran\n\nB-LOC|Oslo\nO|is\n",
    "B-PER|B-NP|NNP|Ann\nO|B-VP|VBD|ran\n\nB-LOC|B-NP|NNP|Oslo\nO|B-VP|VBZ|is\n",
]


def write(folder: Path, name: str, text: str, separator: str = "\t") -> Path:
    path = folder / name
    path.write_text(text.replace("|", separator), encoding="utf-8")
    return path


def tagged(path: Path, column_names: list[str] | None = None) -> list[list[str]]:
    """The words of each sentence with their labels."""
    splits = load_splits(files={"train": path}, column_names=column_names, cache_dir=str(path.parent / "cache"))
    data = prepare_tagging(splits)
    rows = data.splits["train"]
    pairs = zip(rows[data.text_column][:], rows[data.label_column][:], strict=True)
    return [[f"{word}/{data.id2label[tag]}" for word, tag in zip(*pair, strict=True)] for pair in pairs]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_words_and_tags_are_known_by_their_values_and_names(tmp_path: Path, layout: str) -> None:
    path = write(tmp_path, "train.conll", LAYOUTS[layout])
    assert tagged(path) == TWO
    assert [text for _, text in read_texts(path)] == [["Ann", "ran"], ["Oslo", "is"]]


@pytest.mark.parametrize("text", NO_WORDS_FIRST)
def test_a_file_without_words_first_is_refused_with_names_to_write(tmp_path: Path, text: str) -> None:
    with pytest.raises(UserError, match="--column_names"):
        tagged(write(tmp_path, "train.conll", text))


@pytest.mark.parametrize("layout", ["GermEval", "HIPE", "tags and predictions"])
def test_the_line_that_is_shown_chooses_other_columns(
    tmp_path: Path, layout: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = write(tmp_path, "train.tsv", LAYOUTS[layout])
    with caplog.at_level(logging.INFO):
        assert tagged(path) == TWO
    names = [part.split("`")[0].split(",") for part in caplog.text.split("--column_names ")[1:3]]
    assert tagged(path, names[0]) == TWO
    assert [[word.split("/")[0] for word in words] for words in tagged(path, names[1])] == [
        ["Ann", "ran"],
        ["Oslo", "is"],
    ]
    assert tagged(path, names[1]) != TWO


@pytest.mark.parametrize("name", ["train.tsv", "train.txt", "train.bio", "train.iob2", "train.conllu"])
@pytest.mark.parametrize("layout", ["Universal NER", "a header", "a header of numbered words"])
def test_the_layout_does_not_depend_on_the_ending(tmp_path: Path, name: str, layout: str) -> None:
    path = write(tmp_path, name, LAYOUTS[layout])
    assert tagged(path) == TWO
    assert [text for _, text in read_texts(path)] == [["Ann", "ran"], ["Oslo", "is"]]


@pytest.mark.parametrize("name", ["train.tsv", "train.conll", "train.txt", "train.csv"])
def test_a_header_line_is_skipped_though_the_columns_are_named(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, LAYOUTS["a header"], "," if name.endswith("csv") else "\t")
    assert tagged(path, ["tokens", "ner_tags"]) == TWO


@pytest.mark.parametrize("separator", [",", ";"])
@pytest.mark.parametrize("empty", ["", "|"])
def test_an_empty_line_of_a_csv_ends_a_sentence(tmp_path: Path, separator: str, empty: str) -> None:
    text = f'word|pos|tag\nAnn|NNP|B-PER\n"{separator}"|SYM|O\n{empty}\nOslo|NNP|B-LOC\n'
    assert tagged(write(tmp_path, "train.csv", text, separator)) == [["Ann/B-PER", f"{separator}/O"], ["Oslo/B-LOC"]]


def test_a_text_with_an_empty_line_in_a_table_is_no_sentence(tmp_path: Path) -> None:
    path = write(tmp_path, "train.csv", 'text,label\n"a fine film\n\nreally",pos\nbad,neg\n')
    rows = load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))["train"]
    assert rows["text"][:] == ["a fine film\n\nreally", "bad"]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Zinc|B\nand|O\n\nfolic|B\nacid|I\n", [["Zinc/B", "and/O"], ["folic/B", "acid/I"]]),  # BioBERT
        ("今|B\n天|E\n\n好|S\n啊|S\n", [["今/B", "天/E"], ["好/S", "啊/S"]]),
        ("Ann|PROPN\nran|VERB\n\nIt|PRON\nis|AUX\n", [["Ann/PROPN", "ran/VERB"], ["It/PRON", "is/AUX"]]),
        ("1|Ann|NNP\n2|ran|VBD\n\n1|It|PRP\n2|is|VBZ\n", [["Ann/NNP", "ran/VBD"], ["It/PRP", "is/VBZ"]]),
        ("New York|B-LOC\nis|O\n\nAnn|B-PER\n", [["New York/B-LOC", "is/O"], ["Ann/B-PER"]]),
    ],
)
@pytest.mark.parametrize("name", ["train.tsv", "train.txt", "train.conll"])
def test_a_table_of_words_with_known_tags_needs_no_header_line(
    tmp_path: Path, name: str, text: str, sentences: list[list[str]]
) -> None:
    path = write(tmp_path, name, text)
    assert tagged(path) == sentences
    assert [" ".join(words) for _, words in read_texts(path)] == [
        " ".join(word.split("/")[0] for word in sentence) for sentence in sentences
    ]


@pytest.mark.parametrize("mark", ["/", "_", "|"])
def test_words_with_their_tags_in_one_line_are_no_columns(tmp_path: Path, mark: str) -> None:
    path = tmp_path / "train.txt"
    path.write_text(f"Ann{mark}NNP ran{mark}VBD\nIt{mark}PRP is{mark}VBZ\n", encoding="utf-8")
    with pytest.raises(UserError, match="one word per line"):
        tagged(path)


FOUR = [["Ann/B-PER", "ran/O"], ["#x/B-ORG", "won/O"], ["#/O", "5/O"], ["Oslo/B-LOC", "is/O"]]
WORDS = [[pair.rsplit("/", 1)[0] for pair in sentence] for sentence in FOUR]

CERTAIN = {
    "comments as wide as a row": ("{gap}## note|desk{gap}", "{word}|{tag}"),
    "comments of one sign": ("{gap}#note|desk a, b : c{gap}", "{word}|{tag}"),
    "several comments": ("{gap}# a|b|c|d{gap}## e|f{gap}# text = Ann ran{gap}", "{word}|{tag}"),
    "comments of three columns": ("{gap}# a|b|c{gap}", "{word}|x|{tag}"),
    "lines of separators": ("{gap}|{gap}", "{word}|{tag}"),
    "zero for O": ("{gap}{gap}", "{word}|{zero}"),
    "OTHER for O": ("{gap}{gap}", "{word}|{other}"),
    "underscores": ("{gap}{gap}", "{word}|{underscored}"),
    "small letters": ("{gap}{gap}", "{word}|{small}"),
    "blanks after tags": ("{gap}{gap}", "{word}|{tag} "),
}


def layout_of(between: str, row: str, line_end: str) -> str:
    """The sentences of FOUR, with something between them, and at the top where that is a comment."""
    blocks = []
    for sentence in FOUR:
        pairs = [pair.rsplit("/", 1) for pair in sentence]
        tags = {
            tag: {
                "zero": tag.replace("O", "0") if tag == "O" else tag,
                "other": "OTHER" if tag == "O" else tag,
                "underscored": tag.replace("-", "_"),
                "small": tag[:1].lower() + tag[1:],
            }
            for _, tag in pairs
        }
        blocks.append(line_end.join(row.format(word=word, tag=tag, **tags[tag]) for word, tag in pairs))
    between = between.replace("{gap}", line_end)
    top = between.lstrip(line_end) if "#" in between else ""
    return top + (line_end + between).join(blocks) + line_end


@pytest.mark.parametrize("ending", ["conll", "tsv", "txt", "iob2.gz", "csv"])
@pytest.mark.parametrize("case", CERTAIN)
def test_what_is_certain_is_read_and_a_word_with_a_hash_stays_a_word(tmp_path: Path, case: str, ending: str) -> None:
    windows = ending in ("tsv", "csv")
    text = ("\ufeff" if windows else "") + layout_of(*CERTAIN[case], "\r\n" if windows else "\n")
    path = tmp_path / f"train.{ending}"
    content = text.replace("a, b", "a b").replace("|", "," if ending == "csv" else "\t").encode()
    path.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    assert tagged(path) == FOUR
    assert [text for _, text in read_texts(path)] == WORDS


@pytest.mark.parametrize("ending", ["conll", "tsv", "txt", "csv"])
@pytest.mark.parametrize("row", ["{words}|{tags}", "{number}|{words}|{tags}", "{words}|{other}|{tags}"])
@pytest.mark.parametrize("between", ["\n", "\n\n"])
def test_a_sentence_may_be_a_line(tmp_path: Path, ending: str, row: str, between: str) -> None:
    rows = []
    for number, sentence in enumerate(FOUR):
        words, tags = zip(*(pair.rsplit("/", 1) for pair in sentence), strict=True)
        cells = {"words": " ".join(words), "tags": " ".join(tags), "other": "x y", "number": number}
        rows.append(row.format(**cells))
    path = write(
        tmp_path, f"train.{ending}", f"# by|us{between}" + between.join(rows) + "\n", "," if ending == "csv" else "\t"
    )
    assert tagged(path) == FOUR
    assert [text for _, text in read_texts(path)] == WORDS
    with open(path, "a", encoding="utf-8") as file:
        file.write(
            row.format(words="one two three", tags="O O", other="x y", number=9).replace(
                "|", "," if ending == "csv" else "\t"
            )
        )
    with pytest.raises(UserError, match=r"one two three.*as many tags as words"):
        tagged(path)


@pytest.mark.parametrize("name", ["train.tsv", "train.conll", "train.txt"])
def test_hashtags_with_parts_of_speech_stay_words_below_comments(tmp_path: Path, name: str) -> None:
    text = "## a|desk\n#jobs|HT\nnow|RB\n\n# b|desk\n#|SYM\n5|CD\n\nit|PRP\nruns|VBZ\n#x|HT\n"
    pairs = [["#jobs/HT", "now/RB"], ["#/SYM", "5/CD"], ["it/PRP", "runs/VBZ", "#x/HT"]]
    names = ["tokens", "tags"]
    assert tagged(write(tmp_path, name, text), names) == pairs
    assert [words for _, words in read_texts(tmp_path / name, column_names=names)] == [
        [pair.split("/")[0] for pair in sentence] for sentence in pairs
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ann\nran|O\n\nOslo|B-LOC\nis|O\n", "line 1 is 'Ann'"),
        ("Ann|B-PER\nran\n\nOslo|B-LOC\nis|O\n", "line 2 is 'ran'"),
        ("Ann|B-PER\n## note|desk\nran|O\n\nOslo|B-LOC\nis|O\n", "line 2 .*empty line"),
        ("Ann|B-PER\nit ran|O O\n\nOslo|B-LOC\nis|O\n", "several tags in one cell, 'O O'"),
    ],
)
def test_a_line_that_is_no_word_is_named(tmp_path: Path, text: str, message: str) -> None:
    for name in ("train.conll", "train.txt"):
        with pytest.raises(UserError, match=message):
            tagged(write(tmp_path, name, text))


def test_the_line_that_is_shown_for_conllu_names_the_column_that_is_learned(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (
        "1|Ann|Ann|PROPN|X|_|2|nsubj|_|_\n2|ran|run|VERB|V|_|0|root|_|SpaceAfter=No\n\n1|No|no|INTJ|I|_|0|root|_|_\n"
    )
    path = write(tmp_path, "train.conllu", text)
    with caplog.at_level(logging.INFO):
        assert tagged(path) == [["Ann/PROPN", "ran/VERB"], ["No/INTJ"]]
    names = caplog.text.split("--column_names ")[1].split("`")[0].split(",")
    assert tagged(path, names) == [["Ann/PROPN", "ran/VERB"], ["No/INTJ"]]


def test_a_table_without_known_tags_is_read_with_the_names_that_the_message_suggests(tmp_path: Path) -> None:
    path = write(tmp_path, "train.tsv", "Ann|NAM\nran|VER\n\nIt|PRO\nis|VER\n")
    with pytest.raises(UserError, match="--column_names tokens,tags"):
        tagged(path)
    assert tagged(path, ["tokens", "tags"]) == [["Ann/NAM", "ran/VER"], ["It/PRO", "is/VER"]]


@pytest.mark.parametrize("first", ["1-2", "0.1"])
def test_conllu_may_begin_with_a_range_or_an_empty_node(tmp_path: Path, first: str) -> None:
    text = (
        f"{first}|Du|_|_|_|_|_|_|_|_\n1|De|de|ADP|_|_|3|case|_|_\n2|le|le|DET|_|_|3|det|_|_\n"
        "3|vin|vin|NOUN|_|_|0|root|_|SpaceAfter=No\n\n1|Oui|oui|INTJ|_|_|0|root|_|_\n"
    )
    assert tagged(write(tmp_path, "train.conllu", text)) == [["De/ADP", "le/DET", "vin/NOUN"], ["Oui/INTJ"]]


@pytest.mark.parametrize("name", ["train.cupt", "train.conllup", "train.tsv", "train.conllu"])
def test_cupt_has_words_and_its_last_column(tmp_path: Path, name: str) -> None:
    text = (
        "# global.columns = ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC PARSEME:MWE\n"
        "1|He|he|PRON|_|_|3|nsubj|_|_|*\n2-3|gives|_|_|_|_|_|_|_|_|*\n2|give|give|VERB|_|_|0|root|_|_|1:VID\n"
        "3|up|up|ADP|_|_|2|x|_|_|1\n\n1|No|no|INTJ|_|_|0|root|_|_|*\n"
    )
    path = write(tmp_path, name, text)
    assert [words for _, words in read_texts(path)] == [["He", "give", "up"], ["No"]]
    assert tagged(path) == [["He/*", "give/1:VID", "up/1"], ["No/*"]]
    rows = load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))["train"]
    assert rows["pos_tags"][:] == [["PRON", "VERB", "ADP"], ["INTJ"]]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Ann|NNP|B-NP|B-PER\nran|VBD|B-VP|O\n\nIt|PRP|B-NP|O\n", "tokens pos_tags chunk_tags ner_tags"),  # CoNLL-2003
        ("Ann|NNP|B-NP|O\nran|VBD|B-VP|O\n\nIt|PRP|B-NP|O\n", "tokens pos_tags chunk_tags ner_tags"),
        ("Ann|NNP|B-NP\nran|VBD|B-VP\n\nIt|PRP|B-NP\n", "tokens column_2 tags"),  # CoNLL-2000
        ("Ann|NC|B-PER\nran|VMI|O\n\nIt|DA|O\n", "tokens column_2 tags"),  # CoNLL-2002
        ("Ann|B-NP|B-PER\nran|B-VP|O\n\nIt|B-NP|O\n", "tokens column_2 tags"),
        ("ha|NOUN\nha|VERB\n\nha|NOUN\n", "tokens tags"),
        ("12|CD\n13|CD\n\n14|NN\n", "tokens tags"),
        ("Ann|1\nran|0\n\nIt|0\n", "tokens tags"),
        ("word|NN\nAnn|NNP\n\nIt|PRP\n", "tokens tags"),
    ],
)
def test_usual_layouts_keep_their_columns(tmp_path: Path, text: str, names: str) -> None:
    path = write(tmp_path, "train.conll", text)
    rows = load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"))["train"]
    assert rows.column_names == names.split()
    assert list(map(len, rows["tokens"])) == [2, 1]
