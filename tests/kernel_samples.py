"""What the tests of the Triton kernels share: where they run, the setting, and models that use them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from common import Batch, lexicon_of, some_words
from torch import Tensor


pytest.importorskip("triton", reason="Triton is not installed: pip install triton")

from modeling_star.kernels import triton_utils as kernels


DEVICE = "cpu" if kernels.INTERPRETED else "cuda"
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("needs a CUDA GPU, or TRITON_INTERPRET=1 before Triton is imported", allow_module_level=True)

LEXICON = lexicon_of(some_words())


@contextmanager
def setting(value: str | None) -> Iterator[None]:
    """MODELING_STAR_KERNELS set so, or not at all."""
    with pytest.MonkeyPatch.context() as patch:
        if value is None:
            patch.delenv("MODELING_STAR_KERNELS", raising=False)
        else:
            patch.setenv("MODELING_STAR_KERNELS", value)
        yield


def on_device(batch: Batch) -> dict[str, Tensor]:
    return {name: x.to(DEVICE) for name, x in batch.inputs().items()}


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Star": ("StarTransformer", {}),
    "Star, ring positions": (
        "StarTransformer",
        {"position_embedding_type": "ring", "residual": True},
    ),
    "Star without ring": ("StarTransformer", {"use_ring": False, "head_dim": 3}),
    "Star, ring of radius 2": (
        "StarTransformer",
        {"ring_radius": 2, "position_embedding_type": "ring", "embedding_norm": True, "relay_start_norm": True},
    ),
    "Star without relay": ("StarTransformer", {"use_radial": False}),
    "BiG": ("BigTransformer", {"lexicon": LEXICON}),
    "BiG, nothing but words": (
        "BigTransformer",
        {"lexicon": LEXICON, "include_self": False, "global_connection": False},
    ),
    "BiG, adjacent": ("BigTransformer", {"local_connection": "adjacent"}),
    "BiG, window": (
        "BigTransformer",
        {"local_connection": "window", "global_node": "first", "word_vector": "mean", "lexicon": LEXICON},
    ),
}
