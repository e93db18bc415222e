"""Commands and Python of README.md and docs/ run on tiny data, notebooks print what they show, links lead on."""

import gzip
import importlib.util
import os
import random
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from real_data import data_folder
from script_runner import ROOT, ScriptRunner
from script_samples import SIZES, jsonl, paired, read_rows, results_of, write_bert, write_corpora
from transformers import BertForSequenceClassification

from modeling_star.commands import COMMANDS


# First those that train what others need.
NAMES = ("getting_started", "texts", "tags", "predict", "deploy", "models", "convert")
FIRST = ("README.md", *(f"docs/{name}.md" for name in NAMES))
OTHERS = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")} - {*FIRST, "docs/decisions.md", "docs/api.md"}
PAGES = (*FIRST, *sorted(OTHERS))
TRAININGS = ("tag", "classify", "ner", "glue", "qa", "mlm", "distill")
TINY = ["--max_steps=2", "--use_cpu", "--disable_tqdm=true", "--report_to=none", "--max_predict_samples=4"]
# The rest of the shape is a recipe's or the default.
SHAPE = ["--config_overrides", "hidden_size=16,num_attention_heads=2"]
FLAGS_ONLY = {
    "experiments/reproduce.py": "needs the data sets of the tables and hours",
    "experiments/benchmark.py": "takes minutes, and a GPU with --device cuda",
    "experiments/masked_summation.py": "trains for hours",
}
NOT_RUN = {
    "git clone": "a placeholder",
    "python -m venv": "the tests run in an environment",
    "pip install": "needs a network; the tests run in what it installs",
    "uv pip install": "needs a network; the tests run in what it installs",
    "npm install": "needs a network; tests/real/test_web.py runs it",
    "python -m http.server": "serves until it is stopped; tests/real/test_web.py opens the page",
    "make ": "creates an environment; CI calls it",
    "hf auth login": "asks for a token",
    "python -m modeling_star.files FOLDER": "a placeholder; tests/test_loading.py accepts edited files",
    "python -m modeling_star.kernels.cpu": "the runner takes no modules; tests/models/test_compiled.py compiles",
    "modeling-star push outputs/reviews yourname/star-reviews --private": "uploads; tests/commands/test_hub.py does",
    "modeling-star predict NAME": "a placeholder; docs/convert.md predicts with a named one",
    "modeling-star demo": "serves until it is stopped; tests/real/test_demo.py clicks in its page",
    "modeling-star predict outputs/tagger --file shards/ --output_file entities.jsonl --ray": "tests/real/test_ray.py",
    "uvicorn": "serves until it is stopped; tests/real/test_service.py calls it",
}
# What a block of Python needs -> whether this machine has it.
NEEDED = {"import spacy": importlib.util.find_spec("spacy") is not None, '"cuda"': torch.cuda.is_available()}
CHINESE = "我们去年搬到了奥斯陆电影很好看"
PRELUDE = f"""
from sklearn.model_selection import cross_val_score
texts, labels = ["A dull film .", "A fine film ."] * 20, ["bad", "good"] * 20
sentences, tags = [text.split() for text in texts], [["DET", "ADJ", "NOUN", "PUNCT"] for _ in texts]
if {importlib.util.find_spec("spacy") is not None}:
    import modeling_star.spacy_component  # an entry point of the wheel
"""


