"""How texts are written: which characters are Chinese, and what stands between words.

HAN and KANA are insides of a `[...]` of Python's `re`. Two places have ranges of their own: `answers` cuts answers as
CMRC 2018's evaluation does, and `tokenizers` goes by Unicode's scripts, which the regular expressions of its library
know by name.
"""

import itertools
import re
from collections.abc import Iterable, Sequence


HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff"
FIRST_CJK = 0x2E80
"""Where the characters of Chinese, Japanese and Korean begin, roughly: enough to guess what most of a text is."""

_CJK = re.compile(f"[{HAN}{KANA}]")
_SENTENCES_LOOKED_AT = 1000


def between_words(sentences: Iterable[Sequence[str]]) -> str:
    """
    What stands between the words of a text: nothing where more than a quarter of them are Chinese or Japanese, as each
    letter of a name in Latin ones may be a word there, else a blank. All sentences of a file are asked at once: one of
    them may be a mere date.
    """
    known = (word[0] for words in itertools.islice(sentences, _SENTENCES_LOOKED_AT) for word in words if word)
    cjk = [bool(_CJK.match(letter)) for letter in known if letter.isalnum()]
    return "" if 4 * sum(cjk) > len(cjk) else " "


def are_split_by_character(texts: Iterable[str | Sequence[str]]) -> bool:
    """
    Whether words are single characters also where other scripts would be written as one: 1, 9, 7, 8 for 1978. So
    Chinese corpora of entities are: then a raw text must be read so too.

    Args:
        texts: lists of words; texts as they are tell nothing.
    """
    several = split = single = words = 0  # words of several letters, single letters after one, single characters, all
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


__all__ = ["FIRST_CJK", "HAN", "KANA", "are_split_by_character", "between_words"]
