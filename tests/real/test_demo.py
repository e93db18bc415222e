"""The page of `modeling-star demo` in headless Chromium: a text, a click, the prediction."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from script_runner import free_port
from selenium.common.exceptions import WebDriverException
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from modeling_star.inference import Predictor


Demo = Callable[[Path], str]

PATIENCE = 240  # seconds


@pytest.fixture
def demo() -> Iterator[Demo]:
    """Starts the command for a folder, and returns the address of its page."""
    servers: list[subprocess.Popen[bytes]] = []

    def start(folder: Path) -> str:
        port = free_port()
        servers.append(subprocess.Popen([sys.executable, "-m", "modeling_star", "demo", folder, f"--port={port}"]))
        return f"http://127.0.0.1:{port}"

    yield start
    for server in servers:
        server.terminate()
        server.wait()


def opened(browser: Chrome, address: str) -> None:
    """Load a page as soon as its server answers."""

    def loads(_: Chrome) -> bool:
        browser.get(address)
        return True

    WebDriverWait(browser, PATIENCE, ignored_exceptions=[WebDriverException]).until(loads)


def shown(browser: Chrome, text: str, component: str) -> list[str]:
    """Type a text, click, and return the lines that a component of gradio then shows below its title."""
    wait = WebDriverWait(browser, PATIENCE)
    wait.until(lambda page: page.find_elements(By.TAG_NAME, "textarea"))[0].send_keys(text)
    browser.find_element(By.XPATH, "//button[normalize-space()='Predict']").click()
    wait.until(lambda page: page.find_elements(By.TAG_NAME, "iframe"))  # the explanation comes with the prediction
    return browser.find_element(By.CSS_SELECTOR, f"[data-testid={component}] .container").text.split("\n")


def test_a_click_shows_the_classes_of_a_text(browser: Chrome, demo: Demo, classifier_folder: Path) -> None:
    opened(browser, demo(classifier_folder))
    lines = shown(browser, "a dull book", "label")
    ((_, found),) = Predictor(classifier_folder).predict(["a dull book"])
    best, other = sorted(found, key=lambda each: -each["score"])
    assert lines == ["bad", "bad", f"{best['score']:.0%}", "good", f"{other['score']:.0%}"]


def test_a_click_marks_the_entities_of_a_text(browser: Chrome, demo: Demo, tagger_folder: Path) -> None:
    opened(browser, demo(tagger_folder))
    lines = shown(browser, "Bo sees New York now", "highlighted-text")
    assert [line.strip() for line in lines] == ["Bo PER", "sees", "New York LOC", "now"]
