"""Small synthetic corpora of entities, reviews and questions, in English and Chinese. All names are invented."""

import json
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


Row = dict[str, Any]
SIZES = {"train": 2000, "validation": 300, "test": 500}


def joined(heads: str, ends: str) -> list[str]:
    """Every head with every ending; "_" is a blank."""
    return [(head + end).replace("_", " ") for head in heads.split() for end in ends.split()]


@dataclass(frozen=True)
class Language:
    """
    The patterns of one language.

    Attributes:
        joiner: between tokens, and between the sentences of a context.
        token: what is a token of a sentence.
        names: kind -> names.
        kinds: kind -> what a question calls it.
        sentences: patterns with at most one name of a kind.
        question: asks for the {kind} beside {name}.
        subjects: what a review is of.
        good, bad: what is said of them; verdicts, good and bad.
        reviews: patterns of a subject {a} to {d}, opinions of the label {x} {y} and one of the other {z}, a {verdict}.
    """

    joiner: str
    token: str
    names: dict[str, list[str]]
    kinds: dict[str, str]
    sentences: list[str]
    question: str
    subjects: list[str]
    good: tuple[list[str], list[str]]
    bad: tuple[list[str], list[str]]
    reviews: list[str]


ENGLISH = Language(
    joiner=" ",
    token=r"\S+",
    names={
        "PER": joined("Ada_ Maria_ Tom_ Grace_ Will_ Ines_ Omar_ Peter_ May_", "Hal Brook Quell Sund Mar Ost")
        + joined("Hal Brook Quell Sund Mar Ost Vin Tor", "berg haven strom wick"),
        "LOC": joined("North_ South_ New_ Port_", "Arden Quill Sorby Lunde")
        + joined("Os Ber Tal Mor", "lo gen vik dale"),
        "ORG": joined("Nor Vel Tri Kor Alt Sol", "tek mar vana lux")
        + joined("BNC_ KVT_ Hallo_ Zent_", "Bank Foods Motors"),
        "PRODUCT": joined("Zephyr_ Lumen_ Kite_ Orbit_ Fjord_", "2 5 X Pro Mini One"),
    },
    kinds={"PER": "person", "ORG": "organisation", "LOC": "place", "PRODUCT": "product"},
    sentences=[
        "{PER} met the mayor of {LOC} at the station .",
        "The shares of {ORG} fell after it recalled the {PRODUCT} .",
        "{PER} , who founded {ORG} , was born in {LOC} .",
        "The {PRODUCT} goes on sale in {LOC} in May .",
        "My old {PRODUCT} broke , so {PER} lent me another .",
        "{ORG} opens a new office in {LOC} , said {PER} .",
        "Will {ORG} sell the {PRODUCT} in {LOC} ?",
        "Nobody at {ORG} answered the letter of {PER} .",
        "Heavy rain flooded {LOC} on Monday , and the market was closed .",
        "It may rain in the north , so we will stay here .",
        "The bank opens at nine , and the shops follow an hour later .",
    ],
    question="Which {kind} is named together with {name} ?",
    subjects=["the soup", "the meal", "the kitchen", "the coffee", "the room", "the hotel", "the view", "that week"],
    good=(
        ["was lovely", "was better than expected", "made us happy", "was worth the price", "felt fresh"],
        ["I would come back tomorrow", "five stars from me", "my whole family loved it", "I recommend it to everyone"],
    ),
    bad=(
        ["was dreadful", "was worse than expected", "made us sad", "was not worth the price", "felt stale"],
        ["I want my money back", "one star is too many", "my whole family hated it", "I would warn everyone"],
    ),
    reviews=[
        "I thought {a} {x}, and {b} {y}. Although {c} {z}, {d} {x}. {verdict}!",
        "To my surprise {a} {x}, while {b} {z}. It took about an hour. {verdict}.",
        "{verdict}, because {a} {x}. Still, {c} {z}, but {d} {y}.",
        "Once again {a} {y}, though {b} {z}. A friend paid for it. {verdict}.",
    ],
)
CHINESE = Language(
    joiner="",
    token=r"\{\w+\}|[A-Za-z0-9]+|\S",
    names={
        "PER": joined("王 李 张 刘 陈 欧阳 赵 黄", "小明 丽 国强 海燕 文 建华 雨"),
        "LOC": joined("南 北 东 青 白 长", "江市 山县 林镇 河村"),
        "ORG": joined("华恒 瑞腾 远星 鼎盛 宏汇 科联", "公司 银行 医药集团 大学"),
        "PRODUCT": joined("小鹿 极光 飞鸟 星影", "手机 手表X3 音箱2 相机Pro"),
    },
    kinds={"PER": "人", "ORG": "机构", "LOC": "地方", "PRODUCT": "产品"},
    sentences=[
        "{PER}昨天在{LOC}的车站见到了市长。",
        "{ORG}召回{PRODUCT}以后股票下跌了。",
        "{ORG}的创始人{PER}出生在{LOC}。",
        "{PRODUCT}五月开始在{LOC}的商店里销售。",
        "我的{PRODUCT}坏了，{PER}借给我另一个。",
        "{PER}经理说，{ORG}要在{LOC}开一家新的分店。",
        "{ORG}会不会在{LOC}卖{PRODUCT}？",
        "{ORG}没有人回答{PER}上周写的信。",
        "周一的大雨淹没了{LOC}，市场关门了。",
        "北方可能会下雨，所以我们留在这里等到周日。",
    ],
    question="哪个{kind}和{name}一起出现？",
    subjects=["早餐", "房间", "服务", "咖啡", "位置", "前台", "风景", "晚饭"],
    good=(["很好", "非常干净", "让人满意", "比想象的好", "值这个价钱"], ["下次还会来", "推荐给大家", "全家都很喜欢"]),
    bad=(["很差", "非常脏", "让人失望", "比想象的差", "不值这个价钱"], ["再也不会来", "劝大家别来", "全家都很讨厌"]),
    reviews=[
        "我觉得{a}{x}，{b}{y}。虽然{c}{z}，但是{d}{x}。{verdict}！",
        "没想到{a}{x}，{b}{z}。我们住了两天，{c}{y}。{verdict}。",
        "{verdict}，因为{a}{x}。我们一共五个人，{b}{y}，不过{c}{z}。",
    ],
)
LANGUAGES = {"en": ENGLISH, "zh": CHINESE}


