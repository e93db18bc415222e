"""
When the layers of an encoder are computed by the compiled code of `cpu.py`, and what it is given: inference alone,
packed tokens, and plain layers, whose weights are read without calling them. Otherwise the layers themselves compute
the same.

Axes: b batch  N flat tokens  d width
"""

import itertools
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ..models.modeling_encoder import is_plain
from ..models.token_layout import TokenLayout
from . import cpu


# Tokens of the longest sequence: keys and values of all of its tokens are held twice, a gigabyte for so many.
LONGEST = 1 << 17
# Of all modules of the process; torch has no public name for them (2.13).
_GLOBAL_HOOKS = [getattr(nn.modules.module, f"_global_forward_{kind}", {}) for kind in ("hooks", "pre_hooks")]


def compiled_layers(
    encoder: Any,
    describe: Callable[[], tuple[dict[str, Any], list[list[tuple[Any, type]]]]],
    radius: int,
    embedded: Tensor,
    layout: TokenLayout,
    pooling: str | None,
    with_states: bool,
    start_relay: Tensor | None = None,
) -> tuple[Tensor | None, Tensor | None, Tensor | None] | None:
    """
    The states after all layers of an encoder in evaluation mode, and the vectors of the sequences.

    Args:
        encoder: the bare encoder, whose layers are in `encoder.layers`; `encoder.layers_on_cpu` says how they are
            computed.
        describe: called where the layers are not known: the fields of `cpu.Encoder`, and for each layer its modules
            with their expected classes and its tensors with `Tensor`; those with parameters in the order of `Slot` in
            cpu.cpp, with `None` in place of one that it lacks.
        radius: neighbours on either side.
        embedded: `[N, d]`.
        layout: where the tokens lie.
        pooling, with_states, start_relay: as in `cpu.encode`.

    Returns:
        States `[N, d]`, vectors `[b, d]` and relays `[b, d]` as `cpu.encode`; `None` where PyTorch is to compute them.
    """
    if (
        encoder.layers_on_cpu == "PyTorch"
        or torch.is_grad_enabled()
        or embedded.device.type != "cpu"
        or embedded.dtype not in (torch.float32, torch.bfloat16)
        or not layout.is_packed
        or layout.in_rows
        or not len(embedded)
        or layout.max_length > LONGEST
        or torch.is_autocast_enabled("cpu")
        or any(_GLOBAL_HOOKS)
    ):
        return None
    known = _known.get(encoder)
    if known is None or not known.is_valid():
        known = _Layers.of(encoder, *describe())
        if not known.is_valid():  # a hook, or training, for now: not kept, as both may end
            return None
        _known[encoder] = known
    if known.dtype != embedded.dtype:
        return None
    return cpu.encode(
        encoder,
        known.form,
        known.parameters,
        known.stamp,
        radius,
        embedded.contiguous(),
        layout.offsets,
        encoder.layers_on_cpu == "bfloat16" or embedded.dtype == torch.bfloat16,
        pooling,
        with_states,
        start_relay,
    )


@dataclass(frozen=True)
class _Layers:
    """
    The parameters of layers that are what their classes are, and how to see that this has not changed since.

    Args:
        dtype: of all parameters; `None` where a layer has an adapter, a hook, a quantised weight or dropout, or there
            is no code for it.
        form: fields of `cpu.Encoder`.
        parameters: of each layer, in the order of cpu.cpp.
        tensors, versioned: those that there are, and of these the ones that autograd counts changes of.
        stamp: their addresses and versions.
        modules, hooks: the attributes of all modules of the layers, and their hooks.
        tables, names, values: where each of their parameters and modules was found, and it.
    """

    dtype: torch.dtype | None
    form: dict[str, Any]
    parameters: list[list[Tensor | None]]
    tensors: list[Tensor]
    versioned: list[Tensor]
    stamp: tuple[int, ...]
    modules: list[dict[str, Any]]
    hooks: list[dict[int, Any]]
    tables: list[dict[str, Any]]
    names: list[str]
    values: list[Any]

    @classmethod
    def of(cls, encoder: Any, form: dict[str, Any], layers: list[list[tuple[Any, type]]]) -> "_Layers":
        found = [[_parameters(*part) for part in layer] for layer in layers]
        parameters = [[tensor for tensors in layer for tensor in tensors or ()] for layer in found]
        tensors = [tensor for layer in parameters for tensor in layer if tensor is not None]
        dtypes = {tensor.dtype for tensor in tensors}
        has_code = form["activation"] in cpu.ACTIVATIONS and None not in itertools.chain.from_iterable(found)
        versioned = [tensor for tensor in tensors if not tensor.is_inference()]
        modules = list(encoder.layers.modules())
        entries: list[Any] = [(encoder._modules, "layers", encoder.layers)]
        for module in modules:
            for table in (module._modules, module._parameters):
                entries += [(table, name, value) for name, value in table.items()]
        tables, names, values = map(list, zip(*entries, strict=True))
        return cls(
            dtypes.pop() if has_code and len(dtypes) == 1 else None,
            form,
            parameters,
            tensors,
            versioned,
            _stamp(tensors, versioned),
            [vars(module) for module in modules],
            [hooks for module in modules for hooks in (module._forward_hooks, module._forward_pre_hooks)],
            tables,
            names,
            values,
        )

    def is_valid(self) -> bool:
        """Compares some hundred objects without a line of Python for each, as a short text takes no longer itself."""
        return (
            all(map(operator.is_, map(dict.get, self.tables, self.names), self.values))
            and not any(self.hooks)
            and not any(map(dict.get, self.modules, itertools.repeat("training")))
            and not any(map(dict.__contains__, self.modules, itertools.repeat("forward")))
            and self.stamp == _stamp(self.tensors, self.versioned)
        )


_known: WeakKeyDictionary[nn.Module, _Layers] = WeakKeyDictionary()


def _stamp(tensors: list[Tensor], versioned: list[Tensor]) -> tuple[int, ...]:
    """Addresses, and the versions by which autograd knows changes in place."""
    return (*map(Tensor.data_ptr, tensors), *map(_VERSION, versioned))


_VERSION = operator.attrgetter("_version")


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
