"""The precision of predictions: chosen by name, or by what the processor computes."""

import gzip
import json
from pathlib import Path

import pytest
import torch
from real_data import data_folder
from saved_models import SCHEMES, TEXTS, saved

from modeling_star.errors import UserError
from modeling_star.estimators import StarClassifier
from modeling_star.inference import Predictor, torch_runtime
from modeling_star.inference.prediction import SavedModel


@pytest.mark.parametrize("has_bfloat16", [False, True])
def test_auto_is_bfloat16_where_the_processor_computes_it(
    has_bfloat16: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": has_bfloat16}, raising=False)
    monkeypatch.setattr(torch_runtime, "_device", lambda: torch.device("cpu"))
    folder = saved(tmp_path / "model", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])), use_crf=True)
    assert Predictor(folder).model.dtype == torch.float32
    auto = Predictor(folder, dtype="auto")
    assert auto.model.dtype == (torch.bfloat16 if has_bfloat16 else torch.float32)
    assert auto.options != Predictor(folder).options, "parts of another precision are refused"
    for (_, found), (_, expected) in zip(auto.predict(TEXTS), Predictor(folder).predict(TEXTS), strict=True):
        assert [type(entity["score"]) for entity in found] == [float] * len(found)
        assert abs(len(found) - len(expected)) <= 2


def test_an_exported_model_is_not_asked_for_another_precision(tmp_path: Path) -> None:
    exported = SavedModel("exported", "text-classification", onnx=tmp_path / "model.onnx")
    with pytest.raises(UserError, match="--dtype bfloat16"):
        Predictor(exported, dtype="bfloat16")


@pytest.mark.slow
def test_bfloat16_changes_few_labels_of_real_reviews(tmp_path: Path) -> None:
    """Those of texts that float32 is undecided about: with both labels within 0.05 of each other."""
    rows = {}
    for split in ("train", "test"):
        path = data_folder("mtl16") / "books" / f"{split}.jsonl.gz"
        rows[split] = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    texts, labels = ([row[name] for row in rows["train"]] for name in ("text", "label"))
    StarClassifier(num_train_epochs=3).fit(texts, labels).save(tmp_path / "model")
    given = [row["text"] for row in rows["test"]] + texts[:600]
    exact, fast = (
        [found for _, found in Predictor(tmp_path / "model", dtype=dtype).predict(given)]
        for dtype in ("float32", "bfloat16")
    )
    changed = [one for one, other in zip(exact, fast, strict=True) if one[0]["label"] != other[0]["label"]]
    assert len(changed) <= len(given) / 200
    assert all(found[0]["score"] - found[1]["score"] < 0.05 for found in changed)
