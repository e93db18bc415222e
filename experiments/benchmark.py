#!/usr/bin/env python
"""
Time encoders of one width and depth side by side: ours and those of transformers. Each call writes into a folder of
its own, --output_dir NAME (default: outputs/benchmark), which has to be new or empty.

    python experiments/benchmark.py                                             forward, on the CPU
    python experiments/benchmark.py --systems star products bert-sdpa --shapes 8x512 1x8192 --threads 2
    python experiments/benchmark.py --systems big matching --reference big --shapes 32x128 1x128 1x1024 1x8192 1x65536
    python experiments/benchmark.py --systems star star-onnx bert-sdpa bert-sdpa-onnx --shapes 1x16 1x32 1x128
    python experiments/benchmark.py --mode train --shapes 128x109 --memory
    python experiments/benchmark.py --lengths DATA/test.jsonl.gz --batch_size 128 --truncate 256
    python experiments/benchmark.py --device cuda --dtype bfloat16 --shapes 64x128 16x512 4x2048 1x8192 1x32768

Systems: star, big, vanilla, disan, bilstm; products (the Star's matrix products alone, its lower bound), matching
(BiG's search for words alone); bert-sdpa, bert-eager, fnet, longformer, nystromformer, modernbert, reformer, big_bird,
or any model type of transformers, with -sdpa or -eager for its attention. With -onnx behind its name (star-onnx) a
system is run by ONNX Runtime. Writes results.csv, results.md and plots.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any


SYSTEMS = ["star", "big", "products", "bert-sdpa", "bert-eager", "fnet", "longformer", "nystromformer", "modernbert"]
SYSTEMS += ["reformer", "bilstm"]
SHAPES = ["128x109", "8x512", "4x2048", "1x8192"]


def main() -> None:
    """Read the arguments, measure, write and print the tables."""
    parser = make_parser()
    arguments = parser.parse_args()

    import transformers
    from lab.benchmark import Result, measure
    from lab.benchmark_report import write_results
    from lab.benchmark_workloads import Options, Workload, lengths_workload, parse_shape

    from modeling_star.errors import UserError
    from modeling_star.training.checkpoints import check_new

    # Models of transformers that pad their input say so at every pass.
    transformers.logging.set_verbosity_error()
    options: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in vars(arguments).items()
        if name not in ("shapes", "lengths", "batch_size", "truncate", "output_dir")
    }
    workloads: list[Workload] = []
    results: list[Result] = []
    try:
        measured = Options(**options)
        if arguments.truncate is not None and not arguments.lengths:
            raise UserError(
                f"--truncate {arguments.truncate} is given without --lengths: write --lengths FILE, or leave it out."
            )
        shapes = arguments.shapes or ([] if arguments.lengths else SHAPES)
        workloads += [parse_shape(shape) for shape in shapes]
        if arguments.lengths:
            workloads.append(lengths_workload(arguments.lengths, arguments.batch_size, arguments.truncate))
        check_new(arguments.output_dir)
        command = f"python experiments/benchmark.py {shlex.join(sys.argv[1:])}".strip()
        for number, workload in enumerate(workloads, start=1):
            results += measure(measured, [workload])
            # What has been measured is there, whatever becomes of the rest.
            page = write_results(measured, workloads[:number], results, arguments.output_dir, command)
    except KeyboardInterrupt:
        done = len({result.workload for result in results})
        there = f"{done} of {len(workloads)} workloads measured, in {arguments.output_dir}"
        sys.exit(f"benchmark.py: interrupted; {there if done else '0 workloads measured'}.")
    except UserError as error:
        sys.exit(f"benchmark.py: {error}")
    print(page)
    print(f"Written to {arguments.output_dir}")


def make_parser() -> argparse.ArgumentParser:
    """The flags, of which all but the workload and the folder are fields of `Options`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--systems", nargs="+", default=SYSTEMS, metavar="NAME", help=f"default: {' '.join(SYSTEMS)}")
    add("--reference", nargs="+", default=["bert-sdpa"], metavar="NAME", help="compared with: the first that runs")
    add("--shapes", nargs="+", metavar="ROWSxTOKENS", help=f"full batches (default: {' '.join(SHAPES)})")
    add("--lengths", nargs="+", type=Path, metavar="FILE", help="one length a line, or data sets with text or tokens")
    add("--batch_size", type=int, default=128, help="rows of a batch of --lengths, in the files' order (default: 128)")
    add("--truncate", type=int, help="cut texts of --lengths to so many tokens (default: not at all)")
    add("--mode", choices=["forward", "train"], default="forward", help="train: forward, backward, AdamW step")
    add("--hidden_size", type=int, default=300, help="width (default: 300)")
    add("--num_layers", type=int, default=2, help="layers (default: 2)")
    add("--num_heads", type=int, default=6, help="attention heads (default: 6)")
    add("--vocab_size", type=int, default=30522, help="rows of the embedding table (default: 30522)")
    add("--lexicon_words", type=int, default=350_000, help="random words of BiG's lexicon (default: 350000)")
    add("--repeats", type=int, default=5, help="passes of which the median is told (default: 5)")
    add("--max_seconds", type=float, default=60.0, help="a slower pass is measured once, not repeated (default: 60)")
    add("--own_best_batch", action="store_true", help="also give each system its best size of sub-batches")
    add("--memory", action="store_true", help="also measure peak memory, in a process for each system and shape")
    add("--max_memory", type=float, metavar="GB", help="CPU: limit for all models and a pass (default: none)")
    add("--threads", type=int, help="PyTorch's threads (default: as set)")
    add("--device", default="cpu", help="cpu, cuda, cuda:1 (default: cpu)")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="of weights and states")
    add("--compile", action="store_true", help="torch.compile every model")
    add("--seed", type=int, default=0, help="of weights, ids and lexicon (default: 0)")
    add("--output_dir", type=Path, default=Path("outputs/benchmark"), help="new or empty (default: outputs/benchmark)")
    return parser


if __name__ == "__main__":
    main()
