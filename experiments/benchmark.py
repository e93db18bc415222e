#!/usr/bin/env python
"""
Time encoders side by side, in one process, one after another in turns: ours and those of transformers with random
weights, or saved classifiers on the texts of a file.

    python experiments/benchmark.py                                     forward passes on the CPU, at four shapes
    python experiments/benchmark.py --systems star star-onnx bert-sdpa bert-sdpa-onnx --shapes 1x16 1x32 1x128
    python experiments/benchmark.py --systems modernbert-global modernbert-star-window window-modernbert \\
        --hidden_size 256 --num_layers 7 --num_heads 4 --shapes 1x512 1x2048 1x8192 --threads 1 --cpu_time
    python experiments/benchmark.py --mode train --shapes 128x109 --memory
    python experiments/benchmark.py --lengths DATA/test.jsonl.gz --batch_size 128 --truncate 256
    python experiments/benchmark.py --device cuda --dtype bfloat16 --graphs --systems star big bert-sdpa
    python experiments/benchmark.py --texts reviews.jsonl.gz --systems whole=outputs/big cut=outputs/big@512 \\
        tfidf=outputs/tfidf --batch_size 8 --threads 1 --cpu_time --memory

Systems: star, star-plus, big, big-window (without words), vanilla, disan, bilstm; big-from-bert-R (what
from_encoder makes of a BERT, radius R); bert-sdpa,
bert-eager, fnet, longformer, modernbert (local attention), big_bird, or any model type of transformers, with
-sdpa or -eager for its attention; modernbert-global, modernbert-star-window and window-modernbert (every third layer
global: stock, with our window attention in the others, with windows in all). NAME-onnx is run by ONNX Runtime. With
--texts a system is NAME=FOLDER[@TOKENS], its code is run, and texts are tokenized before. Writes results.csv and
results.md into --output_dir, which has to be new or empty.
"""

import argparse
import csv
import ctypes
import gc
import io
import math
import multiprocessing
import re
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch
import transformers
from harness.launching import processor
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
)

from modeling_star import __version__, register_window_attention
from modeling_star.data.lexicon import Lexicon
from modeling_star.data.readers import read_file
from modeling_star.data.writing_systems import HAN, KANA
from modeling_star.errors import UserError
from modeling_star.evaluation.reports import markdown_table
from modeling_star.files import check_new, write_text
from modeling_star.inference.cuda_graphs import cuda_graphs
from modeling_star.inference.export import export_onnx
from modeling_star.kernels.compiled import compile_layers
from modeling_star.models.convert import fields_from_encoder


WORD_LENGTH = 4  # tokens of BiG's longest word
FIRST_ID = 10  # ids below are special tokens
SPECIAL_IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "sep_token_id": 2}
WINDOW = 128  # local attention of longformer and modernbert
OURS: dict[str, tuple[str, dict[str, Any]]] = {
    "star": ("star_transformer", {"position_embedding_type": "none", "role_bias": True}),
    "star-plus": ("star_transformer", {"position_embedding_type": "none", "role_bias": True, "residual": True}),
    "big": ("big_transformer", {"max_word_length": WORD_LENGTH}),
    "big-window": ("big_transformer", {"local_connection": "window", "global_node": "first"}),
    "vanilla": ("vanilla_transformer", {"position_embedding_type": "sinusoidal"}),
    "disan": ("disan", {}),
    "bilstm": ("bilstm", {}),
}
# Every third layer is global, but for the last one.
MODERNBERTS = {
    "modernbert-global": "modernbert",
    "modernbert-star-window": "modernbert",
    "window-modernbert": "window_modernbert",
}
OTHERS = ("bert-sdpa", "bert-eager", "fnet", "longformer", "modernbert", "big_bird")
FROM_BERT = re.compile(r"big-from-bert(-(?P<radius>\d+))?")
SYSTEMS = (*OURS, "big-from-bert", "big-from-bert-1", *OTHERS, *MODERNBERTS)
DEFAULT = ["star", "big", *OTHERS[:-1], "bilstm"]
ONNX = "-onnx"  # after a system's name: the same one, run by ONNX Runtime
UNMASKED = ("fnet",)
REFERENCE = "bert-sdpa"  # what others are compared with, or else the first system
_WORD = re.compile(rf"[{HAN}{KANA}]|[^\s{HAN}{KANA}]+")
Batch = tuple[Tensor, Tensor | None]  # ids [b, n], and their mask where there is padding
Options = argparse.Namespace


