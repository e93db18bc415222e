"""
A BERT whose word embeddings are its outputs for its vocabulary, as model2vec makes them.

    python experiments/output_table.py MINILM FOLDER

The row of a token is the mean of the last states of [CLS] token [SEP], less the mean of all rows, rotated to its
principal components, weighted by 1e-4 / (1e-4 + p) with p by Zipf's law from the token's rank in the vocabulary, and
scaled so that rows are as long as the word embeddings on average. `--embeddings_name_or_path FOLDER` copies the table.
"""

import argparse
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer


ROWS, SIF = 512, 1e-4


def main() -> None:
    """Make the table and save the model with it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bert")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    tokenizer, model = AutoTokenizer.from_pretrained(given.bert), AutoModel.from_pretrained(given.bert).eval()
    ids = torch.arange(model.config.vocab_size)
    ends = [torch.full_like(ids, index) for index in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
    inputs = torch.stack([ends[0], ids, ends[1]], 1)
    with torch.inference_mode():
        states = torch.cat([model(input_ids=part).last_hidden_state.mean(1) for part in inputs.split(ROWS)])
        states -= states.mean(0)
        table = states @ torch.linalg.svd(states, full_matrices=False)[2].T
        probability = 1 / (ids + 1)
        table *= (SIF / (SIF + probability / probability.sum()))[:, None]
        words = model.get_input_embeddings().weight
        table *= words.norm(dim=1).mean() / table.norm(dim=1).mean()
        words.copy_(table)
    model.save_pretrained(given.folder)
    tokenizer.save_pretrained(given.folder)


if __name__ == "__main__":
    main()
