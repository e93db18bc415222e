#!/usr/bin/env python
"""
README's first command on the review sets of MTL-16: the ensemble that `classify` trains by default, and its halves.

    OMP_NUM_THREADS=1 python experiments/tfidf_vote.py DATA --seeds 1 2 3

The 1,400 texts of train are the training file, of which the command holds out a tenth; test is scored, and the
validation split of the sets is not used. Labels and predictions of the test texts, a digit each, are stored in
`experiments/results/tfidf_vote.jsonl` as the run SET-SEED, and a stored run is not repeated.
`reproduce.py --page` makes experiments/pages/tfidf_vote.md from them.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.stored_runs import RunFile

from modeling_star.data.readers import read_file
from modeling_star.evaluation.bootstrap import bootstrap_mean
from modeling_star.evaluation.metrics import count_examples, score_counts
from modeling_star.evaluation.reports import markdown_table
from modeling_star.inference.explain import encoder_alone
from modeling_star.inference.prediction import Predictor


RESULTS = Path("experiments/results")
SYSTEMS = ("ensemble", "encoder", "TF-IDF of tokens", "TF-IDF")
HEADING = """# Ensembles of TF-IDF and an encoder

Test accuracy on the 12 sets of MTL-16. Intervals are over test texts and seeds.

## The default of `classify`

README's first command (`--num_train_epochs 5`) trains an encoder and a TF-IDF of the model's own tokens, and
predicts with a weighted mean of both. "encoder" and "TF-IDF of tokens" are its two halves, "TF-IDF" is scikit-learn's
on words and pairs of words. Means over three seeds, by `experiments/tfidf_vote.py`, from
`experiments/results/tfidf_vote.jsonl`.
"""
TERMS = """## TF-IDF alone

Without an encoder, from the same file (runs SET-terms), by `experiments/tfidf_vote.py --terms_only` of commit ac87bc8.
"""
VOTING = """## Two separate models

star-plus with n-grams on MiniLM's frozen word embeddings, scikit-learn's TF-IDF, and the mean of their probabilities
(scikit-learn's `VotingClassifier`). One seed; train and validation are the training texts. A closed study:
`experiments/voting.py` of commit ac87bc8 made `experiments/results/voting.jsonl`.
"""
Answers = dict[str, Any]


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with mtl16/SET/train and test.jsonl.gz")
    parser.add_argument("--sets", nargs="+", help="sets of MTL-16 (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--results", type=Path, default=RESULTS / "tfidf_vote.jsonl")
    arguments = parser.parse_args()
    stored = RunFile(arguments.results)
    for seed in arguments.seeds:
        for name in arguments.sets or sorted(path.name for path in (arguments.data / "mtl16").iterdir()):
            if stored.read(f"{name}-{seed}") is None:
                answers = answers_of(arguments.data / "mtl16" / name, seed)
                stored.keep({f"{name}-{seed}": answers})
                scores = (f"{system} {accuracy([answers], system):.1f}" for system in SYSTEMS)
                print(f"{name}-{seed}: {', '.join(scores)}", flush=True)


def answers_of(data: Path, seed: int) -> Answers:
    """Train one seed on a set; the labels of the test texts and what each system predicts, a digit each."""
    rows = read_file(data / "test.jsonl.gz")
    texts = rows["text"][:]

    def predicted(predictor: Predictor) -> str:
        return "".join(found[0]["label"] for _, found in predictor.predict(texts))

    def trained(folder: str, *flags: str) -> float:
        command = [
            sys.executable,
            "-m",
            "modeling_star",
            "glue",
            "--do_train",
            "--do_eval",
            "--disable_tqdm=true",
            *flags,
        ]
        command += [f"--{split}_file={data / split}.jsonl.gz" for split in ("train", "test")]
        started = time.perf_counter()
        subprocess.run([*command, f"--seed={seed}", f"--output_dir={folder}"], check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - started

    answers: Answers = {"labels": "".join(map(str, rows["label"][:]))}
    with tempfile.TemporaryDirectory() as folder:
        seconds = {"TF-IDF": trained(f"{folder}/tfidf", "--model_type=tfidf")}
        answers["TF-IDF"] = predicted(Predictor(f"{folder}/tfidf"))
        seconds["all"] = trained(f"{folder}/ensemble", "--num_train_epochs=5", "--tfidf_baseline=false")
        predictor = Predictor(f"{folder}/ensemble")
        answers["ensemble"] = predicted(predictor)
        with encoder_alone(predictor.model):
            answers["encoder"] = predicted(predictor)
        vote = predictor.model.classifier.vote
        share, vote.share = float(vote.share), vote.share.new_tensor(1 - 1e-6)
        answers["TF-IDF of tokens"] = predicted(predictor)
        return {**answers, "share": share, "temperature": float(vote.temperature), "seconds": seconds}


def page_sections(results: Path) -> Iterator[str]:
    """The page of both studies, from what is stored as SET-SEED, SET-terms and SET."""
    runs: dict[str, list[Answers]] = {}
    terms: dict[str, list[Answers]] = {}
    for stem, answers in RunFile(results / "tfidf_vote.jsonl").read_all().items():
        name, _, seed = stem.rpartition("-")
        (terms if seed == "terms" else runs).setdefault(name, []).append(answers)
    voting = {name: [answers] for name, answers in RunFile(results / "voting.jsonl").read_all().items()}
    seconds = [each["seconds"]["all"] for seeds in runs.values() for each in seeds]
    yield HEADING
    yield results_table(runs, SYSTEMS)
    yield f"\n{len(seconds)} runs of {np.median(seconds):.0f} seconds in the median, on a machine with other work.\n"
    yield TERMS
    yield results_table(terms, SYSTEMS[2:])
    yield f"\n{VOTING}"
    yield results_table(voting, ("ensemble", "star-plus", "TF-IDF"))


def accuracy(seeds: Sequence[Answers], system: str) -> float:
    """The mean over seeds, percent."""
    return 100 * float(np.mean([score_counts("accuracy", counts) for counts in counts_of(seeds, system)]))


def counts_of(seeds: Sequence[Answers], system: str) -> list[np.ndarray]:
    """What each test text adds to the accuracy, for each seed."""
    return [count_examples("accuracy", [*each["labels"]], [*each[system]]) for each in seeds]


def results_table(stored: Mapping[str, Sequence[Answers]], systems: Sequence[str]) -> str:
    """Mean accuracies in percent, and the first system's differences with 95 % intervals over test texts and seeds."""
    scores = np.array([[accuracy(seeds, system) for system in systems] for seeds in stored.values()])
    rows = [[name, *(f"{score:.1f}" for score in row)] for name, row in zip(stored, scores, strict=True)]
    rows.append(["mean", *(f"{score:.1f}" for score in scores.mean(0))])
    for other in systems[1:]:
        pairs = [(counts_of(seeds, systems[0]), counts_of(seeds, other)) for seeds in stored.values()]
        difference, low, high = (100 * number for number in bootstrap_mean([("accuracy", *pair) for pair in pairs]))
        rest = [""] * (len(systems) - 1)
        rows.append([f"{systems[0]} minus {other}", f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]", *rest])
    return markdown_table(["", *systems], rows)


if __name__ == "__main__":
    main()
