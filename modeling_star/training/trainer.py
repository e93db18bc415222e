"""The trainer of one run: its learning rates, the order of its batches, the average of its checkpoints."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
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
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import BatchRebalanceSampler, LengthGroupedSampler
from transformers.trainer_utils import EvalLoopOutput, TrainOutput

from ..errors import UserError
from ..models.configuration_encoder import EncoderConfig
from ..models.embeddings import TokenEmbeddings
from .checkpoints import follow_umask, last_checkpoint, seal_model, whole_checkpoints
from .guards import all_finite, is_finite, not_finite
from .losses import TaskLoss


logger = logging.getLogger(__name__)

# What wrappers of modules add to the names of parameters.
_WRAPPER = re.compile(r"_(checkpoint_wrapped_module|fsdp_wrapped_module|orig_mod)\.")
_LAYER = re.compile(r"(.*?\.\d+)\.")
_SHARDS = torch.distributed.is_available()  # some builds of torch are for one process alone
if _SHARDS:
    from torch.distributed.tensor import DTensor, distribute_tensor


# ------ learning rates


def separate_rates(task: Any, training: TrainingArguments, model: PreTrainedModel) -> dict[str, float]:
    """The learning rates of a model's parameters by name, where the arguments set others than --learning_rate."""
    rate, decay = task.run_args.encoder_learning_rate, task.run_args.layerwise_lr_decay
    if (rate, decay) == (None, None):
        return {}
    names = pretrained_parameters(model, task.new_parameters)
    return learning_rates(names, training.learning_rate if rate is None else rate, 1.0 if decay is None else decay)


def pretrained_parameters(model: PreTrainedModel, new: Iterable[str] | None) -> list[str]:
    """Names of the pretrained parameters of a model: all but `new`; of a new model (`None`) those of its backbone."""
    names = [name for name, _ in model.named_parameters()]
    if new is not None:
        new = set(new)
        return [name for name in names if name not in new]
    inside = tuple(
        f"{name}.backbone."
        for name, module in model.named_modules()
        if isinstance(module, TokenEmbeddings) and module.backbone is not None
    )
    return [name for name in names if name.startswith(inside)]


def learning_rates(names: Iterable[str], rate: float, decay: float = 1.0) -> dict[str, float]:
    """
    The learning rate of each pretrained parameter, by names in the model's order (embeddings, layers from the bottom
    up, a head): `rate` in the top layer, times `decay` for each layer below it. What follows a layer, such as a
    pooler, belongs to it.
    """
    depths: dict[str, int] = {}
    layers: set[str] = set()
    for name in names:
        layers.update(_LAYER.findall(name)[:1])
        depths[name] = len(layers)
    return {name: rate * decay ** (len(layers) - depth) for name, depth in depths.items()}


# ------ the order of examples


class ShuffledLengthGroups(Sampler[int]):
    """
    Length-grouped batches of transformers' sampler in random order, which follows from the seed and the epoch alone,
    so that all processes, and a resumed run, have the same.

    transformers' own order runs from long to short within each 50 batches (seen in 5.23). If the length is related to
    the label, training then sees one label for many steps: on ChnSentiCorp, whose second longest tenth is positive in
    89 of 100 texts, the loss stays above chance for most of the first epoch. `epoch` is a function, as `set_epoch`
    does not reach a sampler in an epoch that several processes resume midway (accelerate 1.15).
    """

    def __init__(self, groups: LengthGroupedSampler, seed: int, epoch: Callable[[], int]):
        self.groups = groups
        self.seed = seed
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self.groups)

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed + self.epoch())
        self.groups.generator = generator
        *full, last = torch.tensor(list(self.groups)).split(self.groups.batch_size)
        # The last batch may be short; elsewhere it would shift the borders of the following batches.
        for group in torch.randperm(len(full), generator=generator).tolist():
            yield from full[group].tolist()
        yield from last.tolist()


class TokenBatches(BatchRebalanceSampler):
    """
    Batches of texts of like length, each of at most `max_tokens`, padding included, unless one text has more, and of
    at most `max_texts`.

    Lengths are rounded up to powers of 1.1. Texts of one rounded length change their batches with every epoch, but the
    sorted lengths, and so the ends of the batches, never do: all epochs have as many batches, as Trainer and a resumed
    run expect. The order follows from the seed and the epoch alone, as in `ShuffledLengthGroups`.

    It is a `BatchRebalanceSampler` because Trainer takes one in place of batches of one size (seen in transformers
    5.23); nothing of its code is used.
    """

    def __init__(self, lengths: Sequence[int], max_tokens: int, max_texts: int, seed: int, epoch: Callable[[], int]):
        self.rounded = 1.1 ** np.ceil(np.log(np.maximum(lengths, 1)) / np.log(1.1))
        self.seed = seed
        self.current_epoch = epoch
        longest_first = np.sort(self.rounded)[::-1]
        starts = [0]
        while starts[-1] < len(lengths):
            texts = int(max_tokens / longest_first[starts[-1]])
            starts.append(starts[-1] + min(max(texts, 1), max_texts))
        self.starts = starts[:-1]

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[list[int]]:
        random = np.random.default_rng([self.seed, self.current_epoch()])
        order = random.permutation(len(self.rounded))
        order = order[np.argsort(-self.rounded[order], kind="stable")]
        batches = np.split(order, self.starts[1:])
        for number in random.permutation(len(batches)):
            yield batches[number].tolist()


