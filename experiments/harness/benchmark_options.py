"""The flags of benchmark.py. This file imports nothing heavy, so that `--help` answers at once."""

import argparse
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from modeling_star.errors import UserError
from modeling_star.training.arguments import flag


OURS = ("star", "star-plus", "big", "big-window", "vanilla", "disan", "bilstm")
OTHERS = ("bert-sdpa", "bert-eager", "fnet", "longformer", "nystromformer", "modernbert", "reformer", "big_bird")
FROM_BERT = {"big-from-bert": 4, "big-from-bert-1": 1}  # radius of the window
SYSTEMS = (*OURS, *FROM_BERT, "products", "matching", *OTHERS)
"""Systems by name; others are model types of transformers, with -sdpa or -eager for the kind of attention."""
DEFAULT = ["star", "big", "products", *OTHERS[:-1], "bilstm"]
IN_ONNX = "-onnx"  # after a system's name: the same one, run by ONNX Runtime
IN_INT8 = "-onnx-int8"  # with weights of 8 bits
SHAPES = ["128x109", "8x512", "4x2048", "1x8192"]


@dataclass(frozen=True)
class Options:
    """
    How systems are measured; the fields are the flags of benchmark.py.

    Raises:
        UserError: ONNX Runtime is combined with training, a GPU or another type, or CUDA graphs with training, a CPU
            or torch.compile.
    """

    systems: list[str] = flag("names of systems", DEFAULT, metavar="NAME")
    reference: list[str] = flag("compared with: the first that runs", ["bert-sdpa"], metavar="NAME")
    mode: Literal["forward", "train"] = flag("train: forward, backward, AdamW step", "forward")
    hidden_size: int = flag("width", 300)
    num_layers: int = flag("layers", 2)
    num_heads: int = flag("attention heads", 6)
    vocab_size: int = flag("rows of the embedding table", 30522)
    lexicon_words: int = flag("random words of BiG's lexicon", 350_000)
    repeats: int = flag("passes of which the median is reported", 5)
    max_seconds: float = flag("a slower pass is measured once, not repeated", 60.0)
    own_best_batch: bool = flag("also give each system its best size of sub-batches", False)
    count: bool = flag("count operations of a forward pass and a training step instead of timing them", False)
    memory: bool = flag("also measure peak memory, in a process for each system and shape", False)
    max_memory: float | None = flag("limit in GB for all models and a pass, on Linux's CPU", metavar="GB")
    threads: int | None = flag("PyTorch's threads")
    cpu_time: bool = flag("measure CPU time, which other processes disturb less; with --threads 1", False)
    device: str = flag("cpu, cuda, cuda:1", "cpu")
    dtype: Literal["float32", "bfloat16"] = flag("type of weights and states", "float32")
    compile: bool = flag("torch.compile every model", False)
    graphs: bool = flag("replay CUDA graphs, on a GPU", False)
    seed: int = flag("seed of weights, ids and lexicon", 0)

    def __post_init__(self) -> None:
        onnx = [name for name in self.systems if plain_name(name) != name]
        if onnx and (self.mode, self.device, self.dtype) != ("forward", "cpu", "float32"):
            raise UserError(f"--systems {onnx[0]}: ONNX Runtime needs --mode forward --device cpu --dtype float32")
        if self.graphs and (self.mode, self.on_gpu, self.compile) != ("forward", True, False):
            raise UserError("--graphs: CUDA graphs need --mode forward --device cuda, without --compile")

    @property
    def references(self) -> list[str]:
        """The systems that others may be compared with: the first that runs is."""
        return [*(name for name in self.reference if name in self.systems), *self.systems]

    @property
    def on_gpu(self) -> bool:
        """Whether models run on a GPU."""
        return self.device.startswith("cuda")

    @property
    def compiles(self) -> bool:
        """Whether a first pass compiles something: torch.compile, or the kernels of a GPU."""
        return self.compile or self.on_gpu


def plain_name(system: str) -> str:
    """A system's name without what runs it: star-onnx is star."""
    return system.removesuffix(IN_INT8).removesuffix(IN_ONNX)


def make_parser(description: str) -> argparse.ArgumentParser:
    """The fields of `Options`, the workloads and the output folder."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--shapes", nargs="+", metavar="ROWSxTOKENS", help=f"full batches (default: {' '.join(SHAPES)})")
    add("--lengths", nargs="+", type=Path, metavar="FILE", help="one length a line, or data sets with text or tokens")
    add("--batch_size", type=int, default=128, help="rows of a batch of --lengths, in the files' order (default: 128)")
    add("--truncate", type=int, help="cut texts of --lengths to N tokens (default: not at all)", metavar="N")
    add("--output_dir", type=Path, default=Path("outputs/benchmark"), help="new or empty (default: outputs/benchmark)")
    for field in fields(Options):
        default = getattr(Options(), field.name)
        text = " ".join(default) if isinstance(default, list) else "none" if default is None else default
        more: dict[str, Any] = {"help": f"{field.metadata['help']} (default: {text})", "default": default}
        if isinstance(default, bool):
            more |= {"action": "store_true", "help": field.metadata["help"]}
        elif isinstance(default, list):
            more |= {"nargs": "+"}
        elif field.name in ("mode", "dtype"):
            more |= {"choices": field.type.__args__}  # type: ignore[union-attr]
        else:
            more |= {"type": {"threads": int, "max_memory": float}.get(field.name, type(default))}
        if "metavar" in field.metadata:
            more |= {"metavar": field.metadata["metavar"]}
        add(f"--{field.name}", **more)
    return parser
