"""
Predict with an exported model, without PyTorch: pip install onnxruntime numpy tokenizers

    python predict.py "A fine film." "Another one."
    python predict.py --pairs "Who moved to Oslo?" "Maria moved to Oslo."
"""

import argparse
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer


FOLDER = Path(__file__).parent
COLUMNS = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}


def check_files() -> None:
    """End where a file of the folder is not as `export` wrote it."""
    try:
        files = json.loads((FOLDER / "manifest.json").read_text(encoding="utf-8"))["files"].items()
    except (OSError, ValueError, LookupError) as error:
        raise SystemExit(f"manifest.json cannot be read ({error}): export the model again") from None
    for name, written in files:
        if hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() != written["sha256"]:
            raise SystemExit(
                f"{name} is not as it was written: copy it or export the model again. If you changed it on purpose, "
                f"write python -m modeling_star.files {FOLDER}"
            )


def run(texts: list[Any]) -> tuple[list[Encoding], dict[str, np.ndarray]]:
    """Tokens and outputs of a batch of texts or pairs of texts."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # an error, not that an input has a default
    session = onnxruntime.InferenceSession(FOLDER / "model.onnx", options)
    encodings = Tokenizer.from_file(str(FOLDER / "tokenizer.json")).encode_batch(texts)
    inputs = {x.name: np.array([getattr(row, COLUMNS[x.name]) for row in encodings]) for x in session.get_inputs()}
    names = [output.name for output in session.get_outputs()]
    return encodings, dict(zip(names, session.run(None, inputs), strict=True))


def main() -> None:
    """Print labels of texts, tags of words, answers, or the outputs as they are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--pairs", action="store_true")
    arguments = parser.parse_args()
    check_files()
    texts = arguments.texts
    config = json.loads((FOLDER / "config.json").read_text(encoding="utf-8"))
    labels = {int(index): label for index, label in config.get("id2label", {}).items()}
    rows = list(zip(texts[::2], texts[1::2], strict=True)) if arguments.pairs else texts
    encodings, outputs = run(rows)
    logits = outputs.get("logits")
    if "start_logits" in outputs:
        for (_, context), encoding, start, end in zip(rows, encodings, *outputs.values(), strict=True):
            inside = np.array([side == 1 for side in encoding.sequence_ids])
            spans = np.where(np.triu(np.outer(inside, inside)), start[:, None] + end, -np.inf)
            first, last = np.unravel_index(spans.argmax(), spans.shape)
            print(context[encoding.offsets[first][0] : encoding.offsets[last][1]])
    elif logits is not None and logits.ndim == 2:
        for row in logits:
            several = config.get("problem_type") == "multi_label_classification"
            scores = 1 / (1 + np.exp(-row)) if several else np.exp(row - row.max()) / np.exp(row - row.max()).sum()
            scores = row if config.get("problem_type") == "regression" else scores
            print(*(f"{labels[index]} {scores[index]:.4f}" for index in np.argsort(-scores)), sep="  ")
    elif logits is not None and logits.shape[-1] == len(labels):
        paths = outputs.get("paths", logits.argmax(-1))
        for text, encoding, path in zip(texts, encodings, paths, strict=True):
            firsts = {
                word: column for column, word in reversed(list(enumerate(encoding.word_ids))) if word is not None
            }
            for word, column in sorted(firsts.items()):
                start, end = encoding.word_to_chars(word)
                print(f"{start:>4}-{end:<4} {text[start:end]} {labels[path[column]]}")
    else:
        for name, values in outputs.items():
            print(name, values.shape, values, sep="\n")


if __name__ == "__main__":
    main()
