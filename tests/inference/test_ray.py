"""The example for Ray Data writes what the predictor finds, from two workers of a local cluster."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from common import TINY
from script_runner import ROOT

from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.inference import Predictor


pytest.importorskip("ray")

NICE = {"RAY_worker_niceness": "0"}  # 15 by default, which starves workers beside other tests


@pytest.mark.slow
def test_two_workers_find_what_one_predictor_does(tmp_path: Path) -> None:
    texts = [f"Ada Lovelace met Charles {name} in London ." for name in ("Babbage", "Dickens", "Darwin")] * 20
    torch.manual_seed(1)
    tokenizer = train_tokenizer(texts, "word")
    names = ["O", "B-PER", "I-PER", "B-LOC"]
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    fields = {**TINY, "vocab_size": len(tokenizer), **labels}
    fields.pop("num_labels")
    model = StarTransformerForTokenClassification(StarTransformerConfig(**fields))
    for weight in model.parameters():
        weight.data.mul_(4)
    model.save_pretrained(tmp_path / "tagger")
    tokenizer.save_pretrained(tmp_path / "tagger")
    rows = [{"id": number, "text": text} for number, text in enumerate([*texts, *["Unknown words only"] * 20])]
    files = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for file, part in zip(files, (rows[:50], rows[50:]), strict=True):
        file.write_text("".join(json.dumps(row) + "\n" for row in part), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, ROOT / "docs" / "predict_ray.py", "tagger", "out.jsonl", *files, "--workers=2"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", **NICE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    found = Predictor(tmp_path / "tagger")({"text": [row["text"] for row in rows]})["found"]
    assert any(found)
    assert written == [{**row, "found": each} for row, each in zip(rows, found, strict=True)]
