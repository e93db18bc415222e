"""How `answer_question` and `translate` read where they are not told: as the model was scored, so its config says."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from ..models.modeling_encoder import longest_input
from ..models.utils import eval_mode


logger = logging.get_logger(__name__)


DEFAULTS: dict[str, Any] = {"max_answer_tokens": 30, "max_length": None, "stride": 128, "null_threshold": None}
"""What `answer_question` does where neither its arguments nor the model's configuration say anything."""


@dataclass(frozen=True)
class Answer:
    """
    A span of the context, or the answer that there is none.

    Args:
        text: `context[start:end]`; empty where the context has no answer.
        start, end: character offsets in the context.
        score: probability of the span among all allowed spans of the context, from 0 to 1.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Window:
    """
    A part of a context as a model reads it, behind the question.

    Args:
        inputs: what the model takes, `[n]` each, without padding; may be empty once the model has run.
        begin: column of the first token of the context; the others follow it.
        first: which of the context's tokens that is, counted from 0 over all windows.
        offsets: `[c, 2]`, for each token of the context its first character and the one after its last.
        no_answer: column whose scores stand for "no answer": [CLS], or the first one.
    """

    inputs: dict[str, list[int]]
    begin: int
    first: int
    offsets: Tensor
    no_answer: int


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
    The best spans of a context, read in overlapping windows where it is longer than the model takes.

    How windows are cut, how long answers are and when there is none is `None` by default: as run_qa.py scored the
    model, which its configuration tells; for other models as said below.

    Args:
        question, context: texts.
        model: any ...ForQuestionAnswering model.
        tokenizer: its tokenizer, a fast one: offsets come from it.
        top_k: how many different spans to return at most.
        max_answer_tokens: longest span, in tokens; 30.
        max_length: tokens of one window, question included, no more than the model takes; the model's own limit, or
            one window where it has none.
        stride: tokens that neighbouring windows share, lowered where a window has no room for it; 128.
        null_threshold: for a model that was trained on questions without answers: "no answer" comes first where it
            beats the best span by more than this; 0 for a model of run_qa.py's `--version_2_with_negative`, whose
            best one stands in all_results.json as `best_f1_threshold`. Of other models, and with `float("inf")`,
            there is always an answer.

    Returns:
        At most `top_k` answers, the best first, and with a `null_threshold` the empty one among them; none where the
        context is empty.

    Raises:
        ValueError: a number is too low, the tokenizer has no offsets, the model answers no questions, or the question
            leaves no room for the context; the model's scores are no finite numbers.
    """
    given: dict[str, Any] = {"max_answer_tokens": max_answer_tokens, "max_length": max_length, "stride": stride}
    given["null_threshold"] = null_threshold
    options = {**DEFAULTS, **saved_options(model.config, "question-answering")}
    options |= {name: value for name, value in given.items() if value is not None}
    for name, value, least in (
        ("top_k", top_k, 1),
        ("max_answer_tokens", options["max_answer_tokens"], 1),
        ("stride", options["stride"], 0),
    ):
        if value < least:
            raise ValueError(f"{name}={value} is given; at least {least} is needed.")
    if not tokenizer.is_fast:
        raise ValueError(
            "answer_question needs offsets, which this tokenizer lacks: use AutoTokenizer.from_pretrained(...)."
        )
    windows: list[Window] = []
    if context.strip():
        own, asked = longest_input(model.config), options["max_length"]
        if own is not None and asked is not None and asked > own:
            logger.warning(f"max_length={asked} exceeds the {own} tokens that the model takes; using {own}.")
        limit = min((limit for limit in (asked, own) if limit is not None), default=None)
        (windows,) = encode_windows([question], [context], tokenizer, limit, options["stride"])
        windows = [window for window in windows if len(window.offsets)]
    logits = []
    with eval_mode(model):
        for window in windows:
            inputs = {name: torch.tensor([values], device=model.device) for name, values in window.inputs.items()}
            output = model(**inputs, return_dict=True)
            if "start_logits" not in output:
                raise ValueError(f"A ...ForQuestionAnswering model is needed; {type(model).__name__} finds no spans.")
            logits.append(torch.stack([output.start_logits[0], output.end_logits[0]], dim=1).float().cpu())
            if not logits[-1].isfinite().all():
                raise ValueError(
                    "The model's scores are no finite numbers, and choose no answer: its weights are broken, or its "
                    "precision is too low for it, model.float()."
                )
    found, _ = find_answers(
        context,
        windows,
        logits,
        top_k=top_k,
        max_answer_tokens=options["max_answer_tokens"],
        null_threshold=options["null_threshold"],
    )
    return found


