"""What a language has to say to have a synthetic corpus: the shape of `synthetic_en.py` and `synthetic_zh.py`.

In a pattern `{slot}` is something chosen at random; `corpora.py` chooses it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class NerText:
    """The text of one language for entity recognition.

    Attributes:
        joiner: the separator of tokens: " " for words, "" for characters.
        parts: slot -> parts of names. Each part belongs to one split only, which is how names are held out.
        ambiguous: parts that are also words of `plain`. They belong to train: a name that training shows as a word
            only would be a riddle, not a test.
        shared: slot -> other words of names (titles of companies, family names), and fillers; in all splits.
        names: slot -> (entity type, patterns of parts).
        sentences: patterns of sentences with entities.
        plain: patterns without entities, with words that look like them.
        openers: what may precede a sentence.
        tails: what may replace the last full stop.
    """

    joiner: str
    parts: dict[str, list[str]]
    ambiguous: frozenset[str]
    shared: dict[str, list[str]]
    names: dict[str, tuple[str, list[str]]]
    sentences: list[str]
    plain: list[str]
    openers: list[str]
    tails: list[str]


@dataclass(frozen=True)
class ReviewText:
    """The text of one language for sentiment.

    Attributes:
        joiner: the separator of the sentences of a review.
        aspects: what is reviewed -> subject (its verb after "|") -> praise and complaint, each a list with ";".
        says: patterns that mean the opinion {o} on the subject {s} {v}.
        denies: patterns that mean its opposite.
        verdicts: praise and complaint about the whole, each a list with ";".
        links: patterns of a {weak} point that a {strong} point of the other kind outweighs.
        asides: sentences that say nothing either way.
    """

    joiner: str
    aspects: dict[str, dict[str, tuple[str, str]]]
    says: list[str]
    denies: list[str]
    verdicts: tuple[str, str]
    links: list[str]
    asides: list[str]


@dataclass(frozen=True)
class ReadingText:
    """The text of one language for questions about sentences with entities.

    Attributes:
        kinds: entity type -> what a question calls it.
        questions: patterns that ask for the {kind} in the sentence that names {name}.
    """

    kinds: dict[str, str]
    questions: list[str]


def words(text: str) -> list[str]:
    return text.split()


def lines(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


def items(text: str) -> list[str]:
    """A list written with ";" between its items."""
    return [item.strip() for item in text.split(";")]


def joined(heads: str, ends: str) -> list[str]:
    """Every head with every ending: Hal + berg, Brook + haven."""
    return [head + end for head in heads.split() for end in ends.split()]
