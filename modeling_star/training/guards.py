"""
Guards against silent failure, on in every training run: each prints one line, or stops the run, only if there is a
reason.

Axes: R rows  n columns  k labels  T tokens of all rows
"""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ..models.tag_schemes import IGNORE_INDEX


logger = logging.getLogger(__name__)

# Shares above which a warning is printed. Most data sets have less; of ChnSentiCorp 28 % are repeated.
_REPEATED, _UNKNOWN, _MOSTLY_UNKNOWN = 0.1, 0.3, 0.1
_LONG, _TIMES_LONGER = 10_000, 50  # tokens of a row, and how many times those of half of the rows
_TOO_LONG = 100_000  # tokens of a row, whatever the others have


def is_finite(number: Any) -> bool:
    """Whether a logged value is neither NaN nor infinite, which JSON does not have."""
    return not isinstance(number, float) or math.isfinite(number)


def not_finite(numbers: Mapping[str, Any] | None, scores: Any = None) -> str | None:
    """The first loss that is NaN or infinite, in words; `None` if all are finite."""
    for name, value in (numbers or {}).items():
        if name.endswith("loss") and not is_finite(value):
            return f"{name} is {value}"
    arrays = scores if isinstance(scores, tuple) else (scores,)
    is_float = [isinstance(array, np.ndarray) and array.dtype.kind == "f" for array in arrays]
    if not all(np.isfinite(array).all() for array, checked in zip(arrays, is_float, strict=True) if checked):
        return "predictions are NaN or infinite"
    return None


def all_finite(tensors: Iterable[Tensor]) -> Tensor:
    """Whether no number of some tensors, sharded or not, is infinite or NaN: a bool on their device."""
    local = (x.to_local() if hasattr(x, "to_local") else x for x in tensors)
    parts = [x.detach().isfinite().all() for x in local if x.is_floating_point()]
    return torch.stack([part.to(parts[0].device) for part in parts]).all() if parts else torch.tensor(True)


def warn_about_majority(scores: np.ndarray, labels: np.ndarray, names: tuple[str, ...], split: str) -> None:
    """
    Warn about a model that is no better than the same label for everything, by logits `[R, k]` or `[R, n, k]` or
    predicted labels, and labels `[R]` or `[R, n]`, -100 where there is none.
    """
    predicted = scores.argmax(-1) if scores.ndim > labels.ndim else scores
    is_label = labels != IGNORE_INDEX
    counts = np.bincount(labels[is_label], minlength=1)
    share, accuracy = counts.max() / max(counts.sum(), 1), float((predicted == labels)[is_label].mean())
    if share == 1 and len(names) > 1:
        logger.warning(
            f"{split}: all {counts.sum():,} labels are {names[counts.argmax()]!r}, so that scores say nothing of "
            f"the other {len(names) - 1}: name a --{split.split('_')[0]}_file with all labels, or add rows of these."
        )
    if accuracy <= share < 1:
        logger.warning(
            f"{split}: the accuracy {accuracy:.3f} is not above the {share:.3f} of always predicting "
            f"{names[counts.argmax()]!r}; the model has learned little. Add rows, or train an encoder longer."
        )


def warn_about_overlap(splits: Mapping[str, Dataset], columns: Iterable[str], held_out: bool = False) -> None:
    """Warn about texts of validation and test that are in train too; `held_out`: validation was taken from train."""

    def hashes(rows: Dataset) -> Iterator[int]:
        for batch in rows.select_columns(list(columns)).iter(1000):
            yield from (hash(str(cells)) for cells in zip(*batch.values(), strict=True))

    if "train" not in splits:  # or streamed
        return
    scored = {split: list(hashes(rows)) for split, rows in splits.items() if split.startswith(("validation", "test"))}
    repeated = set().union(*scored.values()).intersection(hashes(splits["train"]))
    for split, rows in scored.items():
        count = sum(row in repeated for row in rows)
        if count > _REPEATED * len(rows):
            other = "" if held_out and split == "validation" else f", or name another --{split.split('_')[0]}_file"
            logger.warning(
                f"{split}: {count:,} of {len(rows):,} texts ({count / len(rows):.1%}) are in train too, so that its "
                f"scores are too high: remove them from train{other}."
            )


def warn_about_tokens(
    features: Any, tokenizer: PreTrainedTokenizerBase, split: str, numbers: Sequence[int] | None = None
) -> None:
    """
    Warn about a row that is far longer than others, and about a split, or many of its texts, that the tokenizer reads
    as unknown tokens; `numbers` are those of the rows in the data as given, from 0.
    """
    features = getattr(features, "pieces", features)
    if not isinstance(features, Dataset) or "input_ids" not in features.column_names or not len(features):
        return
    rows = features.select_columns("input_ids").with_format("arrow")[:].column(0).combine_chunks()
    ends = rows.offsets.to_numpy() - rows.offsets[0].as_py()
    lengths = np.diff(ends)
    median, longest = int(np.median(lengths)), int(lengths.argmax())
    if lengths[longest] > min(max(_LONG, _TIMES_LONGER * median), _TOO_LONG):
        row = longest if numbers is None else numbers[longest]
        logger.warning(
            f"{split}: row {row + 1:,} has {lengths[longest]:,} tokens, and half of the rows at most {median:,}. The "
            "memory and the time of its batch grow with it: write --max_seq_length 512, or omit the row."
        )
    if tokenizer.unk_token_id is None:
        return
    unknown = rows.flatten().to_numpy(zero_copy_only=False) == tokenizer.unk_token_id  # [T]
    counts = np.diff(np.concatenate([[0], unknown.cumsum()])[ends])
    words = np.maximum(lengths - tokenizer.num_special_tokens_to_add(), 1)
    share, mostly = counts.sum() / max(words.sum(), 1), int((counts > words / 2).sum())
    if share > _UNKNOWN or mostly > _MOSTLY_UNKNOWN * len(words):
        logger.warning(
            f"{split}: {share:.1%} of the tokens are {tokenizer.unk_token}, and {mostly:,} of {len(words):,} texts "
            "are mostly unknown. Use the tokenizer of these texts' language and case, --tokenizer_name or "
            "--tokenizer_kind, or raise --vocab_size."
        )
