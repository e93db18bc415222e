"""Exact match and F1 of predicted answers, by words or by Chinese characters."""

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from ..data.writing_systems import HAN, KANA


Language = Literal["en", "zh"]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ENGLISH_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Removed by CMRC 2018's evaluation, which results on DRCD are reported with. "." and "," belong to numbers.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_HAS_CJK = re.compile(f"[{KANA}{HAN}]")
# One of the Chinese characters of CMRC 2018's evaluation (version 5); a word of other letters, or a number with its
# points; any other sign alone. That evaluation splits what is not Chinese with NLTK.
_SEGMENTS = re.compile(r"[\u4e00-\u9fa5]|(?:(?![\u4e00-\u9fa5])\w)+(?:(?<=\d)[.,]\d+)*|\S")


def answer_language(answers: Iterable[str]) -> Language:
    """The language to compare answers in: "zh" where most of them have a Chinese character, "en" otherwise."""
    chinese = [bool(_HAS_CJK.search(answer)) for answer in answers]
    return "zh" if 2 * sum(chinese) > len(chinese) else "en"


def normalise(answer: str, language: Language) -> str:
    """
    An answer for exact match: in lower case and without punctuation; in "en" also without articles and repeated
    blanks, as SQuAD's evaluation (Rajpurkar et al. 2016), in "zh" as CMRC 2018's (Cui et al. 2019).
    """
    if language == "zh":
        return answer.lower().strip().translate(_CHINESE_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", answer.lower().translate(_ENGLISH_PUNCTUATION)).split())


def segments(answer: str, language: Language) -> list[str]:
    """The words of a normalised answer; in "zh" Chinese characters one by one, other words and numbers whole."""
    plain = normalise(answer, language)
    return plain.split() if language == "en" else _SEGMENTS.findall(plain)


def score_answer(predicted: str, answers: Sequence[str], language: Language) -> tuple[float, float]:
    """
    Exact match and F1 of one prediction, each the best over the given answers. F1 counts shared segments, for "en" in
    any order, for "zh" those of the longest run that both have, as CMRC 2018's evaluation does. An empty list of
    answers, or one of nothing but punctuation, means that there is none: only the empty prediction is right.
    """
    guess, words = normalise(predicted, language), segments(predicted, language)
    exact = f1 = 0.0
    for answer in [answer for answer in answers if normalise(answer, language)] or [""]:
        truth = segments(answer, language)
        exact = max(exact, float(guess == normalise(answer, language)))
        if not truth or not words:
            f1 = max(f1, float(truth == words))
            continue
        shared = longest_run(words, truth) if language == "zh" else sum((Counter(words) & Counter(truth)).values())
        f1 = max(f1, 2 * shared / (len(words) + len(truth)))
    return exact, f1


def longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest run of items that both sequences have."""
    return SequenceMatcher(None, one, other, autojunk=False).find_longest_match().size


def score_answers(
    predictions: Sequence[str], references: Sequence[Sequence[str]], language: Language
) -> tuple[np.ndarray, np.ndarray]:
    """`score_answer` of each question: exact match and F1, `[questions]` each, from 0 to 1."""
    scores = [score_answer(guess, answers, language) for guess, answers in zip(predictions, references, strict=True)]
    table = np.array(scores, dtype=np.float64).reshape(-1, 2)
    return table[:, 0], table[:, 1]
