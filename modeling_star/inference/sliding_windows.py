"""Where a token of a long text is read that several overlapping windows show: one rule for training and pipelines."""

from collections.abc import Sequence


NOT_READ = -1


def select_max_context(windows: Sequence[Sequence[int | None]]) -> list[list[int]]:
    """
    Choose where each word, or token, is read: at its first piece, in the window that shows most of its surroundings.

    Args:
        windows: for each window of one text, from left to right, each token's word, or its own number in the text;
            `None` for special tokens and padding.

    Returns:
        The same shape: a word's index at the one token where it is read, `NOT_READ` elsewhere.
    """
    best: dict[int, tuple[int, int, int]] = {}
    for number, pieces in enumerate(windows):
        content = [place for place, word in enumerate(pieces) if word is not None]
        for place in content:
            word = pieces[place]
            if word is None or (place > 0 and pieces[place - 1] == word):
                continue
            # Next to an end of the text a window shows little, and no other one more. A later window may start in the
            # middle of a word. Such a piece has no context before it, so that it never replaces the first piece, which
            # the window before has shown.
            context = min(place - content[0], content[-1] - place)
            if word not in best or context > best[word][0]:
                best[word] = (context, number, place)
    places = [[NOT_READ] * len(pieces) for pieces in windows]
    for word, (_, number, place) in best.items():
        places[number][place] = word
    return places


__all__ = ["NOT_READ", "select_max_context"]