def blocks(page: str) -> list[tuple[str, str]]:
    """The language and the content of each block, and of commands within sentences, in their order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    pattern = (
        r"```(bash|python)\n(.*?)```|(?<!`)`((?:\w+=\S+ )*(?:python|uvicorn|modeling-star \w+) [^`]* [^`]*)`(?!`)"
    )
    found = re.findall(pattern, text, re.DOTALL)
    return [(kind or "bash", block or inline.replace("\n", " ")) for kind, block, inline in found]


def commands(block: str) -> list[str]:
    """One command per line, continued lines joined, without comments."""
    lines = re.sub(r"\\\n\s*", " ", block).splitlines()
    return [shlex.join(words) for words in (shlex.split(line, comments=True) for line in lines) if words]


def write_data(folder: Path) -> None:
    """The files and models that the pages name."""
    corpora = write_corpora(folder / "corpora")
    entities, reviews, reading = (
        {split: read_rows(corpora / name / f"{split}.jsonl") for split in SIZES}
        for name in ("entities", "reviews", "reading")
    )
    characters = random.Random(0)
    names = {"train": ("train", "articles", "reviews"), "validation": ("validation", "dev"), "test": ("test", "new")}
    (folder / "wnut17").mkdir()
    (folder / "shards").mkdir()
    for split, stems in names.items():
        rows = []
        for tagged, review in zip(entities[split], reviews[split], strict=True):
            chinese = "".join(characters.sample(CHINESE, 8))
            tagged["tokens"] += chinese  # for tokenizers of characters and their lexicon
            tagged["ner_tags"] += ["O"] * len(chinese)
            review["text"] += chinese
            rows.append({**tagged, **review})
        for row in reading[split]:
            row["question"] += "谁搬到了奥斯陆？"
        lines = ["\n".join(map(" ".join, zip(row["tokens"], row["ner_tags"], strict=True))) for row in entities[split]]
        for stem in stems:
            (folder / f"{stem}.conll").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
            (folder / f"{stem}.json").write_text(jsonl(reading[split]), encoding="utf-8")
            (folder / f"{stem}.jsonl").write_text(jsonl(reviews[split]), encoding="utf-8")
            (folder / f"{stem}.txt").write_text("\n".join(row["text"] for row in reviews[split]), encoding="utf-8")
            for packed in (folder / f"{stem}.jsonl.gz", folder / "wnut17" / f"{stem}.jsonl.gz"):
                packed.write_bytes(gzip.compress(jsonl(rows).encode()))
    shutil.copy(folder / "dev.txt", folder / "sentences.txt")
    exported = {"text": "Maria went to Oslo .", "label": [[0, 5, "PER"], [14, 18, "LOC"]]}
    (folder / "export.jsonl").write_text(jsonl([exported] * 20), encoding="utf-8")
    unlabelled = [" ".join(row["tokens"]) for row in entities["train"]]
    (folder / "more.txt").write_text("\n".join(unlabelled), encoding="utf-8")
    (folder / "articles.txt.gz").write_bytes(gzip.compress((folder / "articles.txt").read_bytes()))
    plain = jsonl({"text": row["text"]} for row in reviews["test"])
    (folder / "shards" / "1.jsonl").write_text(plain, encoding="utf-8")
    (folder / "more.jsonl.gz").write_bytes(gzip.compress(plain.encode()))
    for name in ("bert-base-uncased", "sentence-transformers/all-MiniLM-L6-v2"):
        write_bert(folder / name, [row["text"] for row in reviews["train"]], layers=6, positions=512)
    fine_tuned = folder / "distilbert/distilbert-base-uncased-finetuned-sst-2-english"
    shutil.copytree(folder / "bert-base-uncased", fine_tuned)
    BertForSequenceClassification.from_pretrained(fine_tuned).save_pretrained(fine_tuned)
    vectors = [f"{character} " + " ".join(["0.1"] * 16) for character in CHINESE]
    (folder / "VECTORS.txt").write_text("\n".join(vectors) + "\n", encoding="utf-8")
    words = [f"{first}{second} 0.1 0.2" for first in CHINESE for second in CHINESE]
    (folder / "WORDS.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    for name in ("configuration", "run_scripts", "experiments", "docs"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "modeling-star").write_text("from modeling_star.commands import main\n\nmain()\n", encoding="utf-8")
    (folder / "pairs.jsonl").write_text(jsonl(map(paired, reviews["train"])), encoding="utf-8")


def write_tables(folder: Path, header: str) -> None:
    """train.csv, dev.csv, test.csv and new.csv with the column names of a page."""
    for stem in ("train", "dev", "test", "new"):
        rows = read_rows(folder / f"{stem}.jsonl")
        lines = [header, *(f'"{row["text"]}",{int(row["label"] == "positive")}' for row in rows)]
        (folder / f"{stem}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


class Pages:
    """Runs what the pages say, and counts it."""

    def __init__(self, runner: ScriptRunner) -> None:
        self.runner, self.folder = runner, runner.folder
        self.ran = self.parsed = self.skipped = 0
        self.failures: list[str] = []

    def run(self, page: str) -> None:
        reviews = page in ("docs/texts.md", "docs/tags.md", "docs/runs.md", "docs/predict.md")
        write_tables(self.folder, "Review,Sentiment" if reviews else "text,label")
        for kind, block in blocks(page):
            if kind == "bash":
                for command in commands(block):
                    self.shell(page, command)
            elif all(has for sign, has in NEEDED.items() if sign in block):
                script = self.folder / "block.py"
                script.write_text(PRELUDE + block, encoding="utf-8")
                self.check(page, block, str(script))
            else:
                self.skipped += 1

    def shell(self, page: str, command: str) -> None:
        words = [word for word in shlex.split(command) if not re.fullmatch(r"[A-Z_]+=\S+", word)]
        plain = " ".join(words)
        processes = 1
        if plain.startswith("accelerate launch"):
            assert (ROOT / words[words.index("--config_file") + 1]).is_file(), command
            words, processes = ["modeling-star", *words[words.index("modeling_star") + 1 :]], 2
        if any(plain.startswith(start) for start in NOT_RUN):
            self.skipped += 1
            return
        program, *arguments = words[words[0] == "python" :]
        if program in FLAGS_ONLY:
            known = self.runner.check(str(self.folder / program), "--help").out
            assert {word for word in arguments if word.startswith("--")} <= set(re.findall(r"--\w+", known)), command
            self.parsed += 1
            return
        if program.startswith("run_scripts/"):
            (name,) = (n for n in COMMANDS if f'run("{n}")' in (ROOT / program).read_text(encoding="utf-8"))
        else:
            name = arguments[0] if program == "modeling-star" else ""
        if name in TRAININGS:
            if "--output_dir" not in arguments:
                arguments += ["--output_dir", "outputs/recipe"]
            shutil.rmtree(self.folder / arguments[arguments.index("--output_dir") + 1], ignore_errors=True)
            arguments += TINY if name != "mlm" else TINY[:-1]
            if not {"--model_name_or_path", "--pretrained", "tfidf"} & set(arguments):
                arguments += SHAPE
        self.check(page, command, str(self.folder / program), *arguments, processes=processes)

    def check(self, page: str, text: str, *words: str, processes: int = 1) -> None:
        begin = time.perf_counter()
        done = self.runner.run(*words, processes=processes)
        self.ran += 1
        if done.code != 0:
            self.failures.append(f"{page}: {text}\n{done.out[-1000:]}\n{done.error[-2000:]}")
        print(f"{time.perf_counter() - begin:6.1f} s  {page}  {' '.join(text.split())[:90]}")


@pytest.mark.slow
def test_every_documented_command_runs(scripts: ScriptRunner) -> None:
    write_data(scripts.folder)
    pages = Pages(scripts)
    begin = time.perf_counter()
    pages.shell("", "modeling-star classify --train_file pairs.jsonl --output_dir outputs/snli")
    for page in PAGES:
        if page == "docs/getting_started.md":
            shutil.copytree(scripts.folder / "outputs" / "tagger", scripts.folder / "outputs" / "quickstart" / "model")
            shutil.copytree(scripts.folder / "outputs" / "tagger", scripts.folder / "someone" / "star")
        pages.run(page)
    print(f"{pages.ran} ran, {pages.parsed} parsed, {pages.skipped} not run, {time.perf_counter() - begin:.0f} s")
    assert not pages.failures, "\n\n".join(pages.failures)
    assert pages.ran > 40


# The first cell of a line -> the real data set, and its options.
DATA = {
    "1,400 reviews": ("mtl16/kitchen_housewares", []),
    "200 short sentences, a small BERT": ("sst2", ["--max_train_samples", "200"]),
    "1,400 short sentences, a small BERT": ("sst2", ["--max_train_samples", "1400"]),
    "reviews, a small BERT": ("mtl16/kitchen_housewares", []),
    "short sentences, a small BERT": ("sst2", []),
    "pairs of sentences": ("snli", []),
    "English entities, a small BERT": ("wnut17", []),
    "parts of speech, a small BERT": ("ud_english_ewt", ["--label_column_name", "pos_tags"]),
    "parts of speech": ("ud_english_ewt", ["--label_column_name", "pos_tags"]),
    "Chinese entities": ("weibo_ner", []),
    "Chinese texts": ("chnsenticorp", []),
    "Chinese texts, vectors of characters": ("chnsenticorp", []),
    "long documents": ("polarity_v2", []),
}
SPLITS = ("train", "validation", "test")


def lines_of(document: str) -> list[list[str]]:
    """The cells of the table's lines."""
    text = (ROOT / document).read_text(encoding="utf-8")
    table = text.partition("| your data |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table.splitlines()[2:]]


LINES = lines_of("docs/choose.md")


def commands_of(line: list[str]) -> list[list[str]]:
    return [shlex.split(command) for command in re.findall("`([^`]+)`", line[1])]


def test_the_lines_in_readme_are_of_the_table() -> None:
    assert {line[0] for line in LINES} == {*DATA}
    assert lines_of("README.md")
    assert all(line in LINES for line in lines_of("README.md"))


@pytest.mark.slow
def test_every_line_of_advice_runs(scripts: ScriptRunner) -> None:
    if not (scripts.folder / "corpora").exists():  # of the commands before
        write_data(scripts.folder)
    vectors = [f"{character} " + " ".join(["0.1"] * 200) for character in "我们去年搬到了奥斯陆电影很好看"]
    (scripts.folder / "VECTORS.txt").write_text("\n".join(vectors) + "\n", encoding="utf-8")
    write_bert(scripts.folder / "bert", ["A fine film .", "Maria Keller moved to Oslo ."], layers=6)
    failures = []
    for number, line in enumerate(LINES):
        for name, *words in commands_of(line):
            arguments = [f"outputs/advice-{number}/big" if word == "outputs/big" else word for word in words]
            # The tiny BERT has 64 positions.
            arguments = [{"BERT": "bert", "256": "64"}.get(word, word) for word in arguments]
            if name != "convert":
                kind = "conll" if name == "tag" else "jsonl"
                files = [f"--{split}_file={'pairs' if 'pairs' in line[0] else split}.{kind}" for split in SPLITS]
                output = f"--output_dir=outputs/advice-{number}/model"
                arguments += [*files, output, "--max_steps=2", "--use_cpu", "--disable_tqdm=true"]
            done = scripts.run(str(scripts.folder / "modeling-star"), name, *arguments)
            if done.code:
                failures.append(f"{line[1]}\n{done.error[-1500:]}")
    assert not failures, "\n\n".join(failures)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("MODELING_STAR_ADVICE") != "full", reason="MODELING_STAR_ADVICE=full runs it")
