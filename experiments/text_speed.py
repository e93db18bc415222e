#!/usr/bin/env python
"""
Texts per second and peak memory of saved classifiers on the texts of a file, one thread, forward passes.

    python experiments/text_speed.py reviews.jsonl.gz whole=outputs/big cut=outputs/big@512 tfidf=outputs/tfidf

`@512` cuts texts to 512 tokens. Texts are tokenized before, but for TF-IDF, and read in batches of 8 of similar
length. Times are CPU times, medians of interleaved passes; memory is that of a process with one system alone. A folder
without a classifier's head gets a random one. The code of saved models is run: name your own alone.
"""

import argparse
import multiprocessing
import re
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from modeling_star.data.readers import read_file
from modeling_star.inference.tfidf import TERMS, TfidfClassifier
from modeling_star.kernels.compiled import compile_layers


BATCH = 8


def main() -> None:
    """Read the arguments, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", help="a file with a column `text`")
    parser.add_argument("systems", nargs="+", metavar="NAME=FOLDER[@TOKENS]")
    parser.add_argument("--count", type=int, default=64, help="texts (default: 64)")
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--dtypes", nargs="+", choices=("float32", "bfloat16"), default=["float32", "bfloat16"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    systems = dict(system.split("=", 1) for system in arguments.systems)
    print("| system | number | texts per second | peak memory, MiB |\n|:--|:--|--:|--:|")
    for dtype in arguments.dtypes:
        readers = {name: reader(source, arguments.texts, arguments.count, dtype) for name, source in systems.items()}
        rounds = [{name: timed(read) for name, read in readers.items()} for _ in range(arguments.passes)]
        for name, source in systems.items():
            speed = arguments.count / statistics.median(each[name] for each in rounds)
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                memory = pool.submit(peak, source, arguments.texts, arguments.count, dtype).result()
            print(f"| {name} | {dtype} | {speed:,.1f} | {memory:,.0f} |", flush=True)


def reader(source: str, file: str, count: int, dtype: str) -> Callable[[], object]:
    """A pass of FOLDER[@TOKENS] over the first texts of a file."""
    name, _, limit = source.partition("@")
    texts = [row["text"] for _, row in zip(range(count), read_file(Path(file)), strict=False)]
    if (Path(name) / TERMS).is_file():
        classifier = TfidfClassifier.load(Path(name))
        return lambda: [classifier.log_probabilities(texts[at : at + BATCH]) for at in range(0, count, BATCH)]
    tokenizer = AutoTokenizer.from_pretrained(name)
    model = compile_layers(
        AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True, dtype=getattr(torch, dtype))
    )
    cut = {"truncation": True, "max_length": int(limit)} if limit else {}
    encoded = sorted(tokenizer(texts, verbose=False, **cut)["input_ids"], key=len)
    batches = [
        tokenizer.pad({"input_ids": encoded[at : at + BATCH]}, return_tensors="pt") for at in range(0, count, BATCH)
    ]

    @torch.no_grad()
    def read() -> None:
        for batch in batches:
            model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])

    read()  # warm
    return read


def timed(read: Callable[[], object]) -> float:
    """CPU time of a pass, seconds."""
    start = time.process_time()
    read()
    return time.process_time() - start


def peak(source: str, file: str, count: int, dtype: str) -> float:
    """The peak memory of this process after a pass, MiB."""
    torch.set_num_threads(1)
    reader(source, file, count, dtype)()
    # Not getrusage, which begins with what the process before held (Linux).
    status = Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024


if __name__ == "__main__":
    main()
