"""TF-IDF with logistic regression: the baseline of every table of classifiers, and beside every classifier."""

import logging
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from transformers import EvalPrediction, TrainingArguments

from ..data.writing_systems import FIRST_CJK
from ..errors import UserError
from ..evaluation.reports import score_prefix
from ..files import REPORT
from ..inference.tfidf import TfidfClassifier, make_vectorizer
from ..training.losses import class_weights
from ..training.task import Task, is_scored


logger = logging.getLogger(__name__)

# Inverse regularisation, of words and their pairs and of words alone, which are fewer; validation chooses.
STRENGTHS = ((1.0, 3.0, 10.0, 30.0), (10.0, 100.0))

# Of more training texts the baseline would take minutes.
MOST_TEXTS = 100_000


def run_tfidf(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    Fit, choose on validation, score, report, and save.

    Returns:
        The content of all_results.json.

    Raises:
        UserError: the task does not have one class per text, a labelled training or validation split is missing, the
            training split has one class or no words, or the model is to be uploaded.
    """
    if training.push_to_hub:
        raise UserError("--model_type tfidf is no model of transformers: omit --push_to_hub.")
    data = task.data
    if len(data.text_columns) != 1 or task.metrics.task != "single_label_classification":
        raise UserError("--model_type tfidf classifies single texts with one label each: name a neural model.")
    if not all(split in data.splits and data.is_labelled(split) for split in ("train", "validation")):
        raise UserError("--model_type tfidf needs --train_file and --validation_file with labels, or --dataset_name.")
    texts, labels = texts_and_labels(task, data.splits)
    if len(np.unique(labels["train"])) < 2:
        raise UserError(f"All rows of the train split have one label in {data.label_column!r}: only one class.")
    started = time.perf_counter()
    try:
        classifier = fit_tfidf(task, texts, labels, training.seed)
    except ValueError as error:  # an empty vocabulary
        column = data.text_columns[0]
        raise UserError(f"--model_type tfidf finds no words in {column!r} of the train split: {error}") from None
    best = classifier.pipeline[-1]
    results: dict[str, Any] = {
        "train_runtime": time.perf_counter() - started,
        "train_samples": len(texts["train"]),
        "parameters": int(best.coef_.size + best.intercept_.size),
        "strength": best.C,
    }
    folder = Path(training.output_dir)
    for split in sorted(texts, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            logits = classifier.log_probabilities(texts[split])
            if split in labels:
                results |= _scores(task, split, logits, labels[split])
            task.report(folder / REPORT, split, data.splits[split], logits)
    classifier.save(folder)
    return results


def tfidf_scores(task: Task, training: TrainingArguments) -> dict[str, float]:
    """
    The scores of TF-IDF on the splits that a run scores, such as `tfidf_eval_accuracy`; of pairs it reads both texts
    as one. Empty where there is nothing to fit or to compare: texts without one class each, without a labelled
    validation split, without words, or more than MOST_TEXTS.
    """
    data = task.data
    names = [split for split in data.splits if is_scored(split, training) and data.is_labelled(split)]
    is_labelled = all(split in data.splits and data.is_labelled(split) for split in ("train", "validation"))
    if task.metrics.task != "single_label_classification" or not is_labelled or not names:
        return {}
    if len(data.splits["train"]) > MOST_TEXTS:
        logger.info(f"TF-IDF is not fitted: the train split has more than {MOST_TEXTS:,} texts.")
        return {}
    texts, labels = texts_and_labels(task, {"train", "validation", *names})
    try:
        classifier = fit_tfidf(task, texts, labels, training.seed)
    except ValueError as error:  # one class or an empty vocabulary
        logger.info(f"TF-IDF is not fitted: {error}")
        return {}
    scores: dict[str, float] = {}
    for split in names:
        scores |= _scores(task, split, classifier.log_probabilities(texts[split]), labels[split])
    return {f"tfidf_{name}": value for name, value in scores.items()}


def texts_and_labels(task: Task, splits: Iterable[str]) -> tuple[dict[str, list[str]], dict[str, np.ndarray]]:
    """The texts of some splits, pairs joined, and the numbers of their classes if they have labels."""
    data = task.data
    columns = {split: [data.splits[split][name][:] for name in data.text_columns] for split in splits}
    texts = {split: list(map(" ".join, zip(*of_split, strict=True))) for split, of_split in columns.items()}
    labels = {split: np.array(data.splits[split][data.label_column]) for split in texts if data.is_labelled(split)}
    return texts, labels


def fit_tfidf(task: Task, texts: dict[str, list[str]], labels: dict[str, np.ndarray], seed: int) -> TfidfClassifier:
    """
    Fit on train, with the terms and the regularisation that validation chooses.

    Pairs of words help on reviews. With 535 posts of 20 classes (20 newsgroups) words alone score 71, with pairs 60.

    Raises:
        ValueError: there are no words, or only one class.
    """
    options: dict[str, Any] = {"max_iter": 1000, "random_state": seed, "class_weight": weights_by_class(task)}
    best, most = None, -1.0
    for terms, strengths in zip(_terms_for(texts["train"]), STRENGTHS, strict=False):
        vectorizer = make_vectorizer(terms)
        train, validation = vectorizer.fit_transform(texts["train"]), vectorizer.transform(texts["validation"])
        models = [LogisticRegression(C=strength, **options).fit(train, labels["train"]) for strength in strengths]
        scores = [model.score(validation, labels["validation"]) for model in models]
        # Beyond chance: by more than the standard error of an accuracy.
        if best is None or max(scores) - most > (most * (1 - most) / len(labels["validation"])) ** 0.5:
            best, most = make_pipeline(vectorizer, models[int(np.argmax(scores))]), max(scores)
    return TfidfClassifier(best, task.data.label_list)


def weights_by_class(task: Task) -> dict[int, float] | None:
    """The weights of classes in the loss, as scikit-learn takes them."""
    names = tuple(task.data.label_list)
    weights = class_weights(task.run_args.class_weights, names, task.data.counts("train"))
    return None if weights is None else dict(enumerate(weights.tolist()))


def _scores(task: Task, split: str, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    """The task's scores, with the prefix of a split."""
    scores = task.metrics(EvalPrediction(predictions=logits, label_ids=labels))
    return {f"{score_prefix(split)}_{name}": value for name, value in scores.items()}


def _terms_for(texts: list[str]) -> list[dict[str, Any]]:
    """Words and their pairs, then words alone; for texts mostly in Chinese or Japanese, one to three characters."""
    if are_mostly_cjk(texts):
        return [{"analyzer": "char", "ngram_range": (1, 3)}]
    return [{"ngram_range": (1, longest), "token_pattern": r"(?u)\b\w+\b"} for longest in (2, 1)]


def are_mostly_cjk(texts: list[str]) -> bool:
    """Whether most letters of the first texts are Chinese or Japanese."""
    letters = [letter for text in texts[:200] for letter in text if letter.isalnum()]
    return sum(ord(letter) >= FIRST_CJK for letter in letters) * 2 > len(letters)
