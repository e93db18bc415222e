"""The examples of README.md and docs/ run as printed, but for their length and names that only a Hub can resolve."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification
from modeling_star.data.tokenizers import train_tokenizer


ROOT = Path(__file__).resolve().parents[2]


def example(document: str, number: int) -> str:
    """One block of Python, counted from 0."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]


def run_python(code: str, folder: Path) -> str:
    """What `code` prints, run in `folder`."""
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_first_example_prints_what_readme_shows(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code, printed = re.findall(r"```python\n(.*?)```\n\n```\n(.*?)```", text, re.DOTALL)[0]
    assert run_python(code, tmp_path) == printed


@pytest.mark.slow
def test_the_quickstart_tagger_is_used_without_this_package(tmp_path: Path) -> None:
    code = example("docs/getting_started.md", 0)
    (text,) = re.findall(r'text = "(.*)"', code)
    folder = tmp_path / "outputs" / "quickstart" / "model"
    tokenizer = train_tokenizer([text], "word")
    config = StarTransformerConfig(vocab_size=len(tokenizer), hidden_size=12, num_labels=3)
    StarTransformerForTokenClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    entities = [line.rpartition(" ")[0] for line in run_python(code, tmp_path).splitlines()]
    assert entities
    assert all(words in text for words in entities)


@pytest.mark.slow
def test_the_example_for_a_csv_trains_and_classifies(minilm_path: str, tmp_path: Path) -> None:
    code = example("docs/getting_started.md", 1)
    for given, shorter in {
        '"sentence-transformers/all-MiniLM-L6-v2"': repr(minilm_path),
        "num_train_epochs=5": "max_steps=2, use_cpu=True, report_to='none'",
    }.items():
        assert given in code
        code = code.replace(given, shorter)
    for split in ("train", "test"):
        rows = "".join(f'"A {word} film, number {n}.",{n % 2}\n' for n, word in enumerate(["dull", "fine"] * 20))
        (tmp_path / f"{split}.csv").write_text(f"text,label\n{rows}", encoding="utf-8")
    (tmp_path / "configuration").symlink_to(ROOT / "configuration")
    printed = run_python(code, tmp_path)
    assert re.search(r"\[\{'label': 'LABEL_[01]', 'score': 0\.\d+\}\]$", printed.strip())
    saved = StarTransformerConfig.from_pretrained(tmp_path / "outputs" / "stock")
    assert (saved.residual, saved.role_bias) == (True, True)


def test_the_pages_link_to_files_and_headings_that_exist() -> None:
    folders = ("docs", "experiments", "model_cards")
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [path for folder in folders for path in (ROOT / folder).rglob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\((?!https?://)([^)]+)\)", page.read_text(encoding="utf-8")):
            path, _, heading = target.partition("#")
            file = page.parent / path if path else page
            assert file.exists(), (page.name, target)
            headings = re.findall(r"^#+ (.+)$", file.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
            anchors = [re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in headings]
            assert not heading or heading in anchors, (page.name, target)
