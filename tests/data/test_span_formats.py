"""Files of annotation tools with labelled spans of characters, in the form that each tool writes."""

import bz2
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from script_samples import jsonl

from modeling_star.data.classification import prepare_classification
from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.readers import read_file
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import prepare_tagging
from modeling_star.data.writing_systems import split_words
from modeling_star.errors import UserError


TEXT = "Mira Keil went to Quell."
WORDS = ["Mira", "Keil", "went", "to", "Quell", "."]
TAGS = ["B-PER", "I-PER", "O", "O", "B-LOC", "O"]
EMOJI = "\U0001f4a9 " + TEXT  # the first character is two UTF-16 units

Sentences = list[tuple[list[str], list[str]]]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_files(**files: str) -> Path:
        """Write files, "__" in whose names is a point; return the first."""
        paths = [tmp_path / name.replace("__", ".") for name in files]
        for path, content in zip(paths, files.values(), strict=True):
            path.write_bytes(content.encode())
        return paths[0]

    return write_files


def sentences(path: Path, **others: Path) -> Sentences:
    """The words and tags of a training file."""
    data = prepare_tagging(load_splits(files={"train": path, **others}))
    rows = data.splits["train"]
    return [(row[data.text_column], [data.id2label[tag] for tag in row[data.label_column]]) for row in rows]


def task(text: str, *spans: tuple[int, int, str, str], **fields: Any) -> dict[str, Any]:
    """A task of Label Studio with one annotation."""
    constant = {"id": "Dx", "from_name": "label", "to_name": "text", "type": "labels", "origin": "manual"}
    result = [
        {"value": {"start": start, "end": end, "text": surface, "labels": [label]}, **constant}
        for start, end, surface, label in spans
    ]
    annotation = {"id": 9, "completed_by": 1, "result": result, "was_cancelled": False, "ground_truth": False}
    return {"id": 1, "annotations": [annotation | fields], "predictions": [], "data": {"text": text}, "meta": {}}


def tokens(text: str) -> list[dict[str, Any]]:
    """The tokens of a task of Prodigy."""
    return [
        {"text": text[start:end], "start": start, "end": end, "id": index, "ws": text[end : end + 1] == " "}
        for index, (start, end) in enumerate(split_words(text))
    ]


SPANS = [[0, 9, "PER"], [18, 23, "LOC"]]
SURFACES = [(start, end, TEXT[start:end], label) for start, end, label in SPANS]


def dicts(start: str = "start", end: str = "end", label: str = "label", last: int = 0, **more: str) -> list[Any]:
    """The spans as objects with keys of these names, and with the text of each under the keys `more`."""
    return [
        {start: first, end: after - last, label: [name] if label == "labels" else name}
        | dict.fromkeys(more.values(), surface)
        for first, after, surface, name in SURFACES
    ]


PRODIGY = {"text": TEXT, "_input_hash": -18, "_task_hash": 17, "_view_id": "ner_manual", "_timestamp": 1700000000}
PRODIGY |= {"tokens": tokens(TEXT), "spans": dicts(), "answer": "accept"}


def one_row(**cells: Any) -> str:
    return jsonl([cells])


