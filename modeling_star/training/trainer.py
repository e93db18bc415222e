"""The trainer of one run, its settings, and the average of its checkpoints."""

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import torch
from huggingface_hub import CommitInfo
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    Trainer,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput, SaveStrategy, SchedulerType, TrainOutput

from ..errors import UserError
from ..models.modeling_encoder import EncoderPreTrainedModel
from .arguments import RunArguments
from .checkpoints import follow_umask, last_checkpoint, seal_model, whole_checkpoints
from .guards import all_finite, is_finite, not_finite
from .hub import files_to_share, upload
from .model_card import CardContent, write_model_card
from .samplers import ShuffledLengthGroups


logger = logging.getLogger(__name__)

LESS_IS_BETTER = ("loss", "mse", "perplexity", "hidden_mse")
"""The metrics of all tasks that are better when lower."""

# What wrappers of modules add to the names of parameters.
_WRAPPER = re.compile(r"_(checkpoint_wrapped_module|fsdp_wrapped_module|orig_mod)\.")
_BY_SCORE = (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)

_SHARDS = torch.distributed.is_available()  # some builds of torch are for one process alone
if _SHARDS:
    from torch.distributed.tensor import DTensor, distribute_tensor


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """
    The mean of each tensor over checkpoints (section 6.1 of https://arxiv.org/abs/1706.03762), summed in float64.

    Args:
        folders: each with a model's safetensors files, the newest first. Tensors that are not floating point, such as
            a lexicon, are those of the newest.

    Raises:
        UserError: there is no folder, or the folders hold weights of different models.
    """
    if not folders:
        raise UserError("There is no whole checkpoint to average: write --save_strategy epoch, or steps.")
    sums: dict[str, Tensor] = {}
    first: dict[str, Tensor] = {}
    for folder in folders:
        weights: dict[str, Tensor] = {}
        for file in sorted(folder.glob("model*.safetensors")):
            weights |= load_file(file)
        first = first or weights
        shapes, known = ({name: x.shape for name, x in held.items()} for held in (weights, first))
        if not weights or shapes != known:
            raise UserError(f"{folder} holds other weights than {folders[0]}: name another --output_dir.")
        for name, tensor in weights.items():
            if tensor.is_floating_point():
                sums[name] = sums.get(name, 0) + tensor.double()
    return {name: (sums[name] / len(folders)).to(x.dtype) if name in sums else x for name, x in first.items()}


@torch.no_grad()
def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Copy whole weights into a model, sharded or not; tied weights follow."""
    state = model.state_dict()
    for name, tensor in weights.items():
        target = state[name]
        if _SHARDS and isinstance(target, DTensor):
            tensor = distribute_tensor(tensor.to(target.device), target.device_mesh, target.placements)
        target.copy_(tensor)


class EarlyStopping(EarlyStoppingCallback):
    """As in transformers, where a resumed run would count its patience from 0 again (seen in 5.23)."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        self.early_stopping_patience_counter = self.count_in(state)

    def count_in(self, state: TrainerState) -> int:
        """How many evaluations without an improvement a state has seen."""
        saved = state.stateful_callbacks.get(type(self).__name__, self.state())
        return saved["attributes"]["early_stopping_patience_counter"]


