"""Classification and tagging with a teacher: their training data are a transfer set, most of which has no labels."""

import logging
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import datasets
import numpy as np
from accelerate import PartialState
from datasets import Dataset, DatasetDict, Features, List, Value, concatenate_datasets
from transformers import PreTrainedTokenizerBase, TrainingArguments

from ..data.columns import find_predicted_columns
from ..data.files import source_version
from ..data.readers import read_file
from ..data.tokenizers import SPECIAL_TOKENS
from ..data.writing_systems import between_words
from ..errors import UserError
from ..models.tag_schemes import IGNORE_INDEX
from ..publish.model_card import shown_path
from ..training.arguments import ModelArguments, RunArguments
from ..training.distillation import ROW, DistillationLoss, DistillationTrainer, Teacher, teacher_outputs
from ..training.task import Task
from ..training.trainer import StarTrainer
from .sequence_classification import ClassificationTask
from .token_classification import TaggingTask


logger = logging.getLogger(__name__)

UNLABELED = "unlabeled"
"""The split with the rows of the transfer set that have no labels."""
TOKENIZER_TEXTS = 100_000

# https://arxiv.org/abs/1903.12136, section 3.2
_MASKED, _N_GRAM, _LONGEST_N_GRAM = 0.1, 0.25, 5
_AUGMENTATION_SEED = 42  # the same for every seed of a run, so that all seeds share the teacher's outputs


