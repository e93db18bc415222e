"""What fully sharded data parallel (FSDP2) asks of those who do more with a model than call it."""

from typing import Any

import torch
from torch import Tensor, nn


_SHARDS = torch.distributed.is_available()  # some builds of torch are for one process alone
if _SHARDS:
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method
    from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Put whole weights into a model, sharded or not; what it ties to them follows."""
    own = model.state_dict()
    for name, tensor in weights.items():
        mine = own[name]
        if _SHARDS and isinstance(mine, DTensor):
            tensor = distribute_tensor(tensor.to(mine.device), mine.device_mesh, mine.placements)
        mine.copy_(tensor)


def generate_options(model: nn.Module) -> dict[str, Any]:
    """
    Options that the `generate` of a sharded model needs; none for another one.

    `generate` reads an encoder's parameters outside the model's forward, where they are shards: it is registered as a
    forward of its own. All processes gather in each step, so that none may end before the others; transformers sees to
    that by itself for the first version of FSDP alone (seen in 5.23).
    """
    if not (_SHARDS and isinstance(model, FSDPModule)):
        return {}
    if "generate" not in vars(model):
        register_fsdp_forward_method(model, "generate")
    return {"synced_gpus": True}


__all__ = ["generate_options", "load_weights"]
