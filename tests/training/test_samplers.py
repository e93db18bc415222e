"""Length-grouped training batches."""

from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate.data_loader import prepare_data_loader, skip_first_batches
from common import tiny_model
from datasets import Dataset
from samples import word_tokenizer
from torch.utils.data import DataLoader
from transformers import DataCollatorWithPadding, TrainingArguments
from transformers.trainer_pt_utils import LengthGroupedSampler

from modeling_star.training.trainer import ShuffledLengthGroups, StarTrainer, TokenBatches


# 12 full batches and a short one; what an example is shows in its first token.
LENGTHS = [3 + row * 7 % 50 for row in range(50)]
BATCH = 4


def sampler(seed: int, epoch: int = 0) -> ShuffledLengthGroups:
    return ShuffledLengthGroups(LengthGroupedSampler(BATCH, lengths=LENGTHS), seed, lambda: epoch)


def batches(rows: list[int]) -> list[list[int]]:
    return [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]


def test_batches_are_grouped_by_length_in_random_order() -> None:
    rows = list(sampler(seed=1))
    assert sorted(rows) == list(range(len(LENGTHS)))
    lengths = [[LENGTHS[row] for row in batch] for batch in batches(rows)]
    spread = sum(max(batch) - min(batch) for batch in lengths) / len(lengths)
    mixed = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    random = [[LENGTHS[row] for row in batch] for batch in batches(mixed.tolist())]
    assert spread < 0.6 * sum(max(batch) - min(batch) for batch in random) / len(random)
    generator = torch.Generator().manual_seed(1)
    trainers = batches(list(LengthGroupedSampler(BATCH, lengths=LENGTHS, generator=generator)))
    shuffled = batches(rows)
    assert shuffled[-1] == trainers[-1], "the short batch comes last"
    assert sorted(shuffled) == sorted(trainers)
    assert shuffled != trainers


def test_batches_neither_grow_nor_shrink_one_after_another() -> None:
    lengths = [3 + row * 7 % 397 for row in range(397)]  # Trainer's order is that of 24 batches at a time

    def rises(rows: list[int]) -> int:
        means = [sum(lengths[row] for row in batch) / len(batch) for batch in batches(rows)]
        return sum(after > before for before, after in pairwise(means))

    generator = torch.Generator().manual_seed(1)
    assert rises(list(LengthGroupedSampler(BATCH, lengths=lengths, generator=generator))) < 10
    shuffled = ShuffledLengthGroups(LengthGroupedSampler(BATCH, lengths=lengths), 1, lambda: 0)
    assert 35 < rises(list(shuffled)) < 65


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    first = list(sampler(seed=1))
    torch.rand(7)
    assert list(sampler(seed=1)) == first
    assert list(sampler(seed=2)) != first
    assert list(sampler(seed=1, epoch=1)) != first


def trainer_of(folder: Path, batch: int, **arguments: Any) -> StarTrainer:
    rows = [{"input_ids": [row] + [1] * (length - 1), "label": 0} for row, length in enumerate(LENGTHS)]
    training = TrainingArguments(
        output_dir=str(folder),
        train_sampling_strategy="group_by_length",
        per_device_train_batch_size=batch,
        use_cpu=True,
        seed=1,
        **arguments,
    )
    tokenizer = word_tokenizer("a b")
    return StarTrainer(
        model=tiny_model("StarTransformer", "ForSequenceClassification", vocab_size=50, max_position_embeddings=64),
        args=training,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
    )


@pytest.mark.parametrize("shuffled", [True, False])
def test_trainer_uses_them_unless_it_is_turned_off(shuffled: bool, tmp_path: Path) -> None:
    trainer = trainer_of(tmp_path, BATCH)
    trainer.shuffle_length_groups = shuffled

    def read(loader: DataLoader) -> list[int]:
        return [int(row) for batch in loader for row in batch["input_ids"][:, 0]]

    loader = trainer.get_train_dataloader()
    first = read(loader)
    assert sorted(first) == list(range(len(LENGTHS)))
    assert (first == list(sampler(seed=1))) == shuffled
    if shuffled:
        trainer.state.epoch = 1.0
        assert read(loader) == list(sampler(seed=1, epoch=1))
        rest = skip_first_batches(loader, 3)  # as a run that resumes within an epoch
        trainer.state.epoch = 2.6  # as Trainer has it there
        assert read(rest) == list(sampler(seed=1, epoch=2))[3 * BATCH :]


@pytest.mark.parametrize("skipped", [0, 2], ids=["from the start", "from the middle"])
def test_two_processes_share_the_batches(skipped: int) -> None:
    def read(process: int) -> list[int]:
        batches = DataLoader(range(len(LENGTHS)), batch_size=BATCH, sampler=sampler(seed=1, epoch=1))
        torch.manual_seed(process)
        loader = prepare_data_loader(batches, num_processes=2, process_index=process, even_batches=False)
        return [int(row) for batch in skip_first_batches(loader, skipped) for row in batch]

    parts = [batches(read(process)) for process in range(2)]
    together = [row for pair in zip_longest(*parts, fillvalue=[]) for batch in pair for row in batch]
    assert together == list(sampler(seed=1, epoch=1))[2 * skipped * BATCH :]


def test_batches_bounded_by_tokens_hold_every_text_once_and_differ_between_epochs() -> None:
    lengths = [3 + row * 7 % 397 for row in range(397)]

    def of_epoch(epoch: int) -> list[list[int]]:
        return list(TokenBatches(lengths, 900, 16, 1, lambda: epoch))

    epochs = [of_epoch(epoch) for epoch in range(3)]
    assert epochs[0] != epochs[1]
    assert {frozenset(batch) for batch in epochs[0]} != {frozenset(batch) for batch in epochs[1]}
    for batches_of_epoch in epochs:
        assert sorted(row for batch in batches_of_epoch for row in batch) == list(range(397))
        assert len(batches_of_epoch) == len(TokenBatches(lengths, 900, 16, 1, lambda: 0))
        for batch in batches_of_epoch:
            assert len(batch) <= 16
            assert len(batch) * max(lengths[row] for row in batch) <= 900
    tokens = sum(lengths)
    padded = sum(len(batch) * max(lengths[row] for row in batch) for batch in epochs[0])
    assert padded < 1.15 * tokens
    orders = [[[0], [1, 2]], [[0], [2, 1]], [[1, 2], [0]], [[2, 1], [0]]]
    assert list(TokenBatches([5, 1, 0], 2, 16, 1, lambda: 0)) in orders


def test_a_run_with_batches_bounded_by_tokens_resumes_exactly(tmp_path: Path) -> None:
    def trained(folder: Path, checkpoint: str | None = None) -> tuple[list[float], dict[str, torch.Tensor]]:
        torch.manual_seed(1)  # the weights that the model begins with
        trainer = trainer_of(folder, 16, num_train_epochs=3, save_steps=5, logging_steps=1, report_to="none")
        trainer.max_tokens_per_batch = 100
        assert len(trainer.get_train_dataloader()) == 19
        trainer.train(checkpoint)
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        return losses, trainer.model.state_dict()

    losses, straight = trained(tmp_path)
    assert len(losses) == 3 * 19
    resumed_losses, resumed = trained(tmp_path / "again", str(tmp_path / "checkpoint-25"))
    assert resumed_losses == losses
    assert all(torch.equal(resumed[name], tensor) for name, tensor in straight.items())
