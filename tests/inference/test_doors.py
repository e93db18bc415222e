"""
One answer behind every door: a text has the same prediction alone and among others, in a pipeline, in a batch of
columns, from the command, from an exported folder, and from the example of a service. Estimators are in
test_estimators.py, spaCy, Ray, the demo and the page of `export --web` in tests/real/.
"""

import functools
import json
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from saved_models import SCHEMES, TEXTS, saved, with_vocabulary
from transformers import pipeline

from modeling_star import answer_question
from modeling_star.commands import predict
from modeling_star.data.entities import aggregation_for
from modeling_star.inference import Predictor
from modeling_star.inference.export import load, write_export
from modeling_star.inference.pipelines import BestPathPipeline


ROOT = Path(__file__).resolve().parents[2]
LONG = " ".join(TEXTS * 3)  # longer than the models take
ALL: list[Any] = [*TEXTS, LONG]
# Words of Chinese are joined without blanks where all of them are: these have none.
WORDS: list[Any] = [text.split() for text in (TEXTS[0], TEXTS[3], " ".join([TEXTS[0], TEXTS[3]] * 3))]
PAIRS: list[Any] = [(TEXTS[0], "London"), ("London", LONG), (TEXTS[3], "met")]
QUESTIONS: list[Any] = [("Who met Charles?", text) for text in TEXTS[:4]]
IOB = {"id2label": dict(enumerate(SCHEMES["iob"]))}
POS = {"id2label": dict(enumerate(SCHEMES["pos"]))}
CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so"}}
Found = list[list[dict[str, Any]]]


@dataclass(frozen=True)
class Case:
    """A saved model, and what it predicts."""

    head: str
    texts: list[Any]
    kind: str = "wordpiece"
    fields: dict[str, Any] = field(default_factory=dict)
    columns: tuple[str, ...] = ("text",)


CASES = {
    "entities with a CRF": Case("TokenClassification", ALL, fields={**IOB, "use_crf": True}),
    "entities of words with a CRF": Case("TokenClassification", WORDS, fields={**IOB, "use_crf": True}),
    "entities of whole words": Case("TokenClassification", [*ALL, *WORDS], "word", IOB),
    "entities of characters": Case(
        "TokenClassification", [*ALL, *WORDS], "character", {"id2label": dict(enumerate(SCHEMES["bmes"]))}
    ),
    "entities of bytes": Case("TokenClassification", ALL, "byte", IOB),
    "parts of speech": Case("TokenClassification", [*ALL, *WORDS], fields=POS),
    "classes": Case("SequenceClassification", ALL, fields=CLASSES),
    "several labels": Case(
        "SequenceClassification", ALL, fields={**CLASSES, "problem_type": "multi_label_classification"}
    ),
    "a number": Case("SequenceClassification", ALL, fields={"num_labels": 1, "problem_type": "regression"}),
    "pairs": Case("SequenceClassification", PAIRS, fields=CLASSES, columns=("sentence1", "sentence2")),
    "answers": Case("QuestionAnswering", QUESTIONS, columns=("question", "context")),
}


def alone(folder: Path, case: Case) -> Found:
    predictor = Predictor(folder)
    return [found for text in case.texts for _, found in predictor.predict([text])]


def in_columns(folder: Path, case: Case) -> Found:
    cells = [case.texts] if len(case.columns) == 1 else [*zip(*case.texts, strict=True)]
    return Predictor(folder, batch_size=3)(dict(zip(case.columns, map(list, cells), strict=True)))["found"]


def by_pipeline(folder: Path, case: Case) -> Found:
    predictor = Predictor(folder)
    tokenizer = predictor.tokenizer  # with the limit of the model
    if case.head == "QuestionAnswering":
        found = [answer_question(*pair, predictor.model, tokenizer, top_k=1) for pair in case.texts]
        return [[vars(each) if hasattr(each, "__dict__") else each._asdict() for each in row] for row in found]
    if case.head == "SequenceClassification":
        stock = pipeline("text-classification", str(folder), tokenizer=tokenizer, top_k=None)
        given = [{"text": a, "text_pair": b} for a, b in case.texts] if case.columns != ("text",) else case.texts
        return [*stock(given, truncation=True)]
    options = {"aggregation_strategy": aggregation_for(tokenizer), "pipeline_class": BestPathPipeline, "stride": 5}
    tagger = pipeline("token-classification", str(folder), tokenizer=tokenizer, **options)
    found = []
    for text in case.texts:
        split = {"is_split_into_words": True, "delimiter": " "} if isinstance(text, list) else {}
        found += tagger([text], **split)
    return [[{**each, "label": each["entity_group"]} for each in row] for row in found]