def parse(words: Sequence[str] | None = None) -> Options:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--systems", nargs="+", default=DEFAULT, metavar="NAME", help="systems (default: %(default)s)")
    add("--shapes", nargs="+", metavar="ROWSxTOKENS", default=["128x109", "8x512", "4x2048", "1x8192"])
    add("--lengths", nargs="+", type=Path, metavar="FILE", help="one length a line, or data sets with text or tokens")
    add("--texts", type=Path, metavar="FILE", help="measure saved classifiers on the column text of a file")
    add("--count_texts", type=int, default=64, metavar="N", help="texts of --texts (default: %(default)s)")
    add("--batch_size", type=int, default=128, help="rows of a batch of --lengths and --texts (default: %(default)s)")
    add("--truncate", type=int, metavar="N", help="cut texts of --lengths to N tokens (default: not at all)")
    add("--mode", choices=("forward", "train"), default="forward", help="train: forward, backward, AdamW step")
    for name, number in (("hidden_size", 300), ("num_layers", 2), ("num_heads", 6), ("vocab_size", 30522)):
        add(f"--{name}", type=int, default=number, help="of random weights (default: %(default)s)")
    add("--lexicon_words", type=int, default=350_000, help="random words of BiG's lexicon (default: %(default)s)")
    add("--repeats", type=int, default=5, help="passes of which the median is reported (default: %(default)s)")
    add("--max_seconds", type=float, default=60.0, help="a slower pass is measured once (default: %(default)s)")
    add("--memory", action="store_true", help="also measure peak memory, in a process for each system and shape")
    add("--threads", type=int, help="PyTorch's threads (default: its own)")
    add("--cpu_time", action="store_true", help="measure CPU time, which other processes disturb less; one thread")
    add("--device", default="cpu", help="cpu, cuda, cuda:1 (default: %(default)s)")
    add("--dtype", choices=("float32", "bfloat16"), default="float32", help="of weights and states")
    add("--compile", action="store_true", help="torch.compile every model")
    add("--graphs", action="store_true", help="replay CUDA graphs, on a GPU")
    add("--seed", type=int, default=0, help="of weights, ids and lexicon (default: %(default)s)")
    add("--output_dir", type=Path, default=Path("outputs/benchmark"), help="new or empty (default: %(default)s)")
    options = parser.parse_args(words)
    onnx = [name for name in options.systems if name.endswith(ONNX)]
    if onnx and (options.mode, options.device, options.dtype) != ("forward", "cpu", "float32"):
        raise UserError(f"--systems {onnx[0]}: ONNX Runtime needs --mode forward --device cpu --dtype float32")
    if options.graphs and (options.mode, on_gpu(options), options.compile) != ("forward", True, False):
        raise UserError("--graphs: CUDA graphs need --mode forward --device cuda, without --compile")
    for name in options.systems:
        plain = name.removesuffix(ONNX)
        if options.texts is not None and "=" not in name:
            raise UserError(f"--systems {name}: with --texts write NAME=FOLDER, or NAME=FOLDER@512 to cut texts")
        known = plain in SYSTEMS or FROM_BERT.fullmatch(plain) or model_type_of(plain)[0] in CONFIG_MAPPING
        if options.texts is None and not known:
            raise UserError(
                f"There is no system {name}: write one of {', '.join(SYSTEMS)}, or a model type of transformers such "
                f"as roberta, roberta-sdpa, roberta-eager; each also with {ONNX}."
            )
    return options


def on_gpu(options: Options) -> bool:
    """Whether models run on a GPU."""
    return options.device.startswith("cuda")


def model_type_of(name: str) -> tuple[str, str | None]:
    """ "bert-eager" is the model type "bert" with attention "eager"."""
    match = re.fullmatch(r"(.+)-(sdpa|eager)", name)
    return (match[1], match[2]) if match else (name, None)


