"""Encoders side by side: time, tokens per second and peak memory of a forward pass or a training step.

All systems get the same random ids and run interleaved in one process, so that what disturbs the machine disturbs
all of them. `run_scripts/benchmark.py` is the command line.

Axes: b batch  n columns  d width  T layers
"""

import csv
import gc
import io
import json
import math
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from tqdm import tqdm
from transformers import AutoConfig, AutoModel

from .. import __version__
from ..configuration_encoder import did_you_mean
from ..lexicon import Lexicon
from .data_files import DataError, DataFileError, read_file
from .reports import BLUE, GREEN, ORANGE, markdown_table, plot_over_length, write_text


Mode = Literal["forward", "train"]
Batch = list[tuple[Tensor, Tensor | None]]  # sub-batches: ids [b, n], and their mask where there is padding

WORD_LENGTH = 4  # tokens of BiG's longest word
BLOCK = 1024  # tokens whose products are done at once in the lower bound
WINDOW = 128  # local attention of longformer and modernbert
FIRST_ID = 10  # ids below are special tokens
# FNet has no mask; nystromformer's does not fit its landmarks in transformers 5.23 (beyond 64 columns).
UNMASKED = ("fnet", "nystromformer")

OWN: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {"position_embedding_type": "ring"}),
    "big": ("big_transformer", {"max_word_length": WORD_LENGTH}),
    "vanilla": ("vanilla_transformer", {"position_embedding_type": "sinusoidal"}),
}
SYSTEMS = (*OWN, "products", "bilstm", "bert-sdpa", "bert-eager", "fnet", "longformer", "nystromformer", "modernbert")
SYSTEMS = (*SYSTEMS, "reformer", "big_bird")
"""Systems by name; others are named as transformers names them, with -sdpa or -eager for the kind of attention."""

COLORS = {"star": BLUE, "big": ORANGE, "vanilla": GREEN, "products": "#888888"}


@dataclass(frozen=True)
class Options:
    """
    What is measured, and how.

    Args:
        systems: names as in `SYSTEMS`, or TYPE, TYPE-sdpa, TYPE-eager with a model type of transformers.
        reference: the first of these that is among `systems` is what the others are compared with.
        mode: "forward" in eval mode without gradients, or "train": forward, backward and an AdamW step.
        hidden_size, num_layers, num_heads, vocab_size: of every system.
        lexicon_words: words of BiG's lexicon.
        repeats: rounds over all systems after the warm-up, whose median is told.
        max_seconds: a system that takes longer for one pass is not asked for another.
        threads: of PyTorch; `None` leaves what is set.
        device, dtype, compile: where and how the models run.
        own_best_batch: also cut each batch into sub-batches of 1, 2, 4, ... rows, and tell each system's best.
        memory: measure peak memory; on the CPU in a process for each system.
        max_memory: GB that the process may take on top of what it has, on the CPU; `None`: no limit.
        seed: of weights, ids and lexicon.

    Raises:
        DataError: a value that is not allowed, or an unknown system.
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
            if value is not None and value <= 0:
                raise DataError(f"--{name} {value} is given; more than 0 is needed.")
        if self.hidden_size % self.num_heads:
            divisors = [heads for heads in range(1, 65) if self.hidden_size % heads == 0]
            raise DataError(
                f"--hidden_size {self.hidden_size} is not a multiple of --num_heads {self.num_heads}: write one of "
                f"--num_heads {', '.join(map(str, divisors))}"
            )
        if self.vocab_size <= FIRST_ID + 1:
            raise DataError(f"--vocab_size {self.vocab_size} is given; more than {FIRST_ID + 1} is needed.")
        allowed = {"mode": get_args(Mode), "dtype": ("float32", "bfloat16")}
        for name, values in allowed.items():
            if getattr(self, name) not in values:
                raise DataError(f"--{name} {getattr(self, name)} is given; {' and '.join(values)} are allowed.")
        if torch.device(self.device).type == "cuda" and not torch.cuda.is_available():
            raise DataError(f"--device {self.device} is given, and PyTorch sees no GPU here: write --device cpu")
        if self.max_memory is not None and not sys.platform.startswith("linux"):
            raise DataError("--max_memory is given, which only Linux can limit: leave it out.")
        if not self.systems:
            raise DataError("--systems is empty: write --systems star bert-sdpa")
        for name in self.systems:
            _check_system(name)
        if "bilstm" in self.systems and self.hidden_size % 2:
            raise DataError(f"bilstm has two halves, and --hidden_size {self.hidden_size} is odd: write an even one.")

    @property
    def compared_with(self) -> str:
        """The system that the others are compared with: the first reference that runs, else the first system."""
        return next((name for name in self.reference if name in self.systems), self.systems[0])


def _check_system(name: str) -> None:
    if name in SYSTEMS:
        return
    try:
        AutoConfig.for_model(_model_type(name)[0])
    except ValueError:
        raise DataError(
            f"--systems names {name}, which is unknown: {', '.join(SYSTEMS)}, or a model type of transformers such as "
            f"roberta, roberta-sdpa, roberta-eager.{did_you_mean(name, list(SYSTEMS))}"
        ) from None


def _model_type(name: str) -> tuple[str, str | None]:
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
        DataError: it is not of that form.
    """
    found = re.fullmatch(r"(\d+)[x×](\d+)", text.strip())
    if not found or not int(found[1]) or not int(found[2]):
        raise DataError(
            f"--shapes has {text!r}; rows x tokens are needed, both at least 1: write --shapes 128x109 8x512"
        )
    rows, length = int(found[1]), int(found[2])
    return Workload(f"{rows}x{length}", [[length] * rows], length)


