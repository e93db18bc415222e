"""What flags come to in a task of a script: its data, features, metrics and trainer, before anything is trained."""

import itertools
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from script_runner import SCRIPTS
from script_samples import read_rows, write_rows, write_typeless_tokenizer
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerFast, TrainingArguments

from modeling_star import (
    StarTransformerConfig,
    StarTransformerForMaskedLM,
    StarTransformerForTokenClassification,
)
from modeling_star.training.building import saved_model
from modeling_star.training.classification import ClassificationTask
from modeling_star.training.data_files import DataError, read_file
from modeling_star.training.fine_tuner import FineTuner, loss_of, prepare_training
from modeling_star.training.losses import TaskLoss, class_weights
from modeling_star.training.metrics import metrics_for
from modeling_star.training.pretraining import PretrainingTask
from modeling_star.training.reading import ReadingTask
from modeling_star.training.run_card import run_card
from modeling_star.training.running import run_once, train
from modeling_star.training.seeds import asked_for
from modeling_star.training.tagging import TaggingTask
from modeling_star.training.task import Task
from modeling_star.training.tfidf import run_tfidf
from modeling_star.training.tokenizers import train_tokenizer
from modeling_star.training.translation import TranslationTask


sys.path.insert(0, str(SCRIPTS))
import arguments as flags


GROUPS: dict[type[Task], tuple[type, ...]] = {
    TaggingTask: (flags.TaggingModelArguments, flags.TaggingArguments, flags.RunArguments),
    ClassificationTask: (flags.ModelArguments, flags.ClassificationArguments, flags.RunArguments),
    ReadingTask: (flags.ModelArguments, flags.ReadingArguments, flags.RunArguments),
    PretrainingTask: (flags.ModelArguments, flags.TextArguments, flags.RepeatArguments),
    TranslationTask: (
        flags.TranslationModelArguments,
        flags.TranslationArguments,
        flags.TranslationRunArguments,
    ),
}
ROWS: dict[type[Task], list[dict[str, Any]]] = {
    TaggingTask: [
        {"tokens": ["Ann", "sees", "Oslo", "and", "Rome"], "tags": ["B-PER", "O", "B-LOC", "O", "B-LOC"]},
        {"tokens": ["It", "rains"], "tags": ["O", "O"]},
    ],
    ClassificationTask: [{"text": f"text {number}", "label": "ab"[number == 0]} for number in range(8)],
    ReadingTask: [
        {
            "id": str(number),
            "question": f"who {number}",
            "context": f"Ann {number % 4} sees Oslo",
            "answers": {"text": ["Ann"], "answer_start": [0]},
        }
        for number in range(16)
    ],
    PretrainingTask: [{"text": f"a b c d e f {number}"} for number in range(9)],
    TranslationTask: [{"zh": f"雨{number % 4}", "en": f"rain {number}"} for number in range(16)],
}

Parsed = tuple[Any, Any, Any, Any]


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Parsed]:
    """The arguments of a task on its rows: model, data, run, training."""

    def parse(kind: type[Task], *given: str) -> Parsed:
        path = write_rows(tmp_path / f"{kind.__name__}.jsonl", ROWS[kind])
        command = ["script.py", f"--train_file={path}", f"--cache_dir={tmp_path}/cache", *given]
        monkeypatch.setattr(sys, "argv", command)
        own = flags.TRANSLATION_DEFAULTS if kind is TranslationTask else None
        training = "Seq2SeqTrainingArguments" if kind is TranslationTask else "TrainingArguments"
        return flags.parse(GROUPS[kind], "A script.", own, training_class=training)

    return parse


@pytest.fixture
def task_of(parsed: Callable[..., Parsed]) -> Callable[..., Any]:
    return lambda kind, *given: kind(*parsed(kind, *given)[:3])


# What chooses the best model


def best_of(
    training: TrainingArguments, name: str = "tagging", labels: tuple[str, ...] = ("O", "B-PER"), run: Any = None
) -> TrainingArguments:
    """The arguments as `prepare_training` leaves them, for a task with these metrics."""
    task: Any = SimpleNamespace(metrics=metrics_for(name, labels), run_args=run or flags.RunArguments())
    prepare_training(task, training, torch.nn.Linear(1, 1), True)  # type: ignore[arg-type]
    return training