# ------ averages


def average_checkpoints(folders: Sequence[Path]) -> dict[str, Tensor]:
    """
    The mean of each tensor over checkpoints (section 6.1 of https://arxiv.org/abs/1706.03762), summed in float64.
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


# ------ the trainer


def uncalibrated(model: PreTrainedModel) -> None:
    """Take back what an earlier training has fitted: the model is trained further."""
    if isinstance(model.config, EncoderConfig):
        model.config.calibration_temperature = 1.0


@contextmanager
def learnt_logits(model: nn.Module, is_wanted: bool) -> Iterator[None]:
    """Have a model that is calibrated give the logits that it has learnt."""
    config = getattr(model, "config", None)
    temperature = getattr(config, "calibration_temperature", 1.0)
    if temperature == 1 or not is_wanted:
        yield
        return
    config.calibration_temperature = 1.0
    try:
        yield
    finally:
        config.calibration_temperature = temperature


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


class StarTrainer(Trainer):
    """
    Trainer with shuffled length-grouped batches, averaged checkpoints, learning rates of parts, and predictions in the
    data's order. It stops if a loss or a weight is NaN or infinite.

    Attributes:
        loss: by which predictions are held and splits are scored.
        shuffle_length_groups: whether length-grouped batches come in random order.
        max_tokens_per_batch: bound of the tokens of a training batch, padding included; `None` for none.
        averaged: number of the last checkpoints to average at the end of training; 0 for none.
        learning_rates: of parameters by name; the others have `args.learning_rate`.
    """

    loss: TaskLoss | None = None
    shuffle_length_groups = True
    max_tokens_per_batch: int | None = None
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
        """As in Trainer; a UserError for a loss that is NaN or infinite. The history omits other such numbers."""
        if reason := not_finite(logs):
            raise self._diverged(reason)
        super().log(logs, *args, **kwargs)
        history = self.state.log_history
        history[-1] = {name: value for name, value in history[-1].items() if is_finite(value)}

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """As in Trainer; a UserError where the loss or a prediction is NaN or infinite."""
        output = super().evaluation_loop(*args, **kwargs)
        if reason := not_finite(output.metrics, output.predictions):
            raise self._diverged(reason)
        return output

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in Trainer, with a manifest and no pickle of the arguments; a UserError for weights NaN or infinite."""
        is_whole = all_finite(self.model.parameters()).to(self.args.device, torch.float32)
        if not self.accelerator.gather(is_whole[None]).all():  # of a sharded model each process has a part
            raise self._diverged("weights are NaN or infinite")
        super().save_model(output_dir, _internal_call)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)  # nothing reads it, in a checkpoint neither
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
        several processes read at once have similar lengths too, and the steps are those of one process. With
        `max_tokens_per_batch` the sampler returns whole batches.

        Trainer has no public way to set another order, and groups for one process (seen in 5.23).
        `get_train_dataloader` makes sure that Trainer still calls this.
        """
        sampler = super()._get_train_sampler(train_dataset)
        self._chose_order = True
        if not isinstance(sampler, LengthGroupedSampler):
            return sampler
        args: TrainingArguments = self.args  # type: ignore[has-type]
        seed = args.seed if args.data_seed is None else args.data_seed

        def epoch() -> int:
            return int(self.state.epoch or 0)

        if self.max_tokens_per_batch is not None:
            return TokenBatches(sampler.lengths, self.max_tokens_per_batch, args.train_batch_size, seed, epoch)
        if self.shuffle_length_groups:
            sampler.batch_size *= args.world_size
            return ShuffledLengthGroups(sampler, seed, epoch)
        return sampler

    def get_train_dataloader(self) -> DataLoader:
        """As in Trainer; a RuntimeError where that has an order of its own, another one than that of earlier runs."""
        self._chose_order = False
        loader = super().get_train_dataloader()
        if not self._chose_order:
            raise RuntimeError("This version of transformers orders batches otherwise: install transformers 5.23.")
        return loader

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """
        No mean loss; what `loss` holds of each row, with labels followed by its exact losses `[b, 2]`; the labels.
        Without a `loss` as in Trainer. Of labelled rows logits are as learnt, not divided by the temperature.
        """
        if self.loss is None:
            return super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        inputs = self._prepare_inputs(inputs)
        labels = inputs.get("labels")
        if not self.loss.in_model:
            inputs.pop("labels", None)
        with torch.no_grad(), self.compute_loss_context_manager(), learnt_logits(self.model, labels is not None):
            outputs = model(**inputs)
        predictions = self.loss.predictions(outputs)
        return None, predictions if labels is None else (predictions, self.loss.of_outputs(outputs, labels)), labels

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
