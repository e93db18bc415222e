#!/usr/bin/env python
"""
Draw the words that the BiG-Transformer matches in a sentence, and the candidates of each character.

    python docs/draw_words.py            writes docs/pictures/words.svg, the picture in docs/architecture.md
"""

import sys
from html import escape
from pathlib import Path

import torch

from modeling_star import Lexicon
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.models.lexicon import WordMatcher
from modeling_star.models.token_layout import TokenLayout


SENTENCE = "南京市长江大桥"
STEP, LEFT, WORDS_Y, TOKENS_Y, NODE_Y = 96, 70, 150, 250, 350


def match_words(sentence: str) -> list[tuple[int, int]]:
    """Start and length of every word of jieba's dictionary in a sentence, by the model's matcher."""
    tokenizer = train_tokenizer([sentence], "character", min_frequency=1)
    lexicon = Lexicon.from_jieba(tokenizer, max_word_length=4)
    matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    ids = torch.tensor(tokenizer(sentence, add_special_tokens=False)["input_ids"])
    layout = TokenLayout.from_mask(torch.ones(1, len(ids), dtype=torch.bool), keep_padding=False)
    return [(start, length + 1) for start, length in matcher(ids, layout).nonzero().tolist()]


def draw_svg(sentence: str, words: list[tuple[int, int]]) -> str:
    """SVG: words above, characters in the middle, the global node below, an edge for each candidate."""
    width = 2 * LEFT + STEP * (len(sentence) - 1)
    edges, nodes = [], []

    def x(place: float) -> float:
        return LEFT + STEP * place

    def edge(x1: float, y1: float, x2: float, y2: float, colour: str) -> None:
        edges.append(f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke="{colour}" stroke-width="1.5"/>')

    def node(x1: float, y1: float, text: str, colour: str) -> None:
        wide = 26 + 20 * len(text)
        nodes.append(
            f'<rect x="{x1 - wide / 2:g}" y="{y1 - 18:g}" width="{wide}" height="36" rx="18" fill="{colour}"/>'
            f'<text x="{x1:g}" y="{y1 + 7:g}" font-size="20" text-anchor="middle" fill="#fff">{escape(text)}</text>'
        )

    for start, length in words:
        # Longer words are higher.
        middle, height = start + (length - 1) / 2, WORDS_Y - 55 * (length - 2)
        for place in range(start, start + length):
            edge(x(middle), height, x(place), TOKENS_Y, "#2a6fbb")
        node(x(middle), height, sentence[start : start + length], "#2a6fbb")
    for place, character in enumerate(sentence):
        edge(x(place), TOKENS_Y, x((len(sentence) - 1) / 2), NODE_Y, "#3c8d5a")
        node(x(place), TOKENS_Y, character, "#d9782d")
    node(x((len(sentence) - 1) / 2), NODE_Y, "s", "#3c8d5a")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {NODE_Y + 40}" font-family="sans-serif">\n'
        f'<rect width="{width}" height="{NODE_Y + 40}" fill="#fff"/>\n' + "\n".join([*edges, *nodes]) + "\n</svg>\n"
    )


def main() -> None:
    """Draw the sentence of the command line, or that of the documentation."""
    sentence = sys.argv[1] if len(sys.argv) > 1 else SENTENCE
    words = match_words(sentence)
    path = Path(__file__).parent / "pictures" / "words.svg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(draw_svg(sentence, words), encoding="utf-8")
    print(f"{path}: {', '.join(sentence[start : start + length] for start, length in words)}")


if __name__ == "__main__":
    main()
