"""The classifier and the tagger behind scikit-learn's interface, on tiny data."""

import copy
import gc
import math
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from modeling_star import StarClassifier, StarTagger
from modeling_star.data.in_memory import labels_of, repetitions, sentences_of, texts_of
from modeling_star.errors import UserError
from modeling_star.estimators import ESTIMATOR
from modeling_star.inference import Predictor


TINY: dict[str, Any] = {
    "config_overrides": "hidden_size=16,num_attention_heads=2",
    "num_train_epochs": 8,
    "learning_rate": 1e-2,
    "batch_size": 8,
}
TEXTS = [f"{word} {thing}" for thing in ("film", "play", "book", "song") * 3 for word in ("dull", "fine")]
LABELS = [-1, 1] * 12
FRAME = pd.DataFrame({"text": TEXTS, "label": LABELS}, index=range(5, 29))
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


def test_a_saved_classifier_predicts_the_same(classifier: StarClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "saved")
    loaded = StarClassifier.load(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(TEXTS), classifier.predict_proba(TEXTS))
    assert loaded.predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()
    assert loaded.get_params() == classifier.get_params()
    assert not list((tmp_path / "saved").glob("checkpoint-*"))
    with pytest.raises(UserError, match="saved"):
        classifier.save(tmp_path / "saved")
    with pytest.raises(UserError, match="StarClassifier"):
        StarTagger.load(tmp_path / "saved")


def test_any_saved_classifier_is_an_estimator(classifier: StarClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "saved")
    (tmp_path / "saved" / ESTIMATOR).unlink()
    loaded = StarClassifier.load(tmp_path / "saved")
    names = [str(label) for label in classifier.predict(TEXTS)]
    assert loaded.predict(TEXTS).tolist() == names
    assert Predictor(tmp_path / "saved").labels(np.array(TEXTS)) == names
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


def test_arguments_are_those_of_the_command() -> None:
    with pytest.raises(ValueError, match="num_epochs"):
        StarClassifier(arguments={"num_epochs": 1}).fit(TEXTS, LABELS)
    with pytest.raises(NotFittedError):
        StarClassifier().predict(TEXTS)


# ------ copies


def test_pickles_and_copies_live_longer_than_the_original(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    fitted = StarClassifier(**TINY, validation_fraction=0).fit(TEXTS, LABELS)
    expected = fitted.predict_proba(TEXTS)
    assert len([*tmp_path.iterdir()]) == 1, "the folder of the training is gone"
    copies = [copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted)), copy.copy(fitted)]
    unfitted = clone(fitted)
    assert unfitted.get_params() == fitted.get_params()
    with pytest.raises(NotFittedError):
        unfitted.predict(TEXTS)
    del fitted
    gc.collect()
    for each in copies:
        assert np.array_equal(each.predict_proba(TEXTS), expected)
        assert np.array_equal(pickle.loads(pickle.dumps(each)).predict_proba(TEXTS), expected)
    del copies, each
    gc.collect()
    assert not [*tmp_path.iterdir()]


@pytest.mark.slow
def test_another_process_reads_a_dumped_estimator(
    classifier: StarClassifier, tagger: StarTagger, tmp_path: Path
) -> None:
    joblib.dump([classifier, tagger], tmp_path / "both.joblib")
    code = """
import joblib, sys
classifier, tagger = joblib.load(sys.argv[1])
print(classifier.predict(["dull film", "fine film"]).tolist(), tagger.predict(["Bo sees Oslo"]))
classifier.save(sys.argv[2])
"""
    arguments = [sys.executable, "-c", code, str(tmp_path / "both.joblib"), str(tmp_path / "saved")]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=Path(__file__).parents[1])
    assert (done.stdout, done.stderr) == ("[-1, 1] [['B-PER', 'O', 'B-LOC']]\n", "")
    assert StarClassifier.load(tmp_path / "saved").predict(TEXTS).tolist() == classifier.predict(TEXTS).tolist()


def test_a_pickle_has_no_pickle_inside_and_writes_no_file_elsewhere(
    classifier: StarClassifier, tmp_path: Path
) -> None:
    state = classifier._files.__getstate__()
    assert "model.safetensors" in state["files"]
    assert {Path(name).suffix for name in state["files"]}.isdisjoint({".bin", ".pt", ".pkl", ".pth"})
    foreign = copy.copy(classifier._files)
    with pytest.raises(UserError, match="outside"):
        foreign.__setstate__({"files": {f"../{tmp_path.name}": b""}})


