"""The corpora of the other tests: the same seed, the same files; tags and answers that fit their texts."""

import json
from pathlib import Path
from typing import Any

import pytest
from synthetic.corpora import LANGUAGES, entities, write_ner_corpus, write_reading_corpus, write_sentiment_corpus


SMALL = {"train": 60, "validation": 20, "test": 30}


def read(paths: dict[str, Path]) -> list[Any]:
    return [json.loads(line) for path in paths.values() for line in path.open(encoding="utf-8")]


@pytest.mark.parametrize("write", [write_ner_corpus, write_sentiment_corpus, write_reading_corpus])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_seed_decides_every_byte_and_no_row_is_there_twice(tmp_path: Path, write: Any, language: str) -> None:
    first, again, other = (write(tmp_path / str(i), language, seed, SMALL) for i, seed in enumerate((5, 5, 6)))
    assert all(first[split].read_bytes() == again[split].read_bytes() != other[split].read_bytes() for split in SMALL)
    assert len({json.dumps({**row, "id": ""}) for row in read(first)}) == sum(SMALL.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_tags_and_answers_fit(tmp_path: Path, language: str) -> None:
    kinds = set()
    for row in read(write_ner_corpus(tmp_path / "ner", language, sizes=SMALL)):
        assert len(row["tokens"]) == len(row["ner_tags"]) > 1
        assert language == "en" or all(len(token) == 1 or token.isascii() for token in row["tokens"])
        kinds |= {kind for _, kind in entities(row)}
    assert kinds == {"PER", "ORG", "LOC", "PRODUCT"}
    for row in read(write_reading_corpus(tmp_path / "reading", language, sizes=SMALL)):
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start : start + len(answer)] == answer
        assert answer not in row["question"]
