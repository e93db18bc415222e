"""
A copy of a model whose layers are computed by compiled code, for inference on a CPU: `cpu.cpp`.

Weights are packed once, when the copy is made, and its layers are dropped: nothing is left whose change would not be
noticed. The model itself computes what its file says, in PyTorch.

Axes: b sequences  N flat tokens  d width
"""

import copy
import operator
from ctypes import byref, c_void_p
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..models import ops
from ..models.char_cnn import tabulate_characters
from ..models.modeling_big import BigTransformerModel
from ..models.modeling_encoder import Recorder
from ..models.modeling_star import StarTransformerModel
from ..models.token_layout import TokenLayout, is_traced
from . import cpu
from .cpu import UnavailableError


Model = TypeVar("Model", bound=nn.Module)


def compiled(model: Model, dtype: Literal["bfloat16"] | None = None) -> Model:
    """
    A copy of a model for inference on a CPU, whose layers are computed by compiled code where there is some for them:
    those of Star, and of BiG with a window and a first token that is the global node.

    ```python
    fast = compiled(model)
    logits = fast(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    ```

    The copy does not follow later changes of the model. It has no layers, and so no weights to train, edit or save, no
    gradients, hidden states or attentions: the model has them. Where PyTorch computes the layers, the copy has them,
    and `describe` says why.

    Args:
        model: any model of this package or of transformers; of one in training mode, the copy is in evaluation mode.
        dtype: numbers of the layers: "bfloat16" where the processor has AMX, or AVX512_BF16 of AMD; `None`: as their
            weights.
    """
    # Tensors that hooks compute, as in torch.nn.utils.prune, are copied by no deepcopy.
    of_hooks = (x for module in model.modules() for x in vars(module).values() if isinstance(x, Tensor))
    memo = {id(x): x.detach().clone() for x in of_hooks}
    return compile_layers(copy.deepcopy(model, memo), dtype)


def compile_layers(model: Model, dtype: Literal["bfloat16"] | None = None) -> Model:
    """As `compiled`, in place: for a model that nothing else holds, whose layers would need memory twice."""
    if model.training:
        model.eval()
    model.requires_grad_(False)
    tabulate_characters(model)
    encoders: list[Any] = [x for x in model.modules() if isinstance(x, StarTransformerModel | BigTransformerModel)]
    reason = None if encoders else "it has no Star- or BiG-Transformer of this package"
    for encoder in encoders:
        try:
            if not isinstance(encoder, _CompiledEncoder):
                encoder.layers = CompiledLayers(encoder, dtype)
                encoder.__class__ = _COMPILED[type(encoder)]
        except UnavailableError as error:
            reason = str(error)
    vars(model)["_not_compiled"] = reason
    return model


def is_compiled(model: nn.Module) -> bool:
    """Whether compiled code computes layers of a model."""
    return any(isinstance(module, CompiledLayers) for module in model.modules())


def describe(model: nn.Module) -> str:
    """
    What computes a model, in three lines: the library with its instructions, the numbers, and whether the layers are
    compiled or why they are not.
    """
    tensor = next(model.parameters(), torch.empty(0))
    numbers = str(tensor.dtype).removeprefix("torch.")
    library = f"PyTorch {torch.__version__}, {tensor.device}"
    if tensor.device.type == "cpu":
        library += f" with {torch.backends.cpu.get_cpu_capability()}"
    if is_compiled(model):
        layers = next(module for module in model.modules() if isinstance(module, CompiledLayers))
        library = f"compiled layers with {layers.level.upper()}, else {library}"
        numbers = numbers if layers.numbers == numbers else f"{layers.numbers} in the layers, {numbers} elsewhere"
    encoders = [x for x in model.modules() if isinstance(x, StarTransformerModel | BigTransformerModel)]
    library += "".join(f"; attention: {ops.explain(x)}" for x in encoders if not isinstance(x, _CompiledEncoder))
    reason = vars(model).get("_not_compiled", "it is no compiled(model)")
    return f"library: {library}\nnumbers: {numbers}\ncompiled: {'yes' if reason is None else f'no, {reason}'}"


# ------ what is compiled

# What the forward pass of an encoder looks up when it is called.
_FIELDS = ("num_hidden_layers", "pooling")
_OF_STAR = ("use_radial",)
_OF_BIG = ("local_connection", "window_radius", "global_connection", "global_node", "lexicon_kind")


