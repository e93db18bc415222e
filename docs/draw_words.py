#!/usr/bin/env python
"""
Draw the words that the BiG-Transformer matches in a sentence, and the candidates of each character.

    python docs/draw_words.py            writes docs/pictures/words.svg, the picture in docs/architecture.md
"""

import sys
from pathlib import Path

import torch

from modeling_star import Lexicon
from modeling_star.data.tokenizers import train_tokenizer
from modeling_star.inference.explain import draw_words
from modeling_star.models.token_layout import TokenLayout
from modeling_star.models.word_matcher import WordMatcher


SENTENCE = "南京市长江大桥"


def match_words(sentence: str) -> list[tuple[int, int]]:
    """Start and length of every word of jieba's dictionary in a sentence, by the model's matcher."""
    tokenizer = train_tokenizer([sentence], "character", min_frequency=1)
    lexicon = Lexicon.from_jieba(tokenizer, max_word_length=4)
    matcher = WordMatcher(lexicon.kind, WordMatcher.table_size(lexicon), lexicon.max_word_length)
    matcher.load(lexicon)
    ids = torch.tensor(tokenizer(sentence, add_special_tokens=False)["input_ids"])
    layout = TokenLayout.from_mask(torch.ones(1, len(ids), dtype=torch.bool), keep_padding=False)
    return [(start, length + 1) for start, length in matcher(ids, layout).nonzero().tolist()]


def main() -> None:
    """Draw the sentence of the command line, or that of the documentation."""
    sentence = sys.argv[1] if len(sys.argv) > 1 else SENTENCE
    words = match_words(sentence)
    path = Path(__file__).parent / "pictures" / "words.svg"
    path.parent.mkdir(exist_ok=True)
    unweighted = [(start, length, None) for start, length in words]
    path.write_text(draw_words(sentence, unweighted, global_node=True), encoding="utf-8")
    print(f"{path}: {', '.join(sentence[start : start + length] for start, length in words)}")


if __name__ == "__main__":
    main()
