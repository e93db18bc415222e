"""The ids that all systems of the benchmark read: full batches, or the lengths of real texts."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from harness.benchmark_options import Options
from modeling_star.data.lexicon import Lexicon
from modeling_star.data.readers import read_file
from modeling_star.data.writing_systems import HAN, KANA
from modeling_star.errors import UserError


WORD_LENGTH = 4  # tokens of BiG's longest word
FIRST_ID = 10  # ids below are special tokens
_WORD = re.compile(rf"[{HAN}{KANA}]|[^\s{HAN}{KANA}]+")


@dataclass(frozen=True)
class Workload:
    """
    Batches to run one after the other.

    Args:
        name: as in the tables, such as "8x512".
        batches: the tokens of each row of each batch.
        length: n, where all rows have as many tokens.
    """

    name: str
    batches: list[list[int]]
    length: int | None = None

    @property
    def tokens(self) -> int:
        """Real tokens, without padding."""
        return sum(map(sum, self.batches))

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(map(max, self.batches))

    @property
    def rows(self) -> int:
        """Rows of the largest batch."""
        return max(map(len, self.batches))

    @property
    def sequences(self) -> int:
        """Rows of all batches."""
        return sum(map(len, self.batches))


def parse_shape(text: str) -> Workload:
    """
    One full batch from "128x109", rows times tokens.

    Raises:
        UserError: it has another form.
    """
    match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
    if not match:
        raise UserError(f"--shapes has {text!r}; rows x tokens are needed, both at least 1. Write --shapes 128x109")
    rows, length = int(match[1]), int(match[2])
    return Workload(f"{rows}x{length}", [[length] * rows], length)


def read_lengths(path: Path) -> list[int]:
    """
    Tokens of each text of a file: one number a line, or the words of a data set's column `tokens` or `text`, in which
    each Chinese or Japanese character is one.

    Args:
        path: a text file, or .json, .jsonl, .csv, .parquet, .gz allowed. An empty text counts as one token.

    Raises:
        UserError: the file cannot be read, or holds no lengths.
    """
    if any(suffix in (".json", ".jsonl", ".csv", ".tsv", ".parquet") for suffix in path.suffixes[-2:]):
        data = read_file(path)
        column = next((name for name in ("tokens", "text") if name in data.column_names), None)
        if column is None:
            raise UserError(f"--lengths {path} has no column text or tokens: rename one of {data.column_names}")
        return [_count_words(value, column) for value in data[column]]
    try:
        lengths = [int(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise UserError(f"--lengths {path} cannot be read ({error}): write one length a line.") from error
    if not lengths or min(lengths) < 1:
        raise UserError(f"--lengths {path} has to hold lengths of 1 or more, one a line.")
    return lengths


def _count_words(value: Any, column: str) -> int:
    """Words of a text or a list, of Chinese and Japanese texts the characters; at least 1."""
    if isinstance(value, str):
        value = value.split() if column == "tokens" else _WORD.findall(value)
    return max(1, len(value or []))


def lengths_workload(paths: Sequence[Path], batch_size: int, truncate: int | None = None) -> Workload:
    """Batches in the files' order, a file's last batch being the rest."""
    batches = []
    for path in paths:
        lengths = [min(length, truncate or length) for length in read_lengths(path)]
        batches += [lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size)]
    first = paths[0].name
    return Workload(first if len(paths) == 1 else f"{first} and {len(paths) - 1} more", batches)


@lru_cache(maxsize=1)
def random_lexicon(words: int, vocab_size: int, seed: int) -> Lexicon:
    """`words` random words of 2 to 4 tokens, less those drawn twice."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(FIRST_ID, vocab_size, (words, WORD_LENGTH), generator=generator)
    lengths = torch.randint(2, WORD_LENGTH + 1, (words, 1), generator=generator)
    rows = rows.masked_fill(torch.arange(WORD_LENGTH) >= lengths, -1)
    return Lexicon("words", WORD_LENGTH, words=torch.unique(rows, dim=0))


def draw_ids(workload: Workload, options: Options) -> list[list[Tensor]]:
    """The ids of each row of each batch: words of the lexicon and single tokens in turn, cut at random places."""
    words = random_lexicon(options.lexicon_words, options.vocab_size, options.seed).words
    generator = torch.Generator().manual_seed(options.seed + 1)
    pairs = workload.tokens // 3 + 1  # a word and a token are three tokens at least
    chosen = words[torch.randint(len(words), (pairs,), generator=generator)]
    single = torch.randint(FIRST_ID, options.vocab_size, (pairs, 1), generator=generator)
    stream = torch.cat([chosen, single], dim=1).flatten()
    stream = stream[stream >= 0]
    rows = iter(stream[: workload.tokens].split([n for batch in workload.batches for n in batch]))
    return [[next(rows) for _ in batch] for batch in workload.batches]


def sub_batch_sizes(rows: int) -> list[int]:
    """Powers of two below `rows`."""
    return [2**power for power in range(rows.bit_length()) if 2**power < rows]
