"""Guards against silent failure: each prints one line or stops the run if there is a reason, and only then."""

import itertools
import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import DatasetDict
from script_runner import ScriptRunner
from script_samples import QUICK, TINY, files, read_rows, write_rows
from task_samples import TINY as TINY_TASK
from task_samples import Parsed, table, trainer_of
from transformers import TrainerCallback

from modeling_star.data.classification import tokenize_texts
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.guards import (
    all_finite,
    warn_about_majority,
    warn_about_overlap,
    warn_about_tokens,
)


class Poison(TrainerCallback):
    """Make a weight NaN after some step, as a diverging training does."""

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        if state.global_step == 3:
            next(model.parameters()).data.fill_(float("nan"))


@pytest.fixture
def trainer(parsed: Callable[..., Parsed], tmp_path: Path) -> Any:
    """A classifier in training, saved every two steps and not evaluated."""
    steps = ("--save_strategy=steps", "--save_steps=2", "--eval_strategy=no", "--per_device_train_batch_size=1")
    return trainer_of(ClassificationTask, parsed(ClassificationTask, *TINY_TASK, *steps), tmp_path / "run")[1]


def test_no_checkpoint_has_weights_that_are_nan(trainer: Any) -> None:
    trainer.add_callback(Poison())
    with pytest.raises(UserError, match=r"step 4.*--learning_rate.*checkpoint-2 is the last good checkpoint"):
        trainer.train()
    assert [path.name for path in Path(trainer.args.output_dir).glob("checkpoint-*")] == ["checkpoint-2"]


