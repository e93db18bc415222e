"""run_predict.py on tiny taggers and classifiers; answers are tested with their script."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from script_runner import ROOT, SCRIPTS, ScriptRunner
from script_samples import QUICK, TINY, files, read_rows


@pytest.mark.slow
def test_a_tagger_of_characters_reads_a_text_as_it_reads_its_characters(scripts: ScriptRunner, tmp_path: Path) -> None:
    sentences = [
        (f"{year}年李娜加入{team}公司。", year, team) for year in range(1950, 1990) for team in ("NBA", "IBM")
    ]
    lines = []
    for text, year, team in sentences:
        tags = ["O"] * len(text)
        for start, length, kind in ((0, len(str(year)), "DATE"), (text.index(team), 3, "ORG")):
            tags[start : start + length] = [f"B-{kind}", *[f"I-{kind}"] * (length - 1)]
        lines.append("".join(f"{character} {tag}\n" for character, tag in zip(text, tags, strict=True)))
    (tmp_path / "all.conll").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "all.txt").write_text("\n".join(text for text, _, _ in sentences), encoding="utf-8")
    data = [f"--{split}_file={tmp_path}/all.conll" for split in ("train", "validation", "test")]
    learnt = ["--num_train_epochs=12", "--learning_rate=1e-2", "--warmup_steps=0", f"--output_dir={tmp_path}/run"]
    done = scripts.check("run_ner.py", *data, *TINY, *QUICK, *learnt)
    assert "give other tokens" not in done.error
    outputs = []
    for name in ("all.txt", "all.conll"):
        done = scripts.check("run_predict.py", tmp_path / "run", "--file", tmp_path / name, "--json")
        outputs.append([json.loads(line) for line in done.out.splitlines() if line.startswith("{")])
    assert [row["found"] for row in outputs[0]] == [row["found"] for row in outputs[1]]
    assert [row["text"] for row in outputs[0]] == [text for text, _, _ in sentences]
    predicted = read_rows(tmp_path / "run" / "report" / "predictions_test.jsonl")
    for row, prediction in zip(outputs[0], predicted, strict=True):
        assert sum(label.startswith("B-") for label in prediction["predicted"]) == len(row["found"])
    assert {(entity["label"], entity["text"]) for row in outputs[0] for entity in row["found"]} > {("ORG", "NBA")}


@pytest.mark.slow
def test_pairs_are_read_from_the_command_line_and_from_files(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    for name in ("pairs", "sentiment"):
        scripts.check("run_glue.py", *files(corpora / name), *TINY, *QUICK, f"--output_dir={tmp_path}/{name}")
    lines = tmp_path / "pairs.txt"
    lines.write_bytes("\ufeffa\u2028b\tc\r\n\r\nd\te\n".encode())
    done = scripts.check("run_predict.py", tmp_path / "pairs", "--pairs", "x", "y", "--file", lines, "--json")
    rows = [json.loads(line) for line in done.out.split("\n") if line.startswith("{")]
    assert [(row["text"], row["text_pair"]) for row in rows] == [("x", "y"), ("a\u2028b", "c"), ("d", "e")]
    assert [row.get("index") for row in rows] == [None, 0, 2], "rows of the file, with the empty one"
    assert all(row["found"] for row in rows)
    # Two processes write the same rows to a file.
    output = tmp_path / "predictions.jsonl"
    given = [tmp_path / "pairs", "--pairs", "--file", lines, lines]
    refused = scripts.run("run_predict.py", *given, processes=2)
    assert refused.code != 0
    assert "--output_file" in refused.error
    scripts.check("run_predict.py", *given, "--output_file", output, processes=2)
    written = [json.loads(line) for line in output.read_text(encoding="utf-8").split("\n")[:-1]]
    assert written == [{"file": str(lines), **row} for row in rows[1:] * 2]
    # The model's folder says that it was trained on pairs.
    first = read_rows(corpora / "pairs" / "test.jsonl")[0]
    done = scripts.check("run_predict.py", tmp_path / "pairs", "--file", corpora / "pairs" / "test.jsonl")
    assert done.out.startswith(f"{first['sentence1']}\n{first['sentence2']}\n")


@pytest.mark.slow
def test_run_predict_stops_quietly_where_its_output_is_cut(
    scripts: ScriptRunner, corpora: Path, tmp_path: Path
) -> None:
    scripts.check("run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK, f"--output_dir={tmp_path}/run")
    (tmp_path / "texts.txt").write_text("a fine film\n" * 2000, encoding="utf-8")
    command = [sys.executable, SCRIPTS / "run_predict.py", tmp_path / "run", "--file", tmp_path / "texts.txt"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"a fine film\n"
        process.stdout.close()
        errors = process.stderr.read().decode()
    assert process.returncode == 1
    assert "BrokenPipe" not in errors
