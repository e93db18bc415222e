"""Publishing a model, and loading it by name where this package is not installed; a local cache replaces the Hub."""

import json
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import local_hub
import pytest
from script_runner import ROOT, SCRIPTS
from script_samples import QUICK, TINY, assert_card_has_the_results, files, results_of
from transformers import BertConfig, BertModel

from modeling_star import StarTransformerModel


LOAD = """
import json, sys
sys.modules["modeling_star"] = None  # as if it were not installed
from transformers import pipeline

tag = pipeline("token-classification", "someone/star", trust_remote_code=True)
print(json.dumps([[entity["word"], entity["entity"]] for entity in tag("Maria met Oslo", ignore_labels=[])]))
"""


COMMAND = ROOT / "modeling_star" / "__main__.py"


def run_script(
    hub: Path, script: str | Path, *arguments: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a script of run_scripts/, or another one, whose uploads go to `hub`."""
    command = [sys.executable, local_hub.__file__, str(SCRIPTS / script), *map(str, arguments)]
    environment = local_hub.environment(hub, **variables)
    return subprocess.run(command, cwd=hub, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory, corpora: Path) -> Path:
    """The folder of a Hub with the model of a run with --push_to_hub, whose output folder is `run`."""
    folder = tmp_path_factory.mktemp("hub")
    push = ["--push_to_hub", "--hub_model_id=someone/star", "--hub_private_repo=true", "--output_dir=run"]
    done = run_script(folder, "run_ner.py", *files(corpora / "entities"), *TINY, *QUICK, *push)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def names(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_run_uploads_its_model_and_scores_and_no_predictions_checkpoints_or_pickles(hub: Path) -> None:
    uploaded, run = local_hub.snapshot(hub, "someone/star"), hub / "run"
    private = {"arguments.json", "report/trainer_state.json"}
    for split in ("validation", "test"):  # with texts
        private |= {f"report/predictions_{split}.{ending}" for ending in ("jsonl", "conll")}
        private |= {f"report/errors_{split}.html"}
    assert private <= names(run)
    assert names(uploaded) == names(run) - private
    assert (uploaded / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()
    assert json.loads((uploaded.parents[1] / "info.json").read_text(encoding="utf-8")) == {"private": True}
    card = (uploaded / "README.md").read_text(encoding="utf-8")
    assert_card_has_the_results(card, results_of(run))
    assert 'model="someone/star"' in card


@pytest.mark.slow
def test_an_uploaded_model_loads_by_name_where_the_package_is_absent(hub: Path) -> None:
    environment = local_hub.environment(hub, PYTHONPATH="")
    done = subprocess.run([sys.executable, "-c", LOAD], cwd="/", env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    tags = json.loads(done.stdout)
    config = (local_hub.snapshot(hub, "someone/star") / "config.json").read_text(encoding="utf-8")
    assert "".join(word.removeprefix("##") for word, _ in tags) == "MariametOslo"
    assert {label for _, label in tags} <= json.loads(config)["label2id"].keys()


@pytest.mark.slow
def test_a_finished_folder_is_uploaded(hub: Path) -> None:
    listed = run_script(hub, COMMAND, "push", "run", "mine", "--dry_run")
    assert "model.safetensors" in listed.stdout
    assert "predictions_test.jsonl" not in listed.stdout
    assert not local_hub.repository(hub, "someone/mine").exists()
    done = run_script(hub, COMMAND, "push", "run", "mine", "--predictions")
    assert done.returncode == 0, done.stderr
    uploaded = local_hub.snapshot(hub, "someone/mine")
    expected = names(local_hub.snapshot(hub, "someone/star")) | {
        "report/predictions_test.jsonl",
        "report/predictions_validation.conll",
        "report/errors_test.html",
    }
    assert expected <= names(uploaded)
    assert 'model="someone/mine"' in (uploaded / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("mode", ["static", "contextual"])
def test_embeddings_are_those_of_the_named_revision(
    tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    bert, path = BertModel(BertConfig(vocab_size=6, **sizes)), tmp_path / "models--someone--bert"
    for revision in ("1" * 40, "2" * 40):
        bert.embeddings.word_embeddings.weight.data.fill_(float(revision[0]))
        bert.save_pretrained(path / "snapshots" / revision)
    (path / "refs").mkdir()
    (path / "refs" / "main").write_text("2" * 40, encoding="utf-8")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    for revision, number in (("main", 2.0), ("1" * 40, 1.0)):
        options = {"mode": mode, "revision": revision, "cache_dir": tmp_path, "hidden_size": 8}
        model = StarTransformerModel.from_embeddings("someone/bert", num_attention_heads=2, **options)
        assert model.get_input_embeddings().weight[2, 0].item() == number
