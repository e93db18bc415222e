#!/usr/bin/env python
"""
What a longer table of positions does to an encoder: the same passages at other rows of the table.

    OMP_NUM_THREADS=1 python experiments/positions.py MINILM texts.jsonl.gz

A passage of 256 tokens, between [CLS] and [SEP], is read from row 1 of the encoder's table, and then from other rows
of a longer one, "repeated" or "interpolated" (`max_positions` of `from_encoder`); [CLS] stays at row 0. Attention is
the encoder's own, so that nothing but positions differs. Printed are, over all passages,

- the difference of last states, |h - h0| / |h0|, in the mean over tokens,
- the cosine of the passage's vector (mean of last states, MiniLM's own use) with its vector at row 1, and
- how many passages are nearest to themselves among all passages at row 1.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, BertModel

from modeling_star.data.splits import load_splits
from modeling_star.models.bert_weights import _positions


LENGTH = 256


def main() -> None:
    """Read the arguments, print a line for each table and row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="a BERT: a Hub name or a folder")
    parser.add_argument("texts", help="a file with a column of texts")
    parser.add_argument("--passages", type=int, default=64, help="one of each text (default: 64)")
    parser.add_argument("--max_positions", type=int, default=8192, help="rows of the longer table (default: 8192)")
    arguments = parser.parse_args()
    model = AutoModel.from_pretrained(arguments.encoder).eval()
    tokenizer = AutoTokenizer.from_pretrained(arguments.encoder)
    texts = load_splits(files={"test": arguments.texts})["test"]["text"]
    bodies = (tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"] for text in texts)
    cut = [body[len(body) // 2 :][:LENGTH] for body in bodies if len(body) >= 2 * LENGTH][: arguments.passages]
    passages = torch.tensor([[tokenizer.cls_token_id, *body, tokenizer.sep_token_id] for body in cut])
    table = model.embeddings.position_embeddings.weight.detach().clone()
    known = len(table)
    start = read(model, passages, table, 1)
    print(f"{len(passages)} passages of {LENGTH} tokens from {Path(arguments.texts).name}")
    print(
        "| table | first row | difference of states | cosine of vectors | nearest to itself |\n|:--|--:|--:|--:|--:|"
    )
    rows = {
        "the encoder's": (known, [65, known // 4, known // 2 - 2]),
        "repeated": (arguments.max_positions, [known - LENGTH // 2, known + 1, 3 * known - LENGTH // 2]),
        "interpolated": (arguments.max_positions, [1, known + 1, 4 * known]),
    }
    for how, (size, firsts) in rows.items():
        target = nn.Embedding(size, table.shape[1])
        longer = _positions(table, target, "interpolated" if how == "interpolated" else "repeated")
        for first in firsts:
            print(f"| {how} | {first:,} | {' | '.join(compared(read(model, passages, longer, first), start))} |")


@torch.no_grad()
def read(model: BertModel, passages: Tensor, table: Tensor, first: int) -> Tensor:
    """The last states `[p, n, d]` of passages whose first token behind [CLS] has row `first` of a table."""
    rows = torch.arange(first, first + passages.shape[1] - 1)
    weight = model.embeddings.position_embeddings.weight
    weight[0] = table[0]
    weight[1 : passages.shape[1]] = table[rows]
    return torch.cat([model(part).last_hidden_state for part in passages.split(16)])


def compared(states: Tensor, start: Tensor) -> list[str]:
    """The three numbers of a line, from states and those at row 1, `[p, n, d]`."""
    difference = (states - start).norm(dim=-1) / start.norm(dim=-1)
    vectors, of_start = (nn.functional.normalize(each.mean(1), dim=-1) for each in (states, start))
    nearest = (vectors @ of_start.T).argmax(1) == torch.arange(len(vectors))
    cosine = (vectors * of_start).sum(-1).mean()
    return [f"{difference.mean():.3f}", f"{cosine:.3f}", f"{nearest.sum()} of {len(nearest)}"]


if __name__ == "__main__":
    main()
