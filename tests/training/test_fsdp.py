"""Fully sharded data parallel (FSDP2) on two CPU processes, without accelerate, which leaves it out on the CPU."""

import json
import sys
from pathlib import Path

import pytest
from script_runner import run_processes


ENCODERS = {
    "star": ("StarTransformerConfig", "StarTransformerForSequenceClassification"),
    "big": ("BigTransformerConfig", "BigTransformerForSequenceClassification"),
    "vanilla": ("VanillaTransformerConfig", "VanillaTransformerForSequenceClassification"),
    "disan": ("DisanConfig", "DisanForSequenceClassification"),
    "bilstm": ("BiLstmConfig", "BiLstmForSequenceClassification"),
}


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_two_processes_that_share_the_parameters_train_like_one(encoder: str, tmp_path: Path) -> None:
    one, two = (run_processes(__file__, encoder, tmp_path / f"{processes}.json", processes) for processes in (1, 2))
    assert two["losses"] == pytest.approx(one["losses"], abs=1e-5)
    assert two["weights"].keys() == one["weights"].keys()
    for name, numbers in one["weights"].items():
        assert two["weights"][name] == pytest.approx(numbers, abs=1e-5), name
    assert two["parameters"] < 0.6 * one["parameters"]  # the parameters are shared out
    saved = tmp_path / "2"
    name = ENCODERS[encoder][1]
    config = json.loads((saved / "config.json").read_text())
    code, _, model = config["auto_map"]["AutoModelForSequenceClassification"].partition(".")
    assert (model, config["architectures"]) == (name, [name])
    assert (saved / f"{code}.py").is_file()
    assert not list(saved.glob("_fsdp*"))


def train(encoder: str, out: Path) -> None:
    """Three steps of SGD on 8 examples each; the processes share them evenly."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from training_samples import collate, rows_of

    import modeling_star

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    config_class, model_class = (getattr(modeling_star, name) for name in ENCODERS[encoder])
    dropouts = ("embedding_dropout_prob", "hidden_dropout_prob", "attention_probs_dropout_prob")
    sizes = {"vocab_size": 40, "hidden_size": 16, "num_attention_heads": 2, "num_labels": 3}
    torch.manual_seed(0)
    model = model_class(config_class(**sizes, **dict.fromkeys(dropouts, 0.0))).train()
    if world > 1:
        mesh = init_device_mesh("cpu", (world,))
        fully_shard(model.model.embeddings, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    rows, losses = rows_of("single_label_classification", 24), []
    for step in range(3):
        batch = rows[8 * step : 8 * step + 8]
        loss = model(**collate(batch[rank * 8 // world : (rank + 1) * 8 // world])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach() / world
        dist.all_reduce(mean)
        losses.append(float(mean))
    if world > 1:
        state = {name: tensor.full_tensor() for name, tensor in model.state_dict().items()}
        if rank == 0:
            model.save_pretrained(out.with_suffix(""), state_dict=state)
    parameters = sum((p.to_local() if world > 1 else p).numel() for p in model.parameters())
    whole = {name: p.full_tensor() if world > 1 else p for name, p in model.named_parameters()}
    weights = {name: tensor.detach().flatten().tolist() for name, tensor in whole.items()}
    if rank == 0:
        out.write_text(json.dumps({"losses": losses, "weights": weights, "parameters": parameters}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    train(sys.argv[1], Path(sys.argv[2]))
