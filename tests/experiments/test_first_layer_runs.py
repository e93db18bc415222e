"""experiments/first_layer.py: a run of each kind on a few synthetic rows, and the committed page."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import first_layer
import pytest
from lab.kept_runs import RunFile, read_counts
from script_samples import read_rows
from synthetic.corpora import write_ner_corpus, write_sentiment_corpus


ROOT = Path(__file__).resolve().parents[2]


def test_the_page_of_the_first_layer_is_what_its_runs_give() -> None:
    runs = RunFile(ROOT / first_layer.RESULTS).read_all()
    assert first_layer.results_page(runs) == (ROOT / first_layer.PAGE).read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_run_keeps_its_score_and_attention_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"train": 24, "validation": 8, "test": 8}
    write_sentiment_corpus(tmp_path / "reviews", "en", sizes=sizes)
    write_ner_corpus(tmp_path / "entities", "en", sizes=sizes)
    for made, name in (("reviews", "mtl16/MR"), ("entities", "wnut17")):
        (tmp_path / name).mkdir(parents=True)
        for split in ("train", "validation"):
            with gzip.open(tmp_path / name / f"{split}.jsonl.gz", "wt", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in read_rows(tmp_path / made / f"{split}.jsonl"))
    results, page = tmp_path / "runs.jsonl", tmp_path / "page.md"
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(first_layer, "PAGE", page)
    given = ["first_layer.py", str(tmp_path), "--tasks", "MR", "wnut17", "--seeds", "1", "--results", str(results)]
    monkeypatch.setattr(sys, "argv", [*given, "--systems", "star_plus", "star_plus_2"])
    first_layer.main()
    kept = RunFile(results).read_all()
    assert len(kept) == 4
    for name, run in kept.items():
        assert len(read_counts(run["counts"])) == 8
        assert_measured(run["start"], uniform="star_plus-" in name)
        assert set(run["end"]["tokens"]) == {"entropy", "deviation"}
    assert "star-plus-2 minus star-plus" in page.read_text(encoding="utf-8")
    before = results.read_bytes()
    first_layer.main()
    assert results.read_bytes() == before


def assert_measured(start: dict[str, Any], uniform: bool) -> None:
    """The first layer of star-plus begins uniform, that of star-plus-2 does not; the second never does."""
    entropy, gradient = start["tokens"]["entropy"], start["tokens"]["gradient"]
    assert (entropy[0] > 0.9999) == uniform
    assert entropy[1] < 0.99
    assert (gradient[0] < 0.01 * gradient[1]) == uniform
