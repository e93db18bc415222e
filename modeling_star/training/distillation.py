"""
Distillation: the outputs of a teacher on disk, their alignment with a student's inputs, the losses, and the trainer.

Axes: b batch  n columns  k labels  d width  m rows of a loss: texts `[b]`, or tokens `[b n]`
"""

import inspect
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import torch
from accelerate import PartialState
from datasets import Dataset, Features, List, Value, concatenate_datasets
from datasets.arrow_writer import ArrowWriter
from filelock import FileLock
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoConfig, BatchEncoding, DataCollator, PreTrainedModel, PreTrainedTokenizerBase

from ..data.tokenizers import SPECIAL_TOKENS, max_length_or_none
from ..data.windows import NO_WORD
from ..errors import UserError
from ..files import write_atomically
from ..loading import load_model, load_tokenizer
from ..models.modeling_encoder import longest_input
from ..models.tag_schemes import IGNORE_INDEX
from .losses import TaskLoss
from .named_models import loading
from .trainer import StarTrainer


LOGITS = "teacher_logits"
"""Column of a teacher's outputs, in the store and in a batch."""
ROW = "transfer_row"
"""Column of the features: the row of the transfer set, and so of the store."""
SHARD_SIZE = 10_000

_WORDS = "word_ids"
_MASK = SPECIAL_TOKENS["mask_token"]
# A CRF gives labels that its constraints forbid a log-probability of -1e4. Below this one a label has no gradient.
_LEAST_LOG_PROBABILITY = -20.0


# ------ the teacher


def label_order(teacher: Sequence[str], student: Sequence[str]) -> list[int]:
    """The index of each of the student's labels among the teacher's; a UserError if they are not the same ones."""
    if sorted(teacher) != sorted(student):
        raise UserError(
            f"The teacher's labels are {', '.join(teacher)}, and the data's are {', '.join(student)}: both need the "
            'same ones. Fine-tune the teacher on these data, or name its labels in its config.json, "id2label".'
        )
    indices = {label: index for index, label in enumerate(teacher)}
    return [indices[label] for label in student]