def read_lengths(path: str | Path) -> list[int]:
    """
    Tokens of each text of a file: one number a line, or the words of a data set's column `tokens` or `text`.

    Args:
        path: a text file, or .json, .jsonl, .csv, .parquet, .gz allowed. An empty text counts as one token.

    Raises:
        DataFileError: there is no such file, or nothing in it.
        DataError: a line is no number of 1 or more, or the data set has neither column.
    """
    path = Path(path)
    if not path.is_file():
        raise DataFileError(f"--lengths {path} does not exist: name a file with one length a line, or a .jsonl file.")
    if any(suffix in (".json", ".jsonl", ".csv", ".tsv", ".parquet") for suffix in path.suffixes[-2:]):
        data = read_file(path)
        for column, count in (("tokens", len), ("text", lambda text: len(text.split()))):
            if column in data.column_names:
                return [max(1, count(value or "")) for value in data[column]]
        raise DataError(
            f"--lengths {path} has the columns {', '.join(data.column_names)}; text or tokens is needed: rename one, "
            "or write a file with one length a line."
        )
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise DataError(f"--lengths {path} is not UTF-8 text ({error}): write one length a line.") from error
    lengths = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if line and (not line.isdecimal() or int(line) < 1):
            raise DataError(
                f"--lengths {path}, line {number}: {line[:40]!r} is no length; a whole number of 1 or more is needed: "
                "write 17. A data set ends in .jsonl or .jsonl.gz"
            )
        if line:
            lengths.append(int(line))
    if not lengths:
        raise DataFileError(f"--lengths {path} holds no lengths: write one a line.")
    return lengths


def lengths_workload(paths: Sequence[str | Path], batch_size: int, truncate: int | None = None) -> Workload:
    """
    Batches in the files' order, a file's last batch being what is left.

    Raises:
        DataError: `batch_size` or `truncate` is below 1; as in `read_lengths`.
    """
    for name, value in (("batch_size", batch_size), ("truncate", truncate)):
        if value is not None and value < 1:
            raise DataError(f"--{name} {value} is given; at least 1 is needed.")
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


# The systems


