"""The page of `export --web` in headless Chromium predicts what `Predictor` predicts."""

import gzip
import json
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from conftest import installed
from real_data import data_folder
from saved_models import SCHEMES, TEXTS, saved, with_vocabulary
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait

from modeling_star.inference import Predictor, export
from modeling_star.inference.export import load, write_export


Serve = Callable[[Path], str]

LONG = " ".join(TEXTS * 3)  # longer than the models take
# What regular expressions, cases and offsets of two languages may disagree on.
STRANGE = [
    "don't I'd we’ve U.S. e.g. 3.14 1,000 10:30 ... -- !!! @ada #London https://example.org/a?b=c.",
    "👩‍👩‍👧‍👦👍🏽🇳🇴🇸🇪 1️⃣ ❤️ ☃︎ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 Ada👋London",
    "İstanbul ΟΔΟΣ ǅ ﬁn Straße cafe\u0301 A\u030a n\u0303",
    "가각힣 한국어 नमस्ते क्षि ไทย កម្ពុជា か\u3099ガ々〇ー 𠀀𠮷 ｶﾞ",
    "a\u00adb\u200bc\u2060d\ufefff\u200dg\x00h\x07i\u0085j\u2028k\u3000l",
    "[CLS] Ada [UNK] met [SEP] [MASK][PAD]London",
    "١٢٣ ४५ ½ Ⅳ ² x\u20e3 #\u20e3 " + "x" * 150,
]
ENTITIES = {"id2label": dict(enumerate(SCHEMES["iob"])), "use_crf": True}
SEGMENTS = {"id2label": dict(enumerate(SCHEMES["bmes"])), "use_crf": True}
WORD_CLASSES = {"id2label": dict(enumerate(SCHEMES["pos"]))}  # no O: each word is an entity
CLASSES = {"id2label": {0: "bad", 1: "good", 2: "so"}}


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `npm install` fetches for an exported folder."""
    folder = tmp_path_factory.mktemp("packages")
    shutil.copy(Path(export.__file__).with_name("web") / "package.json", folder)
    npm = [installed("npm", "npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(npm, cwd=folder, check=True)
    return folder / "node_modules"


@pytest.fixture
def serve(packages: Path) -> Iterator[Serve]:
    """Serves an exported folder, and returns its address."""
    servers: list[ThreadingHTTPServer] = []

    def start(folder: Path) -> str:
        (folder / "node_modules").symlink_to(packages)
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def exported(folder: Path) -> Path:
    output = folder.with_name(f"{folder.name}-page")
    write_export(*load(str(folder)), output, web=True)
    return output


def found_by(browser: Chrome, address: str, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The predictions of the page's script."""
    browser.get(address)
    browser.set_script_timeout(600)
    found = browser.execute_async_script(
        """
        const [texts, done] = arguments;
        const predictAll = async () => {
          const { load } = await import("/predict.js");
          const predict = await load();
          const found = [];
          for (const text of texts) found.push(await predict(text));
          return found;
        };
        predictAll().then(done, (error) => done(error.stack));
        """,
        list(texts),
    )
    assert isinstance(found, list), found
    return found


def assert_same(found: list[list[dict[str, Any]]], expected: list[tuple[Any, list[dict[str, Any]]]]) -> float:
    """Everything but numbers is equal, and these differ by at most 1e-4. Returns the largest difference."""
    assert any(predictions for _, predictions in expected)
    largest = 0.0
    for mine, (text, predictions) in zip(found, expected, strict=True):
        numbers = ("score", "value")
        assert [_without(each, numbers) for each in mine] == [_without(each, numbers) for each in predictions], text
        for one, other in zip(mine, predictions, strict=True):
            largest = max(largest, *[abs(one[name] - other[name]) for name in numbers if name in other])
    assert largest < 1e-4
    return largest


def _without(prediction: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in prediction.items() if name not in names}


