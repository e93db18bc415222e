"""Pages and pictures made from results/; the committed ones are reproduced."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from harness import ensembles
from harness.results_page import Cell, read_cells, write_page
from harness.stored_runs import RunFile
from harness.table_runs import FinishedRuns, fingerprint_of_shape, run_name
from harness.tables import Table
from table_samples import keep, page_of, runner_of

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("other", [{"correct": "111"}, {"references": "another"}], ids=["fewer rows", "other labels"])
def test_runs_on_other_test_rows_make_no_page(table: Table, tmp_path: Path, other: dict[str, str]) -> None:
    runner = runner_of(table, tmp_path)
    (star,), (linear,) = (table.configurations("films", "bert", system) for system in ("star", "linear"))
    keep(runner, star, 1, validation=0.5, correct="1110", references="one")
    keep(runner, linear, 1, validation=0.5, **{"correct": "1010", "references": "one", **other})
    with pytest.raises(UserError, match=r"two/films/bert: star, seed 1, and linear, seed 1"):
        page_of(tmp_path)


@pytest.mark.slow
def test_the_committed_pages_are_what_results_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    tables, results, ours = Path("experiments/tables"), Path("experiments/results"), Path("experiments")
    write_page(tables, results, tmp_path / "results.md")
    pages = {path.relative_to(tmp_path) for path in tmp_path.rglob("*.md")}
    for page in pages:
        assert (tmp_path / page).read_bytes() == (ours / page).read_bytes(), page
    # The notes of closed studies are written by hand; test_closed_studies.py compares them with their runs.
    assert {path.relative_to(ours) for path in (ours / "pages").iterdir()} - pages == {Path("pages/notes.md")}
    assert len(pages) == len(list(Table.begun(tables, results))) + 4
    texts = [path.read_text(encoding="utf-8") for path in Path("experiments/pages").iterdir()]
    shown = {name for text in texts for name in re.findall(r"]\(\.\./pictures/(.*)\)", text)}
    assert shown == {path.name for path in Path("experiments/pictures").iterdir()}


# A column of the table in conclusions.md -> the systems that it is of.
COLUMNS = {
    "Star": ("star",),
    "star-plus": ("star_plus",),
    "BiG": ("big",),
    "vanilla": ("vanilla", "marian"),
    "BiLSTM": ("bilstm",),
    "TF-IDF": ("tfidf",),
    "linear head": ("linear",),
}
README_ROW = re.compile(r"\| `(?P<table>[a-z0-9]+) (?P<cell>[^ ]+)` \|$")


def test_the_results_at_a_glance_are_those_of_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    tables = {table.name: table for table in Table.begun(Path("experiments/tables"), Path("experiments/results"))}
    checked = 0
    columns: list[str] = []
    for line in (ROOT / "experiments" / "conclusions.md").read_text(encoding="utf-8").splitlines():
        what, *shown, _ = (cell.strip() for cell in line.strip().strip("|").split("|")) if "|" in line else ("", "")
        if line.endswith("| `TABLE CELL` |"):
            columns = shown
        row = README_ROW.search(line)
        if row is None:
            continue
        table, (task, setting) = tables[row["table"]], (*row["cell"].split("/"), None)[:2]
        setting = setting or next(iter(table.settings))
        cells = read_cells(table, setting, Path("experiments/results"))
        tasks = started_tasks(cells) if task == "*" else [task]
        suffix = "_char" if "with characters" in what else ""
        for number, column in zip(shown, columns, strict=True):
            own = [f"{name}{suffix}" for name in COLUMNS[column] if f"{name}{suffix}" in table.systems]
            found = [[cells[one, name] for one in tasks] for name in own if (tasks[0], name) in cells]
            measured = [cell for cell in found if all(one.runs for one in cell)]
            assert len(measured) == bool(number), (column, line)
            for each in measured:
                common = [seed for seed in each[0].seeds if all(seed in one.seeds for one in each)]  # as on the page
                each = [one.of_seeds(common) for one in each]
                seeds = len(each[0].scores)
                fewer = seeds < len(table.seeds_of(each[0].chosen.system))
                score = f"{100 * fmean(fmean(one.scores) for one in each):.1f}" + ("¹" if seeds == 1 else "²") * fewer
                assert number == score, (column, line)
                checked += 1
    assert checked > 30


def test_the_page_of_ensembles_is_what_its_results_give() -> None:
    page = "\n".join(ensembles.page_sections(ROOT / "experiments/results")) + "\n"
    assert page == (ROOT / "experiments/pages/tfidf_vote.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("document", ["README.md", "docs/getting_started.md", "experiments/conclusions.md"])
def test_every_interval_of_a_document_is_on_a_page(document: str) -> None:
    pages = [*(ROOT / "experiments" / "pages").glob("*.md")]
    page = "".join(path.read_text(encoding="utf-8") for path in pages)
    on_page = {
        tuple(map(float, found)) for found in re.findall(r"([+-]\d+\.\d) \[([+-]\d+\.\d), ([+-]\d+\.\d)\]", page)
    }
    text = (ROOT / document).read_text(encoding="utf-8")
    named = re.findall(r"([+-]?\d+\.\d)\s+\[([+-]\d+\.\d),\s+([+-]\d+\.\d)\]", text)
    assert len(named) == len(re.findall(r"\[[+-]\d", text))
    assert named
    for found in named:
        difference, low, high = map(float, found)
        # "A minus B" is on the page, and a sentence may report B minus A.
        assert {(difference, low, high), (-difference, -high, -low)} & on_page, found


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{name}.md" for name in ("choose", "convert", "texts", "tags"))]
)
def test_every_number_of_a_documents_tables_is_on_a_page(document: str) -> None:
    pages = [*(ROOT / "experiments" / "pages").glob("*.md"), ROOT / "experiments" / "results.md"]
    on_pages = {number for page in pages for number, _ in table_numbers(page.read_text(encoding="utf-8"))}
    for number, decimals in table_numbers((ROOT / document).read_text(encoding="utf-8")):
        assert any(round(found, decimals) == number for found in on_pages), number


def table_numbers(document: str) -> set[tuple[float, int]]:
    """Numbers of several digits in a document's tables, without code and links, and how many decimals each has."""
    rows = "\n".join(line for line in document.splitlines() if line.lstrip().startswith("|"))
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", " ", rows)
    found = re.findall(r"(?<![\w.,-])\d[\d,]*(?:\.\d+)?(?![\w,]*\d)", text)
    return {(float(each.replace(",", "")), len(each.partition(".")[2])) for each in found if len(each) > 1}


