"""
CUDA graphs: a forward pass on a GPU without the time that starting its operations takes.

Axes: b batch  n columns  N flat tokens  d width  h heads  c width of a head
"""

import copy
import inspect
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import ModelOutput, logging

from ..models.attention import AttentionProjections, UpdateLayerNorm
from ..models.char_cnn import tabulate_characters
from ..models.modeling_big import BigTransformerLayer, BigTransformerModel, WordAttention
from ..models.modeling_encoder import EncoderModel, longest_input
from ..models.modeling_star import StarTransformerModel
from ..models.token_layout import fixed_shapes


logger = logging.get_logger(__name__)

# Inputs that a graph has memory for; with others, such as labels, the model is called as usual.
_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
# Outputs with an axis of columns.
_OF_TOKENS = ("last_hidden_state", "start_logits", "end_logits", "paths", "messages")
# Half-precision numbers in 16 bytes: rows of other widths keep a GPU's tensor cores from the fast products.
_ALIGNMENT = 8


def cuda_graphs(model: PreTrainedModel, max_graphs: int = 64) -> "GraphedModel":
    """
    A copy of a model for inference on a CUDA GPU, which records its operations as CUDA graphs and replays them.

    ```python
    graphed = cuda_graphs(model.to("cuda", torch.bfloat16))
    logits = graphed(**tokenizer(texts, padding=True, return_tensors="pt")).logits
    ```

    The first call with a new size of batch records a graph, which takes a moment: sizes are rounded up, to one of
    eight steps between powers of two. In half precision, widths that are no multiple of 8 are padded in the copy. The
    copy does not follow later changes of the model.

    Args:
        model: any model of this package or of transformers, on a CUDA GPU. What cannot be recorded (labels, attention
            weights, hidden states; the BiLSTM and the DiSAN) is computed as usual.
        max_graphs: sizes that are kept; beyond, the one that was not used for the longest time is dropped.

    Raises:
        ValueError: the model is not on a CUDA GPU.
    """
    if model.device.type != "cuda":
        raise ValueError(f'The model is on {model.device}; CUDA graphs need a CUDA GPU: model.to("cuda").')
    return GraphedModel(model, max_graphs)


@dataclass
class _Graph:
    """Recorded operations, the memory that they read, `[b, n]` each, and write, and other constants."""

    graph: torch.cuda.CUDAGraph
    inputs: dict[str, Tensor]
    output: ModelOutput
    wrong: Tensor | None
    constants: dict[Any, Any]

    def replay(self, given: dict[str, Tensor]) -> ModelOutput | None:
        """The output for inputs `[b, n]`, which may be smaller than the memory; `None` if they are not allowed."""
        for name, memory in self.inputs.items():
            if memory.shape != given[name].shape:
                memory.zero_()
            rows, columns = given[name].shape
            memory[:rows, :columns].copy_(given[name])
        self.graph.replay()
        found = {name: _cut(name, x, *given["input_ids"].shape) for name, x in self.output.items()}
        if self.wrong is not None and bool(self.wrong):
            return None
        return type(self.output)(**found)


class GraphedModel:
    """See `cuda_graphs`. Called as the model is, with the same result up to rounding, without gradients."""

    def __init__(self, model: PreTrainedModel, max_graphs: int):
        self.model = aligned(model).eval()
        self.config = self.model.config
        self._encoders = [module for module in self.model.modules() if isinstance(module, EncoderModel)]
        self._signature = inspect.signature(self.model.forward)
        self._limit = longest_input(self.config)
        self._max_graphs = max_graphs
        self._graphs: OrderedDict[Any, _Graph | None] = OrderedDict()
        self._memory = torch.cuda.graph_pool_handle()

    @torch.no_grad()
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the model's `forward`; tensors may be on the CPU."""
        arguments = self._signature.bind(*args, **kwargs).arguments
        arguments |= arguments.pop("kwargs", {})
        arguments = {name: value for name, value in arguments.items() if value is not None}
        tensors = {name: value for name, value in arguments.items() if isinstance(value, Tensor)}
        flags = {name: value for name, value in arguments.items() if name not in tensors}
        output = self._replayed(tensors, flags) if self._can_be_recorded(tensors, flags) else None
        # What is not allowed is an error here.
        device = self.model.device
        return output or self.model(**{name: x.to(device) for name, x in tensors.items()}, **flags)

    def _can_be_recorded(self, tensors: dict[str, Tensor], flags: dict[str, Any]) -> bool:
        ids = tensors.get("input_ids")
        if ids is None or ids.dim() != 2 or (self._limit is not None and ids.shape[1] > self._limit):
            return False
        recorded = ("output_attentions", "output_hidden_states")
        records = any(flags.get(name, getattr(self.config, name, False)) for name in recorded)
        known = tensors.keys() <= set(_INPUTS) and all(x.shape == ids.shape for x in tensors.values())
        has_names = flags.get("return_dict", True)
        return known and has_names and not records and not torch.is_autocast_enabled("cuda")

    def _replayed(self, tensors: dict[str, Tensor], flags: dict[str, Any]) -> ModelOutput | None:
        """The output of a graph, recorded where there is none; `None` where inputs or model do not allow it."""
        given, ids = dict(tensors), tensors["input_ids"]
        mask = given.get("attention_mask")
        if mask is not None and mask.device.type == "cpu" and bool((mask > 0).all()):
            del given["attention_mask"]
        size = [_rounded(length) for length in ids.shape]
        size[1] = min(size[1], self._limit or size[1])
        if size != list(ids.shape) and "attention_mask" not in given:
            given["attention_mask"] = torch.ones_like(ids)
        key = (*size, *sorted((name, x.dtype) for name, x in given.items()), *sorted(flags.items()))
        if key not in self._graphs:
            self._graphs[key] = self._record(given, size, flags)
            if len(self._graphs) > self._max_graphs:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        graph = self._graphs[key]
        return None if graph is None else graph.replay(given)

    def _record(self, given: dict[str, Tensor], size: list[int], flags: dict[str, Any]) -> _Graph | None:
        """A graph for inputs `[b, n]` of that size; `None` where the model cannot be recorded."""
        device = self.model.device
        inputs = {name: torch.zeros(size, dtype=x.dtype, device=device) for name, x in given.items()}
        sizes = self._encoders[0].embeddings.input_sizes() if len(self._encoders) == 1 else {}
        constants: dict[Any, Any] = {}

        def run() -> tuple[ModelOutput, Tensor | None]:
            allowed, wrong = _checked(inputs, sizes) if sizes else (inputs, None)
            with fixed_shapes(constants):
                return self.model(**allowed, **flags), wrong

        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        try:
            with torch.cuda.device(device):
                with torch.cuda.stream(stream):
                    run()  # compiles kernels, makes constants
                torch.cuda.current_stream(device).wait_stream(stream)
                with torch.cuda.graph(graph, pool=self._memory):
                    output, wrong = run()
        except RuntimeError as error:  # CUDA's errors are such
            reason = str(error).strip().splitlines()[0]
            logger.warning_once(f"{type(self.model).__name__} runs without CUDA graphs: {reason}")
            self._memory = torch.cuda.graph_pool_handle()  # the other one counts as being recorded
            return None
        return _Graph(graph, inputs, output, wrong, constants)


