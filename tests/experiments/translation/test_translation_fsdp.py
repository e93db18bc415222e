"""Fully sharded data parallel (FSDP2) on two CPU processes: whole weights are loaded, and both translate."""

import json
import sys
from pathlib import Path

import pytest
from script_runner import run_processes


@pytest.mark.parametrize("kind", ["star_transformer", "marian"])
@pytest.mark.slow
def test_two_processes_load_whole_weights_and_translate_like_one(kind: str, tmp_path: Path) -> None:
    result = run_processes(__file__, kind, tmp_path / "out.json", 2)
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
    from translation.builders import fresh_translator, set_generation
    from translation.generation import generate_options, generate_translations
    from translation.subwords import train_subword_tokenizer

    from modeling_star.training.trainer import load_weights

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


if __name__ == "__main__":
    translate_sharded(sys.argv[1], Path(sys.argv[2]))
