"""
The table of docs/choose.md: every line runs, here on tiny data.

`MODELING_STAR_ADVICE=full` trains each on the real data that it names, for minutes to an hour in all, and compares the
score with the table's.
"""

import os
import re
import shlex
from pathlib import Path

import pytest
from real_data import data_folder
from script_runner import ROOT, ScriptRunner
from script_samples import results_of, write_bert
from test_documented_commands import write_data


# The first cell of a line -> the real data set, and its options.
DATA = {
    "1,400 reviews": ("mtl16/kitchen_housewares", []),
    "reviews, a small BERT": ("mtl16/kitchen_housewares", []),
    "short sentences, a small BERT": ("sst2", []),
    "pairs of sentences": ("snli", []),
    "English entities, a small BERT": ("wnut17", []),
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
