"""`predict --ray` on a cluster of two workers: the file of `predict`, also after a kill."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from modeling_star.errors import UserError
from modeling_star.files import MODEL_FILES, write_manifest
from modeling_star.inference import Predictor
from modeling_star.inference.prediction_files import TEXTS_OF_WINDOW
from modeling_star.inference.ray_cluster import predict_on_ray


ROWS = 3 * TEXTS_OF_WINDOW + 5


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster with two cores, to which this process and the commands are connected."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_worker_niceness", "0")  # 15 by default: other processes starve the workers
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        yield ray.init("local", num_cpus=2, include_dashboard=False).address_info["address"]
        ray.shutdown()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two files of texts."""
    folder = tmp_path_factory.mktemp("ray")
    lines = [json.dumps({"text": f"Bo sees {'New York' if row % 3 else 'Oslo'} {row}"}) + "\n" for row in range(ROWS)]
    (folder / "1.jsonl").write_text("".join(lines[:5000]), encoding="utf-8")
    (folder / "2.jsonl").write_text("".join(lines[5000:]), encoding="utf-8")
    return folder


def command(folder: Path, model: Path, *options: str) -> "subprocess.Popen[str]":
    arguments = ["-m", "modeling_star", "predict", str(model), "--file", "1.jsonl", "2.jsonl", *options]
    return subprocess.Popen([sys.executable, *arguments], cwd=folder, stderr=subprocess.PIPE, text=True)


def test_two_workers_write_the_file_of_one_process_also_after_a_kill(
    address: str, folder: Path, tagger_folder: Path
) -> None:
    alone, output = folder / "alone.jsonl", folder / "ray.jsonl"
    started = command(folder, tagger_folder, f"--output_file={output}", "--ray", address)
    parts, until = folder / "ray.jsonl.parts", time.monotonic() + 240
    while not list(parts.glob("*.jsonl")):
        assert started.poll() is None, started.communicate()[1]
        assert time.monotonic() < until
        time.sleep(0.01)
    assert ray.available_resources().get("CPU", 0) == 0, "each core has a worker"
    started.kill()
    started.communicate()
    assert not output.exists()
    for options in (["--ray", address], []):
        name = output if options else alone
        again = command(folder, tagger_folder, f"--output_file={name}", *options)
        error = again.communicate(timeout=240)[1]
        assert again.returncode == 0, error
    assert output.read_bytes() == alone.read_bytes()
    assert not parts.exists()


def test_the_error_of_a_worker_is_that_of_the_predictor(address: str, tagger_folder: Path, tmp_path: Path) -> None:
    predictor = Predictor(shutil.copytree(tagger_folder, tmp_path / "gone"))
    assert predictor.options  # the files are read once, as predict_to_file does
    shutil.rmtree(tmp_path / "gone")
    with pytest.raises(UserError, match="gone"):
        list(predict_on_ray(predictor, [(tmp_path / "part", [({}, "Bo sees Oslo")])]))


def test_texts_that_workers_truncate_are_counted(address: str, classifier_folder: Path, tmp_path: Path) -> None:
    limited = shutil.copytree(classifier_folder, tmp_path / "limited")
    path = limited / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), "model_max_length": 4}))
    write_manifest(limited, MODEL_FILES)
    predictor, texts = Predictor(limited), ["fine " * 9, "dull film"]
    ((_, predicted),) = predict_on_ray(predictor, [(tmp_path / "part", [({}, text) for text in texts])])
    assert [text for _, text, _ in predicted] == texts
    assert (predictor.texts_seen, predictor.texts_cut) == (2, 1)


def test_without_a_cluster_the_line_that_starts_one_is_named(folder: Path, tagger_folder: Path) -> None:
    started = command(folder, tagger_folder, "--output_file=none.jsonl", "--ray", "nowhere")
    assert "--ray local" in started.communicate(timeout=240)[1]
    assert started.returncode == 1
    assert not list(folder.glob("none*"))
