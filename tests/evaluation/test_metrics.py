"""Metrics against hand-made cases and their libraries, in Trainer; answers against plain loops."""

import gzip
import json
import random
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from datasets import Dataset
from real_data import data_folder
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
from modeling_star.evaluation.metrics import count_examples, entity_report, is_entity_scheme, score_counts
from modeling_star.evaluation.squad import (
    answer_language,
    score_answer,
    score_answers,
)
from modeling_star.evaluation.task_metrics import metrics_for


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


def test_an_entity_across_two_windows_is_one() -> None:
    truth = np.array([[-100, 0, 1, -100], [-100, -100, 2, 0], [-100, 3, -100, -100]])
    prediction = EvalPrediction(np.where(truth == 3, 0, truth.clip(0)), truth)  # it misses the second entity
    apart = metrics_for("tagging", LABELS)
    together = apart.for_windows([0, 0, 1])
    assert apart(prediction)["recall"] == pytest.approx(2 / 3)
    assert together(prediction)["recall"] == 0.5
    assert together.decode(prediction)[0] == [["O", "B-PER", "I-PER", "O"], ["B-LOC"]]


def test_trainer_scores_the_words_that_predictions_are_put_back_on(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sentences = [[f"w{rng.integers(9)}" for _ in range(length)] for length in (3, 40, 1, 17, 25)]
    tags = [rng.integers(0, 5, len(words)).tolist() for words in sentences]
    tokenizer = train_tokenizer(sentences, "character", min_frequency=2)
    data = Dataset.from_dict({"tokens": sentences, "tags": tags})
    features = tokenize_and_align(data, tokenizer, max_seq_length=16, stride=4)
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


def test_best_paths_beside_logits_are_what_is_scored() -> None:
    """As the stock Trainer gathers them of a tagger with a CRF: logits, paths and losses of rows."""
    logits = np.array([[[9.0, 0, 0], [0, 9, 0], [9, 0, 0]]])
    paths, labels = np.array([[0, 1, 2]]), np.array([[0, 1, 2]])
    metrics = metrics_for("tagging", ["O", "B-PER", "I-PER"])
    assert metrics(EvalPrediction(predictions=(logits, paths, np.array([0.5])), label_ids=labels))["f1"] == 1
    assert metrics(EvalPrediction(predictions=logits, label_ids=labels))["f1"] == 0


# Another implementation: no regular expressions, no tables, loops only


def is_chinese(sign: str) -> bool:
    return unicodedata.name(sign, "").startswith(("CJK UNIFIED", "CJK COMPATIBILITY IDEO", "HIRAGANA", "KATAKANA"))


def plain_chinese(text: str) -> str:
    kept = ""
    for sign in text.lower().strip():
        if sign not in "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』":
            kept += sign
    return kept


def pieces_chinese(text: str) -> list[str]:
    found: list[str] = []
    word = ""
    signs = plain_chinese(text)
    for place, sign in enumerate(signs):
        joins = sign.isalnum() or sign == "_"
        after = signs[place + 1] if place + 1 < len(signs) else ""
        # A point inside a number.
        inside = sign in ".," and word[-1:].isdecimal() and after.isdecimal()
        if (joins and not is_chinese(sign)) or inside:
            word += sign
            continue
        if word:
            found.append(word)
            word = ""
        if not sign.isspace():
            found.append(sign)
    return [*found, word] if word else found


def longest_common_run(one: list[str], other: list[str]) -> int:
    best = 0
    for i in range(len(one)):
        for j in range(len(other)):
            length = 0
            while i + length < len(one) and j + length < len(other) and one[i + length] == other[j + length]:
                length += 1
            best = max(best, length)
    return best


def score_chinese(predicted: str, answers: list[str]) -> tuple[float, float]:
    exact = any(plain_chinese(predicted) == plain_chinese(answer) for answer in answers)
    best = 0.0
    for answer in answers:
        one, other = pieces_chinese(predicted), pieces_chinese(answer)
        run = longest_common_run(one, other)
        if run:
            precision, recall = run / len(one), run / len(other)
            best = max(best, 2 * precision * recall / (precision + recall))
    return float(exact), best


def changed(answer: str, start: int, context: str, others: list[str], kind: int, draw: random.Random) -> str:
    """A prediction that is right, nearly right or wrong, in one of ten ways."""
    end = start + len(answer)
    ways = [
        answer,
        answer[1:],
        answer[: max(1, len(answer) // 2)],
        context[max(0, start - 3) : end],
        context[start : end + 4],
        "「" + answer.upper() + "」。",
        " " + answer + " ",
        answer[::-1],
        draw.choice(others),
        "",
    ]
    return ways[kind % len(ways)]


@pytest.fixture(scope="module")
def drcd() -> list[dict]:
    with gzip.open(data_folder("drcd") / "test.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def test_all_of_drcds_test_questions_are_scored_as_plain_loops_score_them(drcd: list[dict]) -> None:
    assert len(drcd) == 3493
    draw = random.Random(0)
    others = [row["answers"]["text"][0] for row in drcd]
    predictions, references = [], []
    for number, row in enumerate(drcd):
        answers = row["answers"]
        place = draw.randrange(len(answers["text"]))
        predictions.append(
            changed(answers["text"][place], answers["answer_start"][place], row["context"], others, number, draw)
        )
        references.append(answers["text"])
    exact, f1 = score_answers(predictions, references, "zh")
    expected = [score_chinese(guess, answers) for guess, answers in zip(predictions, references, strict=True)]
    assert exact.tolist() == [one for one, _ in expected]
    np.testing.assert_allclose(f1, [one for _, one in expected], rtol=0, atol=1e-12)
    # The perturbed predictions reach all there is to reach.
    assert 0.2 < exact.mean() < 0.5 < f1.mean() < 0.8
    assert ((f1 > 0) & (f1 < 1)).sum() > 700
    assert answer_language(answer for answers in references for answer in answers) == "zh"
    counts = count_examples("answer_f1", references, predictions)
    assert score_counts("answer_f1", counts) == pytest.approx(f1.mean())
    assert score_counts("answer_em", counts) == pytest.approx(exact.mean())


# Cases


@pytest.mark.parametrize(
    ("predicted", "answers", "language", "exact", "f1"),
    [
        ("The Cat!", ["cat", "dog"], "en", 1, 1),
        ("a big cat", ["cat"], "en", 0, 2 / 3),
        ("cat big", ["big cat"], "en", 0, 1),  # a bag of words
        ("cat cat", ["cat"], "en", 0, 2 / 3),
        ("3.5", ["35"], "en", 1, 1),
        ("dog", ["cat"], "en", 0, 0),
        ("《八篇书》", ["八篇书"], "zh", 1, 1),
        ("书八篇", ["八篇书"], "zh", 0, 2 / 3),  # the longest run, not a bag
        ("IBM公司", ["ibm"], "zh", 0, 2 / 4),
        ("ib", ["IBM"], "zh", 0, 0),  # a Latin word is whole
        ("3.5公尺", ["3.5公里"], "zh", 0, 2 / 3),
        ("1986年2月2日", ["1986年"], "zh", 0, 2 * 2 / 8),
        ("", [], "en", 1, 1),
        ("cat", [], "en", 0, 0),
        ("", ["cat"], "zh", 0, 0),
        ("", ["the"], "en", 1, 1),  # an answer of nothing but an article is none
    ],
)
def test_cases(predicted: str, answers: list[str], language: str, exact: float, f1: float) -> None:
    assert score_answer(predicted, answers, language) == pytest.approx((exact, f1))
