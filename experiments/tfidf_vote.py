#!/usr/bin/env python
"""
README's first command on the review sets of MTL-16: the vote that `classify` trains by default, and its halves.

    OMP_NUM_THREADS=1 python experiments/tfidf_vote.py DATA --seeds 1 2 3
    OMP_NUM_THREADS=1 python experiments/tfidf_vote.py DATA --terms_only

The second command takes a minute: it compares TF-IDF alone, of the model and of scikit-learn, neither of which depends
on the encoder, which it does not build. The 1,400 texts of train are the training file, of which the command holds out
a tenth; test is scored, and the validation split of the sets is not used. Labels and predictions of the test texts are
kept in `experiments/tfidf_vote/SET-SEED.json`, or `SET-terms.json`, and what has this file is not run again.
`experiments/tfidf_vote/results.md` is made from all of them.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from modeling_star.commands.parser import from_values
from modeling_star.data.readers import read_file
from modeling_star.evaluation.bootstrap import bootstrap_mean, count_examples, score_counts
from modeling_star.files import write_json
from modeling_star.inference.explain import encoder_alone
from modeling_star.inference.prediction import Predictor
from modeling_star.models.configuration_encoder import EncoderConfig
from modeling_star.runs.run import load_task, run
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.tfidf_baseline import fit_tfidf, texts_and_labels
from modeling_star.tasks.tfidf_vote import fit_terms, linear_logits
from modeling_star.training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
)
from modeling_star.training.build import make_tokenizer
from modeling_star.training.task import Task


FOLDER = Path("experiments/tfidf_vote")
SYSTEMS = ("vote", "encoder", "TF-IDF of tokens", "TF-IDF")
HEADING = """# The vote of TF-IDF and an encoder

Test accuracy on the sets of MTL-16 after README's first command (`--num_train_epochs 5`), means over seeds. "vote" is
the saved model, "encoder" and "TF-IDF of tokens" are its two halves, and "TF-IDF" is scikit-learn's, which every run
fits beside its model. Intervals are over test texts and seeds.
"""
GROUPS = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
Answers = dict[str, Any]


def main() -> None:
    """Run what is missing, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="folder with mtl16/SET/train and test.jsonl.gz")
    parser.add_argument("--sets", nargs="+", help="sets of MTL-16 (default: all)")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--terms_only", action="store_true", help="do not train the encoder")
    arguments = parser.parse_args()
    for seed in [None] if arguments.terms_only else arguments.seeds:
        for name in arguments.sets or sorted(path.name for path in (arguments.data / "mtl16").iterdir()):
            file, folder = FOLDER / f"{name}-{seed or 'terms'}.json", arguments.data / "mtl16" / name
            if not file.exists():
                write_json(file, answers_of_terms(folder) if seed is None else answers_of(folder, seed))
    page = results_page({file.stem: json.loads(file.read_text()) for file in sorted(FOLDER.glob("*.json"))})
    (FOLDER / "results.md").write_text(page)
    print(page)


def answers_of(data: Path, seed: int) -> Answers:
    """Train one seed on a set; the labels of the test texts, and what each system predicts."""
    rows = read_file(data / "test.jsonl.gz")
    texts, labels = rows["text"][:], [str(label) for label in rows["label"][:]]
    baseline: list[str] = []

    class Kept(ClassificationTask):
        def compare(self, trainer: Any, results: dict[str, Any]) -> dict[str, str]:
            started = time.perf_counter()
            baseline[:] = tfidf_predictions(self, texts, trainer.args.seed)
            results["tfidf_seconds"] = time.perf_counter() - started
            return {}

    with tempfile.TemporaryDirectory() as folder:
        training = {"num_train_epochs": 5, "seed": seed, "do_train": True, "do_eval": True, "do_predict": True}
        started = time.perf_counter()
        _, results = run(Kept, *arguments_of(data, folder, **training, disable_tqdm=True))
        seconds = {"all": time.perf_counter() - started, "TF-IDF": results["tfidf_seconds"]}
        predictor = Predictor(folder)

        def predicted() -> list[str]:
            return [found[0]["label"] for _, found in predictor.predict(texts)]

        answers: Answers = {"labels": labels, "TF-IDF": baseline, "vote": predicted()}
        with encoder_alone(predictor.model):
            answers["encoder"] = predicted()
        vote = predictor.model.classifier.vote
        share, vote.share = float(vote.share), vote.share.new_tensor(1 - 1e-6)
        answers["TF-IDF of tokens"] = predicted()
        return {**answers, "share": share, "temperature": float(vote.temperature), "seconds": seconds}


