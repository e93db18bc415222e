#!/usr/bin/env python
"""
Vectors of Chinese words, for experiments/tables/chinese_words.yaml: skip-grams on training texts, cut by jieba.

    python experiments/chinese_words.py DATA DATA/embeddings/zh_words.50d.txt

It needs jieba and gensim (seen with 0.42.1 and 4.4.0); install gensim in an environment of its own. The texts are the
training splits of weibo_senti, chnsenticorp, tatoeba_zh_en, chinese_stsb, zh_statutes and weibo_ner, 6.4 million
characters; labels are not read. It takes about four minutes of one core.
"""

import argparse
import gzip
import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


SETS = ("weibo_senti", "chnsenticorp", "tatoeba_zh_en", "chinese_stsb", "zh_statutes", "weibo_ner")
OPTIONS = {
    "vector_size": 50,
    "sg": 1,
    "negative": 5,
    "window": 5,
    "epochs": 5,
    "min_count": 3,
    "workers": 1,
    "seed": 1,
}


def texts_of(row: dict[str, Any]) -> list[str]:
    """The Chinese texts of a row of any of the sets."""
    if "tokens" in row:
        return ["".join(row["tokens"])]
    if "translation" in row:
        return [row["translation"]["zh"]]
    return [row[name] for name in ("text", "sentence1", "sentence2") if name in row]


def lines_of(data: Path) -> Iterator[str]:
    """The lines of all training texts."""
    for name in SETS:
        with gzip.open(data / name / "train.jsonl.gz", "rt", encoding="utf-8") as file:
            for row in map(json.loads, file):
                for text in texts_of(row):
                    yield from filter(str.strip, text.split("\n"))


def main() -> None:
    """Cut, train, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    jieba, models = importlib.import_module("jieba"), importlib.import_module("gensim.models")
    sentences = [[word for word in jieba.cut(line) if word.strip()] for line in lines_of(arguments.data)]
    trained = models.Word2Vec(sentences, **OPTIONS)
    trained.wv.save_word2vec_format(str(arguments.output))
    print(f"{len(trained.wv):,} words of {sum(map(len, sentences)):,}: {arguments.output}")


if __name__ == "__main__":
    main()
