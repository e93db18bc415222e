"""Small synthetic corpora for the quickstart and the tests: entities, sentiment and reading, English and Chinese.

    python -m synthetic.corpora ner corpora/ner-en --language en --train 2000 --test 500
    python -m synthetic.corpora sentiment corpora/sentiment-zh --language zh
    python -m synthetic.corpora reading corpora/reading-en

Sentences are drawn from the patterns of `synthetic_en.py` and `synthetic_zh.py`. They are good for seeing that
training works, and for nothing else: whatever is measured on them is to be called synthetic.
"""

import argparse
import contextlib
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from synthetic.chinese import CHINESE_NER, CHINESE_READING, CHINESE_REVIEWS
from synthetic.english import ENGLISH_NER, ENGLISH_READING, ENGLISH_REVIEWS
from synthetic.grammar import NerText, ReadingText, ReviewText, items


NER_TEXTS = {"en": ENGLISH_NER, "zh": CHINESE_NER}
REVIEW_TEXTS = {"en": ENGLISH_REVIEWS, "zh": CHINESE_REVIEWS}
READING_TEXTS = {"en": ENGLISH_READING, "zh": CHINESE_READING}

SIZES: dict[str, int] = {"train": 2000, "validation": 300, "test": 500}
"""Rows of each split where none are asked for."""

LABELS = ("negative", "positive")
LANGUAGES = tuple(NER_TEXTS)

# A part of a name goes to the first split whose bound its random number is below.
_SPLIT_BOUNDS = {"train": 0.6, "validation": 0.75, "test": 1.0}
_CHUNK = 1000  # lines that are written at once
_MAX_TRIES = 1000  # draws for one row that is not in the corpus yet

Row = dict[str, Any]


# Named entities


class _NerSampler:
    """Draws sentences of one split: the patterns are everybody's, the parts of names its own."""

    def __init__(self, text: NerText, split: str, seed: int, language: str) -> None:
        self.text = text
        self.rng = random.Random(f"{seed}:ner:{language}:{split}")
        self.pools = dict(text.shared)
        for slot, parts in text.parts.items():
            self.pools[slot] = [part for part in dict.fromkeys(parts) if split_of(part, seed, text.ambiguous) == split]
        # Words are separated by blanks; of Chinese text every character is a token, of Latin words in it every word.
        self.pieces = re.compile(r"\S+" if text.joiner else r"\{\w+\}|[A-Za-z]+|\S")

    def row(self) -> Row:
        rng, text = self.rng, self.text
        pattern = rng.choice(text.plain if rng.random() < 0.2 else text.sentences)
        if rng.random() < 0.2 and pattern[-1] in ".。":
            pattern = pattern[:-1] + rng.choice(text.tails)
        if rng.random() < 0.2:
            pattern = rng.choice(text.openers) + text.joiner + pattern
        pairs = self._expand(pattern)
        tokens = [token for token, _ in pairs]
        tokens[0] = tokens[0][0].upper() + tokens[0][1:]
        return {"tokens": tokens, "ner_tags": [tag for _, tag in pairs]}

    def _expand(self, pattern: str) -> list[tuple[str, str]]:
        """A pattern as (token, tag) pairs."""
        pairs: list[tuple[str, str]] = []
        for piece in self.pieces.findall(pattern):
            slot = piece[1:-1]
            if piece[0] != "{":
                pairs.append((piece, "O"))
            elif slot in self.text.names:
                kind, patterns = self.text.names[slot]
                name = [token for token, _ in self._expand(self.rng.choice(patterns))]
                pairs += [(token, f"{'I' if place else 'B'}-{kind}") for place, token in enumerate(name)]
            else:
                pairs += self._expand(self.rng.choice(self.pools[slot]))
        return pairs


