"""
What computes attentions: the one place that chooses between PyTorch's operations, which are the reference, and faster
ones with the same results but for rounding. An encoder asks once a forward pass; `modeling_star.describe` says what
was chosen.

| operations | where |
|:--|:--|
| PyTorch's, `attention.py` | compiled or exported models, recorded attentions, and where nothing else is |
| sparse rows, `sparse_attention.py` | on a CPU |
| Triton kernels, `modeling_star.kernels` | on a CUDA GPU, by `MODELING_STAR_KERNELS`; a reach of nine tokens at most |
| blocks of queries, `window_attention.py` | windows of more than 16 tokens on either side |

Two fast paths are copies of a model that one asks for: `compiled(model)` and `cuda_graphs(model)`.

Axes: b sequences  N flat tokens  m longest sequence  d width  w offsets of neighbours  r candidate roles
"""

import functools
import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from .attention import Attend, CandidateAttention, Candidates, Mix, attend, relay_mix
from .token_layout import TokenLayout, get_or_compute, is_traced


logger = logging.get_logger(__name__)

# The widest reach of the kernels. A program holds the weights of a token's roles in registers: the words around it are
# 55 where words have up to ten tokens.
LONGEST_KERNEL_REACH = 9
# `modeling_star.kernels.INTERFACE` for which this code calls kernels.
KERNEL_INTERFACE = 4
# The largest radius of a window whose tokens are candidates of their own. With a larger one blocks of queries against
# the keys around them are faster, forward and in training (docs/decisions.md).
LARGEST_CANDIDATE_RADIUS = 16
# Blocks are of padded rows: not for a batch of which they would be more than this many times the tokens.
MOST_ROWS = 2


@dataclass(frozen=True)
class Operations:
    """
    What computes the attentions of one forward pass, its name and why: `attend` and `mix` as those of `attention`, and
    the kernel of an `UpdateLayerNorm`; `None`: its own operations.
    """

    name: str
    reason: str
    attend: Attend
    mix: Mix
    update_norm: Callable[..., Tensor] | None = None


def choose(tokens: Tensor, layout: TokenLayout, reach: int | None, has_relay: bool, records: bool) -> Operations:
    """
    The operations of a forward pass on the tokens' device and type. `reach` is the largest offset of a neighbour that
    a token attends to (`None`: it attends to none, nor to itself); `has_relay`: a relay attends to itself and its
    sequence; a first token that is the global node is none. An error where MODELING_STAR_KERNELS cannot be followed.
    """
    if records or is_traced():
        reason = "attention weights are recorded" if records else "the model is compiled or exported"
        return Operations("PyTorch", reason, functools.partial(attend, records=records), relay_mix)
    missing = kernels_missing(tokens)
    mix: Mix = relay_mix
    if missing is None and has_relay:
        mix = _mix_with_triton
    elif layout.is_ragged:
        from .sparse_attention import relay_mix_over_parts

        mix = relay_mix_over_parts
    # Autocast would have the results of norms in float32.
    is_normed = missing is None and not (torch.is_grad_enabled() or torch.is_autocast_enabled(tokens.device.type))
    update_norm = find_kernels("triton_norm").update_norm if is_normed else None
    if missing is None and reach is not None and reach <= LONGEST_KERNEL_REACH:
        return Operations("Triton kernels", f"they run on {tokens.device}", _attend_with_triton, mix, update_norm)
    if rows_apply(tokens):
        from .sparse_attention import attend_over_rows

        return Operations("sparse rows", "the tokens are on a CPU", attend_over_rows, mix, update_norm)
    reason = missing or ("there are no neighbours" if reach is None else f"a reach of {reach} is beyond the kernels")
    return Operations("PyTorch", reason, attend, mix, update_norm)


def rows_apply(tokens: Tensor) -> bool:
    """Whether torch has the operations on sparse rows for the device of the tokens."""
    return tokens.device.type == "cpu"


def uses_blocks(radius: int, layout: TokenLayout, records: bool) -> bool:
    """
    Whether a window is computed in blocks of queries against the keys around them, or in a graph, whose length is
    open, as one block, and not as candidates.
    """
    if records or radius <= LARGEST_CANDIDATE_RADIUS:
        return False
    return is_traced() or len(layout.lengths) * layout.max_length <= MOST_ROWS * len(layout.position)


