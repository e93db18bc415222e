"""Questions with their contexts as model inputs, in windows where a context is long."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from .windows import cut_windows


@dataclass(frozen=True)
class QuestionWindow:
    """
    A part of a context behind the question, as model inputs.

    Args:
        inputs: model inputs, `[n]` each, without padding; may be empty once the model has run.
        begin: column of the first token of the context; the others follow it.
        first: the number of that token in the context, from 0.
        offsets: `[c, 2]`, for each token of the context its first character and the one after its last.
        no_answer: column whose scores mean "no answer": [CLS], or the first one.
    """

    inputs: dict[str, list[int]]
    begin: int
    first: int
    offsets: Tensor
    no_answer: int


def encode_windows(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: PreTrainedTokenizerBase,
    max_length: int | None,
    stride: int,
) -> list[list[QuestionWindow]]:
    """
    Questions with their contexts as model inputs, for each question at least one window of `max_length` tokens,
    question included (`None`: one window), which share `stride` tokens of the context, at most half of what the
    question leaves. A ValueError where that is nothing.
    """
    encoded = tokenizer(
        list(questions),
        list(contexts),
        return_offsets_mapping=True,
        return_token_type_ids="token_type_ids" in tokenizer.model_input_names,
        verbose=False,
    )
    columns = {name: encoded[name] for name in tokenizer.model_input_names if name in encoded}
    windows: list[list[QuestionWindow]] = []
    for row, (question, context) in enumerate(zip(questions, contexts, strict=True)):
        is_content = [part == 1 for part in encoded.sequence_ids(row)]
        count = sum(is_content)
        outside = len(is_content) - count
        if max_length is not None and max_length <= outside:
            raise ValueError(
                f"The question takes all {max_length} tokens of a window ({question[:60]!r}): shorten it, or give a "
                "larger max_length (modeling-star qa: --max_seq_length)."
            )
        shared = stride if max_length is None else min(stride, (max_length - outside) // 2)
        begin = is_content.index(True) if count else outside
        characters = encoded["offset_mapping"][row][begin : begin + count]
        offsets = torch.tensor([_trimmed(context, *each) for each in characters], dtype=torch.long).reshape(-1, 2)
        from_end = tokenizer.truncation_side == "left"
        windows.append([])
        for window in cut_windows(is_content, max_length, shared, from_end=from_end):
            tokens = window.tokens.tolist()
            inputs = {name: [cells[row][token] for token in tokens] for name, cells in columns.items()}
            ids, length = inputs["input_ids"], len(tokens) - outside
            first = tokens[begin] - begin if length else 0
            windows[-1].append(
                QuestionWindow(
                    inputs=inputs,
                    begin=begin,
                    first=first,
                    offsets=offsets[first : first + length],
                    no_answer=ids.index(tokenizer.cls_token_id) if tokenizer.cls_token_id in ids else 0,
                )
            )
    return windows


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The offsets of a token without the white space around it, which some tokenizers include."""
    piece = text[start:end]
    first = end - len(piece.lstrip())
    return first, first + len(piece.strip())
