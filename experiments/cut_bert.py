"""
Keep some layers of a BERT, or let it read long texts in windows, as a student or a baseline.

    python experiments/cut_bert.py bert-base-uncased outputs/bert2 --layers 0 3
    python experiments/cut_bert.py bert-base-uncased outputs/windows --mean_of_windows

The folder holds the BERT with these layers (default: all), and its tokenizer. `modeling-star convert` makes a BiG of
the same layers. With `--mean_of_windows` it holds a classifier of whole texts, a BERT's on the mean of its vectors of
windows (`--trust_remote_code`), without dropout in attention, which more than doubles the time of a CPU's training.
"""

import argparse
from pathlib import Path

from transformers import AutoModel, AutoTokenizer


def main() -> None:
    """Read the arguments, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a BERT: a Hub name or a folder")
    parser.add_argument("output", type=Path, help="new folder")
    parser.add_argument("--layers", type=int, nargs="+", help="layers that are kept, from 0 (default: all)")
    parser.add_argument("--mean_of_windows", action="store_true", help="read long texts in windows")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)
    model = AutoModel.from_pretrained(arguments.name)
    tokenizer = AutoTokenizer.from_pretrained(arguments.name)
    if arguments.layers is not None:
        layers = model.encoder.layer
        model.encoder.layer = type(layers)(layers[number] for number in arguments.layers)
        model.config.num_hidden_layers = len(arguments.layers)
    if arguments.mean_of_windows:
        from harness.mean_of_windows import MeanOfWindowsConfig, MeanOfWindowsForSequenceClassification

        model.config.attention_probs_dropout_prob = 0.0
        ends = {"cls_token_id": tokenizer.cls_token_id, "sep_token_id": tokenizer.sep_token_id}
        config = MeanOfWindowsConfig(encoder=model.config.to_dict(), **ends)
        reader = MeanOfWindowsForSequenceClassification(config)
        reader.encoder.load_state_dict(model.state_dict())
        model = reader
    model.save_pretrained(arguments.output)
    tokenizer.save_pretrained(arguments.output)


if __name__ == "__main__":
    main()