class DistillationTask(Task):
    """A task, by a further base class, that trains on labelled rows and, in the split UNLABELED, on others."""

    trainer_class = DistillationTrainer
    has_words = False
    _outputs: Dataset | None = None

    def __init__(self, model_args: ModelArguments, data_args: Any, run_args: RunArguments):
        if model_args.model_type == "tfidf" and model_args.model_name_or_path is None:
            raise UserError("--model_type tfidf has no gradients to learn from a teacher with: name an encoder.")
        super().__init__(model_args, data_args, run_args)

    @classmethod
    def check_arguments(cls, data_args: Any, training: TrainingArguments) -> None:
        super().check_arguments(data_args, training)
        if data_args.temperature <= 0 or not 0 <= data_args.alpha <= 1:
            raise UserError(
                f"--temperature {data_args.temperature:g} --alpha {data_args.alpha:g} are given: the temperature is "
                "above 0, and alpha from 0 to 1."
            )

    # ------ the transfer set

    def describe(self) -> None:
        """As in the task; with the split UNLABELED if there is a train split and a source of unlabelled rows."""
        super().describe()  # type: ignore[safe-super]
        data, columns = self.data, self.input_columns
        if "train" not in data.splits:
            return
        between = between_words(data.splits["train"][columns[0]]) if self.has_words else None
        scored = [rows for split, rows in data.splits.items() if split != "train"]
        keys = tuple(_key(row) for rows in scored for row in zip(*(rows[name] for name in columns), strict=True))
        parts = []
        for path in self.data_args.unlabeled_file or []:
            table = read_file(path, sample_by="line")
            names = columns
            if not set(columns) <= set(table.column_names):
                names = find_predicted_columns(table, pairs=len(columns) == 2)
            rows = self._text_rows(table, columns, _Texts(columns, tuple(names), between, keys))
            if not len(rows):
                raise UserError(f"--unlabeled_file {path} has no text to learn from in the column {names[0]!r}.")
            omitted = len(table) - len(rows)
            logger.info(f"{len(rows):,} texts of {path} ({omitted:,} more are empty, or to be scored).")
            parts.append(rows)
        self._tokenizer_texts = min(TOKENIZER_TEXTS, sum(map(len, parts)))  # without masks
        if self.data_args.augment:
            copies = _Augmentation(columns, self.data_args.augment, _AUGMENTATION_SEED)
            parts.append(self._text_rows(data.splits["train"], columns, copies))
        labelled, unlabelled = len(data.splits["train"]), sum(map(len, parts))
        self.sample_counts = {"train_samples": labelled, "unlabeled_samples": unlabelled}
        if not unlabelled:
            logger.warning("All texts are labelled ones: add --unlabeled_file FILE or --augment 10 to learn more.")
            return
        self.data = replace(data, splits=DatasetDict({**data.splits, UNLABELED: concatenate_datasets(parts)}))

    def _text_rows(self, rows: Dataset, columns: tuple[str, ...], change: Any = None) -> Dataset:
        """Texts alone, with the same features from every source."""
        kind = List(Value("string")) if self.has_words else Value("string")
        features = Features(dict.fromkeys(columns, kind))
        if change is None:
            return rows.select_columns(list(columns)).cast(features)
        names = rows.column_names
        return rows.map(change, batched=True, with_indices=True, remove_columns=names, features=features, desc="Texts")

    def training_texts(self) -> Iterator[Any]:
        """The labelled texts, and the first unlabelled ones."""
        yield from super().training_texts()  # type: ignore[safe-super]
        if UNLABELED in self.data.splits:
            for name in self.input_columns:
                yield from self.data.splits[UNLABELED][: self._tokenizer_texts][name]

    def features(self, split: str, tokenizer: PreTrainedTokenizerBase, limit: int | None) -> Dataset:
        """As in the task; train is the transfer set here, and the column ROW has the number of each of its rows."""
        parts = [super().features(split, tokenizer, limit)]  # type: ignore[safe-super]
        if split != "train":
            return parts[0]
        if UNLABELED in self.data.splits:
            parts.append(super().features(UNLABELED, tokenizer, limit))  # type: ignore[safe-super]
        rows = [np.asarray(x["example_index"][:]) if self.has_words else np.arange(len(x)) for x in parts]
        starts = (0, self.sample_counts["train_samples"])
        rows = [start + part for start, part in zip(starts, rows, strict=False)]
        return concatenate_datasets(parts).add_column(ROW, np.concatenate(rows))

    # ------ training

    def prepare_trainer(self, trainer: Any) -> None:
        """A trainer that trains learns from the teacher."""
        super().prepare_trainer(trainer)
        if not trainer.args.do_train:
            return
        assert isinstance(trainer, DistillationTrainer)
        unknown: Any = IGNORE_INDEX
        if self.metrics.task == "regression":
            unknown = float("nan")  # -100 may be a number to learn
        elif self.metrics.task == "multi_label_classification":
            unknown = [float(IGNORE_INDEX)] * trainer.model.config.num_labels
        loss = self.distillation_loss(trainer)
        trainer.distill(loss, self.teacher_outputs(trainer.args), unknown)

    def distillation_loss(self, trainer: StarTrainer) -> DistillationLoss:
        """The loss that the arguments request."""
        options, has_crf = self.data_args, getattr(trainer.model, "crf", None) is not None
        kind: Literal["mse", "kl"] = options.loss or ("kl" if has_crf else "mse")
        only = "kl" if has_crf else "mse" if self.metrics.task == "regression" else kind
        if kind != only:
            what = "a CRF" if has_crf else "a regression"
            raise UserError(f"--loss {kind} does not work with {what}: write --loss {only}")
        return DistillationLoss(trainer.loss, kind, options.temperature, options.alpha, has_crf)

    def teacher_outputs(self, training: TrainingArguments) -> Dataset:
        """The teacher's outputs for the rows of the transfer set. The teacher leaves the memory afterwards."""
        if self._outputs is None:
            options, columns = self.data_args, self.input_columns
            cache = Path(options.teacher_cache or Path(datasets.config.HF_DATASETS_CACHE) / "teacher_outputs")
            teacher = Teacher.load(
                options.teacher,
                self.data.label_list,
                columns,
                has_words=self.has_words,
                device=training.device,
                trust_remote_code=self.model_args.trust_remote_code,
            )
            parts = [self.data.splits[split] for split in ("train", UNLABELED) if split in self.data.splits]
            texts = concatenate_datasets([self._text_rows(part, columns) for part in parts])
            self._outputs = teacher_outputs(
                teacher,
                texts,
                cache,
                PartialState(),
                batch_size=options.teacher_batch_size,
                progress=not training.disable_tqdm,
            )
        return self._outputs

    # ------ what is published

    def card_settings(self, trainer: StarTrainer) -> dict[str, Any]:
        """The teacher, the transfer set and the loss."""
        options = self.data_args
        settings = {**super().card_settings(trainer), "teacher": shown_path(options.teacher)}
        if isinstance(trainer, DistillationTrainer) and trainer.distillation is not None:
            files = [Path(path).name for path in options.unlabeled_file or []]
            sources = [*files, *([f"{options.augment} augmented copies"] if options.augment else [])]
            kinds = zip(self.sample_counts.values(), ("labelled", "unlabelled"), strict=True)
            sizes = " + ".join(f"{count:,} {what}" for count, what in kinds)
            loss = trainer.distillation
            temperature = f", temperature {loss.temperature:g}" if loss.kind == "kl" else ""
            settings["transfer set"] = f"{sizes} texts ({', '.join(sources) or 'no unlabelled source'})"
            settings["distillation loss"] = f"{loss.kind}{temperature}, alpha {loss.alpha:g}"
        return settings


