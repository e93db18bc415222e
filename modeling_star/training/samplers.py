"""The order in which training reads its examples."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch.utils.data import Sampler
from transformers.trainer_pt_utils import BatchRebalanceSampler, LengthGroupedSampler


class ShuffledLengthGroups(Sampler[int]):
    """
    Length-grouped batches in random order.

    transformers' own order runs from long to short within each 50 batches (seen in 5.23). If the length is related to
    the label, training then sees one label for many steps: on ChnSentiCorp, whose second longest tenth is positive in
    89 of 100 texts, the loss stays above chance for most of the first epoch.

    The order follows from the seed and the epoch alone, so that all processes, and a resumed run, have the same.

    Args:
        groups: transformers' sampler.
        seed: of the order.
        epoch: returns the current epoch; `set_epoch` does not reach a sampler in an epoch that several processes
            resume midway (seen in accelerate 1.15).
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
    Batches of texts of like length, each of at most so many tokens, padding included.

    Lengths are rounded up to powers of 1.1. Texts of one rounded length change their batches with every epoch, but the
    sorted lengths, and so the ends of the batches, never do: all epochs have as many batches, as Trainer and a resumed
    run expect. The order follows from the seed and the epoch alone, as in `ShuffledLengthGroups`.

    It is a `BatchRebalanceSampler` because Trainer takes one in place of batches of one size (seen in transformers
    5.23); nothing of its code is used.

    Args:
        lengths: of the texts, in tokens.
        max_tokens: of a batch. A longer text is a batch of its own.
        max_texts: of a batch.
        seed: of the order.
        epoch: returns the current epoch.
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
