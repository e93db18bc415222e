"""
Chinese and Japanese characters, and the separators of words.

HAN and KANA belong inside a `[...]` of Python's `re`; SEPARATORS, CJK, RUN and CHARACTER are for the library
`tokenizers`, whose regular expressions name Unicode's scripts. `evaluation.squad` has other ranges, those of CMRC
2018's evaluation.
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import regex


HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff"
FIRST_CJK = 0x2E80
"""About the first character of Chinese, Japanese and Korean: enough to guess the script of a text."""
# White space, control characters and invisible separators are between tokens and belong to none. The zero-width joiner
# is not among them: it joins the parts of one emoji.
SEPARATORS = r"[\s\p{Cc}\x{AD}\x{200B}\x{2060}\x{FEFF}]+"
CJK = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\x{30FC}"
RUN = rf"[[\p{{L}}\p{{M}}\p{{N}}\x{{200C}}\x{{200D}}]&&[^{CJK}]]+"
CHARACTER = r"\X"
_CJK = re.compile(f"[{HAN}{KANA}]")
_SENTENCES_INSPECTED = 1000


def between_words(sentences: Iterable[Sequence[str]]) -> str:
    """
    The separator of words in a text: none where more than a quarter of the words are Chinese or Japanese (each letter
    of a Latin name may be a word there), else a blank. Give all sentences of a file: one may be a mere date.
    """
    letters = (word[0] for words in itertools.islice(sentences, _SENTENCES_INSPECTED) for word in words if word)
    cjk = [bool(_CJK.match(letter)) for letter in letters if letter.isalnum()]
    return "" if 4 * sum(cjk) > len(cjk) else " "


def are_split_by_character(texts: Iterable[str | Sequence[str]]) -> bool:
    """Whether words are single characters in other scripts too, as in Chinese corpora of entities: 1, 9, 7, 8."""
    # Words of several letters, single letters after one, single characters, all words.
    several = split = single = words = 0
    for sentence in texts:
        after_letter = False
        for word in () if isinstance(sentence, str) else sentence:
            letters = word.isalnum() and not _CJK.search(word)
            words += 1
            single += len(word) == 1
            several += letters and len(word) > 1
            split += letters and len(word) == 1 and after_letter
            after_letter = letters and len(word) == 1
    return split > several or (not several and single > 0.95 * words)


_ENGLISH = frozenset(["the", "of", "and", "to", "that", "is", "was", "with", "for", "this"])


def language_of(texts: Iterable[str | Sequence[str]]) -> str | None:
    """The ISO 639-1 code of Chinese, Japanese, Korean (by characters) or English texts (by words), or `None`."""
    parts = [
        text if isinstance(text, str) else " ".join(text) for text in itertools.islice(texts, _SENTENCES_INSPECTED)
    ]
    text = " ".join(parts)[:200_000]
    scripts = {"ja": f"[{KANA}]", "ko": "[\uac00-\ud7af]", "zh": f"[{HAN}]"}
    letters = sum(map(str.isalpha, text))
    counts = {language: len(re.findall(pattern, text)) for language, pattern in scripts.items()}
    if sum(counts.values()) > letters / 4:
        return next(language for language, count in counts.items() if count > letters / 10)
    words = Counter(re.findall(r"[^\W\d_]+", text.lower()))
    return "en" if sum(words[word] for word in _ENGLISH) > 0.07 * words.total() else None


# Scripts without spaces between words.
_ALONE = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Bopomofo}\u30FC\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
# As the pieces of `tokenizers`, so that a text is read as its words are, but no character is left out: a soft hyphen
# or a zero-width space belongs to a word.
_LETTER = rf"(?:(?![{_ALONE}])\p{{L}})"
_NOT = rf"(?i:n['’]t)(?!{_LETTER})"
_WORD = regex.compile(
    "|".join(
        [
            rf"{_LETTER}+?(?={_NOT})|{_NOT}",  # do + n't
            rf"['’](?i:s|m|d|re|ve|ll)(?!{_LETTER})",
            r"[0-9#*]\uFE0F?\u20E3",  # keycap emoji
            r"\p{Nd}+(?:[.,:]\p{Nd}+)+",  # 3.14
            rf"[{_ALONE}][\p{{M}}\p{{Cf}}]*",
            rf"(?:(?![{_ALONE}])[\p{{L}}\p{{M}}\p{{N}}\p{{Cf}}])+",
            r"(?!\s)\X(?<!\s)|\S",
        ]
    )
)
_Offsets = tuple[int, int]


def split_words(text: str) -> list[_Offsets]:
    """The words of a text, such that every character but white space is in one; Chinese, Thai, ... by character."""
    return [match.span() for match in _WORD.finditer(text)]
