#!/usr/bin/env python
"""
TF-IDF of `classify` against scikit-learn's, and what an encoder adds to it.

    OMP_NUM_THREADS=1 python experiments/linear.py DATA --linear SET ...
    OMP_NUM_THREADS=1 python experiments/linear.py DATA --encoder SET:ROWS:SEED ...

SET is a folder of DATA with train, validation and test.jsonl.gz. `--linear` fits scikit-learn's five lines (words, of
Chinese characters, and pairs of them, C=10) and `classify --model_type tfidf` to train and validation, and stores the
labels and predictions of the test texts in experiments/results/linear.jsonl, a character for each class. `--encoder`
trains `classify --tfidf_vote true` for five epochs on so many training texts (0: all), of which it holds out a tenth,
and stores in encoder_gain.jsonl what TF-IDF, the encoder and their ensemble predict. A stored run is not repeated; the
page is made by `reproduce.py --page`.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from harness.launching import commit
from harness.stored_runs import RunFile
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from modeling_star.commands.parser import from_values
from modeling_star.data.readers import read_file
from modeling_star.data.writing_systems import FIRST_CJK
from modeling_star.inference.explain import encoder_alone
from modeling_star.inference.prediction import Predictor
from modeling_star.runs.run import run
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.arguments import ClassificationArguments, ClassificationModelArguments, LabelRunArguments


GROUPS = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
RESULTS = Path(__file__).parent / "results"
Rows = list[dict[str, str]]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--linear", nargs="+", default=[], metavar="SET")
    parser.add_argument("--encoder", nargs="+", default=[], metavar="SET:ROWS:SEED")
    arguments = parser.parse_args()
    studies = {"linear": (arguments.linear, linear), "encoder_gain": (arguments.encoder, encoder_gain)}
    for study, (names, answers_of) in studies.items():
        file = RunFile(RESULTS / f"{study}.jsonl")
        for name in names:
            if file.read(name) is None:
                file.keep({name: answers_of(arguments.data, name)})


def rows_of(folder: Path, split: str) -> Rows:
    """Texts and classes of a split, as strings."""
    rows = read_file(folder / f"{split}.jsonl.gz")
    text = "text" if "text" in rows.column_names else "sentence"
    return [{"text": row[text], "label": f"class {row['label']}"} for row in rows]


def classify(splits: dict[str, Rows], folder: str, **given: Any) -> Any:
    """The task of the command on some rows."""
    files = {}
    for name, rows in splits.items():
        files[f"{name}_file"] = f"{folder}/{name}.jsonl"
        Path(files[f"{name}_file"]).write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    given = {"do_train": True, "do_eval": True, "do_predict": True, "disable_tqdm": True, **given}
    return run(ClassificationTask, *from_values(GROUPS, {**files, "output_dir": f"{folder}/model", **given}))[0]


def count_words(text: str) -> int:
    """Words between spaces, and Chinese and Japanese letters."""
    return len(text.split()) + sum(ord(letter) >= FIRST_CJK for letter in text)


def digits(labels: list[str], classes: list[str]) -> str:
    """A character for each label."""
    return "".join(chr(ord("0") + classes.index(label)) for label in labels)


def linear(data: Path, name: str) -> dict[str, Any]:
    """The answers of both linear models on a set, and the seconds of a CPU core that they take, with prediction."""
    splits = {split: rows_of(data / name, split) for split in ("train", "validation", "test")}
    fitted = splits["train"] + splits["validation"]
    classes = sorted({row["label"] for row in fitted})
    texts, began = [row["text"] for row in splits["test"]], time.process_time()
    is_chinese = ord(max(splits["train"][0]["text"])) >= FIRST_CJK
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), analyzer="char" if is_chinese else "word")
    peer = make_pipeline(vectorizer, LogisticRegression(C=10, max_iter=1000))
    peer.fit([row["text"] for row in fitted], [row["label"] for row in fitted])
    answers = {"scikit-learn": peer.predict(texts).tolist(), "labels": [row["label"] for row in splits["test"]]}
    seconds = {"scikit-learn": time.process_time() - began}
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        classify(splits, folder, model_type="tfidf")
        seconds["TF-IDF"] = time.process_time() - began
        answers["TF-IDF"] = Predictor(f"{folder}/model").labels(texts)
    return {**{system: digits(given, classes) for system, given in answers.items()}, "seconds": seconds}


def encoder_gain(data: Path, name: str) -> dict[str, Any]:
    """The answers of TF-IDF, the encoder and both on a part of a set."""
    name, size, seed = name.split(":")
    rows = rows_of(data / name, "train")
    order = np.random.default_rng(7).permutation(len(rows))[: int(size) or None]
    splits = {"train": [rows[index] for index in order], "test": rows_of(data / name, "test")}
    classes, began = sorted({row["label"] for row in rows}), time.process_time()
    texts = [row["text"] for row in splits["test"]]
    with tempfile.TemporaryDirectory() as folder:
        gain, error = classify(splits, folder, tfidf_vote=True, num_train_epochs=5, seed=int(seed)).linear.gain
        seconds, predictor = time.process_time() - began, Predictor(f"{folder}/model", dtype=None)
        answers = {"labels": [row["label"] for row in splits["test"]], "ensemble": predictor.labels(texts)}
        with encoder_alone(predictor.model):
            answers["encoder"] = predictor.labels(texts)
        vote = predictor.model.classifier.vote
        share, vote.share = float(vote.share), vote.share.new_tensor(1 - 1e-6)
        answers["TF-IDF"] = predictor.labels(texts)
    words = float(np.mean([count_words(row["text"]) for row in splits["train"]]))
    stored = {system: digits(given, classes) for system, given in answers.items()}
    return {
        **stored,
        "share": share,
        "seconds": seconds,
        "words": words,
        "rows": len(order),
        "commit": commit(Path(__file__).parents[1]),
        "gain": gain,
        "error": error,
    }


if __name__ == "__main__":
    main()
