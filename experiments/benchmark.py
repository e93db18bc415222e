#!/usr/bin/env python
"""
Time encoders of one width and depth side by side: ours and those of transformers. Each call writes into its own
folder, --output_dir NAME (default: outputs/benchmark), which has to be new or empty.

    python experiments/benchmark.py                                             forward, on the CPU
    python experiments/benchmark.py --systems star products bert-sdpa --shapes 8x512 1x8192 --threads 2
    python experiments/benchmark.py --systems big matching --reference big --shapes 32x128 1x128 1x1024 1x8192 1x65536
    python experiments/benchmark.py --systems star star-onnx bert-sdpa bert-sdpa-onnx --shapes 1x16 1x32 1x128
    python experiments/benchmark.py --systems big-from-bert big-from-bert-1 bert-sdpa --hidden_size 384 \\
        --num_heads 12 --shapes 128x32 32x128 8x512 1x4096 --threads 1
    python experiments/benchmark.py --mode train --shapes 128x109 --memory
    python experiments/benchmark.py --count --systems star big bert-sdpa --shapes 1x32
    python experiments/benchmark.py --lengths DATA/test.jsonl.gz --batch_size 128 --truncate 256
    python experiments/benchmark.py --device cuda --dtype bfloat16 --shapes 64x128 16x512 4x2048 1x8192 1x32768
    python experiments/benchmark.py --device cuda --dtype bfloat16 --graphs --systems star big bert-sdpa

Systems: star, star-plus, big, big-window (without words), vanilla, disan, bilstm; big-from-bert and big-from-bert-1
(the form that from_bert gives BiG, with 4 neighbours and 1 on either side); products (Star's matrix products alone,
its lower bound), matching (BiG's search for words alone); bert-sdpa, bert-eager, fnet, longformer, nystromformer,
modernbert, reformer, big_bird, or any model type of transformers, with -sdpa or -eager for its attention. With -onnx
or -onnx-int8 after its name (star-onnx) a system is run by ONNX Runtime, in float32 or with weights of 8 bits. Writes
results.csv, results.md and plots.
"""

import shlex
import sys
from dataclasses import fields

from harness.benchmark_options import SHAPES, Options, make_parser

from modeling_star.errors import UserError


def main() -> None:
    """Read the arguments, measure, write and print the tables."""
    arguments = make_parser(__doc__).parse_args()

    import transformers
    from harness.benchmark import measure
    from harness.benchmark_count import count_table
    from harness.benchmark_report import write_results
    from harness.benchmark_systems import check_systems
    from harness.benchmark_workloads import lengths_workload, parse_shape

    from modeling_star.files import check_new

    # Models of transformers that pad their input log it at every pass.
    transformers.logging.set_verbosity_error()
    try:
        options = Options(**{field.name: getattr(arguments, field.name) for field in fields(Options)})
        check_systems(options)
        shapes = arguments.shapes or ([] if arguments.lengths else SHAPES)
        workloads = [parse_shape(shape) for shape in shapes]
        if arguments.lengths:
            workloads.append(lengths_workload(arguments.lengths, arguments.batch_size, arguments.truncate))
        if options.count:
            print(count_table(options, workloads))
            return
        check_new(arguments.output_dir)
    except UserError as error:
        sys.exit(f"benchmark.py: {error}")
    command = f"python experiments/benchmark.py {shlex.join(sys.argv[1:])}".strip()
    results = []
    for number, workload in enumerate(workloads, start=1):
        try:
            results += measure(options, workload)
        except KeyboardInterrupt:
            sys.exit(f"benchmark.py: interrupted; {number - 1} of {len(workloads)} workloads measured.")
        # An interruption keeps what has been measured.
        page = write_results(options, workloads[:number], results, arguments.output_dir, command)
    print(page)
    print(f"Written to {arguments.output_dir}")


if __name__ == "__main__":
    main()
