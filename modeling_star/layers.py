"""Which layers are what their weights say: those alone may be read without calling them, or computed once for all."""

import torch
from torch import Tensor, nn


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


__all__ = ["is_plain", "readable"]