# ------ what the systems process


@dataclass(frozen=True)
class Workload:
    """Batches to run one after the other: its name in the tables, and the tokens of each row of each batch."""

    name: str
    batches: list[list[int]]

    @property
    def tokens(self) -> int:
        """Real tokens, without padding."""
        return sum(map(sum, self.batches))

    @property
    def longest(self) -> int:
        """Tokens of the longest row."""
        return max(map(max, self.batches))


def parse_shape(text: str) -> Workload:
    """One full batch from "128x109", rows times tokens."""
    match = re.fullmatch(r"([1-9]\d*)[x×]([1-9]\d*)", text.strip())
    if not match:
        raise UserError(f"--shapes has {text!r}; rows x tokens are needed, both at least 1. Write --shapes 128x109")
    return Workload(f"{match[1]}x{match[2]}", [[int(match[2])] * int(match[1])])


def read_lengths(path: Path) -> list[int]:
    """Tokens of each text of a file."""
    if any(suffix in (".json", ".jsonl", ".csv", ".tsv", ".parquet") for suffix in path.suffixes[-2:]):
        data = read_file(path)
        column = next((name for name in ("tokens", "text") if name in data.column_names), None)
        if column is None:
            raise UserError(f"--lengths {path} has no column text or tokens: rename one of {data.column_names}")
        texts = ([] if cell is None else cell for cell in data[column])
        return [max(1, len(_WORD.findall(cell) if isinstance(cell, str) else cell)) for cell in texts]
    try:
        lengths = [int(line) for line in path.read_text(encoding="utf-8").split()]
    except (OSError, ValueError) as error:
        raise UserError(f"--lengths {path} cannot be read ({error}): write one length a line.") from error
    if not lengths or min(lengths) < 1:
        raise UserError(f"--lengths {path} has to hold lengths of 1 or more, one a line.")
    return lengths


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


# ------ the systems


