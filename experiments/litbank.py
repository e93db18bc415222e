#!/usr/bin/env python
"""
Entities of whole works of 2,000 words: what a tagger gains and loses where it reads them in parts.

    OMP_NUM_THREADS=1 python experiments/litbank.py DATA --seeds 1 2 3

A fresh model of the `tag` command is trained on the works of LitBank (DATA/litbank) whole, cut into windows of 256
words, and cut into sentences, in batches of as many tokens, and tags the test works in the same form. F1 is of the
entities of each work, whose labels are put together again. Then the first 100 words of each test work are dropped and
the rest is tagged again: entities after them that differ are counted. One file a run is kept in `experiments/litbank`,
and what has this file is not run again; `experiments/litbank/results.md` is made from all of them.
"""

import argparse
import gzip
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from seqeval.metrics.sequence_labeling import get_entities

from modeling_star.commands.ner import GROUPS
from modeling_star.commands.parser import from_values
from modeling_star.data.readers import read_file
from modeling_star.evaluation.bootstrap import bootstrap_counts, count_examples, score_counts
from modeling_star.files import write_json
from modeling_star.inference.prediction import Predictor
from modeling_star.runs.run import run
from modeling_star.tasks.token_classification import TaggingTask


FOLDER = Path("experiments/litbank")
UNITS = {"work": "whole works", "window": "windows of 256 words", "sentence": "sentences"}
WINDOW, SHIFT = 256, 100
TRAINING = {
    "num_train_epochs": 12,
    "learning_rate": 1e-3,
    "warmup_steps": 0.1,
    "per_device_train_batch_size": 2048,
    "per_device_eval_batch_size": 32,
    "max_tokens_per_batch": 8192,
    "do_train": True,
    "do_eval": True,
    "disable_tqdm": True,
}
HEADING = """# Entities of whole works

Entity F1 on the 10 test works of LitBank, and the share of entities that differ when the first 100 words of a work are
dropped: those behind them that only one of both readings has, of those that either has. Made by
`python experiments/litbank.py` with a fresh model of the `tag` command, 12 epochs, learning rate 0.001, batches of
8,192 tokens; intervals (95 %) are over works and seeds.
"""
Work = Mapping[str, Any]


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with litbank/train, validation and test.jsonl.gz")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    arguments = parser.parse_args()
    splits = {name: list(read_file(arguments.data / f"litbank/{name}.jsonl.gz")) for name in ("train", "validation")}
    test = list(read_file(arguments.data / "litbank/test.jsonl.gz"))
    for seed in arguments.seeds:
        for unit in UNITS:
            file = FOLDER / f"{unit}-{seed}.json"
            if not file.exists():
                write_json(file, results_of(unit, seed, splits, test))
    page = results_page({file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))})
    (FOLDER / "results.md").write_text(page)
    print(page)


def results_of(unit: str, seed: int, splits: Mapping[str, list[Work]], test: list[Work]) -> dict[str, Any]:
    """Train one seed on parts of works, and count what it finds in each test work."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, works in splits.items():
            with gzip.open(folder / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
                for work in works:
                    for part in map(slice, *zip(*pairwise(edges(unit, work)), strict=True)):
                        row = {column: work[column][part] for column in ("tokens", "ner_tags")}
                        file.write(json.dumps(row) + "\n")
        files = {f"{split}_file": str(folder / f"{split}.jsonl.gz") for split in splits}
        columns = {"text_column_name": "tokens", "label_column_name": "ner_tags"}
        started = time.process_time()
        run(
            TaggingTask,
            *from_values(GROUPS, {**files, **columns, **TRAINING, "output_dir": f"{name}/model", "seed": seed}),
        )
        seconds = {"training": time.process_time() - started}
        predictor = Predictor(f"{name}/model", dtype="float32")
        started = time.process_time()
        found = [tags_of(predictor, unit, work, 0) for work in test]
        seconds["test"] = time.process_time() - started
        shifted = [tags_of(predictor, unit, work, SHIFT) for work in test]
    changed, either = np.sum([differences(*pair) for pair in zip(found, shifted, strict=True)], axis=0).tolist()
    counts = count_examples("entity_f1", [work["ner_tags"] for work in test], found)
    return {"counts": counts.tolist(), "changed": changed, "either": either, "seconds": seconds}


def edges(unit: str, work: Work, first: int = 0) -> list[int]:
    """The word at which each part of a work begins, from a given word on, and the end."""
    end = len(work["tokens"])
    starts = {"work": [first], "window": range(first, end, WINDOW), "sentence": [first, *work["sentence_starts"]]}
    return [*sorted({start for start in starts[unit] if start >= first}), end]


def tags_of(predictor: Predictor, unit: str, work: Work, first: int) -> list[str]:
    """The labels of a work's words from a given one on, read part by part."""
    parts = [work["tokens"][start:end] for start, end in pairwise(edges(unit, work, first))]
    return [tag or "O" for tags in predictor.tag_words(parts) for tag in tags]


def differences(whole: Sequence[str], shifted: Sequence[str]) -> tuple[int, int]:
    """The entities after the dropped words that only one reading has, and those that either has."""
    entities = [set(get_entities(list(tags))) for tags in (whole[SHIFT:], shifted)]
    return len(entities[0] ^ entities[1]), len(entities[0] | entities[1])


def results_page(runs: Mapping[str, dict[str, Any]]) -> str:
    """The table, from what is kept by UNIT-seed."""
    lines = [
        "| read as | seeds | F1 | minus whole works | differ after the shift | minutes of training |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    of = {unit: [kept for stem, kept in runs.items() if stem.startswith(f"{unit}-")] for unit in UNITS}
    counts = {unit: [np.array(kept["counts"]) for kept in each] for unit, each in of.items()}
    for unit, kept in of.items():
        if not kept:
            continue
        score = 100 * np.mean([score_counts("entity_f1", each) for each in counts[unit]])
        interval = bootstrap_counts("entity_f1", counts[unit], counts["work"])
        minus = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * number for number in interval))
        shift = 100 * sum(each["changed"] for each in kept) / sum(each["either"] for each in kept)
        minutes = np.mean([each["seconds"]["training"] for each in kept]) / 60
        lines.append(
            f"| {UNITS[unit]} | {len(kept)} | {score:.1f} | {'' if unit == 'work' else minus} | {shift:.1f} % | "
            f"{minutes:.1f} |"
        )
    return "\n".join([HEADING, *lines, ""])


if __name__ == "__main__":
    main()
