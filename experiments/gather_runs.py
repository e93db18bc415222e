#!/usr/bin/env python
"""
Gather finished runs of version 0.2, a file each, into the one file that a table has now.

    python experiments/gather_runs.py outputs/mine/mine outputs/masked_summation/results

Each folder becomes a file beside it, `outputs/mine/mine.jsonl`, and is removed. Runs that the file has already stay.
"""

import argparse
import json
import shutil
from pathlib import Path

from lab.kept_runs import RunFile, read_counts, write_counts


def main() -> None:
    """Read the arguments, and gather."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="a table's folder")
    for folder in parser.parse_args().folders:
        runs = {}
        for path in sorted(folder.rglob("*.json")):
            run = json.loads(path.read_text(encoding="utf-8"))
            if "counts" in run:
                run["counts"] = write_counts(read_counts(run["counts"]))
            if "repeated" in run:  # a digit for each test row
                run["repeated"] = [number for number, flag in enumerate(run["repeated"]) if flag == "1"]
            runs[path.relative_to(folder).with_suffix("").as_posix()] = run
        file = RunFile(folder.with_suffix(".jsonl"))
        file.path.touch()
        file.keep(runs | file.read_all())
        shutil.rmtree(folder)
        print(f"{len(runs)} runs: {file.path}")


if __name__ == "__main__":
    main()
