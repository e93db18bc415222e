"""What the benchmark is asked for, and the ids that all systems read: full batches, or the lengths of real texts."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import AutoConfig

from modeling_star.data.readers import read_file
from modeling_star.data.writing_systems import HAN, KANA
from modeling_star.errors import UserError
from modeling_star.models.configuration_base import did_you_mean
from modeling_star.models.lexicon import Lexicon


Mode = Literal["forward", "train"]
Batch = list[tuple[Tensor, Tensor | None]]  # sub-batches: ids [b, n], and their mask where there is padding

WORD_LENGTH = 4  # tokens of BiG's longest word
BLOCK = 1024  # tokens whose products are done at once in the lower bound
WINDOW = 128  # local attention of longformer and modernbert
_WORD = re.compile(rf"[{HAN}{KANA}]|[^\s{HAN}{KANA}]+")
_SEEDS = 2**63 - 1  # torch has one more; the ids are drawn with the next
FIRST_ID = 10  # ids below are special tokens
# FNet has no mask; nystromformer's does not fit its landmarks in transformers 5.23 (beyond 64 columns).
UNMASKED = ("fnet", "nystromformer")

OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {"position_embedding_type": "ring"}),
    "big": ("big_transformer", {"max_word_length": WORD_LENGTH}),
    "vanilla": ("vanilla_transformer", {"position_embedding_type": "sinusoidal"}),
    "disan": ("disan", {}),
    "bilstm": ("bilstm", {}),
}
SYSTEMS = (*OWN, "products", "matching", "bert-sdpa", "bert-eager", "fnet", "longformer", "nystromformer")
SYSTEMS = (*SYSTEMS, "modernbert", "reformer", "big_bird")
"""Systems by name; others are named as transformers names them, with -sdpa or -eager for the kind of attention."""
IN_ONNX = "-onnx"  # behind a system's name: the same one, run by ONNX Runtime


@dataclass(frozen=True)
class Options:
    """
    What is measured, and how.

    Args:
        systems: names as in `SYSTEMS`, or TYPE, TYPE-sdpa, TYPE-eager with a model type of transformers; each also
            with -onnx.
        reference: the first of these that is among `systems` and runs is what the others are compared with; where
            none does, the first of `systems` that runs.
        mode: "forward" in eval mode without gradients, or "train": forward, backward and an AdamW step.
        hidden_size, num_layers, num_heads, vocab_size: of every system.
        lexicon_words: words of BiG's lexicon, and of the matching alone.
        repeats: rounds over all systems after the warm-up, whose median is told.
        max_seconds: a system that takes longer for one pass is not asked for another.
        threads: of PyTorch; `None` leaves what is set.
        device, dtype, compile: where and how the models run.
        own_best_batch: also cut each batch into sub-batches of 1, 2, 4, ... rows, and tell each system's best.
        memory: measure peak memory; on the CPU in a process for each system.
        max_memory: GB that the process may take on top of what it has, on the CPU, for the models of all systems and
            the pass of one; `None`: no limit.
        seed: of weights, ids and lexicon.

    Raises:
        UserError: a value that is not allowed, or an unknown system.
    """

    systems: tuple[str, ...] = ("star", "big", "bert-sdpa")
    reference: tuple[str, ...] = ("bert-sdpa",)
    mode: Mode = "forward"
    hidden_size: int = 300
    num_layers: int = 2
    num_heads: int = 6
    vocab_size: int = 30522
    lexicon_words: int = 350_000
    repeats: int = 5
    max_seconds: float = 60.0
    threads: int | None = None
    device: str = "cpu"
    dtype: str = "float32"
    compile: bool = False
    own_best_batch: bool = False
    memory: bool = False
    max_memory: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = ("hidden_size", "num_layers", "num_heads", "lexicon_words", "repeats", "threads")
        for name in (*whole, "max_seconds", "max_memory"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise UserError(f"--{name} {value} is given; more than 0 is needed, and an end.")
        if not 0 <= self.seed < _SEEDS:
            raise UserError(f"--seed {self.seed} is given; whole numbers from 0 to 2^63 - 2 are allowed: --seed 0")
        if self.hidden_size % self.num_heads:
            divisors = [heads for heads in range(1, 65) if self.hidden_size % heads == 0]
            raise UserError(
                f"--hidden_size {self.hidden_size} is not a multiple of --num_heads {self.num_heads}: write one of "
                f"--num_heads {', '.join(map(str, divisors))}"
            )
        if self.vocab_size <= FIRST_ID + 1:
            raise UserError(f"--vocab_size {self.vocab_size} is given; more than {FIRST_ID + 1} is needed.")
        allowed = {"mode": get_args(Mode), "dtype": ("float32", "bfloat16")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise UserError(f"--{name} {getattr(self, name)} is given; {' and '.join(values)} are allowed.")
        if not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise UserError(f"--device {self.device} is given; cpu, cuda and cuda:1 are allowed.")
        if self.on_gpu and not torch.cuda.is_available():
            raise UserError(f"--device {self.device} is given, and PyTorch sees no GPU here: write --device cpu")
        if self.max_memory is not None and not sys.platform.startswith("linux"):
            raise UserError("--max_memory is given, which only Linux can limit: leave it out.")
        onnx = next((name for name in self.systems if name.endswith(IN_ONNX)), None)
        if onnx and (self.mode, self.device, self.dtype) != ("forward", "cpu", "float32"):
            raise UserError(
                f"--systems {onnx}: ONNX Runtime is measured with --mode forward --device cpu --dtype float32"
            )
        if not self.systems:
            raise UserError("--systems is empty: write --systems star bert-sdpa")
        for flag, names in (("systems", self.systems), ("reference", self.reference)):
            for name in names:
                _check_system(flag, name)
        for name in ("disan", "bilstm"):
            if name in self.systems and self.hidden_size % 2:
                raise UserError(
                    f"{name} has two halves, and --hidden_size {self.hidden_size} is odd: write an even one."
                )

    @property
    def references(self) -> list[str]:
        """What the others may be compared with: the first that runs is."""
        return [*(name for name in self.reference if name in self.systems), *self.systems]

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def compiles(self) -> bool:
        """Whether a first pass compiles something: torch.compile, or the kernels of a GPU."""
        return self.compile or self.on_gpu


def _check_system(flag: str, name: str) -> None:
    name = name.removesuffix(IN_ONNX)
    if name in SYSTEMS:
        return
    try:
        AutoConfig.for_model(model_type_of(name)[0])
    except (ValueError, StrictDataclassError):  # there is none, or one without defaults
        raise UserError(
            f"--{flag} names {name}, which is unknown, or has no default shape: {', '.join(SYSTEMS)}, or a model type "
            f"of transformers such as roberta, roberta-sdpa, roberta-eager, each also with {IN_ONNX} behind it."
            f"{did_you_mean(name, list(SYSTEMS))}"
        ) from None


def model_type_of(name: str) -> tuple[str, str | None]:
    """ "bert-eager" is the model type "bert" with attention "eager"."""
    found = re.fullmatch(r"(.+)-(sdpa|eager)", name)
    return (found[1], found[2]) if found else (name, None)


# What the systems read


@dataclass(frozen=True)
class Workload:
    """
    Batches to run one after the other.

    Args:
        name: as told in the tables, such as "8x512".
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
        return max(map(max, self.batches))

    @property
    def rows(self) -> int:
        """Rows of the largest batch."""
        return max(map(len, self.batches))

    @property
    def sequences(self) -> int:
        return sum(map(len, self.batches))


