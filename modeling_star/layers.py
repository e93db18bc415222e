"""Which layers are what their weights say: those alone may be read without calling them, or computed once for all."""

from torch import nn


def is_plain(layer: nn.Module, kind: type[nn.Module]) -> bool:
    """
    Whether a layer computes what its kind does: no adapter, a subclass among them, and nothing quantised.

    Args:
        layer: what stands in its place.
        kind: `nn.Linear`, say.
    """
    return isinstance(layer, kind) and type(layer).forward is kind.forward


__all__ = ["is_plain"]
