"""Trained models for the programs that use them. A package that is missing is an error here, never a skip."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome, ChromeOptions, ChromeService

from modeling_star import StarClassifier, StarTagger


OPTIONS = {
    "config_overrides": "hidden_size=16,num_attention_heads=2",
    "num_train_epochs": 8,
    "learning_rate": 1e-2,
    "batch_size": 8,
    "validation_fraction": 0,
}
TEXTS = [f"{word} {thing}" for thing in ("film", "play", "book", "song") * 3 for word in ("dull", "fine")]
LABELS = ["bad", "good"] * 12
SENTENCES = [["Ann", "moved", "to", "Oslo"], ["Bo", "sees", "New", "York", "now"]] * 10
TAGS = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "O", "B-LOC", "I-LOC", "O"]] * 10


@pytest.fixture(scope="session")
def classifier() -> StarClassifier:
    return StarClassifier(**OPTIONS).fit(TEXTS, LABELS)


@pytest.fixture(scope="session")
def classifier_folder(classifier: StarClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved classifier: "dull" is bad, "fine" is good."""
    folder = tmp_path_factory.mktemp("classifier") / "reviews"
    classifier.save(folder)
    return folder


@pytest.fixture(scope="session")
def tagger() -> StarTagger:
    return StarTagger(**OPTIONS).fit(SENTENCES, TAGS)


@pytest.fixture(scope="session")
def tagger_folder(tagger: StarTagger, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tagger with a CRF, of persons and locations."""
    folder = tmp_path_factory.mktemp("tagger") / "entities"
    tagger.save(folder)
    return folder


def installed(program: str, packages: str) -> str:
    """The path of a program; where it is absent, the test that asks fails and says so."""
    path = shutil.which(program)
    if path is None:
        pytest.fail(f"{program} is not installed: apt-get install {packages}", pytrace=False)
    return path


@pytest.fixture(scope="session")
def browser() -> Iterator[Chrome]:
    driver = installed("chromedriver", "chromium-driver")
    options = ChromeOptions()
    for argument in ("--headless", "--no-sandbox", "--disable-dev-shm-usage"):  # root and containers need the last two
        options.add_argument(argument)
    with Chrome(options, ChromeService(driver)) as started:
        yield started
