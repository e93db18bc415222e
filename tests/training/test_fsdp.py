"""Fully sharded data parallel (FSDP2) on two CPU processes, without accelerate, which leaves it out on the CPU."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from script_runner import free_port, rank_environment


ENCODERS = {
    "star": ("StarTransformerConfig", "StarTransformerForSequenceClassification"),
    "big": ("BigTransformerConfig", "BigTransformerForSequenceClassification"),
    "vanilla": ("VanillaTransformerConfig", "VanillaTransformerForSequenceClassification"),
    "disan": ("DisanConfig", "DisanForSequenceClassification"),
    "bilstm": ("BiLstmConfig", "BiLstmForSequenceClassification"),
}


def run_processes(kind: str, out: Path, processes: int) -> dict[str, Any]:
    """Run this file in several processes; returns what the first one writes to `out`."""
    port = free_port()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    started = [
        subprocess.Popen(
            [sys.executable, __file__, kind, str(out)],
            env={**environment, **rank_environment(rank, processes, port)},
        )
        for rank in range(processes)
    ]
    assert [process.wait(timeout=300) for process in started] == [0] * processes
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("encoder", ENCODERS)
def test_two_processes_that_share_the_parameters_train_like_one(encoder: str, tmp_path: Path) -> None:
    one, two = (run_processes(encoder, tmp_path / f"{processes}.json", processes) for processes in (1, 2))
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


@pytest.mark.parametrize("kind", ["star_transformer", "marian"])
@pytest.mark.slow
def test_two_processes_load_whole_weights_and_translate_like_one(kind: str, tmp_path: Path) -> None:
    result = run_processes(kind, tmp_path / "out.json", 2)
    assert result["weights"] == []
    # Each process has other rows, one of which ends before the other.
    assert result["sharded"] == result["whole"]
    assert len({len(ids) for ids in result["whole"]}) == 2


def translate_sharded(kind: str, out: Path) -> None:
    """Whole weights into a sharded model, and what the processes then write by turns, with beams."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    from modeling_star.data.subwords import train_subword_tokenizer
    from modeling_star.inference.translation import generate_translations
    from modeling_star.training.trainer import generate_options, load_weights
    from modeling_star.training.translation_builders import fresh_translator, set_generation

    dist.init_process_group("gloo")
    tokenizer = train_subword_tokenizer(["a b c d e f"] * 2)
    sides = {"encoder.hidden_size": 16, "encoder.num_attention_heads": 2, "decoder.decoder_layers": 1}
    if kind == "marian":
        layers = {f"{side}_{name}": 1 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
        sides = {"d_model": 16, "init_std": 0.4, **layers}
    models = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        models.append(fresh_translator(tokenizer, model_type=kind, overrides=sides).eval())
        set_generation(models[-1], tokenizer, 2, 0.5)
    whole, sharded = models
    fully_shard(sharded, mesh=init_device_mesh("cpu", (2,)), reshard_after_forward=True)
    load_weights(sharded, whole.state_dict())
    loaded = {name: x.full_tensor() if hasattr(x, "full_tensor") else x for name, x in sharded.state_dict().items()}
    other = [name for name, tensor in whole.state_dict().items() if not tensor.equal(loaded[name])]
    texts = ["a b c", "a b c d e f e d c b a"]
    inputs = [dict(tokenizer(text, return_tensors="pt")) for text in texts]
    rank = dist.get_rank()
    for _ in range(2):  # twice: what is registered once serves every batch
        translations = generate_translations(sharded, inputs[rank], 2, **generate_options(sharded))
    written: list = [None, None]
    dist.all_gather_object(written, translations[0].tolist())
    if rank == 0:
        alone = [generate_translations(whole, given, 2)[0].tolist() for given in inputs]
        out.write_text(json.dumps({"weights": other, "sharded": written, "whole": alone}))
    dist.barrier()
    dist.destroy_process_group()


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
    run = train if sys.argv[1] in ENCODERS else translate_sharded
    run(sys.argv[1], Path(sys.argv[2]))
