"""TF-IDF and logistic regression: what a practitioner would try first, and a row in every table of classifiers."""

import time
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from transformers import EvalPrediction, TrainingArguments

from .data_files import DataError
from .losses import class_weights
from .output_folder import ARGUMENTS
from .reports import write_json
from .seeds import asked_for
from .task import Task, is_scored, score_prefix
from .writing import FIRST_CJK


# Inverse regularisation, of which the validation split chooses: the four configurations of the fair protocol.
STRENGTHS = (1.0, 3.0, 10.0, 30.0)


def run_tfidf(task: Task, training: TrainingArguments) -> dict[str, Any]:
    """
    Fit, choose on validation, score and report. No model is saved: scikit-learn's are pickles, which we do not write.

    Returns:
        What all_results.json holds.

    Raises:
        DataError: the task is not one class for each text, there is no training or validation split, the former has
            one class or no words, or a model is to be uploaded.
    """
    if training.push_to_hub:
        raise DataError("--model_type tfidf saves no model that could be uploaded: leave --push_to_hub away.")
    data = task.data
    columns: list[str] = list(getattr(data, "text_columns", ()))
    if len(columns) != 1 or task.metrics.task != "single_label_classification":
        raise DataError("--model_type tfidf classifies single texts with one label each: name a neural model.")
    if not all(split in data.splits and data.is_labelled(split) for split in ("train", "validation")):
        raise DataError("--model_type tfidf needs --train_file and --validation_file with labels, or --dataset_name.")
    texts = {split: data.splits[split][columns[0]][:] for split in data.splits}
    labelled = [split for split in data.splits if data.is_labelled(split)]
    labels = {split: np.array(data.splits[split][data.label_column]) for split in labelled}
    started = time.perf_counter()
    if len(np.unique(labels["train"])) < 2:
        raise DataError(f"All rows of the train split have one label in {data.label_column!r}: there is no choice.")
    vectorizer = _vectorizer(texts["train"])
    try:
        features = {"train": vectorizer.fit_transform(texts["train"])}
    except ValueError as error:  # of an empty vocabulary
        raise DataError(f"--model_type tfidf finds no words in {columns[0]!r} of the train split: {error}") from None
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
    write_json(folder / ARGUMENTS, asked_for(task.model_args, task.data_args, task.run_args, training))
    for split in sorted(texts, key=lambda split: not split.startswith("validation")):
        if is_scored(split, training):
            logits = _logits(best, features[split], len(data.label_list))
            if split in labels:
                scores = task.metrics(EvalPrediction(predictions=logits, label_ids=labels[split]))
                results |= {f"{score_prefix(split)}_{name}": value for name, value in scores.items()}
            task.report(folder, split, data.splits[split], logits)
    write_json(folder / "all_results.json", results)
    return results


def _vectorizer(texts: list[str]) -> TfidfVectorizer:
    """Words and pairs of them; for texts mostly in Chinese or Japanese, runs of one to three characters."""
    letters = [letter for text in texts[:200] for letter in text if letter.isalnum()]
    if sum(ord(letter) >= FIRST_CJK for letter in letters) * 2 > len(letters):
        return TfidfVectorizer(analyzer="char", ngram_range=(1, 3), sublinear_tf=True)
    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"(?u)\b\w+\b")


def _logits(model: LogisticRegression, features: Any, labels: int) -> np.ndarray:
    """Log probabilities `[examples, labels]`; minus infinity for a label that training never shows."""
    logits = np.full((features.shape[0], labels), -np.inf)
    logits[:, model.classes_] = model.predict_log_proba(features)
    return logits


__all__ = ["run_tfidf"]
