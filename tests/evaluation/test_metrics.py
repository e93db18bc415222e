"""Metrics against hand-made cases and their libraries, and in Trainer."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from datasets import Dataset
from sklearn import metrics as sklearn_metrics
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    EvalPrediction,
    Trainer,
    TrainingArguments,
)

from modeling_star.data.tagging import predictions_to_words, tokenize_and_align
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.evaluation.metrics import entity_report, is_entity_scheme
from modeling_star.evaluation.task_metrics import GLUE_METRICS, metrics_for


LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def logits(indices: np.ndarray, labels: int) -> np.ndarray:
    """Logits whose largest is at `indices`; -100 (Trainer's padding) gives a row of -100."""
    return np.where(indices[..., None] == -100, -100.0, np.eye(labels)[np.maximum(indices, 0)])


# Entities


def test_entities_are_counted_as_by_hand() -> None:
    references = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-LOC", "I-LOC", "O"], []]
    predictions = [["B-PER", "I-PER", "O", "B-PER"], ["O", "B-LOC", "O", "O"], []]
    result = entity_report(references, predictions)
    # found: PER 0-1 right, PER 3 wrong type, LOC 1 too short; expected: PER, LOC, LOC
    assert result["PER"] == {"precision": 0.5, "recall": 1.0, "f1": pytest.approx(2 / 3), "support": 1}
    assert result["LOC"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 2}
    assert result[None] == {**dict.fromkeys(("precision", "recall", "f1"), pytest.approx(1 / 3)), "support": 3}


def test_an_entity_that_starts_with_i_counts_as_in_conlleval() -> None:
    assert entity_report([["O", "B-PER", "I-PER"]], [["O", "I-PER", "I-PER"]])[None]["f1"] == 1.0


@pytest.mark.parametrize(
    ("sentence", "spans"),
    [
        (["B-X", "I-X", "L-X", "U-Y", "O"], {"X": 1, "Y": 1}),
        (["B-X", "M-X", "E-X", "S-Y", "O"], {"X": 1, "Y": 1}),
        (["B-X", "I-X", "B-X", "B-PER.NAM", "I-PER.NAM"], {"X": 2, "PER.NAM": 1}),
        (["S", "B", "M", "E", "B", "E"], {"word": 3}),
        (["B", "I", "B", "B", "I"], {"word": 3}),
    ],
)
@pytest.mark.filterwarnings("error")  # seqeval warns about letters that it does not know
def test_every_scheme_of_entity_tags_is_read(sentence: list[str], spans: dict[str, int]) -> None:
    result = entity_report([sentence], [sentence])
    assert {name: row["support"] for name, row in result.items() if name is not None} == spans
    assert result[None]["f1"] == 1.0


@pytest.mark.filterwarnings("error")
def test_data_without_entities_score_zero_without_a_warning() -> None:
    assert entity_report([["O", "O"]], [["O", "O"]])[None] == {"precision": 0, "recall": 0, "f1": 0, "support": 0}


@pytest.mark.parametrize(
    ("label_list", "entities"),
    [
        (LABELS, True),
        (["O", "B-PER.NAM", "I-GPE.NOM"], True),
        (["O", "S-X", "B-X", "M-X", "E-X"], True),
        (["NOUN", "VERB", "X"], False),
        (["NN", "-LRB-", "LS", "IN"], False),
        (["B", "E", "M", "S"], True),
        (["B", "I", "O"], True),
        (["B", "M"], False),
        (["B", "I", "N"], False),
        (["O", "PER"], False),
        (["O"], False),
    ],
)
def test_entity_tags_are_recognized(label_list: list[str], entities: bool) -> None:
    assert is_entity_scheme(label_list) is entities


# The others, against their libraries


def test_token_scores_run_over_all_tokens() -> None:
    truth, guess = np.array([[0, 1, -100], [0, -100, -100]]), np.array([[0, 0, 1], [0, 1, 1]])
    result = metrics_for("tokens", ["A", "B"])(EvalPrediction(guess, truth))
    assert result == {"accuracy": pytest.approx(2 / 3), "macro_f1": pytest.approx(0.4)}


def test_classification_scores_equal_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, guess = rng.integers(0, 2, 50), rng.integers(0, 2, 50)
    result = metrics_for("single_label_classification", ["no", "yes"])(EvalPrediction(guess, truth))
    assert result == {
        "accuracy": (truth == guess).mean(),
        "macro_f1": sklearn_metrics.f1_score(truth, guess, average="macro"),
        "weighted_f1": pytest.approx(sklearn_metrics.f1_score(truth, guess, average="weighted")),
        "matthews_correlation": pytest.approx(np.corrcoef(truth, guess)[0, 1]),
        "f1": sklearn_metrics.f1_score(truth, guess),
    }


def test_multi_label_scores_equal_scikit_learn() -> None:
    """Of whole rows, of all labels together, and the mean over all labels, also one that no row has (the last)."""
    rng = np.random.default_rng(0)
    truth, guess = (np.pad(rng.integers(0, 2, (20, 4)), ((0, 0), (0, 1))) for _ in range(2))
    result = metrics_for("multi_label_classification", list("abcde"))(EvalPrediction(guess - 0.5, truth))
    assert result == {
        "micro_f1": pytest.approx(sklearn_metrics.f1_score(truth, guess, average="micro")),
        "macro_f1": pytest.approx(sklearn_metrics.f1_score(truth, guess, average="macro", zero_division=0)),
        "accuracy": sklearn_metrics.accuracy_score(truth, guess),
    }


def test_regression_scores_and_a_constant_prediction() -> None:
    truth, guess = np.array([0.0, 1.0, 4.0, 5.0]), np.array([0.1, 0.9, 3.0, 9.0])
    result = metrics_for("regression")(EvalPrediction(guess, truth))
    assert result["pearson"] == pytest.approx(np.corrcoef(truth, guess)[0, 1])
    assert result["spearmanr"] == pytest.approx(1.0)
    assert result["mse"] == pytest.approx(np.mean((guess - truth) ** 2))
    constant = metrics_for("regression")(EvalPrediction(np.full(4, 0.3), truth))
    assert (constant["pearson"], constant["spearmanr"]) == (0.0, 0.0)


# Metrics for Trainer


def test_tagging_scores_entities_and_ignores_padding() -> None:
    metrics = metrics_for("tagging", LABELS)
    truth = np.array([[-100, 1, 2, -100, 0, -100], [-100, 3, 0, -100, -100, -100]])
    guess = np.array([[4, 1, 2, 3, 0, 2], [4, 0, 0, 1, -100, -100]])
    expected = {"precision": 1.0, "recall": 0.5, "f1": pytest.approx(2 / 3), "accuracy": 0.8}
    assert metrics(EvalPrediction(logits(guess, 5), truth)) == expected
    assert metrics(EvalPrediction(guess, truth)) == expected  # label indices, as a CRF decodes them
    assert metrics(EvalPrediction((logits(guess, 5), np.zeros(3)), truth)) == expected
    assert metrics.metric_for_best_model == "f1"


def test_labels_that_name_no_entities_are_scored_by_token() -> None:
    metrics = metrics_for("tagging", ["NOUN", "VERB"])
    result = metrics(EvalPrediction(np.array([[0, 1, 1]]), np.array([[0, -100, 0]])))
    assert result == {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}
    assert metrics.metric_for_best_model == "accuracy"


def test_an_entity_across_two_windows_is_one() -> None:
    truth = np.array([[-100, 0, 1, -100], [-100, -100, 2, 0], [-100, 3, -100, -100]])
    prediction = EvalPrediction(np.where(truth == 3, 0, truth.clip(0)), truth)  # it misses the second entity
    apart = metrics_for("tagging", LABELS)
    together = apart.for_windows([0, 0, 1])
    assert apart(prediction)["recall"] == pytest.approx(2 / 3)
    assert together(prediction)["recall"] == 0.5
    assert together.decode(prediction)[0] == [["O", "B-PER", "I-PER", "O"], ["B-LOC"]]


def test_windows_of_another_data_set_are_refused() -> None:
    metrics = metrics_for("tagging", LABELS).for_windows([0, 0, 1])
    with pytest.raises(ValueError, match="for_windows"):
        metrics(EvalPrediction(np.zeros((2, 3, 5)), np.zeros((2, 3), int)))


def test_trainer_scores_the_words_that_predictions_are_put_back_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sentences = [[f"w{rng.integers(9)}" for _ in range(length)] for length in (3, 40, 1, 17, 25)]
    tags = [rng.integers(0, 5, len(words)).tolist() for words in sentences]
    tokenizer = train_tokenizer(sentences, "character", min_frequency=2)
    data = Dataset.from_dict({"tokens": sentences, "tags": tags})
    features = tokenize_and_align(data, tokenizer, LABELS, max_seq_length=16, stride=4)
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    config.num_labels = len(LABELS)
    trainer = Trainer(
        BertForTokenClassification(config),
        TrainingArguments(tmp_path, use_cpu=True, per_device_eval_batch_size=2, disable_tqdm=True),
        data_collator=DataCollatorForTokenClassification(tokenizer),
        compute_metrics=metrics_for("tagging", LABELS).for_windows(features["example_index"]),
    )
    output = trainer.predict(features)
    predictions = predictions_to_words(features, output.predictions, LABELS)
    references = [[LABELS[tag] for tag in row] for row in tags]
    assert len(features) > len(data)
    assert output.metrics["test_f1"] == entity_report(references, predictions)[None]["f1"]
    assert output.metrics["test_accuracy"] > 0


def test_classification_takes_logits_and_adds_f1_for_two_labels() -> None:
    prediction = EvalPrediction(np.array([[0.1, 2.0], [3.0, 1.0], [0.0, 1.0]]), np.array([1, 0, 0]))
    result = metrics_for("single_label_classification", ["no", "yes"])(prediction)
    assert result["accuracy"] == pytest.approx(2 / 3)
    assert result["f1"] == pytest.approx(2 / 3)
    assert "f1" not in metrics_for("single_label_classification", ["a", "b", "c"])(prediction)


def test_regression_takes_one_column_and_several_labels_are_predicted_from_one_half() -> None:
    result = metrics_for("regression")(EvalPrediction(np.array([[1.0], [2.0]]), np.array([1.0, 4.0])))
    assert result["mse"] == 2.0
    prediction = EvalPrediction(np.array([[1.0, -1.0]]), np.array([[1.0, 1.0]]))
    assert metrics_for("multi_label_classification", ["a", "b"])(prediction)["micro_f1"] == pytest.approx(2 / 3)


def test_glue_tasks_report_their_official_metrics() -> None:
    rng = np.random.default_rng(0)
    scores, truth = rng.normal(size=(30, 2)), rng.integers(0, 2, 30)
    guess = scores.argmax(-1)
    cola = metrics_for("cola")
    assert cola(EvalPrediction(scores, truth)) == {
        "matthews_correlation": pytest.approx(sklearn_metrics.matthews_corrcoef(truth, guess))
    }
    assert cola.metric_for_best_model == "matthews_correlation"
    mrpc = metrics_for("mrpc", ["not_equivalent", "equivalent"])
    result = mrpc(EvalPrediction(scores, truth))
    assert result["combined_score"] == pytest.approx((result["accuracy"] + result["f1"]) / 2)
    assert list(result) == ["accuracy", "f1", "combined_score"]
    assert mrpc.metric_for_best_model == "combined_score"
    stsb = metrics_for("stsb")(EvalPrediction(scores[:, :1], truth.astype(float)))
    assert stsb["spearmanr"] == pytest.approx(scipy.stats.spearmanr(scores[:, 0], truth).statistic)


@pytest.mark.parametrize("task", GLUE_METRICS)
def test_the_metric_of_the_best_model_is_reported(task: str) -> None:
    metrics = metrics_for(task)
    shape = (4, 1) if task == "stsb" else (4, 2)
    result = metrics(EvalPrediction(np.arange(np.prod(shape), dtype=float).reshape(shape), np.array([0, 1, 1, 0])))
    assert metrics.metric_for_best_model in result


def test_unknown_tasks_and_missing_labels_are_refused() -> None:
    with pytest.raises(ValueError, match="nerr"):
        metrics_for("nerr")
    with pytest.raises(ValueError, match="names of the labels"):
        metrics_for("tagging")
    with pytest.raises(ValueError, match="nothing to score"):
        metrics_for("tagging", LABELS)(EvalPrediction(np.zeros((1, 2, 5)), np.full((1, 2), -100)))


def test_best_paths_beside_logits_are_what_is_scored() -> None:
    """As the stock Trainer gathers them of a tagger with a CRF: logits, paths and losses of rows."""
    logits = np.array([[[9.0, 0, 0], [0, 9, 0], [9, 0, 0]]])
    paths, labels = np.array([[0, 1, 2]]), np.array([[0, 1, 2]])
    metrics = metrics_for("tagging", ["O", "B-PER", "I-PER"])
    assert metrics(EvalPrediction(predictions=(logits, paths, np.array([0.5])), label_ids=labels))["f1"] == 1
    assert metrics(EvalPrediction(predictions=logits, label_ids=labels))["f1"] == 0
