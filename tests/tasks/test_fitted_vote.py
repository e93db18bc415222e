"""The TF-IDF that votes with a trained encoder: its fit against scikit-learn's own features, and when it is added."""

import json
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from script_samples import write_bert, write_rows
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from task_samples import Parsed
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from modeling_star import StarClassifier
from modeling_star.errors import UserError
from modeling_star.models.token_runs import TfidfTerms
from modeling_star.runs.run import load_task, run_once
from modeling_star.tasks import tfidf, tfidf_terms
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.tfidf_terms import calibrated, fit_terms, linear_logits, log_loss
from modeling_star.training.trainer import StarTrainer


NOTHING = tuple(torch.zeros(0) for _ in range(4))


def some_texts(count: int, seed: int, kinds: int = 2) -> tuple[list[list[int]], np.ndarray]:
    """Ids of texts, in which each class prefers tokens and pairs of tokens of its own."""
    chance = random.Random(seed)
    labels = [index % kinds for index in range(count)]
    texts = []
    for label in labels:
        text = [chance.randrange(10, 40) for _ in range(chance.randrange(6, 14))]
        text[3:5] = [50, 60 + label] if chance.random() < 0.8 else text[3:5]
        texts.append(text)
    return texts, np.array(labels)


@pytest.mark.parametrize("kinds", [2, 3])
@pytest.mark.parametrize("sublinear", [True, False])
@pytest.mark.parametrize("length", [1, 12], ids=["few values", "many values"])
def test_the_fit_is_that_of_scikit_learn_on_its_own_features(kinds: int, sublinear: bool, length: int) -> None:
    train, labels = some_texts(90, 0, kinds)
    train = [text * length for text in train]
    terms = fit_terms(train, labels, kinds, 2, like=TfidfTerms(*NOTHING, sublinear=sublinear, strength=3.0))

    vectorizer = TfidfVectorizer(
        ngram_range=(1, 2), sublinear_tf=sublinear, min_df=2, max_df=len(train) - 1, token_pattern=r"\d+"
    )
    features = vectorizer.fit_transform([" ".join(map(str, text)) for text in train])
    validation, expected = some_texts(30, 1, kinds)
    held_out = vectorizer.transform([" ".join(map(str, text)) for text in validation])
    assert len(terms.keys) == features.shape[1]
    has_term = features.toarray() > 0
    ratios = []
    for label in range(kinds):
        inside, outside = (has_term[labels == label].sum(0) + 1, has_term[labels != label].sum(0) + 1)
        ratios.append(np.abs(np.log(inside / inside.sum()) - np.log(outside / outside.sum())))
    scale = 0.5 + np.max(ratios, axis=0)
    fit = LogisticRegression(C=3.0, max_iter=1000).fit(features.multiply(scale), labels)
    found = softmax(linear_logits(terms, validation), axis=-1)
    assert found == pytest.approx(fit.predict_proba(held_out.multiply(scale)), abs=0.01)
    assert (found.argmax(1) == expected).mean() > 0.7


def test_cross_validation_chooses_the_settings_with_the_least_loss_on_held_out_texts() -> None:
    (train, labels), (held_out, expected) = some_texts(200, 0), some_texts(400, 1)
    settings = [(sublinear, strength) for sublinear in (True, False) for strength in tfidf_terms.STRENGTHS]
    fits = [
        fit_terms(train, labels, 2, 2, like=TfidfTerms(*NOTHING, sublinear=sublinear, strength=strength))
        for sublinear, strength in settings
    ]
    losses = [log_loss(linear_logits(terms, held_out), expected) for terms in fits]
    chosen = fit_terms(train, labels, 2, 2)
    loss = losses[settings.index((chosen.sublinear, chosen.strength))]
    assert loss < min(losses) + 0.3 * (max(losses) - min(losses))


@pytest.mark.parametrize("count", [3, 4])
def test_terms_are_fitted_to_fewer_texts_than_folds(count: int) -> None:
    rows = [np.array([5, 6 + number % 2]) for number in range(count - 1)] + [np.array([6, 7])]
    terms = fit_terms(rows, np.arange(count) % 2, 2, 1)
    assert terms is not None
    assert terms.weight.isfinite().all()


def test_several_labels_have_a_regression_each() -> None:
    (train, classes), (validation, expected) = some_texts(90, 0, 3), some_texts(30, 1, 3)

    rows = np.zeros((len(classes), 5))
    rows[:, 0], rows[:, 1], rows[:, 2] = classes == 0, classes != 1, -100
    rows[:, 3], rows[:, 4] = 0, 1
    rows[::3, 2] = classes[::3] == 2
    rows[1::3, 2] = classes[1::3] == 2
    terms = fit_terms(train, rows, 5, 2)
    found = expit(linear_logits(terms, validation))
    assert ((found[:, 0] > 0.5) == (expected == 0)).mean() > 0.7
    assert ((found[:, 1] > 0.5) == (expected != 1)).mean() > 0.7
    assert found[:, 3].max() < 0.01
    assert found[:, 4].min() > 0.99


