"""Backward passes that are written by hand."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable


def first_derivatives_only(backward: Callable[..., Any]) -> Callable[..., Any]:
    """
    Decorate the `backward` of a `torch.autograd.Function`, for which a second derivative is a RuntimeError: torch's
    `once_differentiable` alone raises with `.backward()`, but `torch.autograd.grad(..., inputs)` silently omits this
    part (torch 2.13).
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
