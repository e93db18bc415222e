"""
Soak and fuzz test: `make soak`. It uses what the tests share, in tests/; no other target runs it.

    make soak                            30 minutes on two cores
    make soak MINUTES=5 KINDS="kill"     some kinds of cases only
    make soak SEED=data-12345-17         one case again, as its failure prints it

Every case is one of CASES and draws all it does from its name. A case fails if a command ends with a traceback, by a
signal or not within a minute, gives a wrong result, or changes a file that it only reads.
"""

import argparse
import bz2
import gzip
import itertools
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from script_runner import Done, import_what_scripts_import, run_command
from script_samples import files, hashes, jsonl, log_of, read_rows, results_of, write_corpora, write_texts


LIMIT = 60.0
SCRIPTS = Path(__file__).resolve().parents[1] / "run_scripts"
LABELS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
SIZE = ("--config_overrides=hidden_size=16,num_attention_heads=2,hidden_dropout_prob=0.3,embedding_dropout_prob=0.3",)
STEPS = ("--save_strategy=steps", "--save_steps=2", "--eval_strategy=steps", "--eval_steps=2", "--logging_steps=1")
BRIEF = (
    "--max_steps=16",
    "--per_device_train_batch_size=4",
    "--learning_rate=5e-3",
    "--disable_tqdm=true",
    "--use_cpu",
)


class SoakError(Exception):
    """What a case found."""


class Case:
    """
    One case: its random numbers, its folder, and what all cases share.

    Args:
        name: kind, seed and number, joined by hyphens.
        folder: an empty one, where commands run.
        samples: the folder that `prepare` filled.
    """

    def __init__(self, name: str, folder: Path, samples: Path) -> None:
        self.random, self.folder, self.samples = random.Random(name), folder, samples
        self.counts: Counter[str] = Counter()

    def run(self, script: str | Path, *arguments: Any, kill: Callable[[float], bool] | None = None) -> Done:
        """
        Run a script in a forked process; `kill` takes its seconds so far and says when it is killed.

        Raises:
            SoakError: it ended neither well, nor by an error in one line, nor killed.
        """
        logs = Path(tempfile.mkdtemp(dir=self.folder, prefix="logs-"))
        argv = [str(SCRIPTS / script), *map(str, arguments)]
        begin, pid = time.monotonic(), os.fork()
        if pid == 0:
            run_command({"argv": argv, "environment": {}, "folder": str(self.folder), "logs": str(logs)})
        ended, status, hangs = 0, 0, False
        while not ended:
            seconds = time.monotonic() - begin
            hangs = seconds > LIMIT
            if hangs or (kill is not None and kill(seconds)):
                os.kill(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, 0)
            else:
                time.sleep(0.0005 if kill else 0.01)
                ended, status = os.waitpid(pid, os.WNOHANG)
        self.counts["commands"] += 1
        written = [logs / name for name in ("out", "error")]  # neither, if it was killed before it began
        out, error = (path.read_text(encoding="utf-8", errors="replace") if path.exists() else "" for path in written)
        done = Done(os.waitstatus_to_exitcode(status), out, error)
        killed = kill is not None and done.code == -signal.SIGKILL
        if hangs or "Traceback (most recent" in error or not (killed or done.code in (0, 1, 2)):
            reason = f"no end in {LIMIT:.0f} s" if hangs else f"exit code {done.code}"
            raise SoakError(f"{' '.join(argv)}\n{reason}\n{error[-3000:]}")
        return done

    def check(self, script: str | Path, *arguments: Any) -> Done:
        """`run`, for a command that has to succeed."""
        done = self.run(script, *arguments)
        if done.code:
            raise SoakError(f"{script} {' '.join(map(str, arguments))}\nexit code {done.code}\n{done.error[-3000:]}")
        return done


# ------ mutated files

TOKENS = (
    *(
        b"\0",
        b"\r",
        b"\n\n",
        b"\t",
        b'"',
        b"'",
        b"\\",
        b"{",
        b"}",
        b"[",
        b"]" * 40,
        b"[" * 5000,
        b",",
        b":",
        b"- ",
        b"#",
    ),
    *(b"null", b"NaN", b"-1", b"1e999", b"0", b"true", b"\xef\xbb\xbf", b"\xff\xfe", b"\x80", b"\\ud800", b'"a":'),
    *(
        "é".encode("latin-1"),
        "字".encode("gbk"),
        "\u2028\u0085\u202e".encode(),
        b"-DOCSTART-",
        b"&a *a",
        b"!!python/x",
    ),
)


