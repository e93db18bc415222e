"""The task of run_mlm.py: masked language modelling."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import DatasetDict
from torch import Tensor, nn
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from ..data.collators import MaskingCollator
from ..data.packing import Blocks, PieceEncoder, packing_efficiency, to_pieces
from ..data.text import SPLITS, TextData, load_texts
from ..errors import UserError
from ..models.tag_schemes import IGNORE_INDEX
from ..training.arguments import ModelArguments, RunArguments, TextArguments
from ..training.build import read_lexicon
from ..training.losses import MaskedLoss, chosen_logits
from ..training.task import Task
from ..training.trainer import StarTrainer


logger = logging.getLogger(__name__)

_LONGEST_MASKED_WORD = 4  # tokens of a lexicon's word that is masked as one


@dataclass(frozen=True)
class MaskedScores:
    """Loss, perplexity and accuracy over all masked tokens of a split, from the sums of each block."""

    task: str = "masked_lm"
    metric_for_best_model: str = "loss"

    def __call__(self, prediction: EvalPrediction) -> dict[str, float]:
        """Scores from predictions `[blocks, 3]`: sum of losses, number of masked tokens, number predicted right."""
        total, count, right = np.asarray(prediction.predictions, dtype=np.float64).sum(0)
        loss = total / max(count, 1)
        with np.errstate(over="ignore"):
            perplexity = float(np.exp(loss))
        return {"masked_accuracy": float(right / max(count, 1)), "perplexity": perplexity, "loss": float(loss)}

    def score_names(self) -> list[str]:
        """The names of the scores besides the loss."""
        return ["masked_accuracy", "perplexity"]


@contextmanager
def logits_at(model: PreTrainedModel, chosen: Tensor) -> Iterator[None]:
    """
    Make a masked-LM model compute the logits of the P chosen tokens `[S, m]` alone, `[P, V]` instead of `[S, m, V]`:
    one token in seven is masked, and logits take most of the time of a model with a large vocabulary.
    """
    output = model.get_output_embeddings()
    if output is None:
        yield
        return

    def select(layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        states, *rest = inputs
        return (states[chosen] if states.shape[:2] == chosen.shape else states, *rest)

    handle = output.register_forward_pre_hook(select)
    try:
        yield
    finally:
        handle.remove()


class EpochMasks(TrainerCallback):
    """Draw other masks in every epoch."""

    def __init__(self, blocks: Blocks):
        self.blocks = blocks

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        # The epoch of a resumed run may have a fraction.
        self.blocks.begin_epoch(int(state.epoch or 0))


class Pretrainer(StarTrainer):
    """
    Trainer over blocks of documents, which have one size, so that processes share the work evenly. A batch has a row
    for each piece of a document, and the number of its block.
    """

    # Without the label smoothing of training, so that perplexities can be compared.
    exact_loss = MaskedLoss("masked_lm")

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in Trainer; the results also have the tokens per second, special ones included."""
        output = super().train(*args, **kwargs)
        tokens = self.state.num_input_tokens_seen  # of all parts of a resumed run, whose speed is not reported
        output.metrics["train_tokens_per_second"] = round(tokens / output.metrics["train_runtime"], 3)
        return output

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """As in Trainer, with the logits of masked tokens alone."""
        rows = {name: values for name, values in inputs.items() if name != "blocks"}
        with self._logits_at(rows["labels"] != IGNORE_INDEX):
            return super().compute_loss(model, rows, return_outputs, num_items_in_batch)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Tensor],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[None, Tensor, Tensor]:
        """
        Of each of B blocks the sum of losses, the number of masked tokens and of those predicted right, `[B, 3]`; and
        the numbers of masked tokens `[B]`.
        """
        rows = self._prepare_inputs(inputs)
        labels, blocks = rows.pop("labels"), rows.pop("blocks")
        chosen = labels != IGNORE_INDEX
        with torch.no_grad(), self.compute_loss_context_manager(), self._logits_at(chosen):
            logits = chosen_logits(model(**rows)["logits"], chosen)
        right = (logits.argmax(-1) == labels[chosen]).float()
        values = torch.cat([self.exact_loss.rows(logits, labels[chosen]), right[:, None]], dim=1)  # of each token
        sums = values.new_zeros(int(blocks[-1]) + 1, 3).index_add(0, blocks[:, None].expand_as(chosen)[chosen], values)
        return None, sums, sums[:, 1]

    def _logits_at(self, chosen: Tensor) -> AbstractContextManager[None]:
        """`logits_at`, unless the model is compiled or split between the GPUs of one process."""
        if self.args.torch_compile or self.args.n_gpu > 1:
            return nullcontext()
        return logits_at(self.model, chosen)