def answers_of_terms(data: Path) -> Answers:
    """As `answers_of`, of both TF-IDFs alone, without a model."""
    rows = read_file(data / "test.jsonl.gz")
    texts, labels = rows["text"][:], [str(label) for label in rows["label"][:]]
    with tempfile.TemporaryDirectory() as folder:
        *groups, training = arguments_of(data, folder, do_train=True)
        task = load_task(ClassificationTask, *groups)
    tokenizer = make_tokenizer(task)
    splits = {name: task.data.splits[name] for name in ("train", "validation")}
    ids = {name: tokenizer(split["text"][:])["input_ids"] for name, split in splits.items()}
    classes = {name: np.array(split["label"][:]) for name, split in splits.items()}
    config = EncoderConfig(num_labels=len(task.data.label_list))
    terms = fit_terms(ids["train"], classes["train"], ids["validation"], classes["validation"], config, 2)
    found = linear_logits(terms, config, tokenizer(texts)["input_ids"]).argmax(-1)
    baseline = tfidf_predictions(task, texts, training.seed)
    return {"labels": labels, "TF-IDF": baseline, "TF-IDF of tokens": [task.data.label_list[index] for index in found]}


def arguments_of(data: Path, folder: str, **given: Any) -> tuple[Any, ...]:
    """The arguments of the command on a set, which writes into a folder."""
    files = {f"{split}_file": str(data / f"{split}.jsonl.gz") for split in ("train", "test")}
    return from_values(GROUPS, {**files, "output_dir": folder, **given})


def tfidf_predictions(task: Task, texts: list[str], seed: int) -> list[str]:
    """What scikit-learn's TF-IDF predicts for texts."""
    classifier = fit_tfidf(task, *texts_and_labels(task, ("train", "validation")), seed)
    return [classifier.labels[index] for index in classifier.log_probabilities(texts).argmax(-1)]


def results_page(files: Mapping[str, Answers]) -> str:
    """Both tables, from what is kept by SET-SEED and SET-terms."""
    runs: dict[str, list[Answers]] = {}
    terms: dict[str, list[Answers]] = {}
    for stem, answers in files.items():
        name, _, seed = stem.rpartition("-")
        (terms if seed == "terms" else runs).setdefault(name, []).append(answers)
    parts = [HEADING]
    if runs:
        seconds = [each["seconds"] for seeds in runs.values() for each in seeds]
        whole, beside = (np.median([each[part] for each in seconds]) for part in ("all", "TF-IDF"))
        parts += [
            f"{results_table(runs, SYSTEMS)}\n\n{len(seconds)} runs of {whole:.0f} seconds in the median, "
            f"{beside:.1f} of them for scikit-learn's TF-IDF, on a machine with other work.\n"
        ]
    if terms:
        parts += [f"TF-IDF alone, without an encoder:\n\n{results_table(terms, SYSTEMS[2:])}\n"]
    return "\n".join(parts)


def results_table(kept: Mapping[str, Sequence[Answers]], systems: Sequence[str]) -> str:
    """Mean accuracies in percent, and the first system's differences with 95 % intervals over test texts and seeds."""
    counts = {
        name: {
            system: [count_examples("accuracy", each["labels"], each[system]) for each in seeds] for system in systems
        }
        for name, seeds in kept.items()
    }
    scores = np.array(
        [
            [100 * np.mean([score_counts("accuracy", seed) for seed in of[system]]) for system in systems]
            for of in counts.values()
        ]
    )
    rows = [[name, *(f"{score:.1f}" for score in row)] for name, row in zip(counts, scores, strict=True)]
    rows.append(["mean", *(f"{score:.1f}" for score in scores.mean(0))])
    for other in systems[1:]:
        interval = bootstrap_mean([("accuracy", of[systems[0]], of[other]) for of in counts.values()])
        difference, low, high = (100 * number for number in interval)
        rest = [""] * (len(systems) - 1)
        rows.append([f"{systems[0]} minus {other}", f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]", *rest])
    lines = [["", *systems], [":--", *["--:"] * len(systems)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    main()
