#!/usr/bin/env python
"""
A vote of star-plus and TF-IDF on the review sets of MTL-16 (`VotingClassifier` of two models).

    OMP_NUM_THREADS=1 python experiments/voting.py DATA --embeddings MINILM

The texts of train and validation of each set train the classifiers; star-plus holds out a tenth of them. The labels
and predictions of the test texts are kept in `experiments/voting/SET.json`, and a set that has this file is not run
again. `experiments/voting/results.md` is made from all of them.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from sklearn.ensemble import VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from modeling_star import StarClassifier
from modeling_star.evaluation.bootstrap import bootstrap_mean, count_examples, score_counts
from modeling_star.files import write_json


FOLDER = Path("experiments/voting")
SYSTEMS = ("star-plus", "TF-IDF", "vote")
HEADING = """# A vote of star-plus and TF-IDF

Test accuracy on the sets of MTL-16, one seed; intervals are over the test texts. `experiments/voting.py` trains
star-plus with n-grams on MiniLM's frozen word embeddings, and TF-IDF; the vote is the mean of their probabilities.

"""
Answers = dict[str, list[int]]


def main() -> None:
    """Run the sets that are missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with mtl16/SET/train, validation and test.jsonl.gz")
    parser.add_argument("--embeddings", required=True, help="a BERT: a Hub name or a folder")
    parser.add_argument("--sets", nargs="+", help="sets of MTL-16 (default: all)")
    arguments = parser.parse_args()
    for name in arguments.sets or sorted(path.name for path in (arguments.data / "mtl16").iterdir()):
        file = FOLDER / f"{name}.json"
        if not file.exists():
            splits = ("train", "validation", "test")
            files = {split: str(arguments.data / "mtl16" / name / f"{split}.jsonl.gz") for split in splits}
            write_json(file, predictions(datasets.load_dataset("json", data_files=files), arguments.embeddings))
    page = results_page({file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))})
    (FOLDER / "results.md").write_text(page)
    print(page)


def predictions(data: Any, embeddings: str) -> Answers:
    """Train on train and validation; the labels of the test texts, and what each system predicts."""
    star = StarClassifier(
        config_overrides="hidden_size=192,ngram_buckets=262144",
        num_train_epochs=12,
        learning_rate=1e-3,
        batch_size=16,
        arguments={
            **{"embeddings_name_or_path": embeddings, "freeze_embeddings": True, "max_seq_length": 256},
            "config_name": "configuration/models/star-plus.json",
        },
    )
    tfidf = make_pipeline(TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True), LogisticRegression(C=30))
    vote = VotingClassifier([("star", star), ("tfidf", tfidf)], voting="soft")
    train = datasets.concatenate_datasets([data["train"], data["validation"]])
    vote.fit(train["text"][:], train["label"][:])
    texts = data["test"]["text"][:]
    found = [*(part.predict(texts) for part in vote.estimators_), vote.predict(texts)]
    answers = {system: predicted.tolist() for system, predicted in zip(SYSTEMS, found, strict=True)}
    return {"labels": data["test"]["label"][:], **answers}


def results_page(sets: dict[str, Answers]) -> str:
    """The accuracies in percent, their means, and the differences with 95 % intervals over the test texts."""
    counts = {
        name: {system: count_examples("accuracy", answers["labels"], answers[system]) for system in SYSTEMS}
        for name, answers in sets.items()
    }
    scores = np.array([[100 * score_counts("accuracy", of[system]) for system in SYSTEMS] for of in counts.values()])
    rows = [[name, *(f"{score:.1f}" for score in row)] for name, row in zip(counts, scores, strict=True)]
    rows.append(["mean", *(f"{score:.1f}" for score in scores.mean(0))])
    for other in SYSTEMS[:2]:
        interval = bootstrap_mean([("accuracy", [of["vote"]], [of[other]]) for of in counts.values()])
        difference, low, high = (100 * number for number in interval)
        rows.append([f"vote minus {other}", "", "", f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"])
    lines = [["", *SYSTEMS], [":--", *["--:"] * 3], *rows]
    return HEADING + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    main()