@dataclass(frozen=True)
class Teacher:
    """
    A fine-tuned model of transformers or this package, in eval mode, and its tokenizer, which the student need not
    share. `columns` are those of the texts: one, two for pairs, or for taggers (`has_words`) one with lists of words.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    order: list[int]
    columns: tuple[str, ...]
    has_words: bool = False

    @classmethod
    def load(
        cls,
        name: str,
        label_list: Sequence[str],
        columns: tuple[str, ...],
        *,
        has_words: bool = False,
        device: torch.device | str = "cpu",
        trust_remote_code: bool = False,
    ) -> "Teacher":
        """
        Load a teacher, a folder or a model of the Hub, for a student with these labels; none for a regression. One
        that is not whole, is for another task, or has other labels is a UserError.
        """
        head = "AutoModelForTokenClassification" if has_words else "AutoModelForSequenceClassification"
        with loading("--teacher", name):
            remote = {"trust_remote_code": trust_remote_code}
            _check_head(name, AutoConfig.from_pretrained(name, **remote).architectures, has_words)
            model = load_model(head, name, dtype=torch.float32, **remote).to(device)
            tokenizer = load_tokenizer(name, **remote)
        if hasattr(model.config, "calibration_temperature"):
            model.config.calibration_temperature = 1.0  # students learn the logits that the teacher has learnt
        tokenizer.padding_side = "right"
        names = [model.config.id2label[index] for index in range(model.config.num_labels)]
        # A regression has one output, whose name says nothing.
        order = [0] if not label_list and len(names) == 1 else label_order(names, label_list)
        return cls(model, tokenizer, order, columns, has_words)

    @cached_property
    def fingerprint(self) -> bytes:
        """A hash of all that the outputs depend on, besides the texts."""
        digest = blake2b(digest_size=16)
        for name, tensor in self.model.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        config = {name: value for name, value in self.model.config.to_dict().items() if not name.startswith("_")}
        tokens = self.tokenizer.backend_tokenizer.to_str() if self.tokenizer.is_fast else self.tokenizer.get_vocab()
        settings = config, tokens, self._limit, self.order, self.columns, self.has_words
        digest.update(json.dumps(settings, sort_keys=True, default=str).encode())
        return digest.digest()

    @cached_property
    def _limit(self) -> int | None:
        limits = max_length_or_none(self.tokenizer.model_max_length), longest_input(self.model.config)
        return min((limit for limit in limits if limit is not None), default=None)

    def outputs(
        self, rows: dict[str, list[Any]], batch_size: int, advance: Callable[[int], Any] = lambda count: None
    ) -> list[np.ndarray]:
        """Logits of each text `[k]`, of a tagger `[words, k]`, float32; those of truncated words are NaN."""
        encoding = self._encode(rows)
        lengths = list(map(len, encoding["input_ids"]))
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
        random.Random(0).shuffle(batches)  # a progress bar estimates the rest by the lengths so far
        outputs: dict[int, np.ndarray] = {}
        for indices in batches:
            for index, values in zip(indices, self._forward(encoding, indices), strict=True):
                if self.has_words:
                    values = _by_word(values, encoding.word_ids(index), len(rows[self.columns[0]][index]))
                outputs[index] = values
            advance(len(indices))
        return [outputs[index] for index in range(len(lengths))]

    def _encode(self, rows: dict[str, list[Any]]) -> BatchEncoding:
        mask = self.tokenizer.mask_token or self.tokenizer.unk_token or _MASK
        texts = [rows[name] for name in self.columns]
        if mask != _MASK and self.has_words:
            texts = [[[mask if word == _MASK else word for word in words] for words in column] for column in texts]
        elif mask != _MASK:
            texts = [[text.replace(_MASK, mask) for text in column] for column in texts]
        limit = {"truncation": True, "max_length": self._limit} if self._limit else {}
        return self.tokenizer(*texts, is_split_into_words=self.has_words, verbose=False, **limit)

    @torch.inference_mode()
    def _forward(self, encoding: BatchEncoding, indices: list[int]) -> np.ndarray:
        """Logits `[b, k]`, of a tagger `[b, n, k]`, of some rows."""
        inputs = {name: [column[index] for index in indices] for name, column in encoding.items()}
        batch = self.tokenizer.pad(inputs, return_tensors="pt").to(self.model.device)
        return self.model(**batch).logits.float()[..., self.order].cpu().numpy()


def _by_word(values: np.ndarray, word_ids: Sequence[int | None], num_words: int) -> np.ndarray:
    """Values `[n, k]` of tokens to those of the first token of each word, `[words, k]`; NaN for words without one."""
    first = {word: token for token, word in reversed(list(enumerate(word_ids))) if word is not None}
    result = np.full((num_words, values.shape[-1]), np.nan, dtype=values.dtype)
    result[list(first)] = values[list(first.values())]
    return result


# ------ the store


def _check_head(name: str, architectures: Sequence[str] | None, has_words: bool) -> None:
    """Raise a UserError where a tagger shall teach a classifier, or a classifier a tagger."""
    other, command = ("SequenceClassification", "classify") if has_words else ("TokenClassification", "tag")
    if architectures and architectures[0].endswith(f"For{other}"):
        raise UserError(
            f"--teacher {name} is a {architectures[0]}, and teaches only students of its own kind: write "
            f"modeling-star {command} --teacher {name}, or name another teacher."
        )


def teacher_outputs(
    teacher: Teacher,
    texts: Dataset,
    folder: Path,
    state: PartialState,
    *,
    batch_size: int = 64,
    shard_size: int = SHARD_SIZE,
    dtype: Literal["float16", "float32"] = "float16",
    progress: bool = True,
) -> Dataset:
    """
    The teacher's outputs for each row of `texts`, memory-mapped. Those that are not on disk yet are computed.

    A shard is an Arrow file, named after a hash of the teacher and its texts. It appears when it is whole: an
    interrupted computation resumes with the next shard, and data sets with the same beginning share its shards.
    Several processes compute alternate shards.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(texts), shard_size)
    shards = [folder / f"{_shard_name(teacher, texts[start : start + shard_size], dtype)}.arrow" for start in starts]
    missing = [number for number, shard in enumerate(shards) if not shard.exists()]
    state.wait_for_everyone()  # so that all processes see the same ones missing
    mine = missing[state.process_index :: state.num_processes]
    count = sum(min(shard_size, len(texts) - starts[number]) for number in mine)
    is_shown = progress and count > 0 and state.is_main_process
    with tqdm(total=count, desc="Teacher", unit=" texts", disable=not is_shown) as bar:
        for number in mine:
            rows = texts[starts[number] : starts[number] + shard_size]
            with FileLock(shards[number].with_suffix(".lock")):
                if shards[number].exists():  # another run needed it too
                    bar.update(len(rows[teacher.columns[0]]))
                else:
                    _write_shard(shards[number], teacher.outputs(rows, batch_size, bar.update), dtype)
    state.wait_for_everyone()
    return concatenate_datasets([Dataset.from_file(str(shard)) for shard in shards]).with_format("numpy")