STUDIO = task(TEXT, *SURFACES)
MIN = {"label": dicts(label="labels", surface="text"), "annotator": 1, "created_at": "2024-03-09T21:52:49.513742Z"}
POINTS = [{"label": [label], "points": [{"start": a, "end": b - 1, "text": s}]} for a, b, s, label in SURFACES]
RELATIONS = [{"id": 1, "from_id": 3, "to_id": 4, "type": "went"}]
SPANS_OF = dict(
    enumerate(
        [
            [{"name": surface, "span": [a, b], "type": label} for a, b, surface, label in SURFACES],
            [{"offset": a, "length": b - a, "type": label} for a, b, _, label in SURFACES],
            [{"offsets": [[a, b]], "text": [surface], "type": label} for a, b, surface, label in SURFACES],
            [
                {"BeginOffset": a, "EndOffset": b, "Text": s, "Type": label, "Score": 0.9}
                for a, b, s, label in SURFACES
            ],
            [{"start_pos": a, "end_pos": b, "label_type": label} for a, b, _, label in SURFACES],
            [{"start_char": a, "end_char": b, "label": label, "label_id": 3} for a, b, _, label in SURFACES],
            [{"pos": [a, b - 1], "entity": surface, "type": label} for a, b, surface, label in SURFACES],
            [{"from": a, "to": b, "category": label} for a, b, _, label in SURFACES],
            [[label, a, b] for a, b, _, label in SURFACES],
            [[surface, label, a, b] for a, b, surface, label in SURFACES],
            [[a, b, surface, label] for a, b, surface, label in SURFACES],
            [[[a, b], label] for a, b, _, label in SURFACES],
        ]
    )
)
TOOLS = {
    "doccano.jsonl": one_row(id=1, text=TEXT, label=SPANS),
    "doccano 1.4 .jsonl": one_row(id=1, data=TEXT, label=SPANS, Comments=[]),
    "doccano with relations.jsonl": one_row(
        id=1, text=TEXT, entities=dicts("start_offset", "end_offset"), relations=RELATIONS, Comments=[]
    ),
    "doccano text label.jsonl": one_row(id=1, text=TEXT, meta={}, annotation_approver=None, labels=SPANS),
    "Prodigy.jsonl": jsonl([PRODIGY]),
    "Prodigy without tokens.jsonl": jsonl([{k: v for k, v in PRODIGY.items() if k != "tokens"}]),
    "Prodigy as a list.json": json.dumps([PRODIGY], indent=1),
    "Label Studio.json": json.dumps([STUDIO], indent=2),
    "Label Studio on one line.json": json.dumps([STUDIO]),
    "Label Studio before 1 .json": json.dumps([{"data": {"my_text": TEXT}, "completions": STUDIO["annotations"]}]),
    "Label Studio with other names.json": json.dumps([STUDIO | {"data": {"id": "7", "body": TEXT}}]),
    "Label Studio JSON_MIN.json": json.dumps([{"text": TEXT, "id": 7, "lead_time": 3.1, **MIN}], indent=2),
    "JSON_MIN with other names.json": json.dumps([{"id": "x1", "reviewText": TEXT, "ner": MIN["label"]}]),
    "spaCy 2 pairs.json": json.dumps([[TEXT, {"entities": SPANS}]]),
    "spaCy 2 pairs by line.jsonl": json.dumps([TEXT, {"entities": SPANS}]) + "\n",
    "NER annotator.json": json.dumps({"classes": ["PER"], "annotations": [[TEXT, {"entities": SPANS}], None]}),
    "spaCy Doc.to_json.jsonl": one_row(text=TEXT, ents=dicts(), tokens=tokens(TEXT)),
    "CLUENER.json": one_row(text=TEXT, label={"PER": {"Mira Keil": [[0, 8]]}, "LOC": {"Quell": [[18, 22]]}}),
    "Dataturks.json": one_row(content=TEXT, annotation=POINTS, extras=None),
    "inclusive ends, seen by the texts of the spans.jsonl": one_row(
        text=TEXT, entities=dicts("start_idx", "end_idx", "type", last=1, surface="entity")
    ),
    "spans of a column content.json": json.dumps([{"content": TEXT, "spans": dicts()}]),
    **{
        f"spans of any keys {number}.jsonl": one_row(id=7, text=TEXT, entities=spans)
        for number, spans in SPANS_OF.items()
    },
}


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_gives_the_same_words_and_tags(write, name):
    path = write(**{f"a__{name.rpartition('.')[2]}": TOOLS[name]})
    assert sentences(path) == [(WORDS, TAGS)]
    assert [text.replace(" .", ".") for _, text in read_texts(path)] == [TEXT]  # a format can lack the text itself


# ------ Offsets


