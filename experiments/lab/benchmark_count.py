"""Operations that a forward pass and a training step dispatch: what a short text costs beside arithmetic.

`experiments/benchmark.py --count` is the command line.
"""

import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lab.benchmark_options import Options
from lab.benchmark_systems import build
from lab.benchmark_workloads import Workload, draw_ids


PARTS = ("checks", "layout", "embeddings", "words", "layers", "pooling", "rest")
STEPS = ("forward", "backward", "optimizer")
_CLASSES = {"Embeddings": "embeddings", "WordMatcher": "words", "Layer": "layers", "Pooler": "pooling"}
_FUNCTIONS = {"_checked": "checks", "_check_length": "checks", "_candidates": "words", "_pool": "pooling"}


class OperationCounter(TorchDispatchMode):
    """Counts aten operations by the part of the model that starts them."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[_part()] += 1
        return operation(*args, **(kwargs or {}))


def _part() -> str:
    """The part of the outermost frame that belongs to one."""
    part, frame = "rest", inspect.currentframe()
    while frame is not None:
        owner = type(frame.f_locals.get("self")).__name__
        part = _FUNCTIONS.get(frame.f_code.co_name) or next(
            (name for ending, name in _CLASSES.items() if owner.endswith(ending)),
            "layout" if part == "rest" and Path(frame.f_code.co_filename).stem == "token_layout" else part,
        )
        frame = frame.f_back
    return part


def count_operations(system: str, options: Options, workload: Workload) -> tuple[Counter[str], Counter[str]]:
    """
    Operations of the second pass over the workload's first batch; the first one fills caches.

    Returns:
        Those of a forward pass under `inference_mode`, by `PARTS`; and of a training step with AdamW, by `STEPS`.
    """
    model = build(system, options, workload.longest).eval()
    ids = torch.nn.utils.rnn.pad_sequence(draw_ids(workload, options)[0], batch_first=True)
    inputs = {"input_ids": ids, "attention_mask": (ids != 0).long()}
    with torch.inference_mode():
        model(**inputs)
        with OperationCounter() as forward:
            model(**inputs)
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    steps: Counter[str] = Counter()
    for _ in range(2):
        counters = [OperationCounter() for _ in STEPS]
        with counters[0]:
            output = model(**inputs)
        loss = output.last_hidden_state.square().mean() + output.pooler_output.square().mean()
        with counters[1]:
            loss.backward()
        with counters[2]:
            optimizer.step()
        optimizer.zero_grad()
        steps = Counter({name: counter.counts.total() for name, counter in zip(STEPS, counters, strict=True)})
    return forward.counts, steps


def count_table(options: Options, workloads: list[Workload]) -> str:
    """A Markdown table, one line for each workload and system."""
    columns = ("batch x tokens", "system", "forward pass", *PARTS, "training step", *STEPS)
    lines = [columns, ("---", "---", *["--:"] * (len(columns) - 2))]
    for workload in workloads:
        for system in options.systems:
            forward, steps = count_operations(system, options, workload)
            numbers = (forward.total(), *(forward[part] for part in PARTS), steps.total(), *(steps[s] for s in STEPS))
            lines.append((workload.name, system, *map(str, numbers)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