def build(name: str, options: Options, longest: int) -> nn.Module:
    """A system with random weights that takes up to `longest` tokens."""
    torch.manual_seed(options.seed)
    sizes = {
        **{"vocab_size": options.vocab_size, "hidden_size": options.hidden_size},
        **{"num_hidden_layers": options.num_layers, "num_attention_heads": options.num_heads},
    }
    if name in OURS:
        model_type, special = OURS[name]
        model = AutoModel.from_config(AutoConfig.for_model(model_type, **sizes, **special))
        if name == "big":
            model.set_lexicon(random_lexicon(options.lexicon_words, options.vocab_size, options.seed))
        return model
    wide = {**sizes, "intermediate_size": 4 * options.hidden_size, "max_position_embeddings": longest}
    from_bert = FROM_BERT.fullmatch(name)
    if from_bert:
        fields = fields_from_encoder(BertConfig(**wide), None, int(from_bert["radius"] or 4))
        return AutoModel.from_config(AutoConfig.for_model("big_transformer", **fields))
    if name in MODERNBERTS:
        wide |= {**SPECIAL_IDS, "intermediate_size": 3 * options.hidden_size // 2, "tie_word_embeddings": True}
        attention = "sdpa" if name == "modernbert-global" else register_window_attention()
        return AutoModel.from_config(AutoConfig.for_model(MODERNBERTS[name], **wide), attn_implementation=attention)
    model_type, implementation = model_type_of(name)
    # What some of them pad to, and RoBERTa's positions, which begin at 2.
    wide |= {**SPECIAL_IDS, "max_position_embeddings": longest + WINDOW + 2}
    config = AutoConfig.for_model(model_type, **{**wide, **_special_fields(model_type, options)})
    if (config.hidden_size, config.num_hidden_layers) != (options.hidden_size, options.num_layers):
        raise ValueError(f"{model_type} does not take the requested width and depth.")
    return AutoModel.from_config(config, **({"attn_implementation": implementation} if implementation else {}))


def _special_fields(model_type: str, options: Options) -> dict[str, Any]:
    """Fields that make a model type as wide and deep as the others, and its attention local where possible."""
    d, layers = options.hidden_size, options.num_layers
    if model_type == "longformer":
        return {"attention_window": WINDOW}
    if model_type == "modernbert":
        # gated: with two thirds of the width, as many weights as the others have
        local = {"layer_types": ["sliding_attention"] * layers, "local_attention": WINDOW}
        return {**local, "intermediate_size": 8 * d // 3}
    return {}


def prepared(model: nn.Module, options: Options) -> Callable[..., Any]:
    """The model as it is called: compiled by torch, replayed as CUDA graphs, or as a `Predictor` calls it."""
    if options.compile:
        return torch.compile(model)
    if options.graphs:
        return cuda_graphs(model)
    return compile_layers(model) if options.mode == "forward" and options.device == "cpu" else model


def onnx_session(model: nn.Module, masked: bool) -> Callable[..., Any]:
    """A model in ONNX Runtime, as a function of ids `[b, n]` and their mask."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = torch.get_num_threads()
    # Otherwise its threads keep polling for work while the next system runs.
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
    names = ["input_ids", "attention_mask"] if masked else ["input_ids"]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        export_onnx(model, names, path)
        session = onnxruntime.InferenceSession(path, settings)

    def call(input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return session.run(None, dict(zip(names, (input_ids.numpy(), mask.numpy()), strict=False)))

    return call


class Subject:
    """A system on its device, ready for passes over rows of at most `longest` tokens."""

    def __init__(self, name: str, options: Options, longest: int):
        self.name, self.options = name.removesuffix(ONNX), options
        model = build(self.name, options, longest).to(options.device, getattr(torch, options.dtype))
        self.model = model.train(options.mode == "train")
        self.call: Callable[..., Any] = prepared(self.model, options)
        if name.endswith(ONNX):
            self.call = onnx_session(self.model, self.name not in UNMASKED)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4) if options.mode == "train" else None

    def prepare(self, ids: list[list[Tensor]]) -> list[Batch]:
        """Batches, each padded to its longest row, on the device."""
        batches: list[Batch] = []
        for rows in ids:
            padded = pad_sequence(rows, batch_first=True).to(self.options.device)
            batches.append(
                (padded, None if all(len(row) == padded.shape[1] for row in rows) else (padded != 0).long())
            )
        return batches

    def states(self, ids: Tensor, mask: Tensor | None) -> Any:
        """What the system computes of ids `[b, n]`."""
        masked = {} if mask is None or self.name in UNMASKED else {"attention_mask": mask}
        return self.call(input_ids=ids, **masked)

    def run(self, batches: list[Batch]) -> None:
        """One pass over all batches, of a training step each; raises whatever the system raises."""
        for ids, mask in batches:
            if self.optimizer is None:
                with torch.no_grad():
                    self.states(ids, mask)
                continue
            # a mean, so that bfloat16 can hold the sum of squares
            self.states(ids, mask).last_hidden_state.square().mean().backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        if on_gpu(self.options):
            torch.cuda.synchronize(self.options.device)


def reader(source: str, options: Options) -> Callable[[], object]:
    """A pass of the saved classifier FOLDER[@TOKENS] over the first texts of --texts, in batches of like length."""
    folder, _, limit = source.partition("@")
    texts = sorted(read_file(options.texts)["text"][: options.count_texts], key=len)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(
        folder, trust_remote_code=True, dtype=getattr(torch, options.dtype)
    )
    call = prepared(model.eval().to(options.device), options)
    cut = {"truncation": True, "max_length": int(limit)} if limit else {}
    encoded = sorted(tokenizer(texts, verbose=False, **cut)["input_ids"], key=len)
    parts = [encoded[start : start + options.batch_size] for start in range(0, len(encoded), options.batch_size)]
    batches = [tokenizer.pad({"input_ids": part}, return_tensors="pt").to(options.device) for part in parts]

    @torch.no_grad()
    def read() -> None:
        for batch in batches:
            call(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])

    return read


# ------ measuring


def interleave(
    passes: Mapping[Any, Callable[[], object]],
    repeats: int,
    max_seconds: float,
    *,
    untimed: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[dict[Any, list[float]], dict[Any, str]]:
    """
    Time passes in rounds, so that other jobs of the machine disturb all alike: each once to warm up, then all in turn.

    Args:
        passes: functions by name; one that raises is not run again.
        repeats: rounds after the first.
        max_seconds: a pass whose warm-up took longer keeps that as its only measurement.
        untimed: run each once before, without a clock, since a first pass compiles.
        clock: seconds.

    Returns:
        The seconds of each measured pass, and the first line of the error of those that raised.
    """
    seconds: dict[Any, list[float]] = {name: [] for name in passes}
    errors: dict[Any, str] = {}
    due = dict(passes)
    for turn in range(-1 if untimed else 0, repeats + 1):
        for name, run in list(due.items()):
            start = clock()
            try:
                run()
            except Exception as error:
                errors[name], seconds[name] = first_line(error), []
                del due[name]
                continue
            taken = clock() - start
            slow = turn == 0 and taken > max_seconds
            if turn > 0 or slow:
                seconds[name].append(taken)
            if slow:
                del due[name]
    return seconds, errors


def first_line(error: BaseException) -> str:
    """The first line of an error, with its kind."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return ": ".join([type(error).__name__, *lines[:1]])[:200]


Passes = Mapping[str, Callable[[], Callable[[], object]]]


def passes_of(options: Options, workload: Workload) -> Passes:
    """What builds each system and returns its pass over a workload, by name."""
    if options.texts is not None:
        named = dict(system.split("=", 1) for system in options.systems)
        return {name: partial(reader, source, options) for name, source in named.items()}

    def made(name: str) -> Callable[[], object]:
        subject = Subject(name, options, workload.longest)
        return partial(subject.run, subject.prepare(draw_ids(workload, options)))

    return {name: partial(made, name) for name in options.systems}


def measure(options: Options, workload: Workload) -> list[dict[str, Any]]:
    """A row of results.csv for each system; one that cannot be built or run has its error in place of numbers."""
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    ready, failed = {}, {}
    for name, make in passes_of(options, workload).items():
        try:
            ready[name] = make()
        except Exception as error:
            failed[name] = first_line(error)
    clock = time.process_time if options.cpu_time else time.perf_counter
    compiles = options.compile or on_gpu(options)
    seconds, errors = interleave(ready, options.repeats, options.max_seconds, untimed=compiles, clock=clock)
    errors |= failed
    medians = {name: statistics.median(times) for name, times in seconds.items() if times}
    reference = REFERENCE if REFERENCE in medians else next(iter(medians), "")
    rows = []
    for name in passes_of(options, workload):
        row = {"workload": workload.name, "system": name, "passes": len(seconds.get(name, ()))}
        median = medians.get(name)
        row |= {
            "milliseconds": median and 1e3 * median,
            "tokens_per_second": median and workload.tokens / median,
            "texts_per_second": median and sum(map(len, workload.batches)) / median,
            "reference": reference,
            "speed": median and medians[reference] / median,
            "megabytes": None,
            "error": errors.get(name, ""),
        }
        if options.memory and median:
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                try:
                    row["megabytes"] = pool.submit(peak_memory, options, workload, name).result()
                except Exception as error:
                    row["error"] = f"memory: {first_line(error)}"
        rows.append(row)
    return rows


def peak_memory(options: Options, workload: Workload, name: str) -> float:
    """
    MB (10^6 bytes) that a system's second pass needs at its peak on top of what this process, a new one, held before:
    weights, what libraries allocate once, and AdamW's state. On a CPU it needs Linux.
    """
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    run = passes_of(options, workload)[name]()
    run()
    gc.collect()
    if on_gpu(options):
        before = torch.cuda.memory_allocated(options.device)
        torch.cuda.reset_peak_memory_stats(options.device)
        run()
        return (torch.cuda.max_memory_allocated(options.device) - before) / 1e6

    def kilobytes(name: str) -> int:
        return int(re.findall(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())[0])

    ctypes.CDLL(None).malloc_trim(0)  # freed memory could be used without the peak rising
    Path("/proc/self/clear_refs").write_text("5")
    before = kilobytes("VmRSS")
    run()
    return (kilobytes("VmHWM") - before) * 1024 / 1e6


# ------ what is written


def page(options: Options, workloads: Sequence[Workload], rows: Sequence[dict[str, Any]], command: str) -> str:
    """The Markdown page: how it was measured, the environment, the command, and the table."""
    work = "forward pass" if options.mode == "forward" else "training step (forward, backward, AdamW)"
    unmasked = [name for name in options.systems if name.removesuffix(ONNX) in UNMASKED]
    note = f" Without a mask, so that padding counts as tokens: {', '.join(unmasked)}." if unmasked else ""
    environment = {
        "modeling_star": __version__,
        "PyTorch": torch.__version__,
        "transformers": transformers.__version__,
        "CPU": processor(),
        **({"GPU": torch.cuda.get_device_name(options.device)} if on_gpu(options) else {}),
        "threads": torch.get_num_threads(),
    }
    parts = [
        f"# Benchmark: {work}",
        f"Width {options.hidden_size}, {options.num_layers} layers, {options.num_heads} heads, vocabulary "
        f"{options.vocab_size:,}, random weights of seed {options.seed}, {options.dtype}, {options.device}"
        f"{', compiled' if options.compile else ''}{', CUDA graphs' if options.graphs else ''}."
        if options.texts is None
        else f"Saved classifiers, {options.dtype}, on {options.count_texts} texts of {options.texts.name}.",
        f"Median of {options.repeats} passes of all systems in turn, after one to warm up, in "
        f"{'CPU' if options.cpu_time else 'wall-clock'} time. Tokens are real ones, without padding.{note}",
        "; ".join(f"{name} {value}" for name, value in environment.items()) + ".",
        f"    {command}",
        *(
            f"{each.name}: {sum(map(len, each.batches)):,} texts, {each.tokens:,} tokens, longest {each.longest:,}."
            for each in workloads
            if not re.fullmatch(r"\d+x\d+", each.name)
        ),
        _table(rows),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[dict[str, Any]]) -> str:
    """All results; columns without a number are left out."""
    reference = rows[0]["reference"] or "-"
    heads = {
        **{"workload": "batch x tokens", "system": "system", "milliseconds": "ms", "tokens_per_second": "tokens/s"},
        **{"texts_per_second": "texts/s", "speed": f"times as fast as {reference}"},
        **{"megabytes": "peak MB", "passes": "passes", "error": "note"},
    }
    shown = [name for name in heads if any(row[name] not in (None, "") for row in rows)]
    cells = [
        [_number(row[name]) if name not in ("workload", "system", "passes", "error") else row[name] for name in shown]
        for row in rows
    ]
    return markdown_table([heads[name] for name in shown], cells)


def _number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def workloads_of(options: Options) -> Iterator[Workload]:
    """The workloads that the flags name."""
    if options.texts is not None:
        lengths = read_lengths(options.texts)[: options.count_texts]
        yield Workload(options.texts.name, [lengths])
    elif options.lengths:
        yield lengths_workload(options.lengths, options.batch_size, options.truncate)
    else:
        yield from map(parse_shape, options.shapes)


def main() -> None:
    """Read the arguments, measure, write and print the tables."""
    # Models of transformers that pad their input log it at every pass.
    transformers.logging.set_verbosity_error()
    try:
        options = parse()
        workloads = list(workloads_of(options))
        check_new(options.output_dir)
    except UserError as error:
        sys.exit(f"benchmark.py: {error}")
    command = f"python experiments/benchmark.py {shlex.join(sys.argv[1:])}".strip()
    rows: list[dict[str, Any]] = []
    for number, workload in enumerate(workloads, start=1):
        rows += measure(options, workload)
        table = io.StringIO()
        writer = csv.DictWriter(table, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        # An interruption keeps what has been measured.
        write_text(options.output_dir / "results.csv", table.getvalue())
        text = page(options, workloads[:number], rows, command)
        write_text(options.output_dir / "results.md", text)
    print(text)
    print(f"Written to {options.output_dir}")


if __name__ == "__main__":
    main()
