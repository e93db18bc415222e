"""What is no table of experiments is refused before anything runs, and told where it is wrong."""

from pathlib import Path

import pytest
import yaml
from lab.tables import Table
from table_samples import CONTENT

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]


def test_an_unknown_table_names_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"no table engish.*english"):
        Table.read(ROOT / "experiments" / "tables" / "engish.yaml")


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"against": ["star", "starr"]}, "against names starr; the systems are star"),
        ({"split": "dev"}, "split: dev is given; write test or validation"),
        ({"tuned_on": ["film"]}, "tuned_on names film; the tasks are films, books"),
        (
            {"systems": {"star": {"title": "Star", "settings": ["non"]}}},
            "star: settings names non; the settings are none",
        ),
        (
            {"settings": {**CONTENT["settings"], "none": {"title": "a", "tasks": ["film"]}}},
            "none: tasks names film; the",
        ),
        ({"tuned_one": ["films"]}, "tuned_one is no key there: title, about, against"),
        ({"systems": {"star": {"title": "Star", "grids": []}}}, "systems: star: grids is no key there: title, tasks"),
        ({"systems": {"star": None}}, "systems: star: title lacks; docs/data.md"),
        ({"tasks": ["films"]}, r"tasks: \['films'\] is given; write entries with their names"),
        ({"systems": {}}, "systems: {} is given; write entries with their names"),
        ({"tasks": {2: CONTENT["tasks"]["films"]}}, "tasks: 2 is no name: write a text without /, a number in quotes"),
        ({"tasks": {"a/b": CONTENT["tasks"]["films"]}}, "tasks: a/b is no name"),
        ({"settings": {"bert": "BERT"}}, "settings: bert: BERT is given; write keys and values: title"),
        ({"seeds": 1}, r"seeds: 1 is given; write a list of numbers, each once, such as \[1, 2, 3\]"),
        ({"seeds": []}, r"seeds: \[\] is given"),
        ({"seeds": [1, 2, 2]}, r"seeds: \[1, 2, 2\] is given; write a list of numbers, each once"),
        ({"paper": {"star": {"film": 90.0}}}, "paper: star names film; the tasks are films, books"),
        ({"against": None}, "against: None is given; write a name or a list of names"),
        ({"arguments": None}, "arguments: None is given; write flags with their values, or the key is left out"),
        ({"systems": {"star": {"title": "Star", "last": []}}}, r"systems: star: last: \[\] is given; write flags"),
        ({"systems": {"star": {"title": "Star", "grid": {"seed": 1}}}}, "grid: {'seed': 1} is given; write a list of"),
        ({"systems": {"star": {"title": "Star", "seeds": ["1"]}}}, r"star: seeds: \['1'\] is given; write a list"),
        ({"settings": {"bert": {"title": "BERT", "tasks": {"films": 1}}}}, "bert: tasks: {'films': 1} is given"),
        ({"paper": {"starr": {"films": 90.0}}}, "paper names starr; the systems are star"),
        ({"paper": {"star": 90.0}}, "paper: {'star': 90.0} is given; write for each system a number for each task"),
        (
            {"tasks": {"films": {**CONTENT["tasks"]["films"], "metric": "macro_f1"}}},
            "films: metric: macro_f1 is given; with run_glue.py a table has accuracy or pearson",
        ),
        (
            {"tasks": {"films": {**CONTENT["tasks"]["films"], "script": "run_gleu.py"}}},
            "films: script: run_gleu.py is given; write run_glue.py, run_ner.py, run_qa.py, run_translation.py",
        ),
        (
            {"before": {"FIRST": {"title": "a", "script": "run_ml.py", "recipe": "mlm_english"}}},
            "FIRST: script: run_ml.py is given; write .* or run_mlm.py",
        ),
        ({"before": {"FIRST-ONE": {}}}, "before: FIRST-ONE is no name for .NAME"),
    ],
    ids=str,
)
def test_a_table_that_names_what_there_is_not_is_refused(field: dict, message: str, tmp_path: Path) -> None:
    path = tmp_path / "two.yaml"
    path.write_text(yaml.safe_dump({**CONTENT, **field}, sort_keys=False), encoding="utf-8")
    with pytest.raises(UserError, match=message):
        Table.read(path)


@pytest.mark.parametrize("text", ["", "- title", "title"], ids=["empty", "list", "text"])
def test_a_file_without_keys_is_no_table(text: str, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match="holds no table: write keys and values"):
        Table.read(tmp_path / "two.yaml")


def test_a_file_that_is_no_yaml_is_told(tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text("title: [a\nabout: b", encoding="utf-8")
    with pytest.raises(UserError, match=r"two\.yaml cannot be read: .*line 2"):
        Table.read(tmp_path / "two.yaml")


def test_a_test_score_needs_a_test_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # recipes are found from the project's root
    content = {**CONTENT, "arguments": {"test_file": None}}
    (tmp_path / "two.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    with pytest.raises(UserError, match=r"films/none/star has test_file: null, and the table tells test scores"):
        list(Table.read(tmp_path / "two.yaml").cells())
    (tmp_path / "two.yaml").write_text(yaml.safe_dump({**content, "split": "validation"}), encoding="utf-8")
    assert all("test_file" not in one.arguments for cell in Table.read(tmp_path / "two.yaml").cells() for one in cell)


def test_a_name_that_is_written_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    text = yaml.safe_dump(CONTENT, sort_keys=False)
    path.write_text(text.replace("  big:", "  star:"), encoding="utf-8")
    with pytest.raises(
        UserError, match=r"twice\.yaml cannot be read: line \d+ begins entries of which two are called star"
    ):
        Table.read(path)
    path.write_text(text, encoding="utf-8")
    assert list(Table.read(path).content["systems"]) == ["star", "big", "linear"]
