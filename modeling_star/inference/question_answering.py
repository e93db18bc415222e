"""Answer questions from a context, which may be longer than the model takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..data.in_memory import inputs_of
from ..data.question_windows import QuestionWindow, encode_windows
from ..errors import UserError
from ..models.heads import eval_mode
from ..models.modeling_encoder import longest_input
from .batches import check_ids


logger = logging.get_logger(__name__)


DEFAULTS: dict[str, Any] = {"max_answer_tokens": 30, "max_length": None, "stride": 128, "null_threshold": None}
"""Arguments of `answer_question` for which neither the caller nor the model's configuration has a value."""


@dataclass(frozen=True)
class Answer:
    """
    A span of the context, or "no answer".

    Args:
        text: `context[start:end]`; empty for "no answer".
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
    max_answer_tokens: int | None = None,
    max_length: int | None = None,
    stride: int | None = None,
    null_threshold: float | None = None,
) -> list[Answer]:
    """
    Find the best spans of a context, in overlapping windows where it is longer than the model takes.

    Arguments that are `None` have the values with which run_qa.py evaluated the model, from its configuration; for
    other models the defaults below.

    Args:
        question, context: texts.
        model: any ...ForQuestionAnswering model.
        tokenizer: its tokenizer, a fast one.
        top_k: the maximum number of different spans.
        max_answer_tokens: the maximum number of tokens of a span; 30.
        max_length: tokens of one window, question included, no more than the model takes; the model's limit, or one
            window where it has none.
        stride: tokens that neighbouring windows share, lowered where a window has no room for it; 128.
        null_threshold: for a model trained on questions without answers: "no answer" comes first where it beats the
            best span by more than this; 0 for a model of `modeling-star qa --version_2_with_negative`. Other models,
            and `float("inf")`, always answer.

    Returns:
        At most `top_k` answers, the best first, and with a `null_threshold` the empty one among them; none where the
        context is empty.

    Raises:
        ValueError: the question leaves no room for the context, or the model's scores are not finite.
    """
    given = {
        "max_answer_tokens": max_answer_tokens,
        "max_length": max_length,
        "stride": stride,
        "null_threshold": null_threshold,
    }
    options = {**DEFAULTS, **saved_options(model.config, "question-answering")}
    options |= {name: value for name, value in given.items() if value is not None}
    windows: list[QuestionWindow] = []
    inputs_of([(question, context)], "question-answering", False, model.name_or_path)
    if context.strip():
        longest, requested = longest_input(model.config), options["max_length"]
        if longest is not None and requested is not None and requested > longest:
            logger.warning(
                f"max_length={requested} exceeds the {longest} tokens that the model takes; using {longest}."
            )
        limit = min((limit for limit in (requested, longest) if limit is not None), default=None)
        (windows,) = encode_windows([question], [context], tokenizer, limit, options["stride"])
        windows = [window for window in windows if len(window.offsets)]
        check_ids([window.inputs["input_ids"] for window in windows], model.config)
    logits = []
    with eval_mode(model):
        for window in windows:
            inputs = {name: torch.tensor([values], device=model.device) for name, values in window.inputs.items()}
            output = model(**inputs, return_dict=True)
            logits.append(torch.stack([output.start_logits[0], output.end_logits[0]], dim=1).float().cpu())
            if not logits[-1].isfinite().all():
                raise UserError("The model's scores are not finite: its weights are broken, or try model.float().")
    answers, _ = find_answers(
        context,
        windows,
        logits,
        top_k=top_k,
        max_answer_tokens=options["max_answer_tokens"],
        null_threshold=options["null_threshold"],
    )
    return answers


def find_answers(
    context: str,
    windows: Sequence[QuestionWindow],
    logits: Sequence[Tensor],
    *,
    top_k: int,
    max_answer_tokens: int,
    null_threshold: float | None = None,
) -> tuple[list[Answer], float]:
    """
    The best spans of one context from the logits `[n, 2]`, start and end, of its windows; and the score of "no answer"
    minus that of the best span, infinite where there is no span.

    All spans of 1 to L tokens that lie within a window are compared, by the sum of their two logits. One that several
    windows hold counts once, with its best score. "No answer" has the lowest score that a window gives it: a window
    without the answer does not know the others.
    """
    count = max((window.first + len(window.offsets) for window in windows), default=0)
    max_answer_tokens = min(max_answer_tokens, max(count, 1))
    scores = torch.full((count, max_answer_tokens), float("-inf"))
    offsets = torch.zeros(count, 2, dtype=torch.long)
    null = float("inf")
    for window, window_logits in zip(windows, logits, strict=True):
        null = min(null, float(window_logits[window.no_answer].sum()))
        if not len(window.offsets):
            continue  # a context without tokens, such as control characters
        rows = slice(window.first, window.first + len(window.offsets))
        inside = window_logits[window.begin : window.begin + len(window.offsets)].float()
        scores[rows] = torch.maximum(scores[rows], span_scores(inside[:, 0], inside[:, 1], max_answer_tokens))
        offsets[rows] = window.offsets
    if (offsets[:, 1] <= offsets[:, 0]).any():
        # Some tokenizers have tokens without characters: they alone are no span.
        width = _ends(offsets[:, 1], max_answer_tokens, fill=0) - offsets[:, :1]
        scores.masked_fill_(width <= 0, float("-inf"))
    scores = _best_of_equal(scores, offsets)
    flat = scores.flatten()
    best, spans = flat.topk(min(top_k, flat.numel()))
    allowed = flat if null_threshold is None or not windows else torch.cat([flat, torch.tensor([null])])
    is_span = best > float("-inf")  # there may be fewer than top_k
    best, spans = best[is_span], spans[is_span]
    probabilities = (best - allowed.logsumexp(0)).exp()
    begins, lengths = spans // max_answer_tokens, spans % max_answer_tokens
    answers = [
        Answer(context[first:last], first, last, probability)
        for first, last, probability in zip(
            offsets[begins, 0].tolist(), offsets[begins + lengths, 1].tolist(), probabilities.tolist(), strict=True
        )
    ]
    difference = null - float(best[0]) if answers else float("inf")
    if null_threshold is not None and windows:
        nothing = Answer("", 0, 0, float((null - allowed.logsumexp(0)).exp()))
        rank = sum(answer.score >= nothing.score for answer in answers[1:]) + 1
        answers.insert(0 if difference > null_threshold else rank, nothing)
    return answers[:top_k], difference


def _best_of_equal(scores: Tensor, offsets: Tensor) -> Tensor:
    """Mask all but the best spans with the same characters in scores `[c, L]`, as bytes have."""
    if bool((offsets[1:] > offsets[:-1]).all()):
        return scores
    lasts = _ends(offsets[:, 1], scores.shape[1], fill=-1)
    keys = offsets[:, :1] * (int(offsets.max()) + 2) + lasts + 1
    _, group = keys.flatten().unique(return_inverse=True)
    flat = scores.flatten()
    best = torch.full((int(group.max()) + 1,), float("-inf")).scatter_reduce(0, group, flat, "amax")
    is_best = flat == best[group]
    # The first of equally good ones.
    order = torch.arange(len(flat))
    first = torch.full_like(best, len(flat), dtype=torch.long)
    first = first.scatter_reduce(0, group[is_best], order[is_best], "amin")
    return flat.masked_fill(order != first[group], float("-inf")).view_as(scores)


def span_scores(start_logits: Tensor, end_logits: Tensor, max_answer_tokens: int) -> Tensor:
    """Scores of all spans of up to L tokens, `[c, L]`, from logits `[c]`: at (i, l) the span of tokens i to i + l."""
    return start_logits[:, None] + _ends(end_logits, max_answer_tokens, fill=float("-inf"))


def _ends(values: Tensor, longest: int, fill: float) -> Tensor:
    """`[c]` to `[c, L]`: at (i, l) the value of token i + l, or `fill` beyond the last."""
    return nn.functional.pad(values, (0, longest - 1), value=fill).unfold(0, longest, 1)


def saved_options(config: PreTrainedConfig, task: str) -> dict[str, Any]:
    """The options with which a model was evaluated, from its configuration's `task_specific_params`, by task."""
    return (getattr(config, "task_specific_params", None) or {}).get(task, {})
