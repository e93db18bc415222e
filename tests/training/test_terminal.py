"""What a run shows of the libraries below it, and that it leaves their settings as they were."""

import itertools
import sys
import time
import warnings
from collections.abc import Iterator
from typing import Any

import datasets
import pytest
import transformers
from huggingface_hub import utils as hub

from modeling_star.runs.terminal import TrainingLines, quiet_libraries


def settings() -> tuple[int, bool, bool, bool]:
    """The verbosity of transformers, and whether transformers, datasets and the Hub show bars."""
    shown = transformers.logging.is_progress_bar_enabled(), not datasets.are_progress_bars_disabled()
    return (transformers.logging.get_verbosity(), *shown, not hub.are_progress_bars_disabled())


def put(verbosity: int, bars: bool, of_datasets: bool, of_hub: bool) -> None:
    transformers.logging.set_verbosity(verbosity)
    (transformers.logging.enable_progress_bar if bars else transformers.logging.disable_progress_bar)()
    (datasets.enable_progress_bars if of_datasets else datasets.disable_progress_bars)()
    (hub.enable_progress_bars if of_hub else hub.disable_progress_bars)()


@pytest.fixture
def restored() -> Iterator[None]:
    before = settings()
    yield
    put(*before)


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("given", itertools.product((20, 30), *[(False, True)] * 3))
def test_libraries_are_quiet_for_a_while(given: tuple[int, bool, bool, bool]) -> None:
    put(*given)
    with quiet_libraries():
        assert settings() == (transformers.logging.ERROR, False, False, False)
    assert settings() == given
    with pytest.raises(KeyError), quiet_libraries():
        raise KeyError
    assert settings() == given
    with quiet_libraries(downloads=True):
        assert settings() == (transformers.logging.ERROR, False, False, given[-1])
    assert settings() == given
    with quiet_libraries("warning"):
        assert settings() == (given[0], False, False, False)
    with quiet_libraries("info"):
        assert settings() == given
    assert settings() == given


def test_a_log_has_the_scores_and_the_time_that_is_left(capsys: pytest.CaptureFixture) -> None:
    lines, state = TrainingLines("f1"), transformers.TrainerState(max_steps=90)
    given: Any = (None, state, None)
    lines.on_log(*given, logs={"eval_loss": 2.0})
    lines.on_train_begin(*given)
    state.global_step, state.epoch = 30, 1.0
    lines.began = (0, time.monotonic() - 60)
    lines.on_log(*given, logs={"eval_loss": 0.25, "eval_f1": 0.5, "eval_runtime": 3.0})
    lines.on_log(*given, logs={"epoch": 1.0})
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("epoch 1.00: validation loss 0.25, validation f1 0.5")
    assert line.endswith("; 0:02:00 left")


@pytest.mark.usefixtures("restored")
def test_a_variable_that_shows_all_bars_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    put(30, True, True, True)
    monkeypatch.setattr(sys.modules["datasets.utils.tqdm"], "HF_DATASETS_DISABLE_PROGRESS_BARS", False)
    with warnings.catch_warnings(record=True) as shown, quiet_libraries():
        assert not datasets.are_progress_bars_disabled()
    assert not shown
