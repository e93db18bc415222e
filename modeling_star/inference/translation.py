"""Translate texts with any encoder-decoder of transformers: transformers 5 has no pipeline for it."""

from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..models.modeling_encoder import longest_input
from ..models.utils import eval_mode
from .question_answering import saved_options


logger = logging.get_logger(__name__)


class SourceLengthLimit(LogitsProcessor):
    """
    Ends each row once it has as many tokens as its own limit allows, whatever else is in the batch.

    Args:
        limits: `[b]`, the most tokens of each source's translation, neither start nor end counted.
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
        model: any model for sequence to sequence; its generation configuration tells beams and length penalty.
        inputs: `input_ids` and `attention_mask`, `[b, n]`, and what else the encoder reads; without a mask all tokens
            count.
        max_extra_tokens: see above.
        options: of `generate`, such as `num_beams`; `max_length` lowers the limit.

    Returns:
        `[b, m]`, the start token first, padded on the right.

    Raises:
        ValueError: `max_extra_tokens` is negative, more than token ids is asked for, or the model has no end token.
    """
    positions = longest_input(getattr(model.config, "decoder", None) or model.config)
    if max_extra_tokens < 0:
        raise ValueError(f"max_extra_tokens={max_extra_tokens} is given; 0 or more are needed.")
    if options.get("return_dict_in_generate"):
        raise ValueError("return_dict_in_generate=True is given, and token ids are returned: call model.generate.")
    source = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
    mask = inputs.get("attention_mask", source.new_ones(source.shape[:2], dtype=torch.long))
    limits = mask.sum(1) + max_extra_tokens
    if positions is not None:
        limits = limits.clamp(max=positions - 2)
    end = model.generation_config.eos_token_id
    if end is None:
        raise ValueError(
            "model.generation_config.eos_token_id is None, so that no translation would end: set it, "
            "model.generation_config.eos_token_id = tokenizer.eos_token_id."
        )
    limit = SourceLengthLimit(limits, end)
    asked, longest = options.pop("max_length", None), int(limits.max()) + 2
    longest = longest if asked is None else min(longest, asked)
    # After a caller's own, so that none of them keeps a full translation from its end.
    processors = LogitsProcessorList([*(options.pop("logits_processor", None) or []), limit])
    return model.generate(**inputs, logits_processor=processors, max_length=longest, **options)


def translate(
    texts: str | list[str],
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    batch_size: int = 32,
    max_extra_tokens: int | None = None,
    **options: Any,
) -> list[str]:
    """
    Translations of texts.

    Args:
        texts: one or several.
        model, tokenizer: what run_translation.py saved, or any other sequence-to-sequence model and its tokenizer.
        batch_size: texts translated at once; the result does not depend on it.
        max_extra_tokens: a translation has at most so many tokens more than its text; `None`: as run_translation.py
            scored the model, which its configuration tells; 50 for other models.
        options: of `generate`, in place of the saved ones: `num_beams=1`, `length_penalty=1.0`.

    Returns:
        A translation for each text, of an empty one nothing.

    Raises:
        ValueError: a batch of less than one text, `max_extra_tokens` below 0, or more than one translation of each is
            asked for.

    Example:

    ```python
    >>> from modeling_star import translate
    >>> from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    >>> model = AutoModelForSeq2SeqLM.from_pretrained("outputs/tatoeba")
    >>> translate("我们都哭了。", model, AutoTokenizer.from_pretrained("outputs/tatoeba"))  # doctest: +SKIP
    ```
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    texts = [text for text in given if text.strip()]
    if batch_size < 1:
        raise ValueError(f"batch_size={batch_size} is given; at least 1 is needed.")
    if options.get("num_return_sequences", 1) != 1:
        raise ValueError(
            f"num_return_sequences={options['num_return_sequences']} is given, and translate gives one for each "
            "text: leave it out, or write generate_translations(model, inputs, num_return_sequences=...)."
        )
    if max_extra_tokens is None:
        max_extra_tokens = saved_options(model.config, "translation").get("max_extra_tokens", 50)
    limit = longest_input(getattr(model.config, "encoder", None) or model.config)
    if limit is not None:
        lengths = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]] if texts else []
        cut = [length - limit for length in lengths if length > limit]
        if cut:
            logger.warning(
                f"{len(cut)} of {len(texts)} texts are longer than the {limit} tokens that the model reads: the last "
                f"{sum(cut):,} tokens of them are not translated. Split these texts."
            )
    found: list[str] = []
    writes, full = longest_input(getattr(model.config, "decoder", None) or model.config), 0
    with eval_mode(model):
        for start in range(0, len(texts), batch_size):
            batch = tokenizer(
                texts[start : start + batch_size],
                return_tensors="pt",
                padding=True,
                truncation=limit is not None,
                max_length=limit,
                return_token_type_ids=False,
            ).to(model.device)
            ids = generate_translations(model, dict(batch), max_extra_tokens, **options)
            full += _count_full(ids, model) if writes is not None and ids.shape[1] >= writes else 0
            # As they are scored: tokenizers such as BART's begin with the blank before the first word.
            found += [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    if full:
        logger.warning(
            f"{full} of {len(texts)} translations are as long as the model writes, {writes} tokens, and may end "
            "before their texts do. Split these texts."
        )
    translated = iter(found)
    return [next(translated) if text.strip() else "" for text in given]


def _count_full(ids: Tensor, model: PreTrainedModel) -> int:
    """How many rows of translations `[b, m]` were ended at the last column, and not by the model before."""
    ends = (model.generation_config.pad_token_id, model.generation_config.eos_token_id)
    return sum(before not in ends for before in ids[:, -2].tolist())


__all__ = ["SourceLengthLimit", "generate_translations", "translate"]
