"""Tables of experiments: their files, the runs that they describe, and the scores on the page."""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml
from harness.results_page import Cell
from harness.tables import Table, merged
from table_samples import keep, page_of, runner_of, write_table

from modeling_star.training import arguments


ROOT = Path(__file__).resolve().parents[2]


# BERT is the only setting, and BiG has no place.
def test_arguments_are_the_recipes_overridden_from_the_outside_in(table: Table) -> None:
    first, second = table.configurations("films", "none", "big")
    recipe = yaml.safe_load((ROOT / "configuration/recipes/paper_sst2.yaml").read_text(encoding="utf-8"))
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


def test_a_renamed_flag_has_the_name_of_kept_results(tmp_path: Path, table: Table) -> None:
    new = write_table(tmp_path, arguments={"embeddings_name_or_path": "$BERT"})
    old = write_table(tmp_path, arguments={"embeddings_from": "$BERT"})
    assert [new.configurations("films", "bert", "star")[0].arguments] == [
        old.configurations("films", "bert", "star")[0].arguments
    ]
    assert "embeddings_from" in merged({}, {"embeddings_name_or_path": "a"})
    assert merged({"embeddings_from": "a"}, {"embeddings_name_or_path": None}) == {}


# ------ what is refused


# ------ which runs are due


def test_the_first_seed_chooses_and_only_the_chosen_one_continues(table: Table, tmp_path: Path) -> None:
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
    scored = Cell(runner.finished, cell)
    assert (scored.chosen, scored.scores, str(scored)) == (cell[1], [0.25, 0.5], "37.5 ± 17.7 (2)")
    assert "| Star | 1 (learning_rate 0.0001) | all |" in page_of(tmp_path)
    assert "All 3 runs" in page_of(tmp_path)


def test_a_table_tuned_on_some_tasks_chooses_one_configuration_for_all(table: Table, tmp_path: Path) -> None:
    table.tuned_on = ["books"]
    runner = runner_of(table, tmp_path)
    films, books = (table.configurations(task, "none", "star") for task in ("films", "books"))
    assert list(runner.missing(films, [1, 2])) == []
    assert runner.waits_for(films) == ["books"]
    assert list(runner.missing(books, [2])) == [(books[0], 1), (books[1], 1)]
    for configuration, validation in zip(books, (0.6, 0.7), strict=True):
        keep(runner, configuration, 1, validation=validation, correct="1100")
    keep(runner, films[0], 1, validation=0.9, correct="1111")  # on films validation does not choose
    assert list(runner.missing(films, [1, 2])) == [(films[1], 1), (films[1], 2)]
    assert runner.waits_for(films) == []


# ------ the page


def test_the_page_has_scores_differences_and_costs_and_is_reproducible(table: Table, tmp_path: Path) -> None:
    runner = runner_of(table, tmp_path)
    for system, correct in (("star", "1110"), ("big", "1000")):
        for number, configuration in enumerate(table.configurations("films", "none", system)):
            keep(runner, configuration, 1, validation=0.5 - number / 10, correct=correct)
    page = page_of(tmp_path)
    # Books and the other systems have no run, and no place.
    assert "|  | Films |\n" in page
    assert "| Star | 75.0 (1) |\n| BiG | 25.0 (1) |\n\n" in page
    low, high = page.split("| BiG | +50.0 [")[1].split("]")[0].split(", ")
    assert float(low) < 50 < float(high)
    assert "| Star | 1.00 M, 1.0 |" in page
    assert "## BERT" not in page
    assert page_of(tmp_path) == page


def test_rows_that_occur_in_train_are_excluded_from_a_column(table: Table, tmp_path: Path) -> None:
    for split, texts in (("train", ["a b", "c"]), ("test", ["c", "b", "a b"])):
        rows = "".join(json.dumps({"text": text, "tokens": text.split()}) + "\n" for text in texts)
        (tmp_path / f"{split}.jsonl").write_text(rows, encoding="utf-8")
    files = {f"{split}_file": str(tmp_path / f"{split}.jsonl") for split in ("train", "test")}
    for column in ("text", "tokens"):
        table = write_table(tmp_path, tasks={"films": {"repeated": column}})
        runner = runner_of(table, tmp_path)
        for limits, expected in (
            ({}, [0, 2]),
            ({"max_train_samples": 1, "max_predict_samples": 2}, []),
            ({"max_train_samples": 1}, [2]),
        ):
            assert runner._repeated("films", {"arguments": {**files, **limits}, "counts": ""})["repeated"] == expected
    (configuration,) = table.configurations("films", "bert", "star")
    keep(runner, configuration, 1, validation=0.5, correct="0110", repeated=[0, 2])
    page = page_of(tmp_path)
    assert "### Test rows that do not occur in train, BERT" in page
    assert page.count("|  | Films |\n| :-- | --: |\n| Star | 50.0 (1) |") == 2
    cell = Cell(runner.finished, [configuration])
    assert cell.without_repeated("accuracy").counts[0].tolist() == [[1, 1], [0, 1]]
    write_table(tmp_path)
    assert "do not occur in train" not in page_of(tmp_path)
    # A run that was kept before the table had the column has no score there.
    keep(runner, configuration, 2, validation=0.5, correct="0111")
    cell = Cell(runner.finished, [configuration])
    assert (cell.seeds, cell.without_repeated("accuracy").seeds) == ([1, 2], [1])


# ------ the project's tables


@pytest.mark.parametrize("path", sorted((ROOT / "experiments" / "tables").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_projects_tables_use_flags_that_the_scripts_have(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from run_translation import TranslationArguments
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    monkeypatch.chdir(ROOT)
    shared = (arguments.LabelModelArguments, arguments.LabelRunArguments, TrainingArguments)
    groups = {
        "run_ner.py": (arguments.TaggingArguments, *shared),
        "run_glue.py": (arguments.ClassificationArguments, *shared),
        "run_qa.py": (arguments.ReadingArguments, *shared),
        "run_distill.py": (arguments.ClassificationArguments, arguments.TaggingArguments, *shared),
        "run_mlm.py": (arguments.TextArguments, *shared),
        "run_translation.py": (TranslationArguments, Seq2SeqTrainingArguments),
    }
    names = {
        script: {field.name for group in groups for field in dataclasses.fields(group)}
        for script, groups in groups.items()
    }
    names["run_distill.py"] |= {"task"}
    names["run_mlm.py"] |= {"teacher"}  # of commit ac87bc8, as the page says
    table = Table.read(path)
    cells = list(table.cells())
    assert cells
    for cell in cells:
        assert len(cell) <= 4, "the fair protocol has at most 4 configurations"
        for configuration in cell:
            flags = merged({}, dict.fromkeys(names[table.script_of(configuration)], 0))
            assert set(configuration.arguments) <= flags.keys()
            config = configuration.arguments.get("config_name")
            assert config is None or (ROOT / config).is_file()
    for name, prerequisite in table.prerequisites.items():
        flags = merged({}, dict.fromkeys(names[prerequisite.script], 0))
        assert set(table.prerequisite_arguments(name)) <= flags.keys()