def explain(encoder: Any) -> str:
    """What computes the attention of an encoder's tokens outside training, and why."""
    tokens = next(encoder.parameters())
    layout, reach = TokenLayout.full(1, 1, tokens.device), getattr(encoder.config, "reach", None)
    chosen = choose(tokens, layout, reach, has_relay=False, records=False)
    return f"{chosen.name}, as {chosen.reason}"


# ------ Triton kernels


def _attend_with_triton(
    attention: CandidateAttention, query: Tensor, candidates: Candidates
) -> tuple[Tensor, Tensor | None]:
    """As `attention.attend`, by `triton_ring_attention.py`."""
    pairs, band = (2, attention.projections.num_heads, attention.projections.head_dim), candidates.band

    def project(states: Tensor | None) -> Tensor | None:
        return None if states is None else candidates.project(states).unflatten(-1, pairs)

    spans = None
    if band is not None:  # [w, r]
        spans = get_or_compute(band.of_spans, "kernels", lambda: band.all_spans().to(torch.float32).contiguous())
    context = find_kernels("triton_ring_attention").candidate_attention(
        attention.projections.split(query),
        project(candidates.tokens),
        project(candidates.embedded),
        project(candidates.node),
        attention.projections.value_bias,
        attention.role_bias,
        candidates.radius,
        None if band is None else band.exists,
        spans,
        candidates.layout,
        attention.dropout_p if attention.training else 0.0,
        attention.projections.scale,
    )
    return attention.projections.project_output(context), None


def _mix_with_triton(
    query: Tensor, relay: Tensor | None, tokens: Tensor, layout: TokenLayout, dropout_p: float
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As `attention.relay_mix`, without weights, by `triton_relay_attention.py`."""
    mixed, total = find_kernels("triton_relay_attention").relay_mix(query, relay, tokens, layout, dropout_p)
    return mixed.to(query.dtype), None, None if total is None else total.to(query.dtype)


def kernels_missing(tokens: Tensor) -> str | None:
    """
    Why Triton kernels do not compute on the device and in the precision of `tokens`; `None` where they do.

    The environment variable MODELING_STAR_KERNELS is read on every call: "auto", the default, uses them on a CUDA GPU
    where Triton works; "0" never does; "1" always does and raises where they cannot run.
    """
    setting = os.environ.get("MODELING_STAR_KERNELS", "auto")
    if setting not in ("auto", "0", "1"):
        raise ValueError(f'MODELING_STAR_KERNELS={setting} is set; "auto", "0" (never) and "1" (always) are allowed.')
    if setting == "0":
        return "MODELING_STAR_KERNELS=0 is set"
    if setting == "auto" and (tokens.device.type != "cuda" or tokens.dtype == torch.float64):
        return f"there are no kernels for {tokens.dtype} on {tokens.device}"
    failure = _kernel_failure(tokens.device)
    if failure is None:
        return None
    reason = f"the Triton kernels do not run on {tokens.device}: {str(failure).rstrip('.')}"
    if setting == "1":
        raise RuntimeError(
            f"MODELING_STAR_KERNELS=1 is set, and {reason}. They need a CUDA GPU, or TRITON_INTERPRET=1 for tests: "
            "export MODELING_STAR_KERNELS=0."
        ) from failure
    logger.warning_once(f"PyTorch computes attention, as {reason}. To hide this: export MODELING_STAR_KERNELS=0.")
    return reason


@functools.lru_cache
def _kernel_failure(device: torch.device) -> Exception | None:
    """The error that keeps the Triton kernels from running on a device; `None` where they run."""
    try:
        return find_kernels("triton_utils").failure_on(device)
    except ImportError as error:
        return error


def find_kernels(name: str) -> Any:
    """
    A file of `modeling_star.kernels`, which depends on this folder and is looked up by its name: the code in a saved
    folder computes without it, and uses it where the package is installed.

    Raises:
        ImportError: the package or Triton is not installed, or the package's kernels are of another interface.
    """
    try:
        package = importlib.import_module("modeling_star.kernels")
    except ModuleNotFoundError as error:
        raise ImportError("they need the package modeling-star: pip install . in its checkout") from error
    if package.INTERFACE != KERNEL_INTERFACE:
        raise ImportError(
            f"the kernels of the installed modeling_star have interface {package.INTERFACE}, and this model's code "
            f"calls {KERNEL_INTERFACE}"
        )
    return importlib.import_module(f"modeling_star.kernels.{name}")