def _shard_name(teacher: Teacher, rows: dict[str, list[Any]], dtype: str) -> str:
    content = json.dumps([dtype, *(rows[name] for name in teacher.columns)]).encode()
    return blake2b(teacher.fingerprint + content, digest_size=16).hexdigest()


def _write_shard(path: Path, outputs: list[np.ndarray], dtype: str) -> None:
    def write(stream: BinaryIO) -> None:
        with ArrowWriter(stream=stream, features=Features({LOGITS: List(Value(dtype))})) as writer:
            writer.write_batch({LOGITS: [x.reshape(-1).astype(dtype) for x in outputs]})
            writer.finalize()

    write_atomically(path, write)


@dataclass
class DistillationCollator:
    """
    A task's collator, which also looks up the teacher's outputs of the rows of a transfer set. `inputs` are the
    columns that the model reads; `unknown_label` is that of a text without one, of taggers that of each token.
    """

    collator: DataCollator
    outputs: Dataset
    num_labels: int
    inputs: frozenset[str]
    unknown_label: Any = IGNORE_INDEX

    def __call__(self, rows: list[dict[str, Any]]) -> dict[str, Tensor]:
        """A batch with LOGITS `[b, k]` or `[b, n, k]`, NaN where the teacher has none."""
        inputs = [{name: cell for name, cell in row.items() if name in self.inputs} for row in rows]
        if ROW not in rows[0]:  # of a split to score
            return self.collator(inputs)
        for row in inputs:
            if row.get("labels") is None:
                unknown = self.unknown_label
                row["labels"] = [unknown] * len(row["input_ids"]) if _WORDS in rows[0] else unknown
        batch = {**self.collator(inputs)}
        stored = self.outputs[[row[ROW] for row in rows]][LOGITS]
        if _WORDS in rows[0]:
            length, k = batch["input_ids"].shape[1], self.num_labels
            by_word = zip(stored, rows, strict=True)
            stored = [_by_token(values.reshape(-1, k), row[_WORDS], length) for values, row in by_word]
        return batch | {LOGITS: torch.tensor(np.stack(stored))}


def _by_token(values: np.ndarray, word_ids: Sequence[int], length: int) -> np.ndarray:
    """Values `[words, k]` at the tokens `[n, k]` that their words are read at; NaN at all others."""
    result = np.full((length, values.shape[1]), np.nan, dtype=np.float32)
    words = np.asarray(word_ids)
    tokens = np.flatnonzero(words != NO_WORD)
    result[tokens] = values[words[tokens]]
    return result


# ------ the losses