@pytest.mark.parametrize("several", [False, True])
def test_an_encoder_that_is_too_certain_is_cooled_and_has_its_share(several: bool) -> None:
    generator = np.random.default_rng(0)
    truth = generator.integers(0, 2, 400)
    expected = np.stack([1 - truth, truth], 1) if several else truth
    terms = TfidfTerms(*NOTHING)

    def logits(accuracy: float, size: float) -> np.ndarray:
        right = np.where(generator.random(400) < accuracy, 1, -1) * (2 * truth - 1)
        return np.stack([-right, right], 1) * size

    fitted = calibrated(terms, logits(0.8, 9.0), logits(0.8, 0.7), expected)
    assert fitted.temperature > 4
    assert 0.2 < fitted.share < 0.8
    assert calibrated(terms, logits(0.6, 9.0), logits(0.95, 1.5), expected).share > 0.8
    assert calibrated(terms, logits(0.95, 3.0), logits(0.6, 0.2), expected).share < 0.2
    assert log_loss(np.zeros((4, 2)), expected[:4]) == pytest.approx(np.log(2))


# ------ in a run

QUICK = ("--max_steps=2", "--disable_tqdm=true", "--report_to=none", "--validation_fraction=0.5")
SMALL = "--config_overrides=hidden_size=16,num_attention_heads=2"


def rows_of(*columns: str, label: Callable[[str], Any] = lambda word: word) -> list[dict[str, Any]]:
    cells = [f"{word} text {number % 7} of many" for number, word in enumerate(["dull", "fine"] * 30)]
    return [{**dict.fromkeys(columns, cell), "label": label(cell[:4])} for cell in cells]


@pytest.fixture
def result_of(parsed: Callable[..., Parsed], tmp_path: Path) -> Callable[..., tuple[Path, dict[str, Any]]]:
    """Trains on rows; the folder and the results."""

    def run(name: str, rows: list[dict[str, Any]], *given: str) -> tuple[Path, dict[str, Any]]:
        files = [
            f"--{split}_file={write_rows(tmp_path / f'{name}-{split}.jsonl', rows)}" for split in ("train", "test")
        ]
        *groups, training = parsed(ClassificationTask, *QUICK, *files, *given)
        training.output_dir = str(tmp_path / name)
        return tmp_path / name, run_once(load_task(ClassificationTask, *groups), training)

    return run


def terms_in(folder: Path) -> int:
    return json.loads((folder / "config.json").read_text())["tfidf_terms"]


def test_a_run_without_a_shape_saves_a_vote_and_training_it_again_fits_it_again(
    result_of: Callable[..., tuple[Path, dict[str, Any]]],
) -> None:
    folder, results = result_of("first", rows_of("text"), "--tfidf_vote=true")
    assert terms_in(folder) > 5
    assert results["test_accuracy"] == 1.0
    model, tokenizer = (auto.from_pretrained(folder) for auto in (AutoModelForSequenceClassification, AutoTokenizer))
    with torch.no_grad():
        logits = model(**tokenizer(["a fine text", "a dull text"], padding=True, return_tensors="pt")).logits
    assert [model.config.id2label[int(row.argmax())] for row in logits] == ["fine", "dull"]
    # The label of a word changes, which the terms follow.
    turned = rows_of("text", label=lambda word: {"dull": "fine", "fine": "dull"}[word])
    again, results = result_of("again", turned, f"--model_name_or_path={folder}", "--learning_rate=0")
    assert terms_in(again) == terms_in(folder)
    assert results["test_accuracy"] == 1.0
    alone, _ = result_of("alone", rows_of("text"), f"--model_name_or_path={folder}", "--tfidf_vote=false")
    assert terms_in(alone) == 0


@pytest.mark.parametrize(
    ("given", "rows", "votes"),
    [
        ([SMALL], rows_of("text"), False),
        ([SMALL, "--tfidf_vote=true"], rows_of("text"), True),
        ([SMALL, "--tfidf_vote=true"], rows_of("text")[:12], True),
        ([], rows_of("sentence1", "sentence2"), False),
        ([], rows_of("text", label=lambda word: len(word) + 0.5 * (word == "dull")), False),
        (["--tfidf_vote=true", "--validation_fraction=0"], rows_of("text"), False),
        (["--tfidf_vote=true"], rows_of("text", label=lambda word: [word, "text"]), True),
    ],
    ids=["shape", "asked", "asked, few rows", "pairs", "regression", "no validation", "several labels"],
)
def test_who_votes_follows_from_arguments_and_data(
    result_of: Callable[..., tuple[Path, dict[str, Any]]], given: list[str], rows: list[dict[str, Any]], votes: bool
) -> None:
    folder, _ = result_of("run", rows, *given)
    assert (terms_in(folder) > 0) == votes


