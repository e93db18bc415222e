"""Files of predictions: the input's own columns, what is predicted, and refusals before a model is loaded."""

import csv
import json
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow.parquet import read_table, write_table
from saved_models import SCHEMES, TEXTS, saved

from modeling_star.commands import predict
from modeling_star.data.readers import read_file
from modeling_star.inference import Predictor, prediction_files


CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so, so"}}


@pytest.fixture
def classifier(tmp_path: Path) -> Path:
    return saved(tmp_path / "classifier", "SequenceClassification", **CLASSES)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[str, str]]:
    """Run the command; returns standard output and standard error."""

    def command(*arguments: Any) -> tuple[str, str]:
        monkeypatch.setattr(sys, "argv", ["predict", *map(str, arguments)])
        predict.main()
        return capsys.readouterr()

    return command


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            return [*map(json.loads, file)]
        return list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))


REVIEWS = [
    {"id": "007", "Review": 'Fine, "really"', "label": "bad", "note": "two\nlines"},
    {"id": "1", "Review": " dull; 李娜", "label": "", "note": "a\ttab and a \r"},
    {"id": "1e3", "Review": "London", "label": "good", "note": ""},
]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    with (tmp_path / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, REVIEWS[0], quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(REVIEWS)
    return tmp_path / "reviews.csv"


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_the_columns_of_the_input_are_kept_beside_label_and_score(
    ending: str,
    classifier: Path,
    reviews: Path,
    run: Callable[..., tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 2)
    output = reviews.with_name(f"out{ending}")
    printed, _ = run(classifier, "--file", reviews, "--text_column_name=Review", "--output_file", output)
    assert printed.splitlines()[-1] == f"3 rows written to {output}"
    assert "predicted_label" in caplog.text
    rows = rows_of(output)
    assert [{name: row[name] for name in REVIEWS[0]} for row in rows] == REVIEWS
    expected = [found for _, found in Predictor(classifier).predict([row["Review"] for row in REVIEWS])]
    assert [row["predicted_label"] for row in rows] == [found[0]["label"] for found in expected]
    assert [float(row["score"]) for row in rows] == [round(found[0]["score"], 4) for found in expected]
    if ending in (".csv", ".tsv"):
        assert list(rows[0]) == [*REVIEWS[0], "predicted_label", "score"]
    else:
        assert [(row["index"], row["text"], len(row["found"])) for row in rows] == [
            (index, row["Review"], 3) for index, row in enumerate(REVIEWS)
        ]
    if ending != ".tsv":  # of which training expects no quotes around tabs
        assert len(read_file(output)) == 3


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_entities_of_words_have_the_text_of_their_offsets(
    ending: str, run: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    tagger = saved(tmp_path / "tagger", "TokenClassification", id2label=dict(enumerate(SCHEMES["iob"])))
    sentences = [text.split() for text in TEXTS]
    lines = ["".join(f"{word} O\n" for word in words) for words in sentences]
    (tmp_path / "in.conll").write_text("\n".join(lines), encoding="utf-8")
    output = tmp_path / f"out{ending}"
    run(tagger, "--file", tmp_path / "in.conll", "--output_file", output)
    rows = rows_of(output)
    if ending == ".csv":
        rows = [{**row, **{name: json.loads(row[name]) for name in ("tokens", "entities")}} for row in rows]
    assert [row["tokens"] for row in rows] == sentences
    assert any(row["entities"] for row in rows)
    for row in rows:
        for entity in row["entities"]:
            assert row["text"][entity["start"] : entity["end"]] == entity["text"]


def test_parquet_has_the_types_of_the_input_or_texts_where_they_vary(
    classifier: Path, run: Callable[..., tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction_files, "TEXTS_OF_WINDOW", 2)
    columns = {"text": ["a", "b", "c"], "day": [date(2020, 1, 2)] * 3, "n": [1, 2, 3], "none": [None, None, 4.5]}
    write_table(pa.table(columns), tmp_path / "in.parquet")
    run(classifier, "--file", tmp_path / "in.parquet", "--output_file", tmp_path / "out.parquet")
    table = read_table(tmp_path / "out.parquet")
    assert table.select(["day", "n", "none"]).to_pydict() == {name: columns[name] for name in ("day", "n", "none")}
    varying = [{"text": "a", "x": 1, "y": 1}, {"text": "b", "x": "two", "y": 2}, {"text": "c", "x": None, "y": "3"}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in varying), encoding="utf-8")
    run(classifier, "--file", tmp_path / "in.jsonl", "--output_file", tmp_path / "varying.parquet")
    table = read_table(tmp_path / "varying.parquet")
    assert table.select(["x", "y"]).to_pydict() == {"x": ["1", "two", None], "y": ["1", "2", "3"]}


def test_several_labels_are_a_list_that_training_reads(run: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    problem = {"problem_type": "multi_label_classification"}
    folder = saved(tmp_path / "model", "SequenceClassification", **CLASSES, **problem)
    (tmp_path / "in.txt").write_text("\n".join(TEXTS), encoding="utf-8")
    run(folder, "--file", tmp_path / "in.txt", "--output_file", tmp_path / "out.csv")
    expected = [
        [each["label"] for each in found if each["predicted"]] for _, found in Predictor(folder).predict(TEXTS)
    ]
    assert [json.loads(row["label"]) for row in rows_of(tmp_path / "out.csv")] == expected
    assert len({*map(len, expected)}) > 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--output_file", "out.xlsx"], ".csv"),
        (["--output_file", "exists.csv"], "exists.csv exists"),
        (["--file", "no.csv", "--output_file", "out.csv"], "no.csv"),
        (["--text_column_name=nosuch", "--output_file", "out.csv"], "nosuch"),
        (["--threshold=0.1"], "threshold"),
    ],
)
def test_refusals_come_before_a_model_is_loaded(
    arguments: list[str], named: str, classifier: Path, reviews: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(reviews.parent)
    (reviews.parent / "exists.csv").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(Predictor, "model", property(lambda self: pytest.fail("the model is loaded")))
    file = [] if "--file" in arguments else ["--file", str(reviews)]
    monkeypatch.setattr(sys, "argv", ["predict", str(classifier), *file, *arguments])
    with pytest.raises(SystemExit, match=named):
        predict.main()
    assert (reviews.parent / "exists.csv").read_text(encoding="utf-8") == "mine"
    assert not list(reviews.parent.glob("*.parts"))
