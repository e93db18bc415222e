"""Choose the window that a token's prediction comes from, where several overlapping windows hold it."""

from collections.abc import Sequence


NOT_READ = -1


def select_max_context(windows: Sequence[Sequence[int | None]]) -> list[list[int]]:
    """
    Choose a window for each word or token: its first piece in the window with most context around it.

    Args:
        windows: for each window of one text, from left to right, the number of each token's word, or of the token, in
            the text; `None` for special tokens and padding.

    Returns:
        The same shape: a word's number at the token that its prediction comes from, `NOT_READ` elsewhere.
    """
    best: dict[int, tuple[int, int, int]] = {}
    for number, pieces in enumerate(windows):
        content = [place for place, word in enumerate(pieces) if word is not None]
        for place in content:
            word = pieces[place]
            if word is None or (place > 0 and pieces[place - 1] == word):
                continue
            # A later window may start in the middle of a word. Such a piece has no context before it, so that it never
            # replaces the first piece in the window before.
            context = min(place - content[0], content[-1] - place)
            if word not in best or context > best[word][0]:
                best[word] = (context, number, place)
    places = [[NOT_READ] * len(pieces) for pieces in windows]
    for word, (_, number, place) in best.items():
        places[number][place] = word
    return places