def utf16(text: str, offset: int) -> int:
    return len(text[:offset].encode("utf-16-le")) // 2


def doccano(text: str, *spans: tuple[int, int, str]) -> str:
    return jsonl([{"text": text, "label": list(spans)}])


@pytest.mark.parametrize("count", [utf16, lambda text, offset: offset], ids=["UTF-16 units", "code points"])
@pytest.mark.parametrize(
    ("text", "spans", "tags"),
    [
        (EMOJI, [(2, 11, "PER"), (20, 25, "LOC")], ["O", *TAGS]),
        (
            "\U0001f44d米拉去了奎尔。",
            [(1, 3, "PER"), (5, 7, "LOC")],
            ["O", "B-PER", "I-PER", "O", "O", "B-LOC", "I-LOC", "O"],
        ),
        ("\U00020000 is in Quell \U0001f44d\U0001f44d.", [(8, 13, "LOC")], ["O", "O", "O", "B-LOC", "O", "O", "O"]),
    ],
)
def test_offsets_count_code_points_or_the_units_of_javascript(write, count, text, spans, tags):
    counted = [(count(text, start), count(text, end), label) for start, end, label in spans]
    assert [found for _, found in sentences(write(a__jsonl=doccano(text, *counted)))] == [tags]


def test_doccano_can_count_graphemes(write):
    firefighter = "\U0001f468\U0001f3fb\u200d\U0001f692"
    path = write(a__jsonl=doccano(f"{firefighter} saw Quell", (6, 11, "LOC")))
    assert sentences(path) == [([firefighter, "saw", "Quell"], ["O", "O", "B-LOC"])]


@pytest.mark.parametrize("start", [5, 6])
def test_the_end_of_a_line_of_windows_counts_once_or_twice(write, start):
    path = write(a__jsonl=doccano("Mira\r\nKeil went", (start, start + 4, "PER")))
    assert sentences(path) == [(["Mira", "Keil", "went"], ["O", "B-PER", "O"])]


@pytest.mark.parametrize(
    ("name", "content", "where"),
    [
        ("a__json", json.dumps([task("ok"), task(TEXT, (1, 5, "Keil", "PER"))]), "row 2"),
        ("a__jsonl", doccano("ok", (0, 2, "X")) + doccano("Mira", (0, 40, "PER")), "row 2"),
        ("a__jsonl", jsonl([PRODIGY, PRODIGY | {"tokens": [{"text": "Mara", "start": 0, "end": 4}]}]), "row 2"),
        ("a__json", jsonl([{"text": "米拉去了", "label": {"PER": {"米尔": [[0, 1]]}}}]), "row 1"),
        ("a__json", json.dumps([task(TEXT), {"data": {"text": 3}, "annotations": []}]), "row 2"),
        ("a__jsonl", one_row(text=TEXT, annotations=[{"label": 9, "start_offset": 0, "end_offset": 9}]), "row 1"),
    ],
)
def test_a_span_that_does_not_fit_its_text_is_an_error_that_names_the_row(write, name, content, where):
    with pytest.raises(UserError, match=where):
        sentences(write(**{name: content}))


# ------ Words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mira's hat, (3.14 €)!", ["Mira", "'s", "hat", ",", "(", "3.14", "€", ")", "!"]),
        ("米拉 went到Quell。", ["米", "拉", "went", "到", "Quell", "。"]),
        ("ミラは東京タワーへ", list("ミラは東京タワーへ")),
        ("ไปที่บ้าน", ["ไ", "ป", "ที่", "บ้", "า", "น"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("soft\u00adhyphen a\u200bb \u2014", ["soft\u00adhyphen", "a\u200bb", "\u2014"]),
        ("\u3000\n\t", []),
    ],
)
def test_words_have_every_character_but_white_space(text, words):
    spans = split_words(text)
    assert [text[start:end] for start, end in spans] == words
    assert "".join(words) == "".join(text.split())


