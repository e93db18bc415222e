"""
Batches of rows of token ids for a `Predictor`, those of similar length together.

Axes: b rows  n columns
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

# Of a batch, padding included: a limit on memory, and on what a processor's caches must hold.
_TOKENS_AT_ONCE = 8192
_LONG = 50_000  # tokens of a text that has a warning: 12 kB each at a width of 300

Outputs = Mapping[str, np.ndarray]
Batch = tuple[list[int], np.ndarray, tuple[np.ndarray, ...]]
"""The rows of a batch, the mask `[b, n]` of their tokens, and what was made of the outputs."""


def check_ids(rows: Iterable[Sequence[int]], config: Any) -> None:
    """Raise a UserError where the embeddings of a model lack a token, as of a tokenizer that is another model's."""
    count, highest = getattr(config, "vocab_size", None), max((max(ids, default=0) for ids in rows), default=0)
    if count is not None and highest >= count:
        raise UserError(
            f"The tokenizer gives the token id {highest}, and the model embeds {count} tokens: copy the model's own "
            "tokenizer.json and tokenizer_config.json into its folder."
        )


def run_in_batches(
    columns: Mapping[str, Sequence[Any]],
    tokenizer: "PreTrainedTokenizerBase",
    batch_size: int,
    run_model: Callable[..., Outputs],
    reduce: Callable[[Outputs], tuple[np.ndarray, ...]],
    map_batches: Callable[..., Iterator[Any]],
) -> Iterator[Batch]:
    """Batches of rows of token ids, short ones first; `reduce` makes of the outputs what is kept of them."""
    fillers = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
    names = [name for name in fillers if name in columns and name in tokenizer.model_input_names]
    lengths = [len(ids) for ids in columns["input_ids"]]
    if (longest := max(lengths, default=0)) > _LONG:
        logger.warning(
            f"A text has {longest:,} tokens, and memory and time grow with it: divide it, or train with "
            "--max_seq_length 512."
        )
    unknown = [list(ids).count(tokenizer.unk_token_id) > (len(ids) - 2) / 2 > 0 for ids in columns["input_ids"]]
    if tokenizer.unk_token_id is not None and sum(unknown) > len(unknown) / 2:
        logger.warning(
            f"{sum(unknown):,} of {len(unknown):,} texts are mostly unknown to the tokenizer, and predictions of them "
            "mean nothing: use a model that was trained on texts of this language."
        )

    def run(batch: list[int]) -> Batch:
        counts = np.array([lengths[row] for row in batch])
        mask = np.arange(counts.max()) < counts[:, None]
        if tokenizer.padding_side == "left":
            mask = mask[:, ::-1]
        inputs = {"attention_mask": mask.astype(np.int64)}
        for name in names:
            inputs[name] = np.full(mask.shape, fillers[name])
            inputs[name][mask] = np.concatenate([columns[name][row] for row in batch])
        return batch, mask, reduce(run_model(**inputs))

    return map_batches(run, length_sorted_batches(lengths, batch_size))


def length_sorted_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Batches of rows with some lengths, short ones first; with fewer than `batch_size` rows where they are long."""
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) == batch_size or lengths[row] * (len(batch) + 1) > _TOKENS_AT_ONCE):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch
