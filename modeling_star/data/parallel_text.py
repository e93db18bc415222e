"""Parallel texts: which columns hold source and target, every row checked, and both sides as token ids."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from datasets import Dataset, DatasetDict, Translation
from transformers import PreTrainedTokenizerBase

from ..errors import UserError
from .caching import source_version
from .columns import check_columns, is_first_row, is_text, listed
from .labels import row_ref, short_repr
from .splits import drop_or_raise
from .subwords import start_and_end
from .tokenizers import map_rows, warn_about_cuts
from .writing_systems import HAN, KANA


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
        names: what the data call the two sides: `("zh", "en")`.
        label_list: empty; here for what asks every task's data for it.
    """

    splits: DatasetDict
    names: tuple[str, str]
    label_list: tuple[str, ...] = ()

    def is_labelled(self, split: str) -> bool:
        return TARGET in self.splits[split].column_names

    def is_chinese(self) -> bool:
        """Whether the targets are: by their name, or by most characters of the first ones."""
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
    Where the texts and their translations are: those named, else by name and type.

    Args:
        source_column, target_column: columns, or keys of the one column of dictionaries that the Hub's data sets have:
            `{"translation": {"zh": ..., "en": ...}}`. Of two keys or columns, the first one is the source.

    Returns:
        The column of dictionaries or `None`, and the two names.

    Raises:
        UserError: a name is absent, or none or several could be meant; what there is gets listed.
    """
    example = splits["train"] if "train" in splits else next(iter(splits.values()))
    keys = {name: held for name, feature in example.features.items() if (held := keys_of(feature)) is not None}
    texts = [name for name in example.column_names if is_text(example, name)]
    column = _dictionaries(keys, texts, {source_column, target_column} - {None})
    present = texts if column is None else keys[column]
    if column is None:
        check_columns(splits, [source_column] if source_column else (), "--source_column", everywhere=True)
        check_columns(splits, [target_column] if target_column else (), "--target_column", everywhere=False)
    source, target = _two_of(present, source_column, target_column)
    if column is None and source_column is None and target_column is None and is_first_row(present):
        raise UserError(
            f"The columns are called {', '.join(map(repr, present))}, which looks like a first pair of texts and no "
            "header line. Name the columns, `--column_names zh,en`; or, where these are their names, say which is "
            "which, `--source_column NAME --target_column NAME`"
        )
    if "train" not in splits:  # then there may be texts alone
        source = source or (present[0] if len(present) == 1 else None)
        target = target or TARGET
    needed = {source, target} if "train" in splits else {source}
    if source is None or target is None or source == target or (column is not None and not needed <= set(present)):
        raise _unclear(splits, column, present)
    if column is None:  # what was found in one split may lack in another
        check_columns(splits, [source], "--source_column", everywhere=True)
        if target_column is None:
            check_columns(splits, [target] if "train" in splits else (), "--target_column", everywhere=False)
    return column, source, target


def keys_of(feature: Any) -> list[str] | None:
    """The keys of a column of dictionaries, of plain ones or of the kind that the Hub has for translations."""
    if isinstance(feature, Translation):
        return list(feature.languages)
    return list(feature) if isinstance(feature, dict) else None


def _dictionaries(keys: Mapping[str, Sequence[str]], texts: Sequence[str], asked: set[str]) -> str | None:
    """The column of dictionaries that the texts are in; `None`: they are columns themselves."""
    if not keys or (asked and asked & set(texts)):
        return None
    found = next((name for name, held in keys.items() if asked & set(held)), None)
    if found is not None or (len(keys) > 1 and "translation" not in keys):
        return found
    return "translation" if "translation" in keys else next(iter(keys))


def _unclear(splits: DatasetDict, column: str | None, present: Sequence[str]) -> UserError:
    place = listed(splits) if column is None else f"the keys of column {column!r}, {', '.join(map(repr, present))}"
    first, second = (*present, "zh", "en")[:2]
    return UserError(
        f"Which are the texts and which their translations? There are {place}. Name both, e.g. `--source_column "
        f"{first} --target_column {second}`"
    )


def _two_of(present: Sequence[str], source: str | None, target: str | None) -> tuple[str | None, str | None]:
    if source is not None and target is not None:
        return source, target
    for pair in _PAIRS:
        if set(pair) <= set(present) and source in (None, pair[0]) and target in (None, pair[1]):
            return pair
    others = [name for name in present if name not in (source, target)]
    wanted = 2 - sum(name is not None for name in (source, target))
    if len(others) != wanted:
        return source, target
    return source or others.pop(0), target or others.pop()


def prepare_translation(
    splits: DatasetDict,
    *,
    source_column: str | None = None,
    target_column: str | None = None,
    drop_empty: bool = False,
) -> TranslationData:
    """
    Check every row of parallel texts.

    Args:
        splits: what `load_splits` gave.
        source_column, target_column: see `find_translation_columns`.
        drop_empty: leave rows with an empty text out, with a warning, instead of stopping at them.

    Returns:
        The splits, their columns "source" and "target" alone. A split of which no row has a translation lacks
        "target".

    Raises:
        UserError: a column is absent; a text is missing, empty or no text. Split and row are named.
    """
    column, source, target = find_translation_columns(splits, source_column, target_column)
    logger.info("Texts: %r; translations: %r.", source, target)
    result = {}
    for split, dataset in splits.items():
        sides = {SOURCE: _cells(dataset, column, source), TARGET: _cells(dataset, column, target)}
        if not any(sides[TARGET]):
            if split == "train":
                raise UserError(f"No row of the train split has a text in {target!r}: write --target_column NAME")
            del sides[TARGET]
        empty: set[int] = set()
        for side, name in ((SOURCE, source), (TARGET, target)):
            for row, text in enumerate(sides.get(side, ())):
                if text is not None and not isinstance(text, str):
                    raise UserError(
                        f"{row_ref(split, row)}: {name!r} holds {short_repr(text)}, and a text is wanted. Name the column of "
                        f"texts, e.g. `--{side}_column {name}`"
                    )
                if not (text or "").strip():
                    empty.add(row)
        drop_or_raise(split, sorted(empty), f"no text in {source!r} or {target!r}", drop_empty)
        kept = [row for row in range(len(dataset)) if row not in empty]
        result[split] = _standard(dataset, column, {side: {SOURCE: source, TARGET: target}[side] for side in sides})
        if empty:
            result[split] = result[split].select(kept)
    return TranslationData(DatasetDict(result), (source, target))


def _cells(dataset: Dataset, column: str | None, name: str) -> list[Any]:
    if column is not None:
        return [None if cell is None else cell.get(name) for cell in dataset[column][:]]
    return dataset[name][:] if name in dataset.column_names else [None] * len(dataset)


def _standard(dataset: Dataset, column: str | None, names: dict[str, str]) -> Dataset:
    """The texts as columns of fixed names, which stay on disk where they are, so that features are cached."""
    if column is not None:
        dataset = dataset.select_columns(column).flatten()
        names = {side: f"{column}.{name}" for side, name in names.items()}
    dataset = dataset.select_columns(list(names.values()))
    return dataset.rename_columns({name: side for side, name in names.items() if name != side})


@dataclass
class _PairEncoder:
    """What `encode_translations` does to a batch of rows. A class, so that worker processes can unpickle it."""

    tokenizer: PreTrainedTokenizerBase
    source_limit: int | None
    target_limit: int | None
    decoder_start: int
    version: str = source_version(__name__, "modeling_star.data.subwords")

    def __call__(self, batch: dict[str, list[Any]], indices: list[int]) -> dict[str, list[Any]]:
        # As `translate` reads a source: whatever the tokenizer puts around it.
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
        The tokens of each text and an end. A token before them goes if it is what the decoder starts from, as with
        tokenizers of BERT's kind; another, such as the one that BART learns to write first, stays.
        """
        _, end = start_and_end(self.tokenizer)
        rows = self.tokenizer(texts, verbose=False)["input_ids"]
        rows = [ids[1:] if len(ids) > 1 and ids[0] == self.decoder_start else ids for ids in rows]
        return [ids if ids and ids[-1] == end else [*ids, end] for ids in rows]