class CompiledLayers(nn.Module):
    """All layers of an encoder as one call of compiled code, or an `UnavailableError` that says why not."""

    def __init__(self, encoder: StarTransformerModel | BigTransformerModel, dtype: str | None):
        super().__init__()
        self.eval()
        self._code, self.level = cpu.library()
        config: Any = encoder.config
        is_star = type(encoder) is StarTransformerModel
        _check(encoder)
        layers: Any = encoder.layers
        start_norm = getattr(encoder, "relay_start_norm", None)
        slots = [slot for layer in layers for slot in _slots(layer, start_norm)]
        dtypes = {slot.dtype for slot in slots if slot is not None}
        if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.bfloat16}:
            raise UnavailableError(f"the layers are in {' and '.join(sorted(map(str, dtypes)))}")
        self.dtype = dtypes.pop()
        low = self.dtype == torch.bfloat16 or dtype == "bfloat16"
        self.numbers = "bfloat16" if low and self.level in cpu.WITH_BFLOAT16 else "float32"
        self._precisions = low, self.dtype == torch.bfloat16
        self._fields = operator.attrgetter(*_FIELDS, *(_OF_STAR if is_star else _OF_BIG))
        self._values = self._fields(config)
        pooling = "first" if config.pooling == "global" else config.pooling
        d, h = config.hidden_size, config.num_attention_heads
        self._shape = cpu.Shape(
            kind=cpu.KINDS.index("star" if is_star else "big"),
            d=d,
            h=h,
            c=config.head_dim if is_star else d // h,
            layers=len(layers),
            radius=config.reach if is_star else config.window_radius,
            inner=0 if is_star else config.intermediate_size,
            activation=cpu.ACTIVATIONS.index(config.hidden_act),
            residual=is_star and config.residual,
            radial=is_star and config.use_radial,
            start_norm=start_norm is not None,
            pooling=cpu.POOLINGS.index(pooling if encoder.add_pooling_layer else None),
            eps=config.layer_norm_eps,
        )
        if self._shape.c > 16 * self._code.modeling_star_lanes():
            raise UnavailableError(f"there is no code for heads of {self._shape.c}")
        tensors = [None if slot is None else slot.detach().resolve_neg().contiguous() for slot in slots]
        addresses = (c_void_p * len(tensors))(*(None if x is None else x.data_ptr() for x in tensors))
        self._weights = torch.empty(
            self._code.modeling_star_packed_size(byref(self._shape), low), dtype=torch.uint8, device="cpu"
        )
        self._code.modeling_star_pack(byref(self._shape), *self._precisions, addresses, self._weights.data_ptr())

    def forward(
        self, embedded: Tensor, layout: TokenLayout, config: Any, with_states: bool
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """States `[N, d]`, vectors and relays `[b, d]` from embeddings `[N, d]`."""
        shape, b = self._shape, len(layout.lengths)
        if embedded.shape[1] != shape.d or embedded.dtype != self.dtype or embedded.device.type != "cpu":
            raise UserError(
                f"The layers were compiled for {self.dtype} on the CPU, {shape.d} wide, and get {embedded.dtype} on "
                f"{embedded.device}, {embedded.shape[1]} wide: convert the model, and write compiled(model)."
            )
        if self._fields(config) != self._values:
            raise UserError("The configuration was changed after the layers were compiled: write compiled(model).")
        states = embedded.new_zeros(embedded.shape) if with_states else None
        pooled = embedded.new_zeros((b, shape.d)) if shape.pooling else None
        relay = embedded.new_zeros((b, shape.d)) if shape.pooling and shape.radial else None
        embedded = embedded.contiguous()
        if len(embedded) and self._code.modeling_star_encode(
            byref(shape),
            *self._precisions,
            self._weights.data_ptr(),
            embedded.data_ptr(),
            layout.offsets.data_ptr(),
            b,
            *(None if x is None else x.data_ptr() for x in (states, relay, pooled)),
            torch.get_num_threads(),
        ):
            raise MemoryError(f"No memory for the states of {len(embedded)} tokens: use smaller batches.")
        return states, pooled, relay

    def train(self, mode: bool = True) -> "CompiledLayers":
        if mode:
            raise _refused("training mode")
        return self

    def _refuse(self, *arguments: Any, **options: Any) -> Any:
        raise _refused("weights to save, load or pickle")

    _save_to_state_dict = _load_from_state_dict = __reduce_ex__ = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompiledLayers":
        return self  # it never changes


def _refused(what: str) -> UserError:
    return UserError(f"A compiled copy has no {what}: use the model that was given to compiled(model).")


class _CompiledEncoder:
    """The flow of an encoder whose `layers` are `CompiledLayers`."""

    def encode(
        self: Any, embedded: Tensor, layout: TokenLayout, record: Recorder, inputs: dict[str, Tensor | None]
    ) -> tuple[Tensor | None, dict[str, Any]]:
        refused = {
            "hidden states and attentions": record.wants_all,
            "gradients": embedded.requires_grad,
            "training mode": self.training,
            "words": inputs["word_mask"] is not None,
            "autocast": torch.is_autocast_enabled("cpu"),
            "traced graph": is_traced() or (layout.in_rows and not layout.is_full),
        }
        for what, is_asked in refused.items():
            if is_asked:
                raise _refused(what)
        states, pooled, relay = self.layers(embedded, layout, self.config, record.wants_token_states)
        return states, {"pooler_output": pooled, "relay_state": relay} if self.add_pooling_layer else {}


class CompiledStarTransformerModel(_CompiledEncoder, StarTransformerModel):
    """A Star-Transformer in a copy of `compiled`."""


class CompiledBigTransformerModel(_CompiledEncoder, BigTransformerModel):
    """A BiG-Transformer in a copy of `compiled`."""


_COMPILED: dict[type, type] = {
    StarTransformerModel: CompiledStarTransformerModel,
    BigTransformerModel: CompiledBigTransformerModel,
}


# ------ the layers that the code computes


def _slots(layer: Any, start_norm: Any) -> list[Tensor | None]:
    """The parameters of a layer in the order of `Slot` in cpu.cpp, `None` where the configuration makes none."""
    is_star = hasattr(layer, "ring_attention")
    attention = layer.ring_attention if is_star else layer.attention
    found = [*_projections(attention), attention.role_bias]
    names = ("ring_norm",) if is_star else ("attention_norm", "intermediate", "output", "output_norm")
    for module in (getattr(layer, name) for name in names):
        found += [module.weight, module.bias]
    if is_star and layer.relay_attention is not None:
        found += [*_projections(layer.relay_attention), layer.relay_norm.weight, layer.relay_norm.bias]
    of_start = [None, None] if start_norm is None else [start_norm.weight, start_norm.bias]
    return [*found, *[None] * (cpu.SLOTS - len(found) - 2), *of_start]


def _projections(attention: Any) -> list[Tensor | None]:
    query, key, value, output = (getattr(attention.projections, name) for name in ("query", "key", "value", "output"))
    return [query.weight, query.bias, key.weight, value.weight, value.bias, output.weight, output.bias]


def _check(encoder: StarTransformerModel | BigTransformerModel) -> None:
    """
    Raises:
        UnavailableError: the layers are not what the code computes: exactly those that the configuration makes.
    """
    config: Any = encoder.config
    if type(encoder) not in _COMPILED:
        raise UnavailableError(f"the encoder is a {type(encoder).__name__}")
    if type(encoder) is StarTransformerModel:
        is_known = config.reach <= cpu.MOST_NEIGHBOURS
    else:
        is_known = (config.local_connection, config.global_node, config.lexicon_kind) == ("window", "first", None)
    if not is_known or config.hidden_act not in cpu.ACTIVATIONS[1:]:
        raise UnavailableError("there is no code for its configuration")
    made: Any = nn.Module()
    made.add_pooling_layer = encoder.add_pooling_layer
    try:
        with torch.device("meta"):
            type(encoder).build_encoder(made, config)
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise UnavailableError(f"the configuration makes no encoder: {error}") from error
    of_torch = nn.modules.module  # hooks of every module, for which torch has no public name (2.13)
    if of_torch._global_forward_hooks or of_torch._global_forward_pre_hooks:
        raise UnavailableError("every module has a hook")
    if replaced := vars(type(encoder)).keys() & vars(encoder).keys():
        raise UnavailableError(f"{min(replaced)} was replaced")
    for name in ("layers", "global_pooling", "relay_start_norm"):
        difference = _difference(getattr(encoder, name, None), getattr(made.eval(), name, None), name)
        if difference is not None:
            raise UnavailableError(difference)


def _difference(given: Any, made: Any, name: str) -> str | None:
    """How a part of an encoder is not what its configuration makes, in class, attributes, hooks and shapes."""
    if type(given) is not type(made):
        return f"{name} is {_class_name(given)} in place of {_class_name(made)}"
    if given is None:
        return None
    if isinstance(given, Tensor):
        fits = given.shape == made.shape and given.device.type == "cpu" and given.layout == torch.strided
        return None if fits else f"{name} is {[*given.shape]} on {given.device} in place of {[*made.shape]} on the CPU"
    forward: Any = type(given).forward
    names = ("_forward_unimplemented", *(f"{each.__qualname__}.forward" for each in type(given).__mro__))
    is_patched = forward.__qualname__ not in names
    if given._forward_hooks or given._forward_pre_hooks or is_patched:
        return f"{name} has a hook or another forward"
    mine, theirs = vars(given), vars(made)
    for key in {**theirs, **mine}:
        # Names with _ are torch's and transformers' own, unless they hide a method; checkpointing is for training.
        is_private = key.startswith("_") and (key in theirs or not hasattr(type(given), key))
        if not is_private and key != "gradient_checkpointing":
            value, other = getattr(given, key, None), getattr(made, key, None)
            if type(value) is not type(other) or value != other:
                return f"{name}.{key} is {value!r:.50} in place of {other!r:.50}"
    for table in ("_parameters", "_buffers", "_modules"):
        if mine[table].keys() != theirs[table].keys():
            return f"{name} has {[*mine[table]]} in place of {[*theirs[table]]}"
        for key, value in mine[table].items():
            difference = _difference(value, theirs[table][key], f"{name}.{key}")
            if difference is not None:
                return difference
    return None


def _class_name(x: Any) -> str:
    return "None" if x is None else f"{type(x).__name__} of {type(x).__module__.partition('.')[0]}"
