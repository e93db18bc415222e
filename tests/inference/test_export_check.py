"""`export --check`: what changes is counted and shown, and too much of it leaves nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from saved_models import SCHEMES, TEXTS, saved
from transformers import AutoModelForSequenceClassification

from modeling_star.commands import export as command
from modeling_star.inference import Predictor, export
from modeling_star.inference.export_check import changes


CLASSES = {0: "bad", 1: "good"}


def run(monkeypatch: pytest.MonkeyPatch, *typed: Any) -> None:
    monkeypatch.setattr("sys.argv", ["export", *map(str, typed)])
    command.main()


def classifier(folder: Path, margin: float) -> Path:
    """A classifier whose weights of two labels are alike but for `margin`, so that some text is good."""
    saved(folder, "SequenceClassification", id2label=CLASSES)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    (last,) = [each for each in model.modules() if isinstance(each, torch.nn.Linear) and each.out_features == 2]
    generator = torch.Generator().manual_seed(0)
    difference = margin * torch.randn(last.in_features, generator=generator)
    for sign in (1, -1):
        with torch.no_grad():
            last.weight[1] = last.weight[0] + sign * difference
            last.bias.zero_()
        model.save_pretrained(folder)
        if any(found[0]["label"] == "good" for _, found in Predictor(folder).predict(TEXTS)):
            return folder
    raise AssertionError("no text is good")


def test_entities_that_are_lost_altered_or_new_are_counted_once() -> None:
    of_torch = [[(0, 5, "PER"), (9, 12, "LOC"), (20, 25, "LOC")], [], [(3, 4, "PER")]]
    of_int8 = [[(0, 5, "LOC"), (9, 12, "LOC"), (22, 25, "LOC"), (30, 31, "PER")], [(1, 2, "PER")], []]
    found = changes(of_torch, of_int8)
    assert found.total == 4
    assert found.pairs == [
        (0, ((0, 5, "PER"), (0, 5, "LOC"))),
        (0, ((20, 25, "LOC"), (22, 25, "LOC"))),
        (0, (None, (30, 31, "PER"))),
        (1, (None, (1, 2, "PER"))),
        (2, ((3, 4, "PER"), None)),
    ]
    assert changes(of_torch, of_torch).share == 0


def test_labels_that_int8_changes_leave_the_earlier_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = classifier(tmp_path / "model", 1e-4)  # less than a step of 8 bits: both labels have the same score
    dev, output = tmp_path / "dev.jsonl", tmp_path / "out"
    rows = [{"text": text, "label": "good"} for text in (*TEXTS, "met Charles", "1871 London")]
    dev.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    expected = [found[0]["label"] for _, found in Predictor(folder).predict([row["text"] for row in rows])]
    good = expected.count("good")
    typed = (folder, "--int8", "--check", dev, "--output_dir", output)
    run(monkeypatch, *typed, "--max_changed", 1)
    printed = capsys.readouterr().out
    assert "model.onnx: 0 of 7 labels changed" in printed
    assert printed.count("good -> bad") == good
    before = {path.name: path.stat().st_mtime_ns for path in output.iterdir()}

    exported = (output / "model.onnx").read_bytes()
    monkeypatch.setattr(export, "export_onnx", lambda model, names, path: path.write_bytes(exported))
    with pytest.raises(SystemExit, match=f"model.int8.onnx changes {good} of 7 labels"):
        run(monkeypatch, *typed)
    assert {path.name: path.stat().st_mtime_ns for path in output.iterdir()} == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dev.jsonl", "model", "out"]


def test_a_tagger_that_changes_nothing_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the words of a labelled file."""
    tagger = saved(tmp_path / "tagger", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])))
    dev = tmp_path / "dev.conll"
    sentences = ("\n".join(f"{word} O" for word in text.split()) for text in TEXTS)
    dev.write_text("\n\n".join(sentences) + "\n", encoding="utf-8")
    run(monkeypatch, tagger, "--check", dev, "--max_changed", 0, "--output_dir", tmp_path / "tagger-onnx")
    found = sum(len(found) for _, found in Predictor(tagger).predict([text.split() for text in TEXTS]))
    assert f"model.onnx: 0 of {found} entities changed" in capsys.readouterr().out


@pytest.mark.slow
def test_8_bits_of_a_classifier_with_wide_margins_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reviews, sure = tmp_path / "dev.txt", classifier(tmp_path / "sure", 10.0)
    reviews.write_text("\n".join(TEXTS), encoding="utf-8")
    run(monkeypatch, sure, "--int8", "--check", reviews, "--max_changed", 0, "--output_dir", tmp_path / "sure-onnx")
    assert "model.int8.onnx: 0 of 5 labels changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fields", "content", "message"),
    [
        ({"num_labels": 1, "problem_type": "regression"}, "London", "predicts neither"),
        ({"id2label": CLASSES}, "\n", "has no text"),
        ({"id2label": CLASSES}, None, "There is no file"),
    ],
)
def test_what_cannot_be_checked_is_refused(
    fields: dict[str, Any], content: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, dev = saved(tmp_path / "model", "SequenceClassification", **fields), tmp_path / "dev.txt"
    if content is not None:
        dev.write_text(content, encoding="utf-8")
    with pytest.raises(SystemExit, match=message):
        run(monkeypatch, folder, "--check", dev, "--output_dir", tmp_path / "out")
    assert not (tmp_path / "out").exists()
