"""Labels of entities in every scheme (IOB1, IOB2, IOBES and its kin), and which of them may follow which."""

from collections.abc import Sequence
from typing import Literal


TagScheme = Literal["iob1", "iob2", "iobes"]

IGNORE_INDEX = -100  # the label of a token whose tag is unknown
# BILOU, BMES and BMEWO are IOBES in other letters.
ENTITY_PREFIXES = {"B": "B", "I": "I", "M": "I", "E": "E", "L": "E", "S": "S", "U": "S", "W": "S"}
# The type of labels without one: the words of a text without spaces.
SEGMENT = "word"


def typed_labels(labels: Sequence[str]) -> list[str]:
    """
    Labels as entity labels: those of word segmentation, all of which are letters without a type (B, M, E, S; B, I),
    with the type "word"; any others as they are.
    """
    letters = set(labels) - {"O"}
    if letters <= ENTITY_PREFIXES.keys() and "B" in letters and letters & {"I", "E", "L"}:
        return [label if label == "O" else f"{label}-{SEGMENT}" for label in labels]
    return list(labels)


def entity_tag(label: str) -> tuple[str, str] | None:
    """
    Prefix and type of an entity label in the letters of IOBES: "B-PER" -> ("B", "PER"), "U-PER" -> ("S", "PER"),
    "O" -> ("O", ""). `None` for any other label, such as a part of speech.
    """
    if label == "O":
        return "O", ""
    prefix, dash, kind = label.partition("-")
    return (ENTITY_PREFIXES[prefix], kind) if prefix in ENTITY_PREFIXES and dash and kind else None


def tag_scheme(labels: Sequence[str]) -> TagScheme:
    """
    The scheme of a set of labels, a ValueError for other labels: "iobes" (also BILOU, BMES, BMEWO) if any ends an
    entity or is a whole one; else "iob1" if a type has no B-, which IOB1 needs only between neighbours; else "iob2".
    """
    tags = [entity_tag(label) for label in labels]
    strange = [label for label, tag in zip(labels, tags, strict=True) if tag is None]
    if strange or all(tag[0] == "O" for tag in tags):
        shown = ", ".join(map(repr, (strange or list(labels))[:5]))
        raise ValueError(
            f"crf_constraints need entity labels (O, B-PER, I-PER, ...), and the labels have {shown}: set "
            "crf_constraints=None, or name the labels, id2label={0: 'O', 1: 'B-PER', ...}."
        )
    prefixes: dict[str, set[str]] = {}
    for prefix, kind in tags:
        prefixes.setdefault(kind, set()).add(prefix)
    if any(letters & {"E", "S"} for letters in prefixes.values()):
        return "iobes"
    return "iob1" if any("I" in letters and "B" not in letters for letters in prefixes.values()) else "iob2"


def may_follow(before: str | None, after: str | None, scheme: TagScheme) -> bool:
    """
    Whether the label `after` may follow the label `before`; `None` is the start, and the end, of a text.

    - iob2: I-x continues B-x or I-x.
    - iob1: B-x occurs only between two adjacent entities of type x.
    - iobes: B-x is continued by I-x and ended by E-x; S-x is a whole entity.
    """
    (first, first_kind), (second, second_kind) = (
        ("O", "") if label is None else entity_tag(label) for label in (before, after)
    )
    joined = first_kind == second_kind and first in ("B", "I")
    if scheme == "iobes":
        return joined if second in ("I", "E") else first not in ("B", "I")
    return joined or second != ("I" if scheme == "iob2" else "B")