def mutated(rng: random.Random, content: bytes) -> bytes:
    """A file's content after one to four changes."""
    for _ in range(rng.randint(1, 4)):
        size = len(content)
        start = rng.randint(0, size)
        stop = min(size, start + int(2 ** rng.uniform(0, 12)))
        token = rng.choice(TOKENS)
        numbers = [m.span() for m in re.finditer(rb"\d+", content[start : start + 400])]
        match rng.choice(("cut", "drop", "again", "token", "token", "flip", "noise", "number", "encoding")):
            case "cut":
                content = content[:start]
            case "drop":
                content = content[:start] + content[stop:]
            case "again":
                content = content[:stop] + content[start:]
            case "token":
                content = content[:start] + token + content[start + rng.choice((0, len(token))) :]
            case "flip" if start < size:
                flipped = content[start] ^ (1 << rng.randrange(8))
                content = content[:start] + bytes([flipped]) + content[start + 1 :]
            case "noise":
                content = content[:start] + rng.randbytes(stop - start) + content[stop:]
            case "number" if numbers:
                first, last = rng.choice(numbers)
                number = rng.choice((b"0", b"-1", b"7", b"1.5", b"4096", b"99999999999999999999", b"1e-9"))
                content = content[: start + first] + number + content[start + last :]
            case "encoding":
                content = content.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-8-sig", "gb18030")))
    return content


def mutate_file(case: Case, path: Path) -> None:
    path.write_bytes(mutated(case.random, path.read_bytes()))


TASKS = {"entities": "ner", "reviews": "glue", "reading": "qa", "texts": "mlm"}


def data_case(case: Case) -> None:
    """A mutated data file, read by a training and by predictions."""
    rng = case.random
    shape = rng.choice(list(TASKS))
    source = rng.choice(sorted((case.samples / "formats" / shape).iterdir()))
    packed = rng.choice((None, None, None, ".gz", ".bz2"))
    content = source.read_bytes()
    pack: Any = {".gz": gzip.compress, ".bz2": bz2.compress}.get(packed or "")
    before_packing = rng.random() < 0.7
    content = mutated(rng, content) if before_packing or pack is None else content
    content = content if pack is None else pack(content)
    content = content if before_packing or pack is None else mutated(rng, content)
    path = case.folder / f"{source.name}{packed or ''}"
    path.write_bytes(content)
    case.counts["files"] += 1
    task = TASKS[shape]
    options = (*SIZE, *BRIEF, "--max_steps=1")
    done = case.run(f"run_{task}.py", f"--train_file={path}", *options, "--output_dir=run", "--save_strategy=no")
    case.counts["accepted"] += done.code == 0
    if done.code == 0:
        results = results_of(case.folder / "run")
        if not all(math.isfinite(x) for x in results.values() if isinstance(x, float)):
            raise SoakError(f"results are not finite: {results}")
    model = case.samples / "models" / {"glue": "classifier", "qa": "reader"}.get(task, "tagger")
    question = ("--question", "Who?") if task == "qa" and rng.random() < 0.5 else ()
    predict(case, model, "--file", path, *question)
    if path.read_bytes() != content:
        raise SoakError(f"{path} was changed")


def predict(case: Case, model: Path, *arguments: Any) -> None:
    """Predictions of a model, checked where there are any."""
    done = case.run("run_predict.py", model, *arguments, "--json")
    case.counts["predicted"] += done.code == 0
    for line in filter(None, done.out.split("\n")):  # splitlines would cut a text at U+2028 too
        check_row(json.loads(line, parse_constant=not_json))


def not_json(constant: str) -> None:
    raise SoakError(f"{constant} is not JSON")


