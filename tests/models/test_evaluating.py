"""`eval_mode`: evaluation mode for a block of code, and the previous mode after it, with several threads too."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch import nn

from modeling_star.models.heads import eval_mode


@pytest.mark.parametrize("was_training", [True, False])
def test_the_last_thread_restores_the_mode(was_training: bool) -> None:
    model = nn.Sequential(nn.Dropout()).train(was_training)
    inside, first_left = threading.Barrier(2), threading.Event()

    def leave_first() -> bool:
        with eval_mode(model):
            inside.wait()
            mode = model.training
        first_left.set()
        return mode

    def leave_last() -> bool:
        with eval_mode(model):
            inside.wait()
            first_left.wait()
            return model[0].training

    with ThreadPoolExecutor(2) as threads:
        modes = [threads.submit(work) for work in (leave_first, leave_last)]
        assert [mode.result(timeout=60) for mode in modes] == [False, False]
    assert model.training == was_training


def test_a_layer_in_evaluation_mode_stays_in_it() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Dropout())
    model[0].eval()
    with eval_mode(model):
        assert not model[1].training
    assert [model.training, model[0].training, model[1].training] == [True, False, True]


class Merging(nn.Linear):
    """Like the layers of loralib, which merge two weights for evaluation and separate them for training."""

    merged = False

    def train(self, mode: bool = True) -> "Merging":
        self.merged = not mode
        return super().train(mode)


def test_the_train_method_of_each_layer_is_called() -> None:
    model = nn.Sequential(Merging(2, 2), Merging(2, 2)).train()
    model[1].eval()
    with eval_mode(model):
        assert model[0].merged
        model.append(nn.Dropout())
    assert [layer.training for layer in model] == [True, False, True]
    assert [model[0].merged, model[1].merged] == [False, True]


def test_an_error_restores_the_mode() -> None:
    model = nn.Dropout()
    with pytest.raises(KeyError), eval_mode(model), eval_mode(model):
        raise KeyError
    assert model.training
