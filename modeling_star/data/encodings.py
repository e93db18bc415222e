"""
Name the likely encoding of bytes that are not UTF-8.

Each encoding is scored by how usual its characters would be in a language (docs/decisions.md says why not by
charset-normalizer).
"""

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from ..errors import UserError


logger = logging.getLogger(__name__)
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
"""Half of a character beyond the first 65,536, which is no text: an emoji that was cut."""
_SAMPLE = 1 << 16  # bytes
_ORDER_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of bytes
_HALF = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")  # of a pair of UTF-16, which UTF-8 has not


def _rows(encoding: str, first: int, last: int) -> str:
    """The characters of some rows of a double-byte encoding, named by their first byte."""
    pairs = (bytes((row, cell)) for row in range(first, last + 1) for cell in range(0x40, 0xFF))
    return "".join(pair.decode(encoding, "ignore") for pair in pairs)


# (iconv's name, Python's name, the characters of each language beside ASCII). The first of equal scores wins.
_LATIN = (
    (
        "WINDOWS-1252",
        "cp1252",
        ("áéíóúñü¿¡", "äöüß", "éèêëàâçùûîïôœæ", "àèéìòù", "áâãàçéêíóôõú", "åäöæøé", "éëïöüáóè", "áéíóúýþðæö"),
    ),
    (
        "WINDOWS-1250",
        "cp1250",
        ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áéíóöőúüű", "čćđšž", "ăâîșțşţ", "áäčďéíĺľňóôŕšťúýž"),
    ),
    ("ISO-8859-2", "iso8859-2", ("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "čćđšž", "ăâîşţ", "áäčďéíĺľňóôŕšťúýž")),
    ("WINDOWS-1254", "cp1254", ("çğıöşüâîİ",)),
    ("WINDOWS-1257", "cp1257", ("ąčęėįšųūž", "āčēģīķļņšūž", "äõöüšž")),
    ("MACINTOSH", "mac-roman", ("áéíóúñü¿¡", "äöüß", "éèêëàâçùûîïôœæ", "àèéìòù", "áâãàçéêíóôõú", "åäöæøé")),
)
_CYRILLIC = "абвгдеёжзийклмнопрстуфхцчшщъыьэюяіїєґў"
_KANA = "".join(map(chr, [*range(0x3041, 0x3097), *range(0x30A1, 0x30FB)]))
_KANJI = partial(_rows, "euc_jp", 0xB0, 0xCF)
# (iconv's name, Python's name, its characters, the most frequent ones). Of Chinese and Korean characters, the usual
# ones are in the first rows of their encodings. Those of one encoding are characters of another: frequent ones decide.
_OTHERS: tuple[tuple[str, str, Callable[[], str], str], ...] = (
    ("WINDOWS-1251", "cp1251", lambda: _CYRILLIC, "оеаинтсрвл"),
    ("KOI8-R", "koi8-r", lambda: _CYRILLIC, "оеаинтсрвл"),
    ("CP866", "cp866", lambda: _CYRILLIC, "оеаинтсрвл"),
    ("WINDOWS-1253", "cp1253", lambda: "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ", "αοιετνσηρκ"),
    ("WINDOWS-1255", "cp1255", lambda: "אבגדהוזחטיךכלםמןנסעףפץצקרשת", "יוהלאתרבמש"),
    ("WINDOWS-1256", "cp1256", lambda: "ابتثجحخدذرزسشصضطظعغفقكلمنهويىةءآأإؤئپچژگ،؟", "الينمورتبه"),
    ("CP874", "cp874", lambda: "".join(map(chr, range(0xE01, 0xE5C))), "านรอกเงมยลวดทส่้"),
    (
        "GB18030",
        "gb18030",
        partial(_rows, "gb2312", 0xB0, 0xD7),
        "的一是不了在人有我他这个们中来上大为和国地到以说时要就出会可也你对生能而子那得于着下自之年过后作里好看很",
    ),
    (
        "BIG5",
        "big5",
        partial(_rows, "big5", 0xA4, 0xC6),
        "的一是不了在人有我他這個們中來上大為和國地到以說時要就出會可也你對生能而子那得於著下自之年過後作裡好看很",
    ),
    ("SHIFT_JIS", "cp932", lambda: _KANA + _KANJI(), _KANA),
    ("EUC-JP", "euc_jp", lambda: _KANA + _KANJI(), _KANA),
    (
        "CP949",
        "cp949",
        lambda: "".join(map(chr, range(0xAC00, 0xD7A4))),
        "이다는에의가을를고하지기도로사리어나자대해스인아서한은시정그들라것수일있없장주보부전제여게만관진구좋영화",
    ),
)
_DOUBLE = ("GB18030", "BIG5", "SHIFT_JIS", "EUC-JP", "CP949")
_MARKS = "“”‘’„‚…–—«»‹›·•€°§´№\u00a0，。、！？：；（）《》「」『』【】～　％ー・"  # of any language
_WORDS = re.compile(rf"[^\x00-@\[-`{{-\x7f{_MARKS}]+")


def not_utf8(
    source: str, lines: Iterable[bytes], convert: Callable[[str], str], is_numbered: bool = True
) -> UserError:
    """
    The error of a text that is not UTF-8; `convert` makes the line to write of the call of `iconv`, and `is_numbered`
    says whether the first of the lines is that of the source.
    """
    first, start, others, readable = 0, b"", b"", 0
    for number, line in enumerate(lines, 1):
        start += line if number < 4 else b""
        try:
            readable += 0 if line.isascii() else len(line.decode())
        except UnicodeDecodeError:
            first = first or number
            others += line
        if len(others) > _SAMPLE:
            break
    if b"\0\0" in start + others and not is_wide(start):
        return UserError(f"{source} is not a text file but has binary data. Save its texts as UTF-8.")
    where = f"{source}, line {first or 1}" if is_numbered else source
    if not is_wide(start) and (readable > len(others) or _HALF.search(others)):
        advice = convert("iconv -c -f UTF-8 -t UTF-8")
        return UserError(f"{where} has bytes that are not UTF-8, unlike the rest. Write `{advice}` to omit them")
    encoding = likely_encoding(start if is_wide(start) else others)
    if encoding is None:
        return UserError(f"{where} is not UTF-8 text, and its encoding is not known here. Save it as UTF-8.")
    advice = convert(f"iconv -f {encoding} -t UTF-8")
    return UserError(f"{where} is not UTF-8 text but probably {encoding}. Write `{advice}`")


def warn_of_halves(path: Path, rows: Sequence[int]) -> None:
    """Name the rows in which halves of characters were replaced."""
    if rows:
        listed = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
        logger.warning("%s: half of a character (a cut emoji) is read as U+FFFD in row %s", path, listed)


def is_wide(start: bytes) -> bool:
    """Whether a text begins as UTF-16 or UTF-32, which can be valid UTF-8 with zeros."""
    return start.startswith(_ORDER_MARKS) or (b"\0" in start and _wide_encoding(start) is not None)


def likely_encoding(content: bytes) -> str | None:
    """
    The encoding of the beginning of a text, or of some lines, by the name of `iconv`; `None` where none is likely.
    """
    if is_wide(content):
        return _wide_encoding(content)
    content = content[:_SAMPLE]
    scores = {
        name: max(_share(content, encoding, language, is_latin=True) for language in languages)
        for name, encoding, languages in _LATIN
    }
    for name, encoding, usual, frequent in _OTHERS:
        share, often = _share(content, encoding, usual()), _share(content, encoding, frequent)
        is_double = name in _DOUBLE and share > 0.8 and often > 0  # by chance, single bytes are no usual pairs
        scores[name] = share + often + is_double
    best = max(scores, key=lambda name: scores[name])
    return best if scores[best] >= 0.5 else None


def _wide_encoding(content: bytes) -> str | None:
    """UTF-16 or UTF-32: the zeros of ASCII characters and line ends are at the same offset of each unit."""
    if content.startswith((b"\xff\xfe\0\0", b"\0\0\xfe\xff")):
        return "UTF-32"
    if content.startswith(_ORDER_MARKS):
        return "UTF-16"
    zeros = [content[offset::4].count(0) for offset in range(4)]
    if content.count(b"\0") > len(content) * 5 / 8:
        return "UTF-32LE" if zeros[0] < zeros[3] else "UTF-32BE"
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    line_ends = content.count(b"\n\0" if odd > even else b"\0\n")
    if max(even, odd) <= 10 * min(even, odd) or not line_ends:
        return None  # binary data, or a zero in a text
    return "UTF-16LE" if odd > even else "UTF-16BE"


def _share(content: bytes, encoding: str, usual: str, is_latin: bool = False) -> float:
    """The share of characters beyond ASCII that are usual ones; 0 for bytes that are not in this encoding."""
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        if error.start < len(content) - 3:  # a character can be cut at the end
            return 0.0
        text = content[: error.start].decode(encoding)
    total = known = 0
    characters = {*usual}
    for word in _WORDS.findall(text):
        if not word.isascii():
            letters = word[0].lower() + word[1:]  # capitals begin words: small letters of one encoding are another's
            total += sum(not char.isascii() for char in letters)
            if is_latin or not any(char.isascii() for char in letters):  # one word has one script
                known += sum(char in characters for char in letters if not char.isascii())
    return known / total if total else float(is_latin)
