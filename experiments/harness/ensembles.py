"""The page of ensembles of TF-IDF and an encoder, from stored labels and predictions, a digit for each test text."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from harness.stored_runs import RunFile
from modeling_star.evaluation.bootstrap import bootstrap_mean
from modeling_star.evaluation.metrics import count_examples, score_counts
from modeling_star.evaluation.reports import markdown_table


SYSTEMS = ("ensemble", "encoder", "TF-IDF of tokens", "TF-IDF")
HEADING = """# Ensembles of TF-IDF and an encoder

Test accuracy on the 12 sets of MTL-16. Intervals are over test texts and seeds.

## The default of `classify`

README's first command (`--num_train_epochs 5`) trains an encoder and a TF-IDF of the model's own tokens, and
predicts with a weighted mean of both. "encoder" and "TF-IDF of tokens" are its two halves, "TF-IDF" is scikit-learn's
on words and pairs of words. Means over three seeds, by `experiments/tfidf_vote.py` of commit
ac87bc8, from `experiments/results/tfidf_vote.jsonl`.
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
