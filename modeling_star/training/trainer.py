"""The trainer of one run: what it reads, what chooses the best model, its loss, and the average of its checkpoints."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from datasets import Dataset
from huggingface_hub import CommitInfo
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import SaveStrategy, SchedulerType, TrainOutput

from ..errors import UserError
from ..models.modeling_encoder import EncoderPreTrainedModel
from ..models.modeling_encoder_decoder import TextEncoderDecoderModel
from .checkpoints import whole_checkpoints
from .hub import files_to_share, upload
from .losses import CRFLoss, MetricsWithLoss, TaskLoss, class_weights
from .model_card import CardContent, write_model_card
from .samplers import ShuffledLengthGroups


logger = logging.getLogger(__name__)


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """
    The mean of each tensor over checkpoints (section 6.1 of https://arxiv.org/abs/1706.03762), added up in float64.

    Args:
        folders: each with a model's safetensors files, in one or several parts; the newest first. What is not
            floating point, such as a lexicon, is that of the newest.

    Raises:
        UserError: there is no folder, a folder has no weights, or they are not those of the same model.
    """
    if not folders:
        raise UserError(
            "There is no whole checkpoint to average: write --save_strategy epoch, or steps with --save_steps"
        )
    sums: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for folder in folders:
        weights: dict[str, Tensor] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            weights |= load_file(file)
        if not first:
            first = weights
        shapes, known = ({name: x.shape for name, x in held.items()} for held in (weights, first))
        if not weights or shapes != known:
            raise UserError(
                f"{folder} holds no weights of the model that {folders[0]} holds: name another --output_dir, so that "
                "checkpoints of one run stand by themselves."
            )
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (sums[name] / len(folders)).to(x.dtype) if name in sums else x for name, x in first.items()}


_SHARDS = torch.distributed.is_available()  # some builds of torch are for one process alone
if _SHARDS:
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
    from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put whole weights into a model, sharded or not; what it ties to them follows."""
    own = model.state_dict()
    for name, tensor in weights.items():
        mine = own[name]
        if _SHARDS and isinstance(mine, DTensor):
            tensor = distribute_tensor(tensor.to(mine.device), mine.device_mesh, mine.placements)
        mine.copy_(tensor)


def generate_options(model: nn.Module) -> dict[str, Any]:
    """
    Options that the `generate` of a sharded model needs; none for another one.

    `generate` reads an encoder's parameters outside the model's forward, where they are shards: it is registered as a
    forward of its own. All processes gather in each step, so that none may end before the others; transformers sees to
    that by itself for the first version of FSDP alone (seen in 5.23).
    """
    if not (_SHARDS and isinstance(model, FSDPModule)):
        return {}
    if "generate" not in vars(model):
        register_fsdp_forward_method(model, "generate")
    return {"synced_gpus": True}


if TYPE_CHECKING:
    from ..tasks.base import Task


LESS_IS_BETTER = ("loss", "mse", "perplexity")
"""Of all that tasks measure."""

_BY_SCORE = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


class FineTuner(Trainer):
    """
    Trainer whose model card is ours, that uploads no predictions and no pickles, that reads groups of like length in
    random order when it trains, and that predicts in the data's order.

    Attributes:
        averaged: how many of the last checkpoints are averaged when training ends; 0: none.
    """

    card: Callable[[], CardContent] | None = None
    shuffle_length_groups = True
    averaged: int = 0

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """As in Trainer; then the mean of the last checkpoints takes the model's place, where it is asked for."""
        output = super().train(*args, **kwargs)
        if self.averaged:
            self.accelerator.wait_for_everyone()  # the main process may still be writing the last one
            folders = list(whole_checkpoints(Path(self.args.output_dir)))[: self.averaged]
            self.averaged = len(folders)
            load_weights(self.accelerator.unwrap_model(self.model), average_checkpoints(folders))
            logger.info(
                f"The weights are the mean of {len(folders)} checkpoints: {', '.join(f.name for f in folders)}"
            )
        return output

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        """
        As in Trainer, batches of like length in random order unless `shuffle_length_groups` is off; those that several
        processes read at once are alike too, so that none waits for another, and the steps are those of one process.

        Trainer offers no public way to another order, and groups for one process (seen in 5.23).
        """
        sampler = super()._get_train_sampler(train_dataset)
        if self.shuffle_length_groups and isinstance(sampler, LengthGroupedSampler):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            sampler.batch_size *= self.args.world_size
            return ShuffledLengthGroups(sampler, seed, lambda: int(self.state.epoch or 0))
        return sampler

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """As in Trainer, with the best paths of a CRF, which are what is scored (`CRFLoss.keep`)."""
        if ignore_keys is None and getattr(self.model, "crf", None) is not None:
            ignore_keys = []
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """As in Trainer, rows in their order."""
        with self._in_order():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """As in Trainer, rows in their order."""
        with self._in_order():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """
        Trainer would sort by length, and leave the last rows out, here too where training does; and predictions
        belong to rows by their place.
        """
        asked = self.args.train_sampling_strategy, self.args.dataloader_drop_last
        self.args.train_sampling_strategy, self.args.dataloader_drop_last = "sequential", False
        try:
            yield
        finally:
            self.args.train_sampling_strategy, self.args.dataloader_drop_last = asked

    def log_metrics(self, split: str, metrics: dict[str, float]) -> None:
        """As in Trainer, without the time that a model took before it was first evaluated, which is no score."""
        told = {name: value for name, value in metrics.items() if not name.endswith("_model_preparation_time")}
        super().log_metrics(split, told)

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Write README.md with the numbers measured so far."""
        if self.is_world_process_zero() and self.card is not None:
            write_model_card(Path(self.args.output_dir), self.card())

    def push_to_hub(
        self,
        commit_message: str | None = "End of training",
        blocking: bool = True,
        token: str | None = None,
        revision: str | None = None,
        private: bool | None = None,
        **kwargs: Any,
    ) -> CommitInfo | None:
        """
        As in Trainer, but only what `files_to_share` names, and always to the end (`blocking`).

        Returns:
            The commit; `None` on other processes than the main one.

        Raises:
            UserError: the Hub refuses, or cannot be reached.
        """
        self.save_model(_internal_call=True)  # all processes hold a part of a sharded model
        self.create_model_card(**kwargs)
        if not self.is_world_process_zero():
            return None
        args, folder = self.args, Path(self.args.output_dir)
        return upload(
            folder,
            files_to_share(folder),
            self.hub_model_id or args.hub_model_id or folder.resolve().name,
            private=args.hub_private_repo if private is None else private,
            message=commit_message or "End of training",
            token=token or args.hub_token,
            revision=revision or args.hub_revision,
        )


def make_trainer(
    task: "Task",
    training: TrainingArguments,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    features: dict[str, Dataset],
) -> FineTuner:
    """The trainer, choosing the best model by the task's score where there is a validation split."""
    validation = labelled_validation(features)
    prepared = prepare_training(task, training, model, validation is not None)
    metrics = task.metrics if validation is None else task.metrics_of("validation", validation)
    loss = loss_of(task, model, prepared.smoothing, weighted=training.do_train)
    training.label_names = ["labels"]  # Trainer would look for start_positions at a model that answers questions
    return task.trainer_class(
        model=model,
        args=training,
        train_dataset=features.get("train") if training.do_train else None,
        eval_dataset=validation,
        processing_class=tokenizer,
        data_collator=task.collator(tokenizer),
        compute_metrics=MetricsWithLoss(metrics),
        preprocess_logits_for_metrics=loss.keep,
        compute_loss_func=None if isinstance(loss, CRFLoss) else loss,
        callbacks=prepared.callbacks,
    )


def labelled_validation(features: dict[str, Dataset]) -> Dataset | None:
    """The validation split, where it has labels to score by."""
    validation = features.get("validation")
    return validation if validation is not None and "labels" in validation.column_names else None


class TrainerSetup(NamedTuple):
    """
    What `prepare_training` leaves to a trainer that is made by hand.

    Args:
        callbacks: those that the arguments ask for.
        smoothing: the label smoothing that was asked for, which the trainer's own loss is to do.
    """

    callbacks: list[TrainerCallback]
    smoothing: float


def prepare_training(
    task: "Task", training: TrainingArguments, model: PreTrainedModel, has_validation: bool
) -> TrainerSetup:
    """
    Settle transformers' arguments, in place: what chooses the best model, how processes work together, whose loss
    smooths.

    Args:
        task: with the script's arguments and the metrics.
        training: what is changed.
        model: the one to be trained.
        has_validation: whether there is a split to score while training.

    Raises:
        UserError: the metric is unknown, or a model cannot be chosen for lack of evaluations or checkpoints.
    """
    if not has_validation:
        training.eval_strategy = "no"
    if training.do_train:
        choose_best(task, training)
    own = isinstance(model, (EncoderPreTrainedModel, TextEncoderDecoderModel))
    if training.ddp_find_unused_parameters is None and own:
        training.ddp_find_unused_parameters = False  # these models have none: no search at every step
    if task.run_args.average_checkpoints:
        keep_for_average(task.run_args, training)
    smoothing = float(training.label_smoothing_factor)
    training.label_smoothing_factor = 0.0  # Trainer's own smoothing would stand aside for a loss that is given
    if task.run_args.early_stopping_patience is None:
        return TrainerSetup([], smoothing)
    if not training.load_best_model_at_end:
        if task.run_args.takes_last:
            raise UserError(
                "--early_stopping_patience keeps the best model: leave --load_best_model_at_end false away, or it."
            )
        raise UserError("--early_stopping_patience needs a validation split, and eval and save at the same steps.")
    return TrainerSetup([EarlyStoppingCallback(task.run_args.early_stopping_patience)], smoothing)


def choose_best(task: "Task", training: TrainingArguments) -> None:
    """
    Set the score that chooses the best model, and that a schedule follows, and which way it is better.

    Raises:
        UserError: the score is unknown, or nothing is evaluated, or evaluated at other steps than saved.
    """
    follows = training.lr_scheduler_type in _BY_SCORE
    saves_best = training.save_strategy == SaveStrategy.BEST
    if training.eval_strategy == "no":
        if saves_best or follows:
            flag = "--save_strategy best" if saves_best else _schedule(training)
            raise UserError(f"{flag} follows a score: it needs a validation split, and --eval_strategy epoch, say.")
        return
    if not task.run_args.takes_last and (saves_best or training.eval_strategy == training.save_strategy):
        training.load_best_model_at_end = True
        apart = training.save_strategy == "steps" and training.eval_steps != training.save_steps
        if apart and not task.run_args.average_checkpoints:
            raise UserError(
                f"--eval_steps {training.eval_steps:g} and --save_steps {training.save_steps:g} differ, and the best "
                f"model may be one that is not saved: write --eval_steps {training.eval_steps:g} --save_steps "
                f"{training.eval_steps:g}"
            )
    elif not (saves_best or follows) and training.metric_for_best_model is None:
        return
    training.metric_for_best_model = training.metric_for_best_model or task.metrics.metric_for_best_model
    best = training.metric_for_best_model.removeprefix("eval_")
    check_metric(task.metrics, best)
    # Trainer takes None for "less is better".
    training.greater_is_better = best not in LESS_IS_BETTER
    if follows:  # torch's own default is "min"
        mode = "max" if training.greater_is_better else "min"
        training.lr_scheduler_kwargs = {"mode": mode, **(training.lr_scheduler_kwargs or {})}


def _schedule(training: TrainingArguments) -> str:
    return f"--lr_scheduler_type {SchedulerType(training.lr_scheduler_type).value}"


def keep_for_average(run_args: Any, training: TrainingArguments) -> None:
    """
    Keep as many checkpoints as are to be averaged, and take the average in the place of the best one.

    Raises:
        UserError: less than no checkpoint, what needs a score or keeps the best one, or a run without checkpoints.
    """
    if run_args.average_checkpoints < 0:
        raise UserError(f"--average_checkpoints {run_args.average_checkpoints} is given: 0 or more is allowed.")
    if run_args.early_stopping_patience is not None:
        raise UserError(
            "--early_stopping_patience keeps the best model, and --average_checkpoints takes the last ones: write "
            "--average_checkpoints 0"
        )
    if training.do_train and training.lr_scheduler_type in _BY_SCORE:
        raise UserError(
            f"{_schedule(training)} follows a score, and --average_checkpoints chooses by none: write "
            "--average_checkpoints 0, or another schedule."
        )
    if training.do_train and training.save_strategy == SaveStrategy.BEST:
        raise UserError(
            "--save_strategy best keeps the best model, and --average_checkpoints takes the last ones: write "
            "--save_strategy epoch, or --average_checkpoints 0"
        )
    if training.do_train and training.save_strategy == "no":
        raise UserError("--average_checkpoints needs checkpoints: write --save_strategy epoch, or 0 to average none.")
    training.load_best_model_at_end = False
    training.metric_for_best_model = None  # Trainer would keep the best one in the place of one of the last
    if training.save_total_limit is not None:
        training.save_total_limit = max(training.save_total_limit, run_args.average_checkpoints)


def check_metric(metrics: Any, name: str) -> None:
    """
    Trainer would say so only after the first evaluation.

    Raises:
        UserError: there is no such metric.
    """
    known = metrics.score_names()
    if known is not None and name not in ["loss", *known]:
        raise UserError(f"--metric_for_best_model {name} is unknown: this task has loss, {', '.join(known)}.")


def loss_of(task: "Task", model: PreTrainedModel, smoothing: float, weighted: bool) -> TaskLoss:
    """
    The loss of a task, with class weights and label smoothing where they are asked for.

    Args:
        task: with the script's arguments, the data and the metrics.
        model: whether it has a CRF is looked at.
        smoothing: label smoothing.
        weighted: whether class weights are used; they come from the training split, and a run that only scores has
            the plain loss.

    Raises:
        UserError: they are asked for, and the task is not one class for each text or token by itself.
    """
    given, problem = task.run_args.class_weights, task.metrics.task
    has_crf = getattr(model, "crf", None) is not None
    if has_crf or problem not in ("entities", "tokens", "single_label_classification"):
        for flag, used in (("--class_weights", given != "none"), ("--label_smoothing_factor", smoothing > 0)):
            if used:
                what = "use_crf" if has_crf else problem
                raise UserError(f"{flag} works with one class for each text or token, not with {what}.")
        return CRFLoss() if has_crf else task.loss_class(problem)
    counts = task.data.counts("train") if given == "balanced" and weighted else {}
    weights = class_weights(given, tuple(task.data.label_list), counts) if weighted else None
    return TaskLoss(problem, weights, smoothing)
