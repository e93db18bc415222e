"""
When the layers of an encoder are computed by the compiled code of `cpu.py`, and what it is given: inference alone,
packed tokens, and plain layers, whose weights are read without calling them. Otherwise the layers themselves compute
the same.

Axes: b batch  N flat tokens  d width
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..models.modeling_encoder import has_hooks, is_plain
from ..models.token_layout import TokenLayout
from . import cpu


# Tokens of the longest sequence: keys and values of all of its tokens are held twice, a gigabyte for so many.
LONGEST = 1 << 17


def compiled_layers(
    encoder: Any,
    form: dict[str, Any],
    parts: Callable[[], list[list[tuple[Any, type]]]],
    embedded: Tensor,
    layout: TokenLayout,
    start_relay: Tensor | None = None,
    with_relay: bool = False,
    first_only: bool = False,
) -> tuple[Tensor, Tensor | None] | None:
    """
    The states after all layers of an encoder in evaluation mode.

    Args:
        encoder: the bare encoder, whose layers are in `encoder.layers`.
        form: fields of `cpu.Encoder`.
        parts: for each layer its modules with their expected classes and its tensors with `Tensor`; those with
            parameters in the order of `Slot` in cpu.cpp, with `None` in place of one that it lacks.
        embedded: `[N, d]`.
        layout: where the tokens lie.
        start_relay, with_relay, first_only: as in `cpu.encode`.

    Returns:
        States `[N, d]`, or `[b, d]` with `first_only`, and the relay `[b, d]` or `None`; `None` where PyTorch is to
        compute them.
    """
    if (
        torch.is_grad_enabled()
        or embedded.device.type != "cpu"
        or embedded.dtype not in (torch.float32, torch.bfloat16)
        or form["activation"] not in cpu.ACTIVATIONS
        or not layout.is_packed
        or layout.in_rows
        or not len(embedded)
        or layout.max_length > LONGEST
        or torch.is_autocast_enabled("cpu")
    ):
        return None
    known = _known.get(encoder)
    if known is None or not known.is_valid():
        known = _known[encoder] = _Layers.of(encoder, parts())
    if known.dtype != embedded.dtype:
        return None
    tokens = embedded.contiguous(), layout.offsets, start_relay, with_relay, first_only
    return cpu.encode(encoder, cpu.Encoder(**form), known.parameters, known.stamp, *tokens)


@dataclass(frozen=True)
class _Layers:
    """
    The parameters of layers that are what their classes are, and how to see that this has not changed since.

    Args:
        dtype: of all parameters; `None` where a layer has an adapter, a hook, a quantised weight or dropout.
        parameters: of each layer, in the order of cpu.cpp.
        stamp: the address and version of each.
        modules: all modules of the layers.
        tables, names, values: where each of their parameters and modules was found, and it.
    """

    dtype: torch.dtype | None
    parameters: list[list[Tensor | None]]
    stamp: tuple[int, ...]
    modules: list[nn.Module]
    tables: list[dict[str, Any]]
    names: list[str]
    values: list[Any]

    @classmethod
    def of(cls, encoder: Any, layers: list[list[tuple[Any, type]]]) -> "_Layers":
        found = [[_parameters(*part) for part in layer] for layer in layers]
        parameters: list[list[Tensor | None]] = []
        dtypes: set[torch.dtype | None] = set()
        for layer in found:
            parameters.append([tensor for tensors in layer if tensors is not None for tensor in tensors])
            dtypes.update(None for tensors in layer if tensors is None)
            dtypes.update(tensor.dtype for tensor in parameters[-1] if tensor is not None)
        modules = list(encoder.layers.modules())
        entries: list[Any] = [(encoder._modules, "layers", encoder.layers)]
        for module in modules:
            for table in (module._modules, module._parameters):
                entries += [(table, name, value) for name, value in table.items()]
        dtype = dtypes.pop() if len(dtypes) == 1 else None
        tables, names, values = map(list, zip(*entries, strict=True))
        return cls(dtype, parameters, _stamp(parameters), modules, tables, names, values)

    def is_valid(self) -> bool:
        """Compares some hundred objects without a line of Python for each, as a short text takes no longer itself."""
        return (
            all(map(operator.is_, map(dict.get, self.tables, self.names), self.values))
            and not any(map(has_hooks, self.modules))
            and not any(map(_TRAINING, self.modules))
            and self.stamp == _stamp(self.parameters)
        )


_TRAINING = operator.attrgetter("training")


_known: WeakKeyDictionary[nn.Module, _Layers] = WeakKeyDictionary()


def _stamp(parameters: list[list[Tensor | None]]) -> tuple[int, ...]:
    """The address and the version of each parameter, by which autograd knows changes in place."""
    stamp: list[int] = []
    for layer in parameters:
        for tensor in layer:
            if tensor is not None:
                stamp += (tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version)
    return tuple(stamp)


def _parameters(part: Any, kind: type) -> list[Tensor | None] | None:
    """The parameters of a part of a layer; `None` where they are not all that decides what it computes."""
    if part is None:
        return [None] * (1 if kind is Tensor else 2)
    if kind is Tensor:
        plain = type(part) in (Tensor, nn.Parameter) and part.is_contiguous() and part.device.type == "cpu"
        return [part] if plain else None
    if part.training or not is_plain(part, kind):
        return None
    inside = (part.weight, part.bias) if issubclass(kind, (nn.Linear, nn.LayerNorm)) else ()
    found = [_parameters(tensor, Tensor) for tensor in inside if tensor is not None]
    return None if None in found else [tensor for tensors in found for tensor in tensors]