@pytest.mark.parametrize(
    ("given", "chosen"),
    [
        ([], (True, "f1", True)),
        (["--load_best_model_at_end"], (True, "f1", True)),
        (["--lr_scheduler_type=reduce_lr_on_plateau"], (True, "f1", True)),
        (["--metric_for_best_model=loss"], (True, "loss", False)),
        (["--metric_for_best_model=eval_loss", "--greater_is_better=true"], (True, "eval_loss", False)),
        (["--save_strategy=best"], (True, "f1", True)),
        (["--save_strategy=no", "--metric_for_best_model=accuracy"], (False, "accuracy", True)),
        (["--save_strategy=no", "--lr_scheduler_type=greedy"], (False, "f1", True)),
        (["--save_strategy=no"], (False, None, None)),
        (["--load_best_model_at_end=false"], (False, None, None)),
        (["--load_best_model_at_end=no", "--save_strategy=best"], (False, "f1", True)),
        # Steps that differ lose no best model where none is kept.
        (
            [
                "--load_best_model_at_end",
                "false",
                *("--eval_strategy=steps", "--save_strategy=steps", "--eval_steps=3"),
            ],
            (False, None, None),
        ),
    ],
)
def test_the_tasks_score_chooses_the_best_model(
    parsed: Callable[..., Parsed], given: list[str], chosen: tuple[bool, str | None, bool | None]
) -> None:
    *_, run, training = parsed(TaggingTask, *given)
    best_of(training, run=run)
    assert (training.load_best_model_at_end, training.metric_for_best_model, training.greater_is_better) == chosen


@pytest.mark.parametrize(("metric", "greater"), [("mse", False), ("loss", False), ("pearson", True)])
@pytest.mark.parametrize("strategy", ["epoch", "best"])
def test_the_direction_of_a_score_is_known(
    parsed: Callable[..., Parsed], metric: str, greater: bool, strategy: str
) -> None:
    given = (f"--metric_for_best_model={metric}", f"--save_strategy={strategy}")
    training = best_of(parsed(ClassificationTask, *given)[-1], "regression", ())
    assert training.greater_is_better is greater


def test_less_perplexity_is_better(task_of: Callable[..., Any], parsed: Callable[..., Parsed]) -> None:
    task = task_of(PretrainingTask)
    training = parsed(PretrainingTask, "--metric_for_best_model=perplexity")[-1]
    prepare_training(task, training, torch.nn.Linear(1, 1), True)  # type: ignore[arg-type]
    assert training.greater_is_better is False


@pytest.mark.parametrize(
    ("metric", "given", "mode"), [("f1", None, "max"), ("loss", None, "min"), ("f1", '{"mode": "min"}', "min")]
)
def test_a_schedule_that_follows_a_score_knows_its_direction(
    parsed: Callable[..., Parsed], metric: str, given: str | None, mode: str
) -> None:
    told = [f"--metric_for_best_model={metric}", "--lr_scheduler_type=reduce_lr_on_plateau"]
    training = best_of(parsed(TaggingTask, *told, *([f"--lr_scheduler_kwargs={given}"] if given else []))[-1])
    assert training.lr_scheduler_kwargs == {"mode": mode}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--save_strategy=best", "--metric_for_best_model=f2"], ["f2", "precision"]),
        (["--save_strategy=no", "--metric_for_best_model=f2"], ["f2", "precision"]),
        (["--save_strategy=best", "--average_checkpoints=2"], ["--save_strategy epoch"]),
        (["--lr_scheduler_type=greedy", "--average_checkpoints=2"], ["--lr_scheduler_type greedy", "another"]),
        (["--save_strategy=best", "--eval_strategy=no"], ["--save_strategy best", "validation split"]),
    ],
)
def test_what_cannot_choose_is_refused(parsed: Callable[..., Parsed], given: list[str], words: list[str]) -> None:
    *_, run, training = parsed(TaggingTask, *given)
    task: Any = SimpleNamespace(metrics=metrics_for("tagging", ("O", "B-PER")), run_args=run)
    with pytest.raises(DataError) as caught:
        prepare_training(task, training, torch.nn.Linear(1, 1), True)  # type: ignore[arg-type]
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("flag", ["--save_strategy=best", "--lr_scheduler_type=reduce_lr_on_plateau"])
def test_without_validation_there_is_no_score_to_follow(parsed: Callable[..., Parsed], flag: str) -> None:
    *_, run, training = parsed(TaggingTask, flag)
    task: Any = SimpleNamespace(metrics=metrics_for("tagging", ("O", "B-PER")), run_args=run)
    with pytest.raises(DataError, match="validation split"):
        prepare_training(task, training, torch.nn.Linear(1, 1), False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("metric", "drawn"), [(None, ("f1", True)), ("loss", (None, True)), ("accuracy", ("accuracy", True))]
)
def test_the_score_that_chooses_is_drawn(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, metric: str | None, drawn: tuple[str | None, bool]
) -> None:
    seen: list[tuple[str | None, bool]] = []

    def draw(log: Any, path: Path, metric: str | None, *, greater_is_better: bool) -> None:
        seen.append((metric, greater_is_better))

    monkeypatch.setattr("modeling_star.training.running.plot_training_curves", draw)
    trainer: Any = SimpleNamespace(
        train=lambda **_: SimpleNamespace(metrics={}),
        save_model=lambda **_: None,
        save_state=lambda: None,
        log_metrics=lambda *_: None,
        is_world_process_zero=lambda: True,
        model=SimpleNamespace(num_parameters=lambda: 1),
        state=SimpleNamespace(log_history=[]),
    )
    task: Any = SimpleNamespace(metrics=metrics_for("tagging", ("O", "B-PER")), training_results=lambda _: {})
    train(task, trainer, TrainingArguments(str(tmp_path), metric_for_best_model=metric, report_to="none"), {})
    assert seen == [drawn]


