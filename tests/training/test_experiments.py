"""Tables of experiments: what runs, what is kept, and the page made of it."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from filelock import FileLock
from table_samples import CONTENT

from modeling_star.training.bootstrap import count_examples
from modeling_star.training.data_files import DataError
from modeling_star.training.experiment_runs import BeforeError, FinishedRuns, Runner, read_counts, write_counts
from modeling_star.training.experiments import Configuration, Table, merged
from modeling_star.training.results_page import Cell, write_page
from modeling_star.training.results_pictures import write_pictures


ROOT = Path(__file__).resolve().parents[2]
# The same where BERT is the only setting, and BiG has no place.
ON_BERT = {
    **CONTENT,
    "settings": {"bert": {"title": "BERT"}},
    "systems": {name: CONTENT["systems"][name] for name in ("star", "linear")},
}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.chdir(ROOT)  # recipes are found from the project's root
    path = tmp_path / "tables" / "two.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CONTENT, sort_keys=False), encoding="utf-8")
    return Table.read(path)


def runner_of(table: Table, tmp_path: Path) -> Runner:
    return Runner(table, tmp_path / "results", tmp_path / "work", {"DATA": "/my/data"}, ["true"])


def keep(runner: Runner, configuration: Configuration, seed: int, validation: float, correct: str) -> None:
    """A finished run: which of the test examples were right."""
    right = [int(one) for one in correct]
    result = {
        "validation": validation,
        "test": sum(right) / len(right),
        "parameters": 1_000_000,
        "training_seconds": 60.0,
        "environment": {"commit": "0123456789ab"},
        "counts": "; ".join([" ".join(map(str, right)), " ".join("1" for _ in right)]),
    }
    path = runner.finished.path(configuration, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result), encoding="utf-8")


def test_arguments_are_the_recipes_overridden_from_the_outside_in(table: Table) -> None:
    first, second = table.configurations("films", "none", "big")
    recipe = yaml.safe_load((ROOT / "configuration/recipes/sst2.yaml").read_text(encoding="utf-8"))
    assert first.arguments == {
        **recipe,
        **{f"{split}_file": f"$DATA/films/{split}.jsonl.gz" for split in ("train", "validation", "test")},
        "per_device_train_batch_size": 16,
        "config_overrides": {**recipe["config_overrides"], "hidden_size": 8},
        "learning_rate": 1e-3,
    }
    assert second.arguments == {**first.arguments, "learning_rate": 1e-4}
    (linear,) = table.configurations("films", "bert", "linear")
    assert linear.arguments["num_train_epochs"] == 1
    assert {"config_name", "config_overrides"}.isdisjoint(linear.arguments)


def test_systems_stand_only_where_the_table_has_them(table: Table) -> None:
    assert [cell[0].cell for cell in table.cells()] == [
        *("films/none/star", "films/none/big", "books/none/star", "books/none/big"),
        *("films/bert/star", "films/bert/linear"),
    ]


@pytest.mark.parametrize(
    ("below", "above", "expected"),
    [
        ({"a": 1}, {"a": 2, "b": 3}, {"a": 2, "b": 3}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": {"b": 1}, "d": 1}, {"a": None, "e": None}, {"d": 1}),
        ({"a": {"b": 1, "c": 1}}, {"a": {"b": None}}, {"a": {"c": 1}}),
    ],
)
def test_merging(below: dict[str, Any], above: dict[str, Any], expected: dict[str, Any]) -> None:
    before = json.dumps(below)
    assert merged(below, above) == expected
    assert json.dumps(below) == before


def test_the_first_seed_chooses_and_only_the_chosen_goes_on(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    cell = table.configurations("films", "none", "star")
    assert list(runner.missing(cell, [1, 2, 3])) == [(cell[0], 1), (cell[1], 1)]
    keep(runner, cell[0], 1, validation=0.7, correct="1111")
    assert list(runner.missing(cell, [1, 2, 3])) == [(cell[1], 1)]
    # Better on validation, worse on test: validation decides.
    keep(runner, cell[1], 1, validation=0.8, correct="1000")
    assert list(runner.missing(cell, [1, 2, 3])) == [(cell[1], 2), (cell[1], 3)]
    keep(runner, cell[1], 2, validation=0.1, correct="1100")
    assert list(runner.missing(cell, [1, 2, 3])) == [(cell[1], 3)]
    found = Cell(runner.finished, cell)
    assert found.chosen == cell[1]
    assert found.scores == [0.25, 0.5]
    assert str(found) == "37.5 ± 17.7 (2)"


def test_a_system_without_chance_runs_with_its_own_seeds_alone(table: Table, tmp_path: Path) -> None:
    table.content["systems"]["linear"]["seeds"] = [1]
    runner, cell = runner_of(table, tmp_path), table.configurations("films", "bert", "linear")
    assert list(runner.missing(cell, [1, 2, 3])) == list(runner.missing(cell, None)) == [(cell[0], 1)]
    star = table.configurations("films", "bert", "star")
    assert [seed for _, seed in runner.missing(star, [7])] == [7]
    assert [seed for _, seed in runner.missing(star, None)] == [1, 2, 3]
    table.content["systems"]["star"]["seeds"] = [1, 2, 3, 4]
    assert [seed for _, seed in runner.missing(star, None)] == [1, 2, 3, 4]
    for seed in (1, 2):
        keep(runner, cell[0], seed, validation=0.7, correct="1100")
    assert list(runner.missing(cell, [1, 2, 3])) == []
    assert str(Cell(runner.finished, cell)) == "50.0 (1)"


def test_a_table_tuned_on_some_tasks_chooses_one_configuration_for_all(table: Table, tmp_path: Path) -> None:
    table.content["tuned_on"] = ["books"]
    runner = runner_of(table, tmp_path)
    films, books = (table.configurations(task, "none", "star") for task in ("films", "books"))
    assert list(runner.missing(films, [1, 2])) == []
    assert runner.waits_for(films) == ["books"]
    assert list(runner.missing(books, [2])) == [(books[0], 1), (books[1], 1)]
    for configuration, validation in zip(books, (0.6, 0.7), strict=True):
        keep(runner, configuration, 1, validation=validation, correct="1100")
    # What validation says on films is not asked.
    for configuration, validation in zip(films, (0.9, 0.1), strict=True):
        keep(runner, configuration, 1, validation=validation, correct="1111" if validation > 0.5 else "1110")
    assert list(runner.missing(films, [1, 2])) == [(films[1], 2)]
    assert runner.waits_for(films) == []
    assert Cell(runner.finished, films).scores == [0.75]


def test_a_mean_over_tasks_chooses_where_several_tune(table: Table, tmp_path: Path) -> None:
    table.content["tuned_on"] = ["books", "films"]
    runner = runner_of(table, tmp_path)
    for task, validations in {"films": (0.5, 0.6), "books": (0.9, 0.7)}.items():
        cell = table.configurations(task, "none", "star")
        for configuration, validation in zip(cell, validations, strict=True):
            keep(runner, configuration, 1, validation=validation, correct="1")
    for task in ("films", "books"):
        cell = table.configurations(task, "none", "star")
        assert runner.finished.best(cell) == cell[0]


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
    with pytest.raises(DataError, match="stopped with 1"):
        runner.run(configuration, 1)


def test_averages_and_the_papers_numbers_have_their_place(table: Table, tmp_path: Path) -> None:
    paper = {"star": {"films": 90.0, "books": 92.0, "music": 10.0}, "linear": {"films": 80.0}}
    content = {**ON_BERT, "average": "average", "paper": paper}
    path = tmp_path / "tables" / "two.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    table = Table.read(path)
    runner = runner_of(table, tmp_path)
    for task, system, seed, correct in (
        ("films", "star", 1, "1111"),
        ("films", "star", 2, "1100"),
        ("books", "star", 1, "1000"),
        ("books", "star", 2, "0000"),
        ("films", "linear", 1, "1000"),
    ):
        (configuration,) = table.configurations(task, "bert", system)
        keep(runner, configuration, seed, validation=0.5, correct=correct)
    page = tmp_path / "results.md"
    write_page(tmp_path / "tables", tmp_path / "results", page)
    text = page.read_text(encoding="utf-8")
    assert "|  | Films | Books | average |" in text
    # Of each seed the mean over the tasks: (100 + 25) / 2 and (50 + 0) / 2.
    assert "| Star | 75.0 ± 35.4 (2) | 12.5 ± 17.7 (2) | 43.8 ± 26.5 (2) |" in text
    # The paper's mean is over our tasks, not over others that it has.
    assert "| Star, the paper's | 90.0 | 92.0 | 91.0 |" in text
    assert "| linear, the paper's | 80.0 | -- | -- |" in text
    assert "| linear | 25.0 (1) | -- | -- |" in text
    (configuration,) = table.configurations("books", "bert", "linear")
    keep(runner, configuration, 1, validation=0.5, correct="1000")
    write_page(tmp_path / "tables", tmp_path / "results", page)
    (differences,) = [
        line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| linear | +")
    ]
    mean = differences.split("|")[4]
    # (50 - 12.5) / 2 on all examples, somewhere around it on others.
    assert mean.startswith(" +18.8 [")


def test_an_average_takes_each_task_by_its_own_metric(table: Table, tmp_path: Path) -> None:
    questions = {**CONTENT["tasks"]["books"], "metric": "answer_f1", "script": "run_qa.py"}
    content = {**ON_BERT, "average": "mean", "tasks": {**CONTENT["tasks"], "books": questions}}
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    own = Table.read(tmp_path / "tables" / "two.yaml")
    runner = runner_of(own, tmp_path)
    for task, system, correct in (("films", "star", "1100"), ("films", "linear", "1000"), ("books", "linear", "1100")):
        keep(runner, own.configurations(task, "bert", system)[0], 1, validation=0.5, correct=correct)
    (star,) = own.configurations("books", "bert", "star")
    keep(runner, star, 1, validation=0.5, correct="1110")
    for system, counts in (("star", "1 1 1 0; 0 0 0 0; 1 1 1 1"), ("linear", "1 1 0 0; 0 0 0 0; 1 1 1 1")):
        path = runner.finished.path(own.configurations("books", "bert", system)[0], 1)
        path.write_text(json.dumps({**json.loads(path.read_text()), "counts": counts}), encoding="utf-8")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    (line,) = [row for row in (tmp_path / "results.md").read_text().splitlines() if row.startswith("| linear | +")]
    assert line.split("|")[-2].startswith(" +25.0 ["), "the mean of 50 - 25 and of 75 - 50"


def test_a_difference_tells_that_a_gpu_was_in_it(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    for system, correct in (("star", "1100"), ("linear", "1000")):
        keep(runner, table.configurations("films", "bert", system)[0], 1, validation=0.5, correct=correct)
    path = runner.finished.path(table.configurations("films", "bert", "star")[0], 1)
    kept = {**json.loads(path.read_text()), "environment": {"commit": "0123456789ab", "device": "NVIDIA H100"}}
    path.write_text(json.dumps(kept), encoding="utf-8")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    (line,) = [row for row in (tmp_path / "results.md").read_text().splitlines() if row.startswith("| linear | +")]
    assert line.split("|")[2].endswith("] ‡ ")


def test_a_table_with_many_tasks_has_a_line_for_each(table: Table, tmp_path: Path) -> None:
    tasks = {f"set{n}": {**CONTENT["tasks"]["films"], "title": f"Set {n}"} for n in range(9)}
    path = tmp_path / "tables" / "two.yaml"
    content = {**ON_BERT, "tasks": tasks}
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    (configuration,) = Table.read(path).configurations("set3", "bert", "star")
    keep(runner_of(table, tmp_path), configuration, 1, validation=0.5, correct="10")
    page = tmp_path / "results.md"
    write_page(tmp_path / "tables", tmp_path / "results", page)
    text = page.read_text(encoding="utf-8")
    assert "|  | Star | linear |" in text
    assert "| Set 3 | 50.0 (1) | -- |" in text


def test_a_failed_run_names_its_log_and_keeps_nothing(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    with pytest.raises(DataError, match=r"films/bert/star, seed 1 stopped with 1.*log\.txt"):
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
    with pytest.raises(DataError, match=r"learning_rate 9.0, now 5e-05.*delete it"):
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
    with pytest.raises(DataError, match=r"the test score is 0\.5, that of its predictions 1\.0"):
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
    with pytest.raises(DataError, match=rf"star, seed 1 is being run by process {own.pid}.*kill -- -{own.pid}"):
        runner.run(configuration, 1)
    assert (folder / "model" / "checkpoint-3").is_dir()
    # Its number may be another's by now.
    (folder / "process.json").write_text(json.dumps({**told, "begun": told["begun"] - 60}), encoding="utf-8")
    with pytest.raises(DataError, match="stopped with 1"):
        runner.run(configuration, 1)


def test_a_run_scored_by_another_metric_stops_the_table(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    ended_unnoticed(runner, configuration, "ab")
    assert runner.run(configuration, 1)["metric"] == "accuracy"
    table.content["tasks"]["films"]["metric"] = "pearson"
    with pytest.raises(DataError, match=r"star-0-seed1.json tells accuracy, the table pearson: delete it"):
        runner.finished.read(configuration, 1)
    # Nor is it taken over by another table.
    other = Runner(Table("other", table.content), tmp_path / "results", tmp_path / "work", {}, ["false"])
    with pytest.raises(DataError, match="stopped with 1"):
        other.run(configuration, 1)
    table.content["tasks"]["films"]["metric"] = "accuracy"
    assert other.run(configuration, 1)["test"] == 0.5


def test_a_score_that_the_script_does_not_tell_is_said(table: Table, tmp_path: Path) -> None:
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    (configuration,) = table.configurations("films", "bert", "star")
    ended_unnoticed(runner, configuration, "ab")
    table.content["tasks"]["films"]["metric"] = "pearson"
    with pytest.raises(DataError, match=r"run_glue\.py told no eval_pearson, test_pearson"):
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
    with pytest.raises(DataError, match=r"star-0-seed1.json was made with .*num_train_epochs 77, now 1\)"):
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
        with pytest.raises(DataError, match="stopped with 1"):
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
    with pytest.raises(DataError, match="stopped with 1"):
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
    with pytest.raises(DataError, match="launched with different num_processes and mixed_precision"):
        Cell(runner.finished, [configuration])


def test_what_a_cell_has_several_of_is_told_by_number_and_cost(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    for number, configuration in enumerate(table.configurations("films", "none", "star")):
        keep(runner, configuration, 1, validation=0.5 + number / 10, correct="1110")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "runs one alone): Star 1 (learning_rate 0.0001). All 2 runs, those of the others included, trained" in text
    assert "for 2 minutes." in text


def test_the_mean_over_tasks_takes_seeds_that_all_of_them_have(table: Table, tmp_path: Path) -> None:
    content = {**ON_BERT, "average": "mean"}
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    own = Table.read(tmp_path / "tables" / "two.yaml")
    runner = runner_of(own, tmp_path)
    for task, runs in {"films": {1: "1111", 3: "1100"}, "books": {1: "1100", 2: "0000", 3: "0000"}}.items():
        (configuration,) = own.configurations(task, "bert", "star")
        for seed, correct in runs.items():
            keep(runner, configuration, seed, validation=0.5, correct=correct)
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "| 50.0 ± 35.4 (2) |\n" in text, "the mean of 75 and 25, of seeds 1 and 3"
    for task in ("films", "books"):
        (configuration,) = own.configurations(task, "bert", "linear")
        keep(runner, configuration, 1, validation=0.5, correct="1000")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    (line,) = [row for row in (tmp_path / "results.md").read_text().splitlines() if row.startswith("| linear | +")]
    # Of the same seeds: (75 + 25) / 2 - 25; with seed 2 of the books alone it would be 20.8.
    assert line.split("|")[4].startswith(" +25.0 [")


def test_the_page_tells_scores_differences_and_costs_and_is_the_same_again(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    for system, correct in (("star", "1110"), ("big", "1000")):
        for number, configuration in enumerate(table.configurations("films", "none", system)):
            keep(runner, configuration, 1, validation=0.5 - number / 10, correct=correct)
    page = tmp_path / "results.md"
    write_page(tmp_path / "tables", tmp_path / "results", page)
    text = page.read_text(encoding="utf-8")
    assert "| Star | 75.0 (1) | -- |" in text
    assert "| BiG | 25.0 (1) | -- |" in text
    low, high = text.split("| BiG | +50.0 [")[1].split("]")[0].split(", ")
    assert float(low) < 50 < float(high)
    assert "| Star | 1.00 M, 1.0 | -- |" in text
    assert "### BERT" not in text
    write_page(tmp_path / "tables", tmp_path / "results", page)
    assert page.read_text(encoding="utf-8") == text


def test_rows_that_occur_in_train_are_told_and_left_out_of_a_column(table: Table, tmp_path: Path) -> None:
    table.content["tasks"]["films"]["repeated"] = "text"
    runner = runner_of(table, tmp_path)
    for split, texts in (("train", ["a", "b"]), ("test", ["b", "c", "a", "d"])):
        rows = "".join(json.dumps({"text": text, "label": 0}) + "\n" for text in texts)
        (tmp_path / f"{split}.jsonl").write_text(rows, encoding="utf-8")
    files = {f"{split}_file": str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}

    def told(column: str, **arguments: Any) -> str:
        table.content["tasks"]["films"]["repeated"] = column
        return runner._repeated("films", {"arguments": arguments, "counts": ""})["repeated"]

    assert told("text", **files) == "1010"
    for split, texts in (("train", ["a b", "c"]), ("test", ["c", "b", "a b"])):
        rows = [json.dumps({"tokens": text.split()}) for text in texts]
        (tmp_path / f"{split}_words.jsonl").write_text("\n".join(rows), encoding="utf-8")
    words = {f"{split}_file": str(tmp_path / f"{split}_words.jsonl") for split in ("train", "test")}
    assert told("tokens", **words) == "101"
    assert told("tokens", **words, max_train_samples=1, max_predict_samples=2) == "00"
    assert told("tokens", **words, max_train_samples=1) == "001"
    (configuration,) = table.configurations("films", "bert", "star")
    keep(runner, configuration, 1, validation=0.5, correct="0110")
    path = runner.finished.path(configuration, 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "repeated": "1010"}), encoding="utf-8")
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(table.content, sort_keys=False), encoding="utf-8")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "|  | Films | Films, rows not in train |" in text
    assert "| Star | 50.0 (1) | 50.0 (1) |" in text
    assert Cell(runner.finished, [configuration]).without_repeated("accuracy").counts[0].tolist() == [[1, 1], [0, 1]]
    # A run that was kept before the table asked has no score there.
    keep(runner, configuration, 2, validation=0.5, correct="0111")
    own = Cell(runner.finished, [configuration])
    assert (own.seeds, own.without_repeated("accuracy").seeds) == ([1, 2], [1])


def test_answers_are_told_by_f1_and_by_exact_match(table: Table, tmp_path: Path) -> None:
    table.content["tasks"]["films"] |= {"metric": "answer_f1", "script": "run_qa.py"}
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(table.content, sort_keys=False), encoding="utf-8")
    runner = Runner(table, tmp_path / "results", tmp_path / "work", {}, ["false"])
    for system, predicted in (("star", ["cat", "big dog"]), ("linear", ["cat", "owl"])):
        (configuration,) = table.configurations("films", "bert", system)
        model = tmp_path / "work" / "two" / configuration.cell / "0-seed1" / "model"
        model.mkdir(parents=True)
        f1 = 1 / 2 + 1 / 3 * (system == "star")
        scores = {"eval_f1": 0.7, "test_f1": f1, "parameters": 3, "train_runtime": 60.0}
        (model / "all_results.json").write_text(json.dumps(scores), encoding="utf-8")
        rows = [
            {"predicted": guess, "label": label, "n_best": []}
            for guess, label in zip(predicted, (["cat"], ["dog", "hog"]), strict=True)
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (model / "predictions_test.jsonl").write_text(lines, encoding="utf-8")
        (model.parent / "environment.json").write_text('{"commit": "0123456789ab"}', encoding="utf-8")
        runner.run(configuration, 1)
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    text = (tmp_path / "results.md").read_text(encoding="utf-8")
    assert "|  | Films | Films, exact match |" in text
    assert "| Star | 83.3 (1) | 50.0 (1) |" in text
    assert "| linear | 50.0 (1) | 50.0 (1) |" in text
    assert "| linear | +33.3 [+0.0, +66.7] | +0.0 [+0.0, +0.0] |" in text


@pytest.mark.parametrize(
    "path", sorted((ROOT / "configuration" / "tables").glob("*.yaml")), ids=lambda path: path.stem
)
def test_the_projects_tables_name_flags_that_the_scripts_have(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT / "run_scripts"))
    sys.modules.pop("arguments", None)
    import arguments

    own = (arguments.ModelArguments, arguments.RunArguments, TrainingArguments)
    groups = {
        "run_ner.py": (arguments.TaggingArguments, *own),
        "run_glue.py": (arguments.ClassificationArguments, *own),
        "run_qa.py": (arguments.ReadingArguments, *own),
        "run_translation.py": (
            arguments.TranslationModelArguments,
            arguments.TranslationArguments,
            arguments.TranslationRunArguments,
            Seq2SeqTrainingArguments,
        ),
        "run_mlm.py": (
            arguments.ModelArguments,
            arguments.TextArguments,
            arguments.RepeatArguments,
            TrainingArguments,
        ),
    }
    flags = {
        script: {field.name for group in own for field in dataclasses.fields(group)} for script, own in groups.items()
    }
    table = Table.read(path)
    cells = list(table.cells())
    assert cells
    for cell in cells:
        assert len(cell) <= 4, "the fair protocol has at most 4 configurations"
        task = table.content["tasks"][cell[0].task]
        for configuration in cell:
            assert set(configuration.arguments) <= flags[task["script"]]
            config = configuration.arguments.get("config_name")
            assert config is None or (ROOT / config).is_file()
    for name, told in table.before.items():
        assert set(table.arguments_before(name)) <= flags[told["script"]]


def test_the_command_keeps_to_avx2_before_it_runs_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "run_scripts")
    import reproduce

    done: list[str] = []
    monkeypatch.setattr("modeling_star.training.launching.round_as_avx2", lambda: done.append("rounds"))
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
    assert runner.finished.read(configuration, 1) == {**kept, "repeated": "10"}