def split_of(part: str, seed: int, ambiguous: Collection[str] = ()) -> str:
    """The one split that a part of a name ("Halberg", "Oslo") may occur in; the same whatever list the part is in."""
    if part in ambiguous:
        return "train"
    draw = random.Random(f"{seed}:{part}").random()
    return next(split for split, bound in _SPLIT_BOUNDS.items() if draw < bound)


def entities(row: Row, joiner: str = " ") -> list[tuple[str, str]]:
    """The (text, type) of every entity of a tagged row, in order.

    Args:
        joiner: the separator of the tokens: " " for words, "" for characters.
    """
    found: list[tuple[list[str], str]] = []
    for token, tag in zip(row["tokens"], row["ner_tags"], strict=True):
        if tag.startswith("B-"):
            found.append(([token], tag[2:]))
        elif tag.startswith("I-"):
            found[-1][0].append(token)
    return [(joiner.join(tokens), kind) for tokens, kind in found]


def write_ner_corpus(
    folder: str | Path,
    language: str = "en",
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write train.jsonl, validation.jsonl, test.jsonl (`tokens`, `ner_tags` in BIO) and README.md.

    No name and no sentence of one split occurs in another, and no part of a name does (first and family names, given
    names in Chinese, places, stems of companies and products): the test split asks for names never seen.

    Args:
        folder: made if absent.
        language: "en" (tokens are words) or "zh" (characters).
        seed: the same seed gives the same files.
        sizes: split -> rows, instead of `SIZES`; splits left out keep theirs.
        overwrite: whether files of these names may be replaced.

    Returns:
        split -> path.

    Raises:
        ValueError: an unknown language or split, a size below 1.
        FileExistsError: a file is there already and `overwrite` is False; nothing is changed.
    """
    _check_language(language)
    text = NER_TEXTS[language]
    used: set[str] = set()  # the names and sentences of the splits before

    def content(row: Row) -> set[str]:
        return {text.joiner.join(row["tokens"]), *(name for name, _ in entities(row, text.joiner))}

    def rows(split: str, count: int) -> Iterator[Row]:
        here: set[str] = set()
        for row in _distinct(
            _NerSampler(text, split, seed, language).row, count, lambda row: bool(content(row) & used)
        ):
            here |= content(row)
            yield row
        used.update(here)

    return _write_corpus(Path(folder), "ner", language, seed, sizes, overwrite, rows)


# Sentiment


class _ReviewSampler:
    """Draws reviews whose label follows from the verdict, or from the point that outweighs the other."""

    def __init__(self, text: ReviewText, split: str, seed: int, language: str) -> None:
        self.text = text
        self.rng = random.Random(f"{seed}:sentiment:{language}:{split}")

    def row(self) -> Row:
        label = self.rng.randrange(2)
        return {"text": self._review(bool(label)), "label": LABELS[label]}

    def _review(self, good: bool) -> str:
        rng, text = self.rng, self.text
        aspects = text.aspects[rng.choice(sorted(text.aspects))]
        subjects = rng.sample(sorted(aspects), 3)
        ending = [rng.choice(items(text.verdicts[0 if good else 1]))] * (rng.random() < 0.6)
        if rng.random() < 0.4:
            weak, strong = self._point(aspects, subjects[0], not good), self._point(aspects, subjects[1], good)
            sentences = [rng.choice(text.links).format(weak=weak, strong=strong), *ending]
        else:
            points = [self._point(aspects, subject, good) for subject in subjects[: rng.randint(1, 3)]]
            sentences = points + ending
            rng.shuffle(sentences)
        if rng.random() < 0.4:
            sentences.insert(rng.randint(0, len(sentences)), rng.choice(text.asides))
        return self._written(sentences)

    def _point(self, aspects: Mapping[str, tuple[str, str]], subject: str, good: bool) -> str:
        """A clause of praise or complaint: said outright, or as the denial of its opposite."""
        rng, text = self.rng, self.text
        name, verb = subject.split("|")
        said, opposite = (items(opinions) for opinions in aspects[subject][:: 1 if good else -1])
        # Only short opinions are denied: "hardly cold", but not "hardly two weeks late".
        short = [opinion for opinion in opposite if (opinion.isalpha() if text.joiner else len(opinion) == 2)]
        if short and rng.random() < 0.25:
            return rng.choice(text.denies).format(s=name, v=verb, o=rng.choice(short))
        return rng.choice(text.says).format(s=name, v=verb, o=rng.choice(said))

    def _written(self, sentences: list[str]) -> str:
        if not self.text.joiner:
            return "".join(sentence + self.rng.choice("。。。！") for sentence in sentences)
        # "i" is the one word whose capital does not come from its place.
        cased = [re.sub(r"\bi\b", "I", sentence) for sentence in sentences]
        return " ".join(sentence[0].upper() + sentence[1:] + self.rng.choice("...!") for sentence in cased)


def write_sentiment_corpus(
    folder: str | Path,
    language: str = "en",
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write train.jsonl, validation.jsonl, test.jsonl (`text`, `label`: "negative" or "positive") and README.md.

    No review of one split occurs in another. Denials ("hardly cold") and weaker points of the other kind ("although
    the soup was bland, ...") keep the label from being a count of words. Arguments, result and errors as in
    `write_ner_corpus`.
    """
    _check_language(language)
    used: set[str] = set()  # the reviews of the splits before

    def rows(split: str, count: int) -> Iterator[Row]:
        here: set[str] = set()
        sampler = _ReviewSampler(REVIEW_TEXTS[language], split, seed, language)
        for row in _distinct(sampler.row, count, lambda row: row["text"] in used):
            here.add(row["text"])
            yield row
        used.update(here)

    return _write_corpus(Path(folder), "sentiment", language, seed, sizes, overwrite, rows)


# Reading


class _ReadingSampler:
    """Draws some sentences of the entity corpus, and a question about one of them."""

    def __init__(self, text: ReadingText, sentences: _NerSampler) -> None:
        self.text = text
        self.sentences = sentences

    def row(self) -> Row:
        rng, joiner = self.sentences.rng, self.sentences.text.joiner
        for _ in range(_MAX_TRIES):
            drawn = [self.sentences.row() for _ in range(rng.randint(3, 6))]
            context = joiner.join(joiner.join(row["tokens"]) for row in drawn)
            chosen = self._question(drawn, context)
            if chosen is not None:
                name, kind, start, answer = chosen
                question = rng.choice(self.text.questions).format(kind=self.text.kinds[kind], name=name)
                return {
                    "question": question,
                    "context": context,
                    "answers": {"text": [answer], "answer_start": [start]},
                    "answer_type": kind,
                }
        raise ValueError(f"No sentences were found in {_MAX_TRIES} draws that a question can be asked about.")

    def _question(self, drawn: list[Row], context: str) -> tuple[str, str, int, str] | None:
        """A name that is in one sentence only, and what else is there as the only one of its kind."""
        joiner = self.sentences.text.joiner
        found, begin = [], 0
        for row in drawn:
            named = entities(row, joiner)
            kinds = Counter(kind for _, kind in named)
            for name, _ in named:
                for answer, kind in named:
                    single = kinds[kind] == 1 and context.count(name) == 1
                    if single and answer not in name and name not in answer:
                        sentence = joiner.join(row["tokens"])
                        found.append((name, kind, begin + sentence.index(answer), answer))
            begin += len(joiner.join(row["tokens"])) + len(joiner)
        return self.sentences.rng.choice(found) if found else None


def write_reading_corpus(
    folder: str | Path,
    language: str = "en",
    seed: int = 0,
    sizes: Mapping[str, int] | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Write train.jsonl, validation.jsonl, test.jsonl (`id`, `question`, `context`, `answers`) and README.md.

    A context is three to six sentences of the entity corpus. A question names something that occurs in one of them and
    asks for what else that sentence names: the answer has to be found by its surroundings. No context and no answer of
    one split occurs in another. Arguments, result and errors as in `write_ner_corpus`.
    """
    _check_language(language)
    used: set[str] = set()  # the contexts and answers of the splits before

    def content(row: Row) -> set[str]:
        return {row["context"], *row["answers"]["text"]}

    def rows(split: str, count: int) -> Iterator[Row]:
        here: set[str] = set()
        sampler = _ReadingSampler(READING_TEXTS[language], _NerSampler(NER_TEXTS[language], split, seed, language))
        for number, row in enumerate(_distinct(sampler.row, count, lambda row: bool(content(row) & used))):
            here |= content(row)
            yield {"id": f"{split}-{number}", **row}
        used.update(here)

    return _write_corpus(Path(folder), "reading", language, seed, sizes, overwrite, rows)


# Files


def _check_language(language: str) -> None:
    if language not in LANGUAGES:
        raise ValueError(f"The language is {language!r}; there are {', '.join(LANGUAGES)}. Write --language en")


def _distinct(draw: Callable[[], Row], count: int, is_taken: Callable[[Row], bool]) -> Iterator[Row]:
    """`count` rows that no other split holds, repeated within the split only where the patterns run out."""
    seen: set[str] = set()
    for _ in range(count):
        for attempt in range(_MAX_TRIES):
            row = draw()
            key = json.dumps(row, ensure_ascii=False)
            if (key not in seen or attempt >= 20) and not is_taken(row):
                seen.add(key)
                yield row
                break
        else:
            raise ValueError(f"No new row was found in {_MAX_TRIES} draws. Write smaller sizes, e.g. --train 2000")


def _write_corpus(
    folder: Path,
    task: str,
    language: str,
    seed: int,
    sizes: Mapping[str, int] | None,
    overwrite: bool,
    rows: Callable[[str, int], Iterator[Row]],
) -> dict[str, Path]:
    sizes = dict(sizes or {})
    unknown = sorted(set(sizes) - set(SIZES))
    if unknown or min(sizes.values(), default=1) < 1:
        raise ValueError(f"The sizes are {sizes}; splits are {', '.join(SIZES)}, each of 1 row or more.")
    sizes = SIZES | sizes
    paths = {split: folder / f"{split}.jsonl" for split in sizes}
    readme = folder / "README.md"
    there = [str(path) for path in (*paths.values(), readme) if path.exists()]
    if there and not overwrite:
        raise FileExistsError(f"{', '.join(there)} exist already. Name another folder, or write --overwrite")
    folder.mkdir(parents=True, exist_ok=True)
    counts = {}
    # The smaller splits first: what they hold is kept out of the larger.
    for split in sorted(sizes, key=lambda split: sizes[split]):
        counts[split] = _write_rows(paths[split], rows(split, sizes[split]))
    _replace_file(readme, [_readme(task, language, seed, sizes, counts)])
    return paths


def _write_rows(path: Path, rows: Iterator[Row]) -> Counter[str]:
    """Write rows in chunks, and count their entity types or labels."""
    counts: Counter[str] = Counter()

    def chunks() -> Iterator[str]:
        lines: list[str] = []
        for row in rows:
            counts.update(_kinds_of(row))
            lines.append(json.dumps(row, ensure_ascii=False) + "\n")
            if len(lines) == _CHUNK:
                yield "".join(lines)
                lines = []
        yield "".join(lines)

    _replace_file(path, chunks())
    return counts


def _kinds_of(row: Row) -> list[str]:
    """What the README counts: a review's label, an answer's kind, or the kinds of a sentence's entities."""
    if "tokens" in row:
        return [kind for _, kind in entities(row)]
    return [row["label"] if "label" in row else row["answer_type"]]


def _replace_file(path: Path, chunks: Iterator[str] | list[str]) -> None:
    """Write beside the file and move into place: a run cut short leaves the old file or none."""
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(chunks)
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


_READMES = {
    "ner": """\
Every sentence was put together by a program from patterns and parts of names: no text was collected, and people,
organisations and products are invented (cities and countries exist, what is said of them is not true).
Columns: `tokens` ({unit}), `ner_tags` (BIO: PER, ORG, LOC, PRODUCT).

Names are held out: each part of a name (first and family names, places, stems of companies and products) belongs to
one split, so no name of the test split occurs in train or validation, and no sentence does. Sentence patterns are
shared by all splits, which makes the corpus far easier than real text.
""",
    "sentiment": """\
Every review was put together by a program from patterns and opinions: no text was collected.
Columns: `text`, `label` ("negative" or "positive").

No review occurs in two splits. Patterns and opinions are shared by all splits, which makes the corpus far easier than
real text.
""",
    "reading": """\
Every context was put together by a program from sentences of the synthetic entity corpus, every question from a
pattern: no text was collected, and what the sentences say is not true.
Columns: `id`, `question`, `context`, `answers` (`text`, `answer_start`), `answer_type` (PER, ORG, LOC, PRODUCT).

No answer of one split is an answer in another. Patterns are shared by all splits, which makes the corpus far
easier than real text.
""",
}


def _readme(task: str, language: str, seed: int, sizes: Mapping[str, int], counts: Mapping[str, Counter[str]]) -> str:
    kinds = sorted({kind for counter in counts.values() for kind in counter})
    flags = " ".join(f"--{split} {size}" for split, size in sizes.items())
    rows = "".join(
        f"| {split} | {size} | " + " | ".join(str(counts[split][kind]) for kind in kinds) + " |\n"
        for split, size in sizes.items()
    )
    return (
        f"# Synthetic {task} corpus ({language})\n\n"
        "This corpus is **synthetic**: good for trying out training, not for comparing models.\n"
        + _READMES[task].format(unit="words" if language == "en" else "characters; Latin words whole")
        + f"\n| split | rows | {' | '.join(kinds)} |\n|{'---|' * (len(kinds) + 2)}\n{rows}\n"
        "Made by, and made again with:\n\n"
        f"    python -m synthetic.corpora {task} FOLDER --language {language} {flags} --seed {seed}\n"
    )


# Command line

WRITERS = {"ner": write_ner_corpus, "sentiment": write_sentiment_corpus, "reading": write_reading_corpus}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m synthetic.corpora",
        description="Write a small synthetic corpus: train.jsonl, validation.jsonl, test.jsonl and a README.md that "
        "says how they were made. The same seed gives the same files.",
        epilog="example: python -m synthetic.corpora ner corpora/ner-en --language en --train 2000",
    )
    parser.add_argument(
        "task",
        choices=tuple(WRITERS),
        help="ner: tokens and BIO tags (PER, ORG, LOC, PRODUCT), names of the test split held out; "
        "sentiment: reviews, negative or positive; reading: questions about sentences, with spans as answers",
    )
    parser.add_argument("folder", type=Path, help="where the files go; made if absent")
    parser.add_argument(
        "--language", choices=LANGUAGES, default="en", help="en: tokens are words; zh: characters (default: en)"
    )
    for split, size in SIZES.items():
        parser.add_argument(
            f"--{split}", type=int, default=size, metavar="ROWS", help=f"rows of the {split} split (default: {size})"
        )
    parser.add_argument("--seed", type=int, default=0, help="any whole number (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="replace files of these names")
    return parser


def main(arguments: list[str] | None = None) -> None:
    parser = make_parser()
    given = parser.parse_args(arguments)
    write = WRITERS[given.task]
    sizes = {split: getattr(given, split) for split in SIZES}
    try:
        paths = write(given.folder, given.language, given.seed, sizes, given.overwrite)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    for split, path in paths.items():
        print(f"{path}  {sizes[split]} synthetic rows")


if __name__ == "__main__":
    main()
