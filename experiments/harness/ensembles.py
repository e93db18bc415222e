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
HEADING = """# TF-IDF, and what an encoder adds to it

Test accuracy. Intervals are over test texts and seeds.

## The linear model

`classify --model_type tfidf` on the files of train and validation, and scikit-learn's five lines on the same rows:
`TfidfVectorizer(ngram_range=(1, 2))`, of Chinese with `analyzer="char"`, and `LogisticRegression(C=10)`. "before" is
the TF-IDF of the earlier default, fitted to nine tenths of train (the TF-IDF alone below). Seconds are of
one CPU core, with tokenizer, reports and prediction. By `experiments/linear.py --linear`, from
`experiments/results/linear.jsonl`.
"""
GAIN = """
## Where an encoder adds

TF-IDF, a randomly initialised star-plus-2 of five epochs, and the ensemble of both (`classify --tfidf_vote true`);
"gain" is what the mean log loss of the held-out tenth falls by, against a TF-IDF without a temperature. `classify`
alone once trained the encoder where 1,000 and more texts have fewer than 40 words, and kept it where the gain exceeded
its error: on average it added what the last row says, and took much longer, so that now it trains TF-IDF alone.
That rule was made from the rows with ¹ (with the TF-IDF before the linear model above: commit 65b08be7). GLUE's test
has no labels: its validation file was copied to test.jsonl.gz. One seed each, by `experiments/linear.py
--encoder`, from `experiments/results/encoder_gain.jsonl`.
"""
DEFAULT = """
The reviews of MTL-16 in the next section have 100 to 200 words, but for MR, with 21.

## The earlier default of `classify`

`classify --num_train_epochs 5` trained an encoder and a TF-IDF of the model's own tokens, and predicted with a
weighted mean of both. "encoder" and "TF-IDF of tokens" are its two halves, "TF-IDF" is scikit-learn's on words and
pairs of words. The 12 sets of MTL-16, means over three seeds, by `experiments/tfidf_vote.py` of commit ac87bc8, from
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
    yield linear_table(results, terms)
    yield GAIN
    yield gain_table(results)
    yield DEFAULT
    yield results_table(runs, SYSTEMS)
    yield f"\n{len(seconds)} runs of {np.median(seconds):.0f} seconds in the median, on a machine with other work.\n"
    yield TERMS
    yield results_table(terms, SYSTEMS[2:])
    yield f"\n{VOTING}"
    yield results_table(voting, ("ensemble", "star-plus", "TF-IDF"))


def linear_table(results: Path, before: Mapping[str, Sequence[Answers]]) -> str:
    """Accuracies and seconds of both linear models on all sets, and the mean of the review sets."""
    rows: list[list[str]] = []
    stored = {
        name.removeprefix("mtl16/"): [answers]
        for name, answers in RunFile(results / "linear.jsonl").read_all().items()
    }
    reviews = {name: seeds for name, seeds in stored.items() if name in before}
    rest = {name: seeds for name, seeds in stored.items() if name not in before}
    for name, seeds in (*reviews.items(), ("mean of MTL-16", None), *rest.items()):
        each = [*reviews.values()] if seeds is None else [seeds]
        old = [*before.values()] if seeds is None else [before[name]] if name in before else []
        scores = [f"{np.mean([accuracy(one, system) for one in each]):.1f}" for system in ("TF-IDF", "scikit-learn")]
        seconds = [f"{np.mean([one[0]['seconds'][s] for one in each]):.1f}" for s in ("TF-IDF", "scikit-learn")]
        earlier = f"{np.mean([accuracy(one, 'TF-IDF of tokens') for one in old]):.1f}" if old else ""
        rows.append([name, *scores, earlier, *seconds])
    pairs = [("accuracy", counts_of(seeds, "TF-IDF"), counts_of(seeds, "scikit-learn")) for seeds in reviews.values()]
    rows.append(["TF-IDF minus scikit-learn, MTL-16", difference(pairs), "", "", "", ""])
    return markdown_table(["", "TF-IDF", "scikit-learn", "before", "seconds", "scikit-learn's"], rows)


def gain_table(results: Path) -> str:
    """What an encoder adds to TF-IDF on parts of sets, by words of a text and rows, and the mean of that."""
    stored = RunFile(results / "encoder_gain.jsonl").read_all()
    rows, pairs = [], []
    for name, run in sorted(
        stored.items(), key=lambda item: ("commit" in item[1], item[0].split(":")[0], item[1]["rows"])
    ):
        scores = [f"{accuracy([run], system):.1f}" for system in ("TF-IDF", "encoder", "ensemble")]
        pairs.append(("accuracy", counts_of([run], "ensemble"), counts_of([run], "TF-IDF")))
        title = name.split(":")[0].rpartition("/")[2] + ("" if "commit" in run else "¹")
        sizes = [f"{run['words']:.0f}", f"{run['rows']:,}"]
        gain = f"{run['gain']:+.3f} ± {run['error']:.3f}"
        rows.append([title, *sizes, *scores, difference(pairs[-1:]), gain, f"{run['seconds']:.0f}"])
    rows.append(["mean", *[""] * 5, difference(pairs), "", ""])
    header = ["", "words", "rows", "TF-IDF", "encoder", "ensemble", "ensemble minus TF-IDF", "gain", "seconds"]
    return markdown_table(header, rows)


def difference(pairs: Sequence[tuple[str, list[np.ndarray], list[np.ndarray]]]) -> str:
    """The mean difference of pairs of systems, with a 95 % interval over test texts and seeds."""
    return "{:+.1f} [{:+.1f}, {:+.1f}]".format(*(100 * number for number in bootstrap_mean(pairs)))


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
        pairs = [("accuracy", counts_of(seeds, systems[0]), counts_of(seeds, other)) for seeds in stored.values()]
        rows.append([f"{systems[0]} minus {other}", difference(pairs), *[""] * (len(systems) - 1)])
    return markdown_table(["", *systems], rows)
