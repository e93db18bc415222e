"""BLEU and chrF of added counts against sacrebleu, and in Trainer's metrics."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive_bootstrap import naive_bootstrap, paired_bootstrap
from sacrebleu.metrics import BLEU, CHRF
from script_samples import write_rows
from synthetic.parallel import sentence_pair
from transformers import EvalPrediction
from translation.scores import (
    TranslationMetrics,
    bleu_of_counts,
    bleu_signature,
    chrf_of_counts,
    count_characters,
    count_ngrams,
)

from modeling_star.evaluation.compare import compare, read_system
from modeling_star.evaluation.metrics import count_examples


PAIRS = [sentence_pair(37 * number) for number in range(150)]


def some_translations(count: int, seed: int) -> tuple[list[str], list[str], list[str]]:
    """References, and two systems that leave words out or swap them."""
    rng = np.random.default_rng(seed)
    references = [pair["en"] for pair in PAIRS[:count]]
    systems: list[list[str]] = [[], []]
    for system, rate in zip(systems, (0.2, 0.4), strict=True):
        for text in references:
            words = [word for word in text.split() if rng.random() > rate]
            rng.shuffle(words[: int(rng.integers(0, 3))])
            system.append(" ".join(words))
    return references, systems[0], systems[1]


def added_bleu(found: list[str], references: list[str]) -> float:
    return float(bleu_of_counts(count_ngrams(found, references, "13a").sum(0)))


def added_chrf(found: list[str], references: list[str]) -> float:
    return float(chrf_of_counts(count_characters(found, references).sum(0)))


@pytest.mark.parametrize(("metric", "added"), [(BLEU, added_bleu), (CHRF, added_chrf)])
@pytest.mark.parametrize("size", [1, 2, 3, 10, 80])
def test_the_score_of_added_counts_is_sacrebleus(metric: Any, added: Callable[..., float], size: int) -> None:
    references, found, _ = some_translations(80, seed=2)
    for start in range(0, 80, size):
        part = slice(start, start + size)
        expected = metric().corpus_score(found[part], [references[part]]).score / 100
        # An order that no sentence is long enough for is 0 to sacrebleu's BLEU, too.
        assert added(found[part], references[part]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("found", [["", ""], ["", "a b c d e"], ["x", "y z"], ["a b c d e", "f g h i j k"]])
def test_bleu_of_nothing_found_or_written_is_sacrebleus(found: list[str]) -> None:
    references = ["a b c d e", "f g h i j k"]
    expected = BLEU().corpus_score(found, [references]).score / 100
    assert added_bleu(found, references) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("found", "known"),
    [("", "abc"), ("abc", ""), ("", ""), ("ab", "abcdefgh"), ("abcdefgh", "ab"), ("x y\u3000z", "xyz"), ("q", "abc")],
)
def test_chrf_of_short_and_empty_texts_is_sacrebleus(found: str, known: str) -> None:
    expected = CHRF().corpus_score([found], [[known]]).score / 100
    assert added_chrf([found], [known]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("name", "metric"), [("bleu", BLEU), ("chrf", CHRF)])
def test_the_bootstrap_is_that_of_sacrebleu_on_every_sample(name: str, metric: type[BLEU] | type[CHRF]) -> None:
    references, first, second = some_translations(40, seed=3)

    def corpus_score(truth: list[str], guess: list[str]) -> float:
        return metric().corpus_score(list(guess), [list(truth)]).score / 100

    by_counts = paired_bootstrap(name, references, first, second, samples=30, seed=3)
    by_call = naive_bootstrap(corpus_score, references, [first], [second], samples=30, seed=3)
    assert by_counts == pytest.approx(by_call)
    assert by_counts.difference > 0


def test_chinese_is_cut_up_into_characters_for_bleu() -> None:
    chinese = [pair["zh"] for pair in PAIRS[:9]]
    assert count_examples("bleu_zh", chinese, chinese)[:, 8].min() > 5
    assert count_examples("bleu", chinese, chinese)[:, 8].max() < 5


def test_the_metrics_score_decoded_ids_against_the_texts_as_written() -> None:
    metrics = TranslationMetrics("13a").for_split(["A b c d.", "E f"], lambda ids: ["A b c d.", "E f"][: len(ids)])
    prediction = EvalPrediction(predictions=(np.ones((2, 4)), np.ones((2, 2))), label_ids=np.ones((2, 4)))
    assert metrics(prediction) == pytest.approx({"bleu": 100.0, "chrf": 100.0})
    assert sorted(metrics(prediction)) == metrics.score_names()
    with pytest.raises(ValueError, match="1 translations were made for 2 references"):
        metrics(EvalPrediction(predictions=(np.ones((1, 4)), np.ones((1, 2))), label_ids=np.ones((1, 4))))
    assert "tok:zh" in bleu_signature("zh")


@pytest.mark.parametrize(
    ("text", "scores", "metric", "shown"),
    [
        ("it rains today now", {"test_bleu": 100}, None, "bleu"),
        ("今天下雨了", {"test_bleu": 100}, None, "bleu_zh"),
        ("it rains", {"test_chrf": 100}, "chrf", "chrf"),
    ],
)
def test_runs_are_compared_by_the_metric_that_they_were_scored_by(
    tmp_path: Path, text: str, scores: dict[str, float], metric: str | None, shown: str
) -> None:
    write_rows(tmp_path / "predictions_test.jsonl", [{"source": "雨", "label": text, "predicted": text}])
    (tmp_path / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    system = read_system(tmp_path)
    assert f"| {shown}, % |" in compare([system, system], metric)