@pytest.mark.parametrize(
    "flag",
    [
        *("--dataloader_drop_last", "--eval_delay=1", "--neftune_noise_alpha=5", "--num_train_epochs=9", "--bf16"),
        *("--adam_beta2=0.9", "--warmup_steps=9", "--weight_decay=0.5", "--label_smoothing_factor=0.1"),
        *("--per_device_train_batch_size=3", "--gradient_accumulation_steps=3", "--max_steps=7", "--stride=2"),
        *("--lr_scheduler_type=cosine", "--optim=adafactor", "--max_grad_norm=2", "--class_weights=balanced"),
        *("--train_sampling_strategy=group_by_length", "--shuffle_length_groups=false", "--average_checkpoints=1"),
        "--load_best_model_at_end=false",
    ],
)
def test_seeds_go_on_only_with_what_decides_as_it_was(parsed: Callable[..., Parsed], flag: str) -> None:
    assert asked_for(*parsed(TaggingTask)) != asked_for(*parsed(TaggingTask, flag))


@pytest.mark.parametrize(("limit", "kept"), [(None, None), (2, 4), (9, 9)])
def test_as_many_checkpoints_are_kept_as_are_averaged(
    parsed: Callable[..., Parsed], limit: int | None, kept: int | None
) -> None:
    *_, run, training = parsed(TaggingTask, "--average_checkpoints=4")
    training.save_total_limit = limit
    assert best_of(training, run=run).save_total_limit == kept


def test_seeds_go_on_only_in_as_many_processes(parsed: Callable[..., Parsed], monkeypatch: pytest.MonkeyPatch) -> None:
    alone = parsed(TaggingTask)
    before = asked_for(*alone)
    monkeypatch.setattr(type(alone[-1]), "world_size", property(lambda _: 2))
    assert before != asked_for(*alone)


# The loss


def test_balanced_weights_are_inverse_to_how_often_a_class_occurs() -> None:
    weights = class_weights("balanced", ("a", "b", "c"), {"a": 6, "b": 3, "c": 0})
    assert weights == pytest.approx([10 / (3 * 6), 10 / (3 * 3), 10 / (3 * 1)])
    assert class_weights("2,0.5", ("a", "b"), {}) == pytest.approx([2, 0.5])
    assert class_weights("none", ("a", "b"), {"a": 1, "b": 1}) is None


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


def test_the_flags_of_the_loss_reach_it(parsed: Callable[..., Parsed]) -> None:
    model, data, run, training = parsed(
        ClassificationTask, "--class_weights=balanced", "--label_smoothing_factor=0.2", "--validation_fraction=0"
    )
    task = ClassificationTask(model, data, run)
    prepared = prepare_training(task, training, torch.nn.Linear(1, 1), False)  # type: ignore[arg-type]
    loss = loss_of(task, torch.nn.Linear(1, 1), prepared.smoothing, weighted=True)  # type: ignore[arg-type]
    assert (loss.smoothing, training.label_smoothing_factor) == (0.2, 0.0)
    assert loss.weights is not None
    # One row is of the one class, seven of the other.
    assert sorted(loss.weights.tolist()) == pytest.approx([8 / (2 * 7), 8 / 2])


