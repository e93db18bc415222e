"""In which of several overlapping windows each word is read."""

from modeling_star.inference.sliding_windows import NOT_READ, select_max_context


def read(*windows: list[int | None]) -> list[list[int | None]]:
    """The words that each window reads, `None` at all other tokens."""
    return [[None if word == NOT_READ else word for word in window] for window in select_max_context(windows)]


def test_a_word_is_read_where_it_has_most_context_whatever_special_tokens_there_are() -> None:
    first, second = [None, None, 0, 1, 2, 3, None, None], [None, None, 2, 3, 4, 5, None, None]
    assert read(first, second) == [
        [None, None, 0, 1, 2, None, None, None],
        [None, None, None, 3, 4, 5, None, None],
    ]


def test_of_windows_that_show_as_much_the_first_is_read() -> None:
    assert read([0, 1, 2, 3, 4], [2, 3, 4, 5, 6]) == [[0, 1, 2, 3, None], [None, None, 4, 5, 6]]


def test_a_word_is_read_at_its_first_piece() -> None:
    assert read([0, 0, 1, 1, 2], [3, 3]) == [[0, None, 1, None, 2], [3, None]]


def test_a_word_that_a_window_begins_in_the_middle_of_is_read_in_the_window_before() -> None:
    assert read([0, 1], [1, 2]) == [[0, 1], [None, 2]]
