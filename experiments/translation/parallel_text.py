"""Parallel texts: find the columns of sources and targets, check every row, and encode both sides."""

import logging
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, DatasetDict
from transformers import PreTrainedTokenizerBase

from modeling_star.data.columns import text_names
from modeling_star.data.files import source_version
from modeling_star.data.splits import drop_or_raise
from modeling_star.data.tokenizers import map_rows, warn_about_cuts
from modeling_star.data.writing_systems import language_of
from modeling_star.errors import UserError

from .subwords import start_and_end


logger = logging.getLogger(__name__)

SOURCE, TARGET = "source", "target"


@dataclass(frozen=True)
class TranslationData:
    """Texts and their translations."""

    splits: DatasetDict
    names: tuple[str, str]
    label_list: tuple[str, ...] = ()

    def is_labelled(self, split: str) -> bool:
        return TARGET in self.splits[split].column_names

    def is_chinese(self) -> bool:
        """Whether the targets are Chinese, by their first ones."""
        labelled = next((rows for split, rows in self.splits.items() if self.is_labelled(split)), None)
        return labelled is not None and language_of(labelled[:100][TARGET]) == "zh"


def find_translation_columns(
    splits: DatasetDict, source_column: str | None = None, target_column: str | None = None
) -> tuple[str | None, str, str]:
    """The columns of the texts and of their translations: those named, else the first two columns of texts."""
    example = splits["train"] if "train" in splits else next(iter(splits.values()))
    present = text_names(example)
    column = None
    if "translation" in example.features and not {source_column, target_column} & set(present):
        feature = example.features["translation"]
        column, present = "translation", list(getattr(feature, "languages", feature))
    others = [name for name in present if name not in (source_column, target_column)]
    if len(others) > (source_column is None) + (target_column is None):
        others = []  # several could be meant
    source = source_column or (others.pop(0) if others else None)
    target = target_column or (others.pop(0) if others else None if "train" in splits else TARGET)
    needed = {source, target} if "train" in splits else {source}
    if source is None or target is None or source == target or not needed <= set(present):
        first, second = (*present, "zh", "en")[:2]
        raise UserError(
            f"There are {', '.join(map(repr, present)) or 'no texts'}; the source is {source!r} and the target "
            f"{target!r}. Name both, e.g. `--source_column {first} --target_column {second}`."
        )
    return column, source, target


def prepare_translation(
    splits: DatasetDict,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    drop_empty: bool = False,
) -> TranslationData:
    """Check the rows of parallel texts, and rename their columns to "source" and "target"."""
    column, source, target = find_translation_columns(splits, source_column, target_column)
    logger.info("Texts: %r; translations: %r.", source, target)
    names = {SOURCE: source, TARGET: target}
    if column is not None:
        names = {side: f"{column}.{name}" for side, name in names.items()}
    result = {}
    for split, dataset in splits.items():
        rows = dataset if column is None else dataset.select_columns(column).flatten()
        if names[TARGET] not in rows.column_names or not any(rows[names[TARGET]][:]):
            if split == "train":
                raise UserError(f"No row of the train split has a text in {target!r}: write --target_column NAME.")
            sides = {names[SOURCE]: SOURCE}
        else:
            sides = {name: side for side, name in names.items()}
        # Columns are renamed and not copied, so that they stay on disk and features are cached.
        rows = rows.select_columns(list(sides)).rename_columns({old: new for old, new in sides.items() if old != new})
        texts = zip(*(rows[side][:] for side in rows.column_names), strict=True)
        empty = [row for row, pair in enumerate(texts) if not all(isinstance(x, str) and x.strip() for x in pair)]
        drop_or_raise(split, empty, f"no text in {source!r} or {target!r}", drop_empty)
        result[split] = rows.select(sorted(set(range(len(rows))) - set(empty))) if empty else rows
    return TranslationData(DatasetDict(result), (source, target))


@dataclass
class _PairEncoder:
    """Encodes a batch of rows for `encode_translations`. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    source_limit: int | None
    target_limit: int | None
    decoder_start: int
    version: str = source_version(__name__, "translation.subwords")

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        # As `translate` encodes a source, with all special tokens.
        sources = self.tokenizer(batch[SOURCE], verbose=False)["input_ids"]
        cut = [max(0, len(ids) - (self.source_limit or len(ids))) for ids in sources]
        output = {"input_ids": [_cut(ids, self.source_limit) for ids in sources]}
        if TARGET in batch:
            targets = self._target_ids(batch[TARGET])
            output["labels"] = [_cut(ids, self.target_limit) for ids in targets]
            beyond = (max(0, len(ids) - (self.target_limit or len(ids))) for ids in targets)
            cut = [one + other for one, other in zip(cut, beyond, strict=True)]
        return output | {"attention_mask": [[1] * len(ids) for ids in output["input_ids"]], "cut_tokens": cut}

    def _target_ids(self, texts: list[str]) -> list[list[int]]:
        """The tokens of each text and an end, without a first token that the decoder starts from (as BERT's have)."""
        _, end = start_and_end(self.tokenizer)
        rows = self.tokenizer(texts, verbose=False)["input_ids"]
        rows = [ids[1:] if len(ids) > 1 and ids[0] == self.decoder_start else ids for ids in rows]
        return [ids if ids and ids[-1] == end else [*ids, end] for ids in rows]


def _cut(ids: list[int], limit: int | None) -> list[int]:
    """The first tokens, and the last one."""
    return ids if limit is None or len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def encode_translations(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    source_limit: int | None = None,
    target_limit: int | None = None,
    decoder_start: int | None = None,
    split: str = "data",
) -> Dataset:
    """Encode sources and, if there are any, `labels` of the targets; longer ones are cut, with one warning."""
    decoder_start = start_and_end(tokenizer)[0] if decoder_start is None else decoder_start
    encode = _PairEncoder(tokenizer, source_limit, target_limit, decoder_start)
    features = map_rows(dataset, encode, f"Tokenizing {split}")
    limit = min((limit for limit in (source_limit, target_limit) if limit is not None), default=None)
    return warn_about_cuts(
        features,
        split,
        limit,
        "Raise max_seq_length to keep them, if both sides of the model take more.",
        of=("input_ids", "labels"),
    )
