#!/usr/bin/env python
"""
Draw the words that the BiG-Transformer matches in a sentence, and the candidates of each character.

    python docs/draw_words.py            writes docs/pictures/words.svg, the picture in docs/architecture.md
"""

import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import torch

from modeling_star import Lexicon
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


SENTENCE = "南京市长江大桥"
_BLUE, _ORANGE, _GREEN = "#2a6fbb", "#d9782d", "#3c8d5a"
_STEP, _WORDS_Y, _TOKENS_Y, _NODE_Y = 96, 150, 250, 350


def match_words(sentence: str) -> list[tuple[int, int]]:
    """Start and length of every word of jieba's dictionary in a sentence, by the model's matcher."""
    tokenizer = train_tokenizer([sentence], "character", min_frequency=1)
    lexicon = Lexicon.from_jieba(tokenizer, max_word_length=4)
    matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    ids = torch.tensor(tokenizer(sentence, add_special_tokens=False)["input_ids"])
    layout = TokenLayout.from_mask(torch.ones(1, len(ids), dtype=torch.bool), keep_padding=False)
    return [(start, length + 1) for start, length in matcher(ids, layout).nonzero().tolist()]


def draw_words(tokens: Sequence[str], words: Sequence[tuple[int, int]]) -> str:
    """
    SVG: words above their tokens, the global node below, an edge for each candidate.

    Args:
        tokens: the tokens.
        words: first token and length.
    """
    edges, nodes = [], []
    step = max(_STEP, 26 + 12 * max(map(len, tokens)))
    left = step / 2 + 22
    width = 2 * left + step * (len(tokens) - 1)
    top = _WORDS_Y - 55 * (max((length for _, length in words), default=2) - 2) - 40
    bottom = _NODE_Y + 40

    def x(index: float) -> float:
        return left + step * index

    def edge(x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        edges.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="1.5"/>')

    def node(x1: float, y1: float, text: str, colour: str) -> None:
        wide = 26 + (20 if not text.isascii() else 11) * len(text)
        nodes.append(
            f'<rect x="{x1 - wide / 2:g}" y="{y1 - 18:g}" width="{wide}" height="36" rx="18" fill="{colour}"/>'
            f'<text x="{x1:g}" y="{y1 + 7:g}" font-size="20" text-anchor="middle" fill="#fff">{escape(text)}</text>'
        )

    for start, length in words:
        # Longer words are higher.
        middle, height = start + (length - 1) / 2, _WORDS_Y - 55 * (length - 2)
        for index in range(start, start + length):
            edge(x(middle), height, x(index), _TOKENS_Y, _BLUE)
        node(x(middle), height, "".join(tokens[start : start + length]), _BLUE)
    for index, token in enumerate(tokens):
        edge(x(index), _TOKENS_Y, x((len(tokens) - 1) / 2), _NODE_Y, _GREEN)
        node(x(index), _TOKENS_Y, token, _ORANGE)
    node(x((len(tokens) - 1) / 2), _NODE_Y, "s", _GREEN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 {top:g} {width:g} {bottom - top:g}" '
        f'width="{0.6 * width:g}" height="{0.6 * (bottom - top):g}" '
        f'font-family="sans-serif">\n<rect y="{top:g}" width="{width:g}" height="{bottom - top:g}" fill="#fff"/>\n'
        + "\n".join([*edges, *nodes])
        + "\n</svg>\n"
    )


def main() -> None:
    """Draw the sentence of the command line, or that of the documentation."""
    sentence = sys.argv[1] if len(sys.argv) > 1 else SENTENCE
    words = match_words(sentence)
    path = Path(__file__).parent / "pictures" / "words.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(draw_words(sentence, words), encoding="utf-8")
    print(f"{path}: {', '.join(sentence[start : start + length] for start, length in words)}")


if __name__ == "__main__":
    main()