def check_row(row: dict[str, Any]) -> None:
    """Slices of a text are its entities or its answer, and scores are probabilities."""
    text = row.get("text", row.get("context"))
    for found in row["found"]:
        if "start" in found and (not isinstance(text, str) or text[found["start"] : found["end"]] != found["text"]):
            raise SoakError(f"a wrong slice: {found} of {text!r}")
        if not 0 <= found.get("score", 0) <= 1:
            raise SoakError(f"no probability: {found}")


def model_case(case: Case) -> None:
    """A mutated file of a saved model, which predicts."""
    source = case.random.choice(sorted((case.samples / "models").iterdir()))
    model = shutil.copytree(source, case.folder / "model")
    names = [path for path in sorted(model.iterdir()) if path.suffix in (".json", ".safetensors")]
    mutate_file(case, case.random.choice(names))
    case.counts["files"] += 1
    before = hashes(model)
    question = ("--question", "Who met Ada in London?") if source.name == "reader" else ()
    predict(case, model, "Ada Lovelace met Charles Babbage in London.", "It rained.", *question)
    if hashes(model) != before:
        raise SoakError("predicting changed the model")


def recipe_case(case: Case) -> None:
    """A mutated recipe, or a mutated shape of a model, in a training."""
    shutil.copytree(case.samples / "corpora" / "entities", case.folder / "entities")
    recipe, shape = case.folder / "recipe.yaml", case.folder / "shape.json"
    shutil.copy(case.samples / "recipe.yaml", recipe)
    shutil.copy(case.samples / "shape.json", shape)
    mutate_file(case, case.random.choice((recipe, shape)))
    case.counts["files"] += 1
    before = hashes(case.folder)
    done = case.run("run_ner.py", recipe, *BRIEF, "--max_steps=1", "--output_dir=run")
    case.counts["accepted"] += done.code == 0
    if not before.items() <= hashes(case.folder).items():
        raise SoakError("training changed what it read")


# ------ Unicode


def random_text(rng: random.Random) -> str:
    """Letters, blanks and marks of all scripts, controls, emoji with joiners, private use; no surrogates."""
    ranges = (
        *((0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x300, 0x36F), (0x370, 0x58F), (0x590, 0x8FF), (0x900, 0x1FFF)),
        *((0x2000, 0x206F), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFAFF), (0xFE00, 0xFFFF), (0, 0x1F)),
        *((0x1F300, 0x1FAFF), (0x20000, 0x2FA1F), (0xE0000, 0x10FFFF), (0x1D400, 0x1D7FF)),
    )
    words = ("Ada", "London", "New York", "İstanbul", "ﬁn", "e\u0301", "👩\u200d🚀", "[UNK]", "[SEP]", "##ing", "\r\n")
    chosen = rng.sample(ranges, rng.randint(1, 4))
    parts = []
    for _ in range(int(2 ** rng.uniform(0, 7))):
        first, last = rng.choice(chosen)
        parts.append(rng.choice(words) if rng.random() < 0.2 else chr(rng.randint(first, last)))
        parts.append(rng.choice(("", "", "", " ", "  ", "\u3000", "\n")))
    return "".join(parts)


def unicode_case(case: Case) -> None:
    """Random strings through tokenizers, `Predictor` and pipelines, in a process of its own."""
    model = case.random.choice(sorted((case.samples / "models").iterdir()))
    case.check(__file__, "--unicode", model, case.random.random())
    case.counts["strings"] += 40


