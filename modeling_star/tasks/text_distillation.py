"""The task of run_mlm.py with a teacher: its last hidden states, learned on running text."""

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import (
    AutoModel,
    AutoTokenizer,
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainingArguments,
)

from ..data.labels import IGNORE_INDEX
from ..errors import UserError
from ..loading import check_whole
from ..models.modeling_encoder import longest_input
from ..publish.model_card import shown_teacher
from ..training.arguments import ModelArguments, RunArguments, TextArguments
from ..training.build import build_parts
from ..training.distillation import PROJECTION, recorded_states
from ..training.losses import TaskLoss
from ..training.named_models import loading
from ..training.trainer import StarTrainer
from .masked_lm import (
    MaskedScores,
    Pretrainer,
    PretrainingTask,
    chosen_logits,
    first_documents,
    masked_values,
    sums_by_block,
)


_POOLER = r"(^|\.)pooler\."


@dataclass(frozen=True)
class HiddenScores(MaskedScores):
    """
    The mean squared error of hidden states over all tokens of a split, and the loss; with `alpha` also the scores of
    masked tokens.

    Attributes:
        alpha: weight of the masked-LM loss.
    """

    alpha: float = 0.0

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Scores from predictions `[blocks, 5]`, see `TextDistiller.sums`."""
        sums = np.asarray(prediction.predictions, dtype=np.float64)
        error, count = sums[:, :2].sum(0)
        mse = float(error / max(count, 1))
        masked = super().__call__(EvalPrediction(sums[:, 2:], None)) if self.alpha else {"loss": 0.0}
        return {"hidden_mse": mse, **masked, "loss": mse + self.alpha * masked["loss"]}

    def score_names(self) -> list[str]:
        """The names of the scores besides the loss."""
        return ["hidden_mse", *(super().score_names() if self.alpha else [])]


class TextDistiller(Pretrainer):
    """
    `Pretrainer` of a model that learns a teacher's last hidden states: the loss is their mean squared error over all
    tokens, special ones included, plus `alpha` times the masked-LM loss. Without the latter nothing is masked.

    Attributes:
        teacher: see `learn_from`.
        alpha: weight of the masked-LM loss.
        projection: from the student's width to the teacher's, if they differ; a part of the model, and of its
            checkpoints, during training only.
    """

    teacher: PreTrainedModel
    alpha: float = 0.0
    projection: nn.Linear | None = None

    def learn_from(self, teacher: PreTrainedModel, alpha: float) -> None:
        """
        Set the teacher, before training.

        Args:
            teacher: takes the inputs of the model.
            alpha: weight of the masked-LM loss; at 0 the model's head is not trained.
        """
        self.teacher, self.alpha = teacher.eval().to(self.args.device), alpha
        if not alpha:
            encoder = set(self.model.base_model.parameters())
            for parameter in set(self.model.parameters()) - encoder:
                parameter.requires_grad_(False)
        widths = self.model.config.hidden_size, teacher.config.hidden_size
        if len(set(widths)) > 1:
            self.projection = nn.Linear(*widths).to(self.args.device)
            self.model.add_module(PROJECTION, self.projection)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in `Pretrainer`; the projection leaves the model afterwards."""
        output = super().train(*args, **kwargs)
        if self.projection is not None:
            delattr(self.accelerator.unwrap_model(self.model), PROJECTION)
        return output

    def sums(self, model: nn.Module, inputs: dict[str, Tensor], loss: TaskLoss) -> Tensor:
        """
        The sums of each block of a batch.

        Args:
            model: the student, wrapped or not.
            inputs: a batch of blocks `[B, n]`.
            loss: of masked tokens.

        Returns:
            `[B, 5]`: mean squared errors, number of tokens; losses of masked tokens, their number, those predicted
            right, all 0 without `alpha`.
        """
        if not self.alpha:
            labels = inputs["labels"]
            text = torch.where(labels == IGNORE_INDEX, inputs["input_ids"], labels)
            inputs = {**inputs, "input_ids": text, "labels": torch.full_like(labels, IGNORE_INDEX)}
        rows, blocks = self._documents(inputs)
        labels, tokens = rows.pop("labels"), rows["attention_mask"].bool()
        masked, count = labels != IGNORE_INDEX, len(inputs["labels"])
        with torch.no_grad():
            target = self.teacher(**rows)[0][tokens]
        with self._logits_at(masked), recorded_states(self.model.base_model) as recorded:
            logits = chosen_logits(model(**rows)["logits"], masked)
        states = recorded[0][tokens]
        if self.projection is not None:
            states = self.projection(states)
        errors = (states.float() - target.float()).square().mean(-1)
        hidden = sums_by_block(torch.stack([errors, torch.ones_like(errors)], dim=1), tokens, blocks, count)
        return torch.cat(
            [hidden, sums_by_block(masked_values(loss, logits, labels[masked]), masked, blocks, count)], dim=1
        )

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Tensor | None]:
        """As in Trainer, with the numbers `[2]` of tokens and masked tokens in place of the number of labels."""
        batches, _ = super().get_batch_samples(*args, **kwargs)
        if not batches:
            return batches, None
        counts = [
            torch.stack([(batch["sequence_ids"] > 0).sum(), (batch["labels"] != IGNORE_INDEX).sum()])
            for batch in batches
        ]
        total = torch.stack(counts).sum(0).to(self.args.device)
        return batches, self.accelerator.reduce(total, "sum") if self.args.average_tokens_across_devices else total

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """The part of this batch of the loss over the tokens of an update."""
        error, count, masked_loss, masked_count, _ = self.sums(model, inputs, self.compute_loss_func).sum(0)
        if isinstance(num_items_in_batch, Tensor):
            count, masked_count = num_items_in_batch
        loss = error / count.clamp(min=1)
        if self.alpha:
            loss = loss + self.alpha * masked_loss / masked_count.clamp(min=1)
        if self.args.average_tokens_across_devices:  # DDP averages over the processes
            loss = loss * self.accelerator.num_processes
        return loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[None, Tensor, Tensor]:
        """The sums of each block for `HiddenScores`, `[B, 5]`, and its number of tokens `[B]`."""
        with torch.no_grad(), self.compute_loss_context_manager():
            sums = self.sums(model, inputs, self.exact_loss)
        return None, sums, sums[:, 1]


