"""The training arguments of a run, final: which score chooses the best model, and which checkpoints are kept."""

import logging
import math
from copy import copy
from typing import Protocol

from transformers import PreTrainedModel, TrainingArguments
from transformers.trainer_utils import SaveStrategy, SchedulerType

from ..errors import UserError
from ..evaluation.metrics import LESS_IS_BETTER
from ..models.modeling_encoder import EncoderPreTrainedModel
from .arguments import RunArguments


logger = logging.getLogger(__name__)

# Of few rows.
MOST_EPOCHS = 20
_BY_SCORE = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


class Metrics(Protocol):
    """The metrics of a task: their names, and the one that chooses the best model."""

    task: str
    metric_for_best_model: str

    def score_names(self) -> list[str]:
        """The metrics besides the loss."""


def settle_training(
    training: TrainingArguments,
    run_args: RunArguments,
    metrics: Metrics,
    model: PreTrainedModel,
    rows: int,
    has_validation: bool,
) -> TrainingArguments:
    """
    The training arguments of a run, final: which score chooses the best model, what is kept, how processes work, and
    how many epochs of so many rows.
    """
    settled = copy(training)  # dataclasses.replace would choose by the loss for some flags (seen in 5.23)
    settled.logging_nan_inf_filter = False  # it would replace NaN by the mean of other losses
    if run_args.max_tokens_per_batch is not None:
        settled.train_sampling_strategy = "group_by_length"  # whose sampler knows the lengths
    if not has_validation:
        settled.eval_strategy = "no"
    if isinstance(model, EncoderPreTrainedModel) and settled.ddp_find_unused_parameters is None:
        settled.ddp_find_unused_parameters = False  # these models have none
    if training.do_train and run_args.fewest_updates:
        of_update = settled.train_batch_size * settled.gradient_accumulation_steps * settled.world_size
        epochs = min(math.ceil(run_args.fewest_updates * of_update / rows), MOST_EPOCHS)
        if epochs > settled.num_train_epochs:
            settled.num_train_epochs = epochs
            logger.info(f"{epochs} epochs, as {rows:,} rows are few updates; --num_train_epochs sets another number.")
    if training.do_train:
        _choose_best(settled, run_args, metrics)
    if run_args.average_checkpoints:
        _keep_for_average(settled, run_args)
    if run_args.early_stopping_patience is not None and not settled.load_best_model_at_end:
        raise UserError(
            "--early_stopping_patience keeps the best model: it needs a validation split, evaluation and saving at "
            "the same steps, and no --load_best_model_at_end false."
        )
    return settled


def _choose_best(settled: TrainingArguments, run_args: RunArguments, metrics: Metrics) -> None:
    """Set the score that chooses the best model and that a schedule follows, and its direction."""
    follows = settled.lr_scheduler_type in _BY_SCORE
    saves_best = settled.save_strategy == SaveStrategy.BEST
    if settled.eval_strategy == "no":
        if saves_best or follows:
            flag = "--save_strategy best" if saves_best else _schedule(settled)
            raise UserError(f"{flag} follows a score: it needs a validation split, and --eval_strategy epoch.")
        return
    if not run_args.takes_last and (saves_best or settled.eval_strategy == settled.save_strategy):
        settled.load_best_model_at_end = True
        differ = settled.save_strategy == "steps" and settled.eval_steps != settled.save_steps
        if differ and not run_args.average_checkpoints:
            raise UserError(
                f"--eval_steps {settled.eval_steps:g} and --save_steps {settled.save_steps:g} differ, so that the "
                f"best model may not be saved: write --eval_steps {settled.eval_steps:g} --save_steps "
                f"{settled.eval_steps:g}"
            )
    elif not (saves_best or follows) and settled.metric_for_best_model is None:
        return
    names = metrics.score_names()
    settled.metric_for_best_model = settled.metric_for_best_model or metrics.metric_for_best_model
    best = settled.metric_for_best_model.removeprefix("eval_")
    if best not in ["loss", *names]:
        raise UserError(f"--metric_for_best_model {best} is not measured: write {', '.join(['loss', *names])}.")
    settled.greater_is_better = best not in LESS_IS_BETTER  # Trainer takes None for "less is better"
    if follows:  # torch's own default is "min"
        mode = "max" if settled.greater_is_better else "min"
        settled.lr_scheduler_kwargs = {"mode": mode, **(settled.lr_scheduler_kwargs or {})}


def _schedule(settled: TrainingArguments) -> str:
    return f"--lr_scheduler_type {SchedulerType(settled.lr_scheduler_type).value}"


def _keep_for_average(settled: TrainingArguments, run_args: RunArguments) -> None:
    """Keep as many checkpoints as are averaged, and none for being the best."""
    if run_args.average_checkpoints < 0:
        raise UserError(f"--average_checkpoints {run_args.average_checkpoints} is given: 0 or more is allowed.")
    contradicting = {
        "--early_stopping_patience": run_args.early_stopping_patience is not None,
        _schedule(settled): settled.do_train and settled.lr_scheduler_type in _BY_SCORE,
        f"--save_strategy {SaveStrategy(settled.save_strategy).value}": settled.do_train
        and settled.save_strategy in (SaveStrategy.BEST, SaveStrategy.NO),
    }
    for flag in (flag for flag, is_given in contradicting.items() if is_given):
        raise UserError(f"{flag} contradicts --average_checkpoints: write --average_checkpoints 0, or omit it.")
    settled.load_best_model_at_end = False
    settled.metric_for_best_model = None  # Trainer would keep the best checkpoint in place of one of the last
    if settled.save_total_limit is not None:
        settled.save_total_limit = max(settled.save_total_limit, run_args.average_checkpoints)
