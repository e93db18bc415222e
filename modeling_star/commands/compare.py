"""
Compare finished runs on the same test file: scores over seeds, and differences with 95 % intervals.

    modeling-star classify ... --seeds 1 2 3 --output_dir outputs/star
    modeling-star classify ... --seeds 1 2 3 --output_dir outputs/bert
    modeling-star compare outputs/star outputs/bert

Prints Markdown: the first folder against each other one. The folders are the outputs of `glue`, `ner` or `qa`,
with one seed or several. An interval (paired bootstrap) without 0 shows a difference that other test
examples and seeds would show too.
"""

import argparse
from pathlib import Path


def main() -> None:
    """Read the arguments and the runs, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER", help="output folders, two or more")
    parser.add_argument("--split", default="test", help="the split whose predictions are compared (default: test)")
    parser.add_argument(
        "--metric",
        help="accuracy, macro_f1, entity_f1, micro_f1 (of several labels), answer_f1, pearson and others (default: "
        "the metric that the runs were scored by)",
    )
    arguments = parser.parse_args()
    if len(arguments.folders) < 2:
        parser.error(f"{arguments.folders[0]} needs another folder to be compared with: name two or more")

    from ..evaluation.compare import compare, read_system
    from ..runs.cli_errors import command_messages

    with command_messages("modeling-star compare"):
        systems = [read_system(folder, arguments.split) for folder in arguments.folders]
        print(compare(systems, arguments.metric, arguments.split))