def tagged(text: Language, rng: random.Random) -> Row:
    """A sentence as tokens with BIO tags."""
    tokens, tags = [], []
    for piece in re.findall(text.token, rng.choice(text.sentences)):
        kind = piece.strip("{}")
        words = re.findall(text.token, rng.choice(text.names[kind])) if piece[0] == "{" else [piece]
        tokens += words
        tags += [f"{'I' if place else 'B'}-{kind}" for place in range(len(words))] if piece[0] == "{" else ["O"]
    return {"tokens": tokens, "ner_tags": tags}


def entities(row: Row, joiner: str = " ") -> list[tuple[str, str]]:
    """The text and the kind of every entity of a tagged row."""
    found: list[tuple[list[str], str]] = []
    for token, tag in zip(row["tokens"], row["ner_tags"], strict=True):
        if tag.startswith("B-"):
            found.append(([token], tag[2:]))
        elif tag.startswith("I-"):
            found[-1][0].append(token)
    return [(joiner.join(tokens), kind) for tokens, kind in found]


def review(text: Language, rng: random.Random) -> Row:
    """A text whose label is that of its verdict and of most of its opinions."""
    own, other = (text.good, text.bad) if rng.random() < 0.5 else (text.bad, text.good)
    (x, y), (z,) = rng.sample(own[0], 2), rng.sample(other[0], 1)
    subjects = dict(zip("abcd", rng.sample(text.subjects, 4), strict=True))
    written = rng.choice(text.reviews).format(**subjects, x=x, y=y, z=z, verdict=rng.choice(own[1]))
    sentences = [sentence[0].upper() + sentence[1:] for sentence in re.split(r"(?<=[.!]) ", written)]
    return {"text": " ".join(sentences), "label": "positive" if own is text.good else "negative"}


def question(text: Language, rng: random.Random) -> Row:
    """Three to six sentences, and a question for a name in one of them that names another one."""
    while True:
        sentences = [tagged(text, rng) for _ in range(rng.randint(3, 6))]
        context = text.joiner.join(text.joiner.join(row["tokens"]) for row in sentences)
        pairs = [
            (name, answer, kind)
            for row in sentences
            for name, _ in entities(row, text.joiner)
            for answer, kind in entities(row, text.joiner)
            if name != answer and context.count(name) == context.count(answer) == 1
        ]
        if pairs:
            name, answer, kind = rng.choice(pairs)
            answers = {"text": [answer], "answer_start": [context.index(answer)]}
            asked = text.question.format(kind=text.kinds[kind], name=name)
            return {"question": asked, "context": context, "answers": answers}


def write(
    draw: Callable[[Language, random.Random], Row],
    folder: str | Path,
    language: str = "en",
    seed: int = 0,
    sizes: Mapping[str, int] = SIZES,
) -> dict[str, Path]:
    """Write train.jsonl, validation.jsonl and test.jsonl, no row of which occurs twice; returns their paths."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    rng, seen, paths = random.Random(f"{seed}:{language}"), set(), {}
    for split, size in sizes.items():
        rows: list[str] = []
        while len(rows) < size:
            row = draw(LANGUAGES[language], rng)
            if str(row) not in seen:
                seen.add(str(row))
                named = {"id": f"{split}-{len(rows)}", **row} if "question" in row else row
                rows.append(json.dumps(named, ensure_ascii=False) + "\n")
        paths[split] = Path(folder) / f"{split}.jsonl"
        paths[split].write_text("".join(rows), encoding="utf-8")
    return paths


def write_ner_corpus(*arguments: Any, **options: Any) -> dict[str, Path]:
    """Rows of `tokens` and `ner_tags`, BIO of PER, ORG, LOC and PRODUCT; English words or Chinese characters."""
    return write(tagged, *arguments, **options)


def write_sentiment_corpus(*arguments: Any, **options: Any) -> dict[str, Path]:
    """Rows of a `text` and a `label`, "negative" or "positive"."""
    return write(review, *arguments, **options)


def write_reading_corpus(*arguments: Any, **options: Any) -> dict[str, Path]:
    """Rows of a `question`, a `context` and its `answers`."""
    return write(question, *arguments, **options)
