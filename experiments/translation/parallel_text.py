"""Parallel texts: find the columns of sources and targets, check every row, and encode both sides."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, DatasetDict, Translation
from transformers import PreTrainedTokenizerBase

from modeling_star.data.columns import check_columns, is_first_row, listed, text_names
from modeling_star.data.files import source_version
from modeling_star.data.splits import drop_or_raise
from modeling_star.data.tokenizers import map_rows, warn_about_cuts
from modeling_star.data.writing_systems import HAN, KANA
from modeling_star.errors import UserError

from .subwords import start_and_end


logger = logging.getLogger(__name__)

SOURCE, TARGET = "source", "target"
_PAIRS = (("source", "target"), ("src", "tgt"), ("src", "trg"), ("source_text", "target_text"), ("input", "output"))
_HAN, _KANA = re.compile(f"[{HAN}]"), re.compile(f"[{KANA}]")


@dataclass(frozen=True)
class TranslationData:
    """
    Texts and their translations.

    Attributes:
        splits: rows with the columns "source" and "target"; a split without translations has no "target".
        names: of the two sides in the data: `("zh", "en")`.
        label_list: empty: texts have no labels.
    """

    splits: DatasetDict
    names: tuple[str, str]
    label_list: tuple[str, ...] = ()

    def is_labelled(self, split: str) -> bool:
        return TARGET in self.splits[split].column_names

    def is_chinese(self) -> bool:
        """Whether the targets are Chinese, by their name or by most characters of the first ones."""
        if self.names[1].lower().replace("_", "-").split("-")[0] in ("zh", "zho", "chi", "cmn"):
            return True
        split = next((split for split in self.splits if self.is_labelled(split)), None)
        if split is None:
            return False
        rows = self.splits[split]
        text = "".join("".join(rows.select(range(min(100, len(rows))))[TARGET]).split())
        return not _KANA.search(text) and 2 * len(_HAN.findall(text)) > len(text)


def find_translation_columns(
    splits: DatasetDict, source_column: str | None = None, target_column: str | None = None
) -> tuple[str | None, str, str]:
    """
    The columns of the texts and of their translations: those named, else by name and type.

    Args:
        source_column, target_column: columns, or keys of the column of dictionaries in the Hub's data sets:
            `{"translation": {"zh": ..., "en": ...}}`. Of two keys or columns, the first one is the source.

    Returns:
        The column of dictionaries or `None`, and the two names.

    Raises:
        UserError: a name is absent, or none or several could be meant.
    """
    example = splits["train"] if "train" in splits else next(iter(splits.values()))
    texts = text_names(example)
    keys = {name: names for name, feature in example.features.items() if (names := keys_of(feature))}
    column = "translation" if "translation" in keys else next(iter(keys), None)
    if {source_column, target_column} & set(texts):
        column = None
    present = texts if column is None else keys[column]
    source, target = _two_of(present, source_column, target_column)
    if "train" not in splits:  # there may be no translations
        source = source or (present[0] if len(present) == 1 else None)
        target = target or TARGET
    needed = [source, target] if "train" in splits else [source]
    if source is None or target is None or source == target or (column and not set(needed) <= set(present)):
        place = listed(splits) if column is None else f"the keys of column {column!r}, {', '.join(map(repr, present))}"
        first, second = (*present, "zh", "en")[:2]
        raise UserError(
            f"There are {place}; the source is {source!r} and the target {target!r}. Name both, e.g. "
            f"`--source_column {first} --target_column {second}`."
        )
    if column is None:
        if source_column is None and target_column is None and is_first_row(present):
            raise UserError(
                f"The file has no header line: its columns are called {', '.join(map(repr, present))}. Name them, "
                "`--column_names zh,en`, or keep these names with --source_column and --target_column."
            )
        check_columns(splits, [source], "--source_column", everywhere=True)
        if "train" in splits or target_column is not None:
            check_columns(splits, [target], "--target_column", everywhere=False)
    return column, source, target


def keys_of(feature: Any) -> list[str] | None:
    """The keys of a column of dictionaries; `None` for other columns."""
    if isinstance(feature, Translation):
        return list(feature.languages)
    return list(feature) if isinstance(feature, dict) else None


def _two_of(present: Sequence[str], source: str | None, target: str | None) -> tuple[str | None, str | None]:
    """The names that are given, and those of a known pair or the only ones that are left."""
    for pair in _PAIRS:
        if set(pair) <= set(present) and source in (None, pair[0]) and target in (None, pair[1]):
            return pair
    others = [name for name in present if name not in (source, target)]
    if len(others) == (source is None) + (target is None):
        source = source or others.pop(0)
        target = target or others.pop(0)
    return source, target


def prepare_translation(
    splits: DatasetDict,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    drop_empty: bool = False,
) -> TranslationData:
    """
    Check the rows of parallel texts, and bring them to the columns "source" and "target".

    Args:
        splits: from `load_splits`.
        source_column, target_column: see `find_translation_columns`.
        drop_empty: drop rows with an empty text, with a warning, instead of raising an error.

    Returns:
        The splits. A split of which no row has a translation lacks "target".

    Raises:
        UserError: a column is absent, or a row lacks a text.
    """
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
        """
        The tokens of each text and an end, without a first token that the decoder starts from (BERT's tokenizers have
        one). Another first token, such as the one that BART learns to write, stays.
        """
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
    """
    Encode both sides: `input_ids` and `attention_mask` of the sources, and `labels` of the targets, if there are any.

    Args:
        dataset: rows with "source" and maybe "target".
        tokenizer: of both sides.
        source_limit, target_limit: the most tokens of each, ends included; longer ones are cut, and one warning says
            how much that costs.
        decoder_start: the id that the decoder starts from; `None`: that of `start_and_end`, as for a fresh model.
        split: its name in the warning.
    """
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
