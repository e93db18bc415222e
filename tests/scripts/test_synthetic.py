"""Synthetic corpora: the same seed, the same files; names of one split in no other; honest about being synthetic."""

import json
from collections import Counter
from pathlib import Path

import pytest
from synthetic.corpora import (
    LANGUAGES,
    SIZES,
    entities,
    main,
    make_parser,
    split_of,
    write_ner_corpus,
    write_reading_corpus,
    write_sentiment_corpus,
)

from modeling_star.data.classification import prepare_classification
from modeling_star.data.splits import load_splits
from modeling_star.data.squad import prepare_reading
from modeling_star.data.tagging import prepare_tagging


SMALL = {"train": 300, "validation": 60, "test": 100}


def read(paths: dict[str, Path]) -> dict[str, list[dict]]:
    return {split: [json.loads(line) for line in path.open(encoding="utf-8")] for split, path in paths.items()}


@pytest.fixture(scope="module", params=LANGUAGES)
def ner(request, tmp_path_factory):
    """(language, rows of each split) at the default sizes."""
    return request.param, read(write_ner_corpus(tmp_path_factory.mktemp("ner"), request.param, seed=1))


@pytest.fixture(scope="module", params=LANGUAGES)
def reviews(request, tmp_path_factory):
    return request.param, read(write_sentiment_corpus(tmp_path_factory.mktemp("reviews"), request.param, seed=1))


def names_of(rows: list[dict], language: str) -> set[str]:
    return {name for row in rows for name, _ in entities(row, " " if language == "en" else "")}


@pytest.mark.parametrize("write", [write_ner_corpus, write_sentiment_corpus, write_reading_corpus])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_seed_decides_every_byte(tmp_path, write, language):
    paths = [write(tmp_path / str(i), language, seed, SMALL) for i, seed in enumerate((5, 5, 6))]
    first, again, other = ({split: path.read_bytes() for split, path in split_paths.items()} for split_paths in paths)
    assert first == again
    assert all(first[split] != other[split] for split in SMALL)
    assert (tmp_path / "0" / "README.md").read_bytes() == (tmp_path / "1" / "README.md").read_bytes()


def test_sizes_are_kept(ner, reviews):
    for _, splits in (ner, reviews):
        assert {split: len(rows) for split, rows in splits.items()} == SIZES


def test_no_name_of_the_test_split_was_seen_before(ner):
    language, splits = ner
    names = {split: names_of(rows, language) for split, rows in splits.items()}
    assert len(names["test"]) > 300
    assert not names["test"] & (names["train"] | names["validation"])
    assert not names["train"] & names["validation"]


@pytest.mark.parametrize("seed", range(5))
def test_a_part_of_a_name_belongs_to_one_split(seed):
    splits = Counter(split_of(f"name{i}", seed) for i in range(2000))
    assert set(splits) == set(SIZES)
    assert 0.5 < splits["train"] / 2000 < 0.7


def test_no_sentence_is_in_two_splits(ner):
    _, splits = ner
    sentences = [{" ".join(row["tokens"]) for row in rows} for rows in splits.values()]
    assert sum(map(len, sentences)) == len(set.union(*sentences))


def test_tags_are_bio_and_as_many_as_tokens(ner):
    _, splits = ner
    for row in (row for rows in splits.values() for row in rows):
        assert len(row["tokens"]) == len(row["ner_tags"]) > 1
        for before, tag in zip(["O", *row["ner_tags"]], row["ner_tags"], strict=False):
            assert not tag.startswith("I-") or before[2:] == tag[2:]


def test_tokens_are_words_or_characters_with_nothing_left_over(ner):
    language, splits = ner
    for token in (token for rows in splits.values() for row in rows for token in row["tokens"]):
        assert token
        assert not set(token) & set("{}| ")
        assert language == "en" or len(token) == 1 or token.isascii()


def test_the_corpus_is_varied(ner):
    _, splits = ner
    shapes = Counter(" ".join("_" if tag != "O" else token for token, tag in pairs(row)) for row in splits["train"])
    assert len(shapes) > 1000
    types = Counter(kind for row in splits["train"] for _, kind in entities(row))
    assert set(types) == {"PER", "ORG", "LOC", "PRODUCT"}
    assert min(types.values()) > 250
    assert sum(set(row["ner_tags"]) == {"O"} for row in splits["train"]) > 150


def pairs(row: dict) -> list[tuple[str, str]]:
    return list(zip(row["tokens"], row["ner_tags"], strict=True))


def test_a_capital_alone_does_not_make_a_name(ner):
    language, splits = ner
    if language == "zh":
        pytest.skip("Chinese has no capitals")
    tags = Counter(tag[:1] for row in splits["train"] for token, tag in pairs(row) if token[0].isupper())
    assert tags["O"] > 0.2 * tags.total()
    # Words that are names here and none there.
    seen: dict[str, set[str]] = {}
    for rows in splits.values():
        for row in rows:
            for token, tag in pairs(row):
                seen.setdefault(token, set()).add(tag[2:])
    both = {token for token, kinds in seen.items() if "" in kinds and len(kinds) > 1}
    assert len(both & {"Will", "May", "Grace", "Hope", "Mark", "Bill", "Frank", "April", "June", "Bank"}) >= 3


