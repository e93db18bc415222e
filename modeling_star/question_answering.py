"""Answers to questions from a saved model: transformers 5 has no question-answering pipeline."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import BatchEncoding, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from .modeling_encoder import longest_input


@dataclass(frozen=True)
class Answer:
    """
    A span of the context.

    Args:
        text: `context[start:end]`.
        start, end: character offsets in the context.
        score: probability of the span among all allowed spans of the context, from 0 to 1.
    """

    text: str
    start: int
    end: int
    score: float


@torch.no_grad()
def answer_question(
    question: str,
    context: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    top_k: int = 1,
    max_answer_tokens: int = 30,
    max_length: int | None = None,
    stride: int = 128,
) -> list[Answer]:
    """
    The best spans of a context, read in overlapping windows where it is longer than the model takes.

    Args:
        question, context: texts.
        model: any ...ForQuestionAnswering model.
        tokenizer: its tokenizer, a fast one: offsets come from it.
        top_k: how many different spans to return at most.
        max_answer_tokens: longest span, in tokens.
        max_length: tokens of one window, question included; `None` takes the model's own limit, or one window where it
            has none.
        stride: tokens that neighbouring windows share; lowered where a window has no room for it.

    Returns:
        At most `top_k` answers, the best first; none where the context is empty.

    Raises:
        ValueError: the tokenizer has no offsets, or the question leaves no room for the context.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            "answer_question needs offsets, which this tokenizer lacks: use AutoTokenizer.from_pretrained(...)."
        )
    if not context.strip():
        return []
    windows = _windows(question, context, model, tokenizer, max_length, stride)
    offsets = windows.pop("offset_mapping")
    windows.pop("overflow_to_sample_mapping", None)
    was_training = model.training
    model.eval()
    scores = []
    for index in range(len(offsets)):
        output = model(**{name: values[index : index + 1].to(model.device) for name, values in windows.items()})
        in_context = torch.tensor([part == 1 for part in windows.encodings[index].sequence_ids])
        start_logits, end_logits = output.start_logits[0].float().cpu(), output.end_logits[0].float().cpu()
        scores.append(_span_scores(start_logits, end_logits, in_context, max_answer_tokens))
    model.train(was_training)
    # All windows compete in one softmax over every allowed span; a span that two windows hold counts once.
    probabilities = torch.stack(scores).flatten().softmax(0).view(len(scores), *scores[0].shape)
    best, places = probabilities.flatten().topk(min(top_k * len(scores), probabilities.numel()))
    answers: dict[tuple[int, int], Answer] = {}
    for score, place in zip(best.tolist(), places, strict=True):
        window, start, length = (int(i) for i in torch.unravel_index(place, probabilities.shape))
        if score == 0:
            break
        first, last = int(offsets[window, start, 0]), int(offsets[window, start + length, 1])
        answers.setdefault((first, last), Answer(context[first:last], first, last, score))
    return list(answers.values())[:top_k]


def _windows(
    question: str,
    context: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    stride: int,
) -> BatchEncoding:
    """The encoded windows, at least one; `offset_mapping` is among their fields."""
    if max_length is None:
        max_length = _longest_input(model.config)
    options = {
        "return_offsets_mapping": True,
        "return_tensors": "pt",
        "return_token_type_ids": "token_type_ids" in tokenizer.model_input_names,
    }
    if max_length is None:
        return tokenizer(question, context, **options)
    taken = len(tokenizer(question, "").input_ids)
    room = max_length - taken
    if room < 1:
        raise ValueError(
            f"The question takes {taken} of the {max_length} tokens of a window, which leaves none for the context: "
            "shorten the question, or give a larger max_length."
        )
    return tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=max_length,
        stride=min(stride, room // 2),
        return_overflowing_tokens=True,
        padding=True,
        **options,
    )


def _longest_input(config: PreTrainedConfig) -> int | None:
    """Tokens that the model takes at most; `None` where it has no limit."""
    has_table = getattr(config, "position_embedding_type", "learned") in ("learned", "absolute")
    own = getattr(config, "max_position_embeddings", None) if has_table else None
    backbone = getattr(config, "backbone_config", None)
    inside = None if backbone is None else longest_input(backbone)
    return min((limit for limit in (own, inside) if limit is not None), default=None)


def _span_scores(start_logits: Tensor, end_logits: Tensor, in_context: Tensor, max_answer_tokens: int) -> Tensor:
    """
    Scores of the spans that lie in the context: `[n, L]`, the span at (i, l) being tokens i to i + l.

    Args:
        start_logits, end_logits: `[n]`.
        in_context: `[n]`, true at the tokens of the context.
        max_answer_tokens: L.
    """
    blocked = torch.tensor(float("-inf"))
    start_logits = torch.where(in_context, start_logits, blocked)
    end_logits = torch.where(in_context, end_logits, blocked)
    ends = nn.functional.pad(end_logits, (0, max_answer_tokens - 1), value=float("-inf"))
    return start_logits[:, None] + ends.unfold(0, max_answer_tokens, 1)


__all__ = ["Answer", "answer_question"]
