"""Exported folders in a `Predictor`: what PyTorch predicts, without an import of torch or transformers."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from saved_models import SCHEMES, TEXTS, saved, with_vocabulary
from script_runner import ROOT
from transformers.utils import logging

from modeling_star.errors import UserError
from modeling_star.inference import Predictor
from modeling_star.inference.export import load, write_export


CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so"}}
SEVERAL = {**CLASSES, "problem_type": "multi_label_classification"}
ENTITIES = {"id2label": dict(enumerate(SCHEMES["iob"])), "use_crf": True}
LONG = " ".join(TEXTS * 3)  # longer than the models take
WORDS: list[Any] = [text.split() for text in (*TEXTS, LONG)]
PAIRS: list[Any] = [(TEXTS[0], "London"), ("London", LONG), ("", "met")]


def case(name: str, head: str, texts: list[Any], kind: str = "wordpiece", fast: bool = False, **fields: Any) -> Any:
    return pytest.param(head, kind, fields, texts, id=name, marks=() if fast else pytest.mark.slow)


CASES = [
    case("entities with a CRF", "TokenClassification", [*TEXTS, LONG, *WORDS], fast=True, **ENTITIES),
    case("characters", "TokenClassification", [*TEXTS, LONG, *WORDS], "character", **ENTITIES),
    case("bytes", "TokenClassification", [*TEXTS, LONG], "byte", id2label=dict(enumerate(SCHEMES["bmes"]))),
    case("parts of speech", "TokenClassification", [*TEXTS, LONG], id2label=dict(enumerate(SCHEMES["pos"]))),
    case("pairs", "SequenceClassification", PAIRS, **CLASSES),
    case("classes", "SequenceClassification", [*TEXTS, LONG], **CLASSES),
    case("several labels", "SequenceClassification", TEXTS, **SEVERAL),
    case("a number", "SequenceClassification", TEXTS, num_labels=1, problem_type="regression"),
]


def exported(folder: Path) -> Path:
    output = folder.with_name(f"{folder.name}-onnx")
    write_export(*load(str(folder)), output)
    return output


@pytest.mark.parametrize(("head", "kind", "fields", "texts"), CASES)
def test_an_exported_folder_predicts_what_pytorch_predicts(
    head: str, kind: str, fields: dict[str, Any], texts: list[Any], tmp_path: Path
) -> None:
    folder = saved(tmp_path / "model", head, kind, **fields)
    if "use_crf" in fields:
        with_vocabulary(folder)
    columns = ["a", "b"] if texts is PAIRS else ["text"]
    (folder / "arguments.json").write_text(json.dumps({"text_columns": columns, "stride": 5}), encoding="utf-8")
    torch_predictor, onnx_predictor = Predictor(folder, batch_size=3), Predictor(exported(folder), batch_size=3)
    assert onnx_predictor.fields == torch_predictor.fields
    assert onnx_predictor.pairs == torch_predictor.pairs
    if head == "TokenClassification":
        assert onnx_predictor.score_is == torch_predictor.score_is
    actual, expected = onnx_predictor.predict(texts), torch_predictor.predict(texts)
    assert any(found for _, found in expected)
    assert onnx_predictor.texts_cut == torch_predictor.texts_cut
    for (text, found), (plain, predictions) in zip(actual, expected, strict=True):
        assert text == plain
        assert len(found) == len(predictions)
        for one, other in zip(found, predictions, strict=True):
            numbers = {name for name in one if name in ("score", "value")}
            assert {name: one[name] for name in one.keys() - numbers} == {
                name: other[name] for name in other.keys() - numbers
            }
            assert [one[name] for name in numbers] == pytest.approx([other[name] for name in numbers], abs=1e-4)


def test_an_export_has_the_temperature_and_all_spans(tmp_path: Path) -> None:
    temperature = {"calibration_temperature": 1.7}
    folder = with_vocabulary(saved(tmp_path / "model", "TokenClassification", **ENTITIES, **temperature))
    output = exported(folder)
    counts = []
    for options in ({}, {"min_probability": 0.1}, {"min_probability": 0.02}):
        expected = Predictor(folder, **options).predict([*TEXTS, LONG])
        for (_, found), (_, entities) in zip(
            Predictor(output, **options).predict([*TEXTS, LONG]), expected, strict=True
        ):
            assert [(e["label"], e["start"], e["end"]) for e in found] == [
                (e["label"], e["start"], e["end"]) for e in entities
            ]
            assert [e["score"] for e in found] == pytest.approx([e["score"] for e in entities], abs=1e-5)
        counts.append(sum(len(found) for _, found in expected))
    few, many, most = counts
    assert few < many < most


@pytest.mark.parametrize("is_exported", [False, True])
def test_the_operating_point_of_an_earlier_version_is_ignored_with_a_line(
    is_exported: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = with_vocabulary(saved(tmp_path / "model", "TokenClassification", **ENTITIES))
    folder = exported(folder) if is_exported else folder
    expected = Predictor(folder).predict(TEXTS)
    path = folder / "config.json"
    old = {"entity_offset": 1.0, "entity_bound": 0.02, "operating_curve": [[0.0, 0.5, 0.5]], "bound_curve": None}
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | old), encoding="utf-8")
    (folder / "manifest.json").unlink(missing_ok=True)
    logging.warning_once.cache_clear()
    assert Predictor(folder).predict(TEXTS) == expected
    [message] = [message for message in caplog.messages if "entity_bound" in message]
    assert "--min_probability 0.02" in message


def test_the_command_needs_four_small_packages(tmp_path: Path) -> None:
    """Typed texts, and files of each kind but parquet; with a folder where other packages cannot be imported."""
    folder = saved(tmp_path / "model", "SequenceClassification", **CLASSES)
    output, blocked, reviews = exported(folder), tmp_path / "blocked", tmp_path / "in.csv"
    blocked.mkdir()
    for name in ("torch", "transformers", "huggingface_hub", "safetensors", "datasets", "pyarrow", "pandas"):
        (blocked / f"{name}.py").write_text("raise AssertionError('imported')", encoding="utf-8")
    reviews.write_text("id,text\n" + "".join(f'{n},"{text}"\n' for n, text in enumerate(TEXTS)), encoding="utf-8")
    environment = {"PYTHONPATH": f"{blocked}:{ROOT}", "HOME": str(tmp_path)}

    def run(*arguments: Any) -> str:
        typed = [sys.executable, "-m", "modeling_star", "predict", *map(str, arguments)]
        return subprocess.run(typed, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    expected = [found for _, found in Predictor(folder).predict(TEXTS)]
    assert run(output, TEXTS[0]).splitlines()[1].split()[0] == expected[0][0]["label"]
    assert "5 rows" in run(output / "model.onnx", "--file", reviews, "--output_file", "out.csv")
    rows = (tmp_path / "out.csv").read_text(encoding="utf-8").splitlines()
    assert rows[0] == "id,text,label,score"
    assert [row.split(",")[-2] for row in rows[1:]] == [found[0]["label"] for found in expected]
    run(output, "--file", "out.csv", "--output_file", "out.tsv")
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS), encoding="utf-8")
    run(output, "--file", "in.jsonl", "--output_file", "out.jsonl")
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["label"] for line in lines] == [found[0]["label"] for found in expected]


@pytest.mark.parametrize("damage", ["config.json", "model.onnx"])
def test_a_damaged_export_is_named(damage: str, tmp_path: Path) -> None:
    fields = {"architectures": ["XForTokenClassification"], "id2label": {"0": "O"}}
    for name in ("config.json", "model.onnx"):
        (tmp_path / name).write_text(json.dumps(fields), encoding="utf-8")
    (tmp_path / damage).write_bytes(b"\x00")
    with pytest.raises(UserError, match=damage):
        Predictor(tmp_path).load()


def test_tables_of_a_crf_that_are_missing_or_wrong_are_named(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "TokenClassification", **ENTITIES)
    without_vocabulary = Predictor(exported(folder))
    assert without_vocabulary.score_is == Predictor(folder).score_is == "product of token probabilities"
    with_vocabulary(folder)
    output = exported(folder)
    path = output / "crf.json"
    tables = json.loads(path.read_text(encoding="utf-8"))
    fewer = {**tables, "transitions": [row[1:] for row in tables["transitions"][1:]]}
    outside = {**tables, "carry_no_tag": [tables["vocab_size"]]}
    for text in ("", "[]", "{}", json.dumps(fewer), json.dumps(outside)):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(UserError, match=r"crf\.json"):
            Predictor(output).load()
    path.unlink()
    with pytest.raises(UserError, match=r"crf\.json"):
        Predictor(output).predict(TEXTS)
    path.write_text(json.dumps(tables), encoding="utf-8")
    assert Predictor(output).score_is == "span probability"


def test_a_model_for_questions_is_refused_with_what_answers_them(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"")
    fields = {"architectures": ["StarTransformerForQuestionAnswering"], "id2label": {"0": "a", "1": "b"}}
    (tmp_path / "config.json").write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(UserError, match=r"predict\.py --pairs"):
        Predictor(tmp_path)
