"""Other packages on the same files: how systems train, answer and are compared."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from peer_systems import SYSTEMS, Job, batches_by_length, encoder_predict, read_rows, train_minilm
from peers import HERE, differing, frontier
from script_samples import write_bert
from transformers import AutoModelForSequenceClassification, AutoTokenizer


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A set of texts that one word decides."""
    folder = tmp_path_factory.mktemp("data")
    rows = [{"text": f"a {word} film {number % 7}", "label": word} for number in range(40) for word in ("good", "bad")]
    for split in ("train", "validation", "test"):
        with gzip.open(folder / f"{split}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return folder


def test_a_system_trains_and_answers_in_processes_of_their_own(data: Path, tmp_path: Path) -> None:
    script = [sys.executable, str(HERE / "peer_systems.py")]
    subprocess.run([*script, "train", "sklearn", str(data), str(tmp_path / "model")], check=True)
    requests = [{"inputs": ["a bad film"], "labels": True}, {"file": str(data / "test.jsonl.gz"), "rows": 2}]
    lines = "\n".join(map(json.dumps, requests))
    served = subprocess.run([*script, "serve", "sklearn", str(tmp_path / "model")], input=lines, stdout=-1, text=True)
    first, second = map(json.loads, served.stdout.splitlines())
    assert first["labels"] == ["bad"]
    assert second.keys() == {"cpu", "wall", "process", "megabytes"}


def test_a_fine_tuned_encoder_answers_by_its_trained_weights(data: Path, tmp_path: Path) -> None:
    start = write_bert(tmp_path / "bert", [row["text"] for row in read_rows(data / "train.jsonl.gz")])
    (tmp_path / "model").mkdir()
    train_minilm(Job(data, tmp_path / "model", seed=1, start=str(start), rows=0))
    before, model = (AutoModelForSequenceClassification.from_pretrained(x) for x in (start, tmp_path / "model"))
    assert not torch.equal(before.get_input_embeddings().weight, model.get_input_embeddings().weight)
    for number, name in enumerate(["bad", "good"]):
        model.classifier.bias.data = 100.0 * torch.eye(2)[number]
        model.save_pretrained(tmp_path / "model")
        assert SYSTEMS["minilm"].load(tmp_path / "model")(["a good film", "a bad film 3"]) == [name] * 2


def test_words_have_the_labels_of_their_first_tokens_and_those_beyond_the_limit_none(tmp_path: Path) -> None:
    folder = write_bert(tmp_path / "bert", ["one two three"] * 9)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"id2label": {"0": "O", "1": "B-a"}}))
    two = AutoTokenizer.from_pretrained(folder).convert_tokens_to_ids("two")
    predict = encoder_predict(folder, lambda ids, mask: np.eye(2)[(ids == two).astype(int)])
    assert predict([["one", "two"], ["one"]]) == [["O", "B-a"], ["O"]]
    assert 500 < predict([["two"] * 600])[0].count("B-a") <= 512


def test_batches_by_length_have_each_row_once() -> None:
    lengths = [random.Random(1).randrange(9) for _ in range(100)]
    batches = batches_by_length(lengths, random.Random(2), 8)
    assert sorted(number for batch in batches for number in batch) == list(range(100))
    assert max(max(lengths[i] for i in batch) - min(lengths[i] for i in batch) for batch in batches) <= 2


def test_the_frontier_has_what_nothing_beats_in_speed_and_score() -> None:
    places = {"sklearn": (1000, 0.8), "spacy": (900, 0.7), "minilm": (10, 0.9), "setfit": (10, 0.85)}
    systems = {x: [{"texts_per_second": speed, "test": score}] for x, (speed, score) in places.items()}
    assert frontier(systems) == ["sklearn", "minilm"]


def test_labels_that_differ_are_counted_for_texts_and_words() -> None:
    assert differing(["a", "b"], ["a", "c"]).tolist() == [0, 1]
    assert differing([["O", "B"], ["O"]], [["B", "O"], ["O"]]).tolist() == [2, 0]