def test_spans_within_words_are_widened_and_the_longest_of_overlapping_ones_is_kept(write):
    rows = [
        doccano("Miras Haus in Quellstadt", (0, 4, "PER"), (14, 19, "LOC")),
        doccano(" Mira  went", (0, 6, "PER")),
        doccano("New York City", (0, 8, "LOC"), (4, 13, "GPE"), (0, 3, "X"), (4, 13, "GPE")),
        doccano("went", (4, 4, "PER")),
    ]
    assert sentences(write(a__jsonl="".join(rows))) == [
        (["Miras", "Haus", "in", "Quellstadt"], ["B-PER", "O", "O", "B-LOC"]),
        (["Mira", "went"], ["B-PER", "O"]),
        (["New", "York", "City"], ["B-X", "B-GPE", "I-GPE"]),
        (["went"], ["O"]),
    ]


# ------ What tools leave open


def test_rejected_and_ignored_rows_of_prodigy_are_omitted_from_training_alone(write):
    others = [{**PRODIGY, "answer": "reject"}, {**PRODIGY, "answer": "ignore"}, {"text": "No.", "answer": "accept"}]
    path = write(a__jsonl=jsonl([PRODIGY, *others]))
    assert sentences(path) == [(WORDS, TAGS), (["No", "."], ["O", "O"])]
    assert [number for number, _ in read_texts(path)] == [0, 1, 2, 3]


def test_the_words_of_prodigy_are_used(write):
    words = [{"text": TEXT[start:end], "start": start, "end": end} for start, end in [(0, 9), (10, 14)]]
    path = write(a__jsonl=jsonl([{**PRODIGY, "tokens": words, "spans": dicts()[:1]}]))
    assert sentences(path) == [(["Mira Keil", "went"], ["B-PER", "O"])]


def test_tasks_that_were_skipped_or_never_labelled_are_omitted(write):
    skipped = task(TEXT, was_cancelled=True)
    several = task(TEXT, *SURFACES, ground_truth=True)
    several["annotations"].insert(0, task(TEXT)["annotations"][0])
    path = write(a__json=json.dumps([skipped, several, {**task(TEXT), "annotations": []}]))
    assert sentences(path) == [(WORDS, TAGS)]
    assert len(list(read_texts(path))) == 3


def test_spans_of_html_are_refused(write):
    page, node = task("<p>Mira</p>"), "/p[1]/text()[1]"
    value = {"start": node, "end": node, "startOffset": 0, "endOffset": 4, "hypertextlabels": ["PER"]}
    page["annotations"][0]["result"] = [{"type": "hypertextlabels", "to_name": "text", "value": value}]
    with pytest.raises(UserError, match="HTML"):
        sentences(write(a__json=json.dumps([page])))


def test_half_a_character_is_replaced(write):
    path = write(a__jsonl='{"text": "Mira \\ud83d went", "label": [[0, 4, "PER"]]}\n')
    assert sentences(path) == [(["Mira", "\ufffd", "went"], ["B-PER", "O", "O"])]


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + doccano(TEXT, *SPANS).replace("\n", "\r\n"),
        json.dumps({"text": TEXT, "label": SPANS}, indent=1) + "\n",
        doccano("", *()) + doccano(TEXT, *SPANS),
        "\n" + doccano(TEXT, *SPANS) + "\n\n",
    ],
)
def test_the_layout_of_the_json_does_not_matter(write, content):
    assert sentences(write(a__jsonl=content)) == [(WORDS, TAGS)]


def test_rows_with_words_and_tags_are_read_as_before(write):
    row = {"tokens": ["It", "rains"], "ner_tags": ["O", "B-X"], "text": "It rains", "spans": dicts()[:1]}
    assert sentences(write(a__jsonl=jsonl([row]))) == [(["It", "rains"], ["O", "B-X"])]


