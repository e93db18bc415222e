"""The README's first example runs as printed, but for its length and the name of a model that only a Hub can give."""

import re
import subprocess
import sys
from pathlib import Path


README = Path(__file__).parents[1] / "README.md"


def test_the_first_example_trains_on_wnut17_and_tags_a_sentence(
    minilm_path: str, wnut17_path: Path, tmp_path: Path
) -> None:
    code = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL).group(1)
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
