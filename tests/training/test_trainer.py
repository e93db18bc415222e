"""Losses, batches, learning rates and guards of the trainer."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from common import tiny_model
from datasets import Dataset, DatasetDict
from samples import word_tokenizer
from script_runner import ScriptRunner
from script_samples import QUICK, TINY, files, read_rows, write_rows
from task_samples import TINY as TINY_TASK
from task_samples import Parsed, table, trainer_of
from torch import Tensor
from training_samples import collate, rows_of
from transformers import (
    BertConfig,
    BertModel,
    DataCollatorWithPadding,
    EvalPrediction,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_star.data.classification import tokenize_texts
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.errors import UserError
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.training.guards import (
    warn_about_majority,
    warn_about_overlap,
    warn_about_tokens,
)
from modeling_star.training.losses import CRFLoss, MetricsWithLoss, SpanLoss, TaskLoss
from modeling_star.training.trainer import (
    ShuffledLengthGroups,
    StarTrainer,
    TokenBatches,
    separate_rates,
)


def by_loops(logits: Tensor, labels: Tensor, weights: list[float], smoothing: float) -> tuple[float, int]:
    """Weighted and smoothed cross entropy: each class counts by its weight, also where the smoothing spreads it."""
    total, count = 0.0, 0
    for row, label in zip(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1).tolist(), strict=True):
        if label == -100:
            continue
        count += 1
        logs = torch.log_softmax(row.double(), -1).tolist()
        total -= (1 - smoothing) * weights[label] * logs[label]
        total -= smoothing / len(logs) * sum(weight * log for weight, log in zip(weights, logs, strict=True))
    return total, count


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weights", [[1.0, 1.0, 1.0], [2.0, 0.5, 0.0]])
def test_weights_and_smoothing_are_in_the_loss(weights: list[float], smoothing: float) -> None:
    torch.manual_seed(0)
    logits, labels = torch.randn(4, 5, 3), torch.randint(0, 3, (4, 5))
    labels[0, 1:] = -100
    loss = TaskLoss("tokens", np.array(weights), smoothing)
    total, count = by_loops(logits, labels, weights, smoothing)
    assert loss({"logits": logits}, labels).item() == pytest.approx(total / count, rel=1e-5)
    assert loss({"logits": logits}, labels, 70).item() == pytest.approx(total / 70, rel=1e-5)


def test_the_loss_of_a_split_of_questions_is_that_of_its_spans() -> None:
    torch.manual_seed(0)
    start, end, labels = torch.randn(4, 6), torch.randn(4, 6), torch.tensor([[0, 2], [1, 5], [3, 3], [4, 5]])
    loss = SpanLoss("reading")
    outputs = {"start_logits": start, "end_logits": end}
    predictions = loss.predictions(outputs), loss.of_outputs(outputs, labels)
    scores = MetricsWithLoss(lambda _: {})(EvalPrediction(predictions=predictions, label_ids=labels))
    assert scores["loss"] == pytest.approx(loss(outputs, labels).item())


def test_the_loss_of_a_split_with_a_crf_is_that_of_the_model() -> None:
    batch = collate(rows_of("chains", 5))
    batch["labels"][0, 0] = -100
    model = tiny_model("StarTransformer", "ForTokenClassification", use_crf=True).eval()
    with torch.no_grad():
        output = model(**batch)
    predictions = output.paths, CRFLoss().of_outputs(output, batch["labels"])
    scores = MetricsWithLoss(lambda _: {})(EvalPrediction(predictions=predictions, label_ids=batch["labels"]))
    assert scores["loss"] == pytest.approx(output.loss.item(), rel=1e-5)


@pytest.mark.parametrize("recorded", [(), ("output_hidden_states",), ("output_attentions", "output_hidden_states")])
def test_a_split_is_scored_alike_where_a_tagger_with_a_crf_records_its_states(recorded: Any, tmp_path: Path) -> None:
    """States and attentions come before the best paths in the outputs, and messages after them."""
    batch = collate(rows_of("chains", 5))
    model = tiny_model("StarTransformer", "ForTokenClassification", use_crf=True).eval()
    with torch.no_grad():
        expected, alone = model(**batch), model(**{name: x for name, x in batch.items() if name != "labels"})
    for name in recorded:
        setattr(model.config, name, True)
    trainer = StarTrainer(model, TrainingArguments(str(tmp_path), report_to=[], use_cpu=True))
    trainer.loss = CRFLoss()
    _, (paths, sums), _ = trainer.prediction_step(model, batch, prediction_loss_only=False)
    assert torch.equal(paths, expected.paths)
    torch.testing.assert_close(sums[:, 0], expected.sequence_losses)
    unlabelled = {name: x for name, x in batch.items() if name != "labels"}
    _, paths, _ = trainer.prediction_step(model, unlabelled, prediction_loss_only=False)
    assert torch.equal(paths, alone.paths)


# 12 full batches and a short one; what an example is shows in its first token.
LENGTHS = [3 + row * 7 % 50 for row in range(50)]
BATCH = 4


def sampler(seed: int, epoch: int = 0) -> ShuffledLengthGroups:
    return ShuffledLengthGroups(LengthGroupedSampler(BATCH, lengths=LENGTHS), seed, lambda: epoch)


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    first = list(sampler(seed=1))
    torch.rand(7)
    assert list(sampler(seed=1)) == first
    assert list(sampler(seed=2)) != first
    assert list(sampler(seed=1, epoch=1)) != first


def grouped_trainer_of(folder: Path, batch: int, **arguments: Any) -> StarTrainer:
    rows = [{"input_ids": [row] + [1] * (length - 1), "label": 0} for row, length in enumerate(LENGTHS)]
    training = TrainingArguments(
        output_dir=str(folder),
        train_sampling_strategy="group_by_length",
        per_device_train_batch_size=batch,
        use_cpu=True,
        seed=1,
        **arguments,
    )
    tokenizer = word_tokenizer("a b")
    return StarTrainer(
        model=tiny_model("StarTransformer", "ForSequenceClassification", vocab_size=50, max_position_embeddings=64),
        args=training,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )


def test_batches_bounded_by_tokens_hold_every_text_once_and_differ_between_epochs() -> None:
    lengths = [3 + row * 7 % 397 for row in range(397)]

    def of_epoch(epoch: int) -> list[list[int]]:
        return list(TokenBatches(lengths, 900, 16, 1, lambda: epoch))

    epochs = [of_epoch(epoch) for epoch in range(3)]
    assert epochs[0] != epochs[1]
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    for batches_of_epoch in epochs:
        assert sorted(row for batch in batches_of_epoch for row in batch) == list(range(397))
        assert len(batches_of_epoch) == len(TokenBatches(lengths, 900, 16, 1, lambda: 0))
        for batch in batches_of_epoch:
            assert len(batch) <= 16
            assert len(batch) * max(lengths[row] for row in batch) <= 900
    tokens = sum(lengths)
    padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in epochs[0])
    assert padded < 1.15 * tokens
    orders = [[[0], [1, 2]], [[0], [2, 1]], [[1, 2], [0]], [[2, 1], [0]]]
    assert list(TokenBatches([5, 1, 0], 2, 16, 1, lambda: 0)) in orders


def test_a_run_with_batches_bounded_by_tokens_resumes_exactly(tmp_path: Path) -> None:
    def trained(folder: Path, checkpoint: str | None = None) -> tuple[list[float], dict[str, torch.Tensor]]:
        torch.manual_seed(1)  # the weights that the model begins with
        trainer = grouped_trainer_of(folder, 16, num_train_epochs=3, save_steps=5, logging_steps=1, report_to="none")
        trainer.max_tokens_per_batch = 100
        assert len(trainer.get_train_dataloader()) == 19
        trainer.train(checkpoint)
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, trainer.model.state_dict()

    losses, straight = trained(tmp_path)
    assert len(losses) == 3 * 19
    resumed_losses, resumed = trained(tmp_path / "again", str(tmp_path / "checkpoint-25"))
    assert resumed_losses == losses
    assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())


HEAD, ENCODER = 1e-3, 1e-4
RATES = (f"--learning_rate={HEAD}", f"--encoder_learning_rate={ENCODER}", "--weight_decay=0.1")


def groups_of(arguments: Parsed, folder: Path, task: Any = ClassificationTask) -> dict[str, tuple[float, float]]:
    """Learning rate and weight decay of each trained parameter, by name."""
    made, trainer = trainer_of(task, arguments, folder)
    trainer.learning_rates = separate_rates(made, trainer.args, trainer.model)
    groups = trainer.create_optimizer().param_groups
    of_parameter = {x: (group["lr"], group["weight_decay"]) for group in groups for x in group["params"]}
    assert sum(len(group["params"]) for group in groups) == len(of_parameter)
    assert groups[0]["lr"] == HEAD, "the rate that is logged"
    decayed = trainer.get_decay_parameter_names(trainer.model)
    trained = {name: x for name, x in trainer.model.named_parameters() if x.requires_grad}
    assert trained.keys() == {name for name, x in trained.items() if x in of_parameter}
    assert all(of_parameter[x][1] == (0.1 if name in decayed else 0) for name, x in trained.items())
    return {name: of_parameter[x] for name, x in trained.items()}


@pytest.fixture
def stock_bert(tmp_path: Path) -> Path:
    """A BERT of three layers, with a tokenizer for the rows of a classification."""
    tokenizer = train_tokenizer([f"text {number}" for number in range(8)])
    sizes = {"hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 8}
    BertModel(BertConfig(vocab_size=len(tokenizer), pad_token_id=0, **sizes)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    return tmp_path / "bert"


def rates_by_part(groups: dict[str, tuple[float, float]], part: str) -> tuple[set[float], set[float]]:
    """The rates of the parameters whose names begin with a part, and those of the others."""
    inside = {name for name in groups if name.startswith(part)}
    return {groups[name][0] for name in inside}, {groups[name][0] for name in groups.keys() - inside}


def test_of_a_stock_bert_all_but_the_new_head_has_the_rate_of_the_encoder(
    parsed: Callable[..., Parsed], stock_bert: Path, tmp_path: Path
) -> None:
    named = (f"--model_name_or_path={stock_bert}", "--report_to=none")
    groups = groups_of(parsed(ClassificationTask, *named, *RATES), tmp_path / "run")
    assert rates_by_part(groups, "bert.") == ({ENCODER}, {HEAD})
    groups = groups_of(parsed(ClassificationTask, *named, *RATES, "--layerwise_lr_decay=0.5"), tmp_path / "layers")
    expected = {f"bert.encoder.layer.{layer}.": ENCODER * 0.5 ** (2 - layer) for layer in range(3)}
    expected |= {"bert.embeddings.": ENCODER / 8, "bert.pooler.": ENCODER, "classifier.": HEAD}
    for part, rate in expected.items():
        assert rates_by_part(groups, part)[0] == {rate}, part
    assert all(name.startswith(tuple(expected)) for name in groups)


def test_of_a_saved_encoder_what_it_lacks_is_new(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    _, pretrainer = trainer_of(PretrainingTask, parsed(PretrainingTask, *TINY_TASK), tmp_path / "mlm")
    pretrainer.save_model(str(tmp_path / "saved"))
    saved = (f"--model_name_or_path={tmp_path / 'saved'}", "--report_to=none")
    groups = groups_of(parsed(ClassificationTask, *saved, *RATES), tmp_path / "run")
    # The pooled vector needs the relay's last update, which masked language modelling lacks.
    known = set(dict(pretrainer.model.named_parameters()))
    assert {name for name, (rate, _) in groups.items() if rate == ENCODER} == known & groups.keys()
    assert {rate for name, (rate, _) in groups.items() if name not in known} == {HEAD}
    assert any(name.startswith("classifier.") for name in groups)
    # All of a model whose head is kept is pretrained: the head of masked language modelling too.
    arguments = parsed(PretrainingTask, *saved, "--learning_rate=1e-3", "--encoder_learning_rate=1e-3")
    made, trainer = trainer_of(PretrainingTask, arguments, tmp_path / "again")
    assert separate_rates(made, trainer.args, trainer.model) == dict.fromkeys(known, 1e-3)


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
