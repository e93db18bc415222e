"""A saved classifier of TF-IDF and logistic regression; tasks/tfidf_baseline.py fits it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from ..errors import UserError
from ..files import check_files, write_atomically, write_json, write_manifest
from ..loading import check_finite, reading_model
from .output_rows import Prediction
from .saved_model import SavedModel


# The files of a saved model: labels and terms, and their numbers.
TERMS, NUMBERS = "tfidf.json", "tfidf.safetensors"


class TfidfClassifier:
    """A fitted pipeline with its labels, saved as JSON and safetensors: scikit-learn's own format is a pickle."""

    def __init__(self, pipeline: Pipeline, labels: Sequence[str]):
        self.pipeline = pipeline
        self.labels = tuple(labels)

    def log_probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """Log probabilities `[texts, labels]`; minus infinity for a label that was not in the training split."""
        logits = np.full((len(texts), len(self.labels)), -np.inf)
        logits[:, self.pipeline.classes_] = self.pipeline.predict_log_proba(texts)
        return logits

    def classify(self, texts: Sequence[str]) -> list[list[Prediction]]:
        """The probabilities of all labels for each text, the best first."""
        found = []
        for scores in np.exp(self.log_probabilities(texts)):
            order = (-scores).argsort()
            found.append([{"label": self.labels[number], "score": float(scores[number])} for number in order])
        return found

    def save(self, folder: Path) -> None:
        """Write TERMS and NUMBERS."""
        vectorizer, regression = (step for _, step in self.pipeline.steps)
        options = {name: vectorizer.get_params()[name] for name in ("analyzer", "ngram_range", "token_pattern")}
        numbers = {
            "idf": vectorizer.idf_,
            "weights": regression.coef_,
            "bias": regression.intercept_,
            "classes": regression.classes_,
        }
        content = save({name: np.ascontiguousarray(array) for name, array in numbers.items()})
        write_atomically(folder / NUMBERS, lambda stream: stream.write(content))
        terms = vectorizer.get_feature_names_out().tolist()
        write_json(folder / TERMS, {"labels": self.labels, "vectorizer": options, "terms": terms})
        write_manifest(folder, (TERMS, NUMBERS))

    @classmethod
    def load(cls, folder: Path) -> "TfidfClassifier":
        """
        Load a saved model.

        Raises:
            UserError: a file is missing or damaged, the two are of different runs, or a number is NaN or infinite.
        """
        for name in (TERMS, NUMBERS):
            if not (folder / name).is_file():
                raise UserError(f"{folder} holds a run of TF-IDF without its model ({name}): run it again.")
        check_files(str(folder))
        with reading_model("weights", str(folder)):
            saved = json.loads((folder / TERMS).read_text(encoding="utf-8"))
            numbers = load_file(folder / NUMBERS)
        check_finite(str(folder), numbers)
        if not len(saved["terms"]) == len(numbers["idf"]) == numbers["weights"].shape[1]:
            raise UserError(f"{TERMS} and {NUMBERS} in {folder} are of two runs: run it again.")
        vectorizer, regression = make_vectorizer(saved["vectorizer"], saved["terms"]), LogisticRegression()
        vectorizer.idf_ = numbers["idf"]
        regression.coef_, regression.intercept_ = numbers["weights"], numbers["bias"]
        regression.classes_ = numbers["classes"]
        return cls(make_pipeline(vectorizer, regression), saved["labels"])


def make_vectorizer(options: dict[str, Any], vocabulary: list[str] | None = None) -> TfidfVectorizer:
    """
    The terms of texts.

    Args:
        options: `analyzer`, `ngram_range` and `token_pattern` of scikit-learn's class.
        vocabulary: the terms of a fitted one.
    """
    options = {**options, "ngram_range": tuple(options["ngram_range"])}  # JSON makes lists of tuples
    return TfidfVectorizer(**options, vocabulary=vocabulary, sublinear_tf=True)


# ------ for a `Predictor`, as in torch_runtime.py


def load(saved: SavedModel, dtype: str | None = None, instructions: str | None = None) -> TfidfClassifier:
    """A saved model."""
    return TfidfClassifier.load(Path(saved.name))


def load_tokenizer(saved: SavedModel) -> None:
    """It reads texts."""


def instructions() -> None:
    """It has no layers."""


def computation(model: TfidfClassifier) -> str:
    """What computes, as `modeling_star.describe` says it of a model of PyTorch."""
    return "library: scikit-learn\nnumbers: those of the file\ncompiled: no, it is no model of PyTorch"