def read_strings(model: Path, seed: str) -> None:
    """
    What a process of `unicode_case` does.

    Raises:
        SoakError: a result is wrong.
    """
    from transformers import AutoTokenizer, pipeline

    from modeling_star.data.entities import aggregation_for
    from modeling_star.inference import Predictor
    from modeling_star.inference.pipelines import BestPathPipeline

    rng = random.Random(seed)
    texts = [random_text(rng) for _ in range(40)]
    texts = [text for text in texts if text.strip()]
    tokenizer = AutoTokenizer.from_pretrained(model, model_max_length=24)
    for text in texts:
        encoded = tokenizer(text, return_offsets_mapping=True)
        offsets = encoded["offset_mapping"]
        if not all(0 <= start <= end <= len(text) for start, end in offsets):
            raise SoakError(f"offsets {offsets} of {text!r}")
        if not all(0 <= i < len(tokenizer) for i in encoded["input_ids"]):
            raise SoakError(f"ids {encoded['input_ids']} of {text!r}")
    is_reader = model.name == "reader"
    predictor = Predictor(model, batch_size=rng.choice((1, 7, 128)), question="Who?" if is_reader else None)
    together = predictor.predict(texts)
    for text, (plain, found) in zip(texts, together, strict=True):
        if plain != text:
            raise SoakError(f"{text!r} was returned as {plain!r}")
        check_row({"text": plain, "found": found})
    for place in rng.sample(range(len(texts)), min(3, len(texts))):
        ((_, alone),) = predictor.predict([texts[place]])
        keys = [
            [{k: v for k, v in f.items() if not isinstance(v, float)} for f in g] for g in (alone, together[place][1])
        ]
        if keys[0] != keys[1]:
            raise SoakError(f"{texts[place]!r} alone: {alone}; in a batch: {together[place][1]}")
    if "tagger" not in model.name:
        return
    words = [text.split() for text in texts]
    for plain, found in predictor.predict(words):
        check_row({"text": plain, "found": found})
    options = {"tokenizer": tokenizer, "aggregation_strategy": aggregation_for(tokenizer), "stride": 3}
    best = pipeline("token-classification", str(model), pipeline_class=BestPathPipeline, **options)
    for text, entities, (_, found) in zip(texts, best(texts), together, strict=True):
        names = [(e["entity_group"], e["start"], e["end"]) for e in entities]
        if names != [(e["label"], e["start"], e["end"]) for e in found]:
            raise SoakError(f"{text!r}: the pipeline found {names}, Predictor {found}")


# ------ kills


def trainings(samples: Path) -> dict[str, list[str]]:
    """Runs whose weights depend on every part of a checkpoint."""
    corpora = samples / "corpora"
    texts = [f"--{split}_file={corpora}/texts/{split}.txt" for split in ("train", "validation")]
    grouped = "--train_sampling_strategy=group_by_length"
    crf = f"{SIZE[0]},use_crf=true,char_features=true"
    patience = "--early_stopping_patience=3"
    mlm = ("--max_seq_length=32", "--tokenizer_kind=wordpiece", "--vocab_size=300", "--mask_unit=whole_word")
    return {
        "ner": ["run_ner.py", *files(corpora / "entities"), crf, grouped, *STEPS, *BRIEF],
        "glue": [
            "run_glue.py",
            *files(corpora / "reviews"),
            *SIZE,
            "--model_type=big_transformer",
            patience,
            *STEPS,
            *BRIEF,
        ],
        "mlm": ["run_mlm.py", *texts, *SIZE, *mlm, *STEPS, *BRIEF],
    }


def kill_case(case: Case) -> None:
    """A training that is killed one to three times, some checkpoints damaged, and resumed: the same weights."""
    rng = case.random
    name, command = rng.choice(sorted(trainings(case.samples).items()))
    straight, run = case.samples / "straight" / name, case.folder / "run"
    seconds = json.loads((case.samples / "seconds.json").read_text())[name]

    def begin_or_resume(kill: Callable[[float], bool] | None = None) -> Done:
        resume = ["--resume_from_checkpoint=last"] if run.is_dir() else []
        done = case.run(*command, f"--output_dir={run}", *resume, kill=kill)
        if "There is no whole checkpoint" in done.error:  # killed before the first, or the first was damaged
            shutil.rmtree(run)
            done = case.run(*command, f"--output_dir={run}", kill=kill)
        return done

    for _ in range(rng.randint(1, 3)):
        steps = [step for step in range(2, 16, 2) if not (run / f"checkpoint-{step}").is_dir()]
        moment, while_writing = rng.uniform(0, seconds), steps and rng.random() < 0.6
        if while_writing:
            moment = rng.choice((0, rng.uniform(0, 0.05)))
        kill = sees(run / f"checkpoint-{rng.choice(steps)}" if while_writing else case.folder, moment)
        done = begin_or_resume(kill)
        if done.code != -signal.SIGKILL:
            if done.code:
                raise SoakError(done.error[-3000:])
            break
        case.counts["kills"] += 1
        newest = max(run.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]), default=None)
        is_half = newest is not None and not (newest / "manifest.json").is_file()
        case.counts["kills while a checkpoint was written"] += is_half
        parts = [] if newest is None else [path for path in sorted(newest.iterdir()) if path.is_file()]
        if parts and rng.random() < 0.5:
            part = rng.choice(parts)
            part.write_bytes(part.read_bytes()[: rng.randrange(part.stat().st_size + 1)])
            case.counts["kills with a file truncated after"] += not is_half
    done = begin_or_resume()
    if done.code:
        raise SoakError(f"exit code {done.code}\n{done.error[-3000:]}")
    names = ["model.safetensors", "tokenizer.json", *(() if name == "mlm" else ("report/predictions_test.jsonl",))]
    changed = [file for file in names if (run / file).read_bytes() != (straight / file).read_bytes()]
    losses = [[(e["step"], e.get("loss"), e.get("eval_loss")) for e in log_of(each)] for each in (run, straight)]
    if changed or losses[0][:-1] != losses[1][:-1]:
        raise SoakError(
            f"{name}: resumed and straight differ: {changed}\n{losses[0]}\n{losses[1]}\n{done.error[-3000:]}"
        )