@pytest.mark.slow
def test_ensembles_and_searches_fit_in_several_processes() -> None:
    star = StarClassifier(**TINY, validation_fraction=0)
    vote = VotingClassifier([("one", star), ("two", clone(star))], voting="soft", n_jobs=2).fit(TEXTS, LABELS)
    assert vote.predict(["dull film", "fine film"]).tolist() == [-1, 1]
    scores = cross_validate(star, TEXTS, LABELS, cv=2, n_jobs=2, return_estimator=True, error_score="raise")
    for each in scores["estimator"]:
        assert each.predict(["dull film", "fine film"]).tolist() == [-1, 1]
    column = np.array(TEXTS)[:, None]
    bag = BaggingClassifier(star, n_estimators=2, n_jobs=2, random_state=0).fit(column, LABELS)
    assert bag.predict([["dull film"], ["fine film"]]).tolist() == [-1, 1]
    search = GridSearchCV(star, {"batch_size": [4, 8]}, cv=2, n_jobs=2, error_score="raise").fit(TEXTS, LABELS)
    assert search.predict(["dull film"]).tolist() == [-1]


# ------ probabilities


def test_probabilities_are_the_softmax_of_the_logits(classifier: StarClassifier, tmp_path: Path) -> None:
    classifier.save(tmp_path / "saved")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "saved").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "saved")
    with torch.no_grad():
        logits = model(**tokenizer(TEXTS, padding=True, return_tensors="pt")).logits.double()
    exact = logits.softmax(-1).numpy()
    np.testing.assert_allclose(classifier.predict_proba(TEXTS), exact, rtol=1e-4)
    losses = [-math.log(exact[row, int(label > 0)]) for row, label in enumerate(LABELS)]
    assert log_loss(LABELS, classifier.predict_proba(TEXTS)) == pytest.approx(np.mean(losses), rel=1e-4)


# ------ input


@pytest.mark.parametrize(
    "texts",
    [
        pa.array(TEXTS),
        pa.table({"text": TEXTS})["text"],
        pa.table({"text": TEXTS}),
        FRAME["text"],
        FRAME[["text"]],
        pd.Index(TEXTS),
        np.array(TEXTS),
        np.array(TEXTS, dtype=object),
        np.array(TEXTS)[:, None],
        tuple(TEXTS),
        FRAME["text"].astype("category"),
    ],
    ids=lambda texts: type(texts).__name__,
)
def test_texts_are_columns_arrays_and_lists(texts: Any, classifier: StarClassifier) -> None:
    assert classifier.predict(texts).tolist() == LABELS


