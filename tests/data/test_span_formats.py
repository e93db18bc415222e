"""Files of annotation tools with labelled spans of characters, in the form that each tool writes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from script_samples import jsonl

from modeling_star.data.character_spans import split_words
from modeling_star.data.prediction_inputs import read_texts
from modeling_star.data.splits import load_splits, prepare_tagging


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
    result = [
        {
            "value": {"start": start, "end": end, "text": surface, "labels": [label]},
            "id": "Dx_aB91ISN",
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "origin": "manual",
        }
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


PRODIGY = {
    "text": TEXT,
    "_input_hash": -1886656,
    "_task_hash": 1720,
    "tokens": tokens(TEXT),
    "_view_id": "ner_manual",
    "spans": [
        {"start": 0, "end": 9, "token_start": 0, "token_end": 1, "label": "PER"},
        {"start": 18, "end": 23, "token_start": 4, "token_end": 4, "label": "LOC"},
    ],
    "answer": "accept",
    "_timestamp": 1700000000,
}
SPACY_TOKENS = [
    {"id": index, "orth": word, "tag": "X", "head": 0, "dep": "", "ner": tag}
    for index, (word, tag) in enumerate(zip(WORDS, ["B-PER", "L-PER", "O", "O", "U-LOC", "O"], strict=True))
]
WEBANNO = (
    "#FORMAT=WebAnno TSV 3.3\n"
    "#T_SP=de.tudarmstadt.ukp.dkpro.core.api.lexmorph.type.pos.POS|PosValue|coarseValue\n"
    "#T_SP=de.tudarmstadt.ukp.dkpro.core.api.ner.type.NamedEntity|identifier|value\n"
    "\n\n"
    f"#Text={TEXT}\n"
    "1-1\t0-4\tMira\tNNP\tPROPN\thttp://x.org/Q\\_1[1]\tPER[1]\t\n"
    "1-2\t5-9\tKeil\tNNP\tPROPN\thttp://x.org/Q\\_1[1]\tPER[1]\t\n"
    "1-3\t10-14\twent\tVBD\tVERB\t_\t_\t\n"
    "1-4\t15-17\tto\tIN\tADP\t_\t_\t\n"
    "1-5\t18-23\tQuell\tNNP\tPROPN\t*\tLOC\t\n"
    "1-6\t23-24\t.\t.\tPUNCT\t_\t_\t\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param(
            "a__jsonl", jsonl([{"id": 1, "text": TEXT, "label": [[0, 9, "PER"], [18, 23, "LOC"]]}]), id="doccano"
        ),
        pytest.param(
            "a__jsonl",
            jsonl([{"id": 1, "data": TEXT, "label": [[0, 9, "PER"], [18, 23, "LOC"]], "Comments": []}]),
            id="doccano 1.4",
        ),
        pytest.param(
            "a__jsonl",
            jsonl(
                [
                    {
                        "id": 1,
                        "text": TEXT,
                        "entities": [
                            {"id": 3, "label": "PER", "start_offset": 0, "end_offset": 9},
                            {"id": 4, "label": "LOC", "start_offset": 18, "end_offset": 23},
                        ],
                        "relations": [{"id": 1, "from_id": 3, "to_id": 4, "type": "went"}],
                        "Comments": [],
                    }
                ]
            ),
            id="doccano with relations",
        ),
        pytest.param(
            "a__jsonl",
            jsonl(
                [
                    {
                        "id": 1,
                        "text": TEXT,
                        "meta": {},
                        "annotation_approver": None,
                        "labels": [[0, 9, "PER"], [18, 23, "LOC"]],
                    }
                ]
            ),
            id="doccano text label",
        ),
        pytest.param("a__jsonl", jsonl([PRODIGY]), id="Prodigy"),
        pytest.param(
            "a__jsonl", jsonl([{k: v for k, v in PRODIGY.items() if k != "tokens"}]), id="Prodigy without tokens"
        ),
        pytest.param("a__json", json.dumps([PRODIGY], indent=1), id="Prodigy as a list"),
        pytest.param(
            "a__json",
            json.dumps([task(TEXT, (0, 9, "Mira Keil", "PER"), (18, 23, "Quell", "LOC"))], indent=2),
            id="Label Studio",
        ),
        pytest.param(
            "a__json",
            json.dumps([task(TEXT, (0, 9, "Mira Keil", "PER"), (18, 23, "Quell", "LOC"))]),
            id="Label Studio on one line",
        ),
        pytest.param(
            "a__json",
            json.dumps(
                [
                    {
                        "id": 1,
                        "data": {"my_text": TEXT},
                        "completions": task(TEXT, (0, 9, "", "PER"), (18, 23, "", "LOC"))["annotations"],
                    }
                ]
            ),
            id="Label Studio before 1.0",
        ),
        pytest.param(
            "a__json",
            json.dumps(
                [
                    {
                        "text": TEXT,
                        "id": 7,
                        "label": [
                            {"start": 0, "end": 9, "text": "Mira Keil", "labels": ["PER"]},
                            {"start": 18, "end": 23, "text": "Quell", "labels": ["LOC"]},
                        ],
                        "annotator": 1,
                        "annotation_id": 1,
                        "created_at": "2024-03-09T21:52:49.513742Z",
                        "lead_time": 3.1,
                    }
                ],
                indent=2,
            ),
            id="Label Studio JSON_MIN",
        ),
        pytest.param(
            "a__json",
            json.dumps([[TEXT, {"entities": [[0, 9, "PER"], [18, 23, "LOC"]]}]]),
            id="spaCy 2 pairs",
        ),
        pytest.param(
            "a__jsonl",
            json.dumps([TEXT, {"entities": [[0, 9, "PER"], [18, 23, "LOC"]]}]) + "\n",
            id="spaCy 2 pairs by line",
        ),
        pytest.param(
            "a__json",
            json.dumps(
                {
                    "classes": ["PER", "LOC"],
                    "annotations": [[TEXT, {"entities": [[0, 9, "PER"], [18, 23, "LOC"]]}], None],
                }
            ),
            id="NER annotator for spaCy",
        ),
        pytest.param(
            "a__json",
            json.dumps(
                [
                    {
                        "id": 0,
                        "paragraphs": [
                            {"raw": TEXT, "sentences": [{"tokens": SPACY_TOKENS, "brackets": []}], "cats": []}
                        ],
                    }
                ]
            ),
            id="spaCy 2 json",
        ),
        pytest.param(
            "a__json",
            json.dumps([{"id": 0, "paragraphs": [{"sentences": [{"tokens": SPACY_TOKENS}]}]}]),
            id="spaCy 2 json without the text",
        ),
        pytest.param(
            "a__jsonl",
            jsonl(
                [
                    {
                        "text": TEXT,
                        "ents": [{"start": 0, "end": 9, "label": "PER"}, {"start": 18, "end": 23, "label": "LOC"}],
                        "tokens": tokens(TEXT),
                    }
                ]
            ),
            id="spaCy Doc.to_json",
        ),
        pytest.param(
            "a__json",
            jsonl([{"text": TEXT, "label": {"PER": {"Mira Keil": [[0, 8]]}, "LOC": {"Quell": [[18, 22]]}}}]),
            id="CLUENER",
        ),
        pytest.param("a__tsv", WEBANNO, id="WebAnno"),
        pytest.param(
            "a__jsonl",
            jsonl(
                [
                    {
                        "text": TEXT,
                        "entities": [
                            {"start_idx": 0, "end_idx": 8, "type": "PER", "entity": "Mira Keil"},
                            {"start_idx": 18, "end_idx": 22, "type": "LOC", "entity": "Quell"},
                        ],
                    }
                ]
            ),
            id="inclusive ends, seen by the texts of the spans",
        ),
        pytest.param(
            "a__json",
            json.dumps(
                [
                    {
                        "content": TEXT,
                        "spans": [{"start": 0, "end": 9, "label": "PER"}, {"start": 18, "end": 23, "label": "LOC"}],
                    }
                ]
            ),
            id="spans of a column content",
        ),
    ],
)
def test_every_tool_gives_the_same_words_and_tags(write, name, content):
    path = write(**{name: content})
    assert sentences(path) == [(WORDS, TAGS)]
    assert [text.replace(" .", ".") for _, text in read_texts(path)] == [TEXT]  # a format can lack the text itself
