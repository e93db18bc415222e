"""Answers to questions from a saved model: transformers 5 has no question-answering pipeline."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

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
        ValueError: the tokenizer has no offsets, the model answers no questions, or the question leaves no room for
            the context.
    """
    for name, value in {"top_k": top_k, "max_answer_tokens": max_answer_tokens}.items():
        if value < 1:
            raise ValueError(f"{name}={value} is given; at least 1 is needed.")
    if not tokenizer.is_fast:
        raise ValueError(
            "answer_question needs offsets, which this tokenizer lacks: use AutoTokenizer.from_pretrained(...)."
        )
    if not context.strip():
        return []
    windows, shared = _windows(question, context, model, tokenizer, max_length, stride)
    offsets = windows.pop("offset_mapping")
    windows.pop("overflow_to_sample_mapping", None)
    in_context = [torch.tensor([part == 1 for part in encoding.sequence_ids]) for encoding in windows.encodings]
    if not in_context[0].any():
        return []
    # The tokens of the context, and the scores of the spans that begin at each. Windows are read from left to right,
    # whichever side the tokenizer cuts; a span that two of them hold counts once, by its better score.
    places = offsets.new_zeros(0, 2)
    scores = torch.zeros(0, max_answer_tokens)
    was_training = model.training
    model.eval()
    try:
        for index in sorted(range(len(offsets)), key=lambda index: int(offsets[index][in_context[index]].min())):
            output = model(**{name: values[index : index + 1].to(model.device) for name, values in windows.items()})
            if "start_logits" not in output:
                raise ValueError(f"A ...ForQuestionAnswering model is needed; {type(model).__name__} finds no spans.")
            start_logits, end_logits = output.start_logits[0].float().cpu(), output.end_logits[0].float().cpu()
            inside = in_context[index]
            new = _span_scores(start_logits[inside], end_logits[inside], max_answer_tokens)
            known = min(shared, len(scores))
            scores[len(scores) - known :] = torch.maximum(scores[len(scores) - known :], new[:known])
            scores = torch.cat([scores, new[known:]])
            places = torch.cat([places, offsets[index][inside][known:]])
    finally:
        model.train(was_training)
    probabilities = scores.flatten().softmax(0)
    best, spans = probabilities.topk(min(top_k, probabilities.numel()))
    answers: dict[tuple[int, int], Answer] = {}
    for score, span in zip(best.tolist(), spans.tolist(), strict=True):
        if score == 0:
            break
        start, length = divmod(span, max_answer_tokens)
        first, last = int(places[start, 0]), int(places[start + length, 1])
        answers.setdefault((first, last), Answer(context[first:last], first, last, score))
    return list(answers.values())


def _windows(
    question: str,
    context: str,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    stride: int,
) -> tuple[BatchEncoding, int]:
    """The encoded windows, at least one, `offset_mapping` among their fields; and how many tokens neighbours share."""
    if max_length is None:
        max_length = longest_input(model.config)
    options = {
        "return_offsets_mapping": True,
        "return_tensors": "pt",
        "return_token_type_ids": "token_type_ids" in tokenizer.model_input_names,
    }
    if max_length is None:
        return tokenizer(question, context, **options), 0
    question_tokens = len(tokenizer(question, add_special_tokens=False).input_ids)
    taken = question_tokens + tokenizer.num_special_tokens_to_add(pair=True)
    room = max_length - taken
    if room < 1:
        raise ValueError(
            f"The question takes {taken} of the {max_length} tokens of a window, which leaves none for the context: "
            "shorten the question, or give a larger max_length."
        )
    stride = min(stride, room // 2)
    windows = tokenizer(
        question,
        context,
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        padding=True,
        **options,
    )
    return windows, stride


def _span_scores(start_logits: Tensor, end_logits: Tensor, max_answer_tokens: int) -> Tensor:
    """
    Scores of all spans of up to L tokens: `[n, L]`, the span at (i, l) being tokens i to i + l.

    Args:
        start_logits, end_logits: `[n]`.
        max_answer_tokens: L.
    """
    ends = nn.functional.pad(end_logits, (0, max_answer_tokens - 1), value=float("-inf"))
    return start_logits[:, None] + ends.unfold(0, max_answer_tokens, 1)


__all__ = ["Answer", "answer_question"]
