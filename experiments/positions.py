#!/usr/bin/env python
"""
Positions beyond an encoder's table: masked-LM loss by position, for three ways to fill a longer table.

    OMP_NUM_THREADS=1 python experiments/positions.py MINILM DATA outputs/positions

Layers 0, 2 and 4 of the encoder become a BiG of radius 4, which learns masked language modelling on the training texts
of the long sets (DATA/polarity_v2 and DATA/news20_long) in blocks of 512 tokens: so it has a head, and knows only the
first 512 rows. Its table of 4,096 rows is then these rows again and again ("repeated"), these rows stretched
("interpolated"), or repeated rows of which each training text begins at a random one ("random offset"), and it trains
on, in blocks of 4,096 tokens. Before and after this training the loss of masked tokens of long test texts is taken
by position, and beside it the loss of the same tokens where the first model reads parts of 512 tokens.

An interrupted run resumes with the trainings that it has finished. Writes `experiments/positions/results.md`.
"""

import argparse
import json
import math
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from modeling_star import BigTransformerForMaskedLM
from modeling_star.commands.mlm import PRETRAINING_DEFAULTS
from modeling_star.commands.parser import from_values
from modeling_star.data.readers import read_file
from modeling_star.files import write_json, write_text
from modeling_star.models.bert_weights import _positions
from modeling_star.runs.run import run
from modeling_star.tasks.masked_lm import PretrainingTask
from modeling_star.training.arguments import ModelArguments, RunArguments, TextArguments


FOLDER = Path("experiments/positions")
SETS = ("polarity_v2", "news20_long")
KNOWN, LONG = 512, 4096  # rows of the encoder's table and of the longer one
EDGES = (0, 512, 1024, 2048, 4096)  # of the positions that a column of the page takes
SHORTEST, TEXTS, MASKED = 1024, 160, 0.15
WAYS = {"repeated": "repeated", "interpolated": "interpolated", "random_offset": "repeated, random offset"}
TRAINING = {
    "learning_rate": 5e-4,
    "warmup_steps": 0.1,
    "per_device_eval_batch_size": 2,
    "do_train": True,
    "bf16": True,
    "disable_tqdm": True,
    "eval_strategy": "no",
    "seed": 1,
}
HEADING = """# Positions beyond the table

Masked-LM loss of {texts} test texts of at least {shortest:,} tokens, in nats, by position of the masked token. The
first model knows 512 rows; of the longer texts it reads each 512 tokens alone, or all, with a table filled in one of
two ways, before and after {steps} updates of 8,192 tokens. Standard error: {error:.2f} and less. Made by
`python experiments/positions.py` with layers 0, 2 and 4 of MiniLM, radius 4, one seed.
"""