def _checked(inputs: dict[str, Tensor], sizes: dict[str, int | None]) -> tuple[dict[str, Tensor], Tensor]:
    """Inputs `[b, n]` with 0 in place of what is out of range, and whether a real token has such; on the GPU."""
    mask = inputs.get("attention_mask")
    wrong = torch.zeros((), dtype=torch.bool, device=inputs["input_ids"].device)
    if mask is not None and mask.dtype != torch.bool:
        wrong = (mask < 0).any()
    allowed = dict(inputs)
    for name, size in sizes.items():
        if name in inputs and size is not None:
            outside = (inputs[name] < 0) | (inputs[name] >= size)
            allowed[name] = inputs[name].masked_fill(outside, 0)
            wrong = wrong | (outside if mask is None else outside & (mask != 0)).any()
    return allowed, wrong


def _rounded(length: int) -> int:
    """The next of eight steps between powers of two."""
    step = max(1, 2 ** (length.bit_length() - 4))
    return -(-length // step) * step


def _cut(name: str, x: Any, b: int, n: int) -> Any:
    """A copy of what belongs to the b rows and n columns that were given; the next replay overwrites the output."""
    if not isinstance(x, Tensor):
        return x
    has_columns = name in _OF_TOKENS or (name == "logits" and x.dim() == 3)
    return (x[:b, :n] if has_columns else x[:b]).clone(memory_format=torch.contiguous_format)


# ------ widths


def aligned(model: PreTrainedModel) -> PreTrainedModel:
    """
    A copy of a model that computes the same, for inference: in half precision, the width d of each Star- or
    BiG-Transformer inside and the width c of its heads are padded with zeros to multiples of 8.
    """
    model = copy.deepcopy(model)
    tabulate_characters(model)
    for encoder in list(model.modules()):
        if isinstance(encoder, StarTransformerModel | BigTransformerModel) and encoder.dtype.itemsize == 2:
            _align(encoder)
    return model


def _align(encoder: StarTransformerModel | BigTransformerModel) -> None:
    """Pad the widths within `encode`."""
    d = encoder.config.hidden_size
    wide = _multiple(d)
    rows, columns = (0, d, wide), (1, d, wide)
    for module in encoder.modules():
        if isinstance(module, UpdateLayerNorm):
            module.padding = wide - d
        elif isinstance(module, AttentionProjections):
            c, module.head_dim = module.head_dim, _multiple(module.head_dim)
            for linear in (module.query, module.key, module.value):
                _pad(linear, (0, c, module.head_dim), columns)
            _pad(module.output, rows, (1, c, module.head_dim))
        elif isinstance(module, BigTransformerLayer):
            _pad(module.intermediate, columns)
            _pad(module.output, rows)
        if isinstance(module, WordAttention) and module.global_node is not None:
            _pad(module.global_node, rows, columns)
    if isinstance(encoder, BigTransformerModel) and encoder.global_pooling is not None:
        _pad(encoder.global_pooling, rows, columns)
    encoder.encode = partial(_encode, encoder.encode, d, wide)  # type: ignore[method-assign]


def _encode(
    encode: Callable[..., tuple[Tensor, dict[str, Any]]], d: int, wide: int, embedded: Tensor, *others: Any
) -> tuple[Tensor, dict[str, Any]]:
    """`EncoderModel.encode` of states `[N, d]` in a wider model."""
    tokens, per_sequence = encode(nn.functional.pad(embedded, (0, wide - d)), *others)
    return tokens[..., :d], {name: None if x is None else x[..., :d] for name, x in per_sequence.items()}


def _multiple(width: int) -> int:
    return -(-width // _ALIGNMENT) * _ALIGNMENT


def _pad(linear: nn.Linear, *axes: tuple[int, int, int]) -> None:
    """Put zeros into a layer's weight and bias, after every `width` numbers of an axis up to `wide`."""
    for axis, width, wide in axes:
        for name, parameter in list(linear.named_parameters()):
            if axis < parameter.dim():
                parts = parameter.detach().movedim(axis, -1).unflatten(-1, (-1, width))
                padded = nn.functional.pad(parts, (0, wide - width)).flatten(-2).movedim(-1, axis)
                setattr(linear, name, nn.Parameter(padded.contiguous(), requires_grad=False))