class TextDistillationTask(PretrainingTask):
    """Learn a teacher's hidden states on running text, and to predict masked tokens if their loss has a weight."""

    trainer_class = TextDistiller
    metrics: HiddenScores
    teacher: PreTrainedModel | None = None

    def __init__(self, model_args: ModelArguments, data_args: TextArguments, run_args: RunArguments):
        super().__init__(model_args, data_args, run_args)
        self.default_tokenizer = data_args.teacher
        if not data_args.alpha:
            self.pipeline = "feature-extraction"

    @classmethod
    def check_arguments(cls, data_args: TextArguments, training: TrainingArguments) -> None:
        super().check_arguments(data_args, training)
        if not (math.isfinite(data_args.alpha) and data_args.alpha >= 0):
            raise UserError(f"--alpha {data_args.alpha:g} is given: write a number from 0 up.")
        if not training.do_train:
            raise UserError("--teacher is for training: omit it to score a model, or add --do_train --train_file FILE")
        if training.n_gpu > 1:
            raise UserError("--teacher needs a process for each GPU: write accelerate launch -m modeling_star mlm")

    def describe(self) -> None:
        super().describe()
        self.metrics = HiddenScores(alpha=self.data_args.alpha)

    def build(self) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
        """
        `build_parts`, and the teacher.

        Raises:
            UserError: the teacher has another vocabulary, or takes fewer tokens.
        """
        name = self.data_args.teacher
        tokenizer, model = build_parts(self)
        vocabulary = self._load_teacher(name)
        if vocabulary != tokenizer.get_vocab():
            raise UserError(
                f"--teacher {name} has another vocabulary than the student: write --tokenizer_name {name} with a "
                "student that is fresh, or one that was made with this tokenizer."
            )
        longest, limit = longest_input(self.teacher.config), longest_input(model.config)
        size = min(self.data_args.max_seq_length, limit or self.data_args.max_seq_length)
        if longest is not None and size > longest:
            raise UserError(f"--teacher {name} takes at most {longest} tokens: write --max_seq_length {longest}")
        return tokenizer, model

    def _load_teacher(self, name: str) -> dict[str, int]:
        """Load the teacher, once for all seeds; returns its vocabulary."""
        options: dict[str, Any] = {"trust_remote_code": self.model_args.trust_remote_code}
        with loading("--teacher", name):
            if self.teacher is None:
                load = AutoModel.from_pretrained
                self.teacher, info = load(name, dtype=torch.float32, output_loading_info=True, **options)
                # Its last hidden states need no layers that only pool.
                pooling = [_POOLER, *(self.teacher._keys_to_ignore_on_load_unexpected or ())]
                is_needed = [key for key in info["missing_keys"] if not any(re.search(part, key) for part in pooling)]
                check_whole(name, self.teacher, is_needed)
            return AutoTokenizer.from_pretrained(name, **options).get_vocab()

    def prepare_trainer(self, trainer: Pretrainer) -> None:
        super().prepare_trainer(trainer)
        assert isinstance(trainer, TextDistiller)
        assert self.teacher is not None
        trainer.learn_from(self.teacher, self.data_args.alpha)

    def card_settings(self, trainer: StarTrainer) -> dict[str, Any]:
        alpha, settings = self.data_args.alpha, super().card_settings(trainer)
        if not alpha:
            del settings["masked"]
        loss = "mse of the last hidden states" + (f" + {alpha:g} * masked-LM loss" if alpha else "")
        return settings | {"teacher": shown_teacher(self.data_args.teacher), "distillation loss": loss}

    def example_texts(self) -> list[str]:
        return super().example_texts() if self.data_args.alpha else first_documents(self)
