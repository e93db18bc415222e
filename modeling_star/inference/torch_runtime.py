"""Models of transformers for a `Predictor`: on the accelerator of this process, or the CPU."""

import logging
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..kernels import cpu
from ..kernels.compiled import compile_layers, is_compiled
from ..kernels.compiled import describe as computation  # noqa: F401
from ..loading import load_model
from ..loading import load_tokenizer as load_any_tokenizer
from ..models import modeling_big
from ..models.char_cnn import tabulate_characters
from ..models.convert import is_like_bert
from ..models.modeling_encoder import longest_input
from .cuda_graphs import cuda_graphs
from .saved_model import SavedModel
from .threads import map_in_threads


logger = logging.getLogger(__name__)

_CLASSES = {
    "token-classification": "AutoModelForTokenClassification",
    "text-classification": "AutoModelForSequenceClassification",
    "question-answering": "AutoModelForQuestionAnswering",
}
_OUTPUTS = ("logits", "paths", "messages")


def load_tokenizer(saved: SavedModel) -> PreTrainedTokenizerBase:
    """The tokenizer, with the limit of the model for tags and classes."""
    tokenizer = load_any_tokenizer(saved.name, **saved.remote)
    if saved.task in ("token-classification", "text-classification"):
        limit = longest_input(saved.config) or sys.maxsize
        tokenizer.model_max_length = min(tokenizer.model_max_length, limit)
    return tokenizer


def load(saved: SavedModel, dtype: str | None, instructions: str | None) -> PreTrainedModel:
    """
    A saved model, in eval mode, on its device. On a CPU its layers are compiled, those of a BERT of transformers as
    layers of a BiG-Transformer; where they could be, PyTorch computes them if `instructions` are `None`.
    """
    options: dict[str, Any] = dict(saved.remote)
    if dtype not in (None, "auto"):
        options["dtype"] = getattr(torch, dtype)
    model = load_model(_CLASSES[saved.task], saved.name, **options)
    model = model.to(_device())
    if model.device.type != "cpu" or (instructions is None and cpu.level_in_use() is not None):
        tabulate_characters(model)
        return model
    low: Any = "bfloat16" if dtype == "auto" else None
    if cpu.level_in_use() is not None and is_like_bert(model.config) and _is_plain(model):
        head = _CLASSES[saved.task].removeprefix("AutoModel")
        converted = getattr(modeling_big, f"BigTransformer{head}").from_encoder(model).to(model.dtype)
        if is_compiled(compile_layers(converted, low)):
            radius = converted.config.window_radius
            logger.warning(
                f"{saved.name} is computed by compiled layers as a BiG-Transformer of radius {radius}, which is the "
                f"same for texts of up to {radius + 1} tokens; {cpu.VARIABLE}=0 leaves it as it is."
            )
            return converted
    return compile_layers(model, low)


def _is_plain(model: PreTrainedModel) -> bool:
    """Whether all modules are of torch and transformers: no adapters, no quantised layers, no code of a folder."""
    return all(type(module).__module__.startswith(("torch.", "transformers.")) for module in model.modules())


def instructions() -> str | None:
    """Those of compiled layers in this process; `None` on an accelerator, or where PyTorch computes."""
    return cpu.level_in_use() if _device().type == "cpu" else None


def crf_tables(model: PreTrainedModel, saved: SavedModel | None = None) -> dict[str, np.ndarray] | None:
    """
    What a `SpanScorer` needs of a CRF; `None` without one that knows its chain, which without a vocabulary runs over
    special tokens and pieces of words too. What is `saved` besides the weights has nothing to add.
    """
    crf = getattr(model, "crf", None)
    if not hasattr(crf, "transition_scores") or not crf.has_vocabulary:
        return None
    with torch.no_grad():
        temperature = getattr(model.config, "calibration_temperature", 1.0)
        tables = {"transitions": crf.transition_scores(temperature), "carries_no_tag": crf.carries_no_tag}
        return {name: table.cpu().numpy() for name, table in tables.items()}


def run_model(model: PreTrainedModel) -> Callable[..., dict[str, np.ndarray]]:
    """A function from the inputs of a batch to its outputs; by CUDA graphs where there is such a GPU."""
    device = model.device  # found by a search
    call = cuda_graphs(model) if device.type == "cuda" else model

    def run(**inputs: np.ndarray) -> dict[str, np.ndarray]:
        with torch.inference_mode():
            on_device = {name: torch.from_numpy(values).to(device) for name, values in inputs.items()}
            output = call(**on_device, return_dict=True)
            found = {name: getattr(output, name, None) for name in _OUTPUTS}
            return {
                name: (values.float() if values.is_floating_point() else values).cpu().numpy()
                for name, values in found.items()
                if values is not None
            }

    return run


def map_batches(model: PreTrainedModel) -> Callable[..., Iterator[Any]]:
    """`map`: a thread for each batch uses a CPU better than several for each operation, and changes no result."""
    workers = torch.get_num_threads() if model.device.type == "cpu" else 1
    return partial(map_in_threads, workers=workers)


def _device() -> torch.device:
    """The accelerator of this process of `accelerate launch`, or the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return torch.device("cpu")
    return torch.device(accelerator.type, int(os.environ.get("LOCAL_RANK", "0")))
