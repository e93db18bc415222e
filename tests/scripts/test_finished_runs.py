"""What a finished run prints and leaves, and what the same command does then."""

import shlex
from pathlib import Path

import pytest
from script_runner import ScriptRunner
from script_samples import TINY, files, hashes, results_of


NOISE = ("Writing model shards", "Tokenizing", "Loading weights", "LOAD REPORT")
QUICK = ("--num_train_epochs=2", "--per_device_train_batch_size=16", "--learning_rate=5e-3")


@pytest.fixture(scope="module")
def command(corpora: Path) -> list[str]:
    return ["run_glue.py", *files(corpora / "sentiment"), *TINY, *QUICK]


@pytest.fixture(scope="module")
def printed(scripts: ScriptRunner, command: list[str]) -> tuple[str, str]:
    """The output and the messages of a run in the folder "short"."""
    done = scripts.check(*command, "--output_dir=short")
    return done.out, done.error


def test_a_run_ends_with_its_scores_and_a_command_that_works(
    scripts: ScriptRunner, printed: tuple[str, str], corpora: Path
) -> None:
    block = printed[0].rstrip("\n").rpartition("\n\n")[2].splitlines()
    assert len(block) <= 10
    results = results_of(scripts.folder / "short")
    for split in ("eval", "test"):
        scores = [f"{results[f'{kind}{split}_accuracy']:.3f}" for kind in ("", "tfidf_")]
        assert any(all(score in line for score in scores) for line in block)
    named = [word for line in block for word in line.replace(",", " ").split() if word.startswith("short/")]
    assert len(named) == 3
    assert all((scripts.folder / name).exists() for name in named)
    _, *arguments = shlex.split(block[-1].partition("modeling-star")[2])
    assert "positive" in scripts.check("run_predict.py", *arguments).out


def test_bars_of_the_libraries_are_shown_if_asked_for(
    scripts: ScriptRunner, printed: tuple[str, str], command: list[str]
) -> None:
    error = printed[1]
    assert not any(noise in error for noise in NOISE)
    assert "it/s" not in error, "no bar is drawn into a file"
    other = ("--save_total_limit=1", "--max_seq_length=17", "--tfidf_baseline=false")  # tokens of another length
    noisy = scripts.check(*command, "--output_dir=noisy", "--log_level=info", *other)
    assert all(noise in noisy.error for noise in NOISE[:2])
    assert list((scripts.folder / "noisy").glob("checkpoint-*/optimizer.pt"))


def test_a_finished_run_has_no_checkpoints_and_is_not_repeated(
    scripts: ScriptRunner, printed: tuple[str, str], command: list[str]
) -> None:
    folder = scripts.folder / "short"
    assert not list(folder.glob("checkpoint-*"))
    before = hashes(folder)
    again = scripts.check(*command, "--output_dir=short", "--resume_from_checkpoint=last")
    assert again.out.strip() == printed[0].rpartition("\n\n")[2].strip()
    for more, named in (
        (["--resume_from_checkpoint=last", "--num_train_epochs=3"], "num_train_epochs"),
        (["--resume_from_checkpoint=last", "--seed=7"], "seed"),
        ([], "finished"),
    ):
        refused = scripts.run(*command, "--output_dir=short", *more)
        assert refused.code == 1
        assert named in refused.error
    assert hashes(folder) == before
    further = ("--model_name_or_path=short", "--output_dir=further", "--num_train_epochs=1")
    scripts.check(command[0], *command[1:4], *QUICK[1:], *further)