def main() -> None:
    """Train what is missing, take the losses, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder", help="a BERT: a Hub name or a folder")
    parser.add_argument("data", type=Path, help="folder with polarity_v2 and news20_long")
    parser.add_argument("work", type=Path, help="folder of the models")
    parser.add_argument("--steps", type=int, default=128, help="updates on long texts; twice as many before them")
    arguments = parser.parse_args()
    work = arguments.work
    files = [str(arguments.data / name / "train.jsonl.gz") for name in SETS]
    tokenizer = AutoTokenizer.from_pretrained(arguments.encoder)
    texts = [row["text"] for name in SETS for row in read_file(arguments.data / name / "test.jsonl.gz")]
    documents = [each for each in tokenizer(texts, verbose=False)["input_ids"] if len(each) >= SHORTEST][:TEXTS]

    def new() -> BigTransformerForMaskedLM:
        return BigTransformerForMaskedLM.from_encoder(
            arguments.encoder, layers=[0, 2, 4], radius=4, max_positions=LONG
        )

    first = trained(new, tokenizer, work / "first", files, KNOWN, 2 * arguments.steps)
    table = first.base_model.embeddings.position_embeddings.weight[:KNOWN].detach().clone()
    rows = {"each 512 tokens alone": losses(first, tokenizer, documents, KNOWN)}
    for way, title in WAYS.items():

        def longer(way: str = way) -> BigTransformerForMaskedLM:
            model = BigTransformerForMaskedLM.from_pretrained(work / "first" / "model")
            positions = model.base_model.embeddings.position_embeddings
            how = "interpolated" if way == "interpolated" else "repeated"
            positions.weight.data.copy_(_positions(table, positions, how))
            model.config.random_position_offset = way == "random_offset"
            return model

        if way != "random_offset":  # before a training it is "repeated"
            rows[f"{title}, before"] = losses(longer(), tokenizer, documents, LONG)
        model = trained(longer, tokenizer, work / way, files, LONG, arguments.steps)
        rows[f"{title}, after"] = losses(model, tokenizer, documents, LONG)
    write_json(FOLDER / "losses.json", {"steps": arguments.steps, "texts": len(documents), "rows": rows})
    page = results_page(json.loads((FOLDER / "losses.json").read_text()))
    write_text(FOLDER / "results.md", page)
    print(page)


def trained(
    make: Callable[[], BigTransformerForMaskedLM],
    tokenizer: Any,
    folder: Path,
    files: list[str],
    block: int,
    steps: int,
) -> BigTransformerForMaskedLM:
    """The model of a folder that has one, or a new one that is trained and saved there."""
    output = folder / "model"
    if not (output / "all_results.json").exists():
        make().save_pretrained(folder / "start")
        tokenizer.save_pretrained(folder / "start")
        sizes = {"max_seq_length": block, "per_device_train_batch_size": 8192 // block, "max_steps": steps}
        values = {"model_name_or_path": str(folder / "start"), "train_file": files, "output_dir": str(output)}
        groups = (ModelArguments, TextArguments, RunArguments)
        run(PretrainingTask, *from_values(groups, {**PRETRAINING_DEFAULTS, **TRAINING, **sizes, **values}))
    return BigTransformerForMaskedLM.from_pretrained(output)


@torch.no_grad()
def losses(
    model: BigTransformerForMaskedLM, tokenizer: Any, documents: list[list[int]], length: int
) -> list[tuple[float, float]]:
    """
    Mean loss of masked tokens between each two of EDGES, and its standard error.

    Args:
        model: reads the documents.
        tokenizer: has the [MASK].
        documents: ids of each, between [CLS] and [SEP].
        length: tokens that the model reads at once, [CLS] and [SEP] included.
    """
    model.eval()
    generator = torch.Generator().manual_seed(1)  # the same tokens for each model
    found, places = [], []
    for document in documents:
        body = torch.tensor(document[1:-1])[: LONG - 2]
        masked = torch.rand(len(body), generator=generator) < MASKED
        inputs = body.masked_fill(masked, tokenizer.mask_token_id)
        place = torch.arange(1, len(body) + 1)
        for part, hidden, labels, at in zip(
            *(x.split(length - 2) for x in (inputs, masked, body, place)), strict=True
        ):
            ends = [part.new_tensor([number]) for number in (tokenizer.cls_token_id, tokenizer.sep_token_id)]
            logits = model(torch.cat([ends[0], part, ends[1]])[None]).logits[0, 1:-1]
            found.append(nn.functional.cross_entropy(logits[hidden], labels[hidden], reduction="none"))
            places.append(at[hidden])
    return by_place(torch.cat(found), torch.cat(places))


def by_place(found: Tensor, places: Tensor) -> list[tuple[float, float]]:
    """Mean and standard error of losses `[m]` at positions `[m]`, between each two of EDGES."""
    parts = [found[(places >= start) & (places < end)] for start, end in pairwise(EDGES)]
    return [(part.mean().item(), part.std().item() / math.sqrt(len(part))) for part in parts]


def results_page(kept: dict[str, Any]) -> str:
    """The table."""
    error = max(error for row in kept["rows"].values() for _, error in row)
    heading = HEADING.format(texts=kept["texts"], shortest=SHORTEST, steps=kept["steps"], error=error)
    spans = [f"{start:,} to {end - 1:,}" for start, end in pairwise(EDGES)]
    lines = [f"| | {' | '.join(spans)} |", f"|:--|{'--:|' * len(spans)}"]
    lines += [f"| {title} | {' | '.join(f'{mean:.3f}' for mean, _ in row)} |" for title, row in kept["rows"].items()]
    return "\n".join([heading, *lines, ""])


if __name__ == "__main__":
    main()
