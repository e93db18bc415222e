"""A small synthetic parallel corpus, English and Chinese, for trying out and testing translation.

    write_parallel_corpus("corpora/parallel", sizes={"train": 2000, "validation": 200, "test": 200})

Who did what to which thing, and when: the two languages order these parts differently, and Chinese counts things with
words of their own. Good for seeing that training works, and for nothing else.
"""

import json
import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

from modeling_star.files import write_text


# English | Chinese
_WHO = "I|我 you|你 he|他 she|她 we|我们 they|他们 Mary|玛丽 Tom|汤姆 the_teacher|老师 my_brother|我弟弟"
_WHEN = (
    "yesterday|昨天 today|今天 this_morning|今天早上 last_week|上周 last_night|昨晚 in_spring|春天 on_Monday|星期一"
)
_DID = (
    "bought|买了 sold|卖了 lost|丢了 found|找到了 saw|看见了 drew|画了 washed|洗了 hid|藏了 brought|带来了 chose|选了"
)
_HOW = "red|红色 white|白色 black|黑色 green|绿色 old|旧 new|新 small|小 big|大"
_WHAT = (
    "book|本书 car|辆车 hat|顶帽子 table|张桌子 chair|把椅子 cup|个杯子 shirt|件衬衫 bicycle|辆自行车 knife|把刀 "
    "picture|张画 bag|个包 box|个盒子 umbrella|把雨伞 bed|张床"
)
SLOTS = [
    [tuple(pair.replace("_", " ").split("|")) for pair in slot.split()] for slot in (_WHO, _WHEN, _DID, _HOW, _WHAT)
]
SIZES = {"train": 2000, "validation": 200, "test": 200}


def sentence_pair(number: int) -> dict[str, str]:
    """The sentence of that number, of `math.prod(map(len, SLOTS))`: `{"en": ..., "zh": ...}`."""
    parts = []
    for slot in SLOTS:
        number, place = divmod(number, len(slot))
        parts.append(slot[place])
    english, chinese = zip(*parts, strict=True)
    who, when, did, how, what = english
    article = "an" if how[0] in "aeiou" else "a"
    text = f"{who} {did} {article} {how} {what} {when}."
    who, when, did, how, what = chinese
    return {"en": text[0].upper() + text[1:], "zh": f"{who}{when}{did}一{what[0]}{how}{what[1:]}。"}


def write_parallel_corpus(
    folder: str | Path, seed: int = 0, sizes: Mapping[str, int] | None = None
) -> dict[str, Path]:
    """
    Write train.jsonl, validation.jsonl and test.jsonl, of rows `{"translation": {"en": ..., "zh": ...}}`; no sentence
    occurs twice.

    Args:
        folder: made if absent.
        seed: the same seed gives the same files.
        sizes: split -> rows.

    Returns:
        split -> path.

    Raises:
        ValueError: more sentences are asked for than there are.
        FileExistsError: a file is there already; nothing is changed.
    """
    sizes = SIZES | dict(sizes or {})
    there = math.prod(map(len, SLOTS))
    if sum(sizes.values()) > there:
        raise ValueError(f"The sizes are {sizes}; there are {there} sentences.")
    paths = {split: Path(folder) / f"{split}.jsonl" for split in sizes}
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken:
        raise FileExistsError(f"{', '.join(taken)} exist already. Name another folder.")
    numbers: Iterator[int] = iter(random.Random(seed).sample(range(there), sum(sizes.values())))
    for split, path in paths.items():
        rows = ({"translation": sentence_pair(next(numbers))} for _ in range(sizes[split]))
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return paths


__all__ = ["SLOTS", "sentence_pair", "write_parallel_corpus"]
