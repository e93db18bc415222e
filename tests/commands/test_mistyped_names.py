"""Names and endings that are refused before anything is loaded."""

import sys
from pathlib import Path

import pytest

from modeling_star import commands
from modeling_star.commands import explain


@pytest.mark.parametrize("name", ["star-pls", "starplus", "Star_Plus", "configuration/models/star-pls.json"])
def test_a_mistyped_shape_is_refused_with_the_nearest(name: str) -> None:
    with pytest.raises(SystemExit, match="star-plus"):
        commands._shape(name)


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base", "google/bert-mini", "gpt2", "someone/star-pls"])
def test_names_of_the_hub_are_no_mistyped_shapes(name: str) -> None:
    assert commands._shape(name) == name
    assert Path(commands._shape("star-plus")).is_file()


@pytest.mark.parametrize("file", ["e.pdf", "e", "e.png", "page.txt"])
def test_explain_writes_no_page_under_another_ending(
    file: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["modeling-star explain", "none", "A text.", "--output_file", file])
    with pytest.raises(SystemExit):
        explain.main()
    assert f"{Path(file).stem}.html" in capsys.readouterr().err
