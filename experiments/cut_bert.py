"""
Keep some layers of a BERT, as a student or a baseline.

    python experiments/cut_bert.py bert-base-uncased outputs/bert2 --layers 0 3

The folder holds the BERT with these layers, and its tokenizer. `modeling-star convert` makes a BiG of the same layers.
"""

import argparse
from pathlib import Path

from transformers import AutoModel, AutoTokenizer


def main() -> None:
    """Read the arguments, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a BERT: a Hub name or a folder")
    parser.add_argument("output", type=Path, help="new folder")
    parser.add_argument("--layers", type=int, nargs="+", required=True, help="layers that are kept, from 0")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)
    model = AutoModel.from_pretrained(arguments.name)
    layers = model.encoder.layer
    model.encoder.layer = type(layers)(layers[number] for number in arguments.layers)
    model.config.num_hidden_layers = len(arguments.layers)
    model.save_pretrained(arguments.output)
    AutoTokenizer.from_pretrained(arguments.name).save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