@pytest.mark.parametrize("line", LINES, ids=[line[0] for line in LINES])
def test_a_line_scores_what_the_table_says(
    line: list[str], scripts: ScriptRunner, minilm_path: str, tmp_path: Path
) -> None:
    name, options = DATA[line[0]]
    kind = "tencent_char.200d" if line[0].startswith("Chinese") else "glove.twitter.25d"
    folder, vectors = data_folder(name), data_folder("embeddings") / f"{kind}.subset.txt.gz"
    (tmp_path / "modeling-star").write_text("from modeling_star.commands import main\n\nmain()\n", encoding="utf-8")
    for command, *words in commands_of(line):
        names = {"BERT": minilm_path, "VECTORS.txt": str(vectors), "outputs/big": str(tmp_path / "big")}
        arguments = [names.get(word, word) for word in words]
        if command != "convert":
            arguments += [f"--{split}_file={folder / split}.jsonl.gz" for split in SPLITS]
            arguments += [*options, f"--output_dir={tmp_path / 'model'}", "--disable_tqdm=true"]
        scripts.check(str(tmp_path / "modeling-star"), command, *arguments)
    results = results_of(tmp_path / "model")
    score = results["test_f1" if line[2].startswith("F1") else "test_accuracy"]
    expected = float(re.findall(r"\d+\.\d", line[2])[0])
    assert 100 * score > expected - 4  # one seed, another processor; of the 12 review sets one


