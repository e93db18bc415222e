"""Generate translations with any encoder-decoder model, each limited by the length of its source."""

import sys
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from modeling_star.models.heads import eval_mode
from modeling_star.models.modeling_encoder import longest_input


class SourceLengthLimit(LogitsProcessor):
    """
    Ends each row at its own maximum number of tokens, whatever else is in the batch.

    Args:
        limits: `[b]`, the maximum number of tokens of each source's translation, without start and end.
        end: id of the token that ends a translation.
    """

    def __init__(self, limits: Tensor, end: int):
        self.limits = limits
        self.end = end

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """`[b * beams, tokens so far]` and `[b * beams, V]`, the rows of one source side by side."""
        limits = self.limits.to(scores.device).repeat_interleave(len(scores) // len(self.limits))
        full = input_ids.shape[1] - 1 >= limits
        ended = torch.full_like(scores, float("-inf"))
        ended[:, self.end] = 0
        return torch.where(full[:, None], ended, scores)


def generate_translations(
    model: PreTrainedModel, inputs: dict[str, Tensor], max_extra_tokens: int = 50, **options: Any
) -> Tensor:
    """
    Token ids of translations, each with at most `max_extra_tokens` more than its source (section 6.1 of
    https://arxiv.org/abs/1706.03762).

    Args:
        model: a sequence-to-sequence model; its generation configuration sets beams, length penalty and the end token.
        inputs: `input_ids` and `attention_mask`, `[b, n]`, and other inputs of the encoder; without a mask all tokens
            count.
        max_extra_tokens: see above.
        options: of `generate`, such as `num_beams`; `max_length` lowers the limit.

    Returns:
        `[b, m]`, the start token first, padded on the right.
    """
    end = model.generation_config.eos_token_id
    source = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
    mask = inputs.get("attention_mask", source.new_ones(source.shape[:2], dtype=torch.long))
    limits = mask.sum(1) + max_extra_tokens
    positions = _longest_translation(model)
    if positions is not None:
        limits = limits.clamp(max=positions - 2)
    longest = min(int(limits.max()) + 2, options.pop("max_length", None) or sys.maxsize)
    limit = SourceLengthLimit(limits, end)
    # After a caller's processors, so that none of them keeps a translation from its end.
    processors = LogitsProcessorList([*(options.pop("logits_processor", None) or []), limit])
    return model.generate(**inputs, logits_processor=processors, max_length=longest, **options)


def translate(
    texts: str | list[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    batch_size: int = 32,
    max_extra_tokens: int = 50,
    **options: Any,
) -> list[str]:
    """
    Translate texts; that of an empty text is empty.

    Args:
        texts: one or several.
        model, tokenizer: a model of run_translation.py, or any other sequence-to-sequence model, and its tokenizer.
        batch_size: texts translated at once; the result does not depend on it.
        max_extra_tokens: the maximum number of tokens that a translation has more than its text.
        options: of `generate`, in place of the saved ones: `num_beams=1`.
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    full, results = [text for text in given if text.strip()], []
    with eval_mode(model):
        for start in range(0, len(full), batch_size):
            inputs = tokenizer(full[start : start + batch_size], return_tensors="pt", padding=True)
            inputs.pop("token_type_ids", None)
            ids = generate_translations(model, dict(inputs.to(model.device)), max_extra_tokens, **options)
            results += [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    left = iter(results)
    return [next(left) if text.strip() else "" for text in given]


def _longest_translation(model: PreTrainedModel) -> int | None:
    """The maximum number of tokens that the decoder generates, start and end included."""
    return longest_input(getattr(model.config, "decoder", None) or model.config)
