"""The runs of a table of experiments: begun, left to another process, copied, scored and kept."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from filelock import FileLock
from harness.results_page import Cell
from harness.stored_runs import compare_rerun
from harness.table_runs import PrerequisiteError, Runner
from harness.tables import Configuration, Table
from script_samples import write_bert
from table_samples import forget, keep, page_of, runner_of, write_table

from modeling_star.errors import UserError


@pytest.fixture
def star(table: Table) -> Configuration:
    """A cell with one configuration."""
    (configuration,) = table.configurations("films", "bert", "star")
    return configuration


@pytest.fixture
def runner(table: Table, tmp_path: Path) -> Runner:
    """A runner whose scripts fail."""
    return runner_of(table, tmp_path)


def folder_of(runner: Runner, configuration: Configuration) -> Path:
    return runner.work / runner.table.name / configuration.cell / "0-seed1"


def finish_unnoticed(runner: Runner, configuration: Configuration, labels: str) -> Path:
    """Files of a run with predictions that are all `a` and a test accuracy of 0.5; returns the model's folder."""
    model = folder_of(runner, configuration) / "model"
    model.mkdir(parents=True, exist_ok=True)
    scores = {"eval_accuracy": 0.7, "test_accuracy": 0.5, "parameters": 3, "train_runtime": 2.0}
    (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    rows = "".join(json.dumps({"predicted": "a", "label": label}) + "\n" for label in labels)
    (model / "predictions_test.jsonl").write_text(rows, encoding="utf-8")
    return model


@pytest.mark.parametrize(
    ("overrides", "written"),
    [
        ({}, {"use_crf": False}),
        ({"use_crf": True}, {"use_crf": True}),
        ({"ngram_buckets": 64}, {"ngram_buckets": 64, "ngram_hash_bits": 64, "use_crf": False}),
    ],
)
def test_runs_of_tables_have_the_defaults_of_kept_results(
    tmp_path: Path, table: Table, overrides: dict[str, Any], written: dict[str, Any]
) -> None:
    arguments = {"config_overrides": overrides} if overrides else {}
    task = {"films": {"script": "run_ner.py", "recipe": "paper_wnut17", "metric": "entity_f1"}}
    table = write_table(tmp_path, tasks=task, systems={"star": {"arguments": arguments}})
    (star,) = table.configurations("films", "bert", "star")
    assert star.arguments.get("config_overrides", {}) == overrides  # as kept results
    with pytest.raises(UserError, match="stopped"):
        runner_of(table, tmp_path).run(star, 1)
    (recipe,) = tmp_path.rglob("recipe.yaml")
    assert yaml.safe_load(recipe.read_text(encoding="utf-8"))["config_overrides"] == written


def test_a_prerequisite_runs_once_and_first(tmp_path: Path, table: Table) -> None:
    pretraining = {"title": "A pretraining", "script": "run_mlm.py", "recipe": "mlm_english"}
    pretraining["arguments"] = {"train_file": ["$DATA/a", "$DATA/b"]}
    system = {"star": {"arguments": {"model_name_or_path": "$FIRST"}}}
    table = write_table(tmp_path, before={"FIRST": pretraining}, systems=system)
    # In place of the scripts: logs its arguments, and writes the files of a script.
    program = """import json, pathlib, sys, yaml
recipe = yaml.safe_load(open(sys.argv[2]))
with open(sys.argv[0] + ".log", "a") as log:
    print(json.dumps([sys.argv[1], recipe.get("model_name_or_path"), recipe["train_file"]]), file=log)
folder = pathlib.Path(recipe["output_dir"])
folder.mkdir()
scores = {"eval_accuracy": 0.7, "test_accuracy": 1.0, "eval_loss": 2.0, "eval_perplexity": 7.389, "eval_runtime": 9}
scores |= {"parameters": 3_000_000, "train_runtime": 120.0, "train_tokens_per_second": 1234.5}
(folder / "all_results.json").write_text(json.dumps(scores))
losses = [{"step": 5, "epoch": 1, "loss": 3.0}, {"step": 5, "epoch": 1, "eval_loss": 2.0}, {"step": 5}]
(folder / "trainer_state.json").write_text(json.dumps({"log_history": losses}))
(folder / "predictions_test.jsonl").write_text(json.dumps({"predicted": "a", "label": "a"}))
"""
    script = tmp_path / "scripts.py"
    script.write_text(program, encoding="utf-8")
    runner = replace(runner_of(table, tmp_path), launcher=[sys.executable, str(script)])
    (star,) = table.configurations("films", "bert", "star")
    assert [runner.run(star, seed)["validation"] for seed in (1, 2)] == [0.7, 0.7]
    model = tmp_path / "work" / "two" / "before" / "FIRST" / "model"
    calls = [json.loads(line) for line in Path(f"{script}.log").read_text(encoding="utf-8").splitlines()]
    assert calls[0] == ["run_scripts/run_mlm.py", None, ["/my/data/a", "/my/data/b"]]
    assert [call[:2] for call in calls[1:]] == [["run_scripts/run_glue.py", str(model)]] * 2
    kept = runner.finished.read_prerequisite("FIRST")
    assert kept["arguments"]["train_file"] == ["$DATA/a", "$DATA/b"]
    assert kept["log_history"] == [{"step": 5, "loss": 3.0}, {"step": 5, "eval_loss": 2.0}]
    row = "| A pretraining (`before/FIRST`) | `run_mlm.py`, `mlm_english.yaml` | accuracy 0.7, perplexity 7.389 | 1 | "
    assert f"{row}3.00 M | 2.0 | 1,234 |" in page_of(tmp_path)
    # The same model may be made again, another may not replace it.
    path = runner.finished.file.path
    before = path.read_bytes()
    (model / "all_results.json").unlink()
    assert runner.run(star, 3)["validation"] == 0.7
    assert runner.finished.read_prerequisite("FIRST") == kept
    runner.finished.file.keep({"before/FIRST": {**kept, "scores": {"accuracy": 0.1}}})
    forget(runner.finished.file, "*-seed3")
    shutil.rmtree(tmp_path / "work" / "two" / star.cell / "0-seed3")
    with pytest.raises(PrerequisiteError, match="another model"):
        runner.run(star, 3)
    path.write_bytes(before)
    table.prerequisites["FIRST"].arguments["num_train_epochs"] = 77
    with pytest.raises(PrerequisiteError, match=r"num_train_epochs 10, now 77"):
        runner.run(star, 3)


def test_a_run_that_another_process_does_is_left_to_it(runner: Runner, star: Configuration) -> None:
    folder = folder_of(runner, star)
    checkpoint = folder / "model" / "checkpoint-3"
    checkpoint.mkdir(parents=True)
    with FileLock(folder / "running.lock"):
        assert runner.run(star, 1) is None
    with FileLock(folder / "model" / "running.lock"), pytest.raises(UserError, match="Another run"):
        runner.run(star, 1)  # reproduce.py was killed, its script was not
    assert checkpoint.is_dir()
    assert not (folder / "recipe.yaml").exists()
    # Finished by the other process after it was missing here.
    keep(runner, star, 1, 0.7, "10")
    assert runner.run(star, 1)["validation"] == 0.7


def test_a_run_that_finished_unnoticed_is_scored_and_not_repeated(runner: Runner, star: Configuration) -> None:
    folder = finish_unnoticed(runner, star, "ab").parent
    (folder / "arguments.json").write_text('{"learning_rate": 9.0}', encoding="utf-8")
    with pytest.raises(UserError, match=r"learning_rate 9.0, now 5e-05"):
        runner.run(star, 1)
    (folder / "arguments.json").unlink()
    (folder / "environment.json").write_text('{"commit": "0123456789ab"}', encoding="utf-8")
    (folder / "model" / "model.safetensors").touch()
    kept = runner.run(star, 1)
    assert kept == runner.finished.read(star, 1)
    assert (kept["test"], kept["counts"], kept["training_seconds"]) == (0.5, "10; 1x2", 2.0)
    assert kept["environment"] == {"commit": "0123456789ab"}, "that of the run, not of its scoring"
    assert not (folder / "model" / "model.safetensors").exists()


def test_a_run_of_another_metric_or_of_other_arguments_is_not_used(runner: Runner, star: Configuration) -> None:
    finish_unnoticed(runner, star, "ab")
    kept = runner.run(star, 1)
    assert list(runner.missing([star], [1])) == []
    runner.table.tasks["films"].metric = "pearson"
    with pytest.raises(UserError, match=r"two\.jsonl.*star-0-seed1.*accuracy, now pearson"):
        runner.finished.read(star, 1)
    with pytest.raises(UserError, match="stopped with 1"):
        replace(runner, table=replace(runner.table, name="other")).run(star, 1)
    runner.table.tasks["films"].metric = "accuracy"
    other = {**kept, "arguments": {**kept["arguments"], "num_train_epochs": 77}}
    runner.finished.keep(star, 1, other)
    with pytest.raises(UserError, match=r"num_train_epochs 77, now 1"):
        list(runner.missing([star], [1]))


def test_a_run_that_resumes_with_another_commit_has_none(runner: Runner, star: Configuration, tmp_path: Path) -> None:
    program = """import json, pathlib, sys, yaml
folder = pathlib.Path(yaml.safe_load(open(sys.argv[2]))["output_dir"])
if not folder.is_dir():  # killed after a checkpoint
    (folder / "checkpoint-1").mkdir(parents=True)
    (folder / "checkpoint-1" / "trainer_state.json").write_text("{}")
    (folder / "checkpoint-1" / "manifest.json").write_text('{"files": {}}')
    sys.exit(1)
scores = {"eval_accuracy": 0.7, "test_accuracy": 1.0, "parameters": 3}  # a resumed run does not know its time
(folder / "all_results.json").write_text(json.dumps(scores))
(folder / "predictions_test.jsonl").write_text(json.dumps({"predicted": "a", "label": "a"}))
"""
    (tmp_path / "script.py").write_text(program, encoding="utf-8")
    launcher = [sys.executable, str(tmp_path / "script.py")]
    for commit in ("", "0123456789ab"):
        folder = tmp_path / f"work{commit}"
        own = replace(runner, results=folder / "results", work=folder, launcher=launcher)
        with pytest.raises(UserError, match="stopped with 1"):
            own.run(star, 1)
        path = folder_of(own, star) / "environment.json"
        begun = json.loads(path.read_text(encoding="utf-8"))
        path.write_text(json.dumps({**begun, "commit": commit or begun["commit"]}), encoding="utf-8")
        result = own.run(star, 1)
        assert result["environment"] == {**begun, "commit": None if commit else begun["commit"]}
        assert result["training_seconds"] is None


def test_runs_that_were_launched_differently_make_no_mean(runner: Runner, star: Configuration, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("num_processes: 2\nmixed_precision: bf16\n", encoding="utf-8")
    with pytest.raises(UserError, match="stopped with 1"):
        replace(runner, launcher=["false", "--config_file", str(tmp_path / "two.yaml")]).run(star, 1)
    launched = json.loads((folder_of(runner, star) / "environment.json").read_text(encoding="utf-8"))
    assert (launched["num_processes"], launched["mixed_precision"]) == (2, "bf16")
    for seed in (1, 2):
        keep(runner, star, seed, 0.5, "1100")
    assert Cell(runner.finished, [star]).seeds == [1, 2]
    keep(runner, star, 2, 0.5, "1100", environment=launched)
    with pytest.raises(UserError, match="launched"):
        Cell(runner.finished, [star])


def test_runs_from_two_models_of_one_name_are_kept_apart(tmp_path: Path, table: Table) -> None:
    berts = [write_bert(tmp_path / name, ["a good meal", f"a meal {name}"]) for name in ("one", "other")]
    table = write_table(tmp_path, systems={"star": {"arguments": {"embeddings_from": "$BERT"}}})
    (star,) = table.configurations("films", "bert", "star")
    (plain,) = table.configurations("films", "bert", "linear")
    first, second = (replace(runner_of(table, tmp_path), names={"BERT": str(bert), "DATA": "D"}) for bert in berts)
    for configuration in (star, plain):
        finish_unnoticed(first, configuration, "ab")
    assert list(first.run(star, 1)["began_from"]) == ["BERT"]
    assert "began_from" not in first.run(plain, 1)
    first.check_same_models([star, plain])
    second.check_same_models([plain])
    with pytest.raises(UserError, match=r"star-0-seed1.*\$BERT"):
        second.check_same_models([star])
    # Nor is a folder of the other model resumed.
    (folder_of(first, star) / "arguments.json").write_text(
        json.dumps({**star.arguments, "seed": 1, "$BERT": first._began_from(star.arguments)["BERT"]}), encoding="utf-8"
    )
    forget(first.finished.file, "*/star-*")
    with pytest.raises(UserError, match=r"\$BERT"):
        second.run(star, 1)
    assert first.run(star, 1)["began_from"]
    with pytest.raises(UserError, match="none cannot be read"):
        replace(first, names={"BERT": str(tmp_path / "none")}).check_same_models([star])


@pytest.mark.parametrize(
    ("test", "seeds", "verdict", "close"),
    [
        (0.8525, 3, "equal to the last digit", True),
        (0.8425, 3, "within the deviation over 3 seeds", True),
        (0.70, 3, "outside the deviation over 3 seeds", False),
        (0.8425, 1, "one seed alone", False),
    ],
)
def test_a_repeated_run_is_equal_within_or_outside(test: float, seeds: int, verdict: str, close: bool) -> None:
    # of three seeds with a deviation of 1.25 points another is expected within 4.303 * 1.155 * 1.25 = 6.21 of 85.25
    kept = [
        {"validation": 0.9, "test": score, "counts": "1", "environment": {"commit": "a", "processor": "AMD"}}
        for score in (0.84, 0.8525, 0.865)[: 3 if seeds == 3 else 1]
    ]
    place = 1 if seeds == 3 else 0
    rerun = {**kept[place], "test": test, "environment": {"commit": "a", "processor": "Intel"}}
    sentence, is_close = compare_rerun(rerun, kept, place, "test")
    assert verdict in sentence
    assert is_close == close
    assert ("processor AMD, now Intel" in sentence) == (test != 0.8525)
    assert ("± 6.21" in sentence) == (seeds == 3 and test != 0.8525)
