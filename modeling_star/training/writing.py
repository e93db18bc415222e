"""Which characters are Chinese, for what asks whether a text is; insides of a `[...]` of Python's `re`.

Two places have ranges of their own: `answers` cuts answers as CMRC 2018's evaluation does, and `tokenizers` goes by
Unicode's scripts, which the regular expressions of its library know by name.
"""

HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
KANA = "\u3040-\u30ff"
FIRST_CJK = 0x2E80
"""Where the characters of Chinese, Japanese and Korean begin, roughly: enough to guess what most of a text is."""

__all__ = ["FIRST_CJK", "HAN", "KANA"]
