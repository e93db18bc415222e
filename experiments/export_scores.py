#!/usr/bin/env python
"""
Sizes and test scores of trained models in PyTorch, in ONNX Runtime, and there with weights of 8 bits.

    modeling-star classify --train_file ... --test_file ... --output_dir outputs/star
    modeling-star tag --train_file ... --test_file ... --output_dir outputs/tagger
    python experiments/export_scores.py outputs/star outputs/tagger

The models are classifiers of single texts and taggers, scored on the test file that they were trained with: accuracy,
or F1 of entities. Prints a Markdown table; "difference" is the largest between PyTorch and the float32 file on random
ids at lengths of 1 to 4,096 tokens, or the model's limit.
"""

import argparse
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnxruntime
import torch
from datasets import DatasetDict
from torch import Tensor
from transformers import PreTrainedConfig

from modeling_star.data.columns import find_tagging_columns
from modeling_star.data.readers import read_file
from modeling_star.evaluation.reports import markdown_table
from modeling_star.inference.export import compare, input_names, load, write_export
from modeling_star.inference.prediction import Predictor
from modeling_star.models.modeling_encoder import longest_input


LENGTHS = (1, 2, 3, 16, 128, 512, 2048, 4096)


class OnnxModel:
    """
    What `Predictor` calls in place of a model of PyTorch.

    Args:
        path: an exported file.
        config: of the model.
    """

    device = torch.device("cpu")

    def __init__(self, path: Path, config: PreTrainedConfig):
        self.config = config
        self.session = onnxruntime.InferenceSession(path)
        self.outputs = [output.name for output in self.session.get_outputs()]

    def __call__(self, return_dict: bool = True, **inputs: Tensor) -> Any:
        values = self.session.run(self.outputs, {name: x.numpy() for name, x in inputs.items()})
        return SimpleNamespace(**dict(zip(self.outputs, map(torch.from_numpy, values), strict=True)))


def score(predictor: Predictor, rows: Any, columns: tuple[str, str]) -> float:
    """Accuracy of labels, or F1 of entities, in percent."""
    texts, labels = (rows[name][:] for name in columns)
    found = [predictions for _, predictions in predictor.predict(texts)]
    if predictor.saved.task == "text-classification":
        return 100 * float(
            np.mean([best[0]["label"] == str(label) for best, label in zip(found, labels, strict=True)])
        )
    right = predicted = real = 0
    for words, tags, entities in zip(texts, labels, found, strict=True):
        ends = np.cumsum([len(word) + 1 for word in words])
        ids = np.array([predictor.model.config.label2id[tag] for tag in tags])
        gold = {
            (label, int(ends[first] - len(words[first]) - 1), int(ends[last - 1] - 1))
            for label, first, last in predictor.entity_groups(ids)
        }
        guess = {(entity["label"], entity["start"], entity["end"]) for entity in entities}
        right, predicted, real = right + len(gold & guess), predicted + len(guess), real + len(gold)
    return 200 * right / (predicted + real)


def measure(folder: str) -> list[object]:
    """A row of the table."""
    predictor = Predictor(folder)
    predictor.delimiter = " "
    trained = predictor.saved.arguments
    rows = read_file(trained["test_file"])
    is_tagger = predictor.saved.task == "token-classification"
    columns = (
        (trained["text_columns"][0], "label")
        if not is_tagger
        else find_tagging_columns(DatasetDict({"test": rows}), label_column_name=trained["label_column_name"])
    )
    model, tokenizer = load(folder)
    limit = longest_input(model.config) or max(LENGTHS)
    generator = np.random.default_rng(0)
    batches = []
    for length in (length for length in LENGTHS if length <= limit):
        ids = generator.integers(5, model.config.vocab_size, (2, length))
        inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        batches.append({name: inputs[name] for name in input_names(tokenizer)})
    cells: list[object] = [Path(folder).name, f"{score(predictor, rows, columns):.2f}"]
    size = Path(folder, "model.safetensors").stat().st_size / 1e6
    cells.append(f"{size:.1f}")
    with tempfile.TemporaryDirectory() as parent:
        exported = Path(parent, "onnx")
        parities = write_export(model, tokenizer, exported, int8=True)
        for name in ("model.onnx", "model.int8.onnx"):
            vars(predictor)["model"] = OnnxModel(exported / name, model.config)
            cells += [f"{score(predictor, rows, columns):.2f}", f"{(exported / name).stat().st_size / 1e6:.1f}"]
        cells.append(f"{compare(model, exported / 'model.onnx', batches).largest:.1e}")
        cells.append(f"{100 * compare(model, exported / 'model.int8.onnx', batches).agreement:.1f}")
    print(folder, *cells, {name: parity.largest for name, parity in parities.items()}, flush=True)
    return cells


def main() -> None:
    """Measure the folders of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="outputs of glue and ner")
    header = ["model", "score", "MB", "ONNX", "MB", "int8", "MB", "difference", "equal in int8, %"]
    print(markdown_table(header, [measure(folder) for folder in parser.parse_args().folders]))


if __name__ == "__main__":
    main()