class BiLSTM(nn.Module):
    """Embeddings and T bidirectional LSTM layers over packed sequences; both directions together are d wide."""

    def __init__(self, options: Options):
        super().__init__()
        self.embeddings = nn.Embedding(options.vocab_size, options.hidden_size)
        width = options.hidden_size
        self.lstm = nn.LSTM(width, width // 2, options.num_layers, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """`[b, n]` to `[b, n, d]`."""
        embedded = self.embeddings(ids)
        if mask is None:
            return self.lstm(embedded)[0]
        packed = pack_padded_sequence(embedded, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=ids.shape[1])[0]


class Products(nn.Module):
    """
    The Star-Transformer's matrix products alone, as many as it has for each token: (6 T - 2) d^2.

    The first layer has 4 d^2 (query, key and value, output); each other one also keys and values of the embeddings.
    In a training step a product is done three times: itself, and the gradients of its input and of its weight.
    """

    def __init__(self, options: Options):
        super().__init__()
        d = options.hidden_size
        widths = [1, 2, 1] + [1, 2, 2, 1] * (options.num_layers - 1)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(d * m, d) / math.sqrt(d)) for m in widths)
        self.embeddings = nn.Embedding(1, d)  # rows of one value: the products do not read what they multiply

    @torch.no_grad()
    def forward(self, ids: Tensor, mask: Tensor | None = None) -> None:
        """Work on as many rows as `ids` `[b, n]` has tokens that are no padding."""
        for rows in self._blocks(ids, mask):
            for weight in self.weights:
                nn.functional.linear(rows, weight)

    @torch.no_grad()
    def step(self, ids: Tensor, mask: Tensor | None) -> None:
        """The products of forward and backward, without an optimizer."""
        for rows in self._blocks(ids, mask):
            for weight in self.weights:
                gradient = nn.functional.linear(rows, weight)
                torch.mm(gradient, weight)
                torch.mm(gradient.t(), rows)

    def _blocks(self, ids: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        tokens = ids.numel() if mask is None else int(mask.sum())
        block = self.embeddings.weight.expand(min(BLOCK, tokens), -1).contiguous()
        for start in range(0, tokens, BLOCK):
            yield block[: tokens - start]


def build(name: str, options: Options, longest: int) -> nn.Module:
    """
    A system with fresh weights that takes up to `longest` tokens.

    Raises:
        ValueError: the configuration of that kind of model does not allow the sizes.
    """
    torch.manual_seed(options.seed)
    if name in ("products", "bilstm"):
        return Products(options) if name == "products" else BiLSTM(options)
    if name in OWN:
        model_type, special = OWN[name]
        config = AutoConfig.for_model(model_type, **_sizes(options), **special)
        model = AutoModel.from_config(config)
        if name == "big":
            model.set_lexicon(random_lexicon(options.lexicon_words, options.vocab_size, options.seed))
        return model
    model_type, attention = _model_type(name)
    width = padded_width(name, longest)
    config = AutoConfig.for_model(
        model_type,
        **{
            **_sizes(options),
            # what some of them pad to, and RoBERTa's positions, which begin at 2
            "max_position_embeddings": width + WINDOW + 2,
            "intermediate_size": 4 * options.hidden_size,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            **_special_fields(model_type, options, width),
        },
    )
    given = (config.hidden_size, config.num_hidden_layers)
    if given != (options.hidden_size, options.num_layers):
        raise ValueError(f"{model_type} does not take the asked width and depth: it has {given}.")
    return AutoModel.from_config(config, **({"attn_implementation": attention} if attention else {}))


def _sizes(options: Options) -> dict[str, int]:
    return {
        "vocab_size": options.vocab_size,
        "hidden_size": options.hidden_size,
        "num_hidden_layers": options.num_layers,
        "num_attention_heads": options.num_heads,
    }


def _special_fields(model_type: str, options: Options, width: int) -> dict[str, Any]:
    """What a kind of model needs besides the sizes to be as wide and deep as the others, and local where it can be."""
    d, layers = options.hidden_size, options.num_layers
    if model_type == "longformer":
        return {"attention_window": WINDOW}
    if model_type == "nystromformer":
        # landmarks are means over equal segments of one fixed length
        return {"segment_means_seq_len": width, "num_landmarks": 64}
    if model_type == "modernbert":
        # gated: with two thirds of the width, as many weights as the others have
        return {
            "layer_types": ["sliding_attention"] * layers,
            "local_attention": WINDOW,
            "intermediate_size": 8 * d // 3,
        }
    if model_type == "reformer":
        # transformers' own rule for the buckets, which it applies to the first input it sees
        power = max(2 * (width // 64), 2).bit_length() - 1
        return {
            "attn_layers": [("lsh", "local")[layer % 2] for layer in range(layers)],
            "attention_head_size": d // options.num_heads,
            "feed_forward_size": 4 * d,
            "axial_pos_embds": False,
            "is_decoder": False,
            "num_buckets": 2**power if power <= 7 else [2 ** (power // 2), 2 ** (power - power // 2)],
        }
    return {}


def padded_width(name: str, width: int) -> int:
    """Columns that a system needs for `width` tokens; nystromformer and reformer take multiples of 64."""
    return -(-width // 64) * 64 if name in ("nystromformer", "reformer") else width


class Subject:
    """
    A system on its device, ready for passes.

    Args:
        name: of `SYSTEMS`.
        options: how it runs.
        longest: tokens of the longest row.
    """

    def __init__(self, name: str, options: Options, longest: int):
        self.name, self.options, self.longest = name, options, longest
        model = build(name, options, longest).to(options.device, getattr(torch, options.dtype))
        self.model = model.train(options.mode == "train")
        self.call = torch.compile(self.model) if options.compile and name != "products" else self.model
        self.optimizer: torch.optim.Optimizer | None = None
        if options.mode == "train" and name != "products":
            try:
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True)
            except RuntimeError:
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def prepare(self, ids: list[list[Tensor]], rows: int) -> list[Batch]:
        """Batches in sub-batches of `rows` rows, each padded to its longest row, on the device."""
        return [[self._padded(batch[start : start + rows]) for start in range(0, len(batch), rows)] for batch in ids]

    def _padded(self, rows: list[Tensor]) -> tuple[Tensor, Tensor | None]:
        longest = max(map(len, rows))
        # nystromformer is built for one width
        width = padded_width(self.name, self.longest if self.name == "nystromformer" else longest)
        ids = nn.functional.pad(pad_sequence(rows, batch_first=True), (0, width - longest)).to(self.options.device)
        mask = (ids != 0).long()
        return ids, None if all(len(row) == width for row in rows) else mask

    def run(self, batches: list[Batch]) -> None:
        """
        One pass over all batches. Training makes one step a batch, over the gradients of its sub-batches.

        Raises:
            Exception: whatever the system raises where it cannot take the shape.
        """
        for batch in batches:
            for ids, mask in batch:
                if self.options.mode == "forward":
                    with torch.no_grad():
                        self._states(ids, mask)
                elif isinstance(self.model, Products):
                    self.model.step(ids, mask)
                else:
                    # the sum of squares over a constant, so that bfloat16 can hold it
                    self._states(ids, mask).square().mean().backward()
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad()
        if torch.device(self.options.device).type == "cuda":
            torch.cuda.synchronize()

    def _states(self, ids: Tensor, mask: Tensor | None) -> Any:
        if isinstance(self.model, (BiLSTM, Products)):
            return self.call(ids, mask)
        masked = {} if mask is None or self.name in UNMASKED else {"attention_mask": mask}
        return self.call(input_ids=ids, **masked).last_hidden_state


# Measuring


@dataclass(frozen=True)
class Timing:
    """Seconds of each measured pass, or why there is none."""

    seconds: tuple[float, ...] = ()
    error: str = ""


def interleave(
    passes: Mapping[Any, Callable[[], object]],
    repeats: int,
    max_seconds: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    tick: Callable[[int], object] = lambda count: None,
) -> dict[Any, Timing]:
    """
    Time passes in rounds: each once to warm up, then all in turn, `repeats` times.

    Args:
        passes: what to run, by name; one that raises is not run again, and keeps the first line of its error.
        max_seconds: one whose warm-up took longer keeps that as its only measurement.
        clock: seconds.
        tick: told how many of `repeats + 1` passes are done or will not be.

    Returns:
        A `Timing` for each name, in their order.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in passes}
    errors: dict[Any, str] = {}
    due = dict(passes)
    for turn in range(repeats + 1):
        for name, run in list(due.items()):
            start = clock()
            try:
                run()
            except Exception as error:
                errors[name] = first_line(error)
            taken = clock() - start
            slow = turn == 0 and taken > max_seconds
            if name in errors or slow:
                del due[name]
            if name not in errors and (turn or slow):
                seconds[name].append(taken)
            tick(1 if name in due else repeats + 1 - turn)
    return {name: Timing(() if name in errors else tuple(seconds[name]), errors.get(name, "")) for name in passes}


def first_line(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])[:200]


@dataclass
class Result:
    """
    A row of results.csv.

    Args:
        workload, length, sequences, tokens: what was read; `length` is None where rows differ.
        system: its name.
        batching: "whole", batches as they are, or "best", in the sub-batches that this system is fastest with.
        rows: rows of a (sub-)batch.
        passes: how many were measured.
        milliseconds: the median; None where the system cannot run this, as `error` tells.
        tokens_per_second, microseconds_per_token: over real tokens.
        speed: how many times as fast as the reference.
        of_products: time as a multiple of that of the products alone.
        megabytes: peak memory of a pass on top of what was held before it (weights; in training also AdamW's state).
        error: why there is no number.
    """

    workload: str
    length: int | None
    sequences: int
    tokens: int
    system: str
    batching: str
    rows: int
    passes: int = 0
    milliseconds: float | None = None
    tokens_per_second: float | None = None
    microseconds_per_token: float | None = None
    speed: float | None = None
    of_products: float | None = None
    megabytes: float | None = None
    error: str = ""


def summarize(workload: Workload, timings: Mapping[tuple[str, int], Timing], reference: str) -> list[Result]:
    """
    Medians and ratios.

    Args:
        workload: what was read.
        timings: by system and rows of a sub-batch; as many as the largest batch has are whole batches.
        reference: the system to compare with; it is compared whole with whole, and best with best.

    Returns:
        A row for each system, "whole"; and where there are sub-batches, a second one, "best".
    """
    whole = {system: (rows, timing) for (system, rows), timing in timings.items() if rows == workload.rows}
    tables = {"whole": whole}
    if len(timings) > len(whole):
        best: dict[str, tuple[int, Timing]] = {}
        for (system, rows), timing in timings.items():
            if timing.seconds and (system not in best or _median(timing) < _median(best[system][1])):
                best[system] = (rows, timing)
        tables["best"] = {system: best.get(system, whole[system]) for system in whole}
    results = []
    for batching, table in tables.items():
        medians = {system: _median(timing) for system, (_, timing) in table.items() if timing.seconds}
        for system, (rows, timing) in table.items():
            result = Result(
                workload.name, workload.length, workload.sequences, workload.tokens, system, batching, rows
            )
            result.passes, result.error = len(timing.seconds), timing.error
            if system in medians:
                median = medians[system]
                result.milliseconds = 1e3 * median
                result.tokens_per_second = workload.tokens / median
                result.microseconds_per_token = 1e6 * median / workload.tokens
                result.speed = medians[reference] / median if reference in medians else None
                result.of_products = median / medians["products"] if "products" in medians else None
            results.append(result)
    return results


def _median(timing: Timing) -> float:
    return statistics.median(timing.seconds)


@contextmanager
def memory_limit(gigabytes: float | None) -> Iterator[None]:
    """Let allocations beyond it fail with an error, instead of the system ending the process."""
    if gigabytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + int(gigabytes * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def measure(options: Options, workloads: Sequence[Workload]) -> list[Result]:
    """
    Run every system over every workload.

    A system that cannot be built or run for a workload has its error in the place of numbers.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    results = []
    for workload in workloads:
        ids = draw_ids(workload, options)
        sizes = [workload.rows, *(sub_batch_sizes(workload.rows) if options.own_best_batch else [])]
        timings: dict[tuple[str, int], Timing] = {}
        passes: dict[tuple[str, int], Callable[[], object]] = {}
        with (
            memory_limit(options.max_memory),
            tqdm(desc=workload.name, unit="pass", disable=None) as bar,
        ):
            for system in options.systems:
                try:
                    subject = Subject(system, options, workload.longest)
                    for rows in sizes:
                        timings[system, rows] = Timing()  # keeps the order of the systems
                        passes[system, rows] = partial(subject.run, subject.prepare(ids, rows))
                except Exception as error:
                    passes = {key: run for key, run in passes.items() if key[0] != system}
                    timings |= {(system, rows): Timing(error=first_line(error)) for rows in sizes}
            bar.total = len(passes) * (options.repeats + 1)
            timings |= interleave(passes, options.repeats, options.max_seconds, tick=bar.update)
        table = summarize(workload, timings, options.compared_with)
        passes.clear()
        gc.collect()
        if options.memory:
            # "whole" and "best" may be the same
            known: dict[tuple[str, int], tuple[float | None, str]] = {}
            for result in tqdm(table, desc=f"{workload.name} memory", unit="system", disable=None):
                key = (result.system, result.rows)
                if result.milliseconds is not None:
                    if key not in known:
                        known[key] = peak_memory(options, result.system, workload, result.rows)
                    result.megabytes, result.error = known[key]
        results += table
    return results


# Memory


def peak_memory(options: Options, system: str, workload: Workload, rows: int) -> tuple[float | None, str]:
    """
    MB that a pass needs at its peak on top of what is held before it, measured in a fresh process.

    Returns:
        The megabytes (10^6 bytes) and an empty string, or None and what went wrong.
    """
    request = {"options": asdict(options), "system": system, "workload": asdict(workload), "rows": rows}
    root = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", "from modeling_star.training import benchmark; benchmark.answer_memory()"],
        input=json.dumps(request),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines()[-1:] or [f"ended by signal {-done.returncode}"]
        return None, f"memory: {said[0]}"[:200]
    return json.loads(done.stdout.splitlines()[-1]), ""


def answer_memory() -> None:
    """What runs in the process of `peak_memory`: reads the request from stdin, prints the megabytes."""
    transformers.logging.set_verbosity_error()
    request = json.load(sys.stdin)
    options, workload = Options(**request["options"]), Workload(**request["workload"])
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    with memory_limit(options.max_memory):
        ids = draw_ids(workload, options)
        subject = Subject(request["system"], options, workload.longest)
        # What libraries allocate once, and AdamW's state, are no part of a pass.
        subject.run(subject.prepare([[ids[0][0][:16]]], 1))
        batches = subject.prepare(ids, request["rows"])
        gc.collect()
        if torch.device(options.device).type == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            subject.run(batches)
            peak = torch.cuda.max_memory_allocated()
        else:
            before = _resident_bytes(reset_peak=True)
            subject.run(batches)
            peak = _resident_bytes(peak=True)
    print(json.dumps((peak - before) / 1e6))


def _resident_bytes(*, peak: bool = False, reset_peak: bool = False) -> int:
    """
    Bytes of this process in memory, now or at most.

    getrusage's ru_maxrss will not do for the peak: on Linux a child begins with its parent's.
    """
    status = Path("/proc/self/status")
    if not status.is_file():
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if sys.platform == "darwin" else 1024 * used
    if reset_peak:
        Path("/proc/self/clear_refs").write_text("5")
    kilobytes = re.search(rf"^{'VmHWM' if peak else 'VmRSS'}:\s+(\d+) kB", status.read_text(), re.MULTILINE)
    assert kilobytes is not None
    return 1024 * int(kilobytes[1])


# Report


def environment(options: Options) -> dict[str, str]:
    """What the numbers depend on besides the options."""
    cuda = torch.device(options.device).type == "cuda"
    return {
        "modeling_star": __version__,
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "CPU": f"{_cpu_name()}, {os.cpu_count()} seen",
        **({"GPU": torch.cuda.get_device_name(options.device)} if cuda else {}),
        "threads": str(torch.get_num_threads()),
    }


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.is_file() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def report(options: Options, workloads: Sequence[Workload], results: Sequence[Result], command: str = "") -> str:
    """The Markdown page: what was measured, on what, and a table for whole batches and for each system's best."""
    work = "forward pass" if options.mode == "forward" else "training step (forward, backward, AdamW)"
    named = "; ".join(f"{name} {value}" for name, value in environment(options).items())
    lines = [
        f"# Benchmark: {work}",
        "",
        f"Width {options.hidden_size}, {options.num_layers} layers, {options.num_heads} heads, vocabulary "
        f"{options.vocab_size:,}, {options.dtype}, {options.device}{', compiled' if options.compile else ''}, seed "
        f"{options.seed}. Median of {options.repeats} interleaved passes after one to warm up; where that took over "
        f"{options.max_seconds:g} s, it is the only one. Tokens are real ones, without padding.{_unmasked(options)}",
        "",
        f"{named}.",
    ]
    if command:
        lines += ["", f"    {command}"]
    for workload in workloads:
        if workload.length is None:
            cells = sum(len(batch) * max(batch) for batch in workload.batches)
            share = 100 * workload.tokens / cells
            lines += [
                "",
                f"{workload.name}: {workload.sequences:,} texts, {workload.tokens:,} tokens, longest "
                f"{workload.longest:,}, in {len(workload.batches):,} batches; padded, {share:.0f} % of them are real.",
            ]
    titles = {"whole": "Called alike, whole batches", "best": "Each with sub-batches of its own best size"}
    for batching, title in titles.items():
        rows = [result for result in results if result.batching == batching]
        if rows:
            lines += ["", f"## {title}", "", _table(rows, options)]
    return "\n".join(lines) + "\n"


def _unmasked(options: Options) -> str:
    names = [name for name in options.systems if name in UNMASKED]
    return f" Without a mask, so that padding is read as tokens: {', '.join(names)}." if names else ""


def _table(results: Sequence[Result], options: Options) -> str:
    best = any(result.batching == "best" for result in results)
    products = any(result.of_products is not None for result in results)
    header = ["batch x n", "system", *(["rows"] if best else []), "ms", "tokens/s", "us/token"]
    header += [f"times as fast as {options.compared_with}", *(["time / products"] if products else [])]
    header += [*(["peak MB"] if options.memory else []), "passes", "note"]
    rows = []
    for result in results:
        row = [result.workload, result.system, *([result.rows] if best else []), _number(result.milliseconds)]
        row += [_number(result.tokens_per_second), _number(result.microseconds_per_token), _number(result.speed)]
        row += [*([_number(result.of_products)] if products else [])]
        row += [*([_number(result.megabytes)] if options.memory else []), result.passes, result.error]
        rows.append(row)
    return markdown_table(header, rows)


def _number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"


def fitted_slope(lengths: Sequence[float], values: Sequence[float]) -> float:
    """
    The exponent of the power law nearest to the points: the slope of a line through their logarithms.

    Raises:
        ValueError: fewer than two different lengths.
    """
    if len(set(lengths)) < 2:
        raise ValueError(f"A slope needs two different lengths; {sorted(set(lengths))} are given.")
    return statistics.linear_regression([math.log(x) for x in lengths], [math.log(y) for y in values]).slope


def plot_by_length(results: Sequence[Result], path: Path, value: Literal["milliseconds", "megabytes"]) -> Path | None:
    """
    Draw `value` for one sequence over its length, both logarithmic, with each system's slope in the legend.

    Args:
        results: of one batching; those without a length or the value are left out.
        path: the PNG to write.

    Returns:
        The path, or None where no system has two lengths (and nothing is written).
    """
    points: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        amount = getattr(result, value)
        if result.length is not None and amount is not None and amount > 0:
            points.setdefault(result.system, []).append((result.length, amount / result.sequences))
    points = {system: own for system, own in points.items() if len({length for length, _ in own}) > 1}
    if not points:
        return None
    return plot_over_length(
        points,
        path,
        {"milliseconds": "ms a sequence", "megabytes": "peak MB a sequence"}[value],
        colors=COLORS,
        labels={system: f"{system}  n^{fitted_slope(*zip(*own, strict=True)):.2f}" for system, own in points.items()},
        dashed=("products",),
    )


def write_results(
    options: Options, workloads: Sequence[Workload], results: Sequence[Result], folder: Path, command: str = ""
) -> str:
    """
    Write results.csv, results.md and, where lengths differ, PNG plots into `folder`.

    Returns:
        The text of results.md.
    """
    table = io.StringIO()
    writer = csv.DictWriter(table, [field.name for field in fields(Result)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(result) for result in results)
    write_text(folder / "results.csv", table.getvalue())
    page = report(options, workloads, results, command)
    write_text(folder / "results.md", page)
    for batching, ending in (("whole", ""), ("best", "_best")):
        rows = [result for result in results if result.batching == batching]
        plot_by_length(rows, folder / f"time_by_length{ending}.png", "milliseconds")
        plot_by_length(rows, folder / f"memory_by_length{ending}.png", "megabytes")
    return page
