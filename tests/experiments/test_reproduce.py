"""experiments/reproduce.py: every table of experiments/tables, on a few synthetic rows in the form of its data."""

import gzip
import importlib.util
import itertools
import json
import os
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