class FineTuner(Trainer):
    """
    Trainer with this package's model card, uploads without predictions and pickles, shuffled length-grouped batches,
    averaged checkpoints, and predictions in the data's order. It stops if a loss or a weight is NaN or infinite.

    Attributes:
        card: makes the content of the model card.
        shuffle_length_groups: whether length-grouped batches come in random order.
        averaged: number of the last checkpoints to average at the end of training; 0 for none.
        learning_rates: of parameters by name; the others have `args.learning_rate`.
    """

    card: Callable[[], CardContent] | None = None
    shuffle_length_groups = True
    averaged: int = 0
    _resumed: str | None = None
    learning_rates: Mapping[str, float] = MappingProxyType({})

    def train(self, resume_from_checkpoint: str | None = None, **kwargs: Any) -> TrainOutput:
        """
        As in Trainer, for a checkpoint's folder or `None`; afterwards the model has the mean weights of the last
        checkpoints if `averaged` is set.
        """
        self._resumed = resume_from_checkpoint
        output = super().train(resume_from_checkpoint, **kwargs)
        if self.averaged:
            self.accelerator.wait_for_everyone()  # the main process may still be writing the last one
            folders = list(islice(whole_checkpoints(Path(self.args.output_dir)), self.averaged))
            self.averaged = len(folders)
            load_weights(self.accelerator.unwrap_model(self.model), average_checkpoints(folders))
            logger.info(f"Averaged the weights of {', '.join(folder.name for folder in folders)}.")
        return output

    def set_initial_training_values(self, args: TrainingArguments, dataloader: DataLoader) -> tuple[Any, ...]:
        """
        As in Trainer, with no epoch to train if the training had ended that is resumed: Trainer takes one more step
        where that was in the middle of an epoch (seen in 5.23).
        """
        epochs, *others, max_steps = super().set_initial_training_values(args, dataloader)
        if self._resumed is not None:
            state = TrainerState.load_from_json(str(Path(self._resumed, "trainer_state.json")))
            patient = (each for each in self.callback_handler.callbacks if isinstance(each, EarlyStopping))
            stopped = any(each.count_in(state) >= each.early_stopping_patience for each in patient)
            epochs = 0 if stopped or state.global_step >= max_steps else epochs
        return (epochs, *others, max_steps)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """As in Trainer, with its groups of parameters split by their `learning_rates`."""
        optimizer = super().create_optimizer(model)
        if self.learning_rates:
            base = self.args.learning_rate
            rates = {
                parameter: self.learning_rates.get(_WRAPPER.sub("", name), base)
                for name, parameter in (self.model if model is None else model).named_parameters()
            }
            groups = []
            for group in optimizer.param_groups:
                # The rate of the first group is logged.
                for rate in sorted({rates[x] for x in group["params"]}, key=lambda rate: (rate != base, -rate)):
                    groups.append({**group, "params": [x for x in group["params"] if rates[x] == rate], "lr": rate})
            optimizer.param_groups = groups
        return optimizer

    def log(self, logs: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        """
        As in Trainer; the history omits numbers that JSON does not have, such as the norm of skipped gradients.

        Raises:
            UserError: a loss is NaN or infinite.
        """
        if reason := not_finite(logs):
            raise self._diverged(reason)
        super().log(logs, *args, **kwargs)
        history = self.state.log_history
        history[-1] = {name: value for name, value in history[-1].items() if is_finite(value)}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """
        As in Trainer.

        Raises:
            UserError: the loss or a prediction is NaN or infinite.
        """
        output = super().evaluation_loop(*args, **kwargs)
        if reason := not_finite(output.metrics, output.predictions):
            raise self._diverged(reason)
        return output

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """
        As in Trainer, with a manifest of the final model.

        Raises:
            UserError: a weight is NaN or infinite, so that no checkpoint and no result has such weights.
        """
        is_whole = all_finite(self.model.parameters()).to(self.args.device, torch.float32)
        if not self.accelerator.gather(is_whole[None]).all():  # of a sharded model each process has a part
            raise self._diverged("weights are NaN or infinite")
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            if output_dir is None:
                seal_model(folder)
            else:  # a checkpoint has its manifest when all of its files are written
                follow_umask(folder)

    def _diverged(self, reason: str) -> UserError:
        if not self.args.do_train:
            return UserError(f"The model cannot be used on these data ({reason}): check the labels, or name another.")
        newest = last_checkpoint(Path(self.args.output_dir))
        kept = f"{newest} is the last good checkpoint" if newest else "No checkpoint was written before"
        return UserError(
            f"The training diverged by step {self.state.global_step} ({reason}): check the labels, and write a lower "
            f"--learning_rate or --max_grad_norm 1. {kept}."
        )

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        """
        As in Trainer, with length-grouped batches in random order unless `shuffle_length_groups` is off. Batches that
        several processes read at once have similar lengths too, and the steps are those of one process.

        Trainer has no public way to set another order, and groups for one process (seen in 5.23).
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
        """As in Trainer, with the best paths of a CRF, which are scored (`CRFLoss.preprocess_logits`)."""
        if ignore_keys is None and getattr(self.model, "crf", None) is not None:
            ignore_keys = []
        return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        """As in Trainer, with all rows in their order."""
        with self._in_order():
            return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        """As in Trainer, with all rows in their order."""
        with self._in_order():
            return super().get_test_dataloader(test_dataset)

    @contextmanager
    def _in_order(self) -> Iterator[None]:
        """Read all rows in order: Trainer would sort and drop rows as in training, and predictions belong to rows."""
        args, self.args = self.args, copy(self.args)  # type: ignore[has-type]
        self.args.train_sampling_strategy, self.args.dataloader_drop_last = "sequential", False
        try:
            yield
        finally:
            self.args = args

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
        As in Trainer, but only the files of `files_to_share`, and always `blocking`.

        Returns:
            The commit; `None` on other processes than the main one.

        Raises:
            UserError: the Hub refuses, or cannot be reached.
        """
        self.save_model(_internal_call=True)  # each process holds a part of a sharded model
        self.create_model_card(**kwargs)
        if not self.is_world_process_zero():
            return None
        args, folder = self.args, Path(self.args.output_dir)
        return upload(
            folder,
            files_to_share(folder, examples=True),  # only those of --card_examples
            self.hub_model_id or args.hub_model_id or folder.resolve().name,
            private=args.hub_private_repo if private is None else private,
            message=commit_message or "End of training",
            token=token or args.hub_token,
            revision=revision or args.hub_revision,
        )


class Metrics(Protocol):
    """The metrics of a task: their names, and the one that chooses the best model."""

    task: str
    metric_for_best_model: str

    def score_names(self) -> list[str] | None:
        """The metrics besides the loss; `None` if they depend on the data."""


def settle_training(
    training: TrainingArguments,
    run_args: RunArguments,
    metrics: Metrics,
    model: PreTrainedModel,
    has_validation: bool,
) -> TrainingArguments:
    """
    The training arguments of a run, final: which score chooses the best model, what is kept, how processes work.

    Args:
        training: what the user and the script set; not changed.
        run_args: the script's arguments of the run.
        metrics: of the task.
        model: the model to train.
        has_validation: whether there is a labelled split to score during training.

    Raises:
        UserError: the metric is unknown, or a model cannot be chosen for lack of evaluations or checkpoints.
    """
    settled = copy(training)  # dataclasses.replace would choose by the loss for some flags (seen in 5.23)
    settled.logging_nan_inf_filter = False  # it would replace NaN by the mean of other losses
    if not has_validation:
        settled.eval_strategy = "no"
    if isinstance(model, EncoderPreTrainedModel) and settled.ddp_find_unused_parameters is None:
        settled.ddp_find_unused_parameters = False  # these models have none
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
    """
    Set the score that chooses the best model and that a schedule follows, and its direction.

    Raises:
        UserError: the score is unknown, nothing is evaluated, or evaluation and saving happen at different steps.
    """
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
    if names is not None and best not in ["loss", *names]:
        raise UserError(f"--metric_for_best_model {best} is not measured: write {', '.join(['loss', *names])}.")
    settled.greater_is_better = best not in LESS_IS_BETTER  # Trainer takes None for "less is better"
    if follows:  # torch's own default is "min"
        mode = "max" if settled.greater_is_better else "min"
        settled.lr_scheduler_kwargs = {"mode": mode, **(settled.lr_scheduler_kwargs or {})}


def _schedule(settled: TrainingArguments) -> str:
    return f"--lr_scheduler_type {SchedulerType(settled.lr_scheduler_type).value}"


def _keep_for_average(settled: TrainingArguments, run_args: RunArguments) -> None:
    """
    Keep as many checkpoints as are averaged, and none for being the best.

    Raises:
        UserError: the number is negative, or other arguments follow a score or keep no checkpoints.
    """
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
