"""Tables of experiments: what runs, in which configuration, and the page made of what is kept."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.results_page import Cell, write_page
from lab.table_runs import Runner
from lab.tables import Table, merged
from table_samples import CONTENT, keep, runner_of


ROOT = Path(__file__).resolve().parents[2]
# The same where BERT is the only setting, and BiG has no place.
ON_BERT = {
    **CONTENT,
    "settings": {"bert": {"title": "BERT"}},
    "systems": {name: CONTENT["systems"][name] for name in ("star", "linear")},
}


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


def test_averages_and_the_papers_numbers_have_their_place(table: Table, tmp_path: Path) -> None:
    paper = {"star": {"films": 90.0, "books": 92.0}, "linear": {"films": 80.0}}
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
    unasked = {name: value for name, value in table.content["tasks"]["films"].items() if name != "repeated"}
    table.content["tasks"]["films"] = unasked
    (tmp_path / "tables" / "two.yaml").write_text(yaml.safe_dump(table.content, sort_keys=False), encoding="utf-8")
    write_page(tmp_path / "tables", tmp_path / "results", tmp_path / "results.md")
    assert "rows not in train" not in (tmp_path / "results.md").read_text(encoding="utf-8")
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


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "tables").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_projects_tables_name_flags_that_the_scripts_have(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    monkeypatch.chdir(ROOT)
    sys.modules.pop("arguments", None)
    from modeling_star.training import arguments

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
            arguments.RunArguments,
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
            assert set(arguments.current_names(configuration.arguments)) <= flags[task["script"]]
            config = configuration.arguments.get("config_name")
            assert config is None or (ROOT / config).is_file()
    for name, told in table.before.items():
        assert set(arguments.current_names(table.arguments_before(name))) <= flags[told["script"]]