def parse_shape(text: str) -> Workload:
    """
    One full batch from "128x109", rows times tokens.

    Raises:
        UserError: it is not of that form.
    """
    found = re.fullmatch(r"(\d+)[x×](\d+)", text.strip())
    if not found or not int(found[1]) or not int(found[2]):
        raise UserError(
            f"--shapes has {text!r}; rows x tokens are needed, both at least 1: write --shapes 128x109 8x512"
        )
    rows, length = int(found[1]), int(found[2])
    return Workload(f"{rows}x{length}", [[length] * rows], length)


def read_lengths(path: str | Path) -> list[int]:
    """
    Tokens of each text of a file: one number a line, or the words of a data set's column `tokens` or `text`, in which
    each Chinese or Japanese character is one.

    Args:
        path: a text file, or .json, .jsonl, .csv, .parquet, .gz allowed. An empty text counts as one token.

    Raises:
        UserError: there is no such file, or nothing in it.
        UserError: a line is no number of 1 or more, or the data set has neither column.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"--lengths {path} does not exist: name a file with one length a line, or a .jsonl file.")
    if any(suffix in (".json", ".jsonl", ".csv", ".tsv", ".parquet") for suffix in path.suffixes[-2:]):
        data = read_file(path)
        for column in ("tokens", "text"):
            if column in data.column_names:
                return [_words(value, path, column) for value in data[column]]
        raise UserError(
            f"--lengths {path} has the columns {', '.join(data.column_names)}; text or tokens is needed: rename one, "
            "or write a file with one length a line."
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"--lengths {path} is not UTF-8 text ({error}): write one length a line.") from error
    lengths = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and (not line.isdecimal() or int(line) < 1):
            raise UserError(
                f"--lengths {path}, line {number}: {line[:40]!r} is no length; a whole number of 1 or more is needed: "
                "write 17. A data set ends in .jsonl or .jsonl.gz"
            )
        if line:
            lengths.append(int(line))
    if not lengths:
        raise UserError(f"--lengths {path} holds no lengths: write one a line.")
    return lengths


def _words(value: Any, path: Path, column: str) -> int:
    """Words of a text, of Chinese and Japanese ones the characters, or of a list of them; at least 1."""
    if isinstance(value, str):
        value = value.split() if column == "tokens" else _WORD.findall(value)
    if value is not None and not isinstance(value, list):
        raise UserError(f"--lengths {path} has {value!r} in its column {column}; a text or a list of words is needed.")
    return max(1, len(value or []))


def lengths_workload(paths: Sequence[str | Path], batch_size: int, truncate: int | None = None) -> Workload:
    """
    Batches in the files' order, a file's last batch being what is left.

    Raises:
        UserError: `batch_size` or `truncate` is below 1; as in `read_lengths`.
    """
    for name, value in (("batch_size", batch_size), ("truncate", truncate)):
        if value is not None and value < 1:
            raise UserError(f"--{name} {value} is given; at least 1 is needed.")
    batches = []
    for path in paths:
        lengths = [min(length, truncate or length) for length in read_lengths(path)]
        batches += [lengths[start : start + batch_size] for start in range(0, len(lengths), batch_size)]
    first = Path(paths[0]).name
    return Workload(first if len(paths) == 1 else f"{first} and {len(paths) - 1} more", batches)


@lru_cache(maxsize=1)
def random_lexicon(words: int, vocab_size: int, seed: int) -> Lexicon:
    """`words` random words of 2 to 4 tokens, less those drawn twice."""
    draw = torch.Generator().manual_seed(seed)
    rows = torch.randint(FIRST_ID, vocab_size, (words, WORD_LENGTH), generator=draw)
    lengths = torch.randint(2, WORD_LENGTH + 1, (words, 1), generator=draw)
    rows = rows.masked_fill(torch.arange(WORD_LENGTH) >= lengths, -1)
    return Lexicon("words", WORD_LENGTH, words=torch.unique(rows, dim=0))


def draw_ids(workload: Workload, options: Options) -> list[list[Tensor]]:
    """The ids of each row of each batch: words of the lexicon and single tokens in turn, where chance cuts them."""
    words = random_lexicon(options.lexicon_words, options.vocab_size, options.seed).words
    draw = torch.Generator().manual_seed(options.seed + 1)
    pieces = workload.tokens // 3 + 1  # a word and a token are three tokens at least
    chosen = words[torch.randint(len(words), (pieces,), generator=draw)]
    single = torch.randint(FIRST_ID, options.vocab_size, (pieces, 1), generator=draw)
    stream = torch.cat([chosen, single], dim=1).flatten()
    stream = stream[stream >= 0]
    parts = iter(stream[: workload.tokens].split([n for batch in workload.batches for n in batch]))
    return [[next(parts) for _ in batch] for batch in workload.batches]


def sub_batch_sizes(rows: int) -> list[int]:
    """Powers of two below `rows`."""
    return [2**power for power in range(rows.bit_length()) if 2**power < rows]
