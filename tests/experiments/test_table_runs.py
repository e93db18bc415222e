"""The runs of a table of experiments: begun, left to another process, taken over, measured and kept."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import yaml
from filelock import FileLock
from lab.results_page import Cell, write_page
from lab.results_pictures import write_pictures
from lab.table_runs import BeforeError, FinishedRuns, Runner, read_counts, write_counts
from lab.tables import Configuration, Table
from script_samples import write_bert
from table_samples import keep, runner_of

from modeling_star.errors import UserError
from modeling_star.evaluation.bootstrap import count_examples


ROOT = Path(__file__).resolve().parents[2]


def test_a_run_of_another_table_with_the_same_arguments_is_taken_over(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    path = FinishedRuns(Table("other", table.content), tmp_path / "results").path(configuration, 1)
    path.parent.mkdir(parents=True)
    kept = {"test": 0.5, "arguments": {**configuration.arguments, "seed": 1}}
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert runner.run(configuration, 1) == kept
    assert runner.finished.read(configuration, 1) == kept
    kept["arguments"]["learning_rate"] = 1.0
    path.write_text(json.dumps(kept), encoding="utf-8")
    runner.finished.path(configuration, 1).unlink()
    with pytest.raises(UserError, match="stopped with 1"):
        runner.run(configuration, 1)


def test_a_failed_run_names_its_log_and_keeps_nothing(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    with pytest.raises(UserError, match=r"films/bert/star, seed 1 stopped with 1.*log\.txt"):
        runner.run(configuration, 1)
    assert runner.finished.read(configuration, 1) is None


def test_what_a_table_names_before_runs_once_and_first(table: Table, tmp_path: Path) -> None:
    table.content["before"] = {
        "FIRST": {
            "title": "A pretraining",
            "script": "run_mlm.py",
            "recipe": "mlm_english",
            "arguments": {"train_file": ["$DATA/a", "$DATA/b"]},
        }
    }
    table.content["systems"]["star"]["arguments"] = {"model_name_or_path": "$FIRST"}
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(table.content, sort_keys=False), encoding="utf-8")
    # In the place of the scripts: what they were given, one line each, and files such as they leave.
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
    runner = Runner(
        table, tmp_path / "results", tmp_path / "work", {"DATA": "/my/data"}, [sys.executable, str(script)]
    )
    (configuration,) = table.configurations("films", "bert", "star")
    for seed in (1, 2):
        assert runner.run(configuration, seed)["validation"] == 0.7
    first = str(tmp_path / "work" / "two" / "before" / "FIRST" / "model")
    calls = [json.loads(line) for line in Path(f"{script}.log").read_text(encoding="utf-8").splitlines()]
    assert calls[0] == ["run_scripts/run_mlm.py", None, ["/my/data/a", "/my/data/b"]]
    assert [call[:2] for call in calls[1:]] == [["run_scripts/run_glue.py", first]] * 2
    kept = runner.finished.read_before("FIRST")
    assert kept["arguments"]["train_file"] == ["$DATA/a", "$DATA/b"]
    assert kept["log_history"] == [{"step": 5, "loss": 3.0}, {"step": 5, "eval_loss": 2.0}]
    page, pictures = tmp_path / "results.md", tmp_path / "pictures"
    write_page(tmp_path / "tables", tmp_path / "results", page)
    text = page.read_text(encoding="utf-8")
    assert "A pretraining (`run_mlm.py`, `mlm_english.yaml`; " in text
    assert (
        "on validation: accuracy 0.7, perplexity 7.389, 3.00 M parameters, 2 minutes, 1,234 tokens a second." in text
    )
    assert "(pictures/results_two_FIRST.png)" in text
    assert pictures / "results_two_FIRST.png" in write_pictures(tmp_path / "tables", tmp_path / "results", pictures)
    # The same model may be made again, another may not take its place.
    before = runner.finished.path_before("FIRST").read_bytes()
    (Path(first) / "all_results.json").unlink()
    assert runner.run(configuration, 3)["validation"] == 0.7
    assert runner.finished.path_before("FIRST").read_bytes() == before
    other = json.loads(before)
    other["scores"]["eval_accuracy"] = 0.1
    runner.finished.path_before("FIRST").write_text(json.dumps(other), encoding="utf-8")
    runner.finished.path(configuration, 3).unlink()
    shutil.rmtree(tmp_path / "work" / "two" / configuration.cell / "0-seed3")
    for _ in range(2):
        with pytest.raises(BeforeError, match=r"is another model than the finished runs began from"):
            runner.run(configuration, 3)
    assert json.loads(runner.finished.path_before("FIRST").read_bytes()) == other
    runner.finished.path_before("FIRST").write_bytes(before)
    table.content["before"]["FIRST"]["arguments"]["num_train_epochs"] = 77
    with pytest.raises(BeforeError, match=r"FIRST.json was made with other arguments \(num_train_epochs 10, now 77\)"):
        runner.run(configuration, 3)
    runner.finished.path_before("FIRST").unlink()
    with pytest.raises(BeforeError, match=r"num_train_epochs 10, now 77"):
        runner.run(configuration, 3)


def test_a_run_that_another_process_is_at_is_left_to_it(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    folder = tmp_path / "work" / "two" / configuration.cell / "0-seed1"
    half_done = folder / "model" / "checkpoint-3"
    half_done.mkdir(parents=True)
    with FileLock(folder / "running.lock"):
        assert runner.run(configuration, 1) is None
        assert half_done.is_dir()
        assert not (folder / "recipe.yaml").exists()
    # Ended by the other one after it was found missing here: not run again.
    keep(runner, configuration, 1, 0.7, "10")
    assert runner.run(configuration, 1)["validation"] == 0.7


def ended_unnoticed(runner: Runner, configuration: Configuration, true_labels: str) -> Path:
    """What a run leaves that found one half right, of predictions that are all `a`; the model's folder."""
    model = runner.work / runner.table.name / configuration.cell / "0-seed1" / "model"
    model.mkdir(parents=True)
    scores = {"eval_accuracy": 0.7, "test_accuracy": 0.5, "parameters": 3, "train_runtime": 2.0}
    (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
    rows = "".join(json.dumps({"predicted": "a", "label": label}) + "\n" for label in true_labels)
    (model / "predictions_test.jsonl").write_text(rows, encoding="utf-8")
    return model


def test_a_run_that_finished_unnoticed_is_measured_and_not_run_again(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    model = ended_unnoticed(runner, configuration, "ab")
    (model.parent / "arguments.json").write_text('{"learning_rate": 9.0}', encoding="utf-8")
    with pytest.raises(UserError, match=r"learning_rate 9.0, now 5e-05.*delete it"):
        runner.run(configuration, 1)
    (model.parent / "arguments.json").unlink()
    (model.parent / "environment.json").write_text('{"commit": "0123456789ab"}', encoding="utf-8")
    assert runner.run(configuration, 1)["counts"] == "1 0; 1 1"
    kept = runner.finished.read(configuration, 1)
    assert (kept["test"], kept["training_seconds"]) == (0.5, 2.0)
    assert kept["environment"] == {"commit": "0123456789ab"}, "that of the run, not that of its measuring"


def test_a_run_whose_predictions_score_otherwise_is_not_kept(table: Table, tmp_path: Path) -> None:
    """Intervals are made of the predictions, and would be those of another score."""
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    ended_unnoticed(runner, configuration, "aa")
    with pytest.raises(UserError, match=r"the test score is 0\.5, that of its predictions 1\.0"):
        runner.run(configuration, 1)
    assert not runner.finished.path(configuration, 1).exists()


def test_a_run_that_outlived_who_began_it_is_not_begun_beside_it(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    folder = tmp_path / "work" / "two" / configuration.cell / "0-seed1"
    (folder / "model" / "checkpoint-3").mkdir(parents=True)
    own = psutil.Process()
    told = {"pid": own.pid, "begun": own.create_time()}
    (folder / "process.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.raises(UserError, match=rf"star, seed 1 is being run by process {own.pid}.*kill -- -{own.pid}"):
        runner.run(configuration, 1)
    assert (folder / "model" / "checkpoint-3").is_dir()
    # Its number may be another's by now.
    (folder / "process.json").write_text(json.dumps({**told, "begun": told["begun"] - 60}), encoding="utf-8")
    with pytest.raises(UserError, match="stopped with 1"):
        runner.run(configuration, 1)


def test_a_run_scored_by_another_metric_stops_the_table(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    ended_unnoticed(runner, configuration, "ab")
    assert runner.run(configuration, 1)["metric"] == "accuracy"
    table.content["tasks"]["films"]["metric"] = "pearson"
    with pytest.raises(UserError, match=r"star-0-seed1.json tells accuracy, the table pearson: delete it"):
        runner.finished.read(configuration, 1)
    # Nor is it taken over by another table.
    other = Runner(Table("other", table.content), tmp_path / "results", tmp_path / "work", {}, ["false"])
    with pytest.raises(UserError, match="stopped with 1"):
        other.run(configuration, 1)
    table.content["tasks"]["films"]["metric"] = "accuracy"
    assert other.run(configuration, 1)["test"] == 0.5


def test_a_score_that_the_script_does_not_tell_is_said(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    ended_unnoticed(runner, configuration, "ab")
    table.content["tasks"]["films"]["metric"] = "pearson"
    with pytest.raises(UserError, match=r"run_glue\.py told no eval_pearson, test_pearson"):
        runner.run(configuration, 1)


def test_a_table_to_choose_by_needs_no_test_file(table: Table, tmp_path: Path) -> None:
    table.content.update({"split": "validation", "arguments": {"test_file": None}})
    table.content["tasks"]["films"]["repeated"] = "text"
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(table.content, sort_keys=False), encoding="utf-8")
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    (ended_unnoticed(runner, configuration, "") / "predictions_test.jsonl").unlink()
    kept = runner.run(configuration, 1)
    assert kept["validation"] == 0.7
    assert {"test", "counts", "repeated"}.isdisjoint(kept)
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    assert "| Star | 70.0 (1) † |" in (tmp_path / "results.md").read_text(encoding="utf-8")


def test_several_labels_of_a_text_are_right_or_wrong_as_one(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    model = ended_unnoticed(runner, configuration, "")
    rows = [{"predicted": ["b", "a"], "label": ["a", "b"]}, {"predicted": [], "label": ["a"]}]
    lines = "".join(json.dumps({"index": number, **row}) + "\n" for number, row in enumerate(rows))
    (model / "predictions_test.jsonl").write_text(lines, encoding="utf-8")
    assert runner.run(configuration, 1)["counts"] == "1 0; 1 1"


def test_counts_are_kept_to_the_last_digit() -> None:
    """Squares of labels such as years have more digits than a difference of two runs."""
    counts = count_examples("pearson", [1987.123, 1990.0], [0.1, 1 / 3])
    text = write_counts(counts)
    assert text.startswith("1 1; 1987.123 1990; 0.1 0.333")
    assert read_counts(text).tolist() == counts.tolist()


def test_a_kept_run_of_other_arguments_stops_the_table(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    (configuration,) = table.configurations("films", "bert", "star")
    keep(runner, configuration, 1, validation=0.5, correct="10")
    path = runner.finished.path(configuration, 1)
    kept = {**json.loads(path.read_text(encoding="utf-8")), "arguments": {**configuration.arguments, "seed": 1}}
    path.write_text(json.dumps(kept), encoding="utf-8")
    assert list(runner.missing([configuration], [1])) == []
    kept["arguments"]["num_train_epochs"] = 77
    path.write_text(json.dumps(kept), encoding="utf-8")
    with pytest.raises(UserError, match=r"star-0-seed1.json was made with .*num_train_epochs 77, now 1\)"):
        list(runner.missing([configuration], [1]))


def test_a_run_that_another_commit_goes_on_with_has_none(table: Table, tmp_path: Path) -> None:
    program = """import json, pathlib, sys, yaml
folder = pathlib.Path(yaml.safe_load(open(sys.argv[2]))["output_dir"])
if not folder.is_dir():  # killed after a checkpoint
    (folder / "checkpoint-1").mkdir(parents=True)
    (folder / "checkpoint-1" / "trainer_state.json").write_text("{}")
    sys.exit(1)
scores = {"eval_accuracy": 0.7, "test_accuracy": 1.0, "parameters": 3}  # no time: it is of the last part alone
(folder / "all_results.json").write_text(json.dumps(scores))
(folder / "predictions_test.jsonl").write_text(json.dumps({"predicted": "a", "label": "a"}))
"""
    (tmp_path / "script.py").write_text(program, encoding="utf-8")
    (configuration,) = table.configurations("films", "bert", "star")
    for name, changed in (("same", False), ("other", True)):
        work = tmp_path / name
        runner = Runner(table, work / "results", work, {}, [sys.executable, str(tmp_path / "script.py")])
        with pytest.raises(UserError, match="stopped with 1"):
            runner.run(configuration, 1)
        path = work / "two" / configuration.cell / "0-seed1" / "environment.json"
        begun = json.loads(path.read_text(encoding="utf-8"))
        if changed:
            path.write_text(json.dumps({**begun, "commit": "0123456789ab"}), encoding="utf-8")
        result = runner.run(configuration, 1)
        assert result["environment"] == {**begun, "commit": None if changed else begun["commit"]}
        assert result["training_seconds"] is None


def test_how_a_run_was_launched_is_told_and_two_ways_make_no_mean(table: Table, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("num_processes: 2\nmixed_precision: bf16\n", encoding="utf-8")
    (configuration,) = table.configurations("films", "bert", "star")
    runner = Runner(table, tmp_path / "results", tmp_path, {}, ["false", "--config_file", str(tmp_path / "two.yaml")])
    with pytest.raises(UserError, match="stopped with 1"):
        runner.run(configuration, 1)
    path = tmp_path / "two" / configuration.cell / "0-seed1" / "environment.json"
    launched = json.loads(path.read_text(encoding="utf-8"))
    assert (launched["num_processes"], launched["mixed_precision"]) == (2, "bf16")
    for seed in (1, 2):
        keep(runner, configuration, seed, 0.5, "1100")
    assert Cell(runner.finished, [configuration]).seeds == [1, 2]
    kept = runner.finished.path(configuration, 2)
    other = {**json.loads(kept.read_text(encoding="utf-8")), "environment": launched}
    kept.write_text(json.dumps(other), encoding="utf-8")
    with pytest.raises(UserError, match="launched with different num_processes and mixed_precision"):
        Cell(runner.finished, [configuration])


def test_the_command_keeps_to_avx2_before_it_runs_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduce

    done: list[str] = []
    monkeypatch.setattr("lab.launching.round_as_avx2", lambda: done.append("rounds"))
    monkeypatch.setattr(reproduce, "run_cells", lambda *arguments: bool(done.append("runs")))
    command = ["reproduce.py", "table5", f"--data={tmp_path}", f"--results={tmp_path}/kept", f"--work={tmp_path}/work"]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        reproduce.main()
    assert done == ["rounds", "runs"]


def test_a_run_that_is_taken_over_is_told_which_test_rows_are_in_train(table: Table, tmp_path: Path) -> None:
    rows = {"train": ["good", "bad"], "test": ["bad", "new"]}
    for split, texts in rows.items():
        lines = (json.dumps({"text": text, "label": 0}) + "\n" for text in texts)
        (tmp_path / f"{split}.jsonl").write_text("".join(lines), encoding="utf-8")
    table.content["tasks"]["films"]["repeated"] = "text"
    (own,) = table.configurations("films", "bert", "star")
    files = {f"{split}_file": str(tmp_path / f"{split}.jsonl") for split in rows}
    configuration = Configuration("films", "bert", "star", 0, {**own.arguments, **files})
    path = FinishedRuns(Table("other", table.content), tmp_path / "results").path(configuration, 1)
    path.parent.mkdir(parents=True)
    kept = {"test": 0.5, "counts": "1 0; 1 1", "arguments": {**configuration.arguments, "seed": 1}}
    path.write_text(json.dumps(kept), encoding="utf-8")
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    assert runner.run(configuration, 1)["repeated"] == "10"
    assert runner.finished.read(configuration, 1)["repeated"] == "10"
    # So are those that were kept before the table asked.
    runner.finished.path(configuration, 1).write_text(json.dumps(kept), encoding="utf-8")
    runner.add_repeated([configuration])
    assert runner.finished.read(configuration, 1) == {**kept, "repeated": "10", "repeated_by": "text"}
    # And by another column, where the table has come to name one.
    table.content["tasks"]["films"]["repeated"] = "label"
    runner.add_repeated([configuration])
    assert runner.finished.read(configuration, 1) == {**kept, "repeated": "11", "repeated_by": "label"}


def test_a_name_that_another_begins_with_is_its_own(table: Table, tmp_path: Path) -> None:
    table.content["before"] = {"OWN": {}, "OWN_WIDE": {}}
    runner = Runner(table, tmp_path, Path("work"), {"DATA": "d", "BERT": "b"}, ["false"])
    told = ["$OWN_WIDE", "$OWN", "$BERT_ZH", "x/$BERT/$DATA"]
    there = [f"work/{table.name}/before/{name}/model" for name in ("OWN_WIDE", "OWN")]
    assert runner._filled(told) == [*there, "$BERT_ZH", "x/b/d"]


def test_runs_from_two_models_of_one_name_are_kept_apart(table: Table, tmp_path: Path) -> None:
    berts = [write_bert(tmp_path / name, ["a good meal", f"a meal {name}"]) for name in ("one", "other")]
    table.content["systems"]["star"]["arguments"] = {"embeddings_from": "$BERT"}
    (configuration,) = table.configurations("films", "bert", "star")
    (plain,) = table.configurations("films", "bert", "linear")
    first, second = (
        Runner(table, tmp_path / "results", tmp_path / "work", {"BERT": str(bert), "DATA": "D"}, ["false"])
        for bert in berts
    )
    began = ended_unnoticed(first, configuration, "ab").parent / "began_from.json"
    began.write_text(json.dumps(first._began_from(configuration.arguments)), encoding="utf-8")
    ended_unnoticed(first, plain, "ab")
    first.check_same_models([configuration])
    assert list(first.run(configuration, 1)["began_from"]) == ["BERT"]
    assert "began_from" not in first.run(plain, 1)
    first.check_same_models([configuration, plain])
    second.check_same_models([plain])
    with pytest.raises(UserError, match=r"\$BERT is another model than that which .*star-0-seed1.*--results NAME"):
        second.check_same_models([configuration])
    # Nor is a folder of the other model's gone on with, though nothing of it was kept.
    first.finished.path(configuration, 1).unlink()
    second.check_same_models([configuration])
    with pytest.raises(UserError, match=r"0-seed1 began from another model called \$BERT: delete it"):
        second.run(configuration, 1)
    assert first.run(configuration, 1)["began_from"]
    # Nor is it taken over by another table.
    elsewhere = Table("elsewhere", table.content)
    taken = [replace(runner, table=elsewhere, launcher=["false"]) for runner in (first, second)]
    assert taken[0].run(configuration, 1)["began_from"] == first.run(configuration, 1)["began_from"]
    taken[0].finished.path(configuration, 1).unlink()
    with pytest.raises(UserError, match="stopped with 1"):
        taken[1].run(configuration, 1)
    lost = replace(first, names={"BERT": str(tmp_path / "none")})
    with pytest.raises(UserError, match="none cannot be read"):
        lost.check_same_models([configuration])


def test_a_run_on_other_test_rows_than_those_beside_it_is_not_kept(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    for system, seed in (("star", 1), ("linear", 1)):
        (configuration,) = table.configurations("films", "bert", system)
        ended_unnoticed(runner, configuration, "ab")
        assert len(runner.run(configuration, seed)["references"]) == 16
    (own,) = table.configurations("films", "bert", "star")
    runner.finished.path(own, 1).unlink()
    shutil.rmtree(tmp_path / "work")
    ended_unnoticed(runner, own, "aabb")
    with pytest.raises(
        UserError, match=r"films/bert/star was measured on other test rows \(4\) than .*linear-0-seed1"
    ):
        runner.run(own, 1)
    assert runner.finished.read(own, 1) is None


def test_seeds_that_the_page_would_not_show_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import reproduce

    kept = [f"--data={tmp_path}", f"--results={tmp_path}/kept", f"--work={tmp_path}/work"]
    monkeypatch.setattr(sys, "argv", ["reproduce.py", "table5", *kept, "--seeds", "1", "9"])
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match=r"--seeds names 9, and the page of table5 has \[1, 2, 3\]: add"):
        reproduce.main()