class DistillClassificationTask(DistillationTask, ClassificationTask):
    """Classification or regression of texts or pairs, learned from a teacher."""


class DistillTaggingTask(DistillationTask, TaggingTask):
    """A label for every word, learned from a teacher."""

    has_words = True


def _key(row: Sequence[Any]) -> str:
    """A row's texts or words, to find it in another split."""
    return "\t".join(cell if isinstance(cell, str) else " ".join(cell) for cell in row)


@dataclass
class _Texts:
    """
    Unlabelled rows from a table, without those that are empty or `scored` in a split (`_key`s). `names` are the
    columns in the table; `between` separates the words of taggers.
    """

    columns: tuple[str, ...]
    names: tuple[str, ...]
    between: str | None
    scored: tuple[str, ...]
    version: str = source_version(__name__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        omitted = set(self.scored)
        rows = [[self._cell(cell) for cell in row] for row in zip(*(batch[name] for name in self.names), strict=True)]
        rows = [row for row in rows if all(row) and _key(row) not in omitted]
        return {name: [row[column] for row in rows] for column, name in enumerate(self.columns)}

    def _cell(self, cell: Any) -> Any:
        """A text, or its words; nothing if it is empty."""
        if self.between is None:
            return cell if isinstance(cell, str) and cell.strip() else None
        if isinstance(cell, str):
            return cell.split() if self.between else list("".join(cell.split()))
        return cell


@dataclass
class _Augmentation:
    """
    `count` copies of each labelled row with words masked at random, some of them an n-gram only, as in
    https://arxiv.org/abs/1903.12136. Copies that equal the row or each other are omitted.
    """

    columns: tuple[str, ...]
    count: int
    seed: int
    version: str = source_version(__name__)

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        copies: dict[str, list[Any]] = {name: [] for name in self.columns}
        for row, index in zip(zip(*(batch[name] for name in self.columns), strict=True), indices, strict=True):
            generator = random.Random(f"{self.seed} {index}")
            keys = {_key(row)}
            for _ in range(self.count):
                copy = [self._copy(cell, generator) for cell in row]
                if _key(copy) not in keys:
                    keys.add(_key(copy))
                    for name, cell in zip(self.columns, copy, strict=True):
                        copies[name].append(cell)
        return copies

    @staticmethod
    def _copy(cell: Any, generator: random.Random) -> Any:
        between = " " if isinstance(cell, str) and " " in cell else ""  # Chinese has no blanks
        words = cell.split() if between else list(cell)
        words = [SPECIAL_TOKENS["mask_token"] if generator.random() < _MASKED else word for word in words]
        if generator.random() < _N_GRAM:
            length = min(generator.randint(1, _LONGEST_N_GRAM), len(words))
            start = generator.randrange(len(words) - length + 1)
            words = words[start : start + length]
        return between.join(words) if isinstance(cell, str) else words
