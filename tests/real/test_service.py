"""The example of a service under its server: texts in, the predictions of `Predictor` out."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
from script_runner import ROOT, free_port

from modeling_star.inference import Predictor


@pytest.fixture(scope="module")
def address(tagger_folder: Path) -> Iterator[str]:
    """Where the service answers."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "--app-dir", ROOT / "docs", "serve:app", f"--port={port}"],
        env={**os.environ, "MODEL": str(tagger_folder)},
    )
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + 240
    while True:
        try:
            requests.get(f"{url}/openapi.json", timeout=60).raise_for_status()
            break
        except requests.ConnectionError:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < until
            time.sleep(0.2)
    yield url
    server.terminate()
    server.wait()


def test_requests_at_the_same_time_get_their_own_predictions(address: str, tagger_folder: Path) -> None:
    batches = [[f"Bo sees New York {row}", "Ann moved to Oslo"][: row % 2 + 1] for row in range(16)]

    def ask(texts: list[str]) -> list[list[dict[str, object]]]:
        answer = requests.post(f"{address}/predict", json={"texts": texts}, timeout=60)
        answer.raise_for_status()
        return answer.json()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, batches))
    predictor = Predictor(tagger_folder)
    assert answers == [predictor({"text": texts})["found"] for texts in batches]
    assert {entity["label"] for found in answers[0] for entity in found} == {"PER", "LOC"}


@pytest.mark.parametrize(
    "body", [{"texts": []}, {"texts": "Bo"}, {"texts": ["a" * 100_001]}, {"texts": ["a b " * 5000]}, {}]
)
def test_other_bodies_are_refused_and_the_service_goes_on(address: str, body: dict[str, object]) -> None:
    refused = requests.post(f"{address}/predict", json=body, timeout=60)
    assert refused.status_code in (413, 422)
    assert requests.post(f"{address}/predict", json={"texts": ["Bo"]}, timeout=60).status_code == 200
