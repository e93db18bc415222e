"""The stock pipeline for taggers, with the labels of a CRF's best path."""

from typing import Any

from torch import Tensor
from transformers import TokenClassificationPipeline


class BestPathPipeline(TokenClassificationPipeline):
    """
    As transformers' pipeline, but a tagger with a CRF answers with its best path (Viterbi).

    The stock pipeline takes the likeliest label of each token by itself, which now and then are labels that do not go
    together. A score is the probability of the label, given the text, in both. Other taggers answer as ever.

    Example:

    ```python
    pipeline("token-classification", "outputs/quickstart/model", pipeline_class=BestPathPipeline)
    ```
    """

    def _forward(self, model_inputs: dict[str, Any]) -> dict[str, Any]:
        kept: list[Tensor | None] = []
        # The stock method keeps the logits alone.
        hook = self.model.register_forward_hook(lambda _, __, output: kept.append(getattr(output, "paths", None)))
        try:
            outputs = super()._forward(model_inputs)
        finally:
            hook.remove()
        [paths] = kept
        return outputs if paths is None else {**outputs, "logits": logits_along(paths, outputs["logits"])}


def logits_along(paths: Tensor, logits: Tensor) -> Tensor:
    """
    Logits `[b, n, k]` whose largest is at the labels of `paths` (`[b, n]`), as probable as in `logits`, where that is
    more than one in k; what is left is shared evenly by the other labels.
    """
    k = logits.shape[-1]
    place = paths.clamp(min=0)[..., None]
    share = logits.float().softmax(-1).gather(-1, place).clamp(min=(1 + 1e-3) / k, max=1 - 1e-7)
    others = ((1 - share) / max(k - 1, 1)).log().expand(*logits.shape)
    return others.scatter(-1, place, share.log())


__all__ = ["BestPathPipeline", "logits_along"]
