#!/usr/bin/env python
"""
Masked summation: the sum of the k flagged ones of n random vectors, for any encoder at any n. Table 6 and Figure 3 of
the Star-Transformer's paper.

Everything, many hours of a CPU:
    python experiments/masked_summation.py

The same for experiments/results.md, which `reproduce.py --page` makes:
    python experiments/masked_summation.py --results experiments/results/masked_summation.jsonl

One number of it (Star at n = 200, Table 6):
    python experiments/masked_summation.py --systems star --lengths 200

The times alone, on a machine without other jobs:
    OMP_NUM_THREADS=2 python experiments/masked_summation.py --stages time report

A small example of a minute:
    python experiments/masked_summation.py --systems star vanilla --lengths 10 20 --flagged 3 --width 4 \\
        --train_samples 2000 --test_samples 500 --validation_samples 500 --num_train_epochs 5 --output_dir outputs/tiny

Runs and times that are finished are kept in results.jsonl of the output folder and not repeated, and an interrupted
run resumes from its last epoch. Beside it: results.md, results.csv, figure_3a.png (MSE over n), figure_3b.png (test
time over n).
"""

from harness.summation_arguments import SUMMATION_DEFAULTS, SUMMATION_HELP, SummationArguments

from modeling_star.commands.parser import parse


def main() -> None:
    """Read the arguments, run what is missing, report."""
    options, training = parse((SummationArguments,), __doc__, SUMMATION_DEFAULTS, SUMMATION_HELP)

    from harness.masked_summation_runs import run_script

    run_script(options, training)


if __name__ == "__main__":
    main()