def sees(folder: Path, delay: float) -> Callable[[float], bool]:
    """Whether a folder has been there for some seconds."""
    since: list[float] = []

    def ripe(passed: float) -> bool:
        if folder.is_dir():
            since.append(passed)
        return bool(since) and passed >= since[0] + delay

    return ripe


CASES = {"data": data_case, "model": model_case, "recipe": recipe_case, "unicode": unicode_case, "kill": kill_case}
ORDER = ("data", "kill", "model", "unicode", "data", "recipe", "unicode")


# ------ the whole


def prepare(samples: Path) -> None:
    """Write corpora in all formats, and models."""
    import torch
    from datasets import Dataset

    import modeling_star
    from modeling_star.data.tokenizers import train_tokenizer

    corpora = write_corpora(samples / "corpora")
    write_texts(corpora / "texts", corpora / "reviews")
    for shape in ("entities", "reviews", "reading"):
        rows = read_rows(corpora / shape / "train.jsonl")[:30]
        folder = samples / "formats" / shape
        folder.mkdir(parents=True)
        (folder / "rows.jsonl").write_text(jsonl(rows), encoding="utf-8")
        (folder / "rows.json").write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
        Dataset.from_list(rows).to_parquet(folder / "rows.parquet")
        if shape == "reviews":
            flat = Dataset.from_list(rows)
            flat.to_csv(folder / "rows.csv", index=False)
            flat.to_csv(folder / "rows.tsv", index=False, sep="\t")
        if shape == "entities":
            lines = ["\n".join(map(" ".join, zip(row["tokens"], row["ner_tags"], strict=True))) for row in rows]
            (folder / "rows.conll").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    (samples / "formats" / "texts").mkdir()
    shutil.copy(corpora / "texts" / "train.txt", samples / "formats" / "texts" / "rows.txt")
    tiny: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    tiny |= {"max_position_embeddings": 24, "position_embedding_type": "learned"}
    labels = {"id2label": dict(enumerate(LABELS)), "label2id": {label: i for i, label in enumerate(LABELS)}}
    texts = [" ".join(row["tokens"]) for row in read_rows(corpora / "entities" / "train.jsonl")]
    models: tuple[tuple[str, str, Any, dict[str, Any]], ...] = (
        ("tagger", "StarTransformerForTokenClassification", "wordpiece", labels),
        ("tagger-crf", "BigTransformerForTokenClassification", "character", {**labels, "use_crf": True}),
        ("classifier", "DisanForSequenceClassification", "word", {"num_labels": 3}),
        ("reader", "StarTransformerForQuestionAnswering", "wordpiece", {}),
    )
    for name, head, kind, fields in models:
        torch.manual_seed(1)
        tokenizer = train_tokenizer(texts, kind, lower_case=False, vocab_size=200)
        model_class = getattr(modeling_star, head)
        model = model_class(model_class.config_class(**{**tiny, "vocab_size": len(tokenizer), **fields}))
        if fields.get("use_crf"):
            model.set_vocabulary(tokenizer)
        for weight in model.parameters():  # large enough for labels to vary
            weight.data.mul_(4)
        model.save_pretrained(samples / "models" / name)
        tokenizer.save_pretrained(samples / "models" / name)
    trained = {**tiny, "model_type": "star_transformer", "hidden_dropout_prob": 0.1, "residual": True}
    (samples / "shape.json").write_text(json.dumps(trained, indent=2))
    recipe = {f"{split}_file": f"entities/{split}.jsonl" for split in ("train", "validation", "test")}
    recipe |= {"config_name": "shape.json", "tokenizer_kind": "wordpiece", "lower_case": "false", "seed": "1"}
    recipe |= {"learning_rate": "2.0e-3", "warmup_steps": "0.1", "num_train_epochs": "2", "save_total_limit": "1"}
    lines = [f"{name}: {value}" for name, value in recipe.items()]
    lines += ["config_overrides:", "  hidden_size: 16", "  num_attention_heads: 2  # of 8"]
    (samples / "recipe.yaml").write_text("\n".join(lines) + "\n")