def encode_windows(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    stride: int,
) -> list[list[Window]]:
    """
    Questions with their contexts as model inputs, in overlapping windows where they are too long.

    Args:
        questions, contexts: as many texts of each.
        tokenizer: a fast one.
        max_length: tokens of one window, question included; `None`: one window, however long.
        stride: tokens of the context that neighbouring windows share; at most half of what the question leaves.

    Returns:
        For each question its windows from left to right, at least one.

    Raises:
        ValueError: a question leaves no room for the context.
    """
    groups: dict[int, list[int]] = {}
    if max_length is None:
        groups[0] = list(range(len(questions)))
    else:
        special = tokenizer.num_special_tokens_to_add(pair=True)
        lengths = map(len, tokenizer(list(questions), add_special_tokens=False, verbose=False)["input_ids"])
        for index, length in enumerate(lengths):
            room = max_length - special - length
            if room < 1:
                raise ValueError(
                    f"The question takes {special + length} of the {max_length} tokens of a window, which leaves none "
                    f"for the context: shorten the question ({questions[index][:60]!r}), or give a larger max_length "
                    "(run_qa.py: --max_seq_length)."
                )
            groups.setdefault(min(stride, room // 2), []).append(index)
    windows: list[list[Window]] = [[] for _ in questions]
    cut = {} if max_length is None else {"truncation": "only_second", "max_length": max_length}
    for shared, members in groups.items():
        encoded = tokenizer(
            [questions[index] for index in members],
            [contexts[index] for index in members],
            return_overflowing_tokens=bool(cut),
            return_offsets_mapping=True,
            return_token_type_ids="token_type_ids" in tokenizer.model_input_names,
            verbose=False,
            **(cut | {"stride": shared} if cut else {}),
        )
        names = [name for name in tokenizer.model_input_names if name in encoded]
        owners = encoded.get("overflow_to_sample_mapping", range(len(members)))
        rows: list[list[int]] = [[] for _ in members]
        for row, owner in enumerate(owners):
            rows[owner].append(row)
        for index, own in zip(members, rows, strict=True):
            first = 0
            # A tokenizer that cuts on the left gives the last window first.
            for row in own if tokenizer.truncation_side == "right" else own[::-1]:
                inputs = {name: encoded[name][row] for name in names}
                parts, ids = encoded.sequence_ids(row), inputs["input_ids"]
                begin = parts.index(1) if 1 in parts else len(parts)
                offsets = encoded["offset_mapping"][row][begin : begin + parts.count(1)]
                places = [_trimmed(contexts[index], start, end) for start, end in offsets]
                windows[index].append(
                    Window(
                        inputs=inputs,
                        begin=begin,
                        first=first,
                        offsets=torch.tensor(places, dtype=torch.long).reshape(-1, 2),
                        no_answer=ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0,
                    )
                )
                first += len(offsets) - shared
    return windows


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The place of a token without the white space around it, which some tokenizers count as part of it."""
    piece = text[start:end]
    first = end - len(piece.lstrip())
    return first, first + len(piece.strip())


def find_answers(
    context: str,
    windows: Sequence[Window],
    logits: Sequence[Tensor],
    *,
    top_k: int,
    max_answer_tokens: int,
    null_threshold: float | None = None,
) -> tuple[list[Answer], float]:
    """
    The best spans of one context, from what a model said of its windows.

    All spans of 1 to L tokens that lie within a window are compared, by the sum of their two logits. One that several
    windows hold counts once, by its better score.

    Args:
        context: the text.
        windows: of one question, in any order.
        logits: of each window `[n, 2]`, start and end; columns beyond its own are not read.
        top_k: how many different spans to return at most.
        max_answer_tokens: L.
        null_threshold: see `answer_question`.

    Returns:
        The answers, the best first; and by how much "no answer" beats the best span: its score is the lowest that a
        window gives it, since a window without the answer knows nothing of the others. Infinite where there is no
        span.
    """
    count = max((window.first + len(window.offsets) for window in windows), default=0)
    max_answer_tokens = min(max_answer_tokens, max(count, 1))
    scores = torch.full((count, max_answer_tokens), float("-inf"))
    places = torch.zeros(count, 2, dtype=torch.long)
    null = float("inf")
    for window, own in zip(windows, logits, strict=True):
        null = min(null, float(own[window.no_answer].sum()))
        if not len(window.offsets):
            continue  # a context without a token: of white space that is none to Python, say
        rows = slice(window.first, window.first + len(window.offsets))
        inside = own[window.begin : window.begin + len(window.offsets)].float()
        scores[rows] = torch.maximum(scores[rows], span_scores(inside[:, 0], inside[:, 1], max_answer_tokens))
        places[rows] = window.offsets
    if (places[:, 1] <= places[:, 0]).any():
        # Some tokenizers have tokens that stand for no character: no span is made of these alone.
        width = _ends(places[:, 1], max_answer_tokens, fill=0) - places[:, :1]
        scores.masked_fill_(width <= 0, float("-inf"))
    scores = _best_of_equal(scores, places)
    flat = scores.flatten()
    best, spans = flat.topk(min(top_k, flat.numel()))
    allowed = flat if null_threshold is None or not windows else torch.cat([flat, torch.tensor([null])])
    real = best > float("-inf")  # there may be fewer spans than asked for
    best, spans = best[real], spans[real]
    probabilities = (best - allowed.logsumexp(0)).exp()
    begins, lengths = spans // max_answer_tokens, spans % max_answer_tokens
    found = [
        Answer(context[first:last], first, last, probability)
        for first, last, probability in zip(
            places[begins, 0].tolist(), places[begins + lengths, 1].tolist(), probabilities.tolist(), strict=True
        )
    ]
    difference = null - float(best[0]) if found else float("inf")
    if null_threshold is not None and windows:
        nothing = Answer("", 0, 0, float((null - allowed.logsumexp(0)).exp()))
        behind = sum(answer.score >= nothing.score for answer in found[1:]) + 1
        found.insert(0 if difference > null_threshold else behind, nothing)
    return found[:top_k], difference


def _best_of_equal(scores: Tensor, places: Tensor) -> Tensor:
    """
    Scores `[c, L]` of spans of tokens, of which those of the same characters but for the best are ruled out:
    byte-level tokenizers have several tokens for one character, which all stand where it does.

    Args:
        places: `[c, 2]`, first character of each token and the one after its last.
    """
    if bool((places[1:] > places[:-1]).all()):
        return scores
    lasts = _ends(places[:, 1], scores.shape[1], fill=-1)
    keys = places[:, :1] * (int(places.max()) + 2) + lasts + 1
    _, group = keys.flatten().unique(return_inverse=True)
    flat = scores.flatten()
    best = torch.full((int(group.max()) + 1,), float("-inf")).scatter_reduce(0, group, flat, "amax")
    is_best = flat == best[group]
    # of equally good ones the first
    order = torch.arange(len(flat))
    first = torch.full_like(best, len(flat), dtype=torch.long)
    first = first.scatter_reduce(0, group[is_best], order[is_best], "amin")
    return flat.masked_fill(order != first[group], float("-inf")).view_as(scores)


def span_scores(start_logits: Tensor, end_logits: Tensor, max_answer_tokens: int) -> Tensor:
    """
    Scores of all spans of up to L tokens: `[c, L]`, the span at (i, l) being tokens i to i + l.

    Args:
        start_logits, end_logits: `[c]`.
        max_answer_tokens: L.
    """
    return start_logits[:, None] + _ends(end_logits, max_answer_tokens, fill=float("-inf"))


def _ends(values: Tensor, longest: int, fill: float) -> Tensor:
    """`[c]` to `[c, L]`: at (i, l) the value of token i + l, or `fill` beyond the last."""
    return nn.functional.pad(values, (0, longest - 1), value=fill).unfold(0, longest, 1)


def save_options(config: PreTrainedConfig, task: str, options: dict[str, Any]) -> None:
    """
    Have a configuration tell the options of a task, in `task_specific_params`, as older models of the Hub do.

    Args:
        config: of a model that is to be saved.
        task: "question-answering" or "translation".
        options: arguments of the task's call; those of other tasks stay.
    """
    config.task_specific_params = {**(getattr(config, "task_specific_params", None) or {}), task: options}


def saved_options(config: PreTrainedConfig, task: str) -> dict[str, Any]:
    """The options that `save_options` put there; none for a model that tells none."""
    return (getattr(config, "task_specific_params", None) or {}).get(task, {})


__all__ = [
    "DEFAULTS",
    "Answer",
    "Window",
    "answer_question",
    "encode_windows",
    "find_answers",
    "save_options",
    "saved_options",
]
