"""Operations that a forward pass and a training step dispatch: what a short text costs beside arithmetic.

`experiments/benchmark.py --count` is the command line. With TRITON_INTERPRET=1 MODELING_STAR_KERNELS=1 before it, it
counts what a GPU would start, too.
"""

import importlib
import inspect
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.benchmark_options import Options
from harness.benchmark_systems import build
from harness.benchmark_workloads import Workload, draw_ids


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


class LaunchCounter(TorchDispatchMode):
    """
    Counts `launches`, operations that are more than a view or an allocation, and `waits`, those whose result the CPU
    needs; Triton kernels are one launch each, whatever the interpreter does for them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches = self.waits = 0
        self._is_inside = False

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__
        if not self._is_inside:
            self.waits += name in ("_local_scalar_dense", "nonzero")
            is_free = operation.is_view or name == "_local_scalar_dense" or "empty" in name or "view" in name
            self.launches += not is_free
        return operation(*args, **(kwargs or {}))

    @contextmanager
    def watching_kernels(self) -> Iterator[None]:
        """Count the launches of our kernels."""
        with ExitStack() as stack:
            for name in ("triton_ring_attention", "triton_relay_attention", "triton_norm", "triton_utils"):
                module = importlib.import_module(f"modeling_star.kernels.{name}")
                stack.enter_context(patch.object(module, "launch", partial(self._launch, module.launch)))
            yield

    def _launch(self, launch: Callable[..., None], *arguments: Any, **constants: Any) -> None:
        self.launches += 1
        self._is_inside = True
        try:
            launch(*arguments, **constants)
        finally:
            self._is_inside = False


@torch.no_grad()
def count_launches(system: str, options: Options, workload: Workload, padding: int) -> LaunchCounter:
    """Launches of the second forward pass over the first batch, with padding at the end of its first row."""
    model = build(system, options, workload.longest).eval()
    ids = torch.nn.utils.rnn.pad_sequence(draw_ids(workload, options)[0], batch_first=True)
    mask = torch.ones_like(ids)
    mask[0, ids.shape[1] - padding :] = 0
    counter = LaunchCounter()
    model(input_ids=ids, attention_mask=mask)
    with counter.watching_kernels(), counter:
        model(input_ids=ids, attention_mask=mask)
    return counter


def count_table(options: Options, workloads: list[Workload]) -> str:
    """A Markdown table, one line for each workload and system: operations or, where kernels are on, launches."""
    counts_launches = os.environ.get("MODELING_STAR_KERNELS") == "1"
    columns: tuple[str, ...] = ("forward pass", *PARTS, "training step", *STEPS)
    if counts_launches:
        columns = ("launches", "waits", "launches with padding", "waits with padding")
    lines = [("batch x tokens", "system", *columns), ("---", "---", *["--:"] * len(columns))]
    for workload in workloads:
        for system in options.systems:
            if counts_launches:
                counters = [count_launches(system, options, workload, padding) for padding in (0, 1)]
                numbers = [number for counter in counters for number in (counter.launches, counter.waits)]
            else:
                forward, steps = count_operations(system, options, workload)
                numbers = [forward.total(), *(forward[part] for part in PARTS)]
                numbers += [steps.total(), *(steps[step] for step in STEPS)]
            lines.append((workload.name, system, *map(str, numbers)))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