@pytest.mark.parametrize(
    ("texts", "match"),
    [
        ("a good film", "string object received"),
        (np.array("a good film"), "not a list"),
        ({"text": ["a"]}, "not a list"),
        ({"a", "b"}, "not a list"),
        (None, "not a list"),
        (3, "not a list"),
        (["a", None], r"texts\[1\].*missing"),
        (["a", float("nan")], r"texts\[1\].*missing"),
        (pd.Series(["a", pd.NA], index=[7, 8], dtype="string"), r"texts\[1\].*missing"),
        (["a", 3], r"texts\[1\] is 3"),
        ([["a", "b"]], r"texts\[0\] is \['a', 'b'\]"),
        (FRAME, r"texts\['text'\]"),
        (np.array([["a", "b"]]), r"texts\[:, 0\]"),
        (np.ones((3, 2)), r"texts\[:, 0\]"),
    ],
)
def test_what_is_no_list_of_texts_is_refused_by_name_and_row(texts: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        texts_of(texts, "texts", "predict([{}])")


@pytest.mark.parametrize(
    ("sentences", "match"),
    [
        (["Ann moved"], r"text\.split\(\) for text in sentences"),
        (["Ann", "moved"], r"\[sentences\]"),
        ("Ann moved", "string object received"),
        ([["Ann", None]], r"sentences\[0\]\[1\].*missing"),
        ([["Ann"], None], r"sentences\[1\] is None"),
        ([["Ann"], [["moved"]]], r"sentences\[1\]\[0\]"),
    ],
)
def test_what_is_no_list_of_words_is_refused_by_row(sentences: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        sentences_of(sentences, "sentences", "fit([words], [tags])")


@pytest.mark.parametrize(
    "labels",
    [
        np.array(LABELS) > 0,
        [label > 0 for label in LABELS],
        np.where(np.array(LABELS) > 0, "yes", "no"),
        np.array(["no", "yes"] * 12, dtype=object),
        pa.array(["no", "yes"] * 12),
        pa.chunked_array([[0, 1] * 6, [0, 1] * 6]),
        pd.Series(["no", "yes"] * 12).astype("category"),
        pd.Series([0, 1] * 12, dtype="Int64"),
        np.array([0, 1] * 12, dtype=np.float32),
        torch.tensor([0, 1] * 12),
        pd.DataFrame({"label": [0, 1] * 12}),
        np.array([[0], [1]] * 12),
    ],
)
def test_labels_keep_their_type(labels: Any) -> None:
    values = np.asarray(labels).reshape(-1)
    read = labels_of(labels, "labels", "fit(texts, [{}])")
    assert read.tolist() == values.tolist()
    assert read.dtype == values.dtype or values.dtype == object


@pytest.mark.parametrize(
    ("labels", "match"),
    [
        ([0.5, 1.5], "Unknown label type"),
        ([float("inf"), 1.0], "Unknown label type"),
        ([1, "a"], "labels\\[0\\] is 1 and labels\\[1\\] is 'a'"),
        ([True, 2], "several types"),
        ([None, 1], r"labels\[0\].*missing"),
        ([1.0, float("nan")], r"labels\[1\].*missing"),
        (pd.Series([1, None], dtype="Int64"), r"labels\[1\].*missing"),
        ([["a"], ["b", "c"]], "MultiLabelBinarizer"),
        (np.eye(2), "MultiOutputClassifier"),
        (pd.DataFrame({"a": [0, 1], "b": [1, 0]}), "MultiOutputClassifier"),
        ([b"a", b"b"], "strings"),
        (["", "a"], "no label"),
        ([-100, 1], "no label"),
        ("ab", "string object received"),
    ],
)
def test_labels_that_are_no_classes_are_refused(labels: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        labels_of(labels, "labels", "fit(texts, [{}])")


def test_texts_and_labels_have_one_length_and_two_classes() -> None:
    for texts, labels, match in (
        (TEXTS, LABELS[:5], "24 .*labels 5"),
        (TEXTS, None, "requires y"),
        ([], [], "empty"),
        (TEXTS, [1] * 24, "class"),
        (["a", "b"], [0, 1], "validation_fraction=0"),
        (["yes", "no"] * 12, [f"text {row}" for row in range(24)], r"24 different labels.*fit\(texts, labels\)"),
        (TEXTS, range(24), "24 different labels"),
    ):
        with pytest.raises(UserError, match=match):
            StarClassifier().fit(texts, labels)


def test_messages_name_parameters_and_not_flags() -> None:
    for parameters, match in (
        ({"validation_fraction": 1.5}, "^validation_fraction=1.5"),
        ({"model_name_or_path": "/no/folder"}, "^model_name_or_path"),
        ({"arguments": {"lexicon": "/no/file"}}, 'arguments={"lexicon"'),
    ):
        with pytest.raises(UserError, match=match) as caught:
            StarClassifier(**parameters).fit(TEXTS, LABELS)
        assert "--" not in str(caught.value)


# ------ weights and messages


def test_weights_repeat_rows_in_proportion() -> None:
    assert repetitions([1, 1, 1], 3, seed=0).tolist() == [1, 1, 1]
    assert repetitions([2, 0, 1], 3, seed=0).tolist() == [2, 0, 1]
    assert repetitions([7] * 5, 5, seed=0).tolist() == [1] * 5
    counts = np.mean([repetitions([1, 3], 2, seed) for seed in range(400)], axis=0)
    assert counts == pytest.approx([0.5, 1.5], abs=0.1)
    for weights, match in (([1], "shape"), ([1, -1], "below 0"), ([0, 0], "zero"), ([1, np.nan], "finite")):
        with pytest.raises(UserError, match=match):
            repetitions(weights, 2, seed=0)


# ------ scikit-learn's own checks


class OfNumbers(StarClassifier):
    """
    A small classifier of tables: each row is a text of its rounded numbers.

    scikit-learn's checks give tables of numbers, and check nothing of an estimator that takes only texts.
    """

    def __init__(
        self,
        model_name_or_path: str | None = None,
        config_overrides: str | None = "hidden_size=16,num_attention_heads=2",
        num_train_epochs: float = 1,
        learning_rate: float | None = None,
        batch_size: int = 32,
        validation_fraction: float = 0,
        seed: int = 42,
        arguments: dict[str, Any] | None = None,
        verbose: bool = False,
        class_weight: Any = None,
    ) -> None:
        super().__init__(
            model_name_or_path,
            config_overrides,
            num_train_epochs,
            learning_rate,
            batch_size,
            validation_fraction,
            seed,
            arguments,
            verbose,
            class_weight,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string = True, False
        return tags

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "OfNumbers":  # type: ignore[override]  # noqa: N803
        return super().fit(self.texts(X, reset=True), y, sample_weight)

    def predict_proba(self, table: Any) -> np.ndarray:
        check_is_fitted(self)
        return super().predict_proba(self.texts(table, reset=False))

    def texts(self, table: Any, reset: bool) -> list[str]:
        rows = validate_data(self, table, reset=reset).tolist()
        return [" ".join(f"{column}:{value:.0f}" for column, value in enumerate(row)) for row in rows]


DIFFERENT = {
    "check_classifiers_train": "needs more than one epoch of rounded numbers",
    "check_class_weight_classifiers": "needs more than one epoch of rounded numbers",
    "check_sample_weight_equivalence_on_dense_data": "other batches: the order of repeated rows differs",
    "check_methods_subset_invariance": "float32: a text in another batch differs in the seventh digit",
    "check_methods_sample_order_invariance": "as above: seen on AVX-512, once in some orders",
    "check_supervised_y_2d": "a column of labels is read without a warning",
}


@pytest.mark.slow
@parametrize_with_checks([OfNumbers()], expected_failed_checks=lambda _: DIFFERENT)
def test_a_classifier_passes_the_checks_of_scikit_learn(estimator: OfNumbers, check: Any) -> None:
    check(estimator)
