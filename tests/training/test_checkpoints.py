"""The output folder of a run: the best model, where a run may begin or resume, so that nothing is overwritten."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from task_samples import TINY, Parsed, flags, trainer_of
from transformers import TrainingArguments

from modeling_star.commands.parser import from_values
from modeling_star.errors import UserError
from modeling_star.evaluation.task_metrics import metrics_for
from modeling_star.files import write_json
from modeling_star.runs.output_folder import (
    changed_arguments,
    check_output_dir,
    lock_output_dir,
    plan_seeds,
    run_config,
)
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.checkpoints import last_checkpoint, remove_checkpoints, write_manifest
from modeling_star.training.settled_arguments import settle_training
from modeling_star.training.trainer import average_checkpoints


STATE = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


def write_checkpoint(
    folder: Path, step: int, files: Iterable[str] = STATE, state: Mapping[str, Any] = MappingProxyType({})
) -> Path:
    """A checkpoint of one tensor."""
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True)
    tensors = {"weight": torch.arange(1000.0)}
    save_file(tensors, checkpoint / "model.safetensors")
    for name in files:
        torch.save(tensors, checkpoint / name)
    write_json(checkpoint / "trainer_state.json", state)
    write_manifest(checkpoint)
    return checkpoint


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_run_resumes_from_its_newest_whole_checkpoint(tmp_path: Path) -> None:
    assert last_checkpoint(tmp_path) is None
    assert check_output_dir(tmp_path / "new", "last") is None  # killed before the first one: a fresh start
    for step in (9, 10, 100):
        write_checkpoint(tmp_path, step)
    (tmp_path / "checkpoint-100" / "trainer_state.json").write_text('{"log', encoding="utf-8")
    (tmp_path / "checkpoint-200").mkdir()
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-10"
    assert check_output_dir(tmp_path, "last") == str(tmp_path / "checkpoint-10")


@pytest.mark.parametrize("name", ["model.safetensors", "manifest.json", *STATE])
@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink])
def test_a_damaged_checkpoint_is_skipped_with_the_reason(
    tmp_path: Path, damage: Callable[[Path], None], name: str
) -> None:
    for step in (3, 6):
        write_checkpoint(tmp_path, step)
    assert check_output_dir(tmp_path, "last") == str(tmp_path / "checkpoint-6")
    damage(tmp_path / "checkpoint-6" / name)
    assert check_output_dir(tmp_path, "last") == str(tmp_path / "checkpoint-3")
    with pytest.raises(UserError, match="checkpoint-6 is no whole checkpoint"):
        check_output_dir(tmp_path, str(tmp_path / "checkpoint-6"))


def test_no_run_resumes_towards_a_damaged_best_checkpoint(tmp_path: Path) -> None:
    for step in (3, 6, 9):
        best = "elsewhere/checkpoint-6" if step > 3 else None  # the folder was moved
        write_checkpoint(tmp_path, step, state={"best_model_checkpoint": best})
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-9"
    truncate(tmp_path / "checkpoint-6" / "model.safetensors")
    assert last_checkpoint(tmp_path) == tmp_path / "checkpoint-3"


def test_a_checkpoint_of_several_processes_has_all_their_random_states(tmp_path: Path) -> None:
    ranks = [f"rng_state_{rank}.pth" for rank in range(3)]
    checkpoint = write_checkpoint(tmp_path, 3, ["optimizer.bin", "scheduler.pt", *ranks])  # as FSDP calls it
    assert check_output_dir(tmp_path, "last") == str(checkpoint)
    (checkpoint / ranks[1]).unlink()
    with pytest.raises(UserError, match="no whole checkpoint"):
        check_output_dir(tmp_path, "last")


def test_no_kill_while_checkpoints_are_removed_loses_the_best_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (3, 6, 9):
        write_checkpoint(tmp_path, step, state={"best_model_checkpoint": f"{tmp_path}/checkpoint-{min(step, 6)}"})
    (tmp_path / "checkpoint-best").mkdir()  # of the user
    unlink, left = Path.unlink, []

    def unlink_and_look(path: Path, **options: bool) -> None:
        unlink(path, **options)
        left.append(last_checkpoint(tmp_path))

    monkeypatch.setattr(Path, "unlink", unlink_and_look)
    monkeypatch.setattr("shutil.rmtree", lambda path: left.append(last_checkpoint(tmp_path)))
    remove_checkpoints(tmp_path)
    assert left == [tmp_path / "checkpoint-6", tmp_path / "checkpoint-3", *[None] * 4]
    monkeypatch.undo()
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-best"]


def test_resuming_overwrites_no_other_run(tmp_path: Path) -> None:
    first, last = (str(write_checkpoint(tmp_path / "run", step)) for step in (3, 6))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "model.safetensors").touch()
    assert check_output_dir(tmp_path / "run", last) == last
    assert check_output_dir(tmp_path / "new", first) == first
    with pytest.raises(UserError, match="checkpoint-6"):
        check_output_dir(tmp_path / "run", first)
    with pytest.raises(UserError, match=r"model\.safetensors"):
        check_output_dir(tmp_path / "other", last)


@pytest.mark.parametrize("resume", ["last", "checkpoint-3"])
def test_a_checkpoint_without_optimizer_is_not_resumed_from(tmp_path: Path, resume: str) -> None:
    write_checkpoint(tmp_path, 3, files=())  # as with --save_only_model
    with pytest.raises(UserError, match="--model_name_or_path"):
        check_output_dir(tmp_path, resume if resume == "last" else str(tmp_path / resume))


def test_seeds_with_other_arguments_are_not_averaged(tmp_path: Path) -> None:
    config = {"learning_rate": 1e-3, "embeddings_name_or_path": "bert"}

    def plan(name: str, resume: str | None, **changes: float) -> list[tuple[bool, str | None]]:
        parent = tmp_path / name
        training = TrainingArguments(str(parent), resume_from_checkpoint=resume, use_cpu=True)
        return plan_seeds([parent / "seed-1", parent / "seed-2"], training, config | changes)

    write_json(tmp_path / "seeds" / "arguments.json", {"learning_rate": 5})
    assert plan("seeds", None) == [(False, None)] * 2  # after a call that failed before its first run
    # An earlier version had other names, and more arguments.
    before = {"learning_rate": 1e-3, "embeddings_from": "bert", "pad_to_max_length": False}
    write_json(tmp_path / "seeds" / "arguments.json", before)
    write_json(tmp_path / "seeds" / "seed-1" / "all_results.json", {})
    assert plan("seeds", "last") == [(True, None), (False, None)]
    with pytest.raises(UserError, match="--resume_from_checkpoint last"):
        plan("seeds", None)
    with pytest.raises(UserError, match=r"learning_rate 0\.001, now 0\.01"):
        plan("seeds", "last", learning_rate=1e-2)
    write_json(tmp_path / "single" / "all_results.json", {})
    with pytest.raises(UserError, match=r"all_results\.json"):
        plan("single", "last")


def test_changed_arguments_are_reported(tmp_path: Path) -> None:
    assert changed_arguments(tmp_path, {"num_train_epochs": 2}) == ""
    write_json(tmp_path / "arguments.json", {"num_train_epochs": 60, "text_unit": "line"})
    assert changed_arguments(tmp_path, {"num_train_epochs": 60, "sample_by": "line"}) == ""
    changes = changed_arguments(tmp_path, {"num_train_epochs": 2, "sample_by": "line"})
    assert changes == "num_train_epochs 60, now 2"


def test_a_folder_in_use_is_refused_and_may_be_resumed_with_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "predictions_test.jsonl").touch()
    with pytest.raises(UserError, match=r"predictions_test\.jsonl") as refused:
        check_output_dir(tmp_path, None)
    assert "--resume_from_checkpoint" not in str(refused.value)
    write_checkpoint(tmp_path, 1)
    with pytest.raises(UserError, match="--resume_from_checkpoint last"):
        check_output_dir(tmp_path, None)


def test_a_second_run_cannot_lock_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with lock_output_dir(folder):
        with pytest.raises(UserError, match="--output_dir"), lock_output_dir(folder):
            pass
        assert check_output_dir(folder, None) is None, "the lock does not count as content"
    assert not folder.exists(), "an empty folder does not stay"
    with lock_output_dir(folder):
        pass


# ------ resuming in Trainer


@pytest.fixture
def fresh_trainer(parsed: Callable[..., Parsed], tmp_path: Path) -> Callable[..., Any]:
    """Makes a trainer of a classifier with 8 rows, saved at every step."""

    def make(*given: str) -> Any:
        steps = ("--save_strategy=steps", "--save_steps=1", "--save_total_limit=9", "--max_steps=7")
        flags = (*TINY, *steps, "--per_device_train_batch_size=2", *given)
        return trainer_of(ClassificationTask, parsed(ClassificationTask, *flags), tmp_path / "run")[1]

    return make


def test_a_training_that_had_ended_takes_no_further_step(fresh_trainer: Callable[..., Any], tmp_path: Path) -> None:
    straight = fresh_trainer("--eval_strategy=no")
    straight.train()
    resumed = fresh_trainer("--eval_strategy=no")
    resumed.train(str(tmp_path / "run" / "checkpoint-7"))
    assert resumed.state.global_step == 7  # in the middle of an epoch
    assert all(map(torch.equal, resumed.model.parameters(), straight.model.parameters()))


@pytest.mark.parametrize("checkpoint", [2, 3], ids=["before", "after"])
def test_early_stopping_counts_across_an_interruption(
    fresh_trainer: Callable[..., Any], tmp_path: Path, checkpoint: int
) -> None:
    def trained(folder: str | None) -> Any:
        flags = ("--eval_strategy=steps", "--eval_steps=1", "--learning_rate=0")
        trainer = fresh_trainer(*flags, "--early_stopping_patience=2", "--validation_fraction=0.5")
        trainer.train(folder)
        return trainer

    assert trained(None).state.global_step == 3  # the first step is the best
    assert trained(str(tmp_path / "run" / f"checkpoint-{checkpoint}")).state.global_step == 3


def settled(
    training: TrainingArguments,
    run: flags.RunArguments | None = None,
    name: str = "tagging",
    labels: tuple[str, ...] = ("O", "B-PER"),
    has_validation: bool = True,
    rows: int = 100,
) -> TrainingArguments:
    """The final arguments, for a task with these metrics."""
    metrics, model = metrics_for(name, labels), torch.nn.Linear(1, 1)
    before = training.to_dict()
    final = settle_training(training, run or flags.RunArguments(), metrics, model, rows, has_validation)  # type: ignore[arg-type]
    assert training.to_dict() == before, "the arguments of the user are not changed"
    return final


@pytest.mark.parametrize(
    ("given", "rows", "epochs"),
    [
        ({}, 20, 3),
        ({"pretrained": "NAME"}, 1400, 3),
        ({"pretrained": "NAME"}, 200, 16),  # 100 updates of 32 texts
        ({"pretrained": "NAME", "gradient_accumulation_steps": 2}, 320, 20),
        ({"pretrained": "NAME"}, 20, 20),
        ({"pretrained": "NAME", "num_train_epochs": 3}, 20, 3),
        ({"pretrained": "NAME", "max_steps": 4}, 20, 3),
    ],
)
def test_few_rows_pass_more_often_through_a_pretrained_encoder(
    given: dict[str, Any], rows: int, epochs: int, tmp_path: Path
) -> None:
    groups = (flags.TaggingModelArguments, flags.TaggingArguments, flags.LabelRunArguments)
    *_, run, training = from_values(groups, {"train_file": "train.jsonl", "output_dir": str(tmp_path), **given})
    assert settled(training, run, rows=rows).num_train_epochs == epochs


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
    training = settled(training, run)
    assert (training.load_best_model_at_end, training.metric_for_best_model, training.greater_is_better) == chosen


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--save_strategy=best", "--metric_for_best_model=f2"], ["f2", "precision"]),
        (["--save_strategy=no", "--metric_for_best_model=f2"], ["f2", "precision"]),
        (["--save_strategy=best", "--average_checkpoints=2"], ["--save_strategy", "--average_checkpoints 0"]),
        (
            ["--lr_scheduler_type=greedy", "--average_checkpoints=2"],
            ["--lr_scheduler_type greedy"],
        ),
        (["--save_strategy=best", "--eval_strategy=no"], ["--save_strategy best", "--eval_strategy"]),
        (["--save_strategy=no", "--early_stopping_patience=2"], ["--early_stopping_patience"]),
    ],
)
def test_arguments_that_cannot_choose_a_model_are_refused(
    parsed: Callable[..., Parsed], given: list[str], words: list[str]
) -> None:
    *_, run, training = parsed(TaggingTask, *given)
    with pytest.raises(UserError) as caught:
        settled(training, run)
    assert [word for word in words if word not in str(caught.value)] == []


def test_checkpoints_are_averaged_tensor_by_tensor(tmp_path: Path) -> None:
    torch.manual_seed(0)
    folders, saved = [], []
    for number in range(5):
        folder = tmp_path / f"checkpoint-{number}"
        folder.mkdir()
        weights = {"a": torch.randn(3, 2), "b": torch.randn(4).half(), "words": torch.tensor([number])}
        parts = [{"a": weights["a"]}, {"b": weights["b"], "words": weights["words"]}]
        for part, tensors in enumerate(parts):
            save_file(tensors, folder / f"model-{part}.safetensors")
        folders.append(folder)
        saved.append(weights)
    mean = average_checkpoints(folders)
    assert mean["words"].item() == 0  # that of the first named, the newest
    for name in ("a", "b"):
        assert mean[name].dtype == saved[0][name].dtype
        for place in np.ndindex(*mean[name].shape):
            expected = sum(weights[name][place].item() for weights in saved) / 5
            assert mean[name][place].item() == pytest.approx(expected, rel=1e-6 if name == "a" else 1e-3, abs=1e-6)
    assert average_checkpoints(folders[:1])["a"].equal(saved[0]["a"])


@pytest.mark.parametrize(
    "flag",
    [
        *("--dataloader_drop_last", "--eval_delay=1", "--neftune_noise_alpha=5", "--num_train_epochs=9", "--bf16"),
        *("--adam_beta2=0.9", "--warmup_steps=9", "--weight_decay=0.5", "--label_smoothing_factor=0.1"),
        *("--per_device_train_batch_size=3", "--gradient_accumulation_steps=3", "--max_steps=7", "--stride=2"),
        *("--lr_scheduler_type=cosine", "--optim=adafactor", "--max_grad_norm=2", "--class_weights=balanced"),
        *("--train_sampling_strategy=group_by_length", "--shuffle_length_groups=false", "--average_checkpoints=1"),
        *("--metric_for_best_model=accuracy", "--data_seed=7", "--adam_beta1=0.5", "--adam_epsilon=1"),
        *("--eval_strategy=no", "--save_strategy=no", "--learning_rate=1", "--load_best_model_at_end=false"),
    ],
)
def test_an_argument_that_changes_the_results_changes_the_config(parsed: Callable[..., Parsed], flag: str) -> None:
    assert run_config(*parsed(TaggingTask)) != run_config(*parsed(TaggingTask, flag))