def test_reviews_are_balanced_and_in_one_split_only(reviews):
    _, splits = reviews
    for rows in splits.values():
        labels = Counter(row["label"] for row in rows)
        assert set(labels) == {"negative", "positive"}
        assert min(labels.values()) > 0.4 * len(rows)
    texts = [{row["text"] for row in rows} for rows in splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts))
    assert len(texts[0]) > 0.95 * SIZES["train"]
    assert not any(mark in row["text"] for rows in splits.values() for row in rows for mark in "{}|")


@pytest.mark.parametrize("language", LANGUAGES)
def test_questions_ask_for_what_one_sentence_names(tmp_path, language):
    splits = read(write_reading_corpus(tmp_path, language, seed=1, sizes=SMALL))
    assert {split: len(rows) for split, rows in splits.items()} == SMALL
    answers = {split: {row["answers"]["text"][0] for row in rows} for split, rows in splits.items()}
    contexts = {split: {row["context"] for row in rows} for split, rows in splits.items()}
    for texts in (answers, contexts):
        assert sum(map(len, texts.values())) == len(set.union(*texts.values()))
    types = Counter(row["answer_type"] for row in splits["train"])
    assert set(types) == {"PER", "ORG", "LOC", "PRODUCT"}
    for row in (row for rows in splits.values() for row in rows):
        (answer,), (start,) = row["answers"]["text"], row["answers"]["answer_start"]
        assert row["context"][start : start + len(answer)] == answer
        assert not set(row["question"]) & set("{}|")
        assert answer not in row["question"]
    assert len({row["id"] for rows in splits.values() for row in rows}) == sum(SMALL.values())


def test_the_scripts_data_room_reads_them(tmp_path):
    tagging = prepare_tagging(
        load_splits(files=write_ner_corpus(tmp_path / "ner", sizes=SMALL), cache_dir=str(tmp_path / "cache"))
    )
    kinds = ("LOC", "ORG", "PER", "PRODUCT")
    assert tagging.label_list == ("O", *(f"{mark}-{kind}" for kind in kinds for mark in "BI"))
    files = write_sentiment_corpus(tmp_path / "reviews", "zh", sizes=SMALL)
    texts = prepare_classification(load_splits(files=files, cache_dir=str(tmp_path / "cache")))
    assert texts.label_list == ("negative", "positive")
    files = write_reading_corpus(tmp_path / "reading", sizes=SMALL)
    assert prepare_reading(load_splits(files=files, cache_dir=str(tmp_path / "cache"))).is_labelled("test")


def test_the_readme_says_synthetic_and_how_to_make_it_again(tmp_path):
    write_ner_corpus(tmp_path, "zh", seed=7, sizes=SMALL)
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "synthetic" in text.splitlines()[0].lower()
    command = "ner FOLDER --language zh --train 300 --validation 60 --test 100 --seed 7"
    assert command in text
    assert "held out" in text


def test_what_is_there_is_not_overwritten_unasked(tmp_path):
    paths = write_ner_corpus(tmp_path, seed=1, sizes=SMALL)
    before = paths["train"].read_bytes()
    with pytest.raises(FileExistsError, match=r"train\.jsonl.*--overwrite"):
        write_sentiment_corpus(tmp_path, sizes=SMALL)
    assert paths["train"].read_bytes() == before
    write_ner_corpus(tmp_path, seed=2, sizes=SMALL, overwrite=True)
    assert paths["train"].read_bytes() != before
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*(f"{s}.jsonl" for s in SMALL), "README.md"])


@pytest.mark.parametrize("write", [write_ner_corpus, write_sentiment_corpus, write_reading_corpus])
def test_bad_arguments_say_what_is_allowed(tmp_path, write):
    with pytest.raises(ValueError, match=r"'fr'; there are en, zh. Write --language en"):
        write(tmp_path, "fr")
    with pytest.raises(ValueError, match="train, validation, test, each of 1 row or more"):
        write(tmp_path, sizes={"dev": 3})
    with pytest.raises(ValueError, match="1 row or more"):
        write(tmp_path, sizes={"test": 0})
    assert list(tmp_path.iterdir()) == []


def test_large_corpora_do_not_run_dry(tmp_path):
    sizes = {"train": 20_000, "validation": 10, "test": 2000}
    assert len(read(write_sentiment_corpus(tmp_path, "zh", sizes=sizes))["train"]) == 20_000


def test_command_line(tmp_path, capsys):
    main(["sentiment", str(tmp_path), "--language", "zh", "--train", "30", "--validation", "5", "--test", "5"])
    assert "30 synthetic rows" in capsys.readouterr().out
    assert len((tmp_path / "train.jsonl").read_text(encoding="utf-8").splitlines()) == 30
    with pytest.raises(SystemExit):
        main(["sentiment", str(tmp_path)])
    assert "--overwrite" in capsys.readouterr().err
    text = make_parser().format_help()
    assert all(
        word in text for word in ("ner", "sentiment", "reading", "--language", "--train", "--seed", "default: 2000")
    )