def by_command(folder: Path, case: Case) -> Found:
    given, output = folder.parent / "given.jsonl", folder.parent / "found.jsonl"
    rows = [{"tokens": row} if isinstance(row, list) else {"text": row} for row in case.texts]
    if len(case.columns) > 1:
        rows = [dict(zip(case.columns, row, strict=True)) for row in case.texts]
    parts: Found = []
    for kind in dict.fromkeys(tuple(row) for row in rows):  # a file has one kind of rows
        own = [row for row in rows if tuple(row) == kind]
        given.write_text("".join(json.dumps(row) + "\n" for row in own), encoding="utf-8")
        output.unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["predict", str(folder), "--file", str(given), "--output_file", str(output)])
            predict.main()
        parts += [json.loads(line)["found"] for line in output.read_text(encoding="utf-8").splitlines()]
    return parts


def by_export(folder: Path, case: Case) -> Found:
    output = folder.with_name("exported")
    if not output.exists():
        write_export(*load(str(folder)), output)
    return [found for _, found in Predictor(output, batch_size=3).predict(case.texts)]


def by_service(folder: Path, case: Case) -> Found:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MODEL", str(folder))
        client = TestClient(runpy.run_path(str(ROOT / "docs" / "serve.py"))["app"])
        return client.post("/predict", json={"texts": case.texts}).json()


DOORS: dict[str, Callable[[Path, Case], Found]] = {
    "alone": alone,
    "columns": in_columns,
    "pipeline": by_pipeline,
    "command": by_command,
    "export": by_export,
    "service": by_service,
}


def enters(door: str, case: str) -> bool:
    """Whether a door takes such texts."""
    if door == "service":
        return case in ("entities with a CRF", "classes")
    return not (door == "export" and case == "answers")


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Path, Found]]:
    """The folder of a case, and what a predictor finds in all of its texts at once."""

    @functools.cache
    def made(name: str) -> tuple[Path, Found]:
        case = CASES[name]
        folder = saved(tmp_path_factory.mktemp("door") / "model", case.head, case.kind, **case.fields)
        if "use_crf" in case.fields:
            with_vocabulary(folder)
        arguments = {"stride": 5} | ({} if name == "answers" else {"text_columns": case.columns})
        (folder / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
        return folder, [found for _, found in Predictor(folder, batch_size=8).predict(case.texts)]

    return made


@pytest.mark.parametrize(
    ("door", "name"),
    [
        pytest.param(door, name, marks=[pytest.mark.slow] * (door == "export"))
        for door in DOORS
        for name in CASES
        if enters(door, name)
    ],
)
def test_a_text_has_one_prediction_behind_every_door(
    door: str, name: str, model_of: Callable[[str], tuple[Path, Found]]
) -> None:
    folder, expected = model_of(name)
    case = CASES[name]
    assert any(expected)
    found = DOORS[door](folder, case)
    assert len(found) == len(expected)
    for text, own, others in zip(case.texts, found, expected, strict=True):
        names = [each for each in ("label", "start", "end") if others and each in others[0]]
        assert [[each[n] for n in names] for each in own] == [[each[n] for n in names] for each in others]
        scores = [
            [float(each.get("score", each.get("value"))) for each in row] for row in (own, others)
        ]  # fmt: skip
        assert scores[0] == pytest.approx(scores[1], abs=2e-4)
        if "start" in names:
            plain = text[1] if case.head == "QuestionAnswering" else " ".join(text) if isinstance(text, list) else text
            assert all(plain[each["start"] : each["end"]] == each["text"] for each in others)
