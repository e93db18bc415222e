"""A model in evaluation mode for a while, however many threads ask for it."""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """
    Whether a layer computes what its kind does: no adapter, a subclass among them, nothing quantised, and no hook.

    Args:
        layer: what stands in its place.
        kind: `nn.Linear`, say.
    """
    return _is_of(layer, kind) and not _has_hooks(layer)


def readable(layer: nn.Module, place: str, instead: str) -> nn.Linear:
    """
    A linear layer whose weight and bias may be read without calling it, as they are now: what torch.nn.utils.prune and
    its kin put in their place is made anew by a hook, which a call on one row runs.

    Args:
        layer: what stands there.
        place: its name, for the error.
        instead: where adapters may stand, for the error.

    Raises:
        TypeError: an adapter or a quantised layer has taken its place, or a hook changes what it gives: neither would
            be seen.
    """
    advice = f"its weight is read without calling it: keep it a plain nn.Linear. {instead}"
    if not isinstance(layer, nn.Linear) or not _is_of(layer, nn.Linear):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"  # a foreign one is often a Linear by name too
        raise TypeError(f"{place} is a {kind}, and {advice}")
    if _has_hooks(layer):
        row = torch.linspace(-1, 1, layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
        given = layer(row[None])
        own = nn.functional.linear(row[None], layer.weight, layer.bias)
        if not isinstance(given, Tensor) or not torch.equal(given, own):
            raise TypeError(f"A hook at {place} changes what it gives, and {advice}")
    return layer


def _is_of(layer: nn.Module, kind: type[nn.Module]) -> bool:
    return isinstance(layer, kind) and type(layer).forward is kind.forward


def _has_hooks(layer: nn.Module) -> bool:
    """
    Whether something runs before or after a layer, or in its place (accelerate patches `forward`). Torch has no public
    way to ask (seen in 2.13).
    """
    return bool(layer._forward_hooks or layer._forward_pre_hooks) or "forward" in layer.__dict__


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """
    Decorate the `backward` of a `torch.autograd.Function` that has no backward of its own.

    torch's `once_differentiable` alone raises with `.backward()`, but lets `torch.autograd.grad(..., inputs)` leave
    the part behind it out of a second derivative, in silence (seen in torch 2.13).

    Raises:
        RuntimeError: the derivatives are to be differentiated again (`create_graph=True`).
    """
    once = once_differentiable(backward)

    @functools.wraps(backward)
    def checked(ctx: Any, *grads: Any) -> Any:
        if torch.is_grad_enabled():
            raise RuntimeError(
                "create_graph=True is given, and this attention has first derivatives only. Torch's own operations, "
                "which have all, take its place where attentions are recorded: model(..., output_attentions=True)."
            )
        return once(ctx, *grads)

    return checked


_lock = threading.Lock()
# How many are within, and the modes before the first came: those of a model's modules need not be alike.
_users: WeakKeyDictionary[nn.Module, tuple[int, dict[nn.Module, bool]]] = WeakKeyDictionary()


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """
    Within it the model is in evaluation mode. The mode that each of its modules was in before comes back when the last
    of several threads leaves: the first to leave would switch dropout on under the others.
    """
    with _lock:
        if model in _users:
            users, modes = _users[model]
        else:
            users, modes = 0, {module: module.training for module in model.modules()}
        _users[model] = users + 1, modes
        model.eval()
    try:
        yield
    finally:
        with _lock:
            users, modes = _users.pop(model)
            if users > 1:
                _users[model] = users - 1, modes
            else:
                # Parents first, since train() is for all that is inside; and a module may do more in it.
                model.train(modes[model])
                for module in model.modules():
                    if module.training != modes.get(module, module.training):
                        module.train(modes[module])


__all__ = [
    "eval_mode",
    "first_derivatives_only",
    "is_plain",
    "readable",
]
