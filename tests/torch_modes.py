"""Other ways for torch to run a model: as a traced graph, with the types that autocast has on a GPU, or watched."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


def compiled(model: nn.Module, fullgraph: bool = True, **options: Any) -> Callable[..., Any]:
    """The model as one traced graph, run as it is ("eager"): tracing is what our code can break."""
    torch._dynamo.reset()
    return torch.compile(model, fullgraph=fullgraph, backend="eager", **options)


class GpuAutocast(TorchFunctionMode):
    """
    Autocast on a GPU computes some operations in float32, and leaves their results so; on a CPU it does not.

    With it around a CPU's autocast, what mixes the two types breaks as it would there.
    """

    IN_FLOAT32 = ("sum", "softmax", "log_softmax", "cumsum", "layer_norm", "norm", "prod", "exp", "logsumexp")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") not in self.IN_FLOAT32 or kwargs.get("dtype") is not None:
            return func(*args, **kwargs)
        half = (torch.float16, torch.bfloat16)
        args = [x.float() if torch.is_tensor(x) and x.dtype in half else x for x in args]
        with torch.autocast("cpu", enabled=False):
            return func(*args, **kwargs)


class LargestTensor(TorchDispatchMode):
    """Takes note of the most numbers that any operation returns in one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else (result,):
            if isinstance(x, Tensor):
                stored = x.values() if x.layout == torch.sparse_csr else x
                self.numbers = max(self.numbers, stored.numel())
        return result