def trainer_of(kind: type[Task], arguments: Parsed, folder: Path) -> tuple[Any, Any]:
    """A task with its trainer, as `run` makes them."""
    *groups, training = arguments
    training.output_dir = str(folder)
    task = kind(*groups)
    tokenizer, model = task.build()
    features = {split: task.features(split, tokenizer, 16) for split in task.split_names}
    return task, task.make_trainer(training, model, tokenizer, features)


TINY = ("--config_overrides=hidden_size=16,num_attention_heads=2", "--report_to=none")


@pytest.mark.parametrize("local", ["lexicon", "adjacent"])
def test_a_big_transformer_without_words_is_told_of(
    local: str, task_of: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    shape = f"--config_overrides=hidden_size=16,num_attention_heads=2,local_connection={local}"
    task_of(ClassificationTask, "--model_type=big_transformer", shape).build()
    assert ("add --lexicon FILE, jieba or whole_word" in caplog.text) == (local == "lexicon")


def test_pretraining_smooths_its_loss_and_hides_other_tokens_in_every_epoch(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    arguments = parsed(PretrainingTask, *TINY, "--label_smoothing_factor=0.2")
    _, trainer = trainer_of(PretrainingTask, arguments, tmp_path / "run")
    assert trainer.compute_loss_func.smoothing == 0.2
    begun: list[int] = []
    trainer.train_dataset.begin_epoch = begun.append
    for epoch in (None, 1.0, 2.6):
        trainer.state.epoch = epoch
        trainer.callback_handler.on_epoch_begin(trainer.args, trainer.state, trainer.control)
    assert begun == [0, 1, 2]


def test_translation_smooths_its_loss(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    small = "d_model=16,encoder_layers=1,decoder_layers=1,encoder_attention_heads=2,decoder_attention_heads=2"
    arguments = parsed(TranslationTask, f"--config_overrides={small}", "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    assert trainer.compute_loss_func.smoothing == 0.1  # the paper's, by default
    arguments = parsed(TranslationTask, f"--config_overrides={small}", "--report_to=none", "--generation_num_beams=3")
    assert arguments[-1].generation_num_beams == 3


def test_translators_are_trained_as_in_the_paper(parsed: Callable[..., Parsed]) -> None:
    training = parsed(TranslationTask)[-1]
    assert (training.adam_beta1, training.adam_beta2, training.adam_epsilon) == (0.9, 0.98, 1e-9)
    assert (training.lr_scheduler_type, training.warmup_steps) == ("inverse_sqrt", 0.1)
    assert training.predict_with_generate
    assert parsed(TaggingTask)[-1].adam_beta2 != 0.98


def test_what_is_scored_has_its_own_beams(
    parsed: Callable[..., Parsed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = "--model_type=star_transformer --config_overrides=encoder.hidden_size=16,encoder.num_attention_heads=2"
    beams = ("--generation_num_beams=2", "--num_beams=3", "--generation_max_length=4", "--validation_fraction=0.5")
    arguments = parsed(TranslationTask, *sizes.split(), *beams, "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    seen: list[tuple[int, int]] = []
    generate = trainer.model.generate

    def spy(**options: Any) -> Tensor:
        seen.append((options["num_beams"], options["max_length"]))
        return generate(**options)

    monkeypatch.setattr(trainer.model, "generate", spy)
    trainer.evaluate()
    assert set(seen) == {(2, 4)}
    seen.clear()
    trainer.predict(trainer.eval_dataset)
    assert set(seen) == {(3, 4)}


@pytest.mark.parametrize(
    ("given", "searches"),
    [
        (
            "--model_type=star_transformer --config_overrides=encoder.hidden_size=16,encoder.num_attention_heads=2",
            False,
        ),
        ("--model_type=marian --config_overrides=d_model=16", None),
    ],
)
def test_processes_search_for_unused_parameters_where_a_model_may_have_some(
    parsed: Callable[..., Parsed], tmp_path: Path, given: str, searches: bool | None
) -> None:
    arguments = parsed(TranslationTask, *given.split(), "--report_to=none", "--vocab_size=60")
    _, trainer = trainer_of(TranslationTask, arguments, tmp_path / "run")
    assert trainer.args.ddp_find_unused_parameters is searches


# What is held out


@pytest.mark.parametrize(("kind", "column"), [(ReadingTask, "context"), (TranslationTask, "source")])
def test_what_shares_a_text_is_held_out_together(task_of: Callable[..., Any], kind: type[Task], column: str) -> None:
    splits = task_of(kind, "--validation_fraction=0.5").data.splits
    learnt, held = set(splits["train"][column]), set(splits["validation"][column])
    assert learnt
    assert held
    assert not learnt & held
    # Four rows share each text.
    assert len(splits["train"]) == 4 * len(learnt)


# Flags of the tasks


def test_flags_of_reading_reach_its_metrics(task_of: Callable[..., Any]) -> None:
    given = ("--n_best_size=7", "--max_answer_length=9", "--answer_language=zh", "--version_2_with_negative")
    metrics = task_of(ReadingTask, *given, "--null_score_diff_threshold=1.5").metrics
    assert (metrics.n_best_size, metrics.max_answer_length, metrics.language) == (7, 9, "zh")
    assert metrics.null_threshold == 1.5
    assert task_of(ReadingTask).metrics.null_threshold is None


def test_flags_of_translation_reach_its_metrics(task_of: Callable[..., Any]) -> None:
    assert task_of(TranslationTask).metrics.tokenize == "13a"
    assert task_of(TranslationTask, "--bleu_tokenize=char").metrics.tokenize == "char"
    assert task_of(TranslationTask, "--source_column=en", "--target_column=zh").metrics.tokenize == "zh"


def test_flags_of_tagging_reach_metrics_and_features(task_of: Callable[..., Any]) -> None:
    tokenizer = train_tokenizer([["Ann", "sees", "Oslo", "Rome", "rains"]], "wordpiece", vocab_size=40)
    task = task_of(TaggingTask, "--return_entity_level_metrics", "--label_all_tokens", "--validation_fraction=0")
    assert task.metrics.per_type
    assert not task_of(TaggingTask).metrics.per_type
    plain = task_of(TaggingTask, "--validation_fraction=0")

    def labelled(task: Any) -> int:
        rows = task.features("train", tokenizer, None)
        return sum(label != -100 for row in rows["labels"] for label in row)

    assert labelled(plain) == 7
    assert labelled(task) > 7


@pytest.mark.parametrize("kind", [TaggingTask, ClassificationTask])
def test_only_so_many_examples_are_used(task_of: Callable[..., Any], tmp_path: Path, kind: type[Task]) -> None:
    rows = write_rows(tmp_path / "other.jsonl", ROWS[kind])
    files = (f"--validation_file={rows}", f"--test_file={rows}")
    limits = ("--max_train_samples=2", "--max_eval_samples=1", "--max_predict_samples=1")
    splits = task_of(kind, *files, *limits).data.splits
    assert {split: len(rows) for split, rows in splits.items()} == {"train": 2, "validation": 1, "test": 1}


def test_documents_and_what_the_tokenizer_sees_of_them(task_of: Callable[..., Any], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b\nc d\n\ne f\n", encoding="utf-8")
    for unit, count in {"line": 3, "paragraph": 2, "file": 1}.items():
        task = task_of(PretrainingTask, f"--train_file={text}", f"--text_unit={unit}", "--validation_fraction=0")
        assert len(task.data.splits["train"]) == count
    task = task_of(PretrainingTask, f"--train_file={text}", "--max_tokenizer_samples=2", "--validation_fraction=0")
    assert len(list(task.training_texts())) == 2


def test_a_stream_leaves_the_tokenizer_whole_and_its_blocks_equally_long(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    flags = ("--streaming", "--max_steps=2", "--packing=false", "--shuffle_buffer=0", "--max_seq_length=16")
    _, trainer = trainer_of(PretrainingTask, parsed(PretrainingTask, *TINY, *flags), tmp_path / "run")
    blocks = list(itertools.islice(trainer.train_dataset, 4))
    # Checkpoints are written while the stream is cut up.
    assert trainer.processing_class.backend_tokenizer.truncation is None
    # The main process reads for all, and shares out what is equally long.
    assert [trainer.data_collator([block])["input_ids"].shape for block in blocks] == [(1, 16)] * 4


# What is scored of a tagger


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    words = ["Ann", "sees", "Oslo", "and", "Rome", "It", "rains"]
    return train_tokenizer([words], "word", min_frequency=1)


def test_what_is_scored_is_read_whole(task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"]
    learnt, scored = (task.features(split, pieces, 5) for split in ("train", "test"))
    assert (len(learnt), len(scored)) == (2, 3)
    read = [word for row in scored if row["example_index"] == 0 for word in row["word_ids"] if word >= 0]
    assert read == [0, 1, 2, 3, 4]
    assert len(task.features("test", pieces, None)) == 2


def test_words_without_a_label_are_not_counted(
    task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"].map(lambda row: {"tags": [-100, *row["tags"][1:]]})
    features = task.features("test", pieces, None)
    right = [[max(label, 0) for label in row] + [-100] * (7 - len(row)) for row in features["labels"]]
    sections = task.report(tmp_path, "test", features, np.array(right))
    (table,) = sections.values()
    # Of Ann, Oslo and Rome the first has no label now.
    assert [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")][-1] == "2"
    assert "1.0" in table
    assert '"labels": [null, "O", "B-LOC", "O", "B-LOC"]' in (tmp_path / "predictions_test.jsonl").read_text()
    # Nor does another scorer count them.
    first = ["sees O O", "Oslo B-LOC B-LOC", "and O O", "Rome B-LOC B-LOC", ""]
    assert (tmp_path / "predictions_test.conll").read_text().split("\n") == [*first, "rains O O", "", ""]


def test_predicted_labels_are_written_as_other_scorers_read_them(
    task_of: Callable[..., Any], pieces: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    task = task_of(TaggingTask, "--validation_fraction=0")
    splits = task.data.splits
    splits["test"] = splits["train"].remove_columns("tags").map(lambda row: {"tokens": ["a b", *row["tokens"][1:]]})
    features = task.features("test", pieces, None)
    task.report(tmp_path, "test", features, np.zeros((2, 7), dtype=int))
    read = read_file(tmp_path / "predictions_test.conll")
    assert read["tokens"][:] == [["a_b", "sees", "Oslo", "and", "Rome"], ["a_b", "rains"]]
    assert read["tags"][:] == [["O"] * 5, ["O"] * 2]


# What a saved model brings along


def loaded(folder: Path, model: Any, caplog: pytest.LogCaptureFixture, **options: Any) -> str:
    """What is told while a classifier is loaded from what was saved of another model."""
    model.save_pretrained(folder)
    held: list[logging.LogRecord] = []
    source = logging.getLogger("transformers.modeling_utils")
    listener = logging.Handler()
    listener.emit = held.append  # type: ignore[method-assign]
    source.addHandler(listener)
    try:
        with caplog.at_level(logging.INFO):
            saved_model("AutoModelForSequenceClassification", str(folder), {"num_labels": 3}, **options)
    finally:
        source.removeHandler(listener)
    return caplog.text + "".join(record.getMessage() for record in held)


STAR = {"vocab_size": 20, "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}


def test_what_a_new_head_needs_is_told_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    told = loaded(tmp_path, StarTransformerForMaskedLM(StarTransformerConfig(**STAR)), caplog)
    assert "its head (classifier); the relay's update in layer 1, the last" in told
    assert "LOAD REPORT" not in told


def test_weights_that_lack_otherwise_are_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = StarTransformerForMaskedLM(StarTransformerConfig(**STAR))
    told = loaded(tmp_path, model, caplog, overrides={"num_hidden_layers": 3})
    assert "LOAD REPORT" in told
    assert "layers.2.ring_attention" in told
    assert "New in this model" not in told


def test_the_time_to_prepare_a_model_is_no_score(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trainer = FineTuner(torch.nn.Linear(1, 1), TrainingArguments(str(tmp_path), report_to="none"))
    trainer.log_metrics("test", {"test_accuracy": 0.5, "test_model_preparation_time": 0.001})
    told = capsys.readouterr().out
    assert "test_accuracy" in told
    assert "preparation" not in told


# What is told of a classifier


def report_of(task: Any, folder: Path, logits: list[list[float]]) -> tuple[dict[str, str], list[dict[str, Any]]]:
    sections = task.report(folder, "validation", task.data.splits["validation"], np.array(logits))
    return sections, read_rows(folder / "predictions_validation.jsonl")


def test_a_prediction_has_its_row_of_the_file_its_text_and_its_score(
    parsed: Callable[..., Parsed], tmp_path: Path
) -> None:
    rows = [{"text": None if number == 2 else f"text {number}", "label": "ab"[number % 2]} for number in range(12)]
    path = write_rows(tmp_path / "given.jsonl", rows)
    arguments = parsed(ClassificationTask, f"--train_file={path}", "--drop_empty", "--validation_fraction=0.4")
    task = ClassificationTask(*arguments[:3])
    held = len(task.data.splits["validation"])
    sections, told = report_of(task, tmp_path, [[0.0, 2.0]] * held)
    assert held == 4
    assert all(row["text"] == rows[row["index"]]["text"] for row in told)
    assert all(row["label"] == rows[row["index"]]["label"] for row in told)
    assert max(row["index"] for row in told) > held
    assert {(row["predicted"], row["score"]) for row in told} == {("b", 0.8808)}
    assert (tmp_path / "classes_validation.md").read_text() == sections["Classes of the validation split"] + "\n"


def test_several_labels_have_a_score_each(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    rows = [{"text": f"text {number}", "label": [["a"], ["a", "b"]][number % 2]} for number in range(4)]
    path = write_rows(tmp_path / "given.jsonl", rows)
    arguments = parsed(ClassificationTask, f"--train_file={path}", "--validation_fraction=0.25")
    _, (row,) = report_of(ClassificationTask(*arguments[:3]), tmp_path, [[2.0, -1000.0]])
    assert (row["predicted"], row["score"]) == (["a"], {"a": 0.8808, "b": 0.0})


def test_a_rare_class_is_not_held_out(task_of: Callable[..., Any]) -> None:
    for fraction in ("0.3", "0.8"):
        data = task_of(ClassificationTask, f"--validation_fraction={fraction}").data
        assert data.counts("train")["b"] == 1
        assert data.counts("validation")["b"] == 0


def test_the_table_of_entities_has_the_scores_that_are_told(parsed: Callable[..., Parsed], tmp_path: Path) -> None:
    """A fresh model guesses, so that no score is 0 or 1 by itself."""
    rows = write_rows(tmp_path / "test.jsonl", ROWS[TaggingTask] * 20)
    arguments = parsed(TaggingTask, *TINY, f"--test_file={rows}", "--validation_fraction=0")
    task, trainer = trainer_of(TaggingTask, arguments, tmp_path / "run")
    labels = len(task.data.label_list)
    torch.manual_seed(3)
    config = StarTransformerConfig(vocab_size=100, hidden_size=16, num_attention_heads=2, num_labels=labels)
    trainer.model = StarTransformerForTokenClassification(config).eval()
    features = task.features("test", trainer.processing_class, 5)  # in windows
    trainer.compute_metrics = None
    output = trainer.predict(features)
    predictions = output.predictions[0] if isinstance(output.predictions, tuple) else output.predictions
    told = task.metrics_of("test", features)(SimpleNamespace(predictions=predictions, label_ids=output.label_ids))
    folder = tmp_path / "told"
    folder.mkdir()
    (table,) = task.report(folder, "test", features, predictions).values()
    everything = [cell.strip().strip("*") for cell in table.splitlines()[-1].strip("|").split("|")]
    assert 0 < told["f1"] < 1
    shown = [float(cell) for cell in everything[1:4]]
    assert shown == pytest.approx([told["precision"], told["recall"], told["f1"]], abs=6e-4)


def test_the_card_has_each_splits_scores_under_its_name_and_all_that_an_update_reads(
    parsed: Callable[..., Parsed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = ("--per_device_train_batch_size=3", "--gradient_accumulation_steps=5", "--use_cpu")
    task, trainer = trainer_of(TaggingTask, parsed(TaggingTask, *TINY, *sizes), tmp_path / "run")
    monkeypatch.setattr(type(trainer.args), "world_size", property(lambda _: 2))
    results = {"eval_f1": 0.25, "test_f1": 0.75, "train_runtime": 7.0, "parameters": 9}
    content = run_card(task, trainer, results, {"Entities": "| a |"})
    assert content.results == {"validation": {"f1": 0.25}, "test": {"f1": 0.75}}
    assert content.hyperparameters["examples an update"] == 3 * 5 * 2
    assert (content.hyperparameters["processes"], content.hyperparameters["parameters"]) == (2, 9)
    trainer.model.save_pretrained(tmp_path / "run")
    trainer.card = lambda: content
    trainer.create_model_card()
    card = (tmp_path / "run" / "README.md").read_text(encoding="utf-8")
    assert "| examples an update | `30` |" in card
    (scores,) = (line for line in card.splitlines() if line.startswith("| ") and "0.75" in line)
    heads = next(line for line in card.splitlines() if "validation" in line and line.startswith("|"))
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (heads, scores)]
    assert dict(zip(*cells, strict=True)).get("test", "").startswith("0.75"), card


def test_answers_are_told_by_the_length_of_their_contexts(task_of: Callable[..., Any], tmp_path: Path) -> None:
    lengths, exact, f1 = np.array([5, 128, 129, 700]), np.array([1.0, 0, 1, 0]), np.array([1.0, 0.5, 1, 0.25])
    (table,) = task_of(ReadingTask)._by_length(tmp_path, "test", lengths, exact, f1).values()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["up to 128", "129 to 256", "513 to 1,024"]
    assert [[float(cell) for cell in row[1:]] for row in rows] == [[0.5, 0.75, 2], [1, 1, 1], [0, 0.25, 1]]


def test_a_confusion_is_of_what_is_true_by_what_is_told(
    task_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    drawn: list[tuple[list[int], list[str]]] = []
    place = "modeling_star.training.classification.plot_confusion_matrix"
    monkeypatch.setattr(place, lambda truth, guess, *_, **__: drawn.append((list(truth), list(guess))))
    task = task_of(ClassificationTask, "--validation_fraction=0")
    always_b = np.array([[0.0, 1.0]] * 8)
    task.report(tmp_path, "train", None, always_b)
    assert drawn == [([1, 0, 0, 0, 0, 0, 0, 0], ["b"] * 8)]


# TF-IDF


class Fitted:
    """A logistic regression that scores best on validation with the second strength, on train with the last."""

    def __init__(self, C: float, **options: Any) -> None:  # noqa: N803
        self.C = C
        self.classes_, self.coef_, self.intercept_ = np.arange(2), np.zeros((1, 2)), np.zeros(1)

    def fit(self, features: Any, labels: Any) -> "Fitted":
        return self

    def score(self, features: Any, labels: Any) -> float:
        on_validation = features.shape[0] == 3
        return {1.0: 0.1, 3.0: 0.9, 10.0: 0.3, 30.0: 0.2}[self.C] if on_validation else self.C / 30

    def predict_log_proba(self, features: Any) -> np.ndarray:
        return np.log(np.full((features.shape[0], 2), 0.5))


def test_validation_chooses_the_strength_of_tfidf(
    task_of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("modeling_star.training.tfidf.LogisticRegression", Fitted)
    rows = write_rows(tmp_path / "validation.jsonl", ROWS[ClassificationTask][:3])
    task = task_of(ClassificationTask, f"--validation_file={rows}")
    assert run_tfidf(task, TrainingArguments(str(tmp_path / "run"), report_to="none"))["strength"] == 3.0


# What users read is what was scored


@pytest.mark.parametrize("kind", [ReadingTask, ClassificationTask])
def test_a_saved_tokenizer_gives_the_types_that_were_learnt(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    pairs = [{"sentence1": f"text {n}", "sentence2": "more", "label": "ab"[n == 0]} for n in range(8)]
    rows = write_rows(tmp_path / "rows.jsonl", pairs if kind is ClassificationTask else ROWS[kind])
    name = write_typeless_tokenizer(tmp_path / "tokenizer", ["who Ann sees Oslo text more"] * 2)
    assert "token_type_ids" not in AutoTokenizer.from_pretrained(name)("a", "b")
    _, trainer = trainer_of(kind, parsed(kind, *TINY, f"--train_file={rows}", f"--tokenizer_name={name}"), tmp_path)
    trainer.processing_class.save_pretrained(tmp_path / "saved")
    given = AutoTokenizer.from_pretrained(tmp_path / "saved")("who", "Ann")["token_type_ids"]
    assert given == trainer.processing_class("who", "Ann")["token_type_ids"] == [0, 0, 0, 1, 1]
    assert max(trainer.train_dataset[0]["token_type_ids"]) == 1


@pytest.mark.parametrize("kind", [TaggingTask, ClassificationTask])
def test_the_saved_tokenizer_cuts_where_the_scores_did(
    parsed: Callable[..., Parsed], tmp_path: Path, kind: type[Task]
) -> None:
    def limit_of(folder: str, *given: str) -> int:
        *groups, training = parsed(kind, "--report_to=none", "--max_steps=1", "--disable_tqdm=true", *given)
        training.output_dir = str(tmp_path / folder)
        run_once(kind(*groups), training)
        return AutoTokenizer.from_pretrained(tmp_path / folder).model_max_length

    assert limit_of("short", TINY[0], "--max_seq_length=6") == 6
    assert limit_of("whole", TINY[0]) == 512
    saved = f"--model_name_or_path={tmp_path / 'short'}"
    assert limit_of("later", saved, "--max_seq_length=9") == 9
    assert limit_of("same", saved) == 6
