"""Attention transfer: what a layer learns, and that its error falls."""

from pathlib import Path

import torch
from repair import layer_errors
from script_samples import write_bert
from torch import nn
from transformers import AutoModel, AutoTokenizer


TEXTS = ["a film about a quiet town by the sea and its people", "a dull film"]


def test_a_window_loses_attention_that_its_layer_learns_back(tmp_path: Path) -> None:
    write_bert(tmp_path, TEXTS, layers=3)
    model = AutoModel.from_pretrained(tmp_path).eval()
    inputs = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, return_tensors="pt")
    students = nn.ModuleDict({"0": model.encoder.layer[0].attention, "2": model.encoder.layer[2].attention})
    whole = layer_errors(model, students, inputs, radius=100, last=False)
    assert all(error < 1e-9 for error in whole.values()), whole
    before = layer_errors(model, students, inputs, radius=1, last=False)
    assert before.keys() == {"0", "2"}
    assert all(error > 1e-9 for error in before.values())
    assert before != layer_errors(model, students, inputs, radius=1, last=True)
    again = AutoModel.from_pretrained(tmp_path).eval()
    learning = nn.ModuleDict({name: again.encoder.layer[int(name)].attention for name in students})
    optimizer = torch.optim.AdamW(learning.parameters(), lr=1e-3, weight_decay=0.0)
    for _ in range(20):
        errors = layer_errors(model, learning, inputs, radius=1, last=False)
        optimizer.zero_grad()
        sum(errors.values()).backward()
        optimizer.step()
    assert all(errors[name] < 0.9 * before[name] for name in before)
