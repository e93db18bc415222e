"""
Models of `--model_type tfidf` that earlier versions saved, of words as scikit-learn splits them, for a `Predictor`.
Now such a model is a classifier of transformers, see tasks/tfidf.py.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from ..errors import UserError
from ..files import check_files
from ..loading import check_finite, reading_model
from .output_rows import Prediction
from .saved_model import TERMS, SavedModel


NUMBERS = "tfidf.safetensors"


class TfidfClassifier:
    """A fitted pipeline with its labels."""

    def __init__(self, pipeline: Pipeline, labels: Sequence[str]) -> None:
        self.pipeline, self.labels = pipeline, tuple(labels)

    def classify(self, texts: Sequence[str]) -> list[list[Prediction]]:
        """The probabilities of all labels for each text, the best first; 0 for a label that training did not have."""
        scores = np.zeros((len(texts), len(self.labels)))
        scores[:, self.pipeline.classes_] = np.exp(self.pipeline.predict_log_proba(texts))
        orders = [(-of_text).argsort() for of_text in scores]
        return [
            [{"label": self.labels[number], "score": float(of_text[number])} for number in order]
            for of_text, order in zip(scores, orders, strict=True)
        ]


def load(saved: SavedModel, dtype: str | None = None, instructions: str | None = None) -> TfidfClassifier:
    """Load a model; a UserError where a file is missing or damaged, or the two are of different runs."""
    folder = Path(saved.name)
    if not (folder / NUMBERS).is_file():
        raise UserError(f"{folder} holds a run of TF-IDF without its model ({NUMBERS}): run it again.")
    check_files(str(folder))
    with reading_model("weights", str(folder)):
        terms = json.loads((folder / TERMS).read_text(encoding="utf-8"))
        numbers = load_file(folder / NUMBERS)
    check_finite(str(folder), numbers)
    if not len(terms["terms"]) == len(numbers["idf"]) == numbers["weights"].shape[1]:
        raise UserError(f"{TERMS} and {NUMBERS} in {folder} are of two runs: run it again.")
    # JSON makes lists of tuples
    options = {**terms["vectorizer"], "ngram_range": tuple(terms["vectorizer"]["ngram_range"])}
    vectorizer = TfidfVectorizer(**options, vocabulary=terms["terms"], sublinear_tf=True)
    regression = LogisticRegression()
    vectorizer.idf_ = numbers["idf"]
    regression.coef_, regression.intercept_ = numbers["weights"], numbers["bias"]
    regression.classes_ = numbers["classes"]
    return TfidfClassifier(make_pipeline(vectorizer, regression), terms["labels"])


def load_tokenizer(saved: SavedModel) -> None:
    """It reads texts."""


def instructions() -> None:
    """It has no layers."""


def computation(model: TfidfClassifier) -> str:
    """What computes, as `modeling_star.describe` says it of a model of PyTorch."""
    return "library: scikit-learn\nnumbers: those of the file\ncompiled: no, it is no model of PyTorch"