ROOT = Path(__file__).resolve().parents[2]


def run_python(code: str, folder: Path) -> str:
    """What `code` prints, run in `folder`."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_prints_what_readme_shows(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)[0]
    assert run_python(code, tmp_path) == printed


def test_the_pages_link_to_files_and_headings_that_exist() -> None:
    folders = ("docs", "experiments", "model_cards")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8")):
            path, _, heading = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), (page.name, target)
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
            anchors = [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings]
            assert not heading or heading in anchors, (page.name, target)


NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def printed(cells: list) -> list[str]:
    """What each cell prints, without the digits, which depend on the processor."""
    texts = (
        "".join(output["text"] for output in cell.get("outputs", ()) if output.get("name") == "stdout")
        for cell in cells
    )
    return [re.sub(r"\d+(\.\d+)?", "0", text) for text in texts if text]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    shown = nbformat.read(path, as_version=4)
    expected = printed(shown.cells)
    nbclient.NotebookClient(shown, resources={"metadata": {"path": str(path.parent)}}).execute()
    assert len(expected) >= 3
    assert printed(shown.cells) == expected


def test_the_list_of_files_that_a_model_ships_is_current() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "remote_files.py"))
    assert written["page"]() == (ROOT / "docs" / "remote_code.md").read_text(encoding="utf-8"), "docs/remote_files.py"
