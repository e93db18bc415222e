"""The documents' examples run as printed, but for their length and the name of a model that only a Hub can give."""

import re
import subprocess
import sys
from pathlib import Path

from modeling_star import StarTransformerConfig, StarTransformerForTokenClassification
from modeling_star.data.tokenizers import train_tokenizer


ROOT = Path(__file__).resolve().parents[2]


def example(document: str, number: int) -> str:
    """A block of Python, from 0."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)[number]


def test_the_quickstarts_tagger_is_used_without_this_package(tmp_path: Path) -> None:
    code = example("README.md", 0)
    (text,) = re.findall(r'text = "(.*)"', code)
    folder = tmp_path / "outputs" / "quickstart" / "model"
    tokenizer = train_tokenizer([text], "word")
    config = StarTransformerConfig(vocab_size=len(tokenizer), hidden_size=12, num_labels=3)
    StarTransformerForTokenClassification(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = [line.rpartition(" ")[0] for line in done.stdout.splitlines()]
    assert found
    assert all(words in text for words in found)


def test_the_example_for_a_csv_trains_and_classifies(minilm_path: str, tmp_path: Path) -> None:
    code = example("README.md", 1)
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
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"\[\{'label': 'LABEL_[01]', 'score': 0\.\d+\}\]$", done.stdout.strip())
    saved = StarTransformerConfig.from_pretrained(tmp_path / "outputs" / "stock")
    assert (saved.residual, saved.position_embedding_type) == (True, "ring")


def test_the_training_example_learns_from_wnut17_and_tags_a_sentence(
    minilm_path: str, wnut17_path: Path, tmp_path: Path
) -> None:
    code = example("docs/tasks.md", 0)
    for given, shorter in {
        '"sentence-transformers/all-MiniLM-L6-v2"': repr(minilm_path),
        "num_train_epochs=4": "max_steps=2, use_cpu=True",
        'load_splits(files={"train": "wnut17/train.jsonl.gz", "test": "wnut17/test.jsonl.gz"})': (
            "__import__('datasets').DatasetDict({split: rows.select(range(64)) for split, rows in "
            'load_splits(files={"train": "wnut17/train.jsonl.gz", "test": "wnut17/test.jsonl.gz"}).items()})'
        ),
    }.items():
        assert given in code
        code = code.replace(given, shorter)
    (tmp_path / "wnut17").symlink_to(wnut17_path)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    score = next(float(line) for line in done.stdout.splitlines() if re.fullmatch(r"[\d.e-]+", line))
    assert 0 <= score < 0.3  # two steps teach next to nothing
    assert (tmp_path / "star-wnut17" / "modeling_star.py").is_file()
