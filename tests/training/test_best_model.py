"""The final training arguments: which score chooses the best model, and which checkpoints are kept."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from task_samples import Parsed, flags
from transformers import TrainingArguments

from modeling_star.errors import UserError
from modeling_star.evaluation.task_metrics import metrics_for
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.tasks.sequence_classification import ClassificationTask
from modeling_star.tasks.token_classification import TaggingTask
from modeling_star.training.settled_arguments import settle_training


def settled(
    training: TrainingArguments,
    run: flags.RunArguments | None = None,
    name: str = "tagging",
    labels: tuple[str, ...] = ("O", "B-PER"),
    has_validation: bool = True,
) -> TrainingArguments:
    """The final arguments, for a task with these metrics."""
    metrics, model = metrics_for(name, labels), torch.nn.Linear(1, 1)
    before = training.to_dict()
    final = settle_training(training, run or flags.RunArguments(), metrics, model, has_validation)  # type: ignore[arg-type]
    assert training.to_dict() == before, "the arguments of the user are not changed"
    return final


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


@pytest.mark.parametrize(("metric", "greater"), [("mse", False), ("loss", False), ("pearson", True)])
@pytest.mark.parametrize("strategy", ["epoch", "best"])
def test_the_direction_of_a_score_is_known(
    parsed: Callable[..., Parsed], metric: str, greater: bool, strategy: str
) -> None:
    given = (f"--metric_for_best_model={metric}", f"--save_strategy={strategy}")
    training = settled(parsed(ClassificationTask, *given)[-1], None, "regression", ())
    assert training.greater_is_better is greater


def test_less_perplexity_is_better(task_of: Callable[..., Any], parsed: Callable[..., Parsed]) -> None:
    *_, run, training = parsed(PretrainingTask, "--metric_for_best_model=perplexity")
    model: Any = torch.nn.Linear(1, 1)
    assert settle_training(training, run, task_of(PretrainingTask).metrics, model, True).greater_is_better is False


@pytest.mark.parametrize(
    ("metric", "given", "mode"), [("f1", None, "max"), ("loss", None, "min"), ("f1", '{"mode": "min"}', "min")]
)
def test_a_schedule_that_follows_a_score_knows_its_direction(
    parsed: Callable[..., Parsed], metric: str, given: str | None, mode: str
) -> None:
    arguments = [f"--metric_for_best_model={metric}", "--lr_scheduler_type=reduce_lr_on_plateau"]
    arguments += [f"--lr_scheduler_kwargs={given}"] if given else []
    training = settled(parsed(TaggingTask, *arguments)[-1])
    assert training.lr_scheduler_kwargs == {"mode": mode}


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


@pytest.mark.parametrize("flag", ["--save_strategy=best", "--lr_scheduler_type=reduce_lr_on_plateau"])
def test_without_validation_there_is_no_score_to_follow(parsed: Callable[..., Parsed], flag: str) -> None:
    *_, run, training = parsed(TaggingTask, flag)
    with pytest.raises(UserError, match="validation split"):
        settled(training, run, has_validation=False)


@pytest.mark.parametrize(("limit", "kept"), [(None, None), (2, 4), (9, 9)])
def test_as_many_checkpoints_are_kept_as_are_averaged(
    parsed: Callable[..., Parsed], limit: int | None, kept: int | None
) -> None:
    *_, run, training = parsed(TaggingTask, "--average_checkpoints=4")
    training.save_total_limit = limit
    assert settled(training, run).save_total_limit == kept
