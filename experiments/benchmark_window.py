#!/usr/bin/env python
"""
Time and memory of window attention beside transformers' own, in one process, one after another in turns.

    python experiments/benchmark_window.py                       forward and training step, up to 8,192 tokens
    python experiments/benchmark_window.py --lengths 32768 --modes forward --passes 1
    python experiments/benchmark_window.py --systems bert-6 big-6 --lengths 8192 --dtype bfloat16
    python experiments/benchmark_window.py --memory              peak memory, each in a process of its own

Systems: a ModernBERT (7 layers of 256, 4 heads, every third one global, about the smallest Ettin) with attention by
"sdpa" (stock), by "star_window" (window), and with its global layers windows too (window-global); a BERT of 6 layers
of 384, 12 heads (bert-6), and what from_encoder makes of it, radius 4 and 64 (big-6, big-6-64). Random weights. Times
are CPU times of one thread, medians; a training step is forward and backward.
"""

import argparse
import multiprocessing
import resource
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

import torch
from torch import nn
from transformers import AutoModel, BertConfig, ModernBertConfig

import modeling_star
from modeling_star import BigTransformerConfig, BigTransformerModel, WindowModernBertConfig
from modeling_star.models.bert_weights import fields_from_encoder


SYSTEMS = ("stock", "window", "window-global", "bert-6", "big-6", "big-6-64")


def build(name: str, longest: int) -> nn.Module:
    """A system with random weights for texts of up to `longest` tokens."""
    torch.manual_seed(0)
    if name in ("bert-6", "big-6", "big-6-64"):
        bert = BertConfig(
            **{"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536},
            **{"max_position_embeddings": longest, "hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0},
        )
        if name == "bert-6":
            return AutoModel.from_config(bert, add_pooling_layer=False)
        fields = fields_from_encoder(bert, None, 64 if name == "big-6-64" else 4)
        return BigTransformerModel(BigTransformerConfig(**fields))
    config_class = WindowModernBertConfig if name == "window-global" else ModernBertConfig
    config = config_class(
        **{"hidden_size": 256, "num_hidden_layers": 7, "num_attention_heads": 4, "intermediate_size": 384},
        **{"max_position_embeddings": longest, "tie_word_embeddings": True},
    )
    implementation = "sdpa" if name == "stock" else modeling_star.register_window_attention()
    return AutoModel.from_config(config, attn_implementation=implementation)


def run(model: nn.Module, ids: torch.Tensor, mode: str) -> None:
    """A forward pass, or one with its backward pass."""
    if mode == "forward":
        with torch.no_grad():
            model(input_ids=ids)
    else:
        model(input_ids=ids).last_hidden_state.square().mean().backward()
        model.zero_grad(set_to_none=False)


def peak(name: str, length: int, mode: str) -> float:
    """The peak memory of this process after one pass, MiB."""
    torch.set_num_threads(1)
    run(build(name, length), torch.randint(5, 1000, (1, length)), mode)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def timed(model: nn.Module, ids: torch.Tensor, mode: str) -> float:
    """CPU time of a pass, milliseconds."""
    start = time.process_time()
    run(model, ids, mode)
    return 1000 * (time.process_time() - start)


def main() -> None:
    """Read the arguments, measure, print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS[:3])
    parser.add_argument("--lengths", nargs="+", type=int, default=[512, 2048, 8192])
    parser.add_argument("--modes", nargs="+", choices=("forward", "step"), default=["forward", "step"])
    parser.add_argument("--passes", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    unit = "MiB" if arguments.memory else "ms"
    print(f"| tokens | pass | {' | '.join(f'{name}, {unit}' for name in arguments.systems)} |")
    print(f"|--:|:--|{'--:|' * len(arguments.systems)}")
    for length in arguments.lengths:
        for mode in arguments.modes:
            if arguments.memory:
                found = []
                for name in arguments.systems:
                    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                        found.append(pool.submit(peak, name, length, mode).result())
            else:
                dtype = getattr(torch, arguments.dtype)
                models = [build(name, length).to(dtype).train(mode == "step") for name in arguments.systems]
                ids = torch.randint(5, 1000, (1, length))
                rounds = [[timed(model, ids, mode) for model in models] for _ in range(arguments.passes)]
                found = [statistics.median(times) for times in zip(*rounds, strict=True)]
            ratios = [f"{value:,.0f} ({found[0] / value:.2f})" for value in found]
            print(f"| {length:,} | {mode} | {' | '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
