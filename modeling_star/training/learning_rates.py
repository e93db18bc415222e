"""Separate learning rates: the pretrained part of a model, and its layers."""

import re
from collections.abc import Iterable

from transformers import PreTrainedModel

from ..errors import UserError
from ..models.modeling_encoder import TokenEmbeddings
from .arguments import ModelArguments, RunArguments


_LAYER = re.compile(r"(.*?\.\d+)\.")


def check_learning_rates(model_args: ModelArguments, run_args: RunArguments) -> None:
    """
    Raises:
        UserError: a rate or a factor is not allowed, or nothing that it applies to is pretrained and trained.
    """
    rate, decay = run_args.encoder_learning_rate, run_args.layerwise_lr_decay
    if rate is not None and not rate > 0:
        raise UserError(f"--encoder_learning_rate {rate:g} is given: write a number above 0, such as 2e-5.")
    if decay is not None and not 0 < decay <= 1:
        raise UserError(f"--layerwise_lr_decay {decay:g} is given: write a number above 0, at most 1, such as 0.9.")
    has_encoder = model_args.embeddings_mode == "contextual" and not model_args.freeze_embeddings
    if (rate, decay) != (None, None) and model_args.model_name_or_path is None and not has_encoder:
        flag = "--layerwise_lr_decay" if rate is None else "--encoder_learning_rate"
        raise UserError(
            f"{flag} is for a pretrained encoder, and none is trained here: omit it, or write --model_name_or_path "
            "NAME, or --embeddings_mode contextual without --freeze_embeddings"
        )


def pretrained_parameters(model: PreTrainedModel, new: Iterable[str] | None) -> list[str]:
    """The names of the pretrained parameters of a model; `new` are those that a saved one did not have, `None`: all."""
    names = [name for name, _ in model.named_parameters()]
    if new is not None:
        new = set(new)
        return [name for name in names if name not in new]
    inside = tuple(
        f"{name}.backbone."
        for name, module in model.named_modules()
        if isinstance(module, TokenEmbeddings) and module.backbone is not None
    )
    return [name for name in names if name.startswith(inside)]


def learning_rates(names: Iterable[str], rate: float, decay: float = 1.0) -> dict[str, float]:
    """
    The learning rate of each pretrained parameter.

    Args:
        names: of the parameters, in the model's order: embeddings, layers from the bottom up, a head. What follows a
            layer, such as a pooler, belongs to it.
        rate: of the top layer.
        decay: the factor from each layer to the one below it, and from the lowest layer to the embeddings.
    """
    depths: dict[str, int] = {}
    layers: set[str] = set()
    for name in names:
        layers.update(_LAYER.findall(name)[:1])
        depths[name] = len(layers)
    return {name: rate * decay ** (len(layers) - depth) for name, depth in depths.items()}
