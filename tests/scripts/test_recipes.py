"""Recipes for data sets that are not ours to keep, each on a few rows in the form that the data set has."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from script_runner import ROOT, ScriptRunner
from script_samples import QUICK, TINY, Row, paired, read_rows, results_of
from synthetic.corpora import write_ner_corpus, write_sentiment_corpus


SIZES = {"train": 24, "validation": 8, "test": 8}
KINDS = ("PER", "ORG", "LOC", "PRODUCT")
ENTITIES = {"O", *(f"{letter}-{kind}" for letter in "BI" for kind in KINDS)}
SUBJECTS = {"体育", "财经"}


def sentences(rows: list[Row], line: Callable[[str, str], str]) -> str:
    """A line for each word and its tag, an empty line after each sentence."""
    return "".join(
        "".join(line(word, tag) + "\n" for word, tag in zip(row["tokens"], row["ner_tags"], strict=True)) + "\n"
        for row in rows
    )


def conll2003(rows: list[Row]) -> str:
    return "-DOCSTART- -X- -X- O\n\n" + sentences(rows, lambda word, tag: f"{word} NN I-NP {tag}")


def ontonotes(rows: list[Row]) -> str:
    return sentences(rows, lambda word, tag: f"{word}\tNN\t(NP*)\t-\t{tag}")


def parts_of_speech(rows: list[Row]) -> str:
    return sentences(rows, lambda word, tag: f"{word}\t{'NNP' if tag != 'O' else 'NN' if word.isalpha() else '.'}")


def characters(rows: list[Row]) -> str:
    return sentences(rows, lambda character, tag: f"{character}\t{tag}")


def bmes(rows: list[Row]) -> str:
    """As Resume has its tags, each entity of one character or ended by an E-."""
    for row in rows:
        following = [*row["ner_tags"][1:], "O"]
        for place, (tag, after) in enumerate(zip(list(row["ner_tags"]), following, strict=True)):
            goes_on = after.startswith("I-")
            letter = {"B": "B" if goes_on else "S", "I": "M" if goes_on else "E"}.get(tag[0])
            row["ner_tags"][place] = tag if letter is None else letter + tag[1:]
    return sentences(rows, lambda character, tag: f"{character} {tag}")


def subjects(rows: list[Row]) -> str:
    names = {"negative": "体育", "positive": "财经"}
    return "".join(f'{names[row["label"]]}\t"{row["text"]}\n' for row in rows)


def questions(rows: list[Row]) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    for row in map(paired, rows):
        writer.writerow([row["sentence1"], row["sentence2"], int(row["label"] == "positive")])
    return file.getvalue()


def snli(rows: list[Row]) -> str:
    lines = []
    for number, row in enumerate(map(paired, rows)):
        label = "-" if number % 8 == 1 else "entailment" if row["label"] == "positive" else "contradiction"
        pair = {key: row[key] for key in ("sentence1", "sentence2")}
        lines.append({"annotator_labels": [label, "neutral"], "gold_label": label, "pairID": f"{number}r1n", **pair})
    return "".join(json.dumps(line) + "\n" for line in lines)


def json_lines(rows: list[Row]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


class Case(NamedTuple):
    """A recipe, what its files are called and hold, and the labels that a model then has."""

    recipe: str
    script: str
    corpus: str
    name: str
    write: Callable[[list[Row]], str]
    labels: set[str]
    flags: tuple[str, ...] = ()


CASES = {
    "CoNLL-2003": Case("conll2003", "run_ner.py", "ner-en", "{}.txt", conll2003, ENTITIES),
    "OntoNotes": Case("ontonotes", "run_ner.py", "ner-en", "{}.conll", ontonotes, ENTITIES),
    "Penn Treebank": Case("ptb_pos", "run_ner.py", "ner-en", "wsj-{}.txt", parts_of_speech, {"NNP", "NN", "."}),
    "MSRA": Case("msra", "run_ner.py", "ner-zh", "msra_{}_bio.txt", characters, ENTITIES),
    "Resume": Case(
        "paper_resume",
        "run_ner.py",
        "ner-zh",
        "{}.char.bmes",
        bmes,
        {"O", *(f"{letter}-{kind}" for letter in "BMES" for kind in KINDS)},
    ),
    "THUCNews": Case("thucnews", "run_glue.py", "sentiment-zh", "cnews.{}.txt", subjects, SUBJECTS),
    "BQ": Case(
        "bq",
        "run_glue.py",
        "sentiment-zh",
        "BQ_{}.csv",
        questions,
        {"0", "1"},
        ("--column_names=sentence1,sentence2,label",),
    ),
    "SNLI": Case("snli", "run_glue.py", "sentiment-en", "snli_1.0_{}.jsonl", snli, {"contradiction", "entailment"}),
    "LitBank": Case("litbank", "run_ner.py", "ner-en", "{}.jsonl", json_lines, ENTITIES),
    "statutes": Case("zh_statutes", "run_glue.py", "sentiment-zh", "{}.jsonl", json_lines, {"negative", "positive"}),
}


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpora")
    for language in ("en", "zh"):
        write_ner_corpus(folder / f"ner-{language}", language, sizes=SIZES)
        write_sentiment_corpus(folder / f"sentiment-{language}", language, sizes=SIZES)
    return folder


def recipe(name: str) -> list[Path | str]:
    """The first arguments of a run. Recipes name a shape relative to the project's folder."""
    path = ROOT / "configuration" / "recipes" / f"{name}.yaml"
    shape = yaml.safe_load(path.read_text(encoding="utf-8"))["config_name"]
    return [path, f"--config_name={ROOT / shape}"]


def run_recipe(scripts: ScriptRunner, corpora: Path, folder: Path, case: Case, *flags: Any) -> Path:
    """Run a recipe on a corpus written as the case says; returns the model's folder."""
    files = []
    for split in SIZES:
        path = folder / case.name.format(split)
        path.write_text(case.write(read_rows(corpora / case.corpus / f"{split}.jsonl")), encoding="utf-8")
        files.append(f"--{split}_file={path}")
    output = f"--output_dir={folder / 'model'}"
    scripts.check(case.script, *recipe(case.recipe), *files, *QUICK, *case.flags, "--max_steps=2", output, *flags)
    return folder / "model"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.slow
def test_a_recipe_runs_on_data_as_they_come(scripts: ScriptRunner, corpora: Path, tmp_path: Path, name: str) -> None:
    model = run_recipe(scripts, corpora, tmp_path, CASES[name], *TINY)
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    assert set(config["id2label"].values()) <= CASES[name].labels
    assert len(config["id2label"]) > 1
    results = results_of(model)
    # SNLI's rows without a label that the annotators agreed on are left out.
    assert results["test_samples"] == (7 if name == "SNLI" else 8)
    score = "test_f1" if "O" in CASES[name].labels else "test_accuracy"
    assert 0 <= results[score] <= 1
