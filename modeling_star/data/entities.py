"""Entities in a sequence of labels, of every tagging scheme."""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..models.tag_schemes import entity_tag, typed_labels
from ..models.word_marks import word_marker


if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def aggregation_for(tokenizer: "PreTrainedTokenizerBase") -> Literal["first", "simple"]:
    """The `aggregation_strategy`: "first" where words are cut into tokens, the first labelled, else "simple"."""
    return "simple" if word_marker(tokenizer) is None else "first"


def is_plain_iob(labels: Sequence[str]) -> bool:
    """Whether transformers' pipeline groups these labels correctly: O, B-x and I-x."""
    return all(label == "O" or (label[:2] in ("B-", "I-") and entity_tag(label)) for label in labels)


class EntityGroups:
    """
    Groups words with labels into entities. Where no label is O, as in parts of speech, every word is a group.

    Args:
        names: all labels, by their numbers.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.labels = typed_labels(names)
        # A type without a prefix continues over all neighbouring words that have it, as in transformers.
        bare = "I" if "O" in names else "S"
        self.tags = [entity_tag(label) or (bare, label) for label in self.labels]
        self.outside = names.index("O") if "O" in names else None
        self._index = {name: number for number, name in enumerate(names)}

    def numbers(self, labels: Sequence[str]) -> np.ndarray:
        """The numbers `[n]` of labels."""
        return np.array([self._index[label] for label in labels], dtype=np.int64)

    def bounds(self, labels: Sequence[int]) -> list[tuple[int, int]]:
        """The first word of each group, those of O included, and the one after its last."""
        firsts: list[int] = []
        open_kind: str | None = None
        for word, label in enumerate(labels):
            prefix, kind = self.tags[label]
            if prefix not in ("I", "E") or kind != open_kind:
                firsts.append(word)
            open_kind = kind if prefix in ("B", "I") else None
        return list(itertools.pairwise([*firsts, len(labels)]))

    def __call__(self, labels: np.ndarray, with_outside: bool = False) -> list[tuple[str, int, int]]:
        """Entities of labels `[n]`, words with O too if asked: type, first word, and the one after the last."""
        if not with_outside and (labels == self.outside).all():
            return []
        numbers = labels.tolist()
        groups = [(numbers[first], first, last) for first, last in self.bounds(numbers)]
        kept = [group for group in groups if with_outside or group[0] != self.outside]
        return [(self.kind(label), first, last) for label, first, last in kept]

    def kind(self, label: int) -> str:
        """The type of the entity that a label is of."""
        return self.labels[label].split("-", 1)[-1]