@dataclass
class DistillationLoss:
    """
    The loss of rows of a transfer set: texts, or the tokens of taggers. A row without a label costs its soft loss, a
    row with a label `(1 - alpha) * soft + alpha * hard`. Tokens whose output the teacher does not know have no soft
    loss.

    The soft loss is "mse" of the logits, or "kl", the divergence from the teacher's distribution at a temperature,
    times `temperature ** 2`; of several labels per text "kl" is the binary cross entropy of each.
    """

    hard: TaskLoss
    kind: Literal["mse", "kl"] = "mse"
    temperature: float = 1.0
    alpha: float = 0.0
    has_crf: bool = False

    def __call__(self, logits: Tensor, labels: Tensor, teacher: Tensor) -> Tensor:
        """
        The sum over the rows of logits `[b, k]` or `[b, n, k]`, the teacher's NaN where unknown, with labels as
        `DistillationCollator` fills them.
        """
        logits, teacher, labels = self._rows(logits, teacher, labels)
        known, labelled = self._known(teacher), self._labelled(labels)
        soft = self.soft(logits, teacher.masked_fill(~known[:, None], 0))
        total = (soft * known * (1 - self.alpha * labelled.float())).sum()
        if self.alpha:
            losses, counts = self.hard.rows(logits, labels.masked_fill(labels.isnan(), 0)).unbind(1)
            total = total + self.alpha * (losses / counts.clamp(min=1))[labelled].sum()
        return total

    def soft(self, logits: Tensor, teacher: Tensor) -> Tensor:
        """The loss `[m]` of each row, from logits `[m, k]`."""
        if self.kind == "mse":
            return (logits - teacher).square().mean(-1)
        if self.has_crf:
            logits = logits.clamp(min=_LEAST_LOG_PROBABILITY)
        logits, teacher = logits / self.temperature, teacher / self.temperature
        if self.hard.problem_type == "multi_label_classification":
            losses = nn.functional.binary_cross_entropy_with_logits(logits, teacher.sigmoid(), reduction="none")
            return losses.mean(-1) * self.temperature**2
        student, target = logits.log_softmax(-1), teacher.log_softmax(-1)
        losses = nn.functional.kl_div(student, target, reduction="none", log_target=True)
        return losses.sum(-1) * self.temperature**2

    def count(self, labels: Tensor, teacher: Tensor) -> Tensor:
        """The number of rows with a loss, which the mean is over."""
        _, teacher, labels = self._rows(teacher, teacher, labels)
        known = self._known(teacher)
        return (known | self._labelled(labels) if self.alpha else known).sum()

    @staticmethod
    def _rows(logits: Tensor, teacher: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Logits `[m, k]` of both, and labels `[m, 1]` or `[m, k]`."""
        k = teacher.shape[-1]
        logits, teacher = logits.float().reshape(-1, k), teacher.reshape(-1, k)
        return logits, teacher, labels.reshape(len(logits), -1)

    @staticmethod
    def _known(teacher: Tensor) -> Tensor:
        return ~teacher.isnan().any(-1)

    def _labelled(self, labels: Tensor) -> Tensor:
        is_regression = self.hard.problem_type == "regression"
        return (~labels.isnan() if is_regression else labels != IGNORE_INDEX).any(-1)


# ------ the trainer


class DistillationTrainer(StarTrainer):
    """`StarTrainer` on a transfer set with a teacher's outputs; without `distillation` it trains on labels alone."""

    data_collator: DataCollator
    distillation: DistillationLoss | None = None

    def distill(self, loss: DistillationLoss, outputs: Dataset, unknown_label: Any = IGNORE_INDEX) -> None:
        """Have the model learn from a teacher, in place of labels."""
        num_labels = self.model.config.num_labels
        self.distillation = loss
        # Trainer would leave out the columns that the collator looks up; the collator leaves out the others.
        self.args.remove_unused_columns = False
        inputs = frozenset([*inspect.signature(self.model.forward).parameters, *self.label_names])
        self.data_collator = DistillationCollator(self.data_collator, outputs, num_labels, inputs, unknown_label)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> tuple[list[Any], Tensor | int | None]:
        """As in Trainer, with the number of rows that have a loss in place of the number of labels."""
        batches, count = super().get_batch_samples(*args, **kwargs)
        if self.distillation is None or not batches:
            return batches, count
        count = torch.stack([self.distillation.count(batch["labels"], batch[LOGITS]) for batch in batches]).sum()
        if self.args.average_tokens_across_devices:
            count = self.accelerator.reduce(count.to(self.args.device), "sum")
        return batches, count

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The part of this batch of the mean loss over the rows of an update; of a split to score as in Trainer."""
        if self.distillation is None or LOGITS not in inputs:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        inputs = dict(inputs)
        labels, teacher = (inputs.pop(name, None) for name in ("labels", LOGITS))
        outputs = model(**inputs)
        total = self.distillation(outputs["logits"], labels, teacher)
        count = self.distillation.count(labels, teacher) if num_items_in_batch is None else num_items_in_batch
        loss = total / torch.as_tensor(count, device=total.device).clamp(min=1)
        if self.args.average_tokens_across_devices:  # DDP averages over the processes
            loss = loss * self.accelerator.num_processes
        return (loss, outputs) if return_outputs else loss
