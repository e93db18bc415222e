"""
Helpers for modules: layers whose weights are read without a call, first-order backward passes, evaluation mode.
"""

import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """
    Whether a layer computes what its class does: it is no adapter or quantised layer, and has no hook.

    Args:
        layer: any layer.
        kind: the expected class, such as `nn.Linear`.
    """
    return _is_unmodified(layer, kind) and not _has_hooks(layer)


def readable(layer: nn.Module, name: str, alternative: str) -> nn.Linear:
    """
    A linear layer whose weight and bias may be read without calling it. Weights that a hook recomputes, as in
    torch.nn.utils.prune, are recomputed by a call on one row.

    Args:
        layer: the layer.
        name: its name, for the error.
        alternative: where adapters are possible, for the error.

    Raises:
        TypeError: an adapter or a quantised layer has replaced it, or a hook changes its output; both would be
            ignored.
    """
    advice = f"its weight is read without calling it: keep it a plain nn.Linear. {alternative}"
    if not isinstance(layer, nn.Linear) or not _is_unmodified(layer, nn.Linear):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"  # an adapter is often called Linear too
        raise TypeError(f"{name} is a {kind}, and {advice}")
    if _has_hooks(layer):
        row = torch.linspace(-1, 1, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
        output = layer(row[None])
        expected = nn.functional.linear(row[None], layer.weight, layer.bias)
        if not isinstance(output, Tensor) or not torch.equal(output, expected):
            raise TypeError(f"A hook at {name} changes its output, and {advice}")
    return layer


def _is_unmodified(layer: nn.Module, kind: type[nn.Module]) -> bool:
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _has_hooks(layer: nn.Module) -> bool:
    """
    Whether code runs before, after or instead of a layer's forward, which accelerate patches. Torch has no public
    function for this (2.13).
    """
    return bool(layer._forward_hooks or layer._forward_pre_hooks) or "forward" in layer.__dict__


class Dropout(nn.Dropout):
    """As nn.Dropout, which starts an operation even where it drops nothing."""

    def forward(self, states: Tensor) -> Tensor:
        return super().forward(states) if self.training and self.p else states


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """
    Decorate the `backward` of a `torch.autograd.Function` that has no second derivatives.

    torch's `once_differentiable` alone raises with `.backward()`, but `torch.autograd.grad(..., inputs)` silently
    omits this part of a second derivative (torch 2.13).

    Raises:
        RuntimeError: the derivatives are to be differentiated again (`create_graph=True`).
    """
    once = once_differentiable(backward)

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True is given, and this attention has first derivatives only. Record the attentions to "
                "use torch operations, which have all: model(..., output_attentions=True)."
            )
        return once(ctx, *grads)

    return checked


_lock = threading.Lock()
# Number of contexts that a model is in, and the modes of its modules before the first.
_evaluated: WeakKeyDictionary[nn.Module, tuple[int, dict[nn.Module, bool]]] = WeakKeyDictionary()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """
    Put a model in evaluation mode for a while. Several threads may do so: the modes of its modules are restored when
    the last one leaves.
    """
    with _lock:
        users, modes = _evaluated.get(model) or (0, {module: module.training for module in model.modules()})
        _evaluated[model] = users + 1, modes
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, modes = _evaluated.pop(model)
            if users > 1:
                _evaluated[model] = users - 1, modes
            else:
                # Parents first: train() applies to all modules inside.
                for module in model.modules():
                    if module.training != modes.get(module, module.training):
                        module.train(modes[module])


def installed(name: str) -> ModuleType:
    """
    A module of the installed package `modeling_star`, such as "kernels".

    Nothing here imports the package, so that the code in a saved folder needs nothing else: what only some calls use
    is looked up by its name.

    Raises:
        ImportError: the package, or what the module imports, is not installed.
    """
    try:
        return importlib.import_module(f"modeling_star.{name}")
    except ModuleNotFoundError as error:
        if error.name != "modeling_star":
            raise
        raise ImportError("this needs the package: pip install modeling-star") from error


def check_taken(name: str | Path, missing: Iterable[str]) -> None:
    """
    Args:
        name: Hub name or folder of a model whose weights are copied.
        missing: the names of those that its file lacks, and that `from_pretrained` made random.

    Raises:
        ValueError: there are some.
    """
    lacking = sorted(missing)
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        raise ValueError(
            f"The weights of {name} are not all there: its file lacks {', '.join(lacking[:3])}{more}. Copy its files "
            'again, or name another model, "bert-base-cased".'
        )


__all__ = ["Dropout", "check_taken", "eval_mode", "first_derivatives_only", "installed", "is_plain", "readable"]