def started_tasks(cells: dict[tuple[str, str], Cell]) -> list[str]:
    return list(dict.fromkeys(task for (task, _), cell in cells.items() if cell.runs and "," not in task))


def test_every_committed_run_was_made_with_what_its_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    # Else the command that the page prints would run something else.
    monkeypatch.chdir(ROOT)
    results = Path("experiments/results")
    for table in Table.begun(Path("experiments/tables"), results):
        finished = FinishedRuns(table, results)
        configurations = [configuration for cell in table.cells() for configuration in cell]
        requested = {
            run_name(configuration, seed): {**configuration.arguments, "seed": seed}
            for configuration in configurations
            for seed in table.seeds
        }
        for name in table.prerequisites:
            finished.read_prerequisite(name)  # compares its arguments
        kept = finished.file.read_all("*/*/*-seed*")
        assert kept
        assert {name: run["arguments"] for name, run in kept.items()} == {name: requested.get(name) for name in kept}


def test_the_files_of_models_are_still_those_that_committed_runs_were_made_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A run's arguments name the file of its model, and `shape` says what was in it.
    monkeypatch.chdir(ROOT)
    files = sorted((ROOT / "experiments" / "results").glob("*.jsonl"))
    runs = [run for file in files for run in RunFile(file).read_all().values() if "shape" in run]
    now = {name: fingerprint_of_shape({"config_name": name}) for name in {r["arguments"]["config_name"] for r in runs}}
    assert len(now) >= 10
    assert all(run["shape"] == now[run["arguments"]["config_name"]] for run in runs)
