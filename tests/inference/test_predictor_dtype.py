"""The precision of predictions: chosen by name, or by what the processor computes."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from real_data import data_folder
from saved_models import SCHEMES, TEXTS, saved

from modeling_star.errors import UserError
from modeling_star.estimators import StarClassifier
from modeling_star.inference import Predictor, prediction_files, torch_runtime
from modeling_star.inference.explain import explain
from modeling_star.inference.output_rows import Prediction, Source
from modeling_star.inference.prediction_files import predict_to_file
from modeling_star.inference.saved_model import SavedModel
from modeling_star.kernels import cpu
from modeling_star.kernels.compiled import is_compiled


def test_layers_compute_in_bfloat16_where_compiled_code_gains_by_it(
    compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])), use_crf=True)
    for dtype in ("auto", "float32", None):
        predictor = Predictor(folder, dtype=dtype)
        assert predictor.options["instructions"] == compiled
        assert predictor.model.dtype == torch.float32, "embeddings, heads and CRF stay in float32"
        library, numbers, reason = predictor.computation.splitlines()
        assert f"compiled layers with {compiled.upper()}" in library
        assert ("bfloat16 in the layers" in numbers) == (dtype == "auto" and compiled == "amx")
        assert reason == "compiled: yes"
    assert Predictor(folder).options == Predictor(folder, dtype="auto").options
    monkeypatch.setattr(torch_runtime, "_device", lambda: torch.device("meta"))
    assert Predictor(folder).instructions is None


def test_a_predictor_says_why_pytorch_computes(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    assert Predictor(folder).computation.endswith(f"compiled: no, {cpu.VARIABLE}=0 is set")


def test_what_needs_layers_has_them_beside_a_compiled_copy(compiled: str, tmp_path: Path) -> None:
    """Explanations, and spaCy where it saves the model."""
    predictor = Predictor(saved(tmp_path / "model", "SequenceClassification", num_labels=3))
    [(_, found)] = predictor.predict(["The first example."])
    explained = explain(predictor, "The first example.")
    assert explained.attributions[0].score == pytest.approx(found[0]["score"], abs=1e-5)
    predictor.pytorch_model.save_pretrained(tmp_path / "copy")
    assert (tmp_path / "copy" / "model.safetensors").read_bytes() == (
        tmp_path / "model" / "model.safetensors"
    ).read_bytes()


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The compiled code is on; its instructions."""
    monkeypatch.setattr(torch_runtime, "_device", lambda: torch.device("cpu"))
    monkeypatch.setenv(cpu.VARIABLE, "1")
    cpu._library.cache_clear()
    try:
        yield str(cpu.level_in_use())
    except RuntimeError as error:
        pytest.skip(str(error))
    cpu._library.cache_clear()


def scores_of(predicted: list[tuple[Any, list[Prediction]]]) -> list[float]:
    return [each["score"] for _, found in predicted for each in sorted(found, key=lambda each: each["label"])]


def test_scores_in_bfloat16_are_near_and_do_not_depend_on_the_batch(compiled: str, tmp_path: Path) -> None:
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    texts = [*map(str, TEXTS)] * 3
    auto, exact = Predictor(folder), Predictor(folder, dtype="float32")
    found = scores_of(auto.predict(texts))
    assert found == pytest.approx(scores_of(exact.predict(texts)), abs=0.02)
    assert (found != scores_of(exact.predict(texts))) == (compiled == "amx")
    alone = [score for text in texts for score in scores_of(auto.predict([text]))]
    assert found == pytest.approx(alone, abs=1e-6)


def test_a_run_that_began_without_compiled_code_ends_without_it(
    compiled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was compiled meanwhile, the file is that of one run."""
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 2)
    folder = saved(tmp_path / "model", "SequenceClassification", num_labels=3)
    rows = [(Source(), f"{text} {number}") for number, text in enumerate(TEXTS * 2)]
    predictors: list[Predictor] = []

    def run(name: str, setting: str, progress: Any = lambda texts: None) -> bytes:
        monkeypatch.setenv(cpu.VARIABLE, setting)
        predictors.append(Predictor(folder))
        predict_to_file(predictors[-1], rows, tmp_path / name, {}, progress)
        return (tmp_path / name).read_bytes()

    def interrupt(texts: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("resumed.jsonl", "0", interrupt)
    assert run("resumed.jsonl", "1") == run("straight.jsonl", "0")
    assert [is_compiled(predictor.model) for predictor in predictors] == [False] * 3  # files have four digits
    run("compiled.jsonl", "1")
    assert is_compiled(predictors[-1].model)
    with pytest.raises(KeyboardInterrupt):
        run("other.jsonl", "1", interrupt)
    with pytest.raises(UserError, match="instructions"):
        run("other.jsonl", "0")


def test_an_exported_model_is_not_asked_for_another_precision(tmp_path: Path) -> None:
    exported = SavedModel("exported", "text-classification", onnx=tmp_path / "model.onnx")
    with pytest.raises(UserError, match="--dtype bfloat16"):
        Predictor(exported, dtype="bfloat16")


@pytest.mark.slow
def test_bfloat16_changes_few_labels_of_real_reviews(compiled: str, tmp_path: Path) -> None:
    """At most 1 of 1,000, of texts that float32 is undecided about."""
    rows: dict[str, list[dict[str, Any]]] = {"train": [], "test": []}
    for domain in ("books", "kitchen_housewares", "MR"):
        for split in rows:
            path = data_folder("mtl16") / domain / f"{split}.jsonl.gz"
            rows[split] += [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    texts, labels = ([row[name] for row in rows["train"]] for name in ("text", "label"))
    StarClassifier(num_train_epochs=2).fit(texts, labels).save(tmp_path / "model")
    given = [row["text"] for row in rows["test"]] + texts[:2000]
    exact, fast = (
        [found for _, found in Predictor(tmp_path / "model", dtype=dtype).predict(given)]
        for dtype in ("float32", "auto")
    )
    changed = [one for one, other in zip(exact, fast, strict=True) if one[0]["label"] != other[0]["label"]]
    assert len(changed) <= len(given) / 1000
    assert all(found[0]["score"] - found[1]["score"] < 0.02 for found in changed)