@pytest.mark.parametrize("label", [None, "", "absent"])
@pytest.mark.parametrize("tool", ["Label Studio", "doccano", "Prodigy"])
def test_words_of_a_span_without_a_label_are_neither_learned_nor_scored(write, caplog, tool, label):
    row = task(TEXT, *SURFACES) if tool == "Label Studio" else {"text": TEXT, "spans": dicts()}
    if tool == "doccano":
        row = {"text": TEXT, "entities": dicts("start_offset", "end_offset")}
    span = row["annotations"][0]["result"][0]["value"] if tool == "Label Studio" else [*row.values()][1][0]
    name = "labels" if tool == "Label Studio" else "label"
    span |= {name: [label] if tool == "Label Studio" and label is not None else label}
    if label == "absent":
        del span[name]
    data = prepare_tagging(load_splits(files={"train": write(a__json=json.dumps([row]))}))
    assert data.splits["train"][data.label_column][:] == [[-100, -100, 0, 0, 1, 0]]
    assert "1 spans have no label" in caplog.text
    assert "row 1" in caplog.text


def test_spans_of_which_none_has_a_label_are_refused(write):
    for spans in ([{"start": 0, "end": 4, "label": None}], [{"start": 0, "end": 4}]):
        with pytest.raises(UserError, match="none of 1 spans has a label"):
            sentences(write(a__json=json.dumps([{"text": TEXT, "spans": spans}])))


@pytest.mark.parametrize("with_spans", [True, False])
@pytest.mark.parametrize("kind", ["choices", "rating"])
def test_classes_of_label_studio_are_not_called_spans(write, kind, with_spans):
    row = task(TEXT)
    row["annotations"][0]["result"] = [{"type": kind, "from_name": "s", "to_name": "text", "value": {kind: ["good"]}}]
    path = write(a__json=json.dumps([row]))
    with pytest.raises(UserError, match=f"{kind}.*JSON-MIN"):
        read_file(path, with_spans=with_spans)
    assert [text for _, text in read_texts(path)] == [TEXT]


@pytest.mark.parametrize(
    "spans",
    [
        [[0, 2, "PER"], [4, 5, "LOC"]],
        [{"type": "PER", "start": 0, "end": 2}, {"type": "LOC", "start": 4, "end": 5}],
        [{"label": "PER", "span": [0, 2]}, {"label": "LOC", "span": [4, 5]}],
        [["PER", 0, 2], ["LOC", 4, 5]],
    ],
)
@pytest.mark.parametrize("more", [{}, {"text": TEXT}, {"relations": [], "id": 3}])
@pytest.mark.parametrize("column", ["entities", "spans", "ner"])
def test_spans_can_count_words(write, spans, more, column):
    rows = [{"tokens": WORDS, column: spans, **more}, {"tokens": ["No", "."], column: [], **more | {"text": "No."}}]
    assert sentences(write(a__jsonl=jsonl(rows))) == [(WORDS, TAGS), (["No", "."], ["O", "O"])]


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
def test_a_wrong_line_of_brat_is_named(write, annotation, message):
    with pytest.raises(UserError, match=message):
        sentences(write(a__ann=annotation, a__txt="Mira went.\n"))


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
    splits = load_splits(files={"train": path}, cache_dir=str(tmp_path / "cache"), with_spans=False)
    assert [(row["text"], row["label"]) for row in splits["train"]] == rows
    assert prepare_classification(splits).label_list
    assert [text for _, text in read_texts(path)] == [text for text, _ in rows]


# ------ Formats side by side, and other ones


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("b__conll", "Mira B-PER\nwent O\n\n", ["Mira", "went"]),
        ("b__conll", "Mira NNP B-NP B-PER\nwent VBD B-VP O\n\n", ["Mira", "went"]),
        ("b__jsonl", jsonl([{"words": ["Mira", "went"], "labels": ["B-PER", "O"]}]), ["Mira", "went"]),
        ("b__jsonl", jsonl([{"text": "Mira went."}]), ["Mira", "went", "."]),
        ("b__csv", 'text\n"Mira, went."\n', ["Mira", ",", "went", "."]),
        ("b__jsonl", jsonl([{"text": TEXT, "label": []}]), WORDS),
    ],
)
@pytest.mark.parametrize("swapped", [False, True])
def test_other_splits_can_have_other_formats(write, name, content, words, swapped):
    spans, other = write(a__jsonl=doccano(TEXT, *SPANS)), write(**{name: content})
    if swapped and "B-PER" not in content:
        pytest.skip("no labels to train on")
    files = {"train": other, "test": spans} if swapped else {"train": spans, "test": other}
    data = prepare_tagging(load_splits(files=files))
    train, test = (data.splits[split][0][data.text_column] for split in ("train", "test"))
    assert (test, train) == (WORDS, words) if swapped else (train, test) == (WORDS, words)