@pytest.mark.parametrize(
    "given", [[], ["--model_type=tfidf"], ["--validation_fraction=0"]], ids=["default", "asked", "no validation"]
)
def test_tfidf_classifies_alone(result_of: Callable[..., tuple[Path, dict[str, Any]]], given: list[str]) -> None:
    folder, results = result_of("alone", rows_of("text"), *given)
    assert json.loads((folder / "config.json").read_text())["tfidf_alone"]
    assert results["test_accuracy"] == 1.0
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert ("TF-IDF" in card, "Star-Transformer" in card, "learning rate |" in card) == (True, False, False)
    assert "train_loss" not in results
    # Trained further it is fitted to the new texts, with its tokens.
    turned = rows_of("text", label=lambda word: {"dull": "fine", "fine": "dull"}[word])
    again, results = result_of("again", turned, f"--model_name_or_path={folder}")
    assert json.loads((again / "config.json").read_text())["tfidf_alone"]
    assert results["test_accuracy"] == 1.0
    # Its encoder is none, also for other labels.
    other = rows_of("text", label={"dull": "no", "fine": "yes"}.__getitem__)
    last, results = result_of("other", other, f"--model_name_or_path={folder}", "--ignore_mismatched_sizes=true")
    assert json.loads((last / "config.json").read_text())["tfidf_alone"]
    assert results["test_accuracy"] == 1.0
    with pytest.raises(UserError, match="omit --tfidf_vote, or --model_name_or_path"):
        result_of("vote", turned, f"--model_name_or_path={folder}", "--tfidf_vote=true")


def test_an_estimator_says_that_a_pretrained_encoder_is_not_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, labels = zip(*((row["text"], row["label"]) for row in rows_of("text") * 2), strict=True)
    bert = write_bert(tmp_path / "bert", texts)
    arguments = {"pretrained": bert, "validation_fraction": 0.5}
    classifier = StarClassifier(num_train_epochs=1, learning_rate=0.0, arguments=arguments).fit(texts, labels)
    assert classifier.predictor_.model.config.tfidf_alone
    assert "The encoder is not kept" in capsys.readouterr().out


@pytest.mark.parametrize("is_better", [False, True])
def test_a_pretrained_encoder_or_tfidf_classifies_alone_where_the_other_adds_nothing(
    result_of: Callable[..., tuple[Path, dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    is_better: bool,
) -> None:
    predict = StarTrainer.predict

    def certain(trainer: StarTrainer, features: Any, **given: Any) -> Any:
        output = predict(trainer, features, **given)
        return output._replace(predictions=20 * np.eye(2)[output.label_ids])

    if is_better:
        monkeypatch.setattr(StarTrainer, "predict", certain)
        monkeypatch.setattr(tfidf, "linear_logits", lambda terms, rows: np.zeros((len(rows), 2)))
    bert = write_bert(tmp_path / "bert", [row["text"] for row in rows_of("text")])
    folder, results = result_of("encoder", rows_of("text"), f"--pretrained={bert}", "--learning_rate=0")
    assert "train_loss" in results
    assert (terms_in(folder) == 0) == is_better
    assert json.loads((folder / "config.json").read_text())["tfidf_alone"] == (not is_better)


def test_a_few_held_out_rows_do_not_decide_about_a_pretrained_encoder(
    result_of: Callable[..., tuple[Path, dict[str, Any]]], tmp_path: Path
) -> None:
    rows = rows_of("text")[:12]
    bert = write_bert(tmp_path / "bert", [row["text"] for row in rows])
    folder, _ = result_of("encoder", rows, f"--pretrained={bert}")
    assert terms_in(folder) == 0
    assert not json.loads((folder / "config.json").read_text())["tfidf_alone"]


@pytest.mark.parametrize("label", ["dull", ["dull"]], ids=["a class", "a list"])
def test_one_label_of_all_rows_is_refused(
    result_of: Callable[..., tuple[Path, dict[str, Any]]], label: str | list[str]
) -> None:
    with pytest.raises(UserError, match="there is only one class"):
        result_of("run", rows_of("text", label=lambda _: label))


def test_the_held_out_rows_are_scored_before_they_are_learnt(
    result_of: Callable[..., tuple[Path, dict[str, Any]]],
) -> None:
    # The class of a text follows from nothing, so that only texts that were learnt are known.
    chance = random.Random(0)
    rows = [{"text": f"a{n} a{n} b{n % 30} c{n % 17}", "label": chance.choice("xy")} for n in range(60)]
    folder, results = result_of("run", [*rows, *rows[:2]], "--tokenizer_kind=character")
    assert results["eval_accuracy"] < 0.8
    texts = [row["text"] for row in rows]
    found = StarClassifier.load(folder).predict(texts)
    assert np.mean(found == [row["label"] for row in rows]) > 0.9


def test_the_estimator_votes_and_its_pickle_does(capsys: pytest.CaptureFixture[str]) -> None:
    rows = rows_of("text")
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    classifier = StarClassifier(arguments={"max_steps": 2}, validation_fraction=0.5).fit(texts, labels)
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert classifier.predict(["a dull text", "a fine text"]).tolist() == ["dull", "fine"]
    copied = pickle.loads(pickle.dumps(classifier))
    assert np.array_equal(copied.predict_proba(texts), classifier.predict_proba(texts))