def _cut(ids: list[int], limit: int | None) -> list[int]:
    """The first tokens, and the end that they had."""
    return ids if limit is None or len(ids) <= limit else [*ids[: limit - 1], ids[-1]]


def encode_translations(
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    source_limit: int | None = None,
    target_limit: int | None = None,
    decoder_start: int | None = None,
    split: str = "data",
    num_proc: int | None = None,
    load_from_cache_file: bool | None = None,
) -> Dataset:
    """
    Both sides as token ids: `input_ids` and `attention_mask` as the tokenizer gives them, and, where there is a
    target, `labels`, its tokens and an end.

    Args:
        dataset: rows with "source" and maybe "target".
        tokenizer: of both sides.
        source_limit, target_limit: the most tokens of each, ends included; longer ones are cut, and one warning says
            how much that costs.
        decoder_start: the id that the decoder starts from; `None`: as for a fresh model, that of `start_and_end`.
        split: its name in the warning.
        num_proc, load_from_cache_file: as in `datasets.Dataset.map`.
    """
    decoder_start = start_and_end(tokenizer)[0] if decoder_start is None else decoder_start
    encode = _PairEncoder(tokenizer, source_limit, target_limit, decoder_start)
    features = map_rows(dataset, encode, f"Tokenizing {split}", num_proc, load_from_cache_file)
    limit = min((limit for limit in (source_limit, target_limit) if limit is not None), default=None)
    return warn_about_cuts(
        features, split, limit, "Raise max_seq_length to keep them, if both sides of the model take more."
    )


__all__ = ["TranslationData", "encode_translations", "find_translation_columns", "keys_of", "prepare_translation"]
