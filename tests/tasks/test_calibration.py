"""Temperatures, operating points and their reports: what is measured is what a predictor gives."""

import json
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from real_data import data_folder
from saved_models import SCHEMES, TEXTS, saved, with_vocabulary
from scipy.special import log_softmax
from transformers import DataCollatorForTokenClassification

from modeling_star import StarTagger
from modeling_star.commands.parser import from_values
from modeling_star.data.splits import load_splits
from modeling_star.data.tagging import as_sentences, tokenize_and_align
from modeling_star.errors import UserError
from modeling_star.evaluation.calibration import calibration_error, error_by_chance
from modeling_star.evaluation.metrics import entity_report
from modeling_star.inference import Predictor
from modeling_star.loading import load_model
from modeling_star.runs.run import run
from modeling_star.tasks import calibration
from modeling_star.tasks.calibration import TaggedSplit, labelled
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.arguments import (
    ClassificationArguments,
    ClassificationModelArguments,
    LabelRunArguments,
)


def test_the_calibration_error_is_that_of_plain_loops() -> None:
    generator = np.random.default_rng(0)
    probabilities = generator.random(200) ** 2
    is_right = generator.random(200) < 0.7 * probabilities
    expected = 0.0
    for low in np.arange(10) / 10:
        inside = [i for i, p in enumerate(probabilities) if low <= p < low + 0.1]
        if inside:
            expected += abs(sum(probabilities[i] for i in inside) - sum(is_right[i] for i in inside)) / 200
    assert calibration_error(probabilities, is_right) == pytest.approx(expected)
    assert error_by_chance(np.full(10, 0.5)) > error_by_chance(np.full(10_000, 0.5))


def test_a_temperature_is_kept_where_the_calibration_error_improves(caplog: pytest.LogCaptureFixture) -> None:
    """On the predictions that it is fitted to and on those held out; a log line names one that is not kept."""
    caplog.set_level("INFO")
    for sharpness, size, kept in ((2.5, 2000, [True]), (1.0, 60, [True, False])):
        outcomes = set()
        for seed in range(20):
            generator = np.random.default_rng(seed)
            honest = generator.normal(size=(size, 3))
            labels = (honest + generator.gumbel(size=(size, 3))).argmax(-1)

            def measured(
                temperature: float, logits: np.ndarray = sharpness * honest, labels: np.ndarray = labels
            ) -> Any:
                losses = -log_softmax(logits / temperature, -1)[np.arange(len(labels)), labels]
                return labelled(logits, labels, temperature), losses

            temperature, _ = calibration._temperature(measured, "predictions")
            before, after = (calibration_error(*measured(each)[0]) for each in (1.0, temperature))
            assert after < before or temperature == 1
            assert (temperature == 1) == ("is not kept" in caplog.messages[-1])
            outcomes.add(temperature != 1)
        assert outcomes == set(kept)


@pytest.mark.parametrize("use_crf", [True, False])
def test_a_split_is_scored_as_a_predictor_does(use_crf: bool, tmp_path: Path) -> None:
    names = SCHEMES["iob"]
    temperature = {"calibration_temperature": 1.7}
    fields = {"id2label": dict(enumerate(names)), "use_crf": use_crf, "max_position_embeddings": 64, **temperature}
    folder = saved(tmp_path, "TokenClassification", "word", **fields)
    predictor = Predictor(with_vocabulary(folder) if use_crf else folder)
    words = [re.findall(r"[A-Za-z]+", text) or ["It"] for text in (*TEXTS, " ".join(TEXTS))]  # each is one token
    generator = np.random.default_rng(0)
    tags = [generator.integers(0, len(names), len(sentence)).tolist() for sentence in words]
    rows = Dataset.from_dict({"tokens": words, "tags": tags})
    features = tokenize_and_align(rows, predictor.tokenizer)
    split = TaggedSplit(predictor.model, features, DataCollatorForTokenClassification(predictor.tokenizer))
    probabilities, _ = split.scored(1.7)
    expected = [entity["score"] for _, found in predictor.predict(words) for entity in found]
    assert len(expected) > 5
    assert sorted(probabilities) == pytest.approx(sorted(expected), abs=1e-5)

    named = [[names[tag] for tag in row] for row in tags]
    scores = entity_report(named, predictor.tag_words(words))[None]
    right = sum(is_right for *_, is_right in split._best)
    assert (right / len(split._best), right / sum(map(len, split.true))) == pytest.approx(
        (scores["precision"], scores["recall"]), abs=1e-4
    )
    if use_crf:
        listed, _ = split.listed(1.7, 0.05)
        found = Predictor(folder, min_probability=0.05).predict(words)
        assert sorted(listed) == pytest.approx(sorted(e["score"] for _, spans in found for e in spans), abs=1e-5)
        ((bound, precision, recall),) = split.bounds(1.7, [0.05])
        right = recall * sum(map(len, split.true))
        assert (bound, precision) == (0.05, pytest.approx(right / len(listed), abs=1e-3))