def work(names: Iterable[str], samples: Path, until: float) -> Counter[str]:
    """Run cases until some moment, and print failures."""
    counts: Counter[str] = Counter()
    for name in itertools.takewhile(lambda _: time.monotonic() < until, names):
        folder = Path(tempfile.mkdtemp(dir=samples, prefix=f"{name}-"))
        kind = name.split("-")[0]
        case = Case(name, folder, samples)
        begin = time.monotonic()
        try:
            CASES[kind](case)
            shutil.rmtree(folder)
        except Exception as error:
            reason = str(error) if isinstance(error, SoakError) else traceback.format_exc()
            print(f"FAILURE: make soak SEED={name}\n{reason}\n", flush=True)
            counts["failures"] += 1
        counts += case.counts
        counts[f"{kind} cases"] += 1
        counts[f"seconds of {kind} cases"] += round(time.monotonic() - begin)
    return counts


def main() -> None:
    """Prepare, run cases on several processes, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seed", default="", help="of the whole test, or the name of a case")
    parser.add_argument("--kinds", nargs="*", choices=CASES, help="(default: all)")
    parser.add_argument("--prepare", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--unicode", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.prepare:
        prepare(arguments.prepare)
        return
    if arguments.unicode:
        read_strings(Path(arguments.unicode[0]), arguments.unicode[1])
        return
    begin = time.monotonic()
    samples = Path(tempfile.mkdtemp(prefix="soak-"))
    os.environ.update(HF_HOME=str(samples / "hf"), HF_HUB_OFFLINE="1", OMP_NUM_THREADS="1", TRITON_INTERPRET="1")
    import_what_scripts_import()

    is_case = arguments.seed.split("-")[0] in CASES
    seed = arguments.seed or str(random.SystemRandom().randrange(10**6))
    print(f"seed {seed}, files in {samples}", flush=True)
    first = Case("first", samples, samples)
    first.check(__file__, "--prepare", samples)
    seconds = {}
    for name, command in trainings(samples).items():
        start = time.monotonic()
        first.check(*command, f"--output_dir={samples / 'straight' / name}")
        seconds[name] = time.monotonic() - start
    (samples / "seconds.json").write_text(json.dumps(seconds))
    order = [kind for kind in ORDER if not arguments.kinds or kind in arguments.kinds]

    def names_of(place: int) -> list[str]:
        """The cases of one of the processes: one, or more than there is time for."""
        numbers = range(place, 100_000, arguments.processes)
        return [seed] if is_case else [f"{order[number % len(order)]}-{seed}-{number}" for number in numbers]

    count = 1 if is_case else arguments.processes
    until = begin + 60 * arguments.minutes
    with multiprocessing.get_context("fork").Pool(count) as pool:
        total = sum(pool.starmap(work, [(names_of(place), samples, until) for place in range(count)]), Counter())
    for name in sorted(total):
        print(f"{name}: {total[name]}")
    cases = sum(total[f"{kind} cases"] for kind in CASES)
    print(f"{cases} cases, {total['failures']} failures, {(time.monotonic() - begin) / 60:.1f} minutes, seed {seed}")
    if not total["failures"]:
        shutil.rmtree(samples)
    sys.exit(bool(total["failures"]))


if __name__ == "__main__":
    main()
