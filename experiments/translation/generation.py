"""Translate texts with any encoder-decoder model, for which transformers 5 has no pipeline."""

import sys
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LogitsProcessor, LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from modeling_star.errors import UserError
from modeling_star.inference.question_answering import saved_options
from modeling_star.models.heads import eval_mode
from modeling_star.models.modeling_encoder import longest_input


logger = logging.get_logger(__name__)


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
        if scores.isnan().any():
            raise UserError("The scores of the model are NaN: train it again, or name another model.")
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

    Raises:
        ValueError: the generation configuration has no end token.
    """
    end = model.generation_config.eos_token_id
    if end is None:
        raise ValueError(
            "No translation would end: set model.generation_config.eos_token_id = tokenizer.eos_token_id."
        )
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


def generate_options(model: nn.Module) -> dict[str, Any]:
    """
    Options that the `generate` of a sharded model needs; none for other models.

    `generate` reads an encoder's parameters outside the model's forward, where they are shards: it is registered as a
    forward. All processes gather in each step, so that none may finish before the others; transformers does this
    automatically only for the first version of FSDP (seen in 5.23).
    """
    if not torch.distributed.is_available():  # some builds of torch are for one process alone
        return {}
    from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

    if not isinstance(model, FSDPModule):
        return {}
    if "generate" not in vars(model):
        register_fsdp_forward_method(model, "generate")
    return {"synced_gpus": True}


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
    Translate texts.

    Args:
        texts: one or several.
        model, tokenizer: a model of run_translation.py, or any other sequence-to-sequence model, and its tokenizer.
        batch_size: texts translated at once; the result does not depend on it.
        max_extra_tokens: the maximum number of tokens that a translation has more than its text; `None`: the number
            that run_translation.py evaluated the model with, 50 for other models.
        options: of `generate`, in place of the saved ones: `num_beams=1`, `length_penalty=1.0`.

    Returns:
        One translation per text; that of an empty text is empty.

    Example:

    ```python
    >>> from translation import translate
    >>> from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    >>> model = AutoModelForSeq2SeqLM.from_pretrained("outputs/tatoeba")
    >>> translate("我们都哭了。", model, AutoTokenizer.from_pretrained("outputs/tatoeba"))  # doctest: +SKIP
    ```
    """
    given = [texts] if isinstance(texts, str) else list(texts)
    texts = [text for text in given if text.strip()]
    if max_extra_tokens is None:
        max_extra_tokens = saved_options(model.config, "translation").get("max_extra_tokens", 50)
    limit = longest_input(getattr(model.config, "encoder", None) or model.config)
    if limit is not None and texts:
        lengths = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]]
        cut = [length - limit for length in lengths if length > limit]
        if cut:
            logger.warning(
                f"{len(cut)} of {len(texts)} texts are longer than the {limit} tokens that the model reads: their "
                f"last {sum(cut):,} tokens are not translated. Split these texts."
            )
    translations: list[str] = []
    longest, full = _longest_translation(model), 0
    ends = (model.generation_config.pad_token_id, model.generation_config.eos_token_id)
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
            if ids.shape[1] == longest:
                full += sum(token not in ends for token in ids[:, -2].tolist())
            # As in the evaluation: tokenizers such as BART's begin with the blank before the first word.
            translations += [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    if full:
        logger.warning(
            f"{full} of {len(texts)} translations have {longest} tokens, the model's maximum, and may be incomplete. "
            "Split these texts."
        )
    results = [""] * len(given)
    places = [place for place, text in enumerate(given) if text.strip()]
    for place, translation in zip(places, translations, strict=True):
        results[place] = translation
    return results


def _longest_translation(model: PreTrainedModel) -> int | None:
    """The maximum number of tokens that the decoder generates, start and end included."""
    return longest_input(getattr(model.config, "decoder", None) or model.config)
