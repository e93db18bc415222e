"""The windows of a long text, and the one in which each token counts."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from modeling_star.data.windows import NO_WORD, cut_windows, first_pieces


def read(count: int, limit: int, stride: int | None, from_end: bool = False) -> list[tuple[list[int], list[int]]]:
    """The tokens of each window of a text without special tokens, and those that count."""
    windows = cut_windows([True] * count, limit, stride, from_end=from_end)
    return [(window.tokens.tolist(), window.tokens[window.read].tolist()) for window in windows]


def test_of_windows_that_show_as_much_the_first_counts() -> None:
    assert read(7, 5, 3) == [([0, 1, 2, 3, 4], [0, 1, 2, 3]), ([2, 3, 4, 5, 6], [4, 5, 6])]
    assert read(6, 4, 2) == [([0, 1, 2, 3], [0, 1, 2]), ([2, 3, 4, 5], [3, 4, 5])]


def test_windows_from_the_end_leave_a_short_one_at_the_beginning() -> None:
    assert read(5, 3, 0) == [([0, 1, 2], [0, 1, 2]), ([3, 4], [3, 4])]
    assert read(5, 3, 0, from_end=True) == [([0, 1], [0, 1]), ([2, 3, 4], [2, 3, 4])]


@pytest.mark.parametrize(("from_end", "expected"), [(False, [0, 1, 2]), (True, [2, 3, 4])])
def test_without_a_stride_a_text_is_truncated(from_end: bool, expected: list[int]) -> None:
    assert read(5, 3, None, from_end) == [(expected, expected)]


def test_a_text_without_content_is_one_window() -> None:
    (window,) = cut_windows([False, False], 2, 0)
    assert (window.tokens.tolist(), window.tokens[window.read].tolist()) == ([0, 1], [])


@given(
    head=st.integers(0, 3),
    count=st.integers(0, 40),
    tail=st.integers(0, 2),
    size=st.integers(1, 12),
    stride=st.integers(0, 12),
    from_end=st.booleans(),
)
def test_every_token_counts_once_where_it_has_most_context(
    head: int, count: int, tail: int, size: int, stride: int, from_end: bool
) -> None:
    is_content = [False] * head + [True] * count + [False] * tail
    windows = cut_windows(is_content, head + size + tail, stride, from_end=from_end)
    spans = [window.tokens[head : len(window.tokens) - tail].tolist() for window in windows]
    for window, span in zip(windows, spans, strict=True):
        assert window.tokens.tolist() == [*range(head), *span, *range(head + count, head + count + tail)]
        assert len(span) <= size
    # the loop over all windows that hold a token
    best: dict[int, tuple[int, int]] = {}
    for number, span in enumerate(spans):
        for token in span:
            context = min(token - span[0], span[-1] - token)
            if token not in best or context > best[token][0]:
                best[token] = (context, number)
    assert sorted(best) == list(range(head, head + count))
    for number, window in enumerate(windows):
        assert window.tokens[window.read].tolist() == [token for token, (_, n) in sorted(best.items()) if n == number]


def test_a_word_counts_at_its_first_piece() -> None:
    words = [None, 0, 0, 1, 1, 1, 2, 2, None]
    windows = cut_windows([word is not None for word in words], 6, 1)
    pieces = first_pieces(words, windows)
    assert [window.words_read(pieces) for window in windows] == [[-1, 0, -1, 1, -1, -1], [-1, -1, -1, 2, -1, -1]]


@pytest.mark.parametrize(("from_end", "expected"), [(False, [0, NO_WORD, 1]), (True, [1, 2, NO_WORD])])
def test_of_a_truncated_text_the_words_that_are_left_count(from_end: bool, expected: list[int]) -> None:
    words = [0, 0, 1, 1, 2, 2]
    (window,) = cut_windows(np.ones(6, dtype=bool), 3, None, from_end=from_end)
    assert window.words_read(first_pieces(words, [window])) == expected
