"""TF-IDF and logistic regression: what a practitioner would try first, and a row in every table of classifiers."""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from transformers import EvalPrediction, TrainingArguments

from ..data.writing_systems import FIRST_CJK
from ..errors import UserError
from ..evaluation.reports import write_atomically, write_json
from ..training.checkpoints import ARGUMENTS, run_config
from ..training.losses import class_weights
from .base import Task, is_scored, score_prefix


# Inverse regularisation, of which the validation split chooses: the four configurations of the fair protocol.
STRENGTHS = (1.0, 3.0, 10.0, 30.0)

# A saved model: the labels and the terms, and the numbers of each.
TERMS, NUMBERS = "tfidf.json", "tfidf.safetensors"


@dataclass(frozen=True)
class TfidfClassifier:
    """What was fitted, kept as JSON and safetensors: scikit-learn's own way is a pickle, which runs what it holds."""

    vectorizer: TfidfVectorizer
    regression: LogisticRegression
    labels: tuple[str, ...]

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Of each label for each text, `[texts, labels]`."""
        return _logits(self.regression, self.vectorizer.transform(texts), len(self.labels))

    def save(self, folder: Path) -> None:
        """Write TERMS and NUMBERS."""
        options = {name: self.vectorizer.get_params()[name] for name in ("analyzer", "ngram_range", "token_pattern")}
        terms = self.vectorizer.get_feature_names_out().tolist()
        numbers = {
            "idf": self.vectorizer.idf_,
            "weights": self.regression.coef_,
            "bias": self.regression.intercept_,
            "classes": self.regression.classes_,
        }
        written = save({name: np.ascontiguousarray(array) for name, array in numbers.items()})
        write_atomically(folder / NUMBERS, lambda stream: stream.write(written))
        write_json(folder / TERMS, {"labels": self.labels, "vectorizer": options, "terms": terms})

    @classmethod
    def load(cls, folder: Path) -> "TfidfClassifier":
        """
        What `save` wrote.

        Raises:
            UserError: a file of it is not there, as in the folder of a run of before models were saved, or the two do
                not belong together.
        """
        for name in (TERMS, NUMBERS):
            if not (folder / name).is_file():
                raise UserError(f"{folder} holds a run of TF-IDF without its model ({name}): run it again.")
        told = json.loads((folder / TERMS).read_text(encoding="utf-8"))
        numbers = load_file(folder / NUMBERS)
        if not len(told["terms"]) == len(numbers["idf"]) == numbers["weights"].shape[1]:
            raise UserError(
                f"{folder / TERMS} has {len(told['terms'])} terms, {NUMBERS} numbers of {len(numbers['idf'])}: they "
                "are of two runs. Run it again."
            )
        vectorizer = _with_options(told["vectorizer"], vocabulary=told["terms"])
        vectorizer.idf_ = numbers["idf"]
        regression = LogisticRegression()
        regression.coef_, regression.intercept_ = numbers["weights"], numbers["bias"]
        regression.classes_ = numbers["classes"]
        return cls(vectorizer, regression, tuple(told["labels"]))


def run_tfidf(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    Fit, choose on validation, score, report, and save.

    Returns:
        What all_results.json holds.

    Raises:
        UserError: the task is not one class for each text, there is no training or validation split, the former has
            one class or no words, or a model is to be uploaded.
    """
    if training.push_to_hub:
        raise UserError(
            "--model_type tfidf is no model of transformers, which is what the Hub's users load: leave --push_to_hub "
            "away."
        )
    data = task.data
    columns: list[str] = list(getattr(data, "text_columns", ()))
    if len(columns) != 1 or task.metrics.task != "single_label_classification":
        raise UserError("--model_type tfidf classifies single texts with one label each: name a neural model.")
    if not all(split in data.splits and data.is_labelled(split) for split in ("train", "validation")):
        raise UserError("--model_type tfidf needs --train_file and --validation_file with labels, or --dataset_name.")
    texts = {split: data.splits[split][columns[0]][:] for split in data.splits}
    labelled = [split for split in data.splits if data.is_labelled(split)]
    labels = {split: np.array(data.splits[split][data.label_column]) for split in labelled}
    started = time.perf_counter()
    if len(np.unique(labels["train"])) < 2:
        raise UserError(f"All rows of the train split have one label in {data.label_column!r}: there is no choice.")
    vectorizer = _vectorizer(texts["train"])
    try:
        features = {"train": vectorizer.fit_transform(texts["train"])}
    except ValueError as error:  # of an empty vocabulary
        raise UserError(f"--model_type tfidf finds no words in {columns[0]!r} of the train split: {error}") from None
    features |= {split: vectorizer.transform(texts[split]) for split in texts if split != "train"}
    names = tuple(data.label_list)
    weights = class_weights(task.run_args.class_weights, names, data.counts("train"))
    by_class = None if weights is None else dict(enumerate(weights.tolist()))
    fitted = []
    for strength in STRENGTHS:
        model = LogisticRegression(C=strength, max_iter=1000, random_state=training.seed, class_weight=by_class)
        fitted.append(model.fit(features["train"], labels["train"]))
    best = max(fitted, key=lambda model: model.score(features["validation"], labels["validation"]))
    results: dict[str, Any] = {
        "train_runtime": time.perf_counter() - started,
        "train_samples": len(texts["train"]),
        "parameters": int(best.coef_.size + best.intercept_.size),
        "strength": best.C,
    }
    folder = Path(training.output_dir)
    write_json(folder / ARGUMENTS, run_config(task.model_args, task.data_args, task.run_args, training))
    for split in sorted(texts, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            logits = _logits(best, features[split], len(data.label_list))
            if split in labels:
                scores = task.metrics(EvalPrediction(predictions=logits, label_ids=labels[split]))
                results |= {f"{score_prefix(split)}_{name}": value for name, value in scores.items()}
            task.report(folder, split, data.splits[split], logits)
    TfidfClassifier(vectorizer, best, names).save(folder)
    write_json(folder / "all_results.json", results)
    return results


def _vectorizer(texts: list[str]) -> TfidfVectorizer:
    """Words and pairs of them; for texts mostly in Chinese or Japanese, runs of one to three characters."""
    letters = [letter for text in texts[:200] for letter in text if letter.isalnum()]
    if sum(ord(letter) >= FIRST_CJK for letter in letters) * 2 > len(letters):
        return _with_options({"analyzer": "char", "ngram_range": (1, 3)})
    return _with_options({"ngram_range": (1, 2), "token_pattern": r"(?u)\b\w+\b"})


def _with_options(options: dict[str, Any], **given: Any) -> TfidfVectorizer:
    return TfidfVectorizer(**{**options, "ngram_range": tuple(options["ngram_range"])}, **given, sublinear_tf=True)


def _logits(model: LogisticRegression, features: Any, labels: int) -> np.ndarray:
    """Log probabilities `[examples, labels]`; minus infinity for a label that training never shows."""
    logits = np.full((features.shape[0], labels), -np.inf)
    logits[:, model.classes_] = model.predict_log_proba(features)
    return logits


__all__ = ["TfidfClassifier", "run_tfidf"]
