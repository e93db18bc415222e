"""What a tagger is compared with: the most frequent tag of each word, and the dictionary of training entities."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from script_samples import write_rows
from seqeval.metrics import f1_score
from task_samples import TINY, Parsed, parts_of

from modeling_star.evaluation.reports import score_lines
from modeling_star.runs.run import load_task, run_once
from modeling_star.tasks.tagging_baseline import EntityDictionary, FrequentTags
from modeling_star.tasks.token_classification import TaggingTask


Entity = tuple[str, int, int]


def dictionary_by_loops(sentences: list[list[str]], entities: list[list[Entity]], text: list[str]) -> list[str]:
    """The definition of `EntityDictionary`, with every run of words compared with every entity."""
    found = [
        (tuple(words[i:j]), kind)
        for words, own in zip(sentences, entities, strict=True)
        for kind, i, j in own
    ]  # fmt: skip
    runs = [tuple(w[i:j]) for w in sentences for i in range(len(w)) for j in range(i + 1, len(w) + 1)]
    tags, first = ["O"] * len(text), 0
    while first < len(text):
        for end in range(len(text), first, -1):
            kinds = Counter(kind for run, kind in found if run == tuple(text[first:end]))
            if kinds and kinds.total() >= runs.count(tuple(text[first:end])) / 2:
                tags[first] = f"B-{kinds.most_common(1)[0][0]}"
                tags[first + 1 : end] = [f"I-{kinds.most_common(1)[0][0]}"] * (end - first - 1)
                break
        else:
            end = first + 1
        first = end
    return tags


def test_the_dictionary_of_entities_equals_its_definition() -> None:
    draw = random.Random(1)
    sentences = [[draw.choice("abcd") for _ in range(draw.randint(0, 9))] for _ in range(40)]
    entities = []
    for words in sentences:
        ends = sorted(draw.sample(range(len(words) + 1), min(4, len(words) // 2 * 2)))
        entities.append([(draw.choice(["X", "Y"]), *pair) for pair in zip(ends[::2], ends[1::2], strict=True)])
    dictionary = EntityDictionary(sentences, entities)
    texts = [[draw.choice("abcde") for _ in range(12)] for _ in range(30)]
    found = [dictionary(text) for text in texts]
    assert found == [dictionary_by_loops(sentences, entities, text) for text in texts]
    assert {"B-X", "I-X", "B-Y", "O"} <= {tag for tags in found for tag in tags}


def test_the_most_frequent_tag_of_a_word_is_that_of_training() -> None:
    tagger = FrequentTags([["a", "b", "a"], ["a", "b"]], [["X", "O", "Y"], ["Y", "O"]])
    assert tagger(["a", "b", "c"]) == ["Y", "O", "Y"]


@pytest.fixture
def results_of(parsed: Callable[..., Parsed], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def run(train: list[dict[str, Any]], test: list[dict[str, Any]], *given: str) -> dict[str, Any]:
        files = [
            f"--{split}_file={write_rows(tmp_path / f'{split}.jsonl', rows)}"
            for split, rows in (("train", train), ("validation", train), ("test", test))
        ]
        flags = ("--max_steps=1", "--learning_rate=0", "--disable_tqdm=true", *TINY, *files, *given)
        *groups, training = parsed(TaggingTask, *flags)
        training.output_dir = str(tmp_path / "run")
        return run_once(load_task(TaggingTask, *groups), training)

    return run


TRAIN = [{"tokens": ["In", "New", "Oslo", str(n)], "tags": ["O", "B-LOC", "I-LOC", "O"]} for n in range(8)]
TEST = [
    {"tokens": ["Oslo", "New"], "tags": ["O", "O"]},
    {"tokens": ["New", "Oslo", "New", "Oslo"], "tags": ["B-LOC", "I-LOC"] * 2},
]


def test_a_tagger_is_compared_with_what_training_counts(
    results_of: Callable[..., dict[str, Any]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    results = results_of(TRAIN, TEST)
    assert (results["dictionary_eval_f1"], results["dictionary_test_f1"]) == (1.0, 1.0)
    frequent = [["I-LOC", "B-LOC"], ["B-LOC", "I-LOC"] * 2]
    assert results["frequent_test_f1"] == pytest.approx(f1_score([row["tags"] for row in TEST], frequent))
    assert results["eval_f1"] < 1
    assert "dictionary of the training entities" in caplog.text
    (line, _) = score_lines(results, "f1")
    for score in ("test_f1", "dictionary_test_f1", "frequent_test_f1"):
        assert f" {results[score]:.3f}" in line
    assert line in (tmp_path / "run" / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("f1", "accuracy", "warned"), [(0.1, 0.93, True), (0.4, 0.93, False), (0.1, 0.5, False)])
def test_a_high_accuracy_of_words_outside_of_entities_is_pointed_out(
    parsed: Callable[..., Parsed],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    f1: float,
    accuracy: float,
    warned: bool,
) -> None:
    # No baseline finds an entity: its words are one in a minority of their occurrences.
    rows = [{"tokens": ["x", "y"], "tags": tags} for tags in (["O", "B-LOC"], ["O", "O"], ["O", "O"])]
    file = write_rows(tmp_path / "rows.jsonl", rows)
    *groups, training = parsed(TaggingTask, f"--train_file={file}", f"--validation_file={file}", "--report_to=none")
    results = {"eval_f1": f1, "eval_accuracy": accuracy, "eval_samples": 3}
    load_task(TaggingTask, *groups).compare(training, results)
    assert results["dictionary_eval_f1"] == results["frequent_eval_f1"] == 0
    assert ("outside of entities" in caplog.text) == warned


@pytest.mark.parametrize(
    ("words", "given", "reads"),
    [
        (["Ann", "sees", "Oslo"], (), True),
        (["Ann", "sees", "Oslo"], ("--model_type=star_transformer",), False),
        (["Ann", "sees", "Oslo"], ("--config_overrides=char_features=false,hidden_size=18",), False),
        (["我", "们", "好"], (), False),
    ],
)
def test_a_fresh_tagger_reads_the_spelling_of_words(
    parsed: Callable[..., Parsed], tmp_path: Path, words: list[str], given: tuple[str, ...], reads: bool
) -> None:
    rows = [{"tokens": words, "tags": ["B-PER", "O", "B-LOC"]}] * 4
    file = write_rows(tmp_path / "train.jsonl", rows)
    *groups, _ = parsed(TaggingTask, f"--train_file={file}", "--report_to=none", *given)

    _, model = parts_of(load_task(TaggingTask, *groups))
    assert model.config.char_features is reads
    assert model.config.use_crf