@pytest.mark.parametrize(
    ("name", "content", "advice"),
    [
        ("a.txt", "12|t|Mira went.\n12|a|Yes.\n12\t0\t4\tMira\tPerson\n", "bconv"),
        ("a.xml", "<?xml version='1.0'?><!DOCTYPE collection SYSTEM 'BioC.dtd'><collection></collection>", "bconv"),
        ("a.json", json.dumps({"source": "x", "documents": [{"id": "1", "passages": []}]}, indent=1), "bconv"),
        ("a.xml", '<TEI xmlns="http://www.tei-c.org/ns/1.0"><text/></TEI>', "INCEpTION"),
        ("a.xml", "<?xml version='1.0'?>\n<GateDocument version='3'></GateDocument>", "offsets"),
        ("a.xmi", "<?xml version='1.0'?><xmi:XMI/>", "CoNLL 2002"),
        (
            "a.tsv",
            "#FORMAT=WebAnno TSV 3.3\n#T_SP=x.NamedEntity|value\n\n\n#Text=Mira\n1-1\t0-4\tMira\tPER\t\n",
            "CoNLL 2002",
        ),
        ("a.spacy", "x", "spacy.*to_json|DocBin"),
        (
            "a.json",
            json.dumps([{"id": 0, "paragraphs": [{"raw": 'a "b".', "sentences": []}]}], indent=1),
            "json_to_docs",
        ),
        ("a.json", json.dumps([{"id": 0, "paragraphs": [{"sentences": [{"tokens": []}]}]}]), "json_to_docs"),
        ("a.txt", "<PER>Mira</PER> went to <LOC>Quell</LOC> .\nNo one .\n", "offsets"),
        ("a.zip", "PK", "npack"),
        ("a.xlsx", "PK", "csv"),
        ("a.pkl", "x", "json"),
    ],
)
def test_other_formats_name_what_to_write_instead(tmp_path, name, content, advice):
    (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=advice):
        read_file(tmp_path / name)
    if advice in ("CoNLL 2002", "json_to_docs"):
        with pytest.raises(UserError, match=advice):
            read_texts(tmp_path / name)


OBJECTS = [{"start": 0, "end": 9, "label": "PER"}]


@pytest.mark.parametrize(
    ("ending", "spans"),
    [
        ("jsonl", [{"start": "0", "end": "9", "label": "PER"}]),
        ("jsonl", [{"name": "Mira Keil", "type": "PER"}]),
        ("csv", [[0, 9, "PER"]]),
        ("csv", [(0, 9, "PER")]),
        ("csv", OBJECTS),
        ("parquet", OBJECTS),
    ],
)
def test_spans_that_are_not_read_name_the_form_that_is(tmp_path, ending, spans):
    path, frame = tmp_path / f"a.{ending}", pd.DataFrame([{"text": TEXT, "entities": spans}])
    if ending == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False) if ending == "csv" else frame.to_parquet(path)
    with pytest.raises(UserError, match='"start": 0, "end": 4'):
        prepare_tagging(load_splits(files={"train": path}), label_column_name="entities")


def test_classifiers_name_the_command_that_reads_spans(write):
    with pytest.raises(UserError, match="modeling-star tag"):
        read_file(write(a__json=json.dumps([task(TEXT)])), with_spans=False)
