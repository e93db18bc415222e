"""Synthetic data for the stock Trainer, in the process of the tests and in those that they start."""

from pathlib import Path
from typing import Any

import torch
from common import TINY
from transformers import PreTrainedModel, Trainer, TrainingArguments


# Kind of problem -> ending of the class name.
PROBLEMS = {
    "single_label_classification": "ForSequenceClassification",
    "regression": "ForSequenceClassification",
    "multi_label_classification": "ForSequenceClassification",
    "tagging": "ForTokenClassification",
    "chains": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
    "masks": "ForMaskedLM",
}


def options_of(problem: str) -> dict[str, Any]:
    """Fields of the configuration that a kind of problem needs."""
    if problem == "regression":
        return {"num_labels": 1}
    if problem == "chains":
        return {"use_crf": True}
    return {"problem_type": problem} if problem.endswith("classification") else {}


def rows_of(problem: str, count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Examples of 3 to 9 tokens, whose labels follow from their ids: something to learn, in a moment."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(3, 10, (), generator=generator))
        ids = torch.randint(2, TINY["vocab_size"], (length,), generator=generator)
        row: dict[str, Any] = {"input_ids": ids}
        if problem == "single_label_classification":
            row["labels"] = ids[0] % 3
        elif problem == "regression":
            row["labels"] = ids.float().mean() / 10
        elif problem == "multi_label_classification":
            row["labels"] = torch.stack([(ids % 3 == kind).any() for kind in range(3)]).float()
        elif problem in ("tagging", "chains"):
            row["labels"] = ids % 3
        elif problem == "spans":
            row["start_positions"], row["end_positions"] = ids.argmin(), ids.argmax()
        else:
            hidden = torch.rand(length, generator=generator) < 0.5
            row["labels"] = torch.where(hidden, ids, -100)
            row["input_ids"] = ids.masked_fill(hidden, 1)
        rows.append(row)
    return rows


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    """Right-padded columns `[b, n]`, n being the longest row's; labels of tokens are padded with -100."""
    longest = max(len(row["input_ids"]) for row in rows)

    def pad(values: torch.Tensor, with_what: int) -> torch.Tensor:
        return torch.nn.functional.pad(values, (0, longest - len(values)), value=with_what)

    batch = {
        "input_ids": torch.stack([pad(row["input_ids"], 0) for row in rows]),
        "attention_mask": torch.stack([pad(torch.ones_like(row["input_ids"]), 0) for row in rows]),
    }
    for name in rows[0].keys() - {"input_ids"}:
        values = [row[name] for row in rows]
        per_token = name == "labels" and values[0].dim() == 1 and not values[0].is_floating_point()
        batch[name] = torch.stack([pad(value, -100) for value in values] if per_token else values)
    return batch


def trainer_of(model: PreTrainedModel, rows: list[dict[str, Any]], folder: Path, **arguments: Any) -> Trainer:
    """The stock Trainer on the CPU, without reports or progress bars; it trains and evaluates on `rows`."""
    defaults: dict[str, Any] = {
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "seed": 3,
    }
    return Trainer(
        model=model,
        args=TrainingArguments(output_dir=str(folder), **{**defaults, **arguments}),
        # A list is a data set: it has a length and items.
        train_dataset=rows,
        eval_dataset=rows,
        data_collator=collate,
    )
