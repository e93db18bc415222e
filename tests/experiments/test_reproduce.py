"""experiments/reproduce.py: every table of experiments/tables, on a few synthetic rows in the form of its data."""

import gzip
import importlib.util
import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from harness.stored_runs import count_rows
from harness.table_runs import FinishedRuns, Runner
from harness.tables import Configuration, Table
from script_samples import paired, read_rows, write_bert
from synthetic.corpora import write_ner_corpus, write_reading_corpus, write_sentiment_corpus
from synthetic.parallel import write_parallel_corpus

from modeling_star.errors import UserError


ROOT = Path(__file__).resolve().parents[2]
TABLES = sorted((ROOT / "experiments" / "tables").glob("*.yaml"))
SIZES = {"train": 24, "validation": 8, "test": 8}
SENTENCES = {"sst2": "en", "sst5": "en", "mtl16/books": "en", "chnsenticorp": "zh", "polarity_v2": "en"}
TAGGED = {"wnut17": ("en", "ner_tags"), "ud_english_ewt": ("en", "pos_tags"), "weibo_ner": ("zh", "ner_tags")}


def zipped(path: Path, rows: Iterable[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for each data set that the tables name, of 24, 8 and 8 rows."""
    folder, made = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("made")
    for language in ("en", "zh"):
        write_sentiment_corpus(made / f"reviews-{language}", language, sizes=SIZES)
        write_ner_corpus(made / f"entities-{language}", language, sizes=SIZES)
    write_reading_corpus(made / "reading", "zh", sizes=SIZES)
    write_parallel_corpus(made / "parallel", sizes=SIZES)
    for split in SIZES:
        for name, language in SENTENCES.items():
            zipped(folder / name / f"{split}.jsonl.gz", read_rows(made / f"reviews-{language}" / f"{split}.jsonl"))
        reviews = read_rows(made / "reviews-en" / f"{split}.jsonl")
        zipped(folder / "snli" / f"{split}.jsonl.gz", map(paired, reviews))
        for name, (language, column) in TAGGED.items():
            rows = read_rows(made / f"entities-{language}" / f"{split}.jsonl")
            rows = [{"tokens": row["tokens"], column: row["ner_tags"]} for row in rows]
            zipped(folder / name / f"{split}.jsonl.gz", rows)
        questions = read_rows(made / "reading" / f"{split}.jsonl")
        zipped(folder / "drcd" / f"{split}.jsonl.gz", questions)
        zipped(folder / "drcd" / f"{split}_from_dev.jsonl.gz", questions)
        # In the order of Tatoeba's rows, which decides the direction: from Chinese.
        pairs = [
            {"translation": {side: row["translation"][side] for side in ("zh", "en")}}
            for row in read_rows(made / "parallel" / f"{split}.jsonl")
        ]
        zipped(folder / "tatoeba_zh_en" / f"{split}.jsonl.gz", pairs)
    texts = read_rows(made / "reviews-en" / "train.jsonl")
    for path in TABLES:
        for prerequisite in Table.read(path).prerequisites.values():
            for file in prerequisite.arguments.get("train_file", ()):
                zipped(Path(file.replace("$DATA", str(folder))), texts)
    zipped(folder / "glue_sst2" / "train.jsonl.gz", texts)  # unlabelled texts of distillation
    characters = {character for path in made.rglob("*.jsonl") for character in path.read_text(encoding="utf-8")}
    (folder / "embeddings").mkdir()
    with gzip.open(folder / "embeddings" / "tencent_char.200d.subset.txt.gz", "wt", encoding="utf-8") as file:
        for number, character in enumerate(sorted(filter(str.isalpha, characters))):
            file.write(character + f" {number % 7 / 7:.2f} {number % 5 / 5:.2f}" * 100 + "\n")
    words = itertools.permutations(sorted(filter(str.isalpha, characters))[-20:], 2)
    lines = "".join(f"{first}{second} 0.1 0.2\n" for first, second in words)
    (folder / "embeddings" / "zh_words.50d.txt").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT in place of MiniLM."""
    return write_bert(
        tmp_path_factory.mktemp("bert"), ["the meal was good", "a bland soup , although the room was fine"]
    )


def reproduce(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "experiments/reproduce.py", *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


# Of tables with many systems: a student, one on a model that another run leaves, a converted encoder, a fresh model.
SOME = {"distillation": ["star_distilled", "big2_restored_plain"], "long": ["big3_512", "star_vote"]}
BEFORE = {"distillation": {"SST2_TEACHER", "BIG2_RESTORED"}}


@pytest.mark.slow
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_every_table_runs_and_has_its_page(path: Path, data: Path, bert: Path, tmp_path: Path) -> None:
    table = Table.read(path)
    task = next(iter(table.tasks))
    systems = SOME.get(path.stem, list(table.systems))
    models = [f"{name}={bert}" for name in ("MINILM", "BIG2", "BIG3")]
    places = ["--results", tmp_path / "results", "--work", tmp_path / "work", "--models", *models]
    done = reproduce(path.stem, "--data", data, "--only", task, "--systems", *systems, "--seeds", 1, *places)
    if table.tuned_on:  # on other sets too, which are not run
        assert "Not run, since validation on" in done.stderr
        assert done.returncode == 1
    else:
        assert done.returncode == 0, done.stderr
    cells = [cell for cell in table.cells() if cell[0].task == task and cell[0].system in systems]
    due = [configuration for cell in cells for configuration in cell]
    finished = FinishedRuns(table, tmp_path / "results")
    kept = finished.file.read_all("*-seed1")
    assert len(kept) == len(due)
    before = {name.removeprefix("before/") for name in finished.file.read_all("before/*")}
    assert before == BEFORE.get(path.stem, set(table.prerequisites))
    for run in kept.values():
        assert 0 <= run["test"] <= 1
        assert count_rows(run) == SIZES["test"]
    page = (tmp_path / "results" / "pages" / f"{path.stem}.md").read_text(encoding="utf-8")
    assert table.title in page
    left = [path for path in (tmp_path / "work").rglob("*.safetensors") if "before" not in path.parts]
    assert not left


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("table2", "experiments/tables/table2.yaml"),
        (None, "experiments/tables/all.yaml"),
        ("mine.yaml", "mine.yaml"),
        ("/tables/mine", "/tables/mine.yaml"),
    ],
)
def test_a_table_is_named_by_its_name_or_its_file(name: str | None, file: str) -> None:
    assert _script().table_file(name) == Path(file)


@pytest.mark.slow
def test_the_projects_results_are_not_mixed_with_those_of_another_table(tmp_path: Path) -> None:
    refused = reproduce(tmp_path / "mine.yaml", "--data", tmp_path, "--results", "experiments/results")
    assert "--results" in refused.stderr
    assert refused.returncode == 1


@pytest.mark.slow
def test_a_second_call_runs_nothing_and_writes_the_same_page(data: Path, bert: Path, tmp_path: Path) -> None:
    places = ["--results", tmp_path / "results", "--work", tmp_path / "work"]
    call = ["table5", "--data", data, "--minilm", bert, "--only", "wnut17/none/star", "--seeds", 1, *places]
    assert reproduce(*call).returncode == 0
    page = tmp_path / "results" / "pages" / "table5.md"
    before = page.read_bytes()
    logs = {log: log.read_bytes() for log in (tmp_path / "work").rglob("log.txt")}
    assert reproduce(*call).returncode == 0
    assert page.read_bytes() == before
    assert {log: log.read_bytes() for log in (tmp_path / "work").rglob("log.txt")} == logs


@pytest.mark.slow
def test_data_sets_that_are_absent_are_skipped(tmp_path: Path) -> None:
    done = reproduce("table3", "--data", tmp_path, "--results", tmp_path / "results")
    assert done.returncode == 1
    assert "holds no finished run" in done.stderr
    assert f"{tmp_path}/mtl16/MR, {tmp_path}/mtl16/apparel" in done.stderr
    assert not list((tmp_path / "results").rglob("*.jsonl"))


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_sigterm_raises_and_nohup_keeps_its_meaning() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # nohup
        _script().stop_as_ctrl_c_does()
        with pytest.raises(SystemExit) as stopped:
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert stopped.value.code == 143


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reproduce", ROOT / "experiments" / "reproduce.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def _runner(table: Table, results: Path, done: Callable[[Configuration, int], bool]) -> Runner:
    """A runner whose runs take no time; those that are not `done` belong to another process."""

    class Quick(Runner):
        def run(self, configuration: Configuration, seed: int) -> dict[str, Any] | None:
            if not done(configuration, seed):
                return None
            result = {"validation": configuration.number / 4, "test": 0.5}
            self.finished.keep(configuration, seed, result)
            return result

    return Quick(table, results, results / "work", {}, [])


def test_one_call_also_runs_what_validation_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    script = _script()
    table = Table.read(ROOT / "experiments" / "tables" / "table3.yaml")
    ran: list[str] = []

    def done(configuration: Configuration, seed: int) -> bool:
        name = f"{configuration.task}-{configuration.number}-{seed}"
        ran.append(name)
        if configuration.task == "video":
            raise UserError("it failed")
        return name != "music-0-1" or ran.count(name) > 1

    runner = _runner(table, tmp_path / "results", done)
    monkeypatch.setattr(script, "_WAIT", 0.0)
    tasks = ("baby", "MR", "books", "music", "video")
    cells = [table.configurations(task, "static", "star") for task in tasks]
    assert script.run_cells(runner, cells, [1, 2]) is True
    chosen = {f"{task}-1-{seed}" for task in tasks for seed in (1, 2)}
    assert set(ran) == chosen | {f"{task}-0-1" for task in ("MR", "books", "music")}
    assert ran.count("video-1-1") == 1, "what failed is not tried again"
    # Alone it waits for those that choose.
    ran.clear()
    other = _runner(table, tmp_path / "none", done)
    assert script.run_cells(other, cells[:1], [1]) is False
    assert ran == []
    assert other.waits_for(cells[0])


def test_kept_runs_are_run_again_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    script = _script()
    table = Table.read(ROOT / "experiments" / "tables" / "table5.yaml")
    runner = _runner(table, tmp_path / "results", lambda configuration, seed: True)
    (star,) = cell = table.configurations("ewt_pos", "none", "star")
    with pytest.raises(UserError, match="no finished run"):
        script.check_cells(runner, [cell], None)
    for seed, test in ((1, 0.5), (2, 0.52)):
        runner.finished.keep(star, seed, {"validation": 0.0, "test": test})
    kept = runner.finished.file.path.read_bytes()
    assert script.check_cells(runner, [cell], None) is False
    equal, within = capsys.readouterr().out.splitlines()[-2:]
    assert "seed 1" in equal
    assert "equal to the last digit" in equal
    assert "within the deviation over 2 seeds" in within
    assert runner.finished.file.path.read_bytes() == kept


@pytest.mark.parametrize(
    ("only", "chosen"),
    [
        *((only, True) for only in ("", "books/static/star", "books", "static/star", "*/static", "*/*/star", "star")),
        *((only, False) for only in ("books/star", "books/static/star_plus", "books/static/star/1")),
    ],
)
def test_a_cell_is_named_by_successive_parts(only: str, chosen: bool) -> None:
    assert _script().within("books/static/star", only) == chosen