@pytest.mark.parametrize("is_labelled", [True, False])
def test_no_predictions_are_made_of_nan(trainer: Any, is_labelled: bool) -> None:
    rows = trainer.eval_dataset if is_labelled else trainer.eval_dataset.remove_columns("labels")
    trainer.predict(rows)
    next(trainer.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(UserError, match=r"nan|NaN"):
        trainer.predict(rows)


def test_a_loss_that_is_not_finite_stops_the_training_and_other_numbers_are_omitted(trainer: Any) -> None:
    trainer.log({"loss": 1.0, "grad_norm": float("inf")})  # a step that float16 skips
    assert trainer.state.log_history[-1]["loss"] == 1
    json.dumps(trainer.state.log_history, allow_nan=False)
    for loss in (float("nan"), float("inf")):
        with pytest.raises(UserError, match=f"loss is {loss}"):
            trainer.log({"loss": loss})


@pytest.mark.parametrize("number", [pytest.param(1e30, marks=pytest.mark.slow), None])
def test_a_diverged_run_fails_and_leaves_no_model(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path, number: float | None
) -> None:
    shape, flags = "sentiment", ["--learning_rate=1e20", "--max_grad_norm=0"]
    train = corpora / shape / "train.jsonl"
    if number is not None:  # labels whose squares are infinite
        shape, flags = "numbers", []
        rows = read_rows(corpora / shape / "train.jsonl")
        train = write_rows(tmp_path / "train.jsonl", [{**row, "score": number} for row in rows])
    command = [*files(corpora / shape, "validation", "test"), f"--train_file={train}", *TINY, *QUICK, *flags]
    done = scripts.run("run_glue.py", *command, f"--output_dir={tmp_path}/run")
    assert done.code == 1
    assert "diverged" in done.error.splitlines()[-1]
    assert not (tmp_path / "run" / "model.safetensors").exists()
    assert not (tmp_path / "run" / "report" / "predictions_test.jsonl").exists()


def test_nothing_is_printed_of_a_healthy_run(scripts: ScriptRunner, tmp_path: Path) -> None:
    nouns = ("soup", "room", "film", "book", "view", "hotel", "coffee", "week")
    parts = [*itertools.product(("the", "this", "my", "our"), nouns, ("is", "was"), ("good", "bad", "fine", "poor"))]
    rows = [{"text": " ".join(words), "label": "no" if words[-1] in ("bad", "poor") else "yes"} for words in parts]
    for start, split in enumerate(("train", "validation", "test")):
        write_rows(tmp_path / f"{split}.jsonl", rows[start::3])
    # TF-IDF learns such texts sooner than so small a model
    command = [*files(tmp_path), *TINY, *QUICK, "--tfidf_baseline=false", f"--output_dir={tmp_path}/run"]
    # transformers' Trainer warns on file systems whose modification times are coarse
    assert not re.findall(r"^WARNING (?!mtime).*", scripts.check("run_glue.py", *command).error, re.MULTILINE)


def test_the_accuracy_of_the_majority_class_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    labels, names = np.array([[0, 1, -100], [0, 0, 1]]), ("O", "B-X")
    warn_about_majority(np.array([[0, 1, 0], [0, 0, 0]]), labels, names, "validation")
    assert not caplog.records
    warn_about_majority(np.array([0, 0]), np.array([0, 0]), names, "validation")
    (record,) = caplog.records
    assert "all 2 labels are 'O'" in record.getMessage()
    for guess in ([[0, 0, 1], [0, 0, 0]], [[1, 1, 1], [1, 1, 1]]):
        caplog.clear()
        warn_about_majority(np.array(guess), labels, names, "validation")
        assert "0.600" in caplog.text
        assert "'O'" in caplog.text
    warn_about_majority(np.eye(2)[[0, 0]], np.array([0, 1]), names, "validation")  # logits
    assert "0.500" in caplog.text


def test_texts_of_train_in_other_splits_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    texts = [f"text {number}" for number in range(20)]
    splits = DatasetDict(
        {
            "train": table(text=texts, pair=["a"] * 20),
            "validation": table(text=["new"] * 9 + ["text 1"], pair=["a"] * 10),
            "test": table(text=texts[:2] * 2 + ["other"] * 6, pair=["a"] * 10),
        }
    )
    warn_about_overlap(splits, ("text", "pair"))
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("test: 4 of 10 ")
    caplog.clear()
    warn_about_overlap(splits.map(lambda row, index: {"pair": str(index)}, with_indices=True), ("text", "pair"))
    warn_about_overlap(DatasetDict({"test": splits["test"]}), ("text",))
    warn_about_overlap(DatasetDict({split: table(tokens=[[split]]) for split in splits}), ("tokens",))
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("test: 2 of 10 ")


def test_a_row_that_is_far_longer_than_others_is_named(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(["a fine film"] * 2, "word")
    for words, is_named in ((9_000, False), (11_000, True)):
        features = tokenize_texts(table(text=["a fine film"] * 3 + ["film " * words]), tokenizer)
        caplog.clear()
        warn_about_tokens(features, tokenizer, "train", [4, 5, 7, 40])
        assert ("row 41 has 11,002 tokens" in caplog.text) == is_named
        assert ("--max_seq_length" in caplog.text) == is_named


def test_unknown_tokens_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    tokenizer = train_tokenizer(["a fine film", "a fine film"], "word")

    def warn(*texts: str) -> str:
        caplog.clear()
        warn_about_tokens(tokenize_texts(table(text=list(texts)), tokenizer), tokenizer, "test")
        return caplog.text

    with caplog.at_level(logging.INFO):
        assert warn(*["a fine film"] * 9, "ein film") == ""
        message = warn(*["fine film"] * 3, "ein Fest", "sehr schön")
        assert "test: 40.0%" in message
        assert "2 of 5 texts" in message
        assert warn(*["a fine film, a fine film"] * 6, "so") != ""  # one text that is unknown


def test_all_weights_are_checked() -> None:
    weights = [torch.ones(2), torch.ones(2, dtype=torch.long), torch.tensor([1.0, float("inf")])]
    assert all_finite(weights[:2])
    assert not all_finite(weights)
    assert all_finite([])
