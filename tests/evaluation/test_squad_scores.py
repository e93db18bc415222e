"""Exact match and F1 of answers: cases, and on all of DRCD's test split against plain loops written anew."""

import gzip
import json
import random
import string
import unicodedata

import numpy as np
import pytest
from real_data import data_folder

from modeling_star.evaluation.metrics import count_examples, score_counts
from modeling_star.evaluation.squad import (
    answer_language,
    best_threshold,
    longest_run,
    normalise,
    score_answer,
    score_answers,
    segments,
)


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


def plain_english(text: str) -> list[str]:
    kept = ""
    for sign in text.lower():
        if sign not in string.punctuation:
            kept += sign
    return [word for word in kept.split() if word not in ("a", "an", "the")]


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


def score_english(predicted: str, answers: list[str]) -> tuple[float, float]:
    guess = plain_english(predicted)
    best = 0.0
    for answer in answers:
        left = plain_english(answer)
        size, shared = len(left), 0
        for word in guess:
            if word in left:
                left.remove(word)
                shared += 1
        if shared:
            best = max(best, 2 * shared / (len(guess) + size))
    return float(any(guess == plain_english(answer) for answer in answers)), best


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


def test_english_answers_are_scored_as_plain_loops_score_them() -> None:
    draw = random.Random(1)
    words = ["The", "a", "cat", "cats", "U.S.", "dog's", "an", "and", "3.5%", "theme", "Cat", ",", "well-known"]
    for _ in range(500):
        answers = [" ".join(draw.choices(words, k=draw.randint(1, 5))) for _ in range(draw.randint(1, 3))]
        guess = draw.choice([draw.choice(answers), " ".join(draw.choices(words, k=draw.randint(1, 5)))])
        if not all(map(plain_english, [guess, *answers])):
            continue  # nothing but articles and punctuation: SQuAD 1.1 and 2.0 disagree
        assert score_answer(guess, answers, "en") == pytest.approx(score_english(guess, answers))


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


def test_chinese_characters_are_separate_and_other_words_are_whole() -> None:
    assert segments("A4紙 3.5公尺，U.S. 々ー", "zh") == ["a4", "紙", "3.5", "公", "尺", "u", ".", "s", ".", "々ー"]
    assert normalise("The  Cat's, a dog", "en") == "cats dog"


def test_the_language_is_that_of_most_answers() -> None:
    assert answer_language(["梵語", "IBM", "八篇書"]) == "zh"
    assert answer_language(["Oslo", "八篇書"]) == "en"
    assert answer_language([]) == "en"


def test_the_longest_run_is_that_of_plain_loops() -> None:
    draw = random.Random(2)
    for _ in range(300):
        one, other = (draw.choices("ab年", k=draw.randint(0, 9)) for _ in range(2))
        assert longest_run(one, other) == longest_common_run(one, other)


def test_the_best_threshold_is_that_of_trying_them_all() -> None:
    draw = np.random.default_rng(0)
    for _ in range(200):
        count = int(draw.integers(1, 12))
        has_answer = draw.random(count) < 0.6
        scores = np.where(has_answer, draw.random(count).round(1), 0.0)
        differences = draw.integers(-3, 4, count) / 2

        def mean(threshold: float) -> float:
            answered = differences <= threshold  # noqa: B023
            return float(np.where(answered, scores, ~has_answer).mean())  # noqa: B023

        best, threshold = best_threshold(scores, has_answer, differences)
        assert best == pytest.approx(max(mean(one) for one in [-10.0, *differences]))
        assert mean(threshold) == pytest.approx(best)
