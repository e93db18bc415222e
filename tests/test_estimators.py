"""The classifier and the tagger behind scikit-learn's interface, on tiny data."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline

from modeling_star import StarClassifier, StarTagger
from modeling_star.errors import UserError


TINY: dict[str, Any] = {
    "config_overrides": "hidden_size=16,num_attention_heads=2",
    "num_train_epochs": 8,
    "learning_rate": 1e-2,
    "batch_size": 8,
}
TEXTS = [f"{word} {thing}" for thing in ("film", "play", "book", "song") * 3 for word in ("dull", "fine")]
LABELS = [-1, 1] * 12
SENTENCES = [["Ann", "moved", "to", "Oslo"], ["Bo", "sees", "New", "York", "now"]] * 10
TAGS = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC", "I-LOC", "O"]] * 10


@pytest.fixture(scope="module")
def classifier() -> StarClassifier:
    return StarClassifier(**TINY, validation_fraction=0.25).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def tagger() -> StarTagger:
    return StarTagger(**TINY, validation_fraction=0).fit(SENTENCES, TAGS)


def test_a_classifier_predicts_labels_and_probabilities(classifier: StarClassifier) -> None:
    assert classifier.predict(["dull film", "fine film"]).tolist() == [-1, 1]
    probabilities = classifier.predict_proba(["dull film", "fine film"])
    assert probabilities.shape == (2, 2)
    assert probabilities.sum(1) == pytest.approx(1)
    assert probabilities[0, 0] > 0.5
    assert classifier.score(TEXTS, LABELS) == 1


@pytest.mark.slow
def test_cross_validation_and_grid_search_train_classifiers(capsys: pytest.CaptureFixture[str]) -> None:
    scores = cross_val_score(StarClassifier(**TINY, validation_fraction=0.5), TEXTS, LABELS, cv=2, error_score="raise")
    assert scores.tolist() == [1, 1]
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2, "one line for each fit"
    assert all("TF-IDF" in line for line in printed)
    grid = {"learning_rate": [1e-7, 1e-2]}
    search = GridSearchCV(StarClassifier(**TINY, validation_fraction=0), grid, cv=2, error_score="raise")
    assert search.fit(TEXTS, LABELS).best_params_ == {"learning_rate": 1e-2}
    assert search.predict(["dull film"]).tolist() == [-1]


def test_a_classifier_votes_with_others() -> None:
    tfidf = make_pipeline(TfidfVectorizer(), LogisticRegression())
    star = StarClassifier(**TINY, validation_fraction=0)
    vote = VotingClassifier([("star", star), ("tfidf", tfidf)], voting="soft").fit(TEXTS, LABELS)
    each = np.mean([part.predict_proba(TEXTS) for part in vote.estimators_], axis=0)
    assert vote.predict_proba(TEXTS) == pytest.approx(each)
    assert vote.predict(["dull film", "fine film"]).tolist() == [-1, 1]


def test_a_saved_classifier_predicts_the_same(classifier: StarClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "saved")
    loaded = StarClassifier.load(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    assert loaded.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    assert loaded.get_params() == classifier.get_params()
    assert not list((tmp_path / "saved").glob("checkpoint-*"))
    with pytest.raises(UserError, match="saved"):
        classifier.save(tmp_path / "saved")
    with pytest.raises(UserError, match="StarTagger"):
        StarTagger.load(tmp_path / "saved")


def test_a_teacher_labels_further_texts(classifier: StarClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "teacher")
    texts = ["dull play", "fine play"] * 6
    student = StarClassifier(**TINY, validation_fraction=0)
    student.fit(TEXTS, LABELS, teacher=str(tmp_path / "teacher"), unlabeled=texts)
    assert student.results_["unlabeled_samples"] == len(texts)
    assert student.predict(["dull film", "fine film"]).tolist() == [-1, 1]
    with pytest.raises(UserError, match="teacher"):
        student.fit(TEXTS, LABELS, unlabeled=texts)


def test_a_tagger_tags_words_and_texts(tagger: StarTagger) -> None:
    assert tagger.predict(SENTENCES[:2]) == TAGS[:2]
    assert tagger.predict(["Bo sees Oslo", "", ["Ann", " "]]) == [["B-PER", "O", "B-LOC"], [], ["B-PER", "O"]]
    (found,) = tagger.entities(["Bo sees New York"])
    assert [(each["label"], each["start"], each["end"]) for each in found] == [("PER", 0, 2), ("LOC", 8, 16)]
    assert tagger.score(SENTENCES, TAGS) == 1
    assert tagger.predictor_.model.config.use_crf


def test_a_saved_tagger_predicts_the_same(tagger: StarTagger, tmp_path: Path) -> None:
    tagger.save(tmp_path / "saved")
    loaded = StarTagger.load(tmp_path / "saved")
    assert loaded.predict(["Ann sees Oslo"]) == tagger.predict(["Ann sees Oslo"])


def test_taggers_of_characters_are_cross_validated() -> None:
    sentences, tags = [list("去奥斯陆"), list("在罗马")] * 8, [list("NXXX"), list("NXX")] * 8
    options = {**TINY, "validation_fraction": 0, "arguments": {"tokenizer_kind": "character"}}
    scores = cross_val_score(StarTagger(**options), sentences, tags, cv=2, error_score="raise")
    assert scores.tolist() == [1, 1]
    assert StarTagger(**options).fit(sentences, tags).predict(["去罗马"]) == [["N", "X", "X"]]


def test_arguments_are_those_of_the_command() -> None:
    with pytest.raises(ValueError, match="num_epochs"):
        StarClassifier(arguments={"num_epochs": 1}).fit(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        StarClassifier().predict(TEXTS)
