#!/usr/bin/env python
"""
Tag or classify texts with a saved model.

    python run_scripts/run_predict.py outputs/quickstart/model "Maria Keller moved to Oslo."
    python run_scripts/run_predict.py outputs/sst2 --file texts.txt --json > predictions.jsonl

Entities come with character offsets: text[start:end] is the entity.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def main() -> None:
    """Read the arguments, predict, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="folder or Hub name of a model for token or text classification")
    parser.add_argument("texts", nargs="*", metavar="TEXT", help="texts to read")
    parser.add_argument("--file", type=Path, help="a text file, one text a line")
    parser.add_argument("--batch_size", type=int, default=32, help="texts read at once (default: 32)")
    parser.add_argument("--json", action="store_true", help="print one JSON object a text instead of lines to read")
    parser.add_argument("--trust_remote_code", action="store_true", help="run the code that the model brings along")
    arguments = parser.parse_args()
    texts = list(arguments.texts)
    if arguments.file is not None:
        if not arguments.file.is_file():
            parser.error(f"--file {arguments.file} does not exist: name a text file, one text a line")
        texts += [line for line in arguments.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not texts:
        parser.error('no text is given: write run_predict.py MODEL "A text." or --file texts.txt')
    for text, found in predict(arguments.model, texts, arguments.batch_size, arguments.trust_remote_code):
        print(
            json.dumps({"text": text, "found": found}, ensure_ascii=False) if arguments.json else readable(text, found)
        )


def predict(model: str, texts: list[str], batch_size: int, trust_remote_code: bool) -> Iterator[tuple[str, Any]]:
    """Each text with its entities (`label`, `start`, `end`, `score`) or its labels (`label`, `score`)."""
    from transformers import AutoConfig, pipeline

    from modeling_star.pipelines import BestPathPipeline  # which also registers the models of this package

    config = AutoConfig.from_pretrained(model, trust_remote_code=trust_remote_code)
    kinds = {"ForTokenClassification": "token-classification", "ForSequenceClassification": "text-classification"}
    architecture = (config.architectures or [""])[0]
    task = next((task for ending, task in kinds.items() if architecture.endswith(ending)), None)
    if task is None:
        sys.exit(f"{model} is a {architecture}: a model for token or text classification is needed.")
    options: dict[str, Any] = {"top_k": None}
    if task == "token-classification":
        options = {"aggregation_strategy": "first", "pipeline_class": BestPathPipeline}
    run = pipeline(task, model, trust_remote_code=trust_remote_code, **options)
    for text, found in zip(texts, run(texts, batch_size=batch_size), strict=True):
        if task == "token-classification":
            yield (
                text,
                [
                    {
                        "label": entity["entity_group"],
                        "start": int(entity["start"]),
                        "end": int(entity["end"]),
                        "text": text[entity["start"] : entity["end"]],
                        "score": round(float(entity["score"]), 4),
                    }
                    for entity in found
                ],
            )
        else:
            yield text, [{"label": label["label"], "score": round(float(label["score"]), 4)} for label in found]


def readable(text: str, found: list[dict[str, Any]]) -> str:
    """Lines for a reader: the text, and what was found below it."""
    lines = [text]
    for entry in found:
        place = f"{entry['start']:>4}-{entry['end']:<4} {entry['text']!r} " if "start" in entry else ""
        lines.append(f"    {place}{entry['label']}  {entry['score']:.2f}")
    return "\n".join(lines if found else [*lines, "    (nothing)"])


if __name__ == "__main__":
    main()