def test_a_trained_tagger_has_a_table_of_all_spans_by_their_probability() -> None:
    sentences = [["Ann", "moved", "to", "Oslo"], ["Bo", "sees", "New", "York", "now"]] * 12
    tags = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC", "I-LOC", "O"]] * 12
    options = {"num_train_epochs": 8, "learning_rate": 1e-2, "validation_fraction": 0.25, "batch_size": 8}
    shape = "hidden_size=16,num_attention_heads=2"
    tagger = StarTagger(config_overrides=shape, **options).fit(sentences, tags)
    assert tagger.predict(sentences[:2]) == tags[:2]
    expected = Predictor(tagger._files.folder, min_probability=0.01).predict(sentences[:2])
    assert tagger.entities(sentences[:2], min_probability=0.01) == [found for _, found in expected]
    table = Path(tagger._files.folder, "report", "calibration_validation.md").read_text(encoding="utf-8")
    assert "| --min_probability | precision | recall |" in table


def test_a_run_reports_the_probabilities_that_its_model_predicts(tmp_path: Path) -> None:
    """The temperature divides logits once, and the loss is that of the logits as learnt."""
    names, flipped = ("negative", "positive"), random.Random(0)
    labels = [number % 2 for number in range(60)]
    texts = [f"a {('dull', 'fine')[label]} film {number}" for number, label in enumerate(labels)]
    noisy = [1 - label if flipped.random() < 0.3 else label for label in labels]
    for split, own in (("train", labels), ("validation", noisy)):
        rows = ({"text": text, "label": names[label]} for text, label in zip(texts, own, strict=True))
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    files = {f"{split}_file": str(tmp_path / f"{split}.jsonl") for split in ("train", "validation")}
    training = {"num_train_epochs": 8, "learning_rate": 1e-2, "do_train": True, "do_eval": True, "use_cpu": True}
    other = {"config_overrides": "hidden_size=16,num_attention_heads=2", "tfidf_vote": False, "tfidf_baseline": False}
    groups = (ClassificationModelArguments, ClassificationArguments, LabelRunArguments)
    given = {**files, **training, **other, "output_dir": str(tmp_path / "run")}
    _, results = run(ClassificationTask, *from_values(groups, given))
    predictor = Predictor(tmp_path / "run", dtype="float32")
    assert predictor.saved.config.calibration_temperature > 1.2
    lines = (tmp_path / "run" / "report" / "predictions_validation.jsonl").read_text(encoding="utf-8").splitlines()
    reported = [json.loads(line)["score"] for line in lines]
    predicted = [found[0]["score"] for _, found in predictor.predict(texts)]
    assert reported == pytest.approx(predicted, abs=1e-3)
    tokens = predictor.tokenizer(texts, return_tensors="pt", padding=True)
    model = load_model("AutoModelForSequenceClassification", str(tmp_path / "run"))
    loss = model(**tokens, labels=torch.tensor(noisy)).loss
    assert results["eval_loss"] == pytest.approx(float(loss), rel=1e-3)


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        ("outermost", ["B-ORG", "I-ORG", "I-ORG", "O", "B-PER"]),
        ("innermost", ["O", "O", "B-LOC", "O", "B-PER"]),
    ],
)
def test_nested_entities_are_tags_of_one_layer(nested: Any, expected: list[str], tmp_path: Path) -> None:
    row = {"tokens": ["University", "of", "Oslo", "hired", "Ann"]}

    def splits(*spans: Any) -> DatasetDict:
        (tmp_path / "a.jsonl").write_text(json.dumps({**row, "entities": spans}) + "\n", encoding="utf-8")
        return load_splits(files={"train": tmp_path / "a.jsonl"})

    rows = as_sentences(splits([0, 3, "ORG"], [2, 3, "LOC"], [4, 5, "PER"]), nested=nested)["train"]
    assert rows["entities"][0] == expected
    with pytest.raises(UserError, match="row 1"):
        as_sentences(splits([4, 6, "PER"]))


def test_the_outermost_entities_of_litbank_are_its_tags() -> None:
    splits = load_splits(files={"test": data_folder("litbank") / "test.jsonl.gz"})
    rows = as_sentences(splits, label_column_name="entities")["test"]
    assert rows["entities"][:] == splits["test"]["ner_tags"][:]
