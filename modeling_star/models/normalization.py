"""LayerNorm of a state and what a layer adds to it.

Axes: N rows  d width
"""

import torch
from torch import Tensor, nn

from .attention import find_kernels, kernels_run


class UpdateLayerNorm(nn.LayerNorm):
    """
    LayerNorm of a state plus its update, the post-norm of both encoders. On a GPU, outside training, it is one kernel.
    Its name has "LayerNorm" in it, by which transformers initialises norms (seen in 5.23).

    Attributes:
        padding: columns of zeros after the d that are normalised, `[N, d + padding]` in and out; see `aligned`.
    """

    padding = 0

    def forward(self, update: Tensor, state: Tensor | None = None, activation: nn.Module | None = None) -> Tensor:
        """
        Args:
            update: `[..., d]`.
            state: `[..., d]`; `None` for 0.
            activation: applied to the update first.

        Returns:
            LN(state + activation(update)), `[..., d]`.
        """
        fused = update.dim() == 2 and not torch.is_grad_enabled() and kernels_run(update)
        # Autocast would have the result in float32.
        fused = fused and not torch.is_autocast_enabled(update.device.type)
        rectified = fused and isinstance(activation, nn.ReLU)
        if activation is not None and not rectified:
            update = activation(update)
        if fused:
            update_norm = find_kernels("triton_norm").update_norm
            return update_norm(update, state, self.weight, self.bias, self.eps, rectified)
        state = update if state is None else state + update
        if not self.padding:
            return super().forward(state)
        return nn.functional.pad(super().forward(state[..., : -self.padding]), (0, self.padding))


__all__ = ["UpdateLayerNorm"]