CASES = {
    "entities": ("TokenClassification", "wordpiece", ENTITIES),
    "segments of characters": ("TokenClassification", "character", SEGMENTS),
    "words": ("TokenClassification", "word", WORD_CLASSES),
    "BERT's tokenizer": ("TokenClassification", "bert", WORD_CLASSES),
    "n-grams": ("SequenceClassification", "wordpiece", {**CLASSES, "ngram_buckets": 1000, "max_ngram_length": 3}),
    "several labels": (
        "SequenceClassification",
        "wordpiece",
        {**CLASSES, "problem_type": "multi_label_classification"},
    ),
    "a number": ("SequenceClassification", "character", {"num_labels": 1, "problem_type": "regression"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_page_predicts_what_python_predicts(case: str, browser: Chrome, serve: Serve, tmp_path: Path) -> None:
    head, kind, fields = CASES[case]
    folder = saved(tmp_path / "model", head, kind, **fields)
    if "use_crf" in fields:
        with_vocabulary(folder)
    page = exported(folder)
    texts = [*TEXTS, LONG, *STRANGE]
    if kind == "bert":  # the library takes rare Chinese characters for letters (@huggingface/tokenizers 0.2.0)
        texts = [text.replace("𠀀𠮷", "") for text in texts]
    assert_same(found_by(browser, serve(page), texts), Predictor(page, batch_size=1).predict(texts))


def test_a_click_marks_the_entities_of_a_text(browser: Chrome, serve: Serve, tagger_folder: Path) -> None:
    page = exported(tagger_folder)
    browser.get(serve(page))
    wait = WebDriverWait(browser, 60)
    button = browser.find_element(By.ID, "run")
    wait.until(lambda _: button.is_enabled())
    browser.find_element(By.ID, "text").send_keys("Bo 👋 sees New York now")
    button.click()
    wait.until(lambda page: page.find_elements(By.CSS_SELECTOR, "#found td"))
    ((_, entities),) = Predictor(page).predict(["Bo 👋 sees New York now"])
    scores = [each["score"] for each in entities]
    assert browser.find_element(By.ID, "marked").text == (
        f"Bo PER {scores[0]:.2f} 👋 sees New York LOC {scores[1]:.2f} now"
    )
    rows = [row.text.split(" ", 3) for row in browser.find_elements(By.CSS_SELECTOR, "#found tr")[1:]]
    assert [row[:3] for row in rows] == [["PER", "0", "2"], ["LOC", "10", "18"]]


def test_what_is_missing_is_named(browser: Chrome, serve: Serve, tagger_folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    write_export(*load(str(tagger_folder)), page, web=True)
    (page / "crf.json").unlink()
    browser.get(serve(page))
    WebDriverWait(browser, 60).until(lambda page: "crf.json" in page.find_element(By.ID, "status").text)
    assert not browser.find_element(By.ID, "run").is_enabled()


@pytest.mark.parametrize(
    ("name", "kind", "fields"),
    [
        ("wnut17", "wordpiece", ENTITIES),
        ("ud_english_ewt", "word", WORD_CLASSES),
        ("weibo_ner", "character", SEGMENTS),
    ],
)
def test_real_texts_have_the_same_tokens_spans_and_types(
    name: str, kind: str, fields: dict[str, Any], browser: Chrome, serve: Serve, tmp_path: Path
) -> None:
    blank = "" if name == "weibo_ner" else " "
    texts = {split: _texts(name, split, blank) for split in ("train", "test")}
    folder = saved(tmp_path / "model", "TokenClassification", kind, texts["train"], 4000, **fields)
    if "use_crf" in fields:
        with_vocabulary(folder)
    page = exported(folder)
    found = found_by(browser, serve(page), texts["test"])
    expected = Predictor(page).predict(texts["test"])
    largest = assert_same(found, expected)
    print(f"{name}: {len(found):,} texts, {sum(map(len, found)):,} spans, largest difference {largest:.1e}")


def _texts(name: str, split: str, blank: str) -> list[str]:
    with gzip.open(data_folder(name) / f"{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [blank.join(json.loads(line)["tokens"]) for line in lines]
