#!/usr/bin/env python
"""
Attention transfer: the layers of a converted BERT learn to give the attention of the original layers.

    OMP_NUM_THREADS=1 python experiments/repair.py MINILM outputs/repaired texts.jsonl.gz ... --layers 0 2 4 --radius 4

Each chosen layer reads the original's own inputs of that layer, attends to a window and [CLS], and learns the output
of the original's attention with all tokens (mean squared error). So layers are independent, no error of one reaches
the next, and only projections of attention are trained. The folder holds a BERT with the new weights, which
`modeling-star convert FOLDER outputs/big3 --layers 0 2 4 --radius 4` converts, and its tokenizer. With `--last` the
last token ([SEP]) is seen by everybody too, which BiG does not have: that is a trial of the loss alone.
"""

import argparse
import time
from itertools import islice
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import AutoModel, AutoTokenizer, BertModel, set_seed
from transformers.models.bert.modeling_bert import BertAttention

from modeling_star.data.splits import load_splits
from modeling_star.models.window_attention import dense_window, ends_of, lowest


KEPT = 2  # batches that measure the error, and are not trained on


def main() -> None:
    """Read the arguments, train, print the errors before and after, write the folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("encoder", help="a BERT: a Hub name or a folder")
    add("output_dir", type=Path, help="new folder")
    add("texts", nargs="+", help="files with a column `text`")
    add("--layers", type=int, nargs="+", required=True, help="layers that the converted model has, from 0")
    add("--radius", type=int, default=4)
    add("--last", action="store_true", help="show the last token to everybody too")
    add("--max_seq_length", type=int, default=128)
    add("--batch_size", type=int, default=32)
    add("--steps", type=int, default=60)
    add("--learning_rate", type=float, default=1e-3)
    arguments = parser.parse_args()
    set_seed(1)
    tokenizer = AutoTokenizer.from_pretrained(arguments.encoder)
    model = AutoModel.from_pretrained(arguments.encoder).eval().requires_grad_(False)
    students = nn.ModuleDict(
        {
            str(number): AutoModel.from_pretrained(arguments.encoder).encoder.layer[number].attention
            for number in arguments.layers
        }
    ).eval()
    texts = [text for file in arguments.texts for text in load_splits(files={"train": file})["train"]["text"]]
    order = torch.randperm(len(texts)).tolist()
    batches = (
        tokenizer(
            [texts[row] for row in order[start : start + arguments.batch_size]],
            truncation=True,
            max_length=arguments.max_seq_length,
            padding=True,
            return_tensors="pt",
        )
        for start in range(0, len(order), arguments.batch_size)
    )
    kept = list(islice(batches, KEPT))

    def errors(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return layer_errors(model, students, inputs, arguments.radius, arguments.last)

    def report(title: str) -> None:
        with torch.no_grad():
            of_batches = [errors(inputs) for inputs in kept]
        means = {name: torch.stack([each[name] for each in of_batches]).mean() for name in students}
        print(f"{title}: " + ", ".join(f"layer {name} {mean:.4f}" for name, mean in means.items()), flush=True)

    report("error before")
    optimizer = torch.optim.AdamW(students.parameters(), lr=arguments.learning_rate, weight_decay=0.0)
    warm = 0.1 * arguments.steps
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warm, (arguments.steps - step) / (arguments.steps - warm))
    )
    started, tokens = time.process_time(), 0
    for inputs in islice(batches, arguments.steps):
        loss = torch.stack(list(errors(inputs).values())).sum()
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        tokens += int(inputs["attention_mask"].sum())
    print(f"{arguments.steps} steps, {tokens:,} tokens, {time.process_time() - started:.0f} s of CPU time")
    report("error after")
    for name, student in students.items():
        model.encoder.layer[int(name)].attention = student
    model.save_pretrained(arguments.output_dir)
    tokenizer.save_pretrained(arguments.output_dir)


def layer_errors(
    model: BertModel, students: nn.ModuleDict, inputs: dict[str, Tensor], radius: int, last: bool
) -> dict[str, Tensor]:
    """
    Of each student the error at real tokens: mean squared difference over the variance of what it learns.

    Args:
        model: the original.
        students: attention of some of its layers, by number.
        inputs: `input_ids` and `attention_mask`, `[b, n]`.
        radius: neighbours on either side.
        last: the last token is seen by everybody too.
    """
    real = inputs["attention_mask"].bool()
    window = dense_window(real.shape[1], radius, radius, real, ends_of(real, last))
    numbers = [int(name) for name in students]
    with torch.no_grad():
        states = model.embeddings(inputs["input_ids"])
        full = _added(real[:, None, None].expand_as(window))
        read, learned = {}, {}
        for number in range(max(numbers) + 1):
            layer = model.encoder.layer[number]
            if number in numbers:
                read[number] = states
                learned[number] = _output(layer.attention, states, full)
            states = layer(states, full)
    errors = {}
    for name, student in students.items():
        target = learned[int(name)][real]
        output = _output(student, read[int(name)], _added(window))[real]
        errors[name] = (output - target).square().mean() / target.var(0).mean()
    return errors


def _added(allowed: Tensor) -> Tensor:
    """A bool mask as what is added to scores."""
    return torch.zeros(allowed.shape).masked_fill(~allowed, lowest(torch.float32))


def _output(attention: BertAttention, states: Tensor, mask: Tensor) -> Tensor:
    """What attention adds to the states, without residual and norm."""
    return attention.output.dense(attention.self(states, mask)[0])


if __name__ == "__main__":
    main()