class PretrainingTask(Task[TextArguments]):
    """Predict the masked tokens of running text."""

    head = "AutoModelForMaskedLM"
    pipeline = "fill-mask"
    loss_class = MaskedLoss
    trainer_class: type[Pretrainer] = Pretrainer
    reads_tables = False
    data_args: TextArguments
    data: TextData
    metrics: MaskedScores

    def __init__(self, model_args: ModelArguments, data_args: TextArguments, run_args: RunArguments):
        super().__init__(model_args, data_args, run_args)
        self.size = data_args.max_seq_length

    @classmethod
    def check_arguments(cls, data_args: TextArguments, training: TrainingArguments) -> None:
        if training.train_sampling_strategy not in ("random", "sequential"):
            raise UserError(
                f"--train_sampling_strategy {training.train_sampling_strategy} is not for blocks: write random or "
                "sequential."
            )
        if data_args.card_examples:
            raise UserError("--card_examples shows texts that are predicted, and running text is not: omit it.")

    def prepare(self, splits: DatasetDict) -> TextData:
        options = self.data_args
        limits = (options.max_train_samples, options.max_eval_samples, options.max_predict_samples)
        return load_texts(
            {split: getattr(options, f"{split}_file") for split in SPLITS},
            options.sample_by,
            dataset_name=options.dataset_name,
            dataset_config_name=options.dataset_config_name,
            revision=options.dataset_revision,
            text_column_name=options.text_column_name,
            limits=dict(zip(SPLITS, limits, strict=True)),
        )

    def describe(self) -> None:
        self.metrics = MaskedScores()
        self.labels = {}
        self.input_columns = (self.data.text_column,)

    def training_texts(self) -> Iterator[str]:
        return self.data.training_texts(self.data_args.max_tokenizer_samples)

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Blocks:
        """The blocks of a split. Masks are those of evaluation; `prepare_trainer` gives training its own."""
        assert limit is not None  # max_seq_length has a default
        if limit <= tokenizer.num_special_tokens_to_add():
            raise UserError(f"--max_seq_length {limit} leaves no room for more than the special tokens: write 128")
        self.size = limit
        documents, is_packed = self.data.splits[split], self.data_args.packing
        pieces = to_pieces(documents, PieceEncoder(tokenizer, self.data.text_column, limit), split)
        blocks = Blocks(pieces, limit if is_packed else None, None)
        full = f", {packing_efficiency(blocks, limit):.1%} full" if is_packed else ""
        logger.info(
            f"{split}: {len(documents):,} documents, {len(pieces):,} pieces of at most {limit} tokens in "
            f"{len(blocks):,} blocks{full}."
        )
        if split == "train":
            self.sample_counts = {"train_samples": len(documents), "train_blocks": len(blocks)}
        return blocks

    def collate(self, tokenizer: PreTrainedTokenizerBase) -> MaskingCollator:
        options = self.data_args
        lexicon = None
        if options.mask_unit != "token":
            lexicon = read_lexicon(options.mask_unit, tokenizer, _LONGEST_MASKED_WORD)
        return MaskingCollator.of(tokenizer, lexicon, options.mlm_probability)

    def scorer(self, split: str, features: Blocks) -> MaskedScores:
        return self.metrics

    def prepare_trainer(self, trainer: Pretrainer) -> None:
        if trainer.train_dataset is not None:
            trainer.train_dataset.seed = trainer.args.seed
            trainer.add_callback(EpochMasks(trainer.train_dataset))

    def report(self, folder: Path, split: str, features: Any, predictions: np.ndarray) -> dict[str, str]:
        """Nothing beside the scores."""
        return {}

    def card_settings(self, trainer: StarTrainer) -> dict[str, Any]:
        options = self.data_args
        return {
            "an example": f"a block of {self.size} tokens" if options.packing else f"up to {self.size} tokens",
            "masked": f"{options.mlm_probability:.0%}, by {options.mask_unit}",
            "updates": trainer.state.global_step,
        }

    def example_texts(self) -> list[str]:
        return []
